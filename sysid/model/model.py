"""Identified models: one output each, or all outputs of a system over the same regressors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from numbers import Real
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid import store
from sysid.arrays import matrix, rows
from sysid.errors import UserError, UserTypeError
from sysid.gp import dictionary
from sysid.gp.adaptation import WATCHED_FIELDS, Adaptation, Adaptive
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import UpdateReport
from sysid.gp.kernels import Kernel
from sysid.gp.mean import MeanFunction
from sysid.gp.online import OnlineGP
from sysid.gp.rules import Acceptance, Criterion, Insertion, Learning
from sysid.model.description import OwnClassError, build, describe
from sysid.model.model_file import (
    MAP_ARRAYS,
    map_from_arrays,
    map_to_arrays,
    read_models,
    to_variables,
)
from sysid.narx.lags import Narx

Units = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Origin:
    """Facts about the samples that a model was identified from; None: not known.

    New records are compared with them, and the log loss of a prediction refers to the mean and the
    variance.

    Examples
    --------
    >>> Origin(sampling_time=4.0, units={"y": "V", "u": "V"}).unit("y")
    'V'
    """

    sampling_time: float | None = None  # s; 1 where time counts samples
    units: Mapping[str, str] | Units = ()  # of every signal that has one
    output_mean: float | None = None  # of the target output y, its unit
    output_variance: float | None = None  # unit of the target output squared
    output_range: tuple[float, float] | None = None  # smallest and largest y
    n_samples: int | None = None  # rows of the lag data set

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(sorted(dict(self.units).items())))
        numbers = {
            name: getattr(self, name) for name in ("output_mean", "output_variance", "n_samples")
        }
        if not all(isinstance(value, str) for value in dict(self.units).values()):
            raise UserTypeError(f"Origin: units must be text, got {self.units}")
        if not all(value is None or isinstance(value, Real) for value in numbers.values()):
            raise UserTypeError(f"Origin: expected numbers, got {numbers}")
        if self.sampling_time is not None and not 0 < self.sampling_time < inf:
            raise UserError(
                f"Origin: sampling_time must be positive and finite [s], got {self.sampling_time}"
            )
        if self.output_range is not None:
            object.__setattr__(
                self, "output_range", tuple(float(value) for value in self.output_range)
            )

    @classmethod
    def of(cls, rows: xr.Dataset) -> Origin:
        """Facts about the rows of a lag data set (`Narx.dataset`), all of which the model has
        seen.
        """
        narx = Narx.from_dict(json.loads(rows.attrs["narx"]))
        units = dict(
            zip(
                rows["signal"].values.tolist(),
                rows["unit"].values.tolist(),
                strict=True,
            )
        )
        if "units" in rows["previous"].attrs:
            units[narx.target] = rows["previous"].attrs["units"]
        y = narx.predict.to_value(rows["target"].values, rows["previous"].values)
        return cls(
            sampling_time=float(rows.attrs["sampling_time"]),
            units={str(name): str(unit) for name, unit in units.items() if unit},
            output_mean=float(y.mean()),
            output_variance=float(y.var()),
            output_range=(float(y.min()), float(y.max())),
            n_samples=len(y),
        )

    def unit(self, signal: str) -> str:
        """Return the unit of a signal; empty if not known."""
        return dict(self.units).get(signal, "")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON; ``Origin(**values)`` is the inverse."""
        return asdict(self) | {"units": dict(self.units)}


#: of a model that learns from every sample: there K has a hundredth of the noise variance added, and F y is the mean of
#: the whitened values of the points
OF_ALL = {
    "root": (
        ("age", "age_of_column"),
        "upper triangular M, M'M = covariance of the whitened values of the points",
    ),
}


#: of a model whose hyper-parameters are estimated anew as it learns
FOLLOWING = {
    "seen_inputs": (
        ("kept", "kept_coordinate"),
        "unbiased sample of the stream, standardised",
    ),
    "seen_targets": (("kept",), "its targets without the mean"),
    "seen_numbers": (("kept",), "which of the samples seen they are"),
    "seen_squares": (
        ("error",),
        "squared standardised errors since the last estimate of the hyper-parameters",
    ),
    "seen_rows": (
        ("row", "column"),
        f"regressor, target, {', '.join(WATCHED_FIELDS)} of the samples since the last look",
    ),
    "seen_counts": (
        ("count",),
        "seed; samples drawn from, seen, left out, seen at the last estimate; points since",
    ),
}


