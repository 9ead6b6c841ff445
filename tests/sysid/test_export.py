"""A model as a Python file: the same predictions with NumPy alone."""

import ast
import math
import runpy
import subprocess
import sys
from dataclasses import dataclass, replace
from math import exp

import numpy as np
import pytest
from numba import njit

from sysid import OnlineGP, SquaredExponential
from sysid.export import SourceError, export_python
from sysid.export.python_file import python_text
from sysid.export.standalone import Part, moments
from sysid.formula import PLAIN
from sysid.free_run import free_run
from sysid.joint import JointModel
from sysid.kernels import Linear, Matern32, Matern52, Product, Sum
from sysid.kernels.stationary import Stationary
from sysid.mean import ConstantMean, LinearMean, MeanFunction, ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.origin import Origin
from sysid.projection import Projection
from sysid.scaling import Scaling
from sysid.store import StoreError

GAIN = 0.3  # of a mean function


def bent(values):
    return math.pi * np.tanh(values)


@dataclass(frozen=True)
class Cooling(MeanFunction):
    """A user's own, with a value, a module constant, a function and a method."""

    rates: tuple[float, ...] = (0.1, 0.05)

    def __call__(self, regressors):
        return GAIN * self.along(regressors) + bent(regressors[:, 2])

    def along(self, regressors: np.ndarray) -> np.ndarray:
        """Product with the rates."""
        return regressors[:, :2] @ np.array(self.rates)


@njit(error_model="numpy")
def scaled_distance(points, stride, n, p, x, scales, out):
    for j in range(n):
        out[j] = 0.0
        for d in range(p):
            out[j] += abs(points[d * stride + j] - x[d]) / scales[1 + d]


def exponential_row(points, stride, n, p, x, parameters, out):
    """A user's own kernel."""
    scaled_distance(points, stride, n, p, x, parameters, out)
    for j in range(n):
        out[j] = parameters[0] * exp(-out[j])


def branching_row(points, stride, n, p, x, parameters, out):
    """Its branch cannot be taken by arrays."""
    scaled_distance(points, stride, n, p, x, parameters, out)
    for j in range(n):
        out[j] = parameters[0] * exp(-out[j]) if out[j] > 0.0 else parameters[0]


@dataclass(frozen=True)
class Exponential(Stationary):
    row = staticmethod(exponential_row)

    def slope(self, first, second, covariance):
        raise NotImplementedError


@dataclass(frozen=True)
class Branching(Exponential):
    row = staticmethod(branching_row)


LINEAR = Linear(0.3, [1.0, 0.1, 0.2])
MATERN = Matern52(1.1, [1.0, 2.0, 0.5])
KERNELS = [
    SquaredExponential(1.3, [1.0, 2.0, 0.7]),
    Matern32(0.7, [1.0, 0.5, 2.0]),
    MATERN,
    LINEAR,
    Exponential(0.8, [1.0, 2.0, 3.0]),
    Sum([LINEAR, Product([MATERN, Sum([SquaredExponential(0.9, [2.0] * 3), LINEAR])])]),
]
MEANS = [ZeroMean(), ConstantMean(0.3), LinearMean([0.1, -0.2, 0.3], 0.4), Cooling()]


def rows(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 3)) * [1.0, 3.0, 0.2] + [0.0, 5.0, 0.0]
    return x, np.sin(x[:, 0]) + 0.1 * x[:, 1]


def model(kernel=KERNELS[0], mean=MEANS[0], scaling=None, seed=0, **settings):
    """Model of y with features y[k-1], u[k], u[k-2], or with other lags of three features."""
    narx = Narx(**({"outputs": {"y": 1}, "inputs": {"u": [0, 2]}} | settings))
    x, y = rows(14, seed)
    scaling = Scaling.fit(x) if scaling is None else scaling
    gp = OnlineGP(kernel, noise_variance=0.01, budget=7).fit(scaling.transform(x[:6]), (y - mean(x))[:6])
    found = Model(narx, scaling, mean, gp, Origin(0.5, {"y": "m", "u": "N"}))
    found.update_many(x[6:], y[6:] * (1 + seed))
    return found


