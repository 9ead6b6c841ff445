"""Whole numbers of settings that no compiled function could take."""

import pytest

from simulators import Multisine, Servo, VanDerPol


@pytest.mark.parametrize("value", [10**20, 10**300, 2**63, 0, -1, 1e300, float("nan"), True])
def test_a_number_of_substeps_is_possible(value):
    with pytest.raises((ValueError, TypeError), match="substeps"):
        VanDerPol(substeps=value)


def test_a_number_beyond_64_bits_is_refused():
    with pytest.raises((ValueError, TypeError), match="group"):
        Multisine(rms=1.0, band=(0.1, 1.0), group=10**20)


@pytest.mark.parametrize("value", [10**20, -(10**20), 10**400])
def test_a_number_may_be_an_integer_of_up_to_64_bits(value):
    with pytest.raises((ValueError, TypeError), match="mass"):
        Servo(mass=value)
    assert Servo(mass=2).mass == 2
