"""A short run from end to end: what is in its folder, and whether the numbers say what the files say."""

import json

import numpy as np
import pytest
from matplotlib.image import imread
from omegaconf import OmegaConf
from running import (
    BUDGET,
    DATA,
    DAYS,
    FIGURES,
    N_INITIAL,
    SHORT,
    bits,
    configured,
    data_of,
    execute,
    phases,
    summary_of,
)
from scipy.stats import norm

from sysid import LagWindow, Model, Narx, OnlineGP, SquaredExponential, store

PROMISED = {
    "smse",
    "smse_initial",
    "smse_no_change",
    "smse_stream",
    "mean_variance",
    "coverage_95",
    "nlpd",
    "n_seen",
    "n_inserted",
    "n_accepted",
    "n_revised",
    "n_points",
    "hyperparameters",
    "repairs",
    "times",
}


def smse(target, mean):
    return np.mean((target - mean) ** 2) / np.var(target)


@pytest.fixture(scope="module")
def summary(finished):
    return summary_of(finished)


@pytest.fixture(scope="module")
def result(finished):
    return data_of(finished, "result")


@pytest.fixture(scope="module")
def initial_gp(finished, result):
    """The GP before the stream, from the hyper-parameters of the model and the lag data set alone."""
    model, rows = Model.load(finished / "model.nc"), data_of(finished, "narx")
    first = slice(0, int(phases(result)[0].sum()))
    gp = OnlineGP(
        model.gp.kernel,
        noise_variance=model.gp.noise_variance,
        budget=model.gp.budget,
        reduction=model.gp.reduction,
    )
    inputs = model.scaling.transform(rows["regressor"].values[first])
    return gp.fit(inputs, rows["target"].values[first] - model.mean.value)


def test_folder_holds_exactly_the_promised_files(finished):
    files = {f"{kind}.nc" for kind in DATA} | {f"{name}.png" for name in FIGURES} | {"summary.json"}
    assert {path.name for path in finished.iterdir()} == files


@pytest.mark.parametrize("kind", DATA)
def test_files_carry_the_schema_and_their_origin(finished, kind):
    attributes = store.read(finished / f"{kind}.nc", kind=kind).attrs
    assert attributes["schema_version"] == store.SCHEMA_VERSION
    assert attributes["seed"] == 0
    assert attributes["partial"] == 0
    assert {"creation_time", "package_versions", "timings", "Conventions"} <= attributes.keys()
    written = OmegaConf.create(attributes["configuration"])
    expected = OmegaConf.to_container(configured(*SHORT, "figures=true"), resolve=True)
    assert OmegaConf.to_container(written) == expected


OWN_UNITS = {"phase", "acceptance_score", "acceptance_minimum", "reduction_score"}  # flags; the criterion's own


@pytest.mark.parametrize("kind", DATA)
def test_signals_have_a_unit_or_say_that_they_have_none(finished, kind):
    dataset = data_of(finished, kind)
    assert all(variable.attrs.get("long_name") for variable in dataset.data_vars.values())
    if kind in ("trajectory", "result"):
        assert all("units" in v.attrs for name, v in dataset.data_vars.items() if name not in OWN_UNITS)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_open_and_show_something(finished, name):
    picture = imread(finished / f"{name}.png")
    assert min(picture.shape[:2]) > 300
    colours = np.unique(picture[..., :3].reshape(-1, 3), axis=0)
    assert len(colours) > 50
    assert 0.002 < np.mean(np.any(picture[..., :3] < 0.9, axis=-1)) < 0.9


def test_figures_can_be_left_out(tmp_path):
    folder = execute(tmp_path, *SHORT)
    assert not list(folder.glob("*.png"))


def test_summary_has_every_promised_key_and_is_strict_json(finished, summary):
    assert summary.keys() >= PROMISED
    text = (finished / "summary.json").read_text()

    def refuse(constant):
        raise AssertionError(constant)

    json.loads(text, parse_constant=refuse)
    assert summary["partial"] is False
    assert all(np.isfinite(summary[key]) for key in PROMISED - {"hyperparameters", "repairs", "times"})


