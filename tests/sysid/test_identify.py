"""The loop over a stream: collect, train, predict, learn; gaps; laziness; causality."""

from typing import NamedTuple

import numpy as np
import pytest

from sysid import OnlineGP, SquaredExponential
from sysid.acceptance import ExceedsMinimum
from sysid.criteria import MeanRelevance
from sysid.identify import Identification, Settings, identify
from sysid.insertion import ErrorThreshold
from sysid.lag_window import LagWindow
from sysid.narx import Narx, OnMissing
from sysid.scaling import Scaling
from sysid.training import Fixed, Hyperparameters, MaximumLikelihood, Training

NARX = Narx(outputs={"y": 2}, inputs={"u": 1})
SKIP = Narx(outputs={"y": 2}, inputs={"u": 1}, on_missing=OnMissing.skip)
LAGS = 2
FIXED = Fixed(variance=1.0, length_scales=1.0, noise_variance=0.01)
QUICK = MaximumLikelihood(n_initial=12, restarts=1, max_iterations=20)
RULES = {"insertion": ErrorThreshold(0.02), "acceptance": ExceedsMinimum(MeanRelevance())}


class Sample(NamedTuple):
    """A measurement."""

    time: float
    output: np.ndarray
    input: np.ndarray


def record(n, seed=0):
    """Outputs and inputs of a small nonlinear system."""
    rng = np.random.default_rng(seed)
    u, y = rng.uniform(-1, 1, n), np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 1]) + 0.02 * rng.normal()
    return y, u


def stream(y, u):
    return [Sample(0.5 * k, np.array([a]), np.array([b])) for k, (a, b) in enumerate(zip(y, u, strict=True))]


def run(narx, settings, y, u):
    """Steps, identification and window of a whole record."""
    identification, window = Identification(narx, settings), LagWindow(narx)
    names = {"outputs": ["y"], "inputs": ["u"]}
    return list(identify(stream(y, u), identification, window, **names)), identification, window


def test_phases_in_their_order():
    y, u = record(50)
    steps, identification, window = run(NARX, Settings(training=QUICK, budget=20), y, u)
    assert len(steps) == 50 - LAGS
    assert [step.report is None for step in steps] == [True] * 12 + [False] * (len(steps) - 12)
    np.testing.assert_array_equal([step.time for step in steps], 0.5 * np.arange(LAGS, 50))
    np.testing.assert_array_equal([step.previous for step in steps], y[LAGS - 1 : -1])
    np.testing.assert_array_equal([step.target for step in steps], np.diff(y)[LAGS - 1 :])
    assert steps[12].report.n_points == 13
    assert window.n_missing == window.n_skipped == 0
    assert identification.training_seconds > 0


def test_nothing_is_there_before_the_initial_samples_are():
    y, u = record(LAGS + 11)
    steps, identification, _ = run(NARX, Settings(training=QUICK), y, u)
    assert len(steps) == 11
    assert identification.model is identification.initial is identification.hyperparameters is None


def test_training_sees_exactly_the_initial_samples():
    y, u = record(40)
    _, identification, _ = run(NARX, Settings(training=QUICK, budget=20, seed=3), y, u)
    rows = NARX.regressors({"y": y, "u": u})
    x, t = rows.regressor[:12], rows.target[:12]
    scaling = Scaling.fit(x)
    expected = QUICK.train(scaling.transform(x), t - t.mean(), 3)
    assert identification.hyperparameters == expected
    assert identification.model.scaling == scaling
    assert identification.model.offset == t.mean()


def test_the_loop_is_the_online_gp_on_the_lag_data_set():
    y, u = record(80)
    settings = Settings(training=QUICK, budget=15, **RULES)
    steps, identification, _ = run(NARX, settings, y, u)
    rows, model = NARX.regressors({"y": y, "u": u}), identification.model
    z, t = model.scaling.transform(rows.regressor), rows.target - model.offset
    hyper = identification.hyperparameters
    gp = OnlineGP(hyper.kernel, noise_variance=hyper.noise_variance, budget=15, **RULES).fit(z[:12], t[:12])
    for step, point, target in zip(steps[12:], z[12:], t[12:], strict=True):
        report = gp.update(point, target)
        np.testing.assert_equal(step.report, report._replace(mean=report.mean + model.offset))
    np.testing.assert_array_equal(gp.inputs, model.gp.inputs)


