"""Functions drawn from a prior, of which pathwise propagation is made."""

import numpy as np
import pytest

from sysid import Linear, Matern32, Matern52, Product, SquaredExponential, Sum
from sysid.simulation.propagation.pathwise import Draws, _sum_waves, draw

SQUARED_EXPONENTIAL = SquaredExponential(0.3, [2.0, 1.5, 3.0])
LINEAR = Linear(0.5, [0.3, 0.1, 0.2])


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(SQUARED_EXPONENTIAL, id="squared exponential"),
        pytest.param(Matern32(0.3, [2.0, 1.5, 3.0]), id="Matern 3/2"),
        pytest.param(Matern52(0.3, [2.0, 1.5, 3.0]), id="Matern 5/2"),
        pytest.param(Linear(0.2, [0.3, 0.1, 0.2]), id="linear"),
        pytest.param(Product([LINEAR, SQUARED_EXPONENTIAL]), id="product"),
        pytest.param(
            Product(
                [
                    Sum([LINEAR, SQUARED_EXPONENTIAL]),
                    Product([SQUARED_EXPONENTIAL, Matern52(2.0, [1.0, 2.0, 1.0])]),
                ]
            ),
            id="product of a sum and a product",
        ),
    ],
)
def test_functions_of_the_prior_have_its_covariance(kernel):
    """Few features are enough, because every function has its own frequencies."""
    n_functions = 6000
    points = np.random.default_rng(0).normal(size=(4, 3))
    functions = draw(Draws(n_functions, 5, np.random.default_rng(1)), kernel)
    values = functions(np.repeat(points[:, None], n_functions, axis=1))
    expected = kernel(points, points)
    covariance = values @ values.T / n_functions
    spread = np.sqrt(expected.max())
    np.testing.assert_allclose(values.mean(axis=1), 0.0, atol=0.05 * spread)
    np.testing.assert_allclose(covariance, expected, atol=0.09 * expected.max())


def test_sums_of_cosines_are_those_of_numpy():
    """Points lie far from zero too, where the angle has to be reduced."""
    rng = np.random.default_rng(0)
    points = 30 * rng.normal(size=(7, 3, 4))
    frequency = 10 * rng.normal(size=(3, 4, 50))
    phase = rng.uniform(0, 2 * np.pi, (3, 50))
    amplitude = rng.normal(size=(3, 50))
    angle = np.einsum("nsp,spf->nsf", points, frequency) + phase
    expected = (amplitude * np.cos(angle)).sum(axis=2)
    sums = _sum_waves(points, frequency, phase, amplitude)
    np.testing.assert_allclose(sums, expected, atol=1e-10)
