"""A primary configuration that somebody else may have written: Hydra gets it as plain data.

Hydra would compose the file as it is: with interpolations, with settings of Hydra itself, which
name functions and folders, and with further files of its folder.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.cli.build import check_names
from sysid.errors import UserError

PRIMARY_NAME = "configuration_of_a_file"  # name under which Hydra finds such a configuration
ADVICE = "--config-dir FOLDER --config-name configuration"


def take_primary(
    command: str,
    arguments: Sequence[str],
    read: Callable[[Path, Sequence[str]], Mapping[str, Any]],
) -> list[str]:
    """Return the arguments of a command with a primary configuration that was read as plain data.

    Arguments that name no other primary configuration than the command's own are returned as they
    are.

    Parameters
    ----------
    command
        Name of the command, which is that of its own primary configuration.
    arguments
        Arguments of the command line.
    read
        Function that reads the file of a configuration, given the names that the user trusts, and
        refuses content that would do anything.

    Raises
    ------
    ValueError
        If there is no such file, or its content is refused.
    """
    flags, others = _flags_parser().parse_known_args(list(arguments))
    given = get_args_parser().parse_known_args(list(arguments))[0]
    asked = (given.config_path, given.config_name, given.config_dir)
    if (flags.config_path, flags.config_name, flags.config_dir) != asked:
        raise UserError(f"write the flags in full: {ADVICE}")
    if given.config_path is None and given.config_name in (None, command, f"{command}.yaml"):
        return list(arguments)
    name = f"{given.config_name or command}".removesuffix(".yaml") + ".yaml"
    path = _find(name, [given.config_path, given.config_dir])
    content = read(path, _trusted_of(given.overrides))
    ConfigStore.instance().store(name=PRIMARY_NAME, node=dict(content))
    return ["--config-name", PRIMARY_NAME, *others]


def _flags_parser() -> argparse.ArgumentParser:
    """Return a parser of the flags that name configurations."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-path", "-cp")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    return parser


def _find(name: str, folders: Sequence[str | None]) -> Path:
    """Return the file of a configuration, from the first of these folders that has it."""
    for folder in folders:
        if folder is not None and os.path.isfile(os.path.join(folder, name)):
            return Path(folder, name)
    named = [folder for folder in folders if folder is not None]
    raise UserError(f"there is no {name} in {named or 'a folder that is named'}: write {ADVICE}")


def _trusted_of(overrides: Sequence[str]) -> list[str]:
    """Return the names in the override `trusted` of a command line, the last if there are more."""
    trusted: Any = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.key_or_group == "trusted" and not override.is_delete():
            trusted = [] if override.is_sweep_override() else override.value()
    return check_names(trusted)
