"""Messages for arguments, options and keys that do not exist; each states what to type instead."""

import importlib
import inspect
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.config import CONF, known_keys, option_files
from experiments.cli.ends import Refused
from experiments.cli.options import meant
from sysid.errors import UserError

#: arguments of `sysid.identify` that have another form on the command line, and what to type
PYTHON_ARGUMENTS = {
    "purpose": (
        'purpose is an argument of sysid.identify in Python: for purpose="simulation" write '
        'training=free_run; for purpose="prediction" leave it out'
    ),
    "max_points": "write budget=<number of stored points>, or budget=auto",
}
TABLE_SUFFIXES = (".csv", ".txt", ".dat")  # suffixes of files that data=csv reads


def check_arguments(name: str, arguments: Sequence[str]) -> None:
    """Refuse arguments that are no settings, and numbers where a group needs an option.

    Raises
    ------
    Refused
        If an argument is wrong, after a line that says what to type.
    """
    message = _find_mistake(name, arguments)
    if message:
        print(f"Error: {message}", file=sys.stderr)
        raise Refused(1)


def _find_mistake(name: str, arguments: Sequence[str]) -> str:
    """Return a message about the first argument that is wrong; empty if none is."""
    flags, unknown = get_args_parser().parse_known_args(arguments)
    if unknown:
        return _explain_unknown(unknown, flags.overrides)
    for number, text in enumerate(flags.overrides):
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException as error:
            joined = _join_split_list(flags.overrides[number:])
            return _explain_argument(name, joined, error)
        message = _check_option(override)
        if message:
            return message
    return ""


def _explain_unknown(unknown: Sequence[str], overrides: Sequence[str]) -> str:
    """Return a message about arguments that Hydra's parser does not know."""
    first = unknown[0]
    if not first.startswith("-"):
        return f"{first}: write flags, such as -m, before all settings"
    key, _, value = first.lstrip("-").partition("=")
    if not value:
        following = [*unknown[1:], *overrides]
        value = next((text for text in following if "=" not in text), "...")
    return f"{first}: settings are written without dashes, {key}={value}"


def _join_split_list(arguments: Sequence[str]) -> str:
    """Return the first argument, joined up to ``]`` if it is a list that the shell has split."""
    if "=[" not in arguments[0]:
        return arguments[0]
    for number, text in enumerate(arguments):
        if text.endswith("]"):
            return " ".join(arguments[: number + 1])
    return arguments[0]


def _check_option(override: Override) -> str:
    """Return a message if an override gives a group anything but the name of an option."""
    group = override.key_or_group
    names = [path.stem for path in option_files(group)]
    if not names or override.is_delete():
        return ""
    given = getattr(override._value, "list", override._value)  # of a sweep: its list
    values = given if isinstance(given, list) else [given]
    for value in values:
        if value is None or isinstance(value, bool | int | float | list):
            return f"{override.input_line}: {group} must be one of {', '.join(names)}"
    return ""


def _explain_argument(name: str, text: str, error: Exception) -> str:
    """Return a message about an argument that is no override."""
    key, equals, value = text.partition("=")
    if equals:
        quoted = _quote_value(key, value)  # it may be a name with brackets, blanks, ...
        with suppress(HydraException):
            OverridesParser.create().parse_override(quoted)
            return (
                f"{text}: put a value with brackets, blanks or signs into quotes of both kinds, "
                f"{shlex.quote(quoted)}"
            )
        return f"{text}: {' '.join(str(error).split())}"
    known = known_keys(name)
    path = Path(text)
    if "data" in known and path.suffix.lower() in TABLE_SUFFIXES:
        role = "estimation" if name == "identify" else "test"
        return (
            f"{text}: to read a file write data=csv data.{role}={text} 'data.inputs=[...]' "
            "'data.outputs=[...]'"
        )
    is_folder = os.path.isdir(text)  # False, no error, if the text is too long for a name
    if "model" in known and (text.endswith(".nc") or is_folder):
        model_file = path / "model.nc" if is_folder else text
        return f"{text}: to name a model write model={model_file}"
    return f"{text}: expected key=value or group=option; sysid-{name} --help lists them"


