"""The reservoir: unbiased, seeded, causal, the same for every division into blocks."""

import numpy as np
import pytest
from scipy.stats import chisquare

from sysid.reservoir import Reservoir


def kept(n, size, seed, blocks=1):
    """Numbers of the samples that a reservoir keeps of n."""
    reservoir = Reservoir(size, 1, np.random.default_rng(seed))
    for part in np.array_split(np.arange(float(n)), blocks):
        reservoir.extend(part[:, None], part)
    np.testing.assert_array_equal(reservoir.inputs[:, 0], reservoir.targets)
    return reservoir.targets.astype(int)


@pytest.mark.parametrize(("n", "size"), [(40, 10), (11, 10), (25, 3)])
def test_every_sample_is_kept_with_the_same_probability(n, size):
    """Each of the n counts is binomial with probability m / n; the n counts of a reservoir sum to m."""
    repetitions = 3000
    counts = np.bincount(np.concatenate([kept(n, size, [5, r]) for r in range(repetitions)]), minlength=n)
    assert counts.sum() == repetitions * size
    scale = 1 - (size - 1) / (n - 1)  # m places without repetition vary less than m draws
    assert chisquare(np.mean(counts) + (counts - np.mean(counts)) / np.sqrt(scale)).pvalue > 1e-3


def test_pairs_are_kept_as_often_as_they_should_be():
    """``m (m - 1) / (n (n - 1))`` for neighbours: samples are not kept or dropped together."""
    repetitions, n, size = 4000, 20, 8
    together = np.mean([np.mean(np.diff(np.sort(kept(n, size, [6, r]))) == 1) for r in range(repetitions)])
    assert together * (size - 1) / (n - 1) == pytest.approx(size * (size - 1) / (n * (n - 1)), rel=0.03)


def test_no_sample_is_kept_twice_and_the_first_fill_the_places():
    for seed in range(50):
        numbers = kept(30, 8, seed)
        assert len(set(numbers)) == 8
        np.testing.assert_array_equal(kept(8, 8, seed), np.arange(8))
        np.testing.assert_array_equal(kept(3, 8, seed), np.arange(3))


def test_blocks_do_not_matter_and_seeds_do():
    whole = kept(200, 20, 1)
    for blocks in (2, 7, 200):
        np.testing.assert_array_equal(kept(200, 20, 1, blocks), whole)
    assert set(kept(200, 20, 2)) != set(whole)


def test_what_is_given_out_is_a_copy():
    reservoir = Reservoir(4, 1, np.random.default_rng(0))
    reservoir.extend(np.ones((2, 1)), np.ones(2))
    reservoir.inputs[:], reservoir.targets[:] = 5.0, 5.0
    assert reservoir.inputs.tolist() == [[1.0], [1.0]]
    assert reservoir.targets.tolist() == [1.0, 1.0]
    assert reservoir.n_seen == 2
