"""Predictions of a joint model in the shape of the signals that an estimator was given."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid.arrays import matrix
from sysid.estimators.signals import Checked, Signals
from sysid.forecast import forecast
from sysid.free_run import free_run
from sysid.joint import JointModel
from sysid.propagation import Propagation
from sysid.recordings import make_record


class Run(NamedTuple):
    """Predictions of all samples of a record."""

    mean: np.ndarray  # (n, m) output units; nan where nothing is predicted
    std: np.ndarray  # (n, m) of a measurement, output units


def records_of(
    signals: Checked, inputs: Sequence[str], outputs: Sequence[str], sampling_time: float | None
) -> list[xr.Dataset]:
    """Data sets of records whose outputs are given; time counts samples if the sampling time [s] is not known."""
    assert signals.outputs is not None
    return [
        make_record(
            dict(zip((*inputs, *outputs), (*u.T, *y.T), strict=True)), name=str(i), sampling_time=sampling_time or 1.0
        )
        for i, (u, y) in enumerate(zip(signals.inputs, signals.outputs, strict=True))
    ]


def first_outputs(given: Signals, y_init: Any, n_outputs: int) -> list[np.ndarray]:
    """First outputs (w, m) of every record: those given, or those of the windows that the records state.

    Raises
    ------
    ValueError
        Neither is there, or the number of records or outputs differs.
    """
    n = len(given.windows)
    if y_init is None:
        if given.outputs is None or not all(given.windows):
            raise ValueError(
                "simulate: expected the first outputs y_init (w, m), or records that state an initialisation window"
            )
        outputs = given.cut(np.asarray(given.outputs, dtype=np.float64))
        first = [y[:window] for y, window in zip(outputs, given.windows, strict=True)]
    else:
        first = [y_init] if given.lengths is None else list(y_init)
    if len(first) != n:
        raise ValueError(f"simulate: expected first outputs of each of {n} records, got {len(first)}")
    return [_columns(y, n_outputs) for y in first]


def _columns(y: Any, n_outputs: int) -> np.ndarray:
    array = np.asarray(y, dtype=np.float64)
    return matrix(array[:, None] if array.ndim == 1 and n_outputs == 1 else array, n_outputs, "y_init")


def run_freely(joint: JointModel, inputs: np.ndarray, first: np.ndarray, propagation: Propagation) -> Run:
    """Free run of the model's inputs (n, n_u) from the first outputs (w, m), which it begins with."""
    run = free_run(joint, inputs, first, propagation=propagation)
    if run.left is not None:
        _warn_of_divergence(len(first) + run.left, run.value)
    std = np.sqrt(run.variance + joint.noise_variance)
    return Run(np.concatenate([first, run.mean]), np.concatenate([np.zeros(first.shape), std]))


def run_ahead(
    joint: JointModel, records: Sequence[xr.Dataset], horizon: int | None, propagation: Propagation
) -> list[Run]:
    """Predictions a horizon ahead, or without one in free run, of all samples that have their measured lags."""
    found = forecast(joint, records, horizon=horizon, window=window_of(joint), propagation=propagation)
    runs = []
    for record, one in zip(records, found.records, strict=True):
        mean, std = np.full((2, record.sizes["time"], len(joint.output_names)), np.nan)
        mean[one.sample], std[one.sample] = one.mean, np.sqrt(one.variance + found.noise_variance)
        if one.diverged is not None:
            _warn_of_divergence(one.diverged.sample, one.diverged.value)
        runs.append(Run(mean, std))
    return runs


def window_of(joint: JointModel) -> int:
    """Samples at the start of a record that lack a lag."""
    return joint.models[0].narx.max_lag


def _warn_of_divergence(sample: int, value: object) -> None:
    warnings.warn(f"the free run diverged at sample {sample} with {value}; from there on it is nan", stacklevel=4)