def _quote_value(key: str, value: str) -> str:
    """Return an override whose value, or the entries of its list, are in quotes."""
    is_list = value.startswith("[")
    entries = [value]
    if is_list and value.endswith("]"):
        entries = value[1:-1].split(",")
    quoted = ",".join(f'"{entry.strip()}"' for entry in entries)
    return f"{key}=[{quoted}]" if is_list else f"{key}={quoted}"


def explain_overrides(name: str, arguments: Sequence[str]) -> str:
    """Return a message about overrides that cannot be composed; empty if no name is wrong."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    try:
        lines = [text for text in arguments if text[0] != "-"]
        parsed = OverridesParser.create().parse_overrides(lines)
        overrides = [entry for entry in parsed if not entry.key_or_group.startswith("hydra")]
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(name)
            loader = GlobalHydra.instance().config_loader()
            message = _explain_key_of_hydra(name, parsed, loader)
            if message:
                return message
            chosen = [
                str(override.input_line)
                for override in overrides
                if loader.get_group_options(override.key_or_group)
            ]
            with suppress(HydraException, OmegaConfBaseException):
                config = compose(name, overrides=chosen)
            return explain(Exception(""), overrides, config, loader, known_keys(name))
    except Exception:  # Hydra's own message is shown then
        return ""


def _explain_key_of_hydra(name: str, overrides: Sequence[Override], loader: ConfigLoader) -> str:
    """Return a message about an option or a key of Hydra, as of a launcher, that does not exist."""
    from hydra import compose

    of_hydra = [entry for entry in overrides if entry.key_or_group.startswith("hydra")]
    options = []
    for override in of_hydra:
        message = _explain_option(override, loader)
        if message:
            return message
        if loader.get_group_options(override.key_or_group):
            options.append(str(override.input_line))
    if not of_hydra:
        return ""
    config = compose(name, overrides=options, return_hydra_config=True)
    for override in of_hydra:
        key = override.key_or_group
        group, _, last = key.rpartition(".")
        node = OmegaConf.select(config, group) if group else None
        if isinstance(node, DictConfig) and last not in list(node) and not override.is_add():
            return f"unknown key {key!r}{meant(key, [f'{group}.{entry!s}' for entry in node])}"
    return ""


def explain(
    error: Exception,
    overrides: Sequence[Override],
    config: DictConfig,
    loader: ConfigLoader,
    of_command: Collection[str] = (),
) -> str:
    """Return one line that says why a job cannot be composed, with the nearest valid name if any.

    Parameters
    ----------
    error : Exception
        Error that Hydra has raised. Its text is returned if no name is wrong.
    overrides : sequence of Override
        Overrides of the job.
    config : DictConfig
        A configuration that can be composed: without the values, and if necessary without the
        options.
    loader : ConfigLoader
        Loader of the configuration.
    of_command : collection of str
        Keys and groups of the command; empty: any group may be chosen.
    """
    for override in overrides:
        message = _explain_option(override, loader) or _explain_group(override, loader, of_command)
        if message:
            return message
    known = {*_keys(config), *loader.list_groups("")}
    for override in overrides:
        key = override.key_or_group
        is_group = loader.get_group_options(key)
        if not override.is_add() and key not in known and not is_group:
            elsewhere = _explain_python_argument(key, config, known)
            if elsewhere:
                return f"unknown key {key!r}: {elsewhere}"
            return f"unknown key {key!r}{_find_elsewhere(key) or meant(key, known)}"
        message = "" if override.is_add() else _explain_entries(override, config)
        if message:
            return message
    return " ".join(str(error).split())


def _explain_python_argument(key: str, config: DictConfig, known: Collection[str]) -> str:
    """Return what to type for an argument of `sysid.identify` or of `sysid.CsvFiles`."""
    if key in PYTHON_ARGUMENTS and "training" in config:
        return PYTHON_ARGUMENTS[key]
    target = OmegaConf.select(config, "data._target_", default="")
    files: Any = OmegaConf.load(CONF / "data" / "csv.yaml")
    if "data" not in config or key not in files:
        return ""
    if target == files["_target_"]:
        return f"write data.{key}=..., which describes the files of the records"
    same = sorted(name for name in known if name.rpartition(".")[2] == key)
    question = f"did you mean {' or '.join(map(repr, same))}? " if same else ""
    return f"{question}to read files of records write data=csv data.{key}=..."


def _explain_option(override: Override, loader: ConfigLoader) -> str:
    """Return a message if an override chooses an option that its group does not have."""
    group = override.key_or_group
    option = override._value
    options = loader.get_group_options(group)
    if not options or not isinstance(option, str) or override.is_delete() or option in options:
        return ""
    if group == "data" and Path(option).suffix:
        return f"data={option}: to read a file write data=csv data.estimation={option}"
    return f"unknown option {option!r} of {group}{meant(option, options)}"


def _explain_group(override: Override, loader: ConfigLoader, of_command: Collection[str]) -> str:
    """Return a message if an override chooses an option of a group that the command lacks."""
    group = override.key_or_group
    is_chosen = not override.is_add() and not override.is_delete() and override.package is None
    if not (of_command and is_chosen and loader.get_group_options(group)) or group in of_command:
        return ""
    return f"this command has no group {group!r}{_find_elsewhere(group)}"


def _explain_entries(override: Override, config: DictConfig) -> str:
    """Return a message if the value of an override is a map with a name that its key lacks."""
    key = override.key_or_group
    node = OmegaConf.select(config, key)
    if not isinstance(node, DictConfig) or not isinstance(override._value, dict):
        return ""
    for name in map(str, override._value):
        if name not in node:
            unknown = f"{key}.{name}"
            entries = [f"{key}.{entry!s}" for entry in node]
            return f"unknown key {unknown!r}{meant(unknown, entries)}"
    return ""


def _find_elsewhere(key: str) -> str:
    """Return the end of a message that names other options or commands with a key.

    It is empty if there are none.

    The options are those of the group of the key.
    """
    group, _, rest = key.partition(".")
    if rest:
        options = [path.stem for path in option_files(group) if _has_key(path, rest)]
        if options:
            return (
                f" of the option that is chosen: write {group}={options[0]} as well (options with "
                f"this key: {', '.join(options)})"
            )
        return ""
    names = [path.stem for path in sorted(CONF.glob("*.yaml")) if path.stem != "plant"]
    commands = [f"sysid-{name}" for name in names if key in known_keys(name)]
    return f": it belongs to {', '.join(commands)}" if commands else ""


def _has_key(path: Path, key: str) -> bool:
    """Whether the file of an option has a key, whose value may refer to other files."""
    node: Any = OmegaConf.to_container(OmegaConf.load(path))
    for name in key.split("."):
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return True


def check_added(overrides: Sequence[Override], config: DictConfig) -> None:
    """Refuse keys added with a plus that the class of their group does not take.

    Raises
    ------
    ValueError
        If there is such a key. The message names the nearest valid one.
    """
    for override in overrides:
        key = override.key_or_group
        group, _, name = key.rpartition(".")
        if not group or not (override.is_add() or override.is_force_add()):
            continue
        node = OmegaConf.select(config, group)
        if not isinstance(node, DictConfig) or "_target_" not in node or name.startswith("_"):
            continue
        taken = _parameters_of(str(node["_target_"]))
        if taken is None or name in taken:
            continue
        takes_any = any(argument.kind is argument.VAR_KEYWORD for argument in taken.values())
        if not takes_any:
            known = [f"{group}.{argument}" for argument in taken]
            raise UserError(f"unknown key {key!r}{meant(key, known)}")


def _parameters_of(target: str) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a class by its dotted name; None if they cannot be found.

    The error is reported later, when the object is built.
    """
    module, _, name = target.rpartition(".")
    try:
        return inspect.signature(getattr(importlib.import_module(module), name)).parameters
    except (ImportError, AttributeError, TypeError, ValueError):
        return None


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield all keys that the command line can set."""
    for name in config:
        if not prefix and name == "hydra":
            continue
        key = prefix + str(name)
        if not str(name).startswith("_"):  # names of classes and the like are not suggested
            yield key
        with suppress(OmegaConfBaseException):
            if isinstance(config[name], DictConfig):
                yield from _keys(config[name], f"{key}.")
