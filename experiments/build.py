"""The one place where configuration becomes objects."""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig

from experiments.mistake import is_bug_of_ours
from sysid.model.description import public_name


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
    _check_targets(description, where)
    try:
        return instantiate(description, _convert_="all")
    except InstantiationException as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if is_bug_of_ours(cause) and not isinstance(cause, OSError):
            raise cause from None
        raise ValueError(f"{where}: {cause}") from error


def trusted_names(config: DictConfig) -> list[str]:
    """Modules and classes of the user's own that a model file may name, of the option ``trusted``.

    Raises
    ------
    ValueError
        Anything else than a list of texts.
    """
    names = config.trusted
    if not isinstance(names, ListConfig | list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"trusted must be a list of modules and classes, such as [mine.mean], got {names!r}")
    return list(names)


def _check_targets(description: Any, where: str) -> None:
    """Refuse a ``_target_`` that names a class of ours other than by its public name."""
    if isinstance(description, Mapping):
        target = str(description.get("_target_"))
        if (name := public_name(target)) not in (None, target):
            raise ValueError(f"{where}: _target_ must be {name}, the public name of that class, got {target}")
        description = list(description.values())
    if isinstance(description, Sequence) and not isinstance(description, str):
        for item in description:
            _check_targets(item, where)
