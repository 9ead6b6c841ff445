"""Slurm through submitit: the tasks it submits, what becomes of them, what it leaves. There is no real Slurm here."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from fake_slurm import __file__ as FAKE
from numba import config as numba_config
from sweep_jobs import attempts, descendants, driven, job, jobs, wait_until

from experiments.sweeps import slurm_engine as submissions
from experiments.sweeps.engines import EngineStopped
from experiments.sweeps.slurm_engine import LocalSubmission, SlurmQueue, SlurmSubmission, TaskBook
from experiments.sweeps.store import ATTEMPTS, Outcome, read_outcome
from experiments.sweeps.task import keep

processes = pytest.mark.skipif(numba_config.DISABLE_JIT, reason="processes end alike without the compiler")
QUICK = {"poll": 0.05}


def by_number(outcomes):
    return {outcome.number: outcome for outcome in outcomes}


# --- the book of tasks, with tasks that are no processes


class Imagined:
    """Tasks that run in this process when they are looked at; each ends as its job's `fate` says."""

    cluster = "imagined"
    poll = 0.0
    settle = 0.0

    def __init__(self, folder, fates=None):
        self.executor = SimpleNamespace(folder=folder)
        self.fates = {number: list(fate) for number, fate in (fates or {}).items()}
        self.sent, self.places, self.cancelled, self.cleared = [], [], [], {}
        self.batches, self.running, self.refusals, self.silent, self.errors = {}, set(), 0, False, {}
        self.held, self.looks, self.full, self.closed = set(), 1000, False, False

    def send(self, batches, at_a_time):
        if self.closed or (self.full and self.running):
            self.refusals += 1
            raise RuntimeError("sbatch: error:\n too many")
        self.executor.folder.mkdir(exist_ok=True)
        names = [f"{len(self.batches) + index}" for index in range(len(batches))]
        self.batches |= dict(zip(names, batches, strict=True))
        self.sent.append([[one.number for one in batch] for batch in batches])
        self.places.append(at_a_time)
        self.running |= set(names)
        return names

    def there(self, known):
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
            keep(Outcome(one.number, end == "done", 1.0, error="" if end == "done" else end), one)
            if end == "limit":  # its guard said why and killed the task
                return

    def room(self, n_tasks, most, largest):
        return min(most - n_tasks, largest)

    def cancel(self, names, known=()):
        self.cancelled.append(names)
        self.running -= set(self.running if names is None else names)

    def fate(self, name):
        return "Slurm says NODE_FAIL"

    def error(self, name):
        return self.errors.get(name, "")

    def log(self, name):
        return Path(f"/log/{name}.err")

    def clear(self, name, with_logs):
        self.cleared[name] = with_logs


def outcomes_of(submission, todo, at_a_time=100, jobs_per_task=1, array_size=100):
    return by_number(TaskBook(submission, at_a_time, jobs_per_task, array_size, 0.0).outcomes(todo))


def test_a_task_that_dies_loses_only_the_job_it_was_at(tmp_path):
    todo = jobs(tmp_path, ["number"] * 7)
    place = Imagined(tmp_path / ".slurm", {1: ["killed"], 4: ["limit"]})
    found = outcomes_of(place, todo, jobs_per_task=3)
    assert sorted(found) == list(range(7))
    assert {number for number, outcome in found.items() if not outcome.done} == {4}
    assert place.sent == [[[0, 1, 2], [3, 4, 5], [6]], [[1, 2, 5]]] or place.sent == [
        [[0, 1, 2], [3, 4, 5], [6]],
        [[5, 1, 2]],
    ]
    assert [attempts(one) for one in todo] == [1, 2, 1, 1, 1, 1, 1]
    assert place.cleared == {"0": False, "1": False, "2": True, "3": True}


def test_a_job_that_kills_its_task_twice_has_failed_and_says_so(tmp_path):
    place = Imagined(tmp_path / ".slurm", {0: ["killed", "killed"]})
    found = outcomes_of(place, jobs(tmp_path, ["number"] * 2), jobs_per_task=2)
    assert found[1].done
    assert not found[0].done
    assert found[0].error.startswith("its worker was killed twice")
    assert "Slurm says NODE_FAIL; log: /log/1.err" in found[0].error
    assert place.sent == [[[0, 1]], [[0, 1]], [[1]]]


