"""A model as a Python file: the same predictions with NumPy alone."""

import ast
import runpy
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

import sysid
from sysid import SquaredExponential, Sum, export_python
from sysid.export.standalone import Part, moments
from sysid.gp.formula import JIT_DISABLED

LINEAR = sysid.Linear(0.3, [1.0, 0.1, 0.2])
MATERN = sysid.Matern52(1.1, [1.0, 2.0, 0.5])
NESTED = Sum([LINEAR, sysid.Product([MATERN, Sum([SquaredExponential(0.9, [2.0] * 3), LINEAR])])])
KERNELS = [
    SquaredExponential(1.3, [1.0, 2.0, 0.7]),
    sysid.Matern32(0.7, [1.0, 0.5, 2.0]),
    MATERN,
    LINEAR,
    NESTED,
]
AFFINE = sysid.LinearMean([0.1, -0.2, 0.3], 0.4)
INPUTS = np.random.default_rng(1).normal(size=(12, 1))
FIRST = np.array([[0.5], [0.4]])


def rows(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 3)) * [1.0, 3.0, 0.2] + [
        0.0,
        5.0,
        0.0,
    ]
    return x, np.sin(x[:, 0]) + 0.1 * x[:, 1]


def model(kernel=KERNELS[0], mean=AFFINE, scaling=None, seed=0, **settings):
    """Model of y with features y[k-1], u[k], u[k-2], or with other lags of three features."""
    narx = sysid.Narx(**({"outputs": {"y": 1}, "inputs": {"u": [0, 2]}} | settings))
    x, y = rows(14, seed)
    scaling = scaling or sysid.Scaling.fit(x)
    gp = sysid.OnlineGP(kernel, noise_variance=0.01, budget=7).fit(
        scaling.transform(x[:6]), (y - mean(x))[:6]
    )
    found = sysid.Model(narx, scaling, mean, gp, sysid.Origin(0.5, {"y": "m", "u": "N"}))
    found.update_many(x[6:], y[6:] * (1 + seed))
    return found


def two_outputs(kernel=KERNELS[0]):
    lags = {"outputs": {"y1": 1, "y2": 1}, "inputs": {"u": [2]}}
    return sysid.JointModel(
        tuple(model(kernel, seed=i, target=name, **lags) for i, name in enumerate(("y1", "y2")))
    )


def exported(found, folder, name="model.py"):
    return runpy.run_path(str(export_python(found, folder / name)))


