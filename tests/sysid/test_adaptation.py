"""Hyper-parameters that follow the stream: the reservoir, the objective, the test of the errors."""

import numpy as np
import pytest
from scipy.stats import chi2, chisquare, multivariate_normal

from naive import NaiveGP, covariance, finite_differences
from sysid import (
    AcceptAll,
    Adaptive,
    ExceedsMinimum,
    Fixed,
    Hyperparameters,
    Identification,
    Linear,
    MarginalLogLikelihood,
    Matern32,
    MaximumAPosteriori,
    MaximumLikelihood,
    MeanRelevance,
    Narx,
    PriorEntropy,
    Scaling,
    Settings,
    SquaredExponential,
    StableSpline,
    Start,
    Sum,
    Training,
    VarianceThreshold,
    WithLinearPart,
    ZeroMean,
    build,
    describe,
)
from sysid.gp.adaptation import MAX_EVALUATIONS_PER_UPDATE, Reason, Reservoir, contradicts
from sysid.gp.training import MarginalLikelihoodProblem
from sysid.model.model_file import start_from_dataset, start_to_dataset

NARX = Narx(outputs={"y": 1}, inputs={"u": 1})  # two features
N_INITIAL = 12
INTERVAL = 10
QUICK = {
    "n_initial": N_INITIAL,
    "restarts": 1,
    "interval": INTERVAL,
    "window": 20,
    "sample_size": 15,
}
EAGER = QUICK | {"significance": 0.999}
SUM = Sum([Linear(), SquaredExponential()])


def start_with(kernel, noise_variance=0.1):
    """Return a start with these hyper-parameters and without scaling."""
    hyperparameters = Hyperparameters(kernel, noise_variance, np.nan)
    return Start(Scaling.identity(2), ZeroMean(), hyperparameters)


WRONG_NOISE = 0.1
WRONG_START = start_with(SquaredExponential(1.0, [1.0, 1.0]), WRONG_NOISE)


def waves(x):
    """Return a smooth function (n,) of inputs (n, 2)."""
    return np.sin(1.5 * x[:, 0]) + np.cos(1.5 * x[:, 1])


