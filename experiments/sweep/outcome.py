"""How a job ended, on disk: `outcome.json` in its folder, with the digests of the files that it made."""

import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import yaml

from experiments.sweep.guard import TRACE
from experiments.sweep.job import Job, Outcome
from sysid import store

NAME = "outcome.json"
ATTEMPTS = "attempts"
VERSION = 1
LEFT_OUT = (NAME, ATTEMPTS, TRACE)  # files of a job that are no results; logs and hidden ones are none either


def keep(outcome: Outcome, job: Job) -> None:
    """Store the outcome of a job in its folder, complete or not at all.

    Raises
    ------
    sysid.StoreError
        Full disk, read-only folder.
    """
    folder = Path(job.folder)
    content: dict[str, Any] = {
        "schema": "outcome",
        "schema_version": VERSION,
        "identity": job.identity,
        "number": job.number,
        "overrides": list(job.overrides),
        "status": "done" if outcome.done else "failed",
        "value": outcome.value,
        "seconds": outcome.seconds,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "choices": _choices(job),
    }
    if outcome.done:
        content["files"] = {path.relative_to(folder).as_posix(): _facts(path) for path in results(folder)}
    else:
        content |= {"error": outcome.error, "traceback": outcome.traceback, "configuration": _configuration(job)}
    folder.mkdir(parents=True, exist_ok=True)
    store.write_bytes(json.dumps(content, indent=2).encode(), folder / NAME)


def kept(folder: Path) -> dict[str, Any] | None:
    """What was stored in the folder of a job; None if there is nothing that can be read."""
    try:
        content = json.loads((folder / NAME).read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and _is_whole(content) else None


def _is_whole(content: dict[str, Any]) -> bool:
    if (content.get("schema"), content.get("schema_version")) != ("outcome", VERSION) or "identity" not in content:
        return False
    done = content.get("status") == "done" and isinstance(content.get("files"), dict)
    return done or content.get("status") == "failed"


def outcome_of(content: dict[str, Any], number: int) -> Outcome:
    """Outcome that was stored."""
    return Outcome(
        number,
        content["status"] == "done",
        content.get("value"),
        content.get("error", ""),
        content.get("traceback", ""),
        content.get("seconds", 0.0),
        stored=True,
    )


def damage(content: dict[str, Any], folder: Path) -> str:
    """Which file of a finished job is not what the job has written; empty if all are."""
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


def attempts(folder: Path) -> int:
    """How often the job of a folder was started."""
    try:
        return len((folder / ATTEMPTS).read_text().splitlines())
    except OSError:
        return 0


def forget(folder: Path) -> None:
    """Remove what earlier attempts left, so that the job can be run anew."""
    for path in [*(folder / name for name in LEFT_OUT), *folder.glob(".*.tmp")]:  # a kill leaves half a file
        path.unlink(missing_ok=True)


def results(folder: Path) -> list[Path]:
    """Files that a job has made, without logs and hidden ones."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".log")
    return [
        path
        for path in found
        if path.name not in LEFT_OUT and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _choices(job: Job) -> dict[str, str | None]:
    """Option of each group that the job has chosen, whether its command names it or not."""
    runtime = json.loads(job.configuration).get("hydra", {}).get("runtime", {})
    return {group: option for group, option in runtime.get("choices", {}).items() if not group.startswith("hydra/")}


def _configuration(job: Job) -> str:
    """What the command was configured with, for people."""
    settings = {name: value for name, value in json.loads(job.configuration).items() if name != "hydra"}
    return yaml.safe_dump(settings, sort_keys=False)


def _facts(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
