"""From signals to a model in one call."""

from dataclasses import replace
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import sysid
from sysid import (
    ExceedsMinimum,
    FreeRun,
    Identification,
    Model,
    Narx,
    PriorEntropy,
    Settings,
    identify,
)
from sysid.simulation.baselines import LinearArx

mpl.use("Agg")
N = 700
NARX = Narx({"y": 2}, {"u": 1})
SMALL = Settings(budget=20)


def signals(n=N, seed=0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + np.tanh(u[k - 1]) + 0.01 * rng.normal()
    return u, y


U, Y = signals()
STAMPS = pd.date_range("2026-01-01", periods=N, freq="100ms")
TABLE = pd.DataFrame({"u": U, "y": Y})
RECORD = xr.Dataset({"u": ("time", U), "y": ("time", Y)}, {"time": 0.1 * np.arange(N)})


@pytest.fixture(scope="module")
def found():
    return identify((U, Y), NARX, SMALL, dt=0.1)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ((U[:, None], Y[:, None]), {"dt": 0.1}),
        ({"u": U, "y": Y}, {"dt": 0.1}),
        (TABLE, {"dt": 0.1}),
        (TABLE.set_index(STAMPS), {}),
        (TABLE.assign(t=0.1 * np.arange(N)), {"time": "t"}),
        (TABLE.assign(t=STAMPS.astype(str)), {"time": "t"}),
        (RECORD, {}),
        ([RECORD], {"test": None}),
    ],
)
def test_whatever_holds_the_signals_gives_the_same_model(found, data, options):
    other = identify(data, NARX, SMALL, **options)
    assert other.recordings.sampling_time == 0.1  # not 0.09999999999999999
    np.testing.assert_array_equal(other.predict(), found.predict())


def test_a_file_is_read_and_the_loop_is_that_of_the_stream(found, tmp_path):
    TABLE.to_csv(tmp_path / "record.csv", index=False)
    other = identify(tmp_path / "record.csv", NARX, SMALL, dt=0.1)
    same = Identification.of_records(RECORD.isel(time=slice(490)), NARX, SMALL).model
    for model in (found.model, other.model):
        np.testing.assert_array_equal(model.gp.inputs, same.gp.inputs)
    assert found.model.origin.sampling_time == 0.1
    named = TABLE.rename(columns={"u": "u [%]", "y": "y (K)"}).assign(date=STAMPS)
    named.to_csv(tmp_path / "other.csv", index=False, sep=";", decimal=",")
    again = identify(tmp_path / "other.csv", NARX, SMALL)
    np.testing.assert_array_equal(again.predict(), other.predict())
    assert again.recordings.units == {"u": "%", "y": "K"}
    named.loc[300:302, "u [%]"] = np.nan
    with pytest.warns(UserWarning, match="3 rows without a value.*segments: 2"):
        split = identify(named, NARX, SMALL, on_missing="skip")
    assert [one.sizes["time"] for one in split.recordings.estimation] == [210, 278]
    given = identify(RECORD, NARX, SMALL, test=RECORD.isel(time=slice(600, None)), identified=0.5)
    assert given.recordings.test[0].sizes["time"] == 100
    assert given.recordings.estimation[0].sizes["time"] == N


