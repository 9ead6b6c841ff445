"""Learning from every sample: compared with plain Gaussian conditioning and with batch FITC."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import naive
import sysid
from sysid import (
    ErrorThreshold,
    ExceedsMinimum,
    Identification,
    Learning,
    MeanRelevance,
    Model,
    Narx,
    Novelty,
    OnlineGP,
    Settings,
    SquaredExponential,
)
from sysid.gp.dictionary import MAX_STANDARDISED_SQUARE, SCALE_INTERVAL
from sysid.gp.online import (
    DIAGONAL_TO_NOISE,
    EXPECTED_CLIPPED_SQUARE,
    INITIAL_SCALE_MEMORY,
    MAX_SCALE_MEMORY,
    MIN_ABSORPTION_BLOCK_ROWS,
)
from sysid.gp.training import Points

KERNEL = SquaredExponential(1.0, [1.0, 2.0])
NOISE_VARIANCE = 0.01
CLOSE = {"rtol": 1e-8, "atol": 1e-10}
NARX = Narx({"y": 1}, {"u": 1})  # two features
STORE_NOTHING = ErrorThreshold(1e9)


def make_stream(n, seed=0, noise_variance=NOISE_VARIANCE):
    """Return inputs (n, 2) and targets (n,) of a nonlinear function with noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    noise = np.sqrt(noise_variance) * rng.normal(size=n)
    return x, np.sin(x[:, 0]) * x[:, 1] + noise


TEST_POINTS, _ = make_stream(40, 9)


def make_gp(
    budget=15,
    *,
    kernel=KERNEL,
    noise_variance=NOISE_VARIANCE,
    insertion=None,
    criterion=None,
    **settings,
):
    """Return an online GP that learns every sample and stores points by their novelty."""
    criterion = criterion or MeanRelevance()
    defaults = {"learning": "every_sample"}
    return OnlineGP(
        kernel,
        noise_variance=noise_variance,
        budget=budget,
        insertion=insertion or Novelty(),
        acceptance=ExceedsMinimum(criterion),
        reduction=criterion,
        **defaults | settings,
    )


def prior_of_values(kernel, noise_variance, points):
    """Return the prior covariance of the values z at points."""
    tau = DIAGONAL_TO_NOISE * noise_variance
    return kernel(points, points) + tau * np.eye(len(points))


class PlainPosterior:
    """Posterior of the values ``z = f(points) + e'`` by textbook conditioning.

    It keeps the mean and the covariance of z, and inverts dense matrices.
    """

    def __init__(self, kernel, noise, points):
        self.kernel = kernel
        self.noise = noise
        self.points = np.array(points).reshape(-1, kernel.n_features)
        self.tau = DIAGONAL_TO_NOISE * noise  # variance of e'
        self.mean = np.zeros(len(self.points))
        self.covariance = self.prior()

    def prior(self):
        """Return the prior covariance of z."""
        return prior_of_values(self.kernel, self.noise, self.points)

    def project(self, x):
        """Return the weights of z that give the function at x, and the variance beyond z."""
        k = self.kernel(self.points, x[None])[:, 0]
        q = np.linalg.solve(self.prior(), k)
        return q, float(self.kernel.diagonal(x[None])[0] - k @ q)

    def predict(self, x):
        """Return mean, latent variance and novelty at one point."""
        q, novelty = self.project(x)
        return q @ self.mean, novelty + q @ self.covariance @ q, novelty

    def predict_means(self, points):
        """Return the means at several points."""
        return np.array([self.predict(x)[0] for x in points])

    def learn(self, x, y):
        """Condition on one sample."""
        q, novelty = self.project(x)
        h = self.covariance @ q
        s = novelty + q @ h + self.noise
        self.mean = self.mean + h * (y - q @ self.mean) / s
        self.covariance = self.covariance - np.outer(h, h) / s

    def learn_many(self, x, y):
        """Condition on several samples, one after the other."""
        for point, target in zip(x, y, strict=True):
            self.learn(point, target)

    def add_point(self, x):
        """Add the value at x to z, before the sample there is learned."""
        q, novelty = self.project(x)
        h = self.covariance @ q
        corner = np.atleast_1d(novelty + self.tau + q @ h)
        self.mean = np.append(self.mean, q @ self.mean)
        self.covariance = np.block([[self.covariance, h[:, None]], [h[None], corner[:, None]]])
        self.points = np.vstack([self.points, x])

    def remove_point(self, i):
        """Marginalise value i of z."""
        is_kept = np.arange(len(self.points)) != i
        self.points = self.points[is_kept]
        self.mean = self.mean[is_kept]
        self.covariance = self.covariance[np.ix_(is_kept, is_kept)]

    def left_out(self):
        """Return residual and variance of the mean of each value, given those of the others."""
        inverse = np.linalg.inv(self.prior())
        return (inverse @ self.mean) / np.diag(inverse), 1.0 / np.diag(inverse)

    def without_last(self):
        """Return the posterior without the point that was added last."""
        other = PlainPosterior(self.kernel, self.noise, self.points[:-1])
        other.mean = self.mean[:-1]
        return other

    def rescale(self, factor):
        """Multiply all variances."""
        self.kernel = self.kernel.scaled(factor)
        self.noise = factor * self.noise
        self.tau = factor * self.tau
        self.covariance = factor * self.covariance


