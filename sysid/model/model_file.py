"""Models and starts as labelled arrays, and back bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import xarray as xr

from sysid import store
from sysid.errors import UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Kernel
from sysid.gp.mean import MeanFunction
from sysid.gp.training import Hyperparameters, Points, Start
from sysid.model.description import build, describe

# kind of a file that holds more than models, and where they lie in it
JOB = "job"
GROUP = "model"

Labels = dict[str, tuple[tuple[str, ...], str]]  # dimensions and meaning of arrays


def read_models(path: str | PathLike[str]) -> dict[str, xr.Dataset]:
    """Models of a file by output, or the only one under the name "".

    Parameters
    ----------
    path
        File of `Model.save` or of `JointModel.save`, or of a job, whose models lie in the group
        "model": one data set, or one for each output.

    Raises
    ------
    sysid.StoreError
        Missing, damaged or foreign file, or a job that ended before there was a model.
    """
    if store.header(path).get("schema") != JOB:
        return store.read_any(path, kind="model")
    found = store.read_groups(path, kind=JOB, under=GROUP)
    if not found:
        raise store.StoreError(
            f"{path} holds no model: its job ended before the model was trained; run it again, or name another file"
        )
    return {name.removeprefix(GROUP).removeprefix("/"): dataset for name, dataset in found.items()}


#: arrays of an affine map: offset, and scale or matrix
MAP_ARRAYS: Labels = {
    "feature_offset": (("feature",), "subtracted from the features"),
    "feature_scale": (("feature",), "the features are divided by it afterwards"),
    "feature_matrix": (
        ("coordinate", "feature"),
        "and then multiplied by it: the coordinates of the points",
    ),
}


#: arrays of a start, as far as it has them
START_ARRAYS: Labels = MAP_ARRAYS | {
    "inputs": (
        ("point", "point_coordinate"),
        "points of the first dictionary, in coordinates",
    ),
    "targets": (("point",), "their targets without the mean"),
}


def map_to_arrays(scaling: AffineMap) -> dict[str, np.ndarray]:
    """Arrays of an affine map by their names in a file."""
    if not isinstance(scaling, AffineMap):
        raise UserTypeError(
            f"cannot keep a map of features of {type(scaling).__name__}: expected AffineMap"
        )
    if scaling.matrix is None:
        return {"feature_offset": scaling.offset, "feature_scale": scaling.scale}
    return {"feature_offset": scaling.offset, "feature_matrix": scaling.matrix}


def map_from_arrays(arrays: Mapping[str, np.ndarray], constant: Sequence[int]) -> AffineMap:
    """Inverse of `map_to_arrays`; constant features have no array."""
    if "feature_matrix" in arrays:
        return AffineMap.of_matrix(arrays["feature_offset"], arrays["feature_matrix"])
    return AffineMap(arrays["feature_offset"], arrays["feature_scale"], tuple(constant))


def to_variables(arrays: Mapping[str, np.ndarray], labels: Labels) -> dict[str, Any]:
    """Variables of a data set: the arrays that have a label."""
    return {
        name: (dimensions, arrays[name], {"long_name": meaning})
        for name, (dimensions, meaning) in labels.items()
        if name in arrays
    }


def start_to_dataset(start: Start) -> xr.Dataset:
    """Everything that a start says: arrays as variables, the rest as one attribute of JSON text.

    Raises
    ------
    TypeError
        A mean or a kernel that `describe` refuses, or a report of more than plain numbers, texts,
        lists and dicts.

    Examples
    --------
    >>> start = Start(mean=None, limits=(0.0, 10.0))
    >>> start_from_dataset(start_to_dataset(start)) == start
    True
    """
    scaling = start.scaling
    found = start.hyperparameters
    arrays = {} if scaling is None else map_to_arrays(scaling)
    arrays |= {} if start.points is None else start.points._asdict()
    facts = {
        "mean": None if start.mean is None else describe(start.mean),
        "hyperparameters": None
        if found is None
        else found._asdict() | {"kernel": describe(found.kernel)},
        "constant": [] if scaling is None else list(scaling.constant),
        "limits": None if start.limits is None else [float(limit) for limit in start.limits],
        "bands": start.bands,
        "report": start.report,
        "stays": start.stays,
        "by_column": sorted(name for name, values in arrays.items() if np.isfortran(values)),
    }
    return xr.Dataset(to_variables(arrays, START_ARRAYS), attrs={"facts": json.dumps(facts)})


def start_from_dataset(dataset: xr.Dataset, *, trusted: Sequence[str] = ()) -> Start:
    """Inverse of `start_to_dataset`, with the layout of the arrays in memory, on which the last bit
    may depend.

    Raises
    ------
    KeyError, ValueError, TypeError
        Content that is no start, or a class that is not trusted (see `sysid.Model.load`).
    """
    facts = json.loads(dataset.attrs["facts"])
    arrays = {
        str(name): np.array(values.values, order="C") for name, values in dataset.data_vars.items()
    }
    arrays |= {name: np.asfortranarray(arrays[name]) for name in facts["by_column"]}
    mean = facts["mean"]
    found = facts["hyperparameters"]
    limits = facts["limits"]
    bands = facts["bands"]
    if found is not None:
        kernel = build(found["kernel"], Kernel, trusted=trusted)  # type: ignore[type-abstract]
        found = Hyperparameters(**found | {"kernel": kernel, "warnings": tuple(found["warnings"])})
    return Start(
        scaling=map_from_arrays(arrays, facts["constant"]) if "feature_offset" in arrays else None,
        mean=None if mean is None else build(mean, MeanFunction, trusted=trusted),  # type: ignore[type-abstract]
        hyperparameters=found,
        points=Points(arrays["inputs"], arrays["targets"]) if "inputs" in arrays else None,
        limits=None if limits is None else (limits[0], limits[1]),
        bands=None if bands is None else tuple((horizon, factor) for horizon, factor in bands),
        report=facts["report"],
        stays=facts["stays"],
    )
