"""Points and maps on Rastrigin: hand-made patterns, and a small stream by hand."""

from pathlib import Path

import numpy as np
import pytest

from experiments.studies.execution import compute_and_keep
from experiments.studies.part import read_part
from experiments.studies.plan import Plan
from experiments.studies.point_pattern import boundary_share, nearest_distance_ratio, share_of_area
from experiments.studies.rastrigin import RastriginMaps, scaling_of
from experiments.studies.setting import Setting, hyperparameters_of
from experiments.studies.stream import CRITERIA
from experiments.studies.study import Unit
from experiments.studies.tasks.catalogue import task_of
from simulators import Rastrigin
from sysid import ExceedsMinimum, OnlineGP

BOX = ((-1.0, -3.0), (1.0, 5.0))


@pytest.mark.parametrize(
    ("points", "share"),
    [
        ([[0.0, 0.0], [0.94, 0.0], [-0.94, 0.0], [0.0, 4.79], [0.0, -2.79]], 0.0),
        ([[0.96, 0.0], [-0.96, 0.0], [0.0, 4.81], [0.0, -2.81]], 1.0),
        ([[1.0, 5.0], [0.0, 1.0], [0.5, 1.0], [-0.5, 2.0]], 0.25),
    ],
)
def test_the_boundary_is_a_strip_of_a_twentieth_of_the_half_width(points, share):
    assert boundary_share(np.array(points), *BOX) == share


def test_uniform_points_have_the_share_of_the_area():
    points = np.random.default_rng(0).uniform(*BOX, (200_000, 2))
    assert boundary_share(points, *BOX) == pytest.approx(share_of_area(2), abs=2e-3)
    assert share_of_area(2) == pytest.approx(1 - 0.95**2)


@pytest.mark.parametrize("n", [30, 100])
def test_the_distance_of_uniform_points_is_one(n):
    rng = np.random.default_rng(n)
    found = [nearest_distance_ratio(rng.uniform(*BOX, (n, 2)), *BOX) for _ in range(300)]
    assert np.mean(found) == pytest.approx(1.0, abs=0.015)


def test_the_distance_tells_even_points_from_clusters():
    axis = np.linspace(-0.95, 0.95, 10)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    square = ((-1.0, -1.0), (1.0, 1.0))
    expected = 0.5 * np.sqrt(4.0 / 100) + (0.0514 + 0.0041) * 8.0 / 100
    assert nearest_distance_ratio(grid, *square) == pytest.approx((axis[1] - axis[0]) / expected)
    pairs = np.vstack([grid[:50], grid[:50] + np.array([0.0, 0.01])])
    assert nearest_distance_ratio(pairs, *square) == pytest.approx(0.01 / expected)


def test_the_scaling_is_found_again():
    rng = np.random.default_rng(1)
    own = rng.normal(size=(20, 2)) * [3.0, 0.1] + [5.0, -2.0]
    scaling = scaling_of((own - [4.0, 1.0]) / [2.0, 0.5], own)
    np.testing.assert_allclose(scaling.offset, [4.0, 1.0])
    np.testing.assert_allclose(scaling.scale, [2.0, 0.5])


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = Plan(tmp_path_factory.mktemp("rastrigin"), ("rastrigin",), seeds=2).quickened()
    for study in ("preparation", "calibration", "figure_rastrigin"):
        for seed in range(1 if study == "calibration" else 2):
            assert compute_and_keep(Unit(study, "rastrigin", seed), plan) is None
    return plan


@pytest.fixture(scope="module")
def store(plan):
    units = RastriginMaps().units(plan)
    return RastriginMaps().combine({unit: read_part(unit, plan) for unit in reversed(units)}, plan)


