"""One file of a job: the bits of the full outputs, readable by every command, whole or not at all."""

import errno
import json
import os
import runpy

import numpy as np
import pytest
import xarray as xr
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from numba import config as numba_config
from running import CONF, DATA, SHORT, bits, configured, data_of, phases, summary_of
from validating import csv_file

from experiments import exportation, identification
from experiments.identification import run
from experiments.job_file import FILE, NUMBERS, VARIABLES, Outputs, outputs_of, read_record, read_summary
from experiments.launch import Stopped
from experiments.validation import run as validation
from sysid import JointModel, Model, store

LEAN = "outputs=lean"
RECORD = ("data=csv", "data.inputs=[u]", "data.dt=0.5", "data.units={y:V}", "narx=orders", "narx.na=1", "narx.nb=1")
SMALL = ("training.n_initial=12", "training.restarts=1", "budget=15", "figures=false", "propagation=mean_only")


def executed(folder, *overrides):
    """Run the command's function in this process into a new folder; returns the folder."""
    folder.mkdir()
    run(configured(*overrides), folder)
    return folder


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def group(folder, name):
    """Group of a job's file as anybody reads it."""
    with xr.open_dataset(folder / FILE, group=name, decode_times=False, mask_and_scale=False) as dataset:
        return dataset.load()


def timeless(summary):
    return {key: value for key, value in summary.items() if key != "times"}


def assert_same_model(one, other):
    """The same bits and the same attributes, but those of the file."""
    assert bits(one) == bits(other)
    assert one.attrs["digest"] == other.attrs["digest"]
    for name in ("target_unit", "feature_units"):
        assert one.attrs[name] == other.attrs[name]


@pytest.fixture(scope="module")
def lean(tmp_path_factory):
    """Folder of the lean run that has the settings of the full one."""
    return executed(tmp_path_factory.mktemp("lean") / "run", *SHORT, "figures=true", LEAN)


@pytest.fixture
def multirun():
    """This process is that of a job of a sweep."""
    instance = HydraConfig.instance()
    before = instance.cfg
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("identify", overrides=["hydra.mode=MULTIRUN"], return_hydra_config=True)
    instance.set_config(config)
    yield
    instance.cfg = before


@pytest.fixture
def record(tmp_path):
    files = (csv_file(tmp_path / "estimation.csv", n=60, seed=2), csv_file(tmp_path / "test.csv", n=30, seed=5))
    return (*RECORD, *SMALL, *(f"data.{path.stem}={path}" for path in files))


@pytest.fixture
def both(record):
    return (*record, "data.outputs=[y,z]", "narx.target=all")


def test_a_lean_run_is_one_file(lean):
    assert names(lean) == {FILE}


def test_a_lean_run_has_the_bits_of_a_full_one(lean, finished):
    assert bits(group(lean, "record")) == bits(data_of(finished, "result"))
    assert_same_model(group(lean, "model"), data_of(finished, "model"))
    assert timeless(read_summary(lean / FILE)) == timeless(summary_of(finished))
    assert read_summary(lean / FILE).keys() == summary_of(finished).keys()
    for name, variable in data_of(finished, "result").variables.items():
        found = group(lean, "record")[name].attrs
        assert {key: str(value) for key, value in found.items()} == {k: str(v) for k, v in variable.attrs.items()}


def test_the_summary_is_text_and_numbers_with_units(lean):
    found, summary = group(lean, "summary"), read_summary(lean / FILE)
    assert json.loads(found.attrs["summary"]) == summary
    assert set(found.data_vars) == set(VARIABLES) <= set(NUMBERS)
    for name, variable in found.data_vars.items():
        assert variable.shape == ()
        assert variable.item() == summary[name]
        assert variable.attrs["long_name"] == NUMBERS[name][1]
    assert found["rmse"].attrs["units"] == "K"
    assert found["mean_variance"].attrs["units"] == "K2"
    assert found["smse"].attrs["units"] == found["n_seen"].attrs["units"] == "1"


def test_the_file_says_where_it_comes_from(lean):
    attributes = store.header(lean / FILE)
    assert attributes["schema"] == "job"
    assert (attributes["seed"], attributes["partial"]) == (0, 0)
    assert "outputs: lean" in attributes["configuration"]
    assert {"creation_time", "package_versions", "timings"} <= attributes.keys()


def test_the_record_is_read_alone(lean):
    found = read_record(lean / FILE)
    assert bits(found) == bits(group(lean, "record"))
    with pytest.raises(store.StoreError, match=r"no record .record/b., it holds .*model"):
        read_record(lean / FILE, "b")


