"""Exported files of trained models: they compute what the model does, whatever trained it."""

import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sysid import (
    Adaptive,
    FreeRun,
    JointModel,
    LinearPart,
    Matern52,
    MaximumAPosteriori,
    Narx,
    OutputErrorRefinement,
    ProfileSearch,
    export_python,
    free_run,
    identify,
)

DATA = Path(__file__).parents[1] / "data"

#: Largest difference between file and model: of means relative to the largest one, of variances
#: relative to themselves with the noise.
TOLERANCE = 1e-10

N_SAMPLES = 160  # of a record from which a model is identified
N_STEPS = 20  # samples that the loop of the file predicts one by one

TRAINING = MaximumAPosteriori(n_initial=80, restarts=1)
ADAPTIVE = Adaptive(n_initial=80, restarts=1, interval=40)
SEARCH = FreeRun(routes=(ProfileSearch(evaluations=10),), folds=2)
REFINEMENT = FreeRun(routes=(OutputErrorRefinement(stages=2),), folds=2)


def two_coupled_outputs(n):
    """Return the input (n,) and the two outputs (n,) of a plant, by name."""
    generator = np.random.default_rng(0)
    u = np.convolve(generator.normal(size=n + 4), np.ones(5) / 2.2, "valid")
    y = np.zeros(n)
    z = np.zeros(n)
    for k in range(2, n):
        y[k] = 1.2 * y[k - 1] - 0.4 * y[k - 2] + 0.4 * np.tanh(u[k - 1]) + 0.1 * z[k - 1]
        z[k] = 0.8 * z[k - 1] + 0.3 * np.sin(y[k - 1]) + 0.1 * u[k - 2]
    noise = 0.02 * generator.normal(size=(2, n))
    return {"u": u, "y": y + noise[0], "z": z + noise[1]}


def identify_outputs(outputs, predict="change", n_samples=N_SAMPLES, **settings):
    """Return the models of these outputs, with the same lags, identified from the record."""
    narx = Narx(outputs, {"u": [1, 2]}, predict=predict)
    record = two_coupled_outputs(n_samples)
    data = {name: record[name] for name in ("u", *outputs)}
    models = []
    for name in outputs:
        of_output = replace(narx, target=name)
        models.append(identify(data, of_output, dt=1.0, budget=12, **settings).model)
    return JointModel(tuple(models))


def of_one(predict="change", **settings):
    return lambda: identify_outputs({"y": 2}, predict, **settings)


def of_two(predict="change", **settings):
    return lambda: identify_outputs({"y": 2, "z": 1}, predict, **settings)


def of_file(name):
    return lambda: JointModel.load(DATA / f"model_{name}.nc")


SPLINE = {"linear_part": "stable_spline"}
SHORT_SPLINE = {"linear_part": LinearPart("stable_spline", lags={"u": 6}, decay="second_order")}

QUICK_MODELS = {
    **{path.stem: of_file(path.stem.removeprefix("model_")) for path in DATA.glob("model_*.nc")},
    "linear part": of_one(training=TRAINING, **SPLINE),
    "linear part, adaptive, forgetting": of_one(training=ADAPTIVE, forgetting=60.0, **SPLINE),
    "linear part, two outputs": of_two("value", training=TRAINING, **SPLINE),
}
SLOW_MODELS = {
    "default linear part": of_one(n_samples=400),
    "linear part, value": of_one("value", training=TRAINING, **SPLINE),
    "linear part of one signal": of_one(training=TRAINING, **SHORT_SPLINE),
    "linear part, Matern": of_one(training=TRAINING, kernel=Matern52(), **SPLINE),
    "linear part, adaptive, two outputs": of_two(training=ADAPTIVE, forgetting=60.0, **SPLINE),
    "stored, adaptive": of_one(training=ADAPTIVE, learning="stored"),
    "free run by search": of_one("value", training=SEARCH),
    "free run by search, two outputs": of_two(training=SEARCH),
    "free run by refinement, value": of_one("value", training=REFINEMENT),
    "free run by refinement, change": of_one(training=REFINEMENT),
}
WITH_LINEAR_PART = [name for name in QUICK_MODELS | SLOW_MODELS if "linear part" in name]
CASES = [
    *[pytest.param(make, id=name) for name, make in QUICK_MODELS.items()],
    *[pytest.param(make, id=name, marks=pytest.mark.slow) for name, make in SLOW_MODELS.items()],
]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """A joint model, and what its file defines."""
    joint = request.param()
    path = export_python(joint, tmp_path_factory.mktemp("exported") / "model.py")
    return SimpleNamespace(joint=joint, file=runpy.run_path(str(path)))


