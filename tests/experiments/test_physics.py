"""Physics beside a model: its fitted parameters, its signals, its bands, and exported files."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import xarray as xr

from experiments.export import standalone_physics
from experiments.export.run import run as run_export
from experiments.identify.run import prepare, read_settings, source_of
from experiments.plant.measured import Measured
from experiments.plant.physics import (
    N_INITIAL_STATE_SAMPLES,
    FittedPhysics,
    Physics,
    ResidualNarx,
    read_physics,
    variance_at,
)
from experiments.plant.recorded import RecordedSource
from helpers.commands import (
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    run_identify,
)
from helpers.records import run_validate
from simulators import Building, CascadedTanks, Interpolation, Servo, Silverbox, simulate
from sysid import (
    Model,
    Narx,
    Recordings,
    Settings,
    export_python,
    free_run,
    make_record,
    standardised_mean_squared_error,
    store,
)
from sysid.lag_choice import best_arx
from sysid.simulation.bands import N_BAND_FOLDS
from sysid.simulation.baselines import LinearArx

TRUE_TANKS = CascadedTanks(pump_gain=0.05, lower_outflow=0.05, initial_upper=3.0, initial_lower=4.0)
TANKS = Physics(
    CascadedTanks(),
    free={name: {"lower": 0.01, "upper": 0.1} for name in ("pump_gain", "lower_outflow")},
    initial={name: {"lower": 0.0, "upper": 10.0} for name in ("initial_upper", "initial_lower")},
    starts=1,
)
#: samples of a record from which its initial state is estimated
WINDOW = 40


def simulate_tanks(seed, n=400, distortion=0.0, **initial):
    """Return a record of the true tanks, and their trajectory.

    The pump voltage changes every 20 samples. The sensor adds noise to the level, and a sine of
    the level with the amplitude `distortion`.
    """
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.uniform(1.5, 5.0, n // 20 + 1), 20)[:n]
    trajectory = simulate(replace(TRUE_TANKS, **initial), u)
    level = trajectory.output[:, 0]
    noise = 0.01 * generator.standard_normal(n)
    measured = level + distortion * np.sin(level) + noise
    signals = {"pump_voltage": u, "level": measured}
    record = make_record(
        signals, name=f"tanks {seed}", sampling_time=4.0, initialisation_window=WINDOW
    )
    return record, trajectory


def make_recordings(distortion=0.0):
    """Return an estimation and a test record; the test starts from another level."""
    estimation, _ = simulate_tanks(0, distortion=distortion)
    test, _ = simulate_tanks(1, distortion=distortion, initial_upper=6.0)
    return Recordings("tanks", ("pump_voltage",), ("level",), (estimation,), test=(test,))


def export_model(model, path, folder):
    """Export a model file as a Python file."""
    overrides = (f"model={model}", f"output={path}")
    run_export(compose_configuration(*overrides, command="export"), folder)


def run_exported(path):
    """Run an exported file as a program; return what it prints."""
    command = [sys.executable, "-I", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# --- fitted parameters and simulated signals ------------------------------------------------------


@pytest.fixture(scope="module")
def joined():
    """Physics fitted to records of the true tanks, and the records with its signals."""
    return TANKS.join(make_recordings(), seed=0)


def test_the_estimated_parameter_is_that_of_the_true_system(joined):
    fitted, _ = joined
    pump_gain = fitted.estimates()["parameters"]["pump_gain"]["value"]
    assert pump_gain == pytest.approx(TRUE_TANKS.pump_gain, rel=0.01)


def test_signals_are_those_of_the_true_system(joined):
    """The state of the upper tank is not measured: it is only right after some samples."""
    _, recordings = joined
    assert recordings.inputs == ("pump_voltage", "physics.level", "physics.upper_level")
    _, true = simulate_tanks(1, initial_upper=6.0)
    upper, lower = true.state[:100].T
    record = recordings.test[0]
    simulated_upper = record["physics.upper_level"]
    np.testing.assert_allclose(record["physics.level"].values[:100], lower, atol=0.03)
    np.testing.assert_allclose(simulated_upper.values[10:100], upper[10:], atol=0.1)
    assert simulated_upper.attrs["units"] == "V"


def test_the_initial_state_is_fitted_to_the_samples_of_the_window_alone(joined):
    fitted, recordings = joined
    record = recordings.test[0]
    level = record["level"].values.copy()
    level[WINDOW:] = 0.0
    zero_after_window = record.assign(level=("time", level, {"units": "V"}))

    simulated = fitted.add(zero_after_window)["physics.level"]

    np.testing.assert_array_equal(simulated, record["physics.level"])


def test_the_window_of_the_initial_state_can_be_chosen(joined):
    fitted, recordings = joined
    record = recordings.test[0]
    assert record.attrs["initialisation_window"] == WINDOW
    assert fitted.add(record, window=5).attrs["initialisation_window"] == 5
    without_window = fitted.add(record.assign_attrs(initialisation_window=0))
    assert without_window.attrs["initialisation_window"] == N_INITIAL_STATE_SAMPLES


def test_a_window_too_short_for_the_initial_state_is_refused(joined):
    fitted, recordings = joined
    message = r"record 'tanks 1' from its first 2 samples: .*longer records"
    with pytest.raises(ValueError, match=message):
        fitted.add(recordings.test[0], window=2)


def largest_changes(before, after):
    """Return the largest change of a signal in the first and in the second half of a record."""
    changes = np.abs(after.values - before.values)
    return changes[:200].max(), changes[200:].max()


class CrossFitted(NamedTuple):
    """Physics fitted to recordings of distorted levels, and its cross-fitted signals."""

    fitted: FittedPhysics
    recordings: Recordings
    before: xr.Dataset  # the estimation record, each half simulated with the fit to the other half
    after: xr.Dataset  # the same after a change of the level in the second half


@pytest.fixture(scope="module")
def distorted():
    """Physics that is slightly wrong: the sensor distorts the level."""
    fitted, recordings = TANKS.join(make_recordings(distortion=0.2), seed=0)
    (record,) = recordings.estimation
    changed = record.copy(deep=True)
    changed["level"].values[200:] += 0.5
    (before,) = fitted.held_out([record], 2)
    (after,) = fitted.held_out([changed], 2)
    return CrossFitted(fitted, recordings, before, after)


@pytest.mark.parametrize("name", ["physics.level", "physics.upper_level"])
def test_a_fold_is_simulated_with_parameters_of_the_other_folds(name, distorted):
    """A change of the second half changes the parameters of the first half alone."""
    (record,) = distorted.recordings.estimation
    before = distorted.before[name]
    after = distorted.after[name]

    change_of_first_half, change_of_second_half = largest_changes(before, after)
    assert change_of_second_half == 0.0
    assert change_of_first_half > 0.0
    np.testing.assert_allclose(before, record[name], atol=0.3)
    assert min(largest_changes(before, record[name])) > 0.0, "the fits differ"


def test_physics_without_free_parameters_is_not_cross_fitted(distorted):
    (record,) = distorted.recordings.estimation
    (held_out,) = FittedPhysics(TANKS).held_out([record], 2)
    assert held_out is record


def test_lags_are_chosen_with_physics_of_the_other_folds(distorted):
    recordings_of_choice = []

    def choose(recordings, settings):
        recordings_of_choice.append(recordings)
        return None, ""

    source = RecordedSource(distorted.recordings, distorted.fitted)
    source.lags(SimpleNamespace(of_records=choose), Settings())

    (recordings,) = recordings_of_choice
    (expected,) = distorted.fitted.held_out(distorted.recordings.estimation, N_BAND_FOLDS)
    xr.testing.assert_equal(recordings.estimation[0], expected)


def test_physics_gives_the_same_signals_for_blocks_as_for_samples():
    u = np.random.default_rng(0).uniform(0, 5, size=(12, 1))
    y = np.zeros((12, 1))

    def inputs_with_physics(pieces):
        measured = [Measured(y[piece], u[piece]) for piece in pieces]
        followed = FittedPhysics(TANKS).follow(measured, ["pump_voltage"])
        return np.vstack([sample.input for sample in followed])

    of_samples = inputs_with_physics(range(12))
    of_blocks = inputs_with_physics([slice(0, 5), slice(5, 12)])

    np.testing.assert_array_equal(of_samples, of_blocks)
    upper, lower = simulate(TANKS.system, u, noise=False).state.T
    np.testing.assert_allclose(of_samples[:, 1], lower, rtol=1e-12)
    np.testing.assert_allclose(of_samples[:, 2], upper, rtol=1e-12)


# --- a run beside the physics of the tanks --------------------------------------------------------

PHYSICS_OVERRIDES = ("physics=cascaded_tanks", "physics.starts=1", "propagation=mean_only")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Overrides that name CSV files of tanks whose sensor distorts the level."""
    folder = tmp_path_factory.mktemp("tanks")
    files = []
    for seed, role in enumerate(("estimation", "test")):
        path = folder / f"{role}.csv"
        record, _ = simulate_tanks(seed, n=600, distortion=0.3)
        record[["pump_voltage", "level"]].to_dataframe().to_csv(path)
        files.append(f"data.{role}={path}")
    return [
        "data=csv",
        *files,
        "data.inputs=[pump_voltage]",
        "data.outputs=[level]",
        "data.time=time",
        f"data.initialisation_window={WINDOW}",
    ]


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """Folder of an identification: the model learns what the physics does not explain."""
    folder = tmp_path_factory.mktemp("run")
    return run_identify(folder, *data, *PHYSICS_OVERRIDES, "figures=false")


