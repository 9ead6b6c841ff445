"""Values of options: durations, whole numbers, flags, choices; each error names the key.

The checks of `sysid.arrays` are imported where they are used: ``--help`` shall not wait for NumPy.
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

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
MOST_SAMPLES = 20_000_000  # of one run: more do not fit into memory with their states
MOST_NAMES = 50  # that an error lists
EXAMPLE = "365d, or a number of samples such as 5000samples"


def choice(option: str, choices: type[Choice], value: Any) -> Choice:
    """Member of an enumeration by its value.

    Raises
    ------
    ValueError
        With the values there are.
    """
    from sysid.arrays import member

    return member(choices, value, option, quoted=False)


def whole(option: str, value: Any, least: int) -> int:
    """Whole number of at least so much.

    Raises
    ------
    ValueError
        Anything else.
    """
    from sysid.arrays import check_whole

    check_whole(value, least, option, below=math.inf)
    return int(value)


def flag(option: str, value: Any) -> bool:
    """Return a value that is true or false.

    Raises
    ------
    ValueError
        Anything else.
    """
    if not isinstance(value, bool):
        raise UserError(f"{option} must be true or false, got {value!r}")
    return value


def choose(key: str, value: Any, known: Sequence[str]) -> list[str]:
    """Names that a configuration lists, in the order of those known; ``all`` stands for all.

    Raises
    ------
    ValueError
        A name that does not exist, with the nearest that does, or none at all.
    """
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    names = [str(name) for name in (value if is_list else [value])]
    if names == ["all"]:
        return list(known)
    unknown = next((name for name in names if name not in known), None if names else "none")
    if unknown is not None:
        raise UserError(
            f"{key} must be all, or some of {', '.join(known)}, got {unknown}{meant(unknown, known)}"
        )
    return [name for name in known if name in names]


def seconds(duration: float | str, option: str = "duration", example: str = EXAMPLE) -> float:
    """Seconds of a number of seconds, or of a number with s, min, h, d or w.

    Raises
    ------
    ValueError
        If it is neither, or not positive.

    >>> seconds("1.5h"), seconds("365d"), seconds(900)
    (5400.0, 31536000.0, 900.0)
    """
    match = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*(s|min|h|d|w)?\s*", str(duration))
    value = math.nan
    with suppress(ValueError):
        value = float(match[1]) * UNITS[match[2] or "s"] if match else math.nan
    if not 0 < value < math.inf:
        expected = f"a positive number of seconds, or one with a unit ({', '.join(UNITS)}) such as {example}"
        raise UserError(f"{option} must be {expected}, got {duration!r}")
    return value


def samples_of(duration: float | str, dt: float) -> int:
    """Count the samples of a duration at a sampling time dt [s], that at time zero included.

    A duration may also be given as ``"n samples"``.

    Raises
    ------
    ValueError
        As `seconds`; more samples than a run can hold.

    >>> samples_of("1h", 900.0), samples_of("5000samples", 0.1)
    (5, 5000)
    """
    match = re.fullmatch(r"\s*([0-9]+)\s*samples\s*", str(duration))
    number = float(match[1]) if match else math.floor(seconds(duration) / dt * (1 + 1e-12)) + 1
    if not 1 <= number <= MOST_SAMPLES:
        advice = (
            f"write another one, such as {seconds_text(35040 * dt)} (35040 samples) or 5000samples"
        )
        many = f"{number:.3g} samples of {dt:g} s, expected 1 to {MOST_SAMPLES}"
        raise UserError(f"duration {duration} is {many}; {advice}")
    return int(number)


def meant(name: str, known: Iterable[object]) -> str:
    """Suggest the nearest valid name, as a question, or all names if they are few."""
    names = sorted({*map(str, known)})
    if not names:
        return ", expected none: nothing can be set there"
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    if not near and "." in name:  # the right end of a long name
        near = [other for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    if near:
        return f"; did you mean {near[0]!r}?"
    return f", expected one of {', '.join(names)}" if len(names) <= MOST_NAMES else ""


def seconds_text(value: float) -> str:
    """Duration [s] in its most readable unit.

    >>> seconds_text(35040 * 900.0), seconds_text(46.72)
    ('365d', '46.72s')
    """
    unit = next(
        (unit for unit in reversed(UNITS) if unit != "w" and value >= 2 * UNITS[unit]),
        "s",
    )
    return f"{value / UNITS[unit]:.4g}{unit}"
