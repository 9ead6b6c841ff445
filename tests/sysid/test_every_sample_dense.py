"""Learning from every sample, compared with dense conditioning (`dense.DenseOnlineGP`).

The settings are drawn at random: kernel, rules, selection, mean, scale, forgetting and gate.
"""

import numpy as np
import pytest

import naive
from dense import DenseOnlineGP
from sysid import (
    Adaptive,
    Always,
    Backward,
    ConstantMean,
    Diagonal,
    Either,
    ErrorThreshold,
    ExceedsMinimum,
    Forward,
    LinearMean,
    Matern52,
    MeanRelevance,
    Novelty,
    OnlineGP,
    Scaling,
    SquaredExponential,
    StableSpline,
    VarianceThreshold,
    WithLinearPart,
    ZeroMean,
)

N_COMBINATIONS = 96
N_INITIAL = 12  # samples that a selection chooses from
#: The scale of the variances changes after 100 samples: every fourth stream is longer than that.
LENGTHS = (60, 60, 60, 115)

KERNELS = [
    *naive.FAMILY.values(),
    WithLinearPart(
        SquaredExponential(0.5, [0.9]), StableSpline([2], [0.4], [1.5], decay=Diagonal())
    ),
    WithLinearPart(
        Matern52(0.5, [0.9]), StableSpline([1, 1], [0.4, 0.2], [1.5, 1.0], decay=Diagonal())
    ),
]
INSERTIONS = [
    Always(),
    Either(0.05, 0.2),
    ErrorThreshold(0.15),
    VarianceThreshold(0.03),
    Novelty(0.1),
    Novelty(2.0),
]
MEANS = [ZeroMean(), ConstantMean(0.4), LinearMean([0.3, -0.2, 0.1], 0.2)]
SELECTIONS = [None, Backward(), Forward()]

REPORTED_DECISIONS = ("outlier", "inserted", "accepted")
REPORTED_FLOATS = ("mean", "variance", "acceptance_score", "acceptance_minimum")


def draw(generator, choices):
    """Return one of the choices."""
    return choices[generator.integers(len(choices))]


def draw_settings(seed):
    """Return an online GP with random settings, a mean function and a selection."""
    generator = np.random.default_rng(seed)
    criterion = draw(generator, naive.CRITERIA)
    gp = OnlineGP(
        draw(generator, KERNELS),
        noise_variance=draw(generator, [0.02, 0.1]),
        budget=int(generator.integers(2, 7)),
        insertion=draw(generator, INSERTIONS),
        acceptance=draw(generator, naive.matched_and_crossed(criterion)),
        reduction=criterion,
        learning="every_sample",
        scale=bool(generator.integers(2)),
        forgetting=draw(generator, [None, None, 5.0, 30.0]),
        gate=draw(generator, [None, None, 1.5, 3.0]),
        gate_opens_after=int(generator.integers(2, 5)),
    )
    return gp, draw(generator, MEANS), draw(generator, SELECTIONS)


def draw_stream(seed, n):
    """Return inputs (n, 3) and targets (n,), some with outliers, with a step, and with repeats."""
    generator = np.random.default_rng([seed, 1])
    x, y = naive.random_stream(n, 3, seed)
    if generator.integers(2):
        y += 5.0 * generator.normal(size=n) * (generator.random(n) < 0.08)
    if generator.integers(2):
        y[n // 2 :] += 2.0
    for i in np.flatnonzero(generator.random(n) < 0.05):
        if i:
            x[i] = x[i - 1]
            y[i] = y[i - 1]
    return x, y


def learn_both_ways(gp, mean, selection, x, y):
    """Learn a stream by an OnlineGP and by dense conditioning; return both reports and the latter.

    Samples that the selection chooses from are not reported.
    """
    prior_mean = mean(x)
    targets = y - prior_mean
    n_initial = 0
    if selection is not None:
        n_initial = N_INITIAL
        selection.fill(gp, x[:n_initial], targets[:n_initial])
    points = gp.sample_numbers[gp.age_order]
    np.testing.assert_array_equal(gp.inputs[gp.age_order], x[points])
    exact = DenseOnlineGP(gp.copy(), x, range(n_initial), targets[:n_initial], points)
    new = slice(n_initial, None)
    reports = gp.learn(x[new], y[new], prior_mean[new])
    exact_reports = [exact.learn(i, targets[i]) for i in range(n_initial, len(y))]
    for i, report in enumerate(exact_reports, start=n_initial):
        report["mean"] += prior_mean[i]
    return reports, exact_reports, exact


def assert_same_reports(reports, exact_reports):
    """Assert that the decisions are the same, and the numbers up to rounding."""
    for name in REPORTED_DECISIONS:
        expected = [report[name] for report in exact_reports]
        np.testing.assert_array_equal(reports[name], expected, name)
    has_removed = [report["removed"] is not None for report in exact_reports]
    np.testing.assert_array_equal(reports["removed"] >= 0, has_removed)
    for name in REPORTED_FLOATS:
        expected = [report[name] for report in exact_reports]
        np.testing.assert_allclose(reports[name], expected, rtol=1e-7, atol=1e-9, err_msg=name)


def assert_same_state(gp, exact):
    """Assert that points, counts and scale are the same."""
    np.testing.assert_array_equal(gp.sample_numbers[gp.age_order], exact.points)
    assert gp.repairs["outliers"] == exact.n_outliers
    assert gp.gate_is_open == (exact.level >= gp.gate_opens_after)
    assert gp.noise_variance == pytest.approx(exact.scale * exact.noise, rel=1e-9)


#: Combinations of the default suite. With them every kernel, rule and selection occurs.
QUICK_COMBINATIONS = range(16)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed in QUICK_COMBINATIONS else pytest.mark.slow)
        for seed in range(N_COMBINATIONS)
    ],
)
def test_any_combination_of_rules_equals_dense_conditioning(seed):
    gp, mean, selection = draw_settings(seed)
    x, y = draw_stream(seed, LENGTHS[seed % len(LENGTHS)])
    reports, exact_reports, exact = learn_both_ways(gp, mean, selection, x, y)
    assert_same_reports(reports, exact_reports)
    assert_same_state(gp, exact)


