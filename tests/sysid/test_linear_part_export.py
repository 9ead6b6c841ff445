"""A model with a linear part as a Python file: the same predictions with NumPy alone."""

import runpy
from dataclasses import replace

import numpy as np
import pytest

from coupled_models import signals
from linear_part_models import (
    KERNEL,
    joint_model_with_linear_parts,
    model_with_linear_part,
    typical_regressors,
)
from sysid import (
    AffineMap,
    Linear,
    Matern52,
    OnlineGP,
    SquaredExponential,
    Sum,
    WithLinearPart,
    ZeroMean,
    export_python,
    free_run,
)

SUM = Sum([Linear(0.3, [1.0, 0.1, 0.2]), Matern52(1.1, [1.0, 2.0, 0.5])])
NAMES = ("a", "b")


def model_without_points():
    """Return a joint model whose Gaussian processes have seen nothing."""
    joint = joint_model_with_linear_parts()
    gp = OnlineGP(KERNEL, noise_variance=1e-3, budget=5, learning="every_sample")
    models = [replace(model, gp=gp, mean=ZeroMean()) for model in joint.models]
    return type(joint)(tuple(models))


def model_of_combined_features():
    """Return a joint model whose process sees two combinations of its three features."""
    matrix = np.zeros((10, 11))
    matrix[:2, :3] = [[1.0, 0.5, 0.0], [0.3, -0.2, 1.0]]
    matrix[2:, 3:] = np.diag(np.linspace(0.5, 2.0, 8))
    kernel = WithLinearPart(SquaredExponential(0.5, [1.0, 2.0]), KERNEL.linear)
    scaling = AffineMap.of_matrix(np.linspace(0.0, 1.0, 11), matrix)
    return joint_model_with_linear_parts(kernel=kernel, scaling=scaling)


MODELS = {
    "values": joint_model_with_linear_parts,
    "changes": lambda: joint_model_with_linear_parts(predict="change"),
    "points that were replaced": lambda: joint_model_with_linear_parts(n_updates=60),
    "a sum of kernels": lambda: joint_model_with_linear_parts(
        kernel=WithLinearPart(SUM, KERNEL.linear)
    ),
    "combined features": model_of_combined_features,
    "nothing learned": model_without_points,
}


@pytest.fixture(scope="module", params=MODELS)
def joint(request):
    """One of the models of two outputs, which no test changes."""
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def exported(joint, tmp_path_factory):
    """Names that the Python file of the model defines."""
    path = export_python(joint, tmp_path_factory.mktemp("exported") / "model.py")
    return runpy.run_path(str(path))


def test_the_file_predicts_the_same(joint, exported):
    x = typical_regressors(joint.models[0], 20)
    mean, variance = exported["predict"](x)
    for i, model in enumerate(joint.models):
        predicted = model.predict(x)
        np.testing.assert_allclose(mean[:, i], predicted.mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(variance[:, i], predicted.variance, rtol=1e-7, atol=1e-10)


def test_the_file_simulates_the_same(joint, exported):
    data = signals(30, seed=6)
    outputs = np.stack([data[name] for name in NAMES], axis=1)
    expected = free_run(joint, data["u"][:, None], outputs[:6])
    simulated = exported["simulate"](data["u"], outputs[:6])
    np.testing.assert_allclose(simulated[6:], expected.mean, rtol=1e-7, atol=1e-8)


def test_the_loop_of_the_file_predicts_what_the_model_predicts(joint, exported):
    data = signals(20, seed=6)
    outputs = np.stack([data[name] for name in NAMES], axis=1)
    loop = exported["start"](data["u"][:6], outputs[:6])
    x = exported["regressors"](data["u"], outputs)
    first = len(outputs) - len(x)
    for k in range(6, 20):
        mean, variance = loop.step(data["u"][k], outputs[k])
        for i, model in enumerate(joint.models):
            predicted = model.predict(x[[k - first]])
            value = predicted.mean[0]
            if model.narx.predict.value == "change":
                value += outputs[k - 1, i]
            np.testing.assert_allclose(mean[i], value, rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(variance[i], predicted.variance[0], rtol=1e-7, atol=1e-10)


def test_the_file_checks_itself_and_states_its_lags(joint, exported):
    assert exported["self_check"]() < 1e-6
    assert "Output a [m], lags 1, 2, 3, in the linear part 4, 5." in exported["__doc__"]


def test_a_model_of_one_output_among_others_predicts(tmp_path):
    model = model_with_linear_part("b")
    exported = runpy.run_path(str(export_python(model, tmp_path / "model.py")))
    x = typical_regressors(model, 20)
    mean, variance = exported["predict"](x)
    predicted = model.predict(x)
    np.testing.assert_allclose(mean, predicted.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(variance, predicted.variance, rtol=1e-7, atol=1e-10)
    assert "simulate" not in exported
