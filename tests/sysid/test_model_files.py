"""Files that were written before, classes of a user in files, counters."""

import importlib
import json
import sys
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
import xarray as xr

from sysid import (
    AffineMap,
    ConstantMean,
    Either,
    ExceedsMinimum,
    Hyperparameters,
    JointModel,
    Linear,
    LinearMean,
    MeanFunction,
    MeanRelevance,
    Model,
    Narx,
    OnlineGP,
    Reference,
    SquaredExponential,
    Start,
    StoreError,
    Sum,
    ZeroMean,
    build,
    store,
)
from sysid.gp.formula import JIT_DISABLED
from sysid.model.model import digest
from sysid.model.model_file import read_models, start_from_dataset, start_to_dataset
from sysid.store import from_file

DATA = Path(__file__).parents[1] / "data"
EXPECTED = np.load(DATA / "expected.npz")

#: "file/target" of every kept model
KEYS = sorted({name.rpartition("/")[0] for name in EXPECTED.files if "/" in name})

#: Compiled sums are reassociated to the vectors of the processor: another processor may round the
#: last bits otherwise.
IS_SAME_PROCESSOR = not JIT_DISABLED and llvm.get_host_cpu_name() == str(EXPECTED["cpu"])

each_key = pytest.mark.parametrize("key", KEYS)


def assert_equal(values, expected):
    """Assert that values are the same bits, or agree to rounding on another processor."""
    if IS_SAME_PROCESSOR:
        np.testing.assert_array_equal(values, expected)
    else:
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-12)


def load_kept_model(file, target=None):
    """Return the model of a target, or the first model, of a file that was written before."""
    models = JointModel.load(DATA / f"{file}.nc").models
    if target is None:
        return models[0]
    return next(model for model in models if model.narx.target == target)


#: Models that were written when the posterior returned to the prior in all directions alike. They
#: are read as they were, but go on with the present way of forgetting.
FORGETS_OTHERWISE = {"model_forgetting/y"}

# --- models that were written before --------------------------------------------------------------


@each_key
def test_a_kept_model_predicts_and_learns_as_it_did(key):
    expected = {
        name.rpartition("/")[2]: EXPECTED[name]
        for name in EXPECTED.files
        if name.startswith(f"{key}/")
    }
    model = load_kept_model(*key.split("/"))
    x = expected["regressors"]
    assert_equal(model.predict(x), (expected["mean"], expected["variance"]))

    record = model.update_many(x, expected["targets"])
    np.testing.assert_array_equal(record["slot"], expected["slot"])
    if key in FORGETS_OTHERWISE:
        return
    assert_equal(model.predict(x), (expected["mean_after"], expected["variance_after"]))


def test_every_kept_model_is_compared():
    files_without_a_model = {"start", "trajectory"}
    files = {path.stem for path in DATA.glob("*.nc")} - files_without_a_model
    compared_files = {key.split("/")[0] for key in KEYS}
    assert compared_files == files


def test_a_kept_model_has_its_rules_and_its_linear_mean():
    model = load_kept_model("model_linear_mean")
    assert model.gp.insertion == Either(0.05, 0.02)
    assert model.gp.acceptance == ExceedsMinimum(MeanRelevance(), Reference.in_sample)
    assert model.mean == LinearMean((0.2, 0.1, -1 / 3), 0.03, ridge=0.1)


def test_a_kept_model_has_its_constant_feature_and_its_gate():
    model = load_kept_model("model_scaling")
    assert model.scaling.constant == (2,)
    assert model.gp.gate == 6.0
    assert model.gp.gate_opens_after == 2


def test_a_kept_model_has_its_matrix_limits_and_bands():
    model = load_kept_model("model_projection")
    assert model.scaling.linear_part().shape == (2, 3)
    assert model.limits == (-0.5, 10.0)
    assert model.bands == ((1, 1.25), (3, 1 / 3))


def test_a_kept_model_has_its_forgetting():
    assert load_kept_model("model_forgetting").gp.forgetting == 200.0


def test_a_kept_model_has_the_state_of_its_adaptive_training():
    model = load_kept_model("model_adaptive")
    assert model.follower.settings.on_records is True
    assert model.follower.n_seen == model.gp.n_seen


@each_key
def test_a_kept_model_is_written_alike(key):
    """Attributes, arrays and digest: the present files can be read where the kept ones can.

    The weights are computed anew when a model is loaded; their last digits depend on the machine.
    """
    file, target = key.split("/")
    kept_datasets = read_models(DATA / f"{file}.nc")
    kept = kept_datasets.get(target, kept_datasets.get(""))
    written = load_kept_model(file, target).to_dataset()
    counts = json.loads(kept.attrs["counts"])
    counts["minimum_is_stale"] = 1  # as for every model that was loaded
    kept.attrs = {name: kept.attrs[name] for name in written.attrs}
    kept.attrs["counts"] = json.dumps(counts)
    if "weights" in kept:
        largest = np.abs(kept["weights"].values).max()
        np.testing.assert_allclose(
            written["weights"].values, kept["weights"].values, rtol=0, atol=1e-9 * largest
        )
        kept["weights"] = written["weights"]
    xr.testing.assert_identical(written, kept.assign_attrs(digest=digest(kept)))


