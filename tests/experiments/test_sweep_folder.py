"""Folders of sweeps: their manifest, shared and damaged results, full disks, what a person sees."""

import contextlib
import fcntl
import json
import os
import pty
import re
import runpy
import shutil
import struct
import subprocess
import termios
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from omegaconf import OmegaConf

from experiments.cli.progress import ERASE
from experiments.sweeps import store
from experiments.sweeps import sweep as sweep_module
from experiments.sweeps.engines import InProcess
from experiments.sweeps.store import Manifest
from experiments.sweeps.sweep import print_line
from helpers.benchmarks import BOUC_WEN, SHORT_BENCHMARK
from helpers.jobs import HANG_TIMEOUT, make_job
from helpers.records import ONE_STEP_ONLY, csv_overrides, save_models, write_record
from helpers.sweeps import (
    N_JOBS,
    QUICK_JOB,
    QUICK_JOBS,
    finished_jobs,
    finished_outcomes,
    job_content,
    process_environment,
    read_job_outcome,
    read_manifest,
    run_sweep,
    start_sweep,
    sweep_command_line,
    sweep_results,
    unfinished_files,
)
from hydra_plugins.sysid_sweep.plugins import sweep_name
from sysid import store as sysid_store


def only_line(result):
    """Return the only line that a refused sweep prints."""
    assert result.code == 1, result
    (line,) = (result.out + result.err).splitlines()
    return line


def count_jobs(result):
    """Return the numbers of all jobs, of those finished before and of those to run."""
    words = result.out.split()
    n_finished = int(words[words.index("finished") - 1]) if "finished" in words else 0
    return int(words[2]), n_finished, int(words[words.index("to") - 1])


