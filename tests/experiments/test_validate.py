"""`sysid-validate` against records: the numbers, the files, the words."""

import json

import numpy as np
import pytest
from matplotlib.image import imread
from running import CONF
from scipy.stats import norm
from validating import DT, QUICK, csv_file, model, recorded, saved, signals, stored, validate

from experiments.validation import figures
from sysid import JointModel, Pathwise, forecast, make_record, store

MEASURES = {"rmse", "nrmse", "fit_percent", "r2", "smse", "msll", "nlpd", "n", "coverage_50", "coverage_90"}
WINDOWS, HORIZONS = (4, 2), (1, 3)


def naive_predictions(one, data, horizon, window):
    """Outputs predicted sample by sample with a dictionary of the last values; horizon None: free run."""
    y, u = data["y"], data["u"]
    n = len(y)
    first = window if horizon is None else max(window, horizon)
    found = {}
    for k in range(first, n):
        last = window if horizon is None else k - horizon + 1
        path = dict(enumerate(y[:last]))
        for j in range(last, k + 1):
            x = np.array([[path[j - 1], path[max(j - 2, 0)], u[j - 1]]])
            path[j] = one.predict(x).mean.item() + path[j - 1]
        found[k] = path[k]
    return np.array(list(found)), np.array(list(found.values()))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run over two windows, with figures and uncertainty; its folder, content, model and record."""
    folder = tmp_path_factory.mktemp("validation")
    path, record = saved(folder / "model.nc"), csv_file(folder / "test.csv")
    settings = (f"windows={list(WINDOWS)}", f"horizons={list(HORIZONS)}", "propagation.n_samples=20")
    content = validate(folder / "run", *recorded(path, record), *settings, "propagation.n_features=20")
    return folder / "run", content, JointModel.load(path).models[0], signals(50, 1)


def test_files_and_measures_are_those_of_predictions_by_hand(run):
    folder, content, one, data = run
    assert {path.name for path in folder.iterdir()} == {"validation.json", "validation.nc", "validation.png"}
    attributes, groups = store.header(folder / "validation.nc"), stored(folder)
    assert (attributes["schema"], attributes["seed"]) == ("validation", 1)
    assert "horizons" in attributes["configuration"]
    json.loads((folder / "validation.json").read_text(), parse_constant=pytest.fail)
    assert min(imread(folder / "validation.png").shape[:2]) > 1000
    kinds = [(window, horizon) for window in WINDOWS for horizon in (*HORIZONS, None)]
    names = {None: "free_run", 1: "one_step", 3: "3_steps"}
    for entry, (window, horizon) in zip(content["horizons"], kinds, strict=True):
        label = "free_run" if horizon is None else horizon
        assert entry.keys() >= MEASURES
        assert (entry["horizon"], entry["window"], entry["unit"]) == (label, window, "V")
        samples, mean = naive_predictions(one, data, horizon, window)
        y = data["y"][samples]
        smse = np.mean((y - mean) ** 2) / np.var(y)
        expected = {
            "rmse": np.sqrt(np.mean((y - mean) ** 2)),
            "smse": smse,
            "r2": 1 - smse,
            "nrmse": np.sqrt(smse),
            "fit_percent": 100 * (1 - np.linalg.norm(y - mean) / np.linalg.norm(y - y.mean())),
        }
        assert {key: entry[key] for key in expected} == pytest.approx(expected, rel=1e-9)
        assert (entry["n"], entry["left_out"]) == (len(y), 50 - len(y))
        group = groups[f"{names[horizon]}_window_{window}"]
        np.testing.assert_allclose(group["mean"].values[:, 0], mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(group["residual"], group["measured"] - group["mean"])
        np.testing.assert_array_equal(group["number"], samples)
        np.testing.assert_allclose(group["time"], DT * samples)
        assert (str(group.attrs["horizon"]), group.attrs["window"]) == (str(label), window)
        if window == WINDOWS[0] and horizon != 3:
            assert {"output": "y", **content[names[horizon]]} == entry


def test_bands_are_those_of_the_stored_variances(run):
    folder, content, one, _ = run
    group = stored(folder)[f"free_run_window_{WINDOWS[0]}"]
    y, mean, variance = (group[name].values[:, 0] for name in ("measured", "mean", "variance"))
    noise = group["noise_variance"].item()
    assert noise == one.gp.noise_variance
    predictive = norm(mean, np.sqrt(variance + noise))
    trivial = norm(one.origin.output_mean, np.sqrt(one.origin.output_variance))
    expected = {"nlpd": -predictive.logpdf(y).mean()}
    expected["msll"] = expected["nlpd"] + trivial.logpdf(y).mean()
    for level in (50, 90, 95):
        low, high = predictive.interval(level / 100)
        expected[f"coverage_{level}"] = np.mean((low <= y) & (y <= high))
    assert {key: content["free_run"][key] for key in expected} == pytest.approx(expected, rel=1e-9)
    assert content["calibration"]["free_run"]["nominal"][-2] == 0.95
    assert content["calibration"]["free_run"]["observed"][-2] == pytest.approx(expected["coverage_95"])


def test_uncertainty_grows_along_the_free_run_and_leaves_its_mean_alone(run, tmp_path):
    folder, content, *_ = run
    group = stored(folder)[f"free_run_window_{WINDOWS[0]}"]
    alone = [*recorded(folder.parent / "model.nc", folder.parent / "test.csv"), *QUICK, f"windows=[{WINDOWS[0]}]"]
    without = validate(tmp_path, *alone)
    same = stored(tmp_path)[f"free_run_window_{WINDOWS[0]}"]
    np.testing.assert_allclose(group["mean"], same["mean"], rtol=1e-12)
    assert without["free_run"]["rmse"] == pytest.approx(content["free_run"]["rmse"], rel=1e-12)
    assert group["variance"].values[5:].mean() > 1.5 * same["variance"].values[5:].mean()
    record, joint = make_record(signals(50, 1), name="t", sampling_time=DT), JointModel.load(folder.parent / "model.nc")
    drawn = Pathwise(n_samples=20, n_features=20)
    (spread,) = forecast(joint, [record], horizon=None, window=WINDOWS[0], seed=1, propagation=drawn).records
    about_the_path = spread.variance + (spread.mean - group["mean"].values) ** 2
    np.testing.assert_allclose(group["variance"], about_the_path, rtol=1e-9)


def test_residual_tests_are_apart_for_one_step_and_free_run(run):
    folder, content, _, data = run
    found = content["residuals"]
    assert found["one_step"]["n"] == found["free_run"]["n"] == 46
    p = {kind: [test["p_value"] for test in found[kind]["tests"]] for kind in ("one_step", "free_run")}
    assert len(p["one_step"]) == len(p["free_run"]) == 6
    assert p["one_step"] != p["free_run"]
    for kind in ("one_step", "free_run"):
        tests = stored(folder)[f"residual_tests_{kind}"]
        residual = stored(folder)[f"{kind}_window_{WINDOWS[0]}"]["residual"].values[:, 0]
        e = residual - residual.mean()
        np.testing.assert_allclose(tests["correlation"][0, 1], e[1:] @ e[:-1] / (e @ e), rtol=1e-9)
        u = data["u"][WINDOWS[0] :] - data["u"][WINDOWS[0] :].mean()
        (row,) = np.flatnonzero(tests["name"].values == "input")
        np.testing.assert_allclose(tests["correlation"][row, 0], e @ u / np.sqrt((e @ e) * (u @ u)), rtol=1e-9)


def test_several_records_count_together_and_never_run_into_each_other(tmp_path):
    path, quick = saved(tmp_path / "model.nc"), (*QUICK, "windows=[5]")
    files = [csv_file(tmp_path / f"{seed}.csv", n=n, seed=seed) for n, seed in ((30, 3), (40, 4))]
    both = validate(tmp_path / "both", *recorded(path, *files), *quick)
    single = [validate(tmp_path / file.stem, *recorded(path, file), *quick)["free_run"] for file in files]
    squares = sum(entry["n"] * entry["rmse"] ** 2 for entry in single)
    assert (both["free_run"]["n"], both["free_run"]["left_out"]) == (60, 10)
    assert both["free_run"]["rmse"] == pytest.approx(np.sqrt(squares / 60), rel=1e-12)
    assert [record["n"] for record in both["data"]["records"]] == [30, 40]
    np.testing.assert_array_equal(stored(tmp_path / "both")["free_run_window_5"]["record"], np.repeat([0, 1], (25, 35)))


def test_several_outputs_have_a_level_of_their_own(tmp_path):
    lags = {"outputs": {"y": 2, "z": 1}, "inputs": {"u": [1]}}
    path = saved(tmp_path / "model.nc", *(model(name, lags) for name in ("y", "z")))
    data = recorded(path, csv_file(tmp_path / "test.csv"), outputs=("y", "z"))
    (png := pytest.MonkeyPatch()).setattr(figures, "png", lambda figure: b"drawn")  # which takes seconds
    content = validate(tmp_path / "run", *data, "propagation=mean_only", "horizons=[1]", "windows=[3]")
    png.undo()
    for kind in ("one_step", "free_run"):
        assert content[kind].keys() == {"y", "z"}
        assert content[kind]["y"]["rmse"] != content[kind]["z"]["rmse"]
        assert content["residuals"][kind]["p_value"].keys() == {"y", "z"}
    assert [entry["output"] for entry in content["horizons"]] == ["y", "z"] * 2
    assert (content["free_run"]["z"]["unit"], content["units"]["z"]) == ("K", "degC")
    assert {path.stem for path in (tmp_path / "run").glob("*.png")} == {"validation_y", "validation_z"}
    measured = stored(tmp_path / "run")["free_run_window_3"]["measured"]
    np.testing.assert_array_equal(measured.sel(output="z"), signals(50, 1)["z"][3:])


def test_part_window_and_signals_can_be_chosen(tmp_path):
    path, lengths = saved(tmp_path / "model.nc"), {"estimation": 32, "validation": 31, "test": 33}
    files = [f"data.{name}={csv_file(tmp_path / f'{name}.csv', n=k)}" for name, k in lengths.items()]
    surplus = [*recorded(path, outputs=("y", "z")), *files, *QUICK, "left_out=[z]"]
    for part, stated, n in (("null", 0, 33 - 2), ("validation", 7, 31 - 7)):  # the largest lag, or as the data say
        content = validate(tmp_path / part, *surplus, f"part={part}", f"data.initialisation_window={stated}")
        assert (content["free_run"]["n"], content["free_run"]["window"]) == (n, stated or 2)
        assert content["data"]["part"] == ("test" if part == "null" else part)


@pytest.mark.parametrize("name", sorted(path.stem for path in CONF.glob("propagation/*.yaml")))
def test_every_propagation_runs(name, tmp_path):
    path, record = saved(tmp_path / "model.nc"), csv_file(tmp_path / "test.csv", n=20)
    options = [f"propagation={name}", "figures=false", "horizons=[2]"]
    options += ["propagation.n_samples=8"] * (name in ("monte_carlo", "pathwise", "sequential_conditioning"))
    content = validate(tmp_path / "run", *recorded(path, record), *options)
    assert np.isfinite([entry["nlpd"] for entry in content["horizons"]]).all()
    assert content["propagation"] == name.title().replace("_", "")


def test_a_model_that_does_not_say_where_it_comes_from(tmp_path):
    path = saved(tmp_path / "model.nc", model(sampling_time=DT))
    content = validate(tmp_path / "run", *recorded(path, csv_file(tmp_path / "test.csv")), *QUICK)
    assert content["free_run"]["msll"] is None
