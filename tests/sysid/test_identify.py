"""The loop over a stream: collect, train, predict, learn; gaps; laziness; causality."""

from typing import NamedTuple

import numpy as np
import pytest
from naive import COMPILED, CRITERIA, criterion_name

from sysid import OnlineGP, SquaredExponential
from sysid.acceptance import AcceptAll, ExceedsMinimum
from sysid.adaptive import Adaptive
from sysid.criteria import MeanRelevance
from sysid.identify import Identification, Settings, identify
from sysid.insertion import ErrorThreshold
from sysid.lag_window import LagWindow
from sysid.mean import ConstantMean
from sysid.narx import Narx, OnMissing
from sysid.report import UpdateReport
from sysid.scaling import Scaling
from sysid.start import Start
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
    assert identification.model.mean == ConstantMean(t.mean())


def test_the_loop_is_the_online_gp_on_the_lag_data_set():
    y, u = record(80)
    settings = Settings(training=QUICK, budget=15, **RULES)
    steps, identification, _ = run(NARX, settings, y, u)
    rows, model = NARX.regressors({"y": y, "u": u}), identification.model
    z, t = model.scaling.transform(rows.regressor), rows.target - model.mean.value
    hyper = identification.hyperparameters
    gp = OnlineGP(hyper.kernel, noise_variance=hyper.noise_variance, budget=15, **RULES).fit(z[:12], t[:12])
    for step, point, target in zip(steps[12:], z[12:], t[12:], strict=True):
        report = gp.update(point, target)
        np.testing.assert_equal(step.report, report._replace(mean=report.mean + model.mean.value))
    np.testing.assert_array_equal(gp.inputs, model.gp.inputs)


def test_initial_model_does_not_learn():
    y, u = record(80)
    _, identification, _ = run(NARX, Settings(training=QUICK, budget=30), y, u)
    initial, final = identification.initial.gp, identification.model.gp
    assert initial is not final
    assert initial.n_points == 12
    assert final.n_points == 30
    rows = NARX.regressors({"y": y, "u": u})
    np.testing.assert_array_equal(initial.targets, rows.target[:12] - identification.model.mean.value)


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
    assert identification.model.mean.value == 0.0
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


FOLLOWING = Adaptive(n_initial=12, restarts=1, interval=10, window=20, sample_size=15, significance=0.5)


def offered(settings, regressors, targets, cuts):
    """Identification that was given the samples in blocks, and its reports; None for no cuts: one by one."""
    identification = Identification(NARX, settings)
    if cuts is None:
        answers = [identification.observe(*pair) for pair in zip(regressors, targets, strict=True)]
        return identification, [report for report in answers if report is not None]
    blocks = zip(np.split(regressors, cuts), np.split(targets, cuts), strict=True)
    return identification, [report for block in blocks for report in identification.observe_many(*block)]


def bits(identification):
    """Everything that decides what a model will do."""
    gp = identification.model.gp
    counts = [gp.n_refactorisations, gp.n_renewals]
    return {**gp.state(), "kernel": gp.kernel.parameters(), "noise": gp.noise_variance, "counted": counts}


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
@pytest.mark.parametrize("training", [QUICK, FOLLOWING], ids=["once", "following"])
@pytest.mark.parametrize("accepts", [AcceptAll, ExceedsMinimum], ids=["all", "some"])
def test_many_samples_at_once_give_the_bits_of_one_by_one(criterion, training, accepts):
    y, u = record(250 if COMPILED else 120)
    rows = NARX.regressors({"y": y, "u": u})
    acceptance = AcceptAll() if accepts is AcceptAll else ExceedsMinimum(criterion)
    settings = Settings(training=training, budget=15, reduction=criterion, acceptance=acceptance, seed=2)
    one, expected = offered(settings, rows.regressor, rows.target, None)
    if training is FOLLOWING:
        assert one.adaptation.estimates
    random = np.sort(np.random.default_rng(1).integers(0, len(rows.target), 9))
    for cuts in ([], [5, 13, 22, 23, 50], random):
        other, reports = offered(settings, rows.regressor, rows.target, cuts)
        np.testing.assert_equal(reports, expected)
        np.testing.assert_equal(bits(other), bits(one))
        if training is FOLLOWING:
            found, known = ([e._replace(seconds=0) for e in i.adaptation.estimates] for i in (other, one))
            assert found == known


