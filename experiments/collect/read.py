"""Read a sweep: what its manifest plans, how each job ended, and the numbers of all summaries.

The numbers are collected as tables, and laid out as a data set.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
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
    MANIFEST_FILE,
    OUTCOME_FILE,
    SEARCH_FILE,
    Entry,
    Manifest,
    damage,
    read_outcome,
)
from sysid import StoreError
from sysid.foreign import check_folder
from sysid.units import squared_unit

# The position of a status is its flag in the data set.
STATUSES = (
    "missing",
    "done",
    "failed",
    "damaged",
    "partial",
)
TIMES_KEY = "times"  # key of a summary that holds its measured times
SEED = "seed"
#: Keys of the number of trajectories that a job simulated because the cache did not have them.
CACHE_MISSES = (
    TIMES_KEY,
    "cache",
    "trajectory",
    "misses",
)
#: Names that the data set and the tables need for themselves.
RESERVED = frozenset(
    {"status", "number", "output", "job", "sample", "error", "folder", "timed", "trial"}
)
HOW_TO_RESUME = "start the sweep again with the same command; finished jobs are not run again"
ABSENT = object()  # value of a parameter that a job does not have
# A grid has at most this number of cells per job; the values of a random search make far more.
MAX_CELLS_PER_JOB = 4
ALWAYS_ALLOWED_CELLS = 1_000_000  # cells of a table that files of any size may make
METRIC_MEANINGS = {
    **{name: meaning for name, (_, meaning) in SUMMARY_NUMBERS.items()},
    **{f"{TIMES_KEY}_{name}": meaning for name, meaning in SUMMARY_TIMES.items()},
    f"{TIMES_KEY}_job": "wall time of the job in its worker",
}
#: Units of metrics and thresholds by the last part of their names.
UNITS_BY_NAME = {
    **{name: unit for name, (unit, _) in SUMMARY_NUMBERS.items()},
    **dict.fromkeys(("held_out_rmse", "error_threshold"), TARGET_UNIT),
    **dict.fromkeys(("noise_variance", "variance_threshold"), TARGET_SQUARED),
    **dict.fromkeys(("nrmse", "r2", "msll", "coverage_50", "coverage_90", "n"), "1"),
    "fit_percent": "%",
}

Keys = tuple[str, ...]  # path of a number in a summary: ("times", "loop")


class Results(NamedTuple):
    """Everything that the jobs of a sweep have found."""

    sweep: Manifest
    parameters: dict[str, str]  # swept key of each column
    metrics: dict[str, Keys]  # keys of each column in a summary
    jobs: pd.DataFrame  # a row per job, by its number: status, error (one line), timed, parameters
    # Numbers of each output ("" for the only one): a row per job, a column per metric.
    numbers: dict[str, pd.DataFrame]
    timing: str  # sentence about the times that cannot be compared; empty if all can
    target_unit: str  # empty if the jobs have different ones
    is_search: bool = False
    chosen_metrics: tuple[str, ...] = ()  # of tables and figures; empty: the headline

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs of a job; empty if it has one."""
        return [output for output in self.numbers if output]

    @property
    def measured(self) -> list[str]:
        """Metrics that are measured times."""
        return [name for name, keys in self.metrics.items() if keys[0] == TIMES_KEY]

    def select_rows(self, dataset: xr.Dataset, output: str, times: list[str]) -> pd.DataFrame:
        """Return the rows of the jobs that have a cell in the data set.

        The metrics in ``times`` are nan for jobs whose times cannot be compared.
        """
        rows = self.jobs.join(self.numbers[output])
        rows.loc[~rows["timed"], times] = np.nan
        return rows[rows.index.isin(dataset["number"].values.ravel())]


