"""Sampling of a box: stratification, discrepancy, seeds, bounds and every error."""

import itertools

import numpy as np
import pytest
from scipy.stats import kstest, qmc

from simulators.sampling import Grid, LatinHypercube, Sampling, Sobol, Uniform

RANDOM = [Uniform(), LatinHypercube(), Sobol()]
ALL = [*RANDOM, Grid()]
LOWER, UPPER = [-4.0, 2.0], [4.0, 2.5]


def by_name(sampling):
    return type(sampling).__name__


@pytest.mark.parametrize("sampling", ALL, ids=by_name)
def test_places_fill_the_box_and_stay_inside(sampling):
    x = sampling.sample(400, LOWER, UPPER, seed=1)
    assert x.shape == (400, 2)
    assert x.dtype == np.float64
    assert (x >= LOWER).all()
    assert (x <= UPPER).all()
    quarter = (np.array(UPPER) - LOWER) / 4
    np.testing.assert_allclose(x.mean(axis=0), np.add(LOWER, UPPER) / 2, atol=0.2 * quarter.max())
    assert (x.min(axis=0) < LOWER + 0.1 * quarter).all()
    assert (x.max(axis=0) > UPPER - 0.1 * quarter).all()


@pytest.mark.parametrize("sampling", RANDOM, ids=by_name)
def test_each_input_is_uniform(sampling):
    x = sampling.sample(500, LOWER, UPPER, seed=2)
    for low, high, column in zip(LOWER, UPPER, x.T, strict=True):
        assert kstest((column - low) / (high - low), "uniform").pvalue > 0.01
    assert abs(np.corrcoef(x.T)[0, 1]) < 0.15


@pytest.mark.parametrize("sampling", RANDOM, ids=by_name)
def test_the_seed_decides(sampling):
    x = sampling.sample(50, LOWER, UPPER, seed=3)
    np.testing.assert_array_equal(x, sampling.sample(50, LOWER, UPPER, 3))
    assert not np.isin(x, sampling.sample(50, LOWER, UPPER, 4)).any()


@pytest.mark.parametrize("sampling", ALL, ids=by_name)
def test_the_box_only_scales(sampling):
    unit = sampling.sample(49, [0.0, 0.0], [1.0, 1.0], seed=5)
    np.testing.assert_allclose(sampling.sample(49, LOWER, UPPER, seed=5), LOWER + unit * [8.0, 0.5], rtol=1e-14)


@pytest.mark.parametrize("sampling", [Uniform(), Sobol()], ids=by_name)
@pytest.mark.parametrize("n", [1, 2, 3, 64, 100])
def test_a_longer_sample_begins_with_the_shorter_one(sampling, n):
    longer = sampling.sample(600, LOWER, UPPER, seed=6)
    np.testing.assert_array_equal(sampling.sample(n, LOWER, UPPER, seed=6), longer[:n])


def test_a_latin_hypercube_has_one_place_per_interval():
    n = 37
    x = LatinHypercube().sample(n, [0.0] * 3, [float(n)] * 3, seed=7)
    for column in x.T:
        assert sorted(np.floor(column).astype(int)) == list(range(n))
    assert len({tuple(np.floor(column).astype(int)) for column in x.T}) == 3, "an order of its own for each input"
    u = Uniform().sample(n, [0.0], [float(n)], seed=7)
    assert len(set(np.floor(u[:, 0]))) < n, "what independent places do not have"


def test_a_sobol_sequence_is_balanced_in_every_dyadic_box():
    x = Sobol().sample(256, [0.0, 0.0], [1.0, 1.0], seed=8)
    for i in range(9):  # every split of 256 = 2^i 2^(8-i) boxes holds one place each
        boxes = {(int(a * 2**i), int(b * 2 ** (8 - i))) for a, b in x}
        assert len(boxes) == 256


@pytest.mark.parametrize("n", [100, 256])
def test_discrepancy_falls_from_uniform_over_latin_hypercube_to_sobol(n):
    def mean_discrepancy(sampling):
        boxes = [sampling.sample(n, [0.0, 0.0], [1.0, 1.0], seed) for seed in range(10)]
        return np.mean([qmc.discrepancy(box, method="CD") for box in boxes])

    uniform, latin, sobol = (mean_discrepancy(sampling) for sampling in RANDOM)
    assert sobol < 0.7 * latin
    assert latin < 0.7 * uniform


@pytest.mark.parametrize(("m", "d"), [(2, 1), (7, 2), (10, 3), (3, 5)])
def test_a_grid_is_the_product_of_its_axes(m, d):
    lower, upper = np.arange(d) - 1.0, np.arange(d) + 2.0
    axes = [[low + i * (high - low) / (m - 1) for i in range(m)] for low, high in zip(lower, upper, strict=True)]
    x = Grid().sample(m**d, lower, upper, seed=9)
    np.testing.assert_allclose(x, list(itertools.product(*axes)), atol=1e-14)
    np.testing.assert_array_equal(x[[0, -1]], [lower, upper])


def test_no_rounding_leaves_the_box():
    lower, upper = -0.5, 0.3
    assert lower + (upper - lower) > upper, "a box where rounding would"
    assert Grid().sample(2, [lower], [upper]).tolist() == [[lower], [upper]]


@pytest.mark.parametrize(
    ("n", "d", "advice"), [(1, 2, "use 4 or 9"), (5, 2, "use 4 or 9"), (8, 2, "use 4 or 9"), (500, 2, "use 484 or 529")]
)
def test_a_grid_names_the_numbers_that_it_can_have(n, d, advice):
    with pytest.raises(ValueError, match=rf"Grid\(n={n}\) in {d} dimensions: expected m\^{d} places.*{advice}"):
        Grid().sample(n, [0.0] * d, [1.0] * d)


@pytest.mark.parametrize("sampling", ALL, ids=by_name)
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((0, [0.0], [1.0]), ValueError, "expected n >= 1 places, got 0"),
        ((-4, [0.0], [1.0]), ValueError, "expected n >= 1"),
        ((2.0, [0.0], [1.0]), TypeError, "integer"),
        ((4, [0.0], [1.0], -1), ValueError, "seed=-1: expected an integer >= 0"),
        ((4, [1.0], [1.0]), ValueError, r"lower < upper of one shape \(d,\), got lower=\[1.0\] and upper=\[1.0\]"),
        ((4, [2.0, 0.0], [1.0, 1.0]), ValueError, "finite bounds lower < upper"),
        ((4, [0.0], [1.0, 1.0]), ValueError, "of one shape"),
        ((4, 0.0, 1.0), ValueError, r"of one shape \(d,\)"),
        ((4, [], []), ValueError, "of one shape"),
        ((4, [-np.inf], [1.0]), ValueError, "finite bounds"),
        ((4, [0.0], [np.nan]), ValueError, "finite bounds"),
    ],
)
def test_wrong_arguments_are_named(sampling, arguments, kind, message):
    with pytest.raises(kind, match=message):
        sampling.sample(*arguments)


def test_the_role_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Sampling()
