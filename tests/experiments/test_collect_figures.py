"""Figures of collected sweeps: what is drawn where, against naive medians, fronts and counts."""

from itertools import combinations, product

import numpy as np
import pytest
import xarray as xr
from running import PLAIN

from experiments.collection.figures import drawings
from experiments.collection.figures.dominance import non_dominated
from experiments.collection.figures.front import front_of
from experiments.collection.figures.look import drawn_series
from experiments.collection.figures.quartiles import quartiles
from experiments.collection.figures.search import best_so_far
from experiments.collection.figures.settings import of_jobs, of_sweep
from experiments.collection.figures.sweep import make_sweep, spread_out

if PLAIN:
    pytest.skip("figures are drawn alike without the compiler", allow_module_level=True)

THRESHOLDS = (0.01, 0.05, 0.1, 0.3)
CRITERIA = ("prior_entropy", "mean_relevance", "marginal_log_likelihood")
UNITS = {"error_threshold": "K"}


def sweep_of(draw=0, /, **values):
    """Data set over some parameters, with metrics drawn at random."""
    rng, shape = np.random.default_rng(draw), [len(value) for value in values.values()]
    metrics = {
        "smse": rng.lognormal(-2.0, 1.0, shape),
        "n_revised": rng.integers(5, 2000, shape).astype(float),
        "coverage_95": rng.uniform(0.8, 0.99, shape),
        "times_loop": rng.uniform(0.1, 3.0, shape),
    }
    return xr.Dataset(
        {
            name: (tuple(values), array, {"units": "s" if name == "times_loop" else "1"})
            for name, array in metrics.items()
        }
        | {"status": (tuple(values), np.ones(shape, dtype=np.int8))},
        {name: (name, list(value), {"units": UNITS.get(name, "")}) for name, value in values.items()},
    )


def thresholds(**more):
    return sweep_of(error_threshold=THRESHOLDS, reduction=CRITERIA, **more)


def search_of(n=40, directions='{"smse": "minimize"}', **attributes):
    rng = np.random.default_rng(1)
    coords = {
        "error_threshold": ("job", rng.uniform(0.01, 0.5, n), {"units": "K"}),
        "budget": ("job", rng.integers(10, 300, n)),
        "reduction": ("job", rng.choice(CRITERIA, n)),
    }
    metrics = {"smse": rng.lognormal(-2, 1, n), "n_revised": rng.uniform(1, 99, n), "times_loop": rng.uniform(1, 2, n)}
    variables = {name: ("job", values) for name, values in metrics.items()} | {"number": ("job", np.arange(n))}
    return xr.Dataset(variables, {"job": np.arange(n)} | coords, {"directions": directions} | attributes)


def said(figure):
    return " ".join(figure.get_suptitle().split())


def labelled(ax):
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def naive_front(x, y):
    points = list(zip(x, y, strict=True))
    beaten = [any(a <= x_i and b <= y_i and (a < x_i or b < y_i) for a, b in points) for x_i, y_i in points]
    known = [not np.isnan(a) and not np.isnan(b) for a, b in points]
    return np.array([k and not b for k, b in zip(known, beaten, strict=True)])


@pytest.mark.parametrize("seed", range(40))
def test_the_front_is_the_definition(seed):
    """Few different values: many ties in one objective and in both; nan and inf among them."""
    rng = np.random.default_rng(seed)
    pool = np.array([0.0, 1.0, 2.0, 3.0, -1.0, np.inf, np.nan])
    x, y = rng.choice(pool, (2, rng.integers(0, 25)))
    np.testing.assert_array_equal(non_dominated(x, y), naive_front(x, y))


