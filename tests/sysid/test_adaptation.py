"""Hyper-parameters that follow the stream: the reservoir, the objective, the test, causality,
rescue, odd data.
"""

import numpy as np
import pytest
from scipy.stats import chi2, chisquare, multivariate_normal

from naive import NaiveGP, covariance, finite_differences
from sysid.gp.adaptation import (
    MAX_EVALUATIONS_PER_UPDATE,
    Adaptive,
    Reason,
    Reservoir,
    contradicts,
)
from sysid.gp.affine_map import Scaling
from sysid.gp.kernels import Linear, Matern32, SquaredExponential, Sum
from sysid.gp.mean import ZeroMean
from sysid.gp.rules import (
    AcceptAll,
    ExceedsMinimum,
    MarginalLogLikelihood,
    MeanRelevance,
    PriorEntropy,
    VarianceThreshold,
)
from sysid.gp.training import (
    Fixed,
    Hyperparameters,
    MarginalLikelihoodProblem,
    MaximumAPosteriori,
    MaximumLikelihood,
    Start,
    Training,
)
from sysid.identification import Identification, Settings
from sysid.model.description import build, describe
from sysid.model.model_file import start_from_dataset, start_to_dataset
from sysid.narx.lags import Narx

NARX = Narx(outputs={"y": 1}, inputs={"u": 1})  # two features
QUICK = {
    "n_initial": 12,
    "restarts": 1,
    "interval": 10,
    "window": 20,
    "sample_size": 15,
}
EAGER = QUICK | {"significance": 0.999}
SUM = Sum([Linear(), SquaredExponential()])


def start(kernel, noise_variance=0.1):
    return Start(Scaling.identity(2), ZeroMean(), Hyperparameters(kernel, noise_variance, np.nan))


WRONG = start(SquaredExponential(1.0, [1.0, 1.0]))


def waves(x):
    return np.sin(1.5 * x[:, 0]) + np.cos(1.5 * x[:, 1])


def stream(n, seed=0, noise_std=0.1, function=waves):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, function(x) + noise_std * rng.normal(size=n)


def identified(x, y, *, budget=15, seed=0, start=None, rules=None, **settings):
    """Identification of a whole stream and the reports after its initial samples."""
    rules = {"acceptance": AcceptAll(), "reduction": MarginalLogLikelihood()} | (rules or {})
    chosen = Settings(
        training=Adaptive(**settings),
        learning="stored",
        gate=None,
        budget=budget,
        seed=seed,
        **rules,
    )
    identification = Identification(NARX, chosen, start=start or Start())
    record = identification.observe_many(x, y)
    return identification, record[np.isfinite(record["mean"])]


def estimates_of(identification):
    """All that the estimates say but their wall time."""
    assert all(estimate.seconds > 0 for estimate in identification.adaptation.estimates)
    return [estimate._replace(seconds=0.0) for estimate in identification.adaptation.estimates]


def problem_of(identification):
    return identification.adaptation.problem(identification.model.gp)


# --- the reservoir ----------------------------------------------------------------------------------


def kept(n, size, seed, blocks=1):
    """Numbers of the samples that a reservoir keeps of n."""
    reservoir = Reservoir(size, 1, np.random.default_rng(seed))
    for part in np.array_split(np.arange(float(n)), blocks):
        reservoir.extend(part[:, None], part, part.astype(int))
    assert reservoir.n_seen == n
    for array in reservoir.kept():
        array[:] = -5.0  # copies
    inputs, targets, numbers = reservoir.kept()
    np.testing.assert_array_equal(inputs[:, 0], numbers)
    np.testing.assert_array_equal(targets, numbers)
    return numbers


@pytest.mark.parametrize(("n", "size"), [(40, 10), (11, 10), (25, 3)])
def test_every_sample_and_every_pair_are_kept_with_the_same_probability(n, size):
    """Each of the n counts is binomial with probability m / n; the n counts of a reservoir sum to
    m.
    """
    found = [kept(n, size, [5, r]) for r in range(2000)]
    counts = np.bincount(np.concatenate(found), minlength=n)
    scale = 1 - (size - 1) / (n - 1)  # m places without repetition vary less than m draws
    assert chisquare(np.mean(counts) + (counts - np.mean(counts)) / np.sqrt(scale)).pvalue > 1e-3
    neighbours = np.mean([np.count_nonzero(np.diff(np.sort(numbers)) == 1) for numbers in found])
    assert neighbours == pytest.approx(size * (size - 1) / n, rel=0.08)


