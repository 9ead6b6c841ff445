"""Wall times of competitors that take turns."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Job:
    """Something to be timed."""

    run: Callable[[], object]
    operations: int = 1  # that one run does
    prepare: Callable[[], object] = lambda: None  # before each run, not timed


def interleave(jobs: Mapping[str, Job], repetitions: int) -> dict[str, np.ndarray]:
    """Time every job once per round, after one round that is not counted.

    A machine that is busy for a while then slows all competitors, not one of them.

    Returns
    -------
    dict of str to numpy.ndarray
        Seconds per operation (repetitions,) of every job.
    """
    for job in jobs.values():
        time_once(job)
    rounds = [[time_once(job) for job in jobs.values()] for _ in range(repetitions)]
    return dict(zip(jobs, np.array(rounds).T, strict=True))


def time_once(job: Job) -> float:
    """Seconds per operation of one run."""
    job.prepare()
    start = time.perf_counter()
    job.run()
    return (time.perf_counter() - start) / job.operations


def matrix_vector_product(size: int, operations: int) -> Job:
    """BLAS product ``A @ b`` of a square matrix, written into an existing vector, called from Python."""
    rng = np.random.default_rng(size)
    matrix, vector, out = rng.normal(size=(size, size)), rng.normal(size=size), np.empty(size)

    def run() -> None:
        for _ in range(operations):
            np.dot(matrix, vector, out=out)

    return Job(run, operations)