def make_stream(n, seed=0, noise_std=0.1, function=waves):
    """Return inputs (n, 2) and noisy targets (n,) of a function."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, function(x) + noise_std * rng.normal(size=n)


def identify(x, y, *, budget=15, seed=0, start=None, rules=None, **training_settings):
    """Return the identification of a stream, and the reports after its initial samples."""
    default_rules = {"acceptance": AcceptAll(), "reduction": MarginalLogLikelihood()}
    settings = Settings(
        training=Adaptive(**training_settings),
        learning="stored",
        gate=None,
        budget=budget,
        seed=seed,
        **default_rules | (rules or {}),
    )
    identification = Identification(NARX, settings, start=start or Start())
    reports = identification.observe_many(x, y)
    return identification, reports[np.isfinite(reports["mean"])]


def estimates_of(identification):
    """Return the estimates of an identification without their wall times."""
    estimates = identification.adaptation.estimates
    assert all(estimate.seconds > 0 for estimate in estimates)
    return [estimate._replace(seconds=0.0) for estimate in estimates]


def problem_of(identification):
    """Return the problem that the next estimate would solve."""
    return identification.adaptation.problem(identification.model.gp)


# --- the reservoir --------------------------------------------------------------------------------


def fill_reservoir(n, size, seed, n_blocks=1):
    """Return a reservoir of `size` places that has seen the samples 0 to n - 1 in blocks.

    The input and the target of a sample are its number.
    """
    reservoir = Reservoir(size, 1, np.random.default_rng(seed))
    for block in np.array_split(np.arange(float(n)), n_blocks):
        reservoir.extend(block[:, None], block, block.astype(int))
    return reservoir


def kept_numbers(n, size, seed, n_blocks=1):
    """Return the numbers of the samples that a reservoir keeps."""
    _, _, numbers = fill_reservoir(n, size, seed, n_blocks).kept()
    return numbers


def test_a_reservoir_returns_copies_of_whole_samples():
    reservoir = fill_reservoir(200, 20, seed=1)
    assert reservoir.n_seen == 200
    for array in reservoir.kept():
        array[:] = -5.0
    inputs, targets, numbers = reservoir.kept()
    assert (numbers >= 0).all()
    np.testing.assert_array_equal(inputs[:, 0], numbers)
    np.testing.assert_array_equal(targets, numbers)


@pytest.mark.parametrize(("n", "size"), [(40, 10), (11, 10), (25, 3)])
def test_every_sample_and_every_pair_are_kept_with_the_same_probability(n, size):
    """How often each of n samples is kept is binomial with probability size / n.

    The counts of one reservoir sum to its size, so that they vary less than independent draws.
    """
    n_reservoirs = 2000
    kept = np.array([kept_numbers(n, size, [5, seed]) for seed in range(n_reservoirs)])
    counts = np.bincount(kept.ravel(), minlength=n)
    reduction_of_variance = 1 - (size - 1) / (n - 1)
    deviations = (counts - np.mean(counts)) / np.sqrt(reduction_of_variance)
    assert chisquare(np.mean(counts) + deviations).pvalue > 1e-3
    n_neighbours = np.count_nonzero(np.diff(np.sort(kept, axis=1)) == 1) / n_reservoirs
    assert n_neighbours == pytest.approx(size * (size - 1) / n, rel=0.08)


@pytest.mark.parametrize("n_blocks", [2, 7, 200])
def test_blocks_do_not_matter_for_a_reservoir(n_blocks):
    at_once = kept_numbers(200, 20, seed=1)
    assert len(set(at_once)) == 20
    np.testing.assert_array_equal(kept_numbers(200, 20, seed=1, n_blocks=n_blocks), at_once)


def test_another_seed_keeps_other_samples():
    assert set(kept_numbers(200, 20, seed=2)) != set(kept_numbers(200, 20, seed=1))


@pytest.mark.parametrize("n", [20, 3])
def test_the_first_samples_fill_a_reservoir(n):
    np.testing.assert_array_equal(kept_numbers(n, 20, seed=1), np.arange(n))


# --- the objective --------------------------------------------------------------------------------


def test_the_problem_is_the_sample_given_the_other_points_of_the_dictionary():
    """Points and sample are compared by number: equal samples are different samples."""
    x, y = make_stream(60)
    x = np.repeat(x, 2, axis=0)
    y = np.repeat(y, 2)
    identification, _ = identify(x, y, start=WRONG_START, **QUICK)
    problem = problem_of(identification)
    gp = identification.model.gp
    _, _, sample = identification.adaptation._sample.kept()
    points = gp.sample_numbers[gp.age_order]
    other_points = points[~np.isin(points, sample)]
    numbers = np.append(other_points, sample)
    assert len(sample) == QUICK["sample_size"]
    assert problem.n_given == len(other_points)
    assert 0 < problem.n_given < gp.n_points
    np.testing.assert_array_equal(problem.inputs, x[numbers])
    np.testing.assert_array_equal(problem.targets, y[numbers])
    problem_of_points = MarginalLikelihoodProblem.of(
        Adaptive(**QUICK), gp.inputs[gp.age_order], gp.targets[gp.age_order]
    )
    np.testing.assert_array_equal(problem.bounds, problem_of_points.bounds)
    np.testing.assert_equal(problem.expected._asdict(), problem_of_points.expected._asdict())


def test_the_objective_is_the_conditional_density_of_a_naive_normal_distribution():
    identification, _ = identify(*make_stream(120), start=WRONG_START, **QUICK)
    problem = problem_of(identification)
    n_given = problem.n_given
    logarithms = np.array([0.3, 0.4, -0.2, -2.5])  # variance, two lengths, noise / variance
    kernel = SquaredExponential(np.exp(0.3), np.exp(logarithms[1:3]))
    noise_variance = np.exp(0.3 - 2.5)
    given = NaiveGP(kernel, noise_variance, problem.inputs[:n_given], problem.targets[:n_given])
    inverse = np.linalg.inv(given.ky)
    sample = problem.inputs[n_given:]
    cross = covariance(kernel, sample, given.inputs)
    prior = covariance(kernel, sample, sample) + noise_variance * np.eye(len(sample))
    mean = cross @ inverse @ given.targets
    posterior = prior - cross @ inverse @ cross.T
    expected = multivariate_normal(mean, posterior).logpdf(problem.targets[n_given:])
    cost, gradient = problem.cost(logarithms)
    prior_cost, _ = problem.prior(logarithms)
    assert problem.log_likelihood(logarithms).value == pytest.approx(expected, rel=1e-9)
    assert cost == pytest.approx(prior_cost - expected, rel=1e-9)
    expected_gradient = finite_differences(lambda at: problem.cost(at)[0], logarithms, 1e-3)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("length_scale", "is_outside"), [(1.0, False), (1e6, True)], ids=["within bounds", "outside"]
)
def test_an_estimate_starts_from_the_current_values_and_ends_at_a_lower_cost(
    length_scale, is_outside
):
    """Outside the bounds it starts from the nearest values within, and warns."""
    start = start_with(SquaredExponential(2.0, [length_scale, 1.5]))
    identification, _ = identify(*make_stream(N_INITIAL + INTERVAL), start=start, **EAGER)
    (estimate,) = estimates_of(identification)
    gp = identification.model.gp
    problem = problem_of(identification)  # that of the estimate: no sample came after it
    current = np.clip(np.log([2.0, length_scale, 1.5, 0.1 / 2.0]), *problem.bounds.T)
    new = problem.logarithms(estimate.kernel, estimate.noise_variance)
    density_before = problem.log_likelihood(current).value
    density_after = problem.log_likelihood(new).value
    assert gp.kernel == estimate.kernel
    assert gp.noise_variance == estimate.noise_variance
    assert estimate.log_density_before == pytest.approx(density_before, rel=1e-9)
    assert estimate.log_density_after == pytest.approx(density_after, rel=1e-9)
    assert problem.cost(new)[0] < problem.cost(current)[0]
    warns = "started from the nearest values within the bounds" in estimate.warnings
    assert warns is is_outside


# --- when hyper-parameters are estimated ----------------------------------------------------------


@pytest.mark.parametrize("n", [1, 30, 100])
@pytest.mark.parametrize("significance", [0.5, 1e-3, 1e-9])
def test_the_limits_are_those_of_the_chi_squared_distribution(n, significance):
    low = chi2.ppf(significance / 2, n)
    high = chi2.isf(significance / 2, n)

    def is_contradicted(total):
        """Return the decision for n equal squares with this sum."""
        return contradicts(np.full(n, total / n), significance)

    assert is_contradicted(0.99 * low) is True
    assert is_contradicted(1.01 * low) is False
    assert is_contradicted(0.99 * high) is False
    assert is_contradicted(1.01 * high) is True


def test_samples_statistics_and_reasons_of_estimates_are_those_of_a_naive_account():
    window = 25
    max_revised = 30
    significance = 0.05
    settings = QUICK | {
        "window": window,
        "after_revised": max_revised,
        "significance": significance,
    }
    x, y = make_stream(260, seed=3)
    identification, reports = identify(
        x, y, start=WRONG_START, rules={"insertion": VarianceThreshold(0.0)}, **settings
    )
    targets = y[N_INITIAL:]
    estimates = {estimate.sample: estimate for estimate in estimates_of(identification)}
    noise_variance = WRONG_NOISE
    squares = np.zeros(0)
    n_revised = 0
    expected = []
    for end in range(INTERVAL, len(reports) + 1, INTERVAL):
        new = slice(end - INTERVAL, end)
        errors = targets[new] - reports["mean"][new]
        new_squares = errors**2 / (reports["variance"][new] + noise_variance)
        squares = np.append(squares, new_squares)[-window:]
        n_revised += reports["accepted"][new].sum()
        n = len(squares)
        is_too_large = squares.sum() > chi2.isf(significance / 2, n)
        is_too_small = squares.sum() < chi2.ppf(significance / 2, n)
        is_wrong = is_too_large or is_too_small
        if is_wrong or n_revised >= max_revised:
            sample = N_INITIAL + end
            expected.append((sample, Reason.errors if is_wrong else Reason.revised, n))
            assert estimates[sample].statistic == pytest.approx(squares.mean())
            noise_variance = estimates[sample].noise_variance
            squares = np.zeros(0)
            n_revised = 0
    made = [
        (estimate.sample, estimate.reason, estimate.n_errors) for estimate in estimates.values()
    ]
    assert made == expected
    assert {reason for _, reason, _ in expected} == {Reason.errors, Reason.revised}


FEW_ESTIMATES = {"start": WRONG_START, **QUICK, "significance": 0.2}


def test_later_samples_change_no_earlier_report_or_estimate():
    n_equal = 77
    x, y = make_stream(140, seed=1)
    changed_y = np.where(np.arange(140) < n_equal, y, 3.0 - y)
    first, reports = identify(x, y, **FEW_ESTIMATES)
    second, changed_reports = identify(x, changed_y, **FEW_ESTIMATES)
    equal_part = slice(0, n_equal - N_INITIAL)
    for name in ("mean", "variance", "slot"):
        np.testing.assert_array_equal(reports[name][equal_part], changed_reports[name][equal_part])
    early = [estimate for estimate in estimates_of(first) if estimate.sample <= n_equal]
    early_of_second = [estimate for estimate in estimates_of(second) if estimate.sample <= n_equal]
    assert early == early_of_second
    assert early != []
    assert estimates_of(first) != estimates_of(second)


def test_the_seed_decides_which_samples_an_estimate_uses():
    x, y = make_stream(140, seed=1)
    first, _ = identify(x, y, seed=0, **FEW_ESTIMATES)
    again, _ = identify(x, y, seed=0, **FEW_ESTIMATES)
    other, _ = identify(x, y, seed=1, **FEW_ESTIMATES)
    assert estimates_of(first) == estimates_of(again)
    assert estimates_of(first) != estimates_of(other)
    assert first.initial.gp.kernel == first.hyperparameters.kernel


@pytest.mark.parametrize("max_updates", [1, 3])
def test_there_is_at_most_one_estimate_an_interval_with_a_bounded_number_of_evaluations(
    max_updates,
):
    settings = EAGER | {"max_updates": max_updates}
    identification, _ = identify(*make_stream(150, seed=2), start=WRONG_START, **settings)
    estimates = estimates_of(identification)
    samples = [estimate.sample for estimate in estimates]
    assert all((sample - N_INITIAL) % INTERVAL == 0 for sample in samples)
    assert len(set(samples)) == len(samples)
    assert len(samples) > 5
    most = max(estimate.n_evaluations for estimate in estimates)
    assert 2 <= most <= MAX_EVALUATIONS_PER_UPDATE * max_updates


def test_more_updates_and_smaller_tolerances_take_more_evaluations(monkeypatch):
    monkeypatch.setattr("sysid.gp.adaptation.MAX_EVALUATIONS_PER_UPDATE", 10_000)
    n_evaluations = []
    for limits in (
        {"max_updates": 1},
        {"max_updates": 2},
        {"max_updates": 50, "tolerance": 1e-2},
        {"max_updates": 50, "tolerance": 1e-9},
    ):
        stream = make_stream(N_INITIAL + INTERVAL)
        identification, _ = identify(*stream, start=WRONG_START, **EAGER | limits)
        n_evaluations.append(identification.adaptation.estimates[0].n_evaluations)
    assert sorted(set(n_evaluations)) == n_evaluations


# --- what it is good for --------------------------------------------------------------------------


def test_the_noise_is_that_of_the_stream_while_the_dictionary_overestimates_it():
    """Medians over streams: one estimate of a variance from 100 samples is off by 15 to 50 %."""
    true_noise_variance = 0.01
    ratios_of_stream = []
    ratios_of_dictionary = []
    for seed in range(5):
        identification, _ = identify(
            *make_stream(1000, seed),
            budget=40,
            seed=seed,
            start=WRONG_START,
            rules={"reduction": MeanRelevance()},
            n_initial=50,
        )
        gp = identification.model.gp
        of_dictionary = MaximumLikelihood(restarts=2).train(gp.inputs, gp.targets, 0)
        ratios_of_stream.append(gp.noise_variance / true_noise_variance)
        ratios_of_dictionary.append(of_dictionary.noise_variance / true_noise_variance)
    assert 0.7 < np.median(ratios_of_stream) < 1.3
    assert np.median(ratios_of_dictionary) > 1.5


def test_a_stream_whose_first_samples_mislead_is_rescued():
    """The first 100 samples come from a small region, where the function varies slowly."""

    def product(x):
        return np.sin(2 * x[:, 0]) * np.cos(x[:, 1])

    x, y = make_stream(600, function=product)
    noise = y - product(x)
    x[:100] *= 0.2
    y = product(x) + noise
    test_x, test_y = make_stream(500, 99, noise_std=0.0, function=product)

    def relative_error(training):
        """Return the mean squared error on new data, relative to the variance of the targets."""
        settings = Settings(training, budget=60, reduction=MeanRelevance())
        identification = Identification(NARX, settings)
        identification.observe_many(x, y)
        mean = identification.model.predict(test_x).mean
        return np.mean((mean - test_y) ** 2) / np.var(test_y)

    error_of_first_training = relative_error(MaximumAPosteriori(restarts=1))
    assert relative_error(Adaptive(restarts=1)) < error_of_first_training / 10


def test_a_stream_of_right_hyperparameters_is_left_alone():
    n = 1000
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n, 2))
    kernel = SquaredExponential(1.0, [0.7, 1.2])
    y = np.linalg.cholesky(kernel(x, x) + 0.01 * np.eye(n)) @ rng.normal(size=n)
    start = start_with(kernel, 0.01)
    identification, _ = identify(x, y, budget=150, start=start, n_initial=50)
    assert len(identification.adaptation.estimates) <= 1


# --- odd data and settings ------------------------------------------------------------------------


def repeat_samples(x, y):
    """Return every fourth sample, four times each."""
    return np.repeat(x[::4], 4, axis=0), np.repeat(y[::4], 4)


ODD_DATA = {
    "constant feature": lambda x, y: (x * [1.0, 0.0], y),
    "constant target": lambda x, y: (x, np.full(len(y), 3.0)),
    "constant but for one sample": lambda x, y: (np.eye(len(y), 2), np.ones(len(y))),
    "duplicates": repeat_samples,
    "huge": lambda x, y: (1e8 * x, 1e8 * y),
    "tiny": lambda x, y: (1e-8 * x, 1e-8 * y),
    "a jump": lambda x, y: (x, y + 1e4 * (np.arange(len(y)) > 60)),
}
ODD_SETTINGS = {
    "a sum": {"kernel": SUM},
    "a Matern kernel": {"kernel": Matern32()},
    "small numbers": {"sample_size": 2, "interval": 1, "window": 1, "n_initial": 2, "budget": 2},
    "large numbers": {"sample_size": 500, "window": 500},
}


def assert_estimates_are_finite(x, y, **settings):
    """Identify a stream with many estimates, and assert that all numbers are finite."""
    rules = {"reduction": PriorEntropy(), "acceptance": ExceedsMinimum(PriorEntropy())}
    settings = QUICK | {"significance": 0.9} | settings
    identification, reports = identify(x, y, rules=rules, **settings)
    estimates = identification.adaptation.estimates
    assert identification.model.gp.kernel == estimates[-1].kernel
    assert np.isfinite(reports["mean"]).all()
    assert np.isfinite(reports["variance"]).all()
    for estimate in estimates:
        assert np.isfinite(estimate.log_density_before)
        assert np.isfinite(estimate.log_density_after)
        assert np.isfinite(estimate.statistic)
        assert estimate.noise_variance > 0


@pytest.mark.parametrize("change", ODD_DATA.values(), ids=ODD_DATA)
def test_odd_data_are_survived(change):
    x, y = change(*make_stream(100))
    assert_estimates_are_finite(x, y)


@pytest.mark.parametrize("settings", ODD_SETTINGS.values(), ids=ODD_SETTINGS)
def test_odd_settings_are_survived(settings):
    assert_estimates_are_finite(*make_stream(60), **settings)


BAD_SETTINGS = {
    "interval": (0, 2.5, "10", True, None),
    "window": (0, 2.5, "10", True, None),
    "max_updates": (0, 2.5, "10", True, None),
    "sample_size": (1, 2.5),
    "n_initial": (1, 2.5),
    "after_revised": (-1, True),
    "significance": (0.0, 1.0, -0.1, np.nan, "0.1", True),
    "tolerance": (0.0, 1.0, -0.1, np.nan, "0.1", True),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_SETTINGS.items() for value in values],
)
def test_settings_are_checked(name, value):
    with pytest.raises(ValueError, match=f"Adaptive: {name}"):
        Adaptive(**{name: value})


def test_the_first_training_is_that_of_maximum_a_posteriori():
    x, y = make_stream(20)
    expected = MaximumAPosteriori(restarts=1).train(x, y, 3)
    assert Adaptive(restarts=1).train(x, y, 3) == expected


def test_an_adaptive_training_is_built_from_its_description():
    training = Adaptive(kernel=SUM)
    assert build(describe(training), Training) == training


def test_an_adaptive_training_follows_the_stream():
    assert Adaptive().follow(4).seed == 4


@pytest.mark.parametrize(
    "training",
    [Fixed(1.0, 1.0, 0.1), MaximumLikelihood(), MaximumAPosteriori()],
    ids=lambda training: type(training).__name__,
)
def test_other_trainings_do_not_follow_the_stream(training):
    assert training.follow(4) is None


@pytest.mark.parametrize("on_records", [False, True])
def test_hyperparameters_of_a_whole_record_stay_unless_they_are_to_follow(on_records):
    x, y = make_stream(150)
    training = Adaptive(**EAGER, record_samples=30, on_records=on_records)
    start = training.know(x, y, mean=ZeroMean(), seed=0)
    identification, _ = identify(x, y, start=start, **vars(training))
    adaptation = identification.adaptation
    has_estimates = adaptation is not None and len(adaptation.estimates) > 0
    is_unchanged = identification.model.gp.kernel == start.hyperparameters.kernel
    assert has_estimates == on_records
    assert is_unchanged != on_records
    assert start_from_dataset(start_to_dataset(start)).stays != on_records


def count_evaluations(monkeypatch):
    """Return a list that grows by one entry with each evaluation of a likelihood."""
    evaluations = []
    original = MarginalLikelihoodProblem.cost

    def cost(problem, x):
        evaluations.append(type(problem))
        return original(problem, x)

    monkeypatch.setattr(MarginalLikelihoodProblem, "cost", cost)
    return evaluations


def test_a_record_of_nearly_the_same_samples_is_trained_from_its_hyperparameters(monkeypatch):
    """A model with a linear part, whose variational bound takes the time."""
    x, y = make_stream(150)
    training = Adaptive(
        record_samples=60, kernel=WithLinearPart(SquaredExponential(), StableSpline([1]))
    )
    whole = training.know(x, y, mean=ZeroMean(), seed=0).hyperparameters
    evaluations = count_evaluations(monkeypatch)

    alone = training.know(x[:-10], y[:-10], mean=ZeroMean(), seed=0).hyperparameters
    n_alone = len(evaluations)
    near = training.know(x[:-10], y[:-10], mean=ZeroMean(), seed=0, near=whole).hyperparameters
    n_near = len(evaluations) - n_alone

    assert near.log_likelihood >= alone.log_likelihood - 0.1
    assert n_near < n_alone / 2


def test_hyperparameters_that_are_far_off_do_not_mislead_an_exact_gaussian_process():
    x, y = make_stream(150)
    training = Adaptive(record_samples=60)
    alone = training.know(x, y, mean=ZeroMean(), seed=0).hyperparameters
    far_off = Hyperparameters(SquaredExponential(1e-6, [1e3, 1e3]), 1.0, -np.inf)

    found = training.know(x, y, mean=ZeroMean(), seed=0, near=far_off).hyperparameters

    assert found.log_likelihood >= alone.log_likelihood - 1e-3