def test_the_first_samples_fill_the_places_blocks_do_not_matter_and_seeds_do():
    whole = kept(200, 20, 1)
    assert len(set(whole)) == 20
    for blocks in (2, 7, 200):
        np.testing.assert_array_equal(kept(200, 20, 1, blocks), whole)
    assert set(kept(200, 20, 2)) != set(whole)
    for n in (20, 3):
        np.testing.assert_array_equal(kept(n, 20, 1), np.arange(n))


# --- the objective ----------------------------------------------------------------------------------


def test_the_problem_is_the_sample_given_the_other_points_of_the_dictionary():
    """Points are told from the sample by number: equal samples are different samples."""
    x, y = (np.repeat(values, 2, axis=0) for values in stream(60))
    identification, _ = identified(x, y, start=WRONG, **QUICK)
    problem = problem_of(identification)
    gp = identification.model.gp
    sample = identification.adaptation._sample.kept()[2]
    numbers = gp.sample_numbers[gp.age_order]
    numbers = np.append(numbers[~np.isin(numbers, sample)], sample)
    assert (len(sample), problem.n_given) == (
        QUICK["sample_size"],
        len(numbers) - len(sample),
    )
    assert 0 < problem.n_given < gp.n_points
    np.testing.assert_array_equal(problem.inputs, x[numbers])
    np.testing.assert_array_equal(problem.targets, y[numbers])
    scale = MarginalLikelihoodProblem.of(
        Adaptive(**QUICK), gp.inputs[gp.age_order], gp.targets[gp.age_order]
    )
    np.testing.assert_array_equal(problem.bounds, scale.bounds)
    np.testing.assert_equal(problem.expected._asdict(), scale.expected._asdict())


def test_the_objective_is_the_conditional_density_of_a_naive_normal_distribution():
    problem = problem_of(identified(*stream(120), start=WRONG, **QUICK)[0])
    at = np.array([0.3, 0.4, -0.2, -2.5])
    n = problem.n_given
    kernel = SquaredExponential(np.exp(0.3), np.exp(at[1:3]))
    gp = NaiveGP(kernel, np.exp(0.3 - 2.5), problem.inputs[:n], problem.targets[:n])
    inverse = np.linalg.inv(gp.ky)
    others = problem.inputs[n:]
    cross = covariance(kernel, others, gp.inputs)
    own = (
        covariance(kernel, others, others)
        + gp.noise_variance * np.eye(len(others))
        - cross @ inverse @ cross.T
    )
    expected = multivariate_normal(cross @ inverse @ gp.targets, own).logpdf(problem.targets[n:])
    assert problem.log_likelihood(at).value == pytest.approx(expected, rel=1e-9)
    assert problem.cost(at)[0] == pytest.approx(problem.prior(at)[0] - expected, rel=1e-9)
    numerical = finite_differences(lambda values: problem.cost(values)[0], at, 1e-3)
    np.testing.assert_allclose(problem.cost(at)[1], numerical, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("length", "told"), [(1.0, False), (1e6, True)])
def test_an_estimate_starts_from_the_current_values_and_ends_at_a_better_place(length, told):
    """From the nearest values within the bounds, which it says."""
    identification, _ = identified(
        *stream(22), start=start(SquaredExponential(2.0, [length, 1.5])), **EAGER
    )
    (estimate,) = estimates_of(identification)
    problem, gp = (
        problem_of(identification),
        identification.model.gp,
    )  # nothing came after it
    current = np.clip(np.log([2.0, length, 1.5, 0.1 / 2.0]), *problem.bounds.T)
    found = problem.logarithms(estimate.kernel, estimate.noise_variance)
    assert (gp.kernel, gp.noise_variance) == (estimate.kernel, estimate.noise_variance)
    assert estimate.log_density_before == pytest.approx(
        problem.log_likelihood(current).value, rel=1e-9
    )
    assert estimate.log_density_after == pytest.approx(
        problem.log_likelihood(found).value, rel=1e-9
    )
    assert problem.cost(found)[0] < problem.cost(current)[0]
    assert ("started from the nearest values within the bounds" in estimate.warnings) is told


# --- when -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 30, 100])
@pytest.mark.parametrize("significance", [0.5, 1e-3, 1e-9])
def test_the_limits_are_those_of_the_chi_squared_distribution(n, significance):
    low = chi2.ppf(significance / 2, n)
    high = chi2.isf(significance / 2, n)
    for total, expected in (
        (0.99 * low, True),
        (1.01 * low, False),
        (0.99 * high, False),
        (1.01 * high, True),
    ):
        assert contradicts(np.full(n, total / n), significance) is expected


