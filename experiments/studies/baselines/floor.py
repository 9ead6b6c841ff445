"""What no model of the Building can be expected to beat: its own equations, told all that was measured."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.linalg import expm

from experiments.studies.tasks.building import NARX
from experiments.studies.tasks.task import Rows
from simulators import Building

SETTLING = 200  # samples that the filter needs to find the temperatures that nobody measures
UNKNOWN = np.array([0.0, 10.0, 20.0])  # K, standard deviations of zone, wall, radiator at the start


class Floor(NamedTuple):
    """Lowest expected one-step SMSE on the test rows."""

    whole_past: float  # of a prediction from all earlier outputs and inputs: reached by the filter, measured
    true_state: float  # of one from the true state: its expectation, variance of the noise of one sample over Var(y)


def floors_of(store: xr.Dataset) -> dict[str, float]:
    """SMSE by dataset below which nothing was shown to be reachable, medians over the seeds of a store of baselines.

    Of the Building the floor of the whole past; of the tables in file order the best batch model on all rows.
    """
    median = store["smse"].median("seed")
    tables = [name for name in ("Boston", "Concrete") if name in store["dataset"].values]
    floors = {name: float(median.sel(dataset=name).min()) for name in tables}
    if "Building" in store["dataset"].values:
        floors["Building"] = float(store["floor_whole_past"].sel(dataset="Building").median("seed"))
    return {name: floor for name, floor in floors.items() if np.isfinite(floor)}


class Transition(NamedTuple):
    """``x[k+1] = A x[k] + b + w``, ``w ~ N(0, Q)``, for every sample."""

    matrix: np.ndarray  # (n, 3, 3)
    offset: np.ndarray  # (n, 3) K
    covariance: np.ndarray  # (n, 3, 3) K^2


def transition(system: Building, inputs: np.ndarray) -> Transition:
    """Exact for held inputs (n, 2) and noise: ``exp([[J, I], [0, 0]] dt)`` with ``J = df/dx``, which has no x in it."""
    zero, n = np.zeros(3), len(inputs)
    block = np.zeros((n, 6, 6))
    block[:, :3, :3] = [system.jacobian(zero, u)[0] for u in inputs]
    block[:, :3, 3:] = np.eye(3)
    rates = np.array([system.derivative(0.0, zero, u, zero) for u in inputs])
    whole = expm(block * system.dt)
    integral = whole[:, :3, 3:]
    noise = np.diag(system.noise_std() ** 2)
    return Transition(
        whole[:, :3, :3], np.einsum("nij,nj->ni", integral, rates), integral @ noise @ integral.transpose(0, 2, 1)
    )


def floor(test: Rows) -> Floor:
    """Floors on consecutive test rows of the Building, by the Kalman filter of the true plant.

    Given the flow the building is linear in its temperatures, so that the filter with the true parameters is the best
    predictor from all earlier measurements (Kalman, 1960); models of three lags know less. Process noise only.
    """
    lag = {name: test.inputs[:, i] for i, name in enumerate(NARX.feature_names)}
    output = lag["zone_temperature[k-1]"]
    inputs = np.column_stack([lag["ambient_temperature[k-1]"], lag["mass_flow[k-1]"]])
    moves = transition(Building(), inputs)
    error = output + test.targets - filtered(moves, output)
    variance = float(np.var(test.targets))
    return Floor(
        whole_past=float(np.mean(error[SETTLING:] ** 2)) / variance,
        true_state=float(np.mean(moves.covariance[:, 0, 0])) / variance,
    )


def filtered(moves: Transition, output: np.ndarray) -> np.ndarray:
    """Zone temperature (n,) predicted for the sample after each of the exactly measured ones (n,)."""
    x, P = np.full(3, output[0]), np.diag(UNKNOWN**2)
    predicted = np.empty(len(output))
    for k, (A, b, Q) in enumerate(zip(*moves, strict=True)):
        if P[0, 0] > 0:
            gain = P[:, 0] / P[0, 0]
            x, P = x + gain * (output[k] - x[0]), P - np.outer(gain, P[0])
        x, P = A @ x + b, A @ P @ A.T + Q
        predicted[k] = x[0]
    return predicted