def assert_close(found, expected):
    """To rounding, of what the values could be."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


MATRIX = np.array([[1.0, 0.5, 0.0], [0.3, -0.2, 4.0]])
MIXED = sysid.AffineMap.of_matrix(rows(14)[0].mean(axis=0), MATRIX)
CASES = {type(kernel).__name__: lambda kernel=kernel: model(kernel) for kernel in KERNELS} | {
    "constant mean": lambda: model(mean=sysid.ConstantMean(0.3)),
    "value": lambda: model(predict="value"),
    "limits": lambda: replace(model(), limits=(0.38, 0.4)),
    "projection": lambda: model(SquaredExponential(1.0, [1.0, 2.0]), sysid.ZeroMean(), MIXED),
    "empty": lambda: replace(model(), gp=sysid.OnlineGP(NESTED, noise_variance=0.01, budget=5)),
    "two outputs": two_outputs,
    "two outputs, nested kernel": lambda: two_outputs(NESTED),
}


@pytest.mark.parametrize("case", CASES)
def test_the_file_predicts_and_simulates_as_the_model(case, tmp_path):
    found = CASES[case]()
    file = exported(found, tmp_path)
    joint = sysid.JointModel.of(found)
    x, _ = rows(9, seed=5)
    n_y = len(joint.models)
    shape = (-1,) if n_y == 1 else (-1, n_y)
    moments = [
        np.stack(part, axis=1)
        for part in zip(*(one.predict(x) for one in joint.models), strict=True)
    ]
    for part, expected in zip(file["predict"](x), moments, strict=True):
        assert_close(part, expected.reshape(shape))
    first = np.repeat(FIRST, n_y, axis=1)
    path = np.concatenate([first, sysid.free_run(joint, INPUTS, first).mean])
    assert_close(file["simulate"](INPUTS, first), path.reshape(shape))
    assert_close(
        file["simulate"](INPUTS[:, 0], first[:, 0] if n_y == 1 else first),
        path.reshape(shape),
    )
    if case == "limits":
        assert (path[2:].min(), path[2:].max()) == found.limits
    assert file["OUTPUTS"] == joint.output_names
    assert file["self_check"]() < 1e-11


@pytest.mark.parametrize("case", CASES)
def test_one_sample_at_a_time_is_the_free_run_or_the_prediction_bit_for_bit(case, tmp_path):
    file = exported(CASES[case](), tmp_path)
    y = np.random.default_rng(3).normal(size=(12, len(file["OUTPUTS"])))
    loop = file["start"](INPUTS[:2], y[:2])
    np.testing.assert_array_equal(
        [loop.step(u)[0] for u in INPUTS[2:]], file["simulate"](INPUTS, y[:2])[2:]
    )
    loop = file["start"](INPUTS[:2], y[:2])
    previous = y[:-1] if file["IS_CHANGE"] else 0.0 * y[:-1]
    first = max(lag for _, lag in file["FEATURES"])
    for k in range(2, 12):  # after these many samples all lags are measured
        found = np.ravel(loop.step(INPUTS[k], y[k]))
        mean, variance = file["predict"](file["regressors"](INPUTS, y)[k - first][None])
        np.testing.assert_array_equal(
            found, np.ravel([np.ravel(mean) + previous[k - 1], np.ravel(variance)])
        )


def test_rounding_makes_no_variance_negative():
    one = np.ones((1, 1))
    kernel = (lambda parameters, points, x: np.ones(1) * x[0], None)
    part = Part(kernel, 0.0, one[0], one[0], one, one, one[0], one[0], 1.1 * one, 0, 1)
    np.testing.assert_array_equal(
        moments(part, np.array([[2.0], [1.5]]))[1], [0.0, 0.5 - (1.1 * 0.5) ** 2]
    )


def test_a_free_run_that_diverges_at_once_is_no_evidence(tmp_path):
    """Its first step leaves all bounds; the rest is checked."""
    found = model(LINEAR, sysid.LinearMean([1e9, 0.0, 0.0]))
    file = exported(replace(found, origin=sysid.Origin(output_range=(0.0, 1.0))), tmp_path)
    assert file["CHECK_Y"].size == file["CHECK_Y_INIT"].size == 1
    assert file["self_check"]() < 1e-11


def test_what_cannot_be_fed_back(tmp_path):
    """A static model needs no first outputs; one that looks at an output it does not predict has no
    simulation.
    """
    x, _ = rows(9, seed=5)
    static = model(outputs={"y": []}, inputs={"a": [0], "b": [0], "c": [0]}, predict="value")
    assert_close(
        exported(static, tmp_path)["simulate"](x, np.empty((0, 1))),
        static.predict(x).mean,
    )
    found = model(outputs={"y": 1, "w": 1}, inputs={"u": [2]})
    file = exported(found, tmp_path)
    assert_close(file["predict"](x)[0], found.predict(x).mean)
    assert "simulate" not in file
    assert "simulate" not in file["__doc__"]


def test_the_file_states_lags_units_and_every_number_bit_for_bit(tmp_path):
    found = model()
    file = exported(found, tmp_path, "tank.py")
    state = found.gp.state()
    for name, expected in {
        "POINTS_0": state["inputs"][state["order"]],
        "WEIGHTS_0": state["weights"],
        "FACTOR_0": state["factor"],
        "OFFSET_0": found.scaling.offset,
        "KERNEL_0_0": found.gp.kernel.parameters(),
    }.items():
        np.testing.assert_array_equal(file[name], expected)
    assert file["NOISE_VARIANCE"] == (found.gp.noise_variance,)
    assert (file["UNITS"], file["SAMPLING_TIME"]) == ({"u": "N", "y": "m"}, 0.5)
    assert file["FEATURES"] == (("y", 1), ("u", 0), ("u", 2))
    for words in (
        "7 points of y",
        "tank.simulate(u, y_init)",
        "Output y [m], lags 1.",
        "Input u [N], lags 0, 2.",
    ):
        assert words in file["__doc__"]
    y, u = np.random.default_rng(2).normal(size=(2, 10))
    np.testing.assert_array_equal(
        file["regressors"](u, y), found.narx.regressors({"y": y, "u": u}).regressor
    )
    odd = 'y"""\'#x °'
    assert exported(model(outputs={odd: 1}), tmp_path)["OUTPUTS"] == (odd,)


