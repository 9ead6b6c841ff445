"""Export of an identified model as one Python file that needs NumPy only."""

from __future__ import annotations

import inspect
import os
import runpy
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
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
from sysid.model.description import name_of
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Target
from sysid.simulation.dynamics import AFFINE_MEANS, Dynamics
from sysid.simulation.forecast import free_run

FORMULAS: dict[type[Kernel], Callable[..., Any]] = {
    SquaredExponential: standalone.squared_exponential,
    Matern32: standalone.matern_32,
    Matern52: standalone.matern_52,
    Linear: standalone.linear,
    Sum: standalone.total,
    Product: standalone.product,
}

WIDTH = 118  # characters of a line
N_CHECKED = 8  # regressors of the self-check
N_STEPS = 20  # samples of its free run
# of the self-check: rounding, also that of a badly conditioned model on another machine [-]
TOLERANCE = 1e-6

HEAD = '''\
"""Identified Gaussian process model, exported from sysid {version}.

It needs Python 3.9 and NumPy 1.20, or newer, and nothing else::

    import {name}  # the name of this file
    mean, variance = {name}.predict({name}.regressors(u, y))  # one step ahead, samples {first}, {second}, ...
{free_run}{facts}

Variances are those of the function; add NOISE_VARIANCE for a measurement. Signals are arrays (n,), or (n, number of
signals) in the order of INPUTS and OUTPUTS. Run as a script, the file checks itself.
"""'''
FREE_RUN = (
    "    y = {name}.simulate(u, y_init)  # free run: all outputs from the inputs and {window} or more first outputs\n"
    "    loop = {name}.start(u_init, y_init)  # a loop of your own, behind these first samples\n"
    "    mean, variance = loop.step(u_now, y_now)  # predicts this sample, then takes y_now; without y_now the mean"
)

CHECK = '''\
def self_check():
    """Largest deviation from what was predicted when the model was exported, relative to what it could be at most."""
    mean, variance = predict(CHECK_REGRESSORS)
    pairs = [(mean, CHECK_MEAN), (variance, CHECK_VARIANCE){free}]
    relative = [np.abs(np.ravel(found)[: kept.size] - kept) / (np.abs(kept) + CHECK_SCALE) for found, kept in pairs]
    return float(np.max(np.concatenate(relative)))


if __name__ == "__main__":
    deviation = self_check()
    verdict = "as exported" if deviation < TOLERANCE else "NOT the exported model"
    print(f"largest deviation {{deviation:.1e}}: {{verdict}}")
    raise SystemExit(not deviation < TOLERANCE)
'''


def export_python(
    model: Model | JointModel,
    path: str | os.PathLike[str],
    *,
    addition: str = "",
    usage: str = "",
    checks: str = "",
) -> Path:
    """Write a Python file that predicts as the model does, with NumPy alone; returns its path.

    The file has ``regressors`` (from signals), ``predict`` (mean and variance one step ahead),
    ``simulate`` (the mean in free run) and ``start`` (a loop of your own, with ``step`` for one
    sample). It states lags and units, holds every number in full precision, and checks itself when
    it is run. It appears under its name only after that check has passed.

    Parameters
    ----------
    model : Model or JointModel
        A single model that looks at other outputs can predict, not simulate: its file lacks
        ``simulate`` and ``start``.
    path
        Ends in ``.py``; a file of that name is replaced.
    addition, usage, checks
        Python text that makes more of the model, before the file checks itself: it knows `MODEL`,
        and may replace ``regressors``, ``simulate`` and ``start``; lines about it for the head of
        the file; further pairs ``(found, kept)``.

    Raises
    ------
    ValueError
        Another ending; a kernel or a mean function that the toolbox does not ship.
    sysid.StoreError
        The file cannot be written; nothing is left.
    """
    if Path(path).suffix != ".py":
        raise UserError(f"export_python: expected a name that ends in .py, got {os.fspath(path)!r}")
    models = model.models if isinstance(model, JointModel) else (model,)
    window = None  # first outputs that a free run needs; None: the file cannot simulate
    if len(models) == len(models[0].narx.output_names):
        dynamics = Dynamics(model)
        window = int(dynamics.feeds_back)
    lines = [
        _head(models, Path(path).stem, window, usage),
        inspect.getsource(standalone).split('"""', 2)[2],
        "",
        *_constants(models),
        *(line for i, one in enumerate(models) for line in _numbers(one, i)),
        f"PARTS = ({', '.join(f'PART_{i}' for i in range(len(models)))},)",
        f"MODEL = ExportedModel(PARTS, OUTPUTS, INPUTS, FEATURES, IS_CHANGE, {window or 0})",
        "predict, regressors = MODEL.predict, MODEL.regressors",
        *([] if window is None else ["simulate, start = MODEL.simulate, MODEL.start"]),
        addition,
        *_evidence(models, window),
        f"TOLERANCE = {TOLERANCE!r}",
        "",
        "",
        CHECK.format(
            free=("" if window is None else ", (MODEL.simulate(CHECK_U, CHECK_Y_INIT), CHECK_Y)")
            + checks
        ),
    ]
    text = "\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        checked = Path(folder) / "exported.py"
        checked.write_text(text, encoding="utf-8")
        deviation = runpy.run_path(str(checked))["self_check"]()
    if not deviation < TOLERANCE:
        raise UserError(
            f"the model cannot be exported: the file deviates from it by {deviation:.3g}; a likely reason is a badly "
            "conditioned model, which a larger noise variance avoids"
        )
    return store.write_bytes(text.encode(), path)


