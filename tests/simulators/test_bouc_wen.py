"""The Bouc-Wen oscillator: the official record of the benchmark, its hysteresis, its settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import Interpolation, simulate
from simulators.reference import solve_reference
from simulators.runge_kutta import PLAIN
from simulators.systems.bouc_wen import BoucWen

FINE = 20  # samples at 15 kHz per sample at 750 Hz
LEAD = 1000 if PLAIN else 8192  # samples at 750 Hz before the compared ones: rest is forgotten after 1000
N = 200 if PLAIN else 8192  # compared samples


def periodic(signal, factor):
    """Last LEAD samples of the period before and the first N of the next, at factor times the rate."""
    return np.concatenate([signal[-LEAD * factor :], signal[: N * factor]])


def upsampled(u):
    """Fourier series of one period, evaluated at 15 kHz."""
    return np.fft.irfft(np.fft.rfft(u), len(u) * FINE) * FINE


def official(u, *, fine, **options):
    """Output at 750 Hz in the steady state, the input given at 15 kHz or at 750 Hz."""
    factor = FINE if fine else 1
    force = periodic(upsampled(u) if fine else u, factor)
    rates = {"dt": 1 / 15000, "substeps": 1} if fine else {}
    run = simulate(BoucWen(), force, initial_state=None, seed=0, **rates, **options)
    return run.output[LEAD * factor :: factor, 0]


def rms(values):
    return np.sqrt(np.mean(values**2))


def test_official_output_is_reproduced_from_15_kHz(bouc_wen_test):
    u, y = bouc_wen_test
    simulated = official(u, fine=True, interpolation=Interpolation.linear)
    assert rms(simulated - y[:N]) <= 3e-7
    assert rms(y) == pytest.approx(6.67e-4, rel=0.01)


@pytest.mark.skipif(PLAIN, reason="a stretch of 1200 samples of a periodic signal is not periodic")
def test_official_output_is_reproduced_from_750_Hz(bouc_wen_test):
    u, y = bouc_wen_test
    simulated = official(u, fine=False, interpolation=Interpolation.band_limited)
    assert rms(simulated - y) <= 3e-7


@pytest.mark.parametrize(
    ("fine", "interpolation", "published"),
    [
        (False, Interpolation.held, 1.1e-4),
        (False, Interpolation.linear, 7.3e-6),
        (True, Interpolation.held, 5.4e-6),
    ],
)
def test_coarser_inputs_miss_the_official_output_by_the_known_amount(bouc_wen_test, fine, interpolation, published):
    u, y = bouc_wen_test
    simulated = official(u, fine=fine, interpolation=interpolation)
    assert rms(simulated - y[:N]) == pytest.approx(published, rel=0.2 if PLAIN else 0.02)


@pytest.mark.skipif(PLAIN, reason="two periods are needed")
def test_the_second_period_is_the_steady_one(bouc_wen_test):
    u, _ = bouc_wen_test
    y = simulate(BoucWen(), np.tile(u, 3), interpolation=Interpolation.band_limited).output[:, 0]
    first, second, third = y.reshape(3, -1)
    assert np.abs(first - second).max() > 1e-5
    np.testing.assert_allclose(second, third, atol=1e-12)


def test_defaults_are_those_of_the_benchmark():
    system = BoucWen()
    np.testing.assert_array_equal(system.parameters(), [1 / 2.0, 10.0, 5e4, 5e4, 1e3, 0.8, -1.1, 1.0])
    assert (system.dt * 750, system.dt / system.substeps * 15000) == pytest.approx((1.0, 1.0))
    assert not system.noise_std().any()
    assert not system.initial_state().any()


@given(
    state=st.tuples(st.floats(-1e-2, 1e-2), st.floats(-1, 1), st.floats(-100, 100)),
    u=st.floats(-200, 200),
    w=st.floats(-10, 10),
    nu=st.sampled_from([1.0, 1.5, 2.0, 3.0]),
)
def test_rates_are_those_of_the_published_equations(state, u, w, nu):
    """z' in the form that its four signs of v and z make of it."""
    y, v, z = state
    rates = BoucWen(nu=nu).derivative(0.0, np.array(state), np.array([u]), np.array([w]))
    assert 2.0 * rates[1] + 10.0 * v + 5e4 * y + z == pytest.approx(u + w, abs=1e-9)
    shape = 0.8 - 1.1 if v * z >= 0 else -0.8 - 1.1  # gamma + delta where z grows, delta - gamma where it shrinks
    expected = 5e4 * v - 1e3 * v * abs(z) ** nu * shape
    assert rates[2] == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert rates[0] == v