def test_looks_statistics_and_reasons_are_those_of_a_naive_account():
    x, y = stream(260, seed=3)
    settings = QUICK | {"window": 25, "after_revised": 30, "significance": 0.05}
    identification, reports = identified(
        x, y, start=WRONG, rules={"insertion": VarianceThreshold(0.0)}, **settings
    )
    noise = 0.1
    squares = []
    revised = 0
    expected = []
    made = {estimate.sample: estimate for estimate in estimates_of(identification)}
    for k in range(10, len(reports) + 1, 10):
        new = slice(k - 10, k)
        squares = [
            *squares,
            *((y[12:][new] - reports["mean"][new]) ** 2 / (reports["variance"][new] + noise)),
        ][-25:]
        revised += reports["accepted"][new].sum()
        total = sum(squares)
        n = len(squares)
        wrong = total > chi2.isf(0.025, n) or total < chi2.ppf(0.025, n)
        if wrong or revised >= 30:
            expected.append((12 + k, Reason.errors if wrong else Reason.revised, n))
            assert made[12 + k].statistic == pytest.approx(total / n)
            noise = made[12 + k].noise_variance
            squares = []
            revised = 0
    assert [(e.sample, e.reason, e.n_errors) for e in made.values()] == expected
    assert {reason for _, reason, _ in expected} == {Reason.errors, Reason.revised}


def test_the_future_changes_nothing_before_and_the_seed_chooses_the_sample():
    x, y = stream(140, seed=1)
    other = np.where(np.arange(140) < 77, y, 3.0 - y)
    runs = [(y, 0), (other, 0), (y, 0), (y, 1)]
    settings = {"start": WRONG, **QUICK, "significance": 0.2}
    one, two, again, drawn = (identified(x, target, seed=seed, **settings) for target, seed in runs)
    for name in ("mean", "variance", "slot"):
        np.testing.assert_array_equal(one[1][name][: 77 - 12], two[1][name][: 77 - 12])
    before, changed = (
        [e for e in estimates_of(found) if e.sample <= 77] for found, _ in (one, two)
    )
    assert before == changed != []
    assert estimates_of(one[0]) != estimates_of(two[0])
    assert estimates_of(one[0]) == estimates_of(again[0]) != estimates_of(drawn[0])
    assert one[0].initial.gp.kernel == one[0].hyperparameters.kernel


def test_one_estimate_an_interval_at_most_with_bounded_evaluations_and_iterations(
    monkeypatch,
):
    for updates in (1, 3):
        identification, _ = identified(
            *stream(150, seed=2), start=WRONG, **EAGER | {"max_updates": updates}
        )
        samples = [estimate.sample for estimate in estimates_of(identification)]
        assert all((sample - 12) % 10 == 0 for sample in samples)
        assert len(set(samples)) == len(samples) > 5
        most = max(e.n_evaluations for e in identification.adaptation.estimates)
        assert 2 <= most <= MAX_EVALUATIONS_PER_UPDATE * updates
    monkeypatch.setattr("sysid.gp.adaptation.MAX_EVALUATIONS_PER_UPDATE", 10_000)
    limits = (
        {"max_updates": 1},
        {"max_updates": 2},
        {"max_updates": 50, "tolerance": 1e-2},
        {"max_updates": 50, "tolerance": 1e-9},
    )
    runs = [identified(*stream(22), start=WRONG, **EAGER | limit)[0] for limit in limits]
    took = [run.adaptation.estimates[0].n_evaluations for run in runs]
    assert sorted(set(took)) == took


# --- what it is good for ----------------------------------------------------------------------------


def test_the_noise_is_that_of_the_stream_while_the_dictionary_overestimates_it():
    """Medians over streams: a single estimate of a variance from 100 samples scatters by 15 to 50
    %.
    """
    followed = []
    alone = []
    for seed in range(5):
        rules = {"reduction": MeanRelevance()}
        gp = identified(
            *stream(1500, seed),
            budget=40,
            seed=seed,
            start=WRONG,
            rules=rules,
            n_initial=50,
        )[0].model.gp
        followed.append(gp.noise_variance / 0.01)
        alone.append(
            MaximumLikelihood(restarts=2).train(gp.inputs, gp.targets, 0).noise_variance / 0.01
        )
    assert 0.7 < np.median(followed) < 1.3
    assert np.median(alone) > 1.5


