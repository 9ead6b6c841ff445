"""Maps from features to coordinates: scalings and linear combinations."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from small_models import MATRIX, MIXED_FEATURES, OFFSET
from sysid import AffineMap


def test_a_scaling_takes_mean_and_population_standard_deviation():
    x = np.random.default_rng(0).normal(3.0, 7.0, size=(50, 4))
    scaling = AffineMap.fit(x)
    standardised = (x - x.mean(axis=0)) / x.std(axis=0)
    np.testing.assert_allclose(scaling.offset, x.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(scaling.scale, x.std(axis=0, ddof=0), rtol=1e-15)
    np.testing.assert_allclose(scaling.transform(x), standardised, atol=1e-14)
    assert scaling.constant == ()


def test_the_identity_changes_no_bit():
    x = np.random.default_rng(0).normal(3.0, 7.0, size=(50, 4))
    identity = AffineMap.identity(4)
    assert identity.constant == ()
    assert identity.transform(x).tobytes() == x.tobytes()
    assert identity.inverse(x).tobytes() == x.tobytes()


any_batch = arrays(np.float64, (7, 3), elements=st.floats(-1e6, 1e6))


@given(any_batch)
def test_the_inverse_of_a_scaling_gives_the_features_back(x):
    scaling = AffineMap.fit(x)
    again = scaling.inverse(scaling.transform(x))
    np.testing.assert_allclose(again, x, rtol=1e-12, atol=1e-12 * np.abs(x).max())


@given(any_batch)
def test_a_matrix_combines_features_about_their_offset(x):
    expected = (x - OFFSET) @ MATRIX.T
    np.testing.assert_allclose(MIXED_FEATURES.transform(x), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("method", ["transform", "inverse", "combine"])
@given(any_batch)
@settings(max_examples=50)
def test_one_row_gives_the_bits_of_the_batch(method, x):
    """Also rows in a list or in another memory layout."""
    scaling = AffineMap.fit(x)
    convert = {
        "transform": scaling.transform,
        "inverse": scaling.inverse,
        "combine": MIXED_FEATURES.transform,
    }[method]
    batch = convert(x)
    for row, expected in zip(x, batch, strict=True):
        assert convert(row).tobytes() == expected.tobytes()
        assert convert(row[None]).tobytes() == expected.tobytes()
    assert convert(x.tolist()).tobytes() == batch.tobytes()
    assert convert(np.asfortranarray(x)).tobytes() == batch.tobytes()


def test_one_row_gives_the_bits_of_many_rows():
    """Many rows are computed by compiled code."""
    x = np.random.default_rng(0).normal(3.0, 7.0, size=(200, 3))
    many = MIXED_FEATURES.transform(x)
    np.testing.assert_allclose(many, (x - OFFSET) @ MATRIX.T, rtol=1e-12, atol=1e-12)
    one_by_one = np.stack([MIXED_FEATURES.transform(row) for row in x])
    assert many.tobytes() == one_by_one.tobytes()
    assert MIXED_FEATURES.transform(np.asfortranarray(x)).tobytes() == many.tobytes()


@pytest.mark.parametrize(
    "affine_map",
    [
        pytest.param(AffineMap.identity(3), id="scaling"),
        pytest.param(MIXED_FEATURES, id="matrix"),
    ],
)
def test_a_checked_array_costs_one_call_of_a_python_function(affine_map):
    """Each live sample goes through `transform`."""
    called_functions = []

    def note_call(frame, event, _):
        if event == "call":
            called_functions.append(frame.f_code.co_name)

    x = np.ones((1, 3))
    sys.setprofile(note_call)
    affine_map.transform(x)
    sys.setprofile(None)
    assert called_functions == ["transform"]


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7e8, 5e-324])
@pytest.mark.parametrize("n", [1, 3, 200_000])
def test_a_constant_feature_has_scale_one_and_is_reported(value, n):
    x = np.column_stack([np.arange(n), np.full(n, value)])
    scaling = AffineMap.fit(x)
    assert 1 in scaling.constant
    assert scaling.scale[1] == 1.0
    assert scaling.offset[1] == value
    np.testing.assert_array_equal(scaling.transform(x)[:, 1], 0.0)


def test_rounding_errors_count_as_constant_and_a_small_signal_does_not():
    rng = np.random.default_rng(1)
    rounding_steps = rng.integers(-2, 3, size=(200, 1))
    rounding = 273.15 * (1 + np.finfo(float).eps * rounding_steps)
    small_signal = 273.15 + 1e-6 * rng.normal(size=(200, 1))
    assert AffineMap.fit(rounding).constant == (0,)
    assert AffineMap.fit(small_signal).constant == ()


@pytest.mark.parametrize("magnitude", [1e-300, 1e-160, 1e69])
def test_a_signal_of_any_magnitude_is_scaled(magnitude):
    scaling = AffineMap.fit(magnitude * np.array([[1.0], [2.0], [4.0]]))
    assert scaling.scale[0] / magnitude == pytest.approx(np.std([1.0, 2.0, 4.0]), rel=1e-14)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(AffineMap.fit, id="scaling"),
        pytest.param(lambda x: AffineMap.of_matrix(x[0], x[:2]), id="matrix"),
    ],
)
def test_maps_are_values_that_cannot_be_changed(make):
    x = np.random.default_rng(3).normal(size=(9, 3))
    affine_map = make(x)
    same_map = make(x.copy())
    assert affine_map == same_map
    assert hash(affine_map) == hash(same_map)
    assert affine_map != make(x + 1e-9)
    assert affine_map != "map"
    with pytest.raises(ValueError, match="read-only"):
        affine_map.offset[0] = 2.0


def test_a_map_keeps_a_copy_of_its_arrays():
    offset = np.zeros(1)
    affine_map = AffineMap(offset, np.ones(1))
    offset[0] = 9.0
    assert affine_map.offset[0] == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: AffineMap([0.0], [1.0, 2.0]), r"AffineMap\(scale\)", id="lengths_differ"
        ),
        pytest.param(
            lambda: AffineMap([0.0], [0.0]),
            r"AffineMap\(scale\) must be positive",
            id="scale_of_zero",
        ),
        pytest.param(
            lambda: AffineMap([np.nan], [1.0]), r"AffineMap\(offset\).* finite", id="offset_of_nan"
        ),
        pytest.param(
            lambda: AffineMap([0.0], [1.0], (1,)), "constant", id="constant_feature_out_of_range"
        ),
        pytest.param(lambda: AffineMap.fit(np.zeros(3)), r"\(3,\)", id="fit_of_a_vector"),
        pytest.param(
            lambda: AffineMap.fit([[1.0, 2.0], [1.0, np.nan], [2.0, np.inf]]),
            r"2 of 6 .* \(1, 1\)",
            id="fit_of_nan",
        ),
        pytest.param(
            lambda: AffineMap.identity(3).transform(np.zeros(2)), r"\(2,\)", id="too_few_features"
        ),
        pytest.param(
            lambda: AffineMap.identity(3).transform(np.zeros((1, 1, 3))),
            r"\(1, 1, 3\)",
            id="three_dimensions",
        ),
        pytest.param(
            lambda: AffineMap.of_matrix([0.0], [[1.0, 2.0]]),
            r"AffineMap\(matrix\).*\(n, 1\)",
            id="matrix_with_too_many_columns",
        ),
        pytest.param(
            lambda: AffineMap.of_matrix([0.0], np.zeros((0, 1))),
            r"AffineMap\(matrix\) must have rows",
            id="matrix_without_rows",
        ),
        pytest.param(
            lambda: AffineMap([0.0], [2.0], matrix=[[1.0]]),
            "scale must be 1",
            id="matrix_and_scale",
        ),
        pytest.param(
            lambda: AffineMap.of_matrix([0.0], [[1.0]]).inverse([1.0]),
            "matrix",
            id="inverse_of_a_matrix",
        ),
    ],
)
def test_wrong_maps_and_arrays_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
