"""Figures: their clock, what they show in detail, and that every kind of source can be drawn."""

import runpy
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.figure import Figure

from experiments.collect.figures import find_front, plan_figures
from experiments.collect.read import Results, build_dataset, column_of
from experiments.drawing import style
from experiments.drawing.style import CRITERION_COLORS, CRITERION_MARKERS, with_clock
from experiments.identify import figures
from experiments.identify.decision_figure import draw_decisions
from experiments.sweeps.store import Manifest
from sysid.gp import rules
from sysid.model.result import INITIAL, ONLINE, VALIDATION

DAY = 86400.0  # s
SECONDS_IN = {"day": DAY, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}


def clock_of(time, units="s"):
    """Return the times that figures show for a time."""
    coords = {"time": ("time", np.asarray(time, dtype=float), {"units": units})}
    return with_clock(xr.Dataset(coords=coords), "time")["shown"]


@pytest.mark.parametrize(
    ("span", "unit"),
    [
        (3 * DAY, "day"),
        (3 * DAY - 1, "h"),
        (3 * 3600, "h"),
        (3 * 3600 - 1, "min"),
        (179, "s"),
        (3, "s"),
        (2.9, "ms"),
    ],
)
def test_time_is_shown_in_the_largest_unit_that_it_spans_three_times(span, unit):
    time = np.linspace(50.0, 50.0 + span, 11)
    clock = clock_of(time)
    assert clock.attrs == {"unit": unit, "label": "day" if unit == "day" else f"time [{unit}]"}
    np.testing.assert_allclose(clock.values * SECONDS_IN[unit], time)


@pytest.mark.parametrize(
    ("time", "units"),
    [
        ([0, 1, 2, 0, 1], "s"),
        ([0, 1, 1, 2], "s"),
        ([0, 1, 2], "1"),
        ([7.0], "s"),
        ([], "s"),
    ],
    ids=["starts again", "stands still", "no unit", "one sample", "no sample"],
)
def test_samples_are_numbered_if_there_is_no_common_time(time, units):
    clock = clock_of(time, units)
    assert clock.attrs == {"unit": "sample", "label": "sample"}
    np.testing.assert_array_equal(clock.values, np.arange(len(time)))


def make_result(phase, target, mean, variance):
    """Return the record of a run with these predictions; every sample is accepted."""
    n = len(phase)
    columns = {
        "target": target,
        "mean": mean,
        "variance": variance,
        "unchanged": np.zeros(n),
        "phase": phase,
        "outlier": np.arange(n) % 9 == 8,
        "slot": np.arange(n) % 4,
        "n_points": np.full(n, 4),
        "inserted": np.ones(n, bool),
        "accepted": np.ones(n, bool),
    }
    return xr.Dataset(
        {name: ("sample", np.asarray(column)) for name, column in columns.items()},
        coords={
            "time": ("sample", np.arange(n, dtype=float)),
            "record": ("sample", np.zeros(n, int)),
        },
    )


