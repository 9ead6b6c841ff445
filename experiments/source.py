"""The role of a source of samples: what an identification learns from, and what judges it."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from experiments.automatic import AutomaticNarx
from sysid import Measurement, Narx, Recordings


class Segment(NamedTuple):
    """Uninterrupted stretch of samples: no lag reaches out of it."""

    record: int  # number of the record
    samples: Iterator[Measurement]


class Source(ABC):
    """Records, some of which exist only once somebody asks for their samples."""

    title: str  # of the system or of the data set
    activity: str  # what delivers the samples
    outputs: list[str]  # names of the columns of a sample's output
    inputs: list[str]  # names of the columns of a sample's input
    n_samples: int  # in all
    n_identified: int  # of them, those to identify from

    @property
    @abstractmethod
    def unused(self) -> frozenset[str]:
        """Keys of the configuration that have no effect on this source."""

    @property
    @abstractmethod
    def n_seen(self) -> int:
        """Samples delivered so far."""

    @abstractmethod
    def segments(self) -> Iterator[Segment]:
        """What to identify from, one segment per record."""

    @abstractmethod
    def finish(self) -> Iterator[Measurement]:
        """Deliver the samples that are not identified, one by one."""

    @abstractmethod
    def records(self) -> Sequence[xr.Dataset]:
        """Records as far as they exist, one variable (time,) per signal."""

    def recordings(self) -> Recordings | None:
        """Everything that was recorded; None if the samples are simulated."""
        return None

    @abstractmethod
    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples, given by the number of their record and their time [s], are not identified."""

    def is_judged(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether validation samples count: not those that only initialise a model."""
        return self.is_validation(record, time)

    @abstractmethod
    def lags(self, automatic: AutomaticNarx) -> tuple[Narx, str]:
        """Lags that fit this source, and the report of how they were found."""

    @abstractmethod
    def check(self, narx: Narx, n_needed: int) -> None:
        """Refuse lags that do not fit the records, or fewer than `n_needed` samples to identify from.

        Raises
        ------
        ValueError
            With what to change.
        """

    def warnings(self) -> list[str]:
        """What makes the samples doubtful."""
        return []

    def trajectory(self) -> xr.Dataset:
        """All records behind each other along `time`, each sample with the number of its record and its part."""
        records = self.records()
        lengths = [record.sizes["time"] for record in records]
        number = np.repeat(np.arange(len(records)), lengths)
        dataset = records[0]
        if len(records) > 1:
            dataset = xr.concat(records, "time", data_vars="all", coords="minimal", combine_attrs="drop_conflicts")
        part = self.is_validation(number, dataset["time"].values).astype(np.int8)
        flags = {"flag_values": np.array([0, 1], dtype=np.int8), "flag_meanings": "identified validation"}
        return dataset.assign_attrs(inputs=json.dumps(self.inputs), outputs=json.dumps(self.outputs)).assign_coords(
            record=("time", number, {"long_name": "number of the record"}),
            part=("time", part, {"long_name": "part of the run", **flags}),
        )
