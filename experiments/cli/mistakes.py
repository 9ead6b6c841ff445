"""What to type instead: arguments, options and keys that do not exist, with the nearest that do."""

import importlib
import inspect
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.config import CONF, known_keys
from experiments.cli.ends import Refused
from experiments.cli.options import meant
from sysid.errors import UserError


def check_arguments(name: str, arguments: Sequence[str]) -> None:
    """Refuse what is no setting, and numbers and the like in the place of an option of a group.

    Raises
    ------
    Refused
        After the line that says what to type.
    """
    if told := _find_mistake(name, arguments):
        print(f"Error: {told}", file=sys.stderr)
        raise Refused(1)


def _find_mistake(name: str, arguments: Sequence[str]) -> str:
    """Say what to type instead of the first argument that is wrong; empty if none is."""
    flags, unknown = get_args_parser().parse_known_args(arguments)
    if unknown and unknown[0][:1] != "-":
        return f"{unknown[0]}: write flags, such as -m, before all settings"
    if unknown:
        key, _, value = unknown[0].lstrip("-").partition("=")
        value = value or next(
            (text for text in [*unknown[1:], *flags.overrides] if "=" not in text),
            "...",
        )
        return f"{unknown[0]}: settings are written without dashes, {key}={value}"
    for number, text in enumerate(flags.overrides):
        try:
            one = OverridesParser.create().parse_override(text)
        except HydraException as error:
            rest = flags.overrides[number:]  # the shell has split a list at its blanks
            end = (
                next((k for k, one in enumerate(rest) if one.endswith("]")), 0)
                if "=[" in text
                else 0
            )
            return _explain_argument(name, " ".join(rest[: end + 1]), error)
        group = one.key_or_group
        values = getattr(one._value, "list", one._value)
        names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        given = values if isinstance(values, list) else [values]
        wrong = [
            value
            for value in given
            if value is None or isinstance(value, bool | int | float | list)
        ]
        if wrong and names and not one.is_delete():
            return f"{one.input_line}: {group} must be one of {', '.join(names)}"
    return ""


def _explain_argument(name: str, text: str, error: Exception) -> str:
    """Say what to type instead of an argument that is no override."""
    key, equals, value = text.partition("=")
    if equals:  # a name with brackets, blanks, ...: in quotes of both kinds
        names = value[1:-1].split(",") if value[:1] == "[" and value[-1:] == "]" else [value]
        quoted = ",".join(f'"{one.strip()}"' for one in names)
        written = f"{key}=[{quoted}]" if value[:1] == "[" else f"{key}={quoted}"
        with suppress(HydraException):
            OverridesParser.create().parse_override(written)
            how = "put a value with brackets, blanks or signs into quotes of both kinds"
            return f"{text}: {how}, {shlex.quote(written)}"
        return f"{text}: {' '.join(str(error).split())}"
    known = known_keys(name)
    if "data" in known and Path(text).suffix.lower() in (".csv", ".txt", ".dat"):
        role = "estimation" if name == "identify" else "test"
        return f"{text}: to read a file write data=csv data.{role}={text} 'data.inputs=[...]' 'data.outputs=[...]'"
    if "model" in known and (text.endswith(".nc") or Path(text).is_dir()):
        return f"{text}: to name a model write model={Path(text) / 'model.nc' if Path(text).is_dir() else text}"
    return f"{text}: expected key=value or group=option; sysid-{name} --help lists them"


def explain_overrides(name: str, arguments: Sequence[str]) -> str:
    """Say what is wrong with overrides that cannot be composed; empty if it is no name."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    try:
        parsed = OverridesParser.create().parse_overrides(
            [text for text in arguments if text[0] != "-"]
        )
        overrides = [one for one in parsed if not one.key_or_group.startswith("hydra")]
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(name)
            loader = GlobalHydra.instance().config_loader()
            chosen = [
                str(one.input_line)
                for one in overrides
                if loader.get_group_options(one.key_or_group)
            ]
            with suppress(HydraException, OmegaConfBaseException):
                config = compose(name, overrides=chosen)
            return explain(Exception(""), overrides, config, loader)
    except Exception:  # Hydra has said what it knows
        return ""


def explain(
    error: Exception,
    overrides: Sequence[Override],
    config: DictConfig,
    loader: ConfigLoader,
) -> str:
    """Why a job cannot be composed, in one line with the nearest valid name if a name is wrong.

    Parameters
    ----------
    error : Exception
        What Hydra has raised.
    overrides : sequence of Override
        Of the job.
    config : DictConfig
        A configuration that can be composed: without the values, and if need be without the
        options.
    loader : ConfigLoader
    """
    for one in overrides:
        options = loader.get_group_options(one.key_or_group)
        if (
            options
            and isinstance(one._value, str)
            and not one.is_delete()
            and one._value not in options
        ):
            if one.key_or_group == "data" and Path(one._value).suffix:
                return (
                    f"data={one._value}: to read a file write data=csv data.estimation={one._value}"
                )
            return (
                f"unknown option {one._value!r} of {one.key_or_group}{meant(one._value, options)}"
            )
    known = {*_keys(config), *loader.list_groups("")}
    for one in overrides:
        key = one.key_or_group
        if not one.is_add() and key not in known and not loader.get_group_options(key):
            return f"unknown key {key!r}{_find_elsewhere(key) or meant(key, known)}"
    return " ".join(str(error).split())


def _find_elsewhere(key: str) -> str:
    """Which other options of its group, or else which commands, have a key; empty if none has."""
    group, _, rest = key.partition(".")
    options = sorted((CONF / group).glob("*.yaml")) if rest else []
    if having := [
        path.stem
        for path in options
        if OmegaConf.select(OmegaConf.load(path), rest, default=key) != key
    ]:
        return f" of the option that is chosen: write {group}={having[0]} as well (those with it: {', '.join(having)})"
    commands = [
        path.stem for path in sorted(CONF.glob("*.yaml")) if not rest and path.stem != "plant"
    ]
    others = [f"sysid-{name}" for name in commands if key in known_keys(name)]
    return f": it belongs to {', '.join(others)}" if others else ""


def check_added(overrides: Sequence[Override], config: DictConfig) -> None:
    """Refuse keys added with a plus that the class of their group does not take.

    Raises
    ------
    ValueError
        With the nearest valid name.
    """
    for one in overrides:
        group, _, name = one.key_or_group.rpartition(".")
        node = (
            OmegaConf.select(config, group)
            if group and (one.is_add() or one.is_force_add())
            else None
        )
        if not isinstance(node, DictConfig) or "_target_" not in node or name.startswith("_"):
            continue
        module, _, target = str(node["_target_"]).rpartition(".")
        try:
            taken = inspect.signature(getattr(importlib.import_module(module), target)).parameters
        except (
            ImportError,
            AttributeError,
            TypeError,
            ValueError,
        ):  # who makes the object will say so
            continue
        if name not in taken and not any(
            argument.kind is argument.VAR_KEYWORD for argument in taken.values()
        ):
            known = [f"{group}.{argument}" for argument in taken]
            raise UserError(f"unknown key {one.key_or_group!r}{meant(one.key_or_group, known)}")


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """All keys that the command line can set."""
    for name in config:
        if not prefix and name == "hydra":
            continue
        key = prefix + str(name)
        yield key
        with suppress(OmegaConfBaseException):
            if isinstance(config[name], DictConfig):
                yield from _keys(config[name], f"{key}.")