def make_trajectory(n, **attributes):
    """Return a trajectory of one output and one input, of two halves."""
    number = np.arange(n, dtype=float)
    return xr.Dataset(
        {
            "y": ("time", np.sin(number), {"units": "V", "long_name": "output"}),
            "u": ("time", np.cos(number)),
        },
        coords={
            "time": ("time", number, {"units": "s"}),
            "record": ("time", np.zeros(n, int)),
            "part": ("time", (number >= n // 2).astype(int)),
        },
        attrs={"inputs": '["u"]', "outputs": '["y"]', **attributes},
    )


def test_the_band_holds_95_percent_of_a_true_model():
    """Band and title against a normal distribution whose variances are known."""
    rng = np.random.default_rng(0)
    n = 4000
    variance = rng.uniform(0.1, 0.5, n)
    target = rng.normal(size=n) * np.sqrt(variance + 0.2)
    result = make_result(np.full(n, VALIDATION), target, np.zeros(n), variance)
    draw = figures.drawings(make_trajectory(n), result, 0.2)["prediction"]
    series, histogram = draw().axes
    percentage = histogram.get_title().partition(": ")[2].partition(" %")[0]
    assert float(percentage) == pytest.approx(95, abs=1.5)
    corners = series.collections[0].get_paths()[0].vertices
    half_width = 1.96 * np.sqrt(variance[-200:].max() + 0.2)
    np.testing.assert_allclose(corners[:, 1].max(), half_width, rtol=1e-4)


def test_the_legend_of_the_predictions_covers_no_band():
    figure = drawings_of_run(60)["prediction"]()
    figure.draw_without_rendering()
    series = figure.axes[0]
    assert not series.get_legend().get_window_extent().overlaps(series.get_window_extent())


def test_the_errors_stand_beside_those_of_the_limit():
    phase = np.repeat([ONLINE, VALIDATION], 20)
    result = make_result(phase, np.arange(40.0), np.zeros(40), np.ones(40))
    limit = result["target"] + 0.3
    with_limit = result.assign(limit=("sample", limit.values))
    for dataset, expected in ((result, []), (with_limit, [0.3])):
        figure = figures.drawings(make_trajectory(40), dataset, 0.1)["error"]()
        lines = [line for line in figure.axes[0].lines if line.get_label() == "limit"]
        assert [np.unique(line.get_ydata().round(9)).item() for line in lines] == expected


def test_a_standard_deviation_of_zero_is_a_gap_on_the_logarithmic_axis():
    variance = np.repeat([1.0, 0.0, 1.0], 20)
    result = make_result(np.full(60, ONLINE), np.arange(60.0), np.zeros(60), variance)
    (ax,) = figures.drawings(make_trajectory(60), result, 0.1)["error"]().axes
    (line,) = [line for line in ax.lines if line.get_label() == "expected, without the noise"]
    at, heights = line.get_data()
    assert np.isnan(heights[(at > 22) & (at < 38)]).all()
    assert np.isfinite(heights[(at < 18) | (at > 42)]).all()


@pytest.mark.parametrize("first_samples", [[20], [0, 20, 40]])
def test_decisions_stand_on_an_axis_of_the_whole_run(first_samples):
    trajectory = with_clock(make_trajectory(60), "time")
    plan = xr.Dataset(
        {
            "first_sample": ("decision", first_samples),
            "gain": ("decision", np.ones(len(first_samples))),
        }
    )
    ax = Figure().add_subplot()
    is_best = np.ones(len(first_samples), bool)
    draw_decisions(
        ax, trajectory, plan, "gain", dots=("best", is_best), crosses=("other", ~is_best)
    )
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), first_samples)
    assert ax.get_xlim() == (0, 59)


def drawings_of_run(n_samples):
    """Return the figures of a run of 60 samples that ended after some of them."""
    phase = np.repeat([INITIAL, ONLINE, VALIDATION], 20)
    whole = make_result(phase, np.arange(60.0), np.zeros(60), np.ones(60))
    result = whole.isel(sample=slice(0, n_samples))
    return figures.drawings(make_trajectory(n_samples), result, 0.1)


@pytest.mark.parametrize("n_samples", [1, 21, pytest.param(60, marks=pytest.mark.slow)])
def test_runs_that_ended_early_are_drawn(n_samples):
    drawings = drawings_of_run(n_samples)
    names = {"signals", "prediction", "error"}
    if n_samples > 20:  # some samples were learned
        names.add("dictionary")
    assert set(drawings) == names
    for draw in drawings.values():
        draw().draw_without_rendering()


# --- gaps, and records beside each other


