"""What a model is validated on: the records of a source of data, or one simulation of a plant; and whether it fits."""

from collections.abc import Sequence
from dataclasses import dataclass

import xarray as xr
from omegaconf import DictConfig

from experiments.build import build
from experiments.plant import Plant, plant_of
from experiments.sources import SIMULATION, refuse_simulation
from simulators import Controller
from sysid import JointModel, Recordings
from sysid.data.source import ROLES

#: what systems and sources of data bring for an identification
OF_THE_MODEL = frozenset({"narx", "insertion", "on_missing"})


@dataclass(frozen=True, eq=False)
class Material:
    """Records of one part, and the plant that made them if there is one."""

    source: Recordings  # names of the signals
    part: str  # of the records, or simulation
    records: tuple[xr.Dataset, ...]
    unused: frozenset[str]  # keys of the configuration without effect
    plant: Plant | None = None

    @property
    def title(self) -> str:
        """Name of the system or of the data set."""
        return self.source.name

    @property
    def n_samples(self) -> int:
        """Samples of all records."""
        return sum(record.sizes["time"] for record in self.records)

    @property
    def controller(self) -> Controller | None:
        """Controller that closes a loop around the plant; None without one."""
        return None if self.plant is None or self.plant.is_open_loop else self.plant.controller


def read_material(config: DictConfig) -> Material:
    """Read the configured records, or simulate the configured plant.

    Raises
    ------
    ValueError, OSError, ArithmeticError
        Whatever the source or the simulation refuses; no record of the wanted part; neither data nor system.
    """
    if "_target_" in config.data:
        refuse_simulation(config)
        return select_records(build(config, "data").load(), config.part)
    if "_target_" not in config.system:
        raise ValueError(
            "nothing to validate on: choose records with data=..., such as data=cascaded_tanks, or a plant with "
            "system=..., such as system=building"
        )
    plant = plant_of(config)
    title = type(plant.system).__name__
    facts = {"name": title, "sampling_time": float(plant.system.dt), "initialisation_window": 0}
    record = plant.trajectory(plant.n_samples(config.duration), config.seed).to_dataset().assign_attrs(facts)
    recordings = Recordings(title, tuple(plant.inputs), tuple(plant.outputs), test=(record,))
    excitations = frozenset() if plant.excitations else frozenset({"excitation", "excited", "operating_point"})
    return Material(recordings, "simulation", (record,), OF_THE_MODEL | {"part"} | excitations, plant)


def select_records(recordings: Recordings, part: str | None = None) -> Material:
    """Records of one part; without a name the test records, or the validation records where there is no test.

    Raises
    ------
    ValueError
        If there are none.
    """
    there = [role for role in ROLES if getattr(recordings, role)]
    wanted = part or next((role for role in ("test", "validation") if role in there), "test")
    if wanted not in there:
        raise ValueError(
            f"{recordings.name} has no {wanted} record, only {', '.join(there)}: name one (data.{wanted}=...), or "
            f"choose with part={there[0]}"
        )
    return Material(recordings, wanted, getattr(recordings, wanted), SIMULATION | OF_THE_MODEL)


def check_signals(joint: JointModel, material: Material, left_out: Sequence[str]) -> None:
    """Refuse records whose signals are not those of the model; nothing is guessed.

    Raises
    ------
    ValueError
        A model or a table without time; a signal that is missing, that the model does not know, or that is an input
        on one side and an output on the other; a name in `left_out` that is no such signal.
    """
    title, source = material.title, material.source
    if joint.models[0].narx.max_lag == 0:
        raise ValueError(
            "the model has no lags, it is a static function: there is nothing to simulate; sysid-identify reports how "
            "well it predicts its test rows"
        )
    if source.is_static:
        raise ValueError(f"{title} is a table without time: there is nothing to simulate")
    surplus: list[str] = []
    for role, names, given in (
        ("outputs", joint.output_names, source.outputs),
        ("inputs", joint.input_names, source.inputs),
    ):
        if missing := [name for name in names if name not in given]:
            raise ValueError(
                f"the model needs the {role} {missing}, {title} has outputs {list(source.outputs)} and inputs "
                f"{list(source.inputs)}: give every signal the name and the role that it has in the model"
            )
        surplus += [name for name in given if name not in names]
    if unknown := [name for name in left_out if name not in surplus]:
        raise ValueError(
            f"left_out={list(left_out)}: {unknown} {'is' if len(unknown) == 1 else 'are'} no signal of {title} that "
            f"the model does without, these are {surplus}"
        )
    if unexpected := [name for name in surplus if name not in left_out]:
        raise ValueError(
            f"the model does not know the signals {unexpected} of {title}: if they may be ignored, say so with "
            f"left_out=[{','.join(surplus)}], else identify a model with them"
        )


def check_controller(joint: JointModel, controller: Controller) -> None:
    """Refuse a controller that cannot close its loop around the model.

    Raises
    ------
    ValueError
        An output that it reads and the model does not predict, an input that it drives and the model does not have,
        or that acts on the output of the same sample.
    """
    title = type(controller).__name__
    for verb, names, known in (
        ("reads the output", controller.outputs_read, joint.output_names),
        ("drives the input", controller.inputs_driven, joint.input_names),
    ):
        if missing := [name for name in names if name not in known]:
            raise ValueError(
                f"{title} {verb} {missing[0]!r}, the model has {list(known)}: its loop cannot be closed around this "
                "model; identify one with it, or take controller=none"
            )
    lags = joint.models[0].narx.lags
    if instant := [name for name in controller.inputs_driven if 0 in lags[name]]:
        raise ValueError(
            f"the model has lag 0 of {instant[0]!r}, which {title} sets after it has read the output of the same "
            "sample: identify a model without lag 0 of that input, or take controller=none"
        )
