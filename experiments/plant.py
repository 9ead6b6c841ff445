"""The simulated plant of a configuration: a system, and where each of its inputs comes from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from experiments.build import build, build_all, choice
from experiments.duration import samples_of
from simulators import Interpolation, MeasurementNoise, Sample, System, Trajectory, closed_loop, collect, simulate
from simulators.controllers.controller import Controller
from simulators.controllers.open_loop import OpenLoop
from simulators.excitation.excitation import Excitation, excite
from simulators.weather.weather import Weather


@dataclass(frozen=True)
class Plant:
    """A system with its controller, weather, excitations and measurement noise."""

    system: System
    controller: Controller
    weather: Mapping[str, Weather]  # by the input that it drives
    excitations: Mapping[str, Excitation]  # by input
    measurement: MeasurementNoise
    interpolation: Interpolation

    def __post_init__(self) -> None:
        """Check that every input has one source.

        Raises
        ------
        ValueError
            An input with two sources, or a source for an input that does not exist.
        """
        known = set(self.inputs)
        sources = {
            "the controller": self.controller.inputs_driven,
            "weather": self.weather,
            "excitation": self.excitations,
        }
        title = type(self.system).__name__
        taken: dict[str, str] = {}
        for source, names in sources.items():
            for name in names:
                if name not in known:
                    raise ValueError(
                        f"{source} drives the input {name!r}, {title} has {sorted(known) or 'no inputs'}; name one of "
                        f"these, or take another option (controller=none, weather=none, excitation=none)"
                    )
                if name in taken:
                    raise ValueError(
                        f"input {name!r} of {title} is driven by {taken[name]} and by {source}; leave one of them out "
                        "(excited=[...] names the inputs to excite)"
                    )
                taken[name] = source

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs."""
        return [signal.name for signal in self.system.inputs]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [signal.name for signal in self.system.outputs]

    @property
    def idle(self) -> list[str]:
        """Inputs that nothing drives: they are 0 all the time."""
        driven = {*self.controller.inputs_driven, *self.weather, *self.excitations}
        return [name for name in self.inputs if name not in driven]

    @property
    def is_open_loop(self) -> bool:
        """Whether no input depends on an output."""
        return not self.controller.inputs_driven

    def n_samples(self, duration: float | str) -> int:
        """Samples of a duration, that at time zero included."""
        return samples_of(duration, self.system.dt)

    def exogenous(self, n_samples: int, seed: int) -> dict[str, NDArray[np.float64]]:
        """Inputs (n,) that do not depend on the outputs: weather, excitation, zero."""
        time = self.system.dt * np.arange(n_samples)
        signals = {name: np.zeros(n_samples) for name in self.idle}
        signals |= {name: weather.temperature(time, seed=seed) for name, weather in self.weather.items()}
        return signals | dict(excite(self.excitations, n_samples, self.system.dt, seed))

    def samples(self, n_samples: int, seed: int) -> Iterator[Sample]:
        """Simulate sample by sample."""
        return closed_loop(
            self.system,
            self.controller,
            self.exogenous(n_samples, seed),
            n_samples=n_samples,
            interpolation=self.interpolation,
            seed=seed,
            measurement=self.measurement,
        )

    def trajectory(self, n_samples: int, seed: int) -> Trajectory:
        """Simulate as a whole: the same numbers as `samples`, faster in open loop."""
        if not self.is_open_loop:
            samples = self.samples(n_samples, seed)
            return collect(samples, self.system, seed=seed, interpolation=self.interpolation)
        signals = self.exogenous(n_samples, seed)
        return simulate(
            self.system,
            np.stack([signals[name] for name in self.inputs], axis=1) if signals else None,
            n_samples=n_samples,
            interpolation=self.interpolation,
            seed=seed,
            measurement=self.measurement,
        )


def plant_of(config: DictConfig) -> Plant:
    """Plant of the configured system, controller, weather, excitation and noise.

    Raises
    ------
    ValueError
        Whatever the parts refuse, and inputs with two sources.
    """
    if "_target_" not in config.system:
        raise ValueError("no system to simulate (system=none): choose one, such as system=building, or a data=...")
    system: System = build(config, "system")
    closed = "_target_" in config.controller
    controller: Controller = build(config, "controller") if closed else OpenLoop(system.dt)
    weather = {} if "_target_" not in config.weather else {config.weather_input: build(config, "weather")}
    return Plant(
        system=system,
        controller=controller,
        weather=weather,
        excitations=_excitations(config, system, {*controller.inputs_driven, *weather}),
        measurement=build(config, "noise"),
        interpolation=choice("interpolation", Interpolation, config.interpolation),
    )


def _excitations(config: DictConfig, system: System, taken: set[str]) -> dict[str, Excitation]:
    """Excitation of every input: its own, or the common one if it is to be excited."""
    own = build_all(config, "excitations")
    free = [signal.name for signal in system.inputs if signal.name not in taken | set(own)]
    chosen: Any = free if config.excited is None else OmegaConf.to_object(config.excited)
    if not isinstance(chosen, list) or not all(isinstance(name, str) for name in chosen):
        raise ValueError(f"excited must be a list of names of inputs, or null for all that are free, got {chosen!r}")
    common = build(config, "excitation") if chosen else None
    return dict.fromkeys(chosen, common) | own
