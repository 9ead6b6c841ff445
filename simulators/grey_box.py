"""Grey-box identification: physical parameters of a system from measured records.

The error that is minimised is that of the simulation (output error).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.errors import SimulationError, UserError
from simulators.interpolation import Interpolation, Piece
from simulators.runge_kutta import DivergenceError, follow_pieces, problem_of
from simulators.settings import Array, check_ascending, check_count, read_real, refuse
from simulators.simulation import read_input, read_start
from simulators.system import System, delays_of, is_refusal, names_of

Measured = tuple[Array, Array]  # input (n, n_u) and output (n, n_y)

# Scaled residual of a simulation that failed [-].
FAILED_RESIDUAL = 1e3
# A parameter counts as on a bound if it is closer to it than this fraction of its range [-].
BOUND_TOLERANCE = 1e-6
# Step of the forward differences during the estimation, as a fraction of the range [-].
FORWARD_DIFFERENCE_STEP = 1e-5
# Step of the central differences for the covariance, as a fraction of the range [-].
CENTRAL_DIFFERENCE_STEP = 1e-4
# Largest number of starts of one estimation.
MAX_ESTIMATION_STARTS = 10_000
# The records do not determine a direction whose singular value is below this fraction of the
# largest.
MIN_RELATIVE_SINGULAR_VALUE = 1e-6
# Most values of the linear inputs of a record between its samples that are kept from one simulation
# to the next: 128 MiB. Those of a longer record are computed piece by piece each time.
MAX_KEPT_INPUT_VALUES = 2**24


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
    logarithmic: bool = False  # whether it is estimated on a logarithmic scale; must be positive
    own: bool = False  # whether every record has its own value, for example an initial state

    def __post_init__(self) -> None:
        check_ascending(self, "lower", "upper")
        if self.logarithmic and self.lower <= 0:
            raise refuse(self, "lower", "a number > 0 for a logarithmic parameter")

    def value(self, share: float) -> float:
        """Return the value at a fraction of the range, 0 at the lower and 1 at the upper bound."""
        if self.logarithmic:
            return float(self.lower * (self.upper / self.lower) ** share)
        return float(self.lower + (self.upper - self.lower) * share)

    def share(self, value: float) -> float:
        """Return the fraction of the range at which a value lies; the inverse of `value`."""
        if self.logarithmic:
            return float(np.log(value / self.lower) / np.log(self.upper / self.lower))
        return float((value - self.lower) / (self.upper - self.lower))

    def slope(self, share: float) -> float:
        """Return the derivative of `value` with respect to the fraction of the range."""
        if self.logarithmic:
            return float(self.value(share) * np.log(self.upper / self.lower))
        return float(self.upper - self.lower)


@dataclass(frozen=True, eq=False)
class OutputError:
    """Errors of the simulation as a function of the free parameters.

    Each parameter is given as a fraction of its range.
    """

    system: System
    records: tuple[Measured, ...]
    free: tuple[FreeParameter, ...]
    window: int
    interpolation: Interpolation
    counts: Counter[str] = field(default_factory=Counter)  # evaluations, refused, diverged
    # input of each record between its samples, and the delays that it was computed for
    _between: dict[int, tuple[tuple[int, ...], tuple[Piece, ...]]] = field(
        default_factory=dict, init=False
    )

    @cached_property
    def columns(self) -> list[tuple[FreeParameter, int | None]]:
        """Parameter and record of each column; None stands for all records."""
        columns: list[tuple[FreeParameter, int | None]] = []
        for free in self.free:
            if free.own:
                columns += [(free, record) for record in range(len(self.records))]
            else:
                columns.append((free, None))
        return columns

    @cached_property
    def _outputs(self) -> Array:
        """Measured outputs (n, n_y) after the window, one record behind the other."""
        return np.concatenate([y[self.window :] for _, y in self.records])

    @cached_property
    def is_counted(self) -> NDArray[np.bool_]:
        """Which of these outputs (n, n_y) count: those that are not missing."""
        return np.isfinite(self._outputs)

    @cached_property
    def scale(self) -> Array:
        """Standard deviations (n_y,) of the measured outputs; 1 for a constant one."""
        spread = np.std(self._outputs, axis=0, where=self.is_counted)
        return np.where(spread > 0, spread, 1.0)

    def values(self, shares: Array) -> Array:
        """Return the values (n_p,) of the columns."""
        pairs = zip(self.columns, shares, strict=True)
        return np.array([free.value(share) for (free, _), share in pairs])

    def systems(self, shares: Array) -> tuple[System, ...]:
        """Return the system of each record; raise ValueError if it refuses its settings."""
        settings: list[dict[str, Any]] = [{} for _ in self.records]
        values = self.values(shares).tolist()
        for (free, record), value in zip(self.columns, values, strict=True):
            affected = settings if record is None else [settings[record]]
            for settings_of_record in affected:
                settings_of_record[free.name] = value
        return tuple(replace(self.system, **changed) for changed in settings)

    def simulate(self, shares: Array) -> list[Array] | None:
        """Return the outputs (n, n_y) of every record without noise; None if that fails."""
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
            for record, system in enumerate(systems):
                u, _ = self.records[record]
                no_noise = np.zeros((len(u), len(system.noises)))
                pieces = self._pieces(record, system)
                path = follow_pieces(problem_of(system), system.initial_state(), pieces, no_noise)
                outputs.append(np.array(system.output(path.states), dtype=np.float64))
        except DivergenceError:
            self.counts["diverged"] += 1
            return None
        return outputs

    def _pieces(self, record: int, system: System) -> Iterable[Piece]:
        """Return the input of a record between its samples.

        It is kept, since of the parameters only the delays change it.
        """
        delays = delays_of(system)
        u, _ = self.records[record]
        is_long = 2 * system.substeps * u.size > MAX_KEPT_INPUT_VALUES
        if is_long and self.interpolation is Interpolation.linear:
            return self.interpolation.pieces(u, system.substeps, delays)
        kept = self._between.get(record)
        if kept is None or kept[0] != delays:
            pieces = tuple(self.interpolation.pieces(u, system.substeps, delays))
            kept = delays, pieces
            self._between[record] = kept
        return kept[1]

    def errors(self, shares: Array) -> Array:
        """Return the scaled errors that count of all records, one record behind the other.

        If the simulation fails, all errors are `FAILED_RESIDUAL`.
        """
        simulated = self.simulate(shares)
        if simulated is None:
            return np.full(np.count_nonzero(self.is_counted), FAILED_RESIDUAL)
        errors = []
        for yhat, (_, y) in zip(simulated, self.records, strict=True):
            errors.append((yhat - y)[self.window :] / self.scale)
        return np.concatenate(errors)[self.is_counted]

    def rmse(self, errors: Array) -> Array:
        """Return the root mean square (n_y,) of scaled errors, in the units of the outputs."""
        squares = np.zeros(self.is_counted.shape)
        squares[self.is_counted] = errors
        squares = (squares * self.scale) ** 2
        return np.sqrt(np.sum(squares, axis=0) / np.count_nonzero(self.is_counted, axis=0))


def output_error(
    system: System,
    records: Sequence[tuple[ArrayLike, ArrayLike]],
    free: Sequence[FreeParameter],
    window: int,
    interpolation: Interpolation,
    *,
    skip_missing: bool = False,
) -> OutputError:
    """Check the arguments of `simulators.fit_output_error`, and return the problem to solve.

    Raises
    ------
    ValueError
        As in `simulators.fit_output_error`.
    """
    _check_free(system, free)
    measured = tuple(
        _read_record(system, *record, f"record {r}", skip_missing=skip_missing)
        for r, record in enumerate(records)
    )
    problem = OutputError(system, measured, tuple(free), window, Interpolation(interpolation))
    lengths = [len(y) for _, y in measured]
    n_free = len(problem.columns)
    is_within = 0 <= window < min(lengths, default=0)
    if not is_within or np.count_nonzero(problem.is_counted) <= n_free:
        raise UserError(
            f"fit_output_error(window={window}): expected more errors after the window than the "
            f"{n_free} free parameters, at least one in each record, got records of {lengths} "
            "samples; give longer records"
        )
    if not problem.is_counted.any(axis=0).all():
        raise UserError(
            f"fit_output_error: expected values of each of the outputs {names_of(system.outputs)}, "
            "one of them is missing in all samples; leave it out of the system, or record it"
        )
    return problem


def _check_free(system: System, free: Sequence[FreeParameter]) -> None:
    """Check that every free parameter is a number of the system and starts between its bounds."""
    names = [p.name for p in free]
    numbers = {}
    for settable in fields(system):
        value = getattr(system, settable.name)
        is_number = isinstance(value, float | int) and not isinstance(value, bool)
        if is_number and settable.name not in ("dt", "substeps"):
            numbers[settable.name] = value
    if not names or len(set(names)) < len(names) or not set(names) <= set(numbers):
        raise UserError(
            f"fit_output_error: expected parameters among {list(numbers)}, each once, "
            f"got {names}; change free"
        )
    for p in free:
        value = numbers[p.name]
        if not p.lower <= value <= p.upper:
            raise UserError(
                f"fit_output_error: expected {p.name} of {type(system).__name__} to start "
                f"from {p.lower:g} to {p.upper:g}, got {value!r}; change it or its bounds"
            )


def _read_record(
    system: System, input: ArrayLike, output: ArrayLike, title: str, *, skip_missing: bool
) -> Measured:
    """Return a record as arrays, after a check that the system can be simulated with its input.

    With `skip_missing` outputs may be missing (nan).
    """
    y = read_real(output, f"outputs of {title}").astype(np.float64)
    if y.ndim == 1 and len(system.outputs) == 1:
        y = y[:, np.newaxis]
    is_bad = np.isinf(y) if skip_missing else ~np.isfinite(y)
    if y.ndim != 2 or y.shape[1] != len(system.outputs) or is_bad.any():
        n_bad = np.count_nonzero(is_bad)
        raise UserError(
            f"fit_output_error: expected finite outputs {names_of(system.outputs)} as columns in "
            f"{title}, got shape {y.shape} with {n_bad} values that are not finite; "
            "cut or repair it"
        )
    u = read_input(system, input, len(y))
    read_start(system, None, u)
    return u, y


@dataclass(frozen=True, eq=False)
class GreyBoxFit:
    """Estimated parameters and their uncertainty.

    The columns are the free parameters. A parameter that has its own value in every record has one
    column for each record, named `initial_lower[0]`, `initial_lower[1]`, ...
    """

    systems: tuple[System, ...]  # one per record; they differ only in the own parameters
    names: tuple[str, ...]  # (n_p,) names of the columns
    values: Array  # (n_p,) estimates
    #: (n_p, n_p); NaN for a parameter on a bound, or if not asked for; inf if undetermined
    covariance: Array
    rmse: Array  # (n_y,) free-run error on the records, unit of the output
    scaled_rmse_of_runs: Array  # one value per start that could be simulated
    at_bounds: tuple[str, ...]  # columns that ended on a bound
    n_evaluations: int  # simulations of all records
    n_refused: int  # evaluations whose settings the system refused
    n_diverged: int  # evaluations that diverged
    message: str  # why the best run ended

    @property
    def system(self) -> System:
        """System of the first record."""
        return self.systems[0]

    @property
    def std(self) -> Array:
        """Standard errors (n_p,) of the estimates."""
        return np.sqrt(np.diag(self.covariance))

    def finite_covariance(self, free: Sequence[FreeParameter], record: int = 0) -> Array:
        """Return the covariance (n_p, n_p) of parameters without NaN and inf.

        A parameter on a bound counts as known, an undetermined one as uniform between its bounds.
        If a parameter has its own value in every record, the value of `record` is used.
        """
        names = [f"{p.name}[{record}]" if p.own else p.name for p in free]
        columns = [self.names.index(name) for name in names]
        covariance = self.covariance[np.ix_(columns, columns)]
        uniform = np.diag([(p.upper - p.lower) ** 2 / 12 for p in free])
        return np.where(np.isinf(covariance), uniform, np.nan_to_num(covariance))


def fit_output_error(
    system: System,
    records: Sequence[tuple[ArrayLike, ArrayLike]],
    free: Sequence[FreeParameter],
    *,
    window: int = 0,
    interpolation: Interpolation = Interpolation.held,
    starts: int = 10,
    seed: int = 0,
    skip_missing: bool = False,
    with_covariance: bool = True,
) -> GreyBoxFit:
    """Estimate parameters of a system so that its simulation reproduces measured outputs.

    ::

        minimise  sum_r sum_{k >= window} sum_i ((y_rki - yhat_rki(theta)) / s_i)^2

    over records r, samples k and outputs i, where yhat is the simulation without noise from the
    initial state in theta (output error, free run) and s_i the standard deviation of output i.
    Trust-region least squares runs from the system's own values and from random ones between the
    bounds; the best run is taken.

    Parameters
    ----------
    system : System
        Structure, fixed parameters, sampling, and the first start.
    records : sequence of (input, output)
        Measured records at the `dt` of the system: (n, n_u) and (n, n_y).
    free : sequence of FreeParameter
        Parameters to estimate; initial states are fields like others.
    window : int, optional
        Samples at the start of every record whose errors do not count.
    interpolation : Interpolation, optional
        The input between its samples.
    starts : int, optional
        Number of runs.
    seed : int, optional
        Seed of the random starts; a larger number of starts begins with the same ones.
    skip_missing : bool, optional
        Whether outputs may be missing (nan). Their errors do not count. The inputs must be known.
    with_covariance : bool, optional
        Whether the covariance of the estimates is computed, for which the records are simulated
        twice for each parameter. Without it, the covariance is NaN.

    Returns
    -------
    GreyBoxFit
        Estimates, their covariance ``s^2 (J' J)^-1`` with the sensitivities J, and counts. The
        covariance holds for white errors of equal variance after scaling. A model that is too
        simple leaves correlated errors; its parameters are less certain than the covariance states.
        The variance of a parameter that the records do not determine, alone or together with
        others, is infinite.

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
    >>> free = [FreeParameter("pump_gain", 0.01, 0.1)]
    >>> fit = fit_output_error(CascadedTanks(), [(u, y)], free, starts=2)
    >>> round(fit.system.pump_gain, 6)
    0.05
    """
    from scipy.optimize import least_squares

    problem = output_error(system, records, free, window, interpolation, skip_missing=skip_missing)
    options = {"bounds": (0.0, 1.0), "x_scale": "jac", "diff_step": FORWARD_DIFFERENCE_STEP}
    runs = []
    for shares in _draw_starts(problem, starts, seed):
        if problem.simulate(shares) is not None:
            runs.append(least_squares(problem.errors, shares, **options))
    if not runs:
        raise SimulationError(
            f"fit_output_error: none of {starts} starts of {type(system).__name__} could be "
            "simulated; narrow the bounds, use more substeps or start elsewhere"
        )
    best = min(runs, key=lambda run: run.cost)
    return _summarise(problem, best, [run.cost for run in runs], with_covariance=with_covariance)


def output_sensitivities(
    system: System,
    input: Array,
    free: Sequence[FreeParameter],
    interpolation: Interpolation = Interpolation.held,
) -> Array:
    """Return the derivatives (n, n_y, n_p) of the simulated outputs with respect to parameters.

    They are computed by central differences.

    Parameters
    ----------
    system, interpolation
        As in `fit_output_error`.
    input : (n, n_u)
    free : sequence of FreeParameter
        Parameters; the differences stay between their bounds.

    Raises
    ------
    ValueError
        If the simulation fails for a value close to that of the system.
    """
    problem = OutputError(system, ((input, input),), tuple(free), 0, interpolation)
    shares = np.array([p.share(getattr(system, p.name)) for p in free])
    derivatives = []
    for i, step in enumerate(CENTRAL_DIFFERENCE_STEP * np.eye(len(free))):
        low = np.clip(shares - step, 0.0, 1.0)
        high = np.clip(shares + step, 0.0, 1.0)
        below = problem.simulate(low)
        above = problem.simulate(high)
        if below is None or above is None:
            raise UserError(
                f"output_sensitivities: no simulation beside this {free[i].name}; change its bounds"
            )
        difference = free[i].value(high[i]) - free[i].value(low[i])
        derivatives.append((above[0] - below[0]) / difference)
    return np.stack(derivatives, axis=2)


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
        As in `output_sensitivities`; the parameters with own values per record come last.
    covariance : (n_p, n_p)
        Covariance of all parameters; with `start`, of those that the records share.
    start : (GreyBoxFit, array), optional
        Fit of the own parameters to the first outputs (k, n_y) of the record, with the shared
        parameters held, and these outputs. Other shared parameters would have given other own
        ones: these follow by least squares, and have the variance of their fit in addition.
    """
    J = output_sensitivities(system, input, free, interpolation)
    if start is not None:
        fit, first_outputs = start
        covariance = _covariance_with_start(J, free, covariance, fit, first_outputs)
    return np.maximum(np.sum(J @ covariance * J, axis=2), 0.0)


def _covariance_with_start(
    J: Array,
    free: Sequence[FreeParameter],
    covariance: Array,
    fit: GreyBoxFit,
    first_outputs: Array,
) -> Array:
    """Return the covariance of shared and own parameters; arguments as in `output_variance`."""
    n_shared = len(covariance)
    spread = first_outputs.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)[:, np.newaxis]
    scaled = (J[: len(first_outputs)] / scale).reshape(-1, len(free))
    is_free = np.isfinite(np.diag(fit.covariance))  # not on a bound, and determined
    by_own = scaled[:, n_shared:] * is_free
    by_shared = scaled[:, :n_shared]
    response, *_ = np.linalg.lstsq(by_own, by_shared, rcond=MIN_RELATIVE_SINGULAR_VALUE)
    gain = np.vstack([np.eye(n_shared), -response])
    covariance = gain @ covariance @ gain.T
    covariance[n_shared:, n_shared:] += fit.finite_covariance(free[n_shared:])
    return covariance


