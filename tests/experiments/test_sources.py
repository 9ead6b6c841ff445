"""Sources of samples, simulated and recorded: what is learned from, what judges, what is stored."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import pytest
import xarray as xr

from experiments.cli.ends import Stopped
from experiments.export import run as export
from experiments.export import standalone_physics
from experiments.identify.run import identify, prepare, read_settings, source_of
from experiments.plant import recorded as sources
from experiments.plant.functions import FunctionData
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
from experiments.plant.source import trajectory_of
from helpers.commands import (
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    phase_masks,
    run_command,
    run_identify,
)
from helpers.records import coupled_signals, csv_overrides, run_validate, write_record
from simulators import (
    Building,
    CascadedTanks,
    Himmelblau,
    Interpolation,
    Sobol,
    simulate,
)
from sysid import Model, Narx, Recordings, Settings, export_python, make_record, store
from sysid.data.source import part
from sysid.lag_choice import best_arx
from sysid.simulation.bands import N_BAND_FOLDS

LIVE = ("duration=80samples", "system=bouc_wen", "excitation.rms=20")
LENGTHS = {"first": 40, "second": 31, "choose": 22, "judge": 25}
TWO = (
    "+narx.outputs.y=[1,3]",
    "+narx.inputs.u=[0,2]",
    "narx._target_=sysid.Narx",
    "~narx.max_order",
    "narx.target=y",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Records u and y of different length, by name; the overrides that identify two of them; the
    folder.
    """
    folder = tmp_path_factory.mktemp("records")
    found = {}
    for seed, (name, n) in enumerate(LENGTHS.items()):
        write_record(folder / f"{name}.csv", n=n, seed=seed)
        found[name] = coupled_signals(n, seed)["u"], coupled_signals(n, seed)["y"]
    own = csv_overrides(estimation=f"[{folder}/first.csv,{folder}/second.csv]")
    return found, (*SMALLEST_RUN, *own), folder


def rows_of(records):
    """Regressors and changes of every record on its own."""
    narx = Narx({"y": [1, 3]}, {"u": [0, 2]})
    rows = [
        narx.dataset(make_record({"u": u, "y": y}, name="r", sampling_time=0.5)) for u, y in records
    ]
    return (np.concatenate([one[name] for one in rows]) for name in ("regressor", "target"))


def test_no_lag_reaches_from_one_record_into_another(files, tmp_path):
    found, overrides, records = files
    judged = (
        f"data.test={records}/judge.csv",
        f"data.validation={records}/choose.csv",
        "data.initialisation_window=9",
    )
    folder = run_identify(tmp_path, *overrides, *TWO, *judged)
    rows = load_dataset(folder, "narx")
    result = load_dataset(folder, "result")
    used = [found[name] for name in ("first", "second", "judge")]
    regressors, changes = rows_of(used)
    np.testing.assert_array_equal(rows["regressor"], regressors)
    np.testing.assert_array_equal(rows["target"], changes)
    kept = np.delete(
        np.arange(37 + 28 + 22), np.arange(65, 65 + 6)
    )  # the window of nine initialises, three by lags
    numbers = np.repeat([0, 1, 2], [37, 28, 22])
    np.testing.assert_array_equal(rows["record"], numbers)
    np.testing.assert_array_equal(result["record"], numbers[kept])
    np.testing.assert_array_equal(result["target"], changes[kept])
    initial, online, after = phase_masks(result)
    assert [initial.sum(), online.sum()] == [12, 37 + 28 - 12]
    assert np.flatnonzero(after).tolist() == list(range(65, 81))
    np.testing.assert_allclose(
        result["time"][:40], [*(0.5 * np.arange(3, 40)), *(0.5 * np.arange(3, 6))]
    )
    trajectory = load_dataset(folder, "trajectory")
    for column, name in enumerate("uy"):
        np.testing.assert_array_equal(
            trajectory[name], np.concatenate([pair[column] for pair in used])
        )
    np.testing.assert_array_equal(trajectory["record"], np.repeat([0, 1, 2], [40, 31, 25]))
    np.testing.assert_array_equal(trajectory["part"], np.repeat([0, 0, 1], [40, 31, 25]))


