"""Files of models with a linear part, and their hyper-parameters for display."""

import json

import numpy as np
import pytest
import xarray as xr

from coupled_models import signals
from linear_part_models import (
    KERNEL,
    joint_model_with_linear_parts,
    model_with_linear_part,
    typical_regressors,
)
from sysid import (
    Diagonal,
    Estimate,
    JointModel,
    Kernel,
    Model,
    SecondOrderSpline,
    SquaredExponential,
    StableSpline,
    StoreError,
    Sum,
    TunedCorrelated,
    WithLinearPart,
    build,
    describe,
    store,
)
from sysid.gp.adaptation import Reason
from sysid.model.model import digest
from sysid.model.result import with_estimates

DECAYS = [TunedCorrelated(), SecondOrderSpline(), Diagonal()]


def kernel_with(decay):
    """Return the kernel of the models with another decay of the coefficients."""
    linear = StableSpline([2, 3, 3], [0.3, 0.1, 0.2], [2.0, 5.0, 1.0], decay=decay)
    return WithLinearPart(SquaredExponential(0.3, [2.0, 1.5, 1.8]), linear)


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: type(decay).__name__)
def test_the_text_of_a_kernel_gives_it_back(decay):
    kernel = kernel_with(decay)
    text = describe(kernel)
    assert json.loads(text)["linear"]["decay"]["class"] == f"sysid.{type(decay).__name__}"
    assert build(text, Kernel) == kernel


def test_the_text_of_a_prototype_gives_it_back():
    prototype = WithLinearPart(SquaredExponential(), StableSpline([4, 3]))
    assert build(describe(prototype), Kernel) == prototype


def assert_same_future(model, expected):
    """Assert that two models are equal and go on to predict and learn the same bits."""
    xr.testing.assert_equal(model.to_dataset(), expected.to_dataset())
    assert model.hyperparameters == expected.hyperparameters
    rows = model.narx.regressors(signals(60, seed=4))
    for x, y in zip(rows.regressor, rows.target, strict=True):
        np.testing.assert_array_equal(model.predict(x[None]), expected.predict(x[None]))
        np.testing.assert_equal(model.update(x, y), expected.update(x, y))
    xr.testing.assert_equal(model.to_dataset(), expected.to_dataset())


@pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: type(decay).__name__)
def test_a_file_gives_back_the_models_of_all_outputs(decay, tmp_path):
    path = tmp_path / "model.nc"
    joint = joint_model_with_linear_parts(kernel=kernel_with(decay), n_updates=60)
    joint.save(path)
    loaded = JointModel.load(path)
    for model, original in zip(loaded.models, joint.models, strict=True):
        assert_same_future(model, original)


@pytest.mark.parametrize("forgetting", [None, 50.0])
def test_a_file_gives_back_a_model_that_forgets_or_tests_for_outliers(forgetting, tmp_path):
    path = tmp_path / "model.nc"
    model = model_with_linear_part(n_updates=30, forgetting=forgetting, gate=4.0, n_points=6)
    model.save(path)
    assert_same_future(Model.load(path), model)


def test_a_model_without_linear_part_has_no_array_of_it():
    dataset = plain_model().to_dataset()
    assert "linear" not in dataset
    assert dataset["root"].dims == ("age", "age_of_column")


def plain_model():
    """Return a model of the same lags without a linear part."""
    kernel = SquaredExponential(0.3, [2.0] * 11)
    return model_with_linear_part(kernel=kernel)


# --- files that do not fit together ---------------------------------------------------------------


@pytest.fixture(scope="module")
def dataset():
    """The data set of a model with a linear part, which no test changes."""
    return model_with_linear_part().to_dataset()


def with_coefficients(dataset, values):
    """Return the data set with other coefficients of the linear part."""
    attributes = dataset["linear"].attrs
    return dataset.drop_vars("linear").assign(linear=("other_lag", values, attributes))


