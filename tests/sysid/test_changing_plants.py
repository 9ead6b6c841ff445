"""Plants that change and sensors that fail: forgetting, the gate, and what becomes of its
outliers.
"""

from dataclasses import replace

import numpy as np
import pytest

import sysid
from naive import CRITERIA, criterion_name
from sysid import (
    MarginalLogLikelihood,
    MeanRelevance,
    Narx,
    OnlineGP,
    Settings,
    SquaredExponential,
)
from sysid.gp.rules import Criterion

NOISE = 1e-2
NARX = Narx({"y": [1, 2]}, {"u": [1]})


def online_gp(**settings):
    chosen = {
        "noise_variance": NOISE,
        "budget": 12,
        "scale": False,
        "learning": "every_sample",
    } | settings
    return OnlineGP(SquaredExponential(1.0, [1.5]), **chosen)


def plant(n, *, change=None, bad=(), jump=(), seed=0):
    """Record of ``y[k] = a tanh(y[k-1]) + 0.2 y[k-2] + 0.5 u[k-1] + w``, w of std 0.02; w jumps by
    1 at `jump`; the sensor is wrong by 1 at `bad`; a is 0.8, and 0.5 from `change` on."""
    random = np.random.default_rng(seed)
    u = np.repeat(random.uniform(-1, 1, n // 5 + 1), 5)[:n]
    w = 0.02 * random.standard_normal(n)
    w[list(jump)] += 1.0
    y = np.zeros(n)
    for k in range(2, n):
        a = 0.8 if change is None or k < change else 0.5
        y[k] = a * np.tanh(y[k - 1]) + 0.2 * y[k - 2] + 0.5 * u[k - 1] + w[k]
    measured = y.copy()
    measured[list(bad)] += 1.0
    return measured, u


def rows_of(record):
    y, u = record
    return NARX.regressors({"y": y, "u": u})


def observed(found, rows, size):
    """What became of rows that are observed in blocks of so many, each last one corrected by the
    next call.
    """
    parts = []
    for k in range(0, len(rows.target), size):
        part = found.observe_many(rows.regressor[k : k + size], rows.target[k : k + size])
        if found.correction is not None:
            parts[-1][-1] = found.correction
        parts.append(part)
    return np.concatenate(parts)


def identified(record, blocks=None, **settings):
    """Identification of a record, in blocks of so many rows, and what became of them."""
    rows = rows_of(record)
    training = sysid.MaximumAPosteriori(n_initial=60, restarts=1)
    rules = {
        "acceptance": sysid.AcceptAll(),
        "reduction": sysid.MarginalLogLikelihood(),
    } | settings
    found = sysid.Identification(NARX, Settings(training=training, budget=30, **rules))
    return found, observed(found, rows, blocks or len(rows.target))


# --- forgetting -------------------------------------------------------------------------------------


def test_forgetting_is_an_exact_gp_whose_function_wanders():
    """While no point leaves: covariance ``k(x, x') l^(|t - t'|/2)`` (Van Vaerenbergh and others,
    2012).
    """
    random = np.random.default_rng(1)
    x = np.repeat(np.linspace(-2, 2, 6), 4)[:, None]
    memory = 3.0
    random.shuffle(x)
    y = np.sin(2 * x[:, 0]) + 0.1 * random.standard_normal(len(x))
    gp = online_gp(forgetting=memory, insertion=sysid.Always(), noise_variance=NOISE, budget=40)
    assert gp._forget_interval == 1
    gp.update_many(x, y)
    share = 1 - NOISE / memory**2
    t = np.arange(len(x))
    new = np.linspace(-2, 2, 9)[:, None]

    def wandering(a, b, s, t):
        return gp.kernel(a, b) * share ** (abs(s[:, None] - t) / 2)

    k = wandering(new, x, np.full(9, len(x)), t)
    expected = k @ np.linalg.solve(wandering(x, x, t, t) + NOISE * np.eye(len(x)), y)
    mean, _ = gp.predict(new)
    np.testing.assert_allclose(mean, expected, atol=0.02)
    frozen, _ = online_gp(insertion=sysid.Always(), budget=40).fit(x[:1], y[:1]).predict(new)
    assert abs(frozen - expected).max() > 0.3


def test_a_step_back_to_the_prior_mixes_it_in():
    random = np.random.default_rng(2)
    x = random.uniform(-2, 2, (12, 1))
    gp = online_gp(forgetting=40.0).fit(x, np.sin(x[:, 0]))
    before = gp.state()
    gp._forget()
    after = gp.state()
    share = (1 - NOISE / 40.0**2) ** gp._forget_interval
    expected = share * before["root"].T @ before["root"] + (1 - share) * np.eye(12)
    np.testing.assert_allclose(after["root"].T @ after["root"], expected, atol=1e-12)
    np.testing.assert_allclose(after["whitened"], np.sqrt(share) * before["whitened"], rtol=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
def test_the_gain_of_a_point_ranks_as_its_score_and_is_never_negative(criterion):
    random = np.random.default_rng(3)
    residual = random.standard_normal(200)
    latent = random.exponential(1.0, 200)
    kind = type(criterion)
    gains = [kind.gain(r, v + 0.1, 0.1) for r, v in zip(residual, latent, strict=True)]
    scores = [kind.reduction(r, v + 0.1, 0.1) for r, v in zip(residual, latent, strict=True)]
    assert min(gains) >= 0
    assert np.array_equal(np.argsort(gains), np.argsort(scores))


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
def test_stored_points_lose_worth_as_they_age(criterion):
    """The point that leaves has the least ``gain exp(-age / memory)`` among those without it; brute
    force.
    """
    random = np.random.default_rng(4)
    x = random.uniform(-2, 2, (60, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * random.standard_normal(60)
    settings = {
        "learning": "stored",
        "reduction": criterion,
        "insertion": sysid.Always(),
    }
    gp = online_gp(forgetting=15.0, **settings)
    without = online_gp(**settings)
    without.update_many(x, y)
    for t, (point, target) in enumerate(zip(x, y, strict=True)):
        targets = np.append(gp.targets, target)
        stored = np.append(gp.inputs, [point], axis=0)
        numbers = gp.sample_numbers
        report = gp.update(point, target)
        if report.removed < 0:
            continue
        ky = gp.kernel(stored, stored) + NOISE * np.eye(len(stored))
        scores = []
        for i in range(len(stored) - 1):
            rest = np.delete(np.arange(len(stored)), i)
            weights = np.linalg.solve(ky[np.ix_(rest, rest)], ky[rest, i])
            gain = type(criterion).gain(
                targets[i] - weights @ targets[rest],
                ky[i, i] - weights @ ky[rest, i],
                NOISE,
            )
            scores.append(gain * np.exp(-(t + 1 - numbers[i]) / 15.0))
        assert report.removed == int(np.argmin(scores))
    assert gp.n_points == 12
    assert not np.array_equal(gp.inputs, without.inputs)


@pytest.mark.parametrize(
    "settings",
    [{"learning": "every_sample", "forgetting": 30.0}, {"forgetting": 100.0}],
)
def test_who_forgets_follows_a_change_better(settings):
    settings = {"learning": "stored", "reduction": MeanRelevance()} | settings
    record = plant(1500, change=800)
    rows = rows_of(record)

    def error(**more):
        _, found = identified(record, **settings | more)
        return np.mean((rows.target - found["mean"])[1000:] ** 2)

    assert error() < 0.95 * error(forgetting=None)


QUIET = Settings(
    training=sysid.MaximumAPosteriori(n_initial=60, restarts=1),
    acceptance=sysid.AcceptAll(),
    reduction=MarginalLogLikelihood(),
    budget=30,
)


# --- the gate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("learning", ["every_sample", "stored"])
def test_outliers_of_a_sensor_are_found_and_cost_little(learning):
    mended = []
    believed = []
    for seed in range(3):
        bad = np.random.default_rng(seed).choice(np.arange(70, 1200, 4), 24, replace=False)
        clean = plant(1200, seed=seed)
        failing = plant(1200, bad=bad, seed=seed)
        test = rows_of(plant(800, seed=9))

        def identify(record, gate, test=test):
            found, became = identified(record, gate=gate, learning=learning)
            return (
                np.mean((found.model.predict(test.regressor).mean - test.target) ** 2),
                found.model.gp,
                became,
            )

        (best, _, quiet), (error, gp, became) = (
            identify(clean, 4.0),
            identify(failing, 4.0),
        )
        mended.append(error / best)
        believed.append(identify(failing, None)[0] / best)
        assert (
            np.isin(bad - 2, np.flatnonzero(became["outlier"])).sum() >= 22
        )  # few come right after another
        assert gp.repairs["outliers"] <= 1.2 * len(bad)
        assert quiet["outlier"].sum() <= 3
    assert np.median(mended) < 1.3
    assert np.median(believed) > 1.6


def test_initial_samples_are_screened():
    bad = [12, 33, 34]
    with_bad, _ = identified(plant(400, bad=bad))
    without, _ = identified(plant(400))
    assert 3 <= with_bad.n_initial_outliers <= 9
    assert without.n_initial_outliers == 0
    ratio = with_bad.hyperparameters.noise_variance / without.hyperparameters.noise_variance
    assert 0.5 < ratio < 2.0


def test_estimates_know_their_sample_if_initial_ones_were_left_out():
    rows = rows_of(plant(400, bad=[12, 33, 34]))
    training = sysid.Adaptive(
        n_initial=60, restarts=1, interval=10, significance=0.9, max_updates=1
    )
    found = sysid.Identification(NARX, Settings(training=training, budget=30))
    found.observe_many(rows.regressor, rows.target)
    assert found.n_initial_outliers >= 3
    samples = [estimate.sample for estimate in found.adaptation.estimates]
    assert len(samples) > 10
    assert all((sample - 60) % 10 == 0 for sample in samples)
    assert max(samples) > 300


def test_rows_of_an_outlier_have_its_prediction_among_their_lags():
    """What the next rows learn is what they would be if the sensor had shown the prediction."""
    record = plant(400, bad=[300])
    rows = rows_of(record)
    _, became = identified(record)
    row = 298  # of sample 300
    assert np.flatnonzero(became["outlier"]).tolist() == [row]
    y, u = record
    shown = y.copy()
    shown[300] = y[299] + became["mean"][row]
    expected = rows_of((shown, u))
    other, _ = identified((y[:301], u[:301]))
    for k in (row + 1, row + 2, row + 3):
        mean = other.model.predict(expected.regressor[k : k + 1]).mean[0]
        from_measured = mean - (expected.target[k] - rows.target[k])
        np.testing.assert_allclose(became["mean"][k], from_measured, atol=1e-9)
        other.model.update_many(expected.regressor[k : k + 1], expected.target[k : k + 1])


@pytest.mark.parametrize("blocks", [1, 7, 100])
def test_blocks_and_breaks_do_not_matter(blocks):
    record = plant(500, bad=[80, 150, 151, 300, 302], jump=[400])
    whole, expected = identified(record)
    parts, became = identified(record, blocks)
    for name in expected.dtype.names:
        np.testing.assert_array_equal(became[name], expected[name])
    np.testing.assert_equal(parts.model.gp.state(), whole.model.gp.state())
    rows = rows_of(record)
    follows = np.ones(len(rows.target), dtype=bool)
    follows[149] = False  # right after the outlier of sample 150: nothing of it is mended
    apart = sysid.Identification(NARX, whole.settings)
    found = apart.observe_many(rows.regressor, rows.target, follows=follows)
    assert not np.array_equal(found["mean"][149:151], expected["mean"][149:151])
    np.testing.assert_array_equal(found["mean"][60:149], expected["mean"][60:149])


def test_if_every_outlier_is_believed_nothing_else_changes_than_when():
    """The gate costs nothing on a plant that jumps or changes: the same model, bit for bit."""
    record = plant(900, jump=[300, 500], change=600)
    for learning, memory in (
        ("every_sample", None),
        ("stored", None),
        ("every_sample", 3.0),
    ):
        settings = {"learning": learning, "forgetting": memory}
        found, became = identified(record, **settings)
        without, ungated = identified(record, **settings, gate=None)
        assert not became["outlier"].any()
        assert found.model.gp.repairs["outliers"] == 0
        for name in ("inputs", "targets", "weights"):
            np.testing.assert_array_equal(
                found.model.gp.state()[name], without.model.gp.state()[name]
            )
        for name in became.dtype.names:
            np.testing.assert_array_equal(became[name], ungated[name])


def test_a_jump_of_the_plant_is_believed_one_sample_later():
    record = plant(600, jump=[400])
    found, _ = identified((record[0][:401], record[1][:401]))
    assert found.model.gp.repairs["outliers"] == 1
    rows = rows_of(record)
    before = found.model.gp.n_points
    assert not len(found.observe_many(rows.regressor[:0], rows.target[:0]))
    late = found.observe_many(rows.regressor[399:400], rows.target[399:400])
    assert not late["outlier"][0]
    assert found.model.gp.repairs["outliers"] == 0
    assert found.model.gp.n_points >= before
    found, became = identified(record)
    _, ungated = identified(record, gate=None)
    np.testing.assert_allclose(became["mean"][401:], ungated["mean"][401:], atol=0.02)


@pytest.mark.parametrize("size", [1, 4, 50], ids=lambda size: f"blocks of {size}")
@pytest.mark.parametrize("failing", ["sensor", "plant", "other signal"])
def test_what_was_returned_stays_and_the_next_call_corrects_it(failing, size):
    """The last row of a block is held back: an outlier that stays one, a jump of the plant, a pulse
    of the input.
    """
    y, u = plant(
        240,
        bad=[200, 210] if failing == "sensor" else [],
        jump=[201] if failing == "plant" else [],
    )
    if failing == "other signal":
        u[[150, 200]] += 6.0
    rows = rows_of((y, u))
    whole = sysid.Identification(NARX, QUIET)
    expected = whole.observe_many(rows.regressor, rows.target)
    found = sysid.Identification(NARX, QUIET)
    returned = []
    kept = []
    corrections = {}
    for k in range(0, len(rows.target), size):
        part = found.observe_many(rows.regressor[k : k + size], rows.target[k : k + size])
        if found.correction is not None:
            corrections[k - 1] = found.correction
        returned.append(part)
        kept.append(part.copy())
    found.finish()
    for part, copy in zip(returned, kept, strict=True):
        np.testing.assert_equal(part.tolist(), copy.tolist())
    became = np.concatenate(returned)
    assert bool(corrections) == (failing != "sensor")
    for k, correction in corrections.items():
        assert (correction.mean, correction.variance) == (
            became["mean"][k],
            became["variance"][k],
        )
        assert repr(correction) != repr(sysid.UpdateReport(*became[k].item()))
        became[k] = correction
    np.testing.assert_equal(became.tolist(), expected.tolist())
    np.testing.assert_equal(found.model.gp.state(), whole.model.gp.state())


def test_a_call_that_decides_nothing_corrects_nothing():
    rows = rows_of(plant(300, jump=[250]))
    found = sysid.Identification(NARX, QUIET)
    assert found.correction is None
    returned = found.observe_many(rows.regressor[:249], rows.target[:249])
    assert returned["outlier"][-1]
    with pytest.raises(ValueError, match="targets"):
        found.observe_many(rows.regressor[249:], np.append(rows.target[249:-1], np.nan))
    assert found.correction is None
    assert not len(found.observe_many(rows.regressor[:0], rows.target[:0]))
    assert found.correction is None
    resumed = sysid.Identification.resume(sysid.Model.from_dataset(found.model.to_dataset()))
    for one in (found, resumed):
        one.observe(rows.regressor[249], rows.target[249])
    assert not found.correction.outlier
    assert found.correction.accepted == (found.correction.slot >= 0)
    assert found.correction.mean == returned["mean"][-1]
    assert np.isnan(resumed.correction.mean)  # a model does not keep it
    np.testing.assert_equal(resumed.correction[2:], found.correction[2:])
    found.observe(rows.regressor[250], rows.target[250])
    assert found.correction is None
    assert returned["outlier"][-1]


def test_rows_without_lags_have_no_gate():
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (300, 1))
    y = np.sin(x[:, 0]) + 0.02 * random.standard_normal(300)
    y[::50] += 5.0
    narx = Narx({"y": []}, {"x": [0]}, predict="value")
    found = sysid.Identification(
        narx, Settings(training=sysid.MaximumAPosteriori(n_initial=60, restarts=1))
    )
    assert not found.observe_many(x, y)["outlier"].any()
    assert (found.gate, found.model.gp.gate, found.n_initial_outliers) == (
        None,
        None,
        0,
    )


def test_without_lags_the_gate_opens_after_so_many():
    gp = online_gp(gate=4.0, gate_opens_after=3, insertion=sysid.Always())
    x = np.linspace(-2, 2, 60)[:, None]
    gp.update_many(x, np.zeros(60))
    became = [gp.update(x[k], 5.0) for k in range(10, 17)]
    assert [report.outlier for report in became] == [True] * 3 + [False] * 4
    assert gp.repairs["outliers"] == 3
    assert not gp.update(x[40], gp.predict(x[40:41])[0][0]).outlier
    assert gp.update(x[0], 50.0).outlier


def test_a_model_file_keeps_the_gate_and_what_is_forgotten(tmp_path):
    found, _ = identified(
        plant(500, bad=[490]),
        learning="stored",
        forgetting=50.0,
        reduction=MeanRelevance(),
    )
    found.model.save(tmp_path / "model.nc")
    loaded = sysid.Model.load(tmp_path / "model.nc")
    assert (loaded.gp.gate, loaded.gp.forgetting, loaded.gp.gate_opens_after) == (
        4.0,
        50.0,
        6,
    )
    rows = rows_of(plant(300, seed=3, bad=[50]))
    expected = found.model.update_many(rows.regressor, rows.target)
    assert loaded.update_many(rows.regressor, rows.target).tobytes() == expected.tobytes()
    without = sysid.Model.load(tmp_path / "model.nc").to_dataset()
    for name in ("gate", "forgetting", "gate_opens_after"):
        del without.attrs[name]
    with pytest.raises(
        ValueError,
        match=r"it lacks the attributes \['forgetting', 'gate', 'gate_opens_after'\]",
    ):
        sysid.Model.from_dataset(without)


class Volume(MeanRelevance):
    """A criterion of a user's own without a gain."""

    gain = Criterion.gain


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"forgetting": 1.5}, "forgetting must be a number of at least 2"),
        ({"forgetting": "slowly"}, "forgetting must be a number of at least 2"),
        ({"gate": 0.5}, "gate must be a number of at least 1"),
        ({"gate": True}, "gate must be a number of at least 1"),
        (
            {"gate_opens_after": 0},
            "gate_opens_after must be a whole number of at least 1",
        ),
        (
            {"forgetting": 10, "learning": "stored", "reduction": Volume()},
            "Volume defines no gain",
        ),
    ],
)
def test_impossible_settings_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        online_gp(**settings)
    if "gate_opens_after" not in settings and "reduction" not in settings:
        with pytest.raises(ValueError, match=said):
            Settings(**settings)
    assert Settings(gate="none", forgetting="none") == Settings(gate=None)
    assert online_gp(forgetting=10, reduction=Volume()).forgetting == 10.0


