"""`sysid-collect`: the results of a sweep as one data set, tables and figures."""

import re
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import entry


def mark_folder(arguments: Sequence[str]) -> list[str]:
    """Turn the name of a folder among the arguments into an override, quoted so that any name is one text.

    >>> mark_folder(["multirun/my sweep, 2", "figures=false"])
    ["folder='multirun/my sweep, 2'", 'figures=false']
    """
    pairs = zip(["", *arguments], arguments, strict=False)
    return [f"folder={quote(argument)}" if is_path(before, argument) else argument for before, argument in pairs]


def is_path(before: str, argument: str) -> bool:
    """Whether an argument after another is a path: no option takes it, and it exists or holds no ``=``."""
    is_name = "=" not in argument or (Path(argument).exists() and not argument.startswith("folder="))
    return is_name and not argument.startswith("-") and not before.startswith("-")


def quote(text: str) -> str:
    r"""Quote a text as the value of an override, whatever it holds.

    Backslashes count only before a quote and at the end; ``${`` would start an interpolation.

    >>> print(quote("it's"), quote("a\\b"), quote("${x}"))
    'it\'s' 'a\b' '\${x}'
    """
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return "'" + re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", escaped) + "'"


main = entry("collect", "experiments.collection.run", mark_folder)

if __name__ == "__main__":
    main()
