"""One job after the other, in this process."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.sweep.engine import Engine
from experiments.sweep.execution import execute
from experiments.sweep.job import Job, Outcome


@dataclass(frozen=True)
class InProcess(Engine):
    """No worker: what kills a job kills the sweep."""

    folder: Path  # of the sweep

    @property
    def place(self) -> str:
        """This process."""
        return "this process"

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run the jobs in their order."""
        for job in jobs:
            yield execute(job)
