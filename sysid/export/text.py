"""The parts of an exported file that depend on the model, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from sysid.model import Model
from sysid.narx import Target

WIDTH = 118  # characters of a line

#: what a file defines beside its numbers and what `sysid.export.standalone` has
NAMES = {"predict", "regressors", "simulate", "self_check", "OUTPUTS", "INPUTS", "TARGETS", "UNITS", "SAMPLING_TIME"}
NAMES |= {"IS_CHANGE", "NOISE_VARIANCE", "FEATURES", "PARTS", "TOLERANCE"}

STANDARD = ("import math",)  # imports that stand above those of NumPy

USE = """\
    import {name}  # the name of this file
    mean, variance = {name}.predict({name}.regressors(u, y))  # one step ahead, samples {first}, {second}, ..."""
FREELY = "    y = {name}.simulate(u, y_init)  # free run: outputs of all samples from the first outputs and the inputs"

PREDICT = '''\
def predict(regressors):
    """Mean and latent variance of the targets at regressors (n, {p}): {shape}; targets: {target}."""
    x = np.asarray(regressors, dtype=float)
    if x.ndim != 2 or x.shape[1] != {p} or not np.isfinite(x).all():
        raise ValueError(f"regressors: expected finite numbers (n, {p}), got shape {{x.shape}}")
    found = [moments(part, x) for part in PARTS]
    return _shaped([mean for mean, _ in found]), _shaped([variance for _, variance in found])'''

REGRESSORS = '''\
def regressors(u, y):
    """Regressors (n - {first}, {p}) of samples {first}, ..., n - 1 of inputs u (n, {n_u}) and outputs y (n, {n_y})."""
    inputs, outputs = columns(u, INPUTS, "u"), columns(y, OUTPUTS, "y")
    if len(inputs) != len(outputs):
        raise ValueError(f"expected u and y of one length, got {{len(inputs)}} and {{len(outputs)}}")
    signals = {{name: outputs[:, i] for i, name in enumerate(OUTPUTS)}}
    signals.update({{name: inputs[:, i] for i, name in enumerate(INPUTS)}})
    return lagged(FEATURES, signals, np.arange({first}, len(outputs)))'''

SIMULATE = '''\
def simulate(u, y_init):
    """Outputs {shape} in free run, from inputs u (n, {n_u}) and the first w >= {window} outputs y_init (w, {n_y}).

    The first outputs are returned as they are; lags that reach before them hold the first.
    """
    inputs, first = columns(u, INPUTS, "u"), columns(y_init, OUTPUTS, "y_init")
    if not {window} <= len(first) < len(inputs):
        raise ValueError(f"y_init: expected {window} to {{len(inputs) - 1}} first outputs, got {{len(first)}}")
    rest = np.zeros(len(inputs) - len(first))
    signals = {{name: np.concatenate([first[:, i], rest]) for i, name in enumerate(OUTPUTS)}}
    signals.update({{name: inputs[:, i] for i, name in enumerate(INPUTS)}})
    run_freely(PARTS, FEATURES, signals, OUTPUTS, len(first), IS_CHANGE)
    return _shaped([signals[name] for name in OUTPUTS])'''

SHAPED = '''\
def _shaped(parts):
    """(n,) of a single output, (n, number of outputs) of several."""
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)'''

CHECK = '''\
def self_check():
    """Largest deviation from what was predicted when the model was exported, relative to what it could be at most."""
    mean, variance = predict(CHECK_REGRESSORS)
    pairs = [(mean, CHECK_MEAN), (variance, CHECK_VARIANCE){free}]
    relative = [np.abs(np.ravel(found)[: kept.size] - kept) / (np.abs(kept) + CHECK_SCALE) for found, kept in pairs]
    return float(np.max(np.concatenate(relative)))'''

MAIN = """\
if __name__ == "__main__":
    deviation = self_check()
    print(f"largest deviation {deviation:.1e}: {'as exported' if deviation < TOLERANCE else 'NOT the exported model'}")
    raise SystemExit(not deviation < TOLERANCE)"""