# --- errors of other signals ------------------------------------------------------------------------

COUPLED = {"outputs": {"y": 2, "v": 2}, "inputs": {"u": 2}}


def coupled(n, *, share=(0.0, 0.0, 0.0), size=0.4, pulses=(), begin=0, seed=0):
    """Record of two outputs that drive each other, noise of std 0.02, and one input that is held
    for 5 samples and has pulses of one sample; from `begin` on a share of the samples of each
    signal is wrong by the size."""
    random = np.random.default_rng(seed)
    u = np.repeat(random.uniform(-1, 1, n // 5 + 1), 5)[:n]
    u[list(pulses)] += 6.0
    y = np.zeros(n)
    v = np.zeros(n)
    for k in range(2, n):
        y[k] = (
            0.7 * np.tanh(y[k - 1])
            + 0.2 * v[k - 2]
            + 0.6 * np.tanh(u[k - 1])
            + 0.02 * random.standard_normal()
        )
        v[k] = 0.6 * v[k - 1] - 0.3 * y[k - 1] + 0.2 * u[k - 2] + 0.02 * random.standard_normal()
    record = {"y": y, "v": v, "u": u}
    bad = np.random.default_rng([seed, 1]).random((3, n)) < np.array(share)[:, None]
    bad[:, :begin] = False
    return {
        name: values + size * wrong
        for (name, values), wrong in zip(record.items(), bad, strict=True)
    }, bad


ONCE = sysid.MaximumAPosteriori(n_initial=100, restarts=1)
ANEW = sysid.Adaptive(n_initial=100, restarts=1, interval=7, significance=0.5, sample_size=120)


def learned(record, target, blocks=None, training=ONCE, **settings):
    narx = Narx(**COUPLED, target=target)
    rows = narx.regressors(record)
    options = Settings(training=training, budget=30, **settings)
    found = sysid.Identification(narx, options)
    return found, observed(found, rows, blocks or len(rows.target))


@pytest.mark.parametrize("begin", [0, 150])
def test_errors_of_other_outputs_and_of_inputs_are_mended_and_cost_little(begin):
    test = Narx(**COUPLED, target="y").regressors(coupled(800, seed=9)[0])

    def error(found):
        return np.mean((found.model.predict(test.regressor).mean - test.target) ** 2)

    with_gate = []
    without = []
    counts = []
    for seed in range(3):
        failing, bad = coupled(1500, share=[0.02] * 3, begin=begin, seed=seed)
        quiet, _ = learned(coupled(1500, seed=seed)[0], "y")
        assert not quiet.n_mended
        found, _ = learned(failing, "y")
        counts.append(found.n_mended["u"] / bad[2].sum())
        with_gate.append(error(found) / error(quiet))
        without.append(error(learned(failing, "y", gate=None)[0]) / error(quiet))
    assert np.median(with_gate) < 1.15
    assert np.median(without) > 1.6
    assert (
        0.4 < np.median(counts) < 1.0
    )  # few sensors matter so much that each of their errors is seen


@pytest.mark.parametrize(("signal", "share"), [("v", [0, 0.02, 0]), ("u", [0, 0, 0.02])])
def test_errors_far_out_are_mended_although_nothing_is_known_there(signal, share):
    record, bad = coupled(1500, share=share, size=4.0, seed=1)
    found, became = learned(record, "y")
    assert 0.5 * bad.sum() < found.n_mended[signal] <= bad.sum()
    assert not became["outlier"].any()
    assert set(found.n_mended) == {signal}


def test_pulses_that_the_plant_answers_are_believed_one_sample_later():
    """The same model, bit for bit."""
    record, _ = coupled(1200, pulses=range(20, 1200, 37))
    for target in ("y", "v"):
        (found, became), (without, ungated) = (
            learned(record, target),
            learned(record, target, gate=None),
        )
        assert not found.n_mended
        np.testing.assert_equal(
            found.model.gp.state()["weights"], without.model.gp.state()["weights"]
        )
        for name in became.dtype.names:
            np.testing.assert_array_equal(became[name], ungated[name])


@pytest.mark.parametrize("blocks", [1, 7])
def test_blocks_do_not_matter_where_other_signals_fail(blocks):
    record, _ = coupled(800, share=[0.03] * 3, begin=110, seed=1)
    whole, expected = learned(record, "y")
    parts, became = learned(record, "y", blocks)
    assert parts.n_mended == whole.n_mended
    assert set(whole.n_mended) == {"u", "v"}
    for name in expected.dtype.names:
        np.testing.assert_array_equal(became[name], expected[name])
    np.testing.assert_equal(parts.model.gp.state(), whole.model.gp.state())


@pytest.mark.parametrize("training", [ONCE, ANEW], ids=["once", "anew"])
@pytest.mark.parametrize("learning", ["every_sample", "stored"])
def test_a_model_that_is_saved_and_loaded_after_each_sample_learns_the_same(
    learning, training, tmp_path
):
    record, _ = coupled(180, share=[0.06] * 3, begin=105, seed=1)
    rows = Narx(**COUPLED, target="y").regressors(record)
    never, expected = learned(record, "y", learning=learning, training=training)
    begin = {name: values[:110] for name, values in record.items()}
    part = learned(begin, "y", learning=learning, training=training)[0]
    became = []
    for k in range(108, len(rows.target)):
        part.model.save(tmp_path / "model.nc")
        part = sysid.Identification.resume(sysid.Model.load(tmp_path / "model.nc"))
        became.append(part.observe(rows.regressor[k], rows.target[k]))
    assert expected["outlier"].sum() >= 3
    assert never.n_mended
    np.testing.assert_array_equal([one.mean for one in became], expected["mean"][108:])
    np.testing.assert_array_equal([one.variance for one in became], expected["variance"][108:])
    np.testing.assert_equal(part.model.gp.state(), never.model.gp.state())
    assert part.model.gp.repairs == never.model.gp.repairs
    if training is ANEW:
        assert len(never.adaptation.estimates) > 3
        np.testing.assert_equal(part.adaptation.state(), never.adaptation.state())


def test_hyperparameters_stay_where_the_model_learned_on_without():
    found, _ = learned(coupled(200, seed=1)[0], "y", training=ANEW)
    assert sysid.Identification.resume(found.model).adaptation is found.adaptation
    rows = found.narx.regressors(coupled(300, seed=2)[0])
    found.model.update_many(rows.regressor[:1], rows.target[:1])
    assert sysid.Identification.resume(found.model).adaptation is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("seen_counts", lambda x: x - 1e6),
        ("seen_counts", lambda x: x + 0.5),
        ("seen_counts", lambda x: x * [1, 1e4, 1, 1, 1, 1]),
        ("seen_inputs", lambda x: x[:, 1:]),
        ("seen_inputs", lambda x: x * np.nan),
        ("seen_targets", lambda x: x[1:]),
        ("seen_numbers", lambda x: x[1:]),
        ("seen_rows", lambda x: np.tile(x, (9, 1))),
        ("seen_squares", lambda x: np.tile(x, 200)),
        ("training", lambda x: x.replace('"interval": 7', '"interval": 99999999')),
        ("training", lambda x: x.replace("sysid.Adaptive", "sysid.MaximumAPosteriori")),
    ],
)
def test_what_a_file_says_of_its_training_must_fit(name, change):
    found, _ = learned(coupled(153, seed=1)[0], "y", training=ANEW)
    state = found.adaptation.state()
    attributes = found.model.to_dataset().attrs
    assert len(state["seen_rows"])
    dataset = found.model.to_dataset().drop_vars([key for key in state if key == name])
    if name in state:
        changed = np.asarray(change(state[name].astype(float)))
        dataset[name] = [f"{name}_{i}" for i in range(changed.ndim)], changed
    else:
        dataset.attrs["training"] = change(attributes["training"])
    with pytest.raises(ValueError, match=r"seen_|training|expected the description"):
        sysid.Model.from_dataset(dataset)