def test_the_model_is_loaded_validated_and_exported(record, tmp_path):
    one = executed(tmp_path / "lean", *record, "data.outputs=[y]", LEAN)
    full = executed(tmp_path / "full", *record, "data.outputs=[y]")
    x = np.random.default_rng(0).normal(size=(6, 2))
    expected = Model.load(full / "model.nc").predict(x)
    np.testing.assert_array_equal(Model.load(one / FILE).predict(x), expected)
    np.testing.assert_array_equal(JointModel.load(one / FILE).models[0].predict(x), expected)
    assert read_summary(one / FILE)["free_run"] == json.loads((full / "validation.json").read_text())["free_run"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        export = compose("export", overrides=[f"model={one / FILE}"])
        simulated = [override for override in record if override.startswith("data")]
        options = (*simulated, "data.outputs=[y]", "figures=false", "propagation=mean_only", "horizons=[1]")
        judge = compose("validate", overrides=[f"model={one / FILE}", *options])
    exportation.run(export, tmp_path)
    np.testing.assert_allclose(runpy.run_path(str(tmp_path / "job.py"))["predict"](x)[0], expected.mean)
    assert validation.run(judge, tmp_path) == pytest.approx(read_summary(one / FILE)["free_run"]["rmse"], rel=1e-12)


def test_estimates_on_the_way_are_in_the_record(record, tmp_path):
    follow = ("training=adaptive", "training.interval=10", "training.significance=0.5", "validate=false")
    settings = (*record, "data.outputs=[y]", *follow)
    one, full = executed(tmp_path / "lean", *settings, LEAN), executed(tmp_path / "full", *settings)
    found = group(one, "record")
    assert found.sizes["estimate"] > 0
    assert bits(found) == bits(data_of(full, "result"))
    assert_same_model(group(one, "model"), data_of(full, "model"))


@pytest.mark.parametrize(
    ("given", "single", "sweep"),
    [("null", Outputs.full, Outputs.lean), ("lean", Outputs.lean, Outputs.lean), ("full", Outputs.full, Outputs.full)],
)
def test_null_is_decided_by_the_mode(given, single, sweep):
    config = configured(f"outputs={given}")
    assert outputs_of(config, multirun=False) is single
    assert outputs_of(config, multirun=True) is sweep


@pytest.mark.parametrize("given", ["lenient", "true", "''"])
@pytest.mark.parametrize("target", [(), ("data.outputs=[y,z]", "narx.target=all")])
def test_other_outputs_are_refused_before_anything_is_computed(given, target, record, tmp_path, monkeypatch):
    monkeypatch.setattr(identification, "source_of", lambda *_: pytest.fail("read"))
    with pytest.raises(ValueError, match="outputs must be one of lean, full, got"):
        executed(tmp_path / "run", *record, "data.outputs=[y]", *target, f"outputs={given}")
    assert names(tmp_path / "run") == set()


def test_full_outputs_of_a_multirun_have_the_one_file_too(multirun, record, tmp_path):
    full = executed(tmp_path / "run", *record, "data.outputs=[y]", "outputs=full")
    kept = {f"{kind}.nc" for kind in DATA} | {"summary.json", "validation.json", "validation.nc"}
    assert names(full) == kept | {FILE}
    assert read_summary(full / FILE) == summary_of(full)
    assert group(full, "summary").attrs["summary"] == (full / "summary.json").read_text()
    assert bits(group(full, "record")) == bits(data_of(full, "result"))


def test_a_multirun_is_lean_by_itself(multirun, record, tmp_path):
    assert names(executed(tmp_path / "run", *record, "data.outputs=[y]")) == {FILE}


several = pytest.mark.skipif(numba_config.DISABLE_JIT, reason="a command does the same without the compiler")


@several
def test_several_outputs_are_one_file(both, tmp_path):
    one, full = executed(tmp_path / "lean", *both, LEAN), executed(tmp_path / "full", *both)
    assert names(one) == {FILE}
    assert FILE not in names(full)
    found = read_summary(one / FILE)
    judged = json.loads((full / "validation.json").read_text())
    assert judged["warnings"]
    assert list(found) == ["y", "z"]
    for name, summary in found.items():
        assert summary["free_run"] == judged["free_run"][name]
        own = summary_of(full / name)
        assert own["free_run"] is None
        assert summary["warnings"] == own["warnings"] + judged["warnings"]
        same = {key: own[key] for key in ("free_run", "warnings")}
        assert timeless(summary) | same == timeless(own)
        assert bits(read_record(one / FILE, name)) == bits(data_of(full / name, "result"))
        assert_same_model(group(one, f"model/{name}"), data_of(full / name, "model"))
    x = np.random.default_rng(0).normal(size=(5, 3))
    expected = JointModel.load(full / "model.nc")
    for joint in zip(JointModel.load(one / FILE).models, expected.models, strict=True):
        np.testing.assert_array_equal(*(model.predict(x) for model in joint))
    with pytest.raises(store.StoreError, match=r"holds models of \['y', 'z'\]: read it with .*JointModel"):
        Model.load(one / FILE)


@several
def test_several_full_outputs_of_a_multirun_have_the_one_file_too(multirun, both, tmp_path):
    full = executed(tmp_path / "run", *both, "outputs=full")
    assert {name for name in names(full) if "/" not in name} == {FILE, "model.nc", "validation.json", "validation.nc"}
    assert {name for name in names(full) if name.startswith("y/")} == {
        f"y/{name}" for name in (*(f"{kind}.nc" for kind in DATA), "summary.json")
    }
    assert read_summary(full / FILE)["z"]["smse"] == summary_of(full / "z")["smse"]


def interrupted(monkeypatch, run_number, n):
    """Let an identification be interrupted when it asks for a sample: that of a run, counted from 1."""
    original, calls = identification.prepare, []

    def prepare(*arguments):
        calls.append(arguments)
        made = original(*arguments)
        if len(calls) == run_number:
            observe_many, seen = made.observe_many, []

            def stopping(regressors, targets, *, follows=None):
                seen.append(targets)
                if len(seen) == n:
                    raise KeyboardInterrupt
                return observe_many(regressors, targets, follows=follows)

            made.observe_many = stopping
        return made

    monkeypatch.setattr(identification, "prepare", prepare)
    monkeypatch.setattr("experiments.sources.BLOCK", 1)


@pytest.mark.parametrize(("n", "has_model"), [(5, False), (30, True)])
def test_an_interrupted_lean_run_keeps_what_it_had(n, has_model, record, tmp_path, monkeypatch):
    interrupted(monkeypatch, 1, n)
    with pytest.raises(Stopped):
        executed(tmp_path / "run", *record, "data.outputs=[y]", LEAN)
    path = tmp_path / "run" / FILE
    assert names(path.parent) == {FILE}
    assert store.header(path)["partial"] == 1
    assert read_summary(path)["partial"] is True
    assert sum(phases(read_record(path))[:2]).sum() == n - 1
    if has_model:
        assert Model.load(path).gp.n_points == 15
        return
    for load in (Model.load, JointModel.load):
        with pytest.raises(store.StoreError, match="holds no model"):
            load(path)


@several
def test_an_interrupted_second_output_keeps_the_first(both, tmp_path, monkeypatch):
    complete = executed(tmp_path / "complete", *both, LEAN)
    interrupted(monkeypatch, 2, 20)
    with pytest.raises(Stopped):
        executed(tmp_path / "run", *both, LEAN)
    path = tmp_path / "run" / FILE
    assert names(path.parent) == {FILE}
    assert store.header(path)["partial"] == 1
    found = read_summary(path)
    assert [summary["partial"] for summary in found.values()] == [False, True]
    assert bits(read_record(path, "y")) == bits(read_record(complete / FILE, "y"))
    assert sum(phases(read_record(path, "z"))[:2]).sum() == 19


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing(step, record, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(store.StoreError, match=r"could not write .*job\.nc .*No space left"):
        executed(tmp_path / "run", *record, "data.outputs=[y]", LEAN)
    assert names(tmp_path / "run") == set()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.9999])
