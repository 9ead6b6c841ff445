"""Selection of the first stored points: forward and backward, against refits from scratch."""

import numpy as np
import pytest

from naive import CRITERIA, NaiveGP, backward_elimination, criterion_name, first_lowest
from sysid import (
    Adaptive,
    Backward,
    Forward,
    Identification,
    Model,
    Narx,
    OnlineGP,
    Settings,
    SquaredExponential,
)

KERNEL = SquaredExponential(1.3, [0.4, 0.9])
NOISE_VARIANCE = 0.01

each_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)


def nonlinear_samples(n):
    """Return n inputs with two features of different spread, and noisy nonlinear targets."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2)) * [1.0, 3.0]
    noise = 0.1 * rng.normal(size=n)
    return x, x[:, 0] + np.sin(x[:, 1]) + noise


def fill(selection, x, y, **rules):
    """Return a GP whose stored points the selection has chosen."""
    gp = OnlineGP(KERNEL, noise_variance=NOISE_VARIANCE, **rules)
    return selection.fill(gp, x, y)


def choose_forward(criterion, x, y, n_points):
    """Return the indices that forward selection chooses, by a refit for every candidate.

    Of scores that are equal up to rounding, the first one is chosen.
    """
    chosen = []
    for _ in range(n_points):
        model = NaiveGP(KERNEL, NOISE_VARIANCE, x[chosen], y[chosen])
        scores = np.full(len(y), -np.inf)
        for i in set(range(len(y))) - set(chosen):
            mean, latent = model.predict_one(x[i])
            noisy_variance = latent + NOISE_VARIANCE
            scores[i] = criterion.acceptance(y[i] - mean, noisy_variance, NOISE_VARIANCE)
        chosen.append(first_lowest(-scores))
    return chosen


@each_criterion
def test_forward_adds_the_sample_of_the_highest_score(criterion):
    x, y = nonlinear_samples(18)
    chosen = choose_forward(criterion, x, y, 8)
    gp = fill(Forward(), x, y, budget=8, reduction=criterion)
    np.testing.assert_array_equal(gp.inputs, x[chosen])
    np.testing.assert_array_equal(gp.targets, y[chosen])


def symmetric_samples():
    """Return a grid of points around the origin, and a function with the same symmetry."""
    step = 0.7
    steps = step * np.array([-2.0, -1.0, 1.0, 2.0])
    x = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    return x, np.cos(0.9 * x[:, 0]) * np.cos(0.9 * x[:, 1])


def repeated_samples(seed):
    """Return nonlinear samples, each of which occurs three times, in random order."""
    x, y = nonlinear_samples(12)
    order = np.random.default_rng(seed).permutation(np.repeat(np.arange(12), 3))
    return x[order], y[order]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(symmetric_samples(), id="symmetric"),
        *[pytest.param(repeated_samples(seed), id=f"repeated {seed}") for seed in range(4)],
    ],
)
@each_criterion
def test_forward_adds_the_first_of_the_samples_whose_scores_differ_by_rounding(criterion, samples):
    """The same formula in other arithmetic, compiled or not, chooses the same samples."""
    x, y = samples
    chosen = choose_forward(criterion, x, y, 12)
    gp = fill(Forward(), x, y, budget=12, reduction=criterion)
    np.testing.assert_array_equal(gp.sample_numbers[gp.age_order], chosen)


@each_criterion
def test_backward_removes_the_sample_of_the_lowest_score(criterion):
    x, y = nonlinear_samples(18)
    all_samples = NaiveGP(KERNEL, NOISE_VARIANCE, x, y)
    chosen = backward_elimination(criterion, all_samples, 11)
    gp = fill(Backward(), x, y, budget=11, reduction=criterion)
    assert sorted(gp.targets) == sorted(y[chosen])


@each_criterion
@pytest.mark.parametrize("selection", [Forward(), Backward()], ids=["forward", "backward"])
def test_all_samples_are_stored_if_there_is_room_even_duplicates(selection, criterion):
    x, y = nonlinear_samples(18)
    repeated_x = np.repeat(x[:4], 3, axis=0)
    repeated_y = np.repeat(y[:4], 3)
    gp = fill(selection, repeated_x, repeated_y, budget=12, reduction=criterion)
    assert sorted(gp.targets) == sorted(repeated_y)


@each_criterion
def test_backward_refuses_more_samples_than_its_limit(criterion):
    x, y = nonlinear_samples(18)
    with pytest.raises(ValueError, match="at most 10 samples"):
        fill(Backward(max_samples=10), x, y, budget=5, reduction=criterion)


@each_criterion
def test_forward_refuses_a_target_of_nan(criterion):
    x, y = nonlinear_samples(18)
    y[3] = np.nan
    with pytest.raises(ValueError, match="targets"):
        fill(Forward(), x, y, budget=5, reduction=criterion)


@pytest.mark.parametrize("learning", ["stored", "every_sample"])
@pytest.mark.parametrize("selection", [Forward(), Backward()], ids=["forward", "backward"])
def test_all_samples_have_been_seen_whichever_are_chosen(selection, learning):
    """The samples that follow get the next numbers, and the state can be restored."""
    x, y = nonlinear_samples(30)
    gp = fill(selection, x[:20], y[:20], budget=6, learning=learning)
    assert gp.n_seen == 20
    np.testing.assert_array_equal(gp.inputs, x[gp.sample_numbers])
    restored = OnlineGP(KERNEL, noise_variance=NOISE_VARIANCE, budget=6, learning=learning)
    restored.restore(gp.state(), [int(count) for count in gp._state.counts])
    restored.update_many(x[20:], y[20:])
    np.testing.assert_array_equal(restored.inputs, x[restored.sample_numbers])
    assert restored.sample_numbers.max() >= 20


@pytest.mark.parametrize("selection", [Forward(), Backward()], ids=["forward", "backward"])
def test_a_model_is_saved_and_resumed_whatever_selected_its_points(selection, tmp_path):
    """Its training continues, too: it has seen as many samples as the model."""
    narx = Narx({"y": 1}, {"u": 1})
    training = Adaptive(n_initial=60, restarts=1, interval=20)
    settings = Settings(budget=8, selection=selection, training=training)
    identification = Identification(narx, settings)
    x, y = nonlinear_samples(75)
    identification.observe_many(x, y)
    identification.model.save(tmp_path / "model.nc")
    resumed = Identification.resume(Model.load(tmp_path / "model.nc"))
    assert resumed.model.gp.n_seen == identification.adaptation.n_seen
    assert resumed.adaptation is not None


@pytest.mark.parametrize(
    ("numbers", "n_seen", "words"),
    [
        pytest.param([0, 1, 7], 7, "n_seen must be a whole number of at least 8", id="number"),
        pytest.param(None, 2, "n_seen must be a whole number of at least 3", id="samples"),
        pytest.param([0, 1], None, "numbers: ", id="lengths"),
    ],
)
def test_numbers_of_samples_that_were_not_seen_are_refused(numbers, n_seen, words):
    x, y = nonlinear_samples(3)
    gp = OnlineGP(KERNEL, noise_variance=NOISE_VARIANCE, budget=6)
    with pytest.raises(ValueError, match=words):
        gp.fit(x, y, numbers=numbers, n_seen=n_seen)
    assert gp.n_points == 0
