"""What a sweep keeps on disk: its manifest, how each job ended, finished results by content, and
who holds the folder.

- `sweep.json` names the jobs: a folder number, an identity and the swept values of each.
- `outcome.json` in the folder of a job says how it ended, with the digests of the files that it
  made.
- The store of results holds a copy (hard links) of every finished job under its identity, whatever
  sweep has run it.
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
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from experiments.files.identity import code_digest
from sysid import __version__, store
from sysid.errors import UserError, UserTypeError

OUTCOME = "outcome.json"
MANIFEST = "sweep.json"
# of a sweep that searches
SEARCH = "search.json"
TRIALS = "search.csv"
ATTEMPTS = "attempts"  # a line for each start of a job
TRACE = ".trace"  # where a job stood when its timer ended it
#: files of a job that are no results, a page can be written anew; logs and hidden ones are none either
LEFT_OUT = (OUTCOME, ATTEMPTS, TRACE, "report.html")
VERSION = 1  # of both schemas
PROJECT = "sysid"


class Limits(NamedTuple):
    """What a single job may use; None: anything."""

    time: float | None = None  # s
    memory: int | None = None  # resident memory of the whole process [byte]


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to run a job, as plain data."""

    number: int  # of its folder in the sweep
    folder: str  # absolute
    identity: str  # digest of configuration, code and files: the same job gives the same result
    overrides: tuple[str, ...]  # of the command line
    task: str  # function of the command, "experiments.identify:main"
    configuration: str = field(repr=False)  # resolved, with the node hydra, as JSON
    code: str = ""  # digest of the code and packages that the sweep counts on; empty: any
    text: str = ""  # digest of its text
    files: tuple[tuple[str, str], ...] | None = (
        None  # digests of input files that the sweep counts on; None: any
    )
    # working folder: relative paths mean what they mean to the sweep; empty: that of the worker
    cwd: str = ""
    search_path: tuple[str, ...] = ()  # folders of modules
    limits: Limits = NO_LIMITS


class Outcome(NamedTuple):
    """How a job ended."""

    number: int
    done: bool
    value: float | None = None  # what the command returns
    error: str = ""  # kind and message
    traceback: str = ""
    seconds: float = 0.0  # wall time in the worker
    stored: bool = False  # in the folder of the job