def _draw_starts(problem: OutputError, starts: int, seed: int) -> Array:
    """Return the shares (starts, n_p) of the starts: the system's own values, then random ones."""
    check_count("starts", starts)
    if starts > MAX_ESTIMATION_STARTS:
        raise UserError(f"starts={starts}: expected at most {MAX_ESTIMATION_STARTS}; change starts")
    own = [p.share(getattr(problem.system, p.name)) for p, _ in problem.columns]
    random = np.random.default_rng(seed).uniform(size=(starts - 1, len(own)))
    return np.vstack([np.clip(own, 1e-3, 1 - 1e-3), random])


def _summarise(
    problem: OutputError, best: Any, costs: list[float], *, with_covariance: bool
) -> GreyBoxFit:
    """Return the fit of the best run of `least_squares`."""
    is_inside = np.minimum(best.x, 1.0 - best.x) > BOUND_TOLERANCE
    covariance = np.full((len(best.x), len(best.x)), np.nan)
    if with_covariance:
        covariance = _estimate_covariance(problem, best, is_inside)
    names = tuple(p.name if r is None else f"{p.name}[{r}]" for p, r in problem.columns)
    at_bounds = tuple(name for name, inside in zip(names, is_inside, strict=True) if not inside)
    return GreyBoxFit(
        systems=problem.systems(best.x),
        names=names,
        values=problem.values(best.x),
        covariance=covariance,
        rmse=problem.rmse(best.fun),
        scaled_rmse_of_runs=np.sqrt(2.0 * np.array(costs) / len(best.fun)),
        at_bounds=at_bounds,
        n_evaluations=problem.counts["evaluations"],
        n_refused=problem.counts["refused"],
        n_diverged=problem.counts["diverged"],
        message=best.message,
    )


