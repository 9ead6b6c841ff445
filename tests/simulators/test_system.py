"""The role of a system: names of signals, and what a system need not state."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from simulators import Signal, System, simulate


@pytest.mark.parametrize(
    ("states", "outputs"),
    [
        ((Signal("a", "1", ""),), (Signal("a", "1", ""),)),
        ((Signal("time", "1", ""),), ()),
        ((Signal("not a name", "1", ""),), ()),
    ],
)
def test_names_that_would_collide_in_a_dataset_are_refused(states, outputs):
    attributes = {"states": states, "inputs": (), "outputs": outputs, "noises": ()}
    with pytest.raises(ValueError, match=r"Clash: signal name .* rename the signal"):
        type("Clash", (System,), attributes)


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


def test_what_a_system_need_not_state():
    trajectory = simulate(Plain(), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(trajectory.state, [[0, 0], [2, 1], [4, 4]])
    np.testing.assert_array_equal(trajectory.output[:, 0], trajectory.state[:, 0])
    assert trajectory.noise.shape == (3, 0)
    assert np.isinf(Plain().state_limits()).all()
    assert Plain().jacobian(np.zeros(2), np.zeros(1)) is None


def test_noises_without_deviations_are_refused():
    @dataclass(frozen=True)
    class Noisy(Plain):
        noises: ClassVar = (Signal("gust", "m/s", "noise"),)

    with pytest.raises(NotImplementedError, match=r"Noisy has the noises \['gust'\]: define noise_std"):
        simulate(Noisy(), [0.0, 0.0])


@pytest.mark.parametrize("wrap", [lambda drift: drift, classmethod])
def test_a_drift_that_is_no_static_method_is_refused(wrap):
    def drift(self, time, state, input, noise, parameters, derivative):
        derivative[0] = 0.0

    with pytest.raises(TypeError, match=r"Bound\.drift: expected a static method.*write @staticmethod above it"):
        type("Bound", (Plain,), {"drift": wrap(drift)})


class Undecorated(Plain):
    """Fields without the decorator."""

    damping: float = 0.5
    label: ClassVar[str] = "none"


@dataclass(frozen=True)
class Above(Undecorated):
    """Decorated, on top of a class that is not."""


class Faster(Plain):
    """A default of an inherited field, without a type."""

    dt = 0.5


@dataclass(frozen=True)
class Untyped(Plain):
    """The same with the decorator, which ignores it too."""

    substeps = 3


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (
            Undecorated,
            r"Undecorated declares \['damping'\], which are no fields: write @dataclass\(frozen=True\) above",
        ),
        (Above, r"Undecorated declares \['damping'\]"),
        (Faster, r"Faster declares \['dt'\].* every field with its type, say dt: float"),
        (Untyped, r"Untyped declares \['substeps'\]"),
    ],
)
def test_fields_that_are_none_are_refused(cls, message):
    for settings in ({}, {"damping": 0.3}):
        with pytest.raises(TypeError, match=message):
            cls(**settings)


def test_a_class_without_fields_of_its_own_needs_no_decorator():
    class Renamed(Plain):
        states = (Signal("a", "m", "first"), Signal("b", "m", "second"))
        noises: ClassVar = ()
        note = "no field"

    assert Renamed(dt=0.5) == Renamed(0.5)
    np.testing.assert_allclose(simulate(Renamed(), [2.0, 2.0]).state, [[0, 0], [2, 1]])
