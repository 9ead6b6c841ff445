"""The role of a system: what it need not state, and what it is refused for, with the name of its
class.
"""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pytest

from plants import Lag, every_run
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
class Plain(System):
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


def test_what_a_system_need_not_state():
    trajectory = simulate(Plain(), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(trajectory.state, [[0, 0], [2, 1], [4, 4]])
    np.testing.assert_array_equal(trajectory.output[:, 0], trajectory.state[:, 0])
    assert trajectory.noise.shape == (3, 0)
    assert np.isinf(Plain().state_limits()).all()
    assert Plain().jacobian(np.zeros(2), np.zeros(1)) is None


def test_a_field_says_its_symbol_meaning_and_unit():
    @dataclass(frozen=True)
    class Wall(Plain):
        dt: float = 2.0
        resistance: float = parameter(0.5, "K/W", symbol="R", meaning="zone to wall")
        capacity: float = parameter(3.0, "J/K")
        silent: float = 1.0

    @dataclass(frozen=True)
    class Corner(Wall):
        resistance: float = 0.25
        capacity: float = parameter(4.0, "kJ/K")

    assert (
        Wall().resistance,
        Wall(resistance=0.7).resistance,
        Wall(resistance=0.7).capacity,
    ) == (0.5, 0.7, 3.0)
    inherited = {"dt": "s", "substeps": "Runge-Kutta steps per sample"}
    assert describe_fields(Wall) == {
        **inherited,
        "resistance": "R, zone to wall, K/W",
        "capacity": "J/K",
    }
    assert describe_fields(Corner) == {
        **inherited,
        "resistance": "R, zone to wall, K/W",
        "capacity": "kJ/K",
    }


def test_every_parameter_of_a_building_has_its_unit():
    texts = describe_fields(Building)
    assert {*texts} == {one.name for one in fields(Building)} - {"changes"}
    assert texts["zone_resistance"] == "Rz, zone to wall, K/W"


@pytest.mark.parametrize("name", ["one", "time", "not a name"])
def test_names_that_would_collide_in_a_dataset_are_refused(name):
    with pytest.raises(ValueError, match=rf"Clash: signal name '{name}'"):
        type("Clash", (Plain,), {"outputs": (Signal(name, "1", ""),)})


def test_outputs_need_their_equation():
    """They have other names than the states; which of these they are is said, never taken for
    granted.
    """
    with pytest.raises(
        ValueError, match=r"Unsaid: .* outputs \['seen'\].*define output\(self, state\)"
    ):
        type("Unsaid", (System,), {"states": Plain.states, "outputs": Plain.outputs})


@pytest.mark.parametrize("wrap", [lambda drift: drift, classmethod])
def test_a_drift_that_is_no_static_method_is_refused(wrap):
    with pytest.raises(TypeError, match=r"Bound\.drift: expected a static method"):
        type("Bound", (Plain,), {"drift": wrap(lambda *arguments: None)})


def test_fields_that_are_none_are_refused():
    """A field without the decorator, a class on top of that, and a default without a type."""
    undecorated = type(
        "Undecorated", (Plain,), {"__annotations__": {"damping": float}, "damping": 0.5}
    )
    above = dataclass(frozen=True)(type("Above", (undecorated,), {}))
    untyped = dataclass(frozen=True)(type("Untyped", (Plain,), {"substeps": 3}))
    for cls, message in (
        (undecorated, "'damping'"),
        (above, "Undecorated declares"),
        (untyped, "'substeps'"),
    ):
        for settings in ({}, {"damping": 0.3}):
            with pytest.raises(TypeError, match=message):
                cls(**settings)


VECTORS = [np.array([np.nan]), [1j], "ab", [[1.0]], 1.0, None, [[1.0], [1.0, 2.0]]]
LIMITS = [
    ([0.0, 0.0], [1.0, 1.0]),
    ([1.0], [-1.0]),
    ([0.0], [np.nan]),
    ([0.0], [1.0, 1.0]),
    None,
    ("a", "b"),
]


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("parameters", VECTORS),
        ("initial_state", [*VECTORS, np.zeros(2)]),
        ("noise_std", [*VECTORS, np.zeros(2)]),
        ("state_limits", LIMITS),
    ],
)
def test_vectors_that_are_none_are_named(method, values):
    for value in values:
        system = type("Odd", (Lag,), {method: lambda self, value=value: value})()
        for run in every_run(system, np.zeros(3))[:2]:
            with pytest.raises(ValueError, match=rf"Odd\.{method}\(\) returned .*: expected"):
                run()


def test_noises_without_deviations_are_refused():
    noisy = type("Noisy", (Plain,), {"noises": (Signal("gust", "m/s", "noise"),)})
    with pytest.raises(NotImplementedError, match=r"Noisy .*'gust'"):
        simulate(noisy(), [0.0, 0.0])


def test_systems_of_whole_numbers_are_simulated_as_those_of_floats():
    whole = Lag(dt=1, time_constant=2, rate_noise_std=3, initial_level=1)
    u = np.arange(5)
    floats = Lag(dt=1.0, time_constant=2.0, rate_noise_std=3.0, initial_level=1.0)
    expected = simulate(floats, u.astype(float)).state
    loop = closed_loop(whole, OpenLoop(dt=1), {"drive": u})
    many = simulate_many(whole, u, seeds=[0, 0], parameters={"time_constant": [2, 3]})
    for states in (
        simulate(whole, u).state,
        many[0].state,
        [sample.state for sample in loop],
    ):
        np.testing.assert_array_equal(states, expected)


# --- drifts that are wrong --------------------------------------------------------------------------


def out_of_range(time, state, input, noise, parameters, derivative):
    derivative[0] = state[2]


def forgets(time, state, input, noise, parameters, derivative):
    derivative[0] = 1.0


def prints(time, state, input, noise, parameters, derivative):
    derivative[0] = derivative[1] = float(str(state[0]))


def broken(drift):
    """A system of two states with this drift."""
    return type("Broken", (Plain,), {"drift": staticmethod(drift)})()


@pytest.mark.parametrize(
    ("drift", "kind", "message"),
    [
        (
            out_of_range,
            ValueError,
            r"^Broken\.drift raised IndexError: .*line \d+ of .*test_system\.py: .*state\[2\]",
        ),
        (forgets, ValueError, r"^Broken\.drift gave nan for the rate of 'two'"),
        pytest.param(
            prints,
            TypeError,
            "^prints, the drift of a system: ",
            marks=pytest.mark.skipif(WITHOUT_COMPILER, reason="compiled"),
        ),
    ],
)
def test_what_is_wrong_with_a_drift_is_told_at_the_call(drift, kind, message):
    for run in every_run(broken(drift), np.zeros(3)):
        with pytest.raises(kind, match=message):
            run()


def test_a_derivative_that_is_not_written_later_is_not_the_old_one():
    def lapses(time, state, input, noise, parameters, derivative):
        derivative[0] = 0.0
        if time < 1.0:
            derivative[1] = 0.0

    with pytest.raises(DivergenceError, match="state 'two' became nan"):
        simulate(broken(lapses), np.zeros(5))
