"""`sysid-validate` on records: its files, measures, windows, outputs and residual tests."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.cli.ends import Stopped
from experiments.cli.run_folder import remove_unused
from experiments.validate import figures
from helpers.commands import CONF, load_summary, run_identify
from helpers.records import (
    DT,
    ONE_OUTPUT,
    ONE_STEP_ONLY,
    coupled_signals,
    has_warning,
    make_coupled_record,
    make_model,
    read_validation,
    run_validate,
    save_models,
    validation_overrides,
    write_record,
)
from sysid import JointModel, Model, Pathwise, forecast, residual_tests, store, validate

WINDOWS = (4, 2)
HORIZONS = (1, 3)
N_SAMPLES = 50

#: names of the groups by horizon; None is the free run
GROUP_NAMES = {1: "one_step", 3: "3_steps", None: "free_run"}

#: every kind of prediction of `validation`
PREDICTIONS = [(window, horizon) for window in WINDOWS for horizon in (*HORIZONS, None)]


@pytest.fixture(scope="module")
def validation(tmp_path_factory):
    """Folder and content of a validation over two windows, with figures and uncertainty."""
    folder = tmp_path_factory.mktemp("validation")
    path = save_models(folder / "model.nc")
    record = write_record(folder / "test.csv", n=N_SAMPLES)
    content = run_validate(
        folder / "run",
        *validation_overrides(path, record),
        f"windows={list(WINDOWS)}",
        f"horizons={list(HORIZONS)}",
        "propagation.n_samples=20",
        "propagation.n_features=20",
    )
    return folder / "run", content


@pytest.fixture(scope="module")
def model(validation):
    """The model that was validated."""
    folder, _ = validation
    return JointModel.load(folder.parent / "model.nc").models[0]


@pytest.fixture(scope="module")
def groups(validation):
    """The groups of validation.nc."""
    folder, _ = validation
    return read_validation(folder)


# --- what a validation writes ---------------------------------------------------------------------


def test_files_are_complete_and_readable(validation, groups, model):
    folder, content = validation
    names = {path.name for path in folder.iterdir()}
    assert names == {"validation.json", "validation.nc", "validation.png"}
    attributes = store.header(folder / "validation.nc")
    assert attributes["schema"] == "validation"
    assert attributes["seed"] == 1
    assert "horizons" in attributes["configuration"]
    json.loads((folder / "validation.json").read_text(), parse_constant=pytest.fail)
    assert min(imread(folder / "validation.png").shape[:2]) > 1000
    noise_variances = {
        group["noise_variance"].item() for group in groups.values() if "mean" in group
    }
    assert noise_variances == {model.gp.noise_variance}
    assert len(content["horizons"]) == len(PREDICTIONS)


@pytest.mark.parametrize(("window", "horizon"), PREDICTIONS)
def test_predictions_and_measures_are_those_of_the_library(
    window, horizon, validation, groups, model
):
    _, content = validation
    entry = content["horizons"][PREDICTIONS.index((window, horizon))]
    label = "free_run" if horizon is None else horizon
    assert (entry["horizon"], entry["window"], entry["unit"]) == (label, window, "V")

    record = make_coupled_record(N_SAMPLES, 1)
    (predicted,) = forecast(model, record, horizon=horizon, window=window).records
    group = groups[f"{GROUP_NAMES[horizon]}_window_{window}"]
    measured, mean, variance = (
        group[name].values[:, 0] for name in ("measured", "mean", "variance")
    )
    np.testing.assert_allclose(group["mean"], predicted.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(measured, coupled_signals(N_SAMPLES, 1)["y"][predicted.sample])
    np.testing.assert_array_equal(group["residual"], group["measured"] - group["mean"])
    np.testing.assert_array_equal(group["number"], predicted.sample)
    np.testing.assert_allclose(group["time"], DT * predicted.sample)
    assert str(group.attrs["horizon"]) == str(label)
    assert group.attrs["window"] == window

    expected = validate(
        measured,
        mean,
        variance,
        window=window,
        noise_variance=model.gp.noise_variance,
        trivial=(model.origin.output_mean, model.origin.output_variance),
    ).to_dict()
    assert {name: entry[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert entry["left_out"] == N_SAMPLES - len(measured)


@pytest.mark.parametrize("kind", ["one_step", "free_run"])
def test_the_first_window_gives_the_main_result(kind, validation):
    _, content = validation
    label = 1 if kind == "one_step" else "free_run"
    (entry,) = [
        entry
        for entry in content["horizons"]
        if entry["horizon"] == label and entry["window"] == WINDOWS[0]
    ]
    assert {"output": "y", **content[kind]} == entry


def test_the_calibration_curve_contains_the_coverage(validation):
    _, content = validation
    curve = content["calibration"]["free_run"]
    assert curve["nominal"][-2] == 0.95
    assert curve["observed"][-2] == pytest.approx(content["free_run"]["coverage_95"])


def test_uncertainty_grows_along_the_free_run_and_leaves_its_mean_alone(
    validation, groups, tmp_path
):
    folder, content = validation
    group = groups[f"free_run_window_{WINDOWS[0]}"]
    data = validation_overrides(folder.parent / "model.nc", folder.parent / "test.csv")

    mean_only = run_validate(tmp_path, *data, *ONE_STEP_ONLY, f"windows=[{WINDOWS[0]}]")

    mean_only_group = read_validation(tmp_path)[f"free_run_window_{WINDOWS[0]}"]
    np.testing.assert_allclose(group["mean"], mean_only_group["mean"], rtol=1e-12)
    assert mean_only["free_run"]["rmse"] == pytest.approx(content["free_run"]["rmse"], rel=1e-12)
    later_variance = group["variance"].values[5:].mean()
    assert later_variance > 1.5 * mean_only_group["variance"].values[5:].mean()


def test_the_variance_of_the_free_run_is_that_of_draws_about_its_mean(validation, groups):
    folder, _ = validation
    group = groups[f"free_run_window_{WINDOWS[0]}"]

    (drawn,) = forecast(
        JointModel.load(folder.parent / "model.nc"),
        make_coupled_record(N_SAMPLES, 1),
        horizon=None,
        window=WINDOWS[0],
        seed=1,
        propagation=Pathwise(n_samples=20, n_features=20),
    ).records

    expected = drawn.variance + (drawn.mean - group["mean"].values) ** 2
    np.testing.assert_allclose(group["variance"], expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["one_step", "free_run"])
def test_residual_tests_are_those_of_the_library(kind, validation, groups):
    _, content = validation
    stored = content["residuals"][kind]
    residual = groups[f"{kind}_window_{WINDOWS[0]}"]["residual"].values
    u = coupled_signals(N_SAMPLES, 1)["u"][WINDOWS[0] :]

    expected = residual_tests(
        residual, u, n_lags=stored["n_lags"], output_names=["y"], input_names=["u"]
    )

    correlation = groups[f"residual_tests_{kind}"]["correlation"]
    np.testing.assert_allclose(correlation, expected.to_dataset()["correlation"], rtol=1e-9)
    assert stored["n"] == N_SAMPLES - WINDOWS[0]
    p_values = [test["p_value"] for test in stored["tests"]]
    assert len(p_values) == 6
    assert p_values == pytest.approx([test.p_value for test in expected.tests])


def test_residual_tests_of_one_step_and_free_run_differ(validation):
    residuals = validation[1]["residuals"]
    one_step, free_run = (
        [test["p_value"] for test in residuals[kind]["tests"]] for kind in ("one_step", "free_run")
    )
    assert one_step != pytest.approx(free_run)


# --- records, outputs, windows, propagations ------------------------------------------------------


def test_several_records_count_together_and_never_run_into_each_other(tmp_path):
    path = save_models(tmp_path / "model.nc")
    quick = (*ONE_STEP_ONLY, "windows=[5]")
    files = [
        write_record(tmp_path / "3.csv", n=30, seed=3),
        write_record(tmp_path / "4.csv", n=40, seed=4),
    ]

    together = run_validate(tmp_path / "together", *validation_overrides(path, *files), *quick)
    alone = [
        run_validate(tmp_path / file.stem, *validation_overrides(path, file), *quick)["free_run"]
        for file in files
    ]

    n_together = (30 - 5) + (40 - 5)
    sum_of_squares = sum(entry["n"] * entry["rmse"] ** 2 for entry in alone)
    assert together["free_run"]["n"] == n_together
    assert together["free_run"]["left_out"] == 5 + 5
    expected_rmse = np.sqrt(sum_of_squares / n_together)
    assert together["free_run"]["rmse"] == pytest.approx(expected_rmse, rel=1e-12)
    of_each = [entry for entry in together["records"] if entry["horizon"] == "free_run"]
    assert [entry["record"] for entry in of_each] == [file.name for file in files]
    for entry, expected in zip(of_each, alone, strict=True):
        measures = entry.keys() - {"record", "output"}
        assert {name: entry[name] for name in measures} == pytest.approx(
            {name: expected[name] for name in measures}
        )
    assert [record["n"] for record in together["data"]["records"]] == [30, 40]
    numbers = read_validation(tmp_path / "together")["free_run_window_5"]["record"]
    np.testing.assert_array_equal(numbers, np.repeat([0, 1], (25, 35)))


@pytest.fixture(scope="module")
def two_outputs(tmp_path_factory):
    """Folder and content of a validation of a model for each of two outputs."""
    folder = tmp_path_factory.mktemp("outputs")
    lags = {"outputs": {"y": 2, "z": 1}, "inputs": {"u": [1]}}
    path = save_models(folder / "model.nc", make_model("y", lags), make_model("z", lags))
    record = write_record(folder / "test.csv", n=N_SAMPLES)
    data = validation_overrides(path, record, outputs=("y", "z"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "png", lambda figure: b"drawn")  # drawing takes seconds
        content = run_validate(
            folder / "run", *data, "propagation=mean_only", "horizons=[1]", "windows=[3]"
        )
    return folder / "run", content


@pytest.mark.parametrize("kind", ["one_step", "free_run"])
def test_every_output_has_its_own_measures(kind, two_outputs):
    _, content = two_outputs
    assert content[kind].keys() == {"y", "z"}
    assert content[kind]["y"]["rmse"] != content[kind]["z"]["rmse"]
    assert content["residuals"][kind]["p_value"].keys() == {"y", "z"}


def test_every_output_has_its_own_unit_figure_and_column(two_outputs):
    folder, content = two_outputs
    assert [entry["output"] for entry in content["horizons"]] == ["y", "z", "y", "z"]
    assert content["free_run"]["z"]["unit"] == "K", "differences of temperatures are in kelvins"
    assert content["units"]["z"] == "degC"
    pictures = {path.stem for path in folder.glob("*.png")}
    assert pictures == {"validation_y", "validation_z"}
    measured = read_validation(folder)["free_run_window_3"]["measured"]
    np.testing.assert_array_equal(measured.sel(output="z"), coupled_signals(N_SAMPLES, 1)["z"][3:])


@pytest.mark.parametrize(
    ("part", "stated_window", "used_part", "window", "n_scored"),
    [
        pytest.param("null", 0, "test", 2, 33 - 2, id="largest lag by default"),
        pytest.param("validation", 7, "validation", 7, 31 - 7, id="window of the data"),
    ],
)
def test_part_window_and_signals_can_be_chosen(
    part, stated_window, used_part, window, n_scored, tmp_path
):
    path = save_models(tmp_path / "model.nc")
    files = []
    for role, n in {"estimation": 32, "validation": 31, "test": 33}.items():
        file = write_record(tmp_path / f"{role}.csv", n=n)
        files.append(f"data.{role}={file}")

    content = run_validate(
        tmp_path / "run",
        *validation_overrides(path, outputs=("y", "z")),
        *files,
        *ONE_STEP_ONLY,
        "left_out=[z]",
        f"part={part}",
        f"data.initialisation_window={stated_window}",
    )

    assert content["data"]["part"] == used_part
    assert content["free_run"]["window"] == window
    assert content["free_run"]["n"] == n_scored


#: propagations that draw
DRAWING = ("monte_carlo", "pathwise", "sequential_conditioning")


@pytest.mark.parametrize("name", sorted(path.stem for path in CONF.glob("propagation/*.yaml")))
def test_every_propagation_runs(name, tmp_path):
    path = save_models(tmp_path / "model.nc")
    record = write_record(tmp_path / "test.csv", n=20)
    options = [f"propagation={name}", "figures=false", "horizons=[2]"]
    if name in DRAWING:
        options.append("propagation.n_samples=8")

    content = run_validate(tmp_path / "run", *validation_overrides(path, record), *options)

    assert np.isfinite([entry["nlpd"] for entry in content["horizons"]]).all()
    assert content["propagation"] == name.title().replace("_", "")


# --- the validation after an identification -------------------------------------------------------

TWO_LAGS = (ONE_OUTPUT, "narx.na=2")


@pytest.fixture(scope="module")
def identified(record, tmp_path_factory):
    """Folder of an identification from a record, with a validation on its test record."""
    return run_identify(tmp_path_factory.mktemp("identified"), *record, *TWO_LAGS)


def test_an_identification_from_a_record_validates_on_its_test(identified):
    model = Model.load(identified / "model.nc")
    summary = load_summary(identified)
    content = json.loads((identified / "validation.json").read_text())
    test = make_coupled_record(30, 5)
    (predicted,) = forecast(model, test, horizon=None, window=2).records
    rmse = np.sqrt(np.mean((predicted.mean - predicted.measured) ** 2))
    assert content["free_run"]["rmse"] == pytest.approx(rmse, rel=1e-9)
    assert summary["free_run"] == content["free_run"]
    assert content["one_step"]["rmse"] == pytest.approx(summary["rmse"], rel=1e-9)
    assert set(content["warnings"]) <= set(summary["warnings"])
    expected_groups = {"one_step_window_2", "free_run_window_2", "residual_tests_one_step"}
    assert read_validation(identified).keys() >= expected_groups


def test_a_model_knows_the_record_that_it_is_identified_from(identified):
    origin = Model.load(identified / "model.nc").origin

    y = coupled_signals(60, 2)["y"][2:]
    assert origin.sampling_time == DT
    assert origin.n_samples == len(y)
    assert dict(origin.units) == {"y": "V"}
    assert origin.output_mean == pytest.approx(y.mean(), rel=1e-12)
    assert origin.output_variance == pytest.approx(y.var(), rel=1e-12)


@pytest.mark.parametrize(
    ("overrides", "is_warned_about"),
    [
        pytest.param(("validate=false",), False, id="not wanted"),
        pytest.param(("data.test=[]", "identified=1"), False, id="no test"),
        pytest.param(("data.outputs=[y,z]", "narx.target=y"), True, id="one of two outputs"),
    ],
)
def test_an_identification_without_a_validation_is_complete(
    overrides, is_warned_about, record, tmp_path
):
    folder = run_identify(tmp_path / "run", *record, *TWO_LAGS, *overrides)

    summary = load_summary(folder)
    assert summary["free_run"] is None
    assert not list(folder.glob("validation*"))
    assert (folder / "model.nc").exists()
    assert has_warning(summary, "not validated in free run") == is_warned_about


@pytest.mark.parametrize(
    ("error", "ends_with", "exit_code"),
    [(KeyboardInterrupt, Stopped, 130), (IndexError, IndexError, None)],
    ids=["interrupt", "our own fault"],
)
def test_what_ends_a_validation_early_keeps_the_identification(
    error, ends_with, exit_code, record, tmp_path, monkeypatch
):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("experiments.identify.run.validate_on_test", fail)
    folder = tmp_path / "run"

    with pytest.raises(ends_with) as caught:
        run_identify(folder, *record, *TWO_LAGS)

    assert getattr(caught.value, "exit_code", None) == exit_code
    assert load_summary(folder)["partial"] is False
    assert Model.load(folder / "model.nc").gp.n_points == 15
    assert not list(folder.glob("validation*"))


# --- the folder of a run that wrote nothing -------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "is_kept"),
    [("notes.txt", True), ("validate.log", False)],
    ids=["a file of the user", "the log"],
)
def test_a_folder_that_holds_more_than_hydra_wrote_is_kept(file, is_kept, tmp_path):
    folder = tmp_path / "run"
    (folder / ".hydra").mkdir(parents=True)
    (folder / file).write_text("mine")

    remove_unused(folder, "validate.log")

    assert folder.exists() == is_kept


def test_the_working_folder_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    remove_unused(tmp_path, "collect.log")
    assert tmp_path.exists()
