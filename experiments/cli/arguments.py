"""What stands on a command line: names of folders that become overrides, and overrides without
effect.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path


def mark_folder(arguments: Sequence[str]) -> list[str]:
    """Turn the name of a folder among the arguments into an override, quoted so that any name is
    one text.

    >>> mark_folder(["multirun/my sweep, 2", "figures=false"])
    ["folder='multirun/my sweep, 2'", 'figures=false']
    """
    pairs = zip(["", *arguments], arguments, strict=False)
    return [
        f"folder={quote(argument)}" if is_path(before, argument) else argument
        for before, argument in pairs
    ]


def is_path(before: str, argument: str) -> bool:
    """Whether an argument after another is a path: no option takes it, and it exists or holds no
    ``=``.
    """
    is_name = "=" not in argument or (
        Path(argument).exists() and not argument.startswith("folder=")
    )
    return is_name and not argument.startswith("-") and not before.startswith("-")


def quote(text: str) -> str:
    r"""Quote a text as the value of an override, whatever it holds.

    Backslashes count only before a quote and at the end; ``${`` would start an interpolation.

    >>> print(quote("it's"), quote("a\\b"), quote("${x}"))
    'it\'s' 'a\b' '\${x}'
    """
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return "'" + re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", escaped) + "'"


def mark_runs(arguments: Sequence[str]) -> list[str]:
    """Turn the names of folders among the arguments, those that no option takes, into one
    override.
    """
    pairs = list(zip(["", *arguments], arguments, strict=False))
    runs = [argument for before, argument in pairs if is_path(before, argument)]
    named = [f"runs=[{','.join(map(quote, runs))}]"] if runs else []
    return [
        *(argument for before, argument in pairs if not is_path(before, argument)),
        *named,
    ]


def without_effect(unused: Collection[str], overrides: Iterable[str]) -> list[str]:
    """Return the overrides that name unused keys.

    An unused name is a group with all that is in it, or a single value.

    >>> without_effect({"excitation", "duration"}, ["excitation.rms=2", "budget=50", "duration=30d"])
    ['excitation.rms=2', 'duration=30d']
    """
    given = {one: f"{one.lstrip('+~').split('=')[0].split('@')[0]}." for one in overrides}
    return [one for one, key in given.items() if any(key.startswith(f"{name}.") for name in unused)]
