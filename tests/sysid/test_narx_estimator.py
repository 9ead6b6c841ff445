"""The NARX model for scikit-learn: lags, simulation, predictions ahead, records, wrong signals."""

import copy
from dataclasses import replace
from functools import cache
from math import inf

import numpy as np
import pytest
from sklearn.metrics import r2_score

import sysid
from small_estimators import (
    NEW_U,
    NEW_Y,
    NEW_Y1,
    QUICK,
    Y1,
    U,
    Y,
    assert_same_arrays,
    dynamic,
    two_coupled_outputs,
)
from sysid.estimators import NarxGPRegressor


@pytest.fixture(scope="module")
def one_output():
    """A model of the first output, which no test changes."""
    return dynamic().fit(U, Y1)


@pytest.fixture(scope="module")
def two_outputs():
    """A model of both outputs, which no test changes."""
    return dynamic().fit(U, Y)


# --- lags -----------------------------------------------------------------------------------------


def test_it_gives_the_bits_of_the_identification_of_the_lagged_rows():
    narx = sysid.Narx({"y": 2}, {"u1": 2, "u2": 2}, predict="change")
    rows = narx.regressors({"y": Y1, "u1": U[:, 0], "u2": U[:, 1]})
    start = QUICK.know(rows.regressor, rows.target, mean=sysid.AutomaticMean(), seed=3)
    settings = sysid.Settings(training=QUICK, budget=10, seed=3)
    identification = sysid.Identification(narx, settings, start=start)
    identification.observe_many(rows.regressor, rows.target)
    expected = identification.model.predict(rows.regressor)

    estimator = NarxGPRegressor(budget=10, training=QUICK, random_state=3, sampling_time=0.5)
    joint = estimator.fit(U, Y1).model_
    assert joint.models[0].narx == narx
    assert_same_arrays(joint.models[0].predict(rows.regressor), expected)
    assert joint.origin.n_samples == 38
    assert joint.origin.sampling_time == 0.5


@pytest.mark.parametrize(
    ("orders", "lags", "target"),
    [
        pytest.param(
            {"na": 2, "nb": 3, "nk": 1},
            {"output_lags": 2, "input_lags": 3},
            "change",
            id="numbers_for_all",
        ),
        pytest.param(
            {"na": 1, "nb": [2, 1], "nk": [0, 3]},
            {"output_lags": [1], "input_lags": {"u1": [0, 1], "u2": [3]}},
            "change",
            id="numbers_by_input",
        ),
        pytest.param(
            {"na": 1, "nb": [1, 0], "nk": 1},
            {"output_lags": 1, "input_lags": {"u1": 1}},
            "change",
            id="input_without_lags",
        ),
        pytest.param(
            {"na": 0, "nb": 2, "nk": 0},
            {"output_lags": [], "input_lags": [0, 1], "target": "value"},
            "value",
            id="no_output_lags",
        ),
    ],
)
def test_orders_and_lags_name_the_same_model(orders, lags, target):
    by_orders = dynamic(**({"na": None, "nb": None} | orders)).fit(U, Y1)
    by_lags = dynamic(**({"na": None, "nb": None} | lags)).fit(U, Y1)
    narx = by_orders.model_.models[0].narx
    assert narx == by_lags.model_.models[0].narx
    assert narx.predict.value == target
    np.testing.assert_array_equal(by_orders.predict(NEW_U), by_lags.predict(NEW_U))


def test_an_input_without_lags_has_no_effect():
    estimator = dynamic(nb=[0, 1]).fit(U, Y[:, 1])
    first_outputs = NEW_Y[:2, 1]
    expected = estimator.simulate(NEW_U, first_outputs)
    without_lags_changed = estimator.simulate(NEW_U * [5.0, 1.0], first_outputs)
    with_lags_changed = estimator.simulate(NEW_U * [1.0, 5.0], first_outputs)
    assert estimator.model_.input_names == ("u2",)
    np.testing.assert_array_equal(without_lags_changed, expected)
    assert not np.array_equal(with_lags_changed, expected)


# --- simulation and predictions ahead -------------------------------------------------------------


