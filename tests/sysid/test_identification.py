"""The identification: collect, train, predict, learn; blocks; what is known beforehand; bands of
records.
"""

import signal
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr

from naive import CRITERIA, criterion_name
from streams import (
    FIXED,
    LAGS,
    NARX,
    QUICK,
    RULES,
    assert_same,
    bits,
    record,
    rows_of,
    run,
)
from sysid.gp.adaptation import Adaptive
from sysid.gp.affine_map import Scaling
from sysid.gp.dictionary import NOT_PREDICTED
from sysid.gp.kernels import SquaredExponential
from sysid.gp.mean import ConstantMean
from sysid.gp.online import OnlineGP
from sysid.gp.rules import ExceedsMinimum
from sysid.gp.training import Fixed, Hyperparameters, MaximumLikelihood, Start
from sysid.identification import Identification, Settings
from sysid.narx.lags import Narx

FOLLOWING = Adaptive(
    n_initial=12, restarts=1, interval=10, window=20, sample_size=15, significance=0.5
)


of_records = Identification.of_records


def test_training_sees_exactly_the_initial_samples_then_the_loop_is_the_online_gp_on_the_lag_data_set():
    y, u = record(80)
    assert_same(
        run(NARX, Settings(training=QUICK), y[: LAGS + 11], u[: LAGS + 11])[0],
        np.repeat(NOT_PREDICTED, 11),
    )
    found, rows, identification, window = run(
        NARX, Settings(training=QUICK, budget=15, seed=3, **RULES), y, u
    )
    times, x, t = rows_of(y, u)
    model = identification.model
    scaling = Scaling.fit(x[:12])
    hyper = identification.hyperparameters
    assert (model.scaling, model.mean) == (scaling, ConstantMean(t[:12].mean()))
    z = scaling.transform(x)
    centred = t - t[:12].mean()
    assert hyper == QUICK.train(z[:12], centred[:12], 3)
    assert np.isnan(found["mean"]).tolist() == [True] * 12 + [False] * (len(t) - 12)
    assert found["n_points"][:12].tolist() == [0] * 11 + [12]
    for one, other in zip(
        (0.5 * rows.sample, rows.regressor, rows.target), (times, x, t), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert window.n_missing == window.n_skipped == 0
    assert identification.training_seconds > 0

    settings = {
        "noise_variance": hyper.noise_variance,
        "budget": 15,
        "learning": "every_sample",
        **RULES,
    }
    gp = OnlineGP(hyper.kernel, **settings).fit(z[:12], centred[:12])
    np.testing.assert_equal(identification.initial.gp.state(), gp.state())  # does not learn
    for row, point, target in zip(found[12:], z[12:], centred[12:], strict=True):
        report = gp.update(point, target)
        np.testing.assert_equal(
            row.item(), tuple(report._replace(mean=report.mean + model.mean.value))
        )
    np.testing.assert_equal(model.gp.state(), gp.state())


def test_fixed_training_starts_empty_or_from_initial_samples_and_scales_nothing():
    y, u = record(30)
    empty = Identification(NARX, Settings(training=FIXED))
    assert empty.model.gp.n_points == 0
    assert empty.model.predict(np.zeros((1, 3))).variance[0] == pytest.approx(1.0)
    found, _, identification, _ = run(NARX, Settings(training=FIXED, budget=10), y, u)
    assert found[["mean", "variance"]][0].item() == (0.0, pytest.approx(1.0))
    assert found["n_points"].tolist() == [min(k + 1, 10) for k in range(28)]
    assert identification.initial.gp.n_points == 0
    training = Fixed(variance=1.0, length_scales=[1.0, 2.0, 3.0], noise_variance=0.01, n_initial=5)
    found, _, filled, _ = run(NARX, Settings(training=training, budget=10), y, u)
    assert np.isnan(found["mean"][:6]).tolist() == [True] * 5 + [False]
    np.testing.assert_array_equal(filled.initial.gp.inputs, rows_of(y, u)[1][:5])
    assert filled.model.gp.kernel.length_scales == (1.0, 2.0, 3.0)
    for model in (identification.model, filled.model):
        assert (model.scaling, model.mean.value) == (Scaling.identity(3), 0.0)


def test_what_is_known_beforehand_is_used_and_the_rest_follows_from_the_initial_samples():
    _, x, t = rows_of(*record(60))
    scaling = Scaling(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    mean = ConstantMean(0.25)
    given = Hyperparameters(SquaredExponential(0.7, [1.0, 2.0, 3.0]), 0.03, 0.0)
    z = scaling.transform(x)
    fitted = ConstantMean(t[:12].mean())
    for start, chosen, hyper in (
        (Start(scaling, mean, given), mean, given),
        (Start(scaling), fitted, QUICK.train(z[:12], t[:12] - fitted.value, 0)),
    ):
        identification = Identification(
            NARX, Settings(training=QUICK, budget=20, gate=None), start=start
        )
        identification.observe_many(x, t)
        for model in (identification.initial, identification.model):
            assert (model.scaling, model.mean) == (scaling, chosen)
            assert (model.gp.kernel, model.gp.noise_variance) == (
                hyper.kernel,
                hyper.noise_variance,
            )
        assert identification.hyperparameters == hyper
        np.testing.assert_array_equal(identification.initial.gp.inputs, z[:12])
        np.testing.assert_array_equal(identification.initial.gp.targets, t[:12] - chosen.value)
    model = Identification(NARX, Settings(training=FIXED), start=Start(mean=mean)).model
    assert (model.scaling, model.mean) == (Scaling.identity(3), mean)


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
@pytest.mark.parametrize("training", [QUICK, FOLLOWING], ids=["once", "following"])
def test_many_samples_at_once_give_the_bits_of_one_by_one_also_from_one_buffer(criterion, training):
    _, x, t = rows_of(*record(250))
    settings = Settings(
        training=training,
        budget=15,
        reduction=criterion,
        acceptance=ExceedsMinimum(criterion),
        seed=2,
    )
    one = Identification(NARX, settings)
    point = np.zeros(3)
    expected = []
    for point[:], target in zip(x, t, strict=True):
        report = one.observe(point, target)
        if one.correction is not None:
            expected[-1] = one.correction
        expected.append(report)
    assert [report is None for report in expected] == [True] * 12 + [False] * (len(t) - 12)
    assert training is QUICK or one.adaptation.estimates
    for cuts in (
        [],
        [0, 5, 13, 22, 23, 50],
        np.sort(np.random.default_rng(1).integers(0, len(t), 9)),
    ):
        other = Identification(NARX, settings)
        reports = []
        for block in zip(np.split(x.copy(), cuts), np.split(t.copy(), cuts), strict=True):
            became = other.observe_many(*block)
            block[0][:] = block[1][:] = 7.0
            if other.correction is not None:
                reports[-1][-1] = other.correction
            if len(became):
                reports.append(became)
        found = np.concatenate(reports)[12:]
        np.testing.assert_equal(
            [row.item() for row in found], [tuple(report) for report in expected[12:]]
        )
        np.testing.assert_equal(bits(other), bits(one))


@pytest.mark.parametrize("training", [QUICK, FOLLOWING])
def test_many_samples_with_a_bad_one_are_refused_before_anything_is_collected_or_learned(
    training,
):
    _, x, t = rows_of(*record(60))
    bad = np.append(t[20:-1], np.nan)
    settings = Settings(training=training, budget=20)
    found = Identification(NARX, settings)
    expected = Identification(NARX, settings)
    for part in (slice(5), slice(5, 20), slice(20, 30)):
        for identification in (found, expected):
            identification.observe_many(x[part], t[part])
        with pytest.raises(ValueError, match="targets"):
            found.observe_many(x[20:], bad)
        with pytest.raises(ValueError, match="regressors"):
            found.observe_many(x[20:, :2], t[20:])
    np.testing.assert_equal(bits(found), bits(expected))


def test_an_interrupted_estimate_leaves_the_model_it_had(monkeypatch):
    _, x, t = rows_of(*record(80))
    identification = Identification(NARX, Settings(training=FOLLOWING, budget=20))
    identification.observe_many(x[:12], t[:12])
    monkeypatch.setattr(
        OnlineGP, "with_hyperparameters", lambda *_: signal.raise_signal(signal.SIGINT)
    )
    model = identification.model
    with pytest.raises(KeyboardInterrupt):
        identification.observe_many(x[12:], t[12:])
    assert identification.model is model
    assert identification.adaptation.estimates == []
    assert np.isfinite(model.predict(x).mean).all()


def test_one_call_identifies_records():
    y, u = record(80)
    data = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": 0.5 * np.arange(80)})
    settings = Settings(training=QUICK, budget=15, seed=3, **RULES)
    alone = of_records(data, NARX, settings, start=Start())
    np.testing.assert_equal(bits(alone), bits(run(NARX, settings, y, u)[2]))
    rows = NARX.dataset(data)
    known = QUICK.know(rows["regressor"].values, rows["target"].values, mean=settings.mean, seed=3)
    np.testing.assert_equal(
        bits(of_records(data, NARX, settings)),
        bits(of_records(data, NARX, settings, start=known)),
    )
    with pytest.raises(ValueError, match=r"n_initial is 12.*8 rows"):
        of_records(data.isel(time=slice(8 + LAGS)), NARX, settings)


def test_bands_are_measured_on_parts_that_were_not_learned():
    """One step ahead, against five models that each learn from four fifths of the rows."""
    y, u = record(160)
    data = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": 0.5 * np.arange(160)})
    settings = Settings(training=QUICK, budget=15, **RULES)
    model, (_, x, t) = of_records(data, NARX, settings).model, rows_of(y, u)
    known = Start(
        model.scaling,
        model.mean,
        Hyperparameters(model.gp.kernel, model.gp.noise_variance, np.nan),
    )
    z = []
    ends = np.linspace(0, len(t), 6).astype(int)
    for begin, end in pairwise(ends):
        rest = [k for k in range(len(t)) if not begin <= k < end]
        again = Identification(
            NARX, replace(settings, training=replace(QUICK, n_initial=15)), start=known
        )
        for k in rest:
            again.observe(x[k], t[k], follows=k not in (0, end))
        error = t[begin:end] - again.model.predict(x[begin:end]).mean
        variance = model.predict(x[begin:end]).variance
        z.append(error / np.sqrt(variance + model.gp.noise_variance))
    q50, q95 = np.quantile(np.abs(np.concatenate(z)), [0.5, 0.95])
    assert model.bands[0] == (
        1,
        pytest.approx(np.sqrt(q50 / 0.67449 * q95 / 1.95996), rel=1e-4),
    )
    assert [horizon for horizon, _ in model.bands] == [1, 3, 10, 30]
    for changes in (
        {"forgetting": 50.0},
        {"budget": 2, "training": replace(QUICK, n_initial=2)},
    ):
        other = of_records(data, NARX, replace(settings, **changes)).model
        assert bool(other.bands) == ("budget" in changes)
    assert of_records(data.isel(time=slice(99)), NARX, settings).model.bands == ()
    driven = Narx({"y": []}, {"u": [1, 2]}, predict="value")  # no lags: every horizon is one step
    assert [horizon for horizon, _ in of_records(data, driven, settings).model.bands] == [1]


def test_a_training_that_failed_is_tried_again():
    class Failing(MaximumLikelihood):
        def train(self, inputs, targets, seed):
            tried.append(len(targets))
            if len(targets) < 14:
                raise np.linalg.LinAlgError("not yet")
            return super().train(inputs, targets, seed)

    tried = []
    _, x, t = rows_of(*record(30))
    identification = Identification(
        NARX, Settings(training=Failing(n_initial=12, restarts=1), budget=15)
    )
    for k in range(14):
        with nullcontext() if k not in (11, 12) else pytest.raises(np.linalg.LinAlgError):
            identification.observe(x[k], t[k])
    assert tried == [12, 13, 14]
    assert identification.model is not None
