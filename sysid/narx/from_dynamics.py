"""Lags of a NARX model, derived from the dynamics of the system that it describes.

The system is linearised at operating points, sampled with held inputs, and reduced to its minimal
part, whose transfer function is::

    y[k] + a_1 y[k-1] + ... + a_n y[k-n]
        = sum over inputs j of  b_j1 u_j[k-1] + ... + b_jn u_j[k-n]

The last output lag with a coefficient is n_y, the last lag of input j is n_u of this input. At a
point where the linearised system is not minimal, it needs fewer lags than the nonlinear system
around it. Several points are therefore used, and the largest numbers count. The report names the
points that needed fewer lags, and why. For records without a model see `sysid.choose_lags`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm, matrix_balance, qr

from sysid.arrays import Array, matrix, real_numbers, vector
from sysid.errors import UserError
from sysid.narx.lags import Narx, Target

#: function (state, input) -> rates of the states, (n_x,)
Drift: TypeAlias = Callable[[Array, Array], ArrayLike]
#: function state -> outputs, (n_y,)
Output: TypeAlias = Callable[[Array], ArrayLike]
#: function (state, input) -> matrices A and B of the linearised drift, or None
Jacobian: TypeAlias = Callable[[Array, Array], "tuple[ArrayLike, ArrayLike] | None"]

# Step of a central difference relative to the magnitude [-]. With the cube root of the machine
# precision, truncation and rounding errors are about equal.
RELATIVE_STEP = float(np.cbrt(np.finfo(float).eps))


class StateSpace(NamedTuple):
    """Linear system without feed-through: x' = A x + B u, y = C x.

    In discrete time: x[k+1] = A x[k] + B u[k], y[k] = C x[k].
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
        jacobian(state, input) -> (A, B) in closed form. Where it returns None, differences are
        used.
    state_scale, input_scale : (n_x,), (n_u,) array, optional
        Typical magnitude of every component, above zero. By default it is the magnitude at the
        operating point, or 1 where that is zero.

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

    def rates(state: Array, input: Array, at: Array) -> Array:
        return _check_values(drift(state, input), x.shape, "drift", at)

    def outputs(state: Array) -> Array:
        return _check_values(output(state), None, "output", state)

    C = _differentiate(outputs, x, dx)
    closed_form = None if jacobian is None else jacobian(x, u)
    if closed_form is not None:
        point = np.concatenate([x, u])
        given_A, given_B = closed_form
        A = _check_values(given_A, (x.size, x.size), "jacobian", point)
        B = _check_values(given_B, (x.size, u.size), "jacobian", point)
    else:
        A = _differentiate(lambda state: rates(state, u, at=state), x, dx)
        B = _differentiate(lambda input: rates(x, input, at=input), u, du)
    return StateSpace(A, B if u.size else np.empty((x.size, 0)), C)


