"""Hyper-parameters that follow the stream: the objective, the test, causality, noise, rescue, odd data."""

import dataclasses

import numpy as np
import pytest
from naive import COMPILED, NaiveGP
from scipy.stats import chi2, multivariate_normal

from sysid import SquaredExponential
from sysid.acceptance import ExceedsMinimum
from sysid.adaptation import EVALUATIONS_PER_UPDATE, Reason, contradicts
from sysid.adaptive import Adaptive
from sysid.criteria import MarginalLogLikelihood, MeanRelevance, PriorEntropy
from sysid.identify import Identification, Settings
from sysid.insertion import VarianceThreshold
from sysid.mean import ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.scaling import Scaling
from sysid.start import Start
from sysid.training import Hyperparameters, MarginalLikelihoodProblem, MaximumAPosteriori, MaximumLikelihood

NARX = Narx(outputs={"y": 1}, inputs={"u": 1})  # two features
QUICK = {"n_initial": 12, "restarts": 1, "interval": 10, "window": 20, "sample_size": 15}
WRONG = Start(Scaling.identity(2), ZeroMean(), Hyperparameters(SquaredExponential(1.0, [1.0, 1.0]), 0.1, np.nan))
compiled = pytest.mark.skipif(not COMPILED, reason="a long stream, too slow when nothing is compiled")


def waves(x):
    return np.sin(1.5 * x[:, 0]) + np.cos(1.5 * x[:, 1])


def stream(n, seed=0, noise_std=0.1, function=waves):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, function(x) + noise_std * rng.normal(size=n)


def identified(x, y, *, budget=15, seed=0, start=None, rules=None, **settings):
    """Identification of a whole stream and the reports after its initial samples."""
    chosen = Settings(training=Adaptive(**settings), budget=budget, seed=seed, **(rules or {}))
    identification = Identification(NARX, chosen, start=start or Start())
    return identification, identification.observe_many(x, y)


def without_seconds(estimates):
    return [estimate._replace(seconds=0.0) for estimate in estimates]


def problem_of(identification):
    return identification.adaptation.problem(identification.model.gp)


@pytest.fixture(scope="module")
def followed():
    """A stream whose first hyper-parameters are wrong."""
    x, y = stream(120)
    return (x, y, *identified(x, y, start=WRONG, **QUICK))


# the objective


def test_the_problem_is_the_sample_given_the_other_points_of_the_dictionary(followed):
    x, y, identification, _ = followed
    problem, gp = problem_of(identification), identification.model.gp
    n = problem.n_given
    sample = [tuple(row) for row in problem.inputs[n:]]
    given = [tuple(row) for row in problem.inputs[:n]]
    stored = [tuple(row) for row in gp.inputs[gp.age_order]]
    assert 0 < n < gp.n_points
    assert len(sample) == QUICK["sample_size"]
    assert set(sample) <= {tuple(row) for row in x}
    assert given == [row for row in stored if row not in sample]
    own = {tuple(row): target for row, target in zip(x, y, strict=True)}
    np.testing.assert_array_equal([own[tuple(row)] for row in problem.inputs], problem.targets)
    scale = MarginalLikelihoodProblem.of(Adaptive(**QUICK), gp.inputs[gp.age_order], gp.targets[gp.age_order])
    np.testing.assert_array_equal(problem.typical, scale.typical)
    np.testing.assert_array_equal(problem.bounds, scale.bounds)
    assert problem.target_variance == scale.target_variance


def test_the_objective_is_the_conditional_density_of_a_naive_normal_distribution(followed):
    problem = problem_of(followed[2])
    n = problem.n_given
    at = np.array([0.3, 0.4, -0.2, -2.5])
    gp = NaiveGP(np.exp(0.3), tuple(np.exp(at[1:3])), np.exp(0.3 - 2.5), problem.inputs[:n], problem.targets[:n])
    inverse = np.linalg.inv(gp.kernel(gp.inputs, gp.inputs) + gp.noise_variance * np.eye(n))
    others = problem.inputs[n:]
    cross = gp.kernel(others, gp.inputs)
    covariance = gp.kernel(others, others) + gp.noise_variance * np.eye(len(others)) - cross @ inverse @ cross.T
    expected = multivariate_normal(cross @ inverse @ gp.targets, covariance).logpdf(problem.targets[n:])
    assert problem.log_likelihood(at).value == pytest.approx(expected, rel=1e-9)
    assert problem.cost(at)[0] == pytest.approx(problem.prior(at)[0] - expected, rel=1e-9)


