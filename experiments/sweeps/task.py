"""One job of a sweep: how a worker runs it, and how a limit ends it.

Every error that a job raises becomes its outcome.

A compiled loop cannot be interrupted, and the memory of a running job cannot be freed. A process
that exceeds its limit therefore stores the reason and kills itself. While compiled code holds the
interpreter, no Python code can store anything. In this case a timer that needs no Python writes a
traceback and ends the process; the next attempt reports it. Only engines that go on after the end
of a worker set limits.
"""

import faulthandler
import gc
import importlib
import json
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from omegaconf import DictConfig
from threadpoolctl import threadpool_limits

from experiments import THREAD_VARIABLES
from experiments.cli.arguments import escape_interpolations
from experiments.cli.options import seconds
from experiments.cli.progress import use_own_lock
from experiments.files.identity import (
    code_digest,
    edited_modules,
    file_digests,
    module_digest,
    text_digest,
)
from experiments.sweeps import store
from experiments.sweeps.store import TRACE, Job, Limits, Outcome
from sysid.errors import UserError
from sysid.store import package_versions

MAX_ATTEMPTS = 2  # a job whose worker was killed is tried once more
DIED_TWICE = (
    "its worker was killed twice while it ran "
    "(out of memory, a crash of compiled code, or a SIGKILL by somebody)"
)
#: names of errors in the outcome of a job, by the name of our own class
STANDARD_ERROR_NAMES = {
    "UserError": "ValueError",
    "UserTypeError": "TypeError",
    "SimulationError": "ArithmeticError",
    "NotPositiveDefiniteError": "LinAlgError",
}
LIMIT_CHECK_INTERVAL = 0.1  # s between two checks of the limits
#: s after the time limit; then a timer ends a process that could not store the reason itself
TIMER_DELAY = 2.0
#: environment of a worker process that runs on one core, set before it imports NumPy and numba;
#: Python 3.13 reads PYTHON_CPU_COUNT
ONE_THREAD = dict.fromkeys(
    (*THREAD_VARIABLES, "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS", "PYTHON_CPU_COUNT"),
    "1",
)
#: lets a worker with several threads run one job at a time, as Hydra's state belongs to the process
JOB_LOCK = threading.Lock()
#: digests of the user's modules that jobs have imported in this process
imported_modules: dict[str, str] = {}


def execute(job: Job) -> Outcome:
    """Run a job and store its outcome in its folder.

    Only an interrupt by a person leaves a job without an outcome. If the folder already holds an
    outcome, an earlier attempt has stored it before it ended its process; this outcome is returned.
    """
    use_own_lock()
    with JOB_LOCK:
        if job.code and job.text != text_digest() and job.code != code_digest():
            return keep(_refuse_other_code(job), job)
        folder = Path(job.folder)
        limits = job.limits
        start = time.perf_counter()

        def fail(reason: str) -> Outcome:
            elapsed = time.perf_counter() - start
            return keep(Outcome(job.number, False, error=reason, seconds=elapsed), job)

        try:
            outcome = store.outcome_in(folder)
            if outcome is not None:
                return outcome._replace(number=job.number)
            trace = "" if limits.time is None else _read_trace(folder)
            if limits.time is not None and trace:
                return keep(
                    Outcome(
                        job.number,
                        False,
                        error=_describe_time_limit(limits.time),
                        traceback=trace,
                        seconds=limits.time,
                    ),
                    job,
                )
            if store.note_attempt(folder) > MAX_ATTEMPTS:
                return fail(DIED_TWICE)
            with _limited(limits, folder, fail), _as_in_the_sweep(job):
                outcome = _run(job)
        except OSError as error:
            outcome = _failure(job, error)
        _freeze_imported_objects()
        return keep(outcome._replace(seconds=time.perf_counter() - start), job)


def _refuse_other_code(job: Job) -> Outcome:
    """Return the failure of a job whose worker has other code than the process of the sweep."""
    return Outcome(
        job.number,
        False,
        error=(
            f"the worker on {socket.gethostname()} runs other code or packages than the process "
            f"that started the sweep (sysid of {Path(__file__).parents[2]}, {package_versions()}): "
            "install the same version there, and restart the worker"
        ),
    )


def _read_trace(folder: Path) -> str:
    """Return the traceback that the timer of an earlier attempt has written; empty without one."""
    trace = folder / TRACE
    return trace.read_text("utf-8") if trace.exists() else ""


