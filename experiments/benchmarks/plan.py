"""How much is measured, from the configuration."""

from dataclasses import dataclass, replace
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf

from experiments.options import seconds


@dataclass(frozen=True)
class Plan:
    """Settings of all benchmarks."""

    sizes: tuple[int, ...]  # points
    budget: int  # points
    repetitions: int
    replacements: int
    stretch: int  # samples that `solve_ivp` integrates
    trajectories: int  # of the ensemble
    duration: str  # of the closed loop
    sweep_thresholds: tuple[float, ...]  # K, of the jobs of a sweep
    sweep_seeds: int  # for each of them
    seed: int
    cold: bool  # whether the start with an empty compile cache is measured

    @classmethod
    def of(cls, config: DictConfig) -> Self:
        """Settings of a configuration; `quick` replaces the sizes.

        Raises
        ------
        ValueError
            Numbers that leave nothing to measure.
        """
        sizes = tuple(_integer("sizes", size, 2) for size in config.sizes)
        if len(set(sizes)) < 2:
            raise ValueError(f"sizes must be at least two different numbers of points, got {list(sizes)}")
        plan = cls(
            sizes=sizes,
            budget=_integer("budget", config.budget, 2),
            repetitions=_integer("repetitions", config.repetitions, 1),
            replacements=_integer("replacements", config.replacements, 1),
            stretch=_integer("stretch", config.stretch, 1),
            trajectories=_integer("trajectories", config.trajectories, 1),
            duration=str(config.duration),
            sweep_thresholds=tuple(float(value) for value in config.sweep_thresholds),
            sweep_seeds=_integer("sweep_seeds", config.sweep_seeds, 1),
            seed=_integer("seed", config.seed, 0),
            cold=not config.quick,
        )
        seconds(plan.duration)
        return replace(plan, **QUICK) if config.quick else plan

    def rounds(self, size: int) -> int:
        """Rounds for a dictionary of this size: more for short ones, whose times a busy machine spoils."""
        return self.repetitions * min(max(2000 // size, 1), 20)


#: what `quick` measures
QUICK: dict[str, Any] = {
    "sizes": (20, 40),
    "budget": 20,
    "repetitions": 2,
    "replacements": 2000,
    "stretch": 20,
    "trajectories": 50,
    "duration": "10d",
    "sweep_thresholds": (0.1, 0.2),
    "sweep_seeds": 1,
}


def _integer(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be integers of at least {least}, got {value!r}")
    return value


def benchmark_names(config: DictConfig, known: list[str]) -> list[str]:
    """Benchmarks to run, in the order of the table.

    Raises
    ------
    ValueError
        A name that does not exist, or none at all.
    """
    value = OmegaConf.to_object(config.benchmarks) if OmegaConf.is_list(config.benchmarks) else config.benchmarks
    names = value if isinstance(value, list) else [value]
    unknown = [str(name) for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"benchmarks must be some of {', '.join(known)}, got {', '.join(unknown) or 'none'}")
    return [name for name in known if name in names]
