"""A sample that is refused changes nothing: neither the model nor what is decided before it."""

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from sysid import (
    ConstantMean,
    Identification,
    LagWindow,
    Linear,
    MaximumAPosteriori,
    Narx,
    OnlineGP,
    Settings,
    identify,
)
from sysid.estimators import OnlineGPRegressor

NARX = Narx({"y": 2}, {"u": 2})
JUMP = 300  # sample at which the plant jumps: the row before it is held back
TRAINING = MaximumAPosteriori(n_initial=40)
HELD_BACK = JUMP - 2  # its row


class MeanWithHole(ConstantMean):
    """A mean that is no number where the newest input is above 50."""

    def fitted(self, regressors, targets):
        """Return the mean as it is."""
        return self

    def __call__(self, regressors):
        """Return the mean."""
        return np.where(regressors[:, 2] > 50.0, np.nan, super().__call__(regressors))


@cache
def stream():
    """Rows of a plant whose output jumps once."""
    rng = np.random.default_rng(1)
    n = 340
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        jump = 2.0 if k == JUMP else 0.0
        y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + 0.5 * np.tanh(u[k - 1])
        y[k] += 0.02 * rng.normal() + jump
    rows = NARX.regressors({"y": y, "u": u})
    return rows.regressor, rows.target


def identification_that_holds_back(mean=None):
    """Return an identification whose last sample is held back, and the rows after it."""
    x, t = stream()
    settings = {} if mean is None else {"mean": mean}
    found = Identification(NARX, Settings(budget=40, training=TRAINING, **settings))
    found.observe_many(x[: HELD_BACK + 1], t[: HELD_BACK + 1])
    assert found._phase.outliers.suspect is not None
    return found, x[HELD_BACK + 1 :], t[HELD_BACK + 1 :]


def with_value(x, column, value):
    """Return a copy of a row with another value."""
    changed = x.copy()
    changed[column] = value
    return changed


