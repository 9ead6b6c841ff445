"""SIGKILL, SIGTERM and Ctrl-C at random moments: what is finished is kept, the rest comes out as if
nothing was.
"""

import contextlib
import os
import random
import re
import signal
import sys
import time

import pytest

import helpers.sweeps as sweeps
from experiments.cli.ends import deferred_interrupt, interruptible
from experiments.sweeps.store import Manifest
from helpers.jobs import wait_until
from helpers.sweeps import (
    N_JOBS,
    QUICK_JOB,
    QUICK_JOBS,
    check_sweep_is_whole,
    finished_jobs,
    living_processes,
    marked_environment,
    read_job_outcome,
    running_jobs,
    start_sweep,
    sweep_results,
    wait_for_end,
)

LAUNCHERS = {
    "in_process": (),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.workers=2"),
    "dask": ("hydra/launcher=dask", "hydra.launcher.workers=2"),
    "local": (
        "hydra/launcher=slurm",
        "hydra.launcher.cluster=local",
        "hydra.launcher.workers=2",
    ),
}


@pytest.fixture(scope="module")
def expected(swept, tmp_path_factory):
    """What the jobs find if nothing happens."""
    return sweep_results(swept), sweeps.collect_sweep(swept, tmp_path_factory.mktemp("collected"))


def begun(folder, process, n=0):
    """Wait until more than n jobs have ended since the sweep has started."""
    before = len(finished_jobs(folder))
    assert wait_until(lambda: running_jobs(folder) or process.poll() is not None)
    assert wait_until(
        lambda: len(finished_jobs(folder)) >= before + n or process.poll() is not None
    )


def every(*names, quick=()):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("launcher", every("in_process", "joblib", "dask", quick=["in_process"]))
def test_kills_of_a_sweep_cost_nothing_but_the_jobs_at_work_and_leave_no_process(
    launcher, tmp_path, expected
):
    folder = tmp_path / "sweep"
    random_ = random.Random(2)
    hits = 0
    kept = set()
    n_kills = 1 if launcher == "in_process" else 4
    for _ in range(n_kills):
        own = marked_environment()
        process = start_sweep(folder, *QUICK_JOBS, *LAUNCHERS[launcher], env=own)
        if random_.random() < 0.2:  # while it starts
            time.sleep(random_.uniform(0.0, 2.0))
        else:
            begun(folder, process, random_.choice((0, 1, 1)))
            time.sleep(random_.uniform(0.0, 0.15))
        hits += process.poll() is None and len(finished_jobs(folder)) < N_JOBS
        process.kill()
        assert "Traceback" not in wait_for_end(process).err
        assert wait_until(lambda own=own: not living_processes(own)), (
            "processes outlive their sweep"
        )
        assert kept <= finished_jobs(folder), "a finished job was lost"
        kept = finished_jobs(folder)
    assert hits >= 0.5 * n_kills, "too many kills came after the last job: the test did too little"
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected[0])
    assert sweeps.collect_sweep(folder, folder.parent / "collected") == expected[1]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "dask"])
def test_workers_that_are_killed(launcher, tmp_path, expected):
    """Dask goes on with another attempt; the pool of joblib ends, and the same command resumes."""
    folder = tmp_path / "sweep"
    random_ = random.Random(3)
    own = marked_environment()
    hit = set()
    process = start_sweep(folder, *QUICK_JOBS, *LAUNCHERS[launcher], env=own)
    for _ in range(3 if launcher == "dask" else 1):
        begun(folder, process, 1)
        busy = {
            number: pid
            for number, pid in running_jobs(folder).items()
            if pid != process.pid and number not in hit
        }
        if busy:
            number = random_.choice(sorted(busy))  # a job that loses two workers has failed
            hit.add(number)
            os.kill(busy[number], signal.SIGKILL)
    said = wait_for_end(process)
    assert hit, "no worker was at a job: the test did nothing"
    assert "Traceback" not in said.err
    if launcher == "dask":
        assert (said.code, f"{N_JOBS} done" in said.out) == (0, True), said
    else:
        assert said.code == 1
        assert "Sweep stopped: a worker process ended" in said.out
        assert "The same command again runs only what is missing" in said.out
    assert wait_until(lambda: not living_processes(own))
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected[0])


