"""A model as functions of CasADi: the same predictions, and their exact derivatives."""

import os
import runpy
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from exported_models import MODELS, NESTED, SMOOTH, make_joint_model, make_model, samples
from linear_part_models import joint_model_with_linear_parts, typical_regressors
from sysid import (
    JointModel,
    Matern32,
    Matern52,
    OnlineGP,
    Scaling,
    Sum,
    Taylor,
    ZeroMean,
    casadi_parameters,
    export_casadi,
    free_run,
)
from sysid.gp.formula import JIT_DISABLED
from sysid.simulation.dynamics import Dynamics

if os.environ.get("CI"):
    import casadi
else:
    casadi = pytest.importorskip("casadi", reason='CasADi: pip install -e ".[control]"')

ALL_MODELS = MODELS | {
    "linear_part": joint_model_with_linear_parts,
    "linear_part_change": lambda: joint_model_with_linear_parts(predict="change", n_updates=40),
}
SMOOTH_MODELS = [name for name in ALL_MODELS if name not in ("matern_32", "limits")]
STEP = 1e-4  # of difference quotients, relative to the spread of the features


def export_and_run(model, folder, name="model.py"):
    """Export a model and return the names that its file defines."""
    return runpy.run_path(str(export_casadi(model, folder / name)))


@pytest.fixture(scope="module", params=ALL_MODELS)
def joint(request):
    """One of the models, which no test changes."""
    return JointModel.of(ALL_MODELS[request.param]())


@pytest.fixture(scope="module")
def exported(joint, tmp_path_factory):
    """Names that the file of the model defines."""
    return export_and_run(joint, tmp_path_factory.mktemp("exported"))


def regressors_of(joint):
    """Return regressors (n, p) near those that the models know."""
    if joint.models[0].narx.n_features == 3:
        return samples(9, seed=5)[0]
    return typical_regressors(joint.models[0], 9)


def call_each(function, x, parameters):
    """Return the results (n, ...) of a function of CasADi at every regressor."""
    results = [function(row, parameters) for row in x]
    return np.array([result.full() for result in results])


def derivative(function, output, *, order=1):
    """Return the function of the derivatives of an output by the first argument of a function."""
    x, parameters = function.mx_in()
    value = function(x, parameters)[output]
    for _ in range(order):
        value = casadi.jacobian(value, x)
        value = casadi.vec(value.T)
    return casadi.Function("derivative", [x, parameters], [value])


def difference_quotients(function, x, scale):
    """Return derivatives (n, ..., p) of a function of regressors (n, p) by central differences."""
    quotients = []
    for direction in np.diag(STEP * scale):
        step = direction.sum()
        quotients.append((function(x + direction) - function(x - direction)) / (2 * step))
    return np.stack(quotients, axis=-1)


def moments(joint, x):
    """Return mean and variance (n, m) of the targets."""
    predicted = [model.predict(x) for model in joint.models]
    mean = np.stack([prediction.mean for prediction in predicted], axis=1)
    return mean, np.stack([prediction.variance for prediction in predicted], axis=1)


def assert_same(values, expected, tolerance=1e-10):
    """Assert that arrays agree relative to the largest expected value."""
    assert values.shape == expected.shape
    np.testing.assert_allclose(values, expected, atol=tolerance * max(1.0, np.abs(expected).max()))


# --- predictions and their derivatives ------------------------------------------------------------


def test_it_predicts_as_the_model(joint, exported):
    x = regressors_of(joint)
    mean, variance = moments(joint, x)
    predicted = [exported["predict"](row, exported["PARAMETERS"]) for row in x]
    found_mean, found_variance, found_noise = (
        np.array([result[i].full()[:, 0] for result in predicted]) for i in range(3)
    )
    assert_same(found_mean, mean, 1e-12)
    assert_same(found_variance, variance, 1e-11)
    np.testing.assert_array_equal(found_noise[0], joint.noise_variance)
    assert exported["self_check"]() < 1e-11


def test_the_gradient_is_that_of_the_model(joint, exported):
    x = regressors_of(joint)
    gradient = call_each(derivative(exported["predict"], 0), x, exported["PARAMETERS"])
    assert_same(gradient.reshape(len(x), -1), Dynamics(joint).gradient(x).reshape(len(x), -1))