def keep(outcome: Outcome, job: Job) -> Outcome:
    """Store an outcome; a job whose outcome cannot be stored has failed."""
    try:
        store.write_outcome(outcome, job)
    except OSError as error:
        if outcome.done:
            outcome = outcome._replace(done=False, error=_describe_error(error))
        return outcome._replace(stored=False)
    return outcome._replace(stored=True)


def _failure(job: Job, error: BaseException) -> Outcome:
    """Return the outcome of a job that has raised an error."""
    trace = "".join(traceback.format_exception(error))
    return Outcome(job.number, False, error=_describe_error(error), traceback=trace)


def _describe_error(error: BaseException) -> str:
    """Return the name and the message of an error."""
    class_name = type(error).__name__
    name = STANDARD_ERROR_NAMES.get(class_name, class_name)
    return f"{name}: {error}" if str(error) else name


def _run(job: Job) -> Outcome:
    """Run the command's function as Hydra runs it, unless an input file has changed."""
    try:
        _check_input_files(job)
        _check_modules(job)
        value = _call(job)
        _check_modules(job, are_imported=True)
    except Exception as error:
        if _is_caused_by_interrupt(error):
            raise KeyboardInterrupt from error
        return _failure(job, error)
    except SystemExit as error:
        return Outcome(job.number, False, error=f"the command ended with exit code {error.code}")
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return Outcome(job.number, True, value=float(value) if is_number else None)


def _check_input_files(job: Job) -> None:
    """Raise ValueError if an input file is not the same as at the start of the sweep."""
    if job.files is None:
        return
    expected = set(job.files)
    present = set(file_digests(json.loads(job.configuration)).items())
    if present != expected:
        changed = min(name for name, _ in present ^ expected)
        raise UserError(
            f"{changed} is not what it was when the sweep was started, or {socket.gethostname()} "
            f"has another file of this name in {os.getcwd()}: "
            "run the same command again to use the present file"
        )


def _check_modules(job: Job, *, are_imported: bool = False) -> None:
    """Raise ValueError if a module is not the same as at the start of the sweep.

    A module of the user is compared before and after its first import in this process, and what was
    imported is compared with what later jobs expect. Modules of the toolbox are compared when they
    have been imported.
    """
    here = f"on {socket.gethostname()} in process {os.getpid()}"
    for name, expected in job.modules:
        found = imported_modules.get(name) or module_digest(name)
        if found != expected:
            raise UserError(
                f"the module {name} {here} is not what it was when the sweep was started: run the "
                "same command again to use the present module, and restart workers that you started"
            )
        if are_imported:
            imported_modules[name] = expected
    if job.code and edited_modules():
        raise UserError(
            f"the module {edited_modules()[0]} of the toolbox was edited while the sweep ran, and "
            f"then imported {here}: run the same command again in another folder"
        )


