"""Properties of every excitation; several inputs have independent signals."""

from dataclasses import replace

import numpy as np
import pytest

import simulators.excitation
from excitation_signals import EXCITATION_DT, draw_signal
from plants import concrete_classes
from simulators import (
    APRBS,
    PRBS,
    Excitation,
    FilteredNoise,
    LinearChirp,
    LogarithmicChirp,
    Multisine,
    NoExcitation,
    Recorded,
    Staircase,
    Steps,
    excite,
)

# --- every excitation -----------------------------------------------------------------------------

EXCITATION_CLASSES = concrete_classes(simulators.excitation, Excitation)
RANDOM_EXCITATIONS = {Multisine, PRBS, APRBS, FilteredNoise}
REQUIRED_SETTINGS = {Recorded: {"values": [float(k % 7) for k in range(5000)]}}


def class_name(excitation):
    """Return the name of the class of a case."""
    return type(excitation).__name__


every_excitation = pytest.mark.parametrize(
    "excitation",
    [cls(**REQUIRED_SETTINGS.get(cls, {})) for cls in EXCITATION_CLASSES],
    ids=class_name,
)


@every_excitation
@pytest.mark.parametrize("n", [16, 100, 1001, 4096])
def test_signal_is_a_vector_of_finite_floats(excitation, n):
    u = draw_signal(excitation, n)
    assert u.shape == (n,)
    assert u.dtype == np.float64
    assert u.flags.c_contiguous
    assert np.all(np.isfinite(u))


@every_excitation
@pytest.mark.parametrize("n", [16, 100, 1001, 4096])
def test_signal_belongs_to_its_caller(excitation, n):
    u = draw_signal(excitation, n)
    u[:] = 99.0
    assert not np.any(draw_signal(excitation, n) == 99.0)


@every_excitation
def test_signal_is_that_of_the_generator(excitation):
    u = draw_signal(excitation, 500, seed=3)
    np.testing.assert_array_equal(draw_signal(excitation, 500, seed=3), u)
    depends_on_seed = not np.array_equal(draw_signal(excitation, 500, seed=4), u)
    is_random = type(excitation) in RANDOM_EXCITATIONS
    assert depends_on_seed == is_random


@every_excitation
def test_offset_is_added(excitation):
    shifted = replace(excitation, offset=excitation.offset + 3.25)
    expected = draw_signal(excitation, 300) + 3.25
    np.testing.assert_allclose(draw_signal(shifted, 300), expected, rtol=0, atol=1e-13)


@every_excitation
def test_excitations_are_compared_by_their_settings(excitation):
    copy = replace(excitation)
    shifted = replace(excitation, offset=excitation.offset + 3.25)
    assert excitation == copy
    assert hash(excitation) == hash(copy)
    assert excitation != shifted


@every_excitation
@pytest.mark.parametrize("n", [0, -1, 2.0, True, None])
def test_impossible_numbers_of_samples_are_refused(excitation, n):
    with pytest.raises(ValueError, match="n_samples="):
        draw_signal(excitation, n)


@every_excitation
@pytest.mark.parametrize("dt", [0.0, -1.0, np.nan, np.inf, "1", None])
def test_impossible_sampling_times_are_refused(excitation, dt):
    with pytest.raises(ValueError, match="dt="):
        draw_signal(excitation, 10, dt=dt)


@every_excitation
@pytest.mark.parametrize("offset", [np.nan, np.inf, "1", None])
def test_impossible_offsets_are_refused(excitation, offset):
    with pytest.raises(ValueError, match="offset="):
        replace(excitation, offset=offset)


# --- longer signals -------------------------------------------------------------------------------

