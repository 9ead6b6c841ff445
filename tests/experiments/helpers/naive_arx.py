"""A linear model with lags, fitted and simulated by loops: independent of the code under test."""

from itertools import pairwise

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


def naive_order(u, y, n_orders):
    """Return the order of the smallest error on held-out fifths, of models of 1 to n_orders lags.

    The targets are the changes of the output; all models have the same rows.
    """
    target = np.diff(y)[n_orders - 1 :]
    ends = np.linspace(0, len(target), 6).astype(int)
    errors = []
    for order in range(1, n_orders + 1):
        x = lagged(u, y, order, order, 1, n_orders)
        squares = 0.0
        for begin, end in pairwise(ends):
            rest = np.r_[0:begin, end : len(target)]
            theta = np.linalg.lstsq(x[rest], target[rest], rcond=None)[0]
            squares += np.sum((target[begin:end] - x[begin:end] @ theta) ** 2)
        errors.append(squares)
    return 1 + int(np.argmin(errors))


def naive_changes(estimation, test, order, first):
    """Return the changes of the output of a test record from sample `first` on, predicted."""
    u, y = estimation
    x = lagged(u, y, order, order, 1, order)
    theta = np.linalg.lstsq(x, np.diff(y)[order - 1 :], rcond=None)[0]
    return lagged(*test, order, order, 1, first) @ theta


def naive_recursion(u, y, order, n_orders, first, ridge=1e-6):
    """Return the predicted changes of the output from sample `first` on, each by a new batch.

    The batch consists of all samples before that have `n_orders` lags. Features and target are
    standardised by those before `first`, and the ridge is that of the standardised features.
    """
    x = lagged(u, y, order, order, 1, n_orders)
    t = np.diff(y)[n_orders - 1 :]
    n_initial = first - n_orders
    initial = x[:n_initial, 1:]
    x[:, 1:] = (x[:, 1:] - initial.mean(axis=0)) / initial.std(axis=0)
    mean = t[:n_initial].mean()
    prior = np.sqrt(ridge) * np.eye(x.shape[1])
    predicted = []
    for k in range(n_initial, len(t)):
        rows = np.vstack([prior, x[:k]])
        values = np.concatenate([np.zeros(len(prior)), t[:k] - mean])
        theta = np.linalg.lstsq(rows, values, rcond=None)[0]
        predicted.append(mean + x[k] @ theta)
    return np.array(predicted)
