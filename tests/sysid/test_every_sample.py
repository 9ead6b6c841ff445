"""Learning from every sample: against plain Gaussian conditioning, batch FITC, and what must not
change.
"""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import naive
import sysid
from sysid import (
    ErrorThreshold,
    ExceedsMinimum,
    Learning,
    MeanRelevance,
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
NOISE = 0.01
CLOSE = {"rtol": 1e-8, "atol": 1e-10}
each_criterion = pytest.mark.parametrize("criterion", naive.CRITERIA, ids=naive.criterion_name)


def stream(n, seed=0, noise=NOISE):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(x[:, 0]) * x[:, 1] + np.sqrt(noise) * rng.normal(size=n)


def learner(
    budget=15,
    *,
    kernel=KERNEL,
    noise_variance=NOISE,
    insertion=None,
    criterion=None,
    **settings,
):
    criterion = criterion or MeanRelevance()
    rules = {
        "insertion": insertion or Novelty(),
        "acceptance": ExceedsMinimum(criterion),
        "reduction": criterion,
    }
    rules |= {"learning": "every_sample", **settings}
    return OnlineGP(kernel, noise_variance=noise_variance, budget=budget, **rules)


NEVER = ErrorThreshold(1e9)
PLACES = stream(20)[0]
TEST = stream(40, 9)[0]


class PlainPosterior:
    """Mean and covariance of the values ``z = f(points) + e'`` by textbook conditioning, with dense
    inverses.
    """

    def __init__(self, kernel, noise, points):
        self.kernel, self.noise, self.points = (
            kernel,
            noise,
            np.array(points).reshape(-1, kernel.n_features),
        )
        self.tau = DIAGONAL_TO_NOISE * noise
        self.mean, self.covariance = np.zeros(len(self.points)), self.prior()

    def prior(self):
        return self.kernel(self.points, self.points) + self.tau * np.eye(len(self.points))

    def of(self, x):
        """Weights of z, and what z cannot represent, of the function at x."""
        k = self.kernel(self.points, x[None])[:, 0]
        q = np.linalg.solve(self.prior(), k)
        return q, float(self.kernel.diagonal(x[None])[0] - k @ q)

    def predict(self, x):
        q, novelty = self.of(x)
        return q @ self.mean, novelty + q @ self.covariance @ q, novelty

    def learn(self, x, y):
        q, novelty = self.of(x)
        h = self.covariance @ q
        s = novelty + q @ h + self.noise
        self.mean = self.mean + h * (y - q @ self.mean) / s
        self.covariance = self.covariance - np.outer(h, h) / s

    def enter(self, x):
        """A place at x, before the sample there is learned."""
        q, novelty = self.of(x)
        h = self.covariance @ q
        corner = np.atleast_1d(novelty + self.tau + q @ h)
        self.mean = np.append(self.mean, q @ self.mean)
        self.covariance = np.block([[self.covariance, h[:, None]], [h[None], corner[:, None]]])
        self.points = np.vstack([self.points, x])

    def leave(self, i):
        keep = np.arange(len(self.points)) != i
        self.points, self.mean, self.covariance = (
            self.points[keep],
            self.mean[keep],
            self.covariance[np.ix_(keep, keep)],
        )

    def left_out(self):
        """Residual and variance of each value given the means of the others: targets z, noise
        tau.
        """
        inverse = np.linalg.inv(self.prior())
        return (inverse @ self.mean) / np.diag(inverse), 1.0 / np.diag(inverse)


def follow(gp, x, y):
    """What the learner should do with a stream, by `PlainPosterior`: predictions, decisions, and
    the posterior.
    """
    plain = PlainPosterior(gp.kernel, gp.noise_variance, gp.inputs)
    total = 0.0
    number = 0
    memory = INITIAL_SCALE_MEMORY
    score = type(gp.reduction).reduction
    accept = type(gp.reduction).acceptance
    found = []
    for sample, target in zip(x, y, strict=True):
        mean, latent, novelty = plain.predict(sample)
        total += min((target - mean) ** 2 / (latent + plain.noise), MAX_STANDARDISED_SQUARE)
        number += 1
        ratio = novelty / plain.noise
        error = target - mean
        inserted = bool(gp.insertion.formula(error, latent, ratio, gp.insertion.parameters()))
        accepted = removed = False
        if not inserted:
            plain.learn(sample, target)
        else:
            plain.enter(sample)
            plain.learn(sample, target)
            residual, variance = plain.left_out()
            n = len(residual) - 1
            accepted = True
            if n == gp.budget:
                own = accept(residual[n], variance[n], plain.tau)
                others = PlainPosterior(plain.kernel, plain.noise, plain.points[:n])
                others.mean = plain.mean[:n]
                least = min(
                    accept(*pair, plain.tau) for pair in zip(*others.left_out(), strict=True)
                )
                accepted = own > least
                worst = int(
                    np.argmin([score(residual[i], variance[i], plain.tau) for i in range(n)])
                )
                plain.leave(worst if accepted else n)
                removed = accepted
        found.append((mean, latent, inserted, accepted, removed))
        if number == SCALE_INTERVAL:
            factor = (memory + total / EXPECTED_CLIPPED_SQUARE) / (memory + number)
            total = 0.0
            number = 0
            memory = min(memory + SCALE_INTERVAL, MAX_SCALE_MEMORY)
            plain.kernel = plain.kernel.scaled(factor)
            plain.noise = factor * plain.noise
            plain.tau = factor * plain.tau
            plain.covariance = factor * plain.covariance
    return found, plain


@each_criterion
@pytest.mark.parametrize(
    "insertion", [Novelty(0.05), ErrorThreshold(0.15)], ids=["novelty", "error"]
)
def test_predictions_decisions_and_scale_are_those_of_plain_conditioning(criterion, insertion):
    x, y = stream(250)
    gp = learner(12, insertion=insertion, criterion=criterion)
    expected, plain = follow(gp, x, y)
    record = gp.update_many(x, y)
    decisions = np.stack([record["inserted"], record["accepted"], record["removed"] >= 0], axis=1)
    np.testing.assert_array_equal(decisions, np.array([row[2:] for row in expected]))
    np.testing.assert_allclose(record["mean"], [row[0] for row in expected], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        record["variance"], [row[1] for row in expected], rtol=1e-6, atol=1e-9
    )
    assert 12 < record["accepted"].sum() < 250
    assert gp.noise_variance == pytest.approx(plain.noise, rel=1e-9)
    np.testing.assert_allclose(
        gp.predict(TEST)[0],
        [plain.predict(one)[0] for one in TEST],
        rtol=1e-6,
        atol=1e-7,
    )
    assert gp.drift() < 1e-9


@pytest.mark.parametrize("name", naive.FAMILY)
def test_with_fixed_points_it_is_the_batch_fitc_posterior(name):
    """``w ~ N(A^-1 Phi R^-1 y, A^-1)``, ``A = I + Phi R^-1 Phi'``, ``R = diag(noise + g2)``, for
    any kernel.
    """
    kernel = naive.FAMILY[name]
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (90, 3))
    y = rng.normal(size=90)
    test = rng.uniform(-1, 1, (20, 3))
    gp = learner(15, kernel=kernel, insertion=NEVER).fit(x[:15], y[:15])
    gp.update_many(x[15:], y[15:])
    lower = np.linalg.cholesky(kernel(x[:15], x[:15]) + DIAGONAL_TO_NOISE * NOISE * np.eye(15))

    def features(points):
        phi = np.linalg.solve(lower, kernel(x[:15], points))
        return phi, kernel.diagonal(points) - (phi**2).sum(axis=0)

    phi, novelty = features(x)
    precision = np.eye(15) + (phi / (NOISE + novelty)) @ phi.T
    at_test, left = features(test)
    mean, variance = gp.predict(test)
    np.testing.assert_allclose(
        mean,
        at_test.T @ np.linalg.solve(precision, phi @ (y / (NOISE + novelty))),
        **CLOSE,
    )
    expected = left + (at_test * np.linalg.solve(precision, at_test)).sum(axis=0)
    np.testing.assert_allclose(variance, expected, rtol=1e-7, atol=1e-10)