def test_second_derivatives_are_those_of_the_gradient(joint, exported):
    x = regressors_of(joint)
    dynamics = Dynamics(joint)
    second = call_each(derivative(exported["predict"], 0, order=2), x, exported["PARAMETERS"])
    scale = np.maximum(x.std(axis=0), 0.1)
    expected = difference_quotients(dynamics.gradient, x, scale)
    assert_same(second.reshape(len(x), -1), expected.reshape(len(x), -1), 3e-6)


def test_derivatives_of_the_variance(joint, exported):
    x = regressors_of(joint)
    scale = np.maximum(x.std(axis=0), 0.1)
    gradient = call_each(derivative(exported["predict"], 1), x, exported["PARAMETERS"])
    expected = difference_quotients(lambda rows: moments(joint, rows)[1], x, scale)
    assert_same(gradient.reshape(len(x), -1), expected.reshape(len(x), -1), 3e-6)


@pytest.mark.parametrize("kernel", [Matern32(0.7, [1.0, 0.5, 2.0]), Matern52(1.1, [1.0, 2.0, 0.5])])
@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-6, 1e-2, 0.14, 0.1826, 0.3])
def test_a_matern_kernel_has_derivatives_at_and_near_its_points(kernel, distance, tmp_path):
    """The second derivative of one covariance, which has no curvature elsewhere, in closed form."""
    model = make_model(kernel, ZeroMean())
    exported = export_and_run(model, tmp_path)
    formula = exported["matern_32" if isinstance(kernel, Matern32) else "matern_52"]
    z = casadi.MX.sym("z", 1)
    value = formula(casadi.MX(1.0), casadi.MX(1.0), casadi.MX(np.zeros((1, 1))), z)
    derivatives = casadi.Function(
        "derivatives", [z], [value, casadi.gradient(value, z), casadi.hessian(value, z)[0]]
    )
    found = [float(result) for result in derivatives(distance)]
    if isinstance(kernel, Matern32):
        a = np.sqrt(3.0) * distance
        expected = [(1 + a) * np.exp(-a), -3 * distance * np.exp(-a), -3 * (1 - a) * np.exp(-a)]
    else:
        a = np.sqrt(5.0) * distance
        slope = -5 / 3 * distance * (1 + a) * np.exp(-a)
        curvature = -5 / 3 * (1 + a - a * a) * np.exp(-a)
        expected = [(1 + a + a * a / 3) * np.exp(-a), slope, curvature]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)

    at_points = model.scaling.inverse(model.gp.inputs)
    gradient = call_each(derivative(exported["predict"], 0), at_points, exported["PARAMETERS"])
    assert_same(gradient[:, :, 0], Dynamics(model).gradient(at_points)[:, 0])


# --- samples over time ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(joint):
    """Inputs (12, n_u), first outputs (6, m), and free run of the other six samples."""
    rng = np.random.default_rng(1)
    u = rng.normal(size=(12, len(joint.input_names)))
    y = 0.5 + 0.1 * rng.normal(size=(6, len(joint.output_names)))
    return u, y, free_run(joint, u, y, propagation=Taylor())


def test_a_simulation_is_that_of_the_model(exported, run):
    u, y, simulated = run
    first = exported["state"](u[:6], y)
    mean, last = exported["simulation"](6)(first, u[6:].T, exported["PARAMETERS"])
    assert_same(mean.full().T, simulated.mean)
    path = np.concatenate([y, simulated.mean])
    assert_same(last.full()[:, 0], exported["state"](u, path))


def test_a_forecast_has_the_variance_of_the_linearised_model(exported, run):
    u, y, simulated = run
    first = exported["state"](u[:6], y)
    mean, variance, last = exported["forecast"](6)(first, u[6:].T, exported["PARAMETERS"])
    assert_same(mean.full().T, simulated.mean)
    assert_same(variance.full().T, simulated.variance)
    assert last.shape == (len(exported["STATE_FEATURES"]), 1)


