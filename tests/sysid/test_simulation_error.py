"""Training for simulation: its parts against naive versions, then the estimators and the training as a whole."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import rosen
from threadpoolctl import threadpool_info, threadpool_limits

from sysid import (
    BoucWenData,
    CascadedTanksData,
    ConstantMean,
    DifferenceSearch,
    FreeRun,
    Identification,
    InitialSamples,
    Linear,
    LinearMean,
    Matern52,
    Model,
    Narx,
    OnlineGP,
    Orders,
    OutputErrorRefinement,
    ProfileSearch,
    Projection,
    Scaling,
    Settings,
    SquaredExponential,
    Start,
    ZeroMean,
    choose_lags,
    free_run,
    lag_choice,
    make_record,
)
from sysid.gp.mean import linear_fit
from sysid.narx.lags import consecutive
from sysid.simulation import bands
from sysid.simulation.segments import Segment, find_copies, folds_of, segments_of, truncate
from sysid.simulation_error import calibration, output_error, refinement
from sysid.simulation_error import training as training_module
from sysid.simulation_error.calibration import calibrate, find_saturation
from sysid.simulation_error.candidate import (
    Candidate,
    Estimator,
    FitResult,
    Refusal,
    find_runaway,
    limits_of,
    pivots,
    range_of,
    squared_error,
)
from sysid.simulation_error.metric import gradient_metric, state_metric, whitening
from sysid.simulation_error.profile_search import Profile, ProfileProblem, Ridge, optimise
from sysid.simulation_error.training import Trial, find_best
from sysid.simulation_error.windows import hold_back, windows_of

FREE = (-np.inf, np.inf)
LAGS = {
    "value": Narx({"y": 2}, {"u": [0, 1]}, predict="value"),
    "change": Narx({"y": 2}, {"u": [0, 1]}),
    "value, gaps": Narx({"y": [3, 4]}, {"u": 2}, predict="value"),
    "change, gaps": Narx({"y": [2, 5]}, {"u": [0, 3]}),
    "no input": Narx({"y": [1, 2, 4]}, predict="value"),
    "another output": Narx({"y": 2, "x": [1]}, {"u": [0], "v": [1, 4]}, target="y", predict="value"),
}
EACH_KIND_OF_LAGS = pytest.mark.parametrize("narx", LAGS.values(), ids=LAGS)
VALUE, SIMPLE = LAGS["value"], Narx({"y": 1}, {"u": 1})


def random_signals(narx, n=40, seed=0):
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(n) for name in narx.signals}


def samples_of(narx, *records):
    rows = [narx.regressors(signals) for signals in records]
    follows = np.concatenate([np.arange(len(row.target)) > 0 for row in rows])
    x, t = (np.concatenate([getattr(row, name) for row in rows]) for name in ("regressor", "target"))
    return InitialSamples(narx, x, t, follows)


def segment_of(narx, signals):
    """Whole record as one segment."""
    return segments_of(samples_of(narx, signals))[0]


def candidate_of(narx, n_points=5, limits=FREE, seed=1, size=0.1, kernel=Matern52, n_coordinates=None):
    """Random function, of combinations of the features if a number of coordinates is given; stable."""
    generator = np.random.default_rng(seed)
    p, q = narx.n_features, n_coordinates or narx.n_features
    scaling = Scaling(generator.standard_normal(p), generator.uniform(0.5, 2.0, p))
    if n_coordinates:
        scaling = Projection(0.1 * scaling.offset, 0.7 * generator.standard_normal((q, p)))
    return Candidate(
        narx,
        scaling,
        LinearMean(0.1 * generator.standard_normal(p), 0.2),
        kernel(1.3, generator.uniform(1.0, 3.0, q)),
        generator.standard_normal((n_points, q)),
        size * generator.standard_normal(n_points),
        limits,
    )


def linear_candidate(narx, coefficients, intercept=0.0, **bounds):
    """No points."""
    p = narx.n_features
    nothing, kernel = np.zeros((0, p)), SquaredExponential(1.0, np.ones(p))
    return Candidate(
        narx, Scaling.identity(p), LinearMean(coefficients, intercept), kernel, nothing, nothing[:, 0], **bounds
    )


def naive_free_run(candidate, signals, first, last):
    """Output y[first], ..., y[last - 1], sample by sample."""
    narx, y = candidate.narx, dict(signals)
    target = y[narx.target] = np.array(signals[narx.target], dtype=float)
    for k in range(first, last):
        x = np.array([y[name][k - lag] for name, lag in narx.features])
        z = candidate.scaling.linear_part() @ (x - candidate.scaling.offset)
        f = candidate.mean.intercept + np.dot(candidate.mean.coefficients, x)
        f += candidate.weights @ candidate.kernel(candidate.points, z[None, :]).sum(axis=1)
        value = f + target[k - 1] if narx.predict.value == "change" else f
        target[k] = np.clip(value, *candidate.limits)
    return target[first:last].copy()


def with_naive_run(candidate, signals):
    """The signals with the output of a naive free run from its first possible sample."""
    first, n = candidate.narx.max_lag, len(signals["y"])
    return signals | {"y": np.append(signals["y"][:first], naive_free_run(candidate, signals, first, n))}


def parameters_of(candidate):
    linear, metric = candidate.mean, candidate.scaling.linear_part().ravel()
    return np.concatenate([linear.coefficients, [linear.intercept], candidate.weights, metric])


def differences(function, x, step=1e-6):
    """Central differences of a function of parameters, by parameter in the last axis."""
    moves = step * np.eye(len(x))
    return np.stack([(function(x + move) - function(x - move)) / (2 * step) for move in moves], axis=-1)


def naive_jacobian(candidate, signals, first, last):
    """Derivatives (n, p + 1 + N + q p) of `naive_free_run`, also with respect to the metric."""
    p, n = candidate.narx.n_features, len(candidate.weights)

    def run(x):
        scaling = Projection(candidate.scaling.offset, x[p + 1 + n :].reshape(-1, p))
        mean, weights = LinearMean(x[:p].tolist(), float(x[p])), x[p + 1 : p + 1 + n]
        changed = replace(candidate, scaling=scaling, mean=mean, weights=weights)
        return naive_free_run(changed, signals, first, last)

    return differences(run, parameters_of(candidate))


def system(n=60, seed=0, limit=np.inf):
    """``y[k] = 0.7 y[k-1] + tanh(u[k-1])``, cut off at a limit."""
    u, y = np.random.default_rng(seed).standard_normal(n), np.zeros(n)
    for k in range(1, n):
        y[k] = min(0.7 * y[k - 1] + np.tanh(u[k - 1]), limit)
    return {"y": y, "u": u}


# least squares


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_least_squares_are_those_of_the_normal_equations(intercept, ridge):
    """The penalty counts in standard deviations, whatever the units; without an intercept in root mean squares."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) * [1.0, 1e4, 0.1] + [0.0, 1e5, -3.0]
    t = 2.0 + x @ [1.0, -2e-4, 5.0] + 0.1 * rng.normal(size=40)
    scale = x.std(axis=0) if intercept else np.sqrt((x**2).mean(axis=0))
    columns = np.column_stack([x / scale, np.ones(40)])[:, : 3 + intercept]
    penalty = np.diag([40 * ridge] * 3 + [0.0] * intercept)
    solution = np.linalg.solve(columns.T @ columns + penalty, columns.T @ t)
    fit = linear_fit(x, t, ridge=ridge, intercept=intercept)
    np.testing.assert_allclose(fit.coefficients, solution[:3] / scale, rtol=1e-7)
    assert fit.intercept == pytest.approx(solution[3] if intercept else 0.0, rel=1e-7)
    scaled = (x - x.mean(axis=0) * intercept) / scale
    assert (fit.rank, fit.condition) == (3, pytest.approx(np.linalg.cond(scaled)))
    x[:, 1] = 7.0
    flat = linear_fit(x, t)
    assert (flat.coefficients[1], flat.rank, flat.condition) == (0.0, 2, np.inf)


# segments and folds


