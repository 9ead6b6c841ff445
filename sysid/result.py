"""The per-sample record of an identification, as a labelled data set."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from sysid.adaptation import Estimate, Reason
from sysid.dictionary import RECORD
from sysid.identify import Step
from sysid.kernels import Kernel, Stationary
from sysid.model import Model, Prediction
from sysid.narx import Target
from sysid.report import UpdateReport
from sysid.scaling import Scaling

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


def squared_unit(unit: str) -> str:
    """Unit of the square of a quantity in this unit.

    >>> squared_unit("K"), squared_unit("1")
    ('K2', '1')
    """
    return unit if unit in ("", "1") else f"{unit}2"


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
    columns = _columns(steps, n, predicted)
    units: dict[str, dict[str, str]] = {"mean": {"units": unit}, "variance": {"units": squared_unit(unit)}}
    units |= {name: {} for name in columns if name.startswith(("acceptance_", "reduction_"))}
    variables: dict[str, Any] = {
        name: ("sample", column, {"long_name": MEANINGS[name], **units.get(name, {"units": "1"})})
        for name, column in columns.items()
    }
    time, target_values, previous, reports, _, records = (
        zip(*steps, strict=True) if steps else ((),) * len(Step._fields)
    )
    for name, signal in (("target", target_values), ("previous", previous)):
        variables[name] = ("sample", _joined(signal, validation[name].values, float), validation[name].attrs)
    unchanged = target.of(variables["previous"][1], variables["previous"][1])
    meaning = {"long_name": "target if nothing changed", "units": unit}
    variables["unchanged"] = ("sample", unchanged, meaning)
    phase = [INITIAL if report is None else ONLINE for report in reports]
    flags = {
        "long_name": "phase of the run",
        "flag_values": np.array([INITIAL, ONLINE, VALIDATION], dtype=np.int8),
        "flag_meanings": "initial online validation",
    }
    variables["phase"] = ("sample", _joined(phase, np.full(n, VALIDATION), np.int8), flags)
    clock = {"units": "s"} | validation["time"].attrs | {"long_name": "time since the start"}
    seconds = ("sample", _joined(time, validation["time"].values, float), clock)
    numbers = ("sample", _joined(records, validation["record"].values, np.int64), {"long_name": "number of the record"})
    return xr.Dataset(variables, coords={"time": seconds, "record": numbers})


def _columns(steps: Sequence[Step], n: int, predicted: Prediction) -> dict[str, np.ndarray]:
    """Fields of the reports on the steps, then on n validation samples, of which only the prediction exists."""
    reports = [step.report or NO_REPORT for step in steps]
    values = list(zip(*reports, strict=True)) if reports else [()] * len(UpdateReport._fields)
    tail: dict[str, Any] = NO_REPORT._asdict() | predicted._asdict()
    columns = {
        name: _joined(column, np.broadcast_to(tail[name], n), RECORD[name])
        for name, column in zip(UpdateReport._fields, values, strict=True)
    }
    columns["n_points"][: len(steps)] = [step.n_points for step in steps]
    if n and steps:
        columns["n_points"][-n:] = steps[-1].n_points
    return columns


def _joined(steps: Sequence[float], validation: np.ndarray, dtype: Any) -> np.ndarray:
    """Values of the steps, then those of the validation samples."""
    return np.concatenate([np.array(steps, dtype=dtype), validation.astype(dtype)])


def with_estimates(result: xr.Dataset, estimates: Sequence[Estimate], model: Model) -> xr.Dataset:
    """Add what the estimates of the hyper-parameters found to a record; there may be none.

    Parameters
    ----------
    result : xarray.Dataset
        Of `result_dataset`.
    estimates : sequence of Estimate
    model : Model
        Whose features they speak of.

    Returns
    -------
    xarray.Dataset
        With variables ``estimate_*`` (estimate,) and ``estimate_length_scale`` (estimate, feature), in the units
        of the data; kernels made of others have ``estimate_hyperparameter`` (estimate, hyperparameter) instead.
        Wall times [s] are the attribute ``estimate_seconds``, a list in JSON.
    """
    last = np.array([estimate.sample - 1 for estimate in estimates], dtype=np.int64)
    reasons = list(Reason)
    squared, one, second = ({"units": unit} for unit in (result["variance"].attrs["units"], "1", "s"))
    flags = {"flag_values": np.arange(len(reasons), dtype=np.int8), "flag_meanings": " ".join(reasons)}
    columns: dict[str, tuple[Any, str, dict[str, Any]]] = {
        "sample": (last, "last sample that the estimate knew, along the dimension sample", one),
        "time": (result["time"].values[last], "time of that sample", second),
        "reason": (np.array([reasons.index(e.reason) for e in estimates], np.int8), "what asked for it", flags),
        "statistic": (_floats(e.statistic for e in estimates), "mean squared standardised error; 1 is expected", one),
        "n_errors": (np.array([e.n_errors for e in estimates], np.int64), "errors in that mean", one),
        "noise_variance": (_floats(e.noise_variance for e in estimates), "noise variance found", squared),
        "gain": (
            _floats(e.log_density_after - e.log_density_before for e in estimates),
            "log predictive density of the unbiased sample won by it",
            one,
        ),
        "n_evaluations": (np.array([e.n_evaluations for e in estimates], np.int64), "evaluations it took", one),
    }
    variables: dict[str, Any] = {
        f"estimate_{name}": ("estimate", values, {"long_name": meaning, **attributes})
        for name, (values, meaning, attributes) in columns.items()
    }
    variables |= _kernel_variables([estimate.kernel for estimate in estimates], model, squared)
    seconds = json.dumps([estimate.seconds for estimate in estimates])
    features = {"feature": list(model.narx.feature_names)}
    return result.assign(variables).assign_coords(features).assign_attrs(estimate_seconds=seconds)


def _kernel_variables(kernels: Sequence[Kernel], model: Model, squared: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters of the estimates in the units of the data: variance and length scales, or all by name."""
    scaling = model.scaling
    factors = scaling.scale if isinstance(scaling, Scaling) else np.ones(model.gp.n_features)
    own = [kernel.stretched(factors) for kernel in kernels]
    if isinstance(scaling, Scaling) and isinstance(model.gp.kernel, Stationary):
        pairs = [(kernel.variance, kernel.length_scales) for kernel in own if isinstance(kernel, Stationary)]
        scales = np.array([scales for _, scales in pairs]).reshape(-1, model.narx.n_features)
        by_feature = {"long_name": "length scales found, each in the unit of its feature"}
        by_estimate = {"long_name": "signal variance found", **squared}
        return {
            "estimate_variance": ("estimate", _floats(variance for variance, _ in pairs), by_estimate),
            "estimate_length_scale": (("estimate", "feature"), scales, by_feature),
        }
    names = list(model.gp.kernel.hyperparameter_names)
    values = np.exp([kernel.log_hyperparameters() for kernel in own]).reshape(-1, len(names))
    by_name = {"long_name": "hyper-parameters of the kernel found, in the units of the data"}
    return {
        "hyperparameter": ("hyperparameter", names, {"long_name": "hyper-parameter of the kernel"}),
        "estimate_hyperparameter": (("estimate", "hyperparameter"), values, by_name),
    }


def _floats(values: Iterable[float]) -> np.ndarray:
    return np.fromiter(values, dtype=float)