def test_a_step_is_the_first_sample_of_a_forecast(exported, run):
    u, y, simulated = run
    first = exported["state"](u[:6], y)
    following, mean, variance, _ = exported["step"](first, u[6], exported["PARAMETERS"])
    assert_same(mean.full()[:, 0], simulated.mean[0])
    assert_same(variance.full()[:, 0], simulated.variance[0])
    same, mean_alone = exported["transition"](first, u[6], exported["PARAMETERS"])
    np.testing.assert_array_equal(mean_alone.full(), mean.full())
    np.testing.assert_array_equal(same.full(), following.full())


def test_a_simulation_is_differentiated_by_all_coming_inputs(tmp_path):
    """As a predictive controller needs it; the first input acts through all later outputs."""
    exported = export_and_run(make_model(), tmp_path)
    simulation = exported["simulation"](8)
    state, u, parameters = simulation.mx_in()
    mean = simulation(state, u, parameters)[0]
    slopes = casadi.Function("slopes", [state, u, parameters], [casadi.jacobian(mean, u)])
    coming = np.random.default_rng(2).normal(size=8)
    first = exported["state"](np.zeros(3), [0.5, 0.4, 0.3])
    found = slopes(first, coming, exported["PARAMETERS"]).full()

    def simulate(inputs):
        means = [simulation(first, row, exported["PARAMETERS"])[0].full()[0] for row in inputs]
        return np.array(means)

    expected = difference_quotients(simulate, coming[None], np.ones(8))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_lag_before_the_first_sample_takes_the_first_sample(tmp_path):
    exported = export_and_run(make_model(), tmp_path)
    assert exported["STATE_FEATURES"] == (("y", 1), ("u", 1), ("u", 2))
    np.testing.assert_array_equal(exported["state"]([2.0], [5.0]), [5.0, 2.0, 2.0])
    np.testing.assert_array_equal(exported["state"]([1.0, 2.0], [4.0, 5.0]), [5.0, 2.0, 1.0])


def test_a_static_model_has_no_state(tmp_path):
    lags = {"outputs": {"y": []}, "inputs": {"a": [0], "b": [0], "c": [0]}}
    static = make_model(predict="value", **lags)
    exported = export_and_run(static, tmp_path)
    x, _ = samples(4, seed=5)
    mean, variance, _ = exported["forecast"](4)([], x.T, exported["PARAMETERS"])
    expected = static.predict(x)
    assert_same(mean.full()[0], expected.mean)
    assert_same(variance.full()[0], expected.variance)


def test_a_model_with_lags_of_an_output_that_it_does_not_predict_has_no_simulation(tmp_path):
    model = make_model(outputs={"y": 1, "w": 1}, inputs={"u": [2]})
    exported = export_and_run(model, tmp_path)
    x, _ = samples(1, seed=5)
    mean, _, _ = exported["predict"](x[0], exported["PARAMETERS"])
    assert_same(mean.full()[0], model.predict(x).mean)
    assert not {"simulation", "step", "state"} & set(exported)


# --- a model that goes on learning ----------------------------------------------------------------


@pytest.mark.parametrize("learning", ["stored", "every_sample"])
def test_the_functions_take_the_parameters_of_a_model_that_goes_on_learning(learning, tmp_path):
    """From no point to a full budget, of which points are then replaced, with other scales."""
    x, y = samples(40)
    gp = OnlineGP(NESTED, noise_variance=0.01, budget=7, learning=learning)
    model = replace(make_model(scaling=Scaling.fit(x)), gp=gp)
    exported = export_and_run(model, tmp_path)
    for first in range(0, 40, 4):
        model.update_many(x[first : first + 4], y[first : first + 4])
        parameters = exported["parameters"](model)
        assert parameters.shape == exported["PARAMETERS"].shape
        expected = model.predict(x)
        found = [exported["predict"](row, parameters) for row in x]
        assert_same(np.array([float(mean) for mean, _, _ in found]), expected.mean)
        assert_same(np.array([float(variance) for _, variance, _ in found]), expected.variance)
    assert model.gp.n_points == 7


