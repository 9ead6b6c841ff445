"""Every yaml composes, instantiates and repeats the defaults of its class; every class has a yaml."""

import dataclasses
import importlib
import inspect
import math
import pkgutil
from enum import Enum

import pytest
import yaml
from hydra.errors import ConfigCompositionException
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from running import CONF, PLAIN, ROOT, configured

import simulators
import sysid
from experiments.automatic import AutomaticNarx
from experiments.build import build_one
from experiments.launch import check_keys
from simulators import Controller, Excitation, MeasurementNoise, OpenLoop, Sampling, StaticFunction, System, Weather
from sysid import (
    AboutPath,
    Acceptance,
    Criterion,
    DataSource,
    Insertion,
    Kernel,
    MeanFunction,
    Narx,
    Orders,
    Propagation,
    Selection,
    Training,
)
from sysid.model.description import name_of

if PLAIN:
    pytest.skip("configurations are composed alike without the compiler", allow_module_level=True)

ROLES = {
    "system": System,
    "controller": Controller,
    "weather": Weather,
    "narx": Narx,
    "kernel": Kernel,
    "training": Training,
    "mean": MeanFunction,
    "insertion": Insertion,
    "reduction": Criterion,
    "selection": Selection,
    "acceptance": Acceptance,
    "propagation": Propagation,
    "excitation": Excitation,
    "noise": MeasurementNoise,
    "data": DataSource,
}
#: groups that no command composes by default
MORE_ROLES = {"function": StaticFunction, "sampling": Sampling}  # parts of data=function
#: options without an object: nothing of the kind takes part
EMPTY = {("system", "none"), ("controller", "none"), ("weather", "none"), ("data", "simulated")}
#: groups of `sysid-identify`; other commands may have more
DEFAULTS = [
    entry for name in ("plant", "identify") for entry in yaml.safe_load((CONF / f"{name}.yaml").read_text())["defaults"]
]
OVERLAYS = {"experiment"}  # of any groups
CHOSEN = [next(iter(entry)) for entry in DEFAULTS if isinstance(entry, dict)]
GROUPS = [group for group in CHOSEN if not group.startswith("override ") and group not in OVERLAYS]
FILES = sorted(path for path in CONF.rglob("*.yaml") if path.parent != CONF)
OPTIONS = [(path.parent.relative_to(CONF).as_posix(), path.stem) for path in FILES]
#: groups of numbers that other groups refer to
VALUES = {"operating_point"}
#: options that are nothing without values of the user's
UNFINISHED = {("narx", "lags")}
#: options of the lags that become a `Narx` once the signals are known
CHOSEN_LAGS = {"auto": AutomaticNarx, "orders": Orders}
OF_IDENTIFY = [o for o in OPTIONS if o[0] in GROUPS and o[0] not in VALUES and o not in UNFINISHED]


