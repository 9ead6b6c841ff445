"""A benchmark before it is written: its records, what is known about them, and what makes them again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from experiments.benchmark_folder.baselines.contestant import Contestant
from experiments.benchmark_folder.record import SimulatedRecord
from simulators import System
from sysid.narx import Narx
from sysid.recordings import ROLES

#: keys that say where and what to draw; they are no part of what makes the data
NOT_STORED = ("output", "figures")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """All that is written to a benchmark folder, as objects."""

    name: str
    licence: str
    records: list[SimulatedRecord]  # estimation, validation, test
    narx: Narx
    baselines: Mapping[str, Contestant]
    scores: dict[str, Any]  # of noise floor and baselines
    settings: dict[str, Any]  # the resolved configuration

    @property
    def system(self) -> System:
        """The system that was simulated."""
        return self.records[0].trajectory.system

    @property
    def window(self) -> int:
        """Samples at the start of a test record that are not judged."""
        return self.of_role("test")[0].window

    @property
    def configuration(self) -> str:
        """The configuration that makes the same data again, as YAML."""
        kept = {name: value for name, value in self.settings.items() if name not in NOT_STORED}
        return OmegaConf.to_yaml(OmegaConf.create(kept))

    def of_role(self, role: str) -> list[SimulatedRecord]:
        """Records for estimation, validation or test."""
        return [record for record in self.records if record.role == role]

    def counts(self) -> str:
        """How many records of how many samples."""
        found = {role: self.of_role(role) for role in ROLES}
        return ", ".join(f"{len(records)} x {records[0].n_samples} {role}" for role, records in found.items())
