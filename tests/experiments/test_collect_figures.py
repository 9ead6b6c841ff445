"""Figures of collected sweeps: what is drawn where, against naive medians, fronts and counts."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import PLAIN

from experiments.collection.figures import find_front, plan_figures
from experiments.collection.read import Results, Sweep, build_dataset, column_of
from experiments.plots.style import COLORS, MARKERS

if PLAIN:
    pytest.skip("figures are drawn alike without the compiler", allow_module_level=True)

THRESHOLDS = (0.3, 0.01, 0.1, 0.05)  # not in their order
CRITERIA = ("mean_relevance", "prior_entropy", "marginal_log_likelihood")  # not in the order of the palette
METRICS = {name: (name,) for name in ("smse", "n_revised", "coverage_95")} | {"times_loop": ("times", "loop")}


def jobs_of(rows, is_search=False, **metrics):
    """Results of jobs whose parameters are the columns of a table, with metrics drawn at random unless given."""
    drawn = np.random.default_rng(0).uniform(0.1, 0.6, (len(METRICS), len(rows)))
    numbers = pd.DataFrame(dict(zip(METRICS, drawn, strict=True)) | metrics)
    jobs = pd.DataFrame({"status": "done", "error": "", "timed": True}, numbers.index)
    for name in rows:
        jobs[name] = column_of(rows[name].tolist())
    keys = {name: f"insertion.{name}" for name in rows}
    sweep = Sweep(Path(), "identify", "0.1.0", "", [], [], is_search)
    return Results(sweep, keys, METRICS, jobs, {"": numbers}, "", "K")


def grid_of(**values):
    return jobs_of(pd.DataFrame(list(product(*values.values())), columns=list(values)))


def search_of(n=24, **metrics):
    table = pd.DataFrame({"budget": np.random.default_rng(1).integers(10, 300, n), "reduction": (CRITERIA * n)[:n]})
    return jobs_of(table, is_search=True, **metrics)


def plan(found):
    return plan_figures(found, build_dataset(found))


def rows_of(found):
    return found.jobs.join(found.numbers[""])


def said(figure):
    return " ".join(figure.get_suptitle().split())


def test_lines_are_medians_over_seeds_with_their_quartiles():
    found = grid_of(error_threshold=THRESHOLDS, reduction=CRITERIA, acceptance=("none", "matched"), seed=range(10))
    is_gap = (found.jobs["error_threshold"] == 0.1) & (found.jobs["reduction"] == CRITERIA[0])
    found.numbers[""].loc[is_gap, "n_revised"] = np.nan
    found.numbers[""].loc[0, "smse"] = np.nan
    figure = plan(found)["against_error_threshold"]()
    panels = np.array(figure.axes).reshape(3, 2)
    assert [ax.get_title() for ax in panels[0]] == ["Acceptance: none", "Acceptance: matched"]
    assert panels[2, 0].get_xlabel() == "Error threshold [K]"
    groups = rows_of(found).groupby(["acceptance", "reduction", "error_threshold"], observed=True)
    names = {"smse": "SMSE [1]", "n_revised": "Revised points [1]", "coverage_95": "95 % coverage [1]"}
    for ax, (name, acceptance) in zip(panels.flat, product(names, ("none", "matched")), strict=True):
        assert ax.get_ylabel() == (names[name] if acceptance == "none" else "")
        low, median, high = (groups[name].quantile(level)[acceptance] for level in (0.25, 0.5, 0.75))
        for criterion, line, band in zip(CRITERIA, ax.lines, ax.collections, strict=False):
            assert (line.get_color(), line.get_marker()) == (COLORS[criterion], MARKERS[criterion])
            np.testing.assert_array_equal(line.get_xdata(), sorted(THRESHOLDS))
            np.testing.assert_allclose(line.get_ydata(), median[criterion], err_msg="a gap is no point")
            ends = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
            assert (min(ends), max(ends)) == pytest.approx((low[criterion].min(), high[criterion].max()))
        assert ax.get_ylim()[0] < low.min() < high.max() < ax.get_ylim()[1]
    assert panels[2, 0].get_ylim()[1] > 0.95, "the nominal coverage is in sight"
    assert "1 of 240 jobs have no finite SMSE" in said(figure)


def test_only_what_there_is_is_drawn():
    """Seeds one by one; nothing of one job or without an error; the error in the stream without another."""
    found = grid_of(error_threshold=(0.05,), seed=(3, 1, 2, 5))
    assert set(plan(found)) == {"over_seeds"}
    for ax, name in zip(plan(found)["over_seeds"]().axes, METRICS, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_data(), [[3, 1, 2, 5], found.numbers[""][name]])
    assert not plan(grid_of(error_threshold=(0.1,), seed=(0,)))
    assert not plan(search_of(n=1))
    found = grid_of(error_threshold=THRESHOLDS, seed=range(2))
    found.numbers[""] = found.numbers[""].assign(smse=np.nan, smse_stream=0.1, coverage_95=np.nan)
    assert not plan(found)
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


def test_the_front_is_the_definition():
    """Few different values: many ties in one objective and in both; nan and inf among them."""
    rng = np.random.default_rng(0)
    for n in 4 * [*range(25)]:
        points = rng.choice([0.0, 1.0, 2.0, 3.0, -1.0, np.inf, np.nan], (n, 2))
        front = find_front(pd.DataFrame(points, columns=["x", "y"]), "y", "x")
        known = [i for i in range(n) if np.isfinite(points[i]).all()]
        less = [[np.all(points[a] <= points[b]) for b in known] for a in known]
        beaten = {known[b] for a, b in product(range(len(known)), repeat=2) if less[a][b] and not less[b][a]}
        assert sorted(front.index) == sorted({*known} - beaten)
        assert np.all(np.diff(front["x"]) >= 0)


def test_trials_of_a_search_and_the_best_so_far():
    smse = np.random.default_rng(2).lognormal(-2, 1, 24)
    smse[0], smse[7] = np.nan, np.inf
    drawn = plan(search_of(smse=smse))
    assert set(drawn) == {"trials", "slices_smse", "pareto_front"}
    figure = drawn["trials"]()
    lowest = [min((v for v in smse[: i + 1] if np.isfinite(v)), default=np.nan) for i in range(24)]
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_data(), [range(24), lowest])
    assert "2 of 24 jobs have no finite SMSE" in said(figure)
    for name in ("slices_smse", "pareto_front"):
        drawn[name]().draw_without_rendering()


def test_times_that_cannot_be_compared_are_left_out():
    found = grid_of(budget=(10, 20), seed=range(2))._replace(timing="Times without 2 jobs")
    found.jobs["timed"] = [False, True, False, True]
    figure = plan(found)["pareto_front"]()
    assert "Times without 2 jobs." in said(figure)
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_xdata(), found.numbers[""]["times_loop"][[1, 3]])
