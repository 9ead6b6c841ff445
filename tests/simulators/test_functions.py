"""Static functions and the points where they are sampled."""

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


def class_name(value):
    """Return the name of the class of a case."""
    return type(value).__name__


every_function = pytest.mark.parametrize("function", FUNCTIONS, ids=class_name)


def random_points(function, n, seed=0):
    """Return points (n, 2) within the box of a function."""
    return np.random.default_rng(seed).uniform(function.lower, function.upper, size=(n, 2))


# --- definitions and minima -----------------------------------------------------------------------


def definition(function, x1, x2):
    """Return the value by the table of the paper, multiplied out where that is possible.

    Six-Hump Camel: by the textbooks.
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


@every_function
def test_values_are_those_of_the_definition(function):
    x = random_points(function, 200)
    expected = [definition(function, float(x1), float(x2)) for x1, x2 in x]
    np.testing.assert_allclose(function(x), expected, rtol=1e-12, atol=1e-12)


@every_function
def test_gradients_are_those_of_differences(function):
    for point in random_points(function, 200)[:20]:
        gradient = function.gradient(point)
        differences = approx_fprime(point, lambda z: float(function(z)), 1e-7)
        scale = 1 + np.abs(gradient).max()
        np.testing.assert_allclose(gradient, differences, atol=2e-4 * scale)


@every_function
def test_published_minima_are_minima(function):
    for point in function.minimisers:
        assert np.all((np.array(function.lower) <= point) & (point <= np.array(function.upper)))
        assert float(function(point)) == pytest.approx(function.minimum, abs=1e-15)
        np.testing.assert_allclose(function.gradient(point), 0.0, atol=1e-13)


@every_function
def test_search_finds_the_published_minima_and_no_others(function):
    bounds = list(zip(function.lower, function.upper, strict=True))
    searches = []
    for start in random_points(function, 60, seed=3):
        search = minimize(
            function,
            start,
            method="L-BFGS-B",
            jac=function.gradient,
            bounds=bounds,
            options={"gtol": 1e-12, "ftol": 1e-15},
        )
        searches.append(search)
    smallest = min(search.fun for search in searches)
    assert smallest == pytest.approx(function.minimum, abs=1e-9)

    found = np.array([search.x for search in searches if search.fun < function.minimum + 1e-8])
    published = np.array(function.minimisers)
    distance = np.linalg.norm(found[:, np.newaxis] - published, axis=-1)
    assert (distance.min(axis=1) < 1e-3).all(), "a minimum that is not published"
    assert (distance.min(axis=0) < 1e-3).all(), "a published minimum that no search finds"


@every_function
def test_shape_of_the_inputs_does_not_change_the_values(function):
    x = random_points(function, 12)
    stacked = x.reshape(3, 4, 2)
    np.testing.assert_array_equal(function(stacked), function(x).reshape(3, 4))
    np.testing.assert_array_equal(function.gradient(stacked), function.gradient(x).reshape(3, 4, 2))
    assert function(x[0]).shape == ()
    assert function(np.zeros((0, 2))).shape == (0,)
    assert function([1, 1]) == function([1.0, 1.0])


WRONG_SHAPE = r"Rosenbrock: .*shape \(..., 2\), got "


@pytest.mark.parametrize("method", ["value", "gradient"])
@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        pytest.param(1.0, ValueError, WRONG_SHAPE, id="number"),
        pytest.param(np.zeros((2, 5)), ValueError, WRONG_SHAPE, id="five inputs"),
        pytest.param([[0.0, 1.0], [0.0, np.nan]], ValueError, r"nan at \(1, 1\)", id="nan"),
        pytest.param([np.inf, 1.0], ValueError, "inf", id="infinity"),
        pytest.param(["a", "b"], TypeError, "real numbers", id="texts"),
        pytest.param([1j, 0], TypeError, "real numbers", id="complex numbers"),
    ],
)
def test_wrong_inputs_are_refused(x, error, message, method):
    function = Rosenbrock()
    call = function if method == "value" else function.gradient
    with pytest.raises(error, match=message):
        call(x)


@every_function
def test_record_holds_copies_of_the_inputs_in_their_order(function):
    x = random_points(function, 7)
    given = x.copy()
    record = function.to_dataset(x)
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


@pytest.mark.parametrize(
    "x",
    [[1.0, 2.0], np.zeros((0, 2)), np.zeros((2, 2, 2))],
    ids=["one point", "no points", "three dimensions"],
)
@every_function
def test_record_of_wrong_inputs_is_refused(function, x):
    with pytest.raises(ValueError, match=r"shape \(n, 2\), n >= 1"):
        function.to_dataset(x)


# --- sampling of a box ----------------------------------------------------------------------------

RANDOM_SAMPLINGS = [Uniform(), LatinHypercube(), Sobol()]
BOX_LOWER = [-4.0, 2.0]
BOX_UPPER = [4.0, 2.5]
every_sampling = pytest.mark.parametrize("sampling", [*RANDOM_SAMPLINGS, Grid()], ids=class_name)


@every_sampling
def test_points_fill_the_box(sampling):
    x = sampling.sample(400, BOX_LOWER, BOX_UPPER, seed=1)
    in_unit_box = sampling.sample(400, [0.0, 0.0], [1.0, 1.0], seed=1)
    np.testing.assert_allclose(x, BOX_LOWER + in_unit_box * [8.0, 0.5], rtol=1e-14)
    assert ((in_unit_box >= 0) & (in_unit_box <= 1)).all()
    np.testing.assert_array_equal(x, sampling.sample(400, BOX_LOWER, BOX_UPPER, 1))


@pytest.mark.parametrize("sampling", RANDOM_SAMPLINGS, ids=class_name)
def test_random_points_are_uniform_and_follow_the_seed(sampling):
    x = sampling.sample(400, BOX_LOWER, BOX_UPPER, seed=1)
    with_other_seed = sampling.sample(400, BOX_LOWER, BOX_UPPER, 4)
    assert not np.isin(x, with_other_seed).any()
    in_unit_box = sampling.sample(400, [0.0, 0.0], [1.0, 1.0], seed=1)
    assert all(kstest(column, "uniform").pvalue > 0.01 for column in in_unit_box.T)
    assert abs(np.corrcoef(in_unit_box.T)[0, 1]) < 0.15


@pytest.mark.parametrize("n", [1, 3, 64, 100])
@pytest.mark.parametrize("sampling", [Uniform(), Sobol()], ids=class_name)
def test_longer_sample_begins_with_the_shorter_one(sampling, n):
    longer = sampling.sample(600, BOX_LOWER, BOX_UPPER, seed=6)
    shorter = sampling.sample(n, BOX_LOWER, BOX_UPPER, seed=6)
    np.testing.assert_array_equal(shorter, longer[:n])


def test_latin_hypercube_has_one_point_per_interval():
    x = LatinHypercube().sample(37, [0.0] * 3, [37.0] * 3, seed=7)
    orders = [tuple(np.floor(column).astype(int)) for column in x.T]
    for order in orders:
        assert sorted(order) == list(range(37))
    assert len(set(orders)) == 3, "two inputs have the same order"


@pytest.mark.parametrize("i", range(9))
def test_sobol_sequence_is_balanced_in_every_dyadic_box(i):
    """Each of 256 = 2^i 2^(8-i) boxes holds one point."""
    x = Sobol().sample(256, [0.0, 0.0], [1.0, 1.0], seed=8)
    boxes = {(int(x1 * 2**i), int(x2 * 2 ** (8 - i))) for x1, x2 in x}
    assert len(boxes) == 256


@pytest.mark.parametrize(("m", "d"), [(2, 1), (7, 2), (3, 5)])
def test_grid_is_the_product_of_its_axes(m, d):
    """A grid of m levels of each of d inputs."""
    lower = np.arange(d) - 1.0
    upper = np.arange(d) + 2.0
    axes = np.linspace(lower, upper, m).T
    expected = list(itertools.product(*axes))
    np.testing.assert_allclose(Grid().sample(m**d, lower, upper), expected, atol=1e-14)


def test_grid_of_an_impossible_size_is_refused():
    with pytest.raises(ValueError, match="use 484 or 529"):
        Grid().sample(500, [0.0, 0.0], [1.0, 1.0])


def test_rounding_leaves_no_point_outside_the_box():
    lower = -0.5
    upper = 0.3
    assert lower + (upper - lower) > upper, "rounding does no harm in this box; take another"
    assert Grid().sample(2, [lower], [upper]).tolist() == [[lower], [upper]]


@every_sampling
@pytest.mark.parametrize(
    ("n", "seed", "error", "message"),
    [
        (0, 0, ValueError, "n >= 1 points, got 0"),
        (2.0, 0, TypeError, "integer"),
        (4, -1, ValueError, "seed=-1"),
    ],
    ids=["no points", "float", "negative seed"],
)
def test_wrong_numbers_and_seeds_are_refused(sampling, n, seed, error, message):
    with pytest.raises(error, match=message):
        sampling.sample(n, [0.0], [1.0], seed)


@every_sampling
@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ([1], [1]),
        ([2, 0], [1, 1]),
        ([0], [1, 1]),
        (0, 1),
        ([], []),
        ([-np.inf], [1]),
        ([0], [np.nan]),
    ],
    ids=["empty", "reversed", "two shapes", "numbers", "no inputs", "infinite", "nan"],
)
def test_wrong_boxes_are_refused(sampling, lower, upper):
    with pytest.raises(ValueError, match="finite bounds lower < upper of one shape"):
        sampling.sample(4, lower, upper)
