"""The text of `--help`: an overview of the groups; options of a group and values on demand.

Words and units are those of the comments in the files of conf/.
"""

import re
from pathlib import Path

from omegaconf import OmegaConf

from experiments.cli.config import CONF, option_files
from experiments.cli.options import meant
from sysid.errors import UserError

# an entry of a list of defaults: group, option, and comment
DEFAULTS_ENTRY = re.compile(
    r"\s+- (?!_self_|override )([\w/]+)(?:@\S+)?: (\[.*\]|\S+)(?:  # (.*))?$"
)


def print_help(name: str, wanted: str | None = None) -> None:
    """Print the help of a command, of one of its groups, of an option, or of its values.

    Parameters
    ----------
    name : str
        Name of the command, such as ``identify``.
    wanted : str, optional
        A group, ``group=option``, or ``values``; None: an overview of the command.

    Raises
    ------
    ValueError
        There is no such group or option.
    """
    group, _, option = (wanted or "").partition("=")
    files = option_files(group)
    option_file = CONF / group / f"{option}.yaml"
    if not wanted:
        print(_overview(name))
    elif wanted == "values":
        print("\n".join(_values(name)))
    elif option and option_file in files:
        print(option_file.read_text(encoding="utf-8"), end="")
    elif files and not option:
        rows = [(path.stem, _first_comment(path)) for path in files]
        print(f"Options of {group} (sysid-{name} {group}=...):\n\n{_table(rows)}")
        print(f"\nsysid-{name} --help {group}={rows[0][0]} shows the values of one option.")
    elif files:
        options = [path.stem for path in files]
        raise UserError(f"there is no option {option!r} of {group}{meant(option, options)}")
    else:
        raise UserError(f"there is no group {group!r}; sysid-{name} --help lists them")


def _overview(name: str) -> str:
    """Return the overview of a command: its header, groups, values and footer."""
    texts = OmegaConf.select(OmegaConf.load(CONF / f"{name}.yaml"), "hydra.help") or {}
    header = str(texts.get("header", "")).strip()
    footer = str(texts.get("footer", "")).strip()
    groups = _groups(name)
    values = _values(name)
    if groups:
        keys = ", ".join(line.partition(":")[0] for line in values if re.match(r"\w", line))
        parts = [
            header,
            "Groups, with the option that is taken unless you choose another (group=option):\n\n"
            f"{_table(groups)}",
            f"Values: {keys}",
            f"sysid-{name} --help GROUP lists the options of a group, and --help GROUP=OPTION\n"
            "the values of an option with their units. --help values lists the values above.\n"
            "--cfg job prints the configuration without running it, and --version the version.",
            footer,
        ]
    else:
        parts = [header, "Values:\n\n" + "\n".join(values), footer]
    return "\n\n".join(part for part in parts if part)


def _groups(name: str) -> list[tuple[str, str]]:
    """Return the groups of a command, each with its default option and comment."""
    rows: dict[str, str] = {}
    for line in (CONF / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if re.match(r"  - plant\b", line):
            rows |= dict(_groups("plant"))
            continue
        entry = DEFAULTS_ENTRY.match(line)
        if entry and (CONF / entry[1]).is_dir():
            group, default, comment = entry.groups()
            shown_default = "" if default == "null" else f"{default}; "
            rows[group] = shown_default + (comment or "")
        elif line and not line.startswith((" ", "#", "defaults:")):
            break  # the list of defaults has ended
    return list(rows.items())


def _values(name: str) -> list[str]:
    """Return the lines of a command's configuration between its defaults and Hydra's settings."""
    lines = (CONF / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    first = len(lines)
    last = len(lines)
    for number, line in enumerate(lines):
        if re.match(r"(?!defaults:)\w", line):
            first = number
            break
    for number, line in enumerate(lines):
        if line.startswith("hydra:"):
            last = number
            break
    return [line for line in lines[first:last] if line.strip()]


def _first_comment(path: Path) -> str:
    """Return the comment in the first line of a file; empty if it has none."""
    first_line = path.read_text(encoding="utf-8").partition("\n")[0]
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""


def _table(rows: list[tuple[str, str]]) -> str:
    """Return rows of a name and its description, with aligned descriptions."""
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"  {name:<{width}}{words}".rstrip() for name, words in rows)
