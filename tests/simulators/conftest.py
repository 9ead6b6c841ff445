"""Measured records, and the test files that are left out without the compiler."""

import numpy as np
import pytest

from simulators.runge_kutta import WITHOUT_COMPILER

# As plain Python these take minutes; the other files test the same compiled functions.
LONG_WITHOUT_COMPILER = [
    "test_cascaded_tanks.py",
    "test_grey_box.py",
    "test_many.py",
    "test_systems.py",
]
collect_ignore = LONG_WITHOUT_COMPILER if WITHOUT_COMPILER else []


@pytest.fixture(params=["potsdam_2010_hourly.csv", "try2010_potsdam_hourly.csv"])
def measured_year(request, shared_data):
    """Return the path of a measured year of weather."""
    return str(shared_data / "weather" / request.param)


@pytest.fixture(scope="session")
def bouc_wen_test(shared_data):
    """Return force [N] and displacement [m] of the official multisine test, one period each."""
    path = shared_data / "bouc_wen" / "test_multisine.csv"
    return np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
