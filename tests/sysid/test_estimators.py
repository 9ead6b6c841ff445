"""Both estimators as scikit-learn knows them, the online Gaussian process also as river knows its
models.
"""

import copy
import pickle
import sys
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import sysid
from sysid import Identification
from sysid.estimators import EXEMPTED_CHECKS, NarxGPRegressor, OnlineGPRegressor
from sysid.gp.formula import JIT_DISABLED

QUICK = sysid.MaximumLikelihood(n_initial=12, restarts=1, max_iterations=6)
SMALL = [
    OnlineGPRegressor(budget=30, training=replace(QUICK, n_initial=20, max_iterations=20)),
    NarxGPRegressor(budget=20, training=QUICK),
]


def exempted(estimator):
    return EXEMPTED_CHECKS if isinstance(estimator, NarxGPRegressor) else {}


@pytest.mark.skipif(JIT_DISABLED, reason="the interface is the same without the compiler")
@parametrize_with_checks(SMALL, expected_failed_checks=exempted)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([OnlineGPRegressor(), NarxGPRegressor()], expected_failed_checks=exempted)
def test_checks_of_scikit_learn_with_default_settings(estimator, check):
    check(estimator)


def same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


# --- the online Gaussian process ------------------------------------------------------------------


def rows(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) * [1.0, 4.0] + [0.0, 10.0]
    return x, np.sin(x[:, 0]) + 0.2 * x[:, 1] + 0.01 * rng.normal(size=n)


def online(**parameters):
    return OnlineGPRegressor(**({"budget": 10, "training": QUICK} | parameters))


X, T = rows()


def test_it_is_the_identification():
    """The same bits as the loop of the toolbox: no second implementation."""
    narx = sysid.Narx({"y": []}, {"x0": [0], "x1": [0]}, predict="value")
    chosen = {"insertion": sysid.ErrorThreshold(0.02), "mean": sysid.LinearMean()}
    identification = Identification(
        narx, sysid.Settings(training=QUICK, budget=10, seed=7, **chosen)
    )
    identification.observe_many(X, T)
    found = online(random_state=7, **chosen).fit(X, T)
    mean, variance = identification.model.predict(X)
    same(
        found.predict(X, return_std=True),
        (mean, np.sqrt(variance + identification.model.gp.noise_variance)),
    )
    assert found.models_[0].narx == narx
    assert (found.n_outputs_, found.n_samples_seen_, found.n_features_in_) == (1, 40, 2)


def test_in_parts_or_one_by_one_it_learns_the_same_and_fit_forgets():
    whole = online().fit(X, T)
    parts = online()
    single = online()
    for part in np.split(np.arange(40), [3, 11, 20]):
        parts.partial_fit(X[part], T[part])
    for point, target in zip(X, T, strict=True):
        assert single.learn_one({"x0": point[0], "x1": point[1]}, target) is single
    first = online().fit(X[:20], T[:20])
    copies = [pickle.loads(pickle.dumps(first)), copy.deepcopy(first)]
    for other in (
        parts,
        single,
        *(one.partial_fit(X[20:], T[20:]) for one in copies),
        first.fit(X, T),
    ):
        same(other.models_[0].predict(X), whole.models_[0].predict(X))
        assert other.n_samples_seen_ == 40


def test_a_small_batch_trains_on_all_of_it():
    found, expected = (
        online(training=replace(QUICK, n_initial=n)).fit(X[:9], T[:9]) for n in (12, 9)
    )
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_outputs_share_the_rows_and_nothing_else():
    mean, std = online().fit(X, np.column_stack([T, -(T**2)])).predict(X, return_std=True)
    for i, target in enumerate((T, -(T**2))):
        same((mean[:, i], std[:, i]), online().fit(X, target).predict(X, return_std=True))
    assert online().fit(X, T[:, None]).predict(X).shape == (40, 1)


def test_before_it_is_trained_it_knows_the_targets():
    found = online()
    with pytest.raises(NotFittedError):
        found.predict(X)
    assert found.predict_one({"a": 1.0, "b": 2.0}) == 0.0
    found.partial_fit(X[:5], T[:5])
    same(
        found.predict(X[:3], return_std=True),
        (np.full(3, T[:5].mean()), np.full(3, T[:5].std())),
    )
    with pytest.raises(ValueError, match="as before"):
        found.partial_fit(X, T[:, None])


