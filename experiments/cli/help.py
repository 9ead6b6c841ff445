"""What `--help` prints: one screen of groups; the options of a group, and the values, on demand.

Words and units are those of the comments in the files of conf/.
"""

import re
from pathlib import Path

from omegaconf import OmegaConf

from experiments.cli.config import CONF

ENTRY = re.compile(
    r"\s+- (?!_self_|override )([\w/]+)(?:@\S+)?: (\[.*\]|\S+)(?:  # (.*))?$"
)  # of a list of defaults


def print_help(name: str, wanted: str | None = None) -> None:
    """Print the help of a command: an overview, the options of a group, its own values, or one
    option.

    Parameters
    ----------
    name : str
        Of the command, ``identify`` for example.
    wanted : str, optional
        A group, ``group=option``, or ``values``.
    """
    group, _, option = (wanted or "").partition("=")
    folder = CONF / group
    if not wanted:
        print(_overview(name))
    elif wanted == "values":
        print("\n".join(_values(name)))
    elif option and (folder / f"{option}.yaml").is_file():
        print((folder / f"{option}.yaml").read_text(encoding="utf-8"), end="")
    elif any(folder.glob("*.yaml")) and not option:
        rows = [(path.stem, _first_words(path)) for path in sorted(folder.glob("*.yaml"))]
        print(f"Options of {group} (sysid-{name} {group}=...):\n\n{_table(rows)}")
        print(f"\nsysid-{name} --help {group}={rows[0][0]} shows the values of one.")
    else:
        print(f"There is no group {wanted!r}; sysid-{name} --help lists them.")


def _overview(name: str) -> str:
    shown = OmegaConf.select(OmegaConf.load(CONF / f"{name}.yaml"), "hydra.help") or {}
    groups = _groups(name)
    values = _values(name)
    parts = [str(shown.get("header", "")).strip()]
    if groups:
        names = ", ".join(line.partition(":")[0] for line in values if re.match(r"\w", line))
        taken = "Groups, with the option that is taken unless you choose another (group=option):"
        more = f"sysid-{name} --help GROUP lists its options, --help GROUP=OPTION their values and units, --help values"
        parts += [f"{taken}\n\n{_table(groups)}", f"Values: {names}"]
        parts.append(f"{more} those above;\n--cfg job prints the configuration that would run.")
    else:
        parts.append("Values:\n\n" + "\n".join(values))
    parts.append(str(shown.get("footer", "")).strip())
    return "\n\n".join(part for part in parts if part)


def _groups(name: str) -> list[tuple[str, str]]:
    """Every group of a command, and what is said of it."""
    rows: dict[str, str] = {}
    for line in (CONF / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if re.match(r"  - plant\b", line):
            rows |= dict(_groups("plant"))
        elif (found := ENTRY.match(line)) and (CONF / found[1]).is_dir():
            taken = "" if found[2] == "null" else f"{found[2]}; "
            rows[found[1]] = taken + (found[3] or "")
        elif line and not line.startswith((" ", "#", "defaults:")):
            break
    return list(rows.items())


def _values(name: str) -> list[str]:
    """Lines of the configuration of a command between its defaults and what is for Hydra."""
    lines = (CONF / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    first = next(
        (i for i, line in enumerate(lines) if re.match(r"(?!defaults:)\w", line)),
        len(lines),
    )
    last = next((i for i, line in enumerate(lines) if line.startswith("hydra:")), len(lines))
    return [line for line in lines[first:last] if line.strip()]


def _first_words(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _table(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"  {name:<{width}}{words}".rstrip() for name, words in rows)
