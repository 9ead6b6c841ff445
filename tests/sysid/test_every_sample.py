"""Learning from every sample, compared with plain Gaussian conditioning and with batch FITC."""

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
ROUNDING_TOLERANCES = {"rtol": 1e-8, "atol": 1e-10}
NARX = Narx({"y": 1}, {"u": 1})  # two features
STORE_NOTHING = ErrorThreshold(1e9)  # no error is as large


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
    learning="every_sample",
    **options,
):
    """Return an online GP that learns every sample, and by default stores points by novelty."""
    if insertion is None:
        insertion = Novelty()
    if criterion is None:
        criterion = MeanRelevance()
    return OnlineGP(
        kernel,
        noise_variance=noise_variance,
        budget=budget,
        insertion=insertion,
        acceptance=ExceedsMinimum(criterion),
        reduction=criterion,
        learning=learning,
        **options,
    )


def prior_of_values(kernel, noise_variance, points):
    """Return the prior covariance of the values z at points."""
    tau = DIAGONAL_TO_NOISE * noise_variance
    return kernel(points, points) + tau * np.eye(len(points))


class PlainPosterior:
    """Posterior of the values ``z = f(points) + e'`` by textbook conditioning.

    It keeps the mean and the covariance of z, and solves with dense matrices.
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
        """Return the weights of z in the mean at x, and the novelty: the variance given z."""
        k = self.kernel(self.points, x[None])[:, 0]
        weights = np.linalg.solve(self.prior(), k)
        prior_variance = self.kernel.diagonal(x[None])[0]
        return weights, float(prior_variance - k @ weights)

    def predict(self, x):
        """Return mean, latent variance and novelty at one point."""
        weights, novelty = self.project(x)
        variance = novelty + weights @ self.covariance @ weights
        return weights @ self.mean, variance, novelty

    def predict_means(self, points):
        """Return the means at several points."""
        means = []
        for x in points:
            mean, _, _ = self.predict(x)
            means.append(mean)
        return np.array(means)

    def learn(self, x, y):
        """Condition on one sample."""
        weights, novelty = self.project(x)
        cross = self.covariance @ weights  # covariance of z with the function at x
        variance = novelty + weights @ cross + self.noise
        error = y - weights @ self.mean
        self.mean = self.mean + cross * error / variance
        self.covariance = self.covariance - np.outer(cross, cross) / variance

    def learn_many(self, x, y):
        """Condition on several samples, one after the other."""
        for point, target in zip(x, y, strict=True):
            self.learn(point, target)

    def add_point(self, x):
        """Add the value at x to z, before the sample there is learned."""
        weights, novelty = self.project(x)
        cross = self.covariance @ weights
        variance = np.array([[novelty + self.tau + weights @ cross]])
        self.mean = np.append(self.mean, weights @ self.mean)
        self.covariance = np.block([[self.covariance, cross[:, None]], [cross[None], variance]])
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
        precision = np.diag(inverse)
        return (inverse @ self.mean) / precision, 1.0 / precision

    def without_last(self):
        """Return the posterior without the point that was added last."""
        other = PlainPosterior(self.kernel, self.noise, self.points[:-1])
        other.mean = self.mean[:-1]
        return other

    def rescale(self, factor):
        """Multiply all variances by a factor."""
        self.kernel = self.kernel.scaled(factor)
        self.noise = factor * self.noise
        self.tau = factor * self.tau
        self.covariance = factor * self.covariance


def replace_point(gp, plain):
    """Remove the stored point with the lowest score if the last point, the candidate, is accepted.

    Otherwise remove the candidate. Return whether it is accepted.
    """
    criterion = type(gp.reduction)
    residuals, variances = plain.left_out()
    candidate_score = criterion.acceptance(residuals[-1], variances[-1], plain.tau)
    stored_residuals, stored_variances = plain.without_last().left_out()
    acceptance_scores = []
    for residual, variance in zip(stored_residuals, stored_variances, strict=True):
        acceptance_scores.append(criterion.acceptance(residual, variance, plain.tau))
    is_accepted = candidate_score > min(acceptance_scores)
    if not is_accepted:
        index_of_candidate = gp.budget
        plain.remove_point(index_of_candidate)
        return False
    reduction_scores = []
    for residual, variance in zip(residuals[:-1], variances[:-1], strict=True):
        reduction_scores.append(criterion.reduction(residual, variance, plain.tau))
    plain.remove_point(int(np.argmin(reduction_scores)))
    return True


def learn_plainly(gp, x, y):
    """Learn a stream by a `PlainPosterior` with the settings of a GP.

    Return the predictions (n, 2), mean and latent variance of each sample; the decisions (n, 3):
    whether it was inserted, was accepted and replaced a point; and the posterior.
    """
    plain = PlainPosterior(gp.kernel, gp.noise_variance, gp.inputs)
    predictions = []
    decisions = []
    sum_of_squares = 0.0  # of the standardised errors since the last change of the scale
    memory = INITIAL_SCALE_MEMORY
    for number, (point, target) in enumerate(zip(x, y, strict=True), start=1):
        mean, latent, novelty = plain.predict(point)
        error = target - mean
        square = error**2 / (latent + plain.noise)
        sum_of_squares += min(square, MAX_STANDARDISED_SQUARE)
        parameters = gp.insertion.parameters()
        relative_novelty = novelty / plain.noise
        is_inserted = bool(gp.insertion.formula(error, latent, relative_novelty, parameters))
        is_accepted = is_inserted
        replaces_point = False
        if is_inserted:
            plain.add_point(point)
        plain.learn(point, target)
        if len(plain.points) > gp.budget:
            is_accepted = replace_point(gp, plain)
            replaces_point = is_accepted
        predictions.append((mean, latent))
        decisions.append((is_inserted, is_accepted, replaces_point))
        if number % SCALE_INTERVAL == 0:
            relative_sum = sum_of_squares / EXPECTED_CLIPPED_SQUARE
            plain.rescale((memory + relative_sum) / (memory + SCALE_INTERVAL))
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
    """FITC posterior of all samples at once, by the weights w of whitened features.

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
def test_with_fixed_points_the_posterior_is_that_of_batch_fitc(name):
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
    np.testing.assert_allclose(mean, expected_mean, **ROUNDING_TOLERANCES)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("noise_variance", [1e-2, 1e-6])
