"""One sweep at a time in a folder."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.sweep.manifest import NAME


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Make the folder and hold it; the system lets go of it when this process ends, however it ends.

    A folder that was found to hold no sweep, and in which none was begun, is left as it was.

    Raises
    ------
    ValueError
        If another sweep holds it.
    OSError
        If it cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(folder / ".lock", timeout=0), folder / ".owner"
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"another sweep runs in {folder} ({_told(owner)}): wait for it, end it, or choose another folder "
            "(hydra.sweep.dir=...)"
        ) from None
    try:
        content = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
        owner.write_text(json.dumps(content))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()
        if not (folder / NAME).exists():
            (folder / ".lock").unlink(missing_ok=True)
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def _told(owner: Path) -> str:
    try:
        content = json.loads(owner.read_text())
        return f"process {content['pid']} on {content['host']} since {content['since']}"
    except (OSError, ValueError, KeyError):
        return "of a process that does not say which"
