"""Time as a figure shows it: in the unit that fits, or as the number of the sample."""

import numpy as np
import xarray as xr

UNITS = {"day": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}  # s
LEAST = 3.0  # units that a record must span to be shown in them
WEEK = 7.0  # days
DETAIL = 100  # samples per day of detail, where the unit is not the day


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


def detail(shown: xr.DataArray, days: float) -> slice:
    """Rows near the end to show closely: whole days after a full week, or 100 rows for every day asked for."""
    x = shown.values
    if shown.attrs["unit"] != "day":
        return slice(max(len(x) - int(DETAIL * days), 0), len(x))
    start = max(x[-1] - (days + WEEK), x[0])
    start = np.ceil(start / WEEK) * WEEK if x[-1] - x[0] > days + WEEK else start
    return slice(*np.searchsorted(x, [start, start + days]))