def write_outcome(outcome: Outcome, job: Job) -> None:
    """Store the outcome of a job in its folder, complete or not at all.

    The options that the job has chosen are stored with it, and its whole configuration if it has
    failed.

    Raises
    ------
    sysid.StoreError
        Full disk, read-only folder.
    """
    folder = Path(job.folder)
    settings = json.loads(job.configuration)
    settings.pop("hydra", None)
    content: dict[str, Any] = {
        "schema": "outcome",
        "schema_version": VERSION,
        "identity": job.identity,
        "overrides": list(job.overrides),
        "number": outcome.number,
        "status": "done" if outcome.done else "failed",
        "value": outcome.value,
        "seconds": outcome.seconds,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    if outcome.done:
        content["files"] = {
            path.relative_to(folder).as_posix(): _facts(path) for path in _results(folder)
        }
    else:
        readable = yaml.safe_dump(settings, sort_keys=False)
        content |= {
            "error": outcome.error,
            "traceback": outcome.traceback,
            "configuration": readable,
        }
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(content, folder / OUTCOME)


def read_outcome(folder: Path) -> dict[str, Any] | None:
    """Content of `outcome.json` in the folder of a job; None if there is nothing that can be
    read.
    """
    try:
        content = json.loads((folder / OUTCOME).read_bytes())
        known = (content["schema"], content["schema_version"]) == ("outcome", VERSION)
        ended = content["status"] == "failed" or (
            content["status"] == "done" and isinstance(content["files"], dict)
        )
        return content if known and ended and {"identity", "number"} <= content.keys() else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def outcome_in(folder: Path) -> Outcome | None:
    """Outcome that is stored in the folder of a job."""
    content = read_outcome(folder)
    if content is None:
        return None
    facts = {
        name: content[name]
        for name in ("number", "value", "error", "traceback", "seconds")
        if name in content
    }
    return Outcome(**facts, done=content["status"] == "done", stored=True)


def damage(content: Mapping[str, Any], folder: Path) -> str:
    """Name a file of a finished job that is not what the job has written; empty if all are."""
    for name, facts in content.get("files", {}).items():
        try:
            if _facts(folder / name) != facts:
                return f"{name} is damaged"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return ""


def note_attempt(folder: Path) -> int:
    """Note an attempt and return its number, from 1.

    This comes before anything else, so that an attempt that kills the process counts.

    Files that an attempt before it had begun to write are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
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
    for path in [
        *(folder / name for name in LEFT_OUT),
        *folder.glob(".*.tmp"),
    ]:  # a kill leaves half a file
        path.unlink(missing_ok=True)


def _results(folder: Path) -> list[Path]:
    """Files that a job has made, without logs and hidden ones."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".log"]
    seen = [
        path
        for path in found
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return [path for path in seen if path.name not in LEFT_OUT]


def _facts(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _write_json(content: Mapping[str, Any], path: Path, indent: int = 2) -> None:
    store.write_bytes(json.dumps(content, indent=indent).encode(), path)


# --- finished results by content


def share(job: Job, results: Path) -> None:
    """Add a job to the store of results, if it is finished; a store that cannot be written to stops
    nothing.
    """
    folder = Path(job.folder)
    kept = results / job.identity
    content = None if kept.exists() else read_outcome(folder)
    if content is None or content["status"] != "done":
        return
    half = results / f".{job.identity}.{socket.gethostname()}.{os.getpid()}.tmp"
    try:
        for name in [*content["files"], OUTCOME]:
            _link(folder / name, half / name)
        os.replace(half, kept)
    except OSError:  # full, read-only, or another sweep was faster
        shutil.rmtree(half, ignore_errors=True)


def fetch(job: Job, results: Path) -> Outcome | None:
    """Give the folder of a job the finished result of its identity in a store, from whatever sweep;
    None if none.
    """
    folder = Path(job.folder)
    kept = results / job.identity
    content = read_outcome(kept)
    if (
        content is None
        or content["identity"] != job.identity
        or content["status"] != "done"
        or damage(content, kept)
    ):
        shutil.rmtree(kept, ignore_errors=True)
        return None
    try:
        forget(folder)
        for name in content["files"]:
            _link(kept / name, folder / name)
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(
            content | {"number": job.number, "overrides": list(job.overrides)},
            folder / OUTCOME,
        )
    except OSError:  # the job is run, and says what is wrong with its folder
        return None
    return outcome_in(folder)


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
    version: str = field(default_factory=lambda: __version__)
    code: str = field(default_factory=code_digest)

    def __post_init__(self) -> None:
        self._by_overrides = {
            tuple(sorted(entry.overrides)): entry.identity for entry in self.entries.values()
        }

    @classmethod
    def open(cls, folder: Path, command: str) -> "Manifest":
        """Manifest of a folder to run jobs in, or a new one.

        Raises
        ------
        ValueError
            A folder of another project, version or command; one with other content.
        """
        another = "choose another folder (hydra.sweep.dir=...)"
        if not (folder / MANIFEST).exists():
            if strangers := sorted(path.name for path in folder.glob("[!.]*")):
                names = ", ".join(strangers[:3])
                raise UserError(
                    f"{folder} is not empty ({names}, ...) and holds no sweep of this sysid: {another}"
                )
            return cls(folder, command)
        theirs = cls.read(folder)
        ours = cls(folder, command)
        if (theirs.version, theirs.code) != (ours.version, ours.code):
            codes = f"sysid {theirs.version}, {theirs.code[:8]}; this is {ours.version}, {ours.code[:8]}"
            why = "whose results would not be comparable"
            raise UserError(
                f"{folder} holds a sweep of other code ({codes}), {why}: {another}, or move it away"
            )
        if theirs.command != command:
            raise UserError(
                f"{folder} holds a sweep of sysid-{theirs.command}, not of sysid-{command}: {another}"
            )
        return theirs

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Manifest of a folder, whatever code and command has written it.

        Raises
        ------
        ValueError
            None there, a damaged one, one of another project or of a newer version.
        """
        path = folder / MANIFEST
        damaged = f"{path} is damaged: restore it, or move the folder away"
        try:
            content = dict(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{damaged} ({error})") from None
        if (content.get("schema"), content.get("project")) != ("sweep", PROJECT):
            raise UserError(
                f"{path} is not the manifest of a sweep of {PROJECT}: choose another folder"
            )
        if (schema := content.get("schema_version", 0)) > VERSION:
            raise UserError(
                f"{path} has schema_version {schema}, this sysid reads {VERSION}: update"
            )
        try:
            entries = [
                Entry(**job | {"overrides": tuple(job["overrides"])}) for job in content["jobs"]
            ]
            if sorted(entry.number for entry in entries) != list(range(len(entries))):
                raise UserTypeError("a number of a job twice, or missing")
            command, swept, *code = (
                content[name] for name in ("command", "swept", "version", "code")
            )
            return cls(
                folder,
                command,
                swept,
                {entry.identity: entry for entry in entries},
                *code,
            )
        except (TypeError, LookupError) as error:
            raise UserError(f"{damaged} ({error!r})") from None

    def admit(self, identity: str, overrides: Iterable[str], values: Mapping[str, Any]) -> int:
        """Admit a job and return its number: that which it has, or the next free one.

        A job with the same overrides as an earlier one takes its place: a file that it reads has
        changed.
        """
        if identity not in self.entries:
            overrides = tuple(overrides)
            before = self._by_overrides.get(unordered := tuple(sorted(overrides)))
            number = len(self.entries) if before is None else self.entries.pop(before).number
            self.entries[identity] = Entry(number, identity, overrides, dict(values))
            self._by_overrides[unordered] = identity
        self.entries[identity].values.update(values)  # of the same job, asked for in other words
        return self.entries[identity].number

    def write(self, swept: Iterable[str] = ()) -> None:
        """Write the manifest, complete or not at all; swept are the keys named, and all whose
        values differ.

        Raises
        ------
        sysid.StoreError
            Full disk, read-only folder.
        """
        entries = sorted(self.entries.values())
        known: dict[str, set[Any]] = {}
        for entry in entries:
            for key, value in entry.values.items():
                known.setdefault(key, set()).add(value)
        named = {*swept, *self.swept}
        self.swept = [key for key, values in known.items() if key in named or len(values) > 1]
        content = {
            "schema": "sweep",
            "schema_version": VERSION,
            "project": PROJECT,
            "version": self.version,
            "code": self.code,
            "command": self.command,
            "swept": self.swept,
            "jobs": [entry._asdict() for entry in entries],
        }
        _write_json(content, self.folder / MANIFEST, indent=1)


# --- one sweep at a time in a folder


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Make the folder and hold it; the system lets go of it when this process ends, however it
    ends.

    A folder that was found to hold no sweep, and in which none was begun, is left as it was.

    Raises
    ------
    ValueError
        If another sweep holds it.
    OSError
        If it cannot be made or written to.
    """
    lock = _lock(folder)
    try:
        os.ftruncate(lock, 0)
        holder = f"process {os.getpid()} on {socket.gethostname()} since {datetime.now():%Y-%m-%d %H:%M:%S}"
        os.pwrite(lock, holder.encode(), 0)
        yield
    finally:
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
        except OSError as error:
            if isinstance(error, FileNotFoundError | FileExistsError) and not folder.is_file():
                continue  # another sweep has removed the folder that it had made
            raise OSError(
                f"cannot write to {folder} ({error.strerror}): set hydra.sweep.dir to another"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(folder / ".lock")):
                return lock
        except BlockingIOError:
            holder = os.pread(lock, 200, 0).decode()
            os.close(lock)
            wait = "wait for it, end it, or choose another folder (hydra.sweep.dir=...)"
            raise UserError(f"another sweep runs in {folder} ({holder}): {wait}") from None
        except FileNotFoundError:
            pass
        os.close(
            lock
        )  # of a file that another sweep has removed meanwhile: nobody else would see the lock
