"""Lags from dynamics: the four benchmark systems, the meaning of the order, and what a report says."""

import numpy as np
import pytest

from sysid.lags import lags_from_dynamics
from sysid.linear import discretise, linearise
from sysid.narx import Narx, Target


def bouc_wen(x, u):
    y, v, z = x
    return [v, (u[0] - 5e4 * y - 10 * v - z) / 2, 5e4 * v - 1e3 * (0.8 * abs(v) * z - 1.1 * v * abs(z))]


def tanks(x, u):
    return [-0.15 * np.sqrt(x[0]) + 0.07 * u[0], 0.15 * np.sqrt(x[0]) - 0.1 * np.sqrt(x[1])]


def van_der_pol(x, u):
    return [x[1], 2 * (1 - x[0] ** 2) * x[1] - x[0]]


def building(x, u):
    zone = ((x[1] - x[0]) / 0.002 + (x[2] - x[0]) / 0.002) / 2e6
    wall = ((x[0] - x[1]) / 0.002 + (u[0] - x[1]) / 0.005) / 4e7
    return [zone, wall, ((x[0] - x[2]) / 0.002 + 4180 * u[1] * (60 - x[2])) / 2e5]


def first(x):
    return x[:1]


def read_bouc_wen(states, inputs, **options):
    names = {"state_names": ["position", "velocity", "restoring_force"], "input_names": ["force"]}
    return lags_from_dynamics(bouc_wen, first, states, inputs, 1 / 750, **names, output_name="y", **options)


def read_building(states, inputs):
    names = {"state_names": ["zone", "wall", "radiator"], "input_names": ["ambient", "flow"]}
    return lags_from_dynamics(building, first, states, inputs, 900.0, **names, output_name="zone_temperature")


def read_tanks(output, states=((5.0, 4.0),)):
    names = {"state_names": ["upper", "lower"], "input_names": ["pump"]}
    return lags_from_dynamics(tanks, output, states, [[3.0]], 4.0, **names, output_name="level")


REST, MOVING, BACK = [0.0, 0.0, 0.0], [1e-3, 0.1, 20.0], [1e-3, -0.1, 20.0]


# --- the benchmark systems ------------------------------------------------------------------------


@pytest.mark.parametrize("state", [MOVING, BACK, [1e-5, 1e-4, 0.1]])
def test_bouc_wen_needs_three_and_three_where_it_moves(state):
    report = read_bouc_wen([state], [[3.0]])
    assert (report.n_y, report.n_u) == (3, {"force": 3})
    assert report.points[0].reasons == ()
    assert report.points[0].kept > 1e-5


def test_bouc_wen_at_rest_shows_two_and_the_report_says_why():
    """At rest z' = 5e4 y', so z - 5e4 y never changes: no input moves it."""
    report = read_bouc_wen([REST], [[0.0]])
    assert (report.n_y, report.n_u) == (2, {"force": 2})
    assert report.points[0].dropped < 1e-12
    assert report.points[0].reasons == ("no input moves position - 2e-05 restoring_force",)
    assert "because no input moves position - 2e-05 restoring_force" in str(report)


def test_the_largest_numbers_over_the_points_count():
    report = read_bouc_wen([REST, MOVING, BACK], [[0.0], [1.0], [2.0]])
    assert (report.n_y, report.n_u) == (3, {"force": 3})
    assert [point.lags for point in report.points] == [(2, 2), (3, 3), (3, 3)]
    lines = str(report).splitlines()
    assert lines[0].startswith("lags: 3 of y, 3 of force; the largest of 3 operating points")
    assert lines[1].strip().startswith("2, 2 at position 0, velocity 0, restoring_force 0, force 0 (")
    assert lines[2].strip().startswith("because")
    assert lines[3].strip().startswith("3, 3 at position 0.001, velocity 0.1, restoring_force 20, force 1 and 1 more")
    assert len(lines) == 4


def test_tanks_need_two_and_two():
    report = read_tanks(lambda x: x[1:])
    assert (report.n_y, report.n_u) == (2, {"pump": 2})
    assert report.points[0].kept > 0.1


def test_the_upper_tank_alone_does_not_see_the_lower_one():
    report = read_tanks(first)
    assert (report.n_y, report.n_u) == (1, {"pump": 1})
    assert report.points[0].reasons == ("the output never shows a change along lower",)


@pytest.mark.parametrize("state", [[0.0, 0.0], [1.0, 1.0], [-2.0, 0.1]])
def test_van_der_pol_needs_two_outputs_and_has_no_input(state):
    names = {"state_names": ["position", "velocity"], "input_names": []}
    report = lags_from_dynamics(van_der_pol, first, [state], [[]], 0.1, **names, output_name="x")
    assert (report.n_y, report.n_u) == (2, {})
    assert report.narx() == Narx({"x": 2})


@pytest.mark.parametrize(("state", "input"), [([20, 15, 30], [5, 0.03]), ([22, 21, 22], [20, 0.0])])
def test_the_building_needs_three_of_each(state, input):
    report = read_building([state], [input])
    assert (report.n_y, report.n_u) == (3, {"ambient": 3, "flow": 3})
    assert report.points[0].kept > 1e-3


def test_water_as_warm_as_the_radiator_heats_nothing():
    report = read_building([[20, 15, 60], [20, 15, 30]], [[5, 0.03], [5, 0.03]])
    assert report.points[0].lags == (3, 3, 0)
    assert report.points[0].reasons == ("flow does not reach the output",)
    assert report.n_u == {"ambient": 3, "flow": 3}
    alone = read_building([[20, 15, 60]], [[5, 0.03]])
    assert alone.narx() == Narx({"zone_temperature": 3}, {"ambient": 3})