def test_a_slow_cycle_encloses_energy_and_does_not_depend_on_speed():
    """Rate independence: the loop of z over y is the same at 1 Hz and at 2 Hz, and it is wide."""
    areas = []
    for frequency in (1.0, 2.0):
        n = int(750 / frequency)
        u = 120.0 * np.sin(2 * np.pi * np.arange(3 * n) / n)
        run = simulate(BoucWen(), u, interpolation=Interpolation.band_limited, substeps=10 if PLAIN else 20)
        y, _, z = run.state[-n:].T
        areas.append(0.5 * (np.roll(y, -1) * z - y * np.roll(z, -1)).sum())
        assert abs(y).max() == pytest.approx(120.0 / 1e5, rel=0.2)
    assert abs(areas[0]) > 1e-3
    assert areas[1] == pytest.approx(areas[0], rel=0.02)


def test_small_motions_are_those_of_the_linear_oscillator():
    """About rest, z = alpha y: stiffness k + alpha, natural frequency 35.59 Hz."""
    amplitude = 1e-5  # N
    u = np.full(300, amplitude)
    y = simulate(BoucWen(), u).output[:, 0]
    decay, natural = 10.0 / 4.0, np.sqrt(1e5 / 2.0)
    t, damped = np.arange(300) / 750, np.sqrt(1e5 / 2.0 - 6.25)
    step = 1 - np.exp(-decay * t) * (np.cos(damped * t) + decay / damped * np.sin(damped * t))
    assert natural / (2 * np.pi) == pytest.approx(35.59, abs=0.01)
    np.testing.assert_allclose(y, amplitude / 1e5 * step, atol=1e-4 * amplitude / 1e5)


@pytest.mark.parametrize("nu", [1.0, 1.5, 2.0])
def test_loops_of_other_smoothness_match_the_adaptive_reference(nu):
    system = BoucWen(nu=nu, beta=1e3 / 20 ** (nu - 1), substeps=40, initial_restoring_force=5.0)
    u = 50.0 * np.sin(0.4 * np.arange(12.0))[:, np.newaxis]
    options = {"interpolation": Interpolation.linear, "relative_tolerance": 1e-9}
    exact = solve_reference(system, system.initial_state(), u, np.zeros((12, 1)), **options)
    x = simulate(system, u, interpolation=Interpolation.linear).state
    np.testing.assert_allclose((x - exact) / np.abs(exact).max(axis=0), 0.0, atol=1e-5)


def test_noise_is_a_force():
    u, w = np.array([3.0]), np.array([0.5])
    x = np.array([1e-3, 0.1, 4.0])
    one = BoucWen().derivative(0.0, x, u, w)
    np.testing.assert_allclose(one, BoucWen().derivative(0.0, x, u + w, 0 * w), rtol=1e-14)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("mass", 0.0, "expected a number > 0"),
        ("stiffness", -1.0, "expected a number > 0"),
        ("damping", -1.0, "expected a number >= 0"),
        ("beta", np.inf, "expected a finite number"),
        ("gamma", "0.8", "expected a finite number"),
        ("nu", 0.5, "expected a number >= 1"),
        ("force_noise_std", -1.0, "expected a number >= 0"),
        ("initial_restoring_force", np.nan, "expected a finite number"),
    ],
)
def test_impossible_settings_are_refused(field, value, expected):
    with pytest.raises(ValueError, match=rf"BoucWen\({field}=.*{expected}.*change {field}"):
        BoucWen(**{field: value})
