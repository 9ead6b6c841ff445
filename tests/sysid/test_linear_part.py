"""The linear part of an online GP, its prior and its training, against naive references."""

import numpy as np
import pytest

from linear_part_models import naive_coefficient_covariance
from naive import CRITERIA, criterion_name
from sysid import (
    Diagonal,
    ErrorThreshold,
    ExceedsMinimum,
    OnlineGP,
    SecondOrderSpline,
    SquaredExponential,
    StableSpline,
    TunedCorrelated,
    WithLinearPart,
    log_marginal_likelihood,
)
from sysid.errors import UserError, UserTypeError
from sysid.gp.sparse import Approximation, InducingPoints

DECAYS = (TunedCorrelated(), SecondOrderSpline(), Diagonal())
#: number of features of the process, the first ones
N_POINT_FEATURES = 2
N_LAGS = (4, 3)
N_FEATURES = N_POINT_FEATURES + sum(N_LAGS)
NOISE_VARIANCE = 0.01
PROCESS = SquaredExponential(1.3, [0.8, 1.1])


def make_linear(decay=DECAYS[0], differenced=()):
    """Return the linear part of two signals."""
    return StableSpline(
        N_LAGS,
        variances=[0.7, 0.2],
        memories=[2.0, 5.0],
        level_variances=[0.3] * len(differenced),
        differenced=differenced,
        decay=decay,
    )


def make_kernel(decay=DECAYS[0], differenced=(0,)):
    """Return the kernel of a process with a linear part."""
    return WithLinearPart(PROCESS, make_linear(decay, differenced))


