"""Lags that begin with dead times, of records and while a stream is learned."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from streams import Sample
from sysid import (
    Adaptive,
    DeadTimeFollower,
    Fixed,
    Identification,
    LagWindow,
    MaximumAPosteriori,
    Narx,
    Orders,
    Settings,
    estimate_dead_times,
    learn_from,
    make_record,
    with_dead_times,
)
from sysid.gp.dictionary import NOT_PREDICTED

N_SAMPLES = 900
SETTINGS = Settings(
    training=Fixed(variance=1.0, length_scales=3.0, noise_variance=1e-3, n_initial=20),
    budget=15,
    linear_part="none",
)
ORDERS = Orders(na=1, nb=1, nk="auto")


def simulate(delays, n=N_SAMPLES, seed=0):
    """Return output (n, 1) and inputs (n, m) of a plant whose inputs act after these delays."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, len(delays)))
    y = np.zeros((n, 1))
    for k in range(max(delays), n):
        drive = sum(np.tanh(u[k - delay, i]) for i, delay in enumerate(delays))
        y[k] = 0.8 * y[k - 1] + drive
    return y + 0.02 * y.std() * rng.normal(size=y.shape), u


def blocks_of(y, u, size) -> Iterator:
    return (Sample(0.0, y[k : k + size], u[k : k + size]) for k in range(0, len(y), size))


def assert_same(left, right):
    """Arrays, or fields of records, are equal bit for bit; missing numbers are equal."""
    names = left.dtype.names or [...]
    for name in names:
        np.testing.assert_array_equal(left[name], right[name])


def follow(y, u, size=300, *, settings=SETTINGS, narx=None, **options):
    """Learn a stream with a follower; return the record, the identification and the follower."""
    inputs = ["u", "v"][: u.shape[1]]
    if narx is None:
        narx = settings.with_linear_lags(ORDERS.undelayed(inputs).narx(["y"], inputs))
    identification = Identification(narx, settings)
    follower = DeadTimeFollower(**options)
    records = [NOT_PREDICTED[:0]]
    for block in learn_from(
        blocks_of(y, u, size),
        identification,
        LagWindow(narx),
        outputs=["y"],
        inputs=inputs,
        dead_times=follower,
    ):
        if block.correction is not None:
            records[-1][-1] = block.correction
        records.append(block.record)
    return np.concatenate(records), identification, follower


# --- orders and windows ---------------------------------------------------------------------------


def test_orders_with_automatic_delays_begin_with_one():
    orders = Orders(na=1, nb=2, nk=["auto", 3])
    assert orders.has_automatic_delays
    assert orders.delayed_inputs(["u", "v"]) == ["u"]
    narx = orders.undelayed(["u", "v"]).narx(["y"], ["u", "v"])
    assert narx.lags == {"y": (1,), "u": (1, 2), "v": (3, 4)}
    assert not Orders(nk=2).has_automatic_delays


def test_automatic_delays_need_samples():
    with pytest.raises(ValueError, match=r"nk=auto needs samples.*give numbers nk"):
        ORDERS.narx(["y"], ["u"])


@pytest.mark.parametrize("nk", ["guess", [1, "guess"]], ids=repr)
def test_other_words_are_no_delays(nk):
    with pytest.raises(ValueError, match=r"nk must be auto or a whole number.*'guess'"):
        Orders(nk=nk)


def test_lags_of_the_linear_part_move_too():
    narx = Narx({"y": 1}, {"u": 2, "v": [0]}, linear={"y": 3, "u": 2}).shifted({"u": 7})
    assert narx.lags == {"y": (1,), "u": (8, 9), "v": (0,)}
    assert narx.linear_lags == {"y": (1, 2, 3), "u": (8, 9)}


@pytest.mark.parametrize("n_known", [40, 12])
@pytest.mark.parametrize("after", [Narx({"y": 1}, {"u": [12]}), Narx({"y": 2}, {"u": [1]})])
def test_a_window_goes_on_with_other_lags(after, n_known):
    y, u = simulate([3], 60)
    window = LagWindow(Narx({"y": 1}, {"u": 3}))
    window.observe_many(y[:40], u[:40])
    window.change_lags(after, y[40 - n_known : 40], u[40 - n_known : 40])
    rows = window.observe_many(y[40:], u[40:])
    expected = after.regressors({"y": y[:, 0], "u": u[:, 0]})
    assert_same(rows.sample, np.arange(40, 60))
    assert_same(rows.regressor, expected.regressor[-20:])
    assert_same(rows.target, expected.target[-20:])


