"""Saturation, noise and bands of a free run."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import (
    FREE,
    candidate_of,
    excited,
    linear_candidate,
    random_signals,
    samples_of,
    segment_of,
)
from sysid import Narx
from sysid.simulation.segments import Segment, folds_of, segments_of
from sysid.simulation_error import calibration
from sysid.simulation_error.calibration import calibrate, find_saturation
from sysid.simulation_error.candidate import FitResult

RISING = [0.1, 0.3, 0.2, 1.0, 1.0, 1.0, 0.4, 0.6]


@pytest.mark.parametrize(
    ("parts", "limits", "counts"),
    [
        ([[*RISING, *RISING]], (-np.inf, 1.0), (0, 6)),
        (
            [RISING, [-value for value in RISING], [-value for value in RISING]],
            (-1.0, np.inf),
            (6, 0),
        ),
        ([[0.0, *RISING, 0.9, *RISING, 1.1]], FREE, (0, 0)),  # one sample beyond
        ([[0.1, 0.3, *[1.0] * 6, 0.4]], FREE, (0, 0)),  # one run
        (
            [[1.0, 1.0, 1.0, 0.5, 0.2, 1.0, 1.0, 1.0, 0.3]],
            FREE,
            (0, 0),
        ),  # one of two runs is rest in the beginning
        ([[0.5, 1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 1.0]], FREE, (0, 0)),  # or at the end
        (
            [[0.3, 0.5, 1.0, 0.2, 1.0, 0.3, 1.0, 0.4, 1.0, 0.5, 1.0, 0.2]],
            FREE,
            (0, 0),
        ),  # never for long
        ([[2.0] * 20], FREE, (0, 0)),
    ],
)
def test_a_repeated_extreme_is_a_limit(parts, limits, counts):
    segments = [
        Segment(np.zeros((len(values), 1)), np.array(values), np.zeros(1)) for values in parts
    ]
    assert find_saturation(segments) == (limits, counts)


@pytest.mark.parametrize(("scale", "less"), [(0.1, 25), (3.0, 9)])
def test_the_band_covers_95_percent_of_the_held_out_samples(scale, less):
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    segment = segment_of(narx, random_signals(narx, 121))
    slow = np.convolve(
        np.random.default_rng(1).standard_normal(len(segment.values) + 19),
        np.ones(20) / 3.0,
        "valid",
    )
    segments = [segment._replace(values=scale * (slow + 0.05 * segment.values))]
    folds = folds_of(segments, 2)
    latents = (0.9, 1.0)
    parts = [candidate_of(narx, n_points=8, size=0.02, seed=seed) for seed in (1, 2)]
    fitted = tuple(FitResult(part, latent, {}) for part, latent in zip(parts, latents, strict=True))
    whole = FitResult(candidate_of(narx, n_points=6, seed=3), 1.1, {})

    def covered(candidate, noise, latent, fold):
        """Held-out samples within the band of functions drawn from the posterior of the online GP
        at all regressors.
        """
        (part,) = fold.parts
        x = np.concatenate([segment.regressors for segment in (*fold.rest, part)])
        start = candidate.initial_model(noise, latent, fold.rest[0].regressors)
        z = candidate.scaling.transform(x)
        kernel = start.hyperparameters.kernel
        own = candidate.points
        known = np.linalg.inv(kernel(own, own) + noise * np.eye(len(own)))
        covariance = kernel(z, z) - kernel(z, own) @ known @ kernel(own, z)
        draws = np.random.default_rng(5).multivariate_normal(
            np.zeros(len(z)), covariance, 200, check_valid="ignore"
        )
        around = np.linalg.solve(candidate.kernel(z, z) + 1e-9 * np.eye(len(z)), draws.T).T
        points = np.vstack([own, z])
        functions = [
            replace(candidate, points=points, weights=np.append(candidate.weights, w))
            for w in around
        ]
        variance = np.var([function.simulate(part) for function in functions], axis=0) + noise
        return np.abs(candidate.simulate(part) - part.values) < 1.96 * np.sqrt(variance)

    def part_covered(share):
        inside = []
        for candidate, before, fold in zip(parts, latents, folds, strict=True):
            inside.append(covered(candidate, noise, share * before, fold))
        return np.mean(np.concatenate(inside))

    found = [
        calibrate(whole, segments, fitted, folds, np.random.default_rng(seed)) for seed in range(5)
    ]
    noise, share = (
        found[0][0],
        np.median([latent for _, latent in found]) / 1.1,
    )  # a processor has its own draws
    assert noise == calibration.estimate_noise(whole.candidate, segments)
    assert part_covered(share) >= 0.88
    assert part_covered(share / less) < 0.75


@pytest.mark.parametrize(("error", "frequency"), [(0.0, 0.0), (3.0, 1 / 300), (0.8, 1 / 1.5)])
def test_the_noise_is_told_from_slow_and_oscillating_errors_of_the_free_run(error, frequency):
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    u = excited(4000)
    candidate = linear_candidate(narx, [0.0, 1.0])
    y = np.append(0.0, u[:-1]) + error * np.sin(frequency * np.arange(4000))
    y += 0.2 * np.random.default_rng(0).standard_normal(4000)
    segments = segments_of(
        samples_of(narx, {"y": y[:2500], "u": u[:2500]}, {"y": y[2500:], "u": u[2500:]})
    )
    assert calibration.estimate_noise(candidate, segments) == pytest.approx(0.04, rel=0.1)
