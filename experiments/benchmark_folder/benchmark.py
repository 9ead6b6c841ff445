"""A benchmark before it is written: its records, what is known about them, and what makes them again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from experiments.benchmark_folder.baselines.contestant import Contestant, labels_of
from experiments.benchmark_folder.lags import Lags
from experiments.benchmark_folder.record import SimulatedRecord
from experiments.benchmark_folder.start import Starts
from experiments.plant import Plant
from simulators import System
from sysid.data.source import ROLES

#: keys that say where and what to draw; they are no part of what makes the data
NOT_STORED = ("output", "figures")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """All that is written to a benchmark folder, as objects."""

    name: str
    licence: str
    plant: Plant
    starts: Starts
    records: list[SimulatedRecord]  # estimation, validation, test
    lags: Lags
    baselines: Mapping[str, Contestant]
    noise_paths: int  # simulated to find the floor of the free run
    scores: dict[str, Any]  # of noise floor and baselines
    remarks: list[str]  # on the scores
    settings: dict[str, Any]  # the resolved configuration

    @property
    def system(self) -> System:
        """The system that was simulated."""
        return self.plant.system

    @property
    def window(self) -> int:
        """Samples at the start of a test record that are not judged."""
        return self.of_role("test")[0].window

    @property
    def configuration(self) -> str:
        """The configuration that makes the same data again, as YAML."""
        kept = {name: value for name, value in self.settings.items() if name not in NOT_STORED}
        return OmegaConf.to_yaml(OmegaConf.create(kept))

    def label(self, model: str) -> str:
        """Name of the floor or of a baseline for people."""
        return labels_of(self.baselines).get(model, model.replace("_", " "))

    def of_role(self, role: str) -> list[SimulatedRecord]:
        """Records for estimation, validation or test."""
        return [record for record in self.records if record.role == role]

    def counts(self) -> str:
        """How many records of how many samples."""
        found = {role: self.of_role(role) for role in ROLES}
        return ", ".join(f"{len(records)} x {records[0].n_samples} {role}" for role, records in found.items())
