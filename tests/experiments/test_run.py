"""A run from end to end: numbers that follow from its files, early ends, and its quality."""

import contextlib
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

from experiments.cli.ends import Stopped
from experiments.drawing import style
from experiments.export import run as export
from experiments.files.job_file import JOB_FILE, SUMMARY_NUMBERS, SUMMARY_VARIABLES, read_summary
from experiments.identify import run as identify
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
    fail_after,
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
#: keys of the summary whose values are numbers
NUMBERS = {
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
}


@pytest.fixture(scope="module")
def contents(finished):
    """What the files of the run hold."""
    rows = load_dataset(finished, "narx")
    result = load_dataset(finished, "result")
    initial, online, after = phase_masks(result)
    names = ("mean", "variance", "inserted", "accepted", "slot", "removed")
    return SimpleNamespace(
        folder=finished,
        summary=load_summary(finished),
        trajectory=load_dataset(finished, "trajectory"),
        rows=rows,
        result=result,
        model=Model.load(finished / "model.nc"),
        initial=initial,
        online=online,
        after=after,
        target=rows["target"].values,
        regressor=rows["regressor"].values,
        **{name: result[name].values for name in names},
    )


def test_folder_holds_the_promised_files(contents):
    data_files = {f"{kind}.nc" for kind in DATA_FILES}
    figures = {f"{name}.png" for name in FIGURES}
    names = {path.name for path in contents.folder.iterdir()}
    assert names == data_files | figures | {"summary.json"}


@pytest.mark.parametrize("kind", DATA_FILES)
def test_a_data_file_states_its_schema_and_origin(kind, contents):
    attributes = store.read(contents.folder / f"{kind}.nc", kind=kind).attrs
    assert attributes["schema_version"] == store.SCHEMA_VERSION
    assert attributes["seed"] == 0
    assert attributes["partial"] == 0
    assert {"creation_time", "package_versions", "timings", "Conventions"} <= attributes.keys()
    composed = compose_configuration(*SHORT_RUN, "figures=true")
    stored = OmegaConf.create(attributes["configuration"])
    assert OmegaConf.to_container(stored) == OmegaConf.to_container(composed, resolve=True)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_neither_empty_nor_full(name, contents):
    colors = imread(contents.folder / f"{name}.png")[..., :3]
    assert 0.002 < np.mean(colors < 0.9) < 0.9


