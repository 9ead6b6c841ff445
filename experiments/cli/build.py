"""The one place where configuration becomes objects."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.cli.ends import is_mistake
from sysid.errors import UserError
from sysid.model.description import public_name

PACKAGES = ("sysid", "simulators", "experiments", "hydra_plugins")
#: modules of this package whose classes a configuration may name
OWN_MODULES = (
    "experiments.plant.lags",
    "experiments.plant.functions",
    "experiments.plant.physics",
    "experiments.generate.baselines",
)
#: where these classes were before each command had a folder: configurations of those times, and
#: files, name them so
FORMER_MODULES = {
    "experiments.automatic": "experiments.plant.lags",
    "experiments.function_data": "experiments.plant.functions",
    "experiments.physics": "experiments.plant.physics",
    "experiments.generation.baselines": "experiments.generate.baselines",
}
#: package that had a module for each class of baselines: such a name is refused with the present one
FORMER_BASELINES = "experiments.benchmark_folder.baselines."


def build(config: DictConfig, group: str) -> Any:
    """Object that a group of the configuration describes by its ``_target_``.

    Raises
    ------
    ValueError
        What the object refuses, with the name of the group; also keys that it does not know.
    """
    return build_one(config[group], group)


def build_all(config: DictConfig, group: str) -> dict[str, Any]:
    """Objects that the entries of a group describe, by name.

    Raises
    ------
    ValueError
        As `build`.
    """
    check_map(config, group)
    return {str(name): build_one(entry, f"{group}.{name}") for name, entry in config[group].items()}


def check_map(config: DictConfig, group: str) -> None:
    """Refuse a group that does not map names to settings.

    Raises
    ------
    ValueError
        With the name of the group.
    """
    if not isinstance(config[group], DictConfig):
        raise UserError(
            f"{group} must map names to settings with a _target_, or be {{}}, got {config[group]!r}"
        )


def build_one(description: Any, option: str) -> Any:
    """Object that an option describes by its ``_target_``.

    Raises
    ------
    ValueError
        As `build`, with the name of the option.
    """
    description = with_present_names(description)
    for target in targets_of(description).values():
        if (name := _name_now(target)) not in (None, target):
            raise UserError(
                f"{option}: _target_ must be {name}, the public name of that class, got {target}"
            )
    _check_scalars(description, option)
    try:
        return instantiate(description, _convert_="all")
    except InstantiationException as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if _arose_in_ours(cause) and not is_mistake(cause):
            raise cause from None
        raise UserError(f"{option}: {cause}") from error


def _arose_in_ours(error: BaseException) -> bool:
    """Whether code of the toolbox raised an error, not the call of a class with settings that it
    does not know.
    """
    module = ""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        trace = trace.tb_next
    return module.partition(".")[0] in PACKAGES


def _check_scalars(description: Any, option: str) -> None:
    """Refuse lists and maps where a class takes a number, a text or a flag, and other values where
    it takes a text.
    """
    if isinstance(description, list | ListConfig):
        for number, entry in enumerate(description):
            _check_scalars(entry, f"{option}.{number}")
    if not isinstance(description, Mapping):
        return
    module, _, name = str(description.get("_target_", "")).rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    types = {one.name: one.type for one in fields(kind)} if is_dataclass(kind) else {}
    for key, value in description.items():
        declared = types.get(str(key), "")
        wanted = (
            declared.__name__
            if isinstance(declared, type)
            else str(declared).removesuffix(" | None")
        )
        if wanted == "str" and not isinstance(value, str) and value is not None:
            raise UserError(f"{option}.{key} must be a text, got {value!r}")
        is_missing = value is None and "None" not in str(declared)
        if wanted in ("float", "int", "bool") and (
            is_missing or isinstance(value, str | Mapping | list | ListConfig)
        ):
            got = "null" if value is None else repr(value)
            raise UserError(
                f"{option}.{key} must be a {'flag' if wanted == 'bool' else 'number'}, got {got}"
            )
        _check_scalars(value, f"{option}.{key}")


def model_of(config: DictConfig) -> Path:
    """File of the model that a configuration names.

    Raises
    ------
    ValueError
        No name, or the folder of a run, with the name to type.
    """
    if not isinstance(config.model, str) or not config.model:
        raise UserError(
            f"name the file of the model, model=outputs/identify/.../model.nc, got model={config.model!r}"
        )
    path = Path(config.model)
    if path.is_dir():
        found = sorted(path.rglob("model.nc"))
        lacking = "there is no model.nc in it; name the folder of an identification"
        raise UserError(
            f"model={path} is a folder: {f'write model={found[0]}' if found else lacking}"
        )
    return path


def trusted_names(config: DictConfig) -> list[str]:
    """Modules and classes of the user's own that a model file may name, of the option ``trusted``.

    Raises
    ------
    ValueError
        Anything else than a list of texts.
    """
    names = config.trusted
    if not isinstance(names, ListConfig | list) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"trusted must be a list of modules and classes, such as [mine.mean], got {names!r}"
        )
    return list(names)


def targets_of(settings: Any, key: str = "") -> dict[str, str]:
    """Every ``_target_`` in settings, by the key of what it describes.

    >>> targets_of({"baseline": {"arx": {"_target_": "mine.Arx"}}, "budget": 3})
    {'baseline.arx': 'mine.Arx'}
    """
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        settings = dict(enumerate(settings))
    if not isinstance(settings, Mapping):
        return {}
    found = {key: str(settings["_target_"])} if "_target_" in settings else {}
    for name, entry in settings.items():
        found |= targets_of(entry, f"{key}.{name}".removeprefix("."))
    return found


def _present_name(target: str) -> str:
    """Dotted name of a class of this package today, by the one it has or had; any other name as it
    is.
    """
    module, _, name = target.rpartition(".")
    return f"{FORMER_MODULES[module]}.{name}" if module in FORMER_MODULES else target


def with_present_names(description: Any) -> Any:
    """Return a description in which every class of this package has the name that it has today."""
    if not any(_present_name(target) != target for target in targets_of(description).values()):
        return description
    if OmegaConf.is_config(description):
        description = OmegaConf.to_container(description, resolve=True)
    if isinstance(description, Mapping):
        renamed = {key: with_present_names(value) for key, value in description.items()}
        return (
            renamed | {"_target_": _present_name(str(description["_target_"]))}
            if "_target_" in renamed
            else renamed
        )
    if isinstance(description, Sequence) and not isinstance(description, str):
        return [with_present_names(value) for value in description]
    return description


def _name_now(target: str) -> str | None:
    """Name that a class of ours has now, by a name that it has or had; None: it is no class of
    ours.
    """
    target = _present_name(target)
    if target.startswith(FORMER_BASELINES):
        target = f"experiments.generate.baselines.{target.rpartition('.')[2]}"
    name = target if target.rpartition(".")[0] in OWN_MODULES else public_name(target) or ""
    module, _, last = name.rpartition(".")
    return name if module and isinstance(getattr(import_module(module), last, None), type) else None


def check_trusted(settings: Any, trusted: Sequence[str]) -> None:
    """Refuse settings that name anything else to be called than our classes and what is trusted.

    Parameters
    ----------
    settings
        A configuration that somebody else may have written.
    trusted : sequence of str
        Modules and classes of the user's own.

    Raises
    ------
    ValueError
        With the option that trusts it.
    """
    for key, target in targets_of(settings).items():
        module = target.rpartition(".")[0]
        if _name_now(target) is None and not {target, module} & set(trusted):
            refused = f"{key}: {target!r} is no class of the toolbox, and the configuration alone does not make it run"
            raise UserError(
                f"{refused}: trust it with +trusted=[{module}], if you know what it does"
            )
