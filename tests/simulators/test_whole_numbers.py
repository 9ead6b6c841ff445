"""Numbers of settings that no compiled function could take, or that ask for endless memory."""

import numpy as np
import pytest

from simulators import (
    APRBS,
    PRBS,
    BoucWen,
    Interpolation,
    Levels,
    LinearChirp,
    Multisine,
    Servo,
    Staircase,
    Steps,
    SyntheticWeather,
    VanDerPol,
    simulate,
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


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Multisine, "period"), (Multisine, "clippings"), (Staircase, "levels"), (PRBS, "stages")],
)
@pytest.mark.parametrize("value", [10**9, 10**12])
def test_a_number_of_an_excitation_fits_into_memory(kind, name, value):
    with pytest.raises(ValueError, match=f"{name}=.*integer from"):
        kind(**{name: value})


@pytest.mark.parametrize("time", [1e12, 1e308])
def test_a_sweep_fits_into_memory(time):
    with pytest.raises(ValueError, match=r"duration.*at most \d+ samples"):
        LinearChirp(duration=time).signal(10, 0.1, np.random.default_rng(0))


@pytest.mark.parametrize("time", [1e12, 1e308])
@pytest.mark.parametrize(
    "settings",
    [
        lambda time: PRBS(clock=time),
        lambda time: APRBS(shortest_hold=time),
        lambda time: APRBS(longest_hold=time),
        lambda time: Staircase(hold=time),
        lambda time: Steps([[0.0, 1.0], [time, 2.0]]),
    ],
    ids=["PRBS", "APRBS shortest", "APRBS longest", "staircase", "steps"],
)
def test_a_level_of_any_length_takes_the_memory_of_the_record(settings, time):
    signal = settings(time).signal(10, 0.1, np.random.default_rng(0))
    assert signal.shape == (10,)
    assert (signal == signal[0]).all()


def test_weather_of_endless_time_is_refused():
    with pytest.raises(ValueError, match=r"at most \d+ hours"):
        SyntheticWeather().temperature([0.0, 1e15])


def test_a_resampled_input_fits_into_memory():
    with pytest.raises(ValueError, match=r"band_limited: 300 samples of 1000000 substeps"):
        simulate(
            BoucWen(substeps=10**6),
            np.zeros((300, 1)),
            n_samples=300,
            seed=0,
            interpolation=Interpolation.band_limited,
        )


@pytest.mark.parametrize("seconds", [1e-300, 5e-324])
def test_a_hold_of_a_level_can_be_counted(seconds):
    with pytest.raises(ValueError, match=r"hold=.*at least 1e-09 s"):
        Levels(hold=seconds)


@pytest.mark.parametrize("seconds", [1e300, 2**63 - 1])
def test_a_sampling_time_times_a_number_of_samples_is_a_number(seconds):
    with pytest.raises(ValueError, match=r"dt=.*at most 1e\+11 s"):
        Servo(dt=seconds)
