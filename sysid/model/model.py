"""Identified models, of one output or of all outputs of a system over the same regressors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import wraps
from html import escape
from math import inf
from os import PathLike
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sysid import store
from sysid.arrays import check_whole, is_number, matrix, rows
from sysid.errors import UserError, UserTypeError
from sysid.gp import dictionary
from sysid.gp.adaptation import WATCHED_FIELDS, Adaptation, Adaptive
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import UpdateReport
from sysid.gp.kernels import Kernel
from sysid.gp.linear_part import WithLinearPart
from sysid.gp.mean import MeanFunction
from sysid.gp.online import OnlineGP
from sysid.gp.rules import Acceptance, Criterion, Insertion, Learning
from sysid.markup import chart, labelled, notes, table, with_unit
from sysid.model.description import OwnClassError, build, describe
from sysid.model.linear_view import LinearView
from sysid.model.model_file import (
    MAP_ARRAYS,
    map_from_arrays,
    map_to_arrays,
    read_models,
    to_variables,
)
from sysid.model.operating_point import linearize
from sysid.model.simulated_signals import SimulatedSignals
from sysid.narx.lags import Narx, own_lags_of

Function = TypeVar("Function", bound=Callable[..., Any])
Units = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Origin:
    """Facts about the samples that a model was identified from; None: not known.

    New records are compared with these facts. The mean and the variance define the trivial
    prediction of the mean standardised log loss.

    Examples
    --------
    >>> Origin(sampling_time=4.0, units={"y": "V", "u": "V"}).unit("y")
    'V'
    """

    sampling_time: float | None = None  # [s]; 1 if time counts samples
    units: Mapping[str, str] | Units = ()  # units by signal, for every signal that has one
    output_mean: float | None = None  # mean of the target output, in its unit
    output_variance: float | None = None  # variance of the target output, in its unit squared
    output_range: tuple[float, float] | None = None  # smallest and largest value of the output
    n_samples: int | None = None  # number of rows of the lag data set

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(sorted(dict(self.units).items())))
        if not all(isinstance(value, str) for value in dict(self.units).values()):
            raise UserTypeError(f"Origin: units must be text, got {self.units}")
        self._check_numbers()
        if self.sampling_time is not None and not 0 < self.sampling_time < inf:
            raise UserError(
                f"Origin: sampling_time must be positive and finite [s], got {self.sampling_time}"
            )
        if self.output_range is not None:
            output_range = tuple(float(value) for value in self.output_range)
            if len(output_range) != 2 or not -inf < output_range[0] <= output_range[1] < inf:
                raise UserError(
                    "Origin: output_range must be two finite numbers, the smaller one first, got "
                    f"{self.output_range}"
                )
            object.__setattr__(self, "output_range", output_range)

    def _check_numbers(self) -> None:
        """Raise UserTypeError or UserError unless moments and count are possible, or None."""
        lowest = {"output_mean": -inf, "output_variance": 0.0}
        for name, limit in lowest.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not is_number(value):
                raise UserTypeError(f"Origin: {name} must be a number, got {value!r}")
            if not limit <= float(value) < inf or value == -inf:
                raise UserError(f"Origin: {name} must be finite and possible, got {value!r}")
        if self.n_samples is not None:
            check_whole(self.n_samples, 0, "Origin: n_samples")

    @classmethod
    def of(cls, rows: xr.Dataset) -> Origin:
        """Return the facts about the rows of a lag data set (`Narx.dataset`)."""
        narx = Narx.from_dict(json.loads(rows.attrs["narx"]))
        signals = rows["signal"].values.tolist()
        units = dict(zip(signals, rows["unit"].values.tolist(), strict=True))
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
        """Return the unit of a signal; empty if it is not known."""
        return dict(self.units).get(signal, "")

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as plain values for JSON; ``Origin(**values)`` is the inverse."""
        return asdict(self) | {"units": dict(self.units)}


#: Arrays of a model that learns from every sample, beside those of all models. In such a model a
#: hundredth of the noise variance is added to K, and F y is the mean of the whitened values.
EVERY_SAMPLE_ARRAYS = {
    "root": (
        ("age", "age_of_column"),
        "upper triangular M, M'M = covariance of the whitened values of the points",
    ),
}


#: Arrays of a model with a linear part, beside those of all models. The whitened coefficients come
#: before the whitened values of the points.
LINEAR_PART_ARRAYS = {
    "linear": (
        ("lag_of_linear_part",),
        "posterior mean of the whitened coefficients of the linear part",
    ),
    "root": (
        ("coordinate_of_posterior", "coordinate_of_column"),
        "upper triangular M, M'M = covariance of the whitened coefficients, then of the values",
    ),
}


