"""Files of one or several outputs: all of them, or one file of a job with the same bits, whole or not at all."""

import errno
import json
import os
import runpy

import numpy as np
import pytest
import xarray as xr
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from running import CONF, DATA, SHORT, bits, configured, data_of, execute, summary_of
from validating import csv_file

from experiments import export
from experiments.identification import run
from experiments.job_file import FILE, NUMBERS, VARIABLES, is_lean, read_record, read_summary
from experiments.validation import run as validation
from sysid import JointModel, Model, store

LEAN = "outputs=lean"
RECORD = ("data=csv", "data.inputs=[u]", "data.dt=0.5", "data.units={y:V}", "narx=orders", "narx.na=1", "narx.nb=1")
SMALL = ("training.n_initial=12", "training.restarts=1", "budget=15", "figures=false", "propagation=mean_only")
ONE, BOTH = "data.outputs=[y]", ("data.outputs=[y,z]", "narx.target=all")
VALIDATED = {"validation.json", "validation.nc"}


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def group(folder, name):
    """Group of a job's file as anybody reads it."""
    with xr.open_dataset(folder / FILE, group=name, decode_times=False, mask_and_scale=False) as dataset:
        return dataset.load()


def timeless(summary, *more):
    return {key: value for key, value in summary.items() if key not in ("times", *more)}


def assert_same(folder, full, name=""):
    """Record and model of a job's file and of the full outputs: the same bits and attributes."""
    under = f"/{name}" * bool(name)
    record, result = group(folder, f"record{under}"), data_of(full / name, "result")
    assert bits(record) == bits(read_record(folder / FILE, name)) == bits(result)
    for key, variable in result.variables.items():
        assert {k: str(v) for k, v in record[key].attrs.items()} == {k: str(v) for k, v in variable.attrs.items()}
    one, other = group(folder, f"model{under}"), data_of(full / name, "model")
    assert bits(one) == bits(other)
    for key in ("digest", "target_unit", "feature_units"):
        assert one.attrs[key] == other.attrs[key]


@pytest.fixture(scope="module")
def lean(tmp_path_factory):
    """Folder of the lean run that has the settings of the full one."""
    return execute(tmp_path_factory.mktemp("lean") / "run", *SHORT, "figures=true", LEAN)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    files = (csv_file(folder / "estimation.csv", n=60, seed=2), csv_file(folder / "test.csv", n=30, seed=5))
    return (*RECORD, *SMALL, *(f"data.{path.stem}={path}" for path in files))


@pytest.fixture(scope="module")
def single(record, tmp_path_factory):
    """Folders of the lean and of the full run of one output, whose hyper-parameters follow the stream."""
    folder = tmp_path_factory.mktemp("single")
    given = (*record, ONE, "training=adaptive", "training.interval=10", "training.significance=0.5")
    return execute(folder / "lean", *given, LEAN), execute(folder / "full", *given)


@pytest.fixture(scope="module")
def joint(record, tmp_path_factory):
    """Folders of the lean and of the full run of two outputs, and what the full one returned."""
    folder = tmp_path_factory.mktemp("joint")
    (folder / "full").mkdir()
    score = run(configured(*record, *BOTH), folder / "full")
    return execute(folder / "lean", *record, *BOTH, LEAN), folder / "full", score


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


def test_a_lean_run_is_one_file_with_the_bits_of_a_full_one(lean, finished):
    assert names(lean) == {FILE}
    assert_same(lean, finished)
    found, summary = group(lean, "summary"), read_summary(lean / FILE)
    assert timeless(summary) == timeless(summary_of(finished))
    assert json.loads(found.attrs["summary"]) == summary
    assert set(found.data_vars) == set(VARIABLES) <= set(NUMBERS)
    for name, variable in found.data_vars.items():
        assert (variable.shape, variable.item()) == ((), summary[name])
        assert variable.attrs["long_name"] == NUMBERS[name][1]
    units = {"rmse": "K", "mean_variance": "K2", "smse": "1", "n_seen": "1"}
    assert {name: found[name].attrs["units"] for name in units} == units
    attributes = store.read_attributes(lean / FILE, kind="job")
    assert list(attributes) == ["", "summary", "record", "model"]
    assert (attributes[""]["seed"], attributes[""]["partial"]) == (0, 0)
    assert "outputs: lean" in attributes[""]["configuration"]


