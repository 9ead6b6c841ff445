"""The online Gaussian process for scikit-learn, and for river, which learns sample by sample."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import sysid
from small_estimators import QUICK, TARGETS, Y1, U, X, assert_same_arrays, online

# --- fit and predict ------------------------------------------------------------------------------


def test_it_gives_the_bits_of_the_identification():
    narx = sysid.Narx({"y": []}, {"x0": [0], "x1": [0]}, predict="value")
    chosen = {"insertion": sysid.ErrorThreshold(0.02), "mean": sysid.LinearMean()}
    settings = sysid.Settings(training=QUICK, budget=10, seed=7, **chosen)
    identification = sysid.Identification(narx, settings)
    identification.observe_many(X, TARGETS)
    mean, variance = identification.model.predict(X)
    std = np.sqrt(variance + identification.model.gp.noise_variance)

    estimator = online(random_state=7, **chosen).fit(X, TARGETS)
    assert_same_arrays(estimator.predict(X, return_std=True), (mean, std))
    assert estimator.models_[0].narx == narx
    assert estimator.n_outputs_ == 1
    assert estimator.n_samples_seen_ == 40
    assert estimator.n_features_in_ == 2


def assert_same_model(estimator, expected):
    """Assert that two estimators have seen forty samples and predict the same bits."""
    predicted = estimator.models_[0].predict(X)
    assert_same_arrays(predicted, expected.models_[0].predict(X))
    assert estimator.n_samples_seen_ == 40


@pytest.fixture(scope="module")
def fitted():
    """An estimator that has learned all samples at once."""
    return online().fit(X, TARGETS)


def test_batches_teach_the_same_as_all_samples_at_once(fitted):
    estimator = online()
    for batch in np.split(np.arange(40), [3, 11, 20]):
        estimator.partial_fit(X[batch], TARGETS[batch])
    assert_same_model(estimator, fitted)


def test_single_samples_teach_the_same_as_all_samples_at_once(fitted):
    estimator = online()
    for point, target in zip(X, TARGETS, strict=True):
        features = {"x0": point[0], "x1": point[1]}
        assert estimator.learn_one(features, target) is estimator
    assert_same_model(estimator, fitted)


@pytest.mark.parametrize(
    "make_copy",
    [
        pytest.param(lambda estimator: pickle.loads(pickle.dumps(estimator)), id="pickle"),
        pytest.param(copy.deepcopy, id="deepcopy"),
    ],
)
def test_a_copy_goes_on_learning(make_copy, fitted):
    half = online().fit(X[:20], TARGETS[:20])
    copied = make_copy(half).partial_fit(X[20:], TARGETS[20:])
    assert_same_model(copied, fitted)


def test_fit_forgets_what_was_learned_before(fitted):
    estimator = online().fit(X[:20], TARGETS[:20])
    estimator.fit(X, TARGETS)
    assert_same_model(estimator, fitted)


def test_a_small_batch_trains_on_all_of_it():
    estimator = online(training=replace(QUICK, n_initial=12)).fit(X[:9], TARGETS[:9])
    expected = online(training=replace(QUICK, n_initial=9)).fit(X[:9], TARGETS[:9])
    np.testing.assert_array_equal(estimator.predict(X), expected.predict(X))


def test_outputs_share_the_rows_and_nothing_else():
    second_targets = -(TARGETS**2)
    estimator = online().fit(X, np.column_stack([TARGETS, second_targets]))
    mean, std = estimator.predict(X, return_std=True)
    for i, targets in enumerate((TARGETS, second_targets)):
        alone = online().fit(X, targets).predict(X, return_std=True)
        assert_same_arrays((mean[:, i], std[:, i]), alone)


def test_a_matrix_with_one_target_gives_a_matrix():
    assert online().fit(X, TARGETS[:, None]).predict(X).shape == (40, 1)


def test_a_new_estimator_predicts_only_zero():
    estimator = online()
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    assert estimator.predict_one({"a": 1.0, "b": 2.0}) == 0.0


def test_before_it_is_trained_it_predicts_the_mean_of_the_targets():
    estimator = online().partial_fit(X[:5], TARGETS[:5])
    mean = np.full(3, TARGETS[:5].mean())
    std = np.full(3, TARGETS[:5].std())
    assert_same_arrays(estimator.predict(X[:3], return_std=True), (mean, std))
    with pytest.raises(ValueError, match="as before"):
        estimator.partial_fit(X, TARGETS[:, None])


def test_the_kernel_and_a_fit_without_scaling_can_be_chosen():
    model = online(kernel=sysid.Matern52(), standardise=False).fit(X, TARGETS).models_[0]
    assert isinstance(model.gp.kernel, sysid.Matern52)
    np.testing.assert_array_equal(model.scaling.transform(X), X)


def test_the_seed_can_be_chosen():
    training = replace(QUICK, restarts=3, max_iterations=3)

    def predict_with(random_state):
        return online(training=training, random_state=random_state).fit(X, TARGETS).predict(X)

    first = predict_with(np.random.RandomState(1))
    same_seed = predict_with(np.random.RandomState(1))
    other_seed = predict_with(5)
    np.testing.assert_array_equal(first, same_seed)
    assert not np.array_equal(first, other_seed)


# --- sample by sample, with features by name ------------------------------------------------------


def named_stream():
    """Return twenty samples whose features have names."""
    return [({"a": x[0], "b": x[1]}, y) for x, y in zip(X[:20], TARGETS[:20], strict=True)]


STREAM = named_stream()


def learn_stream(samples):
    """Return an estimator that has learned samples one by one."""
    estimator = online()
    for features, target in samples:
        estimator.learn_one(features, target)
    return estimator


def test_features_go_by_name():
    estimator = learn_stream(STREAM)
    features, _ = STREAM[3]
    in_other_order = {"b": features["b"], "a": features["a"]}
    assert isinstance(estimator.predict_one(features), float)
    assert estimator.predict_one(in_other_order) == estimator.predict_one(features)
    assert estimator.models_[0].narx.input_names == ("a", "b")


def test_a_feature_may_have_a_number_or_the_name_of_the_target():
    samples = [({0: features["a"], "y": features["b"]}, target) for features, target in STREAM]
    narx = learn_stream(samples).models_[0].narx
    assert narx.feature_names == ("0[k]", "y[k]")
    assert narx.target == "y_"


def test_targets_go_by_name():
    samples = [(features, {"cold": -target, "warm": target}) for features, target in STREAM]
    estimator = learn_stream(samples)
    features, _ = STREAM[3]
    prediction = estimator.predict_one(features)
    assert list(prediction) == ["cold", "warm"]
    assert prediction["warm"] == learn_stream(STREAM).predict_one(features)


@pytest.mark.parametrize(
    ("features", "target", "words"),
    [
        pytest.param({"a": 1.0}, 1.0, r"missing \['b'\]", id="missing_feature"),
        pytest.param({"a": 1.0, "b": 2.0, "c": 3.0}, 1.0, r"new \['c'\]", id="new_feature"),
        pytest.param({"a": 1.0, "b": np.nan}, 1.0, "not finite", id="feature_of_nan"),
        pytest.param({"a": 1.0, "b": 2.0}, np.inf, "not finite", id="target_of_infinity"),
        pytest.param({"a": 1.0, "b": 2.0}, {"y": 1.0}, "one number", id="named_target"),
    ],
)
def test_a_bad_sample_teaches_nothing(features, target, words):
    estimator = learn_stream(STREAM)
    before = estimator.models_[0].gp.state()
    with pytest.raises((ValueError, TypeError), match=words):
        estimator.learn_one(features, target)
    np.testing.assert_equal(estimator.models_[0].gp.state(), before)
    assert estimator.n_samples_seen_ == 20


@pytest.mark.parametrize(
    ("features", "target"),
    [
        pytest.param({}, 1.0, id="no_features"),
        pytest.param({"a": np.nan}, 1.0, id="feature_of_nan"),
        pytest.param({"a": 1.0}, {"y": np.nan}, id="target_of_nan"),
    ],
)
def test_a_bad_first_sample_leaves_the_estimator_new(features, target):
    estimator = online()
    with pytest.raises(ValueError, match=r"expected|not finite"):
        estimator.learn_one(features, target)
    assert vars(estimator) == vars(online())


# --- wrong parameters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        pytest.param({"training": "fixed"}, "training must be a Training", id="training"),
        pytest.param(
            {"kernel": sysid.SquaredExponential(1.0, [1.0])},
            "kernel must be a prototype",
            id="kernel",
        ),
        pytest.param(
            {"random_state": -1},
            "random_state must be a whole number of at least 0",
            id="random_state",
        ),
    ],
)
def test_wrong_parameters_are_refused(parameters, words):
    with pytest.raises((ValueError, TypeError), match=words):
        online(**parameters).fit(U, Y1)
