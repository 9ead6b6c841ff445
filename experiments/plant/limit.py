"""The limit of one-step prediction of a simulated plant, or why it is not known."""

import math
from typing import NamedTuple

import numpy as np

from experiments.plant.plant import Plant
from simulators import SimulationError, Trajectory, predict_one_step


class Limit(NamedTuple):
    """Predictions of all samples by a filter that knows the equations and the noise of the plant.

    It is fed with measured outputs and inputs, as every model is; see
    `simulators.predict_one_step`.
    """

    mean: np.ndarray | None  # (n, n_y) one step ahead; None if it is not known
    sampling_time: float = math.nan  # s, from one of these samples to the next
    reason: str = ""  # why it is not known; empty otherwise


LIMIT_OF_RECORDS = Limit(None, reason="the true equations of a record are not known")
LIMIT_OF_PART = Limit(None, reason="the run is not complete")
LIMIT_OF_NOTHING = Limit(None, reason="there are no samples after the stream")
LIMIT_NOT_WANTED = Limit(None, reason="limit=false")


def find_limit(plant: Plant, trajectory: Trajectory, *, transient: int = 0) -> Limit:
    """Return the limit of one-step prediction in a whole simulation of a plant.

    Parameters
    ----------
    plant : Plant
    trajectory : Trajectory
        Simulation of the plant, complete, with its transient.
    transient : int
        Samples of the transient.
    """
    n_samples, n_outputs = trajectory.output.shape
    faults = plant.measurement.faults(trajectory.seed, n_samples, n_outputs)
    if faults is not None and faults.are_any:
        return Limit(None, reason="the errors of sensors that fail are not Gaussian")
    std = plant.measurement_std(trajectory, transient=transient)
    try:
        mean = predict_one_step(trajectory, std, driven=plant.driven).mean
    except SimulationError as error:
        return Limit(None, reason=str(error))
    return Limit(mean, float(plant.system.dt))
