"""Baselines: against the equations written as loops, systems that are known, normal equations, and every error."""

import math

import numpy as np
import pytest
import xarray as xr

from sysid.baselines import Baseline, LinearArx, Mean, Persistence
from sysid.narx import Narx, Target

A, B, C = [1.5, -0.7], [0.5, 0.25], 0.3  # y[k] = C + A.(y[k-1], y[k-2]) + B.(u[k], u[k-1]) + e[k]
NARX = Narx({"y": 2}, {"u": [0, 1]}, predict="value")


def known_system(n=400, *, noise=0.0, seed=0, dt=0.5):
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=n), np.zeros(n)
    e = noise * rng.normal(size=n)
    for k in range(2, n):
        y[k] = C + A[0] * y[k - 1] + A[1] * y[k - 2] + B[0] * u[k] + B[1] * u[k - 1] + e[k]
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, coords={"time": dt * np.arange(n)})


def naive_free_run(model, record, n_initial):
    """The equation, one number at a time."""
    narx, y = model.narx, [float(value) for value in record[model.narx.target].values[:n_initial]]
    for k in range(n_initial, record.sizes["time"]):
        value = model.intercept
        for (name, lag), theta in zip(narx.features, model.coefficients, strict=True):
            value += theta * (y[k - lag] if name == narx.target else float(record[name].values[k - lag]))
        y.append(value + (y[k - 1] if narx.predict is Target.change else 0.0))
    return np.array(y)


# --- least squares --------------------------------------------------------------------------------


def test_a_known_system_is_found_exactly():
    model = LinearArx.fit(NARX, known_system())
    np.testing.assert_allclose(model.coefficients, A + B, rtol=1e-10)
    assert model.intercept == pytest.approx(C, rel=1e-9)
    assert model.rank == 4
    assert 1 < model.condition < 100
    assert model.warnings == ()


def test_a_change_is_the_value_less_the_earlier_output():
    record = known_system(noise=0.1)
    change = LinearArx.fit(Narx({"y": 2}, {"u": [0, 1]}), record)
    value = LinearArx.fit(NARX, record)
    np.testing.assert_allclose(change.coefficients + np.array([1.0, 0, 0, 0]), value.coefficients, rtol=1e-10)
    assert change.intercept == pytest.approx(value.intercept, rel=1e-9)


def test_noise_leaves_estimates_within_their_standard_errors():
    """Asymptotic covariance noise^2 (X'X)^-1 of the estimates, Ljung equation 9.31."""
    deviations = []
    for seed in range(20):
        record = known_system(2000, noise=0.2, seed=seed)
        model = LinearArx.fit(NARX, record)
        rows = NARX.dataset(record)
        x = np.column_stack([rows.regressor.values, np.ones(rows.sizes["sample"])])
        errors = np.sqrt(0.2**2 * np.diag(np.linalg.inv(x.T @ x)))
        deviations.append((np.append(model.coefficients, model.intercept) - [*A, *B, C]) / errors)
    assert 0.8 < np.std(deviations) < 1.2
    assert np.abs(deviations).max() < 4.5


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1e-3, 10.0])
def test_the_minimum_is_that_of_the_normal_equations(intercept, ridge):
    record = known_system(300, noise=0.1)
    record["u"] = 1e4 * (record["u"] + 3)  # units must not matter to the penalty
    rows = NARX.dataset(record)
    x, t = rows.regressor.values, rows.target.values
    n, p = x.shape
    scale = x.std(axis=0) if intercept else np.sqrt((x**2).mean(axis=0))
    columns = np.column_stack([x / scale, np.ones(n)]) if intercept else x / scale
    penalty = np.diag([n * ridge] * p + [0.0] * intercept)
    solution = np.linalg.solve(columns.T @ columns + penalty, columns.T @ t)
    model = LinearArx.fit(NARX, record, ridge=ridge, intercept=intercept)
    np.testing.assert_allclose(model.coefficients, solution[:p] / scale, rtol=1e-7)
    assert model.intercept == pytest.approx(solution[p] if intercept else 0.0, rel=1e-7, abs=1e-12)


def test_several_records_are_fitted_as_one_without_rows_across_them():
    parts = [known_system(60, noise=0.3, seed=seed) for seed in (1, 2)]
    x = np.vstack([NARX.dataset(part).regressor.values for part in parts])
    t = np.concatenate([NARX.dataset(part).target.values for part in parts])
    solution = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), t)[0]
    model = LinearArx.fit(NARX, parts)
    np.testing.assert_allclose(np.append(model.coefficients, model.intercept), solution, rtol=1e-10)


