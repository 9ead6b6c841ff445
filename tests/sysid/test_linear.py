"""Linearisation and sampling of linear systems: against closed forms, scipy, and every error."""

import numpy as np
import pytest
from scipy.signal import cont2discrete

from sysid.narx.from_dynamics import StateSpace, discretise, linearise


def pendulum(x, u):
    """Damped pendulum with a torque that acts through its cosine; second input a bias."""
    return np.array(
        [x[1], -3.0 * np.sin(x[0]) - 0.2 * x[1] ** 2 + np.cos(x[0]) * u[0] + 2.0 * u[1]]
    )


def pendulum_jacobian(x, u):
    A = [[0, 1], [-3 * np.cos(x[0]) - np.sin(x[0]) * u[0], -0.4 * x[1]]]
    return np.array(A), np.array([[0, 0], [np.cos(x[0]), 2.0]])


def angle(x):
    return np.array([np.sin(x[0])])


@pytest.mark.parametrize("state", [[0.0, 0.0], [0.7, -1.3], [-2.0, 40.0]])
def test_differences_agree_with_the_closed_form(state):
    model = linearise(pendulum, angle, state, [0.5, -0.1])
    A, B = pendulum_jacobian(np.array(state), [0.5, -0.1])
    rounding = 1e-10 * (1 + np.abs(pendulum(state, [0.5, -0.1])).max())
    np.testing.assert_allclose(model.A, A, atol=rounding, rtol=1e-9)
    np.testing.assert_allclose(model.B, B, atol=rounding, rtol=1e-9)
    np.testing.assert_allclose(model.C, [[np.cos(state[0]), 0]], atol=1e-10, rtol=1e-9)


def test_steps_follow_the_given_magnitudes():
    """f = sin(1e6 x) at 0: a step made for magnitude one sees many periods, one for 1e-6 sees the
    slope.
    """
    arguments = (
        lambda x, u: np.sin(1e6 * x) + np.sin(1e6 * u),
        lambda x: x,
        [0.0],
        [0.0],
    )
    for option, matrix in (("state_scale", "A"), ("input_scale", "B")):
        assert abs(getattr(linearise(*arguments), matrix)[0, 0] / 1e6 - 1) > 0.5
        np.testing.assert_allclose(
            getattr(linearise(*arguments, **{option: [1e-6]}), matrix),
            [[1e6]],
            rtol=1e-9,
        )


def test_a_jacobian_in_closed_form_is_used_as_it_is_and_differences_where_it_gives_none():
    at = (pendulum, angle, [0.7, 0.1], [0.5, 0.0])
    np.testing.assert_array_equal(linearise(*at, jacobian=lambda x, u: None).A, linearise(*at).A)
    model = linearise(*at, jacobian=pendulum_jacobian)
    A, B = pendulum_jacobian([0.7, 0.1], [0.5, 0.0])
    np.testing.assert_array_equal(model.A, A)
    np.testing.assert_array_equal(model.B, B)
    assert linearise(lambda x, u: -x, angle, [1.0, 2.0], []).B.shape == (2, 0)


def test_a_drift_may_reuse_its_buffer():
    buffer = np.empty(2)

    def drift(x, u):
        buffer[:] = pendulum(x, u)
        return buffer

    reused = linearise(drift, angle, [0.7, 0.1], [0.5, 0.0])
    np.testing.assert_array_equal(reused.A, linearise(pendulum, angle, [0.7, 0.1], [0.5, 0.0]).A)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"drift": lambda x, u: np.sqrt(x - 1.0)},
            r"drift is \[nan.*choose an operating point further inside",
        ),
        ({"drift": lambda x, u: x[:1]}, r"drift must return shape \(2,\), got \(1,\)"),
        ({"output": lambda x: x[0]}, r"output must return shape \(n,\), got \(\)"),
        ({"output": lambda x: x / 0.0}, "output is"),
        ({"state_scale": [1.0, 0.0]}, "state_scale must be above zero"),
        ({"input_scale": [1.0]}, r"input_scale: expected shape \(2,\)"),
        ({"state": [np.nan, 1.0]}, "state: 1 of 2 values are not finite"),
        (
            {"jacobian": lambda x, u: (np.eye(2), np.eye(3))},
            r"jacobian must return shape \(2, 2\), got \(3, 3\)",
        ),
        (
            {"jacobian": lambda x, u: (np.full((2, 2), np.inf), np.eye(2))},
            r"jacobian is \[\[inf.*further inside",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    arguments = {
        "drift": pendulum,
        "output": angle,
        "state": [1.0, 1.0],
        "input": [0.0, 0.0],
    } | change
    with pytest.raises(ValueError, match=message):
        linearise(**arguments)


def test_sampling_agrees_with_scipy():
    rng = np.random.default_rng(0)
    for n, m in [(1, 1), (3, 2), (5, 1), (2, 0)]:
        model = StateSpace(
            rng.normal(size=(n, n)), rng.normal(size=(n, m)), rng.normal(size=(1, n))
        )
        expected = cont2discrete((*model, np.zeros((1, m))), 0.3, method="zoh")
        sampled = discretise(model, 0.3)
        np.testing.assert_allclose(sampled.A, expected[0], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(sampled.B, expected[1], rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(sampled.C, model.C)
        for dt in (0, -1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match="give the sampling interval"):
                discretise(model, dt)