def naive_simulation(joint, u, first_outputs):
    """Return the first outputs and one prediction after the other, for lags of one sample."""
    y = [*first_outputs]
    for k in range(len(first_outputs), len(u)):
        regressor = np.concatenate([y[k - 1], u[k - 1]])[None]
        change = [model.predict(regressor).mean[0] for model in joint.models]
        y.append(y[k - 1] + change)
    return np.array(y)


def test_a_simulation_of_two_outputs_feeds_back_its_predictions(two_outputs):
    simulated = two_outputs.simulate(NEW_U, NEW_Y[:3])
    expected = naive_simulation(two_outputs.model_, NEW_U, NEW_Y[:3])
    np.testing.assert_array_equal(simulated[:3], NEW_Y[:3])
    np.testing.assert_allclose(simulated, expected, rtol=1e-10)


def test_a_simulation_of_one_output_feeds_back_its_predictions(one_output):
    simulated = one_output.simulate(NEW_U, NEW_Y1[:1])
    expected = naive_simulation(one_output.model_, NEW_U, NEW_Y[:1, :1])
    np.testing.assert_allclose(simulated, expected[:, 0], rtol=1e-10)


def test_a_prediction_without_outputs_is_a_simulation_from_the_mean_of_estimation(two_outputs):
    u = np.concatenate([NEW_U[:1], NEW_U])
    expected = naive_simulation(two_outputs.model_, u, [Y.mean(axis=0)])
    np.testing.assert_allclose(two_outputs.predict(NEW_U), expected[1:])


@cache
def fit_two_outputs_with(scoring_horizon):
    """Return a model of both outputs that scores predictions so many samples ahead."""
    return dynamic(scoring_horizon=scoring_horizon).fit(U, Y)


@pytest.mark.parametrize("horizon", [None, 1, 2, 5])
def test_a_prediction_ahead_starts_from_measured_outputs(horizon):
    """Without a horizon it is one step ahead."""
    estimator = fit_two_outputs_with(horizon)
    n_steps = 1 if horizon is None else horizon
    ahead = estimator.predict(NEW_U, NEW_Y, horizon=horizon)
    assert np.isnan(ahead[:n_steps]).all()
    for k in range(n_steps, len(NEW_U)):
        measured = NEW_Y[: k - n_steps + 1]
        simulated = naive_simulation(estimator.model_, NEW_U[: k + 1], measured)
        np.testing.assert_allclose(ahead[k], simulated[-1], rtol=1e-9)


@pytest.mark.parametrize("horizon", [None, 1, 2, 5])
def test_the_score_is_that_of_the_predictions_ahead(horizon):
    """Without a horizon it is the score of a simulation."""
    estimator = fit_two_outputs_with(horizon)
    n_steps = 1 if horizon is None else horizon
    scored = estimator.predict(NEW_U, NEW_Y, horizon=inf if horizon is None else horizon)
    expected = r2_score(NEW_Y[n_steps:], scored[n_steps:])
    score = estimator.score(NEW_U, NEW_Y)
    assert score == pytest.approx(expected, rel=1e-12)
    assert score > 0.5


def test_an_infinite_horizon_is_a_simulation_after_the_largest_lag():
    estimator = dynamic(na=2, nk=3).fit(U, Y1)
    ahead = estimator.predict(NEW_U, NEW_Y1, horizon=inf)
    simulated = estimator.simulate(NEW_U, NEW_Y1[:3])
    assert np.isnan(ahead[:3]).all()
    np.testing.assert_array_equal(ahead[3:], simulated[3:])


# --- standard deviations --------------------------------------------------------------------------


def test_one_step_ahead_the_standard_deviation_is_that_of_a_measurement(one_output):
    model = one_output.model_.models[0]
    rows = model.narx.regressors({"y": NEW_Y1, "u1": NEW_U[:, 0], "u2": NEW_U[:, 1]})
    change, variance = model.predict(rows.regressor)
    mean, std = one_output.predict(NEW_U, NEW_Y1, return_std=True)
    np.testing.assert_allclose(std[1:], np.sqrt(variance + model.gp.noise_variance))
    np.testing.assert_allclose(mean[1:], change + NEW_Y1[:-1])


