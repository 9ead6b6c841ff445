"""A model as a Python file: the same predictions with NumPy alone."""

import ast
import runpy
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from exported_models import (
    LINEAR,
    MODELS,
    NESTED,
    make_joint_model,
    make_limited_model,
    make_model,
    samples,
)
from sysid import (
    JointModel,
    LinearMean,
    Matern52,
    Origin,
    StoreError,
    Sum,
    ZeroMean,
    export_python,
    free_run,
)
from sysid.export.standalone import Part, moments
from sysid.gp.formula import JIT_DISABLED

INPUTS = np.random.default_rng(1).normal(size=(12, 1))
FIRST_OUTPUTS = np.array([[0.5], [0.4]])


def export_and_run(model, folder, name="model.py"):
    """Export a model and return the names that its Python file defines."""
    path = export_python(model, folder / name)
    return runpy.run_path(str(path))


def assert_close(values, expected):
    """Assert that arrays agree to rounding of values about one."""
    assert values.shape == expected.shape
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)


# --- predictions and simulations ------------------------------------------------------------------


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """One of the models, which no test changes."""
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """Names that the Python file of the model defines."""
    return export_and_run(model, tmp_path_factory.mktemp("exported"))


def shape_outputs(joint, values):
    """Return values (n, n_y) as the file does: (n,) for a model of one output."""
    return values[:, 0] if len(joint.models) == 1 else values


def simulate(joint):
    """Return the first outputs and a simulation of the other samples (12, n_y)."""
    first_outputs = np.repeat(FIRST_OUTPUTS, len(joint.models), axis=1)
    forecast = free_run(joint, INPUTS, first_outputs)
    return np.concatenate([first_outputs, forecast.mean])


def test_the_file_predicts_as_the_model(model, exported):
    joint = JointModel.of(model)
    x, _ = samples(9, seed=5)
    predictions = [each.predict(x) for each in joint.models]
    expected_mean = np.stack([prediction.mean for prediction in predictions], axis=1)
    expected_variance = np.stack([prediction.variance for prediction in predictions], axis=1)
    mean, variance = exported["predict"](x)
    assert_close(mean, shape_outputs(joint, expected_mean))
    assert_close(variance, shape_outputs(joint, expected_variance))


def test_the_file_simulates_as_the_model(model, exported):
    joint = JointModel.of(model)
    expected = simulate(joint)
    first_outputs = expected[:2]
    simulated = exported["simulate"](INPUTS, first_outputs)
    assert_close(simulated, shape_outputs(joint, expected))

    input_as_vector = INPUTS[:, 0]
    simulated = exported["simulate"](input_as_vector, shape_outputs(joint, first_outputs))
    assert_close(simulated, shape_outputs(joint, expected))


def test_the_file_names_the_outputs_and_checks_itself(model, exported):
    assert exported["OUTPUTS"] == JointModel.of(model).output_names
    assert exported["self_check"]() < 1e-11


def test_limits_hold_the_simulation_of_these_tests():
    model = make_limited_model()
    simulated = simulate(JointModel.of(model))[2:]
    assert simulated.min() == model.limits[0]
    assert simulated.max() == model.limits[1]


@pytest.fixture
def measured(exported):
    """Random outputs (12, n_y)."""
    return np.random.default_rng(3).normal(size=(12, len(exported["OUTPUTS"])))


def test_steps_without_measured_outputs_are_a_simulation_bit_for_bit(exported, measured):
    loop = exported["start"](INPUTS[:2], measured[:2])
    means = [loop.step(u)[0] for u in INPUTS[2:]]
    simulated = exported["simulate"](INPUTS, measured[:2])
    np.testing.assert_array_equal(means, simulated[2:])


def test_steps_with_measured_outputs_are_predictions_bit_for_bit(exported, measured):
    """From the third sample on, all lags are measured."""
    largest_lag = max(lag for _, lag in exported["FEATURES"])
    regressors = exported["regressors"](INPUTS, measured)
    loop = exported["start"](INPUTS[:2], measured[:2])
    for k in range(2, 12):
        step = loop.step(INPUTS[k], measured[k])
        target, variance = exported["predict"](regressors[[k - largest_lag]])
        previous = measured[k - 1] if exported["IS_CHANGE"] else 0.0
        expected = [np.ravel(target) + previous, np.ravel(variance)]
        np.testing.assert_array_equal(np.ravel(step), np.ravel(expected))


def test_rounding_makes_no_variance_negative():
    """One stored point whose factor is 10 % too large."""

    def covariances(parameters, points, x):
        return np.ones(1) * x[0]

    one = np.ones(1)
    part = Part(
        kernel=(covariances, None),
        intercept=0.0,
        slopes=one,
        offset=one,
        matrix=one[:, None],
        points=one[:, None],
        weights=one,
        whitened=one,
        factor=1.1 * one[:, None],
        lowest=0,
        highest=1,
    )
    _, variance = moments(part, np.array([[2.0], [1.5]]))
    np.testing.assert_array_equal(variance, [0.0, 0.5 - (1.1 * 0.5) ** 2])


