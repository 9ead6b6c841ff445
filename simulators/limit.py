"""The limit of one-step prediction: a Kalman filter that knows the equations and the noise.

It is fed with nothing but measured outputs and inputs. No model that is identified from them can be
expected to predict better.

The filter is the second-order divided-difference filter: an extended Kalman filter that takes its
derivatives from the simulation of a sample itself, by differences over the present uncertainty, in
square-root form. It needs no formula of a derivative, and so works for every system.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulators.errors import SimulationError, UserError
from simulators.interpolation import late_rows
from simulators.record import Trajectory
from simulators.runge_kutta import WORK_ROWS, kernel, problem_of, step_each
from simulators.settings import Array, read_real
from simulators.system import delays_of, names_of, read_vector

# Distance of the points of a difference, in standard deviations: for Gaussian states the square of
# the distance equals the kurtosis, which makes the error of the mean smallest.
POINT_DISTANCE = math.sqrt(3.0)
# Rounding error of a reading, relative to the largest one. It counts as measurement noise, so that
# a second output that repeats the first one without noise is no division by zero. It also keeps the
# filter stable with sensors without noise if the inverse of the plant is unstable.
READING_PRECISION = 1e-12


class OneStepPredictions(NamedTuple):
    """Predictions of the measured outputs of every sample from the samples before it."""

    mean: Array  # (n, n_y), unit of the outputs
    std: Array  # (n, n_y) standard deviation of the prediction errors, likewise


def predict_one_step(
    trajectory: Trajectory,
    measurement_std: ArrayLike,
    *,
    driven: Sequence[str] = (),
    noise: bool = True,
) -> OneStepPredictions:
    """Predict every sample of a simulation one step ahead, as well as anybody can.

    ::

        x[k+1] = F_k(x[k], w[k]),      w[k] ~ N(0, diag(noise_std^2))
        y[k]   = h(x[k]) + e[k],       e[k] ~ N(0, diag(measurement_std^2))
        mean[k] = E(y[k] | y[0], ..., y[k-1], u)

    F_k is the simulation of one sample: the same Runge-Kutta steps, input, parameters and limits,
    and process noise that is held over the sample. The distribution of x[k] is approximated by its
    mean m and its covariance S S', which are propagated along the columns c of S and of the noise,
    with d = sqrt(3) and z = (x, y)::

        mean of z      =  z(m) + sum_c (z(m + d c) - 2 z(m) + z(m - d c)) / (2 d^2)
        columns of z   =  (z(m + d c) - z(m - d c)) / (2 d),
                          sqrt(d^2 - 1) (z(m + d c) - 2 z(m) + z(m - d c)) / (2 d^2)

    The readings then correct x one after the other (Potter's form of the Kalman filter). For a
    system that is linear in state and noise for given inputs, such as the building, the prediction
    is exact. For other systems its mean is accurate to second order in the standard deviations.

    The filter starts from the initial state of the trajectory, which it knows. It does not use any
    other state, nor the noise.

    Parameters
    ----------
    trajectory : Trajectory
        Simulation, in open or closed loop; its inputs are known without error.
    measurement_std : float or (n_y,) array_like
        Standard deviation of the measurement noise, in the unit of the outputs
        (`MeasurementNoise.std_of`).
    driven : sequence of str, optional
        Inputs that a controller drives. They are held between samples, even if the other inputs are
        interpolated.
    noise : bool, optional
        Whether the simulation had process noise.

    Returns
    -------
    OneStepPredictions
        Mean and standard deviation (n, n_y). The prediction of sample k uses the outputs up to
        sample k - 1, and the inputs until sample k: of an input that is held, the values up to
        k - 1. That of sample 0 is the output of the initial state.

    Raises
    ------
    ValueError
        If a standard deviation is negative or not finite, or there is not one for each output; if
        an input that is driven does not exist.
    ArithmeticError
        If a state of the filter diverges.

    Notes
    -----
    M. Norgaard, N. K. Poulsen and O. Ravn, New developments in state estimation for nonlinear
    systems, Automatica 36 (2000), 1627-1638. B. D. O. Anderson and J. B. Moore, Optimal Filtering
    (1979), section 3.1 for the linear case, section 6.5 for the square root of Potter, section 8.2
    for the extended filter.

    Examples
    --------
    Without process noise the state stays known, and only the measurement noise is left:

    >>> from simulators import MeasurementNoise, VanDerPol, simulate
    >>> oscillator = VanDerPol(acceleration_noise_std=0.0)
    >>> record = simulate(oscillator, n_samples=50, measurement=MeasurementNoise(std=0.1))
    >>> limit = predict_one_step(record, 0.1)
    >>> bool((limit.mean == record.noise_free_output).all())
    True
    """
    system = trajectory.system
    problem = problem_of(system)
    variances = _read_variances(measurement_std, trajectory)
    n_x = len(system.states)
    std = read_vector(system, "noise_std")
    noisy = np.flatnonzero(std) if noise else np.empty(0, dtype=np.intp)
    n_columns = n_x + len(noisy)
    # The first point is the mean; the others lie on both sides of it along every column.
    points = np.repeat(trajectory.state[:1], 1 + 2 * n_columns, axis=0)
    noises = np.zeros((len(points), len(std)))
    for i, channel in enumerate(noisy, start=1 + n_x):
        noises[i, channel] = POINT_DISTANCE * std[channel]
        noises[i + n_columns, channel] = -POINT_DISTANCE * std[channel]
    mean = np.zeros(n_x + len(variances))
    columns = np.empty((len(mean), 2 * n_columns))
    work = np.empty((WORK_ROWS, n_x))
    predicted = np.empty_like(trajectory.output)
    predicted_variance = np.empty_like(predicted)
    predicted[0] = system.output(trajectory.state[0])
    predicted_variance[0] = 0.0
    last_row = len(problem.parameters) - 1
    for k, inputs in enumerate(inputs_between(trajectory, driven)):
        n_advanced = step_each(
            problem.address,
            k * problem.dt,
            problem.dt,
            problem.substeps,
            points,
            inputs,
            noises,
            problem.parameters[min(k, last_row)],
            problem.limits,
            work,
        )
        if n_advanced < len(points):
            raise SimulationError(
                f"{type(system).__name__}: the filter diverged between samples {k} and {k + 1}: "
                "the states are too uncertain for its differences; use more substeps, or less noise"
            )
        outputs = np.ascontiguousarray(system.output(points), dtype=np.float64)
        _update(
            points,
            outputs,
            trajectory.output[k + 1],
            variances,
            problem.limits,
            mean,
            columns,
            predicted[k + 1],
            predicted_variance[k + 1],
        )
    noise_variance = np.square(np.asarray(measurement_std, dtype=np.float64))
    return OneStepPredictions(predicted, np.sqrt(predicted_variance + noise_variance))


def _read_variances(measurement_std: ArrayLike, trajectory: Trajectory) -> Array:
    """Return the variances (n_y,) of the readings, rounding errors included."""
    system = trajectory.system
    names = names_of(system.outputs)
    given = read_real(measurement_std, "measurement_std").astype(np.float64)
    if given.shape not in ((), (len(names),)) or not (given >= 0).all() or np.isinf(given).any():
        raise UserError(
            f"measurement_std={measurement_std!r}: expected a finite number >= 0 for all outputs, "
            f"or one for each of {names}; change it"
        )
    rounding = READING_PRECISION * np.abs(trajectory.output).max(axis=0)
    return given**2 + rounding**2


def inputs_between(trajectory: Trajectory, driven: Sequence[str]) -> Iterator[Array]:
    """Yield the input from each sample of a simulation to the next, as it acts after its delay.

    Its shape is (1, n_u) if it is held, else (2 substeps + 1, n_u); see `Piece.split`.

    Parameters
    ----------
    trajectory : Trajectory
        Simulation with n samples.
    driven : sequence of str
        Inputs that a controller drives: they are held, even if the others are interpolated.

    Yields
    ------
    array
        The n - 1 inputs.

    Raises
    ------
    ValueError
        If an input that is driven does not exist.
    """
    system = trajectory.system
    u = trajectory.input
    names = names_of(system.inputs)
    if not set(driven) <= set(names):
        raise UserError(f"driven={list(driven)}: expected inputs among {names}; change driven")
    columns = [names.index(name) for name in driven]
    k = 0
    delays = delays_of(system)
    for piece in trajectory.interpolation.pieces(u, system.substeps, delays):
        for inputs in piece.split():
            if columns and piece.rows > 1:
                inputs = inputs.copy()
                inputs[:, columns] = u[late_rows(k, delays, columns), columns]
            yield inputs
            k += 1


@kernel
def _update(  # type: ignore[no-untyped-def]
    points,
    outputs,
    reading,
    variances,
    limits,
    mean,
    columns,
    predicted,
    predicted_variance,
):
    """Predict the outputs from the points of the filter, and correct the state by the readings.

    Parameters
    ----------
    points : (2 m + 1, n_x) array
        States at the end of the sample. Overwritten: states at the start of the next one.
    outputs : (2 m + 1, n_y) array
        Outputs of these states.
    reading, variances : (n_y,) array
        Measured outputs, and the variances of the measurement.
    limits : (2, n_x) array
        Lower and upper limits of the states.
    mean, columns : (n_x + n_y,), (n_x + n_y, 2 m) array
        Overwritten: buffers of mean and root of the covariance of states and outputs together.
    predicted, predicted_variance : (n_y,) array
        Written: mean and variance of the outputs, without measurement noise.
    """
    n_x = points.shape[1]
    _find_moments(points, mean[:n_x], columns[:n_x])
    _find_moments(outputs, mean[n_x:], columns[n_x:])
    for i in range(predicted.size):
        predicted[i] = mean[n_x + i]
        predicted_variance[i] = 0.0
        for c in range(columns.shape[1]):
            predicted_variance[i] += columns[n_x + i, c] ** 2
    for i in range(predicted.size):
        _correct(mean, columns, n_x + i, reading[i], variances[i])
    _make_triangular(columns[:n_x])
    _spread(mean, columns, limits, points)


@kernel
def _find_moments(points, mean, columns):  # type: ignore[no-untyped-def]
    """Write mean (n,) and columns (n, 2 m) of the covariance of quantities at 2 m + 1 points."""
    m = columns.shape[1] // 2
    d = POINT_DISTANCE
    for i in range(mean.size):
        centre = points[0, i]
        mean[i] = centre
        for c in range(m):
            ahead = points[1 + c, i]
            behind = points[1 + m + c, i]
            curvature = (ahead - 2.0 * centre + behind) / (2.0 * d * d)
            mean[i] += curvature
            columns[i, c] = (ahead - behind) / (2.0 * d)
            columns[i, m + c] = math.sqrt(d * d - 1.0) * curvature


@kernel
def _correct(mean, columns, row, reading, variance):  # type: ignore[no-untyped-def]
    """Condition a Gaussian on a reading of the quantity in one row, by Potter's formula.

    With the column f of this row of S::

        a = f' f + variance,   K = S f / a,   mean += K (reading - mean[row])
        S <- S - K f' / (1 + sqrt(variance / a))
    """
    n_columns = columns.shape[1]
    power = 0.0
    for c in range(n_columns):
        power += columns[row, c] ** 2
    if power == 0.0:
        return
    total = power + variance
    share = 1.0 / (1.0 + math.sqrt(variance / total))
    error = reading - mean[row]
    f = columns[row].copy()
    for i in range(mean.size):
        gain = 0.0
        for c in range(n_columns):
            gain += columns[i, c] * f[c]
        gain /= total
        mean[i] += gain * error
        for c in range(n_columns):
            columns[i, c] -= share * gain * f[c]


@kernel
def _make_triangular(root):  # type: ignore[no-untyped-def]
    """Make the square root S (n, m) of a covariance, m >= n, lower triangular.

    Householder reflections of its columns do not change S S'. Entries right of the diagonal keep
    values without meaning.
    """
    n = root.shape[0]
    for i in range(n):
        row = root[i, i:]
        power = 0.0
        for value in row:
            power += value * value
        if power == 0.0:
            continue
        norm = math.copysign(math.sqrt(power), row[0])
        row[0] += norm
        for j in range(i + 1, n):
            product = 0.0
            for c in range(row.size):
                product += root[j, i + c] * row[c]
            factor = product / (norm * row[0])
            for c in range(row.size):
                root[j, i + c] -= factor * row[c]
        row[0] = -norm


@kernel
def _spread(mean, root, limits, points):  # type: ignore[no-untyped-def]
    """Write the points of the next sample around the mean of the states, within their limits.

    The columns of the states come first; at the points of the noise the state is the mean.
    """
    n_x = points.shape[1]
    m = (points.shape[0] - 1) // 2
    for i in range(n_x):
        lower = limits[0, i]
        upper = limits[1, i]
        centre = min(max(mean[i], lower), upper)
        for row in range(points.shape[0]):
            points[row, i] = centre
        for c in range(i + 1):
            offset = POINT_DISTANCE * root[i, c]
            points[1 + c, i] = min(max(centre + offset, lower), upper)
            points[1 + m + c, i] = min(max(centre - offset, lower), upper)
