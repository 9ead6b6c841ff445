"""Slurm through submitit: the tasks it submits, what becomes of them, what it leaves. There is no
real Slurm here.
"""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from unittest import mock

import pytest

from experiments.sweeps import slurm_engine
from experiments.sweeps.engines import EngineStopped
from experiments.sweeps.slurm_engine import (
    LocalSubmission,
    SlurmQueue,
    Submission,
    TaskBook,
)
from experiments.sweeps.store import ATTEMPTS, Outcome
from experiments.sweeps.task import keep
from helpers.fake_slurm import __file__ as FAKE
from helpers.jobs import DRIVER, count_starts, make_job, make_jobs, script_process, wait_until


def by_number(outcomes):
    return {outcome.number: outcome for outcome in outcomes}


# --- the book of tasks, with tasks that are no processes


class Imagined:
    """Tasks that run in this process when they are looked at; each ends as its job's `fate`
    says.
    """

    poll = file_delay = 0.0

    def __init__(self, fates=None, held=(), looks=1000, eager=False):
        self.fates = {number: list(fate) for number, fate in (fates or {}).items()}
        self.sent = []
        self.places = []
        self.cancelled = []
        self.cleared = {}
        self.errors = {}
        self.batches, self.running, self.refusals, self.silent, self.full = (
            {},
            set(),
            0,
            False,
            False,
        )
        # tasks that run on, for so many looks
        self.held = set(held)
        self.looks = looks
        self.eager = eager  # whether tasks run while they are sent

    def send(self, batches, at_a_time):
        if self.full and self.running:
            self.refusals += 1
            raise RuntimeError("sbatch: error:\n too many")
        names = [f"{len(self.batches) + index}" for index in range(len(batches))]
        self.batches |= dict(zip(names, batches, strict=True))
        self.sent.append([[one.number for one in batch] for batch in batches])
        self.places.append(at_a_time)
        self.running |= set(names)
        Path(batches[0][0].folder, "..", ".slurm").resolve().mkdir(parents=True, exist_ok=True)
        if self.eager:
            self.query_tasks(())
        return names

    def query_tasks(self, known):
        if self.silent:
            return None
        self.looks -= 1
        self.held = self.held if self.looks > 0 else set()
        for name in sorted(self.running - self.held):
            self.running.discard(name)
            self._run(name)
        return dict.fromkeys(sorted(self.running), True)

    def _run(self, name):
        for one in self.batches[name]:
            fate = self.fates.get(one.number, [])
            end = fate.pop(0) if fate else "done"
            if end == "before":  # the task dies before this job starts
                return
            Path(one.folder).mkdir(parents=True, exist_ok=True)
            if end == "unstored":  # a full disk
                self.errors[name] = "OSError: the outcome could not be stored"
                return
            with open(Path(one.folder) / ATTEMPTS, "a") as file:
                file.write("1\n")
            if end == "killed":
                return
            keep(
                Outcome(one.number, end == "done", 1.0, error="" if end == "done" else end),
                one,
            )
            if end == "limit":  # its guard said why and killed the task
                return

    def room(self, n_tasks, most, largest):
        return min(most - n_tasks, largest)

    def cancel(self, known, spared=()):
        self.cancelled += sorted(self.running - set(spared))
        self.running &= set(spared)

    def error(self, name):
        return self.errors.get(name, "")

    def log(self, name):
        return Path(f"/log/{name}.err")

    def clear(self, name, with_logs):
        self.cleared[name] = with_logs


def outcomes_of(submission, folder, todo, workers=100, jobs_per_task=1, array_size=100):
    settings = SlurmQueue(folder, "local", workers, jobs_per_task, array_size=array_size, poll=1e-6)
    return TaskBook(settings, submission).outcomes(todo)