def typical_signals(joint, n=60):
    """Return inputs (n, n_u) and outputs (n, n_y) where the model has its points."""
    model = joint.models[0]
    generator = np.random.default_rng(1)
    spread = model.gp.inputs.std(axis=0).mean()
    z = model.gp.inputs.mean(axis=0) + spread * generator.normal(size=(n, model.gp.n_features))
    inverse = np.linalg.pinv(model.scaling.linear_part())
    x = model.scaling.offset + z @ inverse.T
    columns = {}
    for column, (signal, _) in enumerate(model.narx.features):
        columns.setdefault(signal, x[:, column])
    u = np.stack([columns[name] for name in model.narx.input_names], axis=1)
    no_lags = np.zeros(n)
    y = np.stack([columns.get(name, no_lags) for name in model.narx.output_names], axis=1)
    return u, y


def assert_means_equal(means, expected):
    """Assert that means (n, n_y) or (n,) are equal up to the tolerance."""
    expected = np.asarray(expected)
    means = np.reshape(means, expected.shape)
    np.testing.assert_allclose(means, expected, rtol=0, atol=TOLERANCE * abs(expected).max())


def predict(joint, x):
    """Return means and variances (n, m) of the models at regressors."""
    predictions = [model.predict(x) for model in joint.models]
    means = np.stack([prediction.mean for prediction in predictions], axis=1)
    return means, np.stack([prediction.variance for prediction in predictions], axis=1)


def test_the_file_of_a_trained_model_predicts_the_same(case):
    u, y = typical_signals(case.joint)
    x = case.file["regressors"](u, y)
    mean, variance = case.file["predict"](x)
    expected_mean, expected_variance = predict(case.joint, x)
    assert_means_equal(mean, expected_mean)
    noise = case.joint.noise_variance
    variance = np.reshape(variance, expected_variance.shape)
    np.testing.assert_allclose(
        variance / noise, expected_variance / noise, rtol=TOLERANCE, atol=TOLERANCE
    )


def test_the_file_of_a_trained_model_simulates_the_same(case):
    u, y = typical_signals(case.joint)
    n_first = max(case.joint.models[0].narx.max_lag, 1)
    forecast = free_run(case.joint, u, y[:n_first])
    n = len(forecast.mean) if forecast.left is None else forecast.left
    simulated = case.file["simulate"](u, y[:n_first])
    assert_means_equal(simulated[n_first : n_first + n], forecast.mean[:n])


def test_the_loop_of_a_trained_model_predicts_the_same(case):
    u, y = typical_signals(case.joint)
    x = case.file["regressors"](u, y)
    n_first = len(y) - len(x)
    expected, _ = predict(case.joint, x[:N_STEPS])
    if case.file["IS_CHANGE"]:
        expected = expected + y[n_first - 1 : n_first - 1 + N_STEPS]
    loop = case.file["start"](u[:n_first], y[:n_first])
    steps = [loop.step(u[k], y[k])[0] for k in range(n_first, n_first + N_STEPS)]
    assert_means_equal(steps, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_LINEAR_PART)
def test_the_models_with_a_linear_part_have_one(name):
    joint = (QUICK_MODELS | SLOW_MODELS)[name]()
    assert all(model.gp.n_linear > 0 for model in joint.models)


def test_the_file_of_a_trained_model_checks_itself(case):
    assert case.file["self_check"]() < TOLERANCE
