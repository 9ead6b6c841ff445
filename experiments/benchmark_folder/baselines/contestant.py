"""The role of a contestant: the settings of a model that a benchmark is scored with."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import xarray as xr

from sysid.baselines.baseline import Baseline
from sysid.narx import Narx


class Contestant(ABC):
    """What is needed to fit a model to the estimation records; a frozen dataclass of settings.

    The first paragraph of its docstring describes the model in the data card.
    """

    @abstractmethod
    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        """Model of the target of `narx`, from the estimation records.

        Raises
        ------
        ValueError
            If the records are too short for it.
        """
