"""What a search is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from experiments.job_file import NUMBERS, TIMES
from experiments.options import choice
from experiments.sweep.keys import meant

TIME = "times"  # group of a summary whose numbers are measured times


class Direction(Enum):
    """Which values of an objective are good."""

    minimize = "minimize"
    maximize = "maximize"


@dataclass(frozen=True)
class Settings:
    """Settings of a search, as in conf/hydra/sweeper/optuna.yaml."""

    n_trials: int = 30
    n_jobs: int = 1  # trials at a time
    seed: int = 0  # of the sampler
    objectives: tuple[str, ...] = ("smse",)  # numbers of the summary of a job
    directions: tuple[Direction, ...] = (Direction.minimize,)  # one for each objective
    sampler: Mapping[str, Any] | None = None  # with _target_; None: TPE
    average_over: tuple[str, ...] = ("seed",)  # swept keys whose values are all run in every trial

    def __post_init__(self) -> None:
        _check_whole("n_trials", self.n_trials, 1, "a search of no trials finds nothing")
        _check_whole(
            "n_jobs", self.n_jobs, 1, "trials at a time; their number decides which are asked, so it is no null"
        )
        _check_whole("seed", self.seed, 0, "of the sampler")
        if not self.objectives or len({*self.objectives}) < len(self.objectives):
            raise ValueError(
                f"hydra.sweeper.objectives must name one or more numbers of the summary of a job, none twice, such as "
                f"[smse,n_revised], got {list(self.objectives)}"
            )
        for name in self.objectives:
            if "." not in name and name not in NUMBERS:
                known = {*NUMBERS, *(f"{TIME}.{part}" for part in TIMES)}
                raise ValueError(f"hydra.sweeper.objectives: no number {name!r} in a summary{meant(name, known)}")
        if len(self.directions) != len(self.objectives):
            raise ValueError(
                f"hydra.sweeper.direction must be one for all objectives or one for each of {list(self.objectives)}, "
                f"got {[direction.value for direction in self.directions]}"
            )

    @property
    def repeatable(self) -> bool:
        """Whether the same search in a new folder asks for the same trials: not if it goes by measured times."""
        return not any(TIME in name.split(".") for name in self.objectives)


def settings_of(*, objectives: Any, direction: Any, sampler: Any, average_over: Any, **numbers: Any) -> Settings:
    """Settings from plain values, where a single one may stand for a list of one.

    Raises
    ------
    ValueError
        Settings that make no sense.
    """
    named = _texts("objectives", objectives)
    directions = tuple(choice("hydra.sweeper.direction", Direction, one) for one in _texts("direction", direction))
    if len(directions) == 1:
        directions *= len(named)
    if isinstance(sampler, str):
        sampler = {"_target_": sampler}
    if sampler is not None and not (isinstance(sampler, Mapping) and "_target_" in sampler):
        raise ValueError(
            f"hydra.sweeper.sampler must be null, a class such as optuna.samplers.RandomSampler, or "
            f"{{_target_: ..., ...}} with its settings, got {sampler!r}"
        )
    return Settings(
        objectives=named,
        directions=directions,
        sampler=sampler,
        average_over=_texts("average_over", average_over or []),
        **numbers,
    )


def _texts(option: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(one, str) for one in values):
        raise ValueError(f"hydra.sweeper.{option} must be a name or a list of names, got {value!r}")
    return tuple(values)


def _check_whole(option: str, value: Any, least: int, meaning: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"hydra.sweeper.{option} must be a whole number from {least} ({meaning}), got {value!r}")