@pytest.mark.parametrize("signal", ["level", "pump_voltage"])
def test_gross_errors_of_outputs_are_missing_for_the_physics(signal, data, tmp_path):
    """Those of inputs are counted: the physics is simulated on all of their values."""
    record, _ = simulate_tanks(0, n=600, distortion=0.3)
    table = record[["pump_voltage", "level"]].to_dataframe()
    wrong = [100, 233, 401]
    table.iloc[wrong, list(table).index(signal)] += [90.0, -80.0, 100.0]
    table.to_csv(tmp_path / "estimation.csv")
    overrides = [*data, f"data.estimation={tmp_path}/estimation.csv"]
    options = [*PHYSICS_OVERRIDES, "figures=false"]
    config = compose_configuration(*overrides, *options)
    source = source_of(config)
    counted = source.screened.n_found
    notes = " ".join(source.warnings())
    if signal == "pump_voltage":
        assert counted == {}
        assert "the inputs contain 3 (3 of pump_voltage), and are taken as they are" in notes
        return
    assert counted == {"level": 3}
    assert "3 measured values are taken as missing (3 of level)" in notes
    (learned,) = source.learned()
    assert np.flatnonzero(np.isnan(learned["level"].values)).tolist() == wrong
    np.testing.assert_array_equal(source.measured()[0]["level"], table["level"])
    clean = source_of(compose_configuration(*data, *options))
    fits = [found.physics.fit for found in (source, clean)]
    assert fits[0].rmse == pytest.approx(fits[1].rmse, rel=0.05)
    identification = prepare(read_settings(config), source)
    assert identification.n_gross_errors == {"level": 3}


