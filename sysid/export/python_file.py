"""Export of an identified model as one Python file that needs NumPy only."""

from __future__ import annotations

import inspect
import os
import runpy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from sysid import __version__, store
from sysid.errors import UserError
from sysid.export import standalone
from sysid.export.file_text import (
    SELF_CHECK_TOLERANCE,
    array_text,
    block_of_numbers,
    constants_of,
    evidence_of,
    facts_of,
    name_for_import,
    no_formula,
    wrap,
)
from sysid.gp.kernels import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from sysid.gp.linear_part import WithLinearPart
from sysid.model.mean_map import AFFINE_MEANS
from sysid.model.model import JointModel, Model, on_unchanged_model
from sysid.simulation.dynamics import Dynamics

#: Formula of each kernel in the exported file.
KERNEL_FORMULAS: dict[type[Kernel], Callable[..., Any]] = {
    SquaredExponential: standalone.squared_exponential,
    Matern32: standalone.matern_32,
    Matern52: standalone.matern_52,
    Linear: standalone.linear,
    Sum: standalone.total,
    Product: standalone.product,
    WithLinearPart: standalone.with_linear_part,
}

DOCSTRING_TEMPLATE = '''\
"""Identified Gaussian process model, exported from sysid {version}.

It needs Python 3.9 and NumPy 1.20, or newer, and nothing else::

    import {name}  # {remark}
    x = {name}.regressors(u, y)  # of samples {first}, {second}, ...
    mean, variance = {name}.predict(x)  # one step ahead
{free_run}{facts}

Variances are those of the function; add NOISE_VARIANCE for a measurement. Signals are arrays (n,),
or (n, number of signals) in the order of INPUTS and OUTPUTS. Run as a script, the file checks
itself.
"""'''
FREE_RUN_USAGE = """\

    # Free run: all outputs from the inputs and the first outputs, at least {window}.
    y = {name}.simulate(u, y_init)

    # A loop in your own program, which starts after these first samples.
    loop = {name}.start(u_init, y_init)
    # The step predicts this sample and then stores y_now; without y_now it stores the mean.
    mean, variance = loop.step(u_now, y_now)"""

SELF_CHECK_TEMPLATE = '''\
def self_check():
    """Return the largest relative deviation from the predictions at export.

    A deviation is relative to the prediction plus a typical size of predictions.
    """
    mean, variance = predict(CHECK_REGRESSORS)
    pairs = [
{pairs}
    ]
    deviations = []
    for found, kept in pairs:
        difference = np.abs(np.ravel(found)[: kept.size] - kept)
        deviations.append(difference / (np.abs(kept) + CHECK_SCALE))
    return float(np.max(np.concatenate(deviations)))


if __name__ == "__main__":
    deviation = self_check()
    passed = deviation < TOLERANCE
    verdict = "as exported" if passed else "NOT the exported model"
    print(f"largest deviation {{deviation:.1e}}: {{verdict}}")
    raise SystemExit(not passed)
'''


@on_unchanged_model
def export_python(
    model: Model | JointModel,
    path: str | os.PathLike[str],
    *,
    addition: str = "",
    usage: str = "",
    checks: str = "",
) -> Path:
    """Write a Python file that predicts as the model does, with NumPy alone; return its path.

    The file has ``regressors`` (from signals), ``predict`` (mean and variance one step ahead),
    ``simulate`` (the mean in free run) and ``start`` (a loop for your own program, with ``step``
    for one sample). It states lags and units, contains every number in full precision, and checks
    itself when it is run. It appears under its name only after that check has passed.

    Parameters
    ----------
    model : Model or JointModel
        A single model whose regressors contain other outputs can predict, but not simulate: its
        file has neither ``simulate`` nor ``start``.
    path
        Ends in ``.py``; a file of that name is replaced.
    addition
        Python text that extends the model, and precedes the self-check of the file. It may use
        `MODEL`, and may replace ``regressors``, ``simulate`` and ``start``.
    usage
        Text about the addition for the docstring of the file.
    checks
        Further pairs ``(found, kept)`` for the self-check, as text that begins with a comma.

    Raises
    ------
    ValueError
        If the path has another ending, or a kernel or a mean function is not part of the toolbox.
    sysid.StoreError
        If the file cannot be written; nothing is left.
    """
    if Path(path).suffix != ".py":
        raise UserError(f"export_python: expected a name that ends in .py, got {os.fspath(path)!r}")
    models = model.models if isinstance(model, JointModel) else (model,)
    window = None  # first outputs that a free run needs; None: the file cannot simulate
    if len(models) == len(models[0].narx.output_names):
        window = int(Dynamics(model).feeds_back)
    _, _, formulas = inspect.getsource(standalone).split('"""', 2)  # without its docstring
    text = "\n".join(
        [
            _docstring(models, Path(path).stem, window, usage),
            formulas,
            "",
            *constants_of(models),
            *_model(models, window),
            addition,
            *evidence_of(models, window),
            *_self_check(window, checks),
        ]
    )
    deviation = _run_self_check(text)
    if not deviation < SELF_CHECK_TOLERANCE:
        raise UserError(
            f"the model cannot be exported: the file deviates from it by {deviation:.3g}; a likely "
            "reason is a badly conditioned model, which a larger noise variance avoids"
        )
    return store.write_bytes(text.encode(), path)


