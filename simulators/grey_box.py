"""Grey-box identification: physical parameters of a system from measured records, by output error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.interpolation import Interpolation
from simulators.output_error import FreeParameter, OutputError, Record, output_error
from simulators.system import System

AT_BOUND = 1e-6  # a parameter this close to a bound, in parts of the range, counts as on it
STEP = 1e-5  # of the forward differences on the way, relative to the share of the range
LAST_STEP = 1e-4  # of the central differences that give the covariance
UNDETERMINED = 1e-6  # relative singular value below which the records do not determine a direction


@dataclass(frozen=True, eq=False)
class GreyBoxFit:
    """Estimated parameters and how well they are known.

    The columns are the free parameters; one with an own value per record has as many columns as there are
    records, named `initial_lower[0]`, `initial_lower[1]`, ...
    """

    systems: tuple[System, ...]  # one per record; they differ in the own parameters only
    names: tuple[str, ...]  # (n_p,) names of the columns
    values: NDArray[np.float64]  # (n_p,) estimates
    covariance: NDArray[np.float64]  # (n_p, n_p); NaN for a parameter on a bound, inf if undetermined
    rmse: NDArray[np.float64]  # (n_y,) free-run error on the records, unit of the output
    scaled_rmse_of_runs: NDArray[np.float64]  # one per start that could be simulated
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
    def std(self) -> NDArray[np.float64]:
        """Standard errors (n_p,) of the estimates."""
        return np.sqrt(np.diag(self.covariance))


def fit_output_error(
    system: System,
    records: Sequence[Record | tuple[ArrayLike, ArrayLike]],
    free: Sequence[FreeParameter],
    *,
    window: int = 0,
    interpolation: Interpolation = Interpolation.held,
    starts: int = 10,
    seed: int = 0,
) -> GreyBoxFit:
    """Estimate parameters of a system so that its simulation reproduces measured outputs.

    ::

        minimise  sum over records r, samples k >= window, outputs i  ((y_rki - yhat_rki(theta)) / s_i)^2

    where yhat is the simulation without noise from the initial state that theta states (output error, free
    run) and s_i the standard deviation of output i. Trust-region least squares, from the system's own values
    and from random ones between the bounds; the best run counts.

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
        Estimates, their covariance ``s^2 (J' J)^-1`` with the sensitivities J, and counts. The covariance holds
        for white errors of equal variance after scaling; a model that is too simple leaves correlated errors
        and is less certain than it says. The variance of a parameter that the records do not determine,
        alone or together with others, is infinite.

    Raises
    ------
    ValueError
        If a record does not fit the system or is not finite, a parameter is unknown, repeated or starts
        outside its bounds, or there are fewer errors than parameters.
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
    shares = _starts(problem, starts, seed)
    runs = [least_squares(problem.errors, share, **options) for share in shares if problem.succeeds(share)]
    if not runs:
        raise ArithmeticError(
            f"fit_output_error: none of {starts} starts of {type(system).__name__} could be simulated; narrow the "
            "bounds, use more substeps or start elsewhere"
        )
    return _report(problem, min(runs, key=lambda run: run.cost), [run.cost for run in runs])


def _starts(problem: OutputError, starts: int, seed: int) -> NDArray[np.float64]:
    """Return the shares (starts, n_p) of the first runs: the system's own values, then random ones."""
    if starts < 1:
        raise ValueError(f"fit_output_error(starts={starts}): expected an integer >= 1; change starts")
    own = [p.share(getattr(problem.system, p.name)) for p, _ in problem.columns]
    random = np.random.default_rng(seed).uniform(size=(starts - 1, len(own)))
    return np.vstack([np.clip(own, 1e-3, 1 - 1e-3), random])


def _report(problem: OutputError, best: Any, costs: list[float]) -> GreyBoxFit:
    """Turn the best run of `least_squares` into a fit."""
    inside = np.minimum(best.x, 1.0 - best.x) > AT_BOUND
    errors = best.fun.reshape(-1, len(problem.scale)) * problem.scale
    return GreyBoxFit(
        systems=problem.systems(best.x),
        names=problem.names,
        values=problem.values(best.x),
        covariance=_covariance(problem, best, inside),
        rmse=np.sqrt(np.mean(errors**2, axis=0)),
        scaled_rmse_of_runs=np.sqrt(2.0 * np.array(costs) / len(best.fun)),
        at_bounds=tuple(name for name, free in zip(problem.names, inside, strict=True) if not free),
        n_evaluations=problem.counts["evaluations"],
        n_refused=problem.counts["refused"],
        n_diverged=problem.counts["diverged"],
        message=best.message,
    )


def _covariance(problem: OutputError, best: Any, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return s^2 (J' J)^-1 (n_p, n_p) of the parameters that are not on a bound, NaN for the others."""
    from scipy.optimize import least_squares

    options = {"bounds": (0.0, 1.0), "jac": "3-point", "diff_step": LAST_STEP, "max_nfev": 1, "method": "dogbox"}
    J = (least_squares(problem.errors, best.x, **options).jac / problem.slopes(best.x))[:, inside]
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
