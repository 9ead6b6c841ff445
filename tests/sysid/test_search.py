"""The search: finds the minimum within bounds, and never costs more than it may."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from sysid.search import minimise

START = np.array([-1.2, 1.0])
WIDE = np.array([[-5.0, 5.0], [-5.0, 5.0]])


class Spy:
    """Rosenbrock's function that remembers where it was asked."""

    def __init__(self):
        self.values = []

    def __call__(self, x):
        self.values.append(rosen(x))
        return rosen(x), rosen_der(x)


def test_the_minimum_is_found():
    spy = Spy()
    found = minimise(spy, START, WIDE, max_iterations=200)
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-3)
    assert found.converged
    assert found.cost == min(spy.values) == rosen(found.x)
    assert found.cost_at_start == rosen(START)
    assert found.n_evaluations == len(spy.values)


def test_bounds_hold():
    found = minimise(Spy(), np.array([-1.0, 0.5]), np.array([[-2.0, 0.5], [-5.0, 5.0]]), max_iterations=200)
    np.testing.assert_allclose(found.x, [0.5, 0.25], atol=1e-4)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 20])
def test_evaluations_are_never_exceeded_and_the_best_is_returned(most):
    spy = Spy()
    found = minimise(spy, START, WIDE, max_iterations=200, max_evaluations=most)
    assert len(spy.values) == found.n_evaluations == most
    assert not found.converged
    assert found.cost == min(spy.values) == rosen(found.x)


def test_iterations_used_up_is_no_convergence():
    found = minimise(Spy(), START, WIDE, max_iterations=2)
    assert not found.converged
    assert found.cost == rosen(found.x) < found.cost_at_start


def test_the_start_is_left_alone():
    start = START.copy()
    minimise(Spy(), start, WIDE, max_iterations=5, max_evaluations=4)
    np.testing.assert_array_equal(start, START)
