"""Steps and staircases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.excitation.staircase import Staircase
from simulators.excitation.steps import Steps

DT = 0.1  # s


def rng():
    return np.random.default_rng(0)


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
    for time in (k * DT, float(f"{k * DT:.12g}")):
        u = Steps([[time, 2.0]]).signal(k + 2, DT, rng())
        assert (u[k - 1], u[k], u[k + 1]) == (0.0, 2.0, 2.0)


def test_default_is_the_unit_step_and_longer_steps_begin_with_shorter_ones():
    np.testing.assert_array_equal(Steps().signal(4, DT, rng()), np.ones(4))
    steps = Steps([[0.2, 1.0], [0.5, -1.0], [100.0, 3.0]])
    np.testing.assert_array_equal(steps.signal(3, DT, rng()), steps.signal(9, DT, rng())[:3])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        None,
        1.0,
        [1.0, 2.0],
        [[1.0]],
        [[1.0, 2.0, 3.0]],
        ["12"],
        [[-0.1, 1.0]],
        [[1.0, 1.0], [1.0, 2.0]],
        [[1.0, 1.0], [0.5, 2.0]],
        [[0.0, np.nan]],
        [[np.inf, 1.0]],
        [[0.0, True]],
    ],
)
def test_impossible_steps_are_refused(wrong):
    with pytest.raises(ValueError, match=r"Steps\(steps=.*expected pairs \[time in s, level\]"):
        Steps(wrong)


def test_two_steps_on_one_sample_are_refused():
    with pytest.raises(ValueError, match=r"steps at 0.31 and 0.39 s fall on one"):
        Steps([[0.1, 1.0], [0.31, 2.0], [0.39, 3.0]]).signal(10, DT, rng())


def test_staircase_up_and_down():
    u = Staircase(low=-1.0, high=2.0, levels=4, hold=0.3, offset=5.0).signal(25, DT, rng())
    expected = np.repeat([-1.0, 0.0, 1.0, 2.0, 1.0, 0.0, -1.0], 3)
    np.testing.assert_allclose(u, 5.0 + np.append(expected, [-1.0] * 4), rtol=0, atol=1e-14)


def test_staircase_up():
    u = Staircase(low=0.0, high=1.0, levels=3, down=False).signal(11, DT, rng())
    np.testing.assert_array_equal(u, [0, 0, 0, 0.5, 0.5, 0.5, 1, 1, 1, 1, 1])


@pytest.mark.parametrize("n", [9, 90, 100])
def test_stairs_share_the_record(n):
    u = Staircase().signal(n, DT, rng())
    levels = [-1.0, -0.5, 0.0, 0.5, 1.0, 0.5, 0.0, -0.5, -1.0]
    np.testing.assert_array_equal(u, np.append(np.repeat(levels, n // 9), [-1.0] * (n % 9)))


def test_a_longer_staircase_begins_with_the_shorter_one():
    stairs = Staircase(hold=0.4)
    np.testing.assert_array_equal(stairs.signal(13, DT, rng()), stairs.signal(80, DT, rng())[:13])


@pytest.mark.parametrize(
    "wrong", [{"low": 1.0}, {"low": np.nan}, {"levels": 1}, {"levels": 3.0}, {"down": 1}, {"hold": 0.0}, {"hold": "1"}]
)
def test_impossible_staircases_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"Staircase\({next(iter(wrong))}=.*expected.*change"):
        Staircase(**wrong)


def test_staircases_that_do_not_fit_the_samples_are_refused():
    with pytest.raises(ValueError, match=r"hold=0.25.*set hold to 0.2 or 0.3 s"):
        Staircase(hold=0.25).signal(100, DT, rng())
    with pytest.raises(ValueError, match=r"at least 9 samples, one per stair, got 8"):
        Staircase().signal(8, DT, rng())
    with pytest.raises(ValueError, match=r"at least 5 samples"):
        Staircase(down=False).signal(4, DT, rng())
