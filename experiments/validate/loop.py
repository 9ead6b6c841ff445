"""A controller's loop closed around an identified model, compared with the loop of the plant."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.plant.physics import columns_of
from simulators import Controller
from sysid import JointModel, Pathwise, Propagation, validate
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.forecast import MIN_FREE_RUN_DRAWS
from sysid.simulation.validation import Z_95


def close_loop(
    dynamics: Dynamics,
    targets: Callable[[Array], Array],
    controller: Controller,
    time: Array,
    outputs: Array,
    inputs: Array,
    *,
    window: int,
    n_paths: int = 1,
) -> tuple[Array, Array]:
    """Close P loops around P functions of one model.

    For the first `window` samples the controller reads the measured outputs, so that its memory is
    the same as that of the plant's controller; afterwards it reads only the model's predictions::

        y[k] = F(y[k-1], ..., u[k], ...),   (u[k], memory) = controller(t[k], y[k], memory)

    Parameters
    ----------
    dynamics
        Lags, regressors and bounds of the model.
    targets
        Function that returns the targets (P, m) of the P functions, one for each path, at the
        regressors (P, p) of the paths.
    controller : Controller
        Controller that reads outputs and drives inputs of the model (`check_controller`).
    time : (n,)
        Times of the samples [s].
    outputs : (n, m)
        Measured outputs; only the samples of the window are used.
    inputs : (n, n_u)
        Recorded inputs; the columns that the controller drives are used in the window only.
    window : int
        Length of the initialisation window [samples], at least the largest lag.

    Returns
    -------
    outputs : (P, n, m)
    inputs : (P, n, n_u)
        Both are nan from the sample on at which an output leaves the bounds of the dynamics.

    Raises
    ------
    ValueError
        If the window is shorter than the largest lag or leaves no sample to predict.
    """
    narx = dynamics.narx
    n = len(time)
    min_window = max(dynamics.narx.max_lag, 1)
    if not min_window <= window < n:
        raise UserError(
            f"the loop needs a window from {min_window} to {n - 1} samples, got {window}: "
            "change windows"
        )
    read_columns = [narx.output_names.index(name) for name in controller.outputs_read]
    driven_columns = [narx.input_names.index(name) for name in controller.inputs_driven]
    bounds = dynamics.bounds(outputs[None, :window])
    is_bounded = np.ones(n_paths, dtype=bool)
    y = np.repeat(outputs[None], n_paths, axis=0)
    u = np.repeat(inputs[None], n_paths, axis=0)
    y[:, window:] = np.nan
    u[:, window:, driven_columns] = np.nan
    memories = [controller.initial_state() for _ in range(n_paths)]
    exogenous = [
        (j, lag, narx.input_names.index(name))
        for j, (name, lag) in enumerate(narx.features)
        if name in narx.input_names
    ]
    for k in range(n):
        if k >= window:
            x = np.zeros((n_paths, dynamics.n_features))
            for j, lag, column in exogenous:
                x[:, j] = u[:, k - lag, column]
            last = np.where(is_bounded[:, None, None], y[:, k - dynamics.n_lags : k], 0.0)
            x = np.where(is_bounded[:, None], dynamics.regressors(last, x), 0.0)
            predicted = dynamics.to_value(targets(x), last[:, -1])
            y[:, k] = np.where(is_bounded[:, None], predicted, np.nan)
            is_bounded &= bounds.contain(y[:, k]).all(axis=1)
        for path in np.flatnonzero(is_bounded):
            read_values = y[path, k, read_columns].tolist()
            u[path, k, driven_columns], memories[path] = controller.control(
                float(time[k]), read_values, memories[path]
            )
    return y, u


class LoopVariables(NamedTuple):
    """Names of the variables of one kind of signal in the result of `compare_loops`."""

    plant: str  # signal in the loop around the plant
    model: str  # signal in the loop around the mean of the model
    variance: str  # variance over the functions of the model


#: the variables of the outputs and of the driven inputs, by their dimension
LOOP_VARIABLES = {
    "output": LoopVariables("measured", "mean", "variance"),
    "driven": LoopVariables("applied", "commanded", "commanded_variance"),
}


def compare_loops(
    joint: JointModel,
    record: xr.Dataset,
    controller: Controller,
    propagation: Propagation,
    *,
    window: int,
    seed: int,
) -> xr.Dataset:
    """Close the recorded loop of the plant around the model instead.

    The loop is closed around the mean of the model. With `Pathwise` it is also closed around
    functions that are drawn from the model; their spread about the loop of the mean is the
    variance. A window that is shorter than the largest lag is extended to it.

    Returns
    -------
    xarray.Dataset
        The `LOOP_VARIABLES` of both loops after the window: outputs (time, output) and the inputs
        that the controller sets (time, driven). They are nan from the sample on at which the loop
        around the model diverges. Attributes: ``window``, and ``n_paths``, the number of functions
        of the model, 0 for its mean alone.

    Raises
    ------
    ValueError
        If the controller does not fit the model, or there are too few samples.
    """
    check_controller(joint, controller)
    dynamics = Dynamics(joint)
    time = record["time"].values
    y = columns_of(record, joint.output_names)
    u = columns_of(record, joint.input_names)
    first = max(window, joint.models[0].narx.max_lag, 1)
    loop = partial(
        close_loop,
        dynamics,
        controller=controller,
        time=time,
        outputs=y,
        inputs=u,
        window=first,
    )

    def mean_targets(x: Array) -> Array:
        return dynamics.targets(x).mean

    mean_loop = loop(mean_targets)
    drawn_loops = None
    n_paths = 0
    if isinstance(propagation, Pathwise):
        rule = propagation.sparing(len(time) - first, MIN_FREE_RUN_DRAWS)
        n_paths = rule.n_samples
        functions = rule.functions(dynamics, np.random.default_rng([seed]))
        drawn_loops = loop(functions, n_paths=n_paths)
    result = xr.Dataset(
        coords={"time": ("time", time[first:], {"units": "s", "long_name": "time"})},
        attrs={"window": first, "n_paths": n_paths},
    )
    stored_names = (joint.output_names, controller.inputs_driven)
    column_names = (joint.output_names, joint.input_names)
    recorded_values = (y, u)
    signal_words = ("output", "input that the controller sets")
    variance_words = (
        "latent variance over the functions of the model",
        "variance over the functions of the model",
    )
    for kind, (dim, variables) in enumerate(LOOP_VARIABLES.items()):
        columns = [column_names[kind].index(name) for name in stored_names[kind]]
        dims = ("time", dim)
        around = f"{signal_words[kind]} in the loop around the"
        mean = mean_loop[kind][0, first:][:, columns]
        recorded = recorded_values[kind][first:, columns]
        result = result.assign_coords({dim: list(stored_names[kind])})
        result[variables.plant] = dims, recorded, {"long_name": f"{around} plant"}
        result[variables.model] = dims, mean, {"long_name": f"{around} model"}
        if drawn_loops is not None:
            drawn = drawn_loops[kind][:, first:][:, :, columns]
            variance = variance_of_draws(mean, drawn)
            result[variables.variance] = dims, variance, {"long_name": variance_words[kind]}
    return result


def score_loop(loop: xr.Dataset, noise_variance: Array) -> dict[str, Any]:
    """Return the scores of the loop around the model against the loop around the plant, by signal.

    The model cannot predict the noise of the plant. The scores therefore include the differences
    that two loops around the same plant would also show.
    """
    scores: dict[str, Any] = {"n_paths": loop.attrs["n_paths"]}
    for key, dim in (("outputs", "output"), ("inputs", "driven")):
        variables = LOOP_VARIABLES[dim]
        scores[key] = {}
        for i, name in enumerate(loop[dim].values.tolist()):
            variance = None
            noise = 0.0
            if dim == "output":
                noise = float(noise_variance[i])
                if variables.variance in loop:
                    variance = loop[variables.variance].values[:, i]
            measured = loop[variables.plant].values[:, i]
            predicted = loop[variables.model].values[:, i]
            score = validate(measured, predicted, variance, noise, window=loop.attrs["window"])
            scores[key][name] = score.to_dict()
    return scores


def variance_of_draws(mean: Array, drawn: Array) -> Array:
    """Return a variance (n,) about the mean (n,) that fits 95 % of the draws (P, n).

    It is the variance of the normal distribution about the mean whose 95 % band holds 95 % of the
    draws. A draw that has diverged (nan) is outside every band. Unlike the mean of the squared
    distances, this variance is not dominated by a few draws that are far away.
    """
    distance = np.abs(drawn - mean)
    distance = np.where(np.isnan(distance), np.inf, distance)
    half_width = np.quantile(distance, 0.95, axis=0, method="higher")
    return np.where(np.isnan(mean), np.nan, (half_width / Z_95) ** 2)


def check_controller(joint: JointModel, controller: Controller) -> None:
    """Raise ValueError if the controller cannot close its loop around the model.

    Raises
    ------
    ValueError
        If the controller reads an output that the model does not predict, or drives an input that
        the model does not have or that acts on the output of the same sample.
    """
    title = type(controller).__name__
    advice = "identify a model that fits, or take controller=none"
    reads = ("reads the output", controller.outputs_read, joint.output_names)
    drives = ("drives the input", controller.inputs_driven, joint.input_names)
    for verb, names, known in (reads, drives):
        missing = [name for name in names if name not in known]
        if missing:
            raise UserError(f"{title} {verb} {missing[0]!r}, the model has {list(known)}: {advice}")
    lags = joint.models[0].narx.lags
    instant = [name for name in controller.inputs_driven if 0 in lags[name]]
    if instant:
        raise UserError(
            f"the model has lag 0 of {instant[0]!r}, which {title} sets only after it has read the "
            f"output of the same sample: {advice}"
        )
