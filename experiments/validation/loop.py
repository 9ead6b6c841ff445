"""The loop of a controller closed around an identified model, beside the loop around the plant."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.validation.material import Material, check_controller
from simulators import Controller
from sysid import JointModel, Pathwise, Propagation, validate
from sysid.arrays import Array
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.validation import Z_95

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
        Reads outputs and drives inputs of the model (`check_controller`).
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


class LoopSignal(NamedTuple):
    """An output, or an input that the controller drives, in both loops; nan from where that of the model diverged."""

    name: str
    is_output: bool
    plant: Array  # (n,) in the loop around the plant, unit of the signal
    model: Array  # (n,) around the model
    variance: Array | None  # (n,) over the functions of the model, latent
    noise_variance: float  # of a measurement; 0 for an input


class LoopComparison(NamedTuple):
    """Signals of both loops after the window."""

    window: int  # samples before the first
    n_paths: int  # functions of the model; 0: its mean alone
    time: Array  # (n,) s
    signals: tuple[LoopSignal, ...]  # outputs, then driven inputs

    @property
    def n_lost(self) -> int:
        """Samples without a prediction, because the loop diverged."""
        outputs = [signal.model for signal in self.signals if signal.is_output]
        return int(np.isnan(outputs).any(axis=0).sum())

    def collect_scores(self) -> dict[str, Any]:
        """Measures of the loop around the model against the loop around the plant, by signal.

        The noise of the plant is none that the model could know: the measures also count what two loops around the
        same plant would differ by.
        """
        scores: dict[str, Any] = {"n_paths": self.n_paths, "outputs": {}, "inputs": {}}
        for signal in self.signals:
            kind, variance = ("outputs", signal.variance) if signal.is_output else ("inputs", None)
            score = validate(signal.plant, signal.model, variance, signal.noise_variance, window=self.window)
            scores[kind][signal.name] = score.to_dict()
        return scores


def compare_loops(
    joint: JointModel, material: Material, propagation: Propagation, *, window: int, seed: int
) -> LoopComparison | None:
    """Close the plant's loop around the model; None if no controller reads an output.

    The loop is closed around the mean of the model and, with `Pathwise`, also around each of its functions, which
    give the variance about the loop of the mean. The window is at least the largest lag.

    Raises
    ------
    ValueError
        A controller that does not fit the model, too few samples.
    """
    controller = material.controller
    if controller is None:
        return None
    check_controller(joint, controller)
    dynamics, record = Dynamics(joint), material.records[0]
    time = record["time"].values
    y = np.stack([record[name].values for name in joint.output_names], axis=1)
    u = np.stack([record[name].values for name in joint.input_names], axis=1)
    first = max(window, joint.models[0].narx.max_lag, 1)
    loop = partial(close_loop, dynamics, controller=controller, time=time, outputs=y, inputs=u, window=first)
    path, drawn, n_paths = loop(lambda x: dynamics.targets(x).mean), None, 0
    if isinstance(propagation, Pathwise):
        n_paths = propagation.n_samples
        drawn = loop(propagation.functions(dynamics, np.random.default_rng([seed])), n_paths=n_paths)
    signals = []
    for is_output, names in ((True, joint.output_names), (False, controller.inputs_driven)):
        known, kind, recorded = (joint.output_names, 0, y) if is_output else (joint.input_names, 1, u)
        for name in names:
            i = known.index(name)
            mean = path[kind][0, first:, i]
            variance = None if drawn is None else variance_of_draws(mean, drawn[kind][:, first:, i])
            noise_variance = float(joint.noise_variance[i]) if is_output else 0.0
            signals.append(LoopSignal(name, is_output, recorded[first:, i], mean, variance, noise_variance))
    return LoopComparison(first, n_paths, time[first:], tuple(signals))


def variance_of_draws(mean: Array, drawn: Array) -> Array:
    """Variance (n,) of the normal distribution about the mean whose 95 % band holds 95 % of the draws (P, n).

    Draws that have diverged are outside of every band. A few draws that go far away count as little as that; the mean
    of their squares would be nothing but them.
    """
    distance = np.abs(drawn - mean)
    half = np.quantile(np.where(np.isnan(distance), np.inf, distance), 0.95, axis=0, method="higher")
    return np.where(np.isnan(mean), np.nan, (half / Z_95) ** 2)
