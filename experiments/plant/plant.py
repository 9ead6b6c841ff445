"""The simulated plant of a configuration: a system, and where each of its inputs comes from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, ListConfig

import simulators
from experiments.cli.build import build, build_all
from experiments.cli.options import choice, samples_of
from simulators import Interpolation, NoExcitation, OpenLoop, Sample, System, Trajectory
from sysid.errors import UserError
from sysid.narx.record import check_name

# error of one sample by its Runge-Kutta steps, in standard deviations of the change of the output
WORST_STEP = 1e-3


@dataclass(frozen=True)
class Plant:
    """A system with its controller, weather, excitations and measurement noise."""

    system: System
    controller: simulators.Controller
    weather: Mapping[str, simulators.Weather]  # by the input that it drives
    excitations: Mapping[str, simulators.Excitation]  # by input
    measurement: simulators.MeasurementNoise
    interpolation: Interpolation

    def __post_init__(self) -> None:
        """Check that every signal has a name for files, and every input one source.

        Raises
        ------
        ValueError
            Such a name, an input with two sources, or a source for an input that does not exist.
        """
        for name in (*self.inputs, *self.outputs):
            check_name(name)
        title = type(self.system).__name__
        advice = "take another option (controller=, weather=, excitation=none)"
        taken: dict[str, str] = {}
        sources = {"weather": [*self.weather], "excitation": [*self.excitations]}
        for source, names in {
            "the controller": self.controller.inputs_driven,
            **sources,
        }.items():
            for name in names:
                if name not in self.inputs:
                    has = f"{title} has {sorted(self.inputs) or 'no inputs'}"
                    raise UserError(f"{source} drives the input {name!r}, {has}; {advice}")
                if name in taken:
                    both = f"{taken[name]} and by {source} (excited=[...] names inputs)"
                    raise UserError(f"input {name!r} of {title} is driven by {both}; {advice}")
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
        moved = {name for name, e in self.excitations.items() if e != NoExcitation()}
        driven = {*self.controller.inputs_driven, *self.weather, *moved}
        return [name for name in self.inputs if name not in driven]

    @property
    def unused(self) -> frozenset[str]:
        """Keys of the configuration without effect: those of excitations, where no input is
        excited.
        """
        return (
            frozenset()
            if self.excitations
            else frozenset({"excitation", "excited", "operating_point"})
        )

    @property
    def is_open_loop(self) -> bool:
        """Whether no input depends on an output."""
        return not self.controller.inputs_driven

    def n_samples(self, duration: float | str) -> int:
        """Count the samples of a duration, that at time zero included."""
        return samples_of(duration, self.system.dt)

    def exogenous(
        self, n_samples: int, seed: int, *, transient: int = 0
    ) -> dict[str, NDArray[np.float64]]:
        """Make the inputs (transient + n,) that do not depend on the outputs.

        They are weather, excitation, or zero.

        A periodic excitation is that of n samples, continued backwards over the transient: the last
        n samples hold the same periods as without a transient.

        Raises
        ------
        ValueError
            An excitation beyond the physical limits of its input; a band-limited input without
            whole periods.
        """
        n = transient + n_samples
        time = self.system.dt * np.arange(n)
        signals = {name: np.zeros(n) for name in self.idle}
        signals |= {
            name: weather.temperature(time, seed=seed) for name, weather in self.weather.items()
        }
        signals |= self._excited(n_samples, transient, seed)
        self._check_limits(signals)
        if self.interpolation is Interpolation.band_limited:
            self._check_periods(n_samples, transient)
        return {name: signals[name] for name in self.inputs if name in signals}

    def _excited(self, n_samples: int, transient: int, seed: int) -> dict[str, NDArray[np.float64]]:
        """Excitations (transient + n,) by input."""
        dt = self.system.dt
        periods = {
            name: e.period_samples(n_samples, dt) or 0 for name, e in self.excitations.items()
        }
        short = {
            name: self.excitations[name]
            for name, period in periods.items()
            if 0 < period <= n_samples
        }
        lasting = {name: e for name, e in self.excitations.items() if name not in short}
        signals = dict(simulators.excite(lasting, transient + n_samples, dt, seed))
        for name, values in simulators.excite(short, n_samples, dt, seed).items():
            signals[name] = values[np.arange(-transient, n_samples) % periods[name]]
        return signals

    def _check_limits(self, signals: Mapping[str, NDArray[np.float64]]) -> None:
        """Refuse excitations that the plant cannot have."""
        for (name, unit, _), low, high in zip(
            self.system.inputs, *self.system.input_limits(), strict=True
        ):
            if name in self.excitations and (
                signals[name].min() < low or signals[name].max() > high
            ):
                goes = f"goes from {signals[name].min():.4g} to {signals[name].max():.4g} {unit}"
                takes = f"{type(self.system).__name__} takes {low:g} to {high:g} {unit}"
                advice = (
                    "choose its offset and amplitude (excitation.offset, .rms, .amplitude, ...)"
                )
                raise UserError(
                    f"the excitation of {name!r} {goes}, {takes}: {advice} so that it stays inside"
                )

    def _check_periods(self, n_samples: int, transient: int) -> None:
        """Refuse inputs whose end does not join their start."""
        n = n_samples + transient
        advice = f"take an excitation with a period that divides the {n} simulated samples, or interpolation=linear"
        if self.weather:
            given = f"{list(self.weather)} are weather"
            raise UserError(f"interpolation=band_limited needs periodic inputs, {given}; {advice}")
        for name, excitation in self.excitations.items():
            period = excitation.period_samples(n_samples, self.system.dt)
            if period is None and not isinstance(excitation, NoExcitation):
                raise UserError(
                    f"interpolation=band_limited needs periodic inputs, {name!r} is not; {advice}"
                )
            if period is not None and n % period:
                raise UserError(
                    f"interpolation=band_limited: the period of {name!r} is {period} samples; {advice}"
                )

    def samples(self, n_samples: int, seed: int) -> Iterator[Sample]:
        """Simulate sample by sample."""
        return self._loop(self.exogenous(n_samples, seed), n_samples=n_samples, seed=seed)

    def _loop(self, signals: dict[str, NDArray[np.float64]], **settings: Any) -> Iterator[Sample]:
        settings |= {
            "interpolation": self.interpolation,
            "measurement": self.measurement,
        }
        return simulators.closed_loop(self.system, self.controller, signals, **settings)

    def trajectory(
        self,
        n_samples: int,
        seed: int,
        *,
        transient: int = 0,
        initial_state: NDArray[np.float64] | None = None,
    ) -> Trajectory:
        """Simulate as a whole, transient first: without one the same numbers as `samples`, faster
        in open loop.
        """
        signals = self.exogenous(n_samples, seed, transient=transient)
        settings: dict[str, Any] = {
            "n_samples": transient + n_samples,
            "seed": seed,
            "initial_state": initial_state,
        }
        if not self.is_open_loop:
            samples = self._loop(signals, **settings)
            return simulators.collect(
                samples, self.system, seed=seed, interpolation=self.interpolation
            )
        settings |= {
            "interpolation": self.interpolation,
            "measurement": self.measurement,
        }
        u = np.stack([signals[name] for name in self.inputs], axis=1) if signals else None
        return simulators.simulate(self.system, u, **settings)


def plant_of(config: DictConfig) -> Plant:
    """Plant of the configured system, controller, weather, excitation and noise.

    Raises
    ------
    ValueError
        Whatever the parts refuse, and inputs with two sources.
    """
    if "_target_" not in config.system:
        raise UserError(
            "no system to simulate (system=none): choose one, such as system=building, or a data=..."
        )
    system: System = build(config, "system")
    closed = "_target_" in config.controller
    controller: simulators.Controller = (
        build(config, "controller") if closed else OpenLoop(system.dt)
    )
    weather = (
        {} if "_target_" not in config.weather else {config.weather_input: build(config, "weather")}
    )
    own = build_all(config, "excitations")
    taken = {*controller.inputs_driven, *weather, *own}
    excited = _check_excited(
        config.excited,
        [signal.name for signal in system.inputs if signal.name not in taken],
    )
    return Plant(
        system=system,
        controller=controller,
        weather=weather,
        excitations=dict.fromkeys(excited, build(config, "excitation") if excited else None) | own,
        measurement=build(config, "noise"),
        interpolation=choice("interpolation", Interpolation, config.interpolation),
    )


def _check_excited(excited: Any, free: list[str]) -> list[str]:
    """Return the inputs that have the common excitation.

    These are the inputs that ``excited`` lists, or all that are free if it is null.
    """
    chosen = free if excited is None else excited
    if not isinstance(chosen, list | ListConfig) or not all(
        isinstance(name, str) for name in chosen
    ):
        names = f"names of inputs, such as [{', '.join(free)}], or null for all that are free"
        raise UserError(f"excited must be a list of {names}, got {chosen!r}")
    return list(chosen)


def warn_of_integration(trajectories: Sequence[Trajectory]) -> list[str]:
    """Warn if the Runge-Kutta steps of simulations are too long for them; else say nothing."""
    error = max(map(simulators.substep_error, trajectories))
    substeps = trajectories[0].system.substeps
    if error <= WORST_STEP:
        return []
    change = f"{error:.2g} standard deviations of its change over a sample; raise system.substeps"
    return [
        f"{substeps} substeps per sample are inaccurate: twice as many change an output by {change}"
    ]