def discretise(model: StateSpace, dt: float) -> StateSpace:
    """Sample a linear system with the input held over each sample (zero-order hold).

    ::

        [Ad Bd; 0 I] = exp([A B; 0 0] dt)

    Parameters
    ----------
    model : StateSpace
        System in continuous time.
    dt : float
        Sampling interval [s].

    Returns
    -------
    StateSpace
        System in discrete time, with the same states.

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
    block[:n, :n] = model.A
    block[:n, n:] = model.B
    exponential = expm(block * dt)
    return StateSpace(exponential[:n, :n], exponential[:n, n:], model.C)


def _choose_steps(at: Array, scale: ArrayLike | None, name: str) -> Array:
    """Return the steps of the central differences."""
    if scale is None:
        return RELATIVE_STEP * np.where(at == 0, 1.0, np.abs(at))
    given = vector(scale, at.size, name)
    if (given <= 0).any():
        raise UserError(
            f"linearise: {name} must be above zero, got {given.tolist()}; give typical magnitudes"
        )
    return RELATIVE_STEP * given


def _differentiate(function: Callable[[Array], Array], at: Array, steps: Array) -> Array:
    """Return the matrix of partial derivatives, one column per component of `at`."""
    columns = []
    for i, step in enumerate(steps):
        high = at.copy()
        low = at.copy()
        high[i] += step
        low[i] -= step
        # `function` raises an error that names the point where a value is not finite.
        with np.errstate(invalid="ignore", divide="ignore"):
            columns.append((function(high) - function(low)) / (high[i] - low[i]))
    return np.column_stack(columns) if columns else np.empty((0, 0))


def _check_values(values: ArrayLike, shape: tuple[int, ...] | None, name: str, at: Array) -> Array:
    """Check the values of a function and return a copy, because it may reuse its buffer.

    Without a shape a vector of any length is accepted.
    """
    array = real_numbers(values, f"linearise: {name}").copy()
    has_shape = array.ndim == 1 if shape is None else array.shape == shape
    if not has_shape:
        raise UserError(f"linearise: {name} must return shape {shape or '(n,)'}, got {array.shape}")
    if not np.isfinite(array).all():
        raise UserError(
            f"linearise: {name} is {array.tolist()} at {at.tolist()}; "
            "choose an operating point further inside the range where it is defined"
        )
    return array


class Realisation(NamedTuple):
    """Minimal part of a sampled system with one output, and the parts that are removed.

    Without inputs everything counts as moved, by the initial state.
    """

    model: StateSpace  # minimal part, in its own coordinates
    not_moved: Array  # (q, n_x) for each row w, no input moves w x
    # (p, n_x) for each row d, the output never shows a change of the state along d
    not_shown: Array
    kept: float  # smallest relative singular value above the tolerance; inf if there was none
    dropped: float  # largest relative singular value taken as zero; 0 if there was none

    @property
    def order(self) -> int:
        """Number of states of the minimal part."""
        return len(self.model.A)


class Span(NamedTuple):
    """Span of some directions, and how clearly it was decided."""

    basis: Array  # (n, r) orthonormal
    kept: float  # as in `Realisation`
    dropped: float  # as in `Realisation`


def minimal(model: StateSpace, tolerance: float = 1e-7) -> Realisation:
    """Remove the parts that the inputs do not move and the parts that the output does not show.

    The algorithm works on D = A - I, which has the same controllable and observable subspaces as A
    and keeps them apart at fast sampling. First the states are balanced, so that states in metres
    and newtons can be compared, and inputs and output are scaled to one. The controllable part, the
    span of (B, D B, D^2 B, ...), is built block by block. A block is the image of the newest
    directions under D / |D|, without its part in the span so far. Its directions with singular
    values above the tolerance are added (staircase algorithm: Van Dooren 1981). The observable part
    follows from the transposed system.

    Parameters
    ----------
    model : StateSpace
        System in discrete time, with one output.
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
        If the model does not have one output, or the tolerance is not between 0 and 1.
    """
    if len(model.C) != 1:
        raise UserError(f"minimal: expected one output, got {len(model.C)}; take one row of C")
    if not 0 < tolerance < 1:
        raise UserError(
            f"minimal(tolerance={tolerance!r}): expected a number between 0 and 1; the default is "
            "1e-7"
        )
    scale = _balance_states(model)
    D = (model.A - np.eye(len(scale))) * scale / scale[:, None]
    B = model.B / scale[:, None]
    C = model.C * scale
    scaled_C = _normalise_columns(C.T)
    moved = Span(np.eye(len(D)), kept=np.inf, dropped=0.0)
    if B.shape[1]:
        moved = _build_span(D, _normalise_columns(B), tolerance)
    shown = _build_span(D.T, scaled_C, tolerance)
    V = moved.basis
    moved_and_shown = _build_span(V.T @ D.T @ V, V.T @ scaled_C, tolerance)
    W = V @ moved_and_shown.basis
    spans = (moved, shown, moved_and_shown)
    return Realisation(
        model=StateSpace(np.eye(W.shape[1]) + W.T @ D @ W, W.T @ B, C @ W),
        not_moved=_reduce_rows(_build_complement(V), 1 / scale, tolerance),
        not_shown=_reduce_rows(_build_complement(shown.basis), scale, tolerance),
        kept=min(span.kept for span in spans),
        dropped=max(span.dropped for span in spans),
    )


def transfer_function(model: StateSpace) -> tuple[Array, Array]:
    """Return the coefficients of the transfer function of a system with one output.

    ::

        y[k] + a_1 y[k-1] + ... + a_n y[k-n]
            = sum over inputs j of  b_j1 u_j[k-1] + ... + b_jn u_j[k-n]

    Parameters
    ----------
    model : StateSpace
        System in discrete time, with one output and n states.

    Returns
    -------
    a : (n,) array
        a_1 to a_n: the characteristic polynomial of A without its leading one.
    b : (n_u, n) array
        ``b_ji = h_ji + a_1 h_j(i-1) + ... + a_(i-1) h_j1`` with the impulse response
        ``h_ji = C A^(i-1) B_j``.
    """
    n = len(model.A)
    if n == 0:
        return np.empty(0), np.empty((model.B.shape[1], 0))
    a = np.real(np.poly(model.A))
    observability_rows = [model.C[0]]  # C, C A, ..., C A^(n-1)
    for _ in range(n - 1):
        observability_rows.append(observability_rows[-1] @ model.A)
    h = (np.array(observability_rows) @ model.B).T
    b = [np.convolve(a, response)[:n] for response in h]
    return a[1:], np.array(b).reshape(h.shape)


def _balance_states(model: StateSpace) -> Array:
    """Return scales (n_x,) that balance rows and columns of [D B; C 0].

    In this matrix the output is fed back to every input.
    """
    n, m = model.B.shape
    size = n + max(m, 1)
    loop = np.zeros((size, size))
    loop[:n, :n] = model.A - np.eye(n)
    loop[:n, n : n + m] = model.B
    loop[n:, :n] = model.C
    _, (scales, _) = matrix_balance(loop, permute=False, separate=True)
    return np.asarray(scales[:n])


def _normalise_columns(matrix: Array) -> Array:
    """Scale every column to norm one; a column of zeros stays."""
    sizes = np.linalg.norm(matrix, axis=0)
    return np.asarray(matrix / np.where(sizes > 0, sizes, 1.0))


def _build_span(D: Array, B: Array, tolerance: float) -> Span:
    """Return an orthonormal basis of the span of B, D B, D^2 B, ..."""
    block = B
    norm = np.linalg.norm(D, 2) if D.size else 0.0
    basis = np.empty((len(D), 0))
    kept = np.inf
    dropped = 0.0
    while block.shape[1] and basis.shape[1] < len(D):
        for _ in range(2):  # the second projection removes rounding errors of the first
            block = block - basis @ (basis.T @ block)
        directions, values, _ = np.linalg.svd(block, full_matrices=False)
        is_new = values > tolerance
        kept = min(kept, np.min(values[is_new], initial=np.inf))
        dropped = max(dropped, np.max(values[~is_new], initial=0.0))
        basis = np.hstack([basis, directions[:, is_new]])
        block = D @ directions[:, is_new]
        if norm > 0:
            block = block / norm
    if basis.shape[1] == len(D):
        dropped = 0.0  # the span is the whole space, so no direction was left out
    return Span(basis, float(kept), float(dropped))


def _build_complement(basis: Array) -> Array:
    """Return orthonormal rows that are orthogonal to the columns of a basis."""
    n, r = basis.shape
    if r == 0:
        return np.eye(n)
    left, _, _ = np.linalg.svd(basis)
    return np.asarray(left[:, r:].T)


def _reduce_rows(rows: Array, units: Array, tolerance: float) -> Array:
    """Reduce rows to a basis of the same row space, in the units of the states.

    Each row has a one in a column where the others are zero. Entries up to the tolerance are
    rounding errors and become zero.
    """
    if not len(rows):
        return rows
    _, order = qr(rows, pivoting=True, mode="r")
    pivots = order[: len(rows)]
    solved = np.linalg.solve(rows[:, pivots], rows)
    solved[:, pivots] = np.eye(len(rows))
    return np.where(np.abs(solved) > tolerance, solved, 0.0) * units / units[pivots][:, None]


class PointLags(NamedTuple):
    """Lags that are needed at one operating point."""

    state: Array  # (n_x,)
    input: Array  # (n_u,)
    order: int  # number of states of the minimal realisation
    n_y: int  # last output lag
    n_u: tuple[int, ...]  # last lag per input; 0: this input does not reach the output
    kept: float  # smallest relative singular value above the tolerance
    dropped: float  # largest relative singular value taken as zero; 0 if there was none
    reasons: tuple[str, ...]  # why there are fewer lags than states

    @property
    def lags(self) -> tuple[int, ...]:
        """Last lag of the output and of every input."""
        return (self.n_y, *self.n_u)


@dataclass(frozen=True)
class LagReport:
    """Lags of one output and of every input, with the operating points that they come from.

    `str(report)` lists the lags at the points, and why some points need fewer.
    """

    output: str  # name of the output
    n_y: int  # last output lag, largest over the points
    n_u: Mapping[str, int]  # last lag per input, largest over the points
    dt: float  # s, sampling interval
    points: tuple[PointLags, ...]
    states: tuple[str, ...]  # names of the states

    def narx(self, predict: Target = Target.change) -> Narx:
        """Return a `Narx` with these lags; inputs that do not reach the output are left out."""
        inputs = {name: n for name, n in self.n_u.items() if n > 0}
        return Narx({self.output: self.n_y}, inputs, predict=predict)

    def __str__(self) -> str:
        largest_by_name = {self.output: self.n_y, **self.n_u}
        largest = ", ".join(f"{n} of {name}" for name, n in largest_by_name.items())
        lines = [
            f"{largest}; the largest of {len(self.points)} operating points, sampled every "
            f"{self.dt:g} s"
        ]
        groups: dict[tuple[object, ...], list[PointLags]] = {}
        for point in self.points:
            groups.setdefault((point.lags, point.reasons), []).append(point)
        for group in groups.values():
            lines.extend(self._describe_group(group))
        return "\n".join(lines)

    def _describe_group(self, group: list[PointLags]) -> list[str]:
        """Describe points with the same lags for the same reasons."""
        first = group[0]
        names = (*self.states, *self.n_u)
        values = (*first.state, *first.input)
        named_values = zip(names, values, strict=True)
        where = ", ".join(f"{name} {value:.4g}" for name, value in named_values)
        if len(group) > 1:
            where += f" and {len(group) - 1} more"
        gap = f"singular values kept >= {min(point.kept for point in group):.1e}"
        if first.reasons:
            gap += f", dropped <= {max(point.dropped for point in group):.1e}"
        lags = ", ".join(str(n) for n in first.lags)
        lines = [f"  {lags} at {where} ({gap})"]
        lines += [f"    because {reason}" for reason in first.reasons]
        return lines


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
    """Derive the lags of one output from the dynamics, at one or more operating points.

    Parameters
    ----------
    drift : callable
        f(state, input) -> (n_x,): x' = f(x, u).
    output : callable
        h(state) -> (1,): the output to predict.
    states : (n, n_x) array
        Operating points, for example every 50th state of a trajectory. The system should move
        there: at rest a nonlinear system can look simpler than it is.
    inputs : (n, n_u) array
        Input at every operating point; (n, 0) for a system without inputs.
    dt : float
        Sampling interval [s], over which the input is held.
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
        n_y, n_u per input, and the lags at every point.

    Raises
    ------
    ValueError
        If shapes or names do not fit, or the dynamics are not finite at a point.

    Notes
    -----
    Wietzke and Graichen, section 6. The steps of the differences are proportional to the largest
    magnitude of every state and input over the points.

    Examples
    --------
    A Van der Pol oscillator sampled every 0.1 s:

    >>> report = lags_from_dynamics(
    ...     drift=lambda x, u: [x[1], 2 * (1 - x[0] ** 2) * x[1] - x[0]],
    ...     output=lambda x: [x[0]],
    ...     states=[[1.0, 0.5]],
    ...     inputs=[[]],
    ...     dt=0.1,
    ...     state_names=["position", "velocity"],
    ...     input_names=[],
    ...     output_name="displacement",
    ... )
    >>> report.n_y, report.n_u
    (2, {})
    """
    x = matrix(states, len(state_names), "states")
    u = matrix(inputs, len(input_names), "inputs")
    if not 0 < len(x) == len(u):
        raise UserError(
            f"lags_from_dynamics: states and inputs need one row per point, got {len(x)} and "
            f"{len(u)}"
        )
    state_scale = _find_magnitudes(x)
    input_scale = _find_magnitudes(u)
    points = []
    for state, input in zip(x, u, strict=True):
        model = linearise(
            drift,
            output,
            state,
            input,
            jacobian=jacobian,
            state_scale=state_scale,
            input_scale=input_scale,
        )
        if len(model.C) != 1:
            raise UserError(
                f"lags_from_dynamics: output must return one value, got {len(model.C)}; pick one"
            )
        sampled = discretise(model, dt)
        if not all(np.isfinite(matrix).all() for matrix in sampled):
            raise UserError(
                f"lags_from_dynamics: at the state {state.tolist()} with the input "
                f"{input.tolist()} the linear system that is sampled every {dt:g} s is not finite; "
                "take another operating point, or name the lags"
            )
        points.append(
            _lags_at_point(sampled, state, input, tuple(state_names), tuple(input_names), tolerance)
        )
    n_y, *n_u = np.max([point.lags for point in points], axis=0).tolist()
    return LagReport(
        output=output_name,
        n_y=n_y,
        n_u=dict(zip(input_names, n_u, strict=True)),
        dt=dt,
        points=tuple(points),
        states=tuple(state_names),
    )


def _find_magnitudes(values: Array) -> Array:
    """Return the largest magnitude of every column, 1 where it is zero."""
    largest = np.abs(values).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


def _lags_at_point(
    model: StateSpace,
    state: Array,
    input: Array,
    states: tuple[str, ...],
    inputs: tuple[str, ...],
    tolerance: float,
) -> PointLags:
    """Return the lags of a sampled system, and why they are fewer than its states."""
    realisation = minimal(model, tolerance)
    a, b = transfer_function(realisation.model)
    n_u = []
    for j, coefficients in enumerate(b):
        of_input = minimal(model._replace(B=model.B[:, [j]]), tolerance)
        reaches_output = of_input.order > 0
        n_u.append(_find_last_lag(coefficients, tolerance) if reaches_output else 0)
    n_y = _find_last_lag(a, tolerance, least=1.0)
    reasons = []
    for row in realisation.not_moved:
        reasons.append(f"no input moves {_describe_row(row, states)}")
    for row in realisation.not_shown:
        reasons.append(f"the output never shows a change along {_describe_row(row, states)}")
    for name, n in zip(inputs, n_u, strict=True):
        if n == 0:
            reasons.append(f"{name} does not reach the output")
    order = realisation.order
    if n_y < order:
        reasons.append(f"{order - n_y} of {order} modes die out within one sample")
    return PointLags(
        state=state,
        input=input,
        order=order,
        n_y=n_y,
        n_u=tuple(n_u),
        kept=realisation.kept,
        dropped=realisation.dropped,
        reasons=tuple(reasons),
    )


def _find_last_lag(coefficients: Array, tolerance: float, least: float = 0.0) -> int:
    """Return the lag of the last coefficient that is not negligible; 0 if there is none.

    A coefficient is negligible up to the tolerance times the largest one, or times `least` if that
    is larger.
    """
    largest = np.max(np.abs(coefficients), initial=least)
    lags = 1 + np.flatnonzero(np.abs(coefficients) > tolerance * largest)
    return int(lags[-1]) if lags.size else 0


def _describe_row(row: Array, names: tuple[str, ...]) -> str:
    """Return text such as ``restoring_force - 5e+04 position``; the coefficient one is first."""
    order = sorted(np.flatnonzero(row), key=lambda i: row[i] != 1)
    terms = []
    for i in order:
        sign = "-" if row[i] < 0 else "+"
        factor = "" if row[i] == 1 else f"{abs(row[i]):.4g} "
        terms.append(f"{sign} {factor}{names[i]}")
    return " ".join(terms).removeprefix("+ ")