def test_one_by_one_in_blocks_and_from_a_copy_are_the_same_bits():
    x, y = stream(350)
    one, many, resumed = (learner(insertion=ErrorThreshold(0.15)) for _ in range(3))
    whole = many.update_many(x, y)
    np.testing.assert_array_equal(
        [tuple(one.update(*pair)) for pair in zip(x, y, strict=True)], whole.tolist()
    )
    resumed.update_many(x[:130], y[:130])
    resumed = resumed.copy()
    resumed.update_many(x[130:], y[130:])
    for other in (one, resumed):
        np.testing.assert_equal(other.state(), many.state())
        assert (other.noise_variance, other.kernel) == (
            many.noise_variance,
            many.kernel,
        )


def test_a_sample_that_is_turned_away_is_learned_all_the_same():
    x, y = stream(300)
    gp = learner(10, insertion=sysid.Always())
    gp.update_many(x[:90], y[:90])
    for sample, target in zip(x[90:], y[90:], strict=True):
        other = learner(10, insertion=NEVER)
        other.restore(gp.state(), list(gp._state.counts))
        report = gp.update(sample, target)
        if report.inserted and not report.accepted:
            other.update(sample, target)
            for ours, expected in zip(gp.predict(TEST), other.predict(TEST), strict=True):
                np.testing.assert_allclose(ours, expected, **CLOSE)
            return
    raise AssertionError("no sample was turned away")


