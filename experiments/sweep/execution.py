"""Running one job in this process, whoever asked for it: what it raises becomes its outcome."""

import gc
import importlib
import json
import logging
import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobStatus, run_job, setup_globals
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from experiments.code_version import code_digest
from experiments.sweep.guard import guarded, time_exceeded, where_it_stood
from experiments.sweep.job import Job, Outcome
from experiments.sweep.outcome import ATTEMPTS, attempts, keep, kept, outcome_of
from sysid.store import package_versions

ATTEMPTS_ALLOWED = 2  # a job whose worker was killed is tried once more
DIED_TWICE = "its worker was killed twice while it ran (out of memory, a crash of compiled code, or somebody's SIGKILL)"
VERSION_BASE = "1.3"  # as in every `hydra.main`: a worker has not been through one
#: Hydra keeps its state in one place per process, so a worker with several threads runs one job at a time
ONE_AT_A_TIME = threading.Lock()
tqdm.set_lock(threading.RLock())  # its own, shared by processes, would be left in the system when a worker is killed


def execute(job: Job) -> Outcome:
    """Run a job and store how it ended in its folder; only an interrupt by a person leaves it.

    An outcome that is there already was stored by an attempt that had to end its process: it stands.
    """
    with ONE_AT_A_TIME:
        folder = Path(job.folder)
        if job.code and job.code != code_digest():
            return stored(Outcome(job.number, False, error=_stranger()), job)
        try:
            if (content := kept(folder)) is not None:
                return outcome_of(content, job.number)
            if job.time_limit is not None and (trace := where_it_stood(folder)):
                reason = time_exceeded(job.time_limit)
                return stored(Outcome(job.number, False, error=reason, traceback=trace, seconds=job.time_limit), job)
            if _attempt(folder) > ATTEMPTS_ALLOWED:
                return stored(Outcome(job.number, False, error=DIED_TWICE), job)
        except OSError as error:
            return Outcome(job.number, False, error=_headline(error), traceback=traceback.format_exc())
        start = time.perf_counter()

        def last_words(reason: str) -> None:
            stored(Outcome(job.number, False, error=reason, seconds=time.perf_counter() - start), job)

        try:
            with guarded(job.time_limit, job.memory_limit, last_words, folder), _surroundings(job):
                outcome = _outcome(job)
        except OSError as error:
            outcome = Outcome(job.number, False, error=_headline(error), traceback=traceback.format_exc())
        _spare_the_collector()
        return stored(outcome._replace(seconds=time.perf_counter() - start), job)


@cache
def _spare_the_collector() -> None:
    """Once, after the first job has imported everything: Python's collector need not walk all of that again and again.

    It takes 0.2 s of a job of 1.4 s otherwise.
    """
    gc.collect()
    gc.freeze()


def stored(outcome: Outcome, job: Job) -> Outcome:
    """The outcome, marked as stored if it could be; a job whose outcome cannot be stored has failed."""
    try:
        keep(outcome, job)
    except OSError as error:
        told = outcome if not outcome.done else outcome._replace(done=False, error=_headline(error))
        return told._replace(stored=False)
    return outcome._replace(stored=True)


def _outcome(job: Job) -> Outcome:
    try:
        value = _run(job)
    except Exception as error:
        return Outcome(job.number, False, error=_headline(error), traceback=_trace(error))
    except SystemExit as error:
        return Outcome(job.number, False, error=f"the command ended with exit code {error.code}")
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return Outcome(job.number, True, value=float(value) if is_number else None)


def _run(job: Job) -> Any:
    """The command's function on the configuration of the job, as Hydra runs it."""
    config = hydra_config(job)
    setup_globals()
    version.setbase(VERSION_BASE)
    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    try:
        with _own_log():
            returned = run_job(
                task_function=function_of(job.task),
                config=config,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
                hydra_context=HydraContext(config_loader=None, callbacks=Callbacks(config)),  # type: ignore[arg-type]
            )
    finally:
        HydraConfig.instance().cfg = before
    if returned.status is JobStatus.FAILED:
        raise returned._return_value
    return returned.return_value


def hydra_config(job: Job) -> DictConfig:
    """Configuration of a job as Hydra's own functions want it: JSON has lost the types of its node."""
    config = OmegaConf.create(json.loads(job.configuration))
    assert isinstance(config, DictConfig)
    config.hydra._metadata.object_type = HydraConf
    if config.hydra.mode is not None:
        config.hydra.mode = RunMode[config.hydra.mode]
    return config


def function_of(task: str) -> Callable[[DictConfig], Any]:
    """Function of a command, without what Hydra has wrapped around it."""
    module, _, name = task.partition(":")
    found = getattr(importlib.import_module(module), name)
    return getattr(found, "__wrapped__", found)


@contextmanager
def _surroundings(job: Job) -> Iterator[None]:
    """Working folder and modules of the sweep, one thread: the same numbers wherever the job runs."""
    missing = [folder for folder in job.search_path if folder not in sys.path]
    sys.path.extend(missing)
    with suppress(OSError):
        if job.cwd and job.cwd != os.getcwd():
            os.chdir(job.cwd)
    numba.config.reload_config()  # before it starts its threads: a worker's environment may be younger than its import
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(threads)
        for folder in missing:
            sys.path.remove(folder)


def _attempt(folder: Path) -> int:
    """Number of this attempt, from 1; noted before anything else, so that one that kills the process counts."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ATTEMPTS, "a") as file:
        file.write(f"{os.getpid()}\n")
    return attempts(folder)


@contextmanager
def _own_log() -> Iterator[None]:
    """Close the log file of a job after it, and leave the logging of this process as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)
            if isinstance(handler, logging.FileHandler):
                handler.close()
        for handler in [handler for handler in handlers if handler not in root.handlers]:
            root.addHandler(handler)
        root.setLevel(level)


def _stranger() -> str:
    return (
        f"the worker on {socket.gethostname()} runs other code or packages than the process that conducts the sweep "
        f"(sysid of {Path(__file__).parents[2]}, {package_versions()}): install the same there, and start it anew"
    )


def _headline(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
