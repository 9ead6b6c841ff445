"""Settings of all tests, made before NumPy and numba are imported, and the published records.

Every process has one BLAS thread and one core, and all workers share one cache of compiled
functions. Python searches for garbage seldom, as in the commands.
"""

import gc
import os
import signal
from pathlib import Path

import hypothesis
import pytest

SINGLE_CORE_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTHON_CPU_COUNT",
)
for variable in SINGLE_CORE_VARIABLES:
    os.environ.setdefault(variable, "1")

# imports and tests make many objects and little garbage: to search it took a tenth of their time
gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(items):
    """Let the longest tests begin first, then the examples of docstrings.

    A single example may take longer than a file of a hundred tests: no process ends with it.
    """

    def place(item):
        if item.get_closest_marker("long") is not None:
            return 0
        return 1 if isinstance(item, pytest.DoctestItem) else 2

    items.sort(key=place)


def share_compiled_functions(folder):
    """Let the workers share numba's cache: a function that one compiles, the others load."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    from filelock import FileLock
    from numba.core.caching import IndexDataCacheFile
    from numba.core.dispatcher import Dispatcher

    index_lock = FileLock(folder / ".lock")
    function_locks = {}

    def lock_index(original):
        """Let one process at a time use the index of a function.

        Numba numbers the versions of a function without a lock: two processes that compile may
        mix them up.
        """

        def call(self, *arguments):
            with index_lock:
                return original(self, *arguments)

        return call

    def lock_function(original):
        """Let one process at a time compile a function: the others wait, then load it.

        Threads do not wait here.
        """

        def call(self, signature):
            function = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
            name = function.replace("<", "").replace(">", "")
            if name not in function_locks:
                function_locks[name] = FileLock(folder / f"{name}.lock", thread_local=False)
            with function_locks[name]:
                return original(self, signature)

        return call

    Dispatcher.compile = lock_function(Dispatcher.compile)
    IndexDataCacheFile.save = lock_index(IndexDataCacheFile.save)
    IndexDataCacheFile.load = lock_index(IndexDataCacheFile.load)


if "PYTEST_XDIST_WORKER" in os.environ:
    share_compiled_functions(Path(__file__).parents[1] / ".pytest_cache" / "numba")

# a process that was started in the background ignores Ctrl-C, but the tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# on a busy machine an example takes any time
hypothesis.settings.register_profile(
    "any_time", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any_time")


def pytest_xdist_auto_num_workers(config):
    """Return the number of workers: as many as there are processors.

    Slow tests often wait for processes that they start: with them there are two workers more. Where
    all tests are named file by file there are no workers: most files end before the workers have
    started.
    """
    names_files = all(Path(argument.partition("::")[0]).is_file() for argument in config.args)
    if names_files:
        return 0
    n_processors = os.cpu_count() or 1
    has_slow_tests = config.getoption("markexpr") != "not slow"
    return n_processors + 2 if has_slow_tests else n_processors


#: Files whose functions share nothing that takes long: any worker takes each of them.
FILES_OF_INDEPENDENT_TESTS = {
    "tests/experiments/test_linear_view_of_plants.py",
    "tests/experiments/test_records.py",
    "tests/sysid/test_estimator_choice.py",
    "tests/sysid/test_simulation_error_on_plants.py",
    "tests/test_readme.py",
}


def pytest_xdist_make_scheduler(config, log):
    """Return a scheduler with which tests begin in their order.

    Each file runs in one worker, which makes the fixtures of the file once. Functions of files of
    independent slow tests, and classes in these, run in any worker.
    """
    from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

    # by default the files with the most tests come first, whatever they take
    config.option.loadscopereorder = False
    if config.getoption("markexpr") == "not slow":
        return LoadFileScheduling(config, log)

    class SchedulerOfSlowTests(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, name = nodeid.partition("::")
            if file not in FILES_OF_INDEPENDENT_TESTS:
                return file
            in_class, separator, _ = name.partition("[")[0].rpartition("::")
            return f"{file}::{in_class}" if separator else nodeid

    return SchedulerOfSlowTests(config, log)


def pytest_collection_finish():
    """Search no garbage among what was imported and collected: it stays until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data():
    """Folder with local copies of the published records; without it tests skip, on CI they fail."""
    folder = Path(os.environ.get("SYSID_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "cascaded_tanks").is_dir():
        reason = f"no local copies of the published records in {folder}: set SYSID_DATA"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder.resolve()
