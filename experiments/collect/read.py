"""A sweep: what its manifest plans, how each job ended, the numbers of all summaries as tables and
as a data set.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from tqdm import tqdm

from experiments.files.job_file import (
    JOB_FILE,
    SUMMARY_NUMBERS,
    SUMMARY_TIMES,
    TARGET_SQUARED,
    TARGET_UNIT,
    read_summary,
)
from experiments.sweeps.store import (
    MANIFEST,
    OUTCOME,
    SEARCH,
    Entry,
    Manifest,
    damage,
    read_outcome,
)
from sysid import StoreError
from sysid.model.result import squared_unit

STATUSES = (
    "missing",
    "done",
    "failed",
    "damaged",
    "partial",
)  # the place is the flag in the data set
TIME = "times"
SEED = "seed"
SIMULATED = (
    TIME,
    "cache",
    "trajectory",
    "misses",
)  # number of trajectories that no job before had simulated
#: names that the data set and the tables need for themselves
RESERVED = frozenset(
    {"status", "number", "output", "job", "sample", "error", "folder", "timed", "trial"}
)
AGAIN = "start the sweep again with the same command, jobs that are done are not run anew"
ABSENT = object()  # value of a parameter that a job does not have

LARGEST_SHARE = 4  # cells of a grid for each of its jobs; a random search has far more
LONG_NAMES = {
    **{name: meaning for name, (_, meaning) in SUMMARY_NUMBERS.items()},
    **{f"{TIME}_{name}": meaning for name, meaning in SUMMARY_TIMES.items()},
    f"{TIME}_job": "wall time of the job in its worker",
}
#: unit by the last part of a name: of metrics, and of thresholds, which are in the units of the target
UNITS = {
    **{name: unit for name, (unit, _) in SUMMARY_NUMBERS.items()},
    **dict.fromkeys(("held_out_rmse", "error_threshold"), TARGET_UNIT),
    **dict.fromkeys(("noise_variance", "variance_threshold"), TARGET_SQUARED),
    **dict.fromkeys(("nrmse", "r2", "msll", "coverage_50", "coverage_90", "n"), "1"),
    "fit_percent": "%",
}

Keys = tuple[str, ...]  # that lead to a number in a summary: ("times", "loop")


class Results(NamedTuple):
    """Everything that the jobs of a sweep have found."""

    sweep: Manifest
    parameters: dict[str, str]  # column to swept key
    metrics: dict[str, Keys]  # column to the keys that lead to it in a summary
    jobs: pd.DataFrame  # a row per job, by its number: status, error (one line), timed, parameters
    numbers: dict[
        str, pd.DataFrame
    ]  # of each output ("" for the only one): a row per job, a column per metric
    timing: str  # which times cannot be compared; empty if all can
    target_unit: str  # empty if jobs differ
    is_search: bool = False
    asked: tuple[str, ...] = ()  # metrics that tables and figures shall show; none: the headline

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs of a job; empty if it has one."""
        return [output for output in self.numbers if output]

    @property
    def measured(self) -> list[str]:
        """Metrics that are measured times."""
        return [name for name, keys in self.metrics.items() if keys[0] == TIME]

    def select_rows(self, dataset: xr.Dataset, output: str, without: list[str]) -> pd.DataFrame:
        """Rows of the jobs in the cells of the data set; metrics in ``without`` only where times
        can be compared.
        """
        rows = self.jobs.join(self.numbers[output])
        rows.loc[~rows["timed"], without] = np.nan
        return rows[rows.index.isin(dataset["number"].values.ravel())]


def read_sweep(folder: Path) -> Manifest:
    """Read and check the manifest of a sweep; swept are also the keys that only some jobs have.

    Raises
    ------
    ValueError
        A manifest of another project, of a newer version, or damaged.
    sysid.StoreError
        No folder, or no sweep in it.
    """
    if not folder.is_dir():
        raise StoreError(
            f"no folder {folder}: expected that of a sweep, multirun/identify/... for example"
        )
    if not (folder / MANIFEST).is_file():
        raise StoreError(
            f"{folder} is no sweep folder, it has no {MANIFEST}: name the folder that has"
        )
    manifest = Manifest.read(folder)
    jobs = manifest.entries.values()
    keys = dict.fromkeys(
        key for job in sorted(jobs) for key in job.values if not key.startswith("hydra")
    )
    differing = [key for key in keys if any(key not in job.values for job in jobs)]
    manifest.swept = [key for key in dict.fromkeys([*manifest.swept, *differing]) if key in keys]
    return manifest


