"""Small signals and estimators that the tests of `sysid.estimators` share."""

import numpy as np

import sysid
from sysid.estimators import NarxGPRegressor, OnlineGPRegressor

QUICK = sysid.MaximumLikelihood(n_initial=12, restarts=1, max_iterations=6)


def static_samples():
    """Return forty regressors with two features and the noisy values of a function."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) * [1.0, 4.0] + [0.0, 10.0]
    noise = 0.01 * rng.normal(size=40)
    return x, np.sin(x[:, 0]) + 0.2 * x[:, 1] + noise


def two_coupled_outputs(n, seed):
    """Return two inputs and two outputs of a system; all lags are one sample."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, 2))
    y = np.zeros((n, 2))
    for k in range(1, n):
        y[k, 0] = 0.6 * y[k - 1, 0] + np.tanh(u[k - 1, 0]) + 0.1 * y[k - 1, 1]
        y[k, 1] = 0.5 * y[k - 1, 1] + u[k - 1, 1]
    noise = 0.01 * rng.normal(size=y.shape)
    return u, y + noise


#: samples of a function
X, TARGETS = static_samples()

#: a record of two inputs and two outputs for estimation, and its first output
U, Y = two_coupled_outputs(40, seed=0)
Y1 = Y[:, 0]

#: a record for tests
NEW_U, NEW_Y = two_coupled_outputs(25, seed=1)
NEW_Y1 = NEW_Y[:, 0]


def online(**parameters):
    """Return an online GP that is trained quickly."""
    return OnlineGPRegressor(**({"budget": 10, "training": QUICK} | parameters))


def dynamic(**parameters):
    """Return a NARX model with lags of one sample that is trained quickly."""
    return NarxGPRegressor(**({"na": 1, "nb": 1, "budget": 10, "training": QUICK} | parameters))


def assert_same_arrays(arrays, expected):
    """Assert that two sequences of arrays hold the same bits."""
    for array, expected_array in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, expected_array)
