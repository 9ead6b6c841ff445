"""Rounding errors of an online GP with a linear part, compared with 80-bit arithmetic.

The points are fixed, so that the posterior of all samples has a formula:
``w ~ N(A^-1 Phi' R^-1 y, A^-1)`` with ``A = I + Phi' R^-1 Phi``, the whitened coordinates Phi
(n, p + N) of the coefficients and of the values at the points, and ``R = diag(noise + novelty)``.
"""

import numpy as np
import pytest

import naive
from coupled_models import naive_kernel
from linear_part_models import naive_coefficient_covariance
from sysid import (
    ErrorThreshold,
    ExceedsMinimum,
    OnlineGP,
    SquaredExponential,
    StableSpline,
    WithLinearPart,
)

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="no 80-bit floats on this machine"
)
N_POINT_FEATURES = 2
PROCESS = SquaredExponential(1.0, [1.5] * N_POINT_FEATURES)
LINEAR = StableSpline([6, 4], [0.5, 0.1], [3.0, 2.0])
KERNEL = WithLinearPart(PROCESS, LINEAR)
N_LINEAR = sum(LINEAR.n_lags)
N_POINTS = 12
N_CHUNK_ROWS = 10_000  # rows of the coordinates that are in memory at the same time
#: Allowed errors in a long stream, by noise variance: of the mean in standard deviations of the
#: noise, and of the variance relative to itself.
LONG_STREAM_TOLERANCES = {1e-2: 1e-6, 1e-4: 1e-6, 1e-6: 1e-6, 1e-8: 1e-5}
#: Allowed errors in an adversarial stream, by noise variance: of the mean relative to the largest
#: target, and of the variance relative to itself. Lags of a thousand standard deviations make the
#: coefficients as ill-conditioned as that.
ADVERSARIAL_TOLERANCES = {1e-2: 1e-12, 1e-4: 1e-9, 1e-6: 1e-7, 1e-8: 1e-5}
STORE_NOTHING = ErrorThreshold(1e300)  # no error is as large


class ExactPosterior:
    """Posterior of the coefficients and of the values at fixed points in 80-bit arithmetic."""

    def __init__(self, noise_variance, diagonal, points):
        self.points = points[:, :N_POINT_FEATURES].astype(np.longdouble)
        covariance = naive_kernel(PROCESS, self.points, self.points)
        covariance = covariance + diagonal * np.eye(len(points))
        self.whitening = naive.exact_inverse_of_lower(naive.exact_cholesky(covariance))
        self.root = naive.exact_cholesky(naive_coefficient_covariance(LINEAR))
        self.noise_variance = noise_variance
        n_coordinates = N_LINEAR + len(points)
        self.information = np.eye(n_coordinates, dtype=np.longdouble)
        self.vector = np.zeros(n_coordinates, dtype=np.longdouble)

    def coordinates(self, x):
        """Return the coordinates Phi (n, p + N) of samples, and their novelty (n,)."""
        x = x.astype(np.longdouble)
        between = naive_kernel(PROCESS, x[:, :N_POINT_FEATURES], self.points)
        of_points = between @ self.whitening.T
        of_lags = x[:, N_POINT_FEATURES:] @ self.root
        novelty = PROCESS.variance - (of_points**2).sum(axis=1)
        return np.hstack([of_lags, of_points]), novelty

    def learn(self, x, y):
        """Learn samples (n, p), (n,)."""
        for start in range(0, len(y), N_CHUNK_ROWS):
            rows = slice(start, start + N_CHUNK_ROWS)
            phi, novelty = self.coordinates(x[rows])
            weighted = phi / (self.noise_variance + novelty)[:, None]
            self.information += weighted.T @ phi
            self.vector += weighted.T @ y[rows].astype(np.longdouble)

    def predict(self, x):
        """Return the mean and the latent variance (n,) at samples."""
        covariance = naive.exact_inverse(self.information)
        phi, novelty = self.coordinates(x)
        variance = novelty + np.einsum("ni,ij,nj->n", phi, covariance, phi)
        return phi @ (covariance @ self.vector), variance


def make_gp(noise_variance, points, targets, **options):
    """Return an online GP whose points are these samples, which it has learned."""
    gp = OnlineGP(
        KERNEL,
        noise_variance=noise_variance,
        budget=len(targets),
        insertion=STORE_NOTHING,
        learning="every_sample",
        scale=False,
        **options,
    )
    return gp.fit(points, targets)


def make_exact(gp, points, targets):
    """Return the exact posterior of the same points, which has learned them as samples."""
    exact = ExactPosterior(gp.noise_variance, gp.diagonal, points)
    exact.learn(points, targets)
    return exact


def errors_of(gp, exact, x):
    """Return the largest error of the mean, and that of the variance relative to itself."""
    mean, variance = gp.predict(x)
    exact_mean, exact_variance = exact.predict(x)
    noisy = exact_variance + gp.noise_variance
    return (
        float(np.max(abs(mean - exact_mean))),
        float(np.max(abs(variance - exact_variance) / noisy)),
    )


