"""The loop of a controller closed around an identified model, beside the loop around the plant."""

from collections.abc import Callable
from functools import partial
from typing import Any

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

    For the first `window` samples the controller reads what was measured, so that its memory is
    that of the plant's controller; afterwards it reads only what the model predicts::

        y[k] = F(y[k-1], ..., u[k], ...),   (u[k], memory) = controller(t[k], y[k], memory)

    Parameters
    ----------
    dynamics
        Lags of the model.
    targets
        Targets (P, m) of P functions, one for each path, at the regressors (P, p) of the paths.
    controller : Controller
        Reads outputs and drives inputs of the model (`check_controller`).
    time : (n,)
        s.
    outputs : (n, m)
        Measured; used up to the window only.
    inputs : (n, n_u)
        Recorded; after the window the driven columns are not used.
    window : int
        At least the largest lag.

    Returns
    -------
    outputs : (P, n, m)
    inputs : (P, n, n_u)
        Both nan from the sample on at which an output left the bounds of the dynamics.

    Raises
    ------
    ValueError
        A window that is shorter than a lag or leaves nothing to predict.
    """
    narx = dynamics.narx
    n = len(time)
    least = max(dynamics.narx.max_lag, 1)
    if not least <= window < n:
        raise UserError(
            f"the loop needs a window from {least} to {n - 1} samples, got {window}: change windows"
        )
    read = [narx.output_names.index(name) for name in controller.outputs_read]
    driven = [narx.input_names.index(name) for name in controller.inputs_driven]
    bounds = dynamics.bounds(outputs[None, :window])
    goes_on = np.ones(n_paths, dtype=bool)
    y = np.repeat(outputs[None], n_paths, axis=0)
    u = np.repeat(inputs[None], n_paths, axis=0)
    y[:, window:], u[:, window:, driven] = np.nan, np.nan
    memories = [controller.initial_state() for _ in range(n_paths)]
    exogenous = {j: pair for j, pair in enumerate(narx.features) if pair[0] in narx.input_names}
    for k in range(n):
        if k >= window:
            x = np.zeros((n_paths, dynamics.n_features))
            for j, (name, lag) in exogenous.items():
                x[:, j] = u[:, k - lag, narx.input_names.index(name)]
            last = np.where(goes_on[:, None, None], y[:, k - dynamics.n_lags : k], 0.0)
            x = np.where(goes_on[:, None], dynamics.regressors(last, x), 0.0)
            y[:, k] = np.where(goes_on[:, None], dynamics.to_value(targets(x), last[:, -1]), np.nan)
            goes_on &= bounds.contain(y[:, k]).all(axis=1)
        for path in np.flatnonzero(goes_on):
            shown = y[path, k, read].tolist()
            u[path, k, driven], memories[path] = controller.control(
                float(time[k]), shown, memories[path]
            )
    return y, u


#: in the loop around the plant, in that around the model, and the variance over its functions: of outputs, of inputs
SIGNALS = {
    "output": ("measured", "mean", "variance"),
    "driven": ("applied", "commanded", "commanded_variance"),
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
    """Close the plant's loop, of which there is a record, around the model.

    The loop is closed around the mean of the model and, with `Pathwise`, also around each of its
    functions, which give the variance about the loop of the mean. The window is at least the
    largest lag.

    Returns
    -------
    xarray.Dataset
        The `SIGNALS` of both loops after the window (time, output) and (time, driven), driven are
        the inputs that the controller sets; nan from where the loop around the model diverged.
        Attributes: ``window``, and ``n_paths``, functions of the model, 0 for its mean alone.

    Raises
    ------
    ValueError
        A controller that does not fit the model, too few samples.
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
    path = loop(lambda x: dynamics.targets(x).mean)
    drawn = None
    n_paths = 0
    if isinstance(propagation, Pathwise):
        rule = propagation.sparing(len(time) - first, MIN_FREE_RUN_DRAWS)
        n_paths = rule.n_samples
        drawn = loop(rule.functions(dynamics, np.random.default_rng([seed])), n_paths=n_paths)
    found = xr.Dataset(
        coords={"time": ("time", time[first:], {"units": "s", "long_name": "time"})},
        attrs={"window": first, "n_paths": n_paths},
    )
    names = (joint.output_names, controller.inputs_driven)
    known = (joint.output_names, joint.input_names)
    for kind, (dim, (plant, model, variance)) in enumerate(SIGNALS.items()):
        columns = [known[kind].index(name) for name in names[kind]]
        dims = ("time", dim)
        around = f"{'input that the controller sets' if kind else 'output'} in the loop around the"
        mean = path[kind][0, first:][:, columns]
        measured = (y, u)[kind][first:, columns]
        found = found.assign_coords({dim: list(names[kind])})
        found[plant] = dims, measured, {"long_name": f"{around} plant"}
        found[model] = dims, mean, {"long_name": f"{around} model"}
        if drawn is not None:
            words = f"{'' if kind else 'latent '}variance over the functions of the model"
            found[variance] = (
                dims,
                variance_of_draws(mean, drawn[kind][:, first:][:, :, columns]),
                {"long_name": words},
            )
    return found


def score_loop(loop: xr.Dataset, noise_variance: Array) -> dict[str, Any]:
    """Measures of the loop around the model against the loop around the plant, by signal.

    The noise of the plant is none that the model could know: the measures also count what two loops
    around the same plant would differ by.
    """
    scores: dict[str, Any] = {"n_paths": loop.attrs["n_paths"]}
    for key, (dim, (plant, model, variance)) in zip(
        ("outputs", "inputs"), SIGNALS.items(), strict=True
    ):
        scores[key] = {}
        for i, name in enumerate(loop[dim].values.tolist()):
            spread = loop[variance].values[:, i] if dim == "output" and variance in loop else None
            noise = float(noise_variance[i]) if dim == "output" else 0.0
            both = loop[plant].values[:, i], loop[model].values[:, i]
            scores[key][name] = validate(
                *both, spread, noise, window=loop.attrs["window"]
            ).to_dict()
    return scores


def variance_of_draws(mean: Array, drawn: Array) -> Array:
    """Variance (n,) of the normal distribution about the mean whose 95 % band holds 95 % of the
    draws (P, n).

    Draws that have diverged are outside of every band. A few draws that go far away count as little
    as that; the mean of their squares would be nothing but them.
    """
    distance = np.abs(drawn - mean)
    half = np.quantile(
        np.where(np.isnan(distance), np.inf, distance), 0.95, axis=0, method="higher"
    )
    return np.where(np.isnan(mean), np.nan, (half / Z_95) ** 2)


def check_controller(joint: JointModel, controller: Controller) -> None:
    """Refuse a controller that cannot close its loop around the model.

    Raises
    ------
    ValueError
        An output that it reads and the model does not predict, an input that it drives and the
        model does not have, or that acts on the output of the same sample.
    """
    title = type(controller).__name__
    advice = "identify a model that fits, or take controller=none"
    reads = ("reads the output", controller.outputs_read, joint.output_names)
    for verb, names, known in (
        reads,
        ("drives the input", controller.inputs_driven, joint.input_names),
    ):
        if missing := [name for name in names if name not in known]:
            raise UserError(f"{title} {verb} {missing[0]!r}, the model has {list(known)}: {advice}")
    if instant := [
        name for name in controller.inputs_driven if 0 in joint.models[0].narx.lags[name]
    ]:
        reason = f"which {title} sets after it has read the output of the same sample"
        raise UserError(f"the model has lag 0 of {instant[0]!r}, {reason}: {advice}")
