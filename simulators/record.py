"""Records of a simulation: samples, trajectories, labelled data sets, and measurement noise."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import simulators
from simulators.errors import UserError
from simulators.interpolation import Interpolation
from simulators.noise import draw_noise, random_stream
from simulators.settings import (
    Array,
    check_finite,
    check_not_negative,
    check_whole,
    is_finite,
    refuse,
)
from simulators.system import Signal, System


@dataclass(frozen=True)
class MeasurementNoise:
    """White Gaussian noise on every output, by standard deviation or by signal-to-noise ratio.

    ::

        y[k, i] = y0[k, i] + e[k, i],   e[k, i] ~ N(0, s_i^2)
        s_i = std_i,   or   s_i = sqrt(mean_k (y0[k, i] - mean_k y0[k, i])^2) 10^(-snr_db_i / 20)

    The ratio refers to the power of the noise-free output about its mean. Without `std` and
    `snr_db` there is no noise.

    Parameters
    ----------
    std : float or sequence of float, optional
        Standard deviation, in the unit of the outputs: one for all, or one for each.
    snr_db : float or sequence of float, optional
        Signal-to-noise ratio [dB]: one for all outputs, or one for each.

    Raises
    ------
    ValueError
        If both are given, `std` is negative or `snr_db` is not finite; on use: if there are not as
        many as outputs.

    Examples
    --------
    >>> MeasurementNoise(snr_db=20.0).std_of(np.array([[1.0], [-1.0]]))
    array([0.1])
    """

    std: float | Sequence[float] | None = None  # unit of the outputs; one for all, or one for each
    snr_db: float | Sequence[float] | None = None  # dB; one for all outputs, or one for each

    def __post_init__(self) -> None:
        for name in ("std", "snr_db"):
            value = getattr(self, name)
            if isinstance(value, list | tuple | np.ndarray):
                object.__setattr__(self, name, tuple(np.asarray(value).tolist()))
        if self.std is not None and self.snr_db is not None:
            raise refuse(self, "std", f"only one of std and snr_db={self.snr_db!r}")
        if self.std is not None and not _are_numbers(self.std, lowest=0.0):
            raise refuse(self, "std", "a number >= 0, or a list with one for each output")
        if self.snr_db is not None and not _are_numbers(self.snr_db, lowest=-math.inf):
            raise refuse(self, "snr_db", "a finite number, or a list with one for each output")

    def faults(self, seed: int, n_samples: int, n_outputs: int) -> "Faults | None":
        """Draw the faults of the sensors in a run; None if there are none."""
        return None

    def complete(self) -> "MeasurementNoise":
        """Return the same sensors, of whose samples none is missing."""
        return self

    def measure(self, output: Array, seed: int) -> Array:
        """Return the readings (n, n_y) of the sensors for noise-free outputs (n, n_y) of a run."""
        readings = output + draw_noise(seed, "measurement", len(output), self.std_of(output))
        faults = self.faults(seed, *output.shape)
        if faults is not None:
            for k in range(len(readings)):
                readings[k] = faults.read(readings[k], readings[k - 1], k)
        return readings

    def check(self, outputs: Sequence[str]) -> None:
        """Raise ValueError unless a list has one number for each of these outputs.

        Raises
        ------
        ValueError
            If it has not; the message names the outputs.
        """
        for name, value in (("std", self.std), ("snr_db", self.snr_db)):
            if isinstance(value, tuple) and len(value) != len(outputs):
                expected = f"one number for all outputs, or one for each of {list(outputs)}"
                raise refuse(self, name, expected)

    def std_of(self, output: Array) -> Array:
        """Return the standard deviations (n_y,) for noise-free outputs (n, n_y).

        Raises
        ------
        ValueError
            For a ratio to an output that is constant, and so has no power; for a list of another
            length than n_y.
        """
        n_y = output.shape[-1]
        if self.std is None and self.snr_db is None:
            return np.zeros(n_y)
        self.check([f"output {i}" for i in range(n_y)])
        if self.snr_db is None:
            return np.full(n_y, self.std, dtype=np.float64)
        power = output.reshape(-1, n_y).var(axis=0)
        if not np.all(power > 0):
            constant = int(np.argmin(power))
            raise refuse(
                self,
                "snr_db",
                f"outputs that vary, output {constant} is constant and has no power to refer to; "
                "excite the system, or give std",
            )
        return np.sqrt(power) * 10 ** (-np.asarray(self.snr_db) / 20)


def _are_numbers(value: Any, lowest: float) -> bool:
    """Whether a value is a finite number of at least `lowest`, or a tuple of such numbers."""
    values = value if isinstance(value, tuple) else (value,)
    if not values:
        return False
    return all(is_finite(number) and number >= lowest for number in values)


class Faults(NamedTuple):
    """Faults of the sensors at every sample, in addition to noise."""

    error: Array  # (n, n_y) gross error that is added to the reading
    reading: Array  # (n, n_y) value that replaces the reading; nan where nothing replaces it
    is_stuck: NDArray[np.bool_]  # (n,) whether the last readings are shown again
    is_missing: NDArray[np.bool_]  # (n,) whether the sample is missing from the record

    @property
    def are_any(self) -> bool:
        """Whether there is a fault at any sample."""
        is_replaced = ~np.isnan(self.reading)
        has_fault = self.error.any() or is_replaced.any() or self.is_stuck.any()
        return bool(has_fault or self.is_missing.any())

    def read(self, values: Array, last: Array, k: int) -> Array:
        """Return the readings (n_y,) of noisy outputs (n_y,) at sample k.

        `last` are the readings at the sample before.
        """
        if self.is_missing[k]:
            return np.full(len(values), np.nan)
        if self.is_stuck[k]:
            return last
        return np.where(np.isnan(self.reading[k]), values + self.error[k], self.reading[k])


@dataclass(frozen=True)
class OutlierNoise(MeasurementNoise):
    """White Gaussian noise, and sensors that fail: gross errors, dropouts, readings that are stuck.

    A share of the samples of each output has an error of ``+size`` or ``-size``, both equally
    likely; with `largest_size` the size of each error is uniform from `size` to that one. Another
    share drops out and reads `dropout_value`. From sample `stuck_from` on, all outputs repeat their
    last reading for `stuck_samples` samples. In `missing` samples, any but the first, all readings
    are nan.

    Raises
    ------
    ValueError
        As `MeasurementNoise`; also if a share is negative, the shares sum to more than 1, or a size
        or a number of samples is negative.

    Examples
    --------
    >>> sensors = OutlierNoise(std=0.1, share=0.5, size=2.0)
    >>> sensors.faults(0, 4, 1).error.ravel()
    array([ 0.,  2., -2.,  0.])
    """

    share: float = 0.02  # share of the samples with a gross error
    #: size of a gross error, unit of the outputs; one for all, or one for each
    size: float | Sequence[float] = 1.0
    #: largest size of a gross error, unit of the outputs; None: all have the size `size`
    largest_size: float | None = None
    dropouts: float = 0.0  # share of the samples that drop out
    dropout_value: float = 0.0  # reading of a sensor that drops out, unit of the output
    stuck_from: int = 0  # first sample whose readings are stuck; 0: none are
    stuck_samples: int = 0  # number of samples whose readings are stuck
    missing: int = 0  # number of samples that are missing: all readings are nan

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = tuple(np.ravel(np.asarray(self.size, dtype=object)).tolist())
        if not _are_numbers(sizes, lowest=0.0):
            raise refuse(self, "size", "a number >= 0, or a list with one for each output")
        if isinstance(self.size, list | tuple | np.ndarray):
            object.__setattr__(self, "size", sizes)
        check_not_negative(self, "share", "dropouts")
        if self.share + self.dropouts > 1:
            raise refuse(self, "dropouts", f"at most 1 together with share={self.share:g}")
        check_finite(self, "dropout_value")
        check_whole(self, "stuck_from", 0)
        check_whole(self, "stuck_samples", 0)
        check_whole(self, "missing", 0)
        is_given = self.largest_size is not None
        if is_given and not _are_numbers(self.largest_size, lowest=max(sizes)):
            raise refuse(self, "largest_size", f"a number >= size={max(sizes):g}, or None")

    def faults(self, seed: int, n_samples: int, n_outputs: int) -> Faults:
        """Draw the faults of the sensors in a run, from the stream `faults` of the seed."""
        if isinstance(self.size, tuple) and len(self.size) != n_outputs:
            expected = f"one number for all outputs, or one for each of the {n_outputs}"
            raise refuse(self, "size", expected)
        draws = random_stream(seed, "faults").random((n_samples, n_outputs, 2))
        fault = draws[..., 0]
        sign = np.where(draws[..., 1] < 0.5, -1.0, 1.0)
        size = np.asarray(self.size, dtype=np.float64)
        if self.largest_size is not None:
            size = size + (self.largest_size - size) * np.abs(2.0 * draws[..., 1] - 1.0)
        gross_error = sign * size
        error = np.where(fault < self.share, gross_error, 0.0)
        is_dropped = fault >= 1.0 - self.dropouts
        reading = np.where(is_dropped, self.dropout_value, np.nan)
        is_stuck = np.zeros(n_samples, dtype=bool)
        if self.stuck_from > 0:
            is_stuck[self.stuck_from : self.stuck_from + self.stuck_samples] = True
        return Faults(error, reading, is_stuck, self._missing_samples(seed, n_samples))

    def complete(self) -> "OutlierNoise":
        """Return the same sensors, of whose samples none is missing."""
        return replace(self, missing=0)

    def _missing_samples(self, seed: int, n_samples: int) -> NDArray[np.bool_]:
        """Draw which samples (n,) are missing from the record of a run."""
        is_missing = np.zeros(n_samples, dtype=bool)
        if self.missing:
            if self.missing >= n_samples:
                raise refuse(self, "missing", f"fewer than the {n_samples} samples of the run")
            later = random_stream(seed, "missing").permutation(n_samples - 1)
            is_missing[1 + later[: self.missing]] = True
        return is_missing


def signal_to_noise(output: Array, measured: Array) -> Array:
    """Return the signal-to-noise ratios [dB] (n_y,) reached by measured outputs (n, n_y).

    ::

        10 log10(var(y0) / mean((y - y0)^2)),   infinite without noise

    Examples
    --------
    >>> signal_to_noise(np.array([[1.0], [-1.0]]), np.array([[1.1], [-1.1]])).round(6)
    array([20.])
    """
    signal_powers = output.var(axis=0)
    noise_powers = np.mean((measured - output) ** 2, axis=0)
    ratios = []
    for signal, noise in zip(signal_powers, noise_powers, strict=True):
        has_ratio = noise > 0 and signal > 0
        ratios.append(10 * math.log10(signal / noise) if has_ratio else math.inf)
    return np.array(ratios)


class Sample(NamedTuple):
    """One sample of a closed loop; it shares its arrays with no other sample."""

    time: float  # s
    output: Array  # (n_y,) measured at this time
    input: Array  # (n_u,) applied from this time on
    state: Array  # (n_x,) at this time
    noise: Array  # (n_w,) process noise from this time on
    noise_free_output: Array  # (n_y,) without measurement noise
    n_clipped: int  # substeps since the last sample that ended with a state set to a limit


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Record of a simulation: row k belongs to time k dt, and the noise is held from then on."""

    system: System
    seed: int
    time: Array  # (n,) s
    input: Array  # (n, n_u)
    state: Array  # (n, n_x)
    output: Array  # (n, n_y) measured
    noise_free_output: Array  # (n, n_y)
    noise: Array  # (n, n_w)
    interpolation: Interpolation = Interpolation.held
    n_clipped: int = 0  # substeps that ended with a state set to one of its limits

    def __repr__(self) -> str:
        return (
            f"Trajectory of {type(self.system).__name__}: {describe_signals(self.system)}, "
            f"{len(self.time)} samples of {self.system.dt:g} s, seed {self.seed}"
        )

    def to_dataset(self) -> xr.Dataset:
        """Return one variable per signal over `time` [s], with units, description and settings.

        Returns
        -------
        xarray.Dataset
            Outputs as measured; with measurement noise also the noise-free ones, named
            ``<output>_noise_free``, and parameters that change, ``parameter_<name>``. Variables
            carry `units` and `long_name`; the attributes are text and numbers that NetCDF can hold:
            system, parameters (JSON), inputs and outputs (JSON lists of names), dt, substeps, seed,
            integrator, interpolation, clipped_substeps.
        """
        attributes = describe_simulation(self.system, self.interpolation) | {
            "parameters": json.dumps(asdict(self.system)),
            "seed": int(self.seed),
            "clipped_substeps": int(self.n_clipped),
        }
        variables = label_signals(self.system, ("time",), self)
        for name, values in self.system.values_over(self.time).items():
            description = {"long_name": f"parameter {name} of the system"}
            variables[f"parameter_{name}"] = ("time", values, description)
        return xr.Dataset(variables, coords={"time": label_time(self.time)}, attrs=attributes)


