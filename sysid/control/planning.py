"""The optimisation problem of a decision, and its quadratic programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.arrays import Array
from sysid.design.candidates import clip_changes
from sysid.errors import UserError

#: Weight of the squared distance of a level from the present one in a quadratic program, in parts
#: of the cost per squared range of the input. It makes the program strictly convex, and vanishes
#: where the plan does not change any more.
PROXIMITY = 1e-4


class Plan(NamedTuple):
    """Levels of the inputs, and what they lead to."""

    levels: Array  # (B, q)
    mean: Array  # (T, m) outputs
    cost: float


class Solution(NamedTuple):
    """Solution of a quadratic program."""

    levels: Array  # (B, q)
    cost: float  # of the program: outputs linearised, proximity left out


class OwnCost(NamedTuple):
    """A cost of the user at the present forecast: compiled function and its parameters."""

    function: Any  # (outputs (T, m), inputs (T, q), forecast) -> value, gradient, Hessian
    parameters: Array

    def value(self, outputs: Array, inputs: Array) -> float:
        """Return the cost of outputs (T, m) and inputs (T, q)."""
        return float(self.function["value"](outputs, inputs, self.parameters))

    def expansion(self, outputs: Array, inputs: Array) -> tuple[Array, Array]:
        """Return gradient (n,) and Hessian (n, n) by outputs and inputs, row by row."""
        gradient, hessian = self.function["expansion"](outputs, inputs, self.parameters)
        return np.asarray(gradient)[:, 0], np.asarray(hessian)


@dataclass(frozen=True, eq=False)
class Problem:
    """The problem of a decision, over B levels of q inputs and T samples of m outputs.

    `PredictiveControl` states it in a formula.
    """

    lengths: tuple[int, ...]  # (B,) samples for which each level is held
    low: Array  # (q,)
    high: Array  # (q,)
    rate: Array  # (q,) per sample
    previous: Array  # (q,) inputs before the first level
    lower: Array  # (T, m) limits of the outputs; -inf: none
    upper: Array  # (T, m)
    limited: tuple[int, ...]  # outputs that have limits
    violation: float
    price: Array  # (T, q)
    quadratic_price: Array  # (T, q)
    change_price: Array  # (q,)
    reference: Array  # (T, m)
    weight: Array  # (m,)
    own_cost: OwnCost | None = None

    @cached_property
    def first_samples(self) -> NDArray[np.int64]:
        """First sample (B,) of each level."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    @cached_property
    def holds(self) -> Array:
        """Matrix (T, B) from the levels of an input to its samples."""
        return np.repeat(np.eye(len(self.lengths)), self.lengths, axis=0)

    def inputs_of(self, levels: Array) -> Array:
        """Return the inputs (T, q) of levels (B, q)."""
        return np.repeat(levels, self.lengths, axis=0)

    def clip(self, levels: Array) -> Array:
        """Return the levels (B, q) within the limits of the inputs and of their changes.

        An input that begins outside moves towards its limits as fast as it may.
        """
        return clip_changes(levels, self.low, self.high, self.rate, self.previous)

    def tightened(self, margin: Array) -> Problem:
        """Return the problem with its output limits tightened by margins (T, m)."""
        return replace(self, lower=self.lower + margin, upper=self.upper - margin)

    def evaluate(self, levels: Array, mean: Array) -> Plan:
        """Return the plan of levels (B, q) that lead to outputs (T, m); nan costs nan."""
        return Plan(levels, mean, self._cost(levels, mean))

    @cached_property
    def scale(self) -> float:
        """A tenth of the price of inputs at the ends of their ranges."""
        spans = self.high - self.low
        of_inputs = np.abs(self.price) * spans + self.quadratic_price * np.square(spans)
        return 0.1 * float(np.sum(of_inputs))

    def _cost(self, levels: Array, outputs: Array) -> float:
        """Return the cost of levels (B, q) that lead to outputs (T, m), with the least slacks."""
        inputs = self.inputs_of(levels)
        changes = np.diff(np.concatenate([self.previous[None], levels]), axis=0)
        slack = self.violations(outputs)
        total = np.sum(self.price * inputs + self.quadratic_price * np.square(inputs))
        total += np.sum(self.weight * np.square(outputs - self.reference))
        total += np.sum(self.change_price * np.square(changes))
        total += self.violation * np.sum(slack + np.square(slack))
        if self.own_cost is not None and np.isfinite(total):
            total += self.own_cost.value(outputs, inputs)
        return float(total)

    def violations(self, outputs: Array) -> Array:
        """Return the least slacks (T, number of limited outputs) of outputs (T, m)."""
        chosen = list(self.limited)
        below = self.lower[:, chosen] - outputs[:, chosen]
        above = outputs[:, chosen] - self.upper[:, chosen]
        return np.maximum(np.maximum(below, above), 0.0)


