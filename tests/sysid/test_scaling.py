"""Affine scaling: moments, constant features, equality of bits, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sysid.scaling import Scaling


def test_fit_is_mean_and_population_standard_deviation():
    x = np.random.default_rng(0).normal(3.0, 7.0, size=(50, 4))
    scaling = Scaling.fit(x)
    np.testing.assert_allclose(scaling.offset, x.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(scaling.scale, x.std(axis=0, ddof=0), rtol=1e-15)
    z = scaling.transform(x)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(z.std(axis=0), 1.0, rtol=1e-14)
    assert scaling.constant == ()


@given(arrays(np.float64, (7, 3), elements=st.floats(-1e6, 1e6)))
def test_one_row_gives_the_bits_of_the_batch(x):
    scaling = Scaling.fit(x)
    batch, back = scaling.transform(x), scaling.inverse(scaling.transform(x))
    for row, scaled, returned in zip(x, batch, back, strict=True):
        assert scaling.transform(row).tobytes() == scaled.tobytes()
        assert scaling.inverse(scaled).tobytes() == returned.tobytes()
    np.testing.assert_allclose(back, x, rtol=1e-12, atol=1e-12 * np.abs(x).max())


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7e8, 1e-200, 1e300, 5e-324, 1 / 3])
@pytest.mark.parametrize("n", [1, 3, 200_000])
def test_a_constant_feature_has_scale_one_and_is_reported(value, n):
    x = np.column_stack([np.arange(n), np.full(n, value)])
    scaling = Scaling.fit(x)
    assert 1 in scaling.constant
    assert scaling.scale[1] == 1.0
    assert scaling.offset[1] == value
    np.testing.assert_array_equal(scaling.transform(x)[:, 1], 0.0)


def test_rounding_noise_is_constant_and_a_small_signal_is_not():
    rng = np.random.default_rng(1)
    noise = 273.15 * (1 + np.finfo(float).eps * rng.integers(-2, 3, size=200))
    assert Scaling.fit(noise[:, None]).constant == (0,)
    assert Scaling.fit((273.15 + 1e-6 * rng.normal(size=200))[:, None]).constant == ()


@pytest.mark.parametrize("magnitude", [1e-300, 1e-160, 1e160, 1e300])
def test_extreme_magnitudes_neither_overflow_nor_vanish(magnitude):
    x = magnitude * np.array([[1.0], [2.0], [4.0]])
    scaling = Scaling.fit(x)
    assert scaling.constant == ()
    assert scaling.scale[0] / magnitude == pytest.approx(np.std([1.0, 2.0, 4.0]), rel=1e-14)


def test_identity_changes_nothing():
    x = np.random.default_rng(2).normal(size=(3, 2))
    identity = Scaling.identity(2)
    assert identity.transform(x).tobytes() == x.tobytes()
    assert identity.inverse(x).tobytes() == x.tobytes()
    assert identity.constant == ()


def test_variance_is_scaled_by_the_square():
    scaling = Scaling(np.array([5.0]), np.array([3.0]))
    np.testing.assert_array_equal(scaling.inverse_variance([[2.0], [4.0]]), [[18.0], [36.0]])


def test_equality_hash_and_immutability():
    x = np.random.default_rng(3).normal(size=(9, 2))
    one, same, other = Scaling.fit(x), Scaling.fit(x.copy()), Scaling.fit(x + 1e-9)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "scaling"
    with pytest.raises(ValueError, match="read-only"):
        one.scale[0] = 2.0
    offset = np.zeros(1)
    kept = Scaling(offset, np.ones(1))
    offset[0] = 9.0
    assert kept.offset[0] == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scaling([0.0], [1.0, 2.0]), "offset and scale of one length, got 1 and 2"),
        (lambda: Scaling([0.0], [0.0]), r"Scaling\(scale\) must be positive, got \[0.0\]: use 1"),
        (lambda: Scaling([0.0], [-1.0]), "must be positive"),
        (lambda: Scaling([np.nan], [1.0]), r"Scaling\(offset\) must be a vector of finite numbers"),
        (lambda: Scaling([0.0], [np.inf]), r"Scaling\(scale\) must be a vector of finite"),
        (lambda: Scaling([[0.0]], [[1.0]]), "must be a vector"),
        (lambda: Scaling([0.0], [1.0], (1,)), r"constant=\(1,\)\) must be indices below 1"),
        (lambda: Scaling.fit(np.zeros(3)), r"samples \(n, p\) with n >= 1, got shape \(3,\): pass a single"),
        (lambda: Scaling.fit(np.zeros((0, 3))), r"got shape \(0, 3\)"),
        (
            lambda: Scaling.fit([[1.0, 2.0], [1.0, np.nan], [2.0, np.inf]]),
            "feature 1 has 2 of 3 that are not",
        ),
        (lambda: Scaling.identity(3).transform(np.zeros(2)), r"expects \(3,\) or \(n, 3\), got shape \(2,\)"),
        (lambda: Scaling.identity(3).inverse(np.zeros((3, 2))), r"got shape \(3, 2\)"),
        (lambda: Scaling.identity(1).transform(1.0), r"got shape \(\)"),
    ],
)
def test_errors_say_what_was_expected(make, message):
    with pytest.raises(ValueError, match=message):
        make()
