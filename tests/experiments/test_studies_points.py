"""Which points stay: reduction against a version that factorises for every left-out point; patterns; maps."""

import numpy as np
import pytest
from reproducing import cells_of, make_plan, prepare

from experiments.reproduction import STUDIES
from experiments.studies.paper import CRITERIA as SHOWN
from experiments.studies.stream import CRITERIA, hyperparameters_of
from experiments.studies.study import Unit, part_of, write_part
from experiments.studies.sweeps import (
    UNIFORM_SHARE,
    average_sizes,
    compare_distances,
    reduce_one_by_one,
    share_at_boundary,
)
from experiments.studies.tasks import FUNCTIONS, TaskData, draw_rows
from sysid import ExceedsMinimum, Hyperparameters, OnlineGP, SquaredExponential

NOISE, N, SEEDS = 1e-2, 9, 3
START = Hyperparameters(SquaredExponential(2.0, [0.7, 1.1]), NOISE, 0.0)
BOX = ((-1.0, -3.0), (1.0, 5.0))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    x, test = rng.uniform(-2, 2, (N, 2)), rng.uniform(-2, 2, (30, 2))
    y, truth = (np.sin(2 * z[:, 0]) * z[:, 1] for z in (x, test))
    return TaskData(x, y, x[:0], y[:0], test, truth)


def predict(x, y, at):
    """Mean by an explicit inverse."""
    return START.kernel(at, x) @ np.linalg.inv(START.kernel(x, x) + NOISE * np.eye(len(x))) @ y


def score(criterion, x, y, i):
    """f_red of section 3.2 for point i, every term as the paper writes it."""
    keep = np.arange(len(x)) != i
    ky, n = START.kernel(x[keep], x[keep]) + NOISE * np.eye(keep.sum()), keep.sum()
    half_log_det = 0.5 * np.linalg.slogdet(ky)[1]
    if criterion == "prior_entropy":
        return -0.5 * n * (1 + np.log(2 * np.pi)) - half_log_det
    if criterion == "mean_relevance":
        return float((predict(x, y, x[i : i + 1]) - predict(x[keep], y[keep], x[i : i + 1]))[0] ** 2)
    return -0.5 * y[keep] @ np.linalg.solve(ky, y[keep]) - half_log_det - 0.5 * n * np.log(2 * np.pi)


def reduce_naively(criterion, data):
    x, y, curve = data.initial_inputs, data.initial_targets, []
    while True:
        mean = predict(x, y, data.test_inputs)
        curve.append(np.mean((data.test_targets - mean) ** 2) / np.var(data.test_targets))
        if len(x) == 1:
            return curve
        worst = int(np.argmin([score(criterion, x, y, i) for i in range(len(x))]))
        x, y = np.delete(x, worst, axis=0), np.delete(y, worst)


def test_the_curves_are_those_of_naive_removal_and_differ(data):
    curves = [reduce_one_by_one(data, START, CRITERIA[name]) for name in SHOWN]
    np.testing.assert_allclose(curves, [reduce_naively(name, data) for name in SHOWN], rtol=1e-8)
    assert len({round(float(curve[3:7].sum()), 9) for curve in curves}) == 3


@pytest.fixture(scope="module")
def reduction(tmp_path_factory):
    """SMSE: 1 for prior entropy, half and twice for the others; all times the size, and 1, 2, 3 over the seeds."""
    plan = make_plan(tmp_path_factory.mktemp("reduction"), *FUNCTIONS, seeds=SEEDS, n_initial=12)
    for task in list(FUNCTIONS)[:3]:
        for seed in range(SEEDS):
            factors = zip(SHOWN, (1.0, 0.5, 2.0 if task == "rastrigin" else 0.8), strict=True)
            rows = [
                {"setting": setting, "criterion": name, "n_points": n, "smse": n * factor * scale * (seed + 1)}
                for name, factor in factors
                for setting, scale in (("trained", 1.0), ("published", 10.0))
                for n in range(12, 0, -1)
            ]
            write_part(part_of(rows), Unit("figure_reduction", task, seed), plan)
    return STUDIES["figure_reduction"].combine(plan)


