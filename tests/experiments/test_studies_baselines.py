"""Baselines: exact GP, floors, measured quantities, orders of the tables, gaps; never a time."""

import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from experiments.studies.baselines.catalogue import METHODS
from experiments.studies.baselines.exact import ExactGP
from experiments.studies.baselines.floor import UNKNOWN, filtered, floor, transition
from experiments.studies.baselines.linear import RIDGES, Ridge, RidgeInHindsight, with_flow_products
from experiments.studies.baselines.method import QUANTITIES, Fitted, Material, Method, measured, peak_bytes
from experiments.studies.baselines.sparse import Vfe
from experiments.studies.baselines.study import BaselinesStudy, shuffled
from experiments.studies.execution import compute_and_keep
from experiments.studies.part import read_part
from experiments.studies.plan import Plan
from experiments.studies.published_table import FULL_GP_VAN_DER_POL, VFE_BUILDING
from experiments.studies.significant import significant
from experiments.studies.study import Unit
from experiments.studies.tasks.building import NARX, BuildingTask
from experiments.studies.tasks.task import Rows, TaskData
from simulators import Building
from sysid import Hyperparameters, SquaredExponential, store
from sysid.gp.formula import PLAIN

STUDY = BaselinesStudy()
TOO_SLOW = "dozens of trainings take minutes in plain Python"


