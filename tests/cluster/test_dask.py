"""Sweeps on a running cluster of Dask whose scheduler and workers are killed.

Each test starts a cluster of its own.
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


def with_children(processes):
    """Return processes and all processes below them."""
    children = [child for process in processes for child in child_processes(process.pid)]
    return [*processes, *children]


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
        """Start a member of the cluster."""
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.dask_{kind}",
            "--host",
            "127.0.0.1",
            "--scheduler-file",
            str(file),
            *arguments,
        ]
        process = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL
        )
        members.append(process)

    start("scheduler", "--dashboard-address", "127.0.0.1:0", "--port", "0", "--no-show")
    worker_folder = ("--local-directory", str(tmp_path / "at"))
    for name in ("a", "b"):
        start("worker", "--nthreads", "1", "--no-dashboard", "--name", name, *worker_folder)
    assert wait_until(lambda: file.exists() and file.stat().st_size)
    yield file, members
    for process in with_children(members):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            process.wait()


def test_a_running_cluster_is_reached_by_its_address_and_outlives_worker_and_sweep(
    scheduler, tmp_path
):
    from distributed import Client

    file, members = scheduler
    folder = tmp_path / "sweep"
    address = yaml.safe_load(file.read_text())["address"]
    foreign_key = "of somebody else"
    with Client(address, set_as_default=False) as neighbour:
        neighbour.wait_for_workers(2)
        foreign_task = neighbour.submit(sum, [1, 2], key=foreign_key)
        jobs = make_jobs(folder, ["pausing"] * 12, seconds=0.2)
        outcomes = {}
        for outcome in DaskCluster(folder, address=address).run(jobs):
            outcomes[outcome.number] = outcome
            if len(outcomes) == 3:
                # kill a worker while it runs another job
                (worker,) = child_processes(members[1].pid)
                time.sleep(0.15)
                worker.kill()
        assert sorted(outcomes) == list(range(12))
        assert all(outcome.done for outcome in outcomes.values())
        assert all(count_starts(job) <= 2 for job in jobs)
        assert foreign_task.result() == 3
        assert all(process.poll() is None for process in members)
        tasks = neighbour.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
        assert tasks == [foreign_key]


def test_a_limited_number_of_jobs_runs_at_a_time(scheduler, tmp_path):
    file, _ = scheduler
    jobs = make_jobs(tmp_path, ["returning", "sleeping", "returning"])
    outcomes = DaskCluster(tmp_path, address=str(file), workers=1).run(jobs)
    assert next(outcomes).done
    assert wait_until((tmp_path / "1" / "attempts").exists)
    assert not (tmp_path / "2").exists()
    outcomes.close()


def test_a_cluster_that_loses_its_workers_or_its_scheduler_stops_the_sweep(scheduler, tmp_path):
    file, members = scheduler
    dask_scheduler, *workers = members
    for process in with_children(workers):
        process.kill()
    jobs = make_jobs(tmp_path, ["returning"])
    outcomes = DaskCluster(tmp_path, address=str(file), patience=1).run(jobs)
    with pytest.raises(EngineStopped, match="no worker for 1 s"):
        list(outcomes)

    outcomes = DaskCluster(tmp_path, address=str(file), patience=60).run(jobs)
    threading.Timer(1.0, dask_scheduler.kill).start()
    with pytest.raises(EngineStopped, match="the same command resumes the sweep"):
        next(outcomes)