def test_a_file_cut_short_is_refused(share, lean, tmp_path):
    content = (lean / FILE).read_bytes()
    path = tmp_path / FILE
    path.write_bytes(content[: int(share * len(content))])
    for load in (read_summary, read_record, Model.load, JointModel.load):
        with pytest.raises(store.StoreError, match=r"job\.nc"):
            load(path)


def test_a_changed_byte_in_the_summary_is_noticed(lean, tmp_path):
    content, path = (lean / FILE).read_bytes(), tmp_path / FILE
    place = content.index(b'"smse": ') + len(b'"smse": ')
    path.write_bytes(content[:place] + b"7" + content[place + 1 :])
    with pytest.raises(store.StoreError, match=r"damaged|truncated"):
        read_summary(path)


def test_a_summary_that_was_edited_is_refused(lean, tmp_path):
    path = tmp_path / FILE
    groups = store.read_groups(lean / FILE, kind="job")
    groups["summary"].attrs["summary"] = json.dumps(read_summary(lean / FILE) | {"smse": 0.001})
    store.write_groups(groups, path, kind="job")
    with pytest.raises(store.StoreError, match="damaged or was edited"):
        read_summary(path)


def test_files_of_another_kind_are_told_apart(finished, lean):
    with pytest.raises(store.StoreError, match="holds schema 'model', expected 'job'"):
        read_summary(finished / "model.nc")
    with pytest.raises(store.StoreError, match="holds schema 'job', expected 'model'"):
        store.read(lean / FILE, kind="model")
    with pytest.raises(store.StoreError, match="no file"):
        read_summary(lean / "missing.nc")


def test_attributes_are_those_of_the_groups(lean):
    found = store.read_attributes(lean / FILE, kind="job")
    assert list(found) == ["", "summary", "record", "model"]
    assert found["model"]["digest"] == group(lean, "model").attrs["digest"]
    assert list(store.read_attributes(lean / FILE, kind="job", under="model")) == ["", "model"]
