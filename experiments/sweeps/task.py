"""One job of a sweep: how a worker runs it, and how a limit ends it. Whatever the job raises
becomes its outcome.

A compiled loop cannot be interrupted, and memory cannot be taken back from a job that holds it: so
a process over its limit stores why, and kills itself. While compiled code holds the interpreter no
Python can store anything: then a timer that needs no Python writes where the process stood, and
ends it; the next attempt tells. Only engines that outlive a worker set limits.
"""

import ctypes
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
from experiments.cli.options import seconds
from experiments.cli.progress import use_own_lock
from experiments.files.identity import code_digest, file_digests, text_digest
from experiments.sweeps import store
from experiments.sweeps.store import TRACE, Job, Limits, Outcome
from sysid.errors import UserError
from sysid.store import package_versions

ATTEMPTS_ALLOWED = 2  # a job whose worker was killed is tried once more
DIED_TWICE = "its worker was killed twice while it ran (out of memory, a crash of compiled code, or somebody's SIGKILL)"
#: kinds of error as the outcome of a job names them, by the name of our own class
WELL_KNOWN_KINDS = {
    "UserError": "ValueError",
    "UserTypeError": "TypeError",
    "SimulationError": "ArithmeticError",
    "NotPositiveDefiniteError": "LinAlgError",
}
POLL = 0.1  # s between two looks at the limits
GRACE = 2.0  # s; a process that cannot even say why it ends is ended by its timer that much later
#: of a worker process, set before it imports NumPy and numba; one core (as Python 3.13 takes the last)
ONE_THREAD = dict.fromkeys(
    (*THREAD_VARIABLES, "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS", "PYTHON_CPU_COUNT"),
    "1",
)
PR_SET_PDEATHSIG = 1  # prctl(2)
#: Hydra keeps its state in one place per process, so a worker with several threads runs one job at a time
ONE_AT_A_TIME = threading.Lock()


def execute(job: Job) -> Outcome:
    """Run a job and store how it ended in its folder; only an interrupt by a person leaves it.

    An outcome that is there already was stored by an attempt that had to end its process: it
    stands.
    """
    use_own_lock()
    with ONE_AT_A_TIME:
        folder = Path(job.folder)
        limits = job.limits
        start = time.perf_counter()
        if job.code and job.text != text_digest() and job.code != code_digest():
            other = f"the worker on {socket.gethostname()} runs other code or packages than the process that conducts"
            here = f"sysid of {Path(__file__).parents[2]}, {package_versions()}"
            advice = "install the same there, and start it anew"
            return keep(
                Outcome(job.number, False, error=f"{other} the sweep ({here}): {advice}"),
                job,
            )

        def fail(reason: str, **facts: Any) -> Outcome:
            known: dict[str, Any] = {
                "error": reason,
                "seconds": time.perf_counter() - start,
            }
            return keep(Outcome(job.number, False, **known | facts), job)

        try:
            if (outcome := store.outcome_in(folder)) is not None:
                return outcome
            if (
                limits.time is not None
                and (trace := folder / TRACE).exists()
                and (stood := trace.read_text())
            ):
                return fail(_time_exceeded(limits.time), traceback=stood, seconds=limits.time)
            if store.note_attempt(folder) > ATTEMPTS_ALLOWED:
                return fail(DIED_TWICE)
            with _limited(limits, folder, fail), _as_in_the_sweep(job):
                outcome = _run(job)
        except OSError as error:
            outcome = _failure(job, error)
        _spare_the_collector()
        return keep(outcome._replace(seconds=time.perf_counter() - start), job)


def keep(outcome: Outcome, job: Job) -> Outcome:
    """Store an outcome; a job whose outcome cannot be stored has failed."""
    try:
        store.write_outcome(outcome, job)
    except OSError as error:
        failed = (
            outcome if not outcome.done else outcome._replace(done=False, error=_headline(error))
        )
        return failed._replace(stored=False)
    return outcome._replace(stored=True)


def _failure(job: Job, error: BaseException) -> Outcome:
    trace = "".join(traceback.format_exception(error))
    return Outcome(job.number, False, error=_headline(error), traceback=trace)


def _headline(error: BaseException) -> str:
    name = type(error).__name__
    kind = WELL_KNOWN_KINDS.get(name, name)
    return f"{kind}: {error}" if str(error) else kind


def _run(job: Job) -> Outcome:
    """Run the command's function as Hydra runs it, if the input files are those that the sweep has
    seen.
    """
    try:
        if job.files is not None and (
            found := {*file_digests(json.loads(job.configuration)).items()}
        ) != {*job.files}:
            changed = min(name for name, _ in found ^ {*job.files})
            other = f"{socket.gethostname()} sees another one in {os.getcwd()}"
            was = f"{changed} is not what it was when the sweep was started, or {other}"
            raise UserError(f"{was}: the same command again takes it as it is now")
        value = _call(job)
    except Exception as error:
        if _came_of_an_interrupt(error):
            raise KeyboardInterrupt from error
        return _failure(job, error)
    except SystemExit as error:
        return Outcome(job.number, False, error=f"the command ended with exit code {error.code}")
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return Outcome(job.number, True, value=float(value) if is_number else None)


