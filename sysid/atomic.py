"""A file that appears under its name complete or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


class StoreError(OSError):
    """A file could not be written, or is not what the reader expects."""


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Write a file that appears under its name complete or not at all, and return its path.

    Raises
    ------
    StoreError
        Missing or read-only folder, full disk. A file under the final name is untouched, nothing is left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        _write_and_flush(content, temporary)
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise StoreError(_failure(path, len(content), error)) from error
    return path


def _write_and_flush(content: bytes, path: Path) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _failure(path: Path, size: int, error: OSError) -> str:
    if not path.parent.is_dir():
        advice = f"the folder {path.parent} does not exist: create it or choose another one"
    elif path.is_dir():
        advice = "the name belongs to a folder: choose another name"
    else:
        advice = "free space on the disk, or choose a folder that you may write to"
    return f"could not write {path} ({size} bytes): {error.strerror or error}; {advice}; nothing was changed"
