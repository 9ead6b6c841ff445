"""Training for simulation as a whole: the choice of the estimator, refusals, limits and bands."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from free_runs import (
    FIRST_ORDER_LAGS,
    KINDS_OF_LAGS,
    NO_LIMITS,
    QUICK_SEARCH,
    SIMPLE_LAGS,
    StubEstimator,
    first_order_record,
    linear_candidate,
    random_signals,
    samples_of,
    sine_input,
)
from sysid import (
    ConstantMean,
    FreeRun,
    Identification,
    InitialSamples,
    LinearMean,
    Narx,
    OutputErrorRefinement,
    Scaling,
    Settings,
    Start,
    ZeroMean,
    free_run,
)
from sysid.simulation.segments import segments_of
from sysid.simulation_error import calibration, linear_model
from sysid.simulation_error import training as training_module
from sysid.simulation_error.candidate import Refusal, range_of
from sysid.simulation_error.profile_search import Ridge

QUICK_FREE_RUN = FreeRun(routes=[replace(QUICK_SEARCH, evaluations=8)], folds=2)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Calibrate bands by few functions: test_calibration.py tests how well they cover."""
    monkeypatch.setattr(calibration, "N_DRAWN_FUNCTIONS", 3)
    monkeypatch.setattr(calibration, "MAX_DRAWN_POINTS", 8)


@pytest.fixture
def no_linear_models(monkeypatch):
    """Let only the estimators of the test compete."""
    monkeypatch.setattr(training_module, "LINEAR_MODELS", ())


def prepare(training, samples, known=None, seed=0):
    """Return the start of a model that the training finds."""
    if known is None:
        known = Start()
    return training.prepare(samples, known, mean=ConstantMean(), budget=10, seed=seed)


def identify_record(training, signals):
    """Return a finished identification of one record with the simplest lags."""
    rows = SIMPLE_LAGS.regressors(signals)
    identification = Identification(SIMPLE_LAGS, Settings(training=training, budget=10))
    identification.observe_many(rows.regressor, rows.target)
    identification.finish()
    return identification


def warnings_contain(start, text):
    """Return whether a warning of the training contains a text."""
    return any(text in warning for warning in start.hyperparameters.warnings)


def trials_by_route(start):
    """Return the reports on all tried estimators by the names of these."""
    return {trial["route"]: trial for trial in start.report["tried"]}


# --- the choice of the estimator ------------------------------------------------------------------


def test_training_follows_its_seed(no_linear_models):
    samples = samples_of(SIMPLE_LAGS, first_order_record())
    first = prepare(QUICK_FREE_RUN, samples, seed=3)
    second = prepare(QUICK_FREE_RUN, samples, seed=3)
    np.testing.assert_array_equal(first.points.targets, second.points.targets)


def test_model_is_the_candidate_of_the_best_route(no_linear_models):
    samples = samples_of(SIMPLE_LAGS, first_order_record())
    segments = segments_of(samples)
    (estimator,) = QUICK_FREE_RUN.routes
    candidate = estimator.fit(segments, SIMPLE_LAGS, 10, 0, NO_LIMITS).candidate

    training = replace(QUICK_FREE_RUN, n_initial=59)
    identification = identify_record(training, first_order_record())
    model = identification.model

    np.testing.assert_allclose(
        model.predict(samples.regressors).mean,
        candidate.predict(samples.regressors),
        atol=1e-6,
    )
    new = first_order_record(50, seed=5)
    run = free_run(model, new["u"][:, None], new["y"][:1, None])
    assert np.var(run.mean[:, 0] - new["y"][1:]) < 0.1 * np.var(new["y"])
    assert model.gp.n_points <= 10
    assert model.limits == range_of(segments)
    assert identification.report["route"] == "ProfileSearch"
    assert identification.hyperparameters.warnings == ()


