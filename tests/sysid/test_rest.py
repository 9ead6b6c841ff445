"""Streams and records that begin at rest."""

from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
import xarray as xr

from sysid import (
    Fixed,
    Identification,
    Model,
    Narx,
    Settings,
    Start,
    UserError,
)

NARX = Narx({"y": 2}, {"u": 2}, predict="change")
SETTINGS = Settings(budget=50, linear_part="none")
WITH_LINEAR_PART = replace(SETTINGS, linear_part="auto")
N_EXCITED = 1200
N_SCORED = 300  # last samples
#: errors that are negligible beside the output, whose std is 1.4; which one is smaller is chance
NEGLIGIBLE_RMSE = 1e-5


#: standard deviation of the noise of the output and of the input, and the resolution of the output
MEASUREMENTS = {
    "noise-free": (0.0, 0.0, None),
    "noisy": (0.002, 0.0, None),
    "very noisy": (0.1, 0.0, None),
    "noisy input": (0.01, 0.01, None),
    "quantised": (0.0, 0.0, 0.006),
    "noisy and quantised": (0.002, 0.0, 0.01),
}


def measure(n_at_rest, measurement, *, seed=0, level=0.0):
    """Return the measured output and input of a plant that is excited after a rest."""
    output_noise, input_noise, resolution = MEASUREMENTS[measurement]
    excitation = np.random.default_rng(seed).normal(size=N_EXCITED)
    u = np.concatenate([np.zeros(n_at_rest), excitation])
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1])
    rng = np.random.default_rng(seed + 1)
    y = level + y + output_noise * rng.normal(size=len(y))
    u = u + input_noise * rng.normal(size=len(u))
    if resolution is not None:
        y = np.round(y / resolution) * resolution
    return y, u


def rows_of(n_at_rest, measurement, narx=NARX, **kwargs):
    y, u = measure(n_at_rest, measurement, **kwargs)
    return narx.regressors({"y": y, "u": u})


def first_rows(rows, n):
    """Return the first n rows."""
    return rows._replace(regressor=rows.regressor[:n], target=rows.target[:n])


def identify(rows, settings=SETTINGS, narx=NARX):
    """Return an identification of these rows, and its records."""
    identification = Identification(narx, settings)
    records = identification.observe_many(rows.regressor, rows.target)
    return identification, records


def score(rows, mean, variance, noise_variance):
    """Return the RMSE of the last samples, and which fraction is within the 95 % band."""
    error = (rows.target - mean)[-N_SCORED:]
    half_width = 1.96 * np.sqrt(variance[-N_SCORED:] + noise_variance)
    return np.sqrt(np.mean(error**2)), np.mean(np.abs(error) <= half_width)


@cache
def identified_stream(n_at_rest, measurement, settings):
    """Return rows, their identification, which nobody may change, and its records."""
    narx = settings.with_linear_lags(NARX)
    rows = rows_of(n_at_rest, measurement, narx)
    return rows, *identify(rows, settings, narx)


@cache
def score_stream(n_at_rest, measurement, settings):
    rows, identification, records = identified_stream(n_at_rest, measurement, settings)
    noise_variance = identification.model.gp.noise_variance
    return score(rows, records["mean"], records["variance"], noise_variance)


@cache
def score_record(n_at_rest, measurement, settings):
    y, u = measure(n_at_rest, measurement)
    n_learned = len(y) - N_SCORED
    signals = {"y": ("time", y[:n_learned]), "u": ("time", u[:n_learned])}
    record = xr.Dataset(signals, {"time": np.arange(float(n_learned))})
    identification = Identification.of_records(record, NARX, settings)
    model = identification.model
    rows = model.narx.regressors({"y": y, "u": u})
    predicted = model.predict(rows.regressor)
    return score(rows, predicted.mean, predicted.variance, model.gp.noise_variance)


# --- errors and bands -----------------------------------------------------------------------------


def assert_a_rest_costs_little(score_identified, n_at_rest, measurement, settings):
    rmse_without, _ = score_identified(0, measurement, settings)
    rmse, coverage = score_identified(n_at_rest, measurement, settings)
    assert rmse < 2 * max(rmse_without, NEGLIGIBLE_RMSE)
    assert coverage > 0.88


#: for both ways to identify: the rest of each measurement that the default tests have
RESTS = {
    score_stream: {
        "noise-free": 1000,
        "noisy": 1000,
        "very noisy": 90,
        "noisy input": 300,
        "quantised": 300,
        "noisy and quantised": 90,
    },
    score_record: {"noisy": 300, "very noisy": 1000},
}
LINEAR_PARTS = [(score_stream, "noisy"), (score_record, "noise-free")]


