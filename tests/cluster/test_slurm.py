"""Attacks on sweeps on a real Slurm, of one node or more, that SLURM_CONF names.

The script `tests/cluster/slurm` starts a Slurm of one node.
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
    finished_outcomes,
    interrupt_sweep,
    marked_environment,
    read_job_outcome,
    running_jobs,
    start_sweep,
    wait_for_end,
)

N_SLURM_JOBS = 6
SLURM_JOBS = (*QUICK_JOB, f"seed=range(0,{N_SLURM_JOBS})", "cache=null")
SLURM = ("hydra/launcher=slurm", "hydra.launcher.workers=2", "hydra.launcher.poll=0.2")
LONG_JOBS = (
    "system=van_der_pol",
    "duration=200000samples",
    "budget=20",
    "seed=0,1",
    "cache=null",
)
#: a process identifier that no process has
NO_PROCESS = 2**22
pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        "SLURM_CONF" not in os.environ,
        reason="no Slurm: start one with tests/cluster/slurm",
    ),
]


@pytest.fixture(autouse=True)
def queue(tmp_path):
    """A function that returns the tasks that were submitted by a test, with their states.

    After the test none may be left.
    """

    def list_tasks():
        command = [
            "squeue",
            "--noheader",
            "--array",
            f"--user={os.getuid()}",
            "--format=%i %T %Z",
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = process.stdout.splitlines()
        return [line.split()[:2] for line in lines if line.endswith(str(tmp_path))]

    assert list_tasks() == [], "Slurm has to answer"
    yield list_tasks
    left = list_tasks()
    if left:
        subprocess.run(["scancel", *(name for name, _ in left)])
        assert wait_until(lambda: list_tasks() == [])
    assert left == []


def test_drivers_that_are_killed_lose_nothing(tmp_path):
    folder = tmp_path / "sweep"
    generator = random.Random(0)
    n_hits = 0
    # the tasks of a killed driver go on, so each driver after it has more to do
    for n_jobs in (3, 6, 9, 12):
        jobs = (*QUICK_JOB, f"seed=range(0,{n_jobs})", "cache=null")
        process = start_sweep(folder, *jobs, *SLURM)
        time.sleep(generator.uniform(1.0, 6.0))
        n_hits += process.poll() is None
        process.kill()
        wait_for_end(process)
        finished = finished_outcomes(folder)
    assert n_hits >= 2
    check_sweep_is_whole(folder, n_jobs, jobs, *SLURM)
    for number, outcome in finished.items():
        assert read_job_outcome(folder, number) == outcome, "a finished job was run again"


def kill_job(folder, number):
    """Kill the process of a job, if it still runs."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(running_jobs(folder).get(number, NO_PROCESS), signal.SIGKILL)


def test_tasks_that_are_killed_and_cancelled_cost_an_attempt(tmp_path, queue):
    folder = tmp_path / "sweep"
    generator = random.Random(1)
    hit = set()
    process = start_sweep(folder, *SLURM_JOBS, *SLURM)

    def jobs_to_hit():
        return set(running_jobs(folder)) - hit

    for attack in ("kill", "cancel"):
        if not wait_until(lambda: jobs_to_hit() or process.poll() is not None):
            break
        number = generator.choice(sorted(jobs_to_hit() or {-1}))
        hit.add(number)
        if attack == "kill" and number >= 0:
            kill_job(folder, number)
        else:
            running = [name for name, state in queue() if state == "RUNNING"]
            if running:
                subprocess.run(["scancel", running[0]])
    result = wait_for_end(process, 300)
    assert result.code == 0, result
    assert f"{N_SLURM_JOBS} jobs: {N_SLURM_JOBS} done" in result.out
    check_sweep_is_whole(folder, N_SLURM_JOBS, SLURM_JOBS, *SLURM)


def test_a_killed_driver_is_taken_over_by_the_same_command_alone(tmp_path):
    folder = tmp_path / "sweep"
    command = (*LONG_JOBS, *SLURM, "hydra.launcher.time_limit=10min")
    process = start_sweep(folder, *command)
    assert wait_until((folder / ".lock").exists)
    second = wait_for_end(start_sweep(folder, *LONG_JOBS, *SLURM))
    assert second.code == 1
    assert second.out == ""
    assert "another sweep runs in" in second.err

    attempts = [folder / str(number) / "attempts" for number in (0, 1)]
    assert wait_until(lambda: all(path.exists() for path in attempts))
    process.kill()
    wait_for_end(process)
    assert not finished_jobs(folder), "the jobs have to be at work still"

    other_launcher = wait_for_end(start_sweep(folder, *LONG_JOBS))
    assert other_launcher.code == 1
    assert "resume with hydra/launcher=slurm" in other_launcher.out + other_launcher.err

    same_command = wait_for_end(start_sweep(folder, *command), 400)
    assert same_command.code == 0, same_command
    assert finished_jobs(folder) == {0, 1}
    for path in attempts:
        assert len(path.read_text().splitlines()) == 1, "a job was started more than once"


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("time_limit=20s", "time limit of 20 s exceeded"),
        ("memory_limit=400MB", "memory limit of 400 MB exceeded"),
    ],
    ids=["time", "memory"],
)
def test_a_job_beyond_its_limit_ends_alone(limit, error, tmp_path):
    folder = tmp_path / "sweep"
    job = [override for override in QUICK_JOB if not override.startswith("duration")]
    durations = "duration=20000000samples,120samples"
    process = start_sweep(folder, *job, durations, "cache=null", *SLURM, f"hydra.launcher.{limit}")
    result = wait_for_end(process, 300)
    assert result.code == 1, result
    assert error in result.err
    assert finished_jobs(folder) == {1}


def test_dask_on_a_batch_system_runs_the_jobs_and_ends(tmp_path, queue):
    pytest.importorskip("dask_jobqueue")
    cluster = (
        "{_target_: dask_jobqueue.SLURMCluster, cores: 1, processes: 1, memory: 1GB, "
        f"interface: lo, local_directory: {tmp_path}, log_directory: {tmp_path}, "
        "scheduler_options: {dashboard: false}}"
    )
    overrides = (
        "hydra/launcher=dask",
        "hydra.launcher.workers=2",
        f"hydra.launcher.cluster={cluster}",
    )
    result = wait_for_end(start_sweep(tmp_path / "sweep", *SLURM_JOBS, *overrides), 300)
    assert result.code == 0, result
    assert finished_jobs(tmp_path / "sweep") == set(range(N_SLURM_JOBS))
    assert wait_until(lambda: queue() == [])


def moments_of_the_start():
    """Return four random moments, in seconds after a sweep was started."""
    generator = random.Random("slurm")
    return [round(generator.uniform(0.2, 7.0), 1) for _ in range(4)]


@pytest.mark.parametrize("pause", moments_of_the_start())
def test_ctrl_c_at_any_moment_of_the_start_ends_in_a_line(pause, tmp_path):
    environment = marked_environment()
    process = start_sweep(tmp_path / "sweep", *SLURM_JOBS, *SLURM, env=environment)
    interrupt_sweep(process, environment, pause)
