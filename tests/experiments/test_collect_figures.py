"""Figures of collected sweeps: what is drawn where, against naive medians, fronts and counts."""

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import PLAIN

from experiments.collection.dataset import build_dataset
from experiments.collection.figures import find_front, plan_figures, pool_trials
from experiments.collection.read import Results, Sweep, column_of
from experiments.plots.style import COLORS, MARKERS

if PLAIN:
    pytest.skip("figures are drawn alike without the compiler", allow_module_level=True)

THRESHOLDS = (0.3, 0.01, 0.1, 0.05)  # not in their order
CRITERIA = ("prior_entropy", "mean_relevance", "marginal_log_likelihood")
METRICS = {
    "smse": ("smse",),
    "n_revised": ("n_revised",),
    "coverage_95": ("coverage_95",),
    "times_loop": ("times", "loop"),
}
MINIMIZE = {"smse": "minimize"}


def jobs_of(rows, objectives=(), trials=(), **metrics):
    """Results of jobs whose parameters are the columns of a table, with metrics drawn at random unless given."""
    rng, n = np.random.default_rng(0), len(rows)
    drawn = {
        "smse": rng.lognormal(-2.0, 1.0, n),
        "n_revised": rng.integers(5, 2000, n).astype(float),
        "coverage_95": rng.uniform(0.5, 0.6, n),
        "times_loop": rng.uniform(0.1, 3.0, n),
    }
    numbers = pd.DataFrame({name: metrics.get(name, values) for name, values in drawn.items()})
    jobs = pd.DataFrame({"status": "done", "error": "", "timed": True, "trial": [*trials] or -1}, numbers.index)
    for name in rows:
        jobs[name] = column_of(rows[name].tolist())
    parameters = {name: "insertion.error_threshold" if name == "error_threshold" else name for name in rows}
    sweep = Sweep(Path(), "identify", "0.1.0", "", [], [], dict(objectives), dict(enumerate(trials)))
    return Results(sweep, parameters, METRICS, jobs, {"": numbers}, "", "K")


def grid_of(**values):
    return jobs_of(pd.DataFrame(list(product(*values.values())), columns=list(values)))


def search_of(n=24, **options):
    rng = np.random.default_rng(1)
    columns = {
        "error_threshold": rng.uniform(0.01, 0.5, n),
        "budget": rng.integers(10, 300, n),
        "reduction": rng.choice(CRITERIA, n),
    }
    return jobs_of(
        pd.DataFrame(columns), options.pop("objectives", MINIMIZE), options.pop("trials", range(n)), **options
    )


def plan(found):
    return plan_figures(found, build_dataset(found))


def rows_of(found):
    return found.jobs.join(found.numbers[""])


def said(figure):
    return " ".join(figure.get_suptitle().split())


def test_lines_are_medians_over_seeds_with_their_quartiles():
    found = grid_of(error_threshold=THRESHOLDS, reduction=CRITERIA, acceptance=("none", "matched"), seed=range(10))
    found.numbers[""].loc[(found.jobs["error_threshold"] == 0.1) & (found.jobs["reduction"] == CRITERIA[0]), "smse"] = (
        np.nan
    )
    found.numbers[""].loc[0, "smse"] = np.nan
    figure = plan(found)["against_error_threshold"]()
    panels = np.array(figure.axes).reshape(3, 2)
    assert [ax.get_title() for ax in panels[0]] == ["Acceptance: none", "Acceptance: matched"]
    assert [ax.get_ylabel() for ax in panels[:, 0]] == ["SMSE [1]", "Revised points [1]", "95 % coverage [1]"]
    assert panels[2, 0].get_xlabel() == "Error threshold [K]"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["Prior entropy", "Mean relevance", "Marginal log likelihood"]
    groups = rows_of(found).groupby(["acceptance", "reduction", "error_threshold"], observed=True)
    names = ("smse", "n_revised", "coverage_95")
    for (row, name), (column, acceptance) in product(enumerate(names), enumerate(("none", "matched"))):
        low, median, high = (groups[name].quantile(level) for level in (0.25, 0.5, 0.75))
        ax = panels[row, column]
        for criterion, line, band in zip(CRITERIA, ax.lines, ax.collections, strict=False):
            np.testing.assert_array_equal(line.get_xdata(), sorted(THRESHOLDS))
            np.testing.assert_allclose(line.get_ydata(), median[acceptance, criterion])
            assert (line.get_color(), line.get_marker()) == (COLORS[criterion], MARKERS[criterion])
            ends = (
                band.get_paths()[0].vertices[:, 1]
                if name != "smse"
                else [low[acceptance, criterion].min(), high[acceptance, criterion].max()]
            )
            assert (min(ends), max(ends)) == pytest.approx(
                (low[acceptance, criterion].min(), high[acceptance, criterion].max())
            )
        bottom, top = ax.get_ylim()
        shown = rows_of(found)[name]
        assert bottom < shown.min() < shown.max() < top
    assert panels[2, 0].get_ylim()[1] > 0.95, "the nominal coverage is in sight"
    assert "21 of 240 jobs have no finite SMSE" in said(figure)


