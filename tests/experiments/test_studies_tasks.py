"""The ten tasks: sizes of the paper, standardised by the training part, in their order."""

import numpy as np
import pytest

from experiments.studies.published_table import published_cell, published_initial, published_rows
from experiments.studies.tasks.catalogue import TASKS, task_of
from experiments.studies.tasks.task import Rows, TaskData
from tests.experiments.reproducing import quick_plan

SIMULATED = ("rastrigin", "rosenbrock", "himmelblau", "six_hump_camel", "van_der_pol")
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


@pytest.fixture
def loaded(shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))

    def load(name, seed=0, plan=None):
        return task_of(name, plan or quick_plan("nowhere", name, building_samples=35041)).load(seed, 100, 10**6)

    return load


@pytest.mark.parametrize("name", [name for name in SIZES if name != "building"])
def test_rows_are_those_of_the_paper(loaded, name):
    data = loaded(name)
    p, n_new, n_test = SIZES[name]
    assert data.initial_inputs.shape == (100, p)
    assert data.inputs.shape == (n_new, p)
    assert data.test_inputs.shape == (n_test, p)
    assert n_new == published_rows("table_2")[TASKS[name].title]["n_new"]
    np.testing.assert_allclose(data.training_inputs.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(data.training_inputs.std(axis=0), 1.0, atol=1e-9)
    assert data.training_targets.mean() == pytest.approx(0.0, abs=1e-9 * data.training_targets.std())


@pytest.mark.slow
def test_the_building_has_the_rows_of_the_paper(loaded):
    data = loaded("building")
    assert (data.inputs.shape, data.test_inputs.shape) == ((17418, 9), (17520, 9))


def test_a_record_keeps_its_order(loaded):
    from sysid import ConcreteData

    data, recordings = loaded("concrete"), ConcreteData().load()
    strength = recordings.estimation[0][recordings.outputs[0]].values
    np.testing.assert_allclose(np.diff(data.training_targets), np.diff(strength), atol=1e-9)


@pytest.mark.parametrize("name", SIMULATED)
def test_a_seed_decides_everything(name):
    task = task_of(name, quick_plan("nowhere", name))
    one, again, other = (task.load(seed, 100, 10**6) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one.inputs, other.inputs)


def test_training_and_test_trajectories_of_van_der_pol_differ():
    data = task_of("van_der_pol", quick_plan("nowhere")).load(0, 100, 10**6)
    assert not np.isin(data.test_targets.round(12), data.training_targets.round(12)).any()


def test_only_the_training_part_decides_the_scaling():
    rng = np.random.default_rng(0)
    training, test = Rows(rng.normal(3, 2, (50, 2)), rng.normal(5, 1, 50)), Rows(np.full((4, 2), 3.0), np.full(4, 5.0))
    data = TaskData.of(training, test, 10)
    expected = (3.0 - training.inputs.mean(axis=0)) / training.inputs.std(axis=0)
    np.testing.assert_allclose(data.test_inputs, np.tile(expected, (4, 1)))
    np.testing.assert_allclose(data.test_targets, 5.0 - training.targets.mean())
    np.testing.assert_array_equal(data.training_targets[:10], data.initial_targets)


def test_a_column_that_is_constant_in_training_survives():
    training = Rows(np.column_stack([np.arange(20.0), np.full(20, 7.0)]), np.arange(20.0))
    data = TaskData.of(training, Rows(np.array([[1.0, 8.0]]), np.zeros(1)), 5)
    assert data.test_inputs[0, 1] == 1.0
    assert not data.training_inputs[:, 1].any()


def test_rows_survive_storing():
    data = task_of("rastrigin", quick_plan("nowhere")).load(1, 20, 30)
    again = TaskData.from_dataset(data.to_dataset())
    assert all(np.array_equal(a, b) for a, b in zip(data, again, strict=True))
    assert len(data.targets) == 30
    assert 25 <= len(data.test_targets) <= 30


def test_published_cells_are_those_printed():
    cell = published_cell("table_4", "Tanks", "mean_relevance", accepting=True)
    assert (cell.threshold, cell.smse, cell.n_revised) == (0.05, 0.5107, 264.0)
    cell = published_cell("table_2", "Boston", "marginal_log_likelihood", accepting=True)
    assert (cell.smse, cell.accepted_percent, cell.n_revised) == (0.2734, 65.2, 229.0)
    assert published_cell("table_2", "Boston", "prior_entropy", accepting=False).n_revised == 351
    assert published_initial("table_3", "Van der Pol") == 0.0019
    assert set(published_rows("table_3")) == {task.title for task in TASKS.values()}
