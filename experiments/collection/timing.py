"""Which jobs have measured times that can be compared with each other."""

from typing import NamedTuple

import numpy as np

from experiments.collection.job_result import DONE
from experiments.collection.metric import TIME, Path

#: keys that lead to the number of trajectories that a job has simulated because no job before it had
SIMULATED = (TIME, "cache", "trajectory", "misses")


class Timing(NamedTuple):
    """Times that count, and what is left out."""

    counts: np.ndarray  # (n_jobs,) bool, of jobs that are done
    told: str  # a sentence; empty if every job counts


def timing_of(status: np.ndarray, processes: list[str], simulated: np.ndarray) -> Timing:
    """Leave out what has measured something else than the others.

    The first job of a process compiles, or loads what was compiled; a job that found no trajectory in the cache
    simulates within its loop, where the others read. Of jobs that all simulate those that are not the first of their
    process are alike. If nothing is left, all count.

    Parameters
    ----------
    status
        Of the jobs (n_jobs,), in the order in which a process has run them.
    processes
        Host and process of each job, empty if it is not known.
    simulated
        Whether a job has simulated although there is a cache (n_jobs,).
    """
    done = status == DONE
    first, seen = np.zeros(len(status), dtype=bool), {""}
    for place in np.flatnonzero(done).tolist():
        first[place] = processes[place] not in seen
        seen.add(processes[place])
    n_first, n_anew = int(first.sum()), int(np.sum(done & simulated & ~first))
    if np.any(counts := done & ~first & ~simulated):
        parts = [_jobs(n_first, "the first of {} process"), _jobs(n_anew, "simulated anew")]
        return Timing(counts, f"Times without {told}" if (told := " and ".join(filter(None, parts))) else "")
    if np.any(counts := done & ~first):
        return Timing(counts, f"Times without {_jobs(n_first, 'the first of {} process')}" if n_first else "")
    return Timing(done, "Times of all jobs, though each was the first of its process")


def _jobs(n: int, what: str) -> str:
    """So many jobs that did something; empty for none."""
    one = n == 1
    verb = "" if what.startswith("simulated") else "was " if one else "were "
    return f"{n} job{'' if one else 's'} that {verb}{what.format('its' if one else 'their')}" if n else ""


def is_measured(path: Path) -> bool:
    """Whether a metric is a time that was measured."""
    return path[0] == TIME
