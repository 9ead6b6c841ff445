"""A run from end to end: what its files hold, how it ends early, and how well it predicts."""

import contextlib
import errno
import json
import logging
import os
import resource
import runpy
import signal
from types import SimpleNamespace
from unittest import mock

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
    SMALLEST_RUN,
    bytes_of_variables,
    compose_configuration,
    fail_after,
    list_files,
    load_dataset,
    load_summary,
    phase_masks,
    run_identify,
)
from helpers.naive_arx import naive_arx, naive_changes, naive_order, naive_recursion
from helpers.records import BOTH_OUTPUTS, ONE_OUTPUT, coupled_signals, has_warning
from sysid import (
    JointModel,
    MaximumAPosteriori,
    Model,
    Narx,
    OnlineGP,
    make_record,
    store,
    validate,
)
from sysid import standardised_mean_squared_error as smse
from sysid.simulation.baselines import LinearArx

FIGURE_NAMES = ("signals", "prediction", "dictionary", "error")
SAMPLING_TIME = 900.0  # s, of the simulated building
SAMPLES_PER_DAY = 96
#: of the errors, in SHORT_RUN
ERROR_THRESHOLD = 0.02  # K
#: first samples of a run, which are only lags of the first regressor
N_LAG_SAMPLES = 3
#: keys of the summary whose values are always finite numbers
FINITE_NUMBERS = {
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
    """Content of the files of the run, and the masks of its phases."""
    rows = load_dataset(finished, "narx")
    result = load_dataset(finished, "result")
    initial, online, after = phase_masks(result)
    names = ("mean", "variance", "inserted", "accepted", "slot", "removed")
    recorded = {name: result[name].values for name in names}
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
        **recorded,
    )


def test_a_run_writes_data_figures_and_a_summary(contents):
    data_files = {f"{kind}.nc" for kind in DATA_FILES}
    figures = {f"{name}.png" for name in FIGURE_NAMES}
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


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_a_figure_is_neither_empty_nor_full(name, contents):
    colors = imread(contents.folder / f"{name}.png")[..., :3]
    drawn_fraction = np.mean(colors < 0.9)
    assert 0.002 < drawn_fraction < 0.9


def refuse_constant(name):
    """Fail at NaN and Infinity, which Python reads although they are no JSON."""
    pytest.fail(f"the summary holds {name}")


def test_the_summary_is_strict_json_with_finite_numbers(contents):
    text = (contents.folder / "summary.json").read_text()
    summary = json.loads(text, parse_constant=refuse_constant)
    assert {"hyperparameters", "repairs", "times"} <= summary.keys()
    for key in FINITE_NUMBERS:
        assert np.isfinite(summary[key]), key
    assert summary["partial"] is False


def test_scores_follow_from_the_record(contents):
    after = contents.after
    online = contents.online
    y = contents.result["target"].values[after]
    mean = contents.mean[after]
    variance = contents.variance[after]
    scores = validate(y, mean, variance, contents.model.gp.noise_variance)
    expected = {
        "smse": scores.smse,
        "rmse": scores.rmse,
        "coverage_95": scores.coverage_95,
        "nlpd": scores.nlpd,
        "smse_no_change": smse(y, 0.0),
        "smse_stream": smse(contents.target[online], contents.mean[online]),
        "mean_variance": variance.mean(),
        "n_validation": after.sum(),
    }
    stated = {key: contents.summary[key] for key in expected}
    assert stated == pytest.approx(expected, rel=1e-9)


@pytest.fixture(scope="module")
def measured(contents):
    """Signals of the run: inputs (n, 2) and output (n,), and which samples are learned."""
    trajectory = contents.trajectory
    inputs = ("ambient_temperature", "mass_flow")
    return SimpleNamespace(
        u=np.column_stack([trajectory[name].values for name in inputs]),
        y=trajectory["zone_temperature"].values,
        is_learned=trajectory["part"].values == 0,
    )


def test_the_best_linear_model_is_fitted_to_the_learned_samples(contents, measured):
    n_learned = int(measured.is_learned.sum())
    learned = measured.u[:n_learned], measured.y[:n_learned]
    whole = measured.u, measured.y
    order = naive_order(*learned, 12)
    predicted = naive_changes(learned, whole, order, n_learned)
    changes = np.diff(measured.y)[n_learned - 1 :]
    summary = contents.summary
    assert len(changes) == summary["n_validation"]
    assert summary["linear_lags"]["after_stream"] == order
    assert summary["smse_linear"] == pytest.approx(smse(changes, predicted), rel=1e-9)


