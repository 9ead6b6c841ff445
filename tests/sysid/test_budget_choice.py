"""The number of points of a model of records, which grows while the held-out error falls."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sysid import (
    FreeRun,
    Identification,
    Linear,
    MaximumAPosteriori,
    Narx,
    Settings,
    budget_choice,
    choose_budget,
    choose_lags,
    identify,
    lag_choice,
)
from sysid.held_out import N_FOLDS, FoldErrors

NARX = Narx({"y": 1}, {"u": 1}, "y")
NAMED = MaximumAPosteriori(n_initial=50, record_samples=50, restarts=1, max_iterations=5)


def make_record(n, seed=0):
    """Return a record of n samples of a plant with a curved input."""
    random = np.random.default_rng(seed)
    u = random.uniform(-2, 2, n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + np.sin(2 * u[k - 1]) + 0.02 * random.normal()
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(float(n))})


RECORD = make_record(700)


@pytest.fixture
def make_up_errors(monkeypatch):
    """Return a function that sets the held-out errors by budget; it returns the budgets tried."""

    def make_up(errors):
        tried = []

        def held_out_error(narx, records, settings, limit=np.inf, **_):
            tried.append(settings.max_points)
            rmse = errors[settings.max_points]
            return FoldErrors(rmse, 3 if rmse > limit else N_FOLDS)

        monkeypatch.setattr(budget_choice, "held_out_error", held_out_error)
        return tried

    return make_up


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "budget", "tried"),
    [
        ({100: 1.0, 200: 1.2}, 100, [100, 200]),
        ({100: 1.0, 200: 0.985}, 100, [100, 200]),
        ({100: 1.0, 200: 0.97, 400: 0.96}, 200, [100, 200, 400]),
        ({100: 1.0, 200: 0.5, 400: 0.4}, 400, [100, 200, 400]),
    ],
    ids=["worse", "hardly better", "better once", "better twice"],
)
def test_the_budget_grows_while_the_error_falls_by_more_than_two_percent(
    make_up_errors, errors, budget, tried
):
    budgets = make_up_errors(errors)
    choice = choose_budget(RECORD, NARX, Settings(training=NAMED))
    assert budgets == tried
    assert choice.settings == Settings(training=NAMED, budget=budget)
    assert {tried: error.rmse for tried, error in choice.errors.items()} == errors


def test_a_known_error_is_not_measured_again(make_up_errors):
    budgets = make_up_errors({200: 2.0})
    choose_budget(RECORD, NARX, Settings(training=NAMED), error=FoldErrors(1.0, N_FOLDS))
    assert budgets == [200]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(budget=100),
        Settings(budget=7),
        Settings(training=replace(NAMED, kernel=Linear())),
        Settings(training=FreeRun()),
    ],
    ids=["100", "a number", "linear", "free run"],
)
def test_there_is_nothing_to_choose(make_up_errors, settings):
    budgets = make_up_errors({})
    assert choose_budget(RECORD, NARX, settings) is None
    assert budgets == []


@pytest.mark.parametrize(("n", "tried"), [(120, []), (230, [100, 200]), (600, [100, 200, 400])])
def test_no_more_points_than_rows_are_tried(make_up_errors, n, tried):
    budgets = make_up_errors({100: 1.0, 200: 0.5, 400: 0.2})
    choose_budget(make_record(n), NARX, Settings(training=NAMED))
    assert budgets == tried


def test_the_choice_is_told_in_a_line(make_up_errors):
    make_up_errors({100: 1.0, 200: 0.9, 400: 0.95})
    choice = choose_budget(RECORD, NARX, Settings(training=NAMED))
    assert str(choice) == (
        "200 points; RMSE one step ahead on held-out parts, unit of y: "
        "100 points 1, 200 points 0.9, 400 points 0.95 (3 parts)"
    )


# --- where it is chosen ---------------------------------------------------------------------------


def test_more_points_are_taken_where_they_help():
    """Points alone are learned, and the function of two inputs changes fast."""
    random = np.random.default_rng(0)
    n = 900
    u = random.uniform(-1, 1, (n, 2))
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = np.sin(6 * u[k - 1, 0]) * np.cos(5 * u[k - 1, 1]) + 0.01 * random.normal()
    record = xr.Dataset(
        {"y": ("time", y), "u": ("time", u[:, 0]), "v": ("time", u[:, 1])},
        {"time": np.arange(float(n))},
    )
    narx = Narx({"y": []}, {"u": 1, "v": 1}, "y", predict="value")
    training = replace(NAMED, max_iterations=60, record_samples=200)
    found = identify(record, narx, training=training, learning="stored", identified=1)
    choice = found.budget_choices["y"]
    assert found.model.gp.budget == choice.settings.budget > 100
    assert choice.errors[200].rmse < 0.98 * choice.errors[100].rmse
    fixed = identify(record, narx, training=training, learning="stored", budget=100, identified=1)
    assert fixed.model.gp.budget == 100
    assert not fixed.budget_choices


def test_the_table_of_lags_shows_the_budgets(make_up_errors):
    make_up_errors({200: 0.001, 400: 0.002})
    choice = choose_lags(RECORD, "y", ["u"], settings=Settings(training=NAMED), max_order=1)
    (row,) = [row for row in choice.tried if "chosen" in row]
    assert row["budget"] == choice.settings.budget == 200
    assert row[lag_choice.LARGER[200]] == 0.001
    assert "with 200 points 0.001, with 400 points 0.002 (3 parts), chosen" in str(choice)
    assert str(choice).splitlines()[-1].endswith("200 points")


def test_a_stream_has_100_points():
    identification = Identification(NARX, Settings(training=NAMED))
    rows = NARX.dataset(RECORD)
    identification.observe_many(rows["regressor"].values, rows["target"].values)
    assert identification.model.gp.budget == 100


@pytest.mark.parametrize("budget", [1, 2.5, True, "many", None])
def test_another_budget_is_refused(budget):
    with pytest.raises(ValueError, match="budget"):
        Settings(budget=budget)
