"""What becomes of the uncertainty of a model that is fed its own predictions, against brute force
and known cases.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from identified import (
    ONE,
    identified,
    mixed,
    naive_draws,
    naive_posterior,
    one_model,
    signals,
    unstable,
)
from sysid import (
    AboutPath,
    ConstantMean,
    JointModel,
    Linear,
    LinearMean,
    Matern32,
    Matern52,
    MeanFunction,
    MeanOnly,
    Model,
    MomentMatching,
    MonteCarlo,
    Narx,
    OnlineGP,
    Pathwise,
    Product,
    Scaling,
    SequentialConditioning,
    SquaredExponential,
    Sum,
    Taylor,
    ZeroMean,
    forecast,
    free_run,
    make_record,
)
from sysid.gp.kernels import Stationary
from sysid.simulation.bands import measure_bands
from sysid.simulation.dynamics import Dynamics, exogenous_rows
from sysid.simulation.propagation.pathwise import Draws, _sum_waves, draw
from sysid.simulation.propagation.propagation import summarise_draws
from sysid.simulation.segments import Segment

SE = SquaredExponential(0.3, [2.0, 1.5, 3.0])
DRAWN = [MonteCarlo(8), Pathwise(8, 20), SequentialConditioning(8)]
GAUSSIAN = [Taylor(), MomentMatching()]
EVERY = [MeanOnly(), *DRAWN, *GAUSSIAN]
DATA = signals(40, 3)
START = np.stack([DATA["a"], DATA["b"]], axis=1)[:4]
X = np.array([[0.2, -0.3, 2.1, 0.4, -0.5]])


def each_of(rules):
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: type(rule).__name__)


def run_of(model, n, rule=None, **options):
    """Free run of n samples from the first four outputs."""
    start = START[:, : len(JointModel.of(model).models)]
    return free_run(model, DATA["u"][np.arange(n) % 40, None], start, propagation=rule, **options)


@pytest.mark.parametrize(
    "make", [identified, lambda: identified("change"), lambda: mixed(identified())]
)
@each_of(EVERY)
def test_the_first_step_is_the_prediction_of_the_models(rule, make):
    joint = make()
    run = run_of(joint, 5, rule)
    x = np.array([DATA[name][4 - lag] for name, lag in joint.models[0].narx.features])[None]
    for i, model in enumerate(joint.models):
        mean, variance = naive_posterior(model, x)
        before = START[-1, i] if model.narx.predict.value == "change" else 0.0
        np.testing.assert_allclose(run.mean[0, i], mean[0] + before, rtol=1e-9)
        np.testing.assert_allclose(run.variance[0, i], variance[0], rtol=1e-7)


def test_the_gradient_is_the_slope_of_the_mean():
    kernels = (
        Matern52(0.3, [1.0] * 5),
        Sum([Linear(0.1, [0.1] * 5), Matern32(0.2, [2.0] * 5)]),
    )
    for joint in (
        identified(),
        mixed(identified()),
        *(identified(kernel=kernel) for kernel in kernels),
    ):
        dynamics = Dynamics(joint)
        x = np.random.default_rng(0).normal(size=(3, 5)) * 0.3
        found = dynamics.gradient(x)
        for d, step in enumerate(1e-5 * np.eye(5)):
            slope = (dynamics.targets(x + step).mean - dynamics.targets(x - step).mean) / 2e-5
            np.testing.assert_allclose(found[:, :, d], slope, rtol=1e-5, atol=1e-7)


# Gaussian states


def gaussian(size):
    root = np.random.default_rng(1).normal(size=(3, 3)) * 0.4 * size
    return root @ root.T


def brute_force(joint, covariance, n):
    """Moments of the targets and their covariance with the lagged outputs, from samples of the
    regressor.
    """
    dynamics = Dynamics(joint)
    rng = np.random.default_rng(0)
    total = []
    for size in np.full(-(-n // 50_000), min(n, 50_000)):
        rows = np.tile(X, (size, 1))
        rows[:, dynamics.feedback] += rng.multivariate_normal(np.zeros(3), covariance, size)
        parts = [naive_posterior(model, rows) for model in joint.models]
        total.append(
            (
                rows[:, dynamics.feedback],
                *(np.stack(part, axis=1) for part in zip(*parts, strict=True)),
            )
        )
    rows, mean, latent = (np.concatenate(part) for part in zip(*total, strict=True))
    own = np.cov(mean.T) + np.diag(latent.mean(axis=0))
    return mean.mean(axis=0), own, (rows - rows.mean(axis=0)).T @ mean / len(rows)


@pytest.mark.parametrize(
    ("mean", "n", "tolerance"),
    [
        (LinearMean(), 100_000, 0.012),
        pytest.param(ConstantMean(), 2_000_000, 0.005, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("change", "size"),
    [(lambda joint: joint, 2.0), (mixed, 5.0)],
    ids=["scaled", "mixed"],
)
def test_moment_matching_is_exact_for_a_gaussian_regressor(mean, n, tolerance, change, size):
    joint = change(identified(mean=mean))
    covariance = gaussian(size)
    found = MomentMatching().one_step(Dynamics(joint))(X, covariance[None])
    expected_mean, expected_own, expected_cross = brute_force(joint, covariance, n)
    scale = np.sqrt(np.diag(expected_own)).max()
    np.testing.assert_allclose(found.mean[0], expected_mean, atol=tolerance * scale)
    np.testing.assert_allclose(found.covariance[0], expected_own, atol=tolerance * scale**2)
    assert abs(expected_own[0, 1]) > 5 * tolerance * scale**2  # the outputs are correlated
    cross = covariance @ found.slope[0]
    np.testing.assert_allclose(
        cross, expected_cross, atol=tolerance * np.sqrt(covariance.max()) * scale
    )


def test_what_no_or_a_small_covariance_adds_to_moment_matching():
    """Nothing, and something linear: no digits cancel, though the weights are large; between
    outputs as for Taylor.
    """
    dynamics = Dynamics(identified(noise_variance=1e-6))
    rule = MomentMatching().one_step(dynamics)
    targets = dynamics.targets(X)
    certain = rule(X, np.zeros((1, 3, 3)))
    np.testing.assert_allclose(certain.mean, targets.mean, rtol=1e-10)
    np.testing.assert_allclose(
        certain.covariance[0], np.diag(targets.variance[0]), rtol=1e-7, atol=1e-14
    )
    np.testing.assert_allclose(
        certain.slope[0].T, dynamics.gradient(X)[0][:, dynamics.feedback], rtol=1e-8
    )
    for size in (1e-3, 1e-4):
        covariance = gaussian(size)[None]
        once, twice = (
            rule(X, f * covariance).covariance[0] - np.diag(targets.variance[0]) for f in (1.0, 2.0)
        )
        np.testing.assert_allclose(twice, 2.0 * once, rtol=2e-3)
        expanded = Taylor().one_step(dynamics)(X, covariance).covariance[0]
        np.testing.assert_allclose(once[0, 1], expanded[0, 1], rtol=2e-3)


def drawn_naively(joint, n, size, noise=False):
    """Mean and variance of independent draws (n - 4, 2)."""
    drawn = naive_draws(joint, START, DATA["u"][:n], size, seed=2, feed_noise=noise)
    return drawn.mean(axis=0), drawn.var(axis=0)


@each_of([Taylor(process_noise=True), MomentMatching(process_noise=True)])
def test_gaussian_states_follow_brute_force_where_it_is_nearly_linear(rule):
    """Many lags, two outputs, a change as target: every correlation counts."""
    joint = identified(
        "change",
        kernel=SquaredExponential(0.01, [6.0, 5.0, 6.0, 5.0, 7.0]),
        noise_variance=1e-4,
    )
    mean, variance = drawn_naively(joint, 16, 4_000, noise=True)
    run = run_of(joint, 16, rule)
    np.testing.assert_allclose(run.mean, mean, atol=0.1 * np.sqrt(variance.max()))
    np.testing.assert_allclose(run.variance, variance, rtol=0.12)


def test_rounding_does_not_make_a_long_run_of_two_outputs_diverge():
    """The antisymmetric part that rounding leaves in the covariance of the outputs would grow at
    every step.
    """
    joint = identified("change")
    run = run_of(joint, 480, Taylor())
    path = run_of(joint, 480)
    dynamics = Dynamics(joint)
    past = np.concatenate([START, path.mean])
    u = np.tile(DATA["u"], 12)[:, None]
    state = np.zeros((4, 4))
    spread = []
    for k in range(4, len(u)):
        last = past[k - 2 : k].reshape(1, 2, 2)
        x = dynamics.regressors(last, exogenous_rows(dynamics.narx, u, np.array([k])))
        slope = np.zeros((2, 4))
        slope[:, dynamics.state_index] = dynamics.gradient(x)[0][:, dynamics.feedback]
        slope[:, 2:] += np.eye(2)  # the targets are changes
        move = np.vstack([np.eye(4)[2:], slope])
        state = move @ state @ move.T
        state[2:, 2:] += np.diag(dynamics.targets(x).variance[0])
        state = (state + state.T) / 2
        spread.append(np.diag(state)[2:])
    np.testing.assert_allclose(run.mean, path.mean, rtol=1e-9)
    np.testing.assert_allclose(run.variance, spread, rtol=1e-6)


# draws


@pytest.mark.parametrize(
    ("n", "naive", "own", "rtol"),
    [
        (9, 3_000, 300, 0.35),
        pytest.param(14, 40_000, 20_000, 0.06, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("predict", ["value", "change"])
def test_independent_draws_equal_naive_ones(predict, noise, n, naive, own, rtol):
    joint = identified(predict, noise_variance=1e-2)
    mean, variance = drawn_naively(joint, n, naive, noise)
    run = run_of(joint, n, MonteCarlo(own, process_noise=noise, coverage=None), seed=4)
    np.testing.assert_allclose(run.mean, mean, atol=0.7 * rtol * np.sqrt(variance.max()))
    np.testing.assert_allclose(run.variance, variance, rtol=rtol)
    np.testing.assert_allclose(np.log(run.variance / variance).mean(), 0.0, atol=rtol / 3)


KERNELS = [
    SE,
    Matern32(0.3, [2.0, 1.5, 3.0]),
    Matern52(0.3, [2.0, 1.5, 3.0]),
    Linear(0.2, [0.3, 0.1, 0.2]),
    Product([Linear(0.5, [0.3, 0.1, 0.2]), SE]),
    Product(
        [
            Sum([Linear(0.5, [0.3, 0.1, 0.2]), SE]),
            Product([SE, Matern52(2.0, [1.0, 2.0, 1.0])]),
        ]
    ),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_functions_of_the_prior_have_its_covariance(kernel):
    """Even with few features, as every function has its own frequencies."""
    points = np.random.default_rng(0).normal(size=(4, 3))
    functions = draw(Draws(6000, 5, np.random.default_rng(1)), kernel)
    values = functions(np.repeat(points[:, None], 6000, axis=1))
    expected = kernel(points, points)
    np.testing.assert_allclose(values.mean(axis=1), 0.0, atol=0.05 * np.sqrt(expected.max()))
    np.testing.assert_allclose(values @ values.T / 6000, expected, atol=0.09 * expected.max())


def tame(kernel):
    """Model whose trajectories have no heavy tails."""
    return one_model(Narx(**ONE), 8, kernel, noise_variance=1e-2)


@pytest.mark.parametrize(
    ("make", "n", "counts", "tolerance"),
    [
        (lambda: tame(SE), 9, (1500, 10, 500), 0.35),
        (lambda: tame(Sum([Linear(0.01, [0.01] * 3), SE])), 9, (1500, 10, 500), 0.35),
        (lambda: mixed(identified("change")), 7, (1500, 10, 600), 0.35),
        pytest.param(
            lambda: identified("change", noise_variance=1e-2),
            24,
            (4000, 100, 2000),
            0.2,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_drawn_functions_agree_with_conditioning_step_by_step(make, n, counts, tolerance):
    model, (n_functions, n_features, n_exact) = make(), counts
    pathwise = run_of(model, n, Pathwise(n_functions, n_features, coverage=None), seed=1)
    exact = run_of(model, n, SequentialConditioning(n_exact, coverage=None), seed=2)
    np.testing.assert_allclose(pathwise.mean, exact.mean, atol=0.25 * np.sqrt(exact.variance.max()))
    np.testing.assert_allclose(np.log(pathwise.variance / exact.variance), 0.0, atol=tolerance)


def test_a_long_record_is_followed_by_fewer_functions(monkeypatch):
    """As many as 36 steps leave of 4 times 90, not fewer than a minimum."""
    monkeypatch.setattr("sysid.simulation.propagation.propagation.MAX_DRAWN_STEPS", 90)
    monkeypatch.setattr("sysid.simulation.forecast.MIN_FREE_RUN_DRAWS", 3)
    for n, expected in ((40, 10), (184, 3)):
        runs = [
            run_of(identified("change"), n, Pathwise(count, 20), seed=1).variance
            for count in (50, expected)
        ]
        np.testing.assert_array_equal(*runs)


def test_another_seed_says_the_same():
    """Standard deviations to some percent: 1000 functions are enough, 200 were not."""
    model = one_model(Narx(**ONE), 8, SE)
    runs = [run_of(model, 30, AboutPath(Pathwise()), seed=seed).variance[5:] for seed in range(12)]
    assert np.std(0.5 * np.log(runs), axis=0).mean() < 0.06


# a case that is known: y[k] = y[k-1] + f(u[k]) at a constant input


ADDED = {"coverage": None, "n_samples": 300}


@pytest.mark.parametrize(
    ("rule", "power", "settings", "rtol"),
    [
        (MeanOnly, 0, {}, 1e-6),
        (Taylor, 1, {}, 1e-6),
        (MomentMatching, 1, {}, 1e-6),
        (MonteCarlo, 1, ADDED, 0.3),
        (Pathwise, 2, ADDED, 0.3),
        (SequentialConditioning, 2, ADDED, 0.3),
    ],
)
def test_one_function_per_trajectory_adds_up_where_independent_draws_average_out(
    rule, power, settings, rtol
):
    """Each step adds the same unknown: variance n^2 s2 after n steps, not n s2; of the noise n - 1
    times its own.
    """
    u = np.full((13, 1), 3.2)
    y = np.zeros((3, 1))
    steps = np.arange(1, 11)[:, None]
    loud = [] if rule is MeanOnly else [(4.0, settings | {"process_noise": True})]
    for noise, options in [(1e-4, settings), *loud]:
        gp = OnlineGP(SquaredExponential(1.0, [1e6, 1.0]), noise_variance=noise, budget=5)
        gp.fit([[0.0, 0.0], [0.0, 1.0]], [0.1, -0.2])
        model = Model(
            Narx({"y": 1}, {"u": [0]}),
            Scaling(np.zeros(2), np.array([1.0, 2.0])),
            ZeroMean(),
            gp,
        )
        one = model.predict([[0.0, 3.2]])
        run = free_run(model, u, y, propagation=rule(**options))
        fed = noise * (steps - 1) * options.get("process_noise", False)
        np.testing.assert_allclose(run.variance, steps**power * one.variance + fed, rtol=rtol)
        np.testing.assert_allclose(
            run.mean, steps * one.mean, atol=rtol * np.sqrt(run.variance.max())
        )


# any kernel, mean function, map of the features and number of starts


def assert_same_runs(one, other, rules, n=9, rtol=1e-6):
    for rule in rules:
        found, expected = (run_of(model, n, rule) for model in (one, other))
        np.testing.assert_allclose(found.mean, expected.mean, rtol=rtol, atol=1e-9)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=rtol, atol=1e-9)


@dataclass(frozen=True)
class Rough(Stationary):
    """A user's own kernel: squared exponential behind another name."""

    row = SquaredExponential.row
    slope = SquaredExponential.slope


