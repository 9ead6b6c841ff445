"""The role of a system: its defaults, and the mistakes that are refused with its name."""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pytest

from plants import Lag, ways_to_simulate
from simulators import (
    Building,
    DivergenceError,
    OpenLoop,
    Signal,
    System,
    closed_loop,
    parameter,
    simulate,
    simulate_many,
)
from simulators.runge_kutta import WITHOUT_COMPILER
from simulators.system import describe_fields


@dataclass(frozen=True)
class Minimal(System):
    """x1' = u, x2' = x1: nothing but what a system must state."""

    states: ClassVar = (Signal("one", "m", "first"), Signal("two", "m", "second"))
    inputs: ClassVar = (Signal("push", "m/s", "input"),)
    outputs: ClassVar = (Signal("seen", "m", "output"),)
    dt: float = 1.0
    substeps: int = 1

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = input[0]
        derivative[1] = state[0]

    def parameters(self):
        return np.empty(0)

    def output(self, state):
        return state[..., :1]


def test_system_without_noise_limits_and_jacobian_is_simulated():
    trajectory = simulate(Minimal(), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(trajectory.state, [[0, 0], [2, 1], [4, 4]])
    np.testing.assert_array_equal(trajectory.output[:, 0], trajectory.state[:, 0])
    assert trajectory.noise.shape == (3, 0)
    assert np.isinf(Minimal().state_limits()).all()
    assert Minimal().jacobian(np.zeros(2), np.zeros(1)) is None


# --- descriptions of fields -----------------------------------------------------------------------


@dataclass(frozen=True)
class Wall(Minimal):
    """System with described fields, and one that is not."""

    dt: float = 2.0
    resistance: float = parameter(0.5, "K/W", symbol="R", meaning="zone to wall")
    capacity: float = parameter(3.0, "J/K")
    undescribed: float = 1.0


@dataclass(frozen=True)
class Corner(Wall):
    """System that changes a default and a unit of another one."""

    resistance: float = 0.25
    capacity: float = parameter(4.0, "kJ/K")


DESCRIBED_BY_THE_ROLE = {"dt": "s", "substeps": "Runge-Kutta steps per sample"}


def test_described_field_has_its_default():
    assert Wall().resistance == 0.5
    changed = Wall(resistance=0.7)
    assert changed.resistance == 0.7
    assert changed.capacity == 3.0


def test_description_of_a_field_is_its_symbol_meaning_and_unit():
    expected = {"resistance": "R, zone to wall, K/W", "capacity": "J/K"}
    assert describe_fields(Wall) == DESCRIBED_BY_THE_ROLE | expected


def test_descriptions_are_inherited():
    expected = {"resistance": "R, zone to wall, K/W", "capacity": "kJ/K"}
    assert describe_fields(Corner) == DESCRIBED_BY_THE_ROLE | expected


def test_every_parameter_of_a_building_has_its_unit():
    descriptions = describe_fields(Building)
    names = {field.name for field in fields(Building)}
    assert set(descriptions) == names - {"changes"}
    assert descriptions["zone_resistance"] == "Rz, zone to wall, K/W"


# --- wrong classes --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["one", "time", "not a name"])
def test_names_that_would_collide_in_a_dataset_are_refused(name):
    with pytest.raises(ValueError, match=rf"Clash: signal name '{name}'"):
        type("Clash", (Minimal,), {"outputs": (Signal(name, "1", ""),)})


def test_outputs_need_their_equation():
    """Outputs have other names than the states; which states they are is never taken for granted.

    The system must define it.
    """
    members = {"states": Minimal.states, "outputs": Minimal.outputs}
    message = r"Unsaid: .* outputs \['seen'\].*define output\(self, state\)"
    with pytest.raises(ValueError, match=message):
        type("Unsaid", (System,), members)


def drift_of_any_arguments(*arguments):
    """Do nothing."""


@pytest.mark.parametrize(
    "drift",
    [drift_of_any_arguments, classmethod(drift_of_any_arguments)],
    ids=["method", "class method"],
)
def test_drift_that_is_no_static_method_is_refused(drift):
    with pytest.raises(TypeError, match=r"Bound\.drift: expected a static method"):
        type("Bound", (Minimal,), {"drift": drift})


class Undecorated(Minimal):
    """Class with a field, but without the decorator of a dataclass."""

    damping: float = 0.5


@dataclass(frozen=True)
class AboveUndecorated(Undecorated):
    """Dataclass on top of a class without the decorator."""


@dataclass(frozen=True)
class Untyped(Minimal):
    """Dataclass with a default that has no type."""

    substeps = 3


@pytest.mark.parametrize("settings", [{}, {"damping": 0.3}], ids=["defaults", "given"])
@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Undecorated, "'damping'"),
        (AboveUndecorated, "Undecorated declares"),
        (Untyped, "'substeps'"),
    ],
)
def test_fields_that_dataclass_does_not_see_are_refused(cls, message, settings):
    with pytest.raises(TypeError, match=message):
        cls(**settings)


