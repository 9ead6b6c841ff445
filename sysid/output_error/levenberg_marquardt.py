"""Levenberg-Marquardt for sums of squares whose Jacobian is never held as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

FIRST_DAMPING, LEAST_DAMPING = 1e-3, 1e-9  # of the diagonal [-]
LOWERED, RAISED = 8.0, 6.0  # factors of the damping after a step that is kept, after one that is refused
TRIALS = 12  # steps that may be refused in a row
FLOOR = 1e-12  # added to the diagonal that is damped


class NormalEquations(NamedTuple):
    """Gauss-Newton model ``cost(x + d) ~ cost(x) - 2 descent'd + d'curvature d``."""

    curvature: np.ndarray  # (P, P) J'J
    descent: np.ndarray  # (P,) J'e, minus half the gradient


class SquaresProblem(ABC):
    """A sum of squares of parameters x (P,)."""

    @abstractmethod
    def cost(self, x: np.ndarray) -> float:
        """The sum; infinite where it does not exist."""

    @abstractmethod
    def normal_equations(self, x: np.ndarray) -> NormalEquations:
        """Its Gauss-Newton model at x, where the cost is finite."""


class SquaresOptimum(NamedTuple):
    """What a minimisation found."""

    x: np.ndarray
    cost: float  # infinite if it was so at the start
    n_iterations: int
    converged: bool  # twice in a row a step gained less than the tolerance, or no step gained anything


def minimise_squares(
    problem: SquaresProblem, start: np.ndarray, *, max_iterations: int, tolerance: float = 1e-3
) -> SquaresOptimum:
    """Minimise by damped Gauss-Newton steps, ``(curvature + damping diag(curvature)) d = descent``.

    A step that does not lower the cost is refused, one to where the cost is infinite too: the damping is raised
    (Marquardt, An algorithm for least-squares estimation of nonlinear parameters, 1963).

    Parameters
    ----------
    tolerance : float
        Relative decrease of the cost, missed twice in a row, at which the minimisation ends [-].
    """
    x, cost, damping, small = start, problem.cost(start), FIRST_DAMPING, 0
    if not np.isfinite(cost):
        return SquaresOptimum(start, np.inf, 0, False)
    for iteration in range(max_iterations):
        equations = problem.normal_equations(x)
        for _ in range(TRIALS):
            trial = x + _damped_step(equations, damping)
            lowered = problem.cost(trial)
            if lowered < cost:
                break
            damping = max(damping, 10 * LEAST_DAMPING) * RAISED
        else:
            return SquaresOptimum(x, cost, iteration, True)
        small = small + 1 if cost - lowered < tolerance * cost else 0
        x, cost, damping = trial, lowered, max(damping / LOWERED, LEAST_DAMPING)
        if small == 2:
            return SquaresOptimum(x, cost, iteration + 1, True)
    return SquaresOptimum(x, cost, max_iterations, False)


def _damped_step(equations: NormalEquations, damping: float) -> np.ndarray:
    diagonal = np.diag(equations.curvature) + FLOOR
    return np.linalg.solve(equations.curvature + np.diag(damping * diagonal), equations.descent)
