"""Pairs of criteria, error thresholds, which points stay: on stores with known medians, against
plain algebra.
"""

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
from experiments.reproduce.tasks import FUNCTIONS, TaskData, draw_rows
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

GRID, VAN_DER_POL, BUILDING = (
    STUDIES[name] for name in ("grid", "figure_van_der_pol", "figure_building")
)
REDUCTION = STUDIES["figure_reduction"]
MAPS = STUDIES["figure_rastrigin"]
KIND = dict(zip(CRITERIA, (0, 0, 1, 2, 2), strict=True))
#: SMSE by kind of reduction (rows) and of acceptance, the last column without
SMSE = np.array([[4.0, 8.0, 6.0, 5.0], [3.0, 2.0, 4.0, 5.0], [1.0, 3.0, 1.5, 2.0]])


def test_rows_and_tables_of_the_grid_are_medians_and_means(tmp_path):
    """SMSE times 1, 2, 3 over the seeds of Rastrigin; times 10 in the only one of the Tanks; no
    Building.
    """
    plan = make_plan(tmp_path, "rastrigin", "tanks", "building", seeds=3)
    for task, seed, factor in (
        ("rastrigin", 0, 1),
        ("rastrigin", 1, 2),
        ("rastrigin", 2, 3),
        ("tanks", 0, 10),
    ):
        rows = []
        for acceptance in ACCEPTANCES:
            for reduction in CRITERIA:
                smse = SMSE[KIND[reduction], KIND.get(acceptance, 3)] * factor
                found = stream_outcome(
                    smse=smse,
                    n_offered=500,
                    n_inserted=400,
                    n_revised=int(100 * seed + 10 * smse),
                )
                rows.append(Run("trained", reduction, acceptance)._asdict() | found)
        write_part(part_of(rows), Unit("grid", task, seed), plan)
    store = GRID.combine(plan)
    rows = GRID.rows(store)
    assert len(rows) == 3 * 6 * 5
    found = rows.set_index(["dataset", "reduction", "acceptance"])
    row = found.loc["Rastrigin", "mean_relevance", "predictive_entropy"]
    assert tuple(row) == ("trained", "leave_one_out", 6.0, 160.0, 40.0, 3)
    assert found.loc["Tanks", "prior_entropy", "none"]["reference"] == ""
    assert found.loc["Tanks", "prior_entropy", "marginal_log_likelihood"]["smse"] == 60.0
    gap = found.loc["Building", "prior_entropy", "none"]
    assert gap["n_seeds"] == 0
    assert np.isnan(gap["smse"])
    store["smse"].loc[
        {"dataset": "Tanks", "acceptance": "none", "reduction": "mean_relevance"}
    ] *= 4.0
    tables = GRID.tables(store)
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


def test_the_real_grid_is_full_and_its_equivalent_criteria_agree(tmp_path):
    plan = prepare_units(make_plan(tmp_path, "rastrigin", budget=15, most_rows=60, seeds=1), "grid")
    real = GRID.combine(plan)
    assert np.isfinite(real["smse"].values).all()
    assert (real["n_inserted"] == 60).all()
    assert (real.sel(acceptance="none")["n_revised"] == 60).all()
    for one, other in (
        ("prior_entropy", "predictive_entropy"),
        ("marginal_log_likelihood", "log_predictive_density"),
    ):
        for role in ("reduction", "acceptance"):
            a, b = (real.sel({role: name}, drop=True) for name in (one, other))
            np.testing.assert_allclose(a["smse"], b["smse"], rtol=1e-6)
            assert (a["n_revised"] == b["n_revised"]).all()
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
def real(tmp_path_factory):
    """Van der Pol in quick size: plan and store."""
    plan = make_plan(tmp_path_factory.mktemp("sweep"), "van_der_pol", seeds=1, most_rows=60)
    prepare_units(plan, "figure_van_der_pol")
    return plan, VAN_DER_POL.combine(plan).isel(seed=0)


@pytest.mark.parametrize("setting", ["trained", "published"])
def test_every_number_of_a_sweep_is_that_of_a_single_stream(real, setting):
    plan, store = real
    for variant, criterion in zip(
        VARIANTS, (*COMPARED_CRITERIA, COMPARED_CRITERIA[0]), strict=True
    ):
        for threshold in store["threshold"].values[[0, -1]]:
            run = run_of(setting, criterion, variant, "error", float(threshold))
            alone = offer(run, Unit("", "van_der_pol"), plan)
            cell = store.sel(
                setting=setting,
                criterion=criterion,
                variant=variant,
                threshold=threshold,
            )
            for name in {*STREAM_QUANTITIES} - {"seconds", "accepted_percent"}:
                assert float(cell[name]) == alone[name]
    low = store.isel(threshold=0).sel(setting="trained", criterion="prior_entropy")
    assert (
        len(set(low["n_revised"].sel(variant=list(VARIANTS[:3])).values)) == 3
    )  # otherwise nothing is told apart


