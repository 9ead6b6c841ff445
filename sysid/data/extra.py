"""Optional packages: imported when they are needed, with an error that says how to install them."""

import importlib
from types import ModuleType

from sysid.data.source import DataError


def optional_package(name: str, purpose: str) -> ModuleType:
    """Import an optional package.

    Raises
    ------
    DataError
        It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{purpose} needs the package {name}, which cannot be imported ({error}): install it with "
            "pip install 'sysid[records]'"
        ) from error
