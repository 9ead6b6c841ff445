"""A task of the paper: rows to learn from, in their order, and rows to judge by."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
import xarray as xr

from sysid import Narx, Scaling


class Rows(NamedTuple):
    """Features and targets in their own units."""

    inputs: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)


class TaskData(NamedTuple):
    """Rows with inputs standardised and targets centred by the whole training part, as the paper does."""

    initial_inputs: np.ndarray  # (n_initial, p), the first rows of the training part
    initial_targets: np.ndarray  # (n_initial,) target unit
    inputs: np.ndarray  # (n, p), the stream
    targets: np.ndarray  # (n,)
    test_inputs: np.ndarray  # (m, p)
    test_targets: np.ndarray  # (m,)

    @classmethod
    def of(cls, training: Rows, test: Rows, n_initial: int) -> Self:
        """Standardise by the training part: ``(x - mean) / std``, ``y - mean``; a constant column has scale 1."""
        scaling, offset = Scaling.fit(training.inputs), training.targets.mean()
        x, y = scaling.transform(training.inputs), training.targets - offset
        first, stream = slice(n_initial), slice(n_initial, None)
        return cls(x[first], y[first], x[stream], y[stream], scaling.transform(test.inputs), test.targets - offset)

    @property
    def training_inputs(self) -> np.ndarray:
        """Initial rows and stream (n_initial + n, p)."""
        return np.vstack([self.initial_inputs, self.inputs])

    @property
    def training_targets(self) -> np.ndarray:
        """Initial rows and stream (n_initial + n,)."""
        return np.concatenate([self.initial_targets, self.targets])

    def to_dataset(self) -> xr.Dataset:
        """All rows, with the dimensions ``feature`` and one for each part."""
        variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
        for name, values in self._asdict().items():
            part = name.removesuffix("inputs").removesuffix("targets") or "stream_"
            variables[name] = ((f"{part}row", "feature")[: values.ndim], values)
        return xr.Dataset(variables)

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> Self:
        """Inverse of `to_dataset`."""
        return cls(*(dataset[name].values for name in cls._fields))


@dataclass(frozen=True)
class Task(ABC):
    """One of the paper's tasks; `name` is how the configuration calls it, `title` how the paper does."""

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]  # of the target
    is_random: ClassVar[bool] = True  # whether another seed gives other rows
    weight: ClassVar[float] = 1.0  # about how many times longer than a static function it takes

    @abstractmethod
    def rows(self, seed: int) -> tuple[Rows, Rows]:
        """Training rows in their order, and test rows.

        Raises
        ------
        sysid.DataError
            Data that is not there; it says which folder or command provides it.
        """

    def load(self, seed: int, n_initial: int, most_rows: int) -> TaskData:
        """Standardised rows of a seed; of a longer stream the first, of more test rows some that are spread."""
        training, test = self.rows(seed)
        first, spread = slice(n_initial + most_rows), slice(None, None, -(-len(test.targets) // most_rows))
        training = Rows(training.inputs[first], training.targets[first])
        return TaskData.of(training, Rows(test.inputs[spread], test.targets[spread]), n_initial)

    def seeds(self, n: int) -> tuple[int, ...]:
        """Seeds to run: the first n, or 0 alone if nothing is random."""
        return tuple(range(n)) if self.is_random else (0,)

    def row_seed(self, seed: int) -> int:
        """Seed of the rows that a unit of this seed learns from: a record has rows of seed 0 only."""
        return seed if self.is_random else 0


def lagged(narx: Narx, records: Sequence[xr.Dataset]) -> Rows:
    """Rows of the lag data set of records; lags never reach from one record into another."""
    dataset = narx.dataset(records)
    return Rows(dataset["regressor"].values, dataset["target"].values)