def test_kernel_scales_and_seed_are_chosen():
    found = online(kernel=sysid.Matern52(), standardise=False).fit(X, T).models_[0]
    assert isinstance(found.gp.kernel, sysid.Matern52)
    np.testing.assert_array_equal(found.scaling.transform(X), X)
    training = replace(QUICK, restarts=3, max_iterations=3)
    states = (np.random.RandomState(1), np.random.RandomState(1), 5)
    first, second, other = (
        online(training=training, random_state=state).fit(X, T).predict(X) for state in states
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


STREAM = [({"a": a, "b": b}, target) for (a, b), target in zip(X[:20], T[:20], strict=True)]


def learned(samples=STREAM):
    found = online()
    for sample in samples:
        found.learn_one(*sample)
    return found


def test_river_goes_by_name():
    found, (x, _) = learned(), STREAM[3]
    assert isinstance(found.predict_one(x), float)
    assert found.predict_one({"b": x["b"], "a": x["a"]}) == found.predict_one(x)
    assert found.models_[0].narx.input_names == ("a", "b")
    odd = learned(({0: x["a"], "y": x["b"]}, y) for x, y in STREAM).models_[0].narx
    assert (odd.feature_names, odd.target) == (("0[k]", "y[k]"), "y_")
    both = learned((x, {"cold": -y, "warm": y}) for x, y in STREAM)
    assert list(both.predict_one(x)) == ["cold", "warm"]
    assert both.predict_one(x)["warm"] == found.predict_one(x)


def test_a_bad_sample_teaches_nothing():
    found = learned()
    good = {"a": 1.0, "b": 2.0}
    before = found.models_[0].gp.state()
    for x, y, words in (
        ({"a": 1.0}, 1.0, r"missing \['b'\]"),
        (good | {"c": 3.0}, 1.0, r"new \['c'\]"),
        (good | {"b": np.nan}, 1.0, "not finite"),
        (good, np.inf, "not finite"),
        (good, {"y": 1.0}, "one number"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            found.learn_one(x, y)
    np.testing.assert_equal(found.models_[0].gp.state(), before)
    assert found.n_samples_seen_ == 20
    fresh = online()
    for first in (({}, 1.0), ({"a": np.nan}, 1.0), ({"a": 1.0}, {"y": np.nan})):
        with pytest.raises(ValueError, match=r"expected|not finite"):
            fresh.learn_one(*first)
    assert vars(fresh) == vars(online())


@pytest.mark.parametrize("is_old", [False, True])
def test_a_missing_or_old_scikit_learn_is_told(is_old, monkeypatch):
    import sklearn.utils.validation

    if is_old:
        monkeypatch.delattr(sklearn.utils.validation, "validate_data")
    for name in [name for name in sys.modules if name.startswith("sysid.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [
        name for name in sys.modules if name.partition(".")[0] == "sklearn" and not is_old
    ]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'1\.6 or newer .*pip install -e "\.\[sklearn\]"'):
        import sysid.estimators  # noqa: F401


# --- identification of a dynamic system -----------------------------------------------------------


def records(n=40, seed=0):
    """Two inputs and two outputs of a system whose first output needs u[k-1], y[k-1]."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, 2))
    y = np.zeros((n, 2))
    for k in range(1, n):
        y[k, 0] = 0.6 * y[k - 1, 0] + np.tanh(u[k - 1, 0]) + 0.1 * y[k - 1, 1]
        y[k, 1] = 0.5 * y[k - 1, 1] + u[k - 1, 1]
    return u, y + 0.01 * rng.normal(size=y.shape)


def dynamic(**parameters):
    return NarxGPRegressor(**({"na": 1, "nb": 1, "budget": 10, "training": QUICK} | parameters))


U, Y = records()
Y1 = Y[:, 0]
NEW_U, NEW_Y = records(25, seed=1)
NEW_Y1 = NEW_Y[:, 0]


def test_it_is_the_identification_of_the_lagged_rows():
    """The same bits as the loop of the toolbox."""
    narx = sysid.Narx({"y": 2}, {"u1": 2, "u2": 2}, predict="change")
    lagged = narx.regressors({"y": Y1, "u1": U[:, 0], "u2": U[:, 1]})
    known = QUICK.know(lagged.regressor, lagged.target, mean=sysid.AutomaticMean(), seed=3)
    identification = Identification(
        narx, sysid.Settings(training=QUICK, budget=10, seed=3), start=known
    )
    identification.observe_many(lagged.regressor, lagged.target)
    found = (
        NarxGPRegressor(budget=10, training=QUICK, random_state=3, sampling_time=0.5)
        .fit(U, Y1)
        .model_
    )
    assert found.models[0].narx == narx
    same(
        found.models[0].predict(lagged.regressor),
        identification.model.predict(lagged.regressor),
    )
    assert (found.origin.n_samples, found.origin.sampling_time) == (38, 0.5)


@pytest.mark.parametrize(
    ("orders", "lags"),
    [
        ({"na": 2, "nb": 3, "nk": 1}, {"output_lags": 2, "input_lags": 3}),
        (
            {"na": 1, "nb": [2, 1], "nk": [0, 3]},
            {"output_lags": [1], "input_lags": {"u1": [0, 1], "u2": [3]}},
        ),
        ({"na": 1, "nb": [1, 0], "nk": 1}, {"output_lags": 1, "input_lags": {"u1": 1}}),
        (
            {"na": 0, "nb": 2, "nk": 0},
            {"output_lags": [], "input_lags": [0, 1], "target": "value"},
        ),
    ],
)
def test_orders_and_lags_say_the_same(orders, lags):
    free = {"na": None, "nb": None}
    one, other = (dynamic(**(free | given)).fit(U, Y1) for given in (orders, lags))
    assert one.model_.models[0].narx == other.model_.models[0].narx
    assert one.model_.models[0].narx.predict.value == ("change" if orders["na"] else "value")
    np.testing.assert_array_equal(one.predict(NEW_U), other.predict(NEW_U))


def test_an_input_without_lags_is_not_looked_at():
    found = dynamic(nb=[0, 1]).fit(U, Y[:, 1])
    assert found.model_.input_names == ("u2",)
    paths = [
        found.simulate(NEW_U * factor, NEW_Y[:2, 1])
        for factor in ([1.0, 1.0], [5.0, 1.0], [1.0, 5.0])
    ]
    assert [np.array_equal(path, paths[0]) for path in paths] == [True, True, False]


def naive_simulation(model, u, first, start):
    """One prediction after the other, lags of 1."""
    y = [*first]
    for k in range(start, len(u)):
        x = np.concatenate([y[k - 1], u[k - 1]])[None]
        y.append(y[k - 1] + [one.predict(x).mean[0] for one in model.models])
    return np.array(y)


def test_a_simulation_feeds_back_what_it_predicted():
    """From the outputs given, or from their mean in estimation."""
    found = dynamic().fit(U, Y)
    single = dynamic().fit(U, Y1)
    path = found.simulate(NEW_U, NEW_Y[:3])
    np.testing.assert_array_equal(path[:3], NEW_Y[:3])
    np.testing.assert_allclose(
        path, naive_simulation(found.model_, NEW_U, NEW_Y[:3], 3), rtol=1e-10
    )
    naive = naive_simulation(single.model_, NEW_U, NEW_Y[:1, :1], 1)[:, 0]
    np.testing.assert_allclose(single.simulate(NEW_U, NEW_Y1[:1]), naive, rtol=1e-10)
    u = np.concatenate([NEW_U[:1], NEW_U])
    np.testing.assert_allclose(
        found.predict(NEW_U), naive_simulation(found.model_, u, [Y.mean(axis=0)], 1)[1:]
    )


@pytest.mark.parametrize("horizon", [None, 1, 2, 5])
def test_ahead_it_starts_from_what_was_measured(horizon):
    found = dynamic(scoring_horizon=horizon).fit(U, Y)
    steps = horizon or 1
    ahead = found.predict(NEW_U, NEW_Y, horizon=horizon)
    assert np.isnan(ahead[:steps]).all()
    for k in range(steps, len(NEW_U)):
        path = naive_simulation(found.model_, NEW_U[: k + 1], NEW_Y[: k - steps + 1], k - steps + 1)
        np.testing.assert_allclose(ahead[k], path[-1], rtol=1e-9)
    scored = found.predict(NEW_U, NEW_Y, horizon=inf) if horizon is None else ahead
    assert found.score(NEW_U, NEW_Y) == pytest.approx(
        r2_score(NEW_Y[steps:], scored[steps:]), rel=1e-12
    )
    assert found.score(NEW_U, NEW_Y) > 0.5
    far = dynamic(na=2, nk=3).fit(U, Y1)
    free = far.predict(NEW_U, NEW_Y1, horizon=inf)
    assert np.isnan(free[:3]).all()
    np.testing.assert_array_equal(free[3:], far.simulate(NEW_U, NEW_Y1[:3])[3:])


def test_the_standard_deviation_is_that_of_a_measurement_and_grows_by_the_rule():
    found = [
        dynamic(propagation=rule).fit(U, Y1)
        for rule in (None, sysid.Pathwise(), sysid.Taylor(), sysid.MeanOnly())
    ]
    mean, std = found[0].predict(NEW_U, NEW_Y1, return_std=True)
    model = found[0].model_.models[0]
    lagged = model.narx.regressors({"y": NEW_Y1, "u1": NEW_U[:, 0], "u2": NEW_U[:, 1]}).regressor
    np.testing.assert_allclose(
        std[1:], np.sqrt(model.predict(lagged).variance + model.gp.noise_variance)
    )
    np.testing.assert_allclose(mean[1:], model.predict(lagged).mean + NEW_Y1[:-1])
    means, spreads = zip(
        *(one.simulate(NEW_U, NEW_Y1[:2], return_std=True) for one in found),
        strict=True,
    )
    default, drawn, first_order, crude = spreads
    assert (default[:2] == 0).all()
    assert (default[2:] >= np.sqrt(model.gp.noise_variance)).all()
    np.testing.assert_array_equal(default, drawn)
    assert default[4:].mean() > crude[4:].mean()
    assert (first_order[4:] > crude[4:]).all()
    np.testing.assert_allclose(means, [found[0].simulate(NEW_U, NEW_Y1[:2])] * 4, rtol=1e-10)


def test_records_stay_apart(monkeypatch):
    """As lists or by groups: the same rows, none from one record into another, and the training is
    told.
    """
    seen = []
    observe_many = Identification.observe_many

    def watched(self, regressors, targets, *, follows=None):
        seen.append(follows)
        return observe_many(self, regressors, targets, follows=follows)

    monkeypatch.setattr(Identification, "observe_many", watched)
    u = np.split(U, [18])
    y = np.split(Y1, [18])
    by_list = dynamic(budget=50).fit(u, y)
    assert np.flatnonzero(~seen[0]).tolist() == [0, 17]
    by_group = dynamic(budget=50).fit(U, Y1, groups=np.repeat(["b", "a"], [18, 22]))
    as_one = dynamic(budget=50).fit(U, Y1)
    assert [one.model_.origin.n_samples for one in (by_list, by_group, as_one)] == [
        38,
        38,
        39,
    ]
    np.testing.assert_array_equal(by_list.predict(NEW_U), by_group.predict(NEW_U))
    assert not np.array_equal(by_list.predict(NEW_U), as_one.predict(NEW_U))
    two = [NEW_U, NEW_U[:9]]
    starts = [NEW_Y1[:2], NEW_Y1[:1]]
    same(by_list.predict(two), [by_list.predict(one) for one in two])
    same(
        by_list.simulate(two, starts),
        [by_list.simulate(*pair) for pair in zip(two, starts, strict=True)],
    )
    ahead = np.concatenate(
        [by_list.predict(NEW_U[:n], NEW_Y1[:n], horizon=inf)[1:] for n in (25, 9)]
    )
    measured = np.concatenate([NEW_Y1[1:], NEW_Y1[1:9]])
    assert by_list.score(two, [NEW_Y1, NEW_Y1[:9]]) == pytest.approx(r2_score(measured, ahead))


def test_without_inputs():
    rng = np.random.default_rng(4)
    y = np.zeros(60)
    for k in range(2, 60):
        y[k] = 1.6 * y[k - 1] - 0.9 * y[k - 2] + 0.05 * rng.normal()
    found = NarxGPRegressor(na=2, budget=15, training=QUICK).fit(None, y)
    path = found.simulate(np.empty((20, 0)), y[:2])
    np.testing.assert_array_equal(path, found.simulate([np.empty((20, 0))], [y[:2]])[0])
    assert found.score(None, y) == found.score(np.empty((60, 0)), y)
    with pytest.raises(ValueError, match=r"\(n, 0\)"):
        found.predict(None)


def test_columns_are_names_for_both():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(U, columns=["pump", "y"], index=range(5, 45))
    found = dynamic(na=None, nb=None, output_lags=1, input_lags={"pump": 1}).fit(
        table, pandas.DataFrame(Y)
    )
    assert found.model_.models[0].narx.feature_names == (
        "y1[k-1]",
        "y2[k-1]",
        "pump[k-1]",
    )
    assert dynamic().fit(table, Y1).model_.output_names == ("y_",)
    found = online().fit(table, pandas.Series(T))
    assert found.models_[0].narx.input_names == ("pump", "y")
    assert found.learn_one({"y": 1.0, "pump": 2.0}, 3.0).n_samples_seen_ == 41
    with pytest.raises(ValueError, match="feature names"):
        found.predict(table.rename(columns={"pump": "valve"}))


def test_a_divergence_is_told_and_is_no_number():
    """An unstable linear system: from some sample on there is nothing to predict."""
    u = np.random.default_rng(5).normal(size=(40, 1))
    y = np.zeros(40)
    for k in range(1, 40):
        y[k] = 1.1 * y[k - 1] + u[k - 1, 0]
    found = dynamic(budget=20, kernel=sysid.Linear()).fit(u, y)
    long = np.ones((300, 1))
    with pytest.warns(UserWarning, match="diverged at sample"):
        path = found.simulate(long, y[:1])
    assert np.isfinite(path[:20]).all()
    with pytest.warns(UserWarning, match="diverged"):
        assert found.score(long, np.sin(np.arange(300.0))) == -inf
    found.model_ = sysid.JointModel((replace(found.model_.models[0], limits=(-99.0, 99.0)),))
    with pytest.warns(UserWarning, match="samples are held at a limit"):
        assert found.simulate(long, y[:1]).max() == 99.0
    with pytest.warns(UserWarning, match="samples are held at a limit"):
        found.score(long, np.sin(np.arange(300.0)))


class Recorded:
    """What is read of a record of the package `nonlinear_benchmarks`."""

    def __init__(self, u, y, sampling_time, window=None):
        self.u = u
        self.y = y
        self.sampling_time = sampling_time
        self.name = ""
        self.state_initialization_window_length = window


def test_records_of_the_package_bring_what_they_know():
    found = dynamic().fit(Recorded(U, Y1, np.array([0.5])))
    assert found.model_.origin.sampling_time == 0.5
    record = Recorded(NEW_U, NEW_Y1, 0.5, window=4)
    np.testing.assert_array_equal(found.simulate(record), found.simulate(NEW_U, NEW_Y1[:4]))
    assert found.score([record]) == found.score(NEW_U, NEW_Y1)
    assert dynamic().fit(Recorded(U[:, 0], Y1, None)).n_features_in_ == 1


# --- what is refused ------------------------------------------------------------------------------


ONE = Recorded(U, Y, 1.0)
OTHER = Recorded(U, Y, 2.0)


def wrong(estimator, **parameters):
    return lambda found: estimator(**parameters).fit(U, Y1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (wrong(online, training="fixed"), "training must be a Training"),
        (
            wrong(online, kernel=sysid.SquaredExponential(1.0, [1.0])),
            "kernel must be a prototype",
        ),
        (wrong(online, random_state=-1), "non-negative"),
        (wrong(dynamic, output_lags=2), "na=1"),
        (wrong(dynamic, nb=None, nk=1, input_lags=2), "nk=1"),
        (wrong(dynamic, na=None, output_lags={"z": 1}), r"output_lags.*\['z'\]"),
        (wrong(dynamic, na=40), "at least 41 samples"),
        (wrong(dynamic, na=39), "at least 2 samples after the largest lag 39, got 1"),
        (lambda found: found.simulate(NEW_U), "y_init"),
        (
            lambda found: found.simulate(NEW_U[:2], NEW_Y[:2, 0]),
            "more than the 2 inputs",
        ),
        (
            lambda found: found.simulate([NEW_U, NEW_U], [NEW_Y[:1, 0]]),
            "each of 2 records, got 1",
        ),
        (lambda found: found.predict(NEW_U, horizon=2), "measured outputs"),
        (lambda found: found.predict(NEW_U, NEW_Y), r"\['y'\], got 2"),
        (lambda found: found.predict(NEW_U, NEW_Y1, horizon=25), "window and horizon"),
        (lambda found: found.predict(None, NEW_Y1), "2 inputs"),
        (lambda found: found.fit([U, U], [Y]), "record by record"),
        (lambda found: found.fit([U, U[:, :1]], [Y, Y]), "same channels"),
        (lambda found: found.fit(U, Y1, groups=[1, 2]), "groups.* 40"),
        (lambda found: found.fit(ONE, Y), "leave y and groups out"),
        (
            lambda found: found.set_params(sampling_time=2.0).fit(ONE),
            "one sampling time",
        ),
        (lambda found: found.fit(U, Y1, groups=[0, 1] * 20), "groups.*one piece"),
        (lambda found: found.fit([ONE, OTHER]), "one sampling time"),
        (lambda found: found.fit(ONE).score(OTHER), "one sampling time"),
    ],
)
def test_wrong_parameters_and_signals_are_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(dynamic().fit(U, Y1))
