"""Binary and amplitude-modulated pseudo-random signals."""

from collections import Counter
from itertools import groupby

import numpy as np
import pytest

from excitation_signals import EXCITATION_DT, draw_signal
from simulators import APRBS, PRBS

# --- PRBS -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [2, 3, 5, 8, 13])
def test_prbs_has_maximum_length(stages):
    """Every content of the register but zero occurs once in a period.

    The autocorrelation therefore has two values.
    """
    period = 2**stages - 1
    prbs = PRBS(amplitude=2.0, stages=stages, offset=5.0)
    u = draw_signal(prbs, period + stages)
    assert set(u) == {3.0, 7.0}
    contents = np.lib.stride_tricks.sliding_window_view(u > 5, stages)[:period]
    assert len({content.tobytes() for content in contents}) == period
    assert contents.any(axis=1).all()
    power = np.abs(np.fft.rfft(u[:period] - 5)) ** 2
    autocorrelation = np.fft.irfft(power, period) / period
    expected = np.full(period, -4.0 / period)
    expected[0] = 4.0
    np.testing.assert_allclose(autocorrelation, expected, atol=1e-12)


def test_clock_stretches_a_prbs():
    u = draw_signal(PRBS(stages=5, clock=0.04), 300)
    unstretched = draw_signal(PRBS(stages=5), 75, dt=0.04)
    np.testing.assert_array_equal(u, np.repeat(unstretched, 4))


@pytest.mark.parametrize("n_samples", [1, 3, 7, 1000, 123457])
@pytest.mark.parametrize("dt", [1 / 750, 0.1, 900.0])
def test_clock_that_is_a_multiple_of_dt_survives_rounding(n_samples, dt):
    for clock in (n_samples * dt, float(f"{n_samples * dt:.9g}")):
        assert PRBS(clock=clock, stages=2).period_samples(10, dt) == 3 * n_samples


@pytest.mark.parametrize(
    ("n", "clock", "stages"),
    [(3, None, 2), (4, None, 3), (1023, None, 10), (1024, None, 11), (1024, 0.02, 10)],
)
def test_stages_of_a_prbs_cover_the_record(n, clock, stages):
    prbs = PRBS(clock=clock)
    with_given_stages = PRBS(clock=clock, stages=stages)
    np.testing.assert_array_equal(draw_signal(prbs, n), draw_signal(with_given_stages, n))
    samples_per_clock = 1 if clock is None else 2
    assert prbs.period_samples(n, EXCITATION_DT) == (2**stages - 1) * samples_per_clock


def test_record_that_no_prbs_covers_is_refused():
    with pytest.raises(ValueError, match=r"2\^32"):
        PRBS().period_samples(2**32)


def test_register_of_a_prbs_starts_anywhere():
    """All 2^3 - 1 contents of the register occur about equally often."""
    prbs = PRBS(stages=3)
    counts = Counter(tuple(draw_signal(prbs, 3, seed=seed)) for seed in range(700))
    assert len(counts) == 7
    assert min(counts.values()) > 60


# --- APRBS ----------------------------------------------------------------------------------------


def levels_and_holds(u):
    """Return the levels of a signal, and the samples that each is held, without the last one."""
    runs = [(level, len(list(run))) for level, run in groupby(u)]
    return np.transpose(runs[:-1])


def test_aprbs_levels_and_holds_are_uniform_and_independent():
    aprbs = APRBS(low=-2.0, high=6.0, shortest_hold=0.03, longest_hold=0.07, offset=10.0)
    levels, holds = levels_and_holds(draw_signal(aprbs, 100_000))
    assert levels.min() == pytest.approx(8, abs=0.01)
    assert levels.max() == pytest.approx(16, abs=0.01)
    counts_of_levels, _ = np.histogram(levels, bins=8, range=(8, 16))
    _, counts_of_holds = np.unique(holds, return_counts=True)
    assert np.ptp(counts_of_levels) < 0.15 * counts_of_levels.mean()
    assert np.ptp(counts_of_holds) < 0.15 * counts_of_holds.mean()
    assert abs(np.corrcoef(levels, holds)[0, 1]) < 0.03
    assert abs(np.corrcoef(levels[1:], levels[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("shortest_hold", "longest_hold", "fewest", "most"),
    [
        (None, None, 1, 20),
        (0.05, None, 5, 100),
        (0.021, 0.049, 3, 4),
        (0.03, 0.03, 3, 3),
        (0.01, 0.07, 1, 7),
    ],
)
def test_aprbs_holds_its_levels_for_whole_samples(shortest_hold, longest_hold, fewest, most):
    aprbs = APRBS(shortest_hold=shortest_hold, longest_hold=longest_hold)
    assert aprbs.hold_samples(EXCITATION_DT) == (fewest, most)
    _, holds = levels_and_holds(draw_signal(aprbs, 50_000))
    assert set(holds) == set(range(fewest, most + 1))
