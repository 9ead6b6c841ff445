"""The configuration of a benchmark folder that somebody else may have sent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cli.config import from_yaml
from experiments.cli.described import check_description
from experiments.cli.primary import take_primary
from experiments.files.stated import MAX_CONFIGURATION_CHARACTERS, read_configuration
from sysid.errors import UserError

#: keys that only the command line sets: where files are written, whom the user trusts, and what
#: Hydra does
KEYS_OF_COMMAND_LINE = ("output", "figures", "trusted", "hydra", "defaults")


def take_configuration(arguments: list[str]) -> list[str]:
    """Return the arguments of `sysid-generate`; see `experiments.cli.primary.take_primary`."""
    return take_primary("generate", arguments, read_sent)


def read_sent(path: Path, trusted: Sequence[str]) -> dict[str, Any]:
    """Read the ``configuration.yaml`` of a benchmark folder as plain data.

    Raises
    ------
    ValueError
        If it is no such file: it is too long, repeats parts, has interpolations, describes objects
        of classes that are neither the toolbox's nor trusted, or sets keys of the command line.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(MAX_CONFIGURATION_CHARACTERS + 1)
    plain = read_configuration(text)
    if plain is None:
        raise UserError(
            f"{path}: expected the settings of a benchmark, plain YAML of at most "
            f"{MAX_CONFIGURATION_CHARACTERS} characters without aliases: make the file anew"
        )
    given = [key for key in KEYS_OF_COMMAND_LINE if key in plain]
    if given:
        raise UserError(f"{path}: remove the key {given[0]!r}: only the command line sets it")
    try:
        check_description(plain, trusted)  # before another reader sees the text
        content: dict[str, Any] = from_yaml(text)
        check_description(content, trusted)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return content
