"""SIGKILL, SIGTERM and Ctrl-C at random moments: finished jobs stay, the same command resumes.

By default a sweep in this process is interrupted, and one in a process of its own gets Ctrl-C. The
remains of a killed sweep and the attacks on all launchers are slow.
"""

import contextlib
import os
import random
import re
import signal
import sys
import time
from pathlib import Path
from shutil import copytree

import pytest

from experiments.cli.ends import deferred_interrupt, interruptible
from experiments.sweeps.engines import InProcess
from experiments.sweeps.store import Manifest
from helpers.jobs import wait_until
from helpers.sweeps import (
    N_JOBS,
    QUICK_JOB,
    QUICK_JOBS,
    assert_no_process_is_left,
    check_sweep_is_whole,
    collect_sweep,
    finished_jobs,
    finished_outcomes,
    interrupt_sweep,
    marked_environment,
    read_job_outcome,
    run_sweep,
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
#: number of jobs, finished or not run, in the line on an interrupted sweep
INTERRUPTED_LINE = rf"{N_JOBS} jobs: (\d+) done, (\d+) not run, in .*"


@pytest.fixture(scope="module")
def expected(swept):
    """Results of the sweep if nothing happens to it."""
    return sweep_results(swept)


@pytest.fixture(scope="module")
def expected_collection(swept, tmp_path_factory):
    """What `sysid-collect` makes of the sweep if nothing happens to it."""
    return collect_sweep(swept, tmp_path_factory.mktemp("collected"))


def wait_for_jobs(folder, process, n=0):
    """Wait until a job of the sweep runs, and n more jobs have ended; or the sweep has ended."""
    n_before = len(finished_jobs(folder))
    assert wait_until(lambda: running_jobs(folder) or process.poll() is not None)
    assert wait_until(
        lambda: len(finished_jobs(folder)) >= n_before + n or process.poll() is not None
    )


def check_interruption_is_reported(result, folder):
    """Check the output of an interrupted sweep; return the number of finished jobs in it."""
    assert result.code == 130, result
    assert result.err == ""
    lines = result.out.splitlines()
    assert lines[1] == "Sweep interrupted"
    n_done, n_not_run = map(int, re.fullmatch(INTERRUPTED_LINE, lines[2]).groups())
    assert n_not_run == N_JOBS - n_done
    # a job may end while the sweep does
    n_finished = len(finished_jobs(folder))
    assert n_finished - 2 <= n_done <= n_finished < N_JOBS
    assert lines[3].startswith("The same command again runs only what is missing")
    return n_done


# --- in this process


def test_an_interrupted_sweep_says_what_is_done_and_goes_on(tmp_path, monkeypatch, expected):
    folder = tmp_path / "sweep"
    run = InProcess.run

    def interrupt_after_two_jobs(self, jobs):
        """Get Ctrl-C when the third job has ended, before its outcome is reported."""
        for n_ended, outcome in enumerate(run(self, jobs)):
            if n_ended == 2:
                os.kill(os.getpid(), signal.SIGINT)
            yield outcome

    monkeypatch.setattr(InProcess, "run", interrupt_after_two_jobs)
    result = run_sweep(folder, *QUICK_JOBS)
    assert check_interruption_is_reported(result, folder) == 2
    assert finished_jobs(folder) == {0, 1, 2}

    before = finished_outcomes(folder)
    monkeypatch.undo()
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected)
    assert {number: read_job_outcome(folder, number) for number in before} == before


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_kill(swept, tmp_path, expected, expected_collection):
    """A job was at work, another wrote its outcome, and the others had not been started."""
    folder = Path(copytree(swept, tmp_path / "sweep"))
    at_work = folder / "6"
    for name in ("job.nc", "outcome.json"):
        (at_work / name).unlink()
    (at_work / ".job.nc.0123abcd.tmp").write_bytes(b"half a result")
    (at_work / "attempts").write_text("999999999\n")
    writing = folder / "7"
    (writing / "outcome.json").rename(writing / ".outcome.json.0123abcd.tmp")
    not_started = folder / "8"
    for path in not_started.iterdir():
        if path.is_file():
            path.unlink()
    before = finished_outcomes(folder)
    assert before.keys() == set(range(6))
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected)
    for number, outcome in before.items():
        assert read_job_outcome(folder, number) == outcome, "a finished job was run again"
    assert collect_sweep(folder, tmp_path / "collected") == expected_collection


