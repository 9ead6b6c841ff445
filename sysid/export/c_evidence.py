"""What an exported C file compares itself with: values of the model at export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sysid.export.c_text import array, fill, template
from sysid.export.file_text import (
    CHECK_SEED,
    N_CHECKED_REGRESSORS,
    N_CHECKED_STEPS,
    typical_regressors,
)
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Target
from sysid.simulation.forecast import free_run

N_LEARNED_ROWS = 40  # regressors that a self-test learns

#: Errors of the targets that a self-test learns, in standard deviations of the noise.
LEARNED_NOISE_STDS = 1.0


class Evidence(NamedTuple):
    """Arrays and counts of a self-test."""

    arrays: dict[str, np.ndarray]
    indices: dict[str, np.ndarray]
    counts: dict[str, int]

    def text(
        self,
        arguments: Mapping[str, str],
        tolerance: float,
        has_lag_0: bool,
        further: tuple[str, str, str] | None = None,
    ) -> str:
        """Return the self-test, with the arguments of functions of this model.

        A further check is its function, the call of it, and its name.
        """
        has_inputs = "CHECK_STEP_U" in self.arrays
        definitions = [array(name, values) for name, values in self.arrays.items()]
        definitions += [array(name, values, "int32_t") for name, values in self.indices.items()]
        definitions += [f"#define {name} {value}" for name, value in self.counts.items()]
        definitions.append(f"#define TOLERANCE {tolerance!r}")
        step_inputs = ""
        u_of_step = ""
        if has_inputs:
            step_inputs += "        const real *u = CHECK_STEP_U + k * MODEL_N_INPUTS;\n"
            u_of_step = ", u"
        if has_lag_0:
            u_of_step += ", u + MODEL_N_INPUTS"
        more_checks = ""
        if "CHECK_Y" in self.arrays:
            more_checks += MORE_CHECKS.format(call="check_simulation(&state)", name="simulate")
        if "CHECK_ROWS" in self.arrays:
            more_checks += CHECK_OF_LEARNING
        check_addition = ""
        if further is not None:
            check_addition, call, name = further
            more_checks += MORE_CHECKS.format(call=call, name=name)
        values = {
            "check_addition": check_addition,
            "evidence": "\n\n".join(definitions),
            "step_inputs": step_inputs,
            "u_of_step": u_of_step,
            "check_simulation": template("check_simulation.c") if "CHECK_Y" in self.arrays else "",
            "check_learning": template("check_learning.c") if "CHECK_ROWS" in self.arrays else "",
            "more_checks": more_checks,
        }
        return fill(fill(template("self_test.c"), values), arguments)


MORE_CHECKS = """\
    found = {call};
    largest = MAX(largest, found);
    printf("  {name:<8} %.1e\\n", (double)found);
"""

CHECK_OF_LEARNING = """\
    {
        int n_others;
        found = check_learning(&state, &n_others);
        largest = MAX(largest, found);
        printf("  learn    %.1e, other decisions: %d of %d\\n", (double)found, n_others,
               N_LEARNED * MODEL_N_TARGETS);
    }
"""


def evidence_of(
    models: Sequence[Model], *, learns: bool, can_simulate: bool, n_first: int
) -> Evidence:
    """Return what the self-test of these models compares."""
    x = typical_regressors(models[0], N_CHECKED_REGRESSORS)
    arrays = {"CHECK_SIZE": _sizes_of_outputs(models), "CHECK_REGRESSORS": x}
    arrays["CHECK_MEAN"], arrays["CHECK_VARIANCE"] = _predictions(models, x)
    indices: dict[str, np.ndarray] = {}
    counts = {"N_CHECKED": len(x)}
    _add_steps(models, arrays, counts)
    if can_simulate:
        _add_free_run(models, arrays, counts, n_first)
    if learns:
        _add_learning(models, x, arrays, indices, counts)
    return Evidence(arrays, indices, counts)


def _sizes_of_outputs(models: Sequence[Model]) -> np.ndarray:
    """Return the standard deviation of each predicted output; if not known, of its prior."""
    sizes = []
    for model in models:
        variance = model.origin.output_variance
        if not variance:
            x = typical_regressors(model, N_CHECKED_REGRESSORS)
            variance = model.gp.kernel.diagonal(model.scaling.transform(x)).max()
        sizes.append(np.sqrt(variance))
    return np.array(sizes)


def _predictions(models: Sequence[Model], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances (n m,) of all targets at regressors (n, p), row by row."""
    predictions = [model.predict(x) for model in models]
    mean = np.stack([prediction.mean for prediction in predictions], axis=1)
    variance = np.stack([prediction.variance for prediction in predictions], axis=1)
    return mean.ravel(), variance.ravel()