ROUGH = Rough(0.3, [2.0, 1.5, 3.0])


class Straight(MeanFunction):
    """A user's own mean function, linear as it happens, of which nobody knows that."""

    def __call__(self, regressors):
        return 0.1 + regressors @ np.array([0.5, 0.1, 0.4])


def test_what_a_method_cannot_do_is_an_error_and_the_others_do_it():
    rough, known = (one_model(Narx(**ONE), 8, kernel) for kernel in (ROUGH, SE))
    with pytest.raises(
        ValueError,
        match="MomentMatching: expected the kernel SquaredExponential, got Rough",
    ):
        run_of(rough, 8, MomentMatching())
    with pytest.raises(
        ValueError,
        match="spectral density of Rough is not known; SequentialConditioning",
    ):
        run_of(rough, 8, Pathwise(4))
    assert_same_runs(rough, known, [MeanOnly(), MonteCarlo(5), SequentialConditioning(5), Taylor()])
    straight = one_model(Narx(**ONE), 8, SE, Straight())
    with pytest.raises(ValueError, match="expected a zero, constant or linear mean, got Straight"):
        run_of(straight, 8, MomentMatching())
    assert_same_runs(straight, replace(straight, mean=LinearMean((0.5, 0.1, 0.4), 0.1)), EVERY[:-1])


