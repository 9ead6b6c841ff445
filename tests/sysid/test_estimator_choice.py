"""The estimator of a record, chosen together with its lags by held-out error."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr

from sysid import (
    AutomaticMean,
    ConstantMean,
    Linear,
    LinearMean,
    Matern52,
    MaximumAPosteriori,
    Narx,
    OnMissing,
    Settings,
    SquaredExponential,
    choose_lags,
    identify,
    lag_choice,
)
from sysid.held_out import (
    N_FOLDS,
    FoldErrors,
    held_out_error,
    held_out_errors,
    held_out_residuals,
    largest_counted_error,
)

NARX = Narx({"y": 1}, {"u": 1}, "y")
#: quick settings that leave the estimator open; a training on 100 samples tells these records apart
SETTINGS = Settings(budget=30, training=replace(Settings().training, record_samples=100))


def make_record(response, n=400, noise=0.1, seed=0):
    """Return a record of ``y[k] = 0.7 y[k-1] + response(u[k-1]) + e[k]``."""
    random = np.random.default_rng(seed)
    u = random.uniform(-2, 2, n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + response(u[k - 1]) + noise * random.normal()
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(float(n))})


LINE = make_record(lambda u: 0.5 * u)
CURVE = make_record(lambda u: np.sin(2 * u), noise=0.02)


def chosen_row(choice):
    (row,) = [row for row in choice.tried if "chosen" in row]
    return row


def least_squares_error(rows):
    """Return the RMSE of least squares on the folds that `held_out_error` holds out."""
    x = np.column_stack([rows["regressor"].values, np.ones(rows.sizes["sample"])])
    y = rows["target"].values
    ends = np.linspace(0, len(y), N_FOLDS + 1).astype(int)
    errors = []
    for begin, end in pairwise(ends):
        held_out = np.arange(begin, end)
        learned = np.setdiff1d(np.arange(len(y)), held_out)
        coefficients = np.linalg.lstsq(x[learned], y[learned], rcond=None)[0]
        errors.append(x[held_out] @ coefficients - y[held_out])
    return np.sqrt(np.mean(np.concatenate(errors) ** 2))


# --- held-out errors ------------------------------------------------------------------------------


def test_a_linear_model_has_the_held_out_error_of_least_squares():
    training = MaximumAPosteriori(kernel=Linear())
    error = held_out_error(NARX, [LINE], replace(SETTINGS, training=training))
    assert error.rmse == pytest.approx(least_squares_error(NARX.dataset(LINE)), rel=1e-3)


def test_no_further_fold_is_held_out_once_the_error_must_exceed_the_limit():
    error = held_out_error(NARX, [LINE], SETTINGS, limit=0.01)
    assert error.n_folds == 1
    complete = held_out_error(NARX, [LINE], SETTINGS, limit=0.2)
    assert complete.n_folds == N_FOLDS
    assert complete == held_out_error(NARX, [LINE], SETTINGS)


@pytest.mark.parametrize("linear_part", ["none", "stable_spline"])
def test_models_that_differ_in_the_variance_of_their_kernel_have_the_errors_of_each(linear_part):
    settings = replace(SETTINGS, linear_part=linear_part)
    narx = settings.with_linear_lags(NARX)
    together = held_out_errors(narx, [CURVE], settings, [1.0, 1 / 16])
    alone = []
    for factor in (1.0, 1 / 16):
        training = replace(settings.training, record_variance_factor=factor)
        alone.append(held_out_error(narx, [CURVE], replace(settings, training=training)))
    assert together == alone
    assert together[0].rmse != together[1].rmse


def test_larger_errors_count_as_the_largest_that_counts():
    residuals = held_out_residuals(NARX, [LINE], SETTINGS)
    cut = [min(max(residual, -0.1), 0.1) for residual in residuals]
    error = held_out_error(NARX, [LINE], SETTINGS, largest=0.1)
    assert error.rmse == pytest.approx(np.sqrt(np.mean(np.square(cut))))
    assert error.largest == 0.1
    assert error.rmse < 0.9 * held_out_error(NARX, [LINE], SETTINGS).rmse


def test_errors_are_cut_at_four_standard_deviations_where_gross_errors_were_found():
    assert largest_counted_error(NARX, [LINE], SETTINGS) == np.inf
    none_found = LINE.assign_attrs(gross_errors="{}")
    assert largest_counted_error(NARX, [none_found], SETTINGS) == np.inf
    some_found = LINE.assign_attrs(gross_errors='{"u": 1}')
    largest = largest_counted_error(NARX, [none_found, some_found], SETTINGS)
    std_of_noise = 0.1
    assert largest == pytest.approx(4 * std_of_noise, rel=0.1)


def test_a_model_that_exceeds_the_limit_leaves_the_others_in_the_race():
    errors = held_out_errors(NARX, [CURVE], SETTINGS, [1.0, 1e-9])
    limit = 2 * errors[0].rmse
    assert errors[1].rmse > limit
    in_race, given_up = held_out_errors(NARX, [CURVE], SETTINGS, [1.0, 1e-9], limit)
    assert in_race == errors[0]
    assert given_up.n_folds < N_FOLDS


# --- the choice -----------------------------------------------------------------------------------


def test_a_model_that_is_too_nonlinear_gets_less_variance(monkeypatch):
    """The errors are made up: a sixteenth of the variance has the smallest one."""

    def make_up_errors(narx, records, settings, factors, limit=np.inf, **_):
        errors = []
        for factor in factors:
            total = factor * settings.training.record_variance_factor
            errors.append(FoldErrors(0.001 * (1 + abs(np.log(total) - np.log(1 / 16))), N_FOLDS))
        return errors

    monkeypatch.setattr(lag_choice, "held_out_errors", make_up_errors)
    choice = choose_lags(CURVE, "y", ["u"], settings=SETTINGS, max_order=1)
    assert choice.settings.training.record_variance_factor == 1 / 16
    assert "model 0.001 (variance / 16)" in str(choice)


def test_a_line_is_identified_as_a_line():
    found = identify(LINE, settings=SETTINGS, inputs=["u"], outputs=["y"])
    row = chosen_row(found.lag_choices["y"])
    assert row["estimator"] == "linear"
    assert isinstance(found.model.gp.kernel, Linear)
    assert "chosen: linear" in str(found.lag_choices["y"])
    inputs = found.model.narx.dataset(LINE)["regressor"].values
    truth = -0.3 * inputs[:, 0] + 0.5 * inputs[:, found.model.narx.feature_names.index("u[k-1]")]
    assert np.sqrt(np.mean((found.model.predict(inputs).mean - truth) ** 2)) < 0.03


def test_a_curve_is_identified_as_a_curve():
    found = identify(CURVE, settings=SETTINGS, inputs=["u"], outputs=["y"])
    row = chosen_row(found.lag_choices["y"])
    assert row["estimator"] not in ("linear", "linear_with_long_memory")
    assert isinstance(found.model.gp.kernel, SquaredExponential)
    assert 3 * row["model"] < row["linear"]
    errors = {"model", "long_length_scales", "constant_mean"}
    assert errors <= row.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_lag_that_no_linear_model_sees_is_found_where_the_record_is_nonlinear(seed):
    """The square of u[k-4] is uncorrelated with u[k-4]."""
    random = np.random.default_rng(seed)
    u = random.uniform(-1, 1, 400)
    y = np.zeros(400)
    for k in range(4, 400):
        y[k] = 0.5 * y[k - 1] + np.sin(2 * u[k - 1]) + 0.5 * u[k - 4] ** 2
        y[k] += 0.02 * random.normal()
    record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(400.0)})
    choice = choose_lags(record, "y", ["u"], settings=SETTINGS)
    assert 4 in choice.narx.lags["u"]
    row = chosen_row(choice)
    assert row[row["estimator"]] < 0.03
    assert row["linear"] > 0.2


@pytest.mark.parametrize("effect", [np.square, pytest.param(np.abs, marks=pytest.mark.slow)])
def test_the_lag_of_an_even_effect_is_found_by_linear_models_with_squares(effect):
    """No linear model is better than chance; one lag too early hides the effect from all models."""
    random = np.random.default_rng(0)
    u = random.uniform(-2, 2, 400)
    y = np.zeros(400)
    for k in range(9, 400):
        y[k] = 0.8 * y[k - 1] + effect(u[k - 9]) + 0.02 * random.normal()
    record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(400.0)})
    choice = choose_lags(record, "y", ["u"], settings=SETTINGS)
    assert 9 in choice.narx.lags["u"]
    row = chosen_row(choice)
    assert 10 * row[row["estimator"]] < row["linear"]


def test_squares_rank_as_least_squares_with_these_features():
    candidates = lag_choice._linear_candidates(
        [CURVE], "y", {"u": 0}, max_order=2, on_missing=OnMissing.error
    )
    ranked, smallest = candidates.rank_with_squares(candidates.ranked())
    errors = []
    for row in ranked:
        lags = range(row["nk"], row["nk"] + row["nb"])
        rows = Narx({"y": row["na"]}, {"u": lags}, "y", predict="value").dataset(CURVE)
        longest = Narx({"y": 2}, {"u": range(3)}, "y").max_lag  # all candidates share their rows
        rows = rows.isel(sample=slice(longest - int(rows["time"][0]), None))
        x = rows["regressor"].values
        with_squares = np.hstack([x, x**2])
        rows = rows.assign(regressor=(("sample", "feature_or_square"), with_squares))
        errors.append(least_squares_error(rows))
    assert errors == sorted(errors)
    assert smallest == pytest.approx(errors[0])


def test_further_lags_are_not_scored_where_the_record_is_linear():
    choice = choose_lags(LINE, "y", ["u"], settings=SETTINGS)
    best_by_limit = {}
    for limit in (2, 4, 6, 10):
        within = [row for row in choice.tried if max(row["na"], row["nb"]) <= limit]
        best = min(within, key=lambda row: row["linear"])
        best_by_limit[id(best)] = best
    scored = [row for row in choice.tried if "model" in row]
    assert {id(row) for row in scored} == best_by_limit.keys()


def test_noise_in_the_measurement_asks_for_a_long_memory():
    """A slow plant whose output has noise: the best predictor is a sum over many lags."""
    random = np.random.default_rng(3)
    n = 600
    u = random.normal(size=n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.95 * y[k - 1] + u[k - 1]
    record = xr.Dataset(
        {"y": ("time", y + 0.5 * random.normal(size=n)), "u": ("time", u)},
        {"time": np.arange(float(n))},
    )
    choice = choose_lags(record, "y", ["u"], settings=SETTINGS, max_order=1)
    assert chosen_row(choice)["estimator"] == "linear_with_long_memory"
    assert choice.narx.linear
    assert isinstance(choice.settings.training.kernel, Linear)


@pytest.mark.parametrize(
    "named",
    [
        {"linear_part": "none"},
        {"mean": ConstantMean()},
        {"mean": LinearMean()},
        {"training": MaximumAPosteriori(kernel=Matern52())},
        {"training": MaximumAPosteriori(record_variance_factor=0.5)},
        {"learning": "stored", "linear_part": "none"},
    ],
    ids=["no linear part", "constant mean", "linear mean", "kernel", "variance", "stored"],
)
def test_what_the_settings_name_is_not_replaced(named):
    settings = replace(SETTINGS, **named)
    choice = choose_lags(LINE, "y", ["u"], settings=settings, max_order=1)
    assert choice.settings == settings
    assert "estimator" not in chosen_row(choice)


def test_nothing_competes_with_a_demanded_linear_part(monkeypatch):
    """The errors are made up: those with a linear part are larger than all others."""
    scored = []

    def make_up_errors(narx, records, settings, factors, limit=np.inf, **_):
        scored.append(narx)
        rmse = (5.0 if narx.linear else 1.0) + abs(len(narx.lags["y"]) - 2)
        return [FoldErrors(rmse, 1 if rmse > limit else N_FOLDS) for _ in factors]

    monkeypatch.setattr(lag_choice, "held_out_errors", make_up_errors)
    settings = replace(SETTINGS, linear_part="stable_spline")
    choice = choose_lags(CURVE, "y", ["u"], settings=settings, max_order=3)
    assert len(scored) > 1
    assert all(narx.linear for narx in scored)
    errors = [row["with_linear_part"] for row in choice.tried if "with_linear_part" in row]
    assert chosen_row(choice)["with_linear_part"] == min(errors)
    assert choice.narx.linear


def test_a_candidate_that_was_given_up_is_not_chosen():
    """The model extrapolates: on the first two folds its error is already too large."""
    random = np.random.default_rng(0)
    n = 200
    u = np.linspace(-4, 4, n) + 0.1 * random.normal(size=n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.5 * y[k - 1] + u[k - 1] + 0.05 * random.normal()
    record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(float(n))})
    settings = replace(SETTINGS, training=MaximumAPosteriori(), mean=AutomaticMean())
    row = chosen_row(choose_lags(record, "y", ["u"], settings=settings, max_order=1))
    assert row["estimator"] == "linear"
    row |= {"with_linear_part": 0.01 * row["linear"], "with_linear_part_parts": 2}
    assert lag_choice._complete_error(row, "with_linear_part") == np.inf
