"""Static functions and the places where they are sampled: definitions, minima, gradients,
stratification.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize, rosen
from scipy.stats import kstest

from simulators import (
    Grid,
    Himmelblau,
    LatinHypercube,
    Rastrigin,
    Rosenbrock,
    SixHumpCamel,
    Sobol,
    Uniform,
)

FUNCTIONS = [Himmelblau(), Rastrigin(), SixHumpCamel(), Rosenbrock()]
each = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: type(function).__name__)


def places(function, n, seed=0):
    return np.random.default_rng(seed).uniform(function.lower, function.upper, size=(n, 2))


def definition(function, x1, x2):
    """The table of the paper (Six-Hump Camel: of the textbooks), multiplied out where that is
    possible.
    """
    if isinstance(function, Himmelblau):
        return (
            x1**4
            + x2**4
            + 2 * x1**2 * x2
            + 2 * x1 * x2**2
            - 21 * x1**2
            - 13 * x2**2
            - 14 * x1
            - 22 * x2
            + 170
        )
    if isinstance(function, Rastrigin):
        return sum(x**2 + 20 * math.sin(math.pi * x) ** 2 for x in (x1, x2))
    if isinstance(function, SixHumpCamel):
        return 4 * x1**2 - 2.1 * x1**4 + x1**6 / 3 + x1 * x2 - 4 * x2**2 + 4 * x2**4
    return rosen([x1, x2])


@each
def test_values_and_gradients_are_those_of_the_definition(function):
    x = places(function, 200)
    expected = [definition(function, float(a), float(b)) for a, b in x]
    np.testing.assert_allclose(function(x), expected, rtol=1e-12, atol=1e-12)
    for place in x[:20]:
        difference = approx_fprime(place, lambda z: float(function(z)), 1e-7)
        scale = 1 + np.abs(function.gradient(place)).max()
        np.testing.assert_allclose(function.gradient(place), difference, atol=2e-4 * scale)


@each
def test_a_search_finds_all_minima_and_none_below(function):
    for place in function.minimisers:
        assert np.all((np.array(function.lower) <= place) & (place <= np.array(function.upper)))
        assert float(function(place)) == pytest.approx(function.minimum, abs=1e-15)
        np.testing.assert_allclose(function.gradient(place), 0.0, atol=1e-13)
    bounds = list(zip(function.lower, function.upper, strict=True))
    options = {
        "jac": function.gradient,
        "bounds": bounds,
        "options": {"gtol": 1e-12, "ftol": 1e-15},
    }
    searches = [
        minimize(function, start, method="L-BFGS-B", **options)
        for start in places(function, 60, seed=3)
    ]
    assert min(search.fun for search in searches) == pytest.approx(function.minimum, abs=1e-9)
    best = np.array([search.x for search in searches if search.fun < function.minimum + 1e-8])
    distance = np.linalg.norm(best[:, np.newaxis] - np.array(function.minimisers), axis=-1)
    assert (distance.min(axis=1) < 1e-3).all(), "a minimum that is not published"
    assert (distance.min(axis=0) < 1e-3).all(), "a published minimum that nobody finds"


@each
def test_any_shape_gives_the_same_numbers(function):
    x = places(function, 12)
    values = function(x)
    gradient = function.gradient(x)
    assert function(x[0]).shape == ()
    np.testing.assert_array_equal(function(x.reshape(3, 4, 2)), values.reshape(3, 4))
    np.testing.assert_array_equal(function.gradient(x.reshape(3, 4, 2)), gradient.reshape(3, 4, 2))
    assert function(np.zeros((0, 2))).shape == (0,)
    assert function([1, 1]) == function([1.0, 1.0])


def test_wrong_places_are_named():
    nan = [[0.0, 1.0], [0.0, np.nan]]
    message = r"Rosenbrock: .*shape \(..., 2\), got "
    bad = [
        (1.0, message),
        (np.zeros((2, 5)), message),
        (nan, r"nan at \(1, 1\)"),
        ([np.inf, 1.0], "inf"),
    ]
    for call in (Rosenbrock(), Rosenbrock().gradient):
        for x, message in bad:
            with pytest.raises(ValueError, match=message):
                call(x)
        for x in (["a", "b"], [1j, 0]):
            with pytest.raises(TypeError, match="real numbers"):
                call(x)


@each
def test_a_record_holds_rows_of_its_own_in_their_order(function):
    x = places(function, 7)
    record = function.to_dataset(x)
    given = x.copy()
    x[:] = 0.0
    np.testing.assert_array_equal(np.column_stack([record.x1, record.x2]), given)
    np.testing.assert_array_equal(record.y, function(given))
    assert record.attrs == {
        "name": function.name,
        "static": 1,
        "sampling_time": 1.0,
        "initialisation_window": 0,
    }
    assert all(variable.attrs["units"] == "1" for variable in record.variables.values())
    for wrong in ([1.0, 2.0], np.zeros((0, 2)), np.zeros((2, 2, 2))):
        with pytest.raises(ValueError, match=r"shape \(n, 2\), n >= 1"):
            function.to_dataset(wrong)


# --- sampling of a box ------------------------------------------------------------------------------

RANDOM = [Uniform(), LatinHypercube(), Sobol()]
LOWER = [-4.0, 2.0]
UPPER = [4.0, 2.5]
every_sampling = pytest.mark.parametrize(
    "sampling", [*RANDOM, Grid()], ids=lambda sampling: type(sampling).__name__
)


@every_sampling
def test_places_fill_the_box(sampling):
    x = sampling.sample(400, LOWER, UPPER, seed=1)
    unit = sampling.sample(400, [0.0, 0.0], [1.0, 1.0], seed=1)
    np.testing.assert_allclose(x, LOWER + unit * [8.0, 0.5], rtol=1e-14)
    assert ((unit >= 0) & (unit <= 1)).all()
    np.testing.assert_array_equal(x, sampling.sample(400, LOWER, UPPER, 1))
    if sampling == Grid():
        return
    assert not np.isin(x, sampling.sample(400, LOWER, UPPER, 4)).any()
    assert all(kstest(column, "uniform").pvalue > 0.01 for column in unit.T)
    assert abs(np.corrcoef(unit.T)[0, 1]) < 0.15


@pytest.mark.parametrize("sampling", [Uniform(), Sobol()])
def test_a_longer_sample_begins_with_the_shorter_one(sampling):
    longer = sampling.sample(600, LOWER, UPPER, seed=6)
    for n in (1, 3, 64, 100):
        np.testing.assert_array_equal(sampling.sample(n, LOWER, UPPER, seed=6), longer[:n])


def test_a_latin_hypercube_has_one_place_per_interval():
    x = LatinHypercube().sample(37, [0.0] * 3, [37.0] * 3, seed=7)
    for column in x.T:
        assert sorted(np.floor(column).astype(int)) == list(range(37))
    assert len({tuple(np.floor(column)) for column in x.T}) == 3, (
        "an order of its own for each input"
    )


def test_a_sobol_sequence_is_balanced_in_every_dyadic_box():
    x = Sobol().sample(256, [0.0, 0.0], [1.0, 1.0], seed=8)
    for i in range(9):  # every split of 256 = 2^i 2^(8-i) boxes holds one place each
        assert len({(int(a * 2**i), int(b * 2 ** (8 - i))) for a, b in x}) == 256


@pytest.mark.parametrize(("m", "d"), [(2, 1), (7, 2), (3, 5)])
def test_a_grid_is_the_product_of_its_axes(m, d):
    lower = np.arange(d) - 1.0
    upper = np.arange(d) + 2.0
    axes = np.linspace(lower, upper, m).T
    np.testing.assert_allclose(
        Grid().sample(m**d, lower, upper), list(itertools.product(*axes)), atol=1e-14
    )
    with pytest.raises(ValueError, match="use 484 or 529"):
        Grid().sample(500, [0.0, 0.0], [1.0, 1.0])


def test_no_rounding_leaves_the_box():
    lower = -0.5
    upper = 0.3
    assert lower + (upper - lower) > upper, "a box where rounding would"
    assert Grid().sample(2, [lower], [upper]).tolist() == [[lower], [upper]]


@every_sampling
def test_wrong_boxes_are_refused(sampling):
    with pytest.raises(ValueError, match="n >= 1 points, got 0"):
        sampling.sample(0, [0.0], [1.0])
    with pytest.raises(TypeError, match="integer"):
        sampling.sample(2.0, [0.0], [1.0])
    with pytest.raises(ValueError, match="seed=-1"):
        sampling.sample(4, [0.0], [1.0], -1)
    inf = np.inf
    nan = np.nan
    boxes = [
        ([1], [1]),
        ([2, 0], [1, 1]),
        ([0], [1, 1]),
        (0, 1),
        ([], []),
        ([-inf], [1]),
        ([0], [nan]),
    ]
    for lower, upper in boxes:
        with pytest.raises(ValueError, match="finite bounds lower < upper of one shape"):
            sampling.sample(4, lower, upper)
