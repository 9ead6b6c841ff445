"""A simulated closed loop as a live source of samples."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.build import build
from experiments.duration import seconds
from simulators import Sample, System, closed_loop, collect
from simulators.controllers.pi import PI


@dataclass
class LiveSource:
    """Samples of a closed loop, computed when they are asked for and kept."""

    system: System
    controller: PI
    samples: Iterator[Sample]
    n_samples: int
    n_identified: int
    seed: int
    seen: list[Sample] = field(default_factory=list)

    @property
    def outputs(self) -> list[str]:
        """Names of the columns of a sample's output."""
        return [signal.name for signal in self.system.outputs]

    @property
    def inputs(self) -> list[str]:
        """Names of the columns of a sample's input."""
        return [signal.name for signal in self.system.inputs]

    @property
    def end_of_identification(self) -> float:
        """Time of the last sample to identify from, rounded up by half a sample [s]."""
        return (self.n_identified - 0.5) * self.system.dt

    def advance(self, n_samples: int) -> Iterator[Sample]:
        """Yield the next samples until `n_samples` have been seen in all."""
        while len(self.seen) < n_samples:
            sample = next(self.samples)
            self.seen.append(sample)
            yield sample

    def trajectory(self) -> xr.Dataset:
        """All samples seen so far, with the comfort band and the set-point of the controller."""
        dataset = collect(self.seen, self.system, seed=self.seed).to_dataset()
        schedule, time = self.controller.schedule, dataset["time"].values
        band = {
            "comfort_lower": (schedule.lower(time), "lower bound of the comfort band"),
            "comfort_upper": (schedule.upper(time), "upper bound of the comfort band"),
            "set_point": (schedule.set_point(time), "set-point of the controller"),
        }
        variables = {
            name: ("time", np.asarray(values), {"units": "degC", "long_name": meaning})
            for name, (values, meaning) in band.items()
        }
        return dataset.assign(variables)


def live_source(config: DictConfig) -> LiveSource:
    """Closed loop of the configured system, controller and weather.

    Raises
    ------
    ValueError
        Durations and fractions that leave nothing to identify; whatever the parts refuse.
    """
    system, controller = build(config, "system"), build(config, "controller")
    n_samples = math.floor(seconds(config.duration) / system.dt * (1 + 1e-12)) + 1
    if not isinstance(config.identified, int | float) or not 0 < config.identified <= 1:
        raise ValueError(f"identified must be a fraction above 0 and at most 1, got {config.identified}")
    n_identified = math.floor(config.identified * (n_samples - 1)) + 1
    time = system.dt * np.arange(n_samples)
    weather = build(config, "weather").temperature(time, seed=config.seed)
    names = [signal.name for signal in system.inputs if signal.name not in controller.inputs_driven]
    if len(names) != 1:
        raise ValueError(
            f"expected one input of the system that the controller does not drive, for the weather, got {names}"
        )
    loop = closed_loop(system, controller, {names[0]: weather}, seed=config.seed)
    return LiveSource(system, controller, loop, n_samples, n_identified, config.seed)