def _estimate_covariance(problem: OutputError, best: Any, is_inside: NDArray[np.bool_]) -> Array:
    """Return s^2 (J' J)^-1 (n_p, n_p); NaN for parameters on a bound."""
    from scipy.optimize import least_squares

    options = {
        "bounds": (0.0, 1.0),
        "jac": "3-point",
        "diff_step": CENTRAL_DIFFERENCE_STEP,
        "max_nfev": 1,
        "method": "dogbox",
    }
    pairs = zip(problem.columns, best.x, strict=True)
    slopes = np.array([p.slope(share) for (p, _), share in pairs])
    J = (least_squares(problem.errors, best.x, **options).jac / slopes)[:, is_inside]
    lengths = np.linalg.norm(J, axis=0)
    lengths[lengths == 0] = 1.0
    _, s, Vt = np.linalg.svd(J / lengths, full_matrices=False)
    is_determined = s > MIN_RELATIVE_SINGULAR_VALUE * max(s, default=0.0)
    root = Vt[is_determined].T / s[is_determined] / lengths[:, np.newaxis]
    n_determined = np.count_nonzero(is_determined)
    inner = 2.0 * best.cost / (len(best.fun) - n_determined) * root @ root.T
    share_undetermined = np.linalg.norm(Vt[~is_determined], axis=0)
    is_undetermined = share_undetermined > np.sqrt(MIN_RELATIVE_SINGULAR_VALUE)
    inner[is_undetermined, is_undetermined] = np.inf
    n_p = len(is_inside)
    covariance = np.full((n_p, n_p), np.nan)
    covariance[np.ix_(is_inside, is_inside)] = inner
    return covariance
