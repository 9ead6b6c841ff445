"""A block of rows is learned as the same rows are one by one, also where samples are held back."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from sysid import (
    AffineMap,
    ConstantMean,
    Identification,
    LinearMean,
    MaximumLikelihood,
    Narx,
    Settings,
)
from sysid.gp.formula import JIT_DISABLED
from sysid.outliers import OutlierHandling, compiled_features

N_SAMPLES = 320
N_INITIAL = 100
FIXED = MaximumLikelihood(n_initial=N_INITIAL)
LAGS = Narx({"y": 2}, {"u": 2, "v": 1})
LAGS_OF_VALUE = Narx({"y": 2}, {"u": 2, "v": 1}, predict="value")
LAGS_WITH_LINEAR_PART = LAGS.with_linear({"y": 6, "u": 6, "v": 6})


def relay(seed=0):
    """Return ``y[k+1] = 0.8 y[k] + 0.3 sign(u[k]) + 0.2 v[k]`` with measurement noise, u and v."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=N_SAMPLES)
    v = 0.1 * np.cumsum(rng.normal(size=N_SAMPLES))
    y = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        y[k] = 0.8 * y[k - 1] + 0.3 * np.sign(u[k - 1]) + 0.2 * v[k - 1]
    y += 0.01 * rng.normal(size=N_SAMPLES)
    return {"y": y, "u": u, "v": v}


def with_wrong_outputs(signals):
    """Return the signals with single wrong outputs, and with bursts of them."""
    y = signals["y"].copy()
    y[130:N_SAMPLES:40] += 4.0
    y[150:153] -= 3.0
    y[225:229] -= 5.0
    return signals | {"y": y}


def with_wrong_inputs(signals):
    """Return the signals with spikes in both inputs."""
    u = signals["u"].copy()
    v = signals["v"].copy()
    u[120:N_SAMPLES:35] *= -12.0
    v[135:N_SAMPLES:45] += 6.0
    return signals | {"u": u, "v": v}


SIGNALS = {
    "clean": relay(),
    "outputs": with_wrong_outputs(relay()),
    "inputs": with_wrong_inputs(relay()),
    "both": with_wrong_outputs(with_wrong_inputs(relay(1))),
}


def learn(narx, signals, sizes, follows=None, **settings):
    """Learn a stream in blocks of these sizes; return the identification and its final record."""
    rows = narx.regressors(signals)
    identification = Identification(narx, Settings(**{"budget": 15, "training": FIXED} | settings))
    n_rows = len(rows.target)
    records = []
    begin = 0
    for size in np.resize(sizes, n_rows):
        if begin >= n_rows:
            break
        block = slice(begin, begin + size)
        own_follows = None if follows is None else follows[:n_rows][block]
        record = identification.observe_many(
            rows.regressor[block], rows.target[block], follows=own_follows
        )
        if identification.correction is not None:
            records[-1][-1] = identification.correction
        records.append(record)
        begin += size
    return identification, np.concatenate(records)


def assert_same(first, second):
    """Assert that two identifications, and their records, are the same bit for bit."""
    identification, record = first
    other, other_record = second
    for name in record.dtype.names:
        np.testing.assert_array_equal(record[name], other_record[name], err_msg=name)
    state = identification.model.gp.state()
    for name, values in other.model.gp.state().items():
        np.testing.assert_array_equal(state[name], values, err_msg=name)
    assert identification.model.gp.repairs == other.model.gp.repairs
    assert identification.n_mended == other.n_mended
    assert identification.n_clipped == other.n_clipped
    assert identification.n_undone == other.n_undone
    assert identification.model.pending == other.model.pending


SETTINGS = {
    "adaptive": {"training": None},
    "forgetting": {"forgetting": 60},
    "stored": {"learning": "stored"},
    "linear mean": {"mean": LinearMean([0.5, 0.0, 0.1, 0.0, 0.1], 0.1)},
}
DEFAULT_TRAINING = Settings().training