def test_without_a_test_record_the_validation_record_judges(files, tmp_path):
    found, overrides, records = files
    folder = run_identify(
        tmp_path / "validation",
        *overrides,
        *TWO,
        f"data.validation={records}/choose.csv",
    )
    result = load_dataset(folder, "result")
    summary = load_summary(folder)
    np.testing.assert_array_equal(
        result["target"][phase_masks(result)[2]], [*rows_of([found["choose"]])][1]
    )
    assert summary["n_validation"] == 22 - 3
    alone = load_summary(run_identify(tmp_path / "alone", *overrides, *TWO, "identified=1"))
    assert (alone["n_validation"], alone["smse"], alone["n_seen"]) == (
        0,
        None,
        37 + 28 - 12,
    )


def test_sources_count_what_they_have_delivered_and_begin_again():
    record = make_record(
        {"u": np.arange(6.0), "y": np.arange(6.0) ** 2}, name="r", sampling_time=0.5
    )
    source = RecordedSource(
        Recordings("r", ("u",), ("y",), (record, part(record, 0, 3)), test=(part(record, 2),))
    )
    assert (source.n_samples, source.n_identified, source.n_seen) == (13, 9, 0)
    for _ in range(2):
        seen = [
            (s.output.ravel().tolist(), s.input.ravel().tolist())
            for each in source.segments()
            for s in each
        ]
        assert seen == [
            ([0, 1, 4, 9, 16, 25], [0, 1, 2, 3, 4, 5]),
            ([0, 1, 4], [0, 1, 2]),
        ]
        assert source.n_seen == 9
        assert [s.input.ravel().tolist() for s in source.finish()] == [[2.0, 3.0, 4.0, 5.0]]
        assert source.n_seen == 13
        source.restart()
        assert source.n_seen == 0
    live = source_of(compose_configuration(*LIVE, "identified=0.25"))
    assert (live.n_samples, live.n_identified, live.n_seen) == (80, 20, 0)
    (segment,), n_asked = live.segments(), 0
    for block in segment:  # never more than what is asked for is simulated
        n_asked += len(block.output)
        assert live.n_seen == len(live.simulation.record().time) == n_asked
    assert (n_asked, sum(len(block.output) for block in live.finish())) == (20, 60)
    time = live.plant.system.dt * np.arange(80)
    np.testing.assert_array_equal(
        live.is_scored(np.zeros(80, dtype=int), time), np.arange(80) >= 20
    )
    assert trajectory_of(live).sizes["time"] == 80
    live.restart()
    assert (
        sum(len(b.output) for b in next(live.segments())) == trajectory_of(live).sizes["time"] == 20
    )


@pytest.mark.parametrize(
    ("name", "n_features", "window"),
    [("cascaded_tanks narx=cascaded_tanks", 4, 50), ("concrete", 8, 0)],
)
def test_published_records_are_identified(name, n_features, window, shared_data, tmp_path):
    options = (*f"data={name}".split(), f"data.path={shared_data}")
    source = source_of(compose_configuration(*options))
    folder = run_identify(tmp_path, *SMALLEST_RUN, *options)
    summary = load_summary(folder)
    trajectory = load_dataset(folder, "trajectory")
    rows = load_dataset(folder, "narx")
    max_lag, (learned, test) = (
        int(rows["lag"].max()),
        (record.sizes["time"] for record in source.records()),
    )
    assert (trajectory.sizes["time"], rows.sizes["feature"]) == (
        source.n_samples,
        n_features,
    )
    np.testing.assert_array_equal(trajectory["part"], trajectory["record"])
    assert summary["n_validation"] == test - max(window, max_lag)
    assert (
        summary["n_seen"] + summary["n_initial"]
        == learned - max_lag
        == source.n_identified - max_lag
    )
    if name == "concrete":  # rows without order
        assert trajectory["time"].attrs["units"] == rows["time"].attrs["units"] == "1"
        assert (trajectory.attrs["static"], max_lag, summary["target_unit"]) == (
            1,
            0,
            "MPa",
        )
        np.testing.assert_array_equal(rows["target"], trajectory["strength"])
        assert summary["smse_no_change"] is None, "rows have no order, and so no change"