def test_rounding_errors_do_not_grow_in_a_long_stream(noise_variance):
    """The first samples are the stored points."""
    x, y = make_stream(20_000, noise_variance=noise_variance)
    gp = make_gp(20, noise_variance=noise_variance, insertion=STORE_NOTHING, scale=False)
    gp.fit(x[:20], y[:20])
    gp.update_many(x[20:], y[20:])
    mean, _ = gp.predict(TEST_POINTS)
    batch = BatchFitc(KERNEL, noise_variance, x[:20], x, y)
    expected, _ = batch.predict(TEST_POINTS)
    assert np.max(abs(mean - expected)) < 1e-6 * np.sqrt(noise_variance)


def learn_one_by_one(gp, x, y):
    """Learn samples by `update`, and return the GP and its reports."""
    reports = []
    for point, target in zip(x, y, strict=True):
        report = gp.update(point, target)
        reports.append(tuple(report))
    return gp, reports


def learn_rest_with_a_copy(gp, x, y):
    """Learn samples with a GP and the rest with its copy, and return the copy and all reports."""
    first = gp.update_many(x[:130], y[:130])
    copy = gp.copy()
    rest = copy.update_many(x[130:], y[130:])
    return copy, [*first.tolist(), *rest.tolist()]


@pytest.mark.parametrize("learn", [learn_one_by_one, learn_rest_with_a_copy])
def test_learning_one_by_one_or_with_a_copy_equals_learning_at_once_bit_for_bit(learn):
    x, y = make_stream(350)
    expected = make_gp(insertion=ErrorThreshold(0.15))
    expected_reports = expected.update_many(x, y)
    gp, reports = learn(make_gp(insertion=ErrorThreshold(0.15)), x, y)
    np.testing.assert_array_equal(reports, expected_reports.tolist())
    np.testing.assert_equal(gp.state(), expected.state())
    assert gp.noise_variance == expected.noise_variance
    assert gp.kernel == expected.kernel


def learn_until_a_sample_is_rejected(gp, x, y):
    """Learn samples up to the first that is rejected as a point.

    Return the number of that sample, and the state and the counts of the GP before it.
    """
    for number, (point, target) in enumerate(zip(x, y, strict=True)):
        state = gp.state()
        counts = list(gp._state.counts)
        report = gp.update(point, target)
        if report.inserted and not report.accepted:
            return number, state, counts
    return pytest.fail("no sample was rejected")


def test_a_sample_that_is_rejected_as_a_point_is_learned_all_the_same():
    x, y = make_stream(300)
    gp = make_gp(10, insertion=sysid.Always())
    gp.update_many(x[:90], y[:90])
    later_x = x[90:]
    later_y = y[90:]
    rejected, state, counts = learn_until_a_sample_is_rejected(gp, later_x, later_y)
    never_stores = make_gp(10, insertion=STORE_NOTHING)
    never_stores.restore(state, counts)
    never_stores.update(later_x[rejected], later_y[rejected])
    prediction = gp.predict(TEST_POINTS)
    expected = never_stores.predict(TEST_POINTS)
    np.testing.assert_allclose(prediction, expected, **ROUNDING_TOLERANCES)


