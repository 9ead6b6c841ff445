"""Static functions: published values, minima found by a search, gradients by differences, every error."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize, rosen, rosen_der

from simulators.functions import Himmelblau, Rastrigin, Rosenbrock, SixHumpCamel, StaticFunction

FUNCTIONS = [Himmelblau(), Rastrigin(), SixHumpCamel(), Rosenbrock()]
each = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: type(function).__name__)


def places(function, n, seed=0):
    return np.random.default_rng(seed).uniform(function.lower, function.upper, size=(n, 2))


def definition(function, x1, x2):
    """The table of the paper (Six-Hump Camel: of the textbooks), multiplied out where that is possible."""
    if isinstance(function, Himmelblau):
        return x1**4 + x2**4 + 2 * x1**2 * x2 + 2 * x1 * x2**2 - 21 * x1**2 - 13 * x2**2 - 14 * x1 - 22 * x2 + 170
    if isinstance(function, Rastrigin):
        return sum(x**2 + 20 * math.sin(math.pi * x) ** 2 for x in (x1, x2))
    if isinstance(function, SixHumpCamel):
        return 4 * x1**2 - 2.1 * x1**4 + x1**6 / 3 + x1 * x2 - 4 * x2**2 + 4 * x2**4
    return rosen([x1, x2])


@each
def test_values_are_the_definition(function):
    x = places(function, 200)
    expected = [definition(function, float(a), float(b)) for a, b in x]
    np.testing.assert_allclose(function(x), expected, rtol=1e-12, atol=1e-12)


def test_the_last_term_of_six_hump_camel_is_the_one_of_the_textbooks():
    assert SixHumpCamel()([0.0, -1.0]) == 0.0  # as misprinted in the paper: -8
    assert SixHumpCamel()([1.0, 1.0]) == pytest.approx(4 - 2.1 + 1 / 3 + 1)


@each
def test_the_gradient_is_that_of_differences(function):
    for x in places(function, 20, seed=1):
        scale = 1 + np.abs(function.gradient(x)).max()
        difference = approx_fprime(x, lambda z: float(function(z)), 1e-7)
        np.testing.assert_allclose(function.gradient(x), difference, atol=2e-4 * scale)


def test_the_gradient_of_rosenbrock_is_that_of_scipy():
    for x in places(Rosenbrock(), 50, seed=2):
        np.testing.assert_allclose(Rosenbrock().gradient(x), rosen_der(x), rtol=1e-13, atol=1e-13)


@each
def test_minima_are_where_they_are_said_to_be(function):
    for place in function.minimisers:
        assert np.all(np.array(function.lower) <= place)
        assert np.all(place <= np.array(function.upper))
        assert float(function(place)) == pytest.approx(function.minimum, abs=1e-15)
        np.testing.assert_allclose(function.gradient(place), 0.0, atol=1e-13)


@each
def test_a_search_finds_all_minima_and_none_below(function):
    bounds = list(zip(function.lower, function.upper, strict=True))
    options = {"gtol": 1e-12, "ftol": 1e-15}
    searches = [
        minimize(function, start, jac=function.gradient, method="L-BFGS-B", bounds=bounds, options=options)
        for start in places(function, 60, seed=3)
    ]
    lowest = min(search.fun for search in searches)
    assert lowest == pytest.approx(function.minimum, abs=1e-9)
    best = [search.x for search in searches if search.fun < function.minimum + 1e-8]
    distance = np.array([[np.linalg.norm(x - np.array(place)) for place in function.minimisers] for x in best])
    assert (distance.min(axis=1) < 1e-3).all(), "a minimum that is not published"
    assert (distance.min(axis=0) < 1e-3).all(), "a published minimum that nobody finds"


@each
def test_any_shape_gives_the_same_numbers(function):
    x = places(function, 12)
    values, gradient = function(x), function.gradient(x)
    assert function(x[0]).shape == ()
    assert values.dtype == gradient.dtype == np.float64
    np.testing.assert_array_equal(function(x.reshape(3, 4, 2)), values.reshape(3, 4))
    np.testing.assert_array_equal(function.gradient(x.reshape(3, 4, 2)), gradient.reshape(3, 4, 2))
    assert function(np.zeros((0, 2))).shape == (0,)
    assert function([1, 1]) == function([1.0, 1.0])


@each
def test_a_function_is_frozen_and_equal_to_another_of_its_kind(function):
    assert function == type(function)()
    assert hash(function) == hash(type(function)())
    with pytest.raises(dataclasses.FrozenInstanceError):
        function.minimum = -1.0


@pytest.mark.parametrize("call", [Rosenbrock().__call__, Rosenbrock().gradient])
@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (1.0, ValueError, r"Rosenbrock: expected places of shape \(..., 2\), got \(\)"),
        ([1.0, 2.0, 3.0], ValueError, r"got \(3,\)"),
        (np.zeros((2, 5)), ValueError, r"got \(2, 5\)"),
        ([[0.0, 1.0], [0.0, np.nan]], ValueError, r"got nan at \(1, 1\)"),
        ([np.inf, 1.0], ValueError, "finite inputs, got inf"),
        (["a", "b"], TypeError, "real numbers, got dtype <U1"),
        ([1j, 0], TypeError, "got dtype complex128"),
    ],
)
def test_wrong_places_are_named(call, x, kind, message):
    with pytest.raises(kind, match=message):
        call(x)


# --- records --------------------------------------------------------------------------------------


@each
def test_a_record_holds_rows_in_their_order(function):
    x = places(function, 7)
    record = function.to_dataset(x)
    assert list(record.data_vars) == ["x1", "x2", "y"]
    assert record.time.values.tolist() == list(range(7))
    np.testing.assert_array_equal(np.column_stack([record.x1, record.x2]), x)
    np.testing.assert_array_equal(record.y, [float(function(row)) for row in x])
    assert record.attrs == {
        "name": function.name,
        "static": 1,
        "sampling_time": 1.0,
        "initialisation_window": 0,
    }
    for name in ("x1", "x2", "y", "time"):
        assert record[name].attrs["units"] == "1"
        assert record[name].attrs["long_name"]


def test_a_record_is_independent_of_the_places_it_was_made_of():
    x = places(Himmelblau(), 3)
    record = Himmelblau().to_dataset(x)
    before = record.x1.values.copy()
    x[:] = 0.0
    np.testing.assert_array_equal(record.x1.values, before)


@pytest.mark.parametrize("x", [[1.0, 2.0], np.zeros((0, 2)), np.zeros((2, 2, 2))])
def test_a_record_needs_rows(x):
    with pytest.raises(ValueError, match=r"Himmelblau: expected places of shape \(n, 2\), n >= 1, got"):
        Himmelblau().to_dataset(x)


def test_the_role_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        StaticFunction()
