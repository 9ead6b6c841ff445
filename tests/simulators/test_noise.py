"""Process noise: statistics, independence, prefixes."""

import numpy as np
import pytest

from simulators import simulate
from simulators.noise import Streams, held_noise, random_stream, random_streams
from simulators.systems.building import Building


def test_noise_has_the_given_standard_deviation():
    w = held_noise(random_streams(0).process, 40000, [2.0, 0.0, 5e-5])
    np.testing.assert_allclose(w.std(axis=0), [2.0, 0.0, 5e-5], rtol=0.02)
    np.testing.assert_allclose(w.mean(axis=0), 0.0, atol=0.04)
    assert abs(np.corrcoef(w[:, 0], w[:, 2])[0, 1]) < 0.02
    assert abs(np.corrcoef(w[1:, 0], w[:-1, 0])[0, 1]) < 0.02


def test_longer_path_begins_with_the_shorter_one():
    short, long = (held_noise(random_streams(1).process, n, [1.0, 2.0]) for n in (10, 25))
    np.testing.assert_array_equal(long[:10], short)


def test_streams_differ_and_repeat():
    draws = [stream.integers(2**62) for seed in (0, 1) for stream in random_streams(seed)]
    assert len(set(draws)) == 8
    assert draws[:4] == [stream.integers(2**62) for stream in random_streams(0)]


def test_streams_are_the_children_of_the_seed_in_order():
    children = [np.random.default_rng(child) for child in np.random.SeedSequence(7).spawn(4)]
    assert [g.random() for g in random_streams(7)] == [g.random() for g in children]


def test_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed=-1"):
        random_streams(-1)


def test_channel_keeps_its_draws_when_another_changes():
    one, other = (held_noise(random_streams(2).process, 20, std) for std in ([1.0, 2.0, 0.0], [1.0, 0.0, 5.0]))
    np.testing.assert_array_equal(one[:, 0], other[:, 0])
    assert not one[:, 2].any()
    assert not other[:, 1].any()
    assert other[:, 2].all()


def test_path_does_not_depend_on_sampling_or_substeps():
    """Standard deviations are those of the held values, so that the same seed gives the same path at any dt."""
    u = np.tile([0.0, 0.01], (20, 1))
    paths = [simulate(Building(), u, seed=4, **o).noise for o in ({}, {"dt": 60.0}, {"substeps": 90})]
    np.testing.assert_array_equal(paths[0], paths[1])
    np.testing.assert_array_equal(paths[0], paths[2])


def test_variance_of_a_held_path_grows_with_the_sampling_interval():
    """Held noise integrated over a time T has the variance T dt s^2: halving dt halves it."""
    T, n_runs = 8.0, 4000
    for dt in (1.0, 0.5):
        n = int(T / dt)
        total = dt * held_noise(random_streams(3).process, n * n_runs, [0.7]).reshape(n_runs, n).sum(axis=1)
        assert total.var() == pytest.approx(T * dt * 0.7**2, rel=5 * np.sqrt(2 / n_runs))


def test_single_stream_is_one_of_all():
    for name in Streams._fields:
        assert random_stream(9, name).random() == getattr(random_streams(9), name).random()


def test_unknown_stream_and_negative_seed_are_refused():
    with pytest.raises(ValueError, match=r"stream among process, weather, .*, got 'wind'; change the name"):
        random_stream(0, "wind")
    with pytest.raises(ValueError, match="seed=-3: expected an integer >= 0; change the seed"):
        random_stream(-3, "process")


@pytest.mark.parametrize("seed", [0.5, -1, True, "1"])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(ValueError, match="expected an integer >= 0"):
        random_stream(seed, "process")
