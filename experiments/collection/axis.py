"""Swept parameters as dimensions: their names, and their values as numbers or texts."""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.sweeps.store import Entry

LARGEST_SHARE = 4  # cells of a grid for each of its jobs; a random search has far more


class Axis(NamedTuple):
    """A swept parameter."""

    key: str  # "insertion.error_threshold"
    name: str  # "error_threshold"
    column: np.ndarray  # value of each job: integers, floats or texts
    values: np.ndarray  # without repetition: numbers in ascending order, texts in the order of the command
    places: np.ndarray  # of each job in `values`


def axes_of(swept: Sequence[str], jobs: Sequence[Entry], taken: Collection[str]) -> list[Axis]:
    """One axis for each swept key that some job has, in the order of the command.

    Parameters
    ----------
    taken
        Names that no dimension may have.
    """
    keys = [key for key in swept if any(key in job.values for job in jobs)]
    return [_axis(key, name, jobs) for key, name in zip(keys, names_of(keys, taken), strict=True)]


def names_of(keys: Sequence[str], taken: Collection[str]) -> list[str]:
    """Last part of each key; the whole key with underscores where that is ambiguous or taken.

    >>> names_of(["insertion.error_threshold", "data.duration", "duration", "sampling@data.sampling"], {"sampling"})
    ['error_threshold', 'data_duration', 'duration', 'sampling_data_sampling']
    """
    last = [_plain(re.split(r"[./@]", key)[-1]) for key in keys]
    found: list[str] = []
    for key, short in zip(keys, last, strict=True):
        name = _plain(key) if last.count(short) > 1 or short in taken else short
        while name in taken or name in found:
            name = f"swept_{name}"
        found.append(name)
    return found


def is_grid(axes: Sequence[Axis], jobs: Sequence[Entry]) -> bool:
    """Whether the jobs are worth a dimension for each parameter: all have all of them, many cells have a job."""
    keys = {axis.key for axis in axes}
    n_cells = float(np.prod([len(axis.values) for axis in axes], dtype=float))
    sparse = n_cells > LARGEST_SHARE * len(jobs)
    return bool(axes) and not sparse and all(job.values.keys() == keys for job in jobs)


def _axis(key: str, name: str, jobs: Sequence[Entry]) -> Axis:
    column = column_of([job.values.get(key, ABSENT) for job in jobs])
    if column.dtype.kind == "U":
        known = {text: place for place, text in enumerate(dict.fromkeys(column.tolist()))}
        places = np.array([known[text] for text in column.tolist()], dtype=np.int64)
        return Axis(key, name, column, np.array(list(known)), places)
    values, places = np.unique(column, return_inverse=True)
    return Axis(key, name, column, values, places)


ABSENT = object()  # value of a parameter that a job does not have


def column_of(values: Sequence[Any]) -> np.ndarray:
    """Numbers if all are finite numbers, else texts as in a command; an absent one is nan or an empty text.

    >>> column_of([1, 2]), column_of([1, 0.5, ABSENT]), column_of(["a", True, None, [1, 2]])
    (array([1, 2]), array([1. , 0.5, nan]), array(['a', 'true', 'null', '[1, 2]'], dtype='<U6'))
    """
    given = [value for value in values if value is not ABSENT]
    if given and all(_is_number(value) for value in given):
        if len(given) == len(values) and all(isinstance(value, int) for value in given):
            return np.array(values, dtype=np.int64)
        return np.array([np.nan if value is ABSENT else value for value in values], dtype=np.float64)
    return np.array(["" if value is ABSENT else text_of(value) for value in values], dtype=np.str_)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else bool(np.isfinite(value))


def text_of(value: Any) -> str:
    """A value as it stands in a command."""
    return value if isinstance(value, str) else json.dumps(value)


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")