def gappy_run(static=0):
    """Return trajectory and result of two records, the first with a gap of a third of its rows."""
    n = 90
    phase = np.repeat([INITIAL, ONLINE, ONLINE, VALIDATION], [10, 20, 30, 30])
    result = make_result(phase, np.sin(np.arange(n)), np.zeros(n), np.ones(n))
    time = np.concatenate([np.arange(0.0, 30.0), np.arange(60.0, 90.0), np.arange(0.0, 30.0)])
    coords = {"record": np.repeat([0, 1], [60, 30]), "time": time}
    part = (phase == VALIDATION).astype(int)
    trajectory = make_trajectory(n, static=static, record_names='["a", "b"]').assign_coords(
        {name: ("time", values) for name, values in coords.items()} | {"part": ("time", part)}
    )
    result = result.assign_coords({name: ("sample", values) for name, values in coords.items()})
    return trajectory, result.assign(previous=("sample", np.full(n, 20.0), {"units": "degC"}))


def pieces_of(x):
    """Return the pieces of a curve between its nan."""
    broken = np.flatnonzero(np.isnan(x))
    return [piece[np.isfinite(piece)] for piece in np.split(x, broken)]


@pytest.mark.parametrize("name", ["signals", "prediction", "dictionary", "error"])
def test_no_line_and_no_band_runs_through_a_gap(name):
    trajectory, result = gappy_run()
    drawings = figures.drawings(trajectory, result, 0.1, predict_before=lambda: np.zeros(90))
    figure = drawings[name]()
    n_curves = 0
    for ax in figure.axes:
        if not ax.get_xlabel().startswith("time") and name == "prediction":
            continue  # the histogram
        for line in ax.lines:
            if line.get_linestyle() in ("None", ""):
                continue
            n_curves += 1
            for piece in pieces_of(line.get_xdata()):
                assert not len(piece) or np.diff(piece).max(initial=0.0) < 5.0
        for band in ax.collections:
            for path in band.get_paths() if "PolyCollection" in type(band).__name__ else ():
                edges = np.unique(path.vertices[:, 0])
                assert np.diff(edges).max(initial=0.0) < 5.0
    assert n_curves > 0


def test_records_stand_side_by_side_on_an_axis_of_time():
    trajectory, _ = gappy_run()
    clock = with_clock(trajectory, "time")["shown"]
    assert clock.attrs == {"unit": "s", "label": "time [s], records side by side"}
    np.testing.assert_array_equal(clock.values[:60], trajectory["time"].values[:60])
    second = clock.values[60:]
    assert second[0] > clock.values[59] + 1.5
    np.testing.assert_allclose(np.diff(second), 1.0)


def test_the_predictions_of_one_record_have_its_own_time():
    trajectory, result = gappy_run()
    series = figures.drawings(trajectory, result, 0.1)["prediction"]().axes[0]
    assert series.lines[0].get_xdata()[0] == 0.0


def test_records_that_follow_each_other_share_a_clock():
    time = np.concatenate([np.arange(5.0), np.arange(100.0, 105.0)])
    coords = {"time": ("time", time), "record": ("time", np.repeat([0, 1], 5))}
    clock = with_clock(xr.Dataset(coords=coords), "time")["shown"]
    np.testing.assert_array_equal(clock.values, time)
    assert clock.attrs["label"] == "time [s]"


def test_a_sample_between_two_gaps_is_a_dot():
    (ax,) = style.screen(1, 2.0)[1]
    x = np.array([0.0, 1.0, 2.0, 9.0, 16.0, 17.0, 18.0])
    style.draw_line(ax, x, np.arange(7.0))
    line, dots = ax.lines
    assert np.isnan(line.get_xdata()).sum() == 2
    assert list(dots.get_xdata()) == [9.0]


@pytest.mark.parametrize(("unit", "shown"), [("degC", "\u00b0C"), ("V", "V")])
def test_a_change_stands_beside_the_value_that_it_leads_to(unit, shown):
    trajectory, result = gappy_run()
    result["previous"].attrs["units"] = unit
    values, changes, _ = figures.drawings(trajectory, result, 0.1)["prediction"]().axes
    assert values.get_ylabel().endswith(f"[{shown}]")
    np.testing.assert_allclose(values.lines[-1].get_ydata(), changes.lines[-1].get_ydata() + 20.0)


