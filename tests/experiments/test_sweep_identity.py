"""What makes two jobs or two trajectories the same: settings, code and files; and composition."""

import json
import os
import sys
from unittest import mock

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf

from experiments.files import identity
from experiments.files.cache import array_digest
from experiments.files.identity import (
    code_digest,
    file_digests,
    identity_of,
    key_of,
    trajectory_key,
)
from experiments.plant.source import SIMULATION_KEYS
from experiments.sweeps.composer import Composer, resolve
from helpers.commands import compose_configuration
from helpers.sweeps import load_sweep_configuration

SETTINGS = {
    "seed": 1,
    "outputs": "lean",
    "figures": True,
    "cache": "/somewhere",
    "path": None,
    "system": {"_target_": "simulators.VanDerPol", "dt": 0.1, "lags": [1, 2]},
    "hydra": {"launcher": {"_target_": "x"}, "job": {"num": 3}},
}

# --- settings


@pytest.fixture(scope="module")
def identity_of_settings():
    """Identity of a job with these settings."""
    return identity_of("a:b", SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"seed": "1"},
        {"seed": None},
        {"outputs": "full"},
        {"more": None},
        {"system": SETTINGS["system"] | {"dt": 0.1 + 1e-16}},
        {"system": SETTINGS["system"] | {"lags": [2, 1]}},
        {"system": SETTINGS["system"] | {"_target_": "simulators.BoucWen"}},
    ],
    ids=str,
)
def test_every_setting_makes_another_job(change, identity_of_settings):
    assert identity_of("a:b", SETTINGS | change) != identity_of_settings


@pytest.mark.parametrize(
    "change",
    [
        {"cache": None},
        {"hydra": {"launcher": {"workers": 7}}},
        {"outputs": None},
        {"figures": False},
    ],
    ids=str,
)
def test_how_a_job_is_run_makes_no_other_job(change, identity_of_settings):
    assert identity_of("a:b", SETTINGS | change) == identity_of_settings


def test_the_command_makes_another_job_and_the_order_of_settings_does_not(identity_of_settings):
    assert identity_of("a:c", SETTINGS) != identity_of_settings
    assert identity_of("a:b", dict(reversed(SETTINGS.items()))) == identity_of_settings


def test_figures_count_where_they_are_drawn():
    with_figures = SETTINGS | {"outputs": "full", "figures": True}
    without_figures = SETTINGS | {"outputs": "full", "figures": False}
    assert identity_of("a:b", with_figures) != identity_of("a:b", without_figures)


def test_numbers_count_exactly():
    next_number = np.nextafter(0.1, 1)
    keys = {key_of({"a": value}) for value in (0.1, next_number, "0.1", [0.1], None)}
    assert len(keys) == 5
    assert next_number == 0.1 + 1e-17
    assert key_of({"a": 0.1 + 1e-17}) == key_of({"a": next_number})


def test_arrays_count_by_their_values_shape_and_type():
    array = np.arange(6.0)
    arrays = [
        array,
        array.reshape(2, 3),
        array.reshape(3, 2),
        array.astype(int),
        array + np.spacing(array),
        -array,
    ]
    assert len({array_digest(values) for values in arrays}) == len(arrays)
    in_columns = np.asfortranarray(array.reshape(2, 3))
    assert array_digest(array.reshape(2, 3)) == array_digest(in_columns)
    assert array_digest(array[:2], array[2:]) != array_digest(array[:3], array[3:])


# --- code


