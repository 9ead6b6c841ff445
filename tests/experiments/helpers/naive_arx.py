"""A linear model with lags, fitted and simulated by loops: independent of the code under test."""

import numpy as np


def lagged(u, y, na, nb, nk, first):
    """Return the regressors of a linear model from sample `first` on, with an offset."""
    columns = [np.ones(len(y) - first)]
    for lag in range(1, na + 1):
        columns.append(y[first - lag : len(y) - lag])
    for i in range(u.shape[1]):
        for lag in range(nk, nk + nb):
            columns.append(u[first - lag : len(y) - lag, i])
    return np.column_stack(columns)


def naive_arx(estimation, test, na, nb, nk, first):
    """Return the one-step and the free-run RMSE of a least-squares fit on the test record.

    The one-step RMSE counts every sample that has its lags. The free run begins at `first`.
    """
    first_with_lags = max(na, nb + nk - 1)
    regressors = lagged(*estimation, na, nb, nk, first_with_lags)
    targets = estimation[1][first_with_lags:]
    theta = np.linalg.lstsq(regressors, targets, rcond=None)[0]
    u, y = test
    simulated = y.copy()
    for k in range(first, len(y)):
        simulated[k] = lagged(u[: k + 1], simulated[: k + 1], na, nb, nk, k)[0] @ theta
    one_step_errors = y[first_with_lags:] - lagged(u, y, na, nb, nk, first_with_lags) @ theta
    free_run_errors = (y - simulated)[first:]
    return np.sqrt(np.mean(one_step_errors**2)), np.sqrt(np.mean(free_run_errors**2))