def describe_signals(system: System) -> str:
    """Return the names of the outputs and inputs of a system in words."""
    outputs = ", ".join(signal.name for signal in system.outputs)
    inputs = ", ".join(signal.name for signal in system.inputs)
    return f"{outputs} driven by {inputs}" if inputs else f"{outputs} without an input"


def label_signals(system: System, dims: tuple[str, ...], record: Any) -> dict[str, Any]:
    """Return one variable per signal of a record, whose arrays end with an axis over signals.

    Parameters
    ----------
    system : System
        Names and units of the signals.
    dims : tuple of str
        Dimensions of a signal.
    record : Trajectory or Ensemble
        Record with input, output, state, noise and noise_free_output.
    """
    groups = [
        (system.inputs, record.input),
        (system.outputs, record.output),
        (system.states, record.state),
        (system.noises, record.noise),
    ]
    if not np.array_equal(record.output, record.noise_free_output):
        groups.append((noise_free(system.outputs), record.noise_free_output))
    variables = {}
    for signals, values in groups:
        dims_of_signal = dims[-(values.ndim - 1) :]
        for i, signal in enumerate(signals):
            description = {"units": signal.unit, "long_name": signal.description}
            variables[signal.name] = (dims_of_signal, values[..., i], description)
    return variables


def noise_free(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Return outputs with the names and meanings that they have without noise."""
    return tuple(
        Signal(f"{name}_noise_free", unit, f"{meaning}, without noise")
        for name, unit, meaning in signals
    )


def label_time(time: Array) -> tuple[str, Array, dict[str, str]]:
    """Return times [s] as the coordinate of a data set."""
    description = {"units": "s", "long_name": "time since the start of the simulation"}
    return "time", time, description


def describe_simulation(
    system: System, interpolation: Interpolation
) -> dict[str, str | int | float]:
    """Return the attributes that trajectories of one system share.

    The attribute `system` is the public name of a system of this package, for example
    ``simulators.VanDerPol``, and module and name of any other class.
    """
    kind = type(system)
    is_public = getattr(simulators, kind.__name__, None) is kind
    public_name = f"simulators.{kind.__name__}"
    full_name = f"{kind.__module__}.{kind.__qualname__}"
    return {
        "system": public_name if is_public else full_name,
        "inputs": json.dumps([signal.name for signal in system.inputs]),
        "outputs": json.dumps([signal.name for signal in system.outputs]),
        "dt": float(system.dt),
        "substeps": int(system.substeps),
        "integrator": "RK4",
        "interpolation": interpolation.value,
    }


def sample_times(system: System, n: int) -> Array:
    """Return the times k dt of n samples [s]."""
    return system.dt * np.arange(n, dtype=np.float64)


def collect(
    samples: Iterable[Sample],
    system: System,
    *,
    seed: int,
    interpolation: Interpolation = Interpolation.held,
) -> Trajectory:
    """Turn the samples of a closed loop into a record; the loop may still be running.

    Parameters
    ----------
    samples : iterable of Sample
        At least one sample, from the first on.
    system : System
        The system that was simulated, with the dt and substeps in use.
    seed : int
        Seed of the run, to be stored with it.
    interpolation : Interpolation
        Interpolation of the exogenous inputs, to be stored with it; driven inputs are held.

    Returns
    -------
    Trajectory
        The record. With held inputs it is bit-identical to that of `simulate` with the recorded
        input, the same seed and initial state.

    Raises
    ------
    ValueError
        If there is no sample or the times are not k dt.
    """
    rows = list(samples)
    if not rows:
        raise UserError(
            "collect: expected at least one sample, got none; iterate the closed loop first"
        )
    columns = {
        name: np.array([getattr(sample, name) for sample in rows]) for name in Sample._fields
    }
    time = columns["time"]
    if not np.array_equal(time, sample_times(system, len(time))):
        raise UserError(
            f"collect: expected samples at k dt = 0, {system.dt:g}, ... s, "
            f"got {time[:3].tolist()} ...; pass all samples from the first on, "
            "and the system that was simulated"
        )
    return Trajectory(
        system,
        seed,
        time,
        columns["input"],
        columns["state"],
        columns["output"],
        columns["noise_free_output"],
        columns["noise"],
        interpolation,
        int(columns["n_clipped"].sum()),
    )
