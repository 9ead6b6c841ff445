"""The identification: collect, train, predict, learn; blocks; prior knowledge; bands of records."""

import signal
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr

from naive import CRITERIA, criterion_name
from streams import (
    FIXED_TRAINING,
    LARGEST_LAG,
    NARX,
    QUICK_TRAINING,
    RULES,
    SAMPLING_TIME,
    assert_same,
    bits,
    record,
    rows_of,
    run,
)
from sysid import (
    Adaptive,
    ConstantMean,
    ExceedsMinimum,
    Fixed,
    Hyperparameters,
    Identification,
    MaximumLikelihood,
    Narx,
    OnlineGP,
    Scaling,
    Settings,
    SquaredExponential,
    Start,
)
from sysid.gp.dictionary import NOT_PREDICTED

N_INITIAL = QUICK_TRAINING.n_initial
ADAPTIVE_TRAINING = Adaptive(
    n_initial=N_INITIAL,
    restarts=1,
    interval=10,
    window=20,
    sample_size=15,
    significance=0.5,
)
EACH_TRAINING = pytest.mark.parametrize(
    "training", [QUICK_TRAINING, ADAPTIVE_TRAINING], ids=["once", "adaptive"]
)


# --- collect, train, learn ------------------------------------------------------------------------


def test_nothing_is_predicted_before_the_training():
    y, u = record(LARGEST_LAG + N_INITIAL - 1)
    reports, _, _, _ = run(NARX, Settings(training=QUICK_TRAINING), y, u)
    assert_same(reports, np.repeat(NOT_PREDICTED, N_INITIAL - 1))


@pytest.fixture(scope="module")
def run_of_80():
    """Return record, rows, identification and window of a stream of 80 samples."""
    settings = Settings(training=QUICK_TRAINING, budget=15, seed=3, **RULES)
    return run(NARX, settings, *record(80))


def test_rows_are_those_of_the_lag_data_set(run_of_80):
    _, rows, _, window = run_of_80
    times, x, target = rows_of(*record(80))
    np.testing.assert_array_equal(SAMPLING_TIME * rows.sample, times)
    np.testing.assert_array_equal(rows.regressor, x)
    np.testing.assert_array_equal(rows.target, target)
    assert window.n_missing == 0
    assert window.n_skipped == 0


def test_training_sees_exactly_the_initial_samples(run_of_80):
    reports, _, identification, _ = run_of_80
    _, x, target = rows_of(*record(80))
    first_x = x[:N_INITIAL]
    first_target = target[:N_INITIAL]
    scaling = Scaling.fit(first_x)
    mean = first_target.mean()
    assert identification.model.scaling == scaling
    assert identification.model.mean == ConstantMean(mean)
    trained = QUICK_TRAINING.train(scaling.transform(first_x), first_target - mean, 3)
    assert identification.hyperparameters == trained
    assert identification.training_seconds > 0
    n_predicted = len(target) - N_INITIAL
    is_missing = np.isnan(reports["mean"]).tolist()
    assert is_missing == [True] * N_INITIAL + [False] * n_predicted
    assert reports["n_points"][:N_INITIAL].tolist() == [0] * (N_INITIAL - 1) + [N_INITIAL]


def test_the_loop_is_the_online_gp_on_the_lag_data_set(run_of_80):
    reports, _, identification, _ = run_of_80
    _, x, target = rows_of(*record(80))
    model = identification.model
    z = model.scaling.transform(x)
    centred = target - target[:N_INITIAL].mean()
    gp = OnlineGP(
        identification.hyperparameters.kernel,
        noise_variance=identification.hyperparameters.noise_variance,
        budget=15,
        learning="every_sample",
        **RULES,
    )
    gp.fit(z[:N_INITIAL], centred[:N_INITIAL])
    np.testing.assert_equal(identification.initial.gp.state(), gp.state())  # does not learn
    for k in range(N_INITIAL, len(target)):
        report = gp.update(z[k], centred[k])
        expected = report._replace(mean=report.mean + model.mean.value)
        np.testing.assert_equal(reports[k].item(), tuple(expected))
    np.testing.assert_equal(model.gp.state(), gp.state())


