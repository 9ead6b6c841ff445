"""Controllers and their set-points: the PI law with its anti-windup, levels, the comfort schedule,
open loop.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import PI, ComfortSchedule, Levels, OpenLoop

HOUR = 3600.0
DAY = 86400.0
NOON = 12 * HOUR  # set-point 21.5 degC


@given(y=st.floats(-50, 100), integral=st.floats(-1, 1))
def test_the_integral_rests_while_the_error_drives_into_saturation(y, integral):
    (u,), (after,) = PI().control(NOON, [y], (integral,))
    v = 0.002 * (21.5 - y) + integral
    assert u == pytest.approx(min(max(v, 0.0), 0.1))
    winds_up = (v > 0.1 and y < 21.5) or (v < 0.0 and y > 21.5)
    assert after == (integral if winds_up else pytest.approx(integral + 2e-7 * 900 * (21.5 - y)))


@given(
    levels=st.lists(st.floats(-9, 9), min_size=1, max_size=5),
    hold=st.sampled_from([0.5, 1.0, 4.0, 400.0]),
    n=st.integers(1, 60),
)
def test_levels_follow_each_other_and_start_again(levels, hold, n):
    time = hold / 4 * np.arange(n)
    expected = []
    end = hold
    i = 0
    for t in time:
        if t >= end:
            i = (i + 1) % len(levels)
            end = end + hold
        expected.append(levels[i])
    np.testing.assert_array_equal(Levels(levels, hold).set_point(time), expected)
    np.testing.assert_array_equal([Levels(levels, hold).set_point(t) for t in time], expected)


def test_a_controller_stores_what_it_aims_at():
    levels = PI(schedule=Levels([1.0, 2.0], 20.0)).references(np.arange(0.0, 50.0, 5.0))
    np.testing.assert_array_equal(levels["set_point"].values, [1, 1, 1, 1, 2, 2, 2, 2, 1, 1])
    comfort = PI().references(HOUR * np.arange(48))
    assert set(comfort) == {"set_point", "comfort_lower", "comfort_upper"}
    np.testing.assert_array_equal(
        comfort["set_point"].values, comfort["comfort_lower"].values + 0.5
    )
    assert np.all(comfort["set_point"].values < comfort["comfort_upper"].values)
    assert OpenLoop(1.0).references(np.arange(3.0)) == {}


@given(day=st.integers(0, 364), quarter=st.integers(0, 95), first_weekday=st.integers(0, 6))
def test_comfort_is_narrow_by_day_from_monday_to_friday(day, quarter, first_weekday):
    schedule = ComfortSchedule(first_weekday=first_weekday)
    time = day * DAY + quarter * HOUR / 4
    comfort = (day + first_weekday) % 7 < 5 and 6 <= quarter / 4 < 22
    assert (schedule.lower(time), schedule.upper(time)) == (
        (21.0, 24.0) if comfort else (17.0, 28.0)
    )
    assert schedule.set_point(time) == schedule.lower(time) + 0.5


@given(st.lists(st.floats(0, 4e7), min_size=1, max_size=20))
def test_times_may_be_arrays(times):
    schedule = ComfortSchedule(day_lower=20.1, relaxed_lower=16.3)
    np.testing.assert_array_equal(
        schedule.lower(np.array(times)), [schedule.lower(t) for t in times]
    )
    assert set(schedule.lower(np.array(times))) <= {20.1, 16.3}


@pytest.mark.parametrize(
    ("cls", "bad"),
    [
        (
            PI,
            {
                "proportional_gain": [-1.0],
                "integral_gain": [np.inf],
                "minimum": [0.2],
                "dt": [0.0],
            },
        ),
        (Levels, {"levels": [[], [1.0, np.nan]], "hold": [0.0]}),
        (
            ComfortSchedule,
            {
                "day_lower": [25.0],
                "relaxed_lower": [30.0],
                "day_start": [23.0],
                "day_end": [25.0],
            },
        ),
        (ComfortSchedule, {"offset": [-1.0], "first_weekday": [7]}),
    ],
)
def test_impossible_settings_are_refused(cls, bad):
    for name, values in bad.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"{cls.__name__}\({name}=.*expected"):
                cls(**{name: value})