def digest_of_target(target):
    """Return the digest of the code that a configuration with this target runs."""
    identity._module_digest.cache_clear()
    return code_digest({"system": [{"deep": {"_target_": target}}]})


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """Folder with a package `mine` of two modules, and with a module in no package."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "plant.py").write_text("class Plant: pass\n")
    (package / "detail.py").write_text('"""Words."""\nGAIN = 1\n\n\ndef f(x):\n    return x + 1\n')
    (tmp_path / "alone_in_its_file.py").write_text("class Plant: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


#: the same code as in the module `mine.detail` with other words
REWORDED_CODE = (
    '"""Other\nwords."""\n\nGAIN = 1  # of the plant\n\n\n'
    'def f(x):\n    "What."\n\n    return x + 1\n'
)


def test_the_package_of_a_target_counts_and_nothing_of_it_is_imported(own_modules):
    other_digests = {
        code_digest(),
        digest_of_target("alone_in_its_file.Plant"),
        digest_of_target("not_there.Plant"),
    }
    assert digest_of_target("mine.plant.Plant") not in other_digests
    assert not {"mine", "mine.plant", "alone_in_its_file"} & sys.modules.keys()


def test_docstrings_comments_and_empty_lines_do_not_count(own_modules):
    before = digest_of_target("mine.plant.Plant")
    (own_modules / "mine" / "detail.py").write_text(REWORDED_CODE)
    assert digest_of_target("mine.plant.Plant") == before


def test_every_change_of_the_code_counts(own_modules):
    changes = [
        ("+ 1", "+ 2"),
        ("x + 1", "x - 1"),
        ("GAIN", "GAIM"),
        ("(x)", "(x=1)"),
        ("= 1", "= {'a', 'b'}"),
    ]
    digests = {digest_of_target("mine.plant.Plant")}
    for old, new in changes:
        (own_modules / "mine" / "detail.py").write_text(REWORDED_CODE.replace(old, new))
        digests.add(digest_of_target("mine.plant.Plant"))
    assert len(digests) == len(changes) + 1


@pytest.mark.parametrize(
    "text",
    ["class Plant: gain = 2\n", "class Plant: gain = = 2\n"],
    ids=["changed", "not_importable"],
)
def test_a_module_in_no_package_counts_by_itself(own_modules, text):
    before = digest_of_target("alone_in_its_file.Plant")
    (own_modules / "alone_in_its_file.py").write_text(text)
    assert digest_of_target("alone_in_its_file.Plant") != before


@pytest.fixture
def small_toolbox(tmp_path, monkeypatch):
    """The only module of a toolbox, whose digest is kept in a file of its own."""
    module = tmp_path / "toolbox" / "module.py"
    module.parent.mkdir()
    module.write_text('"""Words."""\nGAIN = 1\n')
    monkeypatch.setattr(identity, "PACKAGE_FOLDERS", [module.parent])
    monkeypatch.setattr(identity, "KEPT_DIGEST", tmp_path / "kept.digest")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return module


def digest_of_new_process():
    """Return the digest of the toolbox as a process finds it that has just started."""
    return identity._own_digest.__wrapped__()


def test_the_digest_of_the_toolbox_is_read_by_the_next_process(small_toolbox, monkeypatch):
    before = digest_of_new_process()
    assert [path.name for path in small_toolbox.parents[1].glob("kept*")] == ["kept.digest"]
    monkeypatch.setattr(identity, "_parsed", None)
    assert digest_of_new_process() == before, "it was parsed a second time"


def test_a_kept_digest_counts_for_the_same_text_versions_and_names_alone(
    small_toolbox, monkeypatch
):
    before = digest_of_new_process()
    small_toolbox.write_text('"""Other words."""\nGAIN = 1\n')
    assert digest_of_new_process() == before
    small_toolbox.write_text('"""Other words."""\nGAIN = 2\n')
    changed = digest_of_new_process()
    renamed = small_toolbox.rename(small_toolbox.with_name("other.py"))
    of_other_name = digest_of_new_process()
    assert len({before, changed, of_other_name}) == 3
    renamed.rename(small_toolbox)
    assert digest_of_new_process() == changed
    parsed = mock.Mock(return_value=b"")
    monkeypatch.setattr(identity, "_parsed", parsed)
    monkeypatch.setattr(identity, "package_versions", lambda: "another version of Python")
    digest_of_new_process()
    parsed.assert_called_once()


@pytest.mark.parametrize("damage", [b"", b"\xff", b"one", b"1 2 3"], ids=repr)
def test_a_damaged_kept_digest_is_computed_anew(small_toolbox, damage):
    before = digest_of_new_process()
    text, _ = identity.KEPT_DIGEST.read_text().split()
    for content in (damage, text.encode(), f"{text} 12".encode()):
        identity.KEPT_DIGEST.write_bytes(content)
        assert digest_of_new_process() == before


def test_a_digest_that_cannot_be_kept_is_computed_each_time(small_toolbox, monkeypatch):
    before = digest_of_new_process()
    nowhere = small_toolbox.parent / "missing" / "kept.digest"
    monkeypatch.setattr(identity, "KEPT_DIGEST", nowhere)
    assert digest_of_new_process() == before
    assert not nowhere.parent.exists()


@pytest.fixture(scope="module")
def simulated_configuration():
    """Configuration of a run that simulates a plant, as a dict."""
    return OmegaConf.to_container(compose_configuration(), resolve=True)


def test_the_toolbox_and_versions_count_for_jobs_and_trajectories(
    simulated_configuration, monkeypatch
):
    def digests():
        return [
            code_digest(),
            identity_of("a:b", SETTINGS),
            trajectory_key(simulated_configuration, 100),
        ]

    all_digests = digests()
    changes = {"package_versions": '{"numpy": "0"}', "_own_digest": "other source"}
    for name, value in changes.items():
        with monkeypatch.context() as context:
            context.setattr(identity, name, lambda value=value: value)
            all_digests += digests()
    assert len(set(all_digests)) == 9


def test_targets_of_libraries_and_launchers_do_not_count_as_code_of_a_job():
    settings = {
        "a": {"_target_": "sysid.Fixed"},
        "c": {"_target_": "numpy.array"},
        "note": "mine.plant.Plant",
    }
    launcher = {"hydra": {"launcher": {"_target_": "mine.plant.Plant"}}}
    assert code_digest(settings) == code_digest()
    assert code_digest(launcher) == code_digest()


# --- files and folders

CONFIGURATION_WITH_FILES = {
    "weather": {"file": "weather.csv"},
    "data": [{"folder": "records"}, "records/more"],
    # texts that name no file
    "n": 3,
    "long": 5000 * "x",
    "null": "a\0b",
    "gone": "gone",
    "e": "",
    "inputs": ["u"],
    "decimal": ".",
}


@pytest.fixture
def data_files(tmp_path, monkeypatch):
    """The working folder with a file, a file in a folder, and a folder named as an input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "records" / "more").mkdir(parents=True)
    (tmp_path / "u").mkdir()
    weather = tmp_path / "weather.csv"
    record = tmp_path / "records" / "more" / "a.csv"
    weather.write_text("1,2")
    record.write_text("3")
    return weather, record


