"""The ten tasks: sizes of the paper, standardised by the training part, in their order; the hyper-parameters."""

import numpy as np
import pytest
from reproducing import make_plan, prepare

from experiments.studies import paper
from experiments.studies.stream import Setting, data_of, hyperparameters_of
from experiments.studies.study import Unit, read_part
from experiments.studies.tables import RULES
from experiments.studies.tasks import PAPER_TASKS, TASKS, Rows, TaskData, draw_rows, load_task
from sysid import ConcreteData, log_marginal_likelihood

SIZES = {  # features, new rows, test rows
    "rastrigin": (2, 500, 1681),
    "rosenbrock": (2, 500, 1681),
    "himmelblau": (2, 500, 1681),
    "six_hump_camel": (2, 500, 1681),
    "van_der_pol": (2, 900, 1000),
    "boston": (13, 351, 55),
    "concrete": (8, 827, 103),
    "tanks": (4, 922, 1022),
    "bouc_wen": (6, 897, 8189),
    "building": (9, 17418, 17520),
}
SLOW = {"building": pytest.mark.slow}


def load(name, seed=0):
    return load_task(name, seed, n_initial=100, most_rows=10**6)


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in SIZES])
def test_rows_are_those_of_the_paper(name, shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    data = load(name)
    p, n_new, n_test = SIZES[name]
    assert data.initial_inputs.shape == (100, p)
    assert data.inputs.shape == (n_new, p)
    assert data.test_inputs.shape == (n_test, p)
    assert n_new == paper.read_table("table_2")["n_new"][TASKS[name].title]
    np.testing.assert_allclose(data.training_inputs.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(data.training_inputs.std(axis=0), 1.0, atol=1e-9)
    assert data.training_targets.mean() == pytest.approx(0.0, abs=1e-9 * data.training_targets.std())


def test_a_record_keeps_its_order_and_has_a_digest(shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    data, recordings = load("concrete"), ConcreteData().load()
    strength = recordings.estimation[0][recordings.outputs[0]].values
    np.testing.assert_allclose(np.diff(data.training_targets), np.diff(strength), atol=1e-9)
    assert TASKS["concrete"].digest() != TASKS["tanks"].digest() != ""
    assert TASKS["rastrigin"].digest() == ""


def test_training_and_test_rows_are_of_different_trajectories():
    data = load("van_der_pol")
    assert not np.isin(data.test_targets.round(12), data.training_targets.round(12)).any()
    training, test = draw_rows("building", 0, 1201)
    assert len(training.targets) + len(test.targets) == 1201 - 3  # the lags of the test reach into the training part
    assert not np.isin(test.targets.round(12), training.targets.round(12)).any()


def test_only_the_training_part_decides_the_scaling():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.normal(3, 2, (50, 2)), np.full(50, 7.0)])
    training, test = Rows(inputs, rng.normal(5, 1, 50)), Rows(np.array([[3.0, 3.0, 8.0]] * 4), np.full(4, 5.0))
    data = TaskData.of(training, test, 10)
    expected = (3.0 - inputs[:, :2].mean(axis=0)) / inputs[:, :2].std(axis=0)
    np.testing.assert_allclose(data.test_inputs, np.tile([*expected, 1.0], (4, 1)))  # a constant column survives
    np.testing.assert_allclose(data.test_targets, 5.0 - training.targets.mean())
    np.testing.assert_array_equal(data.training_targets[:10], data.initial_targets)


def test_published_cells_are_those_printed():
    cells = {name: paper.read_cells(name).set_index(["dataset", "criterion", "is_accepting"]) for name in RULES}
    names = ["smse", "accepted_percent", "n_revised"]
    assert cells["table_4"].loc["Tanks", "mean_relevance", True].tolist()[:3] == [0.05, 0.5107, 264]
    assert cells["table_2"].loc["Boston", "marginal_log_likelihood", True][names].tolist() == [0.2734, 65.2, 229]
    assert cells["table_2"].loc["Boston", "prior_entropy", False][names].tolist() == [0.3559, 100, 351]
    assert set(paper.read_cells("table_3")["dataset"]) == {task.title for task in PAPER_TASKS.values()}


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = make_plan(tmp_path_factory.mktemp("tasks"), "himmelblau", n_initial=60, most_rows=200, budget=60)
    return prepare(plan)


def test_preparation_keeps_rows_and_trained_hyperparameters(plan):
    data, found = data_of("himmelblau", 1, plan), hyperparameters_of("himmelblau", 1, Setting.adaptive, plan)
    x, y, noise = data.initial_inputs, data.initial_targets, found.noise_variance
    assert len(y) == 60
    here, worse = (log_marginal_likelihood(found.kernel, factor * noise, x, y).value for factor in (1, 100))
    assert here > worse
    trained = hyperparameters_of("himmelblau", 1, Setting.trained, plan)
    np.testing.assert_array_equal(trained.kernel.parameters(), found.kernel.parameters())


def test_calibration_meets_the_published_initial_error(plan):
    part = read_part(Unit("calibration", "himmelblau"), plan)
    assert bool(part["is_reached"])
    assert float(part["initial_smse"]) == pytest.approx(0.2396, rel=0.02)
    assert np.unique(part["length_scale"]).size == 1
    errors = []
    for seed in range(2):
        data, found = data_of("himmelblau", seed, plan), hyperparameters_of("himmelblau", seed, "published", plan)
        variance = np.mean(data.initial_targets**2)
        assert found.kernel.parameters()[0] == pytest.approx(variance)
        trained = hyperparameters_of("himmelblau", seed, "trained", plan).noise_variance
        assert found.noise_variance == pytest.approx(np.clip(trained, 1e-4 * variance, variance))
        covariance = found.kernel(data.initial_inputs, data.initial_inputs) + found.noise_variance * np.eye(60)
        weights = np.linalg.solve(covariance, data.initial_targets)
        error = data.test_targets - found.kernel(data.test_inputs, data.initial_inputs) @ weights
        errors.append(np.mean(error**2) / np.var(data.test_targets))
    assert np.median(errors) == pytest.approx(0.2396, rel=0.02)