def rms(errors):
    """Return the root mean square of errors."""
    return np.sqrt(np.mean(errors**2))


def split_trajectory(folder):
    """Return the estimation record and the test record of a run, with the signals of physics."""
    trajectory = load_dataset(folder, "trajectory")
    is_test = trajectory["part"].values == 1
    return trajectory.isel(time=~is_test), trajectory.isel(time=is_test)


def test_the_model_corrects_the_physics(run):
    _, test = split_trajectory(run)
    summary = load_summary(run)
    physics_errors = (test["level"] - test["physics.level"]).values[WINDOW:]
    physics_rmse = rms(physics_errors)
    fit_rmse = summary["physics"]["rmse"]["level"]
    assert min(physics_rmse, fit_rmse) > 0.1
    assert physics_rmse < 0.4
    assert summary["rmse"] < 0.6 * physics_rmse


def test_without_lags_of_outputs_free_run_and_one_step_errors_are_the_same(run):
    summary = load_summary(run)
    assert summary["free_run"]["rmse"] == pytest.approx(summary["rmse"], rel=1e-6)


def test_the_summary_states_parameters_and_initial_states(run):
    parameters = load_summary(run)["physics"]["parameters"]
    assert set(parameters) >= {"pump_gain", "initial_upper[0]"}


def test_the_linear_model_is_not_fitted_to_the_signals_of_the_physics(run):
    estimation, test = split_trajectory(run)
    linear = best_arx(estimation, "level", ["pump_voltage"], predict="value")

    rows = linear.narx.dataset(test)
    errors = rows["target"].values - linear.one_step(rows)
    n_rows_in_window = WINDOW - linear.narx.max_lag

    linear_rmse = load_summary(run)["linear"]["best"]["rmse"]
    assert linear_rmse == pytest.approx(rms(errors[n_rows_in_window:]))


def test_the_linear_model_of_equal_lags_does_not_know_the_physics_either(run):
    """It has lags of the output, though the model has none, and the present input, as the model."""
    samples = load_dataset(run, "trajectory")
    is_test = samples["part"].values == 1
    summary = load_summary(run)
    order = summary["linear_lags"]["after_stream"]
    lags = Narx({"level": order}, {"pump_voltage": range(order)}, predict="value")
    line = LinearArx.fit(lags, samples.isel(time=~is_test))

    rows = lags.dataset(samples.isel(time=is_test)).isel(sample=slice(WINDOW - lags.max_lag, None))
    smse = standardised_mean_squared_error(rows["target"].values, line.one_step(rows))

    assert summary["smse_linear"] == pytest.approx(smse)
    assert not any("a linear model predicts better after" in text for text in summary["warnings"])


