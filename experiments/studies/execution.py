"""Jobs on several processes: what is on disk already is not computed again."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context

from experiments.studies.study import Plan, Unit, write_part

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

#: units that one process computes, because they share streams of the same task and seed
Job = tuple[Unit, ...]


def execute(jobs: Sequence[Job], plan: Plan, workers: int) -> Iterator[Job]:
    """Compute what is not kept yet, each job in one process of one thread; yield each job when it is done.

    Left early, by Ctrl-C say, the processes are ended: the unit that each was at is computed again next time.

    Raises
    ------
    concurrent.futures.process.BrokenProcessPool
        A process died.
    sysid.StoreError
        A result that cannot be written.
    """
    if jobs:
        with _pool(min(workers, len(jobs))) as pool:
            futures = {pool.submit(compute_job, job, plan): job for job in jobs}
            for future in as_completed(futures):
                future.result()
                yield futures[future]


def compute_job(job: Job, plan: Plan) -> None:
    """Compute the units of a job, one after the other, and keep each."""
    from experiments.studies.report import compute_unit

    for unit in job:
        if not plan.is_kept(unit):
            write_part(compute_unit(unit, plan), unit, plan)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        yield pool
    except BaseException:
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches every process of the terminal; the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
