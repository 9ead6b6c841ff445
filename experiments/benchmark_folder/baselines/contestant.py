"""The role of a contestant: the settings of a model that a benchmark is scored with."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import xarray as xr

from sysid import Narx
from sysid.simulation.baselines import Baseline


class Contestant(ABC):
    """What is needed to fit a model to the estimation records; a frozen dataclass of settings.

    The first paragraph of its docstring describes the model in the data card, under its label.
    """

    label: ClassVar[str] = ""  # in tables; empty: the key in the configuration

    @abstractmethod
    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        """Model of the target of `narx`, from the estimation records.

        Raises
        ------
        ValueError
            If the records are too short for it.
        """


def labels_of(contestants: Mapping[str, Contestant]) -> dict[str, str]:
    """Names of contestants for people, by key; with the key in brackets where two share a label."""
    plain = {name: name.replace("_", " ") for name in contestants}
    labels = {name: contestant.label or plain[name] for name, contestant in contestants.items()}
    shared = {label for label in labels.values() if list(labels.values()).count(label) > 1}
    return {name: f"{label} ({plain[name]})" if label in shared else label for name, label in labels.items()}
