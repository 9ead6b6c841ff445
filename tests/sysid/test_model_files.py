"""Files that were written before, classes of the user's own in files, counters: what a stored model
promises.
"""

import importlib
import json
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
import xarray as xr

import sysid
from sysid import JointModel, Model, SquaredExponential, StoreError, store
from sysid.gp.formula import JIT_DISABLED
from sysid.model.model import digest
from sysid.model.model_file import read_models, start_from_dataset, start_to_dataset
from sysid.store import from_file

DATA = Path(__file__).parents[1] / "data"
EXPECTED = np.load(DATA / "expected.npz")
KEYS = sorted({name.rpartition("/")[0] for name in EXPECTED.files if "/" in name})
#: compiled sums are reassociated to the vectors of the processor: another one may round the last bits otherwise
SAME_BITS = not JIT_DISABLED and llvm.get_host_cpu_name() == str(EXPECTED["cpu"])


def assert_equal(found, expected):
    if SAME_BITS:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def kept(file, target=None):
    models = {model.narx.target: model for model in JointModel.load(DATA / f"{file}.nc").models}
    return models[target] if target else next(iter(models.values()))


@pytest.mark.parametrize("key", KEYS)
def test_a_model_that_was_written_before_predicts_and_learns_as_it_did(key):
    model = kept(*key.split("/"))
    expected = {
        name.rpartition("/")[2]: EXPECTED[name]
        for name in EXPECTED.files
        if name.startswith(f"{key}/")
    }
    assert_equal(model.predict(expected["regressors"]), (expected["mean"], expected["variance"]))
    record = model.update_many(expected["regressors"], expected["targets"])
    np.testing.assert_array_equal(record["slot"], expected["slot"])
    assert_equal(
        model.predict(expected["regressors"]),
        (expected["mean_after"], expected["variance_after"]),
    )


def test_every_kept_model_is_compared():
    assert {key.split("/")[0] for key in KEYS} == {path.stem for path in DATA.glob("*.nc")} - {
        "start",
        "trajectory",
    }


def test_a_model_that_was_written_before_has_its_rules_map_and_limits():
    rules = kept("model_linear_mean")
    assert rules.gp.insertion == sysid.Either(0.05, 0.02)
    assert rules.gp.acceptance == sysid.ExceedsMinimum(
        sysid.MeanRelevance(), sysid.Reference.in_sample
    )
    assert rules.mean == sysid.LinearMean((0.2, 0.1, -1 / 3), 0.03, ridge=0.1)
    scaling = kept("model_scaling")
    assert (scaling.scaling.constant, scaling.gp.gate, scaling.gp.gate_opens_after) == (
        (2,),
        6.0,
        2,
    )
    mixed = kept("model_projection")
    assert (mixed.scaling.linear_part().shape, mixed.limits) == ((2, 3), (-0.5, 10.0))
    assert mixed.bands == ((1, 1.25), (3, 1 / 3))
    assert kept("model_forgetting").gp.forgetting == 200.0
    adaptive = kept("model_adaptive")
    assert (adaptive.follower.settings.on_records, adaptive.follower.n_seen) == (
        True,
        adaptive.gp.n_seen,
    )


@pytest.mark.parametrize("key", KEYS)
def test_a_model_that_was_written_before_is_written_alike(key):
    """Attributes, arrays and digest: what is written now can be read where those files can."""
    file, target = key.split("/")
    found = read_models(DATA / f"{file}.nc")
    before = found.get(target, found.get(""))
    now = kept(file, target).to_dataset()
    counts = json.loads(before.attrs["counts"]) | {
        "minimum_is_stale": 1
    }  # as for every model that was loaded
    before.attrs = {name: before.attrs[name] for name in now.attrs} | {"counts": json.dumps(counts)}
    xr.testing.assert_identical(now, before.assign_attrs(digest=digest(before)))


def test_a_file_that_was_written_before_verifies_and_an_edited_one_does_not(tmp_path):
    (dataset,) = read_models(DATA / "model_scaling.nc").values()
    store.write(dataset, tmp_path / "same.nc", kind="model")
    assert Model.load(tmp_path / "same.nc").mean == sysid.ConstantMean(0.3)
    edited = dataset.attrs["mean"].replace("0.3", "0.4")
    store.write(dataset.assign_attrs(mean=edited), tmp_path / "edited.nc", kind="model")
    with pytest.raises(StoreError, match="edited after it was saved"):
        Model.load(tmp_path / "edited.nc")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("file", ["model_scaling", "model_two_outputs", "job"])
def test_a_file_of_an_earlier_schema_is_answered_clearly(file, version, tmp_path, monkeypatch):
    groups = store.read_any(DATA / f"{file}.nc", kind="job" if file == "job" else "model")
    monkeypatch.setattr(store, "SCHEMA_VERSION", version)
    if "" in groups:
        store.write(groups[""], tmp_path / "model.nc", kind="model")
    else:
        store.write_groups(groups, tmp_path / "model.nc", kind="job" if file == "job" else "model")
    monkeypatch.undo()
    expected = (
        rf"model\.nc has schema_version {version}, older than this sysid reads \(3\): "
        r".* identify or simulate again"
    )
    with pytest.raises(StoreError, match=expected):
        JointModel.load(tmp_path / "model.nc")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"bands": None, "gate": None},
            r"lacks the attributes \['bands', 'gate'\], which every model file of this",
        ),
        ({"mean": None, "target_offset": 0.3}, r"lacks the attributes \['mean'\]"),
        (
            {"insertion": '{"class": "sysid.EitherThreshold", "variance_threshold": 1.0}'},
            "'sysid.EitherThreshold'",
        ),
        (
            {"kernel": '{"class": "sysid.kernels.matern.Matern52Form"}'},
            r"'sysid\.kernels\.matern\.Matern52Form'",
        ),
    ],
)
def test_names_that_this_version_does_not_write_are_not_read(change, words):
    (dataset,) = read_models(DATA / "model_scaling.nc").values()
    dataset = dataset.assign_attrs(
        {name: value for name, value in change.items() if value is not None}
    )
    dataset.attrs = {
        name: value for name, value in dataset.attrs.items() if change.get(name, "") is not None
    }
    with pytest.raises(StoreError, match=rf"model\.nc is not a complete model \(.*{words}"):
        Model.restored(dataset.assign_attrs(digest=digest(dataset)), "model.nc")


