"""What every engine with workers does: run, tell, enforce limits, end its workers when it ends,
however it ends.
"""

import json
import os
import signal
import sys
from dataclasses import fields
from functools import partial

import pytest
import yaml

from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.engines import EngineStopped, JoblibPool
from experiments.sweeps.slurm_engine import SlurmQueue
from experiments.sweeps.store import read_outcome
from helpers.jobs import (
    DRIVER,
    ROOT,
    child_processes,
    count_starts,
    is_alive,
    make_job,
    make_jobs,
    receives_ctrl_c,
    script_process,
    wait_until,
)
from helpers.sweeps import ENGINE_CLASSES, QUICK_JOB, run_sweep

MEMORY_LIMIT = 600_000_000  # byte
LIMITED = {"spinning": {"time_limit": 1.0}, "greedy": {"memory_limit": MEMORY_LIMIT}}
ENGINES = {
    "joblib": partial(JoblibPool, workers=2),
    "dask": partial(DaskCluster, workers=2, memory_limit=MEMORY_LIMIT),
    "local": partial(SlurmQueue, cluster="local", workers=2, jobs_per_task=2),
}
#: a class of a cluster, as it is named on the command line
CLUSTER = {
    "_target_": "distributed.LocalCluster",
    "n_workers": 0,
    "threads_per_worker": 1,
    "processes": True,
}
CLUSTER |= {"dashboard_address": ":0"}
SIMPLE = ["surroundings", "raising", "written", "number"]
KINDS = {
    "joblib": [*SIMPLE, "leaving", "number"],
    "dask": [*SIMPLE, "killing_once", *LIMITED],  # it outlives its workers
    "local": [*SIMPLE, "killing_once", "greedy"],
}