def test_a_failed_training_is_tried_again_with_the_next_sample():
    n_samples_of_trainings = []

    class FailingTraining(MaximumLikelihood):
        """A training that fails with fewer than 14 samples."""

        def train(self, inputs, targets, seed):
            n_samples_of_trainings.append(len(targets))
            if len(targets) < 14:
                raise np.linalg.LinAlgError("not yet")
            return super().train(inputs, targets, seed)

    _, x, target = rows_of(*record(30))
    training = FailingTraining(n_initial=12, restarts=1)
    identification = Identification(NARX, Settings(training=training, budget=15))
    for k in range(11):
        identification.observe(x[k], target[k])
    for k in (11, 12):
        with pytest.raises(np.linalg.LinAlgError):
            identification.observe(x[k], target[k])
    identification.observe(x[13], target[13])
    assert n_samples_of_trainings == [12, 13, 14]
    assert identification.model is not None


# --- fixed hyper-parameters and prior knowledge ---------------------------------------------------


def test_fixed_training_starts_empty():
    identification = Identification(NARX, Settings(training=FIXED_TRAINING))
    assert identification.model.gp.n_points == 0
    prediction = identification.model.predict(np.zeros((1, 3)))
    assert prediction.variance[0] == pytest.approx(1.0)


def test_fixed_training_predicts_from_the_first_row_on():
    settings = Settings(training=FIXED_TRAINING, budget=10)
    reports, _, identification, _ = run(NARX, settings, *record(30))
    assert reports["mean"][0] == 0.0
    assert reports["variance"][0] == pytest.approx(1.0)
    assert reports["n_points"].tolist() == [min(k + 1, 10) for k in range(28)]
    assert identification.initial.gp.n_points == 0
    assert identification.model.scaling == Scaling.identity(3)
    assert identification.model.mean.value == 0.0


def test_fixed_training_may_start_from_initial_samples_and_scales_nothing():
    training = Fixed(variance=1.0, length_scales=[1.0, 2.0, 3.0], noise_variance=0.01, n_initial=5)
    y, u = record(30)
    reports, _, identification, _ = run(NARX, Settings(training=training, budget=10), y, u)
    assert np.isnan(reports["mean"][:6]).tolist() == [True] * 5 + [False]
    _, x, _ = rows_of(y, u)
    np.testing.assert_array_equal(identification.initial.gp.inputs, x[:5])
    assert identification.model.gp.kernel.length_scales == (1.0, 2.0, 3.0)
    assert identification.model.scaling == Scaling.identity(3)
    assert identification.model.mean.value == 0.0


