"""The free run as a least-squares problem: sensitivities, minimisation, linear models, against
naive versions.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import rosen

from free_runs import (
    EACH_KIND_OF_LAGS,
    FREE,
    LAGS,
    WIENER,
    candidate_of,
    growing,
    naive_free_run,
    random_signals,
    segment_of,
    wiener,
    with_naive_run,
)
from sysid import LinearMean, Matern52, Narx, Projection, Scaling, SquaredExponential
from sysid.simulation_error import output_error
from sysid.simulation_error.candidate import Refusal, squared_error


def parameters_of(candidate):
    linear = candidate.mean
    metric = candidate.scaling.linear_part().ravel()
    return np.concatenate([linear.coefficients, [linear.intercept], candidate.weights, metric])


def differences(function, x, step=1e-6):
    """Central differences of a function of parameters, by parameter in the last axis."""
    moves = step * np.eye(len(x))
    return np.stack(
        [(function(x + move) - function(x - move)) / (2 * step) for move in moves],
        axis=-1,
    )


def naive_jacobian(candidate, signals, first, last):
    """Derivatives (n, p + 1 + N + q p) of `naive_free_run`, also with respect to the metric."""
    p = candidate.narx.n_features
    n = len(candidate.weights)

    def run(x):
        scaling = Projection(candidate.scaling.offset, x[p + 1 + n :].reshape(-1, p))
        mean = LinearMean(x[:p].tolist(), float(x[p]))
        weights = x[p + 1 : p + 1 + n]
        changed = replace(candidate, scaling=scaling, mean=mean, weights=weights)
        return naive_free_run(changed, signals, first, last)

    return differences(run, parameters_of(candidate))


@pytest.mark.parametrize("limits", [FREE, (-0.1, 0.3)], ids=["free", "limited"])
@EACH_KIND_OF_LAGS
def test_the_free_run_and_its_sensitivities_are_those_of_a_plain_loop(narx, limits):
    """A saturated output depends on nothing and passes nothing on."""
    kernel = SquaredExponential if len(narx.signals) == 2 else Matern52
    candidate = candidate_of(narx, limits=limits, size=0.4, kernel=kernel, n_coordinates=2)
    signals = random_signals(narx, 40)
    first = narx.max_lag
    segment = segment_of(narx, signals)
    path = candidate.simulate(segment)
    np.testing.assert_allclose(
        path, naive_free_run(candidate, signals, first, 40), rtol=1e-9, atol=1e-12
    )
    later = naive_free_run(candidate, signals, first + 6, 40)
    np.testing.assert_allclose(candidate.simulate(segment, 6), later, rtol=1e-9, atol=1e-12)
    assert squared_error(candidate, [segment]) == pytest.approx(
        np.mean((path - signals["y"][first:]) ** 2)
    )
    found = output_error.sensitivity(candidate, segment, path)
    expected = naive_jacobian(candidate, signals, first, 40)
    np.testing.assert_allclose(found, expected[:, : found.shape[1]], rtol=1e-5, atol=1e-6)
    moving = output_error.sensitivity(candidate, segment, path, moves=True)
    np.testing.assert_allclose(moving, expected, rtol=1e-5, atol=1e-6)
    cut_off = np.isin(path, limits)
    assert not found[cut_off].any()
    assert not narx.inputs or cut_off.any() == (limits != FREE)


@pytest.mark.parametrize("moves", [False, True])
def test_normal_equations_of_the_problem_equal_those_of_differences(moves):
    narx = LAGS["change, gaps"]
    signals = random_signals(narx, 60)
    candidate = candidate_of(narx, size=0.4, n_coordinates=2)
    segment = segment_of(narx, signals)
    windows = [
        segment.part(0, 25)._replace(transient=4),
        segment.part(20, 55)._replace(transient=7),
    ]
    problem = output_error.FreeRunProblem(candidate, windows, penalty=0.3, moves=moves)
    x = problem.parameters()
    assert (
        len(x)
        == narx.n_features + 1 + len(candidate.weights) + moves * candidate.scaling.matrix.size
    )
    np.testing.assert_allclose(problem.at(x).weights, candidate.weights, rtol=1e-7)
    np.testing.assert_array_equal(
        problem.at(x).scaling.linear_part(), candidate.scaling.linear_part()
    )
    _, descent = problem.normal_equations(x)
    np.testing.assert_allclose(descent, -0.5 * differences(problem.cost, x), rtol=1e-5, atol=1e-5)
    weights = candidate.weights
    total = 0.0
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
        jacobian = np.array(
            [[20 * x[0], -10.0], [1.0, 0.0]]
        )  # of what is predicted, minus that of the residual
        residual = np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
        return jacobian.T @ jacobian, jacobian.T @ residual

    def minimise(n, start=(-1.2, 1.0), tolerance=1e-3):
        return output_error.minimise_squares(
            cost,
            normal_equations,
            np.array(start),
            max_iterations=n,
            tolerance=tolerance,
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
    assert (
        output_error.minimise_squares(lambda x: 1.0, normal_equations, start, max_iterations=5)[1]
        == np.inf
    )


def test_the_poles_of_an_unstable_start_are_drawn_inwards():
    candidate, contraction, _ = output_error.fit_linear(*growing(1.2))
    assert contraction == 0.8  # the first that leaves less than 1 of 1.2
    assert np.isfinite(squared_error(candidate, growing(1.2)[1]))
    assert output_error.fit_linear(*growing(1.2, lag=2))[1] == 0.8  # its square on the second lag
    assert output_error.fit_linear(*growing(1.2, predict="change"))[1] == 0.8
    assert output_error.fit_linear(*growing(4.0))[1] == 0.0


def test_the_latent_variance_is_that_of_laplace():
    """By differences, with weights that are not whitened."""
    signals = wiener(120)
    candidate = candidate_of(WIENER, 4, size=0.4, n_coordinates=2)
    penalty = 0.2
    jacobian = naive_jacobian(candidate, signals, 2, 120)
    gram = candidate.kernel(candidate.points, candidate.points)
    jacobian = jacobian[:, :9]
    prior = np.zeros((9, 9))
    prior[5:, 5:] = penalty * gram
    inverse = np.linalg.inv(jacobian.T @ jacobian + prior)
    simulated = with_naive_run(candidate, signals)
    residual = simulated["y"][2:] - signals["y"][2:]
    noise = residual @ residual / (len(residual) - np.trace(inverse @ jacobian.T @ jacobian))
    x = WIENER.regressors(simulated).regressor
    across = candidate.kernel(candidate.scaling.transform(x), candidate.points)
    basis = np.hstack([x, np.ones((len(x), 1)), across])
    prior_variance = candidate.weights @ gram @ candidate.weights / 4
    left = prior_variance * (
        candidate.kernel.variance - np.sum(across * np.linalg.solve(gram, across.T).T, axis=1)
    )
    expected = np.mean(noise * np.sum((basis @ inverse) * basis, axis=1) + left)
    found = output_error.latent_variance(candidate, [segment_of(WIENER, signals)], penalty)
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_free_run_whose_sensitivities_overflow_is_refused():
    """A chaotic record: an error doubles with every sample, and more than a thousand samples are
    simulated.
    """
    narx = Narx({"y": 1}, predict="value")
    y = np.full(3000, 0.3)
    for k in range(1, len(y)):
        y[k] = 3.9 * y[k - 1] * (1.0 - y[k - 1])
    truth = replace(candidate_of(narx, 30), limits=FREE)
    x = y[:-1, None]
    truth = replace(
        truth,
        scaling=Scaling.identity(1),
        kernel=SquaredExponential(1.0, [0.5]),
        points=x[:30],
    )
    system = truth.kernel(truth.points, truth.points) + 1e-10 * np.eye(30)
    truth = replace(truth, weights=np.linalg.solve(system, y[1:31] - truth.mean(truth.points)))
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(Refusal, match="free run overflow"),
    ):
        output_error.latent_variance(truth, [segment_of(narx, {"y": y})], 1.0)
