"""Set-points in levels, and the controllers that use them: PI on the tanks, and none at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import closed_loop, collect, simulate
from simulators.controllers.levels import Levels
from simulators.controllers.open_loop import OpenLoop
from simulators.controllers.pi import PI
from simulators.controllers.schedule import ComfortSchedule
from simulators.systems.cascaded_tanks import CascadedTanks


def counted(levels, hold, time):
    """Level at a time by walking through the holds one by one."""
    number, end = 0, hold
    while time >= end:
        number, end = (number + 1) % len(levels), end + hold
    return levels[number]


@given(
    levels=st.lists(st.floats(-9, 9), min_size=1, max_size=5),
    hold=st.sampled_from([0.5, 1.0, 4.0, 400.0]),
    steps=st.integers(0, 60),
)
def test_levels_follow_each_other_and_start_again(levels, hold, steps):
    time = steps * hold / 4
    assert Levels(levels, hold).set_point(time) == counted(levels, hold, time)


def test_an_array_of_times_gives_the_same_as_each_time():
    schedule, time = Levels([1.0, -2.0, 5.0], 30.0), np.linspace(0.0, 200.0, 101)
    np.testing.assert_array_equal(schedule.set_point(time), [schedule.set_point(t) for t in time])


def test_one_level_is_a_constant():
    assert set(Levels([3.5], 10.0).set_point(np.arange(100.0))) == {3.5}


def test_what_is_stored_is_the_set_point_alone():
    time = np.arange(0.0, 50.0, 5.0)
    found = Levels([1.0, 2.0], 20.0).references(time)
    assert list(found) == ["set_point"]
    np.testing.assert_array_equal(found["set_point"].values, [1, 1, 1, 1, 2, 2, 2, 2, 1, 1])


def test_a_comfort_schedule_stores_its_band_too():
    found = ComfortSchedule().references(3600.0 * np.arange(48))
    assert set(found) == {"set_point", "comfort_lower", "comfort_upper"}
    assert np.all(found["comfort_lower"].values < found["set_point"].values)
    assert np.all(found["set_point"].values < found["comfort_upper"].values)


def test_levels_are_kept_as_a_tuple_so_that_they_compare_and_hash():
    assert Levels([1.0, 2.0]) == Levels((1.0, 2.0))
    assert hash(Levels([1.0, 2.0])) == hash(Levels((1.0, 2.0)))


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"levels": []}, "levels"),
        ({"levels": [1.0, float("nan")]}, "levels"),
        ({"hold": 0.0}, "hold"),
        ({"hold": -5.0}, "hold"),
    ],
)
def test_impossible_settings_are_refused(wrong, word):
    with pytest.raises(ValueError, match=rf"Levels\({word}.*expected"):
        Levels(**wrong)


def test_the_tanks_follow_the_levels():
    system = CascadedTanks()
    controller = PI(system.dt, "level", "pump_voltage", 0.3, 0.001, 0.0, 10.0, Levels([4.0, 6.0], 4000.0))
    loop = collect(closed_loop(system, controller, {}, n_samples=2001), system, seed=0)
    late = loop.time % 4000.0 > 3000.0
    aim = np.where(loop.time // 4000.0 % 2 == 0, 4.0, 6.0)
    assert np.abs(loop.output[late, 0] - aim[late]).max() < 0.1


def test_an_open_loop_runs_sample_by_sample_as_it_does_at_once():
    system = CascadedTanks(lower_noise_std=0.01)
    pump = 3 + np.sin(np.arange(60) / 5)
    controller = OpenLoop(system.dt)
    assert (controller.outputs_read, controller.inputs_driven, controller.references(np.arange(3.0))) == ((), (), {})
    one_by_one = collect(closed_loop(system, controller, {"pump_voltage": pump}, seed=4), system, seed=4)
    np.testing.assert_array_equal(one_by_one.state, simulate(system, pump, seed=4).state)