@pytest.mark.parametrize("launcher", every(*LAUNCHERS, quick=["in_process"]))
def test_an_interrupted_sweep_says_what_is_done_ends_its_workers_and_goes_on(
    launcher, tmp_path, expected
):
    folder = tmp_path / "sweep"
    own = marked_environment()
    number = signal.SIGTERM if launcher == "dask" else signal.SIGINT
    process = start_sweep(folder, *QUICK_JOBS, *LAUNCHERS[launcher], env=own)
    begun(folder, process, 2)
    (os.killpg if number == signal.SIGINT else os.kill)(
        process.pid, number
    )  # Ctrl-C reaches the whole terminal
    said = wait_for_end(process)
    n_done = len(finished_jobs(folder))
    assert (said.code, said.err) == (130, ""), said
    lines = said.out.splitlines()
    assert lines[1] == "Sweep interrupted"
    told = int(re.fullmatch(rf"{N_JOBS} jobs: (\d+) done, (\d+) not run, in .*", lines[2])[1])
    assert n_done - 2 <= told <= n_done < N_JOBS  # a job may end while the sweep does
    assert f"{N_JOBS - told} not run" in lines[2]
    assert lines[3].startswith("The same command again runs only what is missing")
    assert wait_until(lambda: not living_processes(own)), living_processes(own)
    before = {number: read_job_outcome(folder, number) for number in finished_jobs(folder)}
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected[0])
    assert before == {number: read_job_outcome(folder, number) for number in before}, (
        "finished jobs were run again"
    )


@pytest.mark.parametrize("launcher", every(*LAUNCHERS, quick=["in_process"]))
def test_ctrl_c_at_any_moment_of_the_start_ends_in_a_line(launcher, tmp_path):
    random_ = random.Random(launcher)
    moments = [random_.uniform(0.2, 7.0) for _ in range(4)] if LAUNCHERS[launcher] else [0.8, None]
    for number, moment in enumerate(moments):  # None: while 3000 jobs are composed
        own = marked_environment()
        folder = tmp_path / f"{number}"
        jobs = (*QUICK_JOB, "cache=null", f"seed=range(0,{300 if moment else 3000})")
        process = start_sweep(folder, *jobs, *LAUNCHERS[launcher], env=own)
        assert moment or wait_until(lambda folder=folder: (folder / ".lock").exists())
        said = sweeps.interrupt_sweep(process, own, moment or 0.3)
        assert moment or (said.out + said.err) == "Sweep interrupted before its first job\n"
        assert moment or not list(folder.glob("[0-9]*"))


def test_an_interrupt_that_is_swallowed_or_deferred_is_not_lost_and_an_ignored_one_is_ignored(
    capsys,
):
    """In a finaliser, say, an exception is printed, and the program goes on."""

    class Finalised:
        def __del__(self):
            os.kill(os.getpid(), number)
            time.sleep(0.01)

    def handlers():
        return [
            signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)
        ], sys.unraisablehook

    before = handlers()
    for number in (signal.SIGINT, signal.SIGTERM):
        with interruptible() as check:
            check()
            with pytest.raises(KeyboardInterrupt), deferred_interrupt():
                signalled_and_failing(number)
        with interruptible() as check:
            Finalised()
            with pytest.raises(KeyboardInterrupt):
                check()
    assert capsys.readouterr().err == ""
    assert handlers() == before
    own = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    try:
        with interruptible() as check, deferred_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, own)


def test_an_error_of_a_library_that_an_interrupt_has_cut_off_is_the_interrupt(
    tmp_path, monkeypatch
):
    def cut_off(*arguments):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        raise ValueError("half of a configuration")

    monkeypatch.setattr(Manifest, "open", cut_off)
    said = sweeps.run_sweep(tmp_path / "sweep", *QUICK_JOB, "cache=null", "seed=0,1")
    assert (said.code, said.out + said.err) == (
        130,
        "Sweep interrupted before its first job\n",
    )


def signalled_and_failing(number):
    os.kill(os.getpid(), number)
    raise OSError("what the signal may have caused")
