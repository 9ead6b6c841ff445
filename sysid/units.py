"""Units of signals: which texts are the same unit, and the unit of a difference."""

from __future__ import annotations

import re
import unicodedata

#: Symbols of units whose digits are powers. H (henry) is none, so that H2O is not one.
UNITS_WITH_POWERS = (
    "m|g|s|A|K|mol|cd|rad|sr|Hz|Pa|bar|J|W|V|T|Wb|lm|lx|Bq|Gy|Nm|Wh"
    "|VA|Ohm|ohm|\u2126|\u03a9"
    "|L|l|t|h|min|d|deg|degC|degF|\u00b0|\u00b0C|\u00b0F|ft|in|lb|psi"
)
#: Symbols of units that are those of elements, too: N2 may be nitrogen as well as newton squared.
#: Their digits are powers after a prefix only.
UNITS_LIKE_ELEMENTS = "N|C|F|S"
UNIT_PREFIXES = "da|[YZEPTGMkhdcmnpfazyu\u00b5\u03bc]"  # of units, such as k in km
#: digits that are the power of what stands before them
POWER = re.compile(
    rf"(?:(?<=[\w)\]\u00b0])(?:\^|\*\*)(?P<marked>-?\d+)"
    rf"|(?<![^\W\d_])(?P<symbol>(?:{UNIT_PREFIXES})?(?:{UNITS_WITH_POWERS})"
    rf"|(?:{UNIT_PREFIXES})(?:{UNITS_LIKE_ELEMENTS}))(?P<plain>-?[1-9]))"
    rf"(?![\d.])"
)
#: symbol of an element with a digit, which may be a substance
SUBSTANCE = re.compile(rf"(?<![^\W\d_])(?:{UNITS_LIKE_ELEMENTS})\d")
#: digits above the line, and the same digits of a keyboard
RAISED = "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
LOWERED = str.maketrans(RAISED, "-0123456789")
RAISED_DIGITS = re.compile(f"[{RAISED}]+")


def is_same_unit(one: str, other: str) -> bool:
    """Return whether two texts are the same unit, up to spaces and other characters for the same.

    A digit that may belong to the name of a substance is no power.

    >>> is_same_unit("°C", "degC"), is_same_unit("µV", "uV"), is_same_unit("mV", "V")
    (True, True, False)
    >>> is_same_unit("m²", "m2"), is_same_unit("N²", "N^2"), is_same_unit("N²", "N2")
    (True, True, False)
    """
    return _plain_unit(one) == _plain_unit(other)


def unit_of_difference(unit: str) -> str:
    """Return the unit of a difference of two values in this unit: degrees Celsius become kelvin.

    >>> unit_of_difference("degC"), unit_of_difference("°C"), unit_of_difference("m")
    ('K', 'K', 'm')
    """
    return "K" if is_same_unit(str(unit), "degC") else unit


def squared_unit(unit: str) -> str:
    """Return the unit of the square of a quantity that has this unit.

    >>> squared_unit("K"), squared_unit("m/s"), squared_unit("N"), squared_unit("1")
    ('K2', '(m/s)^2', 'N^2', '1')
    """
    if unit in ("", "1"):
        return unit
    if POWER.fullmatch(f"{unit}2"):
        return f"{unit}2"
    return f"{unit}^2" if re.fullmatch(r"[^\W\d_]+", unit) else f"({unit})^2"


def _plain_unit(unit: str) -> str:
    """Return a unit without spaces, in the characters of a keyboard, with ``^`` before powers."""
    marked = RAISED_DIGITS.sub(lambda digits: "^" + digits[0].translate(LOWERED), unit)
    marked = POWER.sub(_mark_power, marked)
    plain = unicodedata.normalize("NFKC", marked).replace("°", "deg")
    return "".join(plain.replace("\N{GREEK SMALL LETTER MU}", "u").split())


def _mark_power(power: re.Match[str]) -> str:
    """Return the match of a power with ``^`` before its digits."""
    return f"{power['symbol'] or ''}^{power['marked'] or power['plain']}"
