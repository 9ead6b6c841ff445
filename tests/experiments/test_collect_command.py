"""`sysid-collect`: from the folder of a sweep to files, or to one line that says what is wrong."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from running import CONF, PLAIN
from sweeping import summary_like, write_sweep

from experiments.collection.argument import quoted, with_folder
from experiments.collection.run import run
from sysid import store

VALUES = {"insertion.error_threshold": [0.2, 0.05], "seed": [0, 1]}
FILES = {"sweep.nc", "sweep.csv", "sweep.md"}


@pytest.fixture
def sweep(tmp_path):
    return write_sweep(tmp_path / "s", VALUES, summary_like, fail=(1,), skip=(2,))


def collect(folder, *overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("collect", overrides=[f"folder={quoted(str(folder))}", "figures=false", *overrides])
    run(config, Path())


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_and_words(sweep, caplog):
    caplog.set_level("INFO")
    before = files(sweep)
    collect(sweep)
    after = files(sweep)
    assert {str(path) for path in after.keys() - before.keys()} == FILES
    assert before.items() <= after.items()
    assert "4 jobs: 2 done, 1 failed, 1 missing" in caplog.text
    assert "Job 1: ValueError: it did not work" in caplog.text
    assert "start the sweep again" in caplog.text


def test_the_same_again_but_for_the_time(sweep, tmp_path):
    collect(sweep, f"output={tmp_path}/one")
    collect(sweep, f"output={tmp_path}/deep/two")
    one, two = files(tmp_path / "one"), files(tmp_path / "deep" / "two")
    assert {name for name in one if one[name] != two[name]} == {Path("sweep.nc")}
    found = [store.read(folder / "sweep.nc", kind="sweep") for folder in (tmp_path / "one", tmp_path / "deep" / "two")]
    assert found[0].drop_attrs().identical(found[1].drop_attrs())
    assert {name for name in found[0].attrs if found[0].attrs[name] != found[1].attrs[name]} <= {"creation_time"}
    assert not FILES & {path.name for path in sweep.iterdir()}


def test_chosen_metrics(sweep):
    collect(sweep, "metrics=[times_loop,smse]")
    found = store.read(sweep / "sweep.nc", kind="sweep")
    assert set(found) == {"status", "number", "timed", "times_loop", "smse"}
    collect(sweep, "metrics=rmse")
    assert set(store.read(sweep / "sweep.nc", kind="sweep")) == {"status", "number", "rmse"}


def test_figures_show_what_is_stored(sweep, monkeypatch):
    """One file for each drawing, made from the data set that the file holds."""
    from matplotlib.figure import Figure

    shown = []
    monkeypatch.setattr(
        "experiments.collection.figures.drawings",
        lambda dataset: shown.append(dataset) or {name: lambda: Figure((1, 1)) for name in ("one", "two")},
    )
    collect(sweep, "figures=true")
    stored = store.read(sweep / "sweep.nc", kind="sweep")
    assert stored.drop_attrs().identical(shown[0].drop_attrs())
    for name in ("one", "two"):
        assert (sweep / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    collect(sweep)
    assert len(shown) == 1


def test_a_figure_that_fails_keeps_nothing_back(sweep, monkeypatch):
    def fail(dataset):
        raise RuntimeError("no figure")

    monkeypatch.setattr("experiments.collection.figures.drawings", fail)
    with pytest.raises(RuntimeError, match="no figure"):
        collect(sweep, "figures=true")
    assert {path.name for path in sweep.iterdir()} >= FILES


def test_a_folder_of_any_name(tmp_path):
    folder = write_sweep(tmp_path / "it's, a=b ${x} {é} [1]", {"seed": [0]}, summary_like)
    collect(folder)
    assert (folder / "sweep.nc").is_file()


@pytest.mark.parametrize("characters", ["a\\'${", ", =\\'", 'é[(":'])
def test_any_text_is_quoted(characters):
    parser = OverridesParser.create()
    for length in range(1, 5):
        for letters in itertools.product(characters, repeat=length):
            text = "".join(letters)
            parsed = parser.parse_override(f"folder={quoted(text)}").value()
            assert OmegaConf.create({"folder": parsed}).folder == text


def test_the_folder_among_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    assert with_folder(["a=b", "figures=false"]) == ["folder='a=b'", "figures=false"]
    assert with_folder(["a=c", "x"]) == ["a=c", "folder='x'"]
    assert with_folder(["--config-dir", "x", "y"]) == ["--config-dir", "x", "folder='y'"]
    assert with_folder(["folder=x", "--cfg=job"]) == ["folder=x", "--cfg=job"]
    for arguments in (["x", "y"], ["x", "folder=y"], ["-m", "x"]):
        with pytest.raises(ValueError, match="one"):
            with_folder(arguments)


def manifest(folder, **changed):
    path = folder / "sweep.json"
    content = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def job(**changed):
    return {"number": 0, "identity": "x", "overrides": [], "values": {}} | changed


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda s: s / "nowhere", "no folder .*nowhere"),
        (lambda s: s.parent, "no sweep folder, .*it holds the sweeps .*s: name one"),
        (lambda s: s / "0", "no sweep folder, .*it is a job of the sweep .*s: name that"),
        (lambda s: s / "0" / "other", "no sweep folder, .*it holds a.txt"),
        (lambda s: s / "0" / "empty", "no sweep folder, .*it is empty"),
        (lambda s: s / "0" / "job.nc", "no folder"),
        (lambda s: (s / "sweep.json").write_text("{") and s, "damaged"),
        (lambda s: (s / "sweep.json").write_text("[]") and s, "not the manifest"),
        (lambda s: manifest(s, project="other") or s, "not the manifest"),
        (lambda s: manifest(s, schema_version=99) or s, "schema_version 99"),
        (lambda s: manifest(s, jobs=None) or s, "damaged"),
        (lambda s: manifest(s, jobs=[{"number": 0}]) or s, "damaged .*identity|damaged .*overrides"),
        (lambda s: manifest(s, jobs=[job(number="../..")]) or s, "damaged .*number of a job is '../..'"),
        (lambda s: manifest(s, jobs=[job(number=-1)]) or s, "damaged .*number of a job is -1"),
        (lambda s: manifest(s, jobs=[job(), job()]) or s, "damaged .*same number"),
        (lambda s: manifest(s, jobs=[job(values=3)]) or s, "damaged"),
        (lambda s: manifest(s, jobs=[]) or s, "none of the 0 jobs"),
        (lambda s: manifest(s, jobs=[job(number=1)]) or s, "none of the 1 jobs"),
    ],
)
def test_what_is_no_sweep(spoil, words, sweep):
    for name in ("other", "empty"):
        (sweep / "0" / name).mkdir()
    (sweep / "0" / "other" / "a.txt").touch()
    folder = spoil(sweep)
    before = files(sweep)
    with pytest.raises((store.StoreError, ValueError), match=words):
        collect(folder)
    assert files(sweep) == before


def test_nothing_is_done(tmp_path):
    folder = write_sweep(tmp_path / "s", {"seed": [0, 1]}, summary_like, skip=(0,), fail=(1,))
    with pytest.raises(store.StoreError, match=r"none of the 2 jobs .* is done \(ValueError: it did not work"):
        collect(folder)
    assert not FILES & {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("metrics=[smse,covrage_95]", "no job has 'covrage_95'.* did you mean 'coverage_95'"),
        ("metrics=[]", "at least one name"),
        ("figures=3", "figures must be true or false"),
        ("output=''", "output must be the name of a folder"),
        ("output=[a]", "output must be the name of a folder"),
        ("folder=null", "expected the folder of a sweep"),
    ],
)
def test_mistakes(override, words, sweep):
    before = files(sweep)
    with pytest.raises(ValueError, match=words):
        collect(sweep, override)
    assert files(sweep) == before


def test_an_output_that_is_a_file(sweep):
    with pytest.raises(store.StoreError, match="set output to another"):
        collect(sweep, f"output={sweep}/sweep.json")


@pytest.mark.skipif(PLAIN, reason="the command is the same without the compiler")
def test_the_command(tmp_path):
    write_sweep(tmp_path / "my sweep, 1", VALUES, summary_like)

    def command(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "experiments.collect", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )

    done = command("my sweep, 1", "figures=false")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 jobs: 4 done. Grid: 2 error_threshold x 2 seed.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["my sweep, 1"]
    assert {path.name for path in (tmp_path / "my sweep, 1").iterdir()} == {*"0123", "sweep.json", *FILES}
    failed = command("nowhere")
    assert failed.returncode == 1
    assert (failed.stdout + failed.stderr).startswith("Error: no folder nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["my sweep, 1"]
