"""The error of a simulation against measured records as a function of free parameters."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.integrators import DivergenceError, integrate
from simulators.interpolation import Interpolation
from simulators.settings import check_ascending, refuse
from simulators.start import input_matrix, names_of, outputs_of, start_of
from simulators.system import System

Measured = tuple[NDArray[np.float64], NDArray[np.float64]]  # input (n, n_u) and output (n, n_y)

FAILED = 1e3  # scaled residual of a simulation that failed


class Record(NamedTuple):
    """One measured record."""

    input: ArrayLike  # (n, n_u), or (n,) for a single input
    output: ArrayLike  # (n, n_y), or (n,) for a single output


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
    logarithmic: bool = False  # estimated on a logarithmic scale, for positive parameters
    own: bool = False  # every record has its own value, for example an initial state

    def __post_init__(self) -> None:
        check_ascending(self, "lower", "upper")
        if self.logarithmic and self.lower <= 0:
            raise refuse(self, "lower", "a number > 0 for a logarithmic parameter")

    def value(self, share: float) -> float:
        """Return the value at a share of the range, 0 at the lower and 1 at the upper bound."""
        if self.logarithmic:
            return float(self.lower * (self.upper / self.lower) ** share)
        return float(self.lower + (self.upper - self.lower) * share)

    def share(self, value: float) -> float:
        """Return the share of the range at which a value lies; the inverse of `value`."""
        if self.logarithmic:
            return float(np.log(value / self.lower) / np.log(self.upper / self.lower))
        return float((value - self.lower) / (self.upper - self.lower))

    def slope(self, share: float) -> float:
        """Return the derivative of `value` with respect to the share."""
        if self.logarithmic:
            return float(self.value(share) * np.log(self.upper / self.lower))
        return float(self.upper - self.lower)


@dataclass(frozen=True, eq=False)
class OutputError:
    """Errors of the simulation over the shares of the ranges of the free parameters."""

    system: System
    records: tuple[Measured, ...]
    free: tuple[FreeParameter, ...]
    window: int
    interpolation: Interpolation
    counts: Counter[str] = field(default_factory=Counter)  # evaluations, refused, diverged

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(p.name if r is None else f"{p.name}[{r}]" for p, r in self.columns)

    @cached_property
    def columns(self) -> list[tuple[FreeParameter, int | None]]:
        """Parameter and record of each column; None stands for all records."""
        return [(p, r) for p in self.free for r in (range(len(self.records)) if p.own else (None,))]

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """Standard deviations (n_y,) of the measured outputs; 1 for a constant one."""
        spread = np.concatenate([y[self.window :] for _, y in self.records]).std(axis=0)
        return np.where(spread > 0, spread, 1.0)

    def values(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values (n_p,) of the columns."""
        return np.array([p.value(share) for (p, _), share in zip(self.columns, shares, strict=True)])

    def slopes(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivatives (n_p,) of the values with respect to the shares."""
        return np.array([p.slope(share) for (p, _), share in zip(self.columns, shares, strict=True)])

    def systems(self, shares: NDArray[np.float64]) -> tuple[System, ...]:
        """Return the system of each record; ValueError where it refuses its settings."""
        values: list[Any] = [
            (p.name, r, v) for (p, r), v in zip(self.columns, self.values(shares).tolist(), strict=True)
        ]
        own = ({name: value for name, r, value in values if r in (None, record)} for record in range(len(self.records)))
        return tuple(replace(self.system, **fields) for fields in own)

    def simulated(self, shares: NDArray[np.float64]) -> list[NDArray[np.float64]] | None:
        """Return the outputs (n, n_y) of every record without noise; None where that fails."""
        self.counts["evaluations"] += 1
        try:
            systems = self.systems(shares)
        except ValueError:  # for example a level above the brim
            self.counts["refused"] += 1
            return None
        try:
            pairs = zip(systems, self.records, strict=True)
            return [_output(system, u, self.interpolation) for system, (u, _) in pairs]
        except DivergenceError:
            self.counts["diverged"] += 1
            return None

    def succeeds(self, shares: NDArray[np.float64]) -> bool:
        """Whether the records can be simulated."""
        return self.simulated(shares) is not None

    def errors(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scaled errors of all records behind each other; FAILED where the simulation fails."""
        simulated, scale = self.simulated(shares), self.scale
        if simulated is None:
            return np.full(sum(y[self.window :].size for _, y in self.records), FAILED)
        pairs = zip(simulated, self.records, strict=True)
        return np.concatenate([((yhat - y)[self.window :] / scale).ravel() for yhat, (_, y) in pairs])


def _output(system: System, u: NDArray[np.float64], interpolation: Interpolation) -> NDArray[np.float64]:
    """Simulate the outputs (n, n_y) of a checked input from the system's own initial state, without noise."""
    silent = np.zeros((len(u), len(system.noises)))
    return outputs_of(system, integrate(system, system.initial_state(), u, silent, interpolation).states)


def output_error(
    system: System,
    records: Sequence[Record | tuple[ArrayLike, ArrayLike]],
    free: Sequence[FreeParameter],
    window: int,
    interpolation: Interpolation,
) -> OutputError:
    """Check and combine what `simulators.grey_box.fit_output_error` is given.

    Raises
    ------
    ValueError
        As stated there.
    """
    _check_free(system, free)
    measured = tuple(_measured(system, *record, f"record {r}") for r, record in enumerate(records))
    problem = OutputError(system, measured, tuple(free), window, interpolation)
    lengths = [len(y) for _, y in measured]
    n_errors = sum(n - window for n in lengths) * len(system.outputs)
    if not 0 <= window < min(lengths, default=0) or n_errors <= len(problem.columns):
        raise ValueError(
            f"fit_output_error(window={window}): expected more errors after the window, one at least in each record, "
            f"than the {len(problem.columns)} free parameters, got records of {lengths} samples; give longer records, "
            "a smaller window or fewer parameters"
        )
    return problem


def _check_free(system: System, free: Sequence[FreeParameter]) -> None:
    """Check that every free parameter is a field of its own and starts between its bounds."""
    names = [p.name for p in free]
    known = [f.name for f in fields(system) if f.name != "dt" and isinstance(getattr(system, f.name), float)]
    if not names or len(set(names)) < len(names) or not set(names) <= set(known):
        raise ValueError(
            f"fit_output_error: expected free parameters among {known}, each once, got {names}; change free"
        )
    for p in free:
        value = getattr(system, p.name)
        if not p.lower <= value <= p.upper:
            raise ValueError(
                f"fit_output_error: expected {p.name} of {type(system).__name__} to start from {p.lower:g} to "
                f"{p.upper:g}, got {value!r}; change it or its bounds"
            )


def _measured(system: System, input: ArrayLike, output: ArrayLike, title: str) -> Measured:
    """Return a record as arrays; the system can be simulated with its input."""
    y = np.array(output, dtype=np.float64)
    y = y[:, np.newaxis] if y.ndim == 1 and len(system.outputs) == 1 else y
    if y.ndim != 2 or y.shape[1] != len(system.outputs) or not np.all(np.isfinite(y)):
        raise ValueError(
            f"fit_output_error: expected finite outputs {names_of(system.outputs)} as columns in {title}, got shape "
            f"{y.shape} with {np.count_nonzero(~np.isfinite(y))} values that are not finite; cut or repair it"
        )
    u = input_matrix(system, input, len(y))
    start_of(system, None, u)
    return u, y