def test_the_front_of_many_points_is_the_definition():
    x, y = np.random.default_rng(0).normal(size=(2, 300))
    front = non_dominated(x, y)
    np.testing.assert_array_equal(front, naive_front(x, y))
    assert 1 < front.sum() < 50


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_quartiles_leave_out_what_is_missing(n):
    rng = np.random.default_rng(n)
    values = rng.normal(size=(4, 5, n))
    values[rng.uniform(size=values.shape) < 0.3] = np.nan
    values[0, 0] = np.nan
    found = quartiles(values)
    for place in np.ndindex(4, 5):
        known = values[place][~np.isnan(values[place])]
        expected = np.quantile(known, [0.25, 0.5, 0.75]) if known.size else [np.nan] * 3
        np.testing.assert_allclose([part[place] for part in found[:3]], expected, rtol=1e-12)
        assert found.known[place] == known.size


def test_infinite_values_are_the_largest():
    low, median, high, known = quartiles(np.array([[1.0, np.inf, 2.0, np.nan], [np.inf, np.inf, np.inf, 1.0]]))
    np.testing.assert_array_equal([low, median, high, known], [[1.5, np.inf], [2, np.inf], [np.inf, np.inf], [3, 4]])


def test_lines_are_medians_over_seeds_with_their_quartiles():
    data = thresholds(acceptance=("none", "matched"), seed=range(10))
    figure = drawings(data)["against_error_threshold"]()
    assert len(figure.axes) == 6
    panels = np.array(figure.axes).reshape(3, 2)
    assert [ax.get_title() for ax in panels[0]] == ["Acceptance: none", "Acceptance: matched"]
    assert [ax.get_ylabel() for ax in panels[:, 0]] == ["SMSE [1]", "Revised points [1]", "95 % coverage [1]"]
    assert panels[2, 0].get_xlabel() == "Error threshold [K]"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "Prior entropy",
        "Mean relevance",
        "Marginal log likelihood",
    ]
    names = ("smse", "n_revised", "coverage_95")
    for (row, name), (column, acceptance) in product(enumerate(names), enumerate(("none", "matched"))):
        lines = labelled(panels[row, column])
        assert len(lines) == 3
        for k, line in enumerate(lines.values()):
            values = data[name].sel(acceptance=acceptance, reduction=CRITERIA[k]).values
            np.testing.assert_allclose(line.get_ydata(), np.median(values, axis=1), rtol=1e-12)
            np.testing.assert_array_equal(line.get_xdata(), THRESHOLDS)
            corners = panels[row, column].collections[k].get_paths()[0].vertices[:, 1]
            quarters = np.quantile(values, [0.25, 0.75], axis=1)
            assert (corners.min(), corners.max()) == pytest.approx((quarters[0].min(), quarters[1].max()))
    assert {ax.get_xscale() for ax in figure.axes} == {"log"}
    assert said(figure).endswith("Medians over 10 seeds, bands between the quartiles. Dashed: the nominal coverage.")


def test_numbers_are_sorted_along_the_axis():
    data = thresholds(seed=range(4)).isel(error_threshold=[2, 0, 3, 1])
    line = drawings(data)["against_error_threshold"]().axes[0].lines[1]
    np.testing.assert_array_equal(line.get_xdata(), THRESHOLDS)
    expected = data["smse"].sel(reduction="prior_entropy").sortby("error_threshold").median("seed")
    np.testing.assert_allclose(line.get_ydata(), expected)


def test_missing_settings_are_gaps_and_counted():
    data = thresholds(seed=range(3))
    data["smse"][1, 0] = np.nan
    data["smse"][2, 1, 0] = np.nan
    figure = drawings(data)["against_error_threshold"]()
    first, second, _ = labelled(figure.axes[0]).values()
    np.testing.assert_array_equal(np.isnan(first.get_ydata()), [False, True, False, False])
    assert second.get_ydata()[2] == pytest.approx(np.mean(data["smse"][2, 1, 1:]))
    assert "4 of 36 combinations have no SMSE." in said(figure)
    dots = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in dots] == [12, 12, 12], "few seeds are drawn one by one"


