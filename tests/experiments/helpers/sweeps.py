"""How the tests run a sweep, in this process or in another, and read what lies in its folder."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import psutil
from hydra.types import RunMode
from omegaconf import OmegaConf

from experiments.collect.run import run
from experiments.files.job_file import read_summary
from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.engines import JoblibPool
from experiments.sweeps.slurm_engine import SlurmQueue
from helpers.commands import (
    ROOT,
    CommandResult,
    bytes_of_variables,
    compose_configuration,
    run_command,
)
from helpers.jobs import HANG_TIMEOUT, is_alive, wait_until
from sysid import store

#: engines that run jobs in other processes, by their names in `hydra/launcher`
ENGINE_CLASSES = {"joblib": JoblibPool, "dask": DaskCluster, "slurm": SlurmQueue}
#: an environment variable that marks all processes of one sweep
SWEEP_MARK = "SYSID_TEST_SWEEP"
#: overrides of a job that takes a tenth of a second
QUICK_JOB = (
    "system=van_der_pol",
    "duration=120samples",
    "budget=8",
    "training=fixed",
    "training.n_initial=10",
    "training.variance=1",
    "training.length_scales=1",
    "training.noise_variance=0.01",
)
#: number of jobs in the sweep of QUICK_JOBS
N_JOBS = 9
QUICK_JOBS = (*QUICK_JOB, f"seed=range(0,{N_JOBS})", "cache=null")
#: attributes that differ from one run to the next, because they hold times, places or digests
ATTRIBUTES_OF_THE_RUN = {
    "creation_time",
    "configuration",
    "timings",
    "summary",
    "summary_sha256",
    "estimate_seconds",
}


def run_sweep(folder, *overrides, command="identify", cwd=None):
    """Run a sweep in this process, from the folder above its own.

    If `folder` is None, the sweep names its folder itself.
    """
    if folder is None:
        return run_command(command, "-m", *overrides, cwd=cwd)
    named = f"hydra.sweep.dir={folder}"
    return run_command(command, "-m", *overrides, named, cwd=cwd or Path(folder).parent)


def sweep_command_line(folder, *overrides, command="identify"):
    """Return the command line of a sweep, with the script that an installation makes."""
    script = Path(sys.executable).parent / f"sysid-{command}"
    return [
        sys.executable,
        str(script),
        "-m",
        *map(str, overrides),
        f"hydra.sweep.dir={folder}",
    ]


def process_environment():
    """Return the environment of a process that imports this checkout, not an installed package."""
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def start_sweep(folder, *overrides, **options):
    """Start a sweep in a process of its own, and in a session of its own."""
    defaults = {
        "cwd": Path(folder).parent,
        "env": process_environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "start_new_session": True,
        "preexec_fn": partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    }
    return subprocess.Popen(sweep_command_line(folder, *overrides), **(defaults | options))


def wait_for_end(process, seconds=HANG_TIMEOUT):
    """Wait until a process has ended, and return its exit code and its output."""
    out, err = process.communicate(timeout=seconds)
    return CommandResult(process.returncode, out, err)


def interrupt_sweep(process, environment, pause):
    """Send Ctrl-C to a sweep, check that it ends cleanly, return its output.

    Ctrl-C comes a pause [s] after the command has begun to load Hydra. The sweep ends with exit
    code 130 and at most one line of error, and leaves no process behind. `environment` is the
    marked environment of the sweep.
    """
    assert wait_until(lambda: loads_hydra(process) or process.poll() is not None)
    time.sleep(pause)
    os.killpg(process.pid, signal.SIGINT)
    result = wait_for_end(process)
    assert result.code == 130, (pause, result)
    assert "Traceback" not in result.out + result.err, (pause, result)
    assert len(result.err.splitlines()) <= 1, (pause, result)
    assert_no_process_is_left(environment)
    return result


def loads_hydra(process):
    """Return whether a process has loaded the first library of Hydra.

    Before, the interpreter itself starts, and it handles Ctrl-C in its own way.
    """
    return "/yaml/" in Path(f"/proc/{process.pid}/maps").read_text()


def read_job_outcome(folder, number):
    """Return the outcome of a job, as a dict; None if the job has not ended."""
    path = Path(folder) / str(number) / "outcome.json"
    return json.loads(path.read_text()) if path.exists() else None


def finished_jobs(folder):
    """Return the numbers of the finished jobs."""
    outcomes = [json.loads(path.read_text()) for path in Path(folder).glob("[!.]*/outcome.json")]
    return {outcome["number"] for outcome in outcomes if outcome["status"] == "done"}


def finished_outcomes(folder):
    """Return the outcomes of the finished jobs, by number."""
    return {number: read_job_outcome(folder, number) for number in finished_jobs(folder)}


def read_manifest(folder):
    """Return the content of sweep.json."""
    return json.loads((Path(folder) / "sweep.json").read_text())


def unfinished_files(folder):
    """Return the temporary files that a process began to write and left behind."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.tmp"))


