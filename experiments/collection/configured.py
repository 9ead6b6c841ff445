"""Values of swept parameters that jobs do not name: those of their configurations."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.collection.job_result import DONE, FAILED, PARTIAL
from experiments.collection.sweep_folder import Sweep
from experiments.job_file import FILE
from experiments.launch import CONF
from experiments.sweeps.store import Entry, read_outcome
from sysid import store

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it is built
UNKNOWN = object()  # no such key, or nothing that an override could be


def completed(sweep: Sweep, status: np.ndarray) -> tuple[Entry, ...]:
    """Jobs of a sweep, each with a value for every swept key that its configuration has one for.

    Of several commands in one folder, the jobs of one may name a key that those of another leave as configured. Only
    the configurations of such jobs are read, and one of each option that others name. An unfinished job has none: it
    takes the value of the finished ones that name the same keys, if those agree.
    """
    swept = [key for key in sweep.swept if any(key in job.values for job in sweep.jobs)]
    lacking = [place for place, job in enumerate(sweep.jobs) if any(key not in job.values for key in swept)]
    if not lacking:
        return sweep.jobs
    found = dict(_configurations(sweep, status, lacking))
    options = {key: _options(sweep, status, key, swept) for key in swept if is_group(key)}
    values = {place: dict(sweep.jobs[place].values) for place in lacking}
    for place, configuration in found.items():
        for key in swept:
            if key not in values[place]:
                value = _value(configuration, key, options, swept)
                values[place] |= {} if value is UNKNOWN else {key: value}
    _infer(sweep.jobs, values, found.keys())
    return tuple(job._replace(values=values.get(place, job.values)) for place, job in enumerate(sweep.jobs))


def _infer(jobs: Sequence[Entry], values: dict[int, dict[str, Any]], known: Iterable[int]) -> None:
    """Give jobs without a configuration what those that name the same keys agree in."""
    alike: dict[frozenset[str], list[dict[str, Any]]] = {}
    for place in known:
        added = {key: value for key, value in values[place].items() if key not in jobs[place].values}
        alike.setdefault(frozenset(jobs[place].values), []).append(added)
    for place in values.keys() - set(known):
        additions = alike.get(frozenset(jobs[place].values), [])
        if additions and all(one == additions[0] for one in additions):
            values[place] |= additions[0]


def _configurations(sweep: Sweep, status: np.ndarray, places: Iterable[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Configurations of the jobs that have left one: in the result, or in the outcome of a failure."""
    names = {place_of(key).partition(".")[0] for key in sweep.swept}
    for place in places:
        folder = sweep.folder / str(sweep.jobs[place].number)
        if (text := _text(folder, int(status[place]))) is None:
            continue
        try:
            configuration = yaml.load(_blocks(text, names), LOADER)
        except yaml.YAMLError:
            continue
        if isinstance(configuration, dict):
            yield place, configuration


def _blocks(text: str, names: Collection[str]) -> str:
    r"""Lines of a configuration under some of its first keys, which takes half as long to read.

    >>> print(_blocks("a: 1\nb:\n- 2\nc:\n  d: 3", {"b"}))
    b:
    - 2
    """
    return "\n".join(block for block in re.split(r"\n(?=[^\s#-])", text) if block.partition(":")[0] in names)


def _text(folder: Path, status: int) -> str | None:
    if status in (DONE, PARTIAL):
        found = store.header(folder / FILE).get("configuration")
    else:
        found = (read_outcome(folder) or {}).get("configuration") if status == FAILED else None
    return None if found is None else str(found)


def is_group(key: str) -> bool:
    """Whether a key chooses an option by its name.

    >>> is_group("reduction"), is_group("budget"), is_group("insertion.error_threshold")
    (True, False, False)
    """
    return (CONF / key.partition("@")[0]).is_dir()


def place_of(key: str) -> str:
    """Where a group or value stands in a configuration.

    >>> place_of("sampling@data.sampling"), place_of("narx/lags"), place_of("insertion.error_threshold")
    ('data.sampling', 'narx.lags', 'insertion.error_threshold')
    """
    group, _, package = key.partition("@")
    return package or group.replace("/", ".")


def _value(
    configuration: Mapping[str, Any], key: str, options: Mapping[str, Mapping[str, str]], swept: Sequence[str]
) -> Any:
    """Value of a key in a configuration, for a group the name of the option that is like it."""
    node = _node(configuration, place_of(key))
    if key in options:
        return UNKNOWN if node is UNKNOWN else options[key].get(_fixed(node, place_of(key), swept), UNKNOWN)
    return node if node is None or isinstance(node, bool | int | float | str) else UNKNOWN


def _node(configuration: Mapping[str, Any], path: str) -> Any:
    found: Any = configuration
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return UNKNOWN
        found = found[name]
    return found


def _options(sweep: Sweep, status: np.ndarray, key: str, swept: Sequence[str]) -> dict[str, str]:
    """Options of a group by their nodes: those that ship and those that jobs name; of nodes alike none."""
    nodes = dict(_shipped(key.partition("@")[0]))
    first: dict[str, int] = {}
    for place in np.flatnonzero(np.isin(status, (DONE, PARTIAL, FAILED))).tolist():
        if key in sweep.jobs[place].values:
            first.setdefault(str(sweep.jobs[place].values[key]), place)
    named = dict(_configurations(sweep, status, first.values()))
    found = {name: _node(named.get(place, {}), place_of(key)) for name, place in first.items()}
    nodes |= {name: node for name, node in found.items() if node is not UNKNOWN}
    fixed = {name: _fixed(node, place_of(key), swept) for name, node in nodes.items()}
    count = Counter(fixed.values())
    return {text: name for name, text in fixed.items() if count[text] == 1}


@cache
def _shipped(group: str) -> dict[str, Any]:
    """Content of the option files of a group; of none if one depends on other groups, and may look like another."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((CONF / group).glob("*.yaml"))}
    if any("${" in text or "defaults:" in text for text in texts.values()):
        return {}
    return {name: yaml.load(text, LOADER) or {} for name, text in texts.items()}


def _fixed(node: Any, place: str, swept: Sequence[str]) -> str:
    """A node without what is swept in it, as text that can be compared."""
    if isinstance(node, Mapping):
        node = {name: value for name, value in node.items() if f"{place}.{name}" not in swept}
    return json.dumps(node, sort_keys=True, default=str)