def read_sweep(folder: Path) -> Manifest:
    """Read and check the manifest of a sweep.

    Keys that only some jobs have are added to its swept keys.

    Raises
    ------
    ValueError
        The manifest is damaged, or that of another project or of a newer version.
    sysid.StoreError
        The folder does not exist, or has no sweep, or has a link that leads out of it.
    """
    if not folder.is_dir():
        raise StoreError(
            f"no folder {folder}: expected that of a sweep, multirun/identify/... for example"
        )
    if not (folder / MANIFEST_FILE).is_file():
        raise StoreError(
            f"{folder} is no sweep folder, it has no {MANIFEST_FILE}: name the folder that has"
        )
    check_folder(folder)
    manifest = Manifest.read(folder)
    jobs = manifest.entries.values()
    keys = dict.fromkeys(
        key for job in sorted(jobs) for key in job.values if not key.startswith("hydra")
    )
    _check_cells(len(keys) * len(jobs), (folder / MANIFEST_FILE).stat().st_size, folder)
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
    # These are no metrics: the status states "partial", and a swept seed is a parameter.
    no_metrics = {("partial",), *(tuple(key.split(".")) for key in sweep.swept)}
    ends = []
    values = []
    units = set()
    has_simulated = np.zeros(len(planned), dtype=bool)

    def new_table() -> dict[Keys, dict[int, float]]:
        return defaultdict(dict)

    # Rows of the jobs and their values, by output and keys: as many as the files have.
    columns: dict[str, dict[Keys, dict[int, float]]] = defaultdict(new_table)
    n_bytes = (folder / MANIFEST_FILE).stat().st_size
    progress = tqdm(planned, unit=" jobs", disable=None, desc="collecting", mininterval=0.2)
    for row, job in enumerate(progress):
        status, error, outcome, summaries = read_job(job, folder / str(job.number))
        ends.append((status, error, (outcome.get("host"), outcome.get("pid"))))
        values.append({key: job.values[key] for key in sweep.swept if key in job.values})
        n_bytes += sum(stated["bytes"] for stated in outcome.get("files", {}).values())
        wall_time = {TIMES_KEY: {"job": outcome.get("seconds")}}
        for output, summary in summaries.items():
            units.add(str(summary.get("target_unit", "")))
            for keys, value in chain(numbers_of(summary), numbers_of(wall_time)):
                if keys == CACHE_MISSES and value > 0:
                    has_simulated[row] = True
                if keys not in no_metrics:
                    columns[output][keys][row] = value
    columns = dict(sorted(columns.items())) or {"": {}}
    _check_cells(len(planned) * sum(map(len, columns.values())), n_bytes, folder)
    metrics = name_metrics(dict.fromkeys(keys for by_keys in columns.values() for keys in by_keys))
    parameters = name_parameters(sweep.swept, RESERVED | metrics.keys())
    jobs = pd.DataFrame(ends, [job.number for job in planned], ["status", "error", "process"])
    is_done = jobs["status"] == "done"
    jobs["timed"], timing = find_comparable_times(is_done, jobs.pop("process"), has_simulated)
    for name, key in parameters.items():
        jobs[name] = column_of([job_values.get(key, ABSENT) for job_values in values])
    numbers = {
        output: pd.DataFrame(
            {
                name: _fill_column(by_keys.get(keys, {}), len(planned))
                for name, keys in metrics.items()
            },
            jobs.index,
        )
        for output, by_keys in columns.items()
    }
    unit = units.pop() if len(units) == 1 else ""
    is_search = (folder / SEARCH_FILE).is_file()
    return Results(sweep, parameters, metrics, jobs, numbers, timing, unit, is_search)


def _fill_column(values: Mapping[int, float], n_rows: int) -> np.ndarray:
    """Return a column with values in some rows, and nan in the others."""
    column = np.full(n_rows, np.nan)
    column[list(values.keys())] = list(values.values())
    return column


def _check_cells(n_cells: int, n_bytes: int, folder: Path) -> None:
    """Raise StoreError if a table has far more cells than its files have content for."""
    if n_cells > max(ALWAYS_ALLOWED_CELLS, n_bytes):
        raise StoreError(
            f"the jobs in {folder} would make a table of {n_cells} cells, from files of {n_bytes} "
            "bytes: nearly every job has names of its own; the sweep is damaged or forged"
        )


