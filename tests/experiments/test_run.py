"""A short run from end to end: what is in its folder, and whether the numbers say what the files say."""

import json
import logging
from types import SimpleNamespace

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

from experiments import identification
from sysid import MaximumAPosteriori, Model, OnlineGP, store

PROMISED = {
    *("smse", "smse_initial", "smse_no_change", "smse_stream", "mean_variance", "coverage_95", "nlpd"),
    *("n_seen", "n_inserted", "n_accepted", "n_revised", "n_points", "hyperparameters", "repairs", "times"),
}


def smse(target, mean):
    return np.mean((target - mean) ** 2) / np.var(target)


@pytest.fixture(scope="module")
def found(finished):
    """What the files of the run hold."""
    rows, result, model = data_of(finished, "narx"), data_of(finished, "result"), Model.load(finished / "model.nc")
    initial, online, after = phases(result)
    y, x = rows["target"].values, rows["regressor"].values
    return SimpleNamespace(
        folder=finished,
        summary=summary_of(finished),
        trajectory=data_of(finished, "trajectory"),
        **{"rows": rows, "result": result, "model": model, "initial": initial, "online": online, "after": after},
        **{"target": y, "regressor": x},
        **{name: result[name].values for name in ("mean", "variance", "inserted", "accepted", "slot", "removed")},
    )


def test_folder_holds_the_promised_files_with_their_schema_and_origin(found):
    files = {f"{kind}.nc" for kind in DATA} | {f"{name}.png" for name in FIGURES} | {"summary.json"}
    assert {path.name for path in found.folder.iterdir()} == files
    expected = OmegaConf.to_container(configured(*SHORT, "figures=true"), resolve=True)
    own_units = {"phase", "acceptance_score", "acceptance_minimum", "reduction_score"}  # flags; the criterion's own
    for kind in DATA:
        dataset = store.read(found.folder / f"{kind}.nc", kind=kind)
        attributes = dataset.attrs
        assert (attributes["schema_version"], attributes["seed"], attributes["partial"]) == (store.SCHEMA_VERSION, 0, 0)
        assert {"creation_time", "package_versions", "timings", "Conventions"} <= attributes.keys()
        assert OmegaConf.to_container(OmegaConf.create(attributes["configuration"])) == expected
        assert all(variable.attrs.get("long_name") for variable in dataset.data_vars.values())
        if kind in ("trajectory", "result"):
            assert all("units" in v.attrs for name, v in dataset.data_vars.items() if name not in own_units)
    for name in FIGURES:
        picture = imread(found.folder / f"{name}.png")[..., :3]
        assert picture.shape[1] == 1260, "nine inches wide"
        assert 0.002 < np.mean(np.any(picture < 0.9, axis=-1)) < 0.9


