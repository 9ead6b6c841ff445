"""Settings of a sweep or search in a row: their parameters, and every metric over their seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from experiments.collection.figures.quartiles import Quartiles, quartiles
from experiments.collection.figures.sweep import SEED, Sweep
from experiments.collection.figures.trial import sign_of


@dataclass(frozen=True, eq=False)
class Settings:
    """n settings with up to m seeds each."""

    parameters: Mapping[str, xr.DataArray]  # varied parameter to its values (its own dimension)
    place: Mapping[str, np.ndarray]  # varied parameter to the index of its value in each setting (n,)
    metrics: Mapping[str, np.ndarray]  # metric to its values (n, m), nan where there is none
    signs: Mapping[str, float] = field(default_factory=dict)  # of a metric of which more is better: -1

    @property
    def size(self) -> int:
        """Number of settings."""
        return len(next(iter(self.metrics.values())))

    def sign(self, metric: str) -> float:
        """Factor after which less of a metric is better."""
        return self.signs.get(metric, 1.0)

    def quartiles(self, metric: str) -> Quartiles:
        """Of a metric over the seeds of each setting."""
        return quartiles(self.metrics[metric])


def of_sweep(sweep: Sweep, metrics: tuple[str, ...]) -> Settings:
    """Settings of a grid, the last parameter fastest."""
    shape = tuple(sweep.cells.sizes[name] for name in sweep.varied)
    index = np.indices(shape).reshape(len(shape), int(np.prod(shape, dtype=int)))
    return Settings(
        {name: sweep.cells[name] for name in sweep.varied},
        dict(zip(sweep.varied, index, strict=True)),
        {metric: sweep.values(metric).reshape(-1, sweep.n_seeds) for metric in metrics},
    )


def of_jobs(jobs: xr.Dataset, parameters: tuple[str, ...], metrics: tuple[str, ...]) -> Settings:
    """Settings of jobs in a row, in order of their first job: the same parameters but for the seed are one setting."""
    names = tuple(name for name in parameters if name != SEED)
    found = [np.unique(_sortable(jobs[name]), return_inverse=True, return_index=True) for name in names]
    place = np.stack([inverse for _, _, inverse in found], axis=1)
    rows, first, member = np.unique(place, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    members = [np.flatnonzero(member.ravel() == row) for row in order]
    return Settings(
        {name: jobs[name].isel(job=first) for name, (_, first, _) in zip(names, found, strict=True)},
        dict(zip(names, rows[order].T, strict=True)),
        {metric: _padded(np.asarray(jobs[metric].values, dtype=float), members) for metric in metrics},
        {metric: sign_of(jobs, metric) for metric in metrics},
    )


def _sortable(parameter: xr.DataArray) -> np.ndarray:
    """Values whose order is theirs: numbers as they are, texts as texts."""
    return parameter.values if parameter.dtype.kind in "iuf" else parameter.values.astype(str)


def _padded(values: np.ndarray, members: list[np.ndarray]) -> np.ndarray:
    """Values of each setting (n, m), nan where a setting has fewer."""
    table = np.full((len(members), max(map(len, members), default=0)), np.nan)
    for row, member in zip(table, members, strict=True):
        row[: len(member)] = values[member]
    return table
