"""Samples of a simulated plant, computed when they are needed."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.plant.designed import DesignRun
from experiments.plant.lags import AutomaticNarx
from experiments.plant.limit import LIMIT_OF_NOTHING, LIMIT_OF_PART, Limit, find_limit
from experiments.plant.measured import Measured
from experiments.plant.physics import FittedPhysics, Physics, physics_of
from experiments.plant.plant import Plant, plant_of, warn_of_integration
from experiments.plant.predictive import ControlRun, Predictive
from experiments.plant.source import SAMPLES_PER_BLOCK, identified_share
from simulators import Sample, Trajectory, collect
from sysid import (
    BudgetChoice,
    DeadTimes,
    Identification,
    LagChoice,
    Measurement,
    Narx,
    Recordings,
    Screened,
    Settings,
    Start,
)
from sysid.beside import SHARE_TIMEOUT, Beside
from sysid.errors import UserError

# fraction of a simulation that is identified by default; the rest validates the model
IDENTIFIED_SHARE_OF_SIMULATION = 0.5

# the same where a predictive controller uses the model, which goes on learning
IDENTIFIED_SHARE_OF_CONTROL = 0.9


class Simulation:
    """Samples of one simulation in their order, computed when they are needed, and kept.

    Parameters
    ----------
    plant : Plant
    n_samples : int
        Without the transient.
    seed : int
    transient : int
        Samples before the others, which are delivered, too.
    initial_state : (n_x,), optional
        State at the first sample; None: that of the system.

    Raises
    ------
    ValueError
        If the plant refuses its settings.
    """

    _limit_beside: Beside[Limit] | None = None  # the limit, while a second process computes it
    #: what decides about inputs with the model, while the plant is identified
    decisions: DesignRun | ControlRun | None = None

    def __init__(
        self,
        plant: Plant,
        n_samples: int,
        seed: int,
        *,
        transient: int = 0,
        initial_state: np.ndarray | None = None,
    ) -> None:
        self._plant = plant
        self._n_samples = n_samples
        self._seed = seed
        if plant.asks_a_model:
            signals = plant.exogenous(n_samples, seed, transient=transient)
            self.decisions = plant.begin_decisions(signals, transient + n_samples, seed)
        self.samples = plant.samples(
            n_samples, seed, self.decisions, transient=transient, initial_state=initial_state
        )
        self._simulated: list[Sample] = []
        self.n_seen = 0  # samples delivered so far; 0 delivers the same ones again
        self._collected: Trajectory | None = None

    def until(self, n_samples: int) -> Iterator[Measured]:
        """Yield blocks of samples until `n_samples` have been delivered in all.

        An error that ends the simulation is raised after its last sample. Where a model decides
        about inputs, a block ends before the next decision: all samples until then are learned.
        """
        begin = self.n_seen
        while begin < n_samples:
            reason = None
            size = SAMPLES_PER_BLOCK
            if self.decisions is not None and begin == len(self._simulated):
                self.decisions.plan(self._simulated)
                size = self.decisions.n_ready
            end = min(begin + size, n_samples)
            n_missing = max(0, end - len(self._simulated))
            try:
                self._simulated.extend(islice(self.samples, n_missing))
            except BaseException as error:
                reason = error
            block = self._simulated[begin:end]
            if block:
                self.n_seen = begin + len(block)
                yield Measured(
                    np.array([sample.output for sample in block]),
                    np.array([sample.input for sample in block]),
                )
            if reason is not None:
                raise reason
            begin = end

    def record(self) -> Trajectory:
        """Return all samples delivered so far; the result is kept until the next one comes."""
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

    def begin_limit(self) -> None:
        """Begin to compute the limit of one-step prediction in a second process.

        It would have to simulate the samples again, which it cannot if a model decides about
        inputs.
        """
        if self._limit_beside is None and self.decisions is None:
            self._limit_beside = Beside(self._find_limit)

    def drop_limit(self) -> None:
        """End the second process, if there is one."""
        if self._limit_beside is not None:
            self._limit_beside.drop()

    def limit(self) -> Limit:
        """Return the limit of one-step prediction; all samples must have been delivered."""
        if self._limit_beside is None:
            return self._find_limit()
        return self._limit_beside.result(SHARE_TIMEOUT)

    def _find_limit(self) -> Limit:
        """Compute the limit. A process without the samples simulates them once more."""
        if self.n_seen == self._n_samples:
            trajectory = self.record()
        else:
            trajectory = self._plant.trajectory(self._n_samples, self._seed)
        return find_limit(self._plant, trajectory)


@dataclass
class LiveSource:
    """Samples of one simulation."""

    plant: Plant
    n_samples: int
    n_identified: int
    seed: int
    duration: str  # as it was written in the configuration
    simulation: Simulation
    physics: FittedPhysics | None = None  # simulated beside the plant
    lag_choice: LagChoice | None = field(default=None, init=False)  # no lags by held-out errors
    screened: Screened | None = field(default=None, init=False)  # a stream has a gate instead
    screened_validation: Screened | None = field(default=None, init=False)
    has_holes: bool = field(default=False, init=False)  # missing samples of a record
    budget_choice: BudgetChoice | None = field(default=None, init=False)  # nor of the budget
    dead_times: DeadTimes | None = field(default=None, init=False)  # of narx.nk=auto
    _limit: Limit | None = field(default=None, init=False)  # the same for the models of all outputs

    def __post_init__(self) -> None:
        self.title = type(self.plant.system).__name__
        self.activity = "simulation"
        self.outputs = self.plant.outputs
        self.inputs = self.plant.inputs
        self.unused = self.plant.unused
        self.unused |= {"propagation"}  # there is no free run
        if self.physics is not None:
            self.inputs = [*self.inputs, *self.physics.physics.signals]
            # no parameters of the physics are estimated
            self.unused |= {"physics.free", "physics.initial", "physics.starts"}

    @property
    def n_seen(self) -> int:
        """Number of samples simulated so far."""
        return self.simulation.n_seen

    @property
    def decisions(self) -> DesignRun | ControlRun | None:
        """What decides about inputs with the model that is identified; None if nothing does."""
        return self.simulation.decisions

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """Yield the samples of the identified part, the only record."""
        samples = self.simulation.until(self.n_identified)
        if self.physics is None:
            yield samples
        else:
            yield self.physics.follow(samples, self.plant.inputs)

    def restart(self) -> None:
        """Begin again with the first sample, without simulating again."""
        self.simulation.n_seen = 0

    def tell(self, *identifications: Identification) -> None:
        """Let the models of identifications decide about inputs, where a model is asked."""
        if self.decisions is not None:
            self.decisions.tell(*identifications)

    def finish(self) -> Iterator[Measurement]:
        """Yield the samples after the identified part.

        No model chooses inputs for them to learn from. A predictive controller goes on with the
        model as it is.
        """
        if self.decisions is not None:
            self.decisions.end_of_learning()
        return self.simulation.until(self.n_samples)

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which samples come after the identified part."""
        return time > (self.n_identified - 0.5) * self.plant.system.dt

    is_scored = is_validation

    def learned(self) -> Sequence[xr.Dataset]:
        """Return all samples seen so far."""
        return self.records()

    def measured(self) -> Sequence[xr.Dataset]:
        """Return all samples seen so far."""
        return self.records()

    def records(self) -> Sequence[xr.Dataset]:
        """Return all samples seen so far, with the set-points of the controller."""
        plant = self.plant
        dataset = self.simulation.record().to_dataset()
        dataset = dataset.assign_attrs(idle_inputs=json.dumps(plant.idle))
        for name, reference in plant.controller.references(dataset["time"].values).items():
            output = reference.output or plant.controller.outputs_read[0]
            attributes = {
                "units": dataset[output].attrs["units"],
                "long_name": reference.description,
            }
            dataset[name] = "time", np.asarray(reference.values), attributes
        physics = self.physics
        return [dataset if physics is None else physics.add(dataset, physics.physics.system)]

    def recordings(self) -> Recordings | None:
        """Return None: nothing was recorded."""
        return None

    def begin_limit(self) -> None:
        """Begin to compute the limit in a second process, if samples will be scored."""
        if self._limit is None and self.n_identified < self.n_samples:
            self.simulation.begin_limit()

    def limit(self, narx: Narx) -> Limit:
        """Return the limit of one-step prediction, from the measured outputs and inputs."""
        if self.n_seen < self.n_samples:
            self.simulation.drop_limit()
            return LIMIT_OF_PART
        if self.n_identified == self.n_samples:
            return LIMIT_OF_NOTHING
        for name in self.plant.controller.inputs_driven:
            if 0 in narx.lags.get(name, ()):
                self.simulation.drop_limit()
                return Limit(
                    None,
                    reason=f"the regressors contain the present {name}, which the controller "
                    "computes from the output that is predicted",
                )
        if self._limit is None:
            self._limit = self.simulation.limit()
        return self._limit

    def warnings(self) -> list[str]:
        """Warn of Runge-Kutta steps that are too long, and of states at their limits."""
        if self.n_seen < 2:
            return []
        record = self.simulation.record()
        substeps = self.plant.system.substeps
        found = warn_of_integration([record])
        if record.n_clipped:
            n_steps = substeps * (self.n_seen - 1)
            found.append(
                f"a state was at its limit in {record.n_clipped} of {n_steps} Runge-Kutta steps"
            )
        return found

    def know(self, narx: Narx, settings: Settings) -> Start:
        """Return an empty start: there is no complete record before the first sample."""
        return Start()

    def estimate_missing(self, narx: Narx, settings: Settings) -> None:
        """Do nothing: a stream is not known beforehand."""

    def calibrate(self, identification: Identification) -> None:
        """Do nothing: one step ahead the bands follow the errors of the stream."""

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Return the lags of the dynamics, linearised along a simulation of their own."""
        return automatic.of_plant(self.plant, self.n_samples, self.seed)

    def linear_lags(self, narx: Narx, settings: Settings) -> Narx:
        """Return the lags with those of the linear part, unless the settings have none."""
        return settings.with_linear_lags(narx)

    def with_budget(self, narx: Narx, settings: Settings) -> Settings:
        """Return the settings: the budget of a stream does not depend on its samples."""
        return settings

    def check(self, narx: Narx, n_needed: int) -> None:
        """Raise UserError if the simulation is too short."""
        if self.n_identified < n_needed:
            raise UserError(
                f"duration {self.duration} (a number without a unit is in seconds) times "
                f"identified gives {self.n_identified} samples of {self.plant.system.dt:g} s to "
                f"identify from, expected at least {n_needed} (lags + training.n_initial + 1): "
                "write a longer one, such as 30d or 5000samples"
            )


def live_source(
    config: DictConfig, simulation: Callable[[Plant, int, int], Simulation] = Simulation
) -> LiveSource:
    """Return the source that simulates the configured plant.

    Parameters
    ----------
    config
        Composed from conf/identify.yaml.
    simulation
        Makes the simulation of a plant from its number of samples and the seed.

    Raises
    ------
    ValueError
        If the duration or the fraction leaves nothing to identify, or a part of the plant refuses
        its settings.
    """
    plant = plant_of(config)
    n_samples = plant.n_samples(config.duration)
    is_controlled = isinstance(plant.controller, Predictive)
    default = IDENTIFIED_SHARE_OF_CONTROL if is_controlled else IDENTIFIED_SHARE_OF_SIMULATION
    fraction = identified_share(config.identified, default)
    n_identified = int(fraction * (n_samples - 1)) + 1
    made = simulation(plant, n_samples, config.seed)
    physics = physics_of(config)
    return LiveSource(
        plant,
        n_samples,
        n_identified,
        config.seed,
        str(config.duration),
        made,
        None if physics is None else _physics_beside(plant, physics),
    )


def _physics_beside(plant: Plant, physics: Physics) -> FittedPhysics:
    """Return the physics with the sampling time of the plant that it is simulated beside."""
    physics.check(plant.inputs, plant.outputs, type(plant.system).__name__)
    if physics.interpolation != "held":
        raise UserError(
            f"physics.interpolation={physics.interpolation} is for records, a controller holds "
            "inputs"
        )
    return FittedPhysics(replace(physics, system=replace(physics.system, dt=plant.system.dt)))
