"""Comparison of lags by the held-out error of simulations, and the choice of lags by it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from free_runs import (
    NO_LIMITS,
    QUICK_SEARCH,
    SIMPLE_LAGS,
    constant_record,
    first_order_record,
    linear_candidate,
    mean_output,
    random_signals,
    samples_of,
)
from sysid import FreeRun, Narx, ProfileSearch, Settings, choose_lags, lag_choice, make_record
from sysid.gp.training import InitialSamples, Start
from sysid.narx.lags import consecutive
from sysid.simulation_error import training as training_module
from sysid.simulation_error.candidate import Estimator, FitResult, squared_error
from sysid.simulation_error.linear_model import LinearModel
from sysid.simulation_error.training import Trial


@pytest.fixture
def no_linear_models(monkeypatch):
    """Let only the estimators of the test compete."""
    monkeypatch.setattr(training_module, "LINEAR_MODELS", ())


# --- all samples have all lags --------------------------------------------------------------------


@pytest.fixture(scope="module")
def delayed_comparison():
    """Compare 1, 3, 5 and 8 input lags of a plant whose input acts five samples later.

    Returns the trials, the best first.
    """
    u = np.random.default_rng(0).standard_normal(150)
    y = np.zeros(150)
    for k in range(5, 150):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 5])
    whole = {"y": y, "u": u}
    beginning = {"y": y[:90], "u": u[:90]}
    samples = []
    for n_input_lags in (1, 3, 5, 8):
        samples.append(samples_of(Narx({"y": 1}, {"u": n_input_lags}), whole, beginning))
    training = FreeRun(routes=[replace(QUICK_SEARCH, evaluations=16)], folds=2)
    labels = ["one", "three", "five", "eight"]
    return training.compare_lags(samples, labels, budget=10, seed=0)


def test_lags_that_reach_the_delay_are_the_best(delayed_comparison):
    best = delayed_comparison[0]
    assert best.label == "five"
    assert len(best.fits) == 2
    n_folds_of_fewer_lags = {
        len(trial.fits) for trial in delayed_comparison if trial.label in ("one", "three")
    }
    assert n_folds_of_fewer_lags == {1}


def test_lags_are_compared_on_the_samples_that_all_of_them_have(delayed_comparison):
    """Each is fitted to all samples that it has: with fewer lags to more of them."""
    scored = []
    n_fitted = {}
    for trial in delayed_comparison:
        parts = [part for fold in trial.folds for part in fold.parts]
        scored.append(np.concatenate([part.values[part.transient :] for part in parts]))
        n_fitted[trial.label] = sum(len(part.values) for part in parts)
    for values in scored:
        np.testing.assert_array_equal(values, scored[0])
    assert len(scored[0]) == 2 * 112
    assert n_fitted == {"eight": 224, "five": 230, "three": 234, "one": 238}


def test_a_training_with_the_chosen_lags_does_no_fit_of_the_comparison_again(monkeypatch):
    training = FreeRun(routes=[replace(QUICK_SEARCH, evaluations=16)], folds=2)
    record = make_record(first_order_record(150, 0), name="r", sampling_time=1.0)
    settings = Settings(training=training, budget=10)
    choice = choose_lags(record, "y", ["u"], settings=settings, max_order=2)
    rows = choice.narx.dataset(record)
    samples = InitialSamples(
        choice.narx, rows["regressor"].values, rows["target"].values, consecutive(rows)
    )
    fitted = []
    compute = training_module._FitsInAdvance._compute

    def observe(self, trial, fold, trials):
        fitted.append(trial.estimator)
        return compute(self, trial, fold, trials)

    monkeypatch.setattr(training_module._FitsInAdvance, "_compute", observe)
    start = training.prepare(samples, Start(), mean=None, budget=10, seed=0)
    assert not any(isinstance(estimator, ProfileSearch) for estimator in fitted)
    monkeypatch.setattr(training_module, "last_fits", training_module._LastFits(2))
    again = training.prepare(samples, Start(), mean=None, budget=10, seed=0)
    assert any(isinstance(estimator, ProfileSearch) for estimator in fitted)
    assert again.report == start.report


def test_only_the_last_fits_are_kept():
    last_fits = training_module._LastFits(2)
    for number in range(3):
        last_fits.put(bytes([number]), QUICK_SEARCH, number)
    assert last_fits.get(bytes([0]), QUICK_SEARCH) is None
    assert last_fits.get(bytes([2]), QUICK_SEARCH) == 2
    assert last_fits.get(bytes([2]), replace(QUICK_SEARCH, evaluations=5)) is None


def test_error_of_lags_is_that_of_the_held_out_folds(delayed_comparison):
    best = delayed_comparison[0]
    assert isinstance(best.estimator, ProfileSearch)
    errors = []
    for fold in best.folds:
        fit = best.estimator.fit(fold.rest, best.narx, 10, 0, NO_LIMITS)
        errors.append(squared_error(fit.candidate, fold.parts))
    assert best.rmse == pytest.approx(np.sqrt(np.mean(errors)))


def test_samples_that_no_estimator_serves_are_refused():
    training = FreeRun(routes=[replace(QUICK_SEARCH, evaluations=16)], folds=2)
    samples = samples_of(SIMPLE_LAGS, constant_record())
    message = "no estimator of routes serves these samples with any lags"
    with pytest.raises(ValueError, match=message):
        training.compare_lags([samples], [""], budget=10, seed=0)


# --- quick and full comparison --------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorByLags(Estimator):
    """Return a constant that misses the mean output by an error given for each number of features.

    The errors are those with 2, 3, ... features. The quick version has other errors.
    """

    errors: tuple[float, ...]
    quick_errors: tuple[float, ...]

    def quick(self):
        return replace(self, errors=self.quick_errors)

    def fit(self, segments, narx, budget, seed, limits):
        n_others = narx.n_features - 1
        coefficients = [-1.0] + n_others * [0.0]
        intercept = mean_output(segments) + self.errors[n_others - 1]
        candidate = linear_candidate(narx, coefficients, intercept, bounds=(-50.0, 50.0))
        return FitResult(candidate, 0.01, {})


def test_lags_that_the_quick_search_ranks_best_are_compared_in_full(no_linear_models, monkeypatch):
    """Three input lags would be best in full, but the quick search ranks them last of three."""
    monkeypatch.setattr(training_module, "N_FINALISTS", 2)
    signals = random_signals(SIMPLE_LAGS, 90)
    samples = [samples_of(Narx({"y": 1}, {"u": n}), signals) for n in (1, 2, 3)]
    estimator = ErrorByLags(errors=(2.0, 1.0, 0.0), quick_errors=(3.0, 4.0, 5.0))
    training = FreeRun(routes=[estimator], folds=2)

    trials = training.compare_lags(samples, ["one", "two", "three"], budget=10, seed=0)

    in_full = [trial for trial in trials if trial.estimator == estimator]
    assert [trial.label for trial in in_full] == ["two", "one"]
    assert in_full[0] is trials[0]
    assert len(trials[0].fits) == 2


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        pytest.param((2.0, 2.0, 2.0, 2.0, 2.0), "times that of another route", id="far behind"),
        pytest.param((9.0, 9.0, 9.0, 9.0, 9.0), "it runs away", id="runs away"),
        pytest.param((2.0, 2.0, 2.0, 2.0, 0.1), "", id="near with the last lags"),
        pytest.param((2.0, 0.1, 0.1, 0.1, 9.0), "times that", id="near with lags not tried"),
    ],
)
def test_route_that_is_far_behind_with_a_few_lags_is_not_tried_with_others(
    errors, words, no_linear_models, monkeypatch
):
    """Of five lags, the first and the last are tried first."""
    monkeypatch.setattr(training_module, "N_PROBED_LAGS", 2)
    monkeypatch.setattr(training_module, "MAX_PROBED_FACTOR", 1.5)
    signals = random_signals(SIMPLE_LAGS, 90)
    samples = [samples_of(Narx({"y": 1}, {"u": n}), signals) for n in range(1, 6)]
    good = ErrorByLags(errors=5 * (0.0,), quick_errors=5 * (0.0,))
    other = ErrorByLags(errors=errors, quick_errors=errors)
    training = FreeRun(routes=[good, other], folds=2)

    trials = training.compare_lags(samples, list("12345"), budget=10, seed=0)

    quick = [trial for trial in trials if trial.estimator == other]
    labels_fitted = {trial.label for trial in quick if trial.fits}
    assert labels_fitted == set("15" if words else "12345")
    assert all(words in trial.refusal for trial in quick)
    assert all(bool(trial.refusal) == bool(words) for trial in quick)
    assert not any(trial.refusal for trial in trials if trial.estimator == good)


def test_the_better_half_of_many_trials_goes_on_to_the_next_fold(no_linear_models, monkeypatch):
    """All errors are nearly equal, so that each trial would do almost all folds."""
    monkeypatch.setattr(training_module, "MIN_RACING_TRIALS", 2)
    signals = random_signals(SIMPLE_LAGS, 90)
    samples = [samples_of(Narx({"y": 1}, {"u": n}), signals) for n in range(1, 9)]
    equal = ErrorByLags(errors=8 * (0.0,), quick_errors=8 * (0.1,))
    training = FreeRun(routes=[equal], folds=4)

    trials = training.compare_lags(samples, list("12345678"), budget=10, seed=0)

    n_folds = [len(trial.fits) for trial in trials if trial.is_quick]
    assert n_folds[0] == 4
    assert n_folds == sorted(n_folds, reverse=True)
    assert [sum(n >= k for n in n_folds) for k in (1, 2, 3)] == [8, 4, 2]


def test_at_most_half_of_the_finalists_are_linear_models(monkeypatch):
    """The linear model is the better one with all lags, but the route wins in full."""
    linear = ErrorByLags(errors=3 * (0.5,), quick_errors=3 * (0.5,))
    route = ErrorByLags(errors=(0.0, 0.4, 0.8), quick_errors=3 * (1.0,))
    monkeypatch.setattr(training_module, "LINEAR_MODELS", (linear,))
    monkeypatch.setattr(training_module, "N_FINALISTS", 2)
    signals = random_signals(SIMPLE_LAGS, 90)
    samples = [samples_of(Narx({"y": 1}, {"u": n}), signals) for n in (1, 2, 3)]

    trials = FreeRun(routes=[route], folds=2).compare_lags(samples, list("123"), budget=10, seed=0)

    assert trials[0].estimator == route
    assert trials[0].narx.n_features == 2
    n_in_full = sum(trial.estimator == route and not trial.is_quick for trial in trials)
    assert n_in_full == 1


@pytest.fixture
def choice_of_one_finalist(no_linear_models, monkeypatch):
    """Choose lags with one finalist: fewer lags tie with it in the quick search, not in full."""
    monkeypatch.setattr(training_module, "N_FINALISTS", 1)
    estimator = ErrorByLags(errors=(9.0, 9.0, 1.0), quick_errors=(1.02, 9.0, 1.0))
    settings = Settings(training=FreeRun(routes=[estimator], folds=2), budget=10)
    record = make_record(random_signals(SIMPLE_LAGS, 90), name="r", sampling_time=1.0)
    return choose_lags([record], "y", ["u"], settings=settings, max_order=2)


def test_lags_that_only_a_quick_search_finds_good_are_not_chosen(choice_of_one_finalist):
    choice = choice_of_one_finalist
    best = choice.tried[0]
    assert choice.narx.n_features == 4
    assert best["model_quick"] is False
    near_best_in_quick_search = [
        (row["na"], row["model_parts"])
        for row in choice.tried
        if row["model_quick"] and row["model"] <= 1.01 * best["model"]
    ]
    assert near_best_in_quick_search == [(2, 2), (1, 2), (1, 2)]
    chosen_rows = [i for i, row in enumerate(choice.tried) if "chosen" in row]
    assert chosen_rows == [0]


def test_table_of_lags_marks_quick_and_chosen_rows(choice_of_one_finalist):
    _, *lines = str(choice_of_one_finalist).splitlines()
    are_chosen = ["chosen" in line for line in lines]
    are_full = ["quick" not in line for line in lines]
    assert are_chosen == are_full


@pytest.mark.parametrize("error", [None, np.inf, 0.0])
def test_lags_are_chosen_whatever_the_error_of_the_best_linear_model(error, monkeypatch):
    """Nothing could be trained, its simulation diverges, or it is exact."""

    def compare_lags(self, samples, labels, **settings):
        trials = []
        for with_lags in samples[::-1]:
            trial = Trial(LinearModel(), with_lags.narx, [])
            if error is not None:
                trial.fits.append(None)
                trial.errors.append(error**2)
                trial.sizes.append(9)
            trials.append(trial)
        return trials

    monkeypatch.setattr(FreeRun, "compare_lags", compare_lags)
    record = make_record(first_order_record(90, 1), name="r", sampling_time=1.0)
    choice = choose_lags(record, "y", ["u"], settings=Settings(training=FreeRun()), max_order=2)
    n_lags = 2 if error is None else 1
    assert choice.narx.lags["y"] == tuple(range(1, 1 + n_lags))


# --- long records ---------------------------------------------------------------------------------


def test_lags_of_long_records_are_compared_on_pieces_of_them(monkeypatch):
    calls = []
    compare_lags = FreeRun.compare_lags

    def observed_compare_lags(self, samples, labels, **settings):
        calls.append((samples, labels))
        return compare_lags(self, samples, labels, **settings)

    monkeypatch.setattr(FreeRun, "compare_lags", observed_compare_lags)
    monkeypatch.setattr(lag_choice, "PIECE_SAMPLES", 50)
    monkeypatch.setattr(lag_choice, "MAX_SIMULATED_SAMPLES", 200)
    long = make_record(first_order_record(400, 0), name="r", sampling_time=1.0)
    short = make_record(first_order_record(90, 1), name="r", sampling_time=1.0)
    settings = Settings(training=FreeRun(routes=[QUICK_SEARCH], folds=2), budget=10)

    choice = choose_lags([long, short], "y", ["u"], settings=settings, max_order=2)

    ((samples, labels),) = calls
    assert labels[-1] == "y 1 to 2, u 1 to 2 (4 of 4)"
    # two pieces of the long record and the short one, each without the first samples
    expected_sizes = [50 + 50 + 90 - 3 * max_lag for max_lag in (1, 1, 2, 2)]
    assert [len(with_lags.targets) for with_lags in samples] == expected_sizes
    assert choice.criterion == "free_run"
    assert choice.narx.feature_names[-1] == "u[k-1]"
    assert "y 1 to 1" in str(choice)


def test_an_error_on_fewer_parts_does_not_decide_about_the_lags():
    """The linear model of the winner was behind after one part, on which its error is smaller."""

    def row(n_lags, linear, model, model_parts):
        errors = {"linear": linear, "linear_parts": 1, "linear_quick": True}
        errors |= {"model": model, "model_parts": model_parts, "model_quick": False}
        return {"na": n_lags, "nb": n_lags, "nk": 1} | errors

    winner = row(10, linear=0.49, model=0.51, model_parts=5)
    equal = row(9, linear=0.55, model=0.512, model_parts=5)
    given_up = row(2, linear=0.49, model=0.77, model_parts=3)
    assert lag_choice._equal_in_free_run([winner, equal, given_up]) == [winner, equal]