def test_a_point_that_leaves_is_marginalised():
    gp = learner(12, insertion=ErrorThreshold(0.1))
    gp.update_many(*stream(90))
    posterior = moments(gp)
    points = gp.inputs[gp.age_order]
    gp.reduce_to(7)
    kept = [int(np.flatnonzero((points == one).all(axis=1))[0]) for one in gp.inputs[gp.age_order]]
    mean, covariance = moments(gp)
    np.testing.assert_allclose(mean, posterior[0][kept], **CLOSE)
    np.testing.assert_allclose(covariance, posterior[1][np.ix_(kept, kept)], **CLOSE)


def moments(gp):
    """Mean and covariance of the values z of the points, by age."""
    state = gp.state()
    upper = state["cholesky"]
    root = state["root"]
    assert not np.tril(root, -1).any()
    return upper.T @ state["whitened"], upper.T @ root.T @ root @ upper


def test_other_hyperparameters_carry_the_likelihood_of_the_values_over():
    """In the values z themselves: old posterior / old prior x new prior, by dense inverses."""
    gp = learner(12)
    gp.update_many(*stream(90))
    kernel = SquaredExponential(1.7, [1.2, 1.6])
    noise = 0.02
    order = gp.age_order
    points = gp.inputs[order]
    old = gp.kernel(points, points) + gp.diagonal * np.eye(len(points))
    new = kernel(points, points) + DIAGONAL_TO_NOISE * noise * np.eye(len(points))
    mean, covariance = moments(gp)
    precision = np.linalg.inv(covariance)
    expected = np.linalg.inv(precision - np.linalg.inv(old) + np.linalg.inv(new))
    other = gp.with_hyperparameters(kernel, noise)
    found = moments(other)
    np.testing.assert_allclose(found[1], expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found[0], expected @ (precision @ mean), rtol=1e-4, atol=1e-5)
    same = gp.with_hyperparameters(gp.kernel, gp.noise_variance)
    for ours, before in zip(same.predict(TEST), gp.predict(TEST), strict=True):
        np.testing.assert_allclose(ours, before, rtol=1e-7, atol=1e-9)


