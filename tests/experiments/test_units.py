"""Units as figures and pages show them."""

import pytest

from experiments.drawing.tables import shown_unit


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
        *((unit, unit) for unit in ("1e3 V", "10-3 m", "m^0.5", "%", "degF", "degC/min")),
    ],
)
def test_only_the_digits_of_powers_are_raised(unit, shown):
    assert shown_unit(unit) == shown