def test_the_error_of_the_model_before_the_stream_is_drawn():
    trajectory, result = gappy_run()
    before = result["target"].values + 0.5
    figure = figures.drawings(trajectory, result, 0.1, "", lambda: before)["error"]()
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    values = lines["model before the stream"].get_ydata()
    np.testing.assert_allclose(values[np.isfinite(values)], 0.5)


def test_the_set_point_is_beneath_the_output():
    trajectory = make_trajectory(60).assign(set_point=("time", np.ones(60)))
    draw = figures.drawings(trajectory, make_result([ONLINE] * 60, *np.ones((3, 60))), 0.1)
    for ax in draw["signals"]().axes[:2]:
        assert [line.get_label() for line in ax.lines] == ["set-point", "y"]


def test_the_validation_part_of_the_trajectory_is_shaded():
    (shade,) = drawings_of_run(60)["signals"]().axes[0].patches
    assert shade.get_x() == 30
    assert shade.get_x() + shade.get_width() == 59


def test_predictions_of_new_data_are_preferred():
    series = drawings_of_run(60)["prediction"]().axes[0]
    assert "new data" in series.get_title(loc="left")
    assert series.lines[0].get_xdata()[0] == 40


LINEAR_MODEL = {
    "na": 2,
    "nb": 3,
    "nk": 0,
    "rmse": 0.2,
    "free_run_diverges": False,
}
TRIED_LAGS = {
    "na": 1,
    "nk": 1,
    "linear": 0.3,
    "linear_parts": 1,
    "model_parts": 2,
    "model_quick": False,
}


def draw_comparison(free_run, errors, lags=None, training=None):
    """Draw the comparison of a model with linear ones; return the figure.

    `free_run` is the model's part of the summary, `errors` are those of the linear models.
    """
    same_lags, best = errors
    summary = {
        "rmse": 0.1,
        "free_run": free_run,
        "linear": {
            "same_lags": LINEAR_MODEL | {"free_run_rmse": same_lags},
            "best": LINEAR_MODEL | {"free_run_rmse": best},
        },
        "target_unit": "",
        "lags": lags,
        "training": training,
    }
    figure = figures.comparison(summary)
    with warnings.catch_warnings(action="error"):
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize(
    "free_run", [None, {"rmse": 0.4}, {"rmse": None}], ids=["none", "finite", "diverges"]
)
@pytest.mark.parametrize("errors", [(None, 0.5), (None, None)], ids=["best", "no linear model"])
def test_a_comparison_shows_the_free_run_of_any_model(free_run, errors):
    figure = draw_comparison(free_run, errors)
    titles = ["One step ahead"]
    if free_run is not None or errors[1] is not None:
        titles.append("Free run")
    assert [ax.get_title() for ax in figure.axes] == titles
    texts = [text.get_text() for ax in figure.axes[1:] for text in ax.texts]
    assert ("diverges" in texts) == (free_run == {"rmse": None})


def test_the_comparison_of_a_model_for_simulation_begins_with_the_free_run():
    figure = draw_comparison({"rmse": 0.4}, (None, 0.5), training={"tried": []})
    assert [ax.get_title() for ax in figure.axes] == ["Free run", "One step ahead"]


def test_dead_times_are_marked_in_the_errors_by_delay():
    found = {"samples": 2, "rmse_by_delay": [0.4, 0.3, 0.1, 0.4]}
    unknown = {"samples": None, "rmse_by_delay": [0.4, 0.4, 0.4, 0.4]}
    figure = figures.dead_times({"heat": found, "flow": unknown}, "K")
    with warnings.catch_warnings(action="error"):
        figure.draw_without_rendering()
    (ax,) = figure.axes
    curve, mark, other = ax.lines
    assert curve.get_label() == "heat acts after 2 samples"
    assert list(curve.get_ydata()) == [0.4, 0.3, 0.1, 0.4]
    assert list(mark.get_xdata()) == [2, 2]
    assert other.get_label() == "flow no dead time found"
    assert ax.get_ylabel().endswith("[K]")


