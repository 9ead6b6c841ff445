"""Numbers of settings that no compiled function could take, or that no record could hold."""

import numpy as np
import pytest

from simulators import (
    APRBS,
    PRBS,
    Levels,
    LinearChirp,
    Multisine,
    Servo,
    Staircase,
    Steps,
    SyntheticWeather,
    VanDerPol,
)


@pytest.mark.parametrize("value", [10**20, 10**300, 2**63, 0, -1, 1e300, float("nan"), True])
def test_a_number_of_substeps_is_possible(value):
    with pytest.raises((ValueError, TypeError), match="substeps"):
        VanDerPol(substeps=value)


def test_a_number_beyond_64_bits_is_refused():
    with pytest.raises((ValueError, TypeError), match="group"):
        Multisine(rms=1.0, band=(0.1, 1.0), group=10**20)


@pytest.mark.parametrize("value", [10**20, -(10**20), 10**400])
def test_a_number_may_be_an_integer_of_up_to_64_bits(value):
    with pytest.raises((ValueError, TypeError), match="mass"):
        Servo(mass=value)
    assert Servo(mass=2).mass == 2


@pytest.mark.parametrize("seconds", [1e9, 1e99, 1.7e308, 2**63 - 1])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        pytest.param(PRBS, "clock", id="clock of a PRBS"),
        pytest.param(APRBS, "shortest_hold", id="shortest hold"),
        pytest.param(APRBS, "longest_hold", id="longest hold"),
        pytest.param(Staircase, "hold", id="hold of stairs"),
        pytest.param(LinearChirp, "duration", id="duration of a sweep"),
    ],
)
def test_no_time_of_an_excitation_is_longer_than_any_record(kind, field, seconds):
    with pytest.raises(ValueError, match=f"{field}=.*at most 20000000 samples"):
        kind(**{field: seconds}).signal(50, 0.01, np.random.default_rng(0))


def test_no_step_is_later_than_any_record():
    with pytest.raises(ValueError, match=r"steps=.*at most 20000000 samples"):
        Steps([[0.1, 1.0], [1e300, 2.0]]).signal(50, 0.01, np.random.default_rng(0))


def test_no_record_has_as_many_levels_or_samples_in_a_period():
    with pytest.raises(ValueError, match="levels=1000000000"):
        Staircase(levels=10**9)
    with pytest.raises(ValueError, match="period=1000000000"):
        Multisine(period=10**9)


@pytest.mark.parametrize("seconds", [1e-300, 5e-324])
def test_a_hold_of_a_level_can_be_counted(seconds):
    with pytest.raises(ValueError, match=r"hold=.*at least 1e-09 s"):
        Levels(hold=seconds)


@pytest.mark.parametrize("seconds", [1e300, 2**63 - 1])
def test_a_sampling_time_times_a_number_of_samples_is_a_number(seconds):
    with pytest.raises(ValueError, match=r"dt=.*at most 1e\+11 s"):
        Servo(dt=seconds)


def test_a_climate_of_more_hours_than_fit_into_memory_is_refused():
    with pytest.raises(ValueError, match="expected times up to 20000000 h"):
        SyntheticWeather().temperature([0.0, 1e15])
