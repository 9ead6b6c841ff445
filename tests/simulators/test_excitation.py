"""Every excitation keeps its contract and follows its equations; several inputs have independent
signals.
"""

from collections import Counter
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import chirp as scipy_chirp
from scipy.signal import welch

import simulators.excitation
from plants import concrete_classes
from simulators import Excitation, NoExcitation, excite
from simulators.excitation.binary import APRBS, PRBS
from simulators.excitation.multisine import Grid, Multisine, crest_factor
from simulators.excitation.noise import FilteredNoise
from simulators.excitation.recorded import Recorded
from simulators.excitation.shaped import LinearChirp, LogarithmicChirp, Staircase, Steps

NEEDED = {Recorded: {"values": [float(k % 7) for k in range(5000)]}}  # it cannot work without
EXCITATIONS = [
    cls(**NEEDED.get(cls, {})) for cls in concrete_classes(simulators.excitation, Excitation)
]
every_excitation = pytest.mark.parametrize(
    "excitation", EXCITATIONS, ids=lambda excitation: type(excitation).__name__
)
DT = 0.01  # s
RANDOM = {Multisine, PRBS, APRBS, FilteredNoise}


def rng(seed=0):
    return np.random.default_rng(seed)


# --- the contract -----------------------------------------------------------------------------------


@every_excitation
@pytest.mark.parametrize("n", [16, 100, 1001, 4096])
def test_signal_is_a_vector_of_finite_floats_of_its_caller(excitation, n):
    u = excitation.signal(n, DT, rng())
    assert u.shape == (n,)
    assert u.dtype == np.float64
    assert u.flags.c_contiguous
    assert np.all(np.isfinite(u))
    u[:] = 99.0
    assert not np.any(excitation.signal(n, DT, rng()) == 99.0)


