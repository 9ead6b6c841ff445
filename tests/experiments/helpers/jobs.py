"""Jobs without Hydra's command line, and the functions that they run: they return, raise, hang, eat
and die.

The functions are named in jobs as "helpers.jobs:NAME"; workers find them through the search path of
the job.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numba
import numpy as np
import psutil
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tqdm import tqdm

from experiments.sweeps.store import Job, Limits, count_attempts

#: folder in which workers find `helpers`
HERE = Path(__file__).parents[1]
ROOT = HERE.parents[1]


def make_job(folder, number, function, *, task="helpers.jobs:", **settings):
    """Job of one of the functions below in the sweep folder; limits and keys of its configuration
    as settings.
    """
    limits = Limits(settings.pop("time_limit", None), settings.pop("memory_limit", None))
    config = json.loads(template())
    config["hydra"]["sweep"] = {"dir": str(folder), "subdir": str(number)}
    config["hydra"]["job"] |= {"name": "job", "num": number, "id": str(number)}
    return Job(
        number=number,
        folder=str(Path(folder) / str(number)),
        identity=f"identity-{number}",
        overrides=(f"number={number}",),
        task=task + function,
        configuration=json.dumps(config | {"number": number} | settings),
        cwd=str(folder),
        search_path=(str(ROOT), str(HERE)),
        limits=limits,
    )


def make_jobs(folder, functions, **settings):
    """One job for each function named, numbered from 0."""
    return [
        make_job(folder, number, function, **settings) for number, function in enumerate(functions)
    ]


@cache
def template():
    """Configuration of nothing with Hydra's node, as JSON, what a sweep hands to its jobs."""
    with TemporaryDirectory() as folder:
        Path(folder, "empty.yaml").write_text("hydra: {job: {name: job}}\n")
        with initialize_config_dir(version_base="1.3", config_dir=folder):
            config = compose("empty", return_hydra_config=True)
    return json.dumps(OmegaConf.to_container(config, resolve=False, enum_to_str=True))


# --- functions of jobs


def number(config):
    """Return at once."""
    return float(config.number)


def undefined(config):
    return float("nan")


def written(config):
    """Write a file and a page into the folder of the job; its folder is the only thing that Hydra
    tells.
    """
    (folder_of_job() / "report.html").write_text("may be written anew")
    (folder_of_job() / "result.txt").write_text(f"number {config.number}\n")
    return float(config.number)


def surroundings(config):
    """Tell where the job runs and with how many threads, in a file."""
    from threadpoolctl import threadpool_info

    facts = {
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "numba": numba.get_num_threads(),
        "blas": [pool["num_threads"] for pool in threadpool_info()],
        "environment": {
            name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")
        },
    }
    (folder_of_job() / "surroundings.json").write_text(json.dumps(facts))
    return 0.0


def interrupted(config):
    """Ctrl-C, in code whose cleaning up fails because of it."""
    try:
        raise KeyboardInterrupt
    finally:
        raise AttributeError("'NoneType' object has no attribute 'flags'")


def raising(config):
    """Raise what a bad configuration raises."""
    raise ValueError(f"job {config.number} cannot work")


def leaving(config):
    """End the command as scripts do."""
    sys.exit(3)


def slow(config):
    """Sleep for `config.seconds`."""
    time.sleep(config.seconds)
    return float(config.number)


def sleeping(config):
    """Never end, without computing."""
    while True:
        time.sleep(0.05)


def spinning(config):
    """Never end, in compiled code that holds the interpreter."""
    spin(np.zeros(2))  # compiled now: the compiler lets others speak
    (folder_of_job() / ".spinning").touch()
    spin(np.ones(2))


def showing(config):
    """Never end, with a progress bar, which makes semaphores unless it is told not to."""
    for _ in tqdm(iter(int, 1), disable=True):
        (folder_of_job() / "shown").touch()


@numba.njit
def spin(values):
    while values[0] > 0.0:
        values[1] = 1.0 - values[1]


def greedy(config):
    """Take more and more memory."""
    held = []
    while True:
        held.append(np.ones(1_000_000))  # 8 MB
        time.sleep(0.005)


def killing(config):
    """Kill the own process, every time."""
    os.kill(os.getpid(), signal.SIGKILL)


def killing_once(config):
    """Kill the own process the first time, return the second time."""
    marker = folder_of_job() / ".was_here"
    if not marker.exists():
        marker.touch()
        killing(config)
    return float(config.number)


def folder_of_job():
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


# --- what tests see of processes

#: runs the functions that its arguments name with an engine
DRIVER = """
import sys
from pathlib import Path
from helpers.jobs import make_job
from {engine.__module__} import {engine.__name__}

if __name__ == "__main__":
    folder, functions = Path(sys.argv[1]), sys.argv[2:]
    todo = [make_job(folder, n, one, task="", seconds=1) for n, one in enumerate(functions)]
    try:
        list({engine.__name__}(folder, **{settings}).run(todo))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def count_starts(one):
    """Number of times that a job was started."""
    return count_attempts(one.folder)


def wait_until(condition, seconds=60.0, pause=0.01):
    """Wait for a condition; whether it came true."""
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(pause)
    return met


def child_processes(pid=None):
    """Living processes below this one, or below another, without what Python and loky keep for
    themselves.
    """
    found = []
    for one in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [one] * (
                is_alive(one) and "resource_tracker import main" not in " ".join(one.cmdline())
            )
    return found


def is_alive(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def receives_ctrl_c(process):
    """Whether Ctrl-C is not blocked in a process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    blocked = next(line.split()[1] for line in lines if line.startswith("SigBlk"))
    return not int(blocked, 16) >> (signal.SIGINT - 1) & 1


@contextlib.contextmanager
def script_process(script, *arguments, **options):
    """Run a Python script that finds this module in a process of its own, which ends with the
    block.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE))),
        "NUMBA_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, env=environment, **options) as process:
        try:
            yield process
        finally:
            process.kill()
