"""The files of a sweep: its manifest, the outcome of each job, and the store of finished results.

- `sweep.json`, the manifest, lists the jobs: the folder number, the identity and the swept values
  of each job.
- `outcome.json` in the folder of a job holds how the job ended, and the digests of its files.
- The store of results holds every finished job of all sweeps under its identity, as hard links.
- `.lock` in the folder of a sweep is locked while a sweep runs there.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import yaml

from experiments.files.identity import code_digest
from sysid import __version__, store
from sysid.errors import UserError, UserTypeError
from sysid.foreign import (
    is_inner_name,
    link_inner,
    open_inner,
    read_json,
)

OUTCOME_FILE = "outcome.json"  # file that states how a job ended
MANIFEST_FILE = "sweep.json"  # file that lists the jobs of a sweep
SEARCH_FILE = "search.json"  # file of the best trials of a search
TRIALS_FILE = "search.csv"  # table of all trials of a search
ATTEMPTS = "attempts"  # file with a line for each start of a job
MAX_ATTEMPTS_BYTES = 2**20  # size of what is read of it
TRACE = ".trace"  # file with the traceback of a job that was ended by its timer
#: files in the folder of a job that do not belong to its result; the page can be written again
FILES_BESIDE_RESULT = (OUTCOME_FILE, ATTEMPTS, TRACE, "report.html")
#: endings of the files that the store of results keeps
KEPT_SUFFIXES = frozenset(
    {".nc", ".json", ".csv", ".md", ".html", ".png", ".pdf", ".svg", ".yaml", ".txt"}
)
SWEEP_SCHEMA_VERSION = 1  # version of the schemas of the manifest and of outcomes
PROJECT_NAME = "sysid"
LOCK_FILE = ".lock"  # file that is locked while a sweep runs in its folder


class Limits(NamedTuple):
    """Limits of a single job; None means no limit."""

    time: float | None = None  # s
    memory: int | None = None  # resident memory of the whole process [byte]


NO_JOB_LIMITS = Limits()


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to run a job, as plain data."""

    number: int  # number of its folder in the sweep
    folder: str  # absolute path of its folder
    identity: str  # digest of configuration, code and files; jobs with the same identity are equal
    overrides: tuple[str, ...]  # overrides of the command line
    task: str  # function of the command, "experiments.identify:main"
    configuration: str = field(repr=False)  # resolved configuration with the node hydra, as JSON
    code: str = ""  # digest of the code and packages that the worker must have; empty: any
    text: str = ""  # digest of the source text; the code is compared only if this one differs
    #: names and digests of the input files that the worker must find; None: any
    files: tuple[tuple[str, str], ...] | None = None
    #: names and digests of the user's modules that the worker must find
    modules: tuple[tuple[str, str], ...] = ()
    #: working folder, to which relative paths refer; empty: that of the worker
    cwd: str = ""
    search_path: tuple[str, ...] = ()  # folders of modules
    limits: Limits = NO_JOB_LIMITS


class Outcome(NamedTuple):
    """How a job ended."""

    number: int  # number of the job
    done: bool  # whether the job has finished without an error
    value: float | None = None  # value that the command returns
    error: str = ""  # name and message of the error
    traceback: str = ""
    seconds: float = 0.0  # wall time in the worker [s]
    stored: bool = False  # whether the outcome is stored in the folder of the job


def write_outcome(outcome: Outcome, job: Job) -> None:
    """Store the outcome of a job in its folder, completely or not at all.

    The overrides of the job are stored with it, and its whole configuration if it has failed.

    Raises
    ------
    sysid.StoreError
        If the disk is full or the folder is read-only.
    """
    folder = Path(job.folder)
    settings = json.loads(job.configuration)
    settings.pop("hydra", None)
    content: dict[str, Any] = {
        "schema": "outcome",
        "schema_version": SWEEP_SCHEMA_VERSION,
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
            path.relative_to(folder).as_posix(): _size_and_digest(path)
            for path in _result_files(folder)
        }
    else:
        content["error"] = outcome.error
        content["traceback"] = outcome.traceback
        content["configuration"] = yaml.safe_dump(settings, sort_keys=False)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(content, folder / OUTCOME_FILE)


