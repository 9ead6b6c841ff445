"""Multisines: their equation, harmonics, report and crest factor."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excitation_signals import EXCITATION_DT, draw_signal
from simulators import Multisine
from simulators.excitation.multisine import Grid, crest_factor

BENCHMARK_RATE = 750.0  # Hz
BENCHMARK_DT = 1 / BENCHMARK_RATE  # s
# the official estimation input of the Bouc-Wen benchmark
BOUC_WEN_INPUT = Multisine(rms=50.0, band=(5.0, 150.0), period=8192)


def excited_harmonics(u):
    """Return the harmonics of one period that carry power."""
    amplitude = np.abs(np.fft.rfft(u))
    return np.flatnonzero(amplitude > 1e-9 * amplitude.max())


@settings(max_examples=40, deadline=None)
@given(
    rms=st.floats(1e-3, 1e3),
    period=st.integers(10, 100).map(lambda half: 2 * half),
    group=st.integers(2, 4),
    offset=st.floats(-100, 100),
    grid=st.sampled_from(Grid),
)
def test_multisine_is_the_sum_of_cosines_of_its_equation(rms, period, group, offset, grid):
    multisine = Multisine(rms=rms, grid=grid.value, group=group, period=period, offset=offset)
    n = 2 * period
    generator = np.random.default_rng(1)
    harmonics = grid.harmonics(1, (period - 1) // 2, group, generator)
    phases = generator.uniform(0, 2 * np.pi, len(harmonics))
    amplitude = rms * np.sqrt(2 / len(harmonics))
    k = np.arange(n)
    expected = np.full(n, offset)
    for harmonic, phase in zip(harmonics, phases, strict=True):
        expected += amplitude * np.cos(2 * np.pi * harmonic * k / period + phase)
    u = draw_signal(multisine, n, dt=0.1, seed=1)
    np.testing.assert_allclose(u, expected, atol=1e-11 * (rms + abs(offset)))


@pytest.mark.parametrize(
    ("multisine", "period", "dt", "harmonics"),
    [
        pytest.param(BOUC_WEN_INPUT, 8192, BENCHMARK_DT, np.arange(55, 1639), id="Bouc-Wen"),
        pytest.param(
            Multisine(band=(0.3, 0.6)), 100, 0.1, [3, 4, 5, 6], id="both ends, despite rounding"
        ),
        pytest.param(
            Multisine(band=(0.0, 0.2)), 100, 0.1, [1, 2], id="without 0, which is the offset"
        ),
        pytest.param(Multisine(), 101, 1.0, np.arange(1, 51), id="odd period"),
        pytest.param(Multisine(grid="odd"), 400, 1.0, np.arange(1, 200, 2), id="odd grid"),
        pytest.param(Multisine(band=(1.5, 2.5)), 100, EXCITATION_DT, [2], id="one harmonic"),
        pytest.param(
            Multisine(band=(2.5, 3.5), grid="odd"), 100, EXCITATION_DT, [3], id="one odd harmonic"
        ),
    ],
)
def test_multisine_excites_the_harmonics_of_its_band(multisine, period, dt, harmonics):
    u = draw_signal(multisine, period, dt=dt)
    np.testing.assert_array_equal(excited_harmonics(u), harmonics)
    assert np.sqrt(np.mean(u**2)) == pytest.approx(multisine.rms, rel=1e-12)


def harmonics_left_out(seed):
    """Return the odd harmonics 5, 7, ..., 27 that a grid of groups of four leaves out.

    These are three groups; with odd seeds an incomplete group follows, 29 alone.
    """
    last = 27 if seed % 2 == 0 else 29
    odd = range(5, last + 1, 2)
    harmonics = Grid.random_odd.harmonics(4, last + 1, 4, np.random.default_rng(seed))
    return sorted(set(odd) ^ set(harmonics))


def test_random_odd_grid_leaves_out_one_of_every_complete_group():
    left_out = [harmonics_left_out(seed) for seed in range(200)]
    for harmonics in left_out:
        groups = [(harmonic - 5) // 2 // 4 for harmonic in harmonics]
        assert groups == [0, 1, 2]
    _, counts = np.unique(left_out, return_counts=True)
    assert len(counts) == 12  # every harmonic of a complete group is left out by some seed
    assert counts.min() > 25  # 50 are expected
    correlation_of_groups = np.corrcoef(np.transpose(left_out))[0, 1]
    assert abs(correlation_of_groups) < 0.25


@pytest.mark.parametrize(
    "multisine",
    [BOUC_WEN_INPUT, Multisine(grid="random_odd", clippings=20, offset=7.0)],
    ids=["Bouc-Wen", "clipped"],
)
def test_report_describes_the_signal(multisine):
    report = multisine.report(8192, BENCHMARK_DT, np.random.default_rng(2))
    u = draw_signal(multisine, 8192, dt=BENCHMARK_DT, seed=2) - multisine.offset
    harmonics = excited_harmonics(u)
    np.testing.assert_array_equal(report.harmonics, harmonics)
    frequencies = np.fft.rfftfreq(8192, BENCHMARK_DT)[harmonics]
    np.testing.assert_allclose(report.frequencies, frequencies, rtol=1e-14)
    assert report.resolution == pytest.approx(BENCHMARK_RATE / 8192)
    assert report.rms == pytest.approx(np.std(u), rel=1e-12)
    assert report.crest_factor == pytest.approx(np.abs(u).max() / np.std(u), rel=1e-9)


@pytest.mark.parametrize("multisine", [BOUC_WEN_INPUT, Multisine(grid="random_odd", clippings=20)])
def test_report_of_no_samples_is_refused(multisine):
    with pytest.raises(ValueError, match="n_samples=0"):
        multisine.report(0, 0.1, np.random.default_rng(0))


def test_clipping_lowers_the_crest_factor_and_keeps_the_spectrum():
    factors = {}
    for clippings in (0, 1, 10, 100):
        u = draw_signal(replace(BOUC_WEN_INPUT, clippings=clippings), 8192, dt=BENCHMARK_DT)
        np.testing.assert_array_equal(excited_harmonics(u), np.arange(55, 1639))
        amplitude = np.abs(np.fft.rfft(u))
        np.testing.assert_allclose(amplitude[55:1639], amplitude[55], rtol=1e-9)
        factors[clippings] = crest_factor(u)
    assert 3.0 < factors[0] < 5.0
    assert factors[0] >= factors[1] > factors[10] > factors[100]
    assert factors[100] < 1.8


SINE = np.sin(2 * np.pi * np.arange(4000) / 400)


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        ([1.0, -1.0], 1.0),
        (7.0 - 3.0 * SINE, np.sqrt(2)),
        ([0, 0, 0, 4.0], np.sqrt(3)),
    ],
    ids=["square wave", "sine", "pulse"],
)
def test_crest_factors_of_known_signals(signal, expected):
    assert crest_factor(signal) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "signal",
    [[], [1.0, 1.0], [0.1] * 7, [np.nan, 1.0], [[1.0, 2.0]], 3.0],
    ids=["empty", "constant", "constant but for rounding", "nan", "two dimensions", "number"],
)
def test_signals_without_a_crest_factor_are_refused(signal):
    with pytest.raises(ValueError, match=r"crest_factor: expected"):
        crest_factor(signal)
