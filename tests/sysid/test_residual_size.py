"""False alarms of the residual tests on white noise, counted over 2000 series."""

from functools import partial

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom

from sysid.residual import LEVEL, residual_tests

N_SERIES, N_INPUTS = 2000, 40
DRAWS = {
    "gaussian": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.uniform(-1.0, 1.0, shape),
    "laplace": lambda rng, shape: rng.laplace(size=shape),
    "student": lambda rng, shape: rng.standard_t(5, shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}


def coloured(rng, n, pole):
    return lfilter([1.0], [1.0, -pole], rng.normal(size=n + 200))[200:]


def multisine(rng, n):
    t = np.arange(n)
    return sum(np.cos(2 * np.pi * k * t / n + rng.uniform(0, 2 * np.pi)) for k in range(1, n // 8))


INPUTS = {"white": partial(coloured, pole=0.0), "coloured": partial(coloured, pole=0.9), "multisine": multisine}


def simulated(draw, drive, lengths, n_lags, seed=0):
    """Fraction of alarms of every test, of every lag, and of the verdict over all tests.

    One output is one series: 2000 independent series, 50 under each of 40 inputs.
    """
    rng = np.random.default_rng(seed)
    whole, lags, verdicts = {}, {}, 0
    for _ in range(N_INPUTS):
        e = [DRAWS[draw](rng, (n, N_SERIES // N_INPUTS)) for n in lengths]
        report = residual_tests(e, [INPUTS[drive](rng, n) for n in lengths], n_lags=n_lags)
        for test in report.tests:
            whole[test.name] = whole.get(test.name, 0) + test.alarm
            lags[test.name] = lags.get(test.name, 0) + (np.abs(test.values) > test.band)
        verdicts += sum(report.p_value(output) < LEVEL for output in report.outputs)
    return {k: v / N_SERIES for k, v in whole.items()}, {k: v / N_SERIES for k, v in lags.items()}, verdicts / N_SERIES


def limits(confidence):
    """Smallest and largest fraction of alarms that 5 % give with this probability."""
    low, high = binom(N_SERIES, LEVEL).interval(confidence)
    return low / N_SERIES, high / N_SERIES


def check(found, margin=0.0):
    whole, lags, verdicts = found
    assert len(whole) == 6
    low, high = limits(0.999)
    for name, rate in whole.items():
        assert low - margin <= rate <= high + margin, (name, rate)
    low, high = limits(0.9999)  # of 150 lags
    for name, rates in lags.items():
        assert low - margin <= rates.min(), (name, rates)
        assert rates.max() <= high + margin, (name, rates)
        coloured_lags = name in ("input", "squared_input", "squared_input_squared")  # their mean scatters more
        assert rates.mean() == pytest.approx(LEVEL, abs=0.009 if coloured_lags else 0.004 + margin), name
    assert 0.03 <= verdicts <= limits(0.999)[1] + 0.015  # the smallest of six: far tails are less exact


def test_white_noise_alarms_in_5_percent():
    check(simulated("gaussian", "coloured", (200,), 25))


def test_limits_are_narrow():
    assert limits(0.999) == pytest.approx((0.034, 0.0665), abs=0.001)


def test_colour_of_the_residuals_breaks_them():
    """So that the check can fail: the input tests suppose white residuals."""
    rng = np.random.default_rng(1)
    e = lfilter([1.0], [1.0, -0.7], rng.normal(size=(300, N_SERIES)), axis=0)[100:]
    report = residual_tests(e, coloured(rng, 200, 0.9), n_lags=10)
    rate = np.mean([test.alarm for test in report.tests if test.name == "input"])
    assert rate > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("drive", INPUTS)
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("lengths", "n_lags"), [((200,), 10), ((200,), 25), ((1000,), 25), ((52,) * 6, 25)])
def test_white_noise_of_any_distribution_alarms_in_5_percent(draw, drive, lengths, n_lags):
    """Tails and colours cost at most one more per cent."""
    check(simulated(draw, drive, lengths, n_lags), margin=0.01)
