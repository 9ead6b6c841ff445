"""`sysid-collect`: numbers in the cell of their parameters, gaps that are known, a word on what is
wrong.
"""

import hashlib
import io
import itertools
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.cli.ends import MISTAKES
from experiments.collect import mark_folder
from experiments.collect.read import (
    STATUSES,
    build_dataset,
    find_comparable_times,
    read_results,
)
from experiments.collect.run import run
from experiments.collect.tables import count_jobs, write_csv, write_markdown
from experiments.drawing.tables import significant
from helpers.commands import REFUSALS, compose_configuration, read_exact_csv, run_command
from helpers.written_sweeps import (
    SWEPT_VALUES,
    THRESHOLD_KEY,
    make_summary,
    read_planned_jobs,
    write_job,
    write_sweep,
)
from sysid import store

MISSING, DONE, FAILED, DAMAGED, PARTIAL = range(5)


def read(folder):
    found = read_results(folder)
    return found, build_dataset(found)


def csv_of(found):
    return read_exact_csv(io.StringIO(write_csv(found)))


def rows_of(text):
    """Cells of the first Markdown table, the header first."""
    lines = next(part for part in text.split("\n\n") if part.startswith("| ")).splitlines()
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines[:1] + lines[2:]
    ]


def edit(folder, number, **changed):
    path = folder / str(number) / "outcome.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A grid of which job 1 is missing and job 4 has failed."""
    return read(
        write_sweep(
            tmp_path_factory.mktemp("grid") / "s",
            SWEPT_VALUES,
            make_summary,
            skip=(1,),
            fail=(4,),
        )
    )


def test_every_number_lies_in_the_cell_of_its_parameters(grid):
    found, data = grid
    assert data["smse"].dims == ("error_threshold", "reduction", "seed")
    assert data["error_threshold"].values.tolist() == [0.05, 0.2], "numbers ascend"
    assert data["reduction"].values.tolist() == SWEPT_VALUES["reduction"], (
        "texts are in the order of the command"
    )
    names = {
        "smse": "smse",
        "n_revised": "n_revised",
        "times.loop": "times_loop",
        "free_run.rmse": "free_run_rmse",
    }
    for number, one in enumerate(itertools.product(*SWEPT_VALUES.values())):
        cell = data.sel(dict(zip(data["smse"].dims, one, strict=True)))
        row = csv_of(found).loc[number]
        columns = ("number", "folder", "error_threshold", "reduction", "seed")
        assert tuple(row[name] for name in columns) == (number, number, *one)
        status = {1: MISSING, 4: FAILED}.get(number, DONE)
        assert (cell["number"], cell["status"], STATUSES.index(row["status"])) == (
            number,
            status,
            status,
        )
        summary = pd.json_normalize(make_summary(dict(zip(SWEPT_VALUES, one, strict=True)))).loc[0]
        for key, name in names.items():
            np.testing.assert_array_equal(
                [cell[name], row[name]], summary[key] if status == DONE else np.nan
            )
    units = {name: data[name].attrs.get("units") for name in data.variables}
    assert units["rmse"] == units["error_threshold"] == units["free_run_rmse"] == "K"
    assert units["hyperparameters_noise_variance"] == "K2"
    assert (units["smse"], units["times_loop"], units["free_run_fit_percent"]) == (
        "1",
        "s",
        "%",
    )
    measured = {name for name in data if data[name].attrs.get("measured")}
    assert measured == {
        "times_setup",
        "times_loop",
        "times_training",
        "times_job",
        "timed",
    }
    expected = (
        "12 jobs: 10 done, 1 failed, 1 missing. Grid: 2 error_threshold x 2 reduction x 3 seed."
    )
    assert count_jobs(found, data) == expected


