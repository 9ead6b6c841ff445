"""Training: objective and gradient, starts and bounds, recovery, units, odd data, settings."""

from functools import cache, partial

import numpy as np
import pytest

from naive import NaiveGP, covariance, finite_differences
from sysid import (
    Backward,
    Fixed,
    Linear,
    Matern32,
    Matern52,
    MaximumAPosteriori,
    MaximumLikelihood,
    OnlineGP,
    Product,
    SquaredExponential,
    Sum,
    Training,
    build,
    describe,
    log_marginal_likelihood,
)
from sysid.gp.training import MarginalLikelihoodProblem

FORMS = {
    "squared_exponential": SquaredExponential(),
    "matern_32": Matern32(),
    "matern_52": Matern52(),
    "linear": Linear(),
    "sum": Sum([Linear(), SquaredExponential()]),
    "product": Product([Linear(), Matern52()]),
    "nested": Sum([Product([SquaredExponential(), Sum([Linear(), Matern32()])]), Linear()]),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
each_stationary = pytest.mark.parametrize("kind", [SquaredExponential, Matern32, Matern52])
each_kind = pytest.mark.parametrize("kind", [MaximumLikelihood, MaximumAPosteriori])


def draw_from_prior(kernel, noise_variance, seed, n=150):
    """Return n random inputs, and noisy targets that are a sample of the GP itself."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, kernel.n_features))
    ky = covariance(kernel, x, x) + noise_variance * np.eye(n)
    return x, np.linalg.cholesky(ky) @ rng.normal(size=n)


def draw_smooth_samples(length_scales, noise_variance, seed, n):
    """Return inputs and targets of a GP with a squared exponential kernel of variance 1."""
    kernel = SquaredExponential(1.0, length_scales)
    return draw_from_prior(kernel, noise_variance, seed, n)


def nonlinear_samples(n=15):
    """Return n inputs with two features of different spread, and noisy nonlinear targets."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2)) * [1.0, 3.0]
    noise = 0.1 * rng.normal(size=n)
    return x, x[:, 0] + np.sin(x[:, 1]) + noise


def make_problem(form, kind=MaximumAPosteriori):
    """Return the optimisation problem of a training on fifteen samples."""
    x, y = nonlinear_samples()
    return MarginalLikelihoodProblem.of(kind(kernel=form, weight_prior_median=2.0), x, y)


# --- marginal likelihood and objective ------------------------------------------------------------


def point_off_the_starts(problem):
    """Return a vector of logarithms where no derivative of the objective vanishes."""
    _, _, drawn = problem.starts(3, np.random.default_rng(0))
    return drawn + 0.1


@each_kind
@each_form
def test_cost_is_minus_the_log_posterior_of_a_naive_gp(form, kind):
    problem = make_problem(form, kind)
    logs = point_off_the_starts(problem)
    kernel, noise_variance = problem.kernel_and_noise(logs)
    naive = NaiveGP(kernel, noise_variance, problem.inputs, problem.targets).log_likelihood()
    prior, _ = problem.prior(logs)
    cost, _ = problem.cost(logs)
    assert problem.log_likelihood(logs).value == pytest.approx(naive, rel=1e-8)
    assert cost == pytest.approx(prior - naive, rel=1e-8)


@each_kind
@each_form
def test_gradient_of_the_cost_is_that_of_finite_differences(form, kind):
    problem = make_problem(form, kind)
    logs = point_off_the_starts(problem)
    numerical = finite_differences(lambda v: problem.cost(v)[0], logs, 1e-3)
    _, gradient = problem.cost(logs)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-5)


@each_kind
@each_form
def test_logarithms_are_those_of_the_kernel_and_of_the_noise_relative_to_the_signal(form, kind):
    problem = make_problem(form, kind)
    logs = point_off_the_starts(problem)
    kernel, noise_variance = problem.kernel_and_noise(logs)
    one = np.ones((1, 2))
    signal_variance = covariance(kernel, one, one)[0, 0]
    assert noise_variance == pytest.approx(signal_variance * np.exp(logs[-1]), rel=1e-12)
    np.testing.assert_allclose(problem.logarithms(kernel, noise_variance), logs, atol=1e-12)


@each_form
def test_a_covariance_that_is_not_positive_definite_is_refused(form):
    problem = make_problem(form)
    kernel, _ = problem.kernel_and_noise(point_off_the_starts(problem))
    with pytest.raises(np.linalg.LinAlgError, match="15 points is not positive definite"):
        log_marginal_likelihood(kernel, -1e6, problem.inputs, problem.targets)


