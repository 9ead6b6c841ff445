"""One short run that many tests look at; one BLAS thread, as in the commands."""

import os
from pathlib import Path

import pytest
from running import SHORT, execute
from threadpoolctl import threadpool_limits

POTSDAM = Path(__file__).parents[3] / "shared" / "data" / "weather" / "potsdam_2010_hourly.csv"


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """What `experiments/__init__.py` does too late when a test has imported NumPy before."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory, one_blas_thread):
    """Folder of a finished short run with figures."""
    return execute(tmp_path_factory.mktemp("runs") / "finished", *SHORT, "figures=true")


@pytest.fixture
def measured_weather():
    """Path of a measured year of weather."""
    if not POTSDAM.is_file():
        reason = f"measured weather not found: {POTSDAM}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return POTSDAM