def slow_case(*values, id):
    """Return a case that only the slow suite runs."""
    return pytest.param(*values, marks=pytest.mark.slow, id=id)


@pytest.mark.parametrize(
    ("free_run", "errors", "titles"),
    [
        pytest.param(None, (None, None), ["One step ahead"], id="one step ahead"),
        pytest.param({"rmse": 0.4}, (None, 0.5), ["One step ahead", "Free run"], id="free run"),
        slow_case(None, (None, 0.5), ["One step ahead", "Free run"], id="linear model"),
        slow_case({"rmse": 0.4}, (None, None), ["One step ahead", "Free run"], id="model"),
        slow_case({"rmse": None}, (None, 0.5), ["One step ahead", "Free run"], id="diverges"),
        slow_case({"rmse": None}, (None, None), ["One step ahead", "Free run"], id="alone"),
    ],
)
def test_a_comparison_shows_the_lags_that_were_tried(free_run, errors, titles):
    tried = [TRIED_LAGS | {"nb": nb, "model": 0.1 / nb} for nb in (1, 2, 3)]
    tried[0] |= {"chosen": True, "linear_parts": 2, "with_linear_part": 0.05}
    tried[1]["model_parts"] = 1
    tried[2]["model_quick"] = True
    figure = draw_comparison(free_run, errors, {"tried": tried})
    assert [ax.get_title() for ax in figure.axes] == [*titles, "Lags tried, held-out folds"]
    lines = {line.get_label(): line for line in figure.axes[-1].lines}
    assert {label: line.get_markerfacecolor() == "none" for label, line in lines.items()} == {
        "linear": False,
        "model": False,
        "model with a linear part": False,
        "chosen": True,
        "linear, quick or fewer folds": True,
        "model, quick or fewer folds": True,
    }
    assert list(lines["model, quick or fewer folds"].get_xdata()) == [3, 4]
    assert list(lines["chosen"].get_ydata()) == [0.3, 0.1, 0.05]


# --- figures of collected sweeps, against naive medians, fronts and counts


def test_every_criterion_has_a_colour_and_a_marker_however_many_there_are(monkeypatch):
    for number in range(10):
        monkeypatch.setitem(rules.CRITERIA, f"another_{number}", rules.MeanRelevance)
    names = runpy.run_path(style.__file__)
    assert {*names["CRITERION_COLORS"]} == {*rules.CRITERIA}
    assert {*names["CRITERION_MARKERS"]} == {*rules.CRITERIA}


UNORDERED_THRESHOLDS = (0.3, 0.01, 0.1, 0.05)
#: not in the order of the palette
SOME_CRITERIA = (
    "mean_relevance",
    "prior_entropy",
    "marginal_log_likelihood",
)
#: where the summary of a job holds the metrics, by their names
METRICS = {
    "smse": ("smse",),
    "n_revised": ("n_revised",),
    "coverage_95": ("coverage_95",),
    "times_loop": ("times", "loop"),
}


def make_results(parameters, is_search=False, **metrics):
    """Return the results of jobs whose parameters are the columns of a table.

    Metrics that are not given are drawn at random.
    """
    drawn = np.random.default_rng(0).uniform(0.1, 0.6, (len(METRICS), len(parameters)))
    numbers = pd.DataFrame(dict(zip(METRICS, drawn, strict=True)) | metrics)
    jobs = pd.DataFrame({"status": "done", "error": "", "timed": True}, numbers.index)
    for name in parameters:
        jobs[name] = column_of(parameters[name].tolist())
    keys = {name: f"insertion.{name}" for name in parameters}
    return Results(
        Manifest(Path(), "identify", code=""),
        keys,
        METRICS,
        jobs,
        {"": numbers},
        "",
        "K",
        is_search,
    )