def nodes(value):
    """Every mapping with a `_target_` inside a loaded yaml."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield value
        for item in value.values():
            yield from nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from nodes(item)


#: but those of launchers and sweepers, which the tests of each compare with its engine
TARGETS = [
    (path.relative_to(CONF).as_posix(), node)
    for path in FILES
    if "hydra" not in path.relative_to(CONF).parts
    for node in nodes(yaml.safe_load(path.read_text()))
]


def node_id(value):
    return value if isinstance(value, str) else value["_target_"].rpartition(".")[2]


def concrete(role):
    """Concrete subclasses of a role in every module of the packages."""
    found = set()
    for package in (sysid, simulators):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            for member in vars(importlib.import_module(module.name)).values():
                if inspect.isclass(member) and issubclass(member, role) and not inspect.isabstract(member):
                    found.add(member)
    return found


def test_groups_are_those_of_the_roles():
    assert set(GROUPS) == set(ROLES) | VALUES
    assert {group for group, _ in OPTIONS} >= set(GROUPS)


@pytest.mark.parametrize(("group", "name"), OF_IDENTIFY)
def test_every_option_composes_and_instantiates(group, name):
    config = configured(f"{group}={name}")
    expected = {} if (group, name) in EMPTY else ROLES[group]
    found = instantiate(config[group], _convert_="all")
    if expected:
        assert isinstance(found, CHOSEN_LAGS.get(name, expected) if group == "narx" else expected)
    else:
        assert found == {}
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_command_composes_and_resolves(path):
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(path.stem)
    assert OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def test_defaults_are_the_documented_ones():
    config = configured()
    assert config.duration == "35041samples"
    assert (config.system._target_, config.controller._target_) == (
        "simulators.Building",
        "simulators.PI",
    )
    assert config.insertion.error_threshold == 0.1
    assert config.budget == 100
    assert config.training.n_initial == 100
    assert config.on_missing == "error"
    assert config.narx.on_missing == "error"
    assert config.acceptance.reference == "leave_one_out"
    assert config.acceptance.criterion == config.reduction


@pytest.mark.parametrize("system", sorted(path.stem for path in (CONF / "operating_point").glob("*.yaml")))
def test_excitations_follow_the_operating_point(system):
    values = configured(f"operating_point={system}", "excitation=multisine").operating_point
    assert values.low == -values.high == -values.amplitude
    assert 0 < values.rms < values.amplitude or system == "unit"
    found = configured(f"operating_point={system}", "excitation=aprbs", "operating_point.offset=7").excitation
    assert (found.offset, found.low, found.high) == (7, values.low, values.high)
    assert configured(f"operating_point={system}", "excitation=multisine").excitation.rms == values.rms


def test_lags_of_ones_own():
    lags = ("narx=lags", "narx.outputs={y: 2}", "narx.inputs={u: [0, 3]}")
    narx = instantiate(configured("system=van_der_pol", *lags).narx, _convert_="all")
    assert narx.feature_names == ("y[k-1]", "y[k-2]", "u[k]", "u[k-3]")
    alone = instantiate(configured("system=van_der_pol", *lags[:2]).narx, _convert_="all")
    assert alone.feature_names == ("y[k-1]", "y[k-2]")


@pytest.mark.parametrize("path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_composes_in_all_its_combinations_and_is_listed(path):
    """Values that are swept exist: the first and the last of each. The help names every recipe."""
    from hydra import compose, initialize_config_dir

    written = yaml.safe_load(path.read_text())
    command = path.read_text().splitlines()[1].split()[1].removeprefix("sysid-")
    assert f"  {path.stem} " in (CONF / f"{command}.yaml").read_text()
    params = written.get("hydra", {"sweeper": {"params": {}}})["sweeper"]["params"]
    for end in (0, -1):
        values = [f"{key}={str(value).split(',')[end]}" for key, value in params.items() if "range" not in str(value)]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(command, overrides=[f"experiment={path.stem}", *values])
        assert OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        plain = OmegaConf.to_container(
            OmegaConf.create({k: v for k, v in written.items() if k not in ("defaults", "hydra")})
        )
        assert OmegaConf.to_container(OmegaConf.merge(config, plain)) == OmegaConf.to_container(config)


def test_the_written_down_sweep_has_540_jobs():
    written = yaml.safe_load((CONF / "experiment" / "building_thresholds.yaml").read_text())
    params = written["hydra"]["sweeper"]["params"]
    assert params.pop("seed") == "range(0,10)"
    assert math.prod(len(str(value).split(",")) for value in params.values()) * 10 == 540


def test_matched_acceptance_follows_the_reduction():
    config = configured("reduction=mean_relevance")
    assert instantiate(config.acceptance).criterion == instantiate(config.reduction)


@pytest.mark.parametrize(("file", "node"), TARGETS, ids=node_id)
def test_every_target_is_a_class_of_ours(file, node):
    target = get_class(node["_target_"])
    assert inspect.isclass(target)
    package = target.__module__.partition(".")[0]
    name = target.__qualname__ if package in ("sysid", "simulators") else f"{target.__module__}.{target.__qualname__}"
    assert node["_target_"] in (name, f"{package}.{name}"), "name the public class, or the defining module"


def fields_to_state(target):
    """Fields that a yaml states: all, but of a kernel only its parts, since a training fills the rest."""
    names = {field.name for field in dataclasses.fields(target) if field.init}
    return names & {"parts"} if issubclass(target, Kernel) else names


def plain(value):
    """Value as a yaml could hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {"_target_": name_of(type(value))} | {
            name: plain(getattr(value, name)) for name in fields_to_state(type(value))
        }
    return value


#: yaml files that are a choice for one system instead of the defaults of the class
CHOICES = {"controller/level_pi.yaml"}


@pytest.mark.parametrize(("file", "node"), [t for t in TARGETS if t[0] not in CHOICES], ids=node_id)
def test_yaml_equals_the_defaults_of_the_class(file, node):
    target = get_class(node["_target_"])
    assert dataclasses.is_dataclass(target)
    for field in dataclasses.fields(target):
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if field.name not in fields_to_state(target) or not has_default:
            continue
        factory = field.default_factory
        default = factory() if factory is not dataclasses.MISSING else field.default
        if dataclasses.is_dataclass(default) or target is Narx:
            continue  # its own node is compared; lags are a choice, not a default
        assert field.name in node, f"conf/{file} does not state {field.name}"
        written = node[field.name]
        if isinstance(written, str) and written.startswith("${"):
            continue
        assert plain(written) == plain(default), f"conf/{file}: {field.name}"
        if isinstance(default, float):
            assert isinstance(written, float), f"conf/{file}: {field.name} is {written!r}, a float in the class"


