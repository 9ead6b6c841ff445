"""A linear model of the regressors by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xarray as xr

from sysid.baselines.baseline import Array, Baseline
from sysid.least_squares import linear_fit
from sysid.narx import Narx


@dataclass(frozen=True, eq=False)
class LinearArx(Baseline):
    """Autoregressive with exogenous inputs: ``target[k] = c + theta' x[k]``, x the regressor of a `Narx`.

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
        """Least squares over the rows of one or several records.

        `sysid.least_squares.linear_fit` of the rows.

        Parameters
        ----------
        narx, records
            As for `Narx.dataset`.
        ridge
            Penalty on the coefficients of the standardised features, at least 0 [-].
        intercept
            Whether c is estimated; else c = 0, and features are not centred, but scaled by their root mean square.

        Raises
        ------
        ValueError, TypeError
            A negative or infinite ridge; as `Narx.dataset`.
        """
        rows = narx.dataset(records)
        fit = linear_fit(rows["regressor"].values, rows["target"].values, ridge=ridge, intercept=intercept)
        return cls(narx, fit.coefficients, fit.intercept, fit.rank, fit.condition)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know about this estimate."""
        if self.rank == self.narx.n_features:
            return ()
        return (f"the regressors have rank {self.rank} of {self.narx.n_features}: coefficients of minimum norm",)

    def predict(self, regressors: Array, previous: Array) -> Array:
        """``c + theta' x``; see `Baseline.predict`."""
        return self.intercept + regressors @ self.coefficients