def _run_self_check(text: str) -> float:
    """Return the deviation that a file with this text finds when it checks itself."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "exported.py"
        file.write_text(text, encoding="utf-8")
        return float(runpy.run_path(str(file))["self_check"]())


def _docstring(models: Sequence[Model], name: str, window: int | None, usage: str) -> str:
    """Return the docstring of the file, which describes its use and its content."""
    narx = models[0].narx
    name, remark = name_for_import(name)
    free_run = "\n"
    if window is not None:
        free_run = FREE_RUN_USAGE.format(name=name, window=window) + "\n\n"
    return DOCSTRING_TEMPLATE.format(
        version=__version__,
        name=name,
        remark=remark,
        first=narx.max_lag,
        second=narx.max_lag + 1,
        free_run=free_run,
        facts="\n".join(facts_of(models, usage)),
    )


def _model(models: Sequence[Model], window: int | None) -> list[str]:
    """Return the assignments of the parts, of the model, and of its methods."""
    lines: list[str] = []
    for i, model in enumerate(models):
        lines += _part(model, i)
    parts = "".join(f"PART_{i}, " for i in range(len(models)))
    lines += [
        f"PARTS = ({parts.rstrip()})",
        f"MODEL = ExportedModel(PARTS, OUTPUTS, INPUTS, FEATURES, IS_CHANGE, {window or 0})",
        "predict = MODEL.predict",
        "regressors = MODEL.regressors",
    ]
    if window is not None:
        lines += ["simulate = MODEL.simulate", "start = MODEL.start"]
    return lines


def _part(model: Model, i: int) -> list[str]:
    """Return the assignments of the fields of the i-th part, and of the part itself."""
    if type(model.mean) not in AFFINE_MEANS:
        raise no_formula(model.mean)
    vectors: dict[str, np.ndarray] = {}
    kernel = _kernel_text(model.gp.kernel, i, vectors)
    state = model.gp.exact_form()
    origin = np.zeros((1, model.narx.n_features))
    n = len(state["weights"])  # points; some of them stand for the coefficients of a linear part
    lower_factor = state["factor"][np.tril_indices(n)]
    lowest, highest = model.limits
    arrays = vectors | {
        f"SLOPES_{i}": model.mean.gradient(origin)[0],
        f"OFFSET_{i}": model.scaling.offset,
        f"MATRIX_{i}": model.scaling.linear_part(),
        f"POINTS_{i}": state["inputs"][state["order"]],
        f"WEIGHTS_{i}": state["weights"],
        f"WHITENED_{i}": state["whitened"],
    }
    names_of_fields = [f"{name.upper()}_{i}" for name in standalone.Part._fields[:-2]]
    return [
        *[array_text(name, value) for name, value in arrays.items()],
        *wrap(f"KERNEL_{i} = {kernel}"),
        f"INTERCEPT_{i} = {float(model.mean(origin)[0])!r}",
        f'FACTOR_{i} = lower("""{block_of_numbers(lower_factor)}""", {n})',
        f'LIMITS_{i} = (float("{lowest!r}"), float("{highest!r}"))',
        *wrap(f"PART_{i} = Part({', '.join(names_of_fields)}, *LIMITS_{i})"),
    ]


def _kernel_text(kernel: Kernel, i: int, vectors: dict[str, np.ndarray]) -> str:
    """Return a kernel as text: its formula with its parameters, or its formula with its parts.

    The parameters are added to `vectors` by name.
    """
    if type(kernel) not in KERNEL_FORMULAS:
        raise no_formula(kernel)
    if isinstance(kernel, Sum | Product):
        parts = [_kernel_text(part, i, vectors) for part in kernel.parts]
        arguments = f"({', '.join(parts)})"
    elif isinstance(kernel, WithLinearPart):
        first = _kernel_text(kernel.kernel, i, vectors)
        root = f"KERNEL_{i}_{len(vectors)}"
        vectors[root] = kernel.linear.root()
        arguments = f"({first}, {root})"
    else:
        arguments = f"KERNEL_{i}_{len(vectors)}"
        values = [getattr(kernel, field.name) for field in fields(kernel)]  # type: ignore[arg-type]
        vectors[arguments] = np.hstack(values)
    return f"({KERNEL_FORMULAS[type(kernel)].__name__}, {arguments})"


def _self_check(window: int | None, checks: str) -> list[str]:
    """Return the tolerance and the code of the self-check."""
    pairs = ["(mean, CHECK_MEAN)", "(variance, CHECK_VARIANCE)"]
    if window is not None:
        pairs.append("(MODEL.simulate(CHECK_U, CHECK_Y_INIT), CHECK_Y)")
    if checks:
        pairs.append(checks.removeprefix(", "))
    lines_of_pairs = "\n".join(f"        {pair}," for pair in pairs)
    return [
        f"TOLERANCE = {SELF_CHECK_TOLERANCE!r}",
        "",
        "",
        SELF_CHECK_TEMPLATE.format(pairs=lines_of_pairs),
    ]
