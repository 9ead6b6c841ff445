"""Sources of samples: a simulated plant, live, or records; what an identification learns from, and what judges it.

`LiveSource` and `RecordedSource` have the same methods: `segments` delivers what to identify from, the samples of one
record after those of another (no lag reaches across), `finish` the rest, `restart` begins again with the first sample.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TypeAlias

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.automatic import AutomaticNarx
from experiments.build import build
from experiments.physics import RESIDUAL, FittedPhysics, Measured, Physics, columns_of, variance_at
from experiments.plant import Plant, plant_of, warn_of_integration
from simulators import Sample, Trajectory, collect
from sysid import Identification, LagChoice, Measurement, Narx, Recordings, Settings, Start
from sysid.errors import UserError
from sysid.simulation.bands import N_BAND_FOLDS

OF_SIMULATION, OF_RECORD = 0.5, 0.7  # fraction that is identified, if nothing is said; the rest judges the model
BLOCK = 1000  # samples that are delivered at a time; nothing depends on it
#: keys of the configuration that belong to a simulation
SIMULATION = frozenset(
    {"system", "controller", "weather", "weather_input", "excitation", "excitations", "excited", "operating_point"}
    | {"noise", "interpolation", "duration", "identified"}
)


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
        self._plant, self._seed = plant, seed
        self.samples = plant.samples(n_samples, seed)
        self._simulated: list[Sample] = []
        self.n_seen = 0  # samples delivered so far; set it to 0 to have the same ones again
        self._collected: Trajectory | None = None

    def until(self, n_samples: int) -> Iterator[Measured]:
        """Deliver samples until `n_samples` have been in all; what ends the simulation follows its last sample."""
        for begin in range(self.n_seen, n_samples, BLOCK):
            reason, end = None, min(begin + BLOCK, n_samples)
            try:
                self._simulated.extend(islice(self.samples, max(0, end - len(self._simulated))))
            except BaseException as error:
                reason = error
            if block := self._simulated[begin:end]:
                self.n_seen = begin + len(block)
                yield Measured(np.array([sample.output for sample in block]), np.array([s.input for s in block]))
            if reason is not None:
                raise reason

    def record(self) -> Trajectory:
        """All samples delivered so far, collected once until the next one comes."""
        if self._collected is None or len(self._collected.time) != self.n_seen:
            plant, samples = self._plant, self._simulated[: self.n_seen]
            self._collected = collect(samples, plant.system, seed=self._seed, interpolation=plant.interpolation)
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

    def __post_init__(self) -> None:
        self.title, self.activity = type(self.plant.system).__name__, "simulation"
        self.outputs, self.inputs, self.unused = self.plant.outputs, self.plant.inputs, self.plant.unused
        self.unused |= {"propagation"}  # nothing is simulated
        if self.physics is not None:
            self.inputs = [*self.inputs, *self.physics.physics.signals]
            self.unused |= {f"physics.{name}" for name in ("free", "initial", "starts")}  # nothing is estimated

    @property
    def n_seen(self) -> int:
        """Samples simulated so far."""
        return self.simulation.n_seen

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """The first part of the one record."""
        samples = self.simulation.until(self.n_identified)
        yield samples if self.physics is None else self.physics.follow(samples, self.plant.inputs)

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
        dataset = self.simulation.record().to_dataset().assign_attrs(idle_inputs=json.dumps(plant.idle))
        for name, aim in plant.controller.references(dataset["time"].values).items():
            about = {"units": dataset[plant.controller.outputs_read[0]].attrs["units"], "long_name": aim.description}
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
        record, substeps = self.simulation.record(), self.plant.system.substeps
        found = warn_of_integration([record])
        if record.n_clipped:
            total = substeps * (self.n_seen - 1)
            found.append(f"a state was at its limit in {record.n_clipped} of {total} Runge-Kutta steps")
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
            given = f"duration {self.duration} (a number without a unit is in seconds) times identified"
            samples = f"{self.n_identified} samples of {self.plant.system.dt:g} s to identify from"
            needed = f"{n_needed} (lags + training.n_initial + 1): write a longer one, such as 30d or 5000samples"
            raise UserError(f"{given} gives {samples}, expected at least {needed}")


def live_source(config: DictConfig, simulation: Callable[[Plant, int, int], Simulation] = Simulation) -> LiveSource:
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
    n_identified = int(_identified(config, OF_SIMULATION) * (n_samples - 1)) + 1
    made, physics = simulation(plant, n_samples, config.seed), physics_of(config)
    if physics is not None:
        physics.check(plant.inputs, plant.outputs, type(plant.system).__name__)
        if physics.interpolation != "held":
            raise UserError(f"physics.interpolation={physics.interpolation} is for records, a controller holds inputs")
        physics = replace(physics, system=replace(physics.system, dt=plant.system.dt))
    fitted = None if physics is None else FittedPhysics(physics)
    return LiveSource(plant, n_samples, n_identified, config.seed, str(config.duration), made, fitted)


def physics_of(config: DictConfig) -> Physics | None:
    """The configured physics, if there is one."""
    physics = build(config, "physics") if "_target_" in config.physics else None
    is_estimated = "_target_" in config.data and physics is not None and physics.free
    is_residual = config.narx.get("predict") == RESIDUAL
    if is_residual and "mean" in build(config, "training").replaces:
        why = "the residual is a mean, this training brings its own"
        raise UserError(f"narx.predict={RESIDUAL}: {why}; take another training, or lags and narx.predict=change")
    if physics is not None and physics.covariance and not (is_estimated and is_residual):
        needed = "parameters estimated from a record (data, physics.free), and narx.predict=residual"
        raise UserError(f"physics.covariance=true needs {needed}; set them, or leave the covariance out")
    return physics


def _identified(config: DictConfig, default: float) -> float:
    """Fraction that is identified; the rest judges the model."""
    fraction = default if config.identified is None else config.identified
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise UserError(f"identified must be a fraction above 0 and at most 1, got {fraction}")
    return float(fraction)


class RecordedSource:
    """Estimation records to identify from, then the test records, or without these the validation records."""

    activity = "reading"

    def __init__(
        self,
        recordings: Recordings,
        physics: FittedPhysics | None = None,
        *,
        split: float | None = None,
        simulates: bool = True,
    ) -> None:
        judges = recordings.test or recordings.validation
        self.unused = SIMULATION if judges and split is None else SIMULATION - {"identified"}
        if not simulates or not judges or recordings.is_static:
            self.unused |= {"propagation"}
        self.split = split  # fraction of every record that is identified; the rest judges; None: the records say
        self.lag_choice: LagChoice | None = None  # if the lags were chosen
        self.physics = physics
        self.title, self.outputs, self.inputs = recordings.name, list(recordings.outputs), list(recordings.inputs)
        self._recordings = recordings
        self._judges = judges
        self.n_identified = sum(record.sizes["time"] for record in recordings.estimation)
        self.n_samples = self.n_identified + sum(record.sizes["time"] for record in self._judges)
        self.n_seen = 0

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """The samples of every estimation record."""
        return map(self._samples, self._recordings.estimation)

    def restart(self) -> None:
        """Begin again."""
        self.n_seen = 0

    def finish(self) -> Iterator[Measurement]:
        """The samples of the test records."""
        for record in self._judges:
            yield from self._samples(record)

    def _samples(self, record: xr.Dataset) -> Iterator[Measured]:
        y, u = columns_of(record, self.outputs), columns_of(record, self.inputs)
        for begin in range(0, len(y), BLOCK):
            block = Measured(y[begin : begin + BLOCK], u[begin : begin + BLOCK])
            self.n_seen += len(block.output)
            yield block

    def recordings(self) -> Recordings | None:
        """Estimation, validation and test records."""
        return self._recordings

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples, given by the number of their record and their time, belong to a test record."""
        return record >= len(self._recordings.estimation)

    def is_judged(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples belong to a test record and lie after its initialisation window."""
        judged = np.zeros(len(time), dtype=bool)
        for number, test in enumerate(self._judges, start=len(self._recordings.estimation)):
            start = test["time"].values[test.attrs["initialisation_window"]]
            judged |= (record == number) & (time >= start)
        return judged

    def records(self) -> Sequence[xr.Dataset]:
        """Estimation records, then test records."""
        return [*self._recordings.estimation, *self._judges]

    def warnings(self) -> list[str]:
        """What judges, if no record was given to judge by."""
        notes = list(self._recordings.notes)
        if self.split is None:
            return notes
        share = f"the first {100 * self.split:g} % of each record are identified, the rest judges"
        return [*notes, f"no test record: {share} (identified={self.split:g})"]

    def know(self, narx: Narx, settings: Settings) -> Start:
        """What all samples of the estimation records say before the first is learned."""
        rows = narx.dataset(self._recordings.estimation)
        x, t = rows["regressor"].values, rows["target"].values
        return settings.training.know(x, t, mean=settings.mean, seed=settings.seed)

    @cached_property
    def _held_out(self) -> tuple[xr.Dataset, ...]:
        """Estimation records with physics that has not seen the fifth of them that a sample is in."""
        records = self._recordings.estimation
        return tuple(records) if self.physics is None else self.physics.held_out(records, N_BAND_FOLDS)

    def calibrate(self, identification: Identification) -> None:
        """Measure the bands of the model by the estimation records."""
        narx, records = identification.narx, self._recordings.estimation
        rows = narx.dataset(records)
        identification.calibrate(rows, narx.dataset(self._held_out), variance_at(rows, records, narx.target))

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Lags of the smallest held-out error on the estimation records; none for static data."""
        narx, report = automatic.of_records(replace(self._recordings, estimation=self._held_out), settings)
        self.lag_choice = report if isinstance(report, LagChoice) else None
        return narx, report

    def check(self, narx: Narx, n_needed: int) -> None:
        """Refuse lags that do not fit the records, and too few samples."""
        narx.check(self.records())
        least = n_needed - narx.max_lag
        n = sum(record.sizes["time"] - narx.max_lag for record in self._recordings.estimation)
        if n < least:
            needed = f"{least} (training.n_initial + 1); take smaller lags or a smaller training.n_initial"
            has = f"{self.title} has {n} samples with all their lags to identify from"
            raise UserError(f"{has}, expected at least {needed}")


Source: TypeAlias = LiveSource | RecordedSource


def trajectory_of(source: Source) -> xr.Dataset:
    """All records behind each other along `time`, each sample with the number of its record and its part."""
    records = source.records()
    dataset, facts = records[0], {"inputs": json.dumps(source.inputs), "outputs": json.dumps(source.outputs)}
    if "name" in dataset.attrs:
        facts["record_names"] = json.dumps([str(one.attrs["name"]) for one in records])
    number = np.repeat(np.arange(len(records)), [record.sizes["time"] for record in records])
    if len(records) > 1:
        dataset = xr.concat(records, "time", data_vars="all", coords="minimal", combine_attrs="drop_conflicts")
    part = source.is_validation(number, dataset["time"].values).astype(np.int8)
    flags = {"flag_values": np.array([0, 1], dtype=np.int8), "flag_meanings": "identified validation"}
    return dataset.assign_attrs(facts).assign_coords(
        record=("time", number, {"long_name": "number of the record"}),
        part=("time", part, {"long_name": "part of the run", **flags}),
    )


def recorded_source(config: DictConfig) -> RecordedSource:
    """Records of the configured source of data; the last part of each judges if no other record does.

    Raises
    ------
    ValueError, OSError
        Whatever the source refuses; no record to identify from; parts of a simulation beside it.
    """
    refuse_simulation(config)
    recordings: Recordings = build(config, "data").load()
    if not recordings.estimation:
        advice = "name one (data.estimation, data.split, data.user_made_estimation), or take another set"
        raise UserError(f"data: {recordings.name} has no estimation record to identify from; {advice}")
    fraction = _identified(config, OF_RECORD)
    split = None if recordings.test or recordings.validation or fraction == 1 else fraction
    if split is not None:
        recordings = recordings.hold_out(1 - split)
    fitted, physics = None, physics_of(config)
    if physics is not None:
        fitted, recordings = physics.join(recordings, seed=config.seed)
    return RecordedSource(recordings, fitted, split=split, simulates=config.validate)


def refuse_simulation(config: DictConfig) -> None:
    """Refuse what only a simulation has; nothing of it would act on a record."""
    groups = [group for group in ("system", "controller", "weather") if "_target_" in config[group]]
    values = {"excited": config.excited, "noise.std": config.noise.std, "noise.snr_db": config.noise.snr_db}
    given = [*groups, *(name for name, value in values.items() if value is not None)]
    given += [f"excitations.{name}" for name in config.excitations]
    if given:
        advice = f"take data=simulated, or leave {'it' if len(given) == 1 else 'them'} out"
        raise UserError(f"data is a record, {', '.join(given)} would only act on a simulation: {advice}")