def replace_point(gp, plain):
    """Remove the candidate, the last point, or the one with the lowest score if it is accepted.

    Return whether the candidate is accepted.
    """
    criterion = type(gp.reduction)
    residuals, variances = plain.left_out()
    candidate_score = criterion.acceptance(residuals[-1], variances[-1], plain.tau)
    minimum = min(
        criterion.acceptance(residual, variance, plain.tau)
        for residual, variance in zip(*plain.without_last().left_out(), strict=True)
    )
    is_accepted = candidate_score > minimum
    if is_accepted:
        stored_scores = [
            criterion.reduction(residual, variance, plain.tau)
            for residual, variance in zip(residuals[:-1], variances[:-1], strict=True)
        ]
        plain.remove_point(int(np.argmin(stored_scores)))
    else:
        plain.remove_point(gp.budget)
    return is_accepted


def learn_plainly(gp, x, y):
    """Learn a stream by a `PlainPosterior` with the settings of a GP.

    Return (mean, latent variance) and (inserted, accepted, removed) of each sample, and the
    posterior.
    """
    plain = PlainPosterior(gp.kernel, gp.noise_variance, gp.inputs)
    predictions = []
    decisions = []
    sum_of_squares = 0.0
    memory = INITIAL_SCALE_MEMORY
    for number, (point, target) in enumerate(zip(x, y, strict=True), start=1):
        mean, latent, novelty = plain.predict(point)
        error = target - mean
        square = error**2 / (latent + plain.noise)
        sum_of_squares += min(square, MAX_STANDARDISED_SQUARE)
        parameters = gp.insertion.parameters()
        is_inserted = bool(gp.insertion.formula(error, latent, novelty / plain.noise, parameters))
        is_accepted = is_inserted
        is_removed = False
        if is_inserted:
            plain.add_point(point)
        plain.learn(point, target)
        if len(plain.points) > gp.budget:
            is_accepted = replace_point(gp, plain)
            is_removed = is_accepted
        predictions.append((mean, latent))
        decisions.append((is_inserted, is_accepted, is_removed))
        if number % SCALE_INTERVAL == 0:
            expected_sum = memory + sum_of_squares / EXPECTED_CLIPPED_SQUARE
            plain.rescale(expected_sum / (memory + SCALE_INTERVAL))
            sum_of_squares = 0.0
            memory = min(memory + SCALE_INTERVAL, MAX_SCALE_MEMORY)
    return np.array(predictions), np.array(decisions), plain


