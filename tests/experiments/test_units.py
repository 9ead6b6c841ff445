"""Units as figures and pages show them."""

import pytest

from experiments.drawing.tables import shown_unit
from sysid.units import is_same_unit, squared_unit


@pytest.mark.parametrize(
    ("unit", "shown"),
    [
        ("m3/h", "m\u00b3/h"),
        ("kg m-3", "kg m\u207b\u00b3"),
        ("W/m2K", "W/m\u00b2K"),
        ("W/(m2 K)", "W/(m\u00b2 K)"),
        ("m^2", "m\u00b2"),
        ("m**2", "m\u00b2"),
        ("(m/s)^2", "(m/s)\u00b2"),
        ("s^-1", "s\u207b\u00b9"),
        ("degC2", "degC\u00b2"),
        ("\u00b5m2", "\u00b5m\u00b2"),
        ("10^-3 m", "10\u207b\u00b3 m"),
        ("gCO2/m3", "gCO2/m\u00b3"),
        *((unit, unit) for unit in ("CO2", "mmH2O", "H2O", "NO2", "PM10", "PM2.5", "L100")),
        *((unit, unit) for unit in ("N2", "F2", "S8", "kg N2/h", "N2/C2")),
        ("N^2", "N\u00b2"),
        ("kN2", "kN\u00b2"),
        *((unit, unit) for unit in ("1e3 V", "10-3 m", "m^0.5", "%", "degF", "degC/min")),
    ],
)
def test_only_the_digits_of_powers_are_raised(unit, shown):
    assert shown_unit(unit) == shown


@pytest.mark.parametrize("unit", ["K", "V", "N", "m/s", "kg m-3", "%", "degC", "1", "N2"])
def test_a_squared_unit_is_shown_as_a_power(unit):
    squared = squared_unit(unit)
    assert not is_same_unit(squared, unit) or unit == "1"
    assert shown_unit(squared).endswith("\u00b2") or unit == "1"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("m\u00b2", "m^2", True),
        ("m**2", "m2", True),
        ("m s\u207b\u00b9", "m s-1", True),
        ("N\u00b2", "N**2", True),
        ("N\u00b2", "N2", False),
        ("N2", "N2", True),
        ("H2O", "H^2O", False),
    ],
)
def test_units_are_the_same_in_other_characters_only(one, other, same):
    assert is_same_unit(one, other) is same