def signal_handlers():
    """Return everything that `interruptible` replaces while it lasts."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return handlers, sys.unraisablehook


@pytest.fixture
def quiet_and_restored(capsys):
    """Check that nothing was printed as an error and that handlers of signals are restored."""
    before = signal_handlers()
    yield
    assert capsys.readouterr().err == ""
    assert signal_handlers() == before


both_signals = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "sigterm"]
)


@both_signals
@pytest.mark.usefixtures("quiet_and_restored")
def test_a_deferred_interrupt_comes_after_the_block(number):
    with interruptible() as check:
        check()
        has_ended = False
        with pytest.raises(KeyboardInterrupt), deferred_interrupt():  # noqa: PT012
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            has_ended = True
        assert has_ended, "the block was cut off"


@both_signals
@pytest.mark.usefixtures("quiet_and_restored")
def test_a_deferred_interrupt_replaces_the_error_that_it_may_have_caused(number):
    def fail_after_the_signal():
        os.kill(os.getpid(), number)
        raise OSError("what the signal may have caused")

    with interruptible(), pytest.raises(KeyboardInterrupt), deferred_interrupt():
        fail_after_the_signal()


@both_signals
@pytest.mark.usefixtures("quiet_and_restored")
def test_an_interrupt_that_python_swallows_is_not_lost(number):
    """In a finaliser, for example, the exception is printed, and the program goes on."""

    class Finalised:
        def __del__(self):
            os.kill(os.getpid(), number)
            time.sleep(0.01)

    with interruptible() as check:
        Finalised()
        with pytest.raises(KeyboardInterrupt):
            check()


def test_an_interrupt_that_the_process_ignores_stays_ignored():
    """Jobs in the background of a shell ignore Ctrl-C."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as check, deferred_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, handler)


def test_an_error_of_a_library_that_an_interrupt_has_cut_off_is_the_interrupt(
    tmp_path, monkeypatch
):
    def interrupted_open(*arguments):
        """Raise what a library raises that hides the interrupt."""
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        raise ValueError("half of a configuration")

    monkeypatch.setattr(Manifest, "open", interrupted_open)
    result = run_sweep(tmp_path / "sweep", *QUICK_JOB, "cache=null", "seed=0,1")
    assert result.code == 130
    assert result.out + result.err == "Sweep interrupted before its first job\n"


# --- in processes of their own


