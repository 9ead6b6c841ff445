"""Fit percent as MATLAB's `compare` reports it."""

import numpy as np
import pytest

from sysid.compare import fit_percent

Y = np.random.default_rng(0).normal(loc=[3.0, -1.0], size=(50, 2))
Y_HAT = Y + np.random.default_rng(1).normal(size=(50, 2)) * [0.1, 5.0]


def test_it_is_the_formula_of_the_manual():
    expected = 100 * (1 - np.linalg.norm(Y[:, 0] - Y_HAT[:, 0]) / np.linalg.norm(Y[:, 0] - Y[:, 0].mean()))
    assert fit_percent(Y[:, 0], Y_HAT[:, 0]) == pytest.approx(expected, rel=1e-12)
    assert expected > 80


def test_outputs_have_one_each():
    np.testing.assert_array_equal(fit_percent(Y, Y_HAT), [fit_percent(Y[:, i], Y_HAT[:, i]) for i in range(2)])
    assert fit_percent(Y, Y_HAT)[1] < 0


def test_marks():
    assert fit_percent(Y[:, 0], Y[:, 0]) == 100
    assert fit_percent(Y[:, 0], np.full(50, Y[:, 0].mean())) == pytest.approx(0, abs=1e-12)
    assert fit_percent(Y[:, 0], np.full(50, np.nan)) == -np.inf
    assert np.isnan(fit_percent(np.ones(5), np.zeros(5)))


@pytest.mark.parametrize("y_hat", [Y[:, 0], Y[:-1], Y[None]])
def test_other_shapes_are_refused(y_hat):
    with pytest.raises(ValueError, match="fit_percent"):
        fit_percent(Y, y_hat)
