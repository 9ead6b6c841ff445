"""Pairs of criteria, error thresholds, which points stay: on stores with known medians, against
plain algebra.
"""

from itertools import product

import numpy as np
import pytest
import xarray as xr

from experiments.reproduce import sweeps
from experiments.reproduce.stream import (
    STREAM_QUANTITIES,
    VARIANTS,
    Run,
    hyperparameters_of,
    offer,
    run_of,
)
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import Unit, part_of, write_part
from experiments.reproduce.sweeps import ACCEPTANCES, UNIFORM_SHARE
from experiments.reproduce.tasks import STATIC_FUNCTIONS, TaskData, draw_rows
from helpers.studies import make_plan, prepare_units, stream_outcome, table_cells
from naive import NaiveGP, backward_elimination
from sysid import (
    ExceedsMinimum,
    Hyperparameters,
    OnlineGP,
    SquaredExponential,
    standardised_mean_squared_error,
)
from sysid import store as files
from sysid.gp.rules import COMPARED_CRITERIA, CRITERIA

GRID = STUDIES["grid"]
VAN_DER_POL = STUDIES["figure_van_der_pol"]
BUILDING = STUDIES["figure_building"]
REDUCTION = STUDIES["figure_reduction"]
MAPS = STUDIES["figure_rastrigin"]
#: number of each criterion's kind: the two entropies, mean relevance, the two likelihoods
KIND = dict(zip(CRITERIA, (0, 0, 1, 2, 2), strict=True))
#: SMSE by kind of reduction (rows) and of acceptance (columns); the last column is without one
SMSE = np.array([[4.0, 8.0, 6.0, 5.0], [3.0, 2.0, 4.0, 5.0], [1.0, 3.0, 1.5, 2.0]])


def make_grid_rows(seed, factor):
    """Return the rows of a made-up unit of the grid, whose SMSE is that above times a factor."""
    rows = []
    for acceptance in ACCEPTANCES:
        for reduction in CRITERIA:
            smse = SMSE[KIND[reduction], KIND.get(acceptance, 3)] * factor
            quantities = stream_outcome(
                smse=smse,
                n_offered=500,
                n_inserted=400,
                n_revised=int(100 * seed + 10 * smse),
            )
            rows.append(Run("trained", reduction, acceptance)._asdict() | quantities)
    return rows


@pytest.fixture
def made_up_grid(tmp_path):
    """Store of a made-up grid.

    The SMSE is 1, 2 and 3 times that above for the seeds of Rastrigin, and 10 times for the only
    seed of the Tanks. The Building has no results.
    """
    plan = make_plan(tmp_path, "rastrigin", "tanks", "building", seeds=3)
    for task, seed, factor in (
        ("rastrigin", 0, 1),
        ("rastrigin", 1, 2),
        ("rastrigin", 2, 3),
        ("tanks", 0, 10),
    ):
        write_part(part_of(make_grid_rows(seed, factor)), Unit("grid", task, seed), plan)
    return GRID.combine(plan)


def test_rows_of_the_grid_are_medians(made_up_grid):
    rows = GRID.rows(made_up_grid)
    assert len(rows) == 3 * 6 * 5
    rows = rows.set_index(["dataset", "reduction", "acceptance"])
    row = rows.loc["Rastrigin", "mean_relevance", "predictive_entropy"]
    assert tuple(row) == ("trained", "leave_one_out", 6.0, 160.0, 40.0, 3)
    assert rows.loc["Tanks", "prior_entropy", "none"]["reference"] == ""
    assert rows.loc["Tanks", "prior_entropy", "marginal_log_likelihood"]["smse"] == 60.0
    gap = rows.loc["Building", "prior_entropy", "none"]
    assert gap["n_seeds"] == 0
    assert np.isnan(gap["smse"])


def test_tables_of_the_grid_are_geometric_means_over_datasets_with_the_lowest_marked(
    made_up_grid,
):
    cell = {"dataset": "Tanks", "acceptance": "none", "reduction": "mean_relevance"}
    made_up_grid["smse"].loc[cell] *= 4.0
    tables = GRID.tables(made_up_grid)
    means = table_cells(tables["means"])
    assert means[2] == [
        "Prior entropy",
        "5.000",
        "4.000",
        "4.000",
        "8.000",
        "6.000",
        "6.000",
    ]
    assert means[4][1] == f"{np.sqrt(5.0 * 20.0):.2f}"  # geometric, over datasets
    likelihood = ["2.000", "**1.000**", "**1.000**", "3.000", "1.500", "1.500"]
    assert means[5] == ["Marginal log likelihood", *likelihood]
    assert [
        "Mean relevance",
        "10.0",
        "6.00",
        "6.00",
        "4.00",
        "8.00",
        "8.00",
    ] in table_cells(tables["medians"])


