"""A linear model of the regressors by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import xarray as xr

from sysid.baselines.baseline import Array, Baseline
from sysid.narx import Narx
from sysid.scaling import Scaling


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

        Minimises ``mean((target - c - theta' x)^2) + ridge |scale theta|^2`` by a singular value decomposition of
        the standardised regressors. Below full rank ``|scale theta|`` is the smallest possible: features that do
        not vary, and directions that the record does not excite, get no weight.

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
        if not 0 <= ridge < inf:
            raise ValueError(f"LinearArx.fit(ridge={ridge!r}): expected a finite number >= 0; change ridge")
        rows = narx.dataset(records)
        x, t = rows["regressor"].values, rows["target"].values
        scaling = Scaling.fit(x) if intercept else _root_mean_square(x)
        z = scaling.transform(x)
        z[:, list(scaling.constant)] = 0.0  # rounding of a constant explains nothing
        mean = float(t.mean()) if intercept else 0.0
        weights, rank, condition = _solve(z, t - mean, len(t) * ridge)
        theta = weights / scaling.scale
        return cls(narx, theta, mean - float(theta @ scaling.offset), rank, condition)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know about this estimate."""
        if self.rank == self.narx.n_features:
            return ()
        return (f"the regressors have rank {self.rank} of {self.narx.n_features}: coefficients of minimum norm",)

    def predict(self, regressors: Array, previous: Array) -> Array:
        """``c + theta' x``; see `Baseline.predict`."""
        return self.intercept + regressors @ self.coefficients


def _root_mean_square(x: Array) -> Scaling:
    size = np.sqrt(np.mean(x**2, axis=0))
    return Scaling(np.zeros(x.shape[1]), np.where(size > 0, size, 1.0))


def _solve(z: Array, t: Array, penalty: float) -> tuple[Array, int, float]:
    """Minimum-norm minimiser of ``|t - z w|^2 + penalty |w|^2``, rank and condition number of z."""
    U, s, Vt = np.linalg.svd(z, full_matrices=False)
    rank = int(np.count_nonzero(s > np.finfo(float).eps * max(z.shape) * s[0]))
    kept = s[:rank]
    w = Vt[:rank].T @ (kept / (kept**2 + penalty) * (U[:, :rank].T @ t))
    return w, rank, float(s[0] / s[-1]) if rank == z.shape[1] else inf
