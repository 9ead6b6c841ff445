"""A look ahead of every class, from the same samples; and samples that do not follow each other."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from small_estimators import NEW_U, NEW_Y, QUICK, U, Y
from sysid import (
    AboutPath,
    Identification,
    JointModel,
    LagWindow,
    MaximumAPosteriori,
    Narx,
    Pathwise,
    Settings,
    free_run,
    identify,
    learn_from,
    look_ahead,
)
from sysid.estimators import NarxGPRegressor, OnlineGPRegressor
from sysid.narx.succession import Succession
from sysid.simulation.validation import Z_95

NAMES = ("u1", "u2")
COUPLED = {"outputs": {"y1": 1, "y2": 1}, "inputs": {"u1": [1, 2], "u2": 1}}
N_PAST = 10


@pytest.fixture(scope="module")
def joint():
    """Return models of both coupled outputs."""
    models = []
    for target in ("y1", "y2"):
        narx = Narx(**COUPLED, target=target)
        rows = narx.regressors({"y1": Y[:, 0], "y2": Y[:, 1], "u1": U[:, 0], "u2": U[:, 1]})
        identification = Identification(narx, Settings(training=QUICK, budget=20))
        identification.observe_many(rows.regressor, rows.target)
        models.append(identification.model)
    return JointModel(tuple(models))


def table_by_hand(model, past_u, past_y, coming):
    """Return mean and band from a free run."""
    rule = AboutPath(Pathwise())
    run = free_run(model, np.vstack([past_u, coming]), past_y, propagation=rule)
    half_width = Z_95 * np.sqrt(run.variance + JointModel.of(model).noise_variance)
    return run.mean, half_width


def assert_table(table, mean, half_width, names, tolerance=1e-12):
    """Assert that a table has these means and bands of the outputs."""
    assert list(table.columns) == [f"{n}_{kind}" for n in names for kind in ("mean", "low", "high")]
    for i, name in enumerate(names):
        np.testing.assert_allclose(table[f"{name}_mean"], mean[:, i], rtol=tolerance)
        width = table[f"{name}_high"] - table[f"{name}_low"]
        np.testing.assert_allclose(width, 2 * half_width[:, i], rtol=tolerance)


def test_a_joint_model_looks_ahead(joint):
    past_u, past_y = NEW_U[:N_PAST], NEW_Y[:N_PAST]
    table = joint.ahead(NEW_U[N_PAST:], past_y, past_u)
    mean, half_width = table_by_hand(joint, past_u[-2:], past_y[-2:], NEW_U[N_PAST:])
    assert_table(table, mean, half_width, ("y1", "y2"))
    np.testing.assert_array_equal(table.index, np.arange(1.0, 1.0 + len(NEW_U) - N_PAST))
    np.testing.assert_allclose(mean[:5], NEW_Y[N_PAST : N_PAST + 5], atol=0.5)


def test_a_model_looks_ahead_as_the_estimator_that_has_it():
    estimator = NarxGPRegressor(na=2, nb=2, budget=20, training=QUICK, linear_part="none")
    estimator.fit(U, Y[:, 0])
    (model,) = estimator.model_.models
    table = estimator.ahead(NEW_U[N_PAST:], NEW_U[:N_PAST], NEW_Y[:N_PAST, 0])
    of_model = model.ahead(NEW_U[N_PAST:], NEW_Y[:N_PAST, 0], NEW_U[:N_PAST])
    pd.testing.assert_frame_equal(table, of_model)
    pd.testing.assert_frame_equal(table, look_ahead(model, NEW_U[10:], NEW_Y[:10, 0], NEW_U[:10]))


def test_rows_without_memory_are_predicted_with_their_band():
    regressor = OnlineGPRegressor(budget=10, training=QUICK).fit(U, Y)
    table = regressor.ahead(NEW_U)
    mean, std = regressor.predict(NEW_U, return_std=True)
    assert_table(table, mean, Z_95 * std, ("y1", "y2"))

    by_name = OnlineGPRegressor(budget=10, training=QUICK)
    for u, y in zip(U, Y, strict=True):
        by_name.learn_one({"a": u[0], "b": u[1]}, {"x": y[0], "z": y[1]})
    coming = pd.DataFrame(NEW_U[:3], columns=["a", "b"])
    assert list(by_name.ahead(coming).columns)[::3] == ["x_mean", "z_mean"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param((np.zeros((3, 1)), Y, U), r"\(n, 2\)", id="too few inputs"),
        pytest.param((np.zeros((3, 2)), Y[:, :1], U), r"past_outputs \(k, 2\)", id="one output"),
        pytest.param((np.zeros((3, 2)), Y), "past_inputs.*got none", id="no past inputs"),
        pytest.param((np.zeros((3, 2)), Y[:5], U[:4]), "same samples, got 5 and 4", id="lengths"),
        pytest.param((np.zeros((3, 2)), Y[:1], U[:1]), "at least 2 past samples", id="too few"),
        pytest.param((np.zeros((3, 2)), np.full((5, 2), np.nan), U[:5]), "finite", id="nan"),
        pytest.param((np.full((3, 2), np.inf), Y, U), "finite inputs", id="infinite inputs"),
    ],
)
def test_a_look_ahead_refuses_what_it_cannot_use(joint, arguments, words):
    with pytest.raises(ValueError, match=words):
        joint.ahead(*arguments)


# --- a loop of your own ---------------------------------------------------------------------------


def simple_plant(n, seed):
    """Return u and y of ``y[k] = 0.5 y[k-1] + 0.4 y[k-2] + tanh(u[k-1])`` and noise."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 0.5 * y[k - 1] + 0.4 * y[k - 2] + np.tanh(u[k - 1]) + 0.01 * rng.normal()
    return u, y


