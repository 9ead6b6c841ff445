"""Sweeps in trouble: jobs that fail, damaged results, full disks, read-only folders, terminals that are closed."""

import contextlib
import ctypes
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from running import PLAIN
from sweep_command import QUICK, argv, done, ended, environment, half_written, outcome, results, started, sweep
from sweep_jobs import wait_until
from validating import csv_file

from experiments.sweeps.sweep import say

if PLAIN:
    pytest.skip("trouble ends alike without the compiler", allow_module_level=True)

N = 9
JOBS = (*QUICK, f"seed=range(0,{N})", "cache=null")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Folder of a sweep to which nothing has happened."""
    folder = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    assert sweep(folder, *JOBS).code == 0
    return folder


@pytest.fixture
def again(undisturbed, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(undisturbed, tmp_path / "sweep"))


def modified(folder):
    """When the files of each job were written."""
    return {
        number: {path.name: path.stat().st_mtime_ns for path in (folder / str(number)).iterdir()} for number in range(N)
    }


# --- jobs that fail


def test_a_job_that_fails_costs_only_itself_and_its_repair_runs_only_it(tmp_path):
    folder = tmp_path / "sweep"
    csv_file(tmp_path / "here.csv", n=60)
    records = ("data=csv", "data.inputs=[u]", "data.outputs=[y]", "data.dt=0.5", "data.initialisation_window=2")
    lags = ("narx=lags", "narx.outputs={y:2}", "narx.inputs={u:[1]}", "budget=8", "training=fixed")
    jobs = (*records, *lags, "data.estimation=missing.csv,here.csv", "identified=1", "validate=false")
    said = sweep(folder, *jobs)
    assert said.code == 1
    assert "2 jobs: 1 done, 1 failed, in " in said.out
    assert "The same command again runs only what is missing or failed" in said.out
    (failure,) = [line for line in said.err.splitlines() if line.startswith("  #0 ")]
    assert "DataError: no file missing.csv (seen from " in failure
    assert "Traceback" not in said.out + said.err
    failed = outcome(folder, 0)
    assert failed["traceback"].startswith("Traceback (most recent call last)")
    assert "budget: 8" in failed["configuration"]
    assert "failed #0" in (folder / "sweep.log").read_text()
    before = outcome(folder, 1)
    csv_file(tmp_path / "missing.csv", n=60, seed=2)
    said = sweep(folder, *jobs)
    assert "Sweep of 2 jobs, 1 finished already, 1 to run: " in said.out
    assert done(folder) == {0, 1}
    assert outcome(folder, 1) == before
    csv_file(tmp_path / "here.csv", n=60, seed=3)
    assert "1 finished already, 1 to run (1 anew, damaged or out of date)" in sweep(folder, *jobs).out
    assert outcome(folder, 1)["identity"] != before["identity"]
    assert sorted(path.name for path in folder.glob("[0-9]*")) == ["0", "1"], "a changed file took a second folder"


# --- results that are damaged


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def changed(**values):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


HARM = (
    ("job.nc", truncate, "job.nc is damaged"),
    ("job.nc", Path.unlink, "job.nc is missing"),
    ("job.nc", lambda path: path.write_bytes(b"\0" + path.read_bytes()[1:]), "job.nc is damaged"),
    ("outcome.json", truncate, "outcome.json is damaged"),
    ("outcome.json", changed(schema_version=99), "outcome.json is damaged"),
    ("outcome.json", changed(identity="0" * 32), "its result is that of other settings or files"),
    ("outcome.json", changed(status="failed"), None),
    (".", lambda path: shutil.rmtree(path), None),
)


def test_damaged_results_are_run_anew_and_told(again, undisturbed):
    before, n = modified(again), len(HARM)
    for number, (name, harm, _) in enumerate(HARM):
        harm(again / str(number) / name)
    said = sweep(again, *JOBS)
    assert said.code == 0, said
    anew = f"{n} to run ({n - 2} anew, damaged or out of date): "
    assert f"Sweep of {N} jobs, {N - n} finished already, {anew}" in said.out
    log = (again / "sweep.log").read_text()
    for number, (_, _, told) in enumerate(HARM):
        assert f"anew #{number}: {told}\n" in log if told else f"anew #{number}:" not in log
    after = modified(again)
    for number in range(N):
        same = {name for name in before[number] if before[number][name] == after[number].get(name)}
        assert ("job.nc" in same) == ("outcome.json" in same) == (number >= n), number
    assert results(again) == results(undisturbed)


# --- disks and folders


def test_a_full_disk_costs_the_jobs_that_it_cannot_take(tmp_path, undisturbed):
    size = sum(path.stat().st_size for path in undisturbed.rglob("*") if path.is_file())
    command = " ".join(f'"{word}"' for word in argv("place/sweep", *JOBS))
    script = f"""
    mkdir place
    mount -t tmpfs -o size={int(1.1 * size) + 4096 * 5 * N} none place || exit 77
    head -c {size // 2} /dev/zero > place/filler
    {command} > out1 2> err1; echo $? > code1
    cp -a place/sweep after1
    rm place/filler
    {command} > out2 2> err2; echo $? > code2
    cp -a place/sweep after2
    """
    options = {"cwd": tmp_path, "env": environment(), "capture_output": True, "text": True, "timeout": 300}
    for prefix in (["unshare", "-m"], ["unshare", "-Urm"]):
        shutil.rmtree(tmp_path / "place", ignore_errors=True)
        if (process := subprocess.run([*prefix, "bash", "-c", script], **options)).returncode == 0:
            break
    else:
        pytest.skip(f"this system lets nobody mount a small file system (unshare): {process.stderr}")
    said = {path.name: path.read_text() for path in tmp_path.glob("*[12]") if path.is_file()}
    n_done = len(done(tmp_path / "after1"))
    assert said["code1"] == "1\n", said
    assert 0 < n_done < N, "the disk was too small, or too large"
    assert f"{N} jobs: {n_done} done, {N - n_done} failed, in " in said["out1"]
    assert "Traceback" not in said["out1"] + said["err1"]
    assert "No space left" in said["err1"]
    assert half_written(tmp_path / "after1") == half_written(tmp_path / "after2") == []
    for path in (tmp_path / "after1").rglob("*.json"):
        json.loads(path.read_text())
    before = {number: outcome(tmp_path / "after1", number) for number in done(tmp_path / "after1")}
    assert said["code2"] == "0\n", said
    assert f"{n_done} finished already, {N - n_done} to run" in said["out2"]
    assert before == {number: outcome(tmp_path / "after2", number) for number in before}
    assert results(tmp_path / "after2") == results(undisturbed)


def obedient():
    """Root may write anywhere, unless it gives that up: before a process starts, for the process."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) != 0:  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
        raise OSError("cannot give up CAP_DAC_OVERRIDE")
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_folder_that_becomes_read_only_costs_the_jobs_after_that(tmp_path, undisturbed):
    folder = tmp_path / "sweep"
    process = started(folder, *JOBS, preexec_fn=obedient)
    try:
        assert wait_until(lambda: len(done(folder)) >= 2)
        folder.chmod(0o555)
        said = ended(process)
    finally:
        folder.chmod(0o755)
    n_done = len(done(folder))
    assert said.code == 1
    assert 2 <= n_done < N, said
    assert f"{N} jobs: {n_done} done, {N - n_done} failed, in " in said.out
    assert "Permission denied" in said.err
    assert f"could not be stored in {folder}/{N - 1}" in said.err
    assert "Traceback" not in said.out + said.err
    said = sweep(folder, *JOBS)
    assert said.code == 0
    assert f"{n_done} finished already, {N - n_done} to run" in said.out
    assert results(folder) == results(undisturbed)


def test_what_cannot_be_removed_is_not_taken_for_the_result(again, monkeypatch):
    truncate(again / "3" / "job.nc")
    unlink = Path.unlink

    def refuse(path, **options):
        if path.parent == again / "3":
            raise PermissionError("read-only")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refuse)
    said = sweep(again, *JOBS)
    assert said.code == 1
    assert f"{N - 1} done ({N - 1} before), 1 failed" in said.out
    assert "#3" in said.err


