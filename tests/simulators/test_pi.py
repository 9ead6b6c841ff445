"""The PI controller: law, saturation, anti-windup."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.controllers.pi import PI

NOON = 12 * 3600.0  # set-point 21.5 degC


def follow(controller, outputs, anti_windup=True):
    """Inputs of the controller for given outputs at noon; optionally the textbook law that winds up."""
    memory, inputs, integral = controller.initial_state(), [], 0.0
    for y in outputs:
        (u,), memory = controller.control(NOON, [y], memory)
        if not anti_windup:
            v = controller.proportional_gain * (21.5 - y) + integral
            u = min(max(v, controller.minimum), controller.maximum)
            integral += controller.integral_gain * controller.dt * (21.5 - y)
        inputs.append(u)
    return np.array(inputs)


def test_law_without_saturation():
    (u,), (integral,) = PI().control(NOON, [16.5], (0.003,))
    assert u == pytest.approx(0.002 * 5 + 0.003)
    assert integral == pytest.approx(0.003 + 2e-7 * 900 * 5)


@given(y=st.floats(-50, 100), integral=st.floats(-1, 1))
def test_input_is_within_its_limits(y, integral):
    (u,), _ = PI().control(NOON, [y], (integral,))
    assert 0.0 <= u <= 0.1


@pytest.mark.parametrize(("y", "integral"), [(-40.0, 0.09), (30.0, 0.001)])
def test_integral_rests_while_saturated_in_the_direction_of_the_error(y, integral):
    _, (after,) = PI().control(NOON, [y], (integral,))
    assert after == integral


@pytest.mark.parametrize(("y", "integral", "sign"), [(22.0, 0.2, -1), (21.0, -0.1, 1)])
def test_integral_leaves_saturation_when_the_error_turns(y, integral, sign):
    _, (after,) = PI().control(NOON, [y], (integral,))
    assert sign * (after - integral) > 0


def test_recovery_is_faster_than_with_windup():
    outputs = [*([28.0] * 96), *([19.5] * 60)]
    with_anti, without = follow(PI(), outputs), follow(PI(), outputs, anti_windup=False)
    assert np.argmax(with_anti > 0) == 96
    assert np.argmax(without > 0) == 0  # never within the ten hours after


@pytest.mark.parametrize(
    "wrong", [{"proportional_gain": -1.0}, {"minimum": 0.2}, {"dt": 0.0}, {"integral_gain": float("inf")}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=r"PI\(.*expected"):
        PI(**wrong)