def two_outputs(kernel=KERNELS[0], mean=MEANS[0], **settings):
    lags = {"outputs": {"y1": 1, "y2": 1}, "inputs": {"u": [2]}} | settings
    return JointModel(tuple(model(kernel, mean, seed=i, target=name, **lags) for i, name in enumerate(("y1", "y2"))))


def exported(found, folder, name="model.py"):
    return runpy.run_path(str(export_python(found, folder / name)))


def assert_close(found, expected):
    """To rounding, of what the values could be."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def assert_predicts(file, found):
    x, _ = rows(9, seed=5)
    mean, variance = file["predict"](x)
    expected = [one.predict(x) for one in JointModel.of(found).models]
    shape = mean.shape
    assert shape == ((9,) if len(expected) == 1 else (9, len(expected)))
    assert_close(mean, np.stack([one.mean for one in expected], axis=1).reshape(shape))
    assert_close(variance, np.stack([one.variance for one in expected], axis=1).reshape(shape))


def assert_simulates(file, found, window=3):
    rng = np.random.default_rng(1)
    joint = JointModel.of(found)
    u, first = 5 + rng.normal(size=(12, 1)), rng.normal(size=(window, len(joint.models)))
    expected = np.concatenate([first, free_run(joint, u, first).mean])
    path = file["simulate"](u, first)
    assert_close(path, expected[:, 0] if len(joint.models) == 1 else expected)
    if len(joint.models) == 1:
        assert_close(file["simulate"](u[:, 0], first[:, 0]), path)


@pytest.mark.parametrize("mean", MEANS, ids=lambda mean: type(mean).__name__)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_every_kernel_and_mean(kernel, mean, tmp_path):
    found = model(kernel, mean)
    file = exported(found, tmp_path)
    assert_predicts(file, found)
    assert_simulates(file, found)
    assert file["self_check"]() < 1e-11


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[-1]], ids=lambda kernel: type(kernel).__name__)
def test_two_outputs(kernel, tmp_path):
    found = two_outputs(kernel, MEANS[-1])
    file = exported(found, tmp_path)
    assert_predicts(file, found)
    assert_simulates(file, found, window=1)
    assert (file["OUTPUTS"], file["TARGETS"]) == (("y1", "y2"), ("y1", "y2"))


def test_values_instead_of_changes(tmp_path):
    found = model(predict="value")
    file = exported(found, tmp_path)
    assert_simulates(file, found)
    assert not file["IS_CHANGE"]


def test_limits_hold_in_free_run_only(tmp_path):
    free = model(mean=MEANS[2])
    u, first = np.random.default_rng(3).normal(size=(12, 1)), np.array([[0.5]])
    path = free_run(free, u, first).mean[:, 0]
    limits = (float(np.quantile(path, 0.3)), float(np.quantile(path, 0.7)))
    found = replace(free, limits=limits)
    file = exported(found, tmp_path)
    assert_predicts(file, found)
    simulated = file["simulate"](u, first)[1:]
    assert_close(simulated, free_run(found, u, first).mean[:, 0])
    assert (simulated.min(), simulated.max()) == limits


def test_a_projection(tmp_path):
    x, _ = rows(14)
    scaling = Projection(x.mean(axis=0), np.array([[1.0, 0.5, 0.0], [0.3, -0.2, 4.0]]))
    found = model(SquaredExponential(1.0, [1.0, 2.0]), scaling=scaling)
    file = exported(found, tmp_path)
    assert_predicts(file, found)
    assert_simulates(file, found)


def test_rounding_makes_no_variance_negative():
    one = np.ones((1, 1))
    part = Part(
        lambda points, x: np.ones(1) * x[0], lambda x: x[:, 0], one[0], one, one, one[0], one[0], 1.1 * one, 0, 1
    )
    mean, variance = moments(part, np.array([[2.0], [1.5]]))
    np.testing.assert_array_equal(variance, [0.0, 0.5 - (1.1 * 0.5) ** 2])
    np.testing.assert_allclose(mean, [1.1 + 2.0, 0.55 + 1.5])


def test_a_free_run_that_diverges_at_once_is_no_evidence(tmp_path):
    """Its first step leaves all bounds; the rest is checked."""
    found = model(LINEAR, LinearMean([1e9, 0.0, 0.0]), outputs={"y": 1}, inputs={"u": [0, 2]})
    file = exported(replace(found, origin=Origin(output_range=(0.0, 1.0))), tmp_path)
    assert file["CHECK_Y"].size == file["CHECK_Y_INIT"].size == 1
    assert file["self_check"]() < 1e-11


def test_an_empty_model(tmp_path):
    gp = OnlineGP(KERNELS[-1], noise_variance=0.01, budget=5)
    found = Model(Narx({"y": 1}, {"u": [0, 2]}), Scaling.identity(3), MEANS[2], gp)
    assert_predicts(exported(found, tmp_path), found)


def test_a_static_model(tmp_path):
    """No lags of the output: nothing is fed back, and no first outputs are needed."""
    found = model(outputs={"y": []}, inputs={"a": [0], "b": [0], "c": [0]}, predict="value")
    file = exported(found, tmp_path)
    x, _ = rows(9, seed=5)
    assert_close(file["simulate"](x, np.empty((0, 1))), found.predict(x).mean)


def test_an_output_that_is_not_predicted(tmp_path):
    """The file predicts, and says nothing about a simulation."""
    found = model(outputs={"y": 1, "w": 1}, inputs={"u": [2]})
    file = exported(found, tmp_path)
    x, _ = rows(9, seed=5)
    assert_close(file["predict"](x)[0], found.predict(x).mean)
    assert "simulate" not in file
    assert "simulate" not in file["__doc__"]


def test_regressors_are_those_of_the_lags(tmp_path):
    rng = np.random.default_rng(2)
    y, u = rng.normal(size=(2, 10))
    found = model()
    np.testing.assert_array_equal(
        exported(found, tmp_path)["regressors"](u, y), found.narx.regressors({"y": y, "u": u}).regressor
    )


def test_every_number_is_there_bit_for_bit(tmp_path):
    found = model(mean=MEANS[2])
    file, state = exported(found, tmp_path), found.gp.state()
    np.testing.assert_array_equal(file["POINTS_0"], state["inputs"][state["order"]])
    np.testing.assert_array_equal(file["WEIGHTS_0"], state["weights"])
    np.testing.assert_array_equal(file["FACTOR_0"], state["factor"])
    np.testing.assert_array_equal(file["OFFSET_0"], found.scaling.offset)
    np.testing.assert_array_equal(file["KERNEL_0_0"], found.gp.kernel.parameters())
    assert file["NOISE_VARIANCE"] == (found.gp.noise_variance,)


def test_it_says_what_it_is(tmp_path):
    file = exported(model(), tmp_path, "tank.py")
    text = file["__doc__"]
    for words in ("7 points of y", "import tank", "tank.simulate(u, y_init)", "Output y [m], lags 1.", "0.5 s"):
        assert words in text
    assert "Input u [N], lags 0, 2." in text
    assert (file["UNITS"], file["SAMPLING_TIME"]) == ({"u": "N", "y": "m"}, 0.5)
    assert file["FEATURES"] == (("y", 1), ("u", 0), ("u", 2))


def test_names_of_signals_cannot_break_the_file(tmp_path):
    odd = 'y"""\\{x} °'
    file = exported(model(outputs={odd: 1}), tmp_path)
    assert file["OUTPUTS"] == (odd,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda file: file["predict"](np.zeros((2, 4))), r"expected finite numbers \(n, 3\)"),
        (lambda file: file["predict"](np.full((2, 3), np.nan)), "finite"),
        (lambda file: file["simulate"](np.zeros(5), []), "expected 1 to 4 first outputs, got 0"),
        (lambda file: file["simulate"](np.zeros(2), [1.0, 2.0]), "first outputs"),
        (lambda file: file["simulate"]([0.0, np.inf], [1.0]), "u: expected finite"),
        (lambda file: file["simulate"](np.zeros((5, 2)), [1.0]), "u: expected"),
        (lambda file: file["regressors"](np.zeros(5), np.zeros(6)), "one length"),
    ],
)
def test_the_file_refuses_wrong_arrays(call, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        call(exported(model(), tmp_path))


@pytest.mark.skipif(PLAIN, reason="the file does not know whether the toolbox compiles")
def test_it_runs_alone_and_checks_itself(tmp_path):
    """In an empty folder, without the toolbox; a changed digit is found."""
    path = export_python(model(KERNELS[-1], MEANS[-1]), tmp_path / "model.py")
    command = [sys.executable, "-I", "-c", BLOCKED + f"runpy.run_path({str(path)!r}, run_name='__main__')"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "as exported" in done.stdout
    text = path.read_text()
    i = text.index("WEIGHTS_0") + 30
    path.write_text(text[:i] + ("1" if text[i] != "1" else "2") + text[i + 1 :])
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 1
    assert "NOT the exported model" in done.stdout


BLOCKED = """
import runpy, sys
for name in ("sysid", "scipy", "numba", "xarray"):
    sys.modules[name] = None
"""


def test_older_python_can_read_it():
    text = python_text(two_outputs(KERNELS[-1], MEANS[-1]), "model")
    assert ast.get_docstring(ast.parse(text, feature_version=(3, 9)))


@pytest.mark.parametrize(("mean", "rules"), [(MEANS[2], "E,F,W,I,B,C4,NPY,D1"), (MEANS[-1], "E,F,W,I,B,C4,NPY")])
def test_the_style_is_clean(mean, rules, tmp_path):
    ruff = pytest.importorskip("ruff")
    path = export_python(two_outputs(KERNELS[-1], mean), tmp_path / "model.py")
    command = [ruff.find_ruff_bin(), "check", "--isolated", "--line-length=120", f"--select={rules}", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.py"):
        export_python(model(), tmp_path / "model.txt")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        export_python(model(), tmp_path / "missing" / "model.py")


def closed(gain):
    @dataclass(frozen=True)
    class Closed(MeanFunction):
        def __call__(self, regressors):
            return gain * regressors[:, 0]

    return Closed()


@dataclass(frozen=True)
class Foreign(MeanFunction):
    def __call__(self, regressors):
        return Scaling.identity(3).transform(regressors)[:, 0]


@dataclass(frozen=True)
class Renamed(MeanFunction):
    def __call__(self, regressors):
        return other_name(regressors[:, 0])


@dataclass(frozen=True)
class predict(MeanFunction):
    def __call__(self, regressors):
        return regressors[:, 0]


other_name = bent


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda: model(mean=closed(2.0)), r"variables \('gain',\) around it"),
        (lambda: model(mean=Foreign()), "Scaling"),
        (lambda: model(mean=Renamed()), "bent under the name other_name"),
        (lambda: model(mean=predict()), "called predict"),
        (lambda: model(Branching(1.0, [1.0] * 3)), "ambiguous"),
    ],
)
def test_what_cannot_stand_alone_is_refused(found, words, tmp_path):
    with pytest.raises(SourceError, match=words):
        export_python(found(), tmp_path / "model.py")
    assert not list(tmp_path.iterdir())


def test_a_function_without_source_text_is_refused(tmp_path):
    namespace = dict(vars(sys.modules[__name__]))
    code = "@dataclass(frozen=True)\nclass Typed(MeanFunction):\n    def __call__(self, x):\n        return x[:, 0]\n"
    exec(code, namespace)
    with pytest.raises(SourceError, match=r"source text .* not to be had"):
        export_python(model(mean=namespace["Typed"]()), tmp_path / "model.py")


def test_two_means_of_one_name_are_refused():
    first, second = two_outputs(mean=Cooling((0.1, 0.2))).models
    other = replace(second, mean=Cooling((0.3, 0.2)))
    with pytest.raises(SourceError, match="two different things are called Cooling"):
        python_text(JointModel((first, other)), "model")
