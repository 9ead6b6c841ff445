"""Configurations in files are compared as plain data, whoever has written the files."""

import time
from itertools import pairwise

import pytest
from omegaconf import OmegaConf

from experiments.compare import run as compare
from experiments.files.stated import (
    MAX_CONFIGURATION_CHARACTERS,
    MAX_NESTING_LEVELS,
    chooses_lags,
    read_configuration,
    screens_records,
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


def expanding_text():
    """Return a short YAML text whose last list would hold 2 * 9**9 entries."""
    lines = ["a: &a [x, x]"]
    for previous, name in pairwise("abcdefghij"):
        entries = ", ".join([f"*{previous}"] * 9)
        lines.append(f"{name}: &{name} [{entries}]")
    return "\n".join(lines) + "\n"


def nested_text(n_levels):
    """Return a YAML text with nested lists."""
    return "system: " + n_levels * "[" + n_levels * "]"


UNREADABLE = {
    "object": "system: !!python/object/apply:os.system ['touch made']\n",
    "expanding": expanding_text() + "system: *j\n",
    "circle": "system: &a {b: *a}\n",
    "long": TEXT + "# " + MAX_CONFIGURATION_CHARACTERS * "x",
    "deep": nested_text(MAX_NESTING_LEVELS + 1),
    "deeper": nested_text(30_000),
    "number": "system: 0x" + 60_000 * "f",
    "set": "system: !!set {a, b}",
    "bytes": "system: !!binary QUJD",
    "pairs": "system: !!omap [a: 1]",
    "date with a tag": "system: !!timestamp 2020-01-02",
    "broken": "system: [1, 2",
    "list": "- system\n",
    "text": "system",
    "empty": "",
    "no text": 3,
}


def test_a_configuration_is_read_and_interpolations_stay_texts():
    assert read_configuration(TEXT) == SETTINGS


@pytest.mark.parametrize("date", ["2020-01-02", "2020-99-99", "2020-01-02T03:04:05Z"])
def test_a_date_is_the_text_that_hydra_reads(date):
    assert read_configuration(f"start: {date}") == {"start": date}
    assert OmegaConf.create(f"start: {date}") == {"start": date}


def test_settings_are_written_in_the_order_of_their_keys():
    assert text_of({"b": True, "a": [1, 1.0, None]}) == "a:\n- 1\n- 1.0\n- null\nb: true"


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_text_of_a_stranger_runs_nothing_and_counts_as_different(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = time.process_time()
    assert read_configuration(text) is None
    assert not state_alike(text, text, "system")
    assert time.process_time() - start < 5
    assert not list(tmp_path.iterdir())


def test_settings_are_alike_in_any_order():
    reversed_system = dict(reversed(SETTINGS["system"].items()))
    reordered = OmegaConf.to_yaml({"seed": 1, "system": reversed_system})
    assert state_alike(TEXT, reordered, "system")
    assert not state_alike(TEXT, reordered, "seed")


def test_settings_that_neither_text_has_are_not_alike():
    assert not state_alike(TEXT, TEXT, "noise")


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [("1", "1.0", False), ("1", "true", False), (".nan", ".nan", True)],
)
def test_values_are_alike_if_type_and_value_are(first, second, alike):
    assert state_alike(f"seed: {first}", f"seed: {second}", "seed") == alike


def test_a_class_that_moved_is_the_same_class():
    before, now = (
        f"data:\n  _target_: {module}.Functions\n"
        for module in ("experiments.function_data", "experiments.plant.functions")
    )
    assert state_alike(before, now, "data")


def test_a_comparison_names_the_file_whose_configuration_cannot_be_read(monkeypatch):
    texts = {
        "one": "seed: 0\n",
        "two": "seed: 0\nsystem: {}\n",
        "three": "seed: 3\n",
        "strange": expanding_text(),
    }
    monkeypatch.setattr(compare, "header", lambda name: {"configuration": texts[name]})
    differences, unreadable = compare.note_differences({name: name for name in texts})
    assert differences.endswith(
        "learned from: seed (one 0, two 0, three 3), system (one , two {}, three )"
    )
    assert unreadable.endswith("in the file of strange")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("narx: {_target_: experiments.plant.lags.AutomaticNarx}", True, id="auto"),
        pytest.param("narx: {_target_: sysid.Orders, na: 1}", False, id="orders"),
        pytest.param("narx: [1]", False, id="list"),
        pytest.param("seed: 0", False, id="no_lags"),
        pytest.param("a: [", False, id="damaged"),
        pytest.param(None, False, id="none"),
    ],
)
def test_a_configuration_states_whether_the_toolbox_chooses_the_lags(text, expected):
    assert chooses_lags(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("gate: 4.0", True, id="gate"),
        pytest.param("gate: none", False, id="none"),
        pytest.param("gate: null", False, id="null"),
        pytest.param("gate: [1]", True, id="list"),
        pytest.param("seed: 0", True, id="not_stated"),
        pytest.param("a: [", True, id="damaged"),
        pytest.param(None, True, id="no_text"),
    ],
)
def test_a_configuration_states_whether_records_are_screened(text, expected):
    assert screens_records(text) == expected
