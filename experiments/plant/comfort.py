"""Heat and comfort of a simulated building, and the heat at a given discomfort."""

from collections.abc import Sequence

import numpy as np

from simulators import Building, ComfortSchedule, Trajectory
from simulators.units import SECONDS_PER_HOUR
from sysid.arrays import Array
from sysid.errors import UserError

JOULES_PER_KILOWATT_HOUR = 3.6e6


def heat_of_water(trajectory: Trajectory) -> Array:
    """Return the heat (n - 1,) that the water brings into a building in each sample [J].

    It is what the building stores and loses, without what the process noise brings in::

        Q_k = Cz dTz + Cw dTw + Cr dTr + dt (Tw - Ta)/Rw - dt (Cz w1 + Cw w2 + Cr w3)

    with the mean of the wall temperature Tw at the begin and at the end of the sample, during which
    it hardly bends. The flow and the temperature of the radiator change within a sample much
    faster; they are not needed.

    Parameters
    ----------
    trajectory : Trajectory
        Of n samples of a `simulators.Building`. Its outside temperature Ta is held.

    Raises
    ------
    ValueError
        If it is another system, or the wall changes.
    """
    system = trajectory.system
    if not isinstance(system, Building):
        raise UserError(
            f"heat_of_water: expected a trajectory of Building, got {type(system).__name__}; heat "
            "is known of buildings alone"
        )
    of_balance = {"zone_capacity", "wall_capacity", "radiator_capacity", "wall_resistance"}
    changed = sorted(of_balance & set(system.values_over(trajectory.time)))
    if changed:
        raise UserError(
            f"heat_of_water: expected capacities and a wall that stay the same, but {changed} "
            "change; change another parameter"
        )
    capacities = np.array([system.zone_capacity, system.wall_capacity, system.radiator_capacity])
    stored = np.diff(trajectory.state, axis=0) @ capacities
    wall = trajectory.state[:, 1]
    mean_wall = (wall[:-1] + wall[1:]) / 2
    outside = trajectory.input[:-1, 0]
    lost = system.dt * (mean_wall - outside) / system.wall_resistance
    of_noise = system.dt * (trajectory.noise[:-1] @ capacities)
    return np.asarray(stored + lost - of_noise)


def discomfort(trajectory: Trajectory, schedule: ComfortSchedule) -> Array:
    """Return the discomfort (n,) of each sample: degrees outside the comfort band, times dt [K h].

    ::

        d_k = dt (max(lower(t_k) - Tz_k, 0) + max(Tz_k - upper(t_k), 0))

    with the true temperature of the zone, not the measured one.

    Parameters
    ----------
    trajectory : Trajectory
        Of n samples of a system whose first output is a temperature.
    schedule : ComfortSchedule
        Its bounds; the set-point has no effect.
    """
    temperature = trajectory.noise_free_output[:, 0]
    below = np.maximum(schedule.lower(trajectory.time) - temperature, 0.0)
    above = np.maximum(temperature - schedule.upper(trajectory.time), 0.0)
    return np.asarray((below + above) * (trajectory.system.dt / SECONDS_PER_HOUR))


def heat_at(wanted: float, discomforts: Sequence[float], heats: Sequence[float]) -> float:
    """Return the heat of a controller at a given discomfort, by interpolation.

    The runs of the controller with more and less tightened limits are points (discomfort, heat).
    Those that another one beats in both are left out. Between the others, the heat is linear in the
    logarithm of the discomfort.

    Parameters
    ----------
    wanted : float
        Discomfort [K h], above 0.
    discomforts, heats : sequence of float
        Of each run, [K h] and in any unit of heat.

    Returns
    -------
    float
        Heat in the unit of `heats`; nan if the discomfort lies outside those of the points: nothing
        is extrapolated.

    Raises
    ------
    ValueError
        If the heats are not finite, or not as many as the discomforts, or a discomfort is not
        above 0.

    Examples
    --------
    >>> heat_at(20.0, [10.0, 40.0, 50.0], [3000.0, 2000.0, 2500.0])
    2500.0
    >>> heat_at(5.0, [10.0, 40.0], [3000.0, 2000.0])
    nan
    """
    x = np.asarray(discomforts, dtype=np.float64)
    y = np.asarray(heats, dtype=np.float64)
    are_points = x.shape == y.shape and x.ndim == 1 and len(x) > 0
    if not are_points or not np.isfinite([x, y]).all() or (x <= 0).any() or not wanted > 0:
        raise UserError(
            "heat_at: expected as many finite heats as discomforts, which are above 0 K h like the "
            f"wanted one, got {list(heats)} for {list(discomforts)} and {wanted}; leave out runs "
            "without discomfort"
        )
    order = np.lexsort((y, x))
    x = x[order]
    y = y[order]
    least_before = np.minimum.accumulate(np.concatenate([[np.inf], y[:-1]]))
    is_best = y < least_before
    x = x[is_best]
    y = y[is_best]
    if not x[0] <= wanted <= x[-1]:
        return float("nan")
    return float(np.interp(np.log(wanted), np.log(x), y))