def test_logarithms_of_another_kind_of_kernel_are_refused():
    problem = make_problem(FORMS["sum"])
    with pytest.raises(ValueError, match=r"Sum.*Matern52"):
        problem.logarithms(Matern52(1.0, [1.0, 1.0]), 0.1)


# --- priors ---------------------------------------------------------------------------------------


@each_form
def test_length_scales_and_weights_have_a_prior_and_signal_variances_have_none(form):
    problem = make_problem(form)
    has_prior = np.isfinite(problem.space.stds)
    for name, is_held in zip(problem.unit.hyperparameter_names, has_prior, strict=True):
        quantity = name.rpartition(": ")[2]
        if is_held:
            assert quantity.startswith(("length scale", "weight variance", "offset"))
        else:
            assert not quantity.startswith(("length", "weight"))


@each_form
@pytest.mark.parametrize("distance", [0.0, 0.5])
def test_a_prior_is_a_square_about_the_median(form, distance):
    """One logarithm lies a distance from its median, all others at theirs; the prior of the noise
    is at its median too.
    """
    problem = make_problem(form)
    space = problem.space
    has_prior = np.isfinite(space.stds)
    first_with_prior = np.argmax(has_prior)
    logs = np.append(space.start, 0.0)
    logs[:-1][has_prior] = space.medians[has_prior]
    logs[first_with_prior] += distance
    log_signal_variance, _ = problem.unit.log_variance(logs[:-1])
    logs[-1] = np.log(0.1 * problem.expected.variance) - log_signal_variance
    expected = 0.5 * (distance / space.stds[first_with_prior]) ** 2
    assert problem.prior(logs)[0] == pytest.approx(expected, rel=1e-9, abs=1e-20)


# --- starts and bounds ----------------------------------------------------------------------------


def draw_starts(problem, seed):
    """Return the first start, the one of longer length scales, and a random one."""
    return problem.starts(3, np.random.default_rng(seed))


@each_form
def test_starts_lie_within_the_bounds(form):
    problem = make_problem(form)
    low, high = problem.bounds.T
    starts = np.array(draw_starts(problem, seed=0))
    assert np.all(low <= starts)
    assert np.all(starts <= high)


@each_form
def test_only_the_third_start_follows_the_seed(form):
    problem = make_problem(form)
    low, high = problem.bounds.T
    is_free = low < high
    starts = draw_starts(problem, seed=0)
    same_seed = draw_starts(problem, seed=0)
    other_seed = draw_starts(problem, seed=1)
    np.testing.assert_array_equal(starts, same_seed)
    np.testing.assert_array_equal(starts[:2], other_seed[:2])
    assert np.all((starts[2] != starts[0])[is_free])
    assert np.all((starts[2] != other_seed[2])[is_free])


@each_form
def test_the_first_start_has_about_the_variance_of_the_target(form):
    problem = make_problem(form)
    first, _, _ = draw_starts(problem, seed=0)
    kernel = problem.unit.with_log_hyperparameters(first[:-1])
    x = np.vstack([np.zeros(2), problem.expected.lengths])
    largest_variance = kernel(x, x).diagonal().max()
    assert largest_variance > 0.05 * problem.expected.variance
    assert largest_variance < 20 * problem.expected.variance


@pytest.mark.parametrize(("index", "factor"), [(0, 1), (1, 20)], ids=["first", "longer"])
def test_the_parts_of_a_sum_share_the_variance_at_the_first_two_starts(index, factor):
    problem = make_problem(FORMS["sum"])
    start = draw_starts(problem, seed=0)[index]
    kernel, _ = problem.kernel_and_noise(start)
    linear, smooth = kernel.parts
    half = problem.expected.variance / 2
    weights = 2.0 * problem.expected.variance / np.var(problem.inputs, axis=0) / factor**2
    length_scales = factor * problem.expected.lengths
    np.testing.assert_allclose(linear.parameters(), [half, *weights], rtol=1e-12)
    np.testing.assert_allclose(smooth.parameters(), [half, *length_scales], rtol=1e-12)


