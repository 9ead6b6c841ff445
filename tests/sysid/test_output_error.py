"""The free run as a least-squares problem, against naive versions.

Sensitivities, minimisation, linear models and the variance of the fitted function.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import rosen

from free_runs import (
    EACH_KIND_OF_LAGS,
    KINDS_OF_LAGS,
    NO_LIMITS,
    WIENER_LAGS,
    growing_candidate,
    naive_free_run,
    random_candidate,
    random_signals,
    segment_of,
    wiener_record,
    with_naive_run,
)
from sysid import LinearMean, Matern52, Narx, Projection, Scaling, SquaredExponential
from sysid.simulation_error import output_error
from sysid.simulation_error.candidate import Refusal, squared_error


def parameters_of(candidate):
    """Return slopes, intercept, weights and metric of a candidate in one vector."""
    linear = candidate.mean
    metric = candidate.scaling.linear_part().ravel()
    return np.concatenate([linear.coefficients, [linear.intercept], candidate.weights, metric])


def central_differences(function, x, step=1e-6):
    """Return the derivatives of a function of parameters, by parameter in the last axis."""
    derivatives = []
    for move in step * np.eye(len(x)):
        derivatives.append((function(x + move) - function(x - move)) / (2 * step))
    return np.stack(derivatives, axis=-1)


def naive_jacobian(candidate, signals, first, last):
    """Return the derivatives (n, p + 1 + N + q p) of `naive_free_run`.

    They are with respect to slopes, intercept, weights and metric.
    """
    p = candidate.narx.n_features
    n_linear = p + 1
    n_points = len(candidate.weights)

    def run(x):
        metric = x[n_linear + n_points :].reshape(-1, p)
        changed = replace(
            candidate,
            scaling=Projection(candidate.scaling.offset, metric),
            mean=LinearMean(x[:p].tolist(), float(x[p])),
            weights=x[n_linear : n_linear + n_points],
        )
        return naive_free_run(changed, signals, first, last)

    return central_differences(run, parameters_of(candidate))


# --- sensitivities --------------------------------------------------------------------------------

N_RUN_SAMPLES = 40

free_and_limited = pytest.mark.parametrize(
    "limits", [NO_LIMITS, (-0.1, 0.3)], ids=["free", "limited"]
)


def candidate_and_record(narx, limits):
    """Return a candidate of two coordinates, and the signals and the segment of a record."""
    kernel = SquaredExponential if len(narx.signals) == 2 else Matern52
    candidate = random_candidate(narx, limits=limits, size=0.4, kernel=kernel, n_coordinates=2)
    signals = random_signals(narx, N_RUN_SAMPLES)
    return candidate, signals, segment_of(narx, signals)


@free_and_limited
@EACH_KIND_OF_LAGS
def test_free_run_is_that_of_a_plain_loop(narx, limits):
    candidate, signals, segment = candidate_and_record(narx, limits)
    first = narx.max_lag
    path = candidate.simulate(segment)
    expected = naive_free_run(candidate, signals, first, N_RUN_SAMPLES)
    np.testing.assert_allclose(path, expected, rtol=1e-9, atol=1e-12)
    later = naive_free_run(candidate, signals, first + 6, N_RUN_SAMPLES)
    np.testing.assert_allclose(candidate.simulate(segment, 6), later, rtol=1e-9, atol=1e-12)
    mean_square = np.mean((path - signals["y"][first:]) ** 2)
    assert squared_error(candidate, [segment]) == pytest.approx(mean_square)


@pytest.mark.parametrize("n_coordinates", [None, 4], ids=["diagonal map", "square map"])
def test_free_run_in_as_many_coordinates_as_features_is_that_of_a_plain_loop(n_coordinates):
    narx = KINDS_OF_LAGS["change"]
    assert narx.n_features == 4
    candidate = random_candidate(narx, size=0.4, n_coordinates=n_coordinates)
    signals = random_signals(narx, N_RUN_SAMPLES)
    expected = naive_free_run(candidate, signals, narx.max_lag, N_RUN_SAMPLES)
    path = candidate.simulate(segment_of(narx, signals))
    np.testing.assert_allclose(path, expected, rtol=1e-9, atol=1e-12)


@free_and_limited
@EACH_KIND_OF_LAGS
def test_sensitivities_are_those_of_a_plain_loop(narx, limits):
    """A saturated output depends on nothing and passes nothing on."""
    candidate, signals, segment = candidate_and_record(narx, limits)
    path = candidate.simulate(segment)
    expected = naive_jacobian(candidate, signals, narx.max_lag, N_RUN_SAMPLES)
    n_parameters = narx.n_features + 1 + len(candidate.weights)

    fixed_metric = output_error.sensitivity(candidate, segment, path)
    assert fixed_metric.shape[1] == n_parameters
    np.testing.assert_allclose(fixed_metric, expected[:, :n_parameters], rtol=1e-5, atol=1e-6)
    moving_metric = output_error.sensitivity(candidate, segment, path, moves=True)
    np.testing.assert_allclose(moving_metric, expected, rtol=1e-5, atol=1e-6)

    is_saturated = np.isin(path, limits)
    assert not fixed_metric[is_saturated].any()
    if narx.inputs:
        has_limits = limits != NO_LIMITS
        assert is_saturated.any() == has_limits


@pytest.mark.parametrize("moves", [False, True], ids=["fixed metric", "moving metric"])
def test_normal_equations_equal_those_of_differences(moves):
    narx = KINDS_OF_LAGS["change, gaps"]
    signals = random_signals(narx, 60)
    candidate = random_candidate(narx, size=0.4, n_coordinates=2)
    segment = segment_of(narx, signals)
    windows = [
        segment.part(0, 25)._replace(transient=4),
        segment.part(20, 55)._replace(transient=7),
    ]
    problem = output_error.FreeRunProblem(candidate, windows, penalty=0.3, moves=moves)

    x = problem.parameters()
    n_parameters = narx.n_features + 1 + len(candidate.weights)
    if moves:
        n_parameters += candidate.scaling.matrix.size
    assert len(x) == n_parameters
    restored = problem.at(x)
    np.testing.assert_allclose(restored.weights, candidate.weights, rtol=1e-7)
    np.testing.assert_array_equal(restored.scaling.linear_part(), candidate.scaling.linear_part())
    _, descent = problem.normal_equations(x)
    expected_descent = -0.5 * central_differences(problem.cost, x)
    np.testing.assert_allclose(descent, expected_descent, rtol=1e-5, atol=1e-5)

    sum_of_squares = 0.0
    for first, last, transient in ((5, 30, 4), (25, 60, 7)):  # samples of the record
        error = naive_free_run(candidate, signals, first, last) - signals["y"][first:last]
        sum_of_squares += np.sum(error[transient:] ** 2)
    gram = candidate.kernel(candidate.points, candidate.points)
    penalty = 0.3 * candidate.weights @ gram @ candidate.weights
    assert problem.cost(x) == pytest.approx(sum_of_squares + penalty, rel=1e-7)
    n_scored = 25 - 4 + 35 - 7
    mean_square = sum_of_squares / n_scored
    assert squared_error(candidate, windows) == pytest.approx(mean_square, rel=1e-7)


# --- minimisation ---------------------------------------------------------------------------------


def bounded_rosenbrock(x):
    """Return ``(10 (x1 - x0^2))^2 + (1 - x0)^2``, infinite for x0 >= 1.5."""
    return float(rosen(x)) if x[0] < 1.5 else np.inf


def rosenbrock_normal_equations(x):
    """Return ``J'J`` and ``J'r`` of the residuals r and the derivatives J of the prediction."""
    jacobian = np.array([[20 * x[0], -10.0], [1.0, 0.0]])  # minus the derivatives of r
    residual = np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
    return jacobian.T @ jacobian, jacobian.T @ residual


def minimise_rosenbrock(max_iterations, start=(-1.2, 1.0), tolerance=1e-3):
    """Return x, cost and number of iterations of Levenberg-Marquardt."""
    return output_error.minimise_squares(
        bounded_rosenbrock,
        rosenbrock_normal_equations,
        np.array(start),
        max_iterations=max_iterations,
        tolerance=tolerance,
    )


def test_levenberg_marquardt_reaches_the_minimum_around_a_forbidden_region():
    x, cost, n_iterations = minimise_rosenbrock(100, tolerance=1e-12)
    np.testing.assert_allclose(x, [1.0, 1.0], atol=1e-6)
    assert cost == pytest.approx(0.0, abs=1e-12)
    assert n_iterations < 100


def test_cost_of_levenberg_marquardt_never_rises():
    costs = [minimise_rosenbrock(n)[1] for n in range(8)]
    assert (np.diff(costs) <= 0).all()


def test_levenberg_marquardt_ends_at_its_iterations_or_its_tolerance():
    _, _, n_at_limit = minimise_rosenbrock(2)
    _, _, n_at_tolerance = minimise_rosenbrock(9, tolerance=1.0)
    assert n_at_limit == 2
    assert n_at_tolerance == 2


def test_levenberg_marquardt_does_not_start_in_the_forbidden_region():
    _, cost, n_iterations = minimise_rosenbrock(9, start=(2.0, 1.0))
    assert cost == np.inf
    assert n_iterations == 0


def normal_equations_above_1(x):
    """Return the normal equations of ``x^2``, which exist for x >= 1 only."""
    curvature = 1.0 if x[0] >= 1.0 else np.inf
    return np.array([[curvature]]), -x


def test_step_to_where_the_sensitivities_overflow_is_not_taken():
    x, cost, _ = output_error.minimise_squares(
        lambda x: float(x @ x), normal_equations_above_1, np.array([9.0]), max_iterations=50
    )
    assert 1.0 <= x[0] < 2.0
    assert cost == x[0] ** 2


def test_start_where_the_sensitivities_overflow_has_an_infinite_cost():
    _, cost, _ = output_error.minimise_squares(
        lambda x: 1.0, normal_equations_above_1, np.array([0.5]), max_iterations=5
    )
    assert cost == np.inf


# --- linear models --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "lag", "predict", "expected_contraction"),
    [
        (1.2, 1, "value", 0.8),  # the first that makes less than 1 of 1.2
        (1.2, 2, "value", 0.8),  # its square acts on the second lag
        (1.2, 1, "change", 0.8),
        (4.0, 1, "value", 0.0),
    ],
    ids=["value", "second lag", "change", "far outside"],
)
def test_poles_of_an_unstable_start_are_moved_inwards(factor, lag, predict, expected_contraction):
    candidate, segments = growing_candidate(factor, lag=lag, predict=predict)
    fitted, contraction, _ = output_error.fit_linear(candidate, segments)
    assert contraction == expected_contraction
    assert np.isfinite(squared_error(fitted, segments))


# --- variance of the function ---------------------------------------------------------------------


def test_latent_variance_is_that_of_laplace():
    """By differences, with weights that are not whitened."""
    signals = wiener_record(120)
    candidate = random_candidate(WIENER_LAGS, 4, size=0.4, n_coordinates=2)
    kernel = candidate.kernel
    weights = candidate.weights
    penalty = 0.2
    n_linear = WIENER_LAGS.n_features + 1
    n_parameters = n_linear + len(weights)

    jacobian = naive_jacobian(candidate, signals, 2, 120)[:, :n_parameters]
    gram = kernel(candidate.points, candidate.points)
    prior_precision = np.zeros((n_parameters, n_parameters))
    prior_precision[n_linear:, n_linear:] = penalty * gram
    inverse = np.linalg.inv(jacobian.T @ jacobian + prior_precision)
    simulated = with_naive_run(candidate, signals)
    residual = simulated["y"][2:] - signals["y"][2:]
    n_effective_parameters = np.trace(inverse @ jacobian.T @ jacobian)
    noise_variance = residual @ residual / (len(residual) - n_effective_parameters)

    x = WIENER_LAGS.regressors(simulated).regressor
    covariance = kernel(candidate.scaling.transform(x), candidate.points)
    basis = np.hstack([x, np.ones((len(x), 1)), covariance])
    of_parameters = noise_variance * np.sum((basis @ inverse) * basis, axis=1)
    explained = np.sum(covariance * np.linalg.solve(gram, covariance.T).T, axis=1)
    prior_variance = weights @ gram @ weights / len(weights)
    beside_points = prior_variance * (kernel.variance - explained)
    expected = np.mean(of_parameters + beside_points)

    segment = segment_of(WIENER_LAGS, signals)
    variance = output_error.latent_variance(candidate, [segment], penalty)
    assert variance == pytest.approx(expected, rel=1e-4)


def chaotic_record(n):
    """Return a record of the logistic map, where an error doubles with every sample."""
    y = np.full(n, 0.3)
    for k in range(1, n):
        y[k] = 3.9 * y[k - 1] * (1.0 - y[k - 1])
    return {"y": y}


def test_free_run_whose_sensitivities_overflow_is_refused():
    """A model of a chaotic record is simulated over more than a thousand samples."""
    narx = Narx({"y": 1}, predict="value")
    signals = chaotic_record(3000)
    x = signals["y"][:30, None]
    next_outputs = signals["y"][1:31]
    kernel = SquaredExponential(1.0, [0.5])
    random = random_candidate(narx, 30)
    covariance = kernel(x, x) + 1e-10 * np.eye(30)
    candidate = replace(
        random,
        scaling=Scaling.identity(1),
        kernel=kernel,
        points=x,
        weights=np.linalg.solve(covariance, next_outputs - random.mean(x)),
    )
    segment = segment_of(narx, signals)
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(Refusal, match="free run overflow"),
    ):
        output_error.latent_variance(candidate, [segment], 1.0)
