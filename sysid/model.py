"""An identified model: lags, scaling and online GP, ready to predict, to learn on and to be kept."""

import json
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid import dictionary, store
from sysid.acceptance import Acceptance
from sysid.criteria import Criterion
from sysid.description import build, describe
from sysid.insertion import Insertion
from sysid.kernels import Kernel
from sysid.narx import Narx
from sysid.online import OnlineGP
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
    "feature_scale": (("feature",), "the features are divided by it afterwards"),
}


class Prediction(NamedTuple):
    """Predictive distribution of the target at a set of regressors."""

    mean: np.ndarray  # (m,) target unit
    variance: np.ndarray  # (m,) latent, target unit^2; add the noise variance for a measurement


@dataclass(frozen=True, eq=False)
class Model:
    """NARX model whose function is an online GP on standardised features.

    ``target[k] = offset + f((regressor[k] - mean) / std) + e[k]``, f a GP, ``e ~ N(0, noise_variance)``.
    The target is centred, never scaled, so that variances and thresholds keep its unit.
    """

    narx: Narx
    scaling: Scaling  # of the features
    offset: float  # target unit
    gp: OnlineGP

    def __post_init__(self) -> None:
        sizes = (self.narx.n_features, self.scaling.n_features, self.gp.n_features)
        if len(set(sizes)) > 1:
            raise ValueError(f"Model: lags, scaling and kernel must have the same features, got {sizes}")
        if not np.isfinite(self.offset):
            raise ValueError(f"Model: offset must be finite, got {self.offset}")

    def predict(self, regressors: ArrayLike) -> Prediction:
        """Mean and latent variance of the target at regressors (m, n_features), in their own units."""
        mean, variance = self.gp.predict(self.scaling.transform(regressors))
        return Prediction(mean + self.offset, variance)

    def update(self, regressor: np.ndarray, target: float) -> UpdateReport:
        """Predict one sample, then learn from it; the reported mean is that of the target."""
        report = self.gp.update(self.scaling.transform(regressor), target - self.offset)
        return report._replace(mean=report.mean + self.offset)

    def update_many(self, regressors: np.ndarray, targets: np.ndarray) -> UpdateReports:
        """`update` for rows (n, n_features) and targets (n,), compiled."""
        reports = self.gp.update_many(self.scaling.transform(regressors), targets - self.offset)
        return replace(reports, mean=reports.mean + self.offset)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Hyper-parameters with names and units of the data, for people."""
        kernel = dict(json.loads(describe(self.gp.kernel)))
        kernel["class"] = kernel["class"].rpartition(".")[2]
        scales = kernel.get("length_scales")
        if scales is not None:
            own_units = (np.asarray(scales) * self.scaling.scale).tolist()
            kernel["length_scales"] = dict(zip(self.narx.feature_names, own_units, strict=True))
        return {"kernel": kernel, "noise_variance": self.gp.noise_variance, "target_offset": self.offset}

    def to_dataset(self) -> xr.Dataset:
        """Everything needed to rebuild the model bit for bit; schema "model" of the store."""
        scaling = {"feature_offset": self.scaling.offset, "feature_scale": self.scaling.scale}
        arrays = self.gp.state() | scaling
        variables = {
            name: (dimensions, arrays[name], {"long_name": meaning}) for name, (dimensions, meaning) in ARRAYS.items()
        }
        names = list(self.narx.feature_names)
        return xr.Dataset(variables, coords={"feature": names}, attrs=self._attributes())

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
            "target_offset": self.offset,
            "constant_features": json.dumps(self.scaling.constant),
            "counts": json.dumps(dict(zip(COUNTS, self._counts(), strict=True))),
        }

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
        constant = tuple(json.loads(attributes["constant_features"]))
        scaling = Scaling(dataset["feature_offset"].values, dataset["feature_scale"].values, constant)
        return cls(Narx.from_dict(json.loads(attributes["narx"])), scaling, float(attributes["target_offset"]), gp)

    def save(self, path: str | PathLike[str], *, attributes: dict[str, Any] | None = None) -> None:
        """Write the model to a NetCDF file, complete or not at all."""
        store.write(self.to_dataset(), path, kind="model", attributes=attributes)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Model":
        """Model of a file; it predicts, and learns on, bit for bit as the one that was saved.

        Raises
        ------
        sysid.store.StoreError
            Missing, damaged or foreign file, or one whose content does not fit together.
        """
        dataset = store.read(path, kind="model")
        try:
            return cls.from_dataset(dataset)
        except (KeyError, ValueError, TypeError, ArithmeticError) as error:
            raise store.StoreError(
                f"{path} is not a complete model ({type(error).__name__}: {error}); save it anew"
            ) from error
