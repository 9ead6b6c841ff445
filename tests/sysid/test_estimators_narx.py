"""Identification as an estimator of scikit-learn: inputs in, outputs out, in free run or ahead."""

import inspect
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from sysid.compare import fit_percent
from sysid.data.cascaded_tanks import CascadedTanksData
from sysid.data.exchange import to_nonlinear_benchmarks
from sysid.estimators import EXEMPTED_CHECKS, NarxGPRegressor
from sysid.formula import PLAIN
from sysid.identify import Identification, Settings
from sysid.joint import JointModel
from sysid.kernels import LinearForm
from sysid.narx import Narx
from sysid.propagation import MeanOnly, Pathwise, Taylor
from sysid.training import MaximumLikelihood
from sysid.validation import validate

QUICK = MaximumLikelihood(n_initial=12, restarts=1, max_iterations=6)
SMALL = NarxGPRegressor(budget=20, training=QUICK)


def exempted(estimator):
    return EXEMPTED_CHECKS


@pytest.mark.skipif(PLAIN, reason="the interface is the same without the compiler")
@parametrize_with_checks([SMALL], expected_failed_checks=exempted)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([NarxGPRegressor()], expected_failed_checks=exempted)
def test_checks_of_scikit_learn_with_default_settings(estimator, check):
    check(estimator)


@pytest.mark.skipif(PLAIN, reason="the interface is the same without the compiler")
@pytest.mark.parametrize("name", EXEMPTED_CHECKS)
def test_what_is_exempted_cannot_be_passed(name):
    """Both shuffle or cut the rows; should one pass one day, the list is too long."""
    with pytest.raises(AssertionError, match="not invariant"):
        getattr(estimator_checks, name)("NarxGPRegressor", SMALL)


def records(n=40, seed=0):
    """Two inputs and two outputs of a system whose first output needs u[k-1], y[k-1]."""
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=(n, 2)), np.zeros((n, 2))
    for k in range(1, n):
        y[k, 0] = 0.6 * y[k - 1, 0] + np.tanh(u[k - 1, 0]) + 0.1 * y[k - 1, 1]
        y[k, 1] = 0.5 * y[k - 1, 1] + u[k - 1, 1]
    return u, y + 0.01 * rng.normal(size=y.shape)


def quick(**parameters):
    return NarxGPRegressor(**({"na": 1, "nb": 1, "budget": 10, "training": QUICK} | parameters))


U, Y = records()
NEW_U, NEW_Y = records(25, seed=1)


def test_it_is_the_identification():
    """The same bits as the loop of the toolbox: no second implementation."""
    narx = Narx({"y": 2}, {"u1": 2, "u2": 2}, predict="change")
    identification = Identification(narx, Settings(training=QUICK, budget=10, seed=3))
    rows = narx.regressors({"y": Y[:, 0], "u1": U[:, 0], "u2": U[:, 1]})
    identification.observe_many(rows.regressor, rows.target)
    found = NarxGPRegressor(budget=10, training=QUICK, random_state=3).fit(U, Y[:, 0]).model_
    assert found.models[0].narx == narx
    for a, b in zip(found.models[0].predict(rows.regressor), identification.model.predict(rows.regressor), strict=True):
        np.testing.assert_array_equal(a, b)
    assert found.origin.sampling_time is None
    assert found.origin.n_samples == 38


@pytest.mark.parametrize(
    ("orders", "lags"),
    [
        ({"na": 2, "nb": 3, "nk": 1}, {"output_lags": 2, "input_lags": 3}),
        ({"na": 1, "nb": [2, 1], "nk": [0, 3]}, {"output_lags": [1], "input_lags": {"u1": [0, 1], "u2": [3]}}),
        ({"na": 1, "nb": [1, 0], "nk": 1}, {"output_lags": 1, "input_lags": {"u1": 1}}),
        ({"na": 0, "nb": 2, "nk": 0}, {"output_lags": [], "input_lags": [0, 1], "target": "value"}),
    ],
)
def test_orders_and_lags_say_the_same(orders, lags):
    free = {"na": None, "nb": None}
    one, other = (quick(**(free | given)).fit(U, Y[:, 0]) for given in (orders, lags))
    assert one.model_.models[0].narx == other.model_.models[0].narx
    np.testing.assert_array_equal(one.predict(NEW_U), other.predict(NEW_U))


