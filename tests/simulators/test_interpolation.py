"""Inputs between their samples: values, stretches, and what each does to the order of convergence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plants import Lag

from simulators import Interpolation, closed_loop, collect, interpolation, simulate
from simulators.controllers.pi import PI
from simulators.integrators import integrate
from simulators.systems.building import Building

VARYING = (Interpolation.linear, Interpolation.band_limited)
PERIOD = 2.0  # s, of the sine that drives the lag


def random_signals(n, n_u=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, n_u))


def values_of(kind, u, substeps):
    """Input at every half substep, from all its stretches together."""
    pieces = list(kind.pieces(u, substeps))
    ends = [piece.values[:-1] for piece in pieces]
    return np.concatenate([*ends, pieces[-1].values[-1:]])


def by_cosines(u, positions):
    """Trigonometric polynomial through one period of samples, at positions in samples, term by term."""
    n = len(u)
    total = np.tile(u.mean(axis=0), (len(positions), 1))
    for m in range(1, n // 2 + 1):
        angle = 2 * np.pi * m * np.arange(n) / n
        share = 1 if 2 * m == n else 2
        a, b = share / n * np.cos(angle) @ u, share / n * np.sin(angle) @ u
        at = 2 * np.pi * m * positions / n
        total += np.outer(np.cos(at), a) + (0 if 2 * m == n else np.outer(np.sin(at), b))
    return total


@given(n=st.integers(1, 30), substeps=st.integers(1, 5))
def test_linear_values_are_those_of_straight_lines(n, substeps):
    u, positions = random_signals(n), np.arange(2 * substeps * (n - 1) + 1) / (2 * substeps)
    expected = np.column_stack([np.interp(positions, np.arange(n), column) for column in u.T])
    np.testing.assert_allclose(values_of(Interpolation.linear, u, substeps), expected, atol=1e-13)


@given(n=st.integers(1, 25), substeps=st.integers(1, 5))
def test_band_limited_values_are_those_of_the_trigonometric_polynomial(n, substeps):
    u, positions = random_signals(n), np.arange(2 * substeps * (n - 1) + 1) / (2 * substeps)
    np.testing.assert_allclose(values_of(Interpolation.band_limited, u, substeps), by_cosines(u, positions), atol=1e-12)


@pytest.mark.parametrize("n", [8, 9])
def test_polynomial_of_the_test_passes_through_the_samples(n):
    u = random_signals(n)
    np.testing.assert_allclose(by_cosines(u, np.arange(n)), u, atol=1e-13)


def test_line_at_the_nyquist_frequency_becomes_a_cosine():
    u = np.tile([[1.0], [-1.0]], (4, 1))
    values = values_of(Interpolation.band_limited, u, 3)[:, 0]
    np.testing.assert_allclose(values, np.cos(np.pi * np.arange(len(values)) / 6), atol=1e-14)


def test_band_limited_is_exact_for_a_multisine_and_joins_its_ends():
    n, substeps = 20, 4

    def signal(position):
        return 1.0 + np.cos(2 * np.pi * position / n + 0.3) + 0.5 * np.sin(2 * np.pi * 9 * position / n)

    u = signal(np.arange(n))[:, np.newaxis]
    values = values_of(Interpolation.band_limited, u, substeps)[:, 0]
    np.testing.assert_allclose(values, signal(np.arange(len(values)) / (2 * substeps)), atol=1e-13)
    two = values_of(Interpolation.band_limited, np.tile(u, (2, 1)), substeps)[:, 0]
    np.testing.assert_allclose(two[: len(values)], values, atol=1e-13)


def test_held_input_is_the_input_itself():
    u = random_signals(6)
    (piece,) = Interpolation.held.pieces(u, 7)
    assert (piece.first, piece.last, piece.rows) == (0, 5, 1)
    np.testing.assert_array_equal(piece.values, u)


@pytest.mark.parametrize("kind", Interpolation)
@pytest.mark.parametrize("n", [1, 2, 57])
def test_stretches_cover_the_record_without_gap_or_overlap(kind, n, monkeypatch):
    monkeypatch.setattr(interpolation, "PIECE_ROWS", 60)
    pieces = list(kind.pieces(random_signals(n), 3))
    assert [piece.first for piece in pieces] == [0, *(piece.last for piece in pieces[:-1])]
    assert pieces[-1].last == n - 1
    for piece in pieces:
        assert len(piece.values) == (piece.last - piece.first) * piece.rows + 1
        assert piece.values.flags.c_contiguous
    assert len(pieces) == (6 if kind is Interpolation.linear and n == 57 else 1)


@pytest.mark.parametrize("rows", [1, 16, 17, 8 * 29, 8 * 30])
def test_borders_of_stretches_do_not_show(rows, monkeypatch):
    """Thirty samples of a linear input in stretches of one, two, all but one and all."""
    u = random_signals(30, n_u=1)
    whole = simulate(Lag(rate_noise_std=0.3), u, interpolation=Interpolation.linear, seed=4)
    monkeypatch.setattr(interpolation, "PIECE_ROWS", rows)
    pieces = simulate(Lag(rate_noise_std=0.3), u, interpolation=Interpolation.linear, seed=4)
    np.testing.assert_array_equal(pieces.state, whole.state)


def exact_response(time):
    """Steady response of the lag to sin(w t)."""
    w = 2 * np.pi / PERIOD
    return ((np.sin(w * time) - w * np.cos(w * time)) / (1 + w * w))[:, np.newaxis]


def driven(kind, n, substeps=1):
    """Record of two periods of n samples from the steady response on."""
    dt = PERIOD / n
    time = dt * np.arange(2 * n)
    start = exact_response(np.zeros(1))[0]
    u = np.sin(2 * np.pi / PERIOD * time)
    options = {"dt": dt, "substeps": substeps, "interpolation": kind, "initial_state": start}
    return simulate(Lag(), u, **options)


def error(kind, n):
    trajectory = driven(kind, n)
    return np.abs(trajectory.state - exact_response(trajectory.time)).max()


@pytest.mark.parametrize(
    ("kind", "order"), [(Interpolation.held, 1), (Interpolation.linear, 2), (Interpolation.band_limited, 4)]
)
def test_order_of_convergence(kind, order):
    """A sine over a linear system: what the input loses between samples bounds the order of the method."""
    errors = [error(kind, n) for n in (16, 32, 64, 128)]
    observed = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(observed, order, atol=0.15)


@pytest.mark.parametrize(
    ("kind", "delay"), [(Interpolation.held, 0.5), (Interpolation.linear, 0.0), (Interpolation.band_limited, 0.0)]
)
def test_held_input_acts_half_a_sample_late(kind, delay):
    """Phase of the first harmonic over the last period, after the start has decayed."""
    n, w = 256, 2 * np.pi / PERIOD
    trajectory = simulate(
        Lag(time_constant=0.1), np.sin(w * PERIOD / n * np.arange(4 * n)), dt=PERIOD / n, interpolation=kind
    )
    line = np.exp(-1j * w * trajectory.time[-n:]) @ trajectory.state[-n:, 0]
    exact = -1j / (1 + 0.1j * w)
    lag = -np.angle(line / exact) / (w * PERIOD / n)
    assert lag == pytest.approx(delay, abs=0.01)


@pytest.mark.parametrize("kind", VARYING)
def test_constant_input_is_constant_between_samples(kind):
    u = np.full((9, 2), [3.0, 0.02])
    held, other = (simulate(Building(), u, seed=1, interpolation=i).state for i in (Interpolation.held, kind))
    np.testing.assert_allclose(other, held, rtol=1e-12)


@pytest.mark.parametrize("kind", VARYING)
def test_last_row_counts_unless_the_input_is_held(kind):
    u = random_signals(12, n_u=1)
    changed = u.copy()
    changed[-1] += 1.0
    one, other = (simulate(Lag(), v, interpolation=kind).state for v in (u, changed))
    assert abs(one[-1] - other[-1]) > 1e-3
    one, other = (simulate(Lag(), v).state for v in (u, changed))
    np.testing.assert_array_equal(one, other)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100))
def test_linear_future_acts_one_sample_back_only(seed):
    u = random_signals(20, n_u=1, seed=seed)
    changed = u.copy()
    changed[10:] += 5.0
    one, other = (simulate(Lag(), v, interpolation=Interpolation.linear).state for v in (u, changed))
    np.testing.assert_array_equal(one[:10], other[:10])
    assert other[10] > one[10]


@pytest.mark.parametrize("kind", Interpolation)
def test_closed_loop_interpolates_what_comes_from_outside_and_holds_what_is_driven(kind):
    """Against open-loop runs over single samples, with the input given at sixty times the rate."""
    n, building, fine = 24, Building(zone_noise_std=0.0, wall_noise_std=0.0, radiator_noise_std=0.0), 60
    ambient = 5.0 + 5.0 * np.sin(2 * np.pi * np.arange(n) / n)
    samples = closed_loop(building, PI(), {"ambient_temperature": ambient}, interpolation=kind)
    record = collect(samples, building, seed=0, interpolation=kind)
    positions = np.arange(fine * (n - 1) + 1) / fine
    between = {
        Interpolation.held: np.append(np.repeat(ambient[:-1], fine), ambient[-1]),
        Interpolation.linear: np.interp(positions, np.arange(n), ambient),
        Interpolation.band_limited: by_cosines(ambient[:, np.newaxis], positions)[:, 0],
    }[kind]
    flow = np.append(np.repeat(record.input[:-1, 1], fine), 0.0)
    start, nothing = building.initial_state(), np.zeros((len(flow), 3))
    quick = Building(dt=900.0 / fine, substeps=1)
    last, states = start, [start]
    for k in range(n - 1):  # restarted at every sample, where the flow jumps
        part = slice(k * fine, (k + 1) * fine + 1)
        u = np.column_stack([between[part], np.full(fine + 1, flow[k * fine])])
        last = integrate(quick, last, u, nothing[part], fine_kind(kind)).states[-1]
        states.append(last)
    np.testing.assert_allclose(record.state, states, atol=2e-5)
    assert record.input[:, 1].max() > 0.005


def fine_kind(kind):
    """Straight lines between the finer samples, unless the input is held."""
    return Interpolation.held if kind is Interpolation.held else Interpolation.linear
