"""Minimal realisation: what of a sampled linear system its inputs move and its output shows."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import matrix_balance, qr

from sysid.linear import StateSpace

Array: TypeAlias = NDArray[np.float64]


class Realisation(NamedTuple):
    """Minimal part of a sampled system with one output, and what is not in it.

    Without inputs everything counts as moved: the initial state moves it.
    """

    model: StateSpace  # minimal, in coordinates of its own
    not_moved: Array  # (q, n_x): row w says that w x is moved by no input
    not_shown: Array  # (p, n_x): row d says that a change of the state along d never shows in the output
    kept: float  # smallest relative singular value that counted; inf if none was needed
    dropped: float  # largest relative singular value that did not count; 0 if there was none

    @property
    def order(self) -> int:
        """Number of states of the minimal part."""
        return len(self.model.A)


class _Span(NamedTuple):
    basis: Array  # (n, r) orthonormal
    kept: float
    dropped: float


def minimal(model: StateSpace, tolerance: float = 1e-7) -> Realisation:
    """Remove what the inputs do not move and what the output does not show.

    Works on D = A - I, which has the same controllable and observable subspaces as A and keeps them apart at fast
    sampling. States are balanced first, so that metres and newtons compare; inputs and output are
    scaled to one. The span of (B, D B, D^2 B, ...) is built block by block: from the image under D / |D| of the
    newest directions, what lies in the span already is removed, and the singular values of the rest decide
    (staircase algorithm: Van Dooren 1981). The observable part follows from the transposed system.

    Parameters
    ----------
    model : StateSpace
        In discrete time, with one output.
    tolerance : float
        Singular values up to it are taken as zero. Rounding leaves about 1e-16, central differences 1e-10.

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
        raise ValueError(f"minimal: expected one output, got {len(model.C)}; take one row of C")
    if not 0 < tolerance < 1:
        raise ValueError(f"minimal(tolerance={tolerance!r}): expected a number between 0 and 1; the default is 1e-7")
    scale = _state_scale(model)
    D = (model.A - np.eye(len(scale))) * scale / scale[:, None]
    B, C = model.B / scale[:, None], model.C * scale
    moved = _moved(D, _unit_columns(B), tolerance)
    shown = _span(D.T, _unit_columns(C.T), tolerance)
    V = moved.basis
    both = _span(V.T @ D.T @ V, V.T @ _unit_columns(C.T), tolerance)
    W = V @ both.basis
    A = np.eye(W.shape[1]) + W.T @ D @ W
    return Realisation(
        StateSpace(A, W.T @ B, C @ W),
        _readable(_complement(moved.basis), 1 / scale, tolerance),
        _readable(_complement(shown.basis), scale, tolerance),
        min(moved.kept, shown.kept, both.kept),
        max(moved.dropped, shown.dropped, both.dropped),
    )


def transfer_function(model: StateSpace) -> tuple[Array, Array]:
    """Coefficients of y[k] + a_1 y[k-1] + ... + a_n y[k-n] = sum over inputs j of b_j1 u_j[k-1] + ... + b_jn u_j[k-n].

    Parameters
    ----------
    model : StateSpace
        In discrete time, with one output and n states.

    Returns
    -------
    a : (n,) array
        a_1 to a_n: the characteristic polynomial of A without its leading one.
    b : (n_u, n) array
        b_ji = h_ji + a_1 h_j(i-1) + ... + a_(i-1) h_j1 with the impulse response h_ji = C A^(i-1) B_j.
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


def _state_scale(model: StateSpace) -> Array:
    """Scales that balance rows and columns of [D B; C 0], the output fed back to every input."""
    n, m = model.B.shape
    loop = np.zeros((n + max(m, 1),) * 2)
    loop[:n, :n] = model.A - np.eye(n)
    loop[:n, n : n + m] = model.B
    loop[n:, :n] = model.C
    scale: Array = matrix_balance(loop, permute=False, separate=True)[1][0][:n]
    return scale


def _moved(D: Array, B: Array, tolerance: float) -> _Span:
    return _span(D, B, tolerance) if B.shape[1] else _Span(np.eye(len(D)), np.inf, 0.0)


def _unit_columns(matrix: Array) -> Array:
    sizes = np.linalg.norm(matrix, axis=0)
    scaled: Array = matrix / np.where(sizes > 0, sizes, 1.0)
    return scaled


def _span(D: Array, B: Array, tolerance: float) -> _Span:
    """Orthonormal basis of the span of B, D B, D^2 B, ..."""
    block = B
    norm = np.linalg.norm(D, 2) if D.size else 0.0
    basis, kept, dropped = np.empty((len(D), 0)), np.inf, 0.0
    while block.shape[1] and basis.shape[1] < len(D):
        for _ in range(2):  # the second time removes what rounding left
            block = block - basis @ (basis.T @ block)
        directions, values, _ = np.linalg.svd(block, full_matrices=False)
        new = values > tolerance
        kept = min(kept, *values[new], np.inf)
        dropped = max(dropped, *values[~new], 0.0)
        basis = np.hstack([basis, directions[:, new]])
        block = D @ directions[:, new] / (norm or 1.0)
    return _Span(basis, float(kept), float(dropped) if basis.shape[1] < len(D) else 0.0)


def _complement(basis: Array) -> Array:
    """Orthonormal rows orthogonal to the columns of a basis."""
    n, r = basis.shape
    full: Array = np.linalg.svd(basis, full_matrices=True)[0] if r else np.eye(n)
    return full[:, r:].T


def _readable(rows: Array, units: Array, tolerance: float) -> Array:
    """The same row space in the states' units: a one per row that is zero in the others, no rounding left."""
    if not len(rows):
        return rows
    pivots = qr(rows, pivoting=True, mode="r")[1][: len(rows)]
    solved = np.linalg.solve(rows[:, pivots], rows)
    solved[:, pivots] = np.eye(len(rows))
    return np.where(np.abs(solved) > tolerance, solved, 0.0) * units / units[pivots][:, None]


__all__ = ["Realisation", "minimal", "transfer_function"]
