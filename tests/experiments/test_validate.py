"""`sysid-validate`: numbers, files and words of records, of the loop of a controller, of what does
not fit.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

import sysid
from experiments.cli.ends import Stopped
from experiments.cli.launch import remove_unused
from experiments.identify import run as identification
from experiments.validate import figures, report
from experiments.validate.loop import check_controller, close_loop, variance_of_draws
from experiments.validate.report import find_outside
from helpers.commands import CONF, load_summary, run_identify
from helpers.records import (
    DT,
    LAGS,
    ONE_OUTPUT,
    ONE_STEP_ONLY,
    coupled_signals,
    make_model,
    read_validation,
    run_validate,
    save_models,
    validation_overrides,
    write_record,
)
from simulators import PI, Levels
from sysid import forecast, make_record, store
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.validation import Z_95
from sysid.store import read, write

WINDOWS = (4, 2)
HORIZONS = (1, 3)


def record_of(n, seed):
    return make_record(coupled_signals(n, seed), name="t", sampling_time=DT)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run over two windows, with figures and uncertainty; its folder, content, model and
    record.
    """
    folder = tmp_path_factory.mktemp("validation")
    path = save_models(folder / "model.nc")
    record = write_record(folder / "test.csv")
    settings = (
        f"windows={list(WINDOWS)}",
        f"horizons={list(HORIZONS)}",
        "propagation.n_samples=20",
    )
    content = run_validate(
        folder / "run", *validation_overrides(path, record), *settings, "propagation.n_features=20"
    )
    return (
        folder / "run",
        content,
        sysid.JointModel.load(path).models[0],
        coupled_signals(50, 1),
    )


