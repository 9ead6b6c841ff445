"""Controllers and set-points: the PI law with its anti-windup, levels, comfort, open loop."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plants import DAY, HOUR
from simulators import (
    PI,
    Building,
    ComfortSchedule,
    Controller,
    Levels,
    MeasurementNoise,
    OpenLoop,
    OutlierNoise,
    closed_loop,
)

NOON = 12 * HOUR  # when the set-point of the comfort schedule is 21.5 degC


@given(y=st.floats(-50, 100), integral=st.floats(-1, 1))
def test_integral_rests_while_the_error_drives_into_saturation(y, integral):
    (u,), (integral_after,) = PI().control(NOON, [y], (integral,))
    error = 21.5 - y
    unlimited = 0.002 * error + integral
    assert u == pytest.approx(min(max(unlimited, 0.0), 0.1))
    would_wind_up = (unlimited > 0.1 and error > 0) or (unlimited < 0.0 and error < 0)
    if would_wind_up:
        assert integral_after == integral
    else:
        assert integral_after == pytest.approx(integral + 2e-7 * 900 * error)


@given(
    levels=st.lists(st.floats(-9, 9), min_size=1, max_size=5),
    hold=st.sampled_from([0.5, 1.0, 4.0, 400.0]),
    n=st.integers(1, 60),
)
def test_levels_follow_each_other_and_start_again(levels, hold, n):
    times = hold / 4 * np.arange(n)
    expected = []
    end_of_level = hold
    i = 0
    for time in times:
        if time >= end_of_level:
            i = (i + 1) % len(levels)
            end_of_level += hold
        expected.append(levels[i])
    schedule = Levels(levels, hold)
    np.testing.assert_array_equal(schedule.set_point(times), expected)
    np.testing.assert_array_equal([schedule.set_point(time) for time in times], expected)


def test_controller_stores_its_set_point():
    controller = PI(schedule=Levels([1.0, 2.0], 20.0))
    references = controller.references(np.arange(0.0, 50.0, 5.0))
    expected = [1, 1, 1, 1, 2, 2, 2, 2, 1, 1]
    np.testing.assert_array_equal(references["set_point"].values, expected)


def test_controller_stores_the_comfort_range():
    references = PI().references(HOUR * np.arange(48))
    assert set(references) == {"set_point", "comfort_lower", "comfort_upper"}
    set_point = references["set_point"].values
    np.testing.assert_array_equal(set_point, references["comfort_lower"].values + 0.5)
    assert np.all(set_point < references["comfort_upper"].values)


def test_open_loop_has_no_set_point():
    assert OpenLoop(1.0).references(np.arange(3.0)) == {}


@given(day=st.integers(0, 364), quarter=st.integers(0, 95), first_weekday=st.integers(0, 6))
def test_comfort_is_narrow_by_day_from_monday_to_friday(day, quarter, first_weekday):
    schedule = ComfortSchedule(first_weekday=first_weekday)
    hour = quarter / 4
    time = day * DAY + hour * HOUR
    is_working_day = (day + first_weekday) % 7 < 5
    is_daytime = 6 <= hour < 22
    narrow = (21.0, 24.0)
    wide = (17.0, 28.0)
    expected = narrow if is_working_day and is_daytime else wide
    assert (schedule.lower(time), schedule.upper(time)) == expected
    assert schedule.set_point(time) == schedule.lower(time) + 0.5


@pytest.mark.parametrize(
    ("day", "hour", "expected"),
    [
        (0, 2.75, 17.5),  # Monday
        (0, 3.0, 21.5),
        (0, 21.75, 21.5),
        (0, 22.0, 17.5),
        (4, 22.0, 17.5),  # Friday evening, before a weekend without heating
        (5, 3.0, 17.5),
        (6, 23.0, 17.5),
        (7, 2.75, 17.5),
        (7, 3.0, 21.5),
    ],
)
def test_set_point_rises_before_the_day_and_the_band_does_not(day, hour, expected):
    schedule = ComfortSchedule(preheat=3.0)
    time = day * DAY + hour * HOUR
    assert schedule.set_point(time) == expected
    assert schedule.lower(time) == ComfortSchedule().lower(time)
    assert schedule.upper(time) == ComfortSchedule().upper(time)


def test_preheating_longer_than_the_night_heats_through_it():
    schedule = ComfortSchedule(preheat=8.0)
    night = DAY + HOUR * np.arange(22.0, 30.0, 0.25)
    np.testing.assert_array_equal(schedule.set_point(night), 21.5)


def test_negative_offset_lies_below_the_band():
    schedule = ComfortSchedule(offset=-0.25)
    assert schedule.set_point(12 * HOUR) == 20.75
    assert schedule.lower(12 * HOUR) == 21.0


@given(st.lists(st.floats(0, 4e7), min_size=1, max_size=20))
def test_times_may_be_arrays(times):
    schedule = ComfortSchedule(day_lower=20.1, relaxed_lower=16.3)
    limits = schedule.lower(np.array(times))
    np.testing.assert_array_equal(limits, [schedule.lower(time) for time in times])
    early = ComfortSchedule(preheat=2.5)
    set_points = [early.set_point(time) for time in times]
    np.testing.assert_array_equal(early.set_point(np.array(times)), set_points)
    assert set(limits) <= {20.1, 16.3}


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (PI, "proportional_gain", -1.0),
        (PI, "integral_gain", np.inf),
        (PI, "minimum", 0.2),
        (PI, "dt", 0.0),
        (Levels, "levels", []),
        (Levels, "levels", [1.0, np.nan]),
        (Levels, "hold", 0.0),
        (ComfortSchedule, "day_lower", 25.0),
        (ComfortSchedule, "relaxed_lower", 30.0),
        (ComfortSchedule, "day_start", 23.0),
        (ComfortSchedule, "day_end", 25.0),
        (ComfortSchedule, "offset", np.inf),
        (ComfortSchedule, "preheat", -1.0),
        (ComfortSchedule, "preheat", 16.5),
        (ComfortSchedule, "first_weekday", 7),
    ],
)
def test_impossible_settings_are_refused(cls, name, value):
    with pytest.raises(ValueError, match=rf"{cls.__name__}\({name}=.*expected"):
        cls(**{name: value})


@dataclass(frozen=True)
class Thermostat(Controller):
    """Heats by the true temperatures of wall and radiator, whatever is measured."""

    states_read: tuple[str, ...] = ("wall", "radiator")
    outputs_read = ("zone_temperature",)
    inputs_driven = ("mass_flow",)

    def initial_state(self):
        return ()

    def control(self, time, output, state):
        _, wall, radiator = output
        return (0.001 * wall + 0.0001 * radiator,), ()


def test_a_controller_may_read_true_states_which_are_not_measured():
    noise = MeasurementNoise(std=1.0)
    outside = {"ambient_temperature": np.zeros(20)}
    samples = list(closed_loop(Building(), Thermostat(900.0), outside, measurement=noise, seed=4))
    states = np.array([sample.state for sample in samples])
    flows = np.array([sample.input[1] for sample in samples])
    np.testing.assert_allclose(flows, 0.001 * states[:, 1] + 0.0001 * states[:, 2], rtol=1e-14)


def test_states_that_do_not_exist_are_not_read():
    with pytest.raises(ValueError, match=r"expected states among .* got \['roof'\]"):
        closed_loop(Building(), Thermostat(900.0, ("roof",)), {"ambient_temperature": np.zeros(20)})


def test_a_controller_reads_the_last_reading_instead_of_a_missing_one():
    outside = {"ambient_temperature": np.zeros(40)}
    sensor = OutlierNoise(std=0.05, missing=12)
    read = []

    class Recording(PI):
        def control(self, time, output, state):
            read.append(output[0])
            return super().control(time, output, state)

    samples = list(closed_loop(Building(), Recording(), outside, measurement=sensor, seed=3))

    measured = np.array([sample.output[0] for sample in samples])
    assert np.isnan(measured).sum() == 12
    assert np.isnan(measured[1:] + measured[:-1]).sum() > 12, "some readings are missing in a row"
    last = np.nan
    for value, known in zip(measured, read, strict=True):
        last = last if np.isnan(value) else value
        assert known == last
