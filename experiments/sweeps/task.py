"""One job of a sweep: what a worker needs, and how it runs the job. Whatever the job raises becomes its outcome."""

import ctypes
import gc
import importlib
import json
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import resource_tracker
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

from experiments.sweeps import store
from experiments.sweeps.identity import code_digest, file_digests, text_digest
from experiments.sweeps.limits import guard_limits, time_exceeded, where_it_stood
from experiments.sweeps.store import Outcome
from sysid.store import package_versions

ATTEMPTS_ALLOWED = 2  # a job whose worker was killed is tried once more
DIED_TWICE = "its worker was killed twice while it ran (out of memory, a crash of compiled code, or somebody's SIGKILL)"
VERSION_BASE = "1.3"  # as in every `hydra.main`: a worker has not been through one
#: of a worker process, set before it imports NumPy and numba
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
PR_SET_PDEATHSIG = 1  # prctl(2)
#: Hydra keeps its state in one place per process, so a worker with several threads runs one job at a time
ONE_AT_A_TIME = threading.Lock()
tqdm.set_lock(threading.RLock())  # its own, shared by processes, would be left in the system when a worker is killed


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to run a job, as plain data."""

    number: int  # of its folder in the sweep
    folder: str  # absolute
    identity: str  # digest of configuration, code and files: the same job gives the same result
    overrides: tuple[str, ...]  # of the command line
    task: str  # function of the command, "experiments.identify:main"
    configuration: str = field(repr=False)  # resolved, with the node hydra, as JSON
    code: str = ""  # digest of the code and packages that the sweep counts on; empty: any
    text: str = ""  # digest of its text
    files: tuple[tuple[str, str], ...] | None = None  # digests of input files that the sweep counts on; None: any
    cwd: str = ""  # working folder: relative paths mean what they mean to the sweep; empty: that of the worker
    search_path: tuple[str, ...] = ()  # folders of modules
    time_limit: float | None = None  # s
    memory_limit: int | None = None  # byte


def execute(job: Job) -> Outcome:
    """Run a job and store how it ended in its folder; only an interrupt by a person leaves it.

    An outcome that is there already was stored by an attempt that had to end its process: it stands.
    """
    with ONE_AT_A_TIME:
        folder, start = Path(job.folder), time.perf_counter()
        if job.code and job.text != text_digest() and job.code != code_digest():
            return keep(_failure(job, _other_code()), job)
        try:
            if (outcome := store.outcome_in(folder)) is not None:
                return outcome
            if job.time_limit is not None and (trace := where_it_stood(folder)):
                reason = time_exceeded(job.time_limit)
                return keep(_failure(job, reason)._replace(traceback=trace, seconds=job.time_limit), job)
            if store.note_attempt(folder) > ATTEMPTS_ALLOWED:
                return keep(_failure(job, DIED_TWICE), job)

            def give_reason(reason: str) -> None:
                keep(_failure(job, reason)._replace(seconds=time.perf_counter() - start), job)

            with guard_limits(job.time_limit, job.memory_limit, give_reason, folder), _as_in_the_sweep(job):
                outcome = _run(job)
        except OSError as error:
            outcome = _failure(job, error)
        _spare_the_collector()
        return keep(outcome._replace(seconds=time.perf_counter() - start), job)


def keep(outcome: Outcome, job: Job) -> Outcome:
    """Store an outcome; a job whose outcome cannot be stored has failed."""
    made_by = {"identity": job.identity, "overrides": list(job.overrides)}
    try:
        store.write_outcome(outcome, Path(job.folder), made_by, job.configuration)
    except OSError as error:
        failed = outcome if not outcome.done else outcome._replace(done=False, error=_headline(error))
        return failed._replace(stored=False)
    return outcome._replace(stored=True)


def _failure(job: Job, reason: str | BaseException) -> Outcome:
    if isinstance(reason, str):
        return Outcome(job.number, False, error=reason)
    trace = "".join(traceback.format_exception(reason))
    return Outcome(job.number, False, error=_headline(reason), traceback=trace)


def _headline(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _other_code() -> str:
    return (
        f"the worker on {socket.gethostname()} runs other code or packages than the process that conducts the sweep "
        f"(sysid of {Path(__file__).parents[2]}, {package_versions()}): install the same there, and start it anew"
    )


def _run(job: Job) -> Outcome:
    """Run the command's function as Hydra runs it."""
    try:
        _check_files(job)
        value = _call(job)
    except Exception as error:
        return _failure(job, error)
    except SystemExit as error:
        return _failure(job, f"the command ended with exit code {error.code}")
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return Outcome(job.number, True, value=float(value) if is_number else None)


def _check_files(job: Job) -> None:
    """Refuse input files that are not those from which the sweep has made the identity of the job."""
    if job.files is None:
        return
    expected, found = dict(job.files), file_digests(json.loads(job.configuration))
    changed = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    if changed:
        raise ValueError(
            f"{changed[0]} is not what it was when the sweep was started, or {socket.gethostname()} sees another one "
            f"in {os.getcwd()}: the same command again takes it as it is now"
        )


def _call(job: Job) -> Any:
    config = hydra_config(job)
    setup_globals()
    version.setbase(VERSION_BASE)
    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    try:
        with _own_log():
            returned = run_job(
                task_function=_function_of(job.task),
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


def _function_of(task: str) -> Callable[[DictConfig], Any]:
    """Function of a command, without what Hydra has wrapped around it."""
    module, _, name = task.partition(":")
    found = getattr(importlib.import_module(module), name)
    return getattr(found, "__wrapped__", found)


@contextmanager
def _as_in_the_sweep(job: Job) -> Iterator[None]:
    """Work in the folder and with the modules of the sweep, with one thread: the same numbers wherever the job runs.

    Raises
    ------
    OSError
        If the working folder of the sweep is not there.
    """
    missing = [folder for folder in job.search_path if folder not in sys.path]
    sys.path.extend(missing)
    numba.config.reload_config()  # before it starts its threads: a worker's environment may be younger than its import
    threads, before = numba.get_num_threads(), os.open(".", os.O_RDONLY)
    numba.set_num_threads(1)
    try:
        os.chdir(job.cwd or ".")
        with threadpool_limits(1):
            yield
    finally:
        os.chdir(before)
        os.close(before)
        numba.set_num_threads(threads)
        for folder in missing:
            sys.path.remove(folder)


@contextmanager
def _own_log() -> Iterator[None]:
    """Close the log file of a job after it, and leave the logging of this process as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in root.handlers:
            if handler not in handlers and isinstance(handler, logging.FileHandler):
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


@cache
def _spare_the_collector() -> None:
    """Once, after the first job has imported everything: Python's collector need not walk all of that again and again.

    It takes 0.2 s of a job of 1.4 s otherwise.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def no_interrupt_for_children() -> Iterator[None]:
    """Start processes and threads in the block that never see Ctrl-C: their parent ends them."""
    resource_tracker.ensure_running()  # its start would let Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends, even while compiled code holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
