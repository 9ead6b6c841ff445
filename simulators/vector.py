"""Vectors that a system states, checked and as the kernels take them."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.system import System


def parameter_vector(system: System) -> NDArray[np.float64]:
    """Return `System.parameters` (n_p,) as finite C-contiguous float64 numbers, also where the fields are integers.

    Raises
    ------
    ValueError
        If it is no vector of finite numbers.
    """
    return _stated(system, "parameters", system.parameters(), None)


def start_vector(system: System) -> NDArray[np.float64]:
    """Return `System.initial_state` (n_x,); as `parameter_vector`, one number per state."""
    return _stated(system, "initial_state", system.initial_state(), len(system.states))


def deviation_vector(system: System) -> NDArray[np.float64]:
    """Return `System.noise_std` (n_w,); as `parameter_vector`, one number per noise."""
    return _stated(system, "noise_std", system.noise_std(), len(system.noises))


def real_numbers(values: ArrayLike, what: str) -> NDArray[Any]:
    """Return values as an array of real numbers, not copied.

    Parameters
    ----------
    values : array_like
        Numbers or truth values; neither complex nor text.
    what : str
        Stands in front of the message.

    Raises
    ------
    TypeError
        If they are something else.
    ValueError
        If they are nested lists of different lengths.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what}: expected rows of one length, got {error}; cut or fill the rows") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{what}: expected real numbers, got {type(values).__name__} of type {array.dtype}; convert it to an array "
            "of floats first"
        )
    return array


def _stated(system: System, method: str, values: Any, n: int | None) -> NDArray[np.float64]:
    """Return what a method of a system returned as a checked vector (n,); any length if n is None."""
    array = values if isinstance(values, np.ndarray) and values.dtype == np.float64 else _attempt(values)
    if array.ndim != 1 or n not in (None, len(array)) or not all(map(math.isfinite, array.tolist())):
        raise ValueError(
            f"{type(system).__name__}.{method}() returned {values!r}: expected a vector of "
            f"{'' if n is None else f'{n} '}finite numbers; return np.array([...])"
        )
    return np.ascontiguousarray(array, dtype=np.float64)


def _attempt(values: Any) -> NDArray[Any]:
    """Return values as an array of real numbers; an array without dimensions where that cannot be."""
    try:
        return real_numbers(values, "")
    except (TypeError, ValueError):
        return np.empty(())