def test_what_is_not_excited_gets_no_weight_and_is_reported():
    record = known_system(200, noise=0.1)
    record["copy"] = 2 * record["u"]
    record["idle"] = record["u"] * 1e-9 + 1e6 / 3  # constant but for rounding
    narx = Narx({"y": 2}, {"u": [0], "copy": [0], "idle": [0]}, predict="value")
    model, lean = LinearArx.fit(narx, record), LinearArx.fit(Narx({"y": 2}, {"u": [0]}, predict="value"), record)
    assert (model.rank, model.condition) == (3, math.inf)
    assert model.warnings == ("the regressors have rank 3 of 5: coefficients of minimum norm",)
    u, copy, idle = model.coefficients[2:]
    assert idle == 0.0
    assert u == pytest.approx(2 * copy)  # equal shares of two standardised features that are the same
    assert u + 2 * copy == pytest.approx(lean.coefficients[2])
    assert model.intercept == pytest.approx(lean.intercept)
    rows = narx.dataset(record)
    scaled = (rows.regressor.values - rows.regressor.values.mean(axis=0)) / rows.regressor.values.std(axis=0)
    scaled[:, 4] = 0.0
    minimal = np.linalg.pinv(scaled) @ (rows.target.values - rows.target.values.mean())
    np.testing.assert_allclose(model.coefficients * rows.regressor.values.std(axis=0), minimal, atol=1e-10)


def test_more_features_than_rows_have_the_rank_of_the_rows():
    model = LinearArx.fit(Narx({"y": 5}, predict="value"), known_system(8, noise=1.0), intercept=False)
    assert (model.rank, model.condition) == (3, math.inf)
    assert np.isfinite(model.coefficients).all()


def test_the_condition_number_is_that_of_the_standardised_regressors():
    record = known_system(300, noise=0.1)
    x = NARX.dataset(record).regressor.values
    expected = np.linalg.cond((x - x.mean(axis=0)) / x.std(axis=0))
    assert LinearArx.fit(NARX, record).condition == pytest.approx(expected)


def test_nothing_that_varies_is_rank_zero():
    still = known_system(20) * 0 + 4.0
    model = LinearArx.fit(NARX, still)
    assert (model.rank, model.condition) == (0, math.inf)
    np.testing.assert_array_equal(model.free_run(still), 4.0)


@pytest.mark.parametrize("ridge", [-1.0, math.inf, math.nan])
def test_a_wrong_ridge_is_named(ridge):
    with pytest.raises(ValueError, match=r"linear_fit\(ridge=.*expected a finite number >= 0"):
        LinearArx.fit(NARX, known_system(), ridge=ridge)


# --- one step and free run ------------------------------------------------------------------------


@pytest.mark.parametrize("predict", list(Target))
def test_one_step_is_the_equation(predict):
    narx = Narx({"y": 2}, {"u": [0, 1]}, predict=predict)
    record = known_system(50, noise=0.3)
    model, rows = LinearArx.fit(narx, record), narx.dataset(record)
    expected = [
        model.intercept + sum(theta * value for theta, value in zip(model.coefficients, row, strict=True))
        for row in rows.regressor.values
    ]
    np.testing.assert_allclose(model.one_step(rows), expected, rtol=1e-12)


