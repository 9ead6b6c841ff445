"""What an identification asks of a source of samples, be it a live simulation or records.

Here is the role (`Source`), all records of a source as one data set (`trajectory_of`), and what
both sources share: how many samples they deliver at a time, and how much of them is identified
(`identified_share`).
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr

from experiments.plant.lags import AutomaticNarx
from experiments.plant.physics import FittedPhysics
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

SAMPLES_PER_BLOCK = 1000  # samples that are delivered at a time; no result depends on it
#: keys of the configuration that belong to a simulation
SIMULATION = frozenset(
    {
        "system",
        "controller",
        "weather",
        "weather_input",
        "excitation",
        "excitations",
        "excited",
        "operating_point",
    }
    | {"noise", "interpolation", "duration", "identified"}
)


class Source(Protocol):
    """What an identification learns from, and what judges the model afterwards.

    Its samples come record by record, and in each record one sampling time after the other: first
    those that are learned (`segments`), then the others (`finish`). Outputs and inputs have the
    units that `records` states.
    """

    title: str  # what the source is called in words for people
    activity: str  # what it does while samples are identified: simulation, or reading
    outputs: list[str]  # names of the n_y outputs, in the order of the columns of a sample
    inputs: list[str]  # names of the n_u inputs, likewise; signals of the physics are the last
    unused: frozenset[str]  # keys of the configuration without effect on it
    physics: FittedPhysics | None  # simulated beside it
    n_samples: int  # of all records together
    n_identified: int  # samples that are learned; the others judge the model

    @property
    def n_seen(self) -> int:
        """Number of samples delivered so far."""

    @property
    def lag_choice(self) -> LagChoice | None:
        """How the lags were chosen by held-out errors; None if they were not."""

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """Deliver the samples to learn, an iterator for each record.

        No lag reaches from one record into another. A measurement is one sample, outputs (n_y,)
        and inputs (n_u,), or a block of n consecutive samples, (n, n_y) and (n, n_u).
        """

    def restart(self) -> None:
        """Begin again with the first sample: the same samples come once more."""

    def finish(self) -> Iterator[Measurement]:
        """Deliver the samples that are not learned, as `segments` does, but in one iterator."""

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which of n samples are not learned, as booleans (n,).

        Parameters
        ----------
        record : (n,)
            Number of the record of each sample, its place in `records`.
        time : (n,)
            s, in its record.
        """

    def is_judged(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return which of n samples count for the error of the model; as `is_validation`."""

    def records(self) -> Sequence[xr.Dataset]:
        """Return all samples delivered so far, a data set for each record.

        It has a variable (time,) for each signal, which states its unit as ``units``; ``time`` is
        in s.
        """

    def recordings(self) -> Recordings | None:
        """Return the estimation, validation and test records; None of a live simulation."""

    def warnings(self) -> list[str]:
        """Return what a person should know of these samples, a sentence each."""

    def know(self, narx: Narx, settings: Settings) -> Start:
        """Return what is known before the first sample is learned."""

    def calibrate(self, identification: Identification) -> None:
        """Measure the bands of the model, where that takes held-out samples."""

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Choose the lags; returns them, and a report whose text says how they were found."""

    def check(self, narx: Narx, n_needed: int) -> None:
        """Refuse lags that do not fit, and fewer samples to learn than needed.

        Raises
        ------
        ValueError
            With what to change.
        """


def trajectory_of(source: Source) -> xr.Dataset:
    """All records behind each other along `time`, each sample with the number of its record and its
    part.
    """
    records = source.records()
    dataset = records[0]
    facts = {"inputs": json.dumps(source.inputs), "outputs": json.dumps(source.outputs)}
    if "name" in dataset.attrs:
        facts["record_names"] = json.dumps([str(one.attrs["name"]) for one in records])
    number = np.repeat(np.arange(len(records)), [record.sizes["time"] for record in records])
    if len(records) > 1:
        dataset = xr.concat(
            records,
            "time",
            data_vars="all",
            coords="minimal",
            combine_attrs="drop_conflicts",
        )
    part = source.is_validation(number, dataset["time"].values).astype(np.int8)
    flags = {
        "flag_values": np.array([0, 1], dtype=np.int8),
        "flag_meanings": "identified validation",
    }
    return dataset.assign_attrs(facts).assign_coords(
        record=("time", number, {"long_name": "number of the record"}),
        part=("time", part, {"long_name": "part of the run", **flags}),
    )


def identified_share(identified: Any, default: float) -> float:
    """Return the fraction of samples that is identified, the default for null; the rest judges."""
    fraction = default if identified is None else identified
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise UserError(f"identified must be a fraction above 0 and at most 1, got {fraction}")
    return float(fraction)
