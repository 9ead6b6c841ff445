"""A start as a data set and back, also through a file."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr

from sysid.feature_map import FeatureMap
from sysid.kernels.linear import Linear
from sysid.kernels.matern import Matern52
from sysid.kernels.squared_exponential import SquaredExponential
from sysid.kernels.sum import Sum
from sysid.marginal_likelihood import Hyperparameters
from sysid.mean import ConstantMean, LinearMean, ZeroMean
from sysid.netcdf import from_file, to_bytes
from sysid.projection import Projection
from sysid.scaling import Scaling
from sysid.start import Points, Start
from sysid.start_data import start_from_dataset, start_to_dataset

THIRDS = (1 / 3, 2 / 3)
MATRIX = np.arange(6.0).reshape(2, 3) / 7
SQUARED = SquaredExponential(0.1 + 0.2, THIRDS)
REPORT = {"route": "A", "tried": [{"rmse": 1 / 7, "refusal": "", "n": 3, "none": None}], "limits": [-math.inf, 1.5]}
STARTS = {
    "nothing": Start(),
    "scaling": Start(
        Scaling(np.array([0.1, 1e300]), np.array([1 / 3, 1.0]), (1,)),
        ConstantMean(math.pi),
        Hyperparameters(SQUARED, 1e-7 / 3, math.nan),
    ),
    "projection": Start(
        Projection(np.array([1 / 3, -0.0, 5e-324]), MATRIX),
        LinearMean((0.1, -0.2, 1e-300), 1 / 3),
        Hyperparameters(Matern52(2.0, THIRDS), 0.1, -12.3, ("a note", "ein ß")),
        Points(np.asfortranarray(MATRIX.T), np.array([1.0, -0.0, 1 / 9])),
        (-math.inf, 10.0),
        REPORT,
    ),
    "sum of kernels": Start(hyperparameters=Hyperparameters(Sum((Linear(0.7, THIRDS), SQUARED)), 0.2, 1.0)),
    "no points": Start(Scaling.identity(2), ZeroMean(), None, Points(np.empty((0, 2)), np.empty(0))),
    "large report": Start(report={"numbers": (np.arange(20000) / 3).tolist()}),
}


def same(a, b):
    """Equal to the last bit, with types and layout."""
    if isinstance(a, np.ndarray):
        return (
            (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
            and a.flags.c_contiguous == b.flags.c_contiguous
            and a.flags.f_contiguous == b.flags.f_contiguous
        )
    if isinstance(a, Scaling | Projection):
        return type(a) is type(b) and all(same(getattr(a, name), getattr(b, name)) for name in vars(a))
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and a == b and repr(a) == repr(b)


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_it_comes_back_bit_for_bit(start, tmp_path):
    dataset = start_to_dataset(start)
    assert same(start_from_dataset(dataset), start)
    (tmp_path / "start.nc").write_bytes(to_bytes(dataset))
    assert same(start_from_dataset(from_file(tmp_path / "start.nc", check=lambda found: None)), start)


def test_the_comparison_sees_a_bit_and_the_layout():
    assert not same(Start(limits=(0.1 + 0.2, 1.0)), Start(limits=(0.3, 1.0)))
    assert not same(Points(MATRIX, MATRIX[0]), Points(np.asfortranarray(MATRIX), MATRIX[0]))


@dataclass(frozen=True)
class OwnMap(FeatureMap):
    offset: np.ndarray

    def linear_part(self):
        return np.eye(self.offset.size)

    def transform(self, x):
        return x

    @property
    def n_coordinates(self):
        return self.offset.size


class OwnMean(ZeroMean):
    def __init__(self):
        self.state = object()


@dataclass(frozen=True)
class OddMean(ZeroMean):
    odd: object = None


@pytest.mark.parametrize(
    "start",
    [Start(OwnMap(np.zeros(2))), Start(mean=OddMean(object())), Start(report={"array": np.zeros(2)})],
    ids=["map", "mean", "report"],
)
def test_what_cannot_be_described_is_refused(start):
    with pytest.raises(TypeError):
        start_to_dataset(start)


def test_another_data_set_is_refused():
    with pytest.raises(KeyError):
        start_from_dataset(xr.Dataset())
