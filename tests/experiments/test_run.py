"""A run from end to end: numbers that follow from its files, ends that come early, quality over
five seeds.
"""

import errno
import json
import logging
import os
import resource
import runpy
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread
from omegaconf import OmegaConf

import helpers.commands as commands
from experiments.cli.ends import Stopped
from experiments.drawing import style
from experiments.export import run as export
from experiments.files.job_file import JOB_FILE, SUMMARY_NUMBERS, SUMMARY_VARIABLES, read_summary
from experiments.identify import run as identification
from experiments.identify.summary import _describe_training, _quality_warnings
from experiments.validate import run as validation
from helpers.commands import (
    BUDGET,
    DATA_FILES,
    DAYS,
    N_INITIAL,
    SHORT_RUN,
    bytes_of_variables,
    compose_configuration,
    list_files,
    load_dataset,
    load_summary,
    phase_masks,
    run_identify,
)
from helpers.naive_arx import naive_arx
from helpers.records import BOTH_OUTPUTS, ONE_OUTPUT, coupled_signals
from sysid import JointModel, MaximumAPosteriori, Model, OnlineGP, store, validate
from sysid import standardised_mean_squared_error as smse

FIGURES = ("signals", "prediction", "dictionary", "error")
PROMISED = {
    *(
        "smse",
        "smse_initial",
        "smse_no_change",
        "smse_stream",
        "mean_variance",
        "coverage_95",
        "nlpd",
    ),
    *(
        "n_seen",
        "n_inserted",
        "n_accepted",
        "n_revised",
        "n_points",
        "hyperparameters",
        "repairs",
        "times",
    ),
}


@pytest.fixture(scope="module")
def found(finished):
    """What the files of the run hold."""
    rows = load_dataset(finished, "narx")
    result = load_dataset(finished, "result")
    model = Model.load(finished / "model.nc")
    initial, online, after = phase_masks(result)
    y = rows["target"].values
    x = rows["regressor"].values
    return SimpleNamespace(
        folder=finished,
        summary=load_summary(finished),
        trajectory=load_dataset(finished, "trajectory"),
        **{
            "rows": rows,
            "result": result,
            "model": model,
            "initial": initial,
            "online": online,
            "after": after,
        },
        **{"target": y, "regressor": x},
        **{
            name: result[name].values
            for name in ("mean", "variance", "inserted", "accepted", "slot", "removed")
        },
    )


def test_folder_holds_the_promised_files_with_their_schema_and_origin(found):
    files = (
        {f"{kind}.nc" for kind in DATA_FILES}
        | {f"{name}.png" for name in FIGURES}
        | {"summary.json"}
    )
    assert {path.name for path in found.folder.iterdir()} == files
    expected = OmegaConf.to_container(
        compose_configuration(*SHORT_RUN, "figures=true"), resolve=True
    )
    for kind in DATA_FILES:
        dataset = store.read(found.folder / f"{kind}.nc", kind=kind)
        attributes = dataset.attrs
        assert (
            attributes["schema_version"],
            attributes["seed"],
            attributes["partial"],
        ) == (store.SCHEMA_VERSION, 0, 0)
        assert {
            "creation_time",
            "package_versions",
            "timings",
            "Conventions",
        } <= attributes.keys()
        assert OmegaConf.to_container(OmegaConf.create(attributes["configuration"])) == expected
    for name in FIGURES:
        assert 0.002 < np.mean(imread(found.folder / f"{name}.png")[..., :3] < 0.9) < 0.9


