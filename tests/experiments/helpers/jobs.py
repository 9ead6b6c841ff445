"""Jobs without Hydra's command line, and the functions that they run.

Some of these functions return; others raise, hang, take memory or kill their process. Jobs name
them as "helpers.jobs:NAME", and workers find them through the search path of the job.
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

#: folder from which workers import `helpers`
HELPERS_ROOT = Path(__file__).parents[1]
ROOT = HELPERS_ROOT.parents[1]
#: s after which a test gives up a process or an event that it waits for, because it hangs; on a
#: busy machine everything takes ten times as long
HANG_TIMEOUT = 1800.0
#: bytes that `greedy` takes over its limit: fewer than those at which others would kill its process
MEMORY_OVER_LIMIT = 24_000_000


def make_job(folder, number, function, *, task="helpers.jobs:", **settings):
    """Make a job of one of the functions below, in a sweep folder.

    `settings` are keys of its configuration; `time_limit` and `memory_limit` are its limits too.
    """
    limits = Limits(settings.get("time_limit"), settings.get("memory_limit"))
    config = json.loads(empty_configuration())
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
        search_path=(str(ROOT), str(HELPERS_ROOT)),
        limits=limits,
    )


def make_jobs(folder, functions, **settings):
    """Make one job for each function named, numbered from 0."""
    return [
        make_job(folder, number, function, **settings) for number, function in enumerate(functions)
    ]


@cache
def empty_configuration():
    """Return a configuration that holds only Hydra's node, as the JSON that a sweep gives a job."""
    with TemporaryDirectory() as folder:
        Path(folder, "empty.yaml").write_text("hydra: {job: {name: job}}\n")
        with initialize_config_dir(version_base="1.3", config_dir=folder):
            config = compose("empty", return_hydra_config=True)
    return json.dumps(OmegaConf.to_container(config, resolve=False, enum_to_str=True))


# --- functions of jobs


def returning(config):
    """Return at once."""
    return float(config.number)


def returning_nan(config):
    """Return not-a-number."""
    return float("nan")


def writing(config):
    """Write a result and a page into the folder of the job."""
    (folder_of_job() / "report.html").write_text("may be written anew")
    (folder_of_job() / "result.txt").write_text(f"number {config.number}\n")
    return float(config.number)


def describing(config):
    """Write into a file where the job runs, and with how many threads."""
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
    """Raise what Ctrl-C raises, in code whose cleaning up then fails."""
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


def pausing(config):
    """Sleep for `config.seconds`, and return."""
    time.sleep(config.seconds)
    return float(config.number)


def sleeping(config):
    """Sleep for ever."""
    while True:
        time.sleep(0.05)


def spinning(config):
    """Run for ever, in compiled code that holds Python's global lock."""
    spin(np.zeros(2))  # compiles the function; compilation itself lets other threads run
    (folder_of_job() / ".spinning").touch()
    spin(np.ones(2))


@numba.njit
def spin(values):
    """Loop for ever if the first value is positive."""
    while values[0] > 0.0:
        values[1] = 1.0 - values[1]


def showing(config):
    """Run for ever with a progress bar, which makes semaphores unless it is disabled."""
    for _ in tqdm(iter(int, 1), disable=True):
        (folder_of_job() / "shown").touch()


def greedy(config):
    """Take memory, 8 MB at a time, until the process is over its limit; then sleep.

    Whoever watches the process has all the time that a busy machine takes.
    """
    held = []
    process = psutil.Process()
    while process.memory_info().rss < config.memory_limit + MEMORY_OVER_LIMIT:
        held.append(np.ones(1_000_000))
    sleeping(config)


def exhausting(config):
    """Ask for more memory than any machine has, as arrays of NumPy do, or as Python does."""
    size = 2**61
    return bytearray(size) if config.number else np.ones(size // 8)


def killing(config):
    """Kill the process of the job, every time."""
    os.kill(os.getpid(), signal.SIGKILL)


def killing_once(config):
    """Kill the process of the job the first time, and return the second time."""
    marker = folder_of_job() / ".was_here"
    if not marker.exists():
        marker.touch()
        killing(config)
    return float(config.number)


def folder_of_job():
    """Return the folder of the job that runs, which Hydra knows."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


# --- processes

#: a script that runs jobs with an engine: its arguments are a sweep folder and functions
DRIVER_SCRIPT = """
import sys
from pathlib import Path
from helpers.jobs import make_job
from {engine.__module__} import {engine.__name__}

if __name__ == "__main__":
    folder, functions = Path(sys.argv[1]), sys.argv[2:]
    jobs = [make_job(folder, n, name, task="", seconds=1) for n, name in enumerate(functions)]
    try:
        list({engine.__name__}(folder, **{settings}).run(jobs))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def count_starts(job):
    """Return the number of times that a job was started."""
    return count_attempts(job.folder)


def wait_until(condition, seconds=HANG_TIMEOUT, pause=0.01):
    """Wait until a condition is true, for at most so many seconds; return its last value."""
    end = time.monotonic() + seconds
    value = condition()
    while not value and time.monotonic() < end:
        time.sleep(pause)
        value = condition()
    return value


def child_processes(pid=None):
    """Return the living processes below this process, or below another.

    The processes that Python and loky keep to track resources do not count.
    """
    children = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            tracks_resources = "resource_tracker import main" in " ".join(process.cmdline())
            if is_alive(process) and not tracks_resources:
                children.append(process)
    return children


def is_alive(process):
    """Return whether a process runs and is no zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def receives_ctrl_c(process):
    """Return whether a process does not block Ctrl-C."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    blocked_signals = next(line.split()[1] for line in lines if line.startswith("SigBlk"))
    blocks_interrupt = int(blocked_signals, 16) >> (signal.SIGINT - 1) & 1
    return not blocks_interrupt


@contextlib.contextmanager
def script_process(script, *arguments, **options):
    """Run a Python script that can import `helpers`, in a process that ends with the block."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(HELPERS_ROOT))),
        "NUMBA_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, env=environment, **options) as process:
        try:
            yield process
        finally:
            process.kill()
