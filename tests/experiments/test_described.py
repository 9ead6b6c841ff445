"""What a file of somebody else may describe: plain values, and classes of a closed table.

Every attack would leave a mark: the file `mark`, or the value of an environment variable.
"""

import json
import sys
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

import simulators
import sysid
from experiments.cli import described
from experiments.cli.build import build, build_all, build_one
from experiments.cli.config import fill_in, from_yaml, to_yaml
from experiments.cli.described import check_classes, check_description, class_of
from experiments.cli.invocation import given_overrides
from experiments.generate.sent import read_sent
from experiments.identify.run import read_settings
from experiments.plant.physics import FittedPhysics, Physics, read_physics
from helpers.benchmarks import BOUC_WEN, generate
from helpers.commands import compose_configuration, run_command
from helpers.records import make_model
from simulators import CascadedTanks, System
from sysid import Kernel, MeanFunction, Settings

SECRET = "value-of-a-variable"
ENVIRONMENT = "${oc.env:MY_SECRET}"
TANKS = json.loads(FittedPhysics(Physics(CascadedTanks())).describe())
#: a resolver that makes a map which names a function
OPEN = "${oc.create:'{_target_: builtins.open, file: mark, mode: w}'}"


def test_an_entry_that_is_null_is_left_out_of_a_group():
    entries = {"level": {"_target_": "simulators.CascadedTanks"}, "gone": None}
    assert build_all(OmegaConf.create({"some": entries}), "some") == {"level": CascadedTanks()}


