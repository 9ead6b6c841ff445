"""Simple predictors that a model must beat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array
from sysid.data.holes import may_have_holes
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Linear
from sysid.gp.mean import LinearMean, linear_fit
from sysid.model.linear_view import Coefficients, LinearView, view_of_coefficients
from sysid.model.mean_map import MeanMap, simulate_paths
from sysid.narx.lags import Narx, Target
from sysid.narx.record import Record, read_records, read_signals
from sysid.narx.window import LagWindow


class Baseline(ABC):
    """Predictor of the target of a `Narx` from its regressors and the previous output."""

    narx: Narx

    @abstractmethod
    def predict(self, regressors: Array, previous: Array) -> Array:
        """Return predicted targets (n,) at regressors (n, n_features) and outputs y[k-1] (n,)."""

    def one_step(self, rows: xr.Dataset) -> Array:
        """Return predicted targets (n,) of a lag data set, each from measured values.

        Compare them with ``rows["target"]``.

        Parameters
        ----------
        rows
            Lag data set (`Narx.dataset`) with the features of this baseline.

        Raises
        ------
        ValueError
            If the features are other ones.
        """
        given = tuple(str(name) for name in rows["feature"].values)
        if given != self.narx.feature_names:
            raise UserError(
                f"{type(self).__name__} expects the features {list(self.narx.feature_names)}, got "
                f"{list(given)}: build the lag data set with the Narx of this baseline"
            )
        return self.predict(rows["regressor"].values, rows["previous"].values)

    def free_run(self, record: Mapping[Any, ArrayLike], *, n_initial: int | None = None) -> Array:
        """Simulate the output of one record: predictions take the place of measurements.

        Parameters
        ----------
        record
            Data set, or arrays (n,) by name. Only the first `n_initial` samples of the target are
            used. The inputs, and outputs other than the target, are taken as measured throughout.
        n_initial
            Measured samples before the simulation starts, at least ``max_lag``; None for
            ``max_lag``.

        Returns
        -------
        (n,) array
            The measured target output before sample `n_initial`, the simulated one from there on,
            in the unit of the output. If the simulation overflows, it is nan from this sample on.

        Raises
        ------
        ValueError, TypeError
            As `Narx.regressors`; if `n_initial` is out of range, or needed values are not finite.
        """
        narx = self.narx
        signals = read_signals(record, narx.signals, 0)
        n = len(signals[narx.target])
        first = narx.max_lag if n_initial is None else n_initial
        if not narx.max_lag <= first < n:
            raise UserError(
                f"a free run of {n} samples with lags up to {narx.max_lag} needs n_initial from "
                f"{narx.max_lag} to {n - 1}, got {first}: use a longer record, smaller lags, or "
                "another n_initial"
            )
        initial_target = np.where(np.arange(n) >= first, 0.0, signals[narx.target])
        used = signals | {narx.target: initial_target}
        missing = Record(used).first_missing()
        if missing:
            raise UserError(
                f"a free run needs every input and all initial outputs: {missing}; clean the record"
            )
        outputs = np.column_stack([used[name] for name in narx.output_names])
        inputs = np.column_stack([used[name] for name in narx.input_names] or [np.empty((n, 0))])
        self._simulate(outputs, inputs, first)
        return outputs[:, narx.output_names.index(narx.target)].copy()

    def simulate_record(self, record: xr.Dataset, first: int) -> tuple[Array, NDArray[np.bool_]]:
        """Simulate the target output of a record, with or without holes, from `first` on.

        Returns
        -------
        (n,) array
            The simulated output.
        (n,) array of bool
            Which samples can be scored: they are measured, and simulated.
        """
        measured = record[self.narx.target].values
        if may_have_holes(record):
            simulated = self.free_run_of_record(record, first)
            return simulated, np.isfinite(measured) & np.isfinite(simulated)
        simulated = self.free_run(dict(record), n_initial=first)
        return simulated, np.arange(len(measured)) >= first

    def free_run_of_record(self, record: xr.Dataset, first: int) -> Array:
        """Simulate the target output of a record from the sample `first` on.

        Outputs may be missing. Where another signal is missing, the simulation ends; it begins
        again as soon as all lags of these signals and of the measured output are known, with
        estimates of missing outputs if the record has them.

        Returns
        -------
        (n,) array
            nan before `first`, and where nothing can be simulated.
        """
        narx = self.narx
        (read,) = read_records(record, narx.signals)
        signals = {name: read.filled(name) for name in narx.signals}
        target = signals[narx.target]
        others = [values for name, values in signals.items() if name != narx.target]
        is_known = np.ones(len(target), dtype=bool)
        for values in others:
            is_known &= np.isfinite(values)
        simulated = np.full(len(target), np.nan)
        edges = np.diff(np.concatenate([[False], is_known, [False]]).astype(np.int8))
        for begin, end in np.flatnonzero(edges).reshape(-1, 2).tolist():
            start = max(first, begin + narx.max_lag)
            while start < end and not np.isfinite(target[start - narx.max_lag : start]).all():
                start += 1
            if start < end:
                begin = start - narx.max_lag
                part = {name: values[begin:end] for name, values in signals.items()}
                simulated[start:end] = self.free_run(part, n_initial=narx.max_lag)[narx.max_lag :]
        return simulated

    def _simulate(self, outputs: Array, inputs: Array, first: int) -> None:
        """Replace the target in outputs (n, n_y) by its simulation from the sample `first` on."""
        narx = self.narx
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


@dataclass(frozen=True)
class Mean(Baseline):
    """Predictor of the mean output: ``y[k] = m``, so that a predicted change is ``m - y[k-1]``.

    Its mean squared error in free run is the variance of the output plus the square of the
    difference between the means of the estimation and the test data.

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
                f"Mean(value={self.value}): expected a finite number; use Mean.fit, or another "
                "value"
            )

    @classmethod
    def fit(cls, narx: Narx, records: xr.Dataset | Sequence[xr.Dataset]) -> Mean:
        """Return the mean of the target output over the rows of `Narx.dataset`; errors as there."""
        rows = narx.dataset(records)
        outputs = narx.predict.to_value(rows["target"].values, rows["previous"].values)
        return cls(narx, float(np.mean(outputs)))

    def predict(self, regressors: Array, previous: Array) -> Array:
        return np.asarray(self.narx.predict.of(np.full(len(previous), self.value), previous))


