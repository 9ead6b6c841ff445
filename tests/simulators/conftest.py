"""Shared by the tests of the simulators: the measured records, and how long runs may be."""

import os
from pathlib import Path

import numpy as np
import pytest

from simulators.runge_kutta import PLAIN

WEATHER = Path(__file__).parents[3] / "shared" / "data" / "weather"


@pytest.fixture(params=["potsdam_2010_hourly.csv", "try2010_potsdam_hourly.csv"])
def measured_year(request):
    """Path of a measured year of weather."""
    path = WEATHER / request.param
    if not path.is_file():
        reason = f"measured weather not found: {path}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return str(path)


@pytest.fixture(scope="session")
def bouc_wen_test(shared_data):
    """Force [N] and displacement [m] of the official multisine test of the Bouc-Wen benchmark, one period each."""
    path = shared_data / "bouc_wen" / "test_multisine.csv"
    return np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)


@pytest.fixture
def year_samples():
    """Samples of a year at 15 minutes; a few days when the kernels run as plain Python."""
    return 1000 if PLAIN else 35041
