"""The comfort schedule at its boundaries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.controllers.schedule import ComfortSchedule

HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("day", "hour", "lower", "upper"),
    [
        (0, 0.0, 17.0, 28.0),
        (0, 5.75, 17.0, 28.0),
        (0, 6.0, 21.0, 24.0),
        (0, 21.75, 21.0, 24.0),
        (0, 22.0, 17.0, 28.0),
        (4, 12.0, 21.0, 24.0),
        (5, 12.0, 17.0, 28.0),
        (6, 12.0, 17.0, 28.0),
        (7, 12.0, 21.0, 24.0),
        (364, 12.0, 21.0, 24.0),
    ],
)
def test_bounds(day, hour, lower, upper):
    schedule, time = ComfortSchedule(), day * DAY + hour * HOUR
    assert (schedule.lower(time), schedule.upper(time)) == (lower, upper)
    assert schedule.set_point(time) == lower + 0.5


def test_year_may_start_on_another_weekday():
    schedule = ComfortSchedule(first_weekday=5)
    assert [schedule.lower(day * DAY + 12 * HOUR) for day in range(3)] == [17.0, 17.0, 21.0]


@given(st.lists(st.floats(0, 4e7), min_size=1, max_size=20))
def test_arrays_agree_with_floats(times):
    schedule = ComfortSchedule(day_lower=20.1, relaxed_lower=16.3)
    np.testing.assert_array_equal(schedule.lower(np.array(times)), [schedule.lower(t) for t in times])
    assert set(schedule.lower(np.array(times))) <= {20.1, 16.3}


def test_share_of_working_hours():
    hours = HOUR * np.arange(7 * 24)
    assert np.sum(ComfortSchedule().lower(hours) == 21.0) == 5 * 16


@pytest.mark.parametrize(
    "wrong",
    [
        {"day_lower": 25.0},
        {"relaxed_upper": 10.0},
        {"day_start": 23.0},
        {"day_end": 25.0},
        {"offset": -1.0},
        {"first_weekday": 7},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=r"ComfortSchedule\(.*expected"):
        ComfortSchedule(**wrong)