def head(models: Sequence[Model], name: str, version: str, window: int | None, imports: Sequence[str]) -> str:
    """Docstring and imports; a window of None: the file cannot simulate."""
    model, narx = models[0], models[0].narx
    use = [USE.format(name=name, first=narx.max_lag, second=narx.max_lag + 1)]
    use += [] if window is None else [FREELY.format(name=name)]
    stored = ", ".join(f"{one.gp.n_points} points of {safe(one.narx.target)}" for one in models)
    time = model.origin.sampling_time
    facts = [
        f"It keeps {stored}.",
        *(_signal(model, signal) for signal in narx.signals),
        f"Target: {target_text(narx.predict)}. Sampling time: {'not known' if time is None else f'{time!r} s'}.",
    ]
    after = (
        "Variances are those of the function; add NOISE_VARIANCE for a measurement. Signals are arrays (n,), or (n, "
        "number of signals) in the order of INPUTS and OUTPUTS. Run as a script, the file checks itself."
    )
    lines = [
        f'"""Identified Gaussian process model, exported from sysid {version}.',
        "",
        "It needs Python 3.9 and NumPy 1.20, or newer, and nothing else::",
        "",
        *use,
        "",
        *(line for fact in facts for line in textwrap.wrap(fact, WIDTH, subsequent_indent="    ")),
        "",
        *textwrap.wrap(after, WIDTH),
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *(line for line in imports if line in STANDARD),
        "from collections.abc import Callable, Mapping, Sequence",
        "from typing import Any, NamedTuple",
        "",
        *(line for line in imports if line not in STANDARD),
    ]
    return "\n".join(lines)


def target_text(target: Target) -> str:
    """What is predicted."""
    return "the change y[k] - y[k-1]" if target is Target.change else "the value y[k]"


def _signal(model: Model, signal: str) -> str:
    kind = "Output" if signal in model.narx.output_names else "Input"
    unit, lags = model.origin.unit(signal) or "unit not known", model.narx.lags[signal]
    return f"{kind} {safe(signal)} [{safe(unit)}], lags {', '.join(map(str, lags)) or 'none'}."


def safe(text: str) -> str:
    """ASCII text that neither ends a docstring nor is changed in it."""
    return text.encode("ascii", "backslashreplace").decode().replace("\\", "/").replace('"', "'")


def constants(models: Sequence[Model]) -> str:
    """What the model states beside its numbers."""
    model, narx = models[0], models[0].narx
    stated = {
        "OUTPUTS": narx.output_names,
        "INPUTS": narx.input_names,
        "TARGETS": tuple(one.narx.target for one in models),
        "UNITS": dict(model.origin.units),
        "SAMPLING_TIME": model.origin.sampling_time,
        "IS_CHANGE": narx.predict is Target.change,
        "NOISE_VARIANCE": tuple(float(one.gp.noise_variance) for one in models),
    }
    comments = {
        "SAMPLING_TIME": "s; 1.0 where time counts samples",
        "IS_CHANGE": "whether the target is y[k] - y[k-1]",
        "NOISE_VARIANCE": "of a measurement of each target, its unit squared",
    }
    lines = [
        f"{name} = {value!r}" + (f"  # {comments[name]}" if name in comments else "") for name, value in stated.items()
    ]
    pairs = "".join(f"    {pair!r},\n" for pair in narx.features)
    return "\n".join([*lines, "#: signal and lag of every column of a regressor", f"FEATURES = (\n{pairs})"])


def block(values: np.ndarray) -> str:
    """Numbers as the words of a text, each so that it is read back bit for bit."""
    words = [repr(value) for value in np.ravel(values).tolist()]
    return "\n".join(["", *textwrap.wrap(" ".join(words), WIDTH), ""])


def array(name: str, values: np.ndarray) -> str:
    """Assignment of an array."""
    shape = "".join(f", {size}" for size in values.shape)
    return f'{name} = numbers("""{block(values)}"""{shape})'
