"""Masked values are missing: they are refused, or nan where a missing value is allowed."""

import numpy as np
import pytest

import simulators
from sysid import (
    AffineMap,
    Identification,
    LagWindow,
    MaximumAPosteriori,
    Narx,
    OnlineGP,
    Settings,
    SquaredExponential,
    fit_percent,
    identify,
    make_record,
    residual_tests,
    validate,
)
from sysid.estimators import NarxGPRegressor, OnlineGPRegressor

FILL = -999.0  # what instruments write where a value is missing
N = 300


def masked(values, rows=(50, 120)):
    """Return values with masked entries, under which the fill value stands."""
    filled = np.array(values, dtype=float)
    filled[list(rows)] = FILL
    return np.ma.masked_values(filled, FILL)


RNG = np.random.default_rng(0)
U = RNG.normal(size=N)
Y = np.convolve(np.tanh(U), [0.0, 1.0, 0.5])[:N]
X = np.column_stack([U, Y])


def online_gp():
    """Return a GP of two features."""
    return OnlineGP(SquaredExponential(1.0, [1.0, 1.0]), noise_variance=0.01, budget=5)


def model():
    """Return a model of one lag of each signal."""
    narx = Narx({"y": 1}, {"u": 1})
    settings = Settings(budget=10, training=MaximumAPosteriori(n_initial=20), linear_part="none")
    found = Identification(narx, settings)
    rows = narx.regressors({"y": Y, "u": U})
    found.observe_many(rows.regressor[:40], rows.target[:40])
    return found


NARX = Narx({"y": 1}, {"u": 1})
SHORT = {"budget": 10, "training": MaximumAPosteriori(n_initial=20)}

REFUSING = {
    "update": lambda: online_gp().update(np.ma.masked_array([7.0, 1.0], [True, False]), 0.0),
    "update target": lambda: online_gp().update([7.0, 1.0], np.ma.masked),
    "update masked 0-d target": lambda: online_gp().update([7.0, 1.0], np.ma.array(5.0, mask=True)),
    "update list": lambda: online_gp().update([7.0, np.ma.masked], 0.0),
    "update_many": lambda: online_gp().update_many(X, masked(Y)),
    "update_many list of rows": lambda: online_gp().update_many([masked([1.0, 2.0], [0])], [0.0]),
    "fit": lambda: online_gp().fit(np.ma.masked_array(X, X[3, 0] == X), Y),
    "absorb": lambda: online_gp().absorb(np.ma.masked_array(X, X[3, 0] == X), Y),
    "predict": lambda: online_gp().predict(np.ma.masked_array(X, X[3, 0] == X)),
    "model update": lambda: model().model.update(masked([1.0, 2.0], [1]), 0.0),
    "model predict": lambda: model().model.predict([masked([1.0, 2.0], [1])]),
    "observe": lambda: model().observe(masked([1.0, 2.0], [1]), 0.0),
    "follows": lambda: model().observe([1.0, 2.0], 0.0, follows=np.ma.masked),
    "identify": lambda: identify((U, masked(Y)), NARX, dt=1.0, budget=10),
    "identify inputs": lambda: identify((masked(U), Y), NARX, dt=1.0, budget=10),
    "identify mapping": lambda: identify({"u": U, "y": masked(Y)}, NARX, dt=1.0, budget=10),
    "identify list": lambda: identify({"u": U, "y": list(masked(Y))}, NARX, dt=1.0, budget=10),
    "OnlineGPRegressor fit": lambda: OnlineGPRegressor(**SHORT).fit(X, masked(Y)),
    "OnlineGPRegressor partial_fit": lambda: OnlineGPRegressor().partial_fit([masked(Y)], [1.0]),
    "OnlineGPRegressor predict": lambda: (
        OnlineGPRegressor(**SHORT).fit(X, Y).predict([masked([1.0, 2.0], [0])])
    ),
    "OnlineGPRegressor learn_one": lambda: OnlineGPRegressor().learn_one({"u": np.ma.masked}, 1.0),
    "NarxGPRegressor": lambda: NarxGPRegressor(**SHORT).fit(U[:, None], masked(Y)),
    "NarxGPRegressor inputs": lambda: NarxGPRegressor(**SHORT).fit(masked(U)[:, None], Y),
    "NarxGPRegressor lists": lambda: NarxGPRegressor(**SHORT).fit([U[:, None]], [masked(Y)]),
    "AffineMap": lambda: AffineMap.fit(masked(Y)[:, None]),
    "transform": lambda: AffineMap.fit(X).transform(masked([1.0, 2.0], [1])),
    "residual_tests": lambda: residual_tests(masked(Y)),
    "validate": lambda: validate(masked(Y), Y),
    "fit_percent": lambda: fit_percent(masked(Y), Y),
    "fit_percent of columns": lambda: fit_percent(X, [masked(row, [0]) for row in X]),
}


@pytest.mark.parametrize("case", REFUSING)
@pytest.mark.filterwarnings("ignore:Warning. converting a masked")
def test_masked_values_are_refused(case):
    with pytest.raises((ValueError, TypeError), match=r"mask|missing|not finite|NaN"):
        REFUSING[case]()


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_a_record_has_nan_where_a_value_is_masked(kind):
    values = np.ma.masked_values(np.array([1, FILL, 3], dtype=kind), FILL)
    record = make_record({"y": values}, name="r", sampling_time=1.0)
    np.testing.assert_array_equal(record["y"].values, [1.0, np.nan, 3.0])


def test_identify_leaves_masked_samples_out_if_it_may():
    with pytest.warns(UserWarning, match="2 of 300 samples of y are missing"):
        found = identify(
            (U, masked(Y, [70, 150])),
            NARX,
            dt=1.0,
            on_missing="skip",
            identified=1,
            linear_part="none",
            **SHORT,
        )
    (record,) = found.recordings.estimation
    assert np.flatnonzero(np.isnan(record["y"].values)).tolist() == [70, 150]
    assert np.nanmin(record["y"].values) > FILL


def test_a_window_takes_a_masked_value_as_missing():
    window = LagWindow(Narx({"y": 1}, {"u": 1}, on_missing="skip"))
    window.observe(np.ma.masked_values([FILL], FILL), np.array([1.0]))
    assert window.observe(np.array([1.0]), np.array([1.0])) is None
    assert (window.n_missing, window.n_skipped) == (1, 1)
    strict = LagWindow(Narx({"y": 1}, {"u": 1}))
    with pytest.raises(ValueError, match="'y' is nan"):
        strict.observe(np.ma.masked_values([FILL], FILL), np.array([1.0]))


def test_a_mask_without_masked_values_changes_nothing():
    plain = online_gp().update_many(X, Y)
    unmasked = online_gp().update_many(np.ma.masked_array(X), list(np.ma.masked_array(Y)))
    assert repr(plain.tolist()) == repr(unmasked.tolist())


@pytest.mark.parametrize("as_list", [False, True])
def test_simulated_systems_refuse_masked_inputs(as_list):
    values = masked(U)[:, None]
    with pytest.raises(ValueError, match="masked"):
        simulators.simulate(simulators.VanDerPol(), list(values) if as_list else values, dt=0.1)


def test_a_mask_is_seen_at_any_depth():
    values = [[masked([1.0, 2.0], [0])], [np.array([1.0, 2.0])]]
    with pytest.raises(ValueError, match=r"y\[0\]\[0\]: 1 of 2 values are masked"):
        fit_percent(values, Y)