def moments_of_points(gp):
    """Return the mean and the covariance of the values z of the points, the oldest point first."""
    state = gp.state()
    upper = state["cholesky"]
    root = state["root"]
    root_is_upper_triangular = not np.tril(root, -1).any()
    assert root_is_upper_triangular
    mean = upper.T @ state["whitened"]
    covariance = upper.T @ root.T @ root @ upper
    return mean, covariance


def test_a_point_that_is_removed_is_marginalised():
    gp = make_gp(12, insertion=ErrorThreshold(0.1))
    gp.update_many(*make_stream(90))
    mean_before, covariance_before = moments_of_points(gp)
    numbers_before = gp.sample_numbers[gp.age_order]
    gp.reduce_to(7)
    kept = np.flatnonzero(np.isin(numbers_before, gp.sample_numbers))
    assert len(kept) == 7
    mean, covariance = moments_of_points(gp)
    expected_mean = mean_before[kept]
    expected_covariance = covariance_before[np.ix_(kept, kept)]
    np.testing.assert_allclose(mean, expected_mean, **ROUNDING_TOLERANCES)
    np.testing.assert_allclose(covariance, expected_covariance, **ROUNDING_TOLERANCES)


# --- other hyper-parameters -----------------------------------------------------------------------

NEW_KERNEL = SquaredExponential(1.7, [1.2, 1.6])
NEW_NOISE = 0.02  # variance


def test_other_hyperparameters_keep_the_likelihood_of_the_values():
    """The new posterior of z is the old posterior, divided by the old prior, times the new prior.

    The expected moments follow from the inverse covariances.
    """
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
    prediction = same.predict(TEST_POINTS)
    np.testing.assert_allclose(prediction, gp.predict(TEST_POINTS), rtol=1e-7, atol=1e-9)


