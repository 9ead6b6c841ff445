"""A static test function as a source of data: rows to learn from, a grid to judge by."""

import numpy as np
import pytest
from running import execute, summary_of

from experiments.function_data import FunctionData
from simulators import Himmelblau, Rosenbrock, Sobol, Uniform


def test_rows_and_grid_are_values_of_the_function():
    found = FunctionData(Rosenbrock(), Uniform(), n_estimation=50, n_axis=5, seed=3).load()
    (rows,), (grid,) = found.estimation, found.test
    for record in (rows, grid):
        a, b = record["x1"].values, record["x2"].values
        np.testing.assert_allclose(record["y"], (1 - a) ** 2 + 100 * (b - a**2) ** 2, rtol=1e-12)
    assert (rows.sizes["time"], grid.sizes["time"]) == (50, 25)
    assert sorted(set(grid["x1"].values)) == [-1, -0.5, 0, 0.5, 1]
    assert found.is_static


def test_noise_is_on_the_rows_only_and_follows_the_seed():
    clean, noisy, other = (
        FunctionData(Himmelblau(), Sobol(), n_estimation=4000, noise_std=std, seed=seed).load()
        for std, seed in ((0.0, 0), (2.0, 0), (2.0, 1))
    )
    error = (noisy.estimation[0]["y"] - clean.estimation[0]["y"]).values
    assert error.std() == pytest.approx(2.0, rel=0.05)
    assert abs(error.mean()) < 0.15
    np.testing.assert_array_equal(noisy.test[0]["y"], clean.test[0]["y"])
    assert not np.array_equal(noisy.estimation[0]["y"], other.estimation[0]["y"])


@pytest.mark.parametrize("bad", [{"n_estimation": 0}, {"n_axis": 1}, {"noise_std": -1.0}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        FunctionData(Himmelblau(), Uniform(), **bad)


def test_the_command_learns_a_function(tmp_path):
    choices = ("function@data.function=rosenbrock", "sampling@data.sampling=latin_hypercube")
    settings = ("training.n_initial=40", "budget=60", "data.n_estimation=120", "data.n_axis=7", "figures=true")
    summary = summary_of(execute(tmp_path, "data=function", *choices, *settings))
    assert summary["system"] == "Rosenbrock"
    assert summary["smse"] < 0.05
    assert summary["n_validation"] == 49
    assert summary["smse_no_change"] is None
