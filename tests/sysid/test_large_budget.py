"""A budget of hundreds of points, against references from scratch and with plain covariances."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from naive import scratch
from sysid import (
    Either,
    ExceedsMinimum,
    MarginalLogLikelihood,
    MeanRelevance,
    Novelty,
    OnlineGP,
    SquaredExponential,
)

BUDGET = 500
N_SAMPLES = 3000
MIN_REPLACEMENTS = 100  # with fewer, a test says nothing about replaced points

KERNEL = SquaredExponential(1.0, [0.7, 0.9, 1.2])
NOISE_VARIANCE = 0.0025

#: Largest difference from the reference: of means in standard deviations, and of variances in
#: variances of the noise.
TOLERANCE = 1e-8


def nonlinear_stream():
    """Return inputs (n, 3) and targets (n,) of a function that needs hundreds of points."""
    random = np.random.default_rng(0)
    x = random.normal(size=(N_SAMPLES, 3))
    y = np.sin(2 * x[:, 0]) * np.cos(x[:, 1]) + 0.3 * x[:, 1] * x[:, 2]
    return x, y + np.sqrt(NOISE_VARIANCE) * random.normal(size=N_SAMPLES)


def assert_close(means, expected_means, variances, expected_variances):
    """Assert that the predictions are those of a reference."""
    std = np.sqrt(NOISE_VARIANCE)
    np.testing.assert_allclose(means / std, np.divide(expected_means, std), atol=TOLERANCE, rtol=0)
    expected = np.divide(expected_variances, NOISE_VARIANCE)
    np.testing.assert_allclose(variances / NOISE_VARIANCE, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.slow
def test_stored_points_predict_as_from_scratch():
    x, y = nonlinear_stream()
    gp = OnlineGP(
        KERNEL,
        noise_variance=NOISE_VARIANCE,
        budget=BUDGET,
        learning="stored",
        insertion=Either(0.05, 0.05),
        acceptance=ExceedsMinimum(MarginalLogLikelihood()),
        reduction=MarginalLogLikelihood(),
    )
    reports = gp.update_many(x, y)
    assert np.count_nonzero(reports["removed"] >= 0) > MIN_REPLACEMENTS
    mean, variance = gp.predict(x[:100] + 0.1)
    expected_mean, expected_variance = scratch(gp).predict(x[:100] + 0.1)
    assert_close(mean, expected_mean, variance, expected_variance)
    assert gp.repairs["refactorisations"] == 0
    assert gp.repairs["clipped_variances"] == 0


class PosteriorOfValues:
    """Posterior of the function at the stored points, in slot order, as mean and covariance.

    It is conditioned on one measurement after the other by the formula of two Gaussian values.
    Which points are stored is not decided here.
    """

    def __init__(self, diagonal):
        self.diagonal = diagonal  # variance that a stored value has beside that of the function
        self.points = np.zeros((0, KERNEL.n_features))
        self.mean = np.zeros(0)
        self.covariance = np.zeros((0, 0))
        self.factor = None

    def predict(self, x):
        """Return mean and variance of the function at a point, and its covariance with values."""
        if len(self.points) == 0:
            return 0.0, KERNEL.variance, np.zeros(0)
        prior = KERNEL(self.points, x[None])[:, 0]
        weights = cho_solve(self.factor, prior)
        covariance = self.covariance @ weights
        unexplained = KERNEL.variance - prior @ weights
        return weights @ self.mean, unexplained + weights @ covariance, covariance

    def learn(self, x, y, slot):
        """Learn a sample, and store it if it has a slot; return its prediction."""
        mean, variance, covariance = self.predict(x)
        gain = 1.0 / (variance + NOISE_VARIANCE)
        error = y - mean
        self.mean = self.mean + covariance * (gain * error)
        self.covariance = self.covariance - gain * np.outer(covariance, covariance)
        if slot >= 0:
            remaining = NOISE_VARIANCE * gain
            own_mean = mean + variance * gain * error
            self._store(x, slot, own_mean, remaining * variance, remaining * covariance)
        return mean, variance

    def _store(self, x, slot, own_mean, own_variance, covariance):
        """Store a value in a new slot, or in place of another value."""
        n = len(self.points)
        if slot == n:
            self.points = np.vstack([self.points, x])
            self.mean = np.append(self.mean, 0.0)
            self.covariance = np.pad(self.covariance, (0, 1))
            covariance = np.append(covariance, 0.0)
        self.points[slot] = x
        self.mean[slot] = own_mean
        self.covariance[slot] = covariance
        self.covariance[:, slot] = covariance
        self.covariance[slot, slot] = own_variance + self.diagonal
        prior = KERNEL(self.points, self.points) + self.diagonal * np.eye(len(self.points))
        self.factor = cho_factor(prior)


@pytest.mark.slow
def test_every_sample_is_learned_as_with_plain_covariances():
    x, y = nonlinear_stream()
    gp = OnlineGP(
        KERNEL,
        noise_variance=NOISE_VARIANCE,
        budget=BUDGET,
        learning="every_sample",
        insertion=Novelty(0.1),
        acceptance=ExceedsMinimum(MeanRelevance()),
        reduction=MeanRelevance(),
        scale=False,
    )
    reports = gp.update_many(x, y)
    assert np.count_nonzero(reports["removed"] >= 0) > MIN_REPLACEMENTS
    reference = PosteriorOfValues(gp.diagonal)
    expected = [reference.learn(*sample) for sample in zip(x, y, reports["slot"], strict=True)]
    means, variances = np.transpose(expected)
    assert_close(reports["mean"], means, reports["variance"], variances)
    assert gp.repairs["refactorisations"] == 0
    assert gp.repairs["clipped_variances"] == 0