def test_recursive_least_squares_predicts_the_samples_of_the_stream(contents, measured):
    """Each sample is predicted from all before, by a new batch for each."""
    n_learned = int(measured.is_learned.sum())
    first = n_learned - contents.summary["n_seen"]
    changes = np.diff(measured.y[:n_learned])[first - 1 :]
    lags = contents.summary["linear_lags"]
    errors = {row["lags"]: row["smse_stream"] for row in lags["tried"]}
    assert [*errors] == list(range(1, 13))
    for order in (1, 3, lags["in_stream"], 12):
        predicted = naive_recursion(
            measured.u[:n_learned], measured.y[:n_learned], order, 12, first
        )
        assert errors[order] == pytest.approx(smse(changes, predicted), rel=1e-5)
    assert contents.summary["smse_stream_linear"] == min(errors.values())
    assert errors[lags["in_stream"]] == min(errors.values())


def scaled_initial_samples(contents):
    """Return the scaled initial samples: regressors (n, p) and targets (n,)."""
    model = contents.model
    x = contents.regressor[contents.initial]
    y = contents.target[contents.initial]
    return model.scaling.transform(x), y - model.mean.value


@pytest.fixture(scope="module")
def trained(contents):
    """Hyper-parameters that the training finds in the initial samples."""
    return MaximumAPosteriori().train(*scaled_initial_samples(contents), seed=0)


def test_the_record_ends_with_predictions_of_the_final_model(contents):
    after = contents.after
    predicted = contents.model.predict(contents.regressor[after])
    np.testing.assert_array_equal(contents.mean[after], predicted.mean)
    np.testing.assert_array_equal(contents.variance[after], predicted.variance)


def test_the_record_begins_with_predictions_of_the_initial_model(contents, trained):
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
    turned_away = inserted & ~accepted
    is_stored = contents.slot[online] >= 0
    n_points = contents.result["n_points"].values[online]
    assert contents.initial.sum() == N_INITIAL
    assert summary["n_initial"] == N_INITIAL
    assert summary["n_seen"] == online.sum()
    assert summary["n_inserted"] == inserted.sum()
    assert summary["n_accepted"] == accepted.sum()
    assert summary["n_turned_away"] == turned_away.sum()
    assert summary["n_revised"] == is_stored.sum()
    assert summary["n_points"] == n_points[-1]


def test_the_run_is_long_enough_to_turn_samples_away_and_to_replace_points(contents):
    summary = contents.summary
    assert summary["n_turned_away"] > 0
    assert summary["n_points"] <= BUDGET
    assert (contents.removed[contents.online] >= 0).any()
    keys = ("n_seen", "n_inserted", "n_accepted", "n_revised")
    counts = [summary[key] for key in keys]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0


def test_samples_whose_error_reaches_the_threshold_are_inserted(contents):
    error = np.abs(contents.target - contents.mean)
    is_large = error >= ERROR_THRESHOLD
    online = contents.online
    np.testing.assert_array_equal(contents.inserted[online], is_large[online])


def test_the_dictionary_of_the_model_follows_from_the_record(contents):
    """Every slot holds an initial sample, or the last sample that the record stores there."""
    sample_in_slot = dict(enumerate(np.flatnonzero(contents.initial)))
    for k in np.flatnonzero(contents.online):
        slot = int(contents.slot[k])
        is_stored = slot >= 0
        replaces_point = slot in sample_in_slot
        assert is_stored == bool(contents.accepted[k])
        assert contents.removed[k] == (slot if replaces_point else -1)
        if is_stored:
            sample_in_slot[slot] = k
            assert len(sample_in_slot) == contents.result["n_points"][k]
    samples = [sample_in_slot[slot] for slot in range(len(sample_in_slot))]
    model = contents.model
    inputs = model.scaling.transform(contents.regressor[samples])
    np.testing.assert_array_equal(model.gp.inputs, inputs)
    targets = contents.target[samples] - model.mean.value
    np.testing.assert_array_equal(model.gp.targets, targets)


