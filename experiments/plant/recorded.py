"""Samples of records: those to identify from, and those that judge the model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.cli.build import build, check_map
from experiments.plant.lags import AutomaticNarx
from experiments.plant.measured import Measured
from experiments.plant.physics import FittedPhysics, columns_of, physics_of, variance_at
from experiments.plant.source import SAMPLES_PER_BLOCK, SIMULATION, identified_share
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
from sysid.simulation.bands import N_BAND_FOLDS

# of each record, if nothing is said and no other record judges; the rest judges the model
IDENTIFIED_SHARE = 0.7


class RecordedSource:
    """Estimation records to identify from, then the test records, or without these the validation
    records.
    """

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
        # fraction of every record that is identified; the rest judges; None: the records say
        self.split = split
        self.lag_choice: LagChoice | None = None  # if the lags were chosen
        self.physics = physics
        self.title, self.outputs, self.inputs = (
            recordings.name,
            list(recordings.outputs),
            list(recordings.inputs),
        )
        self._recordings = recordings
        self._judges = judges
        self.n_identified = sum(record.sizes["time"] for record in recordings.estimation)
        self.n_samples = self.n_identified + sum(record.sizes["time"] for record in self._judges)
        self.n_seen = 0

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """Return the samples of every estimation record."""
        return map(self._samples, self._recordings.estimation)

    def restart(self) -> None:
        """Begin again."""
        self.n_seen = 0

    def finish(self) -> Iterator[Measurement]:
        """Yield the samples of the test records."""
        for record in self._judges:
            yield from self._samples(record)

    def _samples(self, record: xr.Dataset) -> Iterator[Measured]:
        y = columns_of(record, self.outputs)
        u = columns_of(record, self.inputs)
        for begin in range(0, len(y), SAMPLES_PER_BLOCK):
            block = Measured(
                y[begin : begin + SAMPLES_PER_BLOCK],
                u[begin : begin + SAMPLES_PER_BLOCK],
            )
            self.n_seen += len(block.output)
            yield block

    def recordings(self) -> Recordings | None:
        """Estimation, validation and test records."""
        return self._recordings

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples, given by the number of their record and their time, belong to a test
        record.
        """
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
        """Say what judges, if no record was given to judge by."""
        notes = list(self._recordings.notes)
        if self.split is None:
            return notes
        share = f"the first {100 * self.split:g} % of each record are identified, the rest judges"
        return [*notes, f"no test record: {share} (identified={self.split:g})"]

    def know(self, narx: Narx, settings: Settings) -> Start:
        """Return what all samples of the estimation records say before the first is learned."""
        rows = narx.dataset(self._recordings.estimation)
        x = rows["regressor"].values
        t = rows["target"].values
        return settings.training.know(x, t, mean=settings.mean, seed=settings.seed)

    @cached_property
    def _held_out(self) -> tuple[xr.Dataset, ...]:
        """Estimation records with physics that has not seen the fifth of them that a sample is
        in.
        """
        records = self._recordings.estimation
        return (
            tuple(records) if self.physics is None else self.physics.held_out(records, N_BAND_FOLDS)
        )

    def calibrate(self, identification: Identification) -> None:
        """Measure the bands of the model by the estimation records."""
        narx = identification.narx
        records = self._recordings.estimation
        rows = narx.dataset(records)
        identification.calibrate(
            rows, narx.dataset(self._held_out), variance_at(rows, records, narx.target)
        )

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Lags of the smallest held-out error on the estimation records; none for static data."""
        narx, report = automatic.of_records(
            replace(self._recordings, estimation=self._held_out), settings
        )
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


def recorded_source(config: DictConfig) -> RecordedSource:
    """Read the records of the configured source of data.

    The last part of each judges if no other record does.

    Raises
    ------
    ValueError, OSError
        Whatever the source refuses; no record to identify from; parts of a simulation beside it.
    """
    recordings = recordings_of(config)
    if not recordings.estimation:
        advice = (
            "name one (data.estimation, data.split, data.user_made_estimation), or take another set"
        )
        raise UserError(
            f"data: {recordings.name} has no estimation record to identify from; {advice}"
        )
    fraction = identified_share(config.identified, IDENTIFIED_SHARE)
    split = None if recordings.test or recordings.validation or fraction == 1 else fraction
    if split is not None:
        recordings = recordings.hold_out(1 - split)
    fitted = None
    physics = physics_of(config)
    if physics is not None:
        fitted, recordings = physics.join(recordings, seed=config.seed)
    return RecordedSource(recordings, fitted, split=split, simulates=config.validate)


def recordings_of(config: DictConfig) -> Recordings:
    """Return the records of the configured source of data.

    Raises
    ------
    ValueError, OSError
        Whatever the source refuses; parts of a simulation beside it.
    """
    refuse_simulation(config)
    recordings: Recordings = build(config, "data").load()
    return recordings


def refuse_simulation(config: DictConfig) -> None:
    """Refuse what only a simulation has; nothing of it would act on a record."""
    groups = [group for group in ("system", "controller", "weather") if "_target_" in config[group]]
    values = {
        "excited": config.excited,
        "noise.std": config.noise.std,
        "noise.snr_db": config.noise.snr_db,
    }
    given = [*groups, *(name for name, value in values.items() if value is not None)]
    check_map(config, "excitations")
    given += [f"excitations.{name}" for name in config.excitations]
    if given:
        advice = f"take data=simulated, or leave {'it' if len(given) == 1 else 'them'} out"
        raise UserError(
            f"data is a record, {', '.join(given)} would only act on a simulation: {advice}"
        )