def test_measures_are_those_of_the_samples(found):
    ahead = found.predict()
    free = found.simulate()
    model = found.model
    rows = NARX.dataset(found.recordings.test[0])
    mean, variance = model.predict(rows["regressor"].values)
    y = NARX.predict.to_value(mean, rows["previous"].values)
    np.testing.assert_allclose(ahead["y_mean"], y)
    half = 1.959964 * np.sqrt(model.calibrated(variance) + model.gp.noise_variance)
    np.testing.assert_allclose(ahead["y_high"] - ahead["y_low"], 2 * half, rtol=1e-6)
    table = found.validate()
    for words, frame in (("1 step", ahead), ("free run", free)):
        error = frame["y"] - frame["y_mean"]
        assert table.loc[("y", words), "rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert 0.85 < table.loc[("y", "1 step"), "coverage_95"] <= 1.0
    compared = found.compare({"fewer": identify((U, Y), NARX, dt=0.1, budget=3)})
    assert compared.loc[("y", "model", "1 step"), "rmse"] == table.loc[("y", "1 step"), "rmse"]
    assert (
        compared.loc[("y", "fewer", "free run"), "rmse"]
        > compared.loc[("y", "model", "free run"), "rmse"]
    )
    arx = LinearArx.fit(NARX, found.recordings.estimation)
    error = rows["target"].values - arx.one_step(rows)
    assert compared.loc[("y", "ARX, same lags", "1 step"), "rmse"] == pytest.approx(
        np.sqrt(np.mean(error**2))
    )
    assert ("y", "ARX, best", "free run") in compared.index


def test_a_simulation_needs_the_first_outputs_only(found):
    blind = TABLE.assign(y=np.where(np.arange(N) < 5, Y, np.nan))
    hidden = found.simulate(blind, window=5)
    open_ = found.simulate(TABLE, window=5)
    np.testing.assert_array_equal(hidden["y_mean"], open_["y_mean"])
    assert hidden["y"].isna().all()
    with pytest.raises(ValueError, match=r"not finite|nan"):
        found.predict(blind)


def test_samples_held_at_a_limit_are_told(found):
    held = replace(
        found.model,
        limits=(-0.5, 0.5),
        origin=replace(found.model.origin, output_range=(-0.1, 0.1)),
    )
    with pytest.warns(UserWarning, match="samples are held at a limit") as caught:
        frame = replace(found, identifications={"y": SimpleNamespace(model=held)}).simulate()
    assert str(caught[0].message).startswith(f"{(frame['y_mean'].abs() == 0.5).sum()} samples")


def test_several_outputs_have_models_of_their_own_and_words_choose():
    z = 0.3 * np.roll(U, 1) + 0.2 * np.roll(U, 2) + 0.01 * np.random.default_rng(1).normal(size=N)
    words = {
        "training": "maximum_likelihood",
        "kernel": "matern_52",
        "insertion": "novelty",
    }
    found = identify(
        {"u": U, "y": Y, "z": z},
        inputs=["u"],
        outputs=["y", "z"],
        dt=0.1,
        reduction="prior_entropy",
        **words,
    )
    assert list(found.models) == list(found.lag_choices) == ["y", "z"]
    settings = found.identifications["z"].settings
    assert isinstance(settings.reduction, PriorEntropy)
    assert isinstance(settings.acceptance, ExceedsMinimum)
    assert settings.acceptance.criterion == settings.reduction
    assert isinstance(found.models["y"].gp.kernel, sysid.Matern52)
    table = found.validate()
    assert list(table.index) == [
        (name, words) for name in ("y", "z") for words in ("1 step", "free run")
    ]
    assert (table["fit_percent"] > 80).all()
    with pytest.raises(ValueError, match=r"models of \['y', 'z'\]: take models"):
        _ = found.model
    assert len(found.plot()) == 2


def test_a_model_for_simulation_is_trained_for_it(found, tmp_path):
    route = sysid.ProfileSearch(evaluations=5, starts=1)
    settings = replace(SMALL, training=FreeRun(routes=[route], folds=2))
    other = identify((U, Y), NARX, settings, dt=0.1, purpose="simulation", seed=1)
    assert other.identifications["y"].settings.training == settings.training
    (axis,) = other.plot()
    assert {line.get_label() for line in axis.lines} == {"measured", "free run"}
    (path,) = found.save(tmp_path / "model.nc")
    x = NARX.dataset(RECORD)["regressor"].values
    np.testing.assert_array_equal(Model.load(path).predict(x), found.model.predict(x))
    assert "490 samples learned, 210 samples for the test" in repr(found)
    assert "\ny: y[k-1], y[k-2], u[k-1]; 20 points" in repr(found)
    assert "coverage_95" in found._repr_html_()


def test_a_loop_of_ones_own_calls_step():
    live = identify(RECORD.isel(time=slice(400)), NARX, SMALL, identified=1)
    errors = []
    plain = Identification.of_records(RECORD.isel(time=slice(400)), NARX, SMALL)
    rows = NARX.dataset(RECORD.isel(time=slice(400, None)))
    for k in range(400, N):
        reports = live.step(Y[k], {"u": U[k]})
        if reports:
            errors.append(reports["y"].mean)
    expected = [
        plain.observe(x, t).mean
        for x, t in zip(rows["regressor"].values, rows["target"].values, strict=True)
    ]
    np.testing.assert_array_equal(errors, expected)
    with pytest.raises(ValueError, match="no test record"):
        live.validate()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            (U, Y),
            {"purpose": "control"},
            "purpose must be one of prediction, simulation, got 'control'",
        ),
        ((U, Y), {}, "sampling time is not known"),
        (
            TABLE.set_index(STAMPS),
            {"dt": 1.0},
            "the step of time is 0.1 s where dt is 1 s",
        ),
        (TABLE, {"dt": 0.1, "narx": "auto"}, r"name the signals, inputs=\['u'\]"),
        (
            TABLE,
            {"dt": 0.1, "outputs": "y", "narx": "auto"},
            r"outputs must be a list of names.*write \['y'\]",
        ),
        (
            TABLE,
            {"dt": 0.1, "inputs": ["v"]},
            r"no columns \['v'\].*\['u', 'y'\].*inputs=\['y'\]",
        ),
        (TABLE, {"time": "t"}, r"no columns \['t'\]"),
        (
            TABLE.assign(t=[*range(N - 1), 2 * N]),
            {"time": "t"},
            "the step of time is 702 s where the median",
        ),
        ((np.ones((N, 2)), Y), {"dt": 0.1}, r"2 columns for the inputs \['u'\]"),
        (3.0, {"dt": 0.1}, "expected an xarray.Dataset.*got float"),
        (
            (U, Y),
            {"dt": 0.1, "on_missing": "fill"},
            "on_missing must be one of error, skip",
        ),
        (
            TABLE.assign(u=np.where(U > 3, np.nan, U)),
            {"dt": 0.1},
            "row .*the value is missing.*on_missing=skip",
        ),
        ((U, Y), {"dt": 0.1, "identified": 0}, "identified must be above 0"),
        ((U, Y), {"dt": 0.1, "narx": "many"}, 'narx must be "auto" or a Narx'),
        (
            (U, Y),
            {"dt": 0.1, "reduction": "oldest"},
            "reduction must be one of prior_entropy.*got 'oldest'",
        ),
        (
            (U, Y),
            {"dt": 0.1, "insertion": "error"},
            r"write insertion=ErrorThreshold\(error_threshold=\.\.\.\)",
        ),
        (
            (U, Y),
            {"dt": 0.1, "kernel": "cosine"},
            "kernel must be one of squared_exponential.*got 'cosine'",
        ),
        (
            (U, Y),
            {"dt": 0.1, "training": "free_run", "kernel": "matern_52"},
            "FreeRun chooses its kernel",
        ),
        (
            (U, Y),
            {"dt": 0.1, "training": "adaptive", "purpose": "simulation"},
            "leave out the purpose or the training",
        ),
    ],
)
def test_what_does_not_fit_is_refused(data, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        identify(data, **({"narx": NARX} | options))