def test_all_samples_are_learned_anew_under_other_hyperparameters():
    """The batch FITC posterior of the values z at the points, by dense inverses."""
    gp, (x, y) = learner(12, scale=False), stream(90)
    gp.update_many(x, y)
    kernel = SquaredExponential(1.7, [1.2, 1.6])
    noise = 0.02
    other = gp.with_hyperparameters(kernel, noise, (x, y))
    points = gp.inputs[gp.age_order]
    prior = kernel(points, points) + DIAGONAL_TO_NOISE * noise * np.eye(len(points))
    weights = np.linalg.solve(prior, kernel(points, x)).T
    free = kernel.diagonal(x) - np.einsum("ij,ji->i", weights, kernel(points, x)) + noise
    covariance = np.linalg.inv(np.linalg.inv(prior) + weights.T / free @ weights)
    found = moments(other)
    np.testing.assert_allclose(found[1], covariance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        found[0], covariance @ (weights.T @ (y / free)), rtol=1e-6, atol=1e-8
    )
    assert other.n_seen == gp.n_seen


def test_the_exact_form_and_draws_have_the_same_posterior():
    gp = learner(12)
    gp.update_many(*stream(200))
    form, (mean, variance) = gp.exact_form(), gp.predict(TEST)
    k = gp.kernel(gp.inputs[form["order"]], TEST)
    white = form["factor"] @ k
    np.testing.assert_allclose(white.T @ form["whitened"], mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        gp.kernel.diagonal(TEST) - (white**2).sum(axis=0),
        variance,
        rtol=1e-5,
        atol=1e-9,
    )
    np.testing.assert_allclose(form["cholesky"].T @ form["factor"], np.eye(len(k)), atol=1e-6)
    draws = gp.draw_targets(40_000, np.random.default_rng(0))[gp.age_order]
    expected = moments(gp)
    std = np.sqrt(np.diag(expected[1]))
    assert np.max(abs(draws.mean(axis=1) - expected[0]) / std) < 5 / np.sqrt(40_000)
    np.testing.assert_allclose(
        np.cov(draws) / np.outer(std, std), expected[1] / np.outer(std, std), atol=0.04
    )


def test_the_scale_mends_bands_that_are_too_narrow_and_leaves_means_alone():
    x, y = stream(3000, noise=0.04)
    gp = learner(40, noise_variance=0.004, kernel=SquaredExponential(0.1, [1.0, 2.0]))
    gp.update_many(x, y)
    assert gp.noise_variance == pytest.approx(0.04, rel=0.15)
    assert gp.kernel.variance == pytest.approx(25 * gp.noise_variance)
    fixed = learner(
        40,
        noise_variance=0.004,
        kernel=SquaredExponential(0.1, [1.0, 2.0]),
        scale=False,
    )
    fixed.update_many(x, y)
    assert (fixed.noise_variance, fixed.kernel.variance) == (0.004, 0.1)
    left = gp.copy()
    left._rescale()
    np.testing.assert_allclose(left.predict(TEST)[0], gp.predict(TEST)[0], rtol=1e-12)


def test_a_model_file_and_the_training_that_follows_go_on_bit_for_bit(tmp_path):
    x, y = stream(900)
    narx = sysid.Narx({"y": 1}, {"u": 1})
    training = sysid.Adaptive(n_initial=50, restarts=1)
    settings = Settings(training, insertion=Novelty(), reduction=MeanRelevance(), budget=20)
    assert settings.learning is Learning.every_sample
    found = sysid.Identification(narx, settings)
    found.observe_many(x, y)
    assert {str(estimate.reason) for estimate in found.adaptation.estimates} >= {"doubled"}
    found.model.save(tmp_path / "model.nc")
    loaded = sysid.Model.load(tmp_path / "model.nc")
    assert repr(loaded.gp) == repr(found.model.gp)
    assert (
        found.model.update_many(x[:300], y[:300]).tobytes()
        == loaded.update_many(x[:300], y[:300]).tobytes()
    )
    np.testing.assert_equal(loaded.gp.state(), found.model.gp.state())
    for name, factor in (
        ("root", 30.0),
        ("root", -1.0),
        ("root", np.nan),
        ("errors", -1.0),
        ("errors", 1e4),
    ):
        damaged = found.initial.to_dataset()
        damaged[name] = factor * damaged[name]
        with pytest.raises(ValueError, match=r"root must be|errors must be|finite"):
            sysid.Model.from_dataset(damaged)
    with pytest.raises(ValueError, match="root"):
        sysid.Model.from_dataset(damaged.drop_vars("root"))


