"""The per-sample record of an identification, as a labelled data set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from sysid.dictionary import RECORD
from sysid.identify import Step
from sysid.model import Prediction
from sysid.narx import Target
from sysid.report import UpdateReport

INITIAL, ONLINE, VALIDATION = range(3)
NO_REPORT = UpdateReport(np.nan, np.nan, False, False, -1, -1, 0, np.nan, np.nan, np.nan)
MEANINGS = {
    "mean": "predicted target, before the target was used",
    "variance": "latent predictive variance",
    "inserted": "the insertion rule asked for a place",
    "accepted": "the sample entered the dictionary",
    "slot": "place that the sample took, -1 if none",
    "removed": "place whose point had to leave, -1 if none",
    "n_points": "points in the dictionary after the sample",
    "acceptance_score": "acceptance score of the sample, in the unit of its criterion; nan if nobody asked",
    "acceptance_minimum": "smallest acceptance score of the stored points; nan if nobody asked",
    "reduction_score": "reduction score of the point that left, in the unit of its criterion; nan if none",
}


def result_dataset(steps: Sequence[Step], validation: xr.Dataset, predicted: Prediction, target: Target) -> xr.Dataset:
    """Record of every sample; schema "result" of the store.

    Parameters
    ----------
    steps : sequence of Step
        The identified part of the stream.
    validation : xarray.Dataset
        Lag data set of the rest (`sysid.narx.Narx.dataset`); may have no samples.
    predicted : Prediction
        Of the final model for it.
    target : Target
        What is predicted; decides what "no change" means.

    Returns
    -------
    xarray.Dataset
        One variable (sample,) per field of `UpdateReport`, ``target``, ``previous``, ``unchanged`` (the target if
        nothing changed) and ``phase``; coordinates ``time`` and ``record``.
    """
    n = validation.sizes["sample"]
    unit = str(validation["target"].attrs.get("units", "1"))
    tail = [NO_REPORT._replace(mean=m, variance=v) for m, v in zip(*predicted, strict=True)]
    reports = [step.report or NO_REPORT for step in steps] + tail
    values = list(zip(*reports, strict=True)) if reports else [()] * len(UpdateReport._fields)
    columns = {
        name: np.array(column, dtype=RECORD[name]) for name, column in zip(UpdateReport._fields, values, strict=True)
    }
    columns["n_points"][: len(steps)] = [step.n_points for step in steps]
    if n and steps:
        columns["n_points"][-n:] = steps[-1].n_points
    phase = [INITIAL if step.report is None else ONLINE for step in steps] + [VALIDATION] * n
    squared = unit if unit in ("", "1") else f"{unit}2"
    units: dict[str, dict[str, str]] = {"mean": {"units": unit}, "variance": {"units": squared}}
    units |= {name: {} for name in columns if name.startswith(("acceptance_", "reduction_"))}
    variables: dict[str, Any] = {
        name: ("sample", column, {"long_name": MEANINGS[name], **units.get(name, {"units": "1"})})
        for name, column in columns.items()
    }
    time = [step.time for step in steps] + validation["time"].values.tolist()
    for name in ("target", "previous"):
        signal = [getattr(step, name) for step in steps] + validation[name].values.tolist()
        variables[name] = ("sample", np.array(signal, dtype=float), validation[name].attrs)
    unchanged = target.of(variables["previous"][1], variables["previous"][1])
    meaning = {"long_name": "target if nothing changed", "units": unit}
    variables["unchanged"] = ("sample", unchanged, meaning)
    flags = {
        "long_name": "phase of the run",
        "flag_values": np.array([INITIAL, ONLINE, VALIDATION], dtype=np.int8),
        "flag_meanings": "initial online validation",
    }
    variables["phase"] = ("sample", np.array(phase, dtype=np.int8), flags)
    clock = {"units": "s"} | validation["time"].attrs | {"long_name": "time since the start"}
    seconds = ("sample", np.array(time, dtype=float), clock)
    numbers = [step.record for step in steps] + validation["record"].values.tolist()
    record = ("sample", np.array(numbers, dtype=np.int64), {"long_name": "number of the record"})
    return xr.Dataset(variables, coords={"time": seconds, "record": record})
