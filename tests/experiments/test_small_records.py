"""Measured records of the literature: the default against the strongest simple rivals.

The first half of a record is learned, the second half is predicted one step ahead.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from helpers.naive_arx import lagged
from sysid import identify

#: largest number of lags of a rival; its predictions begin after so many samples
MAX_LAGS = 12

SAMPLING_TIMES = {"drives": 0.02, "gas_furnace": 9.0}  # s

#: Largest error over that of the best rival, which is chosen on the test half. The innovations of
#: the gas furnace are three times as large there as in the half that chooses the estimator.
LARGEST_RATIOS = {"drives": 1.03, "gas_furnace": 1.1}


def read_halves(shared_data, name):
    """Return input (n, 1) and output (n,) of the two halves of a record."""
    table = pd.read_csv(shared_data / "gpssm" / f"{name}.csv").astype(float)
    n = len(table) // 2
    return [(half[["u"]].to_numpy(), half["y"].to_numpy()) for half in (table[:n], table[n:])]


def arx_error(learned, test, n_lags, first_lag):
    """Return the RMSE of least squares with this many lags of the output and of the input."""
    x = lagged(*learned, n_lags, n_lags, first_lag, MAX_LAGS)
    theta = np.linalg.lstsq(x, learned[1][MAX_LAGS:], rcond=None)[0]
    errors = lagged(*test, n_lags, n_lags, first_lag, MAX_LAGS) @ theta - test[1][MAX_LAGS:]
    return np.sqrt(np.mean(errors**2))


def gaussian_process_error(learned, test, narx):
    """Return the RMSE of an exact Gaussian process, of scikit-learn, with the lags of a model."""
    na = len(narx.lags["y"])
    nb = len(narx.lags["u"])
    nk = narx.lags["u"][0]
    x = lagged(*learned, na, nb, nk, MAX_LAGS)[:, 1:]
    x_test = lagged(*test, na, nb, nk, MAX_LAGS)[:, 1:]
    scaler = StandardScaler().fit(x)
    mean = learned[1].mean()
    std = learned[1].std()
    kernel = ConstantKernel(10.0, (1e-3, 1e6)) * RBF(np.full(x.shape[1], 5.0), (1e-2, 1e4))
    process = GaussianProcessRegressor(kernel + WhiteKernel(0.01, (1e-8, 10.0)), random_state=0)
    process.fit(scaler.transform(x), (learned[1][MAX_LAGS:] - mean) / std)
    errors = process.predict(scaler.transform(x_test)) * std + mean - test[1][MAX_LAGS:]
    return np.sqrt(np.mean(errors**2))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of the rival
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLING_TIMES)
def test_the_default_is_as_good_as_the_best_rival(shared_data, name):
    learned, test = read_halves(shared_data, name)
    found = identify(learned, test=test, dt=SAMPLING_TIMES[name])
    predicted = found.predict(test)[-(len(test[1]) - MAX_LAGS) :]
    error = np.sqrt(np.mean((predicted["y_mean"] - predicted["y"]) ** 2))
    lines = [
        arx_error(learned, test, n_lags, first_lag)
        for n_lags in range(1, MAX_LAGS + 1)
        for first_lag in (0, 1)
    ]
    process = gaussian_process_error(learned, test, found.model.narx)
    assert error < LARGEST_RATIOS[name] * min(*lines, process)