def test_a_stream_whose_first_samples_mislead_is_rescued():
    def product(x):
        return np.sin(2 * x[:, 0]) * np.cos(x[:, 1])

    x, y = stream(1000, function=product)
    x[:100] *= 0.2
    y[:100] += product(x[:100]) - product(5 * x[:100])
    xv, yv = stream(500, 99, 0.0, function=product)
    errors = []
    for training in (MaximumAPosteriori(), Adaptive()):
        identification = Identification(
            NARX, Settings(training, budget=60, reduction=MeanRelevance())
        )
        identification.observe_many(x, y)
        errors.append(np.mean((identification.model.predict(xv).mean - yv) ** 2) / np.var(yv))
    assert errors[1] < errors[0] / 10


def test_a_stream_in_which_nothing_is_wrong_is_left_alone():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (1000, 2))
    kernel = SquaredExponential(1.0, [0.7, 1.2])
    y = np.linalg.cholesky(kernel(x, x) + 0.01 * np.eye(1000)) @ rng.normal(size=1000)
    identification, _ = identified(x, y, budget=150, start=start(kernel, 0.01), n_initial=50)
    assert len(identification.adaptation.estimates) <= 1


# --- keeping, odd data, settings --------------------------------------------------------------------


ODD = {
    "constant feature": lambda x, y: (x * [1.0, 0.0], y),
    "constant target": lambda x, y: (x, np.full(len(y), 3.0)),
    "constant everything": lambda x, y: (np.ones_like(x), np.ones(len(y))),
    "duplicates": lambda x, y: (
        np.repeat(x[::4], 4, axis=0)[: len(y)],
        np.repeat(y[::4], 4)[: len(y)],
    ),
    "huge": lambda x, y: (1e8 * x, 1e8 * y),
    "tiny": lambda x, y: (1e-8 * x, 1e-8 * y),
    "a jump": lambda x, y: (x, y + 1e4 * (np.arange(len(y)) > 60)),
}


SETTINGS = {
    "a sum": {"kernel": SUM},
    "a Matern kernel": {"kernel": Matern32()},
    "small numbers": {
        "sample_size": 2,
        "interval": 1,
        "window": 1,
        "n_initial": 2,
        "budget": 2,
    },
    "large numbers": {"sample_size": 500, "window": 500},
}


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        *((change, {}) for change in ODD.values()),
        *((lambda *data: data, settings) for settings in SETTINGS.values()),
    ],
    ids=[*ODD, *SETTINGS],
)
def test_odd_data_and_settings_are_survived(change, settings):
    rules = {"reduction": PriorEntropy(), "acceptance": ExceedsMinimum(PriorEntropy())}
    settings = QUICK | {"significance": 0.9} | settings
    identification, reports = identified(*change(*stream(100)), rules=rules, **settings)
    assert identification.model.gp.kernel == identification.adaptation.estimates[-1].kernel
    assert np.isfinite([*reports["mean"], *reports["variance"]]).all()
    for estimate in identification.adaptation.estimates:
        assert np.isfinite(
            [
                estimate.log_density_before,
                estimate.log_density_after,
                estimate.statistic,
            ]
        ).all()
        assert estimate.noise_variance > 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, (0, 2.5, "10", True, None)) for name in ("interval", "window", "max_updates")),
        *((name, (1, 2.5)) for name in ("sample_size", "n_initial")),
        ("after_revised", (-1, True)),
        *((name, (0.0, 1.0, -0.1, np.nan, "0.1", True)) for name in ("significance", "tolerance")),
    ],
)
def test_settings_are_checked(name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"Adaptive: {name}"):
            Adaptive(**{name: value})


def test_the_first_training_is_that_of_maximum_a_posteriori_and_only_this_one_follows():
    x, y = stream(20)
    assert Adaptive(restarts=1).train(x, y, 3) == MaximumAPosteriori(restarts=1).train(x, y, 3)
    assert build(describe(Adaptive(kernel=SUM)), Training) == Adaptive(kernel=SUM)
    assert Adaptive().follow(4).seed == 4
    for training in (Fixed(1.0, 1.0, 0.1), MaximumLikelihood(), MaximumAPosteriori()):
        assert training.follow(4) is None


@pytest.mark.parametrize("on_records", [False, True])
def test_hyperparameters_of_a_whole_record_stay_unless_they_are_to_follow(on_records):
    (x, y), training = (
        stream(150),
        Adaptive(**EAGER, record_samples=30, on_records=on_records),
    )
    know = training.know(x, y, mean=ZeroMean(), seed=0)
    found = identified(x, y, start=know, **vars(training))[0]
    assert bool(found.adaptation and found.adaptation.estimates) == on_records
    assert (found.model.gp.kernel == know.hyperparameters.kernel) != on_records
    assert start_from_dataset(start_to_dataset(know)).stays != on_records