def test_a_class_that_moved_is_found_under_its_public_name():
    text = json.dumps({"class": "sysid.model.mean.ConstantMean", "value": 2.0})
    assert sysid.build(text, sysid.MeanFunction) == sysid.ConstantMean(2.0)


def test_a_start_that_was_written_before():
    start = start_from_dataset(from_file(DATA / "start.nc"))
    third = 1 / 3
    assert start.scaling == sysid.AffineMap.of_matrix(
        [third, -0.0, 5e-324], np.arange(6.0).reshape(2, 3) / 7
    )
    assert start.mean == sysid.LinearMean((0.1, -0.2, 1e-300), third)
    kernel = sysid.Sum(
        [
            sysid.Linear(0.7, (third, 2 / 3)),
            SquaredExponential(0.1 + 0.2, (third, 2 / 3)),
        ]
    )
    assert start.hyperparameters == sysid.Hyperparameters(kernel, 0.1, -12.3, ("a note",))
    np.testing.assert_array_equal(start.points.inputs, np.arange(6.0).reshape(3, 2) / 7)
    assert start.points.inputs.flags.f_contiguous
    assert (start.limits, start.report["tried"][0]["rmse"]) == ((-np.inf, 10.0), 1 / 7)
    assert (start.bands, start.stays) == (((1, third),), True)
    xr.testing.assert_identical(start_to_dataset(start), from_file(DATA / "start.nc"))


# classes of the user's own

OWN = """
from dataclasses import dataclass
from sysid import MeanFunction

@dataclass(frozen=True)
class Cooling(MeanFunction):
    rate: float = 0.1

    def __call__(self, regressors):
        return self.rate * regressors[:, 0]
"""
X = np.random.default_rng(0).normal(size=(9, 3))


@pytest.fixture
def own_mean(tmp_path, monkeypatch):
    """A mean function of a module that can be imported: `del sys.modules["of_mine"]` starts
    anew.
    """
    (tmp_path / "of_mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("of_mine").Cooling(0.3)
    sys.modules.pop("of_mine", None)


def model(mean, target="y", outputs=("y",)):
    narx = sysid.Narx(dict.fromkeys(outputs, 1), {"u": 3 - len(outputs)}, target)
    gp = sysid.OnlineGP(SquaredExponential(1.0, [1.0] * 3), noise_variance=0.01, budget=5)
    found = Model(narx, sysid.AffineMap.identity(3), mean, gp)
    found.update_many(X, np.sin(X.sum(axis=1)))
    return found


@pytest.mark.parametrize(
    ("n_outputs", "trusted"), [(1, ["of_mine"]), (2, ["other", "of_mine.Cooling"])]
)
def test_a_class_of_ones_own_is_imported_only_if_it_is_trusted(
    n_outputs, trusted, own_mean, tmp_path
):
    names = ("y", "z")[:n_outputs]
    path = tmp_path / "model.nc"
    expected = JointModel(tuple(model(own_mean, name, names) for name in names))
    expected.save(path)
    start = start_to_dataset(sysid.Start(mean=own_mean))
    load = Model.load if n_outputs == 1 else JointModel.load
    del sys.modules["of_mine"]
    for refused in ([], ["of_mine.Other", "of"]):
        with pytest.raises(
            StoreError,
            match=r"model\.nc: 'of_mine\.Cooling' .* trusted=\['of_mine\.Cooling'\]",
        ):
            load(path, trusted=refused)
        assert "of_mine" not in sys.modules
    with pytest.raises(ValueError, match="trust"):
        start_from_dataset(start)
    with pytest.raises(
        StoreError, match=r"trusted must be a list"
    ):  # every part of a text would count as trusted
        load(path, trusted="of_mine.Cooling")
    found = JointModel.of(load(path, trusted=trusted)).models
    for one, other in zip(found, expected.models, strict=True):
        np.testing.assert_array_equal(one.predict(X).mean, other.predict(X).mean)
    assert start_from_dataset(start, trusted=["of_mine"]).mean.rate == 0.3
    load(path)  # its module has been imported now
    del sys.modules["of_mine"]
    (tmp_path / "of_mine.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(StoreError, match=r"cannot import 'of_mine\.Cooling'"):
        load(path, trusted=["of_mine"])


# counters


def test_every_counter_is_restored(tmp_path):
    found = model(sysid.ZeroMean())
    found.gp.n_refactorisations = 2
    found.gp.n_renewals = 3
    found.gp.n_clipped_predictions = 4
    found.save(tmp_path / "model.nc")
    again = Model.load(tmp_path / "model.nc")
    assert again.gp.repairs == found.gp.repairs
    assert again.gp.repairs["clipped_variances"] == 4
    assert again.gp.counts() == found.gp.counts() | {"minimum_is_stale": 1}