def test_tasks_that_die_before_their_job_starts_are_not_sent_for_ever(tmp_path):
    place = Imagined(tmp_path / ".slurm", {0: ["before"] * 9})
    found = outcomes_of(place, jobs(tmp_path, ["number"]))
    assert not found[0].done
    assert len(place.sent) == 2


def test_what_a_task_has_raised_is_told_of_its_jobs(tmp_path):
    place = Imagined(tmp_path / ".slurm", {1: ["unstored", "unstored"]})
    found = outcomes_of(place, jobs(tmp_path, ["number"] * 2), jobs_per_task=2)
    assert found[0].stored
    assert found[1].error.startswith("OSError: the outcome could not be stored; Slurm says NODE_FAIL; log: ")


def test_no_more_tasks_are_sent_than_may_run(tmp_path):
    place = Imagined(tmp_path / ".slurm")
    outcomes_of(place, jobs(tmp_path, ["number"] * 7), at_a_time=3, array_size=2)
    assert [len(batches) for batches in place.sent] == [2, 2, 2, 1]
    assert place.places == [3, 3, 3, 3]
    place = Imagined(tmp_path / ".slurm")
    outcomes_of(place, jobs(tmp_path / "long", ["number"] * 7), at_a_time=2, jobs_per_task=3)
    assert place.sent == [[[0, 1, 2], [3, 4, 5]], [[6]]]


def test_tasks_that_still_run_keep_their_places(tmp_path):
    place = Imagined(tmp_path / ".slurm")
    place.held = {"0"}
    running = TaskBook(place, 3, 1, 100, 0.0).outcomes(jobs(tmp_path, ["number"] * 6))
    assert [next(running).number for _ in range(5)] == [1, 2, 3, 4, 5]
    assert place.sent == [[[0], [1], [2]], [[3], [4]], [[5]]]
    assert place.places == [3, 2, 2]


def test_refused_tasks_wait_for_those_that_are_there(tmp_path):
    place = Imagined(tmp_path / ".slurm")
    place.held = {"1"}
    running = TaskBook(place, 2, 1, 2, 0.0).outcomes(jobs(tmp_path, ["number"] * 4))
    assert next(running).number == 0
    place.full, place.looks = True, 3  # while one is there, which ends after three looks
    assert sorted(outcome.number for outcome in running) == [1, 2, 3]
    assert place.refusals == 1
    assert place.sent == [[[0], [1]], [[2], [3]]]


def test_a_queue_that_stays_silent_stops_the_sweep_and_leaves_its_tasks(tmp_path, monkeypatch):
    place = Imagined(tmp_path / ".slurm")
    place.silent = True
    monkeypatch.setattr("experiments.sweeps.slurm_engine.MOST_SILENCE", 0.05)
    with pytest.raises(EngineStopped, match="squeue has not answered"):
        list(TaskBook(place, 2, 1, 2, 0.001).outcomes(jobs(tmp_path, ["number"])))
    assert not place.cancelled


def left(tmp_path, todo, **options):
    """A submission with the tasks of a sweep that was killed: all of them run on."""
    place = Imagined(tmp_path / ".slurm")
    place.held, place.looks = {str(number) for number in range(9)}, 3
    book = TaskBook(place, 9, options.get("jobs_per_task", 1), 9, 0.0)
    book._waiting.extend(todo)
    book._submit()
    return place


def test_the_same_command_takes_over_tasks_that_still_run(tmp_path):
    todo = jobs(tmp_path, ["number"] * 4)
    place = left(tmp_path, todo, jobs_per_task=2)
    found = outcomes_of(place, todo[1:], jobs_per_task=2)  # the first was finished when the sweep looked
    assert sorted(found) == [1, 2, 3]
    assert place.sent == [[[0, 1], [2, 3]]]
    assert [attempts(one) for one in todo] == [1, 1, 1, 1]