def test_files_and_measures_are_those_of_the_predictions_of_the_library(run):
    folder, content, one, data = run
    assert {path.name for path in folder.iterdir()} == {
        "validation.json",
        "validation.nc",
        "validation.png",
    }
    attributes = store.header(folder / "validation.nc")
    groups = read_validation(folder)
    assert (attributes["schema"], attributes["seed"]) == ("validation", 1)
    assert "horizons" in attributes["configuration"]
    json.loads((folder / "validation.json").read_text(), parse_constant=pytest.fail)
    assert min(imread(folder / "validation.png").shape[:2]) > 1000
    kinds = [(window, horizon) for window in WINDOWS for horizon in (*HORIZONS, None)]
    names = {None: "free_run", 1: "one_step", 3: "3_steps"}
    assert {group["noise_variance"].item() for group in groups.values() if "mean" in group} == {
        one.gp.noise_variance
    }
    about = {
        "noise_variance": one.gp.noise_variance,
        "trivial": (one.origin.output_mean, one.origin.output_variance),
    }
    for entry, (window, horizon) in zip(content["horizons"], kinds, strict=True):
        label = "free_run" if horizon is None else horizon
        assert (entry["horizon"], entry["window"], entry["unit"]) == (
            label,
            window,
            "V",
        )
        (found,) = forecast(one, record_of(50, 1), horizon=horizon, window=window).records
        group = groups[f"{names[horizon]}_window_{window}"]
        y, mean, variance = (group[name].values[:, 0] for name in ("measured", "mean", "variance"))
        np.testing.assert_allclose(group["mean"], found.mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(y, data["y"][found.sample])
        expected = sysid.validate(y, mean, variance, window=window, **about).to_dict()
        assert {key: entry[key] for key in expected} == pytest.approx(expected, rel=1e-9)
        assert entry["left_out"] == 50 - len(y)
        np.testing.assert_array_equal(group["residual"], group["measured"] - group["mean"])
        np.testing.assert_array_equal(group["number"], found.sample)
        np.testing.assert_allclose(group["time"], DT * found.sample)
        assert (str(group.attrs["horizon"]), group.attrs["window"]) == (
            str(label),
            window,
        )
        if window == WINDOWS[0] and horizon != 3:
            assert {"output": "y", **content[names[horizon]]} == entry
    curve = content["calibration"]["free_run"]
    coverage = pytest.approx(content["free_run"]["coverage_95"])
    assert (curve["nominal"][-2], curve["observed"][-2]) == (0.95, coverage)


def test_uncertainty_grows_along_the_free_run_and_leaves_its_mean_alone(run, tmp_path):
    folder, content, *_ = run
    group = read_validation(folder)[f"free_run_window_{WINDOWS[0]}"]
    alone = [
        *validation_overrides(folder.parent / "model.nc", folder.parent / "test.csv"),
        *ONE_STEP_ONLY,
        f"windows=[{WINDOWS[0]}]",
    ]
    without = run_validate(tmp_path, *alone)
    same = read_validation(tmp_path)[f"free_run_window_{WINDOWS[0]}"]
    np.testing.assert_allclose(group["mean"], same["mean"], rtol=1e-12)
    assert without["free_run"]["rmse"] == pytest.approx(content["free_run"]["rmse"], rel=1e-12)
    assert group["variance"].values[5:].mean() > 1.5 * same["variance"].values[5:].mean()
    joint = sysid.JointModel.load(folder.parent / "model.nc")
    drawn = sysid.Pathwise(n_samples=20, n_features=20)
    (spread,) = forecast(
        joint,
        record_of(50, 1),
        horizon=None,
        window=WINDOWS[0],
        seed=1,
        propagation=drawn,
    ).records
    about_the_path = spread.variance + (spread.mean - group["mean"].values) ** 2
    np.testing.assert_allclose(group["variance"], about_the_path, rtol=1e-9)


def test_residual_tests_are_apart_for_one_step_and_free_run(run):
    folder, content, _, data = run
    groups = read_validation(folder)
    found = content["residuals"]
    for kind in ("one_step", "free_run"):
        residual = groups[f"{kind}_window_{WINDOWS[0]}"]["residual"].values
        settings = {
            "n_lags": found[kind]["n_lags"],
            "output_names": ["y"],
            "input_names": ["u"],
        }
        expected = sysid.residual_tests(residual, data["u"][WINDOWS[0] :], **settings)
        correlation = groups[f"residual_tests_{kind}"]["correlation"]
        np.testing.assert_allclose(correlation, expected.to_dataset()["correlation"], rtol=1e-9)
        p_values = [test["p_value"] for test in found[kind]["tests"]]
        assert (found[kind]["n"], p_values) == (
            46,
            pytest.approx([test.p_value for test in expected.tests]),
        )
    assert len(p_values) == 6
    assert p_values != pytest.approx([test["p_value"] for test in found["one_step"]["tests"]])


def test_several_records_count_together_and_never_run_into_each_other(tmp_path):
    path = save_models(tmp_path / "model.nc")
    quick = (*ONE_STEP_ONLY, "windows=[5]")
    files = [
        write_record(tmp_path / f"{seed}.csv", n=n, seed=seed) for n, seed in ((30, 3), (40, 4))
    ]
    both = run_validate(tmp_path / "both", *validation_overrides(path, *files), *quick)
    single = [
        run_validate(tmp_path / file.stem, *validation_overrides(path, file), *quick)["free_run"]
        for file in files
    ]
    squares = sum(entry["n"] * entry["rmse"] ** 2 for entry in single)
    assert (both["free_run"]["n"], both["free_run"]["left_out"]) == (60, 10)
    assert both["free_run"]["rmse"] == pytest.approx(np.sqrt(squares / 60), rel=1e-12)
    each = [one for one in both["records"] if one["horizon"] == "free_run"]
    assert [one["record"] for one in each] == [file.name for file in files]
    for one, alone in zip(each, single, strict=True):
        measures = one.keys() - {"record", "output"}
        assert {key: one[key] for key in measures} == pytest.approx(
            {key: alone[key] for key in measures}
        )
    assert [record["n"] for record in both["data"]["records"]] == [30, 40]
    np.testing.assert_array_equal(
        read_validation(tmp_path / "both")["free_run_window_5"]["record"],
        np.repeat([0, 1], (25, 35)),
    )


def test_several_outputs_have_a_level_of_their_own(tmp_path):
    lags = {"outputs": {"y": 2, "z": 1}, "inputs": {"u": [1]}}
    path = save_models(tmp_path / "model.nc", *(make_model(name, lags) for name in ("y", "z")))
    data = validation_overrides(path, write_record(tmp_path / "test.csv"), outputs=("y", "z"))
    (png := pytest.MonkeyPatch()).setattr(
        figures, "png", lambda figure: b"drawn"
    )  # which takes seconds
    content = run_validate(
        tmp_path / "run", *data, "propagation=mean_only", "horizons=[1]", "windows=[3]"
    )
    png.undo()
    for kind in ("one_step", "free_run"):
        assert content[kind].keys() == {"y", "z"}
        assert content[kind]["y"]["rmse"] != content[kind]["z"]["rmse"]
        assert content["residuals"][kind]["p_value"].keys() == {"y", "z"}
    assert [entry["output"] for entry in content["horizons"]] == ["y", "z"] * 2
    assert (content["free_run"]["z"]["unit"], content["units"]["z"]) == ("K", "degC")
    assert {path.stem for path in (tmp_path / "run").glob("*.png")} == {
        "validation_y",
        "validation_z",
    }
    measured = read_validation(tmp_path / "run")["free_run_window_3"]["measured"]
    np.testing.assert_array_equal(measured.sel(output="z"), coupled_signals(50, 1)["z"][3:])


def test_part_window_and_signals_can_be_chosen(tmp_path):
    path = save_models(tmp_path / "model.nc")
    lengths = {"estimation": 32, "validation": 31, "test": 33}
    files = [
        f"data.{name}={write_record(tmp_path / f'{name}.csv', n=k)}" for name, k in lengths.items()
    ]
    surplus = [
        *validation_overrides(path, outputs=("y", "z")),
        *files,
        *ONE_STEP_ONLY,
        "left_out=[z]",
    ]
    for part, stated, n in (
        ("null", 0, 33 - 2),
        ("validation", 7, 31 - 7),
    ):  # the largest lag, or as the data say
        content = run_validate(
            tmp_path / part,
            *surplus,
            f"part={part}",
            f"data.initialisation_window={stated}",
        )
        assert (content["free_run"]["n"], content["free_run"]["window"]) == (
            n,
            stated or 2,
        )
        assert content["data"]["part"] == ("test" if part == "null" else part)


@pytest.mark.parametrize("name", sorted(path.stem for path in CONF.glob("propagation/*.yaml")))
def test_every_propagation_runs(name, tmp_path):
    path = save_models(tmp_path / "model.nc")
    record = write_record(tmp_path / "test.csv", n=20)
    options = [f"propagation={name}", "figures=false", "horizons=[2]"]
    options += ["propagation.n_samples=8"] * (
        name in ("monte_carlo", "pathwise", "sequential_conditioning")
    )
    content = run_validate(tmp_path / "run", *validation_overrides(path, record), *options)
    assert np.isfinite([entry["nlpd"] for entry in content["horizons"]]).all()
    assert content["propagation"] == name.title().replace("_", "")


# --- the loop of a controller around an identified model ---------------------------------------------


WINDOW = 4
N = 25
TANKS = (
    "system=cascaded_tanks",
    "controller=level_pi",
    "noise.std=0.01",
    "controller.schedule.hold=40",
)


#: integral control to 0.3 and 0.1 in turn
FEEDBACK = PI(0.5, "y", "u", 0.5, 0.4, minimum=-9.0, maximum=9.0, schedule=Levels((0.3, 0.1), 2.0))


def naive_loop(one, controller, time, y, u, window, offset=0.0):
    """One loop by hand, with lists."""
    y = list(y[:window])
    u = []
    memory = controller.initial_state()
    for k in range(len(time)):
        if k >= window:
            y.append(y[k - 1] + one.predict([[y[k - 1], y[k - 2], u[k - 1]]]).mean.item() + offset)
        command, memory = controller.control(time[k], [y[k]], memory)
        u.append(command[0])
    return np.array(y), np.array(u)


def test_every_path_has_a_controller_of_its_own_and_ends_where_it_diverges():
    """Before the window the inputs of the plant are those of the controller."""
    dynamics = Dynamics(make_model())
    time = 0.5 * np.arange(N)
    data = coupled_signals(N, 3)
    y = data["y"][:, None]
    u = data["u"][:, None]
    offsets = np.array([0.0, 0.05, -0.02, 1e6])
    settings = {"controller": FEEDBACK, "time": time, "outputs": y, "inputs": u}
    settings |= {"window": WINDOW, "n_paths": 4}
    y_paths, u_paths = close_loop(
        dynamics, lambda x: dynamics.targets(x).mean + offsets[:, None], **settings
    )
    for path, offset in enumerate(offsets[:3]):
        outputs, inputs = naive_loop(
            dynamics.models[0], FEEDBACK, time, y[:, 0], u[:, 0], WINDOW, offset
        )
        np.testing.assert_allclose(y_paths[path, :, 0], outputs, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(u_paths[path, :, 0], inputs, rtol=1e-10, atol=1e-12)
    assert y_paths[3, WINDOW, 0] > 1e5
    assert np.isnan(y_paths[3, WINDOW + 1 :]).all()
    assert np.isnan(u_paths[3, WINDOW:]).all()
    for window in (1, N):
        with pytest.raises(ValueError, match="window from 2"):
            close_loop(
                dynamics,
                lambda x: dynamics.targets(x).mean,
                **(settings | {"window": window}),
            )


def test_bands_of_loops_hold_so_many_of_them():
    rng = np.random.default_rng(0)
    drawn = 0.3 + rng.normal(size=(4000, 2))
    mean = np.zeros(2)
    half = Z_95 * np.sqrt(variance_of_draws(mean, drawn))
    assert np.mean(np.abs(drawn) <= half, axis=0) == pytest.approx(0.95, abs=1e-3)
    drawn[:100] = np.nan
    assert np.nanmean(np.abs(variance_of_draws(mean, drawn))) < 2
    drawn[:300] = np.nan
    assert np.isinf(variance_of_draws(mean, drawn)).all()
    assert np.isnan(variance_of_draws(np.full(2, np.nan), drawn)).all()


def test_a_controller_that_does_not_fit_the_model():
    direct = {"outputs": {"y": 1}, "inputs": {"u": [0, 1]}}
    for controller, lags, words in (
        (PI(output="w", input="u"), LAGS, r"PI reads the output 'w'.*\['y'\]"),
        (PI(output="y", input="w"), LAGS, r"PI drives the input 'w'.*\['u'\]"),
        (PI(output="y", input="u"), direct, "lag 0 of 'u'.*PI"),
    ):
        with pytest.raises(ValueError, match=words):
            check_controller(sysid.JointModel.of(make_model(lags=lags)), controller)


@pytest.fixture(scope="module")
def tanks(tmp_path_factory):
    """Model of the simulated tanks, and a validation in the loop of their controller."""
    folder = tmp_path_factory.mktemp("tanks")
    learned = (
        "duration=160samples",
        "training.n_initial=30",
        "training.restarts=1",
        "budget=30",
        "figures=false",
    )
    run_identify(folder / "identified", *TANKS, *learned)
    checked = (
        f"model={folder}/identified/model.nc",
        *TANKS,
        "duration=60samples",
        "horizons=[1]",
        "windows=[5]",
    )
    content = run_validate(
        folder / "validated",
        *checked,
        "propagation.n_samples=6",
        "propagation.n_features=20",
    )
    return folder, checked, content


def test_the_controller_closes_its_loop_around_the_model(tanks):
    folder, _, content = tanks
    group = read_validation(folder / "validated")["closed_loop"]
    one = sysid.Model.load(folder / "identified" / "model.nc")
    measured = read_validation(folder / "validated")["free_run_window_5"]["measured"]
    np.testing.assert_array_equal(group["measured"], measured)
    found = content["closed_loop"]
    assert found.keys() == {"n_paths", "outputs", "inputs"}
    assert (found["outputs"].keys(), found["inputs"].keys()) == (
        {"level"},
        {"pump_voltage"},
    )
    series = (group[name].values[:, 0] for name in ("measured", "mean", "variance"))
    expected = sysid.validate(*series, one.gp.noise_variance, window=5)._asdict()
    del expected["msll"]  # the model alone knows the trivial prediction
    assert {key: found["outputs"]["level"][key] for key in expected} == pytest.approx(
        expected, rel=1e-9
    )
    assert (expected["n"], found["n_paths"], group.sizes["time"]) == (55, 6, 55)
    assert not np.array_equal(group["applied"], group["commanded"])
    assert (group["variance"].values[5:] > 0).all()
    assert {path.stem for path in (folder / "validated").glob("*.png")} == {
        "validation",
        "closed_loop",
    }


def test_both_loops_obey_the_controller(tanks):
    """Commands follow from the level of their own loop alone: recomputed with the PI law from the
    stored level.
    """
    group = read_validation(tanks[0] / "validated")["closed_loop"]
    set_point = np.where(group["time"].values // 40 % 2 == 0, 4.0, 6.0)
    for level, driven in (("mean", "commanded"), ("measured", "applied")):
        command = group[driven].values[:, 0]
        error = set_point - group[level].values[:, 0]
        inside = (command > 0) & (command < 10)
        steps = inside[:-1] & inside[1:]
        assert steps.sum() > 10
        change = np.diff(command - 0.3 * error)[steps]
        np.testing.assert_allclose(change, (0.001 * 4.0 * error[:-1])[steps], rtol=1e-6, atol=1e-9)


def test_a_simulation_in_open_loop_or_that_the_model_may_have_seen(tanks, tmp_path):
    _, checked, content = tanks
    again = run_validate(tmp_path / "again", *checked, *ONE_STEP_ONLY, "seed=0")
    assert again["closed_loop"]["n_paths"] == 0
    assert again["closed_loop"]["outputs"]["level"]["coverage_95"] is None
    assert not any("seed" in words for words in content["warnings"])
    assert any("has the same seed 0 as the identification" in words for words in again["warnings"])
    open_loop = [override for override in checked if not override.startswith("controller")]
    alone = run_validate(tmp_path / "open", *open_loop, *ONE_STEP_ONLY)
    assert (alone["closed_loop"], alone["free_run"]["n"]) == (None, 55)
    for run, from_lag_0 in (
        (content, 0),
        (alone, 1),
    ):  # an input that answers to the output is tested from lag 1
        found = run["residuals"]["one_step"]
        assert {t["n_lags"] for t in found["tests"] if t["name"] == "input"} == {
            found["n_lags"] + from_lag_0
        }


TWO_LAGS = (ONE_OUTPUT, "narx.na=2")


def test_an_identification_from_a_record_validates_on_its_test(record, tmp_path):
    folder = run_identify(tmp_path / "run", *record, *TWO_LAGS)
    one = sysid.Model.load(folder / "model.nc")
    summary = load_summary(folder)
    content = json.loads((folder / "validation.json").read_text())
    (found,) = forecast(one, record_of(30, 5), horizon=None, window=2).records
    rmse = np.sqrt(np.mean((found.mean - found.measured) ** 2))
    assert content["free_run"]["rmse"] == pytest.approx(rmse, rel=1e-9)
    assert summary["free_run"] == content["free_run"]
    assert content["one_step"]["rmse"] == pytest.approx(summary["rmse"], rel=1e-9)
    assert set(content["warnings"]) <= set(summary["warnings"])
    assert read_validation(folder).keys() >= {
        "one_step_window_2",
        "free_run_window_2",
        "residual_tests_one_step",
    }
    y = coupled_signals(60, 2)["y"][2:]
    assert (one.origin.sampling_time, one.origin.n_samples, dict(one.origin.units)) == (
        0.5,
        58,
        {"y": "V"},
    )
    assert (one.origin.output_mean, one.origin.output_variance) == pytest.approx(
        (y.mean(), y.var()), rel=1e-12
    )


def test_what_is_not_or_cannot_be_validated_is_told_and_the_rest_is_there(record, tmp_path):
    half = ("data.outputs=[y,z]", "narx.target=y")  # one of two outputs is predicted
    for without in (("validate=false",), ("data.test=[]", "identified=1"), half):
        folder = run_identify(tmp_path / without[0], *record, *TWO_LAGS, *without)
        assert load_summary(folder)["free_run"] is None
        assert not list(folder.glob("validation*"))
        assert (folder / "model.nc").exists()
        told = any(
            "not validated in free run" in words for words in load_summary(folder)["warnings"]
        )
        assert told == (without == half)


@pytest.mark.parametrize(
    ("reason", "ends_with", "exit_code"),
    [(KeyboardInterrupt, Stopped, 130), (IndexError, IndexError, None)],
    ids=["interrupt", "fault of ours"],
)
def test_what_ends_a_validation_early_keeps_the_identification(
    reason, ends_with, exit_code, record, tmp_path, monkeypatch
):
    def interrupted(*arguments):
        raise reason

    monkeypatch.setattr(identification, "validate_on_test", interrupted)
    with pytest.raises(ends_with) as caught:
        run_identify(tmp_path / "run", *record, *TWO_LAGS)
    assert getattr(caught.value, "exit_code", None) == exit_code
    assert load_summary(tmp_path / "run")["partial"] is False
    assert sysid.Model.load(tmp_path / "run" / "model.nc").gp.n_points == 15
    assert not list((tmp_path / "run").glob("validation*"))


# --- what does not fit the model, and numbers that deserve a warning ------------------------------------


@pytest.fixture
def case(tmp_path):
    """A model file, a record, and the overrides that fit."""
    path = save_models(tmp_path / "model.nc")
    record = write_record(tmp_path / "test.csv")
    return path, record, [*validation_overrides(path, record), *ONE_STEP_ONLY]


def refused(folder, *overrides):
    """Message of the error that stops a run; nothing has been written."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run_validate(folder, *overrides)
    assert list(folder.iterdir()) == []
    assert isinstance(caught.value, ValueError | TypeError | OSError), caught.value
    return f"{caught.value} {caught.value.__cause__ or ''}"


def test_records_and_models_that_cannot_be_read_or_simulated(case, tmp_path):
    path, record, fitting = case
    content = path.read_bytes()
    write_record(record, u=np.where(np.arange(50) == 20, np.inf, coupled_signals(50, 1)["u"]))
    assert "test.csv" in refused(tmp_path / "run", *fitting)
    write_record(record)
    path.write_bytes(content[: len(content) // 2])
    assert "model.nc" in refused(tmp_path / "run", *fitting)
    path.write_bytes(content)
    data = read(path, kind="model")
    write(data.assign_attrs(kernel="builtins.list"), path, kind="model")
    assert "model.nc" in refused(tmp_path / "run", *fitting)
    write(data, path, kind="study")
    assert "'study'" in refused(tmp_path / "run", *fitting)
    make_model(lags={"outputs": {"y": []}, "inputs": {"u": [0]}}, predict="value").save(path)
    assert "static" in refused(tmp_path / "run", *fitting)
    make_model("y", {"outputs": {"y": 2, "z": 1}, "inputs": {"u": [1]}}).save(path)
    assert "one model for each" in refused(
        tmp_path / "run", *validation_overrides(path, record, outputs=("y", "z")), *ONE_STEP_ONLY
    )


def test_divergence_is_told_with_its_time_and_value(case, tmp_path):
    path, _, fitting = case
    save_models(path, replace(make_model(), mean=sysid.ConstantMean(400.0)))
    content = run_validate(tmp_path / "run", *fitting)
    (found,) = [one for one in content["divergences"] if one["horizon"] == "free_run"]
    assert content["free_run"]["rmse"] is None
    assert content["free_run"]["n"] == 48
    assert content["free_run"]["n_diverged"] == 50 - found["sample"]
    assert (found["output"], found["time"]) == ("y", DT * found["sample"])
    warning = next(words for words in content["warnings"] if "diverges" in words)
    assert f"{found['time']:g} s" in warning
    assert f"{found['value']:.4g} V" in warning
    assert "skipped" in content["residuals"]["free_run"]
    measured = read_validation(tmp_path / "run")["free_run_window_2"]
    assert np.isnan(measured["mean"].values[-1, 0])
    assert content["one_step"]["rmse"] > 100
    assert not any("runs into a limit" in words for words in content["warnings"])
    save_models(path, replace(make_model(), mean=sysid.ConstantMean(400.0), limits=(-9.0, 9.0)))
    content = run_validate(tmp_path / "held", *fitting)
    mean = read_validation(tmp_path / "held")["free_run_window_2"]["mean"].values
    assert (content["free_run"]["n_diverged"], mean.max()) == (0, 9.0)
    assert (content["free_run"]["n_held"], content["one_step"]["n_held"]) == (
        len(mean),
        len(mean),
    )
    words = f"the free run after a window of 2 runs into a limit that the data of the model never reached, at {len(mean)}"
    assert any(one.startswith(words) for one in content["warnings"])


def test_regressors_outside_the_dictionary_are_told(case, tmp_path):
    write_record(case[1], u=5 * coupled_signals(50, 1)["u"])
    content = run_validate(tmp_path / "run", *case[2])
    (words,) = [
        words for words in content["warnings"] if "dictionary" in words and "1 step" in words
    ]
    assert "u[k-1] reaches" in words
    one = make_model()
    points, low, high = (
        one.scaling.inverse(one.gp.inputs),
        *one.scaling.inverse(np.sort(one.gp.inputs, 0))[[0, -1], 2],
    )
    n, total, where = find_outside(one, points)
    assert (n, total) == (0, len(points))
    assert "combinations" in where
    far = points.copy()
    far[3, 2] = high + 0.06 * (high - low)
    far[4, 0] = points[:, 0].min() - 0.04 * np.ptp(points[:, 0])
    far[5] = np.nan
    found = f"u[k-1] reaches {far[3, 2]:.4g} A, the stored points {low:.4g} to {high:.4g}"
    assert find_outside(one, far) == (1, len(points) - 1, found)
    centre = one.scaling.inverse(
        one.gp.inputs.mean(axis=0, keepdims=True)
    )  # between points that say nothing of it
    assert find_outside(one, centre)[0] == 0
    narrow = sysid.OnlineGP(
        sysid.SquaredExponential(0.05, (0.05,) * 3), noise_variance=2e-4, budget=14
    )
    narrow.fit(one.gp.inputs, one.gp.targets)
    assert find_outside(replace(one, gp=narrow), centre)[0] == 1
    learned = type(one.scaling).of_matrix(
        one.scaling.offset, np.diag(1.0 / one.scaling.scale)
    )  # a metric: no region
    save_models(case[0], replace(one, scaling=learned))
    assert not any(
        "dictionary" in words for words in run_validate(tmp_path / "metric", *case[2])["warnings"]
    )


def test_bands_that_do_not_cover_are_told(case, tmp_path, monkeypatch):
    noisy = coupled_signals(50, 1)["y"] + 0.2 * np.random.default_rng(0).normal(size=50)
    write_record(case[1], y=noisy)
    content = run_validate(tmp_path / "run", *case[2])
    assert content["one_step"]["coverage_95"] < 0.8
    (words,) = [words for words in content["warnings"] if "do not cover" in words]
    assert "1 step" in words
    assert "free run" in words
    assert "process_noise" not in words  # mean_only has none
    covered = report.coverage_percents(
        sysid.Validation(*[0.0] * 7, 0.25, 0.5, 0.75, n=10, window=2)
    )
    assert covered == {50: 25.0, 90: 50.0, 95: 75.0}
    told = run_validate(tmp_path / "taylor", *case[2], "propagation=taylor")["warnings"]
    assert any(
        "do not cover" in words and "propagation.process_noise=true" in words for words in told
    )
    for number, (shares, expected) in enumerate(
        (
            ((42.0, 81.0, 86.0), ""),
            ((50.0, 90.0, 84.0), "95 % band 1 step 84.0 %, 95 % band free run 84.0 %"),
            ((30.0, 85.0, 90.0), "50 % band 1 step 30.0 %"),
        )
    ):
        monkeypatch.setattr(
            report,
            "coverage_percents",
            lambda score, s=shares: dict(zip((50, 90, 95), s, strict=True)),
        )
        said = [
            words
            for words in run_validate(tmp_path / str(number), *case[2])["warnings"]
            if "the bands of y" in words
        ]
        assert expected in said[0] if expected else said == []


def test_draws_that_are_spared_are_told(case, tmp_path, monkeypatch):
    monkeypatch.setattr("sysid.simulation.propagation.propagation.MAX_DRAWN_STEPS", 125)
    monkeypatch.setattr("sysid.simulation.forecast.MIN_FREE_RUN_DRAWS", 4)
    asked = (
        *case[2],
        "propagation=pathwise",
        "propagation.n_samples=40",
        "horizons=[3]",
    )
    (words,) = [
        words
        for words in run_validate(tmp_path / "run", *asked)["warnings"]
        if "bands are rough" in words
    ]
    assert words.endswith(
        "than the requested 40 to limit the computing time: 3 steps 2, free run 10"
    )
    for few in (
        "propagation.n_samples=10",
        "propagation.n_samples=40",
    ):  # all that are asked for, enough
        said = run_validate(tmp_path / few, *asked[:-2], few)["warnings"]
        assert not any("bands are rough" in words for words in said)
        monkeypatch.setattr(report, "MIN_DRAWS", 5)


def test_a_folder_that_holds_more_than_hydra_wrote_is_kept_and_so_is_the_working_folder(
    tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    remove_unused(tmp_path / "here", "collect.log")
    assert (tmp_path / "here").exists()
    for name, kept in (("notes.txt", True), ("validate.log", False)):
        (tmp_path / name / ".hydra").mkdir(parents=True)
        (tmp_path / name / name).write_text("mine")
        remove_unused(tmp_path / name, "validate.log")
        assert (tmp_path / name).exists() == kept


def test_a_free_run_far_worse_than_one_step_is_told(case, tmp_path):
    path, _, fitting = case
    good = run_validate(tmp_path / "good", *fitting)
    assert not any("far worse" in words for words in good["warnings"])
    one = make_model()
    one.gp.fit(one.gp.inputs, np.zeros(one.gp.n_points))
    save_models(path, replace(one, mean=sysid.ConstantMean(0.05)))  # drifts by 0.05 V at every step
    write_record(tmp_path / "test.csv", y=0.01 * np.sin(np.arange(50.0)))
    content = run_validate(tmp_path / "run", *fitting)
    assert content["free_run"]["rmse"] > 3 * content["one_step"]["rmse"]
    (words,) = [words for words in content["warnings"] if "far worse" in words]
    assert (
        f"RMSE {content['free_run']['rmse']:.4g} V against {content['one_step']['rmse']:.4g} V"
        in words
    )
    content = run_validate(tmp_path / "short", *fitting, "windows=[1,2]")
    assert any(
        "window of 1 samples is shorter than the largest lag" in words
        for words in content["warnings"]
    )
