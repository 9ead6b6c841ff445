"""The classical Runge-Kutta method, compiled once for all systems.

The kernels call the drift through its address. Therefore they do not depend on the system: numba
compiles them once and keeps them on disk, and a new system costs only the compilation of its drift.
All kernels that call each other are in this file, because numba renews its disk cache only when the
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
from simulators.system import System, delays_of, limits_of, names_of, read_vector

Drift = Callable[..., None]
Stepper = Callable[[float, Array, Array, Array], int]

# Whether NUMBA_DISABLE_JIT=1: the kernels run as plain Python.
WITHOUT_COMPILER = bool(vars(config)["DISABLE_JIT"])

# A state beyond this magnitude has diverged: no physical quantity is as large.
MAX_STATE_MAGNITUDE = 1e70

# Rows of the work buffer: four slopes, the state of a stage, the state after the substep.
WORK_ROWS = 6
# Row of the work buffer with the state after the substep.
CANDIDATE_ROW = 5

_VECTOR = types.Array(types.float64, 1, "C")
# Signature of a drift: time, state, input, noise, parameters, derivative.
DRIFT_SIGNATURE = types.void(types.float64, _VECTOR, _VECTOR, _VECTOR, _VECTOR, _VECTOR)

_plain_kernel = np.errstate(all="ignore")
_compiled_kernel = njit(cache=True, error_model="numpy", nogil=True)
kernel = _plain_kernel if WITHOUT_COMPILER else _compiled_kernel


@functools.cache
def compile_drift(drift: Drift) -> Any:
    """Compile a drift, once per function and process.

    numba keeps the drift of a system of this package on disk. That of a user is compiled in every
    process: numba's disk cache notices only changes of the drift's own file, and the drift may call
    functions of other files.

    Parameters
    ----------
    drift : callable
        `System.drift`: (time, state, input, noise, parameters, derivative) -> None.

    Returns
    -------
    object
        Result of the compilation by numba, with its library.

    Raises
    ------
    TypeError
        If numba cannot compile the drift.
    """
    is_shipped = drift.__module__.startswith("simulators.systems.")
    try:
        formula = njit(DRIFT_SIGNATURE, cache=is_shipped, error_model="numpy")(drift)
    except Exception as error:  # numba raises more than its NumbaError
        raise UserTypeError(
            f"{drift.__qualname__}, the drift of a system: expected scalar Python that numba "
            f"compiles, got: {_summarise_error(error)}; write the drift with indexed arrays, "
            "floats and math functions, or set NUMBA_DISABLE_JIT=1 to run it uncompiled"
        ) from error
    return formula.overloads[DRIFT_SIGNATURE.args]


def _summarise_error(error: Exception) -> str:
    """Return the message of numba and the line it refers to, without the steps of compilation."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = [line for line in lines if not line.startswith(("Failed in", "During:"))]
    if not message:
        message = [type(error).__name__]
    n_lines = len(message)
    for i, line in enumerate(message):
        if line.startswith(("File ", "There ", "- ")):
            n_lines = max(i, 1)
            break
    summary = " ".join(message[:n_lines])
    for file, line in re.findall(r'File "(.*)", line (\d+)', str(error)):
        if "runge_kutta" not in file:
            return f"{summary} (line {line} of {file})"
    return summary


def drift_address(drift: Drift) -> Any:
    """Return the object that the kernels call.

    It is the address of the compiled drift; without the compiler, the drift itself.
    """
    if WITHOUT_COMPILER:
        return drift
    compiled = compile_drift(drift)
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


def _call_plain(address: Any, *arguments: Any) -> None:
    """Call the drift; this replaces `_call_compiled` where there is no compiler."""
    address(*arguments)


@intrinsic
def _call_compiled(  # type: ignore[no-untyped-def]
    typing,
    address,
    time,
    state,
    input,
    noise,
    parameters,
    derivative,
):
    """Call the drift at its address, with numba's own calling convention."""
    arguments = time, state, input, noise, parameters, derivative
    if (address, *arguments) != (types.intp, *DRIFT_SIGNATURE.args):
        return None

    def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
        convention = context.call_conv
        function = convention.get_function_type(types.none, DRIFT_SIGNATURE.args).as_pointer()
        callee = builder.inttoptr(values[0], function)
        convention.call_function(builder, callee, types.none, DRIFT_SIGNATURE.args, values[1:])
        return context.get_dummy_value()

    return types.none(address, *arguments), generate


_call: Any = _call_plain if WITHOUT_COMPILER else _call_compiled


@kernel
def call_drift(  # type: ignore[no-untyped-def]
    address,
    time,
    state,
    input,
    noise,
    parameters,
    derivative,
):
    """Write the derivative.

    A component that the drift does not write becomes NaN; it never keeps a value of an earlier
    call.
    """
    for i in range(derivative.size):
        derivative[i] = np.nan
    _call(address, time, state, input, noise, parameters, derivative)