@pytest.mark.parametrize("name", ENGINES)
def test_jobs_of_all_kinds_cost_only_themselves_and_leave_nothing(
    name, tmp_path, capfd, monkeypatch
):
    folder = tmp_path / "sweep"
    work = tmp_path / "work"
    before = dict(os.environ)
    most = []
    folder.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    names = KINDS[name]
    found = {}
    todo = [make_job(folder, n, one, **LIMITED.get(one, {})) for n, one in enumerate(names)]
    for outcome in ENGINES[name](folder).run(todo):
        found[names[outcome.number]] = outcome
        most.append(
            len([one for one in child_processes() if "submitit.local._local" in one.cmdline()])
        )
    done = {one for one, outcome in found.items() if outcome.done}
    assert done == {"surroundings", "written", "number", "killing_once"} & {*names}
    assert max(most) <= 2
    assert found["raising"].error == "ValueError: job 1 cannot work"
    assert read_outcome(folder / "1")["status"] == "failed"
    assert (folder / "2" / "result.txt").read_text() == "number 2\n"
    assert found["number"].value in (3.0, 5.0)
    facts = json.loads((folder / "0" / "surroundings.json").read_text())
    assert (facts["pid"] != os.getpid(), facts["cwd"]) == (True, str(folder))
    assert (facts["numba"], {*facts["blas"]}) == (1, {1})
    threads = {
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
    }
    assert {facts["environment"][one] for one in threads} == {"1"}
    told = {
        "spinning": "time limit of 1 s exceeded",
        "greedy": "memory limit of 600 MB exceeded",
    }
    assert all(found[one].error.startswith(words) for one, words in told.items() if one in names)
    starts = {one: count_starts(todo[n]) for n, one in enumerate(names)}
    assert starts == {one: {"killing_once": 2}.get(one, 1) for one in names}
    assert list(work.iterdir()) == []
    assert wait_until(lambda: not child_processes())
    assert name != "dask" or dict(os.environ) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "engine",
    [
        JoblibPool,
        pytest.param(partial(DaskCluster, cluster=CLUSTER), marks=pytest.mark.slow),
    ],
    ids=["joblib", "class_of_dask"],
)
def test_outcomes_come_when_they_are_known_and_a_generator_that_is_closed_ends_its_workers(
    engine, tmp_path
):
    running = engine(tmp_path, workers=2).run(make_jobs(tmp_path, ["sleeping", *["number"] * 6]))
    assert sorted(next(running).number for _ in range(6)) == [1, 2, 3, 4, 5, 6]
    assert len(child_processes()) == 2
    running.close()
    assert wait_until(lambda: not child_processes())


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("joblib", signal.SIGKILL),
        pytest.param("dask", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_workers_end_with_a_driver_that_is_interrupted_or_killed(name, tmp_path, number):
    script = DRIVER.format(engine=ENGINES[name].func, settings={"workers": 2})
    streams = {"stdout": -1, "stderr": -1, "text": True, "start_new_session": True}
    with script_process(
        script, tmp_path, "helpers.jobs:showing", "helpers.jobs:spinning", **streams
    ) as process:
        assert wait_until(
            lambda: (tmp_path / "0" / "shown").exists() and (tmp_path / "1" / ".spinning").exists()
        )
        below = child_processes(process.pid)
        assert len(below) == 2
        assert not any(map(receives_ctrl_c, below))
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (130, "", "")
    assert wait_until(lambda: not any(map(is_alive, below)))


def test_a_killed_worker_stops_a_sweep_of_joblib_and_says_how_to_go_on(tmp_path, capfd):
    todo = make_jobs(tmp_path, ["number", "killing", *["number"] * 9])
    said = r"SIGKILL.*running jobs are lost, and the others have not been run.*command resumes"
    with pytest.raises(EngineStopped, match=said) as stop:
        list(JoblibPool(tmp_path, 1).run(todo))  # a single worker is a process too
    assert "\n" not in str(stop.value)
    assert read_outcome(tmp_path / "0")["status"] == "done"
    assert not [number for number in range(1, 11) if read_outcome(tmp_path / str(number))]
    assert not child_processes()
    assert capfd.readouterr() == ("", "")


# --- settings


@pytest.mark.parametrize(("name", "make"), ENGINE_CLASSES.items())
def test_settings_are_those_of_the_configuration(name, make, tmp_path, monkeypatch):
    """Those that are refused: refusals.yaml."""
    settings = yaml.safe_load((ROOT / f"conf/hydra/launcher/{name}.yaml").read_text())
    assert settings.pop("_target_") == f"hydra_plugins.sysid_sweep.plugins.{name.title()}Launcher"
    settings.pop("_recursive_", None)
    assert {"folder": tmp_path} | settings == {
        one.name: getattr(make(tmp_path), one.name) for one in fields(make)
    }
    library = {
        "joblib": "joblib.externals",
        "dask": "distributed",
        "slurm": "submitit",
    }[name]
    monkeypatch.setitem(sys.modules, library, None)
    local = {"cluster": "local"} if name == "slurm" else {}
    with pytest.raises(
        ImportError,
        match=rf'hydra/launcher={name} needs .*: pip install -e "\.\[{name}\]"',
    ):
        next(make(tmp_path, **local).run([make_job(tmp_path, 0, "number")]))
    assert not list(tmp_path.iterdir())


# --- other clusters of Dask (one that runs: tests/cluster)


@pytest.mark.slow
def test_a_class_of_a_cluster_that_there_is_not_is_told(tmp_path):
    options = (
        "hydra/launcher=dask",
        "hydra.launcher.workers=1",
        "hydra.launcher.cluster={_target_: distributed.None}",
    )
    said = run_sweep(tmp_path / "sweep", *QUICK_JOB, "seed=2", *options)
    assert said.code == 1
    assert "hydra.launcher.cluster" in said.err
    assert "Traceback" not in said.err


def test_an_address_where_nobody_answers_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.sweeps.dask_engine.CONNECTION_TIMEOUT", 0.2)
    message = r"no Dask scheduler answers at tcp://127\.0\.0\.1:9 .*dask scheduler"
    with pytest.raises(EngineStopped, match=message) as said:
        next(
            DaskCluster(tmp_path, address="tcp://127.0.0.1:9").run(make_jobs(tmp_path, ["number"]))
        )
    assert "\n" not in str(said.value)
