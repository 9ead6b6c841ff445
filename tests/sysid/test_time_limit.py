"""A limit of the wall time of a search, which keeps the best so far. The clock is a made-up one."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from free_runs import QUICK_SEARCH, first_order_record, samples_of
from sysid import (
    Adaptive,
    FreeRun,
    Identification,
    Linear,
    Matern52,
    MaximumAPosteriori,
    MaximumLikelihood,
    Narx,
    Settings,
    SquaredExponential,
    budget_choice,
    choose_linear_part,
    held_out,
    identify,
    lag_choice,
    progress,
    time_limit,
)
from sysid.held_out import N_FOLDS, FoldErrors, held_out_error
from sysid.progress import Steps, on_progress
from sysid.time_limit import (
    TimeIsUp,
    TimeLimit,
    check_time,
    limit_of,
    out_of_time,
    share_of_time,
    unlimited,
)

NARX = Narx({"y": 1}, {"u": 1}, "y")
QUICK = MaximumAPosteriori(n_initial=40, record_samples=40, restarts=1, max_iterations=5)


def make_record(n=300):
    """Return a record of a plant with a curved input."""
    random = np.random.default_rng(0)
    u = random.uniform(-2, 2, n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + np.sin(2 * u[k - 1]) + 0.02 * random.normal()
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(float(n))})


RECORD = make_record()


class Clock:
    """Clock that a test moves on; `tick` is what each look at it takes [s]."""

    def __init__(self):
        self.now = 100.0
        self.tick = 0.0

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Take the time of all searches from a made-up clock, in one process."""
    made_up = Clock()
    monkeypatch.setattr(time_limit, "read_clock", made_up)
    monkeypatch.setattr(progress, "read_clock", made_up)
    monkeypatch.setenv("PYTHON_CPU_COUNT", "1")
    return made_up


# --- the limit ------------------------------------------------------------------------------------


def test_without_a_limit_there_is_always_time(clock):
    assert not out_of_time()
    limit = TimeLimit(None)
    with limit.running():
        clock.now += 1e9
        assert not out_of_time()
        check_time()
    assert not limit.was_reached


def test_only_the_time_within_the_blocks_counts(clock):
    limit = TimeLimit(10.0)
    with limit.running():
        clock.now += 6.0
    clock.now += 1000.0
    assert limit.spent == 6.0
    with limit.running():
        assert not out_of_time()
        clock.now += 5.0
        assert out_of_time()
        with pytest.raises(TimeIsUp):
            check_time()
    assert limit.was_reached


def test_a_time_that_nobody_asks_for_ends_nothing(clock):
    limit = TimeLimit(10.0)
    with limit.running():
        clock.now += 11.0
    assert not limit.was_reached
    assert limit.describe("seconds") == []


def test_a_share_leaves_time_for_what_follows(clock):
    limit = TimeLimit(10.0)
    with limit.running():
        clock.now += 6.0
        with share_of_time(0.5):
            assert out_of_time()
            with share_of_time(0.9):
                assert out_of_time()
        assert not out_of_time()


def test_an_inner_search_heeds_the_limit_of_the_outer_one(clock):
    limit = TimeLimit(10.0)
    with limit.running():
        assert limit_of(replace(QUICK, seconds=1000.0)) is limit
        clock.now += 11.0
        with unlimited():
            assert not out_of_time()
        assert out_of_time()
    assert limit_of(replace(QUICK, seconds=3.0)).seconds == 3.0


@pytest.mark.parametrize("training", [Adaptive, MaximumLikelihood, MaximumAPosteriori, FreeRun])
@pytest.mark.parametrize("seconds", [0, -1.0, np.inf, np.nan, "5", True])
def test_a_limit_that_is_no_positive_number_is_refused(training, seconds):
    with pytest.raises(ValueError, match=f"{training.__name__}: seconds must be a positive"):
        training(seconds=seconds)


# --- the progress ---------------------------------------------------------------------------------


def test_the_progress_tells_the_step_and_about_how_long_the_rest_takes(clock):
    told = []
    steps = Steps(4)
    with on_progress(told.append):
        for _ in range(3):
            with steps.step():
                clock.now += 60.0
        with TimeLimit(7.0).running(), steps.step():
            pass
    assert told == [
        "step 1 of 4",
        "step 2 of 4, about 3 min more",
        "step 3 of 4, about 2 min more",
        "step 4 of 4, about 7 s more",
    ]