def test_tasks_of_other_jobs_are_cancelled(tmp_path):
    todo = jobs(tmp_path, ["number"] * 3)
    place = left(tmp_path, todo)
    place.batches["unknown"] = ()
    for names in (place.running, place.held):
        names.add("unknown")
    changed = [todo[0], replace(todo[1], identity="new"), todo[2]]
    book = TaskBook(place, 9, 1, 9, 0.0)
    found = by_number(book.outcomes(changed))
    assert place.cancelled == [["1", "unknown"]]
    assert place.sent[1:] == [[[1]]]
    assert sorted(found) == [0, 1, 2]


def test_what_a_task_has_stored_meanwhile_counts_if_it_is_what_was_asked_for(tmp_path):
    todo = jobs(tmp_path, ["number"] * 2)
    place = left(tmp_path, todo)
    place.held = set()  # they end while they are looked for
    changed = [todo[0], replace(todo[1], identity="new")]
    found = outcomes_of(place, changed)
    assert place.sent[1:] == [[[1]]]
    assert read_outcome(Path(todo[1].folder))["identity"] == "new"
    assert sorted(found) == [0, 1]


def test_tasks_of_the_other_cluster_are_not_forgotten(tmp_path):
    todo = jobs(tmp_path, ["number"])
    place = left(tmp_path, todo)
    place.cluster = "another"
    with pytest.raises(EngineStopped, match=r"hydra.launcher.cluster=imagined may still run"):
        outcomes_of(place, todo)


# --- settings


def test_settings_are_those_of_the_configuration(tmp_path):
    path = Path(__file__).parents[2] / "conf" / "hydra" / "launcher" / "slurm.yaml"
    settings = yaml.safe_load(path.read_text())
    assert settings.pop("_target_") == "hydra_plugins.sysid_sweep.launcher.SlurmLauncher"
    assert {"folder": tmp_path} | settings == vars(SlurmQueue(tmp_path))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 0}, "workers must be a whole number, at least 1, or null, got 0"),
        ({"workers": "two"}, "workers must be"),
        ({"workers": True}, "workers must be"),
        ({"array_size": None}, "array_size must be"),
        ({"jobs_per_task": -1}, "jobs_per_task must be"),
        ({"cpus_per_task": 1.5}, "cpus_per_task must be"),
        ({"poll": 0}, "poll must be a positive"),
        ({"cluster": "pbs"}, "cluster must be one of slurm, local, got 'pbs'"),
        ({"setup": "module load python"}, "setup is a list"),
        ({"additional_parameters": ["a"]}, "additional_parameters a map"),
        ({"time_limit": "soon"}, r"hydra.launcher.time_limit must be .* 10min, got 'soon'"),
        ({"memory_limit": "much"}, r"hydra.launcher.memory_limit must be .*'much'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, settings, said):
    with pytest.raises(ValueError, match=said):
        SlurmQueue(tmp_path, **settings)
    assert not list(tmp_path.iterdir())


def test_without_submitit_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ImportError, match=r"hydra/launcher=slurm needs submitit: pip install 'sysid\[slurm\]'"):
        next(SlurmQueue(tmp_path, "local").run([job(tmp_path, 0, "number")]))


def test_without_slurm_one_line_says_where_to_start(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineStopped, match="needs Slurm's sbatch, srun, squeue, scancel, not found on PATH"):
        next(SlurmQueue(tmp_path).run([job(tmp_path, 0, "number")]))


