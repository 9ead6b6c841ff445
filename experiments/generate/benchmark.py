"""A simulated benchmark: the records it plans, where they start, what is simulated, and all that is
known of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.cli.ends import REFUSALS
from experiments.cli.options import samples_of, whole
from experiments.plant.plant import Plant
from simulators import Signal, System, Trajectory, noise_free
from simulators.errors import SimulationError
from sysid import Narx, make_record
from sysid.arrays import Array
from sysid.data.source import RECORD_ROLES
from sysid.errors import UserError

Ranges = Mapping[
    str, tuple[float, float]
]  # of initial states, by the name of the state, in its unit


class Split(NamedTuple):
    """How much of the data serves one purpose."""

    role: str  # estimation, validation or test
    n_samples: int  # of each record
    n_records: int


class Plan(NamedTuple):
    """A record that is to be simulated."""

    name: str  # of its group and CSV file
    role: str  # estimation, validation or test
    n_samples: int
    seed: int


def plan_records(seed: int, splits: Sequence[Split]) -> list[Plan]:
    """Plan the records of every split, each with a seed of its own."""
    plans = []
    for role, n_samples, n_records in splits:
        for number in range(n_records):
            name = role if n_records == 1 else f"{role}_{number}"
            plans.append(Plan(name, role, n_samples, split_seed(seed, role, number)))
    return plans


def split_seed(seed: int, role: str, number: int) -> int:
    """Seed of one record; those of other records stay when there are more or fewer of them.

    >>> split_seed(0, "test", 1) == split_seed(0, "test", 1) != split_seed(0, "test", 0)
    True
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(RECORD_ROLES.index(role), number))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def count_samples(key: str, value: Any, dt: float) -> int:
    """Count samples: a whole number of them, or a duration T with its unit, which is T / dt
    samples.

    >>> count_samples("test", 500, 0.1), count_samples("test", "500samples", 0.1), count_samples("test", "1min", 0.5)
    (500, 500, 120)
    """
    if isinstance(value, str):
        try:
            value = samples_of(value, dt) - (
                "samples" not in value
            )  # n intervals reach over n + 1 samples
        except UserError as error:
            raise UserError(f"{key}={value!r}: {error}") from error
    return whole(key, value, 2)


def read_ranges(given: Any, system: System) -> Ranges:
    """Read the ranges of random initial states; a state without a range keeps the system's own
    value.

    Raises
    ------
    ValueError
        No mapping of names to pairs of numbers; a state that does not exist; a range that descends,
        or one beyond the limits of its state.
    """
    limits = {
        s.name: (s.unit, *pair)
        for s, *pair in zip(system.states, *system.state_limits(), strict=True)
    }
    if not isinstance(given, Mapping | None):
        example = ", ".join(f"{name}: [-1, 1]" for name in limits)
        raise UserError(
            f"initial_states must map names of states to ranges, such as {{{example}}}, got {given!r}"
        )
    ranges = {}
    for name, pair in (given or {}).items():
        if name not in limits:
            raise UserError(
                f"initial_states names {name!r}, {type(system).__name__} has the states {[*limits]}"
            )
        unit, lower, upper = limits[name]
        values = pair if isinstance(pair, Sequence) else ()
        numbers = [
            float(value) for value in values if type(value) in (int, float) and isfinite(value)
        ]
        if not len(numbers) == len(values) == 2 or not lower <= numbers[0] <= numbers[1] <= upper:
            within = f"within the limits {lower:g} to {upper:g} {unit} of the state; change it"
            raise UserError(
                f"initial_states.{name}={pair} must be two numbers, lowest and highest value, {within}"
            )
        ranges[str(name)] = (numbers[0], numbers[1])
    return ranges


def draw_initial_state(system: System, ranges: Ranges, seed: int) -> Array | None:
    """Draw the initial state (n_x,) of the record with this seed.

    Without ranges it is None, the system's own.

    A draw has a generator of its own, split off the seed by the name of the state: it is
    independent of all noise and stays when other states get or lose a range.
    """
    if not ranges:
        return None
    state = np.array(system.initial_state(), dtype=np.float64)
    for i, signal in enumerate(system.states):
        if signal.name in ranges:
            sequence = np.random.SeedSequence(
                seed, spawn_key=(*b"initial state ", *signal.name.encode())
            )
            state[i] = np.random.default_rng(sequence).uniform(*ranges[signal.name])
    return state


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
        simulated = self.trajectory
        signals = (*simulated.system.inputs, *simulated.system.outputs)
        record = self._label(signals, simulated.input, simulated.output)
        return record.assign_attrs(interpolation=simulated.interpolation.value)

    @property
    def truth(self) -> xr.Dataset:
        """Noise-free outputs, measurement noise, states and process noise; the seed and what came
        before.
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
    plan: Plan, plant: Plant, ranges: Ranges, *, transient: int, window: int
) -> SimulatedRecord:
    """Simulate a record, from a random initial state within the ranges.

    Parameters
    ----------
    transient
        Samples simulated before the record.
    window
        Samples at the start of a validation or test record that are not judged.

    Raises
    ------
    ValueError, ArithmeticError
        What the simulation raises, with the name of the record.
    """
    start = draw_initial_state(plant.system, ranges, plan.seed)
    window = 0 if plan.role == "estimation" else window
    try:
        trajectory = plant.trajectory(
            plan.n_samples, plan.seed, transient=transient, initial_state=start
        )
    except (*REFUSALS, SimulationError) as error:
        raise type(error)(f"record {plan.name}: {error}") from error
    return SimulatedRecord(plan.name, plan.role, trajectory, transient, window)


def noises_of(system: System) -> tuple[Signal, ...]:
    """Measurement noise of every output as a signal."""
    return tuple(
        Signal(f"{s.name}_noise", s.unit, f"noise on the {s.description}") for s in system.outputs
    )


@dataclass(frozen=True, eq=False)
class Benchmark:
    """All that is written to a benchmark folder."""

    name: str
    settings: dict[str, Any]  # the configuration that makes the same data again
    plant: Plant
    ranges: Ranges  # of the initial states
    records: list[SimulatedRecord]  # estimation, validation, test
    lags: Mapping[str, Narx]  # of the models of each output; the first are those of narx.nc
    baselines: Mapping[
        str, Any
    ]  # settings by key in the scores, of `experiments.generate.baselines`
    scores: Mapping[str, Any]  # of noise floor and baselines
    notes: list[str]  # on the scores

    def select(self, role: str) -> list[SimulatedRecord]:
        """Select the records for estimation, validation or test."""
        return [record for record in self.records if record.role == role]

    def count(self) -> str:
        """How many records of how many samples."""
        parts = {role: self.select(role) for role in RECORD_ROLES}
        return ", ".join(
            f"{len(part)} x {part[0].n_samples} {role}" for role, part in parts.items()
        )
