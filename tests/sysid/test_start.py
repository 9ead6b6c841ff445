"""The start of a model as a data set: every bit, type and memory layout comes back."""

import math

import numpy as np
import pytest
import xarray as xr

from sysid import (
    AffineMap,
    ConstantMean,
    Hyperparameters,
    Linear,
    LinearMean,
    Projection,
    Scaling,
    SquaredExponential,
    Start,
    Sum,
    ZeroMean,
)
from sysid.gp.training import Points
from sysid.model.model_file import start_from_dataset, start_to_dataset
from sysid.store import from_file, to_bytes

MATRIX = np.arange(6.0).reshape(2, 3) / 7
LENGTH_SCALES = (1 / 3, 2 / 3)
KERNEL = Sum((Linear(0.7, LENGTH_SCALES), SquaredExponential(0.1 + 0.2, LENGTH_SCALES)))
REPORT = {
    "route": "A",
    "tried": [{"rmse": 1 / 7, "refusal": "", "n": 3, "none": None}],
    "limits": [-math.inf, 1.5],
}
STARTS = {
    "nothing": Start(),
    "scaling": Start(
        scaling=Scaling(np.array([0.1, 1e69]), np.array([1 / 3, 1.0]), (1,)),
        mean=ConstantMean(math.pi),
    ),
    "projection": Start(
        scaling=Projection(np.array([1 / 3, -0.0, 5e-324]), MATRIX),
        mean=LinearMean((0.1, -0.2, 1e-300), 1 / 3),
        hyperparameters=Hyperparameters(KERNEL, 0.1, -12.3, ("a note", "ein ß")),
        points=Points(np.asfortranarray(MATRIX.T), np.array([1.0, -0.0, 1 / 9])),
        limits=(-math.inf, 10.0),
        report=REPORT,
    ),
    "no_points": Start(
        scaling=Scaling.identity(2),
        mean=ZeroMean(),
        points=Points(np.empty((0, 2)), np.empty(0)),
    ),
}


def fingerprint(value):
    """Return everything that distinguishes a value to the last bit, with types and layout."""
    if isinstance(value, np.ndarray):
        layout = (value.flags.c_contiguous, value.flags.f_contiguous)
        return (str(value.dtype), value.shape, value.tobytes(), layout)
    if isinstance(value, AffineMap):
        parts = {name: fingerprint(part) for name, part in vars(value).items()}
        return (type(value), parts)
    if isinstance(value, tuple | list):
        return (type(value), [fingerprint(part) for part in value])
    return (type(value), repr(value))


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_start_comes_back_bit_for_bit(start, tmp_path):
    dataset = start_to_dataset(start)
    assert fingerprint(start_from_dataset(dataset)) == fingerprint(start)

    path = tmp_path / "start.nc"
    path.write_bytes(to_bytes(dataset))
    assert fingerprint(start_from_dataset(from_file(path))) == fingerprint(start)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(Start(scaling=3), id="scaling"),
        pytest.param(Start(mean=object()), id="mean"),
        pytest.param(Start(report={"array": np.zeros(2)}), id="report"),
    ],
)
def test_a_part_without_a_description_is_refused(start):
    with pytest.raises(TypeError):
        start_to_dataset(start)


def test_a_data_set_without_a_start_is_refused():
    with pytest.raises(KeyError):
        start_from_dataset(xr.Dataset())