@each_of([MeanOnly(), *GAUSSIAN, DRAWN[1]])
def test_starts_do_not_know_of_each_other(rule):
    """Several starts at once give what each gives alone."""
    dynamics = Dynamics(identified("change"))
    rng = np.random.default_rng(0)
    past = START[None, -2:] + 0.1 * rng.normal(size=(3, 2, 2))
    exogenous = np.zeros((3, 4, 5))
    exogenous[:, :, 3:] = rng.normal(size=(3, 4, 2))
    together = rule.propagate(dynamics, past, exogenous, np.random.default_rng(1))
    for b in range(3):
        alone = rule.propagate(dynamics, past[[b]], exogenous[[b]], np.random.default_rng(1))
        np.testing.assert_allclose(together.mean[[b]], alone.mean, rtol=1e-10)
        np.testing.assert_allclose(together.variance[[b]], alone.variance, rtol=1e-8, atol=1e-14)


# divergence


@each_of(EVERY)
def test_a_run_that_leaves_its_bounds_stops_there(rule):
    """y[k] = 1.3 y[k-1]: no exception, no warning; the value it left with, then nothing."""
    run = free_run(unstable(1.3), np.zeros((40, 1)), np.ones((1, 1)), propagation=rule)
    expected = 1.3 ** np.arange(1, 40)
    leaves = int(np.argmax(expected > 1001.0))  # the points go from 0 to 1
    assert run.left == leaves
    np.testing.assert_allclose(run.mean[:leaves, 0], expected[:leaves], rtol=0.02)
    np.testing.assert_allclose(run.value, expected[leaves], rtol=0.02)
    assert np.isnan([run.mean[leaves:], run.variance[leaves:]]).all()
    assert np.isfinite(run.variance[:leaves]).all()