def job_content(path):
    """Return a job's file as dicts of bits and attributes, its summary without times, the times."""
    content = {
        name: (bytes_of_variables(group), comparable_attributes(group))
        for name, group in store.read_groups(path, kind="job").items()
    }
    summary = read_summary(path)
    times = summary.pop("times")
    return content, json.dumps(summary), times


def comparable_attributes(dataset):
    """Return the attributes that do not depend on when and where a run was made."""
    return {
        name: str(value)
        for name, value in dataset.attrs.items()
        if name not in ATTRIBUTES_OF_THE_RUN
    }


def sweep_results(folder):
    """Return the bits of all results that do not depend on when and where the jobs ran."""
    files = sorted(Path(folder).glob("*/job.nc"))
    return {path.parent.name: job_content(path)[:2] for path in files}


def collect_sweep(folder, output):
    """Run `sysid-collect`, and return the bits of its results without measured times."""
    config = compose_configuration(
        f"folder={folder}", f"output={output}", "figures=false", command="collect"
    )
    run(config, output)
    dataset = store.read(output / "sweep.nc", kind="sweep")
    compared = dataset[[name for name in dataset if not dataset[name].attrs.get("measured")]]
    attributes = {name: str(variable.attrs) for name, variable in compared.variables.items()}
    return bytes_of_variables(compared), attributes, comparable_attributes(dataset)


def marked_environment():
    """Return an environment that marks all processes of a sweep, so that they are found again."""
    return process_environment() | {SWEEP_MARK: uuid.uuid4().hex}


def living_processes(environment):
    """Return the processes of the sweep that was started with this marked environment."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mark = process.environ().get(SWEEP_MARK)
            if mark == environment[SWEEP_MARK] and is_alive(process):
                processes.append(process)
    return processes


def assert_no_process_is_left(environment):
    """Wait until all processes of a sweep have ended."""
    assert wait_until(lambda: not living_processes(environment)), living_processes(environment)


def running_jobs(folder):
    """Return the process identifiers of the jobs that run now, by job number."""
    processes = {}
    for path in Path(folder).glob("[!.]*/attempts"):
        if (path.parent / "outcome.json").exists():
            continue
        attempts = path.read_text().split()
        if attempts:
            processes[int(path.parent.name)] = int(attempts[-1])
    return processes


def check_sweep_is_whole(folder, n, jobs, *launcher, expected=None):
    """Resume a sweep of n jobs, and check that it is then as if it had never been disturbed."""
    result = run_sweep(folder, *jobs, *launcher)
    assert result.code == 0, result
    assert "Traceback" not in result.out + result.err
    assert finished_jobs(folder) == set(range(n))
    assert unfinished_files(folder) == []
    assert not list(folder.rglob(".job*"))
    assert expected is None or sweep_results(folder) == expected


def load_sweep_configuration(loader, *overrides):
    """Return the configuration of a sweep as Hydra's main function has it."""
    overrides = [*overrides, "hydra.mode=MULTIRUN"]
    master = loader.load_configuration(
        config_name="identify", overrides=overrides, run_mode=RunMode.MULTIRUN
    )
    OmegaConf.set_struct(master.hydra, False)
    return master
