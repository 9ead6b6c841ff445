"""Which figures a collected sweep has."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from experiments.collection.figures import curves, dots, front, heat_map, search
from experiments.collection.figures.settings import Settings, of_jobs, of_sweep
from experiments.collection.figures.sweep import JOB, NUMBER, OUTPUT, SEED, Sweep, make_sweep
from experiments.collection.figures.trial import TRIAL, averaged_text, directions_of, per_trial
from experiments.collection.figures.wording import (
    COUNT,
    COVERAGE,
    ERRORS,
    TIME,
    held_text,
    missing_text,
    name_of,
)

TIMED = "timed"  # variable: 1 where measured times can be compared; its comment says what is left out

Drawings = dict[str, Callable[[], Figure]]


def drawings(dataset: xr.Dataset) -> Drawings:
    """Figure name to the function that draws it; a figure that would show nothing is not among them.

    Parameters
    ----------
    dataset
        A dimension per swept parameter, or the dimension ``job`` with the parameters as coordinates along it; metrics
        are variables, nan where a job has none. With a dimension ``output`` every output has figures of its own. The
        jobs of a search have a coordinate ``trial``, and the attribute ``directions`` says what it has gone by.
    """
    shown = {*ERRORS, COUNT, COVERAGE, TIME, TIMED, NUMBER, *directions_of(dataset)}
    dataset = _comparable(dataset[[name for name in dataset if name in shown]].compute())
    if OUTPUT not in dataset.sizes:
        return _of_output(dataset, "")
    found: Drawings = {}
    for i, output in enumerate(str(name) for name in dataset[OUTPUT].values):
        drawn = _of_output(dataset.isel({OUTPUT: i}), output)
        found |= {f"{name}_{output}": draw for name, draw in drawn.items()}
    return found


def _of_output(dataset: xr.Dataset, output: str) -> Drawings:
    error = next((name for name in ERRORS if _is_known(dataset, name)), None)
    if error is None:
        return {}
    return _of_search(dataset, error, output) if JOB in dataset.sizes else _of_sweep(make_sweep(dataset, output), error)


def _comparable(dataset: xr.Dataset) -> xr.Dataset:
    """Without the loop times that cannot be compared; those that a search has gone by stay."""
    if TIMED not in dataset or TIME not in dataset:
        return dataset.drop_vars(TIMED, errors="ignore")
    timed = dataset[TIMED]
    if TIME in directions_of(dataset):
        return dataset.drop_vars(TIMED)
    times = dataset[TIME].where(timed == 1).assign_attrs(dataset[TIME].attrs)
    return dataset.assign({TIME: times}).drop_vars(TIMED).assign_attrs(timing=str(timed.attrs.get("comment", "")))


def _timing(dataset: xr.Dataset, metrics: Sequence[str]) -> str:
    """What is left out of the times, if there are any among the metrics."""
    return str(dataset.attrs.get("timing", "")) if TIME in metrics else ""


def _is_known(dataset: xr.Dataset, name: str) -> bool:
    """Whether a metric has a finite value anywhere."""
    return name in dataset and bool(np.isfinite(np.asarray(dataset[name].values, dtype=float)).any())


def _known(dataset: xr.Dataset, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if _is_known(dataset, name))


def _of_sweep(sweep: Sweep, error: str) -> Drawings:
    """Figures of a grid: of one setting over its seeds, or of its settings."""
    metrics = _known(sweep.cells, error, COUNT, COVERAGE)
    costs = _known(sweep.cells, COUNT, TIME)
    if not sweep.varied:
        every = (*metrics, *_known(sweep.cells, TIME))
        said = _timing(sweep.cells, every)
        return {"over_seeds": partial(dots.over_seeds, sweep, every, said)} if sweep.n_seeds > 1 else {}
    x = sweep.roles.x
    found: Drawings = (
        {"settings": partial(dots.draw, sweep, metrics)}
        if x is None
        else {f"against_{x}": partial(curves.draw, sweep, metrics)}
    )
    settings = of_sweep(sweep, (error, *costs))
    costs = tuple(cost for cost in costs if _has_points(settings, error, cost))
    if costs:
        missing = missing_text(sweep.values(error), name_of(sweep.cells[error]))
        notes = (held_text(sweep.held), missing, *_times(settings, sweep.cells, error, costs))
        found["pareto_front"] = partial(front.draw, settings, sweep.cells, error, costs, sweep.output, *notes)
    pair = heat_map.pair_of(sweep)
    if pair is not None:
        found["heat_map"] = partial(heat_map.draw, sweep, error, pair)
    return found


def _times(settings: Settings, cells: xr.Dataset, error: str, costs: Sequence[str]) -> tuple[str, str]:
    """What is left out of the times, and how many settings have none for that."""
    if not (told := _timing(cells, costs)):
        return "", ""
    known = np.isfinite(settings.quartiles(error).median)
    n_without = int(np.sum(known & np.isnan(settings.quartiles(TIME).median)))
    return told, f"{n_without} of {settings.size} settings have no other time" if n_without else ""


def _has_points(settings: Settings, error: str, cost: str) -> bool:
    """Whether there are two settings to compare."""
    medians = (settings.quartiles(name).median for name in (error, cost))
    return int(np.sum(np.logical_and.reduce([np.isfinite(median) for median in medians]))) > 1


def _of_search(jobs: xr.Dataset, error: str, output: str) -> Drawings:
    """Figures of the trials of a search, or of jobs in a row."""
    if TRIAL in jobs.coords:
        jobs = per_trial(jobs)
    own = {JOB, NUMBER, OUTPUT}
    parameters = [str(name) for name, values in jobs.coords.items() if values.dims == (JOB,) and name not in own]
    varied = [name for name in parameters if len(np.unique(jobs[name].values)) > 1]
    objectives = _known(jobs, *directions_of(jobs)) or (error,)
    if jobs.sizes[JOB] < 2:
        return {}
    found: Drawings = {"trials": partial(search.trials, jobs, objectives, output)}
    if varied:
        found |= {f"slices_{name}": partial(search.slices, jobs, varied, name, output) for name in objectives}
    costs = _known(jobs, *objectives[1:]) or _known(jobs, COUNT, TIME)
    if set(varied) <= {SEED}:
        return found
    settings = of_jobs(jobs, tuple(varied), (objectives[0], *costs))
    costs = tuple(cost for cost in costs if _has_points(settings, objectives[0], cost))
    if costs:
        said = (averaged_text(jobs), *_times(settings, jobs, objectives[0], costs))
        found["pareto_front"] = partial(front.draw, settings, jobs, objectives[0], costs, output, *said)
    return found