# --- wrong vectors --------------------------------------------------------------------------------

WRONG_VECTORS = [np.array([np.nan]), [1j], "ab", [[1.0]], 1.0, None, [[1.0], [1.0, 2.0]]]
WRONG_LIMITS = [
    ([0.0, 0.0], [1.0, 1.0]),
    ([1.0], [-1.0]),
    ([0.0], [np.nan]),
    ([0.0], [1.0, 1.0]),
    None,
    ("a", "b"),
]


@pytest.mark.parametrize("way", [0, 1], ids=["alone", "in a set"])
@pytest.mark.parametrize(
    ("method", "value"),
    [
        *(("parameters", value) for value in WRONG_VECTORS),
        *(("initial_state", value) for value in [*WRONG_VECTORS, np.zeros(2)]),
        *(("noise_std", value) for value in [*WRONG_VECTORS, np.zeros(2)]),
        *(("state_limits", value) for value in WRONG_LIMITS),
    ],
)
def test_method_that_returns_no_vector_is_named(method, value, way):
    odd_class = type("Odd", (Lag,), {method: lambda self: value})
    run = ways_to_simulate(odd_class(), np.zeros(3))[way]
    with pytest.raises(ValueError, match=rf"Odd\.{method}\(\) returned .*: expected"):
        run()


def test_noises_without_deviations_are_refused():
    noisy_class = type("Noisy", (Minimal,), {"noises": (Signal("gust", "m/s", "noise"),)})
    with pytest.raises(NotImplementedError, match=r"Noisy .*'gust'"):
        simulate(noisy_class(), [0.0, 0.0])


# --- whole numbers --------------------------------------------------------------------------------

WHOLE_NUMBERS = Lag(dt=1, time_constant=2, rate_noise_std=3, initial_level=1)


@pytest.fixture(scope="module")
def states_of_floats():
    """Return the states of the system whose fields are floats."""
    system = Lag(dt=1.0, time_constant=2.0, rate_noise_std=3.0, initial_level=1.0)
    return simulate(system, np.arange(5.0)).state


def test_system_of_whole_numbers_is_simulated_as_that_of_floats(states_of_floats):
    states = simulate(WHOLE_NUMBERS, np.arange(5)).state
    np.testing.assert_array_equal(states, states_of_floats)


def test_system_of_whole_numbers_in_a_loop(states_of_floats):
    loop = closed_loop(WHOLE_NUMBERS, OpenLoop(dt=1), {"drive": np.arange(5)})
    np.testing.assert_array_equal([sample.state for sample in loop], states_of_floats)


def test_many_systems_of_whole_numbers(states_of_floats):
    many = simulate_many(
        WHOLE_NUMBERS, np.arange(5), seeds=[0, 0], parameters={"time_constant": [2, 3]}
    )
    np.testing.assert_array_equal(many[0].state, states_of_floats)


# --- wrong drifts ---------------------------------------------------------------------------------


def reads_out_of_range(time, state, input, noise, parameters, derivative):
    derivative[0] = state[2]


def writes_one_rate_only(time, state, input, noise, parameters, derivative):
    derivative[0] = 1.0


def cannot_be_compiled(time, state, input, noise, parameters, derivative):
    rate = float(str(state[0]))
    derivative[0] = rate
    derivative[1] = rate


def writes_one_rate_only_from_1_s(time, state, input, noise, parameters, derivative):
    derivative[0] = 0.0
    if time < 1.0:
        derivative[1] = 0.0


def system_with_drift(drift):
    """Return a system of two states with this drift."""
    return type("Broken", (Minimal,), {"drift": staticmethod(drift)})()


@pytest.mark.parametrize("way", range(3), ids=["alone", "in a set", "in a loop"])
@pytest.mark.parametrize(
    ("drift", "error", "message"),
    [
        pytest.param(
            reads_out_of_range,
            ValueError,
            r"^Broken\.drift raised IndexError: .*line \d+ of .*test_system\.py: .*state\[2\]",
            id="index",
        ),
        pytest.param(
            writes_one_rate_only,
            ValueError,
            r"^Broken\.drift gave nan for the rate of 'two'",
            id="missing rate",
        ),
        pytest.param(
            cannot_be_compiled,
            TypeError,
            "^cannot_be_compiled, the drift of a system: ",
            marks=pytest.mark.skipif(WITHOUT_COMPILER, reason="compiled"),
            id="compilation",
        ),
    ],
)
def test_mistakes_in_a_drift_are_reported_at_the_call(drift, error, message, way):
    run = ways_to_simulate(system_with_drift(drift), np.zeros(3))[way]
    with pytest.raises(error, match=message):
        run()


def test_rate_that_is_not_written_later_is_not_the_old_one():
    system = system_with_drift(writes_one_rate_only_from_1_s)
    with pytest.raises(DivergenceError, match="state 'two' became nan"):
        simulate(system, np.zeros(5))