@each_of(GAUSSIAN)
def test_a_spread_beyond_the_bounds_has_diverged_though_the_mean_has_not(rule):
    run = free_run(unstable(3.0), np.zeros((40, 1)), np.zeros((1, 1)), propagation=rule)
    assert run.left is not None
    assert 0.01 < np.sqrt(run.variance[run.left - 1, 0]) < 2001.0  # of bounds from -1000 to 1001
    np.testing.assert_allclose(run.value, 0.0, atol=1e-6)


def test_few_draws_that_run_away_do_not_set_the_band():
    values = np.random.default_rng(0).normal(size=(1, 2000, 1))
    centre, _ = summarise_draws(values, 0.95)
    values[0, :40] = [[1e6]] * 20 + [[np.nan]] * 20
    again, robust = summarise_draws(values, 0.95)
    assert again[0, 0] == pytest.approx(centre[0, 0], abs=0.1)
    assert robust[0, 0] == pytest.approx(1.5, rel=0.2)
    values[0, :200] = np.nan
    assert summarise_draws(values, 0.95)[1][0, 0] == np.inf


@pytest.mark.parametrize("rule", [Pathwise, MonteCarlo, SequentialConditioning])
def test_counts_and_coverages_that_make_no_sense_are_refused(rule):
    for wrong in (
        {"n_samples": 1},
        {"n_samples": 2.0},
        {"coverage": 0.0},
        {"coverage": 1.0},
    ):
        with pytest.raises(ValueError, match=f"{rule.__name__}: {next(iter(wrong))} must be"):
            rule(**wrong)
    with pytest.raises(ValueError, match="use fewer trajectories, a shorter horizon, or Pathwise"):
        run_of(tame(SE), 9000, SequentialConditioning())


