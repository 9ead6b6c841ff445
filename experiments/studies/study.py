"""A study: units of work that can be computed apart, and what their results add up to."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import xarray as xr

from experiments.studies.plan import Plan
from experiments.studies.tasks.catalogue import task_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Unit(NamedTuple):
    """What one worker computes in one go; its result is kept in a file of its own."""

    study: str
    task: str  # "" for a study without tasks
    seed: int = 0

    @property
    def file_name(self) -> str:
        """Place under the folder of parts."""
        return f"{self.study}/{self.task or 'all'}-{self.seed}.nc"


class Work(ABC):
    """Units that workers compute, one by one."""

    name: ClassVar[str]  # how the configuration calls it
    tasks: ClassVar[tuple[str, ...] | None] = None  # tasks that it looks at; None: all of the plan
    weight: ClassVar[float] = 1.0  # about how long one seed of a static function takes [s]

    def units(self, plan: Plan) -> list[Unit]:
        """One unit per task and seed."""
        names = [name for name in plan.tasks if self.tasks is None or name in self.tasks]
        return [Unit(self.name, name, seed) for name in names for seed in task_of(name, plan).seeds(plan.seeds)]

    def expected_seconds(self, unit: Unit, plan: Plan) -> float:
        """About how long a unit takes: for the progress bar, and to begin with what takes longest."""
        return self.weight * (task_of(unit.task, plan).weight if unit.task else 1.0)

    @abstractmethod
    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Result of one unit; runs in a worker process, one BLAS thread."""


class Study(Work):
    """One table or figure of the paper."""

    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()  # studies whose stores it reads (`units` is empty then)

    @abstractmethod
    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """Store of the study, all seeds kept; tasks without data are there, with nan."""

    @abstractmethod
    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """Rows of the CSV file: medians over seeds."""

    @abstractmethod
    def markdown(self, store: xr.Dataset) -> str:
        """The table for people: ours, the published number, the better one marked; notes below."""

    @abstractmethod
    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """File name (without ending) to the function that draws it; matplotlib is imported inside."""


def seeds_of(parts: Mapping[Unit, xr.Dataset], task: str) -> Sequence[xr.Dataset]:
    """Parts of a task in the order of their seeds."""
    return [parts[unit] for unit in sorted(parts, key=lambda unit: unit.seed) if unit.task == task]