def test_initial_model_does_not_learn():
    y, u = record(80)
    _, identification, _ = run(NARX, Settings(training=QUICK, budget=30), y, u)
    initial, final = identification.initial.gp, identification.model.gp
    assert initial is not final
    assert initial.n_points == 12
    assert final.n_points == 30
    rows = NARX.regressors({"y": y, "u": u})
    np.testing.assert_array_equal(initial.targets, rows.target[:12] - identification.model.offset)


def test_more_initial_samples_than_the_budget():
    y, u = record(60)
    steps, identification, _ = run(NARX, Settings(training=QUICK, budget=5, **RULES), y, u)
    assert identification.initial.gp.n_points == 5
    assert all(step.report.n_points == 5 for step in steps[12:])


def test_empty_start():
    y, u = record(30)
    steps, identification, _ = run(NARX, Settings(training=FIXED, budget=10), y, u)
    assert steps[0].report.mean == 0.0
    assert steps[0].report.variance == pytest.approx(1.0)
    assert [step.report.n_points for step in steps] == [min(k + 1, 10) for k in range(28)]
    assert identification.initial.gp.n_points == 0
    assert identification.model.offset == 0.0
    assert identification.model.scaling == Scaling.identity(3)


def test_empty_model_is_there_at_once():
    identification = Identification(NARX, Settings(training=FIXED))
    assert identification.model.gp.n_points == 0
    assert identification.model.predict(np.zeros((1, 3))).variance[0] == pytest.approx(1.0)


def test_fixed_training_with_initial_samples_scales_nothing():
    y, u = record(30)
    training = Fixed(variance=1.0, length_scales=[1.0, 2.0, 3.0], noise_variance=0.01, n_initial=5)
    steps, identification, _ = run(NARX, Settings(training=training, budget=10), y, u)
    rows = NARX.regressors({"y": y, "u": u})
    assert [step.report is None for step in steps[:6]] == [True] * 5 + [False]
    np.testing.assert_array_equal(identification.initial.gp.inputs, rows.regressor[:5])
    assert identification.model.gp.kernel.length_scales == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(("signal", "k", "lost"), [("y", 20, 3), ("u", 20, 1), ("y", 5, 3), ("u", 39, 0)])
def test_gaps_are_skipped_and_counted(signal, k, lost):
    """y[20] is missing in the rows 20 (target), 21 and 22 (lags); u[20] in row 21 only."""
    y, u = record(40)
    {"y": y, "u": u}[signal][k] = np.nan
    settings = Settings(training=Fixed(1.0, 1.0, 0.01, n_initial=4), budget=10)
    steps, identification, window = run(SKIP, settings, y, u)
    assert window.n_missing == 1
    assert window.n_skipped == lost
    assert len(steps) == 40 - LAGS - lost
    rows = SKIP.regressors({"y": y, "u": u})
    np.testing.assert_array_equal([step.target for step in steps], rows.target)
    np.testing.assert_array_equal([step.time for step in steps], 0.5 * rows.sample)
    stored = identification.model.gp.inputs
    assert np.isfinite(stored).all()
    assert all((rows.regressor == point).all(axis=1).any() for point in stored)


def test_no_window_reaches_across_a_gap():
    y, u = record(60)
    gap = slice(30, 40)
    y[gap] = np.nan
    steps, _, window = run(SKIP, Settings(training=FIXED, budget=50), y, u)
    times = np.array([step.time for step in steps])
    assert not np.any((times >= 15.0) & (times < 0.5 * (40 + LAGS)))
    assert window.n_missing == 10
    assert window.n_skipped == 10 + LAGS


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_gaps_are_an_error_by_default(value):
    y, u = record(40)
    y[20] = value
    identification, window = Identification(NARX, Settings(training=FIXED)), LagWindow(NARX)
    steps = []
    with pytest.raises(ValueError, match=r"'y'.*sample 20.*on_missing='skip'"):
        steps.extend(identify(stream(y, u), identification, window, outputs=["y"], inputs=["u"]))
    learned = identification.model.gp.n_points
    assert learned == 20 - LAGS, "what was learned before stays"


