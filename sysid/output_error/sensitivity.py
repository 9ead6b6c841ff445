"""Sensitivities of a free run, compiled; of the function it feeds back they know nothing but its derivatives."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def propagate(slopes, lags, sensitivity):  # type: ignore[no-untyped-def]
    """Turn derivatives of one step into those of the free run, in place.

    With ``y[k] = F(y[k - l_1], ..., y[k - l_q], theta)`` and outputs before the first that do not depend on theta::

        S[k] = dF[k] / dtheta + sum_i dF[k] / dy[k - l_i]  S[k - l_i],   S[k] = dy[k] / dtheta

    Parameters
    ----------
    slopes : (n, q)
        ``dF[k] / dy[k - l_i]``.
    lags : (q,)
        ``l_i >= 1``.
    sensitivity : (n, P)
        ``dF[k] / dtheta``, C-contiguous; holds S afterwards.
    """
    n, n_parameters = sensitivity.shape
    for k in range(n):
        for i in range(lags.size):
            if k >= lags[i]:
                slope, earlier = slopes[k, i], sensitivity[k - lags[i]]
                for j in range(n_parameters):
                    sensitivity[k, j] += slope * earlier[j]


def free_run_sensitivity(slopes: np.ndarray, lags: np.ndarray, direct: np.ndarray) -> np.ndarray:
    """S (n, P) of `propagate` from the derivatives (n, P) of one step, which stay as they are."""
    sensitivity = np.array(direct, dtype=np.float64, order="C")
    propagate(np.ascontiguousarray(slopes), lags, sensitivity)
    return sensitivity