def test_a_stored_trajectory_gives_the_rows_of_the_live_run(tmp_path):
    fixed = (
        "training=fixed",
        "training.n_initial=12",
        "training.variance=1e-7",
        "training.noise_variance=1e-10",
    )
    same = (
        *fixed,
        "training.length_scales=20",
        "budget=10",
        "figures=false",
    )  # no record is looked at beforehand
    live = run_identify(tmp_path / "live", *same, *LIVE, "identified=0.5", "narx=bouc_wen")
    path = (
        "data=stored",
        f"data.path={live}/trajectory.nc",
        "data.split=[0.5,0,0.5]",
        "narx=bouc_wen",
    )
    again = run_identify(tmp_path / "again", *same, *path)
    first = load_dataset(live, "narx")
    second = load_dataset(again, "narx")
    head = int((second["record"] == 0).sum())
    assert head + 3 == 40, "three lags, forty samples to learn from"
    for name in ("regressor", "target", "time"):
        np.testing.assert_array_equal(second[name][:head], first[name][:head])
        np.testing.assert_array_equal(
            second[name][head:], first[name][-(second.sizes["sample"] - head) :]
        )
    learned = [
        load_dataset(folder, "result").isel(sample=slice(0, head)) for folder in (live, again)
    ]
    for name in ("mean", "variance", "slot"):
        np.testing.assert_array_equal(learned[1][name], learned[0][name])


def test_a_constant_target_has_no_smse_and_says_so(tmp_path):
    u, y = np.random.default_rng(0).normal(size=(2, 30))
    about = {"name": "r", "sampling_time": 1.0, "units": {"y": "V"}}
    learn, judge = (make_record({"u": u, "y": values}, **about) for values in (y, np.full(30, 2.0)))
    recordings = Recordings("flat", ("u",), ("y",), (learn,), test=(judge,))
    store.write_groups(recordings.to_groups(), tmp_path / "b.nc", kind="benchmark")
    folder = run_identify(
        tmp_path / "run", *SMALLEST_RUN, "data=stored", f"data.path={tmp_path}/b.nc", *TWO
    )
    summary = load_summary(folder)
    assert (summary["system"], summary["target_unit"]) == ("flat", "V")
    assert (summary["smse"], summary["smse_initial"], summary["n_validation"]) == (
        None,
        None,
        27,
    )
    assert any("constant" in warning and "SMSE" in warning for warning in summary["warnings"])


@pytest.mark.parametrize(("n", "learned"), [(8, 0), (60, 42), (80, 53)])
def test_an_interrupted_recorded_run_keeps_what_it_has(n, learned, files, monkeypatch, tmp_path):
    _, overrides, records = files
    original = RecordedSource._samples

    def samples(self, record):
        for sample in original(self, record):
            if self.n_seen > n:
                raise KeyboardInterrupt
            yield sample

    monkeypatch.setattr(sources, "SAMPLES_PER_BLOCK", 1)
    monkeypatch.setattr(RecordedSource, "_samples", samples)
    with pytest.raises(Stopped) as caught:
        run_identify(tmp_path, *overrides, *TWO, f"data.test={records}/judge.csv")
    assert caught.value.exit_code == 130
    summary = load_summary(tmp_path)
    result = load_dataset(tmp_path, "result")
    initial, online, after = phase_masks(result)
    assert (summary["partial"], load_dataset(tmp_path, "trajectory").attrs["partial"]) == (
        True,
        1,
    )
    assert (initial.sum(), online.sum(), summary["n_seen"]) == (
        min(12, n - 3),
        learned,
        learned,
    )
    assert after.sum() == (22 if learned else 0), (
        "the test judges what was learned; without a model nothing"
    )
    assert (tmp_path / "model.nc").exists() == bool(learned)


def test_an_interrupt_while_the_bands_are_measured_keeps_the_identification(
    files, monkeypatch, tmp_path
):
    _, overrides, records = files
    monkeypatch.setattr(
        RecordedSource,
        "calibrate",
        lambda self, found: os.kill(os.getpid(), signal.SIGINT),
    )
    with pytest.raises(Stopped) as caught:
        run_identify(tmp_path, *overrides, *TWO, f"data.test={records}/judge.csv")
    assert caught.value.exit_code == 130
    summary = load_summary(tmp_path)
    assert (summary["partial"], summary["n_validation"], summary["free_run"]) == (
        False,
        22,
        None,
    )
    assert (tmp_path / "model.nc").exists()


