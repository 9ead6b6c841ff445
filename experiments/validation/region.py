"""Regressors that leave the region of the stored points."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid import Model

MARGIN = 0.05  # of the range of a coordinate among the stored points: so far beyond it is still inside
UNKNOWN = 0.5  # part of the prior variance that the stored points must explain


class Excursion(NamedTuple):
    """A feature beyond the stored points."""

    feature: str
    low: float  # smallest value among the stored points, unit of the feature
    high: float  # largest
    farthest: float  # of the regressors the one farthest beyond them
    unit: str


class Departures(NamedTuple):
    """How many regressors are outside, and by which feature most."""

    n: int  # outside
    n_regressors: int
    farthest: Excursion | None  # None if only the combination of values is new

    @property
    def share(self) -> float:
        """Part of the regressors that is outside."""
        return self.n / self.n_regressors if self.n_regressors else 0.0


def departures(model: Model, regressors: NDArray[np.float64]) -> Departures:
    """Regressors (n, p) outside the region that a model has learned.

    A regressor is outside if a coordinate of the kernel (a feature, unless the model combines them) lies beyond the
    range of the stored points by more than `MARGIN` of it, or if the points leave more than half of the prior
    variance there, ``variance(x) > UNKNOWN k(x, x)``. Regressors that are not finite, after a divergence, do
    not count.
    """
    x = regressors[np.isfinite(regressors).all(axis=1)]
    points = model.gp.inputs
    if not len(x) or not len(points):
        return Departures(len(x), len(x), None)
    z = model.scaling.transform(x)
    low, high = points.min(axis=0), points.max(axis=0)
    beyond = np.maximum(low - z, z - high) / np.where(high > low, high - low, 1.0)
    unknown = model.predict(x).variance > UNKNOWN * model.gp.kernel.diagonal(z)
    outside = (beyond > MARGIN).any(axis=1) | unknown
    row, column = np.unravel_index(int(beyond.argmax()), beyond.shape)
    farthest = None
    if beyond[row, column] > MARGIN and model.scaling.matrix is None:
        ends = model.scaling.inverse(np.stack([low, high]))[:, column]
        unit = model.origin.unit(model.narx.features[column][0])
        name = model.narx.feature_names[column]
        farthest = Excursion(name, float(ends[0]), float(ends[1]), float(x[row, column]), unit)
    return Departures(int(outside.sum()), len(x), farthest)
