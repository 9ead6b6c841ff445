"""PRBS and APRBS: sequences of maximum length, levels, holds."""

from itertools import groupby

import numpy as np
import pytest

from simulators.excitation.aprbs import APRBS
from simulators.excitation.prbs import PRBS

DT = 0.01  # s


def rng(seed=0):
    return np.random.default_rng(seed)


def autocorrelation(v):
    """Circular autocorrelation over one period."""
    return np.fft.irfft(np.abs(np.fft.rfft(v)) ** 2, len(v)) / len(v)


def shortest_register(bits):
    """Stages and connection polynomial (bit i: x^i) of the shortest register with these bits (Berlekamp-Massey)."""
    c, b, length, shift = 1, 1, 0, 1
    for n in range(len(bits)):
        if sum(bits[n - i] for i in range(length + 1) if c >> i & 1) % 2 == 0:
            shift += 1
        elif 2 * length <= n:
            c, b, length, shift = c ^ (b << shift), c, n + 1 - length, 1
        else:
            c, shift = c ^ (b << shift), shift + 1
    return length, c


def power_of_x(exponent, polynomial, degree):
    """x^exponent modulo a polynomial over {0, 1}."""
    result, factor = 1, 2
    while exponent:
        if exponent & 1:
            result = product(result, factor, polynomial, degree)
        factor, exponent = product(factor, factor, polynomial, degree), exponent >> 1
    return result


def product(a, b, polynomial, degree):
    result = 0
    while b:
        if b & 1:
            result ^= a
        a, b = a << 1, b >> 1
        if a >> degree & 1:
            a ^= polynomial
    return result


def prime_factors(n):
    found, p = set(), 2
    while p * p <= n:
        while n % p == 0:
            found, n = found | {p}, n // p
        p += 1
    return found | ({n} if n > 1 else set())