LAGS_1 = Narx({"y": 1}, {"u": 1})
LAGS_2 = Narx({"y": 2}, {"u": 1}, on_missing="skip")
MAP = Settings(training=MaximumAPosteriori(), budget=25)


def run_loop(narx, u, y, *, restarts=(), settings=MAP):
    """Run a loop that tells nothing about holes; return errors by sample, identification, window.

    Nothing but `LagWindow.reset` says where a new run begins.
    """
    identification = Identification(narx, settings)
    window = LagWindow(narx)
    errors = {}
    for k in range(len(y)):
        if k in restarts:
            window.reset()
        pair = window.observe(y[k : k + 1], u[k : k + 1])
        if pair is not None:
            report = identification.observe(*pair)
            if report is not None:
                errors[k] = pair.target - report.mean
    return errors, identification, window


@pytest.mark.parametrize(
    ("narx", "predict"),
    [(LAGS_1, "change"), (LAGS_1, "value"), (LAGS_2, "change"), (LAGS_2, "value")],
    ids=["one lag, change", "one lag, value", "two lags, change", "two lags, value"],
)
def test_a_restart_after_a_gross_error_is_seen_by_the_lags(narx, predict):
    """The last sample of the first run is wrong, and nobody says that the next row is another's."""
    narx = replace(narx, predict=predict)
    u, y = simple_plant(500, 1)
    wrong = y.copy()
    wrong[399] += 30.0
    errors, _, _ = run_loop(narx, u, wrong, restarts=[400])
    expected, _, _ = run_loop(narx, u, y, restarts=[400])
    first = [errors[k] for k in sorted(errors) if k >= 400][:6]
    of_clean = [expected[k] for k in sorted(expected) if k >= 400][:6]
    np.testing.assert_allclose(first, of_clean, atol=0.05)


def test_an_identification_looks_ahead_without_what_is_wrong():
    u, y = simple_plant(300, 1)
    wrong = y.copy()
    wrong[-1] += 20.0
    _, clean, window = run_loop(LAGS_2, u, y)
    _, with_error, window_with_error = run_loop(LAGS_2, u, wrong)
    coming = np.zeros(5)
    expected = clean.ahead(coming, window)
    found = with_error.ahead(coming, window_with_error)
    np.testing.assert_allclose(found["y_mean"], expected["y_mean"], atol=0.1)
    pd.testing.assert_frame_equal(expected, clean.model.ahead(coming, y, u))

    # the error of the old run does not touch a new one, of which no row is observed yet
    window_with_error.reset()
    for k in range(100, 102):
        window_with_error.observe(y[k : k + 1], u[k : k + 1])
    in_new_run = with_error.ahead(coming, window_with_error)
    of_model = with_error.model.ahead(coming, y[100:102], u[100:102])
    pd.testing.assert_frame_equal(in_new_run, of_model)


