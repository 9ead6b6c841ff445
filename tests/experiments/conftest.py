"""One short run that many tests look at."""

import logging

import pytest
from numba import config
from running import SHORT, execute

#: what is computed is the same without the compiler, only slower: tests/sysid and tests/simulators compare
collect_ignore_glob = ["test_*.py"] if config.DISABLE_JIT else []


@pytest.fixture(autouse=True)
def loggers():
    """Commands that tests run in this process configure logging: they disable loggers, and open files."""
    for logger in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        logger.disabled = False
    before = {*logging.root.handlers}
    yield
    for handler in {*logging.root.handlers} - before:
        if isinstance(handler, logging.FileHandler):
            handler.close()
            logging.root.removeHandler(handler)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Folder of a finished short run with figures."""
    return execute(tmp_path_factory.mktemp("runs") / "finished", *SHORT, "figures=true")