@pytest.mark.parametrize(("file", "node"), TARGETS, ids=node_id)
def test_yaml_states_every_field_and_no_other(file, node):
    target = get_class(node["_target_"])
    groups = [next(iter(entry)) for entry in node.get("defaults", []) if isinstance(entry, dict)]
    of_other_files = {group.rpartition("@")[2] for group in groups if not group.startswith("override")}
    assert (set(node) | of_other_files) - {"_target_", "defaults"} == fields_to_state(target)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("sysid.SquaredExponentialForm", "sysid.SquaredExponential"),
        ("sysid.kernels.squared_exponential.SquaredExponentialForm", "sysid.SquaredExponential"),
        ("sysid.criteria.prior_entropy.PriorEntropy", "sysid.PriorEntropy"),
        ("simulators.systems.van_der_pol.VanDerPol", "simulators.VanDerPol"),
    ],
)
def test_targets_of_earlier_configurations_are_answered_with_the_public_name(target, name):
    for description in ({"_target_": target}, {"_target_": "sysid.Sum", "parts": [{"_target_": target}]}):
        with pytest.raises(ValueError, match=rf"^kernel: _target_ must be {name}, .* got {target}$"):
            build_one(OmegaConf.create(description), "kernel")


@pytest.mark.parametrize("role", [*ROLES.values(), *MORE_ROLES.values()], ids=lambda role: role.__name__)
def test_every_class_has_a_yaml_and_every_yaml_a_class(role):
    named = {get_class(node["_target_"]) for _, node in TARGETS}
    found = concrete(role) - {OpenLoop, AboutPath}  # controller=none; what every validation does with the propagation
    assert found
    assert found <= named


def test_reduction_and_acceptance_offer_every_criterion():
    def criteria(group):
        files = (yaml.safe_load(path.read_text()) for path in (CONF / group).glob("*.yaml"))
        return {get_class(node["_target_"]) for file in files for node in nodes(file)} & concrete(Criterion)

    assert criteria("reduction") == criteria("acceptance") == concrete(Criterion)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_numbers_carry_their_unit_in_a_comment(path):
    counts = {"substeps", "restarts", "max_iterations", "n_initial"}
    for line in path.read_text().splitlines():
        key, _, value = line.strip().partition(":")
        number = value.split("#")[0].strip()
        if number.replace(".", "").replace("e", "").replace("-", "").replace("+", "").isdigit():
            group = path.parent.name
            assert "#" in value or key in counts or group == "narx", f"{path.name}: {line}"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("nonsense=1", ["nonsense"]),
        ("insertion.error_treshold=1", ["error_treshold"]),
        ("reduction=foo", ["foo", "mean_relevance", "prior_entropy"]),
        ("nogroup=foo", ["nogroup"]),
    ],
)
def test_unknown_overrides_are_refused_while_composing(override, words):
    with pytest.raises(ConfigCompositionException) as caught:
        configured(override)
    message = f"{caught.value} {caught.value.__cause__ or ''}"
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("added", "hint"), [("budgett=50", "'budget'"), ("durations=1d", "'duration'"), ("xyz=1", None)]
)
def test_added_unknown_keys_are_refused(added, hint):
    with pytest.raises(ValueError, match="unknown configuration key") as caught:
        check_keys(configured(f"+{added}"), "identify")
    assert added.partition("=")[0] in str(caught.value)
    assert (hint is None) == ("did you mean" not in str(caught.value))
    if hint:
        assert f"did you mean {hint}" in str(caught.value)


def test_known_keys_pass():
    check_keys(configured(), "identify")


@pytest.mark.parametrize("group", ["system", "controller", "weather", "narx", "training", "insertion", "acceptance"])
def test_added_unknown_keys_of_a_group_are_refused(group):
    config = configured(f"+{group}.nonsense=1")
    with pytest.raises(Exception, match="nonsense"):
        instantiate(config[group], _convert_="all")


def test_a_class_from_outside_needs_only_a_yaml(tmp_path, monkeypatch):
    """A user's own rule, with --config-dir and a module on the path."""
    from hydra import compose, initialize_config_dir

    (tmp_path / "insertion").mkdir()
    (tmp_path / "insertion" / "mine.yaml").write_text("_target_: outside_rule.Sometimes\nshare: 0.5\n")
    (tmp_path / "outside_rule.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\n"
        "from sysid import Insertion\n\n"
        "@dataclass(frozen=True)\nclass Sometimes(Insertion):\n    share: float\n\n"
        "    @staticmethod\n    def formula(error, variance, parameters):\n"
        "        return abs(error) > parameters[0]\n\n"
        "    def parameters(self):\n        return np.array([self.share])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    search = f"hydra.searchpath=[file://{tmp_path}]"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("identify", overrides=[search, "insertion=mine"])
    assert instantiate(config.insertion).parameters()[0] == 0.5
    assert ROOT not in tmp_path.parents
