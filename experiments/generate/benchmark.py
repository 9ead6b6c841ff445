"""A simulated benchmark: plans of its records, initial states, simulated records, and results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.cli.ends import REFUSALS
from experiments.cli.options import samples_of, whole
from experiments.generate.designed import Designer
from experiments.plant.plant import Plant
from simulators import Signal, System, Trajectory, noise_free
from simulators.errors import SimulationError
from simulators.settings import is_finite
from sysid import Narx, make_record
from sysid.arrays import Array
from sysid.data.source import RECORD_ROLES
from sysid.errors import UserError
from sysid.narx.record import ON_MISSING_ATTRIBUTE, SKIPS_MISSING
from sysid.store import MAX_CONTENT_VARIABLE, max_content_bytes

#: memory that a value of a record takes, with its copies and its text in a table [byte]
BYTES_PER_VALUE = 48

#: memory that a record of any length takes, with its group in a file [byte]
BYTES_PER_RECORD = 400_000

#: range of each random initial state, by the name of the state, in its unit
Ranges = Mapping[str, tuple[float, float]]


class Split(NamedTuple):
    """Number of records, and their length, that serve one purpose."""

    role: str  # estimation, validation or test
    n_samples: int  # samples of each record
    n_records: int


class Plan(NamedTuple):
    """A record that is to be simulated."""

    name: str  # name of its group and of its CSV file
    role: str  # estimation, validation or test
    n_samples: int
    seed: int


def plan_records(seed: int, splits: Sequence[Split]) -> list[Plan]:
    """Plan the records of every split, each with its own seed."""
    plans = []
    for role, n_samples, n_records in splits:
        for number in range(n_records):
            name = role if n_records == 1 else f"{role}_{number}"
            plans.append(Plan(name, role, n_samples, split_seed(seed, role, number)))
    return plans


def check_size(splits: Sequence[Split], transient: int, system: System) -> None:
    """Refuse records that would not fit into memory, before a plan of them is made.

    Raises
    ------
    ValueError
        If they need more memory than the content of a file may have (`sysid.store`).
    """
    n_records = sum(split.n_records for split in splits)
    n_samples = sum(split.n_records * (split.n_samples + transient) for split in splits)
    n_columns = 1 + len(system.inputs) + 3 * len(system.outputs)
    n_columns += len(system.states) + len(system.noises)
    n_bytes = n_samples * n_columns * BYTES_PER_VALUE + n_records * BYTES_PER_RECORD
    allowed_bytes = max_content_bytes()
    if n_bytes > allowed_bytes:
        lengths = ", ".join(
            f"{split.n_records} of {split.n_samples} samples for {split.role}" for split in splits
        )
        raise UserError(
            f"the records ({lengths}; transient={transient}) need about {n_bytes:.2g} bytes of "
            f"memory, expected at most {allowed_bytes:.2g}; lower the lengths, realisations or "
            f"transient, or set the environment variable {MAX_CONTENT_VARIABLE} to a larger number"
        )


def split_seed(seed: int, role: str, number: int) -> int:
    """Return the seed of one record; it does not depend on the number of records.

    >>> split_seed(0, "test", 1) == split_seed(0, "test", 1) != split_seed(0, "test", 0)
    True
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(RECORD_ROLES.index(role), number))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def count_samples(key: str, value: Any, dt: float) -> int:
    """Return a number of samples that is given as such, or as a duration T with its unit.

    A duration T is T / dt samples.

    >>> count_samples("test", 500, 0.1)
    500
    >>> count_samples("test", "500samples", 0.1)
    500
    >>> count_samples("test", "1min", 0.5)
    120
    """
    if isinstance(value, str):
        is_duration = "samples" not in value
        try:
            value = samples_of(value, dt)
        except UserError as error:
            raise UserError(f"{key}={value!r}: {error}") from error
        if is_duration:
            value -= 1  # `samples_of` counts both ends of the T / dt intervals
    return whole(key, value, 2)


def read_ranges(given: Any, system: System) -> Ranges:
    """Read the ranges of random initial states; other states start at the system's own value.

    Raises
    ------
    ValueError
        If `given` does not map names of states to pairs of numbers, names a state that does not
        exist, or a range is not ascending or exceeds the limits of its state.
    """
    limits = {
        signal.name: (signal.unit, lower, upper)
        for signal, lower, upper in zip(system.states, *system.state_limits(), strict=True)
    }
    if not isinstance(given, Mapping | None):
        example = ", ".join(f"{name}: [-1, 1]" for name in limits)
        raise UserError(
            f"initial_states must map names of states to ranges, such as {{{example}}}, "
            f"got {given!r}"
        )
    ranges = {}
    for name, pair in (given or {}).items():
        if name not in limits:
            raise UserError(
                f"initial_states names {name!r}, but {type(system).__name__} has the states "
                f"{list(limits)}"
            )
        unit, lower, upper = limits[name]
        numbers = _finite_pair(pair)
        if numbers is None or not lower <= numbers[0] <= numbers[1] <= upper:
            raise UserError(
                f"initial_states.{name}={pair} must be two numbers, lowest and highest value, "
                f"within the limits {lower:g} to {upper:g} {unit} of the state; change it"
            )
        ranges[str(name)] = numbers
    return ranges


def _finite_pair(values: Any) -> tuple[float, float] | None:
    """Return two finite numbers, or None if the values are anything else."""
    if not isinstance(values, Sequence) or len(values) != 2:
        return None
    if not all(type(value) in (int, float) and is_finite(value) for value in values):
        return None
    return float(values[0]), float(values[1])


