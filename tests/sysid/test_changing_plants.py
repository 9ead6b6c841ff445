"""Plants that change and sensors that fail: forgetting, and the outlier test of the target."""

import functools
from typing import NamedTuple

import numpy as np
import pytest

import sysid
from changing_plants import NARX, learn_plant, rows_of, simulate_plant
from naive import CRITERIA, criterion_name
from sysid import (
    Always,
    Criterion,
    Identification,
    LagWindow,
    MarginalLogLikelihood,
    MaximumAPosteriori,
    MeanRelevance,
    Model,
    Narx,
    OnlineGP,
    Settings,
    SquaredExponential,
)

NOISE_VARIANCE = 1e-2
each_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)


def make_gp(**settings):
    """Return an online GP of one feature that learns every sample at a fixed scale."""
    defaults = {
        "noise_variance": NOISE_VARIANCE,
        "budget": 12,
        "scale": False,
        "learning": "every_sample",
    }
    return OnlineGP(SquaredExponential(1.0, [1.5]), **defaults | settings)


# --- forgetting -----------------------------------------------------------------------------------


@each_criterion
def test_the_gain_of_a_point_ranks_as_its_score_and_is_never_negative(criterion):
    random = np.random.default_rng(3)
    residuals = random.standard_normal(200)
    variances = random.exponential(1.0, 200) + 0.1
    gains = []
    scores = []
    for residual, variance in zip(residuals, variances, strict=True):
        gains.append(type(criterion).gain(residual, variance, 0.1))
        scores.append(type(criterion).reduction(residual, variance, 0.1))
    assert min(gains) >= 0
    np.testing.assert_array_equal(np.argsort(gains), np.argsort(scores))


def weighted_gains(gp, criterion, x, y, ages, memory):
    """Return ``gain exp(-age / memory)`` of all points but the last, each without itself."""
    ky = gp.kernel(x, x) + NOISE_VARIANCE * np.eye(len(x))
    gains = []
    for i in range(len(x) - 1):
        others = np.delete(np.arange(len(x)), i)
        weights = np.linalg.solve(ky[np.ix_(others, others)], ky[others, i])
        residual = y[i] - weights @ y[others]
        variance = ky[i, i] - weights @ ky[others, i]
        gain = type(criterion).gain(residual, variance, NOISE_VARIANCE)
        gains.append(gain * np.exp(-ages[i] / memory))
    return gains


