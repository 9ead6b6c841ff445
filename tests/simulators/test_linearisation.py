"""The linearisation of a system, compared with small steps of its simulation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from plants import Lag
from simulators import (
    BoucWen,
    Building,
    CascadedTanks,
    Heater,
    Interpolation,
    Servo,
    Signal,
    Silverbox,
    UserError,
    WienerHammerstein,
    linearise,
    simulate,
    steady_state,
)

POINTS = {
    "heater": (Heater(), [50.0, 4.0]),
    "building": (Building(), [5.0, 0.05]),
    "tanks": (CascadedTanks(), [3.0]),
    "silverbox": (Silverbox(), [0.02]),
    "wiener-hammerstein": (WienerHammerstein(), [0.5]),
    "servo": (Servo(), [0.0]),
    "bouc-wen": (BoucWen(), [0.0]),
}
N_SAMPLES = 120
STEP_SAMPLE = 5


@pytest.mark.parametrize("interpolation", ["held", "linear"])
@pytest.mark.parametrize(("system", "input"), POINTS.values(), ids=POINTS)
def test_a_small_step_of_the_simulation_is_that_of_the_linear_system(system, input, interpolation):
    state = steady_state(system, input)
    linear = linearise(system, input, interpolation=interpolation)
    for j, value in enumerate(input):
        size = 1e-4 * max(abs(value), 1.0)
        still = np.tile(np.array(input), (N_SAMPLES, 1))
        moved = still.copy()
        moved[STEP_SAMPLE:, j] += size
        outputs = [
            simulate(system, u, initial_state=state, noise=False, interpolation=interpolation)
            for u in (still, moved)
        ]
        difference = outputs[1].noise_free_output - outputs[0].noise_free_output
        u = np.zeros((N_SAMPLES, len(input)))
        u[STEP_SAMPLE + linear.delays[j] :, j] = size
        expected = respond(linear, u, is_held=interpolation == "held")
        scale = np.abs(expected).max()
        np.testing.assert_allclose(difference, expected, atol=5e-3 * scale)


def respond(linear, u, *, is_held):
    """Return the outputs of a linear system; with lines between samples x is shifted by u."""
    x = np.zeros(len(linear.A))
    outputs = []
    for row in u:
        outputs.append(linear.C @ x + linear.D @ row)
        x = linear.A @ x + linear.B @ row
    return np.array(outputs)


@dataclass(frozen=True)
class Unknown(Heater):
    """The heater, whose derivatives nobody has written down."""

    def jacobian(self, state, input):
        return None


def test_differences_of_the_drift_take_the_place_of_an_unknown_jacobian():
    known = linearise(Heater(), [50.0, 4.0])
    found = linearise(Unknown(), [50.0, 4.0])
    np.testing.assert_allclose(found.A, known.A, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.B, known.B, rtol=1e-6, atol=1e-9)


def test_frequency_response_of_a_delay_and_static_gain():
    system = Heater()
    linear = linearise(system, [50.0, 4.0])
    f = np.array([1e-6, 0.1])
    response = linear.frequency_response(f)
    np.testing.assert_allclose(response[0].real, linear.static_gain(), rtol=1e-3)
    without = linearise(Heater(heat_delay=0), [50.0, 4.0]).frequency_response(f)
    late = np.exp(-2j * np.pi * f * system.dt * system.heat_delay)
    np.testing.assert_allclose(response[:, 0, 0], without[:, 0, 0] * late)
    np.testing.assert_allclose(response[:, 0, 1], without[:, 0, 1])


def test_a_system_that_integrates_has_no_static_gain():
    assert np.isnan(linearise(Servo(), [0.0]).static_gain()).all()


@dataclass(frozen=True)
class Ramp(Lag):
    """x' = 1 + u^2: it never rests."""

    states: ClassVar = (Signal("level", "V", "state of the ramp"),)

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = 1.0 + input[0] * input[0] + noise[0]


def test_a_system_without_steady_state_is_refused_with_its_inputs():
    with pytest.raises(UserError, match=r"Ramp has no steady state for drive=0\.5"):
        linearise(Ramp(), [0.5])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([50.0],), {}, r"inputs \['heat', 'flow'\], got \[50.0\]"),
        (([50.0, np.nan],), {}, "expected a finite value for each of the inputs"),
        (([50.0, 4.0], [1.0]), {}, r"expected the states \['wall', 'oil'\]"),
        (([50.0, 4.0],), {"interpolation": Interpolation.band_limited}, "has no discrete system"),
    ],
    ids=["too few", "nan", "state", "band-limited"],
)
def test_wrong_points_are_refused(arguments, options, message):
    with pytest.raises(UserError, match=message):
        linearise(Heater(), *arguments, **options)