def test_scores_follow_from_the_record(found):
    text = (found.folder / "summary.json").read_text()
    json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    assert all(
        np.isfinite(found.summary[key])
        for key in PROMISED - {"hyperparameters", "repairs", "times"}
    )
    assert found.summary["partial"] is False
    y, mean, variance = (
        found.result[name].values[found.after] for name in ("target", "mean", "variance")
    )
    final = validate(y, mean, variance, found.model.gp.noise_variance)
    expected = {
        **{name: getattr(final, name) for name in ("smse", "rmse", "coverage_95", "nlpd")},
        "smse_no_change": smse(y, 0.0),
        "smse_stream": smse(found.target[found.online], found.mean[found.online]),
        "mean_variance": variance.mean(),
        "n_validation": found.after.sum(),
    }
    assert {key: found.summary[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def trained(found):
    """Initial samples (n, p), (n,), scaled, and what the training finds in them."""
    x = found.regressor[found.initial]
    y = found.target[found.initial]
    samples = found.model.scaling.transform(x), y - found.model.mean.value
    return samples, MaximumAPosteriori().train(*samples, seed=0)


def test_record_is_what_the_final_and_the_initial_model_predict(found):
    """The initial one from the lag data set and the scales of the model alone."""
    model = found.model
    x = found.regressor
    y = found.target
    predicted = model.predict(x[found.after])
    np.testing.assert_array_equal(found.mean[found.after], predicted.mean)
    np.testing.assert_array_equal(found.variance[found.after], predicted.variance)
    samples, start = trained(found)
    settings = {name: getattr(model.gp, name) for name in ("budget", "reduction", "learning")}
    initial = OnlineGP(start.kernel, noise_variance=start.noise_variance, **settings).fit(*samples)
    mean, variance = initial.predict(model.scaling.transform(x))
    after = found.after
    first = np.flatnonzero(found.online)[0]
    assert found.summary["smse_initial"] == pytest.approx(
        smse(y[after], mean[after] + model.mean.value), rel=1e-9
    )
    assert found.mean[first] == pytest.approx(mean[first] + model.mean.value, rel=1e-9)
    assert found.variance[first] == pytest.approx(variance[first], rel=1e-6)


def test_counts_follow_from_the_record(found):
    summary = found.summary
    inserted, accepted, slot = (
        values[found.online] for values in (found.inserted, found.accepted, found.slot)
    )
    assert summary["n_seen"] == found.online.sum()
    assert summary["n_initial"] == found.initial.sum() == N_INITIAL
    assert summary["n_inserted"] == inserted.sum()
    assert summary["n_accepted"] == accepted.sum()
    assert summary["n_turned_away"] == (inserted & ~accepted).sum() > 0
    assert summary["n_revised"] == (slot >= 0).sum()
    assert summary["n_points"] == found.result["n_points"].values[found.online][-1] <= BUDGET
    assert (
        0
        < summary["n_revised"]
        <= summary["n_accepted"]
        <= summary["n_inserted"]
        <= summary["n_seen"]
    )
    assert (found.removed[found.online] >= 0).any(), "the run is too short to replace a point"
    error = np.abs(found.target - found.mean)[found.online]
    np.testing.assert_array_equal(inserted, error >= 0.02)


def test_dictionary_of_the_model_follows_from_the_record(found):
    """Slot by slot: the initial samples, then whatever the record says took a place."""
    places = dict(enumerate(np.flatnonzero(found.initial)))
    for k in np.flatnonzero(found.online):
        slot = int(found.slot[k])
        removed = int(found.removed[k])
        assert (slot >= 0) == bool(found.accepted[k])
        assert removed == (slot if slot in places and slot >= 0 else -1)
        if slot >= 0:
            places[slot] = k
            assert len(places) == found.result["n_points"][k]
    samples = np.array([places[slot] for slot in range(len(places))])
    model = found.model
    np.testing.assert_array_equal(
        model.gp.inputs, model.scaling.transform(found.regressor[samples])
    )
    np.testing.assert_array_equal(model.gp.targets, found.target[samples] - model.mean.value)


def test_hyperparameters_are_in_the_units_of_the_data_and_saw_only_the_initial_samples(
    found,
):
    model = found.model
    kernel = found.summary["hyperparameters"]["kernel"]
    first = found.regressor[:N_INITIAL]
    np.testing.assert_allclose(model.scaling.offset, first.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.scaling.scale, first.std(axis=0), rtol=1e-12)
    assert model.mean.value == pytest.approx(found.target[:N_INITIAL].mean(), rel=1e-12)
    scales = kernel["length_scales"]
    assert list(scales) == list(model.narx.feature_names)
    own = np.array(model.gp.kernel.length_scales) * model.scaling.scale
    np.testing.assert_allclose(list(scales.values()), own, rtol=1e-12)


def test_half_of_the_run_is_identified_and_the_record_is_complete(found):
    trajectory = found.trajectory
    result = found.result
    half = DAYS * 86400.0 / 2
    assert result["time"].values[~found.after][-1] == half
    assert result["time"].values[found.after][0] == half + 900.0
    np.testing.assert_array_equal(result["time"], trajectory["time"].values[3:])
    np.testing.assert_array_equal(trajectory["part"], trajectory["time"].values > half)
    zone = trajectory["zone_temperature"].values
    np.testing.assert_array_equal(result["previous"], zone[2:-1])
    np.testing.assert_array_equal(result["target"], zone[3:] - zone[2:-1])
    origin = found.model.origin
    known = zone[3:][~found.after]
    assert (origin.n_samples, origin.sampling_time) == (len(known), 900.0)
    assert origin.output_range == (known.min(), known.max())
    attributes = load_dataset(found.folder, "model").attrs
    assert attributes["target_unit"] == "K"
    assert json.loads(attributes["feature_units"]) == ["degC"] * 6 + ["kg/s"] * 3


def test_same_seed_gives_the_same_bits_and_another_seed_other_ones(
    found, tmp_path, caplog, monkeypatch
):
    caplog.set_level("INFO")
    original = identification.summarise
    measured = {}
    monkeypatch.setattr(
        identification,
        "summarise",
        lambda *given: measured.update(given[2]) or original(*given),
    )
    (again := tmp_path / "again").mkdir()
    assert identification.run(compose_configuration(*SHORT_RUN), again) == found.summary["smse"]
    seconds = load_summary(again)["times"]
    assert seconds["loop"] + seconds["training"] == pytest.approx(measured["loop"], rel=1e-9)
    assert not list(again.glob("*.png"))
    text = "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith("experiments")
    )
    told = (
        f"{found.summary['smse']:.3g}",
        str(found.summary["n_inserted"]),
        str(again),
    )
    assert all(words in text for words in told)
    other = run_identify(tmp_path / "other", *SHORT_RUN, "seed=1")
    for kind in DATA_FILES:
        assert bytes_of_variables(load_dataset(again, kind)) == bytes_of_variables(
            load_dataset(found.folder, kind)
        ), kind
        assert bytes_of_variables(load_dataset(other, kind)) != bytes_of_variables(
            load_dataset(found.folder, kind)
        ), kind
    kept = [
        {k: v for k, v in load_summary(f).items() if k != "times"} for f in (again, found.folder)
    ]
    assert kept[0] == kept[1]


def test_hyperparameters_that_follow_the_stream_are_told(found, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    eager = (
        "training=adaptive",
        "training.interval=10",
        "training.significance=0.2",
        "learning=stored",
    )
    folder = run_identify(tmp_path, *SHORT_RUN, *eager)
    result = load_dataset(folder, "result")
    summary = load_summary(folder)
    model = Model.load(folder / "model.nc")
    assert result.sizes["estimate"] == summary["n_estimates"] > 0
    at = result["estimate_sample"].values
    assert phase_masks(result)[1][at].all()
    assert ((at + 1 - N_INITIAL) % 10 == 0).all()
    np.testing.assert_array_equal(result["estimate_time"].values, result["time"].values[at])
    told = summary["hyperparameters"]
    assert (
        model.gp.noise_variance
        == result["estimate_noise_variance"].values[-1]
        == told["noise_variance"]
    )
    scales = told["kernel"]["length_scales"]
    np.testing.assert_allclose(
        result["estimate_length_scale"].values[-1], list(scales.values()), rtol=1e-12
    )
    assert list(scales) == result["feature"].values.tolist()
    assert summary["times"]["adaptation"] == pytest.approx(
        sum(json.loads(result.attrs["estimate_seconds"]))
    )
    (line,) = [record.message for record in caplog.records if "estimated again" in record.message]
    assert f"again {summary['n_estimates']} times" in line
    # errors so far, by the noise of the training
    first = int(at[0])
    n = int(result["estimate_n_errors"][0])
    assert n == min(first + 1 - N_INITIAL, 100)
    window = slice(first + 1 - n, first + 1)
    squares = (result["target"] - result["mean"]).values[window] ** 2
    ours = squares / (result["variance"].values[window] + trained(found)[1].noise_variance)
    assert result["estimate_statistic"].values[0] == pytest.approx(ours.mean(), rel=1e-9)


# --- runs that end early, disks that are full

ENDS = {"initial": 10, "online": 60, "validation": 24 * 4 * DAYS // 2 + 30}  # samples


@pytest.mark.parametrize(
    ("phase", "error"),
    [
        ("initial", KeyboardInterrupt()),
        ("online", KeyboardInterrupt()),
        ("online", np.linalg.LinAlgError("not positive definite")),
        ("validation", ArithmeticError("the plant exploded")),
    ],
    ids=repr,
)
def test_a_run_that_ends_early_is_the_beginning_of_the_whole_one(
    phase, error, finished, monkeypatch, tmp_path
):
    original = identification.live_source

    def source(config):
        live = original(config)
        live.simulation.samples = commands.fail_after(live.simulation.samples, ENDS[phase], error)
        return live

    monkeypatch.setattr(identification, "live_source", source)
    error.__traceback__ = None
    with pytest.raises((Stopped, type(error))) as caught:
        run_identify(tmp_path, *SHORT_RUN)
    interrupt = isinstance(error, KeyboardInterrupt)
    assert getattr(caught.value, "exit_code", None) == (130 if interrupt else None), (
        "a bug keeps its traceback"
    )
    summary = load_summary(tmp_path)
    part = load_dataset(tmp_path, "result")
    whole = load_dataset(finished, "result")
    initial, online, after = (int(mask.sum()) for mask in phase_masks(part))
    assert (initial, online, after) == (
        summary["n_initial"],
        summary["n_seen"],
        summary["n_validation"],
    )
    assert initial + online + after == ENDS[phase] - 3
    assert load_dataset(tmp_path, "trajectory").sizes["time"] == ENDS[phase]
    assert (online > 0, after > 0) == (phase != "initial", phase == "validation")
    assert (summary["smse"] is None) == (phase != "validation")
    names = set(DATA_FILES) - ({"model"} if phase == "initial" else set())
    assert {path.stem for path in tmp_path.glob("*.nc")} == names
    assert all(load_dataset(tmp_path, name).attrs["partial"] == 1 for name in names)
    for name in part.data_vars:
        np.testing.assert_array_equal(part[name], whole[name].values[: len(part[name])])


def test_files_that_cannot_be_written_are_named_and_lose_nothing_else(finished, tmp_path):
    """Files may not grow beyond a limit that the summary, the model and the figures keep."""
    longer = (*SHORT_RUN, f"duration={8 * DAYS}d")
    sizes = {
        path.name: path.stat().st_size
        for path in run_identify(tmp_path / "free", *longer).iterdir()
    }
    kept = {"summary.json", "model.nc"}
    lost = {"trajectory.nc", "narx.nc", "result.nc"}
    limit = (max(sizes[name] for name in kept) + min(sizes[name] for name in lost)) // 2
    assert max(sizes[name] for name in kept) < limit < min(sizes[name] for name in lost), sizes
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(store.StoreError, match="File too large") as caught:
            run_identify(tmp_path / "full", *longer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert all(str(tmp_path / "full" / name) in str(caught.value) for name in lost)
    assert {path.name for path in (tmp_path / "full").iterdir()} == kept
    assert Model.load(tmp_path / "full" / "model.nc").gp.n_points == 60
    assert load_summary(tmp_path / "full")["partial"] is False
    with pytest.raises(store.StoreError) as caught:  # a folder that vanishes
        identification.run(compose_configuration(*SHORT_RUN), tmp_path / "gone")
    for name in ("summary.json", *(f"{kind}.nc" for kind in DATA_FILES)):
        assert str(tmp_path / "gone" / name) in str(caught.value)


@pytest.mark.parametrize("fails", [False, True])
def test_a_second_process_draws_half_of_the_figures_and_this_one_what_it_could_not(
    fails, tmp_path, monkeypatch
):
    own = os.getpid()

    def png(figure):
        assert os.getpid() == own or not fails
        return str(os.getpid()).encode()

    monkeypatch.setattr(style, "png", png)
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    drawn = [
        int(path.read_text()) == own
        for path in run_identify(tmp_path, *SHORT_RUN, "figures=true").glob("*.png")
    ]
    assert sorted(drawn) == ([True] * 4 if fails else [False, False, True, True])


def test_a_bad_model_is_called_bad():
    poor = "no better than no change"
    band = "the 95 % band covers "
    cases = [
        (0.3, 0.95, []),
        (0.3, 0.6, [f"{band}60.0 %"]),
        (0.99, 1.0, [poor, f"{band}100.0 %"]),
    ]
    for score, coverage, expected in cases:
        summary = {"smse": score, "smse_no_change": 1.0, "coverage_95": coverage}
        assert all(
            words in line for words, line in zip(expected, _quality_warnings(summary), strict=True)
        )
    assert [
        "n_initial" in _quality_warnings(summary, is_stream=one)[0] for one in (True, False)
    ] == [True, False]


def test_what_a_training_did_not_simulate_is_not_called_divergent():
    tried = [{"route": "A", "held_out_rmse": None, "refusal": "A: the pole"}]
    tried += [
        {"route": "B", "held_out_rmse": value, "folds": [1.0], "refusal": ""}
        for value in (None, 0.5)
    ]
    summary = {
        "training": {"tried": tried},
        "times": {"loop": 1.0, "training": 0.0},
        "target_unit": "V",
    }
    source = SimpleNamespace(n_seen=1, activity="reading")
    result = SimpleNamespace(
        identification=SimpleNamespace(initial=None, model=None), source=source
    )
    error = "in free run on 1 held-out fold"
    expected = [
        "Tried A: not taken; the pole",
        f"Tried B: RMSE diverges {error}",
        f"Tried B: RMSE 0.5 V {error}",
    ]
    assert _describe_training(summary, result)[:3] == expected


# --- quality over five seeds

SEEDS = range(5)
FULL = 2000  # points of the full GP


def full_smse(folder):
    """SMSE of a GP on spread points of the identified part, same hyper-parameters."""
    model = Model.load(folder / "model.nc")
    rows = load_dataset(folder, "narx")
    initial, online, after = phase_masks(load_dataset(folder, "result"))
    chosen = np.linspace(0, (initial | online).sum() - 1, FULL).astype(int)
    z = model.scaling.transform(rows["regressor"].values)
    y = rows["target"].values
    gp = OnlineGP(model.gp.kernel, noise_variance=model.gp.noise_variance, budget=FULL)
    gp.fit(z[chosen], y[chosen] - model.mean.value)
    mean = (
        gp.kernel(z[after], gp.inputs[gp.age_order]) @ gp.state()["weights"]
    )  # variances would cost most
    np.testing.assert_allclose(mean[:20], gp.predict(z[after][:20])[0], rtol=1e-6, atol=1e-8)
    return smse(y[after], mean + model.mean.value)


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    """Folders of the default year for every seed; 60 days without the compiler."""
    folder = tmp_path_factory.mktemp("years")
    return [run_identify(folder / str(seed), f"seed={seed}", "figures=false") for seed in SEEDS]


def median(years, key):
    return float(np.median([load_summary(folder)[key] for folder in years]))


@pytest.mark.slow
def test_medians_are_at_most_half_of_no_learning_close_to_a_full_gp_and_bands_are_honest(
    years,
):
    smse = median(years, "smse")
    assert smse <= 0.5 * min(median(years, "smse_no_change"), median(years, "smse_initial"))
    assert smse <= 1.3 * float(np.median([full_smse(folder) for folder in years]))
    assert 0.85 <= median(years, "coverage_95") <= 0.99


# --- files of one or several outputs: all, or one of a job with the same bits

LEAN = "outputs=lean"
VALIDATED = {"validation.json", "validation.nc"}


def timeless(summary, *more):
    return {key: value for key, value in summary.items() if key not in ("times", *more)}


def assert_same(folder, full, name=""):
    """Record and model of a job's file and of the full outputs: the same bits and attributes."""
    under = f"/{name}" * bool(name)
    record = load_dataset(folder, "job", f"record{under}")
    result = load_dataset(full / name, "result")
    assert bytes_of_variables(record) == bytes_of_variables(result)
    assert all(
        str(record[key].attrs) == str(variable.attrs) for key, variable in result.variables.items()
    )
    one = load_dataset(folder, "job", f"model{under}")
    other = load_dataset(full / name, "model")
    assert bytes_of_variables(one) == bytes_of_variables(other)
    for key in ("digest", "target_unit", "feature_units"):
        assert one.attrs[key] == other.attrs[key]


@pytest.fixture(scope="module")
def lean(tmp_path_factory):
    """Folder of the lean run that has the settings of the full one."""
    return run_identify(tmp_path_factory.mktemp("lean") / "run", *SHORT_RUN, "figures=true", LEAN)


def test_a_lean_run_is_one_file_with_the_bits_of_a_full_one(lean, finished):
    assert list_files(lean) == {JOB_FILE}
    assert_same(lean, finished)
    found = load_dataset(lean, "job", "summary")
    summary = read_summary(lean / JOB_FILE)
    assert timeless(summary) == timeless(load_summary(finished))
    assert set(found.data_vars) == set(SUMMARY_VARIABLES) <= set(SUMMARY_NUMBERS)
    for name, variable in found.data_vars.items():
        assert (variable.shape, variable.item()) == ((), summary[name])
        assert variable.attrs["long_name"] == SUMMARY_NUMBERS[name][1]
    assert (found["rmse"].attrs["units"], found["mean_variance"].attrs["units"]) == (
        "K",
        "K2",
    )
    assert list(store.read_attributes(lean / JOB_FILE, kind="job")) == [
        "",
        "summary",
        "record",
        "model",
    ]


def test_the_model_is_loaded_validated_and_exported(record, tmp_path):
    """Of one output, whose hyper-parameters follow the stream."""
    given = (
        *record,
        ONE_OUTPUT,
        "training.on_records=true",
        "training.interval=10",
        "training.significance=0.5",
    )
    one = run_identify(tmp_path / "lean", *given, LEAN)
    full = run_identify(tmp_path / "full", *given)
    assert load_dataset(one, "job", "record").sizes["estimate"] > 0
    assert_same(one, full)
    x = np.random.default_rng(0).normal(size=(6, 2))
    expected = Model.load(full / "model.nc").predict(x)
    for model in (Model.load(one / JOB_FILE), JointModel.load(one / JOB_FILE).models[0]):
        np.testing.assert_array_equal(model.predict(x), expected)
    measured = read_summary(one / JOB_FILE)["free_run"]
    assert (
        measured
        == json.loads((full / "validation.json").read_text())["free_run"]
        == load_summary(full)["free_run"]
    )
    data = [override for override in record if override.startswith("data")]
    options = (
        f"model={one / JOB_FILE}",
        *data,
        ONE_OUTPUT,
        "figures=false",
        "propagation=mean_only",
        "horizons=[1]",
    )
    judge = compose_configuration(*options, command="validate")
    export.run(compose_configuration(options[0], command="export"), tmp_path)
    np.testing.assert_allclose(
        runpy.run_path(str(tmp_path / "job.py"))["predict"](x)[0], expected.mean
    )
    assert validation.run(judge, tmp_path) == pytest.approx(measured["rmse"], rel=1e-12)


def test_a_fault_in_the_free_run_of_several_outputs_keeps_what_each_has_found(
    monkeypatch, record, tmp_path
):
    def fail(*arguments):
        raise IndexError

    monkeypatch.setattr(identification, "validate_on_test", fail)
    with pytest.raises(IndexError):
        run_identify(tmp_path, *record, *BOTH_OUTPUTS, LEAN)
    assert list_files(tmp_path) == {JOB_FILE}
    assert [one["n_points"] for one in read_summary(tmp_path / JOB_FILE).values()] == [
        15,
        15,
    ]


def test_a_multirun_is_lean_by_itself_and_full_outputs_have_the_one_file_too(
    monkeypatch, record, tmp_path
):
    monkeypatch.setattr(identification, "is_multirun", lambda: True)
    assert list_files(run_identify(tmp_path / "lean", *record, ONE_OUTPUT, "narx.target=all")) == {
        JOB_FILE
    }
    full = run_identify(tmp_path / "full", *record, ONE_OUTPUT, "outputs=full")
    files = {f"{kind}.nc" for kind in DATA_FILES} | {"summary.json"}
    assert list_files(full) == files | VALIDATED | {JOB_FILE}
    assert (
        load_dataset(full, "job", "summary").attrs["summary"] == (full / "summary.json").read_text()
    )
    assert_same(full, full)
    both = run_identify(tmp_path / "both", *record, *BOTH_OUTPUTS, "outputs=full")
    own = {f"{output}/{name}" for output in "yz" for name in files}
    assert list_files(both) == own | VALIDATED | {JOB_FILE, "model.nc"}
    assert read_summary(both / JOB_FILE)["z"]["smse"] == load_summary(both / "z")["smse"]


def test_every_output_has_a_model_of_the_same_regressors(record, tmp_path):
    one = run_identify(tmp_path / "lean", *record, *BOTH_OUTPUTS, LEAN)
    full = run_identify(tmp_path / "full", *record, *BOTH_OUTPUTS)
    found = read_summary(one / JOB_FILE)
    judged = json.loads((full / "validation.json").read_text())
    assert list_files(one) == {JOB_FILE}
    assert JOB_FILE not in list_files(full)
    assert list(found) == ["y", "z"]
    x = np.random.default_rng(0).normal(size=(5, 3))
    models = JointModel.load(full / "model.nc").models
    same = JointModel.load(one / JOB_FILE).models
    for (name, summary), *pair in zip(found.items(), models, same, strict=True):
        own = load_summary(full / name)
        alone = Model.load(full / name / "model.nc")
        assert summary["free_run"] == judged["free_run"][name]
        assert {*judged["warnings"]} <= {*summary["warnings"]}
        assert timeless(summary) == timeless(own)
        same_lags, best = summary["linear"].values()
        orders = [best[key] for key in ("na", "nb", "nk")]
        window = summary["free_run"]["window"]
        pairs = [
            (one["u"][:, None], one[name])
            for one in (coupled_signals(60, 2), coupled_signals(30, 5))
        ]
        errors = naive_arx(*pairs, *orders, max(window, orders[0], orders[1] + orders[2] - 1))
        assert (same_lags["free_run_rmse"], best["free_run_rmse"]) == (
            None,
            pytest.approx(errors[1]),
        )
        note = any("predicts better in free run" in warning for warning in summary["warnings"])
        assert note == (summary["free_run"]["rmse"] > 1.01 * best["free_run_rmse"])
        assert_same(one, full, name)
        for model in pair:
            np.testing.assert_array_equal(model.predict(x), alone.predict(x))
    with pytest.raises(
        store.StoreError,
        match=r"holds models of \['y', 'z'\]: read it with .*JointModel",
    ):
        Model.load(one / JOB_FILE)


def test_a_full_disk_leaves_nothing(record, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(store.StoreError, match=r"could not write .*job\.nc .*No space left"):
        run_identify(tmp_path, *record, ONE_OUTPUT, LEAN)
    assert not list_files(tmp_path)


def test_a_damaged_file_is_refused(lean, tmp_path):
    content = (lean / JOB_FILE).read_bytes()
    path = tmp_path / JOB_FILE
    for share in (0.0, 0.9999):
        path.write_bytes(content[: int(share * len(content))])
        for load in (read_summary, Model.load, JointModel.load):
            with pytest.raises(store.StoreError, match=r"job\.nc"):
                load(path)
    place = content.index(b'"smse": ') + len(b'"smse": ')
    path.write_bytes(content[:place] + b"7" + content[place + 1 :])
    with pytest.raises(store.StoreError, match=r"damaged|truncated"):
        read_summary(path)
    groups = store.read_groups(lean / JOB_FILE, kind="job")
    groups["summary"].attrs["summary"] = json.dumps(read_summary(lean / JOB_FILE) | {"smse": 0.001})
    store.write_groups(groups, path, kind="job")
    with pytest.raises(store.StoreError, match="damaged or was edited"):
        read_summary(path)
