"""`sysid-collect` gathers the results of a sweep, also of jobs that failed or were damaged."""

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

#: numbers of the statuses in the data set
MISSING, DONE, FAILED, DAMAGED, PARTIAL = range(5)


def read_sweep(folder):
    """Return the results of a sweep, and their data set."""
    results = read_results(folder)
    return results, build_dataset(results)


def csv_table(results):
    """Return the table that is written to sweep.csv."""
    return read_exact_csv(io.StringIO(write_csv(results)))


UNESCAPED_BAR = re.compile(r"(?<!\\)\|")


def split_cells(line):
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in UNESCAPED_BAR.split(line)[1:-1]]


def first_table(text):
    """Return the rows of the first Markdown table, its header first, as lists of cells."""
    table = next(part for part in text.split("\n\n") if part.startswith("| "))
    header, _, *rows = table.splitlines()
    return [split_cells(line) for line in [header, *rows]]


def change_outcome(folder, number, **changed):
    """Change entries of the outcome of a job."""
    path = folder / str(number) / "outcome.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


# --- the grid of the parameters


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Results and data set of a grid of which job 1 is missing and job 4 has failed."""
    folder = tmp_path_factory.mktemp("grid") / "s"
    return read_sweep(write_sweep(folder, SWEPT_VALUES, make_summary, skip=(1,), fail=(4,)))


#: of the jobs in the grid that are not done
STATUS_IN_GRID = {1: MISSING, 4: FAILED}
#: names of numbers in a summary, and of their variables and columns
VARIABLE_NAMES = {
    "smse": "smse",
    "n_revised": "n_revised",
    "times.loop": "times_loop",
    "free_run.rmse": "free_run_rmse",
}


def test_the_dimensions_of_a_grid_are_its_parameters(grid):
    results, data = grid
    assert data["smse"].dims == ("error_threshold", "reduction", "seed")
    assert data["error_threshold"].values.tolist() == [0.05, 0.2], "numbers ascend"
    assert data["reduction"].values.tolist() == SWEPT_VALUES["reduction"], "in their order"
    expected = (
        "12 jobs: 10 done, 1 failed, 1 missing. Grid: 2 error_threshold x 2 reduction x 3 seed."
    )
    assert count_jobs(results, data) == expected


#: values of the swept parameters, job by job
VALUES_OF_JOBS = list(itertools.product(*SWEPT_VALUES.values()))


@pytest.mark.parametrize("number", range(len(VALUES_OF_JOBS)))
def test_every_job_has_the_cell_and_the_row_of_its_parameters(grid, number):
    results, data = grid
    values = VALUES_OF_JOBS[number]
    cell = data.sel(dict(zip(data["smse"].dims, values, strict=True)))
    row = csv_table(results).loc[number]
    assert row["number"] == number
    assert row["folder"] == number
    assert tuple(row[["error_threshold", "reduction", "seed"]]) == values
    status = STATUS_IN_GRID.get(number, DONE)
    assert cell["number"] == number
    assert cell["status"] == status
    assert row["status"] == STATUSES[status]
    summary = make_summary(dict(zip(SWEPT_VALUES, values, strict=True)))
    expected = pd.json_normalize(summary).loc[0]
    for key, name in VARIABLE_NAMES.items():
        value = expected[key] if status == DONE else np.nan
        np.testing.assert_array_equal([cell[name], row[name]], value)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("rmse", "K"),
        ("error_threshold", "K"),
        ("free_run_rmse", "K"),
        ("hyperparameters_noise_variance", "K2"),
        ("smse", "1"),
        ("times_loop", "s"),
        ("free_run_fit_percent", "%"),
    ],
)
def test_variables_have_units(grid, name, unit):
    _, data = grid
    assert data[name].attrs["units"] == unit


def test_times_are_marked_as_measured(grid):
    _, data = grid
    measured = {name for name in data if data[name].attrs.get("measured")}
    assert measured == {
        "times_setup",
        "times_loop",
        "times_training",
        "times_job",
        "timed",
    }


def test_the_table_has_medians_and_quartiles_over_the_seeds(grid):
    text = write_markdown(*grid)
    header, *rows = first_table(text)
    metrics = ["smse", "free_run_fit_percent", "coverage_95", "n_revised", "times_loop"]
    assert header == ["error_threshold", "reduction", *metrics, "done"]
    table = pd.DataFrame(rows, columns=header)
    assert table[["error_threshold", "reduction", "done"]].values.tolist()[:3] == [
        ["0.05", "prior_entropy", "3/3"],
        ["0.05", r"a\|b", "3/3"],
        ["0.2", "prior_entropy", "2/3"],
    ]
    smse = []
    for seed in range(3):
        summary = make_summary({THRESHOLD_KEY: 0.05, "reduction": "a|b", "seed": seed})
        smse.append(summary["smse"])
    low, median, high = (significant(value) for value in np.quantile(smse, [0.25, 0.5, 0.75]))
    assert table["smse"][1] == f"{median} [{low}, {high}]"
    assert "over the seeds; free_run_fit_percent [%]; times_loop [s]." in text


def test_the_page_lists_the_jobs_without_a_result(grid):
    text = write_markdown(*grid)
    _, *rows = first_table(text.partition("## Jobs without result")[2])
    parameters = r"error_threshold=0.2, reduction=a\|b, seed=1"
    reason = r"ValueError: it did not work \| twice"
    assert rows == [["4", "failed", parameters, reason]]


# --- gaps


def cut_off(folder, job):
    """Remove the last byte of the result."""
    file = folder / str(job["number"]) / "job.nc"
    file.write_bytes(file.read_bytes()[:-1])


def overwrite_bytes(folder, job):
    """Change ten bytes in the middle of the result."""
    file = folder / str(job["number"]) / "job.nc"
    content = file.read_bytes()
    file.write_bytes(content[:500] + b"x" * 10 + content[510:])


def make_partial(folder, job):
    """Write the result of a run that ended early."""
    write_job(folder, job, make_summary(job["values"]) | {"partial": True})


def cut_off_outcome(folder, job):
    """Leave only the beginning of the outcome."""
    (folder / str(job["number"]) / "outcome.json").write_text('{"schema": "outc')


def change_identity(folder, job):
    """Write the result of a job with another configuration."""
    other_job = job | {"identity": "of another configuration"}
    write_job(folder, other_job, make_summary(job["values"]))


def replace_by_next_result(folder, job):
    """Put the result of the next job in the place of this one."""
    content = (folder / str(job["number"] + 1) / "job.nc").read_bytes()
    (folder / str(job["number"]) / "job.nc").write_bytes(content)


def write_text_as_result(folder, job):
    """Write a text as the result, with its right digest."""
    content = b"no result, though as it was written"
    (folder / str(job["number"]) / "job.nc").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    files = {"job.nc": {"bytes": len(content), "sha256": digest}}
    change_outcome(folder, job["number"], files=files)


def remove_result(folder, job):
    """Remove the file of the result."""
    (folder / str(job["number"]) / "job.nc").unlink()


#: for each number of a job, what happens to it after it was done, and the status that it gets;
#: job 6 counts as missing, because the result in its folder is that of another job
ACCIDENTS = {
    1: (cut_off, DAMAGED),
    2: (overwrite_bytes, DAMAGED),
    4: (make_partial, PARTIAL),
    5: (cut_off_outcome, DAMAGED),
    6: (change_identity, MISSING),
    7: (replace_by_next_result, DAMAGED),
    9: (write_text_as_result, DAMAGED),
    10: (remove_result, DAMAGED),
}


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    """Data set of twelve jobs: job 0 was not run, job 3 has failed, and accidents happen to others.

    Job 11 is one of a command that writes no job.nc.
    """
    folder = tmp_path_factory.mktemp("gaps") / "s"
    values = {"seed": list(range(12))}
    write_sweep(folder, values, make_summary, skip=(0,), fail=(3,))
    jobs = read_planned_jobs(folder)
    for number, (accident, _) in ACCIDENTS.items():
        accident(folder, jobs[number])
    change_outcome(folder, 11, files={}, value=0.25)
    return build_dataset(read_results(folder))


EACH_ACCIDENT = pytest.mark.parametrize(
    ("number", "status"),
    [(number, status) for number, (_, status) in ACCIDENTS.items()],
    ids=[accident.__name__ for accident, _ in ACCIDENTS.values()],
)


@EACH_ACCIDENT
def test_a_result_that_is_damaged_or_partial_does_not_count(gaps, number, status):
    assert gaps["status"].values[number] == status
    assert np.isnan(gaps["smse"].values[number])


def test_jobs_without_an_accident_have_their_status(gaps):
    statuses = gaps["status"].values
    assert statuses[[0, 3, 8, 11]].tolist() == [MISSING, FAILED, DONE, DONE]


def test_numbers_of_jobs_without_a_result_are_nan(gaps):
    assert np.flatnonzero(np.isfinite(gaps["smse"])).tolist() == [8]
    assert gaps["value"].values[11] == 0.25


def test_the_jobs_of_each_status_are_counted(gaps):
    counts = {name: gaps.attrs[f"n_{name}"] for name in STATUSES}
    assert counts == {
        STATUSES[MISSING]: 2,
        STATUSES[DONE]: 2,
        STATUSES[FAILED]: 1,
        STATUSES[DAMAGED]: 6,
        STATUSES[PARTIAL]: 1,
    }


# --- parameters that form no grid


def test_jobs_that_lack_a_parameter_have_one_dimension(tmp_path):
    jobs = [{"a": 1, "seed": 0}, {"seed": 1, "b": "x"}, {"seed": 2, "a": 2}]
    _, data = read_sweep(write_sweep(tmp_path / "s", jobs, make_summary, fail=(1,)))
    assert data["smse"].dims == ("job",)
    np.testing.assert_array_equal(data["a"], [1, np.nan, 2])
    assert data["b"].values.tolist() == ["", "x", ""]
    np.testing.assert_array_equal(np.isnan(data["smse"]), [False, True, False])


def test_a_job_without_parameters_has_one_dimension(tmp_path):
    _, data = read_sweep(write_sweep(tmp_path / "s", [{}], make_summary))
    assert data["smse"].dims == ("job",)


def test_jobs_of_a_search_have_one_dimension(tmp_path):
    values = {THRESHOLD_KEY: [0.1, 0.2], "seed": [0, 1]}
    folder = write_sweep(tmp_path / "s", values, make_summary)
    (folder / "search.json").write_text("{}")
    _, data = read_sweep(folder)
    assert data["smse"].dims == ("job",)


@pytest.mark.parametrize(
    ("n_jobs", "dims"), [(12, ("a", "b")), (11, ("job",))], ids=["a_quarter", "fewer"]
)
def test_a_grid_needs_jobs_in_a_quarter_of_its_cells(tmp_path, n_jobs, dims):
    """The grid has 6 x 8 = 48 cells."""
    values = [{"a": 5, "b": 7}]
    for k in range(1, n_jobs):
        values.append({"a": k % 6, "b": k % 8})
    folder = write_sweep(tmp_path / "s", values, make_summary, skip=range(n_jobs))
    _, data = read_sweep(folder)
    assert data["status"].dims == dims


def test_cells_without_a_job_are_empty(tmp_path):
    jobs = [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    _, data = read_sweep(write_sweep(tmp_path / "s", jobs, make_summary))
    assert data["number"].values.tolist() == [[0, -1], [-1, 1]]
    assert np.isnan(data["smse"].values).tolist() == [[False, True], [True, False]]
    assert data.attrs["n_unplanned"] == 2


def test_of_jobs_with_the_same_parameters_only_the_last_one_that_is_done_counts(tmp_path):
    jobs = [{"a": value} for value in (1, 1.0, 1.0, 1, 2)]
    folder = write_sweep(tmp_path / "s", jobs, make_summary, fail=(2,), skip=(3,))
    results, data = read_sweep(folder)
    assert data["number"].values.tolist() == [1, 4]
    assert data.attrs["n_superseded"] == 3
    assert "3 jobs have the parameters of others" in count_jobs(results, data)
    last_column = [row[-1] for row in first_table(write_markdown(results, data))]
    assert last_column == ["done", "1/1", "1/1"]


# --- several outputs


def summaries_of_two_outputs(values):
    """Return the summaries of the outputs y and x; y has a training except for seed 0."""
    training = {"held_out": 3.0} if values["seed"] else None
    return {
        "y": make_summary(values) | {"smse": 0.1, "training": training},
        "x": make_summary(values) | {"smse": 0.3, "target_unit": "m"},
    }


def test_several_outputs_are_a_dimension_and_rows(tmp_path):
    values = {"seed": [0, 1, 2]}
    folder = write_sweep(tmp_path / "s", values, summaries_of_two_outputs, several=True, fail=(2,))
    results, data = read_sweep(folder)
    assert data["smse"].dims == ("seed", "output")
    assert data["status"].dims == ("seed",)
    smse = data["smse"].sel(output=["y", "x"])
    np.testing.assert_array_equal(smse, [[0.1, 0.3], [0.1, 0.3], [np.nan, np.nan]])
    held_out = data["training_held_out"].sel(output="y")
    np.testing.assert_array_equal(held_out, [np.nan, 3.0, np.nan])
    assert "units" not in data["rmse"].attrs, "the units of the outputs differ"
    rows = csv_table(results)[["number", "output", "smse"]]
    assert rows.values.tolist()[:4] == [[0, "x", 0.3], [0, "y", 0.1], [1, "x", 0.3], [1, "y", 0.1]]


# --- measured times

#: Each text has one character for each job.
#: Processes: the letter of the process, upper case if the job failed; "." if it is unknown.
#: Simulated: "x" if the job has computed a simulation. Counted: "#" if the time of the job counts.
#: Last comes a part of the reason why times do not count; "" if there is none.
TIMED_JOBS = {
    "a_job_that_simulated": ("aaab", "    ", " ## ", "2 of 4"),
    "only_two_comparable": ("aaaa", " x  ", "  ##", "2 of 4"),
    "a_failed_job": ("Aaaa", "  x ", "   #", "2 of 3"),
    "two_processes": ("aabb", "xxxx", " # #", "2 of 4"),
    "a_process_each": ("abcd", "  xx", "####", "each was the first"),
    "unknown_processes_and_a_simulation": ("....", "x   ", " ###", "1 of 4"),
    "unknown_processes": ("....", "    ", "####", ""),
}


@pytest.mark.parametrize(
    ("processes", "simulated", "counted", "reason"), TIMED_JOBS.values(), ids=TIMED_JOBS.keys()
)
def test_only_comparable_times_count(processes, simulated, counted, reason):
    """First jobs of a process, failed jobs and jobs that simulate take longer than the others."""
    host_and_process = {mark: ("here", mark.lower()) for mark in processes} | {".": (None, None)}
    process = pd.Series([host_and_process[mark] for mark in processes])
    is_done = pd.Series([not mark.isupper() for mark in processes])
    has_simulated = np.array([mark == "x" for mark in simulated])
    is_timed, text = find_comparable_times(is_done, process, has_simulated)
    assert list(is_timed) == [mark == "#" for mark in counted]
    if reason:
        assert reason in text
    else:
        assert not text


def test_all_times_are_kept_but_only_comparable_ones_are_summarised(tmp_path):
    """Of six jobs three took 99 s: the first ones of two processes, and one that simulated."""
    folder = write_sweep(tmp_path / "s", {"budget": [10, 20], "seed": [0, 1, 2]}, make_summary)
    times = [99, 12, 13, 99, 99, 23]
    for number, (job, time) in enumerate(zip(read_planned_jobs(folder), times, strict=True)):
        cache = {"trajectory": {"misses": int(number == 4)}}
        summary = make_summary(job["values"]) | {"times": {"loop": time, "cache": cache}}
        write_job(folder, job, summary)
        change_outcome(folder, number, pid=1 + number // 3)
    results, data = read_sweep(folder)
    assert data["timed"].values.tolist() == [[0, 1, 1], [0, 0, 1]]
    assert data["times_loop"].values.ravel().tolist() == times
    table = csv_table(results)
    assert table["times_loop"].tolist() == times
    assert table["timed"].tolist() == [0, 1, 1, 0, 0, 1]
    _, *rows = first_table(write_markdown(results, data))
    times_and_counts = [row[-2:] for row in rows]
    assert times_and_counts == [["12.5 [12.2, 12.8]", "3/3"], ["23.0", "3/3"]]


# --- the command

SWEEP_FILES = {"sweep.nc", "sweep.csv", "sweep.md"}
FIGURE_FILES = {"against_error_threshold.png", "pareto_front.png"}


@pytest.fixture
def sweep(tmp_path):
    """Folder of a sweep of four jobs, of which one has failed and one is missing."""
    values = {"insertion.error_threshold": [0.2, 0.05], "seed": [0, 1]}
    return write_sweep(tmp_path / "s", values, make_summary, fail=(1,), skip=(2,))


@pytest.fixture
def collect(sweep):
    """A function that runs `sysid-collect` in the folder above the sweep."""
    return partial(run_command, "collect", cwd=sweep.parent)


def run_collect(folder, *overrides):
    """Collect a sweep in this process, without its command line, figures and page."""
    config = compose_configuration(
        f"folder={folder}", "figures=false", "report=false", *overrides, command="collect"
    )
    run(config, folder)


def read_files(folder):
    """Return the content of all files of a folder, by their relative paths."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_command_adds_its_files_to_a_folder_of_any_name(sweep, collect):
    sweep = sweep.rename(sweep.with_name("it's, a=b ${x} {é} [1]"))
    before = read_files(sweep)
    first_line, counts, *_ = collect(sweep.name, "report=false").out.splitlines()
    assert first_line.startswith(f"Collect the jobs of {sweep.name}: ")
    assert counts == "4 jobs: 2 done, 1 failed, 1 missing. Grid: 2 error_threshold x 2 seed."
    after = read_files(sweep)
    assert after.keys() - before.keys() == SWEEP_FILES | FIGURE_FILES
    unchanged = {name: after[name] for name in before}
    assert unchanged == before
    assert list(sweep.parent.iterdir()) == [sweep]


