"""Physics beside a model as a part of its linear view."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TypeVar

import numpy as np
import xarray as xr

from experiments.plant.physics import N_INITIAL_STATE_SAMPLES, FittedPhysics, read_physics
from simulators import Interpolation, linearise, steady_state
from simulators.errors import UserError as PlantError
from simulators.linearisation import output_jacobian
from simulators.system import names_of
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.model.simulated_signals import LinearSignals
from sysid.store import header

Result = TypeVar("Result")

#: note on an input that is band-limited between its samples, which no recursion can follow
BAND_LIMITED_NOTE = (
    "the physics has a band-limited input, which the linear view takes as linear between samples: "
    "its gain is 1 dB too low at 0.26 of the sampling rate, and falls further above"
)


@dataclass(frozen=True, eq=False)
class LinearPhysics:
    """Linear recursion of the signals of physics (`sysid.model.simulated_signals`).

    With the states x, ``x[k+1] = A x[k] + B u[k-d] + D (u[k+1-d] - A u[k-d])`` about an operating
    point (`simulators.linearise`; D is zero for held inputs). The signals ``s = C x`` contain all
    states, ``x = P s``, so that::

        s[k] = C A P s[k-1] + C (B - A D) u[k-1-d] + C D u[k-d]
    """

    fitted: FittedPhysics

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the signals."""
        return tuple(self.fitted.physics.signals)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs of the system."""
        return tuple(names_of(self.fitted.physics.system.inputs))

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the recursion."""
        return (BAND_LIMITED_NOTE,) if self._is_band_limited else ()

    @property
    def _is_band_limited(self) -> bool:
        """Whether the input has a course between its samples that no recursion can follow."""
        return Interpolation(self.fitted.physics.interpolation) is Interpolation.band_limited

    @cached_property
    def _columns_of_states(self) -> tuple[int, ...]:
        """Position of the signal of each state."""
        states = np.random.default_rng(0).uniform(size=(3, len(self.fitted.physics.system.states)))
        signals = self.fitted.values(states)
        return tuple(
            int(np.flatnonzero((signals == values[:, np.newaxis]).all(axis=0))[0])
            for values in states.T
        )

    def add(self, record: xr.Dataset) -> xr.Dataset:
        """Return a record with the signals of the physics; if it has them already, as it is.

        Raises
        ------
        ValueError
            If inputs or outputs of the system are missing, or the first samples do not give an
            initial state.
        """
        if all(name in record for name in self.names):
            return record
        signals = [str(name) for name in record.data_vars]
        title = str(record.attrs.get("name", "the record"))
        self.fitted.physics.check(signals, signals, title)
        window = int(record.attrs.get("initialisation_window", 0)) or N_INITIAL_STATE_SAMPLES
        return self.fitted.add(record.assign_attrs(name=title), window=window)

    def steady(self, inputs: Mapping[str, float]) -> dict[str, float]:
        """Return the values of the signals at the steady state for constant inputs.

        Raises
        ------
        ValueError
            There is none.
        """
        u = [inputs[name] for name in self.inputs]
        state = _translated(lambda: steady_state(self.fitted.physics.system, u))
        values = self.fitted.values(state[np.newaxis])[0]
        return dict(zip(self.names, values.tolist(), strict=True))

    def linear(self, values: Mapping[str, float]) -> LinearSignals:
        """Return the linear recursion about values of the signals and of the inputs."""
        system = self.fitted.physics.system
        course = Interpolation(self.fitted.physics.interpolation)
        if self._is_band_limited:
            course = Interpolation.linear
        signals = np.array([values[name] for name in self.names])
        u = [values[name] for name in self.inputs]
        x = signals[list(self._columns_of_states)]
        found = _translated(lambda: linearise(system, u, x, interpolation=course, of_states=True))
        C = self._slopes_by_states(x)
        P = np.zeros((len(x), len(signals)))
        P[np.arange(len(x)), self._columns_of_states] = 1.0
        earlier = C @ (found.B - found.A @ found.D)
        now = C @ found.D
        B = np.zeros((2 + max(found.delays, default=0), len(signals), len(u)))
        for column, delay in enumerate(found.delays):
            B[delay + 1, :, column] = earlier[:, column]
            B[delay, :, column] = now[:, column]
        return LinearSignals(self.names, self.inputs, C @ found.A @ P, B)

    def _slopes_by_states(self, state: Array) -> Array:
        """Return the derivatives (n_s, n_x) of the signals by the states."""
        of_outputs = output_jacobian(self.fitted.physics.system, state)
        of_states = np.eye(len(state))
        n_outputs = len(of_outputs)
        hidden = [row for row, column in enumerate(self._columns_of_states) if column >= n_outputs]
        return np.vstack([of_outputs, of_states[hidden]])


def load_physics(model: str | PathLike[str], *, trusted: Sequence[str] = ()) -> LinearPhysics:
    """Return the physics beside a stored model, for `sysid.Model.linearize`.

    Parameters
    ----------
    model
        File of `sysid-identify` with physics.
    trusted
        Modules and classes of the user that the file may name.

    Raises
    ------
    ValueError
        If there is no physics beside the model, or it names a class that is not trusted.
    """
    attributes = header(model)
    if "physics" not in attributes:
        raise UserError(
            f"load_physics: expected a model with physics beside it, {model} has none: call "
            "linearize without physics"
        )
    return LinearPhysics(read_physics(str(attributes["physics"]), trusted))


def _translated(compute: Callable[[], Result]) -> Result:
    """Return what a function returns, or raise the refusal of a system as one of the model."""
    try:
        return compute()
    except PlantError as error:
        raise UserError(f"physics: {error}") from error