def draw_samples(n, seed=0):
    """Return inputs (n, N_FEATURES) and targets (n,) of a function with a linear part."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, N_FEATURES))
    noise = 0.1 * generator.normal(size=n)
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 2] - 0.2 * x[:, 7] + noise


def naive_process(first, second):
    """Return the covariance of the process alone, between rows of features."""
    difference = first[:, None, :N_POINT_FEATURES] - second[None, :, :N_POINT_FEATURES]
    return 1.3 * np.exp(-0.5 * np.square(difference / [0.8, 1.1]).sum(axis=2))


def naive_covariance_of_coefficients(linear):
    """Return P (p, p); a differenced signal by the formula of its function, coefficient by one."""
    P = np.zeros((linear.n_features, linear.n_features))
    first = 0
    for s, n in enumerate(linear.n_lags):
        is_differenced = s in linear.differenced
        basis = np.eye(n)
        covariance = np.zeros((n, n))
        if is_differenced:  # a phi_1 + sum_i b_i (phi_i - phi_(i+1))
            basis = np.zeros((n, n))
            basis[0, 0] = 1.0
            for i in range(1, n):
                basis[i - 1, i] = 1.0
                basis[i, i] = -1.0
            covariance[0, 0] = linear.level_variances[linear.differenced.index(s)]
        offset = int(is_differenced)
        for i in range(n - offset):
            for j in range(n - offset):
                correlation = naive_correlation(linear.decay, i, j, linear.memories[s])
                covariance[offset + i, offset + j] = linear.variances[s] * correlation
        P[first : first + n, first : first + n] = basis @ covariance @ basis.T
        first += n
    return P


def naive_correlation(decay, i, j, memory):
    """Return the correlation of two coefficients, i, j = 0, 1, ..."""
    later = max(i, j)
    if isinstance(decay, TunedCorrelated):
        return np.exp(-later / memory)
    if isinstance(decay, SecondOrderSpline):
        return 1.5 * np.exp(-(i + j + later) / memory) - 0.5 * np.exp(-3 * later / memory)
    return np.exp(-i / memory) if i == j else 0.0


class TestPrior:
    @pytest.mark.parametrize("differenced", [(), (0,), (0, 1)], ids=str)
    @pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: type(decay).__name__)
    def test_the_covariance_is_that_of_the_formula(self, decay, differenced):
        linear = make_linear(decay, differenced)
        expected = naive_covariance_of_coefficients(linear)
        np.testing.assert_allclose(linear.covariance(), expected, atol=1e-12)
        root = linear.root()
        assert not np.triu(root, 1).any()
        np.testing.assert_allclose(root @ root.T, expected, atol=1e-12)

    def test_two_references_agree(self):
        linear = make_linear()
        np.testing.assert_allclose(
            naive_covariance_of_coefficients(linear), naive_coefficient_covariance(linear)
        )

    def test_very_short_memories_and_long_lags_have_a_root(self):
        linear = StableSpline([100], variances=[1.0], memories=[0.1])
        assert (np.diag(linear.root()) > 0).all()

    @pytest.mark.parametrize("differenced", [(), (0,)], ids=str)
    def test_a_stretched_kernel_is_the_same_function(self, differenced):
        x, _ = draw_samples(6)
        kernel = make_kernel(differenced=differenced)
        factors = np.array([2.0, 0.5, 3.0, 3.0, 3.0, 3.0, 0.1, 0.1, 0.1])
        np.testing.assert_allclose(
            kernel.stretched(factors)(factors * x, factors * x), kernel(x, x)
        )

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"n_lags": []}, "n_lags"),
            ({"n_lags": [3, 0]}, "n_lags"),
            ({"n_lags": [3], "variances": [1.0]}, "1 memories"),
            ({"n_lags": [3], "variances": [-1.0], "memories": [1.0]}, "positive"),
            ({"n_lags": [3, 2], "variances": [1.0], "memories": [1.0]}, "2 variances"),
            ({"n_lags": [3], "differenced": [1]}, "differenced"),
            ({"n_lags": [1], "differenced": [0]}, "at least 2 lags"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_settings_that_do_not_fit_are_refused(self, arguments, words):
        with pytest.raises(UserError, match=words):
            StableSpline(**arguments)

    def test_other_objects_are_refused(self):
        with pytest.raises(UserTypeError, match="decay"):
            StableSpline([3], decay="tuned_correlated")
        with pytest.raises(UserTypeError, match="linear"):
            WithLinearPart(PROCESS, PROCESS)
        with pytest.raises(UserTypeError, match="without linear part"):
            WithLinearPart(make_kernel(), make_linear())
        with pytest.raises(UserError, match="prototypes"):
            WithLinearPart(SquaredExponential(), make_linear())


class TestLikelihood:
    """Marginal likelihoods and their gradients, against dense formulas and finite differences."""

    STEP = 1e-5

    def gradient_by_differences(self, evaluate, n):
        """Return the central differences of a function of n variables at zero."""
        slopes = []
        for shift in self.STEP * np.eye(n):
            slopes.append((evaluate(shift) - evaluate(-shift)) / (2 * self.STEP))
        return np.array(slopes)

    @pytest.mark.parametrize("differenced", [(), (0,)], ids=str)
    @pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: type(decay).__name__)
    def test_of_the_exact_process(self, decay, differenced):
        x, y = draw_samples(40)
        kernel = make_kernel(decay, differenced)
        logs = kernel.log_hyperparameters()

        def evaluate(shift):
            changed = kernel.with_log_hyperparameters(logs + shift[:-1])
            return log_marginal_likelihood(changed, NOISE_VARIANCE * np.exp(shift[-1]), x, y).value

        P = naive_covariance_of_coefficients(kernel.linear)
        lags = x[:, N_POINT_FEATURES:]
        S = naive_process(x, x) + lags @ P @ lags.T + NOISE_VARIANCE * np.eye(40)
        fit = y @ np.linalg.solve(S, y)
        expected = -0.5 * (fit + np.linalg.slogdet(S)[1] + 40 * np.log(2 * np.pi))
        found = log_marginal_likelihood(kernel, NOISE_VARIANCE, x, y)
        assert found.value == pytest.approx(expected, rel=1e-9)
        np.testing.assert_allclose(
            found.gradient, self.gradient_by_differences(evaluate, len(logs) + 1), rtol=1e-5
        )

    @pytest.mark.parametrize("approximation", Approximation, ids=lambda value: value.name)
    @pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: type(decay).__name__)
    def test_of_inducing_points(self, decay, approximation):
        x, y = draw_samples(60)
        points = x[:9]
        kernel = make_kernel(decay)
        logs = kernel.log_hyperparameters()

        def likelihood(shift):
            changed = kernel.with_log_hyperparameters(logs + shift[:-1])
            noise = NOISE_VARIANCE * np.exp(shift[-1])
            inducing = InducingPoints(changed, noise, points, approximation, block_size=17)
            return inducing.log_likelihood(x, y)

        P = naive_covariance_of_coefficients(kernel.linear)
        lags = x[:, N_POINT_FEATURES:]
        Kuu = naive_process(points, points) + 1e-8 * 1.3 * np.eye(9)
        Kfu = naive_process(x, points)
        Q = Kfu @ np.linalg.solve(Kuu, Kfu.T)
        unexplained = 1.3 - np.diag(Q)
        noise = NOISE_VARIANCE + approximation.value * unexplained
        S = Q + lags @ P @ lags.T + np.diag(noise)
        fit = y @ np.linalg.solve(S, y)
        expected = -0.5 * (fit + np.linalg.slogdet(S)[1] + 60 * np.log(2 * np.pi))
        expected -= (1 - approximation.value) * unexplained.sum() / (2 * NOISE_VARIANCE)

        found = likelihood(np.zeros(len(logs) + 1))
        assert found.value == pytest.approx(expected, rel=1e-8)
        by_differences = self.gradient_by_differences(
            lambda shift: likelihood(shift).value, len(logs) + 1
        )
        np.testing.assert_allclose(found.gradient, by_differences, rtol=1e-5, atol=1e-4)


def make_gp(budget=20, scale=False, **settings):
    """Return an online GP with a linear part that has learned nothing."""
    return OnlineGP(
        make_kernel(),
        noise_variance=NOISE_VARIANCE,
        budget=budget,
        learning="every_sample",
        scale=scale,
        **settings,
    )


class TestLearning:
    def test_without_points_it_is_regularised_least_squares_after_every_sample(self):
        """All that the process explains is noise then."""
        never = ErrorThreshold(1e9)
        gp = make_gp(insertion=never)
        x, y = draw_samples(60)
        lags = x[:, N_POINT_FEATURES:]
        P = naive_covariance_of_coefficients(gp.kernel.linear)
        noise = NOISE_VARIANCE + 1.3
        for k in range(1, 60):
            gp.update(x[k - 1], y[k - 1])
            S = lags[:k] @ P @ lags[:k].T + noise * np.eye(k)
            gain = np.linalg.solve(S, lags[:k] @ P @ lags[k])
            mean, variance = gp.predict(x[[k]])
            assert mean[0] == pytest.approx(gain @ y[:k], rel=1e-9, abs=1e-12)
            latent = 1.3 + lags[k] @ P @ lags[k] - gain @ (lags[:k] @ P @ lags[k])
            assert variance[0] == pytest.approx(latent, rel=1e-9)
        assert gp.n_points == 0

    def test_with_all_points_it_is_the_exact_process(self):
        gp = make_gp(budget=60)
        x, y = draw_samples(60)
        gp.update_many(x[:50], y[:50])
        P = naive_covariance_of_coefficients(gp.kernel.linear)
        lags = x[:, N_POINT_FEATURES:]
        K = naive_process(x, x) + lags @ P @ lags.T
        gain = np.linalg.solve(K[:50, :50] + NOISE_VARIANCE * np.eye(50), K[:50, 50:]).T
        mean, variance = gp.predict(x[50:])
        # the points carry a hundredth of the noise variance
        np.testing.assert_allclose(mean, gain @ y[:50], atol=2e-2)
        np.testing.assert_allclose(variance, np.diag(K[50:, 50:] - gain @ K[:50, 50:]), rtol=0.05)

    @pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
    def test_many_replacements_leave_a_posterior(self, criterion):
        gp = make_gp(scale=True, reduction=criterion, acceptance=ExceedsMinimum(criterion))
        x, y = draw_samples(1500)
        record = gp.update_many(x, y)
        assert (record["removed"] >= 0).sum() > 30
        assert gp.drift() < 1e-12
        root = gp.state()["root"]
        assert np.linalg.norm(root, 2) <= 1 + 1e-12
        mean, _ = gp.predict(x)
        assert np.mean((mean - y) ** 2) < 0.4 * np.var(y)

    def test_one_by_one_gives_the_bits_of_many_at_once(self):
        x, y = draw_samples(300)
        at_once = make_gp(scale=True, forgetting=100.0)
        one_by_one = make_gp(scale=True, forgetting=100.0)
        at_once.update_many(x, y)
        for row, target in zip(x, y, strict=True):
            one_by_one.update(row, target)
        for name, values in at_once.state().items():
            np.testing.assert_array_equal(one_by_one.state()[name], values, err_msg=name)

    def test_a_restored_gp_continues_with_the_same_bits(self):
        x, y = draw_samples(300)
        gp = make_gp(scale=True, forgetting=100.0)
        gp.update_many(x[:200], y[:200])
        state = gp.state()
        restored = OnlineGP(
            gp.kernel,
            noise_variance=gp.noise_variance,
            budget=20,
            learning="every_sample",
            scale=True,
            forgetting=100.0,
        )
        restored.restore(state, state["counts"])
        expected = gp.update_many(x[200:], y[200:])
        assert restored.update_many(x[200:], y[200:]).tobytes() == expected.tobytes()

    @pytest.mark.parametrize("factor", [1.0, 1.3])
    def test_new_hyperparameters_keep_what_was_learned(self, factor):
        """With a prior of another scale, the likelihood of the samples stays: naive formula."""
        gp = make_gp()
        x, y = draw_samples(200)
        gp.update_many(x, y)
        other = gp.with_hyperparameters(gp.kernel.scaled(factor), gp.noise_variance)
        np.testing.assert_allclose(
            other.predict(x)[0], naive_carry_over(gp, other, x), rtol=1e-7, atol=1e-9
        )

    def test_coefficients_that_are_known_to_many_digits_survive_new_hyperparameters(self):
        """The noise is 1e-14 of what the linear part explains."""
        generator = np.random.default_rng(3)
        x = generator.normal(size=(400, N_FEATURES))
        y = 2.0 * x[:, 2] - x[:, 3]
        gp = OnlineGP(
            WithLinearPart(SquaredExponential(1e-8, [3.0, 3.0]), make_linear()),
            noise_variance=1e-14,
            budget=20,
            learning="every_sample",
            scale=False,
        )
        gp.update_many(x, y)
        error_before = np.abs(gp.predict(x)[0] - y).max()
        carried = gp.with_hyperparameters(gp.kernel.scaled(1.1), gp.noise_variance)
        error_after = np.abs(carried.predict(x)[0] - y).max()
        assert error_after < 3 * error_before + 1e-9

    def test_only_stored_samples_cannot_teach_it(self):
        with pytest.raises(UserError, match="every_sample"):
            OnlineGP(make_kernel(), noise_variance=NOISE_VARIANCE, budget=20)


def naive_carry_over(gp, other, x):
    """Return the means of `other`: the likelihood under the old prior times the new prior.

    z are the coefficients and the values at the points, with the posterior N(m, V) and the priors
    N(0, A) and N(0, B): the new posterior precision is ``V^-1 - A^-1 + B^-1``.
    """
    points = gp.inputs
    P = naive_covariance_of_coefficients(gp.kernel.linear)
    n_linear = len(P)
    ratio = other.kernel.kernel.variance / gp.kernel.kernel.variance

    def prior(process_factor, diagonal):
        covariance = np.zeros((n_linear + len(points), n_linear + len(points)))
        covariance[:n_linear, :n_linear] = process_factor * P
        between = process_factor * naive_process(points, points)
        covariance[n_linear:, n_linear:] = between + diagonal * np.eye(len(points))
        return covariance

    old_prior = prior(1.0, gp.diagonal)
    new_prior = prior(ratio, other.diagonal)
    state = gp.state()
    by_age = np.concatenate([np.arange(n_linear), n_linear + state["order"]])
    upper = np.zeros_like(old_prior)
    upper[:n_linear, :n_linear] = gp.kernel.linear.root().T
    upper[n_linear:, n_linear:] = state["cholesky"]
    whitened = np.concatenate([state["linear"], state["whitened"]])
    mean = np.empty(len(whitened))
    mean[by_age] = upper.T @ whitened
    half = state["root"] @ upper
    covariance = np.empty_like(old_prior)
    covariance[np.ix_(by_age, by_age)] = half.T @ half
    precision = np.linalg.inv(covariance)
    new_precision = precision - np.linalg.inv(old_prior) + np.linalg.inv(new_prior)
    new_mean = np.linalg.solve(new_precision, precision @ mean)
    of_points = (
        ratio
        * naive_process(x, points)
        @ np.linalg.solve(new_prior[n_linear:, n_linear:], new_mean[n_linear:])
    )
    return x[:, N_POINT_FEATURES:] @ new_mean[:n_linear] + of_points