# --- records --------------------------------------------------------------------------------------


def test_lags_of_records_begin_with_the_dead_times():
    y, u = simulate([7, 12])
    record = make_record({"y": y[:, 0], "u": u[:, 0], "v": u[:, 1]}, name="r", sampling_time=1.0)
    narx = Narx({"y": 1}, {"u": 1, "v": 2})
    assert with_dead_times(record, narx).lags == {"y": (1,), "u": (7,), "v": (12, 13)}
    assert with_dead_times(record, narx, inputs=["u"]).lags["v"] == (1, 2)


def test_lags_that_fit_stay():
    y, u = simulate([1])
    record = make_record({"y": y[:, 0], "u": u[:, 0]}, name="r", sampling_time=1.0)
    narx = Narx({"y": 1}, {"u": 1})
    assert with_dead_times(record, narx) is narx
    late = Narx({"y": 1}, {"u": [9]})
    assert with_dead_times(record, late).lags["u"] == (1,)


# --- streams --------------------------------------------------------------------------------------


def test_lags_of_a_stream_move_to_the_dead_times_of_its_first_samples():
    y, u = simulate([7, 30])
    record, identification, follower = follow(y, u, sampling_time=0.5)
    assert identification.narx.lags == {"y": (1,), "u": (7,), "v": (30,)}
    (change,) = follower.changes
    assert change.sample == 500
    assert change.first_lags == {"u": (1, 7), "v": (1, 30)}
    assert "u acts after 7 samples, 3.5 s (its lags begin with 7" in change.describe()
    assert len(record) == N_SAMPLES - 1
    error = (y[1:, 0] - y[:-1, 0]) - record["mean"]
    assert np.mean(error[550:] ** 2) < 0.05 * np.mean(error[50:500] ** 2)


def test_the_new_model_is_the_one_that_learned_the_stream_with_these_lags():
    y, u = simulate([15])
    _, identification, follower = follow(y, u)
    narx = follower.changes[0].narx
    rows = narx.regressors({"y": y[:, 0], "u": u[:, 0]})
    direct = Identification(narx, SETTINGS)
    direct.observe_many(rows.regressor[: 500 - 15], rows.target[: 500 - 15])
    direct.finish()
    direct.observe_many(rows.regressor[500 - 15 :], rows.target[500 - 15 :])
    expected = direct.model.predict(rows.regressor[-50:])
    assert_same(identification.model.predict(rows.regressor[-50:]).mean, expected.mean)


@pytest.mark.parametrize("size", [7, 1000])
def test_blocks_of_samples_do_not_matter(size):
    y, u = simulate([15])
    expected, _, _ = follow(y, u, 50)
    assert_same(follow(y, u, size)[0], expected)


def test_a_stream_without_dead_time_is_learned_as_without_a_follower():
    y, u = simulate([1])
    record, identification, follower = follow(y, u)
    narx = identification.narx
    rows = narx.regressors({"y": y[:, 0], "u": u[:, 0]})
    alone = Identification(narx, SETTINGS)
    assert_same(alone.observe_many(rows.regressor, rows.target), record)
    assert not follower.changes
    assert follower.dead_times.by_input["u"].samples == 1


def test_a_given_input_alone_is_followed():
    _, identification, _ = follow(*simulate([7, 30]), inputs=["v"])
    assert identification.narx.lags == {"y": (1,), "u": (1,), "v": (30,)}


def test_the_linear_part_follows():
    settings = Settings(training=Adaptive(n_initial=60, restarts=1, max_iterations=5), budget=10)
    _, identification, _ = follow(*simulate([15], 560), settings=settings)
    assert identification.narx.linear_lags["u"] == tuple(range(15, 29))
    assert identification.model.gp.n_linear == 28


def changed_plant(before, after, at, n):
    """Return a stream of a plant whose delay changes at a sample."""
    y, u = simulate([before], n)
    late_y, _ = simulate([after], n)
    y[at:] = late_y[at:]
    return y, u


def always_estimated(monkeypatch):
    numbers = count()
    monkeypatch.setattr("sysid.dead_time_lags._n_estimates", lambda _: next(numbers))
    monkeypatch.setattr("sysid.dead_time_lags.MIN_GROWTH_FOR_ESTIMATE", 1.5)


