"""Attacks on sweeps on a real Slurm: one node is enough. They skip where there is no sbatch."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from functools import cache

import pytest
from sweep_command import QUICK, at_work, check_whole, done, ended, outcome, started
from sweep_jobs import wait_until

pytestmark = pytest.mark.slow
N = 6
JOBS = (*QUICK, f"seed=range(0,{N})", "cache=null")
SLURM = ("hydra/launcher=slurm", "hydra.launcher.workers=2", "hydra.launcher.poll=0.5")
LONG = ("system=van_der_pol", "duration=400000samples", "budget=20", "seed=0,1", "cache=null")


def queue():
    squeue = ["squeue", "-h", "--array", "-o", "%i %T"]
    return subprocess.run(squeue, capture_output=True, text=True).stdout.splitlines()


@cache
def answers():
    return shutil.which("sbatch") and subprocess.run(["sinfo"], capture_output=True).returncode == 0


@pytest.fixture(autouse=True)
def _leave_no_task():
    if not answers():
        pytest.skip("there is no Slurm here (sbatch on PATH, and sinfo answers)")
    assert queue() == [], "the queue is to be empty before"
    yield
    left = queue()
    subprocess.run(["scancel", f"--user={os.getuid()}"])
    assert wait_until(lambda: queue() == [], 60)
    assert left == []


def test_drivers_that_are_killed_lose_nothing(tmp_path):
    folder, random_, hits = tmp_path / "sweep", random.Random(0), 0
    for _ in range(4):
        process = started(folder, *JOBS, *SLURM)
        time.sleep(random_.uniform(1.0, 8.0))
        hits += process.poll() is None
        process.kill()
        ended(process)
        kept = {number: outcome(folder, number) for number in done(folder)}
    assert hits >= 2
    check_whole(folder, N, JOBS, *SLURM)
    assert kept == {number: outcome(folder, number) for number in kept}, "finished jobs were run again"


def test_tasks_that_are_killed_and_cancelled_cost_an_attempt(tmp_path):
    folder, random_, hits = tmp_path / "sweep", random.Random(1), set()
    process = started(folder, *JOBS, *SLURM)
    for how in ("kill", "cancel"):
        if not wait_until(lambda: set(at_work(folder)) - hits or process.poll() is not None):
            break
        number = random_.choice(sorted(set(at_work(folder)) - hits or {-1}))
        hits.add(number)
        if how == "kill" and number >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(at_work(folder).get(number, 2**22), signal.SIGKILL)
        elif running := [line.split()[0] for line in queue() if line.endswith("RUNNING")]:
            subprocess.run(["scancel", running[0]])
    said = ended(process, 300)
    assert said.code == 0, said
    assert f"{N} jobs: {N} done" in said.out
    check_whole(folder, N, JOBS, *SLURM)


def test_a_killed_driver_is_taken_over_by_the_same_command_alone(tmp_path):
    folder = tmp_path / "sweep"
    starts = [folder / str(number) / "attempts" for number in (0, 1)]
    process = started(folder, *LONG, *SLURM, "hydra.launcher.time_limit=10min")
    assert wait_until(lambda: all(path.exists() for path in starts), 120)
    second = ended(started(folder, *LONG, *SLURM))
    assert (second.code, second.out) == (1, "")
    assert "another sweep runs in" in second.err
    process.kill()
    ended(process)
    assert not done(folder), "the jobs were to be at work still"
    other = ended(started(folder, *LONG))
    assert other.code == 1
    assert "take hydra/launcher=slurm" in other.out + other.err
    same = ended(started(folder, *LONG, *SLURM, "hydra.launcher.time_limit=10min"), 400)
    assert same.code == 0, same
    assert done(folder) == {0, 1}
    assert [len(path.read_text().splitlines()) for path in starts] == [1, 1], "each was started once"


def test_a_job_beyond_its_limit_ends_alone(tmp_path):
    short = [one for one in QUICK if not one.startswith("duration")]
    for limit, told in (("time_limit=20s", "time limit of 20 s"), ("memory_limit=400MB", "memory limit of 400 MB")):
        lines = (*short, "duration=20000000samples,120samples", "cache=null", *SLURM, f"hydra.launcher.{limit}")
        said = ended(started(tmp_path / limit[:4], *lines), 300)
        assert said.code == 1, said
        assert f"{told} exceeded" in said.err
        assert done(tmp_path / limit[:4]) == {1}


def test_dask_on_a_batch_system_runs_the_jobs_and_ends(tmp_path):
    pytest.importorskip("dask_jobqueue")
    cluster = (
        "{_target_: dask_jobqueue.SLURMCluster, cores: 1, processes: 1, memory: 500MB, interface: lo, "
        f"local_directory: {tmp_path}, log_directory: {tmp_path}, scheduler_options: {{dashboard: false}}}}"
    )
    lines = (*JOBS, "hydra/launcher=dask", "hydra.launcher.workers=2", f"hydra.launcher.cluster={cluster}")
    said = ended(started(tmp_path / "sweep", *lines), 300)
    assert said.code == 0, said
    assert done(tmp_path / "sweep") == set(range(N))
    assert wait_until(lambda: queue() == [])
