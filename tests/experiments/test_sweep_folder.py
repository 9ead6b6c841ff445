"""Folders of sweeps: which job is which, what is refused, found again, damaged, full, and what a
person sees.
"""

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
from dataclasses import replace
from pathlib import Path

import pytest
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from omegaconf import OmegaConf

import helpers.sweeps as sweeps
from experiments.cli.progress import ERASE
from experiments.sweeps import store
from experiments.sweeps import sweep as sweep_module
from experiments.sweeps.engines import InProcess
from experiments.sweeps.store import Manifest
from experiments.sweeps.sweep import print_line
from helpers.benchmarks import BOUC_WEN, SHORT_BENCHMARK
from helpers.jobs import make_job
from helpers.records import ONE_STEP_ONLY, csv_overrides, save_models, write_record
from helpers.sweeps import (
    N_JOBS,
    QUICK_JOB,
    QUICK_JOBS,
    finished_jobs,
    process_environment,
    read_job_outcome,
    read_manifest,
    run_sweep,
    start_sweep,
    sweep_results,
    unfinished_files,
)
from hydra_plugins.sysid_sweep.plugins import sweep_name


def told(said):
    """The only line that a refused sweep says."""
    assert said.code == 1, said
    (line,) = (said.out + said.err).splitlines()
    return line


def numbers(said):
    """Jobs of a sweep, those that were finished, and those to run."""
    words = said.out.split()
    finished = int(words[words.index("finished") - 1]) if "finished" in words else 0
    return int(words[2]), finished, int(words[words.index("to") - 1])


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("[!.]*") if path.is_file()}


@pytest.fixture
def again(swept, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(swept, tmp_path / "sweep"))


def test_a_folder_of_another_sweep_is_refused_in_a_line_and_left_as_it_is(again, tmp_path):
    own = read_manifest(again)
    for content, words in (
        (own | {"project": "another"}, "not the manifest of a sweep of sysid"),
        (own | {"schema_version": 99}, "schema_version 99.*update"),
        (own | {"command": "validate"}, "sysid-validate, not of sysid-identify"),
        *(([1, 2], "damaged"), (json.dumps(own)[:200], "damaged")),
        ({name: one for name, one in own.items() if name != "jobs"}, "damaged.*jobs"),
        (own | {"jobs": [own["jobs"][0]] * 2}, "damaged.*twice"),
        (own | {"code": "0" * 64}, "other code.*hydra.sweep.dir"),
    ):
        (again / "sweep.json").write_text(
            content if isinstance(content, str) else json.dumps(content)
        )
        with pytest.raises(ValueError, match=re.escape(str(again)) + ".*" + words):
            Manifest.open(again, "identify")
    before = stamps(again)
    assert "holds a sweep of other code" in told(run_sweep(again, *QUICK_JOBS))
    assert stamps(again) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    line = told(run_sweep(tmp_path / "other", *QUICK_JOB, "seed=1,2"))
    assert "is not empty (notes.txt" in line
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]


def test_the_manifest_says_which_job_is_which_and_the_same_command_runs_nothing(again):
    content = read_manifest(again)
    assert (content["schema"], content["project"], content["command"]) == (
        "sweep",
        "sysid",
        "identify",
    )
    assert content["swept"] == ["seed"]
    assert [(job["number"], job["values"]["seed"]) for job in content["jobs"]] == [
        (k, k) for k in range(N_JOBS)
    ]
    assert all(
        job["identity"] == read_job_outcome(again, job["number"])["identity"]
        for job in content["jobs"]
    )
    before = stamps(again / "0") | stamps(again / "1")
    order = (
        "seed=2,1",
        *reversed(QUICK_JOB),
        "cache=null",
        "hydra.verbose=false",
        "figures=false",
    )
    said = run_sweep(again, *order, "hydra.sweeper.max_batch_size=1")
    assert said.code == 0
    assert said.out.count("1 finished already, 0 to run") == 2  # two batches
    assert stamps(again / "0") | stamps(again / "1") == before


def test_more_values_run_only_what_is_new_and_the_same_job_twice_is_one(again):
    assert numbers(run_sweep(again, *QUICK_JOB, "seed=10,1,1,2", "training.variance=1.0")) == (
        3,
        0,
        3,
    )
    assert numbers(run_sweep(again, *QUICK_JOB, "seed=10,1,2")) == (3, 2, 1)
    assert read_job_outcome(again, 12)["overrides"][-1] == "seed=10"
    assert read_manifest(again)["swept"] == ["seed"]