def test_reduction_rows_are_medians_and_quartiles(reduction):
    assert reduction["dataset"].values.tolist() == ["Rastrigin", "Rosenbrock", "Himmelblau", "Six Hump Camel"]
    smse = reduction["smse"].sel(dataset="Rosenbrock", setting="published", criterion="mean_relevance", n_points=4)
    np.testing.assert_allclose(smse, [20.0, 40.0, 60.0])
    rows = STUDIES["figure_reduction"].rows(reduction)
    assert len(rows) == 3 * 2 * 3 * 12
    keys = ["dataset", "setting", "criterion", "n_points"]
    row = rows.set_index(keys).loc["Rastrigin", "trained", "marginal_log_likelihood", 10]
    assert list(rows) == [*keys, "smse", "smse_lower_quartile", "smse_upper_quartile", "n_seeds"]
    assert tuple(row) == (40, 30, 50, 3)


def test_the_ratio_is_a_geometric_mean_without_the_first_size(reduction):
    smse = reduction["smse"].copy(deep=True)
    smse.loc[{"criterion": "mean_relevance", "n_points": 12}] *= 100.0
    smse.loc[{"criterion": "mean_relevance", "n_points": 7}] *= np.exp(11.0)  # one of eleven
    level = average_sizes(smse.to_dataset(name="smse")).sel(dataset="Rastrigin", setting="trained")
    ratio = level.sel(criterion="mean_relevance") - level.sel(criterion="prior_entropy")
    np.testing.assert_allclose(ratio, [np.log(0.5) + 1.0] * SEEDS)


def test_table_and_figures_of_the_reduction_mark_the_lowest(reduction):
    text = STUDIES["figure_reduction"].tables(reduction)["sections"]
    assert ["Rastrigin", "Mean relevance", "**10.0**", "0.500 [0.500, 0.500]"] in cells_of(text)
    assert ["Rosenbrock", "Marginal log likelihood", "16.0", "0.800 [0.800, 0.800]"] in cells_of(text)
    figures = STUDIES["figure_reduction"].figures(reduction)
    assert list(figures) == ["figure_reduction", "figure_reduction_published"]
    axes = figures["figure_reduction_published"]().axes
    assert [len(ax.lines) for ax in axes] == [3, 3, 3]
    np.testing.assert_allclose(axes[0].lines[1].get_ydata()[0], 12 * 0.5 * 2 * 10)
    assert (axes[0].get_yscale(), axes[0].get_xlim()) == ("log", (12, 1))


@pytest.mark.parametrize(
    ("points", "share"),
    [
        ([[0.0, 0.0], [0.94, 0.0], [-0.94, 0.0], [0.0, 4.79], [0.0, -2.79]], 0.0),
        ([[0.96, 0.0], [-0.96, 0.0], [0.0, 4.81], [0.0, -2.81]], 1.0),
        ([[1.0, 5.0], [0.0, 1.0], [0.5, 1.0], [-0.5, 2.0]], 0.25),
    ],
    ids=["inside", "outside", "corner"],
)
def test_the_boundary_is_a_strip_of_a_twentieth_of_the_half_width(points, share):
    assert share_at_boundary(np.array(points), *BOX) == share


def test_patterns_of_uniform_points_and_of_clusters():
    rng = np.random.default_rng(0)
    assert share_at_boundary(rng.uniform(*BOX, (200_000, 2)), *BOX) == pytest.approx(UNIFORM_SHARE, abs=2e-3)
    assert pytest.approx(1 - 0.95**2) == UNIFORM_SHARE
    for n in (30, 100):
        found = [compare_distances(rng.uniform(*BOX, (n, 2)), *BOX) for _ in range(300)]
        assert np.mean(found) == pytest.approx(1.0, abs=0.015)
    axis, square = np.linspace(-0.95, 0.95, 10), ((-1.0, -1.0), (1.0, 1.0))
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    expected = 0.5 * np.sqrt(4.0 / 100) + (0.0514 + 0.0041) * 8.0 / 100
    assert compare_distances(grid, *square) == pytest.approx((axis[1] - axis[0]) / expected)
    pairs = np.vstack([grid[:50], grid[:50] + np.array([0.0, 0.01])])
    assert compare_distances(pairs, *square) == pytest.approx(0.01 / expected)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = make_plan(tmp_path_factory.mktemp("rastrigin"), "rastrigin")
    return prepare(plan, "figure_rastrigin", "figure_reduction")