def read_job(
    job: Entry, folder: Path
) -> tuple[str, str, dict[str, Any], Mapping[str, Mapping[str, Any]]]:
    """Return the status of a job, a reason, its outcome, and its summaries by output.

    The reason states why the job is not done; it is empty if the job is done.
    A job is done if three conditions hold: its outcome states it, the outcome has the identity that
    the manifest plans, and all files have the size and digest that the outcome states.
    """
    outcome = read_outcome(folder)
    if outcome is None:
        if (folder / OUTCOME_FILE).exists():
            return "damaged", f"{OUTCOME_FILE} is damaged", {}, {}
        return "missing", "not finished, or not started", {}, {}
    if outcome["identity"] != job.identity:
        reason = "not finished: its folder holds another configuration or version"
        return "missing", reason, {}, {}
    if outcome["status"] != "done":
        return "failed", _one_line(outcome.get("error", "")), outcome, {}
    try:
        problem = damage(outcome, folder)
        if problem:
            return "damaged", problem, outcome, {}
        # a command without this file has returned a number and written its own files
        if JOB_FILE not in outcome["files"]:
            return "done", "", outcome, {"": {"value": outcome.get("value")}}
        found = read_summary(folder / JOB_FILE)
    except (OSError, TypeError, AttributeError) as error:
        return "damaged", _one_line(error), outcome, {}
    has_one_output = isinstance(found.get("target"), str)
    summaries = {"": found} if has_one_output else found
    if any(summary.get("partial") for summary in summaries.values()):
        return "partial", "stopped early, its numbers are those of a part", outcome, {}
    return "done", "", outcome, summaries


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def numbers_of(summary: Mapping[str, Any], keys: Keys = ()) -> Iterator[tuple[Keys, float]]:
    """Yield every number of a summary with the keys that lead to it.

    Flags are 0 and 1; texts and lists are left out.

    >>> dict(numbers_of({"smse": 0.1, "times": {"loop": 2}, "partial": False, "target": "y"}))
    {('smse',): 0.1, ('times', 'loop'): 2.0, ('partial',): 0.0}
    """
    for key, value in summary.items():
        if isinstance(value, Mapping):
            yield from numbers_of(value, (*keys, str(key)))
        elif isinstance(value, bool | int | float):
            yield (*keys, str(key)), float(value)


def find_comparable_times(
    done: pd.Series, process: pd.Series, has_simulated: np.ndarray
) -> tuple[pd.Series, str]:
    """Find the jobs whose times can be compared; return them with a sentence about the others.

    The first job of a process compiles, or loads what was compiled. A job that found no trajectory
    in the cache simulates within its loop, where other jobs read. Both are left out. If this leaves
    no job, only the first jobs are left out (all others simulate, so they can be compared). If this
    leaves none either, the times of all jobs count.

    Parameters
    ----------
    done, process, has_simulated
        Columns of the jobs, in the order in which a process has run them. A process is its host and
        number, None if unknown.
    """
    is_first = done & ~process.where(done).duplicated() & (process != (None, None))
    counts = done & ~is_first & ~has_simulated
    if not counts.any():
        counts = done & ~is_first
    if not counts.any():
        counts = done
    if (counts & is_first).any():
        return counts, "Times of all jobs, though each was the first of its process"
    n_left_out = int((done & ~counts).sum())
    if not n_left_out:
        return counts, ""
    reason = "started a process, or simulated what others read"
    return counts, f"Times without jobs that {reason} ({n_left_out} of {done.sum()})"


def column_of(values: Sequence[Any]) -> np.ndarray | pd.Categorical:
    """Return a column of numbers if all values are finite numbers, else of categories.

    Categories are texts as in a command. An absent value is nan.

    >>> column_of([1, 2]), column_of([1, 0.5, ABSENT]), list(column_of(["a", True, None, [1, 2]]))
    (array([1, 2]), array([1. , 0.5, nan]), ['a', 'true', 'null', '[1, 2]'])
    """
    given = [value for value in values if value is not ABSENT]
    if all(_is_finite_number(value) for value in given):
        return np.array([np.nan if value is ABSENT else value for value in values])
    texts = [None if value is ABSENT else _command_text(value) for value in values]
    categories = [text for text in dict.fromkeys(texts) if text is not None]
    return pd.Categorical(texts, categories)


