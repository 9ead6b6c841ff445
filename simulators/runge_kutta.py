"""The classical Runge-Kutta method, compiled once for all systems.

The kernels call the drift through its address. So they do not depend on the system: numba compiles
them once and keeps them on disk, and a new system costs only the compilation of its drift. All
kernels that call each other are in this file, because numba renews its disk cache only when the
file of a kernel changes. With ``NUMBA_DISABLE_JIT=1`` the same kernels run as plain Python.
"""

import functools
import math
import re
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.core import config
from numba.extending import intrinsic

from simulators.errors import SimulationError, UserError, UserTypeError
from simulators.interpolation import Interpolation, Piece
from simulators.settings import Array
from simulators.system import System, limits_of, names_of, read_vector

Drift = Callable[..., None]


PLAIN = bool(vars(config)["DISABLE_JIT"])  # NUMBA_DISABLE_JIT=1: the kernels run as plain Python


# a state beyond this magnitude counts as diverged: no physical quantity is as large
LARGEST = 1e100


WORK_ROWS = 6  # four slopes, the state of a stage, the candidate


CANDIDATE = 5  # row of the work buffer with the state after the substep


SIGNATURE = types.void(types.float64, *(5 * (types.Array(types.float64, 1, "C"),)))  # of a drift


kernel = np.errstate(all="ignore") if PLAIN else njit(cache=True, error_model="numpy", nogil=True)


@functools.cache
def compile_drift(drift: Drift) -> Any:
    """Compile a drift, once per function and process; a shipped one once, and numba keeps it on
    disk.

    numba's disk cache notices only changes of the drift's own file: what the drift of a user calls
    may be elsewhere.

    Parameters
    ----------
    drift : callable
        `System.drift`: (time, state, input, noise, parameters, derivative) -> None.

    Returns
    -------
    object
        What numba compiled, with its library.

    Raises
    ------
    TypeError
        If numba cannot compile the drift.
    """
    is_shipped = drift.__module__.startswith("simulators.systems.")
    try:
        formula = njit(SIGNATURE, cache=is_shipped, error_model="numpy")(drift)
    except Exception as error:  # numba raises more than its NumbaError
        raise UserTypeError(
            f"{drift.__qualname__}, the drift of a system: expected scalar Python that numba compiles, got: "
            f"{_summarise_error(error)}; write the drift with indexed arrays, floats and math functions, or set "
            "NUMBA_DISABLE_JIT=1 to run it uncompiled"
        ) from error
    return formula.overloads[SIGNATURE.args]