def test_a_sweep_is_named_after_its_command_whatever_runs_it():
    first = sweep_name("identify", ["seed=1,2", "budget=8"])
    assert first == sweep_name("identify", ["budget=8", "seed=1,2"])
    assert first.startswith("identify-")
    assert first not in (
        sweep_name("identify", ["seed=1,3", "budget=8"]),
        sweep_name("validate", ["seed=1,2"]),
    )
    assert sweep_name("identify", ["experiment=mine", "seed=1"]).startswith("mine-")
    as_hydra_has_it = OmegaConf.create({"task": ["seed=1,2", "a=${hydra:job.num}"]}).task
    assert sweep_name("identify", as_hydra_has_it) == sweep_name(
        "identify", ["seed=1,2", "a=${hydra:job.num}"]
    )


# --- results by content


def test_another_sweep_with_common_jobs_computes_nothing_twice_and_takes_nothing_damaged(
    tmp_path,
):
    first = tmp_path / "first"
    second = tmp_path / "second"
    assert numbers(run_sweep(first, *QUICK_JOB, "seed=1,2,3")) == (3, 0, 3)
    shutil.rmtree(first / "2")
    assert numbers(run_sweep(second, *QUICK_JOB, "seed=0,3,2,1")) == (4, 3, 1)
    assert read_job_outcome(second, 1)["overrides"][-1] == "seed=3"
    assert sweep_results(second)["3"] == sweep_results(first)["0"]
    for name in ("numbered", "again"):  # what a job may call by its number is its own
        assert numbers(
            run_sweep(tmp_path / name, *QUICK_JOB, "seed=1,2", "weather_input='a${hydra:job.num}'")
        ) == (2, 0, 2)
    kept = tmp_path / "multirun" / "cache" / "results"
    one, two, three = (kept / read_job_outcome(second, number)["identity"] for number in (3, 2, 1))
    (one / "job.nc").write_bytes(
        (one / "job.nc").read_bytes()[:-1]
    )  # in place: of the first sweep as well
    (two / "outcome.json").write_text("{")
    (three / "outcome.json").write_text((one / "outcome.json").read_text())
    assert numbers(run_sweep(tmp_path / "fourth", *QUICK_JOB, "seed=1,2,3")) == (3, 0, 3)
    assert numbers(run_sweep(tmp_path / "fifth", *QUICK_JOB, "seed=1")) == (1, 1, 0)
    assert numbers(run_sweep(first, *QUICK_JOB, "seed=1,2,3")) == (3, 3, 0)


def test_what_a_job_writes_elsewhere_is_not_shared(tmp_path):
    one = make_job(tmp_path, 0, "number")
    two = make_job(tmp_path, 1, "number")
    results = tmp_path / "results"
    two = replace(two, identity=one.identity)
    store.write_outcome(store.Outcome(0, False, error="no"), one)
    store.share(one, results)
    assert not results.exists()
    assert not store.fetch(two, results)
    (tmp_path / "0" / "more").mkdir()
    (tmp_path / "0" / "more" / "a.txt").write_text("1")
    store.write_outcome(store.Outcome(0, True, 0.5), one)
    (tmp_path / "full").write_text("")
    store.share(one, tmp_path / "full")  # no folder: nothing is raised
    store.share(one, results)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "attempts").write_text("1\n1\n")
    assert (
        store.fetch(two, results)
        == store.outcome_in(tmp_path / "1")
        == store.Outcome(1, True, 0.5, stored=True)
    )
    assert (tmp_path / "1" / "more" / "a.txt").read_text() == "1"
    assert not list(results.glob(".*"))
    assert store.count_attempts(tmp_path / "1") == 0