@pytest.mark.parametrize(("before", "after"), [(5, 20), (20, 1)])
def test_a_changed_dead_time_is_found_with_a_later_estimate(before, after, monkeypatch):
    always_estimated(monkeypatch)
    y, u = changed_plant(before, after, 550, 1200)
    _, identification, follower = follow(y, u)
    assert identification.narx.lags["u"] == (after,)
    assert [change.first_lags["u"] for change in follower.changes][-1] == (before, after)
    assert follower.changes[-1].n_learned == 650


def test_without_a_later_estimate_the_lags_stay():
    _, identification, follower = follow(*changed_plant(5, 20, 550, 1200))
    assert identification.narx.lags["u"] == (5,)
    assert len(follower.changes) == 1


def test_no_lag_reaches_from_one_record_into_another():
    y, u = simulate([15], 1200)
    narx = ORDERS.undelayed(["u"]).narx(["y"], ["u"])
    identification = Identification(narx, SETTINGS)
    window = LagWindow(narx)
    follower = DeadTimeFollower()
    for part in (slice(0, 450), slice(600, 1200)):
        window.reset()
        blocks = blocks_of(y[part], u[part], 200)
        for block in learn_from(
            blocks, identification, window, outputs=["y"], inputs=["u"], dead_times=follower
        ):
            assert len(block.rows.target)
    assert identification.narx.lags["u"] == (15,)
    # 450 - 15 rows of the first record, those of the second one, and none across its beginning
    n_seen = follower.n_seen - 2 * 15
    assert identification.model.gp.n_seen <= n_seen


def test_too_few_samples_to_train_again_change_nothing():
    training = Fixed(variance=1.0, length_scales=3.0, noise_variance=1e-3, n_initial=499)
    y, u = simulate([15], 500)
    narx = ORDERS.undelayed(["u"]).narx(["y"], ["u"])
    identification = Identification(narx, Settings(training=training, linear_part="none"))
    rows = narx.regressors({"y": y[:, 0], "u": u[:, 0]})
    identification.observe_many(rows.regressor, rows.target)
    late = narx.shifted({"u": 14})
    late_rows = late.regressors({"y": y[:, 0], "u": u[:, 0]})
    model = identification.model
    assert not identification.change_lags(late, late_rows.regressor, late_rows.target)
    assert identification.model is model
    assert identification.narx is narx


@pytest.mark.parametrize(
    ("training", "can_change"),
    [
        (MaximumAPosteriori(n_initial=30, restarts=1, max_iterations=3), False),
        (Adaptive(n_initial=30, restarts=1, max_iterations=3), True),
    ],
    ids=["fixed", "adaptive"],
)
def test_lags_of_a_resumed_model_change_if_its_training_is_known(training, can_change):
    y, u = simulate([15], 600)
    narx = ORDERS.undelayed(["u"]).narx(["y"], ["u"])
    first = Identification(narx, Settings(training=training, budget=10, linear_part="none"))
    rows = narx.regressors({"y": y[:60, 0], "u": u[:60, 0]})
    first.observe_many(rows.regressor, rows.target)
    resumed = Identification.resume(first.model)
    assert resumed.can_change_lags is can_change
    loop = learn_from(
        blocks_of(y, u, 600),
        resumed,
        LagWindow(narx),
        outputs=["y"],
        inputs=["u"],
        dead_times=DeadTimeFollower(),
    )
    if can_change:
        list(loop)
        assert resumed.narx.lags["u"] == (15,)
        return
    with pytest.raises(ValueError, match=r"resumed.*lags cannot change"):
        list(loop)


@pytest.mark.parametrize("options", [{"n_first": 0}, {"max_kept": 400}, {"n_first": 2.5}], ids=repr)
def test_numbers_of_a_follower_are_checked(options):
    with pytest.raises(ValueError, match="DeadTimeFollower"):
        DeadTimeFollower(**options)


def test_only_the_last_samples_are_kept(monkeypatch):
    always_estimated(monkeypatch)
    y, u = simulate([1], 1200)
    _, _, follower = follow(y, u, n_first=500, max_kept=600)
    record = make_record({"y": y[-600:, 0], "u": u[-600:, 0]}, name="r", sampling_time=1.0)
    (kept,) = follower._signals(600)
    assert_same(kept[:, 0], record["y"].values)
    (older,) = follower._signals(100, 500)
    assert_same(older[:, 0], y[-600:-500, 0])
    assert estimate_dead_times(record, "y", ["u"]).by_input["u"].samples == 1