def test_medians_quartiles_and_what_has_no_result(grid):
    text = write_markdown(*grid)
    header, *rows = rows_of(text)
    shown = ["smse", "free_run_fit_percent", "coverage_95", "n_revised", "times_loop"]
    assert header == ["error_threshold", "reduction", *shown, "done"]
    expected = [
        ["0.05", "prior_entropy", "3/3"],
        ["0.05", r"a\|b", "3/3"],
        ["0.2", "prior_entropy", "2/3"],
    ]
    assert [[*row[:2], row[-1]] for row in rows[:3]] == expected
    smse = [
        make_summary({THRESHOLD_KEY: 0.05, "reduction": "a|b", "seed": seed})["smse"]
        for seed in range(3)
    ]
    low, middle, high = (significant(value) for value in np.quantile(smse, [0.25, 0.5, 0.75]))
    assert rows[1][2] == f"{middle} [{low}, {high}]"
    assert "over the seeds; free_run_fit_percent [%]; times_loop [s]." in text
    parameters = r"error_threshold=0.2, reduction=a\|b, seed=1"
    reason = r"ValueError: it did not work \| twice"
    assert rows_of(text.partition("## Jobs without result")[2])[1:] == [
        ["4", "failed", parameters, reason]
    ]


def test_gaps_are_nan_and_counted(tmp_path):
    """Cut, flipped, replaced or foreign files, half an outcome, and numbers of a part are no
    results.
    """
    folder = write_sweep(
        tmp_path / "s", {"seed": list(range(12))}, make_summary, skip=(0,), fail=(3,)
    )
    jobs = read_planned_jobs(folder)
    content = (folder / "1" / "job.nc").read_bytes()
    (folder / "1" / "job.nc").write_bytes(content[:-1])
    (folder / "2" / "job.nc").write_bytes(content[:500] + b"x" * 10 + content[510:])
    write_job(folder, jobs[4], make_summary(jobs[4]["values"]) | {"partial": True})
    (folder / "5" / "outcome.json").write_text('{"schema": "outc')
    write_job(
        folder,
        jobs[6] | {"identity": "of another configuration"},
        make_summary(jobs[6]["values"]),
    )
    (folder / "7" / "job.nc").write_bytes((folder / "8" / "job.nc").read_bytes())
    content = b"no result, though as it was written"
    (folder / "9" / "job.nc").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(folder, 9, files={"job.nc": {"bytes": len(content), "sha256": digest}})
    (folder / "10" / "job.nc").unlink()
    edit(folder, 11, files={}, value=0.25)
    _, found = read(folder)
    expected = [
        MISSING,
        DAMAGED,
        DAMAGED,
        FAILED,
        PARTIAL,
        DAMAGED,
        MISSING,
        DAMAGED,
        DONE,
        DAMAGED,
        DAMAGED,
        DONE,
    ]
    assert found["status"].values.tolist() == expected
    assert np.flatnonzero(np.isfinite(found["smse"])).tolist() == [8]
    assert found["value"].values[11] == 0.25, "of a command with files of its own"
    assert [found.attrs[f"n_{name}"] for name in STATUSES] == [2, 2, 1, 6, 1]


def test_one_dimension_where_parameters_form_no_grid(tmp_path):
    """Some jobs lack a parameter, none has one, a search chose them, or the grid would be emptier
    than a quarter.
    """
    jobs = [{"a": 1, "seed": 0}, {"seed": 1, "b": "x"}, {"seed": 2, "a": 2}]
    _, found = read(write_sweep(tmp_path / "some", jobs, make_summary, fail=(1,)))
    assert found["smse"].dims == ("job",)
    np.testing.assert_array_equal(found["a"], [1, np.nan, 2])
    assert found["b"].values.tolist() == ["", "x", ""]
    np.testing.assert_array_equal(np.isnan(found["smse"]), [False, True, False])
    assert read(write_sweep(tmp_path / "none", [{}], make_summary))[1]["smse"].dims == ("job",)
    search = write_sweep(
        tmp_path / "search", {THRESHOLD_KEY: [0.1, 0.2], "seed": [0, 1]}, make_summary
    )
    (search / "search.json").write_text("{}")
    assert read(search)[1]["smse"].dims == ("job",)
    for n_jobs, dims in ((12, ("a", "b")), (11, ("job",))):
        values = [
            {"a": 5, "b": 7},
            *({"a": k % 6, "b": k % 8} for k in range(1, n_jobs)),
        ]
        folder = write_sweep(tmp_path / str(n_jobs), values, make_summary, skip=range(n_jobs))
        assert read(folder)[1]["status"].dims == dims, "12 jobs in 48 cells"