@EACH_KIND_OF_LAGS
def test_segments_hold_the_measured_output(narx):
    records = [random_signals(narx, n, seed) for seed, n in enumerate((30, 25))]
    segments = segments_of(samples_of(narx, *records))
    assert len(segments) == 2
    first, longest = narx.max_lag, max(narx.lags["y"])
    for segment, signals in zip(segments, records, strict=True):
        y, part = signals["y"], segment.part(7, 11)
        np.testing.assert_allclose(segment.values, y[first:], rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(segment.past, y[first - longest : first])
        np.testing.assert_allclose(segment.previous, y[first - 1 : -1], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(part.values, y[first + 7 : first + 11])
        np.testing.assert_allclose(part.past, y[first + 7 - longest : first + 7])
        np.testing.assert_array_equal(part.regressors, segment.regressors[7:11])


@dataclass(frozen=True)
class Given(Estimator):
    """A linear function that is not fitted, or one of the mean of the samples; it may raise an error."""

    coefficients: tuple[float, ...] = (-1.0, 0.0)  # of y[k-1]: the change that leads to a constant output
    intercept: float | None = None
    error: Exception | None = None

    def fit(self, segments, narx, budget, seed, limits):
        if self.error:
            raise self.error
        mean = float(np.mean(np.concatenate([segment.values for segment in segments])))
        intercept = mean if self.intercept is None else self.intercept
        return FitResult(linear_candidate(narx, self.coefficients, intercept, bounds=(-50.0, 50.0)), 0.01, {})


def test_folds_leave_out_every_sample_once_and_cut_through_segments():
    segments = segments_of(samples_of(SIMPLE, random_signals(SIMPLE, 8), random_signals(SIMPLE, 15, 1)))
    everything = np.concatenate([segment.values for segment in segments])
    folds = folds_of(segments, 3)
    assert [sum(len(part.values) for part in fold.parts) for fold in folds] == [7, 7, 7]
    left_out, rests = (
        [np.concatenate([part.values for part in getattr(fold, name)]) for fold in folds] for name in ("parts", "rest")
    )
    np.testing.assert_array_equal(np.concatenate(left_out), everything)
    for rest, out in zip(rests, left_out, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([rest, out])), np.sort(everything))
    found = find_best([Trial(Given(), SIMPLE, folds)], 5, 0, FREE)
    errors = [np.mean((out - rest.mean()) ** 2) for out, rest in zip(left_out, rests, strict=True)]
    np.testing.assert_allclose(found.errors, errors)
    assert found.rmse**2 == pytest.approx(np.mean(errors))
    assert [len(part.values) for part in truncate(segments, 13)] == [7, 6]
    for n in (1, 22):
        with pytest.raises(ValueError, match=f"from 2 to 21 folds of 21 samples, got {n}"):
            folds_of(segments, n)


@pytest.mark.parametrize(("noise", "n_records", "copied"), [(0.0, 1, 5), (0.05, 1, 5), (1.0, 1, 0), (0.0, 4, 5)])
def test_a_record_that_repeats_itself_is_found(noise, n_records, copied):
    rng = np.random.default_rng(5)
    period = rng.normal(size=300).cumsum() + 0.1 * np.arange(300)  # a trend alone is no copy
    values = np.tile(period, 4) + noise * rng.normal(size=1200)
    records = [Segment(np.zeros((len(part), 1)), part, np.zeros(1)) for part in np.split(values, n_records)]
    assert len(find_copies(folds_of(records, 5))) == copied
    once = rng.normal(size=1200).cumsum() + 0.1 * np.arange(1200)
    once[240:480] = 0.0  # at rest, a copy of nothing
    assert find_copies(folds_of([Segment(np.zeros((1200, 1)), once, np.zeros(1))], 5)) == []


@pytest.mark.parametrize("n", [60, 140, 300])
def test_short_records_are_no_copies_of_themselves_by_chance(n):
    rng, counts = np.random.default_rng(0), []
    for n_periods in (1, 4):
        counts.append(0)
        for _ in range(20):
            smooth = np.convolve(rng.normal(size=n // n_periods + 8), np.hanning(9), "valid")
            values = np.tile(smooth, n_periods)
            values += 0.01 * values.std() * rng.normal(size=len(values))
            counts[-1] += bool(find_copies(folds_of([Segment(np.zeros((len(values), 1)), values, np.zeros(1))], 5)))
    assert counts[0] == 0
    assert counts[1] >= 19


@pytest.mark.parametrize(("lengths", "window", "transient"), [((1000,), 2048, 400), ((500, 40, 3), 100, 20)])
def test_windows_score_every_sample_once_but_the_transients_of_the_segments(lengths, window, transient):
    segments = [segment_of(VALUE, random_signals(VALUE, n + 2, seed=n)) for n in lengths]
    windows = windows_of(segments, window, transient)
    assert len(windows) >= 4
    scored = np.concatenate([w.values[w.transient :] for w in windows])
    everything = np.concatenate([segment.values for segment in segments])
    assert len(np.unique(scored)) == len(scored) > 0.75 * len(everything)
    assert set(scored) <= set(everything)
    assert max(len(w.values) for w in windows) <= 1.5 * window
    for w in windows:
        assert w.transient <= 0.25 * len(w.values)
        np.testing.assert_array_equal(w.regressors[1:, 0], w.values[:-1])
        assert w.past[-1] == w.regressors[0, 0]


def excited(n, *, mean=0.0, seed=0):
    """Input of amplitude 1 about a mean (n,)."""
    return mean + np.sin(0.7 * np.arange(n) + np.random.default_rng(seed).uniform(0, 6))


@pytest.mark.parametrize(
    ("coefficients", "u", "scale", "runaway"),
    [
        ([0.5, 1.0], excited(200), 1.0, ""),
        ([1.05, 1.0], excited(200), 1.0, "the samples themselves"),
        ([1.0, 0.01], excited(200, mean=0.3), 1.0, "the samples twice in a row"),
        ([0.0, 1.9], excited(200), 1.0 / 1.9, "larger inputs"),
        ([1.05, 0.0], np.zeros(200), 1.0, "disturbed first outputs"),
        ([1.02, 0.0], np.zeros(200), 1.0, "the highest first outputs"),
    ],
)
def test_a_simulation_that_leaves_the_range_of_the_samples_is_found(coefficients, u, scale, runaway):
    """The output of the samples is that of the candidate, but for a scale; it begins at 0, and has one value of 1."""
    candidate, y = linear_candidate(Narx({"y": 1}, {"u": 1}, predict="value"), coefficients), np.zeros(200)
    for k in range(1, 200):
        y[k] = min(coefficients[0], 1.0) * y[k - 1] + scale * coefficients[1] * u[k - 1]
    y[150] = y[150] if u.any() else 1.0
    segment = segment_of(candidate.narx, {"y": y, "u": u})
    assert find_runaway(candidate, [segment]) == runaway
    low, high = range_of([segment])
    assert (low, high) == pytest.approx((1.5 * y.min() - 0.5 * y.max(), 1.5 * y.max() - 0.5 * y.min()))


def test_inputs_between_those_of_the_samples_may_run_away_too():
    """A function that is wrong about u = 0.9 only, between a level of 1 in the first half and of -1 in the second."""
    u = np.repeat([1.0, -1.0], 100)
    candidate = linear_candidate(Narx({"y": 1}, {"u": 1}, predict="value"), [0.0, 1.0])
    wrong = {
        "kernel": SquaredExponential(1.0, [1e3, 0.02]),
        "points": np.array([[0.0, 0.9]]),
        "weights": np.array([9.0]),
    }
    segment = segment_of(candidate.narx, {"y": np.append(0.0, u[:-1]), "u": u})
    assert find_runaway(candidate, [segment]) == ""
    assert find_runaway(replace(candidate, **wrong), [segment]) == "disturbed inputs"


RISING = [0.1, 0.3, 0.2, 1.0, 1.0, 1.0, 0.4, 0.6]


@pytest.mark.parametrize(
    ("parts", "limits", "counts"),
    [
        ([[*RISING, *RISING]], (-np.inf, 1.0), (0, 6)),
        ([RISING, [-value for value in RISING], [-value for value in RISING]], (-1.0, np.inf), (6, 0)),
        ([[0.0, *RISING, 0.9, *RISING, 1.1]], FREE, (0, 0)),  # one sample beyond
        ([[0.1, 0.3, *[1.0] * 6, 0.4]], FREE, (0, 0)),  # one run
        ([[1.0, 1.0, 1.0, 0.5, 0.2, 1.0, 1.0, 1.0, 0.3]], FREE, (0, 0)),  # one of two runs is rest in the beginning
        ([[0.5, 1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 1.0]], FREE, (0, 0)),  # or at the end
        ([[0.3, 0.5, 1.0, 0.2, 1.0, 0.3, 1.0, 0.4, 1.0, 0.5, 1.0, 0.2]], FREE, (0, 0)),  # never for long
        ([[2.0] * 20], FREE, (0, 0)),
    ],
)
def test_a_repeated_extreme_is_a_limit(parts, limits, counts):
    segments = [Segment(np.zeros((len(values), 1)), np.array(values), np.zeros(1)) for values in parts]
    assert find_saturation(segments) == (limits, counts)


# the free run, and what it depends on


@pytest.mark.parametrize("limits", [FREE, (-0.1, 0.3)], ids=["free", "limited"])
@EACH_KIND_OF_LAGS
def test_the_free_run_and_its_sensitivities_are_those_of_a_plain_loop(narx, limits):
    """A saturated output depends on nothing and passes nothing on."""
    kernel = SquaredExponential if len(narx.signals) == 2 else Matern52
    candidate = candidate_of(narx, limits=limits, size=0.4, kernel=kernel, n_coordinates=2)
    signals, first = random_signals(narx, 40), narx.max_lag
    segment = segment_of(narx, signals)
    path = candidate.simulate(segment)
    np.testing.assert_allclose(path, naive_free_run(candidate, signals, first, 40), rtol=1e-9, atol=1e-12)
    later = naive_free_run(candidate, signals, first + 6, 40)
    np.testing.assert_allclose(candidate.simulate(segment, 6), later, rtol=1e-9, atol=1e-12)
    assert squared_error(candidate, [segment]) == pytest.approx(np.mean((path - signals["y"][first:]) ** 2))
    found, expected = output_error.sensitivity(candidate, segment, path), naive_jacobian(candidate, signals, first, 40)
    np.testing.assert_allclose(found, expected[:, : found.shape[1]], rtol=1e-5, atol=1e-6)
    moving = output_error.sensitivity(candidate, segment, path, moves=True)
    np.testing.assert_allclose(moving, expected, rtol=1e-5, atol=1e-6)
    cut_off = np.isin(path, limits)
    assert not found[cut_off].any()
    assert not narx.inputs or cut_off.any() == (limits != FREE)


def test_a_free_run_that_leaves_its_bounds_is_nan_from_there():
    growing = linear_candidate(Narx({"y": 1}, predict="value"), [2.0], bounds=(-10.0, 10.0))
    segment = Segment(np.ones((5, 1)), np.ones(5), np.ones(1))
    np.testing.assert_array_equal(growing.simulate(segment), [2.0, 4.0, 8.0, np.nan, np.nan])
    assert squared_error(growing, [segment]) == np.inf


@pytest.mark.parametrize("moves", [False, True])
def test_normal_equations_of_the_problem_equal_those_of_differences(moves):
    narx = LAGS["change, gaps"]
    signals, candidate = random_signals(narx, 60), candidate_of(narx, size=0.4, n_coordinates=2)
    segment = segment_of(narx, signals)
    windows = [segment.part(0, 25)._replace(transient=4), segment.part(20, 55)._replace(transient=7)]
    problem = output_error.FreeRunProblem(candidate, windows, penalty=0.3, moves=moves)
    x = problem.parameters()
    assert len(x) == narx.n_features + 1 + len(candidate.weights) + moves * candidate.scaling.matrix.size
    np.testing.assert_allclose(problem.at(x).weights, candidate.weights, rtol=1e-7)
    np.testing.assert_array_equal(problem.at(x).scaling.linear_part(), candidate.scaling.linear_part())
    _, descent = problem.normal_equations(x)
    np.testing.assert_allclose(descent, -0.5 * differences(problem.cost, x), rtol=1e-5, atol=1e-5)
    weights, total = candidate.weights, 0.0
    for first, last, skip in ((5, 30, 4), (25, 60, 7)):
        error = naive_free_run(candidate, signals, first, last) - signals["y"][first:last]
        total += np.sum(error[skip:] ** 2)
    penalty = 0.3 * weights @ candidate.kernel(candidate.points, candidate.points) @ weights
    assert problem.cost(x) == pytest.approx(total + penalty, rel=1e-7)
    assert squared_error(candidate, windows) == pytest.approx(total / (25 - 4 + 35 - 7), rel=1e-7)


def test_levenberg_marquardt_reaches_the_minimum_around_a_forbidden_region():
    """``(10 (x1 - x0^2))^2 + (1 - x0)^2``, infinite for x0 > 1.5; the cost never rises."""

    def cost(x):
        return float(rosen(x)) if x[0] < 1.5 else np.inf

    def normal_equations(x):
        jacobian = np.array([[20 * x[0], -10.0], [1.0, 0.0]])  # of what is predicted, minus that of the residual
        residual = np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
        return jacobian.T @ jacobian, jacobian.T @ residual

    def minimise(n, start=(-1.2, 1.0), tolerance=1e-3):
        return output_error.minimise_squares(
            cost, normal_equations, np.array(start), max_iterations=n, tolerance=tolerance
        )

    x, least, n_iterations = minimise(100, tolerance=1e-12)
    np.testing.assert_allclose(x, [1.0, 1.0], atol=1e-6)
    assert (least, n_iterations < 100) == (pytest.approx(0.0, abs=1e-12), True)
    assert (np.diff([minimise(n)[1] for n in range(8)]) <= 0).all()
    assert minimise(2)[2] == minimise(9, tolerance=1.0)[2] == 2
    assert minimise(9, start=(2.0, 1.0))[1:] == (np.inf, 0)


def test_a_step_to_where_the_sensitivities_overflow_is_refused():
    """The cost ``x^2`` falls towards 0, its normal equations exist for x >= 1 only."""

    def normal_equations(x):
        return np.array([[1.0 if x[0] >= 1.0 else np.inf]]), -x

    x, cost, _ = output_error.minimise_squares(
        lambda x: float(x @ x), normal_equations, np.array([9.0]), max_iterations=50
    )
    assert 1.0 <= x[0] < 2.0
    assert cost == x[0] ** 2
    start = np.array([0.5])
    assert output_error.minimise_squares(lambda x: 1.0, normal_equations, start, max_iterations=5)[1] == np.inf


# from a candidate to an online GP


@pytest.mark.parametrize("noise", [1e-4, 0.1, 10.0])
def test_the_online_gp_of_a_start_is_the_same_function(noise):
    narx = LAGS["change"]
    candidate = candidate_of(narx, n_points=8, limits=(-1.0, 2.0))
    x = np.random.default_rng(3).standard_normal((30, narx.n_features))
    start = candidate.initial_model(noise, 0.02, x)
    gp = OnlineGP(start.hyperparameters.kernel, noise_variance=noise, budget=8).fit(*start.points)
    found = Model(narx, start.scaling, start.mean, gp, limits=start.limits).predict(x)
    np.testing.assert_allclose(found.mean, candidate.predict(x), rtol=1e-6, atol=1e-8)
    assert found.variance.mean() == pytest.approx(0.02, rel=5e-3)
    assert start.limits == (-1.0, 2.0)


@pytest.mark.parametrize(("scale", "less"), [(0.1, 25), (3.0, 9)])
def test_the_band_covers_95_percent_of_the_held_out_samples(scale, less):
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    segment = segment_of(narx, random_signals(narx, 121))
    slow = np.convolve(np.random.default_rng(1).standard_normal(len(segment.values) + 19), np.ones(20) / 3.0, "valid")
    segments = [segment._replace(values=scale * (slow + 0.05 * segment.values))]
    folds, latents = folds_of(segments, 2), (0.9, 1.0)
    parts = [candidate_of(narx, n_points=8, size=0.02, seed=seed) for seed in (1, 2)]
    fitted = tuple(FitResult(part, latent, {}) for part, latent in zip(parts, latents, strict=True))
    whole = FitResult(candidate_of(narx, n_points=6, seed=3), 1.1, {})

    def covered(candidate, noise, latent, fold):
        """Held-out samples within the band of functions drawn from the posterior of the online GP at all regressors."""
        (part,) = fold.parts
        x = np.concatenate([segment.regressors for segment in (*fold.rest, part)])
        start = candidate.initial_model(noise, latent, fold.rest[0].regressors)
        z, kernel, own = candidate.scaling.transform(x), start.hyperparameters.kernel, candidate.points
        known = np.linalg.inv(kernel(own, own) + noise * np.eye(len(own)))
        covariance = kernel(z, z) - kernel(z, own) @ known @ kernel(own, z)
        draws = np.random.default_rng(5).multivariate_normal(np.zeros(len(z)), covariance, 200, check_valid="ignore")
        around = np.linalg.solve(candidate.kernel(z, z) + 1e-9 * np.eye(len(z)), draws.T).T
        points = np.vstack([own, z])
        functions = [replace(candidate, points=points, weights=np.append(candidate.weights, w)) for w in around]
        variance = np.var([function.simulate(part) for function in functions], axis=0) + noise
        return np.abs(candidate.simulate(part) - part.values) < 1.96 * np.sqrt(variance)

    def part_covered(share):
        inside = []
        for candidate, before, fold in zip(parts, latents, folds, strict=True):
            inside.append(covered(candidate, noise, share * before, fold))
        return np.mean(np.concatenate(inside))

    found = [calibrate(whole, segments, fitted, folds, np.random.default_rng(seed)) for seed in range(5)]
    noise, share = found[0][0], np.median([latent for _, latent in found]) / 1.1  # a processor has its own draws
    assert noise == calibration.estimate_noise(whole.candidate, segments)
    assert part_covered(share) >= 0.88
    assert part_covered(share / less) < 0.75


@pytest.mark.parametrize(("error", "frequency"), [(0.0, 0.0), (3.0, 1 / 300), (0.8, 1 / 1.5)])
def test_the_noise_is_told_from_slow_and_oscillating_errors_of_the_free_run(error, frequency):
    narx, u = Narx({"y": 1}, {"u": 1}, predict="value"), excited(4000)
    candidate = linear_candidate(narx, [0.0, 1.0])
    y = np.append(0.0, u[:-1]) + error * np.sin(frequency * np.arange(4000))
    y += 0.2 * np.random.default_rng(0).standard_normal(4000)
    segments = segments_of(samples_of(narx, {"y": y[:2500], "u": u[:2500]}, {"y": y[2500:], "u": u[2500:]}))
    assert calibration.estimate_noise(candidate, segments) == pytest.approx(0.04, rel=0.1)


# regression, points and search of the profile


def naive_weights(phi, t, noise_variance):
    """Least squares with the prior as further rows."""
    rows = np.vstack([phi / np.sqrt(noise_variance), np.eye(phi.shape[1])])
    return np.linalg.lstsq(rows, np.append(t / np.sqrt(noise_variance), np.zeros(phi.shape[1])), rcond=None)[0]


def test_weights_without_a_block_are_those_of_the_other_rows():
    """Saturated targets are bounds: replaced by the prediction where that lies beyond, eight times."""
    generator = np.random.default_rng(0)
    phi, t, everything = generator.standard_normal((30, 4)), generator.standard_normal(30), np.arange(30)
    above, below = np.isin(everything, [3, 10]), everything == 20
    for bounds in ((above & False, below & False), (above, below)):
        low, high = np.where(bounds[1], -np.inf, t), np.where(bounds[0], np.inf, t)
        ridge = Ridge(lambda rows: phi[rows], low, high, np.array([0, 7, 10, 22, 30]), 0.3)
        for first, last in ((0, 0), (0, 7), (7, 22), (10, 30)):
            rest = np.r_[0:first, last:30]
            seen = t[rest]
            for _ in range(8):
                w = naive_weights(phi[rest], seen, 0.3)
                high, low = np.maximum(t[rest], phi[rest] @ w), np.minimum(t[rest], phi[rest] @ w)
                seen = np.where(bounds[0][rest], high, np.where(bounds[1][rest], low, t[rest]))
            np.testing.assert_allclose(ridge.weights(first, last), w, rtol=1e-8)
        covariance = np.linalg.inv(phi.T @ phi / 0.3 + np.eye(4))
        assert ridge.mean_variance() == pytest.approx(np.mean([row @ covariance @ row for row in phi]))
    assert not np.allclose(ridge.weights(), naive_weights(phi, t, 0.3), rtol=1e-3)


def test_pivots_are_the_points_of_largest_variance_one_after_the_other():
    x = np.random.default_rng(0).standard_normal((20, 2))
    kernel = SquaredExponential(1.7, [1.0, 2.0])
    found = pivots(kernel, x, 6, 1e-9)
    K, chosen = kernel(x, x), [0]
    for _ in range(6):
        known = K[:, chosen] @ np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen])
        chosen.append(int(np.argmax(np.diag(K) - np.diag(known))))
    np.testing.assert_array_equal(found.chosen, chosen[:6])
    np.testing.assert_allclose(found.columns.T @ found.columns, known, atol=1e-10)
    np.testing.assert_allclose(found.residual, np.diag(K - known), atol=1e-10)
    v, across = np.arange(6.0), kernel(x, x[chosen[:6]])
    np.testing.assert_allclose(across @ found.to_weights(v), found.columns.T @ v, atol=1e-8)
    np.testing.assert_allclose(found.features(across), found.columns.T, atol=1e-8)
    few = pivots(kernel, np.repeat(x[:3], 4, axis=0), 10, 1e-6)
    assert sorted(few.chosen // 4) == [0, 1, 2]


def test_the_search_finds_a_minimum_and_keeps_to_its_evaluations():
    asked = []

    def cost(x):
        asked.append(x.copy())
        return rosen(x)

    found = optimise(cost, [np.array([-1.2, 1.0]), np.array([3.0, 3.0])], size=0.5, bound=4.0, evaluations=300)
    assert len(asked) == found.n_evaluations <= 300
    assert found.value == rosen(found.x) == min(map(rosen, asked)) < 1e-2
    assert np.max(np.abs(asked)) <= 4.0


def test_length_scales_follow_a_profile_over_the_lag():
    narx = Narx({"y": [1, 3], "x": [2]}, {"u": [0, 1, 4], "v": [5]}, target="y")
    profile = Profile(narx)
    assert len(profile.priors) == 2 + 1 + 2 + 1 + 3
    z = np.linspace(-1.0, 1.0, 9)
    theta = [prior.median + prior.std * value for prior, value in zip(profile.priors, z, strict=True)]
    a_y, b_y, a_x, a_u, b_u, a_v, *rest = theta
    expected = [a_y, a_y + 2 * b_y, a_x, a_u, a_u + b_u, a_u + 4 * b_u, a_v]
    found = profile.values(z)
    np.testing.assert_allclose(np.log(found.lengths), expected, atol=1e-12)
    np.testing.assert_allclose(np.log([found.size, found.noise, found.slope]), rest)
    np.testing.assert_array_equal(profile.values(100 * z).lengths, profile.values(4.0 * np.sign(z)).lengths)


def profile_problem(narx, *records, limits=FREE, kernel=None, **settings):
    settings = {"blocks": (2,), "points": 6, "rows": 1000, "simulated": 1000, "regularisation": 0.0} | settings
    kernel = SquaredExponential() if kernel is None else kernel
    settings = ProfileSearch(**settings)
    return ProfileProblem(narx, segments_of(samples_of(narx, *records)), limits, kernel, settings, 100)


@pytest.mark.parametrize(("predict", "prototype"), [("change", Matern52()), ("value", SquaredExponential())])
def test_the_objective_is_the_error_of_blocks_that_were_left_out(predict, prototype):
    """By least squares on the rows outside of each block and a loop over its samples."""
    narx, signals = replace(SIMPLE, predict=predict), system()
    problem = profile_problem(narx, signals, kernel=prototype, blocks=(2, 3), regularisation=0.1)
    z = np.array([0.1, -0.2, 0.3, -0.4, 0.2])
    values, y = problem.profile.values(z), signals["y"]
    x = np.column_stack([y[:-1], signals["u"][:-1]])
    changes = np.diff(y) / np.std(np.diff(y))
    kernel, scaled = prototype.with_scales(1.0, values.lengths), (x - x.mean(axis=0)) / x.std(axis=0)
    points = scaled[pivots(kernel, scaled, 6, 1e-6).chosen]
    root = np.linalg.cholesky(kernel(points, points) + 1e-12 * np.eye(6))

    def features(rows):
        linear = np.column_stack([rows / values.lengths, np.ones(len(rows))])
        return np.hstack([values.size * np.linalg.solve(root, kernel(points, rows)).T, values.slope * linear])

    errors = []
    for n in (2, 3):
        for first, last in pairwise(np.linspace(0, len(x), n + 1).astype(int)):
            rest = np.r_[0:first, last : len(x)]
            w, output = naive_weights(features(scaled[rest]), changes[rest], values.noise**2), y[first]
            for k in range(first, last):
                at = (np.array([[output, x[k, 1]]]) - x.mean(axis=0)) / x.std(axis=0)
                output += np.std(np.diff(y)) * (features(at) @ w)[0]
                errors.append(output - y[k + 1])
    expected = np.sqrt(np.mean(np.square(errors))) / np.std(y[1:])
    assert problem.error(z) == pytest.approx(expected, rel=1e-5)
    assert problem.cost(z) == pytest.approx(np.log(expected) + 0.05 * z @ z, rel=1e-5)
    fits = (problem.final(values, 6), problem.fit(values))
    np.testing.assert_allclose(*(ridge.weights() for _, ridge in fits), rtol=1e-6)


def test_lags_of_a_signal_share_a_scale_and_saturated_samples_are_bounds():
    narx, signals = Narx({"y": 2}, {"u": [1, 2, 3]}), system(40, limit=1.0)
    problem = profile_problem(narx, signals, limits=(-9.0, 1.0))
    y, u = signals["y"][2:-1], signals["u"][2:-1]  # at lag 1, from sample 3 on
    np.testing.assert_allclose(problem.scaling.offset, [y.mean()] * 2 + [u.mean()] * 3)
    np.testing.assert_allclose(problem.scaling.scale, [y.std()] * 2 + [u.std()] * 3)
    np.testing.assert_array_equal(problem.high == np.inf, signals["y"][3:] == 1.0)
    np.testing.assert_array_equal(problem.low, np.diff(signals["y"])[2:] / np.std(np.diff(signals["y"])[2:]))


PROFILE = ProfileSearch(kernels=[SquaredExponential()], evaluations=12, starts=1, blocks=(2,), points=8)


def test_an_integrator_is_a_function_of_differences_of_its_outputs():
    """``v' = v + tanh(u) - 0.5 v, y' = y + v``: the candidate does not know where it is, and simulates other places."""
    u, y, v = np.random.default_rng(0).standard_normal(400), np.zeros(400), 0.0
    for k in range(1, 400):
        y[k], v = y[k - 1] + v, 0.5 * v + np.tanh(u[k - 1])
    narx, search = Narx({"y": 3}, {"u": 2}), DifferenceSearch(PROFILE.kernels, 60, 1, (2,), 30)
    signals = {"y": y, "u": u}
    found = search.fit([segment_of(narx, signals)], narx, 30, 0, FREE)
    x = narx.regressors(signals).regressor[50:60]
    moved = x + np.where([name == "y" for name, _ in narx.features], 1e3, 0.0)
    np.testing.assert_allclose(found.candidate.predict(moved), found.candidate.predict(x), atol=1e-8)
    assert list(found.report["length_scales"]) == ["y[k-1]", "y[k-2]", "u[k-1]", "u[k-2]"]
    low, high = y[3:].min(), y[3:].max()
    assert found.candidate.integrates
    assert not candidate_of(narx).integrates
    assert limits_of(found.candidate, [segment_of(narx, signals)]) == pytest.approx(
        (2.5 * low - 1.5 * high, 2.5 * high - 1.5 * low)
    )
    assert not find_runaway(found.candidate, [segment_of(narx, signals)])
    far = segment_of(narx, {"y": y + 1e3, "u": u})
    path = replace(found.candidate, bounds=(0.0, 2e3)).simulate(far)
    assert np.sqrt(np.mean((path - far.values) ** 2)) < 0.05 * np.std(y)
    with pytest.raises(Refusal, match="no integrator"):
        search.fit([segment_of(LAGS["change"], system(200))], LAGS["change"], 10, 0, FREE)
    with pytest.raises(Refusal, match="at least two lags"):
        search.fit([segment_of(SIMPLE, signals)], SIMPLE, 10, 0, FREE)


# metric, points and stages of the refinement


def test_the_metric_is_the_scaled_outer_product_of_gradients():
    rng = np.random.default_rng(4)
    x, gradient = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 3)), rng.standard_normal((300, 3))
    outer, covariance = gradient.T @ gradient / 300, np.cov(x.T)
    mu = np.linalg.eigvals(covariance @ outer).real.max()
    matrix, spectrum = gradient_metric(x, gradient, spread=1.5)
    np.testing.assert_allclose(matrix.T @ matrix, outer / (1.5**2 * mu), rtol=1e-9, atol=1e-12)
    assert spectrum[0] == 1.0
    assert (np.diff(spectrum) < 0).all()
    white, _ = gradient_metric(x, gradient, spread=1.5, power=0.0)
    np.testing.assert_allclose(white.T @ white, np.linalg.inv(covariance) / 1.5**2, rtol=1e-8)
    assert gradient_metric(x, np.zeros((300, 3)), spread=1.5) is None
    assert gradient_metric(np.ones((300, 3)), gradient, spread=1.5) is None  # a free run that is at rest
    collinear = x[:, :2] @ np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 2.0]])
    v, _ = whitening(collinear)
    assert v.shape == (2, 3)
    np.testing.assert_allclose(np.cov((collinear @ v.T).T), np.eye(2), atol=1e-9)