@pytest.mark.parametrize("setting", [Setting.trained, Setting.published])
@pytest.mark.parametrize("criterion", ["prior_entropy", "mean_relevance"])
def test_maps_and_points_are_those_of_the_stream(plan, store, setting, criterion):
    """The same stream offered by hand, in the units of the domain."""
    seed, chosen = 1, CRITERIA[criterion]
    training, test = task_of("rastrigin", plan).rows(seed)
    some = plan.n_initial + plan.most_rows
    x, y = training.inputs[:some], training.targets[:some]
    mean, std = x.mean(axis=0), x.std(axis=0)
    start = hyperparameters_of("rastrigin", seed, setting, plan)
    gp = OnlineGP(
        start.kernel,
        noise_variance=start.noise_variance,
        budget=plan.budget,
        acceptance=ExceedsMinimum(chosen, reference="leave_one_out"),
        reduction=chosen,
    )
    gp.fit((x[: plan.n_initial] - mean) / std, y[: plan.n_initial] - y.mean())
    for row, target in zip(x[plan.n_initial :], y[plan.n_initial :] - y.mean(), strict=True):
        gp.update((row - mean) / std, float(target))
    prediction, variance = gp.predict((test.inputs - mean) / std)
    error = np.abs(test.targets - y.mean() - prediction)
    cell = store.sel(setting=setting.value, criterion=criterion, variant="leave_one_out", seed=seed)
    for name, expected in {"absolute_error": error, "standard_deviation": np.sqrt(variance)}.items():
        found = [float(cell[name].sel(x1=a, x2=b, method="nearest")) for a, b in test.inputs[::97]]
        np.testing.assert_allclose(found, expected[::97], rtol=1e-5, atol=1e-7)
    points = np.sort(cell["point"].values, axis=0)
    np.testing.assert_allclose(points, np.sort(gp.inputs * std + mean, axis=0), atol=1e-9)
    assert float(cell["mean_abs_error"]) == pytest.approx(error.mean(), rel=1e-5)
    assert float(cell["mean_std"]) == pytest.approx(np.sqrt(variance).mean(), rel=1e-5)
    assert float(cell["boundary_share"]) == boundary_share(gp.inputs * std + mean, (-1, -1), (1, 1))


def test_points_are_samples_of_the_training_rows(plan, store):
    training, _ = task_of("rastrigin", plan).rows(0)
    points = store["point"].sel(setting="trained", criterion="mean_relevance", variant="none", seed=0).values
    distance = np.linalg.norm(points[:, None] - training.inputs[None], axis=-1).min(axis=1)
    assert points.shape == (plan.budget, 2)
    assert distance.max() < 1e-9


def test_rows_and_markdown_tell_medians(store):
    rows = RastriginMaps().rows(store)
    assert len(rows) == 2 * 3 * 2
    row = rows[-1]
    cell = store.sel(setting=row["setting"], criterion=row["criterion"], variant=row["variant"])
    assert row["mean_abs_error"] == pytest.approx(float(cell["mean_abs_error"].median()))
    assert row["boundary_share_upper_quartile"] == pytest.approx(float(cell["boundary_share"].quantile(0.75)))
    assert row["uniform_boundary_share"] == pytest.approx(0.0975)
    text = RastriginMaps().markdown(store)
    assert f"{row['nearest_distance_ratio']:.2f} [" in text
    assert text.count("prior entropy spreads the points evenly") == 2


def test_figures_draw_the_maps_of_seed_0(store):
    figures = RastriginMaps().figures(store)
    assert list(figures) == [
        "figure_rastrigin",
        "figure_rastrigin_acceptance",
        "figure_rastrigin_published",
        "figure_rastrigin_published_acceptance",
    ]
    figure = figures["figure_rastrigin_published_acceptance"]()
    cell = store.sel(setting="published", variant="leave_one_out", criterion="mean_relevance", seed=0)
    error, std = figure.axes[1], figure.axes[4]
    np.testing.assert_array_equal(error.images[0].get_array(), cell["absolute_error"].values.T)
    np.testing.assert_array_equal(std.images[0].get_array(), cell["standard_deviation"].values.T)
    np.testing.assert_array_equal(np.transpose(error.lines[0].get_data()), cell["point"].values)
    assert error.get_title() == "Mean relevance"
    assert error.images[0].get_cmap().N == std.images[0].get_cmap().N == 12


def test_a_map_has_x1_to_the_right():
    """The first input varies along the first axis of a map: the grid of the task in its order."""
    _, test = task_of("rastrigin", Plan(Path("nowhere"), ("rastrigin",))).rows(0)
    grid = test.targets.reshape(41, 41)
    assert grid[5, 30] == Rastrigin()([-1 + 5 * 0.05, -1 + 30 * 0.05])


def test_nothing_is_drawn_without_data(plan):
    empty = RastriginMaps().combine({}, plan)
    assert empty["absolute_error"].isnull().all()
    assert not RastriginMaps().rows(empty)
    assert not RastriginMaps().figures(empty)
    assert "no data" in RastriginMaps().markdown(empty)
