"""Segments of records, folds of a cross-validation, and records that repeat themselves."""

import numpy as np
import pytest
import xarray as xr

from free_runs import (
    EACH_KIND_OF_LAGS,
    NO_LIMITS,
    SIMPLE_LAGS,
    StubEstimator,
    random_signals,
    samples_of,
)
from sysid import FreeRun, Narx
from sysid.narx.lags import consecutive
from sysid.simulation.segments import (
    Fold,
    Segment,
    find_copies,
    folds_of,
    learn_beyond,
    segments_of,
    truncate,
)
from sysid.simulation_error.training import Trial, find_best


@EACH_KIND_OF_LAGS
def test_segments_hold_the_measured_output(narx):
    records = [random_signals(narx, 30, 0), random_signals(narx, 25, 1)]
    segments = segments_of(samples_of(narx, *records))
    assert len(segments) == 2
    first = narx.max_lag
    longest = max(narx.lags["y"])
    for segment, signals in zip(segments, records, strict=True):
        y = signals["y"]
        np.testing.assert_allclose(segment.values, y[first:], rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(segment.past, y[first - longest : first])
        np.testing.assert_allclose(segment.previous, y[first - 1 : -1], rtol=1e-12, atol=1e-14)

        part = segment.part(7, 11)
        start = first + 7
        np.testing.assert_allclose(part.values, y[start : start + 4])
        np.testing.assert_allclose(part.past, y[start - longest : start])
        np.testing.assert_array_equal(part.regressors, segment.regressors[7:11])


# --- folds ----------------------------------------------------------------------------------------


@pytest.fixture
def two_segments():
    """Return segments of 7 and 14 samples."""
    records = [random_signals(SIMPLE_LAGS, 8), random_signals(SIMPLE_LAGS, 15, 1)]
    return segments_of(samples_of(SIMPLE_LAGS, *records))


def values_of(segments):
    """Return the values of all segments, one after the other."""
    return np.concatenate([segment.values for segment in segments])


def test_folds_leave_out_every_sample_once_and_cut_through_segments(two_segments):
    all_values = values_of(two_segments)
    folds = folds_of(two_segments, 3)
    left_out = [values_of(fold.parts) for fold in folds]
    assert [len(values) for values in left_out] == [7, 7, 7]
    np.testing.assert_array_equal(np.concatenate(left_out), all_values)
    for fold, values in zip(folds, left_out, strict=True):
        in_fold = np.concatenate([values_of(fold.rest), values])
        np.testing.assert_array_equal(np.sort(in_fold), np.sort(all_values))


def test_folds_of_several_blocks_are_spread_over_the_samples():
    values = np.arange(24.0)
    segments = [
        Segment(values[:10, None], values[:10], np.array([-1.0])),
        Segment(values[10:, None], values[10:], np.array([9.0])),
    ]
    folds = folds_of(segments, 2, 3)
    held_out = [[part.values.tolist() for part in fold.parts] for fold in folds]
    assert held_out == [
        [[0, 1, 2, 3], [8, 9], [10, 11], [16, 17, 18, 19]],
        [[4, 5, 6, 7], [12, 13, 14, 15], [20, 21, 22, 23]],
    ]
    learned = [[segment.values.tolist() for segment in fold.rest] for fold in folds]
    assert learned == [
        [[4, 5, 6, 7], [12, 13, 14, 15], [20, 21, 22, 23]],
        [[0, 1, 2, 3], [8, 9], [10, 11], [16, 17, 18, 19]],
    ]
    assert folds[0].parts[1].past.tolist() == [7.0]
    with pytest.raises(ValueError, match="from 2 to 8 folds of 24 samples, got 9"):
        folds_of(segments, 9, 3)


@pytest.mark.parametrize(("n", "n_folds", "n_parts"), [(2000, 5, 1), (4000, 3, 3), (9000, 2, 3)])
def test_long_records_have_fewer_folds_of_several_blocks(n, n_folds, n_parts):
    values = np.sin(np.arange(float(n)))
    folds = FreeRun()._folds([Segment(values[:, None], values, np.zeros(1))])
    assert [len(fold.parts) for fold in folds] == [n_parts] * n_folds
    assert sum(len(part.values) for fold in folds for part in fold.parts) == n


def test_errors_of_a_trial_are_those_of_the_samples_left_out(two_segments):
    """The trial predicts the mean of the samples that it is given."""
    folds = folds_of(two_segments, 3)
    expected = []
    for fold in folds:
        error = values_of(fold.parts) - values_of(fold.rest).mean()
        expected.append(np.mean(error**2))
    best = find_best([Trial(StubEstimator(), SIMPLE_LAGS, folds)], 5, 0, NO_LIMITS)
    np.testing.assert_allclose(best.errors, expected)
    assert best.rmse**2 == pytest.approx(np.mean(expected))


def test_segments_are_truncated_to_a_number_of_samples(two_segments):
    assert [len(part.values) for part in truncate(two_segments, 13)] == [7, 6]


@pytest.mark.parametrize("n_folds", [1, 22])
def test_fewer_than_two_folds_and_more_than_samples_are_refused(n_folds, two_segments):
    with pytest.raises(ValueError, match=f"from 2 to 21 folds of 21 samples, got {n_folds}"):
        folds_of(two_segments, n_folds)


@pytest.mark.parametrize(
    ("values", "held_out"),
    [
        pytest.param([-4.9, 5.0, 9.9, 14.9], [[-4.9, 5.0, 9.9, 14.9]], id="hardly beyond"),
        pytest.param([-30.0, 4.0, 5.0, 6.0], [[4.0, 5.0, 6.0]], id="begins far below"),
        pytest.param([0.0, 5.0, 10.5, 15.5], [[0.0, 5.0, 10.5]], id="ends far above"),
        pytest.param(
            [1.0, 2.0, -5.5, 3.0, 30.0, 6.0, 7.0, 8.0, 9.0, 4.0],
            [[1.0, 2.0], [6.0, 7.0, 8.0, 9.0, 4.0]],
            id="an excursion in the middle",
        ),
        pytest.param([16.5, 5.0, 17.0, 18.0], [[16.5, 5.0, 17.0, 18.0]], id="hardly any within"),
    ],
)
def test_samples_far_beyond_those_around_a_fold_are_learned(values, held_out):
    def segment_of(values):
        values = np.array(values)
        return Segment(values[:, None], values, np.array([0.5]))

    rest = (segment_of([0.0, 7.0]), segment_of([10.0, 3.0]))
    fold = learn_beyond(Fold((segment_of(values),), rest))
    assert [part.values.tolist() for part in fold.parts] == held_out
    n_held_out = sum(len(part) for part in held_out)
    assert len(values_of(fold.rest)) == 4 + len(values) - n_held_out
    everything = np.concatenate([values_of(fold.parts), values_of(fold.rest)])
    np.testing.assert_array_equal(np.sort(everything), np.sort([*values_of(rest), *values]))


def test_what_follows_a_start_up_is_simulated_from_its_measured_outputs():
    values = np.array([-50.0, -20.0, 1.0, 2.0, 3.0])
    start_up = Segment(np.arange(5.0)[:, None], values, np.zeros(1))
    around = Segment(np.zeros((2, 1)), np.array([0.0, 4.0]), np.zeros(1))
    held_out, learned = learn_beyond(Fold((start_up,), (around,)))
    assert held_out[0].past.tolist() == [-20.0]
    assert held_out[0].regressors.ravel().tolist() == [2.0, 3.0, 4.0]
    assert learned[0].values.tolist() == [-50.0, -20.0]


def test_only_measured_outputs_can_be_beyond_the_others():
    is_measured = np.array([True, False, True, True])
    values = np.array([1.0, 99.0, 2.0, 3.0])
    part = Segment(values[:, None], values, np.zeros(1), is_measured=is_measured)
    around = Segment(np.zeros((2, 1)), np.array([0.0, 4.0]), np.zeros(1))
    fold = Fold((part,), (around,))
    assert learn_beyond(fold).parts == (part,)


# --- records that repeat themselves ---------------------------------------------------------------


def count_copies(values, n_records=1):
    """Return the number of five folds that repeat others, of values divided into records."""
    segments = []
    for part in np.split(values, n_records):
        segments.append(Segment(np.zeros((len(part), 1)), part, np.zeros(1)))
    return len(find_copies(folds_of(segments, 5)))


@pytest.mark.parametrize(
    ("noise", "n_records", "n_copies"),
    [
        pytest.param(0.0, 1, 5, id="exact copies"),
        pytest.param(0.05, 1, 5, id="little noise"),
        pytest.param(1.0, 1, 0, id="much noise"),
        pytest.param(0.0, 4, 5, id="copies in other records"),
    ],
)
def test_a_record_that_repeats_itself_is_found(noise, n_records, n_copies):
    rng = np.random.default_rng(5)
    trend = 0.1 * np.arange(300)
    period = rng.normal(size=300).cumsum() + trend
    values = np.tile(period, 4) + noise * rng.normal(size=1200)
    assert count_copies(values, n_records) == n_copies


def test_a_trend_and_a_rest_are_no_copies():
    rng = np.random.default_rng(5)
    values = rng.normal(size=1200).cumsum() + 0.1 * np.arange(1200)
    values[240:480] = 0.0
    assert count_copies(values) == 0


@pytest.mark.parametrize("n", [60, 140, 300])
def test_short_records_are_no_copies_of_themselves_by_chance(n):
    """Of 20 smooth records none has copies; of 20 that repeat four periods at least 19 do."""
    rng = np.random.default_rng(0)
    n_found = {}
    for n_periods in (1, 4):
        n_found[n_periods] = 0
        for _ in range(20):
            noise = rng.normal(size=n // n_periods + 8)
            smooth = np.convolve(noise, np.hanning(9), "valid")
            values = np.tile(smooth, n_periods)
            values += 0.01 * values.std() * rng.normal(size=len(values))
            if count_copies(values) > 0:
                n_found[n_periods] += 1
    assert n_found[1] == 0
    assert n_found[4] >= 19


def test_rows_that_follow_each_other_are_marked():
    y = np.where(np.arange(9) == 4, np.nan, 1.0)
    record = xr.Dataset(
        {"y": ("time", y), "u": ("time", np.ones(9))},
        coords={"time": 0.5 * np.arange(9)},
    )
    rows = Narx({"y": 1}, {"u": 1}, on_missing="skip").dataset([record, record])
    follows_in_a_record = [False, True, True, False, True, True]
    np.testing.assert_array_equal(consecutive(rows), follows_in_a_record * 2)