def _is_caused_by_interrupt(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, is a KeyboardInterrupt.

    Ctrl-C may interrupt a library in the middle of its work, which then raises an error of its own.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _call(job: Job) -> Any:
    """Call the command's function and return its value; restore logging and Hydra's state."""
    config = hydra_config(job)
    setup_globals()
    version.setbase("1.3")  # `hydra.main` sets this, but a worker does not call it
    module, _, name = job.task.partition(":")
    root = logging.getLogger()
    before = HydraConfig.instance().cfg
    handlers = list(root.handlers)
    level = root.level
    HydraConfig.instance().set_config(config)
    try:
        function = getattr(importlib.import_module(module), name)
        unwrapped = getattr(function, "__wrapped__", function)  # without the wrapper of Hydra
        # the configuration of a job is complete: the context needs no loader
        context = HydraContext(
            config_loader=None,  # type: ignore[arg-type]
            callbacks=Callbacks(config),
        )
        returned = run_job(
            task_function=unwrapped,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=context,
        )
    finally:
        HydraConfig.instance().cfg = before
        for handler in root.handlers:
            if handler not in handlers and isinstance(handler, logging.FileHandler):
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
    if returned.status is JobStatus.FAILED:
        raise returned._return_value
    return returned.return_value


def hydra_config(job: Job) -> DictConfig:
    """Restore the configuration of a job with the types that Hydra's own functions need.

    The JSON text of the configuration does not hold these types.
    """
    content = json.loads(job.configuration)
    # the command's part is resolved: what looks like an interpolation in it is a text
    config = DictConfig(
        {name: value if name == "hydra" else _literal(value) for name, value in content.items()}
    )
    config.hydra._metadata.object_type = HydraConf
    if config.hydra.mode is not None:
        config.hydra.mode = RunMode[config.hydra.mode]
    return config


def _literal(value: Any) -> Any:
    """Return plain data that a configuration can hold and that are the same once resolved."""
    if isinstance(value, dict):
        return {key: _literal(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_literal(entry) for entry in value]
    if isinstance(value, str):
        return escape_interpolations(value)
    return value


@contextmanager
def _as_in_the_sweep(job: Job) -> Iterator[None]:
    """Run the block in the folder and with the modules of the sweep, with one thread.

    A job then gives the same numbers wherever it runs.

    Raises
    ------
    OSError
        If the working folder of the sweep does not exist.
    """
    missing = [folder for folder in job.search_path if folder not in sys.path]
    sys.path.extend(missing)
    # The environment of a worker may be set after numba was imported, but before its threads start.
    numba.config.reload_config()
    threads = numba.get_num_threads()
    before = os.open(".", os.O_RDONLY)
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


@cache
def _freeze_imported_objects() -> None:
    """Exclude the objects that exist after the first job from garbage collection, once.

    These are mostly imported modules. Otherwise their collection takes 0.2 s of a job of 1.4 s.
    """
    gc.collect()
    gc.freeze()


# --- limits


def limits_of(time_limit: float | str | None, memory_limit: float | str | None) -> Limits:
    """Read limits as people write them, such as 10min and 2GB; None means no limit.

    Raises
    ------
    ValueError
        If a limit cannot be read, with the name of its option.
    """
    time_seconds = None
    if time_limit is not None:
        time_seconds = seconds(time_limit, "hydra.launcher.time_limit", "10min")
    memory_bytes = None
    if memory_limit is not None:
        memory_bytes = bytes_of(memory_limit)
    return Limits(time_seconds, memory_bytes)


def bytes_of(size: float | str) -> int:
    """Read a size in bytes, or with one of the units kB, MB, GB, TB, KiB, MiB, GiB, TiB.

    Raises
    ------
    ValueError
        If the size cannot be read, or is below one byte.

    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of(1000)
    (2000000000, 1610612736, 1000)
    """
    match = re.fullmatch(
        r"\s*([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*(?:([kKMGT])(i?)B|B)?\s*",
        str(size),
    )
    value = math.nan
    if match:
        number, prefix, binary = match.groups()
        value = float(number)
        if prefix:
            base = 1024 if binary else 1000
            value *= base ** ("KMGT".index(prefix.upper()) + 1)
    if not 1 <= value < math.inf:
        raise UserError(
            "hydra.launcher.memory_limit must be a number of bytes, "
            f"or a number with a unit such as 500MB or 2GB, got {size!r}"
        )
    return int(value)


def _describe_time_limit(time_limit: float) -> str:
    return f"time limit of {time_limit:g} s exceeded"


@contextmanager
def _limited(limits: Limits, folder: Path, fail: Callable[[str], object]) -> Iterator[None]:
    """Kill this process when the block exceeds its limits, after `fail(reason)` was called.

    Raises
    ------
    OSError
        If the folder of the job cannot be written to.
    """
    if limits == Limits():
        yield
        return
    is_over = threading.Event()
    start = time.monotonic()

    def watch() -> None:
        while not is_over.wait(LIMIT_CHECK_INTERVAL):
            reason = _exceeded_limit(limits, start)
            if reason:
                try:
                    fail(reason)
                finally:
                    os.kill(os.getpid(), signal.SIGKILL)

    watcher = threading.Thread(target=watch, name="limits of the job", daemon=True)
    with open(folder / TRACE, "w", encoding="utf-8") as file:
        if limits.time is not None:
            faulthandler.dump_traceback_later(limits.time + TIMER_DELAY, exit=True, file=file)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()
            faulthandler.cancel_dump_traceback_later()
    (folder / TRACE).unlink(missing_ok=True)


def _exceeded_limit(limits: Limits, start: float) -> str:
    """Return which limit is exceeded, in words; empty if none is.

    `start` is the time of the monotonic clock at which the job was started [s].
    """
    if limits.time is not None and time.monotonic() - start > limits.time:
        return _describe_time_limit(limits.time)
    if limits.memory is not None:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
        used = n_pages * os.sysconf("SC_PAGE_SIZE")
        if used > limits.memory:
            return (
                f"memory limit of {limits.memory / 1e6:.0f} MB exceeded "
                f"({used / 1e6:.0f} MB in use)"
            )
    return ""
