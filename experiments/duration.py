"""Durations as people write them."""

import re

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def seconds(duration: float | str) -> float:
    """Seconds of a number of seconds, or of a number with s, min, h, d or w.

    Raises
    ------
    ValueError
        If it is neither, or not positive.

    >>> seconds("1.5h"), seconds("365d"), seconds(900)
    (5400.0, 31536000.0, 900.0)
    """
    match = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*(s|min|h|d|w)?\s*", str(duration))
    try:
        value = float(match[1]) * UNITS[match[2] or "s"] if match else float("nan")
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise ValueError(
            f"duration must be a positive number of seconds, or one with a unit ({', '.join(UNITS)}) "
            f"such as 365d, got {duration!r}"
        )
    return value