def _head(models: Sequence[Model], name: str, window: int | None, usage: str) -> str:
    """Docstring."""
    model = models[0]
    narx = models[0].narx
    time = model.origin.sampling_time
    facts = [
        *([_safe(usage)] if usage else []),
        f"It keeps {', '.join(f'{one.gp.n_points} points of {_safe(one.narx.target)}' for one in models)}.",
        *(_signal(model, signal) for signal in narx.signals),
        f"A regressor has {narx.n_features} features: {', '.join(map(_safe, narx.feature_names))}.",
        f"Target: {'the change y[k] - y[k-1]' if narx.predict is Target.change else 'the value y[k]'}. "
        f"Sampling time: {'not known' if time is None else f'{time!r} s'}.",
    ]
    return HEAD.format(
        version=__version__,
        name=name,
        first=narx.max_lag,
        second=narx.max_lag + 1,
        free_run="\n" if window is None else FREE_RUN.format(name=name, window=window) + "\n\n",
        facts="\n".join(
            line for fact in facts for line in textwrap.wrap(fact, WIDTH, subsequent_indent="    ")
        ),
    )


def _signal(model: Model, signal: str) -> str:
    kind = "Output" if signal in model.narx.output_names else "Input"
    unit = model.origin.unit(signal) or "unit not known"
    lags = model.narx.lags[signal]
    return f"{kind} {_safe(signal)} [{_safe(unit)}], lags {', '.join(map(str, lags)) or 'none'}."


def _safe(text: str) -> str:
    """ASCII text that neither ends a docstring nor is changed in it."""
    return text.encode("ascii", "backslashreplace").decode().replace("\\", "/").replace('"', "'")


def _constants(models: Sequence[Model]) -> list[str]:
    """Write what the model states beside its numbers."""
    model = models[0]
    narx = models[0].narx
    pairs = "".join(f"    {pair!r},\n" for pair in narx.features)
    return [
        f"OUTPUTS = {narx.output_names!r}",
        f"INPUTS = {narx.input_names!r}",
        f"TARGETS = {tuple(one.narx.target for one in models)!r}",
        f"UNITS = {dict(model.origin.units)!r}",
        f"SAMPLING_TIME = {model.origin.sampling_time!r}  # s; 1.0 where time counts samples",
        f"IS_CHANGE = {narx.predict is Target.change!r}  # whether the target is y[k] - y[k-1]",
        f"NOISE_VARIANCE = {tuple(float(one.gp.noise_variance) for one in models)!r}  # of a measurement of a target",
        f"#: signal and lag of every column of a regressor\nFEATURES = (\n{pairs})",
    ]