def test_an_input_without_lags_is_not_looked_at():
    found = quick(nb=[0, 1]).fit(U, Y[:, 1])
    assert found.model_.input_names == ("u2",)
    others = [NEW_U * factor for factor in ([5.0, 1.0], [1.0, 5.0])]
    first, second = (found.simulate(u, NEW_Y[:2, 1]) for u in others)
    np.testing.assert_array_equal(first, found.simulate(NEW_U, NEW_Y[:2, 1]))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(found.predict(others[0], NEW_Y[:, 1]), found.predict(NEW_U, NEW_Y[:, 1]))


def test_a_value_instead_of_a_change():
    assert quick(target="value").fit(U, Y[:, 0]).model_.models[0].narx.predict.value == "value"
    assert quick().fit(U, Y[:, 0]).model_.models[0].narx.predict.value == "change"


def naive_simulation(model, u, first, start):
    """One prediction after the other, lags of 1."""
    y = [*first]
    for k in range(start, len(u)):
        x = np.concatenate([y[k - 1], u[k - 1]])[None]
        y.append(y[k - 1] + [one.predict(x).mean[0] for one in model.models])
    return np.array(y)


def test_a_simulation_feeds_back_what_it_predicted():
    found = quick().fit(U, Y)
    path = found.simulate(NEW_U, NEW_Y[:3])
    np.testing.assert_array_equal(path[:3], NEW_Y[:3])
    np.testing.assert_allclose(path, naive_simulation(found.model_, NEW_U, NEW_Y[:3], 3), rtol=1e-10)
    single = quick().fit(U, Y[:, 0])
    np.testing.assert_allclose(
        single.simulate(NEW_U, NEW_Y[:1, 0]), naive_simulation(single.model_, NEW_U, NEW_Y[:1, :1], 1)[:, 0], rtol=1e-10
    )


def test_without_outputs_it_starts_at_their_mean():
    found = quick().fit(U, Y)
    u = np.concatenate([NEW_U[:1], NEW_U])
    np.testing.assert_allclose(found.predict(NEW_U), naive_simulation(found.model_, u, [Y.mean(axis=0)], 1)[1:])


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_ahead_it_starts_from_what_was_measured(horizon):
    found = quick().fit(U, Y)
    ahead = found.predict(NEW_U, NEW_Y, horizon=horizon)
    assert np.isnan(ahead[:horizon]).all()
    for k in range(horizon, len(NEW_U)):
        path = naive_simulation(found.model_, NEW_U[: k + 1], NEW_Y[: k - horizon + 1], k - horizon + 1)
        np.testing.assert_allclose(ahead[k], path[-1], rtol=1e-9)


def test_one_step_is_the_default_and_infinity_a_free_run():
    found = NarxGPRegressor(na=2, nb=1, nk=3, budget=10, training=QUICK).fit(U, Y[:, 0])
    np.testing.assert_array_equal(found.predict(NEW_U, NEW_Y[:, 0]), found.predict(NEW_U, NEW_Y[:, 0], horizon=1))
    free = found.predict(NEW_U, NEW_Y[:, 0], horizon=inf)
    assert np.isnan(free[:3]).all()
    np.testing.assert_array_equal(free[3:], found.simulate(NEW_U, NEW_Y[:3, 0])[3:])


def test_the_standard_deviation_is_that_of_a_measurement():
    found = quick().fit(U, Y[:, 0])
    mean, std = found.predict(NEW_U, NEW_Y[:, 0], return_std=True)
    model = found.model_.models[0]
    rows = model.narx.regressors({"y": NEW_Y[:, 0], "u1": NEW_U[:, 0], "u2": NEW_U[:, 1]}).regressor
    np.testing.assert_allclose(std[1:], np.sqrt(model.predict(rows).variance + model.gp.noise_variance))
    np.testing.assert_allclose(mean[1:], model.predict(rows).mean + NEW_Y[:-1, 0])
    path, spread = found.simulate(NEW_U, NEW_Y[:2, 0], return_std=True)
    assert (spread[:2] == 0).all()
    assert (spread[2:] >= np.sqrt(model.gp.noise_variance)).all()
    np.testing.assert_allclose(path, found.simulate(NEW_U, NEW_Y[:2, 0]), rtol=1e-10)


