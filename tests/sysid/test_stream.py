"""The loop over a stream: laziness, blocks, gaps, names."""

from dataclasses import replace

import numpy as np
import pytest

from streams import (
    FIXED_TRAINING,
    LARGEST_LAG,
    NARX,
    QUICK_TRAINING,
    RULES,
    SAMPLING_TIME,
    SIGNAL_NAMES,
    assert_same,
    bits,
    block_of,
    learn,
    record,
    rows_of,
    run,
    stream,
)
from sysid import (
    Fixed,
    Identification,
    LagWindow,
    Narx,
    OnMissing,
    Settings,
    learn_from,
)

NARX_WITH_GAPS = Narx(outputs={"y": 2}, inputs={"u": 1}, on_missing=OnMissing.skip)


def test_the_loop_is_lazy():
    samples = iter(stream(*record(30)))
    identification = Identification(NARX, Settings(training=FIXED_TRAINING))
    loop = learn_from(samples, identification, LagWindow(NARX), **SIGNAL_NAMES)
    for n in range(1, 5):
        block = next(loop)
        assert block.rows.sample[0] == LARGEST_LAG + n - 1
        assert identification.model.gp.n_points == n
    assert next(samples).time == SAMPLING_TIME * (LARGEST_LAG + 4)


@pytest.mark.parametrize("size", [1, 7, 250])
def test_blocks_of_samples_give_the_bits_of_single_ones(size):
    """The live loop and a record in blocks give the same rows and the same record, with a gap."""
    y, u = record(120)
    y[60] = np.nan
    settings = Settings(training=QUICK_TRAINING, budget=15, **RULES)
    reports, rows, identification, window = run(NARX_WITH_GAPS, settings, y, u)

    blocks = [block_of(y[k : k + size], u[k : k + size]) for k in range(0, 120, size)]
    in_blocks = Identification(NARX_WITH_GAPS, settings)
    window_in_blocks = LagWindow(NARX_WITH_GAPS)
    rows_in_blocks, reports_in_blocks = learn(blocks, in_blocks, window_in_blocks)
    for column, column_in_blocks in zip(rows, rows_in_blocks, strict=True):
        assert column.tobytes() == column_in_blocks.tobytes()
    assert_same(reports, reports_in_blocks)
    assert window.n_missing == window_in_blocks.n_missing == 1
    assert window.n_skipped == window_in_blocks.n_skipped == LARGEST_LAG + 1
    np.testing.assert_equal(bits(identification), bits(in_blocks))


def test_a_block_corrects_the_last_row_of_the_block_before():
    """The plant jumps at the end of a block: the sample is learned with the next one, and its row
    is corrected.
    """
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, 120)
    y = np.zeros(120)
    for k in range(1, 120):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 1]) + 0.02 * rng.normal()
        if k == 79:
            y[k] += 3.0
    settings = Settings(training=replace(QUICK_TRAINING, n_initial=40), budget=30)
    expected, _, _, _ = run(NARX, settings, y, u)

    blocks = (block_of(y[:80], u[:80]), block_of(y[80:], u[80:]))
    identification = Identification(NARX, settings)
    first, second = learn_from(blocks, identification, LagWindow(NARX), **SIGNAL_NAMES)
    assert first.correction is None
    assert first.record["outlier"][-1]
    assert not second.correction.outlier
    assert second.correction.mean == first.record["mean"][-1]
    corrected = first.record.copy()
    corrected[-1] = second.correction
    assert_same(np.concatenate([corrected, second.record]), expected)


@pytest.mark.parametrize(
    ("signal", "gap", "n_lost"),
    [
        pytest.param("y", slice(20, 21), 3, id="output"),
        pytest.param("u", slice(20, 21), 1, id="input"),
        pytest.param("u", slice(39, 40), 0, id="last input"),
        pytest.param("y", slice(25, 35), 12, id="ten outputs"),
    ],
)
def test_gaps_are_skipped_and_counted(signal, gap, n_lost):
    """y[20] is missing in the rows 20 (target), 21 and 22 (lags), u[20] in row 21 only."""
    y, u = record(40)
    signals = {"y": y, "u": u}
    signals[signal][gap] = np.nan
    settings = Settings(training=Fixed(1.0, 1.0, 0.01, n_initial=4), budget=10)
    _, rows, identification, window = run(NARX_WITH_GAPS, settings, **signals)
    assert window.n_missing == gap.stop - gap.start
    assert window.n_skipped == n_lost
    assert len(rows.sample) == 40 - LARGEST_LAG - n_lost

    times, x, target = rows_of(**signals, narx=NARX_WITH_GAPS)
    np.testing.assert_array_equal(rows.target, target)
    np.testing.assert_array_equal(SAMPLING_TIME * rows.sample, times)
    for point in identification.model.gp.inputs:
        assert (x == point).all(axis=1).any()


SETTINGS = Settings(training=FIXED_TRAINING, budget=10)


@pytest.fixture
def wide_stream():
    """Return samples with an output before y, and two inputs after u."""
    samples = []
    for sample in stream(*record(40)):
        output = np.append(9.0, sample.output)
        input = np.append(sample.input, [7.0, 8.0])
        samples.append(sample._replace(output=output, input=input))
    return samples


WIDE_NAMES = {"outputs": ["other", "y"], "inputs": ["u", "v", "w"]}


def test_columns_are_found_by_name(wide_stream):
    identification = Identification(NARX, SETTINGS)
    _, reports = learn(wide_stream, identification, LagWindow(NARX), **WIDE_NAMES)
    expected, _, _, _ = run(NARX, SETTINGS, *record(40))
    assert_same(reports, expected)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"outputs": ["z"]}, r"outputs \['y'\].*\['z'\]"),
        ({"inputs": []}, r"inputs \['u'\]"),
    ],
    ids=["output", "input"],
)
def test_a_missing_column_is_named(names, message, wide_stream):
    identification = Identification(NARX, SETTINGS)
    with pytest.raises(ValueError, match=message):
        learn(wide_stream, identification, LagWindow(NARX), **names)


def test_a_missing_value_is_named_and_samples_before_it_stay_learned():
    y, u = record(40)
    y[20] = np.inf
    identification = Identification(NARX, SETTINGS)
    with pytest.raises(ValueError, match=r"'y'.*sample 20.*on_missing='skip'"):
        learn(stream(y, u), identification, LagWindow(NARX))
    assert identification.model.gp.n_points == 10


def test_a_budget_of_one_point_is_refused():
    with pytest.raises(ValueError, match="budget"):
        Settings(training=FIXED_TRAINING, budget=1)


def test_masked_entries_are_refused():
    settings = Settings(training=QUICK_TRAINING, budget=15, **RULES)
    _, _, identification, _ = run(NARX, settings, *record(60))
    masked = np.ma.masked_invalid([0.1, np.nan, 0.2])
    with pytest.raises(ValueError, match="masked"):
        identification.observe(masked, 0.3)
    with pytest.raises(ValueError, match="masked"):
        identification.model.update(masked, 0.3)
