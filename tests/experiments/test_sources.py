"""Sources of samples, simulated and recorded: what is learned, what validates, what is stored."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from experiments.cli.ends import Stopped
from experiments.identify.run import identify, read_settings, source_of
from experiments.plant import recorded
from experiments.plant.functions import FunctionData
from experiments.plant.recorded import RecordedSource
from experiments.plant.source import trajectory_of
from helpers.commands import (
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    phase_masks,
    run_identify,
)
from helpers.records import coupled_signals, csv_overrides, write_record
from simulators import Himmelblau, Sobol
from sysid import Narx, Recordings, make_record, store
from sysid.data.source import part

QUICK_RUN = (*SMALLEST_RUN, "propagation=mean_only")

#: a simulated plant of 80 samples
LIVE_PLANT = ("duration=80samples", "system=bouc_wen", "excitation.rms=20")

#: number of samples of each record
LENGTHS = {"first": 40, "second": 31, "validation": 22, "test": 25}

#: the largest lag of `LAG_OVERRIDES`; as many samples of each record have no row
MAX_LAG = 3
LAG_OVERRIDES = (
    "+narx.outputs.y=[1,3]",
    "+narx.inputs.u=[0,2]",
    "narx._target_=sysid.Narx",
    "~narx.max_order",
    "narx.target=y",
)


@pytest.fixture(scope="module")
def signals():
    """The coupled signals of each record."""
    return {name: coupled_signals(n, seed) for seed, (name, n) in enumerate(LENGTHS.items())}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """CSV files of the records by name."""
    folder = tmp_path_factory.mktemp("records")
    return {
        name: write_record(folder / f"{name}.csv", n=n, seed=seed)
        for seed, (name, n) in enumerate(LENGTHS.items())
    }


@pytest.fixture(scope="module")
def estimation(files):
    """Overrides of an identification from the first two records."""
    data = csv_overrides(estimation=f"[{files['first']},{files['second']}]")
    return (*QUICK_RUN, *data, *LAG_OVERRIDES)


def rows_of(*records):
    """Return regressors and changes of the records, computed one record at a time."""
    narx = Narx({"y": [1, 3]}, {"u": [0, 2]})
    regressors = []
    changes = []
    for record in records:
        used = {"u": record["u"], "y": record["y"]}
        rows = narx.dataset(make_record(used, name="r", sampling_time=0.5))
        regressors.append(rows["regressor"])
        changes.append(rows["target"])
    return np.concatenate(regressors), np.concatenate(changes)


# --- records --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_with_test(files, estimation, tmp_path_factory):
    """Folder of an identification from two records, with a test whose window is nine samples."""
    return run_identify(
        tmp_path_factory.mktemp("run"),
        *estimation,
        f"data.test={files['test']}",
        f"data.validation={files['validation']}",
        "data.initialisation_window=9",
    )


#: number of rows of the two estimation records and of the test record
N_ROWS = [LENGTHS[name] - MAX_LAG for name in ("first", "second", "test")]
N_ESTIMATION_ROWS = N_ROWS[0] + N_ROWS[1]


def test_no_lag_reaches_from_one_record_into_another(run_with_test, signals):
    rows = load_dataset(run_with_test, "narx")

    regressors, changes = rows_of(signals["first"], signals["second"], signals["test"])

    np.testing.assert_array_equal(rows["regressor"], regressors)
    np.testing.assert_array_equal(rows["target"], changes)
    np.testing.assert_array_equal(rows["record"], np.repeat([0, 1, 2], N_ROWS))


def test_the_result_has_the_rows_after_the_window_of_the_test(run_with_test):
    """The lags take three samples of the window of nine; the other six have rows."""
    rows = load_dataset(run_with_test, "narx")
    result = load_dataset(run_with_test, "result")
    in_window = np.arange(N_ESTIMATION_ROWS, N_ESTIMATION_ROWS + 6)
    kept = np.delete(np.arange(sum(N_ROWS)), in_window)
    np.testing.assert_array_equal(result["record"], rows["record"].values[kept])
    np.testing.assert_array_equal(result["target"], rows["target"].values[kept])

    initial, online, validation = phase_masks(result)
    assert initial.sum() == 12
    assert online.sum() == N_ESTIMATION_ROWS - 12
    expected = range(N_ESTIMATION_ROWS, N_ESTIMATION_ROWS + N_ROWS[2] - 6)
    assert np.flatnonzero(validation).tolist() == list(expected)
    time_of_first = 0.5 * np.arange(MAX_LAG, 40)
    time_of_second = 0.5 * np.arange(MAX_LAG, MAX_LAG + 3)
    np.testing.assert_allclose(result["time"][:40], [*time_of_first, *time_of_second])


def test_the_trajectory_has_all_samples_of_the_used_records(run_with_test, signals):
    trajectory = load_dataset(run_with_test, "trajectory")
    for name in ("u", "y"):
        values = [signals[record][name] for record in ("first", "second", "test")]
        np.testing.assert_array_equal(trajectory[name], np.concatenate(values))
    np.testing.assert_array_equal(trajectory["record"], np.repeat([0, 1, 2], [40, 31, 25]))
    np.testing.assert_array_equal(trajectory["part"], np.repeat([0, 0, 1], [40, 31, 25]))


def test_without_a_test_record_the_validation_record_validates(
    files, estimation, signals, tmp_path
):
    folder = run_identify(tmp_path, *estimation, f"data.validation={files['validation']}")

    result = load_dataset(folder, "result")
    _, changes = rows_of(signals["validation"])
    np.testing.assert_array_equal(result["target"][phase_masks(result)[2]], changes)
    assert load_summary(folder)["n_validation"] == LENGTHS["validation"] - MAX_LAG


def test_without_test_and_validation_records_nothing_validates(estimation, tmp_path):
    summary = load_summary(run_identify(tmp_path, *estimation, "identified=1"))

    assert summary["n_validation"] == 0
    assert summary["smse"] is None
    assert summary["n_seen"] == N_ESTIMATION_ROWS - 12


def read_samples(segment):
    """Return the outputs and the inputs of all samples of a segment."""
    outputs = []
    inputs = []
    for sample in segment:
        outputs.extend(sample.output.ravel().tolist())
        inputs.extend(sample.input.ravel().tolist())
    return outputs, inputs


def test_a_recorded_source_counts_what_it_has_delivered_and_restarts():
    record = make_record(
        {"u": np.arange(6.0), "y": np.arange(6.0) ** 2}, name="r", sampling_time=0.5
    )
    recordings = Recordings(
        "r", ("u",), ("y",), (record, part(record, 0, 3)), test=(part(record, 2),)
    )

    source = RecordedSource(recordings)

    assert (source.n_samples, source.n_identified, source.n_seen) == (13, 9, 0)
    for _ in range(2):
        segments = [read_samples(segment) for segment in source.segments()]
        assert segments == [
            ([0, 1, 4, 9, 16, 25], [0, 1, 2, 3, 4, 5]),
            ([0, 1, 4], [0, 1, 2]),
        ]
        assert source.n_seen == 9
        assert [sample.input.ravel().tolist() for sample in source.finish()] == [[2, 3, 4, 5]]
        assert source.n_seen == 13
        source.restart()
        assert source.n_seen == 0


def test_a_live_source_simulates_no_more_than_is_taken_and_restarts():
    source = source_of(compose_configuration(*LIVE_PLANT, "identified=0.25"))
    assert (source.n_samples, source.n_identified, source.n_seen) == (80, 20, 0)

    (segment,) = source.segments()
    n_taken = 0
    for block in segment:
        n_taken += len(block.output)
        assert source.n_seen == n_taken
        assert len(source.simulation.record().time) == n_taken
    assert n_taken == 20
    assert sum(len(block.output) for block in source.finish()) == 60
    time = source.plant.system.dt * np.arange(80)
    is_scored = source.is_scored(np.zeros(80, dtype=int), time)
    np.testing.assert_array_equal(is_scored, np.arange(80) >= 20)
    assert trajectory_of(source).sizes["time"] == 80

    source.restart()
    assert sum(len(block.output) for block in next(source.segments())) == 20
    assert trajectory_of(source).sizes["time"] == 20


# --- published, stored and constant records -------------------------------------------------------


def identify_published(folder, shared_data, *data):
    """Identify a published record quickly; return its source, summary, trajectory and rows."""
    overrides = (*data, f"data.path={shared_data}")
    source = source_of(compose_configuration(*overrides))
    run_identify(folder, *QUICK_RUN, *overrides)
    return (
        source,
        load_summary(folder),
        load_dataset(folder, "trajectory"),
        load_dataset(folder, "narx"),
    )


def assert_published_is_complete(source, summary, trajectory, rows, n_features, window):
    """Check that the samples of both records are counted once."""
    max_lag = int(rows["lag"].max())
    n_estimation, n_test = (record.sizes["time"] for record in source.records())
    assert trajectory.sizes["time"] == source.n_samples
    assert rows.sizes["feature"] == n_features
    np.testing.assert_array_equal(trajectory["part"], trajectory["record"])
    assert summary["n_validation"] == n_test - max(window, max_lag)
    assert source.n_identified == n_estimation
    assert summary["n_seen"] + summary["n_initial"] == n_estimation - max_lag


@pytest.mark.slow
def test_the_published_tanks_are_identified(shared_data, tmp_path):
    published = identify_published(
        tmp_path, shared_data, "data=cascaded_tanks", "narx=cascaded_tanks", "linear_part=none"
    )
    assert_published_is_complete(*published, n_features=4, window=50)


def test_the_published_concrete_is_identified_as_rows_without_order(shared_data, tmp_path):
    published = identify_published(tmp_path, shared_data, "data=concrete")
    assert_published_is_complete(*published, n_features=8, window=0)
    _, summary, trajectory, rows = published
    assert trajectory["time"].attrs["units"] == "1"
    assert rows["time"].attrs["units"] == "1"
    assert trajectory.attrs["static"] == 1
    assert int(rows["lag"].max()) == 0
    assert summary["target_unit"] == "MPa"
    np.testing.assert_array_equal(rows["target"], trajectory["strength"])
    assert summary["smse_no_change"] is None, "rows have no order, and so no change"


def test_a_stored_trajectory_gives_the_rows_of_the_live_run(tmp_path):
    """With fixed hyper-parameters no record is inspected before its first sample is learned."""
    settings = (
        "training=fixed",
        "training.n_initial=12",
        "training.variance=1e-7",
        "training.noise_variance=1e-10",
        "training.length_scales=20",
        "budget=10",
        "figures=false",
        "narx=bouc_wen",
    )
    live = run_identify(tmp_path / "live", *settings, *LIVE_PLANT, "identified=0.5")
    stored = run_identify(
        tmp_path / "stored",
        *settings,
        "data=stored",
        f"data.path={live}/trajectory.nc",
        "data.split=[0.5,0,0.5]",
    )

    live_rows = load_dataset(live, "narx")
    stored_rows = load_dataset(stored, "narx")
    n_learned = int((stored_rows["record"] == 0).sum())
    assert n_learned + 3 == 40, "three lags, forty samples to learn from"
    n_validation = stored_rows.sizes["sample"] - n_learned
    for name in ("regressor", "target", "time"):
        live_values = live_rows[name]
        stored_values = stored_rows[name]
        np.testing.assert_array_equal(stored_values[:n_learned], live_values[:n_learned])
        np.testing.assert_array_equal(stored_values[n_learned:], live_values[-n_validation:])
    live_result = load_dataset(live, "result")
    stored_result = load_dataset(stored, "result")
    for name in ("mean", "variance", "slot"):
        np.testing.assert_array_equal(
            stored_result[name][:n_learned], live_result[name][:n_learned]
        )


def test_a_constant_target_has_no_smse_and_a_warning(tmp_path):
    u, y = np.random.default_rng(0).normal(size=(2, 30))
    attributes = {"name": "r", "sampling_time": 1.0, "units": {"y": "V"}}
    moving = make_record({"u": u, "y": y}, **attributes)
    constant = make_record({"u": u, "y": np.full(30, 2.0)}, **attributes)
    recordings = Recordings("flat", ("u",), ("y",), (moving,), test=(constant,))
    path = tmp_path / "b.nc"
    store.write_groups(recordings.to_groups(), path, kind="benchmark")

    folder = run_identify(
        tmp_path / "run", *QUICK_RUN, *LAG_OVERRIDES, "data=stored", f"data.path={path}"
    )

    summary = load_summary(folder)
    assert (summary["system"], summary["target_unit"]) == ("flat", "V")
    assert summary["smse"] is None
    assert summary["smse_initial"] is None
    assert summary["n_validation"] == 27
    assert any("constant" in warning and "SMSE" in warning for warning in summary["warnings"])


# --- runs that end early --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_read", "n_learned"),
    [
        pytest.param(8, 0, id="before the initial samples"),
        pytest.param(60, 42, id="in the second record"),
        pytest.param(80, 53, id="in the test record"),
    ],
)
def test_an_interrupted_recorded_run_keeps_what_it_has(
    n_read, n_learned, files, estimation, monkeypatch, tmp_path
):
    original = RecordedSource._samples

    def interrupted_samples(self, record):
        for sample in original(self, record):
            if self.n_seen > n_read:
                raise KeyboardInterrupt
            yield sample

    monkeypatch.setattr(recorded, "SAMPLES_PER_BLOCK", 1)
    monkeypatch.setattr(RecordedSource, "_samples", interrupted_samples)

    with pytest.raises(Stopped) as caught:
        run_identify(tmp_path, *estimation, f"data.test={files['test']}")

    assert caught.value.exit_code == 130
    summary = load_summary(tmp_path)
    initial, online, validation = phase_masks(load_dataset(tmp_path, "result"))
    assert summary["partial"] is True
    assert load_dataset(tmp_path, "trajectory").attrs["partial"] == 1
    assert initial.sum() == min(12, n_read - MAX_LAG)
    assert online.sum() == n_learned
    assert summary["n_seen"] == n_learned
    has_model = n_learned > 0
    assert validation.sum() == (22 if has_model else 0), "the test validates what was learned"
    assert (tmp_path / "model.nc").exists() == has_model


def test_an_interrupt_while_the_bands_are_calibrated_keeps_the_identification(
    files, estimation, monkeypatch, tmp_path
):
    def interrupt(self, identification):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RecordedSource, "calibrate", interrupt)

    with pytest.raises(Stopped) as caught:
        run_identify(tmp_path, *estimation, f"data.test={files['test']}")

    assert caught.value.exit_code == 130
    summary = load_summary(tmp_path)
    assert summary["partial"] is False
    assert summary["n_validation"] == 22
    assert summary["free_run"] is None
    assert (tmp_path / "model.nc").exists()


def test_one_step_ahead_the_run_and_its_validation_keep_to_the_limits(
    files, estimation, monkeypatch
):
    config = compose_configuration(*estimation, f"data.test={files['test']}")
    source = source_of(config)

    def limit_outputs(identification):
        identification.model = replace(identification.model, limits=(-0.3, 0.3))

    monkeypatch.setattr(source, "calibrate", limit_outputs)

    result = identify(read_settings(config), source, None, {})

    values = result.validation["previous"].values + result.predicted.mean
    assert (values.min(), values.max()) == pytest.approx((-0.3, 0.3))
    one_step = result.report.content["one_step"]
    assert result.summary["rmse"] == pytest.approx(one_step["rmse"], rel=1e-9)


# --- static functions -----------------------------------------------------------------------------

#: options of a short run on a function of two inputs
ROSENBROCK_RUN = (
    "data=function",
    "function@data.function=rosenbrock",
    "training.n_initial=40",
    "budget=60",
    "data.n_estimation=120",
    "data.n_axis=7",
    "figures=false",
)


def test_a_static_function_gives_rows_to_learn_from_and_a_grid_to_validate_on(tmp_path):
    folder = run_identify(tmp_path, *ROSENBROCK_RUN, "sampling@data.sampling=latin_hypercube")

    summary = load_summary(folder)
    rows = load_dataset(folder, "trajectory")
    x1 = rows["x1"].values
    x2 = rows["x2"].values
    np.testing.assert_allclose(rows["y"], (1 - x1) ** 2 + 100 * (x2 - x1**2) ** 2, rtol=1e-12)
    assert summary["system"] == "Rosenbrock"
    assert summary["n_validation"] == 7 * 7
    assert summary["smse_no_change"] is None
    axis = sorted(set(x1[120:]))
    np.testing.assert_allclose(axis, np.linspace(-1, 1, 7), atol=1e-12)
    assert summary["smse"] < 0.05


def test_a_static_function_is_compared_with_a_linear_function_of_its_features(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = run_identify(tmp_path, *ROSENBROCK_RUN)

    summary = load_summary(folder)
    rows = load_dataset(folder, "trajectory")
    x = np.column_stack([np.ones(rows.sizes["time"]), rows["x1"].values, rows["x2"].values])
    y = rows["y"].values
    theta = np.linalg.lstsq(x[:120], y[:120], rcond=None)[0]
    smse = np.mean((y - x @ theta)[120:] ** 2) / np.var(y[120:])
    assert summary["smse_linear"] == pytest.approx(smse, rel=1e-9)
    lags = summary["linear_lags"]
    assert (lags["after_stream"], lags["in_stream"], len(lags["tried"])) == (0, 0, 1)
    assert f"linear models: least squares {smse:.3g}, recursive least squares" in caplog.text


def test_noise_of_a_static_function_is_on_the_estimation_rows_alone():
    def load(**settings):
        return FunctionData(Himmelblau(), Sobol(), n_estimation=4000, **settings).load()

    clean = load()
    noisy = load(noise_std=2.0)
    other_seed = load(noise_std=2.0, seed=1)

    error = (noisy.estimation[0]["y"] - clean.estimation[0]["y"]).values
    assert error.std() == pytest.approx(2.0, rel=0.05)
    assert error.mean() == pytest.approx(0.0, abs=0.15)
    np.testing.assert_array_equal(noisy.test[0]["y"], clean.test[0]["y"])
    assert not np.array_equal(noisy.estimation[0]["y"], other_seed.estimation[0]["y"])
