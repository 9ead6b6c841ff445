"""Export of an identified model as one Python file that needs NumPy only."""

from __future__ import annotations

import inspect
import os
import runpy
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from keyword import iskeyword
from pathlib import Path
from typing import Any

import numpy as np

from sysid import __version__, store
from sysid.errors import UserError
from sysid.export import standalone
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
from sysid.model.description import name_of
from sysid.model.model import JointModel, Model, on_unchanged_model
from sysid.narx.lags import Target
from sysid.simulation.dynamics import AFFINE_MEANS, Dynamics
from sysid.simulation.forecast import free_run

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

EXPORTED_LINE_WIDTH = 100  # largest number of characters in a line of the exported file
N_CHECKED_REGRESSORS = 8  # regressors whose predictions the self-check compares
N_CHECKED_STEPS = 20  # samples of the free run that the self-check compares
CHECK_SEED = 0  # seed of the regressors of the self-check

#: Standard deviation of the regressors of the self-check around stored points [coordinates].
CHECK_SPREAD = 0.1

#: Largest relative deviation in a self-check. It allows for rounding on another machine, also by a
#: badly conditioned model [-].
SELF_CHECK_TOLERANCE = 1e-6

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
            *_constants(models),
            *_model(models, window),
            addition,
            *_evidence(models, window),
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
    first = models[0]
    narx = first.narx
    remark = "the name of this file"
    if not name.isascii() or not name.isidentifier() or iskeyword(name):
        name = "model"
        remark = "Python cannot import the name of this file: give it this one"
    sizes = [f"{model.gp.n_points} points of {_safe(model.narx.target)}" for model in models]
    features = [_safe(feature) for feature in narx.feature_names]
    is_change = narx.predict is Target.change
    target = "the change y[k] - y[k-1]" if is_change else "the value y[k]"
    time = first.origin.sampling_time
    sampling_time = "not known" if time is None else f"{time!r} s"
    facts = [
        f"It stores {', '.join(sizes)}.",
        *[_describe_signal(first, signal) for signal in narx.signals],
        f"A regressor has {narx.n_features} features: {', '.join(features)}.",
        f"Target: {target}. Sampling time: {sampling_time}.",
    ]
    if usage:
        facts.insert(0, _safe(usage))
    lines: list[str] = []
    for fact in facts:
        lines += _wrap(fact)
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
        facts="\n".join(lines),
    )


def _describe_signal(model: Model, signal: str) -> str:
    """Return a sentence about the role, the unit and the lags of a signal."""
    kind = "Output" if signal in model.narx.output_names else "Input"
    unit = model.origin.unit(signal) or "unit not known"
    n = model.narx.n_features - model.gp.n_linear
    lags = _list_lags(model.narx.features[:n], signal)
    sentence = f"{kind} {_safe(signal)} [{_safe(unit)}], lags {lags}"
    if model.gp.n_linear:
        sentence += f", in the linear part {_list_lags(model.linear_features, signal)}"
    return f"{sentence}."


def _list_lags(features: Sequence[tuple[str, int]], signal: str) -> str:
    """Return the lags of a signal among these features as text."""
    return ", ".join(str(lag) for name, lag in features if name == signal) or "none"


def _safe(text: str) -> str:
    """Return ASCII text that a docstring can contain: it has no backslashes or double quotes."""
    return text.encode("ascii", "backslashreplace").decode().replace("\\", "/").replace('"', "'")


def _wrap(text: str) -> list[str]:
    """Return the lines of a text; all but the first are indented."""
    return textwrap.wrap(text, EXPORTED_LINE_WIDTH, subsequent_indent="    ")


def _constants(models: Sequence[Model]) -> list[str]:
    """Return the assignments of names, units, sampling time and noise of the models."""
    narx = models[0].narx
    origin = models[0].origin
    targets = tuple(model.narx.target for model in models)
    noise_variances = tuple(float(model.gp.noise_variance) for model in models)
    return [
        f"OUTPUTS = {narx.output_names!r}",
        f"INPUTS = {narx.input_names!r}",
        f"TARGETS = {targets!r}",
        f"UNITS = {dict(origin.units)!r}",
        f"SAMPLING_TIME = {origin.sampling_time!r}  # s; 1.0 if time counts samples",
        f"IS_CHANGE = {narx.predict is Target.change!r}  # whether the target is y[k] - y[k-1]",
        "#: variance of the measurement noise of each target",
        f"NOISE_VARIANCE = {noise_variances!r}",
        "#: signal and lag of every column of a regressor",
        "FEATURES = (",
        *[f"    {signal_and_lag!r}," for signal_and_lag in narx.features],
        ")",
        "",
    ]


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
        raise _no_formula(model.mean)
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
        *[_array(name, value) for name, value in arrays.items()],
        *_wrap(f"KERNEL_{i} = {kernel}"),
        f"INTERCEPT_{i} = {float(model.mean(origin)[0])!r}",
        f'FACTOR_{i} = lower("""{_block(lower_factor)}""", {n})',
        f'LIMITS_{i} = (float("{lowest!r}"), float("{highest!r}"))',
        *_wrap(f"PART_{i} = Part({', '.join(names_of_fields)}, *LIMITS_{i})"),
    ]