def test_the_propagation_is_chosen():
    rules = (None, Pathwise(), Taylor(), MeanOnly())
    means, spreads = zip(
        *(quick(propagation=rule).fit(U, Y[:, 0]).simulate(NEW_U, NEW_Y[:2, 0], return_std=True) for rule in rules),
        strict=True,
    )
    default, drawn, first_order, crude = spreads
    np.testing.assert_array_equal(default, drawn)
    assert default[4:].mean() > crude[4:].mean()
    assert (first_order[4:] > crude[4:]).all()
    for mean in means[1:]:
        np.testing.assert_array_equal(mean, means[0])


@pytest.mark.parametrize("horizon", [None, 1, 4])
def test_the_score_is_r2_after_the_window(horizon):
    found = quick(scoring_horizon=horizon).fit(U, Y)
    predicted = found.predict(NEW_U, NEW_Y, horizon=inf if horizon is None else horizon)
    start = horizon or 1
    assert found.score(NEW_U, NEW_Y) == pytest.approx(r2_score(NEW_Y[start:], predicted[start:]), rel=1e-12)
    assert found.score(NEW_U, NEW_Y) > 0.5


def test_records_stay_apart():
    """As lists, by groups, or as records of the package: the same rows, none from one record into another."""
    lengths = [18, 22]
    u, y = np.split(U, [18]), np.split(Y[:, 0], [18])
    by_list = quick(budget=50).fit(u, y)
    assert by_list.model_.origin.n_samples == 40 - 2
    by_group = quick(budget=50).fit(U, Y[:, 0], groups=np.repeat(["b", "a"], lengths))
    as_one = quick(budget=50).fit(U, Y[:, 0])
    assert as_one.model_.origin.n_samples == 40 - 1
    np.testing.assert_array_equal(by_list.predict(NEW_U), by_group.predict(NEW_U))
    assert not np.array_equal(by_list.predict(NEW_U), as_one.predict(NEW_U))
    paths = by_list.predict([NEW_U, NEW_U[:9]])
    np.testing.assert_array_equal(paths[0], by_list.predict(NEW_U))
    np.testing.assert_array_equal(paths[1], by_list.predict(NEW_U[:9]))
    starts = [NEW_Y[:2, 0], NEW_Y[:1, 0]]
    simulated = by_list.simulate([NEW_U, NEW_U[:9]], starts)
    np.testing.assert_array_equal(simulated[1], by_list.simulate(NEW_U[:9], starts[1]))
    both = by_list.score([NEW_U, NEW_U[:9]], [NEW_Y[:, 0], NEW_Y[:9, 0]])
    ahead = np.concatenate([by_list.predict(NEW_U[:n], NEW_Y[:n, 0], horizon=inf)[1:] for n in (25, 9)])
    assert both == pytest.approx(r2_score(np.concatenate([NEW_Y[1:, 0], NEW_Y[1:9, 0]]), ahead))


def test_a_training_learns_where_records_begin():
    """Rows of the second record do not follow those of the first."""
    seen = []

    class Watched(Identification):
        def observe_many(self, regressors, targets, *, follows=None):
            seen.append(follows)
            return super().observe_many(regressors, targets, follows=follows)

    from sysid.estimators import learning

    original = learning.Identification
    learning.Identification = Watched
    try:
        quick().fit(np.split(U, [18]), np.split(Y[:, 0], [18]))
    finally:
        learning.Identification = original
    (follows,) = seen
    assert np.flatnonzero(~follows).tolist() == [0, 17]


def test_without_inputs():
    rng = np.random.default_rng(4)
    y = np.zeros(60)
    for k in range(2, 60):
        y[k] = 1.6 * y[k - 1] - 0.9 * y[k - 2] + 0.05 * rng.normal()
    found = NarxGPRegressor(na=2, budget=15, training=QUICK).fit(None, y)
    assert found.model_.input_names == ()
    path = found.simulate(np.empty((20, 0)), y[:2])
    np.testing.assert_array_equal(path, found.simulate([np.empty((20, 0))], [y[:2]])[0])
    assert path.shape == (20,)
    assert found.predict(None, y).shape == (60,)
    assert found.score(None, y) == found.score(np.empty((60, 0)), y)
    with pytest.raises(ValueError, match=r"\(n, 0\)"):
        found.predict(None)