@EACH_KIND_OF_LAGS
def test_the_state_of_a_linear_model_is_what_its_future_depends_on(narx):
    """Regressors that differ by what no future output feels have the same coordinates; the others do not."""
    rng = np.random.default_rng(5)
    linear = linear_candidate(narx, rng.uniform(-0.3, 0.3, narx.n_features), 0.4)
    x = rng.standard_normal((200, narx.n_features)) @ rng.standard_normal((narx.n_features, narx.n_features))
    state = state_metric(replace(linear, limits=(-0.1, 0.1), bounds=(-0.1, 0.1)), x)
    future, ahead = [], 30
    for changed in np.eye(narx.n_features):  # of a lagged value, with everything else and every later input at zero
        signals = {name: np.zeros(2 * narx.max_lag + ahead) for name in narx.signals}
        for (name, lag), value in zip(narx.features, changed, strict=True):
            signals[name][narx.max_lag - lag] += value
        change = replace(linear, mean=LinearMean(linear.mean.coefficients))
        future.append(naive_free_run(change, signals, narx.max_lag, narx.max_lag + ahead))
    future = np.array(future).T
    if len(state) == narx.n_features:
        np.testing.assert_allclose(state.T @ state, np.linalg.inv(np.cov(x.T)), rtol=1e-6)
    scale = np.linalg.norm(future @ np.linalg.cholesky(np.cov(x.T)), 2)
    _, _, directions = np.linalg.svd(state)
    unfelt = directions[len(state) :]
    assert np.linalg.norm(future @ unfelt.T) <= 0.1 * scale * np.linalg.norm(unfelt)


