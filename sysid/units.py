"""Units of signals: which texts are the same unit, and the unit of a difference."""

from __future__ import annotations

import unicodedata


def is_same_unit(one: str, other: str) -> bool:
    """Return whether two texts are the same unit, up to spaces and other characters for the same.

    >>> is_same_unit("°C", "degC"), is_same_unit("µV", "uV"), is_same_unit("mV", "V")
    (True, True, False)
    """
    return _plain_unit(one) == _plain_unit(other)


def unit_of_difference(unit: str) -> str:
    """Return the unit of a difference of two values in this unit: degrees Celsius become kelvin.

    >>> unit_of_difference("degC"), unit_of_difference("°C"), unit_of_difference("m")
    ('K', 'K', 'm')
    """
    return "K" if is_same_unit(str(unit), "degC") else unit


def _plain_unit(unit: str) -> str:
    """Return a unit without spaces, in the characters of a keyboard."""
    plain = unicodedata.normalize("NFKC", unit).replace("°", "deg")
    return "".join(plain.replace("\N{GREEK SMALL LETTER MU}", "u").split())
