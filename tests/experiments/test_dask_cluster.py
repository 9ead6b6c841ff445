"""Sweeps on Dask: processes of this machine, a cluster that runs, workers and schedulers that are killed."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from numba import config
from sweep_command import QUICK, sweep
from sweep_jobs import ROOT, alive, attempts, descendants, driven, hears_ctrl_c, job, jobs, wait_until

from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.engines import EngineStopped
from experiments.sweeps.task import DIED_TWICE

pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")
processes = pytest.mark.skipif(config.DISABLE_JIT, reason="processes start and end the same without the compiler")

TIME_LIMIT, MEMORY_LIMIT = 1.0, 600_000_000  # s, byte
LIMITED = {"spinning": {"time_limit": TIME_LIMIT}, "greedy": {"memory_limit": MEMORY_LIMIT}}
GOOD = 8
NAMES = ["written"] * GOOD + ["killing", "killing_once", "raising", "surroundings", *LIMITED]
DRIVER = """
import sys
from pathlib import Path
from sweep_jobs import jobs
from experiments.sweeps.dask_engine import DaskCluster

if __name__ == "__main__":
    folder, functions = Path(sys.argv[1]), sys.argv[2:]
    try:
        for outcome in DaskCluster(folder, workers=2).run(jobs(folder, functions)):
            print(outcome.number, outcome.done, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def listening():
    """Hosts that this process and those below it can be reached at."""
    return {
        connection.laddr.ip
        for process in (psutil.Process(), *descendants())
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


@processes
def test_jobs_of_all_kinds_on_a_cluster_of_this_machine(tmp_path, monkeypatch):
    """Jobs that kill, raise and exceed limits cost only themselves; the cluster leaves nothing and is local."""
    folder, work = tmp_path / "sweep", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    todo = [job(folder, number, name, **LIMITED.get(name, {})) for number, name in enumerate(NAMES)]
    before, outcomes, hosts = dict(os.environ), {}, None
    for outcome in DaskCluster(folder, workers=2, memory_limit=MEMORY_LIMIT).run(todo):
        outcomes[outcome.number] = outcome
        hosts = hosts or listening()
    assert sorted(outcomes) == list(range(len(NAMES)))
    for one in todo[:GOOD]:
        assert (outcomes[one.number].done, outcomes[one.number].value) == (True, one.number)
        assert (Path(one.folder) / "result.txt").read_text() == f"number {one.number}\n"
    ended = {name: outcomes[number] for number, name in enumerate(NAMES) if number >= GOOD}
    starts = {name: attempts(todo[number]) for number, name in enumerate(NAMES) if number >= GOOD}
    assert starts == {name: {"killing": 3, "killing_once": 2}.get(name, 1) for name in starts}  # a third is refused
    assert {name for name, outcome in ended.items() if outcome.done} == {"killing_once", "surroundings"}
    assert ended["killing"].error == DIED_TWICE
    assert ended["raising"].error == f"ValueError: job {NAMES.index('raising')} cannot work"
    assert "in raising" in ended["raising"].traceback
    assert (ended["spinning"].error, ended["spinning"].stored) == ("time limit of 1 s exceeded", True)
    assert ended["greedy"].error.startswith("memory limit of 600 MB exceeded")
    found = yaml.safe_load((folder / str(NAMES.index("surroundings")) / "surroundings.json").read_text())
    assert (found["cwd"], found["numba"], {*found["blas"]}) == (str(folder), 1, {1})
    threads = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"}
    assert {found["environment"][name] for name in threads} == {"1"}
    assert list(work.iterdir()) == []
    assert hosts == {"127.0.0.1"}
    assert wait_until(lambda: not descendants())
    assert dict(os.environ) == before


@processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_workers_end_with_a_driver_that_is_interrupted_or_killed(tmp_path, number):
    streams = {"stdout": -1, "stderr": -1, "text": True, "start_new_session": True}
    with driven(DRIVER, tmp_path, "number", "sleeping", "spinning", **streams) as process:
        assert process.stdout.readline() == "0 True\n"
        assert wait_until(lambda: (tmp_path / "2" / ".spinning").exists())
        below = descendants(process.pid)
        assert len(below) == 2
        assert not any(map(hears_ctrl_c, below))
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (130, "", "")
    assert wait_until(lambda: not any(map(alive, below)))


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler and two workers as processes of their own; its file, and the processes."""
    file, members = tmp_path / "scheduler.json", []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DASK_LOGGING__DISTRIBUTED": "critical"}

    def start(kind, *arguments):
        common = ("--host", "127.0.0.1", "--scheduler-file", str(file))
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *common, *arguments]
        members.append(subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL))

    start("scheduler", "--dashboard-address", "127.0.0.1:0", "--port", "0", "--no-show")
    for name in ("a", "b"):
        start("worker", "--nthreads", "1", "--no-dashboard", "--name", name, "--local-directory", str(tmp_path / "at"))
    assert wait_until(lambda: file.exists() and file.stat().st_size)
    yield file, members
    for one in [*members, *(one for process in members for one in descendants(process.pid))]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
            one.wait()


@processes
def test_a_running_cluster_is_reached_by_its_address_and_outlives_worker_and_sweep(scheduler, tmp_path):
    from distributed import Client

    file, members = scheduler
    folder = tmp_path / "sweep"
    address = yaml.safe_load(file.read_text())["address"]
    with Client(address, set_as_default=False) as neighbour:
        neighbour.wait_for_workers(2)
        foreign = neighbour.submit(sum, [1, 2], key="of somebody else")
        todo = jobs(folder, ["slow"] * 12, seconds=0.2)
        outcomes = {}
        for outcome in DaskCluster(folder, address=address).run(todo):
            outcomes[outcome.number] = outcome
            if len(outcomes) == 3:  # while another job runs
                (worker,) = descendants(members[1].pid)
                time.sleep(0.15)
                worker.kill()
        assert sorted(outcomes) == list(range(12))
        assert all(outcome.done for outcome in outcomes.values())
        assert all(attempts(one) <= 2 for one in todo)
        assert foreign.result(timeout=20) == 3
        assert all(process.poll() is None for process in members)
        assert neighbour.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)) == ["of somebody else"]


@processes
def test_a_cluster_that_loses_its_workers_or_its_scheduler_stops_the_sweep_and_says_how_to_resume(scheduler, tmp_path):
    file, members = scheduler
    folder = tmp_path / "sweep"
    outcomes = DaskCluster(folder, address=str(file), workers=1).run(jobs(folder, ["number", "sleeping", "number"]))
    assert next(outcomes).done
    assert wait_until(lambda: (folder / "1" / "attempts").exists())
    assert not (folder / "2").exists()  # one job at a time
    outcomes.close()
    for process in members[1:]:
        for one in [*descendants(process.pid), process]:
            one.kill()
    with pytest.raises(EngineStopped, match="no worker for 1 s"):
        list(DaskCluster(tmp_path, address=str(file), patience=1).run(jobs(tmp_path / "b", ["number"])))
    outcomes = DaskCluster(tmp_path, address=str(file), patience=60).run(jobs(tmp_path / "b", ["number"]))
    threading.Timer(1.0, members[0].kill).start()
    with pytest.raises(EngineStopped, match="the same command resumes the sweep"):
        next(outcomes)


@processes
def test_a_cluster_class_is_named_on_the_command_line_and_a_generator_that_is_closed_ends_its_workers(tmp_path):
    """As `cluster`, with jobs; and what a person sees of a class that there is not."""
    cluster = {"_target_": "distributed.LocalCluster", "n_workers": 0, "threads_per_worker": 1, "processes": True}
    cluster |= {"dashboard_address": ":0"}
    outcomes = DaskCluster(tmp_path, workers=2, cluster=cluster).run(jobs(tmp_path, ["number", "sleeping", "number"]))
    assert {next(outcomes).number, next(outcomes).number} == {0, 2}
    assert len(descendants()) == 2
    outcomes.close()
    assert wait_until(lambda: not descendants())
    options = ("hydra/launcher=dask", "hydra.launcher.workers=1", "hydra.launcher.cluster={_target_: distributed.None}")
    said = sweep(tmp_path / "other", *QUICK, "seed=2", *options)
    assert said.code == 1
    assert "hydra.launcher.cluster" in said.err
    assert "Traceback" not in said.err


def test_an_address_where_nobody_answers_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.sweeps.dask_engine.CONNECTING", 0.2)
    message = r"no Dask scheduler answers at tcp://127\.0\.0\.1:9 .*dask scheduler"
    with pytest.raises(EngineStopped, match=message) as said:
        next(DaskCluster(tmp_path, address="tcp://127.0.0.1:9").run(jobs(tmp_path, ["number"])))
    assert "\n" not in str(said.value)


def test_settings_are_those_of_the_configuration_and_checked(tmp_path):
    settings = yaml.safe_load((ROOT / "conf/hydra/launcher/dask.yaml").read_text())
    defaults = {field.name: field.default for field in fields(DaskCluster) if field.name != "folder"}
    assert {name: value for name, value in settings.items() if not name.startswith("_")} == defaults
    for settings, message in (
        *(({"workers": 0}, r"workers must be a whole number, at least 1"), ({"workers": True}, r"workers must be")),
        ({"address": "nowhere"}, r"address must be that of a scheduler, such as tcp://host:8786.*got 'nowhere'"),
        ({"address": "tcp://a:1", "cluster": {"_target_": "b.C"}}, r"exclude each other"),
        ({"cluster": {"_target_": "b.C"}}, r"cluster needs a _target_.* and a number of workers"),
        ({"cluster": {"queue": "long"}, "workers": 2}, r"cluster needs a _target_"),
        *(({"time_limit": "soon"}, r"launcher.time_limit must be"), ({"patience": -1}, r"launcher.patience must be")),
        ({"memory_limit": "much"}, r"hydra.launcher.memory_limit must be"),
    ):
        with pytest.raises(ValueError, match=message):
            DaskCluster(tmp_path, **settings)
