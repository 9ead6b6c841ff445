"""Figures: their clock, what they show in detail, and that every kind of source can be drawn."""

import runpy
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from experiments.collect.figures import find_front, plan_figures
from experiments.collect.read import Results, build_dataset, column_of
from experiments.drawing import style
from experiments.drawing.style import CRITERION_COLORS, CRITERION_MARKERS, with_clock
from experiments.identify import figures
from experiments.sweeps.store import Manifest
from sysid.gp import rules
from sysid.model.result import INITIAL, ONLINE, VALIDATION

DAY = 86400.0  # s
UNIT = {"day": DAY, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}


def shown(time, units="s"):
    coords = {"time": ("time", np.asarray(time, dtype=float), {"units": units})}
    return with_clock(xr.Dataset(coords=coords), "time")["shown"]


def test_time_is_shown_in_the_largest_unit_that_it_spans_three_times():
    ends = {
        3 * DAY: "day",
        3 * DAY - 1: "h",
        3 * 3600: "h",
        3 * 3600 - 1: "min",
        179: "s",
        3: "s",
        2.9: "ms",
    }
    for span, unit in ends.items():
        time = np.linspace(50.0, 50.0 + span, 11)
        clock = shown(time)
        assert clock.attrs == {
            "unit": unit,
            "label": "day" if unit == "day" else f"time [{unit}]",
        }
        np.testing.assert_allclose(clock.values * UNIT[unit], time)
    for time, units in (
        ([0, 1, 2, 0, 1], "s"),
        ([0, 1, 1, 2], "s"),
        ([0, 1, 2], "1"),
        ([7.0], "s"),
        ([], "s"),
    ):
        clock = shown(time, units)  # no common time: the number of the sample
        assert clock.attrs == {"unit": "sample", "label": "sample"}
        np.testing.assert_array_equal(clock.values, np.arange(len(time)))


def result_of(phase, target, mean, variance):
    n = len(phase)
    columns = {
        "target": target,
        "mean": mean,
        "variance": variance,
        "unchanged": np.zeros(n),
        "phase": phase,
    }
    columns |= {
        "outlier": np.arange(n) % 9 == 8,
        "slot": np.arange(n) % 4,
        "n_points": np.full(n, 4),
    }
    columns |= dict.fromkeys(("inserted", "accepted"), np.ones(n, bool))
    return xr.Dataset(
        {name: ("sample", np.asarray(column)) for name, column in columns.items()},
        coords={
            "time": ("sample", np.arange(n, dtype=float)),
            "record": ("sample", np.zeros(n, int)),
        },
    )