@kernel
def step(  # type: ignore[no-untyped-def]
    address,
    time,
    dt,
    substeps,
    state,
    inputs,
    noise,
    parameters,
    limits,
    work,
):
    """Advance `state` in place over one sample with the classical Runge-Kutta method of order four.

    With h = dt / substeps and the noise w held::

        k1 = f(t, x, u(t))
        k2 = f(t + h/2, x + h/2 k1, u(t + h/2))
        k3 = f(t + h/2, x + h/2 k2, u(t + h/2))
        k4 = f(t + h, x + h k3, u(t + h))
        x <- min(max(x + h/6 (k1 + 2 k2 + 2 k3 + k4), lower), upper)

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
        good values and row CANDIDATE_ROW of `work` the first bad component.
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
            if not abs(candidate[i]) <= MAX_STATE_MAGNITUDE:
                return j, n_clipped
        clipped = 0
        for i in range(state.size):
            state[i] = min(max(candidate[i], lower[i]), upper[i])
            if state[i] != candidate[i]:
                clipped = 1
        n_clipped += clipped
    return substeps, n_clipped


@kernel
def step_each(  # type: ignore[no-untyped-def]
    address,
    time,
    dt,
    substeps,
    states,
    inputs,
    noises,
    parameters,
    limits,
    work,
):
    """Advance every row of `states` (p, n_x) in place over one sample, by `step`.

    Row i has the noise of row i of `noises` (p, n_w). All rows have the same inputs.

    Returns
    -------
    int
        Number of rows that were advanced: p, or the number of the first row that diverged.
    """
    for i in range(states.shape[0]):
        done, _ = step(
            address,
            time,
            dt,
            substeps,
            states[i],
            inputs,
            noises[i],
            parameters,
            limits,
            work,
        )
        if done < substeps:
            return i
    return states.shape[0]


@kernel
def follow(  # type: ignore[no-untyped-def]
    address,
    first,
    dt,
    substeps,
    states,
    inputs,
    rows,
    noises,
    parameters,
    limits,
    work,
):
    """Fill rows 1 to n - 1 of `states` (n, n_x) from row 0.

    Row 0 belongs to sample `first`, at time first dt. Sample k uses row k of `parameters` (m, n_p);
    the last row is used from sample m - 1 on. The input has `rows` rows per sample: 1 if it is
    held, 2 substeps if it varies. From sample k to the next, rows ``k rows`` to ``(k + 1) rows`` of
    `inputs` are used; an input that is held does not use the last of them.

    Returns
    -------
    tuple of int
        Last good row, the substeps finished after it and those that met a limit: (n - 1, 0, ...)
        without divergence. On divergence the row after the last good one holds the last finite
        values.
    """
    n_clipped = 0
    n_end_rows = 0 if rows == 1 else 1  # an input that varies is given at both ends of a sample
    for k in range(states.shape[0] - 1):
        state = states[k + 1]
        for i in range(state.size):
            state[i] = states[k, i]
        inputs_of_sample = inputs[k * rows : (k + 1) * rows + n_end_rows]
        held_parameters = parameters[min(first + k, parameters.shape[0] - 1)]
        done, clipped = step(
            address,
            (first + k) * dt,
            dt,
            substeps,
            state,
            inputs_of_sample,
            noises[k],
            held_parameters,
            limits,
            work,
        )
        n_clipped += clipped
        if done < substeps:
            return k, done, n_clipped
    return states.shape[0] - 1, 0, n_clipped


class DivergenceError(SimulationError):
    """A state became nan, or larger than `MAX_STATE_MAGNITUDE`.

    The message names the system, the time, the state and the last finite values.
    """


class Path(NamedTuple):
    """States over a record."""

    states: Array  # (n, n_x)
    n_clipped: int  # substeps that ended with a state set to one of its limits


def _describe_divergence(
    system: System, time: float, state: Array, candidate: Array
) -> DivergenceError:
    """Return the error for a substep at `time` [s] that led from `state` to the bad `candidate`."""
    names = names_of(system.states)
    bad = next(i for i in range(len(names)) if not abs(candidate[i]) <= MAX_STATE_MAGNITUDE)
    values = zip(system.states, state, strict=True)
    finite = ", ".join(f"{signal.name}={value:.6g} {signal.unit}" for signal, value in values)
    sample = int(time / system.dt + 1e-9)
    return DivergenceError(
        f"{type(system).__name__} diverged at time {time:.6g} s (sample {sample}): "
        f"state '{names[bad]}' became {candidate[bad]:.3g}, expected a magnitude of at most "
        f"{MAX_STATE_MAGNITUDE:g}; last finite state: {finite}. Use more substeps "
        f"(now {system.substeps} per dt={system.dt:g} s), or check parameters and input"
    )


def check_drift(system: System, state: Array, input: Array) -> None:
    """Evaluate the drift once in plain Python, and check that it writes every component.

    In plain Python a wrong index raises an error.

    Raises
    ------
    ValueError
        If the drift raises, or a component of x' at the start of the run is not finite, for example
        because it is never written.
    """
    noise = np.zeros(len(system.noises))
    parameters = read_vector(system, "parameters")
    derivative = np.full(len(system.states), np.nan)
    try:
        with np.errstate(all="ignore"):
            system.drift(0.0, state, input, noise, parameters, derivative)
    except Exception as error:  # whatever a user's drift raises
        frames = traceback.extract_tb(error.__traceback__)[1:]
        line = ""
        if frames:
            last = frames[-1]
            line = f" (line {last.lineno} of {last.filename}: {last.line})"
        raise UserError(
            f"{type(system).__name__}.drift raised {type(error).__name__}: {error}{line}. "
            f"It was called with {state.size} states, {input.size} inputs, {noise.size} noises "
            f"and {parameters.size} parameters at time 0: correct the drift or its arguments "
            "(time, state, input, noise, parameters, derivative)"
        ) from error
    for signal, value in zip(system.states, derivative.tolist(), strict=True):
        if not math.isfinite(value):
            raise UserError(
                f"{type(system).__name__}.drift gave {value} for the rate of '{signal.name}' "
                "at time 0: expected a finite number; write every component of derivative, "
                "or check initial state, input and parameters"
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
        or (2 substeps + 1, n_u), its values at every half substep, as they act after their delays.
        Raises DivergenceError.
    """
    problem = problem_of(system)
    address = problem.address
    parameters = problem.parameters
    limits = problem.limits
    dt = problem.dt
    substeps = problem.substeps
    work = np.empty((WORK_ROWS, len(system.states)))
    last_row = len(parameters) - 1

    def advance(time: float, state: Array, inputs: Array, noise: Array) -> int:
        held_parameters = parameters[min(round(time / dt), last_row)]
        done, n_clipped = step(
            address, time, dt, substeps, state, inputs, noise, held_parameters, limits, work
        )
        if done < substeps:
            raise _describe_divergence(
                system, time + done * dt / substeps, state, work[CANDIDATE_ROW]
            )
        return int(n_clipped)

    return advance