def test_infinite_medians_are_marked_at_the_edge():
    data = thresholds(seed=range(6))
    data["smse"][3, 0, :4] = np.inf
    data["smse"][0, 1] = np.inf
    figure = drawings(data)["against_error_threshold"]()
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "^" and line.get_fillstyle() == "none"]
    assert [line.get_xdata().tolist() for line in marks] == [[0.3], [0.01]]
    assert "10 of 72 combinations have an infinite SMSE. Triangles at the upper edge: infinite medians." in said(figure)
    assert np.isfinite(figure.axes[0].get_ylim()).all()


@pytest.mark.parametrize(
    ("change", "scale"),
    [
        (lambda smse: smse, "log"),
        (lambda smse: smse.where(smse > 0.1, 0.0), "symlog"),
        (lambda smse: smse - 1.0, "linear"),
        (lambda smse: 0.0 * smse, "linear"),
        (lambda smse: 1.0 + 0.1 * smse / smse.max(), "linear"),
    ],
)
def test_the_scale_follows_the_values(change, scale):
    data = thresholds(seed=range(6))
    figure = drawings(data.assign(smse=change(data["smse"])))["against_error_threshold"]()
    ax = figure.axes[0]
    assert ax.get_yscale() == scale
    low, high = ax.get_ylim()
    for line in labelled(ax).values():
        assert np.all((line.get_ydata() > low) & (line.get_ydata() < high))


def test_panels_that_have_no_room_are_named():
    data = thresholds(acceptance=("none", "matched"), budget=(20, 50, 100, 200))
    figure = drawings(data)["against_error_threshold"]()
    assert len(figure.axes) == 18
    assert "Left out, 2 of 8 panels: Acceptance: matched, budget: 100; Acceptance: matched, budget: 200." in said(
        figure
    )
    titles = [ax.get_title().replace("\n", " ") for ax in figure.axes if ax.get_title()]
    assert titles == [
        f"Acceptance: {a}, budget: {b}" for a, b in list(product(("none", "matched"), (20, 50, 100, 200)))[:6]
    ]


def test_five_panels_leave_no_empty_axes():
    figure = drawings(thresholds(budget=(1, 2, 3, 4, 5)))["against_error_threshold"]()
    assert len(figure.axes) == 15


def test_at_most_eight_lines_of_different_looks():
    names = [f"rule_{i}" for i in range(12)]
    figure = drawings(sweep_of(error_threshold=THRESHOLDS, rule=names))["against_error_threshold"]()
    lines = labelled(figure.axes[0]).values()
    assert len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == len(lines) == 8
    assert "Left out, 4 of 12 values of rule." in said(figure)
    assert [line.get_label() for line in lines][:: len(lines) - 1] == ["rule 0", "rule 11"], "the ends are shown"


def test_values_spread_out_evenly():
    assert spread_out(5, 8) == [0, 1, 2, 3, 4]
    assert spread_out(15, 8) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert spread_out(1, 8) == [0]
    assert spread_out(0, 8) == []


def test_a_criterion_has_the_look_of_all_other_figures():
    from experiments.studies.style import COLORS, MARKERS

    cells = thresholds()
    for criterion, (_, look) in zip(CRITERIA, drawn_series(cells, "reduction"), strict=True):
        assert (look.color, look.marker) == (COLORS[criterion], MARKERS[criterion])


def test_one_parameter_and_no_seed():
    data = sweep_of(error_threshold=THRESHOLDS)
    drawn = drawings(data)
    assert set(drawn) == {"against_error_threshold", "pareto_front"}
    figure = drawn["against_error_threshold"]()
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), data["smse"])
    assert not figure.axes[0].collections
    assert not figure.legends
    assert "One seed." in said(figure)


def test_what_is_held_is_said():
    data = thresholds(acceptance=("matched",), seed=(7,))
    assert "Held: acceptance matched, seed 7." in said(drawings(data)["against_error_threshold"]())


