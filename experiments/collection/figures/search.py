"""Figures of a search or of jobs in a row: the objective trial by trial, and over each parameter."""

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
from experiments.collection.figures.trial import averaged_text, directions_of, sign_of
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


def word_of(jobs: xr.Dataset) -> str:
    """What a row is."""
    return "trial" if directions_of(jobs) else "job"


def numbers_of(jobs: xr.Dataset) -> np.ndarray:
    """Number of every trial; its place where none is stored."""
    return np.asarray(jobs[NUMBER].values if NUMBER in jobs else np.arange(jobs.sizes[JOB]), dtype=float)


def best_so_far(values: np.ndarray, sign: float = 1.0) -> np.ndarray:
    """Lowest finite value up to each trial, the highest for the sign -1; nan before the first that has one."""
    return sign * np.fmin.accumulate(np.where(np.isfinite(values), sign * values, np.nan))


def best_word(jobs: xr.Dataset, objective: str) -> str:
    """What is best of an objective."""
    return "lowest" if sign_of(jobs, objective) > 0 else "highest"


@rc_context(SETTINGS)
def trials(jobs: xr.Dataset, objectives: Sequence[str], output: str) -> Figure:
    """Every trial's objective and the best so far; failed trials are crosses at the lower edge."""
    figure, axes = page(len(objectives), 1, 1.0 + PANEL * len(objectives), sharex=True)
    order = np.argsort(numbers_of(jobs), kind="stable")
    number = numbers_of(jobs)[order]
    for ax, objective in zip(axes[:, 0], objectives, strict=True):
        values = np.asarray(jobs[objective].values, dtype=float)[order]
        ax.plot(number, np.where(np.isinf(values), np.nan, values), marker="o", color=PALETTE[0], markersize=3, **POINT)
        best, label = best_so_far(values, sign_of(jobs, objective)), f"{best_word(jobs, objective)} so far"
        ax.plot(number, best, color=BEST, drawstyle="steps-post", label=label)
        bad = number[~np.isfinite(values)]
        ax.plot(bad, np.full(len(bad), 0.03), "x", color="0.4", markersize=3.5, transform=ax.get_xaxis_transform())
        scale_axis(ax.yaxis, values)
        ax.set_ylabel(axis_label(jobs[objective]))
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)
    word = word_of(jobs)
    axes[-1, 0].set_xlabel(word.capitalize())
    columns = ((np.asarray(jobs[name].values, dtype=float), name_of(jobs[name])) for name in objectives)
    missing = [missing_text(values, name, f"{word}s") for values, name in columns]
    crosses = f"Crosses at the lower edge: {word}s without a finite objective" if any(missing) else ""
    names = listed([name_of(jobs[objectives[0]]), *(within(name_of(jobs[name])) for name in objectives[1:])])
    what = f"{about(output)}{names} of {jobs.sizes[JOB]} {word}s"
    headline(figure, what, averaged_text(jobs), *missing, crosses)
    return figure


@rc_context(SETTINGS)
def slices(jobs: xr.Dataset, parameters: Sequence[str], objective: str, output: str) -> Figure:
    """The objective over each varied parameter, one dot per trial, late ones dark; the best is ringed."""
    shown = parameters[:MOST_PARAMETERS]
    n_rows = math.ceil(len(shown) / COLUMNS)
    n_columns = math.ceil(len(shown) / n_rows)
    figure, axes = page(n_rows, n_columns, 1.0 + (PANEL + 0.2) * n_rows, sharey=True)
    values, number = np.asarray(jobs[objective].values, dtype=float), numbers_of(jobs)
    finite = np.isfinite(values)
    best = int(np.argmin(np.where(finite, sign_of(jobs, objective) * values, np.inf)))
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
    figure.colorbar(dots, ax=axes, label=word_of(jobs).capitalize(), shrink=0.8, aspect=25, pad=0.01)
    left_out = [within(name_of(jobs[name])) for name in parameters[MOST_PARAMETERS:]]
    more = f"Left out: {', '.join(left_out)}" if left_out else ""
    what = f"{name_of(jobs[objective])} of every {word_of(jobs)} over every parameter"
    ringed = f"the {best_word(jobs, objective)} is ringed"
    headline(figure, f"{about(output)}{what}, {ringed}", averaged_text(jobs), more)
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