def table(n=60, n_test=12, p=3, seed=0):
    """Noisy linear function with a bend."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + n_test, p)) * [1.0, 5.0, 0.1][:p] + 3.0
    y = 2.0 * x[:, 0] - 0.3 * x[:, 1] + np.sin(x[:, 0]) + 0.1 * rng.normal(size=n + n_test) + 7.0
    return TaskData.of(Rows(x[:n], y[:n]), Rows(x[n:], y[n:]), 20)


def material(data, task="tanks", seed=0):
    return Material(data, task, seed, budget=15, n_inducing=8, iterations=4)


@pytest.fixture
def plan(tmp_path):
    return Plan(tmp_path, tasks=("boston", "rastrigin"), seeds=2, budget=15, inducing_points=8, sparse_iterations=3)


def test_exact_gp_is_that_of_explicit_inverses():
    data, kernel, noise = table(), SquaredExponential(2.0, [1.0, 2.0, 3.0]), 0.05
    x, y = data.training_inputs, data.training_targets
    mean, variance = ExactGP.condition(Hyperparameters(kernel, noise, 0.0), x, y).predict(data.test_inputs)
    inverse = np.linalg.inv(kernel(x, x) + noise * np.eye(len(y)))
    cross = kernel(data.test_inputs, x)
    np.testing.assert_allclose(mean, cross @ inverse @ y, rtol=1e-9)
    np.testing.assert_allclose(variance, 2.0 - np.diag(cross @ inverse @ cross.T), rtol=1e-7)


def test_exact_gp_refuses_a_singular_covariance():
    found = Hyperparameters(SquaredExponential(1.0, [1.0]), 0.0, 0.0)
    with pytest.raises(np.linalg.LinAlgError, match="ExactGP: the covariance of 3 points is not positive definite"):
        ExactGP.condition(found, np.zeros((3, 1)), np.zeros(3))


@pytest.mark.skipif(PLAIN, reason=TOO_SLOW)
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.is_for("boston", 60, 0)])
def test_every_method_learns_and_is_measured(name):
    found = measured(METHODS[name], material(table(), "boston"))
    assert set(found) == set(QUANTITIES)
    assert all(math.isfinite(value) for value in found.values()), found
    assert 0 < found["smse"] < 0.2
    assert found["size_bytes"] < 5e5
    later = measured(METHODS[name], material(table(), "boston", seed=1))
    assert math.isnan(later["peak_bytes"])


@pytest.mark.skipif(PLAIN, reason=TOO_SLOW)
def test_size_of_a_model_is_that_of_its_arrays():
    n, m, p = 60, 8, 3
    sizes = {name: METHODS[name].fit(material(table())).size_bytes for name in ("full_gp", "vfe", "linear_arx")}
    assert sizes["full_gp"] == 8 * (n * n + n * p + n)
    assert sizes["vfe"] == 8 * (2 * m * m + m * p + m)
    assert sizes["linear_arx"] == 8 * (p + 1)


class Known(Method):
    """Predicts a given mean and variance."""

    name, title, note = "known", "Known", ""

    def fit(self, material):
        ballast = np.ones(250_000 if material.is_short else 4_000_000)
        mean = np.where(np.arange(len(material.data.test_targets)) < 3, 3.0, 0.1)
        return Fitted(lambda x: (material.data.test_targets + mean, np.full(len(x), 0.75)), 0.25, int(ballast[0]))


def test_measured_scores_use_the_noisy_variance():
    data = table()
    found = measured(Known(), material(data))
    error = np.where(np.arange(12) < 3, 3.0, 0.1)
    assert found["smse"] == pytest.approx(np.mean(error**2) / np.var(data.test_targets))
    assert found["coverage_95"] == 0.75
    assert found["nlpd"] == pytest.approx(np.mean(0.5 * (np.log(2 * np.pi) + error**2)))
    assert 2e6 <= found["peak_bytes"] < 2.2e6  # the ballast of the short training, not that of the long one
    assert found["predict_us"] > 0 < found["train_seconds"]


def test_peak_is_what_was_held_at_once():
    def twice():
        for _ in range(2):
            np.ones(10**6)

    assert 8e6 <= peak_bytes(twice) < 8.1e6
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_ridge_is_the_normal_equations(ridge, monkeypatch):
    monkeypatch.setattr("experiments.studies.baselines.linear.RIDGES", (ridge,))
    data = table()
    mean, variance = Ridge().fit(material(data, "boston")).predict(data.test_inputs)
    x, y = data.training_inputs, data.training_targets  # standardised and centred
    weights = np.linalg.solve(x.T @ x / len(y) + ridge * np.eye(3), x.T @ y / len(y))
    np.testing.assert_allclose(mean, data.test_inputs @ weights, atol=1e-9)
    assert not variance.any()


def test_penalties_are_chosen_by_training_folds_or_in_hindsight():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(60, 12)), rng.normal(size=60)
    data = TaskData.of(Rows(x[:40], y[:40]), Rows(x[40:], y[40:]), 20)
    least_squares = np.linalg.lstsq(data.training_inputs, data.training_targets, rcond=None)[0]
    other = data._replace(test_targets=data.test_inputs @ least_squares)
    chosen = [Ridge().ridge(material(d)) for d in (data, other)]
    assert chosen[0] == chosen[1] >= 0.3  # pure noise; the test rows do not matter
    assert RidgeInHindsight().ridge(material(other)) == RIDGES[0] == 0.0
    assert RidgeInHindsight().ridge(material(data)) > 0.0


def test_who_is_computed_where():
    building = {name for name, method in METHODS.items() if method.is_for("building", 17518, 0)}
    assert building == {"vfe", "fitc", "online_gp", "online_gp_adaptive", "linear_arx", "bilinear"}
    assert Vfe().is_for("building", 17518, 9)
    assert METHODS["fitc"].is_for("building", 17518, 9)
    assert not METHODS["bilinear"].is_for("rastrigin", 600, 0)
    assert not METHODS["full_gp_priors"].is_for("tanks", 1000, 0)


def test_shuffled_rows_are_all_rows_in_another_order():
    data = table()
    other, again = shuffled(data, 3), shuffled(data, 3)
    assert [len(part) for part in other] == [len(part) for part in data]
    np.testing.assert_array_equal(other.targets, again.targets)
    assert not np.array_equal(other.targets, shuffled(data, 4).targets)

    def spread(rows):
        y = np.sort(np.concatenate([rows.training_targets, rows.test_targets]))
        return y - y.mean()

    np.testing.assert_allclose(spread(other), spread(data), atol=1e-12)
    np.testing.assert_allclose(other.training_inputs.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(other.training_inputs.std(axis=0), 1.0)


def test_transition_is_what_the_simulator_does():
    system, dt = Building(), Building().dt
    inputs = np.array([[5.0, 0.03], [-10.0, 0.0]])
    moves = transition(system, inputs)
    for k, u in enumerate(inputs):
        x = np.array([20.0, 15.0, 40.0])
        expected = moves.matrix[k] @ x + moves.offset[k]
        spread = np.zeros((3, 3))
        for channel in range(3):
            start = np.zeros(3)
            w = np.zeros(3)
            w[channel] = system.noise_std()[channel]
            pushed = _euler(system, start, u, w, dt) - _euler(system, start, u, np.zeros(3), dt)
            spread += np.outer(pushed, pushed)
        np.testing.assert_allclose(_euler(system, x, u, np.zeros(3), dt), expected, rtol=1e-3)
        np.testing.assert_allclose(moves.covariance[k], spread, rtol=5e-3)


def _euler(system, x, u, w, dt, steps=4000):
    for _ in range(steps):
        x = x + dt / steps * system.derivative(0.0, x, u, w)
    return x


def test_filter_is_conditioning_of_the_joint_distribution():
    moves = transition(Building(), np.array([[5.0, 0.03], [0.0, 0.05], [2.0, 0.0], [3.0, 0.01]]))
    output = np.array([20.0, 20.6, 21.1, 20.8])
    mean, covariance = np.full(3, output[0]), np.diag(UNKNOWN**2)
    means, joint = [mean], covariance
    for A, b, Q in zip(*moves, strict=True):
        means.append(A @ means[-1] + b)
        cross = joint[-3:] if joint.shape[0] == 3 else joint[-3:, :]
        last = A @ joint[-3:, -3:] @ A.T + Q
        joint = np.block([[joint, (A @ cross).T], [A @ cross, last]])
    known = np.array([3, 6, 9])  # the zone after the first sample, which is certain from the start
    target = 12
    gain = np.linalg.solve(joint[np.ix_(known, known)], joint[known, target])
    found = means[4][0] + gain @ (output[1:] - np.array([m[0] for m in means[1:4]]))
    assert filtered(moves, output)[-1] == pytest.approx(found, rel=1e-10)


def test_no_model_of_lags_beats_the_floor():
    training, test = BuildingTask(n_samples=2001).rows(0)
    found = floor(test)
    ones = np.ones((len(training.targets), 1))
    weights = np.linalg.lstsq(np.hstack([training.inputs, ones]), training.targets, rcond=None)[0]
    linear = np.mean((test.targets - test.inputs @ weights[:-1] - weights[-1]) ** 2) / np.var(test.targets)
    assert 0.05 < found.true_state < found.whole_past < linear
    assert NARX.feature_names[0] == "zone_temperature[k-1]"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Study of a table and a function from rows of our own, and of a task without data."""
    if PLAIN:
        pytest.skip(TOO_SLOW)
    folder: Path = tmp_path_factory.mktemp("baselines")
    plan = Plan(folder, ("boston", "rastrigin", "tanks"), seeds=2, budget=15, inducing_points=8, sparse_iterations=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.studies.baselines.study.data_of", lambda task, seed, plan: table(seed=seed))
        units = [unit for unit in STUDY.units(plan) if unit.task != "tanks"]
        combined = STUDY.combine({unit: STUDY.compute(unit, plan) for unit in units}, plan)
    return store.read(store.write(combined, folder / "baselines.nc", kind="study"), kind="study")


def test_units_of_tables_are_as_many_as_shuffles(plan):
    assert STUDY.units(plan) == [Unit("baselines", name, seed) for name in ("boston", "rastrigin") for seed in range(2)]
    assert STUDY.expected_seconds(Unit("baselines", "boston", 1), plan) < STUDY.expected_seconds(
        Unit("baselines", "boston", 0), plan
    )


def test_file_order_and_shuffle_are_never_mixed(kept):
    assert kept["dataset"].values.tolist() == ["Boston", "Boston, shuffled", "Rastrigin", "Tanks"]
    seeds = np.isfinite(kept["smse"]).sum("seed")
    assert int(seeds.sel(dataset="Boston", model="full_gp")) == 1
    assert int(seeds.sel(dataset="Boston, shuffled", model="full_gp")) == 2
    assert int(seeds.sel(dataset="Boston, shuffled", model="vfe")) == 0
    given = kept["smse"].sel(dataset="Boston", model="ridge", seed=0)
    assert float(given) == pytest.approx(measured(METHODS["ridge"], material(table(), "boston"))["smse"])


def test_a_task_without_data_is_a_gap(kept):
    assert np.isnan(kept["smse"].sel(dataset="Tanks")).all()
    assert all(row["dataset"] != "Tanks" for row in STUDY.rows(kept))
    assert "| Tanks | no data |" in STUDY.markdown(kept)


def test_rows_are_medians_over_seeds(kept):
    rows = {(row["dataset"], row["model"]): row for row in STUDY.rows(kept)}
    values = kept["smse"].sel(dataset="Rastrigin", model="full_gp").values
    row = rows["Rastrigin", "full_gp"]
    assert row["n_seeds"] == 2
    assert row["smse"] == pytest.approx(np.median(values))
    assert np.isnan(row["smse_published"])
    assert rows["Boston", "full_gp"]["n_seeds"] == 1
    assert row["peak_bytes"] > 0


def test_markdown_marks_the_best_honest_one_and_says_what_file_order_means(kept):
    text = STUDY.markdown(kept)
    rows = [row for row in STUDY.rows(kept) if row["dataset"] == "Boston"]
    least = min(row["smse"] for row in rows if row["model"] != "ridge_hindsight")
    bold = [line for line in text.splitlines() if line.startswith("| Boston |") and "**" in line]
    assert [f"**{significant(least)}**" in line for line in bold] == [True] * len(bold) != []
    assert not any("hindsight" in line for line in bold)
    assert "never counts" in text
    assert "the paper prints 0.27 to 0.37" in text
    assert STUDY.figures(kept) == {}


@pytest.mark.skipif(PLAIN, reason=TOO_SLOW)
def test_quick_units_are_computed_and_kept(tmp_path):
    plan = Plan(tmp_path, ("rastrigin", "building")).quickened()
    units = [Unit(name, task) for task in plan.tasks for name in ("preparation", "baselines")]
    assert [compute_and_keep(unit, plan) for unit in units] == [None] * len(units)
    combined = STUDY.combine({unit: read_part(unit, plan) for unit in units if unit.study == "baselines"}, plan)
    rows = {(row["dataset"], row["model"]) for row in STUDY.rows(combined)}
    assert rows >= {(title, name) for title in ("Rastrigin", "Building") for name in ("full_gp", "vfe", "online_gp")}
    assert 0 < float(combined["floor_whole_past"].sel(dataset="Building").median()) < 1
    assert list(STUDY.figures(combined)) == ["baselines_building"]


def building_store():
    """Two seeds of the Building, made up."""
    plan = Plan(Path(), ("van_der_pol", "building"), seeds=2)
    parts = {}
    for seed in range(2):
        blank = BaselinesStudy().combine({}, replace(plan, seeds=1)).isel(dataset=0, seed=0, drop=True)
        part = blank.drop_vars("smse_published").expand_dims(order=["given", "shuffled"]).copy(deep=True)
        part["floor_whole_past"], part["floor_true_state"] = xr.DataArray(0.2 + 0.1 * seed), xr.DataArray(0.15)
        for name, value in {"vfe": 0.25 + 0.1 * seed, "online_gp": 0.3}.items():
            for quantity in QUANTITIES:
                part[quantity].loc["given", name] = value if quantity == "smse" else 1e3 * value
        parts[Unit("baselines", "building", seed)] = part
    return STUDY.combine(parts, plan)


def test_published_values_and_floor_stand_beside_ours():
    combined = building_store()
    assert float(combined["smse_published"].sel(dataset="Building", model="vfe")) == VFE_BUILDING
    assert float(combined["smse_published"].sel(dataset="Van der Pol", model="full_gp")) == FULL_GP_VAN_DER_POL
    assert int(np.isfinite(combined["smse_published"]).sum()) == 2
    (vfe,) = [row for row in STUDY.rows(combined) if row["model"] == "vfe"]
    assert vfe["ratio_to_floor"] == pytest.approx(np.median([0.25 / 0.2, 0.35 / 0.3]))
    text = STUDY.markdown(combined)
    assert "| Building | VFE | 0.300 | 0.3397 | 0.883 | 0.250 |" in text.replace("**", "")
    assert "0.150 is expected" in text
    header = [line for line in text.splitlines() if line.startswith("| dataset |")]
    assert ["| published | SMSE / published | floor | SMSE / floor |" in line for line in header] == [False, True]
    assert "published |" not in STUDY.markdown(combined.assign(smse_published=combined["smse_published"] * np.nan))


def test_figure_has_error_bars_names_and_the_floor():
    (draw,) = STUDY.figures(building_store()).values()
    figure = draw()
    axes = figure.axes
    assert len(axes) == 3
    for ax in axes:
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
        assert len(ax.containers) == 2
        assert [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [0.25]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["VFE", "Online GP", "Floor: filter of the true plant"]
    assert len({handle.get_marker() for handle in legend.legend_handles}) == 3
    np.testing.assert_allclose(axes[0].containers[0].lines[0].get_xydata(), [[0.3e-3, 0.3]])


@pytest.mark.slow
def test_vfe_of_the_whole_building_needs_little_memory():
    data = BuildingTask().load(0, 100, 10**6)
    whole = Material(data, "building", 0, budget=100, n_inducing=100, iterations=60)
    assert len(data.training_targets) == 17518
    found = measured(Vfe(), whole)
    assert found["peak_bytes"] < 2e9
    assert found["smse"] < 1.15 * floor(BuildingTask().rows(0)[1]).whole_past


def test_bilinear_features_are_the_lags_and_every_product_with_a_flow_once():
    x = np.random.default_rng(0).normal(size=(4, 9))
    features = with_flow_products(x)
    products = {tuple(column) for column in features.T[9:].round(12)}
    expected = {tuple((x[:, i] * x[:, j]).round(12)) for i in range(6, 9) for j in range(9)}
    assert features.shape == (4, 9 + 18 + 6)
    assert products == expected
    np.testing.assert_array_equal(features[:, :9], x)


def test_bilinear_least_squares_recovers_a_bilinear_equation():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 9))
    y = 0.3 * x[:, 0] + 0.5 * x[:, 6] * x[:, 1] - 0.2 * x[:, 7] * x[:, 8]
    data = TaskData(x[:50], y[:50], x[50:300], y[50:300], x[300:], y[300:])
    fitted = METHODS["bilinear"].fit(material(data, "building"))
    np.testing.assert_allclose(fitted.predict(data.test_inputs)[0], data.test_targets, atol=1e-9)