@pytest.fixture(scope="module")
def real_grid(tmp_path_factory):
    """Plan and store of the grid on 60 rows of Rastrigin."""
    folder = tmp_path_factory.mktemp("grid")
    plan = make_plan(folder, "rastrigin", budget=15, most_rows=60, seeds=1)
    prepare_units(plan, "grid")
    return plan, GRID.combine(plan)


@pytest.mark.parametrize("role", ["reduction", "acceptance"])
@pytest.mark.parametrize(
    ("criterion", "equivalent"),
    [
        ("prior_entropy", "predictive_entropy"),
        ("marginal_log_likelihood", "log_predictive_density"),
    ],
)
def test_equivalent_criteria_agree_in_the_grid(real_grid, role, criterion, equivalent):
    _, store = real_grid
    first = store.sel({role: criterion}, drop=True)
    second = store.sel({role: equivalent}, drop=True)
    np.testing.assert_allclose(first["smse"], second["smse"], rtol=1e-6)
    assert (first["n_revised"] == second["n_revised"]).all()


def test_the_real_grid_is_full_and_a_cell_is_that_of_its_stream(real_grid):
    plan, real = real_grid
    assert np.isfinite(real["smse"].values).all()
    assert (real["n_inserted"] == 60).all()
    assert (real.sel(acceptance="none")["n_revised"] == 60).all()
    run = Run("trained", "mean_relevance", "log_predictive_density", "leave_one_out")
    cell = real.sel(
        dataset="Rastrigin",
        reduction="mean_relevance",
        acceptance="log_predictive_density",
        seed=0,
    )
    assert float(cell["smse"]) == offer(run, Unit("", "rastrigin"), plan)["smse"]


# --- thresholds -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_sweep(tmp_path_factory):
    """Plan and store of the sweep on 60 rows of Van der Pol."""
    plan = make_plan(tmp_path_factory.mktemp("sweep"), "van_der_pol", seeds=1, most_rows=60)
    prepare_units(plan, "figure_van_der_pol")
    return plan, VAN_DER_POL.combine(plan).isel(seed=0)


@pytest.mark.parametrize("place", [0, -1], ids=["lowest_threshold", "highest_threshold"])
@pytest.mark.parametrize(
    ("variant", "criterion"),
    list(zip(VARIANTS, (*COMPARED_CRITERIA, COMPARED_CRITERIA[0]), strict=True)),
)
@pytest.mark.parametrize("setting", ["trained", "published"])
def test_every_number_of_a_sweep_is_that_of_a_single_stream(
    real_sweep, setting, variant, criterion, place
):
    plan, store = real_sweep
    threshold = store["threshold"].values[place]
    run = run_of(setting, criterion, variant, "error", float(threshold))
    single = offer(run, Unit("", "van_der_pol"), plan)
    cell = store.sel(
        setting=setting,
        criterion=criterion,
        variant=variant,
        threshold=threshold,
    )
    for name in {*STREAM_QUANTITIES} - {"seconds", "accepted_percent"}:
        assert float(cell[name]) == single[name]


def test_variants_of_the_acceptance_differ_in_a_sweep(real_sweep):
    _, store = real_sweep
    low = store.isel(threshold=0).sel(setting="trained", criterion="prior_entropy")
    n_revised = low["n_revised"].sel(variant=list(VARIANTS[:3])).values
    assert len(set(n_revised)) == 3


@pytest.mark.parametrize(
    ("variant", "n_criteria"),
    [("none", 3), ("leave_one_out", 3), ("in_sample", 0), ("published", 1)],
)
def test_adaptive_is_computed_at_its_thresholds_and_variants_only(real_sweep, variant, n_criteria):
    _, store = real_sweep
    thresholds = store["threshold"].values
    assert thresholds.tolist() == [0.0005, 0.003, 0.0055, 0.008, 0.0105, 0.013]
    is_adaptive = np.isin(thresholds, np.round(0.001 + 0.002 * np.arange(8), 4))
    smse = store["smse"].sel(setting="adaptive", variant=variant)
    has_value = smse.notnull().transpose("criterion", "threshold").values
    is_computed = has_value.any(axis=1)
    assert is_computed.sum() == n_criteria
    assert (has_value == (is_computed[:, None] & is_adaptive)).all()


