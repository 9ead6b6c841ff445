"""Rounding errors of long ill-conditioned streams, against an 80-bit Cholesky factorisation."""

import numpy as np
import pytest
from naive import COMPILED, narx_stream
from scipy.linalg import cho_solve, lapack

from sysid import OnlineGP, SquaredExponential
from sysid.criteria import Criterion, MarginalLogLikelihood, PriorEntropy
from sysid.reference import Reference

pytestmark = pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no 80-bit floats on this machine")

LENGTH_SCALES = [1.5] * 4
#: relative error of diag(Ky^-1) that a level of noise allows (about cond eps / 10)
BOUNDS = {1e-2: 1e-13, 1e-4: 1e-11, 1e-6: 1e-9, 1e-8: 1e-7}
each_noise = pytest.mark.parametrize("noise_variance", list(BOUNDS))


class Oldest(Criterion):
    """All points are worth the same, so the oldest leaves: the latest, nearly collinear piece stays."""

    reduction = staticmethod(lambda residual, variance, noise_variance: 1.0)
    acceptance = reduction
    published_reference = Reference.leave_one_out


each_reduction = pytest.mark.parametrize(
    "reduction", [Oldest(), PriorEntropy(), MarginalLogLikelihood()], ids=["fifo", "entropy", "likelihood"]
)


def kernel_matrix(first, second):
    """Squared exponential of unit variance in 80-bit arithmetic."""
    a, b = (np.asarray(x, dtype=np.longdouble) / np.array(LENGTH_SCALES, dtype=np.longdouble) for x in (first, second))
    return np.exp(-0.5 * ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))


def exact_inverse(matrix):
    """Inverse by a textbook Cholesky factorisation in 80-bit arithmetic."""
    n, a = len(matrix), matrix.astype(np.longdouble)
    lower = np.zeros_like(a)
    for j in range(n):
        lower[j, j] = np.sqrt(a[j, j] - lower[j, :j] @ lower[j, :j])
        lower[j + 1 :, j] = (a[j + 1 :, j] - lower[j + 1 :, :j] @ lower[j, :j]) / lower[j, j]
    inverse = np.eye(n, dtype=np.longdouble)
    for i in range(n):
        inverse[i] = (inverse[i] - lower[i, :i] @ inverse[:i]) / lower[i, i]
    return inverse.T @ inverse


def largest_relative(actual, expected):
    return float(np.max(np.abs((actual - expected) / expected)))


def dictionary_matrix(gp):
    """Ky of the stored points as float64 numbers, the matrix whose inverse is asked for."""
    k = gp.kernel(gp.inputs, gp.inputs)
    k[np.diag_indices_from(k)] += gp.noise_variance
    return k


def errors(gp, points):
    """Errors of (1/leave-one-out variance, mean, variance): of the stream, of a fresh factorisation."""
    ky = dictionary_matrix(gp)
    inverse, k = exact_inverse(ky), gp.kernel(points, gp.inputs).astype(np.longdouble)
    q = np.diag(inverse)
    mean, variance = k @ (inverse @ gp.targets), 1.0 - np.einsum("ij,jk,ik->i", k, inverse, k)
    factor, status = lapack.dpotrf(ky, lower=1)
    assert status == 0
    fresh_inverse, _ = lapack.dpotri(factor, lower=1)
    fresh_mean = k.astype(float) @ cho_solve((factor, True), gp.targets)
    fitted = OnlineGP(gp.kernel, noise_variance=gp.noise_variance, budget=gp.budget).fit(gp.inputs, gp.targets)
    our_mean, our_variance = gp.predict(points)
    fit_mean, fit_variance = fitted.predict(points)
    ours = (1.0 / gp.leave_one_out().variance, our_mean, our_variance)
    stream = [largest_relative(ours[0], q), np.abs(ours[1] - mean).max(), np.abs(ours[2] - variance).max()]
    fresh = [
        largest_relative(np.diag(fresh_inverse), q),
        max(np.abs(fresh_mean - mean).max(), np.abs(fit_mean - mean).max()),
        np.abs(fit_variance - variance).max(),
    ]
    return np.array(stream, dtype=float), np.array(fresh, dtype=float)


def exact_scores(reduction, gp, x, y):
    """Reduction scores of the stored points, by slot, with the candidate, in 80-bit arithmetic."""
    inputs, targets = np.vstack([gp.inputs, x]), np.append(gp.targets, y)
    n = len(targets)
    ky = gp.kernel(inputs, inputs)
    ky[np.diag_indices(n)] += gp.noise_variance
    inverse = exact_inverse(ky)
    q, a = np.diag(inverse)[:-1], (inverse @ targets)[:-1]
    if isinstance(reduction, PriorEntropy):
        return -0.5 * np.log(q)
    return 0.5 * (a * a / q - np.log(q) + np.log(2 * np.longdouble(np.pi)))


