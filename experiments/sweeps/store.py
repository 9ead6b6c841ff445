"""What a sweep keeps on disk: its manifest, how each job ended, finished results by content, and who holds the folder.

- `sweep.json` names the jobs: a folder number, an identity and the swept values of each.
- `outcome.json` in the folder of a job says how it ended, with the digests of the files that it made.
- The store of results holds a copy (hard links) of every finished job under its identity, whatever sweep has run it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from experiments.sweeps.identity import code_digest
from experiments.sweeps.limits import TRACE
from sysid import store

OUTCOME, MANIFEST = "outcome.json", "sweep.json"
SEARCH, TRIALS = "search.json", "search.csv"  # of a sweep that searches
ATTEMPTS = "attempts"  # a line for each start of a job
LEFT_OUT = (OUTCOME, ATTEMPTS, TRACE)  # files of a job that are no results; logs and hidden ones are none either
VERSION = 1  # of both schemas
PROJECT = "sysid"
#: what a manifest holds
KINDS = {"schema_version": int, "version": str, "code": str, "command": str, "swept": list, "jobs": list}


class Outcome(NamedTuple):
    """How a job ended."""

    number: int
    done: bool
    value: float | None = None  # what the command returns
    error: str = ""  # kind and message
    traceback: str = ""
    seconds: float = 0.0  # wall time in the worker
    stored: bool = False  # in the folder of the job


def write_outcome(outcome: Outcome, folder: Path, made_by: Mapping[str, Any], configuration: str) -> None:
    """Store the outcome of a job in its folder, complete or not at all.

    Parameters
    ----------
    outcome, folder
        Of the job.
    made_by
        Identity and overrides of the job.
    configuration
        Of the job, as JSON: the options that it has chosen are stored, and all of it if it has failed.

    Raises
    ------
    sysid.StoreError
        Full disk, read-only folder.
    """
    settings = json.loads(configuration)
    choices = settings.pop("hydra", {}).get("runtime", {}).get("choices", {})
    content: dict[str, Any] = {
        "schema": "outcome",
        "schema_version": VERSION,
        **made_by,
        "number": outcome.number,
        "status": "done" if outcome.done else "failed",
        "value": outcome.value,
        "seconds": outcome.seconds,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "choices": {group: option for group, option in choices.items() if not group.startswith("hydra/")},
    }
    if outcome.done:
        content["files"] = {path.relative_to(folder).as_posix(): _facts(path) for path in _results(folder)}
    else:
        readable = yaml.safe_dump(settings, sort_keys=False)
        content |= {"error": outcome.error, "traceback": outcome.traceback, "configuration": readable}
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(content, folder / OUTCOME)


def read_outcome(folder: Path) -> dict[str, Any] | None:
    """Content of `outcome.json` in the folder of a job; None if there is nothing that can be read."""
    try:
        content = json.loads((folder / OUTCOME).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or not {"identity", "number"} <= content.keys():
        return None
    if (content.get("schema"), content.get("schema_version")) != ("outcome", VERSION):
        return None
    done = content.get("status") == "done" and isinstance(content.get("files"), dict)
    return content if done or content.get("status") == "failed" else None


def outcome_in(folder: Path) -> Outcome | None:
    """Outcome that is stored in the folder of a job."""
    content = read_outcome(folder)
    if content is None:
        return None
    told = {name: content[name] for name in ("number", "value", "error", "traceback", "seconds") if name in content}
    return Outcome(**told, done=content["status"] == "done", stored=True)


def damage(content: Mapping[str, Any], folder: Path) -> str:
    """Name a file of a finished job that is not what the job has written; empty if all are."""
    for name, facts in content.get("files", {}).items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        try:
            found = _facts(path)
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if found != facts:
            return f"{name} is damaged"
    return ""


def note_attempt(folder: Path) -> int:
    """Number of this attempt, from 1; noted before anything else, so that one that kills the process counts."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ATTEMPTS, "a") as file:
        file.write(f"{os.getpid()}\n")
    return count_attempts(folder)


def count_attempts(folder: str | Path) -> int:
    """How often the job of a folder was started."""
    try:
        return len(Path(folder, ATTEMPTS).read_text().splitlines())
    except OSError:
        return 0


def forget(folder: Path) -> None:
    """Remove what earlier attempts left, so that the job can be run anew."""
    for path in [*(folder / name for name in LEFT_OUT), *folder.glob(".*.tmp")]:  # a kill leaves half a file
        path.unlink(missing_ok=True)


