"""Simulation of an identified model on plain arrays: its first outputs, then nothing but the inputs."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import matrix
from sysid.dynamics import Dynamics, exogenous_rows
from sysid.joint import JointModel
from sysid.model import Model
from sysid.propagation import MeanOnly, Propagation

Array: TypeAlias = NDArray[np.float64]


class FreeRun(NamedTuple):
    """A free run after the first w samples."""

    mean: Array  # (n - w, m) output units; nan from where it left its bounds
    variance: Array  # (n - w, m) latent, output units squared
    left: int | None  # row whose value left the bounds
    value: Array  # (m,) outputs that it left with; nan if it did not


def free_run(
    model: Model | JointModel,
    inputs: ArrayLike,
    initial_outputs: ArrayLike,
    *,
    propagation: Propagation | None = None,
    seed: int = 0,
) -> FreeRun:
    """Simulate a model from its first outputs on plain arrays.

    Parameters
    ----------
    inputs : (n, n_u)
        Inputs of all samples, in the order of ``narx.input_names``; (n, 0) if there are none.
    initial_outputs : (w, m)
        Outputs of the first w < n samples; lags before the first hold it.
    propagation, seed
        As for `forecast`.

    Raises
    ------
    ValueError, TypeError
        Wrong shapes, values that are not finite, no initial outputs for a model with lagged outputs, nothing to
        simulate.
    """
    dynamics = Dynamics(model)
    u = matrix(inputs, len(dynamics.narx.input_names), "inputs")
    y = matrix(initial_outputs, dynamics.n_outputs, "initial_outputs")
    check_window(dynamics, len(y))
    if len(u) <= len(y):
        raise ValueError(f"free_run: expected more than the {len(y)} inputs of the initial outputs, got {len(u)}")
    rule = MeanOnly() if propagation is None else propagation
    exogenous = exogenous_rows(dynamics.narx, u, np.arange(len(y), len(u)))
    moments = rule.propagate(
        dynamics, past_outputs(y, len(y) - 1, dynamics), exogenous[None], np.random.default_rng([seed])
    )
    lost = np.flatnonzero(np.isnan(moments.variance[0]).any(axis=1))
    left = int(lost[0]) if len(lost) else None
    value = np.full(dynamics.n_outputs, np.nan) if left is None else moments.mean[0, left]
    return FreeRun(*without_lost(moments.mean[0], moments.variance[0]), left, value)


def check_window(dynamics: Dynamics, window: int) -> None:
    """Refuse a number of initial samples that is too small for the lags of the outputs."""
    needs_outputs = dynamics.is_change or bool(dynamics.feedback.size)
    least = 1 if needs_outputs else 0
    if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < least:
        reason = ", as the model needs past outputs" if needs_outputs else ""
        raise ValueError(
            f"window, the samples before the first prediction: expected an integer of at least {least}{reason}, "
            f"got {window!r}"
        )


def past_outputs(y: Array, newest: int | NDArray[np.int64], dynamics: Dynamics) -> Array:
    """Outputs (b, L, m) of the last L samples of y up to the newest (b,); its first before it, 0 if there is none."""
    if not len(y):
        return np.zeros((1, dynamics.n_lags, dynamics.n_outputs))
    ages = np.arange(1 - dynamics.n_lags, 1)
    return np.asarray(y[np.maximum(np.atleast_1d(newest)[:, None] + ages, 0)])


def without_lost(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance (n, m), nan in all rows that diverged."""
    lost = np.any(np.isnan(variance), axis=1, keepdims=True)
    return np.where(lost, np.nan, mean), np.where(lost, np.nan, variance)