class QuadraticProgram:
    """Solves the quadratic programs of decisions by a plugin of CasADi.

    Parameters
    ----------
    plugin : str
        Name of a plugin of ``casadi.conic``.

    Raises
    ------
    ValueError
        CasADi is not installed, or does not have the plugin.
    """

    def __init__(self, plugin: str) -> None:
        try:
            import casadi
        except ImportError:
            raise UserError(
                "predictive control needs CasADi, which is not installed; install the extra "
                '[control]: pip install "sysid-online-gp[control]"'
            ) from None
        if not isinstance(plugin, str) or not casadi.has_conic(plugin):
            raise UserError(
                f"PredictiveControl: this CasADi has no solver {plugin!r} for quadratic programs; "
                "take daqp, piqp, highs or qpoases"
            )
        self._casadi = casadi
        self._plugin = plugin
        self._solvers: dict[tuple[int, int, int], tuple[Any, ...]] = {}
        self._own_costs: dict[tuple[Any, ...], Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> QuadraticProgram:
        """Return one without solvers: CasADi makes them again when they are needed."""
        return QuadraticProgram(self._plugin)

    def own_cost(
        self,
        cost: Callable[..., Any],
        outputs: Sequence[str],
        inputs: Sequence[str],
        forecast: Mapping[str, Array],
        n_steps: int,
    ) -> OwnCost:
        """Return a cost of the user with its derivatives; they are made once for all forecasts.

        Raises
        ------
        ValueError
            If the function fails, or does not return a scalar expression.
        """
        key = (cost, tuple(outputs), tuple(inputs), tuple(forecast), n_steps)
        if key not in self._own_costs:
            self._own_costs[key] = self._differentiate(cost, *key[1:])
        parameters = np.column_stack([*forecast.values(), np.zeros(n_steps + 1)])
        return OwnCost(self._own_costs[key], parameters)

    def _differentiate(
        self,
        cost: Callable[..., Any],
        outputs: Sequence[str],
        inputs: Sequence[str],
        forecast: Sequence[str],
        n_steps: int,
    ) -> dict[str, Any]:
        """Return functions for the value, and for gradient and Hessian, of a cost."""
        casadi = self._casadi
        y = casadi.SX.sym("y", n_steps, len(outputs))
        u = casadi.SX.sym("u", n_steps, len(inputs))
        d = casadi.SX.sym("d", n_steps + 1, len(forecast) + 1)
        try:
            value = casadi.SX(
                cost(
                    {name: y[:, o] for o, name in enumerate(outputs)},
                    {name: u[:, c] for c, name in enumerate(inputs)},
                    {name: d[:, i] for i, name in enumerate(forecast)},
                )
            )
        except Exception as error:
            raise UserError(
                f"PredictiveControl: cost(outputs, inputs, forecast) failed: {error}"
            ) from error
        if value.shape != (1, 1):
            raise UserError(
                f"PredictiveControl: the cost must be a scalar expression, got shape {value.shape}"
            )
        # CasADi orders the entries of a matrix by columns, the toolbox by rows
        variables = casadi.vertcat(casadi.vec(y.T), casadi.vec(u.T))
        hessian, gradient = casadi.hessian(value, variables)
        return {
            "value": casadi.Function("value", [y, u, d], [value]),
            "expansion": casadi.Function(
                "expansion", [y, u, d], [gradient, casadi.densify(hessian)]
            ),
        }

    def solve(
        self, problem: Problem, plan: Plan, derivatives: Array, damping: float = 1.0
    ) -> Solution | None:
        """Return the solution of the quadratic program about a plan; None if there is none.

        `derivatives` (T, m, T, q) are those of the outputs by the inputs. The variables are the
        levels, in ranges of their inputs and as changes from the plan, followed by the slacks.
        Large moves cost `damping` times as much as by `PROXIMITY`.
        """
        n_steps, n_outputs = plan.mean.shape
        n_levels, n_inputs = plan.levels.shape
        n_moves = n_levels * n_inputs
        scale = np.tile(problem.high - problem.low, n_levels)
        to_inputs = np.kron(problem.holds, np.eye(n_inputs)) * scale  # (T q, B q)
        sensitivity = derivatives.reshape(n_steps * n_outputs, -1)
        to_outputs = (sensitivity @ to_inputs).reshape(n_steps, n_outputs, n_moves)
        H, g = _moves_cost(problem, plan, to_inputs, to_outputs, scale)
        proximity = damping * PROXIMITY * (1e-3 + abs(plan.cost) / n_levels)
        rows = _constraints(problem, plan, to_outputs, scale)
        n_slacks = n_steps * len(problem.limited)
        # an input that begins outside its limits cannot be inside at once: `Problem.clip`
        lowest = np.minimum((problem.low - plan.levels).ravel() / scale, 0.0)
        highest = np.maximum((problem.high - plan.levels).ravel() / scale, 0.0)
        whole_H = np.zeros((n_moves + n_slacks, n_moves + n_slacks))
        whole_H[:n_moves, :n_moves] = H + proximity * np.eye(n_moves)
        whole_H[n_moves:, n_moves:] = 2.0 * problem.violation * np.eye(n_slacks)
        solver, h_pattern, h_entries, a_pattern, a_entries = self._solver(
            n_moves, n_slacks, len(rows.A) - 2 * n_slacks
        )
        casadi = self._casadi
        try:
            solution = solver(
                h=casadi.DM(h_pattern, whole_H.T[h_entries]),
                g=np.concatenate([g, np.full(n_slacks, problem.violation)]),
                a=casadi.DM(a_pattern, rows.A.T[a_entries]),
                lba=rows.lower,
                uba=rows.upper,
                lbx=np.concatenate([lowest, np.zeros(n_slacks)]),
                ubx=np.concatenate([highest, np.full(n_slacks, np.inf)]),
                x0=0.0,
            )
        except RuntimeError:
            return None
        x = np.asarray(solution["x"])[:, 0]
        if not solver.stats()["success"] or not np.isfinite(x).all():
            return None
        moves = x[:n_moves]
        levels = problem.clip(plan.levels + (moves * scale).reshape(n_levels, n_inputs))
        expected = _expected_cost(problem, plan, H, g, moves, to_outputs)
        return Solution(levels, expected)

    def _solver(self, n_moves: int, n_slacks: int, n_rates: int) -> tuple[Any, ...]:
        """Return the solver for programs of a size, and patterns and entries of its matrices."""
        key = (n_moves, n_slacks, n_rates)
        if key not in self._solvers:
            casadi = self._casadi
            dense = casadi.DM.ones
            slacks = casadi.DM.eye(n_slacks)
            h = casadi.diagcat(dense(n_moves, n_moves), slacks).sparsity()
            a = casadi.vertcat(
                casadi.horzcat(dense(n_slacks, n_moves), slacks),
                casadi.horzcat(dense(n_slacks, n_moves), slacks),
                casadi.horzcat(dense(n_rates, n_moves), casadi.DM(n_rates, n_slacks)),
            ).sparsity()
            options = {"error_on_fail": False, **SILENT_SOLVER_OPTIONS.get(self._plugin, {})}
            solver = casadi.conic("decision", self._plugin, {"h": h, "a": a}, options)
            self._solvers[key] = solver, h, _entries(h), a, _entries(a)
        return self._solvers[key]


#: Options with which solvers print nothing, by plugin.
SILENT_SOLVER_OPTIONS: dict[str, dict[str, Any]] = {
    "qpoases": {"printLevel": "none"},
    "qrqp": {"print_iter": False, "print_header": False, "print_info": False},
    "osqp": {"osqp": {"verbose": False}},
    "highs": {"highs": {"output_flag": False}},
}


def _entries(pattern: Any) -> tuple[Any, Any]:
    """Return columns and rows of the entries of a pattern, in the order of CasADi."""
    rows, columns = pattern.get_triplet()
    return np.array(columns, dtype=np.int64), np.array(rows, dtype=np.int64)


class _Constraints(NamedTuple):
    """Rows ``lower <= A x <= upper`` of a quadratic program."""

    A: Array  # (number of rows, B q + number of slacks)
    lower: Array
    upper: Array


def _constraints(problem: Problem, plan: Plan, to_outputs: Array, scale: Array) -> _Constraints:
    """Return the limits of the outputs, softened by slacks, and those of the changes of inputs.

    The rows are ``y + s >= lower``, ``y - s <= upper``, and the changes of inputs with a rate.
    """
    n_levels, n_inputs = plan.levels.shape
    n_moves = len(scale)
    limited = list(problem.limited)
    outputs = plan.mean[:, limited].ravel()
    n_slacks = len(outputs)
    answers = to_outputs[:, limited].reshape(n_slacks, n_moves)
    slacks = np.eye(n_slacks)
    rate = np.tile(problem.rate, n_levels) / scale
    has_rate = np.isfinite(rate)
    rate = rate[has_rate]
    before = np.concatenate([problem.previous[None], plan.levels[:-1]])
    present = ((plan.levels - before).ravel() / scale)[has_rate]
    changes = (np.eye(n_moves) - np.eye(n_moves, k=-n_inputs))[has_rate]
    unbounded = np.full(n_slacks, np.inf)
    return _Constraints(
        np.block(
            [[answers, slacks], [answers, -slacks], [changes, np.zeros((len(rate), n_slacks))]]
        ),
        np.concatenate([problem.lower[:, limited].ravel() - outputs, -unbounded, -rate - present]),
        np.concatenate([unbounded, problem.upper[:, limited].ravel() - outputs, rate - present]),
    )


def _moves_cost(
    problem: Problem, plan: Plan, to_inputs: Array, to_outputs: Array, scale: Array
) -> tuple[Array, Array]:
    """Return Hessian (B q, B q) and gradient (B q,) of the cost by the moves, without slacks."""
    n_moves = len(scale)
    n_inputs = plan.levels.shape[1]
    inputs = problem.inputs_of(plan.levels).ravel()
    quadratic = problem.quadratic_price.ravel()
    H = 2.0 * to_inputs.T @ (quadratic[:, None] * to_inputs)
    g = to_inputs.T @ (problem.price.ravel() + 2.0 * quadratic * inputs)
    error = plan.mean - problem.reference
    for o in np.flatnonzero(problem.weight):
        H += 2.0 * problem.weight[o] * to_outputs[:, o].T @ to_outputs[:, o]
        g += 2.0 * problem.weight[o] * to_outputs[:, o].T @ error[:, o]
    if problem.change_price.any():
        D = (np.eye(n_moves) - np.eye(n_moves, k=-n_inputs)) * scale
        before = np.concatenate([problem.previous[None], plan.levels[:-1]])
        changes = (plan.levels - before).ravel()
        weights = np.tile(problem.change_price, len(plan.levels))
        H += 2.0 * D.T @ (weights[:, None] * D)
        g += 2.0 * D.T @ (weights * changes)
    if problem.own_cost is not None:
        outputs = plan.mean
        gradient, hessian = problem.own_cost.expansion(outputs, inputs.reshape(-1, n_inputs))
        both = np.concatenate([to_outputs.reshape(-1, n_moves), to_inputs])
        curvature = both.T @ hessian @ both
        values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        H += (vectors * np.maximum(values, 0.0)) @ vectors.T
        g += both.T @ gradient
    return H, g


def _expected_cost(
    problem: Problem, plan: Plan, H: Array, g: Array, moves: Array, to_outputs: Array
) -> float:
    """Return the cost of a solution by the quadratic program, without the damping."""
    linearised = plan.mean + to_outputs @ moves
    before = problem.violations(plan.mean)
    after = problem.violations(linearised)
    change = g @ moves + 0.5 * moves @ H @ moves
    penalty = np.sum(after + np.square(after)) - np.sum(before + np.square(before))
    return float(plan.cost + change + problem.violation * penalty)
