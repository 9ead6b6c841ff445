"""An identified model: lags, scaling and online GP, ready to predict, to learn on and to be kept."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid import dictionary, store
from sysid.acceptance import Acceptance
from sysid.arrays import matrix
from sysid.criteria import Criterion
from sysid.description import build, describe
from sysid.feature_map import FeatureMap
from sysid.insertion import Insertion
from sysid.kernels import Kernel
from sysid.mean import ConstantMean, MeanFunction
from sysid.model_file import read_models
from sysid.narx import Narx
from sysid.online import OnlineGP
from sysid.origin import Origin
from sysid.projection import Projection
from sysid.report import UpdateReport, UpdateReports
from sysid.scaling import Scaling

#: counts of a model file: those of the dictionary, then of its owner
COUNTS = (*dictionary.COUNT_NAMES, "refactorisations", "renewals")

#: arrays of a model file: dimensions and meaning
ARRAYS = {
    "inputs": (("slot", "feature"), "stored points, standardised"),
    "targets": (("slot",), "targets of the stored points, centred"),
    "order": (("age",), "slot of each point from the oldest to the youngest"),
    "cholesky": (("age", "age_of_column"), "upper triangular U with U'U = K + noise_variance I"),
    "factor": (("age", "age_of_column"), "lower triangular F with F'F = (K + noise_variance I)^-1"),
    "pivots": (("age",), "1 / diag(U)"),
    "whitened": (("age",), "F y"),
    "weights": (("age",), "(K + noise_variance I)^-1 y"),
    "precision": (("age",), "diagonal of (K + noise_variance I)^-1"),
    "feature_offset": (("feature",), "subtracted from the features"),
}
#: and that of the map from features to coordinates
SCALE = {"feature_scale": (("feature",), "the features are divided by it afterwards")}
MATRIX = {"feature_matrix": (("coordinate", "feature"), "and then multiplied by it: the coordinates of the points")}


#: attributes that define a model
OWN_ATTRIBUTES = (
    *("acceptance", "budget", "constant_features", "counts", "insertion", "kernel", "mean"),
    *("narx", "noise_variance", "origin", "output_limits", "reduction"),
)
NO_LIMITS = (-inf, inf)


def checked_limits(limits: Sequence[float]) -> tuple[float, float]:
    """Limits (low, high) with low < high; infinite where there is none.

    Raises
    ------
    ValueError
        Anything else.
    """
    low, high = (float(value) for value in limits)
    if not low < high:
        raise ValueError(f"limits must be two numbers, low < high (infinite for none), got ({low}, {high})")
    return low, high


class Prediction(NamedTuple):
    """Predictive distribution of the target at a set of regressors."""

    mean: np.ndarray  # (m,) target unit
    variance: np.ndarray  # (m,) latent, target unit^2; add the noise variance for a measurement


@dataclass(frozen=True, eq=False)
class Model:
    """NARX model whose function is an online GP on standardised features.

    ``target[k] = m(regressor[k]) + f((regressor[k] - offset) / scale) + e[k]``, m a mean function, f a zero-mean
    GP, ``e ~ N(0, noise_variance)``. The target is never scaled, so that variances and thresholds keep its unit. In
    simulation the output stays within its limits, where a sensor or an actuator saturates; `predict` knows none.
    """

    narx: Narx
    scaling: FeatureMap  # from features to the coordinates of the kernel
    mean: MeanFunction  # of features in their own units
    gp: OnlineGP
    origin: Origin = field(default_factory=Origin)  # of the samples that it was identified from
    limits: tuple[float, float] = NO_LIMITS  # between which the target output saturates, its unit

    def __post_init__(self) -> None:
        sizes = (self.narx.n_features, self.scaling.n_features)
        if sizes[0] != sizes[1] or self.scaling.n_coordinates != self.gp.n_features:
            raise ValueError(
                f"Model: lags and scaling must have the same features, got {sizes}; scaling and kernel the same "
                f"coordinates, got {(self.scaling.n_coordinates, self.gp.n_features)}"
            )
        if not isinstance(self.mean, MeanFunction):
            raise TypeError(f"Model: mean must be a MeanFunction such as ConstantMean(0.5), got {self.mean!r}")
        self.mean.check(self.narx.n_features)
        object.__setattr__(self, "limits", checked_limits(self.limits))

    def predict(self, regressors: ArrayLike) -> Prediction:
        """Mean and latent variance of the target at regressors (m, n_features), in their own units."""
        x = matrix(regressors, self.narx.n_features, "regressors")
        mean, variance = self.gp.predict(self.scaling.transform(x))
        return Prediction(mean + self.mean(x), variance)

    def update(self, regressor: np.ndarray, target: float) -> UpdateReport:
        """Predict one sample, then learn from it; the reported mean is that of the target."""
        prior = self.mean.at(regressor)
        report = self.gp.update(self.scaling.transform(regressor), target - prior)
        return report._replace(mean=report.mean + prior)

    def update_many(self, regressors: np.ndarray, targets: np.ndarray) -> UpdateReports:
        """`update` for rows (n, n_features) and targets (n,), compiled."""
        prior = self.mean(regressors)
        reports = self.gp.update_many(self.scaling.transform(regressors), targets - prior)
        return replace(reports, mean=reports.mean + prior)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Hyper-parameters with names and units of the data, for people; mixed coordinates z have none."""
        if isinstance(self.scaling, Scaling):
            kernel = self.gp.kernel.stretched(self.scaling.scale).told(self.narx.feature_names)
        else:
            kernel = self.gp.kernel.told(tuple(f"z{i + 1}" for i in range(self.scaling.n_coordinates)))
        return {"kernel": kernel, "noise_variance": self.gp.noise_variance, "mean": self._mean()}

    def _mean(self) -> dict[str, Any]:
        mean = dict(json.loads(describe(self.mean)))
        return {"class": mean.pop("class").rpartition(".")[2], **mean}

    def to_dataset(self) -> xr.Dataset:
        """Everything needed to rebuild the model bit for bit; schema "model" of the store."""
        scaling = self.scaling
        if isinstance(scaling, Scaling):
            own, kinds = {"feature_scale": scaling.scale}, ARRAYS | SCALE
        else:
            points = {"inputs": (("slot", "coordinate"), "stored points, in coordinates")}
            own, kinds = {"feature_matrix": scaling.linear_part()}, ARRAYS | MATRIX | points
        arrays = self.gp.state() | {"feature_offset": scaling.offset} | own
        variables = {
            name: (dimensions, arrays[name], {"long_name": meaning}) for name, (dimensions, meaning) in kinds.items()
        }
        names = list(self.narx.feature_names)
        dataset = xr.Dataset(variables, coords={"feature": names}, attrs=self._attributes())
        return dataset.assign_attrs(digest=digest(dataset))

    def _attributes(self) -> dict[str, Any]:
        gp = self.gp
        return {
            "narx": json.dumps(self.narx.to_dict()),
            "kernel": describe(gp.kernel),
            "insertion": describe(gp.insertion),
            "acceptance": describe(gp.acceptance),
            "reduction": describe(gp.reduction),
            "noise_variance": gp.noise_variance,
            "budget": gp.budget,
            "mean": describe(self.mean),
            "origin": json.dumps(self.origin.to_dict()),
            "output_limits": list(self.limits),
            "constant_features": json.dumps(self.constant_features),
            "counts": json.dumps(dict(zip(COUNTS, self._counts(), strict=True))),
        }

    @property
    def constant_features(self) -> tuple[int, ...]:
        """Features that did not vary in the training samples, where each is scaled by itself."""
        return self.scaling.constant if isinstance(self.scaling, Scaling) else ()

    def _counts(self) -> list[int]:
        return [*self.gp.state()["counts"].tolist(), self.gp.n_refactorisations, self.gp.n_renewals]

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset) -> "Model":
        """Inverse of `to_dataset`."""
        attributes = dataset.attrs
        gp = OnlineGP(
            build(attributes["kernel"], Kernel),  # type: ignore[type-abstract]
            noise_variance=float(attributes["noise_variance"]),
            budget=int(attributes["budget"]),
            insertion=build(attributes["insertion"], Insertion),  # type: ignore[type-abstract]
            acceptance=build(attributes["acceptance"], Acceptance),  # type: ignore[type-abstract]
            reduction=build(attributes["reduction"], Criterion),  # type: ignore[type-abstract]
        )
        content = json.loads(attributes["counts"])
        *counts, gp.n_refactorisations, gp.n_renewals = (int(content[name]) for name in COUNTS)
        gp.restore({str(name): dataset[name].values for name in dataset.data_vars}, counts)
        narx = Narx.from_dict(json.loads(attributes["narx"]))
        mean, origin, limits = _facts_of(attributes)
        return cls(narx, _scaling_of(dataset), mean, gp, origin, limits)

    def save(self, path: str | PathLike[str], *, attributes: dict[str, Any] | None = None) -> None:
        """Write the model to a NetCDF file, complete or not at all."""
        store.write(self.to_dataset(), path, kind="model", attributes=attributes)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Model":
        """Model of a file of `save` or of a job; it predicts, and learns on, bit for bit as the one that was saved.

        Raises
        ------
        sysid.store.StoreError
            Missing, damaged or foreign file, one of several models, or one whose content does not fit together.
        """
        found = read_models(path)
        if "" not in found:
            raise store.StoreError(f"{path} holds models of {list(found)}: read it with sysid.joint.JointModel.load")
        return cls.restored(found[""], path)

    @classmethod
    def restored(cls, dataset: xr.Dataset, path: str | PathLike[str]) -> "Model":
        """`from_dataset` of the content of a file, whose name the error of a damaged one tells.

        Raises
        ------
        sysid.store.StoreError
            If the content does not fit together.
        """
        try:
            model = cls.from_dataset(dataset)
            _check_digest(dataset)
        except (KeyError, ValueError, TypeError, ArithmeticError) as error:
            raise store.StoreError(
                f"{path} is not a complete model ({type(error).__name__}: {error}); save it anew"
            ) from error
        return model


