"""The one place where configuration becomes objects."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra._internal.utils import _locate
from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.cli.ends import is_mistake
from sysid.errors import UserError
from sysid.model.description import public_name

#: top-level packages of the toolbox
TOOLBOX_PACKAGES = ("sysid", "simulators", "experiments", "hydra_plugins")
#: modules of this package whose classes a configuration may name
NAMEABLE_MODULES = (
    "experiments.plant.designed",
    "experiments.plant.predictive",
    "experiments.plant.lags",
    "experiments.plant.functions",
    "experiments.plant.physics",
    "experiments.generate.baselines",
)
#: present modules by their former names: old configurations and files name classes in these
FORMER_MODULES = {
    "experiments.automatic": "experiments.plant.lags",
    "experiments.function_data": "experiments.plant.functions",
    "experiments.physics": "experiments.plant.physics",
    "experiments.generation.baselines": "experiments.generate.baselines",
}
#: former package, a module per baseline: its names are refused with the present name
FORMER_BASELINES = "experiments.benchmark_folder.baselines."


def build(config: DictConfig, group: str) -> Any:
    """Return the object that a group of the configuration describes by its ``_target_``.

    Raises
    ------
    ValueError
        If the object refuses its settings, or does not know one of them. The message names the
        group.
    """
    return build_one(config[group], group)


def build_all(config: DictConfig, group: str) -> dict[str, Any]:
    """Return the objects that the entries of a group describe, by name; null leaves an entry out.

    Raises
    ------
    ValueError
        As `build`.
    """
    check_map(config, group)
    return {
        str(name): build_one(entry, f"{group}.{name}")
        for name, entry in config[group].items()
        if entry is not None
    }


def check_map(config: DictConfig, group: str) -> None:
    """Raise ValueError unless a group maps names to settings."""
    if not isinstance(config[group], DictConfig):
        raise UserError(
            f"{group} must map names to settings with a _target_, or be {{}}, got {config[group]!r}"
        )


def build_one(description: Any, option: str) -> Any:
    """Return the object that an option describes by its ``_target_``.

    The description is resolved once and becomes plain data before anything is called: a text of the
    result that looks like an interpolation stays a text. It belongs to the user, and may name any
    class or function. For a description that somebody else may have written, call
    `experiments.cli.described.check_description` before.

    Raises
    ------
    ValueError
        As `build`. The message names the option.
    """
    description = with_present_names(to_plain(description))
    for target in targets_of(description).values():
        public = name_now(target)
        if public is not None and public != target:
            raise UserError(
                f"{option}: _target_ must be {public}, the public name of that class, got {target}"
            )
    _check_scalars(description, option)
    if not isinstance(description, Mapping | list | None):
        raise UserError(
            f"{option} must be settings with a _target_, or an option of this group, "
            f"got {description!r}"
        )
    try:
        return _construct(description)
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        is_bug = _was_raised_in_toolbox(cause) and not is_mistake(cause)
        if is_bug:
            raise cause from None
        raise UserError(f"{option}: {cause}") from error


def to_plain(description: Any) -> Any:
    """Return a part of the configuration as resolved plain data; other data as they are.

    Raises
    ------
    omegaconf.errors.OmegaConfBaseException
        If an interpolation refers to nothing, or a mandatory value is missing.
    """
    if not OmegaConf.is_config(description):
        return description
    return OmegaConf.to_container(
        description, resolve=True, throw_on_missing=True, enum_to_str=False
    )


def _construct(description: Any) -> Any:
    """Return plain data in which every map with a ``_target_`` is the object that it describes.

    The keys ``_args_``, ``_partial_`` and ``_recursive_`` have their meaning in Hydra. The key
    ``_convert_`` has no effect, because all data are plain.
    """
    if isinstance(description, list):
        return [_construct(entry) for entry in description]
    if not isinstance(description, Mapping):
        return description
    settings = dict(description)
    if "_target_" not in settings:
        return {key: _construct(value) for key, value in settings.items()}
    target = settings.pop("_target_")
    is_partial = settings.pop("_partial_", False)
    is_recursive = settings.pop("_recursive_", True)
    settings.pop("_convert_", None)
    function = _locate(target) if isinstance(target, str) else target
    if not callable(function):
        raise UserError(f"_target_ must name a class or a function, got {target!r}")
    if is_recursive:
        settings = {key: _construct(value) for key, value in settings.items()}
    arguments = settings.pop("_args_", ())
    if is_partial:
        return partial(function, *arguments, **settings)
    return function(*arguments, **settings)


def _was_raised_in_toolbox(error: BaseException) -> bool:
    """Whether code of the toolbox raised an error.

    The call of a class with unknown settings fails outside: in this module, which makes the call.
    """
    module = ""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        trace = trace.tb_next
    return module != __name__ and module.partition(".")[0] in TOOLBOX_PACKAGES


def _check_scalars(description: Any, option: str) -> None:
    """Raise UserError for settings whose kind is not that of the class's field.

    Refused are lists, maps, texts and null where a class takes a number or a flag, values that are
    no text where it takes a text, and integers that no float can hold.
    """
    if isinstance(description, list | ListConfig):
        for number, entry in enumerate(description):
            _check_scalar(entry, "", f"{option}.{number}")
            _check_scalars(entry, f"{option}.{number}")
    if not isinstance(description, Mapping):
        return
    module, _, name = str(description.get("_target_", "")).rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    types: dict[str, Any] = {}
    if is_dataclass(kind):
        types = {field.name: field.type for field in fields(kind)}
    for key, value in description.items():
        _check_scalar(value, types.get(str(key), ""), f"{option}.{key}")
        _check_scalars(value, f"{option}.{key}")


def _check_scalar(value: Any, declared: Any, option: str) -> None:
    """Raise UserError if a value is not of the declared type of its field, a type or its text."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise UserError(f"{option} must be a number of at most 308 digits, got {len(str(value))}")
    wanted = str(declared).removesuffix(" | None")
    if isinstance(declared, type):
        wanted = declared.__name__
    if wanted == "str" and not isinstance(value, str) and value is not None:
        raise UserError(f"{option} must be a text, got {value!r}")
    if wanted not in ("float", "int", "bool"):
        return
    is_missing = value is None and "None" not in str(declared)
    if is_missing or isinstance(value, str | Mapping | list | ListConfig):
        expected = "flag" if wanted == "bool" else "number"
        got = "null" if value is None else repr(value)
        raise UserError(f"{option} must be a {expected}, got {got}")


