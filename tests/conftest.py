"""Set before NumPy and numba are imported: one BLAS thread, one core, one cache of all workers;
published records.
"""

import os
import signal
from pathlib import Path

import pytest

for name in (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTHON_CPU_COUNT",
):
    os.environ.setdefault(name, "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # what one worker has compiled the others load
    folder = Path(__file__).parents[1] / ".pytest_cache" / "numba"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    from filelock import FileLock
    from numba.core.caching import IndexDataCacheFile
    from numba.core.dispatcher import Dispatcher

    lock = FileLock(folder / ".lock")
    locks = {}

    def locked(original):
        """Numba numbers the versions of a function without a lock: two processes that compile may
        mix them up.
        """

        def call(self, *arguments):
            with lock:
                return original(self, *arguments)

        return call

    def once(original):
        """A worker that needs what another one compiles waits for it, and loads it; threads do not
        wait here.
        """

        def call(self, signature):
            name = f"{self.py_func.__module__}.{self.py_func.__qualname__}".replace(
                "<", ""
            ).replace(">", "")
            own = locks.setdefault(name, FileLock(folder / f"{name}.lock", thread_local=False))
            with own:
                return original(self, signature)

        return call

    Dispatcher.compile = once(Dispatcher.compile)
    IndexDataCacheFile.save = locked(IndexDataCacheFile.save)
    IndexDataCacheFile.load = locked(IndexDataCacheFile.load)

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started in the background: tests send Ctrl-C all the same
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config):
    """One more than there are processors: tests wait for processes that they start.

    No workers for tests that are named file by file: most files end before the workers have
    started.
    """
    is_named = all(Path(argument.partition("::")[0]).is_file() for argument in config.args)
    return 0 if is_named else (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def shared_data():
    """Folder with local copies of the published records; without it tests skip, on CI they fail."""
    folder = Path(os.environ.get("SYSID_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "cascaded_tanks").is_dir():
        reason = f"no local copies of the published records in {folder}: set SYSID_DATA"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return folder.resolve()