def test_scales_and_mean_are_those_of_the_initial_samples(contents):
    model = contents.model
    x = contents.regressor[:N_INITIAL]
    np.testing.assert_allclose(model.scaling.offset, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.scaling.scale, x.std(axis=0), rtol=1e-12)
    mean = contents.target[:N_INITIAL].mean()
    assert model.mean.value == pytest.approx(mean, rel=1e-12)


def test_length_scales_of_the_summary_have_the_units_of_the_data(contents):
    model = contents.model
    length_scales = contents.summary["hyperparameters"]["kernel"]["length_scales"]
    assert list(length_scales) == list(model.narx.feature_names)
    expected = np.array(model.gp.kernel.length_scales) * model.scaling.scale
    np.testing.assert_allclose(list(length_scales.values()), expected, rtol=1e-12)


def test_half_of_the_run_is_identified(contents):
    trajectory = contents.trajectory
    time = contents.result["time"].values
    half = DAYS * 86400.0 / 2  # s
    assert time[~contents.after][-1] == half
    assert time[contents.after][0] == half + SAMPLING_TIME
    np.testing.assert_array_equal(trajectory["part"], trajectory["time"].values > half)


def test_the_record_has_every_sample_of_the_trajectory_that_has_lags(contents):
    trajectory = contents.trajectory
    result = contents.result
    temperature = trajectory["zone_temperature"].values
    current = temperature[N_LAG_SAMPLES:]
    previous = temperature[N_LAG_SAMPLES - 1 : -1]
    np.testing.assert_array_equal(result["time"], trajectory["time"].values[N_LAG_SAMPLES:])
    np.testing.assert_array_equal(result["previous"], previous)
    np.testing.assert_array_equal(result["target"], current - previous)


def test_the_model_states_the_samples_and_units_that_it_was_learned_from(contents):
    temperature = contents.trajectory["zone_temperature"].values[N_LAG_SAMPLES:]
    identified = temperature[~contents.after]
    origin = contents.model.origin
    assert origin.n_samples == len(identified)
    assert origin.sampling_time == SAMPLING_TIME
    assert origin.output_range == (identified.min(), identified.max())
    attributes = load_dataset(contents.folder, "model").attrs
    assert attributes["target_unit"] == "K"
    assert json.loads(attributes["feature_units"]) == ["degC"] * 6 + ["kg/s"] * 3


def without_times(summary):
    """Return a summary without its run times."""
    return {key: value for key, value in summary.items() if key != "times"}


@contextlib.contextmanager
def collect_messages():
    """Collect the messages that the experiments log meanwhile."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("experiments")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """The same run again without figures: its folder, messages, value and measured times."""
    folder = tmp_path_factory.mktemp("repeated")
    summarise = identify.summarise
    measured_times = {}

    def summarise_and_keep_times(settings, result, times):
        measured_times.update(times)
        return summarise(settings, result, times)

    with (
        mock.patch.object(identify, "summarise", summarise_and_keep_times),
        collect_messages() as messages,
    ):
        value = identify.run(compose_configuration(*SHORT_RUN), folder)
    return SimpleNamespace(
        folder=folder, messages=messages, value=value, measured_times=measured_times
    )


@pytest.mark.parametrize("kind", DATA_FILES)
def test_the_same_seed_gives_the_same_bits(kind, contents, repeated):
    variables = bytes_of_variables(load_dataset(repeated.folder, kind))
    assert variables == bytes_of_variables(load_dataset(contents.folder, kind))


def test_the_same_seed_gives_the_same_summary(contents, repeated):
    assert without_times(load_summary(repeated.folder)) == without_times(contents.summary)


def test_a_run_returns_its_smse(contents, repeated):
    assert repeated.value == contents.summary["smse"]


def test_a_run_without_figures_writes_none(repeated):
    assert not list(repeated.folder.glob("*.png"))


def test_a_run_logs_its_result_and_where_it_is(contents, repeated):
    text = "\n".join(repeated.messages)
    assert f"{contents.summary['smse']:.3g}" in text
    assert str(contents.summary["n_inserted"]) in text
    assert str(repeated.folder) in text


def test_the_time_of_the_training_does_not_count_to_that_of_the_loop(repeated):
    times = load_summary(repeated.folder)["times"]
    measured_loop = repeated.measured_times["loop"]
    assert times["loop"] + times["training"] == pytest.approx(measured_loop, rel=1e-9)


def test_another_seed_gives_other_bits(contents, tmp_path):
    run_identify(tmp_path, *SHORT_RUN, "seed=1")
    for kind in DATA_FILES:
        variables = bytes_of_variables(load_dataset(tmp_path, kind))
        assert variables != bytes_of_variables(load_dataset(contents.folder, kind)), kind


# --- hyper-parameters that follow the stream


def test_a_run_says_that_the_first_hyper_parameters_were_kept(tmp_path):
    with collect_messages() as messages:
        run_identify(tmp_path, *SHORT_RUN, "training=adaptive", "training.interval=100000")
    text = "\n".join(messages)
    assert "The first hyper-parameters were kept; noise std" in text
    assert "estimated again" not in text


#: online samples between two checks whether the hyper-parameters are estimated again
CHECK_INTERVAL = 10
#: largest number of errors that such a check compares with the noise
MAX_CHECKED_ERRORS = 100


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A run whose hyper-parameters are estimated again while it learns."""
    folder = tmp_path_factory.mktemp("adapted")
    adaptive = (
        "training=adaptive",
        f"training.interval={CHECK_INTERVAL}",
        "training.significance=0.2",
        "learning=stored",
    )
    with collect_messages() as messages:
        run_identify(folder, *SHORT_RUN, *adaptive)
    result = load_dataset(folder, "result")
    return SimpleNamespace(
        folder=folder,
        messages=messages,
        result=result,
        summary=load_summary(folder),
        samples=result["estimate_sample"].values,
    )