def model_of(config: DictConfig) -> Path:
    """Return the file of the model that a configuration names.

    Raises
    ------
    ValueError
        If it names no file, one that does not exist, or the folder of a run. The message says what
        to type.
    """
    if not isinstance(config.model, str) or not config.model:
        raise UserError(
            "name the file of the model, model=outputs/identify/.../model.nc, got "
            f"model={config.model!r}"
        )
    path = Path(config.model)
    if path.is_dir():
        models = sorted(path.rglob("model.nc"))
        if models:
            advice = f"write model={models[0]}"
        else:
            advice = "there is no model.nc in it; name the folder of an identification"
        raise UserError(f"model={path} is a folder: {advice}")
    if not path.exists():
        latest = max(Path("outputs/identify").glob("*/model.nc"), default=None)
        advice = "name the model.nc in the folder of an identification, outputs/identify/..."
        if latest is not None:
            advice = f"the latest model here is model={latest}"
        raise UserError(f"model={path}: there is no such file; {advice}")
    return path


def trusted_names(config: DictConfig) -> list[str]:
    """Return the user's own modules and classes that a model file may name: option ``trusted``.

    Raises
    ------
    ValueError
        If the option is anything but a list of texts.
    """
    return check_names(config.trusted)


def check_names(names: Any) -> list[str]:
    """Return the names of the option ``trusted``.

    Raises
    ------
    ValueError
        If they are anything but a list of texts.
    """
    if not isinstance(names, ListConfig | list) or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"trusted must be a list of modules and classes, such as [mine.mean], got {names!r}"
        )
    return [str(name) for name in names]


def targets_of(settings: Any, key: str = "") -> dict[str, str]:
    """Return every ``_target_`` in settings, by the key of the object that it describes.

    >>> targets_of({"baseline": {"arx": {"_target_": "mine.Arx"}}, "budget": 3})
    {'baseline.arx': 'mine.Arx'}
    """
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        settings = dict(enumerate(settings))
    if not isinstance(settings, Mapping):
        return {}
    targets = {key: str(settings["_target_"])} if "_target_" in settings else {}
    for name, entry in settings.items():
        targets |= targets_of(entry, f"{key}.{name}".removeprefix("."))
    return targets


def present_name(target: str) -> str:
    """Return the present dotted name of a class by its present or former one.

    Names that this package never had are returned as they are.
    """
    module, _, name = target.rpartition(".")
    return f"{FORMER_MODULES[module]}.{name}" if module in FORMER_MODULES else target


def with_present_names(description: Any) -> Any:
    """Return plain data in which every class of this package has its present name."""
    has_former_name = any(
        present_name(target) != target for target in targets_of(description).values()
    )
    if not has_former_name:
        return description
    if isinstance(description, Mapping):
        renamed = {key: with_present_names(value) for key, value in description.items()}
        if "_target_" in renamed:
            renamed["_target_"] = present_name(str(description["_target_"]))
        return renamed
    if isinstance(description, Sequence) and not isinstance(description, str):
        return [with_present_names(value) for value in description]
    return description


def name_now(target: str) -> str | None:
    """Return the public name of a class of the toolbox, by a present or former name.

    None: it is no class of the toolbox.
    """
    target = present_name(target)
    if target.startswith(FORMER_BASELINES):
        target = f"experiments.generate.baselines.{target.rpartition('.')[2]}"
    is_nameable = target.rpartition(".")[0] in NAMEABLE_MODULES
    name = target if is_nameable else public_name(target) or ""
    module, _, last = name.rpartition(".")
    if not module:
        return None
    found = getattr(import_module(module), last, None)
    return name if isinstance(found, type) else None