@pytest.mark.parametrize("criterion", naive.CRITERIA, ids=naive.criterion_name)
@pytest.mark.parametrize(
    "insertion", [Novelty(0.05), ErrorThreshold(0.15)], ids=["novelty", "error"]
)
def test_predictions_decisions_and_scale_are_those_of_plain_conditioning(criterion, insertion):
    x, y = make_stream(250)
    gp = make_gp(12, insertion=insertion, criterion=criterion)
    predictions, expected_decisions, plain = learn_plainly(gp, x, y)
    expected_mean, expected_variance = predictions.T
    reports = gp.update_many(x, y)
    decisions = [reports["inserted"], reports["accepted"], reports["removed"] >= 0]
    np.testing.assert_array_equal(np.stack(decisions, axis=1), expected_decisions)
    np.testing.assert_allclose(reports["mean"], expected_mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(reports["variance"], expected_variance, rtol=1e-6, atol=1e-9)
    assert 12 < reports["accepted"].sum() < 250
    assert gp.noise_variance == pytest.approx(plain.noise, rel=1e-9)
    mean, _ = gp.predict(TEST_POINTS)
    np.testing.assert_allclose(mean, plain.predict_means(TEST_POINTS), rtol=1e-6, atol=1e-7)
    assert gp.drift() < 1e-9


class BatchFitc:
    """FITC posterior of samples, all at once, by the weights w of whitened features.

    ``w ~ N(A^-1 Phi R^-1 y, A^-1)``, ``A = I + Phi R^-1 Phi'``, ``R = diag(noise + novelty)``.
    """

    def __init__(self, kernel, noise, points, x, y):
        self.kernel = kernel
        self.points = points
        self.lower = np.linalg.cholesky(prior_of_values(kernel, noise, points))
        phi, novelty = self.features(x)
        variance = noise + np.maximum(novelty, 0.0)
        self.precision = np.eye(len(points)) + (phi / variance) @ phi.T
        self.weights = np.linalg.solve(self.precision, phi @ (y / variance))

    def features(self, x):
        """Return the features Phi of points, and the variance that they leave unexplained."""
        phi = np.linalg.solve(self.lower, self.kernel(self.points, x))
        return phi, self.kernel.diagonal(x) - (phi**2).sum(axis=0)

    def predict(self, x):
        """Return the mean and the latent variance at points."""
        phi, novelty = self.features(x)
        variance = novelty + (phi * np.linalg.solve(self.precision, phi)).sum(axis=0)
        return phi.T @ self.weights, variance


@pytest.mark.parametrize("name", naive.FAMILY)
def test_with_fixed_points_it_is_the_batch_fitc_posterior(name):
    kernel = naive.FAMILY[name]
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (90, 3))
    y = rng.normal(size=90)
    test_points = rng.uniform(-1, 1, (20, 3))
    gp = make_gp(15, kernel=kernel, insertion=STORE_NOTHING).fit(x[:15], y[:15])
    gp.update_many(x[15:], y[15:])
    mean, variance = gp.predict(test_points)
    batch = BatchFitc(kernel, NOISE_VARIANCE, x[:15], x, y)
    expected_mean, expected_variance = batch.predict(test_points)
    np.testing.assert_allclose(mean, expected_mean, **CLOSE)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("noise_variance", [1e-2, 1e-6])
def test_rounding_does_not_grow(noise_variance):
    """The stream is long, and its points are fixed at the start."""
    x, y = make_stream(20_000, noise_variance=noise_variance)
    gp = make_gp(20, noise_variance=noise_variance, insertion=STORE_NOTHING, scale=False)
    gp.fit(x[:20], y[:20])
    gp.update_many(x[20:], y[20:])
    mean, _ = gp.predict(TEST_POINTS)
    expected, _ = BatchFitc(KERNEL, noise_variance, x[:20], x, y).predict(TEST_POINTS)
    assert np.max(abs(mean - expected)) < 1e-6 * np.sqrt(noise_variance)


def learn_one_by_one(gp, x, y):
    """Learn samples by `update`, and return the GP and its reports."""
    return gp, [tuple(gp.update(*sample)) for sample in zip(x, y, strict=True)]


def learn_on_in_a_copy(gp, x, y):
    """Learn samples by a GP and then by its copy, and return the copy and all reports."""
    first = gp.update_many(x[:130], y[:130])
    copy = gp.copy()
    second = copy.update_many(x[130:], y[130:])
    return copy, [*first.tolist(), *second.tolist()]


@pytest.mark.parametrize("learn", [learn_one_by_one, learn_on_in_a_copy])
def test_one_by_one_in_blocks_and_from_a_copy_are_the_same_bits(learn):
    x, y = make_stream(350)
    expected = make_gp(insertion=ErrorThreshold(0.15))
    expected_reports = expected.update_many(x, y)
    gp, reports = learn(make_gp(insertion=ErrorThreshold(0.15)), x, y)
    np.testing.assert_array_equal(reports, expected_reports.tolist())
    np.testing.assert_equal(gp.state(), expected.state())
    assert gp.noise_variance == expected.noise_variance
    assert gp.kernel == expected.kernel


