"""What a shared result depends on, and what not."""

import json

import numpy as np
import pytest
from numba import config as numba_config
from omegaconf import OmegaConf
from running import configured

from experiments.cache import key as key_module
from experiments.cache.key import LEARNING, PLANT, array_digest, key_of, learning_code, trajectory_key
from experiments.sources import SIMULATION

if numba_config.DISABLE_JIT:
    pytest.skip("nothing here is compiled", allow_module_level=True)

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


def leaves(content, path=()):
    """Path of every value in nested dicts and lists, and of every dict or list that is empty."""
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    if not entries or not content:
        yield path
    for name, value in entries:
        yield from leaves(value, (*path, name))


def changed(content, path):
    """A copy in which one value is another of the same type."""
    copy = json.loads(json.dumps(content))
    place = copy
    for name in path[:-1]:
        place = place[name]
    value = place[path[-1]]
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, float):
        other = np.nextafter(value, 1e9).item()
    elif isinstance(value, int):
        other = value + 1
    elif isinstance(value, str):
        other = value + "x"
    elif isinstance(value, list):
        other = [1]
    else:
        other = {"x": 1} if isinstance(value, dict) else 1
    place[path[-1]] = other
    return OmegaConf.create(copy)


@pytest.mark.parametrize("overrides", PLANTS.values(), ids=PLANTS)
def test_every_setting_of_the_plant_changes_the_key_and_no_other_does(overrides):
    config = configured(*overrides)
    content = OmegaConf.to_container(config, resolve=True)
    before = trajectory_key(config, 100)
    assert before == trajectory_key(OmegaConf.create(content), 100)
    matter, others = [], []
    for path in leaves(content):
        (others if trajectory_key(changed(content, path), 100) == before else matter).append(path)
    is_plant = {path for path in leaves(content) if path[0] in SIMULATION - {"duration", "identified"}}
    assert {path for path in matter if path != ("seed",)} == is_plant
    assert ("seed",) in matter
    assert len(is_plant) > 20
    groups = {path[0] for path in others}
    assert {"insertion", "acceptance", "reduction", "selection", "budget", "training", "identified", "cache"} <= groups


def test_the_number_of_samples_changes_the_key():
    config = configured()
    assert trajectory_key(config, 100) != trajectory_key(config, 101)


@pytest.mark.parametrize("group", ["weather=measured weather.path={}", "excitation=recorded excitation.path={}"])
def test_the_content_of_a_file_changes_the_key_and_its_time_does_not(group, tmp_path):
    path = tmp_path / "record.csv"
    path.write_text("t\n1\n2\n")
    config = configured(*group.format(path).split())
    before = trajectory_key(config, 100)
    path.write_text("t\n1\n2\n")
    assert trajectory_key(config, 100) == before
    path.write_text("t\n1\n3.0\n")
    assert trajectory_key(config, 100) != before


def test_the_code_changes_the_keys(monkeypatch):
    config = configured()
    before = trajectory_key(config, 100), learning_code(config)
    monkeypatch.setattr(key_module, "code_digest", lambda part: f"other code of {sorted(part)}")
    after = trajectory_key(config, 100), learning_code(config)
    assert not set(before) & set(after)
    assert after[1] == f"other code of {sorted(LEARNING)}"


def test_a_foreign_system_counts_for_the_trajectory_and_a_foreign_kernel_for_the_training(monkeypatch):
    seen = {}
    monkeypatch.setattr(key_module, "code_digest", lambda part: seen.setdefault(tuple(sorted(part)), "code"))
    config = configured()
    trajectory_key(config, 100)
    learning_code(config)
    assert seen.keys() == {tuple(sorted(PLANT)), tuple(sorted(LEARNING))}


def test_a_key_is_that_of_the_content_in_any_order():
    assert key_of({"a": 1, "b": [0.1]}) == key_of({"b": [0.1], "a": 1})
    assert len({key_of({"a": value}) for value in (0.1, 0.1 + 1e-17, np.nextafter(0.1, 1), "0.1", [0.1], None)}) == 5
    assert key_of({"path": np.float32(1)}) != key_of({"path": np.float32(2)})


def test_arrays_count_by_type_shape_and_bytes():
    one = np.arange(6.0)
    others = [one, one.reshape(2, 3), one.reshape(3, 2), one.astype(int), one + np.spacing(one), -one]
    assert len({array_digest(other) for other in others}) == len(others)
    assert array_digest(one.reshape(2, 3)) == array_digest(np.asfortranarray(one.reshape(2, 3)))
    assert array_digest(one[:2], one[2:]) != array_digest(one[:3], one[3:])
