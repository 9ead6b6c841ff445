"""Grey-box identification: physical parameters of a system from measured records, by output
error.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.errors import SimulationError, UserError
from simulators.interpolation import Interpolation
from simulators.runge_kutta import DivergenceError, integrate
from simulators.settings import Array, check_ascending, check_count, refuse
from simulators.simulation import read_input, read_start
from simulators.system import System, is_refusal, names_of

Measured = tuple[Array, Array]  # input (n, n_u) and output (n, n_y)


FAILED = 1e3  # scaled residual of a simulation that failed


@dataclass(frozen=True)
class FreeParameter:
    """A field of a system that is estimated between two bounds.

    Raises
    ------
    ValueError
        If the bounds are not finite and ascending, or not positive for a logarithmic parameter.
    """

    name: str  # name of the field
    lower: float  # unit of the field
    upper: float  # unit of the field
    logarithmic: bool = False  # estimated on a logarithmic scale, for positive parameters
    own: bool = False  # every record has its own value, for example an initial state

    def __post_init__(self) -> None:
        check_ascending(self, "lower", "upper")
        if self.logarithmic and self.lower <= 0:
            raise refuse(self, "lower", "a number > 0 for a logarithmic parameter")

    def value(self, share: float) -> float:
        """Return the value at a share of the range, 0 at the lower and 1 at the upper bound."""
        if self.logarithmic:
            return float(self.lower * (self.upper / self.lower) ** share)
        return float(self.lower + (self.upper - self.lower) * share)

    def share(self, value: float) -> float:
        """Return the share of the range at which a value lies; the inverse of `value`."""
        if self.logarithmic:
            return float(np.log(value / self.lower) / np.log(self.upper / self.lower))
        return float((value - self.lower) / (self.upper - self.lower))

    def slope(self, share: float) -> float:
        """Return the derivative of `value` with respect to the share."""
        if self.logarithmic:
            return float(self.value(share) * np.log(self.upper / self.lower))
        return float(self.upper - self.lower)


@dataclass(frozen=True, eq=False)
class OutputError:
    """Errors of the simulation as a function of the free parameters, each given as a share of its
    range.
    """

    system: System
    records: tuple[Measured, ...]
    free: tuple[FreeParameter, ...]
    window: int
    interpolation: Interpolation
    counts: Counter[str] = field(default_factory=Counter)  # evaluations, refused, diverged

    @cached_property
    def columns(self) -> list[tuple[FreeParameter, int | None]]:
        """Parameter and record of each column; None stands for all records."""
        return [(p, r) for p in self.free for r in (range(len(self.records)) if p.own else (None,))]

    @cached_property
    def scale(self) -> Array:
        """Standard deviations (n_y,) of the measured outputs; 1 for a constant one."""
        spread = np.concatenate([y[self.window :] for _, y in self.records]).std(axis=0)
        return np.where(spread > 0, spread, 1.0)

    def values(self, shares: Array) -> Array:
        """Return the values (n_p,) of the columns."""
        return np.array(
            [p.value(share) for (p, _), share in zip(self.columns, shares, strict=True)]
        )

    def systems(self, shares: Array) -> tuple[System, ...]:
        """Return the system of each record; ValueError where it refuses its settings."""
        settings: list[dict[str, Any]] = [{} for _ in self.records]
        for (p, r), value in zip(self.columns, self.values(shares).tolist(), strict=True):
            for own in settings if r is None else settings[r : r + 1]:
                own[p.name] = value
        return tuple(replace(self.system, **own) for own in settings)

    def simulate(self, shares: Array) -> list[Array] | None:
        """Return the outputs (n, n_y) of every record without noise; None where that fails."""
        self.counts["evaluations"] += 1
        try:
            systems = self.systems(shares)
        except ValueError as error:  # for example a level above the brim
            if not is_refusal(error, self.system):
                raise
            self.counts["refused"] += 1
            return None
        outputs = []
        try:
            for system, (u, _) in zip(systems, self.records, strict=True):
                silent = np.zeros((len(u), len(system.noises)))
                path = integrate(system, system.initial_state(), u, silent, self.interpolation)
                outputs.append(np.array(system.output(path.states), dtype=np.float64))
        except DivergenceError:
            self.counts["diverged"] += 1
            return None
        return outputs

    def errors(self, shares: Array) -> Array:
        """Return the scaled errors of all records behind each other; FAILED where the simulation
        fails.
        """
        simulated = self.simulate(shares)
        if simulated is None:
            return np.full(sum(y[self.window :].size for _, y in self.records), FAILED)
        pairs = zip(simulated, self.records, strict=True)
        return np.concatenate(
            [((yhat - y)[self.window :] / self.scale).ravel() for yhat, (_, y) in pairs]
        )


def output_error(
    system: System,
    records: Sequence[tuple[ArrayLike, ArrayLike]],
    free: Sequence[FreeParameter],
    window: int,
    interpolation: Interpolation,
) -> OutputError:
    """Check and combine what `simulators.fit_output_error` is given.

    Raises
    ------
    ValueError
        As stated there.
    """
    _check_free(system, free)
    measured = tuple(
        _read_record(system, *record, f"record {r}") for r, record in enumerate(records)
    )
    problem = OutputError(system, measured, tuple(free), window, interpolation)
    lengths = [len(y) for _, y in measured]
    n_errors = sum(n - window for n in lengths) * len(system.outputs)
    if not 0 <= window < min(lengths, default=0) or n_errors <= len(problem.columns):
        raise UserError(
            f"fit_output_error(window={window}): expected more errors after the window than the {len(problem.columns)} "
            f"free parameters, one at least in each record, got records of {lengths} samples; give longer records"
        )
    return problem


def _check_free(system: System, free: Sequence[FreeParameter]) -> None:
    """Check that every free parameter is a field of its own and starts between its bounds."""
    names = [p.name for p in free]
    values = {
        f.name: getattr(system, f.name) for f in fields(system) if f.name not in ("dt", "substeps")
    }
    known = [
        name
        for name, value in values.items()
        if isinstance(value, float | int) and not isinstance(value, bool)
    ]
    if not names or len(set(names)) < len(names) or not set(names) <= set(known):
        raise UserError(
            f"fit_output_error: expected parameters among {known}, each once, got {names}; change free"
        )
    for p in free:
        value = values[p.name]
        if not p.lower <= value <= p.upper:
            start = f"{p.name} of {type(system).__name__} to start from {p.lower:g} to {p.upper:g}"
            raise UserError(
                f"fit_output_error: expected {start}, got {value!r}; change it or its bounds"
            )


def _read_record(system: System, input: ArrayLike, output: ArrayLike, title: str) -> Measured:
    """Return a record as arrays; the system can be simulated with its input."""
    y = np.array(output, dtype=np.float64)
    y = y[:, np.newaxis] if y.ndim == 1 and len(system.outputs) == 1 else y
    if y.ndim != 2 or y.shape[1] != len(system.outputs) or not np.all(np.isfinite(y)):
        raise UserError(
            f"fit_output_error: expected finite outputs {names_of(system.outputs)} as columns in {title}, got shape "
            f"{y.shape} with {np.count_nonzero(~np.isfinite(y))} values that are not finite; cut or repair it"
        )
    u = read_input(system, input, len(y))
    read_start(system, None, u)
    return u, y


AT_BOUND = 1e-6  # a parameter this close to a bound, in parts of the range, counts as on it


STEP = 1e-5  # of the forward differences on the way, relative to the share of the range


LAST_STEP = 1e-4  # of the central differences that give the covariance


UNDETERMINED = 1e-6  # relative singular value below which the records do not determine a direction


@dataclass(frozen=True, eq=False)
class GreyBoxFit:
    """Estimated parameters and how well they are known.

    The columns are the free parameters; one with an own value per record has as many columns as
    there are records, named `initial_lower[0]`, `initial_lower[1]`, ...
    """

    systems: tuple[System, ...]  # one per record; they differ in the own parameters only
    names: tuple[str, ...]  # (n_p,) names of the columns
    values: Array  # (n_p,) estimates
    covariance: Array  # (n_p, n_p); NaN for a parameter on a bound, inf if undetermined
    rmse: Array  # (n_y,) free-run error on the records, unit of the output
    scaled_rmse_of_runs: Array  # one per start that could be simulated
    at_bounds: tuple[str, ...]  # columns that ended on a bound
    n_evaluations: int  # simulations of all records
    n_refused: int  # evaluations whose settings the system refused
    n_diverged: int  # evaluations that diverged
    message: str  # why the best run ended

    @property
    def system(self) -> System:
        """The system of the first record."""
        return self.systems[0]

    @property
    def std(self) -> Array:
        """Standard errors (n_p,) of the estimates."""
        return np.sqrt(np.diag(self.covariance))

    def finite_covariance(self, free: Sequence[FreeParameter], record: int = 0) -> Array:
        """Covariance (n_p, n_p) of parameters, with the own values of a record, without NaN and
        inf.

        A parameter on a bound counts as known, an undetermined one as uniform between its bounds.
        """
        at = [self.names.index(f"{p.name}[{record}]" if p.own else p.name) for p in free]
        found = self.covariance[np.ix_(at, at)]
        uniform = np.diag([(p.upper - p.lower) ** 2 / 12 for p in free])
        return np.where(np.isinf(found), uniform, np.nan_to_num(found))


def fit_output_error(
    system: System,
    records: Sequence[tuple[ArrayLike, ArrayLike]],
    free: Sequence[FreeParameter],
    *,
    window: int = 0,
    interpolation: Interpolation = Interpolation.held,
    starts: int = 10,
    seed: int = 0,
) -> GreyBoxFit:
    """Estimate parameters of a system so that its simulation reproduces measured outputs.

    ::

        minimise  sum over records r, samples k >= window, outputs i  ((y_rki - yhat_rki(theta)) /
        s_i)^2

    where yhat is the simulation without noise from the initial state that theta states (output
    error, free run) and s_i the standard deviation of output i. Trust-region least squares, from
    the system's own values and from random ones between the bounds; the best run counts.

    Parameters
    ----------
    system : System
        Structure, fixed parameters, sampling, and the first start.
    records : sequence of (input, output)
        Measured records at the `dt` of the system: (n, n_u) and (n, n_y).
    free : sequence of FreeParameter
        What is estimated; initial states are fields like others.
    window : int, optional
        Samples at the start of every record whose errors do not count.
    interpolation : Interpolation, optional
        The input between its samples.
    starts : int, optional
        Number of runs.
    seed : int, optional
        Seed of the random starts; a larger number of starts begins with the same ones.

    Returns
    -------
    GreyBoxFit
        Estimates, their covariance ``s^2 (J' J)^-1`` with the sensitivities J, and counts. The
        covariance holds for white errors of equal variance after scaling; a model that is too
        simple leaves correlated errors and is less certain than it says. The variance of a
        parameter that the records do not determine, alone or together with others, is infinite.

    Raises
    ------
    ValueError
        If a record does not fit the system or is not finite, a parameter is unknown, repeated or
        starts outside its bounds, or there are fewer errors than parameters.
    ArithmeticError
        If no start could be simulated.

    Notes
    -----
    L. Ljung, System Identification, 2nd ed., sections 5.1 (output error) and 9.4 (covariance).

    Examples
    --------
    >>> from simulators import simulate
    >>> from simulators.systems.cascaded_tanks import CascadedTanks
    >>> u = 3 + np.sin(np.arange(100) / 7)
    >>> y = simulate(CascadedTanks(pump_gain=0.05), u).output
    >>> fit = fit_output_error(CascadedTanks(), [(u, y)], [FreeParameter("pump_gain", 0.01, 0.1)], starts=2)
    >>> round(fit.system.pump_gain, 6)
    0.05
    """
    from scipy.optimize import least_squares

    problem = output_error(system, records, free, window, interpolation)
    options = {"bounds": (0.0, 1.0), "x_scale": "jac", "diff_step": STEP}
    shares = _draw_starts(problem, starts, seed)
    runs = [
        least_squares(problem.errors, share, **options)
        for share in shares
        if problem.simulate(share) is not None
    ]
    if not runs:
        raise SimulationError(
            f"fit_output_error: none of {starts} starts of {type(system).__name__} could be simulated; narrow the "
            "bounds, use more substeps or start elsewhere"
        )
    return _summarise(problem, min(runs, key=lambda run: run.cost), [run.cost for run in runs])


def output_sensitivities(
    system: System,
    input: Array,
    free: Sequence[FreeParameter],
    interpolation: Interpolation = Interpolation.held,
) -> Array:
    """Return the derivatives (n, n_y, n_p) of the simulated outputs by parameters, by central
    differences.

    Parameters
    ----------
    system, interpolation
        As of `fit_output_error`.
    input : (n, n_u)
    free : sequence of FreeParameter
        The differences stay between their bounds.

    Raises
    ------
    ValueError
        If the simulation fails beside the values of the system.
    """
    problem = OutputError(system, ((input, input),), tuple(free), 0, interpolation)
    shares = np.array([p.share(getattr(system, p.name)) for p in free])
    found = []
    for i, step in enumerate(LAST_STEP * np.eye(len(free))):
        low = np.clip(shares - step, 0.0, 1.0)
        high = np.clip(shares + step, 0.0, 1.0)
        below = problem.simulate(low)
        above = problem.simulate(high)
        if below is None or above is None:
            raise UserError(
                f"output_sensitivities: no simulation beside this {free[i].name}; change its bounds"
            )
        found.append((above[0] - below[0]) / (free[i].value(high[i]) - free[i].value(low[i])))
    return np.stack(found, axis=2)


def output_variance(
    system: System,
    input: Array,
    free: Sequence[FreeParameter],
    covariance: Array,
    *,
    start: tuple[GreyBoxFit, Array] | None = None,
    interpolation: Interpolation = Interpolation.held,
) -> Array:
    """Return the variances (n, n_y) ``J C J'`` of the simulated outputs, with the sensitivities J.

    Parameters
    ----------
    system, input, free, interpolation
        As of `output_sensitivities`; parameters of the records come last.
    covariance : (n_p, n_p)
        Of all of them; with `start` of those that the records share.
    start : (GreyBoxFit, array), optional
        The own parameters were estimated, with the shared ones held, from first outputs (k, n_y):
        with other shared ones they would have been others. They move with these by least squares,
        and have the variance of their fit.
    """
    J = output_sensitivities(system, input, free, interpolation)
    if start is not None:
        (fit, y), n = start, len(covariance)
        spread = y.std(axis=0)
        first = (J[: len(y)] / np.where(spread > 0, spread, 1.0)[:, np.newaxis]).reshape(
            -1, len(free)
        )
        moves = first[:, n:] * np.isfinite(
            np.diag(fit.covariance)
        )  # not on a bound, and determined
        gain = np.vstack([np.eye(n), -np.linalg.lstsq(moves, first[:, :n], rcond=UNDETERMINED)[0]])
        covariance = gain @ covariance @ gain.T
        covariance[n:, n:] += fit.finite_covariance(free[n:])
    return np.maximum(np.sum(J @ covariance * J, axis=2), 0.0)


def _draw_starts(problem: OutputError, starts: int, seed: int) -> Array:
    """Return the shares (starts, n_p) of the first runs: the system's own values, then random
    ones.
    """
    check_count("starts", starts)
    own = [p.share(getattr(problem.system, p.name)) for p, _ in problem.columns]
    random = np.random.default_rng(seed).uniform(size=(starts - 1, len(own)))
    return np.vstack([np.clip(own, 1e-3, 1 - 1e-3), random])


def _summarise(problem: OutputError, best: Any, costs: list[float]) -> GreyBoxFit:
    """Turn the best run of `least_squares` into a fit."""
    inside = np.minimum(best.x, 1.0 - best.x) > AT_BOUND
    names = tuple(p.name if r is None else f"{p.name}[{r}]" for p, r in problem.columns)
    errors = best.fun.reshape(-1, len(problem.scale)) * problem.scale
    return GreyBoxFit(
        systems=problem.systems(best.x),
        names=names,
        values=problem.values(best.x),
        covariance=_estimate_covariance(problem, best, inside),
        rmse=np.sqrt(np.mean(errors**2, axis=0)),
        scaled_rmse_of_runs=np.sqrt(2.0 * np.array(costs) / len(best.fun)),
        at_bounds=tuple(name for name, free in zip(names, inside, strict=True) if not free),
        n_evaluations=problem.counts["evaluations"],
        n_refused=problem.counts["refused"],
        n_diverged=problem.counts["diverged"],
        message=best.message,
    )


def _estimate_covariance(problem: OutputError, best: Any, inside: NDArray[np.bool_]) -> Array:
    """Return s^2 (J' J)^-1 (n_p, n_p) of the parameters that are not on a bound, NaN for the
    others.
    """
    from scipy.optimize import least_squares

    options = {
        "bounds": (0.0, 1.0),
        "jac": "3-point",
        "diff_step": LAST_STEP,
        "max_nfev": 1,
        "method": "dogbox",
    }
    slopes = np.array(
        [p.slope(share) for (p, _), share in zip(problem.columns, best.x, strict=True)]
    )
    J = (least_squares(problem.errors, best.x, **options).jac / slopes)[:, inside]
    lengths = np.linalg.norm(J, axis=0)
    lengths[lengths == 0] = 1.0
    _, s, Vt = np.linalg.svd(J / lengths, full_matrices=False)
    known = s > UNDETERMINED * max(s, default=0.0)
    root = Vt[known].T / s[known] / lengths[:, np.newaxis]
    inner = 2.0 * best.cost / (len(best.fun) - np.count_nonzero(known)) * root @ root.T
    undetermined = np.linalg.norm(Vt[~known], axis=0) > np.sqrt(UNDETERMINED)
    inner[undetermined, undetermined] = np.inf
    covariance = np.full(inside.shape * 2, np.nan)
    covariance[np.ix_(inside, inside)] = inner
    return covariance
