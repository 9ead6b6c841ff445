"""Calibrated bands: factors by horizon that correct predictive standard deviations."""

from dataclasses import replace

import numpy as np
import pytest

from coupled_models import ONE_OUTPUT_LAGS, naive_posterior, signals, single_model
from sysid import (
    AboutPath,
    Linear,
    Model,
    Narx,
    OnlineGP,
    Pathwise,
    Scaling,
    SquaredExponential,
    Taylor,
    ZeroMean,
    free_run,
)
from sysid.simulation import bands
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.segments import Segment

DATA = signals(40, 3)
NORMAL_MEDIAN = 0.6744897501960817  # of the magnitude of a standard normal variable
NORMAL_95 = 1.959963984540054  # its 95 % quantile


@pytest.fixture(scope="module")
def model():
    """Return the model of one output, which predicts changes."""
    kernel = SquaredExponential(0.3, [2.0, 1.5, 3.0])
    return single_model(Narx(**ONE_OUTPUT_LAGS), 8, kernel)


def calibration_factor(standardised_errors):
    """Return the factor by which errors are larger than predicted, at the median and at 95 %."""
    median = np.quantile(standardised_errors, 0.5) / NORMAL_MEDIAN
    tail = np.quantile(standardised_errors, 0.95) / NORMAL_95
    return np.sqrt(median * tail)


def test_typical_bands_are_medians_by_horizon_as_far_as_all_folds_have_it():
    of_folds = [
        ((1, 1.0), (3, 9.0), (10, 2.0)),
        ((1, 2.0), (3, 1.0)),
        ((1, 7.0), (3, 4.0), (10, 1.0)),
    ]
    assert bands.typical(of_folds) == ((1, 2.0), (3, 4.0))
    first_and_last = [of_folds[0], of_folds[2]]
    assert bands.typical(first_and_last) == ((1, 4.0), (3, 6.5), (10, 1.5))


def interpolated_factor(step):
    """Return the factor of a step for bands of 1.2 at step 1, 2.0 at 4 and 0.5 at 6 and later.

    Between horizons its logarithm is linear in the logarithm of the step.
    """
    if step == 1:
        return 1.2
    if step < 4:
        return 1.2 * (2.0 / 1.2) ** (np.log(step) / np.log(4))
    if step == 4:
        return 2.0
    if step == 5:
        return 2.0 * 0.25 ** (np.log(5 / 4) / np.log(6 / 4))
    return 0.5


@pytest.mark.parametrize(
    ("rule", "all_steps"),
    [
        (Pathwise(8, 20), True),
        (Taylor(), False),
    ],
    ids=repr,
)
def test_bands_about_the_path_are_as_wide_as_held_out_errors(model, rule, all_steps):
    """The standard deviation of a measurement is multiplied by the factor of the horizon.

    A rule with which the bands were not measured is corrected at the first step only.
    """
    u = DATA["u"][:15, None]
    y = DATA["a"][:4, None]
    propagation = AboutPath(rule)
    plain = free_run(replace(model, bands=()), u, y, propagation=propagation)
    calibrated = replace(model, bands=((1, 1.2), (4, 2.0), (6, 0.5)))
    corrected = free_run(calibrated, u, y, propagation=propagation)
    np.testing.assert_array_equal(corrected.mean, plain.mean)
    noise = model.gp.noise_variance
    for step, variance in enumerate(plain.variance[:, 0], 1):
        is_corrected = all_steps or step == 1
        factor = interpolated_factor(step) if is_corrected else 1.0
        expected = max(factor**2 * (variance + noise) - noise, 0.0)
        np.testing.assert_allclose(corrected.variance[step - 1, 0], expected, rtol=1e-9, atol=1e-15)


def test_process_noise_widens_calibrated_bands_and_never_narrows_them(model):
    """Each variance is the larger of the calibrated one and of the one with process noise."""
    u = DATA["u"][:15, None]
    y = DATA["a"][:4, None]
    calibrated = replace(model, bands=((1, 1.2), (3, 3.0), (8, 0.5)))

    def variances(rule, model=calibrated):
        return free_run(model, u, y, propagation=AboutPath(rule)).variance[:, 0]

    of_bands = variances(Pathwise(8, 20))
    of_noise = variances(Pathwise(8, 20, process_noise=True), replace(model, bands=()))
    result = variances(Pathwise(8, 20, process_noise=True))
    assert (of_bands > of_noise).any()
    assert (of_bands < of_noise).any()
    np.testing.assert_array_equal(result[1:], np.maximum(of_bands, of_noise)[1:])
    assert result[0] == of_bands[0]