OWN_MODULE = """
from dataclasses import dataclass
from subprocess import Popen

from simulators import CascadedTanks

open("mark", "w").close()


@dataclass(frozen=True)
class Own(CascadedTanks):
    pass


@dataclass(frozen=True)
class NoSystem:
    dt: float = 1.0


def function(**settings):
    open("mark", "w").close()
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Folder of the test, in which an attack would leave its mark."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_SECRET", SECRET)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_tanks.py").write_text(OWN_MODULE)
    yield tmp_path
    sys.modules.pop("own_tanks", None)


def with_system(**settings):
    """Return the description of physics with other settings of its system."""
    return TANKS | {"system": TANKS["system"] | settings}


#: descriptions of physics that would do something, and words of the refusal
ATTACKS_ON_PHYSICS = {
    "initial that makes an object": (TANKS | {"initial": OPEN}, "interpolation"),
    "bounds that make an object": (TANKS | {"initial": {"dt": OPEN}}, "interpolation"),
    "system that makes an object": (TANKS | {"system": OPEN}, "interpolation"),
    "changes that make an object": (with_system(changes=OPEN), "interpolation"),
    "change that makes an object": (with_system(changes=[OPEN]), "interpolation"),
    "free that makes an object": (TANKS | {"free": OPEN, "covariance": []}, "interpolation"),
    "interpolation that is a variable": (TANKS | {"interpolation": ENVIRONMENT}, "interpolation"),
    "number that is a variable": (with_system(dt=ENVIRONMENT), "interpolation"),
    "part of a text": (TANKS | {"interpolation": f"a{ENVIRONMENT}"}, "interpolation"),
    "name of a parameter": (TANKS | {"initial": {ENVIRONMENT: {}}}, "interpolation"),
    "key of a system": (with_system(**{ENVIRONMENT: 1}), "interpolation"),
    "unknown key": (TANKS | {"extra": [OPEN]}, "interpolation"),
    "unfinished": (TANKS | {"interpolation": "${"}, "interpolation"),
    "function": (with_system(_target_="builtins.open"), "no class of the toolbox"),
    "function of the toolbox": (with_system(_target_="sysid.store.write_bytes"), "no class"),
    "imported by the toolbox": (
        with_system(_target_="experiments.plant.physics.DictConfig"),
        "no class",
    ),
    "nested in initial": (
        TANKS | {"initial": {"dt": {"_target_": "builtins.open", "file": "mark", "mode": "w"}}},
        "no class",
    ),
    "class of another role": (with_system(_target_="simulators.PI"), "System"),
    "source of data": (with_system(_target_="sysid.CsvFiles"), "no class"),
    "abstract class": (with_system(_target_="simulators.System"), "no class"),
    "no text": (with_system(_target_=["simulators.CascadedTanks"]), "name of a class"),
    "no system": (TANKS | {"system": {}}, "settings of a system"),
    "arguments": (with_system(_args_=[1.0]), "_args_"),
    "partial": (with_system(_partial_=True), "_partial_"),
    "conversion": (with_system(_convert_="none"), "_convert_"),
    "without nested objects": (with_system(_recursive_=False), "_recursive_"),
    "own module": (with_system(_target_="own_tanks.Own"), r"trust it with \+trusted=\[own_tanks\]"),
    "starts without end": (TANKS | {"starts": 10**9}, "integer from 1"),
    "starts as a text": (TANKS | {"starts": "3"}, "integer from 1"),
    "steps without end": (with_system(substeps=10**12), "integer from 1"),
    "number that no float can hold": (with_system(dt=10**400), "308 digits"),
    "bound that no float can hold": (
        TANKS | {"initial": {"dt": {"lower": 0, "upper": 10**400}}},
        "finite",
    ),
    "bounds that are none": (TANKS | {"initial": {"dt": {"lower": 0, "upper": "1"}}}, "finite"),
    "bounds with a name": (
        TANKS | {"initial": {"dt": {"lower": 0, "upper": 1, "name": "x"}}},
        "lower and upper",
    ),
    "initial that is a list": (TANKS | {"initial": [1]}, "must map names"),
    "interpolation that is a list": (TANKS | {"interpolation": ["held"]}, "must be a text"),
}


@pytest.mark.parametrize(
    ("description", "words"), ATTACKS_ON_PHYSICS.values(), ids=ATTACKS_ON_PHYSICS
)
def test_physics_of_a_file_does_nothing(description, words, here):
    with pytest.raises(ValueError, match=words) as caught:
        read_physics(json.dumps(description), [])
    assert not (here / "mark").exists()
    assert SECRET not in str(caught.value)
    assert "own_tanks" not in sys.modules


def test_physics_that_is_nested_without_end_is_refused():
    deep = json.dumps(TANKS).replace(
        '"initial": {}', '"initial": ' + '{"a":' * 200 + "1" + "}" * 200
    )
    with pytest.raises(ValueError, match="at most 50 levels"):
        read_physics(deep, [])


@pytest.mark.parametrize(
    "changes", [[{"parameter": "pump_gain", "to": 0.1, "start": 8.0, "end": None}], []]
)
def test_plain_changes_of_physics_come_back(changes):
    physics = Physics(CascadedTanks(changes=changes), initial={"dt": {"lower": 0.1, "upper": 1}})
    assert read_physics(FittedPhysics(physics).describe(), []).physics == physics


@pytest.mark.parametrize("trusted", ["own_tanks", "own_tanks.Own"], ids=["module", "class"])
def test_a_system_of_the_user_comes_back_once_it_is_trusted(trusted):
    description = json.dumps(with_system(_target_="own_tanks.Own"))
    system = read_physics(description, [trusted]).physics.system
    assert type(system).__name__ == "Own"


@pytest.mark.parametrize("name", ["function", "Popen", "NoSystem", "CascadedTanks.changes"])
def test_a_module_that_is_trusted_gives_systems_only(name, here):
    """What the module has imported, or defines beside its systems, is not called."""
    description = with_system(_target_=f"own_tanks.{name}")
    with pytest.raises(ValueError, match=r"System of the toolbox|no class"):
        read_physics(json.dumps(description), ["own_tanks"])


@pytest.mark.parametrize("name", ["function", "Popen", "NoSystem"])
def test_what_a_trusted_module_holds_is_not_called_in_the_settings_of_a_system(name, here):
    description = with_system(_target_="own_tanks.Own", changes=[{"_target_": f"own_tanks.{name}"}])
    with pytest.raises(ValueError, match=r"physics\.system\.changes\.0: expected .* dataclass"):
        read_physics(json.dumps(description), ["own_tanks"])


@pytest.mark.parametrize("command", ["export", "validate", "compare"])
def test_no_command_runs_the_physics_of_a_model_file(command, here):
    content = json.dumps(TANKS | {"initial": OPEN})
    for name in ("a", "b"):
        make_model().save(here / f"{name}.nc", attributes={"physics": content})
    (here / "r.csv").write_text("time,u,y\n" + "".join(f"{k},{k % 3},{k % 5}\n" for k in range(80)))
    record = ["data=csv", "data.test=r.csv", "data.inputs=[u]", "data.outputs=[y]"]
    arguments = {
        "export": ["model=a.nc"],
        "validate": ["model=a.nc", *record],
        "compare": ["a.nc", "b.nc", *record],
    }
    result = run_command(command, *arguments[command])
    assert result.code == 1
    assert "interpolation" in result.out + result.err
    assert "Traceback" not in result.out + result.err
    assert not (here / "mark").exists()


# --- the table of classes


def test_the_table_lists_every_class_that_a_configuration_of_a_benchmark_can_name():
    bases = (
        *(simulators.System, simulators.Controller, simulators.Weather, simulators.Excitation),
        *(simulators.MeasurementNoise, sysid.Kernel, sysid.MeanFunction, sysid.Insertion),
        *(sysid.Acceptance, sysid.Criterion, sysid.Selection, sysid.Training),
        sysid.CoefficientDecay,
    )
    for package in (simulators, sysid):
        kinds = {name: getattr(package, name) for name in package.__all__}
        nameable = {
            name
            for name, kind in kinds.items()
            if isinstance(kind, type) and is_dataclass(kind) and issubclass(kind, bases)
        }
        abstract = {"System", "Controller", "Excitation"}
        assert nameable - abstract <= described.CLASSES[package.__name__]


@pytest.mark.parametrize(
    "name",
    sorted(f"{module}.{name}" for module, names in described.CLASSES.items() for name in names),
)
def test_a_class_of_the_table_exists_and_is_a_dataclass(name):
    assert class_of(name, [], object, "x") is getattr(
        import_module(name.rpartition(".")[0]), name.rpartition(".")[2]
    )


def test_a_class_by_a_former_name_is_found():
    name = "experiments.generation.baselines.Arx"
    assert class_of(name, [], object, "x").__name__ == "Arx"


@pytest.mark.parametrize("place", ["system", "excitations.a", "baseline.mine"])
def test_a_class_has_the_role_of_its_place(place):
    group, _, name = place.partition(".")
    entry = {"_target_": "sysid.ZeroMean"}
    content = {group: {name: entry} if name else entry}
    check_description(content)
    roles = {"system": System, "excitations.*": System, "baseline.*": System}
    with pytest.raises(ValueError, match=f"{place}: expected .* System"):
        check_classes(content, [], roles)


# --- texts of classes in a model file


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ('{"class": "sysid.ConstantMean", "value": "${oc.env:MY_SECRET}"}', MeanFunction),
        ('{"class": "sysid.ConstantMean", "${oc.env:MY_SECRET}": 1}', MeanFunction),
        ('{"class": "sysid.Sum", "parts": ["${oc.env:MY_SECRET}"]}', Kernel),
    ],
    ids=["value", "key", "nested"],
)
def test_the_text_of_a_class_has_no_interpolation(text, role):
    with pytest.raises(ValueError, match="without"):
        sysid.build(text, role)


@pytest.mark.parametrize(
    "name", ["sysid.CsvFiles", "sysid.StoredRecordings", "sysid.JointModel", "sysid.SparseGP"]
)
def test_the_text_of_a_kernel_contains_no_class_of_another_kind(name):
    text = json.dumps({"class": "sysid.Sum", "parts": [{"class": name}]})
    with pytest.raises(ValueError, match="has a role"):
        sysid.build(text, Kernel)


# --- configurations of benchmark folders

SENT = {
    "system": {"_target_": "simulators.CascadedTanks", "dt": 4.0},
    "noise": {"_target_": "simulators.MeasurementNoise", "std": 0.1},
    "excitation": {"schedule": [1, 2]},
    "licence": "mine",
    "seed": 3,
}
LOGGING = {"version": 1, "handlers": {"x": {"()": "builtins.open", "file": "mark", "mode": "w"}}}
#: what a sent configuration could do, as keys that replace those above or as text of the file
ATTACKS_ON_SETTINGS = {
    "variable": {"licence": ENVIRONMENT},
    "variable in a text": {"licence": f"by {ENVIRONMENT}"},
    "object": {"noise": OPEN},
    "name of a setting": {"noise": {ENVIRONMENT: 1}},
    "variable by an escape": 'licence: "\\x24{oc.env:MY_SECRET}"\n',
    "function": {"noise": {"_target_": "builtins.open", "file": "mark", "mode": "w"}},
    "nested function": {"excitation": {"schedule": [{"_target_": "os.system"}]}},
    "imported by the toolbox": {"noise": {"_target_": "experiments.plant.physics.DictConfig"}},
    "arguments": {"noise": {"_target_": "simulators.MeasurementNoise", "_args_": [1]}},
    "logging": {"hydra": {"job_logging": LOGGING}},
    "callback": {"hydra": {"callbacks": {"x": {"_target_": "own_tanks.Own"}}}},
    "folder of the run": {"hydra": {"run": {"dir": "mark"}}},
    "further files": {"defaults": ["other"]},
    "output": {"output": "mark"},
    "trust": {"trusted": ["own_tanks"], "system": {"_target_": "own_tanks.Own"}},
    "aliases": "a: &a [1]\nb: [*a, *a]\n",
    "tag": "a: !!python/object/apply:os.system ['touch mark']\n",
    "no map": "- 1\n",
    "nothing": "",
    "a key twice": "seed: 1\nseed: 2\n",
    "too long": "a: " + "x" * 70_000,
    "too deep": "a: " + "[" * 60 + "]" * 60,
}


def write_sent(content, folder=Path("sent")):
    """Write a configuration.yaml as somebody else may have sent it."""
    folder.mkdir()
    text = content if isinstance(content, str) else yaml.safe_dump(SENT | content)
    (folder / "configuration.yaml").write_text(text)
    return folder / "configuration.yaml"


@pytest.mark.parametrize("content", ATTACKS_ON_SETTINGS.values(), ids=ATTACKS_ON_SETTINGS)
def test_a_sent_configuration_is_refused_before_hydra_reads_it(content, here):
    write_sent(content)
    result = run_command(
        "generate", "--config-dir", "sent", "--config-name=configuration", "+output=again"
    )
    assert result.code == 1
    assert "configuration.yaml: " in result.err
    assert "Traceback" not in result.out + result.err
    assert SECRET not in result.out + result.err
    assert {path.name for path in here.iterdir()} == {"sent", "own_tanks.py"}
    assert "own_tanks" not in sys.modules


@pytest.mark.parametrize(
    "flags",
    [
        ("-cd", "sent", "-cn", "configuration"),
        ("--config-dir=sent", "--config-name=configuration.yaml"),
        ("--config-path", "SENT", "--config-name", "configuration"),
        ("--config-d", "sent", "--config-n", "configuration"),
    ],
    ids=["short", "joined", "path", "cut"],
)
def test_a_sent_configuration_is_refused_however_it_is_named(flags, here):
    write_sent(ATTACKS_ON_SETTINGS["logging"])
    flags = [str(here / "sent") if flag == "SENT" else flag for flag in flags]
    result = run_command("generate", *flags, "+output=again")
    assert result.code == 1
    assert "Error: " in result.err
    assert not (here / "mark").exists()


def test_a_configuration_that_does_not_exist_is_named(here):
    result = run_command("generate", "--config-name", "configuration")
    assert result.code == 1
    assert "there is no configuration.yaml" in result.err


def test_plain_settings_are_read_as_they_are():
    path = write_sent({"system": {"_target_": "own_tanks.Own", "dt": 1e-3}})
    assert read_sent(path, ["own_tanks"])["system"] == {"_target_": "own_tanks.Own", "dt": 1e-3}
    assert "own_tanks" not in sys.modules


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param({"a": ENVIRONMENT}, "interpolation", id="variable"),
        pytest.param({"a": "${b}", "b": 1}, "interpolation", id="key that conf/ does not refer to"),
    ],
)
def test_only_interpolations_of_the_package_are_filled_in(content, words):
    filled = fill_in(content)
    assert filled == content
    with pytest.raises(ValueError, match=words):
        check_description(filled)


def test_interpolations_of_the_package_are_filled_in():
    content = {
        "kernel": {"a": 1},
        "training": {"kernel": "${kernel}"},
        "controller": {"dt": "${oc.select:system.dt,4.0}"},
        "baseline": {"x": {"training": "${training}", "budget": "${budget}"}},
    }
    assert fill_in(content) == {
        "kernel": {"a": 1},
        "training": {"kernel": {"a": 1}},
        "controller": {"dt": 4.0},
        "baseline": {"x": {"training": {"kernel": {"a": 1}}, "budget": None}},
    }


@pytest.mark.parametrize(
    "content",
    [
        {"kernel": ["${kernel}"]},
        {"kernel": ["${mean}"] * 50, "mean": ["${training}"] * 50, "training": [1] * 50},
    ],
    ids=["of itself", "of many"],
)
def test_interpolations_do_not_grow_without_end(content):
    with pytest.raises(ValueError, match="at most"):
        fill_in(content)


def test_a_configuration_that_a_program_loads_is_not_resolved(here):
    with pytest.raises(ValueError, match=r"licence: .*interpolation"):
        generate(here / "bw", *BOUC_WEN, licence=ENVIRONMENT)


# --- the configuration of the user


def test_a_text_that_looks_like_an_interpolation_is_resolved_once():
    config = OmegaConf.create(r"data: {_target_: sysid.CsvFiles, test: ['\${oc.env:HOME}.csv']}")
    assert build(config, "data").test == ["${oc.env:HOME}.csv"]


OWN_PARTS = """
from dataclasses import dataclass