def cases(arguments, default):
    """Return cases of a test, of which those that are not default are slow."""
    return [
        pytest.param(*case, marks=() if case in default else pytest.mark.slow)
        for case in product(*arguments)
    ]


@pytest.mark.parametrize(
    ("score_identified", "measurement", "n_at_rest"),
    cases(
        [RESTS, MEASUREMENTS, [90, 300, 1000]],
        [(score, *rest) for score, rests in RESTS.items() for rest in rests.items()],
    ),
)
def test_a_rest_costs_little(score_identified, measurement, n_at_rest):
    assert_a_rest_costs_little(score_identified, n_at_rest, measurement, SETTINGS)


@pytest.mark.parametrize(
    ("score_identified", "measurement"), cases([RESTS, ["noise-free", "noisy"]], LINEAR_PARTS)
)
def test_a_rest_costs_a_model_with_a_linear_part_little(score_identified, measurement):
    assert_a_rest_costs_little(score_identified, 1000, measurement, WITH_LINEAR_PART)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SETTINGS, WITH_LINEAR_PART], ids=["plain", "linear part"])
@pytest.mark.parametrize("measurement", MEASUREMENTS)
@pytest.mark.parametrize("score_identified", [score_stream, score_record])
def test_a_long_rest_costs_little(score_identified, measurement, settings):
    assert_a_rest_costs_little(score_identified, 10_000, measurement, settings)


# --- when the model is trained --------------------------------------------------------------------


def test_the_training_waits_until_something_moves():
    n_at_rest = 1000
    rows = rows_of(n_at_rest, "noise-free", level=20.0)
    identification, records = identify(rows)
    n_not_predicted = int(np.isnan(records["mean"]).sum())
    assert identification.n_waited == n_not_predicted - 100
    assert n_at_rest - 5 <= identification.n_waited <= n_at_rest + 5
    assert {str(estimate.reason) for estimate in identification.adaptation.estimates} == {"errors"}


@pytest.mark.parametrize("sample", [70, 98, 101])
def test_a_wrong_measurement_ends_no_rest(sample):
    """The plant is excited from the start; one value of its output is wrong."""
    y, u = measure(0, "noisy")
    y[sample] += 100.0 * np.std(y)
    identification, _ = identify(first_rows(NARX.regressors({"y": y, "u": u}), 110))
    assert identification.model is not None
    assert identification.n_waited <= 2


@pytest.mark.parametrize("n_at_rest", [80, 98, 99, 100])
def test_a_rest_that_ends_within_the_initial_samples_has_ended(n_at_rest):
    identification, _ = identify(first_rows(rows_of(n_at_rest, "noisy"), 300))
    assert identification.n_waited == pytest.approx(n_at_rest, abs=5)


def test_a_model_of_noise_is_replaced_once_the_plant_moves():
    _, identification, records = identified_stream(1000, "noisy", SETTINGS)
    assert identification.n_waited == 0
    assert np.isfinite(records["mean"][100:]).all()
    renewed = [e.sample for e in identification.adaptation.estimates if e.reason == "region"]
    assert len(renewed) == 1
    assert 1000 < renewed[0] <= 1200
    assert identification.model.scaling != identification.initial.scaling


def test_earlier_estimates_have_the_units_of_the_new_scaling():
    rows, after, _ = identified_stream(1000, "noisy", SETTINGS)
    before, _ = identify(first_rows(rows, 1000))
    expected = before.adaptation.estimates[-1].kernel.stretched(before.model.scaling.scale)
    n_before = len(before.adaptation.estimates)
    kernel = after.adaptation.estimates[n_before - 1].kernel
    actual = kernel.stretched(after.model.scaling.scale)
    assert actual.length_scales == pytest.approx(expected.length_scales, rel=1e-12)


def test_a_stream_without_rest_is_not_trained_anew():
    _, identification, _ = identified_stream(0, "noisy", SETTINGS)
    assert identification.n_waited == 0
    assert all(estimate.reason != "region" for estimate in identification.adaptation.estimates)


@pytest.mark.parametrize("training", ["fixed", "known"])
def test_nothing_waits_if_the_hyperparameters_are_known(training):
    rows = rows_of(1000, "noise-free")
    known = Fixed(variance=1.0, length_scales=1.0, noise_variance=0.01, n_initial=20)
    settings = replace(SETTINGS, training=known)
    start = None
    if training == "known":
        _, found, _ = identified_stream(0, "noise-free", SETTINGS)
        start = Start(found.model.scaling, found.model.mean, found.hyperparameters)
        settings = replace(SETTINGS)
    identification = Identification(NARX, settings, start=start)
    records = identification.observe_many(rows.regressor, rows.target)
    n_initial = settings.training.n_initial
    assert int(np.isnan(records["mean"]).sum()) == n_initial
    assert identification.n_waited == 0


