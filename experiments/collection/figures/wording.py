"""Words of the figures: names of quantities and parameters, values, what a figure shows."""

import math
from collections.abc import Iterable, Mapping
from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from experiments.studies.label import LABELS
from experiments.studies.significant import significant

ERRORS = ("smse", "smse_stream", "rmse")  # the first that is known is the error of a figure
COUNT, COVERAGE, TIME = "n_revised", "coverage_95", "times_loop"
NAMES = {
    "smse": "SMSE",
    "smse_stream": "SMSE in the stream",
    "rmse": "RMSE",
    COUNT: "Revised points",
    COVERAGE: "95 % coverage",
    TIME: "Loop time",
}
UNITS = {"smse": "1", "smse_stream": "1", COUNT: "1", COVERAGE: "1", TIME: "s"}
LINE = 112  # characters of a line above a figure
MOST_NAMED = 4  # things that a sentence names


def name_of(variable: xr.DataArray) -> str:
    """A metric or parameter in words, without unit; upper case first."""
    name = str(variable.name)
    words = NAMES.get(name) or name.rpartition(".")[2].replace("_", " ")
    return words[:1].upper() + words[1:]


def within(name: str) -> str:
    """A name inside a sentence: lower case first, but for abbreviations."""
    return name if name[:2].isupper() else name[:1].lower() + name[1:]


def axis_label(variable: xr.DataArray) -> str:
    """Name with the unit, if it is known."""
    unit = str(variable.attrs.get("units", UNITS.get(str(variable.name), "")))
    return f"{name_of(variable)} [{unit}]" if unit else name_of(variable)


def value_text(value: xr.DataArray, digits: int = 6) -> str:
    """One value of a parameter, with its unit if it has one; a number has at most so many digits, nan is empty."""
    item = value.item()
    if isinstance(item, bool | str):
        return LABELS.get(str(item), str(item).replace("_", " "))
    if math.isnan(item):
        return ""
    unit = str(value.attrs.get("units", ""))
    number = str(item) if isinstance(item, int) else f"{item:.{digits}g}"
    return f"{number} {unit}".strip() if unit != "1" else number


def place_text(cells: xr.Dataset, place: Mapping[str, int]) -> str:
    """A combination of values: ``Acceptance: matched, budget: 60``."""
    parts = (f"{within(name_of(cells[name]))}: {within(value_text(cells[name][i]))}" for name, i in place.items())
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


def title_of(cells: xr.Dataset, place: Mapping[str, int], width: int) -> str:
    """The same above a panel, a line for each value if one line of so many characters is too short."""
    text = place_text(cells, place)
    return text if len(text) <= width else text.replace(", ", ",\n")


def about(output: str) -> str:
    """The beginning of a sentence about one of several outputs; nothing for the only one."""
    return f"{output}: " if output else ""


def listed(names: Iterable[str]) -> str:
    """Names with commas and an `and`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def some(names: list[str]) -> str:
    """The first few of many names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def number_text(value: float, name: str) -> str:
    """A median in a list: counts in full."""
    return f"{value:.6g}" if name == COUNT else significant(value)


def left_out_text(cells: xr.Dataset, series: str | None, n_drawn: int) -> str:
    """How many values of a parameter are not drawn; nothing for none."""
    n_left = 0 if series is None else cells.sizes[series] - n_drawn
    return f"Left out, {n_left} of {cells.sizes[series]} values of {within(name_of(cells[series]))}" if n_left else ""


def held_text(held: Mapping[str, str]) -> str:
    """What a sweep held, nothing for nothing."""
    parts = (f"{name.replace('_', ' ')} {within(value)}" for name, value in held.items())
    return f"Held: {', '.join(parts)}" if held else ""


def seeds_text(n_seeds: int, spread: str) -> str:
    """How seeds were pooled, and what shows the quartiles between them."""
    return f"Medians over {n_seeds} seeds, {spread} between the quartiles" if n_seeds > 1 else "One seed"


def missing_text(values: np.ndarray, name: str, what: str = "combinations") -> str:
    """How many combinations have no value, with a job or without, how many an infinite one; nothing without any."""
    counts = {"no": int(np.isnan(values).sum()), "an infinite": int(np.isinf(values).sum())}
    parts = [f"{count} of {values.size} {what} have {kind} {within(name)}" for kind, count in counts.items() if count]
    return "; ".join(parts)


def headline(figure: Figure, *sentences: str) -> None:
    """Sentences above a figure, those that are empty left out."""
    text = " ".join(f"{sentence}." for sentence in sentences if sentence)
    figure.suptitle(fill(text, LINE), x=0.01, ha="left", fontsize=7.5)
