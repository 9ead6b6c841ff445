"""Engines with workers: they run jobs, enforce limits, and end their workers when they end."""

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
    DRIVER_SCRIPT,
    HANG_TIMEOUT,
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
#: limits of the jobs that would never end
JOB_LIMITS = {"spinning": {"time_limit": 1.0}, "greedy": {"memory_limit": MEMORY_LIMIT}}
LIMIT_ERRORS = {
    "spinning": "time limit of 1 s exceeded",
    "greedy": "memory limit of 600 MB exceeded",
}
ENGINES = {
    "joblib": partial(JoblibPool, workers=1),
    "dask": partial(DaskCluster, workers=2, memory_limit=MEMORY_LIMIT),
    "local": partial(SlurmQueue, cluster="local", workers=2, jobs_per_task=2),
    # with as few processes as there can be
    "one_worker_of_dask": partial(DaskCluster, workers=1),
    "one_local_task": partial(SlurmQueue, cluster="local", workers=1, jobs_per_task=4),
}
#: a class of a cluster, as it is named on the command line
CLUSTER_SETTINGS = {
    "_target_": "distributed.LocalCluster",
    "n_workers": 0,
    "threads_per_worker": 1,
    "processes": True,
    "dashboard_address": ":0",
}
QUICK_FUNCTIONS = ["describing", "raising", "writing", "returning"]
#: functions of jobs that each engine runs; joblib does not outlive a worker that is killed
FUNCTIONS = {
    "joblib": [*QUICK_FUNCTIONS, "leaving", "returning"],
    "dask": [*QUICK_FUNCTIONS, "killing_once", "spinning", "greedy"],
    "local": [*QUICK_FUNCTIONS, "killing_once", "greedy"],
    "one_worker_of_dask": QUICK_FUNCTIONS,
    "one_local_task": QUICK_FUNCTIONS,
}
SUCCESSFUL_FUNCTIONS = {"describing", "writing", "returning", "killing_once"}
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def count_local_tasks():
    """Return the number of processes that submitit has started for tasks."""
    commands = [process.cmdline() for process in child_processes()]
    return sum("submitit.local._local" in command for command in commands)


@pytest.mark.parametrize(
    "engine",
    [
        "joblib",
        pytest.param("one_worker_of_dask", marks=pytest.mark.slow),
        pytest.param("one_local_task", marks=pytest.mark.slow),
        pytest.param("dask", marks=pytest.mark.slow),
        pytest.param("local", marks=pytest.mark.slow),
    ],
)
def test_jobs_of_all_kinds_cost_only_themselves_and_leave_nothing(
    engine, tmp_path, capfd, monkeypatch
):
    folder = tmp_path / "sweep"
    working_folder = tmp_path / "work"
    folder.mkdir()
    working_folder.mkdir()
    monkeypatch.chdir(working_folder)
    environment_before = dict(os.environ)
    functions = FUNCTIONS[engine]
    jobs = [
        make_job(folder, number, function, **JOB_LIMITS.get(function, {}))
        for number, function in enumerate(functions)
    ]
    outcomes = {}
    n_tasks = []
    for outcome in ENGINES[engine](folder).run(jobs):
        outcomes[functions[outcome.number]] = outcome
        n_tasks.append(count_local_tasks())
    assert max(n_tasks) <= 2

    done = {function for function, outcome in outcomes.items() if outcome.done}
    assert done == SUCCESSFUL_FUNCTIONS & set(functions)
    assert outcomes["returning"].value in (3.0, 5.0)
    assert (folder / "2" / "result.txt").read_text() == "number 2\n"
    assert outcomes["raising"].error == "ValueError: job 1 cannot work"
    assert read_outcome(folder / "1")["status"] == "failed"
    for function in LIMIT_ERRORS.keys() & set(functions):
        assert outcomes[function].error.startswith(LIMIT_ERRORS[function])
    for function, job in zip(functions, jobs, strict=True):
        assert count_starts(job) == (2 if function == "killing_once" else 1)

    facts = json.loads((folder / "0" / "surroundings.json").read_text())
    assert facts["pid"] != os.getpid()
    assert facts["cwd"] == str(folder)
    assert facts["numba"] == 1
    assert set(facts["blas"]) == {1}
    for variable in THREAD_VARIABLES:
        assert facts["environment"][variable] == "1"

    assert list(working_folder.iterdir()) == []
    assert wait_until(lambda: not child_processes())
    if "dask" in engine:
        assert dict(os.environ) == environment_before
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_killed_worker_of_dask_is_replaced_however_long_its_start_takes(tmp_path):
    dask = pytest.importorskip("dask")
    jobs = make_jobs(tmp_path, ["killing_once"])
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}):
        (outcome,) = DaskCluster(tmp_path, workers=1, patience="20s").run(jobs)
    assert outcome.done
    assert count_starts(jobs[0]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [JoblibPool, partial(DaskCluster, cluster=CLUSTER_SETTINGS)],
    ids=["joblib", "class_of_dask"],
)
def test_outcomes_come_when_they_are_known_and_a_closed_generator_ends_its_workers(
    engine, tmp_path
):
    jobs = make_jobs(tmp_path, ["sleeping", *["returning"] * 6])
    outcomes = engine(tmp_path, workers=2).run(jobs)
    numbers = sorted(next(outcomes).number for _ in range(6))
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert len(child_processes()) == 2
    outcomes.close()
    assert wait_until(lambda: not child_processes())


