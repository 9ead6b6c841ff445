"""The data set and the tables of a sweep: every number of every job in the cell of its parameters, every gap known."""

import hashlib
import io
import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
import sweeping
from sweeping import summary_like, write_job, write_sweep

from experiments.collection.read import STATUSES, build_dataset, find_comparable_times, read_results, read_sweep
from experiments.collection.run import count_jobs, write_csv, write_markdown
from experiments.job_file import Content, write
from experiments.plots.frames import significant

THRESHOLD = "insertion.error_threshold"
VALUES = {THRESHOLD: [0.2, 0.05], "reduction": ["prior_entropy", "a|b"], "seed": [0, 1, 2]}
MISSING, DONE, FAILED, DAMAGED, PARTIAL = range(5)


def read(folder):
    found = read_results(read_sweep(folder))
    return found, build_dataset(found)


def csv_of(found):
    return pd.read_csv(io.StringIO(write_csv(found)))


def rows_of(text):
    """Cells of the first Markdown table, the header first."""
    lines = next(part for part in text.split("\n\n") if part.startswith("| ")).splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[:1] + lines[2:]]


def edit(folder, number, **changed):
    path = folder / str(number) / "outcome.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def rewrite(folder, number, record=None, content=None):
    """Another file of a finished job, with the digest that belongs to it."""
    path = folder / str(number) / "job.nc"
    write({"": Content(sweeping.FULL | summary_like({}), record, None)}, path, {"seed": 0, "partial": 0})
    path.write_bytes(content or path.read_bytes())
    facts = {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    edit(folder, number, files={"job.nc": facts})
    return facts


def jobs_of(folder):
    return json.loads((folder / "sweep.json").read_text())["jobs"]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A grid of which job 1 is missing and job 4 has failed."""
    return read(write_sweep(tmp_path_factory.mktemp("grid") / "s", VALUES, summary_like, skip=(1,), fail=(4,)))


def test_every_number_lies_in_the_cell_of_its_parameters(grid):
    found, data = grid
    assert data["smse"].dims == ("error_threshold", "reduction", "seed")
    assert data["error_threshold"].values.tolist() == [0.05, 0.2], "numbers ascend"
    assert data["reduction"].values.tolist() == VALUES["reduction"], "texts are in the order of the command"
    names = {"smse": "smse", "n_revised": "n_revised", "times.loop": "times_loop", "free_run.rmse": "free_run_rmse"}
    for number, one in enumerate(itertools.product(*VALUES.values())):
        cell, row = data.sel(dict(zip(data["smse"].dims, one, strict=True))), csv_of(found).loc[number]
        columns = ("number", "folder", "error_threshold", "reduction", "seed")
        assert tuple(row[name] for name in columns) == (number, number, *one)
        status = {1: MISSING, 4: FAILED}.get(number, DONE)
        assert (cell["number"], cell["status"], STATUSES.index(row["status"])) == (number, status, status)
        summary = pd.json_normalize(summary_like(dict(zip(VALUES, one, strict=True)))).loc[0]
        for key, name in names.items():
            np.testing.assert_array_equal([cell[name], row[name]], summary[key] if status == DONE else np.nan)
    assert not {"partial", "seed"} & set(data.data_vars), "told by the status; a parameter here"
    units = {name: data[name].attrs.get("units") for name in data.variables}
    assert units["rmse"] == units["error_threshold"] == units["free_run_rmse"] == "K"
    assert units["hyperparameters_noise_variance"] == "K2"
    assert (units["smse"], units["times_loop"], units["free_run_fit_percent"]) == ("1", "s", "%")
    measured = {name for name in data if data[name].attrs.get("measured")}
    assert measured == {"times_setup", "times_loop", "times_training", "times_job", "timed"}
    assert data["status"].attrs["flag_meanings"].split()[FAILED] == "failed"
    counts = [data.attrs[f"n_{name}"] for name in ("jobs", "cells", "done", "missing", "failed", "superseded")]
    assert counts == [12, 12, 10, 1, 1, 0]
    expected = "12 jobs: 10 done, 1 failed, 1 missing. Grid: 2 error_threshold x 2 reduction x 3 seed."
    assert count_jobs(found, data) == expected


def test_medians_quartiles_and_what_has_no_result(grid):
    text = write_markdown(*grid)
    header, *rows = rows_of(text)
    assert header == ["error_threshold", "reduction", "smse", "coverage_95", "n_revised", "times_loop", "done"]
    expected = [["0.05", "prior_entropy", "3/3"], ["0.05", r"a\|b", "3/3"], ["0.2", "prior_entropy", "2/3"]]
    assert [[*row[:2], row[-1]] for row in rows[:3]] == expected
    smse = [summary_like({THRESHOLD: 0.05, "reduction": "a|b", "seed": seed})["smse"] for seed in range(3)]
    low, middle, high = (significant(value) for value in np.quantile(smse, [0.25, 0.5, 0.75]))
    assert rows[1][2] == f"{middle} [{low}, {high}]"
    assert "over the seeds; times_loop [s]." in text
    parameters, reason = r"error_threshold=0.2, reduction=a\|b, seed=1", r"ValueError: it did not work \| twice"
    assert rows_of(text.partition("## Jobs without result")[2])[1:] == [["4", "failed", parameters, reason]]


def test_gaps_are_nan_and_counted(tmp_path):
    """Cut, flipped, replaced or foreign files, half an outcome, and numbers of a part are no results."""
    folder = write_sweep(tmp_path / "s", {"seed": list(range(12))}, summary_like, skip=(0,), fail=(3,))
    jobs, content = jobs_of(folder), (folder / "1" / "job.nc").read_bytes()
    (folder / "1" / "job.nc").write_bytes(content[:-1])
    (folder / "2" / "job.nc").write_bytes(content[:500] + b"x" * 10 + content[510:])
    write_job(folder, jobs[4], summary_like(jobs[4]["values"]) | {"partial": True})
    (folder / "5" / "outcome.json").write_text('{"schema": "outc')
    write_job(folder, jobs[6] | {"identity": "of another configuration"}, summary_like(jobs[6]["values"]))
    (folder / "7" / "job.nc").write_bytes((folder / "8" / "job.nc").read_bytes())
    rewrite(folder, 9, content=b"no result, though as it was written")
    (folder / "10" / "job.nc").unlink()
    edit(folder, 11, files={}, value=0.25)
    _, found = read(folder)
    expected = [MISSING, DAMAGED, DAMAGED, FAILED, PARTIAL, DAMAGED, MISSING, DAMAGED, DONE, DAMAGED, DAMAGED, DONE]
    assert found["status"].values.tolist() == expected
    assert np.flatnonzero(np.isfinite(found["smse"])).tolist() == [8]
    assert found["value"].values[11] == 0.25, "of a command with files of its own"
    assert found["times_job"].values[[8, 11]].tolist() == [1.5, 1.5]
    assert [found.attrs[f"n_{name}"] for name in STATUSES] == [2, 2, 1, 6, 1]


def test_one_dimension_where_parameters_form_no_grid(tmp_path):
    """Some jobs lack a parameter, none has one, or the grid would be emptier than a quarter."""
    jobs = [{"a": 1, "seed": 0}, {"seed": 1, "b": "x"}, {"seed": 2, "a": 2}]
    _, found = read(write_sweep(tmp_path / "some", jobs, summary_like, fail=(1,)))
    assert found["smse"].dims == ("job",)
    np.testing.assert_array_equal(found["a"], [1, np.nan, 2])
    assert found["b"].values.tolist() == ["", "x", ""]
    np.testing.assert_array_equal(np.isnan(found["smse"]), [False, True, False])
    assert read(write_sweep(tmp_path / "none", [{}], summary_like))[1]["smse"].dims == ("job",)
    for n_jobs, dims in ((12, ("a", "b")), (11, ("job",))):
        values = [{"a": 5, "b": 7}, *({"a": k % 6, "b": k % 8} for k in range(1, n_jobs))]
        folder = write_sweep(tmp_path / str(n_jobs), values, summary_like, skip=range(n_jobs))
        assert read(folder)[1]["status"].dims == dims, "12 jobs in 48 cells"


def test_cells_without_a_job_and_jobs_with_the_same_parameters(tmp_path):
    """Of equal jobs the last one that is done counts; it counts once."""
    _, found = read(write_sweep(tmp_path / "cells", [{"a": 1, "b": 1}, {"a": 2, "b": 2}], summary_like))
    assert found["number"].values.tolist() == [[0, -1], [-1, 1]]
    assert np.isnan(found["smse"].values).tolist() == [[False, True], [True, False]]
    assert found.attrs["n_unplanned"] == 2
    values = [{"a": one} for one in (1, 1.0, 1.0, 1, 2)]
    found, data = read(write_sweep(tmp_path / "same", values, summary_like, fail=(2,), skip=(3,)))
    assert data["number"].values.tolist() == [1, 4]
    assert data.attrs["n_superseded"] == 3
    assert "3 jobs have the parameters of others" in count_jobs(found, data)
    assert [row[-1] for row in rows_of(write_markdown(found, data))] == ["done", "1/1", "1/1"]


def test_several_outputs(tmp_path):
    def metric(values):
        y = summary_like(values) | {"smse": 0.1, "training": {"held_out": 3.0} if values["seed"] else None}
        return {"y": y, "x": summary_like(values) | {"smse": 0.3, "target_unit": "m"}}

    found, data = read(write_sweep(tmp_path / "s", {"seed": [0, 1, 2]}, metric, several=True, fail=(2,)))
    assert (data["smse"].dims, data["status"].dims) == (("seed", "output"), ("seed",))
    np.testing.assert_array_equal(data["smse"].sel(output=["y", "x"]), [[0.1, 0.3], [0.1, 0.3], [np.nan, np.nan]])
    np.testing.assert_array_equal(data["training_held_out"].sel(output="y"), [np.nan, 3.0, np.nan])
    assert "units" not in data["rmse"].attrs, "they differ"
    table = csv_of(found)[["number", "output", "smse"]].to_numpy().tolist()
    assert table[:4] == [[0, "x", 0.3], [0, "y", 0.1], [1, "x", 0.3], [1, "y", 0.1]]
    assert [row[0] for row in table[4:]] == [2]
    rows = [[row[0], row[1], row[-1]] for row in rows_of(write_markdown(found, data))]
    assert rows == [["output", "smse", "done"], ["x", "0.300", "2/3"], ["y", "0.100", "2/3"]]


def test_a_search_is_a_row_of_jobs(tmp_path):
    folder = write_sweep(tmp_path / "s", {THRESHOLD: [0.1, 0.2], "seed": [0, 1]}, summary_like)
    (folder / "search.json").write_text("{}")
    assert read(folder)[1]["smse"].dims == ("job",)


# --- measured times and records -------------------------------------------------------------------


TIMED = """aaab/    / ## /2 of 4
aaaa/ x  /  ##/2 of 4
Aaaa/  x /   #/2 of 3
aabb/xxxx/ # #/2 of 4
abcd/  xx/####/each was the first
..../x   / ###/1 of 4
..../    /####/"""


def test_jobs_that_did_something_else_do_not_count():
    """Process (. unknown, upper case of a failed job), whether it simulated, whether its time counts, and why not."""
    for marks in TIMED.splitlines():
        processes, simulated, counts, told = marks.split("/")
        process = pd.Series([(None, None) if mark == "." else ("here", mark.lower()) for mark in processes])
        done = pd.Series([not mark.isupper() for mark in processes])
        timed, text = find_comparable_times(done, process, np.array([mark == "x" for mark in simulated]))
        assert "".join("#" if one else " " for one in timed) == counts, marks
        assert told in text if told else not text


def test_raw_times_are_kept_and_the_odd_ones_marked(tmp_path):
    """Six jobs of two processes; the slow first job of each, and one that has simulated."""
    folder = write_sweep(tmp_path / "s", {"budget": [10, 20], "seed": [0, 1, 2]}, summary_like)
    times = [99, 12, 13, 99, 99, 23]
    for number, (job, time) in enumerate(zip(jobs_of(folder), times, strict=True)):
        cache = {"trajectory": {"misses": int(number == 4)}}
        summary = summary_like(job["values"]) | {"times": {"loop": time, "cache": cache}}
        write_job(folder, job, summary, pid=1 + number // 3)
    found, data = read(folder)
    assert data["timed"].values.tolist() == [[0, 1, 1], [0, 0, 1]]
    assert data["times_loop"].values.ravel().tolist() == csv_of(found)["times_loop"].tolist() == times
    assert csv_of(found)["timed"].tolist() == [0, 1, 1, 0, 0, 1]
    text = write_markdown(found, data)
    assert [row[-2:] for row in rows_of(text)[1:]] == [["12.5 [12.2, 12.8]", "3/3"], ["23.0", "3/3"]]
    assert data["timed"].attrs["comment"] in text
