"""The role of a simulation: its samples one by one, and the record of those delivered so far."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from experiments.plant import Plant
from simulators import Sample, Trajectory, collect
from sysid import Measurement


class Simulation(ABC):
    """Samples of one simulation, in their order."""

    @property
    @abstractmethod
    def n_seen(self) -> int:
        """Samples delivered so far."""

    @abstractmethod
    def until(self, n_samples: int) -> Iterator[Measurement]:
        """Deliver the next samples until `n_samples` have been in all.

        Raises
        ------
        ArithmeticError and others
            What the simulation raises, after the samples before it.
        """

    @abstractmethod
    def record(self) -> Trajectory:
        """All samples delivered so far, of which there is one at least."""


class LiveSimulation(Simulation):
    """Samples that are computed when they are asked for, and kept.

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
        self._seen: list[Sample] = []
        self._collected: Trajectory | None = None

    @property
    def n_seen(self) -> int:
        """Samples simulated so far."""
        return len(self._seen)

    def until(self, n_samples: int) -> Iterator[Measurement]:
        """Simulate the next samples."""
        while len(self._seen) < n_samples:
            sample = next(self.samples)
            self._seen.append(sample)
            yield sample

    def record(self) -> Trajectory:
        """All samples simulated so far, collected once until the next one comes."""
        if self._collected is None or len(self._collected.time) < len(self._seen):
            plant = self._plant
            self._collected = collect(self._seen, plant.system, seed=self._seed, interpolation=plant.interpolation)
        return self._collected