def make_grid(**values):
    """Return the results of a job for every combination of values."""
    combinations = list(product(*values.values()))
    return make_results(pd.DataFrame(combinations, columns=list(values)))


def make_search(n_trials=24, **metrics):
    """Return the results of a search for budget and reduction."""
    parameters = pd.DataFrame(
        {
            "budget": np.random.default_rng(1).integers(10, 300, n_trials),
            "reduction": (SOME_CRITERIA * n_trials)[:n_trials],
        }
    )
    return make_results(parameters, is_search=True, **metrics)


def plan(results):
    """Return the functions that draw the figures of results, by the figures' names."""
    return plan_figures(results, build_dataset(results))


def table_of(results):
    """Return parameters and metrics of all jobs."""
    return results.jobs.join(results.numbers[""])


@pytest.fixture(scope="module")
def threshold_grid():
    """Results over thresholds, criteria, acceptances and seeds, with gaps."""
    results = make_grid(
        error_threshold=UNORDERED_THRESHOLDS,
        reduction=SOME_CRITERIA,
        acceptance=("none", "matched"),
        seed=range(10),
    )
    jobs = results.jobs
    is_gap = (jobs["error_threshold"] == 0.1) & (jobs["reduction"] == SOME_CRITERIA[0])
    results.numbers[""].loc[is_gap, "n_revised"] = np.nan
    results.numbers[""].loc[0, "smse"] = np.nan
    return results


@pytest.fixture(scope="module")
def threshold_figure(threshold_grid):
    """Figure of the metrics against the threshold."""
    return plan(threshold_grid)["against_error_threshold"]()


def test_a_figure_reports_jobs_without_a_finite_number(threshold_figure):
    assert "1 of 240 jobs have no finite SMSE" in threshold_figure.get_suptitle()


def test_every_acceptance_has_its_column(threshold_figure):
    panels = np.array(threshold_figure.axes).reshape(3, 2)
    assert [ax.get_title() for ax in panels[0]] == ["Acceptance: none", "Acceptance: matched"]


@pytest.mark.parametrize(("column", "acceptance"), [(0, "none"), (1, "matched")])
@pytest.mark.parametrize(
    ("row", "name", "label"),
    [
        (0, "smse", "SMSE [1]"),
        (1, "n_revised", "Revised points [1]"),
        (2, "coverage_95", "95 % coverage [1]"),
    ],
)
def test_lines_are_medians_over_seeds_with_their_quartiles(
    row, column, name, label, acceptance, threshold_grid, threshold_figure
):
    ax = np.array(threshold_figure.axes).reshape(3, 2)[row, column]
    assert ax.get_ylabel() == (label if column == 0 else "")
    parameters = ["acceptance", "reduction", "error_threshold"]
    groups = table_of(threshold_grid).groupby(parameters, observed=True)[name]
    low, median, high = (groups.quantile(level)[acceptance] for level in (0.25, 0.5, 0.75))
    for number, criterion in enumerate(SOME_CRITERIA):
        line = ax.lines[number]
        assert line.get_color() == CRITERION_COLORS[criterion]
        assert line.get_marker() == CRITERION_MARKERS[criterion]
        np.testing.assert_array_equal(line.get_xdata(), sorted(UNORDERED_THRESHOLDS))
        heights = line.get_ydata()
        np.testing.assert_allclose(heights, median[criterion], err_msg="a gap is no point")
        paths = ax.collections[number].get_paths()
        band = np.concatenate([path.vertices[:, 1] for path in paths])
        expected = (low[criterion].min(), high[criterion].max())
        assert (min(band), max(band)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["against_error_threshold", "pareto_front"])
def test_a_line_that_others_cover_shows_beneath_them(name):
    results = make_grid(
        error_threshold=UNORDERED_THRESHOLDS, acceptance=("none", "matched"), seed=range(2)
    )
    numbers = results.numbers[""]
    is_matched = results.jobs["acceptance"] == "matched"
    for metric in numbers:
        numbers.loc[is_matched, metric] = numbers.loc[~is_matched, metric].to_numpy()
    ax = plan(results)[name]().axes[0]
    lines = {line.get_label(): line for line in ax.lines}
    below = lines["none"]
    above = lines["matched"]
    assert below.get_markersize() >= above.get_markersize() + 4
    if name != "pareto_front":
        assert below.get_linewidth() >= above.get_linewidth() + 2