#: factor of the SMSE of a made-up sweep, by criterion
SMSE_FACTORS = dict(zip(COMPARED_CRITERIA, (3.0, 1.0, 2.0), strict=True))


def make_sweep_rows(seed):
    """Return rows of a sweep whose SMSE is threshold x factor x (seed + 1)."""
    rows = []
    for setting, (thresholds, _) in BUILDING.sweeps.items():
        for threshold, criterion, variant in product(thresholds, COMPARED_CRITERIA, VARIANTS):
            smse = threshold * SMSE_FACTORS[criterion] * (seed + 1)
            quantities = stream_outcome(
                smse=smse,
                mean_variance=smse,
                n_inserted=1,
                n_revised=100 / threshold,
            )
            run = run_of(setting, criterion, variant, "error", threshold)
            labels = {"criterion": criterion, "variant": variant}
            rows.append(labels | run._asdict() | quantities)
    return rows


@pytest.fixture(scope="module")
def made_up_sweep(tmp_path_factory):
    """Store of a made-up sweep of the Building with three seeds."""
    plan = make_plan(tmp_path_factory.mktemp("sweep"), "building", seeds=3, quick=False)
    for seed in (2, 0, 1):
        unit = Unit(BUILDING.name, "building", seed)
        write_part(part_of(make_sweep_rows(seed)), unit, plan)
    return BUILDING.combine(plan)


def test_the_store_of_a_sweep_has_labels_units_and_the_published_baseline(made_up_sweep):
    made_up = made_up_sweep
    np.testing.assert_allclose(made_up["threshold"], 0.025 * np.arange(2, 11))
    assert made_up["threshold"].attrs["units"] == "K"
    assert made_up["mean_variance"].attrs["units"] == "K^2"
    cell = made_up.isel(setting=0, variant=1, threshold=2).sel(criterion="marginal_log_likelihood")
    np.testing.assert_allclose(cell["smse"], np.array([1, 2, 3]) * 2 * 0.1)
    assert float(made_up["baseline_smse_published"]) == 0.3397


