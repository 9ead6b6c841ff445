"""Filtered noise: its power density, and its beginning."""

import numpy as np
import pytest
from scipy.signal import welch

from excitation_signals import EXCITATION_DT, draw_signal
from simulators import FilteredNoise


def squared_gain(frequency, band, order):
    """Return the squared gain of the Butterworth filter after the bilinear transformation.

    The cut-off frequencies are prewarped.
    """
    low, high = (prewarp(cut_off) for cut_off in band)
    w = prewarp(frequency)
    return 1 / (1 + ((w * w - low * high) / (w * (high - low))) ** (2 * order))


def prewarp(frequency):
    """Return the frequency of the analogue filter, in the unit of the bilinear transformation."""
    return np.tan(np.pi * EXCITATION_DT * np.asarray(frequency, dtype=float))


@pytest.mark.parametrize(
    ("band", "order"),
    [((0.0, 5.0), 4), ((2.0, 10.0), 3), ((10.0, 40.0), 8)],
    ids=["low-pass", "band-pass", "steep"],
)
def test_power_density_is_that_of_the_filter(band, order):
    noise = FilteredNoise(std=3.0, band=band, order=order)
    signals = np.array([draw_signal(noise, 16 * 4096, seed=seed) for seed in range(20)])
    frequency, power = welch(signals, 1 / EXCITATION_DT, nperseg=4096)
    frequency = frequency[4:-4]
    power = power.mean(axis=0)[4:-4]

    fine_frequency = np.linspace(0, 50, 200_001)[1:-1]
    spacing = fine_frequency[1] - fine_frequency[0]
    variance_of_filter = np.sum(squared_gain(fine_frequency, band, order)) * spacing
    expected = 3.0**2 / variance_of_filter * squared_gain(frequency, band, order)

    is_strong = expected > 1e-3 * expected.max()
    is_outside = expected < 1e-5 * expected.max()
    np.testing.assert_allclose(power[is_strong], expected[is_strong], rtol=0.35)
    np.testing.assert_allclose(np.sum(power[is_strong]), np.sum(expected[is_strong]), rtol=0.02)
    assert np.all(power[is_outside] < 1e-4 * expected.max())


@pytest.mark.parametrize(
    ("band", "order"),
    [((0.0, 0.5), 4), ((1.0, 1.1), 2), ((0.0, 25.0), 1)],
    ids=["slow", "narrow", "fast"],
)
def test_filtered_noise_is_stationary_from_the_first_sample(band, order):
    noise = FilteredNoise(std=2.0, band=band, order=order)
    signals = np.array([draw_signal(noise, 60, seed=seed) for seed in range(300)])
    np.testing.assert_allclose(signals[:, [0, 1, 30, 59]].std(axis=0), 2.0, rtol=0.16)
    assert np.abs(signals.mean(axis=0)).max() < 0.5