def lagged_stream(n, noise_variance, seed=0):
    """Return lags (n, 12) and targets (n,) of an oscillator with a random input.

    The first two features are the last output and input, those of the process. The next ones are
    the lags of both signals.
    """
    generator = np.random.default_rng(seed)
    n_samples = n + 6
    u = generator.normal(size=n_samples)
    noise = np.sqrt(noise_variance) * generator.normal(size=n_samples)
    y = np.zeros(n_samples)
    for k in range(2, n_samples):
        y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + 0.3 * np.tanh(u[k - 1]) + noise[k]
    k = np.arange(6, n_samples)
    columns = [y[k - 1], u[k - 1]]
    columns += [y[k - lag] for lag in range(1, 7)]
    columns += [u[k - lag] for lag in range(1, 5)]
    return np.column_stack(columns), y[k]


LONG_STREAMS = [
    *[(noise_variance, 5000) for noise_variance in LONG_STREAM_TOLERANCES],
    pytest.param(1e-8, 1_000_000, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("noise_variance", "n"), LONG_STREAMS)
def test_rounding_errors_do_not_grow_in_a_long_stream(noise_variance, n):
    x, y = lagged_stream(n, noise_variance)
    gp = make_gp(noise_variance, x[:N_POINTS], y[:N_POINTS])
    exact = make_exact(gp, x[:N_POINTS], y[:N_POINTS])
    gp.update_many(x[N_POINTS:], y[N_POINTS:])
    exact.learn(x[N_POINTS:], y[N_POINTS:])
    mean_error, variance_error = errors_of(gp, exact, x[:: n // 100])
    tolerance = LONG_STREAM_TOLERANCES[noise_variance]
    assert mean_error < tolerance * np.sqrt(noise_variance)
    assert variance_error < tolerance


def adversarial_stream(generator, n):
    """Return features (n, 12) and targets (n,) that are hard to learn.

    Samples are repeated, nearly repeated, collinear, or a thousand times as large. Lags are equal
    or zero. Targets contradict each other or explode.
    """
    x = generator.uniform(-2, 2, (n, N_POINT_FEATURES + N_LINEAR))
    kinds = generator.integers(0, 6, n)
    for k in range(1, n):
        if kinds[k] == 1:
            x[k] = x[generator.integers(k)] + generator.choice([0.0, 1e-12, 1e-8, 1e-4])
        elif kinds[k] == 2:
            x[k] = x[k - 1] + 1e-6
        elif kinds[k] == 3:
            x[k] *= 1e3
        elif kinds[k] == 4:
            x[k] = x[k, 0]
        elif kinds[k] == 5:
            x[k, N_POINT_FEATURES:] = 0.0
    y = np.sin(x[:, 0]) + 0.3 * x[:, N_POINT_FEATURES]
    is_wrong = generator.random(n) < 0.02
    return x, y * np.where(is_wrong, generator.choice([-1.0, 1e3]), 1.0)


N_STREAMS = [8, pytest.param(300, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n_streams", N_STREAMS)
def test_rounding_errors_stay_small_in_adversarial_streams(n_streams):
    for seed in range(n_streams):
        generator = np.random.default_rng(seed)
        noise_variance = generator.choice([*ADVERSARIAL_TOLERANCES])
        x, y = adversarial_stream(generator, 200)
        gp = make_gp(noise_variance, x[:N_POINTS], y[:N_POINTS])
        exact = make_exact(gp, x[:N_POINTS], y[:N_POINTS])
        gp.update_many(x[N_POINTS:], y[N_POINTS:])
        exact.learn(x[N_POINTS:], y[N_POINTS:])
        mean_error, variance_error = errors_of(gp, exact, x[::4])
        tolerance = ADVERSARIAL_TOLERANCES[noise_variance]
        assert mean_error < tolerance * abs(y).max(), seed
        assert variance_error < tolerance, seed


@pytest.mark.parametrize("n_streams", N_STREAMS)
def test_points_that_are_replaced_in_an_adversarial_stream_leave_a_posterior(n_streams):
    for seed in range(n_streams):
        generator = np.random.default_rng(seed)
        criterion = generator.choice([*naive.CRITERIA])
        gp = OnlineGP(
            KERNEL,
            noise_variance=generator.choice([*ADVERSARIAL_TOLERANCES]),
            budget=N_POINTS,
            learning="every_sample",
            acceptance=ExceedsMinimum(criterion),
            reduction=criterion,
        )
        x, y = adversarial_stream(generator, 300)
        record = gp.update_many(x, y)
        assert (record["removed"] >= 0).any()
        assert np.isfinite(record["mean"]).all()
        assert (record["variance"] > 0).all()
        assert gp.repairs["refactorisations"] == 0
        assert gp.repairs["clipped_variances"] == 0
        assert np.linalg.norm(gp.state()["root"], 2) <= 1 + 1e-9
