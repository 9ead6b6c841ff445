"""Sweeps on Dask: processes of this machine, a cluster that runs, workers and schedulers that are killed."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import psutil
import pytest
import yaml
from sweep_command import QUICK, sweep
from sweep_jobs import ROOT, attempts, descendants, jobs, wait_until

from experiments.sweeps import dask_engine
from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.engines import EngineStopped

if not find_spec("distributed"):  # an import costs every worker seconds
    pytest.skip("needs sysid[dask]", allow_module_level=True)


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_what_dask_tells_of_callbacks_that_ctrl_c_cut_off_is_silenced(monkeypatch):
    import distributed  # noqa: F401  (it gives some loggers of tornado a level of their own)

    logger = logging.getLogger("tornado.application")
    monkeypatch.setattr(logger, "level", logging.ERROR)
    with dask_engine._quiet():
        assert not logger.isEnabledFor(logging.CRITICAL)
    assert logger.level == logging.ERROR