@every_excitation
def test_signal_is_that_of_the_generator(excitation):
    first, again, other = (excitation.signal(500, DT, rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) == (type(excitation) not in RANDOM)


@every_excitation
def test_offset_is_added(excitation):
    moved = replace(excitation, offset=excitation.offset + 3.25)
    assert moved != excitation == replace(excitation)
    assert hash(excitation) == hash(replace(excitation))
    expected = excitation.signal(300, DT, rng()) + 3.25
    np.testing.assert_allclose(moved.signal(300, DT, rng()), expected, rtol=0, atol=1e-13)


@every_excitation
def test_impossible_samples_and_offsets_are_refused(excitation):
    for n in (0, -1, 2.0, True, None):
        with pytest.raises(ValueError, match="n_samples="):
            excitation.signal(n, DT, rng())
    for dt in (0.0, -1.0, np.nan, np.inf, "1", None):
        with pytest.raises(ValueError, match="dt="):
            excitation.signal(10, dt, rng())
    for offset in (np.nan, np.inf, "1", None):
        with pytest.raises(ValueError, match="offset="):
            replace(excitation, offset=offset)


CAUSAL = [
    PRBS(stages=9, clock=0.03),
    APRBS(shortest_hold=0.02, longest_hold=0.31),
    Multisine(period=100),
]
CAUSAL += [
    FilteredNoise(),
    FilteredNoise(band=(0.0, 3.0)),
    FilteredNoise(band=(1.0, 3.0)),
    Staircase(hold=0.04),
]
CAUSAL += [
    LinearChirp(1.0, 20.0, duration=1.5),
    LogarithmicChirp(1.0, 20.0, duration=1.5),
]
CAUSAL += [
    Steps([[0.02, 1.0], [0.05, -1.0], [100.0, 3.0]]),
    Recorded(values=[1.0, 2.0, 5.0], repeat=True),
]


@pytest.mark.parametrize("excitation", CAUSAL, ids=lambda excitation: type(excitation).__name__)
def test_a_longer_signal_begins_with_the_shorter_one_and_repeats_after_its_period(
    excitation,
):
    u = excitation.signal(4000, DT, rng())
    for n in (1, 3, 77, 3999):
        np.testing.assert_array_equal(excitation.signal(n, DT, rng()), u[:n])
    P = excitation.period_samples(4000, DT)
    known = {
        PRBS: 3 * 511,
        Multisine: 100,
        LinearChirp: 150,
        LogarithmicChirp: 150,
        Recorded: 3,
    }
    assert known.get(type(excitation)) == P
    if P is not None:
        np.testing.assert_array_equal(u[P:], u[:-P])


BANDS = [
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
STEPS = [
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
RECORDS = [[], 3.0, [1.0, np.nan], [np.inf], ["1"], "12", [[1.0, 2.0]], [None]]


@pytest.mark.parametrize(
    ("cls", "bad"),
    [
        (
            PRBS,
            {
                "amplitude": [0.0, -1.0, np.inf],
                "clock": [0.0, np.nan],
                "stages": [1, 33, 4.0],
            },
        ),
        (APRBS, {"low": [1.0, np.nan], "shortest_hold": [0.0], "longest_hold": [-1.0]}),
        (
            LinearChirp,
            {
                "f_start": [-1.0],
                "f_end": [np.nan, "1"],
                "amplitude": [0.0, -1.0],
                "duration": [0.0, np.inf],
            },
        ),
        (LogarithmicChirp, {"f_start": [0.0], "f_end": [0.0]}),
        (Steps, {"steps": STEPS}),
        (
            Staircase,
            {"low": [1.0, np.nan], "levels": [1, 3.0], "down": [1], "hold": [0.0, "1"]},
        ),
        (
            Multisine,
            {
                "rms": [0.0, np.nan],
                "band": BANDS,
                "grid": ["even", None],
                "clippings": [-1, True],
            },
        ),
        (Multisine, {"group": [1], "period": [2, 100.0]}),
        (FilteredNoise, {"std": [0.0, np.nan], "band": BANDS, "order": [0, 9, 2.0]}),
        (Recorded, {"values": RECORDS, "repeat": ["no"]}),
    ],
)
def test_impossible_settings_are_refused(cls, bad):
    for name, values in bad.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"{cls.__name__}\({name}=.*expected"):
                cls(**{name: value})
    with pytest.raises(ValueError, match="longest_hold"):
        APRBS(shortest_hold=2.0, longest_hold=1.0)
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
        excitation.signal(100, DT, rng())


# --- several inputs ---------------------------------------------------------------------------------


def test_inputs_get_their_signals_by_name():
    """What a seed means must not change: stream 2 of the seed, then the letters of the name."""
    signals = excite({"b": NoExcitation(offset=1.0), "u1": FilteredNoise(std=2.0)}, 64, DT, seed=5)
    child = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(2, ord("u"), ord("1"))))
    assert list(signals) == ["b", "u1"]
    np.testing.assert_array_equal(signals["b"], np.ones(64))
    np.testing.assert_array_equal(signals["u1"], 2.0 * child.standard_normal(64))
    others = excite({"u": PRBS(), "u1": FilteredNoise(std=2.0), "u3": Multisine()}, 64, DT, seed=5)
    np.testing.assert_array_equal(others["u1"], signals["u1"])
    assert excite({}, 64, DT, seed=5) == {}


def test_only_excitations_excite_and_seeds_are_not_negative():
    for wrong in (1.0, None, Multisine):
        with pytest.raises(TypeError, match="input 'u'"):
            excite({"u": wrong}, 10, DT, seed=0)
    with pytest.raises(ValueError, match="seed=-1"):
        excite({"u": Multisine()}, 10, DT, seed=-1)


# --- PRBS and APRBS ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [2, 3, 5, 8, 13])
def test_a_prbs_has_maximum_length(stages):
    """Every content of the register but zero occurs once in a period, and so the autocorrelation
    has two values.
    """
    P = 2**stages - 1
    u = PRBS(amplitude=2.0, stages=stages, offset=5.0).signal(P + stages, DT, rng())
    assert set(u) == {3.0, 7.0}
    windows = np.lib.stride_tricks.sliding_window_view(u > 5, stages)[:P]
    assert len({window.tobytes() for window in windows}) == P
    assert windows.any(axis=1).all()
    spectrum = np.abs(np.fft.rfft(u[:P] - 5)) ** 2
    np.testing.assert_allclose(
        np.fft.irfft(spectrum, P) / P, [4.0] + (P - 1) * [-4.0 / P], atol=1e-12
    )


