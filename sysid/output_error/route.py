"""The role of a way to train a model for simulation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from sysid.narx import Narx
from sysid.output_error.candidate import Candidate
from sysid.output_error.segment import Segment


class Fitted(NamedTuple):
    """What a route found."""

    candidate: Candidate
    latent_variance: float  # of the function, mean over the samples, target unit^2
    report: dict[str, Any]  # what was tried, as plain numbers, texts, lists and dicts


class Route(ABC):
    """Way to choose the kernel, its points and weights, and the mean for the free run."""

    @abstractmethod
    def fit(
        self, segments: Sequence[Segment], narx: Narx, budget: int, seed: int, limits: tuple[float, float]
    ) -> Fitted:
        """Candidate of at most `budget` points from these segments only.

        Parameters
        ----------
        segments : sequence of Segment
        narx : Narx
        budget : int
            Largest number of points.
        seed : int
            Of everything random.
        limits : (2,)
            Between which the target output saturates, its unit; infinite for none.

        Raises
        ------
        ValueError
            Too few samples: how many there are and how many are needed.
        """