@pytest.mark.parametrize(
    "further", [Linear(), Matern32(), FORMS["sum"]], ids=["linear", "matern_32", "sum"]
)
def test_a_further_factor_has_no_unit_and_no_prior_on_its_fixed_scale(further):
    """Only the variance of the first factor changes with the unit of the target."""
    x, y = nonlinear_samples()
    training = MaximumAPosteriori(kernel=Product([SquaredExponential(), further]))
    space = MarginalLikelihoodProblem.of(training, x, y).space
    in_other_unit = MarginalLikelihoodProblem.of(training, x, 1e-2 * y).space
    shift = np.zeros(len(space.start))
    shift[0] = np.log(1e-4)
    np.testing.assert_allclose(in_other_unit.start, space.start + shift, atol=1e-12)
    np.testing.assert_allclose(in_other_unit.bounds, space.bounds + shift[:, None], atol=1e-12)
    np.testing.assert_allclose(in_other_unit.medians[1:], space.medians[1:], atol=1e-12)

    has_prior = np.isfinite(space.stds[:6]).tolist()
    low, high = space.bounds[3]
    assert has_prior == [False, True, True, False, True, True]
    assert low == high == space.start[3]


def test_the_fixed_scale_of_a_further_factor_is_not_reported_as_a_bound():
    x, y = nonlinear_samples()
    result = MaximumAPosteriori(kernel=FORMS["product"], restarts=1).train(x, y, seed=0)
    assert result.kernel.parts[1].variance == 1.0
    assert not any("part 2: signal variance" in warning for warning in result.warnings)


# --- recovery and units ---------------------------------------------------------------------------


@pytest.mark.parametrize("noise_variance", [0.1, 1e-3])
@each_stationary
def test_hyperparameters_of_a_gp_sample_are_recovered(kind, noise_variance):
    truth = kind(1.0, [0.5, 1.5])
    x, y = draw_from_prior(truth, noise_variance, seed=1)
    result = MaximumLikelihood(kernel=kind(), restarts=3).train(x, y, seed=0)
    assert type(result.kernel) is kind
    ratio = np.array(result.kernel.length_scales) / truth.length_scales
    assert np.all((ratio > 0.5) & (ratio < 2))
    assert 1 / 3 < result.noise_variance / noise_variance < 3
    assert 0.1 < result.kernel.variance < 10
    assert result.warnings == ()

    likelihood = NaiveGP(result.kernel, result.noise_variance, x, y).log_likelihood()
    likelihood_of_truth = NaiveGP(truth, noise_variance, x, y).log_likelihood()
    assert result.log_likelihood == pytest.approx(likelihood, rel=1e-6)
    assert likelihood > likelihood_of_truth


@each_stationary
def test_a_training_gives_the_same_bits_again_and_does_not_change_the_samples(kind):
    x, y = draw_from_prior(kind(1.0, [0.5, 1.5]), 0.1, seed=1, n=60)
    same_x = x.copy()
    same_y = y.copy()
    training = MaximumLikelihood(kernel=kind(), restarts=3)
    result = training.train(x, y, seed=0)
    assert x.tobytes() == same_x.tobytes()
    assert y.tobytes() == same_y.tobytes()
    assert training.train(same_x, same_y, seed=0) == result


@pytest.fixture(scope="module")
def samples_with_an_irrelevant_feature():
    """Twelve samples of a function of the first of two features."""
    x, y = draw_smooth_samples([1.0], 1e-2, seed=21, n=12)
    irrelevant = np.random.default_rng(22).normal(size=12)
    return np.column_stack([x, irrelevant]), y


def test_a_prior_holds_length_scales_that_the_data_do_not_determine(
    samples_with_an_irrelevant_feature,
):
    x, y = samples_with_an_irrelevant_feature
    free = MaximumLikelihood().train(x, y, seed=0)
    tight_prior = {"length_scale_prior_median": 3.0, "length_scale_prior_std": 0.01}
    held = MaximumLikelihood(**tight_prior).train(x, y, seed=0)
    pairs = np.triu_indices(12, 1)
    distances = np.abs(x[:, None] - x)[pairs]
    prior_median = 3.0 * np.sqrt(2) * np.median(distances, axis=0)
    np.testing.assert_allclose(held.kernel.length_scales, prior_median, rtol=0.1)
    assert np.abs(np.log(free.kernel.length_scales / prior_median)).max() > 1.0
    assert held.log_likelihood <= free.log_likelihood + 1e-6


