"""Trials of a search: the jobs of each as one row, with the medians that the search has gone by."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from experiments.collection.figures.quartiles import quartiles
from experiments.collection.figures.sweep import JOB, NUMBER

TRIAL = "trial"  # coordinate along the jobs: number of the trial, negative for a job of none
DIRECTIONS = "directions"  # attribute of a search: metric to "minimize" or "maximize", as JSON
MAXIMIZE = "maximize"


def directions_of(dataset: xr.Dataset) -> dict[str, str]:
    """Objectives of a search and the way of each; empty for jobs of no search."""
    return dict(json.loads(dataset.attrs.get(DIRECTIONS, "{}")))


def sign_of(dataset: xr.Dataset, name: str) -> float:
    """Factor after which less is better: -1 for what a search maximises."""
    return -1.0 if directions_of(dataset).get(name) == MAXIMIZE else 1.0


def per_trial(jobs: xr.Dataset) -> xr.Dataset:
    """One row for each trial in place of its jobs, along the same dimension.

    An objective is the median over the jobs of the trial, as the search was told, and nan if one of them has none;
    of other metrics it is the median of those that there are. What the search has averaged over, parameters that
    differ within a trial, is left out and named in the attribute ``averaged``.
    """
    trial = jobs[TRIAL].values
    rows = [np.flatnonzero(trial == number) for number in np.unique(trial[trial >= 0])]
    own = {JOB, TRIAL}
    along = [str(name) for name, one in jobs.coords.items() if one.dims == (JOB,) and name not in own]
    averaged = [name for name in along if any(len(np.unique(jobs[name].values[row])) > 1 for row in rows)]
    first = jobs.isel({JOB: [int(row[0]) for row in rows]}).drop_vars([JOB, TRIAL, *averaged])
    objectives = directions_of(jobs)
    medians = {
        name: _medians(one, rows, is_told=name in objectives) for name, one in jobs.items() if one.dims == (JOB,)
    }
    number: Mapping[Any, Any] = {NUMBER: (JOB, np.array([trial[row[0]] for row in rows], dtype=np.int64))}
    return first.assign(medians).assign(number).assign_attrs(averaged=json.dumps(averaged))


def _medians(metric: xr.DataArray, rows: list[np.ndarray], *, is_told: bool) -> tuple[str, np.ndarray, dict[str, Any]]:
    values = np.asarray(metric.values, dtype=float)
    medians = [float(quartiles(values[row]).median) for row in rows]
    lacking = [is_told and not np.isfinite(values[row]).all() for row in rows]
    return JOB, np.where(lacking, np.nan, medians), dict(metric.attrs)


def averaged_text(rows: xr.Dataset) -> str:
    """What a search has averaged over; nothing for nothing."""
    names = json.loads(rows.attrs.get("averaged", "[]"))
    return f"Medians over {', '.join(name.replace('_', ' ') for name in names)}" if names else ""
