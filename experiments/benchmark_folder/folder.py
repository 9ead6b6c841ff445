"""A folder that appears under its name complete or not at all, and the checksums of what is in it."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sysid import StoreError
from sysid.store import write_bytes

CHECKSUMS = "checksums.sha256"


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Hand out a hidden folder next to the final one; it gets the final name when the block ends well.

    Raises
    ------
    StoreError
        At once, if there is something under the final name already or the place cannot be written to; at the
        end, if the folder cannot get its name. In every case, and after any other error, nothing is left.
    """
    path = Path(os.path.abspath(path))
    _check_free(path)
    made = [folder for folder in path.parents if not folder.exists()]
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _check_free(path)
        os.replace(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, StoreError) or not isinstance(error, OSError):
            raise
        raise StoreError(
            f"could not make the folder {path}: {error.strerror or error}; choose an output that you may "
            "write to; nothing was left behind"
        ) from error


def _check_free(path: Path) -> None:
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        what = "is a folder with files in it" if path.is_dir() else "exists"
        raise StoreError(f"output {path} {what}: nothing is overwritten; choose a new folder, or remove this one")


def write_checksums(folder: Path) -> Path:
    """Write the SHA-256 of every file of a folder in the format of ``sha256sum -c``, sorted by name."""
    lines = [f"{digest}  {name}\n" for name, digest in checksums(folder).items()]
    return write_bytes("".join(lines).encode(), folder / CHECKSUMS)


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 in hexadecimal digits of every file of a folder, by name."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