# --- what the order means -------------------------------------------------------------------------


def unexplained(drift, output, state, input, dt, n):
    """Residual of the best n-lag difference equation on the response of the linear system to white inputs."""
    model = discretise(linearise(drift, output, state, input), dt)
    rng = np.random.default_rng(0)
    u, x, y = rng.normal(size=(300, len(input))), np.zeros(len(state)), np.zeros(300)
    for k in range(300):
        y[k] = (model.C @ x)[0]
        x = model.A @ x + model.B @ (u[k] / np.abs(model.B).max(axis=0))
    rows = [np.concatenate([y[k - n : k], u[k - n : k].ravel()]) for k in range(n, 300)]
    rows = np.array(rows) / np.array(rows).std(axis=0)
    solution = np.linalg.lstsq(rows, y[n:], rcond=None)[0]
    return float(np.std(y[n:] - rows @ solution) / np.std(y))


@pytest.mark.parametrize(
    ("drift", "output", "state", "input", "dt", "n"),
    [
        (bouc_wen, first, MOVING, [1.0], 1 / 750, 3),
        (bouc_wen, first, REST, [0.0], 1 / 750, 2),
        (tanks, lambda x: x[1:], [5.0, 4.0], [3.0], 4.0, 2),
        (building, first, [20.0, 15.0, 30.0], [5.0, 0.03], 900.0, 3),
    ],
)
def test_a_difference_equation_of_this_order_is_enough_and_a_shorter_one_is_not(drift, output, state, input, dt, n):
    assert unexplained(drift, output, state, input, dt, n) < 1e-7
    assert unexplained(drift, output, state, input, dt, n - 1) > 1e-5


def test_a_mode_that_dies_within_a_sample_needs_no_lag_of_the_output():
    """x' = -20 x + u sampled every second: y[k] = 2e-9 y[k-1] + 0.05 u[k-1]."""
    names = {"state_names": ["x"], "input_names": ["u"]}
    report = lags_from_dynamics(lambda x, u: u - 20 * x, first, [[1.0]], [[1.0]], 1.0, **names, output_name="y")
    assert report.points[0].lags == (0, 1)
    assert report.points[0].reasons == ("1 of 1 modes die out within one sample",)


def test_an_input_that_moves_only_what_is_hidden_has_no_lags():
    """Two modes in mixed coordinates, the output shows one: what is left of the other input is rounding."""
    T = np.array([[0.6, 0.8], [-0.8, 0.6]])
    A, B, C = T @ np.diag([-1.0, -2.0]) @ T.T, T, T[:, 0]
    names = {"state_names": ["a", "b"], "input_names": ["seen", "hidden"]}
    report = lags_from_dynamics(
        lambda x, u: A @ x + B @ u, lambda x: [C @ x], [[1.0, 2.0]], [[1.0, 1.0]], 0.3, **names, output_name="y"
    )
    assert report.points[0].lags == (1, 1, 0)
    assert report.narx() == Narx({"y": 1}, {"seen": 1})


# --- use ------------------------------------------------------------------------------------------


def test_the_report_becomes_a_lag_specification():
    report = read_bouc_wen([MOVING], [[1.0]])
    assert report.narx() == Narx({"y": 3}, {"force": 3})
    assert report.narx(predict=Target.value) == Narx({"y": 3}, {"force": 3}, predict="value")


def test_a_jacobian_is_used_where_it_is_given():
    """A wrong one that hides the hysteresis gives the order of the linear oscillator."""

    def jacobian(x, u):
        return [[0, 1, 0], [-25e3, -5, 0], [0, 0, 0]], [[0], [0.5], [0]]

    assert read_bouc_wen([MOVING], [[1.0]], jacobian=jacobian).n_y == 2
    assert read_bouc_wen([MOVING], [[1.0]], jacobian=lambda x, u: None).n_y == 3


def test_the_tolerance_reaches_the_realisation():
    slow = [1e-5, 1e-4, 0.1]
    assert read_bouc_wen([slow], [[1.0]]).n_y == 3
    assert read_bouc_wen([slow], [[1.0]], tolerance=1e-3).n_y == 2


def test_steps_at_rest_follow_the_magnitudes_of_the_other_points():
    seen = []

    def drift(x, u):
        seen.append((abs(x[0]), abs(u[0])))
        return u - x

    names = {"state_names": ["x"], "input_names": ["u"]}
    lags_from_dynamics(drift, first, [[0.0], [1e-3]], [[0.0], [1e-5]], 1.0, **names, output_name="y")
    at_rest = np.array(seen[: len(seen) // 2]).max(axis=0)
    np.testing.assert_allclose(at_rest, [6e-9, 6e-11], rtol=0.02)


def test_wrong_points_are_named():
    with pytest.raises(ValueError, match="one row per point, got 2 and 1"):
        read_bouc_wen([REST, MOVING], [[0.0]])
    with pytest.raises(ValueError, match=r"states: expected shape \(n, 3\)"):
        read_bouc_wen([[0.0, 1.0]], [[0.0]])
    with pytest.raises(ValueError, match="one row per point, got 0 and 0"):
        read_bouc_wen(np.empty((0, 3)), np.empty((0, 1)))
    with pytest.raises(ValueError, match="output must return one value, got 2; pick one"):
        read_tanks(lambda x: x)
    with pytest.raises(ValueError, match="further inside the range where it is defined"):
        read_tanks(lambda x: x[1:], [[0.0, 4.0]])