def test_the_state_has_as_many_coordinates_as_the_plant_however_many_the_lags():
    u, noise = np.random.default_rng(2).standard_normal((2, 2000))
    y = np.zeros(2000)
    for k in range(2, 2000):
        y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1]
    narx = Narx({"y": 5}, {"u": 12}, predict="value")
    coefficients = [1.5, -0.7, 0.0, 0.0, 0.0, 1.0, *np.zeros(11)]
    segment = segment_of(narx, {"y": y + 0.1 * noise, "u": u})
    state = state_metric(linear_candidate(narx, coefficients), segment.regressors)
    assert state.shape == (2, 17)
    used = np.isin(np.arange(17), [0, 1, 5])
    np.testing.assert_allclose(state[:, ~used], 0.0, atol=1e-6 * np.abs(state).max())
    np.testing.assert_allclose(np.cov((segment.regressors @ state.T).T), np.eye(2), atol=1e-6)


WIENER = Narx({"y": 2}, {"u": [1, 2]}, predict="value")


def wiener(n, seed=0):
    """``y[k] = 0.5 y[k-1] - 0.1 y[k-2] + 0.3 u[k-1] + 0.4 sin(y[k-1] + u[k-1])``: nonlinear along one direction."""
    u, y = 1.5 * np.random.default_rng([seed, 7]).standard_normal(n), np.zeros(n)
    for k in range(2, n):
        y[k] = 0.5 * y[k - 1] - 0.1 * y[k - 2] + 0.3 * u[k - 1] + 0.4 * np.sin(y[k - 1] + u[k - 1])
    return {"u": u, "y": y}


