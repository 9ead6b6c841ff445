"""Time as a figure shows it: in the unit that fits, or as the number of the sample."""

import numpy as np
import xarray as xr

UNITS = {"day": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}  # s
LEAST = 3.0  # units that a record must span to be shown in them
DETAIL = 100  # samples per day of detail, where the unit is not the day
FEWEST = 10  # samples that a detail of days must have


def with_clock(dataset: xr.Dataset, dim: str) -> xr.Dataset:
    """Add the coordinate ``shown`` (dim,): time in the largest unit it spans, with its label.

    Several records one after the other have no common time: they, and static data, show the number of the row.
    """
    time = dataset["time"].values
    if len(time) < 2 or np.any(np.diff(time) <= 0) or dataset["time"].attrs.get("units", "s") != "s":
        rows = np.arange(len(time), dtype=float)
        return dataset.assign_coords(shown=(dim, rows, {"label": "sample", "unit": "sample"}))
    unit = next((unit for unit, length in UNITS.items() if time[-1] - time[0] >= LEAST * length), "ms")
    label = unit if unit == "day" else f"time [{unit}]"
    return dataset.assign_coords(shown=(dim, time / UNITS[unit], {"label": label, "unit": unit}))


def on_clock_of(trajectory: xr.Dataset, result: xr.Dataset) -> xr.Dataset:
    """Add ``shown`` (sample,) to a result: what a trajectory with `with_clock` shows at the same samples."""
    clock = trajectory["shown"]
    shown = np.empty(result.sizes["sample"])
    for number in np.unique(result["record"].values):
        rows, samples = (np.flatnonzero(dataset["record"].values == number) for dataset in (result, trajectory))
        places = np.searchsorted(trajectory["time"].values[samples], result["time"].values[rows])
        shown[rows] = clock.values[samples[places]]
    return result.assign_coords(shown=("sample", shown, clock.attrs))


def detail(shown: xr.DataArray, days: float) -> slice:
    """Rows at the end to show closely: so many days; 100 rows for each where the unit is not the day, or it has few."""
    x = shown.values
    n = int(np.sum(x > x[-1] - days)) if shown.attrs["unit"] == "day" else 0
    return slice(max(len(x) - (n if n >= FEWEST else int(DETAIL * days)), 0), len(x))
