"""Folders that may come from strangers: plain files within them, and nothing that leads out.

A folder that somebody sent, or a cache that others may write to, can contain links, pipes and
devices, and its files can name other files. A command that reads or resumes such a folder checks it
as a whole (`check_folder`). Names in its files count only if they stay within it (`is_inner_name`),
and such a file is opened without following links (`open_inner`).
"""

import errno
import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from sysid.errors import UserError
from sysid.store import StoreError

MAX_NAME_CHARACTERS = 1000  # of the name of a file within a folder
#: errors of the system at a link that must not be followed, or at a file in place of a folder
LINK_ERRORS = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
MAX_JSON_BYTES = 2**26  # size of a JSON file that is read
MAX_JSON_LEVELS = 50  # levels of lists and maps within each other


def is_inner_name(name: object) -> bool:
    """Return whether a value names a file within a folder, in the only way to write its name.

    >>> [is_inner_name(name) for name in ("job.nc", "y/model.nc", "../a", "/a", "a//b", "./a", "")]
    [True, True, False, False, False, False, False]
    """
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS:
        return False
    if any(unicodedata.category(character) == "Cc" for character in name):
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


def check_folder(folder: Path, within: str = "") -> None:
    """Check that all content of a folder is files and folders, and links to these.

    The folder itself may be a link. A folder that does not exist passes.

    Parameters
    ----------
    folder
        The folder.
    within
        Check only the folder of this name in it, which is no link out of it either.

    Raises
    ------
    sysid.StoreError
        A link leads out of the folder; or there is a pipe, a socket or a device.
    """
    root = os.path.realpath(folder)
    top = os.path.join(root, within)
    with suppress(FileNotFoundError):
        if within:
            _check_entry(top, root, folder)
    for place, folders, files in os.walk(top):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # a sweep that runs removes its unfinished files
                _check_entry(os.path.join(place, name), root, folder)


def _check_entry(path: str, root: str, folder: Path) -> None:
    """Raise StoreError unless a path is a file or a folder within another one, or a link to one."""
    mode = os.lstat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    name = os.path.relpath(path, root)
    if not stat.S_ISLNK(mode):
        raise StoreError(
            f"{folder} contains {name!r}, which is no file (a pipe, a socket or a device): "
            "a folder of results has none; remove it"
        )
    target = os.path.realpath(path)
    if not target.startswith(os.path.join(root, "")):
        raise StoreError(
            f"{folder} contains the link {name!r}, which leads out of the folder, to "
            f"{os.readlink(path)!r}: nothing outside of it is read or written; "
            "put the file or folder itself there, or remove the link"
        )


@contextmanager
def open_inner(folder: Path, name: str) -> Iterator[BufferedReader]:
    """Open a file within a folder for reading, without following links below the folder.

    Raises
    ------
    ValueError
        The name is not that of a file within a folder.
    OSError
        There is no such file, or it is a link or no plain file.
    """
    if not is_inner_name(name):
        raise UserError(f"expected the name of a file within a folder, got {name!r}")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with _open_parent(folder, name) as parent:
            descriptor = os.open(name.rpartition("/")[2], flags, dir_fd=parent)
    except OSError as error:
        if error.errno not in LINK_ERRORS:
            raise
        raise StoreError(
            f"{folder / name} is a link, or lies behind one, and may lead out of {folder}: "
            "put the file itself there, or remove the link"
        ) from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{folder / name} is no file: remove it")
        yield file


def inner_path(folder: Path, name: str) -> Path:
    """Return the path of a file within a folder, after a check that no link leads to it.

    Raises
    ------
    ValueError, OSError
        As `open_inner`.
    """
    with open_inner(folder, name):
        return folder / name


def link_inner(folder: Path, name: str, target: Path) -> None:
    """Make a hard link to a file within a folder, or copy the file if that is not possible.

    Whoever may write to the folder can exchange the file at any time: check what `target` is then.

    Raises
    ------
    OSError
        As `open_inner`; `target` cannot be made, or exists.
    """
    try:
        with _open_parent(folder, name) as parent:
            last = name.rpartition("/")[2]
            os.link(last, target, src_dir_fd=parent, follow_symlinks=False)
    except (OSError, NotImplementedError):
        with open_inner(folder, name) as source, open(target, "xb") as copy:
            while block := source.read(2**20):
                copy.write(block)


@contextmanager
def _open_parent(folder: Path, name: str) -> Iterator[int]:
    """Open the folder that holds a file within another folder, without following links below it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        for part in name.split("/")[:-1]:
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def digest_inner(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file within a folder.

    Raises
    ------
    OSError
        As `open_inner`.
    """
    with open_inner(folder, name) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Read a JSON file within a folder, which holds a map.

    Raises
    ------
    OSError
        As `open_inner`.
    ValueError
        The file is larger than `MAX_JSON_BYTES`, or is no JSON, or holds no map, or one that is
        nested too deeply.
    """
    with open_inner(folder, name) as file:
        text = file.read(MAX_JSON_BYTES + 1)
    expected = f"{folder / name}: expected a JSON file that the toolbox has written"
    advice = "restore the file, or make it again"
    if len(text) > MAX_JSON_BYTES:
        raise UserError(f"{expected}, got more than {MAX_JSON_BYTES} bytes; {advice}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{expected} ({error}); {advice}") from None
    if not isinstance(content, dict):
        raise UserError(f"{expected}, got no map of names to values; {advice}")
    if is_deeper(content, MAX_JSON_LEVELS):
        raise UserError(
            f"{expected}, got more than {MAX_JSON_LEVELS} levels of maps and lists; {advice}"
        )
    return content


def is_deeper(value: object, n_levels: int) -> bool:
    """Return whether lists and maps lie within each other on more than so many levels."""
    if not isinstance(value, dict | list):
        return False
    if n_levels == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(is_deeper(entry, n_levels - 1) for entry in inner)