def test_one_step_ahead_the_run_and_its_validation_keep_to_the_limits(files, monkeypatch):
    _, overrides, records = files
    config = compose_configuration(
        *overrides, *TWO, f"data.test={records}/judge.csv", "propagation=mean_only"
    )
    source = source_of(config)

    def saturate(found):
        found.model = replace(found.model, limits=(-0.3, 0.3))

    monkeypatch.setattr(source, "calibrate", saturate)
    result = identify(read_settings(config), source, None, {})
    values = result.validation["previous"].values + result.predicted.mean
    assert (values.min(), values.max()) == pytest.approx((-0.3, 0.3))
    assert result.summary["rmse"] == pytest.approx(
        result.report.content["one_step"]["rmse"], rel=1e-9
    )


def test_a_static_function_gives_rows_to_learn_from_and_a_grid_to_judge_by(tmp_path):
    choices = (
        "data=function",
        "function@data.function=rosenbrock",
        "sampling@data.sampling=latin_hypercube",
    )
    short = (
        "training.n_initial=40",
        "budget=60",
        "data.n_estimation=120",
        "data.n_axis=7",
        "figures=false",
    )
    folder = run_identify(tmp_path, *choices, *short)
    summary = load_summary(folder)
    rows = load_dataset(folder, "trajectory")
    a = rows["x1"].values
    b = rows["x2"].values
    np.testing.assert_allclose(rows["y"], (1 - a) ** 2 + 100 * (b - a**2) ** 2, rtol=1e-12)
    assert (summary["system"], summary["n_validation"], summary["smse_no_change"]) == (
        "Rosenbrock",
        49,
        None,
    )
    np.testing.assert_allclose(sorted(set(a[120:])), np.linspace(-1, 1, 7), atol=1e-12)
    assert summary["smse"] < 0.05
    parts = Himmelblau(), Sobol()
    given = ({}, {"noise_std": 2.0}, {"noise_std": 2.0, "seed": 1})
    clean, noisy, other = (FunctionData(*parts, n_estimation=4000, **one).load() for one in given)
    error = (noisy.estimation[0]["y"] - clean.estimation[0]["y"]).values
    assert (error.std(), error.mean()) == (
        pytest.approx(2.0, rel=0.05),
        pytest.approx(0.0, abs=0.15),
    )
    np.testing.assert_array_equal(noisy.test[0]["y"], clean.test[0]["y"])
    assert not np.array_equal(noisy.estimation[0]["y"], other.estimation[0]["y"])


# --- physics beside a model

TRUTH = CascadedTanks(pump_gain=0.05, lower_outflow=0.05, initial_upper=3.0, initial_lower=4.0)
FREE = {name: {"lower": 0.01, "upper": 0.1} for name in ("pump_gain", "lower_outflow")}
INITIAL = {name: {"lower": 0.0, "upper": 10.0} for name in ("initial_upper", "initial_lower")}
TANKS = Physics(CascadedTanks(), FREE, INITIAL, starts=1)
WINDOW = 40