def test_adaptive_is_computed_at_its_thresholds_and_variants_only(real):
    adaptive = real[1]["smse"].sel(setting="adaptive")
    thresholds = real[1]["threshold"].values
    assert thresholds.tolist() == [0.0005, 0.003, 0.0055, 0.008, 0.0105, 0.013]
    expected = np.isin(thresholds, np.round(0.001 + 0.002 * np.arange(8), 4))
    for variant, n_criteria in {
        "none": 3,
        "leave_one_out": 3,
        "in_sample": 0,
        "published": 1,
    }.items():
        has_value = (
            adaptive.sel(variant=variant).notnull().transpose("criterion", "threshold").values
        )
        assert has_value.any(axis=1).sum() == n_criteria
        assert (has_value == (has_value.any(axis=1)[:, None] & expected)).all()


def test_rows_and_tables_of_a_sweep_are_medians_with_the_lowest_marked(tmp_path):
    """SMSE and points follow simple rules; seeds 1, 2, 3 times."""
    plan = make_plan(tmp_path, "building", seeds=3, quick=False)
    for seed in (2, 0, 1):
        rows = []
        for setting, (thresholds, _) in BUILDING.sweeps.items():
            for threshold in thresholds:
                for factor, criterion in zip((3.0, 1.0, 2.0), COMPARED_CRITERIA, strict=True):
                    for variant in VARIANTS:
                        smse = threshold * factor * (seed + 1)
                        found = stream_outcome(
                            smse=smse,
                            mean_variance=smse,
                            n_inserted=1,
                            n_revised=100 / threshold,
                        )
                        run = run_of(setting, criterion, variant, "error", threshold)
                        rows.append(
                            {
                                "criterion": criterion,
                                "variant": variant,
                                **run._asdict(),
                                **found,
                            }
                        )
        write_part(part_of(rows), Unit(BUILDING.name, "building", seed), plan)
    made_up = BUILDING.combine(plan)
    np.testing.assert_allclose(made_up["threshold"], 0.025 * np.arange(2, 11))
    assert (
        made_up["threshold"].attrs["units"],
        made_up["mean_variance"].attrs["units"],
    ) == ("K", "K^2")
    cell = made_up.isel(setting=0, variant=1, threshold=2).sel(criterion="marginal_log_likelihood")
    np.testing.assert_allclose(cell["smse"], np.array([1, 2, 3]) * 2 * 0.1)
    assert float(made_up["baseline_smse_published"]) == 0.3397
    rows = BUILDING.rows(made_up)
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
    tables = BUILDING.tables(made_up)
    assert ["0.1", "0.6 / 1000", "**0.2 / 1000**", "0.4 / 1000"] in table_cells(tables["sections"])
    assert "not computed yet" in tables["baseline"]
    figures = BUILDING.figures(made_up.assign(baseline_smse=0.3))
    smse = np.reshape(figures["figure_building"]().axes, (3, 3))[0, 1]
    np.testing.assert_allclose(smse.lines[1].get_ydata(), 2 * made_up["threshold"])
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
    assert np.isnan(
        VAN_DER_POL.combine(make_plan(tmp_path, "van_der_pol", seeds=2))["baseline_smse"]
    )  # of others


# --- which points stay ------------------------------------------------------------------------------

NOISE = 1e-2
N = 9
SEEDS = 3
START = Hyperparameters(SquaredExponential(2.0, [0.7, 1.1]), NOISE, 0.0)
BOX = ((-1.0, -3.0), (1.0, 5.0))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (N, 2))
    test = rng.uniform(-2, 2, (30, 2))
    y, truth = (np.sin(2 * z[:, 0]) * z[:, 1] for z in (x, test))
    return TaskData(x, y, x[:0], y[:0], test, truth)


def reduce_naively(criterion, data):
    """SMSE of 9 to 1 points, by explicit inverses."""
    model = NaiveGP(START.kernel, NOISE, data.initial_inputs, data.initial_targets)
    curve = []
    for n_points in range(N, 0, -1):
        kept = backward_elimination(CRITERIA[criterion](), model, n_points)
        mean, _ = model.with_data(model.inputs[kept], model.targets[kept]).predict(data.test_inputs)
        curve.append(standardised_mean_squared_error(data.test_targets, mean))
    return curve


def test_the_curves_are_those_of_naive_removal_and_differ(data):
    curves = [sweeps.reduce_one_by_one(data, START, CRITERIA[name]()) for name in COMPARED_CRITERIA]
    np.testing.assert_allclose(
        curves, [reduce_naively(name, data) for name in COMPARED_CRITERIA], rtol=1e-8
    )
    assert len({round(float(curve[3:7].sum()), 9) for curve in curves}) == 3