# Excitations whose samples do not depend on the length of the signal, and their periods [samples].
PERIODS = [
    pytest.param(PRBS(stages=9, clock=0.03), 3 * 511, id="PRBS"),
    pytest.param(APRBS(shortest_hold=0.02, longest_hold=0.31), None, id="APRBS"),
    pytest.param(Multisine(period=100), 100, id="Multisine"),
    pytest.param(FilteredNoise(), None, id="white noise"),
    pytest.param(FilteredNoise(band=(0.0, 3.0)), None, id="low-pass noise"),
    pytest.param(FilteredNoise(band=(1.0, 3.0)), None, id="band-pass noise"),
    pytest.param(Staircase(hold=0.04), None, id="Staircase"),
    pytest.param(LinearChirp(1.0, 20.0, duration=1.5), 150, id="LinearChirp"),
    pytest.param(LogarithmicChirp(1.0, 20.0, duration=1.5), 150, id="LogarithmicChirp"),
    pytest.param(Steps([[0.02, 1.0], [0.05, -1.0], [100.0, 3.0]]), None, id="Steps"),
    pytest.param(Recorded(values=[1.0, 2.0, 5.0], repeat=True), 3, id="Recorded"),
]


@pytest.mark.parametrize(("excitation", "period"), PERIODS)
def test_longer_signal_begins_with_the_shorter_one(excitation, period):
    u = draw_signal(excitation, 4000)
    for n in (1, 3, 77, 3999):
        np.testing.assert_array_equal(draw_signal(excitation, n), u[:n])


@pytest.mark.parametrize(("excitation", "period"), PERIODS)
def test_signal_repeats_after_its_period(excitation, period):
    assert excitation.period_samples(4000, EXCITATION_DT) == period
    if period is not None:
        u = draw_signal(excitation, 4000)
        np.testing.assert_array_equal(u[period:], u[:-period])


# --- bad settings ---------------------------------------------------------------------------------

BAD_BANDS = [
    (2.0, 1.0),
    (1.0, 1.0),
    (-1.0, 1.0),
    (1.0,),
    (1.0, np.inf),
    (1.0, None),
    (True, 2.0),
    "12",
    3.0,
]
BAD_STEPS = [
    [],
    None,
    [1.0],
    [[1.0]],
    ["12"],
    [[-0.1, 1.0]],
    [[1.0, 1.0], [1.0, 2.0]],
    [[0.0, np.nan]],
    [[0.0, True]],
]
BAD_RECORDS = [[], 3.0, [1.0, np.nan], [np.inf], ["1"], "12", [[1.0, 2.0]], [None]]
BAD_SETTINGS = [
    (PRBS, "amplitude", [0.0, -1.0, np.inf]),
    (PRBS, "clock", [0.0, np.nan]),
    (PRBS, "stages", [1, 33, 4.0]),
    (APRBS, "low", [1.0, np.nan]),
    (APRBS, "shortest_hold", [0.0]),
    (APRBS, "longest_hold", [-1.0]),
    (LinearChirp, "f_start", [-1.0]),
    (LinearChirp, "f_end", [np.nan, "1"]),
    (LinearChirp, "amplitude", [0.0, -1.0]),
    (LinearChirp, "duration", [0.0, np.inf]),
    (LogarithmicChirp, "f_start", [0.0]),
    (LogarithmicChirp, "f_end", [0.0]),
    (Steps, "steps", BAD_STEPS),
    (Staircase, "low", [1.0, np.nan]),
    (Staircase, "levels", [1, 3.0]),
    (Staircase, "down", [1]),
    (Staircase, "hold", [0.0, "1"]),
    (Multisine, "rms", [0.0, np.nan]),
    (Multisine, "band", BAD_BANDS),
    (Multisine, "grid", ["even", None]),
    (Multisine, "clippings", [-1, True]),
    (Multisine, "group", [1]),
    (Multisine, "period", [2, 100.0]),
    (FilteredNoise, "std", [0.0, np.nan]),
    (FilteredNoise, "band", BAD_BANDS),
    (FilteredNoise, "order", [0, 9, 2.0]),
    (Recorded, "values", BAD_RECORDS),
    (Recorded, "repeat", ["no"]),
]


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        pytest.param(cls, name, value, id=f"{cls.__name__}-{name}-{value!r}")
        for cls, name, values in BAD_SETTINGS
        for value in values
    ],
)
def test_impossible_settings_are_refused(cls, name, value):
    with pytest.raises(ValueError, match=rf"{cls.__name__}\({name}=.*expected"):
        cls(**{name: value})