def test_cells_without_a_job_and_jobs_with_the_same_parameters(tmp_path):
    """Of equal jobs the last one that is done counts; it counts once."""
    _, found = read(
        write_sweep(tmp_path / "cells", [{"a": 1, "b": 1}, {"a": 2, "b": 2}], make_summary)
    )
    assert found["number"].values.tolist() == [[0, -1], [-1, 1]]
    assert np.isnan(found["smse"].values).tolist() == [[False, True], [True, False]]
    assert found.attrs["n_unplanned"] == 2
    values = [{"a": one} for one in (1, 1.0, 1.0, 1, 2)]
    found, data = read(write_sweep(tmp_path / "same", values, make_summary, fail=(2,), skip=(3,)))
    assert data["number"].values.tolist() == [1, 4]
    assert data.attrs["n_superseded"] == 3
    assert "3 jobs have the parameters of others" in count_jobs(found, data)
    assert [row[-1] for row in rows_of(write_markdown(found, data))] == [
        "done",
        "1/1",
        "1/1",
    ]


def test_several_outputs(tmp_path):
    def metric(values):
        y = make_summary(values) | {
            "smse": 0.1,
            "training": {"held_out": 3.0} if values["seed"] else None,
        }
        return {"y": y, "x": make_summary(values) | {"smse": 0.3, "target_unit": "m"}}

    found, data = read(
        write_sweep(tmp_path / "s", {"seed": [0, 1, 2]}, metric, several=True, fail=(2,))
    )
    assert (data["smse"].dims, data["status"].dims) == (("seed", "output"), ("seed",))
    np.testing.assert_array_equal(
        data["smse"].sel(output=["y", "x"]), [[0.1, 0.3], [0.1, 0.3], [np.nan, np.nan]]
    )
    np.testing.assert_array_equal(data["training_held_out"].sel(output="y"), [np.nan, 3.0, np.nan])
    assert "units" not in data["rmse"].attrs, "they differ"
    table = csv_of(found)[["number", "output", "smse"]].to_numpy().tolist()
    assert table[:4] == [[0, "x", 0.3], [0, "y", 0.1], [1, "x", 0.3], [1, "y", 0.1]]


# --- measured times and records -------------------------------------------------------------------


TIMED = """aaab/    / ## /2 of 4
aaaa/ x  /  ##/2 of 4
Aaaa/  x /   #/2 of 3
aabb/xxxx/ # #/2 of 4
abcd/  xx/####/each was the first
..../x   / ###/1 of 4
..../    /####/"""


def test_jobs_that_did_something_else_do_not_count():
    """Process (. unknown, upper case of a failed job), whether it simulated, whether its time
    counts, and why not.
    """
    for marks in TIMED.splitlines():
        processes, simulated, counts, told = marks.split("/")
        process = pd.Series(
            [(None, None) if mark == "." else ("here", mark.lower()) for mark in processes]
        )
        done = pd.Series([not mark.isupper() for mark in processes])
        timed, text = find_comparable_times(
            done, process, np.array([mark == "x" for mark in simulated])
        )
        assert "".join("#" if one else " " for one in timed) == counts, marks
        assert told in text if told else not text


