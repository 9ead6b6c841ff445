"""Segments of records, folds of a cross-validation, and records that repeat themselves."""

import numpy as np
import pytest
import xarray as xr

from free_runs import (
    EACH_KIND_OF_LAGS,
    NO_LIMITS,
    SIMPLE,
    StubEstimator,
    random_signals,
    samples_of,
)
from sysid import Narx
from sysid.narx.lags import consecutive
from sysid.simulation.segments import (
    Segment,
    find_copies,
    folds_of,
    segments_of,
    truncate,
)
from sysid.simulation_error.training import Trial, find_best


@EACH_KIND_OF_LAGS
def test_segments_hold_the_measured_output(narx):
    records = [random_signals(narx, n, seed) for seed, n in enumerate((30, 25))]
    segments = segments_of(samples_of(narx, *records))
    assert len(segments) == 2
    first = narx.max_lag
    longest = max(narx.lags["y"])
    for segment, signals in zip(segments, records, strict=True):
        y = signals["y"]
        part = segment.part(7, 11)
        np.testing.assert_allclose(segment.values, y[first:], rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(segment.past, y[first - longest : first])
        np.testing.assert_allclose(segment.previous, y[first - 1 : -1], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(part.values, y[first + 7 : first + 11])
        np.testing.assert_allclose(part.past, y[first + 7 - longest : first + 7])
        np.testing.assert_array_equal(part.regressors, segment.regressors[7:11])


def test_folds_leave_out_every_sample_once_and_cut_through_segments():
    segments = segments_of(
        samples_of(SIMPLE, random_signals(SIMPLE, 8), random_signals(SIMPLE, 15, 1))
    )
    everything = np.concatenate([segment.values for segment in segments])
    folds = folds_of(segments, 3)
    assert [sum(len(part.values) for part in fold.parts) for fold in folds] == [7, 7, 7]
    left_out, rests = (
        [np.concatenate([part.values for part in getattr(fold, name)]) for fold in folds]
        for name in ("parts", "rest")
    )
    np.testing.assert_array_equal(np.concatenate(left_out), everything)
    for rest, out in zip(rests, left_out, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([rest, out])), np.sort(everything))
    found = find_best([Trial(StubEstimator(), SIMPLE, folds)], 5, 0, NO_LIMITS)
    errors = [np.mean((out - rest.mean()) ** 2) for out, rest in zip(left_out, rests, strict=True)]
    np.testing.assert_allclose(found.errors, errors)
    assert found.rmse**2 == pytest.approx(np.mean(errors))
    assert [len(part.values) for part in truncate(segments, 13)] == [7, 6]
    for n in (1, 22):
        with pytest.raises(ValueError, match=f"from 2 to 21 folds of 21 samples, got {n}"):
            folds_of(segments, n)


@pytest.mark.parametrize(
    ("noise", "n_records", "copied"),
    [(0.0, 1, 5), (0.05, 1, 5), (1.0, 1, 0), (0.0, 4, 5)],
)
def test_a_record_that_repeats_itself_is_found(noise, n_records, copied):
    rng = np.random.default_rng(5)
    period = rng.normal(size=300).cumsum() + 0.1 * np.arange(300)  # a trend alone is no copy
    values = np.tile(period, 4) + noise * rng.normal(size=1200)
    records = [
        Segment(np.zeros((len(part), 1)), part, np.zeros(1)) for part in np.split(values, n_records)
    ]
    assert len(find_copies(folds_of(records, 5))) == copied
    once = rng.normal(size=1200).cumsum() + 0.1 * np.arange(1200)
    once[240:480] = 0.0  # at rest, a copy of nothing
    assert find_copies(folds_of([Segment(np.zeros((1200, 1)), once, np.zeros(1))], 5)) == []


@pytest.mark.parametrize("n", [60, 140, 300])
def test_short_records_are_no_copies_of_themselves_by_chance(n):
    rng = np.random.default_rng(0)
    counts = []
    for n_periods in (1, 4):
        counts.append(0)
        for _ in range(20):
            smooth = np.convolve(rng.normal(size=n // n_periods + 8), np.hanning(9), "valid")
            values = np.tile(smooth, n_periods)
            values += 0.01 * values.std() * rng.normal(size=len(values))
            counts[-1] += bool(
                find_copies(folds_of([Segment(np.zeros((len(values), 1)), values, np.zeros(1))], 5))
            )
    assert counts[0] == 0
    assert counts[1] >= 19


def test_rows_that_follow_each_other():
    y = np.where(np.arange(9) == 4, np.nan, 1.0)
    one = xr.Dataset(
        {"y": ("time", y), "u": ("time", y * 0 + 1)},
        coords={"time": 0.5 * np.arange(9)},
    ).fillna({"u": 1.0})
    rows = Narx({"y": 1}, {"u": 1}, on_missing="skip").dataset([one, one])
    np.testing.assert_array_equal(consecutive(rows), [False, True, True, False, True, True] * 2)