@each_criterion
def test_stored_points_lose_worth_as_they_age(criterion):
    """The point that leaves has the smallest gain, weighted by age; compared by brute force."""
    memory = 15.0
    random = np.random.default_rng(4)
    x = random.uniform(-2, 2, (60, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * random.standard_normal(60)
    settings = {"learning": "stored", "reduction": criterion, "insertion": Always()}
    gp = make_gp(forgetting=memory, **settings)
    gp_without_forgetting = make_gp(**settings)
    gp_without_forgetting.update_many(x, y)
    for t, (point, target) in enumerate(zip(x, y, strict=True)):
        points = np.append(gp.inputs, [point], axis=0)
        targets = np.append(gp.targets, target)
        ages = t + 1 - gp.sample_numbers
        report = gp.update(point, target)
        if report.removed >= 0:
            gains = weighted_gains(gp, criterion, points, targets, ages, memory)
            assert report.removed == int(np.argmin(gains))
    assert gp.n_points == 12
    assert not np.array_equal(gp.inputs, gp_without_forgetting.inputs)


@pytest.mark.parametrize(("learning", "memory"), [("every_sample", 30.0), ("stored", 100.0)])
def test_a_model_that_forgets_follows_a_change_better(learning, memory):
    record = simulate_plant(1500, change=800)
    targets = rows_of(record).target

    def late_error(forgetting):
        """Return the mean squared error after the change, once it had time to be learned."""
        _, reports = learn_plant(
            record, learning=learning, reduction=MeanRelevance(), forgetting=forgetting
        )
        return np.mean((targets - reports["mean"])[1000:] ** 2)

    assert late_error(memory) < 0.95 * late_error(None)


# --- the outlier test -----------------------------------------------------------------------------

QUIET = Settings(
    training=MaximumAPosteriori(n_initial=60, restarts=1),
    acceptance=sysid.AcceptAll(),
    reduction=MarginalLogLikelihood(),
    budget=30,
)


@pytest.mark.parametrize("learning", ["every_sample", "stored"])
def test_outliers_of_a_sensor_are_found_and_cost_little(learning):
    """Errors on new data, relative to those of a model that learned the record without outliers."""
    test_rows = rows_of(simulate_plant(800, seed=9))

    def test_error(identification):
        mean = identification.model.predict(test_rows.regressor).mean
        return np.mean((mean - test_rows.target) ** 2)

    ratios_with_gate = []
    ratios_without_gate = []
    for seed in range(3):
        bad = np.random.default_rng(seed).choice(np.arange(70, 1200, 4), 24, replace=False)
        clean = simulate_plant(1200, seed=seed)
        failing = simulate_plant(1200, bad=bad, seed=seed)
        best, reports_of_clean = learn_plant(clean, gate=4.0, learning=learning)
        with_gate, reports = learn_plant(failing, gate=4.0, learning=learning)
        without_gate, _ = learn_plant(failing, gate=None, learning=learning)
        ratios_with_gate.append(test_error(with_gate) / test_error(best))
        ratios_without_gate.append(test_error(without_gate) / test_error(best))
        is_found = np.isin(bad - 2, np.flatnonzero(reports["outlier"]))  # row k - 2 has sample k
        assert is_found.sum() >= 22  # an outlier right after another one may be missed
        assert with_gate.model.gp.repairs["outliers"] <= 1.2 * len(bad)
        assert reports_of_clean["outlier"].sum() <= 3
    assert np.median(ratios_with_gate) < 1.3
    assert np.median(ratios_without_gate) > 1.6


def test_initial_samples_are_screened():
    with_outliers, _ = learn_plant(simulate_plant(400, bad=[12, 33, 34]))
    without, _ = learn_plant(simulate_plant(400))
    assert 3 <= with_outliers.n_initial_outliers <= 9
    assert without.n_initial_outliers == 0
    noise_variance = with_outliers.hyperparameters.noise_variance
    assert 0.5 < noise_variance / without.hyperparameters.noise_variance < 2.0


def test_estimates_know_their_sample_if_initial_ones_were_left_out():
    rows = rows_of(simulate_plant(400, bad=[12, 33, 34]))
    training = sysid.Adaptive(
        n_initial=60, restarts=1, interval=10, significance=0.9, max_updates=1
    )
    identification = Identification(NARX, Settings(training=training, budget=30))
    identification.observe_many(rows.regressor, rows.target)
    assert identification.n_initial_outliers >= 3
    samples = [estimate.sample for estimate in identification.adaptation.estimates]
    assert len(samples) > 10
    assert all((sample - 60) % 10 == 0 for sample in samples)
    assert max(samples) > 300


def test_rows_of_an_outlier_have_its_prediction_among_their_lags():
    """The next rows are learned as if the sensor had shown the prediction."""
    outlier_sample = 300
    outlier_row = outlier_sample - 2
    y, u = simulate_plant(400, bad=[outlier_sample])
    rows = rows_of((y, u))
    _, reports = learn_plant((y, u))
    assert np.flatnonzero(reports["outlier"]).tolist() == [outlier_row]
    mended_y = y.copy()
    mended_y[outlier_sample] = y[outlier_sample - 1] + reports["mean"][outlier_row]
    mended_rows = rows_of((mended_y, u))
    until_outlier, _ = learn_plant((y[: outlier_sample + 1], u[: outlier_sample + 1]))
    model = until_outlier.model
    for k in (outlier_row + 1, outlier_row + 2, outlier_row + 3):
        mended_regressor = mended_rows.regressor[k : k + 1]
        mended_target = mended_rows.target[k : k + 1]
        # a report has the change from the value that was measured before, not from the mended one
        change_of_target = mended_target - rows.target[k]
        expected = model.predict(mended_regressor).mean - change_of_target
        np.testing.assert_allclose(reports["mean"][k], expected[0], atol=1e-9)
        model.update_many(mended_regressor, mended_target)


MIXED_RECORD = {"n": 500, "bad": [80, 150, 151, 300, 302], "jump": [400]}


@pytest.mark.parametrize("size", [1, 7, 100])
def test_blocks_do_not_matter(size):
    record = simulate_plant(**MIXED_RECORD)
    at_once, expected = learn_plant(record)
    in_blocks, reports = learn_plant(record, size)
    for name in expected.dtype.names:
        np.testing.assert_array_equal(reports[name], expected[name])
    np.testing.assert_equal(in_blocks.model.gp.state(), at_once.model.gp.state())


def test_after_a_break_nothing_is_mended():
    record = simulate_plant(**MIXED_RECORD)
    identification, without_break = learn_plant(record)
    rows = rows_of(record)
    follows = np.ones(len(rows.target), dtype=bool)
    follows[149] = False  # right after the outlier of sample 150
    interrupted = Identification(NARX, identification.settings)
    reports = interrupted.observe_many(rows.regressor, rows.target, follows=follows)
    assert not np.array_equal(reports["mean"][149:151], without_break["mean"][149:151])
    np.testing.assert_array_equal(reports["mean"][60:149], without_break["mean"][60:149])


class Samples(NamedTuple):
    """Consecutive measurements of a stream."""

    output: np.ndarray
    input: np.ndarray


def stream_with_gap(y, u, last_before_gap, size):
    """Yield samples in blocks of `size`; the two outputs after `last_before_gap` are missing."""
    y = y.copy()
    y[last_before_gap + 1 : last_before_gap + 3] = np.nan
    for begin in range(0, len(y), size):
        block = slice(begin, begin + size)
        yield Samples(y[block, None], u[block, None])


@pytest.mark.parametrize("size", [1, 10], ids=["one by one", "blocks of 10"])
@pytest.mark.parametrize("cause", ["jump", "bad"], ids=["plant jumps", "sensor is wrong"])
def test_the_row_after_a_gap_does_not_decide_about_an_outlier_before_it(cause, size):
    """Only the row right after an outlier can show that the plant jumped; here it is missing."""
    outlier_sample = 250
    y, u = simulate_plant(320, **{cause: [outlier_sample]})
    narx = Narx(NARX.outputs, NARX.inputs, on_missing="skip")
    identification = Identification(narx, QUIET)
    stream = stream_with_gap(y, u, outlier_sample, size)
    window = LagWindow(narx)
    blocks = list(sysid.learn_from(stream, identification, window, outputs=["y"], inputs=["u"]))
    samples = np.concatenate([block.rows.sample for block in blocks])
    reports = np.concatenate([block.record for block in blocks])
    assert outlier_sample + 1 not in samples
    assert samples[reports["outlier"]].tolist() == [outlier_sample]
    assert [block.correction for block in blocks if block.correction is not None] == []
    assert identification.model.gp.repairs["outliers"] == 1


@pytest.mark.parametrize(
    ("learning", "memory"), [("every_sample", None), ("stored", None), ("every_sample", 2000.0)]
)
def test_if_every_outlier_is_accepted_the_model_is_that_without_a_gate(learning, memory):
    """The gate costs nothing on a plant that jumps or changes: all bits are the same."""
    record = simulate_plant(900, jump=[300, 500], change=600)
    settings = {"learning": learning, "forgetting": memory}
    gated, reports = learn_plant(record, **settings)
    ungated, ungated_reports = learn_plant(record, **settings, gate=None)
    assert not reports["outlier"].any()
    assert gated.model.gp.repairs["outliers"] == 0
    state = gated.model.gp.state()
    ungated_state = ungated.model.gp.state()
    for name in ("inputs", "targets", "weights"):
        np.testing.assert_array_equal(state[name], ungated_state[name])
    for name in reports.dtype.names:
        np.testing.assert_array_equal(reports[name], ungated_reports[name])


def test_a_jump_of_the_plant_is_accepted_one_sample_later():
    y, u = simulate_plant(600, jump=[400])
    rows = rows_of((y, u))
    identification, _ = learn_plant((y[:401], u[:401]))
    gp = identification.model.gp
    assert gp.repairs["outliers"] == 1
    n_points_before = gp.n_points
    assert len(identification.observe_many(rows.regressor[:0], rows.target[:0])) == 0
    next_report = identification.observe_many(rows.regressor[399:400], rows.target[399:400])
    assert not next_report["outlier"][0]
    assert identification.model.gp.repairs["outliers"] == 0
    assert identification.model.gp.n_points >= n_points_before


def test_predictions_after_a_jump_are_those_without_a_gate():
    record = simulate_plant(600, jump=[400])
    _, reports = learn_plant(record)
    _, ungated_reports = learn_plant(record, gate=None)
    np.testing.assert_allclose(reports["mean"][401:], ungated_reports["mean"][401:], atol=0.02)


@functools.cache
def learn_possible_outliers(failing):
    """Learn samples that may be outliers at once; return the rows, the reports and the state.

    Either the sensor is wrong, or the plant itself jumps, or the input has pulses.
    """
    bad = [200, 210] if failing == "sensor" else []
    jump = [201] if failing == "plant" else []
    y, u = simulate_plant(240, bad=bad, jump=jump)
    if failing == "other signal":
        u[[150, 200]] += 6.0
    rows = rows_of((y, u))
    identification = Identification(NARX, QUIET)
    reports = identification.observe_many(rows.regressor, rows.target)
    return rows, reports, identification.model.gp.state()


@pytest.mark.parametrize("size", [1, 4, 50], ids=lambda size: f"blocks of {size}")
@pytest.mark.parametrize("failing", ["sensor", "plant", "other signal"])
def test_what_was_returned_stays_and_the_next_call_corrects_it(failing, size):
    """The last row of a block is held back if it may be an outlier."""
    rows, expected, expected_state = learn_possible_outliers(failing)
    identification = Identification(NARX, QUIET)
    returned = []
    copies = []
    corrections = {}  # by row
    for k in range(0, len(rows.target), size):
        block = slice(k, k + size)
        reports = identification.observe_many(rows.regressor[block], rows.target[block])
        if identification.correction is not None:
            corrections[k - 1] = identification.correction
        returned.append(reports)
        copies.append(reports.copy())
    identification.finish()
    for reports, copy in zip(returned, copies, strict=True):
        np.testing.assert_equal(reports.tolist(), copy.tolist())
    corrected = np.concatenate(returned)
    assert bool(corrections) == (failing != "sensor")
    for k, correction in corrections.items():
        assert correction.mean == corrected["mean"][k]
        assert correction.variance == corrected["variance"][k]
        assert repr(correction) != repr(sysid.UpdateReport(*corrected[k].item()))
        corrected[k] = correction
    np.testing.assert_equal(corrected.tolist(), expected.tolist())
    np.testing.assert_equal(identification.model.gp.state(), expected_state)


def hold_back_a_jump():
    """Return an identification whose last row is held back, its rows, and the reports so far."""
    rows = rows_of(simulate_plant(300, jump=[250]))
    identification = Identification(NARX, QUIET)
    assert identification.correction is None
    reports = identification.observe_many(rows.regressor[:249], rows.target[:249])
    assert reports["outlier"][-1]
    return identification, rows, reports


def test_a_call_that_decides_nothing_corrects_nothing():
    identification, rows, reports = hold_back_a_jump()
    targets_with_nan = np.append(rows.target[249:-1], np.nan)
    with pytest.raises(ValueError, match="targets"):
        identification.observe_many(rows.regressor[249:], targets_with_nan)
    assert identification.correction is None
    assert len(identification.observe_many(rows.regressor[:0], rows.target[:0])) == 0
    assert identification.correction is None
    identification.observe(rows.regressor[249], rows.target[249])
    assert identification.correction is not None
    identification.observe(rows.regressor[250], rows.target[250])
    assert identification.correction is None
    assert reports["outlier"][-1]


def test_a_resumed_identification_corrects_the_same_row_but_does_not_know_its_prediction():
    identification, rows, reports = hold_back_a_jump()
    loaded = Model.from_dataset(identification.model.to_dataset())
    resumed = Identification.resume(loaded)
    identification.observe(rows.regressor[249], rows.target[249])
    resumed.observe(rows.regressor[249], rows.target[249])
    correction = identification.correction
    assert not correction.outlier
    assert correction.accepted == (correction.slot >= 0)
    assert correction.mean == reports["mean"][-1]
    assert np.isnan(resumed.correction.mean)  # a model does not keep it
    np.testing.assert_equal(resumed.correction[2:], correction[2:])


def test_rows_without_lags_have_no_gate():
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (300, 1))
    y = np.sin(x[:, 0]) + 0.02 * random.standard_normal(300)
    y[::50] += 5.0
    narx = Narx({"y": []}, {"x": [0]}, predict="value")
    settings = Settings(training=MaximumAPosteriori(n_initial=60, restarts=1))
    identification = Identification(narx, settings)
    reports = identification.observe_many(x, y)
    assert not reports["outlier"].any()
    assert identification.gate is None
    assert identification.model.gp.gate is None
    assert identification.n_initial_outliers == 0


def test_the_gate_opens_after_a_number_of_outliers_in_a_row():
    gp = make_gp(gate=4.0, gate_opens_after=3, insertion=Always())
    x = np.linspace(-2, 2, 60)[:, None]
    gp.update_many(x, np.zeros(60))
    reports = [gp.update(x[k], 5.0) for k in range(10, 17)]
    assert [report.outlier for report in reports] == [True] * 3 + [False] * 4
    assert gp.repairs["outliers"] == 3
    (expected_target,), _ = gp.predict(x[40:41])
    assert not gp.update(x[40], expected_target).outlier
    assert gp.update(x[0], 50.0).outlier


GATE_AND_FORGETTING = ("gate", "forgetting", "gate_opens_after")


def test_a_model_file_keeps_the_gate_and_the_forgetting(tmp_path):
    identification, _ = learn_plant(
        simulate_plant(500, bad=[490]),
        learning="stored",
        forgetting=50.0,
        reduction=MeanRelevance(),
    )
    model = identification.model
    model.save(tmp_path / "model.nc")
    loaded = Model.load(tmp_path / "model.nc")
    assert [getattr(loaded.gp, name) for name in GATE_AND_FORGETTING] == [4.0, 50.0, 6]
    rows = rows_of(simulate_plant(300, seed=3, bad=[50]))
    expected = model.update_many(rows.regressor, rows.target)
    reports = loaded.update_many(rows.regressor, rows.target)
    assert reports.tobytes() == expected.tobytes()


def test_a_model_file_without_the_gate_and_the_forgetting_is_refused():
    identification, _ = learn_plant(simulate_plant(100))
    dataset = identification.model.to_dataset()
    for name in GATE_AND_FORGETTING:
        del dataset.attrs[name]
    message = r"it lacks the attributes \['forgetting', 'gate', 'gate_opens_after'\]"
    with pytest.raises(ValueError, match=message):
        Model.from_dataset(dataset)


class WithoutGain(MeanRelevance):
    """A user's criterion that defines no gain."""

    gain = Criterion.gain


SHORT_MEMORY = "forgetting must be a number of at least 2"
SMALL_GATE = "gate must be a number of at least 1"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forgetting": 1.5}, SHORT_MEMORY),
        ({"forgetting": "slowly"}, SHORT_MEMORY),
        ({"gate": 0.5}, SMALL_GATE),
        ({"gate": True}, SMALL_GATE),
        ({"gate_opens_after": 0}, "gate_opens_after must be a whole number of at least 1"),
        (
            {"forgetting": 10, "learning": "stored", "reduction": WithoutGain()},
            "WithoutGain defines no gain",
        ),
    ],
    ids=str,
)
def test_impossible_settings_of_a_gp_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make_gp(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forgetting": 1.5}, SHORT_MEMORY),
        ({"forgetting": "slowly"}, SHORT_MEMORY),
        ({"gate": 0.5}, SMALL_GATE),
        ({"gate": True}, SMALL_GATE),
    ],
    ids=str,
)
def test_impossible_settings_of_an_identification_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


def test_the_text_none_switches_gate_and_forgetting_off():
    assert Settings(gate="none", forgetting="none") == Settings(gate=None, forgetting=None)


def test_only_stored_samples_need_a_gain_to_forget():
    assert make_gp(forgetting=10, reduction=WithoutGain()).forgetting == 10.0