def read_results(folder: Path) -> Results:
    """Read every job of the sweep in a folder, one after the other; only numbers stay in memory.

    Raises
    ------
    ValueError, sysid.StoreError
        As `read_sweep`.
    """
    sweep = read_sweep(folder)
    planned = sorted(sweep.entries.values())
    own = {
        ("partial",),
        *(tuple(key.split(".")) for key in sweep.swept),
    }  # the status; a swept seed is a parameter
    ends = []
    values = []
    units = set()
    n = len(planned)
    simulated = np.zeros(len(planned), dtype=bool)
    columns: dict[str, dict[Keys, np.ndarray]] = defaultdict(
        lambda: defaultdict(lambda: np.full(n, np.nan))
    )
    for place, job in enumerate(
        tqdm(planned, unit=" jobs", disable=None, desc="collecting", mininterval=0.2)
    ):
        status, error, outcome, summaries = read_job(job, folder / str(job.number))
        ends.append((status, error, (outcome.get("host"), outcome.get("pid"))))
        values.append({key: job.values[key] for key in sweep.swept if key in job.values})
        for output, summary in summaries.items():
            units.add(str(summary.get("target_unit", "")))
            for keys, value in chain(
                numbers_of(summary), numbers_of({TIME: {"job": outcome.get("seconds")}})
            ):
                simulated[place] |= keys == SIMULATED and value > 0
                if keys not in own:
                    columns[output][keys][place] = value
    columns = dict(sorted(columns.items())) or {"": {}}
    metrics = name_metrics(dict.fromkeys(keys for by_keys in columns.values() for keys in by_keys))
    parameters = name_parameters(sweep.swept, RESERVED | metrics.keys())
    jobs = pd.DataFrame(ends, [job.number for job in planned], ["status", "error", "process"])
    jobs["timed"], timing = find_comparable_times(
        jobs["status"] == "done", jobs.pop("process"), simulated
    )
    for name, key in parameters.items():
        jobs[name] = column_of([one.get(key, ABSENT) for one in values])
    numbers = {
        output: pd.DataFrame(
            {name: by_keys.get(keys, np.nan) for name, keys in metrics.items()},
            jobs.index,
        )
        for output, by_keys in columns.items()
    }
    unit = units.pop() if len(units) == 1 else ""
    is_search = (folder / SEARCH).is_file()
    return Results(sweep, parameters, metrics, jobs, numbers, timing, unit, is_search)


def read_job(
    job: Entry, folder: Path
) -> tuple[str, str, dict[str, Any], Mapping[str, Mapping[str, Any]]]:
    """Return the status of a job, why it is not done, its outcome, and its summaries by output.

    A job is done if its outcome says so, is that of the job in the manifest, and all its files have
    the size and the digest that the outcome states.
    """
    outcome = read_outcome(folder)
    if outcome is None and (folder / OUTCOME).exists():
        return "damaged", f"{OUTCOME} is damaged", {}, {}
    if outcome is None:
        return "missing", "not finished, or not started", {}, {}
    if outcome["identity"] != job.identity:
        return (
            "missing",
            "not finished: its folder holds another configuration or version",
            {},
            {},
        )
    if outcome["status"] != "done":
        return "failed", " ".join(str(outcome.get("error", "")).split()), outcome, {}
    try:
        if problem := damage(outcome, folder):
            return "damaged", problem, outcome, {}
        if (
            JOB_FILE not in outcome["files"]
        ):  # of a command that returns a number, and writes files of its own
            return "done", "", outcome, {"": {"value": outcome.get("value")}}
        found = read_summary(folder / JOB_FILE)
    except (OSError, TypeError, AttributeError) as error:
        return "damaged", " ".join(str(error).split()), outcome, {}
    summaries = {"": found} if isinstance(found.get("target"), str) else found
    if any(summary.get("partial") for summary in summaries.values()):
        return "partial", "stopped early, its numbers are those of a part", outcome, {}
    return "done", "", outcome, summaries


def numbers_of(summary: Mapping[str, Any], keys: Keys = ()) -> Iterator[tuple[Keys, float]]:
    """Yield every number of a summary with the keys that lead to it; flags are 0 and 1, texts and
    lists are left out.

    >>> dict(numbers_of({"smse": 0.1, "times": {"loop": 2}, "partial": False, "warnings": ["w"], "target": "y"}))
    {('smse',): 0.1, ('times', 'loop'): 2.0, ('partial',): 0.0}
    """
    for key, value in summary.items():
        if isinstance(value, Mapping):
            yield from numbers_of(value, (*keys, str(key)))
        elif isinstance(value, bool | int | float):
            yield (*keys, str(key)), float(value)