from simulators import CascadedTanks
from sysid import ZeroMean


@dataclass(frozen=True)
class Mean(ZeroMean):
    text: str = ""
    other: object = None


@dataclass(frozen=True)
class Tanks(CascadedTanks):
    text: str = ""
    values: object = None
"""


@pytest.fixture
def own_parts(here):
    """Module of the user's own with parts of a model that no file could hold."""
    (here / "own_parts.py").write_text(OWN_PARTS)
    yield import_module("own_parts")
    sys.modules.pop("own_parts", None)


@pytest.mark.parametrize(
    ("mean", "words"),
    [
        ({"_target_": "own_parts.Mean", "text": r"\${x}"}, r"expected a text without '\$\{'"),
        ({"_target_": "own_parts.Mean", "other": {"a": 1}}, "mean: cannot describe {'a': 1}"),
    ],
    ids=["interpolation", "map"],
)
def test_a_mean_that_no_file_holds_is_refused_before_anything_is_learned(mean, words, own_parts):
    config = compose_configuration("system=van_der_pol").copy()
    OmegaConf.update(config, "mean", mean, merge=False)
    with pytest.raises(ValueError, match=words):
        read_settings(config)


def test_settings_have_no_text_that_no_file_holds(own_parts):
    with pytest.raises(ValueError, match="without"):
        Settings(mean=own_parts.Mean("${x}"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"text": "${x}"}, r"physics.system.text: .*interpolation"),
        ({"values": np.zeros(2)}, "numbers, texts and lists.*Tanks"),
    ],
    ids=["interpolation", "array"],
)
def test_physics_that_no_file_holds_is_refused_before_anything_is_computed(
    settings, words, own_parts
):
    with pytest.raises(ValueError, match=words):
        Physics(own_parts.Tanks(**settings))