@pytest.fixture
def start_driver(tmp_path):
    """A function that runs jobs, which never end, with an engine in a process of its own.

    Each job has a worker.
    """

    def start(engine, functions):
        settings = {"workers": len(functions)}
        script = DRIVER_SCRIPT.format(engine=ENGINES[engine].func, settings=settings)
        names = [f"helpers.jobs:{function}" for function in functions]
        streams = {"stdout": -1, "stderr": -1, "text": True, "start_new_session": True}
        return script_process(script, tmp_path, *names, **streams)

    return start


#: file that a job writes as soon as it is at work
WORK_MARKERS = {"showing": "shown", "spinning": ".spinning"}


def workers_of(driver, folder, functions):
    """Wait until all jobs of a driver are at work, and return the processes of its workers."""
    for number, function in enumerate(functions):
        assert wait_until((folder / str(number) / WORK_MARKERS[function]).exists)
    workers = child_processes(driver.pid)
    assert len(workers) == len(functions)
    assert not any(map(receives_ctrl_c, workers))
    return workers


@pytest.mark.slow
@pytest.mark.parametrize(
    "functions",
    [["spinning"], ["showing", "spinning"]],
    ids=["one_worker", "two_workers"],
)
def test_workers_of_joblib_end_with_a_driver_that_is_killed(functions, tmp_path, start_driver):
    with start_driver("joblib", functions) as driver:
        workers = workers_of(driver, tmp_path, functions)
        driver.kill()
    assert wait_until(lambda: not any(map(is_alive, workers)))


@pytest.mark.slow
def test_workers_of_dask_end_with_a_driver_that_is_interrupted(tmp_path, start_driver):
    functions = ["showing", "spinning"]
    with start_driver("dask", functions) as driver:
        workers = workers_of(driver, tmp_path, functions)
        os.killpg(driver.pid, signal.SIGINT)
        out, err = driver.communicate(timeout=HANG_TIMEOUT)
        assert driver.returncode == 130
        assert out == ""
        assert err == ""
    assert wait_until(lambda: not any(map(is_alive, workers)))


def test_a_killed_worker_stops_a_sweep_of_joblib_and_the_error_says_how_to_go_on(tmp_path, capfd):
    jobs = make_jobs(tmp_path, ["returning", "killing", *["returning"] * 9])
    message = r"SIGKILL.*running jobs are lost, and the others have not been run.*command resumes"
    # a pool of a single worker runs its jobs in another process too
    outcomes = JoblibPool(tmp_path, 1).run(jobs)
    with pytest.raises(EngineStopped, match=message) as stop:
        list(outcomes)
    assert "\n" not in str(stop.value)
    assert read_outcome(tmp_path / "0")["status"] == "done"
    for number in range(1, 11):
        assert not read_outcome(tmp_path / str(number))
    assert not child_processes()
    assert capfd.readouterr() == ("", "")


# --- settings (those that are refused: refusals.yaml)


@pytest.mark.parametrize(("name", "engine"), ENGINE_CLASSES.items(), ids=ENGINE_CLASSES.keys())
def test_defaults_are_those_of_the_configuration(name, engine, tmp_path):
    settings = yaml.safe_load((ROOT / f"conf/hydra/launcher/{name}.yaml").read_text())
    settings.pop("_recursive_", None)
    launcher = settings.pop("_target_")
    assert launcher == f"hydra_plugins.sysid_sweep.plugins.{name.title()}Launcher"
    with_defaults = engine(tmp_path)
    values = {field.name: getattr(with_defaults, field.name) for field in fields(engine)}
    assert values == {"folder": tmp_path} | settings


@pytest.mark.parametrize(
    ("name", "library", "settings"),
    [
        ("joblib", "joblib.externals", {}),
        ("dask", "distributed", {}),
        ("slurm", "submitit", {"cluster": "local"}),
    ],
    ids=["joblib", "dask", "slurm"],
)
def test_a_missing_library_is_refused_with_the_command_that_installs_it(
    name, library, settings, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, library, None)
    outcomes = ENGINE_CLASSES[name](tmp_path, **settings).run([make_job(tmp_path, 0, "returning")])
    message = rf'hydra/launcher={name} needs .*: pip install -e "\.\[{name}\]"'
    with pytest.raises(ImportError, match=message):
        next(outcomes)
    assert not list(tmp_path.iterdir())


# --- other clusters of Dask (one that runs: tests/cluster)


@pytest.mark.slow
def test_a_class_of_a_cluster_that_does_not_exist_is_refused(tmp_path):
    overrides = (
        "hydra/launcher=dask",
        "hydra.launcher.workers=1",
        "hydra.launcher.cluster={_target_: distributed.None}",
    )
    result = run_sweep(tmp_path / "sweep", *QUICK_JOB, "seed=2", *overrides)
    assert result.code == 1
    assert "hydra.launcher.cluster" in result.err
    assert "Traceback" not in result.err


@pytest.mark.slow
def test_an_address_where_no_scheduler_answers_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.sweeps.dask_engine.CONNECTION_TIMEOUT", 0.2)
    jobs = make_jobs(tmp_path, ["returning"])
    outcomes = DaskCluster(tmp_path, address="tcp://127.0.0.1:9").run(jobs)
    message = r"no Dask scheduler answers at tcp://127\.0\.0\.1:9 .*dask scheduler"
    with pytest.raises(EngineStopped, match=message) as stop:
        next(outcomes)
    assert "\n" not in str(stop.value)