def test_files_and_folders_count_by_their_content(data_files):
    weather, record = data_files
    before = file_digests(CONFIGURATION_WITH_FILES)
    assert before.keys() == {"weather.csv", "records", "records/more"}

    weather.write_text("1,3")
    other_weather = file_digests(CONFIGURATION_WITH_FILES)
    assert other_weather.keys() == before.keys()
    assert other_weather["weather.csv"] != before["weather.csv"]
    assert other_weather["records"] == before["records"]

    record.write_text("4")
    other_record = file_digests(CONFIGURATION_WITH_FILES)
    assert other_record.keys() == before.keys()
    assert other_record["records"] != before["records"]

    weather.write_text("1,2")
    record.write_text("3")
    assert file_digests(CONFIGURATION_WITH_FILES) == before


def test_names_of_files_in_a_folder_count(data_files):
    _, record = data_files
    before = file_digests(CONFIGURATION_WITH_FILES)
    record.rename(record.with_name("b.csv"))
    assert file_digests(CONFIGURATION_WITH_FILES)["records"] != before["records"]


@pytest.mark.usefixtures("data_files")
def test_hydra_cache_and_output_name_no_input():
    settings = {"hydra": {"a": "weather.csv"}, "cache": "records/", "output": "records/more"}
    assert file_digests(settings) == {}


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """The working folder, with a file and a folder of results."""
    folder = tmp_path / "work"
    (folder / "multirun").mkdir(parents=True)
    (folder / "a.csv").write_text("1")
    monkeypatch.chdir(folder)
    return folder


def test_results_below_the_working_folder_are_no_input(working_folder):
    before = file_digests({"path": "."})
    (working_folder / "multirun" / "result").write_text("2")
    assert file_digests({"path": "."}) == before
    (working_folder / "a.csv").write_text("3")
    assert file_digests({"path": "."}) != before


def test_a_variable_names_data_without_a_path(working_folder, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(working_folder))
    before = file_digests({"data": {"path": None}})
    assert before.keys() == {"SYSID_DATA"}
    assert file_digests({"data": {"path": "elsewhere"}}) == {}
    (working_folder / "a.csv").write_text("3")
    assert file_digests({"data": {"path": None}}) != before


