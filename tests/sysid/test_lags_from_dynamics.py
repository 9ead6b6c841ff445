"""Lags that a model of the dynamics needs, for plants whose lags are known."""

import numpy as np
import pytest

from sysid import Narx, Target, lags_from_dynamics


def bouc_wen(x, u):
    """Return the derivatives of position, velocity and restoring force."""
    y, v, z = x
    return [
        v,
        (u[0] - 5e4 * y - 10 * v - z) / 2,
        5e4 * v - 1e3 * (0.8 * abs(v) * z - 1.1 * v * abs(z)),
    ]


def tanks(x, u):
    """Return the derivatives of both levels."""
    return [
        -0.15 * np.sqrt(x[0]) + 0.07 * u[0],
        0.15 * np.sqrt(x[0]) - 0.1 * np.sqrt(x[1]),
    ]


def van_der_pol(x, u):
    """Return the derivatives of position and velocity."""
    return [x[1], 2 * (1 - x[0] ** 2) * x[1] - x[0]]


def building(x, u):
    """Return the derivatives of the temperatures of zone, wall and radiator."""
    zone, wall, radiator = x
    ambient, flow = u
    wall_to_zone = (wall - zone) / 0.002
    radiator_to_zone = (radiator - zone) / 0.002
    ambient_to_wall = (ambient - wall) / 0.005
    water_to_radiator = 4180 * flow * (60 - radiator)
    return [
        (wall_to_zone + radiator_to_zone) / 2e6,
        ((zone - wall) / 0.002 + ambient_to_wall) / 4e7,
        ((zone - radiator) / 0.002 + water_to_radiator) / 2e5,
    ]


def first_state(x):
    """Return the first state as output."""
    return x[:1]


def last_states(x):
    """Return all states but the first as outputs."""
    return x[1:]


SAMPLING_TIMES = {bouc_wen: 1 / 750, tanks: 4.0, van_der_pol: 0.1, building: 900.0}  # s
STATE_NAMES = {
    bouc_wen: ["position", "velocity", "restoring_force"],
    tanks: ["upper", "lower"],
    van_der_pol: ["position", "velocity"],
    building: ["zone", "wall", "radiator"],
}
INPUT_NAMES = {
    bouc_wen: ["force"],
    tanks: ["pump"],
    van_der_pol: [],
    building: ["ambient", "flow"],
}
AT_REST = [0.0, 0.0, 0.0]
MOVING = [1e-3, 0.1, 20.0]
MOVING_SLOWLY = [1e-5, 1e-4, 0.1]
MOVING_BACK = [1e-3, -0.1, 20.0]


def lags_of(system, states, inputs, output=first_state, **options):
    """Return the report about the lags of a system at these points."""
    return lags_from_dynamics(
        system,
        output,
        states,
        inputs,
        SAMPLING_TIMES[system],
        state_names=STATE_NAMES[system],
        input_names=INPUT_NAMES[system],
        output_name="y",
        **options,
    )


@pytest.mark.parametrize(
    ("system", "output", "state", "input", "lags", "reason"),
    [
        pytest.param(bouc_wen, first_state, MOVING, [3.0], (3, 3), None, id="hysteresis"),
        pytest.param(
            bouc_wen,
            first_state,
            MOVING_SLOWLY,
            [3.0],
            (3, 3),
            None,
            id="hysteresis, slow",
        ),
        pytest.param(
            bouc_wen,
            first_state,
            AT_REST,
            [0.0],
            (2, 2),
            "no input moves position - 2e-05 restoring_force",  # z' = 5e4 y'
            id="hysteresis at rest",
        ),
        pytest.param(tanks, last_states, [5.0, 4.0], [3.0], (2, 2), None, id="lower tank"),
        pytest.param(
            tanks,
            first_state,
            [5.0, 4.0],
            [3.0],
            (1, 1),
            "the output never shows a change along lower",
            id="upper tank",
        ),
        pytest.param(van_der_pol, first_state, [-2.0, 0.1], [], (2,), None, id="no input"),
        pytest.param(
            building,
            first_state,
            [20, 15, 30],
            [5, 0.03],
            (3, 3, 3),
            None,
            id="building",
        ),
        pytest.param(
            building,
            first_state,
            [20, 15, 60],  # the water is as warm as the radiator
            [5, 0.03],
            (3, 3, 0),
            "flow does not reach the output",
            id="building with a useless flow",
        ),
    ],
)
def test_benchmark_systems_need_these_lags_and_the_report_says_why(
    system, output, state, input, lags, reason
):
    report = lags_of(system, [state], [input], output)
    (point,) = report.points
    assert point.lags == lags
    assert (report.n_y, *report.n_u.values()) == lags
    assert point.kept > 1e-5
    assert point.dropped < 1e-12
    if reason is None:
        assert point.reasons == ()
    else:
        assert point.reasons == (reason,)
        assert f"because {reason}" in str(report)

    n_y, *n_u = lags
    input_lags = {}
    for name, n in zip(INPUT_NAMES[system], n_u, strict=True):
        if n > 0:
            input_lags[name] = n
    assert report.narx(predict=Target.value) == Narx({"y": n_y}, input_lags, predict="value")