def _is_finite_number(value: Any) -> bool:
    """Return whether a value is a number below 2^63, which fits into an integer of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63


def _command_text(value: Any) -> str:
    """Return a value as it is written in a command."""
    return value if isinstance(value, str) else json.dumps(value)


def name_parameters(keys: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    """Name each key by its last part; return the keys by name.

    A last part that is ambiguous or taken is replaced by the whole key with underscores.

    >>> keys = ["insertion.error_threshold", "data.duration", "duration", "sampling@data.sampling"]
    >>> list(name_parameters(keys, {"sampling"}))
    ['error_threshold', 'data_duration', 'duration', 'sampling_data_sampling']
    """
    last_parts = [_plain(re.split(r"[./@]", key)[-1]) for key in keys]
    counts = Counter(last_parts)
    names = FreeNames(taken)
    keys_by_name: dict[str, str] = {}
    for key, short in zip(keys, last_parts, strict=True):
        is_ambiguous = counts[short] > 1
        name = _plain(key) if is_ambiguous or short in taken else short
        keys_by_name[names.take(name)] = key
    return keys_by_name


def name_metrics(paths: Collection[Keys]) -> dict[str, Keys]:
    """Name each metric by the keys that lead to it, joined by underscores; no two names are equal.

    >>> list(name_metrics([("times", "loop"), ("kernel", "y[k-1]"), ("times_loop",), ("job",)]))
    ['times_loop', 'kernel_y_k_1', 'times_loop_2', 'job_2']
    """
    names = FreeNames(RESERVED)
    return {names.take(_plain("_".join(keys))): keys for keys in paths}


def _plain(name: str) -> str:
    """Return a name whose special characters are replaced by underscores."""
    return re.sub(r"\W+", "_", name).strip("_")


class FreeNames:
    """Names of which each is taken once.

    Parameters
    ----------
    taken
        Names that are taken from the beginning.
    """

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._next_numbers: dict[str, int] = {}  # first number to try, by name

    def take(self, name: str) -> str:
        """Return the name if it is not taken, else the name with the first free number from 2."""
        free = name
        if name in self._taken:
            number = self._next_numbers.get(name, 2)
            while f"{name}_{number}" in self._taken:
                number += 1
            self._next_numbers[name] = number + 1
            free = f"{name}_{number}"
        self._taken.add(free)
        return free


# --- the data set ---------------------------------------------------------------------------------


def build_dataset(found: Results) -> xr.Dataset:
    """Lay out the metrics of all jobs over the swept parameters; cells without a value are nan.

    Parameters that do not form a grid (those of a search, or some that only some jobs have) are
    coordinates along one dimension ``job``. Several outputs are one more dimension, ``output``.
    Several jobs with the same parameters share a cell. The cell holds the last one that is done; if
    none is done, it holds the last one.

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
    done_last = np.argsort(jobs["status"] == "done", kind="stable")
    jobs = jobs.iloc[done_last].drop_duplicates("cell", keep="last").sort_index()

    def lay_out(values: pd.Series, empty: float, dtype: type) -> np.ndarray:
        cells: np.ndarray = np.full(math.prod(shape), empty, dtype)
        cells[jobs["cell"]] = values.loc[jobs.index]
        return cells.reshape(shape)

    status = lay_out(jobs["status"].map(STATUSES.index), 0, np.int8)
    status_attributes = {
        "long_name": "what became of the job",
        "flag_values": np.arange(len(STATUSES), dtype=np.int8),
        "flag_meanings": " ".join(STATUSES),
    }
    number_attributes = {"long_name": "number of the job and of its folder, -1 where there is none"}
    variables: dict[str, Any] = {
        "status": (dims, status, status_attributes),
        "number": (dims, lay_out(jobs["job"], -1, np.int64), number_attributes),
    }
    for name, keys in found.metrics.items():
        values = np.stack(
            [lay_out(numbers[name], np.nan, float) for numbers in found.numbers.values()],
            axis=-1,
        )
        attributes = _describe_metric(name, keys, found.target_unit)
        if found.outputs:
            variables[name] = ([*dims, "output"], values, attributes)
        else:
            variables[name] = (dims, values[..., 0], attributes)
    if found.measured:
        attributes = _drop_empty(
            long_name="whether the times of the job can be compared with those of others",
            measured=1,
            comment=found.timing,
        )
        variables["timed"] = (dims, lay_out(jobs["timed"], 0, np.int8), attributes)
    coordinates = _build_coordinates(found, jobs, axes)
    return xr.Dataset(variables, coordinates, _count_cells(found, status, len(jobs)))


