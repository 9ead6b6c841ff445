"""The online Gaussian process as scikit-learn and river know their models."""

import copy
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sysid import OnlineGP, SquaredExponential
from sysid.estimators import OnlineGPRegressor
from sysid.export import export_python
from sysid.formula import PLAIN
from sysid.identify import Identification, Settings
from sysid.insertion import ErrorThreshold
from sysid.kernels import Matern52, Matern52Form
from sysid.mean import LinearMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.training import Fixed, MaximumLikelihood

QUICK = MaximumLikelihood(n_initial=12, restarts=1, max_iterations=6)
SMALL = OnlineGPRegressor(budget=30, training=MaximumLikelihood(n_initial=20, restarts=1, max_iterations=20))


@pytest.mark.skipif(PLAIN, reason="the interface is the same without the compiler")
@parametrize_with_checks([SMALL])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([OnlineGPRegressor()])
def test_checks_of_scikit_learn_with_default_settings(estimator, check):
    check(estimator)


def rows(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) * [1.0, 4.0] + [0.0, 10.0]
    return x, np.sin(x[:, 0]) + 0.2 * x[:, 1] + 0.01 * rng.normal(size=n)


def quick(**parameters):
    return OnlineGPRegressor(**({"budget": 10, "training": QUICK} | parameters))


def same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_it_is_the_identification():
    """The same bits as the loop of the toolbox: no second implementation."""
    x, y = rows()
    narx = Narx({"y": []}, {"x0": [0], "x1": [0]}, predict="value")
    chosen = {"insertion": ErrorThreshold(0.02), "mean": LinearMean()}
    identification = Identification(narx, Settings(training=QUICK, budget=10, seed=7, **chosen))
    identification.observe_many(x, y)
    found = quick(random_state=7, **chosen).fit(x, y)
    mean, variance = identification.model.predict(x)
    same(found.predict(x, return_std=True), (mean, np.sqrt(variance + identification.model.gp.noise_variance)))
    assert found.models_[0].narx == narx
    assert (found.n_outputs_, found.n_samples_seen_, found.n_features_in_) == (1, 40, 2)


def test_in_parts_or_one_by_one_it_learns_the_same():
    x, y = rows()
    whole, parts, single = quick().fit(x, y), quick(), quick()
    for part in np.split(np.arange(40), [3, 11, 20]):
        parts.partial_fit(x[part], y[part])
    for point, target in zip(x, y, strict=True):
        assert single.learn_one({"x0": point[0], "x1": point[1]}, target) is single
    same(parts.predict(x, return_std=True), whole.predict(x, return_std=True))
    for other in (parts, single):
        np.testing.assert_array_equal(other.models_[0].predict(x).mean, whole.predict(x))
    assert parts.n_samples_seen_ == single.n_samples_seen_ == 40


def test_fit_forgets():
    x, y = rows()
    again = quick().partial_fit(x, 100 - y).fit(x, y)
    np.testing.assert_array_equal(again.predict(x), quick().fit(x, y).predict(x))


def test_after_fit_it_goes_on():
    x, y = rows()
    gone_on = quick().fit(x[:20], y[:20]).partial_fit(x[20:], y[20:])
    np.testing.assert_array_equal(gone_on.predict(x), quick().fit(x, y).predict(x))


def test_a_small_batch_trains_on_all_of_it():
    x, y = rows(9)
    found = quick().fit(x, y)
    assert found.models_[0].gp.n_points == 9
    expected = quick(training=replace(QUICK, n_initial=9)).fit(x, y)
    np.testing.assert_array_equal(found.predict(x), expected.predict(x))


def test_outputs_share_the_rows_and_nothing_else():
    x, y = rows()
    both = quick().fit(x, np.column_stack([y, -(y**2)]))
    mean, std = both.predict(x, return_std=True)
    for i, target in enumerate((y, -(y**2))):
        same((mean[:, i], std[:, i]), quick().fit(x, target).predict(x, return_std=True))
    assert [model.narx.target for model in both.models_] == ["y1", "y2"]
    assert quick().fit(x, y[:, None]).predict(x).shape == (40, 1)


