"""The folder of a single run, into which one command at a time writes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sysid.errors import UserError

#: Subfolder in which Hydra keeps the settings of a run.
SETTINGS_FOLDER = ".hydra"


class FolderInUseError(UserError):
    """Another command writes into the folder."""


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Let no other command write into the folder of a run while the block runs.

    The folder itself is locked, so that no file is left behind, whatever ends the process. A file
    system that cannot lock folders does not stop a run. The working folder is not locked: commands
    with this folder write elsewhere.

    Hydra writes the settings of a second command before that command is refused. When the block
    ends, the settings are again those of this command.

    Raises
    ------
    FolderInUseError
        At the start, if another command holds the folder.
    """
    if folder.resolve() == Path.cwd():
        yield
        return
    with _locked(folder):
        settings = _read_settings(folder)
        try:
            yield
        finally:
            _restore_settings(settings)


def remove_unused(folder: Path, log_file: str) -> None:
    """Remove the folder of a run that was refused, if it holds nothing but Hydra's files.

    The working folder is kept.
    """
    if not folder.is_dir():
        return
    names = {path.name for path in folder.iterdir()}
    if folder.resolve() != Path.cwd() and names <= {SETTINGS_FOLDER, log_file}:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder while the block runs, if its file system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)  # releases the lock


def _lock(descriptor: int, folder: Path) -> None:
    """Lock an open folder, if its file system can."""
    import fcntl  # not on Windows, where a folder cannot be opened

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderInUseError(
            f"another command writes into {folder}: "
            "wait for it, end it, or choose another folder "
            "(hydra.run.dir=..., for sysid-reproduce output=...)"
        ) from None
    except OSError:
        return


def _read_settings(folder: Path) -> dict[Path, bytes]:
    """Return the content of the files in which Hydra keeps the settings of a run."""
    settings: dict[Path, bytes] = {}
    with suppress(OSError):
        for path in (folder / SETTINGS_FOLDER).glob("*.yaml"):
            settings[path] = path.read_bytes()
    return settings


def _restore_settings(settings: dict[Path, bytes]) -> None:
    """Write the files of the settings again that another command has replaced."""
    for path, content in settings.items():
        with suppress(OSError):
            if path.read_bytes() != content:
                path.write_bytes(content)