def test_what_has_no_room_is_told():
    values = {"error_threshold": THRESHOLDS, "rule": [f"rule {i}" for i in range(12)], "budget": range(10, 60, 10)}
    figure = plan(grid_of(**values))["against_error_threshold"]()
    lines = [line for line in figure.axes[0].lines if line.get_label().startswith("rule")]
    assert len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == len(lines) == 8
    assert [line.get_label() for line in lines][::7] == ["rule 0", "rule 11"], "the ends are shown"
    assert len(figure.axes) == 12
    assert "4 of 5 values of budget are shown" in said(figure)
    assert "8 of 12 values of rule are shown" in said(figure)


def test_texts_are_points_beside_each_other():
    found = grid_of(reduction=CRITERIA, acceptance=("none", "matched"), seed=range(8))
    drawn = plan(found)
    assert set(drawn) == {"settings", "pareto_front", "heat_map"}
    ax = drawn["settings"]().axes[0]
    medians = rows_of(found).groupby(["acceptance", "reduction"], observed=True)["smse"].median()
    for acceptance, line in zip(("none", "matched"), ax.lines, strict=True):
        np.testing.assert_allclose(line.get_ydata(), medians[acceptance])
        assert line.get_linestyle() == "None"
        assert np.round(line.get_xdata()).tolist() == [0, 1, 2]


def test_only_seeds_are_drawn_one_by_one():
    found = grid_of(error_threshold=(0.05,), seed=(3, 1, 2, 5))
    drawn = plan(found)
    assert set(drawn) == {"over_seeds"}
    axes = drawn["over_seeds"]().axes
    assert [ax.get_ylabel() for ax in axes] == ["SMSE [1]", "Revised points [1]", "95 % coverage [1]", "Loop time [s]"]
    for ax, name in zip(axes, METRICS, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), [3, 1, 2, 5])
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.numbers[""][name])


def test_figures_that_would_show_nothing_are_not_drawn():
    found = grid_of(error_threshold=THRESHOLDS, seed=range(2))
    assert not plan(grid_of(error_threshold=(0.1,), seed=(0,)))
    assert not plan(search_of(1))
    found.numbers[""]["smse"] = np.nan
    assert not plan(found)
    found.numbers[""] = found.numbers[""].assign(smse_stream=0.1, coverage_95=np.nan)
    drawn = plan(found._replace(metrics={name: (name,) for name in ("smse_stream", "smse", "coverage_95")}))
    assert set(drawn) == {"against_error_threshold"}, "no cost, no front"
    assert [ax.get_ylabel() for ax in drawn["against_error_threshold"]().axes] == ["Smse stream [1]"]


def test_a_heat_map_has_the_medians_in_true_order():
    found = grid_of(budget=(200, 50), error_threshold=(0.3, 0.01, 0.1), seed=range(5))
    is_gap = (found.jobs["budget"] == 50) & (found.jobs["error_threshold"] == 0.3)
    found.numbers[""].loc[is_gap, "smse"] = np.nan
    ax = plan(found)["heat_map"]().axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Budget", "Error threshold [K]")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["50", "200"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.01", "0.1", "0.3"]
    expected = rows_of(found).groupby(["error_threshold", "budget"])["smse"].median().unstack()
    image = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(image, expected)
    assert np.isnan(image).sum() == 1
    assert ax.images[0].origin == "lower"
    texts = plan(grid_of(reduction=CRITERIA, error_threshold=THRESHOLDS))["heat_map"]().axes[0]
    assert texts.get_xlabel() == "Error threshold [K]", "numbers lie along x"


