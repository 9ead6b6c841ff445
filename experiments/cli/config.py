"""The configuration files of the commands, and the keys that a command knows."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.cli.options import meant
from sysid.errors import UserError

CONF = Path(__file__).resolve().parents[2] / "conf"


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
    """Write settings as a configuration, so that reading it gives the same values and types."""
    return OmegaConf.to_yaml(settings)


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
