"""Values of options: durations, integers, flags, choices; each error names the key.

The checks of `sysid.arrays` are imported where they are used: ``--help`` should not wait for NumPy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from sysid.errors import UserError

if TYPE_CHECKING:
    from sysid.arrays import Choice

#: units of durations, and their lengths [s]
DURATION_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
MAX_RUN_SAMPLES = 20_000_000  # with their states, more samples do not fit into memory
MAX_OPTION = 2**63 - 1  # files hold integers of 64 bits
MAX_NAMES_LISTED = 50  # names that an error message lists
EXAMPLE_DURATION = "365d, or a number of samples such as 5000samples"
MIN_SIMILARITY = 0.5  # smallest similarity, from 0 to 1, at which a name is suggested for another


def choice(option: str, choices: type[Choice], value: Any) -> Choice:
    """Return the member of an enumeration that has this value.

    Raises
    ------
    ValueError
        If there is none. The message lists the values.
    """
    from sysid.arrays import member

    return member(choices, value, option, quoted=False)


def whole(option: str, value: Any, least: int, largest: int = MAX_OPTION) -> int:
    """Return a value that is an integer from `least` to `largest`, both included.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    from sysid.arrays import check_whole

    check_whole(value, least, option, below=largest + 1)
    return int(value)


def flag(option: str, value: Any) -> bool:
    """Return a value that is true or false.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    if not isinstance(value, bool):
        raise UserError(f"{option} must be true or false, got {value!r}")
    return value


def choose(key: str, value: Any, known: Sequence[str]) -> list[str]:
    """Return the known names that a configuration lists, in their own order.

    The value is a name, a list of names, or ``all``.

    Raises
    ------
    ValueError
        If a name is unknown, or none is listed. The message suggests the nearest name.
    """
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    names = [str(name) for name in (value if is_list else [value])]
    if names == ["all"]:
        return list(known)
    expected = f"{key} must be all, or some of {', '.join(known)}"
    if not names:
        raise UserError(f"{expected}, got none")
    for name in names:
        if name not in known:
            raise UserError(f"{expected}, got {name}{meant(name, known)}")
    return [name for name in known if name in names]


def seconds(
    duration: float | str, option: str = "duration", example: str = EXAMPLE_DURATION
) -> float:
    """Return the seconds of a duration: a number of seconds, or one with s, min, h, d or w.

    Raises
    ------
    ValueError
        If it is neither, or not positive.

    >>> seconds("1.5h"), seconds("365d"), seconds(900)
    (5400.0, 31536000.0, 900.0)
    """
    match = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*(s|min|h|d|w)?\s*", str(duration))
    value = math.nan
    if match:
        number, unit = match.groups()
        with suppress(ValueError):
            value = float(number) * DURATION_UNITS[unit or "s"]
    if not 0 < value < math.inf:
        raise UserError(
            f"{option} must be a positive number of seconds, or one with a unit "
            f"({', '.join(DURATION_UNITS)}) such as {example}, got {duration!r}"
        )
    return value


def samples_of(duration: float | str, dt: float) -> int:
    """Return the number of samples of a duration at a sampling time dt [s], with that at time zero.

    A duration may also be given as ``"n samples"``.

    Raises
    ------
    ValueError
        If `seconds` refuses the duration, or a run cannot hold this number of samples.

    >>> samples_of("1h", 900.0), samples_of("5000samples", 0.1)
    (5, 5000)
    """
    n_samples = _number_of_samples(duration, dt)
    if not 1 <= n_samples <= MAX_RUN_SAMPLES:
        raise UserError(
            f"duration {duration} is {n_samples:.3g} samples of {dt:g} s, expected 1 to "
            f"{MAX_RUN_SAMPLES}; write another duration, such as {seconds_text(35040 * dt)} "
            "(35040 samples) or 5000samples"
        )
    return int(n_samples)


def _number_of_samples(duration: float | str, dt: float) -> float:
    """Return the number of samples, without a check of its range."""
    match = re.fullmatch(r"\s*([0-9]+)\s*samples\s*", str(duration))
    if match:
        return float(match[1])
    return math.floor(seconds(duration) / dt * (1 + 1e-12)) + 1


def meant(name: str, known: Iterable[object]) -> str:
    """Return the end of a message: a question with the nearest valid name, or all names if few."""
    names = sorted({*map(str, known)})
    if not names:
        return ", expected none: nothing can be set there"
    near = get_close_matches(name, names, n=1, cutoff=MIN_SIMILARITY)
    if not near and "." in name:
        last_part = name.rpartition(".")[2]
        near = [candidate for candidate in names if candidate.rpartition(".")[2] == last_part]
    if near:
        return f"; did you mean {near[0]!r}?"
    if len(names) <= MAX_NAMES_LISTED:
        return f", expected one of {', '.join(names)}"
    return ""


def seconds_text(value: float) -> str:
    """Return a duration [s] as text in its most readable unit.

    >>> seconds_text(35040 * 900.0), seconds_text(46.72)
    ('365d', '46.72s')
    """
    chosen = "s"
    for unit in ("d", "h", "min", "s"):
        if value >= 2 * DURATION_UNITS[unit]:
            chosen = unit
            break
    return f"{value / DURATION_UNITS[chosen]:.4g}{chosen}"