def test_all_samples_are_learned_again_under_other_hyperparameters():
    """The posterior of the values z at the points is that of batch FITC, here by inverses."""
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
    expected_precision = np.linalg.inv(prior) + weights.T / variance @ weights
    expected_covariance = np.linalg.inv(expected_precision)
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
    whitened_k = form["factor"] @ k
    mean_of_form = whitened_k.T @ form["whitened"]
    variance_of_form = gp.kernel.diagonal(TEST_POINTS) - (whitened_k**2).sum(axis=0)
    mean, variance = gp.predict(TEST_POINTS)
    identity = form["cholesky"].T @ form["factor"]
    np.testing.assert_allclose(mean_of_form, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(variance_of_form, variance, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(identity, np.eye(len(k)), atol=1e-6)


def test_draws_have_the_same_posterior():
    n_draws = 40_000
    gp = make_gp(12)
    gp.update_many(*make_stream(200))
    draws = gp.draw_targets(n_draws, np.random.default_rng(0))[gp.age_order]
    mean, covariance = moments_of_points(gp)
    std = np.sqrt(np.diag(covariance))
    five_standard_errors = 5 * std / np.sqrt(n_draws)
    assert (abs(draws.mean(axis=1) - mean) < five_standard_errors).all()
    scales = np.outer(std, std)
    np.testing.assert_allclose(np.cov(draws) / scales, covariance / scales, atol=0.04)


def test_the_scale_widens_bands_that_are_too_narrow_and_keeps_the_means():
    """The variances are ten times too small at first, and keep their ratio."""
    x, y = make_stream(3000, noise_variance=0.04)
    narrow = {"noise_variance": 0.004, "kernel": SquaredExponential(0.1, [1.0, 2.0])}
    gp = make_gp(40, **narrow)
    gp.update_many(x, y)
    assert gp.noise_variance == pytest.approx(0.04, rel=0.15)
    assert gp.kernel.variance / gp.noise_variance == pytest.approx(0.1 / 0.004)
    fixed = make_gp(40, **narrow, scale=False)
    fixed.update_many(x, y)
    assert fixed.noise_variance == 0.004
    assert fixed.kernel.variance == 0.1
    rescaled = gp.copy()
    rescaled._rescale()
    mean, _ = gp.predict(TEST_POINTS)
    mean_of_rescaled, _ = rescaled.predict(TEST_POINTS)
    np.testing.assert_allclose(mean_of_rescaled, mean, rtol=1e-12)


def identify_adaptively(n_samples):
    """Return an identification that re-estimates its hyper-parameters."""
    training = sysid.Adaptive(n_initial=50, restarts=1)
    settings = Settings(training, insertion=Novelty(), reduction=MeanRelevance(), budget=20)
    identification = Identification(NARX, settings)
    identification.observe_many(*make_stream(n_samples))
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
    reports = loaded.update_many(x, y)
    expected_reports = model.update_many(x, y)
    assert reports.tobytes() == expected_reports.tobytes()
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


def identify_with_many_estimates(n_samples, **training_options):
    """Identify a stream and re-estimate the hyper-parameters at nearly every opportunity.

    Return the identification and the number of samples before each estimate.
    """
    training = sysid.Adaptive(
        n_initial=50,
        restarts=1,
        interval=25,
        significance=0.999,
        max_updates=3,
        **training_options,
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
    identification.observe_many(*make_stream(n_samples))
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
    """Its cost is minus the bound, by the dense formula here, plus the cost of the priors."""
    n = 75
    x, y = make_stream(n)
    identification, _ = identify_with_many_estimates(n)
    gp = identification.model.gp
    noise_variance = gp.noise_variance
    signal_variance = gp.kernel.variance
    points = gp.inputs[gp.age_order]
    cross = naive.covariance(gp.kernel, points, x)
    jitter = 1e-8 * signal_variance
    prior = naive.covariance(gp.kernel, points, points) + jitter * np.eye(20)
    projected = cross.T @ np.linalg.solve(prior, cross)  # covariance that the points explain
    marginal = multivariate_normal(np.zeros(n), projected + noise_variance * np.eye(n))
    unexplained_variance = n * signal_variance - np.trace(projected)
    bound = marginal.logpdf(y) - 0.5 * unexplained_variance / noise_variance

    problem = identification.adaptation.problem(gp)
    logarithms = problem.logarithms(gp.kernel, noise_variance)
    cost, _ = problem.cost(logarithms)
    prior_cost, _ = problem.prior(logarithms)
    assert -cost == pytest.approx(bound - prior_cost, rel=1e-8)


def test_estimates_from_a_part_of_the_stream_wait_until_a_tenth_more_is_seen():
    """The estimates are due every 25 samples, and 200 samples are kept."""
    _, samples = identify_with_many_estimates(900, sample_size=200)
    early = samples[samples <= 200]
    late = samples[samples >= 200]
    earliest_next = 1.1 * late[:-1]
    assert (np.diff(early) == 25).all()
    assert len(late) > 3
    assert (late[1:] >= earliest_next).all()
    assert (late[1:] < earliest_next + 25).all()


# --- forward selection, accuracy and absorbed samples ---------------------------------------------


def test_forward_selection_learns_samples_that_it_does_not_choose_as_points():
    x, y = make_stream(200)
    gp = sysid.Forward().fill(make_gp(10), x, y)
    stored_only = sysid.Forward().fill(make_gp(10, learning="stored"), x, y)
    np.testing.assert_array_equal(gp.inputs, stored_only.inputs)
    plain = PlainPosterior(KERNEL, NOISE_VARIANCE, gp.inputs)
    plain.learn_many(x, y)
    mean, _ = gp.predict(TEST_POINTS)
    np.testing.assert_allclose(mean, plain.predict_means(TEST_POINTS), rtol=1e-6, atol=1e-8)


def test_learning_every_sample_beats_stored_points_where_noise_must_be_averaged():
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
    x, y = make_stream(MIN_ABSORPTION_BLOCK_ROWS + 40, seed=3, noise_variance=1e-6)
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
    x, y = make_stream(20)
    gp = make_gp().fit(x, y)
    before = gp.predict(TEST_POINTS)
    with pytest.raises(ValueError, match="not finite"):
        gp.absorb([[sample_x, 0.0]], [sample_y])
    np.testing.assert_array_equal(gp.predict(TEST_POINTS), before)


# --- refusals and fixed settings ------------------------------------------------------------------


@pytest.mark.parametrize("make", [make_gp, Settings], ids=["OnlineGP", "Settings"])
def test_an_unknown_learning_is_refused(make):
    message = r"learning must be one of \['stored', 'every_sample'\], got 'all'"
    with pytest.raises(ValueError, match=message):
        make(learning="all")


class InsertionWithoutNovelty(sysid.Insertion):
    """A user's insertion rule whose formula lacks the argument `novelty`."""

    @staticmethod
    def formula(error, variance, parameters):
        return True

    def parameters(self):
        return np.zeros(1)


def test_a_formula_with_wrong_arguments_is_refused():
    message = (
        r"InsertionWithoutNovelty\.formula: "
        r"expected the arguments \(error, variance, novelty"
    )
    with pytest.raises(TypeError, match=message):
        make_gp(insertion=InsertionWithoutNovelty())


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