def _summarise_error(error: Exception) -> str:
    """Return what numba complains about, and where, without the history of its compilation."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("Failed in", "During:"))] or [
        type(error).__name__
    ]
    end = next(
        (i for i, line in enumerate(said) if line.startswith(("File ", "There ", "- "))),
        len(said),
    )
    places = [
        place
        for place in re.findall(r'File "(.*)", line (\d+)', str(error))
        if "runge_kutta" not in place[0]
    ]
    where = f" (line {places[0][1]} of {places[0][0]})" if places else ""
    return " ".join(said[: max(end, 1)]) + where


def drift_address(drift: Drift) -> Any:
    """Return what the kernels call: the address of the compiled drift, or the drift itself without
    the compiler.
    """
    if PLAIN:
        return drift
    compiled = compile_drift(drift)
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


def _call_plain(address: Any, *arguments: Any) -> None:
    """Call the drift: what `_call_compiled` is without the compiler."""
    address(*arguments)


@intrinsic
def _call_compiled(typing, address, time, state, input, noise, parameters, derivative):  # type: ignore[no-untyped-def]
    """Call the drift at its address as numba calls its functions."""
    arguments = time, state, input, noise, parameters, derivative
    if (address, *arguments) != (types.intp, *SIGNATURE.args):
        return None

    def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
        convention = context.call_conv
        function = convention.get_function_type(types.none, SIGNATURE.args).as_pointer()
        callee = builder.inttoptr(values[0], function)
        convention.call_function(builder, callee, types.none, SIGNATURE.args, values[1:])
        return context.get_dummy_value()

    return types.none(address, *arguments), generate


_call: Any = _call_plain if PLAIN else _call_compiled


@kernel
def call_drift(address, time, state, input, noise, parameters, derivative):  # type: ignore[no-untyped-def]
    """Write the derivative; a component that the drift does not write is NaN, never a value of an
    earlier call.
    """
    for i in range(derivative.size):
        derivative[i] = np.nan
    _call(address, time, state, input, noise, parameters, derivative)


@kernel
def step(address, time, dt, substeps, state, inputs, noise, parameters, limits, work):  # type: ignore[no-untyped-def]
    """Advance `state` in place over one sample with the classical Runge-Kutta method of order four.

    With h = dt / substeps and the noise w held::

        k1 = f(t, x, u(t)),  k2 = f(t + h/2, x + h/2 k1, u(t + h/2)),  k3 = f(t + h/2, x + h/2 k2,
        u(t + h/2)) k4 = f(t + h, x + h k3, u(t + h)),   x <- min(max(x + h/6 (k1 + 2 k2 + 2 k3 +
        k4), lower), upper)

    Parameters
    ----------
    address : int or callable
        `drift_address` of the drift.
    time, dt : float
        Start and length of the sample [s].
    substeps : int
        Number of Runge-Kutta steps.
    state : (n_x,) array
        Overwritten.
    inputs : (1, n_u) or (2 substeps + 1, n_u) array
        Input held over the sample, or its values at every half substep, both ends included.
    noise, parameters : (n_w,), (n_p,) array
        Arguments of the drift.
    limits : (2, n_x) array
        Lower and upper limits of the states.
    work : (WORK_ROWS, n_x) array
        Buffer.

    Returns
    -------
    tuple of int
        Finished substeps, and those among them that ended with a state set to a limit. With fewer
        than `substeps` finished the state diverged in the next one: `state` then holds the last
        good values and row CANDIDATE of `work` the first bad component.
    """
    h = dt / substeps
    k1 = work[0]
    k2 = work[1]
    k3 = work[2]
    k4 = work[3]
    x = work[4]
    candidate = work[5]
    lower = limits[0]
    upper = limits[1]
    stride = 1 if inputs.shape[0] > 1 else 0
    n_clipped = 0
    for j in range(substeps):
        t = time + j * h
        now = inputs[2 * j * stride]
        half = inputs[(2 * j + 1) * stride]
        end = inputs[(2 * j + 2) * stride]
        call_drift(address, t, state, now, noise, parameters, k1)
        for i in range(state.size):
            x[i] = state[i] + 0.5 * h * k1[i]
        call_drift(address, t + 0.5 * h, x, half, noise, parameters, k2)
        for i in range(state.size):
            x[i] = state[i] + 0.5 * h * k2[i]
        call_drift(address, t + 0.5 * h, x, half, noise, parameters, k3)
        for i in range(state.size):
            x[i] = state[i] + h * k3[i]
        call_drift(address, t + h, x, end, noise, parameters, k4)
        for i in range(state.size):
            candidate[i] = state[i] + h / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i])
        for i in range(state.size):
            if not abs(candidate[i]) <= LARGEST:
                return j, n_clipped
        clipped = 0
        for i in range(state.size):
            state[i] = min(max(candidate[i], lower[i]), upper[i])
            if state[i] != candidate[i]:
                clipped = 1
        n_clipped += clipped
    return substeps, n_clipped


@kernel
def follow(address, first, dt, substeps, states, inputs, rows, noises, parameters, limits, work):  # type: ignore[no-untyped-def]
    """Fill rows 1.. of `states` (n, n_x) from row 0, which belongs to sample `first` at time first
    dt.

    Sample k uses row k of `parameters` (m, n_p), the last row from m - 1 on, and the rows k rows to
    k rows + rows of `inputs`: `rows` is 1 for an input that is held (then without the row at the
    end) and 2 substeps for one that varies.

    Returns
    -------
    tuple of int
        Last good row, the substeps finished after it and those that met a limit: (n - 1, 0, ...)
        without divergence. On divergence the row after the last good one holds the last finite
        values.
    """
    n_clipped = 0
    last = 0 if rows == 1 else 1
    for k in range(states.shape[0] - 1):
        state = states[k + 1]
        for i in range(state.size):
            state[i] = states[k, i]
        between = inputs[k * rows : (k + 1) * rows + last]
        held = parameters[min(first + k, parameters.shape[0] - 1)]
        done, clipped = step(
            address,
            (first + k) * dt,
            dt,
            substeps,
            state,
            between,
            noises[k],
            held,
            limits,
            work,
        )
        n_clipped += clipped
        if done < substeps:
            return k, done, n_clipped
    return states.shape[0] - 1, 0, n_clipped


Stepper = Callable[[float, Array, Array, Array], int]


class DivergenceError(SimulationError):
    """A state left the finite numbers; the message names system, time, state and the last finite
    values.
    """


class Path(NamedTuple):
    """States over a record."""

    states: Array  # (n, n_x)
    n_clipped: int  # substeps that ended with a state set to one of its limits


def _describe_divergence(
    system: System, time: float, state: Array, candidate: Array
) -> DivergenceError:
    """Describe a substep at `time` [s] that led from `state` to the bad `candidate`."""
    names = names_of(system.states)
    bad = next(i for i in range(len(names)) if not abs(candidate[i]) <= LARGEST)
    values = zip(system.states, state, strict=True)
    finite = ", ".join(f"{signal.name}={value:.6g} {signal.unit}" for signal, value in values)
    return DivergenceError(
        f"{type(system).__name__} diverged at time {time:.6g} s (sample {int(time / system.dt + 1e-9)}): state "
        f"'{names[bad]}' became {candidate[bad]:.3g}, expected a magnitude of at most {LARGEST:g}; last finite state: "
        f"{finite}. Use more substeps (now {system.substeps} per dt={system.dt:g} s), or check parameters and input"
    )


def check_drift(system: System, state: Array, input: Array) -> None:
    """Evaluate the drift once in plain Python, where a wrong index raises, and check that it is
    complete.

    Raises
    ------
    ValueError
        If the drift raises, or a component of x' at the start of the run is not finite, for example
        never written.
    """
    noise = np.zeros(len(system.noises))
    parameters = read_vector(system, "parameters")
    derivative = np.full(len(system.states), np.nan)
    try:
        with np.errstate(all="ignore"):
            system.drift(0.0, state, input, noise, parameters, derivative)
    except Exception as error:  # whatever a user's drift raises
        frames = traceback.extract_tb(error.__traceback__)[1:]
        line = (
            f" (line {frames[-1].lineno} of {frames[-1].filename}: {frames[-1].line})"
            if frames
            else ""
        )
        raise UserError(
            f"{type(system).__name__}.drift raised {type(error).__name__}: {error}{line}. It was called with "
            f"{state.size} states, {input.size} inputs, {noise.size} noises and {parameters.size} parameters at time "
            "0: correct the drift or its arguments (time, state, input, noise, parameters, derivative)"
        ) from error
    for signal, value in zip(system.states, derivative.tolist(), strict=True):
        if not math.isfinite(value):
            raise UserError(
                f"{type(system).__name__}.drift gave {value} for the rate of '{signal.name}' at time 0: expected a "
                "finite number; write every component of derivative, or check initial state, input and parameters"
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
        ``advance(time, state, inputs, noise) -> n_clipped``: moves `state`, a C-contiguous float64
        array like the others, in place from `time` [s] to `time + dt`; `inputs` is (1, n_u), held,
        or (2 substeps + 1, n_u), its values at every half substep. Raises DivergenceError.
    """
    _, address, parameters, limits, dt, substeps = problem_of(system)
    work = np.empty((WORK_ROWS, len(system.states)))
    last = len(parameters) - 1

    def advance(time: float, state: Array, inputs: Array, noise: Array) -> int:
        held = parameters[min(round(time / dt), last)]
        done, n_clipped = step(
            address, time, dt, substeps, state, inputs, noise, held, limits, work
        )
        if done < substeps:
            raise _describe_divergence(system, time + done * dt / substeps, state, work[CANDIDATE])
        return int(n_clipped)

    return advance