#: arrays of a model file: dimensions and meaning
ARRAYS = {
    "inputs": (("slot", "feature"), "stored points, standardised"),
    "targets": (("slot",), "targets of the stored points, centred"),
    "order": (("age",), "slot of each point from the oldest to the youngest"),
    "cholesky": (
        ("age", "age_of_column"),
        "upper triangular U with U'U = K + noise_variance I",
    ),
    "factor": (
        ("age", "age_of_column"),
        "lower triangular F with F'F = (K + noise_variance I)^-1",
    ),
    "pivots": (("age",), "1 / diag(U)"),
    "whitened": (("age",), "F y"),
    "weights": (("age",), "(K + noise_variance I)^-1 y"),
    "precision": (("age",), "diagonal of (K + noise_variance I)^-1"),
    "errors": (
        ("statistic",),
        "sum and number of squared standardised errors, memory, scale, level of outliers",
    ),
    "number": (
        ("slot",),
        "which of the samples seen each stored point was; -1 if unknown",
    ),
    **OF_ALL,
    **MAP_ARRAYS,
    **FOLLOWING,
}


#: the points of a map with a matrix
COORDINATES = {"inputs": (("slot", "coordinate"), "stored points, in coordinates")}


#: attributes that define a model and stand in every file of one
STATED = (
    *(
        "acceptance",
        "bands",
        "budget",
        "constant_features",
        "counts",
        "forgetting",
        "gate",
        "gate_opens_after",
    ),
    *(
        "insertion",
        "kernel",
        "learning",
        "mean",
        "narx",
        "noise_variance",
        "origin",
        "output_limits",
    ),
    *("reduction", "scale"),
)
#: attributes that define a model, in the order in which its digest takes them
OWN_ATTRIBUTES = tuple(sorted((*STATED, "pending", "training")))


RULES: dict[str, type] = {
    "insertion": Insertion,
    "acceptance": Acceptance,
    "reduction": Criterion,
}
NO_LIMITS = (-inf, inf)
BYTES_OF_PAIR = 27  # that a model takes for each pair of the points of its budget


class Prediction(NamedTuple):
    """Predictive distribution of the target at a set of regressors."""

    mean: np.ndarray  # (m,) target unit
    variance: np.ndarray  # (m,) latent, target unit^2; add the noise variance for a measurement