QUICK = OutputErrorRefinement(
    search_points=20, stages=3, window=120, transient=20, penalty=1e-3, plain_spreads=(), state_spreads=()
)


def refine(signals, budget, narx=WIENER, limits=FREE, **settings):
    return replace(QUICK, **settings).fit([segment_of(narx, signals)], narx, budget, 0, limits)


def test_the_refinement_simulates_a_record_that_it_has_not_seen():
    """So does the model that is made of it."""
    refined = refine(wiener(800), 20)
    names = [stage["stage"] for stage in refined.report["stages"]]
    assert (names[0], names[-4:]) == ("linear", ["metric"] * 3 + ["all windows"])
    assert set(names[1:-4]) == {"whitened"}
    _, held = hold_back(windows_of([segment_of(WIENER, wiener(800))], 120, 20), 8, 4)
    last = refined.report["stages"][-1]["held rmse"]  # of all windows
    assert np.sqrt(squared_error(refined.candidate, held)) == pytest.approx(last, rel=1e-4)
    first = refined.candidate.scaling.matrix[0]
    assert abs(first @ [1, 0, 1, 0]) > 0.9 * 2**0.5 * np.linalg.norm(first)
    signals = wiener(300, seed=1)
    new = segment_of(WIENER, signals)
    path = refined.candidate.simulate(new)
    assert np.sqrt(np.mean((path - new.values) ** 2)) < 0.1 * refined.report["stages"][0]["held rmse"]
    assert 0 < refined.latent_variance < 0.1 * np.var(new.values)
    start = refined.candidate.initial_model(1e-4, refined.latent_variance, new.regressors)
    gp = OnlineGP(start.hyperparameters.kernel, noise_variance=1e-4, budget=20).fit(*start.points)
    model = Model(WIENER, start.scaling, start.mean, gp)
    run = free_run(model, signals["u"][:, None], signals["y"][:2, None])
    np.testing.assert_allclose(run.mean[:, 0], path, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("predict", ["value", "change"])
def test_the_refinement_follows_its_seed_and_does_not_depend_on_the_units(predict):
    narx, signals, quick = replace(WIENER, predict=predict), wiener(200), {"stages": 1, "iterations": 3}
    other = {"u": 0.01 * signals["u"] - 3.0, "y": 1000.0 * signals["y"] + 5000.0}
    first, again, second = (refine(s, 10, narx, search_points=10, **quick) for s in (signals, signals, other))
    np.testing.assert_array_equal(again.candidate.weights, first.candidate.weights)
    assert again.report == first.report
    run = second.candidate.simulate(segment_of(narx, other))
    expected = 1000.0 * first.candidate.simulate(segment_of(narx, signals)) + 5000.0
    np.testing.assert_allclose(run, expected, rtol=1e-4)
    assert second.latent_variance == pytest.approx(1e6 * first.latent_variance, rel=1e-3)
    held = [found.report["stages"][-1]["held rmse"] for found in (first, second)]
    assert held[1] == pytest.approx(1e3 * held[0], rel=1e-3)


def test_the_start_and_the_penalty_that_simulate_the_windows_held_back_best_go_on():
    found = refine(wiener(840), 20, plain_spreads=(6.0, 12.0), penalty=0.1, stages=0)
    held = {stage["stage"]: stage["held rmse"] for stage in found.report["stages"][1:4]}
    assert min(held, key=held.get) == "plain 6"
    assert (held["whitened"], found.report["stages"][1]["runs away from"]) == (np.inf, "larger inputs")
    y, u = (np.std(wiener(840)[name][2:], ddof=0) for name in ("y", "u"))
    np.testing.assert_allclose(found.candidate.scaling.matrix, np.diag(1 / (6 * np.array([y, y, u, u]))), rtol=1e-2)
    of_state = refine(wiener(840), 20, state_spreads=(3.0, 6.0), penalty=0.1, stages=0)
    held = {stage["stage"]: stage["held rmse"] for stage in of_state.report["stages"][1:4]}
    assert min(held, key=held.get) == "state 3"
    assert of_state.candidate.scaling.matrix.shape[0] <= WIENER.n_features
    fewer = refine(wiener(420), 8, plain_spreads=(12.0,), penalty=0.1, stages=0)
    tried = [stage for stage in fewer.report["stages"] if stage["stage"] == "8 points"]
    best = min(tried, key=lambda stage: stage["held rmse"])["penalty"]
    assert best == fewer.report["penalty"] == fewer.report["stages"][-1]["penalty"]
    assert np.diff([stage["held rmse"] for stage in tried])[-1] >= 0  # heavier ones are not tried beyond
    assert (len(tried), len(fewer.candidate.weights), fewer.candidate.weights.any()) == (2, 8, True)


def test_a_metric_that_moves_finds_the_combination_of_many_lags_on_which_a_function_depends():
    """``y[k] = 0.3 y[k-1] + tanh(2 h'u)``, h of twelve lags: the rows of the regression would fill 12 dimensions."""
    u, y = np.random.default_rng(0).standard_normal(1500), np.zeros(1500)
    response = np.sin(np.arange(12)) * 0.8 ** np.arange(12)
    for k in range(12, 1500):
        y[k] = 0.3 * y[k - 1] + np.tanh(2.0 * response @ u[k - 11 : k + 1][::-1])
    narx = Narx({"y": 1}, {"u": range(12)}, predict="value")
    found = refine({"u": u, "y": y}, 20, narx, search_points=40)
    (direction, *rest), stages = found.candidate.scaling.matrix, found.report["stages"]
    assert abs(direction[1:] @ response) > 0.999 * np.linalg.norm(direction) * np.linalg.norm(response)
    assert not rest
    assert stages[-1]["moves"]
    assert stages[-1]["held rmse"] < 0.02 * np.std(y) < 0.2 * stages[0]["held rmse"]


def test_the_search_from_a_second_start_ends_where_the_first_is_far_ahead(monkeypatch):
    stages, asked = object.__new__(refinement._Stages), []
    stages.settings = OutputErrorRefinement(stages=3)

    def change_metric(before, *what):
        asked.append(what)
        return before._replace(held=0.9 * before.held)

    stages.change_metric = change_metric
    start = refinement._Stage(None, 1.0, penalty=10.0)
    assert stages.search(start).held == pytest.approx(0.9**3)
    assert [what[1:] for what in asked] == [(1.0, True), (1.0, True), (1.0, True)]
    assert stages.search(start, rival=0.2).held == pytest.approx(0.9)
    assert len(asked) == 4
    assert stages.tries(start)[:3] == [(1.0, 1.0, True), (1.0, 10.0, True), (1.0, 10.0, False)]
    assert stages.tries(start._replace(penalty=1.0))[:2] == [(1.0, 1.0, True), (1.0, 10.0, True)]


def test_weights_that_never_beat_the_linear_model_are_left_out():
    truth = linear_candidate(VALUE, [0.5, -0.2, 0.3, 0.1], 0.1)
    signals = with_naive_run(truth, random_signals(VALUE, 200, seed=1))
    signals["y"] += 0.3 * np.random.default_rng(8).standard_normal(200)
    found = refine(signals, 10, VALUE)
    stages = found.report["stages"]
    assert [stage["stage"] for stage in stages] == ["linear"] + 4 * ["whitened"] + ["all windows"]
    assert [stage["penalty"] for stage in stages[1:5]] == pytest.approx([1e-3, 1e-2, 1e-1, 1.0])
    assert not found.candidate.weights.any()
    assert len(found.candidate.weights) == 10


def test_limits_are_those_of_the_free_run():
    signals = wiener(300)
    signals["y"] = np.clip(signals["y"], -0.5, 0.8)
    found = refine(signals, 8, limits=(-0.5, 0.8), stages=0)
    path = found.candidate.simulate(segment_of(WIENER, signals))
    assert found.candidate.limits == (path.min(), path.max()) == (-0.5, 0.8)


def growing(factor, *, lag=1, predict="value"):
    """Records that grow, and a long one near zero in which the free run of such a model diverges."""
    narx, rng = Narx({"y": [lag]}, {"u": [1]}, predict=predict), np.random.default_rng(9)
    short = {"u": np.zeros(9), "y": factor ** np.arange(9.0) / factor**8}
    long = {"u": 1e-6 * rng.standard_normal(300), "y": 1e-6 * rng.standard_normal(300)}
    empty = linear_candidate(narx, [factor, 0.0], bounds=(-1e3, 1e3))
    return empty, [segment_of(narx, signals) for signals in (short, long)]


def test_the_poles_of_an_unstable_start_are_drawn_inwards():
    candidate, contraction, _ = output_error.fit_linear(*growing(1.2))
    assert contraction == 0.8  # the first that leaves less than 1 of 1.2
    assert np.isfinite(squared_error(candidate, growing(1.2)[1]))
    assert output_error.fit_linear(*growing(1.2, lag=2))[1] == 0.8  # its square on the second lag
    assert output_error.fit_linear(*growing(1.2, predict="change"))[1] == 0.8
    assert output_error.fit_linear(*growing(4.0))[1] == 0.0


def test_the_latent_variance_is_that_of_laplace():
    """By differences, with weights that are not whitened."""
    signals, candidate, penalty = wiener(120), candidate_of(WIENER, 4, size=0.4, n_coordinates=2), 0.2
    jacobian, gram = naive_jacobian(candidate, signals, 2, 120), candidate.kernel(candidate.points, candidate.points)
    jacobian, prior = jacobian[:, :9], np.zeros((9, 9))
    prior[5:, 5:] = penalty * gram
    inverse = np.linalg.inv(jacobian.T @ jacobian + prior)
    simulated = with_naive_run(candidate, signals)
    residual = simulated["y"][2:] - signals["y"][2:]
    noise = residual @ residual / (len(residual) - np.trace(inverse @ jacobian.T @ jacobian))
    x = WIENER.regressors(simulated).regressor
    across = candidate.kernel(candidate.scaling.transform(x), candidate.points)
    basis = np.hstack([x, np.ones((len(x), 1)), across])
    prior_variance = candidate.weights @ gram @ candidate.weights / 4
    left = prior_variance * (candidate.kernel.variance - np.sum(across * np.linalg.solve(gram, across.T).T, axis=1))
    expected = np.mean(noise * np.sum((basis @ inverse) * basis, axis=1) + left)
    found = output_error.latent_variance(candidate, [segment_of(WIENER, signals)], penalty)
    assert found == pytest.approx(expected, rel=1e-4)


# the training as a whole

TRAINING = FreeRun(routes=[replace(PROFILE, evaluations=8)], folds=2)


@pytest.fixture(autouse=True)
def few_draws(request, monkeypatch):
    """Bands from few functions in the trainings: what they are worth is tested by themselves."""
    if "slow" not in request.keywords and "band" not in request.node.name:
        monkeypatch.setattr(calibration, "DRAWS", 3)
        monkeypatch.setattr(calibration, "POINTS", 8)


@pytest.fixture
def no_linear(monkeypatch):
    """Only the estimators of the test are candidates."""
    monkeypatch.setattr(training_module, "LINEAR", ())


def prepared(training, samples, known=None, seed=0):
    return training.prepare(samples, Start() if known is None else known, mean=ConstantMean(), budget=10, seed=seed)


def identified(training, signals):
    rows = SIMPLE.regressors(signals)
    identification = Identification(SIMPLE, Settings(training=training, budget=10))
    identification.observe_many(rows.regressor, rows.target)
    identification.finish()
    return identification


def test_the_model_is_the_candidate_of_the_best_route_and_follows_the_seed(no_linear):
    samples, fresh = samples_of(SIMPLE, system()), system(50, seed=5)
    first, second = (prepared(TRAINING, samples, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.points.targets, second.points.targets)
    (estimator,) = TRAINING.routes
    candidate = estimator.fit(segments_of(samples), SIMPLE, 10, 0, FREE).candidate
    identification = identified(replace(TRAINING, n_initial=59), system())
    model = identification.model
    np.testing.assert_allclose(model.predict(samples.regressors).mean, candidate.predict(samples.regressors), atol=1e-6)
    run = free_run(model, fresh["u"][:, None], fresh["y"][:1, None])
    assert np.var(run.mean[:, 0] - fresh["y"][1:]) < 0.1 * np.var(fresh["y"])
    assert (model.gp.n_points <= 10, model.limits) == (True, range_of(segments_of(samples)))
    assert (identification.report["route"], identification.hyperparameters.warnings) == ("ProfileSearch", ())


def test_the_route_that_simulates_best_is_taken_and_refusals_are_reported(no_linear):
    signals = system()
    signals["y"] += 3.0
    samples = samples_of(SIMPLE, signals)
    diverges, refuses = Given((9.0, 0.0), 1.0), Given(error=Refusal("not with me"))
    routes = [Given(intercept=0.0), diverges, Given(intercept=3.0), Given(intercept=5.0), refuses]
    start = prepared(FreeRun(routes=routes, folds=2), samples)
    assert start.mean.intercept == 3.0
    values = segments_of(samples)[0].values
    first = values[: len(values) // 2]  # where those that are worse can win no more
    expected = [np.sqrt(np.mean((y - value) ** 2)) for y, value in ((first, 0.0), (values, 3.0), (first, 5.0))]
    *found, refused = start.report["tried"]
    assert [len(tried["folds"]) for tried in found] == [1, 1, 2, 1]
    found = [tried["held_out_rmse"] for tried in found]
    assert (found[1], start.report["held_out_rmse"]) == (np.inf, found[2])
    np.testing.assert_allclose(np.delete(found, 1), expected)
    assert refused["refusal"] == "Given: not with me"
    alone = prepared(FreeRun(routes=[refuses, diverges], folds=2), samples)
    assert alone.mean.intercept == 1.0
    assert any("runs away" in note for note in alone.hyperparameters.warnings)


def test_processes_change_no_bit_of_the_result(monkeypatch):
    """Fits that are not asked for are begun beforehand, and dropped."""
    samples, found = samples_of(SIMPLE, system()), []
    routes = [replace(PROFILE, evaluations=2), PROFILE, OutputErrorRefinement(search_points=20, stages=2, iterations=3)]
    for n in ("1", "3"):
        monkeypatch.setenv("PYTHON_CPU_COUNT", n)
        found.append(prepared(FreeRun(routes=routes, folds=4), samples))
    one, three = found
    assert one.report == three.report
    assert one.bands == three.bands
    np.testing.assert_array_equal(one.points.targets, three.points.targets)


def test_blas_keeps_to_one_thread_while_fits_use_the_processors(monkeypatch):
    def look(samples):
        raise RuntimeError(max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))

    monkeypatch.setattr(training_module, "segments_of", look)
    with threadpool_limits(2, user_api="blas"), pytest.raises(RuntimeError, match=r"^1$"):
        prepared(FreeRun(routes=[PROFILE], folds=3), samples_of(SIMPLE, system()))


def test_bands_are_those_of_a_typical_part_that_was_held_out(monkeypatch):
    """One part that a fit without it simulates badly does not set them.

    One step ahead the fits without the part say how sure they are, in simulations the model does.
    """
    asked, one_step = [], iter([1.0, 90.0, 4.0])
    simulated = iter([((1, 1.0), (10, 5.0)), ((1, 2.0), (10, 90.0)), ((1, 3.0), (10, 3.0))])

    def measure(model, pairs, seed, **settings):
        asked.append((model, *pairs[0]))
        return ((1, next(one_step)),) if settings.get("horizons") == () else next(simulated)

    monkeypatch.setattr(training_module, "measure_bands", measure)
    assert prepared(FreeRun(routes=[PROFILE], folds=3), samples_of(SIMPLE, system())).bands == ((1, 4.0), (10, 5.0))
    for (apart, same_apart, parts), (model, judge, same_parts) in zip(asked[:3], asked[3:], strict=True):
        assert model is asked[3][0]
        assert apart is same_apart is judge is not model
        assert parts == same_parts


def test_bands_of_several_parts_are_their_medians_by_horizon_as_far_as_all_have_it():
    parts = [((1, 1.0), (3, 9.0), (10, 2.0)), ((1, 2.0), (3, 1.0)), ((1, 7.0), (3, 4.0), (10, 1.0))]
    assert bands.typical(parts) == ((1, 2.0), (3, 4.0))
    assert bands.typical(parts[::2]) == ((1, 4.0), (3, 6.5), (10, 1.5))


def test_lags_are_compared_on_the_samples_that_all_of_them_have():
    """The input acts with a delay of five samples; the held-out error of few lags is far larger."""
    u, y = np.random.default_rng(0).standard_normal(150), np.zeros(150)
    for k in range(5, 150):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 5])
    narxes = [Narx({"y": 1}, {"u": n}) for n in (1, 3, 5, 8)]
    samples = [samples_of(narx, {"y": y, "u": u}, {"y": y[:90], "u": u[:90]}) for narx in narxes]
    training = FreeRun(routes=[replace(PROFILE, evaluations=40)], folds=2)
    trials = training.compare_lags(samples, ["one", "three", "five", "eight"], budget=10, seed=0)
    assert trials[0].label == "five"
    assert len(trials[0].fits) == 2
    assert {len(trial.fits) for trial in trials if trial.label in ("one", "three")} == {1}
    assert {sum(len(part.values) for part in fold.parts) for trial in trials for fold in trial.folds} == {112}
    np.testing.assert_array_equal(*(np.concatenate([p.values for p in t.folds[0].parts]) for t in trials[:2]))
    best, quick = trials[0], trials[0].estimator
    assert isinstance(quick, ProfileSearch)
    fits = [quick.fit(fold.rest, best.narx, 10, 0, FREE).candidate for fold in best.folds]
    errors = [squared_error(fit, fold.parts) for fit, fold in zip(fits, best.folds, strict=True)]
    assert best.rmse == pytest.approx(np.sqrt(np.mean(errors)))
    with pytest.raises(ValueError, match="no estimator of routes serves these samples with any lags"):
        training.compare_lags([samples_of(SIMPLE, FLAT)], [""], budget=10, seed=0)


