"""Runge-Kutta integration with held inputs, compiled once for all systems.

The kernels call the drift through its C address. So they do not depend on the system: numba compiles
them once and keeps them on disk, and a new system costs only the compilation of its drift. All
kernels that call each other are in this file, because numba renews its disk cache only when the file
of a kernel changes. With ``NUMBA_DISABLE_JIT=1`` the same kernels run as plain Python.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types
from numba.core import config
from numba.core.cgutils import ir
from numba.core.errors import NumbaError
from numba.extending import intrinsic
from numpy.typing import NDArray

from simulators.system import System

Drift = Callable[..., None]
Stepper = Callable[[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], None]

PLAIN = bool(vars(config)["DISABLE_JIT"])  # NUMBA_DISABLE_JIT=1: the kernels run as plain Python
LARGEST = 1e100  # a state beyond this magnitude counts as diverged: no physical quantity is as large
WORK_ROWS = 6  # four slopes, the state of a stage, the candidate
CANDIDATE = 5  # row of the work buffer with the state after the substep

kernel = np.errstate(all="ignore") if PLAIN else njit(cache=True, error_model="numpy")


class DivergenceError(ArithmeticError):
    """A state left the finite numbers; the message names system, time, state and the last finite values."""


@functools.cache
def compile_drift(drift: Drift) -> Any:
    """Compile a drift to a C function, once per function and process.

    Parameters
    ----------
    drift : callable
        `System.drift`: (time, state, input, noise, parameters, derivative) -> None.

    Returns
    -------
    object
        Its attribute `address` is what the kernels take. A component of the derivative that the drift
        does not write is NaN, never a value of an earlier call.

    Raises
    ------
    TypeError
        If numba cannot compile the drift.
    """
    formula = njit(error_model="numpy")(drift)

    def call(t, x, n_x, u, n_u, w, n_w, p, n_p, dx):  # type: ignore[no-untyped-def]
        derivative = carray(dx, n_x)
        for i in range(n_x):
            derivative[i] = np.nan
        formula(t, carray(x, n_x), carray(u, n_u), carray(w, n_w), carray(p, n_p), derivative)

    pointer, size = types.CPointer(types.float64), types.intp
    signature = types.void(types.float64, *(4 * (pointer, size)), pointer)
    try:
        return cfunc(signature)(call)
    except NumbaError as error:
        raise TypeError(
            f"{drift.__qualname__}: expected scalar Python that numba compiles, got: {error}; write the "
            "drift with indexed arrays, floats and math functions, or set NUMBA_DISABLE_JIT=1 to run it "
            "uncompiled"
        ) from error


def drift_address(drift: Drift) -> Any:
    """Return what the kernels call: the C address of the drift, or the drift itself without the compiler."""
    return drift if PLAIN else compile_drift(drift).address


def _call_plain(address: Any, *arguments: Any) -> None:
    """Call the drift: what `_call_compiled` is without the compiler."""
    arguments[-1].fill(np.nan)
    address(*arguments)


@intrinsic
def _call_compiled(typing, address, time, state, input, noise, parameters, derivative):  # type: ignore[no-untyped-def]
    """Call the drift at its C address with the data pointers and the sizes of the arrays."""
    vector = types.Array(types.float64, 1, "C")
    arrays = (state, input, noise, parameters, derivative)
    if address != types.intp or any(array != vector for array in arrays):
        return None

    def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
        views = [context.make_array(vector)(context, builder, value) for value in values[2:]]
        pairs = [part for view in views for part in (view.data, builder.extract_value(view.shape, 0))]
        arguments = [values[1], *pairs[:-1]]
        function = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        builder.call(builder.inttoptr(values[0], function.as_pointer()), arguments)
        return context.get_dummy_value()

    return types.void(address, types.float64, *arrays), generate


call_drift: Any = _call_plain if PLAIN else _call_compiled


@kernel
def step(address, time, dt, substeps, state, input, noise, parameters, work):  # type: ignore[no-untyped-def]
    """Advance `state` in place over one sample with the classical Runge-Kutta method of order four.

    With h = dt / substeps, u and w held::

        k1 = f(t, x), k2 = f(t + h/2, x + h/2 k1), k3 = f(t + h/2, x + h/2 k2), k4 = f(t + h, x + h k3)
        x <- x + h/6 (k1 + 2 k2 + 2 k3 + k4)

    Parameters
    ----------
    address : int or callable
        `drift_address` of the drift.
    time, dt : float
        Start and length of the sample [s].
    substeps : int
        Number of Runge-Kutta steps.
    state, input, noise, parameters : (n_x,), (n_u,), (n_w,), (n_p,) array
        Arguments of the drift; `state` is overwritten.
    work : (WORK_ROWS, n_x) array
        Buffer.

    Returns
    -------
    int
        Finished substeps. Below `substeps` the state diverged in the next one: `state` then holds the
        last good values and row CANDIDATE of `work` the first bad component.
    """
    h = dt / substeps
    k1, k2, k3, k4, x, candidate = work[0], work[1], work[2], work[3], work[4], work[5]
    for j in range(substeps):
        t = time + j * h
        call_drift(address, t, state, input, noise, parameters, k1)
        for i in range(state.size):
            x[i] = state[i] + 0.5 * h * k1[i]
        call_drift(address, t + 0.5 * h, x, input, noise, parameters, k2)
        for i in range(state.size):
            x[i] = state[i] + 0.5 * h * k2[i]
        call_drift(address, t + 0.5 * h, x, input, noise, parameters, k3)
        for i in range(state.size):
            x[i] = state[i] + h * k3[i]
        call_drift(address, t + h, x, input, noise, parameters, k4)
        for i in range(state.size):
            candidate[i] = state[i] + h / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i])
        for i in range(state.size):
            if not abs(candidate[i]) <= LARGEST:
                return j
        for i in range(state.size):
            state[i] = candidate[i]
    return substeps


@kernel
def follow(address, dt, substeps, states, inputs, noises, parameters, work):  # type: ignore[no-untyped-def]
    """Fill rows 1.. of `states` (n, n_x) from row 0; sample k starts at time k dt.

    Returns
    -------
    tuple of int
        Last good row and the substeps finished after it: (n - 1, 0) without divergence. On divergence
        the row after the last good one holds the last finite values.
    """
    for k in range(states.shape[0] - 1):
        state = states[k + 1]
        for i in range(state.size):
            state[i] = states[k, i]
        done = step(address, k * dt, dt, substeps, state, inputs[k], noises[k], parameters, work)
        if done < substeps:
            return k, done
    return states.shape[0] - 1, 0


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
        If a component of x' at the start of the run is not finite, for example never written.
    """
    with np.errstate(all="ignore"):
        derivative = system.derivative(0.0, state, input, np.zeros(len(system.noises)))
    for signal, value in zip(system.states, derivative, strict=True):
        if not np.isfinite(value):
            raise ValueError(
                f"{type(system).__name__}.drift gave {value} for the rate of '{signal.name}' at time 0: "
                "expected a finite number; write every component of derivative, or check initial state, "
                "input and parameters"
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
        ``advance(time, state, input, noise) -> None``: moves `state`, a C-contiguous float64 array like the
        others, in place from `time` [s] to `time + dt`; raises DivergenceError.
    """
    address, parameters = drift_address(system.drift), system.parameters()
    work = np.empty((WORK_ROWS, len(system.states)))
    dt, substeps = float(system.dt), int(system.substeps)

    def advance(
        time: float, state: NDArray[np.float64], input: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> None:
        done = step(address, time, dt, substeps, state, input, noise, parameters, work)
        if done < substeps:
            raise _divergence(system, time + done * dt / substeps, state, work[CANDIDATE])

    return advance


def integrate(
    system: System,
    initial_state: NDArray[np.float64],
    input: NDArray[np.float64],
    noise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Integrate a system over a record with input and noise held over each sample.

    Parameters
    ----------
    system : System
        System to integrate.
    initial_state : (n_x,) array
        State at time zero.
    input, noise : (n, n_u), (n, n_w) C-contiguous float64 array
        Row k holds from k dt to (k + 1) dt.

    Returns
    -------
    (n, n_x) array
        States at the times k dt; the last rows of input and noise have no effect.

    Raises
    ------
    DivergenceError
        If a state leaves the finite numbers.
    """
    states = np.empty((len(input), len(system.states)))
    states[:1] = initial_state
    address, parameters = drift_address(system.drift), system.parameters()
    work = np.empty((WORK_ROWS, states.shape[1]))
    dt, substeps = float(system.dt), int(system.substeps)
    k, done = follow(address, dt, substeps, states, input, noise, parameters, work)
    if k < len(states) - 1:
        raise _divergence(system, k * dt + done * dt / substeps, states[k + 1], work[CANDIDATE])
    return states
