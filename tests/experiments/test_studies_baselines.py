"""Baselines: exact GP, floors, measured quantities, orders of the tables, gaps; never a time."""

import math

import numpy as np
import pytest

from experiments.reproduce import baselines
from experiments.reproduce.baselines import (
    BASELINE_METHODS,
    BASELINE_QUANTITIES,
    Fitted,
    Material,
    Method,
    measure,
)
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import write_part
from experiments.reproduce.tasks import BUILDING_NARX, Rows, TaskData, simulate_building
from helpers.studies import make_plan
from naive import NaiveGP
from sysid import Hyperparameters, SquaredExponential

STUDY = STUDIES["baselines"]


def make_table(n=60, n_test=12, p=3, seed=0):
    """Return rows of a noisy linear function with a bend."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + n_test, p)) * [1.0, 5.0, 0.1][:p] + 3.0
    y = 2.0 * x[:, 0] - 0.3 * x[:, 1] + np.sin(x[:, 0]) + 0.1 * rng.normal(size=n + n_test) + 7.0
    return TaskData.of(Rows(x[:n], y[:n]), Rows(x[n:], y[n:]), 20)


SMALL_SIZES = {"budget": 15, "inducing_points": 8, "sparse_iterations": 4}


def make_material(data, seed=0):
    """Return what a method is given: data, a seed and the plan of a quick study."""
    return Material(data, seed, make_plan("nowhere", **SMALL_SIZES))


def test_exact_gp_is_that_of_explicit_inverses():
    data = make_table()
    kernel = SquaredExponential(2.0, [1.0, 2.0, 3.0])
    noise_variance = 0.05
    x = data.training_inputs
    y = data.training_targets
    gp = baselines.condition(Hyperparameters(kernel, noise_variance, 0.0), x, y)
    mean, variance = gp.predict(data.test_inputs)
    naive_mean, naive_variance = NaiveGP(kernel, noise_variance, x, y).predict(data.test_inputs)
    np.testing.assert_allclose(mean, naive_mean, rtol=1e-9)
    np.testing.assert_allclose(variance, naive_variance, rtol=1e-7)


def test_an_exact_gp_of_equal_rows_without_noise_is_refused():
    hyperparameters = Hyperparameters(SquaredExponential(1.0, [1.0]), 0.0, 0.0)
    with pytest.raises(np.linalg.LinAlgError, match=r"positive definite|potrf"):
        baselines.condition(hyperparameters, np.zeros((3, 1)), np.zeros(3))


@pytest.mark.parametrize(
    "name", [name for name, method in BASELINE_METHODS.items() if "boston" in method.tasks]
)
def test_every_method_learns_and_is_measured(name):
    quantities = measure(BASELINE_METHODS[name], make_material(make_table()))
    assert set(quantities) == set(BASELINE_QUANTITIES)
    assert all(math.isfinite(value) for value in quantities.values()), quantities
    assert 0 < quantities["smse"] < 0.2
    assert quantities["size_bytes"] < 5e5


@pytest.mark.parametrize(
    ("name", "n_numbers"),
    [
        pytest.param("full_gp", 60 * 60 + 60 * 3 + 60, id="factor, inputs and weights of 60 rows"),
        pytest.param("vfe", 2 * 8 * 8 + 8 * 3 + 8, id="two factors, 8 inducing points, weights"),
        pytest.param("linear_arx", 3 + 1, id="three coefficients and the intercept"),
    ],
)
def test_the_size_of_a_method_is_that_of_its_numbers(name, n_numbers):
    quantities = measure(BASELINE_METHODS[name], make_material(make_table()))
    assert quantities["size_bytes"] == 8 * n_numbers


def test_measured_scores_use_the_noisy_variance():
    """A method without a GP: three of twelve errors lie outside a band of variance 1."""
    data = make_table()
    error = np.where(np.arange(12) < 3, 3.0, 0.1)

    def fit(material):
        return Fitted(
            lambda x: (material.data.test_targets + error, np.full(len(x), 0.75)),
            0.25,
            8,
        )

    quantities = measure(Method(fit), make_material(data))
    assert quantities["smse"] == pytest.approx(np.mean(error**2) / np.var(data.test_targets))
    assert quantities["coverage_95"] == 0.75
    assert quantities["nlpd"] == pytest.approx(np.mean(0.5 * (np.log(2 * np.pi) + error**2)))
    assert quantities["size_bytes"] == 8


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_ridge_is_the_normal_equations(ridge):
    data = make_table()
    fitted = baselines.fit_linear(make_material(data), lambda _: ridge)
    mean, variance = fitted.predict(data.test_inputs)
    x = data.training_inputs  # standardised
    y = data.training_targets  # centred
    weights = np.linalg.solve(x.T @ x / len(y) + ridge * np.eye(3), x.T @ y / len(y))
    np.testing.assert_allclose(mean, data.test_inputs @ weights, atol=1e-9)
    assert not variance.any()


def test_penalties_are_chosen_in_hindsight():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 12))
    y = rng.normal(size=60)
    noise = TaskData.of(Rows(x[:40], y[:40]), Rows(x[40:], y[40:]), 20)
    weights = np.linalg.lstsq(noise.training_inputs, noise.training_targets, rcond=None)[0]
    predictable = noise._replace(test_targets=noise.test_inputs @ weights)
    assert baselines.choose_in_hindsight(predictable) == 0.0
    assert baselines.choose_in_hindsight(noise) > 0.0


def test_bilinear_features_are_the_lags_and_every_product_with_a_flow_once():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 9))
    features = baselines.add_flow_products(x[:4])
    products = {tuple(column) for column in features.T[9:].round(12)}
    assert features.shape == (4, 9 + 18 + 6)
    expected = {tuple((x[:4, i] * x[:4, j]).round(12)) for i in range(6, 9) for j in range(9)}
    assert products == expected


def test_the_bilinear_model_fits_a_bilinear_function_exactly():
    x = np.random.default_rng(0).normal(size=(400, 9))
    y = 0.3 * x[:, 0] + 0.5 * x[:, 6] * x[:, 1] - 0.2 * x[:, 7] * x[:, 8]
    data = TaskData(x[:50], y[:50], x[50:300], y[50:300], x[300:], y[300:])
    fitted = BASELINE_METHODS["bilinear"].fit(make_material(data))
    np.testing.assert_allclose(fitted.predict(data.test_inputs)[0], data.test_targets, atol=1e-9)


# --- the study ------------------------------------------------------------------------------------


def make_data(task, seed, plan):
    """Return a short building, or a table for any other task."""
    if task == "building":
        return TaskData.of(*simulate_building(seed, 401).rows(BUILDING_NARX), 20)
    return make_table(seed=seed)


@pytest.fixture(scope="module")
def combined(tmp_path_factory):
    """Combined study of a table, a function, a short building, and a task without data."""
    tasks = ("boston", "rastrigin", "tanks", "building")
    plan = make_plan(tmp_path_factory.mktemp("baselines"), *tasks, **SMALL_SIZES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "data_of", make_data)
        for unit in STUDY.units(plan):
            if unit.task != "tanks":
                write_part(STUDY.compute(unit, plan), unit, plan)
    return STUDY.combine(plan)


@pytest.mark.slow
def test_file_order_and_shuffle_are_never_mixed(combined):
    titles = ["Boston", "Boston, shuffled", "Rastrigin", "Tanks", "Building"]
    assert combined["dataset"].values.tolist() == titles
    n_seeds = combined["smse"].notnull().sum("seed")
    assert int(n_seeds.sel(dataset="Boston", model="full_gp")) == 1
    assert int(n_seeds.sel(dataset="Boston", model="online_gp_adaptive")) == 2
    assert int(n_seeds.sel(dataset="Boston, shuffled", model="full_gp")) == 2
    assert int(n_seeds.sel(dataset="Boston, shuffled", model="vfe")) == 0


@pytest.mark.parametrize(
    ("title", "more_models"),
    [
        ("Rastrigin", set()),
        ("Building", {"bilinear"}),
        ("Boston", {"full_gp_priors", "ridge_hindsight"}),
    ],
)
def test_each_dataset_has_the_models_that_suit_it(combined, title, more_models):
    common = {"full_gp", "vfe", "fitc", "online_gp", "online_gp_adaptive", "linear_arx"}
    smse = combined["smse"].sel(dataset=title)
    has_result = smse.notnull().any("seed").values
    assert set(combined["model"].values[has_result]) == common | more_models


def test_rows_are_medians_over_seeds_beside_published_values_and_floors(combined):
    rows = STUDY.rows(combined).set_index(["dataset", "model"])
    values = combined["smse"].sel(dataset="Rastrigin", model="full_gp").values
    row = rows.loc["Rastrigin", "full_gp"]
    assert (row["n_seeds"], row["smse"]) == (2, pytest.approx(np.median(values)))
    assert np.isnan(row["smse_published"])
    assert "Tanks" not in rows.index
    assert rows.loc[("Building", "vfe"), "smse_published"] == 0.3397
    assert STUDY.tables(combined)["rows"].endswith("No data: Tanks.")
