"""SIGKILL, SIGTERM and Ctrl-C at random moments: what is finished is kept, the rest comes out as if nothing was."""

import os
import random
import re
import signal
import sys
import time
import uuid

import psutil
import pytest
from running import PLAIN
from sweep_command import (
    QUICK,
    collected,
    done,
    ended,
    environment,
    half_written,
    outcome,
    results,
    started,
    sweep,
    wait_for,
)

from experiments.interrupt import interruptible

if PLAIN:
    pytest.skip("processes end alike without the compiler", allow_module_level=True)

N = 16
JOBS = (*QUICK, f"seed=range(0,{N})")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.workers=2")
DASK = ("hydra/launcher=dask", "hydra.launcher.workers=2")
MARK = "SYSID_TEST_SWEEP"  # an environment variable that all processes of a sweep have


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the jobs find if nothing happens."""
    folder = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    assert sweep(folder, *JOBS).code == 0
    found = results(folder)
    assert len(found) == N
    return found, collected(folder, folder.parent / "collected")


def marked():
    """Environment of a sweep whose processes can be found again."""
    return environment() | {MARK: uuid.uuid4().hex}


def living(mark):
    """Processes of a sweep."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def at_work(folder):
    """Processes that run a job now, by its number."""
    found = {}
    for path in folder.glob("*/attempts"):
        if not (path.parent / "outcome.json").exists() and (lines := path.read_text().split()):
            found[int(path.parent.name)] = int(lines[-1])
    return found


def begun(folder, process, n=0):
    """Wait until more than n jobs have ended since the sweep has started."""
    before = len(done(folder))
    assert wait_for(lambda: at_work(folder) or process.poll() is not None)
    assert wait_for(lambda: len(done(folder)) >= before + n or process.poll() is not None)


def check_whole(folder, undisturbed, environment):
    """The sweep can be resumed, and then it is as if nothing had happened."""
    said = ended(started(folder, *JOBS, env=environment))
    assert said.code == 0, said
    assert "Traceback" not in said.out + said.err
    assert done(folder) == set(range(N))
    assert half_written(folder) == []
    found, (expected, expected_together) = results(folder), undisturbed
    assert found.keys() == expected.keys()
    for number in found:
        assert found[number] == expected[number], number
    together = collected(folder, folder.parent / "collected")
    assert together.keys() == expected_together.keys()
    for name in together:
        assert together[name] == expected_together[name], name
    assert not [path for path in folder.rglob("*") if path.name.startswith(".job")]


def killed_and_resumed(folder, undisturbed, n_kills, seed, *launcher):
    """Kill the main process of a sweep again and again, at random moments."""
    random_, hits, read_outcome = random.Random(seed), 0, set()
    for _ in range(n_kills):
        own = marked()
        process = started(folder, *JOBS, *launcher, env=own)
        if random_.random() < 0.2:  # while it starts
            time.sleep(random_.uniform(0.0, 2.0))
        else:
            begun(folder, process, random_.choice((0, 1, 1)))
            time.sleep(random_.uniform(0.0, 0.15))
        hits += process.poll() is None and len(done(folder)) < N
        process.kill()
        said = ended(process)
        assert "Traceback" not in said.err
        assert wait_for(lambda own=own: not living(own[MARK])), "processes outlive their sweep"
        assert read_outcome <= done(folder), "a finished job was lost"
        read_outcome = done(folder)
    assert hits >= 0.7 * n_kills, "too many kills came after the last job: the test did too little"
    check_whole(folder, undisturbed, marked())


def test_kills_of_the_sweep_cost_nothing_but_the_job_at_work(tmp_path, undisturbed):
    killed_and_resumed(tmp_path / "sweep", undisturbed, 2, 0)


@pytest.mark.slow
def test_ten_kills_of_the_sweep_cost_nothing_but_the_jobs_at_work(tmp_path, undisturbed):
    killed_and_resumed(tmp_path / "sweep", undisturbed, 10, 1)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [JOBLIB, DASK], ids=["joblib", "dask"])
def test_kills_of_a_sweep_with_workers_leave_no_process(launcher, tmp_path, undisturbed):
    pytest.importorskip("joblib" if launcher is JOBLIB else "distributed")
    killed_and_resumed(tmp_path / "sweep", undisturbed, 4, 2, *launcher)


def kill_a_worker(folder, process, random_, spared=()):
    """Kill a process that runs a job; the number of the job, None if there is none any more."""
    if not wait_for(lambda: at_work(folder) or process.poll() is not None, 30) or process.poll() is not None:
        return None
    time.sleep(random_.uniform(0.0, 0.05))
    busy = at_work(folder)
    busy = {number: pid for number, pid in busy.items() if pid != process.pid and number not in spared}
    if not busy:
        return None
    number = random_.choice(sorted(busy))
    try:
        os.kill(busy[number], signal.SIGKILL)
    except ProcessLookupError:
        return None
    return number


