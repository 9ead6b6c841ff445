"""Arguments of a command line: folder names that become overrides, overrides without effect."""

import os
import re
from collections.abc import Collection, Iterable, Sequence


def mark_folder(arguments: Sequence[str]) -> list[str]:
    """Turn the name of a folder among the arguments into a quoted override.

    Several folders become a list, which the command refuses: none of them is left out silently.

    >>> mark_folder(["multirun/my sweep, 2", "figures=false"])
    ['figures=false', "folder='multirun/my sweep, 2'"]
    """
    others, folders = _without_paths(arguments)
    if len(folders) == 1:
        others.append(f"folder={folders[0]}")
    elif folders:
        others.append(f"folder=[{','.join(folders)}]")
    return others


def is_path(before: str, argument: str) -> bool:
    """Whether an argument is a path, given the argument before it.

    It is one if it is neither a flag nor the value of a flag, and exists or contains no ``=``.
    """
    if argument.startswith("-") or before.startswith("-"):
        return False
    if "=" not in argument:
        return True
    return os.path.exists(argument) and not argument.startswith("folder=")


def quote(text: str) -> str:
    r"""Quote any text as the value of an override.

    A backslash has a meaning only before a quote and at the end of the text; ``${`` would start an
    interpolation.

    >>> print(quote("it's"), quote("a\\b"), quote("${x}"))
    'it\'s' 'a\b' '\${x}'
    """

    def escape(found: re.Match[str]) -> str:
        doubled_backslashes = found[1] * 2
        return doubled_backslashes + (r"\'" if found[2] else "")

    escaped = re.sub(r"(\\*)('|$)", escape, text)
    return f"'{escape_interpolations(escaped)}'"


def escape_interpolations(text: str) -> str:
    r"""Return the text that a configuration resolves to this text, whatever it contains.

    >>> print(escape_interpolations("a ${b}"))
    a \${b}
    """
    return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", text)


def mark_runs(arguments: Sequence[str]) -> list[str]:
    """Turn the names of folders among the arguments into one override ``runs=[...]``, the last."""
    others, runs = _without_paths(arguments)
    if runs:
        others.append(f"runs=[{','.join(runs)}]")
    return others


def _without_paths(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that are no paths, and the quoted paths."""
    others = []
    paths = []
    before = ""
    for argument in arguments:
        if is_path(before, argument):
            paths.append(quote(argument))
        else:
            others.append(argument)
        before = argument
    return others, paths


def without_effect(unused: Collection[str], overrides: Iterable[str]) -> list[str]:
    """Return the overrides that name unused keys.

    An unused key is that of a value, or of a group and then of all values in it.

    >>> without_effect({"noise", "duration"}, ["noise.std=2", "budget=50", "duration=30d"])
    ['noise.std=2', 'duration=30d']
    """
    return [override for override in overrides if _is_within(_key_of(override), unused)]


def _key_of(override: str) -> str:
    """Return the key of an override, without its package and the signs that add or remove it."""
    return override.lstrip("+~").split("=")[0].split("@")[0]


def _is_within(key: str, groups: Collection[str]) -> bool:
    """Whether a key is one of these, or lies in one of them."""
    return any(f"{key}.".startswith(f"{group}.") for group in groups)