def test_rows_of_a_sweep_are_medians_and_quartiles(made_up_sweep):
    rows = BUILDING.rows(made_up_sweep)
    assert len(rows) == 3 * 4 * (9 + 4)
    rows = rows.set_index(["setting", "criterion", "variant", "threshold"])
    row = rows.loc["adaptive", "mean_relevance", "none", 0.1]
    expected = {
        "smse": 0.2,
        "smse_lower_quartile": 0.15,
        "smse_upper_quartile": 0.25,
        "n_revised": 1000,
        "n_seeds": 3,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_tables_of_a_sweep_mark_the_lowest_error(made_up_sweep):
    tables = BUILDING.tables(made_up_sweep)
    assert ["0.1", "0.6 / 1000", "**0.2 / 1000**", "0.4 / 1000"] in table_cells(tables["sections"])
    assert "not computed yet" in tables["baseline"]


def test_the_figure_of_a_sweep_draws_medians_and_both_baselines(made_up_sweep):
    figures = BUILDING.figures(made_up_sweep.assign(baseline_smse=0.3))
    smse = np.reshape(figures["figure_building"]().axes, (3, 3))[0, 1]
    np.testing.assert_allclose(smse.lines[1].get_ydata(), 2 * made_up_sweep["threshold"])
    assert [line.get_ydata()[0] for line in smse.lines[3:]] == [0.3397, 0.3]


def test_the_baseline_is_read_where_it_was_computed(tmp_path):
    plan = make_plan(tmp_path, "van_der_pol", seeds=3)
    smse = (("dataset", "model", "seed"), [[[1e-4, 5e-4, 2e-4], [9.0, 9.0, 9.0]]])
    store = xr.Dataset({"smse": smse}, {"dataset": ["Van der Pol"], "model": ["full_gp", "vfe"]})
    files.write(
        store,
        tmp_path / "baselines.nc",
        kind="study",
        attributes={"fingerprint": plan.fingerprint},
    )
    assert float(VAN_DER_POL.combine(plan)["baseline_smse"]) == 2e-4
    plan_of_others = make_plan(tmp_path, "van_der_pol", seeds=2)
    assert np.isnan(VAN_DER_POL.combine(plan_of_others)["baseline_smse"])


# --- which points stay ----------------------------------------------------------------------------

NOISE_VARIANCE = 1e-2
N_POINTS = 9
N_SEEDS = 3
START = Hyperparameters(SquaredExponential(2.0, [0.7, 1.1]), NOISE_VARIANCE, 0.0)
#: lower and upper corner of a box of two features
BOX = ((-1.0, -3.0), (1.0, 5.0))


@pytest.fixture(scope="module")
def data():
    """Nine points of a nonlinear function and a test of thirty."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (N_POINTS, 2))
    test = rng.uniform(-2, 2, (30, 2))
    y, truth = (np.sin(2 * z[:, 0]) * z[:, 1] for z in (x, test))
    return TaskData(x, y, x[:0], y[:0], test, truth)


def reduce_naively(criterion, data):
    """Return the SMSE of 9 to 1 points, by explicit inverses."""
    model = NaiveGP(START.kernel, NOISE_VARIANCE, data.initial_inputs, data.initial_targets)
    curve = []
    for n_points in range(N_POINTS, 0, -1):
        kept = backward_elimination(CRITERIA[criterion](), model, n_points)
        mean, _ = model.with_data(model.inputs[kept], model.targets[kept]).predict(data.test_inputs)
        curve.append(standardised_mean_squared_error(data.test_targets, mean))
    return curve


def test_the_curves_are_those_of_naive_removal_and_differ(data):
    curves = [sweeps.reduce_one_by_one(data, START, CRITERIA[name]()) for name in COMPARED_CRITERIA]
    naive_curves = [reduce_naively(name, data) for name in COMPARED_CRITERIA]
    np.testing.assert_allclose(curves, naive_curves, rtol=1e-8)
    assert len({round(float(curve[3:7].sum()), 9) for curve in curves}) == 3


@pytest.fixture(scope="module")
def reduction(tmp_path_factory):
    """Store of a made-up reduction.

    The SMSE is the number of points times a factor of the criterion, and 1, 2, 3 times over seeds.
    """
    plan = make_plan(
        tmp_path_factory.mktemp("reduction"), *STATIC_FUNCTIONS, seeds=N_SEEDS, n_initial=12
    )
    for task in list(STATIC_FUNCTIONS)[:3]:
        for seed in range(N_SEEDS):
            factors = zip(
                COMPARED_CRITERIA,
                (1.0, 0.5, 2.0 if task == "rastrigin" else 0.8),
                strict=True,
            )
            rows = [
                {
                    "setting": setting,
                    "criterion": name,
                    "n_points": n,
                    "smse": n * factor * scale * (seed + 1),
                }
                for name, factor in factors
                for setting, scale in (("trained", 1.0), ("published", 10.0))
                for n in range(12, 0, -1)
            ]
            write_part(part_of(rows), Unit("figure_reduction", task, seed), plan)
    return REDUCTION.combine(plan)


def test_the_ratio_is_a_geometric_mean_without_the_first_size(reduction):
    smse = reduction["smse"].copy(deep=True)
    smse.loc[{"criterion": "mean_relevance", "n_points": 12}] *= 100.0
    smse.loc[{"criterion": "mean_relevance", "n_points": 7}] *= np.exp(11.0)  # one of eleven
    level = sweeps.average_sizes(smse.to_dataset(name="smse")).sel(
        dataset="Rastrigin", setting="trained"
    )
    ratio = level.sel(criterion="mean_relevance") - level.sel(criterion="prior_entropy")
    np.testing.assert_allclose(ratio, [np.log(0.5) + 1.0] * N_SEEDS)


def test_table_and_figures_of_the_reduction_mark_the_lowest(reduction):
    rows = REDUCTION.rows(reduction)
    row = rows.query(
        "dataset == 'Rastrigin' and criterion == 'marginal_log_likelihood' and n_points == 10"
    ).iloc[0]
    assert row.tolist() == [
        "Rastrigin",
        "trained",
        "marginal_log_likelihood",
        10,
        40,
        30,
        50,
        3,
    ]
    assert len(rows) == 3 * 2 * 3 * 12
    text = REDUCTION.tables(reduction)["sections"]
    assert [
        "Rastrigin",
        "Mean relevance",
        "**10.0**",
        "0.500 [0.500, 0.500]",
    ] in table_cells(text)
    axes = REDUCTION.figures(reduction)["figure_reduction_published"]().axes
    np.testing.assert_allclose(axes[0].lines[1].get_ydata()[0], 12 * 0.5 * 2 * 10)


@pytest.mark.parametrize(
    ("points", "share"),
    [
        pytest.param([[0.94, 0.0], [-0.94, 0.0], [0.0, 4.79], [0.0, -2.79]], 0.0, id="inside"),
        pytest.param([[0.96, 0.0], [0.0, -2.81], [1.0, 5.0]], 1.0, id="at the boundary"),
        pytest.param(
            [[0.94, 0.0], [-0.94, 0.0], [0.0, 4.79], [0.0, -2.79], [0.96, 0.0]], 0.2, id="both"
        ),
    ],
)
def test_share_of_points_at_the_boundary(points, share):
    assert sweeps.share_at_boundary(np.array(points), *BOX) == share


def test_uniform_points_have_the_uniform_share_at_the_boundary():
    points = np.random.default_rng(0).uniform(*BOX, (200_000, 2))
    assert sweeps.share_at_boundary(points, *BOX) == pytest.approx(UNIFORM_SHARE, abs=2e-3)


@pytest.mark.parametrize("n", [30, 100])
def test_distances_of_uniform_points_are_as_expected(n):
    rng = np.random.default_rng(0)
    ratios = [sweeps.compare_distances(rng.uniform(*BOX, (n, 2)), *BOX) for _ in range(300)]
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.015)


def test_distances_of_a_grid_and_of_pairs_are_their_distances_over_the_expected_one():
    axis = np.linspace(-0.95, 0.95, 10)
    square = ((-1.0, -1.0), (1.0, 1.0))
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    expected = 0.5 * np.sqrt(4.0 / 100) + (0.0514 + 0.0041) * 8.0 / 100
    spacing = axis[1] - axis[0]
    assert sweeps.compare_distances(grid, *square) == pytest.approx(spacing / expected)
    pairs = np.vstack([grid[:50], grid[:50] + np.array([0.0, 0.01])])
    assert sweeps.compare_distances(pairs, *square) == pytest.approx(0.01 / expected)


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """Plan and store of the maps of Rastrigin in quick size."""
    plan = make_plan(tmp_path_factory.mktemp("rastrigin"), "rastrigin")
    prepare_units(plan, "figure_rastrigin")
    return plan, MAPS.combine(plan)


@pytest.mark.parametrize(
    ("setting", "criterion"),
    [("trained", "prior_entropy"), ("published", "mean_relevance")],
)
def test_maps_and_points_are_those_of_the_stream(maps, setting, criterion):
    """The same stream offered by hand, in the units of the domain."""
    plan, store = maps
    seed = 1
    reduction = CRITERIA[criterion]()
    n = plan.n_initial
    training, test = draw_rows("rastrigin", seed)
    x = training.inputs[: n + plan.most_rows]
    y = training.targets[: n + plan.most_rows]
    mean = x.mean(axis=0)
    std = x.std(axis=0)
    start = hyperparameters_of("rastrigin", seed, setting, plan)
    rules = {
        "acceptance": ExceedsMinimum(reduction, reference="leave_one_out"),
        "reduction": reduction,
    }
    gp = OnlineGP(start.kernel, noise_variance=start.noise_variance, budget=plan.budget, **rules)
    gp.fit((x[:n] - mean) / std, y[:n] - y.mean())
    for row, target in zip(x[n:], y[n:] - y.mean(), strict=True):
        gp.update((row - mean) / std, float(target))
    prediction, variance = gp.predict((test.inputs - mean) / std)
    error = np.abs(test.targets - y.mean() - prediction)
    cell = store.sel(setting=setting, criterion=criterion, variant="leave_one_out", seed=seed)
    maps_of_gp = {"absolute_error": error, "standard_deviation": np.sqrt(variance)}
    for name, expected in maps_of_gp.items():
        stored = []
        for x1, x2 in test.inputs[::97]:
            stored.append(float(cell[name].sel(x1=x1, x2=x2, method="nearest")))
        np.testing.assert_allclose(stored, expected[::97], rtol=1e-5, atol=1e-7)
    points = gp.inputs * std + mean
    np.testing.assert_allclose(
        np.sort(cell["point"].values, axis=0), np.sort(points, axis=0), atol=1e-9
    )
    assert float(cell["mean_abs_error"]) == pytest.approx(error.mean(), rel=1e-5)
    assert float(cell["mean_std"]) == pytest.approx(np.sqrt(variance).mean(), rel=1e-5)
    assert float(cell["boundary_share"]) == sweeps.share_at_boundary(points, (-1, -1), (1, 1))


def test_the_figure_draws_the_map_of_the_first_seed(maps):
    _, store = maps
    panel = MAPS.figures(store)["figure_rastrigin_published_acceptance"]().axes[1]
    cell = store.sel(
        setting="published", variant="leave_one_out", criterion="mean_relevance", seed=0
    )
    np.testing.assert_array_equal(panel.images[0].get_array(), cell["absolute_error"].values.T)