def test_a_benchmark_that_could_not_be_made_again_is_refused_before_it_is_made(here):
    result = run_command("generate", r"licence='by \${x}'", "output=made")
    assert result.code == 1
    assert "licence: expected plain values" in result.out
    assert not (here / "made").exists()


def test_overrides_stay_as_they_were_typed(monkeypatch):
    typed = [f"licence={ENVIRONMENT}", "data.test='\\${x}.csv'"]
    config = OmegaConf.create({"hydra": {"overrides": {"task": typed}}})
    monkeypatch.setattr(HydraConfig.instance(), "cfg", config)
    assert given_overrides() == tuple(typed)


def test_settings_are_written_as_they_are():
    settings = {"a": ENVIRONMENT, "b": "${", "c": ["1e-3", 1e-3, None]}
    assert from_yaml(to_yaml({"c": settings["c"]})) == {"c": settings["c"]}
    assert yaml.safe_load(to_yaml(settings))["a"] == ENVIRONMENT


def test_an_object_gets_plain_containers():
    config = OmegaConf.create(
        {"x": {"_target_": "builtins.dict", "a": {"b": [1, "${y}"]}}, "y": {"c": 2}}
    )
    found = build(config, "x")
    assert found == {"a": {"b": [1, {"c": 2}]}}
    assert [type(found["a"]), type(found["a"]["b"]), type(found["a"]["b"][1])] == [dict, list, dict]


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ({"_target_": "builtins.complex", "_args_": [1, 2]}, 1 + 2j),
        ({"_target_": "builtins.dict", "_convert_": "all", "a": 1}, {"a": 1}),
        (
            {"_target_": "builtins.dict", "_recursive_": False, "a": {"_target_": "b.C"}},
            {"a": {"_target_": "b.C"}},
        ),
        ([{"_target_": "builtins.dict"}, 3], [{}, 3]),
        (None, None),
    ],
    ids=["arguments", "conversion", "not recursive", "list", "nothing"],
)
def test_what_the_user_writes_has_its_meaning_in_hydra(description, expected):
    assert build_one(description, "x") == expected