@dataclass(frozen=True)
class Persistence(Baseline):
    """Predictor of the previous output: ``y[k] = y[k-1]``, so that the predicted change is 0.

    In free run it repeats the last initial output. A prediction is nan where the previous output is
    nan (rows of a target without lags).

    Raises
    ------
    ValueError
        If all lags are 0: the rows of a static table have no previous output.

    Examples
    --------
    >>> Persistence(Narx({"y": 1})).free_run({"y": [5.0, 6.0, 7.0]})
    array([5., 5., 5.])
    """

    narx: Narx

    def __post_init__(self) -> None:
        if self.narx.max_lag == 0:
            raise UserError(
                "Persistence needs an output before the first, but all lags of "
                f"{list(self.narx.feature_names)} are 0: rows of a static table are independent, "
                "use Mean"
            )

    def predict(self, regressors: Array, previous: Array) -> Array:
        return np.asarray(self.narx.predict.of(previous, previous))


@dataclass(frozen=True, eq=False)
class LinearArx(Baseline):
    """Linear ARX model: ``target[k] = c + theta' x[k]`` with the regressor x of a `Narx`.

    Autoregressive with exogenous inputs: Ljung, System Identification (1999), section 4.2. `fit`
    estimates it.
    """

    narx: Narx
    coefficients: Array  # theta (n_features,), unit of the target per unit of the feature
    intercept: float  # c, unit of the target
    rank: int  # rank of the standardised regressors (n, n_features)
    #: largest over smallest singular value of the standardised regressors; infinite below full rank
    condition: float

    @classmethod
    def fit(
        cls,
        narx: Narx,
        records: xr.Dataset | Sequence[xr.Dataset],
        *,
        ridge: float = 0.0,
        intercept: bool = True,
    ) -> LinearArx:
        """Fit by least squares over the rows of records; see `sysid.gp.mean.linear_fit`.

        Parameters
        ----------
        narx, records
            As for `Narx.dataset`.
        ridge
            Penalty on the coefficients of the standardised features, at least 0 [-].
        intercept
            Whether c is estimated. If not, c = 0, and the features are not centred but only scaled
            by their root mean square.

        Raises
        ------
        ValueError, TypeError
            As `Narx.dataset`; if the ridge is negative or infinite.
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
            f"the regressors have rank {self.rank} of {self.narx.n_features}: "
            "coefficients of minimum norm",
        )

    def predict(self, regressors: Array, previous: Array) -> Array:
        return self.intercept + regressors @ self.coefficients

    def _simulate(self, outputs: Array, inputs: Array, first: int) -> None:
        """Do what `Baseline._simulate` does by the compiled loop, for a model without points."""
        narx = self.narx
        target = narx.output_names.index(narx.target)
        columns = [*outputs.T, *inputs.T]
        names = [*narx.output_names, *narx.input_names]
        steps = np.arange(first, len(outputs))
        regressors = np.empty((1, len(steps), narx.n_features))
        feedback = []
        own_lags = []
        for j, (name, lag) in enumerate(narx.features):
            regressors[0, :, j] = columns[names.index(name)][steps - lag]
            if name == narx.target:
                feedback.append(j)
                own_lags.append(lag)
        mean = LinearMean(self.coefficients.tolist(), self.intercept)
        one_coordinate = AffineMap.of_matrix(np.zeros(narx.n_features), np.eye(1, narx.n_features))
        function = (mean, one_coordinate, Linear(1.0, [1.0]), np.zeros((0, 1)), np.zeros(0))
        mean_map = MeanMap.of(
            [function],
            narx,
            np.array(feedback, dtype=np.int64),
            first - np.array(own_lags, dtype=np.int64),
            np.zeros(len(feedback), dtype=np.int64),
            np.array([[-np.inf], [np.inf]]),
        )
        path = outputs[None, :, target, None].copy()
        n_finite = np.empty(1, dtype=np.int64)
        simulate_paths(
            mean_map, np.array([-np.inf]), np.array([np.inf]), regressors, path, n_finite
        )
        outputs[:, target] = path[0, :, 0]
        outputs[first + int(n_finite[0]) :, target] = np.nan

    def linearize(
        self, *, units: Mapping[str, str] | None = None, sampling_time: float | None = None
    ) -> LinearView:
        """Return the linear view of this model, which is the same at every operating point.

        The coefficients count as certain, so that there are no bands. Outputs other than the target
        count as inputs.

        Parameters
        ----------
        units
            Units by signal.
        sampling_time
            None: times are in samples [s].
        """
        narx = self.narx
        target = narx.target
        others = [name for name in narx.output_names if name != target]
        features = dict.fromkeys(narx.features)
        if narx.predict is Target.change:
            features |= {(target, 1): None}
        means = np.zeros(len(features))
        names = tuple(features)
        for feature, coefficient in zip(narx.features, self.coefficients, strict=True):
            means[names.index(feature)] += coefficient
        if narx.predict is Target.change:
            means[names.index((target, 1))] += 1.0
        return view_of_coefficients(
            (target,),
            (*narx.input_names, *others),
            {target: names},
            {target: Coefficients(means, np.zeros((len(names), 0)))},
            units=dict(units or {}),
            sampling_time=1.0 if sampling_time is None else sampling_time,
            time_unit="samples" if sampling_time is None else "s",
            where="every operating point",
            point={},
        )
