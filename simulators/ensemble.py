"""Records of many simulations of one system."""

import json
from dataclasses import asdict, dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from simulators.interpolation import Interpolation
from simulators.system import System
from simulators.trajectory import Trajectory, described, labelled, time_axis


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Records of N simulations of one system: row (i, k) belongs to trajectory i at time k dt."""

    systems: tuple[System, ...]  # one for each trajectory
    seeds: NDArray[np.int64]  # (N,)
    time: NDArray[np.float64]  # (n,) s
    input: NDArray[np.float64]  # (n, n_u) if all trajectories share it, else (N, n, n_u)
    state: NDArray[np.float64]  # (N, n, n_x)
    output: NDArray[np.float64]  # (N, n, n_y) measured
    noise_free_output: NDArray[np.float64]  # (N, n, n_y)
    noise: NDArray[np.float64]  # (N, n, n_w)
    interpolation: Interpolation
    n_clipped: NDArray[np.int64]  # (N,) substeps that ended with a state set to one of its limits

    def __len__(self) -> int:
        return len(self.systems)

    def __getitem__(self, index: int) -> Trajectory:
        """Return one of the trajectories."""
        i = range(len(self))[index]
        return Trajectory(
            self.systems[i],
            int(self.seeds[i]),
            self.time,
            self.input if self.input.ndim == 2 else self.input[i],
            self.state[i],
            self.output[i],
            self.noise_free_output[i],
            self.noise[i],
            self.interpolation,
            int(self.n_clipped[i]),
        )

    def to_dataset(self) -> xr.Dataset:
        """Return one variable per signal over (trajectory, time), with the seed and parameters of each.

        Returns
        -------
        xarray.Dataset
            As `Trajectory.to_dataset`, and over `trajectory`: `seed`, `clipped_substeps` and every parameter
            that differs between the trajectories; a shared input has the dimension time only.
        """
        variables = labelled(self.systems[0], ("trajectory", "time"), self)
        settings = [asdict(system) for system in self.systems]
        shared = {name: value for name, value in settings[0].items() if all(s[name] == value for s in settings)}
        varied = {
            name: ("trajectory", np.array([s[name] for s in settings]), {"long_name": f"parameter {name}"})
            for name in settings[0]
            if name not in shared
        }
        counts = {
            "seed": ("trajectory", self.seeds, {"long_name": "seed of the trajectory"}),
            "clipped_substeps": ("trajectory", self.n_clipped, {"long_name": "substeps that met a limit of a state"}),
        }
        attributes = described(self.systems[0], self.interpolation) | {"parameters": json.dumps(shared)}
        coordinates = {
            "time": time_axis(self.time),
            "trajectory": ("trajectory", np.arange(len(self)), {"long_name": "number of the trajectory"}),
        }
        return xr.Dataset(variables | varied | counts, coords=coordinates, attrs=attributes)