def test_a_task_that_dies_loses_only_the_job_it_was_at_and_two_of_them_fail_it(
    tmp_path,
):
    todo = make_jobs(tmp_path, ["number"] * 7)
    place = Imagined({1: ["killed"], 4: ["limit"]})
    found = by_number(outcomes_of(place, tmp_path, todo, jobs_per_task=3))
    assert sorted(found) == list(range(7))
    assert {number for number, outcome in found.items() if not outcome.done} == {4}
    assert place.sent[0] == [[0, 1, 2], [3, 4, 5], [6]]
    assert sorted(place.sent[1][0]) == [1, 2, 5]
    assert [count_starts(one) for one in todo] == [1, 2, 1, 1, 1, 1, 1]
    assert place.cleared == {"0": False, "1": False, "2": True, "3": True}
    place = Imagined({0: ["killed"]}, eager=True)
    assert next(
        outcomes_of(place, tmp_path / "eager", make_jobs(tmp_path / "eager", ["number"]))
    ).done
    place = Imagined({0: ["killed"] * 2})
    found = by_number(
        outcomes_of(
            place,
            tmp_path / "two",
            make_jobs(tmp_path / "two", ["number"] * 2),
            jobs_per_task=2,
        )
    )
    assert (found[0].done, found[1].done) == (False, True)
    assert found[0].error.startswith("its worker was killed twice")
    assert "log: /log/1.err" in found[0].error
    assert place.sent == [[[0, 1]], [[0, 1]], [[1]]]
    place = Imagined({0: ["before"] * 9, 1: ["unstored"] * 2})
    found = by_number(
        outcomes_of(place, tmp_path / "more", make_jobs(tmp_path / "more", ["number"] * 2))
    )
    assert (found[0].done, found[1].done) == (False, False)
    assert found[1].error.startswith("OSError: the outcome could not be stored; log: ")
    assert sum(map(len, place.sent)) == 4


def test_no_more_tasks_are_sent_than_may_run(tmp_path):
    place = Imagined()
    list(outcomes_of(place, tmp_path, make_jobs(tmp_path, ["number"] * 7), workers=3, array_size=2))
    assert [len(batches) for batches in place.sent] == [2, 2, 2, 1]
    assert place.places == [3, 3, 3, 3]
    place = Imagined(held={"0"})  # it keeps its place
    running = outcomes_of(
        place, tmp_path / "held", make_jobs(tmp_path / "held", ["number"] * 6), workers=3
    )
    assert [next(running).number for _ in range(5)] == [1, 2, 3, 4, 5]
    assert place.sent == [[[0], [1], [2]], [[3], [4]], [[5]]]
    assert place.places == [3, 2, 2]


def test_refused_tasks_wait_for_those_that_are_there_and_a_silent_queue_stops_the_sweep(
    tmp_path, monkeypatch
):
    place = Imagined(held={"1"})
    running = outcomes_of(
        place, tmp_path, make_jobs(tmp_path, ["number"] * 4), workers=2, array_size=2
    )
    assert next(running).number == 0
    # while one is there, which ends after three looks
    place.full = True
    place.looks = 3
    assert sorted(outcome.number for outcome in running) == [1, 2, 3]
    assert place.refusals == 1
    assert place.sent == [[[0], [1]], [[2], [3]]]
    monkeypatch.setattr(slurm_engine, "MAX_SILENCE", 0.05)
    place = Imagined()
    running = outcomes_of(place, tmp_path / "silent", make_jobs(tmp_path / "silent", ["number"]))
    place.silent = True
    with pytest.raises(EngineStopped, match="squeue has not answered"):
        next(running)
    assert not place.cancelled