def test_run_returns_the_smse(tmp_path):
    from experiments.identification import run

    assert run(configured(*SHORT), tmp_path) == summary_of(tmp_path)["smse"]


def test_scores_of_the_validation_part_follow_from_the_record(finished, result, summary):
    _, _, after = phases(result)
    part = result.isel(sample=np.flatnonzero(after))
    y, mean, variance = (part[name].values for name in ("target", "mean", "variance"))
    noisy = variance + Model.load(finished / "model.nc").gp.noise_variance
    predictive = norm(mean, np.sqrt(noisy))
    low, high = predictive.interval(0.95)
    expected = {
        "smse": smse(y, mean),
        "smse_no_change": smse(y, 0.0),
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "mean_variance": variance.mean(),
        "coverage_95": np.mean((low <= y) & (y <= high)),
        "nlpd": -predictive.logpdf(y).mean(),
        "n_validation": after.sum(),
    }
    assert {key: summary[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def test_validation_record_is_what_the_stored_model_predicts(finished, result):
    rows = data_of(finished, "narx")
    _, _, after = phases(result)
    predicted = Model.load(finished / "model.nc").predict(rows["regressor"].values[after])
    np.testing.assert_array_equal(result["mean"].values[after], predicted.mean)
    np.testing.assert_array_equal(result["variance"].values[after], predicted.variance)


def test_smse_initial_is_that_of_the_model_before_the_stream(finished, result, summary, initial_gp):
    model, rows = Model.load(finished / "model.nc"), data_of(finished, "narx")
    _, _, after = phases(result)
    mean, _ = initial_gp.predict(model.scaling.transform(rows["regressor"].values[after]))
    expected = smse(rows["target"].values[after], mean + model.mean.value)
    assert summary["smse_initial"] == pytest.approx(expected, rel=1e-9)


def test_smse_stream_is_prequential(finished, result, summary, initial_gp):
    model, rows = Model.load(finished / "model.nc"), data_of(finished, "narx")
    _, online, _ = phases(result)
    assert summary["smse_stream"] == pytest.approx(
        smse(result["target"].values[online], result["mean"].values[online]), rel=1e-9
    )
    first = np.flatnonzero(online)[:1]
    mean, variance = initial_gp.predict(model.scaling.transform(rows["regressor"].values[first]))
    assert result["mean"].values[first] == pytest.approx(mean + model.mean.value, rel=1e-12)
    assert result["variance"].values[first] == pytest.approx(variance, rel=1e-9)


def test_counts_follow_from_the_record(result, summary):
    initial, online, after = phases(result)
    inserted, accepted, slot = (result[name].values[online] for name in ("inserted", "accepted", "slot"))
    assert summary["n_seen"] == online.sum()
    assert summary["n_initial"] == initial.sum() == N_INITIAL
    assert summary["n_inserted"] == inserted.sum()
    assert summary["n_accepted"] == accepted.sum()
    assert summary["n_revised"] == (slot >= 0).sum()
    assert summary["n_points"] == result["n_points"].values[online][-1] <= BUDGET
    assert 0 < summary["n_revised"] <= summary["n_accepted"] <= summary["n_inserted"] <= summary["n_seen"]
    assert (result["removed"].values[online] >= 0).any(), "the run is too short to replace a point"
    assert not result["inserted"].values[initial | after].any()
    assert (result["slot"].values[initial | after] == -1).all()
    assert initial.sum() + online.sum() + after.sum() == result.sizes["sample"]


def test_dictionary_of_the_model_follows_from_the_record(finished, result):
    """Slot by slot: the initial samples, then whatever the record says took a place."""
    rows, model = data_of(finished, "narx"), Model.load(finished / "model.nc")
    initial, online, _ = phases(result)
    places = dict(enumerate(np.flatnonzero(initial)))
    for k in np.flatnonzero(online):
        slot, removed = int(result["slot"][k]), int(result["removed"][k])
        assert (slot >= 0) == bool(result["accepted"][k])
        if slot < 0:
            assert removed == -1
            continue
        assert removed in (-1, slot)
        assert (removed >= 0) == (slot in places)
        places[slot] = k
        assert len(places) == result["n_points"][k]
    samples = np.array([places[slot] for slot in range(len(places))])
    inputs = model.scaling.transform(rows["regressor"].values[samples])
    np.testing.assert_array_equal(model.gp.inputs, inputs)
    np.testing.assert_array_equal(model.gp.targets, rows["target"].values[samples] - model.mean.value)


def test_stored_model_equals_a_gp_factorised_from_its_points(finished):
    gp, rng = Model.load(finished / "model.nc").gp, np.random.default_rng(0)
    x = rng.normal(size=(30, gp.n_features))
    ky = gp.kernel(gp.inputs, gp.inputs) + gp.noise_variance * np.eye(gp.n_points)
    k = gp.kernel(x, gp.inputs)
    mean, variance = gp.predict(x)
    np.testing.assert_allclose(mean, k @ np.linalg.solve(ky, gp.targets), rtol=1e-6, atol=1e-9)
    reduced = gp.kernel.variance - np.einsum("ij,ji->i", k, np.linalg.solve(ky, k.T))
    np.testing.assert_allclose(variance, reduced, rtol=1e-5, atol=1e-9 * gp.kernel.variance)


def test_hyperparameters_are_in_the_units_of_the_data(finished, summary):
    model = Model.load(finished / "model.nc")
    kernel = summary["hyperparameters"]["kernel"]
    assert list(kernel["length_scales"]) == list(model.narx.feature_names)
    scales = np.array(list(kernel["length_scales"].values()))
    x = np.random.default_rng(1).normal(size=(20, 9)) * model.scaling.scale + model.scaling.offset
    stored = model.scaling.inverse(model.gp.inputs)
    own = OnlineGP(
        SquaredExponential(kernel["variance"], scales),
        noise_variance=summary["hyperparameters"]["noise_variance"],
        budget=model.gp.budget,
    ).fit(stored, model.gp.targets)
    mean, variance = own.predict(x)
    np.testing.assert_allclose(model.predict(x).mean, mean + model.mean.value, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.predict(x).variance, variance, rtol=1e-5, atol=1e-8)


def test_hyperparameters_never_saw_more_than_the_initial_samples(finished):
    model, rows = Model.load(finished / "model.nc"), data_of(finished, "narx")
    first = rows["regressor"].values[:N_INITIAL]
    np.testing.assert_allclose(model.scaling.offset, first.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.scaling.scale, first.std(axis=0), rtol=1e-12)
    assert model.mean.value == pytest.approx(rows["target"].values[:N_INITIAL].mean(), rel=1e-12)


def test_insertion_threshold_is_in_kelvin_whatever_is_scaled(result):
    _, online, _ = phases(result)
    error = np.abs(result["target"] - result["mean"]).values[online]
    np.testing.assert_array_equal(result["inserted"].values[online], error >= 0.02)
    assert result["target"].attrs["units"] == "K"


def test_variance_threshold_is_in_kelvin_squared(tmp_path):
    short = [override for override in SHORT if "error_threshold" not in override]
    folder = execute(tmp_path, *short, "insertion=variance", "insertion.variance_threshold=0.002")
    result = data_of(folder, "result")
    _, online, _ = phases(result)
    inserted = result["inserted"].values[online]
    np.testing.assert_array_equal(inserted, result["variance"].values[online] > 0.002)
    assert 0 < inserted.sum() < len(inserted)


def test_half_of_the_run_is_identified_and_the_record_is_complete(finished, result):
    trajectory = data_of(finished, "trajectory")
    _, _, after = phases(result)
    half = DAYS * 86400.0 / 2
    assert trajectory["time"].values[-1] == DAYS * 86400.0
    assert result["time"].values[~after][-1] == half
    assert result["time"].values[after][0] == half + 900.0
    np.testing.assert_array_equal(result["time"], trajectory["time"].values[3:])
    zone = trajectory["zone_temperature"].values
    np.testing.assert_array_equal(result["previous"], zone[2:-1])
    np.testing.assert_array_equal(result["target"], zone[3:] - zone[2:-1])


def test_live_regressor_equals_the_stored_lag_data_set(finished):
    trajectory, rows = data_of(finished, "trajectory"), data_of(finished, "narx")
    narx = Narx.from_dict(json.loads(rows.attrs["narx"]))
    window = LagWindow(narx)
    outputs = np.stack([trajectory[name].values for name in narx.output_names], axis=1)
    inputs = np.stack([trajectory[name].values for name in narx.input_names], axis=1)
    pairs = [window.observe(y, u) for y, u in zip(outputs, inputs, strict=True)]
    pairs = [pair for pair in pairs if pair is not None]
    np.testing.assert_array_equal([pair.regressor for pair in pairs], rows["regressor"])
    np.testing.assert_array_equal([pair.target for pair in pairs], rows["target"])
    assert rows["feature"].values.tolist() == list(narx.feature_names)


def test_plant_stays_under_control(finished):
    """The zone follows its set-point by day and the valve keeps its limits."""
    trajectory = data_of(finished, "trajectory")
    flow = trajectory["mass_flow"].values
    assert flow.min() >= 0.0
    assert flow.max() <= 0.1
    settled = trajectory["time"].values > 86400.0
    hour = trajectory["time"].values % 86400.0 / 3600.0
    noon = settled & (hour > 12) & (hour < 20) & (trajectory["set_point"].values > 20)
    assert np.abs((trajectory["zone_temperature"] - trajectory["set_point"]).values[noon]).mean() < 1.0


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(finished, tmp_path):
    again = execute(tmp_path / "again", *SHORT)
    other = execute(tmp_path / "other", *SHORT, "seed=1")
    for kind in DATA:
        assert bits(data_of(again, kind)) == bits(data_of(finished, kind)), kind
        assert bits(data_of(other, kind)) != bits(data_of(finished, kind)), kind
    kept = [{k: v for k, v in summary_of(f).items() if k != "times"} for f in (again, finished)]
    assert kept[0] == kept[1]


def test_seed_moves_noise_and_weather_apart(finished, tmp_path):
    other = data_of(execute(tmp_path, *SHORT, "seed=1"), "trajectory")
    one = data_of(finished, "trajectory")
    for name in ("zone_noise", "ambient_temperature"):
        assert not np.any(one[name].values[:-1] == other[name].values[:-1]), name


def test_a_longer_run_begins_with_the_shorter_one(finished, tmp_path):
    longer = [override.replace(f"duration={DAYS}d", f"duration={2 * DAYS}d") for override in SHORT]
    one, two = data_of(finished, "trajectory"), data_of(execute(tmp_path, *longer), "trajectory")
    n = one.sizes["time"]
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name].values[:n])


