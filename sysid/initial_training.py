"""The training on the initial samples, without outliers and without spikes of other signals."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, TypeAlias

import numpy as np

from sysid.gp.marginal_likelihood import LeaveOneOut
from sysid.gp.marginal_likelihood import leave_one_out as predict_left_out
from sysid.gp.training import InitialSamples, Start
from sysid.narx.lags import reach_of
from sysid.outliers import OUTLIER_JUMP_STDS, MendedRows

#: largest number of trainings that are repeated without the outliers of the one before
MAX_SCREENINGS = 3

#: largest number of initial samples among which outliers are searched for
MAX_SCREENED_SAMPLES = 2000

#: If more than one in this many samples is an outlier, the model is wrong and none is left out.
MIN_SAMPLES_PER_OUTLIER = 4

#: a training on initial samples, given prior knowledge
Prepare: TypeAlias = Callable[[InitialSamples, Start], Start]


class Trained(NamedTuple):
    """The result of the training, and the samples that it used."""

    start: Start
    samples: InitialSamples  # without outliers, and with replaced values
    n_outliers: int  # number of samples beyond the gate, which were left out
    n_mended: dict[str, int]  # number of replaced values of each signal but the target
    seconds: float  # wall time [s]


def train(samples: InitialSamples, known: Start, prepare: Prepare, gate: float | None) -> Trained:
    """Train on the initial samples, without those that are beyond the gate.

    First, spikes of other signals are replaced if the Gaussian process trained with the
    replacements predicts each sample better from the others. Then outliers are left out and the
    training is repeated until there are none, at most `MAX_SCREENINGS` times.

    Parameters
    ----------
    samples : InitialSamples
    known : Start
        Prior knowledge.
    prepare : callable
        The training, ``prepare(samples, known)``.
    gate : float or None
        Largest standardised error of a sample that is no outlier; None: no sample is an outlier.
    """
    begin = perf_counter()
    start = prepare(samples, known)
    n_outliers = 0
    n_mended: dict[str, int] = {}
    if gate is not None:
        start, samples, n_mended = _replace_spikes(start, samples, known, prepare)
        for _ in range(MAX_SCREENINGS):
            outliers = find_outliers(start, samples, gate)
            if not outliers.any():
                break
            n_outliers += int(outliers.sum())
            samples = without_outliers(samples, outliers)
            start = prepare(samples, known)
    return Trained(start, samples, n_outliers, n_mended, perf_counter() - begin)


def _replace_spikes(
    start: Start, samples: InitialSamples, known: Start, prepare: Prepare
) -> tuple[Start, InitialSamples, dict[str, int]]:
    """Train without the spikes of other signals, and return the better of the two trainings.

    Returns
    -------
    Start
        The better training: `start`, or that of the samples without spikes.
    InitialSamples
        Its samples.
    dict
        How many values of each signal were replaced in them.
    """
    without, n_replaced = without_spikes(samples)
    if not n_replaced:
        return start, samples, {}
    as_measured = leave_one_out(start, samples)
    if as_measured is None:
        return start, samples, {}
    start_without = prepare(without, known)
    as_mended = leave_one_out(start_without, without)
    if as_mended is not None and as_mended.log_density > as_measured.log_density:
        return start_without, without, n_replaced
    return start, samples, {}


def leave_one_out(start: Start, samples: InitialSamples) -> LeaveOneOut | None:
    """Predict each initial sample from all others with the trained Gaussian process.

    Returns
    -------
    LeaveOneOut or None
        None with fewer than 2 or more than `MAX_SCREENED_SAMPLES` samples, or if the training has
        chosen the stored points itself.
    """
    n = len(samples.targets)
    scaling = start.scaling
    mean = start.mean
    known = start.hyperparameters
    if scaling is None or mean is None or known is None:
        return None
    if start.points is not None or not 2 <= n <= MAX_SCREENED_SAMPLES:
        return None
    return predict_left_out(
        known.kernel,
        known.noise_variance,
        scaling.transform(samples.regressors),
        samples.targets - mean(samples.regressors),
    )


def find_outliers(start: Start, samples: InitialSamples, gate: float) -> np.ndarray:
    """Return which of the initial samples (n,) are beyond the gate, each predicted from all others.

    If more than one in `MIN_SAMPLES_PER_OUTLIER` samples is beyond it, none counts as an outlier.
    """
    predicted = leave_one_out(start, samples)
    if predicted is None:
        return np.zeros(len(samples.targets), dtype=bool)
    is_beyond: np.ndarray = predicted.residual**2 > float(gate) ** 2 * predicted.variance
    if is_beyond.sum() > len(is_beyond) // MIN_SAMPLES_PER_OUTLIER:
        return np.zeros(len(is_beyond), dtype=bool)
    return is_beyond


def without_spikes(samples: InitialSamples) -> tuple[InitialSamples, dict[str, int]]:
    """Replace spikes of other signals, which are jumps reversed at once, by the value before.

    Returns
    -------
    InitialSamples
    dict
        How many values of each signal were replaced.
    """
    narx, x, y, follows = samples
    counts: dict[str, int] = {}
    if not len(y):
        return samples, counts
    mended = MendedRows(narx)
    mended.begin(x, y, follows)
    low, high = np.quantile(x, [0.05, 0.95], axis=0)
    limits = OUTLIER_JUMP_STDS * np.clip(x, low, high).std(axis=0)
    last_row = len(x) - 1
    for name, column in mended.newest.items():
        for row in mended.find_jumps({column: float(limits[column])}):
            next_row = min(row + 1, last_row)
            before, value, after = x[[row - 1, row, next_row], column]
            is_reversed = abs(after - before) < abs(after - value)
            if is_reversed and follows[next_row]:
                counts[name] = counts.get(name, 0) + 1
                time = row - narx.features[column][1]
                mended.set_errors(row, mended.errors | {(name, time): value - before})
    return InitialSamples(narx, mended.x, mended.y, follows), counts


def without_outliers(samples: InitialSamples, outliers: np.ndarray) -> InitialSamples:
    """Leave out the outliers (n,), and the rows that have their measurements among the lags."""
    narx, x, y, follows = samples
    is_left_out = outliers.copy()
    for outlier in np.flatnonzero(outliers).tolist():
        end = min(outlier + 1 + reach_of(narx), len(outliers))
        for row in range(outlier + 1, end):
            if not follows[row]:
                break
            is_left_out[row] = True
    kept = np.flatnonzero(~is_left_out)
    still_follows = follows[kept] & (np.diff(kept, prepend=-2) == 1)
    return InitialSamples(narx, x[kept], y[kept], still_follows)
