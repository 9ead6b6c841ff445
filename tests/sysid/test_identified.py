"""From signals to a model in one call."""

import re
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sysid import (
    AcceptAll,
    Adaptive,
    ExceedsMinimum,
    FreeRun,
    Identification,
    JointModel,
    Linear,
    LinearMean,
    Matern52,
    MaximumLikelihood,
    Model,
    Narx,
    PriorEntropy,
    ProfileSearch,
    Settings,
    SquaredExponential,
    identify,
)
from sysid.identified_views import Predicted, draw_output, small_chart
from sysid.simulation.baselines import LinearArx

mpl.use("Agg")

N_SAMPLES = 200
N_LEARNED = 140  # 70 % of the samples; the others are the test
SAMPLING_TIME = 0.1  # s
NARX = Narx({"y": 2}, {"u": 1})
SETTINGS = Settings(budget=20, training=Adaptive(n_initial=40), linear_part="none")
#: a training with a kernel that takes next to no time
QUICK_SETTINGS = replace(
    SETTINGS, training=MaximumLikelihood(n_initial=20, restarts=1, max_iterations=1), budget=10
)


def small_system(n=N_SAMPLES, seed=0):
    """Return input and output of a small nonlinear system."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + np.tanh(u[k - 1]) + 0.01 * rng.normal()
    return u, y


U, Y = small_system()
N_SHORT = 130  # samples; 70 % of them are too few to calibrate bands, which takes most of the time
TIME = SAMPLING_TIME * np.arange(N_SAMPLES)
STAMPS = pd.date_range("2026-01-01", periods=N_SAMPLES, freq="100ms")
TABLE = pd.DataFrame({"u": U, "y": Y})
RECORD = xr.Dataset({"u": ("time", U), "y": ("time", Y)}, {"time": TIME})
SHORT_U = U[:N_SHORT]
SHORT_Y = Y[:N_SHORT]
SHORT_TIME = TIME[:N_SHORT]
SHORT_STAMPS = STAMPS[:N_SHORT]
SHORT_TABLE = TABLE.head(N_SHORT)
SHORT_RECORD = RECORD.isel(time=slice(N_SHORT))


@pytest.fixture(scope="module")
def identified():
    """Return the model of the pair of arrays, which several tests inspect."""
    return identify((U, Y), NARX, SETTINGS, dt=SAMPLING_TIME)


@pytest.fixture(scope="module")
def ahead(identified):
    """Return the predictions of its test, one step ahead."""
    return identified.predict()


@pytest.fixture(scope="module")
def short_predictions():
    """Return predictions of the model of the first samples, which several containers give too."""
    return identify((SHORT_U, SHORT_Y), NARX, SETTINGS, dt=SAMPLING_TIME).predict()


@pytest.mark.parametrize(
    ("data", "options"),
    [
        pytest.param(
            (SHORT_U[:, None], SHORT_Y[:, None]),
            {"dt": SAMPLING_TIME},
            id="pair of columns",
        ),
        pytest.param({"u": SHORT_U, "y": SHORT_Y}, {"dt": SAMPLING_TIME}, id="arrays by name"),
        pytest.param(SHORT_TABLE, {"dt": SAMPLING_TIME}, id="table"),
        pytest.param(SHORT_TABLE.set_index(SHORT_STAMPS), {}, id="table with an index of stamps"),
        pytest.param(SHORT_TABLE.assign(t=SHORT_TIME), {"time": "t"}, id="table with times"),
        pytest.param(
            SHORT_TABLE.assign(t=SHORT_STAMPS.astype(str)),
            {"time": "t"},
            id="table with stamps",
        ),
        pytest.param(SHORT_RECORD, {}, id="data set"),
        pytest.param(SHORT_RECORD, {"dt": SAMPLING_TIME, "time": "time"}, id="data set and its dt"),
        pytest.param(
            SHORT_TABLE.set_index(pd.RangeIndex(0, 10 * len(SHORT_TABLE), 10)),
            {"dt": SAMPLING_TIME},
            id="table of every tenth row",
        ),
        pytest.param(
            (pd.Series(SHORT_U, SHORT_STAMPS), pd.DataFrame({"y": SHORT_Y}, SHORT_STAMPS)),
            {},
            id="pair with an index of stamps",
        ),
        pytest.param(
            SHORT_TABLE.set_index(SHORT_STAMPS.to_period("100ms")), {}, id="index of periods"
        ),
        pytest.param([SHORT_RECORD], {"test": None}, id="list of data sets"),
    ],
)
def test_signals_in_any_container_give_the_same_model(short_predictions, data, options):
    result = identify(data, NARX, SETTINGS, **options)
    assert result.recordings.sampling_time == SAMPLING_TIME  # not 0.09999999999999999
    np.testing.assert_array_equal(result.predict(), short_predictions)


def test_a_file_gives_the_model_of_the_loop_over_its_rows(identified, tmp_path):
    TABLE.to_csv(tmp_path / "record.csv", index=False)
    of_file = identify(tmp_path / "record.csv", NARX, SETTINGS, dt=SAMPLING_TIME)
    learned = RECORD.isel(time=slice(N_LEARNED))
    expected = Identification.of_records(learned, NARX, SETTINGS).model
    for model in (identified.model, of_file.model):
        np.testing.assert_array_equal(model.gp.inputs, expected.gp.inputs)
    assert identified.model.origin.sampling_time == SAMPLING_TIME


@pytest.fixture
def table_with_units():
    """Return the short table with units in the names of its columns, and a column of stamps."""
    renamed = SHORT_TABLE.rename(columns={"u": "u [%]", "y": "y (K)"})
    return renamed.assign(date=SHORT_STAMPS)


def test_a_file_may_name_units_and_use_a_decimal_comma(
    short_predictions, table_with_units, tmp_path
):
    table_with_units.to_csv(tmp_path / "record.csv", index=False, sep=";", decimal=",")
    result = identify(tmp_path / "record.csv", NARX, SETTINGS)
    np.testing.assert_array_equal(result.predict(), short_predictions)
    assert result.recordings.units == {"u": "%", "y": "K"}


def test_missing_values_of_an_input_are_skipped(table_with_units):
    table_with_units.loc[60:62, "u [%]"] = np.nan
    with pytest.warns(UserWarning, match="3 of 130 samples of u are missing") as warnings:
        found = identify(table_with_units, NARX, SETTINGS, on_missing="skip")
    assert warnings[0].filename == __file__
    (record,) = found.recordings.estimation
    assert record.sizes["time"] == round(0.7 * N_SHORT)
    rows = found.model.narx.dataset(record)
    assert rows.attrs["n_missing"] == 3


def test_given_test_records_leave_all_of_the_data_to_the_identification():
    data = RECORD.isel(time=slice(90))
    last = RECORD.isel(time=slice(150, None))
    result = identify(data, NARX, SETTINGS, test=last, identified=0.5)
    assert result.recordings.test[0].sizes["time"] == 50
    assert result.recordings.estimation[0].sizes["time"] == 90


def test_predictions_are_those_of_the_model(identified, ahead):
    model = identified.model
    rows = NARX.dataset(identified.recordings.test[0])
    mean, variance = model.predict(rows["regressor"].values)
    y = NARX.predict.to_value(mean, rows["previous"].values)
    np.testing.assert_allclose(ahead["y_mean"], y)
    half_width = 1.959964 * np.sqrt(model.calibrated(variance) + model.gp.noise_variance)
    np.testing.assert_allclose(ahead["y_high"] - ahead["y_low"], 2 * half_width, rtol=1e-6)


def test_measures_are_those_of_the_samples(identified, ahead):
    measures = identified.validate()
    for kind, frame in (("1 step", ahead), ("free run", identified.simulate())):
        error = frame["y"] - frame["y_mean"]
        assert measures.loc[("y", kind), "rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert 0.85 < measures.loc[("y", "1 step"), "coverage_95"] <= 1.0


def test_a_comparison_holds_the_model_others_and_linear_models(identified):
    smaller = identify((U, Y), NARX, dt=SAMPLING_TIME, budget=3)
    comparison = identified.compare({"fewer": smaller})
    rmse = comparison["rmse"]
    measures = identified.validate()
    assert rmse[("y", "model", "1 step")] == measures.loc[("y", "1 step"), "rmse"]
    assert rmse[("y", "fewer", "free run")] > rmse[("y", "model", "free run")]
    rows = NARX.dataset(identified.recordings.test[0])
    arx = LinearArx.fit(NARX, identified.recordings.estimation)
    error = rows["target"].values - arx.one_step(rows)
    expected = np.sqrt(np.mean(error**2))
    assert rmse[("y", "ARX, same lags", "1 step")] == pytest.approx(expected)
    assert ("y", "ARX, best", "free run") in comparison.index


def lags_of_all(u, y, n_lags):
    """Return lags 1 to `n_lags` of output and input, and ones, for the samples from 12 on."""
    n = len(y)
    columns = [y[12 - lag : n - lag] for lag in range(1, n_lags + 1)]
    columns += [u[12 - lag : n - lag] for lag in range(1, n_lags + 1)]
    return np.column_stack([*columns, np.ones(n - 12)])


def test_a_comparison_holds_the_best_line_of_equally_many_lags(identified):
    """The number of lags has the smallest error on fifths that a fit to the others predicts."""
    u, y = U[:N_LEARNED], Y[:N_LEARNED]
    target = y[12:]
    folds = np.array_split(np.arange(len(target)), 5)
    errors = []
    for n_lags in range(1, 13):
        x = lags_of_all(u, y, n_lags)
        squares = 0.0
        for fold in folds:
            rest = np.setdiff1d(np.arange(len(target)), fold)
            theta = np.linalg.lstsq(x[rest], target[rest], rcond=None)[0]
            squares += np.sum((x[fold] @ theta - target[fold]) ** 2)
        errors.append(squares)
    n_lags = 1 + int(np.argmin(errors))
    arx = LinearArx.fit(Narx({"y": n_lags}, {"u": n_lags}), identified.recordings.estimation)
    rows = arx.narx.dataset(identified.recordings.test[0])
    expected = np.sqrt(np.mean((rows["target"].values - arx.one_step(rows)) ** 2))
    assert n_lags > 1
    rmse = identified.compare()["rmse"]
    assert rmse[("y", "ARX, 1 to 12 lags", "1 step")] == pytest.approx(expected)
    assert np.isfinite(rmse[("y", "ARX, 1 to 12 lags", "free run")])


def test_lines_with_more_lags_than_a_record_has_samples_are_left_out(identified):
    few = TABLE.head(3)
    comparison = identified.compare(data=few)
    assert {*comparison.index.get_level_values("model")} == {"model", "ARX, same lags"}


def test_static_data_are_compared_with_no_line_of_past_values():
    x = np.random.default_rng(0).uniform(-1, 1, 150)
    static = xr.Dataset(
        {"x": ("time", x), "y": ("time", np.sin(3 * x))},
        {"time": np.arange(150.0)},
        attrs={"static": 1},
    )
    narx = Narx({"y": []}, {"x": [0]}, predict="value")
    found = identify(static, narx, budget=20)
    comparison = found.compare()
    assert {*comparison.index.get_level_values("model")} == {"model", "ARX, same lags"}


def test_a_simulation_needs_the_first_outputs_only(identified):
    is_measured = np.arange(N_SAMPLES) < 5
    without_outputs = TABLE.assign(y=np.where(is_measured, Y, np.nan))
    blind = identified.simulate(without_outputs, window=5)
    sighted = identified.simulate(TABLE, window=5)
    np.testing.assert_array_equal(blind["y_mean"], sighted["y_mean"])
    assert blind["y"].isna().all()
    with pytest.raises(ValueError, match=r"not finite|nan"):
        identified.predict(without_outputs)


def test_samples_held_at_a_limit_are_counted_in_a_warning(identified):
    limited = replace(
        identified.model,
        limits=(-0.5, 0.5),
        origin=replace(identified.model.origin, output_range=(-0.1, 0.1)),
    )
    result = replace(identified, identifications={"y": SimpleNamespace(model=limited)})
    with pytest.warns(UserWarning, match="samples are held at a limit") as warnings:
        frame = result.simulate()
    assert warnings[0].filename == __file__
    n_held = (frame["y_mean"].abs() == 0.5).sum()
    assert str(warnings[0].message).startswith(f"{n_held} samples")


@pytest.fixture(scope="module")
def two_outputs():
    """Return the models of two outputs, with lags chosen and settings given by words."""
    noise = 0.01 * np.random.default_rng(1).normal(size=N_SAMPLES)
    z = 0.3 * np.roll(U, 1) + 0.2 * np.roll(U, 2) + noise
    return identify(
        {"u": U, "y": Y, "z": z},
        inputs=["u"],
        outputs=["y", "z"],
        dt=SAMPLING_TIME,
        training="maximum_likelihood",
        kernel="matern_52",
        insertion="novelty",
        reduction="prior_entropy",
    )


def test_words_choose_the_settings(two_outputs):
    settings = two_outputs.identifications["z"].settings
    assert isinstance(settings.reduction, PriorEntropy)
    assert isinstance(settings.acceptance, ExceedsMinimum)
    assert settings.acceptance.criterion == settings.reduction
    assert isinstance(two_outputs.models["y"].gp.point_kernel, Matern52)


def test_each_of_several_outputs_has_a_model(two_outputs):
    assert list(two_outputs.models) == ["y", "z"]
    assert list(two_outputs.lag_choices) == ["y", "z"]
    measures = two_outputs.validate()
    assert list(measures.index) == [
        ("y", "1 step"),
        ("y", "free run"),
        ("z", "1 step"),
        ("z", "free run"),
    ]
    assert (measures["fit_percent"] > 80).all()
    with pytest.raises(ValueError, match=r"models of \['y', 'z'\]: take models"):
        _ = two_outputs.model
    assert len(two_outputs.plot()) == 2


def test_a_model_for_simulation_is_trained_for_it():
    route = ProfileSearch(evaluations=5, starts=1)
    settings = replace(SETTINGS, training=FreeRun(routes=[route], folds=2))
    options = {"dt": SAMPLING_TIME, "purpose": "simulation", "seed": 1}
    result = identify((SHORT_U, SHORT_Y), NARX, settings, **options)
    assert result.identifications["y"].settings.training == settings.training
    (axis,) = result.plot()
    assert {line.get_label() for line in axis.lines} == {"measured", "free run"}


def test_a_saved_model_predicts_the_same(identified, tmp_path):
    (path,) = identified.save(tmp_path / "model.nc")
    x = NARX.dataset(RECORD)["regressor"].values
    np.testing.assert_array_equal(Model.load(path).predict(x), identified.model.predict(x))


def test_a_result_describes_itself(identified):
    text = repr(identified)
    assert "140 samples learned, 60 samples for the test" in text
    assert "\ny: y[k-1], y[k-2], u[k-1]; 20 points" in text


def test_a_notebook_shows_warnings_then_numbers_beside_lines_then_pictures(identified, monkeypatch):
    monkeypatch.setitem(vars(identified), "notes", ["a < b"])
    html = identified._repr_html_()
    places = [html.index(part) for part in ("a &lt; b", "RMSE, ARX, best", "<svg", "<details>")]
    assert places == sorted(places)
    assert html.count("<svg") == 3  # one step, free run, and the effect of a regressor
    assert "95 % band covers [%]" in html


def test_a_model_and_its_identification_show_themselves(identified):
    identification = identified.identifications["y"]
    assert identified.model._repr_html_() in identification._repr_html_()
    html = identified.model._repr_html_()
    for words in ("y[k-1], y[k-2], u[k-1]", "20 of at most 20", "0.1 s"):
        assert words in html
    waiting = Identification(NARX, SETTINGS)
    assert "0 of 40 samples collected" in waiting._repr_html_()


def test_models_and_identifications_are_described_in_a_few_lines(identified):
    identification = identified.identifications["y"]
    text = repr(identified.model)
    first, second = text.splitlines()
    assert first == "Model of the change of y"
    assert second.startswith("y[k-1], y[k-2], u[k-1]; 20 points")
    assert "standard deviation of the noise: " in second
    assert repr(identification).splitlines()[1:] == [first, second]
    assert repr(JointModel.of(identified.model)) == f"JointModel\n{text}"
    assert repr(Identification(NARX, SETTINGS)) == (
        "Identification of y: 0 of 40 samples collected for the training; there is no model yet"
    )


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        pytest.param((-np.inf, 5.0), ("a simulation is", "at most 5 °C"), id="upper"),
        pytest.param((-1.0, np.inf), ("a simulation is", "at least -1 °C"), id="lower"),
        pytest.param((-1.0, 5.0), ("a simulation stays within", "-1 °C to 5 °C"), id="both"),
        pytest.param((-np.inf, np.inf), None, id="none"),
    ],
)
def test_a_model_shows_the_limits_of_its_simulation(identified, limits, words):
    model = identified.model
    in_celsius = replace(model.origin, units={"y": "degC"})
    html = replace(model, origin=in_celsius, limits=limits)._repr_html_()
    assert "inf" not in html
    if words is None:
        assert "a simulation" not in html
    else:
        assert all(part in html for part in words)


#: numbers of samples and settings, with which a search that depended on the unit ended elsewhere
CASES_OF_UNITS = {
    "beside a linear part": (300, {}),
    "one estimate": (200, {"training": MaximumLikelihood(n_initial=60), "linear_part": "none"}),
    "many estimates": (
        600,
        {"training": Adaptive(on_records=True), "learning": "stored", "linear_part": "none"},
    ),
}


@pytest.mark.parametrize(("n", "settings"), CASES_OF_UNITS.values(), ids=CASES_OF_UNITS)
def test_another_unit_or_offset_gives_the_same_model(n, settings):
    u, y = small_system(n)
    expected = identify((u, y), NARX, dt=0.1, budget=20, **settings).predict()
    for unit, offset in ((2.0**-30, 0.0), (1e-3, 1e6)):
        found = identify((u, offset + unit * y), NARX, dt=0.1, budget=20, **settings).predict()
        for name in ("y_mean", "y_high"):
            np.testing.assert_allclose((found[name] - offset) / unit, expected[name], atol=3e-5)


@pytest.mark.parametrize("unit", ["degC", "°C", "℃", "deg C"])
def test_units_are_those_of_people(unit):
    record = SHORT_RECORD.assign(y=("time", SHORT_Y, {"units": unit}))
    html = identify(record, NARX, QUICK_SETTINGS)._repr_html_()
    assert "[°C]" in html
    assert "RMSE [K]" in html  # of a difference of temperatures
    assert "[]" not in html


def test_a_record_without_inputs_is_shown_and_tested():
    found = identify({"y": SHORT_Y}, Narx({"y": 2}), QUICK_SETTINGS, outputs=["y"], dt=1.0)
    assert "y[k-1], y[k-2]" in repr(found)
    assert found.plot()


def test_a_figure_holds_predictions_errors_and_the_verdict(identified):
    (axis,) = identified.plot(RECORD)
    panels = axis.figure.axes
    assert [panel.get_ylabel() for panel in panels] == [
        "y",
        "y",
        "residual",
        "correlation of\nthe residual, 1 step",
    ]
    labels = [panel.get_legend_handles_labels()[1] for panel in panels]
    assert labels[0] == ["measured", "1 step", "95 % band"]
    assert labels[1] == ["measured", "free run", "95 % band"]
    assert labels[3] == ["with its past", "with u"]
    assert "residual tests" in panels[3].get_title(loc="left")


def test_lines_and_bands_break_at_gaps():
    times = np.concatenate([TIME[:20], TIME[20:40] + 5.0])
    columns = {name: np.sin(times) for name in ("y", "y_mean", "y_low", "y_high")}
    predicted = Predicted("1 step", pd.DataFrame(columns, index=times))
    first = draw_output("y", "V", [predicted], None, "s", "y")
    for panel in first.figure.axes:
        line = next(line for line in panel.lines if len(line.get_xdata()) > 2)
        assert np.isnan(line.get_ydata()).sum() == 1
        (band,) = panel.collections
        assert len(band.get_paths()) == 2
    html = small_chart("y", "V", predicted, "s")
    assert html.count("<polyline") == 4
    assert html.count("<polygon") == 2


def test_a_users_own_loop_calls_step():
    n_before = 90
    before = RECORD.isel(time=slice(n_before))
    after = RECORD.isel(time=slice(n_before, None))
    live = identify(before, NARX, SETTINGS, identified=1)
    means = []
    for k in range(n_before, N_SAMPLES):
        reports = live.step(Y[k], {"u": U[k]})
        if reports:
            means.append(reports["y"].mean)

    by_rows = Identification.of_records(before, NARX, SETTINGS)
    rows = NARX.dataset(after)
    expected = []
    follows = False
    for x, target in zip(rows["regressor"].values, rows["target"].values, strict=True):
        change = by_rows.model.predict(x[None]).mean[0]
        expected.append(x[0] + change)  # the first feature is y[k-1]
        by_rows.observe(x, target, follows=follows)
        follows = True
    np.testing.assert_array_equal(means, expected)
    with pytest.raises(ValueError, match="no test record"):
        live.validate()


PAIR = (U, Y)
TWO_RUNS = pd.MultiIndex.from_product([range(2), range(N_SAMPLES // 2)], names=["run", "k"])
DT = {"dt": SAMPLING_TIME}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        pytest.param(
            PAIR,
            {"purpose": "control"},
            "purpose must be one of prediction, simulation, got 'control'",
            id="unknown purpose",
        ),
        pytest.param(PAIR, {}, "sampling time is not known: set dt to", id="no sampling time"),
        pytest.param(
            TABLE.set_index(STAMPS),
            {"dt": 1.0},
            "the step of time is 0.1 s where dt is 1 s",
            id="another sampling time",
        ),
        pytest.param(
            TABLE,
            DT | {"narx": "auto"},
            r"name the signals, inputs=\['u'\]",
            id="no names",
        ),
        pytest.param(
            TABLE,
            DT | {"outputs": "y", "narx": "auto"},
            r"outputs must be a list of names.*write \['y'\]",
            id="a name instead of a list",
        ),
        pytest.param(
            TABLE,
            DT | {"inputs": ["v"]},
            r"no columns \['v'\].*\['u', 'y'\].*inputs=\['y'\]",
            id="unknown input",
        ),
        pytest.param(TABLE, {"time": "t"}, r"no columns \['t'\]", id="unknown column of times"),
        pytest.param(
            TABLE.assign(t=[*range(N_SAMPLES - 1), 2 * N_SAMPLES]),
            {"time": "t"},
            "the step of time is 202 s where the median",
            id="gap of time",
        ),
        pytest.param(
            (np.ones((N_SAMPLES, 2)), Y),
            DT,
            r"2 columns for the inputs \['u'\]",
            id="too many columns",
        ),
        pytest.param(3.0, DT, "expected an xarray.Dataset.*got float", id="a number"),
        pytest.param(
            {"u": U[:5], "y": Y[:5]},
            DT | {"identified": 0.6},
            "training.n_initial is 100, the records give 1 rows; give longer records",
            id="fewer rows than the training needs",
        ),
        pytest.param(
            None,
            DT | {"inputs": None, "outputs": None, "narx": "auto"},
            "expected an xarray.Dataset.*got NoneType",
            id="nothing, without names",
        ),
        pytest.param(
            {"u": U[1:], "y": Y},
            DT,
            rf"signals of a record need one length, got .*'u': {N_SAMPLES - 1}, 'y': {N_SAMPLES}",
            id="arrays of two lengths by name",
        ),
        pytest.param(
            {"u": pd.Series(U[1:]), "y": Y},
            DT,
            "signals of a record need one length",
            id="an array that is longer than the index of a signal",
        ),
        pytest.param(
            PAIR,
            DT | {"on_missing": "fill"},
            "on_missing must be one of error, skip",
            id="unknown on_missing",
        ),
        pytest.param(
            TABLE.assign(u=np.where(U.max() == U, np.nan, U)),
            DT,
            "row .*the value is missing.*on_missing=skip",
            id="missing value",
        ),
        pytest.param(
            PAIR,
            DT | {"identified": 0},
            "identified must be above 0",
            id="nothing to learn",
        ),
        pytest.param(
            PAIR,
            DT | {"narx": "many"},
            'narx must be "auto" or a Narx',
            id="unknown narx",
        ),
        pytest.param(
            U,
            DT | {"narx": Y},
            r"narx must be .* got ndarray: .* a pair: identify\(\(u, y\), dt=",
            id="input and output as two arguments",
        ),
        pytest.param(
            [U, Y],
            DT | {"inputs": ["u"], "outputs": ["y"]},
            r"got ndarray: .* write the pair \(u, y\) in parentheses",
            id="input and output in a list",
        ),
        pytest.param(
            PAIR,
            DT | {"reduction": "oldest"},
            "reduction must be one of prior_entropy.*got 'oldest'",
            id="unknown reduction",
        ),
        pytest.param(
            PAIR,
            DT | {"insertion": "error"},
            r"write insertion=ErrorThreshold\(error_threshold=\.\.\.\)",
            id="insertion that needs a number",
        ),
        pytest.param(
            PAIR,
            DT | {"kernel": "cosine"},
            "kernel must be one of squared_exponential.*got 'cosine'",
            id="unknown kernel",
        ),
        pytest.param(
            PAIR,
            DT | {"mean": "none"},
            "mean must be one of automatic, constant, linear, zero.*got 'none'",
            id="unknown mean",
        ),
        pytest.param(
            PAIR,
            DT | {"acceptance": "mached"},
            "acceptance must be one of none.*matched, or an object, got 'mached'",
            id="unknown acceptance",
        ),
        pytest.param(
            PAIR,
            DT | {"propagation": "pathwise"},
            "expected settings among acceptance, budget.*got propagation$",
            id="no setting",
        ),
        pytest.param(
            PAIR,
            DT | {"n_initial": 50},
            r"got n_initial; n_initial is a setting of the training: write training=sysid\.Adapt",
            id="setting of the training",
        ),
        pytest.param(PAIR, {"dt": np.timedelta64(1, "s")}, "dt must be a number", id="a duration"),
        pytest.param(
            PAIR,
            DT | {"budget": np.timedelta64(9, "s")},
            "budget must be a whole number",
            id="a duration as a count",
        ),
        pytest.param(PAIR, DT | {"seed": "0"}, "seed must be a whole number", id="text as seed"),
        pytest.param(
            PAIR, DT | {"identified": "0.5"}, "identified must be above 0", id="text as a share"
        ),
        pytest.param(PAIR, {"dt": "1s"}, "dt must be a number of seconds", id="text as dt"),
        pytest.param(
            PAIR,
            DT | {"training": "free_run", "kernel": "matern_52"},
            "FreeRun chooses its kernel",
            id="kernel for a training that chooses it",
        ),
        pytest.param(
            PAIR,
            DT | {"training": "adaptive", "purpose": "simulation"},
            "leave out the purpose or the training",
            id="training for another purpose",
        ),
        pytest.param(
            SHORT_RECORD,
            {"dt": 5.0},
            "dt=5.0 does not fit record 0, whose time has steps of 0.1 s",
            id="data set of another sampling time",
        ),
        pytest.param(
            SHORT_RECORD, {"dt": -1.0}, "dt=-1.0 must be a finite number", id="data set, dt below 0"
        ),
        pytest.param(
            SHORT_RECORD,
            {"time": "stamp"},
            "times of a data set are its coordinate 'time', got time='stamp'",
            id="data set and a column of times",
        ),
        pytest.param(
            (pd.Series(U), pd.Series(Y, index=range(5, N_SAMPLES + 5))),
            DT,
            r"must have the same index, got \[0, 1\] \.\.\. .* and \[5, 6\]",
            id="pair of series apart",
        ),
        pytest.param(
            (pd.Series(U, STAMPS), pd.DataFrame({"y": Y}, STAMPS + pd.Timedelta("1s"))),
            DT,
            "must have the same index",
            id="pair of stamps apart",
        ),
        pytest.param(
            (
                xr.DataArray(U, {"time": np.arange(N_SAMPLES)}),
                xr.DataArray(Y, {"time": np.arange(N_SAMPLES) + 1}),
            ),
            DT,
            "must have the same index",
            id="pair of labelled arrays apart",
        ),
        pytest.param(
            (pd.Series(U, STAMPS), pd.Series(Y, STAMPS)),
            {"dt": 5.0},
            "the step of time is 0.1 s where dt is 5 s",
            id="pair of stamps of another sampling time",
        ),
        pytest.param(
            TABLE.set_index(TWO_RUNS),
            DT,
            r"expected one run, its index has the levels \['run', 'k'\]",
            id="two runs of an index of levels",
        ),
        pytest.param(
            pd.concat([TABLE, TABLE]),
            DT,
            f"its index goes from {N_SAMPLES - 1} to 0 at row {N_SAMPLES}",
            id="two runs in one table",
        ),
        pytest.param(
            TABLE.drop(index=50), DT, "goes from 49 to 51 at row 50", id="table with a row left out"
        ),
        pytest.param(TABLE[::-1], DT, "at row 1", id="table from the end to the start"),
        pytest.param(
            TABLE.sample(frac=1.0, random_state=0), DT, "its index goes from", id="shuffled table"
        ),
        pytest.param((U, Y + 5j), DT, "outputs: expected real numbers", id="complex output"),
        pytest.param(
            {"u": U + 5j, "y": Y}, DT, "column 'u': expected real numbers", id="complex column"
        ),
        pytest.param(
            {"u": U, "y": [*Y[1:], 1j]}, DT, "column 'y': expected real", id="complex cell"
        ),
        pytest.param(
            {"u": U, "y": [*Y[1:], [1.0]]},
            DT,
            r"expected a number, got \[1.0\]",
            id="cell of a list",
        ),
        pytest.param((U, STAMPS), DT, "outputs: expected real numbers", id="stamps as output"),
        pytest.param(
            {"u": U, "y": STAMPS}, DT, "row 0 of the table, column 'y'", id="column of stamps"
        ),
        pytest.param((U, Y[1:]), DT, "signals of a record need one length", id="lengths differ"),
    ],
)
def test_unfit_data_and_settings_are_refused(data, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        identify(data, **({"narx": NARX} | options))


# --- a memory that is not reached -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("forgetting", "linear_part", "words"),
    [
        pytest.param(12, "none", "take forgetting=20 or more, or budget=12", id="points"),
        pytest.param(
            30,
            "stable_spline",
            "20 points and 28 coefficients of the linear part: take forgetting=48 or more, or "
            "budget=2$",
            id="points and linear part",
        ),
        pytest.param(
            12,
            "stable_spline",
            "or linear_part=none and budget=12",
            id="fewer than the coefficients",
        ),
        pytest.param(20, "none", None, id="reached"),
        pytest.param(None, "none", None, id="no forgetting"),
    ],
)
def test_a_memory_that_is_not_reached_is_told(forgetting, linear_part, words):
    options = {"dt": SAMPLING_TIME, "forgetting": forgetting, "linear_part": linear_part}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        identify((SHORT_U, SHORT_Y), NARX, replace(QUICK_SETTINGS, budget=20), **options)
    told = [str(warning.message) for warning in caught if "forgetting=" in str(warning.message)]
    assert len(told) == (words is not None)
    if words is not None:
        assert told[0].startswith(f"y: forgetting={forgetting}: a memory of fewer than")
        assert re.search(words, told[0])
        assert {w.filename for w in caught if str(w.message) == told[0]} == {__file__}


# --- words of the command line --------------------------------------------------------------------

#: groups of the command line whose options are settings of `identify`, too
WORD_GROUPS = (
    "training",
    "mean",
    "kernel",
    "selection",
    "insertion",
    "acceptance",
    "reduction",
    "linear_part",
)
#: words for objects that need numbers without a default
WORDS_WITHOUT_DEFAULTS = ("fixed", "error", "variance", "either")
CONFIGURATION = Path(__file__).parents[2] / "conf"
WORDS = [
    (group, path.stem)
    for group in WORD_GROUPS
    for path in sorted((CONFIGURATION / group).glob("*.yaml"))
]


@pytest.mark.parametrize(("group", "word"), WORDS, ids=[f"{g}={w}" for g, w in WORDS])
def test_every_word_of_the_command_line_is_a_setting(group, word, monkeypatch):
    """A word gives the class that the file of the option names, or the message names the class."""
    used = []

    class Noticed(Exception):
        pass

    def notice(records, narx, settings):
        used.append(settings)
        raise Noticed

    monkeypatch.setattr("sysid.identified.choose_linear_part", notice)
    text = (CONFIGURATION / group / f"{word}.yaml").read_text()
    target = re.search(r"^_target_: sysid\.(\w+)$", text, re.MULTILINE)[1]
    settings = None if group == "training" else QUICK_SETTINGS
    arguments = ((SHORT_U, SHORT_Y), NARX, settings)
    if word in WORDS_WITHOUT_DEFAULTS:
        with pytest.raises(ValueError, match=rf"write {group}={target}\("):
            identify(*arguments, dt=SAMPLING_TIME, **{group: word})
        return
    with pytest.raises(Noticed):
        identify(*arguments, dt=SAMPLING_TIME, **{group: word})
    (chosen,) = used
    value = chosen.training.kernel if group == "kernel" else getattr(chosen, group)
    assert type(value).__name__ == target


def test_matched_is_the_acceptance_by_the_criterion_of_the_reduction():
    settings = replace(QUICK_SETTINGS, acceptance=AcceptAll())
    result = identify(
        (SHORT_U, SHORT_Y),
        NARX,
        settings,
        dt=SAMPLING_TIME,
        acceptance="matched",
        reduction="prior_entropy",
    )
    assert result.identifications["y"].settings.acceptance == ExceedsMinimum(PriorEntropy())


def test_the_sum_of_a_linear_trend_and_a_smooth_function_learns():
    options = {"kernel": "linear_plus_squared_exponential", "mean": "linear"}
    result = identify((SHORT_U, SHORT_Y), NARX, QUICK_SETTINGS, dt=SAMPLING_TIME, **options)
    assert [type(part) for part in result.model.gp.kernel.parts] == [Linear, SquaredExponential]
    assert isinstance(result.model.mean, LinearMean)
