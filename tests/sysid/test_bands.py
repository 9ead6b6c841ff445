"""Bands that are combined: those of several folds, and those of held-out and learned samples."""

import pytest

from sysid.simulation import bands

FOLDS = [
    ((1, 1.0), (3, 9.0), (10, 2.0)),
    ((1, 2.0), (3, 1.0)),
    ((1, 7.0), (3, 4.0), (10, 1.0)),
]


@pytest.mark.parametrize(
    ("folds", "expected"),
    [
        (FOLDS, ((1, 2.0), (3, 4.0))),
        (FOLDS[::2], ((1, 4.0), (3, 6.5), (10, 1.5))),
    ],
    ids=["three folds", "two folds"],
)
def test_bands_of_several_folds_are_their_medians_at_the_horizons_that_all_have(folds, expected):
    assert bands.typical(folds) == expected


def test_bands_between_those_of_held_out_and_of_learned_samples_are_their_means():
    held_out = ((1, 2.0), (10, 5.0))
    learned = ((1, 1.0), (10, 2.0))
    assert bands.between(held_out, learned) == ((1, 1.5), (10, 3.5))


def test_bands_of_the_same_samples_stay():
    factors = ((1, 1.25), (10, 3.0))
    assert bands.between(factors, factors) == factors
