"""The per-sample record of an identification, as a labelled data set."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from sysid.gp.adaptation import Estimate, Reason
from sysid.gp.dictionary import FIELD_MEANINGS, NOT_PREDICTED
from sysid.gp.kernels import Kernel, Stationary
from sysid.model.model import Model, Prediction
from sysid.narx.lags import Target

INITIAL, ONLINE, VALIDATION = range(3)


def squared_unit(unit: str) -> str:
    """Return the unit of the square of a quantity in this unit.

    >>> squared_unit("K"), squared_unit("1")
    ('K2', '1')
    """
    return unit if unit in ("", "1") else f"{unit}2"


def result_dataset(
    rows: xr.Dataset,
    record: np.ndarray,
    validation: xr.Dataset,
    predicted: Prediction,
    target: Target,
) -> xr.Dataset:
    """Record of every sample; schema "result" of the store.

    Parameters
    ----------
    rows : xarray.Dataset
        Lag data set of the identified part of the stream (`sysid.Narx.dataset`).
    record : structured array (n,)
        What became of its rows (`sysid.Identification.observe_many`).
    validation : xarray.Dataset
        Lag data set of the rest; may have no samples.
    predicted : Prediction
        Of the final model for it.
    target : Target
        What is predicted; decides what "no change" means.

    Returns
    -------
    xarray.Dataset
        One variable (sample,) per field of `UpdateReport`, ``target``, ``previous``, ``unchanged``
        (the target if nothing changed) and ``phase``; coordinates ``time`` and ``record``.
    """
    rest = np.repeat(NOT_PREDICTED, validation.sizes["sample"])
    rest["mean"], rest["variance"] = predicted
    rest["n_points"] = record["n_points"][-1] if len(record) else 0
    unit = str(validation["target"].attrs.get("units", "1"))
    units: dict[str, dict[str, str]] = {
        "mean": {"units": unit},
        "variance": {"units": squared_unit(unit)},
    }
    units |= {name: {} for name in FIELD_MEANINGS if name.startswith(("acceptance_", "reduction_"))}
    whole = np.concatenate([record, rest])
    variables: dict[str, Any] = {
        name: (
            "sample",
            np.ascontiguousarray(whole[name]),
            {"long_name": meaning, **units.get(name, {"units": "1"})},
        )
        for name, meaning in FIELD_MEANINGS.items()
    }

    def join(name: str) -> np.ndarray:
        return np.concatenate([rows[name].values, validation[name].values])

    for name in ("target", "previous"):
        variables[name] = ("sample", join(name), validation[name].attrs)
    unchanged = target.of(variables["previous"][1], variables["previous"][1])
    variables["unchanged"] = (
        "sample",
        unchanged,
        {"long_name": "target if nothing changed", "units": unit},
    )
    phase = np.where(np.isnan(record["mean"]), INITIAL, ONLINE)
    flags = {
        "long_name": "phase of the run",
        "flag_values": np.array([INITIAL, ONLINE, VALIDATION], dtype=np.int8),
        "flag_meanings": "initial online validation",
    }
    variables["phase"] = (
        "sample",
        np.append(phase, np.full(len(rest), VALIDATION)).astype(np.int8),
        flags,
    )
    clock = {"units": "s"} | validation["time"].attrs | {"long_name": "time since the start"}
    coordinates = {
        "time": ("sample", join("time"), clock),
        "record": ("sample", join("record"), {"long_name": "number of the record"}),
    }
    return xr.Dataset(variables, coords=coordinates)


def with_estimates(result: xr.Dataset, estimates: Sequence[Estimate], model: Model) -> xr.Dataset:
    """Add what the estimates of the hyper-parameters found to a record; there may be none.

    Parameters
    ----------
    result : xarray.Dataset
        Of `result_dataset`.
    estimates : sequence of Estimate
    model : Model
        The model whose features have these length scales.

    Returns
    -------
    xarray.Dataset
        With variables ``estimate_*`` (estimate,) and ``estimate_length_scale`` (estimate, feature),
        in the units of the data; kernels made of others have ``estimate_hyperparameter`` (estimate,
        hyperparameter) instead. Wall times [s] are the attribute ``estimate_seconds``, a list in
        JSON.
    """
    last = np.array([estimate.sample - 1 for estimate in estimates], dtype=np.int64)
    reasons = list(Reason)
    squared = result["variance"].attrs["units"]
    gains = _floats(e.log_density_after - e.log_density_before for e in estimates)
    columns: dict[str, tuple[Any, str, str]] = {
        "sample": (
            last,
            "last sample that the estimate knew, along the dimension sample",
            "1",
        ),
        "time": (result["time"].values[last], "time of that sample", "s"),
        "statistic": (
            _floats(e.statistic for e in estimates),
            "mean squared standardised error; 1 is expected",
            "1",
        ),
        "n_errors": (
            np.array([e.n_errors for e in estimates], np.int64),
            "errors in that mean",
            "1",
        ),
        "noise_variance": (
            _floats(e.noise_variance for e in estimates),
            "noise variance found",
            squared,
        ),
        "gain": (gains, "log predictive density of the unbiased sample won by it", "1"),
        "n_evaluations": (
            np.array([e.n_evaluations for e in estimates], np.int64),
            "evaluations it took",
            "1",
        ),
    }
    variables: dict[str, Any] = {
        f"estimate_{name}": ("estimate", values, {"long_name": meaning, "units": unit})
        for name, (values, meaning, unit) in columns.items()
    }
    flags = {
        "flag_values": np.arange(len(reasons), dtype=np.int8),
        "flag_meanings": " ".join(reasons),
    }
    reason = np.array([reasons.index(e.reason) for e in estimates], np.int8)
    variables["estimate_reason"] = (
        "estimate",
        reason,
        {"long_name": "what asked for it", **flags},
    )
    variables |= _kernel_variables([estimate.kernel for estimate in estimates], model, squared)
    seconds = json.dumps([estimate.seconds for estimate in estimates])
    features = {"feature": list(model.narx.feature_names)}
    return result.assign(variables).assign_coords(features).assign_attrs(estimate_seconds=seconds)


def _kernel_variables(kernels: Sequence[Kernel], model: Model, squared: str) -> dict[str, Any]:
    """Hyper-parameters of the estimates in the units of the data: variance and length scales, or
    all by name.
    """
    has_features = model.scaling.matrix is None  # else coordinates, which have no unit
    factors = model.scaling.scale if has_features else np.ones(model.gp.n_features)
    own = [kernel.stretched(factors) for kernel in kernels]
    if has_features and isinstance(model.gp.kernel, Stationary):
        pairs = [
            (kernel.variance, kernel.length_scales)
            for kernel in own
            if isinstance(kernel, Stationary)
        ]
        scales = np.array([scales for _, scales in pairs]).reshape(-1, model.narx.n_features)
        by_feature = {"long_name": "length scales found, each in the unit of its feature"}
        by_estimate = {"long_name": "signal variance found", "units": squared}
        return {
            "estimate_variance": (
                "estimate",
                _floats(variance for variance, _ in pairs),
                by_estimate,
            ),
            "estimate_length_scale": (("estimate", "feature"), scales, by_feature),
        }
    names = list(model.gp.kernel.hyperparameter_names)
    values = np.exp([kernel.log_hyperparameters() for kernel in own]).reshape(-1, len(names))
    by_name = {"long_name": "hyper-parameters of the kernel found, in the units of the data"}
    return {
        "hyperparameter": (
            "hyperparameter",
            names,
            {"long_name": "hyper-parameter of the kernel"},
        ),
        "estimate_hyperparameter": (("estimate", "hyperparameter"), values, by_name),
    }


def _floats(values: Iterable[float]) -> np.ndarray:
    return np.fromiter(values, dtype=float)