def test_a_sample_that_is_rejected_as_a_point_is_learned_all_the_same():
    x, y = make_stream(300)
    gp = make_gp(10, insertion=sysid.Always())
    gp.update_many(x[:90], y[:90])
    for point, target in zip(x[90:], y[90:], strict=True):
        state = gp.state()
        counts = list(gp._state.counts)
        report = gp.update(point, target)
        if report.inserted and not report.accepted:
            break
    else:
        pytest.fail("no sample was rejected")
    never_stores = make_gp(10, insertion=STORE_NOTHING)
    never_stores.restore(state, counts)
    never_stores.update(point, target)
    np.testing.assert_allclose(gp.predict(TEST_POINTS), never_stores.predict(TEST_POINTS), **CLOSE)


def moments_of_points(gp):
    """Return the mean and the covariance of the values z of the points, by age."""
    state = gp.state()
    upper = state["cholesky"]
    root = state["root"]
    assert not np.tril(root, -1).any()
    return upper.T @ state["whitened"], upper.T @ root.T @ root @ upper


def test_a_point_that_leaves_is_marginalised():
    gp = make_gp(12, insertion=ErrorThreshold(0.1))
    gp.update_many(*make_stream(90))
    mean_before, covariance_before = moments_of_points(gp)
    numbers_before = gp.sample_numbers[gp.age_order]
    gp.reduce_to(7)
    kept = np.flatnonzero(np.isin(numbers_before, gp.sample_numbers))
    assert len(kept) == 7
    mean, covariance = moments_of_points(gp)
    np.testing.assert_allclose(mean, mean_before[kept], **CLOSE)
    np.testing.assert_allclose(covariance, covariance_before[np.ix_(kept, kept)], **CLOSE)


# --- other hyper-parameters -----------------------------------------------------------------------

NEW_KERNEL = SquaredExponential(1.7, [1.2, 1.6])
NEW_NOISE = 0.02


def test_other_hyperparameters_carry_the_likelihood_of_the_values_over():
    """The new posterior of z is the old posterior / old prior x new prior, by dense inverses."""
    gp = make_gp(12)
    gp.update_many(*make_stream(90))
    other = gp.with_hyperparameters(NEW_KERNEL, NEW_NOISE)
    points = gp.inputs[gp.age_order]
    old_prior = prior_of_values(gp.kernel, gp.noise_variance, points)
    new_prior = prior_of_values(NEW_KERNEL, NEW_NOISE, points)
    mean_before, covariance_before = moments_of_points(gp)
    precision_before = np.linalg.inv(covariance_before)
    precision = precision_before - np.linalg.inv(old_prior) + np.linalg.inv(new_prior)
    expected_covariance = np.linalg.inv(precision)
    expected_mean = expected_covariance @ (precision_before @ mean_before)
    mean, covariance = moments_of_points(other)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-4, atol=1e-5)


def test_the_same_hyperparameters_change_nothing():
    gp = make_gp(12)
    gp.update_many(*make_stream(90))
    same = gp.with_hyperparameters(gp.kernel, gp.noise_variance)
    np.testing.assert_allclose(
        same.predict(TEST_POINTS), gp.predict(TEST_POINTS), rtol=1e-7, atol=1e-9
    )


def test_all_samples_are_learned_again_under_other_hyperparameters():
    """The posterior of the values z at the points is that of batch FITC, by dense inverses."""
    x, y = make_stream(90)
    gp = make_gp(12, scale=False)
    gp.update_many(x, y)
    other = gp.with_hyperparameters(NEW_KERNEL, NEW_NOISE, (x, y))
    points = gp.inputs[gp.age_order]
    cross = NEW_KERNEL(points, x)
    prior = prior_of_values(NEW_KERNEL, NEW_NOISE, points)
    weights = np.linalg.solve(prior, cross).T
    novelty = NEW_KERNEL.diagonal(x) - np.einsum("ij,ji->i", weights, cross)
    variance = novelty + NEW_NOISE
    expected_covariance = np.linalg.inv(np.linalg.inv(prior) + weights.T / variance @ weights)
    expected_mean = expected_covariance @ (weights.T @ (y / variance))
    mean, covariance = moments_of_points(other)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-6, atol=1e-8)
    assert other.n_seen == gp.n_seen