def test_what_is_pending_is_forgotten_where_the_model_learned_on_without():
    record, _ = coupled(400, share=[0, 0, 0.05], begin=110, seed=1)
    found, _ = learned(record, "y")
    assert found.model.pending["seen"] == 398
    rows = found.narx.regressors(coupled(300, seed=2)[0])
    alone = sysid.Identification.resume(found.model)
    assert alone._phase.outliers.mended.last.any()
    found.model.update_many(rows.regressor[:1], rows.target[:1])
    assert not sysid.Identification.resume(found.model)._phase.outliers.mended.last.any()


def test_nothing_is_pending_once_the_last_sample_was_learned():
    record, _ = coupled(300, pulses=[297], seed=1)
    found, _ = learned(record, "y")
    n_points = found.model.gp.n_points
    suspect = found.model.pending["suspect"]
    assert suspect is not None
    assert not suspect["outlier"]
    state = found.model.gp.state()["whitened"]
    found.finish()
    assert found.model.pending["suspect"] is None
    assert found.model.gp.n_points >= n_points
    assert not np.array_equal(found.model.gp.state()["whitened"], state)


def test_the_last_sample_is_corrected_at_the_end():
    record, _ = coupled(300, pulses=[297], seed=1)
    found, became = learned(record, "y")
    copy = became.copy()
    assert not became["inserted"][-1]
    found.finish()
    np.testing.assert_equal(became.tolist(), copy.tolist())
    assert found.correction.inserted
    assert (found.correction.mean, found.correction.variance) == (
        became["mean"][-1],
        became["variance"][-1],
    )
    found.finish()
    assert found.correction is None


def test_what_a_file_says_to_be_pending_is_checked():
    found, _ = learned(coupled(300, seed=1)[0], "y")
    good = found.model.pending
    for wrong in (
        {"last": [1.0]},
        {"errors": [3]},
        {"errors": [["y", "x", 1.0]]},
        {"suspect": {"regressor": 1}},
    ):
        with pytest.raises(ValueError, match="pending samples stored with the model do not fit"):
            sysid.Identification.resume(replace(found.model, pending=good | wrong))