@pytest.mark.slow
def test_workers_of_dask_that_are_killed_cost_an_attempt_of_their_job(tmp_path, undisturbed):
    pytest.importorskip("distributed")
    folder, random_, own = tmp_path / "sweep", random.Random(3), marked()
    process, hit = started(folder, *JOBS, *DASK, env=own), set()
    for _ in range(3):
        begun(folder, process, 1)
        number = kill_a_worker(folder, process, random_, hit)  # a job that loses two workers has failed
        hit |= {number} - {None}
    said = ended(process)
    assert hit, "no worker was at a job: the test did nothing"
    assert said.code == 0, said
    assert f"{N} done" in said.out
    assert wait_for(lambda: not living(own[MARK]))
    check_whole(folder, undisturbed, marked())


@pytest.mark.slow
def test_a_worker_of_joblib_that_is_killed_ends_the_sweep_which_says_how_to_resume(tmp_path, undisturbed):
    pytest.importorskip("joblib")
    folder, random_ = tmp_path / "sweep", random.Random(4)
    stopped = 0
    for _ in range(3):
        own = marked()
        process = started(folder, *JOBS, *JOBLIB, env=own)
        begun(folder, process, 1)
        number = kill_a_worker(folder, process, random_)
        said = ended(process)
        assert wait_for(lambda own=own: not living(own[MARK]))
        assert "Traceback" not in said.err
        if number is not None and said.code:
            stopped += 1
            assert said.code == 1
            assert "Sweep stopped: a worker process ended" in said.out
            assert "not run" in said.out
            assert "The same command again runs only what is missing" in said.out
    assert stopped, "no worker was at a job: the test did nothing"
    check_whole(folder, undisturbed, marked())


@pytest.mark.parametrize(
    "signal_", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["SIGINT", "SIGTERM"]
)
def test_an_interrupted_sweep_says_what_is_done_and_how_to_go_on(signal_, tmp_path, undisturbed):
    interrupted(tmp_path / "sweep", signal_, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("launcher", [JOBLIB, DASK], ids=["joblib", "dask"])
def test_an_interrupted_sweep_ends_its_workers(launcher, signal_, tmp_path, undisturbed):
    pytest.importorskip("joblib" if launcher is JOBLIB else "distributed")
    interrupted(tmp_path / "sweep", signal_, undisturbed, *launcher)


def interrupted(folder, signal_, undisturbed, *launcher):
    own = marked()
    process = started(folder, *JOBS, *launcher, env=own)
    begun(folder, process, 2)
    # Ctrl-C reaches every process of the terminal
    (os.killpg if signal_ == signal.SIGINT else os.kill)(process.pid, signal_)
    said = ended(process)
    n_done = len(done(folder))
    assert said.code == 130, said
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[1] == "Sweep interrupted"
    told = int(re.fullmatch(rf"{N} jobs: (\d+) done, (\d+) not run, in .*", lines[2])[1])
    assert n_done - (2 if launcher else 1) <= told <= n_done  # a job may end while the sweep does
    assert f"{N - told} not run" in lines[2]
    assert lines[3].startswith("The same command again runs only what is missing")
    assert 2 <= n_done < N
    assert wait_for(lambda: not living(own[MARK])), living(own[MARK])
    before = {number: outcome(folder, number) for number in done(folder)}
    check_whole(folder, undisturbed, marked())
    assert before == {number: outcome(folder, number) for number in before}, "finished jobs were run again"


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupt_that_python_swallows_is_not_lost(signal_, capsys):
    """In a finaliser, say, an exception is printed, and the program goes on."""

    class Finalised:
        def __del__(self):
            os.kill(os.getpid(), signal_)
            time.sleep(0.01)

    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)], sys.unraisablehook
    with interruptible() as check:
        check()
        Finalised()
        with pytest.raises(KeyboardInterrupt):
            check()
    assert capsys.readouterr().err == ""
    assert ([signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)], sys.unraisablehook) == before


def test_a_sweep_in_the_background_of_a_shell_ignores_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible() as check:
            os.kill(os.getpid(), signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_sweep_that_is_interrupted_before_its_first_job_says_so(tmp_path):
    """Ctrl-C while 3000 jobs are composed."""
    folder = tmp_path / "sweep"
    process = started(folder, *QUICK, "seed=range(0,3000)")
    assert wait_for(lambda: (folder / ".owner").exists())
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    said = ended(process)
    assert said.code == 130, said
    assert "Traceback" not in said.err
    assert said.out + said.err == "Sweep interrupted before its first job\n"
    assert not list(folder.glob("[0-9]*"))