@dataclass(frozen=True)
class Coarse(Estimator):
    """Off by a constant for each number of input lags, by another one in its quick version."""

    offsets: tuple[float, ...]
    coarse: tuple[float, ...]

    def quick(self):
        return replace(self, offsets=self.coarse)

    def fit(self, segments, narx, budget, seed, limits):
        n = narx.n_features - 1
        mean = float(np.mean(np.concatenate([segment.values for segment in segments])))
        found = linear_candidate(narx, [-1.0] + n * [0.0], mean + self.offsets[n - 1], bounds=(-50.0, 50.0))
        return FitResult(found, 0.01, {})


def test_lags_that_the_quick_search_ranks_best_are_compared_in_full(no_linear, monkeypatch):
    """Three would be the best in full, but are not among the two that are compared so."""
    monkeypatch.setattr(training_module, "FINALISTS", 2)
    signals = random_signals(SIMPLE, 90)
    samples = [samples_of(Narx({"y": 1}, {"u": n}), signals) for n in (1, 2, 3)]
    training = FreeRun(routes=[Coarse((2.0, 1.0, 0.0), (3.0, 4.0, 5.0))], folds=2)
    trials = training.compare_lags(samples, ["one", "two", "three"], budget=10, seed=0)
    full = [trial for trial in trials if trial.estimator == training.routes[0]]
    assert ([trial.label for trial in full], full[0] is trials[0]) == (["two", "one"], True)
    assert len(trials[0].fits) == 2