def tank_record(seed, n=400, sensor=0.0, **start):
    """Levels of the true tanks, read by a sensor that is not linear."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.uniform(1.5, 5.0, n // 20 + 1), 20)[:n]
    trajectory = simulate(replace(TRUTH, **start), u)
    level = trajectory.output[:, 0] + sensor * np.sin(trajectory.output[:, 0])
    signals = {"pump_voltage": u, "level": level + 0.01 * generator.standard_normal(n)}
    return make_record(
        signals, name=f"tanks {seed}", sampling_time=4.0, initialisation_window=WINDOW
    ), trajectory


def recordings(**settings):
    estimation = (tank_record(0, **settings)[0],)
    test = (tank_record(1, initial_upper=6.0, **settings)[0],)
    return Recordings("tanks", ("pump_voltage",), ("level",), estimation, test=test)


def test_signals_are_those_of_the_true_system():
    fitted, joined = TANKS.join(recordings(), seed=0)
    assert joined.inputs == ("pump_voltage", "physics.level", "physics.upper_level")
    assert fitted.estimates()["parameters"]["pump_gain"]["value"] == pytest.approx(0.05, rel=0.01)
    record, (upper, lower) = (
        joined.test[0],
        tank_record(1, initial_upper=6.0)[1].state[:100].T,
    )
    np.testing.assert_allclose(record["physics.level"].values[:100], lower, atol=0.03)
    np.testing.assert_allclose(record["physics.upper_level"].values[10:100], upper[10:], atol=0.1)
    assert record["physics.upper_level"].attrs["units"] == "V"


def test_the_start_of_a_record_is_what_its_first_samples_say():
    fitted, joined = TANKS.join(recordings(), seed=0)
    record = joined.test[0]
    level = np.where(np.arange(400) < WINDOW, record["level"].values, 0.0)
    blind = record.assign(level=("time", level, {"units": "V"}))
    np.testing.assert_array_equal(fitted.add(blind)["physics.level"], record["physics.level"])
    early = fitted.add(record, window=5)
    assert (
        early.attrs["initialisation_window"],
        record.attrs["initialisation_window"],
    ) == (5, WINDOW)
    assert (
        fitted.add(record.assign_attrs(initialisation_window=0)).attrs["initialisation_window"]
        == N_INITIAL_STATE_SAMPLES
    )
    with pytest.raises(
        ValueError, match=r"record 'tanks 1' from its first 2 samples: .*longer records"
    ):
        fitted.add(record, window=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An identification of the residual of tanks whose sensor is not linear, from CSV files."""
    folder = tmp_path_factory.mktemp("physics")
    for name, seed in {"estimation": 0, "test": 1}.items():
        record, _ = tank_record(seed, n=1000, sensor=0.3)
        record[["pump_voltage", "level"]].to_dataframe().to_csv(folder / f"{name}.csv")
    files = [f"data.{name}={folder / name}.csv" for name in ("estimation", "test")]
    data = [
        "data=csv",
        *files,
        "data.inputs=[pump_voltage]",
        "data.outputs=[level]",
        "data.time=time",
    ]
    data.append(f"data.initialisation_window={WINDOW}")
    settings = (
        "physics=cascaded_tanks",
        "physics.starts=1",
        "figures=false",
        "propagation=mean_only",
    )
    return run_identify(folder / "run", *data, *settings), data