def test_the_self_check_leaves_out_a_simulation_that_diverges_at_once(tmp_path):
    """The first step leaves all bounds; the predictions are checked."""
    diverging = make_model(LINEAR, LinearMean([1e9, 0.0, 0.0]))
    with_narrow_range = replace(diverging, origin=Origin(output_range=(0.0, 1.0)))
    exported = export_and_run(with_narrow_range, tmp_path)
    assert exported["CHECK_Y"].size == 1
    assert exported["CHECK_Y_INIT"].size == 1
    assert exported["self_check"]() < 1e-11


def test_a_static_model_needs_no_first_outputs(tmp_path):
    lags = {"outputs": {"y": []}, "inputs": {"a": [0], "b": [0], "c": [0]}}
    static = make_model(predict="value", **lags)
    x, _ = samples(9, seed=5)
    exported = export_and_run(static, tmp_path)
    no_outputs = np.empty((0, 1))
    assert_close(exported["simulate"](x, no_outputs), static.predict(x).mean)


def test_a_model_with_lags_of_an_output_that_it_does_not_predict_has_no_simulation(tmp_path):
    model = make_model(outputs={"y": 1, "w": 1}, inputs={"u": [2]})
    x, _ = samples(9, seed=5)
    exported = export_and_run(model, tmp_path)
    mean, _ = exported["predict"](x)
    assert_close(mean, model.predict(x).mean)
    assert "simulate" not in exported
    assert "simulate" not in exported["__doc__"]


# --- what the file states -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tank(tmp_path_factory):
    """Names that a file called tank.py defines."""
    return export_and_run(make_model(), tmp_path_factory.mktemp("tank"), "tank.py")


def test_the_file_states_every_number_bit_for_bit(tank):
    model = make_model()
    state = model.gp.state()
    np.testing.assert_array_equal(tank["POINTS_0"], state["inputs"][state["order"]])
    np.testing.assert_array_equal(tank["WEIGHTS_0"], state["weights"])
    np.testing.assert_array_equal(tank["FACTOR_0"], state["factor"])
    np.testing.assert_array_equal(tank["OFFSET_0"], model.scaling.offset)
    np.testing.assert_array_equal(tank["KERNEL_0_0"], model.gp.kernel.parameters())
    assert tank["NOISE_VARIANCE"] == (model.gp.noise_variance,)


def test_the_file_states_units_sampling_time_and_lags(tank):
    assert tank["UNITS"] == {"u": "N", "y": "m"}
    assert tank["SAMPLING_TIME"] == 0.5
    assert tank["FEATURES"] == (("y", 1), ("u", 0), ("u", 2))


@pytest.mark.parametrize(
    "words",
    [
        "7 points of y",
        "tank.simulate(u, y_init)",
        "Output y [m], lags 1.",
        "Input u [N], lags 0, 2.",
    ],
)
def test_the_docstring_of_the_file_says_how_it_is_used(tank, words):
    assert words in tank["__doc__"]


def test_the_regressors_of_the_file_are_those_of_the_model(tank):
    y, u = np.random.default_rng(2).normal(size=(2, 10))
    expected = make_model().narx.regressors({"y": y, "u": u}).regressor
    np.testing.assert_array_equal(tank["regressors"](u, y), expected)


def test_an_output_may_have_a_name_with_quotes(tmp_path):
    name = 'y"""\'#x °'
    exported = export_and_run(make_model(outputs={name: 1}), tmp_path)
    assert exported["OUTPUTS"] == (name,)


@pytest.mark.parametrize(
    "name",
    [
        'a""" + open("written", "w").write("x") + """',
        'a"""\nopen("written", "w")\nb"""',
        "a\\N{x}",
        "a\\u12",
        "a\\x1",
        "a\\",
        "{name}",
        "class",
        "größe",
        "a\nb",
        "a\udcff",
    ],
    ids=ascii,
)
def test_the_name_of_the_file_is_no_code(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{name}.py"
    export_python(make_model(), path)
    compile(path.read_bytes(), "exported", "exec")
    docstring = ast.get_docstring(ast.parse(path.read_bytes()))
    assert "import model  # Python cannot import the name of this file" in docstring
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        pytest.param("predict", [np.zeros((2, 4))], r"\(n, 3\)", id="too_many_features"),
        pytest.param("predict", [np.full((2, 3), np.nan)], "finite", id="features_of_nan"),
        pytest.param(
            "simulate",
            [np.zeros(5), []],
            "1 to 4 first outputs, got 0",
            id="simulate_without_first_outputs",
        ),
        pytest.param(
            "simulate",
            [[0.0, np.inf], [1.0]],
            r"u: .*shape \(2, 1\) with 1 values that are not finite",
            id="simulate_with_infinite_input",
        ),
        pytest.param(
            "start", [[], []], "first 1 or more samples, got 0 and 0", id="start_without_samples"
        ),
        pytest.param("start", [[1.0, 2.0], [1.0]], "got 2 and 1", id="start_with_other_lengths"),
        pytest.param("regressors", [np.zeros(5), np.zeros(6)], "one length", id="regressors"),
        pytest.param("predict", [np.ma.masked_equal(np.eye(3), 1.0)], "masked", id="masked"),
        pytest.param("predict", [np.zeros((2, 3)) + 1j], "complex", id="complex"),
        pytest.param(
            "simulate", [np.ma.masked_equal([0.0, -999.0], -999.0), [1.0]], "masked", id="masked u"
        ),
    ],
)
def test_the_file_refuses_wrong_arrays(tank, function, arguments, words):
    with pytest.raises(ValueError, match=words):
        tank[function](*arguments)