def test_the_same_command_takes_over_what_still_runs_and_cancels_what_was_changed(
    tmp_path,
):
    def left(folder, todo, **options):
        """A submission with the tasks of a sweep that was killed: all of them run on."""
        place = Imagined(held=map(str, range(9)), looks=3)
        book = TaskBook(SlurmQueue(folder, "local", 9, **options), place)
        book._waiting.extend(todo)
        book._submit()
        return place

    todo = make_jobs(tmp_path / "a", ["number"] * 4)
    place = left(tmp_path / "a", todo, jobs_per_task=2)
    found = by_number(
        outcomes_of(place, tmp_path / "a", todo[1:], jobs_per_task=2)
    )  # the first was finished
    assert sorted(found) == [1, 2, 3]
    assert place.sent == [[[0, 1], [2, 3]]]
    assert [count_starts(one) for one in todo] == [1, 1, 1, 1]

    todo = make_jobs(tmp_path / "b", ["number"] * 3)
    place = left(tmp_path / "b", todo)
    place.batches["unknown"] = ()
    place.running.add("unknown")
    place.held.add("unknown")
    changed = [todo[0], replace(todo[1], identity="new"), todo[2]]
    found = by_number(outcomes_of(place, tmp_path / "b", changed))
    assert place.cancelled == ["1", "unknown"]
    assert place.sent[1:] == [[[1]]]
    assert sorted(found) == [0, 1, 2]

    left(tmp_path / "d", make_jobs(tmp_path / "d", ["number"]))
    with pytest.raises(EngineStopped, match=r"hydra.launcher.cluster=local may still run"):
        next(
            TaskBook(SlurmQueue(tmp_path / "d"), place).outcomes(
                make_jobs(tmp_path / "d", ["number"])
            )
        )


# --- Slurm's commands


