"""Samples of a simulated plant, computed when they are asked for."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.plant.lags import AutomaticNarx
from experiments.plant.measured import Measured
from experiments.plant.physics import FittedPhysics, physics_of
from experiments.plant.plant import Plant, plant_of, warn_of_integration
from experiments.plant.source import SAMPLES_PER_BLOCK, identified_share
from simulators import Sample, Trajectory, collect
from sysid import (
    Identification,
    LagChoice,
    Measurement,
    Narx,
    Recordings,
    Settings,
    Start,
)
from sysid.errors import UserError

IDENTIFIED_SHARE = 0.5  # of a simulation, if nothing is said; the rest judges the model


class Simulation:
    """Samples of one simulation in their order, computed when they are asked for, and kept.

    Parameters
    ----------
    plant : Plant
    n_samples : int
    seed : int

    Raises
    ------
    ValueError
        What the plant refuses.
    """

    def __init__(self, plant: Plant, n_samples: int, seed: int) -> None:
        self._plant = plant
        self._seed = seed
        self.samples = plant.samples(n_samples, seed)
        self._simulated: list[Sample] = []
        self.n_seen = 0  # samples delivered so far; set it to 0 to have the same ones again
        self._collected: Trajectory | None = None

    def until(self, n_samples: int) -> Iterator[Measured]:
        """Deliver samples until `n_samples` have been in all; what ends the simulation follows its
        last sample.
        """
        for begin in range(self.n_seen, n_samples, SAMPLES_PER_BLOCK):
            reason = None
            end = min(begin + SAMPLES_PER_BLOCK, n_samples)
            try:
                self._simulated.extend(islice(self.samples, max(0, end - len(self._simulated))))
            except BaseException as error:
                reason = error
            if block := self._simulated[begin:end]:
                self.n_seen = begin + len(block)
                yield Measured(
                    np.array([sample.output for sample in block]),
                    np.array([s.input for s in block]),
                )
            if reason is not None:
                raise reason

    def record(self) -> Trajectory:
        """All samples delivered so far, collected once until the next one comes."""
        if self._collected is None or len(self._collected.time) != self.n_seen:
            plant = self._plant
            samples = self._simulated[: self.n_seen]
            self._collected = collect(
                samples,
                plant.system,
                seed=self._seed,
                interpolation=plant.interpolation,
            )
        return self._collected


@dataclass
class LiveSource:
    """Samples of one simulation."""

    plant: Plant
    n_samples: int
    n_identified: int
    seed: int
    duration: str  # as it was written
    simulation: Simulation
    physics: FittedPhysics | None = None  # simulated beside the plant
    lag_choice: LagChoice | None = field(
        default=None, init=False
    )  # held-out errors choose none here

    def __post_init__(self) -> None:
        self.title = type(self.plant.system).__name__
        self.activity = "simulation"
        self.outputs = self.plant.outputs
        self.inputs = self.plant.inputs
        self.unused = self.plant.unused
        self.unused |= {"propagation"}  # nothing is simulated
        if self.physics is not None:
            self.inputs = [*self.inputs, *self.physics.physics.signals]
            self.unused |= {
                f"physics.{name}" for name in ("free", "initial", "starts")
            }  # nothing is estimated

    @property
    def n_seen(self) -> int:
        """Samples simulated so far."""
        return self.simulation.n_seen

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """Yield the first part of the one record."""
        samples = self.simulation.until(self.n_identified)
        yield (samples if self.physics is None else self.physics.follow(samples, self.plant.inputs))

    def restart(self) -> None:
        """Begin again, without simulating again."""
        self.simulation.n_seen = 0

    def finish(self) -> Iterator[Measurement]:
        """Simulate the rest."""
        return self.simulation.until(self.n_samples)

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples come after the identified part."""
        return time > (self.n_identified - 0.5) * self.plant.system.dt

    is_judged = is_validation

    def records(self) -> Sequence[xr.Dataset]:
        """All samples seen so far, with what the controller aims at."""
        plant = self.plant
        dataset = (
            self.simulation.record().to_dataset().assign_attrs(idle_inputs=json.dumps(plant.idle))
        )
        for name, aim in plant.controller.references(dataset["time"].values).items():
            about = {
                "units": dataset[plant.controller.outputs_read[0]].attrs["units"],
                "long_name": aim.description,
            }
            dataset[name] = "time", np.asarray(aim.values), about
        physics = self.physics
        return [dataset if physics is None else physics.add(dataset, physics.physics.system)]

    def recordings(self) -> Recordings | None:
        """Nothing was recorded."""
        return None

    def warnings(self) -> list[str]:
        """Runge-Kutta steps that are too large, tanks that ran over."""
        if self.n_seen < 2:
            return []
        record = self.simulation.record()
        substeps = self.plant.system.substeps
        found = warn_of_integration([record])
        if record.n_clipped:
            total = substeps * (self.n_seen - 1)
            found.append(
                f"a state was at its limit in {record.n_clipped} of {total} Runge-Kutta steps"
            )
        return found

    def know(self, narx: Narx, settings: Settings) -> Start:
        """Nothing: samples come one after the other."""
        return Start()

    def calibrate(self, identification: Identification) -> None:
        """Nothing: one step ahead the bands follow the errors of the stream."""

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Lags of the linearised dynamics along a simulation of their own."""
        return automatic.of_plant(self.plant, self.n_samples, self.seed)

    def check(self, narx: Narx, n_needed: int) -> None:
        """Refuse a simulation that is too short."""
        if self.n_identified < n_needed:
            given = (
                f"duration {self.duration} (a number without a unit is in seconds) times identified"
            )
            samples = f"{self.n_identified} samples of {self.plant.system.dt:g} s to identify from"
            needed = f"{n_needed} (lags + training.n_initial + 1): write a longer one, such as 30d or 5000samples"
            raise UserError(f"{given} gives {samples}, expected at least {needed}")


def live_source(
    config: DictConfig, simulation: Callable[[Plant, int, int], Simulation] = Simulation
) -> LiveSource:
    """Build the source that simulates the configured plant.

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
    n_identified = int(identified_share(config.identified, IDENTIFIED_SHARE) * (n_samples - 1)) + 1
    made = simulation(plant, n_samples, config.seed)
    physics = physics_of(config)
    if physics is not None:
        physics.check(plant.inputs, plant.outputs, type(plant.system).__name__)
        if physics.interpolation != "held":
            raise UserError(
                f"physics.interpolation={physics.interpolation} is for records, a controller holds inputs"
            )
        physics = replace(physics, system=replace(physics.system, dt=plant.system.dt))
    fitted = None if physics is None else FittedPhysics(physics)
    return LiveSource(
        plant, n_samples, n_identified, config.seed, str(config.duration), made, fitted
    )
