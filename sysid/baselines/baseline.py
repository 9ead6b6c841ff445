"""The role of a baseline: a plain predictor on the same regressors as a model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.lag_window import LagWindow
from sysid.narx import Narx
from sysid.record import Record, read_signals

Array: TypeAlias = NDArray[np.float64]


class Baseline(ABC):
    """Predicts the target of a `Narx` from its regressors and from the output one sample earlier."""

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
            raise ValueError(
                f"{type(self).__name__} expects the features {list(self.narx.feature_names)}, got {list(given)}: build "
                "the lag data set with the Narx of this baseline"
            )
        return self.predict(rows["regressor"].values, rows["previous"].values)

    def free_run(self, record: Mapping[Any, ArrayLike], *, n_initial: int | None = None) -> Array:
        """Simulated output of one record: predictions take the place of measurements.

        Parameters
        ----------
        record
            Data set, or arrays (n,) by name. Only the first `n_initial` samples of the target are used; inputs,
            and outputs other than the target, are taken as measured throughout.
        n_initial
            Measured samples before the simulation starts, at least ``max_lag``, which is what None means.

        Returns
        -------
        (n,) array
            The measured target output, then from sample `n_initial` on the simulated one, in its unit; nan
            from the sample on where the simulation overflows.

        Raises
        ------
        ValueError, TypeError
            As `Narx.regressors`; another `n_initial`; values that are needed and not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported as nan
            return self._simulated(_needed(self.narx, record, n_initial))

    def _simulated(self, signals: Mapping[str, Array]) -> Array:
        """Target output with its nan values replaced by predictions."""
        outputs = np.column_stack([signals[name] for name in self.narx.output_names])
        inputs = np.column_stack([signals[name] for name in self.narx.input_names] or [np.empty((len(outputs), 0))])
        simulated = outputs[:, self.narx.output_names.index(self.narx.target)]
        window = LagWindow(self.narx)
        for k, (y, u) in enumerate(zip(outputs, inputs, strict=True)):
            if not isfinite(simulated[k]):
                simulated[k] = self._next(window, u)
                if not isfinite(simulated[k]):
                    simulated[k:] = np.nan
                    break
            window.push(y, u)
        return simulated.copy()

    def _next(self, window: LagWindow, input: Array) -> float:
        """Predicted output of the present sample."""
        x = window.regressor(input)
        assert x is not None  # all that it is made of is finite
        previous = window.previous_target_value
        target = self.predict(x[None, :], np.array([previous]))[0]
        return float(self.narx.predict.to_value(target, previous))


def _needed(narx: Narx, record: Mapping[Any, ArrayLike], n_initial: int | None) -> dict[str, Array]:
    """Signals of a free run: the target is nan wherever it is to be simulated, all else is finite."""
    signals = read_signals(record, narx.signals, 0)
    n = len(signals[narx.target])
    first = narx.max_lag if n_initial is None else n_initial
    if not narx.max_lag <= first < n:
        raise ValueError(
            f"a free run of {n} samples with lags up to {narx.max_lag} needs n_initial from {narx.max_lag} to "
            f"{n - 1}, got {first}: use a longer record, smaller lags, or another n_initial"
        )
    simulated = np.arange(n) >= first
    used = signals | {narx.target: np.where(simulated, 0.0, signals[narx.target])}
    if found := Record(used).first_missing():
        raise ValueError(f"a free run needs every input and all initial outputs: {found}; clean the record")
    return signals | {narx.target: np.where(simulated, np.nan, signals[narx.target])}