def test_fewer_lags_that_only_a_quick_search_finds_as_good_are_not_chosen(no_linear, monkeypatch):
    """Two lags are compared in full; one is as good in the quick search, but far worse in full."""
    monkeypatch.setattr(training_module, "FINALISTS", 1)
    offsets = {"offsets": (9.0, 9.0, 1.0), "coarse": (1.01, 9.0, 1.0)}  # by the features beyond the first
    settings = Settings(training=FreeRun(routes=[Coarse(**offsets)], folds=2), budget=10)
    record = make_record(random_signals(SIMPLE, 90), name="r", sampling_time=1.0)
    choice = choose_lags([record], "y", ["u"], settings=settings, max_order=2)
    assert (choice.narx.n_features, choice.tried[0]["model_quick"]) == (4, False)
    as_good = [row for row in choice.tried if row["model"] <= 1.01 * choice.tried[0]["model"]]
    assert [(row["na"], row["model_parts"]) for row in as_good if row["model_quick"]] == [(2, 2), (1, 2), (1, 2)]
    assert [i for i, row in enumerate(choice.tried) if "chosen" in row] == [0]
    assert ["chosen" in line for line in str(choice).splitlines()[1:]] == [
        "quick" not in line for line in str(choice).splitlines()[1:]
    ]


def test_lags_of_long_records_are_compared_on_pieces_of_them(monkeypatch):
    seen, compare = [], FreeRun.compare_lags
    monkeypatch.setattr(
        FreeRun, "compare_lags", lambda self, *given, **more: seen.append(given) or compare(self, *given, **more)
    )
    monkeypatch.setattr(lag_choice, "PIECE", 50)
    monkeypatch.setattr(lag_choice, "MOST_COMPARED", 200)
    records = [make_record(system(n, seed), name="r", sampling_time=1.0) for n, seed in ((400, 0), (90, 1))]
    settings = Settings(training=FreeRun(routes=[PROFILE], folds=2), budget=10)
    choice = choose_lags(records, "y", ["u"], settings=settings, max_order=2)
    ((samples, labels),) = seen
    assert labels[-1] == "y 1 to 2, u 1 to 2 (4 of 4)"
    assert [len(one.targets) for one in samples] == [50 + 50 + 90 - 3 * n for n in (1, 1, 2, 2)]
    assert (choice.criterion, choice.narx.feature_names[-1]) == ("free_run", "u[k-1]")
    assert "y 1 to 1" in str(choice)


@dataclass(frozen=True)
class Grows(Given):
    """Serves the folds and runs away once it is fitted to everything."""

    def fit(self, segments, narx, budget, seed, limits):
        fit = super().fit(segments, narx, budget, seed, limits)
        n = sum(len(segment.values) for segment in segments)
        grown = linear_candidate(narx, [0.1, 0.0], 0.0) if n == 199 else fit.candidate
        return fit._replace(candidate=grown)


def test_a_model_that_runs_away_gives_way_to_the_next_best_and_a_linear_one_is_always_there(caplog):
    """The output repeats itself around 3, so that its mean is the best; a linear model knows the input."""
    signals = {"y": 3.0 + 0.3 * np.random.default_rng(0).standard_normal(200), "u": excited(200)}
    samples = samples_of(SIMPLE, signals)
    with caplog.at_level("INFO", "sysid"):
        start = prepared(FreeRun(routes=[Grows(intercept=3.0), Given(intercept=20.0)], folds=2), samples)
    assert {"free run: Grows, part 2 of 2", "free run: Grows, all samples"} <= {*caplog.messages}
    assert "free run: Given, part 2 of 2" not in caplog.messages  # it can win no more
    tried = {one["route"]: one for one in start.report["tried"]}
    assert "leaves the range" in tried["Grows"]["refusal"]
    assert start.report["route"].startswith("linear")
    assert any("no better model found than a linear one" in note for note in start.hyperparameters.warnings)
    assert start.limits == range_of(segments_of(samples))


@dataclass(frozen=True)
class FallsBack(refinement.LinearModel):
    """As the linear model on held-out parts."""

    name = "falls back"


def test_an_estimator_that_falls_back_to_the_linear_model_on_every_part_is_still_asked_for_all_samples(monkeypatch):
    monkeypatch.setattr(training_module, "LINEAR", training_module.LINEAR[-1:])
    start = prepared(FreeRun(routes=[FallsBack()], folds=2), samples_of(SIMPLE, system()))
    rmse = {one["route"]: one["held_out_rmse"] for one in start.report["tried"]}
    assert rmse["falls back"] == rmse["linear output error"]
    assert start.report["route"] == "falls back"
    assert any("no better model found than a linear one" in note for note in start.hyperparameters.warnings)


@pytest.mark.parametrize("error", [ValueError("of no one"), np.linalg.LinAlgError("Singular matrix")])
def test_an_error_that_is_no_refusal_is_raised_though_another_estimator_serves(error):
    with pytest.raises(type(error), match=str(error)):
        prepared(FreeRun(routes=[Given(), Given(error=error)], folds=2), samples_of(SIMPLE, system()))


def test_a_regression_beyond_double_precision_is_refused_by_name(no_linear, monkeypatch):
    def fail(*_):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(Ridge, "weights", fail)
    start = prepared(FreeRun(routes=[PROFILE, Given()], folds=2), samples_of(SIMPLE, system()))
    assert start.report["route"] == "Given"
    assert start.report["tried"][0]["refusal"].startswith("ProfileSearch: double precision does not suffice")