def test_route_that_simulates_best_is_taken_and_refusals_are_reported(no_linear_models):
    """Estimators that return a constant compete for a record whose mean output is about 3.

    Those that are worse on the first fold can win no more and are not fitted to the second.
    """
    signals = first_order_record()
    signals["y"] += 3.0
    samples = samples_of(SIMPLE_LAGS, signals)
    diverges = StubEstimator((9.0, 0.0), 1.0)
    refuses = StubEstimator(error=Refusal("not with me"))
    routes = [
        StubEstimator(intercept=0.0),
        diverges,
        StubEstimator(intercept=3.0),
        StubEstimator(intercept=5.0),
        refuses,
    ]

    start = prepare(FreeRun(routes=routes, folds=2), samples)

    assert start.mean.intercept == 3.0
    *fitted, refused = start.report["tried"]
    assert [len(trial["folds"]) for trial in fitted] == [1, 1, 2, 1]
    rmse_of_0, rmse_of_diverging, rmse_of_3, rmse_of_5 = (
        trial["held_out_rmse"] for trial in fitted
    )
    values = segments_of(samples)[0].values
    halves = np.split(values, [len(values) // 2])
    first_fold = halves[0]
    assert rmse_of_0 == pytest.approx(np.sqrt(np.mean(first_fold**2)))
    assert rmse_of_diverging == np.inf
    assert rmse_of_3 == pytest.approx(np.sqrt(np.mean((values - 3.0) ** 2)))
    assert rmse_of_5 == pytest.approx(np.sqrt(np.mean((first_fold - 5.0) ** 2)))
    assert start.report["held_out_rmse"] == rmse_of_3
    assert refused["refusal"] == "StubEstimator: not with me"

    only_diverging = prepare(FreeRun(routes=[refuses, diverges], folds=2), samples)
    assert only_diverging.mean.intercept == 1.0
    assert warnings_contain(only_diverging, "runs away")


@pytest.mark.slow
def test_number_of_processes_changes_no_bit_of_the_result(monkeypatch):
    """Several processes begin fits in advance and drop those that are not needed."""
    samples = samples_of(SIMPLE_LAGS, first_order_record())
    routes = [
        replace(QUICK_SEARCH, evaluations=2),
        QUICK_SEARCH,
        OutputErrorRefinement(search_points=20, stages=2, iterations=3),
    ]
    training = FreeRun(routes=routes, folds=3)
    monkeypatch.setenv("PYTHON_CPU_COUNT", "1")
    with_one = prepare(training, samples)
    monkeypatch.setenv("PYTHON_CPU_COUNT", "3")
    with_three = prepare(training, samples)
    assert with_one.report == with_three.report
    assert with_one.bands == with_three.bands
    np.testing.assert_array_equal(with_one.points.targets, with_three.points.targets)


def test_blas_keeps_to_one_thread_while_fits_use_the_processors(monkeypatch):
    class ThreadsSeenError(Exception):
        """Ends the training with the number of threads of BLAS."""

    def report_threads(samples):
        blas_pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        raise ThreadsSeenError(max(pool["num_threads"] for pool in blas_pools))

    monkeypatch.setattr(training_module, "segments_of", report_threads)
    training = FreeRun(routes=[QUICK_SEARCH], folds=3)
    samples = samples_of(SIMPLE_LAGS, first_order_record())
    with threadpool_limits(2, user_api="blas"), pytest.raises(ThreadsSeenError, match=r"^1$"):
        prepare(training, samples)


@dataclass(frozen=True)
class RunsAwayInTheEnd(StubEstimator):
    """Simulate the folds well, but run away once fitted to all 199 samples."""

    def fit(self, segments, narx, budget, seed, limits):
        fit = super().fit(segments, narx, budget, seed, limits)
        n_samples = sum(len(segment.values) for segment in segments)
        if n_samples < 199:
            return fit
        return fit._replace(candidate=linear_candidate(narx, [0.1, 0.0], 0.0))


def test_model_that_runs_away_is_replaced_by_the_next_best(caplog):
    """The output varies about 3 and does not depend on the input, so that a constant is best.

    A linear model always competes and comes next.
    """
    noise = np.random.default_rng(0).standard_normal(200)
    signals = {"y": 3.0 + 0.3 * noise, "u": sine_input(200)}
    samples = samples_of(SIMPLE_LAGS, signals)
    routes = [RunsAwayInTheEnd(intercept=3.0), StubEstimator(intercept=20.0)]

    with caplog.at_level("INFO", "sysid"):
        start = prepare(FreeRun(routes=routes, folds=2), samples)

    assert "free run: RunsAwayInTheEnd, fold 2 of 2" in caplog.messages
    assert "free run: RunsAwayInTheEnd, all samples" in caplog.messages
    # after its first fold this estimator can win no more
    assert "free run: StubEstimator, fold 2 of 2" not in caplog.messages
    refusal = trials_by_route(start)["RunsAwayInTheEnd"]["refusal"]
    assert "leaves the range" in refusal
    assert start.report["route"].startswith("linear")
    assert warnings_contain(start, "no better model found than a linear one")
    assert start.limits == range_of(segments_of(samples))


@dataclass(frozen=True)
class GainTooLarge(StubEstimator):
    """Find a model that leaves the range of the samples if inputs are larger than in the record."""

    gain: float = 1.9

    def fit(self, segments, narx, budget, seed, limits):
        fit = super().fit(segments, narx, budget, seed, limits)
        return fit._replace(candidate=linear_candidate(narx, [0.0, self.gain]))


def test_model_is_not_refused_for_inputs_beyond_those_of_the_record(monkeypatch, no_linear_models):
    u = sine_input(200)
    samples = samples_of(FIRST_ORDER_LAGS, {"y": np.append(0.0, u[:-1]), "u": u})

    start = prepare(FreeRun(routes=[GainTooLarge()], folds=2), samples)

    assert start.report["route"] == "GainTooLarge"
    assert warnings_contain(start, "keep the inputs within their limits")
    assert not warnings_contain(start, "runs away in some simulation")


def test_why_a_model_is_linear_is_told():
    """The start-up is one of two folds; the route is good at the other one only."""
    signals = first_order_record()
    signals["y"] = signals["y"] + np.linspace(50.0, 0.0, 20).repeat(10)[: len(signals["y"])]
    samples = samples_of(SIMPLE_LAGS, signals)

    start = prepare(FreeRun(routes=[StubEstimator(intercept=0.0)], folds=2), samples)

    assert warnings_contain(start, "no route was taken: StubEstimator: its error on")
    assert warnings_contain(start, "of 2 decided this, and it reaches y from")


@dataclass(frozen=True)
class FallsBack(linear_model.LinearModel):
    """Return the same model as the linear model of the free run."""

    name = "falls back"


def test_estimator_that_ties_with_the_linear_model_is_fitted_to_all_samples(monkeypatch):
    """It may find more than a linear model there."""
    linear_model_of_free_run = training_module.LINEAR_MODELS[-1:]
    monkeypatch.setattr(training_module, "LINEAR_MODELS", linear_model_of_free_run)
    samples = samples_of(SIMPLE_LAGS, first_order_record())
    start = prepare(FreeRun(routes=[FallsBack()], folds=2), samples)
    trials = trials_by_route(start)
    linear_rmse = trials["linear output error"]["held_out_rmse"]
    assert trials["falls back"]["held_out_rmse"] == linear_rmse
    assert start.report["route"] == "falls back"
    assert warnings_contain(start, "no better model found than a linear one")


@pytest.mark.parametrize(
    "error",
    [ValueError("of no one"), np.linalg.LinAlgError("Singular matrix")],
    ids=["value", "linear algebra"],
)
def test_error_that_is_no_refusal_is_raised_though_another_estimator_serves(error):
    training = FreeRun(routes=[StubEstimator(), StubEstimator(error=error)], folds=2)
    samples = samples_of(SIMPLE_LAGS, first_order_record())
    with pytest.raises(type(error), match=str(error)):
        prepare(training, samples)


def test_regression_beyond_double_precision_is_a_refusal(no_linear_models, monkeypatch):
    def fail(*_):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(Ridge, "weights", fail)
    training = FreeRun(routes=[QUICK_SEARCH, StubEstimator()], folds=2)
    start = prepare(training, samples_of(SIMPLE_LAGS, first_order_record()))
    assert start.report["route"] == "StubEstimator"
    refusal = start.report["tried"][0]["refusal"]
    assert refusal.startswith("ProfileSearch: double precision does not suffice")


# --- bands and limits -----------------------------------------------------------------------------


class BandMeasurement(NamedTuple):
    """Arguments of one call of `measure_bands`."""

    model: object  # whose spread is compared with the errors
    predicting_model: object  # whose errors these are
    parts: object  # of the fold


def test_bands_are_those_of_a_typical_fold(monkeypatch):
    """One fold that the fit without it simulates badly does not set the bands.

    One step ahead the errors are compared with the spread of the fits without the fold, in
    simulations with the spread of the model.
    """
    measurements = []
    one_step_bands = iter([1.0, 90.0, 4.0])
    simulation_bands = iter(
        [
            ((1, 1.0), (10, 5.0)),
            ((1, 2.0), (10, 90.0)),
            ((1, 3.0), (10, 3.0)),
        ]
    )

    def measure_bands(model, pairs, seed, **settings):
        predicting_model, parts = pairs[0]
        measurements.append(BandMeasurement(model, predicting_model, parts))
        is_one_step = settings.get("horizons") == ()
        if is_one_step:
            return ((1, next(one_step_bands)),)
        return next(simulation_bands)

    monkeypatch.setattr(training_module, "measure_bands", measure_bands)
    training = FreeRun(routes=[QUICK_SEARCH], folds=3)
    start = prepare(training, samples_of(SIMPLE_LAGS, first_order_record()))

    assert start.bands == ((1, 4.0), (10, 5.0))
    one_step = measurements[:3]
    simulated = measurements[3:]
    model = simulated[0].model
    for ahead, simulation in zip(one_step, simulated, strict=True):
        assert simulation.model is model
        assert ahead.model is ahead.predicting_model
        assert ahead.model is simulation.predicting_model
        assert ahead.model is not model
        assert ahead.parts == simulation.parts


@pytest.fixture(scope="module")
def saturated_record():
    """Return a record whose output is cut off at 1."""
    return first_order_record(100, limit=1.0)


def test_saturation_of_the_output_is_found_and_reported(saturated_record):
    start = prepare(QUICK_FREE_RUN, samples_of(SIMPLE_LAGS, saturated_record))
    y = saturated_record["y"][1:]
    lowest = y.min()
    assert start.limits == (pytest.approx(lowest - 0.5 * (1.0 - lowest)), 1.0)
    n_saturated = int(np.sum(y == 1.0))
    assert warnings_contain(start, f"{n_saturated} samples equal 1 and none is above")


def test_simulation_stays_within_the_limits(saturated_record):
    model = identify_record(QUICK_FREE_RUN, saturated_record).model
    run = free_run(model, np.full((30, 1), 3.0), np.zeros((1, 1)))
    assert run.mean.max() == 1.0


def test_limits_are_those_of_the_range_unless_saturation_is_sought(saturated_record):
    samples = samples_of(SIMPLE_LAGS, saturated_record)
    training = replace(QUICK_FREE_RUN, find_limits=False)
    assert prepare(training, samples).limits == range_of(segments_of(samples))


def test_known_limits_are_kept(saturated_record):
    samples = samples_of(SIMPLE_LAGS, saturated_record)
    known = Start(limits=(-2.0, 5.0))
    assert prepare(QUICK_FREE_RUN, samples, known).limits == (-2.0, 5.0)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"routes": []}, "routes must be estimators"),
        ({"folds": 1}, "folds must be a whole number"),
        ({"n_initial": 1}, "n_initial must be a whole number"),
    ],
    ids=["no routes", "one fold", "one sample"],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FreeRun(**settings)


