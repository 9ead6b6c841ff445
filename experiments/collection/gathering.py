"""Everything that a sweep has found, job by job: only numbers stay in memory."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from experiments.collection.axis import Axis, axes_of
from experiments.collection.configured import completed
from experiments.collection.job_result import DONE, JobResult
from experiments.collection.metric import JOB_TIME, RESERVED, MetricNames, Path, numbers_of
from experiments.collection.sweep_folder import Sweep
from experiments.collection.timing import SIMULATED, Timing, timing_of


class Gathered(NamedTuple):
    """Results of all jobs, in the order of the manifest."""

    sweep: Sweep
    axes: list[Axis]
    status: np.ndarray  # (n_jobs,) int8
    errors: list[str]  # empty for jobs that are done
    outputs: list[str]  # names; only "" if every job has one output
    columns: dict[str, dict[str, np.ndarray]]  # metric to output to values (n_jobs,), nan where there is none
    paths: dict[str, Path]  # metric to the keys that lead to it in a summary
    target_unit: str  # empty if jobs differ
    timing: Timing  # which jobs have times that can be compared


def gather(sweep: Sweep, results: Iterable[JobResult]) -> Gathered:
    """Take the numbers of one result after the other.

    Parameters
    ----------
    results
        As many as the sweep has jobs, in their order.
    """
    n = len(sweep.jobs)
    names = MetricNames()
    columns: dict[str, dict[str, np.ndarray]] = {}
    status, errors, units = np.zeros(n, dtype=np.int8), [""] * n, set()
    own = {tuple(key.split(".")) for key in sweep.swept}  # a swept seed is a parameter, not a result
    own.add(("partial",))  # that is the status
    processes, simulated = [""] * n, np.zeros(n, dtype=bool)

    def put(path: Path, output: str, place: int, value: float) -> None:
        by_output = columns.setdefault(names.of(path), {})
        by_output.setdefault(output, np.full(n, np.nan))[place] = value

    for place, result in enumerate(results):
        status[place], errors[place], processes[place] = result.status, result.error, result.process
        for output, summary in result.summaries.items():
            units.add(str(summary.get("target_unit", "")))
            for path, value in numbers_of(summary):
                simulated[place] |= path == SIMULATED and value > 0
                if path not in own:
                    put(path, output, place, value)
            if result.status == DONE:
                put(JOB_TIME, output, place, result.seconds)
    outputs = sorted({output for by_output in columns.values() for output in by_output}) or [""]
    sweep = sweep._replace(jobs=completed(sweep, status))
    axes = axes_of(sweep.swept, sweep.jobs, RESERVED | columns.keys())
    unit = units.pop() if len(units) == 1 else ""
    timing = timing_of(status, processes, simulated)
    return Gathered(sweep, axes, status, errors, outputs, columns, names.paths, unit, timing)
