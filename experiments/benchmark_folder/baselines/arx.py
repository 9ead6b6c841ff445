"""A linear model of the lags."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import xarray as xr

from experiments.benchmark_folder.baselines.contestant import Contestant
from sysid import Narx
from sysid.simulation import baselines


@dataclass(frozen=True)
class Arx(Contestant):
    """A linear model of the lags with a constant, by least squares.

    Parameters
    ----------
    ridge : float
        Penalty on the coefficients of the standardised features, see `sysid.simulation.baselines.LinearArx.fit`.
    """

    label: ClassVar = "ARX"

    ridge: float = 0.0  # -

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> baselines.Baseline:
        """Solve for the coefficients."""
        return baselines.LinearArx.fit(narx, records, ridge=self.ridge)