def follow(reduction, noise_variance, budget, n_replacements, n_checks, n_decisions):
    """Run the stream, check the state `n_checks` times and the decision that follows `n_decisions` times."""
    n = budget + n_replacements
    x, y = narx_stream(n + 1, seed=0, noise_std=np.sqrt(noise_variance))
    gp = OnlineGP(
        SquaredExponential(1.0, LENGTH_SCALES),
        noise_variance=noise_variance,
        budget=budget,
        reduction=reduction,
    )
    checks = set(np.linspace(budget, n, n_checks + 1, dtype=int)[1:])
    decisions = set(np.linspace(budget, n - 1, n_decisions, dtype=int))
    done, worst = 0, []
    for stop in sorted(checks | decisions):
        gp.update_many(x[done:stop], y[done:stop])
        done = stop
        if stop in checks:
            worst.append(errors(gp, x[:: max(1, n // 200)]))
        if stop in decisions:
            judge_decision(gp, reduction, x[stop], y[stop], noise_variance)
            done = stop + 1
    gp.update_many(x[done:], y[done:])
    assert gp.repairs["refactorisations"] == 0
    return np.max(worst, axis=0)


def judge_decision(gp, reduction, x, y, noise_variance):
    """The next replacement is the one that 80-bit arithmetic makes, and its score is right."""
    oldest = gp.age_order[0]
    scores = None if isinstance(reduction, Oldest) else exact_scores(reduction, gp, x, y)
    report = gp.update(x, y)
    if scores is None:
        assert report.removed == oldest
        return
    runner_up = np.partition(scores, 1)[1]
    assert report.removed == int(np.argmin(scores)) or runner_up - scores.min() < 10 * BOUNDS[noise_variance]
    assert report.reduction_score == pytest.approx(float(scores.min()), rel=0, abs=100 * BOUNDS[noise_variance])


def assert_as_good_as_a_fresh_factorisation(stream, fresh, noise_variance):
    """All errors within the level that the noise allows, that of the inverse also near a fresh factor's."""
    assert stream[0] < min(3 * BOUNDS[noise_variance], 20 * (fresh[0] + 1e-12))
    assert np.all(stream[1:] < 3 * (fresh[1:] + BOUNDS[noise_variance]))


@each_noise
@each_reduction
def test_after_2000_replacements_the_inverse_is_as_good_as_new(reduction, noise_variance):
    sizes = {"budget": 50, "n_replacements": 2000, "n_checks": 4, "n_decisions": 10}
    if not COMPILED:
        sizes = {"budget": 10, "n_replacements": 100, "n_checks": 2, "n_decisions": 5}
    stream, fresh = follow(reduction, noise_variance, **sizes)
    assert_as_good_as_a_fresh_factorisation(stream, fresh, noise_variance)


@pytest.mark.slow
@each_noise
@each_reduction
def test_after_100_000_replacements_the_inverse_is_as_good_as_new(reduction, noise_variance):
    sizes = {"budget": 100, "n_replacements": 100_000, "n_checks": 10, "n_decisions": 30}
    if not COMPILED:
        sizes |= {"budget": 20, "n_replacements": 2000}
    stream, fresh = follow(reduction, noise_variance, **sizes)
    assert_as_good_as_a_fresh_factorisation(stream, fresh, noise_variance)


@each_noise
def test_variances_of_a_healthy_stream_are_positive_without_clipping(noise_variance):
    x, y = narx_stream(1500 if COMPILED else 100, seed=1, noise_std=np.sqrt(noise_variance))
    kernel, budget = SquaredExponential(1.0, LENGTH_SCALES), 40 if COMPILED else 10
    gp = OnlineGP(kernel, noise_variance=noise_variance, budget=budget, reduction=Oldest())
    assert (gp.update_many(x, y).variance > 0).all()
    assert (gp.predict(gp.inputs)[1] > 0).all()
    assert (gp.leave_one_out().variance >= noise_variance).all()
    assert gp.repairs["clipped_variances"] == 0


def test_the_80_bit_reference_is_better_than_double_precision():
    x, _ = narx_stream(40, seed=2)
    ky = kernel_matrix(x, x) + 1e-8 * np.eye(40)
    residual = ky @ exact_inverse(ky) - np.eye(40)
    assert np.abs(residual).max() < 1e-7
    double = ky.astype(float) @ np.linalg.inv(ky.astype(float)) - np.eye(40)
    assert np.abs(residual).max() < 0.02 * np.abs(double).max()


def test_dictionary_keeps_the_exact_covariance():
    """The stored matrix never drifts: it is the kernel of the stored points, bit for bit."""
    x, y = narx_stream(400 if COMPILED else 60, seed=3)
    gp = OnlineGP(SquaredExponential(1.0, LENGTH_SCALES), noise_variance=1e-6, budget=12)
    gp.update_many(x, y)
    np.testing.assert_array_equal(gp._state.covariance, dictionary_matrix(gp))
    exact = kernel_matrix(gp.inputs, gp.inputs) + gp.noise_variance * np.eye(12)
    np.testing.assert_allclose(gp._state.covariance, exact.astype(float), rtol=1e-14)
    gp.reduce_to(7)
    np.testing.assert_array_equal(gp._state.covariance[:7, :7], dictionary_matrix(gp))