def test_a_result_that_the_driver_does_not_see_is_a_failure(tmp_path, monkeypatch):
    run = InProcess.run

    def forget(self, jobs):
        """As on a machine that sees another folder."""
        for one in run(self, jobs):
            (self.folder / str(one.number) / "outcome.json").unlink()
            yield one

    monkeypatch.setattr(sweep_module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(InProcess, "run", forget)
    said = run_sweep(tmp_path / "sweep", *QUICK_JOB, "seed=1,2")
    assert said.code == 1
    assert said.err.count("all machines must have access to the folder of the sweep") == 2


# --- other commands


def test_sweeps_of_other_commands_are_found_again(tmp_path):
    for name in ("a", "b"):
        save_models(tmp_path / f"{name}.nc")
    (tmp_path / "damaged.nc").write_bytes((tmp_path / "a.nc").read_bytes()[:-500])
    write_record(tmp_path / "record.csv")
    data = (
        *csv_overrides("y,z", test="record.csv"),
        "data.units={y: V, z: degC, u: A}",
        "left_out=[z]",
    )
    given = (*data, "data.initialisation_window=5", *ONE_STEP_ONLY)
    for found in (
        "2 done, 1 failed",
        "2 done (2 before), 1 failed",
    ):  # by the name of the sweep
        said = run_sweep(
            None, "model=a.nc,damaged.nc,b.nc", *given, command="validate", cwd=tmp_path
        )
        assert said.code == 1
        assert f"3 jobs: {found}" in said.out, said.err
        assert "#1 model=damaged.nc: " in said.err
    given = (
        "model=a.nc,b.nc",
        "output='${hydra:runtime.output_dir}/it_${hydra:job.id}.py'",
    )
    for expected in ((2, 0, 2), (2, 2, 0)):
        said = run_sweep(tmp_path / "sweep", *given, command="export")
        assert (said.code, numbers(said)) == (0, expected)
    for number in range(2):
        file = tmp_path / "sweep" / str(number) / f"it_{number}.py"
        assert callable(runpy.run_path(str(file))["predict"])
    given = (
        *SHORT_BENCHMARK,
        *BOUC_WEN,
        "baseline=[mean]",
        "seed=1,-1",
        "output=made/${hydra:job.num}",
    )
    said = run_sweep(tmp_path / "benchmarks", *given, command="generate")
    assert (said.code, numbers(said)) == (1, (2, 0, 2))
    assert "  #1 seed=-1: ValueError: " in said.err
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["0"]


# --- two at once


def test_a_second_sweep_in_the_same_folder_ends(again):
    with store.hold(again):
        line = told(run_sweep(again, *QUICK_JOBS))
        assert f"another sweep runs in {again} (process {os.getpid()} on " in line
    assert numbers(run_sweep(again, *QUICK_JOB, "seed=1,2", "cache=null")) == (2, 2, 0)


def test_a_folder_never_has_two_owners(tmp_path, monkeypatch):
    """A sweep that finds nothing to do removes the folder and its lock; a lock on a removed file
    does not count.
    """
    lock = store.fcntl.flock
    removed = []

    def flock(
        file, how
    ):  # another sweep lets go of the folder between the opening of its lock and the locking
        if not removed:
            removed.append((tmp_path / ".lock").unlink())
        lock(file, how)

    monkeypatch.setattr(store.fcntl, "flock", flock)
    with store.hold(tmp_path):
        assert os.path.exists(tmp_path / ".lock")
        with (
            pytest.raises(ValueError, match="another sweep"),
            contextlib.ExitStack() as stack,
        ):
            stack.enter_context(store.hold(tmp_path))


def test_the_launcher_of_another_package_under_the_same_name_is_refused(capsys):
    from hydra_plugins.sysid_sweep.plugins import (
        JoblibLauncher,
        check_launcher,
    )  # after Hydra has looked for plugins

    config = OmegaConf.create({"hydra": {"runtime": {"choices": {"hydra/launcher": "joblib"}}}})
    check_launcher(JoblibLauncher(), config)
    with pytest.raises(SystemExit):
        check_launcher(BasicLauncher(), config)
    line = capsys.readouterr().err
    assert (
        "hydra/launcher=joblib is hydra._internal.core_plugins.basic_launcher.BasicLauncher of another"
        in line
    )
    assert "hydra.launcher._target_=hydra_plugins.sysid_sweep.plugins.JoblibLauncher" in line
    config.hydra.runtime.choices["hydra/launcher"] = "basic"
    check_launcher(BasicLauncher(), config)


# --- jobs that fail


def test_a_job_that_fails_costs_only_itself_and_its_repair_runs_only_it(tmp_path):
    folder = tmp_path / "sweep"
    write_record(tmp_path / "here.csv", n=60)
    records = (
        *csv_overrides(estimation="missing.csv,here.csv"),
        "data.initialisation_window=2",
        "identified=1",
    )
    lags = (
        "narx=lags",
        "narx.outputs={y:2}",
        "narx.inputs={u:[1]}",
        "budget=8",
        "training=fixed",
    )
    jobs = (*records, *lags, "validate=false")
    said = run_sweep(folder, *jobs)
    assert said.code == 1
    assert "2 jobs: 1 done, 1 failed, in " in said.out
    (failure,) = [line for line in said.err.splitlines() if line.startswith("  #0 ")]
    assert "DataError: no file missing.csv (seen from " in failure
    assert "Traceback" not in said.out + said.err
    failed = read_job_outcome(folder, 0)
    assert failed["traceback"].startswith("Traceback (most recent call last)")
    assert "failed #0" in (folder / "sweep.log").read_text()
    before = read_job_outcome(folder, 1)
    write_record(tmp_path / "missing.csv", n=60, seed=2)
    said = run_sweep(folder, *jobs)
    assert "Sweep of 2 jobs, 1 finished already, 1 to run: " in said.out
    assert finished_jobs(folder) == {0, 1}
    assert read_job_outcome(folder, 1) == before
    write_record(tmp_path / "here.csv", n=60, seed=3)
    assert (
        "1 finished already, 1 to run (1 again, damaged or out of date)"
        in run_sweep(folder, *jobs).out
    )
    assert read_job_outcome(folder, 1)["identity"] != before["identity"]
    assert sorted(path.name for path in folder.glob("[0-9]*")) == ["0", "1"], (
        "a changed file took a second folder"
    )


# --- results that are damaged


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def changed(**values):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


HARM = (
    ("job.nc", truncate, "job.nc is damaged"),
    ("job.nc", Path.unlink, "job.nc is missing"),
    (
        "job.nc",
        lambda path: path.write_bytes(b"\0" + path.read_bytes()[1:]),
        "job.nc is damaged",
    ),
    ("outcome.json", truncate, "outcome.json is damaged"),
    ("outcome.json", changed(schema_version=99), "outcome.json is damaged"),
    (
        "outcome.json",
        changed(identity="0" * 32),
        "its result belongs to other settings or files",
    ),
    ("outcome.json", changed(status="failed"), None),
    (".", lambda path: shutil.rmtree(path), None),
)


def test_damaged_results_are_run_anew_and_told(again, swept):
    before = stamps(again)
    n = len(HARM)
    for number, (name, harm, _) in enumerate(HARM):
        harm(again / str(number) / name)
    said = run_sweep(again, *QUICK_JOBS)
    assert said.code == 0, said
    anew = f"{n} to run ({n - 2} again, damaged or out of date): "
    assert f"Sweep of {N_JOBS} jobs, {N_JOBS - n} finished already, {anew}" in said.out
    log = (again / "sweep.log").read_text()
    for number, (_, _, told) in enumerate(HARM):
        assert (
            f"run again #{number}: {told}\n" in log if told else f"run again #{number}:" not in log
        )
    same = {
        path.relative_to(again).as_posix()
        for path, when in stamps(again).items()
        if before.get(path) == when
    }
    for number in range(N_JOBS):
        assert (
            (f"{number}/job.nc" in same) == (f"{number}/outcome.json" in same) == (number >= n)
        ), number
    assert sweep_results(again) == sweep_results(swept)


# --- disks and folders


@pytest.mark.slow
def test_a_full_disk_costs_the_jobs_that_it_cannot_take(tmp_path, swept):
    size = sum(path.stat().st_size for path in swept.rglob("*") if path.is_file())
    command = " ".join(
        f'"{word}"' for word in sweeps.sweep_command_line("place/sweep", *QUICK_JOBS)
    )
    script = f"""
    mkdir place
    mount -t tmpfs -o size={int(1.1 * size) + 4096 * 5 * N_JOBS} none place || exit 77
    head -c {size // 2} /dev/zero > place/filler
    {command} > out1 2> err1; echo $? > code1
    cp -a place/sweep after1
    """
    options = {
        "cwd": tmp_path,
        "env": process_environment(),
        "capture_output": True,
        "text": True,
        "timeout": 300,
    }
    for prefix in (["unshare", "-m"], ["unshare", "-Urm"]):
        shutil.rmtree(tmp_path / "place", ignore_errors=True)
        if (process := subprocess.run([*prefix, "bash", "-c", script], **options)).returncode == 0:
            break
    else:
        pytest.skip(
            f"this system lets nobody mount a small file system (unshare): {process.stderr}"
        )
    said = {path.name: path.read_text() for path in tmp_path.glob("*1") if path.is_file()}
    n_done = len(finished_jobs(tmp_path / "after1"))
    assert said["code1"] == "1\n", said
    assert 0 < n_done < N_JOBS, "the disk was too small, or too large"
    assert f"{N_JOBS} jobs: {n_done} done, {N_JOBS - n_done} failed, in " in said["out1"]
    assert "Traceback" not in said["out1"] + said["err1"]
    assert "No space left" in said["err1"]
    assert unfinished_files(tmp_path / "after1") == []
    for path in (tmp_path / "after1").rglob("*.json"):
        json.loads(path.read_text())
    before = {
        number: read_job_outcome(tmp_path / "after1", number)
        for number in finished_jobs(tmp_path / "after1")
    }
    resumed = run_sweep(tmp_path / "after1", *QUICK_JOBS)
    assert (
        resumed.code,
        f"{n_done} finished already, {N_JOBS - n_done} to run" in resumed.out,
    ) == (0, True), resumed
    assert before == {number: read_job_outcome(tmp_path / "after1", number) for number in before}
    assert sweep_results(tmp_path / "after1") == sweep_results(swept)


def test_what_cannot_be_removed_is_not_taken_for_the_result(again, monkeypatch):
    truncate(again / "3" / "job.nc")
    unlink = Path.unlink

    def refuse(path, **options):
        if path.parent == again / "3":
            raise PermissionError("read-only")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refuse)
    said = run_sweep(again, *QUICK_JOBS)
    assert said.code == 1
    assert f"{N_JOBS - 1} done ({N_JOBS - 1} before), 1 failed" in said.out
    assert "#3" in said.err