def test_the_choice_of_lags_tells_its_progress(clock):
    told = []
    with on_progress(told.append):
        identify(RECORD, inputs=["u"], outputs=["y"], training=QUICK, identified=1, budget=20)
    assert told[0].startswith("step 1 of ")


# --- one step ahead -------------------------------------------------------------------------------


@pytest.fixture
def score_in(monkeypatch, clock):
    """Return a function that makes each held-out error take some seconds."""

    def score(seconds):
        scored = []

        def timed_error(narx, records, settings, limit=np.inf, **_):
            if out_of_time():
                return FoldErrors(np.nan, 0)
            clock.now += seconds
            scored.append(narx)
            return FoldErrors(0.01 * len(scored), N_FOLDS)

        def timed_errors(narx, records, settings, factors, limit=np.inf, **_):
            return [timed_error(narx, records, settings)] * len(factors)

        for module in (lag_choice, budget_choice):
            monkeypatch.setattr(module, "held_out_error", timed_error)
        monkeypatch.setattr(lag_choice, "held_out_errors", timed_errors)
        return scored

    return score


def test_no_further_fold_is_held_out_once_the_time_is_up(clock, monkeypatch):
    errors_of_fold = held_out._errors

    def timed(*arguments):
        clock.now += 1.0
        return errors_of_fold(*arguments)

    monkeypatch.setattr(held_out, "_errors", timed)
    settings = Settings(training=replace(QUICK, seconds=2.5), budget=20)
    limit = limit_of(settings.training)
    with limit.running():
        error = held_out_error(NARX, [RECORD], settings)
    assert error.n_folds == 3
    assert not error.is_complete
    assert limit.was_reached


def test_a_limit_that_is_too_short_for_anything_gives_the_linear_model(clock):
    clock.tick = 1.0
    training = Adaptive(n_initial=40, record_samples=40, seconds=0.5)
    found = identify(RECORD, inputs=["u"], outputs=["y"], training=training, identified=1)
    assert found.is_unfinished
    assert isinstance(found.model.gp.kernel, Linear)
    (row,) = [row for row in found.lag_choices["y"].tried if "chosen" in row]
    assert row["estimator"] == "linear"
    assert "the time of 0.5 s was up before all candidates were compared" in str(
        found.lag_choices["y"]
    )
    (note,) = found.notes
    assert note.startswith("seconds=0.5 ended the search before it was complete")
    assert f"Note: {note}" in repr(found)


def test_named_lags_get_the_linear_model_too(clock):
    clock.tick = 1.0
    found = identify(RECORD, NARX, training=replace(QUICK, seconds=0.5), identified=1)
    assert found.is_unfinished
    assert isinstance(found.model.gp.kernel, Linear)
    assert found.model.narx == NARX


def test_a_kernel_that_is_named_stays(clock):
    clock.tick = 1.0
    training = replace(QUICK, kernel=Matern52(), seconds=0.5)
    found = identify(RECORD, inputs=["u"], outputs=["y"], training=training, identified=1)
    assert found.is_unfinished
    assert isinstance(found.model.gp.kernel, Matern52)


def test_what_was_compared_in_time_decides(score_in):
    scored = score_in(4.0)
    training = Adaptive(n_initial=40, record_samples=40, max_iterations=5, seconds=10.0)
    found = identify(RECORD, inputs=["u"], outputs=["y"], training=training, identified=1)
    assert len(scored) == 2  # comparisons may use three quarters of the time
    assert found.is_unfinished
    (row,) = [row for row in found.lag_choices["y"].tried if "chosen" in row]
    assert row["estimator"] == "linear_with_long_memory"


def test_a_search_that_ends_in_time_is_not_marked(clock):
    settings = {"training": replace(QUICK, seconds=1e6), "budget": 20, "identified": 1}
    found = identify(RECORD, inputs=["u"], outputs=["y"], **settings)
    assert not found.is_unfinished
    assert found.notes == []
    settings["training"] = QUICK
    unlimited_model = identify(RECORD, inputs=["u"], outputs=["y"], **settings).model
    regressors = found.model.narx.dataset(RECORD)["regressor"].values
    np.testing.assert_array_equal(
        found.model.predict(regressors).mean, unlimited_model.predict(regressors).mean
    )