def test_clock_stretches_a_prbs():
    u = PRBS(stages=5, clock=0.04).signal(300, DT, rng())
    np.testing.assert_array_equal(u, np.repeat(PRBS(stages=5).signal(75, 0.04, rng()), 4))
    for count in (1, 3, 7, 1000, 123457):
        for dt in (1 / 750, 0.1, 900.0):  # multiples survive rounding
            for clock in (count * dt, float(f"{count * dt:.9g}")):
                assert PRBS(clock=clock, stages=2).period_samples(10, dt) == 3 * count


@pytest.mark.parametrize(
    ("n", "clock", "stages"),
    [(3, None, 2), (4, None, 3), (1023, None, 10), (1024, None, 11), (1024, 0.02, 10)],
)
def test_stages_of_a_prbs_cover_the_record(n, clock, stages):
    prbs = PRBS(clock=clock)
    np.testing.assert_array_equal(
        prbs.signal(n, DT, rng()), PRBS(clock=clock, stages=stages).signal(n, DT, rng())
    )
    assert prbs.period_samples(n, DT) == (2**stages - 1) * (1 if clock is None else 2)
    with pytest.raises(ValueError, match=r"2\^32"):
        PRBS().period_samples(2**32)


def test_register_of_a_prbs_starts_anywhere():
    """All 2^n - 1 contents of the register, about equally often."""
    counts = Counter(tuple(PRBS(stages=3).signal(3, DT, rng(seed))) for seed in range(700))
    assert len(counts) == 7
    assert min(counts.values()) > 60


def runs_of(u):
    return [(value, len(list(run))) for value, run in groupby(u)][:-1]


def test_aprbs_levels_and_holds_are_uniform_and_independent():
    aprbs = APRBS(low=-2.0, high=6.0, shortest_hold=0.03, longest_hold=0.07, offset=10.0)
    levels, holds = np.transpose(runs_of(aprbs.signal(100_000, DT, rng())))
    assert (levels.min(), levels.max()) == (
        pytest.approx(8, abs=0.01),
        pytest.approx(16, abs=0.01),
    )
    for counts in (
        np.histogram(levels, bins=8, range=(8, 16))[0],
        np.unique(holds, return_counts=True)[1],
    ):
        assert np.ptp(counts) < 0.15 * counts.mean()
    assert abs(np.corrcoef(levels, holds)[0, 1]) < 0.03
    assert abs(np.corrcoef(levels[1:], levels[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("shortest", "longest", "expected"),
    [
        (None, None, (1, 20)),
        (0.05, None, (5, 100)),
        (0.021, 0.049, (3, 4)),
        (0.03, 0.03, (3, 3)),
        (0.01, 0.07, (1, 7)),
    ],
)
def test_aprbs_holds_in_samples(shortest, longest, expected):
    aprbs = APRBS(shortest_hold=shortest, longest_hold=longest)
    assert aprbs.hold_samples(DT) == expected
    assert {hold for _, hold in runs_of(aprbs.signal(50_000, DT, rng()))} == set(
        range(expected[0], expected[1] + 1)
    )


# --- chirps, steps and stairs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "method"), [(LinearChirp, "linear"), (LogarithmicChirp, "logarithmic")]
)
def test_chirps_are_those_of_scipy(cls, method):
    N = 20_000
    t = 0.001 * np.arange(20_000)
    for f_start, f_end in ((0.5, 40.0), (100.0, 5.0)):
        u = cls(f_start, f_end, amplitude=1.5).signal(N, 0.001, rng())
        np.testing.assert_allclose(
            u, 1.5 * scipy_chirp(t, f_start, 20.0, f_end, method, phi=-90), atol=1e-9
        )
    assert cls(duration=10.0).frequencies(500, 0.1) == pytest.approx(
        (0.1, 2.5)
    )  # a cycle, half of Nyquist


@given(
    first=st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True).map(sorted),
    late=st.floats(0.001, 0.999),
    n=st.integers(1, 50),
)
def test_steps_hold_the_level_of_the_last_time_that_has_passed(first, late, n):
    """Given times between the samples first - 1 and first."""
    steps = [[max(k - late, 0.0) * DT if i else k * DT, 10.0 + i] for i, k in enumerate(first)]
    u = Steps(steps, offset=1.0).signal(n, DT, rng())
    for k in range(n):
        passed = [10.0 + i for i, j in enumerate(first) if j <= k]
        assert u[k] == 1.0 + (passed[-1] if passed else 0.0)


