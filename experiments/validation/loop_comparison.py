"""The loop around the model beside the loop around the plant."""

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.validation.compatibility import check_loop
from experiments.validation.loop import close_loop
from experiments.validation.material import Material
from sysid import JointModel, Pathwise, Propagation, validate
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.validation import Z_95

Array: TypeAlias = NDArray[np.float64]


class LoopComparison(NamedTuple):
    """Signals of both loops after the window; nan from where the loop around the model diverged."""

    window: int  # samples before the first
    n_paths: int  # functions of the model; 0: its mean alone
    time: Array  # (n,) s
    measured: Array  # (n, m) in the loop around the plant, output units
    mean: Array  # (n, m) around the model
    variance: Array | None  # (n, m) over its functions, latent
    applied: Array  # (n, d) inputs that the controller sets, around the plant, input units
    commanded: Array  # (n, d) around the model
    commanded_variance: Array | None  # (n, d)
    driven: tuple[str, ...]  # names of these inputs

    @property
    def n_lost(self) -> int:
        """Samples without a prediction, because the loop diverged."""
        return int(np.isnan(self.mean).any(axis=1).sum())


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
    plant = material.plant
    if plant is None or plant.is_open_loop:
        return None
    check_loop(joint, plant.controller)
    dynamics, record = Dynamics(joint), material.records[0]
    time = record["time"].values
    y = np.stack([record[name].values for name in joint.output_names], axis=1)
    u = np.stack([record[name].values for name in joint.input_names], axis=1)
    first = max(window, joint.models[0].narx.max_lag, 1)
    columns = [joint.input_names.index(name) for name in plant.controller.inputs_driven]
    loop = partial(close_loop, dynamics, controller=plant.controller, time=time, outputs=y, inputs=u, window=first)
    path, drawn = loop(lambda x: dynamics.targets(x).mean), None
    if isinstance(propagation, Pathwise):
        functions = propagation.functions(dynamics, np.random.default_rng([seed]))
        drawn = loop(functions, n_paths=propagation.n_samples)
    return LoopComparison(
        window=first,
        n_paths=0 if drawn is None else propagation.n_samples,  # type: ignore[attr-defined]
        time=time[first:],
        measured=y[first:],
        mean=path.outputs[0, first:],
        variance=None if drawn is None else _about(path.outputs[0, first:], drawn.outputs[:, first:]),
        applied=u[first:, columns],
        commanded=path.inputs[0, first:, columns].T,
        commanded_variance=None
        if drawn is None
        else _about(path.inputs[0, first:, columns].T, drawn.inputs[:, first:, columns]),
        driven=plant.controller.inputs_driven,
    )


def _about(mean: Array, drawn: Array) -> Array:
    """Variance (n, m) of the normal distribution about the mean whose 95 % band holds 95 % of the draws (P, n, m).

    Draws that have diverged are outside of every band. A few draws that go far away count as little as that; the mean
    of their squares would be nothing but them.
    """
    distance = np.abs(drawn - mean)
    half = np.quantile(np.where(np.isnan(distance), np.inf, distance), 0.95, axis=0, method="higher")
    return np.where(np.isnan(mean), np.nan, (half / Z_95) ** 2)


def loop_scores(loop: LoopComparison, joint: JointModel) -> dict[str, Any]:
    """Measures of the loop around the model against the loop around the plant, by signal.

    The noise of the plant is none that the model could know: the measures also count what two loops around the same
    plant would differ by.
    """
    outputs = {
        name: validate(
            loop.measured[:, i],
            loop.mean[:, i],
            None if loop.variance is None else loop.variance[:, i],
            float(joint.noise_variance[i]),
            window=loop.window,
        ).to_dict()
        for i, name in enumerate(joint.output_names)
    }
    inputs = {
        name: validate(loop.applied[:, i], loop.commanded[:, i], window=loop.window).to_dict()
        for i, name in enumerate(loop.driven)
    }
    return {"n_paths": loop.n_paths, "outputs": outputs, "inputs": inputs}