def test_the_objective_has_the_gradient_of_finite_differences(followed):
    problem, at, h = problem_of(followed[2]), np.array([0.3, 0.4, -0.2, -2.5]), 1e-5
    numerical = [(problem.cost(at + d)[0] - problem.cost(at - d)[0]) / (2 * h) for d in h * np.eye(4)]
    np.testing.assert_allclose(problem.cost(at)[1], numerical, rtol=1e-6, atol=1e-6)


def test_estimates_tell_what_the_search_found(followed):
    estimates = followed[2].adaptation.estimates
    assert estimates
    last, gp = estimates[-1], followed[2].model.gp
    assert (gp.kernel, gp.noise_variance) == (last.kernel, last.noise_variance)
    assert all(e.seconds > 0 and e.n_evaluations >= 2 for e in estimates)
    assert estimates[0].log_density_after > estimates[0].log_density_before


def test_an_estimate_starts_from_the_current_values_and_ends_at_a_better_place():
    x, y = stream(22)
    start = WRONG._replace(hyperparameters=Hyperparameters(SquaredExponential(2.0, [1.0, 1.5]), 0.1, np.nan))
    identification, _ = identified(x, y, start=start, **QUICK | {"significance": 0.999})
    (estimate,) = identification.adaptation.estimates
    problem = problem_of(identification)  # nothing came after it, and the points are the same
    current = np.log([2.0, 1.0, 1.5, 0.1 / 2.0])
    found = np.append(estimate.kernel.log_hyperparameters(), np.log(estimate.noise_variance / estimate.kernel.variance))
    assert estimate.log_density_before == pytest.approx(problem.log_likelihood(current).value, rel=1e-9)
    assert estimate.log_density_after == pytest.approx(problem.log_likelihood(found).value, rel=1e-9)
    assert problem.cost(found)[0] < problem.cost(current)[0]


@pytest.mark.parametrize("length", [1.0, 1e6])
def test_a_start_that_lies_outside_of_the_bounds_is_told(length):
    start = WRONG._replace(hyperparameters=Hyperparameters(SquaredExponential(1.0, [length, 1.0]), 0.1, np.nan))
    identification, _ = identified(*stream(22), start=start, **QUICK | {"significance": 0.999})
    (estimate,) = identification.adaptation.estimates
    assert ("started from the nearest values within the bounds" in estimate.warnings) is (length > 1)


# when


def test_false_alarms_come_at_the_stated_rate_on_both_sides():
    squares = np.random.default_rng(0).normal(size=(8000, 30)) ** 2
    alarms = np.array([contradicts(row, 0.05) for row in squares])
    large = squares.mean(axis=1) > 1
    assert abs(np.mean(alarms) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 8000)
    for side in (large, ~large):
        assert abs(np.mean(alarms & side) - 0.025) < 4 * np.sqrt(0.025 * 0.975 / 8000)


@pytest.mark.parametrize("n", [1, 30, 100])
@pytest.mark.parametrize("significance", [0.5, 1e-3, 1e-9])
def test_the_limits_are_those_of_the_chi_squared_distribution(n, significance):
    low, high = chi2.ppf(significance / 2, n), chi2.isf(significance / 2, n)
    for total, expected in ((0.99 * low, True), (1.01 * low, False), (0.99 * high, False), (1.01 * high, True)):
        assert contradicts(np.full(n, total / n), significance) is expected


def test_looks_statistics_and_reasons_are_those_of_a_naive_account():
    x, y = stream(260, seed=3)
    settings = QUICK | {"window": 25, "after_revised": 30, "significance": 0.05}
    identification, reports = identified(x, y, start=WRONG, rules={"insertion": VarianceThreshold(0.0)}, **settings)
    noise, squares, revised, expected = 0.1, [], 0, []
    made = {estimate.sample: estimate.noise_variance for estimate in identification.adaptation.estimates}
    for k in range(10, len(reports) + 1, 10):
        new = slice(k - 10, k)
        squares = [*squares, *((y[12:][new] - reports.mean[new]) ** 2 / (reports.variance[new] + noise))][-25:]
        revised += reports.accepted[new].sum()
        total, n = sum(squares), len(squares)
        wrong = total > chi2.isf(0.025, n) or total < chi2.ppf(0.025, n)
        if wrong or revised >= 30:
            expected.append((12 + k, Reason.errors if wrong else Reason.revised, n))
            np.testing.assert_allclose(
                [e.statistic for e in identification.adaptation.estimates if e.sample == 12 + k], total / n
            )
            noise, squares, revised = made[12 + k], [], 0
    assert [(e.sample, e.reason, e.n_errors) for e in identification.adaptation.estimates] == expected
    assert {reason for _, reason, _ in expected} == set(Reason)