@dataclass(frozen=True, eq=False)
class Model:
    """NARX model whose function is an online GP on standardised features.

    ``target[k] = m(regressor[k]) + f((regressor[k] - offset) / scale) + e[k]``, m a mean function,
    f a zero-mean GP, ``e ~ N(0, noise_variance)``. The target is never scaled, so that variances
    and thresholds keep its unit. In simulation the output stays within its limits, where a sensor
    or an actuator saturates; `predict` knows none.
    """

    narx: Narx
    scaling: AffineMap  # from features to the coordinates of the kernel
    mean: MeanFunction  # of features in their own units
    gp: OnlineGP
    origin: Origin = field(default_factory=Origin)  # of the samples that it was identified from
    limits: tuple[float, float] = NO_LIMITS  # between which the target output saturates, its unit
    #: (horizon, factor), horizons rising: so much wider than the GP says were errors of samples that were held out
    bands: tuple[tuple[int, float], ...] = ()
    pending: dict[str, Any] = field(
        default_factory=dict, repr=False
    )  # what `Identification.resume` needs beside it
    follower: Any = field(
        default=None, repr=False
    )  # what re-estimates its hyper-parameters there; None: nothing

    def __post_init__(self) -> None:
        sizes = (self.narx.n_features, self.scaling.n_features)
        if sizes[0] != sizes[1] or self.scaling.n_coordinates != self.gp.n_features:
            raise UserError(
                f"Model: lags and scaling must have the same features, got {sizes}; scaling and kernel the same "
                f"coordinates, got {(self.scaling.n_coordinates, self.gp.n_features)}"
            )
        if not isinstance(self.mean, MeanFunction):
            raise UserTypeError(
                f"Model: mean must be a MeanFunction such as ConstantMean(0.5), got {self.mean!r}"
            )
        self.mean.check(self.narx.n_features)
        low, high = (float(value) for value in self.limits)
        if not low < high:
            raise UserError(
                f"limits must be two numbers, low < high (infinite for none), got ({low}, {high})"
            )
        object.__setattr__(self, "limits", (low, high))
        horizons = [pair[0] for pair in self.bands]
        factors = [pair[1] for pair in self.bands]
        if (
            sorted({*horizons}) != horizons
            or not all(0 < f < inf for f in factors)
            or any(h < 1 for h in horizons)
        ):
            raise UserError(
                f"bands must be pairs of a rising horizon and a positive factor, got {self.bands}"
            )

    def predict(self, regressors: ArrayLike) -> Prediction:
        """Mean and latent variance of the target at regressors (m, n_features), in their own
        units.
        """
        x = matrix(regressors, self.narx.n_features, "regressors")
        mean, variance = self.gp.predict(self.scaling.transform(x))
        return Prediction(mean + self.mean(x), variance)

    def calibrated(self, variance: ArrayLike, horizon: ArrayLike = 1) -> np.ndarray:
        """Latent variance v' with which the band of a measurement is as wide as the errors of
        held-out samples.

        ``v' + s = c(h)^2 (v + s)``, at least v' = 0: noise variance s, factor c of the horizon h
        [samples]; between two horizons of `bands` by the logarithm, beyond the last as there.
        Without `bands` v' = v.
        """
        latent = np.asarray(variance, dtype=np.float64)
        if not self.bands:
            return latent
        horizons, factors = np.log(np.array(self.bands).T)
        factor = np.exp(np.interp(np.log(horizon), horizons, factors))
        return np.maximum(
            factor**2 * (latent + self.gp.noise_variance) - self.gp.noise_variance, 0.0
        )

    def update(self, regressor: ArrayLike, target: float) -> UpdateReport:
        """Predict one sample, then learn from it; the reported mean is that of the target."""
        return UpdateReport(*self.update_many(np.asanyarray(regressor)[None], [target])[0].item())

    def update_many(
        self,
        regressors: ArrayLike,
        targets: ArrayLike,
        *,
        until_outlier: bool = False,
        withhold: bool = False,
    ) -> np.ndarray:
        """`update` for rows (n, n_features) and targets (n,), compiled; a record as of
        `OnlineGP.update_many`.

        With `until_outlier` it ends with the first outlier, and the rows after it are not yet seen.
        With `withhold` the only row is passed over (`OnlineGP.withhold`).
        """
        x, y = rows(regressors, targets, self.narx.n_features, "regressors")
        prior = np.ascontiguousarray(self.mean(x), dtype=np.float64)
        if prior.shape != y.shape:
            raise UserError(
                f"{self.mean}: expected a mean {y.shape} of regressors {x.shape}, got {prior.shape}"
            )
        z = self.scaling.transform(x)
        return (
            self.gp.withhold(z, y, prior)
            if withhold
            else self.gp.learn(z, y, prior, until_outlier=until_outlier)
        )

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Hyper-parameters by name in the units of the data, for people; coordinates z of a matrix
        have no unit.
        """
        if self.scaling.matrix is None:
            kernel = self.gp.kernel.stretched(self.scaling.scale).describe(self.narx.feature_names)
        else:
            kernel = self.gp.kernel.describe(
                tuple(f"z{i + 1}" for i in range(self.scaling.n_coordinates))
            )
        mean = dict(json.loads(describe(self.mean)))
        name = mean.pop("class").rpartition(".")[2]
        return {
            "kernel": kernel,
            "noise_variance": self.gp.noise_variance,
            "mean": {"class": name, **mean},
        }

    @property
    def constant_features(self) -> tuple[int, ...]:
        """Features that did not vary in the training samples, where each is scaled by itself."""
        return self.scaling.constant

    def to_dataset(self) -> xr.Dataset:
        """Everything needed to rebuild the model bit for bit; schema "model" of the store."""
        gp = self.gp
        attributes = {
            "narx": json.dumps(self.narx.to_dict()),
            **{name: describe(getattr(gp, name)) for name in ("kernel", *RULES)},
            "noise_variance": gp.noise_variance,
            "budget": gp.budget,
            "learning": gp.learning.value,
            "scale": str(gp.scale),
            "forgetting": gp.forgetting or 0.0,
            "gate": gp.gate or 0.0,
            "gate_opens_after": gp.gate_opens_after,
            "mean": describe(self.mean),
            "origin": json.dumps(self.origin.to_dict()),
            "output_limits": list(self.limits),
            "bands": json.dumps(self.bands),
            "constant_features": json.dumps(self.constant_features),
            "counts": json.dumps(gp.counts()),
        }
        if self.pending:
            attributes["pending"] = json.dumps(self.pending)
        labels = ARRAYS if self.scaling.matrix is None else ARRAYS | COORDINATES
        arrays = gp.state() | map_to_arrays(self.scaling)
        if isinstance(self.follower, Adaptation):
            attributes["training"] = describe(self.follower.settings)
            arrays |= self.follower.state()
        variables = to_variables(arrays, labels)
        dataset = xr.Dataset(
            variables,
            coords={"feature": list(self.narx.feature_names)},
            attrs=attributes,
        )
        return dataset.assign_attrs(digest=digest(dataset))

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset, *, trusted: Sequence[str] = ()) -> Model:
        """Inverse of `to_dataset`; see `load`.

        Raises
        ------
        ValueError, ArithmeticError
            Content that is missing, of another type, or does not fit together; a class that is not
            trusted.
        """
        attributes = dataset.attrs

        def read(name: str, role: type) -> Any:
            return build(str(attributes[name]), role, trusted=trusted)

        if lacking := [name for name in STATED if name not in attributes]:
            of_all = "which every model file of this version has"
            raise UserError(f"it lacks the attributes {lacking}, {of_all}")
        arrays = {str(name): dataset[name].values for name in dataset.data_vars}
        learning = str(attributes["learning"])
        optional = (
            MAP_ARRAYS | FOLLOWING
            if learning == Learning.every_sample.value
            else MAP_ARRAYS | FOLLOWING | OF_ALL
        )
        if wrong := [name for name in ARRAYS if name not in optional and name not in arrays]:
            raise UserError(f"it lacks the arrays {wrong}")
        # here the content alone decides what fails; errors of other types further down are our own
        try:
            gp = OnlineGP(
                read("kernel", Kernel),
                noise_variance=float(attributes["noise_variance"]),
                budget=_check_budget(int(attributes["budget"])),
                learning=learning,
                scale=attributes["scale"] == "True",
                forgetting=float(attributes["forgetting"]) or None,
                gate=float(attributes["gate"]) or None,
                gate_opens_after=int(attributes["gate_opens_after"]),
                **{name: read(name, role) for name, role in RULES.items()},
            )
            counts = json.loads(attributes["counts"])
            gp.n_refactorisations, gp.n_renewals = (
                int(counts["refactorisations"]),
                int(counts["renewals"]),
            )
            gp.n_clipped_predictions = int(counts["clipped_predictions"])
            own_counts = [int(np.int64(counts[name])) for name in dictionary.COUNT_NAMES]
            narx = Narx.from_dict(json.loads(attributes["narx"]))
            scaling = map_from_arrays(arrays, json.loads(attributes["constant_features"]))
            mean = read("mean", MeanFunction)
            origin = Origin(**json.loads(attributes["origin"]))
            low, high = (float(value) for value in attributes["output_limits"])
            bands = tuple((int(h), float(factor)) for h, factor in json.loads(attributes["bands"]))
            pending = dict(json.loads(attributes.get("pending", "{}")))
            follower = None
            if "training" in attributes:
                follower = Adaptation.restored(
                    read("training", Adaptive), scaling, mean, gp.learning, arrays
                )
        except UserError:
            raise
        except (KeyError, TypeError, RecursionError) as error:
            raise UserError(f"{type(error).__name__}: {error}") from error
        except (ValueError, ArithmeticError) as error:
            raise UserError(str(error)) from error
        gp.restore(arrays, own_counts)
        return cls(narx, scaling, mean, gp, origin, (low, high), bands, pending, follower)

    def save(self, path: str | PathLike[str], *, attributes: dict[str, Any] | None = None) -> None:
        """Write the model to a NetCDF file, complete or not at all."""
        store.write(self.to_dataset(), path, kind="model", attributes=attributes)

    @classmethod
    def load(cls, path: str | PathLike[str], *, trusted: Sequence[str] = ()) -> Model:
        """Model of a file of `save` or of a job; it predicts, and learns on, bit for bit as the one
        that was saved.

        Parameters
        ----------
        path
        trusted : sequence of str
            Modules or classes of one's own, ``["mine.mean"]``, that the file may name; they are
            imported. A class whose module was imported before needs no trust.

        Raises
        ------
        sysid.StoreError
            Missing, damaged or foreign file, one of several models, one whose content does not fit
            together, or one that names a class that is not trusted.
        """
        found = read_models(path)
        if "" not in found:
            raise store.StoreError(
                f"{path} holds models of {list(found)}: read it with sysid.JointModel.load"
            )
        return cls.restored(found[""], path, trusted=trusted)

    @classmethod
    def restored(
        cls,
        dataset: xr.Dataset,
        path: str | PathLike[str],
        *,
        trusted: Sequence[str] = (),
    ) -> Model:
        """`from_dataset` of the content of a file, checked by its digest; errors name the file.

        Raises
        ------
        sysid.StoreError
            If the content does not fit together, was edited, or names a class that is not trusted.
        """
        try:
            model = cls.from_dataset(dataset, trusted=trusted)
            if dataset.attrs.get("digest") != digest(dataset):
                raise UserError(
                    "its digest is not that of its content: it was edited after it was saved"
                )
        except OwnClassError as error:
            raise store.StoreError(f"{path}: {error}") from error
        except UserError as error:
            raise store.StoreError(
                f"{path} is not a complete model ({error}); save it anew"
            ) from error
        return model


def _check_budget(budget: int) -> int:
    """Refuse a budget whose arrays take too much of the memory, before they are made: no file has
    to hold them.
    """
    most = int((store.MOST_BYTES / 8 / BYTES_OF_PAIR) ** 0.5)
    if budget > most:
        least = 8 * BYTES_OF_PAIR * (budget + 1) ** 2
        raise UserError(
            f"its budget of {budget} points is beyond the {most} that a file may ask for; if you trust it, set the "
            f"environment variable SYSID_MOST_BYTES={least}"
        )
    return budget


def digest(dataset: xr.Dataset) -> str:
    """SHA-256 of everything that defines a model: its variables and `OWN_ATTRIBUTES`, whatever else
    the file says.
    """
    return store.digest(dataset, OWN_ATTRIBUTES)


@dataclass(frozen=True, eq=False)
class JointModel:
    """Models of all outputs, each with a Gaussian process of its own, sharing the regressors.

    Parameters
    ----------
    models
        One for each output of their `Narx`, in any order; they come in the order of its output
        names. Their lags are the same, only the target differs.

    Raises
    ------
    ValueError
        No model, other lags, an output without a model or with two, another kind of target,
        sampling time or unit.

    Examples
    --------
    A single output is a joint model of one: ``JointModel.of(model).output_names``.
    """

    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        given = tuple(self.models)
        if not given:
            raise UserError("JointModel: expected one model per output, got none")
        outputs = given[0].narx.output_names
        targets = [model.narx.target for model in given]
        if sorted(targets) != sorted(outputs):
            raise UserError(
                f"JointModel: to feed the outputs {list(outputs)} back, expected one model for each, got models of "
                f"{targets}; identify the others with the same lags, or leave them out of the regressors"
            )
        first = _shared_facts(given[0])
        for model in given:
            for name, found in _shared_facts(model).items():
                if found != first[name]:
                    raise UserError(
                        f"JointModel: expected one {name} for all models, got {first[name]} of {targets[0]!r} and "
                        f"{found} of {model.narx.target!r}; identify both from the same records"
                    )
        object.__setattr__(
            self,
            "models",
            tuple(sorted(given, key=lambda model: outputs.index(model.narx.target))),
        )

    @classmethod
    def of(cls, model: Model | JointModel) -> JointModel:
        """Return a joint model as it is, or make one of the model of the only output."""
        return model if isinstance(model, JointModel) else cls((model,))

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in the order of the models."""
        return self.models[0].narx.output_names

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of the regressors."""
        return self.models[0].narx.input_names

    @property
    def origin(self) -> Origin:
        """That of the first model; sampling time and units are the same for all."""
        return self.models[0].origin

    @property
    def noise_variance(self) -> np.ndarray:
        """Noise variances (n_outputs,), units of the outputs squared."""
        return np.array([model.gp.noise_variance for model in self.models])

    def save(
        self, path: str | PathLike[str], *, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Write the models to one NetCDF file, complete or not at all: a group for each output, or
        one data set.
        """
        if len(self.models) == 1:
            self.models[0].save(path, attributes=dict(attributes or {}))
            return
        groups = {model.narx.target: model.to_dataset() for model in self.models}
        store.write_groups(groups, path, kind="model", attributes=attributes)

    @classmethod
    def load(cls, path: str | PathLike[str], *, trusted: Sequence[str] = ()) -> JointModel:
        """Models of a file of `save`, of `Model.save` or of a job; they predict bit for bit as
        those that were saved.

        Parameters
        ----------
        path
        trusted : sequence of str
            As in `Model.load`.

        Raises
        ------
        sysid.StoreError
            As `Model.load`; also models that do not belong together.
        """
        try:
            return cls(
                tuple(
                    Model.restored(one, path, trusted=trusted) for one in read_models(path).values()
                )
            )
        except UserError as error:
            raise store.StoreError(f"{path} cannot be simulated: {error}") from error


def _shared_facts(model: Model) -> dict[str, Any]:
    """Return what all models of a joint model have in common."""
    narx = model.narx
    origin = model.origin
    facts = {"lags": narx.lags, "kind of target": narx.predict}
    return facts | {"sampling time [s]": origin.sampling_time, "units": origin.units}
