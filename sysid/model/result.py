"""The record of an identification, sample by sample, as a labelled data set."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from sysid.gp.adaptation import Estimate, Reason
from sysid.gp.dictionary import FIELD_MEANINGS, NOT_PREDICTED
from sysid.gp.kernels import Kernel, Stationary
from sysid.gp.linear_part import StableSpline, WithLinearPart
from sysid.model.model import Model, Prediction
from sysid.narx.lags import Target
from sysid.units import squared_unit

#: phases of a run, as the variable `phase` of its record numbers them
INITIAL = 0
ONLINE = 1
VALIDATION = 2


def result_dataset(
    rows: xr.Dataset,
    record: np.ndarray,
    validation: xr.Dataset,
    predicted: Prediction,
    target: Target,
) -> xr.Dataset:
    """Return the record of every sample; schema "result" of the store.

    Parameters
    ----------
    rows : xarray.Dataset
        Lag data set of the identified part of the stream (`sysid.Narx.dataset`).
    record : structured array (n,)
        Reports of these rows (`sysid.Identification.observe_many`).
    validation : xarray.Dataset
        Lag data set of the validation part; may have no samples.
    predicted : Prediction
        Prediction of the validation part by the final model.
    target : Target
        Kind of target; decides which target means "no change".

    Returns
    -------
    xarray.Dataset
        One variable (sample,) per field of `UpdateReport`, ``target``, ``previous``, ``unchanged``
        (the target if nothing changed) and ``phase``; coordinates ``time`` and ``record``.
    """
    validation_record = np.repeat(NOT_PREDICTED, validation.sizes["sample"])
    validation_record["mean"] = predicted.mean
    validation_record["variance"] = predicted.variance
    validation_record["n_points"] = record["n_points"][-1] if len(record) else 0
    reports = np.concatenate([record, validation_record])
    unit = str(validation["target"].attrs.get("units", "1"))
    units = {"mean": unit, "variance": squared_unit(unit)}
    variables: dict[str, Any] = {}
    for name, meaning in FIELD_MEANINGS.items():
        attributes = {"long_name": meaning}
        is_score = name.startswith(("acceptance_", "reduction_"))  # its unit depends on the rule
        if not is_score:
            attributes["units"] = units.get(name, "1")
        variables[name] = ("sample", np.ascontiguousarray(reports[name]), attributes)

    def join(name: str) -> np.ndarray:
        return np.concatenate([rows[name].values, validation[name].values])

    for name in ("target", "previous"):
        variables[name] = ("sample", join(name), validation[name].attrs)
    previous = variables["previous"][1]
    variables["unchanged"] = (
        "sample",
        target.of(previous, previous),
        {"long_name": "target if nothing changed", "units": unit},
    )
    learning_phase = np.where(np.isnan(record["mean"]), INITIAL, ONLINE)
    validation_phase = np.full(len(validation_record), VALIDATION)
    variables["phase"] = (
        "sample",
        np.append(learning_phase, validation_phase).astype(np.int8),
        {
            "long_name": "phase of the run",
            "flag_values": np.array([INITIAL, ONLINE, VALIDATION], dtype=np.int8),
            "flag_meanings": "initial online validation",
        },
    )
    time_attributes = (
        {"units": "s"} | validation["time"].attrs | {"long_name": "time since the start"}
    )
    coordinates = {
        "time": ("sample", join("time"), time_attributes),
        "record": ("sample", join("record"), {"long_name": "number of the record"}),
    }
    return xr.Dataset(variables, coords=coordinates)


def with_estimates(result: xr.Dataset, estimates: Sequence[Estimate], model: Model) -> xr.Dataset:
    """Add the estimates of the hyper-parameters, of which there may be none, to a record.

    Parameters
    ----------
    result : xarray.Dataset
        Record of `result_dataset`.
    estimates : sequence of Estimate
    model : Model
        The model whose features have these length scales.

    Returns
    -------
    xarray.Dataset
        The record with variables ``estimate_*`` (estimate,) and ``estimate_length_scale``
        (estimate, feature), in the units of the data. Composed kernels have
        ``estimate_hyperparameter`` (estimate, hyperparameter) instead. The attribute
        ``estimate_seconds`` has the wall times [s], a JSON list.
    """
    last = np.array([estimate.sample - 1 for estimate in estimates], dtype=np.int64)
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
    reasons = list(Reason)
    variables["estimate_reason"] = (
        "estimate",
        np.array([reasons.index(e.reason) for e in estimates], np.int8),
        {
            "long_name": "what asked for it",
            "flag_values": np.arange(len(reasons), dtype=np.int8),
            "flag_meanings": " ".join(reasons),
        },
    )
    variables |= _kernel_variables([estimate.kernel for estimate in estimates], model, squared)
    seconds = json.dumps([estimate.seconds for estimate in estimates])
    features = {"feature": list(model.narx.feature_names)}
    return result.assign(variables).assign_coords(features).assign_attrs(estimate_seconds=seconds)


def _kernel_variables(kernels: Sequence[Kernel], model: Model, squared: str) -> dict[str, Any]:
    """Return the hyper-parameters of the estimates as variables, in the units of the data.

    These are variance and length scales of a stationary kernel, else all hyper-parameters by name;
    and variances and memories of a linear part. `squared` is the unit of the target squared.
    """
    has_features = model.scaling.matrix is None  # otherwise coordinates, which have no unit
    factors = model.scaling.scale if has_features else np.ones(model.gp.n_features)
    stretched = [kernel.stretched(factors) for kernel in kernels]
    linear_parts = [kernel.linear for kernel in stretched if isinstance(kernel, WithLinearPart)]
    variables: dict[str, Any] = {}
    if model.gp.n_linear:
        variables = _linear_part_variables(linear_parts, model)
        stretched = [kernel.kernel for kernel in stretched if isinstance(kernel, WithLinearPart)]
    point_kernel = model.gp.point_kernel
    if has_features and isinstance(point_kernel, Stationary):
        stationary = [kernel for kernel in stretched if isinstance(kernel, Stationary)]
        length_scales = np.full((len(stationary), model.narx.n_features), np.nan)
        for row, kernel in zip(length_scales, stationary, strict=True):
            row[: kernel.n_features] = kernel.length_scales
        meaning = "length scales found, each in the unit of its feature"
        if model.gp.n_linear:
            meaning += "; nan for the features of the linear part"
        return {
            "estimate_variance": (
                "estimate",
                _floats(kernel.variance for kernel in stationary),
                {"long_name": "signal variance found", "units": squared},
            ),
            "estimate_length_scale": (
                ("estimate", "feature"),
                length_scales,
                {"long_name": meaning},
            ),
            **variables,
        }
    names = list(point_kernel.hyperparameter_names)
    values = np.exp([kernel.log_hyperparameters() for kernel in stretched])
    return {
        "hyperparameter": (
            "hyperparameter",
            names,
            {"long_name": "hyper-parameter of the kernel"},
        ),
        "estimate_hyperparameter": (
            ("estimate", "hyperparameter"),
            values.reshape(-1, len(names)),
            {"long_name": "hyper-parameters of the kernel found, in the units of the data"},
        ),
        **variables,
    }


def _linear_part_variables(linear_parts: Sequence[StableSpline], model: Model) -> dict[str, Any]:
    """Return the hyper-parameters of the linear parts of all estimates, by signal."""
    names = list(model.linear_signals)
    shape = (len(linear_parts), len(names))
    variances = np.array([part.variances for part in linear_parts]).reshape(shape)
    memories = np.array([part.memories for part in linear_parts]).reshape(shape)
    level_variances = np.full(shape, np.nan)
    for row, part in zip(level_variances, linear_parts, strict=True):
        row[list(part.differenced)] = part.level_variances
    dimensions = ("estimate", "linear_signal")
    return {
        "linear_signal": (
            "linear_signal",
            names,
            {"long_name": "signal of the linear part"},
        ),
        "estimate_coefficient_variance": (
            dimensions,
            variances,
            {"long_name": "variances of the first coefficients found, in the units of the data"},
        ),
        "estimate_memory": (
            dimensions,
            memories,
            {"long_name": "memories of the coefficients found", "units": "samples"},
        ),
        "estimate_level_variance": (
            dimensions,
            level_variances,
            {
                "long_name": "variances of the level coefficients found, in the units of the data; "
                "nan for a signal that has none"
            },
        ),
    }


def _floats(values: Iterable[float]) -> np.ndarray:
    return np.fromiter(values, dtype=float)