def followed(n, **settings):
    """Identification of a stream that is estimated again at nearly every test, and the samples of
    the estimates.
    """
    training = sysid.Adaptive(
        n_initial=50,
        restarts=1,
        interval=25,
        significance=0.999,
        max_updates=3,
        **settings,
    )
    options = Settings(
        training,
        insertion=Novelty(),
        reduction=MeanRelevance(),
        scale=False,
        gate=None,
        budget=20,
    )
    start = sysid.Start(
        sysid.Scaling.identity(2),
        sysid.ZeroMean(),
        sysid.Hyperparameters(KERNEL, NOISE, np.nan),
    )
    found = sysid.Identification(sysid.Narx({"y": 1}, {"u": 1}), options, start=start)
    found.observe_many(*stream(n))
    return found, np.array([estimate.sample for estimate in found.adaptation.estimates])


def test_an_estimate_learns_all_samples_anew_while_they_are_kept():
    for size, is_exact in ((150, True), (149, False)):
        found, samples = followed(150, sample_size=size)
        assert samples[-1] == 150
        gp = found.model.gp
        plain = PlainPosterior(gp.kernel, gp.noise_variance, gp.inputs)
        for pair in zip(*stream(150), strict=True):
            plain.learn(*pair)
        expected = np.array([plain.predict(one)[0] for one in TEST])
        assert np.allclose(gp.predict(TEST)[0], expected, rtol=1e-6, atol=1e-8) == is_exact


def test_an_estimate_asks_for_what_serves_the_points():
    """The variational bound of the samples that are kept, by the points: dense formula, plus the
    priors.
    """
    found, _ = followed(75)
    gp, (x, y) = found.model.gp, stream(75)
    problem = found.adaptation.problem(gp)
    logs = problem.logarithms(gp.kernel, gp.noise_variance)
    z = gp.inputs[gp.age_order]
    s2 = gp.noise_variance
    kuf = naive.covariance(gp.kernel, z, x)
    q = kuf.T @ np.linalg.solve(
        naive.covariance(gp.kernel, z, z) + 1e-8 * gp.kernel.variance * np.eye(20), kuf
    )
    density = multivariate_normal(np.zeros(75), q + s2 * np.eye(75)).logpdf(y)
    bound = density - 0.5 * (75 * gp.kernel.variance - np.trace(q)) / s2
    assert -problem.cost(logs)[0] == pytest.approx(bound - problem.prior(logs)[0], rel=1e-8)


def test_estimates_from_a_part_of_the_stream_wait_until_a_tenth_more_is_seen():
    samples = followed(900, sample_size=200)[1]
    assert (np.diff(samples[samples <= 200]) == 25).all()
    late = samples[samples >= 200]
    assert len(late) > 3
    assert (late[1:] >= 1.1 * late[:-1]).all()
    assert (late[1:] < 1.1 * late[:-1] + 25).all()


def test_forward_selection_learns_what_it_does_not_choose():
    x, y = stream(200)
    chosen = sysid.Forward().fill(learner(10), x, y)
    stored = sysid.Forward().fill(learner(10, learning="stored"), x, y)
    np.testing.assert_array_equal(chosen.inputs, stored.inputs)
    plain = PlainPosterior(KERNEL, NOISE, chosen.inputs)
    for pair in zip(x, y, strict=True):
        plain.learn(*pair)
    np.testing.assert_allclose(
        chosen.predict(TEST)[0],
        [plain.predict(one)[0] for one in TEST],
        rtol=1e-6,
        atol=1e-8,
    )


def test_it_beats_the_stored_points_where_noise_must_be_averaged():
    x, y = stream(4000, noise=0.09)
    truth = np.sin(TEST[:, 0]) * TEST[:, 1]
    errors = {}
    for learning in Learning:
        gp = learner(30, noise_variance=0.09, insertion=Novelty(), learning=learning)
        gp.update_many(x, y)
        errors[learning] = np.mean((gp.predict(TEST)[0] - truth) ** 2)
    assert errors[Learning.every_sample] < 0.2 * errors[Learning.stored]


