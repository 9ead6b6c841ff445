"""What the files of all formats state of a model, as Python text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from keyword import iskeyword

import numpy as np

from sysid.errors import UserError
from sysid.model.description import name_of
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Target
from sysid.simulation.forecast import free_run

EXPORTED_LINE_WIDTH = 100  # largest number of characters in a line of the exported file
N_CHECKED_REGRESSORS = 8  # regressors whose predictions the self-check compares
N_CHECKED_STEPS = 20  # samples of the free run, or of a loop, that the self-check compares
CHECK_SEED = 0  # seed of the values of the self-check

#: Largest relative deviation in the self-check of a Python file. It allows for rounding on another
#: machine, also by a badly conditioned model [-].
SELF_CHECK_TOLERANCE = 1e-6

#: Standard deviation of the regressors of the self-check around stored points [coordinates].
CHECK_SPREAD = 0.1


def name_for_import(name: str) -> tuple[str, str]:
    """Return the name by which a file of this name is imported, and a remark about it."""
    if name.isascii() and name.isidentifier() and not iskeyword(name):
        return name, "the name of this file"
    return "model", "Python cannot import the name of this file: give it this one"


def facts_of(models: Sequence[Model], usage: str = "") -> list[str]:
    """Return the lines of a docstring about the points, signals and lags of the models.

    The text `usage` precedes them.
    """
    first = models[0]
    narx = first.narx
    sizes = [f"{model.gp.n_points} points of {safe_text(model.narx.target)}" for model in models]
    features = [safe_text(feature) for feature in narx.feature_names]
    is_change = narx.predict is Target.change
    target = "the change y[k] - y[k-1]" if is_change else "the value y[k]"
    time = first.origin.sampling_time
    sampling_time = "not known" if time is None else f"{time!r} s"
    facts = [
        f"It stores {', '.join(sizes)}.",
        *[describe_signal(first, signal) for signal in narx.signals],
        f"A regressor has {narx.n_features} features: {', '.join(features)}.",
        f"Target: {target}. Sampling time: {sampling_time}.",
    ]
    if usage:
        facts.insert(0, safe_text(usage))
    lines: list[str] = []
    for fact in facts:
        lines += wrap(fact)
    return lines


def describe_signal(model: Model, signal: str) -> str:
    """Return a sentence about the role, the unit and the lags of a signal."""
    kind = "Output" if signal in model.narx.output_names else "Input"
    unit = model.origin.unit(signal) or "unit not known"
    n = model.narx.n_features - model.gp.n_linear
    lags = list_lags(model.narx.features[:n], signal)
    sentence = f"{kind} {safe_text(signal)} [{safe_text(unit)}], lags {lags}"
    if model.gp.n_linear:
        sentence += f", in the linear part {list_lags(model.linear_features, signal)}"
    return f"{sentence}."


def list_lags(features: Sequence[tuple[str, int]], signal: str) -> str:
    """Return the lags of a signal among these features as text."""
    return ", ".join(str(lag) for name, lag in features if name == signal) or "none"


def safe_text(text: str) -> str:
    """Return ASCII text that a docstring can contain: it has no backslashes or double quotes."""
    return text.encode("ascii", "backslashreplace").decode().replace("\\", "/").replace('"', "'")


def wrap(text: str) -> list[str]:
    """Return the lines of a text; all but the first are indented."""
    return textwrap.wrap(text, EXPORTED_LINE_WIDTH, subsequent_indent="    ")


def constants_of(models: Sequence[Model]) -> list[str]:
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


def no_formula(kernel_or_mean: object) -> UserError:
    """Return the error for a kernel or a mean function that is not part of the toolbox."""
    return UserError(
        f"{name_of(type(kernel_or_mean))} cannot be exported: a file contains only formulas of "
        "kernels and mean functions of the toolbox; evaluate the model in Python with the toolbox, "
        "or contribute the formula to sysid.export"
    )


def evidence_of(models: Sequence[Model], window: int | None) -> list[str]:
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
        evidence |= free_run_evidence(models, window)
    return [array_text(name, values) for name, values in evidence.items()]


def free_run_evidence(models: Sequence[Model], window: int) -> dict[str, np.ndarray]:
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


def typical_regressors(model: Model, n: int) -> np.ndarray:
    """Return regressors (n, p) near the stored points.

    If there are no points, they are near the offset of the features.
    """
    generator = np.random.default_rng(CHECK_SEED)
    z = generator.normal(size=(n, model.scaling.n_coordinates))
    if model.gp.n_points:
        z = CHECK_SPREAD * z + model.gp.inputs[np.arange(n) % model.gp.n_points]
    return np.asarray(model.scaling.offset + z @ np.linalg.pinv(model.scaling.linear_part()).T)


def array_text(name: str, values: np.ndarray) -> str:
    """Return the assignment of an array."""
    shape = "".join(f", {size}" for size in values.shape)
    return f'{name} = numbers("""{block_of_numbers(values)}"""{shape})'


def block_of_numbers(values: np.ndarray) -> str:
    """Return the numbers as a text of words, from which they are read back bit for bit."""
    words = " ".join(repr(value) for value in np.ravel(values).tolist())
    return "\n".join(["", *textwrap.wrap(words, EXPORTED_LINE_WIDTH), ""])