def test_only_seeds_are_drawn_one_by_one():
    data = sweep_of(error_threshold=(0.05,), seed=(3, 1, 2, 5))
    drawn = drawings(data)
    assert set(drawn) == {"over_seeds"}
    figure = drawn["over_seeds"]()
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "SMSE [1]",
        "Revised points [1]",
        "95 % coverage [1]",
        "Loop time [s]",
    ]
    for ax, name in zip(figure.axes, ("smse", "n_revised", "coverage_95", "times_loop"), strict=True):
        median, values = ax.lines
        assert median.get_ydata()[0] == pytest.approx(np.median(data[name]))
        np.testing.assert_array_equal(values.get_ydata(), data[name].squeeze())
    assert "over 4 seeds" in said(figure)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["3", "2", "5"]


@pytest.mark.parametrize(
    "data",
    [
        sweep_of(error_threshold=(0.1,), seed=(0,)),
        thresholds(seed=range(2)).drop_vars(["smse"]),
        thresholds(seed=range(2)) * np.nan,
        search_of(1),
        xr.Dataset({"smse": ("job", [0.1])}, {"job": [0]}),
    ],
    ids=["one job", "no error", "all missing", "one trial", "no parameter"],
)
def test_a_figure_that_would_show_nothing_is_not_drawn(data):
    assert not drawings(data)


def test_metrics_that_are_missing_have_no_panel():
    data = thresholds(seed=range(3)).drop_vars("times_loop")
    data["coverage_95"][:] = np.nan
    drawn = drawings(data)
    assert [ax.get_ylabel() for ax in drawn["against_error_threshold"]().axes] == ["SMSE [1]", "Revised points [1]"]
    assert [ax.get_xlabel() for ax in drawn["pareto_front"]().axes] == ["Revised points [1]", ""]
    assert "pareto_front" not in drawings(data.drop_vars("n_revised"))


def test_the_error_in_the_stream_stands_in_without_validation():
    data = thresholds(seed=range(3)).rename(smse="smse_stream")
    assert drawings(data)["against_error_threshold"]().axes[0].get_ylabel() == "SMSE in the stream [1]"


def test_texts_are_rows_of_dots():
    data = sweep_of(reduction=CRITERIA, acceptance=("none", "matched"), seed=range(8))
    data["smse"][2, 1] = np.inf
    drawn = drawings(data)
    assert set(drawn) == {"settings", "pareto_front", "heat_map"}
    figure = drawn["settings"]()
    ax = figure.axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["none", "matched"]
    dots = [line for line in ax.lines if line.get_markersize() == 4.5]
    for (row, k), dot in zip(product(range(2), range(3)), dots, strict=True):
        expected = float(data["smse"][k, row].median())
        assert dot.get_xdata()[0] == pytest.approx(expected if np.isfinite(expected) else np.nan, nan_ok=True)
        assert dot.get_ydata()[0] == pytest.approx(row + 0.7 * (k - 1) / 3), "the first criterion above"
    assert [line.get_marker() for line in ax.lines].count(">") == 1
    assert ax.get_ylim() == (1.5, -0.5), "the first row above"


@pytest.mark.parametrize("n_seeds", [3, 8])
def test_the_nominal_coverage_is_in_sight(n_seeds):
    for data in (thresholds(seed=range(n_seeds)), sweep_of(reduction=CRITERIA, seed=range(n_seeds))):
        data["coverage_95"] = data["coverage_95"] - 0.4
        name, draw = next(iter(drawings(data).items()))
        ax = draw().axes[2]
        low, high = ax.get_xlim() if name == "settings" else ax.get_ylim()
        assert low < 0.95 < high


def test_one_text_names_the_rows():
    figure = drawings(sweep_of(reduction=CRITERIA, seed=range(3)))["settings"]()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["Prior entropy", "Mean relevance", "Marginal log likelihood"]
    assert not figure.legends


