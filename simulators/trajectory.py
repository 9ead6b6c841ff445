"""Records of a simulation: one sample, all samples, and the labelled data set."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from simulators.system import Signal, System


class Sample(NamedTuple):
    """One sample of a closed loop; its arrays are copies of its own."""

    time: float  # s
    output: NDArray[np.float64]  # (n_y,) measured at this time
    input: NDArray[np.float64]  # (n_u,) applied from this time on, held until the next sample
    state: NDArray[np.float64]  # (n_x,) at this time
    noise: NDArray[np.float64]  # (n_w,) process noise from this time on


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Record of a simulation: row k belongs to time k dt, input and noise are held from then on."""

    system: System
    seed: int
    time: NDArray[np.float64]  # (n,) s
    input: NDArray[np.float64]  # (n, n_u)
    state: NDArray[np.float64]  # (n, n_x)
    output: NDArray[np.float64]  # (n, n_y)
    noise: NDArray[np.float64]  # (n, n_w)

    def to_dataset(self) -> xr.Dataset:
        """Return one variable per signal over `time` [s], with units, description and settings.

        Returns
        -------
        xarray.Dataset
            Variables carry `units` and `long_name`; the attributes are text and numbers that NetCDF
            can hold: system, parameters (JSON), dt, substeps, seed, integrator, interpolation.
        """
        system = self.system
        groups: tuple[tuple[tuple[Signal, ...], NDArray[np.float64]], ...] = (
            (system.inputs, self.input),
            (system.outputs, self.output),
            (system.states, self.state),
            (system.noises, self.noise),
        )
        variables = {
            signal.name: ("time", values[:, i], {"units": signal.unit, "long_name": signal.description})
            for signals, values in groups
            for i, signal in enumerate(signals)
        }
        time = ("time", self.time, {"units": "s", "long_name": "time since the start of the simulation"})
        return xr.Dataset(variables, coords={"time": time}, attrs=self._attributes())

    def _attributes(self) -> dict[str, str | int | float]:
        """Return what is needed to simulate this record again."""
        return {
            "system": f"{type(self.system).__module__}.{type(self.system).__qualname__}",
            "parameters": json.dumps(asdict(self.system)),
            "dt": float(self.system.dt),
            "substeps": int(self.system.substeps),
            "seed": int(self.seed),
            "integrator": "RK4",
            "interpolation": "held",
        }


def sample_times(system: System, n: int) -> NDArray[np.float64]:
    """Return the times k dt of n samples [s]."""
    return system.dt * np.arange(n, dtype=np.float64)


def collect(samples: Iterable[Sample], system: System, *, seed: int) -> Trajectory:
    """Turn the samples of a closed loop, all or those computed so far, into a record.

    Parameters
    ----------
    samples : iterable of Sample
        At least one sample, from the first on.
    system : System
        The system that was simulated, with the dt and substeps in use.
    seed : int
        Seed of the run, to be stored with it.

    Returns
    -------
    Trajectory
        Bit-identical to `simulate` with the recorded input, the same seed and initial state.

    Raises
    ------
    ValueError
        If there is no sample or the times are not k dt.
    """
    rows = list(samples)
    if not rows:
        raise ValueError("collect: expected at least one sample, got none; iterate the closed loop first")
    time, y, u, x, w = (np.array(column) for column in zip(*rows, strict=True))
    if not np.array_equal(time, sample_times(system, len(time))):
        raise ValueError(
            f"collect: expected samples at k dt = 0, {system.dt:g}, ... s, got {time[:3].tolist()} ...; pass "
            "all samples from the first on, and the system with the dt that was simulated"
        )
    return Trajectory(system, seed, time, u, x, y, w)
