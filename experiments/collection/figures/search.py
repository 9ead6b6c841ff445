"""Figures of a search: its objective trial by trial, and over each parameter."""

import math
from collections.abc import Sequence
from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from experiments.collection.figures.curves import DECADE
from experiments.collection.figures.look import PALETTE, POINT, scale_axis
from experiments.collection.figures.sweep import JOB, NUMBER, NUMERIC
from experiments.collection.figures.wording import (
    about,
    axis_label,
    headline,
    listed,
    missing_text,
    name_of,
    value_text,
    within,
)
from experiments.studies.style import SETTINGS, page

COLUMNS = 4  # panels beside each other
MOST_PARAMETERS = 8
MOST_CATEGORIES = 12
LINE = 13  # characters of a line of the name of a category
PANEL = 1.9  # inch
COLORS = ListedColormap(colormaps["Blues"](np.linspace(0.3, 1.0, 64)))  # over the trials, late ones dark
BEST = PALETTE[1]


def numbers_of(jobs: xr.Dataset) -> np.ndarray:
    """Number of every trial; its place where none is stored."""
    return np.asarray(jobs[NUMBER].values if NUMBER in jobs else np.arange(jobs.sizes[JOB]), dtype=float)


def best_so_far(values: np.ndarray) -> np.ndarray:
    """Lowest value up to each trial, nan before the first that has one."""
    return np.fmin.accumulate(values)


@rc_context(SETTINGS)
def trials(jobs: xr.Dataset, objectives: Sequence[str], output: str) -> Figure:
    """Every trial's objective and the lowest so far; failed trials are crosses at the lower edge."""
    figure, axes = page(len(objectives), 1, 1.0 + PANEL * len(objectives), sharex=True)
    order = np.argsort(numbers_of(jobs), kind="stable")
    number = numbers_of(jobs)[order]
    for ax, objective in zip(axes[:, 0], objectives, strict=True):
        values = np.asarray(jobs[objective].values, dtype=float)[order]
        ax.plot(number, np.where(np.isinf(values), np.nan, values), marker="o", color=PALETTE[0], markersize=3, **POINT)
        ax.plot(number, best_so_far(values), color=BEST, drawstyle="steps-post", label="lowest so far")
        bad = number[~np.isfinite(values)]
        ax.plot(bad, np.full(len(bad), 0.03), "x", color="0.4", markersize=3.5, transform=ax.get_xaxis_transform())
        scale_axis(ax.yaxis, values)
        ax.set_ylabel(axis_label(jobs[objective]))
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)
    axes[-1, 0].set_xlabel("Trial")
    missing = [missing_text(np.asarray(jobs[name].values, dtype=float), name_of(jobs[name])) for name in objectives]
    crosses = "Crosses at the lower edge: trials without a finite objective" if any(missing) else ""
    names = listed([name_of(jobs[objectives[0]]), *(within(name_of(jobs[name])) for name in objectives[1:])])
    headline(figure, f"{about(output)}{names} of {jobs.sizes[JOB]} trials", *missing, crosses)
    return figure


@rc_context(SETTINGS)
def slices(jobs: xr.Dataset, parameters: Sequence[str], objective: str, output: str) -> Figure:
    """The objective over each varied parameter, one dot per trial, late ones dark; the lowest is ringed."""
    shown = parameters[:MOST_PARAMETERS]
    n_rows = math.ceil(len(shown) / COLUMNS)
    n_columns = math.ceil(len(shown) / n_rows)
    figure, axes = page(n_rows, n_columns, 1.0 + (PANEL + 0.2) * n_rows, sharey=True)
    values, number = np.asarray(jobs[objective].values, dtype=float), numbers_of(jobs)
    finite = np.isfinite(values)
    best = int(np.argmin(np.where(finite, values, np.inf)))
    for ax, name in zip(axes.flat, shown, strict=False):
        x = _places(ax, jobs[name])
        dots = ax.scatter(x[finite], values[finite], c=number[finite], cmap=COLORS, s=9, linewidth=0)
        ax.plot(x[best], values[best], "o", markersize=7, color=BEST, fillstyle="none")
        ax.set_xlabel(axis_label(jobs[name]))
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    scale_axis(axes[0, 0].yaxis, values)
    for ax in axes[:, 0]:
        ax.set_ylabel(axis_label(jobs[objective]))
    figure.colorbar(dots, ax=axes, label="Trial", shrink=0.8, aspect=25, pad=0.01)
    left_out = [within(name_of(jobs[name])) for name in parameters[MOST_PARAMETERS:]]
    more = f"Left out: {', '.join(left_out)}" if left_out else ""
    name = name_of(jobs[objective])
    headline(figure, f"{about(output)}{name} of every trial over every parameter, the lowest is ringed", more)
    return figure


def _places(ax: Axes, parameter: xr.DataArray) -> np.ndarray:
    """Where the trials stand along x: numbers on a scale of their own, texts side by side."""
    if parameter.dtype.kind in NUMERIC:
        x = np.asarray(parameter.values, dtype=float)
        scale_axis(ax.xaxis, x, DECADE)
        return x
    texts, first, place = np.unique(parameter.values.astype(str), return_index=True, return_inverse=True)
    step = math.ceil(len(texts) / MOST_CATEGORIES)
    at = range(0, len(texts), step)
    ax.set_xticks(list(at), [fill(value_text(parameter[first[i]]) or "\u2013", LINE) for i in at], rotation=90)
    ax.set_xlim(-0.6, len(texts) - 0.4)
    return place.astype(float)
