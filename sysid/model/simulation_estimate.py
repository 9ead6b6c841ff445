"""What the errors of a simulation say about the function of a model, beside those of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from sysid.arrays import Array
from sysid.model.gradient import Differentiable, gradient_of, weights_of
from sysid.model.local_error import SimulatedErrors
from sysid.model.mean_map import (
    AFFINE_MEANS,
    MeanMap,
    map_to_points,
    mean_with_linear_part,
    simulate_paths,
)
from sysid.narx.lags import Target
from sysid.narx.record import Record, read_records

#: samples of a record that are simulated, at most: the last ones of its longest complete part
MAX_SAMPLES_OF_ESTIMATE = 4000
#: with fewer samples than this there is no estimate
MIN_SAMPLES_OF_ESTIMATE = 100
#: steps of the Gauss-Newton method, at most; with more, the linearisation about weights close to an
#: integrator makes bands too wide
MAX_STEPS = 3
#: the method has converged if a step lowers the criterion by less than this fraction
LEAST_DECREASE = 0.003
#: rows at which derivatives of all functions are in memory at a time
SLOPE_BLOCK = 200
#: shortest step, as a fraction of the full one
LEAST_STEP_FRACTION = 0.1
#: parts of the simulation whose sums of scores show the covariance of coloured errors
N_SCORE_BLOCKS = 30
#: a simulation has run away beyond the range of the output by this many ranges
MAX_RANGES_BEYOND = 10.0


class SimulationEstimate(NamedTuple):
    """Estimate of the q weights of `OnlineGP.whitened_functions` from errors of a simulation."""

    change: Array  # (q,) estimate minus posterior mean of the model
    root: Array  # R (q, r), R R' = covariance of the estimate
    simulated: SimulatedErrors  # with these weights


def estimates_by_simulation(
    models: Sequence[Differentiable], record: xr.Dataset
) -> dict[str, SimulationEstimate | None]:
    """Return `estimate_by_simulation` of models on a record, by their outputs."""
    return {model.narx.target: estimate_by_simulation(model, record) for model in models}


def estimate_by_simulation(model: Differentiable, record: xr.Dataset) -> SimulationEstimate | None:
    """Estimate the weights of a model again, from the errors of its simulation of a record.

    A model learns from errors of one step, as if noise entered the equation. Noise of a sensor
    enters the lags, too, which biases the estimate (errors in variables). With the inputs and the
    first lags of the record the model is simulated; its errors r have no noise among the lags.
    With their derivatives ``J = -dr/dw`` by the weights w, whose prior is N(0, I), steps of the
    Gauss-Newton method lower ``|r|^2 / s^2 + |w|^2``, ``s^2 = mean(r^2)``::

        H = J'J / s^2 + I,   w <- w + H^-1 (J'r / s^2 - w)

    J is that of the simulation with the present weights. With the J of the first simulation in all
    steps, the estimate stays biased where the function is nonlinear.

    Disturbances of the plant colour r. Therefore the covariance is ``H^-1 (B B' + I) H^-1``: the
    columns of B are sums of the scores ``J_k r_k / s^2`` over blocks of samples, within which r may
    be correlated (a sandwich covariance by blocks; White, Econometrica 50, 1982; Newey and West,
    Econometrica 55, 1987). Other outputs among the lags are measured ones.

    Parameters
    ----------
    model : Differentiable
    record : xarray.Dataset
        Its longest part without missing samples is simulated, the last `MAX_SAMPLES_OF_ESTIMATE`.

    Returns
    -------
    SimulationEstimate or None
        None: the model does not feed its output back, the record is too short, or the model cannot
        simulate it: the errors are larger than those of a constant. Or there are no errors.
    """
    simulation = _Simulation.of(model, record)
    if simulation is None:
        return None
    weights = model.gp.whitened_mean
    run = simulation.run(weights)
    if run is None or not 0 < np.mean(run.errors**2) <= np.var(simulation.measured):
        return None
    identity = np.eye(len(weights))
    estimate = weights
    J = simulation.sensitivities(run.regressors, estimate)
    for _ in range(MAX_STEPS):
        noise_variance = np.mean(run.errors**2)
        known = len(run.errors) + estimate @ estimate
        H = J.T @ J / noise_variance + identity
        step = np.linalg.solve(H, J.T @ run.errors / noise_variance - estimate)
        tried = _search(simulation, estimate, step, run.errors)
        if tried is None:
            break
        estimate, run, criterion = tried
        J = simulation.sensitivities(run.regressors, estimate)
        if known - criterion < LEAST_DECREASE * known:
            break
    noise_variance = np.mean(run.errors**2)
    H = J.T @ J / noise_variance + identity
    scores = J * (run.errors / noise_variance)[:, None]
    blocks = np.array_split(scores, N_SCORE_BLOCKS)
    sums = np.array([block.sum(axis=0) for block in blocks]).T
    root = np.linalg.solve(H, np.hstack([sums, identity]))
    simulated = SimulatedErrors(run.errors, run.regressors, simulation.inputs)
    return SimulationEstimate(estimate - weights, root, simulated)


def _search(
    simulation: _Simulation, weights: Array, step: Array, errors: Array
) -> tuple[Array, _Run, float] | None:
    """Return weights (q,) with a smaller criterion, their simulation, and the criterion.

    The step is halved until the simulation improves. None: it does not.
    """
    noise_variance = np.mean(errors**2)
    known = len(errors) + weights @ weights
    fraction = 1.0
    while fraction > LEAST_STEP_FRACTION:
        tried = weights + fraction * step
        run = simulation.run(tried)
        if run is not None:
            criterion = float(run.errors @ run.errors / noise_variance + tried @ tried)
            if criterion < known:
                return tried, run, criterion
        fraction /= 2
    return None


class _Run(NamedTuple):
    """Errors (n,) of a simulation, and its regressors (n, p)."""

    errors: Array
    regressors: Array


class _Simulation:
    """Simulation of a model on the samples of a record."""

    def __init__(self, model: Differentiable, signals: dict[str, Array]) -> None:
        narx = model.narx
        self.model = model
        self.n_past = narx.max_lag
        self.output = signals[narx.target]
        self.inputs = {name: signals[name] for name in narx.signals if name != narx.target}
        self.measured = self.output[self.n_past :]
        n = len(self.measured)
        columns = [
            signals[name][self.n_past - lag : self.n_past - lag + n] for name, lag in narx.features
        ]
        self.regressors = np.stack(columns, axis=1)
        own = [
            (column, lag) for column, (name, lag) in enumerate(narx.features) if name == narx.target
        ]
        self.own_columns = np.array([column for column, _ in own], dtype=np.intp)
        self.own_lags = np.array([lag for _, lag in own], dtype=np.intp)
        self.predicts_change = narx.predict is Target.change

    @classmethod
    def of(cls, model: Differentiable, record: xr.Dataset) -> _Simulation | None:
        """Return the simulation of a record; None if there is none."""
        narx = model.narx
        (read,) = read_records(record, narx.signals)
        part = _longest_complete_part(read)
        n = part.stop - part.start - narx.max_lag
        feeds_back = any(name == narx.target for name, _ in narx.features)
        if n < MIN_SAMPLES_OF_ESTIMATE or not feeds_back or not model.gp.n_points:
            return None
        if n > MAX_SAMPLES_OF_ESTIMATE:
            part = slice(part.stop - MAX_SAMPLES_OF_ESTIMATE - narx.max_lag, part.stop)
        return cls(model, {name: read.signals[name][part] for name in narx.signals})

    def run(self, weights: Array) -> _Run | None:
        """Simulate with the weights (q,) of the functions; None if the simulation runs away."""
        low, high = float(self.output.min()), float(self.output.max())
        beyond = MAX_RANGES_BEYOND * (high - low)
        bounds = (low - beyond, high + beyond)
        if type(self.model.mean) in AFFINE_MEANS:
            simulated = self._simulate(weights, bounds)
        else:
            simulated = self._simulate_interpreted(weights, bounds)
        if simulated is None:
            return None
        regressors = self.regressors.copy()
        for column, lag in zip(self.own_columns, self.own_lags, strict=True):
            regressors[:, column] = simulated[self.n_past - lag : len(simulated) - lag]
        return _Run(self.measured - simulated[self.n_past :], regressors)

    def _simulate(self, weights: Array, bounds: tuple[float, float]) -> Array | None:
        """Return the first measured outputs and the simulated ones; None if they leave the bounds.

        This is the compiled loop, for mean functions that are affine in the regressors.
        """
        model = self.model
        gp = model.gp
        coefficients, weights_of_points = gp.kernel_weights(weights)
        mean = mean_with_linear_part(model, coefficients)
        function = (mean, map_to_points(model), gp.point_kernel, gp.point_inputs, weights_of_points)
        mean_map = MeanMap.of(
            [function],
            model.narx,
            self.own_columns,
            self.n_past - self.own_lags,
            np.zeros_like(self.own_columns),
            np.array(model.limits, dtype=float)[:, None],
        )
        path = self.output[None, :, None].copy()
        low, high = np.array(bounds)[:, None]
        n_inside = np.empty(1, dtype=np.int64)
        simulate_paths(mean_map, low, high, self.regressors[None], path, n_inside)
        return path[0, :, 0] if n_inside[0] == len(self.measured) else None

    def _simulate_interpreted(self, weights: Array, bounds: tuple[float, float]) -> Array | None:
        """Return what `_simulate` returns, for mean functions that the compiled loop does not know.

        A value beyond the limits of the model is at the limit.
        """
        model = self.model
        low, high = bounds
        output = self.output.copy()
        for k in range(len(self.measured)):
            now = self.n_past + k
            row = self.regressors[k : k + 1].copy()
            row[0, self.own_columns] = output[now - self.own_lags]
            phi = model.gp.whitened_functions(model.scaling.transform(row))[:, 0]
            value = model.mean(row)[0] + weights @ phi
            if self.predicts_change:
                value += output[now - 1]
            output[now] = np.clip(value, *model.limits)
            if not low < output[now] < high:
                return None
        return output

    def sensitivities(self, regressors: Array, weights: Array) -> Array:
        """Return ``J = dy/dw`` (n, q) of a simulation with weights (q,) at its regressors (n, p).

        ``J[k] = phi[k] + sum_l a_l[k] J[k-l]`` with the derivatives a_l of the model by its lags.
        """
        model = self.model
        phi = model.gp.whitened_functions(model.scaling.transform(regressors)).T
        slopes = self._slopes(regressors, weights)
        n = len(regressors)
        n_lags = max(int(self.own_lags.max()), 1)
        of_lags = np.zeros((n, n_lags))
        for column, lag in zip(self.own_columns, self.own_lags, strict=True):
            of_lags[:, lag - 1] += slopes[:, column]
        if self.predicts_change:
            of_lags[:, 0] += 1.0
        lags = 1 + np.flatnonzero(np.any(of_lags, axis=0))
        J = np.zeros((n_lags + n, phi.shape[1]))
        for k in range(n):
            J[n_lags + k] = phi[k] + of_lags[k, lags - 1] @ J[n_lags + k - lags]
        return J[n_lags:]

    def _slopes(self, regressors: Array, weights: Array) -> Array:
        """Return the derivatives (n, p) of the function with weights (q,) by the features."""
        model = self.model
        slopes = gradient_of(model, weights_of(model), regressors)
        change = weights - model.gp.whitened_mean
        if not change.any():
            return slopes
        to_features = model.scaling.linear_part()
        for first in range(0, len(regressors), SLOPE_BLOCK):
            rows = slice(first, first + SLOPE_BLOCK)
            of_functions = model.gp.whitened_slopes(model.scaling.transform(regressors[rows]))
            slopes[rows] += np.einsum("nqp,q->np", of_functions, change) @ to_features
        return slopes


def _longest_complete_part(record: Record) -> slice:
    """Return the longest part of a record in which all signals are known."""
    is_known = np.concatenate([[False], ~record.missing(), [False]])
    edges = np.flatnonzero(np.diff(is_known.astype(np.int8))).reshape(-1, 2)
    if not len(edges):
        return slice(0, 0)
    begin, end = edges[np.argmax(edges[:, 1] - edges[:, 0])].tolist()
    return slice(begin, end)
