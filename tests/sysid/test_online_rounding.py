"""Rounding errors of OnlineGP on long ill-conditioned streams, compared with 80-bit arithmetic."""

import numpy as np
import pytest

import naive
from sysid import MarginalLogLikelihood, OnlineGP, PriorEntropy, SquaredExponential

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="no 80-bit floats on this machine"
)
COLLINEAR = SquaredExponential(1.0, [1.5] * 4)

#: Allowed relative error of diag(Ky^-1) by noise variance: about cond(Ky) eps / 10.
INVERSE_TOLERANCES = {1e-2: 1e-13, 1e-4: 1e-11, 1e-6: 1e-9, 1e-8: 1e-7}


def noisy_covariance(gp, inputs):
    """Return Ky in double precision, the matrix whose inverse is asked for."""
    return gp.kernel(inputs, inputs) + gp.noise_variance * np.eye(len(inputs))


def unfitted(gp):
    """Return a GP of the same prior and budget, which has learned nothing."""
    return OnlineGP(gp.kernel, noise_variance=gp.noise_variance, budget=gp.budget)


def rounding_errors(gp, points, fresh=None):
    """Return the largest errors of 1/leave-one-out variance (relative), mean and variance.

    The first row (3,) has those of the GP, the second those of a fresh factorisation of its points
    by `fresh`, which is `unfitted` by default.
    """
    inverse = naive.exact_inverse(noisy_covariance(gp, gp.inputs))
    cross = gp.kernel(points, gp.inputs).astype(np.longdouble)
    exact_precision = np.diag(inverse)
    exact_mean = cross @ (inverse @ gp.targets)
    exact_variance = 1.0 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    fresh = fresh or unfitted(gp)
    fresh.fit(gp.inputs, gp.targets)
    errors = []
    for one in (gp, fresh):
        precision = 1.0 / one.leave_one_out().variance
        mean, variance = one.predict(points)
        errors.append(
            [
                np.abs(precision / exact_precision - 1).max(),
                np.abs(mean - exact_mean).max(),
                np.abs(variance - exact_variance).max(),
            ]
        )
    return np.array(errors, dtype=float)


def assert_next_replacement_is_exact(gp, x, y):
    """Learn a sample; assert that 80-bit arithmetic removes the same point with the same score."""
    oldest = gp.age_order[0]
    tolerance = INVERSE_TOLERANCES[gp.noise_variance]
    targets = np.append(gp.targets, y)
    inverse = naive.exact_inverse(noisy_covariance(gp, np.vstack([gp.inputs, x])))
    q = np.diag(inverse)[:-1]
    a = (inverse @ targets)[:-1]
    report = gp.update(x, y)
    if isinstance(gp.reduction, naive.Oldest):
        assert report.removed == oldest
        return
    if isinstance(gp.reduction, PriorEntropy):
        scores = -0.5 * np.log(q)
    else:
        scores = 0.5 * (a * a / q - np.log(q) + np.log(2 * np.pi))
    lowest, runner_up = np.partition(scores, 1)[:2]
    is_tie = runner_up - lowest < 10 * tolerance
    assert is_tie or report.removed == int(np.argmin(scores))
    assert report.reduction_score == pytest.approx(float(lowest), rel=0, abs=100 * tolerance)


