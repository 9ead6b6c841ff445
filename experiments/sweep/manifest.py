"""The jobs of a sweep, in `sweep.json`: a folder, an identity and the swept values of each."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from experiments.code_version import code_digest
from sysid import store

NAME = "sweep.json"
VERSION = 1
PROJECT = "sysid"
#: what a manifest holds
KINDS = {"schema_version": int, "version": str, "code": str, "command": str, "swept": list, "jobs": list}


class Entry(NamedTuple):
    """One job of the manifest."""

    number: int  # of its folder
    identity: str
    overrides: tuple[str, ...]
    values: dict[str, Any]  # of the keys that the command sets


@dataclass
class Manifest:
    """All jobs that were ever started in a folder; each keeps its number."""

    folder: Path
    command: str
    swept: list[str] = field(default_factory=list)  # keys, in the order of the command
    entries: dict[str, Entry] = field(default_factory=dict)  # by identity

    def __post_init__(self) -> None:
        self._by_overrides = {_unordered(entry.overrides): entry.identity for entry in self.entries.values()}

    @classmethod
    def of(cls, folder: Path, command: str) -> "Manifest":
        """Manifest of a folder, or a new one.

        Raises
        ------
        ValueError
            A folder of another project, version or command; one with other content.
        """
        if not (folder / NAME).exists():
            if strangers := sorted(path.name for path in folder.glob("[!.]*")):
                raise ValueError(
                    f"{folder} is not empty ({', '.join(strangers[:3])}, ...) and holds no sweep of this sysid: choose "
                    "another folder (hydra.sweep.dir=...)"
                )
            return cls(folder, command)
        content = read_manifest(folder)
        if content["code"] != code_digest() or content["version"] != version(PROJECT):
            raise ValueError(
                f"{folder} holds a sweep of other code (sysid {content['version']}, {content['code'][:8]}; this is "
                f"{version(PROJECT)}, {code_digest()[:8]}), whose results would not be comparable: choose another "
                "folder (hydra.sweep.dir=...), or move it away"
            )
        if content["command"] != command:
            raise ValueError(
                f"{folder} holds a sweep of sysid-{content['command']}, not of sysid-{command}: choose another folder "
                "(hydra.sweep.dir=...)"
            )
        return cls(folder, command, content["swept"], {entry.identity: entry for entry in _entries(content, folder)})

    def admit(self, identity: str, overrides: Iterable[str], values: Mapping[str, Any]) -> int:
        """Number of a job: that which it has, or the next free one.

        A job with the same overrides as an earlier one takes its place: a file that it reads has changed.
        """
        if identity not in self.entries:
            overrides = tuple(overrides)
            before = self._by_overrides.get(_unordered(overrides))
            number = len(self.entries) if before is None else self.entries.pop(before).number
            self.entries[identity] = Entry(number, identity, overrides, dict(values))
            self._by_overrides[_unordered(overrides)] = identity
        return self.entries[identity].number

    def sweep(self, keys: Iterable[str]) -> None:
        """Note keys as swept: those named, and all whose values differ."""
        known: dict[str, list[Any]] = {}
        for entry in self.entries.values():
            for key, value in entry.values.items():
                seen = known.setdefault(key, [])
                if len(seen) < 2 and value not in seen:
                    seen.append(value)
        named = {*keys, *self.swept}
        self.swept = [key for key, seen in known.items() if key in named or len(seen) > 1]

    def write(self) -> None:
        """Write the manifest, complete or not at all.

        Raises
        ------
        sysid.StoreError
            Full disk, read-only folder.
        """
        content = {
            "schema": "sweep",
            "schema_version": VERSION,
            "project": PROJECT,
            "version": version(PROJECT),
            "code": code_digest(),
            "command": self.command,
            "swept": self.swept,
            "jobs": [entry._asdict() for entry in sorted(self.entries.values())],
        }
        store.write_bytes(json.dumps(content, indent=1).encode(), self.folder / NAME)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Content of the manifest of a folder.

    Raises
    ------
    ValueError
        None there, a damaged one, one of another project or of a newer version.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{folder} is no folder of a sweep: it has no {NAME}") from None
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    if not isinstance(content, dict) or content.get("schema") != "sweep" or content.get("project") != PROJECT:
        raise ValueError(f"{path} is not the manifest of a sweep of {PROJECT}: choose another folder")
    wrong = [f"{name} missing" for name in KINDS if name not in content]
    wrong += [name for name, kind in KINDS.items() if name in content and not isinstance(content[name], kind)]
    if wrong:
        raise _damaged(path, ", ".join(wrong))
    if content["schema_version"] > VERSION:
        raise ValueError(
            f"{path} has schema_version {content['schema_version']}, this sysid reads {VERSION}: update it"
        )
    return content


def _unordered(overrides: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(overrides))


def _entries(content: Mapping[str, Any], folder: Path) -> list[Entry]:
    """Jobs of a manifest."""
    try:
        entries = [Entry(**{**job, "overrides": tuple(job["overrides"])}) for job in content["jobs"]]
    except (TypeError, LookupError) as error:
        raise _damaged(folder / NAME, f"jobs: {type(error).__name__} {error}") from None
    if len({entry.number for entry in entries}) < len(entries):
        raise _damaged(folder / NAME, "jobs: a number twice")
    if {entry.number for entry in entries} != set(range(len(entries))):
        raise _damaged(folder / NAME, "jobs: a number is missing")
    return entries


def _damaged(path: Path, what: object) -> ValueError:
    return ValueError(f"{path} is damaged ({what}): restore it, or move the folder away")