def test_the_model_corrects_the_physics_in_free_run(run):
    folder, _ = run
    test = load_dataset(folder, "trajectory")
    summary = load_summary(folder)
    judged = test["part"].values == 1
    measured, simulated = (
        test[name].values[judged][WINDOW:] for name in ("level", "physics.level")
    )
    alone = np.sqrt(np.mean((measured - simulated) ** 2))
    assert 0.1 < min(alone, summary["physics"]["rmse"]["level"]) <= alone < 0.4
    assert summary["free_run"]["rmse"] == pytest.approx(
        summary["rmse"], rel=1e-6
    )  # no output is fed back
    assert summary["rmse"] < 0.6 * alone
    learned = test.isel(time=~judged)  # the line beside it knows what was measured
    line = best_arx(learned, "level", ["pump_voltage"], predict="value")
    rows = line.narx.dataset(test.isel(time=judged))
    error = (rows["target"].values - line.one_step(rows))[WINDOW - line.narx.max_lag :]
    assert summary["linear"]["best"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert set(summary["physics"]["parameters"]) >= {"pump_gain", "initial_upper[0]"}


def test_the_run_tells_what_was_estimated_and_what_ended_on_its_bound(run, tmp_path):
    settings = (
        "physics=cascaded_tanks",
        "physics.starts=1",
        "physics.free.pump_gain.upper=0.045",
        *SMALLEST_RUN,
    )
    told = run_command(
        "identify",
        *run[1],
        *settings,
        "propagation=mean_only",
        f"hydra.run.dir={tmp_path}",
    ).out
    sure = r"0\.\d+ \+- [\d.e-]+"
    estimates = (
        rf"upper_outflow {sure}, .*pump_gain 0\.045 \(on its bound\), .*overflow_fraction {sure}"
    )
    assert re.search(
        rf"Physics alone, on the estimation records: RMSE of level 0\.\d+ V; {estimates}\n",
        told,
    ), told
    assert (
        "physics: pump_gain ended on its bound 0.045: widen physics.free.pump_gain, or the equations"
        in told
    )


@pytest.mark.slow
def test_the_equation_of_the_silverbox_leaves_its_noise(shared_data, tmp_path):
    """The arrow begins where the circuit is linear: the model is no more wrong on the multisine."""
    data = (
        "data=silverbox",
        f"data.path={shared_data}",
        "physics=silverbox",
        "figures=false",
    )
    run_identify(tmp_path, *data)
    content = json.loads((tmp_path / "validation.json").read_text(encoding="utf-8"))
    found = [one for one in content["records"] if one["horizon"] == "free_run"]
    assert np.all([one["rmse"] for one in found] <= np.array([2e-4, 5e-4, 5e-4]))
    assert all(
        0.35 < one["coverage_50"] < 0.65 and 0.88 < one["coverage_95"] < 0.99 for one in found
    )
    rows = load_dataset(tmp_path, "validation", "free_run_window_50")
    arrow = rows["residual"].values[rows["record"].values == 1]
    assert found[0]["rmse"] < 1.1 * np.std(arrow[: len(arrow) // 2])


def test_a_stored_model_knows_its_physics(run, tmp_path):
    folder, data = run
    settings = ("windows=[40,5]", "horizons=[1]", "propagation=mean_only")
    content = run_validate(tmp_path, f"model={folder / 'model.nc'}", *data, *settings)
    errors = {(entry["horizon"], entry["window"]): entry["rmse"] for entry in content["horizons"]}
    assert errors["free_run", 40] == pytest.approx(load_summary(folder)["rmse"], rel=1e-6)
    assert errors[1, 5] != errors[1, 40]  # the physics starts from other samples
    assert errors["free_run", 5] < 0.15
    unsaid = [one for one in data if not one.startswith("data.initialisation_window")]
    content = run_validate(
        tmp_path / "unsaid", f"model={folder / 'model.nc'}", *unsaid, *settings[1:]
    )
    assert content["free_run"]["window"] == N_INITIAL_STATE_SAMPLES


def test_bands_carry_what_the_parameters_leave_open(run, tmp_path):
    folder, data = run
    settings = (
        "physics=cascaded_tanks",
        "physics.starts=1",
        "figures=false",
        "propagation=mean_only",
    )
    wide = run_identify(tmp_path / "run", *data, *settings, "physics.covariance=true")
    (summary, before), model = (
        map(load_summary, (wide, folder)),
        Model.load(wide / "model.nc"),
    )
    rows = load_dataset(wide, "narx")
    result = load_dataset(wide, "result")
    added = load_dataset(wide, "trajectory")["physics.level.variance"].values
    latent = model.calibrated(model.predict(rows["regressor"].values).variance + added)
    n = summary["n_validation"]
    np.testing.assert_allclose(result["variance"].values[-n:], latent[-n:], rtol=1e-6)
    assert (summary["rmse"], summary["smse_stream"]) == (
        before["rmse"],
        before["smse_stream"],
    )
    assert (
        model.bands[0][1] < Model.load(folder / "model.nc").bands[0][1]
    )  # the errors are the same
    assert summary["free_run"]["nlpd"] == pytest.approx(summary["nlpd"], rel=1e-6) != before["nlpd"]
    content = run_validate(
        tmp_path / "again",
        f"model={wide / 'model.nc'}",
        *data,
        "horizons=[1,3]",
        "windows=[40]",
    )
    for entry in content["horizons"]:
        assert entry["nlpd"] == pytest.approx(summary["nlpd"], rel=0.01), entry["horizon"]
    with pytest.raises(
        ValueError, match=r"no covariance of parameters; .*physics\.covariance=false"
    ):
        export.run(
            compose_configuration(
                f"model={wide / 'model.nc'}",
                f"output={tmp_path}/a.py",
                command="export",
            ),
            tmp_path,
        )
    stored = json.loads(store.header(wide / "model.nc")["physics"])
    with pytest.raises(ValueError, match="expected the text that identification wrote"):
        read_physics(json.dumps(stored | {"covariance": [[1.0]]}), [])
    with pytest.raises(
        ValueError, match=r"covariance=true expects a model without lags of outputs"
    ):
        replace(TANKS, covariance=True).mean(Narx({"level": 2}, {"physics.level": [0]}))


def test_without_covariance_nothing_is_added(run):
    folder, _ = run
    kept = load_dataset(folder, "trajectory")
    assert "physics.level.variance" not in kept
    assert (
        not {"free", "covariance"} & json.loads(store.header(folder / "model.nc")["physics"]).keys()
    )
    assert not variance_at(load_dataset(folder, "narx"), [kept, kept], "level").any()


@dataclass(frozen=True)
class Strange(CascadedTanks):
    """Tanks that cannot be written down as NumPy: by their drift, or by their output."""

    def output(self, state):
        return state[..., 1:] ** 2


def test_an_exported_file_simulates_the_physics_too(run, tmp_path):
    folder, _ = run
    path = tmp_path / "tanks.py"
    export.run(
        compose_configuration(f"model={folder / 'model.nc'}", f"output={path}", command="export"),
        tmp_path,
    )
    alone = [sys.executable, "-I", str(path)]
    assert "as exported" in subprocess.run(alone, capture_output=True, text=True, check=True).stdout
    file = runpy.run_path(str(path))
    kept = load_dataset(folder, "trajectory")
    record = kept.isel(time=kept["part"].values == 1)
    u = record["pump_voltage"].values
    y = record["level"].values
    signals = file["WITH_PHYSICS"].join(u, y[:WINDOW])
    names = ["pump_voltage", "physics.level", "physics.upper_level"]
    np.testing.assert_allclose(
        signals, np.column_stack([record[name] for name in names]), atol=1e-3
    )
    error = np.sqrt(np.mean((file["simulate"](u, y[:WINDOW]) - y)[WINDOW:] ** 2))
    assert error == pytest.approx(load_summary(folder)["rmse"], rel=1e-3)
    mean, _ = file["predict"](file["regressors"](u, y))
    simulated = file["simulate"](u, y[:N_INITIAL_STATE_SAMPLES])[N_INITIAL_STATE_SAMPLES:]
    np.testing.assert_allclose(mean[N_INITIAL_STATE_SAMPLES:], simulated, rtol=1e-9)
    loop = file["start"](u[:N_INITIAL_STATE_SAMPLES], y[:N_INITIAL_STATE_SAMPLES])
    steps = [
        loop.step(v, None if k % 2 else w)[0]
        for k, (v, w) in enumerate(
            zip(u[N_INITIAL_STATE_SAMPLES:], y[N_INITIAL_STATE_SAMPLES:], strict=True)
        )
    ]
    np.testing.assert_allclose(
        steps, simulated, rtol=1e-12
    )  # what is measured does not count: no output is fed back
    for system, reason in (
        (Strange(), "an output is not affine"),
        (
            CascadedTanks(
                changes=[{"parameter": "pump_gain", "to": 0.05, "start": 0, "end": None}]
            ),
            "change over time",
        ),
    ):
        with pytest.raises(ValueError, match=reason):
            standalone_physics.physics_text(FittedPhysics(replace(TANKS, system=system)))


def test_a_held_out_part_is_simulated_by_parameters_that_have_not_seen_it():
    fitted, joined = TANKS.join(recordings(sensor=0.2), seed=0)
    (record,) = joined.estimation
    altered = record.copy(deep=True)
    second = slice(200, 400)
    altered["level"].values[second] += 0.5
    (before,), (after,) = fitted.held_out([record], 2), fitted.held_out([altered], 2)
    for name in ("physics.level", "physics.upper_level"):
        changes = np.abs(after[name].values - before[name].values)
        assert changes[second].max() == 0.0 < changes[:200].max()
        np.testing.assert_allclose(
            before[name], record[name], atol=0.3
        )  # much the same plant, not the same fit
        changes = np.abs(before[name].values - record[name].values)
        assert min(changes[:200].max(), changes[second].max()) > 0.0
    constant = FittedPhysics(TANKS)
    assert constant.held_out([record], 2)[0] is record
    seen: list[Recordings] = []
    choosing = mock.Mock(of_records=lambda given, settings: (seen.append(given), ""))
    RecordedSource(joined, fitted).lags(
        choosing, Settings()
    )  # so are the parts that choose the lags
    xr.testing.assert_equal(seen[0].estimation[0], fitted.held_out([record], N_BAND_FOLDS)[0])


@pytest.mark.parametrize("interpolation", Interpolation)
def test_inputs_of_the_physics_are_held_or_not_between_their_samples(interpolation, run, tmp_path):
    record, _ = tank_record(0)
    found = FittedPhysics(replace(TANKS, initial={}, interpolation=interpolation.value))
    u = record["pump_voltage"].values[:, None]
    level = simulate(TANKS.system, u, interpolation=interpolation, noise=False).output[:, 0]
    np.testing.assert_allclose(found.add(record)["physics.level"], level, rtol=1e-12)
    assert read_physics(found.describe(), []).physics.interpolation == interpolation.value
    model = Model.load(run[0] / "model.nc")
    file = runpy.run_path(
        str(export_python(model, tmp_path / "m.py", **standalone_physics.physics_text(found)))
    )
    np.testing.assert_allclose(file["PHYSICS"].simulate(u)[:, 0], level, rtol=1e-9)
    if interpolation is not Interpolation.held:
        with pytest.raises(ValueError, match=r"inputs that are held.*use simulate"):
            file["start"](u[:5], level[:5])


def test_physics_runs_beside_a_closed_loop(tmp_path):
    wrong = ("physics=building", "physics.system.zone_capacity=1.6e6")
    folder = run_identify(
        tmp_path / "run",
        *wrong,
        "duration=5d",
        "training.n_initial=40",
        "figures=false",
    )
    found = load_dataset(folder, "trajectory")
    physics = replace(Building(), zone_capacity=1.6e6)
    u = np.column_stack([found[signal.name].values for signal in physics.inputs])
    states = simulate(physics, u, noise=False).state
    for i, name in enumerate(("physics.zone_temperature", "physics.wall", "physics.radiator")):
        np.testing.assert_allclose(found[name], states[:, i], rtol=1e-12)
    seen = load_dataset(folder, "narx")["regressor"].sel(feature="physics.wall[k-1]")
    np.testing.assert_allclose(seen, states[2:-1, 1], rtol=1e-12)
    assert load_summary(folder)["physics"] == {}
    file = tmp_path / "building.py"  # its states have no limits
    export.run(
        compose_configuration(f"model={folder / 'model.nc'}", f"output={file}", command="export"),
        tmp_path,
    )
    assert (
        "as exported"
        in subprocess.run([sys.executable, "-I", file], capture_output=True, text=True).stdout
    )


def test_physics_follows_the_blocks_of_a_sweep_as_it_follows_samples():
    u = np.random.default_rng(0).uniform(0, 5, size=(12, 1))
    y = np.zeros((12, 1))
    found = []
    for places in (range(12), (slice(0, 5), slice(5, 12))):
        samples = [Measured(y[k], u[k]) for k in places]
        followed = FittedPhysics(TANKS).follow(samples, ["pump_voltage"])
        found.append(np.vstack([sample.input for sample in followed]))
    one, blocks = found
    np.testing.assert_array_equal(one, blocks)
    np.testing.assert_allclose(
        one[:, 1:], simulate(TANKS.system, u, noise=False).state[:, ::-1], rtol=1e-12
    )


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="expected one of 'held', 'linear', 'band_limited'"):
        replace(TANKS, interpolation="cubic")
    with pytest.raises(ValueError, match=r"needs the simulated output: add physics\.level: \[0\]"):
        TANKS.mean(Narx({"level": 2}, {"pump_voltage": 1}))
    assert TANKS.mean(
        ResidualNarx().narx(["level"], ["pump_voltage", "physics.level"])
    ).coefficients == (0.0, 1.0)


def test_signals_that_a_record_beside_physics_lacks_are_told(shared_data):
    options = (
        "data=cascaded_tanks",
        f"data.path={shared_data}",
        "physics=cascaded_tanks",
        "physics.free={}",
    )
    lags = (
        "narx=lags",
        "narx.predict=residual",
        "narx.outputs={height: []}",
        "narx.inputs={pump_voltage: [0]}",
    )
    config = compose_configuration(*options, "physics.initial={}", *lags)
    with pytest.raises(ValueError, match=r"has no signals \['height'\]: it has \["):
        prepare(read_settings(config), source_of(config))


def test_the_text_in_a_model_names_only_what_is_trusted():
    text = FittedPhysics(TANKS).describe()
    assert read_physics(text, []).physics.system == TANKS.system
    foreign = json.loads(text)
    foreign["system"]["_target_"] = "os.system"
    with pytest.raises(ValueError, match=r"'os\.system' is no class of the toolbox"):
        read_physics(json.dumps(foreign), [])
    with pytest.raises(ValueError, match="expected the text that identification wrote"):
        read_physics("{}", [])