@pytest.mark.parametrize("k", [1, 3, 6, 7, 29, 123, 10_007])
def test_a_step_at_a_sample_takes_effect_there(k):
    """k * 0.1 is not always the float nearest to the decimal."""
    for time in (k * 0.1, float(f"{k * 0.1:.12g}")):
        np.testing.assert_array_equal(
            Steps([[time, 2.0]]).signal(k + 2, 0.1, rng())[k - 1 :], [0.0, 2.0, 2.0]
        )


def test_stairs_lead_up_and_down():
    u = Staircase(low=-1.0, high=2.0, levels=4, hold=0.03, offset=5.0).signal(25, DT, rng())
    expected = np.repeat([-1.0, 0.0, 1.0, 2.0, 1.0, 0.0, -1.0], 3)
    np.testing.assert_allclose(u, 5.0 + np.append(expected, [-1.0] * 4), rtol=0, atol=1e-14)
    up = Staircase(low=0.0, high=1.0, levels=3, down=False).signal(11, DT, rng())
    np.testing.assert_array_equal(up, [0, 0, 0, 0.5, 0.5, 0.5, 1, 1, 1, 1, 1])


# --- multisine --------------------------------------------------------------------------------------

RATE = 750.0  # Hz, of the benchmark
BOUC_WEN = Multisine(rms=50.0, band=(5.0, 150.0), period=8192)  # its official estimation input


def lines(u):
    """Harmonics of one period that carry power."""
    amplitude = np.abs(np.fft.rfft(u))
    return np.flatnonzero(amplitude > 1e-9 * amplitude.max())


