"""Configurations that files state: compared as plain data, whoever has written them."""

import time
from itertools import pairwise

import pytest
from omegaconf import OmegaConf

from experiments.compare import run as comparison
from experiments.files.stated import (
    MAX_CONFIGURATION_CHARACTERS,
    MAX_NESTING_LEVELS,
    read_configuration,
    state_alike,
    text_of,
)

SETTINGS = {
    "system": {
        "_target_": "simulators.VanDerPol",
        "dt": 1e-5,
        "parts": [1, None, "1e3", "${seed}"],
    },
    "seed": 0,
}
TEXT = OmegaConf.to_yaml(SETTINGS)
BOMB = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij")
)
STRANGE = {
    "object": "system: !!python/object/apply:os.system ['touch made']\n",
    "bomb": BOMB + "system: *j\n",
    "circle": "system: &a {b: *a}\n",
    "long": TEXT + "# " + MAX_CONFIGURATION_CHARACTERS * "x",
    "deep": "system: " + (MAX_NESTING_LEVELS + 1) * "[" + (MAX_NESTING_LEVELS + 1) * "]",
    "deeper": "system: " + 30_000 * "[" + 30_000 * "]",
    "number": "system: 0x" + 60_000 * "f",
    "date": "system: 2020-99-99",
    "broken": "system: [1, 2",
    "list": "- system\n",
    "text": "system",
    "empty": "",
    "no text": 3,
}


def test_what_a_run_writes_is_read_and_interpolations_stay_texts():
    assert read_configuration(TEXT) == SETTINGS
    assert text_of({"b": True, "a": [1, 1.0, None]}) == "a:\n- 1\n- 1.0\n- null\nb: true"


@pytest.mark.parametrize("strange", STRANGE)
def test_what_a_stranger_writes_runs_nothing_and_counts_as_different(
    strange, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    start = time.perf_counter()
    text = STRANGE[strange]
    assert read_configuration(text) is None
    assert not state_alike(text, text, "system")
    assert time.perf_counter() - start < 5
    assert not list(tmp_path.iterdir())


def test_settings_are_alike_whatever_their_order_and_not_if_one_differs():
    turned = OmegaConf.to_yaml({"seed": 1, "system": dict(reversed(SETTINGS["system"].items()))})
    assert state_alike(TEXT, turned, "system")
    assert not state_alike(TEXT, turned, "seed")
    assert not state_alike(TEXT, TEXT, "noise")  # neither states it
    assert not state_alike("seed: 1", "seed: 1.0", "seed")
    assert not state_alike("seed: 1", "seed: true", "seed")
    assert state_alike("seed: .nan", "seed: .nan", "seed")


def test_a_class_that_moved_is_the_same_class():
    one, other = (
        f"data:\n  _target_: {name}.Functions\n"
        for name in ("experiments.function_data", "experiments.plant.functions")
    )
    assert state_alike(one, other, "data")


def test_a_comparison_says_whose_configuration_cannot_be_read(monkeypatch):
    texts = {
        "one": "seed: 0\n",
        "two": "seed: 0\nsystem: {}\n",
        "three": "seed: 3\n",
        "strange": BOMB,
    }
    monkeypatch.setattr(comparison, "header", lambda name: {"configuration": texts[name]})
    (differ, lost) = comparison.note_differences({name: name for name in texts})
    assert differ.endswith(
        "learned from: seed (one 0, two 0, three 3), system (one , two {}, three )"
    )
    assert lost.endswith("in the file of strange")
