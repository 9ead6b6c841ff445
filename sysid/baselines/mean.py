"""The mean of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from sysid.baselines.baseline import Array, Baseline
from sysid.narx import Narx


@dataclass(frozen=True)
class Mean(Baseline):
    """Always the mean output: ``y[k] = m``, so a predicted change is ``m - y[k-1]``.

    In free run its mean squared error is the variance of the output, plus the square of the difference between
    the means of training and test.

    Examples
    --------
    >>> Mean(Narx({"y": 1}), value=2.0).free_run({"y": [5.0, 6.0, 7.0]})
    array([5., 2., 2.])
    """

    narx: Narx
    value: float  # m, unit of the output

    def __post_init__(self) -> None:
        if not np.isfinite(self.value):
            raise ValueError(f"Mean(value={self.value}): expected a finite number; use Mean.fit, or another value")

    @classmethod
    def fit(cls, narx: Narx, records: xr.Dataset | Sequence[xr.Dataset]) -> Mean:
        """Mean of the target output over the rows of `Narx.dataset`; errors as there."""
        rows = narx.dataset(records)
        return cls(narx, float(np.mean(narx.predict.to_value(rows["target"].values, rows["previous"].values))))

    def predict(self, regressors: Array, previous: Array) -> Array:
        """Targets that lead to the mean output; see `Baseline.predict`."""
        return np.asarray(self.narx.predict.of(np.full(len(previous), self.value), previous))