def find_comparable_times(
    done: pd.Series, process: pd.Series, simulated: np.ndarray
) -> tuple[pd.Series, str]:
    """Find the jobs whose times can be compared, and say what is left out.

    The first job of a process compiles, or loads what was compiled; a job that found no trajectory
    in the cache simulates within its loop, where the others read. Of jobs that all simulate those
    that are not the first of their process are alike. If nothing is left, all count.

    Parameters
    ----------
    done, process, simulated
        Of the jobs, in the order in which a process has run them; a process is its host and number,
        None if unknown.
    """
    first = done & ~process.where(done).duplicated() & (process != (None, None))
    counts = next(
        (some for some in (done & ~first & ~simulated, done & ~first) if some.any()),
        done,
    )
    if (counts & first).any():
        return counts, "Times of all jobs, though each was the first of its process"
    n_left = int((done & ~counts).sum())
    what = "started a process, or simulated what others read"
    return (
        counts,
        f"Times without jobs that {what} ({n_left} of {done.sum()})" if n_left else "",
    )


def column_of(values: Sequence[Any]) -> np.ndarray | pd.Categorical:
    """Numbers if all are finite numbers, else categories: texts as in a command; nan where a value
    is absent.

    >>> column_of([1, 2]), column_of([1, 0.5, ABSENT]), list(column_of(["a", True, None, [1, 2]]))
    (array([1, 2]), array([1. , 0.5, nan]), ['a', 'true', 'null', '[1, 2]'])
    """
    given = [value for value in values if value is not ABSENT]
    if all(
        isinstance(one, int | float) and not isinstance(one, bool) and abs(one) < 2**63
        for one in given
    ):
        return np.array([np.nan if value is ABSENT else value for value in values])
    texts = [
        value if isinstance(value, str) or value is ABSENT else json.dumps(value)
        for value in values
    ]
    categories = [text for text in dict.fromkeys(texts) if text is not ABSENT]
    return pd.Categorical([None if text is ABSENT else text for text in texts], categories)


