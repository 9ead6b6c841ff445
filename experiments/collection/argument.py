"""The folder of a sweep as a plain argument of a command of Hydra."""

import re
from collections.abc import Sequence
from pathlib import Path

KEY = "folder"
#: options of Hydra that take the next argument
WITH_VALUE = {
    *("--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
    *("--info", "-i", "--experimental-rerun"),
}
MULTIRUN = {"--multirun", "-m"}


def with_folder(arguments: Sequence[str]) -> list[str]:
    """Arguments with the folder as an override, quoted so that any name of a folder is one text.

    A folder is an argument that no option takes, and that exists or holds no ``=``.

    Raises
    ------
    ValueError
        More than one folder, or a sweep of collections.

    >>> with_folder(["multirun/my sweep, 2", "figures=false"])
    ["folder='multirun/my sweep, 2'", 'figures=false']
    """
    if MULTIRUN & set(arguments):
        raise ValueError("sysid-collect collects one sweep at a time: leave out --multirun")
    previous = ["", *arguments]
    folders = [
        place for place, argument in enumerate(arguments) if previous[place] not in WITH_VALUE and is_folder(argument)
    ]
    keyed = [argument for argument in arguments if argument.partition("=")[0].lstrip("+") == KEY]
    if len(folders) + len(keyed) > 1:
        raise ValueError(f"expected one folder, got {', '.join([*(arguments[place] for place in folders), *keyed])}")
    return [f"{KEY}={quoted(a)}" if place in folders else a for place, a in enumerate(arguments)]


def is_folder(argument: str) -> bool:
    """Whether an argument is the name of a folder, and neither an option nor an override."""
    if argument.startswith("-"):
        return False
    return "=" not in argument or (not argument.startswith(f"{KEY}=") and Path(argument).exists())


def quoted(text: str) -> str:
    r"""A text as a value of an override, whatever it holds.

    Backslashes count only before a quote and at the end; ``${`` would start an interpolation.

    >>> print(quoted("it's"), quoted("a\\b"), quoted("${x}"))
    'it\'s' 'a\b' '\${x}'
    """
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return "'" + re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", escaped) + "'"
