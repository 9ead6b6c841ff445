"""Export of an identified model as one Python file that needs NumPy only."""

from __future__ import annotations

import inspect
import os
import runpy
import tempfile
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sysid import store
from sysid.dynamics import AFFINE, Dynamics
from sysid.export import standalone
from sysid.export import text as texts
from sysid.export.source_text import MODULES, SourceError, SourceText
from sysid.export.text import array, block
from sysid.free_run import free_run
from sysid.joint import JointModel
from sysid.kernels import Kernel, Product, Sum
from sysid.kernels.parts import OfParts
from sysid.model import Model

JOINED: dict[type[OfParts], str] = {Sum: " + ", Product: " * "}
KEPT: tuple[Any, ...] = (
    standalone.Part,
    standalone.filled,
    standalone.moments,
    standalone.mean_only,
    standalone.lagged,
)
KEPT_TOO = (standalone.columns, standalone.numbers, standalone.lower)
RESERVED = frozenset({one.__name__ for one in (*KEPT, *KEPT_TOO, standalone.run_freely)} | texts.NAMES)
N_CHECKED = 8  # regressors of the self-check
N_STEPS = 20  # samples of its free run
TOLERANCE = 1e-6  # of the self-check: rounding, also that of a badly conditioned model on another machine [-]


def export_python(model: Model | JointModel, path: str | os.PathLike[str]) -> Path:
    """Write a Python file that predicts as the model does, with NumPy alone; returns its path.

    The file has ``regressors`` (from signals), ``predict`` (mean and variance one step ahead) and ``simulate`` (the
    mean in free run), states lags and units, holds every number in full precision, and checks itself when it is run.
    It appears under its name only after that check has passed.

    Parameters
    ----------
    model : Model or JointModel
        A single model that looks at other outputs can predict, not simulate: its file has no ``simulate``.
    path
        Ends in ``.py``; a file of that name is replaced.

    Raises
    ------
    ValueError
        Another ending; a kernel or mean function whose source text is not to be had or does not stand alone, or which
        computes something else with arrays than with numbers.
    sysid.store.StoreError
        The file cannot be written; nothing is left.
    """
    if Path(path).suffix != ".py":
        raise ValueError(f"export_python: expected a name that ends in .py, got {os.fspath(path)!r}")
    text = python_text(model, Path(path).stem)
    _check(text)
    return store.write_bytes(text.encode(), path)


def python_text(model: Model | JointModel, name: str) -> str:
    """Text of the file of `export_python`, not yet checked.

    Parameters
    ----------
    model : Model or JointModel
    name
        Of the module, for its docstring.

    Raises
    ------
    ValueError
        As `export_python`.
    """
    models = model.models if isinstance(model, JointModel) else (model,)
    narx = models[0].narx
    can_simulate = len(models) == len(narx.output_names)
    window = _least_window(model) if can_simulate else None
    source = SourceText({MODULES[np]}, RESERVED)
    functions = [_functions(source, one, i) for i, one in enumerate(models)]
    kept = [*KEPT, *KEPT_TOO, *([standalone.run_freely] if can_simulate else [])]
    pieces = [
        texts.head(models, name, version("sysid"), window, source.import_lines()) + "\n\n" + texts.constants(models),
        *source.definitions.values(),
        *(inspect.getsource(one).rstrip() for one in kept),
        *functions,
        *_uses(models, window),
        "\n".join(line for i, one in enumerate(models) for line in _numbers(one, i)),
        "\n".join(["PARTS = (", *(_part(i) for i in range(len(models))), ")"]),
        _evidence(models, window),
        texts.MAIN,
    ]
    return "\n\n\n".join(pieces) + "\n"


def _least_window(model: Model | JointModel) -> int:
    """First outputs that a free run needs."""
    dynamics = Dynamics(model)
    return int(dynamics.is_change or dynamics.feedback.size > 0)


def _functions(source: SourceText, model: Model, i: int) -> str:
    """Functions ``covariance_i`` and ``prior_mean_i`` of a model; what they need goes to the source."""
    target, p = texts.safe(model.narx.target), model.narx.n_features
    covariance = _kernel_text(source, model.gp.kernel, i, [])
    if isinstance(model.mean, AFFINE):
        prior = f"INTERCEPT_{i} + (x * SLOPES_{i}).sum(axis=1)"
    else:
        prior = f"{source.add_call(model.mean)}()(x)"
    return "\n".join(
        [
            f"def covariance_{i}(points, x):",
            f'    """Covariances of {target} between points and x, each by coordinate (q, ...)."""',
            *textwrap.wrap(f"    return {covariance}", texts.WIDTH, subsequent_indent=" " * 8),
            "",
            "",
            f"def prior_mean_{i}(x):",
            f'    """Mean function of {target} at regressors x (n, {p}), in their own units."""',
            f"    return {prior}",
        ]
    )


def _kernel_text(source: SourceText, kernel: Kernel, i: int, vectors: list[np.ndarray]) -> str:
    """Expression of a kernel; the parameters of its parts are appended to the vectors."""
    if not isinstance(kernel, OfParts):
        vectors.append(kernel.parameters())
        return f"filled({source.add(type(kernel).row)}, KERNEL_{i}_{len(vectors) - 1}, points, x)"
    if type(kernel) not in JOINED:
        raise SourceError(f"{type(kernel).__name__} cannot be exported: expected a Sum or Product of other kernels")
    return "(" + JOINED[type(kernel)].join(_kernel_text(source, part, i, vectors) for part in kernel.parts) + ")"


