"""Bands of several parts that were held out."""

from sysid.simulation import bands


def test_bands_of_several_parts_are_their_medians_by_horizon_as_far_as_all_have_it():
    parts = [
        ((1, 1.0), (3, 9.0), (10, 2.0)),
        ((1, 2.0), (3, 1.0)),
        ((1, 7.0), (3, 4.0), (10, 1.0)),
    ]
    assert bands.typical(parts) == ((1, 2.0), (3, 4.0))
    assert bands.typical(parts[::2]) == ((1, 4.0), (3, 6.5), (10, 1.5))
