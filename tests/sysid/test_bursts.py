"""Bursts of wrong measurements in a stream are forgotten; a plant that changes is followed."""

from dataclasses import replace

import numpy as np
import pytest

from sysid import (
    ConstantMean,
    Identification,
    LagWindow,
    LinearMean,
    MaximumAPosteriori,
    Model,
    Narx,
    Origin,
    Settings,
)
from sysid.identification import build_model
from sysid.outliers import UNKNOWN_RANGE, MendedRows, range_known_to

NARX = Narx({"y": 2}, {"u": 2}, predict="change")
SETTINGS = Settings(budget=50)
N_SAMPLES = 500
BEGIN = 300


def simulate(n=N_SAMPLES, *, seed=0, changes=False):
    """Return u and y of y[k] = 0.8 y[k-1] + g tanh(u[k-1]) + e[k]; g changes sign at `BEGIN`."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(1, n):
        gain = -1.0 if changes and k >= BEGIN else 1.0
        y[k] = 0.8 * y[k - 1] + gain * np.tanh(u[k - 1]) + 0.01 * rng.normal()
    return u, y


def identify_in_blocks(narx, settings, u, y, n_together):
    """Return the identification of a stream in blocks of rows, and its errors by sample."""
    rows = narx.regressors({"y": y, "u": u})
    identification = Identification(narx, settings)
    errors = np.full(len(y), np.nan)
    for begin in range(0, len(rows.target), n_together):
        block = slice(begin, begin + n_together)
        record = identification.observe_many(rows.regressor[block], rows.target[block])
        errors[rows.sample[block]] = rows.target[block] - record["mean"]
    return identification, errors


def identify_stream(u, y):
    """Return the identification of a stream, and its errors by sample."""
    return identify_in_blocks(NARX, SETTINGS, u, y, len(y))


def rms(errors):
    return float(np.sqrt(np.mean(errors**2)))


@pytest.fixture(scope="module")
def clean():
    return identify_stream(*simulate())


@pytest.mark.parametrize("length", [2, 5])
@pytest.mark.parametrize("values", ["constant", "random"])
def test_a_burst_is_forgotten(clean, length, values):
    u, y = simulate()
    wrong = np.full(length, -999.0)
    if values == "random":
        wrong = 50.0 * np.random.default_rng(length).normal(size=length)
    y[BEGIN : BEGIN + length] = wrong
    identification, errors = identify_stream(u, y)
    after = slice(BEGIN + length + 20, None)
    medians = [np.median(np.abs(of_stream[after])) for of_stream in (errors, clean[1])]
    assert medians[0] < 1.1 * medians[1]
    noise = [found.model.gp.noise_variance for found in (identification, clean[0])]
    assert noise[0] < 2.0 * noise[1]


@pytest.mark.parametrize("length", [4, 10])
def test_a_burst_is_forgotten_where_its_end_is_hard_to_predict(clean, length):
    """The model is less sure of sample 304, and ten replacements in a row add up their errors."""
    u, y = simulate()
    rng = np.random.default_rng(30 + length)
    errors_of_burst = np.full(4, 5.0) if length == 4 else 30.0 * rng.normal(size=length)
    y[BEGIN : BEGIN + length] += errors_of_burst * y.std()
    identification, errors = identify_stream(u, y)
    assert identification.n_undone == length - 1
    after = slice(BEGIN + length + 50, None)
    medians = [np.median(np.abs(of_stream[after])) for of_stream in (errors, clean[1])]
    assert medians[0] < 1.1 * medians[1]


# --- bursts that end where the plant jumps --------------------------------------------------------

RESET_NARX = Narx({"y": 2}, {"u": 2})
N_RESET_SAMPLES = 1200


def simulate_resets():
    """Return u and y of an integrator that a threshold resets, and a sample where it does."""
    rng = np.random.default_rng(1)
    u = rng.uniform(-1.0, 1.0, N_RESET_SAMPLES)
    y = np.zeros(N_RESET_SAMPLES)
    for k in range(1, N_RESET_SAMPLES):
        y[k] = 0.0 if y[k - 1] > 1.0 else y[k - 1] + 0.05 * (1.0 + u[k - 1])
    resets = np.flatnonzero(np.diff(y) < -0.5) + 1
    y += 0.003 * y.std() * rng.normal(size=N_RESET_SAMPLES)
    return u, y, int(resets[resets > 700][0])


def identify_resets(u, y, n_together=N_RESET_SAMPLES):
    """Return the identification of a stream of the integrator, and its errors by sample."""
    return identify_in_blocks(RESET_NARX, SETTINGS, u, y, n_together)


@pytest.fixture(scope="module")
def clean_resets():
    u, y, _ = simulate_resets()
    return identify_resets(u, y)


@pytest.mark.parametrize(
    ("length", "values"),
    [(1, "constant"), (4, "constant"), (4, "random"), (10, "constant"), (10, "random")],
)
@pytest.mark.parametrize("n_together", [N_RESET_SAMPLES, 1], ids=["block", "one by one"])
def test_a_burst_that_ends_where_the_plant_jumps_is_forgotten(
    clean_resets, length, values, n_together
):
    """No sample shows the return: the first right one after the burst is a jump of the plant."""
    u, y, end = simulate_resets()
    wrong = np.full(length, 3.0)
    if values == "random":
        wrong = 100.0 * np.random.default_rng(length).normal(size=length)
    y[end - length : end] += wrong
    identification, errors = identify_resets(u, y, n_together)
    assert identification.n_undone >= length - 1
    after = slice(end + 50, None)
    assert rms(errors[after]) < 1.15 * rms(clean_resets[1][after])
    noise = [found.model.gp.noise_variance for found in (identification, clean_resets[0])]
    assert noise[0] < 1.5 * noise[1]


def test_blocks_and_single_samples_forget_the_same_burst():
    u, y, end = simulate_resets()
    y[end - 4 : end] += 30.0
    rows = RESET_NARX.regressors({"y": y, "u": u})
    found = [identify_resets(u, y, n)[0].model for n in (N_RESET_SAMPLES, 7, 1)]
    predicted = [model.predict(rows.regressor[-50:]).mean for model in found]
    assert np.array_equal(predicted[0], predicted[1])
    assert np.array_equal(predicted[0], predicted[2])


# --- offsets that the measured lags confirm -------------------------------------------------------

N_SLOW_SAMPLES = 900
OFFSET_BEGIN = 600


def simulate_oscillator(seed=1, disturbances=()):
    """Return u and y of a forced Van der Pol oscillator; its output jumps at the disturbances.

    Each of these is a pair (sample, jump). The output changes little from one sample to the next.
    """
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.uniform(-1.0, 1.0, N_SLOW_SAMPLES // 10), 10)
    position, speed = 1.0, 0.0
    y = np.zeros(N_SLOW_SAMPLES)
    jumps = dict(disturbances)
    for k in range(N_SLOW_SAMPLES):
        position += jumps.get(k, 0.0)
        y[k] = position
        for _ in range(10):
            acceleration = (1.0 - position**2) * speed - position + u[k]
            position += 0.01 * speed
            speed += 0.01 * acceleration
    return u, y + 0.004 * rng.normal(size=N_SLOW_SAMPLES)


def identify_oscillator(u, y, n_together=N_SLOW_SAMPLES, **options):
    """Return the identification of a stream of the oscillator, and its errors by sample."""
    return identify_in_blocks(NARX, replace(SETTINGS, **options), u, y, n_together)


@pytest.fixture(scope="module")
def clean_oscillator():
    return identify_oscillator(*simulate_oscillator())


@pytest.mark.parametrize("n_together", [N_SLOW_SAMPLES, 1], ids=["block", "one by one"])
@pytest.mark.parametrize("length", [3, 10])
@pytest.mark.parametrize("offset", [1.5, -4.5])
def test_an_offset_is_forgotten_that_looks_like_two_jumps_of_the_plant(
    clean_oscillator, offset, length, n_together
):
    """The samples with the offset follow from each other as the model knows it."""
    u, y = simulate_oscillator()
    y[OFFSET_BEGIN : OFFSET_BEGIN + length] += offset
    identification, errors = identify_oscillator(u, y, n_together)
    assert identification.n_undone == length - 1
    after = slice(OFFSET_BEGIN + length + 50, None)
    assert rms(errors[after]) < 1.1 * rms(clean_oscillator[1][after])


def test_an_offset_is_forgotten_by_a_model_with_a_linear_mean():
    u, y = simulate_oscillator()
    y[OFFSET_BEGIN : OFFSET_BEGIN + 4] += 1.5
    found = [identify_oscillator(u, y, n, mean=LinearMean())[0] for n in (N_SLOW_SAMPLES, 1)]
    assert [identification.n_undone for identification in found] == [3, 3]


@pytest.mark.parametrize("later", [[], [(OFFSET_BEGIN + 6, 1.0)], [(OFFSET_BEGIN + 25, -2.0)]])
def test_jumps_of_the_plant_that_do_not_cancel_are_learned(later):
    u, y = simulate_oscillator(disturbances=[(OFFSET_BEGIN, 2.0), *later])
    identification, _ = identify_oscillator(u, y)
    assert identification.n_undone == 0


def test_an_offset_soon_after_a_jump_of_the_plant_is_forgotten():
    u, y = simulate_oscillator(disturbances=[(OFFSET_BEGIN, -1.0)])
    y[OFFSET_BEGIN + 5 : OFFSET_BEGIN + 9] += 2.0
    found = [identify_oscillator(u, y, n)[0] for n in (N_SLOW_SAMPLES, 7, 1)]
    assert [identification.n_undone for identification in found] == [3, 3, 3]


def test_an_offset_is_forgotten_although_the_plant_jumps_a_little_meanwhile():
    u, y = simulate_oscillator(disturbances=[(OFFSET_BEGIN + 5, 0.15)])
    y[OFFSET_BEGIN : OFFSET_BEGIN + 9] -= 1.2
    training = MaximumAPosteriori()  # the noise stays as it is, so that the small jump shows
    found = [identify_oscillator(u, y, n, training=training)[0] for n in (N_SLOW_SAMPLES, 7, 1)]
    assert [identification.n_undone for identification in found] == [8, 8, 8]


def test_a_jump_back_is_not_awaited_across_samples_without_a_row():
    u, y = simulate_oscillator()
    y[OFFSET_BEGIN : OFFSET_BEGIN + 8] += 1.5
    rows = NARX.regressors({"y": y, "u": u})
    hole = int(np.searchsorted(rows.sample, OFFSET_BEGIN + 4))
    identification = Identification(NARX, SETTINGS)
    identification.observe_many(rows.regressor[:hole], rows.target[:hole])
    identification.skip(2)
    identification.observe_many(rows.regressor[hole + 2 :], rows.target[hole + 2 :])
    assert identification.n_undone == 0


@pytest.mark.parametrize("seed", range(4))
def test_offsets_and_bursts_of_any_length_are_the_same_in_blocks_of_any_size(seed):
    """They follow each other so closely that one begins while another is being decided."""
    u, y = simulate_oscillator(seed)
    rng = np.random.default_rng(100 + seed)
    begin = 200
    while begin < N_SLOW_SAMPLES - 20:
        length = int(rng.integers(1, 12))
        size = rng.choice([-1.0, 1.0]) * rng.choice([0.2, 1.5, 5.0, 50.0])
        burst = slice(begin, begin + length)
        y[burst] += size * (1.0 if rng.uniform() < 0.7 else rng.normal(size=y[burst].size))
        begin += length + int(rng.choice([3, 5, 8, 12, 30]))
    found = [identify_oscillator(u, y, n) for n in (N_SLOW_SAMPLES, 40, 7, 1)]
    n_undone = [identification.n_undone for identification, _ in found]
    assert n_undone[0] > 20
    assert n_undone == n_undone[:1] * 4
    for _, errors in found[1:]:
        np.testing.assert_array_equal(errors, found[0][1])


def simulate_linear(u, disturbance=0.0):
    """Return y[k] = 0.8 y[k-1] + u[k-1] + e[k], with a disturbance at `BEGIN`."""
    noise = 0.01 * np.random.default_rng(3).normal(size=len(u))
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.8 * y[k - 1] + u[k - 1] + noise[k]
        if k == BEGIN:
            y[k] += disturbance
    return y


def test_far_samples_are_learned_if_those_after_them_follow_from_them():
    """The mean predicts the plant anywhere."""
    u = np.random.default_rng(2).normal(size=N_SAMPLES)
    y = simulate_linear(u, disturbance=30.0)
    rows = NARX.regressors({"y": y, "u": u})
    mean = LinearMean([-0.2, 0.0, 1.0, 0.0], 0.0)
    identification = Identification(NARX, replace(SETTINGS, mean=mean))
    identification.observe_many(rows.regressor, rows.target)
    assert identification.n_undone == 0
    assert identification.model.gp.repairs["outliers"] == 0


def test_inputs_that_move_the_plant_far_away_for_some_samples_are_learned():
    u = 0.3 * np.random.default_rng(2).normal(size=N_SAMPLES)
    begins = [BEGIN, BEGIN + 60, BEGIN + 120]
    for begin in begins:
        u[begin : begin + 3] = 5.0
    y = simulate_linear(u)
    identification, errors = identify_stream(u, y)
    assert identification.n_undone == 0
    of_pulses = [rms(errors[begin : begin + 8]) for begin in begins]
    assert of_pulses[2] < 0.3 * of_pulses[0]


def test_no_input_is_blamed_for_a_plant_that_changes():
    identification, _ = identify_stream(*simulate(700, changes=True, seed=1))
    assert identification.n_mended.get("u", 0) <= 3


def test_the_samples_of_a_burst_are_counted(clean):
    u, y = simulate()
    y[BEGIN : BEGIN + 3] = 5.0
    identification, _ = identify_stream(u, y)
    assert clean[0].n_undone == 0
    n_outliers = identification.model.gp.repairs["outliers"]
    assert identification.n_undone + n_outliers == 3


def test_a_plant_that_changes_is_learned():
    u, y = simulate(700, changes=True)
    identification, errors = identify_stream(u, y)
    assert identification.n_undone <= 2
    assert rms(errors[-100:]) < 0.9 * rms(errors[BEGIN : BEGIN + 50])


def test_blocks_and_single_samples_give_the_same_after_a_burst():
    u, y = simulate()
    y[BEGIN : BEGIN + 3] = -999.0
    rows = NARX.regressors({"y": y, "u": u})
    at_once, _ = identify_stream(u, y)
    one_by_one = Identification(NARX, SETTINGS)
    for regressor, target in zip(rows.regressor, rows.target, strict=True):
        one_by_one.observe(regressor, target)
    models = [identification.model for identification in (at_once, one_by_one)]
    predicted = [model.predict(rows.regressor[-50:]).mean for model in models]
    assert np.array_equal(*predicted)


@pytest.mark.parametrize("told", [False, True], ids=["not told", "told"])
def test_an_outlier_at_the_end_of_a_run_does_not_touch_the_next_one(told):
    u, y = simulate()
    y[BEGIN - 1] += 30.0
    identification = Identification(NARX, SETTINGS)
    window = LagWindow(NARX)
    errors = []
    last = None
    for k in range(BEGIN + 20):
        if k == BEGIN:
            window.reset()
        pair = window.observe(y[k : k + 1], u[k : k + 1])
        if pair is None:
            continue
        follows = not told or last == k - 1
        report = identification.observe(*pair, follows=follows)
        last = k
        if report is not None and k > BEGIN:
            errors.append(pair.target - report.mean)
    assert max(np.abs(errors)) < 0.2


# --- predictions in place of rejected measurements ------------------------------------------------


def growing_stream(u_in_burst):
    """Return u and y of y[k] = 0.9 y[k-1] + u[k-1] + e[k] with a burst of four wrong outputs.

    A constant input during the burst drives the prediction away from the outputs seen before.
    """
    rng = np.random.default_rng(3)
    u = rng.normal(size=N_SAMPLES)
    burst = slice(BEGIN, BEGIN + 4)
    u[BEGIN - 1 : BEGIN + 3] = u_in_burst
    y = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        y[k] = 0.9 * y[k - 1] + u[k - 1] + 0.01 * rng.normal()
    y[burst] = [-30.0, 31.0, -32.0, 33.0]
    return u, y


@pytest.mark.parametrize(("u_in_burst", "is_clipped"), [(0.0, False), (20.0, True)])
@pytest.mark.parametrize("predict", ["change", "value"])
def test_predictions_in_place_of_measurements_stay_near_the_learned_outputs(
    u_in_burst, is_clipped, predict
):
    narx = Narx({"y": 2}, {"u": 2}, predict=predict)
    rows = narx.regressors(dict(zip("uy", growing_stream(u_in_burst), strict=True)))
    identification = Identification(narx, Settings(budget=50, mean=LinearMean()))
    split = np.searchsorted(rows.sample, BEGIN + 4)
    identification.observe_many(rows.regressor[:split], rows.target[:split])
    assert (identification.n_clipped > 0) == is_clipped
    resumed = Identification.resume(identification.model)
    assert resumed.n_clipped == identification.n_clipped


def test_the_range_of_the_learned_outputs_has_a_margin():
    """The first lag is the output before; the target is its change."""
    rows = MendedRows(NARX)
    rows.learn(np.array([[1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]), np.array([-1.0, 8.0]))
    rows.learn(np.array([[3.0, 0.0, 0.0, 0.0]]), np.array([0.5]))
    assert rows.learned == (0.0, 10.0)
    x = np.zeros((2, 4))
    x[:, 0] = 4.0
    for mean, replacement in [(7.0, 11.0), (6.5, 10.5), (-4.5, -0.5), (-9.0, -1.0)]:
        rows.begin(x, np.array([100.0, 0.0]), None)
        rows.errors = {}
        rows.replace_target(0, mean)
        assert rows.errors["y", 0] == pytest.approx(104.0 - replacement)
    assert rows.n_clipped == 1


def test_nothing_is_clipped_where_no_range_is_known():
    rows = MendedRows(NARX)
    rows.begin(np.zeros((2, 4)), np.array([100.0, 0.0]), None)
    rows.replace_target(0, 1e6)
    assert rows.errors == {("y", 0): 100.0 - 1e6}
    assert rows.n_clipped == 0


def test_an_unknown_range_stays_unknown():
    """Samples that are learned later are only some of all."""
    rows = MendedRows(NARX)
    rows.learned = UNKNOWN_RANGE
    rows.learn(np.zeros((2, 4)), np.array([1.0, 2.0]))
    rows.learn(np.zeros((1, 4)), np.array([3.0]))
    assert rows.learned == UNKNOWN_RANGE
    rows.begin(np.zeros((2, 4)), np.array([100.0, 0.0]), None)
    rows.replace_target(0, 1e6)
    assert rows.errors == {("y", 0): 100.0 - 1e6}
    assert rows.n_clipped == 0


OUTLIER = BEGIN + 3


@pytest.mark.parametrize(
    "origin", [Origin(), Origin(output_range=(-3.0, 3.0))], ids=["-", "record"]
)
@pytest.mark.parametrize("lost", ["range", "pending", "other samples"])
def test_a_resumed_model_replaces_an_outlier_by_its_prediction(tmp_path, lost, origin):
    """The range of the samples since then, between -0.7 and 0.1, does not limit the prediction."""
    u, y = simulate()
    y[OUTLIER] += 8.0
    rows = NARX.regressors({"y": y, "u": u})
    split = int(np.searchsorted(rows.sample, BEGIN))
    identification = Identification(NARX, SETTINGS)
    identification.observe_many(rows.regressor[:split], rows.target[:split])
    replace(identification.model, origin=origin).save(tmp_path / "model.nc")
    model = Model.load(tmp_path / "model.nc")
    if lost == "range":
        del model.pending["learned"]
    elif lost == "pending":
        model.pending.clear()
    else:
        model.update_many(rows.regressor[split - 1 : split], rows.target[split - 1 : split])
    resumed = Identification.resume(model)
    later = slice(split, split + OUTLIER - BEGIN + 5)
    pairs = zip(rows.regressor[later], rows.target[later], strict=True)
    single = [resumed.observe(*pair) for pair in pairs]
    errors = rows.target[later] - [report.mean for report in single]
    at_once = identification.observe_many(rows.regressor[later], rows.target[later])
    assert [report.outlier for report in single] == at_once["outlier"].tolist()
    np.testing.assert_allclose(errors, rows.target[later] - at_once["mean"], atol=0.02)
    assert resumed.n_clipped == 0


def test_what_a_resumed_model_does_not_know_it_still_does_not_know_when_it_is_resumed_again():
    u, y = simulate()
    rows = NARX.regressors({"y": y, "u": u})
    identification = Identification(NARX, SETTINGS)
    identification.observe_many(rows.regressor[:BEGIN], rows.target[:BEGIN])
    identification.model.pending["learned"] = "unknown"
    resumed = Identification.resume(identification.model)
    resumed.observe_many(rows.regressor[BEGIN:], rows.target[BEGIN:])
    assert range_known_to(resumed.model) != UNKNOWN_RANGE
    assert resumed.model.pending["learned"] == "unknown"


@pytest.mark.parametrize("stored", [[1.0], "all", {"low": 1.0}])
@pytest.mark.parametrize("is_old", [False, True], ids=["last", "before other samples"])
def test_a_stored_range_that_is_none_is_refused(clean, stored, is_old):
    model = replace(clean[0].model, pending={**clean[0].model.pending, "learned": stored})
    model.pending["seen"] -= is_old
    with pytest.raises(ValueError, match="pending samples stored with the model do not fit"):
        Identification.resume(model)


@pytest.mark.parametrize("opens_after", [None, 1], ids=["sample refuted", "opens at once"])
@pytest.mark.parametrize("beyond", [[0], [1], [1, 2]], ids=str)
@pytest.mark.parametrize("predict", ["change", "value"])
def test_the_clipped_predictions_of_a_forgotten_burst_are_counted(
    monkeypatch, predict, beyond, opens_after
):
    """The output is far beyond its range in some samples of the burst, but hardly after them."""
    if opens_after is not None:

        def build(narx, trained, gp_settings, selection):
            gp_settings["gate_opens_after"] = opens_after
            return build_model(narx, trained, gp_settings, selection)

        monkeypatch.setattr("sysid.identification.build_model", build)
    rng = np.random.default_rng(3)
    n = BEGIN + 50
    u = rng.normal(size=n)
    u[[BEGIN - 1 + sample for sample in beyond]] = 20.0
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.1 * y[k - 1] + u[k - 1] + 0.01 * rng.normal()
    y[BEGIN : BEGIN + 5] = 60.0 * (-1.0) ** np.arange(5)
    narx = Narx({"y": 2}, {"u": 2}, predict=predict)
    rows = narx.regressors({"y": y, "u": u})
    identification = Identification(narx, Settings(budget=50, mean=LinearMean()))
    identification.observe_many(rows.regressor, rows.target)
    assert identification.n_undone > 0
    assert identification.n_clipped == len(beyond)


def test_predictions_far_outside_of_the_range_learned_do_not_confirm_an_offset():
    """The model extrapolates the offset with 3.5 times the standard deviation of the noise."""
    rng = np.random.default_rng(1)
    u = rng.normal(size=700)
    y = np.zeros(700)
    for k in range(1, 700):
        y[k] = 0.8 * y[k - 1] + 0.3 * np.sign(u[k - 1])
    y += 0.01 * rng.normal(size=700)
    y[400:403] -= 4.5
    narx = Narx({"y": 2}, {"u": 2})
    rows = narx.regressors({"y": y, "u": u})
    identification = Identification(narx, SETTINGS)
    identification.observe_many(rows.regressor[:450], rows.target[:450])
    assert identification.n_undone == 2


@pytest.mark.parametrize("n_together", [1, 7, 1000])
def test_a_mean_that_is_no_constant_changes_no_decision(n_together):
    """Other functions compute its predictions. This one has the values of a constant."""
    u, y = simulate()
    y[BEGIN : BEGIN + 5] = 50.0 * np.random.default_rng(5).normal(size=5)
    y[[350, 400]] += 5.0
    rows = NARX.regressors({"y": y, "u": u})

    def learn(mean):
        training = MaximumAPosteriori(n_initial=200)
        found = Identification(NARX, replace(SETTINGS, training=training, mean=mean))
        records = []
        for begin in range(0, len(rows.target), n_together):
            block = slice(begin, begin + n_together)
            records.append(found.observe_many(rows.regressor[block], rows.target[block]))
        return found, np.concatenate(records)

    of_constant, record_of_constant = learn(ConstantMean())
    value = of_constant.model.mean.value
    of_linear, record_of_linear = learn(LinearMean([0.0] * NARX.n_features, value))
    for name in record_of_constant.dtype.names:
        np.testing.assert_array_equal(record_of_linear[name], record_of_constant[name])
    assert of_linear.n_undone == of_constant.n_undone > 0
    assert of_linear.replaced == of_constant.replaced
    assert record_of_linear["outlier"].any()
