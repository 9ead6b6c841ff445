"""Lags of a NARX model, read from the dynamics of the system that it shall describe.

Linearise at operating points, sample with held inputs, keep the minimal part, read the transfer
function

    y[k] + a_1 y[k-1] + ... + a_ny y[k-ny] = sum over inputs j of b_j1 u_j[k-1] + ... + b_jn
    u_j[k-n_j]:

its last output lag is n_y, its last lag of input j is n_u of that input. A point where the
linearised system is not minimal needs fewer lags than the nonlinear system does around it, so
several points are read and the largest numbers count; the report says which points needed fewer and
why. For records without a model see `sysid.choose_lags`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm, matrix_balance, qr

from sysid.arrays import Array, matrix, vector
from sysid.errors import UserError
from sysid.narx.lags import Narx, Target

Drift: TypeAlias = Callable[
    [Array, Array], ArrayLike
]  # (state, input) -> rate of the state, (n_x,)
Output: TypeAlias = Callable[[Array], ArrayLike]  # state -> output, (n_y,)
Jacobian: TypeAlias = Callable[
    [Array, Array], "tuple[ArrayLike, ArrayLike] | None"
]  # (state, input) -> A, B

RELATIVE_STEP = float(
    np.cbrt(np.finfo(float).eps)
)  # best for central differences: truncation meets rounding


class StateSpace(NamedTuple):
    """Linear system without feed-through: x' = A x + B u, y = C x, or x[k+1] = A x[k] + B u[k] once
    sampled.
    """

    A: Array  # (n_x, n_x)
    B: Array  # (n_x, n_u)
    C: Array  # (n_y, n_x)


def linearise(
    drift: Drift,
    output: Output,
    state: ArrayLike,
    input: ArrayLike,
    *,
    jacobian: Jacobian | None = None,
    state_scale: ArrayLike | None = None,
    input_scale: ArrayLike | None = None,
) -> StateSpace:
    """Linearise x' = f(x, u), y = h(x) at one operating point, which need not be at rest.

    ::

        A = df/dx,   B = df/du,   C = dh/dx
        df/dx_i = (f(x + h_i e_i, u) - f(x - h_i e_i, u)) / (2 h_i),   h_i = eps^(1/3) scale_i

    Parameters
    ----------
    drift : callable
        f(state, input) -> (n_x,) rates.
    output : callable
        h(state) -> (n_y,) outputs.
    state, input : (n_x,), (n_u,) array
        The operating point; `input` is empty for a system without inputs.
    jacobian : callable, optional
        jacobian(state, input) -> (A, B) in closed form; where it returns None, differences are
        taken.
    state_scale, input_scale : (n_x,), (n_u,) array, optional
        Typical magnitude of every component, above zero; by default its magnitude here, 1 where
        that is zero.

    Returns
    -------
    StateSpace
        A (n_x, n_x), B (n_x, n_u), C (n_y, n_x).

    Raises
    ------
    ValueError
        If a shape does not fit, a scale is not positive, or a value or derivative is not finite.

    Notes
    -----
    The error of a central difference is of the order eps^(2/3) = 4e-11 of the typical slope. At a
    kink, such as |v| at v = 0, it gives the mean of both slopes.
    """
    x = vector(state, None, "state")
    u = vector(input, None, "input")
    dx = _choose_steps(x, state_scale, "state_scale")
    du = _choose_steps(u, input_scale, "input_scale")
    C = _differentiate(lambda at: _check_values(output(at), None, "output", at), x, dx)
    given = None if jacobian is None else jacobian(x, u)
    if given is not None:
        at = np.concatenate([x, u])
        shapes = ((x.size, x.size), (x.size, u.size))
        A, B = (
            _check_values(part, shape, "jacobian", at)
            for part, shape in zip(given, shapes, strict=True)
        )
    else:
        A = _differentiate(lambda at: _check_values(drift(at, u), x.shape, "drift", at), x, dx)
        B = _differentiate(lambda at: _check_values(drift(x, at), x.shape, "drift", at), u, du)
    return StateSpace(A, B if u.size else np.empty((x.size, 0)), C)


def discretise(model: StateSpace, dt: float) -> StateSpace:
    """Sample a linear system with the input held over each sample (zero-order hold).

    ::

        [Ad Bd; 0 I] = exp([A B; 0 0] dt)

    Parameters
    ----------
    model : StateSpace
        In continuous time.
    dt : float
        Sampling interval [s].

    Returns
    -------
    StateSpace
        In discrete time, same states.

    Raises
    ------
    ValueError
        If `dt` is not positive.

    Examples
    --------
    >>> integrator = StateSpace(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)))
    >>> discretise(integrator, 0.5).B
    array([[0.5]])
    """
    if not 0 < dt < float("inf"):
        raise UserError(
            f"discretise(dt={dt!r}): expected seconds above zero; give the sampling interval"
        )
    n, m = model.B.shape
    block = np.zeros((n + m, n + m))
    block[:n, :n], block[:n, n:] = model.A, model.B
    exponential = expm(block * dt)
    return StateSpace(exponential[:n, :n], exponential[:n, n:], model.C)


def _choose_steps(at: Array, scale: ArrayLike | None, name: str) -> Array:
    if scale is None:
        return RELATIVE_STEP * np.where(at == 0, 1.0, np.abs(at))
    given = vector(scale, at.size, name)
    if (given <= 0).any():
        raise UserError(
            f"linearise: {name} must be above zero, got {given.tolist()}; give typical magnitudes"
        )
    return RELATIVE_STEP * given


def _differentiate(function: Callable[[Array], Array], at: Array, steps: Array) -> Array:
    """Matrix of partial derivatives, one column per component of `at`."""
    columns = []
    for i, step in enumerate(steps):
        high = at.copy()
        low = at.copy()
        high[i] += step
        low[i] -= step
        with np.errstate(
            invalid="ignore", divide="ignore"
        ):  # what is not finite is an error, with its place
            columns.append((function(high) - function(low)) / (high[i] - low[i]))
    return np.column_stack(columns) if columns else np.empty((0, 0))


def _check_values(values: ArrayLike, shape: tuple[int, ...] | None, name: str, at: Array) -> Array:
    """Check values and return a copy, because the function may reuse its buffer.

    Without a shape a vector of any length passes.
    """
    array = np.array(values, dtype=np.float64)
    if array.shape != shape and (shape is not None or array.ndim != 1):
        raise UserError(f"linearise: {name} must return shape {shape or '(n,)'}, got {array.shape}")
    if not np.isfinite(array).all():
        raise UserError(
            f"linearise: {name} is {array.tolist()} at {at.tolist()}; "
            "choose an operating point further inside the range where it is defined"
        )
    return array


class Realisation(NamedTuple):
    """Minimal part of a sampled system with one output, and what is not in it.

    Without inputs everything counts as moved: the initial state moves it.
    """

    model: StateSpace  # minimal, in coordinates of its own
    not_moved: Array  # (q, n_x): row w says that w x is moved by no input
    # (p, n_x): row d says that a change of the state along d never shows in the output
    not_shown: Array
    kept: float  # smallest relative singular value that counted; inf if none was needed
    dropped: float  # largest relative singular value that did not count; 0 if there was none

    @property
    def order(self) -> int:
        """Number of states of the minimal part."""
        return len(self.model.A)


Span: TypeAlias = tuple[
    Array, float, float
]  # orthonormal basis (n, r), and kept, dropped as in `Realisation`


def minimal(model: StateSpace, tolerance: float = 1e-7) -> Realisation:
    """Remove what the inputs do not move and what the output does not show.

    Works on D = A - I, which has the same controllable and observable subspaces as A and keeps them
    apart at fast sampling. States are balanced first, so that metres and newtons compare; inputs
    and output are scaled to one. The span of (B, D B, D^2 B, ...) is built block by block: from the
    image under D / |D| of the newest directions, what lies in the span already is removed, and the
    singular values of the rest decide (staircase algorithm: Van Dooren 1981). The observable part
    follows from the transposed system.

    Parameters
    ----------
    model : StateSpace
        In discrete time, with one output.
    tolerance : float
        Singular values up to it are taken as zero. Rounding leaves about 1e-16, central differences
        1e-10.

    Returns
    -------
    Realisation
        Its `model` has the transfer function of `model`.

    Raises
    ------
    ValueError
        If the model has not one output, or the tolerance is not between 0 and 1.
    """
    if len(model.C) != 1:
        raise UserError(f"minimal: expected one output, got {len(model.C)}; take one row of C")
    if not 0 < tolerance < 1:
        raise UserError(
            f"minimal(tolerance={tolerance!r}): expected a number between 0 and 1; the default is 1e-7"
        )
    scale = _balance_states(model)
    D = (model.A - np.eye(len(scale))) * scale / scale[:, None]
    B = model.B / scale[:, None]
    C = model.C * scale
    everything = np.eye(len(D)), np.inf, 0.0
    moved = _build_span(D, _normalise_columns(B), tolerance) if B.shape[1] else everything
    shown = _build_span(D.T, _normalise_columns(C.T), tolerance)
    V = moved[0]
    both = _build_span(V.T @ D.T @ V, V.T @ _normalise_columns(C.T), tolerance)
    W = V @ both[0]
    return Realisation(
        StateSpace(np.eye(W.shape[1]) + W.T @ D @ W, W.T @ B, C @ W),
        _reduce_rows(_build_complement(V), 1 / scale, tolerance),
        _reduce_rows(_build_complement(shown[0]), scale, tolerance),
        min(kept for _, kept, _ in (moved, shown, both)),
        max(dropped for *_, dropped in (moved, shown, both)),
    )


def transfer_function(model: StateSpace) -> tuple[Array, Array]:
    """Coefficients of y[k] + a_1 y[k-1] + ... + a_n y[k-n] = sum over inputs j of b_j1 u_j[k-1] +
    ... + b_jn u_j[k-n].

    Parameters
    ----------
    model : StateSpace
        In discrete time, with one output and n states.

    Returns
    -------
    a : (n,) array
        a_1 to a_n: the characteristic polynomial of A without its leading one.
    b : (n_u, n) array
        b_ji = h_ji + a_1 h_j(i-1) + ... + a_(i-1) h_j1 with the impulse response h_ji = C A^(i-1)
        B_j.
    """
    n = len(model.A)
    if n == 0:
        return np.empty(0), np.empty((model.B.shape[1], 0))
    a = np.real(np.poly(model.A))
    rows = [model.C[0]]
    for _ in range(n - 1):
        rows.append(rows[-1] @ model.A)
    h = (np.array(rows) @ model.B).T
    b = [np.convolve(a, response)[:n] for response in h]
    return a[1:], np.array(b).reshape(h.shape)


def _balance_states(model: StateSpace) -> Array:
    """Scales that balance rows and columns of [D B; C 0], the output fed back to every input."""
    n, m = model.B.shape
    loop = np.zeros((n + max(m, 1),) * 2)
    loop[:n, :n] = model.A - np.eye(n)
    loop[:n, n : n + m] = model.B
    loop[n:, :n] = model.C
    return np.asarray(matrix_balance(loop, permute=False, separate=True)[1][0][:n])


def _normalise_columns(matrix: Array) -> Array:
    sizes = np.linalg.norm(matrix, axis=0)
    return np.asarray(matrix / np.where(sizes > 0, sizes, 1.0))


def _build_span(D: Array, B: Array, tolerance: float) -> Span:
    """Orthonormal basis of the span of B, D B, D^2 B, ..."""
    block = B
    norm = np.linalg.norm(D, 2) if D.size else 0.0
    basis = np.empty((len(D), 0))
    kept = np.inf
    dropped = 0.0
    while block.shape[1] and basis.shape[1] < len(D):
        for _ in range(2):  # the second time removes what rounding left
            block = block - basis @ (basis.T @ block)
        directions, values, _ = np.linalg.svd(block, full_matrices=False)
        new = values > tolerance
        kept = min(kept, *values[new], np.inf)
        dropped = max(dropped, *values[~new], 0.0)
        basis = np.hstack([basis, directions[:, new]])
        block = D @ directions[:, new] / (norm or 1.0)
    return basis, float(kept), float(dropped) if basis.shape[1] < len(D) else 0.0


def _build_complement(basis: Array) -> Array:
    """Orthonormal rows orthogonal to the columns of a basis."""
    n, r = basis.shape
    return np.asarray(np.linalg.svd(basis)[0][:, r:].T) if r else np.eye(n)


def _reduce_rows(rows: Array, units: Array, tolerance: float) -> Array:
    """Reduce rows to a basis of the same row space in the states' units.

    Each row has a one where the others are zero; entries that are rounding errors become zero.
    """
    if not len(rows):
        return rows
    pivots = qr(rows, pivoting=True, mode="r")[1][: len(rows)]
    solved = np.linalg.solve(rows[:, pivots], rows)
    solved[:, pivots] = np.eye(len(rows))
    return np.where(np.abs(solved) > tolerance, solved, 0.0) * units / units[pivots][:, None]


class PointLags(NamedTuple):
    """Lags at one operating point."""

    state: Array  # (n_x,)
    input: Array  # (n_u,)
    order: int  # states of the minimal realisation
    n_y: int  # last output lag
    n_u: tuple[int, ...]  # last lag per input; 0: this input does not reach the output
    kept: float  # smallest relative singular value that counted
    dropped: float  # largest relative singular value taken as zero; 0 if nothing was dropped
    reasons: tuple[str, ...]  # why it is fewer than the number of states

    @property
    def lags(self) -> tuple[int, ...]:
        """(n_y, n_u of every input)."""
        return (self.n_y, *self.n_u)


@dataclass(frozen=True)
class LagReport:
    """Lags of one output and of every input, with the operating points they were read at.

    `str(report)` says which points gave how many lags, and why some gave fewer.
    """

    output: str  # name of the output
    n_y: int  # largest over the points
    n_u: Mapping[str, int]  # largest over the points, per input
    dt: float  # s, sampling interval
    points: tuple[PointLags, ...]
    states: tuple[str, ...]  # names

    def narx(self, predict: Target = Target.change) -> Narx:
        """Lag specification with these lags; inputs that do not reach the output are left out."""
        return Narx(
            {self.output: self.n_y},
            {name: n for name, n in self.n_u.items() if n},
            predict=predict,
        )

    def __str__(self) -> str:
        largest = ", ".join(
            f"{n} of {name}" for name, n in {self.output: self.n_y, **self.n_u}.items()
        )
        lines = [
            f"{largest}; the largest of {len(self.points)} operating points, sampled every {self.dt:g} s"
        ]
        groups: dict[tuple[object, ...], list[PointLags]] = {}
        for point in self.points:
            groups.setdefault((point.lags, point.reasons), []).append(point)
        for group in groups.values():
            lines.extend(self._describe(group))
        return "\n".join(lines)

    def _describe(self, group: list[PointLags]) -> list[str]:
        first = group[0]
        names = (*self.states, *self.n_u)
        values = zip(names, (*first.state, *first.input), strict=True)
        where = ", ".join(f"{name} {value:.4g}" for name, value in values)
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        gap = f"singular values kept >= {min(point.kept for point in group):.1e}"
        if first.reasons:
            gap += f", dropped <= {max(point.dropped for point in group):.1e}"
        lags = ", ".join(str(n) for n in first.lags)
        return [
            f"  {lags} at {where}{others} ({gap})",
            *(f"    because {reason}" for reason in first.reasons),
        ]


def lags_from_dynamics(
    drift: Drift,
    output: Output,
    states: ArrayLike,
    inputs: ArrayLike,
    dt: float,
    *,
    state_names: Sequence[str],
    input_names: Sequence[str],
    output_name: str,
    jacobian: Jacobian | None = None,
    tolerance: float = 1e-7,
) -> LagReport:
    """Read the lags of one output from the dynamics, at one or more operating points.

    Parameters
    ----------
    drift : callable
        f(state, input) -> (n_x,): x' = f(x, u).
    output : callable
        h(state) -> (1,): the output to predict.
    states : (n, n_x) array
        Operating points, for example every 50th state of a trajectory. They should move: at rest a
        nonlinear system can look simpler than it is.
    inputs : (n, n_u) array
        Input at every operating point; (n, 0) for a system without inputs.
    dt : float
        Sampling interval [s], the input held over it.
    state_names, input_names : sequence of str
        Names for the report; the input names become those of the NARX.
    output_name : str
        Name of the output.
    jacobian : callable, optional
        jacobian(state, input) -> (A, B), or None where only differences are possible.
    tolerance : float
        Relative singular values and coefficients up to it are taken as zero.

    Returns
    -------
    LagReport
        n_y, n_u per input, and the reading at every point.

    Raises
    ------
    ValueError
        If shapes or names do not fit, or the dynamics are not finite at a point.

    Notes
    -----
    Wietzke and Graichen, section 6. The steps of the differences follow the largest magnitude of
    every state and input over the points.

    Examples
    --------
    A Van der Pol oscillator sampled every 0.1 s:

    >>> report = lags_from_dynamics(
    ...     lambda x, u: [x[1], 2 * (1 - x[0] ** 2) * x[1] - x[0]], lambda x: [x[0]], [[1.0, 0.5]], [[]], 0.1,
    ...     state_names=["position", "velocity"], input_names=[], output_name="displacement",
    ... )
    >>> report.n_y, report.n_u
    (2, {})
    """
    x = matrix(states, len(state_names), "states")
    u = matrix(inputs, len(input_names), "inputs")
    if not 0 < len(x) == len(u):
        raise UserError(
            f"lags_from_dynamics: states and inputs need one row per point, got {len(x)} and {len(u)}"
        )
    scales = {"state_scale": _find_magnitudes(x), "input_scale": _find_magnitudes(u)}
    names = tuple(state_names), tuple(input_names)
    points = []
    for state, input in zip(x, u, strict=True):
        model = linearise(drift, output, state, input, jacobian=jacobian, **scales)
        if len(model.C) != 1:
            raise UserError(
                f"lags_from_dynamics: output must return one value, got {len(model.C)}; pick one"
            )
        points.append(_read_lags(discretise(model, dt), state, input, *names, tolerance))
    largest = np.max([point.lags for point in points], axis=0).tolist()
    n_u = dict(zip(input_names, largest[1:], strict=True))
    return LagReport(output_name, largest[0], n_u, dt, tuple(points), names[0])


def _find_magnitudes(values: Array) -> Array:
    largest = np.abs(values).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


def _read_lags(
    model: StateSpace,
    state: Array,
    input: Array,
    states: tuple[str, ...],
    inputs: tuple[str, ...],
    tolerance: float,
) -> PointLags:
    found = minimal(model, tolerance)
    a, b = transfer_function(found.model)
    reached = [
        minimal(model._replace(B=model.B[:, [j]]), tolerance).order > 0 for j in range(input.size)
    ]
    n_u = tuple(
        _find_last_lag(row, tolerance) if reaches else 0
        for row, reaches in zip(b, reached, strict=True)
    )
    n_y = _find_last_lag(a, tolerance, least=1.0)
    reasons = [f"no input moves {_describe_row(row, states)}" for row in found.not_moved]
    reasons += [
        f"the output never shows a change along {_describe_row(row, states)}"
        for row in found.not_shown
    ]
    reasons += [
        f"{name} does not reach the output" for name, n in zip(inputs, n_u, strict=True) if n == 0
    ]
    if n_y < found.order:
        reasons.append(f"{found.order - n_y} of {found.order} modes die out within one sample")
    return PointLags(state, input, found.order, n_y, n_u, found.kept, found.dropped, tuple(reasons))


def _find_last_lag(coefficients: Array, tolerance: float, least: float = 0.0) -> int:
    """Lag of the last coefficient above the tolerance, relative to the largest (or to `least`)."""
    largest = np.max(np.abs(coefficients), initial=least)
    counting = np.flatnonzero(np.abs(coefficients) > tolerance * largest)
    return int(counting[-1]) + 1 if counting.size else 0


def _describe_row(row: Array, names: tuple[str, ...]) -> str:
    """Text such as ``restoring_force - 5e+04 position``, its coefficient one first."""
    order = sorted(np.flatnonzero(row), key=lambda i: row[i] != 1)
    terms = [
        f"{'-' if row[i] < 0 else '+'} {'' if row[i] == 1 else f'{abs(row[i]):.4g} '}{names[i]}"
        for i in order
    ]
    return " ".join(terms).removeprefix("+ ")
