"""Models and starts as labelled arrays, and back, bit for bit."""

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

#: schema of the file of a job, which holds its models and other results
JOB_SCHEMA = "job"

#: group of the models in the file of a job
MODEL_GROUP = "model"

Labels = dict[str, tuple[tuple[str, ...], str]]  # dimensions and meaning of arrays


def read_models(path: str | PathLike[str]) -> dict[str, xr.Dataset]:
    """Return the models of a file by output; a single model has the name "".

    Parameters
    ----------
    path
        File of `Model.save`, of `JointModel.save` or of a job. The group "model" of a job has one
        data set, or one for each output.

    Raises
    ------
    sysid.StoreError
        The file is missing, damaged or foreign, or its job ended before there was a model.
    """
    if store.header(path).get("schema") != JOB_SCHEMA:
        return store.read_any(path, kind="model")
    groups = store.read_groups(path, kind=JOB_SCHEMA, under=MODEL_GROUP)
    if not groups:
        raise store.StoreError(
            f"{path} holds no model: its job ended before the model was trained; "
            "run it again, or name another file"
        )
    return {
        name.removeprefix(MODEL_GROUP).removeprefix("/"): dataset
        for name, dataset in groups.items()
    }


#: arrays of an affine map: the offset, and the scale or the matrix
MAP_ARRAYS: Labels = {
    "feature_offset": (("feature",), "subtracted from the features"),
    "feature_scale": (("feature",), "the features are divided by it afterwards"),
    "feature_matrix": (
        ("coordinate", "feature"),
        "and then multiplied by it: the coordinates of the points",
    ),
}


#: arrays that a start may have
START_ARRAYS: Labels = MAP_ARRAYS | {
    "inputs": (
        ("point", "point_coordinate"),
        "points of the first dictionary, in coordinates",
    ),
    "targets": (("point",), "their targets without the mean"),
}


def map_to_arrays(scaling: AffineMap) -> dict[str, np.ndarray]:
    """Return the arrays of an affine map by their names in a file."""
    if not isinstance(scaling, AffineMap):
        raise UserTypeError(
            f"cannot keep a map of features of {type(scaling).__name__}: expected AffineMap"
        )
    if scaling.matrix is None:
        return {"feature_offset": scaling.offset, "feature_scale": scaling.scale}
    return {"feature_offset": scaling.offset, "feature_matrix": scaling.matrix}


def map_from_arrays(arrays: Mapping[str, np.ndarray], constant: Sequence[int]) -> AffineMap:
    """Invert `map_to_arrays`; `constant` are the numbers of the constant features."""
    if "feature_matrix" in arrays:
        return AffineMap.of_matrix(arrays["feature_offset"], arrays["feature_matrix"])
    return AffineMap(arrays["feature_offset"], arrays["feature_scale"], tuple(constant))


def to_variables(arrays: Mapping[str, np.ndarray], labels: Labels) -> dict[str, Any]:
    """Return the arrays that have a label as variables of a data set."""
    return {
        name: (dimensions, arrays[name], {"long_name": meaning})
        for name, (dimensions, meaning) in labels.items()
        if name in arrays
    }


def start_to_dataset(start: Start) -> xr.Dataset:
    """Return a start as a data set: arrays as variables, all else in one attribute, a JSON text.

    Raises
    ------
    TypeError
        `describe` refuses the mean or the kernel, or the report contains more than numbers, texts,
        lists and dicts.

    Examples
    --------
    >>> start = Start(mean=None, limits=(0.0, 10.0))
    >>> start_from_dataset(start_to_dataset(start)) == start
    True
    """
    arrays: dict[str, np.ndarray] = {}
    constant: list[int] = []
    if start.scaling is not None:
        arrays |= map_to_arrays(start.scaling)
        constant = list(start.scaling.constant)
    if start.points is not None:
        arrays |= start.points._asdict()
    hyperparameters = None
    if start.hyperparameters is not None:
        kernel = describe(start.hyperparameters.kernel)
        hyperparameters = start.hyperparameters._asdict() | {"kernel": kernel}
    facts: dict[str, Any] = {
        "mean": None if start.mean is None else describe(start.mean),
        "hyperparameters": hyperparameters,
        "constant": constant,
        "limits": None if start.limits is None else [float(limit) for limit in start.limits],
        "bands": start.bands,
        "report": start.report,
        "stays": start.stays,
        "by_column": sorted(name for name, values in arrays.items() if np.isfortran(values)),
    }
    if start.n_at_rest:
        facts["n_at_rest"] = start.n_at_rest
    return xr.Dataset(to_variables(arrays, START_ARRAYS), attrs={"facts": json.dumps(facts)})


def start_from_dataset(dataset: xr.Dataset, *, trusted: Sequence[str] = ()) -> Start:
    """Invert `start_to_dataset`.

    The arrays keep their layout in memory, on which the last bit of results may depend.

    Raises
    ------
    KeyError, ValueError, TypeError
        The content is no start, or names a class that is not trusted (see `sysid.Model.load`).
    """
    facts = json.loads(dataset.attrs["facts"])
    arrays = {
        str(name): np.array(values.values, order="C") for name, values in dataset.data_vars.items()
    }
    for name in facts["by_column"]:
        arrays[name] = np.asfortranarray(arrays[name])
    scaling = None
    mean = None
    hyperparameters = None
    points = None
    limits = None
    bands = None
    if facts["hyperparameters"] is not None:
        stored = facts["hyperparameters"]
        kernel = build(stored["kernel"], Kernel, trusted=trusted)  # type: ignore[type-abstract]
        hyperparameters = Hyperparameters(
            **stored | {"kernel": kernel, "warnings": tuple(stored["warnings"])}
        )
    if "feature_offset" in arrays:
        scaling = map_from_arrays(arrays, facts["constant"])
    if facts["mean"] is not None:
        mean = build(facts["mean"], MeanFunction, trusted=trusted)  # type: ignore[type-abstract]
    if "inputs" in arrays:
        points = Points(arrays["inputs"], arrays["targets"])
    if facts["limits"] is not None:
        limits = (facts["limits"][0], facts["limits"][1])
    if facts["bands"] is not None:
        bands = tuple((horizon, factor) for horizon, factor in facts["bands"])
    return Start(
        scaling=scaling,
        mean=mean,
        hyperparameters=hyperparameters,
        points=points,
        limits=limits,
        bands=bands,
        report=facts["report"],
        stays=facts["stays"],
        n_at_rest=int(facts.get("n_at_rest", 0)),
    )
