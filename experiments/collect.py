"""`sysid-collect`: the results of a sweep as one data set, tables and figures."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import entry

#: options of Hydra that take the next argument
WITH_VALUE = {
    *("--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
    *("--info", "-i", "--experimental-rerun"),
}


def main() -> None:
    """Collect the sweep whose folder is the first argument."""
    try:
        sys.argv[1:] = mark_folder(sys.argv[1:])
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    entry("collect", "experiments.collection.run")()


def mark_folder(arguments: Sequence[str]) -> list[str]:
    """Turn the name of a folder among the arguments into an override, quoted so that any name is one text.

    A folder is an argument that no option takes, and that exists or holds no ``=``.

    Raises
    ------
    ValueError
        More than one folder, or a sweep of collections.

    >>> mark_folder(["multirun/my sweep, 2", "figures=false"])
    ["folder='multirun/my sweep, 2'", 'figures=false']
    """
    if {"--multirun", "-m"} & set(arguments):
        raise ValueError("sysid-collect collects one sweep at a time: leave out --multirun")
    marked, folders = [], []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        is_key = argument.partition("=")[0].lstrip("+") == "folder"
        is_name = not argument.startswith("-") and ("=" not in argument or Path(argument).exists())
        is_folder = is_name and not is_key and before not in WITH_VALUE
        folders += [argument] if is_folder or is_key else []
        marked.append(f"folder={quote(argument)}" if is_folder else argument)
    if len(folders) > 1:
        raise ValueError(f"expected one folder, got {', '.join(folders)}")
    return marked


def quote(text: str) -> str:
    r"""Quote a text as the value of an override, whatever it holds.

    Backslashes count only before a quote and at the end; ``${`` would start an interpolation.

    >>> print(quote("it's"), quote("a\\b"), quote("${x}"))
    'it\'s' 'a\b' '\${x}'
    """
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return "'" + re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", escaped) + "'"


if __name__ == "__main__":
    main()