def test_the_linear_part_needs_both_errors(score_in):
    score_in(8.0)
    settings = Settings(training=replace(QUICK, seconds=10.0))
    assert choose_linear_part(RECORD, NARX, settings) == NARX


def test_the_budget_does_not_grow_without_time(score_in):
    scored = score_in(8.0)
    found = identify(RECORD, NARX, training=replace(QUICK, seconds=10.0), identified=1)
    assert len(scored) == 1
    assert found.model.gp.budget == 100


def test_the_search_for_hyper_parameters_keeps_the_best_so_far(clock):
    samples = NARX.dataset(RECORD)
    x = samples["regressor"].values[:60]
    y = samples["target"].values[:60]
    training = MaximumLikelihood(n_initial=60, seconds=3.0)
    complete = training.train(x, y, 0)
    limit = limit_of(training)
    clock.tick = 1.0
    with limit.running():
        found = training.train(x, y, 0)
    assert limit.was_reached
    assert isinstance(found.kernel, SquaredExponential)
    assert np.isfinite(found.log_likelihood)
    assert found.log_likelihood < complete.log_likelihood
    assert "1 of 1 optimisations did not converge" in found.warnings


def test_a_stream_is_limited_in_its_training_alone(clock):
    rows = NARX.dataset(RECORD)
    settings = Settings(training=replace(QUICK, n_initial=100, seconds=5.0), budget=20)
    identification = Identification(NARX, settings)
    x = rows["regressor"].values
    y = rows["target"].values
    for k in range(len(y)):
        clock.now += 10.0
        identification.observe(x[k], y[k])
    assert not identification.time_limit.was_reached


# --- in free run ----------------------------------------------------------------------------------


def free_run(**settings):
    """Return a quick training for the free run."""
    return FreeRun(routes=[replace(QUICK_SEARCH, evaluations=12)], folds=2, **settings)


def test_a_short_limit_gives_the_linear_model_of_the_free_run(clock):
    clock.tick = 1.0
    found = identify(RECORD, inputs=["u"], outputs=["y"], training=free_run(seconds=0.5))
    assert found.is_unfinished
    assert found.identifications["y"].report["route"] == "linear ARX"
    assert found.lag_choices["y"].criterion == "one_step"


@pytest.mark.parametrize("seconds", [3.0, 8.0, 15.0, 25.0, 40.0])
def test_the_best_so_far_simulates_wherever_the_time_ends(clock, seconds):
    clock.tick = 0.5
    found = identify(RECORD, NARX, training=free_run(seconds=seconds), budget=20)
    assert found.is_unfinished
    report = found.identifications["y"].report
    assert report["held_out_rmse"] is not None
    assert np.isfinite(found.validate().loc[("y", "free run"), "rmse"])


def test_no_fold_is_announced_after_the_time_is_up(clock, caplog):
    samples = [
        samples_of(Narx({"y": n}, {"u": n}, predict="value"), first_order_record()) for n in (1, 2)
    ]
    with caplog.at_level("INFO", "sysid"), TimeLimit(5.0).running():
        clock.now += 10.0
        with pytest.raises(TimeIsUp):
            free_run().compare_lags(samples, ["one", "two"], budget=5, seed=0)
    assert not [line for line in caplog.messages if "fold" in line]


def test_a_free_run_in_time_is_that_without_a_limit(clock):
    limited = identify(RECORD, NARX, training=free_run(seconds=1e6), budget=20)
    complete = identify(RECORD, NARX, training=free_run(), budget=20)
    assert not limited.is_unfinished
    regressors = NARX.dataset(RECORD)["regressor"].values
    np.testing.assert_array_equal(
        limited.model.predict(regressors).mean, complete.model.predict(regressors).mean
    )


# --- estimators -----------------------------------------------------------------------------------


def test_an_estimator_warns_if_the_time_was_up(clock):
    sklearn_estimators = pytest.importorskip("sysid.estimators")
    clock.tick = 1.0
    u = RECORD["u"].values[:, None]
    y = RECORD["y"].values
    model = sklearn_estimators.NarxGPRegressor(na=1, nb=1, training=replace(QUICK, seconds=0.5))
    with pytest.warns(UserWarning, match=r"training.seconds=0.5 ended the search"):
        model.fit(u, y)
    assert isinstance(model.model_.models[0].gp.kernel, Linear)