def draw_initial_state(system: System, ranges: Ranges, seed: int) -> Array | None:
    """Draw the initial state (n_x,) of the record with this seed.

    Without ranges it is None, which stands for the system's own initial state.

    Every state is drawn with its own generator, which depends on the seed and on the name of the
    state: the draw is independent of all noise, and does not change when other states get or lose
    a range.
    """
    if not ranges:
        return None
    state = np.array(system.initial_state(), dtype=np.float64)
    for i, signal in enumerate(system.states):
        if signal.name in ranges:
            spawn_key = (*b"initial state ", *signal.name.encode())
            sequence = np.random.SeedSequence(seed, spawn_key=spawn_key)
            state[i] = np.random.default_rng(sequence).uniform(*ranges[signal.name])
    return state


@dataclass(frozen=True, eq=False)
class SimulatedRecord:
    """One record of a benchmark, with the whole simulation that it was cut from."""

    name: str
    role: str
    trajectory: Trajectory  # the whole simulation, with the transient
    transient: int  # samples of the trajectory that come before the record
    window: int  # samples at the start of the record that are not scored
    #: Decisions about designed inputs (`DesignRun.content`), numbered from the first sample of the
    #: transient; None if no model chose the inputs.
    decisions: xr.Dataset | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples of the record."""
        return len(self.trajectory.time) - self.transient

    @property
    def measured(self) -> xr.Dataset:
        """Inputs and measured outputs, the published part of the record.

        Missing outputs are nan, and the record says that they are skipped.
        """
        simulated = self.trajectory
        signals = (*simulated.system.inputs, *simulated.system.outputs)
        record = self._label(signals, simulated.input, simulated.output)
        record = record.assign_attrs(interpolation=simulated.interpolation.value)
        if np.isfinite(simulated.output[self.transient :]).all():
            return record
        return record.assign_attrs({ON_MISSING_ATTRIBUTE: SKIPS_MISSING})

    @property
    def truth(self) -> xr.Dataset:
        """Noise-free outputs, measurement noise, states and process noise of the record.

        The attributes hold the seed, the discarded samples, and the number of substeps in which a
        state was clipped.
        """
        simulated = self.trajectory
        system = self.trajectory.system
        signals = (
            *noise_free(system.outputs),
            *noises_of(system),
            *system.states,
            *system.noises,
        )
        clean = simulated.noise_free_output
        record = self._label(
            signals, clean, simulated.output - clean, simulated.state, simulated.noise
        )
        facts = {
            "seed": int(simulated.seed),
            "transient": self.transient,
            "clipped_substeps": int(simulated.n_clipped),
        }
        return record.assign_attrs(facts)

    def _label(self, signals: tuple[Signal, ...], *columns: Array) -> xr.Dataset:
        """Return signals of the record as a data set; `columns` hold their values (n, ...)."""
        values = np.concatenate(columns, axis=1)[self.transient :]
        return make_record(
            {signal.name: values[:, i] for i, signal in enumerate(signals)},
            name=self.name,
            sampling_time=float(self.trajectory.system.dt),
            initialisation_window=self.window,
            units={signal.name: signal.unit for signal in signals},
            long_names={signal.name: signal.description for signal in signals},
        )


def simulate_record(
    plan: Plan,
    plant: Plant,
    ranges: Ranges,
    *,
    transient: int,
    window: int,
    designer: Designer | None = None,
) -> SimulatedRecord:
    """Simulate a record, from a random initial state within the ranges.

    A model chooses the designed inputs of estimation records. Those of the other records are
    stretches that no model has chosen, so that no model makes its own test.

    Parameters
    ----------
    transient
        Samples simulated before the record and discarded.
    window
        Samples at the start of a validation or test record that are not scored.
    designer
        Learns the plant while estimation records are simulated, and chooses their inputs; None: no
        inputs are designed.

    Raises
    ------
    ValueError, ArithmeticError
        If the simulation fails, with the name of the record.
    """
    initial_state = draw_initial_state(plant.system, ranges, plan.seed)
    if plan.role == "estimation":
        window = 0
    else:  # every sample of these records is scored
        plant = replace(plant, measurement=plant.measurement.complete())
    settings: Any = {"transient": transient, "initial_state": initial_state}
    decisions = None
    try:
        if designer is not None and plan.role == "estimation":
            designed = designer.simulate(plant, plan.n_samples, plan.seed, **settings)
            trajectory = designed.trajectory
            decisions = designed.decisions
        else:
            trajectory = plant.trajectory(plan.n_samples, plan.seed, **settings)
    except (*REFUSALS, SimulationError) as error:
        raise type(error)(f"record {plan.name}: {error}") from error
    return SimulatedRecord(plan.name, plan.role, trajectory, transient, window, decisions)


def noises_of(system: System) -> tuple[Signal, ...]:
    """Return the measurement noise of every output as a signal."""
    return tuple(
        Signal(f"{output.name}_noise", output.unit, f"noise on the {output.description}")
        for output in system.outputs
    )


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Everything that is written to a benchmark folder."""

    name: str
    settings: dict[str, Any]  # the configuration that makes the same data again
    plant: Plant
    ranges: Ranges  # ranges of the initial states
    records: list[SimulatedRecord]  # estimation, validation, test
    lags: Mapping[str, Narx]  # lags of the models, by output; narx.nc holds those of the first
    baselines: Mapping[str, Any]  # `BaselineSettings` by their key in the scores
    scores: Mapping[str, Any]  # scores of the noise floor and of the baselines
    notes: list[str]  # notes on the scores

    def select(self, role: str) -> list[SimulatedRecord]:
        """Select the records for estimation, validation or test."""
        return [record for record in self.records if record.role == role]

    def count(self) -> str:
        """Return the number of records and samples of every split, as text."""
        counts = []
        for role in RECORD_ROLES:
            records = self.select(role)
            counts.append(f"{len(records)} x {records[0].n_samples} {role}")
        return ", ".join(counts)
