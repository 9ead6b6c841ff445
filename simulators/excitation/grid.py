"""Which harmonics of a period a multisine excites."""

from enum import Enum

import numpy as np
from numpy.typing import NDArray


class Grid(Enum):
    """Harmonic grid of a multisine.

    - `full`: every harmonic.
    - `odd`: the odd ones; even nonlinearities answer only at even harmonics, which then show them.
    - `random_odd`: the odd ones, without one drawn at random from every group of consecutive odd harmonics;
      odd nonlinearities show up at these detection lines. An incomplete last group keeps all its harmonics.

    Notes
    -----
    R. Pintelon and J. Schoukens, System Identification: A Frequency Domain Approach (Wiley, 2012), chapter 4;
    J. Schoukens and L. Ljung, Nonlinear System Identification: A User-Oriented Road Map, IEEE Control Systems
    Magazine 39(6), 2019. Groups have three or four harmonics there.
    """

    full = "full"
    odd = "odd"
    random_odd = "random_odd"

    @property
    def needs_even_period(self) -> bool:
        """Whether parity must survive aliasing: harmonic h folds to period - h."""
        return self is not Grid.full

    def harmonics(self, lowest: int, highest: int, group: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the excited harmonics from `lowest` to `highest`, both included.

        Parameters
        ----------
        lowest, highest : int
            Range of harmonics, from 1.
        group : int
            Size of the groups of consecutive odd harmonics.
        generator : np.random.Generator
            Draws the harmonics left out; advances for `random_odd` only.

        Returns
        -------
        (m,) array of int
            Ascending; empty if there is none.
        """
        if self is Grid.full:
            return np.arange(lowest, highest + 1)
        odd = np.arange(lowest + (lowest + 1) % 2, highest + 1, 2)
        if self is Grid.odd:
            return odd
        first = np.arange(0, len(odd) - group + 1, group)
        return np.delete(odd, first + generator.integers(group, size=len(first)))