@pytest.mark.parametrize("noise", [1e-2, 1e-6])
def test_rounding_does_not_grow(noise):
    """Against batch FITC of all samples in the same points, which the stream fixed at the start."""
    x, y = stream(20_000, noise=noise)
    gp = learner(20, noise_variance=noise, insertion=NEVER, scale=False).fit(x[:20], y[:20])
    gp.update_many(x[20:], y[20:])
    lower = np.linalg.cholesky(KERNEL(x[:20], x[:20]) + DIAGONAL_TO_NOISE * noise * np.eye(20))
    phi = np.linalg.solve(lower, KERNEL(x[:20], x))
    weight = 1.0 / (noise + np.maximum(KERNEL.diagonal(x) - (phi**2).sum(axis=0), 0.0))
    precision = np.eye(20) + (phi * weight) @ phi.T
    at_test = np.linalg.solve(lower, KERNEL(x[:20], TEST))
    expected = at_test.T @ np.linalg.solve(precision, phi @ (weight * y))
    assert np.max(abs(gp.predict(TEST)[0] - expected)) < 1e-6 * np.sqrt(noise)


class ThreeArguments(sysid.Insertion):
    @staticmethod
    def formula(error, variance, parameters):
        return True

    def parameters(self):
        return np.zeros(1)


def test_samples_are_absorbed_in_blocks_as_one_by_one():
    """Points that nearly coincide, and noise of 1e-6 of the signal, among them."""
    x, y = stream(MIN_ABSORPTION_BLOCK_ROWS + 40, 3, 1e-6)
    for places in (PLACES, np.vstack([PLACES, PLACES[:5] + 1e-3]), PLACES[:1]):
        options = {
            "budget": len(places) + 1,
            "noise_variance": 1e-6,
            "insertion": NEVER,
            "scale": False,
        }
        one, other = (learner(**options).fit(places, np.zeros(len(places))) for _ in range(2))
        one.absorb(x, y)
        other.update_many(x, y)
        for ours, expected in zip(one.predict(TEST), other.predict(TEST), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-7, atol=1e-9)


def test_bad_settings_say_what_to_do():
    for make in (lambda: learner(learning="all"), lambda: Settings(learning="all")):
        with pytest.raises(
            ValueError,
            match=r"learning must be one of \['stored', 'every_sample'\], got 'all'",
        ):
            make()
    with pytest.raises(
        TypeError,
        match=r"ThreeArguments\.formula: expected the arguments \(error, variance, novelty",
    ):
        learner(insertion=ThreeArguments())
    with pytest.raises(TypeError, match="scale must be True or False, got 'no'"):
        learner(scale="no")
    gp = learner().fit(*stream(20))
    before = gp.predict(TEST)
    for x, y in ((np.nan, 0.0), (0.0, np.inf)):
        with pytest.raises(ValueError, match="not finite"):
            gp.absorb([[x, 0.0]], [y])
    np.testing.assert_array_equal(gp.predict(TEST), before)
    with pytest.raises(ValueError, match="novelty_threshold"):
        Novelty(-1.0)
    with pytest.raises(AttributeError, match="learning is fixed"):
        learner().learning = Learning.stored


def test_given_points_say_all_that_they_know():
    """A training that delivers the points of the model has seen the samples: what comes after are
    stored points.
    """
    x, y = stream(60)
    points = Points(x[:10], y[:10])
    narx = sysid.Narx({"y": 1}, {"u": 1})
    settings = Settings(sysid.Fixed(1.0, 1.0, 0.01, n_initial=30))
    for given, learning in ((None, Learning.every_sample), (points, Learning.stored)):
        found = sysid.Identification(narx, settings, start=sysid.Start(points=given))
        found.observe_many(x, y)
        assert found.model.gp.learning is learning
