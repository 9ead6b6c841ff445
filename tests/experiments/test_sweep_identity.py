"""What decides a job and a shared trajectory, and what does not: settings, code, input files and folders."""

import json
import os
import sys

import numpy as np
import pytest
from numba import config as numba_config
from omegaconf import OmegaConf
from running import configured

from experiments.sources import SIMULATION
from experiments.sweeps import identity
from experiments.sweeps.cache import array_digest
from experiments.sweeps.identity import code_digest, file_digests, identity_of, key_of, trajectory_key

if numba_config.DISABLE_JIT:
    pytest.skip("nothing here is compiled", allow_module_level=True)

SETTINGS = {
    "seed": 1,
    "outputs": "lean",
    "figures": True,
    "cache": "/somewhere",
    "path": None,
    "system": {"_target_": "simulators.VanDerPol", "dt": 0.1, "lags": [1, 2]},
    "hydra": {"launcher": {"_target_": "x"}, "job": {"num": 3}},
}


def test_every_setting_makes_another_job_and_how_it_is_run_does_not():
    before = identity_of("a:b", SETTINGS)
    for change in (
        *({"seed": 2}, {"seed": "1"}, {"seed": None}, {"outputs": "full"}, {"more": None}),
        {"system": SETTINGS["system"] | {"dt": 0.1 + 1e-16}},
        {"system": SETTINGS["system"] | {"lags": [2, 1]}},
        {"system": SETTINGS["system"] | {"_target_": "simulators.BoucWen"}},
    ):
        assert identity_of("a:b", SETTINGS | change) != before
    assert identity_of("a:c", SETTINGS) != before
    for change in ({"cache": None}, {"hydra": {"launcher": {"workers": 7}}}, {"outputs": None}, {"figures": False}):
        assert identity_of("a:b", SETTINGS | change) == before
    assert identity_of("a:b", dict(reversed(SETTINGS.items()))) == before
    full = [identity_of("a:b", SETTINGS | {"outputs": "full", "figures": figures}) for figures in (True, False)]
    assert full[0] != full[1]


# --- code


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Folder with a package of the user's own and a module that lies in none; the digest of a class, read anew."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plant.py").write_text("class Plant: pass\n")
    (tmp_path / "mine" / "detail.py").write_text('"""Words."""\nGAIN = 1\n\n\ndef f(x):\n    return x + 1\n')
    (tmp_path / "alone_in_its_file.py").write_text("class Plant: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest(target):
        identity._module_digest.cache_clear()
        return code_digest({"system": [{"deep": {"_target_": target}}]})

    return tmp_path, digest


def test_words_do_not_count_and_what_computes_does(package):
    folder, digest = package
    before = digest("mine.plant.Plant")
    assert before not in {code_digest(), digest("alone_in_its_file.Plant"), digest("not_there.Plant")}
    assert before == digest("mine.detail.Other")
    words = (
        '"""Other words\nin two lines."""\n\nGAIN = 1  # of the plant\n\n\ndef f(x):\n    "What."\n\n    return x + 1\n'
    )
    (folder / "mine" / "detail.py").write_text(words)
    assert digest("mine.plant.Plant") == before
    found = {before}
    changes = [("+ 1", "+ 2"), ("x + 1", "x - 1"), ("GAIN", "GAIM"), ("(x)", "(x=1)"), ("= 1", "= {'a', 'b'}")]
    for old, new in changes:
        (folder / "mine" / "detail.py").write_text(words.replace(old, new))
        found.add(digest("mine.plant.Plant"))
    (folder / "mine" / "detail.py").write_text(words)
    (folder / "mine" / "detail.py").rename(folder / "mine" / "details.py")
    found.add(digest("mine.plant.Plant"))
    assert len(found) == len(changes) + 2
    assert not {"mine", "mine.plant", "alone_in_its_file"} & sys.modules.keys()
    before = digest("alone_in_its_file.Plant")  # a module in no package counts alone, also one that cannot be imported
    (folder / "mine" / "details.py").write_text("GAIN = 2\n")
    assert digest("alone_in_its_file.Plant") == before
    for text in ("class Plant: gain = 2\n", "class Plant: gain = = 2\n"):
        (folder / "alone_in_its_file.py").write_text(text)
        assert digest("alone_in_its_file.Plant") != before


def test_the_toolbox_and_versions_count_for_jobs_and_trajectories(monkeypatch):
    def digests():
        return [code_digest(), identity_of("a:b", SETTINGS), trajectory_key(configured(), 100)]

    found = [digests()]
    monkeypatch.setattr(identity, "package_versions", lambda: '{"numpy": "0"}')
    found.append(digests())
    monkeypatch.undo()
    monkeypatch.setattr(identity, "_own_digest", lambda: "other source")
    found.append(digests())
    assert len({one for digests in found for one in digests}) == 9
    monkeypatch.undo()
    own = {"a": {"_target_": "sysid.Fixed"}, "b": [{"_target_": "math.sqrt"}], "c": {"_target_": "numpy.array"}}
    launcher = {"hydra": {"launcher": {"_target_": "mine.plant.Plant"}}, "note": "mine.plant.Plant"}
    assert code_digest(own) == code_digest(OmegaConf.create(own)) == code_digest(launcher) == found[0][0]


# --- files and folders


def test_files_and_folders_count_by_their_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "records" / "more").mkdir(parents=True)
    (tmp_path / "u").mkdir()
    path, deep = tmp_path / "weather.csv", tmp_path / "records" / "more" / "a.csv"
    texts = {"n": 3, "long": 5000 * "x", "null": "a\0b", "gone": "gone", "e": "", "inputs": ["u"], "decimal": "."}
    config = {"weather": {"file": "weather.csv"}, "data": [{"folder": "records"}, "records/more"], **texts}
    found = []
    for one, two in (("1,2", "3"), ("1,3", "3"), ("1,3", "4"), ("1,2", "3")):
        path.write_text(one)
        deep.write_text(two)
        found.append(file_digests(config))
        assert found[-1].keys() == {"weather.csv", "records", "records/more"}
    assert found[0] == found[3] == file_digests(OmegaConf.create(config))
    assert found[1]["records"] == found[0]["records"] != found[2]["records"]
    assert found[1]["weather.csv"] != found[0]["weather.csv"]
    deep.rename(deep.with_name("b.csv"))
    assert file_digests(config)["records"] != found[0]["records"]
    assert file_digests({"hydra": {"a": "weather.csv"}, "cache": "records/", "output": "records/more"}) == {}


