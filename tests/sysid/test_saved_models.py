"""Files of models: every kernel, mean, rule and number of outputs comes back; damage is refused."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import xarray as xr

from naive import CRITERIA
from small_models import (
    ACCEPTANCES,
    INSERTION_RULES,
    KERNELS,
    MEANS,
    MIXED_FEATURES,
    learned_joint_model,
    learned_model,
    samples,
)
from sysid import (
    AffineMap,
    ConstantMean,
    JointModel,
    LinearMean,
    MeanRelevance,
    Model,
    Narx,
    OnlineGP,
    Origin,
    SquaredExponential,
    StoreError,
    describe,
    store,
)
from sysid.model.model import digest

# --- what comes back ------------------------------------------------------------------------------

SETTINGS = ("narx", "scaling", "mean", "origin", "limits", "hyperparameters")


def assert_same_settings(model, expected):
    """Assert that two models are equal."""
    xr.testing.assert_equal(model.to_dataset(), expected.to_dataset())
    for name in SETTINGS:
        assert getattr(model, name) == getattr(expected, name), name


def assert_same_future(expected, *others):
    """Assert that models are equal and go on to predict and learn the same bits."""
    for other in others:
        assert_same_settings(other, expected)
    x, y = samples(6, seed=2)
    for point, target in zip(x, y, strict=True):
        predicted = expected.predict(x)
        report = expected.update(point, target)
        for other in others:
            np.testing.assert_array_equal(other.predict(x), predicted)
            np.testing.assert_equal(other.update(point, target), report)


@pytest.mark.parametrize("i", range(len(ACCEPTANCES)))
def test_a_file_gives_back_every_kernel_mean_rule_and_number_of_outputs(i, tmp_path):
    """They take turns. Saving changes nothing in the model."""
    rules = {
        "insertion": INSERTION_RULES[i % len(INSERTION_RULES)],
        "acceptance": ACCEPTANCES[i],
        "reduction": CRITERIA[(i + i // len(KERNELS)) % len(CRITERIA)],
    }
    options = {
        "kernel": KERNELS[i % len(KERNELS)],
        "mean": MEANS[(i // 2) % len(MEANS)],
        "n_outputs": 1 + i % 2,
    }
    saved = learned_joint_model(**options, **rules)
    never_saved = learned_joint_model(**options, **rules)
    saved.save(tmp_path / "model.nc")
    loaded = JointModel.load(tmp_path / "model.nc")
    for model, original, twin in zip(loaded.models, saved.models, never_saved.models, strict=True):
        assert {name: getattr(model.gp, name) for name in rules} == rules
        assert_same_future(original, model, twin)


def model_that_is_not_full():
    return learned_model(n_updates=1)


def model_with_limits():
    return replace(learned_model(), limits=(-np.inf, 20.0))


def model_with_a_constant_feature():
    x, _ = samples(30)
    return learned_model(scaling=AffineMap.fit(x * [1.0, 1.0, 0.0]))


def model_without_samples():
    gp = OnlineGP(KERNELS[0], noise_variance=0.01, budget=5)
    return replace(learned_model(), gp=gp, origin=Origin())


def model_of_combined_features():
    return learned_model(SquaredExponential(1.0, [1.0, 2.0]), scaling=MIXED_FEATURES)


@pytest.mark.parametrize(
    "make_model",
    [
        model_that_is_not_full,
        model_with_limits,
        model_with_a_constant_feature,
        model_without_samples,
        model_of_combined_features,
    ],
)
def test_a_file_gives_back_special_models(make_model, tmp_path):
    path = tmp_path / "model.nc"
    model = make_model()
    model.save(path, attributes={"seed": 7})
    assert store.read(path, kind="model").attrs["seed"] == 7
    loaded = Model.load(path)
    constant_features = (2,) if make_model is model_with_a_constant_feature else ()
    assert loaded.constant_features == constant_features
    assert_same_future(model, loaded)


# --- files without such a model -------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    """Path of a file that a test writes."""
    return tmp_path / "model.nc"


@pytest.fixture(scope="module")
def two_outputs():
    """A joint model of two outputs, which no test changes."""
    return learned_joint_model(2)


@pytest.mark.parametrize("kind", [Model, JointModel])
def test_a_file_of_another_kind_is_refused(kind, path):
    store.write(xr.Dataset({"a": ("x", [1.0])}), path, kind="result")
    with pytest.raises(StoreError, match="result"):
        kind.load(path)


def test_a_joint_model_is_no_single_model(path, two_outputs):
    two_outputs.save(path)
    with pytest.raises(StoreError, match="JointModel"):
        Model.load(path)


def test_a_joint_model_that_lacks_an_output_is_refused(path, two_outputs):
    groups = {"y1": two_outputs.models[0].to_dataset()}
    store.write_groups(groups, path, kind="model")
    with pytest.raises(StoreError, match=r"model\.nc cannot be simulated"):
        JointModel.load(path)


def test_a_file_that_was_cut_is_refused(path, two_outputs):
    two_outputs.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"model\.nc"):
        JointModel.load(path)


# --- content that does not fit together -----------------------------------------------------------

VARIABLES = [
    "inputs",
    "targets",
    "order",
    "cholesky",
    "factor",
    "pivots",
    "whitened",
    "weights",
    "precision",
    "errors",
    "number",
    "feature_offset",
    "feature_scale",
]
ATTRIBUTES = [
    "acceptance",
    "bands",
    "budget",
    "constant_features",
    "counts",
    "forgetting",
    "gate",
    "gate_opens_after",
    "insertion",
    "kernel",
    "learning",
    "mean",
    "narx",
    "noise_variance",
    "origin",
    "output_limits",
    "reduction",
    "scale",
]

#: values of attributes that no complete model has
WRONG_ATTRIBUTES = {
    "budget": ["many", float("inf"), 10**6, 10**15],
    "pending": ["[1]", "[" * 10**5 + "]" * 10**5],
    "noise_variance": [-1.0, 0.5, "small"],
    "kernel": [
        "no json",
        '{"class": "os.path.join"}',
        describe(SquaredExponential(1.0, [1.0])),
    ],
    "insertion": [describe(MeanRelevance())],
    "narx": [
        "{}",
        "[1]",
        '{"outputs": {"y": 2}, "hidden": 3}',
        json.dumps(Narx({"y1": 2}).to_dict()),
    ],
    "counts": ["3", '{"points": "a"}'],
    "constant_features": ["[99]", "null"],
    "mean": [
        "zero",
        describe(ConstantMean(0.0)).replace("0.0", "NaN"),
        describe(LinearMean([1.0])),
    ],
    "bands": ["[[3, 1.0], [1, 1.0]]", "[[1, 0.0]]", "[[0, 1.0]]", "[3]", "wide"],
    "output_limits": [[2.0, 1.0], 3.0, "none", [float("nan"), 1.0]],
    "origin": [
        *("none", "[]", '{"sampling_time": -1}', '{"unknown": 1}'),
        *('{"output_mean": NaN}', '{"output_mean": "1"}', '{"output_mean": -Infinity}'),
        *('{"output_variance": -1}', '{"output_variance": NaN}'),
        *('{"output_range": [1]}', '{"output_range": [2, 1]}', '{"output_range": [0, NaN]}'),
        *('{"n_samples": -1}', '{"n_samples": 1.5}', '{"n_samples": 1e300}'),
    ],
}

#: factors after which a variable no longer fits the others
WRONG_FACTORS = {
    "inputs": 1.01,
    "targets": 1.01,
    "cholesky": 1.01,
    "factor": 1.01,
    "weights": 1.01,
    "whitened": 1.01,
    "pivots": 1.01,
    "precision": 1.01,
    "order": 0,
    "feature_scale": -1.0,
    "errors": -1.0,
}


@pytest.fixture(scope="module")
def dataset():
    """The data set of a complete model, which no test changes."""
    return learned_model().to_dataset()


def test_every_variable_and_attribute_of_a_model_is_damaged_below(dataset):
    assert list(dataset.data_vars) == VARIABLES
    assert sorted(dataset.attrs.keys() - {"digest"}) == ATTRIBUTES


def drop_attribute(dataset, name):
    """Return the data set without one attribute."""
    reduced = dataset.copy()
    del reduced.attrs[name]
    return reduced


def set_attribute(dataset, name, value):
    """Return the data set with another value of one attribute."""
    return dataset.assign_attrs({name: value})


def multiply_variable(dataset, name, factor):
    """Return the data set with one variable multiplied by a factor."""
    return dataset.assign({name: factor * dataset[name]})


def raise_numbers(dataset):
    """Return the data set with numbers of samples that the model has not seen."""
    return dataset.assign(number=dataset["number"] + 10**9)


def all_damages():
    """Yield a case for every change that makes a model incomplete or inconsistent."""
    yield pytest.param(raise_numbers, id="numbers_raised")
    for name in VARIABLES:
        damage = partial(xr.Dataset.drop_vars, names=name)
        yield pytest.param(damage, id=f"without_{name}")
    for name in ATTRIBUTES:
        damage = partial(drop_attribute, name=name)
        yield pytest.param(damage, id=f"without_{name}")
    for name, factor in WRONG_FACTORS.items():
        damage = partial(multiply_variable, name=name, factor=factor)
        yield pytest.param(damage, id=f"{name}_times_{factor}")
    for name, values in WRONG_ATTRIBUTES.items():
        for i, value in enumerate(values):
            damage = partial(set_attribute, name=name, value=value)
            yield pytest.param(damage, id=f"wrong_{name}_{i}")


@pytest.mark.parametrize("damage", list(all_damages()))
def test_content_that_does_not_fit_together_is_refused(damage, dataset):
    """Even with the right digest: if the factor is not that of the points, the model predicts
    nonsense.
    """
    damaged = damage(dataset)
    sealed = damaged.assign_attrs(digest=digest(damaged))
    with pytest.raises(StoreError, match=r"model\.nc is not a complete model") as refusal:
        Model.restored(sealed, "model.nc")
    assert "digest" not in str(refusal.value)


@pytest.mark.parametrize("value", [-1, 1.5, True, None, "1", 2**62, 10**30, float("nan")])
@pytest.mark.parametrize("name", ["entries", "seen", "outliers", "renewals"])
def test_a_counter_that_no_model_has_is_refused(name, value, dataset):
    counts = json.loads(dataset.attrs["counts"]) | {name: value}
    edited = dataset.assign_attrs(counts=json.dumps(counts))
    with pytest.raises(StoreError, match=f"counts: {name} must be a whole number"):
        Model.restored(edited.assign_attrs(digest=digest(edited)), "model.nc")


def shift_feature_offset(dataset):
    """Return the data set with a slightly larger offset of all features."""
    return dataset.assign(feature_offset=dataset["feature_offset"] + 1e-9)


def change_limits(dataset):
    """Return the data set with other limits of the output."""
    return dataset.assign_attrs(output_limits=[0.0, 10.0])


def change_kind_of_target(dataset):
    """Return the data set of a model that predicts values instead of changes."""
    return dataset.assign_attrs(narx=dataset.attrs["narx"].replace("change", "value"))


def empty_digest(dataset):
    """Return the data set with an empty digest."""
    return dataset.assign_attrs(digest="")


@pytest.mark.parametrize(
    "edit", [shift_feature_offset, change_limits, change_kind_of_target, empty_digest]
)
def test_complete_content_that_was_edited_is_refused(edit, dataset):
    with pytest.raises(StoreError, match="edited after it was saved"):
        Model.restored(edit(dataset), "model.nc")


def test_a_foreign_attribute_is_allowed(dataset):
    annotated = dataset.assign_attrs(history="looked at")
    assert Model.restored(annotated, "model.nc").gp.n_points == 12
