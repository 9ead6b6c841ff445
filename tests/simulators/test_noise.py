"""Process noise: statistics, independence, prefixes."""

import numpy as np
import pytest

from simulators.noise import held_noise, random_streams


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