def test_a_heat_map_has_the_medians_in_true_order():
    data = sweep_of(error_threshold=(0.3, 0.01, 0.1), budget=(200, 50), seed=range(5))
    data["smse"][0, 1] = np.nan
    figure = drawings(data)["heat_map"]()
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Error threshold [K]", "Budget")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.01", "0.1", "0.3"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["50", "200"]
    expected = data["smse"].sortby(["error_threshold", "budget"]).transpose("budget", "error_threshold", "seed")
    image = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(image, expected.median("seed"))
    assert ax.images[0].origin == "lower"
    (hatched,) = [patch for patch in ax.patches if patch.get_hatch()]
    assert (hatched.get_x(), hatched.get_y()) == (1.5, -0.5), "threshold 0.3, budget 50"
    (framed,) = [patch for patch in ax.patches if not patch.get_hatch()]
    row, column = np.unravel_index(np.nanargmin(image), image.shape)
    assert (framed.get_x(), framed.get_y()) == (column - 0.5, row - 0.5)
    assert len(ax.texts) == 5
    assert "5 of 30 combinations have no SMSE; hatched cells have none." in said(figure)


def test_numbers_lie_along_x_of_a_heat_map():
    data = sweep_of(reduction=CRITERIA, error_threshold=THRESHOLDS)
    ax = drawings(data)["heat_map"]().axes[0]
    assert ax.get_xlabel() == "Error threshold [K]"
    np.testing.assert_array_equal(ax.images[0].get_array(), data["smse"])
    assert ax.images[0].origin == "upper", "texts are read downwards"


@pytest.mark.parametrize(
    ("values", "n_maps"),
    [
        ({"error_threshold": THRESHOLDS, "budget": (20, 50), "reduction": CRITERIA}, 3),
        ({"error_threshold": THRESHOLDS, "budget": (20, 50), "reduction": CRITERIA, "acceptance": ("a", "b")}, 6),
        ({"error_threshold": THRESHOLDS, "budget": (20, 50), "lags": (1, 2, 3), "rule": ("a", "b", "c")}, 0),
        ({"error_threshold": THRESHOLDS, "reduction": CRITERIA, "budget": (20, 50)}, 0),
        ({"error_threshold": THRESHOLDS, "seed": (0, 1)}, 0),
    ],
)
def test_few_maps_beside_each_other(values, n_maps):
    drawn = drawings(sweep_of(**values))
    assert ("heat_map" in drawn) == bool(n_maps)
    if n_maps:
        assert sum(bool(ax.images) for ax in drawn["heat_map"]().axes) == n_maps


def test_the_front_of_settings_is_joined_and_listed():
    data = thresholds(acceptance=("none", "matched"), seed=range(5))
    data["smse"][0, 0, 0] = np.nan
    data["smse"][1, 0, 0] = np.inf
    figure = drawings(data)["pareto_front"]()
    medians = data.drop_vars("status").median("seed")
    flat = [medians[name].values.ravel() for name in ("smse", "n_revised", "times_loop")]
    finite = np.isfinite(flat[0])
    for ax, cost in zip(figure.axes[:2], flat[1:], strict=True):
        front = naive_front(np.where(finite, cost, np.nan), np.where(finite, flat[0], np.nan))
        (line,) = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
        order = np.argsort(cost[front])
        np.testing.assert_allclose(line.get_xdata(), cost[front][order])
        np.testing.assert_allclose(line.get_ydata(), flat[0][front][order])
        drawn = sum(len(line.get_xdata()) for line in ax.lines if line.get_drawstyle() != "steps-post")
        assert drawn == 24
    place = next(iter(np.argwhere(medians["n_revised"].values == figure.axes[0].lines[-1].get_xdata()[0])))
    cell = data.isel(dict(zip(("error_threshold", "reduction", "acceptance"), place, strict=True)))
    written = [text.get_text() for text in figure.axes[2].texts]
    expected = f"{float(cell['error_threshold'])} K, {str(cell['reduction'].item()).replace('_', ' ')}"
    assert written[5] == f"{expected}, {cell['acceptance'].item()}"
    assert "of 24 settings, medians over 5 seeds" in said(figure)
    assert "5 of 120 combinations have no SMSE; 5 of 120 combinations have an infinite SMSE." in said(figure)