def _scaling_of(dataset: xr.Dataset) -> FeatureMap:
    if "feature_matrix" in dataset:
        return Projection(dataset["feature_offset"].values, dataset["feature_matrix"].values)
    constant = tuple(json.loads(dataset.attrs["constant_features"]))
    return Scaling(dataset["feature_offset"].values, dataset["feature_scale"].values, constant)


def _facts_of(attributes: dict[str, Any]) -> tuple[MeanFunction, Origin, tuple[float, float]]:
    """Mean, origin and limits of files of schema version 2; those of version 1 have a constant mean and no others."""
    if "target_offset" in attributes:
        return ConstantMean(float(attributes["target_offset"])), Origin(), NO_LIMITS
    mean = build(str(attributes["mean"]), MeanFunction)  # type: ignore[type-abstract]
    return mean, Origin.from_dict(json.loads(attributes["origin"])), checked_limits(attributes["output_limits"])


def digest(dataset: xr.Dataset) -> str:
    """SHA-256 of everything that defines a model: its variables and `OWN_ATTRIBUTES`, whatever else the file says."""
    found = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        values = dataset[name].values
        content = "\0".join(map(str, values)).encode() if values.dtype.kind in "OUT" else values.tobytes()
        found.update(f"{name} {values.shape} ".encode() + content)
    for name in OWN_ATTRIBUTES:
        if name in dataset.attrs:
            found.update(f"{name} {np.asarray(dataset.attrs[name]).tolist()!r} ".encode())
    return found.hexdigest()


def _check_digest(dataset: xr.Dataset) -> None:
    """Refuse a model of schema version 2 or later that was edited after it was saved."""
    if "target_offset" not in dataset.attrs and dataset.attrs["digest"] != digest(dataset):
        raise ValueError("its digest is not that of its content: it was edited after it was saved")
