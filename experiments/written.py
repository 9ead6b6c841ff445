"""Files of a run, of which one that cannot be written does not keep back the others."""

from collections.abc import Callable, Iterable

from sysid import store


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
