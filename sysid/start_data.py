"""What a model starts from as a labelled data set and back, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from sysid.description import build, describe
from sysid.feature_map import FeatureMap
from sysid.kernels import Kernel
from sysid.marginal_likelihood import Hyperparameters
from sysid.mean import MeanFunction
from sysid.projection import Projection
from sysid.scaling import Scaling
from sysid.start import Points, Start

#: arrays of a start, as far as it has them: dimensions and meaning
ARRAYS = {
    "feature_offset": (("feature",), "subtracted from the features"),
    "feature_scale": (("feature",), "the features are divided by it afterwards"),
    "feature_matrix": (("coordinate", "feature"), "and then multiplied by it: the coordinates of the points"),
    "inputs": (("point", "point_coordinate"), "points of the first dictionary, in coordinates"),
    "targets": (("point",), "their targets without the mean"),
}


def start_to_dataset(start: Start) -> xr.Dataset:
    """Everything that a start says: arrays as variables, the rest as one attribute of JSON text.

    Raises
    ------
    TypeError
        A map, a mean or a kernel that `sysid.description` cannot describe, or a report of more than plain numbers,
        texts, lists and dicts.

    Examples
    --------
    >>> start = Start(mean=None, limits=(0.0, 10.0))
    >>> start_from_dataset(start_to_dataset(start)) == start
    True
    """
    arrays = _scaling_arrays(start.scaling) | (start.points._asdict() if start.points is not None else {})
    variables = {name: (ARRAYS[name][0], values, {"long_name": ARRAYS[name][1]}) for name, values in arrays.items()}
    facts = {
        "mean": None if start.mean is None else describe(start.mean),
        "hyperparameters": None if start.hyperparameters is None else _estimate(start.hyperparameters),
        "constant": list(start.scaling.constant) if isinstance(start.scaling, Scaling) else [],
        "limits": None if start.limits is None else [float(limit) for limit in start.limits],
        "report": start.report,
        "by_column": sorted(name for name, values in arrays.items() if np.isfortran(values)),
    }
    return xr.Dataset(variables, attrs={"facts": json.dumps(facts)})


def start_from_dataset(dataset: xr.Dataset) -> Start:
    """Inverse of `start_to_dataset`, with the layout of the arrays in memory, on which the last bit may depend.

    Raises
    ------
    KeyError, ValueError, TypeError
        Content that is no start, or a class that cannot be imported.
    """
    facts = json.loads(dataset.attrs["facts"])
    arrays = {str(name): np.array(values.values, order="C") for name, values in dataset.data_vars.items()}
    arrays |= {name: np.asfortranarray(arrays[name]) for name in facts["by_column"]}
    found = facts["hyperparameters"]
    return Start(
        scaling=_scaling(arrays, facts["constant"]),
        mean=None if facts["mean"] is None else build(facts["mean"], MeanFunction),  # type: ignore[type-abstract]
        hyperparameters=None if found is None else _hyperparameters(found),
        points=Points(arrays["inputs"], arrays["targets"]) if "inputs" in arrays else None,
        limits=None if facts["limits"] is None else (facts["limits"][0], facts["limits"][1]),
        report=facts["report"],
    )


def _scaling_arrays(scaling: FeatureMap | None) -> dict[str, np.ndarray]:
    if scaling is None:
        return {}
    if isinstance(scaling, Scaling):
        return {"feature_offset": scaling.offset, "feature_scale": scaling.scale}
    if isinstance(scaling, Projection):
        return {"feature_offset": scaling.offset, "feature_matrix": scaling.matrix}
    raise TypeError(f"cannot keep a map of features of {type(scaling).__name__}: expected Scaling or Projection")


def _scaling(arrays: dict[str, np.ndarray], constant: list[int]) -> FeatureMap | None:
    if "feature_scale" in arrays:
        return Scaling(arrays["feature_offset"], arrays["feature_scale"], tuple(constant))
    return Projection(arrays["feature_offset"], arrays["feature_matrix"]) if "feature_matrix" in arrays else None


def _estimate(found: Hyperparameters) -> dict[str, Any]:
    return {
        "kernel": describe(found.kernel),
        "noise_variance": float(found.noise_variance),
        "log_likelihood": float(found.log_likelihood),
        "warnings": list(found.warnings),
    }


def _hyperparameters(content: dict[str, Any]) -> Hyperparameters:
    kernel = build(content["kernel"], Kernel)  # type: ignore[type-abstract]
    return Hyperparameters(kernel, content["noise_variance"], content["log_likelihood"], tuple(content["warnings"]))
