"""Every yaml composes, instantiates and repeats the defaults of its class; every class has a yaml."""

import dataclasses
import importlib
import inspect
import math
import pkgutil
from enum import Enum
from itertools import zip_longest

import pytest
import yaml
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from running import CONF, configured

import simulators
import sysid
from experiments.automatic import AutomaticNarx
from experiments.physics import Physics, ResidualNarx
from sysid.model.description import name_of

ROLES = {
    "system": simulators.System,
    "controller": simulators.Controller,
    "weather": simulators.Weather,
    "excitation": simulators.Excitation,
    "noise": simulators.MeasurementNoise,
    "function": simulators.StaticFunction,  # this and the next: parts of data=function, no group of their own
    "sampling": simulators.Sampling,
    "data": sysid.DataSource,
    "narx": sysid.Narx,
    "kernel": sysid.Kernel,
    "training": sysid.Training,
    "physics": Physics,
    "mean": sysid.MeanFunction,
    "insertion": sysid.Insertion,
    "reduction": sysid.Criterion,
    "selection": sysid.Selection,
    "acceptance": sysid.Acceptance,
    "propagation": sysid.Propagation,
}
LATER = (AutomaticNarx, ResidualNarx, sysid.Orders)  # become a `Narx` once the signals are known
WITHOUT_YAML = {simulators.OpenLoop, sysid.AboutPath}  # controller=none; what a validation makes of the propagation
CHOICES = {
    "controller/level_pi.yaml",
    "controller/position_loop.yaml",
    "physics/cascaded_tanks.yaml",
}  # values for one system instead of the defaults of the class
#: launchers and sweepers are compared with their engines
FILES = sorted(path for path in CONF.rglob("*.yaml") if path.parent != CONF and "hydra" not in path.parts)


def named(path):
    return path.relative_to(CONF).as_posix()


def nodes(value):
    """Every mapping with a `_target_` inside a loaded yaml."""
    if isinstance(value, dict) and "_target_" in value:
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(item)


def options(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


#: groups that no other depends on take their options side by side; a system or data set brings options of others
FREE = [group for group in ROLES if group not in ("system", "data", "function", "sampling")]
CHOSEN = [[f"data={name}"] for name in options("data")] + [[f"system={name}"] for name in options("system")]
CHOSEN += [[f"operating_point={name}"] for name in options("operating_point")]
CHOSEN += [
    [f"{group}={name}" for group, name in zip(FREE, names, strict=True) if name not in (None, "lags")]
    for names in zip_longest(*map(options, FREE))
]


@pytest.mark.parametrize("overrides", CHOSEN, ids=lambda overrides: overrides[0])
def test_every_option_composes_and_instantiates(overrides):
    config = configured(*overrides)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    for group in set(ROLES) & set(config):
        found = instantiate(config[group], _convert_="all")
        empty = f"{group}=none" in overrides or found == {}
        assert empty or isinstance(found, (*LATER, ROLES[group]) if group == "narx" else ROLES[group]), group
        if f"{group}=none" not in overrides and any(text.startswith(f"{group}=") for text in overrides):
            assert found or overrides == ["data=simulated"]


def stated(target):
    """Fields that a yaml states: all, but of a kernel only its parts, since a training fills the rest."""
    names = {field.name for field in dataclasses.fields(target) if field.init}
    return names & {"parts"} if issubclass(target, sysid.Kernel) else names


def plain(value):
    """Value as a yaml could hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {"_target_": name_of(type(value))} | {name: plain(getattr(value, name)) for name in stated(type(value))}
    return value


@pytest.mark.parametrize("path", FILES, ids=named)
def test_yaml_names_a_public_class_and_states_its_defaults(path):
    for node in nodes(yaml.safe_load(path.read_text())):
        target = get_class(node["_target_"])
        package, name = target.__module__.partition(".")[0], target.__qualname__
        assert node["_target_"] in (f"{package}.{name}", f"{target.__module__}.{name}")
        assert node["_target_"] == f"{package}.{name}" or package == "experiments"
        groups = [next(iter(entry)) for entry in node.get("defaults", []) if isinstance(entry, dict)]
        elsewhere = {group.rpartition("@")[2] for group in groups if not group.startswith("override")}
        assert (set(node) | elsewhere) - {"_target_", "defaults"} == stated(target)
        for field in dataclasses.fields(target):
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            written = node.get(field.name)
            if field.name not in node or default is dataclasses.MISSING or target is sysid.Narx:
                continue  # lags are a choice, not a default
            if dataclasses.is_dataclass(default) or str(written).startswith("${") or named(path) in CHOICES:
                continue  # its own node is compared
            assert plain(written) == plain(default), field.name
            assert isinstance(written, float) or not isinstance(default, float), f"{field.name}: {written!r}"


@pytest.mark.parametrize("group", sorted(set(ROLES) - {"physics"}))
def test_every_class_has_a_yaml(group):
    files = [yaml.safe_load(path.read_text()) for path in FILES]
    targets = {get_class(node["_target_"]) for file in files for node in nodes(file)}
    found = set()
    for package in (sysid, simulators):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            classes = filter(inspect.isclass, vars(importlib.import_module(module.name)).values())
            found |= {c for c in classes if issubclass(c, ROLES[group]) and not inspect.isabstract(c)}
    assert found - WITHOUT_YAML
    assert found - WITHOUT_YAML <= targets


@pytest.mark.parametrize("path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_composes_wins_over_the_defaults_and_is_listed(path):
    """The first and the last of the values that are swept exist; the help of its command names the recipe."""
    written = yaml.safe_load(path.read_text())
    command = path.read_text().splitlines()[1].split()[1].removeprefix("sysid-")
    assert f"  {path.stem} " in (CONF / f"{command}.yaml").read_text()
    params = written.pop("hydra", {"sweeper": {"params": {}}})["sweeper"]["params"]
    values = {key: str(value).split(",") for key, value in params.items() if "range" not in str(value)}
    for end in (0, -1):
        config = configured(
            f"experiment={path.stem}", *(f"{key}={each[end]}" for key, each in values.items()), command=command
        )
        assert OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        written.pop("defaults", None)
        assert OmegaConf.merge(config, OmegaConf.create(written)) == config
    assert path.stem != "building_thresholds" or math.prod(map(len, values.values())) * 10 == 540
