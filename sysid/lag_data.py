"""The labelled lag data set: regressors and targets of all records, with units, times and counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sysid.record import Array, Record

if TYPE_CHECKING:
    from sysid.narx import LagRows, Narx


def labelled(narx: Narx, records: Sequence[Record], rows: Sequence[LagRows]) -> xr.Dataset:
    """Rows of all records as one data set; its variables and attributes are those of `Narx.dataset`."""
    columns = _sample_columns(narx, records, rows) | _feature_columns(narx, records[0])
    data = xr.Dataset(columns, attrs=_counts(narx, records, rows))
    return data.set_coords(["time", "record", "signal", "lag", "unit"])


def consecutive(rows: xr.Dataset) -> NDArray[np.bool_]:
    """Whether each row (n,) of a lag data set comes right after the one before it, in the same record."""
    record, time = rows["record"].values, rows["time"].values
    follows = (np.diff(record) == 0) & (np.diff(time) < 1.5 * rows.attrs["sampling_time"])
    return np.concatenate([np.zeros(min(1, len(time)), dtype=bool), follows])


def one_earlier(signal: Array) -> Array:
    """Signal (n,), n >= 1, one sample earlier; nan at the first sample, which has none before it.

    >>> one_earlier(np.array([1.0, 2.0, 3.0]))
    array([nan,  1.,  2.])
    """
    return np.concatenate([[np.nan], signal[:-1]])


def _sample_columns(narx: Narx, records: Sequence[Record], rows: Sequence[LagRows]) -> dict[str, Any]:
    def joined(part: Callable[[Record, LagRows], np.ndarray]) -> np.ndarray:
        return np.concatenate([part(record, row) for record, row in zip(records, rows, strict=True)])

    attributes = records[0].attributes[narx.target]
    name = attributes.get("long_name", narx.target)
    unit = {"units": narx.predict.unit_of(attributes["units"])} if "units" in attributes else {}
    titles = {
        "regressor": {"long_name": "lagged signals, each in its unit"},
        "target": attributes | {"long_name": narx.predict.describe(name)} | unit,
        "previous": attributes | {"long_name": f"{name} one sample earlier"},
        "time": {"units": records[0].time_unit, "long_name": "time of the target"},
        "record": {"long_name": "number of the record"},
    }
    values = {
        "regressor": joined(lambda record, row: row.regressor),
        "target": joined(lambda record, row: row.target),
        "previous": joined(lambda record, row: one_earlier(record.signals[narx.target])[row.sample]),
        "time": joined(lambda record, row: record.time[row.sample]),
        "record": joined(lambda record, row: np.full(len(row.sample), record.number, dtype=np.int64)),
    }
    return {key: (("sample", "feature")[: value.ndim], value, titles[key]) for key, value in values.items()}


def _feature_columns(narx: Narx, record: Record) -> dict[str, Any]:
    names, lags = zip(*narx.features, strict=True)
    units = [record.attributes[name].get("units", "") for name in names]
    return {
        "feature": ("feature", list(narx.feature_names), {"long_name": "signal and lag"}),
        "signal": ("feature", list(names), {"long_name": "signal of the feature"}),
        "lag": ("feature", np.array(lags, dtype=np.int64), {"long_name": "lag in samples"}),
        "unit": ("feature", units, {"long_name": "unit of the feature, empty if unknown"}),
    }


def _counts(narx: Narx, records: Sequence[Record], rows: Sequence[LagRows]) -> dict[str, Any]:
    n_possible = sum(record.n_samples - narx.max_lag for record in records)
    return {
        "narx": json.dumps(narx.to_dict()),
        "sampling_time": records[0].sampling_time,
        "n_records": len(records),
        "n_missing": sum(int(record.missing().sum()) for record in records),
        "n_skipped": n_possible - sum(len(row.target) for row in rows),
    }
