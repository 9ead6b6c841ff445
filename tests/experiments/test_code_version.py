"""Digests of the code and of the files that a configuration names."""

import hashlib
import os
import sys
from types import ModuleType

import pytest
from omegaconf import OmegaConf

from experiments import code_version
from experiments.code_version import code_digest, file_digests, source_digest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the user's own, a module that lies in none, and the digest of a class in each, read anew."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plant.py").write_text("class Plant: pass\n")
    (tmp_path / "mine" / "detail.py").write_text("GAIN = 1\n")
    (tmp_path / "alone_in_its_file.py").write_text("class Plant: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest(target):
        code_version._module_digest.cache_clear()
        return code_digest({"system": {"_target_": target}})

    return tmp_path, digest


def test_every_module_counts_with_its_name(tmp_path):
    (tmp_path / "inner").mkdir()
    for name, text in (("__init__.py", ""), ("b.py", "b = 1\n"), ("inner/a.py", "a = 1\n"), ("data.csv", "1\n")):
        (tmp_path / name).write_text(text)
    module = ModuleType("package")
    module.__file__ = str(tmp_path / "__init__.py")
    expected = hashlib.sha256(b"__init__.py" + b"b.py" + b"b = 1\n" + b"inner/a.py" + b"a = 1\n").hexdigest()
    assert source_digest(module) == expected
    (tmp_path / "data.csv").write_text("2\n")
    assert source_digest(module) == expected
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    assert source_digest(module) != expected


def test_the_packages_and_their_versions_count(monkeypatch):
    before = code_digest()
    assert before == code_digest({}) == code_digest(None)
    monkeypatch.setattr(code_version, "package_versions", lambda: '{"numpy": "0"}')
    assert code_digest() != before
    monkeypatch.undo()
    monkeypatch.setattr(code_version, "_own_digest", lambda: "other source")
    assert code_digest() != before


def test_own_and_standard_targets_add_nothing():
    own = {
        "a": {"_target_": "sysid.Fixed"},
        "b": [{"_target_": "math.sqrt"}],
        "c": {"_target_": "numpy.array"},
    }
    assert code_digest(own) == code_digest() == code_digest(OmegaConf.create(own))


def test_the_package_of_a_target_counts_and_is_not_imported(package):
    folder, digest = package
    before = digest("mine.plant.Plant")
    assert before not in {code_digest(), digest("alone_in_its_file.Plant")}
    assert before == digest("mine.detail.Other")
    (folder / "mine" / "detail.py").write_text("GAIN = 2\n")
    assert digest("mine.plant.Plant") != before
    assert not {"mine", "mine.plant", "alone_in_its_file"} & sys.modules.keys()


def test_the_file_of_a_target_counts(package):
    folder, digest = package
    before = digest("alone_in_its_file.Plant")
    (folder / "mine" / "detail.py").write_text("GAIN = 2\n")
    assert digest("alone_in_its_file.Plant") == before
    (folder / "alone_in_its_file.py").write_text("class Plant: gain = 2\n")
    assert digest("alone_in_its_file.Plant") != before


def test_a_target_anywhere_counts_but_not_that_of_the_launcher(package):
    _, digest = package
    deep = {"baseline": {"a": [{"inner": {"_target_": "mine.plant.Plant"}}]}}
    assert code_digest(deep) == digest("mine.plant.Plant")
    assert code_digest({"hydra": {"launcher": {"_target_": "mine.plant.Plant"}}}) == code_digest()
    assert code_digest({"note": "mine.plant.Plant"}) == code_digest()


def test_a_module_that_is_missing_is_left_to_who_needs_it(package):
    _, digest = package
    assert digest("not_there.Plant") != code_digest()


def test_files_that_a_configuration_names(tmp_path):
    path, other = tmp_path / "weather.csv", tmp_path / "other.csv"
    path.write_bytes(b"1,2\n")
    other.write_bytes(b"3\n")
    texts = {
        "n": 3,
        "long": 5000 * "x",
        "null": "a\0b",
        "folder": str(tmp_path),
        "gone": str(tmp_path / "gone"),
        "e": "",
    }
    config = {"weather": {"path": str(path)}, "data": {"test": [str(other), str(path)]}, **texts}
    expected = {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in (path, other)}
    assert file_digests(config) == expected == file_digests(OmegaConf.create(config))
    assert file_digests({"hydra": {"path": str(path)}}) == {}


def test_a_file_that_changed_in_place_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"1,2\n")
    state = path.stat()
    before = file_digests([str(path)])
    path.write_bytes(b"1,3\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert file_digests([str(path)]) == {str(path): hashlib.sha256(b"1,3\n").hexdigest()} != before
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert file_digests([str(path)])  # not read a second time


def test_a_file_that_cannot_be_read_is_left_to_who_needs_it(tmp_path, monkeypatch):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"1,2\n")

    def refused(*arguments):
        raise PermissionError

    monkeypatch.setattr(code_version, "_content_digest", refused)
    assert file_digests([str(path)]) == {str(path): "unreadable"}
