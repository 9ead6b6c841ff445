"""Sources of samples, be they a live simulation or records, as an identification sees them.

`Source` is the role. Both sources share the length of a block, and the fraction of the samples that
is identified (`identified_share`). `trajectory_of` returns all records of a source as one data set.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr

from experiments.plant.designed import DesignRun
from experiments.plant.lags import AutomaticNarx
from experiments.plant.limit import Limit
from experiments.plant.physics import FittedPhysics
from experiments.plant.predictive import ControlRun
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
from sysid.errors import UserError
from sysid.narx.record import without_estimates

SAMPLES_PER_BLOCK = 1000  # samples that are delivered at a time; no result depends on it
#: keys of the configuration that have an effect on simulations only
SIMULATION_KEYS = frozenset(
    {
        "system",
        "controller",
        "weather",
        "weather_input",
        "excitation",
        "excitations",
        "excited",
        "operating_point",
        "noise",
        "interpolation",
        "duration",
        "identified",
        "limit",
    }
)


class Source(Protocol):
    """Samples that an identification learns from, and samples that validate the model afterwards.

    Samples are delivered record by record, and in each record in the order of time: first those
    that are learned (`segments`), then the others (`finish`). Outputs and inputs have the units
    that `records` states.
    """

    title: str  # name of the source in messages
    activity: str  # that delivers the samples, for messages: simulation, or reading
    outputs: list[str]  # names of the n_y outputs, in the order of the columns of a sample
    inputs: list[str]  # names of the n_u inputs, likewise; signals of the physics are the last
    unused: frozenset[str]  # keys of the configuration without effect on it
    physics: FittedPhysics | None  # simulated beside it
    dead_times: DeadTimes | None  # found for the lags of ``narx.nk=auto``
    n_samples: int  # of all records together
    n_identified: int  # samples that are learned; the others validate the model

    @property
    def n_seen(self) -> int:
        """Number of samples delivered so far."""

    @property
    def screened(self) -> Screened | None:
        """Gross errors of the records to learn; None if they were not looked for."""

    @property
    def screened_validation(self) -> Screened | None:
        """Gross errors of the records that validate the model; None as `screened`."""

    @property
    def lag_choice(self) -> LagChoice | None:
        """Choice of the lags by held-out errors; None if there was none."""

    @property
    def has_holes(self) -> bool:
        """Whether samples of records are missing, which were asked to be skipped."""

    @property
    def budget_choice(self) -> BudgetChoice | None:
        """Choice of the number of points for given lags; None if there was none."""

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """Yield the samples to learn, as an iterator for each record.

        No lag reaches from one record into another. A measurement is one sample, outputs (n_y,)
        and inputs (n_u,), or a block of n consecutive samples, (n, n_y) and (n, n_u).
        """

    def restart(self) -> None:
        """Begin again with the first sample: the same samples are delivered once more."""

    @property
    def decisions(self) -> DesignRun | ControlRun | None:
        """What decides about inputs with the model that is identified; None if nothing does."""

    def tell(self, *identifications: Identification) -> None:
        """Let the models of identifications decide about inputs of a plant, where they are asked.

        There is one identification for each output. Call it before the first sample.
        """

    def finish(self) -> Iterator[Measurement]:
        """Yield the samples that are not learned, of all records in one iterator."""

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which of n samples are not learned, as booleans (n,).

        Parameters
        ----------
        record : (n,)
            Number of the record of each sample, its index in `records`.
        time : (n,)
            s, in its record.
        """

    def is_scored(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which of n samples count for the error of the model; see `is_validation`."""

    def records(self) -> Sequence[xr.Dataset]:
        """Return all samples delivered so far, as a data set for each record.

        It has a variable (time,) for each signal, which states its unit as ``units``; ``time`` is
        in s. Gross errors of samples to learn are missing values.
        """

    def recordings(self) -> Recordings | None:
        """Return the estimation, validation and test records; None for a live simulation."""

    def learned(self) -> Sequence[xr.Dataset]:
        """Return the records to learn, in which gross errors are missing values."""

    def measured(self) -> Sequence[xr.Dataset]:
        """Return the same as `records`, with all values as they were measured."""

    def begin_limit(self) -> None:
        """Begin to compute what `limit` returns, while the samples are delivered."""

    def limit(self, narx: Narx) -> Limit:
        """Return predictions of all samples that no model with these lags can improve on."""

    def warnings(self) -> list[str]:
        """Return warnings about the samples, a sentence each."""

    def know(self, narx: Narx, settings: Settings) -> Start:
        """Return what the training finds in complete records before the first sample is learned."""

    def estimate_missing(self, narx: Narx, settings: Settings) -> None:
        """Put estimates by a first model in place of missing outputs among the lags, if any are."""

    def calibrate(self, identification: Identification) -> None:
        """Calibrate the bands of the model on held-out samples, if that is necessary."""

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Choose the lags; return them, and a report whose text says how they were found."""

    def linear_lags(self, narx: Narx, settings: Settings) -> Narx:
        """Return the lags with those of the linear part, if the model is to have one."""

    def with_budget(self, narx: Narx, settings: Settings) -> Settings:
        """Return the settings with the number of points, if they leave it open."""

    def check(self, narx: Narx, n_needed: int) -> None:
        """Refuse lags that do not fit the source, and fewer samples to learn than needed.

        Raises
        ------
        ValueError
            If they do not fit. The message says what to change.
        """


def trajectory_of(source: Source) -> xr.Dataset:
    """Return all records behind each other along `time`.

    The coordinates ``record`` and ``part`` hold the number of each sample's record, and whether it
    is identified or for validation.
    """
    records = [without_estimates(record) for record in source.measured()]
    dataset = records[0]
    attributes = {"inputs": json.dumps(source.inputs), "outputs": json.dumps(source.outputs)}
    if "name" in dataset.attrs:
        attributes["record_names"] = json.dumps([str(record.attrs["name"]) for record in records])
    lengths = [record.sizes["time"] for record in records]
    number = np.repeat(np.arange(len(records)), lengths)
    if len(records) > 1:
        dataset = xr.concat(
            records,
            "time",
            data_vars="all",
            coords="minimal",
            combine_attrs="drop_conflicts",
        )
    part = source.is_validation(number, dataset["time"].values).astype(np.int8)
    part_attributes = {
        "long_name": "part of the run",
        "flag_values": np.array([0, 1], dtype=np.int8),
        "flag_meanings": "identified validation",
    }
    return dataset.assign_attrs(attributes).assign_coords(
        record=("time", number, {"long_name": "number of the record"}),
        part=("time", part, part_attributes),
    )


def identified_share(identified: Any, default: float) -> float:
    """Return the fraction of samples that is identified: the value of the key, or a default.

    Raises
    ------
    ValueError
        If it is neither null nor a fraction above 0 and at most 1.
    """
    fraction = default if identified is None else identified
    is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
    if not is_number or not 0 < fraction <= 1:
        raise UserError(f"identified must be a fraction above 0 and at most 1, got {fraction}")
    return float(fraction)