@settings(max_examples=40, deadline=None)
@given(
    rms=st.floats(1e-3, 1e3),
    period=st.integers(10, 100).map(lambda half: 2 * half),
    group=st.integers(2, 4),
    offset=st.floats(-100, 100),
    grid=st.sampled_from(Grid),
)
def test_a_multisine_is_the_sum_of_cosines_of_its_equation(rms, period, group, offset, grid):
    multisine = Multisine(rms=rms, grid=grid.value, group=group, period=period, offset=offset)
    generator = rng(1)
    k = np.arange(2 * period)
    drawn = grid.harmonics(1, (period - 1) // 2, group, generator)
    naive = np.full(2 * period, offset)
    for h, phi in zip(drawn, generator.uniform(0, 2 * np.pi, len(drawn)), strict=True):
        naive += rms * np.sqrt(2 / len(drawn)) * np.cos(2 * np.pi * h * k / period + phi)
    np.testing.assert_allclose(
        multisine.signal(2 * period, 0.1, rng(1)),
        naive,
        atol=1e-11 * (rms + abs(offset)),
    )


@pytest.mark.parametrize(
    ("multisine", "period", "dt", "expected"),
    [
        (BOUC_WEN, 8192, 1 / RATE, np.arange(55, 1639)),
        (
            Multisine(band=(0.3, 0.6)),
            100,
            0.1,
            [3, 4, 5, 6],
        ),  # both ends included, for all rounding
        (Multisine(band=(0.0, 0.2)), 100, 0.1, [1, 2]),  # the mean is the offset
        (Multisine(), 101, 1.0, np.arange(1, 51)),
        (Multisine(grid="odd"), 400, 1.0, np.arange(1, 200, 2)),
        (Multisine(band=(1.5, 2.5)), 100, DT, [2]),
        (Multisine(band=(2.5, 3.5), grid="odd"), 100, DT, [3]),
    ],
)
def test_a_multisine_excites_the_harmonics_of_its_band(multisine, period, dt, expected):
    u = multisine.signal(period, dt, rng())
    np.testing.assert_array_equal(lines(u), expected)
    assert np.sqrt(np.mean(u**2)) == pytest.approx(multisine.rms, rel=1e-12)


def test_random_odd_leaves_out_one_of_every_group():
    left_out = []
    for seed in range(200):
        odd = range(
            5, 29 + 2 * (seed % 2), 2
        )  # 5, 7, ..., 27: three groups of four, with 29 or without
        drawn = Grid.random_odd.harmonics(4, odd[-1] + 1, 4, rng(seed))
        left_out.append(sorted(set(odd) ^ set(drawn)))
        assert [(h - 5) // 2 // 4 for h in left_out[-1]] == [0, 1, 2]
    counts = np.unique(left_out, return_counts=True)[1]
    assert len(counts) == 12  # any, and never the incomplete group
    assert counts.min() > 25  # 50 expected
    assert abs(np.corrcoef(np.transpose(left_out))[0, 1]) < 0.25  # groups are drawn apart


@pytest.mark.parametrize(
    "multisine", [BOUC_WEN, Multisine(grid="random_odd", clippings=20, offset=7.0)]
)
def test_report_describes_the_signal(multisine):
    report = multisine.report(8192, 1 / RATE, rng(2))
    v = multisine.signal(8192, 1 / RATE, rng(2)) - multisine.offset
    np.testing.assert_array_equal(report.harmonics, lines(v))
    np.testing.assert_allclose(
        report.frequencies, np.fft.rfftfreq(8192, 1 / RATE)[lines(v)], rtol=1e-14
    )
    assert report.resolution == pytest.approx(RATE / 8192)
    assert report.rms == pytest.approx(np.std(v), rel=1e-12)
    assert report.crest_factor == pytest.approx(np.abs(v).max() / np.std(v), rel=1e-9)
    with pytest.raises(ValueError, match="n_samples=0"):
        multisine.report(0, 0.1, rng())


def test_clipping_lowers_the_crest_factor_and_keeps_the_spectrum():
    factors = []
    for clippings in (0, 1, 10, 100):
        u = replace(BOUC_WEN, clippings=clippings).signal(8192, 1 / RATE, rng())
        spectrum = np.abs(np.fft.rfft(u))
        np.testing.assert_array_equal(lines(u), np.arange(55, 1639))
        np.testing.assert_allclose(spectrum[55:1639], spectrum[55], rtol=1e-9)
        factors.append(crest_factor(u))
    assert 3.0 < factors[0] < 5.0
    assert factors[0] >= factors[1] > factors[2] > factors[3]
    assert factors[3] < 1.8


def test_crest_factors_of_known_signals():
    sine = np.sin(2 * np.pi * np.arange(4000) / 400)
    for signal, expected in (
        ([1.0, -1.0], 1.0),
        (7.0 - 3.0 * sine, np.sqrt(2)),
        ([0, 0, 0, 4.0], np.sqrt(3)),
    ):
        assert crest_factor(signal) == pytest.approx(expected, rel=1e-9)
    for wrong in ([], [1.0, 1.0], [0.1] * 7, [np.nan, 1.0], [[1.0, 2.0]], 3.0):
        with pytest.raises(ValueError, match=r"crest_factor: expected"):
            crest_factor(wrong)


# --- filtered noise ---------------------------------------------------------------------------------


def gain(frequency, band, order):
    """Squared gain of the Butterworth filter after the bilinear transformation, cut-offs
    prewarped.
    """
    w, low, high = (np.tan(np.pi * DT * np.asarray(f, dtype=float)) for f in (frequency, *band))
    return 1 / (1 + ((w * w - low * high) / (w * (high - low))) ** (2 * order))


@pytest.mark.parametrize(("band", "order"), [((0.0, 5.0), 4), ((2.0, 10.0), 3), ((10.0, 40.0), 8)])
def test_power_density_is_that_of_the_filter(band, order):
    noise = FilteredNoise(std=3.0, band=band, order=order)
    signals = np.array([noise.signal(16 * 4096, DT, rng(seed)) for seed in range(40)])
    frequency, power = welch(signals, 1 / DT, nperseg=4096)
    frequency = frequency[4:-4]
    power = power.mean(axis=0)[4:-4]
    fine = np.linspace(0, 50, 200_001)[1:-1]
    scale = 3.0**2 / (np.sum(gain(fine, band, order)) * (fine[1] - fine[0]))
    expected = scale * gain(frequency, band, order)
    strong = expected > 1e-3 * expected.max()
    outside = expected < 1e-5 * expected.max()
    np.testing.assert_allclose(power[strong], expected[strong], rtol=0.35)
    np.testing.assert_allclose(np.sum(power[strong]), np.sum(expected[strong]), rtol=0.02)
    assert np.all(power[outside] < 1e-4 * expected.max())


@pytest.mark.parametrize(("band", "order"), [((0.0, 0.5), 4), ((1.0, 1.1), 2), ((0.0, 25.0), 1)])
def test_filtered_noise_is_stationary_from_the_first_sample(band, order):
    noise = FilteredNoise(std=2.0, band=band, order=order)
    signals = np.array([noise.signal(60, DT, rng(seed)) for seed in range(300)])
    np.testing.assert_allclose(signals[:, [0, 1, 30, 59]].std(axis=0), 2.0, rtol=0.16)
    assert np.abs(signals.mean(axis=0)).max() < 0.5


# --- records ----------------------------------------------------------------------------------------


def csv(tmp_path, text):
    """Write a CSV file and return its path."""
    path = tmp_path / "record.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


TABLE = "time,u,y\n0.0,1.5,9\n0.5,-2,9\n1.0,3e-1,9\n"


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        (TABLE, {"column": "u"}, [1.5, -2.0, 0.3]),
        (TABLE, {"column": "y", "offset": 1.0}, [10, 10, 10]),
        ("u\n1\n2\n3\n\n", {}, [1, 2, 3]),
        ("\ufefftime , u\n5,1\n5.5,2\n6,3\n", {}, [1, 2, 3]),
        ("t,u\n0,1\n0.5,2\n1,3\n", {"time_column": "t"}, [1, 2, 3]),
    ],
)
def test_a_column_of_a_file_is_read(tmp_path, text, given, expected):
    np.testing.assert_array_equal(
        Recorded(csv(tmp_path, text), **given).signal(3, 0.5, rng()), expected
    )