def trajectory_of(n, **attributes):
    number = np.arange(n, dtype=float)
    place = {
        "time": ("time", number, {"units": "s"}),
        "record": ("time", np.zeros(n, int)),
    }
    return xr.Dataset(
        {
            "y": ("time", np.sin(number), {"units": "V", "long_name": "output"}),
            "u": ("time", np.cos(number)),
        },
        coords=place | {"part": ("time", (number >= n // 2).astype(int))},
        attrs={"inputs": '["u"]', "outputs": '["y"]', **attributes},
    )


def test_the_band_holds_95_percent_of_a_true_model():
    """Band and title against a normal distribution whose variances are known."""
    rng = np.random.default_rng(0)
    n = 4000
    variance = rng.uniform(0.1, 0.5, n)
    target = rng.normal(size=n) * np.sqrt(variance + 0.2)
    result = result_of(np.full(n, VALIDATION), target, np.zeros(n), variance)
    series, below = figures.drawings(trajectory_of(n), result, 0.2)["prediction"]().axes
    inside = float(below.get_title().partition(": ")[2].partition(" %")[0])
    assert inside == pytest.approx(95, abs=1.5)
    corners = series.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(
        corners[:, 1].max(), 1.96 * np.sqrt(variance[-200:].max() + 0.2), rtol=1e-4
    )


@pytest.mark.parametrize("stop", [1, 21, 60])
def test_runs_that_ended_early_are_drawn_and_new_data_are_preferred(stop):
    phase = np.repeat([INITIAL, ONLINE, VALIDATION], 20)
    result = result_of(phase, np.arange(60.0), np.zeros(60), np.ones(60)).isel(
        sample=slice(0, stop)
    )
    drawn = figures.drawings(trajectory_of(stop), result, 0.1)
    assert set(drawn) == {"signals", "prediction", "error"} | (
        {"dictionary"} if stop > 20 else set()
    )  # if any learned
    for draw in drawn.values():
        draw().draw_without_rendering()
    if stop > 30:  # the second half of the trajectory is shaded
        (shade,) = drawn["signals"]().axes[0].patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (
            stop // 2,
            stop - 1,
        )
    title, first = ("new data", 40) if stop == 60 else ("while learning", 20)
    if stop >= 40:
        series = drawn["prediction"]().axes[0]
        assert title in series.get_title(loc="left")
        assert series.lines[0].get_xdata()[0] == first


@pytest.mark.parametrize("free_run", [None, {"rmse": 0.4}, {"rmse": None}])
@pytest.mark.parametrize("errors", [(None, 0.5), (None, None)])
@pytest.mark.parametrize("lags", [False, True])
def test_a_comparison_shows_what_there_is(free_run, errors, lags):
    linear = {
        name: {
            "na": 2,
            "nb": 3,
            "nk": 0,
            "rmse": 0.2,
            "free_run_rmse": error,
            "free_run_diverges": False,
        }
        for name, error in zip(("same_lags", "best"), errors, strict=True)
    }
    of_lags = {
        "na": 1,
        "nk": 1,
        "linear": 0.3,
        "linear_parts": 1,
        "model_parts": 2,
        "model_quick": False,
    }
    tried = [of_lags | {"nb": nb, "model": 0.1 / nb} for nb in (1, 2, 3)]
    tried[0] |= {"chosen": True, "linear_parts": 2}
    tried[1]["model_parts"], tried[2]["model_quick"] = 1, True
    summary = {
        "rmse": 0.1,
        "free_run": free_run,
        "linear": linear,
        "target_unit": "",
        "lags": {"tried": tried},
    }
    figure = figures.comparison(summary if lags else summary | {"lags": None})
    with warnings.catch_warnings(action="error"):
        figure.draw_without_rendering()
    titles = [
        "One step ahead",
        *["Free run"] * (free_run is not None or errors[1] is not None),
    ]
    assert [ax.get_title() for ax in figure.axes] == titles + ["Lags tried, held-out folds"] * lags
    told = [text.get_text() for ax in figure.axes[1:2] for text in ax.texts]
    assert ("diverges" in told) == (free_run == {"rmse": None})
    if lags:
        drawn = {line.get_label(): line for line in figure.axes[-1].lines}
        is_open = {label: line.get_markerfacecolor() == "none" for label, line in drawn.items()}
        part = "quick or fewer folds"
        assert is_open == {
            "linear": False,
            "model": False,
            "chosen": True,
            f"linear, {part}": True,
            f"model, {part}": True,
        }
        assert [*drawn[f"model, {part}"].get_xdata()] == [3, 4]
        assert [*drawn["chosen"].get_ydata()] == [0.3, 0.1]


# --- figures of collected sweeps, against naive medians, fronts and counts


def test_every_criterion_has_a_colour_and_a_marker_however_many_there_are(monkeypatch):
    for number in range(10):
        monkeypatch.setitem(rules.CRITERIA, f"another_{number}", rules.MeanRelevance)
    found = runpy.run_path(style.__file__)
    assert {*found["CRITERION_COLORS"]} == {*found["CRITERION_MARKERS"]} == {*rules.CRITERIA}


THRESHOLDS = (0.3, 0.01, 0.1, 0.05)  # not in their order
CRITERIA = (
    "mean_relevance",
    "prior_entropy",
    "marginal_log_likelihood",
)  # not in the order of the palette
METRICS = {name: (name,) for name in ("smse", "n_revised", "coverage_95")} | {
    "times_loop": ("times", "loop")
}


def jobs_of(rows, is_search=False, **metrics):
    """Results of jobs whose parameters are the columns of a table, with metrics drawn at random
    unless given.
    """
    drawn = np.random.default_rng(0).uniform(0.1, 0.6, (len(METRICS), len(rows)))
    numbers = pd.DataFrame(dict(zip(METRICS, drawn, strict=True)) | metrics)
    jobs = pd.DataFrame({"status": "done", "error": "", "timed": True}, numbers.index)
    for name in rows:
        jobs[name] = column_of(rows[name].tolist())
    keys = {name: f"insertion.{name}" for name in rows}
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


def grid_of(**values):
    return jobs_of(pd.DataFrame(list(product(*values.values())), columns=list(values)))


def search_of(n=24, **metrics):
    table = pd.DataFrame(
        {
            "budget": np.random.default_rng(1).integers(10, 300, n),
            "reduction": (CRITERIA * n)[:n],
        }
    )
    return jobs_of(table, is_search=True, **metrics)


def plan(found):
    return plan_figures(found, build_dataset(found))


def rows_of(found):
    return found.jobs.join(found.numbers[""])


def test_lines_are_medians_over_seeds_with_their_quartiles():
    found = grid_of(
        error_threshold=THRESHOLDS,
        reduction=CRITERIA,
        acceptance=("none", "matched"),
        seed=range(10),
    )
    is_gap = (found.jobs["error_threshold"] == 0.1) & (found.jobs["reduction"] == CRITERIA[0])
    found.numbers[""].loc[is_gap, "n_revised"] = np.nan
    found.numbers[""].loc[0, "smse"] = np.nan
    figure = plan(found)["against_error_threshold"]()
    panels = np.array(figure.axes).reshape(3, 2)
    assert [ax.get_title() for ax in panels[0]] == [
        "Acceptance: none",
        "Acceptance: matched",
    ]
    groups = rows_of(found).groupby(["acceptance", "reduction", "error_threshold"], observed=True)
    names = {
        "smse": "SMSE [1]",
        "n_revised": "Revised points [1]",
        "coverage_95": "95 % coverage [1]",
    }
    for ax, (name, acceptance) in zip(
        panels.flat, product(names, ("none", "matched")), strict=True
    ):
        assert ax.get_ylabel() == (names[name] if acceptance == "none" else "")
        low, median, high = (
            groups[name].quantile(level)[acceptance] for level in (0.25, 0.5, 0.75)
        )
        for criterion, line, band in zip(CRITERIA, ax.lines, ax.collections, strict=False):
            assert (line.get_color(), line.get_marker()) == (
                CRITERION_COLORS[criterion],
                CRITERION_MARKERS[criterion],
            )
            np.testing.assert_array_equal(line.get_xdata(), sorted(THRESHOLDS))
            np.testing.assert_allclose(
                line.get_ydata(), median[criterion], err_msg="a gap is no point"
            )
            ends = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
            assert (min(ends), max(ends)) == pytest.approx(
                (low[criterion].min(), high[criterion].max())
            )
    assert "1 of 240 jobs have no finite SMSE" in figure.get_suptitle()


def test_a_heat_map_has_the_medians_in_true_order():
    found = grid_of(budget=(200, 50), error_threshold=(0.3, 0.01, 0.1), seed=range(5))
    is_gap = (found.jobs["budget"] == 50) & (found.jobs["error_threshold"] == 0.3)
    found.numbers[""].loc[is_gap, "smse"] = np.nan
    ax = plan(found)["heat_map"]().axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Budget", "Error threshold [K]")
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "0.01",
        "0.1",
        "0.3",
    ]
    expected = rows_of(found).groupby(["error_threshold", "budget"])["smse"].median().unstack()
    image = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_allclose(image, expected)
    assert np.isnan(image).sum() == 1
    assert ax.images[0].origin == "lower"


def test_the_front_is_the_definition():
    """Few different values: many ties in one objective and in both; nan and inf among them."""
    rng = np.random.default_rng(0)
    for n in 4 * [*range(25)]:
        points = rng.choice([0.0, 1.0, 2.0, 3.0, -1.0, np.inf, np.nan], (n, 2))
        front = find_front(pd.DataFrame(points, columns=["x", "y"]), "y", "x")
        known = [i for i in range(n) if np.isfinite(points[i]).all()]
        less = [[np.all(points[a] <= points[b]) for b in known] for a in known]
        beaten = {
            known[b]
            for a, b in product(range(len(known)), repeat=2)
            if less[a][b] and not less[b][a]
        }
        assert sorted(front.index) == sorted({*known} - beaten)
        assert np.all(np.diff(front["x"]) >= 0)


def test_only_what_there_is_is_drawn():
    """Trials without a finite number among them; nothing of one job."""
    drawn = plan(search_of(smse=[np.nan, np.inf, *np.linspace(0.1, 0.9, 22)]))
    assert set(drawn) == {"trials", "slices_smse", "pareto_front"}
    lowest = [np.nan, np.nan, *[0.1] * 22]
    np.testing.assert_allclose(drawn["trials"]().axes[0].lines[1].get_ydata(), lowest)
    drawn["slices_smse"]().draw_without_rendering()
    assert set(plan(grid_of(error_threshold=(0.05,), seed=(3, 1, 2, 5)))) == {"over_seeds"}
    assert not plan(grid_of(error_threshold=(0.1,), seed=(0,))) | plan(search_of(n=1))