def name_parameters(keys: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    """Name each key by its last part; by the whole key with underscores where that is ambiguous or
    taken.

    >>> list(name_parameters(["insertion.error_threshold", "data.duration", "duration", "sampling@data.sampling"],
    ...                      {"sampling"}))
    ['error_threshold', 'data_duration', 'duration', 'sampling_data_sampling']
    """
    last = [_plain(re.split(r"[./@]", key)[-1]) for key in keys]
    names: dict[str, str] = {}
    for key, short in zip(keys, last, strict=True):
        names[
            _find_free(
                _plain(key) if last.count(short) > 1 or short in taken else short,
                {*taken, *names},
            )
        ] = key
    return names


def name_metrics(paths: Collection[Keys]) -> dict[str, Keys]:
    """Name each metric by the keys that lead to it, joined by underscores; no two alike.

    >>> list(name_metrics([("times", "loop"), ("kernel", "y[k-1]"), ("times_loop",), ("job",)]))
    ['times_loop', 'kernel_y_k_1', 'times_loop_2', 'job_2']
    """
    names: dict[str, Keys] = {}
    for keys in paths:
        names[_find_free(_plain("_".join(keys)), RESERVED | names.keys())] = keys
    return names


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")


def _find_free(name: str, taken: Collection[str]) -> str:
    """Find a name that is not taken: the name itself, or with the first number that makes it
    different.
    """
    numbered = (f"{name}_{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in taken)


# --- the data set ---------------------------------------------------------------------------------


def build_dataset(found: Results) -> xr.Dataset:
    """Lay out the metrics of all jobs over the swept parameters, nan where there is none.

    Parameters that do not form a grid (those of a search, or some that only some jobs have) are
    coordinates along one dimension ``job``. Several outputs are one more dimension, ``output``. Of
    several jobs with the same parameters the last one that is done has the cell, the last one if
    none is.

    Returns
    -------
    xarray.Dataset
        A variable for each metric, ``status`` (flags), ``number`` (of the job, and so of its
        folder; -1 without) and ``timed`` (1 where measured times can be compared).
    """
    jobs = found.jobs.assign(job=found.jobs.index)
    dims = list(found.parameters) if is_grid(found) else ["job"]
    axes = {name: pd.Categorical(jobs[name]) for name in dims}
    shape = [len(axis.categories) for axis in axes.values()]
    jobs["cell"] = np.ravel_multi_index([axis.codes.astype(int) for axis in axes.values()], shape)
    last_done = np.argsort(jobs["status"] == "done", kind="stable")
    jobs = jobs.iloc[last_done].drop_duplicates("cell", keep="last").sort_index()

    def lay_out(values: pd.Series, empty: float, dtype: type) -> np.ndarray:
        cells: np.ndarray = np.full(math.prod(shape), empty, dtype)
        cells[jobs["cell"]] = values.loc[jobs.index]
        return cells.reshape(shape)

    status = lay_out(jobs["status"].map(STATUSES.index), 0, np.int8)
    flags = {
        "flag_values": np.arange(len(STATUSES), dtype=np.int8),
        "flag_meanings": " ".join(STATUSES),
    }
    numbers = {"long_name": "number of the job and of its folder, -1 where there is none"}
    variables: dict[str, Any] = {
        "status": (dims, status, {"long_name": "what became of the job"} | flags),
        "number": (dims, lay_out(jobs["job"], -1, np.int64), numbers),
    }
    for name, keys in found.metrics.items():
        values = np.stack(
            [lay_out(numbers[name], np.nan, float) for numbers in found.numbers.values()],
            axis=-1,
        )
        own = ([*dims, "output"], values) if found.outputs else (dims, values[..., 0])
        unit = "s" if keys[0] == TIME else find_unit(keys[-1], found.target_unit)
        meaning = LONG_NAMES.get(name, " ".join(keys))
        variables[name] = (
            *own,
            _drop_empty(units=unit, long_name=meaning, measured=int(keys[0] == TIME)),
        )
    if found.measured:
        timed = "whether the times of the job can be compared with those of others"
        about = _drop_empty(long_name=timed, measured=1, comment=found.timing)
        variables["timed"] = (dims, lay_out(jobs["timed"], 0, np.int8), about)
    coordinates: dict[str, Any] = {}
    if dims == ["job"]:
        coordinates["job"] = (
            "job",
            jobs["job"],
            {"long_name": "number of the job and of its folder"},
        )
    for name, key in found.parameters.items():
        values = np.asarray(axes[name].categories if name in axes else jobs[name])
        unit = ""
        if values.dtype.kind in "iuf":
            unit = find_unit(key.rpartition(".")[2], found.target_unit)
        else:
            values = np.where(pd.isna(values), "", values).astype(str)
        coordinates[name] = (
            name if name in axes else "job",
            values,
            _drop_empty(long_name=key, units=unit),
        )
    if found.outputs:
        coordinates["output"] = (
            "output",
            found.outputs,
            {"long_name": "output that the model predicts"},
        )
    counts = {
        f"n_{name}": int(np.sum(status == flag)) for flag, name in enumerate(STATUSES)
    }  # missing: unplanned, too
    sizes = {"n_jobs": len(found.jobs), "n_cells": status.size, **counts}
    sizes |= {
        "n_unplanned": status.size - len(jobs),
        "n_superseded": len(found.jobs) - len(jobs),
    }
    sweep = found.sweep
    about = {
        "sweep_version": sweep.version,
        "sweep_code": sweep.code,
        "swept": json.dumps(sweep.swept),
    }
    return xr.Dataset(variables, coordinates, about | sizes)


def is_grid(found: Results) -> bool:
    """Whether the jobs are worth a dimension for each parameter: all have all of them, many cells
    have a job.
    """
    columns = found.jobs[list(found.parameters)]
    if not found.parameters or found.is_search or columns.isna().any(axis=None):
        return False
    return math.prod(columns.nunique()) <= LARGEST_SHARE * len(columns)


def find_unit(name: str, target_unit: str) -> str:
    """Find the unit of a metric or parameter; empty if it is not known.

    >>> find_unit("rmse", "K"), find_unit("noise_variance", "K"), find_unit("n_seen", "K"), find_unit("budget", "K")
    ('K', 'K2', '1', '')
    """
    unit = UNITS.get(name, "")
    if unit == TARGET_SQUARED:
        return squared_unit(target_unit) if target_unit else ""
    return target_unit if unit == TARGET_UNIT else unit


def _drop_empty(**attributes: str | int) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value}