def test_settings_with_an_infinite_median_are_not_on_the_front():
    data = sweep_of(error_threshold=(1, 2, 3, 4))
    data["smse"][:] = [np.inf, 3.0, 2.0, -1.0]
    data["n_revised"][:] = [1.0, 2.0, 3.0, np.inf]
    settings = of_sweep(make_sweep(data), ("smse", "n_revised"))
    np.testing.assert_array_equal(front_of(settings, "smse", "n_revised"), [1, 2])


def test_settings_of_a_grid_keep_their_seeds():
    sweep = make_sweep(thresholds(acceptance=("none", "matched"), seed=range(3)))
    settings = of_sweep(sweep, ("smse",))
    assert settings.size == 24
    for i, (t, r, a) in enumerate(product(range(4), range(3), range(2))):
        np.testing.assert_array_equal(settings.metrics["smse"][i], sweep.cells["smse"][t, r, a])
        assert [settings.place[name][i] for name in sweep.varied] == [t, r, a]


def test_jobs_of_one_setting_are_pooled_over_seeds():
    jobs = xr.Dataset(
        {"smse": ("job", [3.0, 1.0, 5.0, 2.0, 4.0, 9.0]), "n_revised": ("job", [1.0, 2.0, 1.0, 2.0, 1.0, 7.0])},
        {
            "job": range(6),
            "threshold": ("job", [0.2, 0.1, 0.2, 0.1, 0.2, np.nan]),
            "rule": ("job", ["b", "b", "b", "b", "b", ""]),
            "seed": ("job", [0, 0, 1, 1, 2, 0]),
        },
    )
    settings = of_jobs(jobs, ("threshold", "rule", "seed"), ("smse", "n_revised"))
    np.testing.assert_array_equal(settings.metrics["smse"], [[3, 5, 4], [1, 2, np.nan], [9, np.nan, np.nan]])
    thresholds_found = settings.parameters["threshold"].values[settings.place["threshold"]]
    np.testing.assert_array_equal(thresholds_found, [0.2, 0.1, np.nan])
    np.testing.assert_array_equal(front_of(settings, "smse", "n_revised"), [0, 1])
    written = [text.get_text() for text in drawings(jobs)["pareto_front"]().axes[1].texts]
    assert written[4:8] == ["1", "0.2, b", "4.00", "1"]


def test_the_lowest_so_far_of_trials():
    jobs = search_of()
    jobs["smse"][0], jobs["smse"][7] = np.nan, np.inf
    figure = drawings(jobs.isel(job=slice(None, None, -1)))["trials"]()
    dots, best, bad = figure.axes[0].lines
    values = jobs["smse"].values
    lowest = [min([v for v in values[: i + 1] if np.isfinite(v)], default=np.nan) for i in range(len(values))]
    np.testing.assert_array_equal(best.get_ydata(), lowest)
    np.testing.assert_array_equal(best.get_xdata(), np.arange(40))
    np.testing.assert_array_equal(dots.get_ydata(), np.where(np.isinf(values), np.nan, values))
    assert bad.get_xdata().tolist() == [0, 7]
    assert "SMSE of 40 trials." in said(figure)
    assert "1 of 40 trials have no SMSE; 1 of 40 trials have an infinite SMSE." in said(figure)
    del jobs.attrs["directions"]
    assert "SMSE of 40 jobs." in said(drawings(jobs)["trials"]())


def test_the_lowest_begins_with_the_first_that_is_known():
    np.testing.assert_array_equal(best_so_far(np.array([np.nan, 3.0, np.nan, 4.0, 1.0])), [np.nan, 3, 3, 3, 1])