def test_longest_hold_below_the_shortest_is_refused():
    with pytest.raises(ValueError, match="longest_hold"):
        APRBS(shortest_hold=2.0, longest_hold=1.0)


def test_recorded_values_beside_a_path_are_refused():
    with pytest.raises(ValueError, match="only one of path and values"):
        Recorded(path="a.csv", values=[1.0])


@pytest.mark.parametrize(
    ("excitation", "message"),
    [
        (PRBS(clock=0.025), "clock=.*0.02 or 0.03 s"),
        (
            APRBS(shortest_hold=0.012, longest_hold=0.018),
            "longest_hold=.*0.02 s or more",
        ),
        (APRBS(shortest_hold=0.00999, longest_hold=0.07), "shortest_hold=.*dt=0.01 s"),
        (LinearChirp(1.0, 60.0), "f_end=60.0.*Nyquist"),
        (LinearChirp(50.0, 1.0), "f_start=50.0.*Nyquist"),
        (LinearChirp(duration=0.025), "duration=.*0.02 or 0.03 s"),
        (LogarithmicChirp(25.0), "f_end=None.*f_start, 25 Hz"),
        (Steps([[0.01, 1.0], [0.031, 2.0], [0.039, 3.0]]), "0.031 and 0.039 s"),
        (Staircase(hold=0.025), "hold=.*0.02 or 0.03 s"),
        (Staircase(levels=51), "101 samples"),
        (Multisine(band=(10.0, 50.0)), "band.*Nyquist"),
        (Multisine(band=(10.1, 10.9)), "band=.*at least 1,"),
        (Multisine(band=(10.0, 15.0), grid="random_odd"), "band=.*at least 4,"),
        (Multisine(grid="odd", period=99), "period=99.*even.*98 or 100"),
        (FilteredNoise(band=(1.0, 50.0)), "Nyquist"),
        (FilteredNoise(band=(10.0, 10.0005)), "0.001 Hz"),
    ],
)
def test_settings_that_do_not_fit_the_samples_are_refused(excitation, message):
    with pytest.raises(ValueError, match=message):
        draw_signal(excitation, 100)


# --- several inputs -------------------------------------------------------------------------------


def test_inputs_get_their_signals_by_name():
    """The signal of a seed must never change.

    It is drawn from stream 2 of the seed, spawned further by the letters of the name.
    """
    signals = excite(
        {"b": NoExcitation(offset=1.0), "u1": FilteredNoise(std=2.0)}, 64, EXCITATION_DT, seed=5
    )
    child = np.random.SeedSequence(5, spawn_key=(2, ord("u"), ord("1")))
    expected = 2.0 * np.random.default_rng(child).standard_normal(64)
    assert list(signals) == ["b", "u1"]
    np.testing.assert_array_equal(signals["b"], np.ones(64))
    np.testing.assert_array_equal(signals["u1"], expected)


def test_signal_of_an_input_does_not_depend_on_the_others():
    noise = FilteredNoise(std=2.0)
    alone = excite({"u1": noise}, 64, EXCITATION_DT, seed=5)
    beside_others = excite({"u": PRBS(), "u1": noise, "u3": Multisine()}, 64, EXCITATION_DT, seed=5)
    np.testing.assert_array_equal(beside_others["u1"], alone["u1"])


def test_no_inputs_have_no_signals():
    assert excite({}, 64, EXCITATION_DT, seed=5) == {}


@pytest.mark.parametrize("excitation", [1.0, None, Multisine], ids=["number", "None", "class"])
def test_only_excitations_excite(excitation):
    with pytest.raises(TypeError, match="input 'u'"):
        excite({"u": excitation}, 10, EXCITATION_DT, seed=0)


def test_negative_seeds_are_refused():
    with pytest.raises(ValueError, match="seed=-1"):
        excite({"u": Multisine()}, 10, EXCITATION_DT, seed=-1)
