"""Figures of a search: a point for each trial, as the search was told, and the right way round."""

import json

import numpy as np
import pytest
import xarray as xr
from running import PLAIN
from sweeping import summary_like, write_failure, write_search, write_sweep

from experiments.collection.cells import dataset_of
from experiments.collection.figures import drawings
from experiments.collection.figures.front import front_of
from experiments.collection.figures.search import best_so_far
from experiments.collection.figures.settings import of_jobs
from experiments.collection.figures.trial import per_trial
from experiments.collection.gathering import gather
from experiments.collection.job_result import results
from experiments.collection.sweep_folder import read_sweep
from sysid import store

if PLAIN:
    pytest.skip("figures are drawn alike without the compiler", allow_module_level=True)

THRESHOLD = "insertion.error_threshold"
TRIALS = [(0, 1), (2, 3), (4, 5)]


def collected(folder):
    return dataset_of(gather(read_sweep(folder), results(read_sweep(folder))))


@pytest.fixture
def folder(tmp_path):
    folder = write_sweep(tmp_path / "s", {THRESHOLD: [0.3, 0.1, 0.2], "seed": [0, 1]}, summary_like)
    write_search(folder, TRIALS, {"smse": "minimize"}, {"seed": ["0", "1"]})
    return folder


def said(figure):
    return " ".join(figure.get_suptitle().split())


def test_a_point_for_each_trial_is_the_median_of_its_jobs(folder):
    data = collected(folder)
    assert data["trial"].values.tolist() == [0, 0, 1, 1, 2, 2]
    told = [np.median([data["smse"].values[job] for job in jobs]) for jobs in TRIALS]
    drawn = drawings(data)
    assert set(drawn) == {"trials", "slices_smse", "pareto_front"}
    figure = drawn["trials"]()
    dots, best, _ = figure.axes[0].lines
    np.testing.assert_allclose(dots.get_ydata(), told)
    np.testing.assert_array_equal(dots.get_xdata(), [0, 1, 2])
    np.testing.assert_allclose(best.get_ydata(), np.minimum.accumulate(told))
    assert said(figure) == "SMSE of 3 trials. Medians over seed."
    figure = drawn["slices_smse"]()
    assert [ax.get_xlabel() for ax in figure.axes if ax.get_xlabel()] == ["Error threshold [K]"], "no seed"
    x, y = figure.axes[0].collections[0].get_offsets().T
    np.testing.assert_allclose(x, [0.3, 0.1, 0.2])
    np.testing.assert_allclose(y, told)
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0.1]
    assert "of 3 settings" in said(drawn["pareto_front"]())


def test_a_trial_with_a_failed_job_has_no_objective(folder):
    job = read_sweep(folder).jobs[2]
    write_failure(folder, job._asdict(), "ValueError: no")
    rows = per_trial(collected(folder))
    assert np.isnan(rows["smse"].values).tolist() == [False, True, False]
    assert np.isfinite(rows["n_revised"].values).all()
    assert "seed" not in rows.coords
    assert "1 of 3 trials have no SMSE." in said(drawings(collected(folder))["trials"]())


def test_jobs_of_no_trial_are_left_out(folder):
    write_search(folder, [TRIALS[2], TRIALS[0]], {"smse": "minimize"})
    data = collected(folder)
    assert data["trial"].values.tolist() == [1, 1, -1, -1, 0, 0]
    rows = per_trial(data)
    assert rows["number"].values.tolist() == [0, 1]
    np.testing.assert_allclose(rows["error_threshold"], [0.2, 0.3])


def test_a_damaged_table_of_trials(folder):
    (folder / "search.csv").write_text("trial,jobs\nx,1\n")
    with pytest.raises(store.StoreError, match=r"search\.csv is damaged"):
        collected(folder)


def test_what_is_maximised_is_drawn_the_right_way_round(folder):
    write_search(folder, TRIALS, {"n_revised": "maximize", "smse": "minimize"})
    drawn = drawings(collected(folder))
    rows = per_trial(collected(folder))
    revised = rows["n_revised"].values
    figure = drawn["trials"]()
    np.testing.assert_array_equal(figure.axes[0].lines[1].get_ydata(), np.maximum.accumulate(revised))
    labels = [ax.get_legend().get_texts()[0].get_text() for ax in figure.axes]
    assert labels == ["highest so far", "lowest so far"]
    slices = drawn["slices_n_revised"]()
    assert slices.axes[0].lines[0].get_ydata().tolist() == [revised.max()]
    assert "the highest is ringed" in said(slices)
    assert "(more revised points is better)" in said(drawn["pareto_front"]())


def test_the_highest_so_far():
    values = np.array([np.inf, 1.0, np.nan, 3.0, -np.inf, 2.0])
    np.testing.assert_array_equal(best_so_far(values, -1.0), [np.nan, 1, 1, 3, 3, 3])
    np.testing.assert_array_equal(best_so_far(values), [np.nan, 1, 1, 1, 1, 1])


@pytest.mark.parametrize("ways", [("minimize", "minimize"), ("minimize", "maximize"), ("maximize", "maximize")])
def test_the_front_follows_the_directions(ways):
    rng = np.random.default_rng(3)
    y, x = rng.uniform(1, 2, (2, 25))
    signs = [-1 if way == "maximize" else 1 for way in ways]
    jobs = xr.Dataset(
        {"smse": ("job", y), "n_revised": ("job", x)},
        {"job": np.arange(25), "trial": ("job", np.arange(25)), "budget": ("job", np.arange(25))},
        {"directions": json.dumps(dict(zip(("smse", "n_revised"), ways, strict=True)))},
    )
    a, b = signs[0] * y, signs[1] * x
    beaten = [np.any((a <= a[i]) & (b <= b[i]) & ((a < a[i]) | (b < b[i]))) for i in range(25)]
    front = front_of(of_jobs(jobs, ("budget",), ("smse", "n_revised")), "smse", "n_revised")
    assert sorted(front) == np.flatnonzero(~np.array(beaten)).tolist()
    assert np.all(np.diff(x[front]) > 0)
    (line,) = [one for one in drawings(jobs)["pareto_front"]().axes[0].lines if "steps" in one.get_drawstyle()]
    assert line.get_drawstyle() == ("steps-post" if ways[1] == "minimize" else "steps-pre")


def test_a_time_that_a_search_has_gone_by_is_shown_as_it_was_told(folder):
    write_search(folder, TRIALS, {"smse": "minimize", "times.loop": "minimize"})
    data = collected(folder)
    assert data["timed"].values.tolist() == [0, 1, 1, 1, 1, 1]
    told = [np.median(data["times_loop"].values[list(jobs)]) for jobs in TRIALS]
    dots = drawings(data)["trials"]().axes[1].lines[0]
    np.testing.assert_allclose(dots.get_ydata(), told)
