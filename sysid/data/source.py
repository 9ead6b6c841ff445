"""Data source: where recordings come from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from sysid.recordings import Recordings


class DataError(OSError):
    """Data is not where it was expected, cannot be fetched, or is not what it should be."""


@dataclass(frozen=True)
class DataSource(ABC):
    """Settings of a source; nothing is read before `load`."""

    @abstractmethod
    def load(self) -> Recordings:
        """Read the records.

        Raises
        ------
        DataError
            A file is missing, unreachable, damaged or not the expected one.
        ValueError
            The content of a file, or a setting, is not usable.
        """