def _typical_signals(model: Model, n: int) -> dict[str, np.ndarray]:
    """Return values (n,) of all signals, each of the size of one of its lags."""
    x = typical_regressors(model, n)
    column: dict[str, int] = {}
    for j, (signal, _) in enumerate(model.narx.features):
        column.setdefault(signal, j)
    zeros = np.zeros(n)
    return {name: x[:, column[name]] if name in column else zeros for name in model.narx.signals}


def _add_steps(
    models: Sequence[Model], arrays: dict[str, np.ndarray], counts: dict[str, int]
) -> None:
    """Add samples, and the prediction of the sample after each of them."""
    narx = models[0].narx
    first = max(narx.max_lag, int(narx.predict is Target.change))
    n = first + N_CHECKED_STEPS
    signals = _typical_signals(models[0], n + 1)
    expected = np.zeros((n, len(models)))
    for k in range(max(first - 1, 0), n):
        row = [signals[name][k + 1 - lag] for name, lag in narx.features]
        for i, model in enumerate(models):
            mean = model.predict([row]).mean[0]
            expected[k, i] = narx.predict.to_value(mean, signals[model.narx.target][k])
    arrays["CHECK_STEP_Y"] = np.stack([signals[name][:n] for name in narx.output_names], axis=1)
    if narx.input_names:
        arrays["CHECK_STEP_U"] = np.stack([signals[name] for name in narx.input_names], axis=1)
    arrays["CHECK_NEXT"] = expected
    counts["N_CHECKED_STEPS"] = n


def _add_free_run(
    models: Sequence[Model], arrays: dict[str, np.ndarray], counts: dict[str, int], n_first: int
) -> None:
    """Add a free run with typical inputs, as far as it stays within its bounds."""
    narx = models[0].narx
    n = narx.max_lag + N_CHECKED_STEPS
    signals = _typical_signals(models[0], n)
    u = np.zeros((n, 0))
    if narx.input_names:
        u = np.stack([signals[name] for name in narx.input_names], axis=1)
    y_init = np.stack([signals[name][:n_first] for name in narx.output_names], axis=1)
    run = free_run(JointModel(tuple(models)), u, y_init)
    n_inside = n_first + (len(run.mean) if run.left is None else run.left)
    if n_inside <= n_first:  # it diverges at once: nothing can be compared
        return
    arrays["CHECK_Y"] = np.concatenate([y_init, run.mean])[:n_inside]
    if narx.input_names:
        arrays["CHECK_U"] = u[:n_inside]
    counts["N_SIMULATED"] = n_inside
    counts["N_FIRST_CHECKED"] = n_first


def _add_learning(
    models: Sequence[Model],
    x: np.ndarray,
    arrays: dict[str, np.ndarray],
    indices: dict[str, np.ndarray],
    counts: dict[str, int],
) -> None:
    """Add rows that the models learn, their decisions, and their predictions afterwards."""
    generator = np.random.default_rng(CHECK_SEED)
    rows = typical_regressors(models[0], N_LEARNED_ROWS)
    copies: list[Any] = []
    targets = np.empty((len(rows), len(models)))
    slots = np.empty((len(rows), len(models)))
    outliers = np.empty((len(rows), len(models)))
    for i, model in enumerate(models):
        copy = Model(model.narx, model.scaling, model.mean, model.gp.copy())
        noise = LEARNED_NOISE_STDS * np.sqrt(model.gp.noise_variance)
        targets[:, i] = model.predict(rows).mean + noise * generator.normal(size=len(rows))
        record = copy.update_many(rows, targets[:, i])
        slots[:, i] = record["slot"]
        outliers[:, i] = record["outlier"]
        copies.append(copy)
    arrays["CHECK_ROWS"] = rows
    arrays["CHECK_TARGETS"] = targets
    arrays["LEARNED_MEAN"], arrays["LEARNED_VARIANCE"] = _predictions(copies, x)
    indices["CHECK_SLOTS"] = slots
    indices["CHECK_OUTLIERS"] = outliers
    counts["N_LEARNED"] = len(rows)