def test_sums_of_cosines_are_those_of_numpy():
    """Far from zero, too, where the angle has to be reduced."""
    rng = np.random.default_rng(0)
    points = 30 * rng.normal(size=(7, 3, 4))
    frequency = 10 * rng.normal(size=(3, 4, 50))
    phase = rng.uniform(0, 2 * np.pi, (3, 50))
    amplitude = rng.normal(size=(3, 50))
    angle = np.einsum("nsp,spf->nsf", points, frequency) + phase
    expected = (amplitude * np.cos(angle)).sum(axis=2)
    np.testing.assert_allclose(
        _sum_waves(points, frequency, phase, amplitude), expected, atol=1e-10
    )


@pytest.mark.parametrize(
    "rule", [Pathwise(8, 20), Pathwise(8, 20, process_noise=True), Taylor()], ids=repr
)
def test_bands_about_the_path_are_as_wide_as_held_out_errors(rule):
    """Of a measurement, by the factor of the horizon; of what they were not measured with only the
    first step.
    """
    model = one_model(Narx(**ONE), 8, SE)
    bands = ((1, 1.2), (4, 2.0), (6, 0.5))
    plain, wide = (run_of(replace(model, bands=b), 15, AboutPath(rule)) for b in ((), bands))
    np.testing.assert_array_equal(plain.mean, wide.mean)
    noise = model.gp.noise_variance
    for step, variance in enumerate(plain.variance[:, 0], 1):
        factor = {1: 1.2, 4: 2.0}.get(step, 0.5)
        if step in (2, 3):
            factor = 1.2 * (2.0 / 1.2) ** (np.log(step) / np.log(4))
        elif step == 5:
            factor = 2.0 * 0.25 ** (np.log(5 / 4) / np.log(6 / 4))
        if step > 1 and rule != Pathwise(8, 20):
            factor = 1.0
        expected = max(factor**2 * (variance + noise) - noise, 0.0)
        np.testing.assert_allclose(wide.variance[step - 1, 0], expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("rule", [MeanOnly(), Pathwise(8, 20), Taylor()], ids=repr)
def test_without_feedback_every_horizon_says_what_one_step_says(rule):
    """Mean, calibrated bands and regressors; nothing is drawn."""
    narx = Narx({"a": []}, {"u": [0, 1]}, predict="value")
    kernel = SquaredExponential(0.3, [2.0, 1.5])
    static = replace(one_model(narx, 8, kernel), bands=((1, 1.7),))
    record = make_record({name: DATA[name] for name in ("a", "u")}, name="r", sampling_time=1.0)
    for propagation in (rule, AboutPath(rule)):
        found = [
            forecast(static, record, horizon=h, window=5, propagation=propagation).records[0]
            for h in (1, 5, None)
        ]
        for other in found[1:]:
            assert other.n_draws is None
            for name in ("sample", "mean", "variance", "regressors"):
                np.testing.assert_allclose(getattr(other, name), getattr(found[0], name), rtol=1e-9)
    mean, variance = naive_posterior(static, found[0].regressors)
    s = static.gp.noise_variance
    np.testing.assert_allclose(found[0].mean[:, 0], mean, rtol=1e-7)
    np.testing.assert_allclose(
        found[0].variance[:, 0], np.maximum(1.7**2 * (variance + s) - s, 0.0), rtol=1e-6
    )


def test_factors_of_bands_are_those_of_simulated_errors():
    """Against forecasts of the pieces that are simulated; a model that is k times too sure has
    factors k times.
    """
    model = one_model(Narx(**ONE), 8, SE)
    n = 40
    y = DATA["a"]
    u = DATA["u"]
    columns = {"a": y, "u": u}
    x = np.array(
        [[columns[name][k - lag] for name, lag in model.narx.features] for k in range(4, n)]
    )
    segment = Segment(x, y[4:n], y[4 - Dynamics(model).n_lags : 4])
    found = measure_bands(model, [(model, [segment])], 0)
    mean, variance = naive_posterior(model, x)
    z = np.abs(y[4:n] - y[3 : n - 1] - mean) / np.sqrt(
        variance + model.gp.noise_variance
    )  # it predicts changes
    ratio = np.sqrt(
        np.quantile(z, 0.5) / 0.6744897501960817 * np.quantile(z, 0.95) / 1.959963984540054
    )
    assert found[0] == (1, pytest.approx(ratio, rel=1e-6))
    assert measure_bands(model, [(model, [segment])], 0, np.zeros(len(z))) == found
    s = variance + model.gp.noise_variance
    added = np.linspace(0.0, 1.0, len(z))
    z = z * np.sqrt(s / (s + added))
    ratio = np.sqrt(
        np.quantile(z, 0.5) / 0.6744897501960817 * np.quantile(z, 0.95) / 1.959963984540054
    )
    assert measure_bands(model, [(model, [segment])], 0, added)[0] == (
        1,
        pytest.approx(ratio, rel=1e-6),
    )
    assert [horizon for horizon, _ in found] == [1, 3, 10, 30]
    run = free_run(model, u[:n, None], y[:4, None], propagation=AboutPath(Pathwise(40)))
    z = np.abs(y[4:n] - run.mean[:, 0]) / np.sqrt(run.variance[:, 0] + model.gp.noise_variance)
    late = np.sqrt(np.quantile(z[16:], 0.5) / 0.6745 * np.quantile(z[16:], 0.95) / 1.96)
    assert found[-1][1] == pytest.approx(late, rel=0.5)  # other draws
