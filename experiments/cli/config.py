"""The configuration files of the commands, and the keys that a command knows."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_omega_conf_dumper
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.options import meant
from sysid.errors import UserError

MAX_FILLED_ENTRIES = 10_000  # entries of a configuration whose interpolations are replaced
MAX_LEVELS = 60  # levels of such a configuration
CONF = Path(__file__).resolve().parents[2] / "conf"


def option_files(group: str) -> list[Path]:
    """Return the files of the options of a group, sorted by name; none if there is no such group.

    A group may be any text of a command line, such as one that is too long for the name of a file.
    """
    folder = CONF / group
    return sorted(folder.glob("*.yaml")) if os.path.isdir(folder) else []


def check_keys(config: DictConfig, name: str) -> None:
    """Refuse keys that a command does not know, which ``+key=value`` would add silently.

    The keys of a primary configuration of the user's own are not checked.

    Raises
    ------
    ValueError
        If there is an unknown key. The message names the nearest valid one.
    """
    known = known_keys(name)
    if not known:
        return
    for key in config:
        if key not in known and key != "hydra":
            raise UserError(f"unknown configuration key {key!r}{meant(str(key), known)}")


def to_yaml(settings: Mapping[str, Any]) -> str:
    """Write plain settings as a configuration: reading it gives the same values and types.

    Texts that look like interpolations are written as they are.
    """
    return yaml.dump(
        dict(settings),
        default_flow_style=False,
        allow_unicode=True,
        sort_keys=False,
        Dumper=get_omega_conf_dumper(),
    )


def from_yaml(text: str) -> Any:
    """Read a configuration as plain data, the inverse of `to_yaml`; interpolations stay texts.

    Raises
    ------
    ValueError
        If the text is no configuration.
    """
    try:
        return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"expected a configuration, got {' '.join(str(error).split())}") from error


def fill_in(content: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the interpolations of the toolbox's own configuration files in plain data.

    They refer to other keys of the same configuration. All other interpolations stay texts: nothing
    is resolved.

    Raises
    ------
    ValueError
        If the result has more than `MAX_FILLED_ENTRIES` entries, or refers to itself.
    """
    remaining = MAX_FILLED_ENTRIES

    def fill(value: Any, level: int) -> Any:
        nonlocal remaining
        remaining -= 1
        if remaining < 0 or level > MAX_LEVELS:
            raise UserError(
                f"expected a configuration of at most {MAX_FILLED_ENTRIES} entries in at most "
                f"{MAX_LEVELS} levels: its interpolations repeat parts of it; write the values"
            )
        if isinstance(value, Mapping):
            return {key: fill(entry, level + 1) for key, entry in value.items()}
        if isinstance(value, list):
            return [fill(entry, level + 1) for entry in value]
        if isinstance(value, str) and "${" in value and value in _interpolations_of_package():
            return fill(_refer(value, content), level + 1)
        return value

    return {str(key): fill(value, 0) for key, value in content.items()}


def _refer(interpolation: str, content: Mapping[str, Any]) -> Any:
    """Return what an interpolation such as ``${a.b}`` or ``${oc.select:a.b,3.0}`` refers to.

    It is null if there is nothing.
    """
    is_selection = interpolation.startswith("${oc.select:")
    path, _, default = interpolation.removeprefix("${oc.select:" if is_selection else "${")[
        :-1
    ].partition(",")
    node: Any = content
    for name in path.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return float(default) if node is None and default else node


@cache
def _interpolations_of_package() -> frozenset[str]:
    """Return all interpolations of the toolbox's own configuration files, but those of Hydra."""
    found: set[str] = set()
    for path in sorted(CONF.rglob("*.yaml")):
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        if isinstance(content, dict):
            content.pop("hydra", None)
            found.update(_interpolations(content))
    return frozenset(found)


def _interpolations(content: Any) -> Iterator[str]:
    """Yield the texts with interpolations in nested maps and lists."""
    if isinstance(content, str) and "${" in content:
        yield content
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for entry in content:
            yield from _interpolations(entry)


@cache
def known_keys(name: str) -> list[str]:
    """Return the keys of a command; none for a primary configuration of the user's own."""
    if not (CONF / f"{name}.yaml").is_file():
        return []
    primary = OmegaConf.load(CONF / f"{name}.yaml")
    assert isinstance(primary, DictConfig)
    known = {str(key) for key in primary} - {"defaults", "hydra"}
    for entry in primary.get("defaults", []):
        if isinstance(entry, str):  # another configuration file, such as plant
            known |= set(known_keys(entry))
            continue
        group = str(next(iter(entry)))
        if not group.startswith("override "):
            known.add(group.split("@")[0])
    return sorted(known)
