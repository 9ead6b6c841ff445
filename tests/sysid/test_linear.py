"""Linearisation and sampling of systems, against closed forms and scipy."""

import numpy as np
import pytest
from scipy.signal import cont2discrete

from sysid.narx.from_dynamics import StateSpace, discretise, linearise


def pendulum(x, u):
    """Return the derivatives of a damped pendulum.

    The first input is a torque that acts through its cosine, the second a bias.
    """
    angle, speed = x
    torque, bias = u
    acceleration = -3.0 * np.sin(angle) - 0.2 * speed**2 + np.cos(angle) * torque + 2.0 * bias
    return np.array([speed, acceleration])


def pendulum_jacobian(x, u):
    """Return the derivatives of the pendulum with respect to its state and its inputs."""
    angle, speed = x
    torque, _ = u
    of_angle = -3 * np.cos(angle) - np.sin(angle) * torque
    A = np.array([[0, 1], [of_angle, -0.4 * speed]])
    B = np.array([[0, 0], [np.cos(angle), 2.0]])
    return A, B


def sine_of_angle(x):
    """Return the output of the pendulum."""
    return np.array([np.sin(x[0])])


@pytest.mark.parametrize("state", [[0.0, 0.0], [0.7, -1.3], [-2.0, 40.0]])
def test_differences_agree_with_the_closed_form(state):
    input = [0.5, -0.1]
    model = linearise(pendulum, sine_of_angle, state, input)
    A, B = pendulum_jacobian(np.array(state), input)
    rounding = 1e-10 * (1 + np.abs(pendulum(state, input)).max())
    np.testing.assert_allclose(model.A, A, atol=rounding, rtol=1e-9)
    np.testing.assert_allclose(model.B, B, atol=rounding, rtol=1e-9)
    np.testing.assert_allclose(model.C, [[np.cos(state[0]), 0]], atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize(("option", "matrix"), [("state_scale", "A"), ("input_scale", "B")])
def test_steps_follow_the_given_magnitudes(option, matrix):
    """f = sin(1e6 x) at 0: a step for the magnitude 1 covers many periods, one for 1e-6 follows the
    slope.
    """

    def linearise_at_zero(**options):
        return linearise(
            lambda x, u: np.sin(1e6 * x) + np.sin(1e6 * u),
            lambda x: x,
            [0.0],
            [0.0],
            **options,
        )

    slope = getattr(linearise_at_zero(), matrix)[0, 0]
    assert abs(slope / 1e6 - 1) > 0.5
    scaled = linearise_at_zero(**{option: [1e-6]})
    np.testing.assert_allclose(getattr(scaled, matrix), [[1e6]], rtol=1e-9)


OPERATING_POINT = ([0.7, 0.1], [0.5, 0.0])


def test_a_jacobian_in_closed_form_is_used_as_it_is():
    model = linearise(pendulum, sine_of_angle, *OPERATING_POINT, jacobian=pendulum_jacobian)
    A, B = pendulum_jacobian(*OPERATING_POINT)
    np.testing.assert_array_equal(model.A, A)
    np.testing.assert_array_equal(model.B, B)


def test_differences_are_used_where_a_jacobian_gives_nothing():
    by_differences = linearise(pendulum, sine_of_angle, *OPERATING_POINT)
    model = linearise(pendulum, sine_of_angle, *OPERATING_POINT, jacobian=lambda x, u: None)
    np.testing.assert_array_equal(model.A, by_differences.A)


def test_a_system_may_have_no_inputs():
    model = linearise(lambda x, u: -x, sine_of_angle, [1.0, 2.0], [])
    assert model.B.shape == (2, 0)


def test_a_drift_may_reuse_its_buffer():
    buffer = np.empty(2)

    def drift(x, u):
        buffer[:] = pendulum(x, u)
        return buffer

    model = linearise(drift, sine_of_angle, *OPERATING_POINT)
    expected = linearise(pendulum, sine_of_angle, *OPERATING_POINT)
    np.testing.assert_array_equal(model.A, expected.A)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"drift": lambda x, u: np.sqrt(x - 1.0)},
            r"drift is \[nan.*choose an operating point further inside",
            id="drift at its border",
        ),
        pytest.param(
            {"drift": lambda x, u: x[:1]},
            r"drift must return shape \(2,\), got \(1,\)",
            id="short drift",
        ),
        pytest.param(
            {"output": lambda x: x[0]},
            r"output must return shape \(n,\), got \(\)",
            id="output is a number",
        ),
        pytest.param({"output": lambda x: x / 0.0}, "output is", id="infinite output"),
        pytest.param(
            {"state_scale": [1.0, 0.0]}, "state_scale must be above zero", id="state scale 0"
        ),
        pytest.param(
            {"input_scale": [1.0]},
            r"input_scale: expected shape \(2,\)",
            id="short input scale",
        ),
        pytest.param(
            {"state": [np.nan, 1.0]}, "state: 1 of 2 values are not finite", id="state is nan"
        ),
        pytest.param(
            {"jacobian": lambda x, u: (np.eye(2), np.eye(3))},
            r"jacobian must return shape \(2, 2\), got \(3, 3\)",
            id="shape of the Jacobian",
        ),
        pytest.param(
            {"jacobian": lambda x, u: (np.full((2, 2), np.inf), np.eye(2))},
            r"jacobian is \[\[inf.*further inside",
            id="infinite Jacobian",
        ),
    ],
)
def test_unusable_arguments_are_named(change, message):
    arguments = {
        "drift": pendulum,
        "output": sine_of_angle,
        "state": [1.0, 1.0],
        "input": [0.0, 0.0],
    }
    with pytest.raises(ValueError, match=message):
        linearise(**(arguments | change))


def random_state_space(n_states, n_inputs):
    """Return a random linear system with one output."""
    rng = np.random.default_rng(n_states)
    return StateSpace(
        rng.normal(size=(n_states, n_states)),
        rng.normal(size=(n_states, n_inputs)),
        rng.normal(size=(1, n_states)),
    )


@pytest.mark.parametrize(("n_states", "n_inputs"), [(1, 1), (3, 2), (5, 1), (2, 0)])
def test_sampling_agrees_with_scipy(n_states, n_inputs):
    model = random_state_space(n_states, n_inputs)
    D = np.zeros((1, n_inputs))
    A, B, *_ = cont2discrete((*model, D), 0.3, method="zoh")
    sampled = discretise(model, 0.3)
    np.testing.assert_allclose(sampled.A, A, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(sampled.B, B, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(sampled.C, model.C)


@pytest.mark.parametrize("sampling_time", [0, -1.0, np.nan, np.inf])
def test_sampling_needs_a_positive_interval(sampling_time):
    with pytest.raises(ValueError, match="give the sampling interval"):
        discretise(random_state_space(1, 1), sampling_time)
