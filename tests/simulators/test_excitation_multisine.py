"""Multisine: spectrum, rms, grids, crest factor, and what a nonlinear system answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.excitation.grid import Grid
from simulators.excitation.multisine import Multisine, crest_factor

BOUC_WEN = Multisine(rms=50.0, band=(5.0, 150.0), period=8192)  # official estimation input
RATE = 750.0  # Hz


def rng(seed=0):
    return np.random.default_rng(seed)


def lines(u):
    """Harmonics of one period that carry power."""
    amplitude = np.abs(np.fft.rfft(u))
    return np.flatnonzero(amplitude > 1e-9 * amplitude.max())


def test_official_benchmark_input():
    u = BOUC_WEN.signal(8192, 1 / RATE, rng())
    spectrum = np.abs(np.fft.rfft(u)) / 8192
    frequency = RATE * np.arange(4097) / 8192
    inside = (frequency >= 5) & (frequency <= 150)
    assert inside.sum() == 1584
    # sum of squares of 2 |U| / sqrt(2) over the band is the power
    np.testing.assert_allclose(spectrum[inside], 50.0 / np.sqrt(2 * 1584), rtol=1e-11)
    assert spectrum[~inside].max() < 1e-12
    assert np.sqrt(np.mean(u**2)) == pytest.approx(50.0, rel=1e-12)


@pytest.mark.parametrize("grid", [grid.value for grid in Grid])
@pytest.mark.parametrize("period", [40, 64])
def test_signal_is_the_sum_of_cosines_of_its_equation(grid, period):
    multisine = Multisine(rms=3.0, grid=grid, group=3, period=period, offset=1.0)
    u = multisine.signal(2 * period, 0.1, rng(1))
    generator, k = rng(1), np.arange(2 * period)
    drawn = Grid(grid).harmonics(1, (period - 1) // 2, 3, generator)
    naive = np.ones(2 * period)
    for h, phi in zip(drawn, generator.uniform(0, 2 * np.pi, len(drawn)), strict=True):
        naive += 3.0 * np.sqrt(2 / len(drawn)) * np.cos(2 * np.pi * h * k / period + phi)
    np.testing.assert_allclose(u, naive, atol=1e-12)


def test_grids_excite_their_harmonics():
    for_grid = {grid: lines(Multisine(grid=grid, period=400).signal(400, 1.0, rng())) for grid in Grid}
    np.testing.assert_array_equal(for_grid[Grid.full], np.arange(1, 200))
    np.testing.assert_array_equal(for_grid[Grid.odd], np.arange(1, 200, 2))
    assert set(for_grid[Grid.random_odd]) < set(for_grid[Grid.odd])


def test_random_odd_leaves_out_one_of_every_group():
    left_out = []
    for seed in range(200):
        drawn = Grid.random_odd.harmonics(4, 30, 4, rng(seed))  # 5, 7, ..., 29: three groups of four, and 29
        missing = sorted(set(range(5, 30, 2)) - set(drawn))
        assert len(missing) == 3
        assert [(h - 5) // 2 // 4 for h in missing] == [0, 1, 2]
        left_out.append(missing)
    assert set(np.ravel(left_out)) == set(range(5, 29, 2))  # any, and never the incomplete group
    counts = np.bincount((np.array(left_out)[:, 0] - 5) // 2, minlength=4)
    assert counts.min() > 25  # 50 expected
    assert abs(np.corrcoef(np.transpose(left_out))[0, 1]) < 0.25  # groups are drawn apart


@pytest.mark.parametrize("period", [256, 250])
@pytest.mark.parametrize("grid", ["odd", "random_odd"])
def test_a_quadratic_nonlinearity_answers_at_even_harmonics_only(grid, period):
    u = Multisine(grid=grid, period=period).signal(period, 1.0, rng())
    excited, answer = lines(u), np.abs(np.fft.rfft(u**2))
    assert np.all(excited % 2 == 1)
    assert answer[1::2].max() < 1e-12 * answer.max()
    full = Multisine(period=period).signal(period, 1.0, rng())
    assert np.abs(np.fft.rfft(full**2))[1::2].max() > 0.01 * answer.max()


def test_a_cubic_nonlinearity_shows_at_the_detection_lines():
    multisine = Multisine(grid="random_odd", period=512)
    u = multisine.signal(512, 1.0, rng())
    excited = multisine.report(512, 1.0, rng()).harmonics
    detection = np.setdiff1d(np.arange(1, 256, 2), excited)
    answer = np.abs(np.fft.rfft(u**3))
    assert len(detection) == 32
    assert answer[detection].min() > 1e-6 * answer.max()
    assert answer[::2].max() < 1e-12 * answer.max()
    assert np.abs(np.fft.rfft(u))[detection].max() < 1e-12 * answer.max()


def test_periods_repeat_to_the_last_bit_and_the_last_is_cut():
    u = Multisine(period=100).signal(370, 0.1, rng())
    np.testing.assert_array_equal(u[:270], u[100:])
    np.testing.assert_array_equal(Multisine(period=100).signal(30, 0.1, rng()), u[:30])  # a longer one begins with it
    assert Multisine(period=100).period_samples(370) == 100
    assert Multisine().period_samples(370) == 370


def test_phases_are_uniform_and_independent():
    phases = np.array(
        [np.angle(np.fft.rfft(Multisine(period=64).signal(64, 1.0, rng(seed)))[[3, 4]]) for seed in range(2000)]
    )
    for power in (1, 2):
        assert np.abs(np.mean(np.exp(1j * power * phases), axis=0)).max() < 4 / np.sqrt(2000)
    assert abs(np.mean(np.exp(1j * (phases[:, 0] - phases[:, 1])))) < 4 / np.sqrt(2000)


@settings(max_examples=40, deadline=None)
@given(
    rms=st.floats(1e-3, 1e3),
    period=st.integers(20, 300).map(lambda half: 2 * half),
    offset=st.floats(-100, 100),
    grid=st.sampled_from(Grid),
    seed=st.integers(0, 2**32),
    clippings=st.integers(0, 3),
)
def test_rms_is_exact_and_the_mean_is_the_offset(rms, period, offset, grid, seed, clippings):
    multisine = Multisine(rms=rms, period=period, offset=offset, grid=grid, clippings=clippings)
    u = multisine.signal(3 * period, 0.1, rng(seed))
    assert u.mean() == pytest.approx(offset, abs=1e-11 * (rms + abs(offset)))
    assert np.sqrt(np.mean((u - offset) ** 2)) == pytest.approx(rms, rel=1e-9)


def test_a_band_includes_its_edges():
    report = Multisine(band=(0.3, 0.7), period=100).report(100, 0.1, rng())
    np.testing.assert_array_equal(report.harmonics, [3, 4, 5, 6, 7])
    report = Multisine(band=(1.1, 1.3), period=100).report(100, 0.1, rng())  # 1.1 * 100 * 0.1 > 11
    np.testing.assert_array_equal(report.harmonics, [11, 12, 13])
    report = Multisine(band=(32.1, 32.3), period=1000).report(1000, 0.01, rng())  # 32.3 * 1000 * 0.01 < 323
    np.testing.assert_array_equal(report.harmonics, [321, 322, 323])
    report = Multisine(band=(0.31, 0.69), period=100).report(100, 0.1, rng())
    np.testing.assert_array_equal(report.harmonics, [4, 5, 6])
    report = Multisine(band=(0.0, 0.2), period=100).report(100, 0.1, rng())
    np.testing.assert_array_equal(report.harmonics, [1, 2])  # the mean is the offset


@pytest.mark.parametrize("period", [100, 101])
def test_without_a_band_every_harmonic_below_nyquist_is_excited(period):
    u = Multisine(period=period).signal(period, 1.0, rng())
    np.testing.assert_array_equal(lines(u), np.arange(1, 50 if period == 100 else 51))


@pytest.mark.parametrize("multisine", [BOUC_WEN, Multisine(grid="random_odd", clippings=20, offset=7.0)])
def test_report_describes_the_signal(multisine):
    report = multisine.report(8192, 1 / RATE, rng(2))
    v = multisine.signal(8192, 1 / RATE, rng(2)) - multisine.offset
    np.testing.assert_array_equal(report.harmonics, lines(v))
    np.testing.assert_allclose(report.frequencies, np.fft.rfftfreq(8192, 1 / RATE)[lines(v)], rtol=1e-14)
    assert report.resolution == pytest.approx(RATE / 8192)
    assert report.rms == pytest.approx(np.std(v), rel=1e-12)
    assert report.crest_factor == pytest.approx(np.abs(v).max() / np.std(v), rel=1e-9)


def test_clipping_lowers_the_crest_factor_and_keeps_the_spectrum():
    factors = []
    for clippings in (0, 1, 10, 100):
        multisine = Multisine(rms=50.0, band=(5.0, 150.0), period=8192, clippings=clippings)
        u = multisine.signal(8192, 1 / RATE, rng())
        spectrum = np.abs(np.fft.rfft(u))
        np.testing.assert_array_equal(lines(u), np.arange(55, 1639))
        np.testing.assert_allclose(spectrum[55:1639], spectrum[55], rtol=1e-9)
        factors.append(crest_factor(u))
    assert 3.0 < factors[0] < 5.0
    assert factors[0] >= factors[1] > factors[2] > factors[3]
    assert factors[3] < 1.8


@pytest.mark.parametrize(
    ("signal", "expected"),
    [([1.0, -1.0], 1.0), (np.sin(2 * np.pi * np.arange(4000) / 400), np.sqrt(2)), ([0, 0, 0, 4.0], np.sqrt(3))],
)
def test_crest_factors_of_known_signals(signal, expected):
    assert crest_factor(signal) == pytest.approx(expected, rel=1e-9)


@given(
    u=st.lists(st.integers(-100, 100), min_size=2, max_size=30).filter(lambda u: len(set(u)) > 1),
    scale=st.floats(0.01, 100),
    shift=st.floats(-100, 100),
)
def test_crest_factor_knows_neither_scale_sign_nor_mean(u, scale, shift):
    factor = crest_factor(u)
    assert factor >= 1 - 1e-12
    assert crest_factor(shift - scale * np.array(u)) == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize("wrong", [[], [1.0, 1.0], [0.1] * 7, [np.nan, 1.0], [[1.0, 2.0]], 3.0])
def test_crest_factor_needs_a_signal_that_varies(wrong):
    with pytest.raises(ValueError, match=r"crest_factor: expected"):
        crest_factor(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rms": 0.0},
        {"rms": -1.0},
        {"rms": np.nan},
        {"band": (2.0, 1.0)},
        {"band": (1.0, 1.0)},
        {"band": (-1.0, 1.0)},
        {"band": (1.0,)},
        {"band": (1.0, np.inf)},
        {"band": (1.0, None)},
        {"band": "12"},
        {"band": 3.0},
        {"grid": "even"},
        {"grid": None},
        {"group": 1},
        {"period": 2},
        {"period": 100.0},
        {"clippings": -1},
        {"clippings": True},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"Multisine\({next(iter(wrong))}=.*expected.*change"):
        Multisine(**wrong)


@pytest.mark.parametrize(
    ("multisine", "message"),
    [
        (Multisine(band=(1.0, 6.0)), r"band=\(1.0, 6.0\).*Nyquist frequency 1/\(2 dt\) = 5 Hz.*got 6 Hz.*lower band"),
        (Multisine(band=(1.0, 5.0)), r"Nyquist.*got 5 Hz"),
        (Multisine(band=(1.01, 1.09)), r"at least a harmonic of 1/\(period dt\) = 0.1 Hz.*period of 100 samples"),
        (Multisine(band=(1.0, 1.05), grid="odd"), r"at least a harmonic"),
        (Multisine(band=(1.0, 1.5), grid="random_odd"), r"at least 4 odd harmonics of.*\[1.0, 1.5\] Hz"),
        (Multisine(grid="random_odd", period=14), r"at least 4 odd harmonics.*range below the Nyquist"),
        (Multisine(grid="odd", period=99), r"expected an even period, got 99 samples.*98 or 100"),
    ],
)
def test_settings_that_do_not_fit_the_samples_are_refused(multisine, message):
    for method in (multisine.signal, multisine.report):
        with pytest.raises(ValueError, match=message):
            method(100, 0.1, rng())


def test_report_checks_the_samples():
    with pytest.raises(ValueError, match="n_samples=0"):
        Multisine().report(0, 0.1, rng())


def test_lists_and_names_of_a_configuration_become_settings():
    assert Multisine(band=[1, 2], grid="odd") == Multisine(band=(1.0, 2.0), grid=Grid.odd)