def test_before_it_is_trained_it_knows_the_targets():
    x, y = rows()
    found = quick().partial_fit(x[:5], y[:5])
    assert found.models_ == ()
    same(found.predict(x[:3], return_std=True), (np.full(3, y[:5].mean()), np.full(3, y[:5].std())))
    found.partial_fit(x[5:12], y[5:12])
    assert len(found.models_) == 1
    both = quick().partial_fit(x[:5], np.column_stack([y, -y])[:5])
    np.testing.assert_allclose(both.predict(x[:1]), [[y[:5].mean(), -y[:5].mean()]])


def test_what_it_learned_it_predicts():
    x, y = rows(90)
    found = OnlineGPRegressor(budget=40, training=replace(QUICK, n_initial=30, max_iterations=30)).fit(x, y)
    new, target = rows(50, seed=1)
    mean, std = found.predict(new, return_std=True)
    assert found.score(new, target) > 0.95
    assert np.mean(np.abs(mean - target) < 3 * std) > 0.9


def test_kernel_and_scales_are_chosen():
    x, y = rows()
    found = quick(kernel=Matern52Form(), standardise=False).fit(x, y).models_[0]
    assert isinstance(found.gp.kernel, Matern52)
    np.testing.assert_array_equal(found.scaling.transform(x), x)
    fixed = quick(training=Fixed(1.0, [1.0, 4.0], 0.01), kernel=Matern52Form()).fit(x, y).models_[0]
    assert fixed.gp.kernel == Matern52(1.0, [1.0, 4.0])


def test_the_seed():
    x, y = rows()
    training = MaximumLikelihood(n_initial=12, restarts=3, max_iterations=3)
    first, second, other = (
        quick(training=training, random_state=state).fit(x, y).predict(x)
        for state in (np.random.RandomState(1), np.random.RandomState(1), 5)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"training": "fixed"}, TypeError, "training must be a Training"),
        ({"kernel": SquaredExponential(1.0, [1.0])}, TypeError, "kernel must be a form"),
        ({"budget": 1}, ValueError, "budget"),
        ({"random_state": -1}, ValueError, "non-negative"),
    ],
)
def test_wrong_parameters_are_told_in_fit(parameters, error, words):
    with pytest.raises(error, match=words):
        quick(**parameters).fit(*rows())


def test_other_targets_are_refused():
    x, y = rows()
    with pytest.raises(ValueError, match="as before"):
        quick().partial_fit(x, y).partial_fit(x, y[:, None])
    with pytest.raises(NotFittedError):
        quick().predict(x)


def stream(n=20):
    x, y = rows(n)
    return [({"a": a, "b": b}, target) for (a, b), target in zip(x, y, strict=True)]


def test_river_starts_at_zero_and_goes_by_name():
    found = quick()
    assert found.predict_one({"a": 1.0, "b": 2.0}) == 0.0
    for x, y in stream():
        found.learn_one(x, y)
    x, _ = stream()[3]
    assert isinstance(found.predict_one(x), float)
    assert found.predict_one({"b": x["b"], "a": x["a"]}) == found.predict_one(x)
    assert found.feature_names_in_.tolist() == ["a", "b"]
    assert found.models_[0].narx.input_names == ("a", "b")


def test_names_of_features_may_be_anything_and_y():
    found = quick()
    for x, y in stream():
        found.learn_one({0: x["a"], "y": x["b"]}, y)
    assert found.models_[0].narx.feature_names == ("0[k]", "y[k]")
    assert found.models_[0].narx.target == "y_"


def test_columns_are_names():
    pandas = pytest.importorskip("pandas")
    x, y = rows()
    table = pandas.DataFrame(x, columns=["warm", "cold"], index=range(5, 45))
    found = quick().fit(table, pandas.Series(y))
    assert found.models_[0].narx.input_names == ("warm", "cold")
    np.testing.assert_array_equal(found.predict(table), quick().fit(x, y).predict(x))
    assert found.learn_one({"cold": 1.0, "warm": 2.0}, 3.0).n_samples_seen_ == 41
    with pytest.raises(ValueError, match="feature names"):
        found.predict(table.rename(columns={"warm": "hot"}))