def test_the_number_of_estimates_is_stated_and_logged(adapted):
    n_estimates = adapted.summary["n_estimates"]
    assert n_estimates > 0
    assert adapted.result.sizes["estimate"] == n_estimates
    (message,) = [message for message in adapted.messages if "estimated again" in message]
    assert f"again {n_estimates} times" in message


def test_estimates_are_made_at_the_interval_of_the_training(adapted):
    _, online, _ = phase_masks(adapted.result)
    assert online[adapted.samples].all()
    n_online = adapted.samples + 1 - N_INITIAL
    assert (n_online % CHECK_INTERVAL == 0).all()
    times = adapted.result["time"].values[adapted.samples]
    np.testing.assert_array_equal(adapted.result["estimate_time"].values, times)


def test_the_last_estimate_is_that_of_the_model(adapted):
    result = adapted.result
    hyperparameters = adapted.summary["hyperparameters"]
    noise_variance = Model.load(adapted.folder / "model.nc").gp.noise_variance
    assert result["estimate_noise_variance"].values[-1] == noise_variance
    assert hyperparameters["noise_variance"] == noise_variance
    length_scales = hyperparameters["kernel"]["length_scales"]
    assert list(length_scales) == result["feature"].values.tolist()
    last_length_scales = result["estimate_length_scale"].values[-1]
    np.testing.assert_allclose(last_length_scales, list(length_scales.values()), rtol=1e-12)


def test_the_seconds_of_the_estimates_are_summed_up(adapted):
    seconds = json.loads(adapted.result.attrs["estimate_seconds"])
    assert adapted.summary["times"]["adaptation"] == pytest.approx(sum(seconds))


def test_the_first_estimate_compares_the_errors_with_the_noise_of_the_training(adapted, trained):
    result = adapted.result
    n_learned = int(adapted.samples[0]) + 1
    n_errors = int(result["estimate_n_errors"][0])
    assert n_errors == min(n_learned - N_INITIAL, MAX_CHECKED_ERRORS)
    compared = slice(n_learned - n_errors, n_learned)
    squares = (result["target"] - result["mean"]).values[compared] ** 2
    standardised = squares / (result["variance"].values[compared] + trained.noise_variance)
    statistic = result["estimate_statistic"].values[0]
    assert statistic == pytest.approx(standardised.mean(), rel=1e-9)


# --- runs that end early, disks that are full