def test_a_prior_holds_the_noise_variance(samples_with_an_irrelevant_feature):
    x, y = samples_with_an_irrelevant_feature
    training = MaximumLikelihood(noise_prior_median=0.5, noise_prior_std=1e-3)
    result = training.train(x, y, seed=0)
    assert result.noise_variance == pytest.approx(0.5 * np.mean(y**2), rel=1e-2)


@cache
def train_on_thirty_samples(form, kind, y_factor, x_factors):
    """Return what a training finds after a change of the units."""
    x, y = nonlinear_samples(30)
    return kind(kernel=form, restarts=1).train(x * np.array(x_factors), y * y_factor, seed=0)


@each_kind
@pytest.mark.parametrize("form_name", ["squared_exponential", "sum", "product"])
@pytest.mark.parametrize(
    ("y_factor", "x_factors"),
    [(1e-4, (1.0, 1.0)), (1e5, (1.0, 1.0)), (1.0, (1e3, 1.0))],
    ids=["small_target", "large_target", "large_feature"],
)
def test_units_of_target_and_features_scale_out(form_name, kind, y_factor, x_factors):
    form = FORMS[form_name]
    result = train_on_thirty_samples(form, kind, 1.0, (1.0, 1.0))
    scaled = train_on_thirty_samples(form, kind, y_factor, x_factors)
    likelihood = result.log_likelihood - 30 * np.log(y_factor)
    noise_variance = y_factor**2 * result.noise_variance
    assert scaled.log_likelihood == pytest.approx(likelihood, abs=2e-2)
    assert scaled.noise_variance == pytest.approx(noise_variance, rel=5e-2)

    x = np.array([[0.3, 1.0], [2.0, -4.0]])
    scaled_x = x * np.array(x_factors)
    expected = y_factor**2 * result.kernel(x, x)
    np.testing.assert_allclose(scaled.kernel(scaled_x, scaled_x), expected, rtol=0.1)


# --- odd data -------------------------------------------------------------------------------------


def append_column(x, value):
    """Return the inputs with one more feature of a constant value."""
    return np.column_stack([x, np.full(len(x), value)])


ODD_DATA = {
    "constant_feature": lambda x, y: (append_column(x, 3.0), y),
    "almost_constant_feature": lambda x, y: (append_column(x, 0.1), y),
    "duplicate_rows": lambda x, y: (np.repeat(x, 3, axis=0), np.repeat(y, 3)),
    "target_of_zeros": lambda x, y: (x, 0.0 * y),
    "constant_target": lambda x, y: (x, 0.0 * y + 5.0),
    "two_points": lambda x, y: (x[:2], y[:2]),
    "no_noise": lambda x, y: (x, np.sin(3 * x[:, 0])),
}


def assert_an_online_gp_can_use(kind, form, change):
    """Train on odd data and assert that a GP with the result predicts finite numbers."""
    x, y = ODD_DATA[change](*draw_smooth_samples([0.6], 1e-2, seed=25, n=40))
    result = kind(kernel=form, restarts=2, max_iterations=50).train(x, y, seed=0)
    gp = OnlineGP(result.kernel, noise_variance=result.noise_variance, budget=len(y))
    mean, variance = gp.fit(x, y).predict(x)
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()
    assert (variance >= 0).all()
    assert np.isfinite(result.log_likelihood)
    assert np.exp(result.kernel.log_hyperparameters()).min() > 1e-12


@each_kind
@pytest.mark.parametrize("change", ODD_DATA)
def test_odd_data_give_a_kernel_that_an_online_gp_can_use(kind, change):
    assert_an_online_gp_can_use(kind, SquaredExponential(), change)


@each_form
def test_data_without_noise_give_a_kernel_that_an_online_gp_can_use(form):
    assert_an_online_gp_can_use(MaximumLikelihood, form, "no_noise")


def test_a_noise_variance_at_its_lower_bound_is_reported():
    x = np.linspace(-1, 1, 25)[:, None]
    result = MaximumLikelihood().train(x, np.sin(3 * x[:, 0]), seed=0)
    assert result.noise_variance >= 1e-8 * result.kernel.variance * (1 - 1e-9)
    assert "noise variance at its lower bound" in result.warnings


def test_variances_at_their_upper_bounds_are_reported():
    x = np.linspace(-1, 1, 25)[:, None]
    y = np.random.default_rng(0).normal(size=25)
    training = MaximumLikelihood(noise_bounds=(1e-8, 1e-3), variance_bounds=(0.1, 0.2))
    result = training.train(x, y, seed=0)
    assert set(result.warnings) == {
        "signal variance at its upper bound",
        "noise variance at its upper bound",
    }