def test_several_targets_by_name():
    found, alone = quick(), quick()
    for x, y in stream():
        found.learn_one(x, {"cold": -y, "warm": y})
        alone.learn_one(x, y)
    x, _ = stream()[0]
    prediction = found.predict_one(x)
    assert list(prediction) == ["cold", "warm"]
    assert prediction["warm"] == alone.predict_one(x)
    found.learn_one(x, {"warm": 1.0, "cold": 2.0})


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ({"a": 1.0}, 1.0, r"missing \['b'\]"),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, 1.0, r"new \['c'\]"),
        ({"a": 1.0, "b": np.nan}, 1.0, "not finite"),
        ({"a": 1.0, "b": "2"}, 1.0, "real numbers"),
        ({"a": 1.0, "b": 2.0}, np.inf, "not finite"),
        ({"a": 1.0, "b": 2.0}, {"y": 1.0}, "one number"),
    ],
)
def test_a_bad_sample_teaches_nothing(x, y, words):
    found = quick()
    for sample in stream():
        found.learn_one(*sample)
    before = found.models_[0].gp.state()
    with pytest.raises((ValueError, TypeError), match=words):
        found.learn_one(x, y)
    np.testing.assert_equal(found.models_[0].gp.state(), before)
    assert found.n_samples_seen_ == 20


def test_a_bad_first_sample_leaves_it_as_it_was():
    found = quick()
    for x, y in (({}, 1.0), ({"a": np.nan}, 1.0), ({"a": 1.0}, {"y": np.nan})):
        with pytest.raises(ValueError, match=r"expected|not finite"):
            found.learn_one(x, y)
    assert vars(found) == vars(quick())


def test_in_a_pipeline_and_a_search():
    x, y = rows()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), quick()),
        {"onlinegpregressor__budget": [3, 12], "onlinegpregressor__kernel": [None, Matern52Form()]},
        cv=2,
        error_score="raise",
    ).fit(x, y)
    assert search.best_params_["onlinegpregressor__budget"] == 12
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_clones_are_as_new():
    found = quick(kernel=Matern52Form()).fit(*rows())
    again = clone(found)
    assert again.get_params()["kernel"] == Matern52Form()
    assert not again.__sklearn_is_fitted__()


def test_its_models_can_be_kept(tmp_path):
    x, y = rows()
    found = quick().fit(x, y)
    found.models_[0].save(tmp_path / "model.nc")
    np.testing.assert_array_equal(Model.load(tmp_path / "model.nc").predict(x).mean, found.predict(x))
    assert export_python(found.models_[0], tmp_path / "model.py").is_file()


@pytest.mark.parametrize("copied", [lambda found: pickle.loads(pickle.dumps(found)), copy.deepcopy])
def test_copies_go_their_own_ways(copied):
    x, y = rows()
    found = quick().fit(x[:20], y[:20])
    again, before = copied(found), found.predict(x)
    again.partial_fit(x[20:], y[20:])
    np.testing.assert_array_equal(found.predict(x), before)
    np.testing.assert_array_equal(again.predict(x), found.partial_fit(x[20:], y[20:]).predict(x))


def test_a_pickle_brings_no_address_of_its_process():
    """The addresses of compiled formulas hold in one process only: in another they would crash."""
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=3)
    gp.update([0.5], 1.0)
    content = dict(vars(gp))
    kept = content["_rules"]
    content["_rules"] = kept._replace(**dict.fromkeys(("kernel", "insertion", "acceptance", "reduction"), 0))
    mapped = type(gp._state)(*map(np.array, gp._state))
    for array in mapped:
        array.setflags(write=False)  # as joblib maps large arrays
    content["_state"] = mapped
    again = OnlineGP.__new__(OnlineGP)
    again.__setstate__(content)
    assert again._rules.kernel == kept.kernel
    assert again._rules.insertion == kept.insertion
    same(again.predict([[0.2]]), gp.predict([[0.2]]))
    again.update([0.1], 2.0)
    assert (again.n_points, gp.n_points) == (2, 1)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("sysid.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'sysid\[sklearn\]'"):
        import sysid.estimators  # noqa: F401


def test_a_scikit_learn_that_is_too_old_is_told(monkeypatch):
    import sklearn.utils.validation

    monkeypatch.delattr(sklearn.utils.validation, "validate_data")
    for name in [name for name in sys.modules if name.startswith("sysid.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"1\.6 or newer .*validate_data"):
        import sysid.estimators  # noqa: F401
