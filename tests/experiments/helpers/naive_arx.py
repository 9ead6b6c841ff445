"""A linear model with lags, fitted and simulated by loops: independent of the code under test."""

import numpy as np


def lagged(u, y, na, nb, nk, first):
    """Regressors of a linear model from sample `first` on, with an offset."""
    inputs = [
        u[first - lag : len(y) - lag, i] for i in range(u.shape[1]) for lag in range(nk, nk + nb)
    ]
    outputs = [y[first - lag : len(y) - lag] for lag in range(1, na + 1)]
    return np.column_stack([np.ones(len(y) - first), *outputs, *inputs])


def naive_arx(estimation, test, na, nb, nk, first):
    """One-step and free-run RMSE from sample `first` of the test, by loops and lstsq."""
    begin = max(na, nb + nk - 1)
    theta = np.linalg.lstsq(
        lagged(*estimation, na, nb, nk, begin), estimation[1][begin:], rcond=None
    )[0]
    (u, y), simulated = test, test[1].copy()
    for k in range(first, len(y)):
        simulated[k] = lagged(u[: k + 1], simulated[: k + 1], na, nb, nk, k)[0] @ theta
    one_step = y[begin:] - lagged(u, y, na, nb, nk, begin) @ theta
    return np.sqrt(np.mean(one_step**2)), np.sqrt(np.mean((y - simulated)[first:] ** 2))
