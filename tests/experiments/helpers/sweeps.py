"""How the tests run a sweep: as the command does, in this process or in another; and what is found
in its folder.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from glob import glob
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
from helpers.jobs import is_alive, wait_until
from sysid import store

#: what runs the jobs of a sweep in other processes, by its name in `hydra/launcher`
ENGINE_CLASSES = {"joblib": JoblibPool, "dask": DaskCluster, "slurm": SlurmQueue}
MARK = "SYSID_TEST_SWEEP"  # an environment variable that all processes of a sweep have
#: jobs of a tenth of a second
QUICK_JOB = (
    *(
        "system=van_der_pol",
        "duration=120samples",
        "budget=8",
        "training=fixed",
        "training.n_initial=10",
    ),
    *(
        "training.variance=1",
        "training.length_scales=1",
        "training.noise_variance=0.01",
    ),
)
#: a sweep of them
N_JOBS = 9
QUICK_JOBS = (*QUICK_JOB, f"seed=range(0,{N_JOBS})", "cache=null")
#: what a run measures of itself, or says about when and where it was made
OF_THE_RUN = {
    "creation_time",
    "configuration",
    "timings",
    "summary",
    "summary_sha256",
    "estimate_seconds",
}


def run_sweep(folder, *overrides, command="identify", cwd=None):
    """Run a sweep in this process, from the folder above its own; without a folder in that of its
    name.
    """
    named = [f"hydra.sweep.dir={folder}"] * (folder is not None)
    return run_command(command, "-m", *overrides, *named, cwd=cwd or Path(folder).parent)


def sweep_command_line(folder, *overrides, command="identify"):
    """The same as a command line, with the script that an installation makes."""
    script = Path(sys.executable).parent / f"sysid-{command}"
    return [
        sys.executable,
        str(script),
        "-m",
        *map(str, overrides),
        f"hydra.sweep.dir={folder}",
    ]


def process_environment():
    """Of a process that finds this toolbox, not an installed one."""
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def start_sweep(folder, *overrides, **options):
    """Start a sweep in a process of its own, and in a session of its own."""
    own = {
        "cwd": Path(folder).parent,
        "env": process_environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    own |= {"text": True, "start_new_session": True}
    own["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(sweep_command_line(folder, *overrides), **(own | options))


def wait_for_end(process, seconds=120):
    """What a process said, once it has ended."""
    out, err = process.communicate(timeout=seconds)
    return CommandResult(process.returncode, out, err)


def interrupt_sweep(process, own, pause):
    """What a sweep with this environment says that Ctrl-C ends after so many seconds: a line; no
    process is left.
    """
    time.sleep(pause)
    os.killpg(process.pid, signal.SIGINT)
    said = wait_for_end(process)
    assert said.code == 130, (pause, said)
    assert "Traceback" not in said.out + said.err, (pause, said)
    assert len(said.err.splitlines()) <= 1, (pause, said)
    assert wait_until(lambda: not living_processes(own)), (pause, living_processes(own))
    return said


def read_job_outcome(folder, number):
    """How a job ended; None if it has not."""
    path = Path(folder) / str(number) / "outcome.json"
    return json.loads(path.read_text()) if path.exists() else None


def finished_jobs(folder):
    """Numbers of the finished jobs."""
    found = (json.loads(Path(path).read_text()) for path in glob(f"{folder}/*/outcome.json"))
    return {one["number"] for one in found if one["status"] == "done"}


def read_manifest(folder):
    return json.loads((Path(folder) / "sweep.json").read_text())


def unfinished_files(folder):
    """Files that somebody has begun and left."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.tmp"))


def job_content(path):
    """File of a job as dicts of bits and attributes, its summary without times, and the times."""
    content = {
        name: (
            bytes_of_variables(group),
            {key: str(value) for key, value in group.attrs.items() if key not in OF_THE_RUN},
        )
        for name, group in store.read_groups(path, kind="job").items()
    }
    summary = read_summary(path)
    times = summary.pop("times")
    return content, json.dumps(summary), times


def sweep_results(folder):
    """What the jobs of a sweep have found: the bits of all that does not depend on when and where
    they ran.
    """
    return {
        path.parent.name: job_content(path)[:2] for path in sorted(Path(folder).glob("*/job.nc"))
    }


def collect_sweep(folder, output):
    """The same of what `sysid-collect` makes of the sweep."""
    run(
        compose_configuration(
            f"folder={folder}", f"output={output}", "figures=false", command="collect"
        ),
        output,
    )
    dataset = store.read(output / "sweep.nc", kind="sweep")
    compared = dataset[[name for name in dataset if not dataset[name].attrs.get("measured")]]
    about = {name: str(variable.attrs) for name, variable in compared.variables.items()}
    return (
        bytes_of_variables(compared),
        about,
        {key: str(value) for key, value in dataset.attrs.items() if key not in OF_THE_RUN},
    )


def marked_environment():
    """Environment of a sweep whose processes can be found again."""
    return process_environment() | {MARK: uuid.uuid4().hex}


def living_processes(own):
    """Processes of the sweep with this environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == own[MARK] and is_alive(process):
                found.append(process)
    return found


def running_jobs(folder):
    """Processes that run a job now, by its number."""
    found = {}
    for path in map(
        Path, glob(f"{folder}/*/attempts")
    ):  # a sweep that starts tries whether it can make its folder
        if not (path.parent / "outcome.json").exists() and (lines := path.read_text().split()):
            found[int(path.parent.name)] = int(lines[-1])
    return found


def check_sweep_is_whole(folder, n, jobs, *launcher, expected=None):
    """The sweep can be resumed, and then it is as if nothing had happened."""
    said = run_sweep(folder, *jobs, *launcher)
    assert said.code == 0, said
    assert "Traceback" not in said.out + said.err
    assert finished_jobs(folder) == set(range(n))
    assert unfinished_files(folder) == []
    assert not list(folder.rglob(".job*"))
    assert expected is None or sweep_results(folder) == expected


def load_sweep_configuration(loader, *overrides):
    """Configuration of a sweep as Hydra's main function has it."""
    overrides = [*overrides, "hydra.mode=MULTIRUN"]
    master = loader.load_configuration(
        config_name="identify", overrides=overrides, run_mode=RunMode.MULTIRUN
    )
    OmegaConf.set_struct(master.hydra, False)
    return master
