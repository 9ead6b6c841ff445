"""Shared by the tests of the simulators: the measured records, and what runs without the
compiler.
"""

import numpy as np
import pytest

from simulators.runge_kutta import WITHOUT_COMPILER

LONG = ["test_cascaded_tanks.py", "test_grey_box.py", "test_many.py", "test_systems.py"]
collect_ignore = (
    LONG if WITHOUT_COMPILER else []
)  # minutes as plain Python, and the kernels are those of the other tests


@pytest.fixture(params=["potsdam_2010_hourly.csv", "try2010_potsdam_hourly.csv"])
def measured_year(request, shared_data):
    """Path of a measured year of weather."""
    return str(shared_data / "weather" / request.param)


@pytest.fixture(scope="session")
def bouc_wen_test(shared_data):
    """Force [N] and displacement [m] of the official multisine test of the Bouc-Wen benchmark, one
    period each.
    """
    path = shared_data / "bouc_wen" / "test_multisine.csv"
    return np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
