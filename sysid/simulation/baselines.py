"""Plain predictors that a model must beat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import Array
from sysid.errors import UserError
from sysid.gp.mean import linear_fit
from sysid.narx.lags import Narx
from sysid.narx.record import Record, read_signals
from sysid.narx.window import LagWindow


class Baseline(ABC):
    """Predicts the target of a `Narx` from its regressors and from the output one sample
    earlier.
    """

    narx: Narx

    @abstractmethod
    def predict(self, regressors: Array, previous: Array) -> Array:
        """Predicted targets (n,) at regressors (n, n_features) and earlier outputs y[k-1] (n,)."""

    def one_step(self, rows: xr.Dataset) -> Array:
        """Predicted targets (n,) of a lag data set, each from measured values.

        Parameters
        ----------
        rows
            Of `Narx.dataset`, with the features of this baseline; compare with ``rows["target"]``.

        Raises
        ------
        ValueError
            Other features.
        """
        given = tuple(str(name) for name in rows["feature"].values)
        if given != self.narx.feature_names:
            raise UserError(
                f"{type(self).__name__} expects the features {list(self.narx.feature_names)}, got {list(given)}: build "
                "the lag data set with the Narx of this baseline"
            )
        return self.predict(rows["regressor"].values, rows["previous"].values)

    def free_run(self, record: Mapping[Any, ArrayLike], *, n_initial: int | None = None) -> Array:
        """Simulate the output of one record: predictions take the place of measurements.

        Parameters
        ----------
        record
            Data set, or arrays (n,) by name. Only the first `n_initial` samples of the target are
            used; inputs, and outputs other than the target, are taken as measured throughout.
        n_initial
            Measured samples before the simulation starts, at least ``max_lag``, which is what None
            means.

        Returns
        -------
        (n,) array
            The measured target output, then from sample `n_initial` on the simulated one, in its
            unit; nan from the sample on where the simulation overflows.

        Raises
        ------
        ValueError, TypeError
            As `Narx.regressors`; another `n_initial`; values that are needed and not finite.
        """
        narx = self.narx
        signals = read_signals(record, self.narx.signals, 0)
        n = len(signals[narx.target])
        first = narx.max_lag if n_initial is None else n_initial
        if not narx.max_lag <= first < n:
            raise UserError(
                f"a free run of {n} samples with lags up to {narx.max_lag} needs n_initial from {narx.max_lag} to "
                f"{n - 1}, got {first}: use a longer record, smaller lags, or another n_initial"
            )
        used = signals | {narx.target: np.where(np.arange(n) >= first, 0.0, signals[narx.target])}
        if found := Record(used).first_missing():
            raise UserError(
                f"a free run needs every input and all initial outputs: {found}; clean the record"
            )
        outputs = np.column_stack([used[name] for name in narx.output_names])
        inputs = np.column_stack([used[name] for name in narx.input_names] or [np.empty((n, 0))])
        simulated = outputs[:, narx.output_names.index(narx.target)]
        window = LagWindow(narx)
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported as nan
            for k, (y, u) in enumerate(zip(outputs, inputs, strict=True)):
                if k >= first:
                    x = window.regressor(u)
                    previous = window.previous_target_value
                    assert x is not None  # the signals are complete and finite
                    target = self.predict(x[None, :], np.array([previous]))[0]
                    simulated[k] = narx.predict.to_value(target, previous)
                    if not isfinite(simulated[k]):
                        simulated[k:] = np.nan
                        break
                window.push(y, u)
        return simulated.copy()


@dataclass(frozen=True)
class Mean(Baseline):
    """Always the mean output: ``y[k] = m``, so a predicted change is ``m - y[k-1]``.

    In free run its mean squared error is the variance of the output, plus the square of the
    difference between the means of training and test.

    Examples
    --------
    >>> Mean(Narx({"y": 1}), value=2.0).free_run({"y": [5.0, 6.0, 7.0]})
    array([5., 2., 2.])
    """

    narx: Narx
    value: float  # m, unit of the output

    def __post_init__(self) -> None:
        if not np.isfinite(self.value):
            raise UserError(
                f"Mean(value={self.value}): expected a finite number; use Mean.fit, or another value"
            )

    @classmethod
    def fit(cls, narx: Narx, records: xr.Dataset | Sequence[xr.Dataset]) -> Mean:
        """Mean of the target output over the rows of `Narx.dataset`; errors as there."""
        rows = narx.dataset(records)
        return cls(
            narx,
            float(np.mean(narx.predict.to_value(rows["target"].values, rows["previous"].values))),
        )

    def predict(self, regressors: Array, previous: Array) -> Array:
        return np.asarray(self.narx.predict.of(np.full(len(previous), self.value), previous))


@dataclass(frozen=True)
class Persistence(Baseline):
    """The output stays: ``y[k] = y[k-1]``, so the predicted change is 0; in free run the last
    initial output.

    A prediction is nan where the earlier output is (rows of a target without lags).

    Raises
    ------
    ValueError
        Without any lag: rows of a table have no earlier output.

    Examples
    --------
    >>> Persistence(Narx({"y": 1})).free_run({"y": [5.0, 6.0, 7.0]})
    array([5., 5., 5.])
    """

    narx: Narx

    def __post_init__(self) -> None:
        if self.narx.max_lag == 0:
            raise UserError(
                f"Persistence needs an output before the first, but all lags of {list(self.narx.feature_names)} are "
                "0: rows of a static table are independent, use Mean"
            )

    def predict(self, regressors: Array, previous: Array) -> Array:
        return np.asarray(self.narx.predict.of(previous, previous))


@dataclass(frozen=True, eq=False)
class LinearArx(Baseline):
    """Autoregressive with exogenous inputs: ``target[k] = c + theta' x[k]``, x the regressor of a
    `Narx`.

    Ljung, System Identification (1999), section 4.2. Built by `fit`.
    """

    narx: Narx
    coefficients: Array  # theta (n_features,), unit of the target per unit of the feature
    intercept: float  # c, unit of the target
    rank: int  # of the standardised regressors (n, n_features)
    condition: float  # largest over smallest singular value of these; infinite below full rank [-]

    @classmethod
    def fit(
        cls,
        narx: Narx,
        records: xr.Dataset | Sequence[xr.Dataset],
        *,
        ridge: float = 0.0,
        intercept: bool = True,
    ) -> LinearArx:
        """Least squares over the rows of one or several records; see `sysid.gp.mean.linear_fit`.

        Parameters
        ----------
        narx, records
            As for `Narx.dataset`.
        ridge
            Penalty on the coefficients of the standardised features, at least 0 [-].
        intercept
            Whether c is estimated; else c = 0, and features are not centred, but scaled by their
            root mean square.

        Raises
        ------
        ValueError, TypeError
            A negative or infinite ridge; as `Narx.dataset`.
        """
        rows = narx.dataset(records)
        fit = linear_fit(
            rows["regressor"].values,
            rows["target"].values,
            ridge=ridge,
            intercept=intercept,
        )
        return cls(narx, fit.coefficients, fit.intercept, fit.rank, fit.condition)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about this estimate."""
        if self.rank == self.narx.n_features:
            return ()
        return (
            f"the regressors have rank {self.rank} of {self.narx.n_features}: coefficients of minimum norm",
        )

    def predict(self, regressors: Array, previous: Array) -> Array:
        return self.intercept + regressors @ self.coefficients
