"""Files of earlier versions, classes of the user's own in files, counters: what a stored model promises."""

import importlib
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
import xarray as xr

import sysid
from sysid import JointModel, Model, SquaredExponential, StoreError, store
from sysid.gp.formula import PLAIN
from sysid.model.model_file import read_models, start_from_dataset, start_to_dataset
from sysid.store import from_file

DATA = Path(__file__).parents[1] / "data"
EXPECTED = np.load(DATA / "expected.npz")
KEYS = sorted({name.rpartition("/")[0] for name in EXPECTED.files if "/" in name})
#: compiled sums are reassociated to the vectors of the processor: another one may round the last bits otherwise
SAME_BITS = not PLAIN and llvm.get_host_cpu_name() == str(EXPECTED["cpu"])


def assert_equal(found, expected):
    if SAME_BITS:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def earlier(file, target=None):
    models = {model.narx.target: model for model in JointModel.load(DATA / f"{file}.nc").models}
    return models[target] if target else next(iter(models.values()))


@pytest.mark.parametrize("key", KEYS)
def test_a_model_of_an_earlier_version_predicts_and_learns_as_it_did(key):
    model = earlier(*key.split("/"))
    kept = {name.rpartition("/")[2]: EXPECTED[name] for name in EXPECTED.files if name.startswith(f"{key}/")}
    assert_equal(model.predict(kept["regressors"]), (kept["mean"], kept["variance"]))
    record = model.update_many(kept["regressors"], kept["targets"])
    np.testing.assert_array_equal(record["slot"], kept["slot"])
    assert_equal(model.predict(kept["regressors"]), (kept["mean_after"], kept["variance_after"]))


def test_every_earlier_file_is_compared():
    assert {key.split("/")[0] for key in KEYS} == {path.stem for path in DATA.glob("*.nc")} - {"start"}


def test_an_earlier_model_has_its_rules_map_and_limits(tmp_path):
    """And is saved in this version, with the names of today."""
    rules = earlier("model_linear_mean")
    assert rules.gp.insertion == sysid.Either(0.05, 0.02)
    assert rules.gp.acceptance == sysid.ExceedsMinimum(sysid.MeanRelevance(), sysid.Reference.in_sample)
    assert isinstance(rules.mean, sysid.LinearMean)
    assert rules.gp.counts()["clipped_predictions"] == 0
    assert earlier("model_scaling").scaling.constant == (2,)
    mixed = earlier("model_projection")
    assert (mixed.scaling.linear_part().shape, mixed.limits) == ((2, 3), (-0.5, 10.0))
    rules.save(tmp_path / "model.nc")
    again = Model.load(tmp_path / "model.nc").to_dataset()
    xr.testing.assert_identical(again, rules.to_dataset())
    assert "sysid.Either" in again.attrs["insertion"]


def test_an_earlier_file_verifies_and_an_edited_one_does_not(tmp_path):
    """The digest covers the texts as they are stored, with the class names of that version."""
    (dataset,) = read_models(DATA / "model_scaling.nc").values()
    store.write(dataset, tmp_path / "same.nc", kind="model")
    assert Model.load(tmp_path / "same.nc").mean == sysid.ConstantMean(0.3)
    renamed = dataset.attrs["mean"].replace("sysid.mean.constant.", "sysid.")
    store.write(dataset.assign_attrs(mean=renamed), tmp_path / "edited.nc", kind="model")
    with pytest.raises(StoreError, match="edited after it was saved"):
        Model.load(tmp_path / "edited.nc")


def test_a_start_of_an_earlier_version():
    start = start_from_dataset(from_file(DATA / "start.nc"))
    third = 1 / 3
    assert start.scaling == sysid.AffineMap.of_matrix([third, -0.0, 5e-324], np.arange(6.0).reshape(2, 3) / 7)
    assert start.mean == sysid.LinearMean((0.1, -0.2, 1e-300), third)
    kernel = sysid.Sum([sysid.Linear(0.7, (third, 2 / 3)), SquaredExponential(0.1 + 0.2, (third, 2 / 3))])
    assert start.hyperparameters == sysid.Hyperparameters(kernel, 0.1, -12.3, ("a note",))
    np.testing.assert_array_equal(start.points.inputs, np.arange(6.0).reshape(3, 2) / 7)
    assert start.points.inputs.flags.f_contiguous
    assert (start.limits, start.report["tried"][0]["rmse"]) == ((-np.inf, 10.0), 1 / 7)


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
    """A mean function of a module that can be imported: `del sys.modules["of_mine"]` starts anew."""
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


@pytest.mark.parametrize(("n_outputs", "trusted"), [(1, ["of_mine"]), (2, ["other", "of_mine.Cooling"])])
def test_a_class_of_ones_own_is_imported_only_if_it_is_trusted(n_outputs, trusted, own_mean, tmp_path):
    names = ("y", "z")[:n_outputs]
    path, expected = tmp_path / "model.nc", JointModel(tuple(model(own_mean, name, names) for name in names))
    expected.save(path)
    start = start_to_dataset(sysid.Start(mean=own_mean))
    load = Model.load if n_outputs == 1 else JointModel.load
    del sys.modules["of_mine"]
    for refused in ([], ["of_mine.Other", "of"]):
        with pytest.raises(StoreError, match=r"model\.nc: 'of_mine\.Cooling' .* trusted=\['of_mine\.Cooling'\]"):
            load(path, trusted=refused)
        assert "of_mine" not in sys.modules
    with pytest.raises(ValueError, match="trust"):
        start_from_dataset(start)
    with pytest.raises(StoreError, match=r"trusted must be a list"):  # every part of a text would count as trusted
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
    found.gp.n_refactorisations, found.gp.n_renewals, found.gp.n_clipped_predictions = 2, 3, 4
    found.save(tmp_path / "model.nc")
    again = Model.load(tmp_path / "model.nc")
    assert again.gp.repairs == found.gp.repairs
    assert again.gp.repairs["clipped_variances"] == 4
    assert again.gp.counts() == found.gp.counts() | {"minimum_is_stale": 1}
