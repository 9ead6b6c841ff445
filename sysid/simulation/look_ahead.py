"""A look ahead: the coming samples of a plant, from its last samples and the inputs to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sysid.arrays import Array, as_number, is_number, real_numbers
from sysid.errors import UserError
from sysid.model.model import JointModel, Model
from sysid.simulation.forecast import free_run
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, Propagation
from sysid.simulation.validation import Z_95

#: inputs of coming samples: an array, a mapping or a table by name, or their number
ComingInputs: TypeAlias = "ArrayLike | Mapping[str, ArrayLike] | int"


def look_ahead(
    model: Model | JointModel,
    inputs: ComingInputs,
    past_outputs: ArrayLike,
    past_inputs: ArrayLike | None = None,
    *,
    propagation: Propagation | None = None,
) -> pd.DataFrame:
    """Predict the coming samples of a plant from its last samples and the inputs to come.

    It is a free run that begins after the last samples, with the 95 % band of a measurement. The
    model learns nothing.

    Parameters
    ----------
    model : Model or JointModel
    inputs : (n, n_u) or (n,), mapping, or int
        Inputs of the coming n samples in the order of ``narx.input_names``, or by name (a mapping
        or a table); of a model without inputs the number n.
    past_outputs : (k, m) or (k,)
        The last outputs in the order of ``narx.output_names``, the newest last; at least as many
        as the longest lag.
    past_inputs : (k, n_u) or (k,), optional
        Inputs of the same samples; None without inputs.
    propagation : Propagation, optional
        How uncertainty grows; None: `sysid.Pathwise`.

    Returns
    -------
    pandas.DataFrame
        Over the time [s] from the last sample on (in samples if the sampling time is not known):
        for each output NAME the columns ``NAME_mean``, ``NAME_low`` and ``NAME_high``.

    Raises
    ------
    ValueError
        Arrays have another shape or values that are not finite, or there are too few past samples.

    Examples
    --------
    >>> from sysid import Identification, Narx, Settings, look_ahead
    >>> signals = {"y": np.sin(0.3 * np.arange(120)), "u": np.cos(0.3 * np.arange(120))}
    >>> rows = Narx({"y": 1}, {"u": 1}).regressors(signals)
    >>> identification = Identification(Narx({"y": 1}, {"u": 1}), Settings(budget=20))
    >>> _ = identification.observe_many(rows.regressor, rows.target)
    >>> coming = np.cos(0.3 * np.arange(120, 125))
    >>> table = look_ahead(identification.model, coming, signals["y"], signals["u"])
    >>> bool(abs(table["y_mean"].iloc[-1] - np.sin(0.3 * 124)) < 0.05)
    True
    """
    joint = JointModel.of(model)
    narx = joint.models[0].narx
    coming = read_coming_inputs(inputs, narx.input_names)
    outputs = _read_past(past_outputs, narx.output_names, "past_outputs")
    if past_inputs is None and not narx.input_names:
        past_inputs = np.empty((len(outputs), 0))
    before = _read_past(past_inputs, narx.input_names, "past_inputs")
    if len(outputs) != len(before):
        raise UserError(
            f"ahead: expected past outputs and inputs of the same samples, got {len(outputs)} and "
            f"{len(before)}"
        )
    n_lags = max(1, narx.max_lag)
    if len(outputs) < n_lags:
        raise UserError(
            f"ahead: expected at least {n_lags} past samples, as many as the longest lag, got "
            f"{len(outputs)}"
        )
    rule = AboutPath(Pathwise() if propagation is None else propagation)
    mean, variance = simulate_ahead(joint, outputs[-n_lags:], before[-n_lags:], coming, rule)
    measured = variance + joint.noise_variance
    moments = {name: (mean[:, i], measured[:, i]) for i, name in enumerate(narx.output_names)}
    return table_of_bands(moments, joint.origin.sampling_time or 1.0)


def simulate_ahead(
    model: Model | JointModel,
    past_outputs: Array,
    past_inputs: Array,
    coming_inputs: Array,
    propagation: Propagation,
) -> tuple[Array, Array]:
    """Return mean and latent variance (n, m) of a free run after past samples (k, m), (k, n_u)."""
    inputs = np.vstack([past_inputs, coming_inputs])
    simulated = free_run(model, inputs, past_outputs, propagation=propagation)
    return simulated.mean, simulated.variance


def table_of_bands(
    moments: Mapping[str, tuple[Array, Array]], sampling_time: float
) -> pd.DataFrame:
    """Return mean and 95 % band of the outputs from mean and variance of measurements (n,)."""
    table = {}
    n = 0
    for name, (mean, variance) in moments.items():
        half_width = Z_95 * np.sqrt(variance)
        table[f"{name}_mean"] = mean
        table[f"{name}_low"] = mean - half_width
        table[f"{name}_high"] = mean + half_width
        n = len(mean)
    times = sampling_time * np.arange(1, n + 1)
    return pd.DataFrame(table, index=pd.Index(times, name="time"))


def read_coming_inputs(inputs: ComingInputs, names: Sequence[str]) -> Array:
    """Return the inputs of the coming samples (n, n_u); of a plant without inputs the number n."""
    n_inputs = len(names)
    if not n_inputs:
        _check_number_of_samples(inputs)
        return np.empty((int(inputs), 0))  # type: ignore[arg-type]
    inputs = _in_order(inputs, names)
    coming = real_numbers(inputs, "ahead: inputs")
    if coming.ndim == 1 and n_inputs == 1:
        coming = coming[:, None]
    if coming.ndim != 2 or coming.shape[1] != n_inputs or not len(coming):
        raise UserError(
            f"ahead: expected the inputs {list(names)} of the coming samples, an array "
            f"(n, {n_inputs}), got shape {coming.shape}"
        )
    if not np.isfinite(coming).all():
        raise UserError("ahead: expected finite inputs of the coming samples")
    return coming


def _in_order(inputs: ComingInputs, names: Sequence[str]) -> ArrayLike | int:
    """Return coming inputs that are given by name as an array (n, n_u); others as they are."""
    if isinstance(inputs, pd.DataFrame):
        if not all(isinstance(name, str) for name in inputs.columns):
            return inputs
        given = list(inputs.columns)
    elif isinstance(inputs, Mapping):
        given = [str(name) for name in inputs]
    else:
        return inputs
    if sorted(given) != sorted(names):
        raise UserError(
            f"ahead: expected the inputs {list(names)} of the coming samples, got {given}"
        )
    columns = [np.atleast_1d(real_numbers(inputs[name], f"ahead: {name}")) for name in names]
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise UserError(
            f"ahead: expected as many coming samples of every input, got the lengths {lengths}"
        )
    return np.stack(columns, axis=1)


def _read_past(values: ArrayLike | None, names: Sequence[str], what: str) -> Array:
    """Return the past samples (k, number of names) of signals."""
    if values is None:
        raise UserError(f"ahead: expected {what}, the last values of {list(names)}, got none")
    past = real_numbers(values, f"ahead: {what}")
    if past.ndim == 1 and len(names) == 1:
        past = past[:, None]
    if past.ndim != 2 or past.shape[1] != len(names):
        raise UserError(
            f"ahead: expected {what} (k, {len(names)}) of {list(names)}, got shape {past.shape}"
        )
    if not np.isfinite(past).all():
        raise UserError(f"ahead: expected finite {what}")
    return past


def _check_number_of_samples(n: object) -> None:
    """Raise UserError unless the number of coming samples of a plant without inputs is one."""
    if not as_number(n) >= 1 or not is_number(n, Integral):
        raise UserError(
            f"ahead: expected the number of coming samples, as the plant has no inputs, got {n!r}"
        )
