"""Durations as people write them, and the number of samples that they are."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.options import MOST_SAMPLES, samples_of, seconds, seconds_text

LENGTHS = {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}


@given(number=st.integers(1, 10_000), unit=st.sampled_from(sorted(LENGTHS)), space=st.sampled_from(["", " "]))
def test_units_are_what_they_are(number, unit, space):
    assert seconds(f"{space}{number}{space}{unit}{space}") == number * LENGTHS[unit]


@pytest.mark.parametrize(
    ("text", "expected"), [("1.5h", 5400), ("2e3", 2000), ("1e-3s", 0.001), (900, 900), (0.5, 0.5)]
)
def test_fractions_exponents_and_numbers(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "wrong", ["soon", "", "5 y", "-3d", 0, -1.0, "nan", "inf", "1e400", "e", ".", "3.5samples", None]
)
def test_what_is_no_duration_is_refused_with_an_example(wrong):
    with pytest.raises(ValueError, match=r"365d.*5000samples"):
        seconds(wrong)


@given(steps=st.integers(0, 5000), dt=st.sampled_from([0.1, 1 / 750, 4.0, 900.0, 0.3]))
def test_a_whole_number_of_steps_has_one_sample_more(steps, dt):
    """Products of decimals and steps are not exact; a rounding error must not lose a sample."""
    if steps:
        assert samples_of(steps * dt, dt) == steps + 1


@given(duration=st.integers(1, 10**6), dt=st.integers(1, 10**4))
def test_samples_fit_into_the_duration(duration, dt):
    n = samples_of(duration, dt)
    assert (n - 1) * dt <= duration < n * dt
    assert n == Fraction(duration, dt).__floor__() + 1


@given(n=st.integers(1, MOST_SAMPLES), dt=st.floats(1e-6, 1e6))
def test_a_number_of_samples_is_that_number(n, dt):
    assert samples_of(f"{n}samples", dt) == samples_of(f" {n} samples ", dt) == n


@pytest.mark.parametrize(
    "huge", [f"{MOST_SAMPLES + 1}samples", "1e300", "99999999999999999999samples", "0samples", "100000w"]
)
def test_what_no_run_can_hold_is_refused_with_advice(huge):
    with pytest.raises(ValueError, match=rf"expected 1 to {MOST_SAMPLES}.*such as 40h \(35040 samples\)") as caught:
        samples_of(huge, 4.109589041095890)
    assert huge in str(caught.value).replace("+", "")


@given(value=st.floats(1e-3, 1e8))
def test_the_text_of_a_duration_is_read_back(value):
    assert seconds(seconds_text(value)) == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(("value", "text"), [(90.0, "90s"), (120.0, "2min"), (7200.0, "2h"), (604800.0, "7d")])
def test_the_text_of_a_duration_is_in_the_unit_a_person_would_take(value, text):
    assert seconds_text(value) == text