def _numbers(model: Model, i: int) -> list[str]:
    """Write the assignments of the fields of the part of a model."""
    if type(model.mean) not in AFFINE_MEANS:
        raise _no_formula(model.mean)
    vectors: dict[str, np.ndarray] = {}
    kernel = _kernel_text(model.gp.kernel, i, vectors)
    state = model.gp.exact_form()
    origin = np.zeros((1, model.narx.n_features))
    n = model.gp.n_points
    named = vectors | {
        f"SLOPES_{i}": model.mean.gradient(origin)[0],
        f"OFFSET_{i}": model.scaling.offset,
        f"MATRIX_{i}": model.scaling.linear_part(),
        f"POINTS_{i}": state["inputs"][state["order"]],
        f"WEIGHTS_{i}": state["weights"],
        f"WHITENED_{i}": state["whitened"],
    }
    return [
        *(_array(name, value) for name, value in named.items()),
        *textwrap.wrap(f"KERNEL_{i} = {kernel}", WIDTH, subsequent_indent="    "),
        f"INTERCEPT_{i} = {float(model.mean(origin)[0])!r}",
        f'FACTOR_{i} = lower("""{_block(state["factor"][np.tril_indices(n)])}""", {n})',
        f'LIMITS_{i} = (float("{model.limits[0]!r}"), float("{model.limits[1]!r}"))',
        f"PART_{i} = Part({', '.join(f'{name.upper()}_{i}' for name in standalone.Part._fields[:-2])}, *LIMITS_{i})",
    ]


def _kernel_text(kernel: Kernel, i: int, vectors: dict[str, np.ndarray]) -> str:
    """Write a kernel as its formula and parameters, or its formula and parts.

    The parameters are added to `vectors` by name.
    """
    if type(kernel) not in FORMULAS:
        raise _no_formula(kernel)
    if isinstance(kernel, Sum | Product):
        second = f"({', '.join(_kernel_text(part, i, vectors) for part in kernel.parts)})"
    else:
        second = f"KERNEL_{i}_{len(vectors)}"
        vectors[second] = np.hstack([getattr(kernel, field.name) for field in fields(kernel)])  # type: ignore[arg-type]
    return f"({FORMULAS[type(kernel)].__name__}, {second})"


def _no_formula(own: object) -> UserError:
    return UserError(
        f"{name_of(type(own))} cannot be exported: a file holds only formulas of kernels and mean functions that the "
        "toolbox ships; evaluate the model in Python with the toolbox, or contribute the formula to sysid.export"
    )


def _evidence(models: Sequence[Model], window: int | None) -> list[str]:
    """Write what the model predicts, for the self-check."""
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
    if (
        window is not None
    ):  # a free run through typical inputs, as far as it stays within its bounds
        narx = models[0].narx
        x = _typical_regressors(models[0], narx.max_lag + N_STEPS)
        column = {name: j for j, (name, _) in reversed(list(enumerate(narx.features)))}
        u = x[:, [column[name] for name in narx.input_names]]
        y = (
            np.stack([x[:window, column[name]] for name in narx.output_names], axis=1)
            if window
            else np.empty((0, 1))
        )
        run = free_run(JointModel(tuple(models)), u, y)
        inside = window + (len(run.mean) if run.left is None else run.left)
        path = np.concatenate([y, run.mean])[:inside]
        named |= {
            "CHECK_U": u[: max(inside, window + 1)],
            "CHECK_Y_INIT": y,
            "CHECK_Y": path.ravel(),
        }
    return [_array(name, values) for name, values in named.items()]


def _typical_regressors(model: Model, n: int) -> np.ndarray:
    """Regressors (n, p) near the stored points, or about the offset of the features if there are
    none.
    """
    generator = np.random.default_rng(0)
    z = generator.normal(size=(n, model.scaling.n_coordinates))
    if model.gp.n_points:
        z = 0.1 * z + model.gp.inputs[np.arange(n) % model.gp.n_points]
    return np.asarray(model.scaling.offset + z @ np.linalg.pinv(model.scaling.linear_part()).T)


def _array(name: str, values: np.ndarray) -> str:
    """Write the assignment of an array."""
    shape = "".join(f", {size}" for size in values.shape)
    return f'{name} = numbers("""{_block(values)}"""{shape})'


def _block(values: np.ndarray) -> str:
    """Numbers as the words of a text, each so that it is read back bit for bit."""
    words = [repr(value) for value in np.ravel(values).tolist()]
    return "\n".join(["", *textwrap.wrap(" ".join(words), WIDTH), ""])