@pytest.fixture(scope="module")
def segment(model):
    """Return the samples from the fourth on, with their regressors and past outputs."""
    n_lags = Dynamics(model).n_lags
    regressors = []
    for k in range(4, 40):
        regressors.append([DATA[name][k - lag] for name, lag in model.narx.features])
    y = DATA["a"]
    return Segment(np.array(regressors), y[4:], y[4 - n_lags : 4])


@pytest.fixture(scope="module")
def one_step_errors(model, segment):
    """Return magnitudes of the errors one step ahead, and their predictive variances."""
    mean, variance = naive_posterior(model, segment.regressors)
    change = DATA["a"][4:] - DATA["a"][3:-1]
    return np.abs(change - mean), variance + model.gp.noise_variance


@pytest.fixture(scope="module")
def measured(model, segment):
    """Return the bands that are measured on the segment."""
    return bands.measure_bands(model, [(model, [segment])], 0)


def test_the_factor_of_one_step_is_that_of_the_held_out_errors(measured, one_step_errors):
    error, variance = one_step_errors
    expected = calibration_factor(error / np.sqrt(variance))
    assert measured[0] == (1, pytest.approx(expected, rel=1e-6))
    assert [horizon for horizon, _ in measured] == [1, 3, 10, 30]


def test_variance_added_to_the_predictions_lowers_the_factor(
    model, segment, measured, one_step_errors
):
    error, variance = one_step_errors

    def measure_with(added):
        return bands.measure_bands(model, [(model, [segment])], 0, added)

    assert measure_with(np.zeros(len(error))) == measured
    added = np.linspace(0.0, 1.0, len(error))
    expected = calibration_factor(error / np.sqrt(variance + added))
    assert measure_with(added)[0] == (1, pytest.approx(expected, rel=1e-6))


def test_the_factor_of_many_steps_is_that_of_simulated_errors(model, measured):
    u = DATA["u"][:, None]
    y = DATA["a"]
    run = free_run(model, u, y[:4, None], propagation=AboutPath(Pathwise(40)))
    error = np.abs(y[4:] - run.mean[:, 0])
    standardised = error / np.sqrt(run.variance[:, 0] + model.gp.noise_variance)
    expected = calibration_factor(standardised[16:])
    _, factor = measured[-1]
    assert factor == pytest.approx(expected, rel=0.5)  # other draws


@pytest.fixture(scope="module")
def slow_line():
    """Return a line whose pole 0.95 is uncertain, so that some of its functions are unstable.

    With it, a record that it has not learned.
    """
    generator = np.random.default_rng(0)
    u = generator.normal(size=500)
    y = np.zeros(500)
    for k in range(1, 500):
        y[k] = 0.95 * y[k - 1] + 0.1 * u[k - 1] + 0.05 * generator.normal()
    regressors = np.stack([y[:-1], u[:-1]], axis=1)
    n_learned = 60
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    gp = OnlineGP(Linear(0.01, [1.0, 1.0]), noise_variance=0.05**2, budget=n_learned)
    gp.fit(regressors[:n_learned], y[1 : 1 + n_learned])
    model = Model(narx, Scaling.identity(2), ZeroMean(), gp)
    rest = slice(n_learned + 1, None)
    segment = Segment(regressors[n_learned:], y[rest], y[n_learned : n_learned + 1])
    return model, segment


def test_functions_that_run_away_do_not_make_the_bands_a_matter_of_the_seed(slow_line):
    model, segment = slow_line
    factors = []
    for seed in range(6):
        measured = bands.measure_bands(model, [(model, [segment])], seed)
        factors.append([factor for _, factor in measured])
    largest = np.max(factors, axis=0)
    smallest = np.min(factors, axis=0)
    assert (largest / smallest < 1.5).all()


def test_bands_between_those_of_held_out_and_of_learned_samples_are_their_means():
    held_out = ((1, 2.0), (10, 5.0))
    learned = ((1, 1.0), (10, 2.0))
    assert bands.between(held_out, learned) == ((1, 1.5), (10, 3.5))


def test_bands_of_the_same_samples_stay():
    factors = ((1, 1.25), (10, 3.0))
    assert bands.between(factors, factors) == factors
