"""The loop of a controller closed around an identified model instead of the plant."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulators import Controller
from sysid.simulation.dynamics import Dynamics

Array: TypeAlias = NDArray[np.float64]
#: targets (P, m) of P functions, one for each path, at the regressors (P, p) of the paths
Targets: TypeAlias = Callable[[Array], Array]


class Paths(NamedTuple):
    """Signals of P loops; nan from the sample on at which an output left the bounds of the dynamics."""

    outputs: Array  # (P, n, m)
    inputs: Array  # (P, n, n_u)


def close_loop(
    dynamics: Dynamics,
    targets: Targets,
    *,
    controller: Controller,
    time: Array,
    outputs: Array,
    inputs: Array,
    window: int,
    n_paths: int = 1,
) -> Paths:
    """Close P loops around P functions of one model.

    For the first `window` samples the controller reads what was measured, so that its memory is that of the plant's
    controller; afterwards it reads only what the model predicts::

        y[k] = F(y[k-1], ..., u[k], ...),   (u[k], memory) = controller(t[k], y[k], memory)

    Parameters
    ----------
    dynamics, targets
        Lags of the model, and its functions.
    controller : Controller
        Reads outputs and drives inputs of the model (`check_loop`).
    time : (n,)
        s.
    outputs : (n, m)
        Measured; used up to the window only.
    inputs : (n, n_u)
        Recorded; after the window the driven columns are not used.
    window : int
        At least the largest lag.

    Raises
    ------
    ValueError
        A window that is shorter than a lag or leaves nothing to predict.
    """
    narx, n = dynamics.narx, len(time)
    if not max(narx.max_lag, 1) <= window < n:
        raise ValueError(
            f"the loop needs a window from {max(narx.max_lag, 1)} (the largest lag) to {n - 1} samples of {n}, got "
            f"{window}; change windows or the duration"
        )
    read = [narx.output_names.index(name) for name in controller.outputs_read]
    driven = [narx.input_names.index(name) for name in controller.inputs_driven]
    paths = Paths(np.repeat(outputs[None], n_paths, axis=0), np.repeat(inputs[None], n_paths, axis=0))
    paths.outputs[:, window:], paths.inputs[:, window:, driven] = np.nan, np.nan
    memories = [controller.initial_state() for _ in range(n_paths)]
    bounds, goes_on = dynamics.bounds(outputs[None, :window]), np.ones(n_paths, dtype=bool)
    for k in range(n):
        if k >= window:
            paths.outputs[:, k] = _predicted(dynamics, targets, paths, k, goes_on)
            goes_on &= bounds.contain(paths.outputs[:, k]).all(axis=1)
        for path in np.flatnonzero(goes_on):
            values = paths.outputs[path, k, read].tolist()
            command, memories[path] = controller.control(float(time[k]), values, memories[path])
            paths.inputs[path, k, driven] = command
    return paths


def _predicted(dynamics: Dynamics, targets: Targets, paths: Paths, k: int, goes_on: NDArray[np.bool_]) -> Array:
    """Outputs (P, m) of sample k; nan where a path is over."""
    regressors = np.zeros((len(paths.outputs), dynamics.n_features))
    for j, (name, lag) in enumerate(dynamics.narx.features):
        if name in dynamics.narx.input_names:
            regressors[:, j] = paths.inputs[:, k - lag, dynamics.narx.input_names.index(name)]
    last = np.where(goes_on[:, None, None], paths.outputs[:, k - dynamics.n_lags : k], 0.0)
    regressors = np.where(goes_on[:, None], dynamics.regressors(last, regressors), 0.0)
    values = dynamics.to_value(targets(regressors), last[:, -1])
    return np.where(goes_on[:, None], values, np.nan)