def test_a_record_repeats_on_demand(tmp_path):
    for source in (
        {"values": range(3)},
        {"values": np.arange(3.0)},
        {"path": csv(tmp_path, "u\n0\n1\n2\n")},
    ):
        u = Recorded(repeat=True, **source).signal(7, 0.5, rng())
        np.testing.assert_array_equal(u, [0, 1, 2, 0, 1, 2, 0])
        assert Recorded(**source).period_samples(7) is None
        with pytest.raises(ValueError, match="at least 7 samples, got 3"):
            Recorded(**source).signal(7, 0.5, rng())


@pytest.mark.parametrize("digits", [6, 4])
def test_printed_times_may_be_rounded(tmp_path, digits):
    rows = "".join(f"{k / 750:.{digits}f},{k}\n" for k in range(300))
    np.testing.assert_array_equal(
        Recorded(csv(tmp_path, "time,u\n" + rows)).signal(300, 1 / 750, rng()),
        np.arange(300),
    )


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("time,u\n0,1\n0.25,2\n0.5,3\n", {}, r"dt=0.5 s, got 0.25 s on average"),
        (
            "time,u\n" + "".join(f"{k * 0.50025:.9f},{k}\n" for k in range(300)),
            {},
            "got 0.50025 s on average",
        ),
        ("time,u\n0,1\n0.5,2\nx,3\n", {}, r"row 3 .* 'time', got 'x'"),
        (TABLE, {}, "column=None.*'time', 'u', 'y'"),
        ("u,u\n1,2\n", {"column": "u"}, "2 times"),
        (TABLE, {"column": "u", "time_column": "t"}, "time_column='t'"),
        ("u\n1\nnan\n3\n", {}, r"row 2 .* got 'nan'"),
        ("v,u\n1,2\n1\n", {"column": "u"}, r"row 2 .* got 'no cell'"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, text, given, message):
    with pytest.raises(ValueError, match=message):
        Recorded(csv(tmp_path, text), **given).signal(3, 0.5, rng())
    with pytest.raises(FileNotFoundError, match=r"nowhere.csv.*change path"):
        Recorded("nowhere.csv").signal(1, 0.5, rng())
