"""Integration of systems with the compiled Runge-Kutta kernels, and what they say when a state diverges."""

import math
import operator
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulators.interpolation import Interpolation, Piece
from simulators.runge_kutta import CANDIDATE, LARGEST, WORK_ROWS, drift_address, follow, step
from simulators.system import System
from simulators.vector import parameter_vector

Stepper = Callable[[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], int]


class DivergenceError(ArithmeticError):
    """A state left the finite numbers; the message names system, time, state and the last finite values."""


class Path(NamedTuple):
    """States over a record."""

    states: NDArray[np.float64]  # (n, n_x)
    n_clipped: int  # substeps that ended with a state set to one of its limits


def _divergence(
    system: System, time: float, state: NDArray[np.float64], candidate: NDArray[np.float64]
) -> DivergenceError:
    """Describe a substep at `time` [s] that led from `state` to the bad `candidate`."""
    names = [signal.name for signal in system.states]
    bad = next(i for i in range(len(names)) if not abs(candidate[i]) <= LARGEST)
    finite = ", ".join(
        f"{signal.name}={value:.6g} {signal.unit}" for signal, value in zip(system.states, state, strict=True)
    )
    return DivergenceError(
        f"{type(system).__name__} diverged at time {time:.6g} s (sample {int(time / system.dt + 1e-9)}): "
        f"state '{names[bad]}' became {candidate[bad]:.3g}, expected a magnitude of at most {LARGEST:g}; "
        f"last finite state: {finite}. Use more substeps (now {system.substeps} per dt={system.dt:g} s), or "
        "check parameters, input and noise"
    )


def check_drift(system: System, state: NDArray[np.float64], input: NDArray[np.float64]) -> None:
    """Evaluate the drift once in plain Python, where a wrong index raises, and check that it is complete.

    Raises
    ------
    ValueError
        If the drift raises, or a component of x' at the start of the run is not finite, for example never written.
    """
    noise, parameters = np.zeros(len(system.noises)), parameter_vector(system)
    derivative = np.full(len(system.states), np.nan)
    try:
        with np.errstate(all="ignore"):
            system.drift(0.0, state, input, noise, parameters, derivative)
    except Exception as error:  # whatever a user's drift raises
        sizes = f"{state.size} states, {input.size} inputs, {noise.size} noises and {parameters.size} parameters"
        raise ValueError(_raised(system, error, sizes)) from error
    for signal, value in zip(system.states, derivative.tolist(), strict=True):
        if not math.isfinite(value):
            raise ValueError(
                f"{type(system).__name__}.drift gave {value} for the rate of '{signal.name}' at time 0: "
                "expected a finite number; write every component of derivative, or check initial state, "
                "input and parameters"
            )


def _raised(system: System, error: Exception, sizes: str) -> str:
    """Describe an error that the drift raised, with its line where there is one."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    line = f" (line {frames[-1].lineno} of {frames[-1].filename}: {frames[-1].line})" if frames else ""
    return (
        f"{type(system).__name__}.drift raised {type(error).__name__}: {error}{line}. It was called at time 0 with "
        f"{sizes}, as drift(time, state, input, noise, parameters, derivative): correct the drift, or what the system "
        "declares"
    )


def stepper(system: System) -> Stepper:
    """Prepare the integration of a system sample by sample.

    Parameters
    ----------
    system : System
        System to integrate.

    Returns
    -------
    callable
        ``advance(time, state, inputs, noise) -> n_clipped``: moves `state`, a C-contiguous float64 array like
        the others, in place from `time` [s] to `time + dt`; `inputs` is (1, n_u), held, or (2 substeps + 1,
        n_u), its values at every half substep. Raises DivergenceError.
    """
    _, address, parameters, limits, dt, substeps = problem_of(system)
    work = np.empty((WORK_ROWS, len(system.states)))

    def advance(
        time: float, state: NDArray[np.float64], inputs: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> int:
        done, n_clipped = step(address, time, dt, substeps, state, inputs, noise, parameters, limits, work)
        if done < substeps:
            raise _divergence(system, time + done * dt / substeps, state, work[CANDIDATE])
        return int(n_clipped)

    return advance


class Problem(NamedTuple):
    """A system as the kernels take it."""

    system: System
    address: Any  # of the drift
    parameters: NDArray[np.float64]  # (n_p,)
    limits: NDArray[np.float64]  # (2, n_x)
    dt: float  # s
    substeps: int


def problem_of(system: System) -> Problem:
    """Prepare a system for the kernels.

    Raises
    ------
    ValueError
        If its parameters or limits are not what the kernels take.
    TypeError
        If its drift cannot be compiled.
    """
    address, parameters = drift_address(system.drift), parameter_vector(system)
    return Problem(system, address, parameters, limits_of(system), float(system.dt), int(system.substeps))


def integrate(
    system: System,
    initial_state: NDArray[np.float64],
    input: NDArray[np.float64],
    noise: NDArray[np.float64],
    interpolation: Interpolation | str = Interpolation.held,
) -> Path:
    """Integrate a system over a record; the noise is held over each sample.

    Parameters
    ----------
    system : System
        System to integrate.
    initial_state : (n_x,) array
        State at time zero.
    input, noise : (n, n_u), (n, n_w) C-contiguous float64 array
        Row k belongs to time k dt.
    interpolation : Interpolation
        The input between its samples.

    Returns
    -------
    Path
        States (n, n_x) at the times k dt. The last row of the noise has no effect, nor has that of an input
        that is held.

    Raises
    ------
    DivergenceError
        If a state leaves the finite numbers.
    """
    pieces = Interpolation(interpolation).pieces(input, system.substeps)
    return follow_pieces(problem_of(system), initial_state, pieces, noise)


def follow_pieces(
    problem: Problem, initial_state: NDArray[np.float64], pieces: Iterable[Piece], noise: NDArray[np.float64]
) -> Path:
    """Do what `integrate` does, with a prepared system and a prepared input."""
    system, address, parameters, limits, dt, substeps = problem
    states = np.empty((len(noise), len(initial_state)))
    states[0] = initial_state
    work, n_clipped = np.empty((WORK_ROWS, states.shape[1])), 0
    for first, last, values, rows in pieces:
        part = states[first : last + 1]
        k, done, clipped = follow(
            address, first, dt, substeps, part, values, rows, noise[first : last + 1], parameters, limits, work
        )
        n_clipped += clipped
        if k < last - first:
            time = (first + k) * dt + done * dt / substeps
            raise _divergence(system, time, states[first + k + 1], work[CANDIDATE])
    return Path(states, n_clipped)


def limits_of(system: System) -> NDArray[np.float64]:
    """Return the lower and upper limits of the states as (2, n_x).

    Raises
    ------
    ValueError
        If there are not two limits per state, the lower one not above the upper one.
    """
    given = system.state_limits()
    try:
        limits = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        limits = np.empty(0)
    if limits.shape != (2, len(system.states)) or not all(map(operator.le, *limits.tolist())):
        raise ValueError(
            f"{type(system).__name__}.state_limits() returned {given!r}: expected lower and upper limits of "
            f"{len(system.states)} states, the lower not above the upper; return two arrays, inf where there is none"
        )
    return limits
