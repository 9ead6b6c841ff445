"""Units of work on several processes: what is on disk already is not computed again, what fails is told."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import NamedTuple

from tqdm import tqdm

from experiments.studies.part import part_path, read_part, write_part
from experiments.studies.plan import Plan
from experiments.studies.study import Unit
from sysid import DataError

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Gap(NamedTuple):
    """A task that cannot be computed, and why."""

    task: str
    reason: str


def compute_and_keep(unit: Unit, plan: Plan) -> Gap | None:
    """Compute a unit and keep its result; a task without data is a gap. Runs in a worker."""
    from experiments.studies.catalogue import WORK

    try:
        dataset = WORK[unit.study].compute(unit, plan)
    except DataError as error:
        return Gap(unit.task, str(error).partition(" The download: ")[0])
    write_part(dataset, unit, plan)
    return None


class Execution:
    """Waves of units on a pool of processes, one BLAS thread each, under one progress bar."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self.plan = plan
        self.workers = workers
        self.gaps: dict[str, str] = {}  # task to reason
        self.n_kept = 0  # units whose result is on disk

    def run(self, waves: Sequence[Sequence[Unit]]) -> None:
        """Compute what is not kept yet, wave after wave.

        Raises
        ------
        sysid.StoreError
            A kept result that does not fit the plan, before anything is computed; a file that cannot be written.
        """
        from experiments.studies.catalogue import WORK

        units = [unit for wave in waves for unit in wave]
        seconds = {unit: WORK[unit.study].expected_seconds(unit, self.plan) for unit in units}
        kept = {unit for unit in units if self._is_kept(unit)}
        self.n_kept, total = len(kept), sum(seconds.values())
        form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        with tqdm(total=total, disable=None, bar_format=form, desc="studies", mininterval=0.5) as bar:
            bar.n = bar.initial = bar.last_print_n = sum(seconds[unit] for unit in kept)  # says nothing about the speed
            bar.refresh()
            for wave in waves:
                todo = [unit for unit in wave if unit not in kept and unit.task not in self.gaps]
                bar.total -= sum(seconds[unit] for unit in wave if unit not in kept and unit.task in self.gaps)
                for unit in self._wave(sorted(todo, key=lambda unit: -seconds[unit])):
                    bar.update(seconds[unit])
                    bar.set_postfix_str(f"{unit.study} {unit.task}".strip(), refresh=False)

    def _is_kept(self, unit: Unit) -> bool:
        """Whether a result is there; one of another plan is an error."""
        if not part_path(unit, self.plan).is_file():
            return False
        read_part(unit, self.plan)
        return True

    def _wave(self, units: Sequence[Unit]) -> Iterator[Unit]:
        """Compute units in parallel; each when it is done."""
        if not units:
            return
        with _pool(min(self.workers, len(units))) as pool:
            futures: dict[Future[Gap | None], Unit] = {
                pool.submit(compute_and_keep, unit, self.plan): unit for unit in units
            }
            for future in as_completed(futures):
                if (gap := future.result()) is not None:
                    self.gaps.setdefault(gap.task, gap.reason)
                else:
                    self.n_kept += 1
                yield futures[future]


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes with one thread each; left early, they are ended: what they were at is computed again."""
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
