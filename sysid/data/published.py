"""Published tables: files with known checksums, found as local copies or downloaded once."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sysid.data.cache import cache_folder, fetch
from sysid.data.source import DataError
from sysid.record import Array

DATA_VARIABLE = "SYSID_DATA"  # names a folder with local copies


class Table(NamedTuple):
    """Columns of numbers (n,) by name, and where they come from."""

    columns: dict[str, Array]
    attributes: dict[str, str]


@dataclass(frozen=True)
class PinnedFile:
    """A file whose content is known."""

    name: str
    sha256: str  # of the whole file, hexadecimal
    url: str = ""  # where it can be downloaded; empty: only as a local copy

    def check(self, path: Path) -> Path:
        """Return the path of a copy if its checksum is the expected one.

        Raises
        ------
        DataError
            Another checksum, or a file that cannot be read.
        """
        try:
            with open(path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"cannot read {path} ({error.strerror}): check its permissions") from error
        if found != self.sha256:
            raise DataError(
                f"{path} has sha256 {found}, expected {self.sha256}: it was changed (cut short? other line ends?) or "
                f"is another release; replace it by {self.url or 'an unchanged copy'}, or remove it"
            )
        return path


@dataclass(frozen=True)
class Form:
    """One way in which a table is stored: its files, and how they are read together."""

    files: tuple[PinnedFile, ...]
    read: Callable[..., dict[str, Array]]  # takes one path per file

    @property
    def is_downloadable(self) -> bool:
        """Whether all files have an address."""
        return all(file.url for file in self.files)

    def __str__(self) -> str:
        return " and ".join(file.name for file in self.files)


@dataclass(frozen=True)
class PublishedTable:
    """A published table: the forms in which it is known, the preferred one first.

    Attributes
    ----------
    folder
        Name of the set, and of the sub-folder with its files.
    forms
        Equal in content, up to the digits that a form keeps.
    attributes
        ``licence``, ``source`` and ``citation``.
    """

    folder: str
    forms: tuple[Form, ...]
    attributes: dict[str, str]

    def load(self, path: str | None) -> Table:
        """Read the table from a local folder, else from that of `DATA_VARIABLE`, else from the cache.

        Parameters
        ----------
        path
            Folder with the files, or with a sub-folder `folder`; it must hold them if it is given. The folder
            of the environment variable may lack them.

        Raises
        ------
        DataError
            No copy and no network; a wrong checksum; a folder that does not exist.
        """
        form, paths = self._local(path) or self._cached()
        pins = {"file": str(form), "sha256": " ".join(file.sha256 for file in form.files)}
        return Table(form.read(*paths), self.attributes | pins)

    def _local(self, path: str | None) -> tuple[Form, list[Path]] | None:
        """Find the first form whose files all lie in a local folder, and check them."""
        folder = path or os.environ.get(DATA_VARIABLE)
        if not folder:
            return None
        asked = f"path={folder!r}" if path else f"the environment variable {DATA_VARIABLE}={folder!r}"
        if not Path(folder).is_dir():
            raise DataError(f"{self.folder}: {asked} is no folder (seen from {Path.cwd()}); {self._advice()}")
        for form in self.forms:
            for place in (Path(folder), Path(folder, self.folder)):
                if all((place / file.name).is_file() for file in form.files):
                    return form, [file.check(place / file.name) for file in form.files]
        if path:
            raise DataError(f"{self.folder}: {asked} holds no copy; {self._advice()}")
        return None

    def _cached(self) -> tuple[Form, list[Path]]:
        form = next(form for form in self.forms if form.is_downloadable)
        try:
            return form, [fetch(file.url, file.sha256, self.folder, file.name) for file in form.files]
        except DataError as error:
            raise DataError(
                f"{self.folder}: no local copy (environment variable {DATA_VARIABLE}: "
                f"{os.environ.get(DATA_VARIABLE) or 'not set'}), nothing in the cache {cache_folder()}, no download. "
                f"Connect to the network, or {self._advice()}. The download: {error}"
            ) from error

    def _advice(self) -> str:
        forms = ", or ".join(map(str, self.forms))
        return (
            f"put {forms} into a folder, or into its sub-folder {self.folder}/, and name that folder with data.path "
            f"or the environment variable {DATA_VARIABLE}"
        )
