"""The simulated plant of a configuration: a system, and the source of each of its inputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, ListConfig

import simulators
from experiments.cli.build import build, build_all
from experiments.cli.options import choice, samples_of
from experiments.plant.designed import DesignRun, Informative, check_design
from experiments.plant.predictive import ControlRun, Predictive
from simulators import Interpolation, NoExcitation, OpenLoop, Sample, System, Trajectory
from sysid.errors import UserError
from sysid.narx.record import check_name_in_record

# largest accepted error of an output that the Runge-Kutta steps of one sample cause, in standard
# deviations of the change of the output
MAX_INTEGRATION_ERROR = 1e-3


@dataclass(frozen=True)
class Plant:
    """A system with its controller, weather, excitations and measurement noise."""

    system: System
    controller: simulators.Controller
    weather: Mapping[str, simulators.Weather]  # by the input that it drives
    excitations: Mapping[str, simulators.Excitation]  # by input
    measurement: simulators.MeasurementNoise
    interpolation: Interpolation
    design: Mapping[str, Informative] = field(default_factory=dict)  # by input

    def __post_init__(self) -> None:
        """Check that all signals have names that files can hold, and all inputs at most one source.

        Raises
        ------
        ValueError
            If a file cannot hold a name, an input has two sources, or a source drives an input that
            does not exist.
        """
        for name in (*self.inputs, *self.outputs):
            check_name_in_record(name)
        title = type(self.system).__name__
        advice = "take another option (controller=, weather=, excitation=none)"
        driven_by: dict[str, str] = {}
        inputs_by_source = {
            "the controller": self.controller.inputs_driven,
            "weather": self.weather,
            "excitation": {**self.excitations, **self.design},
        }
        for source, names in inputs_by_source.items():
            for name in names:
                if name not in self.inputs:
                    existing = f"{title} has {sorted(self.inputs) or 'no inputs'}"
                    raise UserError(f"{source} drives the input {name!r}, {existing}; {advice}")
                if name in driven_by:
                    raise UserError(
                        f"input {name!r} of {title} is driven by {driven_by[name]} and by {source} "
                        f"(excited=[...] names inputs); {advice}"
                    )
                driven_by[name] = source
        check_design(self.design, self.system, is_driven=bool(self.controller.inputs_driven))
        if self.asks_a_model and self.measurement.snr_db is not None:
            raise UserError(
                "noise.snr_db: the noise would depend on inputs that depend on the noise "
                "(excitation=informative, controller=mpc); take noise.std"
            )

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
        """Names of the inputs that nothing drives: they are always 0."""
        excited = {
            name for name, excitation in self.excitations.items() if excitation != NoExcitation()
        }
        all_driven = {*self.driven, *self.weather, *excited}
        return [name for name in self.inputs if name not in all_driven]

    @property
    def unused(self) -> frozenset[str]:
        """Keys of the configuration without effect: those of excitations if no input is excited."""
        if self.excitations or self.design:
            return frozenset()
        return frozenset({"excitation", "excited", "operating_point"})

    @property
    def asks_a_model(self) -> bool:
        """Whether inputs are decided with the model that is identified while the plant runs."""
        return bool(self.design) or isinstance(self.controller, Predictive)

    @property
    def driven(self) -> tuple[str, ...]:
        """Names of the inputs that are decided sample by sample, and held between samples."""
        return (*self.controller.inputs_driven, *self.design)

    @property
    def is_open_loop(self) -> bool:
        """Whether no input depends on an output."""
        return not self.driven

    def n_samples(self, duration: float | str) -> int:
        """Return the number of samples of a duration, including that at time zero."""
        return samples_of(duration, self.system.dt)

    def exogenous(
        self, n_samples: int, seed: int, *, transient: int = 0
    ) -> dict[str, NDArray[np.float64]]:
        """Return the inputs (transient + n,) that do not depend on the outputs.

        They are weather, excitation, or zero. A periodic excitation is that of n samples, continued
        backwards over the transient: the last n samples hold the same periods as without a
        transient.

        Raises
        ------
        ValueError
            If an excitation exceeds the physical limits of its input, or a band-limited input has
            no whole number of periods.
        """
        n = transient + n_samples
        time = self.system.dt * np.arange(n)
        signals = {name: np.zeros(n) for name in self.idle}
        for name, weather in self.weather.items():
            signals[name] = weather.temperature(time, seed=seed)
        signals |= self._excitation_signals(n_samples, transient, seed)
        self._check_limits(signals)
        if self.interpolation is Interpolation.band_limited:
            self._check_periods(n_samples, transient)
        return {name: signals[name] for name in self.inputs if name in signals}

    def _excitation_signals(
        self, n_samples: int, transient: int, seed: int
    ) -> dict[str, NDArray[np.float64]]:
        """Return the excitations (transient + n,) by input."""
        dt = self.system.dt
        periods: dict[str, int] = {}  # samples, of excitations that repeat within the record
        periodic: dict[str, simulators.Excitation] = {}
        others: dict[str, simulators.Excitation] = {}
        for name, excitation in self.excitations.items():
            period = excitation.period_samples(n_samples, dt) or 0
            if 0 < period <= n_samples:
                periods[name] = period
                periodic[name] = excitation
            else:
                others[name] = excitation
        signals = dict(simulators.excite(others, transient + n_samples, dt, seed))
        for name, values in simulators.excite(periodic, n_samples, dt, seed).items():
            rows = np.arange(-transient, n_samples) % periods[name]
            signals[name] = values[rows]
        return signals

    def _check_limits(self, signals: Mapping[str, NDArray[np.float64]]) -> None:
        """Raise UserError if an excitation exceeds the limits of its input."""
        lows, highs = self.system.input_limits()
        for (name, unit, _), low, high in zip(self.system.inputs, lows, highs, strict=True):
            if name not in self.excitations:
                continue
            smallest = signals[name].min()
            largest = signals[name].max()
            if smallest < low or largest > high:
                raise UserError(
                    f"the excitation of {name!r} goes from {smallest:.4g} to {largest:.4g} {unit}, "
                    f"{type(self.system).__name__} takes {low:g} to {high:g} {unit}: choose its "
                    "offset and amplitude (excitation.offset, .rms, .amplitude, ...) so that it "
                    "stays inside"
                )

    def _check_periods(self, n_samples: int, transient: int) -> None:
        """Raise UserError unless all exogenous inputs are periodic in the simulated samples."""
        n = n_samples + transient
        advice = (
            f"take an excitation with a period that divides the {n} simulated samples, or "
            "interpolation=linear"
        )
        if self.weather:
            raise UserError(
                "interpolation=band_limited needs periodic inputs, "
                f"{list(self.weather)} are weather; {advice}"
            )
        for name, excitation in self.excitations.items():
            period = excitation.period_samples(n_samples, self.system.dt)
            if period is None and not isinstance(excitation, NoExcitation):
                raise UserError(
                    f"interpolation=band_limited needs periodic inputs, {name!r} is not; {advice}"
                )
            if period is not None and n % period:
                raise UserError(
                    f"interpolation=band_limited: the period of {name!r} is {period} samples; "
                    f"{advice}"
                )

    def samples(
        self,
        n_samples: int,
        seed: int,
        run: DesignRun | ControlRun | None = None,
        *,
        transient: int = 0,
        initial_state: NDArray[np.float64] | None = None,
    ) -> Iterator[Sample]:
        """Simulate sample by sample, the transient first.

        Where a model is asked, the inputs are those of the run. Without a run, no model decides.
        """
        signals = self.exogenous(n_samples, seed, transient=transient)
        return self._closed_loop(
            signals,
            run,
            n_samples=transient + n_samples,
            seed=seed,
            initial_state=initial_state,
        )

    def begin_decisions(
        self, signals: Mapping[str, NDArray[np.float64]], n_samples: int, seed: int
    ) -> DesignRun | ControlRun | None:
        """Return the decisions of a new simulation; None if no model is asked for the inputs.

        Parameters
        ----------
        signals
            Inputs (n,) that do not depend on the outputs, as `exogenous` returns them.
        n_samples
            Number of samples n of the simulation.
        seed
        """
        if self.design:
            return DesignRun(self.design, self.outputs, self.inputs, seed)
        if isinstance(self.controller, Predictive):
            n_more = self.controller.policy.horizon + 1
            longer = {name: self._prolong(name, signals[name], n_more, seed) for name in signals}
            return ControlRun(
                self.controller,
                self.system,
                longer,
                n_samples + n_more,
                uncertain=list(self.weather),
                seed=seed,
            )
        return None

    def _prolong(
        self, name: str, values: NDArray[np.float64], n_more: int, seed: int
    ) -> NDArray[np.float64]:
        """Return an input (n,) with `n_more` samples more, which a forecast may reach.

        Weather goes on, as far as its record does. Other signals, and the weather beyond the end of
        its record, keep the last value.
        """
        held = np.concatenate([values, np.repeat(values[-1:], n_more)])
        if name not in self.weather:
            return held
        time = self.system.dt * np.arange(len(held))
        try:
            return np.asarray(self.weather[name].temperature(time, seed=seed))
        except UserError:
            return held

    def _closed_loop(
        self,
        signals: dict[str, NDArray[np.float64]],
        run: DesignRun | ControlRun | None,
        *,
        seed: int,
        **settings: Any,
    ) -> Iterator[Sample]:
        """Simulate the system with its controller on exogenous inputs, sample by sample.

        Inputs about which a model decides are those of the run. Without a run, no model decides.
        """
        controller = self.controller
        run = run or self.begin_decisions(signals, settings["n_samples"], seed)
        if run is not None:
            controller = run.controller(self.system.dt)
        return simulators.closed_loop(
            self.system,
            controller,
            signals,
            seed=seed,
            **settings,
            interpolation=self.interpolation,
            measurement=self.measurement,
        )

    def measurement_std(self, trajectory: Trajectory, *, transient: int = 0) -> NDArray[np.float64]:
        """Return the standard deviations (n_y,) of the measurement noise in a whole simulation.

        A signal-to-noise ratio refers to the loop without measurement noise. A closed loop is
        simulated again for it.

        Parameters
        ----------
        trajectory : Trajectory
            Simulation of this plant, complete, with its transient.
        transient : int
            Samples of the transient.
        """
        noise_free_output = trajectory.noise_free_output
        if self.measurement.snr_db is not None and not self.is_open_loop:
            noise_free_loop = replace(self, measurement=simulators.MeasurementNoise()).trajectory(
                len(trajectory.time) - transient,
                trajectory.seed,
                transient=transient,
                initial_state=trajectory.state[0],
            )
            noise_free_output = noise_free_loop.noise_free_output
        return self.measurement.std_of(noise_free_output)

    def trajectory(
        self,
        n_samples: int,
        seed: int,
        *,
        transient: int = 0,
        initial_state: NDArray[np.float64] | None = None,
    ) -> Trajectory:
        """Simulate all samples at once, with the transient before them.

        Without a transient the numbers are those of `samples`. In open loop this method is faster.
        """
        signals = self.exogenous(n_samples, seed, transient=transient)
        settings: dict[str, Any] = {
            "n_samples": transient + n_samples,
            "seed": seed,
            "initial_state": initial_state,
        }
        if not self.is_open_loop:
            samples = self._closed_loop(signals, None, **settings)
            return simulators.collect(
                samples, self.system, seed=seed, interpolation=self.interpolation
            )
        u = np.stack([signals[name] for name in self.inputs], axis=1) if signals else None
        return simulators.simulate(
            self.system,
            u,
            **settings,
            interpolation=self.interpolation,
            measurement=self.measurement,
        )


def plant_of(config: DictConfig) -> Plant:
    """Return the plant of the configured system, controller, weather, excitations and noise.

    Raises
    ------
    ValueError
        If there is no system, a part refuses its settings, or an input has two sources.
    """
    if "_target_" not in config.system:
        raise UserError(
            "no system to simulate (system=none): choose one, such as system=building, or a "
            "data=..."
        )
    system: System = build(config, "system")
    controller: simulators.Controller = OpenLoop(system.dt)
    if "_target_" in config.controller:
        controller = build(config, "controller")
    weather: dict[str, simulators.Weather] = {}
    if "_target_" in config.weather:
        weather[config.weather_input] = build(config, "weather")
    excitations_by_input = build_all(config, "excitations")
    driven = {*controller.inputs_driven, *weather, *excitations_by_input}
    free = [signal.name for signal in system.inputs if signal.name not in driven]
    excited = _check_excited(config.excited, free)
    common = build(config, "excitation") if excited else None
    by_input: dict[str, Any] = dict.fromkeys(excited, common) | excitations_by_input
    design = {name: one for name, one in by_input.items() if isinstance(one, Informative)}
    return Plant(
        system=system,
        controller=controller,
        weather=weather,
        excitations={name: one for name, one in by_input.items() if name not in design},
        design=design,
        measurement=build(config, "noise"),
        interpolation=choice("interpolation", Interpolation, config.interpolation),
    )


def _check_excited(excited: Any, free: list[str]) -> list[str]:
    """Return the inputs that have the common excitation.

    These are the inputs that ``excited`` lists, or all that are free if it is null.

    Raises
    ------
    ValueError
        If it is anything but a list of names or null.
    """
    chosen = free if excited is None else excited
    is_list = isinstance(chosen, list | ListConfig)
    if not is_list or not all(isinstance(name, str) for name in chosen):
        raise UserError(
            f"excited must be a list of names of inputs, such as [{', '.join(free)}], or null for "
            f"all that are free, got {chosen!r}"
        )
    return list(chosen)


def warn_of_integration(trajectories: Sequence[Trajectory]) -> list[str]:
    """Return a warning if the Runge-Kutta steps of simulations are too long, else an empty list."""
    error = max(map(simulators.substep_error, trajectories))
    substeps = trajectories[0].system.substeps
    if error <= MAX_INTEGRATION_ERROR:
        return []
    return [
        f"{substeps} substeps per sample are inaccurate: twice as many change an output by "
        f"{error:.2g} standard deviations of its change over a sample; raise system.substeps"
    ]
