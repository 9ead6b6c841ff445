"""The one place where configuration becomes objects."""

from enum import Enum
from typing import Any, TypeVar

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

Choice = TypeVar("Choice", bound=Enum)


def build(config: DictConfig, group: str) -> Any:
    """Object that a group of the configuration describes by its ``_target_``.

    Raises
    ------
    ValueError
        What the object refuses, with the name of the group; also keys that it does not know.
    """
    return _instance(config[group], group)


def build_all(config: DictConfig, group: str) -> dict[str, Any]:
    """Objects that the entries of a group describe, by name.

    Raises
    ------
    ValueError
        As `build`.
    """
    return {str(name): _instance(entry, f"{group}.{name}") for name, entry in config[group].items()}


def build_one(description: Any, option: str) -> Any:
    """Object that an option describes by its ``_target_``.

    Raises
    ------
    ValueError
        As `build`, with the name of the option.
    """
    return _instance(description, option)


def _instance(description: Any, where: str) -> Any:
    try:
        return instantiate(description, _convert_="all")
    except InstantiationException as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ValueError(f"{where}: {cause}") from error


def choice(option: str, choices: type[Choice], value: Any) -> Choice:
    """Member of an enumeration by its value.

    Raises
    ------
    ValueError
        With the values there are.
    """
    try:
        return choices(value)
    except ValueError:
        names = ", ".join(member.value for member in choices)
        raise ValueError(f"{option} must be one of {names}, got {value!r}") from None
