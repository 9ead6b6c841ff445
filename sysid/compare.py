"""Fit percent as ``compare`` of MATLAB's System Identification Toolbox reports it."""

import numpy as np
from numpy.typing import ArrayLike

from sysid.validation import validate


def fit_percent(y: ArrayLike, y_hat: ArrayLike) -> float | np.ndarray:
    """``100 (1 - ||y - y_hat|| / ||y - mean(y)||)`` of every output; 100 is perfect, 0 as good as the mean.

    ``compare`` simulates where its horizon is infinite: then `y_hat` is a free run, without the samples that
    initialised it.

    Parameters
    ----------
    y, y_hat : (n,) or (n, m)
        Measured and predicted outputs.

    Returns
    -------
    float, or ndarray (m,)
        -inf for a prediction that diverged, nan for a measured output that is constant.

    Raises
    ------
    ValueError
        Arrays of different shapes, or measured outputs that are not finite.

    Examples
    --------
    >>> fit_percent([0.0, 2.0, 4.0], [0.0, 2.0, 3.0])  # doctest: +ELLIPSIS
    64.6...
    """
    measured, predicted = np.asarray(y, dtype=np.float64), np.asarray(y_hat, dtype=np.float64)
    if measured.shape != predicted.shape or measured.ndim not in (1, 2):
        raise ValueError(
            f"fit_percent: expected two arrays (n,) or (n, m) of one shape, got {measured.shape} and {predicted.shape}"
        )
    if measured.ndim == 1:
        return validate(measured, predicted).fit_percent
    return np.array([validate(*pair).fit_percent for pair in zip(measured.T, predicted.T, strict=True)])