@pytest.mark.parametrize("measurement", ["noise-free", "noisy"])
def test_the_first_movement_is_no_outlier(measurement):
    _, identification, records = identified_stream(1000, measurement, SETTINGS)
    assert identification.n_initial_outliers == 0
    assert identification.n_mended == {} or sum(identification.n_mended.values()) <= 2
    assert records["outlier"][1300:].sum() == 0


# --- a plant that never moves ---------------------------------------------------------------------


def test_a_plant_that_never_moves_has_a_model_at_the_end():
    rows = NARX.regressors({"y": np.full(500, 20.0), "u": np.full(500, 3.0)})
    identification, _ = identify(rows)
    assert identification.model is None
    with pytest.raises(UserError, match=r"498 of 100 .* excite the plant, or call `finish`"):
        identification.require_model()
    identification.finish()
    predicted = identification.model.predict(rows.regressor[:1])
    assert predicted.mean == pytest.approx(0.0, abs=1e-9)
    assert identification.n_waited == 398


def test_a_record_that_never_moves_is_identified():
    signals = {"y": ("time", np.full(500, 20.0)), "u": ("time", np.full(500, 3.0))}
    record = xr.Dataset(signals, {"time": np.arange(500.0)})
    identification = Identification.of_records(record, NARX, SETTINGS)
    assert identification.model is not None


def test_little_memory_is_needed_while_waiting():
    identification = Identification(NARX, SETTINGS)
    rows = NARX.regressors({"y": np.full(5000, 20.0), "u": np.full(5000, 3.0)})
    identification.observe_many(rows.regressor, rows.target)
    assert len(identification._phase.samples().targets) <= 100


def assert_same_records(actual, expected):
    for name in expected.dtype.names:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)


# --- blocks and resuming --------------------------------------------------------------------------


N_ROWS = 700
#: after which rows a model is saved: at rest, in the first block after it, and later. No burst is
#: being decided then: a model that is saved does not keep the one from before it
SAVED_AFTER = (240, 251, 301, 340, 405, 500)


@cache
def identified_at_once(measurement):
    """Return rows, their identification, which nobody may change, and its records."""
    rows = first_rows(rows_of(250, measurement), N_ROWS)
    return rows, *identify(rows)


@pytest.mark.parametrize(
    ("measurement", "size"),
    cases(
        [["noise-free", "noisy", "noisy input"], [1, 7, 333]],
        [("noise-free", 7), ("noisy", 1), ("noisy input", 333)],
    ),
)
def test_blocks_do_not_matter(measurement, size):
    rows, at_once, expected = identified_at_once(measurement)
    identification = Identification(NARX, SETTINGS)
    records = []
    for begin in range(0, N_ROWS, size):
        block = slice(begin, begin + size)
        records.append(identification.observe_many(rows.regressor[block], rows.target[block]))
        if identification.correction is not None:
            records[-2][-1] = identification.correction
    assert_same_records(np.concatenate(records), expected)
    assert identification.model.scaling == at_once.model.scaling
    assert identification.n_waited == at_once.n_waited


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function that finds the models of a measurement, saved on the way through it."""

    @cache
    def models_of(measurement):
        folder = tmp_path_factory.mktemp("saved")
        rows, _, _ = identified_at_once(measurement)
        identification = Identification(NARX, SETTINGS)
        for begin, end in pairwise((0, *SAVED_AFTER)):
            identification.observe_many(rows.regressor[begin:end], rows.target[begin:end])
            identification.model.save(folder / f"{end}.nc")
        return folder

    return models_of


@pytest.mark.parametrize(
    ("measurement", "n_before"),
    cases(
        [["noisy", "noisy input"], SAVED_AFTER],
        [*product(["noisy"], SAVED_AFTER[::2]), *product(["noisy input"], SAVED_AFTER[1::2])],
    ),
)
def test_a_saved_model_goes_on_bit_for_bit(measurement, n_before, saved):
    rows, at_once, expected = identified_at_once(measurement)
    resumed = Identification.resume(Model.load(saved(measurement) / f"{n_before}.nc"))
    actual = resumed.observe_many(rows.regressor[n_before:], rows.target[n_before:])
    assert_same_records(actual, expected[n_before:])
    assert resumed.model.scaling == at_once.model.scaling
    assert len(resumed.adaptation.estimates) > 0


def test_a_damaged_state_of_a_departure_is_refused():
    identification, _ = identify(first_rows(rows_of(250, "noisy"), 310))
    dataset = identification.model.to_dataset()
    dataset["seen_departed"][0] = 7
    with pytest.raises(UserError):
        Model.from_dataset(dataset)