def test_the_file_of_a_plant_without_inputs_says_how_to_state_none(tank):
    with pytest.raises(ValueError, match=r"u: expected none, np.zeros\(\(n, 0\)\) for n samples"):
        tank["columns"](np.zeros((5, 1)), [], "u")
    assert tank["columns"](np.zeros((5, 0)), [], "u").shape == (5, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([np.nan], "u: .*finite", id="input_of_nan"),
        pytest.param([1.0, [1.0, 2.0]], "y: ", id="two_outputs"),
        pytest.param([np.ma.masked_array([1.0], [True])], "masked", id="masked"),
    ],
)
def test_a_step_refuses_wrong_arrays(tank, arguments, words):
    loop = tank["start"]([0.0], [0.0])
    with pytest.raises(ValueError, match=words):
        loop.step(*arguments)


# --- the file alone -------------------------------------------------------------------------------

RUN_WITHOUT_TOOLBOX = """
import runpy, sys
for name in ("sysid", "scipy", "numba", "xarray"):
    sys.modules[name] = None
runpy.run_path(sys.argv[1], run_name='__main__')
"""


@pytest.fixture
def exported_path(tmp_path):
    """The file of a joint model with nested kernels, in an empty folder."""
    return export_python(make_joint_model(NESTED), tmp_path / "model.py")


def run_without_toolbox(path):
    """Run a file as a script in a process that cannot import the toolbox."""
    command = [sys.executable, "-I", "-c", RUN_WITHOUT_TOOLBOX, str(path)]
    options = {"capture_output": True, "text": True}
    return subprocess.run(command, cwd=path.parent, **options)


def change_a_digit(path):
    """Change one digit of the weights that a file states."""
    text = path.read_text()
    i = text.index("WEIGHTS_0") + 30
    other_digit = "2" if text[i] == "1" else "1"
    path.write_text(text[:i] + other_digit + text[i + 1 :])


def test_the_file_has_a_docstring_and_is_valid_for_an_older_python(exported_path):
    tree = ast.parse(exported_path.read_text(), feature_version=(3, 9))
    assert ast.get_docstring(tree)


def test_the_file_has_a_clean_style(exported_path):
    ruff = pytest.importorskip("ruff").find_ruff_bin()
    rules = "--select=E,F,W,I,B,C4,NPY,D1"
    command = [ruff, "check", "--isolated", "--line-length=100", rules, exported_path]
    subprocess.run(command, check=True)


@pytest.mark.skipif(JIT_DISABLED, reason="the file does not know whether the toolbox compiles")
def test_the_file_runs_without_the_toolbox_and_finds_a_changed_digit(exported_path):
    finished = run_without_toolbox(exported_path)
    assert finished.returncode == 0
    assert finished.stderr == ""

    change_a_digit(exported_path)
    finished = run_without_toolbox(exported_path)
    assert finished.returncode == 1
    assert "NOT the exported model" in finished.stdout


# --- what cannot be exported ----------------------------------------------------------------------


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
        pytest.param({}, "missing/model.py", r"model\.py", id="missing_folder"),
        pytest.param(
            {"mean": OwnMean()},
            "model.py",
            r"test_export\.OwnMean cannot be exported: .* contribute",
            id="own_mean",
        ),
        pytest.param({"kernel": OWN_KERNEL}, "model.py", "OwnKernel cannot", id="own_kernel"),
        pytest.param(
            {"kernel": Sum([LINEAR, OWN_KERNEL])},
            "model.py",
            "OwnKernel cannot",
            id="own_kernel_in_a_sum",
        ),
    ],
)
def test_a_bad_name_and_a_formula_of_the_user_are_refused(parts, name, words, tmp_path):
    with pytest.raises((ValueError, StoreError), match=words):
        export_python(make_model(**parts), tmp_path / name)
    assert not list(tmp_path.iterdir())
