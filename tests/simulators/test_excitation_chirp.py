"""Chirps: instantaneous frequency, amplitude, repetition."""

import numpy as np
import pytest
from scipy.signal import chirp as scipy_chirp
from scipy.signal import hilbert

from simulators.excitation.linear_chirp import LinearChirp
from simulators.excitation.logarithmic_chirp import LogarithmicChirp

CHIRPS = [LinearChirp, LogarithmicChirp]
DT, N = 0.001, 20_000
LAW = {
    LinearChirp: lambda s, f0, f1: f0 + (f1 - f0) * s,
    LogarithmicChirp: lambda s, f0, f1: f0 ** (1 - s) * f1**s,
}


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("cls", CHIRPS)
@pytest.mark.parametrize(("f_start", "f_end"), [(5.0, 100.0), (100.0, 5.0)])
def test_instantaneous_frequency(cls, f_start, f_end):
    u = cls(f_start, f_end, amplitude=3.0, offset=2.0).signal(N, DT, rng()) - 2.0
    analytic = hilbert(u)
    frequency = np.diff(np.unwrap(np.angle(analytic))) / (2 * np.pi * DT)
    s = (np.arange(N - 1) + 0.5) / N
    middle = slice(N // 20, -N // 20)  # the ends of a record disturb the analytic signal
    np.testing.assert_allclose(frequency[middle], LAW[cls](s, f_start, f_end)[middle], rtol=0.02)
    np.testing.assert_allclose(np.abs(analytic)[middle], 3.0, rtol=0.03)


@pytest.mark.parametrize(("cls", "method"), [(LinearChirp, "linear"), (LogarithmicChirp, "logarithmic")])
def test_samples_are_those_of_scipy(cls, method):
    u = cls(0.5, 40.0, amplitude=1.5).signal(N, DT, rng())
    t = DT * np.arange(N)
    np.testing.assert_allclose(u, 1.5 * scipy_chirp(t, 0.5, N * DT, 40.0, method, phi=-90), atol=1e-9)


@pytest.mark.parametrize("cls", CHIRPS)
def test_number_of_cycles(cls):
    """Rising zero crossings count the cycles: the integral of the frequency."""
    u = cls(2.0, 50.0).signal(N, DT, rng())
    cycles = np.sum((u[:-1] < 0) & (u[1:] >= 0)) + 1
    expected = np.mean(LAW[cls]((np.arange(N) + 0.5) / N, 2.0, 50.0)) * N * DT
    assert cycles == pytest.approx(expected, abs=1.5)


def test_power_is_flat_or_falls_with_frequency():
    for cls, ratio in ((LinearChirp, 1.0), (LogarithmicChirp, 10.0)):
        power = np.abs(np.fft.rfft(cls(2.0, 200.0).signal(N, DT, rng()))) ** 2
        frequency = np.fft.rfftfreq(N, DT)
        low, high = (power[(frequency > f / 1.2) & (frequency < f * 1.2)].mean() for f in (10.0, 100.0))
        assert low / high == pytest.approx(ratio, rel=0.15)
        assert power[frequency > 260].sum() < 1e-3 * power.sum()


@pytest.mark.parametrize("cls", CHIRPS)
def test_sweeps_repeat_and_a_longer_signal_begins_with_the_shorter_one(cls):
    sweep = cls(1.0, 20.0, duration=1.5)
    u = sweep.signal(4000, DT, rng())
    assert sweep.period_samples(4000, DT) == 1500
    np.testing.assert_array_equal(u[:2500], u[1500:])
    np.testing.assert_array_equal(sweep.signal(700, DT, rng()), u[:700])
    np.testing.assert_array_equal(cls(1.0, 20.0).signal(1500, DT, rng()), u[:1500])
    with pytest.raises(ValueError, match="expected dt"):
        sweep.period_samples(4000)


@pytest.mark.parametrize("cls", CHIRPS)
def test_frequencies_that_are_left_out(cls):
    assert cls().frequencies(500, 0.1) == (pytest.approx(1 / 50.0), pytest.approx(2.5))
    assert cls(duration=10.0).frequencies(500, 0.1) == (pytest.approx(0.1), pytest.approx(2.5))
    assert cls(f_start=1.0).frequencies(500, 0.1) == (1.0, pytest.approx(2.5))


def test_a_linear_chirp_may_start_at_rest_and_may_be_a_sine():
    t = DT * np.arange(1000)
    np.testing.assert_allclose(LinearChirp(5.0, 5.0).signal(1000, DT, rng()), np.sin(10 * np.pi * t), atol=1e-12)
    assert np.all(LinearChirp(0.0, 1.0).signal(1000, DT, rng())[1:] > 0)


@pytest.mark.parametrize("cls", CHIRPS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"f_start": -1.0},
        {"f_end": np.nan},
        {"f_end": "1"},
        {"amplitude": 0.0},
        {"amplitude": -1.0},
        {"duration": 0.0},
        {"duration": np.inf},
    ],
)
def test_impossible_settings_are_refused(cls, wrong):
    with pytest.raises(ValueError, match=rf"{cls.__name__}\({next(iter(wrong))}=.*expected.*change"):
        cls(**wrong)


@pytest.mark.parametrize("wrong", [{"f_start": 0.0}, {"f_end": 0.0}, {"f_end": 2.0, "f_start": 2.0}])
def test_a_logarithmic_chirp_needs_two_positive_frequencies(wrong):
    with pytest.raises(ValueError, match=rf"LogarithmicChirp\({next(iter(wrong))}=.*expected.*change"):
        LogarithmicChirp(**wrong)


def test_a_logarithmic_chirp_refuses_equal_frequencies_of_a_short_record():
    with pytest.raises(ValueError, match=r"LogarithmicChirp\(f_start=None.*got 2.5 Hz twice"):
        LogarithmicChirp().signal(4, 0.1, rng())


@pytest.mark.parametrize("cls", CHIRPS)
def test_settings_that_do_not_fit_the_samples_are_refused(cls):
    with pytest.raises(ValueError, match=r"f_end=6.0.*Nyquist frequency 1/\(2 dt\) = 5 Hz.*got 6 Hz"):
        cls(f_start=1.0, f_end=6.0).signal(100, 0.1, rng())
    with pytest.raises(ValueError, match=r"f_start=5.0.*Nyquist"):
        cls(f_start=5.0).signal(100, 0.1, rng())
    with pytest.raises(ValueError, match=r"duration=0.25.*got 2.5 samples; set duration to 0.2 or 0.3 s"):
        cls(duration=0.25).signal(100, 0.1, rng())
