"""One short run that many tests look at."""

import logging

import pytest
from numba import config
from running import SHORT, execute

#: what is computed is the same without the compiler, only slower: tests/sysid and tests/simulators compare
collect_ignore_glob = ["test_*.py"] if config.DISABLE_JIT else []


@pytest.fixture(autouse=True)
def loggers():
    """Commands that other tests ran in this process have configured logging, which disables the loggers there were."""
    for logger in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        logger.disabled = False


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Folder of a finished short run with figures."""
    return execute(tmp_path_factory.mktemp("runs") / "finished", *SHORT, "figures=true")