def test_other_hyperparameters_are_other_parameters(tmp_path):
    model = make_model()
    exported = export_and_run(model, tmp_path)
    other = make_model(replace(SMOOTH, variance=2.0), ZeroMean(), Scaling.identity(3))
    x, _ = samples(1, seed=5)
    mean, variance, _ = exported["predict"](x[0], exported["parameters"](other))
    expected = other.predict(x)
    assert_same(np.array([float(mean), float(variance)]), np.ravel(expected))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        pytest.param({"kernel": NESTED}, "kernels", id="kernel"),
        pytest.param({"outputs": {"x": 1}}, "features", id="signal"),
        pytest.param({"inputs": {"u": [0, 1]}}, "features", id="lags"),
        pytest.param({"predict": "value"}, "kind of target", id="target"),
    ],
)
def test_parameters_of_another_structure_are_refused(other, words, tmp_path):
    exported = export_and_run(make_model(), tmp_path)
    with pytest.raises(ValueError, match=f"the {words} of the exported file.*export this model"):
        exported["parameters"](make_model(**other))


def test_the_parameters_are_those_of_the_file(tmp_path):
    model = make_joint_model(NESTED)
    exported = export_and_run(model, tmp_path)
    np.testing.assert_array_equal(casadi_parameters(model), exported["PARAMETERS"].full()[:, 0])


# --- the file alone, and what cannot be exported --------------------------------------------------

RUN_WITHOUT_TOOLBOX = """
import runpy, sys
for name in ("sysid", "scipy", "numba", "xarray"):
    sys.modules[name] = None
runpy.run_path(sys.argv[1], run_name='__main__')
"""


@pytest.mark.skipif(JIT_DISABLED, reason="the file does not know whether the toolbox compiles")
def test_the_file_runs_without_the_toolbox_and_finds_a_changed_digit(tmp_path):
    path = export_casadi(make_joint_model(), tmp_path / "model.py")

    def check():
        command = [sys.executable, "-W", "error", "-c", RUN_WITHOUT_TOOLBOX, str(path)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    finished = check()
    assert (finished.returncode, finished.stderr) == (0, "")
    text = path.read_text()
    i = text.index("CHECK_MEAN") + 30
    path.write_text(text[:i] + ("2" if text[i] == "1" else "1") + text[i + 1 :])
    finished = check()
    assert finished.returncode == 1
    assert "NOT the exported model" in finished.stdout


def test_the_file_has_a_clean_style(tmp_path):
    ruff = pytest.importorskip("ruff").find_ruff_bin()
    path = export_casadi(joint_model_with_linear_parts(), tmp_path / "model.py")
    rules = "--select=E,F,W,I,B,C4,NPY,D1"
    command = [ruff, "check", "--isolated", "--line-length=100", rules, path]
    subprocess.run(command, check=True)


@dataclass(frozen=True)
class OwnMean(ZeroMean):
    """A user's own mean."""


@dataclass(frozen=True)
class OwnKernel(Matern52):
    """A user's own kernel, although its formula is that of the toolbox."""


OWN_KERNEL = OwnKernel(1.0, [1.0] * 3)


@pytest.mark.parametrize(
    ("parts", "name", "words"),
    [
        pytest.param({}, "model.txt", r"\.py", id="suffix"),
        pytest.param({"mean": OwnMean()}, "model.py", "OwnMean cannot", id="own_mean"),
        pytest.param({"kernel": OWN_KERNEL}, "model.py", "OwnKernel cannot", id="own_kernel"),
        pytest.param(
            {"kernel": Sum([SMOOTH, OWN_KERNEL])}, "model.py", "OwnKernel cannot", id="own_part"
        ),
    ],
)
def test_what_cannot_be_exported_is_refused(parts, name, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        export_casadi(make_model(**parts), tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_without_casadi_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(ValueError, match=r"needs CasADi.*\[control\]"):
        export_casadi(make_model(), tmp_path / "model.py")


@pytest.mark.parametrize("n", [0, 2.5, -1])
def test_a_number_of_samples_must_be_one(n, tmp_path):
    exported = export_and_run(make_model(), tmp_path)
    with pytest.raises(ValueError, match="whole number of samples"):
        exported["simulation"](n)