def test_without_evidence_nothing_happens():
    identification, _ = identified(*stream(120), start=WRONG, **QUICK | {"significance": 1e-200})
    assert identification.adaptation.estimates == []
    assert identification.model.gp.kernel == WRONG.hyperparameters.kernel


def test_the_future_changes_nothing_before():
    x, y = stream(140, seed=1)
    other = y.copy()
    other[77:] = -other[77:] + 3.0
    settings = QUICK | {"significance": 0.2}
    one, first = identified(x, y, start=WRONG, **settings)
    two, second = identified(x, other, start=WRONG, **settings)
    for name in ("mean", "variance", "slot"):
        np.testing.assert_array_equal(getattr(first, name)[: 77 - 12], getattr(second, name)[: 77 - 12])
    before, changed = ([e for e in without_seconds(i.adaptation.estimates) if e.sample <= 77] for i in (one, two))
    assert before == changed
    assert before
    assert without_seconds(one.adaptation.estimates) != without_seconds(two.adaptation.estimates)
    assert one.initial.gp.kernel == one.hyperparameters.kernel


def test_one_estimate_an_interval_at_most_and_bounded_evaluations():
    for updates in (1, 3):
        settings = QUICK | {"significance": 0.999, "max_updates": updates}
        identification, _ = identified(*stream(150, seed=2), start=WRONG, **settings)
        estimates = identification.adaptation.estimates
        assert all((e.sample - 12) % 10 == 0 for e in estimates)
        assert len({e.sample for e in estimates}) == len(estimates) > 5
        assert max(e.n_evaluations for e in estimates) <= EVALUATIONS_PER_UPDATE * updates


def test_iterations_are_bounded_even_where_evaluations_are_not(monkeypatch):
    monkeypatch.setattr("sysid.adaptation.EVALUATIONS_PER_UPDATE", 10_000)
    took = []
    for updates in (1, 2, 50):
        identification, _ = identified(
            *stream(22), start=WRONG, **QUICK | {"significance": 0.999, "max_updates": updates}
        )
        took.append(identification.adaptation.estimates[0].n_evaluations)
    assert took[0] < took[1] < took[2]


def test_a_looser_tolerance_ends_an_estimate_earlier_with_most_of_the_gain():
    x, y = stream(120)
    tight, loose = (
        identified(x, y, start=WRONG, **QUICK | {"tolerance": tolerance, "max_updates": 100})[0].adaptation.estimates[0]
        for tolerance in (1e-9, 1e-3)
    )
    assert loose.n_evaluations < tight.n_evaluations
    assert loose.log_density_before == tight.log_density_before
    gain = [estimate.log_density_after - estimate.log_density_before for estimate in (tight, loose)]
    assert gain[0] >= gain[1] > 0.5 * gain[0]


def test_the_seed_chooses_the_sample():
    x, y = stream(120)
    kept = [problem_of(identified(x, y, start=WRONG, seed=seed, **QUICK)[0]).inputs for seed in (0, 0, 1)]
    np.testing.assert_array_equal(kept[0], kept[1])
    assert {tuple(row) for row in kept[0]} != {tuple(row) for row in kept[2]}


# what it is good for


@compiled
@pytest.mark.parametrize("criterion", [MeanRelevance(), MarginalLogLikelihood()], ids=["relevance", "likelihood"])
def test_the_noise_is_that_of_the_stream_while_the_dictionary_overestimates_it(criterion):
    """Medians over streams: a single estimate of a variance from 100 samples scatters by 15 to 50 %."""
    followed, alone = [], []
    for seed in range(5):
        rules = {"reduction": criterion}
        gp = identified(*stream(1500, seed), budget=40, seed=seed, start=WRONG, rules=rules, n_initial=50)[0].model.gp
        followed.append(gp.noise_variance / 0.01)
        alone.append(MaximumLikelihood(restarts=2).train(gp.inputs, gp.targets, 0).noise_variance / 0.01)
    assert 0.7 < np.median(followed) < 1.3
    assert max(followed) < 2.0
    assert np.median(alone) > 1.5


