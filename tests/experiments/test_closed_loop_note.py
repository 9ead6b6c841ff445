"""The note on loops in which the samples do not tell what a controlled input does."""

import numpy as np
import pytest

from experiments.identify.closed_loop import MAX_EFFECT_ERROR, effect_error


def loop(probing, n=500, seed=0):
    """Return regressors y[k-1], y[k-2], u[k-1] under ``u = -0.5 y + probing``, and the target."""
    rng = np.random.default_rng(seed)
    y = np.zeros(n)
    u = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.9 * y[k - 1] + 0.3 * u[k - 1] + 0.1 * rng.normal()
        u[k] = -0.5 * y[k] + probing * rng.choice([-1.0, 1.0])
    return np.column_stack([y[1:-1], y[:-2], u[1:-1]]), y[2:]


def test_the_error_is_that_of_least_squares():
    regressors, target = loop(probing=0.2)
    error, share = effect_error(regressors, 2, 0.01, target.std())
    design = np.column_stack([regressors, np.ones(len(target))])
    covariance = 0.01 * np.linalg.inv(design.T @ design)
    u = regressors[:, 2]
    assert error == pytest.approx(np.sqrt(covariance[2, 2]) * u.std() / target.std(), rel=1e-9)
    assert 0.3 < share < 1.0
    assert error < MAX_EFFECT_ERROR


def test_a_loop_without_excitation_does_not_tell_the_effect():
    regressors, target = loop(probing=0.0)
    error, share = effect_error(regressors, 2, 0.01, target.std())
    assert error > 1e3 * MAX_EFFECT_ERROR
    assert share < 1e-20


def test_a_constant_input_tells_nothing():
    regressors = np.column_stack([np.arange(9.0), np.ones(9)])
    assert effect_error(regressors, 1, 0.01, 1.0) == (np.inf, 0.0)