#: numbers of samples after which a run ends in each phase; a half of it is identified
N_SAMPLES_AT_END = {"initial": 10, "online": 60, "validation": SAMPLES_PER_DAY * DAYS // 2 + 30}


@pytest.mark.parametrize(
    ("phase", "error"),
    [
        pytest.param("initial", KeyboardInterrupt(), id="Ctrl-C in the initial samples"),
        pytest.param("online", KeyboardInterrupt(), id="Ctrl-C online"),
        pytest.param("online", np.linalg.LinAlgError("not positive definite"), id="bug online"),
        pytest.param("validation", ArithmeticError("the plant exploded"), id="bug in validation"),
    ],
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
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(Stopped) as stopped:
            run_identify(tmp_path, *SHORT_RUN)
        assert stopped.value.exit_code == 130
    else:
        with pytest.raises(type(error)) as raised:
            run_identify(tmp_path, *SHORT_RUN)
        assert raised.value is error, "a bug keeps its traceback"

    summary = load_summary(tmp_path)
    part = load_dataset(tmp_path, "result")
    n_initial, n_online, n_after = (int(mask.sum()) for mask in phase_masks(part))
    assert n_initial == summary["n_initial"]
    assert n_online == summary["n_seen"]
    assert n_after == summary["n_validation"]
    assert n_initial + n_online + n_after == n_samples - N_LAG_SAMPLES
    assert load_dataset(tmp_path, "trajectory").sizes["time"] == n_samples
    assert (n_online > 0) == (phase != "initial")
    assert (n_after > 0) == (phase == "validation")
    assert (summary["smse"] is None) == (phase != "validation")
    names = set(DATA_FILES)
    if phase == "initial":
        names.remove("model")
    assert {path.stem for path in tmp_path.glob("*.nc")} == names
    for name in names:
        assert load_dataset(tmp_path, name).attrs["partial"] == 1, name
    whole = load_dataset(finished, "result")
    for name in part.data_vars:
        beginning = whole[name].values[: len(part[name])]
        np.testing.assert_array_equal(part[name], beginning)


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
    """Files may not grow beyond a limit: the summary and the model are smaller, the others not."""
    budget = 10
    overrides = (*SHORT_RUN, f"budget={budget}", "duration=60d")
    whole = run_identify(tmp_path / "whole", *overrides)
    sizes = {path.name: path.stat().st_size for path in whole.iterdir()}
    small_files = {"summary.json", "model.nc"}
    large_files = {"trajectory.nc", "narx.nc", "result.nc"}
    largest_small_size = max(sizes[name] for name in small_files)
    smallest_large_size = min(sizes[name] for name in large_files)
    limit = (largest_small_size + smallest_large_size) // 2
    assert largest_small_size < limit < smallest_large_size, sizes
    full = tmp_path / "full"
    with (
        limit_file_size(limit),
        pytest.raises(store.StoreError, match="File too large") as caught,
    ):
        run_identify(full, *overrides)
    for name in large_files:
        assert str(full / name) in str(caught.value)
    assert {path.name for path in full.iterdir()} == small_files
    assert Model.load(full / "model.nc").gp.n_points == budget
    assert load_summary(full)["partial"] is False


def test_files_of_a_folder_that_vanishes_are_named(tmp_path):
    with pytest.raises(store.StoreError) as caught:
        identify.run(compose_configuration(*SMALLEST_RUN, "duration=1d"), tmp_path / "gone")
    for name in ("summary.json", *(f"{kind}.nc" for kind in DATA_FILES)):
        assert str(tmp_path / "gone" / name) in str(caught.value)


@pytest.mark.parametrize(
    ("second_process_fails", "n_drawn_here"),
    [(False, 2), (True, 5)],
    ids=["second process", "second process fails"],
)
def test_a_second_process_draws_half_of_the_figures_and_this_one_the_rest(
    second_process_fails, n_drawn_here, tmp_path, monkeypatch
):
    """The figures of a model with a linear part, which has one more."""
    this_process = os.getpid()

    def write_process_number(figure):
        is_second_process = os.getpid() != this_process
        if is_second_process and second_process_fails:
            raise AssertionError("the second process fails")
        return str(os.getpid()).encode()

    monkeypatch.setattr(style, "png", write_process_number)
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    run_identify(tmp_path, *SMALLEST_RUN, "duration=1d", "figures=true")
    processes = [int(path.read_text()) for path in tmp_path.glob("*.png")]
    assert len(processes) == len(FIGURE_NAMES) + 1
    assert processes.count(this_process) == n_drawn_here


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
def test_a_poor_score_and_a_wrong_coverage_are_warned_of(score, coverage, expected):
    summary = {
        "smse": score,
        "smse_no_change": 1.0,
        "coverage_95": coverage,
        "n_validation": 500,
    }
    warnings = _quality_warnings(summary)
    assert len(warnings) == len(expected)
    for words, warning in zip(expected, warnings, strict=True):
        assert words in warning


def test_a_candidate_that_was_not_simulated_is_not_called_divergent():
    tried = [
        {"route": "A", "held_out_rmse": None, "refusal": "A: the pole"},
        {"route": "B", "held_out_rmse": None, "folds": [1.0], "refusal": ""},
        {"route": "B", "held_out_rmse": 0.5, "folds": [1.0], "refusal": ""},
        {"route": "C", "held_out_rmse": None, "refusal": ""},
        {"route": "C", "held_out_rmse": 0.7, "folds": [1.0], "refusal": "", "is_quick": True},
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
    assert _describe_training(summary, result)[:5] == [
        "Tried A: not taken; the pole",
        "Tried B: RMSE diverges in free run on 1 held-out fold",
        "Tried B: RMSE 0.5 V in free run on 1 held-out fold",
        "Tried C: not compared, as the time was up",
        "Tried C (quick version): RMSE 0.7 V in free run on 1 held-out fold",
    ]


# --- quality over five seeds

SEEDS = range(5)
N_POINTS_FULL_GP = 2000


def smse_of_full_gp(folder):
    """Return the SMSE of a GP with the run's hyper-parameters and far more points.

    The points are spread evenly over the identified part.
    """
    model = Model.load(folder / "model.nc")
    rows = load_dataset(folder, "narx")
    initial, online, after = phase_masks(load_dataset(folder, "result"))
    n_identified = (initial | online).sum()
    chosen = np.linspace(0, n_identified - 1, N_POINTS_FULL_GP).astype(int)
    z = model.scaling.transform(rows["regressor"].values)
    y = rows["target"].values
    kernel = model.gp.kernel
    covariance = kernel(z[chosen], z[chosen])
    noisy = covariance + model.gp.noise_variance * np.eye(len(chosen))
    weights = np.linalg.solve(noisy, y[chosen] - model.mean.value)
    mean = kernel(z[after], z[chosen]) @ weights
    return smse(y[after], mean + model.mean.value)


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    """Folders of the default year for every seed."""
    folder = tmp_path_factory.mktemp("years")
    return [run_identify(folder / str(seed), f"seed={seed}", "figures=false") for seed in SEEDS]


def median_over_seeds(years, key):
    """Return the median over the seeds of a number in the summary."""
    return float(np.median([load_summary(folder)[key] for folder in years]))


@pytest.mark.slow
def test_online_learning_at_least_halves_the_error(years):
    no_change = median_over_seeds(years, "smse_no_change")
    initial_model = median_over_seeds(years, "smse_initial")
    assert median_over_seeds(years, "smse") <= 0.5 * min(no_change, initial_model)


@pytest.mark.slow
def test_the_error_is_close_to_that_of_a_full_gp(years):
    smse_full_gp = float(np.median([smse_of_full_gp(folder) for folder in years]))
    assert median_over_seeds(years, "smse") <= 1.3 * smse_full_gp


@pytest.mark.slow
def test_bands_of_95_percent_cover_about_95_percent(years):
    assert 0.85 <= median_over_seeds(years, "coverage_95") <= 0.99


# --- lean runs: one file, with the bits of all files of a full run

LEAN = "outputs=lean"
#: by default a multirun has a cache below the current folder
WITHOUT_CACHE = "cache=null"
VALIDATION_FILES = {"validation.json", "validation.nc"}


def assert_same_bits(lean_folder, full_folder, output=""):
    """Check that the record and the model in job.nc have bits and attributes of the full files."""
    group_suffix = f"/{output}" if output else ""
    record = load_dataset(lean_folder, "job", f"record{group_suffix}")
    result = load_dataset(full_folder / output, "result")
    assert bytes_of_variables(record) == bytes_of_variables(result)
    for name, variable in result.variables.items():
        assert str(record[name].attrs) == str(variable.attrs)
    lean_model = load_dataset(lean_folder, "job", f"model{group_suffix}")
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
    assert_same_bits(lean, finished)
    summary = read_summary(lean / JOB_FILE)
    assert without_times(summary) == without_times(load_summary(finished))
    groups = list(store.read_attributes(lean / JOB_FILE, kind="job"))
    assert groups == ["", "summary", "record", "model"]


def test_the_numbers_of_a_summary_are_variables_of_the_job_file(lean):
    summary = read_summary(lean / JOB_FILE)
    numbers = load_dataset(lean, "job", "summary")
    assert set(numbers.data_vars) == set(SUMMARY_VARIABLES)
    assert set(SUMMARY_VARIABLES) <= set(SUMMARY_NUMBERS)
    for name, variable in numbers.data_vars.items():
        assert variable.shape == ()
        assert variable.item() == summary[name]
        _, long_name = SUMMARY_NUMBERS[name]
        assert variable.attrs["long_name"] == long_name
    assert numbers["rmse"].attrs["units"] == "K"
    assert numbers["mean_variance"].attrs["units"] == "K2"


@pytest.fixture(scope="module")
def one_output(record, tmp_path_factory):
    """Folders of a lean and a full run of one output, whose hyper-parameters follow the stream."""
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
    """Six regressors, and the prediction of the full run's model there."""
    x = np.random.default_rng(0).normal(size=(6, 2))
    return x, Model.load(one_output.full / "model.nc").predict(x)


def test_a_lean_run_of_a_record_has_the_bits_of_a_full_one(one_output):
    assert load_dataset(one_output.lean, "job", "record").sizes["estimate"] > 0
    assert_same_bits(one_output.lean, one_output.full)
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
    data_overrides = [override for override in record if override.startswith("data")]
    overrides = (
        f"model={one_output.lean / JOB_FILE}",
        *data_overrides,
        ONE_OUTPUT,
        "figures=false",
        "propagation=mean_only",
        "horizons=[1]",
    )
    configuration = compose_configuration(*overrides, command="validate")
    rmse = read_summary(one_output.lean / JOB_FILE)["free_run"]["rmse"]
    assert validation.run(configuration, tmp_path) == pytest.approx(rmse, rel=1e-12)


def test_a_bug_in_the_joint_free_run_keeps_the_model_of_every_output(monkeypatch, record, tmp_path):
    def fail(*arguments, **options):
        raise IndexError

    monkeypatch.setattr(identify, "validate_on_test", fail)
    with pytest.raises(IndexError):
        run_identify(tmp_path, *record, *BOTH_OUTPUTS, LEAN)
    assert list_files(tmp_path) == {JOB_FILE}
    summaries = read_summary(tmp_path / JOB_FILE).values()
    assert [summary["n_points"] for summary in summaries] == [15, 15]


class TestMultirun:
    """A run in a multirun writes one file, and with `outputs=full` also those of a full run."""

    @pytest.fixture(autouse=True)
    def in_multirun(self, monkeypatch):
        """Let a run find itself in a multirun."""
        monkeypatch.setattr(identify, "is_multirun", lambda: True)

    def test_a_run_of_one_output_is_lean_by_default(self, record, tmp_path):
        run_identify(tmp_path, *record, ONE_OUTPUT, "narx.target=all", WITHOUT_CACHE)
        assert list_files(tmp_path) == {JOB_FILE}

    def test_full_outputs_of_one_output_lie_beside_the_job_file(self, record, tmp_path):
        run_identify(tmp_path, *record, ONE_OUTPUT, "outputs=full", WITHOUT_CACHE)
        files = {f"{kind}.nc" for kind in DATA_FILES} | {"summary.json"}
        assert list_files(tmp_path) == files | VALIDATION_FILES | {JOB_FILE}
        stored_summary = load_dataset(tmp_path, "job", "summary").attrs["summary"]
        assert stored_summary == (tmp_path / "summary.json").read_text()
        assert_same_bits(tmp_path, tmp_path)

    def test_full_outputs_of_two_outputs_lie_beside_the_job_file(self, record, tmp_path):
        run_identify(tmp_path, *record, *BOTH_OUTPUTS, "outputs=full", WITHOUT_CACHE)
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
def test_the_joint_model_predicts_every_output_as_its_own_model_does(number, output, two_outputs):
    x = np.random.default_rng(0).normal(size=(5, 3))
    expected = Model.load(two_outputs.full / output / "model.nc").predict(x)
    for path in (two_outputs.full / "model.nc", two_outputs.lean / JOB_FILE):
        model = JointModel.load(path).models[number]
        np.testing.assert_array_equal(model.predict(x), expected)


@pytest.mark.parametrize("output", ["y", "z"])
def test_every_output_of_a_lean_run_has_the_bits_of_the_full_one(output, two_outputs):
    assert_same_bits(two_outputs.lean, two_outputs.full, output)


@pytest.mark.parametrize("output", ["y", "z"])
def test_the_summary_of_an_output_has_its_part_of_the_joint_free_run(output, two_outputs):
    summary = read_summary(two_outputs.lean / JOB_FILE)[output]
    validation_file = json.loads((two_outputs.full / "validation.json").read_text())
    assert summary["free_run"] == validation_file["free_run"][output]
    assert set(validation_file["warnings"]) <= set(summary["warnings"])
    assert without_times(summary) == without_times(load_summary(two_outputs.full / output))


@pytest.mark.parametrize("output", ["y", "z"])
def test_every_output_is_compared_with_linear_models(output, two_outputs):
    summary = read_summary(two_outputs.lean / JOB_FILE)[output]
    same_lags, best = summary["linear"].values()
    na = best["na"]
    nb = best["nb"]
    nk = best["nk"]
    free_run_rmse = summary["free_run"]["rmse"]
    linear_rmse = best["free_run_rmse"]
    window = max(summary["free_run"]["window"], na, nb + nk - 1)
    # the signals of the fixture `record`
    estimation = coupled_signals(60, 2)
    test = coupled_signals(30, 5)
    estimation_pair = (estimation["u"][:, None], estimation[output])
    test_pair = (test["u"][:, None], test[output])
    _, expected_rmse = naive_arx(estimation_pair, test_pair, na, nb, nk, window)
    assert same_lags["free_run_rmse"] is None
    assert linear_rmse == pytest.approx(expected_rmse)
    is_clearly_worse = free_run_rmse > 1.01 * linear_rmse
    assert has_warning(summary, "predicts better in free run") == is_clearly_worse


@pytest.mark.parametrize("output", ["y", "z"])
def test_the_linear_model_of_equal_lags_of_an_output_has_lags_of_all_outputs(output, two_outputs):
    summary = read_summary(two_outputs.lean / JOB_FILE)[output]
    order = summary["linear_lags"]["after_stream"]
    learned = {name: coupled_signals(60, 2)[name] for name in ("y", "z", "u")}
    signals = coupled_signals(30, 5)
    # signals are taken to have been constant before the start of a record
    constant_before = {name: np.pad(signals[name], (12, 0), mode="edge") for name in learned}
    narx = Narx({"y": order, "z": order}, {"u": order}, output)
    line = LinearArx.fit(narx, make_record(learned, name="", sampling_time=1.0))
    rows = narx.dataset(make_record(constant_before, name="", sampling_time=1.0))
    n = summary["n_validation"]
    error = (rows["target"].values - line.one_step(rows))[-n:]
    expected = np.mean(error**2) / np.var(rows["target"].values[-n:])
    assert summary["smse_linear"] == pytest.approx(expected, rel=1e-6)


def test_a_full_disk_leaves_no_file(record, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(store.StoreError, match=r"could not write .*job\.nc .*No space left"):
        run_identify(tmp_path, *record, ONE_OUTPUT, LEAN)
    assert not list_files(tmp_path)


@pytest.mark.parametrize(
    "load",
    [read_summary, Model.load, JointModel.load],
    ids=["summary", "model", "joint model"],
)
@pytest.mark.parametrize("fraction", [0.0, 0.9999], ids=["empty", "end missing"])
def test_a_truncated_file_is_refused(fraction, load, lean, tmp_path):
    content = (lean / JOB_FILE).read_bytes()
    path = tmp_path / JOB_FILE
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(store.StoreError, match=r"job\.nc"):
        load(path)


def test_a_file_with_a_changed_byte_is_refused(lean, tmp_path):
    content = (lean / JOB_FILE).read_bytes()
    changed = content.replace(b'"smse": 0', b'"smse": 7', 1)
    assert changed != content
    path = tmp_path / JOB_FILE
    path.write_bytes(changed)
    with pytest.raises(store.StoreError, match=r"damaged|truncated"):
        read_summary(path)


def test_a_file_with_an_edited_summary_is_refused(lean, tmp_path):
    groups = store.read_groups(lean / JOB_FILE, kind="job")
    edited = read_summary(lean / JOB_FILE) | {"smse": 0.001}
    groups["summary"].attrs["summary"] = json.dumps(edited)
    store.write_groups(groups, tmp_path / JOB_FILE, kind="job")
    with pytest.raises(store.StoreError, match="damaged or was edited"):
        read_summary(tmp_path / JOB_FILE)