def test_results_below_the_working_folder_are_no_input_and_the_variable_names_data_without_a_path(
    tmp_path, monkeypatch
):
    work = tmp_path / "work"
    (work / "multirun").mkdir(parents=True)
    (work / "a.csv").write_text("1")
    monkeypatch.chdir(work)
    before = file_digests({"path": "."})
    (work / "multirun" / "result").write_text("2")
    assert file_digests({"path": "."}) == before
    (work / "a.csv").write_text("2")
    assert file_digests({"path": "."}) != before
    monkeypatch.setenv("SYSID_DATA", str(work))
    before = file_digests({"data": {"path": None}})
    assert (before.keys(), file_digests({"data": {"path": "elsewhere"}})) == ({"SYSID_DATA"}, {})
    (work / "a.csv").write_text("3")
    assert file_digests({"data": {"path": None}}) != before
    monkeypatch.delenv("SYSID_DATA")
    assert file_digests({"data": {"path": None}}) == {}


def test_a_file_that_changed_in_place_is_read_again_and_else_once(tmp_path, monkeypatch):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"1,2\n")
    state = path.stat()
    before = file_digests([str(path)])
    path.write_bytes(b"1,3\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert file_digests([str(path)]) != before
    monkeypatch.setattr(identity.hashlib, "file_digest", None)
    assert file_digests([str(path)])  # not read a second time

    def refuse(*arguments):
        raise PermissionError

    monkeypatch.setattr(identity, "_content_digest", refuse)
    assert file_digests([str(path)]) == {str(path): "unreadable"}
    monkeypatch.setattr(identity, "LARGE", 2)
    assert file_digests({"path": str(tmp_path)}) != file_digests([])  # by size and time


# --- trajectories

#: two plants that together have every kind of setting
PLANTS = {
    "building": ("system=building",),
    "excited": (
        *("system=bouc_wen", "noise.snr_db=40", "+excitation@excitations.force=prbs"),
        *("excitation=recorded", "excitation.values=[1.0,2.0]"),
    ),
}


def leaves(content, path=()):
    """Path of every value in nested dicts and lists, and of every dict or list that is empty."""
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    if not entries or not content:
        yield path
    for name, value in entries:
        yield from leaves(value, (*path, name))


def changed(content, path):
    """A copy in which one value is another."""
    place = copy = json.loads(json.dumps(content))
    for name in path[:-1]:
        place = place[name]
    value = place[path[-1]]
    other = {float: np.nextafter, bool: lambda v, _: not v, str: lambda v, _: f"{v}x"}.get(
        type(value), lambda v, _: [v, 1]
    )
    place[path[-1]] = np.asarray(other(value, 1e9)).tolist() if isinstance(value, float) else other(value, None)
    return OmegaConf.create(copy)


@pytest.mark.parametrize("overrides", PLANTS.values(), ids=PLANTS)
def test_every_setting_of_the_plant_and_every_unknown_one_changes_the_key_of_its_trajectory(overrides):
    config = configured(*overrides)
    content = OmegaConf.to_container(config, resolve=True) | {"own": {"law": 1}}
    before = trajectory_key(OmegaConf.create(content), 100)
    assert before != trajectory_key(OmegaConf.create(content), 101)
    matter = {path for path in leaves(content) if trajectory_key(changed(content, path), 100) != before}
    plant = {path for path in leaves(content) if path[0] in SIMULATION - {"duration", "identified"}}
    assert len(plant) > 20
    assert matter == plant | {("seed",), ("data",), ("own", "law")}


def test_the_content_of_a_file_changes_the_key_of_a_trajectory(tmp_path):
    path = tmp_path / "record.csv"
    config = configured("weather=measured", f"weather.path={path}")
    found = []
    for content in ("t\n1\n2\n", "t\n1\n2\n", "t\n1\n3.0\n"):
        path.write_text(content)
        found.append(trajectory_key(config, 100))
    assert found[0] == found[1] != found[2]


def test_keys_and_arrays_count_exactly():
    assert key_of({"a": 1, "b": [0.1]}) == key_of({"b": [0.1], "a": 1})
    assert len({key_of({"a": value}) for value in (0.1, 0.1 + 1e-17, np.nextafter(0.1, 1), "0.1", [0.1], None)}) == 5
    one = np.arange(6.0)
    others = [one, one.reshape(2, 3), one.reshape(3, 2), one.astype(int), one + np.spacing(one), -one]
    assert len({array_digest(other) for other in others}) == len(others)
    assert array_digest(one.reshape(2, 3)) == array_digest(np.asfortranarray(one.reshape(2, 3)))
    assert array_digest(one[:2], one[2:]) != array_digest(one[:3], one[3:])