@pytest.mark.parametrize(
    ("values", "n_maps"),
    [
        ({"error_threshold": THRESHOLDS, "budget": (20, 50), "reduction": CRITERIA}, 3),
        ({"error_threshold": THRESHOLDS, "budget": (20, 50), "reduction": CRITERIA, "rule": "ab"}, 0),
        ({"error_threshold": THRESHOLDS, "reduction": CRITERIA, "budget": (20, 50)}, 0),
        ({"error_threshold": THRESHOLDS, "seed": (0, 1)}, 0),
    ],
    ids=["three", "too many", "texts", "one parameter"],
)
def test_few_maps_beside_each_other(values, n_maps):
    drawn = plan(grid_of(**values))
    assert ("heat_map" in drawn) == bool(n_maps)
    assert not n_maps or sum(bool(ax.images) for ax in drawn["heat_map"]().axes) == n_maps


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ways", list(product(("minimize", "maximize"), repeat=2)), ids="-".join)
def test_the_front_is_the_definition(seed, ways):
    """Few different values: many ties in one objective and in both; nan and inf among them."""
    rng = np.random.default_rng(seed)
    x, y = rng.choice([0.0, 1.0, 2.0, 3.0, -1.0, np.inf, np.nan], (2, rng.integers(0, 25)))
    front = find_front(pd.DataFrame({"x": x, "y": y}), "y", "x", dict(zip("xy", ways, strict=True)))
    signs = [1 if way == "minimize" else -1 for way in ways]
    points = [(signs[0] * a, signs[1] * b) for a, b in zip(x, y, strict=True)]
    known = [i for i, point in enumerate(points) if np.isfinite(point).all()]
    beats = [
        (a, b) for a in known for b in known if points[a] != points[b] and np.all(np.less_equal(points[a], points[b]))
    ]
    assert sorted(front.index) == sorted(set(known) - {b for _, b in beats})
    assert np.all(np.diff(front["x"]) >= 0)


def test_the_front_of_settings_is_joined_and_listed():
    found = grid_of(error_threshold=THRESHOLDS, reduction=CRITERIA, acceptance=("none", "matched"), seed=range(5))
    found.numbers[""].loc[0, "smse"] = np.nan
    figure = plan(found)["pareto_front"]()
    names = ["error_threshold", "reduction", "acceptance"]
    medians = rows_of(found).groupby(names, observed=True)[list(METRICS)].median().reset_index()
    for ax, cost in zip(figure.axes, ("n_revised", "times_loop"), strict=True):
        front = find_front(medians, "smse", cost, {})
        (line,) = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
        np.testing.assert_allclose(np.transpose(line.get_data()), front[[cost, "smse"]])
        assert sum(len(line.get_xdata()) for line in ax.lines[1:-1]) == 24
    first = find_front(medians, "smse", "n_revised", {}).iloc[0]
    listed = figure.get_supxlabel().splitlines()[1].split()
    assert listed[:2] == ["1", f"{first['error_threshold']:g}"]
    assert float(listed[-2]) == pytest.approx(first["smse"], rel=1e-5)


def test_trials_of_a_search_and_the_best_so_far():
    smse = np.random.default_rng(2).lognormal(-2, 1, 24)
    smse[0], smse[7] = np.nan, np.inf
    found = search_of(smse=smse, objectives=MINIMIZE | {"n_revised": "maximize"})
    drawn = plan(found)
    assert set(drawn) == {"trials", "slices_smse", "slices_n_revised", "pareto_front"}
    figure = drawn["trials"]()
    lowest = [min((v for v in smse[: i + 1] if np.isfinite(v)), default=np.nan) for i in range(24)]
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_ydata(), lowest)
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_xdata(), np.arange(24))
    highest = np.maximum.accumulate(found.numbers[""]["n_revised"])
    np.testing.assert_array_equal(figure.axes[1].lines[1].get_ydata(), highest)
    assert "2 of 24 jobs have no finite SMSE" in said(figure)
    panels = drawn["slices_smse"]().axes
    assert [ax.get_xlabel() for ax in panels] == ["Error threshold [K]", "Budget", "Reduction"]
    names = [label.get_text().replace("\n", " ") for label in panels[2].get_xticklabels()]
    shown = [names[int(place)].lower().replace(" ", "_") for place in panels[2].lines[0].get_xdata()]
    assert shown == found.jobs["reduction"].tolist()
    (side,) = {line.get_drawstyle() for line in drawn["pareto_front"]().axes[0].lines} - {"default"}
    assert side == "steps-pre", "more revised points are better"


