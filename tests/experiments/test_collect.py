"""The data set and the tables of a sweep: every number of every job in the cell of its parameters, every gap known."""

import hashlib
import io
import itertools
import json
import math
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml
from sweep_command import QUICK, sweep
from sweeping import (
    FULL,
    identity,
    summary_like,
    write_failure,
    write_job,
    write_manifest,
    write_outcome,
    write_search,
    write_sweep,
)

from experiments.collection.dataset import build_dataset, restore_command, write_with_records
from experiments.collection.read import find_comparable_times, read_results, read_sweep
from experiments.collection.tables import count_jobs, write_csv, write_markdown
from experiments.job_file import Content, write
from experiments.plots.frames import significant
from sysid import store

THRESHOLD = "insertion.error_threshold"
VALUES = {THRESHOLD: [0.2, 0.05], "reduction": ["prior_entropy", "a|b"], "seed": [0, 1, 2]}
MISSING, DONE, FAILED, DAMAGED, PARTIAL = range(5)


def collect(folder):
    return build_dataset(read_results(read_sweep(folder)))


def rows_of(text):
    """Cells of the first Markdown table, the header first."""
    lines = next(part for part in text.split("\n\n") if part.startswith("| ")).splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[:1] + lines[2:]]


def edit(path, **changed):
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def rewrite(folder, number, record, change=None):
    """Another file of a finished job, with the digest that belongs to it."""
    own = folder / str(number)
    write({"": Content(FULL | summary_like({}), record, None)}, own / "job.nc", {"seed": 0, "partial": 0})
    content = (own / "job.nc").read_bytes() if change is None else change
    (own / "job.nc").write_bytes(content)
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(own / "outcome.json", files={"job.nc": facts})
    return facts


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A grid of which job 1 is missing and job 4 has failed, and what was read of it."""
    folder = write_sweep(tmp_path_factory.mktemp("grid") / "s", VALUES, summary_like, skip=(1,), fail=(4,))
    found = read_results(read_sweep(folder))
    return found, build_dataset(found)


def test_every_number_lies_in_the_cell_of_its_parameters(grid):
    found, data = grid
    assert data["smse"].dims == ("error_threshold", "reduction", "seed")
    assert data["error_threshold"].values.tolist() == [0.05, 0.2], "numbers ascend"
    assert data["reduction"].values.tolist() == VALUES["reduction"], "texts are in the order of the command"
    table = pd.read_csv(io.StringIO(write_csv(found)))
    assert table["number"].tolist() == table["folder"].tolist() == list(range(12))
    names = {"smse": "smse", "n_revised": "n_revised", "times.loop": "times_loop", "free_run.rmse": "free_run_rmse"}
    for number, one in enumerate(itertools.product(*VALUES.values())):
        cell, row = data.sel(dict(zip(data["smse"].dims, one, strict=True))), table.loc[number]
        assert (row["error_threshold"], row["reduction"], row["seed"]) == one
        assert cell["number"] == number
        status = {1: MISSING, 4: FAILED}.get(number, DONE)
        assert (cell["status"], row["status"]) == (status, ("missing", "done", "failed")[status])
        summary = pd.json_normalize(summary_like(dict(zip(VALUES, one, strict=True)))).loc[0]
        for key, name in names.items():
            expected = summary[key] if status == DONE else math.nan
            np.testing.assert_array_equal([float(cell[name]), row[name]], expected)
    assert table["error"][4] == "ValueError: it did not work | twice"
    assert not {"partial", "seed"} & set(data.data_vars), "told by the status; a parameter here"
    counts = {name: data.attrs[f"n_{name}"] for name in ("jobs", "cells", "done", "missing", "failed", "superseded")}
    assert counts == {"jobs": 12, "cells": 12, "done": 10, "missing": 1, "failed": 1, "superseded": 0}
    expected = "12 jobs: 10 done, 1 failed, 1 missing. Grid: 2 error_threshold x 2 reduction x 3 seed."
    assert count_jobs(found, data) == expected


def test_medians_quartiles_and_what_has_no_result(grid):
    text = write_markdown(*grid)
    header, *rows = rows_of(text)
    assert header == ["error_threshold", "reduction", "smse", "coverage_95", "n_revised", "times_loop", "done"]
    assert [row[:2] for row in rows] == [[t, r] for t in ("0.05", "0.2") for r in ("prior_entropy", r"a\|b")]
    assert [row[-1] for row in rows] == ["3/3", "3/3", "2/3", "2/3"]
    smse = [summary_like({THRESHOLD: 0.05, "reduction": "a|b", "seed": seed})["smse"] for seed in range(3)]
    low, middle, high = (significant(value) for value in np.quantile(smse, [0.25, 0.5, 0.75]))
    assert rows[1][2] == f"{middle} [{low}, {high}]"
    assert "over the seeds; times_loop [s]." in text
    problems = rows_of(text.partition("## Jobs without result")[2])[1:]
    assert problems == [
        ["4", "failed", r"error_threshold=0.2, reduction=a\|b, seed=1", r"ValueError: it did not work \| twice"]
    ]
    assert f"sysid-identify -m budget=20 {THRESHOLD}=0.2,0.05 'reduction=prior_entropy,a|b' seed=0,1,2\n" in text


def test_units_meanings_and_what_libraries_read(grid, tmp_path):
    _, data = grid
    units = {name: data[name].attrs.get("units") for name in data.variables}
    assert units["rmse"] == units["error_threshold"] == units["free_run_rmse"] == "K"
    assert units["hyperparameters_noise_variance"] == "K2"
    assert (units["smse"], units["times_loop"], units["free_run_fit_percent"]) == ("1", "s", "%")
    assert data["error_threshold"].attrs["long_name"] == THRESHOLD
    measured = {name for name in data if data[name].attrs.get("measured")}
    assert measured == {"times_setup", "times_loop", "times_training", "times_job", "timed"}
    assert np.nanmin(data["times_job"]) == np.nanmax(data["times_job"]) == 1.5
    store.write(data, tmp_path / "sweep.nc", kind="sweep")
    xr.testing.assert_identical(store.read(tmp_path / "sweep.nc", kind="sweep").drop_attrs(), data.drop_attrs())
    with xr.open_dataset(tmp_path / "sweep.nc") as opened:
        assert opened["status"].attrs["flag_meanings"].split()[FAILED] == "failed"
        expected = summary_like({THRESHOLD: 0.2, "reduction": "prior_entropy"})["smse"]
        assert opened["smse"].sel(error_threshold=0.2, reduction="prior_entropy", seed=0) == expected


def test_gaps_are_nan_and_counted(tmp_path):
    """Cut, flipped, replaced or foreign files, half an outcome, and numbers of a part are no results."""
    folder = write_sweep(tmp_path / "s", {"seed": list(range(11))}, summary_like, skip=(0,), fail=(3,))
    jobs = json.loads((folder / "sweep.json").read_text())["jobs"]
    content = (folder / "1" / "job.nc").read_bytes()
    (folder / "1" / "job.nc").write_bytes(content[:-1])
    (folder / "2" / "job.nc").write_bytes(content[:500] + b"x" * 10 + content[510:])
    write_job(folder, jobs[4], summary_like(jobs[4]["values"]) | {"partial": True})
    (folder / "5" / "outcome.json").write_text('{"schema": "outc')
    write_job(folder, jobs[6] | {"identity": "of another configuration"}, summary_like(jobs[6]["values"]))
    (folder / "7" / "job.nc").write_bytes((folder / "8" / "job.nc").read_bytes())
    rewrite(folder, 9, None, b"no result, though as it was written")
    (folder / "10" / "job.nc").unlink()
    found = collect(folder)
    expected = [MISSING, DAMAGED, DAMAGED, FAILED, PARTIAL, DAMAGED, MISSING, DAMAGED, DONE, DAMAGED, DAMAGED]
    assert found["status"].values.tolist() == expected
    for name in ("smse", "times_loop", "times_job"):
        np.testing.assert_array_equal(np.isnan(found[name]), found["status"] != DONE)
    counts = [found.attrs[f"n_{name}"] for name in ("missing", "done", "failed", "damaged", "partial")]
    assert counts == [2, 1, 1, 6, 1]


@pytest.mark.parametrize(
    ("values", "expected", "kind"),
    [
        ([3, 1, 20], [1, 3, 20], "i"),
        ([3, 0.5], [0.5, 3], "f"),
        ([True, False], ["true", "false"], "U"),
        (["b", "a"], ["b", "a"], "U"),
        ([100, None, 50], ["100", "null", "50"], "U"),
        ([[1, 2], "x"], ["[1, 2]", "x"], "U"),
        ([float("inf"), 1], ["Infinity", "1"], "U"),
    ],
    ids=["whole", "numbers", "flags", "texts", "null", "list", "infinite"],
)
def test_values_of_a_parameter(values, expected, kind, tmp_path):
    found = collect(write_sweep(tmp_path / "s", {"key": values}, summary_like))
    assert found["key"].values.tolist() == expected
    assert found["key"].dtype.kind == kind


def test_names_of_dimensions(tmp_path):
    values = {"data.duration": [1], "noise.duration": [1], "summary.smse": [2], "sampling@data.sampling": ["grid"]}
    found = collect(write_sweep(tmp_path / "s", values, summary_like))
    assert found["rmse"].dims == ("data_duration", "noise_duration", "summary_smse", "sampling")


def test_one_dimension_where_parameters_form_no_grid(tmp_path):
    """Some jobs lack a parameter, none has one, or the grid would be emptier than a quarter."""
    jobs = [{"a": 1, "seed": 0}, {"seed": 1, "b": "x"}, {"seed": 2, "a": 2}]
    found = collect(write_sweep(tmp_path / "some", jobs, summary_like, fail=(1,)))
    assert found["smse"].dims == ("job",)
    np.testing.assert_array_equal(found["a"], [1, np.nan, 2])
    assert found["b"].values.tolist() == ["", "x", ""]
    np.testing.assert_array_equal(np.isnan(found["smse"]), [False, True, False])
    assert collect(write_sweep(tmp_path / "none", [{}], summary_like))["smse"].dims == ("job",)
    folder = tmp_path / "sparse"
    folder.mkdir()
    for n_jobs, dims in ((12, ("a", "b")), (11, ("job",))):
        values = [{"a": k % 6, "b": k % 8} if k else {"a": 5, "b": 7} for k in range(n_jobs)]
        jobs = [{"number": k, "identity": "", "overrides": [], "values": one} for k, one in enumerate(values)]
        write_manifest(folder, jobs, ["a", "b"])
        assert collect(folder)["status"].dims == dims, "12 jobs in 48 cells"


def test_cells_without_a_job_and_jobs_with_the_same_parameters(tmp_path):
    """Of equal jobs the last one that is done counts; it counts once."""
    found = collect(write_sweep(tmp_path / "cells", [{"a": 1, "b": 1}, {"a": 2, "b": 2}], summary_like))
    assert found["number"].values.tolist() == [[0, -1], [-1, 1]]
    assert np.isnan(found["smse"].values).tolist() == [[False, True], [True, False]]
    assert found.attrs["n_unplanned"] == 2
    folder = write_sweep(tmp_path / "same", [{"a": 1, "k": n} for n in range(4)] + [{"a": 2, "k": 4}], summary_like)
    jobs = json.loads((folder / "sweep.json").read_text())["jobs"]
    for job in jobs:
        job["values"].pop("k")
    write_manifest(folder, jobs, ["a"])
    write_failure(folder, jobs[2], "ValueError: no")
    (folder / "3" / "outcome.json").unlink()
    found = read_results(read_sweep(folder))
    data = build_dataset(found)
    assert data["number"].values.tolist() == [1, 4]
    assert data.attrs["n_superseded"] == 3
    assert "3 jobs have the parameters of others" in count_jobs(found, data)
    assert [row[-1] for row in rows_of(write_markdown(found, data))] == ["done", "1/1", "1/1"]


def test_several_outputs_a_missing_metric_and_units_that_differ(tmp_path):
    def metric(values):
        y = summary_like(values) | {"smse": 0.1, "training": {"held_out": 3.0} if values["seed"] else None}
        return {"y": y, "x": summary_like(values) | {"smse": 0.3, "target_unit": "m"}}

    found = read_results(read_sweep(write_sweep(tmp_path / "s", {"seed": [0, 1, 2]}, metric, several=True, fail=(2,))))
    data = build_dataset(found)
    assert (data["smse"].dims, data["status"].dims) == (("seed", "output"), ("seed",))
    np.testing.assert_array_equal(data["smse"].sel(output=["y", "x"]), [[0.1, 0.3], [0.1, 0.3], [np.nan, np.nan]])
    np.testing.assert_array_equal(data["training_held_out"].sel(output="y"), [np.nan, 3.0, np.nan])
    assert "units" not in data["rmse"].attrs
    table = pd.read_csv(io.StringIO(write_csv(found)))
    assert table["number"].tolist() == [0, 0, 1, 1, 2]
    assert table["output"].tolist()[:4] == ["x", "y"] * 2
    assert table["smse"].tolist()[:4] == [0.3, 0.1] * 2
    header, *rows = rows_of(write_markdown(found, data))
    assert header == ["output", "smse", "coverage_95", "n_revised", "times_loop", "done"]
    assert [[row[0], row[1], row[-1]] for row in rows] == [["x", "0.300", "2/3"], ["y", "0.100", "2/3"]]


def test_jobs_of_a_command_with_files_of_its_own(tmp_path):
    folder = write_sweep(tmp_path / "s", {"seed": [0, 1]}, summary_like)
    for number in range(2):
        edit(folder / str(number) / "outcome.json", files={}, value=0.25)
    assert collect(folder)["value"].values.tolist() == [0.25, 0.25]


def test_a_search_is_a_row_of_jobs_with_its_objectives(tmp_path):
    folder = write_sweep(tmp_path / "s", {THRESHOLD: [0.1, 0.2], "seed": [0, 1]}, summary_like)
    write_search(folder, [(0, 1), (3,)], {"smse": "minimize", "times.loop": "minimize", "coverage_95": "maximize"})
    found = collect(folder)
    assert found["smse"].dims == ("job",)
    assert found["trial"].values.tolist() == [0, 0, -1, 1]
    assert json.loads(found.attrs["objectives"]) == ["smse", "times_loop"]
    assert json.loads(found.attrs["directions"])["coverage_95"] == "maximize"
    for name, text in (("search.csv", "trial,jobs\nx,1\n"), ("search.json", "{}")):
        (folder / name).write_text(text)
        with pytest.raises(store.StoreError, match=f"{name} is damaged"):
            collect(folder)


# --- several commands in one folder ---------------------------------------------------------------

BUDGETS = [{"seed": seed, "budget": budget} for budget in (20, 30, 40) for seed in (0, 1)]
PLAIN = [{"seed": 0}, {"seed": 1}]
CRITERION = [{"seed": seed, "reduction": "prior_entropy"} for seed in (0, 1)]


def write_several(folder, planned, configuration, skip=(), fail=(), choices=None):
    folder.mkdir()
    jobs = [
        {"number": k, "identity": identity(one), "overrides": [f"{key}={v}" for key, v in one.items()], "values": one}
        for k, one in enumerate(planned)
    ]
    write_manifest(folder, jobs, ["seed"])
    for job in jobs:
        text = yaml.safe_dump(configuration(job["values"]))
        if job["number"] in fail:
            write_failure(folder, job, "ValueError: no", configuration=text)
        elif job["number"] not in skip:
            write_job(folder, job, summary_like(job["values"]), configuration=text)
        if job["number"] not in skip:
            edit(folder / str(job["number"]) / "outcome.json", choices=choices(job["values"]) if choices else {})
    return folder


def test_jobs_stand_at_the_values_of_their_configurations(tmp_path, monkeypatch):
    """Those of the jobs that name a key are not asked for it; an unfinished job takes what the others agree in."""
    planned = [*BUDGETS, *PLAIN, *CRITERION]
    folder = write_several(
        tmp_path / "s",
        planned,
        lambda values: {"budget": values.get("budget", 100), "seed": values["seed"], "reduction": {"a": 1}},
        choices=lambda values: {"reduction": values.get("reduction", "mean_relevance")},
        fail=(7,),
        skip=(9,),
    )
    found = collect(folder)
    assert found["smse"].dims == ("seed", "budget", "reduction")
    assert found["budget"].values.tolist() == [20, 30, 40, 100]
    assert found["reduction"].values.tolist() == ["mean_relevance", "prior_entropy"]
    for number, values in enumerate(planned):
        assert found["number"].sel({"budget": 100, "reduction": "mean_relevance"} | values) == number
    assert (found.attrs["n_unplanned"], found.attrs["n_failed"]) == (6, 1)
    assert "command" not in found.attrs
    asked, header = [], store.header
    monkeypatch.setattr(store, "header", lambda path: asked.append(int(path.parent.name)) or header(path))
    collect(write_several(tmp_path / "two", [*BUDGETS, *PLAIN], lambda values: {"budget": 100}))
    assert asked == [6, 7]


def test_no_grid_where_unfinished_jobs_are_not_known(tmp_path):
    planned = [*BUDGETS, *PLAIN, {"seed": 2}]
    folder = write_several(tmp_path / "s", planned, lambda values: {"budget": 100 + values["seed"]}, skip=(8,))
    found = collect(folder)
    assert found["smse"].dims == ("job",), "the others do not agree"
    np.testing.assert_array_equal(found["budget"], [20, 20, 30, 30, 40, 40, 100, 101, np.nan])


@pytest.mark.parametrize(
    ("key", "value", "configuration", "expected"),
    [
        ("noise.std", 0.5, {"noise": {"std": None}}, "null"),
        ("noise.std", 0.5, {"noise": {"std": 0.25}}, 0.25),
        ("noise.std", 0.5, {"noise": 3}, None),
        ("flag", True, {"flag": False}, "false"),
        ("key", 1, {"key": {"a": 1}}, None),
    ],
    ids=["null", "number", "nothing", "flag", "node"],
)
def test_what_is_taken_from_a_configuration(key, value, configuration, expected, tmp_path):
    found = collect(write_several(tmp_path / "s", [{"seed": 0, key: value}, {"seed": 1}], lambda values: configuration))
    assert (found["smse"].dims == ("job",)) == (expected is None)
    if expected is not None:
        assert found["number"].sel({key.rpartition(".")[2]: expected, "seed": 1}) == 1


def test_two_real_commands_in_one_folder(tmp_path):
    """The second names a criterion, which the first had by default."""
    assert sweep(tmp_path / "s", *QUICK, "seed=0,1").code == 0
    assert sweep(tmp_path / "s", *QUICK, "seed=0,1", "reduction=prior_entropy").code == 0
    found = collect(tmp_path / "s")
    assert found["number"].sel(seed=[0, 1], reduction=["mean_relevance", "prior_entropy"]).values.tolist() == [
        [0, 2],
        [1, 3],
    ]
    assert np.isfinite(found["smse"]).all()


def test_a_command_only_if_it_plans_exactly_these_jobs(tmp_path):
    def command(name, planned):
        return restore_command(read_sweep(write_several(tmp_path / name, planned, dict, skip=range(99))))

    assert command("a", BUDGETS) == "sysid-identify -m seed=0,1 budget=20,30,40"
    assert command("b", BUDGETS[:-1]) == command("c", [*BUDGETS, *PLAIN]) == command("d", []) == ""
    assert command("e", [*BUDGETS, {"seed": 0, "budget": 20}]) == "", "one job twice"
    assert command("f", [{"lags": "[1,2]"}, {"lags": "[3]"}]) == "sysid-identify -m 'lags=[1,2],[3]'"


# --- measured times -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "simulated", "failed", "counts", "told"),
    [
        ("aaab", "    ", "    ", " ## ", "(2 of 4)"),
        ("aaaa", " x  ", "    ", "  ##", "(2 of 4)"),
        ("aaaa", " xx ", "x   ", "   #", "(2 of 3)"),
        ("aabb", "xxxx", "    ", " # #", "(2 of 4)"),
        ("abcd", "  xx", "    ", "####", "each was the first"),
        ("....", "x   ", "    ", " ###", "(1 of 4)"),
        ("....", "    ", "    ", "####", ""),
    ],
    ids=["first", "anew", "failed", "all anew", "all first", "unknown process", "all alike"],
)
def test_jobs_that_did_something_else_do_not_count(processes, simulated, failed, counts, told):
    process = pd.Series([(None, None) if mark == "." else ("here", mark) for mark in processes])
    done = pd.Series([mark != "x" for mark in failed])
    timed, text = find_comparable_times(done, process, pd.Series([mark == "x" for mark in simulated]))
    assert "".join("#" if one else " " for one in timed) == counts
    assert told in text if told else not text


def test_raw_times_are_kept_and_the_odd_ones_marked(tmp_path):
    """Six jobs of two processes; the slow first job of each, and one that has simulated."""

    def times(values, place):
        loop = 99.0 if place in (0, 3, 4) else 1.0 + values["seed"] + values["budget"]
        return {"loop": loop, "cache": {"trajectory": {"misses": 1} if place == 4 else {"hits": 1}}}

    folder = write_sweep(tmp_path / "s", {"budget": [10, 20], "seed": [0, 1, 2]}, summary_like)
    for place, job in enumerate(json.loads((folder / "sweep.json").read_text())["jobs"]):
        summary = summary_like(job["values"]) | {"times": times(job["values"], place)}
        write_job(folder, job, summary, pid=1 + place // 3)
    found = read_results(read_sweep(folder))
    data = build_dataset(found)
    assert data["timed"].values.tolist() == [[0, 1, 1], [0, 0, 1]]
    assert data["times_loop"].values.tolist() == [[99, 12, 13], [99, 99, 23]]
    table = pd.read_csv(io.StringIO(write_csv(found)))
    assert table["timed"].tolist() == [0, 1, 1, 0, 0, 1]
    assert table["times_loop"].tolist() == [99, 12, 13, 99, 99, 23]
    text = write_markdown(found, data)
    assert [row[-2:] for row in rows_of(text)[1:]] == [["12.5 [12.2, 12.8]", "3/3"], ["23.0", "3/3"]]
    assert data["timed"].attrs["comment"] in text
    assert "(3 of 6)" in text


# --- records --------------------------------------------------------------------------------------


def test_every_record_lies_in_its_cell(grid, tmp_path):
    found, data = grid
    write_with_records(found, data, tmp_path / "sweep.nc", ["mean", "variance"])
    stored = store.read(tmp_path / "sweep.nc", kind="sweep")
    assert stored["record_mean"].dims == ("error_threshold", "reduction", "seed", "sample")
    for number, one in enumerate(itertools.product(*VALUES.values())):
        cell = stored.sel(dict(zip(data["smse"].dims, one, strict=True)))
        expected = np.arange(4.0) + number if number not in (1, 4) else np.full(4, np.nan)  # as sweeping.py writes it
        np.testing.assert_array_equal(cell["record_mean"], expected)
    assert np.nansum(stored["record_variance"]) == 10 * 4
    assert stored["record_mean"].attrs["units"] == "K"
    plain = stored.drop_vars(["record_mean", "record_variance"])
    assert plain.drop_attrs().identical(data.drop_attrs())


def test_records_of_several_outputs(tmp_path):
    def metric(values):
        return {"y": summary_like(values), "x": summary_like(values)}

    found = read_results(read_sweep(write_sweep(tmp_path / "s", {"seed": [0, 1]}, metric, several=True)))
    write_with_records(found, build_dataset(found), tmp_path / "sweep.nc", ["mean"])
    record = store.read(tmp_path / "sweep.nc", kind="sweep")["record_mean"]
    assert record.dims == ("seed", "output", "sample")
    np.testing.assert_array_equal(record, np.arange(4) + np.array([0, 1])[:, None, None] + np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (xr.Dataset({"mean": ("sample", np.zeros(5))}), "same length, 4 samples, got 5"),
        (xr.Dataset({"means": ("sample", np.zeros(4))}), "has no 'mean'.*did you mean 'means'"),
        (xr.Dataset({"mean": 1.0}), "has no 'mean'"),
        (None, "no record"),
        (OSError("no space left"), "no space left.*nothing was changed"),
    ],
    ids=["length", "name", "number", "nothing", "disk"],
)
def test_records_that_do_not_fit_leave_everything_as_it_was(record, words, tmp_path, monkeypatch):
    folder = write_sweep(tmp_path / "s", {"seed": [0, 1, 2]}, summary_like)
    if isinstance(record, OSError):
        monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(record))
    else:
        rewrite(folder, 2, record)
    (folder / "sweep.nc").write_text("before")
    found = read_results(read_sweep(folder))
    before = sorted(folder.iterdir())
    with pytest.raises((ValueError, store.StoreError), match=words):
        write_with_records(found, build_dataset(found), folder / "sweep.nc", ["mean"])
    assert sorted(folder.iterdir()) == before
    assert (folder / "sweep.nc").read_text() == "before"


GROWTH = """
import sys
from pathlib import Path
from experiments.collection.dataset import build_dataset
from experiments.collection.read import read_results, read_sweep
from experiments.collection.tables import write_csv, write_markdown
peak = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1e3
for place, folder in enumerate(sys.argv[1:]):
    before, found = peak(), read_results(read_sweep(Path(folder)))
    data = build_dataset(found)
    write_csv(found), write_markdown(found, data)
print(peak() - before, data.attrs["n_done"])
"""


@pytest.mark.slow
def test_memory_of_two_thousand_jobs(tmp_path):
    """Their records are a gigabyte together, of which nothing is kept."""
    small = write_sweep(tmp_path / "small", {"seed": [0, 1]}, summary_like)
    record = xr.Dataset({"mean": ("sample", np.random.default_rng(0).normal(size=70_000))})
    files = {"job.nc": rewrite(small, 0, record)}
    large, jobs = tmp_path / "large", []
    for number, (a, b, c) in enumerate(itertools.product(range(50), "xy", range(20))):
        values = {"threshold": 0.1 * a, "rule": b, "seed": c}
        jobs.append({"number": number, "identity": identity(values), "overrides": [], "values": values})
        own = large / str(number)
        own.mkdir(parents=True)
        (own / "job.nc").hardlink_to(small / "0" / "job.nc")
        write_outcome(own, jobs[-1], status="done", files=files)
    write_manifest(large, jobs, ["threshold", "rule", "seed"])
    assert files["job.nc"]["bytes"] * len(jobs) > 1e9
    command = [sys.executable, "-c", GROWTH, str(small), str(large)]
    growth, n_done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert float(growth) < 50  # MB
    assert int(n_done) == 2000
