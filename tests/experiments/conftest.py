"""One short run that many tests look at."""

import logging
import os
from pathlib import Path

import pytest
from running import SHORT, execute

POTSDAM = Path(__file__).parents[3] / "shared" / "data" / "weather" / "potsdam_2010_hourly.csv"


@pytest.fixture(autouse=True)
def loggers():
    """Commands that other tests ran in this process have configured logging, which disables the loggers there were."""
    for logger in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        logger.disabled = False


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Folder of a finished short run with figures."""
    return execute(tmp_path_factory.mktemp("runs") / "finished", *SHORT, "figures=true")


@pytest.fixture
def measured_weather():
    """Path of a measured year of weather."""
    if not POTSDAM.is_file():
        reason = f"measured weather not found: {POTSDAM}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return POTSDAM
