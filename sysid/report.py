"""What an online GP reports about the samples it has seen and the points it keeps."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class UpdateReport(NamedTuple):
    """What one sample did: the prediction made before its target was used, then the decisions."""

    mean: float  # predicted target
    variance: float  # latent predictive variance
    inserted: bool  # the insertion rule asked for a place
    accepted: bool  # the sample entered the dictionary
    slot: int  # place that it took, -1 if none
    removed: int  # place whose point had to leave, -1 if none
    n_points: int  # size of the dictionary afterwards
    acceptance_score: float  # of the sample, nan if nobody asked
    acceptance_minimum: float  # smallest score of the stored points, nan if nobody asked
    reduction_score: float  # of the point that left, nan if none


@dataclass(frozen=True, eq=False)
class UpdateReports:
    """Reports of many samples: one array per field of `UpdateReport`, or one report per index."""

    mean: np.ndarray
    variance: np.ndarray
    inserted: np.ndarray
    accepted: np.ndarray
    slot: np.ndarray
    removed: np.ndarray
    n_points: np.ndarray
    acceptance_score: np.ndarray
    acceptance_minimum: np.ndarray
    reduction_score: np.ndarray

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, index: int) -> UpdateReport:
        return UpdateReport(*(getattr(self, name)[index].item() for name in UpdateReport._fields))

    def __iter__(self) -> Iterator[UpdateReport]:
        return (self[index] for index in range(len(self)))


class LeaveOneOut(NamedTuple):
    """Every stored point judged without itself, in slot order."""

    residual: np.ndarray  # y_i - mu_/i
    variance: np.ndarray  # noisy: latent variance plus noise variance