# --- what a person sees


def test_a_terminal_shows_one_line_of_progress_and_failures_shortly(tmp_path):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))  # lines, columns
    streams = {"stdout": theirs, "stderr": theirs}
    process = started(tmp_path / "sweep", *QUICK, "seed=0,1,2", "budget=8,1,0,-1,-2,-3,-4,-5", **streams)
    os.close(theirs)
    text = b""
    with open(ours, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # the other end is closed
        while part := screen.read(65536):
            text += part
    assert process.wait(timeout=60) == 1
    text = text.decode()
    lines = text.replace("\r\n", "\n").split("\n")
    assert lines[0].startswith("Sweep of 24 jobs, 24 to run: ")
    shown = [frame for frame in lines[1].split("\r") if frame.strip()]
    assert all(frame.startswith("sweep:") for frame in shown), shown
    assert "24/24" in shown[-1]
    assert "21 failed" in shown[-1]
    assert any(re.search(r"[1-9]/24 \[\d\d:\d\d<\d\d:\d\d", frame) for frame in shown), "no remaining time"
    assert lines[2].startswith("24 jobs: 3 done, 21 failed, in ")
    assert "\x1b[A" not in text
    assert lines[3].startswith("  #3 budget=1 seed=0: ValueError: "), "only what differs between the jobs is said"
    assert all("at least 2" in line and len(line) < 200 for line in lines[3:23])
    assert lines[23] == "  and 1 more, see sweep.log"
    assert len(lines) < 29


def test_a_reader_that_stops_does_not_stop_the_sweep():
    reader, writer = os.pipe()
    os.close(reader)  # as of | head
    with open(writer, "w") as stream:
        for _ in range(2):
            say("nobody reads this", stream)
