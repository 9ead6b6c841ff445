"""Predict the mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import xarray as xr

from experiments.benchmark_folder.baselines.contestant import Contestant
from sysid import Narx
from sysid.simulation import baselines


@dataclass(frozen=True)
class Mean(Contestant):
    """The mean of the estimation output, always."""

    label: ClassVar = "mean"

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> baselines.Baseline:
        """Take the mean."""
        return baselines.Mean.fit(narx, records)
