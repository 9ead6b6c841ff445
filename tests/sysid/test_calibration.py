"""Saturation, noise and bands of a free run."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import (
    FIRST_ORDER_LAGS,
    NO_LIMITS,
    linear_candidate,
    random_candidate,
    random_signals,
    samples_of,
    segment_of,
    sine_input,
)
from sysid.simulation.segments import Segment, folds_of, segments_of
from sysid.simulation_error import calibration
from sysid.simulation_error.calibration import calibrate, find_saturation
from sysid.simulation_error.candidate import FitResult

# --- saturation -----------------------------------------------------------------------------------

ONE_RUN_AT_1 = [0.1, 0.3, 0.2, 1.0, 1.0, 1.0, 0.4, 0.6]
ONE_RUN_AT_MINUS_1 = [-value for value in ONE_RUN_AT_1]


@pytest.mark.parametrize(
    ("outputs", "limits", "counts"),
    [
        pytest.param(
            [[*ONE_RUN_AT_1, *ONE_RUN_AT_1]], (-np.inf, 1.0), (0, 6), id="two runs at the top"
        ),
        pytest.param(
            [ONE_RUN_AT_1, ONE_RUN_AT_MINUS_1, ONE_RUN_AT_MINUS_1],
            (-1.0, np.inf),
            (6, 0),
            id="two runs at the bottom in two segments",
        ),
        pytest.param(
            [[0.0, *ONE_RUN_AT_1, 0.9, *ONE_RUN_AT_1, 1.1]],
            NO_LIMITS,
            (0, 0),
            id="one sample beyond",
        ),
        pytest.param([[0.1, 0.3, *[1.0] * 6, 0.4]], NO_LIMITS, (0, 0), id="a single run"),
        pytest.param(
            [[1.0, 1.0, 1.0, 0.5, 0.2, 1.0, 1.0, 1.0, 0.3]],
            NO_LIMITS,
            (0, 0),
            id="one of two runs begins the segment",
        ),
        pytest.param(
            [[0.5, 1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 1.0]],
            NO_LIMITS,
            (0, 0),
            id="one of two runs ends the segment",
        ),
        pytest.param(
            [[0.3, 0.5, 1.0, 0.2, 1.0, 0.3, 1.0, 0.4, 1.0, 0.5, 1.0, 0.2]],
            NO_LIMITS,
            (0, 0),
            id="runs of one sample",
        ),
        pytest.param([[2.0] * 20], NO_LIMITS, (0, 0), id="constant output"),
    ],
)
def test_repeated_extreme_is_a_limit(outputs, limits, counts):
    segments = []
    for values in outputs:
        no_regressors = np.zeros((len(values), 1))
        segments.append(Segment(no_regressors, np.array(values), np.zeros(1)))
    assert find_saturation(segments) == (limits, counts)


# --- bands ----------------------------------------------------------------------------------------

N_NAIVE_DRAWS = 100


def slow_segment(scale):
    """Return a segment whose output varies slowly, with some noise."""
    segment = segment_of(FIRST_ORDER_LAGS, random_signals(FIRST_ORDER_LAGS, 121))
    noise = np.random.default_rng(1).standard_normal(len(segment.values) + 19)
    slow = np.convolve(noise, np.ones(20) / 3.0, "valid")
    return segment._replace(values=scale * (slow + 0.05 * segment.values))


def naive_is_covered(candidate, noise_variance, latent_variance, fold):
    """Return which samples of a fold lie within the 95 % band of a simulation.

    The band is that of functions drawn from the posterior of the online GP at all regressors.
    """
    (part,) = fold.parts
    x = np.concatenate([segment.regressors for segment in (*fold.rest, part)])
    z = candidate.scaling.transform(x)
    start = candidate.initial_model(noise_variance, latent_variance, fold.rest[0].regressors)
    kernel = start.hyperparameters.kernel
    points = candidate.points
    gram = kernel(points, points) + noise_variance * np.eye(len(points))
    covariance = kernel(z, z) - kernel(z, points) @ np.linalg.inv(gram) @ kernel(points, z)
    deviations = np.random.default_rng(5).multivariate_normal(
        np.zeros(len(z)), covariance, N_NAIVE_DRAWS, check_valid="ignore"
    )
    gram_of_all = candidate.kernel(z, z) + 1e-9 * np.eye(len(z))
    weights_of_deviations = np.linalg.solve(gram_of_all, deviations.T).T
    all_points = np.vstack([points, z])
    runs = []
    for weights in weights_of_deviations:
        all_weights = np.append(candidate.weights, weights)
        function = replace(candidate, points=all_points, weights=all_weights)
        runs.append(function.simulate(part))
    variance = np.var(runs, axis=0) + noise_variance
    error = candidate.simulate(part) - part.values
    return np.abs(error) < 1.96 * np.sqrt(variance)


@pytest.mark.parametrize(("scale", "factor_too_small"), [(0.1, 25), (3.0, 9)])
def test_band_covers_95_percent_of_the_held_out_samples(scale, factor_too_small):
    """With a variance that is smaller by a factor the band covers far less."""
    segments = [slow_segment(scale)]
    folds = folds_of(segments, 2)
    candidates = [
        random_candidate(FIRST_ORDER_LAGS, n_points=8, size=0.02, seed=seed) for seed in (1, 2)
    ]
    latent_variances = (0.9, 1.0)
    held_out = [
        FitResult(candidate, latent_variance, {})
        for candidate, latent_variance in zip(candidates, latent_variances, strict=True)
    ]
    whole = FitResult(random_candidate(FIRST_ORDER_LAGS, n_points=6, seed=3), 1.1, {})

    calibrations = []
    for seed in range(5):
        generator = np.random.default_rng(seed)
        calibrations.append(calibrate(whole, segments, held_out, folds, generator))

    noise_variance, _ = calibrations[0]
    assert noise_variance == calibration.estimate_noise(whole.candidate, segments)
    # The draws differ between processors; their median hardly does.
    latent_variance = np.median([variance for _, variance in calibrations])
    share = latent_variance / whole.latent_variance

    def coverage(share):
        are_covered = []
        for candidate, variance, fold in zip(candidates, latent_variances, folds, strict=True):
            are_covered.append(naive_is_covered(candidate, noise_variance, share * variance, fold))
        return np.mean(np.concatenate(are_covered))

    assert coverage(share) >= 0.88
    assert coverage(share / factor_too_small) < 0.75


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amplitude", "frequency"),
    [(0.0, 0.0), (3.0, 1 / 300), (0.8, 1 / 1.5)],
    ids=["no error", "slow error", "oscillating error"],
)
def test_noise_is_told_apart_from_errors_of_the_free_run(amplitude, frequency):
    """The noise has a variance of 0.04; the frequency of the error is in radians per sample."""
    u = sine_input(4000)
    noise = 0.2 * np.random.default_rng(0).standard_normal(4000)
    error = amplitude * np.sin(frequency * np.arange(4000))
    candidate = linear_candidate(FIRST_ORDER_LAGS, [0.0, 1.0])
    y = np.append(0.0, u[:-1]) + error + noise
    first = {"y": y[:2500], "u": u[:2500]}
    second = {"y": y[2500:], "u": u[2500:]}
    segments = segments_of(samples_of(FIRST_ORDER_LAGS, first, second))
    estimate = calibration.estimate_noise(candidate, segments)
    assert estimate == pytest.approx(0.04, rel=0.1)
