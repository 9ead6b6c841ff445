"""What a simulation starts from: sampling, initial state, input and noise, each checked."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.integrators import check_drift, limits_of
from simulators.noise import held_noise, random_stream
from simulators.system import Signal, System
from simulators.vector import deviation_vector, real_numbers, start_vector


def sampled(system: System, dt: float | None, substeps: int | None) -> System:
    """Return the system with its sampling replaced where given.

    Raises
    ------
    TypeError
        If it is no system.
    """
    if not isinstance(system, System):
        hint = f"write {system.__name__}()" if isinstance(system, type) else "build one from its class"
        raise TypeError(f"expected a system to simulate, got {system!r}; {hint}")
    system = system if dt is None else replace(system, dt=dt)
    return system if substeps is None else replace(system, substeps=substeps)


def names_of(signals: tuple[Signal, ...]) -> list[str]:
    """Return the names of signals."""
    return [signal.name for signal in signals]


def outputs_of(system: System, state: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the outputs (..., n_y) of states (..., n_x) as an array of their own."""
    return np.array(system.output(state), dtype=np.float64)


def process_std(system: System, drawn: bool) -> NDArray[np.float64]:
    """Return the standard deviations (n_w,) of the process noise, zeros if none is drawn."""
    std = deviation_vector(system)
    return std if drawn else np.zeros_like(std)


def noise_of(seed: int, stream: str, n: int, std: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw the noise (n, m) of a run from one of its streams, with standard deviations (m,)."""
    return held_noise(random_stream(seed, stream), n, std) if std.any() else np.zeros((n, len(std)))


def check_count(n_samples: int | None) -> None:
    """Raise ValueError unless a number of samples is an integer above zero, or left out."""
    whole = isinstance(n_samples, int | np.integer) and not isinstance(n_samples, bool)
    if n_samples is not None and not (whole and n_samples >= 1):
        raise ValueError(f"n_samples={n_samples!r}: expected an integer >= 1; change n_samples")


def input_matrix(system: System, input: ArrayLike | None, n_samples: int | None) -> NDArray[np.float64]:
    """Copy an input to a checked C-contiguous (n, n_u) array; without inputs, only n counts.

    Raises
    ------
    ValueError
        If the shape does not fit the system or `n_samples`, `n_samples` is no integer >= 1, or a value is not finite.
    TypeError
        If the input is complex, text or anything else but real numbers.
    """
    names = names_of(system.inputs)
    title = type(system).__name__
    check_count(n_samples)
    if input is None:
        if names or n_samples is None:
            raise ValueError(
                f"{title}: expected an input with columns {names}, or n_samples >= 1 for a system without "
                f"inputs, got no input and n_samples={n_samples}; give the one that fits the system"
            )
        return np.zeros((n_samples, 0))
    u = np.array(real_numbers(input, f"{title}: input with columns {names}"), dtype=np.float64, order="C")
    if u.ndim == 1 and len(names) == 1:
        u = u[:, np.newaxis]
    if u.ndim != 2 or u.shape[1] != len(names) or len(u) < 1:
        raise ValueError(
            f"{title}: expected an input of shape (n >= 1, {len(names)}) with columns "
            f"{names}, got {u.shape}; stack the signals as columns"
        )
    if n_samples not in (None, len(u)):
        raise ValueError(
            f"{title}: expected an input of n_samples={n_samples} rows, got {len(u)}; cut the input or leave "
            "n_samples out"
        )
    bad = np.argwhere(~np.isfinite(u))
    if len(bad):
        k, i = bad[0]
        raise ValueError(
            f"{title}: input '{names[i]}' is {u[k, i]} at sample {k}: expected finite numbers; repair the input"
        )
    return u


def start_of(system: System, initial_state: ArrayLike | None, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the checked state at time zero; the drift must be finite there with the first input.

    Raises
    ------
    ValueError
        As `state_of`, and if the drift is not finite.
    """
    x0 = state_of(system, initial_state)
    check_drift(system, x0, u[0])
    return x0


def state_of(system: System, initial_state: ArrayLike | None) -> NDArray[np.float64]:
    """Return the checked state (n_x,) at time zero.

    Raises
    ------
    ValueError
        If the shape is wrong, a value is not finite or outside the limits of its state.
    TypeError
        If the values are no real numbers.
    """
    given = start_vector(system) if initial_state is None else real_numbers(initial_state, "initial_state")
    x0 = np.array(given, dtype=np.float64)
    if x0.shape != (len(system.states),):
        raise ValueError(
            f"{type(system).__name__}: expected {len(system.states)} finite initial states "
            f"{names_of(system.states)}, got {x0.tolist()}; change initial_state"
        )
    check_states(system, x0)
    return x0


def check_states(system: System, states: NDArray[np.float64]) -> None:
    """Refuse initial states (..., n_x) that are not finite or outside their limits.

    Raises
    ------
    ValueError
        For the first of them.
    """
    lower, upper = limits_of(system)
    finite = np.isfinite(states)
    if not finite.all():
        row = np.argwhere(~finite)[0][:-1]
        raise ValueError(
            f"{type(system).__name__}: expected {len(system.states)} finite initial states "
            f"{names_of(system.states)}, got {states[tuple(row)].tolist()}; change initial_state"
        )
    bad = ~((lower <= states) & (states <= upper))
    if bad.any():
        place = tuple(np.argwhere(bad)[0])
        i = place[-1]
        raise ValueError(
            f"{type(system).__name__}: expected an initial '{system.states[i].name}' from {lower[i]:g} to "
            f"{upper[i]:g} {system.states[i].unit}, got {states[place]:g}; change initial_state"
        )


def exogenous_matrix(system: System, exogenous: Mapping[str, ArrayLike], n_samples: int | None) -> NDArray[np.float64]:
    """Stack the exogenous inputs as columns of (n, n_u); driven columns are zero.

    Raises
    ------
    ValueError
        If the signals have no common length of `n_samples`, or a value is not finite.
    TypeError
        If the values are no real numbers.
    """
    check_count(n_samples)
    signals = {name: real_numbers(values, f"closed_loop: input {name!r}") for name, values in exogenous.items()}
    shapes = {name: values.shape for name, values in signals.items()}
    lengths = {shape[0] for shape in shapes.values() if shape}
    n = n_samples if n_samples is not None else min(lengths, default=0)
    if n < 1 or any(shape != (n,) for shape in shapes.values()):
        raise ValueError(
            f"closed_loop: expected exogenous inputs of one length n_samples >= 1, got shapes {shapes} and "
            f"n_samples={n_samples}; cut the signals to the same length"
        )
    columns = [signals.get(name, np.zeros(n)) for name in names_of(system.inputs)]
    return input_matrix(system, np.stack(columns, axis=1) if columns else np.zeros((n, 0)), None)