def test_a_run_logs_what_was_estimated_and_what_ended_on_its_bound(data, tmp_path, caplog):
    caplog.set_level("INFO")
    upper_bound = "physics.free.pump_gain.upper=0.045"
    run_identify(tmp_path, *data, *PHYSICS_OVERRIDES, upper_bound, *SMALLEST_RUN)

    estimate = r"0\.\d+ \+- [\d.e-]+"
    estimates = (
        rf"upper_outflow {estimate}, .*pump_gain 0\.045 \(on its bound\), "
        rf".*overflow_fraction {estimate}"
    )
    line = rf"Physics alone, on the estimation records: RMSE of level 0\.\d+ V; {estimates}\n"
    logged = "\n".join(caplog.messages) + "\n"
    assert re.search(line, logged), logged
    assert (
        "physics: pump_gain ended on its bound 0.045: "
        "widen physics.free.pump_gain, or the equations"
    ) in logged


@pytest.mark.slow
@pytest.mark.long
def test_the_physics_of_the_silverbox_leaves_only_noise(shared_data, tmp_path):
    """The first record is a multisine, the second one, the arrow, begins at small amplitudes.

    There the circuit is nearly linear: on the multisine, errors are hardly larger.
    """
    data = ("data=silverbox", f"data.path={shared_data}", "physics=silverbox", "figures=false")

    run_identify(tmp_path, *data)

    content = json.loads((tmp_path / "validation.json").read_text(encoding="utf-8"))
    of_records = [entry for entry in content["records"] if entry["horizon"] == "free_run"]
    largest_rmse = [2e-4, 5e-4, 5e-4]  # V
    for entry, limit in zip(of_records, largest_rmse, strict=True):
        assert entry["rmse"] <= limit
        assert 0.35 < entry["coverage_50"] < 0.65
        assert 0.88 < entry["coverage_95"] < 0.99
    rows = load_dataset(tmp_path, "validation", "free_run_window_50")
    errors_on_arrow = rows["residual"].values[rows["record"].values == 1]
    first_half = errors_on_arrow[: len(errors_on_arrow) // 2]
    assert of_records[0]["rmse"] < 1.1 * np.std(first_half)


def test_a_stored_model_simulates_its_physics_in_a_validation(run, data, tmp_path):
    content = run_validate(
        tmp_path,
        f"model={run / 'model.nc'}",
        *data,
        "windows=[40,5]",
        "horizons=[1]",
        "propagation=mean_only",
        "figures=false",
    )

    errors = {(entry["horizon"], entry["window"]): entry["rmse"] for entry in content["horizons"]}
    assert errors["free_run", 40] == pytest.approx(load_summary(run)["rmse"], rel=1e-6)
    assert errors[1, 5] != errors[1, 40], "the initial state is fitted to other samples"
    assert errors["free_run", 5] < 0.15


def test_without_a_window_the_physics_is_initialised_over_its_default_window(run, data, tmp_path):
    without_window = [
        override for override in data if not override.startswith("data.initialisation_window")
    ]

    content = run_validate(
        tmp_path,
        f"model={run / 'model.nc'}",
        *without_window,
        "horizons=[1]",
        "propagation=mean_only",
        "figures=false",
    )

    assert content["free_run"]["window"] == N_INITIAL_STATE_SAMPLES


# --- the covariance of the parameters in the bands ------------------------------------------------


@pytest.fixture(scope="module")
def run_with_covariance(data, tmp_path_factory):
    """Folder of the identification whose bands include the covariance of the parameters."""
    folder = tmp_path_factory.mktemp("covariance")
    covariance = "physics.covariance=true"
    return run_identify(folder, *data, *PHYSICS_OVERRIDES, "figures=false", covariance)


def test_bands_include_the_uncertainty_of_the_parameters(run_with_covariance):
    model = Model.load(run_with_covariance / "model.nc")
    x = load_dataset(run_with_covariance, "narx")["regressor"].values
    trajectory = load_dataset(run_with_covariance, "trajectory")
    physics_variance = trajectory["physics.level.variance"].values
    variance = model.calibrated(model.predict(x).variance + physics_variance)
    stored = load_dataset(run_with_covariance, "result")["variance"].values
    n_validation = load_summary(run_with_covariance)["n_validation"]
    np.testing.assert_allclose(stored[-n_validation:], variance[-n_validation:], rtol=1e-6)


def test_the_uncertainty_of_the_parameters_changes_bands_but_no_mean(run, run_with_covariance):
    """The errors are the same: the bands are widened less where the physics has a variance."""
    summary = load_summary(run_with_covariance)
    without = load_summary(run)
    assert summary["rmse"] == without["rmse"]
    assert summary["smse_stream"] == without["smse_stream"]
    assert summary["nlpd"] != without["nlpd"]
    assert summary["free_run"]["nlpd"] == pytest.approx(summary["nlpd"], rel=1e-6)
    _, first_scale = Model.load(run_with_covariance / "model.nc").bands[0]
    _, first_scale_without = Model.load(run / "model.nc").bands[0]
    assert first_scale < first_scale_without


def test_a_validation_also_includes_the_uncertainty_of_the_parameters(
    run_with_covariance, data, tmp_path
):
    content = run_validate(
        tmp_path,
        f"model={run_with_covariance / 'model.nc'}",
        *data,
        "horizons=[1,3]",
        "windows=[40]",
        "figures=false",
    )

    nlpd = load_summary(run_with_covariance)["nlpd"]
    for entry in content["horizons"]:
        assert entry["nlpd"] == pytest.approx(nlpd, rel=0.01), entry["horizon"]


def test_a_model_with_the_covariance_of_parameters_is_not_exported(run_with_covariance, tmp_path):
    message = r"no covariance of parameters; .*physics\.covariance=false"
    with pytest.raises(ValueError, match=message):
        export_model(run_with_covariance / "model.nc", tmp_path / "model.py", tmp_path)


def test_a_covariance_of_the_wrong_size_is_refused(run_with_covariance):
    stored = json.loads(store.header(run_with_covariance / "model.nc")["physics"])
    with pytest.raises(ValueError, match="expected the text that identification wrote"):
        read_physics(json.dumps(stored | {"covariance": [[1.0]]}), [])


def test_covariance_beside_lags_of_outputs_is_refused():
    message = r"covariance=true expects a model without lags of outputs"
    with pytest.raises(ValueError, match=message):
        replace(TANKS, covariance=True).mean(Narx({"level": 2}, {"physics.level": [0]}))


def test_without_covariance_the_physics_has_no_variance(run):
    trajectory = load_dataset(run, "trajectory")
    assert "physics.level.variance" not in trajectory
    stored = json.loads(store.header(run / "model.nc")["physics"])
    assert not {"free", "covariance"} & stored.keys()
    rows = load_dataset(run, "narx")
    assert not variance_at(rows, [trajectory, trajectory], "level").any()


# --- exported files -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """Path of the exported model of the tanks."""
    folder = tmp_path_factory.mktemp("exported")
    export_model(run / "model.nc", folder / "tanks.py", folder)
    return folder / "tanks.py"


@pytest.fixture(scope="module")
def exported_names(exported):
    """Functions and constants of the exported file, by name."""
    return runpy.run_path(str(exported))


@pytest.fixture(scope="module")
def record_of_test(run):
    """The test record with the signals of the physics."""
    _, record = split_trajectory(run)
    return record


def test_an_exported_file_runs_alone(exported):
    assert "as exported" in run_exported(exported)


def test_an_exported_file_simulates_the_physics(exported_names, record_of_test):
    beginning = record_of_test.isel(time=slice(0, 150))
    u = beginning["pump_voltage"].values
    y = beginning["level"].values

    signals = exported_names["WITH_PHYSICS"].join(u, y[:WINDOW])

    names = ("pump_voltage", "physics.level", "physics.upper_level")
    expected = np.column_stack([beginning[name] for name in names])
    np.testing.assert_allclose(signals, expected, atol=1e-3)


def test_an_exported_file_simulates_the_model_with_its_physics(exported_names, record_of_test, run):
    u = record_of_test["pump_voltage"].values
    y = record_of_test["level"].values

    simulated = exported_names["simulate"](u, y[:WINDOW])

    errors = (simulated - y)[WINDOW:]
    assert rms(errors) == pytest.approx(load_summary(run)["rmse"], rel=1e-3)


class Simulated(NamedTuple):
    """Beginning of the test record, and what the exported file simulates after its window."""

    u: np.ndarray
    y: np.ndarray
    levels: np.ndarray


@pytest.fixture(scope="module")
def simulated(exported_names, record_of_test):
    n_samples = N_INITIAL_STATE_SAMPLES + 80
    u = record_of_test["pump_voltage"].values[:n_samples]
    y = record_of_test["level"].values[:n_samples]
    levels = exported_names["simulate"](u, y[:N_INITIAL_STATE_SAMPLES])
    return Simulated(u, y, levels[N_INITIAL_STATE_SAMPLES:])


def test_an_exported_file_equals_the_toolbox_for_the_same_signals(exported_names, run, simulated):
    """The signals of the physics that the file simulates are given to the model of the toolbox."""
    n = N_INITIAL_STATE_SAMPLES
    inputs = exported_names["WITH_PHYSICS"].join(simulated.u, simulated.y[:n])
    model = Model.load(run / "model.nc")
    expected = free_run(model, inputs, simulated.y[:n, None]).mean[:, 0]
    np.testing.assert_allclose(simulated.levels, expected, rtol=1e-10)
    rows = exported_names["regressors"](simulated.u, simulated.y)
    mean, variance = exported_names["predict"](rows)
    prediction = model.predict(rows)
    np.testing.assert_allclose(mean, prediction.mean, rtol=1e-10)
    noise = model.gp.noise_variance
    np.testing.assert_allclose(variance / noise, prediction.variance / noise, atol=1e-8)


#: lags of the output, of the input and of the simulated output
FED_BACK = (
    "narx=lags",
    "narx.outputs={level: 2}",
    "narx.inputs={pump_voltage: [1], physics.level: [0]}",
    "budget=15",
)
#: overrides of a run whose model feeds its output back beside the physics
TRAINED_BESIDE_PHYSICS = {
    "linear part": ("linear_part=stable_spline", "training.n_initial=100"),
    "adaptive": ("training=adaptive", "training.n_initial=60", "linear_part=none"),
    "free run": ("training=free_run", "training.folds=2", "training.routes.0.evaluations=20"),
}


@pytest.mark.slow
@pytest.mark.parametrize("overrides", TRAINED_BESIDE_PHYSICS.values(), ids=TRAINED_BESIDE_PHYSICS)
def test_an_exported_file_beside_physics_equals_the_toolbox(
    overrides, data, record_of_test, tmp_path
):
    """The signals of the physics that the file simulates are given to the model of the toolbox."""
    folder = run_identify(
        tmp_path / "run", *data, *PHYSICS_OVERRIDES, *FED_BACK, *overrides, "figures=false"
    )
    export_model(folder / "model.nc", tmp_path / "tanks.py", tmp_path)
    exported = runpy.run_path(str(tmp_path / "tanks.py"))
    n = N_INITIAL_STATE_SAMPLES
    beginning = record_of_test.isel(time=slice(0, n + 80))
    u = beginning["pump_voltage"].values
    y = beginning["level"].values

    model = Model.load(folder / "model.nc")
    inputs = exported["WITH_PHYSICS"].join(u, y[:n])
    expected = free_run(model, inputs, y[:n, None]).mean[:, 0]
    np.testing.assert_allclose(exported["simulate"](u, y[:n])[n:], expected, rtol=1e-10)
    rows = exported["regressors"](u, y)
    mean, variance = exported["predict"](rows)
    prediction = model.predict(rows)
    scale = abs(prediction.mean).max()
    np.testing.assert_allclose(mean / scale, prediction.mean / scale, rtol=0, atol=1e-10)
    scale = prediction.variance.max()
    np.testing.assert_allclose(variance / scale, prediction.variance / scale, rtol=0, atol=1e-10)
    assert exported["self_check"]() < 1e-10


def test_an_exported_file_predicts_as_it_simulates(exported_names, simulated):
    """No output is fed back, and the physics is initialised with the same samples."""
    regressors = exported_names["regressors"](simulated.u, simulated.y)
    mean, _ = exported_names["predict"](regressors)
    np.testing.assert_allclose(mean[N_INITIAL_STATE_SAMPLES:], simulated.levels, rtol=1e-9)


def test_an_exported_file_steps_as_it_simulates(exported_names, simulated):
    """No output is fed back: it does not matter that only every other level is measured."""
    n = N_INITIAL_STATE_SAMPLES
    loop = exported_names["start"](simulated.u[:n], simulated.y[:n])
    steps = []
    for k in range(n, len(simulated.u)):
        is_measured = k % 2 == 0
        measured = simulated.y[k] if is_measured else None
        output, *_ = loop.step(simulated.u[k], measured)
        steps.append(output)
    np.testing.assert_allclose(steps, simulated.levels, rtol=1e-12)


@dataclass(frozen=True)
class SquaredTanks(CascadedTanks):
    """Tanks whose output is not affine in the states, and cannot be written as NumPy."""

    def output(self, state):
        return state[..., 1:] ** 2


@dataclass(frozen=True)
class LateTanks(CascadedTanks):
    """Tanks whose pump acts late."""

    def input_delays(self):
        return (3,)


def test_physics_beside_a_stream_knows_a_late_input():
    """Blocks and single samples give the states of a simulation of the whole record."""
    system = LateTanks()
    u = np.random.default_rng(0).uniform(1.0, 4.0, (40, 1))
    expected = simulate(system, u).state
    fitted = FittedPhysics(replace(TANKS, system=system, initial={}, free={}))
    blocks = [Measured(np.zeros((n, 1)), rows) for n, rows in ((25, u[:25]), (15, u[25:]))]
    singles = [Measured(np.zeros(1), row) for row in u]
    for samples in (blocks, singles):
        followed = fitted.follow(iter(samples), ["pump_voltage"])
        signals = np.concatenate([np.atleast_2d(sample.input) for sample in followed])
        np.testing.assert_allclose(signals[:, 1], expected[:, 1], rtol=1e-12)
        np.testing.assert_array_equal(signals[:, :1], u)


PUMP_CHANGE = {"parameter": "pump_gain", "to": 0.05, "start": 0, "end": None}


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        pytest.param(SquaredTanks(), "an output is not affine", id="output"),
        pytest.param(CascadedTanks(changes=[PUMP_CHANGE]), "change over time", id="drift"),
        pytest.param(LateTanks(), "an input acts late", id="delay"),
    ],
)
def test_physics_that_cannot_be_written_as_numpy_is_not_exported(system, reason):
    with pytest.raises(ValueError, match=reason):
        standalone_physics.physics_text(FittedPhysics(replace(TANKS, system=system)))


