"""Measured times: only those of jobs that did the same work are compared."""

import csv
import io

import numpy as np
import pytest
import xarray as xr
from running import PLAIN
from sweeping import summary_like, write_job, write_sweep

from experiments.collection.cells import dataset_of, layout_of
from experiments.collection.figures import drawings
from experiments.collection.gathering import gather
from experiments.collection.job_result import DONE, FAILED, results
from experiments.collection.sweep_folder import read_sweep
from experiments.collection.table import csv_text, markdown_text
from experiments.collection.timing import timing_of

VALUES = {"budget": [10, 20], "seed": [0, 1, 2]}


@pytest.mark.parametrize(
    ("processes", "simulated", "failed", "counts", "told"),
    [
        ("aaab", "    ", "    ", " ## ", "Times without 2 jobs that were the first of their process"),
        ("aaaa", " x  ", "    ", "  ##", "1 job that was the first of its process and 1 job that simulated anew"),
        ("aaaa", "x   ", "    ", " ###", "Times without 1 job that was the first of its process"),
        ("aaaa", " xx ", "x   ", "   #", "1 job that was the first of its process and 1 job that simulated anew"),
        ("aabb", "xxxx", "    ", " # #", "Times without 2 jobs that were the first of their process"),
        ("abcd", "  xx", "    ", "####", "Times of all jobs, though each was the first of its process"),
        ("....", "    ", "    ", "####", ""),
        ("....", "x   ", "    ", " ###", "Times without 1 job that simulated anew"),
    ],
)
def test_jobs_that_did_something_else_do_not_count(processes, simulated, failed, counts, told):
    status = np.array([FAILED if mark == "x" else DONE for mark in failed], dtype=np.int8)
    own = ["" if mark == "." else mark for mark in processes]
    found = timing_of(status, own, np.array([mark == "x" for mark in simulated]))
    assert "".join("#" if one else " " for one in found.counts) == counts
    assert told in found.told if told else not found.told


def times_of(values):
    return summary_like(values) | {"times": {"loop": 1.0 + values["seed"] + values["budget"]}}


@pytest.fixture
def folder(tmp_path):
    """Six jobs of two processes; the slow first job of each, and one that has simulated."""
    folder = write_sweep(tmp_path / "s", VALUES, times_of)
    for place, job in enumerate(read_sweep(folder).jobs):
        summary = times_of(job.values)
        summary["times"] |= {"loop": 99.0 if place in (0, 3, 4) else summary["times"]["loop"]}
        summary["times"] |= {"cache": {"trajectory": {"misses": 1} if place == 4 else {"hits": 1}}}
        write_job(folder, job._asdict(), summary, pid=1 + place // 3)
    return folder


def test_raw_times_are_kept_and_the_odd_ones_marked(folder):
    found = gather(read_sweep(folder), results(read_sweep(folder)))
    data = dataset_of(found)
    assert data["timed"].values.tolist() == [[0, 1, 1], [0, 0, 1]]
    assert data["timed"].attrs["measured"] == 1
    assert data["times_loop"].values.tolist() == [[99, 12, 13], [99, 99, 23]]
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    assert [row["timed"] for row in rows] == list("011001")
    assert [float(row["times_loop"]) for row in rows] == [99, 12, 13, 99, 99, 23]
    text = markdown_text(found, layout_of(found))
    assert "| 12.5 [12.2, 12.8] | 3/3 |" in text
    assert "| 23.0 | 3/3 |" in text
    assert "Times without 2 jobs that were the first of their process and 1 job that simulated anew." in text


@pytest.mark.skipif(PLAIN, reason="figures are drawn alike without the compiler")
def test_figures_leave_the_odd_ones_out_and_say_so(folder):
    found = gather(read_sweep(folder), results(read_sweep(folder)))
    figure = drawings(dataset_of(found))["pareto_front"]()
    xs = [x for line in figure.axes[1].lines for x in np.asarray(line.get_xdata(), dtype=float)]
    assert set(xs) == {12.5, 23.0}
    said = " ".join(figure.get_suptitle().split())
    assert "Times without 2 jobs that were the first of their process and 1 job that simulated anew." in said
    data = dataset_of(found)
    data["timed"][1] = 0
    data["timed"].attrs["comment"] = "Left out"
    drawn = drawings(data)["pareto_front"]()
    assert [ax.get_xlabel() for ax in drawn.axes[:1]] == ["Revised points [1]"], "one setting alone has no front"
    more = xr.concat([data, data.isel(budget=[0]).assign_coords(budget=[30])], "budget")
    told = " ".join(drawings(more)["pareto_front"]().get_suptitle().split())
    assert told.endswith("Left out. 1 of 3 settings have no other time.")
    over = drawings(data.isel(budget=[0]))["over_seeds"]()
    np.testing.assert_array_equal(over.axes[3].lines[1].get_ydata(), [np.nan, 12, 13])
    assert "Left out." in over.get_suptitle()
