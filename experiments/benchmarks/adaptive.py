"""scipy's `solve_ivp`, restarted at every sample, with the tolerance that makes it as accurate as we are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from experiments.benchmarks.sampled_problem import SampledProblem
from simulators import System

Rates = Callable[[float, NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

N_STRETCHES = 4  # pieces of the record that are integrated
TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(2, 25))  # 1e-1 to 1e-12, from loose to tight
REFERENCE = 1e-12  # tolerance of DOP853 for the reference


class Match(NamedTuple):
    """Tolerance, and the error it leads to."""

    tolerance: float
    error: float


def loosest(error_of: Callable[[float], float], bound: float, tolerances: Sequence[float] = TOLERANCES) -> Match:
    """Find the loosest tolerance whose error is at most `bound`, or the tightest of all if none is so accurate.

    Parameters
    ----------
    error_of : callable
        Error of a tolerance; not called for tolerances tighter than the answer.
    bound : float
        Error to keep.
    tolerances : sequence of float
        Tolerances to choose from.

    Returns
    -------
    Match
        The tolerance and its error, which exceeds the bound if no tolerance keeps it.
    """
    for tolerance in sorted(tolerances, reverse=True):
        found = Match(tolerance, error_of(tolerance))
        if found.error <= bound:
            break
    return found


def plain_rates(system: System) -> Rates:
    """Return ``(t, x, row) -> x'`` in plain Python; see `SampledProblem.rows`."""
    return _rates(system, system.drift)


def compiled_rates(system: System) -> Rates:
    """Return the same, compiled by numba together with the drift."""
    compiled: Rates = njit(error_model="numpy")(_rates(system, njit(error_model="numpy")(system.drift)))
    return compiled


def _rates(system: System, drift: Callable[..., None]) -> Rates:
    n_u = len(system.inputs)
    noise, parameters = 1 + 2 * n_u, 1 + 2 * n_u + len(system.noises)

    def rates(t, x, row):  # type: ignore[no-untyped-def]
        derivative, u = np.empty_like(x), np.empty(n_u)
        for i in range(n_u):
            u[i] = row[1 + i] + (t - row[0]) * row[1 + n_u + i]
        drift(t, x, u, row[noise:parameters], row[parameters:], derivative)
        return derivative

    return rates


@dataclass(frozen=True, eq=False)
class Adaptive:
    """`solve_ivp` on pieces of a record, each from the state that our simulation has there.

    Parameters
    ----------
    problem : SampledProblem
        The record.
    stretch : int
        Samples to integrate, in pieces that are spread over the record.
    """

    problem: SampledProblem
    stretch: int

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First samples of the pieces."""
        return np.linspace(0, len(self.problem.rows) - self.length, N_STRETCHES).astype(np.int64)

    @property
    def length(self) -> int:
        """Samples of one piece."""
        return min(max(self.stretch // N_STRETCHES, 1), len(self.problem.rows))

    @property
    def n_samples(self) -> int:
        """Samples of all pieces."""
        return N_STRETCHES * self.length

    @cached_property
    def compiled(self) -> Rates:
        """Right-hand side, compiled."""
        return compiled_rates(self.problem.system)

    @cached_property
    def plain(self) -> Rates:
        """Right-hand side in plain Python."""
        return plain_rates(self.problem.system)

    @cached_property
    def reference(self) -> NDArray[np.float64]:
        """States that our simulation should have, (pieces, length, n_x)."""
        return self.states(self.compiled, "DOP853", REFERENCE)

    def states(self, rates: Rates, method: str, tolerance: float) -> NDArray[np.float64]:
        """States at the ends of the samples, (pieces, length, n_x); `solve_ivp` is called for each sample.

        Parameters
        ----------
        rates : callable
            Right-hand side.
        method : str
            Method of `solve_ivp`.
        tolerance : float
            Relative tolerance; the absolute one of each state is as large in standard deviations of it.

        Raises
        ------
        ArithmeticError
            If `solve_ivp` gives up.
        """
        dt, rows, time = self.problem.system.dt, self.problem.rows, self.problem.trajectory.time
        options: dict[str, Any] = {"method": method, "rtol": tolerance, "atol": tolerance * self.problem.scale}
        found = np.empty((N_STRETCHES, self.length, len(self.problem.scale)))
        for piece, start in enumerate(self.starts):
            x = self.problem.trajectory.state[start]
            for k in range(self.length):
                row, t = rows[start + k], time[start + k]
                solution = solve_ivp(lambda t, x, row=row: rates(t, x, row), (t, t + dt), x, **options)
                if not solution.success:
                    raise ArithmeticError(f"{self.problem.name}, sample {start + k}: {method}: {solution.message}")
                x = found[piece, k] = solution.y[:, -1]
        return found

    def error(self, states: NDArray[np.float64]) -> float:
        """Largest difference from the reference in standard deviations of the state."""
        return float(np.abs((states - self.reference) / self.problem.scale).max())

    def our_error(self) -> float:
        """Error of our simulation on the pieces."""
        state = self.problem.trajectory.state
        return self.error(np.array([state[start + 1 : start + 1 + self.length] for start in self.starts]))

    def match(self, method: str) -> Match:
        """Find the loosest tolerance with which a method is as accurate as our simulation."""
        return loosest(lambda tolerance: self.error(self.states(self.compiled, method, tolerance)), self.our_error())
