"""Physics beside a model: its parameters, its signals, its bands and the files that hold it."""

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
    run_command,
    run_identify,
)
from helpers.records import run_validate
from simulators import Building, CascadedTanks, Interpolation, simulate
from sysid import (
    Model,
    Narx,
    Recordings,
    Settings,
    export_python,
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
WINDOW = 40


def simulate_tanks(seed, n=400, sensor=0.0, **start):
    """Return a record and the trajectory of the true tanks; `sensor` distorts the measurement."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.uniform(1.5, 5.0, n // 20 + 1), 20)[:n]
    trajectory = simulate(replace(TRUE_TANKS, **start), u)
    level = trajectory.output[:, 0] + sensor * np.sin(trajectory.output[:, 0])
    signals = {"pump_voltage": u, "level": level + 0.01 * generator.standard_normal(n)}
    record = make_record(
        signals, name=f"tanks {seed}", sampling_time=4.0, initialisation_window=WINDOW
    )
    return record, trajectory


def make_recordings(**settings):
    """Return an estimation and a test record; the test starts from another level."""
    estimation, _ = simulate_tanks(0, **settings)
    test, _ = simulate_tanks(1, initial_upper=6.0, **settings)
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


def test_signals_are_those_of_the_true_system(joined):
    fitted, recordings = joined
    assert recordings.inputs == ("pump_voltage", "physics.level", "physics.upper_level")
    pump_gain = fitted.estimates()["parameters"]["pump_gain"]["value"]
    assert pump_gain == pytest.approx(TRUE_TANKS.pump_gain, rel=0.01)

    _, true = simulate_tanks(1, initial_upper=6.0)
    upper, lower = true.state[:100].T
    record = recordings.test[0]
    simulated_upper = record["physics.upper_level"]
    np.testing.assert_allclose(record["physics.level"].values[:100], lower, atol=0.03)
    np.testing.assert_allclose(simulated_upper.values[10:100], upper[10:], atol=0.1)
    assert simulated_upper.attrs["units"] == "V"


def test_the_initial_state_is_fitted_to_the_samples_of_the_window(joined):
    fitted, recordings = joined
    record = recordings.test[0]
    level = np.where(np.arange(400) < WINDOW, record["level"].values, 0.0)
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


def max_change_by_half(before, after):
    """Return the largest change of a signal in the first and in the second half of a record."""
    changes = np.abs(after.values - before.values)
    return changes[:200].max(), changes[200:].max()


class CrossFitted(NamedTuple):
    """Physics that is fitted to recordings of distorted levels."""

    fitted: FittedPhysics
    recordings: Recordings
    before: xr.Dataset  # the estimation record, each half simulated with the fit to the other half
    after: xr.Dataset  # the same after a change of the level in the second half


@pytest.fixture(scope="module")
def distorted():
    fitted, recordings = TANKS.join(make_recordings(sensor=0.2), seed=0)
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

    first, second = max_change_by_half(before, after)
    assert second == 0.0
    assert first > 0.0
    np.testing.assert_allclose(before, record[name], atol=0.3)
    assert min(max_change_by_half(before, record[name])) > 0.0, "the fits differ"


def test_physics_without_free_parameters_needs_no_folds(distorted):
    (record,) = distorted.recordings.estimation
    assert FittedPhysics(TANKS).held_out([record], 2)[0] is record


def test_lags_are_chosen_with_physics_of_the_other_folds(distorted):
    passed = []

    def choose(recordings, settings):
        passed.append(recordings)
        return None, ""

    source = RecordedSource(distorted.recordings, distorted.fitted)
    source.lags(SimpleNamespace(of_records=choose), Settings())

    (expected,) = distorted.fitted.held_out(distorted.recordings.estimation, N_BAND_FOLDS)
    xr.testing.assert_equal(passed[0].estimation[0], expected)


def test_physics_gives_the_same_signals_for_blocks_as_for_samples():
    u = np.random.default_rng(0).uniform(0, 5, size=(12, 1))
    y = np.zeros((12, 1))

    def follow(places):
        samples = [Measured(y[k], u[k]) for k in places]
        followed = FittedPhysics(TANKS).follow(samples, ["pump_voltage"])
        return np.vstack([sample.input for sample in followed])

    of_samples = follow(range(12))
    of_blocks = follow([slice(0, 5), slice(5, 12)])

    np.testing.assert_array_equal(of_samples, of_blocks)
    states = simulate(TANKS.system, u, noise=False).state
    np.testing.assert_allclose(of_samples[:, 1:], states[:, ::-1], rtol=1e-12)


# --- a run beside the physics of the tanks --------------------------------------------------------

PHYSICS_OVERRIDES = ("physics=cascaded_tanks", "physics.starts=1", "propagation=mean_only")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Overrides of CSV files of tanks whose sensor is not linear."""
    folder = tmp_path_factory.mktemp("tanks")
    files = []
    for seed, role in enumerate(("estimation", "test")):
        path = folder / f"{role}.csv"
        record, _ = simulate_tanks(seed, n=600, sensor=0.3)
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
    """Folder of an identification of what the physics does not explain."""
    folder = tmp_path_factory.mktemp("run")
    return run_identify(folder, *data, *PHYSICS_OVERRIDES, "figures=false")


def test_the_model_corrects_the_physics_in_free_run(run):
    test = load_dataset(run, "trajectory")
    summary = load_summary(run)
    is_test = test["part"].values == 1
    measured, simulated = (
        test[name].values[is_test][WINDOW:] for name in ("level", "physics.level")
    )
    physics_rmse = np.sqrt(np.mean((measured - simulated) ** 2))
    fit_rmse = summary["physics"]["rmse"]["level"]
    assert min(physics_rmse, fit_rmse) > 0.1
    assert physics_rmse < 0.4
    free_run_rmse = summary["free_run"]["rmse"]
    assert free_run_rmse == pytest.approx(summary["rmse"], rel=1e-6), "no output is fed back"
    assert summary["rmse"] < 0.6 * physics_rmse
    assert set(summary["physics"]["parameters"]) >= {"pump_gain", "initial_upper[0]"}


def test_the_linear_model_beside_physics_does_not_know_the_physics(run):
    samples = load_dataset(run, "trajectory")
    is_test = samples["part"].values == 1
    learned = samples.isel(time=~is_test)
    line = best_arx(learned, "level", ["pump_voltage"], predict="value")

    rows = line.narx.dataset(samples.isel(time=is_test))
    error = (rows["target"].values - line.one_step(rows))[WINDOW - line.narx.max_lag :]

    linear_rmse = load_summary(run)["linear"]["best"]["rmse"]
    assert linear_rmse == pytest.approx(np.sqrt(np.mean(error**2)))


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


def test_a_run_prints_what_was_estimated_and_what_ended_on_its_bound(data, tmp_path):
    printed = run_command(
        "identify",
        *data,
        *PHYSICS_OVERRIDES,
        "physics.free.pump_gain.upper=0.045",
        *SMALLEST_RUN,
        f"hydra.run.dir={tmp_path}",
    ).out

    estimate = r"0\.\d+ \+- [\d.e-]+"
    estimates = (
        rf"upper_outflow {estimate}, .*pump_gain 0\.045 \(on its bound\), "
        rf".*overflow_fraction {estimate}"
    )
    line = rf"Physics alone, on the estimation records: RMSE of level 0\.\d+ V; {estimates}\n"
    assert re.search(line, printed), printed
    assert (
        "physics: pump_gain ended on its bound 0.045: "
        "widen physics.free.pump_gain, or the equations"
    ) in printed


@pytest.mark.slow
def test_the_equation_of_the_silverbox_leaves_its_noise(shared_data, tmp_path):
    """The arrow begins where the circuit is linear: the model is no more wrong on the multisine."""
    data = ("data=silverbox", f"data.path={shared_data}", "physics=silverbox", "figures=false")

    run_identify(tmp_path, *data)

    content = json.loads((tmp_path / "validation.json").read_text(encoding="utf-8"))
    of_records = [entry for entry in content["records"] if entry["horizon"] == "free_run"]
    rmse = [entry["rmse"] for entry in of_records]
    assert np.all(rmse <= np.array([2e-4, 5e-4, 5e-4]))
    for entry in of_records:
        assert 0.35 < entry["coverage_50"] < 0.65
        assert 0.88 < entry["coverage_95"] < 0.99
    rows = load_dataset(tmp_path, "validation", "free_run_window_50")
    arrow = rows["residual"].values[rows["record"].values == 1]
    assert rmse[0] < 1.1 * np.std(arrow[: len(arrow) // 2])


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


def test_without_a_window_the_physics_is_initialised_with_its_own(run, data, tmp_path):
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


def test_bands_include_the_uncertainty_of_the_parameters(run, run_with_covariance):
    summary = load_summary(run_with_covariance)
    without = load_summary(run)
    model = Model.load(run_with_covariance / "model.nc")
    x = load_dataset(run_with_covariance, "narx")["regressor"].values
    of_physics = load_dataset(run_with_covariance, "trajectory")["physics.level.variance"].values
    variance = model.calibrated(model.predict(x).variance + of_physics)
    stored = load_dataset(run_with_covariance, "result")["variance"].values
    n = summary["n_validation"]
    np.testing.assert_allclose(stored[-n:], variance[-n:], rtol=1e-6)

    assert summary["rmse"] == without["rmse"]
    assert summary["smse_stream"] == without["smse_stream"]
    band_without = Model.load(run / "model.nc").bands[0][1]
    assert model.bands[0][1] < band_without, "the errors are the same"
    assert summary["free_run"]["nlpd"] == pytest.approx(summary["nlpd"], rel=1e-6)
    assert summary["nlpd"] != without["nlpd"]


def test_a_validation_adds_the_uncertainty_of_the_parameters(run_with_covariance, data, tmp_path):
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
        export_model(run_with_covariance / "model.nc", tmp_path / "a.py", tmp_path)


def test_a_covariance_of_the_wrong_size_is_refused(run_with_covariance):
    stored = json.loads(store.header(run_with_covariance / "model.nc")["physics"])
    with pytest.raises(ValueError, match="expected the text that identification wrote"):
        read_physics(json.dumps(stored | {"covariance": [[1.0]]}), [])


def test_covariance_beside_lags_of_outputs_is_refused():
    message = r"covariance=true expects a model without lags of outputs"
    with pytest.raises(ValueError, match=message):
        replace(TANKS, covariance=True).mean(Narx({"level": 2}, {"physics.level": [0]}))


def test_without_covariance_nothing_is_added(run):
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
    """The functions and constants of the exported file."""
    return runpy.run_path(str(exported))


@pytest.fixture(scope="module")
def scored_record(run):
    """The test record with the signals of the physics."""
    trajectory = load_dataset(run, "trajectory")
    return trajectory.isel(time=trajectory["part"].values == 1)


def test_an_exported_file_runs_alone(exported):
    assert "as exported" in run_exported(exported)


def test_an_exported_file_simulates_the_physics(exported_names, scored_record):
    u = scored_record["pump_voltage"].values
    y = scored_record["level"].values

    signals = exported_names["WITH_PHYSICS"].join(u, y[:WINDOW])

    names = ("pump_voltage", "physics.level", "physics.upper_level")
    expected = np.column_stack([scored_record[name] for name in names])
    np.testing.assert_allclose(signals, expected, atol=1e-3)


def test_an_exported_file_simulates_the_model_with_its_physics(exported_names, scored_record, run):
    u = scored_record["pump_voltage"].values
    y = scored_record["level"].values

    simulated = exported_names["simulate"](u, y[:WINDOW])

    rmse = np.sqrt(np.mean((simulated - y)[WINDOW:] ** 2))
    assert rmse == pytest.approx(load_summary(run)["rmse"], rel=1e-3)


def test_an_exported_file_predicts_and_steps_as_it_simulates(exported_names, scored_record):
    """No output is fed back: what is measured on the way does not count."""
    n = N_INITIAL_STATE_SAMPLES
    u = scored_record["pump_voltage"].values[: n + 250]
    y = scored_record["level"].values[: n + 250]
    simulated = exported_names["simulate"](u, y[:n])[n:]

    mean, _ = exported_names["predict"](exported_names["regressors"](u, y))
    np.testing.assert_allclose(mean[n:], simulated, rtol=1e-9)

    loop = exported_names["start"](u[:n], y[:n])
    steps = []
    for k, (input, measured) in enumerate(zip(u[n:], y[n:], strict=True)):
        is_measured = k % 2 == 0
        output, *_ = loop.step(input, measured if is_measured else None)
        steps.append(output)
    np.testing.assert_allclose(steps, simulated, rtol=1e-12)


@dataclass(frozen=True)
class SquaredTanks(CascadedTanks):
    """Tanks whose output is not affine in the states, and cannot be written as NumPy."""

    def output(self, state):
        return state[..., 1:] ** 2


PUMP_CHANGE = {"parameter": "pump_gain", "to": 0.05, "start": 0, "end": None}


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        pytest.param(SquaredTanks(), "an output is not affine", id="output"),
        pytest.param(CascadedTanks(changes=[PUMP_CHANGE]), "change over time", id="drift"),
    ],
)
def test_physics_that_cannot_be_written_as_numpy_is_not_exported(system, reason):
    with pytest.raises(ValueError, match=reason):
        standalone_physics.physics_text(FittedPhysics(replace(TANKS, system=system)))


@pytest.fixture(scope="module", params=Interpolation, ids=lambda member: member.value)
def interpolated(request):
    """Physics with one of the interpolations of its inputs, and a simulation with it."""
    interpolation = request.param
    record, _ = simulate_tanks(0)
    physics = FittedPhysics(replace(TANKS, initial={}, interpolation=interpolation.value))
    u = record["pump_voltage"].values[:, None]
    level = simulate(TANKS.system, u, interpolation=interpolation, noise=False).output[:, 0]
    return interpolation, physics, record, u, level


def test_inputs_of_the_physics_are_interpolated_as_stated(interpolated):
    interpolation, physics, record, _, level = interpolated
    np.testing.assert_allclose(physics.add(record)["physics.level"], level, rtol=1e-12)
    stored = read_physics(physics.describe(), []).physics
    assert stored.interpolation == interpolation.value


def test_inputs_of_an_exported_physics_are_interpolated_as_stated(interpolated, run, tmp_path):
    """Samples can be simulated one by one only if the inputs are held between them."""
    interpolation, physics, _, u, level = interpolated
    model = Model.load(run / "model.nc")
    text = standalone_physics.physics_text(physics)
    names = runpy.run_path(str(export_python(model, tmp_path / "m.py", **text)))
    np.testing.assert_allclose(names["PHYSICS"].simulate(u)[:, 0], level, rtol=1e-9)
    if interpolation is not Interpolation.held:
        with pytest.raises(ValueError, match=r"inputs that are held.*use simulate"):
            names["start"](u[:5], level[:5])


# --- physics beside a closed loop -----------------------------------------------------------------


def test_physics_runs_beside_a_closed_loop(tmp_path):
    """The physics of the building has a wrong capacity, and no free parameters."""
    folder = run_identify(
        tmp_path / "run",
        "physics=building",
        "physics.system.zone_capacity=1.6e6",
        "duration=5d",
        "training.n_initial=40",
        "propagation=mean_only",
        "figures=false",
    )

    trajectory = load_dataset(folder, "trajectory")
    physics = replace(Building(), zone_capacity=1.6e6)
    u = np.column_stack([trajectory[signal.name].values for signal in physics.inputs])
    states = simulate(physics, u, noise=False).state
    for i, name in enumerate(("physics.zone_temperature", "physics.wall", "physics.radiator")):
        np.testing.assert_allclose(trajectory[name], states[:, i], rtol=1e-12)
    wall = load_dataset(folder, "narx")["regressor"].sel(feature="physics.wall[k-1]")
    np.testing.assert_allclose(wall, states[2:-1, 1], rtol=1e-12)
    assert load_summary(folder)["physics"] == {}

    path = tmp_path / "building.py"  # its states have no limits
    export_model(folder / "model.nc", path, tmp_path)
    assert "as exported" in run_exported(path)


# --- what is refused, and what a model may name ---------------------------------------------------


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


def test_signals_that_a_record_beside_physics_lacks_are_named(shared_data):
    config = compose_configuration(
        "data=cascaded_tanks",
        f"data.path={shared_data}",
        "physics=cascaded_tanks",
        "physics.free={}",
        "physics.initial={}",
        "narx=lags",
        "narx.predict=residual",
        "narx.outputs={height: []}",
        "narx.inputs={pump_voltage: [0]}",
    )
    with pytest.raises(ValueError, match=r"has no signals \['height'\]: it has \["):
        prepare(read_settings(config), source_of(config))


def test_the_text_in_a_model_gives_its_physics():
    text = FittedPhysics(TANKS).describe()
    assert read_physics(text, []).physics.system == TANKS.system


def test_the_text_in_a_model_names_only_what_is_trusted():
    foreign = json.loads(FittedPhysics(TANKS).describe())
    foreign["system"]["_target_"] = "os.system"
    with pytest.raises(ValueError, match=r"'os\.system' is no class of the toolbox"):
        read_physics(json.dumps(foreign), [])


def test_a_text_without_physics_is_refused():
    with pytest.raises(ValueError, match="expected the text that identification wrote"):
        read_physics("{}", [])
