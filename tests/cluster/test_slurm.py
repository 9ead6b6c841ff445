"""Attacks on sweeps on a real Slurm, of one node or more, that SLURM_CONF names;
`tests/cluster/slurm` starts one.
"""

import contextlib
import os
import random
import signal
import subprocess
import time

import pytest

from helpers.jobs import wait_until
from helpers.sweeps import (
    QUICK_JOB,
    check_sweep_is_whole,
    finished_jobs,
    interrupt_sweep,
    marked_environment,
    read_job_outcome,
    running_jobs,
    start_sweep,
    wait_for_end,
)

N = 6
JOBS = (*QUICK_JOB, f"seed=range(0,{N})", "cache=null")
SLURM = ("hydra/launcher=slurm", "hydra.launcher.workers=2", "hydra.launcher.poll=0.2")
LONG = (
    "system=van_der_pol",
    "duration=200000samples",
    "budget=20",
    "seed=0,1",
    "cache=null",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "SLURM_CONF" not in os.environ,
        reason="no Slurm: start one with tests/cluster/slurm",
    ),
]


@pytest.fixture(autouse=True)
def queue(tmp_path):
    """What Slurm has of a test: tasks that were submitted in its folder. None is left."""

    def tasks():
        squeue = [
            "squeue",
            "--noheader",
            "--array",
            f"--user={os.getuid()}",
            "--format=%i %T %Z",
        ]
        lines = subprocess.run(
            squeue, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        return [line.split()[:2] for line in lines if line.endswith(str(tmp_path))]

    assert tasks() == [], "Slurm is to answer"
    yield tasks
    left = tasks()
    if left:
        subprocess.run(["scancel", *(name for name, _ in left)])
        assert wait_until(lambda: tasks() == [], 60)
    assert left == []


def test_drivers_that_are_killed_lose_nothing(tmp_path):
    folder = tmp_path / "sweep"
    random_ = random.Random(0)
    hits = 0
    for n in (
        3,
        6,
        9,
        12,
    ):  # tasks of a killed driver go on: each one after it has more to do
        jobs = (*QUICK_JOB, f"seed=range(0,{n})", "cache=null")
        process = start_sweep(folder, *jobs, *SLURM)
        time.sleep(random_.uniform(1.0, 6.0))
        hits += process.poll() is None
        process.kill()
        wait_for_end(process)
        kept = {number: read_job_outcome(folder, number) for number in finished_jobs(folder)}
    assert hits >= 2
    check_sweep_is_whole(folder, n, jobs, *SLURM)
    assert kept == {number: read_job_outcome(folder, number) for number in kept}, (
        "finished jobs were run again"
    )


def test_tasks_that_are_killed_and_cancelled_cost_an_attempt(tmp_path, queue):
    folder = tmp_path / "sweep"
    random_ = random.Random(1)
    hits = set()
    process = start_sweep(folder, *JOBS, *SLURM)
    for how in ("kill", "cancel"):
        if not wait_until(lambda: set(running_jobs(folder)) - hits or process.poll() is not None):
            break
        number = random_.choice(sorted(set(running_jobs(folder)) - hits or {-1}))
        hits.add(number)
        if how == "kill" and number >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running_jobs(folder).get(number, 2**22), signal.SIGKILL)
        elif running := [name for name, state in queue() if state == "RUNNING"]:
            subprocess.run(["scancel", running[0]])
    said = wait_for_end(process, 300)
    assert said.code == 0, said
    assert f"{N} jobs: {N} done" in said.out
    check_sweep_is_whole(folder, N, JOBS, *SLURM)


def test_a_killed_driver_is_taken_over_by_the_same_command_alone(tmp_path):
    folder = tmp_path / "sweep"
    starts = [folder / str(number) / "attempts" for number in (0, 1)]
    process = start_sweep(folder, *LONG, *SLURM, "hydra.launcher.time_limit=10min")
    assert wait_until((folder / ".lock").exists)
    second = wait_for_end(start_sweep(folder, *LONG, *SLURM))
    assert (second.code, second.out) == (1, "")
    assert "another sweep runs in" in second.err
    assert wait_until(lambda: all(path.exists() for path in starts), 120)
    process.kill()
    wait_for_end(process)
    assert not finished_jobs(folder), "the jobs were to be at work still"
    other = wait_for_end(start_sweep(folder, *LONG))
    assert other.code == 1
    assert "resume with hydra/launcher=slurm" in other.out + other.err
    same = wait_for_end(start_sweep(folder, *LONG, *SLURM, "hydra.launcher.time_limit=10min"), 400)
    assert same.code == 0, same
    assert finished_jobs(folder) == {0, 1}
    assert [len(path.read_text().splitlines()) for path in starts] == [1, 1], (
        "each was started once"
    )


def test_a_job_beyond_its_limit_ends_alone(tmp_path):
    short = [one for one in QUICK_JOB if not one.startswith("duration")]
    sweeps = {}
    for limit, told in (
        ("time_limit=20s", "time limit of 20 s"),
        ("memory_limit=400MB", "memory limit of 400 MB"),
    ):
        lines = (
            *short,
            "duration=20000000samples,120samples",
            "cache=null",
            *SLURM,
            f"hydra.launcher.{limit}",
        )
        sweeps[told] = start_sweep(tmp_path / limit[:4], *lines)
    for told, process in sweeps.items():
        said = wait_for_end(process, 300)
        assert said.code == 1, said
        assert f"{told} exceeded" in said.err
        assert finished_jobs(tmp_path / told.replace(" ", "_")[:4]) == {1}


def test_dask_on_a_batch_system_runs_the_jobs_and_ends(tmp_path, queue):
    pytest.importorskip("dask_jobqueue")
    cluster = (
        "{_target_: dask_jobqueue.SLURMCluster, cores: 1, processes: 1, memory: 1GB, interface: lo, "
        f"local_directory: {tmp_path}, log_directory: {tmp_path}, scheduler_options: {{dashboard: false}}}}"
    )
    lines = (
        *JOBS,
        "hydra/launcher=dask",
        "hydra.launcher.workers=2",
        f"hydra.launcher.cluster={cluster}",
    )
    said = wait_for_end(start_sweep(tmp_path / "sweep", *lines), 300)
    assert said.code == 0, said
    assert finished_jobs(tmp_path / "sweep") == set(range(N))
    assert wait_until(lambda: queue() == [])


def test_ctrl_c_at_any_moment_of_the_start_ends_in_a_line(tmp_path):
    random_ = random.Random("slurm")
    for number in range(4):
        own = marked_environment()
        process = start_sweep(tmp_path / f"{number}", *JOBS, *SLURM, env=own)
        interrupt_sweep(process, own, random_.uniform(0.2, 7.0))