@cache
def simulate_with(propagation):
    """Return mean and standard deviation of a simulation from two measured outputs."""
    estimator = dynamic(propagation=propagation).fit(U, Y1)
    return estimator.simulate(NEW_U, NEW_Y1[:2], return_std=True)


@pytest.mark.parametrize(
    "propagation",
    [None, sysid.Pathwise(), sysid.Taylor(), sysid.MeanOnly()],
    ids=["default", "pathwise", "taylor", "mean_only"],
)
def test_the_mean_of_a_simulation_does_not_depend_on_the_propagation(propagation, one_output):
    mean, _ = simulate_with(propagation)
    np.testing.assert_allclose(mean, one_output.simulate(NEW_U, NEW_Y1[:2]), rtol=1e-10)


def test_the_standard_deviation_of_a_simulation_grows_by_the_propagation(one_output):
    _, by_default = simulate_with(None)
    _, by_draws = simulate_with(sysid.Pathwise())
    _, first_order = simulate_with(sysid.Taylor())
    _, without_propagation = simulate_with(sysid.MeanOnly())
    noise_std = np.sqrt(one_output.model_.models[0].gp.noise_variance)
    assert (by_default[:2] == 0).all()
    assert (by_default[2:] >= noise_std).all()
    np.testing.assert_array_equal(by_default, by_draws)
    assert by_default[4:].mean() > without_propagation[4:].mean()
    assert (first_order[4:] > without_propagation[4:]).all()


def test_the_bands_of_a_simulation_are_measured_with_enough_rows():
    u, y = two_coupled_outputs(120, seed=2)
    estimator = dynamic(gate="none").fit(u, y[:, 0])
    bands = estimator.model_.models[0].bands
    horizons = [horizon for horizon, _ in bands]
    assert horizons == sorted(set(horizons))
    assert len(horizons) > 1


# --- several records, and records of a package ----------------------------------------------------


@pytest.fixture(scope="module")
def fitted_to_two_records():
    """A model of two records of 18 and 22 samples, which no test changes."""
    return dynamic(budget=50).fit(np.split(U, [18]), np.split(Y1, [18]))


def test_the_loop_knows_where_a_record_begins(monkeypatch):
    """Each record has one row less than samples."""
    all_follows = []
    observe_many = sysid.Identification.observe_many

    def note_follows(self, regressors, targets, *, follows=None):
        all_follows.append(follows)
        return observe_many(self, regressors, targets, follows=follows)

    monkeypatch.setattr(sysid.Identification, "observe_many", note_follows)
    dynamic(budget=50).fit(np.split(U, [18]), np.split(Y1, [18]))
    first_rows = np.flatnonzero(~all_follows[0]).tolist()
    assert first_rows == [0, 17]


def test_records_come_as_lists_or_by_groups(fitted_to_two_records):
    groups = np.repeat(["b", "a"], [18, 22])
    by_group = dynamic(budget=50).fit(U, Y1, groups=groups)
    assert by_group.model_.origin.n_samples == 38
    assert fitted_to_two_records.model_.origin.n_samples == 38
    np.testing.assert_array_equal(fitted_to_two_records.predict(NEW_U), by_group.predict(NEW_U))


def test_no_row_reaches_from_one_record_into_another(fitted_to_two_records):
    as_one_record = dynamic(budget=50).fit(U, Y1)
    assert as_one_record.model_.origin.n_samples == 39
    predicted = fitted_to_two_records.predict(NEW_U)
    assert not np.array_equal(predicted, as_one_record.predict(NEW_U))


def test_several_records_are_predicted_and_simulated_one_by_one(fitted_to_two_records):
    estimator = fitted_to_two_records
    long = NEW_U
    short = NEW_U[:9]
    predicted = estimator.predict([long, short])
    simulated = estimator.simulate([long, short], [NEW_Y1[:2], NEW_Y1[:1]])
    assert_same_arrays(predicted, [estimator.predict(long), estimator.predict(short)])
    assert_same_arrays(
        simulated,
        [estimator.simulate(long, NEW_Y1[:2]), estimator.simulate(short, NEW_Y1[:1])],
    )