@cache
def read_kept_scaling_model():
    """Return the data set of a kept model, which no test changes."""
    (dataset,) = read_models(DATA / "model_scaling.nc").values()
    return dataset


def test_a_kept_model_that_is_copied_can_be_loaded(tmp_path):
    path = tmp_path / "same.nc"
    store.write(read_kept_scaling_model(), path, kind="model")
    assert Model.load(path).mean == ConstantMean(0.3)


def test_a_kept_model_that_was_edited_is_refused(tmp_path):
    dataset = read_kept_scaling_model()
    edited_mean = dataset.attrs["mean"].replace("0.3", "0.4")
    path = tmp_path / "edited.nc"
    store.write(dataset.assign_attrs(mean=edited_mean), path, kind="model")
    with pytest.raises(StoreError, match="edited after it was saved"):
        Model.load(path)


# --- names and schemas that are no longer written -------------------------------------------------


def copy_as_schema(version, file, kind, path, monkeypatch):
    """Write a copy of a kept file that states another version of its schema."""
    groups = store.read_any(DATA / f"{file}.nc", kind=kind)
    monkeypatch.setattr(store, "SCHEMA_VERSION", version)
    if "" in groups:
        store.write(groups[""], path, kind=kind)
    else:
        store.write_groups(groups, path, kind=kind)
    monkeypatch.undo()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("file", "kind"),
    [("model_scaling", "model"), ("model_two_outputs", "model"), ("job", "job")],
)
def test_a_file_of_an_earlier_schema_is_answered_clearly(
    file, kind, version, tmp_path, monkeypatch
):
    path = tmp_path / "model.nc"
    copy_as_schema(version, file, kind, path, monkeypatch)
    expected = (
        rf"model\.nc has schema_version {version}, older than this sysid reads \(3\): "
        r".* identify or simulate again"
    )
    with pytest.raises(StoreError, match=expected):
        JointModel.load(path)


def change_attributes(dataset, changes):
    """Return a data set with other attributes and their digest; None removes an attribute."""
    changed = dataset.assign_attrs(changes)
    changed.attrs = {name: value for name, value in changed.attrs.items() if value is not None}
    return changed.assign_attrs(digest=digest(changed))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"bands": None, "gate": None},
            r"lacks the attributes \['bands', 'gate'\], which every model file of this",
            id="without_bands_and_gate",
        ),
        pytest.param(
            {"mean": None, "target_offset": 0.3},
            r"lacks the attributes \['mean'\]",
            id="offset_instead_of_mean",
        ),
        pytest.param(
            {"insertion": '{"class": "sysid.EitherThreshold", "variance_threshold": 1.0}'},
            "'sysid.EitherThreshold'",
            id="former_rule",
        ),
        pytest.param(
            {"kernel": '{"class": "sysid.kernels.matern.Matern52Form"}'},
            r"'sysid\.kernels\.matern\.Matern52Form'",
            id="former_kernel",
        ),
    ],
)
def test_names_that_this_version_does_not_write_are_not_read(changes, words):
    dataset = change_attributes(read_kept_scaling_model(), changes)
    with pytest.raises(StoreError, match=rf"model\.nc is not a complete model \(.*{words}"):
        Model.restored(dataset, "model.nc")


def test_a_class_that_moved_is_found_under_its_public_name():
    text = json.dumps({"class": "sysid.model.mean.ConstantMean", "value": 2.0})
    assert build(text, MeanFunction) == ConstantMean(2.0)


# --- a start that was written before --------------------------------------------------------------


@pytest.fixture
def kept_start():
    """The start of a model that was written before."""
    return start_from_dataset(from_file(DATA / "start.nc"))


def test_a_kept_start_has_its_map_mean_and_hyperparameters(kept_start):
    third = 1 / 3
    matrix = np.arange(6.0).reshape(2, 3) / 7
    linear = Linear(0.7, (third, 2 / 3))
    smooth = SquaredExponential(0.1 + 0.2, (third, 2 / 3))
    hyperparameters = Hyperparameters(Sum([linear, smooth]), 0.1, -12.3, ("a note",))
    assert kept_start.scaling == AffineMap.of_matrix([third, -0.0, 5e-324], matrix)
    assert kept_start.mean == LinearMean((0.1, -0.2, 1e-300), third)
    assert kept_start.hyperparameters == hyperparameters


