"""Lags of a NARX model, read from the dynamics of the system that it shall describe.

Linearise at operating points, sample with held inputs, keep the minimal part, read the transfer function

    y[k] + a_1 y[k-1] + ... + a_ny y[k-ny] = sum over inputs j of b_j1 u_j[k-1] + ... + b_jn u_j[k-n_j]:

its last output lag is n_y, its last lag of input j is n_u of that input. A point where the linearised system
is not minimal needs fewer lags than the nonlinear system does around it, so several points are read and the
largest numbers count; the report says which points needed fewer and why. For records without a model see
`sysid.lag_order`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import matrix
from sysid.linear import Drift, Jacobian, Output, StateSpace, discretise, linearise
from sysid.narx import Narx, Target
from sysid.realisation import minimal, transfer_function

Array: TypeAlias = NDArray[np.float64]


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
        return Narx({self.output: self.n_y}, {name: n for name, n in self.n_u.items() if n}, predict=predict)

    def __str__(self) -> str:
        largest = ", ".join(f"{n} of {name}" for name, n in {self.output: self.n_y, **self.n_u}.items())
        lines = [f"lags: {largest}; the largest of {len(self.points)} operating points, sampled every {self.dt:g} s"]
        groups: dict[tuple[object, ...], list[PointLags]] = {}
        for point in self.points:
            groups.setdefault((point.lags, point.reasons), []).append(point)
        for group in groups.values():
            lines.extend(self._describe(group))
        return "\n".join(lines)

    def _describe(self, group: list[PointLags]) -> list[str]:
        first, names = group[0], (*self.states, *self.n_u)
        values = zip(names, (*first.state, *first.input), strict=True)
        where = ", ".join(f"{name} {value:.4g}" for name, value in values)
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        gap = f"singular values kept >= {min(point.kept for point in group):.1e}"
        if first.reasons:
            gap += f", dropped <= {max(point.dropped for point in group):.1e}"
        lags = ", ".join(str(n) for n in first.lags)
        return [f"  {lags} at {where}{others} ({gap})", *(f"    because {reason}" for reason in first.reasons)]


class _Names(NamedTuple):
    states: tuple[str, ...]
    inputs: tuple[str, ...]


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
        Operating points, for example every 50th state of a trajectory. They should move: at rest a nonlinear
        system can look simpler than it is.
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
    Wietzke and Graichen, section 6. The steps of the differences follow the largest magnitude of every state and
    input over the points.

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
        raise ValueError(f"lags_from_dynamics: states and inputs need one row per point, got {len(x)} and {len(u)}")
    scales = {"state_scale": _typical(x), "input_scale": _typical(u)}
    names = _Names(tuple(state_names), tuple(input_names))
    points = []
    for state, input in zip(x, u, strict=True):
        model = linearise(drift, output, state, input, jacobian=jacobian, **scales)
        if len(model.C) != 1:
            raise ValueError(f"lags_from_dynamics: output must return one value, got {len(model.C)}; pick one")
        points.append(_read(discretise(model, dt), state, input, names, tolerance))
    largest = np.max([point.lags for point in points], axis=0).tolist()
    n_u = dict(zip(input_names, largest[1:], strict=True))
    return LagReport(output_name, largest[0], n_u, dt, tuple(points), names.states)


def _typical(values: Array) -> Array:
    largest = np.abs(values).max(axis=0)
    return np.where(largest > 0, largest, 1.0)


def _read(model: StateSpace, state: Array, input: Array, names: _Names, tolerance: float) -> PointLags:
    found = minimal(model, tolerance)
    a, b = transfer_function(found.model)
    reached = [minimal(model._replace(B=model.B[:, [j]]), tolerance).order > 0 for j in range(input.size)]
    n_u = tuple(_last(row, tolerance) if reaches else 0 for row, reaches in zip(b, reached, strict=True))
    n_y = _last(a, tolerance, least=1.0)
    reasons = [f"no input moves {_combination(row, names.states)}" for row in found.not_moved]
    reasons += [f"the output never shows a change along {_combination(row, names.states)}" for row in found.not_shown]
    reasons += [f"{name} does not reach the output" for name, n in zip(names.inputs, n_u, strict=True) if n == 0]
    if n_y < found.order:
        reasons.append(f"{found.order - n_y} of {found.order} modes die out within one sample")
    return PointLags(state, input, found.order, n_y, n_u, found.kept, found.dropped, tuple(reasons))


def _last(coefficients: Array, tolerance: float, least: float = 0.0) -> int:
    """Lag of the last coefficient above the tolerance, relative to the largest (or to `least`)."""
    largest = np.max(np.abs(coefficients), initial=least)
    counting = np.flatnonzero(np.abs(coefficients) > tolerance * largest)
    return int(counting[-1]) + 1 if counting.size else 0


def _combination(row: Array, names: tuple[str, ...]) -> str:
    """Text such as ``restoring_force - 5e+04 position``, its coefficient one first."""
    order = sorted(np.flatnonzero(row), key=lambda i: row[i] != 1)
    terms = [f"{'-' if row[i] < 0 else '+'} {'' if row[i] == 1 else f'{abs(row[i]):.4g} '}{names[i]}" for i in order]
    return " ".join(terms).removeprefix("+ ")


__all__ = ["LagReport", "PointLags", "lags_from_dynamics"]