# --- Slurm's commands


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Folder of a Slurm that is not there, with its commands on the path."""
    folder, commands = tmp_path / "state", tmp_path / "bin"
    folder.mkdir()
    commands.mkdir()
    for name in ("sbatch", "srun", "squeue", "sacct", "scancel"):
        (commands / name).write_text(f"#!{sys.executable} -S\n" + Path(FAKE).read_text())
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setattr(SlurmSubmission, "settle", 0.0)
    yield folder
    for path in folder.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.killpg(int(path.read_text()), signal.SIGKILL)


def calls(slurm, name):
    return [line for line in (slurm / "calls").read_text().splitlines() if line.split()[0] == name]


def submitted(slurm, sweep, n=3, at_a_time=2, **settings):
    """Script of an array that never starts."""
    (slurm / "full").touch()
    place = SlurmQueue(sweep, **settings).submission()
    names = place.send([(one,) for one in jobs(sweep, ["number"] * n)], at_a_time)
    script = (slurm / "100.sh").read_text()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script, flags=re.MULTILINE))
    return place, names, script, options


def test_the_script_asks_for_what_was_set(slurm, tmp_path):
    _place, names, script, options = submitted(
        slurm,
        tmp_path / "sweep",
        time_limit="10min",
        memory_limit="2GB",
        partition="short",
        account="physics",
        qos="low",
        constraint="epyc",
        cpus_per_task=2,
        setup=["module load python/3.11"],
        additional_parameters={"exclude": "node7"},
    )
    assert names == ["100_0", "100_1", "100_2"]
    expected = {
        "array": "0-2%2",
        "partition": "short",
        "account": "physics",
        "qos": "low",
        "constraint": "epyc",
        "cpus-per-task": "2",
        "exclude": "node7",
        "no-requeue": "",
        "nodes": "1",
    }
    assert {name: options[name] for name in expected} == expected
    assert int(options["time"]) * 60 >= 600 + 5 + 60 + 30 + 60  # above the limit of the job, and Slurm's early signal
    assert int(options["time"]) <= 14
    assert re.fullmatch(r"sysid-[0-9a-f]{8}", options["job-name"])
    assert 2e9 < int(options["mem"].removesuffix("M")) * 2**20 < 3e9
    assert "wckey" not in options
    lines = script.splitlines()
    command = next(index for index, line in enumerate(lines) if line.startswith("srun "))
    setup = lines.index("module load python/3.11")
    exports = [
        lines.index(f"export {name}=1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    ]
    assert max(exports) < setup < command
    assert "--cpus-per-task=2" in lines[command]
    assert sys.executable in lines[command]


def test_tasks_are_seen_and_cancelled_by_the_name_of_the_sweep(slurm, tmp_path):
    place, names, _, _ = submitted(slurm, tmp_path / "sweep")
    other = SlurmQueue(tmp_path / "another").submission()
    assert place.there(()) == dict.fromkeys(names, False)
    assert other.there(()) == {}
    place.cancel(["100_1"])
    assert sorted(place.there(())) == ["100_0", "100_2"]
    other.cancel(None)
    assert sorted(place.there(())) == ["100_0", "100_2"]
    place.cancel(None)
    assert place.there(()) == {}
    assert place.fate("100_1") == "Slurm says CANCELLED by 0"


def test_what_sbatch_says_is_told_in_one_line(slurm, tmp_path, capfd):
    (slurm / "refuse").touch()
    with pytest.raises(EngineStopped, match=r"could not be submitted: .*invalid partition specified: nowhere") as stop:
        list(SlurmQueue(tmp_path / "sweep", **QUICK).run([job(tmp_path / "sweep", 0, "number")]))
    assert "\n" not in str(stop.value)
    assert capfd.readouterr() == ("", "")


@processes
def test_tasks_of_slurm_run(slurm, tmp_path, capfd):
    sweep = tmp_path / "sweep"
    todo = [job(sweep, 0, "surroundings"), job(sweep, 1, "busy", time_limit=0.5), job(sweep, 2, "killing")]
    found = by_number(SlurmQueue(sweep, jobs_per_task=2, workers=2, **QUICK).run(todo))
    assert sorted(found) == [0, 1, 2]
    assert found[0].done
    assert found[1].error == "time limit of 0.5 s exceeded"
    assert "Slurm says OUT_OF_MEMORY; log: " in found[2].error
    assert [attempts(one) for one in todo] == [1, 1, 2]
    facts = json.loads((sweep / "0" / "surroundings.json").read_text())
    assert facts["numba"] == 1
    assert facts["environment"]["OMP_NUM_THREADS"] == facts["environment"]["NUMBA_NUM_THREADS"] == "1"
    assert Path(found[2].error.partition("log: ")[2]).is_file()
    assert not [path.name for path in (sweep / ".slurm").rglob("*") if ".pkl" in path.name or path.name == "tasks.json"]
    assert capfd.readouterr() == ("", "")


@processes
def test_a_sweep_that_is_left_cancels_its_tasks(slurm, tmp_path):
    sweep = tmp_path / "sweep"
    running = SlurmQueue(sweep, workers=1, **QUICK).run(
        [job(sweep, 0, "number"), *[job(sweep, n, "sleeping") for n in (1, 2)]]
    )
    assert next(running).number == 0
    assert wait_until(lambda: attempts(job(sweep, 1, "sleeping")))
    running.close()
    states = {path.stem: path.read_text() for path in slurm.glob("*.state")}
    assert states["100_1"].startswith("CANCELLED")
    assert states["100_2"].startswith("CANCELLED")
    assert not (sweep / ".slurm").exists()
    assert len(calls(slurm, "scancel")) == 1


# --- processes of this machine


@processes
def test_local_tasks_run(tmp_path, capfd):
    todo = [
        job(tmp_path, 0, "written"),
        job(tmp_path, 1, "greedy", memory_limit=600_000_000),
        job(tmp_path, 2, "killing_once"),
        job(tmp_path, 3, "raising"),
    ]
    most = []
    found = {}
    for outcome in SlurmQueue(tmp_path, "local", workers=2, jobs_per_task=2).run(todo):
        found[outcome.number] = outcome
        most.append(len([child for child in descendants() if "submitit.local._local" in child.cmdline()]))
    assert sorted(found) == [0, 1, 2, 3]
    assert {number for number, outcome in found.items() if outcome.done} == {0, 2}
    assert found[1].error.startswith("memory limit of 600 MB exceeded")
    assert [attempts(one) for one in todo] == [1, 1, 2, 1]
    assert max(most) <= 2
    assert read_outcome(tmp_path / "0")["files"]
    assert not [path for path in (tmp_path / ".slurm").glob("*") if ".pkl" in path.name]
    assert capfd.readouterr() == ("", "")


DRIVER = """
import sys
from pathlib import Path
from sweep_jobs import job
from experiments.sweeps.slurm_engine import SlurmQueue
folder = Path(sys.argv[1])
for outcome in SlurmQueue(folder, "local", workers=1).run([job(folder, n, sys.argv[2], seconds=2) for n in range(2)]):
    print(outcome.number, flush=True)
