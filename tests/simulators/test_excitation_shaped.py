"""Chirps, steps and stairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import chirp as scipy_chirp

from excitation_signals import EXCITATION_DT, draw_signal
from simulators import LinearChirp, LogarithmicChirp, Staircase, Steps


@pytest.mark.parametrize(("f_start", "f_end"), [(0.5, 40.0), (100.0, 5.0)], ids=["up", "down"])
@pytest.mark.parametrize(
    ("cls", "method"), [(LinearChirp, "linear"), (LogarithmicChirp, "logarithmic")]
)
def test_chirps_are_those_of_scipy(cls, method, f_start, f_end):
    n = 20_000
    time = 0.001 * np.arange(n)
    u = draw_signal(cls(f_start, f_end, amplitude=1.5), n, dt=0.001)
    expected = 1.5 * scipy_chirp(time, f_start, 20.0, f_end, method, phi=-90)
    np.testing.assert_allclose(u, expected, atol=1e-9)


@pytest.mark.parametrize("cls", [LinearChirp, LogarithmicChirp])
def test_chirp_goes_from_one_cycle_to_half_of_the_nyquist_frequency(cls):
    frequencies = cls(duration=10.0).frequencies(500, 0.1)
    assert frequencies == pytest.approx((0.1, 2.5))


@given(
    first_samples=st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True).map(sorted),
    late=st.floats(0.001, 0.999),
    n=st.integers(1, 50),
)
def test_steps_hold_the_level_of_the_last_time_that_has_passed(first_samples, late, n):
    """The first step is at a sample, the others lie between two samples, before their first one."""
    steps = []
    for i, first_sample in enumerate(first_samples):
        time = (
            first_sample * EXCITATION_DT
            if i == 0
            else max(first_sample - late, 0.0) * EXCITATION_DT
        )
        steps.append([time, 10.0 + i])
    u = draw_signal(Steps(steps, offset=1.0), n)
    for k in range(n):
        n_passed = sum(first_sample <= k for first_sample in first_samples)
        level = 10.0 + n_passed - 1 if n_passed else 0.0
        assert u[k] == 1.0 + level


@pytest.mark.parametrize("k", [1, 3, 6, 7, 29, 123, 10_007])
def test_step_at_a_sample_takes_effect_there(k):
    """k * 0.1 is not always the float nearest to the decimal."""
    for time in (k * 0.1, float(f"{k * 0.1:.12g}")):
        u = draw_signal(Steps([[time, 2.0]]), k + 2, dt=0.1)
        np.testing.assert_array_equal(u[k - 1 :], [0.0, 2.0, 2.0])


def test_stairs_lead_up_and_down():
    staircase = Staircase(low=-1.0, high=2.0, levels=4, hold=0.03, offset=5.0)
    one_period = np.repeat([-1.0, 0.0, 1.0, 2.0, 1.0, 0.0, -1.0], 3)
    expected = 5.0 + np.append(one_period, [-1.0] * 4)
    np.testing.assert_allclose(draw_signal(staircase, 25), expected, rtol=0, atol=1e-14)


def test_stairs_may_lead_up_only():
    u = draw_signal(Staircase(low=0.0, high=1.0, levels=3, down=False), 11)
    np.testing.assert_array_equal(u, [0, 0, 0, 0.5, 0.5, 0.5, 1, 1, 1, 1, 1])
