"""Processes of this machine through joblib: what they run, what is left when one of them or the sweep is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from numba import config as numba_config
from sweep_jobs import ROOT, alive, attempts, descendants, driven, folder_of_job, hears_ctrl_c, job, jobs, wait_until
from tqdm import tqdm

from experiments.sweeps.engines import EngineStopped, JoblibPool
from experiments.sweeps.store import read_outcome

processes = pytest.mark.skipif(numba_config.DISABLE_JIT, reason="processes end alike without the compiler")

DRIVER = """
import sys
from pathlib import Path
from sweep_jobs import job
from experiments.sweeps.engines import JoblibPool
folder = Path(sys.argv[1])
jobs = [job(folder, number, function, task="") for number, function in enumerate(sys.argv[2:])]
if __name__ == "__main__":
    try:
        for outcome in JoblibPool(folder, 2).run(jobs):
            print(outcome.number, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_settings_are_those_of_the_configuration_and_checked(tmp_path, monkeypatch):
    settings = yaml.safe_load((ROOT / "conf/hydra/launcher/joblib.yaml").read_text())
    assert settings.pop("_target_") == "hydra_plugins.sysid_sweep.launcher.JoblibLauncher"
    assert {"folder": tmp_path} | settings == vars(JoblibPool(tmp_path))
    for workers in (0, -1, "two", 1.5, True):
        with pytest.raises(ValueError, match=r"workers must be a whole number, at least 1, or null, got"):
            JoblibPool(tmp_path, workers)
    assert JoblibPool(tmp_path).place.startswith(f"{len(os.sched_getaffinity(0))} process")
    monkeypatch.setitem(sys.modules, "joblib.externals", None)
    with pytest.raises(ImportError, match=r"hydra/launcher=joblib needs joblib: pip install 'sysid\[joblib\]'"):
        next(JoblibPool(tmp_path).run([job(tmp_path, 0, "number")]))


@processes
def test_jobs_run_two_at_a_time_and_a_failure_costs_only_itself(tmp_path, capfd):
    functions = ["surroundings", "raising", "surroundings", "leaving", *["number"] * 8]
    found = {outcome.number: outcome for outcome in JoblibPool(tmp_path, 2).run(jobs(tmp_path, functions))}
    assert sorted(found) == list(range(12))
    assert {number for number, outcome in found.items() if not outcome.done} == {1, 3}
    assert found[1].error == "ValueError: job 1 cannot work"
    assert found[11].value == 11.0
    assert read_outcome(tmp_path / "1")["status"] == "failed"
    facts = json.loads((tmp_path / "0" / "surroundings.json").read_text())
    assert (facts["pid"] != os.getpid(), facts["numba"], {*facts["blas"]} <= {1}) == (True, 1, True)
    threads = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"}
    assert {facts["environment"][name] for name in threads} == {"1"}
    assert not workers_of(os.getpid())
    assert capfd.readouterr() == ("", "")


@processes
def test_outcomes_come_when_they_are_known_and_a_generator_that_is_closed_ends_its_workers(tmp_path):
    running = JoblibPool(tmp_path, 2).run(jobs(tmp_path, ["sleeping", *["number"] * 6]))
    assert [next(running).number for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    children = workers_of(os.getpid())
    assert len(children) == 2
    running.close()
    assert not [child for child in children if alive(child)]


@processes
def test_a_killed_worker_stops_the_sweep_and_says_how_to_go_on(tmp_path, capfd):
    todo = jobs(tmp_path, ["number", "killing", *["number"] * 9])
    said = r"SIGKILL.*in flight are lost, the rest has not been run.*command resumes"
    with pytest.raises(EngineStopped, match=said) as stop:
        list(JoblibPool(tmp_path, 1).run(todo))  # a single worker is a process too
    assert "\n" not in str(stop.value)
    assert read_outcome(tmp_path / "0")["status"] == "done"
    assert not [number for number in range(1, 11) if read_outcome(tmp_path / str(number))]
    assert not workers_of(os.getpid())
    assert capfd.readouterr() == ("", "")


@processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_workers_end_with_a_driver_that_is_interrupted_or_killed(tmp_path, number):
    start = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with driven(DRIVER, tmp_path, "test_joblib_pool:showing", "sweep_jobs:spinning", **start) as process:
        assert wait_until(lambda: (tmp_path / "0" / "shown").exists() and attempts(job(tmp_path, 1, "spinning")))
        children = descendants(process.pid)
        assert [hears_ctrl_c(worker) for worker in workers_of(process.pid)] == [False, False]
        if number == signal.SIGINT:
            os.killpg(process.pid, signal.SIGINT)
            assert process.communicate(timeout=30)[1] == ""
            assert process.returncode == 130
        else:
            process.kill()
    assert len(children) >= 2
    assert wait_until(lambda: not [child for child in children if alive(child)], seconds=10)


def showing(config):
    """Never end, with a progress bar, which makes semaphores unless it is told not to."""
    for _ in tqdm(iter(int, 1), disable=True):
        (folder_of_job() / "shown").touch()
        time.sleep(0.05)


def workers_of(pid):
    """Living workers of loky; its resource tracker stays until Python ends."""
    return [child for child in descendants(pid) if "loky.backend.popen_loky_posix" in " ".join(child.cmdline())]