REFUSED = {
    "nan in the regressor": lambda x, t: ((with_value(x, 0, np.nan), t), {}),
    "infinite target": lambda x, t: ((x, -np.inf), {}),
    "beyond the largest magnitude": lambda x, t: ((with_value(x, 1, 1e101), t), {}),
    "masked": lambda x, t: ((np.ma.masked_array(x, [True, False, False, False]), t), {}),
    "masked target": lambda x, t: ((x, np.ma.masked), {}),
    "complex": lambda x, t: ((x + 0j, t), {}),
    "text": lambda x, t: ((x, "1.0"), {}),
    "too few features": lambda x, t: ((x[:3], t), {}),
    "follows is a list": lambda x, t: ((x, t), {"follows": [True, False]}),
    "follows is nan": lambda x, t: ((x, t), {"follows": np.nan}),
    "mean that is no number": lambda x, t: ((with_value(x, 2, 51.0), t), {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_sample_decides_nothing_about_the_one_held_back(case):
    refused, x, t = identification_that_holds_back(MeanWithHole(0.1))
    expected, _, _ = identification_that_holds_back(MeanWithHole(0.1))
    arguments, options = REFUSED[case](x[0], float(t[0]))
    correction = refused.correction
    with pytest.raises((ValueError, TypeError)):
        refused.observe(*arguments, **options)
    assert refused.correction is correction
    record = refused.observe_many(x, t)
    assert repr(record.tolist()) == repr(expected.observe_many(x, t).tolist())
    assert repr(refused.correction) == repr(expected.correction)
    assert refused.model.gp.counts() == expected.model.gp.counts()


@pytest.mark.parametrize("row", [0, 1, 20])
def test_a_block_with_a_refused_row_learns_none_of_its_rows(row):
    refused, x, t = identification_that_holds_back(MeanWithHole(0.1))
    expected, _, _ = identification_that_holds_back(MeanWithHole(0.1))
    bad = x.copy()
    bad[row, 2] = 51.0
    with pytest.raises(ValueError, match="not finite"):
        refused.observe_many(bad, t)
    record = refused.observe_many(x, t)
    assert repr(record.tolist()) == repr(expected.observe_many(x, t).tolist())


@pytest.mark.parametrize("follows", [[True] * 3, [[True]], [0.5] * 338, ["yes"] * 338])
def test_what_follows_must_be_one_truth_value_for_each_sample(follows):
    x, t = stream()
    found = Identification(NARX, Settings(budget=40, training=MaximumAPosteriori()))
    with pytest.raises(ValueError, match="follows"):
        found.observe_many(x, t, follows=follows)
    with pytest.raises(ValueError, match="no model yet, 0 of"):
        found.require_model()


def test_a_sample_that_is_accepted_after_all_is_checked_before_anything_is_counted():
    gp = OnlineGP(Linear(1.0, [1.0]), noise_variance=1e-6, budget=5, gate=3.0)
    gp.update([1.0], 0.0)
    before = gp.counts()
    with pytest.raises(ValueError, match="noise_variance"):
        gp.believe(np.array([[1e9]]), np.zeros(1), np.zeros(1))
    assert gp.counts() == before


@pytest.fixture(scope="module")
def twins():
    """Return two equal models of a plant of two outputs, and samples (y, u) that follow."""
    rng = np.random.default_rng(2)
    u, a, b = rng.normal(size=(3, 400))
    for k in range(1, 400):
        a[k] = 0.7 * a[k - 1] + np.tanh(u[k - 1]) + 0.01 * a[k]
        b[k] = 0.5 * b[k - 1] + u[k - 1] + 0.01 * b[k]
    found = identify(
        {"u": u, "a": a, "b": b},
        inputs=["u"],
        outputs=["a", "b"],
        dt=1.0,
        budget=15,
        training="maximum_a_posteriori",
        linear_part="none",
    )
    resumed = {}
    for name, model in found.models.items():
        resumed[name] = Identification.resume(replace(model, gp=model.gp.copy()))
    twin = replace(found, identifications=resumed)
    samples = iter(({"a": a[k], "b": b[k]}, u[k]) for k in range(400))
    for y, applied in islice(samples, 20):
        assert repr(found.step(y, applied)) == repr(twin.step(y, applied))
    return found, twin, samples


@pytest.mark.parametrize("value", [np.inf, 1e101, 1j, "1.0", [1.0, 2.0]])
def test_a_step_that_one_output_refuses_is_seen_by_none(value, twins):
    found, twin, samples = twins
    y, u = next(samples)
    seen = {name: model.gp.n_seen for name, model in found.models.items()}
    for measured, applied in ((y | {"b": value}, u), (y, value)):
        with pytest.raises((ValueError, TypeError)):
            found.step(measured, applied)
    assert {name: model.gp.n_seen for name, model in found.models.items()} == seen
    assert repr(found.step(y, u)) == repr(twin.step(y, u))


def test_a_batch_that_one_output_refuses_is_learned_by_none():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1))
    y = np.column_stack([x[:, 0], x[:, 0] ** 2])
    model = OnlineGPRegressor(budget=8, training=MaximumAPosteriori(n_initial=10))
    model.partial_fit(x[:20], y[:20])
    seen = [part.gp.n_seen for part in model.models_]
    bad = y[20:].copy()
    bad[3, 1] = 1e101
    with pytest.raises(ValueError, match="not finite"):
        model.partial_fit(x[20:], bad)
    assert [part.gp.n_seen for part in model.models_] == seen
    assert model.n_samples_seen_ == 20


def test_a_first_batch_that_is_refused_leaves_an_estimator_without_a_model():
    model = OnlineGPRegressor()
    with pytest.raises(ValueError, match="not finite"):
        model.partial_fit([[1.0], [1e101]], [0.0, 1.0])
    assert model.predict_one({"x0": 1.0}) == 0.0


def test_a_previewed_sample_is_not_stored():
    window = LagWindow(Narx({"y": 1}, {"u": 1}))
    window.observe(np.array([1.0]), np.array([2.0]))
    expected = window.preview(np.array([3.0]), np.array([4.0]))
    assert np.isnan(window.previous_target_value)
    pair = window.observe(np.array([3.0]), np.array([4.0]))
    assert expected.regressor.tolist() == pair.regressor.tolist() == [1.0, 2.0]
    assert expected.target == pair.target == 2.0


def test_a_check_of_samples_learns_nothing():
    found, x, t = identification_that_holds_back()
    before = found.model.gp.state()
    found.check_samples(x, t)
    for name, values in found.model.gp.state().items():
        np.testing.assert_array_equal(values, before[name])


@pytest.mark.parametrize(
    "name", ["training", "mean", "insertion", "acceptance", "reduction", "selection"]
)
@pytest.mark.parametrize("value", [1e300, None, "none", MaximumAPosteriori])
def test_settings_that_are_no_objects_of_their_class_are_refused(name, value):
    with pytest.raises(TypeError, match=f"Settings: {name} must be a"):
        Settings(**{name: value})
