"""Records of a simulation: one sample, all samples, and the labelled data set."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from simulators.interpolation import Interpolation
from simulators.system import Signal, System


class Sample(NamedTuple):
    """One sample of a closed loop; its arrays are copies of its own."""

    time: float  # s
    output: NDArray[np.float64]  # (n_y,) measured at this time
    input: NDArray[np.float64]  # (n_u,) applied from this time on
    state: NDArray[np.float64]  # (n_x,) at this time
    noise: NDArray[np.float64]  # (n_w,) process noise from this time on
    noise_free_output: NDArray[np.float64]  # (n_y,) without measurement noise
    n_clipped: int  # substeps since the sample before that ended with a state set to a limit


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Record of a simulation: row k belongs to time k dt, the noise is held from then on."""

    system: System
    seed: int
    time: NDArray[np.float64]  # (n,) s
    input: NDArray[np.float64]  # (n, n_u)
    state: NDArray[np.float64]  # (n, n_x)
    output: NDArray[np.float64]  # (n, n_y) measured
    noise_free_output: NDArray[np.float64]  # (n, n_y)
    noise: NDArray[np.float64]  # (n, n_w)
    interpolation: Interpolation = Interpolation.held
    n_clipped: int = 0  # substeps that ended with a state set to one of its limits

    def to_dataset(self) -> xr.Dataset:
        """Return one variable per signal over `time` [s], with units, description and settings.

        Returns
        -------
        xarray.Dataset
            Outputs as measured; with measurement noise also the noise-free ones, named
            ``<output>_noise_free``. Variables carry `units` and `long_name`; the attributes are text and
            numbers that NetCDF can hold: system, parameters (JSON), inputs and outputs (JSON lists of
            names), dt, substeps, seed, integrator, interpolation, clipped_substeps.
        """
        variables = labelled(self.system, ("time",), self)
        return xr.Dataset(variables, coords={"time": time_axis(self.time)}, attrs=self._attributes())

    def _attributes(self) -> dict[str, str | int | float]:
        """Return what is needed to simulate this record again."""
        return described(self.system, self.interpolation) | {
            "parameters": json.dumps(asdict(self.system)),
            "seed": int(self.seed),
            "clipped_substeps": int(self.n_clipped),
        }


def labelled(system: System, dims: tuple[str, ...], record: Any) -> dict[str, Any]:
    """Return one variable per signal of a record, whose arrays end with an axis over signals.

    Parameters
    ----------
    system : System
        Names and units of the signals.
    dims : tuple of str
        Dimensions of a signal.
    record : Trajectory or Ensemble
        Holds input, output, state, noise and noise_free_output.
    """
    groups = [
        (system.inputs, record.input),
        (system.outputs, record.output),
        (system.states, record.state),
        (system.noises, record.noise),
    ]
    if not np.array_equal(record.output, record.noise_free_output):
        groups.append((noise_free(system.outputs), record.noise_free_output))
    return {
        signal.name: (
            dims[-(values.ndim - 1) :],
            values[..., i],
            {"units": signal.unit, "long_name": signal.description},
        )
        for signals, values in groups
        for i, signal in enumerate(signals)
    }


def noise_free(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Return outputs under the names of their noise-free twins."""
    return tuple(Signal(f"{name}_noise_free", unit, f"{meaning}, without noise") for name, unit, meaning in signals)


def time_axis(time: NDArray[np.float64]) -> tuple[str, NDArray[np.float64], dict[str, str]]:
    """Return the coordinate of times [s]."""
    return "time", time, {"units": "s", "long_name": "time since the start of the simulation"}


def described(system: System, interpolation: Interpolation) -> dict[str, str | int | float]:
    """Return the attributes that trajectories of one system share."""
    return {
        "system": f"{type(system).__module__}.{type(system).__qualname__}",
        "inputs": json.dumps([signal.name for signal in system.inputs]),
        "outputs": json.dumps([signal.name for signal in system.outputs]),
        "dt": float(system.dt),
        "substeps": int(system.substeps),
        "integrator": "RK4",
        "interpolation": interpolation.value,
    }


def sample_times(system: System, n: int) -> NDArray[np.float64]:
    """Return the times k dt of n samples [s]."""
    return system.dt * np.arange(n, dtype=np.float64)


def collect(
    samples: Iterable[Sample], system: System, *, seed: int, interpolation: Interpolation = Interpolation.held
) -> Trajectory:
    """Turn the samples of a closed loop, all or those computed so far, into a record.

    Parameters
    ----------
    samples : iterable of Sample
        At least one sample, from the first on.
    system : System
        The system that was simulated, with the dt and substeps in use.
    seed : int
        Seed of the run, to be stored with it.
    interpolation : Interpolation
        Of the exogenous inputs, to be stored with it; driven inputs are held.

    Returns
    -------
    Trajectory
        With held inputs bit-identical to `simulate` with the recorded input, the same seed and initial state.

    Raises
    ------
    ValueError
        If there is no sample or the times are not k dt.
    """
    rows = list(samples)
    if not rows:
        raise ValueError("collect: expected at least one sample, got none; iterate the closed loop first")
    time, y, u, x, w, y0, clipped = (np.array(column) for column in zip(*rows, strict=True))
    if not np.array_equal(time, sample_times(system, len(time))):
        raise ValueError(
            f"collect: expected samples at k dt = 0, {system.dt:g}, ... s, got {time[:3].tolist()} ...; pass "
            "all samples from the first on, and the system with the dt that was simulated"
        )
    return Trajectory(system, seed, time, u, x, y, y0, w, interpolation, int(clipped.sum()))