LOGARITHMIC = {"lower": 0.5, "upper": 9.0, "logarithmic": True}
PHYSICS_TO_EXPORT = {
    "tanks": replace(TANKS, free={}),
    "tanks, logarithmic bounds": replace(
        TANKS, free={}, initial={"initial_upper": LOGARITHMIC, "initial_lower": LOGARITHMIC}
    ),
    "servo": Physics(Servo(), initial={"initial_velocity": {"lower": -2.0, "upper": 2.0}}),
    "silverbox": Physics(Silverbox()),
    "building": Physics(Building()),
}
#: mean and standard deviation of each input
INPUTS_OF_PHYSICS = {
    CascadedTanks: [(3.0, 1.0)],
    Servo: [(0.0, 3.0)],
    Silverbox: [(0.0, 0.1)],
    Building: [(5.0, 5.0), (0.03, 0.01)],
}


@pytest.mark.parametrize(
    "interpolation",
    [
        "held",
        pytest.param("linear", marks=pytest.mark.slow),
        pytest.param("band_limited", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", PHYSICS_TO_EXPORT)
def test_exported_physics_simulates_as_the_toolbox(name, interpolation, run, tmp_path):
    """The initial state is compared if inputs are held: an end of the inputs changes the others."""
    physics = replace(PHYSICS_TO_EXPORT[name], interpolation=interpolation)
    fitted = FittedPhysics(physics)
    text = standalone_physics.physics_text(fitted)
    path = export_python(Model.load(run / "model.nc"), tmp_path / "model.py", **text)
    exported = runpy.run_path(str(path))
    assert exported["self_check"]() < 1e-10
    generator = np.random.default_rng(0)
    system = physics.system
    moments = np.array(INPUTS_OF_PHYSICS[type(system)])
    levels = generator.normal(size=(12, len(moments)))
    u = np.repeat(moments[:, 0] + moments[:, 1] * levels, 10, axis=0)
    low, high = system.input_limits()
    u = np.clip(u, low, high)
    trajectory = simulate(system, u, interpolation=physics.interpolation, noise=False)
    signals = fitted.values(trajectory.state)
    simulated = exported["PHYSICS"].simulate(u)
    scale = abs(signals).max(axis=0)
    np.testing.assert_allclose(simulated / scale, signals / scale, atol=1e-10)
    if interpolation == "held":
        n = N_INITIAL_STATE_SAMPLES
        state = exported["PHYSICS"].first_state(u[:n], trajectory.output[:n])
        np.testing.assert_allclose(state, system.initial_state(), rtol=1e-4, atol=1e-4)


class Interpolated(NamedTuple):
    """Physics with one of the interpolations of its inputs, a record, and the simulated level."""

    interpolation: Interpolation
    physics: FittedPhysics
    record: xr.Dataset
    level: np.ndarray


@pytest.fixture(scope="module", params=Interpolation, ids=lambda member: member.value)
def interpolated(request):
    interpolation = request.param
    record, _ = simulate_tanks(0, n=100)
    physics = FittedPhysics(replace(TANKS, initial={}, interpolation=interpolation.value))
    u = record["pump_voltage"].values
    level = simulate(TANKS.system, u, interpolation=interpolation, noise=False).output[:, 0]
    return Interpolated(interpolation, physics, record, level)


def test_inputs_of_the_physics_are_interpolated_as_stated(interpolated):
    record = interpolated.physics.add(interpolated.record)
    np.testing.assert_allclose(record["physics.level"], interpolated.level, rtol=1e-12)


def test_the_interpolation_of_the_inputs_is_stored(interpolated):
    stored = read_physics(interpolated.physics.describe(), [])
    assert stored.physics.interpolation == interpolated.interpolation.value


def test_inputs_of_an_exported_physics_are_interpolated_as_stated(interpolated, run, tmp_path):
    """Samples can be simulated one by one only if the inputs are held between them."""
    model = Model.load(run / "model.nc")
    text = standalone_physics.physics_text(interpolated.physics)
    path = export_python(model, tmp_path / "model.py", **text)
    names = runpy.run_path(str(path))
    u = interpolated.record["pump_voltage"].values[:, None]
    simulated = names["PHYSICS"].simulate(u)[:, 0]
    np.testing.assert_allclose(simulated, interpolated.level, rtol=1e-9)
    if interpolated.interpolation is not Interpolation.held:
        with pytest.raises(ValueError, match=r"inputs that are held.*use simulate"):
            names["start"](u[:5], interpolated.level[:5])


# --- physics beside a closed loop -----------------------------------------------------------------


@pytest.fixture(scope="module")
def building_run(tmp_path_factory):
    """Folder of a run beside physics with a wrong capacity, and without free parameters."""
    return run_identify(
        tmp_path_factory.mktemp("building"),
        "physics=building",
        "physics.system.zone_capacity=1.6e6",
        "duration=3d",
        "training.n_initial=40",
        "propagation=mean_only",
        "figures=false",
    )


def test_physics_runs_beside_a_closed_loop(building_run):
    trajectory = load_dataset(building_run, "trajectory")
    physics = replace(Building(), zone_capacity=1.6e6)
    u = np.column_stack([trajectory[signal.name].values for signal in physics.inputs])
    zone_temperature, wall, radiator = simulate(physics, u, noise=False).state.T
    expected = {
        "physics.zone_temperature": zone_temperature,
        "physics.wall": wall,
        "physics.radiator": radiator,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(trajectory[name], values, rtol=1e-12)
    lagged_wall = load_dataset(building_run, "narx")["regressor"].sel(feature="physics.wall[k-1]")
    n_rows = lagged_wall.sizes["sample"]
    np.testing.assert_allclose(lagged_wall, wall[-1 - n_rows : -1], rtol=1e-12)


def test_physics_without_free_parameters_has_no_estimates(building_run):
    assert load_summary(building_run)["physics"] == {}


def test_physics_whose_states_have_no_limits_is_exported(building_run, tmp_path):
    path = tmp_path / "building.py"
    export_model(building_run / "model.nc", path, tmp_path)
    exported = runpy.run_path(str(path))
    assert exported["self_check"]() < exported["TOLERANCE"]


# --- what is refused, and the physics that a model file names -------------------------------------


def test_an_unknown_interpolation_is_refused():
    with pytest.raises(ValueError, match="expected one of 'held', 'linear', 'band_limited'"):
        replace(TANKS, interpolation="cubic")


def test_a_model_that_corrects_physics_needs_the_simulated_output():
    message = r"needs the simulated output: add physics\.level: \[0\]"
    with pytest.raises(ValueError, match=message):
        TANKS.mean(Narx({"level": 2}, {"pump_voltage": 1}))


def test_the_mean_of_a_residual_model_is_the_simulated_output():
    narx = ResidualNarx().narx(["level"], ["pump_voltage", "physics.level"])
    assert TANKS.mean(narx).coefficients == (0.0, 1.0)


def test_signals_that_a_record_beside_physics_lacks_are_named(data):
    config = compose_configuration(
        *data,
        *PHYSICS_OVERRIDES,
        "narx=lags",
        "narx.predict=residual",
        "narx.outputs={height: []}",
        "narx.inputs={pump_voltage: [0]}",
    )
    with pytest.raises(ValueError, match=r"has no signals \['height'\]: it has \["):
        prepare(read_settings(config), source_of(config))


def test_physics_is_read_from_its_description():
    text = FittedPhysics(TANKS).describe()
    assert read_physics(text, []).physics.system == TANKS.system


def test_a_description_that_names_a_foreign_function_is_refused():
    foreign = json.loads(FittedPhysics(TANKS).describe())
    foreign["system"]["_target_"] = "os.system"
    with pytest.raises(ValueError, match=r"'os\.system' is no class of the toolbox"):
        read_physics(json.dumps(foreign), [])


def test_a_description_without_physics_is_refused():
    with pytest.raises(ValueError, match="expected the text that identification wrote"):
        read_physics("{}", [])