def test_a_free_run_whose_sensitivities_overflow_is_refused():
    """A chaotic record: an error doubles with every sample, and more than a thousand samples are simulated."""
    narx, y = Narx({"y": 1}, predict="value"), np.full(3000, 0.3)
    for k in range(1, len(y)):
        y[k] = 3.9 * y[k - 1] * (1.0 - y[k - 1])
    truth = replace(candidate_of(narx, 30), limits=FREE)
    x = y[:-1, None]
    truth = replace(truth, scaling=Scaling.identity(1), kernel=SquaredExponential(1.0, [0.5]), points=x[:30])
    system = truth.kernel(truth.points, truth.points) + 1e-10 * np.eye(30)
    truth = replace(truth, weights=np.linalg.solve(system, y[1:31] - truth.mean(truth.points)))
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(Refusal, match="free run overflow"):
        output_error.latent_variance(truth, [segment_of(narx, {"y": y})], 1.0)


def test_a_saturated_output_stays_within_its_limits():
    signals = system(100, limit=1.0)
    samples = samples_of(SIMPLE, signals)
    start = prepared(TRAINING, samples)
    low = signals["y"][1:].min()
    assert start.limits == (pytest.approx(low - 0.5 * (1.0 - low)), 1.0)
    count = int(np.sum(signals["y"][1:] == 1.0))
    assert any(f"{count} samples equal 1 and none is above" in note for note in start.hyperparameters.warnings)
    pushed = free_run(identified(TRAINING, signals).model, np.full((30, 1), 3.0), np.zeros((1, 1)))
    assert pushed.mean.max() == 1.0
    assert prepared(replace(TRAINING, find_limits=False), samples).limits == range_of(segments_of(samples))
    assert prepared(TRAINING, samples, Start(limits=(-2.0, 5.0))).limits == (-2.0, 5.0)


def test_rows_that_follow_each_other():
    y = np.where(np.arange(9) == 4, np.nan, 1.0)
    one = xr.Dataset({"y": ("time", y), "u": ("time", y * 0 + 1)}, coords={"time": 0.5 * np.arange(9)}).fillna(
        {"u": 1.0}
    )
    rows = Narx({"y": 1}, {"u": 1}, on_missing="skip").dataset([one, one])
    np.testing.assert_array_equal(consecutive(rows), [False, True, True, False, True, True] * 2)


# refusals


def rows_of(narx, follows):
    """Samples of a random record."""
    rows, n = narx.regressors(random_signals(narx, 20)), len(follows)
    return InitialSamples(narx, rows.regressor[:n], rows.target[:n], np.array(follows, dtype=bool))


FLAT = system(200) | {"y": np.ones(200)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FreeRun(routes=[]), "routes must be estimators"),
        (lambda: FreeRun(folds=1), "folds must be a whole number"),
        (lambda: FreeRun(n_initial=1), "n_initial must be a whole number"),
        (lambda: ProfileSearch(kernels=[]), "stationary kernels"),
        (lambda: ProfileSearch(blocks=[1, 2]), "blocks"),
        (lambda: ProfileSearch(regularisation=-1.0), "regularisation"),
        (lambda: OutputErrorRefinement(plain_spreads=(1.0, -2.0)), "plain_spreads must be positive"),
        (lambda: OutputErrorRefinement(transient=2048), "transient must be below window"),
        (lambda: OutputErrorRefinement(hold_every=1), "hold_every must be a whole number"),
        (lambda: OutputErrorRefinement(powers=(2.0,)), "powers must be numbers"),
        (lambda: OutputErrorRefinement(kernel=Linear()), "stationary kernel"),
        (
            lambda: prepared(TRAINING, samples_of(SIMPLE, system()), Start(scaling=Scaling.identity(2))),
            "scaling itself",
        ),
        *(
            (lambda mean=mean: Settings(training=FreeRun(), mean=mean), "expected no mean.*leave it out")
            for mean in (ZeroMean(), ConstantMean(3.0), LinearMean())
        ),
        (lambda: prepared(TRAINING, samples_of(SIMPLE, system(7))), "expected at least 10 samples.*got 3"),
        (
            lambda: prepared(TRAINING, rows_of(Narx({"y": []}, {"u": [0]}, predict="value"), [False, True])),
            "expected lags of the target 'y'",
        ),
        (lambda: prepared(TRAINING, rows_of(LAGS["change, gaps"], [False, True, False])), "at least 2 samples.*of 1"),
        (lambda: prepared(TRAINING, rows_of(SIMPLE, [])), "expected samples, got none"),
        (lambda: TRAINING.train(np.zeros((9, 2)), np.zeros(9), 0), "trains a NARX model"),
        (lambda: prepared(FreeRun(routes=[Given(error=Refusal("no"))]), samples_of(SIMPLE, system(7))), "Given: no"),
        (lambda: PROFILE.fit([segment_of(SIMPLE, FLAT)], SIMPLE, 10, 0, FREE), "'y' does not vary"),
        (lambda: refine(wiener(30), 5), "at least 50 samples beside the transients"),
        (lambda: refine(FLAT, 5), "'y' does not vary"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# plants with a nonlinearity that few lags and too many lags describe


def heat_exchanger(n, seed):
    """Valve with a dead zone, inlet temperature in steps; water, wall and outlet, of which the last is measured."""
    generator = np.random.default_rng(seed)

    def steps(low, high, hold):
        changes = np.where(generator.random(n) < 1.0 / hold, np.arange(n), 0)
        return generator.uniform(low, high, n)[np.maximum.accumulate(changes)]

    valve, inlet, y = steps(0.0, 1.0, 25), steps(50.0, 80.0, 60), np.empty(n)
    water, wall, outlet = 40.0, 35.0, 30.0
    for k in range(n):
        y[k] = outlet
        for _ in range(4):
            flow = 0.02 + 0.25 * max(valve[k] - 0.2, 0.0)
            rates = flow * (inlet[k] - water) - 0.15 * (water - wall), 0.12 * (water - wall) - 0.1 * (wall - outlet)
            outlet += 0.25 * (0.2 * (wall - outlet) - 0.06 * (outlet - 15.0))
            water, wall = water + 0.25 * rates[0], wall + 0.25 * rates[1]
    return {"y": y + 0.07 * generator.standard_normal(n), "valve": valve, "inlet": inlet}


@pytest.mark.slow
@pytest.mark.parametrize("lags", [3, 4])
def test_no_number_of_lags_gives_a_model_that_simulates_worse_than_a_linear_one(lags):
    """Earlier versions delivered models that ran away with three and four lags. About 20 s each."""
    narx = Narx({"y": lags}, {"valve": lags, "inlet": lags})
    signals, fresh = heat_exchanger(2000, 0), heat_exchanger(2000, 1)
    training = FreeRun(routes=(ProfileSearch(evaluations=60), OutputErrorRefinement()))
    identification = Identification(narx, Settings(training=training, budget=50))
    rows = narx.regressors(signals)
    identification.observe_many(rows.regressor, rows.target)
    identification.finish()
    run = free_run(identification.model, np.column_stack([fresh["valve"], fresh["inlet"]]), fresh["y"][:lags, None])
    segment = segment_of(narx, fresh)
    linear = [
        squared_error(one.fit([segment_of(narx, signals)], narx, 50, 0, FREE).candidate, [segment])
        for one in training_module.LINEAR
    ]
    assert np.mean((run.mean[:, 0] - segment.values) ** 2) < 1.05**2 * min(linear)
    assert run.n_held == 0
    assert 0.07**2 / 2 < identification.model.gp.noise_variance < 2 * 0.07**2


# published records


@pytest.mark.slow
def test_bouc_wen_at_a_budget_of_100_points(shared_data):
    """One noisy period of the user-made record; best published 7.5e-6 m. About 10 s."""
    recordings = BoucWenData(path=str(shared_data)).load()
    narx = Narx({"displacement": 3}, {"force": 3}, predict="change")
    estimation, test = (
        segment_of(narx, {name: record[name].values[:8192] for name in ("displacement", "force")})
        for record in (recordings.estimation[0], recordings.test[0])
    )
    found = OutputErrorRefinement().fit([estimation], narx, 100, 0, FREE)
    assert len(found.candidate.weights) == 100
    error = (found.candidate.simulate(test) - test.values)[47:]
    assert np.sqrt(np.mean(error**2)) < 1.1e-5


@pytest.mark.slow
def test_cascaded_tanks(shared_data):
    """100 points, lags 1 to 4 of the level and 0 to 40 of the voltage, 300 evaluations, all from estimation data."""
    recordings = CascadedTanksData(path=str(shared_data)).load()
    narx = Orders(na=4, nb=41, nk=0).narx(["level"], ["pump_voltage"])
    rows = narx.dataset(recordings.estimation)
    training = FreeRun(routes=[ProfileSearch(kernels=[SquaredExponential()], evaluations=300)], folds=2)
    identification = Identification(narx, Settings(training=training, budget=100))
    identification.observe_many(rows["regressor"].values, rows["target"].values, follows=consecutive(rows))
    identification.finish()
    model = identification.model
    assert model.gp.n_points <= 100
    level = recordings.estimation[0]["level"].values  # the tank is full at 10 V; below it never was so empty
    assert model.limits == (pytest.approx(level.min() - 0.5 * np.ptp(level), rel=1e-9), pytest.approx(level.max()))
    y, u = (recordings.test[0][name].values[:, None] for name in ("level", "pump_voltage"))
    for window in (5, 50):
        run = free_run(model, u, y[:window])
        assert np.sqrt(np.mean((run.mean - y[window:]) ** 2)) < 0.32