def test_later_weather_does_not_change_what_was_identified(tmp_path):
    hours = np.arange(24 * DAYS + 48)
    weather = 5.0 - 5.0 * np.cos(2 * np.pi * hours / 24)
    results = []
    for name, later in (("same", 0.0), ("other", -15.0)):
        changed = weather + later * (hours > 12 * DAYS)
        path = tmp_path / f"{name}.csv"
        path.write_text("temp_air\n" + "\n".join(map(repr, changed.tolist())) + "\n")
        folder = execute(tmp_path / name, *SHORT, "weather=measured", f"weather.path={path}")
        results.append(folder)
    same, other = (data_of(folder, "result") for folder in results)
    _, _, after = phases(same)
    for name in same.data_vars:
        np.testing.assert_array_equal(same[name].values[~after], other[name].values[~after], err_msg=name)
    assert not np.array_equal(same["mean"].values[after], other["mean"].values[after])
    assert bits(data_of(results[0], "model")) == bits(data_of(results[1], "model"))


def test_measured_weather_is_what_the_building_feels(measured_weather, tmp_path):
    folder = execute(tmp_path, *SHORT, "weather=measured", f"weather.path={measured_weather}")
    lines = measured_weather.read_text().splitlines()
    ambient = data_of(folder, "trajectory")["ambient_temperature"].values[::4]
    column = next(i for i, name in enumerate(lines[0].split(",")) if "temp" in name.lower())
    expected = [float(line.split(",")[column]) for line in lines[1 : 1 + len(ambient)]]
    np.testing.assert_allclose(ambient, expected, atol=1e-9)
    assert np.isfinite(summary_of(folder)["smse"])
