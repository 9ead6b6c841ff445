"""The search for a minimum within bounds, on Rosenbrock's function."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from sysid.gp.marginal_likelihood import Optimum, minimise

START = np.array([-1.2, 1.0])
WIDE_BOUNDS = np.array([[-5.0, 5.0], [-5.0, 5.0]])


class Search(NamedTuple):
    """The optimum of a search, and the value of every evaluation."""

    optimum: Optimum
    values: list[float]


def search(bounds=WIDE_BOUNDS, max_iterations=200, min_gain=1e-9, **limits):
    """Minimise Rosenbrock's function."""
    values = []

    def cost(x):
        values.append(rosen(x))
        return rosen(x), rosen_der(x)

    optimum = minimise(
        cost, START, bounds, max_iterations=max_iterations, min_gain=min_gain, **limits
    )
    return Search(optimum, values)


def test_the_minimum_is_found():
    optimum, _ = search()
    assert optimum.converged
    np.testing.assert_allclose(optimum.x, [1.0, 1.0], atol=1e-3)


@pytest.mark.parametrize("max_evaluations", [1, 2, 3, 7, 20, np.inf])
def test_the_best_of_all_evaluations_is_returned(max_evaluations):
    optimum, values = search(max_evaluations=max_evaluations)
    np.testing.assert_array_equal(START, [-1.2, 1.0])
    assert optimum.cost == min(values)
    assert optimum.cost == rosen(optimum.x)
    assert optimum.cost_at_start == rosen(START)
    assert optimum.n_evaluations == len(values)
    assert optimum.n_evaluations <= max_evaluations


@pytest.mark.parametrize("max_evaluations", [1, 2, 3, 7, 20])
def test_a_search_that_runs_out_of_evaluations_has_not_converged(max_evaluations):
    optimum, values = search(max_evaluations=max_evaluations)
    assert len(values) == max_evaluations
    assert not optimum.converged
    assert not np.allclose(optimum.x, [1.0, 1.0], atol=1e-3)


def test_a_search_that_runs_out_of_iterations_has_not_converged():
    optimum, _ = search(max_iterations=2)
    assert not optimum.converged


def test_a_minimum_outside_the_bounds_is_found_at_the_bound():
    optimum, _ = search(bounds=np.array([[-2.0, 0.5], [-5.0, 5.0]]))
    np.testing.assert_allclose(optimum.x, [0.5, 0.25], atol=1e-4)


def test_a_search_ends_at_a_small_gain():
    optimum, values = search(min_gain=0.01)
    exact, all_values = search()
    assert optimum.converged
    assert len(values) < len(all_values)
    assert exact.cost < optimum.cost < optimum.cost_at_start
    assert optimum.cost == rosen(optimum.x)


@pytest.mark.parametrize("constant", [-1e6, 1e4, 1e8])
@pytest.mark.parametrize("min_gain", [1e-3, 0.1])
def test_a_constant_in_the_cost_changes_no_search(constant, min_gain):
    def shifted(x):
        return rosen(x) + constant, rosen_der(x)

    optimum = minimise(shifted, START, WIDE_BOUNDS, max_iterations=200, min_gain=min_gain)
    expected, _ = search(min_gain=min_gain)
    assert optimum.converged
    assert optimum.n_evaluations == expected.n_evaluations
    np.testing.assert_allclose(optimum.x, expected.x, atol=1e-6)
