"""Results of the jobs of a sweep, one after the other: how each ended, and the numbers of its summary."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from experiments.collection.sweep_folder import Sweep
from experiments.job_file import FILE, read_summary
from experiments.sweeps.store import OUTCOME, Entry, damage, read_outcome
from sysid import StoreError

MISSING, DONE, FAILED, DAMAGED, PARTIAL = range(5)
STATUSES = ("missing", "done", "failed", "damaged", "partial")


class JobResult(NamedTuple):
    """What became of a job."""

    job: Entry
    status: int  # index into STATUSES
    error: str = ""  # one line; empty for a job that is done
    seconds: float = float("nan")  # wall time in its worker
    summaries: Mapping[str, Mapping[str, Any]] = {}  # output to summary; "" for a job with one output
    process: str = ""  # host and process that ran it; empty if that is not known


def results(sweep: Sweep) -> Iterator[JobResult]:
    """What became of each job, in the order of their numbers; one job at a time is in memory.

    A job is done if its outcome says so, is that of the job in the manifest, and all its files have the size and the
    digest that the outcome states.
    """
    for job in tqdm(sweep.jobs, unit=" jobs", disable=None, desc="collecting", mininterval=0.2):
        yield result_of(job, sweep.folder / str(job.number))


def result_of(job: Entry, folder: Path) -> JobResult:
    """What became of one job."""
    outcome = read_outcome(folder)
    if outcome is None:
        if (folder / OUTCOME).exists():
            return JobResult(job, DAMAGED, f"{OUTCOME} is damaged")
        return JobResult(job, MISSING, "not finished, or not started")
    if outcome.get("identity") != job.identity:
        return JobResult(job, MISSING, "not finished: its folder holds another configuration or version")
    seconds = _number(outcome.get("seconds"))
    if outcome.get("status") != "done":
        return JobResult(job, FAILED, _line(str(outcome.get("error", ""))), seconds)
    try:
        return _finished(job, folder, outcome, seconds)._replace(process=_process(outcome))
    except StoreError as error:
        return JobResult(job, DAMAGED, _line(str(error)), seconds)
    except (OSError, KeyError, TypeError, AttributeError) as error:
        return JobResult(job, DAMAGED, _line(f"{OUTCOME} or a file of it cannot be read ({error!r})"), seconds)


def _finished(job: Entry, folder: Path, outcome: dict[str, Any], seconds: float) -> JobResult:
    if problem := damage(outcome, folder):
        return JobResult(job, DAMAGED, problem, seconds)
    if FILE not in outcome["files"]:  # of a command that returns a number, and writes files of its own
        return JobResult(job, DONE, "", seconds, {"": {"value": outcome.get("value")}})
    found = read_summary(folder / FILE)
    summaries = {"": found} if isinstance(found.get("target"), str) else found
    if any(summary.get("partial") for summary in summaries.values()):
        return JobResult(job, PARTIAL, "stopped early, its numbers are those of a part", seconds)
    return JobResult(job, DONE, "", seconds, summaries)


def _process(outcome: Mapping[str, Any]) -> str:
    host, pid = outcome.get("host"), outcome.get("pid")
    return f"{host}:{pid}" if isinstance(host, str) and isinstance(pid, int) else ""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _line(text: str) -> str:
    return " ".join(text.split())
