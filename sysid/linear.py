"""Linear state-space models: linearised at an operating point, sampled with held inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import expm

from sysid.arrays import vector

Array: TypeAlias = NDArray[np.float64]
Drift: TypeAlias = Callable[[Array, Array], ArrayLike]  # (state, input) -> rate of the state, (n_x,)
Output: TypeAlias = Callable[[Array], ArrayLike]  # state -> output, (n_y,)
Jacobian: TypeAlias = Callable[[Array, Array], "tuple[ArrayLike, ArrayLike] | None"]  # (state, input) -> A, B

RELATIVE_STEP = float(np.cbrt(np.finfo(float).eps))  # best for central differences: truncation meets rounding


class StateSpace(NamedTuple):
    """Linear system without feed-through: x' = A x + B u, y = C x, or x[k+1] = A x[k] + B u[k] once sampled."""

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
        jacobian(state, input) -> (A, B) in closed form; where it returns None, differences are taken.
    state_scale, input_scale : (n_x,), (n_u,) array, optional
        Typical magnitude of every component, above zero; by default its magnitude here, 1 where that is zero.

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
    The error of a central difference is of the order eps^(2/3) = 4e-11 of the typical slope. At a kink, such
    as |v| at v = 0, it gives the mean of both slopes.
    """
    x, u = vector(state, None, "state"), vector(input, None, "input")
    dx, du = _steps(x, state_scale, "state_scale"), _steps(u, input_scale, "input_scale")
    C = _differences(lambda at: _values(output(at), None, "output", at), x, dx)
    given = None if jacobian is None else jacobian(x, u)
    if given is not None:
        A, B = (np.array(part, dtype=np.float64) for part in given)
        _check_jacobian(A, B, x, u)
        return StateSpace(A, B, C)
    A = _differences(lambda at: _values(drift(at, u), x.size, "drift", at), x, dx)
    B = _differences(lambda at: _values(drift(x, at), x.size, "drift", at), u, du)
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
        raise ValueError(f"discretise(dt={dt!r}): expected seconds above zero; give the sampling interval")
    n, m = model.B.shape
    block = np.zeros((n + m, n + m))
    block[:n, :n], block[:n, n:] = model.A, model.B
    exponential = expm(block * dt)
    return StateSpace(exponential[:n, :n], exponential[:n, n:], model.C)


def _steps(at: Array, scale: ArrayLike | None, name: str) -> Array:
    if scale is None:
        return RELATIVE_STEP * np.where(at == 0, 1.0, np.abs(at))
    given = vector(scale, at.size, name)
    if (given <= 0).any():
        raise ValueError(f"linearise: {name} must be above zero, got {given.tolist()}; give typical magnitudes")
    return RELATIVE_STEP * given


def _differences(function: Callable[[Array], Array], at: Array, steps: Array) -> Array:
    """Matrix of partial derivatives, one column per component of `at`."""
    columns = []
    for i, step in enumerate(steps):
        high, low = at.copy(), at.copy()
        high[i] += step
        low[i] -= step
        with np.errstate(invalid="ignore", divide="ignore"):  # what is not finite is an error, with its place
            columns.append((function(high) - function(low)) / (high[i] - low[i]))
    return np.column_stack(columns) if columns else np.empty((0, 0))


def _values(values: ArrayLike, size: int | None, name: str, at: Array) -> Array:
    array = np.array(values, dtype=np.float64)  # a copy: the function may reuse its buffer
    if array.ndim != 1 or (size is not None and array.size != size):
        raise ValueError(f"linearise: {name} must return shape ({'n' if size is None else size},), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"linearise: {name} is {array.tolist()} at {at.tolist()}; "
            "choose an operating point further inside the range where it is defined"
        )
    return array


def _check_jacobian(A: Array, B: Array, x: Array, u: Array) -> None:
    expected = ((x.size, x.size), (x.size, u.size))
    if (A.shape, B.shape) != expected:
        raise ValueError(f"linearise: jacobian must return A, B of shapes {expected}, got {(A.shape, B.shape)}")
    if not (np.isfinite(A).all() and np.isfinite(B).all()):
        raise ValueError(
            f"linearise: jacobian is not finite at state {x.tolist()}, input {u.tolist()}; choose an operating "
            "point further inside the range where it is defined"
        )


__all__ = ["StateSpace", "discretise", "linearise"]
