"""Files of a run: values as JSON has them, and every file that can be written."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sysid import store


def plain(value: Any) -> Any:
    """JSON knows no nan: it becomes None; NumPy numbers become Python's."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_every(jobs: Iterable[Callable[[], object]]) -> None:
    """Write every file that can be written; then report those that could not.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; the others are there.
    """
    failures = []
    for job in jobs:
        try:
            job()
        except store.StoreError as error:
            failures.append(str(error))
    if failures:
        raise store.StoreError("; ".join(failures))
