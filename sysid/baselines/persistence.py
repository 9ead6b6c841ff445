"""No change."""

from dataclasses import dataclass

import numpy as np

from sysid.baselines.baseline import Array, Baseline
from sysid.narx import Narx


@dataclass(frozen=True)
class Persistence(Baseline):
    """The output stays: ``y[k] = y[k-1]``, so the predicted change is 0; in free run the last initial output.

    A prediction is nan where the earlier output is (rows of a target without lags).

    Raises
    ------
    ValueError
        Without any lag: rows of a table have no earlier output.

    Examples
    --------
    >>> Persistence(Narx({"y": 1})).free_run({"y": [5.0, 6.0, 7.0]})
    array([5., 5., 5.])
    """

    narx: Narx

    def __post_init__(self) -> None:
        if self.narx.max_lag == 0:
            raise ValueError(
                f"Persistence needs an output before the first, but all lags of {list(self.narx.feature_names)} are "
                "0: rows of a static table are independent, use Mean"
            )

    def predict(self, regressors: Array, previous: Array) -> Array:
        """Targets of an unchanged output; see `Baseline.predict`."""
        return np.asarray(self.narx.predict.of(previous, previous))
