"""Samples of records: those to identify from, and those that validate the model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.cli.arguments import without_effect
from experiments.cli.build import build, check_map
from experiments.cli.invocation import given_overrides
from experiments.plant.lags import AutomaticNarx
from experiments.plant.limit import LIMIT_OF_RECORDS, Limit
from experiments.plant.measured import Measured
from experiments.plant.physics import FittedPhysics, columns_of, physics_of, variance_at
from experiments.plant.source import SAMPLES_PER_BLOCK, SIMULATION_KEYS, identified_share
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
    choose_budget,
    choose_linear_part,
    screen_records,
)
from sysid.data.csv import MIN_SEGMENT_SAMPLES
from sysid.data.holes import has_holes
from sysid.data.source import split_at_holes
from sysid.errors import UserError
from sysid.missing_outputs import with_line_estimates, with_model_estimates
from sysid.narx.lags import added_variance_of
from sysid.narx.record import read_records
from sysid.narx.window import Estimates
from sysid.simulation.bands import N_BAND_FOLDS

# fraction of each record that is identified by default, if there is no record to validate on; the
# rest validates the model
IDENTIFIED_SHARE_OF_RECORD = 0.7


class RecordedSource:
    """Estimation records to learn from, then the records that validate the model.

    The test records validate the model, or the validation records if there are no test records.

    Parameters
    ----------
    recordings
        The records, with the signals of the physics.
    physics
        Physics whose simulated signals the records contain; None: there is none.
    split
        Fraction of every record that is identified, if the records were split; None if not.
    simulates
        Whether the model is validated in free run.
    screened
        Gross errors of the estimation records, which are missing values of `recordings`; None: they
        were not looked for.
    measured
        The records as they were measured; None: `recordings`.
    notes
        Further sentences on the records for the user.
    """

    activity = "reading"
    decisions: None = None  # the inputs of a record have been applied

    def __init__(
        self,
        recordings: Recordings,
        physics: FittedPhysics | None = None,
        *,
        split: float | None = None,
        simulates: bool = True,
        screened: Screened | None = None,
        measured: Recordings | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        validating = recordings.test or recordings.validation
        self.unused = SIMULATION_KEYS
        if split is not None or not validating:
            self.unused -= {"identified"}
        if not simulates or not validating or recordings.is_static:
            self.unused |= {"propagation"}
        self.split = split
        self.lag_choice: LagChoice | None = None
        self.budget_choice: BudgetChoice | None = None
        self.dead_times: DeadTimes | None = None
        self.physics = physics
        self.title = recordings.name
        self.outputs = list(recordings.outputs)
        self.inputs = list(recordings.inputs)
        self._recordings = recordings
        self._validating = validating
        self._notes = notes
        self._measured = recordings if measured is None else measured
        self.screened = screened
        self.screened_validation: Screened | None = None
        if screened is not None and validating:
            simulated = {} if physics is None else physics.physics.signals
            inputs = [name for name in self.inputs if name not in simulated]
            self.screened_validation = screen_records(validating, self.outputs, inputs)
        self.n_identified = sum(record.sizes["time"] for record in recordings.estimation)
        self.n_samples = self.n_identified + sum(record.sizes["time"] for record in validating)
        self.n_seen = 0

    def learned(self) -> tuple[xr.Dataset, ...]:
        """Return the estimation records, in which gross errors are missing values."""
        return self._recordings.estimation

    def measured(self) -> Sequence[xr.Dataset]:
        """Return the estimation records as they were measured, then the validating ones."""
        return [*self._measured.estimation, *self._validating]

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """Return the samples of the estimation records, an iterator for each."""
        return map(self._samples, self.learned())

    def restart(self) -> None:
        """Begin again with the first sample."""
        self.n_seen = 0

    def tell(self, *identifications: Identification) -> None:
        """Do nothing: the inputs of a record have been applied."""

    def finish(self) -> Iterator[Measurement]:
        """Yield the samples of the records that validate the model."""
        for record in self._validating:
            yield from self._samples(record)

    def _samples(self, record: xr.Dataset) -> Iterator[Measured]:
        """Yield the samples of a record in blocks."""
        y = columns_of(record, self.outputs)
        u = columns_of(record, self.inputs)
        estimates = _estimates_of(record, self.outputs)
        for begin in range(0, len(y), SAMPLES_PER_BLOCK):
            rows = slice(begin, begin + SAMPLES_PER_BLOCK)
            of_block = None
            if estimates is not None:
                of_block = Estimates(estimates.values[rows], estimates.is_informative[rows])
            block = Measured(y[rows], u[rows], of_block)
            self.n_seen += len(block.output)
            yield block

    def recordings(self) -> Recordings | None:
        """Return the estimation, validation and test records."""
        return self._recordings

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which samples belong to a record that validates the model."""
        return record >= len(self._recordings.estimation)

    def is_scored(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which samples validate the model and lie after the initialisation window."""
        scored = np.zeros(len(time), dtype=bool)
        n_estimation = len(self._recordings.estimation)
        for number, validating in enumerate(self._validating, start=n_estimation):
            start = validating["time"].values[validating.attrs["initialisation_window"]]
            scored |= (record == number) & (time >= start)
        return scored

    def records(self) -> Sequence[xr.Dataset]:
        """Return the estimation records, as they are learned, then the validating ones."""
        return [*self.learned(), *self._validating]

    def begin_limit(self) -> None:
        """Do nothing: there is no limit."""

    def limit(self, narx: Narx) -> Limit:
        """Return that there is none: the equations of a record are not known."""
        return LIMIT_OF_RECORDS

    def warnings(self) -> list[str]:
        """Return the notes on the records, and on their split if no record validates the model."""
        notes = [*self._recordings.notes, *self._notes]
        if self.screened is not None and self.screened.n_found:
            notes.append(self.screened.describe())
        if self.split is not None:
            notes.append(
                f"no test record: the first {100 * self.split:g} % of each record are identified, "
                f"the rest validates the model (identified={self.split:g})"
            )
        return notes

    def know(self, narx: Narx, settings: Settings) -> Start:
        """Return the start that the training derives from all estimation records."""
        records = self._recordings.estimation
        return settings.know_records(narx, records, narx.dataset(records))

    @property
    def has_holes(self) -> bool:
        """Whether samples of the records are missing."""
        return has_holes(self._recordings.records, [*self.inputs, *self.outputs])

    def estimate_missing(self, narx: Narx, settings: Settings) -> None:
        """Replace the estimates of missing outputs by those of a first model with these lags."""
        if not has_holes(self._recordings.records, [narx.target]):
            return
        self._recordings = with_model_estimates(self._recordings, narx, settings)
        self._validating = self._recordings.test or self._recordings.validation
        self.__dict__.pop("_cross_fitted", None)

    @cached_property
    def _cross_fitted(self) -> tuple[xr.Dataset, ...]:
        """Estimation records in which the physics of each fold is estimated from the others."""
        if self.physics is None:
            return self._recordings.estimation
        return self.physics.held_out(self._recordings.estimation, N_BAND_FOLDS)

    def calibrate(self, identification: Identification) -> None:
        """Calibrate the bands of the model on the estimation records."""
        narx = identification.narx
        records = self.learned()
        rows = narx.dataset(records)
        added = variance_at(rows, records, narx.target) + added_variance_of(rows)
        identification.calibrate(rows, narx.dataset(self._cross_fitted), added, records)

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Return the lags of the smallest held-out error on the estimation records.

        Static data have none.
        """
        recordings = replace(self._recordings, estimation=self._cross_fitted)
        narx, report = automatic.of_records(recordings, settings)
        self.lag_choice = report if isinstance(report, LagChoice) else None
        return narx, report

    def linear_lags(self, narx: Narx, settings: Settings) -> Narx:
        """Return the lags with those of the linear part, if it lowers the held-out error.

        `lags` has decided about it already if it has chosen the lags.
        """
        if self.lag_choice is not None:
            return narx
        return choose_linear_part(self._cross_fitted, narx, settings)

    def with_budget(self, narx: Narx, settings: Settings) -> Settings:
        """Return the settings with the number of points that lowers the held-out error.

        `lags` has decided about it already if it has chosen the lags.
        """
        self.budget_choice = choose_budget(self._cross_fitted, narx, settings)
        return settings if self.budget_choice is None else self.budget_choice.settings

    def check(self, narx: Narx, n_needed: int) -> None:
        """Raise ValueError for lags that do not fit the records, and for too few samples."""
        if self.screened is not None:
            narx = self.screened.for_rows(narx)
        narx.check(self.records())
        n_rows_needed = n_needed - narx.max_lag
        n = sum(record.sizes["time"] - narx.max_lag for record in self._recordings.estimation)
        if n < n_rows_needed:
            raise UserError(
                f"{self.title} has {n} samples with all their lags to identify from, expected at "
                f"least {n_rows_needed} (training.n_initial + 1); take smaller lags or a smaller "
                "training.n_initial"
            )


def recorded_source(config: DictConfig) -> RecordedSource:
    """Return the source of the configured records.

    The last part of each record validates the model if no other record does.

    Raises
    ------
    ValueError, OSError
        If the data refuse their settings, there is no record to identify from, or the configuration
        names parts of a simulation.
    """
    recordings = recordings_of(config)
    if not recordings.estimation:
        raise UserError(
            f"data: {recordings.name} has no estimation record to identify from; name one "
            "(data.estimation, data.split, data.user_made_estimation), or take another set"
        )
    fraction = identified_share(config.identified, IDENTIFIED_SHARE_OF_RECORD)
    has_validating_record = bool(recordings.test or recordings.validation)
    split = None
    if not has_validating_record and fraction != 1:
        split = fraction
        recordings = recordings.hold_out(1 - split)
    fitted = None
    physics = physics_of(config)
    if physics is not None:
        recordings = split_at_holes(
            recordings, MIN_SEGMENT_SAMPLES
        )  # equations are simulated on complete records
    screened = None
    notes: list[str] = []
    measured = recordings
    if not recordings.is_static and Settings(gate=config.get("gate")).gate:
        screened = screen_records(recordings.estimation, recordings.outputs, recordings.inputs)
        if physics is not None:
            kept = [name for name in recordings.inputs if name in screened.n_found]
            if kept:
                notes = [_warn_of_inputs(screened, kept)]
            screened = screened.without(kept, recordings.estimation)
        if screened.n_found:
            recordings = replace(recordings, estimation=screened.records)
    if physics is not None:
        fitted, recordings = physics.join(recordings, seed=config.seed)
        pairs = zip(measured.estimation, recordings.estimation, strict=True)
        as_measured = [record.assign(joined.drop_vars(list(record))) for record, joined in pairs]
        measured = replace(recordings, estimation=tuple(as_measured))
    recordings = with_line_estimates(recordings)
    return RecordedSource(
        recordings,
        fitted,
        split=split,
        simulates=config.validate,
        screened=screened,
        measured=measured,
        notes=notes,
    )


def _warn_of_inputs(screened: Screened, inputs: Sequence[str]) -> str:
    """Return a sentence on gross errors of inputs on which a physics is simulated."""
    counts = ", ".join(f"{screened.n_found[name]} of {name}" for name in inputs)
    return (
        f"gross errors: the inputs contain {screened.n_values_of(inputs)} ({counts}), and are "
        "taken as they are, because the physics is simulated on all of their values; mend them in "
        "the file"
    )


def _estimates_of(record: xr.Dataset, outputs: Sequence[str]) -> Estimates | None:
    """Return the estimates of missing outputs of a record; None if it has none."""
    (read,) = read_records(record, outputs)
    if not read.estimates:
        return None
    values = np.full((read.n_samples, len(outputs)), np.nan)
    is_informative = np.zeros(values.shape, dtype=bool)
    for column, name in enumerate(outputs):
        if name in read.estimates:
            values[:, column] = read.estimates[name].values
            is_informative[:, column] = read.estimates[name].is_informative
    return Estimates(values, is_informative)


def recordings_of(config: DictConfig) -> Recordings:
    """Return the records of the configured source of data.

    Raises
    ------
    ValueError, OSError
        If the data refuse their settings, or the configuration names parts of a simulation.
    """
    refuse_simulation(config)
    recordings: Recordings = build(config, "data").load()
    return recordings


def refuse_simulation(config: DictConfig) -> None:
    """Raise UserError for settings that have an effect on a simulation only."""
    given = [group for group in ("system", "controller", "weather") if "_target_" in config[group]]
    values = {
        "excited": config.excited,
        "noise.std": config.noise.std,
        "noise.snr_db": config.noise.snr_db,
    }
    given += [name for name, value in values.items() if value is not None]
    check_map(config, "excitations")
    given += [f"excitations.{name}" for name in config.excitations]
    # the duration has a default: only one that was typed is a mistake
    given += without_effect({"duration"}, given_overrides())
    if given:
        pronoun = "it" if len(given) == 1 else "them"
        raise UserError(
            f"data is a record, {', '.join(given)} would only act on a simulation: take "
            f"data=simulated, or leave {pronoun} out"
        )