def test_the_file_refuses_wrong_arrays(tmp_path):
    file = exported(model(), tmp_path)
    file["step"] = file["start"]([0.0], [0.0]).step
    for function, arguments, words in (
        ("predict", [np.zeros((2, 4))], r"\(n, 3\)"),
        ("predict", [np.full((2, 3), np.nan)], "finite"),
        ("simulate", [np.zeros(5), []], "1 to 4 first outputs, got 0"),
        ("simulate", [[0.0, np.inf], [1.0]], "u: .*finite"),
        ("start", [[], []], "first 1 or more samples, got 0 and 0"),
        ("start", [[1.0, 2.0], [1.0]], "got 2 and 1"),
        ("step", [np.nan], "u: .*finite"),
        ("step", [1.0, [1.0, 2.0]], "y: "),
        ("regressors", [np.zeros(5), np.zeros(6)], "one length"),
    ):
        with pytest.raises(ValueError, match=words):
            file[function](*arguments)


BLOCKED = """
import runpy, sys
for name in ("sysid", "scipy", "numba", "xarray"):
    sys.modules[name] = None
"""


@pytest.mark.skipif(JIT_DISABLED, reason="the file does not know whether the toolbox compiles")
def test_it_runs_alone_in_clean_style_and_checks_itself(tmp_path):
    """In an empty folder, without the toolbox, for an older Python; a changed digit is found."""
    path = export_python(two_outputs(NESTED), tmp_path / "model.py")
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text, feature_version=(3, 9)))
    style = [
        "check",
        "--isolated",
        "--line-length=100",
        "--select=E,F,W,I,B,C4,NPY,D1",
        path,
    ]
    subprocess.run([pytest.importorskip("ruff").find_ruff_bin(), *style], check=True, timeout=60)
    command = [
        sys.executable,
        "-I",
        "-c",
        BLOCKED + f"runpy.run_path({str(path)!r}, run_name='__main__')",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    i = text.index("WEIGHTS_0") + 30
    path.write_text(text[:i] + ("1" if text[i] != "1" else "2") + text[i + 1 :])
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 1
    assert "NOT the exported model" in done.stdout


@dataclass(frozen=True)
class OwnMean(sysid.ZeroMean):
    """A user's own."""


@dataclass(frozen=True)
class OwnKernel(sysid.Matern52):
    """A user's own, even if its formula is that of the toolbox."""


OWN = OwnKernel(1.0, [1.0] * 3)


@pytest.mark.parametrize(
    ("parts", "name", "words"),
    [
        ({}, "model.txt", r"\.py"),
        ({}, "missing/model.py", r"model\.py"),
        (
            {"mean": OwnMean()},
            "model.py",
            r"test_export\.OwnMean cannot be exported: .* contribute",
        ),
        ({"kernel": OWN}, "model.py", "OwnKernel cannot"),
        ({"kernel": Sum([LINEAR, OWN])}, "model.py", "OwnKernel cannot"),
    ],
)
def test_a_bad_name_and_a_formula_of_the_users_own_are_refused(parts, name, words, tmp_path):
    with pytest.raises((ValueError, sysid.StoreError), match=words):
        export_python(model(**parts), tmp_path / name)
    assert not list(tmp_path.iterdir())