@pytest.mark.parametrize(
    ("budget", "n_replacements", "n_checks", "n_decisions"),
    [(50, 2000, 4, 10), pytest.param(100, 100_000, 10, 30, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("noise_variance", INVERSE_TOLERANCES)
@pytest.mark.parametrize(
    "reduction",
    [naive.Oldest(), PriorEntropy(), MarginalLogLikelihood()],
    ids=naive.criterion_name,
)
def test_after_many_replacements_the_inverse_is_as_good_as_new(
    reduction, noise_variance, budget, n_replacements, n_checks, n_decisions
):
    n = budget + n_replacements
    tolerance = INVERSE_TOLERANCES[noise_variance]
    x, y = naive.narx_stream(n + 1, seed=0, noise_std=np.sqrt(noise_variance))
    gp = OnlineGP(COLLINEAR, noise_variance=noise_variance, budget=budget, reduction=reduction)
    checks = set(np.linspace(budget, n, n_checks + 1, dtype=int)[1:])
    decisions = set(np.linspace(budget, n - 1, n_decisions, dtype=int))
    n_learned = 0
    errors = []
    for stop in sorted(checks | decisions):
        reports = gp.update_many(x[n_learned:stop], y[n_learned:stop])
        assert (reports["variance"] > 0).all()
        n_learned = stop
        if stop in checks:
            errors.append(rounding_errors(gp, x[:: max(1, n // 200)]))
        if stop in decisions:
            assert_next_replacement_is_exact(gp, x[stop], y[stop])
            n_learned = stop + 1
    stream, fresh = np.max(errors, axis=0)
    # processors round differently: up to 3.3 times the tolerance was seen
    assert stream[0] < 5 * tolerance
    assert stream[0] < 20 * (fresh[0] + 1e-12)
    assert np.all(stream[1:] < 3 * (fresh[1:] + tolerance))
    assert (gp.predict(gp.inputs)[1] > 0).all()
    assert (gp.leave_one_out().variance >= noise_variance).all()
    assert gp.repairs["refactorisations"] == 0
    assert gp.repairs["clipped_variances"] == 0
    # the stored covariance is exact, bit for bit
    np.testing.assert_array_equal(gp._state.covariance, noisy_covariance(gp, gp.inputs))


def test_a_plant_that_drifts_without_noise_is_rounded_as_from_scratch_and_forgetting_helps():
    x, y = naive.narx_stream(4000, seed=0)
    y = y + np.linspace(0, 3, len(y)) * np.tanh(x[:, -1])
    mean_squared_errors = []
    largest_weights = []
    for memory in (None, 200.0):
        gp = OnlineGP(COLLINEAR, noise_variance=1e-8, budget=50, forgetting=memory)
        reports = gp.update_many(x, y)
        late_errors = (reports["mean"] - y)[-1000:]
        mean_squared_errors.append(np.mean(late_errors**2))
        largest_weights.append(abs(gp.state()["weights"]).max())
        stream, fresh = rounding_errors(gp, x[::20])
        assert stream[1] < 5 * fresh[1]
        assert 5 * fresh[1] < np.sqrt(mean_squared_errors[-1])
    without, with_forgetting = largest_weights
    assert without > 3 * with_forgetting
    assert 3 * with_forgetting > 1e5
    assert mean_squared_errors[0] > 3 * mean_squared_errors[1]


def adversarial_stream(random, n):
    """Return regressors (n, 4) and targets (n,) that are hard to learn.

    Points are repeated, nearly repeated or collinear, or jump in scale. Targets drift, contradict
    each other or explode.
    """
    x = random.uniform(-2, 2, (n, 4))
    old = random.integers(0, np.maximum(np.arange(n), 1))
    kind = random.integers(0, 6, n)
    distances = np.array([0.0, 1e-12, 1e-8, 1e-4])[random.integers(0, 4, n - 1)]
    for k in range(1, n):
        match kind[k]:
            case 1:
                x[k] = x[old[k]] + distances[k - 1]
            case 2:
                x[k] = x[k - 1] + 1e-6
            case 3:
                x[k] *= 1e3
            case 4:
                x[k] = x[k, 0]
            case 5:
                x[k, 2:] = 0.0
    y = np.sin(x[:, 0]) + random.choice([0.0, 10.0]) * np.linspace(0, 1, n)
    is_wrong = random.random(n) < 0.02
    return x, y * np.where(is_wrong, random.choice([-1.0, 1e6]), 1.0)


def error_ratios(seed):
    """Return the errors of an adversarial stream relative to those of a fresh factorisation.

    They are the largest ones (3,) of inverse, mean and variance on the way.
    """
    random = np.random.default_rng(seed)
    noise_variance = random.choice([*INVERSE_TOLERANCES])
    reduction = random.choice([naive.Oldest(), *naive.CRITERIA])
    budget = int(random.integers(2, 25))
    gp = OnlineGP(COLLINEAR, noise_variance=noise_variance, budget=budget, reduction=reduction)
    x, y = adversarial_stream(random, 200)
    fresh = unfitted(gp)
    errors = []
    for k in range(0, 200, 20):
        gp.update_many(x[k : k + 20], y[k : k + 20])
        errors.append(rounding_errors(gp, x[::4], fresh))
    stream, fresh = np.max(errors, axis=0)
    ratios = stream / (fresh + 1e-12 * np.array([1.0, abs(y).max(), 1.0]))
    assert (ratios <= 100).all(), (seed, noise_variance, reduction, stream, fresh)
    assert gp.repairs["refactorisations"] == 0
    assert gp.repairs["clipped_variances"] == 0
    return ratios


@pytest.mark.parametrize("n_streams", [20, pytest.param(1020, marks=pytest.mark.slow)])
def test_adversarial_streams_stay_within_20_times_a_fresh_factorisation(n_streams):
    """One stream in a thousand may exceed this for the inverse.

    Means and variances, also those far from all points, stay within 100 times.
    """
    ratios = np.array([error_ratios(seed) for seed in range(n_streams)])
    assert np.mean(ratios[:, 0] > 20) <= 1e-3


def test_the_80_bit_reference_is_better_than_double_precision():
    x, _ = naive.narx_stream(40, seed=2)
    ky = COLLINEAR(x, x) + 1e-8 * np.eye(40)
    residual = ky @ naive.exact_inverse(ky) - np.eye(40)
    residual_of_double = ky @ np.linalg.inv(ky) - np.eye(40)
    assert np.abs(residual).max() < 0.02 * np.abs(residual_of_double).max()