@pytest.mark.parametrize(("n", "reported"), [(0, 0), (5, 0), (12, 0), (13, 1), (40, 28)])
def test_reports_of_many_samples_are_those_after_the_initial_ones(n, reported):
    y, u = record(60)
    rows = NARX.regressors({"y": y, "u": u})
    identification = Identification(NARX, Settings(training=QUICK, budget=20))
    reports = identification.observe_many(rows.regressor[:n], rows.target[:n])
    assert len(reports) == reported
    assert {getattr(reports, name).dtype.kind for name in UpdateReport._fields} == {"f", "b", "i"}
    assert (identification.model is None) == (n < 12)


@pytest.mark.parametrize("training", [QUICK, FOLLOWING])
def test_many_samples_with_a_bad_one_are_refused_before_anything_is_learned(training):
    y, u = record(60)
    rows = NARX.regressors({"y": y, "u": u})
    identification = Identification(NARX, Settings(training=training, budget=20))
    identification.observe_many(rows.regressor[:20], rows.target[:20])
    before, bad = bits(identification), rows.target[20:].copy()
    bad[-1] = np.nan
    with pytest.raises(ValueError, match="targets: 1 of 38 values are not finite"):
        identification.observe_many(rows.regressor[20:], bad)
    with pytest.raises(ValueError, match=r"regressors: expected shape \(n, 3\)"):
        identification.observe_many(rows.regressor[20:, :2], bad)
    np.testing.assert_equal(bits(identification), before)


def test_what_is_known_beforehand_is_used():
    y, u = record(60)
    rows = NARX.regressors({"y": y, "u": u})
    scaling = Scaling(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    given = Hyperparameters(SquaredExponential(0.7, [1.0, 2.0, 3.0]), 0.03, 0.0)
    start = Start(scaling, ConstantMean(0.25), given)
    identification = Identification(NARX, Settings(training=QUICK, budget=20), start=start)
    identification.observe_many(rows.regressor, rows.target)
    for model in (identification.initial, identification.model):
        assert (model.scaling, model.mean) == (scaling, ConstantMean(0.25))
        assert (model.gp.kernel, model.gp.noise_variance) == (given.kernel, 0.03)
    assert identification.hyperparameters == given
    np.testing.assert_array_equal(identification.initial.gp.inputs, scaling.transform(rows.regressor[:12]))
    np.testing.assert_array_equal(identification.initial.gp.targets, rows.target[:12] - 0.25)


def test_what_is_not_known_follows_from_the_initial_samples():
    y, u = record(60)
    rows = NARX.regressors({"y": y, "u": u})
    x, t = rows.regressor[:12], rows.target[:12]
    scaling = Scaling(np.zeros(3), np.array([4.0, 5.0, 6.0]))
    identification = Identification(NARX, Settings(training=QUICK, budget=20), start=Start(scaling=scaling))
    identification.observe_many(x, t)
    assert identification.model.scaling == scaling
    assert identification.model.mean == ConstantMean(t.mean())
    assert identification.hyperparameters == QUICK.train(scaling.transform(x), t - t.mean(), 0)
    fixed = Settings(training=FIXED, budget=20)
    assert Identification(NARX, fixed, start=Start(mean=ConstantMean(0.5))).model.scaling == Scaling.identity(3)
    assert Identification(NARX, fixed, start=Start(mean=ConstantMean(0.5))).model.mean.value == 0.5


def test_an_estimate_gives_a_new_model_and_leaves_the_initial_one():
    y, u = record(80)
    steps, identification, _ = run(NARX, Settings(training=FOLLOWING, budget=20), y, u)
    first, *_, last = identification.adaptation.estimates
    trained = identification.hyperparameters
    initial, model = identification.initial.gp, identification.model.gp
    assert (initial.kernel, initial.noise_variance) == (trained.kernel, trained.noise_variance)
    assert initial.n_points == 12
    assert (model.kernel, model.noise_variance) == (last.kernel, last.noise_variance)
    assert first.kernel != trained.kernel
    assert [step.n_points for step in steps[12:]] == [step.report.n_points for step in steps[12:]]
    assert run(NARX, Settings(training=QUICK), y, u)[1].adaptation is None


def test_an_interrupted_estimate_leaves_the_model_it_had(monkeypatch):
    y, u = record(80)
    rows = NARX.regressors({"y": y, "u": u})
    identification = Identification(NARX, Settings(training=FOLLOWING, budget=20))

    def interrupted(*_):
        raise KeyboardInterrupt

    identification.observe_many(rows.regressor[:12], rows.target[:12])
    monkeypatch.setattr(OnlineGP, "with_hyperparameters", interrupted)
    model = identification.model
    with pytest.raises(KeyboardInterrupt):
        identification.observe_many(rows.regressor[12:], rows.target[12:])
    assert identification.model is model
    assert identification.adaptation.estimates == []
    assert np.isfinite(model.predict(rows.regressor).mean).all()
