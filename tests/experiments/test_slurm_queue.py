"""Slurm through submitit: the tasks that are submitted, how they end, what they leave.

There is no real Slurm here: tasks are imagined, or its commands are those of `helpers.fake_slurm`.
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
from helpers.fake_slurm import __file__ as FAKE_SLURM_FILE
from helpers.jobs import (
    DRIVER_SCRIPT,
    count_starts,
    make_job,
    make_jobs,
    script_process,
    wait_until,
)


def by_number(outcomes):
    """Return outcomes by the numbers of their jobs."""
    return {outcome.number: outcome for outcome in outcomes}


# --- the book of tasks, with tasks that are no processes


class ImaginedSubmission:
    """Tasks that run in this process when their queue is queried.

    Parameters
    ----------
    fates
        How the attempts of a job end, by its number: "done", "killed" (its task is killed),
        "before" (its task dies before it starts), "unstored" (the disk is full), or "limit" (its
        guard stores the reason and kills the task). Later attempts are done.
    held
        Names of tasks that run on while the queue is queried `n_queries` times.
    n_queries
        Number of queries after which held tasks end too.
    eager
        Whether tasks run as soon as they are sent.
    """

    poll = 0.0
    file_delay = 0.0

    def __init__(self, fates=None, held=(), n_queries=1000, eager=False):
        self.fates = {number: list(ends) for number, ends in (fates or {}).items()}
        self.held = set(held)
        self.n_queries = n_queries
        self.eager = eager
        # tasks by name, and the names of those that run
        self.batches = {}
        self.running = set()
        # what a test sees: the numbers of the jobs that were sent, how many tasks might run,
        # cancelled tasks, and whether the logs of a task were removed
        self.sent = []
        self.places = []
        self.cancelled = []
        self.cleared = {}
        # what a test sets: whether tasks are refused while others run, whether the queue is silent
        self.full = False
        self.silent = False
        self.n_refusals = 0
        self.errors = {}

    def send(self, batches, at_a_time):
        if self.full and self.running:
            self.n_refusals += 1
            raise RuntimeError("sbatch: error:\n too many")
        names = [f"{len(self.batches) + index}" for index in range(len(batches))]
        self.batches |= dict(zip(names, batches, strict=True))
        self.sent.append([[job.number for job in batch] for batch in batches])
        self.places.append(at_a_time)
        self.running |= set(names)
        sweep_folder = Path(batches[0][0].folder).parent
        (sweep_folder / ".slurm").mkdir(parents=True, exist_ok=True)
        if self.eager:
            self.query_tasks(())
        return names

    def query_tasks(self, known):
        if self.silent:
            return None
        self.n_queries -= 1
        if self.n_queries <= 0:
            self.held = set()
        for name in sorted(self.running - self.held):
            self.running.discard(name)
            self._run(name)
        return dict.fromkeys(sorted(self.running), True)

    def _run(self, name):
        """Run the jobs of a task until one of them ends the task."""
        for job in self.batches[name]:
            fates = self.fates.get(job.number, [])
            fate = fates.pop(0) if fates else "done"
            if fate == "before":
                return
            Path(job.folder).mkdir(parents=True, exist_ok=True)
            if fate == "unstored":
                self.errors[name] = "OSError: the outcome could not be stored"
                return
            with open(Path(job.folder) / ATTEMPTS, "a") as file:
                file.write("1\n")
            if fate == "killed":
                return
            is_done = fate == "done"
            keep(Outcome(job.number, is_done, 1.0, error="" if is_done else fate), job)
            if fate == "limit":
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


def run_jobs(submission, folder, jobs, workers=100, jobs_per_task=1, array_size=100):
    """Return the generator of the outcomes of jobs that run in imagined tasks."""
    settings = SlurmQueue(folder, "local", workers, jobs_per_task, array_size=array_size, poll=1e-6)
    return TaskBook(settings, submission).outcomes(jobs)


def test_a_task_that_dies_loses_only_the_job_it_was_at(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 7)
    submission = ImaginedSubmission({1: ["killed"], 4: ["limit"]})
    outcomes = by_number(run_jobs(submission, tmp_path, jobs, jobs_per_task=3))
    assert sorted(outcomes) == list(range(7))
    assert [number for number, outcome in outcomes.items() if not outcome.done] == [4]
    assert submission.sent[0] == [[0, 1, 2], [3, 4, 5], [6]]
    assert sorted(submission.sent[1][0]) == [1, 2, 5]
    assert [count_starts(job) for job in jobs] == [1, 2, 1, 1, 1, 1, 1]
    assert submission.cleared == {"0": False, "1": False, "2": True, "3": True}


def test_a_task_that_is_killed_while_it_is_sent_is_sent_again(tmp_path):
    submission = ImaginedSubmission({0: ["killed"]}, eager=True)
    outcomes = run_jobs(submission, tmp_path, make_jobs(tmp_path, ["returning"]))
    assert next(outcomes).done


def test_a_job_whose_task_dies_twice_has_failed_and_the_others_go_on(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 2)
    submission = ImaginedSubmission({0: ["killed"] * 2})
    outcomes = by_number(run_jobs(submission, tmp_path, jobs, jobs_per_task=2))
    assert not outcomes[0].done
    assert outcomes[1].done
    assert outcomes[0].error.startswith("its worker was killed twice")
    assert "log: /log/1.err" in outcomes[0].error
    assert submission.sent == [[[0, 1]], [[0, 1]], [[1]]]


def test_a_job_that_never_starts_or_cannot_store_its_outcome_has_failed(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 2)
    submission = ImaginedSubmission({0: ["before"] * 9, 1: ["unstored"] * 2})
    outcomes = by_number(run_jobs(submission, tmp_path, jobs))
    assert not outcomes[0].done
    assert not outcomes[1].done
    assert outcomes[1].error.startswith("OSError: the outcome could not be stored; log: ")
    assert sum(len(batches) for batches in submission.sent) == 4


def test_no_more_tasks_are_sent_than_may_run(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 7)
    submission = ImaginedSubmission()
    list(run_jobs(submission, tmp_path, jobs, workers=3, array_size=2))
    assert [len(batches) for batches in submission.sent] == [2, 2, 2, 1]
    assert submission.places == [3, 3, 3, 3]


def test_a_task_that_runs_on_keeps_its_place(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 6)
    submission = ImaginedSubmission(held={"0"})
    outcomes = run_jobs(submission, tmp_path, jobs, workers=3)
    assert [next(outcomes).number for _ in range(5)] == [1, 2, 3, 4, 5]
    assert submission.sent == [[[0], [1], [2]], [[3], [4]], [[5]]]
    assert submission.places == [3, 2, 2]


def test_refused_tasks_wait_until_others_have_ended(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 4)
    submission = ImaginedSubmission(held={"1"})
    outcomes = run_jobs(submission, tmp_path, jobs, workers=2, array_size=2)
    assert next(outcomes).number == 0
    # tasks are refused while one runs, which ends after three queries
    submission.full = True
    submission.n_queries = 3
    assert sorted(outcome.number for outcome in outcomes) == [1, 2, 3]
    assert submission.n_refusals == 1
    assert submission.sent == [[[0], [1]], [[2], [3]]]


def test_a_queue_that_does_not_answer_stops_the_sweep_and_leaves_its_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_engine, "MAX_SILENCE", 0.05)
    submission = ImaginedSubmission()
    outcomes = run_jobs(submission, tmp_path, make_jobs(tmp_path, ["returning"]))
    submission.silent = True
    with pytest.raises(EngineStopped, match="squeue has not answered"):
        next(outcomes)
    assert not submission.cancelled


# --- sweeps whose driver was killed


def leave_tasks(folder, jobs, **settings):
    """Return a submission with the tasks of a killed sweep, which all run on for three queries."""
    submission = ImaginedSubmission(held=map(str, range(9)), n_queries=3)
    book = TaskBook(SlurmQueue(folder, "local", 9, **settings), submission)
    book._waiting.extend(jobs)
    book._submit()
    return submission


def test_the_same_command_takes_over_tasks_that_still_run(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 4)
    submission = leave_tasks(tmp_path, jobs, jobs_per_task=2)
    unfinished_jobs = jobs[1:]
    outcomes = by_number(run_jobs(submission, tmp_path, unfinished_jobs, jobs_per_task=2))
    assert sorted(outcomes) == [1, 2, 3]
    assert submission.sent == [[[0, 1], [2, 3]]]
    assert [count_starts(job) for job in jobs] == [1, 1, 1, 1]


def test_tasks_of_changed_or_unknown_jobs_are_cancelled(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"] * 3)
    submission = leave_tasks(tmp_path, jobs)
    submission.batches["unknown"] = ()
    submission.running.add("unknown")
    submission.held.add("unknown")
    changed_jobs = [jobs[0], replace(jobs[1], identity="new"), jobs[2]]
    outcomes = by_number(run_jobs(submission, tmp_path, changed_jobs))
    assert submission.cancelled == ["1", "unknown"]
    assert submission.sent[1:] == [[[1]]]
    assert sorted(outcomes) == [0, 1, 2]


def test_tasks_of_another_cluster_may_still_run_and_stop_the_sweep(tmp_path):
    jobs = make_jobs(tmp_path, ["returning"])
    submission = leave_tasks(tmp_path, jobs)
    outcomes = TaskBook(SlurmQueue(tmp_path), submission).outcomes(jobs)
    with pytest.raises(EngineStopped, match=r"hydra.launcher.cluster=local may still run"):
        next(outcomes)


# --- Slurm's commands

SLURM_COMMANDS = ("sbatch", "srun", "squeue", "scancel")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """State folder of a fake Slurm, whose commands are on PATH."""
    state = tmp_path / "state"
    commands = tmp_path / "bin"
    state.mkdir()
    commands.mkdir()
    script = f"#!{sys.executable} -S\n" + Path(FAKE_SLURM_FILE).read_text()
    for name in SLURM_COMMANDS:
        (commands / name).write_text(script)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(state))
    monkeypatch.setattr(Submission, "poll", 0.02)
    return state


def send_three_tasks(folder, **settings):
    """Send three tasks of one job each, two at a time; return the submission and their names."""
    submission = Submission(SlurmQueue(folder, **settings))
    jobs = make_jobs(folder, ["returning"] * 3)
    return submission, submission.send([(job,) for job in jobs], 2)


def test_missing_commands_of_slurm_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcomes = SlurmQueue(tmp_path).run([make_job(tmp_path, 0, "returning")])
    message = "needs Slurm's sbatch, srun, squeue, scancel, not found on PATH"
    with pytest.raises(EngineStopped, match=message):
        next(outcomes)


def test_the_script_asks_slurm_for_what_was_set(slurm, tmp_path):
    asked = {
        "partition": "short",
        "account": "physics",
        "qos": "low",
        "constraint": "epyc",
    }
    _, names = send_three_tasks(
        tmp_path / "sweep",
        cpus_per_task=2,
        setup=["module load python/3.11"],
        additional_parameters={"exclude": "node7"},
        time_limit="10min",
        memory_limit="2GB",
        **asked,
    )
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
    assert "wckey" not in options
    assert re.fullmatch(r"sysid-[0-9a-f]{8}", options["job-name"])
    # more than the limits of the job, which are to end it before Slurm warns and ends the task
    task_seconds = int(options["time"]) * 60
    assert 600 + 5 + 60 + 30 + 60 <= task_seconds <= 840
    task_bytes = int(options["mem"].removesuffix("M")) * 2**20
    assert 2e9 < task_bytes < 3e9

    lines = script.splitlines()
    command = next(index for index, line in enumerate(lines) if line.startswith("srun "))
    setup = lines.index("module load python/3.11")
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        assert lines.index(f"export {variable}=1") < setup < command
    assert "--cpus-per-task=2" in lines[command]
    assert sys.executable in lines[command]


def test_tasks_are_found_and_cancelled_by_the_name_of_their_sweep(slurm, tmp_path):
    submission, names = send_three_tasks(tmp_path / "sweep")
    other_submission = Submission(SlurmQueue(tmp_path / "another"))
    assert submission.query_tasks(()) == dict.fromkeys(names, False)
    assert other_submission.query_tasks(()) == {}

    submission.cancel((), spared=["100_0", "100_2"])
    other_submission.cancel(())
    assert sorted(submission.query_tasks(())) == ["100_0", "100_2"]
    (slurm / "100_2.state").write_text("RUNNING")
    assert submission.query_tasks(()) == {"100_0": False, "100_2": True}
    submission.cancel(())
    assert submission.query_tasks(()) == {}

    (slurm / "silent").touch()
    assert submission.query_tasks(()) is None


def test_ctrl_c_cancels_a_task_that_waits_and_leaves_nothing(slurm, tmp_path, monkeypatch):
    interrupt_once = chain([KeyboardInterrupt], repeat(None))
    monkeypatch.setattr(slurm_engine.time, "sleep", mock.Mock(side_effect=interrupt_once))
    outcomes = SlurmQueue(tmp_path / "sweep").run(make_jobs(tmp_path / "sweep", ["returning"]))
    with pytest.raises(KeyboardInterrupt):
        next(outcomes)
    assert {path.read_text() for path in slurm.glob("*.state")} == {"CANCELLED by 0"}
    assert not (tmp_path / "sweep" / ".slurm").exists()


def test_a_submission_that_slurm_refuses_stops_the_sweep_in_one_line(slurm, tmp_path):
    (slurm / "refuse").touch()
    outcomes = SlurmQueue(tmp_path / "sweep").run([make_job(tmp_path / "sweep", 0, "returning")])
    message = r"could not be submitted: .*invalid partition specified: nowhere"
    with pytest.raises(EngineStopped, match=message) as stop:
        list(outcomes)
    assert "\n" not in str(stop.value)


# --- processes of this machine


@pytest.mark.slow
def test_local_tasks_of_a_killed_sweep_are_taken_over(tmp_path, capfd):
    jobs = [make_job(tmp_path, number, "pausing", seconds=1) for number in range(2)]
    script = DRIVER_SCRIPT.format(engine=SlurmQueue, settings={"cluster": "local", "workers": 1})
    with script_process(script, tmp_path, *["helpers.jobs:pausing"] * 2) as process:
        assert wait_until(lambda: count_starts(jobs[0]))
        process.kill()
    outcomes = by_number(SlurmQueue(tmp_path, "local", workers=1).run(jobs))
    assert sorted(outcomes) == [0, 1]
    assert all(outcome.done for outcome in outcomes.values())
    assert [count_starts(job) for job in jobs] == [1, 1]
    assert not (tmp_path / ".slurm").exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("is_task", [True, False], ids=["task", "other_process"])
def test_a_local_task_is_a_process_with_the_command_line_of_submitit(is_task, tmp_path):
    """Any other process may have the number of a task that has ended."""
    submission = LocalSubmission(SlurmQueue(tmp_path))
    words = [str(tmp_path / ".slurm")]
    if is_task:
        words.append("submitit.local._local")
    command = [sys.executable, "-S", "-c", "import signal; signal.pause()", *words]
    with subprocess.Popen(command) as process:
        names = [str(os.getpid()), str(process.pid), "999999999"]
        expected = {str(process.pid): True} if is_task else {}
        assert wait_until(lambda: submission.query_tasks(names) == expected)
        submission.cancel(names)
        if not is_task:
            process.kill()
        assert process.wait() == (-signal.SIGTERM if is_task else -signal.SIGKILL)


def test_the_error_of_a_local_task_is_read_and_its_files_are_removed(tmp_path):
    submission = LocalSubmission(SlurmQueue(tmp_path))
    files = tmp_path / ".slurm"
    files.mkdir(exist_ok=True)
    (files / "7_0_result.pkl").write_bytes(b"\x80\x05\x95")
    assert submission.error("7") == "what it returned cannot be read (UnpicklingError)"
    assert submission.error("8") == ""
    submission.clear("7", with_logs=True)
    assert not list(files.iterdir())


def test_a_task_that_slurm_warns_says_why_it_ends(tmp_path, monkeypatch):
    def warn(job):
        """Send the signal by which Slurm warns that the time is nearly over."""
        os.kill(os.getpid(), signal.SIGUSR2)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    monkeypatch.setattr(slurm_engine, "execute", warn)
    try:
        with pytest.raises(TimeoutError, match=r"limit jobs by hydra.launcher.time_limit"):
            slurm_engine.perform([make_job(tmp_path, 0, "returning")])
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
