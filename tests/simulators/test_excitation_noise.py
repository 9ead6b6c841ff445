"""Filtered noise: spectrum against the Butterworth formula, stationarity, distribution."""

import numpy as np
import pytest
from scipy.signal import welch

from simulators.excitation.filtered_noise import FilteredNoise

DT = 0.01  # s


def rng(seed=0):
    return np.random.default_rng(seed)


def gain(frequency, band, order):
    """Squared gain of the Butterworth filter after the bilinear transformation, cut-offs prewarped."""
    w, low, high = (np.tan(np.pi * DT * np.asarray(f, dtype=float)) for f in (frequency, *band))
    return 1 / (1 + ((w * w - low * high) / (w * (high - low))) ** (2 * order))


def density(noise, n=4096, seeds=40):
    """Frequencies and mean one-sided power density."""
    signals = np.array([noise.signal(16 * n, DT, rng(seed)) for seed in range(seeds)])
    frequency, power = welch(signals, 1 / DT, nperseg=n)
    return frequency[4:-4], power.mean(axis=0)[4:-4]


@pytest.mark.parametrize(("band", "order"), [((0.0, 5.0), 4), ((2.0, 10.0), 3), ((0.0, 25.0), 1), ((10.0, 40.0), 8)])
def test_power_density_is_that_of_the_filter(band, order):
    frequency, power = density(FilteredNoise(std=3.0, band=band, order=order))
    expected = gain(frequency, band, order)
    fine = np.linspace(0, 50, 200_001)[1:-1]
    expected *= 3.0**2 / (np.sum(gain(fine, band, order)) * (fine[1] - fine[0]))
    strong = expected > 1e-3 * expected.max()
    np.testing.assert_allclose(power[strong], expected[strong], rtol=0.35)
    np.testing.assert_allclose(np.sum(power[strong]), np.sum(expected[strong]), rtol=0.02)
    outside = expected < 1e-5 * expected.max()
    assert np.all(power[outside] < 1e-4 * expected.max())


def test_power_has_fallen_by_half_at_the_cut_off():
    frequency, power = density(FilteredNoise(band=(0.0, 10.0)), n=512)
    at = {f: power[np.abs(frequency - f) < 0.5].mean() for f in (3.0, 10.0)}
    assert at[10.0] / at[3.0] == pytest.approx(0.5, abs=0.06)


def test_without_a_band_the_noise_is_white():
    u = FilteredNoise(std=2.0, offset=1.0).signal(50_000, DT, rng()) - 1.0
    assert u.std() == pytest.approx(2.0, rel=0.02)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.02


@pytest.mark.parametrize(("band", "order"), [((0.0, 0.5), 4), ((1.0, 1.1), 2), ((0.0, 0.2), 8), ((0.0, 25.0), 1)])
def test_stationary_from_the_first_sample(band, order):
    noise = FilteredNoise(std=2.0, band=band, order=order)
    signals = np.array([noise.signal(60, DT, rng(seed)) for seed in range(400)])
    np.testing.assert_allclose(signals[:, [0, 1, 30, 59]].std(axis=0), 2.0, rtol=0.15)
    assert np.abs(signals.mean(axis=0)).max() < 0.4


def test_values_are_gaussian():
    values = FilteredNoise(band=(0.0, 10.0)).signal(400_000, DT, rng())[::50]  # far enough apart to be independent
    assert np.mean(np.abs(values) < 1.0) == pytest.approx(0.6827, abs=0.02)
    assert np.mean(np.abs(values) < 2.0) == pytest.approx(0.9545, abs=0.01)
    assert np.mean(values**4) == pytest.approx(3.0, abs=0.4)


@pytest.mark.parametrize("band", [None, (0.0, 3.0), (1.0, 3.0)])
def test_a_longer_signal_begins_with_the_shorter_one(band):
    long = FilteredNoise(band=band).signal(1000, DT, rng())
    np.testing.assert_array_equal(FilteredNoise(band=band).signal(10, DT, rng()), long[:10])


def test_only_the_ratio_of_the_band_to_the_sampling_frequency_counts():
    slow = FilteredNoise(band=(1e-4, 2e-4)).signal(500, 900.0, rng())
    np.testing.assert_allclose(slow, FilteredNoise(band=(0.09, 0.18)).signal(500, 1.0, rng()), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "wrong",
    [
        {"std": 0.0},
        {"std": -1.0},
        {"std": np.nan},
        {"band": (2.0, 1.0)},
        {"band": (-1.0, 1.0)},
        {"band": [1.0, 2.0, 3.0]},
        {"band": (True, 2.0)},
        {"order": 0},
        {"order": 9},
        {"order": 2.0},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"FilteredNoise\({next(iter(wrong))}=.*expected.*change"):
        FilteredNoise(**wrong)


@pytest.mark.parametrize(
    ("band", "message"),
    [
        ((1.0, 50.0), r"Nyquist frequency 1/\(2 dt\) = 50 Hz.*got 50 Hz"),
        ((0.0, 80.0), r"Nyquist.*got 80 Hz"),
        ((0.0, 0.0005), r"at least 0.001 Hz.*got 0.0005 and 0 Hz"),
        ((10.0, 10.0005), r"at least 0.001 Hz.*got 0.0005 and 10 Hz"),
        ((0.0001, 10.0), r"at least 0.001 Hz.*set its lower end to 0"),
    ],
)
def test_bands_that_the_samples_cannot_carry_are_refused(band, message):
    with pytest.raises(ValueError, match=message):
        FilteredNoise(band=band).signal(100, DT, rng())