NARX_WITH_HOLES = Narx({"y": 4}, {"u": 1}, on_missing="skip")


@pytest.fixture(scope="module")
def simple():
    """Return a model of the first 390 samples of `simple_plant(420, 1)`; nobody may change it."""
    u, y = simple_plant(420, 1)
    return identify(
        {"u": u[:390], "y": y[:390]},
        NARX_WITH_HOLES,
        inputs=["u"],
        outputs=["y"],
        settings=replace(MAP, linear_part="none"),
        dt=1.0,
        identified=1,
    )


@pytest.mark.parametrize("hole", [401, 402, 403])
@pytest.mark.parametrize("by_hand", [True, False], ids=["step", "learn_from"])
def test_a_hole_after_a_gross_error_leaves_it_replaced(hole, by_hand, simple):
    """Rows after the hole have the wrong measurement among their lags, or its replacement."""
    u, y = simple_plant(420, 1)

    def errors_of(signal):
        """Return the errors of the samples 402, ..., 419 that are measured and predicted."""
        signal = signal.copy()
        signal[hole] = np.nan
        found = deepcopy(simple)
        if by_hand:
            means = {k: found.step(y=signal[k], u=u[k]).get("y") for k in range(390, 420)}
            return {k: y[k] - means[k].mean for k in range(402, 420) if means[k] is not None}
        identification = found.identifications["y"]
        blocks = [Samples(signal[390:420], u[390:420])]
        window = LagWindow(NARX_WITH_HOLES)
        (block,) = learn_from(blocks, identification, window, outputs=["y"], inputs=["u"])
        errors = block.rows.target - block.record["mean"]
        samples = block.rows.sample + 390
        return {k: error for k, error in zip(samples, errors, strict=True) if k >= 402}

    wrong = y.copy()
    wrong[400] += 20.0
    expected = errors_of(y)
    found = errors_of(wrong)
    assert found.keys() == expected.keys()
    for k, error in expected.items():
        assert found[k] == pytest.approx(error, abs=0.1)


class Samples:
    """A block of samples."""

    def __init__(self, y, u):
        self.output = y[:, None]
        self.input = u[:, None]


def test_a_short_record_before_another_is_no_hole():
    """The first row of the second record has the number after that of the first one's last row."""
    u, y = simple_plant(400, 1)
    narx = replace(LAGS_1, on_missing="skip")
    seen = []

    class Spy(Identification):
        def observe_many(self, regressors, targets, *, follows=None):
            seen.append(None if follows is None else np.array(follows))
            return super().observe_many(regressors, targets, follows=follows)

        def skip(self, n_samples=1):
            seen.append(n_samples)
            super().skip(n_samples)

    second = y[200:300].copy()
    second[:1] = np.nan  # so that its first row is sample 2
    window = LagWindow(narx)

    def blocks():
        yield Samples(y[:2], u[:2])  # its only row is sample 1
        window.reset()
        yield Samples(second[:50], u[200:250])
        third = second[50:].copy()
        third[20] = np.nan
        yield Samples(third, u[250:300])

    identification = Spy(narx, Settings(training=QUICK))
    list(learn_from(blocks(), identification, window, outputs=["y"], inputs=["u"]))
    first, of_second, before_hole, hole, after_hole = seen
    assert first.tolist() == [False]
    assert not of_second[0]
    assert of_second[1:].all()
    assert before_hole is None
    assert after_hole is None
    assert hole == 2


@pytest.mark.parametrize("predict", ["change", "value"])
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_rows_of_a_signal_may_follow_each_other_and_others_may_not(predict, distance):
    narx = Narx({"y": [1, 2, 3]}, {"u": [0, 2]}, predict=predict)
    u, y = simple_plant(60, 2)
    rows = narx.regressors({"u": u, "y": y})
    succession = Succession(narx, distance)
    x, target = rows.regressor, rows.target
    n = len(target) - distance
    assert succession.between(x[:n], target[:n], x[distance:]).all()
    assert not succession.between(x[: n - 1], target[: n - 1], x[distance + 1 :]).any()