def test_scores_follow_from_the_record(contents):
    text = (contents.folder / "summary.json").read_text()
    json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    summary = contents.summary
    assert {"hyperparameters", "repairs", "times"} <= summary.keys()
    assert all(np.isfinite(summary[key]) for key in NUMBERS)
    assert summary["partial"] is False
    result = contents.result
    y, mean, variance = (
        result[name].values[contents.after] for name in ("target", "mean", "variance")
    )
    scores = validate(y, mean, variance, contents.model.gp.noise_variance)
    online = contents.online
    expected = {
        **{name: getattr(scores, name) for name in ("smse", "rmse", "coverage_95", "nlpd")},
        "smse_no_change": smse(y, 0.0),
        "smse_stream": smse(contents.target[online], contents.mean[online]),
        "mean_variance": variance.mean(),
        "n_validation": contents.after.sum(),
    }
    assert {key: summary[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def scaled_initial_samples(contents):
    """Return the scaled initial samples: regressors (n, p) and targets (n,)."""
    model = contents.model
    x = contents.regressor[contents.initial]
    y = contents.target[contents.initial]
    return model.scaling.transform(x), y - model.mean.value


@pytest.fixture(scope="module")
def trained(contents):
    """What the training finds in the initial samples."""
    return MaximumAPosteriori().train(*scaled_initial_samples(contents), seed=0)


def test_record_is_what_the_final_model_predicts(contents):
    after = contents.after
    predicted = contents.model.predict(contents.regressor[after])
    np.testing.assert_array_equal(contents.mean[after], predicted.mean)
    np.testing.assert_array_equal(contents.variance[after], predicted.variance)


def test_record_begins_with_what_the_initial_model_predicts(contents, trained):
    """The initial model follows from the lag data set and the scales of the model alone."""
    model = contents.model
    settings = {name: getattr(model.gp, name) for name in ("budget", "reduction", "learning")}
    initial_gp = OnlineGP(trained.kernel, noise_variance=trained.noise_variance, **settings)
    initial_gp.fit(*scaled_initial_samples(contents))
    scaled_mean, variance = initial_gp.predict(model.scaling.transform(contents.regressor))
    mean = scaled_mean + model.mean.value
    after = contents.after
    first = np.flatnonzero(contents.online)[0]
    smse_initial = smse(contents.target[after], mean[after])
    assert contents.summary["smse_initial"] == pytest.approx(smse_initial, rel=1e-9)
    assert contents.mean[first] == pytest.approx(mean[first], rel=1e-9)
    assert contents.variance[first] == pytest.approx(variance[first], rel=1e-6)


def test_counts_follow_from_the_record(contents):
    summary = contents.summary
    online = contents.online
    inserted = contents.inserted[online]
    accepted = contents.accepted[online]
    assert summary["n_seen"] == online.sum()
    assert summary["n_initial"] == contents.initial.sum() == N_INITIAL
    assert summary["n_inserted"] == inserted.sum()
    assert summary["n_accepted"] == accepted.sum()
    assert summary["n_turned_away"] == (inserted & ~accepted).sum() > 0
    assert summary["n_revised"] == (contents.slot[online] >= 0).sum()
    assert summary["n_points"] == contents.result["n_points"].values[online][-1] <= BUDGET
    counts = [summary[f"n_{name}"] for name in ("seen", "inserted", "accepted", "revised")]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0
    assert (contents.removed[online] >= 0).any(), "the run is too short to replace a point"
    error = np.abs(contents.target - contents.mean)[online]
    np.testing.assert_array_equal(inserted, error >= 0.02)


def test_dictionary_of_the_model_follows_from_the_record(contents):
    """Slot by slot: the initial samples, then every sample that the record stores."""
    sample_in_slot = dict(enumerate(np.flatnonzero(contents.initial)))
    for k in np.flatnonzero(contents.online):
        slot = int(contents.slot[k])
        is_stored = slot >= 0
        assert is_stored == bool(contents.accepted[k])
        removed_slot = slot if is_stored and slot in sample_in_slot else -1
        assert contents.removed[k] == removed_slot
        if is_stored:
            sample_in_slot[slot] = k
            assert len(sample_in_slot) == contents.result["n_points"][k]
    samples = np.array([sample_in_slot[slot] for slot in range(len(sample_in_slot))])
    model = contents.model
    inputs = model.scaling.transform(contents.regressor[samples])
    np.testing.assert_array_equal(model.gp.inputs, inputs)
    targets = contents.target[samples] - model.mean.value
    np.testing.assert_array_equal(model.gp.targets, targets)


def test_hyperparameters_have_the_units_of_the_data_and_saw_only_the_initial_samples(contents):
    model = contents.model
    x = contents.regressor[:N_INITIAL]
    np.testing.assert_allclose(model.scaling.offset, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.scaling.scale, x.std(axis=0), rtol=1e-12)
    mean = contents.target[:N_INITIAL].mean()
    assert model.mean.value == pytest.approx(mean, rel=1e-12)
    length_scales = contents.summary["hyperparameters"]["kernel"]["length_scales"]
    assert list(length_scales) == list(model.narx.feature_names)
    expected = np.array(model.gp.kernel.length_scales) * model.scaling.scale
    np.testing.assert_allclose(list(length_scales.values()), expected, rtol=1e-12)


def test_half_of_the_run_is_identified_and_the_record_is_complete(contents):
    trajectory = contents.trajectory
    result = contents.result
    half = DAYS * 86400.0 / 2
    assert result["time"].values[~contents.after][-1] == half
    assert result["time"].values[contents.after][0] == half + 900.0
    np.testing.assert_array_equal(result["time"], trajectory["time"].values[3:])
    np.testing.assert_array_equal(trajectory["part"], trajectory["time"].values > half)
    temperature = trajectory["zone_temperature"].values
    np.testing.assert_array_equal(result["previous"], temperature[2:-1])
    np.testing.assert_array_equal(result["target"], temperature[3:] - temperature[2:-1])
    origin = contents.model.origin
    identified = temperature[3:][~contents.after]
    assert origin.n_samples == len(identified)
    assert origin.sampling_time == 900.0
    assert origin.output_range == (identified.min(), identified.max())
    attributes = load_dataset(contents.folder, "model").attrs
    assert attributes["target_unit"] == "K"
    assert json.loads(attributes["feature_units"]) == ["degC"] * 6 + ["kg/s"] * 3


def without_times(summary):
    """Return a summary without its run times."""
    return {key: value for key, value in summary.items() if key != "times"}


def test_same_seed_gives_the_same_bits(contents, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO")
    summarise = identify.summarise
    measured = {}

    def summarise_and_keep_times(*arguments):
        measured.update(arguments[2])
        return summarise(*arguments)

    monkeypatch.setattr(identify, "summarise", summarise_and_keep_times)
    configuration = compose_configuration(*SHORT_RUN)
    assert identify.run(configuration, tmp_path) == contents.summary["smse"]
    times = load_summary(tmp_path)["times"]
    assert times["loop"] + times["training"] == pytest.approx(measured["loop"], rel=1e-9)
    assert not list(tmp_path.glob("*.png"))
    records = [record for record in caplog.records if record.name.startswith("experiments")]
    text = "\n".join(record.getMessage() for record in records)
    assert f"{contents.summary['smse']:.3g}" in text
    assert str(contents.summary["n_inserted"]) in text
    assert str(tmp_path) in text
    for kind in DATA_FILES:
        variables = bytes_of_variables(load_dataset(tmp_path, kind))
        assert variables == bytes_of_variables(load_dataset(contents.folder, kind)), kind
    assert without_times(load_summary(tmp_path)) == without_times(contents.summary)


def test_another_seed_gives_other_bits(contents, tmp_path):
    run_identify(tmp_path, *SHORT_RUN, "seed=1")
    for kind in DATA_FILES:
        variables = bytes_of_variables(load_dataset(tmp_path, kind))
        assert variables != bytes_of_variables(load_dataset(contents.folder, kind)), kind


def test_estimates_that_follow_the_stream_are_recorded(trained, tmp_path, caplog):
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
    assert result.sizes["estimate"] == summary["n_estimates"] > 0
    samples = result["estimate_sample"].values
    _, online, _ = phase_masks(result)
    assert online[samples].all()
    assert ((samples + 1 - N_INITIAL) % 10 == 0).all()
    times = result["time"].values[samples]
    np.testing.assert_array_equal(result["estimate_time"].values, times)
    hyperparameters = summary["hyperparameters"]
    noise_variance = Model.load(folder / "model.nc").gp.noise_variance
    assert result["estimate_noise_variance"].values[-1] == noise_variance
    assert hyperparameters["noise_variance"] == noise_variance
    length_scales = hyperparameters["kernel"]["length_scales"]
    assert list(length_scales) == result["feature"].values.tolist()
    last_length_scales = result["estimate_length_scale"].values[-1]
    np.testing.assert_allclose(last_length_scales, list(length_scales.values()), rtol=1e-12)
    seconds = json.loads(result.attrs["estimate_seconds"])
    assert summary["times"]["adaptation"] == pytest.approx(sum(seconds))
    (line,) = [record.message for record in caplog.records if "estimated again" in record.message]
    assert f"again {summary['n_estimates']} times" in line
    # the first estimate compares the errors so far with the noise of the training
    first = int(samples[0])
    n_errors = int(result["estimate_n_errors"][0])
    assert n_errors == min(first + 1 - N_INITIAL, 100)
    window = slice(first + 1 - n_errors, first + 1)
    squares = (result["target"] - result["mean"]).values[window] ** 2
    standardised = squares / (result["variance"].values[window] + trained.noise_variance)
    statistic = result["estimate_statistic"].values[0]
    assert statistic == pytest.approx(standardised.mean(), rel=1e-9)


# --- runs that end early, disks that are full

#: numbers of samples after which a run ends in each phase
N_SAMPLES_AT_END = {"initial": 10, "online": 60, "validation": 24 * 4 * DAYS // 2 + 30}


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
    live_source = identify.live_source
    n_samples = N_SAMPLES_AT_END[phase]

    def source_that_fails(config):
        source = live_source(config)
        source.simulation.samples = fail_after(source.simulation.samples, n_samples, error)
        return source

    monkeypatch.setattr(identify, "live_source", source_that_fails)
    error.__traceback__ = None
    with pytest.raises((Stopped, type(error))) as caught:
        run_identify(tmp_path, *SHORT_RUN)
    exit_code = 130 if isinstance(error, KeyboardInterrupt) else None
    assert getattr(caught.value, "exit_code", None) == exit_code, "a bug keeps its traceback"
    summary = load_summary(tmp_path)
    part = load_dataset(tmp_path, "result")
    n_initial, n_online, n_after = (int(mask.sum()) for mask in phase_masks(part))
    assert n_initial == summary["n_initial"]
    assert n_online == summary["n_seen"]
    assert n_after == summary["n_validation"]
    assert n_initial + n_online + n_after == n_samples - 3
    assert load_dataset(tmp_path, "trajectory").sizes["time"] == n_samples
    assert (n_online > 0) == (phase != "initial")
    assert (n_after > 0) == (phase == "validation")
    assert (summary["smse"] is None) == (phase != "validation")
    names = set(DATA_FILES)
    if phase == "initial":
        names.remove("model")
    assert {path.stem for path in tmp_path.glob("*.nc")} == names
    assert all(load_dataset(tmp_path, name).attrs["partial"] == 1 for name in names)
    whole = load_dataset(finished, "result")
    for name in part.data_vars:
        np.testing.assert_array_equal(part[name], whole[name].values[: len(part[name])])


@contextlib.contextmanager
def limit_file_size(size):
    """Let files of this process grow up to `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_files_that_cannot_be_written_are_named_and_the_others_are_kept(tmp_path):
    """Files may not grow beyond a limit that the summary and the model keep."""
    overrides = (*SHORT_RUN, f"duration={10 * DAYS}d")
    whole = run_identify(tmp_path / "whole", *overrides)
    sizes = {path.name: path.stat().st_size for path in whole.iterdir()}
    kept = {"summary.json", "model.nc"}
    lost = {"trajectory.nc", "narx.nc", "result.nc"}
    largest_kept = max(sizes[name] for name in kept)
    smallest_lost = min(sizes[name] for name in lost)
    limit = (largest_kept + smallest_lost) // 2
    assert largest_kept < limit < smallest_lost, sizes
    full = tmp_path / "full"
    with (
        limit_file_size(limit),
        pytest.raises(store.StoreError, match="File too large") as caught,
    ):
        run_identify(full, *overrides)
    assert all(str(full / name) in str(caught.value) for name in lost)
    assert {path.name for path in full.iterdir()} == kept
    assert Model.load(full / "model.nc").gp.n_points == 60
    assert load_summary(full)["partial"] is False


def test_files_of_a_folder_that_vanishes_are_named(tmp_path):
    with pytest.raises(store.StoreError) as caught:
        identify.run(compose_configuration(*SHORT_RUN), tmp_path / "gone")
    for name in ("summary.json", *(f"{kind}.nc" for kind in DATA_FILES)):
        assert str(tmp_path / "gone" / name) in str(caught.value)


@pytest.mark.parametrize("fails", [False, True], ids=["second process", "second process fails"])
def test_a_second_process_draws_half_of_the_figures_and_this_one_the_rest(
    fails, tmp_path, monkeypatch
):
    this_process = os.getpid()

    def draw_process_number(figure):
        assert os.getpid() == this_process or not fails
        return str(os.getpid()).encode()

    monkeypatch.setattr(style, "png", draw_process_number)
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    folder = run_identify(tmp_path, *SHORT_RUN, "figures=true")
    drawn_here = [int(path.read_text()) == this_process for path in folder.glob("*.png")]
    assert sorted(drawn_here) == ([True] * 4 if fails else [False, False, True, True])


POOR_SCORE = "no better than no change"


@pytest.mark.parametrize(
    ("score", "coverage", "expected"),
    [
        (0.3, 0.95, []),
        (0.3, 0.6, ["the 95 % band covers 60.0 %"]),
        (0.99, 1.0, [POOR_SCORE, "the 95 % band covers 100.0 %"]),
    ],
    ids=["good", "narrow band", "poor"],
)
def test_a_bad_model_is_called_bad(score, coverage, expected):
    summary = {"smse": score, "smse_no_change": 1.0, "coverage_95": coverage}
    warnings = _quality_warnings(summary)
    assert len(warnings) == len(expected)
    for words, warning in zip(expected, warnings, strict=True):
        assert words in warning


@pytest.mark.parametrize("is_stream", [True, False])
def test_more_initial_samples_are_advised_on_a_stream_alone(is_stream):
    summary = {"smse": 0.99, "smse_no_change": 1.0, "coverage_95": 1.0}
    first_warning = _quality_warnings(summary, is_stream=is_stream)[0]
    assert ("n_initial" in first_warning) == is_stream


def test_a_model_that_a_training_did_not_simulate_is_not_called_divergent():
    tried = [
        {"route": "A", "held_out_rmse": None, "refusal": "A: the pole"},
        {"route": "B", "held_out_rmse": None, "folds": [1.0], "refusal": ""},
        {"route": "B", "held_out_rmse": 0.5, "folds": [1.0], "refusal": ""},
    ]
    summary = {
        "training": {"tried": tried},
        "times": {"loop": 1.0, "training": 0.0},
        "target_unit": "V",
    }
    result = SimpleNamespace(
        identification=SimpleNamespace(n_waited=0, initial=None, model=None),
        source=SimpleNamespace(n_seen=1, activity="reading"),
    )
    assert _describe_training(summary, result)[:3] == [
        "Tried A: not taken; the pole",
        "Tried B: RMSE diverges in free run on 1 held-out fold",
        "Tried B: RMSE 0.5 V in free run on 1 held-out fold",
    ]


# --- quality over five seeds

SEEDS = range(5)
N_POINTS_FULL_GP = 2000


def smse_of_full_gp(folder):
    """Return the SMSE of a GP on points spread over the identified part, same hyper-parameters."""
    model = Model.load(folder / "model.nc")
    rows = load_dataset(folder, "narx")
    initial, online, after = phase_masks(load_dataset(folder, "result"))
    n_identified = (initial | online).sum()
    chosen = np.linspace(0, n_identified - 1, N_POINTS_FULL_GP).astype(int)
    z = model.scaling.transform(rows["regressor"].values)
    y = rows["target"].values
    gp = OnlineGP(model.gp.kernel, noise_variance=model.gp.noise_variance, budget=N_POINTS_FULL_GP)
    gp.fit(z[chosen], y[chosen] - model.mean.value)
    # without the variances, which would cost most
    mean = gp.kernel(z[after], gp.inputs[gp.age_order]) @ gp.state()["weights"]
    np.testing.assert_allclose(mean[:20], gp.predict(z[after][:20])[0], rtol=1e-6, atol=1e-8)
    return smse(y[after], mean + model.mean.value)


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    """Folders of the default year for every seed."""
    folder = tmp_path_factory.mktemp("years")
    return [run_identify(folder / str(seed), f"seed={seed}", "figures=false") for seed in SEEDS]


def median(years, key):
    """Return the median over the seeds of a number in the summary."""
    return float(np.median([load_summary(folder)[key] for folder in years]))


@pytest.mark.slow
def test_medians_are_at_most_half_of_no_learning_close_to_a_full_gp_and_bands_are_honest(years):
    median_smse = median(years, "smse")
    without_learning = min(median(years, "smse_no_change"), median(years, "smse_initial"))
    assert median_smse <= 0.5 * without_learning
    assert median_smse <= 1.3 * float(np.median([smse_of_full_gp(folder) for folder in years]))
    assert 0.85 <= median(years, "coverage_95") <= 0.99


# --- files of one or several outputs: all, or one of a job with the same bits

LEAN = "outputs=lean"
VALIDATION_FILES = {"validation.json", "validation.nc"}


def assert_same(lean_folder, full_folder, output=""):
    """Compare record and model of a job's file with those of the full outputs.

    They have the same bits and attributes.
    """
    below = f"/{output}" if output else ""
    record = load_dataset(lean_folder, "job", f"record{below}")
    result = load_dataset(full_folder / output, "result")
    assert bytes_of_variables(record) == bytes_of_variables(result)
    for name, variable in result.variables.items():
        assert str(record[name].attrs) == str(variable.attrs)
    lean_model = load_dataset(lean_folder, "job", f"model{below}")
    full_model = load_dataset(full_folder / output, "model")
    assert bytes_of_variables(lean_model) == bytes_of_variables(full_model)
    for key in ("digest", "target_unit", "feature_units"):
        assert lean_model.attrs[key] == full_model.attrs[key]


@pytest.fixture(scope="module")
def lean(tmp_path_factory):
    """Folder of the lean run that has the settings of the full one."""
    return run_identify(tmp_path_factory.mktemp("lean") / "run", *SHORT_RUN, "figures=true", LEAN)


def test_a_lean_run_is_one_file_with_the_bits_of_a_full_one(lean, finished):
    assert list_files(lean) == {JOB_FILE}
    assert_same(lean, finished)
    summary = read_summary(lean / JOB_FILE)
    assert without_times(summary) == without_times(load_summary(finished))
    groups = list(store.read_attributes(lean / JOB_FILE, kind="job"))
    assert groups == ["", "summary", "record", "model"]


def test_the_numbers_of_a_summary_are_variables_of_the_job_file(lean):
    summary = read_summary(lean / JOB_FILE)
    numbers = load_dataset(lean, "job", "summary")
    assert set(numbers.data_vars) == set(SUMMARY_VARIABLES) <= set(SUMMARY_NUMBERS)
    for name, variable in numbers.data_vars.items():
        assert variable.shape == ()
        assert variable.item() == summary[name]
        assert variable.attrs["long_name"] == SUMMARY_NUMBERS[name][1]
    assert numbers["rmse"].attrs["units"] == "K"
    assert numbers["mean_variance"].attrs["units"] == "K2"


@pytest.fixture(scope="module")
def one_output(record, tmp_path_factory):
    """Folders of the lean and of the full run of one output, whose kernel follows the stream."""
    overrides = (
        *record,
        ONE_OUTPUT,
        "training.on_records=true",
        "training.interval=10",
        "training.significance=0.5",
    )
    folder = tmp_path_factory.mktemp("one_output")
    return SimpleNamespace(
        lean=run_identify(folder / "lean", *overrides, LEAN),
        full=run_identify(folder / "full", *overrides),
    )


@pytest.fixture(scope="module")
def expected_prediction(one_output):
    """Regressors, and what the model of the full run predicts for them."""
    x = np.random.default_rng(0).normal(size=(6, 2))
    return x, Model.load(one_output.full / "model.nc").predict(x)


def test_a_lean_run_of_a_record_has_the_bits_of_a_full_one(one_output):
    assert load_dataset(one_output.lean, "job", "record").sizes["estimate"] > 0
    assert_same(one_output.lean, one_output.full)
    free_run = read_summary(one_output.lean / JOB_FILE)["free_run"]
    validation_file = json.loads((one_output.full / "validation.json").read_text())
    assert free_run == validation_file["free_run"]
    assert free_run == load_summary(one_output.full)["free_run"]


def test_the_model_of_a_job_file_is_loaded(one_output, expected_prediction):
    x, expected = expected_prediction
    path = one_output.lean / JOB_FILE
    for model in (Model.load(path), JointModel.load(path).models[0]):
        np.testing.assert_array_equal(model.predict(x), expected)


def test_the_model_of_a_job_file_is_exported(one_output, expected_prediction, tmp_path):
    x, expected = expected_prediction
    model = f"model={one_output.lean / JOB_FILE}"
    export.run(compose_configuration(model, command="export"), tmp_path)
    exported = runpy.run_path(str(tmp_path / "job.py"))
    np.testing.assert_allclose(exported["predict"](x)[0], expected.mean)


def test_the_model_of_a_job_file_is_validated(one_output, record, tmp_path):
    overrides = (
        f"model={one_output.lean / JOB_FILE}",
        *(text for text in record if text.startswith("data")),
        ONE_OUTPUT,
        "figures=false",
        "propagation=mean_only",
        "horizons=[1]",
    )
    configuration = compose_configuration(*overrides, command="validate")
    rmse = read_summary(one_output.lean / JOB_FILE)["free_run"]["rmse"]
    assert validation.run(configuration, tmp_path) == pytest.approx(rmse, rel=1e-12)


def test_a_bug_in_the_free_run_of_several_outputs_keeps_the_model_of_each(
    monkeypatch, record, tmp_path
):
    def fail(*arguments):
        raise IndexError

    monkeypatch.setattr(identify, "validate_on_test", fail)
    with pytest.raises(IndexError):
        run_identify(tmp_path, *record, *BOTH_OUTPUTS, LEAN)
    assert list_files(tmp_path) == {JOB_FILE}
    summaries = read_summary(tmp_path / JOB_FILE).values()
    assert [summary["n_points"] for summary in summaries] == [15, 15]


class TestMultirun:
    """A run of a multirun writes one file, and full outputs beside it if they are asked for."""

    @pytest.fixture(autouse=True)
    def in_multirun(self, monkeypatch):
        """Let a run find itself in a multirun."""
        monkeypatch.setattr(identify, "is_multirun", lambda: True)

    def test_it_is_lean_by_itself(self, record, tmp_path):
        run_identify(tmp_path, *record, ONE_OUTPUT, "narx.target=all")
        assert list_files(tmp_path) == {JOB_FILE}

    def test_full_outputs_of_one_output(self, record, tmp_path):
        run_identify(tmp_path, *record, ONE_OUTPUT, "outputs=full")
        files = {f"{kind}.nc" for kind in DATA_FILES} | {"summary.json"}
        assert list_files(tmp_path) == files | VALIDATION_FILES | {JOB_FILE}
        stored_summary = load_dataset(tmp_path, "job", "summary").attrs["summary"]
        assert stored_summary == (tmp_path / "summary.json").read_text()
        assert_same(tmp_path, tmp_path)

    def test_full_outputs_of_two_outputs(self, record, tmp_path):
        run_identify(tmp_path, *record, *BOTH_OUTPUTS, "outputs=full")
        files = {f"{kind}.nc" for kind in DATA_FILES} | {"summary.json"}
        of_outputs = {f"{output}/{name}" for output in "yz" for name in files}
        assert list_files(tmp_path) == of_outputs | VALIDATION_FILES | {JOB_FILE, "model.nc"}
        summaries = read_summary(tmp_path / JOB_FILE)
        assert summaries["z"]["smse"] == load_summary(tmp_path / "z")["smse"]


@pytest.fixture(scope="module")
def two_outputs(record, tmp_path_factory):
    """Folders of the lean and of the full run of two outputs."""
    folder = tmp_path_factory.mktemp("two_outputs")
    return SimpleNamespace(
        lean=run_identify(folder / "lean", *record, *BOTH_OUTPUTS, LEAN),
        full=run_identify(folder / "full", *record, *BOTH_OUTPUTS),
    )


def test_a_lean_run_of_two_outputs_is_one_file(two_outputs):
    assert list_files(two_outputs.lean) == {JOB_FILE}
    assert JOB_FILE not in list_files(two_outputs.full)
    assert list(read_summary(two_outputs.lean / JOB_FILE)) == ["y", "z"]
    message = r"holds models of \['y', 'z'\]: read it with .*JointModel"
    with pytest.raises(store.StoreError, match=message):
        Model.load(two_outputs.lean / JOB_FILE)


@pytest.mark.parametrize(("number", "output"), [(0, "y"), (1, "z")], ids=["y", "z"])
def test_every_output_has_a_model_of_the_same_regressors(number, output, two_outputs):
    x = np.random.default_rng(0).normal(size=(5, 3))
    expected = Model.load(two_outputs.full / output / "model.nc").predict(x)
    for path in (two_outputs.full / "model.nc", two_outputs.lean / JOB_FILE):
        model = JointModel.load(path).models[number]
        np.testing.assert_array_equal(model.predict(x), expected)
    assert_same(two_outputs.lean, two_outputs.full, output)


@pytest.mark.parametrize("output", ["y", "z"])
def test_every_output_has_a_summary_with_the_free_run_of_all(output, two_outputs):
    summary = read_summary(two_outputs.lean / JOB_FILE)[output]
    validation_file = json.loads((two_outputs.full / "validation.json").read_text())
    assert summary["free_run"] == validation_file["free_run"][output]
    assert {*validation_file["warnings"]} <= {*summary["warnings"]}
    assert without_times(summary) == without_times(load_summary(two_outputs.full / output))


@pytest.mark.parametrize("output", ["y", "z"])
def test_every_output_has_linear_models_beside_it(output, two_outputs):
    summary = read_summary(two_outputs.lean / JOB_FILE)[output]
    same_lags, best = summary["linear"].values()
    orders = [best[key] for key in ("na", "nb", "nk")]
    na, nb, nk = orders
    window = max(summary["free_run"]["window"], na, nb + nk - 1)
    estimation = coupled_signals(60, 2)
    test = coupled_signals(30, 5)
    pairs = [(signals["u"][:, None], signals[output]) for signals in (estimation, test)]
    errors = naive_arx(*pairs, *orders, window)
    assert same_lags["free_run_rmse"] is None
    assert best["free_run_rmse"] == pytest.approx(errors[1])
    warns = any("predicts better in free run" in text for text in summary["warnings"])
    assert warns == (summary["free_run"]["rmse"] > 1.01 * best["free_run_rmse"])


def test_a_full_disk_leaves_nothing(record, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(store.StoreError, match=r"could not write .*job\.nc .*No space left"):
        run_identify(tmp_path, *record, ONE_OUTPUT, LEAN)
    assert not list_files(tmp_path)


@pytest.mark.parametrize("load", [read_summary, Model.load, JointModel.load])
@pytest.mark.parametrize("fraction", [0.0, 0.9999])
def test_a_truncated_file_is_refused(fraction, load, lean, tmp_path):
    content = (lean / JOB_FILE).read_bytes()
    path = tmp_path / JOB_FILE
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(store.StoreError, match=r"job\.nc"):
        load(path)


def test_a_file_with_a_changed_byte_is_refused(lean, tmp_path):
    content = bytearray((lean / JOB_FILE).read_bytes())
    key = b'"smse": '
    place = content.index(key) + len(key)
    content[place] = ord("7")
    path = tmp_path / JOB_FILE
    path.write_bytes(content)
    with pytest.raises(store.StoreError, match=r"damaged|truncated"):
        read_summary(path)


def test_a_file_with_an_edited_summary_is_refused(lean, tmp_path):
    groups = store.read_groups(lean / JOB_FILE, kind="job")
    edited = read_summary(lean / JOB_FILE) | {"smse": 0.001}
    groups["summary"].attrs["summary"] = json.dumps(edited)
    store.write_groups(groups, tmp_path / JOB_FILE, kind="job")
    with pytest.raises(store.StoreError, match="damaged or was edited"):
        read_summary(tmp_path / JOB_FILE)
