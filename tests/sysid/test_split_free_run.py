"""Free runs that are split into a measured and a fed-back part, against a loop over the samples."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import (
    EACH_KIND_OF_LAGS,
    KINDS_OF_LAGS,
    NO_LIMITS,
    naive_free_run,
    random_candidate,
    random_signals,
    samples_of,
)
from sysid import Matern52, Narx, SquaredExponential
from sysid.gp.affine_map import AffineMap
from sysid.simulation.segments import segments_of
from sysid.simulation_error.split_free_run import SplitFeatures, squared_distances

FIRST_SIMULATED = 10  # sample at which a free run begins
N_SIGNAL_SAMPLES = 40
N_INSIDE_BOUNDS = 8  # samples that determine the bounds of a free run


def split_run(candidate, signals, bounds=(-1e6, 1e6)):
    """Return the split free run of a candidate from a sample within the record on."""
    (segment,) = segments_of(samples_of(candidate.narx, signals))
    first = FIRST_SIMULATED - candidate.narx.max_lag
    part = segment.part(first, len(segment.values))
    features = SplitFeatures(
        candidate.narx, candidate.scaling, segment.regressors, candidate.limits, bounds
    )
    slopes = np.array(candidate.mean.coefficients)
    samples = slice(first, len(segment.values))
    return features.at(candidate.kernel, candidate.points).simulate(
        slopes, candidate.mean.intercept, candidate.weights, part, samples
    )


@EACH_KIND_OF_LAGS
@pytest.mark.parametrize("kernel", [SquaredExponential, Matern52])
@pytest.mark.parametrize("limits", [NO_LIMITS, (-0.2, 0.3)], ids=["no limits", "limits"])
def test_split_free_run_is_that_of_the_function(narx, kernel, limits):
    signals = random_signals(narx, N_SIGNAL_SAMPLES)
    candidate = random_candidate(narx, limits=limits, kernel=kernel)
    expected = naive_free_run(candidate, signals, FIRST_SIMULATED, N_SIGNAL_SAMPLES)
    np.testing.assert_allclose(split_run(candidate, signals), expected, atol=1e-12)


def test_split_free_run_of_differences_of_the_outputs():
    """The coordinates are y[k-1] - y[k-2], y[k-2] - y[k-3] and the input."""
    narx = Narx({"y": 3}, {"u": 1})
    differences = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 2.0, -2.0, 0.0], [0.0, 0.0, 0.0, 0.5]])
    candidate = random_candidate(narx, n_coordinates=3)
    candidate = replace(candidate, scaling=AffineMap.of_matrix(np.arange(4.0), differences))
    signals = random_signals(narx, N_SIGNAL_SAMPLES)
    expected = naive_free_run(candidate, signals, FIRST_SIMULATED, N_SIGNAL_SAMPLES)
    np.testing.assert_allclose(split_run(candidate, signals), expected, atol=1e-12)


def test_split_free_run_that_leaves_the_bounds_is_nan_from_there_on():
    narx = KINDS_OF_LAGS["change"]
    signals = random_signals(narx, N_SIGNAL_SAMPLES)
    candidate = random_candidate(narx)
    inside = naive_free_run(candidate, signals, FIRST_SIMULATED, N_SIGNAL_SAMPLES)
    low = float(inside[:N_INSIDE_BOUNDS].min()) - 1e-6
    high = float(inside[:N_INSIDE_BOUNDS].max()) + 1e-6
    n_inside = int(np.argmin((inside > low) & (inside < high)))
    assert n_inside >= N_INSIDE_BOUNDS
    run = split_run(candidate, signals, bounds=(low, high))
    np.testing.assert_allclose(run[:n_inside], inside[:n_inside], atol=1e-12)
    assert np.isnan(run[n_inside:]).all()


def test_squared_distances_are_those_of_the_differences():
    generator = np.random.default_rng(3)
    first = generator.standard_normal((7, 4))
    second = np.vstack([generator.standard_normal((2, 4)), first[3]])
    expected = np.sum((first[:, None] - second) ** 2, axis=2)
    found = squared_distances(first, second)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    assert np.min(found) >= 0.0