def test_raw_times_are_kept_and_the_odd_ones_marked(tmp_path):
    """Six jobs of two processes; the slow first job of each, and one that has simulated."""
    folder = write_sweep(tmp_path / "s", {"budget": [10, 20], "seed": [0, 1, 2]}, make_summary)
    times = [99, 12, 13, 99, 99, 23]
    for number, (job, time) in enumerate(zip(read_planned_jobs(folder), times, strict=True)):
        cache = {"trajectory": {"misses": int(number == 4)}}
        summary = make_summary(job["values"]) | {"times": {"loop": time, "cache": cache}}
        write_job(folder, job, summary)
        edit(folder, number, pid=1 + number // 3)
    found, data = read(folder)
    assert data["timed"].values.tolist() == [[0, 1, 1], [0, 0, 1]]
    assert (
        data["times_loop"].values.ravel().tolist() == csv_of(found)["times_loop"].tolist() == times
    )
    assert csv_of(found)["timed"].tolist() == [0, 1, 1, 0, 0, 1]
    rows = rows_of(write_markdown(found, data))[1:]
    assert [row[-2:] for row in rows] == [["12.5 [12.2, 12.8]", "3/3"], ["23.0", "3/3"]]


# --- the command

FILES = {"sweep.nc", "sweep.csv", "sweep.md"}
FIGURES = {"against_error_threshold.png", "pareto_front.png"}


@pytest.fixture
def sweep(tmp_path):
    values = {"insertion.error_threshold": [0.2, 0.05], "seed": [0, 1]}
    return write_sweep(tmp_path / "s", values, make_summary, fail=(1,), skip=(2,))


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_command(sweep):
    """A folder of any name; nothing else is changed; the same again but for the time."""

    sweep = sweep.rename(sweep.with_name("it's, a=b ${x} {é} [1]"))
    collect = partial(run_command, "collect", cwd=sweep.parent)
    before = files(sweep)
    begin, counted, *_ = collect(sweep.name, "report=false").out.splitlines()
    assert begin.startswith(f"Collect the jobs of {sweep.name}: ")
    assert counted == "4 jobs: 2 done, 1 failed, 1 missing. Grid: 2 error_threshold x 2 seed."
    after = files(sweep)
    assert after.keys() - before.keys() == FILES | FIGURES
    assert before.items() <= after.items()
    assert list(sweep.parent.iterdir()) == [sweep]
    collect("figures=false", sweep.name, "output=deep/other")
    other = sweep.parent / "deep" / "other"
    assert {name for name in FILES if files(other)[name] == after[name]} == {
        "sweep.csv",
        "sweep.md",
    }
    one, two = (store.read(folder / "sweep.nc", kind="sweep") for folder in (sweep, other))
    assert one.drop_attrs().identical(two.drop_attrs())
    collect(sweep.name, "metrics=[times_loop,smse]", "figures=false")
    assert set(store.read(sweep / "sweep.nc", kind="sweep")) == {
        "status",
        "number",
        "timed",
        "times_loop",
        "smse",
    }
    assert "| error_threshold | times_loop | smse | done |" in re.sub(
        " +", " ", (sweep / "sweep.md").read_text()
    )
    (sweep / "sweep.csv").unlink()
    (sweep / "sweep.nc").unlink()
    (sweep / "sweep.csv").mkdir()  # a file that fails keeps nothing back
    for folder, told in (
        ("nowhere", "Error: no folder nowhere"),
        (sweep.name, "Error: could not write"),
    ):
        said = collect(folder)
        assert (said.code, told in said.out) == (1, True)
    assert (sweep / "sweep.nc").exists()


def test_the_folder_among_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    assert mark_folder(["a=b", "figures=false"]) == ["folder='a=b'", "figures=false"]
    assert mark_folder(["a=c", "x"]) == ["a=c", "folder='x'"]
    assert mark_folder(["--config-dir", "x", "y"]) == [
        "--config-dir",
        "x",
        "folder='y'",
    ]
    assert mark_folder(["folder=x", "--cfg=job"]) == ["folder=x", "--cfg=job"]


def plan(folder, *jobs, **changed):
    """Another manifest: other jobs, or other entries."""
    content = json.loads((folder / "sweep.json").read_text()) | changed
    planned = [{"number": 0, "identity": "x", "overrides": [], "values": {}} | job for job in jobs]
    (folder / "sweep.json").write_text(json.dumps(content | {"jobs": planned or content["jobs"]}))
    return folder


SPOILED = {
    "no folder .*nowhere": lambda s: s / "nowhere",
    "no sweep folder, .*name the folder that has": lambda s: s.parent,
    "schema_version 99": lambda s: plan(s, schema_version=99),
    "is damaged.*wrong": lambda s: plan(s, {"wrong": 0}),
    "a number of a job twice": lambda s: plan(s, {"number": "../.."}, {"number": "../.."}),
    "none of the 1 jobs": lambda s: plan(s, {}),
}
#: words of the error, and what is spoiled or the overrides that are wrong
CASES = [
    *SPOILED.items(),
    *((words, overrides) for overrides, words in REFUSALS["collect"].items()),
]


@pytest.mark.parametrize(("words", "how"), CASES)
def test_what_is_no_sweep_and_mistakes_change_nothing(words, how, sweep, monkeypatch):
    monkeypatch.chdir(sweep.parent)
    given = [f"folder={how(sweep)}"] if callable(how) else [f"folder={sweep}", how]
    before = files(sweep)
    with pytest.raises(MISTAKES, match=words):
        run(compose_configuration("figures=false", *given, command="collect"), Path())
    assert files(sweep) == before
