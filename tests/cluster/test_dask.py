"""Sweeps on a running cluster of Dask, whose scheduler and workers are killed: each test starts its
own.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time

import psutil
import pytest
import yaml

from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.engines import EngineStopped
from helpers.jobs import ROOT, child_processes, count_starts, make_jobs, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler and two workers as processes of their own; its file, and the processes."""
    file = tmp_path / "scheduler.json"
    members = []
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "DASK_LOGGING__DISTRIBUTED": "critical",
    }

    def start(kind, *arguments):
        common = ("--host", "127.0.0.1", "--scheduler-file", str(file))
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.dask_{kind}",
            *common,
            *arguments,
        ]
        members.append(
            subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
        )

    start("scheduler", "--dashboard-address", "127.0.0.1:0", "--port", "0", "--no-show")
    for name in ("a", "b"):
        start(
            "worker",
            "--nthreads",
            "1",
            "--no-dashboard",
            "--name",
            name,
            "--local-directory",
            str(tmp_path / "at"),
        )
    assert wait_until(lambda: file.exists() and file.stat().st_size)
    yield file, members
    for one in [
        *members,
        *(one for process in members for one in child_processes(process.pid)),
    ]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
            one.wait()


def test_a_running_cluster_is_reached_by_its_address_and_outlives_worker_and_sweep(
    scheduler, tmp_path
):
    from distributed import Client

    file, members = scheduler
    folder = tmp_path / "sweep"
    address = yaml.safe_load(file.read_text())["address"]
    with Client(address, set_as_default=False) as neighbour:
        neighbour.wait_for_workers(2)
        foreign = neighbour.submit(sum, [1, 2], key="of somebody else")
        todo = make_jobs(folder, ["slow"] * 12, seconds=0.2)
        outcomes = {}
        for outcome in DaskCluster(folder, address=address).run(todo):
            outcomes[outcome.number] = outcome
            if len(outcomes) == 3:  # while another job runs
                (worker,) = child_processes(members[1].pid)
                time.sleep(0.15)
                worker.kill()
        assert sorted(outcomes) == list(range(12))
        assert all(outcome.done for outcome in outcomes.values())
        assert all(count_starts(one) <= 2 for one in todo)
        assert foreign.result(timeout=20) == 3
        assert all(process.poll() is None for process in members)
        assert neighbour.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)) == [
            "of somebody else"
        ]


def test_a_cluster_that_loses_its_workers_or_its_scheduler_stops_the_sweep_and_says_how_to_resume(
    scheduler, tmp_path
):
    file, members = scheduler
    folder = tmp_path / "sweep"
    outcomes = DaskCluster(folder, address=str(file), workers=1).run(
        make_jobs(folder, ["number", "sleeping", "number"])
    )
    assert next(outcomes).done
    assert wait_until(lambda: (folder / "1" / "attempts").exists())
    assert not (folder / "2").exists()  # one job at a time
    outcomes.close()
    for one in [
        *members[1:],
        *(one for process in members[1:] for one in child_processes(process.pid)),
    ]:
        one.kill()
    with pytest.raises(EngineStopped, match="no worker for 1 s"):
        list(
            DaskCluster(tmp_path, address=str(file), patience=1).run(
                make_jobs(tmp_path / "b", ["number"])
            )
        )
    outcomes = DaskCluster(tmp_path, address=str(file), patience=60).run(
        make_jobs(tmp_path / "b", ["number"])
    )
    threading.Timer(1.0, members[0].kill).start()
    with pytest.raises(EngineStopped, match="the same command resumes the sweep"):
        next(outcomes)