def test_the_loop_is_lazy():
    y, u = record(30)
    asked = []

    def samples():
        for sample in stream(y, u):
            asked.append(sample.time)
            yield sample

    identification, window = Identification(NARX, Settings(training=FIXED)), LagWindow(NARX)
    loop = identify(samples(), identification, window, outputs=["y"], inputs=["u"])
    assert asked == []
    for n in range(1, 5):
        step = next(loop)
        assert len(asked) == LAGS + n
        assert asked[-1] == step.time
        assert identification.model.gp.n_points == n


def test_a_sample_is_predicted_before_its_target_is_used():
    """Changing one target changes neither its own prediction nor an earlier one."""
    y, u = record(60)
    other = y.copy()
    other[40] += 3.0
    settings = Settings(training=QUICK, budget=15, **RULES)
    one, two = run(NARX, settings, y, u)[0], run(NARX, settings, other, u)[0]
    at = 40 - LAGS
    for a, b in zip(one[:at], two[:at], strict=True):
        np.testing.assert_equal(a, b)
    assert one[at].report[:2] == two[at].report[:2]
    assert one[at].target != two[at].target
    assert one[at + 1].report.mean != two[at + 1].report.mean


def test_same_seed_same_steps_other_seed_other_starts():
    y, u = record(60)
    settings = Settings(training=QUICK, budget=15, **RULES)
    np.testing.assert_equal(run(NARX, settings, y, u)[0], run(NARX, settings, y, u)[0])


def test_seed_reaches_the_training():
    seen = []

    class Spy(Training):
        n_initial = 3
        standardise = False

        def train(self, inputs, targets, seed):
            seen.append((inputs.shape, targets.shape, seed))
            return Hyperparameters(SquaredExponential(1.0, [1.0] * 3), 0.1, 0.0)

    y, u = record(20)
    run(NARX, Settings(training=Spy(), seed=17), y, u)
    assert seen == [((3, 3), (3,), 17)]


def test_columns_are_found_by_name():
    y, u = record(40)
    wide = [
        Sample(k * 0.5, np.array([9.0, a]), np.array([b, 7.0, 8.0])) for k, (a, b) in enumerate(zip(y, u, strict=True))
    ]
    settings = Settings(training=FIXED, budget=10)
    names = {"outputs": ["other", "y"], "inputs": ["u", "v", "w"]}
    steps = list(identify(wide, Identification(NARX, settings), LagWindow(NARX), **names))
    np.testing.assert_equal(steps, run(NARX, settings, y, u)[0])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"outputs": ["z"], "inputs": ["u"]}, r"outputs \['y'\].*\['z'\]"),
        ({"outputs": ["y"], "inputs": []}, r"inputs \['u'\]"),
    ],
)
def test_missing_signals_are_named(names, words):
    identification = Identification(NARX, Settings(training=FIXED))
    with pytest.raises(ValueError, match=words):
        next(identify(stream(*record(5)), identification, LagWindow(NARX), **names))


def test_an_empty_stream_gives_no_steps():
    assert run(NARX, Settings(training=QUICK), np.zeros(0), np.zeros(0))[0] == []


def test_constant_feature_is_survived_and_reported():
    y, u = record(50)
    steps, identification, _ = run(NARX, Settings(training=QUICK, budget=20), y, np.zeros_like(u))
    assert identification.model.scaling.constant == (2,)
    assert all(np.isfinite(step.report.mean) for step in steps[12:])


def test_a_bad_budget_is_refused():
    with pytest.raises(ValueError, match="budget"):
        Identification(NARX, Settings(training=FIXED, budget=1))