# --- settings -------------------------------------------------------------------------------------

GIVEN = {"variance": 2.0, "length_scales": [1.0, 4.0], "noise_variance": 0.1}
NO_INPUTS = np.zeros((0, 2))
NO_TARGETS = np.zeros(0)


@pytest.mark.parametrize(
    ("form", "kernel"),
    [
        pytest.param(Matern52(), Matern52(2.0, [1.0, 4.0]), id="matern_52"),
        pytest.param(
            FORMS["sum"],
            Sum([Linear(1.0, [1.0, 0.0625]), SquaredExponential(1.0, [1.0, 4.0])]),
            id="sum",
        ),
        pytest.param(
            FORMS["product"],
            Product([Linear(2.0, [2.0, 0.125]), Matern52(1.0, [1.0, 4.0])]),
            id="product",
        ),
    ],
)
def test_fixed_returns_the_hyperparameters_that_it_was_given(form, kernel):
    training = Fixed(**GIVEN, kernel=form)
    result = training.train(NO_INPUTS, NO_TARGETS, seed=0)
    assert result.kernel == kernel
    assert result.noise_variance == 0.1
    assert result.warnings == ()
    assert np.isnan(result.log_likelihood)
    with pytest.raises(ValueError, match="Fixed: length_scales"):
        training.train(np.zeros((0, 3)), NO_TARGETS, seed=0)


def test_fixed_uses_one_length_scale_for_all_features_without_standardising_them():
    training = Fixed(2, 4.0, 0.5)
    result = training.train(NO_INPUTS, NO_TARGETS, seed=0)
    assert result.kernel.length_scales == (4.0, 4.0)
    assert not training.standardise


WRONG_KERNELS = {
    "one_feature": SquaredExponential(1.0, [1.0]),
    "variance_of_two": SquaredExponential(2.0),
    "class": Linear,
    "text": "matern",
    "none": None,
}
WRONG_SETTINGS = {
    "n_initial": ["abc", 1],
    "restarts": [0],
    "max_iterations": [0],
    "noise_bounds": [(1e-12, 1e-10), 3, (2.0, 1.0), (np.nan, 1.0)],
    "length_scale_bounds": [(0.0, 1.0), (1.0, 1.0)],
    "variance_bounds": [(0.0, 1.0), (1.0, 1.0)],
    "weight_bounds": [(0.0, 1.0), (1.0, 1.0)],
    "length_scale_prior_median": [0.0, np.nan, ".inf"],
    "length_scale_prior_std": [0.0, np.nan, ".inf"],
    "weight_prior_median": [0.0, np.nan, ".inf"],
    "weight_prior_std": [0.0, np.nan, ".inf"],
    "noise_prior_median": [0.0, np.nan, ".inf"],
    "noise_prior_std": [0.0, np.nan, ".inf"],
}
KINDS_WITH_A_KERNEL = {
    "MaximumLikelihood": MaximumLikelihood,
    "MaximumAPosteriori": MaximumAPosteriori,
    "Fixed": partial(Fixed, **GIVEN),
}


def wrong_settings():
    """Yield a case for every value of a setting that a training or a selection refuses."""
    for name, values in WRONG_SETTINGS.items():
        for value in values:
            case = f"MaximumLikelihood-{name}-{value}"
            yield pytest.param(MaximumLikelihood, name, value, id=case)
    for kind_name, kind in KINDS_WITH_A_KERNEL.items():
        for kernel_name, kernel in WRONG_KERNELS.items():
            yield pytest.param(kind, "kernel", kernel, id=f"{kind_name}-kernel-{kernel_name}")
    yield pytest.param(partial(Fixed, **GIVEN), "n_initial", -1, id="Fixed-n_initial")
    yield pytest.param(Backward, "max_samples", 1.5, id="Backward-max_samples")


@pytest.mark.parametrize(("kind", "name", "value"), list(wrong_settings()))
def test_wrong_settings_are_refused(kind, name, value):
    with pytest.raises((TypeError, ValueError), match=f": {name} must be"):
        kind(**{name: value})


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(MaximumLikelihood(kernel=FORMS["nested"]), id="MaximumLikelihood"),
        pytest.param(Fixed(**GIVEN, kernel=FORMS["sum"]), id="Fixed"),
    ],
)
def test_settings_come_back_from_their_description(training):
    assert build(describe(training), Training) == training
