"""Predict no change."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import xarray as xr

from experiments.benchmark_folder.baselines.contestant import Contestant
from sysid import Narx
from sysid.simulation import baselines


@dataclass(frozen=True)
class Persistence(Contestant):
    """The output one sample earlier; in free run the last measured one."""

    label: ClassVar = "persistence"

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> baselines.Baseline:
        """Learn nothing."""
        return baselines.Persistence(narx)
