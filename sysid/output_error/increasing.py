"""Where an increasing function reaches a value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq


def reached(
    function: Callable[[float], float], aim: float, low: float, high: float, *, tolerance: float = 1e-3
) -> float:
    """Positive number from low to high at which an increasing function is `aim`; the nearer end where it is not.

    Parameters
    ----------
    tolerance : float
        Of the logarithm of the number.

    Examples
    --------
    >>> round(reached(lambda x: x**2, 4.0, 0.1, 10.0, tolerance=1e-9), 6), reached(lambda x: x, 20.0, 0.1, 10.0)
    (2.0, 10.0)
    """
    if function(high) <= aim:
        return high
    if function(low) >= aim:
        return low
    root = brentq(lambda x: function(float(np.exp(x))) - aim, np.log(low), np.log(high), xtol=tolerance)
    return float(np.exp(root))