def read_outcome(folder: Path) -> dict[str, Any] | None:
    """Return the content of `outcome.json` in the folder of a job; None if it cannot be read."""
    try:
        content = read_json(folder, OUTCOME_FILE)
    except (OSError, ValueError):
        return None
    return content if _is_outcome(content) else None


def _is_outcome(content: Mapping[str, Any]) -> bool:
    """Return whether the content of a JSON file has the form that `write_outcome` writes."""
    if content.get("schema") != "outcome" or content.get("schema_version") != SWEEP_SCHEMA_VERSION:
        return False
    if not isinstance(content.get("identity"), str) or not _is_whole(content.get("number")):
        return False
    if not _is_finite(content.get("seconds", 0.0)):
        return False
    if not _is_finite(content.get("value", 0.0), or_none=True):
        return False
    texts = [content.get(name, "") for name in ("error", "traceback", "host")]
    if not all(isinstance(text, str) for text in texts) or not _is_whole(content.get("pid", 0)):
        return False
    if content.get("status") == "failed":
        return True
    return content.get("status") == "done" and _are_digests(content.get("files"))


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_finite(value: object, *, or_none: bool = False) -> bool:
    """Return whether a value is a finite number, or None where this is allowed."""
    if value is None:
        return or_none
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def _are_digests(files: object) -> bool:
    """Return whether a value states sizes and digests of files within the folder of a job."""
    if not isinstance(files, dict):
        return False
    return all(
        is_inner_name(name)
        and isinstance(stated, dict)
        and _is_whole(stated.get("bytes"))
        and isinstance(stated.get("sha256"), str)
        for name, stated in files.items()
    )


def outcome_in(folder: Path) -> Outcome | None:
    """Return the outcome that is stored in the folder of a job; None if there is none."""
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
    """Describe a file of a finished job that has changed since; empty if no file has changed."""
    files = content.get("files", {})
    allowed = store.max_content_bytes()
    if sum(stated["bytes"] for stated in files.values()) > allowed:
        return (
            f"its files have more than {allowed} bytes; if you trust them, set the environment "
            f"variable {store.MAX_CONTENT_VARIABLE} to a larger number"
        )
    for name, stated in files.items():
        try:
            with open_inner(folder, name) as file:
                if not _is_as_stated(file, stated):
                    return f"{name} is damaged"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror or error})"
    return ""


def _is_as_stated(file: BinaryIO, stated: Mapping[str, Any]) -> bool:
    """Return whether an open file has the stated size and digest; no more than the size is read."""
    n_left = int(stated["bytes"])
    if os.fstat(file.fileno()).st_size != n_left:
        return False
    digest = hashlib.sha256()
    while block := file.read(min(store.DIGEST_BLOCK_BYTES, n_left)):
        digest.update(block)
        n_left -= len(block)
    return digest.hexdigest() == stated["sha256"]