def test_every_parameter_of_a_search_has_a_slice():
    jobs = search_of().assign_coords(kept=("job", np.full(40, 3)))
    jobs["smse"][2] = np.nan
    known = np.isfinite(jobs["smse"].values)
    figure = drawings(jobs)["slices_smse"]()
    assert [ax.get_xlabel() for ax in figure.axes[:3]] == ["Error threshold [K]", "Budget", "Reduction"]
    for ax, name in zip(figure.axes[:2], ("error_threshold", "budget"), strict=True):
        x, y = ax.collections[0].get_offsets().T
        np.testing.assert_array_equal(x, jobs[name].values[known])
        np.testing.assert_array_equal(y, jobs["smse"].values[known])
        (ring,) = ax.lines
        assert ring.get_ydata()[0] == jobs["smse"].min()
        assert ring.get_xdata()[0] == jobs[name].values[np.nanargmin(jobs["smse"].values)]
    names = [label.get_text().replace("\n", " ") for label in figure.axes[2].get_xticklabels()]
    places = figure.axes[2].collections[0].get_offsets()[:, 0].astype(int)
    shown = [names[place].lower().replace(" ", "_") for place in places]
    assert shown == jobs["reduction"].values[known].tolist()


def test_two_objectives_of_a_search():
    drawn = drawings(search_of(directions='{"times_loop": "minimize", "n_revised": "minimize"}'))
    assert set(drawn) == {"trials", "slices_times_loop", "slices_n_revised", "pareto_front"}
    assert [ax.get_ylabel() for ax in drawn["trials"]().axes] == ["Loop time [s]", "Revised points [1]"]
    assert [ax.get_ylabel() for ax in drawn["pareto_front"]().axes] == ["Loop time [s]", ""]


def test_every_output_has_figures_of_its_own():
    first = thresholds(seed=range(3))
    second = sweep_of(1, error_threshold=THRESHOLDS, reduction=CRITERIA, seed=range(3))
    data = xr.concat([first, second], xr.DataArray(["level", "flow"], dims="output", name="output"))
    drawn = drawings(data)
    kinds = ("against_error_threshold", "pareto_front", "heat_map")
    assert list(drawn) == [f"{kind}_{output}" for output in ("level", "flow") for kind in kinds]
    figure = drawn["against_error_threshold_flow"]()
    assert said(figure).startswith("flow: SMSE")
    line = next(iter(labelled(figure.axes[0]).values()))
    np.testing.assert_allclose(line.get_ydata(), second["smse"].sel(reduction="prior_entropy").median("seed"))


CASES = {
    "full": lambda: sweep_of(
        error_threshold=np.geomspace(0.01, 0.3, 9), reduction=CRITERIA, acceptance=("none", "matched"), seed=range(10)
    ),
    "flags": lambda: sweep_of(validate=(False, True), budget=(10, 20), seed=range(2)),
    "lists": lambda: sweep_of(lags=("[1, 2]", "[1, 2, 3]"), duration=("60d", "1d"), data=("a", "b", "c")),
    "zero": lambda: sweep_of(error_threshold=(0.0, 0.1, 0.5), reduction=CRITERIA),
    "wide": lambda: sweep_of(error_threshold=np.linspace(0.1, 1, 30), budget=range(10, 50)),
    "search": search_of,
    "gaps": lambda: thresholds(seed=range(3)).where(lambda data: data["smse"] > 0.1),
    "constant": lambda: thresholds(seed=range(3)).map(lambda values: 0 * values + 3),
}


SLOW = {"full", "wide", "constant", "lists"}


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in SLOW else []) for c in CASES])
def test_everything_is_drawn_without_a_warning(case):
    drawn = drawings(CASES[case]())
    assert drawn
    for draw in drawn.values():
        figure = draw()
        figure.draw_without_rendering()
        assert figure.get_size_inches()[0] == pytest.approx(6.69)
        assert figure.get_size_inches()[1] < 11
        parts = [figure._suptitle, *figure.legends]
        boxes = [figure.transFigure.inverted().transform_bbox(part.get_window_extent()) for part in parts]
        assert all(0 <= end <= 1 for box in boxes for end in (*box.min, *box.max)), "nothing is cut off"
        assert all(not one.overlaps(two) for one, two in combinations(boxes, 2))
