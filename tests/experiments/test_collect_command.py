"""`sysid-collect`: from the folder of a sweep to files, or to one line that says what is wrong."""

import json
import sys
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from running import PLAIN
from sweeping import summary_like, write_sweep

from experiments.collect import main, mark_folder, quote
from experiments.collection.run import run
from sysid import store

FILES = {"sweep.nc", "sweep.csv", "sweep.md"}
FIGURES = {"against_error_threshold.png", "pareto_front.png"}


@pytest.fixture
def sweep(tmp_path):
    values = {"insertion.error_threshold": [0.2, 0.05], "seed": [0, 1]}
    return write_sweep(tmp_path / "s", values, summary_like, fail=(1,), skip=(2,))


def collect(source, **settings):
    defaults = {"folder": str(source), "output": None, "metrics": None, "records": None, "figures": False}
    run(OmegaConf.create(defaults | settings), Path())


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(PLAIN, reason="the command is the same without the compiler")
def test_the_command(sweep, monkeypatch, capsys):
    """A folder of any name; nothing else is changed; the same again but for the time."""

    def command(*arguments):
        GlobalHydra.instance().clear()
        monkeypatch.setattr(sys, "argv", ["sysid-collect", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    sweep = sweep.rename(sweep.with_name("it's, a=b ${x} {é} [1]"))
    monkeypatch.chdir(sweep.parent)
    before = files(sweep)
    told = command(sweep.name)
    assert told.startswith("4 jobs: 2 done, 1 failed, 1 missing. Grid: 2 error_threshold x 2 seed.\n")
    for words in ("Job 1: ValueError: it did not work", "stand in sweep.md", "start the sweep again"):
        assert words in told
    after = files(sweep)
    assert after.keys() - before.keys() == FILES | FIGURES
    assert before.items() <= after.items()
    assert all(after[name].startswith(b"\x89PNG") for name in FIGURES)
    assert list(sweep.parent.iterdir()) == [sweep]
    command("figures=false", sweep.name, "output=deep/other")
    other = sweep.parent / "deep" / "other"
    assert {name for name in FILES if files(other)[name] == after[name]} == {"sweep.csv", "sweep.md"}
    one, two = (store.read(folder / "sweep.nc", kind="sweep") for folder in (sweep, other))
    assert one.drop_attrs().identical(two.drop_attrs())
    command(sweep.name, "metrics=[times_loop,smse]", "figures=false")
    assert set(store.read(sweep / "sweep.nc", kind="sweep")) == {"status", "number", "timed", "times_loop", "smse"}
    (sweep / "sweep.csv").unlink()
    (sweep / "sweep.nc").unlink()
    (sweep / "sweep.csv").mkdir()  # a file that fails keeps nothing back
    for folder, told in (("nowhere", "Error: no folder nowhere"), (sweep.name, "Error: could not write")):
        with pytest.raises(SystemExit) as end:
            command(folder)
        assert (end.value.code, told in capsys.readouterr().out) == (1, True)
    assert (sweep / "sweep.nc").exists()


def test_any_text_is_quoted():
    for text in ("it's", "a\\b", "\\", "\\'", "'\\", "${x}", "\\${x}", "\\\\${", ", =", "é[(\":'"):
        parsed = OverridesParser.create().parse_override(f"folder={quote(text)}").value()
        assert OmegaConf.create({"folder": parsed}).folder == text


def test_the_folder_among_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    assert mark_folder(["a=b", "figures=false"]) == ["folder='a=b'", "figures=false"]
    assert mark_folder(["a=c", "x"]) == ["a=c", "folder='x'"]
    assert mark_folder(["--config-dir", "x", "y"]) == ["--config-dir", "x", "folder='y'"]
    assert mark_folder(["folder=x", "--cfg=job"]) == ["folder=x", "--cfg=job"]


def plan(folder, *jobs, **changed):
    """Another manifest: other jobs, or other entries."""
    content = json.loads((folder / "sweep.json").read_text()) | changed
    planned = [{"number": 0, "identity": "x", "overrides": [], "values": {}} | job for job in jobs]
    (folder / "sweep.json").write_text(json.dumps(content | {"jobs": planned or content["jobs"]}))
    return folder


SPOILED = {
    "no folder .*nowhere": lambda s: s / "nowhere",
    "no sweep folder, .*name the folder that has": lambda s: s.parent,
    "schema_version 99": lambda s: plan(s, schema_version=99),
    "is damaged.*wrong": lambda s: plan(s, {"wrong": 0}),
    "a number of a job twice": lambda s: plan(s, {"number": "../.."}, {"number": "../.."}),
    "none of the 1 jobs": lambda s: plan(s, {}),
}
MISTAKES = {
    "no job has 'covrage_95'.* did you mean 'coverage_95'": {"metrics": ["smse", "covrage_95"]},
    "at least one name": {"metrics": []},
    "figures must be true or false": {"figures": 3},
    "output must be the name of a folder": {"output": ["a"]},
    "set output to another": {"output": "s/sweep.json"},
    "expected the folder of a sweep": {"folder": None},
    "records is not there any more": {"records": ["mean"]},
}


@pytest.mark.parametrize("words", [*SPOILED, *MISTAKES])
def test_what_is_no_sweep_and_mistakes_change_nothing(words, sweep, monkeypatch):
    monkeypatch.chdir(sweep.parent)
    (sweep / "0" / "other").mkdir()
    (sweep / "0" / "other" / "a.txt").touch()
    folder = SPOILED[words](sweep) if words in SPOILED else sweep
    before = files(sweep)
    with pytest.raises((store.StoreError, ValueError), match=words):
        collect(folder, **MISTAKES.get(words, {}))
    assert files(sweep) == before