def note_attempt(folder: Path) -> int:
    """Record an attempt to run the job of a folder, and return the number of the attempt, from 1.

    This is done before the job starts, so that an attempt that kills its process is counted.
    Unfinished files of an earlier attempt are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
    with open(folder / ATTEMPTS, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return count_attempts(folder)


def count_attempts(folder: str | Path) -> int:
    """Return how often the job of a folder was started."""
    try:
        with open_inner(Path(folder), ATTEMPTS) as file:
            return file.read(MAX_ATTEMPTS_BYTES).count(b"\n")
    except OSError:
        return 0


def forget(folder: Path) -> None:
    """Remove the outcome and the records of earlier attempts, so that the job can be run again."""
    for name in FILES_BESIDE_RESULT:
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob(".*.tmp"):  # unfinished files of a killed process
        path.unlink(missing_ok=True)


def _result_files(folder: Path) -> list[Path]:
    """Return the files that belong to the result of a job, without logs and hidden files."""
    return [path for path in sorted(folder.rglob("*")) if _is_result_file(path, folder)]


def _is_result_file(path: Path, folder: Path) -> bool:
    """Return whether a path in the folder of a job is a file of its result."""
    if not path.is_file() or path.suffix == ".log" or path.name in FILES_BESIDE_RESULT:
        return False
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _size_and_digest(path: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 of a file, as stored in outcomes."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _write_json(content: Mapping[str, Any], path: Path, indent: int = 2) -> None:
    """Write content as JSON, completely or not at all."""
    store.write_bytes(json.dumps(content, indent=indent).encode(), path)


# --- finished results by content


def share(job: Job, results: Path) -> None:
    """Add a job to the store of results, if it is finished.

    If the store cannot be written to, the job is not added and no error is raised.
    """
    folder = Path(job.folder)
    stored_folder = results / job.identity
    if results.is_symlink() or os.path.exists(stored_folder):
        return
    content = read_outcome(folder)
    if content is None or not _can_be_kept(content):
        return
    temporary = results / f".{job.identity}.{secrets.token_hex(8)}.tmp"
    try:
        results.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()  # raises an error if another user has made it
        _link_files(folder, [*content["files"], OUTCOME_FILE], temporary)
        os.replace(temporary, stored_folder)
    except OSError:  # the disk is full or read-only, or another sweep was faster
        shutil.rmtree(temporary, ignore_errors=True)


def fetch(job: Job, results: Path) -> Outcome | None:
    """Copy a finished result with the identity of a job from the store into the job's folder.

    The result may come from another sweep, and from another user: it writes nothing outside of the
    job's folder, and its files are checked where they are used. Return its outcome, or None if
    there is no such result, if it cannot be read, or if it is damaged. Only a damaged result is
    removed: one that cannot be read may belong to another user.
    """
    folder = Path(job.folder)
    stored_folder = results / job.identity
    if results.is_symlink() or stored_folder.is_symlink():
        return None
    content = read_outcome(stored_folder)
    if (
        content is None
        or content["identity"] != job.identity
        or not _can_be_kept(content)
        or damage(content, stored_folder)
    ):
        names = [OUTCOME_FILE, *(content or {}).get("files", {})]
        if not any(_is_closed(stored_folder / name) for name in names):
            shutil.rmtree(stored_folder, ignore_errors=True)
        return None
    try:
        forget(folder)
        _link_files(stored_folder, content["files"], folder)
        if damage(content, folder):  # the files were exchanged in the meantime
            for name in content["files"]:
                (folder / name).unlink(missing_ok=True)
            return None
        folder.mkdir(parents=True, exist_ok=True)
        own_content = {**content, "number": job.number, "overrides": list(job.overrides)}
        _write_json(own_content, folder / OUTCOME_FILE)
    except OSError:  # the job is run instead, and reports what is wrong with its folder
        return None
    return outcome_in(folder)


def _can_be_kept(content: Mapping[str, Any]) -> bool:
    """Return whether an outcome is that of a finished job with results of known kinds alone."""
    if content["status"] != "done":
        return False
    return all(
        Path(name).suffix in KEPT_SUFFIXES
        and Path(name).name not in FILES_BESIDE_RESULT
        and not any(part.startswith(".") for part in name.split("/"))
        for name in content["files"]
    )


def _link_files(source: Path, names: Iterable[str], target: Path) -> None:
    """Link or copy files of a folder to the same names in another one, which they replace."""
    for name in names:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        link_inner(source, name, path)


def _is_closed(path: Path) -> bool:
    """Return whether a plain file is there that cannot be opened, as it may be another user's."""
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            path.open("rb").close()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