def test_columns_are_names():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(U, columns=["pump", "y"])
    found = quick(na=None, nb=None, output_lags=1, input_lags={"pump": 1}).fit(table, pandas.DataFrame(Y))
    assert found.model_.models[0].narx.feature_names == ("y1[k-1]", "y2[k-1]", "pump[k-1]")
    assert quick().fit(table, Y[:, 0]).model_.output_names == ("y_",)
    assert found.simulate(pandas.DataFrame(NEW_U, columns=table.columns), NEW_Y[:1]).shape == (25, 2)


def test_in_a_pipeline_and_a_search_over_time():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), quick(na=None, nb=1)),
        {"narxgpregressor__na": [1, 2], "narxgpregressor__nk": [1, 3]},
        cv=TimeSeriesSplit(2),
        error_score="raise",
    ).fit(U, Y[:, 0])
    assert search.best_params_["narxgpregressor__nk"] == 1
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(NEW_U).shape == (25,)
    assert search.score(NEW_U, NEW_Y[:, 0]) > 0.4


def test_its_model_can_be_kept(tmp_path):
    found = quick(sampling_time=0.5).fit(U, Y)
    found.model_.save(tmp_path / "model.nc")
    again = JointModel.load(tmp_path / "model.nc")
    assert again.origin.sampling_time == 0.5
    x = np.ones((2, 4))
    for one, other in zip(again.models, found.model_.models, strict=True):
        np.testing.assert_array_equal(one.predict(x).mean, other.predict(x).mean)


def test_a_divergence_is_told_and_is_no_number():
    """An unstable linear system: from some sample on there is nothing to predict."""
    u = np.random.default_rng(5).normal(size=(40, 1))
    y = np.zeros(40)
    for k in range(1, 40):
        y[k] = 1.1 * y[k - 1] + u[k - 1, 0]
    found = NarxGPRegressor(na=1, nb=1, budget=20, training=QUICK, kernel=LinearForm()).fit(u, y)
    long = np.ones((300, 1))
    with pytest.warns(UserWarning, match="diverged at sample"):
        path = found.simulate(long, y[:1])
    assert np.isnan(path[-1])
    assert np.isfinite(path[:20]).all()
    with pytest.warns(UserWarning, match="diverged"):
        assert found.score(long, np.sin(np.arange(300.0))) == -inf


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"output_lags": 2}, "na=1 say the same twice"),
        ({"input_lags": 2}, "nb=1 say the same twice"),
        ({"nb": None, "nk": 1, "input_lags": 2}, "nk=1 say the same twice"),
        ({"na": None, "output_lags": {"z": 1}}, r"output_lags: expected lags of \['y'\]"),
        ({"nb": [1, 1, 1]}, "one number nb"),
        ({"na": 0, "target": "change"}, "value"),
        ({"na": 40}, "at least 41 samples"),
        ({"na": 39}, "at least 2 samples after the largest lag 39, got 1"),
        ({"sampling_time": -1.0}, "sampling"),
    ],
)
def test_wrong_parameters_are_told_in_fit(parameters, words):
    with pytest.raises(ValueError, match=words):
        quick(**parameters).fit(U, Y[:, 0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda found: found.simulate(NEW_U), "expected the first outputs y_init"),
        (lambda found: found.simulate(NEW_U, []), "at least 1"),
        (lambda found: found.simulate(NEW_U[:2], NEW_Y[:2, 0]), "more than the 2 inputs"),
        (lambda found: found.simulate(NEW_U, [np.nan]), "not finite"),
        (lambda found: found.simulate(NEW_U, NEW_Y[:2]), "y_init"),
        (lambda found: found.simulate([NEW_U, NEW_U], [NEW_Y[:1, 0]]), "each of 2 records, got 1"),
        (lambda found: found.predict(NEW_U, horizon=2), "expected measured outputs"),
        (lambda found: found.predict(NEW_U, NEW_Y), r"expected 1 outputs \['y'\], got 2"),
        (lambda found: found.predict(NEW_U, NEW_Y[:, 0], horizon=0), "horizon"),
        (lambda found: found.predict(NEW_U, NEW_Y[:, 0], horizon=25), "window and horizon"),
        (lambda found: found.predict(NEW_U[:, :1]), "features"),
        (lambda found: found.predict(None, NEW_Y[:, 0]), "expected 2 inputs"),
        (lambda found: found.score(NEW_U), "expected measured outputs"),
        (lambda found: found.fit([U, U], [Y]), "record by record"),
        (lambda found: found.fit([U, U[:, :1]], [Y, Y]), "same channels"),
        (lambda found: found.fit(U, Y[:, 0], groups=[1, 2]), "one label for each of the 40"),
        (lambda found: found.fit(U, Y[:, 0], groups=[0, 1] * 20), "in one piece"),
        (lambda found: found.fit(Recorded(U, Y, 1.0), Y), "leave y and groups out"),
        (lambda found: found.fit([Recorded(U, Y, 1.0), Recorded(U, Y, 2.0)]), "one sampling time"),
        (lambda found: found.fit(Recorded(U, Y, 1.0)).score(Recorded(U, Y, 2.0)), "one sampling time"),
        (lambda found: found.fit(Recorded(U, Y, 1.0)).simulate(Recorded(U, Y, 2.0), Y[:1]), "one sampling time"),
        (lambda found: found.set_params(sampling_time=2.0).fit(Recorded(U, Y, 1.0)), "one sampling time"),
    ],
)
def test_wrong_signals_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(quick().fit(U, Y[:, 0]))