def test_a_partial_call_of_the_user_is_made_later():
    found = build_one({"_target_": "builtins.dict", "_partial_": True, "a": 1}, "x")
    assert isinstance(found, partial)
    assert found(b=2) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"_target_": "no_such_module.X"}, "x: No module named 'no_such_module'"),
        ({"_target_": "own_tanks.No"}, "x: .*No"),
        ({"_target_": "sys.path"}, "x: _target_ must name a class or a function"),
        ("matern", "x must be settings with a _target_"),
        ({"_target_": "sysid.ZeroMean", "a": 1}, "x: .*unexpected keyword argument 'a'"),
        ({"_target_": "sysid.ConstantMean", "value": 10**400}, r"x\.value must be .* 308 digits"),
        ({"_target_": "simulators.Recorded", "values": [10**400]}, r"values\.0 must be .* 308"),
        ({"_target_": "simulators.NoExcitation", "offset": -(10**400)}, "308 digits"),
    ],
    ids=["module", "name", "no function", "text", "setting", "mean", "values", "negative"],
)
def test_what_cannot_be_built_is_named(description, words):
    with pytest.raises(ValueError, match=words):
        build_one(description, "x")


def test_a_configuration_is_read_without_being_resolved():
    assert from_yaml("a: ${oc.env:HOME}\nb: 1e-3\n") == {"a": "${oc.env:HOME}", "b": 1e-3}