class Problem(NamedTuple):
    """A system as the kernels take it."""

    system: System
    address: Any  # of the drift
    parameters: Array  # (m, n_p), of the first m samples; the last ones stay
    limits: Array  # (2, n_x)
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
    address = drift_address(system.drift)
    parameters = system.parameter_rows()
    return Problem(
        system,
        address,
        parameters,
        limits_of(system),
        float(system.dt),
        int(system.substeps),
    )


def integrate(
    system: System,
    initial_state: Array,
    input: Array,
    noise: Array,
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
        States (n, n_x) at the times k dt. The last row of the noise has no effect, nor has that of
        an input that is held.

    Raises
    ------
    DivergenceError
        If a state leaves the finite numbers.
    """
    pieces = Interpolation(interpolation).pieces(input, system.substeps)
    return follow_pieces(problem_of(system), initial_state, pieces, noise)


def follow_pieces(
    problem: Problem, initial_state: Array, pieces: Iterable[Piece], noise: Array
) -> Path:
    """Do what `integrate` does, with a prepared system and a prepared input."""
    system, address, parameters, limits, dt, substeps = problem
    states = np.empty((len(noise), len(initial_state)))
    states[0] = initial_state
    work = np.empty((WORK_ROWS, states.shape[1]))
    n_clipped = 0
    for first, last, values, rows in pieces:
        part = states[first : last + 1]
        k, done, clipped = follow(
            address,
            first,
            dt,
            substeps,
            part,
            values,
            rows,
            noise[first : last + 1],
            parameters,
            limits,
            work,
        )
        n_clipped += clipped
        if k < last - first:
            time = (first + k) * dt + done * dt / substeps
            raise _describe_divergence(system, time, states[first + k + 1], work[CANDIDATE])
    return Path(states, n_clipped)
