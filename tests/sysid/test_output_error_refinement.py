"""The refinement against naive loops, finite differences and systems whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import rosen

from sysid.data.bouc_wen import BoucWenData
from sysid.free_run import free_run
from sysid.kernels import Linear, LinearForm, Matern52, SquaredExponential
from sysid.mean import LinearMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.online import OnlineGP
from sysid.output_error.candidate import Candidate
from sysid.output_error.free_run_problem import FreeRunProblem, linearised, mean_square
from sysid.output_error.laplace import latent_variance
from sysid.output_error.levenberg_marquardt import NormalEquations, SquaresProblem, minimise_squares
from sysid.output_error.linear_start import linear_start
from sysid.output_error.metric import gradient_metric, whitening
from sysid.output_error.move import free_run_regressors, moved
from sysid.output_error.refinement import OutputErrorRefinement
from sysid.output_error.segment import Segment
from sysid.output_error.sensitivity import free_run_sensitivity
from sysid.output_error.window import Window, held_back, spread_over, windows_of
from sysid.projection import Projection

QUICK = OutputErrorRefinement(search_points=20, stages=3, window=120, transient=20, penalty=1e-3, plain_spreads=())
ANYTHING = (-np.inf, np.inf)

LAGS = {
    "value": Narx({"y": 2}, {"u": [0, 1]}, predict="value"),
    "change": Narx({"y": 2}, {"u": [0, 1]}, predict="change"),
    "value, gaps": Narx({"y": [2, 5]}, {"u": [0, 3]}, predict="value"),
    "change, gaps": Narx({"y": [2, 5]}, {"u": [0, 3]}, predict="change"),
    "no input": Narx({"y": [1, 2, 4]}, predict="value"),
    "inputs, another output": Narx({"y": 2, "x": [1]}, {"u": [0], "v": [1, 4]}, target="y", predict="value"),
}


def segment_of(narx, signals):
    """Whole record as one segment."""
    rows, y = narx.regressors(signals), np.asarray(signals[narx.target], dtype=float)
    first = rows.sample[0]
    return Segment(rows.regressor, y[rows.sample], y[first - max(narx.lags[narx.target]) : first])


def random_signals(narx, n, seed=1):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(n) for name in narx.signals}


def candidate_of(narx, *, kernel=Matern52, limits=ANYTHING, seed=2):
    """Two coordinates, four points; stable."""
    rng, p = np.random.default_rng(seed), narx.n_features
    return Candidate(
        narx,
        Projection(0.1 * rng.standard_normal(p), 0.7 * rng.standard_normal((2, p))),
        LinearMean((rng.uniform(-0.3, 0.3, p)).tolist(), 0.1),
        kernel(1.0, [1.0, 1.0]),
        rng.standard_normal((4, 2)),
        0.4 * rng.standard_normal(4),
        limits,
    )


def naive_free_run(candidate, signals, first, last):
    """Output y[first], ..., y[last - 1], sample by sample."""
    narx, y = candidate.narx, dict(signals)
    target = y[narx.target] = np.array(signals[narx.target], dtype=float)
    for k in range(first, last):
        x = np.array([y[name][k - lag] for name, lag in narx.features])
        z = candidate.scaling.matrix @ (x - candidate.scaling.offset)
        f = candidate.mean.intercept + np.dot(candidate.mean.coefficients, x)
        f += candidate.weights @ candidate.kernel(candidate.points, z[None, :])[:, 0]
        value = f + target[k - 1] if narx.predict.value == "change" else f
        target[k] = np.clip(value, *candidate.limits)
    return target[first:last].copy()


def parameters_of(candidate):
    return np.concatenate([candidate.mean.coefficients, [candidate.mean.intercept], candidate.weights])


def with_parameters(candidate, x):
    p = candidate.narx.n_features
    return replace(candidate, mean=LinearMean(x[:p].tolist(), float(x[p])), weights=x[p + 1 :])


def naive_jacobian(candidate, signals, first, last, step=1e-6):
    """Central differences of `naive_free_run` (n, p + 1 + N)."""
    x, columns = parameters_of(candidate), []
    for i in range(len(x)):
        moved_x = [x + sign * step * (np.arange(len(x)) == i) for sign in (1, -1)]
        high, low = (naive_free_run(with_parameters(candidate, v), signals, first, last) for v in moved_x)
        columns.append((high - low) / (2 * step))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("kernel", [SquaredExponential, Matern52])
@pytest.mark.parametrize("name", LAGS)
def test_sensitivities_of_the_free_run_equal_differences(name, kernel):
    narx = LAGS[name]
    signals, candidate = random_signals(narx, 40), candidate_of(narx, kernel=kernel)
    segment = segment_of(narx, signals)
    path = candidate.simulate(segment)
    np.testing.assert_allclose(path, naive_free_run(candidate, signals, narx.max_lag, 40), rtol=1e-9, atol=1e-12)
    step = linearised(candidate, segment, path)
    found = free_run_sensitivity(step.slopes, step.lags, step.basis)
    np.testing.assert_allclose(found, naive_jacobian(candidate, signals, narx.max_lag, 40), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kernel", [SquaredExponential(0.7, [0.5, 2.0]), Matern52(0.7, [0.5, 2.0]), Linear(0.3, [1.0, 2.0])]
)
def test_gradients_contracted_with_weights_equal_the_sum_over_the_points(kernel):
    rng = np.random.default_rng(6)
    x, z, weights = 5.0 + rng.standard_normal((7, 2)), 5.0 + rng.standard_normal((4, 2)), rng.standard_normal(4)
    expected = sum(w * kernel.input_gradient(x, z)[:, j] for j, w in enumerate(weights))
    np.testing.assert_allclose(kernel.weighted_gradient(x, z, weights), expected, rtol=1e-10, atol=1e-12)


def test_a_saturated_output_depends_on_nothing_and_passes_nothing_on():
    narx = LAGS["value"]
    signals, candidate = random_signals(narx, 40), candidate_of(narx, limits=(-0.1, 0.3))
    signals["y"] = np.clip(signals["y"], -0.1, 0.3)
    segment = segment_of(narx, signals)
    path = candidate.simulate(segment)
    cut_off = (path == -0.1) | (path == 0.3)
    assert 3 < cut_off.sum() < 30
    step = linearised(candidate, segment, path)
    found = free_run_sensitivity(step.slopes, step.lags, step.basis)
    assert not found[cut_off].any()
    np.testing.assert_allclose(found, naive_jacobian(candidate, signals, 2, 40), rtol=1e-5, atol=1e-6)


def test_normal_equations_of_the_problem_equal_those_of_differences():
    narx = LAGS["value, gaps"]
    signals, candidate = random_signals(narx, 60), candidate_of(narx)
    segment = segment_of(narx, signals)
    windows = [Window(segment.part(0, 25), 4), Window(segment.part(20, 55), 7)]
    problem = FreeRunProblem(candidate, windows, penalty=0.3)
    x = problem.parameters()
    np.testing.assert_allclose(problem.at(x).weights, candidate.weights, rtol=1e-9)
    gradient = []
    for i in range(len(x)):
        costs = [problem.cost(x + sign * 1e-6 * (np.arange(len(x)) == i)) for sign in (1, -1)]
        gradient.append((costs[0] - costs[1]) / 2e-6)
    equations = problem.normal_equations(x)
    np.testing.assert_allclose(equations.descent, -0.5 * np.array(gradient), rtol=1e-5, atol=1e-6)
    gram = candidate.kernel(candidate.points, candidate.points)
    errors = [
        naive_free_run(candidate, signals, 5 + a, 5 + b) - signals["y"][5 + a : 5 + b] for a, b in [(0, 25), (20, 55)]
    ]
    squares = sum(float(np.sum(error[skip:] ** 2)) for error, skip in zip(errors, (4, 7), strict=True))
    assert problem.cost(x) == pytest.approx(squares + 0.3 * candidate.weights @ gram @ candidate.weights, rel=1e-8)


class Rosenbrock(SquaresProblem):
    """``(10 (x1 - x0^2))^2 + (1 - x0)^2``, infinite for x0 > 1.5."""

    def cost(self, x):
        return float(rosen(x)) if x[0] < 1.5 else np.inf

    def normal_equations(self, x):
        jacobian = np.array([[20 * x[0], -10.0], [1.0, 0.0]])  # of what is predicted, minus that of the residual
        residual = np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
        return NormalEquations(jacobian.T @ jacobian, jacobian.T @ residual)


def test_levenberg_marquardt_reaches_the_minimum_around_a_forbidden_region():
    found = minimise_squares(Rosenbrock(), np.array([-1.2, 1.0]), max_iterations=100, tolerance=1e-12)
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-6)
    assert found.converged
    assert found.cost == pytest.approx(0.0, abs=1e-12)


def test_levenberg_marquardt_never_raises_the_cost_and_says_when_it_stopped_early():
    costs = [minimise_squares(Rosenbrock(), np.array([-1.2, 1.0]), max_iterations=n).cost for n in range(8)]
    assert (np.diff(costs) <= 0).all()
    assert costs[-1] < 0.5 * costs[0]
    stopped = minimise_squares(Rosenbrock(), np.array([-1.2, 1.0]), max_iterations=2)
    assert (stopped.n_iterations, stopped.converged) == (2, False)
    content = minimise_squares(Rosenbrock(), np.array([-1.2, 1.0]), max_iterations=9, tolerance=1.0)
    assert (content.n_iterations, content.converged) == (2, True)
    nowhere = minimise_squares(Rosenbrock(), np.array([2.0, 1.0]), max_iterations=9)
    assert (nowhere.n_iterations, nowhere.cost) == (0, np.inf)


def test_the_metric_finds_the_one_direction_of_a_function():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((400, 4)) @ rng.standard_normal((4, 4))
    direction = np.array([1.0, -2.0, 0.0, 0.5])
    gradient = np.cos(x @ direction)[:, None] * direction
    metric = gradient_metric(x, gradient, spread=2.0)
    assert metric.matrix.shape == (1, 4)
    cosine = metric.matrix[0] @ direction / np.linalg.norm(metric.matrix[0]) / np.linalg.norm(direction)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-9)
    assert np.std(x @ metric.matrix[0], ddof=1) == pytest.approx(0.5, rel=1e-9)


def test_the_metric_is_the_scaled_outer_product_of_gradients():
    rng = np.random.default_rng(4)
    x, gradient = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 3)), rng.standard_normal((300, 3))
    outer = sum(np.outer(row, row) for row in gradient) / 300
    covariance = np.cov(x.T)
    mu = np.linalg.eigvals(covariance @ outer).real.max()
    full = gradient_metric(x, gradient, spread=1.5)
    np.testing.assert_allclose(full.matrix.T @ full.matrix, outer / (1.5**2 * mu), rtol=1e-9, atol=1e-12)
    assert full.spectrum[0] == 1.0
    assert (np.diff(full.spectrum) < 0).all()
    white = gradient_metric(x, gradient, spread=1.5, power=0.0)
    np.testing.assert_allclose(white.matrix.T @ white.matrix, np.linalg.inv(covariance) / 1.5**2, rtol=1e-8)
    assert gradient_metric(x, np.zeros((300, 3)), spread=1.5) is None


def test_collinear_regressors_are_whitened_in_the_directions_that_exist():
    x = np.random.default_rng(5).standard_normal((200, 2)) @ np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 2.0]])
    v = whitening(x)
    assert v.shape == (2, 3)
    np.testing.assert_allclose(np.cov((x @ v.T).T), np.eye(2), atol=1e-9)


@pytest.mark.parametrize(("lengths", "window", "transient"), [((1000,), 2048, 400), ((500, 40, 3), 100, 20)])
def test_windows_score_every_sample_once_but_the_transients_of_the_segments(lengths, window, transient):
    narx = LAGS["value"]
    segments = [segment_of(narx, random_signals(narx, n + 2, seed=n)) for n in lengths]
    windows = windows_of(segments, window, transient)
    assert len(windows) >= 4
    scored = np.concatenate([w.segment.values[w.scored] for w in windows])
    everything = np.concatenate([segment.values for segment in segments])
    assert len(np.unique(scored)) == len(scored) > 0.75 * len(everything)
    assert set(scored) <= set(everything)
    assert max(len(w.segment.values) for w in windows) <= 1.5 * window
    for w in windows:
        assert w.transient <= 0.25 * len(w.segment.values)
        np.testing.assert_array_equal(w.segment.regressors[1:, 0], w.segment.values[:-1])
        assert w.segment.past[-1] == w.segment.regressors[0, 0]
    kept, held = held_back(windows, 4)
    assert len(kept) + len(held) == len(windows)
    assert held[0] is windows[3]
    some = spread_over(windows, 3)
    assert (len(some), some[0] is windows[0], some[2] is windows[-1]) == (3, True, True)
    assert len(spread_over(windows, 100)) == len(windows)


def wiener(n, seed=0):
    """``y[k] = 0.5 y[k-1] - 0.1 y[k-2] + 0.3 u[k-1] + 0.4 sin(y[k-1] + u[k-1])``: nonlinear along one direction."""
    rng = np.random.default_rng([seed, 7])
    u, y = 1.5 * rng.standard_normal(n), np.zeros(n)
    for k in range(2, n):
        y[k] = 0.5 * y[k - 1] - 0.1 * y[k - 2] + 0.3 * u[k - 1] + 0.4 * np.sin(y[k - 1] + u[k - 1])
    return {"u": u, "y": y}


WIENER = Narx({"y": 2}, {"u": [1, 2]}, predict="value")


def test_weights_of_a_system_in_the_class_of_the_model_are_found_from_nothing():
    truth = candidate_of(LAGS["value"])
    signals = random_signals(truth.narx, 300)
    signals["y"][2:] = naive_free_run(truth, signals, 2, 300)
    segment = segment_of(truth.narx, signals)
    start = replace(truth, mean=LinearMean([0.0, 0.0, 0.0, 0.0]), weights=np.zeros(4))
    problem = FreeRunProblem(start, [Window(segment, 10)], penalty=1e-12)
    found = minimise_squares(problem, problem.parameters(), max_iterations=60, tolerance=1e-14)
    np.testing.assert_allclose(parameters_of(problem.at(found.x)), parameters_of(truth), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def refined():
    return QUICK.fit([segment_of(WIENER, wiener(420))], WIENER, 20, 0, ANYTHING)


def test_the_refinement_simulates_a_record_that_it_has_not_seen(refined):
    stages = refined.report["stages"]
    names = [stage["stage"] for stage in stages]
    assert (names[0], names[-4:]) == ("linear", ["metric"] * 3 + ["all windows"])
    assert set(names[1:-4]) == {"whitened"}
    assert abs(refined.candidate.scaling.matrix[0] @ [1, 0, 1, 0]) > 0.9 * 2**0.5 * np.linalg.norm(
        refined.candidate.scaling.matrix[0]
    )
    new = segment_of(WIENER, wiener(300, seed=1))
    error = np.sqrt(np.mean((refined.candidate.simulate(new) - new.values) ** 2))
    assert error < 0.1 * stages[0]["held rmse"]
    assert 0 < refined.latent_variance < 0.1 * np.var(new.values)


def test_the_same_seed_gives_the_same_candidate():
    quick = replace(QUICK, stages=1, iterations=2, search_points=8)
    first, again = (quick.fit([segment_of(WIENER, wiener(150))], WIENER, 6, 0, ANYTHING) for _ in range(2))
    np.testing.assert_array_equal(again.candidate.weights, first.candidate.weights)
    assert again.report == first.report


@pytest.mark.parametrize("predict", ["value", "change"])
def test_the_result_does_not_depend_on_the_units(predict):
    narx, settings = replace(WIENER, predict=predict), replace(QUICK, stages=1, iterations=3, search_points=10)
    plain, other = wiener(200), wiener(200)
    other = {"u": 0.01 * other["u"] - 3.0, "y": 1000.0 * other["y"] + 5000.0}
    first, second = (settings.fit([segment_of(narx, s)], narx, 10, 0, ANYTHING) for s in (plain, other))
    runs = [found.candidate.simulate(segment_of(narx, s)) for found, s in ((first, plain), (second, other))]
    np.testing.assert_allclose(runs[1], 1000.0 * runs[0] + 5000.0, rtol=1e-4)
    assert second.latent_variance == pytest.approx(1e6 * first.latent_variance, rel=1e-3)
    assert second.report["stages"][-1]["held rmse"] == pytest.approx(
        1e3 * first.report["stages"][-1]["held rmse"], rel=1e-3
    )


def test_a_stage_that_simulates_the_windows_held_back_worse_is_refused():
    """Length scales of 0.01 see nothing between the points."""
    poor = replace(QUICK, spread=0.01, stages=8, penalty=0.1)
    found = poor.fit([segment_of(WIENER, wiener(420))], WIENER, 20, 0, ANYTHING)
    *_, whitened = (stage for stage in found.report["stages"] if stage["stage"] == "whitened")
    metrics = [stage for stage in found.report["stages"] if stage["stage"] == "metric"]
    assert [stage["power"] for stage in metrics] == [1.0, 0.5, 0.25]
    assert all(stage["held rmse"] > whitened["held rmse"] for stage in metrics)
    matrix = found.candidate.scaling.matrix
    spread = np.cov(np.array([wiener(420)["y"][1:-1], wiener(420)["u"][1:-1]]))
    np.testing.assert_allclose(np.linalg.inv(matrix.T @ matrix)[::2, ::2], 9.0 * spread, rtol=0.3, atol=0.5)


def test_the_start_that_simulates_the_windows_held_back_best_goes_on():
    settings = replace(QUICK, plain_spreads=(6.0, 12.0), penalty=0.1, stages=0)
    found = settings.fit([segment_of(WIENER, wiener(420))], WIENER, 20, 0, ANYTHING)
    held = {stage["stage"]: stage["held rmse"] for stage in found.report["stages"][1:4]}
    assert min(held, key=held.get) == "plain 6"
    y, u = (np.std(wiener(420)[name][2:], ddof=0) for name in ("y", "u"))
    np.testing.assert_allclose(found.candidate.scaling.matrix, np.diag(1 / (6 * np.array([y, y, u, u]))), rtol=1e-2)


def test_a_smaller_budget_takes_the_penalty_that_simulates_the_windows_held_back_best():
    settings = replace(QUICK, penalty=0.1, plain_spreads=(12.0,), stages=0)
    found = settings.fit([segment_of(WIENER, wiener(300))], WIENER, 8, 0, ANYTHING)
    tried = [stage for stage in found.report["stages"] if stage["stage"] == "8 points"]
    held = [stage["held rmse"] for stage in tried]
    assert (len(held), len(found.candidate.weights)) == (3, 8)
    assert len(set(held)) == 3
    chosen = tried[int(np.argmin(held))]["penalty"]
    assert chosen == found.report["penalty"] == found.report["stages"][-1]["penalty"]


def test_weights_that_never_beat_the_linear_model_are_left_out():
    narx = LAGS["value"]
    truth = replace(candidate_of(narx), points=np.zeros((0, 2)), weights=np.zeros(0))
    signals = random_signals(narx, 200)
    signals["y"][2:] = naive_free_run(truth, signals, 2, 200)
    signals["y"] += 0.3 * np.random.default_rng(8).standard_normal(200)
    found = QUICK.fit([segment_of(narx, signals)], narx, 10, 0, ANYTHING)
    stages = found.report["stages"]
    assert [stage["stage"] for stage in stages] == ["linear"] + 3 * ["whitened"] + ["all windows"]
    assert [stage["penalty"] for stage in stages[1:4]] == [1e-3, 1e-2, 1e-1]
    assert not found.candidate.weights.any()
    assert len(found.candidate.weights) == 10


def test_a_function_moved_to_many_points_of_another_metric_stays_the_same():
    candidate = candidate_of(WIENER)
    candidate = replace(candidate, bounds=(-1e3, 1e3))
    windows = windows_of([segment_of(WIENER, wiener(300))], 120, 20)
    scaling = Projection(np.ones(4), 0.7 * candidate.scaling.matrix)
    new = moved(candidate, scaling, SquaredExponential(1.0, np.ones(2)), windows, 40, np.random.default_rng(0))
    assert (len(new.points), new.mean) == (40, candidate.mean)
    x = free_run_regressors(candidate, windows)
    difference = new.predict(x) - candidate.predict(x)
    assert np.std(difference) < 0.15 * np.std(candidate.predict(x) - candidate.mean(x))


def test_windows_that_diverge_lend_their_measured_regressors():
    empty, (short, long) = growing(1.2)
    unstable = replace(empty, mean=LinearMean([1.2, 0.0]))
    x = free_run_regressors(unstable, [short, long])
    assert not np.isfinite(unstable.simulate(long.segment)).all()
    np.testing.assert_array_equal(x[8:], long.segment.regressors)
    np.testing.assert_allclose(x[:8], short.segment.regressors, rtol=1e-9)


def test_the_latent_variance_is_that_of_laplace():
    """By differences, with weights that are not whitened."""
    narx, penalty = WIENER, 0.2
    signals, candidate = wiener(120), candidate_of(WIENER)
    windows = [Window(segment_of(narx, signals), 0)]
    jacobian = naive_jacobian(candidate, signals, 2, 120)
    gram = candidate.kernel(candidate.points, candidate.points)
    prior = np.zeros((9, 9))
    prior[5:, 5:] = penalty * gram
    inverse = np.linalg.inv(jacobian.T @ jacobian + prior)
    residual = naive_free_run(candidate, signals, 2, 120) - signals["y"][2:]
    noise = residual @ residual / (len(residual) - np.trace(inverse @ jacobian.T @ jacobian))
    simulated = signals | {"y": np.append(signals["y"][:2], naive_free_run(candidate, signals, 2, 120))}
    x = narx.regressors(simulated).regressor
    across = candidate.kernel(candidate.scaling.transform(x), candidate.points)
    basis = np.hstack([x, np.ones((len(x), 1)), across])
    prior_variance = candidate.weights @ gram @ candidate.weights / 4
    left = prior_variance * (1 - np.sum(across * np.linalg.solve(gram, across.T).T, axis=1))
    expected = np.mean(noise * np.sum((basis @ inverse) * basis, axis=1) + left)
    assert latent_variance(candidate, windows, penalty) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", LAGS)
def test_all_kinds_of_lags_are_served(name):
    """A stable linear system of these lags is found again."""
    narx = LAGS[name]
    truth = replace(candidate_of(narx), points=np.zeros((0, 2)), weights=np.zeros(0))
    signals = random_signals(narx, 220)
    signals["y"][narx.max_lag :] = naive_free_run(truth, signals, narx.max_lag, 220)
    signals["y"] += 1e-3 * np.random.default_rng(8).standard_normal(220)
    if not narx.inputs:
        signals["y"] = np.sin(0.7 * np.arange(220))  # follows itself
    segment = segment_of(narx, signals)
    found = replace(QUICK, stages=0, search_points=4).fit([segment], narx, 4, 0, ANYTHING)
    error = found.candidate.simulate(segment) - segment.values
    assert np.std(error) < 0.05 * np.std(segment.values)


def test_limits_are_those_of_the_free_run():
    signals = wiener(300)
    signals["y"] = np.clip(signals["y"], -0.5, 0.8)
    found = replace(QUICK, stages=0).fit([segment_of(WIENER, signals)], WIENER, 8, 0, (-0.5, 0.8))
    path = found.candidate.simulate(segment_of(WIENER, signals))
    assert found.candidate.limits == (-0.5, 0.8)
    assert (path.min(), path.max()) == (-0.5, 0.8)


def test_the_model_made_of_the_result_simulates_alike_and_survives_a_file(refined, tmp_path):
    signals = wiener(200, seed=3)
    segment = segment_of(WIENER, signals)
    start = refined.candidate.start(1e-4, refined.latent_variance, segment.regressors)
    gp = OnlineGP(start.hyperparameters.kernel, noise_variance=1e-4, budget=20).fit(*start.points)
    model = Model(WIENER, start.scaling, start.mean, gp)
    run = free_run(model, signals["u"][:, None], signals["y"][:2, None])
    np.testing.assert_allclose(run.mean[:, 0], refined.candidate.simulate(segment), rtol=1e-7, atol=1e-8)
    model.save(tmp_path / "model.nc")
    again = free_run(Model.load(tmp_path / "model.nc"), signals["u"][:, None], signals["y"][:2, None])
    np.testing.assert_array_equal(again.mean, run.mean)


def growing(factor, *, lag=1, predict="value"):
    """Records that grow, and a long one near zero in which the free run of such a model diverges."""
    narx = Narx({"y": [lag]}, {"u": [1]}, predict=predict)
    rng = np.random.default_rng(9)
    long = {"u": 1e-6 * rng.standard_normal(300), "y": 1e-6 * rng.standard_normal(300)}
    short = {"u": np.zeros(9), "y": factor ** np.arange(9.0) / factor**8}
    segments = [segment_of(narx, short), segment_of(narx, long)]
    empty = replace(candidate_of(narx), points=np.zeros((0, 2)), weights=np.zeros(0), bounds=(-1e3, 1e3))
    return empty, [Window(segment, 0) for segment in segments]


def test_the_poles_of_an_unstable_start_are_drawn_inwards_or_refused():
    start = linear_start(*growing(1.2))
    assert start.contraction == 0.8  # the first that leaves less than 1 of 1.2
    assert np.isfinite(mean_square(start.candidate, growing(1.2)[1]))
    assert linear_start(*growing(1.2, lag=2)).contraction == 0.8  # its square on the second lag
    assert linear_start(*growing(1.2, predict="change")).contraction == 0.8
    with pytest.raises(ValueError, match="free run of a linear model diverges"):
        linear_start(*growing(4.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"penalty": 0.0}, "penalty must be positive and finite, got 0"),
        ({"spread": np.inf}, "spread must be positive and finite"),
        ({"plain_spreads": (1.0, -2.0)}, "plain_spreads must be positive and finite"),
        ({"search_points": 0}, "search_points must be a whole number of at least 1"),
        ({"stages": 1.5}, "stages must be a whole number"),
        ({"transient": 2048}, r"transient must be below window \(2048\)"),
        ({"hold_every": 1}, "hold_every must be a whole number of at least 2"),
        ({"powers": ()}, "powers must be numbers from 0 to 1"),
        ({"powers": (2.0,)}, "powers must be numbers from 0 to 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        OutputErrorRefinement(**settings)


def test_a_kernel_that_is_not_stationary_is_refused():
    with pytest.raises(TypeError, match="form of a stationary kernel, got LinearForm"):
        OutputErrorRefinement(kernel=LinearForm())


def test_too_few_samples_and_an_output_at_rest_are_refused():
    with pytest.raises(ValueError, match=r"at least 50 samples beside the transients.*got 2\d in"):
        QUICK.fit([segment_of(WIENER, wiener(30))], WIENER, 5, 0, ANYTHING)
    flat = wiener(200) | {"y": np.ones(200)}
    with pytest.raises(ValueError, match="'y' does not vary"):
        QUICK.fit([segment_of(WIENER, flat)], WIENER, 5, 0, ANYTHING)


@pytest.mark.slow
def test_bouc_wen_at_a_budget_of_100_points(shared_data):
    """One noisy period of the user-made record; best published 7.5e-6 m. About 10 s."""
    recordings = BoucWenData(path=str(shared_data)).load()
    narx = Narx({"displacement": 3}, {"force": 3}, predict="change")
    estimation, test = (
        segment_of(narx, {name: record[name].values[:8192] for name in ("displacement", "force")})
        for record in (recordings.estimation[0], recordings.test[0])
    )
    found = OutputErrorRefinement().fit([estimation], narx, 100, 0, ANYTHING)
    assert len(found.candidate.weights) == 100
    error = (found.candidate.simulate(test) - test.values)[47:]
    assert np.sqrt(np.mean(error**2)) < 1.1e-5
    spectrum = [stage["spectrum"] for stage in found.report["stages"] if "spectrum" in stage][-1]
    assert spectrum[1] > 0.3  # displacement and hysteretic force: two directions
    assert max(spectrum[2:], default=0.0) < 0.1
