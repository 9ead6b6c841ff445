"""One short run that many tests look at."""

import logging

import pytest
from running import SHORT, execute


@pytest.fixture(autouse=True)
def loggers():
    """Commands that other tests ran in this process have configured logging, which disables the loggers there were."""
    for logger in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        logger.disabled = False


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Folder of a finished short run with figures."""
    return execute(tmp_path_factory.mktemp("runs") / "finished", *SHORT, "figures=true")