def test_the_command_writes_the_same_data_again_into_another_folder(sweep, collect):
    collect(sweep.name, "figures=false", "report=false")
    collect("figures=false", sweep.name, "report=false", "output=deep/other")
    other = sweep.parent / "deep" / "other"
    for name in ("sweep.csv", "sweep.md"):
        assert (other / name).read_bytes() == (sweep / name).read_bytes()
    assert (other / "sweep.nc").read_bytes() != (sweep / "sweep.nc").read_bytes(), "its time"
    data = store.read(sweep / "sweep.nc", kind="sweep")
    other_data = store.read(other / "sweep.nc", kind="sweep")
    assert data.drop_attrs().identical(other_data.drop_attrs())


def test_only_the_metrics_that_are_named_are_collected(sweep):
    run_collect(sweep, "metrics=[times_loop,smse]")
    data = store.read(sweep / "sweep.nc", kind="sweep")
    assert set(data) == {"status", "number", "timed", "times_loop", "smse"}
    header, *_ = first_table((sweep / "sweep.md").read_text())
    assert header == ["error_threshold", "times_loop", "smse", "done"]


def test_a_folder_that_does_not_exist_is_refused(collect):
    result = collect("nowhere")
    assert result.code == 1
    assert "Error: no folder nowhere" in result.out


