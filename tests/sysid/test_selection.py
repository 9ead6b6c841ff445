"""Dictionaries selected from a whole record, against a plain factorisation per candidate."""

import numpy as np
import pytest
from naive import CRITERIA, criterion_name

from sysid import OnlineGP, SquaredExponential
from sysid.criteria import MarginalLogLikelihood, MeanRelevance, PriorEntropy
from sysid.selection import Backward, Forward
from sysid.selection.forward import forward

KERNEL, NOISE = SquaredExponential(1.3, [0.4, 0.9]), 0.01


def samples(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    return x, np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + 0.1 * rng.normal(size=n)


def naive_forward(x, y, criterion, n_points):
    """Refit from scratch for every candidate of every step."""
    chosen = []
    for _ in range(n_points):
        k = KERNEL(x[chosen], x[chosen]) + NOISE * np.eye(len(chosen))
        scores = []
        for i in range(len(x)):
            row = KERNEL(x[[i]], x[chosen])[0]
            mean = row @ np.linalg.solve(k, y[chosen]) if chosen else 0.0
            latent = 1.3 - (row @ np.linalg.solve(k, row) if chosen else 0.0)
            scores.append(-np.inf if i in chosen else criterion.acceptance(y[i] - mean, latent + NOISE, NOISE))
        chosen.append(int(np.argmax(scores)))
    return chosen


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
def test_forward_adds_the_sample_of_highest_score(criterion):
    x, y = samples(25)
    expected = naive_forward(x, y, criterion, 10)
    assert forward(KERNEL, NOISE, x, y, criterion, 10).tolist() == expected


def test_forward_starts_the_dictionary_from_what_it_chose():
    x, y = samples(40)
    gp = Forward().fill(OnlineGP(KERNEL, noise_variance=NOISE, budget=12, reduction=MeanRelevance()), x, y)
    chosen = forward(KERNEL, NOISE, x, y, MeanRelevance(), 12)
    np.testing.assert_array_equal(gp.inputs, x[chosen])
    np.testing.assert_array_equal(gp.targets, y[chosen])


def test_all_samples_are_kept_if_there_is_room():
    x, y = samples(8)
    for selection in (Forward(), Backward()):
        gp = selection.fill(OnlineGP(KERNEL, noise_variance=NOISE, budget=12), x, y)
        assert sorted(gp.targets) == sorted(y)


def test_backward_removes_the_point_of_lowest_score():
    x, y = samples(20)
    gp = Backward().fill(OnlineGP(KERNEL, noise_variance=NOISE, budget=14, reduction=PriorEntropy()), x, y)
    left = list(range(20))
    while len(left) > 14:
        inverse = np.linalg.inv(KERNEL(x[left], x[left]) + NOISE * np.eye(len(left)))
        del left[int(np.argmax(np.diag(inverse)))]
    assert sorted(gp.targets) == sorted(y[left])


def test_duplicates_do_not_stop_forward():
    x, y = samples(10)
    x, y = np.repeat(x, 3, axis=0), np.repeat(y, 3)
    chosen = forward(KERNEL, NOISE, x, y, MarginalLogLikelihood(), 30)
    assert sorted(chosen) == list(range(30))


def test_backward_refuses_what_it_cannot_hold():
    x, y = samples(20)
    gp = OnlineGP(KERNEL, noise_variance=NOISE, budget=5)
    with pytest.raises(ValueError, match=r"at most 10 samples .* got 20; select forward"):
        Backward(max_samples=10).fill(gp, x, y)
    with pytest.raises(ValueError, match="max_samples must be a whole number"):
        Backward(max_samples=1.5)


def test_forward_refuses_what_is_not_finite():
    x, y = samples(6)
    y[3] = np.nan
    with pytest.raises(ValueError, match="targets: 1 of 6 values are not finite"):
        Forward().fill(OnlineGP(KERNEL, noise_variance=NOISE, budget=5), x, y)
