"""Baselines that a model must beat, against the equation, one number at a time."""

import math

import numpy as np
import pytest
import xarray as xr

from sysid import Narx, Target
from sysid.simulation.baselines import LinearArx, Mean, Persistence

EACH_TARGET = pytest.mark.parametrize("predict", ["value", "change"])

# y[k] = OFFSET + OUTPUT_WEIGHTS.(y[k-1], y[k-2]) + INPUT_WEIGHTS.(u[k], u[k-1]) + e[k]
OUTPUT_WEIGHTS = [1.5, -0.7]
INPUT_WEIGHTS = [0.5, 0.25]
OFFSET = 0.3
NARX = Narx({"y": 2}, {"u": [0, 1]}, predict="value")


def known_system(n=400, *, noise=0.0, seed=0):
    """Return a record of a linear system; `noise` is the standard deviation of e."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    e = noise * rng.normal(size=n)
    for k in range(2, n):
        of_outputs = OUTPUT_WEIGHTS[0] * y[k - 1] + OUTPUT_WEIGHTS[1] * y[k - 2]
        of_inputs = INPUT_WEIGHTS[0] * u[k] + INPUT_WEIGHTS[1] * u[k - 1]
        y[k] = OFFSET + of_outputs + of_inputs + e[k]
    return xr.Dataset(
        {"y": ("time", y), "u": ("time", u)},
        coords={"time": 0.5 * np.arange(n)},
    )


def naive_free_run(model, data, n_initial):
    """Return the simulated target, one number at a time."""
    narx = model.narx
    target = data[narx.target].values
    y = [float(value) for value in target[:n_initial]]
    for k in range(n_initial, data.sizes["time"]):
        value = model.intercept
        for (name, lag), weight in zip(narx.features, model.coefficients, strict=True):
            values = y if name == narx.target else data[name].values
            value += weight * float(values[k - lag])
        if narx.predict is Target.change:
            value += y[k - 1]
        y.append(value)
    return np.array(y)


# --- linear least squares -------------------------------------------------------------------------


def test_a_known_system_is_found_exactly_and_simulated():
    model = LinearArx.fit(NARX, known_system())
    expected = [*OUTPUT_WEIGHTS, *INPUT_WEIGHTS]
    np.testing.assert_allclose(model.coefficients, expected, rtol=1e-9)
    np.testing.assert_allclose(model.intercept, OFFSET, rtol=1e-9)
    assert model.rank == 4
    assert model.warnings == ()
    truth = known_system(1000, seed=2)
    np.testing.assert_allclose(model.free_run(truth), truth.y, atol=1e-8)


def test_signals_that_are_not_excited_get_no_weight_and_are_reported():
    data = known_system(200, noise=0.1)
    data["copy"] = 2 * data["u"]
    data["idle"] = data["u"] * 1e-9 + 1e6 / 3  # constant but for rounding
    narx = Narx({"y": 2}, {"u": [0], "copy": [0], "idle": [0]}, predict="value")
    model = LinearArx.fit(narx, data)
    assert model.rank == 3
    assert model.condition == math.inf
    assert model.warnings == ("the regressors have rank 3 of 5: coefficients of minimum norm",)
    u, copy, idle = model.coefficients[2:]
    assert idle == 0.0
    # u and its copy are the same when standardised, and get the same weight there
    assert u == pytest.approx(2 * copy)


# --- one step and free run ------------------------------------------------------------------------


@EACH_TARGET
@pytest.mark.parametrize("n_initial", [None, 3, 599])
def test_linear_predictions_are_the_equation(predict, n_initial):
    narx = Narx({"y": 2}, {"u": [0, 3]}, predict=predict)
    data = known_system(600, noise=0.3)
    model = LinearArx.fit(narx, data)
    rows = narx.dataset(data)
    expected = [model.intercept + sum(model.coefficients * row) for row in rows.regressor.values]
    np.testing.assert_allclose(model.one_step(rows), expected, rtol=1e-12, atol=1e-13)
    first = 3 if n_initial is None else n_initial
    simulated = model.free_run(data, n_initial=n_initial)
    np.testing.assert_allclose(simulated, naive_free_run(model, data, first), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(simulated[:first], data.y.values[:first])


def test_a_free_run_sees_no_later_output_and_other_outputs_as_measured():
    data = known_system(100, noise=0.3)
    data["v"] = ("time", np.random.default_rng(5).normal(size=100))
    model = LinearArx.fit(Narx({"v": 1, "y": 2}, {"u": 1}, target="y"), data)
    simulated = model.free_run(data)
    np.testing.assert_allclose(simulated, naive_free_run(model, data, 2), rtol=1e-9)
    blind = data.copy(deep=True)
    blind["y"][2:] = np.nan
    np.testing.assert_array_equal(model.free_run(blind), simulated)


def test_an_unstable_simulation_is_nan_from_its_overflow_on():
    model = LinearArx(Narx({"y": 1}, predict="value"), np.array([-1e30]), 0.0, 1, 1.0)
    simulated = model.free_run({"y": np.ones(20)})
    np.testing.assert_array_equal(np.sign(simulated[:11]), [1, -1] * 5 + [1])
    assert abs(simulated[10]) == pytest.approx(1e300)
    assert np.isnan(simulated[11:]).all()


@pytest.fixture
def four_values():
    """Return a record of four values that are easy to compute with."""
    return xr.Dataset({"y": ("time", [1.0, 2.0, 4.0, 9.0])}, coords={"time": np.arange(4.0)})


@pytest.mark.parametrize(
    ("predict", "expected"), [("value", [5.0, 5.0, 5.0]), ("change", [4.0, 3.0, 1.0])]
)
def test_the_mean_by_hand(predict, expected, four_values):
    narx = Narx({"y": 1}, predict=predict)
    mean = Mean.fit(narx, four_values)
    assert mean.value == 5.0
    assert mean.one_step(narx.dataset(four_values)).tolist() == expected
    assert mean.free_run(four_values).tolist() == [1.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("predict", "expected"), [("value", [1.0, 2.0, 4.0]), ("change", [0.0, 0.0, 0.0])]
)
def test_persistence_by_hand(predict, expected, four_values):
    narx = Narx({"y": 1}, predict=predict)
    persistence = Persistence(narx)
    assert persistence.one_step(narx.dataset(four_values)).tolist() == expected
    assert persistence.free_run(four_values).tolist() == [1.0, 1.0, 1.0, 1.0]
    from_the_third = persistence.free_run(four_values, n_initial=3)
    assert from_the_third.tolist() == [1.0, 2.0, 4.0, 4.0]


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: Persistence(Narx({"y": []}, {"u": [0]}, predict="value")),
            "Persistence needs an output",
            id="persistence without output",
        ),
        pytest.param(lambda: Mean(NARX, math.nan), r"Mean\(value=nan\)", id="mean is nan"),
        pytest.param(
            lambda: LinearArx.fit(NARX, known_system(), ridge=-1.0),
            "ridge=-1.0",
            id="negative ridge",
        ),
        pytest.param(
            lambda: Mean(NARX, 0.0).one_step(Narx({"y": 1}).dataset(known_system())),
            "expects the features",
            id="other features",
        ),
    ],
)
def test_unusable_baselines_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("n_initial", "signals", "message"),
    [
        pytest.param(
            None,
            {"u": np.r_[np.zeros(9), np.nan]},
            "'u' of record 0 is nan at sample 9",
            id="missing input",
        ),
        pytest.param(
            5,
            {"y": np.r_[np.zeros(4), np.nan, np.zeros(5)]},
            "'y' of record 0 is nan at sample 4",
            id="missing initial output",
        ),
        pytest.param(10, {}, "needs n_initial from 2 to 9, got 10", id="nothing to simulate"),
        pytest.param(None, {"u": np.zeros(3)}, "need one length", id="two lengths"),
    ],
)
def test_records_that_cannot_be_simulated_are_refused(n_initial, signals, message):
    zeros = {"y": np.zeros(10), "u": np.zeros(10)}
    with pytest.raises(ValueError, match=message):
        Persistence(NARX).free_run(zeros | signals, n_initial=n_initial)