def test_scores_follow_from_the_record(found):
    text = (found.folder / "summary.json").read_text()
    json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    assert all(np.isfinite(found.summary[key]) for key in PROMISED - {"hyperparameters", "repairs", "times"})
    assert found.summary["partial"] is False
    y, mean, variance = (found.result[name].values[found.after] for name in ("target", "mean", "variance"))
    predictive = norm(mean, np.sqrt(variance + found.model.gp.noise_variance))
    low, high = predictive.interval(0.95)
    expected = {
        "smse": smse(y, mean),
        "smse_no_change": smse(y, 0.0),
        "smse_stream": smse(found.target[found.online], found.mean[found.online]),
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "mean_variance": variance.mean(),
        "coverage_95": np.mean((low <= y) & (y <= high)),
        "nlpd": -predictive.logpdf(y).mean(),
        "n_validation": found.after.sum(),
    }
    assert {key: found.summary[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def trained_noise(found):
    """Noise variance that the training finds in the initial samples, before the errors scale it."""
    x, y = found.model.scaling.transform(found.regressor[found.initial]), found.target[found.initial]
    return MaximumAPosteriori().train(x, y - found.model.mean.value, seed=0).noise_variance


def test_record_is_what_the_final_and_the_initial_model_predict(found):
    """The initial one from the hyper-parameters of the model and the lag data set alone."""
    model, x, y = found.model, found.regressor, found.target
    predicted = model.predict(x[found.after])
    np.testing.assert_array_equal(found.mean[found.after], predicted.mean)
    np.testing.assert_array_equal(found.variance[found.after], predicted.variance)
    settings = {name: getattr(model.gp, name) for name in ("noise_variance", "budget", "reduction", "learning")}
    initial = OnlineGP(model.gp.kernel, **settings)
    initial.fit(model.scaling.transform(x[found.initial]), y[found.initial] - model.mean.value)
    mean, variance = initial.predict(model.scaling.transform(x))
    after, first = found.after, np.flatnonzero(found.online)[0]
    assert found.summary["smse_initial"] == pytest.approx(smse(y[after], mean[after] + model.mean.value), rel=1e-9)
    assert found.mean[first] == pytest.approx(mean[first] + model.mean.value, rel=1e-9)
    scale = model.gp.noise_variance / trained_noise(found)  # by which all variances have followed the errors since
    assert found.variance[first] == pytest.approx(variance[first] / scale, rel=1e-6)


def test_counts_follow_from_the_record(found):
    summary, rest = found.summary, found.initial | found.after
    inserted, accepted, slot = (values[found.online] for values in (found.inserted, found.accepted, found.slot))
    assert summary["n_seen"] == found.online.sum()
    assert summary["n_initial"] == found.initial.sum() == N_INITIAL
    assert summary["n_inserted"] == inserted.sum()
    assert summary["n_accepted"] == accepted.sum()
    assert summary["n_turned_away"] == (inserted & ~accepted).sum() > 0
    assert summary["n_revised"] == (slot >= 0).sum()
    assert summary["n_points"] == found.result["n_points"].values[found.online][-1] <= BUDGET
    assert 0 < summary["n_revised"] <= summary["n_accepted"] <= summary["n_inserted"] <= summary["n_seen"]
    assert (found.removed[found.online] >= 0).any(), "the run is too short to replace a point"
    assert not found.inserted[rest].any()
    assert (found.slot[rest] == -1).all()
    error = np.abs(found.target - found.mean)[found.online]
    np.testing.assert_array_equal(inserted, error >= 0.02)
    assert found.result["target"].attrs["units"] == "K"


def test_dictionary_of_the_model_follows_from_the_record(found):
    """Slot by slot: the initial samples, then whatever the record says took a place."""
    places = dict(enumerate(np.flatnonzero(found.initial)))
    for k in np.flatnonzero(found.online):
        slot, removed = int(found.slot[k]), int(found.removed[k])
        assert (slot >= 0) == bool(found.accepted[k])
        assert removed == (slot if slot in places and slot >= 0 else -1)
        if slot >= 0:
            places[slot] = k
            assert len(places) == found.result["n_points"][k]
    samples, model = np.array([places[slot] for slot in range(len(places))]), found.model
    np.testing.assert_array_equal(model.gp.inputs, model.scaling.transform(found.regressor[samples]))
    np.testing.assert_array_equal(model.gp.targets, found.target[samples] - model.mean.value)


def test_hyperparameters_are_in_the_units_of_the_data_and_saw_only_the_initial_samples(found):
    model, kernel = found.model, found.summary["hyperparameters"]["kernel"]
    first = found.regressor[:N_INITIAL]
    np.testing.assert_allclose(model.scaling.offset, first.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.scaling.scale, first.std(axis=0), rtol=1e-12)
    assert model.mean.value == pytest.approx(found.target[:N_INITIAL].mean(), rel=1e-12)
    scales = kernel["length_scales"]
    assert list(scales) == list(model.narx.feature_names)
    own = np.array(model.gp.kernel.length_scales) * model.scaling.scale
    np.testing.assert_allclose(list(scales.values()), own, rtol=1e-12)


def test_half_of_the_run_is_identified_and_the_record_is_complete(found):
    trajectory, result, half = found.trajectory, found.result, DAYS * 86400.0 / 2
    assert trajectory["time"].values[-1] == 2 * half
    assert result["time"].values[~found.after][-1] == half
    assert result["time"].values[found.after][0] == half + 900.0
    np.testing.assert_array_equal(result["time"], trajectory["time"].values[3:])
    np.testing.assert_array_equal(trajectory["part"], trajectory["time"].values > half)
    zone = trajectory["zone_temperature"].values
    np.testing.assert_array_equal(result["previous"], zone[2:-1])
    np.testing.assert_array_equal(result["target"], zone[3:] - zone[2:-1])
    assert not result["unchanged"].any()
    origin, known = found.model.origin, zone[3:][~found.after]
    assert (origin.n_samples, origin.sampling_time) == (len(known), 900.0)
    assert origin.output_range == (known.min(), known.max())
    attributes = data_of(found.folder, "model").attrs
    assert attributes["target_unit"] == "K"
    assert json.loads(attributes["feature_units"]) == ["degC"] * 6 + ["kg/s"] * 3


def test_same_seed_gives_the_same_bits_and_another_seed_other_ones(found, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO")
    original, measured = identification.summarise, {}
    monkeypatch.setattr(identification, "summarise", lambda *given: measured.update(given[2]) or original(*given))
    (again := tmp_path / "again").mkdir()
    assert identification.run(configured(*SHORT), again) == found.summary["smse"]
    seconds = summary_of(again)["times"]
    assert seconds["loop"] + seconds["training"] == pytest.approx(measured["loop"], rel=1e-9)
    assert not list(again.glob("*.png"))
    text = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("experiments"))
    assert 3 <= len(text.splitlines()) <= 8
    for expected in (f"{found.summary['smse']:.3g}", str(found.summary["n_inserted"]), str(again)):
        assert expected in text
    other = execute(tmp_path / "other", *SHORT, "seed=1")
    for kind in DATA:
        assert bits(data_of(again, kind)) == bits(data_of(found.folder, kind)), kind
        assert bits(data_of(other, kind)) != bits(data_of(found.folder, kind)), kind
    kept = [{k: v for k, v in summary_of(f).items() if k != "times"} for f in (again, found.folder)]
    assert kept[0] == kept[1]
    for name in ("zone_noise", "ambient_temperature"):
        moved = data_of(other, "trajectory")[name].values[:-1]
        assert not np.any(moved == found.trajectory[name].values[:-1]), name


def test_hyperparameters_that_follow_the_stream_are_told(found, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    eager = ("training=adaptive", "training.interval=10", "training.significance=0.2", "learning=stored")
    folder = execute(tmp_path, *SHORT, *eager)
    result, summary, model = data_of(folder, "result"), summary_of(folder), Model.load(folder / "model.nc")
    assert result.sizes["estimate"] == summary["n_estimates"] > 0
    at = result["estimate_sample"].values
    assert phases(result)[1][at].all()
    assert ((at + 1 - N_INITIAL) % 10 == 0).all()
    np.testing.assert_array_equal(result["estimate_time"].values, result["time"].values[at])
    told = summary["hyperparameters"]
    assert model.gp.noise_variance == result["estimate_noise_variance"].values[-1] == told["noise_variance"]
    scales = told["kernel"]["length_scales"]
    np.testing.assert_allclose(result["estimate_length_scale"].values[-1], list(scales.values()), rtol=1e-12)
    assert list(scales) == result["feature"].values.tolist()
    assert summary["times"]["adaptation"] == pytest.approx(sum(json.loads(result.attrs["estimate_seconds"])))
    (line,) = [record.message for record in caplog.records if "estimated anew" in record.message]
    assert f"anew {summary['n_estimates']} times" in line
    first, n = int(at[0]), int(result["estimate_n_errors"][0])  # errors so far, by the noise of the training
    assert n == min(first + 1 - N_INITIAL, 100)
    window = slice(first + 1 - n, first + 1)
    squares = (result["target"] - result["mean"]).values[window] ** 2
    ours = squares / (result["variance"].values[window] + trained_noise(found))
    assert result["estimate_statistic"].values[0] == pytest.approx(ours.mean(), rel=1e-9)
    assert found.summary["n_estimates"] == 0
    assert "adaptation" not in found.summary["times"]
    assert not [name for name in found.result.variables if name.startswith("estimate")]
