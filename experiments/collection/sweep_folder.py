"""The folder of a sweep: which jobs its manifest plans, checked before anything is read from them."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.sweeps.store import MANIFEST, SEARCH, TRIALS, Entry, read_manifest
from sysid import StoreError

SHOWN = 8  # names of files or sweeps in a message
AGAIN = "start the sweep again with the same command, jobs that are done are not run anew"


class Sweep(NamedTuple):
    """A sweep as its manifest states it."""

    folder: Path
    command: str  # "identify"
    version: str  # of sysid
    code: str  # digest of what computed
    swept: tuple[str, ...]  # keys in the order of the command, then those that only some jobs have
    jobs: tuple[Entry, ...]  # in the order of their numbers, with the values of the swept keys only
    objectives: dict[str, str]  # of a search: number of the summary to minimize or maximize; empty for a plain sweep
    trials: dict[int, int]  # of a search: number of a job to that of its trial


def read_sweep(folder: Path) -> Sweep:
    """Read and check the manifest of a sweep.

    Raises
    ------
    ValueError
        A manifest of another project, of a newer version, or damaged.
    sysid.StoreError
        No folder, or no sweep in it.
    """
    if not folder.is_dir():
        raise StoreError(f"no folder {folder}: expected that of a sweep, multirun/identify/... for example")
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} is no sweep folder, it has no {MANIFEST}; {_held(folder)}")
    content = read_manifest(folder)
    try:
        return _sweep(content, folder, _objectives(folder / SEARCH), _trials(folder / TRIALS))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise StoreError(f"{folder / MANIFEST} is damaged ({problem}): {AGAIN}, in an empty folder") from error


def _objectives(path: Path) -> dict[str, str]:
    """What a search has gone by; empty without a search, or before its end."""
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_bytes())["settings"]
        return {str(name): str(way) for name, way in zip(settings["objectives"], settings["direction"], strict=True)}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error!r}): {AGAIN}") from error


def _trials(path: Path) -> dict[int, int]:
    """Which trial of a search each of its jobs belongs to; empty without a search."""
    if not path.is_file():
        return {}
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        return {int(job): int(row["trial"]) for row in rows for job in row["jobs"].split()}
    except (OSError, ValueError, LookupError, AttributeError, csv.Error) as error:
        raise StoreError(f"{path} is damaged ({error!r}): {AGAIN}") from error


def _sweep(content: Mapping[str, Any], folder: Path, objectives: dict[str, str], trials: dict[int, int]) -> Sweep:
    jobs = sorted((_planned(job) for job in content["jobs"]), key=lambda job: job.number)
    if len({job.number for job in jobs}) < len(jobs):
        raise ValueError("two of its jobs have the same number")
    swept = _swept([str(key) for key in content["swept"]], jobs)
    own = tuple(job._replace(values={key: job.values[key] for key in swept if key in job.values}) for job in jobs)
    command, version, code = (str(content[name]) for name in ("command", "version", "code"))
    return Sweep(folder, command, version, code, swept, own, objectives, trials)


def _swept(named: list[str], jobs: list[Entry]) -> tuple[str, ...]:
    """Keys by which jobs differ: those named, and those that only some jobs set (of several commands in one folder)."""
    count: dict[str, int] = {}
    for job in jobs:
        for key in job.values:
            count[key] = count.get(key, 0) + 1
    some = (key for key, n in count.items() if n < len(jobs) and not key.startswith("hydra"))
    return tuple(dict.fromkeys([*named, *some]))


def _planned(job: Mapping[str, Any]) -> Entry:
    number = job["number"]
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise TypeError(f"the number of a job is {number!r}")
    overrides = tuple(str(override) for override in job["overrides"])
    return Entry(number, str(job["identity"]), overrides, {str(key): value for key, value in job["values"].items()})


def _held(folder: Path) -> str:
    """What a folder holds that is no sweep: sweeps one or two levels below, or whatever there is."""
    found = sorted([*folder.glob(f"*/{MANIFEST}"), *folder.glob(f"*/*/{MANIFEST}")])
    if found:
        return f"it holds the sweeps {_listed([str(path.parent) for path in found])}: name one of them"
    if (folder.parent / MANIFEST).is_file():
        return f"it is a job of the sweep {folder.parent}: name that"
    names = sorted(path.name for path in folder.iterdir())
    return f"it holds {_listed(names)}" if names else "it is empty"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