# --- gate, forgetting and re-estimated hyper-parameters together ----------------------------------


def together(**settings):
    """Return an online GP with a gate that forgets, with few points."""
    options = {
        "noise_variance": 0.02,
        "budget": 6,
        "insertion": Novelty(0.1),
        "acceptance": ExceedsMinimum(MeanRelevance()),
        "reduction": MeanRelevance(),
        "learning": "every_sample",
        "forgetting": 40.0,
        "gate": 3.0,
    }
    return OnlineGP(SquaredExponential(1.0, [0.8] * 3), **options | settings)


def stream_with_outliers(n, every):
    """Return inputs (n, 3) and targets (n,) of a drifting plant; every so manieth is an outlier."""
    generator = np.random.default_rng(5)
    x = generator.uniform(-1.5, 1.5, (n, 3))
    y = np.sin(1.5 * x[:, 0] + 0.01 * np.arange(n)) + 0.3 * x[:, 1]
    y += 0.1 * generator.normal(size=n)
    y[every - 1 :: every] += 4.0
    return x, y


@pytest.mark.parametrize("scale", [False, True], ids=["fixed variances", "scaled variances"])
def test_gate_forgetting_and_adaptation_together_equal_dense_conditioning(scale):
    """The hyper-parameters are estimated again every 25 samples; the dense GP gets the estimates.

    Every sixth sample is an outlier, also each one after which a step of forgetting is due.
    """
    x, y = stream_with_outliers(150, every=6)
    gp = together(scale=scale, gate_opens_after=20)
    exact = DenseOnlineGP(gp.copy(), x)
    training = Adaptive(n_initial=10, restarts=1, interval=25, significance=0.999, max_updates=2)
    adaptation = training.follow(seed=0)
    no_samples = (np.zeros((0, 3)), np.zeros(0))
    adaptation.start(Scaling.identity(3), ZeroMean(), *no_samples, gp.learning)
    for begin in range(0, len(y), 25):
        rows = slice(begin, begin + 25)
        reports = gp.update_many(x[rows], y[rows])
        exact_reports = [exact.learn(i, y[i]) for i in range(begin, begin + 25)]
        assert_same_reports(reports, exact_reports)
        assert_same_state(gp, exact)
        adaptation.observe(x[rows], y[rows], reports)
        adapted = adaptation.adapted(gp)
        if adapted is not gp:
            gp = adapted
            exact.adapt(gp.kernel, gp.noise_variance)
    assert len(adaptation.estimates) >= 3
    assert gp.repairs["outliers"] >= 10


def test_samples_that_are_withheld_or_believed_later_equal_dense_conditioning():
    """Steps of forgetting are due after samples that were held back, believed or refused."""
    x, y = stream_with_outliers(90, every=6)
    gp = together()
    exact = DenseOnlineGP(gp.copy(), x)
    n_believed = 0
    n_refused = 0
    for i in range(90):
        sample = (x[i : i + 1], y[i : i + 1], np.zeros(1))
        is_withheld = i % 9 == 5
        if is_withheld:
            report = gp.withhold(*sample)[0]
        else:
            report = gp.learn(*sample, until_outlier=True)[0]
        expected = exact.learn(i, y[i], is_withheld=is_withheld)
        for name in ("mean", "variance"):
            assert report[name] == pytest.approx(expected[name], rel=1e-7)
        was_outlier = bool(report["outlier"])
        assert was_outlier == expected["outlier"]
        is_refused = was_outlier or is_withheld
        if is_refused and i % 4 < 2:
            opens = i % 8 == 1
            gp.believe(*sample, was_outlier=was_outlier, opens=opens)
            exact.believe(i, y[i], was_outlier=was_outlier, opens=opens)
            n_believed += 1
        elif is_refused:
            n_refused += 1
    assert n_believed > 5
    assert n_refused > 5
    assert_same_state(gp, exact)
