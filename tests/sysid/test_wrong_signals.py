"""Errors of inputs and other outputs, which are mended; what is pending goes into the model."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from changing_plants import (
    COUPLED_SIGNALS,
    TRAINED_AGAIN,
    TRAINED_ONCE,
    learn_coupled_plant,
    simulate_coupled_plant,
)
from sysid import Identification, Model, Narx

ALL_WRONG = {"y": 0.03, "v": 0.03, "u": 0.03}

# --- what is mended -------------------------------------------------------------------------------


@functools.cache
def rows_to_test_with():
    """Return rows of y without errors of measurement, which no model has learned."""
    record, _ = simulate_coupled_plant(800, seed=9)
    return Narx(**COUPLED_SIGNALS, target="y").regressors(record)


def error_on_new_data(identification):
    """Return the mean squared one-step error of a model of y on new data."""
    rows = rows_to_test_with()
    mean = identification.model.predict(rows.regressor).mean
    return np.mean((mean - rows.target) ** 2)


@functools.cache
def best_error(seed):
    """Return the error of a model that learned the record without wrong values."""
    record, _ = simulate_coupled_plant(1500, seed=seed)
    identification, _ = learn_coupled_plant(record, "y")
    assert not identification.n_mended
    return error_on_new_data(identification)


@pytest.mark.parametrize("begin", [0, 150], ids=["from the start", "after the training"])
def test_errors_of_other_outputs_and_of_inputs_are_mended_and_cost_little(begin):
    ratios_with_gate = []
    ratios_without_gate = []
    mended_fractions = []
    for seed in range(3):
        wrong = {"y": 0.02, "v": 0.02, "u": 0.02}
        record, is_wrong = simulate_coupled_plant(1500, wrong=wrong, begin=begin, seed=seed)
        with_gate, _ = learn_coupled_plant(record, "y")
        without_gate, _ = learn_coupled_plant(record, "y", gate=None)
        mended_fractions.append(with_gate.n_mended["u"] / is_wrong["u"].sum())
        ratios_with_gate.append(error_on_new_data(with_gate) / best_error(seed))
        ratios_without_gate.append(error_on_new_data(without_gate) / best_error(seed))
    assert np.median(ratios_with_gate) < 1.4
    assert np.median(ratios_without_gate) > 1.6
    # few signals matter so much that each of their errors shows
    assert 0.4 < np.median(mended_fractions) < 1.0


@pytest.mark.parametrize("signal", ["v", "u"])
def test_errors_far_out_are_mended_although_nothing_is_known_there(signal):
    record, is_wrong = simulate_coupled_plant(1500, wrong={signal: 0.02}, size=4.0, seed=1)
    identification, reports = learn_coupled_plant(record, "y")
    n_wrong = is_wrong[signal].sum()
    assert 0.5 * n_wrong < identification.n_mended[signal] <= n_wrong
    assert not reports["outlier"].any()
    assert set(identification.n_mended) == {signal}


@pytest.mark.parametrize("target", ["y", "v"])
def test_pulses_that_the_plant_answers_are_accepted_one_sample_later(target):
    """The model is the same as without a gate, bit for bit."""
    record, _ = simulate_coupled_plant(1200, pulses=range(20, 1200, 37))
    gated, reports = learn_coupled_plant(record, target)
    ungated, ungated_reports = learn_coupled_plant(record, target, gate=None)
    assert not gated.n_mended
    weights = gated.model.gp.state()["weights"]
    np.testing.assert_equal(weights, ungated.model.gp.state()["weights"])
    for name in reports.dtype.names:
        np.testing.assert_array_equal(reports[name], ungated_reports[name])


@pytest.mark.parametrize("size", [1, 7])
def test_blocks_do_not_matter_where_other_signals_fail(size):
    record, _ = simulate_coupled_plant(800, wrong=ALL_WRONG, begin=110, seed=1)
    at_once, expected = learn_coupled_plant(record, "y")
    in_blocks, reports = learn_coupled_plant(record, "y", size)
    assert in_blocks.n_mended == at_once.n_mended
    assert set(at_once.n_mended) == {"u", "v"}
    for name in expected.dtype.names:
        np.testing.assert_array_equal(reports[name], expected[name])
    np.testing.assert_equal(in_blocks.model.gp.state(), at_once.model.gp.state())


# --- a model that is stored between two samples ---------------------------------------------------

N_SAMPLES = 180
FIRST_STORED_ROW = 108


def round_trip(model, path):
    """Return a model from a file, or from a data set if there is no path."""
    if path is None:
        return Model.from_dataset(model.to_dataset())
    model.save(path)
    return Model.load(path)


def assert_storing_changes_nothing(learning, training, rows_to_store, path=None):
    """Learn a stream and store the model before each of some rows; compare with never storing.

    The values of all three signals are wrong now and then.
    """
    wrong = {"y": 0.06, "v": 0.06, "u": 0.06}
    record, _ = simulate_coupled_plant(N_SAMPLES, wrong=wrong, begin=105, seed=1)
    rows = Narx(**COUPLED_SIGNALS, target="y").regressors(record)
    settings = {"learning": learning, "training": training}
    never_stored, expected = learn_coupled_plant(record, "y", **settings)
    start = {name: values[: FIRST_STORED_ROW + 2] for name, values in record.items()}
    stored, _ = learn_coupled_plant(start, "y", **settings)
    reports = []
    for k in range(FIRST_STORED_ROW, len(rows.target)):
        if k in rows_to_store:
            stored = Identification.resume(round_trip(stored.model, path))
        reports.append(stored.observe(rows.regressor[k], rows.target[k]))
    assert expected["outlier"].sum() >= 3
    assert never_stored.n_mended
    expected = expected[FIRST_STORED_ROW:]
    np.testing.assert_array_equal([report.mean for report in reports], expected["mean"])
    np.testing.assert_array_equal([report.variance for report in reports], expected["variance"])
    np.testing.assert_equal(stored.model.gp.state(), never_stored.model.gp.state())
    assert stored.model.gp.repairs == never_stored.model.gp.repairs
    if training is TRAINED_AGAIN:
        assert len(never_stored.adaptation.estimates) > 3
        np.testing.assert_equal(stored.adaptation.state(), never_stored.adaptation.state())


@pytest.mark.parametrize(
    ("learning", "training"),
    [("every_sample", TRAINED_ONCE), ("stored", TRAINED_AGAIN)],
    ids=["every sample, trained once", "stored points, trained again"],
)
def test_a_model_that_is_stored_after_each_sample_learns_the_same(learning, training):
    every_row = range(FIRST_STORED_ROW, N_SAMPLES)
    assert_storing_changes_nothing(learning, training, every_row)


def test_a_model_that_is_saved_and_loaded_between_two_samples_learns_the_same(tmp_path):
    """The file is written around two outliers of y, at rows 148 and 157, and errors of v and u."""
    path = tmp_path / "model.nc"
    assert_storing_changes_nothing("every_sample", TRAINED_AGAIN, range(147, 160), path)


@pytest.mark.slow
@pytest.mark.parametrize("training", [TRAINED_ONCE, TRAINED_AGAIN], ids=["once", "again"])
@pytest.mark.parametrize("learning", ["every_sample", "stored"])
def test_a_model_that_is_saved_and_loaded_after_each_sample_learns_the_same(
    learning, training, tmp_path
):
    every_row = range(FIRST_STORED_ROW, N_SAMPLES)
    assert_storing_changes_nothing(learning, training, every_row, tmp_path / "model.nc")


def test_hyperparameters_stay_if_the_model_learned_without_the_identification():
    record, _ = simulate_coupled_plant(200, seed=1)
    identification, _ = learn_coupled_plant(record, "y", training=TRAINED_AGAIN)
    model = identification.model
    assert Identification.resume(model).adaptation is identification.adaptation
    rows = identification.narx.regressors(simulate_coupled_plant(300, seed=2)[0])
    model.update_many(rows.regressor[:1], rows.target[:1])
    assert Identification.resume(model).adaptation is None


@pytest.fixture(scope="module")
def adapted():
    """Identification that estimates its hyper-parameters again, with samples seen since."""
    record, _ = simulate_coupled_plant(153, seed=1)
    identification, _ = learn_coupled_plant(record, "y", training=TRAINED_AGAIN)
    assert len(identification.adaptation.state()["seen_rows"])
    return identification


WRONG_TRAINING_STATES = {
    "negative counts": ("seen_counts", lambda x: x - 1e6),
    "half counts": ("seen_counts", lambda x: x + 0.5),
    "one large count": ("seen_counts", lambda x: x * [1, 1e4, 1, 1, 1, 1]),
    "too few features": ("seen_inputs", lambda x: x[:, 1:]),
    "inputs of nan": ("seen_inputs", lambda x: x * np.nan),
    "too few targets": ("seen_targets", lambda x: x[1:]),
    "too few numbers": ("seen_numbers", lambda x: x[1:]),
    "too many rows": ("seen_rows", lambda x: np.tile(x, (9, 1))),
    "too many squares": ("seen_squares", lambda x: np.tile(x, 200)),
}


@pytest.mark.parametrize(
    ("name", "change"), WRONG_TRAINING_STATES.values(), ids=WRONG_TRAINING_STATES
)
def test_a_stored_state_of_the_training_must_fit(name, change, adapted):
    changed = np.asarray(change(adapted.adaptation.state()[name].astype(float)))
    dataset = adapted.model.to_dataset().drop_vars(name)
    dimensions = [f"{name}_{i}" for i in range(changed.ndim)]
    dataset[name] = dimensions, changed
    with pytest.raises(ValueError, match=r"seen_|training|interval|expected the description"):
        Model.from_dataset(dataset)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"interval": 7', '"interval": 99999999'),
        ("sysid.Adaptive", "sysid.MaximumAPosteriori"),
    ],
    ids=["interval", "other class"],
)
def test_a_stored_description_of_the_training_must_fit(old, new, adapted):
    dataset = adapted.model.to_dataset()
    description = dataset.attrs["training"]
    assert old in description
    dataset.attrs["training"] = description.replace(old, new)
    with pytest.raises(ValueError, match=r"seen_|training|interval|expected the description"):
        Model.from_dataset(dataset)


def knows_the_last_row(identification):
    """Return whether an identification knows the regressor of the last row."""
    return any(identification._phase.outliers.mended.last)


def test_pending_samples_are_forgotten_if_the_model_learned_without_the_identification():
    record, _ = simulate_coupled_plant(400, wrong={"u": 0.05}, begin=110, seed=1)
    identification, _ = learn_coupled_plant(record, "y")
    model = identification.model
    assert model.pending["seen"] == 398
    assert knows_the_last_row(Identification.resume(model))
    rows = identification.narx.regressors(simulate_coupled_plant(300, seed=2)[0])
    model.update_many(rows.regressor[:1], rows.target[:1])
    assert not knows_the_last_row(Identification.resume(model))


def learn_until_a_pulse():
    """Learn a record whose last row is held back, because the input has a pulse just before."""
    record, _ = simulate_coupled_plant(300, pulses=[297], seed=1)
    return learn_coupled_plant(record, "y")


def test_nothing_is_pending_once_the_last_sample_was_learned():
    identification, _ = learn_until_a_pulse()
    gp = identification.model.gp
    n_points = gp.n_points
    whitened = gp.state()["whitened"]
    suspect = identification.model.pending["suspect"]
    assert suspect is not None
    assert not suspect["outlier"]
    identification.finish()
    assert identification.model.pending["suspect"] is None
    assert identification.model.gp.n_points >= n_points
    assert not np.array_equal(identification.model.gp.state()["whitened"], whitened)


def test_the_last_sample_is_corrected_at_the_end():
    identification, reports = learn_until_a_pulse()
    copy = reports.copy()
    assert not reports["inserted"][-1]
    identification.finish()
    np.testing.assert_equal(reports.tolist(), copy.tolist())
    correction = identification.correction
    assert correction.inserted
    assert correction.mean == reports["mean"][-1]
    assert correction.variance == reports["variance"][-1]
    identification.finish()
    assert identification.correction is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"last": [1.0]},
        {"errors": [3]},
        {"errors": [["y", "x", 1.0]]},
        {"suspect": {"regressor": 1}},
    ],
    ids=str,
)
def test_stored_pending_samples_must_fit(wrong):
    record, _ = simulate_coupled_plant(120, seed=1)
    identification, _ = learn_coupled_plant(record, "y")
    model = replace(identification.model, pending=identification.model.pending | wrong)
    with pytest.raises(ValueError, match="pending samples stored with the model do not fit"):
        Identification.resume(model)