@pytest.mark.parametrize("predict", ["change", "value"])
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_a_pair_of_rows_is_compared_as_many_rows_are(predict, distance):
    narx = Narx({"y": [1, 2, 3]}, {"u": [0, 2]}, predict=predict)
    u, y = simple_plant(60, 2)
    x, target, _ = narx.regressors({"u": u, "y": y})
    n = len(target)
    target[::7] = np.nan
    target[::5] += 1.0
    succession = Succession(narx, distance)
    pairs = [(i, j) for i in range(n) for j in range(n)]
    earlier = [i for i, _ in pairs]
    later = [j for _, j in pairs]
    expected = succession.between(x[earlier], target[earlier], x[later])
    found = [succession.of_pair(x[i], float(target[i]), x[j]) for i, j in pairs]
    assert found == expected.tolist()
    assert 0 < sum(found) < len(found)


def test_a_record_of_an_estimator_has_no_row_across_a_gross_error(monkeypatch):
    u, y = simple_plant(300, 1)
    y[150] += 50.0
    told = []
    original = Identification.observe_many

    def spy(self, regressors, targets, *, follows=None):
        told.append(follows)
        return original(self, regressors, targets, follows=follows)

    monkeypatch.setattr(Identification, "observe_many", spy)
    with pytest.warns(UserWarning, match="y"):
        NarxGPRegressor(na=2, nb=1, budget=15, training=QUICK, linear_part="none").fit(
            u[:, None], y
        )
    follows = told[-1]
    assert len(follows) < 298
    assert np.count_nonzero(~follows) == 2


@pytest.mark.parametrize("kind", ["times", "numbers", "unsorted"])
def test_a_table_whose_index_has_a_gap_is_refused(kind):
    u, y = simple_plant(120, 1)
    index = pd.date_range("2024-01-01", periods=120, freq="1s") if kind == "times" else range(120)
    table = pd.DataFrame({"u": u, "y": y}, index=index)
    parts = [table.iloc[60:], table.iloc[:60]] if kind == "unsorted" else [table[:50], table[70:]]
    gap = pd.concat(parts)
    estimator = NarxGPRegressor(budget=10, training=QUICK, linear_part="none")
    with pytest.raises(ValueError, match=r"inputs: .*follow each other.*at row (50|60): "):
        estimator.fit(gap[["u"]], gap["y"])
    estimator.fit(table[["u"]], table["y"])
    with pytest.raises(ValueError, match="follow each other"):
        estimator.predict(gap[["u"]], gap["y"])
    groups = np.r_[np.zeros(len(parts[0])), np.ones(len(parts[1]))]
    estimator.fit(gap[["u"]], gap["y"], groups=groups)


# --- the beginning of a run -----------------------------------------------------------------------


def test_predictions_begin_before_the_lags_of_the_linear_part_are_full():
    """They come with a band for what was before the run, and are not learned."""
    rng = np.random.default_rng(0)
    u, y = simple_plant(900, 1)
    found = identify(
        {"u": u[:500], "y": y[:500]},
        Narx({"y": 1}, {"u": 1}),
        inputs=["u"],
        outputs=["y"],
        settings=Settings(training=MaximumAPosteriori(), budget=20),
        linear_part="stable_spline",
        dt=1.0,
        identified=1,
    )
    model = found.model
    n_lags = model.narx.max_lag
    assert n_lags > 3
    is_inside = []
    for first in rng.integers(500, 880, size=40):
        found.reset()
        n_seen = model.gp.n_seen
        for k in range(first, first + n_lags):
            report = found.step(y=y[k], u=u[k]).get("y")
            assert (report is None) == (k == first)
            if report is not None:
                assert report.update is None
                is_inside.append(report.low < y[k] < report.high)
        assert found.model.gp.n_seen == n_seen
    assert np.mean(is_inside) > 0.9