@pytest.fixture(scope="module")
def reduction(tmp_path_factory):
    """SMSE: 1 for prior entropy, half and twice for the others; all times the size, and 1, 2, 3
    over the seeds.
    """
    plan = make_plan(tmp_path_factory.mktemp("reduction"), *FUNCTIONS, seeds=SEEDS, n_initial=12)
    for task in list(FUNCTIONS)[:3]:
        for seed in range(SEEDS):
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
    np.testing.assert_allclose(ratio, [np.log(0.5) + 1.0] * SEEDS)


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


def test_patterns_of_uniform_points_and_of_clusters():
    rng = np.random.default_rng(0)
    inside = [[0.94, 0.0], [-0.94, 0.0], [0.0, 4.79], [0.0, -2.79]]
    outside = [[0.96, 0.0], [0.0, -2.81], [1.0, 5.0]]
    both = inside + outside[:1]
    shares = [
        sweeps.share_at_boundary(np.array(points), *BOX) for points in (inside, outside, both)
    ]
    assert shares == [0, 1, 0.2]
    assert sweeps.share_at_boundary(rng.uniform(*BOX, (200_000, 2)), *BOX) == pytest.approx(
        UNIFORM_SHARE, abs=2e-3
    )
    for n in (30, 100):
        found = [sweeps.compare_distances(rng.uniform(*BOX, (n, 2)), *BOX) for _ in range(300)]
        assert np.mean(found) == pytest.approx(1.0, abs=0.015)
    axis = np.linspace(-0.95, 0.95, 10)
    square = ((-1.0, -1.0), (1.0, 1.0))
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    expected = 0.5 * np.sqrt(4.0 / 100) + (0.0514 + 0.0041) * 8.0 / 100
    assert sweeps.compare_distances(grid, *square) == pytest.approx((axis[1] - axis[0]) / expected)
    pairs = np.vstack([grid[:50], grid[:50] + np.array([0.0, 0.01])])
    assert sweeps.compare_distances(pairs, *square) == pytest.approx(0.01 / expected)


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    plan = prepare_units(
        make_plan(tmp_path_factory.mktemp("rastrigin"), "rastrigin"), "figure_rastrigin"
    )
    return plan, MAPS.combine(plan)


@pytest.mark.parametrize(
    ("setting", "criterion"),
    [("trained", "prior_entropy"), ("published", "mean_relevance")],
)
def test_maps_and_points_are_those_of_the_stream(maps, setting, criterion):
    """The same stream offered by hand, in the units of the domain."""
    (plan, maps), seed, chosen = maps, 1, CRITERIA[criterion]()
    n = plan.n_initial
    training, test = draw_rows("rastrigin", seed)
    x = training.inputs[: n + plan.most_rows]
    y = training.targets[: n + plan.most_rows]
    mean = x.mean(axis=0)
    std = x.std(axis=0)
    start = hyperparameters_of("rastrigin", seed, setting, plan)
    rules = {
        "acceptance": ExceedsMinimum(chosen, reference="leave_one_out"),
        "reduction": chosen,
    }
    gp = OnlineGP(start.kernel, noise_variance=start.noise_variance, budget=plan.budget, **rules)
    gp.fit((x[:n] - mean) / std, y[:n] - y.mean())
    for row, target in zip(x[n:], y[n:] - y.mean(), strict=True):
        gp.update((row - mean) / std, float(target))
    prediction, variance = gp.predict((test.inputs - mean) / std)
    error = np.abs(test.targets - y.mean() - prediction)
    cell = maps.sel(setting=setting, criterion=criterion, variant="leave_one_out", seed=seed)
    for name, expected in {
        "absolute_error": error,
        "standard_deviation": np.sqrt(variance),
    }.items():
        found = [float(cell[name].sel(x1=a, x2=b, method="nearest")) for a, b in test.inputs[::97]]
        np.testing.assert_allclose(found, expected[::97], rtol=1e-5, atol=1e-7)
    points = gp.inputs * std + mean
    np.testing.assert_allclose(
        np.sort(cell["point"].values, axis=0), np.sort(points, axis=0), atol=1e-9
    )
    drawn = MAPS.figures(maps)["figure_rastrigin_published_acceptance"]().axes[1]
    cell_0 = maps.sel(
        setting="published", variant="leave_one_out", criterion="mean_relevance", seed=0
    )
    np.testing.assert_array_equal(drawn.images[0].get_array(), cell_0["absolute_error"].values.T)
    assert float(cell["mean_abs_error"]) == pytest.approx(error.mean(), rel=1e-5)
    assert float(cell["mean_std"]) == pytest.approx(np.sqrt(variance).mean(), rel=1e-5)
    assert float(cell["boundary_share"]) == sweeps.share_at_boundary(points, (-1, -1), (1, 1))
