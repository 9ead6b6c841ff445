"""The loop over a stream: laziness, blocks, gaps, names."""

from dataclasses import replace

import numpy as np
import pytest

from streams import (
    FIXED,
    LAGS,
    NAMES,
    NARX,
    QUICK,
    RULES,
    Sample,
    assert_same,
    bits,
    learn,
    record,
    rows_of,
    run,
    stream,
)
from sysid.gp.training import Fixed
from sysid.identification import Identification, Settings
from sysid.narx.lags import Narx, OnMissing
from sysid.narx.window import LagWindow
from sysid.stream import learn_from

SKIP = Narx(outputs={"y": 2}, inputs={"u": 1}, on_missing=OnMissing.skip)


def test_the_loop_is_lazy():
    samples = iter(stream(*record(30)))
    identification = Identification(NARX, Settings(training=FIXED))
    loop = learn_from(samples, identification, LagWindow(NARX), **NAMES)
    for n in range(1, 5):
        assert next(loop).rows.sample[0] == LAGS + n - 1
        assert identification.model.gp.n_points == n
    assert next(samples).time == 0.5 * (LAGS + 4)


@pytest.mark.parametrize("size", [1, 7, 250])
def test_blocks_of_samples_take_the_way_of_single_ones(size):
    """The live loop and a record in blocks: the same rows and the same record, bit for bit, gaps
    included.
    """
    y, u = record(120)
    y[60] = np.nan
    settings = Settings(training=QUICK, budget=15, **RULES)
    found, rows, one, window = run(SKIP, settings, y, u)
    cuts = range(0, 120, size)
    blocks = [Sample(0.0, y[k : k + size, None], u[k : k + size, None]) for k in cuts]
    other = Identification(SKIP, settings)
    twin = LagWindow(SKIP)
    theirs, record_of_blocks = learn(blocks, other, twin)
    for ours, block in zip(rows, theirs, strict=True):
        assert ours.tobytes() == block.tobytes()
    assert_same(found, record_of_blocks)
    assert (window.n_missing, window.n_skipped) == (twin.n_missing, twin.n_skipped) == (1, LAGS + 1)
    np.testing.assert_equal(bits(one), bits(other))


def test_a_block_corrects_the_last_row_of_the_block_before():
    """The plant jumps at the end of a block: the sample is learned with the next one, and its
    record is a value.
    """
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, 120)
    y = np.zeros(120)
    for k in range(1, 120):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 1]) + 0.02 * rng.normal() + 3.0 * (k == 79)
    settings = Settings(training=replace(QUICK, n_initial=40), budget=30)
    one, _, _, _ = run(NARX, settings, y, u)
    ends = (
        Sample(0.0, y[:80, None], u[:80, None]),
        Sample(0.0, y[80:, None], u[80:, None]),
    )
    first, second = learn_from(ends, Identification(NARX, settings), LagWindow(NARX), **NAMES)
    assert first.correction is None
    assert first.record["outlier"][-1]
    assert not second.correction.outlier
    assert second.correction.mean == first.record["mean"][-1]
    whole = np.concatenate([first.record, second.record])
    whole[len(first.record) - 1] = second.correction
    assert_same(whole, one)


GAPS = [
    ("y", slice(20, 21), 3),
    ("u", slice(20, 21), 1),
    ("u", slice(39, 40), 0),
    ("y", slice(25, 35), 12),
]


@pytest.mark.parametrize(("signal", "gap", "lost"), GAPS)
def test_gaps_are_skipped_and_counted(signal, gap, lost):
    """y[20] is missing in the rows 20 (target), 21 and 22 (lags), u[20] in row 21 only."""
    signals = dict(zip("yu", record(40), strict=True))
    signals[signal][gap] = np.nan
    settings = Settings(training=Fixed(1.0, 1.0, 0.01, n_initial=4), budget=10)
    _, rows, identification, window = run(SKIP, settings, **signals)
    assert window.n_missing == gap.stop - gap.start
    assert window.n_skipped == lost
    assert len(rows.sample) == 40 - LAGS - lost
    times, x, t = rows_of(**signals, narx=SKIP)
    np.testing.assert_array_equal(rows.target, t)
    np.testing.assert_array_equal(0.5 * rows.sample, times)
    assert all((x == point).all(axis=1).any() for point in identification.model.gp.inputs)


def test_columns_are_found_by_name_and_what_is_missing_is_named():
    y, u = record(40)
    wide = [
        sample._replace(
            output=np.append(9.0, sample.output),
            input=np.append(sample.input, [7.0, 8.0]),
        )
        for sample in stream(y, u)
    ]
    settings = Settings(training=FIXED, budget=10)
    names = {"outputs": ["other", "y"], "inputs": ["u", "v", "w"]}
    _, found = learn(wide, Identification(NARX, settings), LagWindow(NARX), **names)
    assert_same(found, run(NARX, settings, y, u)[0])
    for change, words in (
        ({"outputs": ["z"]}, r"outputs \['y'\].*\['z'\]"),
        ({"inputs": []}, r"inputs \['u'\]"),
    ):
        with pytest.raises(ValueError, match=words):
            learn(wide, Identification(NARX, settings), LagWindow(NARX), **change)
    y[20] = np.inf
    identification = Identification(NARX, settings)
    with pytest.raises(ValueError, match=r"'y'.*sample 20.*on_missing='skip'"):
        learn(stream(y, u), identification, LagWindow(NARX))
    assert identification.model.gp.n_points == 10  # what was learned before stays
    with pytest.raises(ValueError, match="budget"):
        Settings(training=FIXED, budget=1)


def test_masked_entries_are_no_data():
    y, u = record(60)
    found = run(NARX, Settings(training=QUICK, budget=15, **RULES), y, u)[2]
    masked = np.ma.masked_invalid([0.1, np.nan, 0.2])
    for learn_one in (found.observe, found.model.update):
        with pytest.raises(ValueError, match="masked"):
            learn_one(masked, 0.3)
