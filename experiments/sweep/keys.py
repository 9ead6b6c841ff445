"""Keys and options that do not exist: which one it is, and what was probably meant."""

import difflib
import importlib
import inspect
from collections.abc import Iterable, Iterator, Sequence

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException


def explain(error: Exception, overrides: Sequence[Override], config: DictConfig, loader: ConfigLoader) -> str:
    """Why a job cannot be composed, in one line with the nearest valid name if a name is wrong.

    Parameters
    ----------
    error : Exception
        What Hydra has raised.
    overrides : sequence of Override
        Of the job.
    config : DictConfig
        A configuration that can be composed: without the values, and if need be without the options.
    loader : ConfigLoader
    """
    for one in overrides:
        options = loader.get_group_options(one.key_or_group)
        if options and isinstance(one._value, str) and not one.is_delete() and one._value not in options:
            return f"unknown option {one._value!r} of {one.key_or_group}{meant(one._value, options)}"
    known = {*_keys(config), *loader.list_groups("")}
    for one in overrides:
        if not one.is_add() and one.key_or_group not in known and not loader.get_group_options(one.key_or_group):
            return f"unknown key {one.key_or_group!r}{meant(one.key_or_group, known)}"
    return " ".join(str(error).split())


def check_added(overrides: Sequence[Override], config: DictConfig) -> None:
    """Refuse keys added with a plus that the class of their group does not take.

    Raises
    ------
    ValueError
        With the nearest valid name.
    """
    for one in overrides:
        if not (one.is_add() or one.is_force_add()):
            continue
        group, _, name = one.key_or_group.rpartition(".")
        node = OmegaConf.select(config, group) if group else None
        if not isinstance(node, DictConfig) or "_target_" not in node:
            continue
        taken = _arguments(str(node["_target_"]))
        if taken is not None and name not in taken and not name.startswith("_"):
            known = [f"{group}.{argument}" for argument in taken]
            raise ValueError(f"unknown key {one.key_or_group!r}{meant(one.key_or_group, known)}")


def _arguments(target: str) -> list[str] | None:
    """Names of the arguments of a class; None if it takes any, or cannot be looked up."""
    module, _, name = target.rpartition(".")
    try:
        parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return list(parameters)


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """All keys that the command line can set."""
    for name in config:
        if not prefix and name == "hydra":
            continue
        key = prefix + str(name)
        yield key
        try:
            node = config[name]
        except OmegaConfBaseException:
            continue
        if isinstance(node, DictConfig):
            yield from _keys(node, f"{key}.")


def meant(name: str, known: Iterable[str]) -> str:
    """The nearest valid name, as a question, or all of few."""
    names = sorted({*map(str, known)})
    if not names:
        return ", expected none: nothing can be set there"
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not near and "." in name:  # the right end of a long name
        near = [other for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    if near:
        return f"; did you mean {near[0]!r}?"
    return f", expected one of {', '.join(names)}" if len(names) <= 20 else ""
