"""Records of a benchmark: what everybody may see, and the answer, from the same trajectory."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from simulators import Signal, Trajectory, noise_free
from sysid import make_record


@dataclass(frozen=True, eq=False)
class SimulatedRecord:
    """One record of a benchmark with the whole simulation behind it."""

    name: str
    role: str
    trajectory: Trajectory  # from its start on
    transient: int  # samples of the trajectory that come before the record
    window: int  # samples at the start of the record that are not judged

    @property
    def n_samples(self) -> int:
        """Samples of the record."""
        return len(self.trajectory.time) - self.transient

    @property
    def measured(self) -> xr.Dataset:
        """Inputs and measured outputs: all that is published of the record."""
        system, shown = self.trajectory.system, slice(self.transient, None)
        return self._dataset(
            [
                (system.inputs, self.trajectory.input[shown]),
                (system.outputs, self.trajectory.output[shown]),
            ]
        ).assign_attrs(interpolation=self.trajectory.interpolation.value)

    @property
    def truth(self) -> xr.Dataset:
        """Noise-free outputs, states, process noise and measurement noise; the seed and what came before."""
        trajectory, shown = self.trajectory, slice(self.transient, None)
        system = trajectory.system
        noises = [Signal(f"{name}_noise", unit, f"noise on the {meaning}") for name, unit, meaning in system.outputs]
        found = self._dataset(
            [
                (tuple(noise_free(system.outputs)), trajectory.noise_free_output[shown]),
                (tuple(noises), trajectory.output[shown] - trajectory.noise_free_output[shown]),
                (system.states, trajectory.state[shown]),
                (system.noises, trajectory.noise[shown]),
            ]
        )
        return found.assign_attrs(
            seed=int(trajectory.seed), transient=self.transient, clipped_substeps=int(trajectory.n_clipped)
        )

    def _dataset(self, groups: list[tuple[tuple[Signal, ...], np.ndarray]]) -> xr.Dataset:
        columns = [(signal, values[:, i]) for signals, values in groups for i, signal in enumerate(signals)]
        return make_record(
            {signal.name: values for signal, values in columns},
            name=self.name,
            sampling_time=float(self.trajectory.system.dt),
            initialisation_window=self.window,
            units={signal.name: signal.unit for signal, _ in columns},
            long_names={signal.name: signal.description for signal, _ in columns},
        )