def test_the_model_is_loaded_validated_and_exported(single, record, tmp_path):
    one, full = single
    assert group(one, "record").sizes["estimate"] > 0
    assert_same(one, full)
    x = np.random.default_rng(0).normal(size=(6, 2))
    expected = Model.load(full / "model.nc").predict(x)
    for model in (Model.load(one / FILE), JointModel.load(one / FILE).models[0]):
        np.testing.assert_array_equal(model.predict(x), expected)
    measured = read_summary(one / FILE)["free_run"]
    assert measured == json.loads((full / "validation.json").read_text())["free_run"] == summary_of(full)["free_run"]
    data = [override for override in record if override.startswith("data")]
    options = (f"model={one / FILE}", *data, ONE, "figures=false", "propagation=mean_only", "horizons=[1]")
    judge = configured(*options, command="validate")
    export.run(configured(options[0], command="export"), tmp_path)
    np.testing.assert_allclose(runpy.run_path(str(tmp_path / "job.py"))["predict"](x)[0], expected.mean)
    assert validation.run(judge, tmp_path) == pytest.approx(measured["rmse"], rel=1e-12)


def test_null_is_decided_by_the_mode(monkeypatch):
    for given, single, sweep in (("null", False, True), ("lean", True, True), ("full", False, False)):
        for is_sweep, expected in ((False, single), (True, sweep)):
            monkeypatch.setattr("experiments.job_file.is_multirun", lambda is_sweep=is_sweep: is_sweep)
            assert is_lean(OmegaConf.create({"outputs": None if given == "null" else given})) is expected


def test_a_multirun_is_lean_by_itself_and_full_outputs_have_the_one_file_too(multirun, record, tmp_path):
    assert names(execute(tmp_path / "lean", *record, ONE, "narx.target=all")) == {FILE}
    assert Model.load(tmp_path / "lean" / FILE).narx.target == "y", "all of one output is that output"
    full = execute(tmp_path / "full", *record, ONE, "outputs=full")
    files = {f"{kind}.nc" for kind in DATA} | {"summary.json"}
    assert names(full) == files | VALIDATED | {FILE}
    assert group(full, "summary").attrs["summary"] == (full / "summary.json").read_text()
    assert_same(full, full)
    both = execute(tmp_path / "both", *record, *BOTH, "outputs=full")
    own = {f"{output}/{name}" for output in "yz" for name in files}
    assert names(both) == own | VALIDATED | {FILE, "model.nc"}
    assert read_summary(both / FILE)["z"]["smse"] == summary_of(both / "z")["smse"]


def test_every_output_has_a_model_of_the_same_regressors(joint):
    one, full, score = joint
    found, judged = read_summary(one / FILE), json.loads((full / "validation.json").read_text())
    assert names(one) == {FILE}
    assert FILE not in names(full)
    assert list(found) == ["y", "z"]
    assert score == max(summary["smse"] for summary in found.values())
    assert judged["warnings"]
    x = np.random.default_rng(0).normal(size=(5, 3))
    models, same = JointModel.load(full / "model.nc").models, JointModel.load(one / FILE).models
    for (name, summary), *pair in zip(found.items(), models, same, strict=True):
        own, alone = summary_of(full / name), Model.load(full / name / "model.nc")
        assert summary["free_run"] == judged["free_run"][name]
        assert own["free_run"] is None
        assert summary["warnings"] == own["warnings"] + judged["warnings"]
        assert timeless(summary, "free_run", "warnings") == timeless(own, "free_run", "warnings")
        assert_same(one, full, name)
        assert alone.narx.target == name
        for model in pair:
            np.testing.assert_array_equal(model.predict(x), alone.predict(x))
    with pytest.raises(store.StoreError, match=r"holds models of \['y', 'z'\]: read it with .*JointModel"):
        Model.load(one / FILE)


def test_a_full_disk_leaves_nothing(record, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(store.StoreError, match=r"could not write .*job\.nc .*No space left"):
        execute(tmp_path, *record, ONE, LEAN)
    assert not names(tmp_path)


def test_a_damaged_file_and_one_of_another_kind_are_refused(lean, finished, tmp_path):
    content, path = (lean / FILE).read_bytes(), tmp_path / FILE
    for share in (0.0, 0.9999):
        path.write_bytes(content[: int(share * len(content))])
        for load in (read_summary, read_record, Model.load, JointModel.load):
            with pytest.raises(store.StoreError, match=r"job\.nc"):
                load(path)
    place = content.index(b'"smse": ') + len(b'"smse": ')
    path.write_bytes(content[:place] + b"7" + content[place + 1 :])
    with pytest.raises(store.StoreError, match=r"damaged|truncated"):
        read_summary(path)
    groups = store.read_groups(lean / FILE, kind="job")
    groups["summary"].attrs["summary"] = json.dumps(read_summary(lean / FILE) | {"smse": 0.001})
    store.write_groups(groups, path, kind="job")
    with pytest.raises(store.StoreError, match="damaged or was edited"):
        read_summary(path)
    with pytest.raises(store.StoreError, match="holds schema 'model', expected 'job'"):
        read_summary(finished / "model.nc")
    with pytest.raises(store.StoreError, match=r"no record .record/b., it holds .*model"):
        read_record(lean / FILE, "b")
