"""What a model is validated on: the records of a source of data, or one simulation of a plant."""

from dataclasses import dataclass

import xarray as xr
from omegaconf import DictConfig

from experiments.build import build
from experiments.plant import Plant, plant_of
from experiments.sources import SIMULATION, refuse_simulation
from experiments.validation.options import Options
from sysid import Recordings
from sysid.data.source import ROLES

#: what systems and sources of data bring for an identification
OF_THE_MODEL = frozenset({"narx", "insertion", "on_missing"})


@dataclass(frozen=True, eq=False)
class Material:
    """Records of one part, and the plant that made them if there is one."""

    title: str
    part: str  # of the records, or simulation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    records: tuple[xr.Dataset, ...]
    is_static: bool
    unused: frozenset[str]  # keys of the configuration without effect
    plant: Plant | None = None

    @property
    def n_samples(self) -> int:
        """Samples of all records."""
        return sum(record.sizes["time"] for record in self.records)

    @property
    def stated_window(self) -> int:
        """Largest initialisation window that the records state."""
        return max(int(record.attrs["initialisation_window"]) for record in self.records)


def material_of(config: DictConfig, options: Options) -> Material:
    """Read the configured records, or simulate the configured plant.

    Raises
    ------
    ValueError, OSError, ArithmeticError
        Whatever the source or the simulation refuses; no record of the wanted part; neither data nor system.
    """
    if "_target_" in config.data:
        refuse_simulation(config)
        return recorded_material(build(config, "data").load(), options.part)
    if "_target_" not in config.system:
        raise ValueError(
            "nothing to validate on: choose records with data=..., such as data=cascaded_tanks, or a plant with "
            "system=..., such as system=building"
        )
    return _simulated(config, options.seed)


def recorded_material(recordings: Recordings, part: str | None) -> Material:
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
    return Material(
        title=recordings.name,
        part=wanted,
        inputs=recordings.inputs,
        outputs=recordings.outputs,
        records=tuple(getattr(recordings, wanted)),
        is_static=recordings.is_static,
        unused=SIMULATION | OF_THE_MODEL,
    )


def _simulated(config: DictConfig, seed: int) -> Material:
    plant = plant_of(config)
    n_samples = plant.n_samples(config.duration)
    record = plant.trajectory(n_samples, seed).to_dataset()
    title = type(plant.system).__name__
    facts = {"name": title, "sampling_time": float(plant.system.dt), "initialisation_window": 0}
    excitations = frozenset({"excitation", "excited", "operating_point"})
    return Material(
        title=title,
        part="simulation",
        inputs=tuple(plant.inputs),
        outputs=tuple(plant.outputs),
        records=(record.assign_attrs(facts),),
        is_static=False,
        unused=OF_THE_MODEL | {"part"} | (frozenset() if plant.excitations else excitations),
        plant=plant,
    )