def _numbers(model: Model, i: int) -> list[str]:
    """Arrays of a model."""
    state, p = model.gp.state(), model.narx.n_features
    vectors: list[np.ndarray] = []
    _kernel_text(SourceText(), model.gp.kernel, i, vectors)
    named = {f"KERNEL_{i}_{j}": vector for j, vector in enumerate(vectors)}
    if isinstance(model.mean, AFFINE):
        origin = np.zeros((1, p))
        named |= {f"INTERCEPT_{i}": model.mean(origin)[0], f"SLOPES_{i}": model.mean.gradient(origin)[0]}
    named |= {f"OFFSET_{i}": model.scaling.offset, f"MATRIX_{i}": model.scaling.linear_part()}
    named |= {f"POINTS_{i}": state["inputs"][state["order"]], f"WEIGHTS_{i}": state["weights"]}
    named |= {f"WHITENED_{i}": state["whitened"]}
    n = model.gp.n_points
    factor = state["factor"][np.tril_indices(n)]
    return [
        *(array(name, value) for name, value in named.items()),
        f'FACTOR_{i} = lower("""{block(factor)}""", {n})',
        f'LIMITS_{i} = (float("{model.limits[0]!r}"), float("{model.limits[1]!r}"))',
    ]


def _part(i: int) -> str:
    names = ("OFFSET", "MATRIX", "POINTS", "WEIGHTS", "WHITENED", "FACTOR")
    return f"    Part(covariance_{i}, prior_mean_{i}, {', '.join(f'{name}_{i}' for name in names)}, *LIMITS_{i}),"


def _uses(models: Sequence[Model], window: int | None) -> list[str]:
    """Functions of the file that its reader calls."""
    narx = models[0].narx
    sizes = {"p": narx.n_features, "first": narx.max_lag, "n_u": len(narx.input_names), "n_y": len(narx.output_names)}
    shape = "(n,)" if len(models) == 1 else f"(n, {len(models)})"
    found = [
        texts.SHAPED,
        texts.PREDICT.format(shape=shape, target=texts.target_text(narx.predict), **sizes),
        texts.REGRESSORS.format(**sizes),
        texts.CHECK.format(free="" if window is None else ", (simulate(CHECK_U, CHECK_Y_INIT), CHECK_Y)"),
    ]
    return found if window is None else [*found, texts.SIMULATE.format(shape=shape, window=window, **sizes)]


def _evidence(models: Sequence[Model], window: int | None) -> str:
    """What the model predicts, for the self-check."""
    x = _typical_regressors(models[0], N_CHECKED)
    found = [model.predict(x) for model in models]
    mean, variance = (np.stack(part, axis=1) for part in zip(*found, strict=True))
    prior = np.max([model.gp.kernel.diagonal(model.scaling.transform(x)).max() for model in models])
    named = {
        "CHECK_REGRESSORS": x,
        "CHECK_MEAN": mean.ravel(),
        "CHECK_VARIANCE": variance.ravel(),
        "CHECK_SCALE": np.maximum(prior, np.sqrt(prior)),
    }
    lines = [array(name, values) for name, values in named.items()]
    if window is not None:
        lines += [array(name, values) for name, values in _free_evidence(models, window).items()]
    return "\n".join([*lines, f"TOLERANCE = {TOLERANCE!r}"])


def _free_evidence(models: Sequence[Model], window: int) -> dict[str, np.ndarray]:
    """A free run through typical inputs, as far as it stays within its bounds."""
    narx, joint = models[0].narx, JointModel(tuple(models))
    x = _typical_regressors(models[0], narx.max_lag + N_STEPS)
    column = {name: j for j, (name, _) in reversed(list(enumerate(narx.features)))}
    u = x[:, [column[name] for name in narx.input_names]]
    y = np.stack([x[:window, column[name]] for name in narx.output_names], axis=1) if window else np.empty((0, 1))
    run = free_run(joint, u, y)
    inside = window + (len(run.mean) if run.left is None else run.left)
    path = np.concatenate([y, run.mean])[:inside]
    return {"CHECK_U": u[: max(inside, window + 1)], "CHECK_Y_INIT": y, "CHECK_Y": path.ravel()}


def _typical_regressors(model: Model, n: int) -> np.ndarray:
    """Regressors (n, p) near the stored points, or about the offset of the features if there are none."""
    generator = np.random.default_rng(0)
    z = generator.normal(size=(n, model.scaling.n_coordinates))
    if model.gp.n_points:
        z = 0.1 * z + model.gp.inputs[np.arange(n) % model.gp.n_points]
    return np.asarray(model.scaling.offset + z @ np.linalg.pinv(model.scaling.linear_part()).T)


def _check(text: str) -> None:
    """Run the self-check of a text.

    Raises
    ------
    SourceError
        It fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "exported.py"
        path.write_text(text, encoding="utf-8")
        try:
            deviation = runpy.run_path(str(path))["self_check"]()
        except Exception as error:
            raise SourceError(
                f"the model cannot be exported: its formulas alone, fed with arrays, fail ({type(error).__name__}: "
                f"{error}); write a kernel's row and a mean function with NumPy, math and plain arithmetic only"
            ) from error
    if not deviation < TOLERANCE:
        raise SourceError(
            f"the model cannot be exported: its formulas alone, fed with arrays, deviate by {deviation:.3g}; a branch "
            "that depends on a value is a likely reason, or a badly conditioned model"
        )
