"""Compiled functions that are kept in files, and when these are compiled again.

Numba keeps a compiled function in a file if it is asked to (``cache=True``), and compiles it again
once its own source file has changed. It does not notice that a function of another file has
changed that is compiled into it. `cached_njit` compiles it again after such a change, too.
"""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit

#: Files of this package whose functions are compiled, or compiled into those of other files.
COMPILED_FILES = (
    "gp/affine_map.py",
    "gp/block_learning.py",
    "gp/compiled_kernels.py",
    "gp/dictionary.py",
    "gp/formula.py",
    "gp/kernels.py",
    "gp/linear_part.py",
    "gp/outlier_decisions.py",
    "gp/rules.py",
    "model/mean_map.py",
    "simulation/linear_models.py",
    "simulation/propagation/pathwise.py",
    "simulation/propagation/propagation.py",
    "simulation/spread.py",
    "simulation_error/candidate.py",
    "simulation_error/output_error.py",
    "simulation_error/split_free_run.py",
)

_PACKAGE = Path(__file__).parent

#: of one file: its path, the time of its last change in nanoseconds, and its size in bytes
Stamp = tuple[str, int, int]


def stamps_of(paths: Iterable[Path]) -> tuple[Stamp, ...]:
    """Return the stamps of files, which change with their content."""
    stamps = []
    for path in paths:
        status = path.stat()
        stamps.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(stamps)


@cache
def _stamps_of_package() -> tuple[Stamp, ...]:
    """Return the stamps of `COMPILED_FILES`."""
    return stamps_of(_PACKAGE / name for name in COMPILED_FILES)


def cached_njit(
    watched: tuple[Stamp, ...] | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `numba.njit` with these options that keeps what it compiles in files.

    A function is compiled again if one of the watched files changes; None: `COMPILED_FILES`. Numba
    has no public setting for this. Where a version of it keeps the stamp of a function elsewhere,
    the function is compiled again only if its own file changes.
    """

    def compile_and_keep(function: Callable[..., Any]) -> Any:
        compiled = njit(cache=True, **options)(function)
        index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if index is not None and hasattr(index, "_source_stamp"):
            stamps = _stamps_of_package() if watched is None else watched
            index._source_stamp = (index._source_stamp, stamps)
        return compiled

    return compile_and_keep
