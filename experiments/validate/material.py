"""What a model is validated on: records of one part, or a simulation, and the physics beside the
model.
"""

from collections.abc import Sequence
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

#: what systems and sources of data bring for an identification
OF_THE_MODEL = frozenset({"narx", "insertion"})


@dataclass(frozen=True, eq=False)
class Material:
    """Records of one part, and the plant that made them if there is one."""

    source: Recordings  # names of the signals
    part: str  # of the records, or simulation
    records: tuple[xr.Dataset, ...]
    unused: frozenset[str]  # keys of the configuration without effect
    plant: Plant | None = None
    physics: FittedPhysics | None = None  # of the model

    def records_after(self, window: int) -> tuple[xr.Dataset, ...]:
        """Return the records as a model sees them that is given the first samples.

        Physics starts from what these say.
        """
        if self.physics is None:
            return self.records
        return tuple(self.physics.add(record, window=window) for record in self.records)

    @property
    def n_samples(self) -> int:
        """Samples of all records."""
        return sum(record.sizes["time"] for record in self.records)

    def default_window(self, narx: Narx) -> int:
        """Return the window that the records state.

        Where they state nothing, it is what physics needs to start from, or the largest lag.
        """
        if self.physics is not None and self.physics.physics.initial_parameters:
            return max(map(self.physics.n_first, self.records))
        stated = max(int(record.attrs["initialisation_window"]) for record in self.records)
        return stated or max(narx.max_lag, 1)

    @property
    def controller(self) -> Controller | None:
        """Controller that closes a loop around the plant; None without one."""
        return None if self.plant is None or self.plant.is_open_loop else self.plant.controller


def find_material(
    given: Recordings | Plant, *, part: str | None, duration: float | str, seed: int
) -> Material:
    """Select one part of the records, or simulate the plant.

    Raises
    ------
    ValueError, ArithmeticError
        No record of the wanted part; whatever the simulation refuses.
    """
    if isinstance(given, Recordings):
        return select_records(given, part)
    return simulate_material(given, duration, seed)


def simulate_material(plant: Plant, duration: float | str, seed: int) -> Material:
    """Simulate a plant for a duration, in seconds or with its unit.

    Raises
    ------
    ValueError, ArithmeticError
        A duration that is none, whatever the simulation refuses.
    """
    name = type(plant.system).__name__
    record = plant.trajectory(plant.n_samples(duration), seed).to_dataset()
    record = record.assign_attrs(
        name=name, sampling_time=float(plant.system.dt), initialisation_window=0
    )
    recordings = Recordings(name, tuple(plant.inputs), tuple(plant.outputs), test=(record,))
    return Material(
        recordings,
        "simulation",
        (record,),
        OF_THE_MODEL | {"part", "on_missing"} | plant.unused,
        plant,
    )


def select_records(recordings: Recordings, part: str | None = None) -> Material:
    """Select the records of one part.

    Without a name it is the test, or the validation where there is no test record.

    Raises
    ------
    ValueError
        If there are none.
    """
    there = [role for role in RECORD_ROLES if getattr(recordings, role)]
    wanted = part or next((role for role in ("test", "validation") if role in there), "test")
    if wanted not in there:
        others = (
            f"only {', '.join(there)}: name one (data.{wanted}=...), or choose with part={there[0]}"
        )
        raise UserError(f"{recordings.name} has no {wanted} record, {others}")
    return Material(recordings, wanted, getattr(recordings, wanted), SIMULATION_KEYS | OF_THE_MODEL)


def add_physics(material: Material, model: str | Path, trusted: Sequence[str]) -> Material:
    """Add the physics that the file of a model states to what the model is validated on.

    Raises
    ------
    ValueError
        Signals that the physics does not fit.
    """
    if "physics" not in (stated := header(model)):
        return material
    physics = read_physics(str(stated["physics"]), list(trusted))
    physics.physics.check(material.source.inputs, material.source.outputs, material.source.name)
    return replace(material, physics=physics)


def check_signals(joint: JointModel, material: Material, left_out: Sequence[str]) -> None:
    """Refuse records whose signals are not those of the model; nothing is guessed.

    Raises
    ------
    ValueError
        A model or a table without time; a signal that is missing, that the model does not know, or
        that is an input on one side and an output on the other; a name in `left_out` that is no
        such signal.
    """
    source = material.source
    physics = () if material.physics is None else material.physics.physics.signals
    if joint.models[0].narx.max_lag == 0 and not physics:
        raise UserError(
            "the model has no lags, it is a static function: there is nothing to simulate"
        )
    if source.is_static:
        raise UserError(f"{source.name} is a table without time: there is nothing to simulate")
    has = f"{source.name} has outputs {list(source.outputs)} and inputs {list(source.inputs)}"
    surplus: list[str] = []
    roles = {
        "outputs": (joint.output_names, source.outputs),
        "inputs": (joint.input_names, (*source.inputs, *physics)),
    }
    for role, (names, given) in roles.items():
        if missing := [name for name in names if name not in given]:
            advice = "give every signal the name and the role that it has in the model"
            raise UserError(f"the model needs the {role} {missing}, {has}: {advice}")
        surplus += [name for name in given if name not in names and name not in physics]
    if unknown := [name for name in left_out if name not in surplus]:
        raise UserError(
            f"left_out: {unknown} is no signal that the model does without, these are {surplus}; {has}"
        )
    if unexpected := [name for name in surplus if name not in left_out]:
        advice = f"ignore them with left_out=[{','.join(surplus)}], or identify a model with them"
        raise UserError(
            f"the model does not know the signals {unexpected} of {source.name}: {advice}"
        )