@pytest.mark.parametrize("signals", SIGNALS.values(), ids=SIGNALS)
def test_a_block_gives_what_single_rows_give(signals):
    assert_same(learn(LAGS, signals, [N_SAMPLES]), learn(LAGS, signals, [1]))


@pytest.mark.skipif(JIT_DISABLED, reason="takes minutes; the same functions are tested above")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_block_gives_what_single_rows_give_with_other_settings(settings):
    signals = SIGNALS["both"]
    settings = {name: value or DEFAULT_TRAINING for name, value in settings.items()}
    at_once = learn(LAGS, signals, [N_SAMPLES], **settings)
    assert_same(at_once, learn(LAGS, signals, [1], **settings))


@pytest.mark.skipif(JIT_DISABLED, reason="takes minutes; the same functions are tested above")
@pytest.mark.parametrize(
    "narx", [LAGS_OF_VALUE, LAGS_WITH_LINEAR_PART], ids=["value", "linear part"]
)
def test_other_rows_are_the_same_in_blocks_of_any_size(narx):
    at_once = learn(narx, SIGNALS["both"], [N_SAMPLES], mean=ConstantMean())
    assert_same(at_once, learn(narx, SIGNALS["both"], [1, 2, 3, 40], mean=ConstantMean()))


def test_rows_that_do_not_follow_each_other_are_the_same_in_a_block():
    follows = np.random.default_rng(3).uniform(size=N_SAMPLES) > 0.05
    at_once = learn(LAGS, SIGNALS["both"], [N_SAMPLES], follows)
    assert_same(at_once, learn(LAGS, SIGNALS["both"], [1], follows))


def test_the_streams_have_samples_of_each_kind():
    """Otherwise the tests above would compare nothing."""
    found = {name: learn(LAGS, signals, [N_SAMPLES]) for name, signals in SIGNALS.items()}
    assert found["outputs"][0].n_mended["u"] > 0
    assert found["inputs"][0].n_mended["v"] > 0
    assert found["both"][0].n_undone > 0
    assert found["both"][1]["outlier"].any()
    assert not found["clean"][1]["outlier"].any()


def test_the_compiled_loop_decides_about_all_samples_of_a_block(monkeypatch):
    """Its caller decides only if the sample after the last row of the block is another one."""
    n_decisions = 0
    reconsider = OutlierHandling.reconsider

    def counted(self, model, row):
        nonlocal n_decisions
        n_decisions += 1
        return reconsider(self, model, row)

    monkeypatch.setattr(OutlierHandling, "reconsider", counted)
    learn(LAGS, SIGNALS["inputs"], [N_SAMPLES])
    assert n_decisions == 0
    learn(LAGS, SIGNALS["inputs"], [1])
    assert n_decisions > 10


@pytest.mark.parametrize("matrix", [None, np.diag([0.5, 0.25])], ids=["scale", "matrix"])
def test_the_compiled_loop_is_compiled_once_for_maps_of_any_origin(matrix):
    """The arrays of a map cannot be written, those of its copy can: numba compiles for each."""
    scaling = AffineMap([1.0, 2.0], [1.0, 1.0], matrix=matrix)
    of_models = [
        compiled_features(SimpleNamespace(mean=ConstantMean(3.0), scaling=one))
        for one in (scaling, copy.deepcopy(scaling))
    ]
    for features in of_models:
        assert all(array.flags.writeable for array in (features.offset, features.scale))
        assert features.matrix.flags.writeable
        np.testing.assert_array_equal(features.offset, scaling.offset)
        np.testing.assert_array_equal(features.scale, scaling.scale)
        expected = np.zeros((0, 2)) if matrix is None else matrix
        np.testing.assert_array_equal(features.matrix, expected)
    of_models[0].offset[0] = 5.0
    assert scaling.offset[0] == 1.0