@pytest.mark.parametrize("stages", range(2, 33))
def test_every_register_has_maximum_length(stages):
    """The shortest register that explains the bits has the stages, and x has order 2^n - 1: primitive."""
    signal = PRBS(stages=stages).signal(6 * stages, DT, rng(stages))
    length, connection = shortest_register([int(v > 0) for v in signal])
    assert length == stages
    order = 2**stages - 1
    polynomial = sum(1 << (stages - i) for i in range(stages + 1) if connection >> i & 1)
    assert power_of_x(order, polynomial, stages) == 1
    if stages > 2:
        assert all(power_of_x(order // p, polynomial, stages) != 1 for p in prime_factors(order))


@pytest.mark.parametrize("stages", range(2, 13))
def test_autocorrelation_has_two_values(stages):
    P = 2**stages - 1
    u = PRBS(amplitude=2.0, stages=stages, offset=5.0).signal(2 * P, DT, rng())
    np.testing.assert_array_equal(u[:P], u[P:])
    v = u[:P] - 5.0
    expected = np.full(P, -4.0 / P)
    expected[0] = 4.0
    np.testing.assert_allclose(autocorrelation(v), expected, atol=1e-12)
    assert set(u) == {3.0, 7.0}
    assert np.sum(v > 0) - np.sum(v < 0) == 1
    assert PRBS(stages=stages).period_samples(10) == P


def test_clock_stretches_the_sequence():
    slow = PRBS(stages=5, clock=0.04)
    u = slow.signal(300, DT, rng())
    np.testing.assert_array_equal(u, np.repeat(PRBS(stages=5).signal(75, 0.04, rng()), 4))
    np.testing.assert_array_equal(u[:176], u[124:])
    assert slow.period_samples(300, DT) == 124
    runs = [len(list(run)) for _, run in groupby(u[:124])]
    assert min(runs[1:-1]) == 4
    assert all(run % 4 == 0 for run in runs)


@pytest.mark.parametrize(
    ("n", "clock", "stages"), [(3, None, 2), (4, None, 3), (1023, None, 10), (1024, None, 11), (1024, 0.02, 10)]
)
def test_stages_cover_the_record(n, clock, stages):
    prbs = PRBS(clock=clock)
    np.testing.assert_array_equal(prbs.signal(n, DT, rng()), PRBS(clock=clock, stages=stages).signal(n, DT, rng()))
    assert prbs.period_samples(n, DT) == (2**stages - 1) * (1 if clock is None else 2)


def test_register_starts_anywhere():
    """All 2^n - 1 contents of the register, about equally often."""
    starts = [tuple(PRBS(stages=3).signal(3, DT, rng(seed))) for seed in range(700)]
    counts = [starts.count(start) for start in set(starts)]
    assert len(counts) == 7
    assert min(counts) > 60


def test_a_longer_prbs_begins_with_the_shorter_one():
    long = PRBS(stages=9, clock=0.03).signal(5000, DT, rng())
    np.testing.assert_array_equal(PRBS(stages=9, clock=0.03).signal(77, DT, rng()), long[:77])


@pytest.mark.parametrize(
    "wrong",
    [
        {"amplitude": 0.0},
        {"amplitude": -1.0},
        {"amplitude": np.inf},
        {"clock": 0.0},
        {"clock": np.nan},
        {"stages": 1},
        {"stages": 33},
        {"stages": 4.0},
    ],
)
def test_impossible_prbs_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"PRBS\({next(iter(wrong))}=.*expected.*change"):
        PRBS(**wrong)


@pytest.mark.parametrize(
    ("clock", "message"),
    [
        (0.003, r"clock=0.003.*whole multiple.*dt=0.01 s.*got 0.3 samples; set clock to 0.01 s"),
        (1e-9, r"got 1e-07 samples; set clock to 0.01 s"),
        (0.025, r"got 2.5 samples; set clock to 0.02 or 0.03 s"),
        (0.01001, r"got 1.001 samples"),
    ],
)
def test_clock_must_be_whole_samples(clock, message):
    for ask in (lambda prbs: prbs.signal(100, DT, rng()), lambda prbs: prbs.period_samples(100, DT)):
        with pytest.raises(ValueError, match=message):
            ask(PRBS(clock=clock))


@pytest.mark.parametrize("count", [1, 3, 7, 1000, 123457])
def test_multiples_survive_rounding_and_the_advice_is_accepted(count):
    for dt in (1 / 750, 0.1, 900.0):
        for clock in (count * dt, float(f"{count * dt:.9g}")):
            assert PRBS(clock=clock, stages=2).period_samples(10, dt) == 3 * count


def test_period_in_seconds_needs_the_sampling_interval():
    with pytest.raises(ValueError, match=r"PRBS: expected dt"):
        PRBS(clock=0.04).period_samples(100)


def test_no_register_covers_an_endless_record():
    with pytest.raises(ValueError, match=r"stages=None.*2\^32"):
        PRBS().period_samples(2**32)
    assert PRBS().period_samples(2**32 - 1) == 2**32 - 1


def runs_of(u):
    return [(value, len(list(run))) for value, run in groupby(u)]


def test_aprbs_levels_and_holds_are_uniform():
    aprbs = APRBS(low=-2.0, high=6.0, shortest_hold=0.03, longest_hold=0.07, offset=10.0)
    runs = runs_of(aprbs.signal(100_000, DT, rng()))
    levels, holds = np.transpose(runs[:-1])
    levels = levels - 10.0
    assert (levels.min(), levels.max()) == (pytest.approx(-2, abs=0.01), pytest.approx(6, abs=0.01))
    assert levels.min() >= -2
    assert levels.max() <= 6
    counts, _ = np.histogram(levels, bins=8, range=(-2, 6))
    assert np.ptp(counts) < 0.15 * counts.mean()
    assert set(holds) == {3, 4, 5, 6, 7}
    _, counts = np.unique(holds, return_counts=True)
    assert np.ptp(counts) < 0.15 * counts.mean()
    assert abs(np.corrcoef(levels, holds)[0, 1]) < 0.03
    assert abs(np.corrcoef(levels[1:], levels[:-1])[0, 1]) < 0.03


def test_a_longer_aprbs_begins_with_the_shorter_one():
    aprbs = APRBS(shortest_hold=0.02, longest_hold=0.31)
    long = aprbs.signal(3000, DT, rng())
    for n in (1, 2, 3, 100, 2999):
        np.testing.assert_array_equal(aprbs.signal(n, DT, rng()), long[:n])


@pytest.mark.parametrize(
    ("shortest", "longest", "expected"),
    [
        (None, None, (1, 20)),
        (0.05, None, (5, 100)),
        (None, 0.04, (1, 4)),
        (0.021, 0.049, (3, 4)),
        (0.03, 0.03, (3, 3)),
        (0.01, 0.07, (1, 7)),
    ],
)
def test_holds_in_samples(shortest, longest, expected):
    aprbs = APRBS(shortest_hold=shortest, longest_hold=longest)
    assert aprbs.hold_samples(DT) == expected
    held = {hold for _, hold in runs_of(aprbs.signal(200_000, DT, rng()))[:-1]}
    assert held == set(range(expected[0], expected[1] + 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 1.0},
        {"low": np.nan},
        {"shortest_hold": 0.0},
        {"longest_hold": -1.0},
        {"longest_hold": 1.0, "shortest_hold": 2.0},
    ],
)
def test_impossible_aprbs_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"APRBS\({next(iter(wrong))}=.*expected.*change"):
        APRBS(**wrong)


@pytest.mark.parametrize(("shortest", "longest", "advice"), [(0.012, 0.018, "0.02"), (None, 0.005, "0.01")])
def test_aprbs_needs_a_whole_number_of_samples_between_its_holds(shortest, longest, advice):
    with pytest.raises(ValueError, match=rf"whole number of samples.*set longest_hold to {advice} s or more"):
        APRBS(shortest_hold=shortest, longest_hold=longest).signal(10, DT, rng())


@pytest.mark.parametrize("shortest", [0.003, 0.00999])
def test_aprbs_holds_no_shorter_than_a_sample(shortest):
    message = (
        rf"APRBS\(shortest_hold={shortest}\): expected a time of at least one .* dt=0.01 s.*set shortest_hold to 0.01 s"
    )
    with pytest.raises(ValueError, match=message):
        APRBS(shortest_hold=shortest, longest_hold=0.07).signal(10, DT, rng())
    assert APRBS(shortest_hold=0.01 * (1 - 1e-12)).hold_samples(DT) == (1, 20)