def test_several_records_have_one_score(fitted_to_two_records):
    estimator = fitted_to_two_records
    long = estimator.predict(NEW_U, NEW_Y1, horizon=inf)
    short = estimator.predict(NEW_U[:9], NEW_Y1[:9], horizon=inf)
    measured = np.concatenate([NEW_Y1[1:], NEW_Y1[1:9]])
    simulated = np.concatenate([long[1:], short[1:]])
    score = estimator.score([NEW_U, NEW_U[:9]], [NEW_Y1, NEW_Y1[:9]])
    assert score == pytest.approx(r2_score(measured, simulated))


class PackageRecord:
    """The attributes that are read of a record of the package `nonlinear_benchmarks`."""

    def __init__(self, u, y, sampling_time, window=None):
        self.u = u
        self.y = y
        self.sampling_time = sampling_time
        self.name = ""
        self.state_initialization_window_length = window


def test_a_record_of_the_package_brings_its_sampling_time_and_window():
    estimator = dynamic().fit(PackageRecord(U, Y1, np.array([0.5])))
    record = PackageRecord(NEW_U, NEW_Y1, 0.5, window=4)
    simulated = estimator.simulate(record)
    assert estimator.model_.origin.sampling_time == 0.5
    np.testing.assert_array_equal(simulated, estimator.simulate(NEW_U, NEW_Y1[:4]))
    assert estimator.score([record]) == estimator.score(NEW_U, NEW_Y1)


def test_a_record_of_the_package_may_have_one_input_as_a_vector():
    estimator = dynamic().fit(PackageRecord(U[:, 0], Y1, None))
    assert estimator.n_features_in_ == 1


# --- no inputs, and divergence --------------------------------------------------------------------


def test_a_model_may_have_no_inputs():
    rng = np.random.default_rng(4)
    y = np.zeros(60)
    for k in range(2, 60):
        y[k] = 1.6 * y[k - 1] - 0.9 * y[k - 2] + 0.05 * rng.normal()
    no_inputs = np.empty((20, 0))
    estimator = NarxGPRegressor(na=2, budget=15, training=QUICK).fit(None, y)
    simulated = estimator.simulate(no_inputs, y[:2])
    in_a_list = estimator.simulate([no_inputs], [y[:2]])
    np.testing.assert_array_equal(simulated, in_a_list[0])
    assert estimator.score(None, y) == estimator.score(np.empty((60, 0)), y)
    with pytest.raises(ValueError, match=r"\(n, 0\)"):
        estimator.predict(None)


LONG_INPUT = np.ones((300, 1))
BOUNDED_OUTPUT = np.sin(np.arange(300.0))


@pytest.fixture
def unstable():
    """A linear model of an unstable system, and its first output."""
    u = np.random.default_rng(5).normal(size=(40, 1))
    y = np.zeros(40)
    for k in range(1, 40):
        y[k] = 1.1 * y[k - 1] + u[k - 1, 0]
    return dynamic(budget=20, kernel=sysid.Linear()).fit(u, y), y[:1]


def test_a_simulation_that_diverges_warns(unstable):
    estimator, first_output = unstable
    with pytest.warns(UserWarning, match="diverged at sample") as warnings:
        simulated = estimator.simulate(LONG_INPUT, first_output)
    assert warnings[0].filename == __file__
    assert np.isfinite(simulated[:20]).all()


def test_the_score_of_a_simulation_that_diverges_is_minus_infinity(unstable):
    estimator, _ = unstable
    with pytest.warns(UserWarning, match="diverged"):
        score = estimator.score(LONG_INPUT, BOUNDED_OUTPUT)
    assert score == -inf


