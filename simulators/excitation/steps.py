"""Steps at given times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.duration import first_sample
from simulators.excitation.excitation import Excitation
from simulators.settings import refuse


@dataclass(frozen=True)
class Steps(Excitation):
    """Levels that begin at given times and last until the next one.

    ::

        v_k = 0 for t_k < time_1,   v_k = level_i for time_i <= t_k < time_{i+1}

    A step between two samples takes effect at the later one. Steps after the end of a record do not occur: a
    longer signal begins with the shorter one.

    Parameters
    ----------
    steps : sequence of (float, float)
        Times [s], ascending from 0 or later, with the level from then on about the offset [unit of the input].

    Raises
    ------
    ValueError
        On construction: if there is no step, a step is no pair of finite numbers or the times do not ascend. On
        use: if two steps fall on one sample, so that the first would vanish.

    Examples
    --------
    >>> Steps([[0.2, 3.0], [0.4, -1.0]]).signal(6, 0.1, np.random.default_rng(0))
    array([ 0.,  0.,  3.,  3., -1., -1.])
    """

    steps: Sequence[Sequence[float]] = ((0.0, 1.0),)  # [time in s, level in the unit of the input]

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = "pairs [time in s, level], at least one, with times that ascend from 0 or later"
        if not isinstance(self.steps, Sequence) or not self.steps or not all(map(_is_pair, self.steps)):
            raise refuse(self, "steps", expected)
        steps = tuple((float(time), float(level)) for time, level in self.steps)
        times = [time for time, _ in steps]
        if times[0] < 0 or any(later <= earlier for earlier, later in pairwise(times)):
            raise refuse(self, "steps", expected)
        object.__setattr__(self, "steps", steps)

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return v (n,) [unit of the input]; equation in the class."""
        first = np.array([first_sample(time, dt) for time, _ in self.steps])
        if np.any(np.diff(first) == 0):
            i = int(np.argmin(np.diff(first)))
            raise ValueError(
                f"Steps: expected at most one step per sample of dt={dt:.9g} s, steps at {self.steps[i][0]:.9g} and "
                f"{self.steps[i + 1][0]:.9g} s fall on one; move them apart"
            )
        levels = np.array([0.0, *(level for _, level in self.steps)])
        return levels[np.searchsorted(first, np.arange(n_samples), side="right")]


def _is_pair(step: Any) -> bool:
    """Whether a step is a sequence of two finite numbers."""
    if not isinstance(step, Sequence) or isinstance(step, str) or len(step) != 2:
        return False
    return all(isinstance(x, Real) and not isinstance(x, bool) and math.isfinite(x) for x in step)