def _came_of_an_interrupt(error: BaseException) -> bool:
    """Whether an error was raised while Ctrl-C unwound somebody's half-done work, which it then
    hides.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or found.__context__
    return found is not None


def _call(job: Job) -> Any:
    """Value that the command's function returns; logging and Hydra's state are as they were
    afterwards.
    """
    config = hydra_config(job)
    setup_globals()
    version.setbase("1.3")  # as in every `hydra.main`: a worker has not been through one
    module, _, name = job.task.partition(":")
    root = logging.getLogger()
    before = HydraConfig.instance().cfg
    handlers = list(root.handlers)
    level = root.level
    HydraConfig.instance().set_config(config)
    try:
        function = getattr(importlib.import_module(module), name)
        returned = run_job(
            task_function=getattr(
                function, "__wrapped__", function
            ),  # without what Hydra has wrapped around it
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=HydraContext(config_loader=None, callbacks=Callbacks(config)),  # type: ignore[arg-type]
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
    """Restore the configuration of a job as Hydra's own functions want it.

    JSON has lost the types of its node.
    """
    config = DictConfig(json.loads(job.configuration))
    config.hydra._metadata.object_type = HydraConf
    if config.hydra.mode is not None:
        config.hydra.mode = RunMode[config.hydra.mode]
    return config


@contextmanager
def _as_in_the_sweep(job: Job) -> Iterator[None]:
    """Work in the folder and with the modules of the sweep, with one thread: the same numbers
    wherever the job runs.

    Raises
    ------
    OSError
        If the working folder of the sweep is not there.
    """
    missing = [folder for folder in job.search_path if folder not in sys.path]
    sys.path.extend(missing)
    # before it starts its threads: a worker's environment may be younger than its import
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
def _spare_the_collector() -> None:
    """Once, after the first job has imported everything: Python's collector need not walk all of
    that again and again.

    It takes 0.2 s of a job of 1.4 s otherwise.
    """
    gc.collect()
    gc.freeze()


def end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends, even while compiled code holds the
    interpreter.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


# --- limits


def limits_of(time_limit: float | str | None, memory_limit: float | str | None) -> Limits:
    """Limits as people write them, such as 10min and 2GB; None: none.

    Raises
    ------
    ValueError
        With the option that is wrong.
    """
    return Limits(
        None if time_limit is None else seconds(time_limit, "hydra.launcher.time_limit", "10min"),
        None if memory_limit is None else bytes_of(memory_limit),
    )


def bytes_of(size: float | str) -> int:
    """Bytes of a number of bytes, or of a number with kB, MB, GB, TB or KiB, MiB, GiB, TiB.

    Raises
    ------
    ValueError
        If it is neither, or not positive.

    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of(1000)
    (2000000000, 1610612736, 1000)
    """
    match = re.fullmatch(
        r"\s*([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*(?:([kKMGT])(i?)B|B)?\s*",
        str(size),
    )
    value = float(match[1]) if match else math.nan
    if match and match[2]:
        value *= (1024 if match[3] else 1000) ** ("KMGT".index(match[2].upper()) + 1)
    if not 1 <= value < math.inf:
        expected = "a number of bytes, or one with a unit such as 500MB or 2GB"
        raise UserError(f"hydra.launcher.memory_limit must be {expected}, got {size!r}")
    return int(value)


def _time_exceeded(time_limit: float) -> str:
    return f"time limit of {time_limit:g} s exceeded"


@contextmanager
def _limited(limits: Limits, folder: Path, fail: Callable[[str], object]) -> Iterator[None]:
    """Kill this process when the block takes longer or more memory than it may, after
    `fail(reason)` has stored why.

    Raises
    ------
    OSError
        If the folder of the job cannot be written to.
    """
    if limits == Limits():
        yield
        return
    over = threading.Event()
    start = time.monotonic()
    page = os.sysconf("SC_PAGE_SIZE")

    def watch() -> None:
        while not over.wait(POLL):
            used = (
                int(Path("/proc/self/statm").read_text().split()[1]) * page
                if limits.memory is not None
                else 0
            )
            if limits.time is not None and time.monotonic() - start > limits.time:
                reason = _time_exceeded(limits.time)
            elif limits.memory is not None and used > limits.memory:
                reason = f"memory limit of {limits.memory / 1e6:.0f} MB exceeded ({used / 1e6:.0f} MB in use)"
            else:
                continue
            try:
                fail(reason)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)

    watcher = threading.Thread(target=watch, name="limits of the job", daemon=True)
    with open(folder / TRACE, "w") as file:
        if limits.time is not None:
            faulthandler.dump_traceback_later(limits.time + GRACE, exit=True, file=file)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            faulthandler.cancel_dump_traceback_later()
    (folder / TRACE).unlink(missing_ok=True)