# --- what a person sees


def test_a_terminal_shows_one_line_of_progress_and_failures_shortly(tmp_path):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))  # lines, columns
    streams = {"stdout": theirs, "stderr": theirs}
    process = start_sweep(
        tmp_path / "sweep",
        *QUICK_JOB,
        "seed=0,1,2",
        "budget=8,1,0,-1,-2,-3,-4,-5",
        **streams,
    )
    os.close(theirs)
    text = b""
    with (
        open(ours, "rb", buffering=0) as screen,
        contextlib.suppress(OSError),
    ):  # the other end is closed
        while part := screen.read(65536):
            text += part
    assert process.wait(timeout=60) == 1
    text = text.decode()
    raw = text.replace("\r\n", "\n").split("\n")
    lines = [
        line.rpartition(ERASE)[2] for line in raw
    ]  # what is left of the words on what is being done
    assert f"{ERASE}loading" in raw[0]
    assert lines[0].startswith("Sweep of 24 jobs, 24 to run: ")
    shown = [
        frame
        for frame in raw[1].replace(ERASE, "\x1b").split("\r")
        if frame.strip() and frame[0] != "\x1b"
    ]
    shown = [frame.partition("\x1b")[0] for frame in shown]
    assert all(frame.startswith("sweep:") for frame in shown), shown
    assert "24/24" in shown[-1]
    assert "21 failed" in shown[-1]
    assert any(re.search(r"[1-9]/24 \[\d\d:\d\d<\d\d:\d\d", frame) for frame in shown), (
        "no remaining time"
    )
    assert lines[2].startswith("24 jobs: 3 done, 21 failed, in ")
    assert "\x1b[A" not in text
    assert lines[3].startswith("  #3 budget=1 seed=0: ValueError: "), (
        "only what differs between the jobs is said"
    )
    assert all("at least 2" in line and len(line) < 200 for line in lines[3:23])
    assert lines[23] == "  and 1 more, see sweep.log"
    assert len(lines) < 29


def test_a_reader_that_stops_does_not_stop_the_sweep():
    reader, writer = os.pipe()
    os.close(reader)  # as of | head
    with open(writer, "w") as stream:
        for _ in range(2):
            print_line("nobody reads this", stream)