def launchers(*names, quick=()):
    """Return launchers as parameters of a test, slow except for the quick ones."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("launcher", launchers(*LAUNCHERS, quick=[]))
def test_ctrl_c_ends_a_sweep_and_its_workers_and_it_goes_on(launcher, tmp_path, expected):
    folder = tmp_path / "sweep"
    environment = marked_environment()
    process = start_sweep(folder, *QUICK_JOBS, *LAUNCHERS[launcher], env=environment)
    wait_for_jobs(folder, process, 2)
    if launcher == "dask":
        os.kill(process.pid, signal.SIGTERM)
    else:
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches all processes of a terminal
    check_interruption_is_reported(wait_for_end(process), folder)
    assert_no_process_is_left(environment)
    before = finished_outcomes(folder)
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected)
    for number, outcome in before.items():
        assert read_job_outcome(folder, number) == outcome, "a finished job was run again"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["in_process", "joblib", "dask"])
def test_kills_of_a_sweep_cost_nothing_but_the_jobs_at_work_and_leave_no_process(
    launcher, tmp_path, expected, expected_collection
):
    folder = tmp_path / "sweep"
    generator = random.Random(2)
    n_hits = 0
    finished = set()
    n_kills = 1 if launcher == "in_process" else 4
    for _ in range(n_kills):
        environment = marked_environment()
        process = start_sweep(folder, *QUICK_JOBS, *LAUNCHERS[launcher], env=environment)
        is_killed_at_its_start = generator.random() < 0.2
        if is_killed_at_its_start:
            time.sleep(generator.uniform(0.0, 2.0))
        else:
            wait_for_jobs(folder, process, generator.choice((0, 1, 1)))
            time.sleep(generator.uniform(0.0, 0.15))
        n_hits += process.poll() is None and len(finished_jobs(folder)) < N_JOBS
        process.kill()
        assert "Traceback" not in wait_for_end(process).err
        assert_no_process_is_left(environment)
        assert finished <= finished_jobs(folder), "a finished job was lost"
        finished = finished_jobs(folder)
    too_late = "too many kills came after the last job: the test did too little"
    assert n_hits >= 0.5 * n_kills, too_late
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected)
    assert collect_sweep(folder, folder.parent / "collected") == expected_collection


def kill_workers(folder, process, n_kills):
    """Kill workers at their jobs, one after the other; return the jobs that lost a worker.

    No job loses two workers, because it has then failed.
    """
    generator = random.Random(3)
    hit = set()
    for _ in range(n_kills):
        wait_for_jobs(folder, process, 1)
        workers: dict[int, int] = {}
        while not workers and process.poll() is None:  # all may be between two jobs
            time.sleep(0.01)  # a tenth of a job
            workers = {
                number: pid
                for number, pid in running_jobs(folder).items()
                if pid != process.pid and number not in hit
            }
        if workers:
            number = generator.choice(sorted(workers))
            hit.add(number)
            os.kill(workers[number], signal.SIGKILL)
    return hit


@pytest.mark.slow
def test_a_sweep_of_dask_gives_the_jobs_of_killed_workers_another_attempt(tmp_path, expected):
    folder = tmp_path / "sweep"
    environment = marked_environment()
    process = start_sweep(folder, *QUICK_JOBS, *LAUNCHERS["dask"], env=environment)
    assert kill_workers(folder, process, 3), "no worker was at a job: the test did nothing"
    result = wait_for_end(process)
    assert "Traceback" not in result.err
    assert result.code == 0, result
    assert f"{N_JOBS} done" in result.out
    assert_no_process_is_left(environment)
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected)


@pytest.mark.slow
def test_a_killed_worker_ends_a_sweep_of_joblib_and_the_same_command_resumes(tmp_path, expected):
    folder = tmp_path / "sweep"
    environment = marked_environment()
    process = start_sweep(folder, *QUICK_JOBS, *LAUNCHERS["joblib"], env=environment)
    assert kill_workers(folder, process, 1), "no worker was at a job: the test did nothing"
    result = wait_for_end(process)
    assert "Traceback" not in result.err
    assert result.code == 1
    assert "Sweep stopped: a worker process ended" in result.out
    assert "The same command again runs only what is missing" in result.out
    assert_no_process_is_left(environment)
    check_sweep_is_whole(folder, N_JOBS, QUICK_JOBS, expected=expected)


@pytest.mark.slow
def test_ctrl_c_while_jobs_are_composed_ends_before_the_first_one(tmp_path):
    environment = marked_environment()
    folder = tmp_path / "sweep"
    jobs = (*QUICK_JOB, "cache=null", "seed=range(0,3000)")
    process = start_sweep(folder, *jobs, env=environment)
    assert wait_until((folder / ".lock").exists)
    result = interrupt_sweep(process, environment, 0.3)
    assert result.out + result.err == "Sweep interrupted before its first job\n"
    assert not list(folder.glob("[0-9]*"))


def moments_of_the_start():
    """Return launchers and the seconds after which Ctrl-C comes, as parameters of a test."""
    moments = [pytest.param("in_process", 0.3)]
    for launcher in ("joblib", "dask", "local"):
        generator = random.Random(launcher)
        for _ in range(4):
            pause = round(generator.uniform(0.2, 7.0), 2)
            moments.append(pytest.param(launcher, pause, marks=pytest.mark.slow))
    return moments


@pytest.mark.parametrize(("launcher", "pause"), moments_of_the_start())
def test_ctrl_c_at_any_moment_of_the_start_ends_in_a_line(launcher, pause, tmp_path):
    environment = marked_environment()
    jobs = (*QUICK_JOB, "cache=null", "seed=range(0,300)")
    process = start_sweep(tmp_path / "sweep", *jobs, *LAUNCHERS[launcher], env=environment)
    interrupt_sweep(process, environment, pause)