#: arrays of a model whose hyper-parameters are re-estimated while it learns
ADAPTATION_ARRAYS = {
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
    "seen_ranges": (
        ("end", "value"),
        "ranges of the lags of the target and of the target: before the last interval, and in it",
    ),
    "seen_departure": (
        ("row_of_departure", "column_of_departure"),
        "regressor, target, and whether it is no outlier, of the samples since a departure",
    ),
    "seen_departed": (
        ("count_of_departure",),
        "samples since a departure until the last look, and whether there are the two ranges",
    ),
}


#: arrays of a model file, with their dimensions and their meaning
MODEL_ARRAYS = {
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
    "recent_inputs": (
        ("recent_sample", "recent_feature"),
        "inputs of the last samples, standardised, by which it forgets; nan: not learned",
    ),
    "last_sample": (
        ("value_of_sample",),
        "inputs, standardised, and target, centred, of the last sample learned",
    ),
    "linear": LINEAR_PART_ARRAYS["linear"],
    **EVERY_SAMPLE_ARRAYS,
    **MAP_ARRAYS,
    **ADAPTATION_ARRAYS,
}


#: label of the stored points if the scaling has a matrix
COORDINATE_LABELS = {"inputs": (("slot", "coordinate"), "stored points, in coordinates")}


#: attributes that define a model and that every model file has
REQUIRED_ATTRIBUTES = (
    "acceptance",
    "bands",
    "budget",
    "constant_features",
    "counts",
    "forgetting",
    "gate",
    "gate_opens_after",
    "insertion",
    "kernel",
    "learning",
    "mean",
    "narx",
    "noise_variance",
    "origin",
    "output_limits",
    "reduction",
    "scale",
)

#: attributes that define a model, in the order in which its digest takes them
DIGEST_ATTRIBUTES = tuple(sorted((*REQUIRED_ATTRIBUTES, "pending", "training")))


#: settings of the online GP that are objects, with their roles
RULE_ROLES: dict[str, type] = {
    "insertion": Insertion,
    "acceptance": Acceptance,
    "reduction": Criterion,
}

#: output limits of a model whose output does not saturate
NO_OUTPUT_LIMITS = (-inf, inf)

#: Memory that a model takes for each pair of points of its budget [byte]. The coefficients of a
#: linear part count as points.
BYTES_PER_POINT_PAIR = 27

#: A counter of a file is smaller than this, so that a model can go on counting in 64 bits.
MAX_COUNT = 2**53

#: A model may take the memory of the largest content of a file divided by this.
MAX_MODEL_DIVISOR = 8


#: values of a regressor at which a picture shows its effect
N_EFFECT_VALUES = 41
Z_95 = float(ndtri(0.975))  # half width of a 95 % band in standard deviations


class Prediction(NamedTuple):
    """Predictive distribution of the target at a set of regressors."""

    mean: np.ndarray  # (m,) target unit
    #: (m,) of the latent function, target unit^2; add the noise variance for a measurement
    variance: np.ndarray


class LinearCoefficients(NamedTuple):
    """Posterior of the p coefficients of a linear part, in the units of the data."""

    mean: np.ndarray  # (p,) target unit per unit of the signal
    covariance: np.ndarray  # (p, p) products of these units


