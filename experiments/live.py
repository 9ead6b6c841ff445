"""A simulated plant as a live source of samples."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.automatic import AutomaticNarx
from experiments.plant import Plant, plant_of
from experiments.simulation import LiveSimulation, Simulation
from experiments.source import Segment, Source
from simulators import substep_error
from sysid import Measurement, Narx

WORST_STEP = 1e-3  # error of one sample by its Runge-Kutta steps, in standard deviations of the change of the output


@dataclass
class LiveSource(Source):
    """Samples of one simulation."""

    plant: Plant
    n_samples: int
    n_identified: int
    seed: int
    duration: str  # as it was written
    simulation: Simulation

    def __post_init__(self) -> None:
        self.title, self.activity = type(self.plant.system).__name__, "simulation"
        self.outputs, self.inputs = self.plant.outputs, self.plant.inputs

    @property
    def unused(self) -> frozenset[str]:
        """Excitations, where the controller and the weather drive all inputs, or there is none."""
        return frozenset() if self.plant.excitations else frozenset({"excitation", "excited", "operating_point"})

    @property
    def n_seen(self) -> int:
        """Samples simulated so far."""
        return self.simulation.n_seen

    @property
    def end_of_identification(self) -> float:
        """Time of the last sample to identify from, rounded up by half a sample [s]."""
        return (self.n_identified - 0.5) * self.plant.system.dt

    def segments(self) -> Iterator[Segment]:
        """The first part of the one record."""
        yield Segment(0, self.simulation.until(self.n_identified))

    def finish(self) -> Iterator[Measurement]:
        """Simulate the rest."""
        return self.simulation.until(self.n_samples)

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples come after the identified part."""
        return time > self.end_of_identification

    def records(self) -> Sequence[xr.Dataset]:
        """All samples seen so far, with what the controller aims at."""
        plant = self.plant
        dataset = self.simulation.record().to_dataset().assign_attrs(idle_inputs=json.dumps(plant.idle))
        aims = plant.controller.references(dataset["time"].values)
        if not aims:
            return [dataset]
        unit = dataset[plant.controller.outputs_read[0]].attrs["units"]
        return [
            dataset.assign(
                {
                    name: ("time", np.asarray(aim.values), {"units": unit, "long_name": aim.description})
                    for name, aim in aims.items()
                }
            )
        ]

    def warnings(self) -> list[str]:
        """Runge-Kutta steps that are too large, tanks that ran over."""
        if self.n_seen < 2:
            return []
        system = self.plant.system
        found, record = [], self.simulation.record()
        if (error := substep_error(record)) > WORST_STEP:
            found.append(
                f"{system.substeps} substeps per sample are inaccurate: twice as many change an output by {error:.2g} "
                "standard deviations of its change over a sample; raise system.substeps"
            )
        if record.n_clipped:
            total = system.substeps * (self.n_seen - 1)
            found.append(f"a state was at its limit in {record.n_clipped} of {total} Runge-Kutta steps")
        return found

    def lags(self, automatic: AutomaticNarx) -> tuple[Narx, str]:
        """Lags of the linearised dynamics along a simulation of their own."""
        return automatic.of_plant(self.plant, self.n_samples, self.seed)

    def check(self, narx: Narx, n_needed: int) -> None:
        """Refuse a simulation that is too short."""
        if self.n_identified < n_needed:
            raise ValueError(
                f"duration {self.duration} (a number without a unit is in seconds) times identified gives "
                f"{self.n_identified} samples of {self.plant.system.dt:g} s to identify from, expected at least "
                f"{n_needed} (lags + training.n_initial + 1); write a longer one, such as 30d or 5000samples, or a "
                "smaller training.n_initial"
            )


def live_source(config: DictConfig, simulation: Callable[[Plant, int, int], Simulation] = LiveSimulation) -> LiveSource:
    """Simulation of the configured plant.

    Parameters
    ----------
    config
        Composed from conf/identify.yaml.
    simulation
        Makes the simulation of a plant from its number of samples and the seed.

    Raises
    ------
    ValueError
        Durations and fractions that leave nothing to identify; whatever the parts refuse.
    """
    plant = plant_of(config)
    n_samples = plant.n_samples(config.duration)
    if not isinstance(config.identified, int | float) or not 0 < config.identified <= 1:
        raise ValueError(f"identified must be a fraction above 0 and at most 1, got {config.identified}")
    n_identified = int(config.identified * (n_samples - 1)) + 1
    made = simulation(plant, n_samples, config.seed)
    return LiveSource(plant, n_samples, n_identified, config.seed, str(config.duration), made)