"""


@processes
def test_local_tasks_of_a_killed_sweep_are_taken_over(tmp_path):
    todo = [job(tmp_path, number, "slow", seconds=2) for number in range(2)]
    with driven(DRIVER, tmp_path, "slow") as process:
        assert wait_until(lambda: attempts(todo[0]))
        process.kill()
    found = by_number(SlurmQueue(tmp_path, "local", workers=1).run(todo))
    assert sorted(found) == [0, 1]
    assert all(outcome.done for outcome in found.values())
    assert [attempts(one) for one in todo] == [1, 1]
    assert not (tmp_path / ".slurm").exists()


def test_a_process_of_the_same_number_is_no_task(tmp_path):
    place = LocalSubmission(tmp_path / ".slurm", None)
    words = [sys.executable, "-S", "-c", "print(1, flush=True); input()", str(tmp_path / ".slurm")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert place.there([str(os.getpid()), str(other.pid), "999999999"]) == {}
        other.kill()


def test_tasks_that_were_taken_over_end_with_the_sweep(tmp_path):
    place = LocalSubmission(tmp_path / ".slurm", None)
    words = ["submitit.local._local", str(tmp_path / ".slurm")]
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)", *words]) as process:
        name = str(process.pid)
        assert wait_until(lambda: place.there([name]) == {name: True})
        place.cancel(None)
        assert process.wait(10) == -signal.SIGTERM


def test_a_result_that_was_cut_off_is_told(tmp_path):
    place = LocalSubmission(tmp_path, None)
    (tmp_path / "7_0_result.pkl").write_bytes(b"\x80\x05\x95")
    assert place.error("7") == "what it returned cannot be read (UnpicklingError)"
    assert place.error("8") == ""
    place.clear("7", with_logs=True)
    assert not list(tmp_path.iterdir())


def test_a_task_that_slurm_warns_says_why_it_ends(tmp_path, monkeypatch):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    try:
        monkeypatch.setattr(submissions, "execute", lambda one: os.kill(os.getpid(), signal.SIGUSR2))
        with pytest.raises(TimeoutError, match=r"limit jobs by hydra.launcher.time_limit"):
            submissions.perform([job(tmp_path, 0, "number")])
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