def test_lines_that_differ_have_marks_of_one_size(threshold_figure):
    sizes = {line.get_markersize() for line in threshold_figure.axes[0].lines}
    assert len(sizes) == 1


def test_a_heat_map_has_the_medians_in_true_order():
    results = make_grid(budget=(200, 50), error_threshold=(0.3, 0.01, 0.1), seed=range(5))
    is_gap = (results.jobs["budget"] == 50) & (results.jobs["error_threshold"] == 0.3)
    results.numbers[""].loc[is_gap, "smse"] = np.nan
    ax = plan(results)["heat_map"]().axes[0]
    assert ax.get_xlabel() == "Budget"
    assert ax.get_ylabel() == "Error threshold [K]"
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["0.01", "0.1", "0.3"]
    medians = table_of(results).groupby(["error_threshold", "budget"])["smse"].median()
    image = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(image, medians.unstack())
    assert np.isnan(image).sum() == 1
    assert ax.images[0].origin == "lower"


def naive_front(points):
    """Return the numbers of the finite points that no other point dominates."""
    finite = [i for i in range(len(points)) if np.isfinite(points[i]).all()]

    def dominates(a, b):
        return np.all(points[a] <= points[b]) and not np.all(points[b] <= points[a])

    return [b for b in finite if not any(dominates(a, b) for a in finite)]


def test_the_front_is_the_definition():
    """Few different values: many ties in one objective and in both; nan and inf among them."""
    rng = np.random.default_rng(0)
    for n in 4 * [*range(25)]:
        points = rng.choice([0.0, 1.0, 2.0, 3.0, -1.0, np.inf, np.nan], (n, 2))
        front = find_front(pd.DataFrame(points, columns=["x", "y"]), "y", "x")
        assert sorted(front.index) == naive_front(points)
        assert np.all(np.diff(front["x"]) >= 0)


def test_models_of_different_plants_do_not_compete_on_a_front():
    results = make_grid(error_threshold=UNORDERED_THRESHOLDS, system=("tanks", "servo"), seed=[1])
    results.parameters["system"] = "system"
    numbers = results.numbers[""]
    numbers.loc[results.jobs["system"] == "servo", "smse"] += 10.0
    figure = plan(results)["pareto_front"]()
    for ax in figure.axes:
        fronts = [line for line in ax.lines if line.get_color() == "black"]
        assert len(fronts) == 2
        assert min(fronts[1].get_ydata()) > 10.0 or min(fronts[0].get_ydata()) > 10.0
    assert "with the same System" in figure.get_suptitle()


def test_the_figures_of_a_search_skip_trials_without_a_finite_number():
    smse = [np.nan, np.inf, *np.linspace(0.1, 0.9, 22)]
    drawings = plan(make_search(smse=smse))
    assert set(drawings) == {"trials", "slices_smse", "pareto_front"}
    lowest = [np.nan, np.nan, *[0.1] * 22]
    np.testing.assert_allclose(drawings["trials"]().axes[0].lines[1].get_ydata(), lowest)
    drawings["slices_smse"]().draw_without_rendering()


def test_only_seeds_are_drawn_if_nothing_else_varies():
    results = make_grid(error_threshold=(0.05,), seed=(3, 1, 2, 5))
    assert set(plan(results)) == {"over_seeds"}


@pytest.mark.parametrize(
    "results",
    [
        pytest.param(make_grid(error_threshold=(0.1,), seed=(0,)), id="grid"),
        pytest.param(make_search(n_trials=1), id="search"),
    ],
)
def test_nothing_is_drawn_of_one_job(results):
    assert not plan(results)