class Problem(NamedTuple):
    """Arguments of the kernels for one system."""

    system: System
    address: Any  # of the drift
    parameters: Array  # (m, n_p) of the first m samples; the last row holds from then on
    limits: Array  # (2, n_x)
    dt: float  # s
    substeps: int


def problem_of(system: System) -> Problem:
    """Prepare a system for the kernels.

    Raises
    ------
    ValueError
        If its parameters or limits have another shape, or are not finite numbers.
    TypeError
        If its drift cannot be compiled.
    """
    return Problem(
        system,
        address=drift_address(system.drift),
        parameters=system.parameter_rows(),
        limits=limits_of(system),
        dt=float(system.dt),
        substeps=int(system.substeps),
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
        Row k belongs to time k dt. Inputs that act late (`System.input_delays`) are given as they
        are set.
    interpolation : Interpolation
        The input between its samples.

    Returns
    -------
    Path
        States (n, n_x) at the times k dt. The last row of the noise has no effect; nor has the last
        row of an input that is held.

    Raises
    ------
    DivergenceError
        If a state diverges.
    """
    pieces = Interpolation(interpolation).pieces(input, system.substeps, delays_of(system))
    return follow_pieces(problem_of(system), initial_state, pieces, noise)


def follow_pieces(
    problem: Problem, initial_state: Array, pieces: Iterable[Piece], noise: Array
) -> Path:
    """Integrate a prepared system with a prepared input; see `integrate`."""
    dt = problem.dt
    substeps = problem.substeps
    states = np.empty((len(noise), len(initial_state)))
    states[0] = initial_state
    work = np.empty((WORK_ROWS, states.shape[1]))
    n_clipped = 0
    for first, last, values, rows in pieces:
        part = states[first : last + 1]
        k, done, clipped = follow(
            problem.address,
            first,
            dt,
            substeps,
            part,
            values,
            rows,
            noise[first : last + 1],
            problem.parameters,
            problem.limits,
            work,
        )
        n_clipped += clipped
        if k < last - first:
            time = (first + k) * dt + done * dt / substeps
            last_state = states[first + k + 1]
            raise _describe_divergence(problem.system, time, last_state, work[CANDIDATE_ROW])
    return Path(states, n_clipped)