# --- posterior, scale and files -------------------------------------------------------------------


def test_the_exact_form_has_the_same_posterior():
    gp = make_gp(12)
    gp.update_many(*make_stream(200))
    form = gp.exact_form()
    k = gp.kernel(gp.inputs[form["order"]], TEST_POINTS)
    white = form["factor"] @ k
    mean, variance = gp.predict(TEST_POINTS)
    variance_of_form = gp.kernel.diagonal(TEST_POINTS) - (white**2).sum(axis=0)
    np.testing.assert_allclose(white.T @ form["whitened"], mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(variance_of_form, variance, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(form["cholesky"].T @ form["factor"], np.eye(len(k)), atol=1e-6)


def test_draws_have_the_same_posterior():
    n_draws = 40_000
    gp = make_gp(12)
    gp.update_many(*make_stream(200))
    draws = gp.draw_targets(n_draws, np.random.default_rng(0))[gp.age_order]
    mean, covariance = moments_of_points(gp)
    std = np.sqrt(np.diag(covariance))
    assert np.max(abs(draws.mean(axis=1) - mean) / std) < 5 / np.sqrt(n_draws)
    scales = np.outer(std, std)
    np.testing.assert_allclose(np.cov(draws) / scales, covariance / scales, atol=0.04)


def test_the_scale_mends_bands_that_are_too_narrow_and_leaves_means_alone():
    x, y = make_stream(3000, noise_variance=0.04)
    narrow = {"noise_variance": 0.004, "kernel": SquaredExponential(0.1, [1.0, 2.0])}
    gp = make_gp(40, **narrow)
    gp.update_many(x, y)
    assert gp.noise_variance == pytest.approx(0.04, rel=0.15)
    assert gp.kernel.variance == pytest.approx(25 * gp.noise_variance)
    fixed = make_gp(40, **narrow, scale=False)
    fixed.update_many(x, y)
    assert fixed.noise_variance == 0.004
    assert fixed.kernel.variance == 0.1
    rescaled = gp.copy()
    rescaled._rescale()
    mean, _ = gp.predict(TEST_POINTS)
    mean_of_rescaled, _ = rescaled.predict(TEST_POINTS)
    np.testing.assert_allclose(mean_of_rescaled, mean, rtol=1e-12)


def identify_adaptively(n):
    """Return an identification of n samples that re-estimates its hyper-parameters."""
    training = sysid.Adaptive(n_initial=50, restarts=1)
    settings = Settings(training, insertion=Novelty(), reduction=MeanRelevance(), budget=20)
    identification = Identification(NARX, settings)
    identification.observe_many(*make_stream(n))
    return identification


def test_every_sample_is_learned_by_default():
    assert Settings().learning is Learning.every_sample


def test_a_model_file_continues_bit_for_bit(tmp_path):
    x, y = make_stream(300)
    identification = identify_adaptively(900)
    model = identification.model
    reasons = {str(estimate.reason) for estimate in identification.adaptation.estimates}
    assert "doubled" in reasons
    model.save(tmp_path / "model.nc")
    loaded = Model.load(tmp_path / "model.nc")
    assert repr(loaded.gp) == repr(model.gp)
    assert loaded.update_many(x, y).tobytes() == model.update_many(x, y).tobytes()
    np.testing.assert_equal(loaded.gp.state(), model.gp.state())


@pytest.fixture(scope="module")
def initial_dataset():
    """Data set of a model that has learned its initial samples."""
    return identify_adaptively(60).initial.to_dataset()


@pytest.mark.parametrize(
    ("name", "factor"),
    [("root", 30.0), ("root", -1.0), ("root", np.nan), ("errors", -1.0), ("errors", 1e4)],
)
def test_a_damaged_posterior_in_a_model_file_is_refused(name, factor, initial_dataset):
    damaged = initial_dataset.assign({name: factor * initial_dataset[name]})
    with pytest.raises(ValueError, match=r"root must be|errors must be|finite"):
        Model.from_dataset(damaged)


def test_a_model_file_without_the_posterior_is_refused(initial_dataset):
    with pytest.raises(ValueError, match="root"):
        Model.from_dataset(initial_dataset.drop_vars("root"))


# --- re-estimated hyper-parameters ----------------------------------------------------------------


def identify_with_many_estimates(n, **training_settings):
    """Identify a stream whose hyper-parameters are re-estimated at nearly every opportunity.

    Return the identification and the number of samples before each estimate.
    """
    training = sysid.Adaptive(
        n_initial=50,
        restarts=1,
        interval=25,
        significance=0.999,
        max_updates=3,
        **training_settings,
    )
    settings = Settings(
        training,
        insertion=Novelty(),
        reduction=MeanRelevance(),
        scale=False,
        gate=None,
        budget=20,
    )
    hyperparameters = sysid.Hyperparameters(KERNEL, NOISE_VARIANCE, np.nan)
    start = sysid.Start(sysid.Scaling.identity(2), sysid.ZeroMean(), hyperparameters)
    identification = Identification(NARX, settings, start=start)
    identification.observe_many(*make_stream(n))
    samples = np.array([estimate.sample for estimate in identification.adaptation.estimates])
    return identification, samples


@pytest.mark.parametrize(
    ("sample_size", "all_are_kept"), [(150, True), (149, False)], ids=["all kept", "one dropped"]
)
def test_an_estimate_learns_all_samples_again_while_they_are_kept(sample_size, all_are_kept):
    x, y = make_stream(150)
    identification, samples = identify_with_many_estimates(150, sample_size=sample_size)
    assert samples[-1] == 150
    gp = identification.model.gp
    plain = PlainPosterior(gp.kernel, gp.noise_variance, gp.inputs)
    plain.learn_many(x, y)
    mean, _ = gp.predict(TEST_POINTS)
    is_exact = np.allclose(mean, plain.predict_means(TEST_POINTS), rtol=1e-6, atol=1e-8)
    assert is_exact == all_are_kept


def test_an_estimate_maximises_the_variational_bound_of_the_points():
    """The bound of the samples that are kept, by its dense formula, plus the priors."""
    n = 75
    x, y = make_stream(n)
    identification, _ = identify_with_many_estimates(n)
    gp = identification.model.gp
    noise = gp.noise_variance
    signal = gp.kernel.variance
    problem = identification.adaptation.problem(gp)
    logarithms = problem.logarithms(gp.kernel, noise)
    points = gp.inputs[gp.age_order]
    cross = naive.covariance(gp.kernel, points, x)
    prior = naive.covariance(gp.kernel, points, points) + 1e-8 * signal * np.eye(20)
    q = cross.T @ np.linalg.solve(prior, cross)
    density = multivariate_normal(np.zeros(n), q + noise * np.eye(n)).logpdf(y)
    bound = density - 0.5 * (n * signal - np.trace(q)) / noise
    cost, _ = problem.cost(logarithms)
    log_prior_cost, _ = problem.prior(logarithms)
    assert -cost == pytest.approx(bound - log_prior_cost, rel=1e-8)


def test_estimates_from_a_part_of_the_stream_wait_until_a_tenth_more_is_seen():
    _, samples = identify_with_many_estimates(900, sample_size=200)
    early = samples[samples <= 200]
    late = samples[samples >= 200]
    assert (np.diff(early) == 25).all()
    assert len(late) > 3
    assert (late[1:] >= 1.1 * late[:-1]).all()
    assert (late[1:] < 1.1 * late[:-1] + 25).all()


# --- what it is good for, and what it takes -------------------------------------------------------


def test_forward_selection_learns_what_it_does_not_choose():
    x, y = make_stream(200)
    chosen = sysid.Forward().fill(make_gp(10), x, y)
    stored = sysid.Forward().fill(make_gp(10, learning="stored"), x, y)
    np.testing.assert_array_equal(chosen.inputs, stored.inputs)
    plain = PlainPosterior(KERNEL, NOISE_VARIANCE, chosen.inputs)
    plain.learn_many(x, y)
    mean, _ = chosen.predict(TEST_POINTS)
    np.testing.assert_allclose(mean, plain.predict_means(TEST_POINTS), rtol=1e-6, atol=1e-8)


def test_it_beats_the_stored_points_where_noise_must_be_averaged():
    x, y = make_stream(4000, noise_variance=0.09)
    truth = np.sin(TEST_POINTS[:, 0]) * TEST_POINTS[:, 1]
    errors = {}
    for learning in Learning:
        gp = make_gp(30, noise_variance=0.09, insertion=Novelty(), learning=learning)
        gp.update_many(x, y)
        mean, _ = gp.predict(TEST_POINTS)
        errors[learning] = np.mean((mean - truth) ** 2)
    assert errors[Learning.every_sample] < 0.2 * errors[Learning.stored]


DISTINCT_POINTS, _ = make_stream(20)
POINTS_TO_ABSORB_AT = {
    "distinct": DISTINCT_POINTS,
    "nearly coincident": np.vstack([DISTINCT_POINTS, DISTINCT_POINTS[:5] + 1e-3]),
    "single": DISTINCT_POINTS[:1],
}


@pytest.mark.parametrize("points", POINTS_TO_ABSORB_AT.values(), ids=POINTS_TO_ABSORB_AT)
def test_samples_are_absorbed_in_blocks_as_one_by_one(points):
    """The noise variance is only 1e-6 of that of the signal."""
    x, y = make_stream(MIN_ABSORPTION_BLOCK_ROWS + 40, 3, 1e-6)
    options = {"noise_variance": 1e-6, "insertion": STORE_NOTHING, "scale": False}
    in_blocks = make_gp(len(points) + 1, **options).fit(points, np.zeros(len(points)))
    one_by_one = in_blocks.copy()
    in_blocks.absorb(x, y)
    one_by_one.update_many(x, y)
    prediction = in_blocks.predict(TEST_POINTS)
    expected = one_by_one.predict(TEST_POINTS)
    np.testing.assert_allclose(prediction, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("sample_x", "sample_y"), [(np.nan, 0.0), (0.0, np.inf)], ids=["input", "target"]
)
def test_samples_that_are_not_finite_are_not_absorbed(sample_x, sample_y):
    gp = make_gp().fit(*make_stream(20))
    before = gp.predict(TEST_POINTS)
    with pytest.raises(ValueError, match="not finite"):
        gp.absorb([[sample_x, 0.0]], [sample_y])
    np.testing.assert_array_equal(gp.predict(TEST_POINTS), before)


@pytest.mark.parametrize("make", [make_gp, Settings], ids=["OnlineGP", "Settings"])
def test_an_unknown_learning_is_refused(make):
    message = r"learning must be one of \['stored', 'every_sample'\], got 'all'"
    with pytest.raises(ValueError, match=message):
        make(learning="all")


class ThreeArguments(sysid.Insertion):
    """An insertion rule of a user whose formula lacks the novelty."""

    @staticmethod
    def formula(error, variance, parameters):
        return True

    def parameters(self):
        return np.zeros(1)


def test_a_formula_with_wrong_arguments_is_refused():
    message = r"ThreeArguments\.formula: expected the arguments \(error, variance, novelty"
    with pytest.raises(TypeError, match=message):
        make_gp(insertion=ThreeArguments())


def test_a_scale_that_is_no_boolean_is_refused():
    with pytest.raises(TypeError, match="scale must be True or False, got 'no'"):
        make_gp(scale="no")


def test_a_negative_threshold_of_the_novelty_is_refused():
    with pytest.raises(ValueError, match="novelty_threshold"):
        Novelty(-1.0)


def test_the_learning_of_a_gp_is_fixed():
    gp = make_gp()
    with pytest.raises(AttributeError, match="learning is fixed"):
        gp.learning = Learning.stored


@pytest.mark.parametrize("points_are_given", [False, True])
def test_given_points_represent_all_samples(points_are_given):
    """A training that gives the points of the model has used all samples.

    Later samples are therefore learned as stored points only.
    """
    x, y = make_stream(60)
    points = Points(x[:10], y[:10]) if points_are_given else None
    settings = Settings(sysid.Fixed(1.0, 1.0, 0.01, n_initial=30))
    identification = Identification(NARX, settings, start=sysid.Start(points=points))
    identification.observe_many(x, y)
    expected = Learning.stored if points_are_given else Learning.every_sample
    assert identification.model.gp.learning is expected