def test_a_simulation_that_is_held_at_a_limit_warns(unstable):
    estimator, first_output = unstable
    limited = replace(estimator.model_.models[0], limits=(-99.0, 99.0))
    estimator.model_ = sysid.JointModel((limited,))
    with pytest.warns(UserWarning, match="samples are held at a limit"):
        simulated = estimator.simulate(LONG_INPUT, first_output)
    assert simulated.max() == 99.0
    with pytest.warns(UserWarning, match="samples are held at a limit") as warnings:
        estimator.score(LONG_INPUT, BOUNDED_OUTPUT)
    assert warnings[0].filename == __file__


# --- wrong parameters and signals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        pytest.param({"output_lags": 2}, "na=1", id="na_and_output_lags"),
        pytest.param({"nb": None, "nk": 1, "input_lags": 2}, "nk=1", id="nk_and_input_lags"),
        pytest.param(
            {"na": None, "output_lags": {"z": 1}}, r"output_lags.*\['z'\]", id="unknown_output"
        ),
        pytest.param({"na": 40}, "at least 41 samples", id="record_shorter_than_lags"),
        pytest.param(
            {"na": 39}, "at least 2 samples after the largest lag 39, got 1", id="one_row"
        ),
        pytest.param(
            {"linear_part": "stable_spline", "standardise": False},
            "needs standardise=True",
            id="linear_part_of_other_scales",
        ),
    ],
)
def test_wrong_parameters_are_refused(parameters, words):
    with pytest.raises((ValueError, TypeError), match=words):
        dynamic(**parameters).fit(U, Y1)


def in_seconds(sampling_time):
    """Return the estimation record with a sampling time."""
    return PackageRecord(U, Y, sampling_time)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        pytest.param(lambda model: model.simulate(NEW_U), "y_init", id="simulate_without_start"),
        pytest.param(
            lambda model: model.simulate(NEW_U[:2], NEW_Y[:2, 0]),
            "more than the 2 inputs",
            id="simulate_nothing",
        ),
        pytest.param(
            lambda model: model.simulate([NEW_U, NEW_U], [NEW_Y[:1, 0]]),
            "each of 2 records, got 1",
            id="simulate_with_too_few_starts",
        ),
        pytest.param(
            lambda model: model.predict(NEW_U, horizon=2),
            "measured outputs",
            id="predict_ahead_without_outputs",
        ),
        pytest.param(
            lambda model: model.predict(NEW_U, NEW_Y), r"\['y'\], got 2", id="predict_two_outputs"
        ),
        pytest.param(
            lambda model: model.predict(NEW_U, NEW_Y1, horizon=25),
            "window and horizon",
            id="predict_beyond_the_record",
        ),
        pytest.param(
            lambda model: model.predict(None, NEW_Y1), "2 inputs", id="predict_without_inputs"
        ),
        pytest.param(
            lambda model: model.fit([U, U], [Y]), "record by record", id="fit_too_few_outputs"
        ),
        pytest.param(
            lambda model: model.fit([U, U[:, :1]], [Y, Y]), "same channels", id="fit_other_inputs"
        ),
        pytest.param(
            lambda model: model.fit(U, Y1, groups=[1, 2]), "groups.* 40", id="fit_too_few_groups"
        ),
        pytest.param(
            lambda model: model.fit(U, Y1, groups=[0, 1] * 20),
            "groups.*one piece",
            id="fit_scattered_groups",
        ),
        pytest.param(
            lambda model: model.fit(in_seconds(1.0), Y),
            "leave y and groups out",
            id="fit_record_and_outputs",
        ),
        pytest.param(
            lambda model: model.set_params(sampling_time=2.0).fit(in_seconds(1.0)),
            "one sampling time",
            id="fit_record_of_another_sampling_time",
        ),
        pytest.param(
            lambda model: model.fit([in_seconds(1.0), in_seconds(2.0)]),
            "one sampling time",
            id="fit_records_of_two_sampling_times",
        ),
        pytest.param(
            lambda model: model.fit(in_seconds(1.0)).score(in_seconds(2.0)),
            "one sampling time",
            id="score_of_another_sampling_time",
        ),
    ],
)
def test_wrong_signals_are_refused(use, words, one_output):
    with pytest.raises((ValueError, TypeError), match=words):
        use(copy.deepcopy(one_output))
