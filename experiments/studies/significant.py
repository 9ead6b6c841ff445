"""Measured numbers as text: significant digits that stay, powers of ten where zeros would not be read."""

import math

SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
LEAST, MOST = 1e-4, 1e6  # of numbers that are written without a power of ten


def significant(value: float, digits: int = 3) -> str:
    """A number with exactly so many significant digits, whole numbers with all of theirs; empty for nan.

    >>> significant(0.01), significant(2890.4), significant(0.0), significant(1.0, 2)
    ('0.0100', '2890', '0', '1.0')
    >>> significant(7e-7).encode("ascii", "namereplace").decode()
    '7.00\\\\N{MIDDLE DOT}10\\\\N{SUPERSCRIPT MINUS}\\\\N{SUPERSCRIPT SEVEN}'
    """
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if LEAST <= abs(float(f"{value:.{digits - 1}e}")) < MOST:
        return f"{value:.{max(0, digits - 1 - int(exponent))}f}"
    return f"{mantissa}\u00b710{str(int(exponent)).translate(SUPERSCRIPTS)}"