# --- the manifest of a sweep


class Entry(NamedTuple):
    """One job of the manifest."""

    number: int  # number of its folder
    identity: str  # digest of configuration, code and files
    overrides: tuple[str, ...]
    values: dict[str, Any]  # values that the overrides set, by key


@dataclass
class Manifest:
    """All jobs that were ever started in the folder of a sweep. A job keeps its number."""

    folder: Path
    command: str
    swept: list[str] = field(default_factory=list)  # swept keys, in the order of the command
    entries: dict[str, Entry] = field(default_factory=dict)  # jobs by identity
    version: str = field(default_factory=lambda: __version__)
    code: str = field(default_factory=code_digest)

    def __post_init__(self) -> None:
        self._by_overrides = {
            tuple(sorted(entry.overrides)): entry.identity for entry in self.entries.values()
        }

    @classmethod
    def open(cls, folder: Path, command: str) -> "Manifest":
        """Read the manifest of a folder to run jobs in, or make a new one.

        Raises
        ------
        ValueError
            If the folder belongs to another project, version or command, or has other content.
        """
        advice = "choose another folder (hydra.sweep.dir=...)"
        if not (folder / MANIFEST_FILE).exists():
            other_files = sorted(path.name for path in folder.glob("[!.]*"))
            if other_files:
                raise UserError(
                    f"{folder} is not empty ({', '.join(other_files[:3])}, ...) "
                    f"and holds no sweep of this sysid: {advice}"
                )
            return cls(folder, command)
        found = cls.read(folder)
        new = cls(folder, command)
        if (found.version, found.code) != (new.version, new.code):
            raise UserError(
                f"{folder} holds a sweep of other code (sysid {found.version}, {found.code[:8]}; "
                f"this is {new.version}, {new.code[:8]}), whose results would not be comparable: "
                f"{advice}, or move it away"
            )
        if found.command != command:
            raise UserError(
                f"{folder} holds a sweep of sysid-{found.command}, not of sysid-{command}: {advice}"
            )
        return found

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a folder, even if other code or another command has written it.

        Raises
        ------
        ValueError
            If there is no manifest, or it is damaged, belongs to another project, or has a newer
            version.
        """
        path = folder / MANIFEST_FILE
        damaged = f"{path} is damaged: restore it, or move the folder away"
        try:
            content = read_json(folder, MANIFEST_FILE)
        except (OSError, ValueError) as error:
            raise UserError(f"{damaged} ({error})") from None
        if content.get("schema") != "sweep" or content.get("project") != PROJECT_NAME:
            raise UserError(
                f"{path} is not the manifest of a sweep of {PROJECT_NAME}: choose another folder"
            )
        schema_version = content.get("schema_version", 0)
        if not _is_whole(schema_version):
            raise UserError(f"{damaged} (schema_version is {schema_version!r})")
        if schema_version > SWEEP_SCHEMA_VERSION:
            raise UserError(
                f"{path} has schema_version {schema_version}, "
                f"this sysid reads up to {SWEEP_SCHEMA_VERSION}: update sysid"
            )
        try:
            entries = [_read_entry(job) for job in content["jobs"]]
            numbers = [entry.number for entry in entries]
            if not all(map(_is_whole, numbers)) or sorted(numbers) != list(range(len(numbers))):
                raise UserTypeError("it has a number of a job twice, or a job without a number")
            texts = content["command"], content["version"], content["code"]
            if not all(isinstance(text, str) for text in texts) or not _are_texts(content["swept"]):
                raise UserTypeError("its command, version, code or swept keys are no texts")
            return cls(
                folder,
                content["command"],
                content["swept"],
                {entry.identity: entry for entry in entries},
                content["version"],
                content["code"],
            )
        except (TypeError, LookupError) as error:
            raise UserError(f"{damaged} ({error!r})") from None

    def admit(self, identity: str, overrides: Iterable[str], values: Mapping[str, Any]) -> int:
        """Add a job unless it is there already, and return its number.

        A job that has the same overrides as an earlier one, but another identity, replaces it: a
        file that it reads has changed.
        """
        if identity not in self.entries:
            overrides = tuple(overrides)
            sorted_overrides = tuple(sorted(overrides))
            number = len(self.entries)
            replaced = self._by_overrides.get(sorted_overrides)
            if replaced is not None:
                number = self.entries.pop(replaced).number
            self.entries[identity] = Entry(number, identity, overrides, dict(values))
            self._by_overrides[sorted_overrides] = identity
        # The same job may have been given with other overrides, which set other keys.
        self.entries[identity].values.update(values)
        return self.entries[identity].number

    def write(self, swept: Iterable[str] = ()) -> None:
        """Write the manifest, completely or not at all.

        As swept keys, it names the given ones and all keys with different values.

        Raises
        ------
        sysid.StoreError
            If the disk is full or the folder is read-only.
        """
        entries = sorted(self.entries.values())
        values_of_keys: dict[str, set[Any]] = {}
        for entry in entries:
            for key, value in entry.values.items():
                values_of_keys.setdefault(key, set()).add(value)
        named = {*swept, *self.swept}
        self.swept = [
            key for key, values in values_of_keys.items() if key in named or len(values) > 1
        ]
        content = {
            "schema": "sweep",
            "schema_version": SWEEP_SCHEMA_VERSION,
            "project": PROJECT_NAME,
            "version": self.version,
            "code": self.code,
            "command": self.command,
            "swept": self.swept,
            "jobs": [entry._asdict() for entry in entries],
        }
        _write_json(content, self.folder / MANIFEST_FILE, indent=1)


def _read_entry(job: Mapping[str, Any]) -> Entry:
    """Return a job of the manifest; raise TypeError or LookupError if it is none."""
    entry = Entry(**job)
    is_entry = isinstance(entry.identity, str) and isinstance(entry.values, dict)
    if not is_entry or not _are_texts(entry.overrides):
        raise UserTypeError(f"job {entry.number!r} has another form")
    return entry._replace(overrides=tuple(entry.overrides))


def _are_texts(value: object) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


# --- one sweep at a time in a folder


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Make the folder of a sweep and lock it for the block.

    The system releases the lock when this process ends, even if it is killed. If no sweep was
    started in the folder, it is left as it was.

    Raises
    ------
    ValueError
        If another sweep has locked the folder.
    OSError
        If the folder cannot be made or written to.
    """
    lock = _lock(folder)
    try:
        os.ftruncate(lock, 0)
        time = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
        holder = f"process {os.getpid()} on {socket.gethostname()} since {time}"
        os.pwrite(lock, holder.encode(), 0)
        yield
    finally:
        if not (folder / MANIFEST_FILE).exists():
            # The lock is released only after its file is removed.
            (folder / LOCK_FILE).unlink(missing_ok=True)
            with suppress(OSError):  # the folder is not empty
                folder.rmdir()
        os.close(lock)


def _lock(folder: Path) -> int:
    """Lock the lock file of a folder and return its descriptor."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if isinstance(error, FileNotFoundError | FileExistsError) and not folder.is_file():
                continue  # another sweep has removed the folder that it had made
            raise OSError(
                f"cannot write to {folder} ({error.strerror}): "
                "set hydra.sweep.dir to another folder"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(folder / LOCK_FILE)):
                return lock
        except BlockingIOError:
            holder = os.pread(lock, 200, 0).decode(errors="replace")
            os.close(lock)
            raise UserError(
                f"another sweep runs in {folder} ({holder}): "
                "wait for it, end it, or choose another folder (hydra.sweep.dir=...)"
            ) from None
        except FileNotFoundError:
            pass
        # Another sweep has removed this file in the meantime, and other processes would not see
        # its lock: try again with a new file.
        os.close(lock)