@compiled
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_stream_whose_first_samples_mislead_is_rescued(seed):
    def product(x):
        return np.sin(2 * x[:, 0]) * np.cos(x[:, 1])

    x, y = stream(1000, seed, function=product)
    x[:100] *= 0.2
    y[:100] += product(x[:100]) - product(5 * x[:100])
    xv, yv = stream(500, 99, 0.0, function=product)
    errors = []
    for training in (MaximumAPosteriori(), Adaptive()):
        settings = Settings(training=training, budget=60, reduction=MeanRelevance(), seed=seed)
        identification = Identification(NARX, settings)
        identification.observe_many(x, y)
        errors.append(np.mean((identification.model.predict(xv).mean - yv) ** 2) / np.var(yv))
    assert errors[1] < errors[0] / 10


@compiled
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_in_which_nothing_is_wrong_is_left_alone(seed):
    rng = np.random.default_rng(seed)
    x, kernel = rng.uniform(-2, 2, (1000, 2)), SquaredExponential(1.0, [0.7, 1.2])
    y = np.linalg.cholesky(kernel(x, x) + 0.01 * np.eye(1000)) @ rng.normal(size=1000)
    start = Start(Scaling.identity(2), ZeroMean(), Hyperparameters(kernel, 0.01, np.nan))
    identification, _ = identified(x, y, budget=150, seed=seed, start=start, n_initial=50)
    assert len(identification.adaptation.estimates) <= 1


# keeping, odd data


def test_the_model_after_it_is_kept_bit_for_bit(followed, tmp_path):
    identification = followed[2]
    model = identification.model
    model.save(tmp_path / "model.nc")
    again = Model.load(tmp_path / "model.nc")
    assert again.gp.kernel == identification.adaptation.estimates[-1].kernel
    assert again.gp.noise_variance == identification.adaptation.estimates[-1].noise_variance
    assert again.gp.repairs == model.gp.repairs
    more, targets = stream(20, seed=9)
    for one, two in zip(model.predict(more), again.predict(more), strict=True):
        np.testing.assert_array_equal(one, two)
    copy = dataclasses.replace(model, gp=model.gp.with_hyperparameters(model.gp.kernel, model.gp.noise_variance))
    copy.gp.restore(model.gp.state(), model.gp.state()["counts"])
    for point, target in zip(more, targets, strict=True):
        np.testing.assert_equal(copy.update(point, target), again.update(point, target))


ODD = {
    "constant feature": lambda x, y: (x * [1.0, 0.0], y),
    "constant target": lambda x, y: (x, np.full(len(y), 3.0)),
    "constant everything": lambda x, y: (np.ones_like(x), np.ones(len(y))),
    "duplicates": lambda x, y: (np.repeat(x[::4], 4, axis=0)[: len(y)], np.repeat(y[::4], 4)[: len(y)]),
    "huge": lambda x, y: (1e8 * x, 1e8 * y),
    "tiny": lambda x, y: (1e-8 * x, 1e-8 * y),
    "a jump": lambda x, y: (x, y + 1e4 * (np.arange(len(y)) > 60)),
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
@pytest.mark.parametrize("criterion", [PriorEntropy(), MarginalLogLikelihood()], ids=["entropy", "likelihood"])
def test_odd_data_are_survived(change, criterion):
    x, y = change(*stream(100))
    rules = {"reduction": criterion, "acceptance": ExceedsMinimum(criterion)}
    identification, reports = identified(x, y, rules=rules, **QUICK | {"significance": 0.9})
    assert identification.adaptation.estimates
    assert np.isfinite([*reports.mean, *reports.variance]).all()
    for estimate in identification.adaptation.estimates:
        assert np.isfinite([estimate.log_density_before, estimate.log_density_after, estimate.statistic]).all()
        assert estimate.noise_variance > 0


@pytest.mark.parametrize(
    "settings",
    [{"sample_size": 2}, {"interval": 1, "window": 1}, {"n_initial": 2}, {"sample_size": 500}, {"window": 500}],
    ids=str,
)
@pytest.mark.parametrize("budget", [2, 15])
def test_small_and_large_numbers_are_survived(settings, budget):
    identification, reports = identified(*stream(60), budget=budget, **QUICK | {"significance": 0.9} | settings)
    assert identification.adaptation.estimates
    assert np.isfinite([*reports.mean, *reports.variance]).all()