@dataclass(frozen=True, eq=False)
class Model:
    """NARX model whose function is an online GP on standardised features.

    ``target[k] = m(regressor[k]) + f((regressor[k] - offset) / scale) + e[k]``, m a mean function,
    f a zero-mean GP, ``e ~ N(0, noise_variance)``. The target is never scaled, so that variances
    and thresholds keep its unit. A simulation keeps the output within `limits`, where a sensor or
    an actuator saturates; `predict` ignores them.
    """

    narx: Narx
    scaling: AffineMap  # map from features to the coordinates of the kernel
    mean: MeanFunction  # mean function m of features in their own units
    gp: OnlineGP
    #: facts about the samples that the model was identified from
    origin: Origin = field(default_factory=Origin)
    #: values at which the target output saturates, in its unit
    limits: tuple[float, float] = NO_OUTPUT_LIMITS
    #: (horizon, factor) with rising horizons: how many times wider than the predicted bands the
    #: errors of held-out samples were
    bands: tuple[tuple[int, float], ...] = ()
    #: state that `Identification.resume` needs beside the model
    pending: dict[str, Any] = field(default_factory=dict, repr=False)
    #: object that re-estimates the hyper-parameters after `Identification.resume`; None: they stay
    follower: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n_features = (self.narx.n_features, self.scaling.n_features)
        n_coordinates = (self.scaling.n_coordinates, self.gp.n_features)
        if n_features[0] != n_features[1] or n_coordinates[0] != n_coordinates[1]:
            raise UserError(
                f"Model: lags and scaling must have the same features, got {n_features}; "
                f"scaling and kernel the same coordinates, got {n_coordinates}"
            )
        n_linear_lags = tuple(map(len, self.narx.linear_lags.values()))
        if n_linear_lags and n_linear_lags != self.gp.kernel.linear_lags:
            raise UserError(
                f"Model: the linear part must have the lags of the Narx, {n_linear_lags}, got a "
                f"kernel with {self.gp.kernel.linear_lags}"
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
        are_rising = sorted({*horizons}) == horizons and not any(h < 1 for h in horizons)
        if not are_rising or not all(0 < factor < inf for factor in factors):
            raise UserError(
                f"bands must be pairs of a rising horizon and a positive factor, got {self.bands}"
            )

    def predict(self, regressors: ArrayLike) -> Prediction:
        """Predict the target at regressors (m, n_features), given in their own units."""
        x = matrix(regressors, self.narx.n_features, "regressors")
        mean, variance = self.gp.predict(self.scaling.transform(x))
        return Prediction(mean + self.mean(x), variance)

    def predict_few(self, regressors: ArrayLike, *, is_checked: bool = False) -> Prediction:
        """Predict as `predict` does, up to rounding; few regressors (m, n_features) take less time.

        With `is_checked` they are a C-contiguous array of float64 that was checked, which takes
        time.
        """
        x = np.asarray(regressors)
        if not is_checked:
            x = matrix(regressors, self.narx.n_features, "regressors")
        mean, variance = self.gp.predict_few(self.scaling.transform(x), is_checked=True)
        return Prediction(mean + self.mean(x), variance)

    def predict_linear_part(self, regressors: ArrayLike) -> np.ndarray:
        """Predict the target (m,) without the Gaussian process of few features.

        It is the mean function plus ``phi'theta``, with the posterior mean of theta. Without a
        linear part it is the mean function alone. The regressors (m, n_features) are in their own
        units.
        """
        x = matrix(regressors, self.narx.n_features, "regressors")
        phi = self.scaling.transform(x)[:, self.gp.n_features - self.gp.n_linear :]
        return np.asarray(self.mean(x) + phi @ self.gp.coefficients)

    def linearize(
        self,
        at: Any = None,
        *,
        record: xr.Dataset | None = None,
        physics: SimulatedSignals | None = None,
    ) -> LinearView | list[LinearView]:
        """Return the linear view of the model at an operating point: gains, poles, Bode plot.

        Its difference equation has the partial derivatives of the model by its features, with
        their joint posterior.

        Parameters
        ----------
        at
            - None: the steady state for the mean inputs of the training.
            - Values of all inputs by name, ``{"heat": 50.0, "flow": 3.0}``: their steady state; the
              linear view of a list of values is a list, and several lists span a grid. With values
              of the outputs: constant signals that need not be a steady state.
            - A grid (n, n_u) of inputs, one row for each steady state: a list of views.
            - A number: the time of a sample of `record` [s].
            - A regressor (p,), or the values of all features by name, ``{"y[k-1]": 1.0, ...}``.
        record : xarray.Dataset, optional
            Record that a time refers to. It is also simulated, so that the bands contain what the
            errors of the simulation show (`LinearView.by_simulation`); this takes seconds.
        physics : SimulatedSignals, optional
            Physics beside the model (``experiments.plant.linear_physics.load_physics``), whose
            signals are among the features. It is linearised, too, and becomes a part of the linear
            system (`LinearView`). Without it these signals count as inputs.

        Raises
        ------
        ValueError, TypeError
            There is no steady state; the record has no such sample; signals, features or shapes are
            other ones; the function of the model has no derivative.

        Warns
        -----
        UserWarning
            The point lies outside of the stored points, the model knows little there, or errors of
            one step and of the simulation show different responses; see `LinearView.notes`.
        """
        return linearize([self], at, record=record, physics=physics)

    @property
    def linear_coefficients(self) -> LinearCoefficients:
        """Posterior mean and covariance of the coefficients of `linear_features`.

        The linear part is ``phi'theta`` with ``phi = A (x - offset)`` of its p features x. As a
        function of x, its coefficients have the mean ``A'E(theta)`` and the covariance
        ``A'cov(theta) A``, in units of the target per unit of the signal. ``A = diag(1 / scale)``,
        or a block of the matrix of the scaling. Both arrays are empty without a linear part.
        """
        first_coordinate = self.gp.n_features - self.gp.n_linear
        first_feature = self.narx.n_features - self.gp.n_linear
        A = self.scaling.linear_part()[first_coordinate:, first_feature:]
        with self.gp.lock:
            return LinearCoefficients(
                A.T @ self.gp.coefficients, A.T @ self.gp.coefficient_covariance @ A
            )

    def ahead(
        self,
        inputs: ArrayLike | Mapping[str, ArrayLike] | int,
        past_outputs: ArrayLike,
        past_inputs: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Predict the coming samples of a plant from its last samples; see `sysid.look_ahead`."""
        from sysid import look_ahead  # simulates the model, from a folder above this one

        return look_ahead(self, inputs, past_outputs, past_inputs)

    def calibrated(self, variance: ArrayLike, horizon: ArrayLike = 1) -> np.ndarray:
        """Return the latent variance v' that makes bands as wide as the errors of held-out samples.

        ``v' + s = c(h)^2 (v + s)``, but at least v' = 0, with the noise variance s and the factor c
        of the horizon h [samples]. Between two horizons of `bands` the factor is interpolated over
        the logarithm of the horizon; beyond the last it stays constant. Without `bands`, v' = v.
        """
        latent = np.asarray(variance, dtype=np.float64)
        if not self.bands:
            return latent
        log_horizons, log_factors = np.log(np.array(self.bands).T)
        factor = np.exp(np.interp(np.log(horizon), log_horizons, log_factors))
        noise_variance = self.gp.noise_variance
        return np.maximum(factor**2 * (latent + noise_variance) - noise_variance, 0.0)

    def update(self, regressor: ArrayLike, target: float) -> UpdateReport:
        """Predict one sample, then learn it; the reported mean is that of the target."""
        record = self.update_many(np.asanyarray(regressor)[None], [target])
        return UpdateReport(*record[0].item())

    def update_many(
        self,
        regressors: ArrayLike,
        targets: ArrayLike,
        *,
        until_outlier: bool = False,
        withhold: bool = False,
        record: np.ndarray | None = None,
    ) -> np.ndarray:
        """Predict and learn rows (n, n_features) with targets (n,), in compiled code.

        Returns a record as `OnlineGP.update_many`. With `until_outlier` it ends with the first
        outlier; the rows after it are not processed. With `withhold` the only row is predicted but
        not learned (`OnlineGP.withhold`). The record is written to the rows of `record` (n,), or to
        new ones.
        """
        x, y = rows(regressors, targets, self.narx.n_features, "regressors")
        prior_mean = self.prior_mean(x)
        z = self.scaling.transform(x)
        if withhold:
            return self.gp.withhold(z, y, prior_mean, record)
        return self.gp.learn(z, y, prior_mean, until_outlier=until_outlier, record=record)

    def prior_mean(self, x: np.ndarray) -> np.ndarray:
        """Return the mean function (n,) at regressors (n, n_features)."""
        prior_mean = np.ascontiguousarray(self.mean(x), dtype=np.float64)
        if prior_mean.shape != (len(x),):
            raise UserError(
                f"{self.mean}: expected a mean {(len(x),)} of regressors {x.shape}, "
                f"got {prior_mean.shape}"
            )
        return prior_mean

    def check_samples(self, regressors: ArrayLike, targets: ArrayLike) -> None:
        """Raise the ValueError of `update_many` if it would refuse these rows; learn nothing."""
        x, y = rows(regressors, targets, self.narx.n_features, "regressors")
        self.check_rows(x, y)

    def check_rows(self, x: np.ndarray, y: np.ndarray) -> None:
        """Do what `check_samples` does, for arrays whose shapes were checked."""
        z = self.scaling.transform(x)
        prior_mean = self.prior_mean(x)
        if not self.gp.can_learn(z, y, prior_mean):  # then the reason is found
            matrix(x, self.narx.n_features, "regressors")
            self.gp.check_samples(z, y, prior_mean)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Hyper-parameters by name, for display.

        They have the units of the data. If the scaling has a matrix, those of the kernel refer to
        the coordinates z1, z2, ..., which have no unit. Those of a linear part are listed by the
        signals.
        """
        if self.scaling.matrix is None:
            kernel = self.gp.kernel.stretched(self.scaling.scale)
            names = self.narx.feature_names
        else:
            kernel = self.gp.kernel
            names = tuple(f"z{i + 1}" for i in range(self.scaling.n_coordinates))
        described: dict[str, Any] = {}
        if isinstance(kernel, WithLinearPart):
            described["kernel"] = kernel.kernel.describe(names[: kernel.kernel.n_features])
            described["linear_part"] = kernel.linear.describe_by_signal(self.linear_signals)
        else:
            described["kernel"] = kernel.describe(names)
        mean = dict(json.loads(describe(self.mean)))
        name = mean.pop("class").rpartition(".")[2]
        described["noise_variance"] = self.gp.noise_variance
        described["mean"] = {"class": name, **mean}
        return described

    @property
    def known_range(self) -> tuple[float, float]:
        """Smallest and largest output that the model has learned, as far as it shows them.

        It contains `Origin.output_range` and the `range_of_points`; (inf, -inf) if neither is
        known.
        """
        lowest, highest = self.origin.output_range or (inf, -inf)
        lowest_of_points, highest_of_points = self.range_of_points
        return min(lowest, lowest_of_points), max(highest, highest_of_points)

    @property
    def range_of_points(self) -> tuple[float, float]:
        """Smallest and largest lagged output among the points, in its unit.

        They are (inf, -inf) if there are none, and if the coordinates of the points do not show
        them (a scaling with a matrix).
        """
        narx = self.narx
        lagged = [j for j, (name, _) in enumerate(narx.features) if name == narx.target]
        if not lagged or not self.gp.n_points or self.scaling.matrix is not None:
            return inf, -inf
        values = self.scaling.inverse(self.gp.inputs)[:, lagged]
        return float(values.min()), float(values.max())

    @property
    def linear_features(self) -> tuple[tuple[str, int], ...]:
        """Signals and lags of the linear part, which are those of the last features."""
        return self.narx.features[self.narx.n_features - self.gp.n_linear :]

    @property
    def linear_signals(self) -> tuple[str, ...]:
        """Names of the signals of the linear part, in the order of its kernel."""
        first_features = np.cumsum([0, *self.gp.kernel.linear_lags])[:-1]
        return tuple(self.linear_features[i][0] for i in first_features)

    @property
    def linear_blocks(self) -> dict[str, slice]:
        """Coefficients of each signal of the linear part, as a slice of all of them."""
        ends = np.cumsum(self.gp.kernel.linear_lags).tolist()
        n_lags = self.gp.kernel.linear_lags
        blocks = [slice(end - n, end) for end, n in zip(ends, n_lags, strict=True)]
        return dict(zip(self.linear_signals, blocks, strict=True))

    @property
    def features_in_words(self) -> str:
        """Features of the Gaussian process, number of its points, and lags of the linear part."""
        words = f"{self._features_of_gp()}; {self.gp.n_points} points"
        if self.gp.n_linear:
            words += f"; linear part: {self._lags_of_linear_part()}"
        return words

    def _features_of_gp(self) -> str:
        """Return the features that are not those of the linear part, in words."""
        return ", ".join(self.narx.feature_names[: self.narx.n_features - self.gp.n_linear])

    def _lags_of_linear_part(self) -> str:
        """Return how many lags of each signal the linear part has, in words."""
        numbers = zip(self.gp.kernel.linear_lags, self.linear_signals, strict=True)
        return ", ".join(f"{number} lags of {signal}" for number, signal in numbers)

    def _noise_in_words(self) -> str:
        """Return the standard deviation of the noise with its unit."""
        unit_of_target = self.narx.predict.unit_of(self.origin.unit(self.narx.target))
        return with_unit(float(np.sqrt(self.gp.noise_variance)), unit_of_target)

    def __repr__(self) -> str:
        narx = self.narx
        return (
            f"Model of the {narx.predict.value} of {narx.target}\n{self.features_in_words}; "
            f"standard deviation of the noise: {self._noise_in_words()}"
        )

    def _repr_html_(self) -> str:
        narx = self.narx
        rows = [
            ("predicts", f"{narx.predict.value} of {narx.target}"),
            ("regressors", self._features_of_gp()),
        ]
        if self.gp.n_linear:
            rows.append(("linear part", self._lags_of_linear_part()))
        rows += [
            ("stored points", f"{self.gp.n_points} of at most {self.gp.budget}"),
            ("samples seen", f"{self.gp.n_seen}"),
            ("learns from", self.gp.learning.value.replace("_", " ")),
            ("kernel", f"{self.hyperparameters['kernel']['class']}"),
            ("standard deviation of the noise", self._noise_in_words()),
        ]
        if self.origin.sampling_time is not None:
            rows.append(("sampling time", with_unit(self.origin.sampling_time, "s")))
        if self.bands:
            horizon, factor = self.bands[0]
            rows.append((f"bands, {horizon} step", f"{factor:.2f} times as wide as predicted"))
        if self.limits != NO_OUTPUT_LIMITS:
            rows.append(self._row_of_limits())
        warnings = [self.gp.unreached_memory] if self.gp.unreached_memory else []
        if not self.bands:
            warnings.append("the bands are not calibrated on held-out samples")
        title = f"<b>Model of {escape(labelled(narx.target, self.origin.unit(narx.target)))}</b>"
        return f"<div>{title}{notes(warnings)}{table((), rows)}{self._chart_of_effect()}</div>"

    def _row_of_limits(self) -> tuple[str, str]:
        """Return the limits of a simulation, of which at least one is finite, for a notebook."""
        low, high = self.limits
        unit = self.origin.unit(self.narx.target)
        if low == -inf:
            return "a simulation is", f"at most {with_unit(high, unit)}"
        if high == inf:
            return "a simulation is", f"at least {with_unit(low, unit)}"
        return "a simulation stays within", f"{with_unit(low, unit)} to {with_unit(high, unit)}"

    def _chart_of_effect(self) -> str:
        """Return a picture of the strongest effect of one regressor, for a notebook.

        The regressor moves through its values at the stored points, while all others keep their
        median. Empty if the features cannot be computed from the stored points.
        """
        narx = self.narx
        if self.scaling.matrix is not None or self.gp.n_points < 2:
            return ""
        points = self.scaling.inverse(self.gp.inputs)
        others = np.median(points, axis=0)
        strongest = -1.0
        picture = ""
        for number in range(narx.n_features - self.gp.n_linear):
            low, high = points[:, number].min(), points[:, number].max()
            moved = np.tile(others, (N_EFFECT_VALUES, 1))
            moved[:, number] = np.linspace(low, high, N_EFFECT_VALUES)
            mean, variance = self.predict(moved)
            effect = float(np.ptp(mean))
            if not effect > strongest:
                continue
            strongest = effect
            half_width = Z_95 * np.sqrt(self.calibrated(variance))
            name = narx.feature_names[number]
            unit = self.origin.unit(narx.features[number][0])
            picture = chart(
                moved[:, number],
                {f"effect of {name} alone": mean},
                band=(mean - half_width, mean + half_width),
                x_label=labelled(name, unit),
                y_label=labelled(
                    f"{narx.predict.value} of {narx.target}",
                    narx.predict.unit_of(self.origin.unit(narx.target)),
                ),
            )
        return picture

    @property
    def constant_features(self) -> tuple[int, ...]:
        """Numbers of the features that did not vary in the training samples.

        Empty if the scaling has a matrix.
        """
        return self.scaling.constant

    def to_dataset(self) -> xr.Dataset:
        """Return a data set that rebuilds the model bit for bit; schema "model" of the store."""
        with self.gp.lock:
            return self._to_dataset()

    def _to_dataset(self) -> xr.Dataset:
        gp = self.gp
        attributes = {
            "narx": json.dumps(self.narx.to_dict()),
            "kernel": describe(gp.kernel),
            **{name: describe(getattr(gp, name)) for name in RULE_ROLES},
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
        labels = dict(MODEL_ARRAYS)
        if self.scaling.matrix is not None:
            labels |= COORDINATE_LABELS
        if gp.n_linear:
            labels |= LINEAR_PART_ARRAYS
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
        arrays = {str(name): dataset[name].values for name in dataset.data_vars}
        _check_completeness(attributes, arrays)

        def read(name: str, role: type) -> Any:
            return build(str(attributes[name]), role, trusted=trusted)

        # Here only the content of the file can cause errors; errors of other types further down are
        # faults of the code.
        try:
            gp = _build_gp(attributes, read)
            _check_linear_part(gp, arrays)
            counts = json.loads(attributes["counts"])
            gp.n_refactorisations = _read_count(counts, "refactorisations")
            gp.n_renewals = _read_count(counts, "renewals")
            gp.n_clipped_predictions = _read_count(counts, "clipped_predictions")
            state_counts = [_read_count(counts, name) for name in dictionary.COUNT_NAMES]
            narx = Narx.from_dict(json.loads(attributes["narx"]))
            scaling = map_from_arrays(arrays, json.loads(attributes["constant_features"]))
            mean = read("mean", MeanFunction)
            origin = Origin(**json.loads(attributes["origin"]))
            low, high = (float(value) for value in attributes["output_limits"])
            bands = tuple((int(h), float(factor)) for h, factor in json.loads(attributes["bands"]))
            pending = dict(json.loads(attributes.get("pending", "{}")))
            follower = None
            if "training" in attributes:
                training = read("training", Adaptive)
                follower = Adaptation.restored(
                    training, scaling, mean, gp.learning, arrays, own_lags_of(narx)
                )
        except UserError:
            raise
        except (KeyError, TypeError, RecursionError) as error:
            raise UserError(f"{type(error).__name__}: {error}") from error
        except (ValueError, ArithmeticError) as error:
            raise UserError(str(error)) from error
        gp.restore(arrays, state_counts)
        return cls(narx, scaling, mean, gp, origin, (low, high), bands, pending, follower)

    def save(self, path: str | PathLike[str], *, attributes: dict[str, Any] | None = None) -> None:
        """Write the model to a NetCDF file, complete or not at all."""
        store.write(self.to_dataset(), path, kind="model", attributes=attributes)

    @classmethod
    def load(cls, path: str | PathLike[str], *, trusted: Sequence[str] = ()) -> Model:
        """Read a model from a file of `save` or of a job.

        It predicts and learns bit for bit like the model that was saved.

        Parameters
        ----------
        path
        trusted : sequence of str
            Your own modules or classes that the file may name, ``["mine.mean"]``; they are
            imported. A class whose module was imported before needs no trust.

        Raises
        ------
        sysid.StoreError
            The file is missing, damaged or foreign, it has several models, its content does not fit
            together, or it names a class that is not trusted.
        """
        datasets = read_models(path)
        if "" not in datasets:
            raise store.StoreError(
                f"{path} holds models of {list(datasets)}: read it with sysid.JointModel.load"
            )
        return cls.restored(datasets[""], path, trusted=trusted)

    @classmethod
    def restored(
        cls,
        dataset: xr.Dataset,
        path: str | PathLike[str],
        *,
        trusted: Sequence[str] = (),
    ) -> Model:
        """Rebuild a model from the content of a file, and check its digest; errors name the file.

        Raises
        ------
        sysid.StoreError
            The content does not fit together, was edited, or names a class that is not trusted.
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
                f"{path} is not a complete model ({error}); save it again"
            ) from error
        return model


def _check_completeness(attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise UserError unless the content of a file has all attributes and arrays of a model."""
    lacking = [name for name in REQUIRED_ATTRIBUTES if name not in attributes]
    if lacking:
        raise UserError(
            f"it lacks the attributes {lacking}, which every model file of this version has"
        )
    optional = {"linear", "recent_inputs", "last_sample", *MAP_ARRAYS, *ADAPTATION_ARRAYS}
    if str(attributes["learning"]) != Learning.every_sample.value:
        optional |= {*EVERY_SAMPLE_ARRAYS}
    lacking = [name for name in MODEL_ARRAYS if name not in optional and name not in arrays]
    if lacking:
        raise UserError(f"it lacks the arrays {lacking}")


def _check_linear_part(gp: OnlineGP, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise UserError unless a file has coefficients exactly if its kernel has a linear part."""
    if gp.n_linear and "linear" not in arrays:
        raise UserError(
            "it lacks the array linear, the coefficients of the linear part that its kernel has"
        )
    if not gp.n_linear and "linear" in arrays:
        raise UserError(
            "it has the array linear, coefficients of a linear part, but its kernel has none"
        )


def _build_gp(attributes: Mapping[str, Any], read: Callable[[str, type], Any]) -> OnlineGP:
    """Build the online GP of a file, still without points; `read` builds the object of a role."""
    kernel = read("kernel", Kernel)
    return OnlineGP(
        kernel,
        noise_variance=float(attributes["noise_variance"]),
        budget=_check_budget(int(attributes["budget"]), sum(kernel.linear_lags)),
        learning=str(attributes["learning"]),
        scale=attributes["scale"] == "True",
        forgetting=float(attributes["forgetting"]) or None,
        gate=float(attributes["gate"]) or None,
        gate_opens_after=int(attributes["gate_opens_after"]),
        **{name: read(name, role) for name, role in RULE_ROLES.items()},
    )


def _read_count(counts: Mapping[str, Any], name: str) -> int:
    """Return a counter of a file; raise UserError unless it is one that can go on counting."""
    check_whole(counts[name], 0, f"counts: {name}", below=MAX_COUNT)
    return int(counts[name])


def max_points(n_bytes: float) -> int:
    """Return the largest budget of a model that takes at most `n_bytes` of memory."""
    return int((n_bytes / BYTES_PER_POINT_PAIR) ** 0.5)


def _check_budget(budget: int, n_linear: int = 0) -> int:
    """Return a budget; raise UserError if the arrays of such a model would need too much memory.

    They grow with the number of points and of coefficients of a linear part. The size of the file
    does not limit the numbers that it names.
    """
    largest = max_points(store.max_content_bytes() / MAX_MODEL_DIVISOR)
    size = budget + n_linear
    if size > largest:
        needed_bytes = MAX_MODEL_DIVISOR * BYTES_PER_POINT_PAIR * (size + 1) ** 2
        given = f"its budget of {budget} points is"
        if n_linear:
            given = f"its budget of {budget} points and its linear part of {n_linear} lags are"
        raise UserError(
            f"{given} beyond the {largest} that a file may ask for; "
            "if you trust it, set the environment variable "
            f"{store.MAX_CONTENT_VARIABLE}={needed_bytes}"
        )
    return budget


def digest(dataset: xr.Dataset) -> str:
    """Return the SHA-256 of everything that defines a model: variables and `DIGEST_ATTRIBUTES`.

    Other attributes of the file do not change it.
    """
    return store.digest(dataset, DIGEST_ATTRIBUTES)


@dataclass(frozen=True, eq=False)
class JointModel:
    """Models of all outputs, each with a Gaussian process of its own, over the same regressors.

    Parameters
    ----------
    models
        One model for each output of their `Narx`, in any order; they are sorted by its output
        names. Their lags are the same, only the target differs.

    Raises
    ------
    ValueError
        There is no model, an output has none or two, or the models differ in lags, kind of target,
        sampling time or units.

    Examples
    --------
    A single output is a joint model of one: ``JointModel.of(model).output_names``.
    """

    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        models = tuple(self.models)
        if not models:
            raise UserError("JointModel: expected one model per output, got none")
        outputs = models[0].narx.output_names
        targets = [model.narx.target for model in models]
        if sorted(targets) != sorted(outputs):
            raise UserError(
                f"JointModel: expected one model for each output among the lags, {list(outputs)}, "
                f"got models of {targets}; identify all outputs with the same lags, or leave the "
                "others out of the regressors"
            )
        first = _shared_facts(models[0])
        for model in models:
            for name, fact in _shared_facts(model).items():
                if fact != first[name]:
                    raise UserError(
                        f"JointModel: expected one {name} for all models, got {first[name]} of "
                        f"{targets[0]!r} and {fact} of {model.narx.target!r}; identify both from "
                        "the same records"
                    )
        in_order = sorted(models, key=lambda model: outputs.index(model.narx.target))
        object.__setattr__(self, "models", tuple(in_order))

    @classmethod
    def of(cls, model: Model | JointModel) -> JointModel:
        """Return a joint model as it is, or make one from the model of a single output."""
        return model if isinstance(model, JointModel) else cls((model,))

    def __repr__(self) -> str:
        return "\n".join(["JointModel", *map(repr, self.models)])

    def _repr_html_(self) -> str:
        return "".join(model._repr_html_() for model in self.models)

    def linearize(
        self,
        at: Any = None,
        *,
        record: xr.Dataset | None = None,
        physics: SimulatedSignals | None = None,
    ) -> LinearView | list[LinearView]:
        """Return the linear view of all outputs together; see `Model.linearize`."""
        return linearize(self.models, at, record=record, physics=physics)

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
        """Origin of the first model; its sampling time and units hold for all models."""
        return self.models[0].origin

    @property
    def noise_variance(self) -> np.ndarray:
        """Noise variances (n_outputs,), units of the outputs squared."""
        return np.array([model.gp.noise_variance for model in self.models])

    def ahead(
        self,
        inputs: ArrayLike | Mapping[str, ArrayLike] | int,
        past_outputs: ArrayLike,
        past_inputs: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Predict the coming samples of a plant from its last samples; see `sysid.look_ahead`."""
        from sysid import look_ahead  # simulates the model, from a folder above this one

        return look_ahead(self, inputs, past_outputs, past_inputs)

    def save(
        self, path: str | PathLike[str], *, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Write the models to one NetCDF file, complete or not at all.

        The file has a group for each output; for a single output it is the file of `Model.save`.
        """
        if len(self.models) == 1:
            self.models[0].save(path, attributes=dict(attributes or {}))
            return
        groups = {model.narx.target: model.to_dataset() for model in self.models}
        store.write_groups(groups, path, kind="model", attributes=attributes)

    @classmethod
    def load(cls, path: str | PathLike[str], *, trusted: Sequence[str] = ()) -> JointModel:
        """Read the models from a file of `save`, of `Model.save` or of a job.

        They predict bit for bit like the models that were saved.

        Parameters
        ----------
        path
        trusted : sequence of str
            As in `Model.load`.

        Raises
        ------
        sysid.StoreError
            As `Model.load`; also if the models do not belong together.
        """
        try:
            datasets = read_models(path).values()
            models = [Model.restored(dataset, path, trusted=trusted) for dataset in datasets]
            return cls(tuple(models))
        except UserError as error:
            raise store.StoreError(f"{path} cannot be simulated: {error}") from error


def on_unchanged_model(function: Function) -> Function:
    """Make a function of a model, its first argument, hold the locks of its Gaussian processes.

    Another thread that learns waits until the function ends.
    """

    @wraps(function)
    def held(model: Model | JointModel, *arguments: Any, **options: Any) -> Any:
        parts = model.models if isinstance(model, JointModel) else (model,)
        with ExitStack() as stack:
            for part in parts:
                if isinstance(part, Model):  # anything else is refused by the function
                    stack.enter_context(part.gp.lock)
            return function(model, *arguments, **options)

    return held  # type: ignore[return-value]


def _shared_facts(model: Model) -> dict[str, Any]:
    """Return the facts that all models of a joint model must share."""
    return {
        "lags": model.narx.lags,
        "list of features": model.narx.features,
        "kind of target": model.narx.predict,
        "sampling time [s]": model.origin.sampling_time,
        "units": model.origin.units,
    }