DAMAGES = {
    "coefficients are missing": lambda data: data.drop_vars("linear"),
    "coefficients are not finite": lambda data: data.assign(linear=np.nan * data["linear"]),
    "coefficients are too few": lambda data: with_coefficients(data, np.zeros(7)),
    "coefficients are too many": lambda data: with_coefficients(data, np.zeros(9)),
    "root is missing": lambda data: data.drop_vars("root"),
    "root is that of the points": lambda data: data.drop_vars("root").assign(
        root=data["root"][8:, 8:]
    ),
    "root is wider than the prior": lambda data: data.assign(root=2.0 * data["root"]),
    "kernel has no linear part": lambda data: data.assign_attrs(
        kernel=describe(SquaredExponential(0.3, [2.0] * 11))
    ),
    "kernel has other lags": lambda data: data.assign_attrs(
        kernel=describe(WithLinearPart(KERNEL.kernel, StableSpline([4, 4], [1, 1], [2, 2])))
    ),
    "kernel has fewer lags": lambda data: data.assign_attrs(
        kernel=describe(WithLinearPart(KERNEL.kernel, StableSpline([4, 3], [1, 1], [2, 2])))
    ),
    "kernel is a linear part alone": lambda data: data.assign_attrs(
        kernel=describe(StableSpline([5, 6], [1, 1], [2, 2]))
    ),
    "only stored samples are learned": lambda data: data.assign_attrs(learning="stored"),
    "lags need too much memory": lambda data: data.assign_attrs(
        kernel=describe(WithLinearPart(KERNEL.kernel, StableSpline([10**9, 1], [1, 1], [2, 2])))
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_does_not_fit_together_is_refused(damage, dataset, tmp_path):
    """Its digest is right, as anybody can write it, but where nothing else contradicts the file."""
    path = tmp_path / "model.nc"
    damaged = DAMAGES[damage](dataset)
    if damage != "kernel has other lags":
        damaged = damaged.assign_attrs(digest=digest(damaged))
    store.write(damaged, path, kind="model")
    with pytest.raises(StoreError, match="complete model") as refusal:
        Model.load(path)
    assert len(str(refusal.value)) < 2000


def test_coefficients_that_were_edited_are_refused(dataset, tmp_path):
    path = tmp_path / "model.nc"
    store.write(dataset.assign(linear=1.01 * dataset["linear"]), path, kind="model")
    with pytest.raises(StoreError, match="edited after it was saved"):
        Model.load(path)


@pytest.mark.parametrize("part", [KERNEL, StableSpline([3], [1.0], [2.0])])
def test_a_sum_of_kernels_has_no_linear_part_among_its_parts(part):
    other = SquaredExponential(1.0, [1.0] * part.n_features)
    with pytest.raises(TypeError, match="WithLinearPart"):
        Sum([other, part])


# --- hyper-parameters for display -----------------------------------------------------------------


def test_hyperparameters_are_listed_by_features_and_signals_in_the_units_of_the_data():
    model = model_with_linear_part()
    scale = model.scaling.scale
    shown = model.hyperparameters
    lengths = np.array([2.0, 1.5, 1.8]) * scale[:3]
    names = model.narx.feature_names[:3]
    assert shown["kernel"]["length_scales"] == dict(zip(names, lengths, strict=True))
    variances = np.array([0.3, 0.1, 0.2]) / scale[[3, 5, 8]] ** 2
    linear = shown["linear_part"]
    assert linear["n_lags"] == {"a": 2, "b": 3, "u": 3}
    assert linear["memories"] == {"a": 2.0, "b": 5.0, "u": 1.0}
    np.testing.assert_allclose(list(linear["variances"].values()), variances)
    assert list(linear["variances"]) == ["a", "b", "u"]
    assert json.loads(json.dumps(shown)) == shown


def test_the_coefficients_have_the_variance_that_is_shown():
    """It is that of the change of the target when the first lag of a signal changes by one."""
    model = model_with_linear_part()
    x = typical_regressors(model, 1)
    changed = x.copy()
    changed[0, 3] += 0.5
    z, other = (model.scaling.transform(row) for row in (x, changed))
    spread = KERNEL.linear.diagonal((other - z)[:, 3:])
    shown = model.hyperparameters["linear_part"]["variances"]["a"]
    np.testing.assert_allclose(spread, shown * 0.25)


# --- estimates in the record of a run -------------------------------------------------------------


def estimate_of(kernel):
    """Return an estimate of the hyper-parameters after two samples."""
    return Estimate(
        sample=2,
        reason=Reason.errors,
        statistic=4.5,
        n_errors=50,
        log_density_before=-9.0,
        log_density_after=-2.0,
        n_evaluations=17,
        seconds=0.25,
        kernel=kernel,
        noise_variance=0.07,
    )


def record_of_two_samples(kernel):
    """Return the record of a run of two samples with an estimate, and its model."""
    model = model_with_linear_part(kernel=kernel)
    record = xr.Dataset(
        {"variance": ("sample", [0.0, 0.0], {"units": "K2"})},
        coords={"time": ("sample", [0.0, 1.0])},
    )
    return with_estimates(record, [estimate_of(kernel)], model), model


def test_estimates_list_the_linear_part_by_signal_in_the_units_of_the_data():
    result, model = record_of_two_samples(KERNEL)
    scale = model.scaling.scale
    np.testing.assert_allclose(result["estimate_variance"], [0.3])
    expected = np.full(11, np.nan)
    expected[:3] = np.array([2.0, 1.5, 1.8]) * scale[:3]
    np.testing.assert_allclose(result["estimate_length_scale"], [expected])
    assert result["linear_signal"].values.tolist() == ["a", "b", "u"]
    variances = np.array([0.3, 0.1, 0.2]) / scale[[3, 5, 8]] ** 2
    np.testing.assert_allclose(result["estimate_coefficient_variance"], [variances])
    np.testing.assert_allclose(result["estimate_memory"], [[2.0, 5.0, 1.0]])


def test_estimates_of_a_composed_kernel_are_listed_by_name_beside_the_linear_part():
    parts = [SquaredExponential(0.3, [2.0, 1.5, 1.8]), SquaredExponential(0.2, [1.0, 1.0, 1.0])]
    result, _ = record_of_two_samples(WithLinearPart(Sum(parts), KERNEL.linear))
    assert result["estimate_hyperparameter"].shape == (1, 8)
    np.testing.assert_allclose(result["estimate_memory"], [[2.0, 5.0, 1.0]])