def test_the_largest_numbers_over_the_points_count():
    states = [AT_REST, MOVING, MOVING_BACK]
    report = lags_of(bouc_wen, states, [[0.0], [1.0], [2.0]])
    assert report.n_y == 3
    assert report.n_u == {"force": 3}
    assert [point.lags for point in report.points] == [(2, 2), (3, 3), (3, 3)]
    assert "force 1 and 1 more" in str(report)


def test_a_jacobian_in_closed_form_is_used():
    """A wrong one that hides the hysteresis gives the order of the linear oscillator."""
    A = [[0, 1, 0], [-25e3, -5, 0], [0, 0, 0]]
    B = [[0], [0.5], [0]]
    wrong = lags_of(bouc_wen, [MOVING], [[1.0]], jacobian=lambda x, u: (A, B))
    assert wrong.n_y == 2
    without = lags_of(bouc_wen, [MOVING], [[1.0]], jacobian=lambda x, u: None)
    assert without.n_y == 3


def test_a_larger_tolerance_needs_fewer_lags():
    assert lags_of(bouc_wen, [MOVING_SLOWLY], [[1.0]], tolerance=1e-3).n_y == 2


def lags_of_unnamed(drift, output, states, inputs, dt):
    """Return the report about a system with states a, b and inputs u, v."""
    return lags_from_dynamics(
        drift,
        output,
        states,
        inputs,
        dt,
        state_names="ab"[: len(states[0])],
        input_names="uv"[: len(inputs[0])],
        output_name="y",
    )


def test_a_mode_that_dies_out_within_a_sample_has_no_lags():
    """x' = -20 x + u sampled every second: y[k] = 2e-9 y[k-1] + 0.05 u[k-1]."""
    report = lags_of_unnamed(lambda x, u: u - 20 * x, first_state, [[1.0]], [[1.0]], 1.0)
    (point,) = report.points
    assert point.lags == (0, 1)
    assert point.reasons == ("1 of 1 modes die out within one sample",)


def test_a_mode_that_the_output_does_not_show_has_no_lags():
    """One of two modes, moved by one of two inputs; what is left of it is rounding."""
    T = np.array([[0.6, 0.8], [-0.8, 0.6]])
    A = T @ np.diag([-1.0, -2.0]) @ T.T
    report = lags_of_unnamed(
        lambda x, u: A @ x + T @ u,
        lambda x: [T[:, 0] @ x],
        [[1.0, 2.0]],
        [[1.0, 1.0]],
        0.3,
    )
    (point,) = report.points
    assert point.lags == (1, 1, 0)


def test_steps_at_rest_follow_the_magnitudes_of_the_other_points():
    evaluated = []

    def drift(x, u):
        evaluated.append(np.abs([*x, *u]))
        return u - x

    lags_of_unnamed(drift, first_state, [[0.0], [1e-3]], [[0.0], [1e-5]], 1.0)
    at_rest = evaluated[: len(evaluated) // 2]
    np.testing.assert_allclose(np.max(at_rest, axis=0), [6e-9, 6e-11], rtol=0.02)


@pytest.mark.parametrize(
    ("system", "states", "inputs", "output", "message"),
    [
        pytest.param(
            bouc_wen,
            [AT_REST, MOVING],
            [[0.0]],
            first_state,
            "one row per point, got 2 and 1",
            id="more states than inputs",
        ),
        pytest.param(
            bouc_wen,
            [[0.0, 1.0]],
            [[0.0]],
            first_state,
            r"states: expected shape \(n, 3\)",
            id="short state",
        ),
        pytest.param(
            tanks,
            [[5.0, 4.0]],
            [[3.0]],
            lambda x: x,
            "output must return one value, got 2",
            id="two outputs",
        ),
        pytest.param(
            tanks,
            [[0.0, 4.0]],
            [[3.0]],
            last_states,
            "inside the range where it is defined",
            id="at the border",
        ),
    ],
)
def test_wrong_points_are_named(system, states, inputs, output, message):
    with pytest.raises(ValueError, match=message):
        lags_of(system, states, inputs, output)


def test_a_point_whose_sampled_linear_system_is_not_finite_is_named():
    """The slope of the square root is beyond what the exponential of the matrix can hold."""
    with pytest.raises(ValueError, match=r"at the state \[1e-160, 1\.0\] .*not finite"):
        lags_from_dynamics(
            tanks,
            lambda x: x[1:],
            [[1e-160, 1.0]],
            [[1.0]],
            4.0,
            state_names=["upper", "lower"],
            input_names=["pump"],
            output_name="level",
            jacobian=lambda x, u: ([[-0.075 / np.sqrt(x[0]), 0], [1, -0.05]], [[0.07], [0]]),
        )