def _describe_metric(name: str, keys: Keys, target_unit: str) -> dict[str, Any]:
    """Return the attributes of a metric: its unit, its meaning, and whether it is a time."""
    is_time = keys[0] == TIMES_KEY
    return _drop_empty(
        units="s" if is_time else find_unit(keys[-1], target_unit),
        long_name=METRIC_MEANINGS.get(name, " ".join(keys)),
        measured=int(is_time),
    )


def _build_coordinates(
    found: Results, jobs: pd.DataFrame, axes: dict[str, pd.Categorical]
) -> dict[str, Any]:
    """Return the coordinates of the data set; ``axes`` are its dimensions without ``output``."""
    coordinates: dict[str, Any] = {}
    if list(axes) == ["job"]:
        about = {"long_name": "number of the job and of its folder"}
        coordinates["job"] = ("job", jobs["job"], about)
    for name, key in found.parameters.items():
        values = np.asarray(axes[name].categories if name in axes else jobs[name])
        unit = ""
        if values.dtype.kind in "iuf":
            unit = find_unit(key.rpartition(".")[2], found.target_unit)
        else:
            values = np.where(pd.isna(values), "", values).astype(str)
        dimension = name if name in axes else "job"
        coordinates[name] = (dimension, values, _drop_empty(long_name=key, units=unit))
    if found.outputs:
        about = {"long_name": "output that the model predicts"}
        coordinates["output"] = ("output", found.outputs, about)
    return coordinates


def _count_cells(found: Results, status: np.ndarray, n_filled: int) -> dict[str, Any]:
    """Return the attributes of the data set: its sweep, and how many jobs and cells it has."""
    sweep = found.sweep
    attributes: dict[str, Any] = {
        "sweep_version": sweep.version,
        "sweep_code": sweep.code,
        "swept": json.dumps(sweep.swept),
        "n_jobs": len(found.jobs),
        "n_cells": status.size,
    }
    for flag, name in enumerate(STATUSES):  # cells without a planned job count as missing
        attributes[f"n_{name}"] = int(np.sum(status == flag))
    attributes["n_unplanned"] = status.size - n_filled
    attributes["n_superseded"] = len(found.jobs) - n_filled
    return attributes


def is_grid(found: Results) -> bool:
    """Return whether the parameters become dimensions: all jobs have all, and few cells are empty.

    The values of a search are never a grid.
    """
    columns = found.jobs[list(found.parameters)]
    if not found.parameters or found.is_search or columns.isna().any(axis=None):
        return False
    return math.prod(columns.nunique()) <= MAX_CELLS_PER_JOB * len(columns)


def find_unit(name: str, target_unit: str) -> str:
    """Return the unit of a metric or parameter; empty if it is not known.

    >>> [find_unit(name, "K") for name in ("rmse", "noise_variance", "n_seen", "budget")]
    ['K', 'K2', '1', '']
    """
    unit = UNITS_BY_NAME.get(name, "")
    if unit == TARGET_SQUARED:
        return squared_unit(target_unit) if target_unit else ""
    return target_unit if unit == TARGET_UNIT else unit


def _drop_empty(**attributes: str | int) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value}
