"""The records that a model is validated on, or a simulation, and the physics of the model."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import xarray as xr

from experiments.plant.physics import FittedPhysics, read_physics
from experiments.plant.plant import Plant
from experiments.plant.source import SIMULATION_KEYS
from simulators import Controller
from sysid import JointModel, Narx, Recordings
from sysid.data.source import RECORD_ROLES
from sysid.errors import UserError
from sysid.store import header

#: keys of the configuration that systems and data sources set for an identification only
IDENTIFICATION_KEYS = frozenset({"narx", "insertion"})


@dataclass(frozen=True, eq=False)
class Material:
    """Records of one part, and the simulated plant that produced them if there is one."""

    source: Recordings  # holds the names of the signals
    part: str  # part of the records that is used, or "simulation"
    records: tuple[xr.Dataset, ...]
    unused: frozenset[str]  # keys of the configuration without effect
    plant: Plant | None = None
    physics: FittedPhysics | None = None  # the physics that the model builds on

    def records_after(self, window: int) -> tuple[xr.Dataset, ...]:
        """Return the records with the signals of the physics, if the model has physics.

        The initial state of the physics is estimated from the first `window` samples.
        """
        if self.physics is None:
            return self.records
        return tuple(self.physics.add(record, window=window) for record in self.records)

    @property
    def n_samples(self) -> int:
        """Number of samples of all records together."""
        return sum(record.sizes["time"] for record in self.records)

    def default_window(self, narx: Narx) -> int:
        """Return the length of the initialisation window that is used unless the user sets one.

        If the physics has initial states to estimate, it is the number of samples that this takes.
        Otherwise it is the window that the records state or, without one, the largest lag.
        """
        if self.physics is not None and self.physics.physics.initial_parameters:
            return max(self.physics.n_first(record) for record in self.records)
        stated = max(int(record.attrs["initialisation_window"]) for record in self.records)
        return stated or max(narx.max_lag, 1)

    @property
    def controller(self) -> Controller | None:
        """Controller that closes a loop around the plant; None if there is no such loop."""
        if self.plant is None or self.plant.is_open_loop:
            return None
        return self.plant.controller


def find_material(
    given: Recordings | Plant, *, part: str | None, duration: float | str, seed: int
) -> Material:
    """Select one part of the records, or simulate the plant.

    Raises
    ------
    ValueError, ArithmeticError
        If there is no record of the selected part, or the simulation fails.
    """
    if isinstance(given, Recordings):
        return select_records(given, part)
    return simulate_material(given, duration, seed)


def simulate_material(plant: Plant, duration: float | str, seed: int) -> Material:
    """Simulate a plant for a duration that is given in seconds or with its unit.

    Raises
    ------
    ValueError, ArithmeticError
        If `duration` is not a duration, or the simulation fails.
    """
    name = type(plant.system).__name__
    record = plant.trajectory(plant.n_samples(duration), seed).to_dataset()
    record = record.assign_attrs(
        name=name, sampling_time=float(plant.system.dt), initialisation_window=0
    )
    recordings = Recordings(name, tuple(plant.inputs), tuple(plant.outputs), test=(record,))
    unused = IDENTIFICATION_KEYS | {"part", "on_missing"} | plant.unused
    return Material(recordings, "simulation", (record,), unused, plant)


def select_records(recordings: Recordings, part: str | None = None) -> Material:
    """Select the records of one part.

    If `part` is None, the test records are selected, or the validation records if there are no
    test records.

    Raises
    ------
    ValueError
        If there is no record of the selected part.
    """
    available = [role for role in RECORD_ROLES if getattr(recordings, role)]
    selected = part or "test"
    if not part and "test" not in available and "validation" in available:
        selected = "validation"
    if selected not in available:
        raise UserError(
            f"{recordings.name} has no {selected} record, only {', '.join(available)}: "
            f"name one (data.{selected}=...), or choose another part with part={available[0]}"
        )
    records = getattr(recordings, selected)
    return Material(recordings, selected, records, SIMULATION_KEYS | IDENTIFICATION_KEYS)


def add_physics(material: Material, model: str | Path, trusted: Sequence[str]) -> Material:
    """Add the physics that is stated in the model's file, if there is one.

    Raises
    ------
    ValueError
        If the physics does not fit the signals of the records.
    """
    model_header = header(model)
    if "physics" not in model_header:
        return material
    physics = read_physics(str(model_header["physics"]), list(trusted))
    physics.physics.check(material.source.inputs, material.source.outputs, material.source.name)
    return replace(material, physics=physics)


def check_signals(joint: JointModel, material: Material, left_out: Sequence[str]) -> None:
    """Raise ValueError unless the signals of the records and of the model are the same.

    Raises
    ------
    ValueError
        If the model or the records have no time; if a signal is missing, is unknown to the model,
        or is an input of one and an output of the other; if a name in `left_out` is not a signal
        that the model does without.
    """
    source = material.source
    physics: Collection[str] = ()
    if material.physics is not None:
        physics = material.physics.physics.signals
    if joint.models[0].narx.max_lag == 0 and not physics:
        raise UserError(
            "the model has no lags: it is a static function, and there is nothing to simulate"
        )
    if source.is_static:
        raise UserError(f"{source.name} is a table without time: there is nothing to simulate")
    has = f"{source.name} has outputs {list(source.outputs)} and inputs {list(source.inputs)}"
    surplus: list[str] = []  # signals of the records that the model does not have
    roles = {
        "outputs": (joint.output_names, source.outputs),
        "inputs": (joint.input_names, (*source.inputs, *physics)),
    }
    for role, (names, given) in roles.items():
        missing = [name for name in names if name not in given]
        if missing:
            raise UserError(
                f"the model needs the {role} {missing}, {has}: "
                "give every signal the name and the role that it has in the model"
            )
        surplus += [name for name in given if name not in names and name not in physics]
    not_surplus = [name for name in left_out if name not in surplus]
    if not_surplus:
        raise UserError(
            f"left_out names {not_surplus}, but the signals that the model does without are "
            f"{surplus}; {has}"
        )
    unexpected = [name for name in surplus if name not in left_out]
    if unexpected:
        raise UserError(
            f"the model does not know the signals {unexpected} of {source.name}: "
            f"ignore them with left_out=[{','.join(surplus)}], or identify a model with them"
        )