def test_if_a_file_cannot_be_written_the_others_are(sweep, collect):
    (sweep / "sweep.csv").mkdir()
    result = collect(sweep.name, "figures=false", "report=false")
    assert result.code == 1
    assert "Error: could not write" in result.out
    assert (sweep / "sweep.nc").exists()


@pytest.mark.parametrize(
    ("arguments", "marked"),
    [
        (["a=b", "figures=false"], ["figures=false", "folder='a=b'"]),
        (["a=c", "x"], ["a=c", "folder='x'"]),
        (["x", "y"], ["folder=['x','y']"]),
        (["--config-dir", "x", "y"], ["--config-dir", "x", "folder='y'"]),
        (["folder=x", "--cfg=job"], ["folder=x", "--cfg=job"]),
    ],
    ids=["a_folder_with_an_equals_sign", "override", "several", "flag", "named"],
)
def test_an_argument_that_is_no_override_is_the_folder(arguments, marked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    assert mark_folder(arguments) == marked


# --- what is no sweep, and mistakes


def change_manifest(folder, **entries):
    """Change entries of the manifest of a sweep; return the folder."""
    path = folder / "sweep.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    return folder


def make_entry(**entries):
    """Return the entry of a job in a manifest."""
    return {"number": 0, "identity": "x", "overrides": [], "values": {}} | entries


def check_refusal(sweep, message, *overrides):
    """Check that a collection is refused with this message, and leaves the sweep as it is."""
    before = read_files(sweep)
    config = compose_configuration("figures=false", *overrides, command="collect")
    with pytest.raises(MISTAKES, match=message):
        run(config, Path())
    assert read_files(sweep) == before


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("s/nowhere", "no folder .*nowhere"),
        (".", "no sweep folder, .*name the folder that has"),
    ],
    ids=["no_folder", "folder_above"],
)
def test_another_folder_than_that_of_a_sweep_is_refused(folder, message, sweep, monkeypatch):
    monkeypatch.chdir(sweep.parent)
    check_refusal(sweep, message, f"folder={sweep.parent / folder}")


#: changed entries of a manifest, and the error that they cause
SPOILED_MANIFESTS = {
    "newer_schema": ({"schema_version": 99}, "schema_version 99"),
    "unknown_entry": ({"jobs": [make_entry(wrong=0)]}, "is damaged.*wrong"),
    "a_job_twice": (
        {"jobs": [make_entry(number="../.."), make_entry(number="../..")]},
        "a number of a job twice",
    ),
    "no_result": ({"jobs": [make_entry()]}, "none of the 1 jobs"),
}


@pytest.mark.parametrize(
    ("entries", "message"), SPOILED_MANIFESTS.values(), ids=SPOILED_MANIFESTS.keys()
)
def test_a_sweep_with_a_spoiled_manifest_is_refused(entries, message, sweep, monkeypatch):
    monkeypatch.chdir(sweep.parent)
    change_manifest(sweep, **entries)
    check_refusal(sweep, message, f"folder={sweep}")


@pytest.mark.parametrize(("override", "message"), REFUSALS["collect"].items())
def test_wrong_settings_are_refused_and_change_nothing(override, message, sweep, monkeypatch):
    monkeypatch.chdir(sweep.parent)
    check_refusal(sweep, message, f"folder={sweep}", override)