class Recorded:
    """What is read of a record of the package `nonlinear_benchmarks`."""

    def __init__(self, u, y, sampling_time, window=None):
        self.u, self.y, self.sampling_time, self.name = u, y, sampling_time, ""
        self.state_initialization_window_length = window


def test_records_of_the_package_bring_what_they_know():
    found = quick().fit(Recorded(U, Y[:, 0], np.array([0.5])))
    np.testing.assert_array_equal(found.predict(NEW_U), quick().fit(U, Y[:, 0]).predict(NEW_U))
    assert found.model_.origin.sampling_time == 0.5
    record = Recorded(NEW_U, NEW_Y[:, 0], 0.5, window=4)
    np.testing.assert_array_equal(found.simulate(record), found.simulate(NEW_U, NEW_Y[:4, 0]))
    np.testing.assert_array_equal(found.predict(record), found.predict(NEW_U, NEW_Y[:, 0]))
    assert found.score([record]) == found.score(NEW_U, NEW_Y[:, 0])
    one_input = quick().fit(Recorded(U[:, 0], Y[:, 0], None))
    assert one_input.n_features_in_ == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_real_tanks_are_scored_alike_by_the_benchmark(shared_data):
    """The official record in, predictions out, scored by the functions of the package and by ours."""
    metrics = pytest.importorskip("nonlinear_benchmarks.error_metrics")
    recordings = CascadedTanksData(path=str(shared_data / "cascaded_tanks")).load()
    exchanged = to_nonlinear_benchmarks(recordings)
    n = 60 if PLAIN else None
    estimation = exchanged.estimation[0] if n is None else exchanged.estimation[0][:n]
    found = NarxGPRegressor(na=2, nb=2, nk=1, budget=20, training=replace(QUICK, n_initial=40)).fit(estimation)
    assert found.model_.origin.sampling_time == 4.0
    test = exchanged.test[0]
    window = test.state_initialization_window_length
    path = found.simulate(test)
    np.testing.assert_array_equal(path[:window], test.y[:window])
    ours = validate(test.y[window:], path[window:], window=window)
    assert metrics.RMSE(test, path) == pytest.approx(ours.rmse, rel=1e-12)
    assert metrics.NRMSE(test, path) == pytest.approx(ours.nrmse, rel=1e-12)
    assert metrics.fit_index(test, path) == pytest.approx(ours.fit_percent, rel=1e-12)
    assert metrics.fit_index(test, path) == pytest.approx(fit_percent(test.y[window:], path[window:]), rel=1e-12)
    assert metrics.R_squared(test, path) == pytest.approx(ours.r2, rel=1e-12)
    assert ours.window == window > 0


def test_parameters_of_both_estimators_are_named_alike():
    from sysid.estimators import OnlineGPRegressor

    shared = set(inspect.signature(OnlineGPRegressor).parameters)
    assert shared < set(inspect.signature(NarxGPRegressor).parameters)
