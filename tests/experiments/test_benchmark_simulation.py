"""What the simulation is timed against: the same problem, as accurate and not more."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from experiments.benchmarks.adaptive import N_STRETCHES, TOLERANCES, Adaptive, compiled_rates, loosest, plain_rates
from experiments.benchmarks.sampled_problem import bouc_wen_problem, building_problem, multisine
from simulators import PI, SyntheticWeather, closed_loop
from simulators.runge_kutta import integrate

DAY = 86400.0


def small_building():
    return building_problem(DAY / 4, seed=3)


def small_bouc_wen():
    problem = bouc_wen_problem(seed=3)
    return replace(problem, input=problem.input[:40])


PROBLEMS = {"held": small_building, "linear": small_bouc_wen}


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]()


@pytest.mark.parametrize("seed", range(20))
def test_loosest_tolerance_that_keeps_the_bound(seed):
    rng = np.random.default_rng(seed)
    tolerances = 10.0 ** rng.permutation(np.arange(-8.0, 0.0))
    errors = dict(zip(tolerances, tolerances * 10 ** rng.normal(0, 1, 8), strict=True))  # they need not be monotone
    bound = float(np.median(list(errors.values())))
    asked = []
    found = loosest(lambda tolerance: asked.append(tolerance) or errors[tolerance], bound, tolerances)
    assert found.tolerance == max(tolerance for tolerance, error in errors.items() if error <= bound)
    assert found.error == errors[found.tolerance]
    assert min(asked) == found.tolerance  # tighter ones are expensive


def test_tightest_tolerance_where_none_keeps_the_bound():
    found = loosest(lambda tolerance: 5 * tolerance, 1e-20, [1e-3, 1e-9, 1e-1])
    assert found == (1e-9, 5e-9)


def test_tolerances_start_loose_and_end_tight():
    assert (TOLERANCES[0], TOLERANCES[-1]) == pytest.approx((1e-1, 1e-12))
    assert all(b / a == pytest.approx(10**-0.5) for a, b in pairwise(TOLERANCES))


def pieces(problem, length, substeps):
    """States after each sample of the pieces, by Runge-Kutta steps of our integrator, each piece from our state."""
    made = problem.trajectory
    starts = [int(k) for k in np.linspace(0, len(made.time) - 1 - length, N_STRETCHES)]
    system = replace(problem.system, substeps=substeps)
    parts = [slice(start, start + length + 1) for start in starts]
    found = [
        integrate(system, made.state[p.start], problem.input[p], made.noise[p], problem.interpolation).states[1:]
        for p in parts
    ]
    return np.array(found), parts


def naive(problem, parts, method, tolerance):
    """The same by `solve_ivp`, with the drift in plain Python and the input interpolated here."""
    system, made, u = problem.system, problem.trajectory, problem.input
    linear = problem.interpolation.name == "linear"
    scale, found = made.state.std(axis=0), []
    for part in parts:
        x = made.state[part.start]
        for k in range(part.start, part.stop - 1):
            t0, after = made.time[k], u[k + 1] if linear else u[k]

            def rate(t, x, k=k, t0=t0, after=after):
                share = (t - t0) / system.dt
                return system.derivative(t, x, (1 - share) * u[k] + share * after, made.noise[k])

            span = (t0, t0 + system.dt)
            x = solve_ivp(rate, span, x, method=method, rtol=tolerance, atol=tolerance * scale).y[:, -1]
            found.append(x)
    return np.array(found).reshape(len(parts), -1, len(scale))


def test_errors_are_those_of_a_fine_integration(problem):
    adaptive = Adaptive(problem, 20)
    fine, _ = pieces(problem, 5, 40 * problem.system.substeps)
    ours, _ = pieces(problem, 5, problem.system.substeps)
    expected = np.abs((ours - fine) / problem.trajectory.state.std(axis=0)).max()
    assert adaptive.n_samples == 20
    assert adaptive.our_error() == pytest.approx(expected, rel=0.01)
    assert adaptive.error(fine) < 0.01 * expected


@pytest.mark.parametrize("method", ["RK45", "LSODA"])
def test_match_is_the_loosest_tolerance_as_accurate_as_we_are(problem, method):
    found = Adaptive(problem, 20).match(method)
    fine, parts = pieces(problem, 5, 40 * problem.system.substeps)
    ours, _ = pieces(problem, 5, problem.system.substeps)
    scale = problem.trajectory.state.std(axis=0)
    bound = np.abs((ours - fine) / scale).max()
    candidates = [tolerance for tolerance in TOLERANCES if tolerance >= found.tolerance]
    errors = [np.abs((naive(problem, parts, method, c) - fine) / scale).max() for c in candidates]
    assert [error <= bound for error in errors] == [False] * (len(errors) - 1) + [True]
    assert found.error == pytest.approx(errors[-1], rel=0.05)


def test_a_tight_tolerance_is_near_the_reference_and_a_loose_one_is_not(problem):
    adaptive = Adaptive(problem, 8)
    loose, tight = (adaptive.error(adaptive.states(adaptive.plain, "RK45", t)) for t in (1e-3, 1e-10))
    assert tight < 1e-7 < 1e-5 < loose


@pytest.mark.parametrize("rates", [plain_rates, compiled_rates])
def test_right_hand_side_is_the_drift_with_the_input_between_its_samples(problem, rates):
    made, k = problem.trajectory, 7
    time, x = made.time[k] + 0.3 * problem.system.dt, made.state[k] + 0.01
    u = problem.input[k] + (0.3 * (problem.input[k + 1] - problem.input[k]) if problem.name != "building" else 0.0)
    expected = problem.system.derivative(time, x, u, made.noise[k])
    np.testing.assert_allclose(rates(problem.system)(time, x, problem.rows[k]), expected, rtol=1e-9)


def test_pieces_cover_a_short_record_at_most_once_each():
    adaptive = Adaptive(small_building(), 10_000)  # 24 intervals
    assert adaptive.starts.tolist() == [0, 0, 0, 0]
    assert adaptive.states(adaptive.plain, "RK45", 1e-2).shape == (4, 24, 3)


def test_building_runs_with_the_flow_that_its_controller_set():
    problem = small_building()
    time = problem.trajectory.time
    weather = SyntheticWeather().temperature(time, seed=3)
    samples = list(closed_loop(problem.system, PI(), {"ambient_temperature": weather}, seed=3))
    np.testing.assert_array_equal(problem.trajectory.output, [sample.output for sample in samples])
    assert len(time) == 25
    assert problem.input[:, 1].max() > 0


@pytest.mark.parametrize("restarts", [1, 20])
def test_bouc_wen_takes_the_same_steps_however_often_it_is_restarted(restarts):
    problem = bouc_wen_problem(0, restarts=restarts)
    assert problem.system.dt / problem.system.substeps == pytest.approx(1 / 15000)
    assert len(problem.input) == 8192 * restarts
    np.testing.assert_allclose(problem.input[::restarts], bouc_wen_problem(0).input, atol=1e-9)


def test_multisine_has_its_lines_and_its_power():
    n, dt = 8192, 1 / 750
    force = multisine(n, dt, seed=5)
    power = np.abs(np.fft.rfft(force)) ** 2
    inside = (np.fft.rfftfreq(n, dt) >= 5) & (np.fft.rfftfreq(n, dt) <= 150)
    assert np.sqrt(np.mean(force**2)) == pytest.approx(50.0)
    np.testing.assert_allclose(power[inside], power[inside].mean())
    assert power[~inside].max() < 1e-12 * power.max()
    assert not np.allclose(force, multisine(n, dt, seed=6))