@pytest.mark.parametrize("mean", [ZeroMean(), ConstantMean(3.0), LinearMean()], ids=repr)
def test_mean_beside_the_training_is_refused(mean):
    with pytest.raises((TypeError, ValueError), match=r"expected no mean.*leave it out"):
        Settings(training=FreeRun(), mean=mean)


def random_samples(narx, follows):
    """Return samples of a random record; `follows` says which continue the one before."""
    n = len(follows)
    rows = narx.regressors(random_signals(narx, 20))
    return InitialSamples(narx, rows.regressor[:n], rows.target[:n], np.array(follows, dtype=bool))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        pytest.param(
            samples_of(SIMPLE_LAGS, first_order_record(7)),
            "expected at least 10 samples.*got 3",
            id="too few samples",
        ),
        pytest.param(
            random_samples(Narx({"y": []}, {"u": [0]}, predict="value"), [False, True]),
            "expected lags of the target 'y'",
            id="no lags of the target",
        ),
        pytest.param(
            random_samples(KINDS_OF_LAGS["change, gaps"], [False, True, False]),
            "at least 2 samples.*of 1",
            id="record of one sample",
        ),
        pytest.param(
            random_samples(SIMPLE_LAGS, []), "expected samples, got none", id="no samples"
        ),
    ],
)
def test_samples_that_do_not_suffice_are_refused(samples, message):
    with pytest.raises((TypeError, ValueError), match=message):
        prepare(QUICK_FREE_RUN, samples)


def test_known_scaling_is_refused():
    known = Start(scaling=Scaling.identity(2))
    with pytest.raises((TypeError, ValueError), match="scaling itself"):
        prepare(QUICK_FREE_RUN, samples_of(SIMPLE_LAGS, first_order_record()), known)


def test_training_without_lags_is_refused():
    with pytest.raises((TypeError, ValueError), match="trains a NARX model"):
        QUICK_FREE_RUN.train(np.zeros((9, 2)), np.zeros(9), 0)


def test_refusal_of_every_estimator_is_raised():
    training = FreeRun(routes=[StubEstimator(error=Refusal("no"))])
    with pytest.raises((TypeError, ValueError), match="StubEstimator: no"):
        prepare(training, samples_of(SIMPLE_LAGS, first_order_record(7)))
