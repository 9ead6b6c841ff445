"""Samples of a simulation that may have been run before, in the order and with the bits of the live ones."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.cache.cache import Cache, Kind
from experiments.cache.key import trajectory_key
from experiments.plant import Plant
from experiments.sources import BLOCK, LiveSource, RecordedBlock, Simulation, live_source
from simulators import Sample, Trajectory


class Tape(NamedTuple):
    """All samples of a simulation: the fields of a sample, one row each."""

    time: np.ndarray  # (n,) s
    output: np.ndarray  # (n, n_y)
    input: np.ndarray  # (n, n_u)
    state: np.ndarray  # (n, n_x)
    noise: np.ndarray  # (n, n_w)
    noise_free_output: np.ndarray  # (n, n_y)
    n_clipped: np.ndarray  # (n,) substeps at a limit since the sample before


class Broken(Exception):
    """A simulation ended with an error after the samples on the tape."""

    def __init__(self, tape: Tape, reason: Exception) -> None:
        super().__init__(str(reason))
        self.tape, self.reason = tape, reason


def tape_to_dataset(tape: Tape) -> xr.Dataset:
    """One variable per field of a sample."""
    return xr.Dataset(
        {name: (("sample", f"of_{name}")[: values.ndim], values) for name, values in tape._asdict().items()}
    )


def tape_from_dataset(dataset: xr.Dataset) -> Tape:
    """Inverse of `tape_to_dataset`."""
    return Tape(*(np.array(dataset[name].values, order="C") for name in Tape._fields))


TRAJECTORY = Kind("trajectory", "Samples of a simulation", tape_to_dataset, tape_from_dataset)


class CachedSimulation(Simulation):
    """Samples from the cache; what it lacks is simulated as a whole when the first sample is asked for.

    Parameters
    ----------
    plant : Plant
    n_samples : int
    seed : int
    cache : Cache
    key : str
        Digest of everything that decides the samples.
    """

    def __init__(self, plant: Plant, n_samples: int, seed: int, *, cache: Cache, key: str) -> None:
        self._plant, self._n_samples, self._seed = plant, n_samples, seed
        self._cache, self._key = cache, key
        self._n_seen = 0
        self._tape: Tape | None = None
        self._reason: Exception | None = None

    @property
    def n_seen(self) -> int:
        """Samples delivered so far."""
        return self._n_seen

    def restart(self) -> None:
        """Deliver the same samples again."""
        self._n_seen = 0

    def until(self, n_samples: int) -> Iterator[RecordedBlock]:
        """Deliver the next samples; where the simulation broke off, its error follows its last sample."""
        if self._tape is None:
            self._tape = self._obtained()
        for begin in range(self._n_seen, min(n_samples, len(self._tape.time)), BLOCK):
            self._n_seen = min(begin + BLOCK, n_samples, len(self._tape.time))
            yield RecordedBlock(self._tape.output[begin : self._n_seen], self._tape.input[begin : self._n_seen])
        if self._n_seen < n_samples and self._reason is not None:
            raise self._reason

    def _obtained(self) -> Tape:
        try:
            return self._cache.obtain(TRAJECTORY, self._key, self._simulated)
        except Broken as broken:
            self._reason = broken.reason
            return broken.tape

    def _simulated(self) -> Tape:
        samples: list[Sample] = []
        try:
            samples.extend(self._plant.samples(self._n_samples, self._seed))
        except Exception as reason:
            if not samples:
                raise
            raise Broken(tape_of(samples), reason) from reason
        return tape_of(samples)

    def record(self) -> Trajectory:
        """All samples delivered so far."""
        assert self._tape is not None
        plant = self._plant
        time, y, u, x, w, y0, clipped = (values[: self._n_seen] for values in self._tape)
        return Trajectory(plant.system, self._seed, time, u, x, y, y0, w, plant.interpolation, int(clipped.sum()))


def tape_of(samples: list[Sample]) -> Tape:
    """The fields of samples, of which there is one at least, stacked."""
    return Tape(*(np.array(column) for column in zip(*samples, strict=True)))


def replayed_source(config: DictConfig, cache: Cache) -> LiveSource:
    """Simulation of the configured plant, run only if no job has done so before.

    Raises
    ------
    ValueError
        As `experiments.sources.live_source`.
    """

    def simulation(plant: Plant, n_samples: int, seed: int) -> CachedSimulation:
        return CachedSimulation(plant, n_samples, seed, cache=cache, key=trajectory_key(config, n_samples))

    return live_source(config, simulation)
