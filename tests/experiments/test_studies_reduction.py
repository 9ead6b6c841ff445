"""Reduction of a dictionary one by one: against a version that factorises for every left-out point."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from experiments.studies.figure_claims import FUNCTIONS
from experiments.studies.plan import Plan
from experiments.studies.reduction import DIMENSIONS, Reduction, posterior_mean, ratio_to_entropy, reduction_curve
from experiments.studies.setting import Setting
from experiments.studies.stream import CRITERIA
from experiments.studies.study import Unit
from experiments.studies.tasks.task import TaskData
from sysid import Hyperparameters, OnlineGP, SquaredExponential

NOISE, N, SEEDS = 1e-2, 9, 3
START = Hyperparameters(SquaredExponential(2.0, [0.7, 1.1]), NOISE, 0.0)
TITLES = ("Rastrigin", "Rosenbrock", "Himmelblau", "Six Hump Camel")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    x, test = rng.uniform(-2, 2, (N, 2)), rng.uniform(-2, 2, (30, 2))
    y, truth = (np.sin(2 * z[:, 0]) * z[:, 1] for z in (x, test))
    return TaskData(x, y, x[:0], y[:0], test, truth)


def naive_prediction(x, y, at):
    """Mean and latent variance by an explicit inverse."""
    inverse = np.linalg.inv(START.kernel(x, x) + NOISE * np.eye(len(x)))
    across = START.kernel(at, x)
    return across @ inverse @ y, 2.0 - np.einsum("ij,jk,ik->i", across, inverse, across)


def naive_score(criterion, x, y, i):
    """f_red of section 3.2 for point i, every term as the paper writes it."""
    keep = np.arange(len(x)) != i
    ky = START.kernel(x[keep], x[keep]) + NOISE * np.eye(keep.sum())
    half_log_det, n = 0.5 * np.linalg.slogdet(ky)[1], keep.sum()
    if criterion == "prior_entropy":
        return -0.5 * n * (1 + np.log(2 * np.pi)) - half_log_det
    if criterion == "mean_relevance":
        with_point, _ = naive_prediction(x, y, x[i : i + 1])
        without, _ = naive_prediction(x[keep], y[keep], x[i : i + 1])
        return float((with_point - without)[0] ** 2)
    return -0.5 * y[keep] @ np.linalg.solve(ky, y[keep]) - half_log_det - 0.5 * n * np.log(2 * np.pi)


def naive_curve(criterion, data):
    x, y = data.initial_inputs, data.initial_targets
    curve = []
    while True:
        mean, _ = naive_prediction(x, y, data.test_inputs)
        curve.append(np.mean((data.test_targets - mean) ** 2) / np.var(data.test_targets))
        if len(x) == 1:
            return curve
        worst = int(np.argmin([naive_score(criterion, x, y, i) for i in range(len(x))]))
        x, y = np.delete(x, worst, axis=0), np.delete(y, worst)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_curve_is_that_of_naive_removal(data, criterion):
    np.testing.assert_allclose(
        reduction_curve(data, START, CRITERIA[criterion]), naive_curve(criterion, data), rtol=1e-8
    )


def test_the_criteria_choose_different_points(data):
    curves = [reduction_curve(data, START, criterion) for criterion in CRITERIA.values()]
    assert len({round(float(curve[3:7].sum()), 9) for curve in curves}) == 3


def test_the_mean_alone_is_that_of_the_prediction(data):
    gp = OnlineGP(START.kernel, noise_variance=NOISE, budget=N).fit(data.initial_inputs, data.initial_targets)
    gp.update(data.test_inputs[0], 0.3)  # slots are no longer in order of age
    gp.reduce_to(6)
    np.testing.assert_allclose(posterior_mean(gp, data.test_inputs), gp.predict(data.test_inputs)[0], atol=1e-12)


@pytest.fixture
def plan():
    return Plan(Path("nowhere"), FUNCTIONS, seeds=SEEDS, n_initial=12)


def part(task, seed):
    """SMSE: 1 for prior entropy, half and twice for the others; all times the size, and 1, 2, 3 over the seeds."""
    factor = np.array([1.0, 0.5, 2.0 if task == "rastrigin" else 0.8])[None, :, None]
    smse = np.arange(12, 0, -1) * factor * np.ones((2, 1, 1)) * (seed + 1)
    smse[1] *= 10.0  # published
    coords = {"setting": ["trained", "published"], "criterion": list(CRITERIA), "n_points": range(12, 0, -1)}
    return xr.Dataset({"smse": (DIMENSIONS, smse)}, coords=coords)


@pytest.fixture
def store(plan):
    parts = {Unit("figure_reduction", t, s): part(t, s) for t in FUNCTIONS[:3] for s in range(SEEDS)}
    return Reduction().combine(dict(reversed(parts.items())), plan)


def test_the_store_keeps_all_seeds_and_the_function_without_data(store):
    assert store["dataset"].values.tolist() == list(TITLES)
    smse = store["smse"].sel(dataset="Rosenbrock", setting="published", criterion="mean_relevance", n_points=4)
    np.testing.assert_allclose(smse, [20.0, 40.0, 60.0])
    assert store["smse"].sel(dataset="Six Hump Camel").isnull().all()


def test_rows_are_medians_and_quartiles(store):
    rows = Reduction().rows(store)
    assert len(rows) == 3 * 2 * 3 * 12
    (row,) = [r for r in rows if (*list(r.values())[:4],) == ("Rastrigin", "trained", "marginal_log_likelihood", 10)]
    assert (row["smse"], row["smse_lower_quartile"], row["smse_upper_quartile"], row["n_seeds"]) == (40, 30, 50, 3)


def test_the_ratio_is_a_geometric_mean(store):
    trained = store.sel(setting="trained")
    smse = trained["smse"].copy(deep=True)
    smse.loc[{"criterion": "mean_relevance", "n_points": 12}] *= 100.0  # the first size does not count
    smse.loc[{"criterion": "mean_relevance", "n_points": 7}] *= np.exp(11.0)  # one of eleven
    ratio = ratio_to_entropy(trained.assign(smse=smse), "rastrigin", "mean_relevance")
    np.testing.assert_allclose(ratio, [0.5 * np.e] * SEEDS)


def test_the_markdown_marks_the_lowest_and_tells_what_is_missing(store):
    text = Reduction().markdown(store)
    assert "| Rastrigin | Mean relevance | **10.0** | 0.500 [0.500, 0.500] |" in text
    assert "| Rosenbrock | Marginal log likelihood | 16.0 | 0.800 [0.800, 0.800] |" in text
    assert "| Rastrigin | Prior entropy | 20.0 | 1 |" in text
    assert "Six Hump Camel | no data" in text
    for criterion in ("mean relevance", "marginal log likelihood"):
        assert text.count(f"Reducing a set, {criterion} stays below prior entropy.\n  - Rastrigin: ") == 2


def test_figures_show_every_function_and_say_where_data_is_missing(store):
    figures = Reduction().figures(store)
    assert list(figures) == ["figure_reduction", "figure_reduction_published"]
    axes = figures["figure_reduction_published"]().axes
    assert [ax.get_title() for ax in axes] == list(TITLES)
    assert [len(ax.lines) for ax in axes] == [3, 3, 3, 0]
    np.testing.assert_allclose(axes[0].lines[1].get_ydata()[0], 12 * 0.5 * 2 * 10)
    assert axes[0].get_yscale() == "log"
    assert axes[0].get_xlim() == (12, 1)


def test_nothing_is_drawn_without_data(plan):
    empty = Reduction().combine({}, plan)
    assert empty["smse"].shape == (4, 2, 3, 12, SEEDS)
    assert not Reduction().figures(empty)
    assert not Reduction().rows(empty)
    assert "no data" in Reduction().markdown(empty)


def test_settings_are_those_without_a_stream(store):
    assert store["setting"].values.tolist() == [Setting.trained, Setting.published]