def test_a_file_that_changed_in_place_is_read_again_and_otherwise_once(tmp_path, monkeypatch):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"1,2\n")
    state = path.stat()
    before = file_digests([str(path)])
    path.write_bytes(b"1,3\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert file_digests([str(path)]) != before
    monkeypatch.setattr(identity.hashlib, "file_digest", None)
    assert file_digests([str(path)]), "it was read a second time"


def test_a_file_that_cannot_be_read_is_marked_as_unreadable(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError

    path = tmp_path / "weather.csv"
    path.write_bytes(b"1,2\n")
    monkeypatch.setattr(identity, "_content_digest", refuse)
    assert file_digests([str(path)]) == {str(path): "unreadable"}


# --- trajectories

#: two plants that together have every kind of setting
PLANTS = {
    "building": ("system=building",),
    "excited": (
        "system=bouc_wen",
        "noise.snr_db=40",
        "+excitation@excitations.force=prbs",
        "excitation=recorded",
        "excitation.values=[1.0,2.0]",
    ),
}


def other_value(value):
    """Return a value that differs from this one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return float(np.nextafter(value, 1e9))
    if isinstance(value, str):
        return f"{value}x"
    return [value, 1]


def changes_of(content, path=()):
    """Yield the path of every value in nested dicts and lists, and another value for it.

    An empty dict or list counts as a value.
    """
    if isinstance(content, dict) and content:
        entries = content.items()
    elif isinstance(content, list) and content:
        entries = enumerate(content)
    else:
        yield path, other_value(content)
        return
    for name, value in entries:
        yield from changes_of(value, (*path, name))


def with_change(content, path, value):
    """Return a copy of nested dicts and lists with another value at a path."""
    copy = json.loads(json.dumps(content))
    parent = copy
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    return copy


@pytest.mark.parametrize("overrides", PLANTS.values(), ids=PLANTS.keys())
def test_every_setting_of_the_plant_and_every_unknown_one_changes_the_key_of_its_trajectory(
    overrides,
):
    config = compose_configuration(*overrides)
    content = OmegaConf.to_container(config, resolve=True) | {"own": {"law": 1}}
    key = trajectory_key(content, 100)
    assert trajectory_key(content, 101) != key
    plant_keys = SIMULATION_KEYS - {"duration", "identified", "limit"}
    plant_paths = set()
    paths_that_matter = set()
    for path, value in changes_of(content):
        if path[0] in plant_keys:
            plant_paths.add(path)
        if trajectory_key(with_change(content, path, value), 100) != key:
            paths_that_matter.add(path)
    assert len(plant_paths) > 20
    assert paths_that_matter == plant_paths | {("seed",), ("data",), ("own", "law")}


# --- composition


@pytest.fixture(scope="module")
def sweep_configuration(loader):
    """Configuration of a sweep of `sysid-identify`."""
    return load_sweep_configuration(loader, "hydra.verbose=true", "hydra/job_logging=disabled")


@pytest.mark.parametrize(
    "overrides",
    [
        [
            "system.dt=30",
            "system=building",
            "insertion.error_threshold=0.05",
            "insertion=error",
        ],
        ["experiment=building_thresholds", "reduction=prior_entropy"],
        [
            "~weather",
            "budget=17",
            "+excitations.a={b:[1,null],c:'x y'}",
            'weather_input="a,b"',
        ],
        ["+narx={_target_:own.Lags,outputs:{y:2}}", "kernel=matern_52", "noise={}"],
        [
            "system=van_der_pol",
            "seed=${budget}",
            "excited=[]",
            "+excitation@excitations.mass_flow=prbs",
        ],
    ],
    ids=["building", "experiment", "removed_and_added", "own_class", "interpolated"],
)
def test_a_job_is_what_hydra_composes(loader, sweep_configuration, overrides):
    composer = Composer(loader, sweep_configuration)
    ours = composer.compose(composer.parser.parse_overrides(overrides))
    of_hydra = loader.load_sweep_config(sweep_configuration, overrides)
    unresolved, unresolved_of_hydra = (
        OmegaConf.to_container(config, resolve=False, enum_to_str=True)
        for config in (ours, of_hydra)
    )
    assert unresolved == unresolved_of_hydra
    assert unresolved["hydra"]["overrides"]["task"] == overrides
    assert resolve(ours) == resolve(of_hydra)


def test_a_job_may_ask_for_its_folder(loader, tmp_path):
    folder = tmp_path / "sweep"
    composer = Composer(loader, load_sweep_configuration(loader, f"hydra.sweep.dir={folder}"))
    file_of_job = "weather_input=${hydra:runtime.output_dir}/${hydra:job.id}.csv"
    configuration, _, is_numbered = composer.job([file_of_job], 12)
    assert configuration["weather_input"] == f"{folder}/12/12.csv"
    assert configuration["hydra"]["sweep"]["subdir"] == "12"
    assert is_numbered


@pytest.fixture(scope="module")
def composer(loader, sweep_configuration):
    """Composer of jobs of `sysid-identify`."""
    return Composer(loader, sweep_configuration)


@pytest.mark.parametrize(
    "text", ["3", "0.5", "true", "null", "'a b'", "[a,'b,c']", "''", "100samples"]
)
def test_the_values_of_a_job_are_those_of_its_overrides(composer, text):
    configuration, values, is_numbered = composer.job([f"weather_input={text}", "insertion=error"])
    assert not is_numbered
    assert values["insertion"] == "error"
    configured = configuration["weather_input"]
    value = values["weather_input"]
    assert isinstance(value, bool | int | float | str | None)
    if isinstance(configured, list):
        value = yaml.safe_load(value)
    assert value == configured