@pytest.fixture(scope="module")
def maps(plan):
    return STUDIES["figure_rastrigin"].combine(plan)


@pytest.mark.parametrize(("setting", "criterion"), [("trained", "prior_entropy"), ("published", "mean_relevance")])
def test_maps_and_points_are_those_of_the_stream(plan, maps, setting, criterion):
    """The same stream offered by hand, in the units of the domain."""
    seed, chosen, n = 1, CRITERIA[criterion], plan.n_initial
    training, test = draw_rows("rastrigin", seed)
    x, y = training.inputs[: n + plan.most_rows], training.targets[: n + plan.most_rows]
    mean, std = x.mean(axis=0), x.std(axis=0)
    start = hyperparameters_of("rastrigin", seed, setting, plan)
    accept = ExceedsMinimum(chosen, reference="leave_one_out")
    gp = OnlineGP(
        start.kernel, noise_variance=start.noise_variance, budget=plan.budget, acceptance=accept, reduction=chosen
    )
    gp.fit((x[:n] - mean) / std, y[:n] - y.mean())
    for row, target in zip(x[n:], y[n:] - y.mean(), strict=True):
        gp.update((row - mean) / std, float(target))
    prediction, variance = gp.predict((test.inputs - mean) / std)
    error = np.abs(test.targets - y.mean() - prediction)
    cell = maps.sel(setting=setting, criterion=criterion, variant="leave_one_out", seed=seed)
    for name, expected in {"absolute_error": error, "standard_deviation": np.sqrt(variance)}.items():
        found = [float(cell[name].sel(x1=a, x2=b, method="nearest")) for a, b in test.inputs[::97]]
        np.testing.assert_allclose(found, expected[::97], rtol=1e-5, atol=1e-7)
    points = gp.inputs * std + mean
    np.testing.assert_allclose(np.sort(cell["point"].values, axis=0), np.sort(points, axis=0), atol=1e-9)
    assert float(cell["mean_abs_error"]) == pytest.approx(error.mean(), rel=1e-5)
    assert float(cell["mean_std"]) == pytest.approx(np.sqrt(variance).mean(), rel=1e-5)
    assert float(cell["boundary_share"]) == share_at_boundary(points, (-1, -1), (1, 1))
    grid = test.targets.reshape(41, 41)
    assert grid[5, 30] == FUNCTIONS["rastrigin"](
        [-1 + 5 * 0.05, -1 + 30 * 0.05]
    )  # the first input along the first axis


def test_rows_of_the_maps_are_medians(plan, maps):
    rows = STUDIES["figure_rastrigin"].rows(maps)
    assert len(rows) == 2 * 3 * 2
    row = rows.iloc[-1]
    cell = maps.sel({name: row[name] for name in ("setting", "criterion", "variant")})
    assert row["mean_abs_error"] == pytest.approx(float(cell["mean_abs_error"].median()))
    assert row["boundary_share_upper_quartile"] == pytest.approx(float(cell["boundary_share"].quantile(0.75)))
    assert row["uniform_boundary_share"] == pytest.approx(0.0975)
    assert f"{row['nearest_distance_ratio']:.2f} [" in STUDIES["figure_rastrigin"].tables(maps)["statistics"]
    curve = STUDIES["figure_reduction"].combine(plan)["smse"].sel(dataset="Rastrigin", seed=1)
    assert curve.notnull().all()


def test_figures_draw_the_maps_of_seed_0(maps):
    figures = STUDIES["figure_rastrigin"].figures(maps)
    endings = ("", "_acceptance", "_published", "_published_acceptance")
    assert list(figures) == [f"figure_rastrigin{ending}" for ending in endings]
    figure = figures["figure_rastrigin_published_acceptance"]()
    cell = maps.sel(setting="published", variant="leave_one_out", criterion="mean_relevance", seed=0)
    error, std = figure.axes[1], figure.axes[4]
    np.testing.assert_array_equal(error.images[0].get_array(), cell["absolute_error"].values.T)
    np.testing.assert_array_equal(std.images[0].get_array(), cell["standard_deviation"].values.T)
    np.testing.assert_array_equal(np.transpose(error.lines[0].get_data()), cell["point"].values)
    assert error.get_title() == "Mean relevance"
