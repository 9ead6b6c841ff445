"""Recordings as a source of samples."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.automatic import AutomaticNarx
from experiments.build import build
from experiments.source import Segment, Source
from sysid import Narx, Recordings

#: keys of the configuration that belong to a simulation
SIMULATION = frozenset(
    {"system", "controller", "weather", "weather_input", "excitation", "excitations", "excited", "operating_point"}
    | {"noise", "interpolation", "duration", "identified"}
)


BLOCK = 250  # samples that are delivered at a time


class RecordedBlock(NamedTuple):
    """Consecutive samples of a record."""

    output: np.ndarray  # (n, n_y)
    input: np.ndarray  # (n, n_u)


class RecordedSource(Source):
    """Estimation records to identify from, then the test records, or without these the validation records."""

    def __init__(self, recordings: Recordings) -> None:
        self.title, self.activity = recordings.name, "reading"
        self.outputs, self.inputs = list(recordings.outputs), list(recordings.inputs)
        self._recordings = recordings
        self._judges = recordings.test or recordings.validation
        self.n_identified = sum(record.sizes["time"] for record in recordings.estimation)
        self.n_samples = self.n_identified + sum(record.sizes["time"] for record in self._judges)
        self._n_seen = 0

    @property
    def unused(self) -> frozenset[str]:
        """What only a simulation has."""
        return SIMULATION

    @property
    def n_seen(self) -> int:
        """Samples delivered so far."""
        return self._n_seen

    def segments(self) -> Iterator[Segment]:
        """One segment per estimation record."""
        for number, record in enumerate(self._recordings.estimation):
            yield Segment(number, self._samples(record))

    def finish(self) -> Iterator[RecordedBlock]:
        """The samples of the test records."""
        for record in self._judges:
            yield from self._samples(record)

    def _samples(self, record: xr.Dataset) -> Iterator[RecordedBlock]:
        y = np.stack([record[name].values for name in self.outputs], axis=1)
        u = np.stack([record[name].values for name in self.inputs], axis=1) if self.inputs else np.empty((len(y), 0))
        for begin in range(0, len(y), BLOCK):
            block = RecordedBlock(y[begin : begin + BLOCK], u[begin : begin + BLOCK])
            self._n_seen += len(block.output)
            yield block

    def recordings(self) -> Recordings:
        """Estimation, validation and test records."""
        return self._recordings

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples belong to a test record."""
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

    def lags(self, automatic: AutomaticNarx) -> tuple[Narx, str]:
        """Lags found by an order test on the estimation records; none for static data."""
        return automatic.of_records(self._recordings)

    def check(self, narx: Narx, n_needed: int) -> None:
        """Refuse lags that do not fit the records, and too few samples."""
        narx.check(self.records())
        lengths = [record.sizes["time"] - narx.max_lag for record in self._recordings.estimation]
        if sum(lengths) < n_needed - narx.max_lag:
            raise ValueError(
                f"{self.title} has {sum(lengths)} samples with all their lags to identify from, expected at least "
                f"{n_needed - narx.max_lag} (training.n_initial + 1); take smaller lags or a smaller training.n_initial"
            )


def recorded_source(config: DictConfig) -> RecordedSource:
    """Records of the configured source of data.

    Raises
    ------
    ValueError, OSError
        Whatever the source refuses; no record to identify from; parts of a simulation beside it.
    """
    refuse_simulation(config)
    recordings: Recordings = build(config, "data").load()
    if not recordings.estimation:
        raise ValueError(
            f"data: {recordings.name} has no estimation record to identify from; name one (data.estimation, "
            "data.split, data.user_made_estimation), or take another set"
        )
    return RecordedSource(recordings)


def refuse_simulation(config: DictConfig) -> None:
    """Refuse what only a simulation has; nothing of it would act on a record."""
    groups = [group for group in ("system", "controller", "weather") if "_target_" in config[group]]
    values = {"excited": config.excited, "noise.std": config.noise.std, "noise.snr_db": config.noise.snr_db}
    given = [*groups, *(name for name, value in values.items() if value is not None)]
    given += [f"excitations.{name}" for name in config.excitations]
    if given:
        raise ValueError(
            f"data is a record, {', '.join(given)} would only act on a simulation: take data=simulated, or leave "
            f"{'it' if len(given) == 1 else 'them'} out"
        )
