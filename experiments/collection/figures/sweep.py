"""What varies in a collected sweep, what is held, and which part each parameter plays in a figure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import xarray as xr

from experiments.collection.figures.wording import value_text

SEED, JOB, OUTPUT, NUMBER = "seed", "job", "output", "number"
NUMERIC = "iuf"  # kinds of numbers of NumPy
MOST_PANELS = 6
MOST_SERIES = 8


class Roles(NamedTuple):
    """Parts that the varied parameters play in a figure with lines."""

    x: str | None  # the first numeric one
    series: str | None  # the first text of the others, or the first of them
    panels: tuple[str, ...]  # the rest


@dataclass(frozen=True, eq=False)
class Sweep:
    """A grid of one output: numbers ascend along their parameters, every variable has the dimension ``seed``."""

    cells: xr.Dataset
    varied: tuple[str, ...]  # parameters with at least two values, without the seed
    held: Mapping[str, str]  # parameter with a single value to that value as text
    output: str = ""  # of several

    @property
    def n_seeds(self) -> int:
        """Seeds of every setting, one where none is swept."""
        return int(self.cells.sizes[SEED])

    @property
    def roles(self) -> Roles:
        """The part of each varied parameter."""
        x = next((name for name in self.varied if self.is_numeric(name)), None)
        rest = [name for name in self.varied if name != x]
        series = next((name for name in rest if not self.is_numeric(name)), next(iter(rest), None))
        return Roles(x, series, tuple(name for name in rest if name != series))

    def is_numeric(self, parameter: str) -> bool:
        """Whether a parameter has an order of its own."""
        return self.cells[parameter].dtype.kind in NUMERIC

    def values(self, metric: str, *order: str) -> np.ndarray:
        """A metric (*order, seed), in the order of all varied parameters by default."""
        return np.asarray(self.cells[metric].transpose(*(order or self.varied), SEED).values, dtype=float)

    def part(self, place: Mapping[str, int]) -> "Sweep":
        """The sweep at one place of some varied parameters."""
        left = tuple(name for name in self.varied if name not in place)
        return Sweep(self.cells.isel(place), left, self.held, self.output)


def make_sweep(dataset: xr.Dataset, output: str = "") -> Sweep:
    """Sweep of a data set with a dimension per swept parameter, each of which may have a single value."""
    parameters = [str(name) for name in dataset.sizes if name in dataset.coords]
    single = [name for name in parameters if dataset.sizes[name] == 1]
    held = {name: value_text(dataset[name].isel({name: 0})) for name in single}
    cells = dataset.isel(dict.fromkeys(single, 0))
    varied = tuple(name for name in parameters if name not in single and name != SEED)
    for name in varied:
        if cells[name].dtype.kind in NUMERIC:
            cells = cells.sortby(name)
    if SEED not in cells.sizes:
        cells = cells.drop_vars(SEED, errors="ignore").expand_dims(SEED)
    return Sweep(cells, varied, held, output)


def places(cells: xr.Dataset, parameters: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """Every combination of the values of some parameters, as indices; one empty place for no parameters."""
    for index in product(*(range(cells.sizes[name]) for name in parameters)):
        yield dict(zip(parameters, index, strict=True))


def spread_out(n: int, most: int) -> list[int]:
    """At most ``most`` of n indices, ends included, evenly apart."""
    return np.unique(np.round(np.linspace(0, n - 1, min(n, most))).astype(int)).tolist()