def test_a_trial_is_the_median_of_its_jobs():
    """As the search was told: nan if one job lacks the objective; jobs of no trial are left out."""
    table = pd.DataFrame({"budget": [10, 10, 20, 20, 30, 40], "seed": [0, 1, 0, 1, 0, 0]})
    smse = np.array([1.0, 2.0, np.nan, 3.0, 5.0, 6.0])
    found = jobs_of(table, MINIMIZE, [2, 2, 0, 0, -1, 1], smse=smse)
    pooled = pool_trials(rows_of(found), found, MINIMIZE)
    assert pooled["trial"].tolist() == [0, 1, 2]
    assert pooled["budget"].tolist() == [20, 40, 10]
    np.testing.assert_array_equal(pooled["smse"], [np.nan, 6.0, 1.5])
    np.testing.assert_allclose(
        pooled["n_revised"], [found.numbers[""]["n_revised"][k].mean() for k in ([2, 3], [5], [0, 1])]
    )
    assert "seed" not in pooled
    assert [ax.get_xlabel() for ax in plan(found)["slices_smse"]().axes] == ["Budget"]


def test_times_that_cannot_be_compared_are_left_out_but_for_a_search_by_them():
    found = grid_of(budget=(10, 20), seed=range(2))._replace(timing="Times without 2 jobs")
    found.jobs["timed"] = [False, True, False, True]
    figure = plan(found)["pareto_front"]()
    assert "Times without 2 jobs." in said(figure)
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_xdata(), found.numbers[""]["times_loop"][[1, 3]])
    search = search_of(4, objectives={"times.loop": "minimize"})
    search.jobs["timed"] = False
    np.testing.assert_array_equal(
        plan(search)["trials"]().axes[0].lines[0].get_ydata(), search.numbers[""]["times_loop"]
    )


CASES = {
    "two outputs": lambda: grid_of(error_threshold=THRESHOLDS, reduction=CRITERIA, seed=range(3)),
    "flags": lambda: grid_of(validate=(False, True), budget=(10, 20), seed=range(2)),
    "lists": lambda: grid_of(lags=("[1, 2]", "[1, 2, 3]"), duration=("60d", "1d"), data=("a", "b", "c")),
    "zero": lambda: grid_of(error_threshold=(0.0, 0.1, 0.5), reduction=CRITERIA),
    "search": search_of,
    "no grid": lambda: jobs_of(pd.DataFrame({"a": [1, np.nan, 2], "b": ["x", "y", "y"]})),
}


@pytest.mark.parametrize("case", CASES)
def test_everything_is_drawn_without_a_warning(case):
    found = CASES[case]()
    if case == "two outputs":
        numbers = found.numbers[""]
        found = found._replace(numbers={"flow": numbers, "level": 3.0 * numbers})
    drawn = plan(found)
    if case == "two outputs":
        kinds = ("against_error_threshold", "heat_map", "pareto_front")
        assert list(drawn) == [f"{kind}_{output}" for output in ("flow", "level") for kind in kinds]
        np.testing.assert_allclose(
            drawn["heat_map_level"]().axes[0].images[0].get_array(),
            3.0 * drawn["heat_map_flow"]().axes[0].images[0].get_array(),
        )
    for draw in drawn.values():
        figure = draw()
        figure.draw_without_rendering()
        assert figure.get_size_inches()[0] == pytest.approx(6.69)
        parts = [part for part in (figure._suptitle, *figure.legends) if part.get_window_extent().height]
        boxes = [figure.transFigure.inverted().transform_bbox(part.get_window_extent()) for part in parts]
        assert all(0 <= end <= 1 for box in boxes for end in (*box.min, *box.max)), "nothing is cut off"
        assert all(not one.overlaps(two) for one, two in combinations(boxes, 2))
