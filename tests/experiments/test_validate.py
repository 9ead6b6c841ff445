"""`sysid-validate` against records: the numbers, the files, the words."""

import json

import numpy as np
import pytest
from matplotlib.image import imread
from scipy.stats import norm
from validating import DT, QUICK, csv_file, model, recorded, saved, signals, stored, validate

from sysid import JointModel, Pathwise, forecast, make_record, store

MEASURES = {"rmse", "nrmse", "fit_percent", "r2", "smse", "msll", "nlpd", "n", "window"} | {
    f"coverage_{level}" for level in (50, 90, 95)
}
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


def test_folder_holds_numbers_predictions_and_a_page(run):
    folder, *_ = run
    assert {path.name for path in folder.iterdir()} == {"validation.json", "validation.nc", "validation.png"}
    attributes = store.header(folder / "validation.nc")
    assert (attributes["schema"], attributes["seed"], "horizons" in attributes["configuration"]) == (
        "validation",
        1,
        True,
    )
    json.loads((folder / "validation.json").read_text(), parse_constant=pytest.fail)
    assert min(imread(folder / "validation.png").shape[:2]) > 1000


def test_every_horizon_and_window_has_an_entry(run):
    _, content, *_ = run
    kinds = [(entry["horizon"], entry["window"]) for entry in content["horizons"]]
    assert kinds == [(h, w) for w in WINDOWS for h in (*HORIZONS, "free_run")]
    for entry in (content["one_step"], content["free_run"], *content["horizons"]):
        assert entry.keys() >= MEASURES | {"horizon", "left_out", "unit"}
        assert entry["unit"] == "V"
    assert (content["one_step"]["horizon"], content["free_run"]["horizon"]) == (1, "free_run")
    assert content["one_step"]["window"] == content["free_run"]["window"] == WINDOWS[0]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("horizon", [*HORIZONS, None])
def test_measures_are_those_of_predictions_by_hand(run, horizon, window):
    folder, content, one, data = run
    label = "free_run" if horizon is None else horizon
    (entry,) = [e for e in content["horizons"] if (e["horizon"], e["window"]) == (label, window)]
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
    group = stored(folder)[{None: "free_run", 1: "one_step"}.get(horizon, f"{horizon}_steps") + f"_window_{window}"]
    np.testing.assert_allclose(group["mean"].values[:, 0], mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(group["residual"], group["measured"] - group["mean"])
    np.testing.assert_array_equal(group["number"], samples)
    np.testing.assert_allclose(group["time"], DT * samples)
    assert (str(group.attrs["horizon"]), group.attrs["window"]) == (str(label), window)


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
    record, joint = (
        make_record(signals(50, 1), name="test", sampling_time=DT),
        JointModel.load(folder.parent / "model.nc"),
    )
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
    path = saved(tmp_path / "model.nc")
    files = [csv_file(tmp_path / f"{seed}.csv", n=n, seed=seed) for n, seed in ((30, 3), (40, 4))]
    both = validate(tmp_path / "both", *recorded(path, *files), *QUICK, "windows=[5]")
    single = [
        validate(tmp_path / str(i), *recorded(path, file), *QUICK, "windows=[5]")["free_run"]
        for i, file in enumerate(files)
    ]
    squares = sum(entry["n"] * entry["rmse"] ** 2 for entry in single)
    assert both["free_run"]["n"] == sum(entry["n"] for entry in single) == 60
    assert both["free_run"]["left_out"] == 10
    assert both["free_run"]["rmse"] == pytest.approx(np.sqrt(squares / 60), rel=1e-12)
    assert [record["n"] for record in both["data"]["records"]] == [30, 40]
    assert np.unique(stored(tmp_path / "both")["free_run_window_5"]["record"]).tolist() == [0, 1]


def test_several_outputs_have_a_level_of_their_own(tmp_path):
    lags = {"outputs": {"y": 2, "z": 1}, "inputs": {"u": [1]}}
    path = saved(tmp_path / "model.nc", *(model(name, lags) for name in ("y", "z")))
    data = recorded(path, csv_file(tmp_path / "test.csv"), outputs=("y", "z"))
    content = validate(tmp_path / "run", *data, "propagation=mean_only", "horizons=[1]", "windows=[3]")
    for kind in ("one_step", "free_run"):
        assert content[kind].keys() == {"y", "z"}
        assert content[kind]["y"]["rmse"] != content[kind]["z"]["rmse"]
        assert content["residuals"][kind]["p_value"].keys() == {"y", "z"}
    assert [entry["output"] for entry in content["horizons"]] == ["y", "z"] * 2
    assert (content["free_run"]["z"]["unit"], content["units"]["z"]) == ("K", "degC")
    assert {path.stem for path in (tmp_path / "run").glob("*.png")} == {"validation_y", "validation_z"}
    measured = stored(tmp_path / "run")["free_run_window_3"]["measured"]
    np.testing.assert_array_equal(measured.sel(output="z"), signals(50, 1)["z"][3:])


def test_the_window_is_that_of_the_data_or_the_largest_lag(tmp_path):
    path, record = saved(tmp_path / "model.nc"), csv_file(tmp_path / "test.csv")
    for stated, window in ((0, 2), (7, 7)):
        folder, data = tmp_path / str(stated), recorded(path, record)
        content = validate(folder, *data, *QUICK, f"data.initialisation_window={stated}")
        assert content["free_run"]["window"] == window


def test_part_of_the_records_and_signals_can_be_chosen(tmp_path):
    path, lengths = saved(tmp_path / "model.nc"), {"estimation": 32, "validation": 31, "test": 33}
    files = [f"data.{name}={csv_file(tmp_path / f'{name}.csv', n=k)}" for name, k in lengths.items()]
    surplus = recorded(path, outputs=("y", "z"))
    for part, n in {"null": 33, "validation": 31}.items():
        content = validate(tmp_path / part, *surplus, *files, *QUICK, f"part={part}", "left_out=[z]")
        assert content["free_run"]["n"] == n - 2
        assert content["data"]["part"] == ("test" if part == "null" else part)


@pytest.mark.parametrize(
    "name", ["mean_only", "monte_carlo", "pathwise", "sequential_conditioning", "taylor", "moment_matching"]
)
def test_every_propagation_runs(name, tmp_path):
    path, record = saved(tmp_path / "model.nc"), csv_file(tmp_path / "test.csv", n=20)
    few = ["propagation.n_samples=8"] if name in ("monte_carlo", "pathwise", "sequential_conditioning") else []
    options = [f"propagation={name}", *few, "figures=false", "horizons=[2]"]
    content = validate(tmp_path / "run", *recorded(path, record), *options)
    assert np.isfinite([entry["nlpd"] for entry in content["horizons"]]).all()
    assert content["propagation"] == name.title().replace("_", "")


def test_a_model_that_does_not_say_where_it_comes_from(tmp_path):
    path = saved(tmp_path / "model.nc", model(sampling_time=DT))
    content = validate(tmp_path / "run", *recorded(path, csv_file(tmp_path / "test.csv")), *QUICK)
    assert content["free_run"]["msll"] is None
    words = " ".join(content["warnings"])
    assert "MSLL is not defined" in words
    assert "the data states the unit of u, A, the model does not" in words