def _kernel_text(kernel: Kernel, i: int, vectors: dict[str, np.ndarray]) -> str:
    """Return a kernel as text: its formula with its parameters, or its formula with its parts.

    The parameters are added to `vectors` by name.
    """
    if type(kernel) not in KERNEL_FORMULAS:
        raise _no_formula(kernel)
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


def _no_formula(kernel_or_mean: object) -> UserError:
    """Return the error for a kernel or a mean function that is not part of the toolbox."""
    return UserError(
        f"{name_of(type(kernel_or_mean))} cannot be exported: a file contains only formulas of "
        "kernels and mean functions of the toolbox; evaluate the model in Python with the toolbox, "
        "or contribute the formula to sysid.export"
    )


def _evidence(models: Sequence[Model], window: int | None) -> list[str]:
    """Return the assignments of the predictions that the self-check compares."""
    x = typical_regressors(models[0], N_CHECKED_REGRESSORS)
    predictions = [model.predict(x) for model in models]
    mean = np.stack([prediction.mean for prediction in predictions], axis=1)
    variance = np.stack([prediction.variance for prediction in predictions], axis=1)
    prior_variances = [
        model.gp.kernel.diagonal(model.scaling.transform(x)).max() for model in models
    ]
    prior = np.max(prior_variances)
    evidence = {
        "CHECK_REGRESSORS": x,
        "CHECK_MEAN": mean.ravel(),
        "CHECK_VARIANCE": variance.ravel(),
        "CHECK_SCALE": np.maximum(prior, np.sqrt(prior)),
    }
    if window is not None:
        evidence |= _free_run_evidence(models, window)
    return [_array(name, values) for name, values in evidence.items()]


def _free_run_evidence(models: Sequence[Model], window: int) -> dict[str, np.ndarray]:
    """Return a free run with typical inputs, as far as it stays within its bounds."""
    narx = models[0].narx
    x = typical_regressors(models[0], narx.max_lag + N_CHECKED_STEPS)
    first_column: dict[str, int] = {}
    for j, (signal, _) in enumerate(narx.features):
        first_column.setdefault(signal, j)
    u = x[:, [first_column[name] for name in narx.input_names]]
    y_init = np.empty((0, 1))
    if window > 0:
        y_init = np.stack([x[:window, first_column[name]] for name in narx.output_names], axis=1)
    run = free_run(JointModel(tuple(models)), u, y_init)
    n_steps_inside = len(run.mean) if run.left is None else run.left
    n_inside = window + n_steps_inside
    path = np.concatenate([y_init, run.mean])[:n_inside]
    return {
        "CHECK_U": u[: max(n_inside, window + 1)],
        "CHECK_Y_INIT": y_init,
        "CHECK_Y": path.ravel(),
    }


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


def typical_regressors(model: Model, n: int) -> np.ndarray:
    """Return regressors (n, p) near the stored points.

    If there are no points, they are near the offset of the features.
    """
    generator = np.random.default_rng(CHECK_SEED)
    z = generator.normal(size=(n, model.scaling.n_coordinates))
    if model.gp.n_points:
        z = CHECK_SPREAD * z + model.gp.inputs[np.arange(n) % model.gp.n_points]
    return np.asarray(model.scaling.offset + z @ np.linalg.pinv(model.scaling.linear_part()).T)


def _array(name: str, values: np.ndarray) -> str:
    """Return the assignment of an array."""
    shape = "".join(f", {size}" for size in values.shape)
    return f'{name} = numbers("""{_block(values)}"""{shape})'


def _block(values: np.ndarray) -> str:
    """Return the numbers as a text of words, from which they are read back bit for bit."""
    words = " ".join(repr(value) for value in np.ravel(values).tolist())
    return "\n".join(["", *textwrap.wrap(words, EXPORTED_LINE_WIDTH), ""])