@pytest.mark.parametrize("predict", list(Target))
@pytest.mark.parametrize("n_initial", [None, 2, 3, 17, 599])
def test_free_run_is_the_equation(predict, n_initial):
    narx = Narx({"y": 2}, {"u": [0, 3]}, predict=predict)
    record = known_system(600, noise=0.3)
    model = LinearArx.fit(narx, record)
    first = 3 if n_initial is None else n_initial
    if first < narx.max_lag:
        with pytest.raises(ValueError, match="needs n_initial from 3 to 599, got 2"):
            model.free_run(record, n_initial=n_initial)
        return
    simulated = model.free_run(record, n_initial=n_initial)
    np.testing.assert_allclose(simulated, naive_free_run(model, record, first), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(simulated[:first], record.y.values[:first])


def test_free_run_of_the_true_system_is_the_truth():
    train, test = known_system(seed=1), known_system(1000, seed=2)
    model = LinearArx.fit(NARX, train)
    np.testing.assert_allclose(model.free_run(test), test.y, atol=1e-8)


def test_free_run_sees_no_later_output_and_changes_no_data():
    record = known_system(100, noise=0.3)
    model = LinearArx.fit(NARX, record)
    blind = record.copy(deep=True)
    blind["y"][2:] = np.nan
    before = blind.copy(deep=True)
    np.testing.assert_array_equal(model.free_run(blind), model.free_run(record))
    xr.testing.assert_identical(blind, before)


def test_free_run_takes_other_outputs_as_measured():
    record = known_system(100, noise=0.3)
    record["v"] = ("time", np.random.default_rng(5).normal(size=100))
    model = LinearArx.fit(Narx({"v": 1, "y": 2}, {"u": 1}, target="y"), record)
    simulated = model.free_run(record)
    np.testing.assert_allclose(simulated, naive_free_run(model, record, 2), rtol=1e-9)
    assert simulated.flags.c_contiguous


def test_a_table_in_free_run_is_its_one_step_prediction():
    narx = Narx({"y": []}, {"u": [0]}, predict="value")
    record = known_system(30, noise=0.3)
    for model in (LinearArx.fit(narx, record), Mean.fit(narx, record)):
        np.testing.assert_allclose(model.free_run(record), model.one_step(narx.dataset(record)), rtol=1e-14)


def test_an_unstable_simulation_is_nan_from_its_overflow_on():
    narx = Narx({"y": 1}, predict="value")
    model = LinearArx(narx, np.array([-1e30]), 0.0, 1, 1.0)
    simulated = model.free_run({"y": np.ones(20)})
    np.testing.assert_array_equal(np.sign(simulated[:11]), [1, -1] * 5 + [1])
    assert abs(simulated[10]) == pytest.approx(1e300)
    assert np.isnan(simulated[11:]).all()


# --- mean and persistence -------------------------------------------------------------------------


@pytest.mark.parametrize("predict", list(Target))
def test_mean_and_persistence_by_hand(predict):
    narx = Narx({"y": 1}, predict=predict)
    record = xr.Dataset({"y": ("time", [1.0, 2.0, 4.0, 9.0])}, coords={"time": np.arange(4.0)})
    rows, mean, persistence = narx.dataset(record), Mean.fit(narx, record), Persistence(narx)
    assert mean.value == 5.0
    is_change = predict is Target.change
    assert mean.one_step(rows).tolist() == ([4.0, 3.0, 1.0] if is_change else [5.0] * 3)
    assert persistence.one_step(rows).tolist() == ([0.0] * 3 if is_change else [1.0, 2.0, 4.0])
    assert mean.free_run(record).tolist() == [1.0, 5.0, 5.0, 5.0]
    assert persistence.free_run(record).tolist() == [1.0] * 4
    assert persistence.free_run(record, n_initial=3).tolist() == [1.0, 2.0, 4.0, 4.0]


def test_persistence_needs_an_earlier_output():
    with pytest.raises(ValueError, match=r"Persistence needs an output before the first.*\['u\[k\]'\] are 0"):
        Persistence(Narx({"y": []}, {"u": [0]}, predict="value"))


def test_a_mean_must_be_a_number():
    with pytest.raises(ValueError, match=r"Mean\(value=nan\): expected a finite number"):
        Mean(NARX, math.nan)


# --- errors of the role ---------------------------------------------------------------------------


def test_other_features_are_refused():
    record = known_system()
    with pytest.raises(ValueError, match=r"Mean expects the features \['y\[k-1\]', .*got \['y\[k-1\]'\]"):
        Mean.fit(NARX, record).one_step(Narx({"y": 1}).dataset(record))


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"u": np.r_[np.zeros(9), np.nan]}, {}, "'u' of record 0 is nan at sample 9.*clean the record"),
        ({"y": np.r_[0.0, np.inf, np.zeros(8)]}, {}, "needs every input and all initial outputs: signal 'y'"),
        ({"y": np.r_[np.zeros(4), np.nan, np.zeros(5)]}, {"n_initial": 5}, "'y' of record 0 is nan at sample 4"),
        ({"y": np.zeros(2), "u": np.zeros(2)}, {}, "free run of 2 samples with lags up to 2 needs n_initial"),
        ({}, {"n_initial": 10}, "needs n_initial from 2 to 9, got 10"),
        ({"u": np.zeros(3)}, {}, "need one length"),
    ],
)
def test_wrong_records_of_a_free_run_are_named(changed, options, message):
    with pytest.raises(ValueError, match=message):
        Persistence(NARX).free_run({"y": np.zeros(10), "u": np.zeros(10)} | changed, **options)


def test_the_role_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Baseline()