def modification_times(folder):
    """Return when each file of a folder was last changed, without hidden files."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("[!.]*") if path.is_file()}


@pytest.fixture
def copied_sweep(swept, tmp_path):
    """A copy of the undisturbed sweep, which a test may damage."""
    return Path(shutil.copytree(swept, tmp_path / "sweep"))


# --- manifests


def without_jobs(content):
    """Return a manifest that lacks its jobs."""
    return {name: value for name, value in content.items() if name != "jobs"}


def with_a_job_twice(content):
    """Return a manifest that lists one job twice."""
    return content | {"jobs": [content["jobs"][0]] * 2}


FOREIGN_MANIFESTS = {
    "another_project": (
        lambda content: content | {"project": "another"},
        "not the manifest of a sweep of sysid",
    ),
    "newer_schema": (
        lambda content: content | {"schema_version": 99},
        "schema_version 99.*update",
    ),
    "another_command": (
        lambda content: content | {"command": "validate"},
        "sysid-validate, not of sysid-identify",
    ),
    "a_list": (lambda content: [1, 2], "damaged"),
    "cut_off": (lambda content: json.dumps(content)[:200], "damaged"),
    "no_jobs": (without_jobs, "damaged.*jobs"),
    "a_job_twice": (with_a_job_twice, "damaged.*twice"),
    "other_code": (
        lambda content: content | {"code": "0" * 64},
        "other code.*hydra.sweep.dir",
    ),
}


@pytest.mark.parametrize(
    ("change", "message"), FOREIGN_MANIFESTS.values(), ids=FOREIGN_MANIFESTS.keys()
)
def test_a_foreign_or_damaged_manifest_is_refused(swept, tmp_path, change, message):
    content = change(read_manifest(swept))
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path)) + ".*" + message):
        Manifest.open(tmp_path, "identify")


def test_a_sweep_of_other_code_is_refused_and_left_as_it_is(copied_sweep):
    content = read_manifest(copied_sweep) | {"code": "0" * 64}
    (copied_sweep / "sweep.json").write_text(json.dumps(content))
    before = modification_times(copied_sweep)
    line = only_line(run_sweep(copied_sweep, *QUICK_JOBS))
    assert "holds a sweep of other code" in line
    assert modification_times(copied_sweep) == before


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "notes.txt").touch()
    line = only_line(run_sweep(folder, *QUICK_JOB, "seed=1"))
    assert "is not empty (notes.txt" in line
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_the_manifest_lists_the_jobs_and_their_values(swept):
    content = read_manifest(swept)
    assert content["schema"] == "sweep"
    assert content["project"] == "sysid"
    assert content["command"] == "identify"
    assert content["swept"] == ["seed"]
    seeds = {job["number"]: job["values"]["seed"] for job in content["jobs"]}
    assert seeds == {number: number for number in range(N_JOBS)}
    for job in content["jobs"]:
        assert job["identity"] == read_job_outcome(swept, job["number"])["identity"]


def test_the_same_jobs_in_another_order_are_not_run_again(copied_sweep):
    """Neither the order of overrides and values counts, nor how a job is run."""
    jobs = (copied_sweep / "0", copied_sweep / "1")
    before = [modification_times(job) for job in jobs]
    other_order = ("seed=2,1", *reversed(QUICK_JOB))
    other_run = ("cache=null", "hydra.verbose=false", "figures=false")
    result = run_sweep(copied_sweep, *other_order, *other_run, "hydra.sweeper.max_batch_size=1")
    assert result.code == 0
    assert result.out.count("1 finished already, 0 to run") == 2, "one line for each batch"
    assert [modification_times(job) for job in jobs] == before


@pytest.mark.slow
def test_more_values_run_only_the_new_jobs_and_a_job_that_is_named_twice_runs_once(copied_sweep):
    result = run_sweep(copied_sweep, *QUICK_JOB, "seed=10,1,1", "training.variance=1.0")
    assert count_jobs(result) == (2, 0, 2)
    result = run_sweep(copied_sweep, *QUICK_JOB, "seed=10,1,2")
    assert count_jobs(result) == (3, 2, 1)
    assert read_job_outcome(copied_sweep, N_JOBS + 2)["overrides"][-1] == "seed=10"
    assert read_manifest(copied_sweep)["swept"] == ["seed"]


def test_a_sweep_is_named_after_its_command_and_its_values():
    name = sweep_name("identify", ["seed=1,2", "budget=8"])
    assert name == sweep_name("identify", ["budget=8", "seed=1,2"])
    assert name.startswith("identify-")
    assert name != sweep_name("identify", ["seed=1,3", "budget=8"])
    assert name != sweep_name("validate", ["seed=1,2"])
    assert sweep_name("identify", ["experiment=mine", "seed=1"]).startswith("mine-")
    overrides = ["seed=1,2", "a=${hydra:job.num}"]
    overrides_of_hydra = OmegaConf.create({"task": overrides}).task
    assert sweep_name("identify", overrides_of_hydra) == sweep_name("identify", overrides)


# --- the store of results


@pytest.fixture(scope="module")
def sharing_sweeps(tmp_path_factory):
    """Two sweeps with common jobs, run one after the other from the same folder.

    One finished job was removed from the folder of the first sweep before the second one began.
    """
    root = tmp_path_factory.mktemp("sharing")
    first = root / "first"
    second = root / "second"
    first_counts = count_jobs(run_sweep(first, *QUICK_JOB, "seed=1,2,3"))
    shutil.rmtree(first / "2")
    second_counts = count_jobs(run_sweep(second, *QUICK_JOB, "seed=0,3,2,1"))
    return SimpleNamespace(
        root=root,
        first=first,
        second=second,
        counts=(first_counts, second_counts),
        seed_1_results=(sweep_results(first)["0"], sweep_results(second)["3"]),
        overrides_of_second=read_job_outcome(second, 1)["overrides"],
    )


@pytest.mark.slow
def test_a_sweep_takes_the_results_of_jobs_that_another_sweep_has_run(sharing_sweeps):
    assert sharing_sweeps.counts == ((3, 0, 3), (4, 3, 1))
    assert sharing_sweeps.overrides_of_second[-1] == "seed=3"
    first_result, second_result = sharing_sweeps.seed_1_results
    assert first_result == second_result


def test_a_damaged_result_is_never_taken_from_the_store(sharing_sweeps):
    root = sharing_sweeps.root
    second = sharing_sweeps.second
    results = root / "multirun" / "cache" / "results"
    # the jobs with seeds 1, 2 and 3
    cut_off, half_written, of_another_job = (
        results / read_job_outcome(second, number)["identity"] for number in (3, 2, 1)
    )
    # written in place, so that the file that the first sweep shares with the store changes too
    content = (cut_off / "job.nc").read_bytes()
    (cut_off / "job.nc").write_bytes(content[:-1])
    (half_written / "outcome.json").write_text("{")
    (of_another_job / "outcome.json").write_text((cut_off / "outcome.json").read_text())
    jobs = (*QUICK_JOB, "seed=1,2,3")
    assert count_jobs(run_sweep(root / "third", *jobs)) == (3, 0, 3)
    for stored in (cut_off, half_written, of_another_job):
        assert store.damage(store.read_outcome(stored), stored) == "", "it was not repaired"
    assert count_jobs(run_sweep(sharing_sweeps.first, *jobs)) == (3, 3, 0)


def test_jobs_whose_settings_hold_their_number_are_not_shared(tmp_path):
    jobs = (*QUICK_JOB, "seed=1", "weather_input='a${hydra:job.num}'")
    result = run_sweep(tmp_path / "sweep", *jobs)
    assert count_jobs(result) == (1, 0, 1)
    assert result.code == 0
    assert not (tmp_path / "multirun" / "cache" / "results").exists()


@pytest.fixture
def equal_jobs(tmp_path):
    """Two jobs with the same identity in one sweep folder."""
    job = make_job(tmp_path, 0, "returning")
    return job, replace(make_job(tmp_path, 1, "returning"), identity=job.identity)


def test_a_failed_job_is_not_shared(equal_jobs, tmp_path):
    job, equal_job = equal_jobs
    store.write_outcome(store.Outcome(0, False, error="no"), job)
    store.share(job, tmp_path / "results")
    assert not (tmp_path / "results").exists()
    assert not store.fetch(equal_job, tmp_path / "results")


def test_a_store_that_cannot_be_written_raises_nothing(equal_jobs, tmp_path):
    job, _ = equal_jobs
    store.write_outcome(store.Outcome(0, True, 0.5), job)
    (tmp_path / "no_folder").write_text("")
    store.share(job, tmp_path / "no_folder")


def test_a_fetched_result_has_all_files_and_counts_no_attempt(equal_jobs, tmp_path):
    job, equal_job = equal_jobs
    folder = tmp_path / "1"
    results = tmp_path / "results"
    (tmp_path / "0" / "more").mkdir(parents=True)
    (tmp_path / "0" / "more" / "a.txt").write_text("1")
    store.write_outcome(store.Outcome(0, True, 0.5), job)
    store.share(job, results)
    folder.mkdir()
    (folder / "attempts").write_text("1\n1\n")
    outcome = store.fetch(equal_job, results)
    assert outcome == store.outcome_in(folder)
    assert outcome == store.Outcome(1, True, 0.5, stored=True)
    assert (folder / "more" / "a.txt").read_text() == "1"
    assert not list(results.glob(".*"))
    assert store.count_attempts(folder) == 0


@pytest.mark.parametrize("closed", ["outcome.json", "result.txt"])
def test_a_shared_result_that_cannot_be_read_is_not_removed(
    closed, equal_jobs, tmp_path, monkeypatch
):
    """It may belong to another user; one that is damaged is removed."""
    job, equal_job = equal_jobs
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "result.txt").write_text("1")
    store.write_outcome(store.Outcome(0, True, 0.5), job)
    results = tmp_path / "results"
    store.share(job, results)
    kept = results / job.identity

    def refuse(path, *arguments, open=open, **options):
        if path == kept / closed:
            raise PermissionError(13, "Permission denied")
        return open(path, *arguments, **options)

    def refuse_in_folder(name, *arguments, open=os.open, dir_fd=None, **options):
        if name == closed and dir_fd is not None:
            raise PermissionError(13, "Permission denied")
        return open(name, *arguments, dir_fd=dir_fd, **options)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        patch.setattr("io.open", refuse)
        patch.setattr("os.open", refuse_in_folder)
        assert store.fetch(equal_job, results) is None
    assert sorted(path.name for path in kept.iterdir()) == ["outcome.json", "result.txt"]
    assert store.fetch(equal_job, results).done

    (kept / closed).write_text("damaged")
    assert store.fetch(equal_job, results) is None
    assert not kept.exists()


def test_a_result_that_the_driver_does_not_see_is_a_failure(tmp_path, monkeypatch):
    run = InProcess.run

    def run_out_of_sight(self, jobs):
        """Run as on a machine that has another folder in the place of this one."""
        for outcome in run(self, jobs):
            (self.folder / str(outcome.number) / "outcome.json").unlink()
            yield outcome

    monkeypatch.setattr(sweep_module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(InProcess, "run", run_out_of_sight)
    result = run_sweep(tmp_path / "sweep", *QUICK_JOB, "seed=1,2")
    assert result.code == 1
    message = "all machines must have access to the folder of the sweep"
    assert result.err.count(message) == 2


# --- sweeps of other commands


@pytest.mark.slow
def test_a_sweep_of_validations_names_its_folder_itself_and_finds_it_again(tmp_path):
    for name in ("a", "b"):
        save_models(tmp_path / f"{name}.nc")
    (tmp_path / "damaged.nc").write_bytes((tmp_path / "a.nc").read_bytes()[:-500])
    write_record(tmp_path / "record.csv")
    overrides = (
        "model=a.nc,damaged.nc,b.nc",
        *csv_overrides("y,z", test="record.csv"),
        "data.units={y: V, z: degC, u: A}",
        "left_out=[z]",
        "data.initialisation_window=5",
        *ONE_STEP_ONLY,
    )
    for summary in ("2 done, 1 failed", "2 done (2 before), 1 failed"):
        result = run_sweep(None, *overrides, command="validate", cwd=tmp_path)
        assert result.code == 1
        assert f"3 jobs: {summary}" in result.out, result.err
        assert "#1 model=damaged.nc: " in result.err


@pytest.mark.slow
def test_a_sweep_of_exports_writes_a_module_for_each_job_and_finds_it_again(tmp_path):
    for name in ("a", "b"):
        save_models(tmp_path / f"{name}.nc")
    folder = tmp_path / "sweep"
    overrides = (
        "model=a.nc,b.nc",
        "output='${hydra:runtime.output_dir}/it_${hydra:job.id}.py'",
    )
    for counts in ((2, 0, 2), (2, 2, 0)):
        result = run_sweep(folder, *overrides, command="export")
        assert result.code == 0
        assert count_jobs(result) == counts
    for number in range(2):
        module = runpy.run_path(str(folder / str(number) / f"it_{number}.py"))
        assert callable(module["predict"])


@pytest.mark.slow
def test_a_sweep_of_benchmarks_writes_its_output_elsewhere_and_survives_a_wrong_job(tmp_path):
    overrides = (
        *SHORT_BENCHMARK,
        *BOUC_WEN,
        "baseline=[mean]",
        "seed=1,-1",
        "output=made/${hydra:job.num}",
    )
    result = run_sweep(tmp_path / "benchmarks", *overrides, command="generate")
    assert result.code == 1
    assert count_jobs(result) == (2, 0, 2)
    assert "  #1 seed=-1: ValueError: " in result.err
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["0"]


# --- two sweeps at once


def test_a_second_sweep_in_the_same_folder_ends(copied_sweep):
    with store.hold(copied_sweep):
        line = only_line(run_sweep(copied_sweep, *QUICK_JOBS))
    assert f"another sweep runs in {copied_sweep} (process {os.getpid()} on " in line
    with store.hold(copied_sweep):
        assert finished_jobs(copied_sweep) == set(range(N_JOBS))


def test_a_folder_never_has_two_owners(tmp_path, monkeypatch):
    """A lock on a removed file does not count.

    A sweep that finds nothing to do removes its folder and the lock in it. Here it does so after
    the next sweep has opened the file of the lock, and before that sweep locks it.
    """
    lock = store.fcntl.flock
    was_removed = False

    def remove_before_the_first_lock(file, operation):
        nonlocal was_removed
        if not was_removed:
            (tmp_path / ".lock").unlink()
            was_removed = True
        lock(file, operation)

    monkeypatch.setattr(store.fcntl, "flock", remove_before_the_first_lock)
    with store.hold(tmp_path):
        assert (tmp_path / ".lock").exists()
        with (
            pytest.raises(ValueError, match="another sweep"),
            contextlib.ExitStack() as stack,
        ):
            stack.enter_context(store.hold(tmp_path))


def test_the_launcher_of_another_package_under_the_same_name_is_refused(capsys):
    # only importable after Hydra has looked for plugins
    from hydra_plugins.sysid_sweep.plugins import JoblibLauncher, check_launcher

    config = OmegaConf.create({"hydra": {"runtime": {"choices": {"hydra/launcher": "joblib"}}}})
    check_launcher(JoblibLauncher(), config)
    with pytest.raises(SystemExit):
        check_launcher(BasicLauncher(), config)
    line = capsys.readouterr().err
    foreign_class = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
    assert f"hydra/launcher=joblib is {foreign_class} of another" in line
    assert "hydra.launcher._target_=hydra_plugins.sysid_sweep.plugins.JoblibLauncher" in line
    config.hydra.runtime.choices["hydra/launcher"] = "basic"
    check_launcher(BasicLauncher(), config)


# --- jobs that fail


def test_a_job_that_fails_costs_only_itself_and_only_repaired_or_outdated_jobs_run_again(tmp_path):
    folder = tmp_path / "sweep"
    write_record(tmp_path / "here.csv", n=60)
    jobs = (
        *csv_overrides(estimation="missing.csv,here.csv"),
        "data.initialisation_window=2",
        "identified=1",
        "narx=lags",
        "narx.outputs={y:2}",
        "narx.inputs={u:[1]}",
        "budget=8",
        "training=fixed",
        "validate=false",
    )
    result = run_sweep(folder, *jobs)
    assert result.code == 1
    assert "2 jobs: 1 done, 1 failed, in " in result.out
    (failure,) = [line for line in result.err.splitlines() if line.startswith("  #0 ")]
    assert "DataError: no file missing.csv (seen from " in failure
    assert "Traceback" not in result.out + result.err
    traceback = read_job_outcome(folder, 0)["traceback"]
    assert traceback.startswith("Traceback (most recent call last)")
    assert "failed #0" in (folder / "sweep.log").read_text()

    first_outcome = read_job_outcome(folder, 1)
    write_record(tmp_path / "missing.csv", n=60, seed=2)
    result = run_sweep(folder, *jobs)
    assert "Sweep of 2 jobs, 1 finished already, 1 to run: " in result.out
    assert finished_jobs(folder) == {0, 1}
    assert read_job_outcome(folder, 1) == first_outcome

    write_record(tmp_path / "here.csv", n=60, seed=3)
    result = run_sweep(folder, *jobs)
    assert "1 finished already, 1 to run (1 again, damaged or out of date)" in result.out
    assert read_job_outcome(folder, 1)["identity"] != first_outcome["identity"]
    job_folders = sorted(path.name for path in folder.glob("[0-9]*"))
    assert job_folders == ["0", "1"], "a changed file took a second folder"


# --- results that are damaged


def truncate(path):
    """Remove the end of a file."""
    path.write_bytes(path.read_bytes()[:-100])


def overwrite_first_byte(path):
    """Change the first byte of a file."""
    path.write_bytes(b"\0" + path.read_bytes()[1:])


def entries_changed(**values):
    """Return a function that changes entries of a JSON file."""
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


#: a file of a job, how it is damaged, and what the log says of it; None for nothing
DAMAGES = {
    "cut_off_result": ("job.nc", truncate, "job.nc is damaged"),
    "missing_result": ("job.nc", Path.unlink, "job.nc is missing"),
    "changed_result": ("job.nc", overwrite_first_byte, "job.nc is damaged"),
    "cut_off_outcome": ("outcome.json", truncate, "outcome.json is damaged"),
    "newer_outcome": (
        "outcome.json",
        entries_changed(schema_version=99),
        "outcome.json is damaged",
    ),
    "outcome_of_another_job": (
        "outcome.json",
        entries_changed(identity="0" * 32),
        "its result belongs to other settings or files",
    ),
    "failed": ("outcome.json", entries_changed(status="failed"), None),
    "removed": (".", shutil.rmtree, None),
}


@pytest.fixture(scope="module")
def repaired_sweep(swept, tmp_path_factory):
    """A sweep whose first jobs had each another damage, after the same command has run again."""
    folder = Path(shutil.copytree(swept, tmp_path_factory.mktemp("repaired") / "sweep"))
    before = modification_times(folder)
    for number, (name, damage, _) in enumerate(DAMAGES.values()):
        damage(folder / str(number) / name)
    result = run_sweep(folder, *QUICK_JOBS)
    after = modification_times(folder)
    unchanged = {path for path, when in after.items() if before.get(path) == when}
    log = (folder / "sweep.log").read_text()
    return SimpleNamespace(folder=folder, result=result, unchanged=unchanged, log=log)


@pytest.mark.slow
def test_only_damaged_results_are_run_anew_with_the_same_results(repaired_sweep, swept):
    n = len(DAMAGES)
    assert repaired_sweep.result.code == 0, repaired_sweep.result
    to_run = f"{n} to run ({n - 2} again, damaged or out of date): "
    first_line = f"Sweep of {N_JOBS} jobs, {N_JOBS - n} finished already, {to_run}"
    assert first_line in repaired_sweep.result.out
    for number in range(n, N_JOBS):
        for name in ("job.nc", "outcome.json"):
            file = repaired_sweep.folder / str(number) / name
            assert file in repaired_sweep.unchanged, "a sound result was run again"
    assert sweep_results(repaired_sweep.folder) == sweep_results(swept)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_run_anew_and_the_log_says_why(repaired_sweep, damage):
    number = list(DAMAGES).index(damage)
    _, _, reason = DAMAGES[damage]
    if reason is None:
        assert f"run again #{number}:" not in repaired_sweep.log
    else:
        assert f"run again #{number}: {reason}\n" in repaired_sweep.log
    for name in ("job.nc", "outcome.json"):
        file = repaired_sweep.folder / str(number) / name
        assert file not in repaired_sweep.unchanged


# --- a clock that is wrong


@pytest.fixture
def backward_clock(monkeypatch):
    """Set the clock of this process back by an hour whenever somebody looks at it."""
    times = iter(range(1_700_000_000, 0, -3600))

    class BackwardDatetime(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(next(times), tz)

    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    for module in (sysid_store, store, sweep_module):
        monkeypatch.setattr(module, "datetime", BackwardDatetime)


@pytest.mark.usefixtures("backward_clock")
def test_a_clock_that_goes_backwards_changes_no_result_and_runs_nothing_again(copied_sweep, swept):
    """Sound results are of next year, and the damaged one is older than all of them."""
    for path in copied_sweep.rglob("*"):
        os.utime(path, (2e9, 2e9))
    damaged = copied_sweep / "1" / "job.nc"
    damaged.write_bytes(b"damaged")
    os.utime(damaged, (0, 0))
    before = modification_times(copied_sweep)
    result = run_sweep(copied_sweep, *QUICK_JOBS)
    assert result.code == 0, result
    assert count_jobs(result) == (N_JOBS, N_JOBS - 1, 1)
    after = modification_times(copied_sweep)
    results = {path for path in before if path.name in ("job.nc", "outcome.json")}
    assert {path.parent.name for path in results if after[path] != before[path]} == {"1"}
    assert job_content(damaged)[:2] == job_content(swept / "1" / "job.nc")[:2]


# --- disks and folders


def run_on_a_small_disk(tmp_path, size, filled):
    """Run the sweep on a file system of `size` bytes, of which `filled` are taken.

    Leaves its output, its exit code and a copy of its folder in `tmp_path`.
    """
    words = sweep_command_line("place/sweep", *QUICK_JOBS)
    command = " ".join(f'"{word}"' for word in words)
    script = f"""
    mkdir place
    mount -t tmpfs -o size={size} none place || exit 77
    head -c {filled} /dev/zero > place/filler
    {command} > out1 2> err1; echo $? > code1
    cp -a place/sweep after1
    """
    for unshare in (["unshare", "-m"], ["unshare", "-Urm"]):
        shutil.rmtree(tmp_path / "place", ignore_errors=True)
        process = subprocess.run(
            [*unshare, "bash", "-c", script],
            cwd=tmp_path,
            env=process_environment(),
            capture_output=True,
            text=True,
        )
        if process.returncode == 0:
            return
    reason = "this system lets nobody mount a small file system (unshare)"
    pytest.skip(f"{reason}: {process.stderr}")


@pytest.mark.slow
def test_a_full_disk_costs_the_jobs_that_it_cannot_take(tmp_path, swept):
    size = sum(path.stat().st_size for path in swept.rglob("*") if path.is_file())
    space_for_folders = 4096 * 5 * N_JOBS
    run_on_a_small_disk(tmp_path, int(1.1 * size) + space_for_folders, filled=size // 2)
    out, err, code = ((tmp_path / name).read_text() for name in ("out1", "err1", "code1"))
    folder = tmp_path / "after1"
    before = finished_outcomes(folder)
    n_done = len(before)
    assert code == "1\n", (out, err)
    assert 0 < n_done < N_JOBS, "the disk was too small, or too large"
    assert f"{N_JOBS} jobs: {n_done} done, {N_JOBS - n_done} failed, in " in out
    assert "Traceback" not in out + err
    assert "No space left" in err
    assert unfinished_files(folder) == []
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())

    resumed = run_sweep(folder, *QUICK_JOBS)
    assert resumed.code == 0, resumed
    assert f"{n_done} finished already, {N_JOBS - n_done} to run" in resumed.out
    assert before == {number: read_job_outcome(folder, number) for number in before}
    assert sweep_results(folder) == sweep_results(swept)


def test_a_damaged_file_that_cannot_be_removed_is_not_taken_for_the_result(
    copied_sweep, monkeypatch
):
    truncate(copied_sweep / "3" / "job.nc")
    unlink = Path.unlink

    def refuse_in_job_3(path, **options):
        if path.parent == copied_sweep / "3":
            raise PermissionError("read-only")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refuse_in_job_3)
    result = run_sweep(copied_sweep, *QUICK_JOBS)
    assert result.code == 1
    assert f"{N_JOBS - 1} done ({N_JOBS - 1} before), 1 failed" in result.out
    assert "#3" in result.err


# --- what a person sees


def run_on_a_terminal(folder, *overrides, n_lines=40, n_columns=100):
    """Run a sweep on a terminal of its own, and return its exit code and everything it printed."""
    our_end, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", n_lines, n_columns, 0, 0))
    process = start_sweep(folder, *overrides, stdout=its_end, stderr=its_end)
    os.close(its_end)
    printed = b""
    # reading raises OSError when the process has closed its end
    with open(our_end, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        while part := screen.read(65536):
            printed += part
    return process.wait(timeout=HANG_TIMEOUT), printed.decode().replace("\r\n", "\n")


def progress_frames(line):
    """Return the states of the progress line, which overwrite each other on a terminal."""
    frames = line.replace(ERASE, "\x1b").split("\r")
    return [frame.partition("\x1b")[0] for frame in frames if frame.strip() and frame[0] != "\x1b"]


@pytest.mark.slow
def test_a_terminal_shows_one_line_of_progress_and_failures_shortly(tmp_path):
    jobs = (*QUICK_JOB, "seed=range(0,11)", "budget=1,0")
    code, printed = run_on_a_terminal(tmp_path / "sweep", *jobs)
    assert code == 1
    raw_lines = printed.split("\n")
    # without what was erased: the words on what is being done
    lines = [line.rpartition(ERASE)[2] for line in raw_lines]
    assert f"{ERASE}loading" in raw_lines[0]
    assert lines[0].startswith("Sweep of 22 jobs, 22 to run: ")

    frames = progress_frames(raw_lines[1])
    assert all(frame.startswith("sweep:") for frame in frames), frames
    assert "22/22" in frames[-1]
    assert "22 failed" in frames[-1]
    remaining_time = r"[1-9]/22 \[\d\d:\d\d<\d\d:\d\d"
    assert any(re.search(remaining_time, frame) for frame in frames), "no remaining time"
    assert "\x1b[A" not in printed, "the cursor moved up: there was a second line of progress"

    assert lines[2].startswith("22 jobs: 0 done, 22 failed, in ")
    # of the settings only those are shown that differ between the jobs
    assert lines[3].startswith("  #0 budget=1 seed=0: ValueError: ")
    for line in lines[3:23]:
        assert "at least 2" in line
        assert len(line) < 200
    assert lines[23] == "  and 2 more, see sweep.log"
    assert len(lines) < 29


def test_a_reader_that_stops_does_not_stop_the_sweep():
    """A pipe to `head` is closed while the sweep still prints."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        for _ in range(2):
            print_line("nobody reads this", stream)