SCALING = Scaling(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
MEAN = ConstantMean(0.25)


def assert_starts_with(start, mean, hyperparameters):
    """An identification with this start has this mean and these hyper-parameters."""
    _, x, target = rows_of(*record(60))
    settings = Settings(training=QUICK_TRAINING, budget=20, gate=None)
    identification = Identification(NARX, settings, start=start)
    identification.observe_many(x, target)
    for model in (identification.initial, identification.model):
        assert model.scaling == SCALING
        assert model.mean == mean
        assert model.gp.kernel == hyperparameters.kernel
        assert model.gp.noise_variance == hyperparameters.noise_variance
    assert identification.hyperparameters == hyperparameters
    initial = identification.initial.gp
    np.testing.assert_array_equal(initial.inputs, SCALING.transform(x[:N_INITIAL]))
    np.testing.assert_array_equal(initial.targets, target[:N_INITIAL] - mean.value)


def test_everything_that_is_known_beforehand_is_used():
    kernel = SquaredExponential(0.7, [1.0, 2.0, 3.0])
    hyperparameters = Hyperparameters(kernel, 0.03, 0.0)
    start = Start(SCALING, MEAN, hyperparameters)
    assert_starts_with(start, MEAN, hyperparameters)


def test_what_is_not_known_follows_from_the_initial_samples():
    _, x, target = rows_of(*record(60))
    first = target[:N_INITIAL]
    mean = ConstantMean(first.mean())
    z = SCALING.transform(x[:N_INITIAL])
    hyperparameters = QUICK_TRAINING.train(z, first - mean.value, 0)
    assert_starts_with(Start(SCALING), mean, hyperparameters)


def test_a_known_mean_is_used_with_fixed_training():
    settings = Settings(training=FIXED_TRAINING)
    model = Identification(NARX, settings, start=Start(mean=MEAN)).model
    assert model.scaling == Scaling.identity(3)
    assert model.mean == MEAN


# --- blocks of rows -------------------------------------------------------------------------------

N_SAMPLES = 70
N_ROWS = N_SAMPLES - LARGEST_LAG
JUMP_ROW = 49  # the last row of one of the blocks
EACH_CRITERION = pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
RANDOM_CUTS = np.random.default_rng(1).integers(0, N_ROWS, 9)


def settings_with(criterion, training):
    """Return settings that reduce and accept by this criterion."""
    return Settings(
        training=training,
        budget=15,
        reduction=criterion,
        acceptance=ExceedsMinimum(criterion),
        seed=2,
    )


@cache
def rows_with_a_jump():
    """Return regressors and targets of a record whose output jumps.

    The row of the jump is held back as a possible outlier, and learned with the next one.
    """
    y, u = record(N_SAMPLES)
    y[JUMP_ROW + LARGEST_LAG :] += 3.0
    _, x, target = rows_of(y, u)
    return x, target


@cache
def observe_one_by_one(criterion, training):
    """Return the identification, the reports of single rows, and the rows that were corrected.

    All rows are given in one buffer.
    """
    x, target = rows_with_a_jump()
    identification = Identification(NARX, settings_with(criterion, training))
    buffer = np.zeros(3)
    reports = []
    corrected_rows = []
    for k in range(len(target)):
        buffer[:] = x[k]
        report = identification.observe(buffer, target[k])
        if identification.correction is not None:
            reports[-1] = identification.correction
            corrected_rows.append(k - 1)
        reports.append(report)
    return identification, reports, corrected_rows


def observe_in_blocks(identification, cuts):
    """Return the reports of blocks, whose arrays are overwritten afterwards."""
    x, target = rows_with_a_jump()
    blocks = []
    for x_block, target_block in zip(np.split(x, cuts), np.split(target, cuts), strict=True):
        x_buffer = x_block.copy()
        target_buffer = target_block.copy()
        reports = identification.observe_many(x_buffer, target_buffer)
        x_buffer[:] = 7.0
        target_buffer[:] = 7.0
        if identification.correction is not None:
            blocks[-1][-1] = identification.correction
        if len(reports):
            blocks.append(reports)
    return np.concatenate(blocks)


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param((), id="one block"),
        pytest.param((0, 5, 13, 22, 23, 50), id="blocks"),
        pytest.param(np.sort(RANDOM_CUTS), id="random blocks"),
    ],
)
@EACH_TRAINING
@EACH_CRITERION
def test_many_rows_at_once_give_the_bits_of_one_by_one(criterion, training, cuts):
    one_by_one, expected, _ = observe_one_by_one(criterion, training)
    in_blocks = Identification(NARX, settings_with(criterion, training))
    reports = observe_in_blocks(in_blocks, cuts)
    for report, expected_report in zip(reports[N_INITIAL:], expected[N_INITIAL:], strict=True):
        np.testing.assert_equal(report.item(), tuple(expected_report))
    np.testing.assert_equal(bits(in_blocks), bits(one_by_one))


@EACH_TRAINING
@EACH_CRITERION
def test_there_is_a_report_for_every_row_after_the_initial_ones(criterion, training):
    _, reports, _ = observe_one_by_one(criterion, training)
    has_no_report = [report is None for report in reports]
    assert has_no_report == [True] * N_INITIAL + [False] * (N_ROWS - N_INITIAL)


@EACH_TRAINING
@EACH_CRITERION
def test_a_row_that_was_held_back_is_corrected_with_the_next_one(criterion, training):
    _, _, corrected_rows = observe_one_by_one(criterion, training)
    assert JUMP_ROW in corrected_rows


@EACH_CRITERION
def test_an_adaptive_training_estimates_while_rows_come(criterion):
    identification, _, _ = observe_one_by_one(criterion, ADAPTIVE_TRAINING)
    assert identification.adaptation.estimates


@EACH_TRAINING
def test_a_block_with_a_bad_row_is_refused_before_anything_is_collected_or_learned(training):
    _, x, target = rows_of(*record(60))
    bad_target = np.append(target[20:-1], np.nan)
    settings = Settings(training=training, budget=20)
    identification = Identification(NARX, settings)
    undisturbed = Identification(NARX, settings)
    for block in (slice(5), slice(5, 20), slice(20, 30)):
        identification.observe_many(x[block], target[block])
        undisturbed.observe_many(x[block], target[block])
        with pytest.raises(ValueError, match="targets"):
            identification.observe_many(x[20:], bad_target)
        with pytest.raises(ValueError, match="regressors"):
            identification.observe_many(x[20:, :2], target[20:])
    np.testing.assert_equal(bits(identification), bits(undisturbed))


