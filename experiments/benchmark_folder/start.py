"""Where records start: the system's own initial state, or a random one."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from simulators import System


@dataclass(frozen=True)
class Starts:
    """Initial states, each drawn uniformly from its range; a state without a range keeps the system's own value."""

    system: System
    ranges: Mapping[str, tuple[float, float]]  # by the name of the state, in its unit

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises
        ------
        ValueError
            A state that does not exist, a range that descends, or one beyond the limits of its state.
        """
        names = [signal.name for signal in self.system.states]
        for name, (low, high) in self.ranges.items():
            if name not in names:
                raise ValueError(
                    f"initial_states names {name!r}, {type(self.system).__name__} has the states {names}: name these"
                )
            i = names.index(name)
            lower, upper = (float(limits[i]) for limits in self.system.state_limits())
            if not lower <= low <= high <= upper:
                unit = self.system.states[i].unit
                raise ValueError(
                    f"initial_states.{name}=[{low:g}, {high:g}] must be lowest and highest value, within the limits "
                    f"{lower:g} to {upper:g} {unit} of the state; change it"
                )

    def draw(self, seed: int) -> NDArray[np.float64] | None:
        """Initial state (n_x,) of a record with this seed; None, the system's own, without ranges.

        A draw has a generator of its own, split off the seed by the name of the state: it is independent of all
        noise and stays when other states get or lose a range.
        """
        if not self.ranges:
            return None
        state = np.array(self.system.initial_state(), dtype=np.float64)
        for i, signal in enumerate(self.system.states):
            if signal.name in self.ranges:
                sequence = np.random.SeedSequence(seed, spawn_key=(*b"initial state ", *signal.name.encode()))
                state[i] = np.random.default_rng(sequence).uniform(*self.ranges[signal.name])
        return state


def starts_of(config: DictConfig, system: System) -> Starts:
    """Random initial states of the configuration.

    Raises
    ------
    ValueError
        No mapping of names to pairs of numbers, or as `Starts`.
    """
    given = {} if config.initial_states is None else config.initial_states
    if not isinstance(given, Mapping):
        raise ValueError(
            f"initial_states must map names of states to [lowest, highest], such as {{{_example(system)}}}, or be "
            f"null, got {given!r}"
        )
    return Starts(system, {str(name): _range(f"initial_states.{name}", values) for name, values in given.items()})


def _range(key: str, values: Any) -> tuple[float, float]:
    try:
        pair = [] if isinstance(values, str) else list(values)
    except TypeError:
        pair = []
    finite = [value for value in pair if isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)]
    if len(pair) != 2 or len(finite) != 2:
        raise ValueError(f"{key} must be two numbers [lowest, highest], got {values!r}; change it")
    return float(pair[0]), float(pair[1])


def _example(system: System) -> str:
    return ", ".join(f"{signal.name}: [-1, 1]" for signal in system.states)