def _results(folder: Path) -> list[Path]:
    """Files that a job has made, without logs and hidden ones."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".log")
    return [
        path
        for path in found
        if path.name not in LEFT_OUT and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _facts(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _write_json(content: Mapping[str, Any], path: Path, indent: int = 2) -> None:
    store.write_bytes(json.dumps(content, indent=indent).encode(), path)


# --- finished results by content


def share(identity: str, folder: Path, results: Path) -> None:
    """Add a job to the store of results, if it is finished; a store that cannot be written to stops nothing."""
    content = None if (results / identity).exists() else read_outcome(folder)
    if content is None or content["status"] != "done":
        return
    half = results / f".{identity}.{socket.gethostname()}.{os.getpid()}.tmp"
    try:
        for name in [*content["files"], OUTCOME]:
            _link(folder / name, half / name)
        os.replace(half, results / identity)
    except OSError:  # full, read-only, or another sweep was faster
        shutil.rmtree(half, ignore_errors=True)


def fetch(identity: str, results: Path, folder: Path, changed: dict[str, Any]) -> bool:
    """Give the folder of a job the finished result of its identity, from whatever sweep; whether there is one.

    Parameters
    ----------
    identity
        Of the job.
    results
        The store.
    folder
        Of the job.
    changed
        Number and overrides of the job in this sweep.
    """
    kept = results / identity
    if not kept.exists():
        return False
    content = read_outcome(kept)
    if content is None or content["identity"] != identity or content["status"] != "done" or damage(content, kept):
        shutil.rmtree(kept, ignore_errors=True)
        return False
    try:
        forget(folder)
        for name in content["files"]:
            _link(kept / name, folder / name)
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(content | changed, folder / OUTCOME)
    except OSError:  # the job is run, and says what is wrong with its folder
        return False
    return True


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where that cannot be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


# --- the manifest of a sweep


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
        another = "choose another folder (hydra.sweep.dir=...)"
        if not (folder / MANIFEST).exists():
            if strangers := sorted(path.name for path in folder.glob("[!.]*")):
                raise ValueError(
                    f"{folder} is not empty ({', '.join(strangers[:3])}, ...) and holds no sweep of this sysid: "
                    f"{another}"
                )
            return cls(folder, command)
        content = read_manifest(folder)
        if content["code"] != code_digest() or content["version"] != version(PROJECT):
            raise ValueError(
                f"{folder} holds a sweep of other code (sysid {content['version']}, {content['code'][:8]}; this is "
                f"{version(PROJECT)}, {code_digest()[:8]}), whose results would not be comparable: {another}, or "
                "move it away"
            )
        if content["command"] != command:
            raise ValueError(f"{folder} holds a sweep of sysid-{content['command']}, not of sysid-{command}: {another}")
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
        _write_json(content, self.folder / MANIFEST, indent=1)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Content of the manifest of a folder.

    Raises
    ------
    ValueError
        None there, a damaged one, one of another project or of a newer version.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{folder} is no folder of a sweep: it has no {MANIFEST}") from None
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
        raise _damaged(folder / MANIFEST, f"jobs: {type(error).__name__} {error}") from None
    if sorted(entry.number for entry in entries) != list(range(len(entries))):
        raise _damaged(folder / MANIFEST, "jobs: a number twice, or one is missing")
    return entries


def _damaged(path: Path, what: object) -> ValueError:
    return ValueError(f"{path} is damaged ({what}): restore it, or move the folder away")


# --- one sweep at a time in a folder


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Make the folder and hold it; the system lets go of it when this process ends, however it ends.

    A folder that was found to hold no sweep, and in which none was begun, is left as it was.

    Raises
    ------
    ValueError
        If another sweep holds it.
    OSError
        If it cannot be made or written to.
    """
    owner = folder / ".owner"
    lock = _lock(folder)
    try:
        content = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
        owner.write_text(json.dumps(content))
        yield
    finally:
        owner.unlink(missing_ok=True)
        if not (folder / MANIFEST).exists():  # the lock is held until its file is gone
            (folder / ".lock").unlink(missing_ok=True)
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        os.close(lock)


def _lock(folder: Path) -> int:
    """Descriptor of the lock file of a folder, which no other process has locked."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        except (FileNotFoundError, FileExistsError):  # another sweep has removed the folder that it had made
            if folder.is_file():
                raise
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(folder / ".lock")):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise ValueError(
                f"another sweep runs in {folder} ({_holder(folder / '.owner')}): wait for it, end it, or choose "
                "another folder (hydra.sweep.dir=...)"
            ) from None
        except FileNotFoundError:
            pass
        os.close(lock)  # of a file that another sweep has removed meanwhile: nobody else would see the lock


def _holder(owner: Path) -> str:
    try:
        content = json.loads(owner.read_text())
        return f"process {content['pid']} on {content['host']} since {content['since']}"
    except (OSError, ValueError, KeyError):
        return "of a process that does not say which"