def test_a_kept_start_has_its_points_limits_report_and_bands(kept_start):
    points = np.arange(6.0).reshape(3, 2) / 7
    np.testing.assert_array_equal(kept_start.points.inputs, points)
    assert kept_start.points.inputs.flags.f_contiguous
    assert kept_start.limits == (-np.inf, 10.0)
    assert kept_start.report["tried"][0]["rmse"] == 1 / 7
    assert kept_start.bands == ((1, 1 / 3),)
    assert kept_start.stays is True


def test_a_kept_start_is_written_alike(kept_start):
    xr.testing.assert_identical(start_to_dataset(kept_start), from_file(DATA / "start.nc"))


# --- classes of a user ----------------------------------------------------------------------------

OWN_MODULE = """
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
    """A mean function of a module that can be imported."""
    (tmp_path / "of_mine.py").write_text(OWN_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("of_mine").Cooling(0.3)
    sys.modules.pop("of_mine", None)


def learned_model(mean, target="y", outputs=("y",)):
    """Return a model of three features that has learned nine samples."""
    narx = Narx(dict.fromkeys(outputs, 1), {"u": 3 - len(outputs)}, target)
    gp = OnlineGP(SquaredExponential(1.0, [1.0] * 3), noise_variance=0.01, budget=5)
    model = Model(narx, AffineMap.identity(3), mean, gp)
    model.update_many(X, np.sin(X.sum(axis=1)))
    return model


@pytest.fixture(params=[1, 2], ids=["one_output", "two_outputs"])
def own_file(request, own_mean, tmp_path):
    """Path, kind and means of a file with a user's mean, whose module is not imported."""
    path = tmp_path / "model.nc"
    outputs = ("y", "z")[: request.param]
    models = [learned_model(own_mean, name, outputs) for name in outputs]
    JointModel(tuple(models)).save(path)
    means = [model.predict(X).mean for model in models]
    del sys.modules["of_mine"]
    kind = Model if request.param == 1 else JointModel
    return path, kind, means


@pytest.mark.parametrize("trusted", [[], ["of_mine.Other", "of"]], ids=["nothing", "similar_names"])
def test_a_users_class_that_is_not_trusted_is_not_imported(own_file, trusted):
    path, kind, _ = own_file
    message = r"model\.nc: 'of_mine\.Cooling' .* trusted=\['of_mine\.Cooling'\]"
    with pytest.raises(StoreError, match=message):
        kind.load(path, trusted=trusted)
    assert "of_mine" not in sys.modules


@pytest.mark.parametrize(
    "trusted", [["of_mine"], ["other", "of_mine.Cooling"]], ids=["module", "class"]
)
def test_a_users_class_that_is_trusted_is_imported(own_file, trusted):
    path, kind, means = own_file
    models = JointModel.of(kind.load(path, trusted=trusted)).models
    for model, mean in zip(models, means, strict=True):
        np.testing.assert_array_equal(model.predict(X).mean, mean)


def test_what_is_trusted_must_be_a_list(own_file):
    """Every part of a text would count as trusted."""
    path, kind, _ = own_file
    with pytest.raises(StoreError, match=r"trusted must be a list"):
        kind.load(path, trusted="of_mine.Cooling")


def test_a_users_class_whose_module_is_imported_needs_no_trust(own_file):
    path, kind, _ = own_file
    importlib.import_module("of_mine")
    kind.load(path)


def test_a_trusted_class_that_cannot_be_imported_is_named(own_file):
    path, kind, _ = own_file
    (path.parent / "of_mine.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(StoreError, match=r"cannot import 'of_mine\.Cooling'"):
        kind.load(path, trusted=["of_mine"])


def test_a_start_with_a_users_class_is_read_only_if_it_is_trusted(own_mean):
    dataset = start_to_dataset(Start(mean=own_mean))
    del sys.modules["of_mine"]
    with pytest.raises(ValueError, match="trust"):
        start_from_dataset(dataset)
    assert start_from_dataset(dataset, trusted=["of_mine"]).mean.rate == 0.3


# --- counters -------------------------------------------------------------------------------------


def test_every_counter_is_restored(tmp_path):
    model = learned_model(ZeroMean())
    model.gp.n_refactorisations = 2
    model.gp.n_renewals = 3
    model.gp.n_clipped_predictions = 4
    model.save(tmp_path / "model.nc")
    loaded = Model.load(tmp_path / "model.nc")
    assert loaded.gp.repairs == model.gp.repairs
    assert loaded.gp.repairs["clipped_variances"] == 4
    assert loaded.gp.counts() == model.gp.counts() | {"minimum_is_stale": 1}