def test_an_interrupted_estimate_leaves_the_model_as_it_was(monkeypatch):
    _, x, target = rows_of(*record(80))
    identification = Identification(NARX, Settings(training=ADAPTIVE_TRAINING, budget=20))
    identification.observe_many(x[:N_INITIAL], target[:N_INITIAL])

    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(OnlineGP, "with_hyperparameters", interrupt)
    model = identification.model
    with pytest.raises(KeyboardInterrupt):
        identification.observe_many(x[N_INITIAL:], target[N_INITIAL:])
    assert identification.model is model
    assert identification.adaptation.estimates == []
    assert np.isfinite(model.predict(x).mean).all()


# --- records --------------------------------------------------------------------------------------

SETTINGS = Settings(training=QUICK_TRAINING, budget=15, **RULES)


def data_set(n):
    """Return a record of n samples as a data set."""
    y, u = record(n)
    time = SAMPLING_TIME * np.arange(n)
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": time})


def test_one_call_identifies_records():
    settings = replace(SETTINGS, seed=3)
    at_once = Identification.of_records(data_set(80), NARX, settings, start=Start())
    _, _, as_stream, _ = run(NARX, settings, *record(80))
    np.testing.assert_equal(bits(at_once), bits(as_stream))


def test_records_are_known_beforehand_unless_a_start_is_given():
    settings = replace(SETTINGS, seed=3)
    data = data_set(80)
    rows = NARX.dataset(data)
    x = rows["regressor"].values
    known = QUICK_TRAINING.know(x, rows["target"].values, mean=settings.mean, seed=3)
    by_default = Identification.of_records(data, NARX, settings)
    with_start = Identification.of_records(data, NARX, settings, start=known)
    np.testing.assert_equal(bits(by_default), bits(with_start))


def test_a_record_with_too_few_rows_for_the_training_is_refused():
    with pytest.raises(ValueError, match=r"n_initial is 12.*8 rows"):
        Identification.of_records(data_set(8 + LARGEST_LAG), NARX, SETTINGS)


def standardised_errors_by_fold(model, x, target):
    """Return errors one step ahead of five models that each learn from four fifths of the rows."""
    hyperparameters = Hyperparameters(model.gp.kernel, model.gp.noise_variance, np.nan)
    known = Start(model.scaling, model.mean, hyperparameters)
    settings = replace(SETTINGS, training=replace(QUICK_TRAINING, n_initial=15))
    errors = []
    bounds = np.linspace(0, len(target), 6).astype(int)
    for begin, end in pairwise(bounds):
        of_rest = Identification(NARX, settings, start=known)
        for k in range(len(target)):
            if not begin <= k < end:
                of_rest.observe(x[k], target[k], follows=k not in (0, end))
        error = target[begin:end] - of_rest.model.predict(x[begin:end]).mean
        variance = model.predict(x[begin:end]).variance
        errors.append(error / np.sqrt(variance + model.gp.noise_variance))
    return np.concatenate(errors)


def test_bands_are_measured_on_folds_that_were_not_learned():
    model = Identification.of_records(data_set(160), NARX, SETTINGS).model
    _, x, target = rows_of(*record(160))
    error = np.abs(standardised_errors_by_fold(model, x, target))
    median, quantile_95 = np.quantile(error, [0.5, 0.95])
    expected = np.sqrt(median / 0.67449 * quantile_95 / 1.95996)
    assert model.bands[0] == (1, pytest.approx(expected, rel=1e-4))
    assert horizons_of(model) == [1, 3, 10, 30]


def horizons_of(model):
    """Return the horizons for which the model has bands."""
    return [horizon for horizon, _ in model.bands]


def test_a_model_that_forgets_has_no_bands():
    settings = replace(SETTINGS, forgetting=50.0)
    model = Identification.of_records(data_set(160), NARX, settings).model
    assert model.bands == ()


def test_a_model_of_two_points_has_bands():
    training = replace(QUICK_TRAINING, n_initial=2)
    settings = replace(SETTINGS, budget=2, training=training)
    model = Identification.of_records(data_set(160), NARX, settings).model
    assert model.bands


def test_a_record_of_fewer_than_100_rows_has_no_bands():
    model = Identification.of_records(data_set(99), NARX, SETTINGS).model
    assert model.bands == ()


def test_without_lagged_outputs_every_horizon_is_one_step():
    narx = Narx({"y": []}, {"u": [1, 2]}, predict="value")
    model = Identification.of_records(data_set(160), narx, SETTINGS).model
    assert horizons_of(model) == [1]