def test_the_script_asks_for_what_was_set_and_tasks_are_found_by_the_name_of_the_sweep(
    tmp_path, monkeypatch
):
    # a Slurm that is not there: its state, its commands
    slurm = tmp_path / "state"
    commands = tmp_path / "bin"
    slurm.mkdir()
    commands.mkdir()
    for name in ("sbatch", "srun", "squeue", "scancel"):
        (commands / name).write_text(f"#!{sys.executable} -S\n" + Path(FAKE).read_text())
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(slurm))
    monkeypatch.setattr(Submission, "poll", 0.02)
    asked = {
        "partition": "short",
        "account": "physics",
        "qos": "low",
        "constraint": "epyc",
    }
    own = {
        "setup": ["module load python/3.11"],
        "additional_parameters": {"exclude": "node7"},
    }
    limits = {"time_limit": "10min", "memory_limit": "2GB"}
    with monkeypatch.context() as context:
        context.setenv("PATH", str(tmp_path))
        with pytest.raises(
            EngineStopped,
            match="needs Slurm's sbatch, srun, squeue, scancel, not found on PATH",
        ):
            next(SlurmQueue(tmp_path).run([make_job(tmp_path, 0, "number")]))
    place = Submission(SlurmQueue(tmp_path / "sweep", cpus_per_task=2, **asked, **own, **limits))
    names = place.send([(one,) for one in make_jobs(tmp_path / "sweep", ["number"] * 3)], 2)
    assert names == ["100_0", "100_1", "100_2"]
    script = (slurm / "100.sh").read_text()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script, flags=re.MULTILINE))
    expected = asked | {
        "array": "0-2%2",
        "cpus-per-task": "2",
        "exclude": "node7",
        "no-requeue": "",
        "nodes": "1",
    }
    assert {name: options[name] for name in expected} == expected
    assert (
        600 + 5 + 60 + 30 + 60 <= int(options["time"]) * 60 <= 840
    )  # above that of the job, and Slurm's early signal
    assert re.fullmatch(r"sysid-[0-9a-f]{8}", options["job-name"])
    assert 2e9 < int(options["mem"].removesuffix("M")) * 2**20 < 3e9
    assert "wckey" not in options
    lines = script.splitlines()
    command = next(index for index, line in enumerate(lines) if line.startswith("srun "))
    exports = [lines.index(f"export {name}=1") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")]
    assert max(exports) < lines.index("module load python/3.11") < command
    assert "--cpus-per-task=2" in lines[command]
    assert sys.executable in lines[command]

    other = Submission(SlurmQueue(tmp_path / "another"))
    assert place.query_tasks(()) == dict.fromkeys(names, False)
    assert other.query_tasks(()) == {}
    place.cancel((), spared=["100_0", "100_2"])
    other.cancel(())
    assert sorted(place.query_tasks(())) == ["100_0", "100_2"]
    (slurm / "100_2.state").write_text("RUNNING")
    assert place.query_tasks(()) == {"100_0": False, "100_2": True}
    place.cancel(())
    assert place.query_tasks(()) == {}
    (slurm / "silent").touch()
    assert place.query_tasks(()) is None
    (slurm / "silent").unlink()
    ends = chain([KeyboardInterrupt], repeat(None))  # Ctrl-C while the task waits: it is cancelled
    monkeypatch.setattr(slurm_engine.time, "sleep", mock.Mock(side_effect=ends))
    with pytest.raises(KeyboardInterrupt):
        next(SlurmQueue(tmp_path / "sweep").run(make_jobs(tmp_path / "sweep", ["number"])))
    assert {path.read_text() for path in slurm.glob("*.state")} == {"CANCELLED by 0"}
    assert not (tmp_path / "sweep" / ".slurm").exists()
    (slurm / "refuse").touch()
    with pytest.raises(
        EngineStopped,
        match=r"could not be submitted: .*invalid partition specified: nowhere",
    ) as stop:
        list(SlurmQueue(tmp_path / "other").run([make_job(tmp_path / "other", 0, "number")]))
    assert "\n" not in str(stop.value)


# --- processes of this machine


@pytest.mark.slow
def test_local_tasks_of_a_killed_sweep_are_taken_over(tmp_path, capfd):
    todo = [make_job(tmp_path, number, "slow", seconds=1) for number in range(2)]
    script = DRIVER.format(engine=SlurmQueue, settings={"cluster": "local", "workers": 1})
    with script_process(script, tmp_path, *["helpers.jobs:slow"] * 2) as process:
        assert wait_until(lambda: count_starts(todo[0]))
        process.kill()
    found = by_number(SlurmQueue(tmp_path, "local", workers=1).run(todo))
    assert sorted(found) == [0, 1]
    assert all(outcome.done for outcome in found.values())
    assert [count_starts(each) for each in todo] == [1, 1]
    assert not (tmp_path / ".slurm").exists()
    assert capfd.readouterr() == ("", "")


def test_processes_are_tasks_by_their_command_line_and_what_is_left_of_them_is_told(
    tmp_path,
):
    place = LocalSubmission(SlurmQueue(tmp_path))
    words = [str(tmp_path / ".slurm"), "submitit.local._local"]
    for command, is_task in ((words[:1], False), (words, True)):
        with subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(60)", *command]
        ) as process:
            names = [str(os.getpid()), str(process.pid), "999999999"]
            there = {str(process.pid): True} if is_task else {}
            assert wait_until(lambda names=names, there=there: place.query_tasks(names) == there)
            place.cancel(names)
            if not is_task:
                process.kill()
            assert process.wait(10) == (-signal.SIGTERM if is_task else -signal.SIGKILL)
    (tmp_path / ".slurm" / "7_0_result.pkl").write_bytes(b"\x80\x05\x95")
    assert place.error("7") == "what it returned cannot be read (UnpicklingError)"
    assert place.error("8") == ""
    place.clear("7", with_logs=True)
    assert not list((tmp_path / ".slurm").iterdir())


def test_a_task_that_slurm_warns_says_why_it_ends(tmp_path, monkeypatch):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    try:
        monkeypatch.setattr(
            slurm_engine, "execute", lambda one: os.kill(os.getpid(), signal.SIGUSR2)
        )
        with pytest.raises(TimeoutError, match=r"limit jobs by hydra.launcher.time_limit"):
            slurm_engine.perform([make_job(tmp_path, 0, "number")])
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
