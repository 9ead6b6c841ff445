"""The training on the initial samples: outliers are left out, and errors of other signals replaced,
if that helps.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, TypeAlias

import numpy as np

from sysid.gp.online import LeaveOneOut, OnlineGP
from sysid.gp.training import InitialSamples, Start
from sysid.narx.lags import reach_of
from sysid.outliers import OUTLIER_JUMP_STDS, MendedRows

MAX_SCREENINGS = 3  # trainings that leave out the outliers of the one before
MAX_SCREENED_SAMPLES = 2000  # with more initial samples none is looked for
#: with more outliers than one in so many samples, none is left out: it is the model that is wrong
SAMPLES_PER_OUTLIER = 4

#: training on initial samples, from what is known beforehand
Prepare: TypeAlias = Callable[[InitialSamples, Start], Start]


class Trained(NamedTuple):
    """What the training found, and the samples that it found it from."""

    start: Start
    samples: InitialSamples  # without outliers, and with replacements
    n_outliers: int  # samples beyond the gate, which were left out
    n_mended: dict[str, int]  # how many values of each signal but the target were replaced
    seconds: float  # wall time


def train(samples: InitialSamples, known: Start, prepare: Prepare, gate: float | None) -> Trained:
    """Train on the initial samples, without those that are beyond the gate.

    Jumps of other signals that are taken back at once are replaced if the Gaussian process trained
    with the replacements predicts each sample from the others better. Then outliers are left out,
    and the training is repeated, as long as there are some, `MAX_SCREENINGS` times at most.

    Parameters
    ----------
    samples : InitialSamples
    known : Start
        What is known beforehand.
    prepare : callable
        The training, ``prepare(samples, known)``.
    gate : float or None
        Largest standardised error of a sample that is no outlier; None: there are none.
    """
    begin = perf_counter()
    start = prepare(samples, known)
    n_outliers = 0
    n_mended: dict[str, int] = {}
    if gate is not None:
        without, n_spikes = without_spikes(samples)
        if n_spikes and (measured := leave_one_out(start, samples)):
            other = prepare(without, known)
            if (
                mended := leave_one_out(other, without)
            ) and mended.log_density > measured.log_density:
                samples = without
                start = other
                n_mended = n_spikes
        for _ in range(MAX_SCREENINGS):
            outliers = find_outliers(start, samples, gate)
            if not outliers.any():
                break
            n_outliers += int(outliers.sum())
            samples = without_outliers(samples, outliers)
            start = prepare(samples, known)
    return Trained(start, samples, n_outliers, n_mended, perf_counter() - begin)


def leave_one_out(start: Start, samples: InitialSamples) -> LeaveOneOut | None:
    """Predict each initial sample by the trained Gaussian process from all others.

    Returns
    -------
    LeaveOneOut or None
        None if there are too many samples or too few, or the training brings points of its own.
    """
    n = len(samples.targets)
    scaling = start.scaling
    mean = start.mean
    found = start.hyperparameters
    if scaling is None or mean is None or found is None:
        return None
    if start.points is not None or not 2 <= n <= MAX_SCREENED_SAMPLES:
        return None
    gp = OnlineGP(found.kernel, noise_variance=found.noise_variance, budget=n)
    gp.fit(
        scaling.transform(samples.regressors),
        samples.targets - mean(samples.regressors),
    )
    return gp.leave_one_out()


def find_outliers(start: Start, samples: InitialSamples, gate: float) -> np.ndarray:
    """Which of the initial samples (n,) are beyond the gate, each predicted from all others.

    None of them if they are too many.
    """
    if (found := leave_one_out(start, samples)) is None:
        return np.zeros(len(samples.targets), dtype=bool)
    is_far: np.ndarray = found.residual**2 > float(gate) ** 2 * found.variance
    return is_far & (is_far.sum() <= len(is_far) // SAMPLES_PER_OUTLIER)


def without_spikes(samples: InitialSamples) -> tuple[InitialSamples, dict[str, int]]:
    """Replace the jumps of other signals that are taken back at once by the value before.

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
    for name, column in mended.newest.items():
        for row in mended.find_jumps({column: float(limits[column])}):
            before, value, after = x[[row - 1, row, min(row + 1, len(x) - 1)], column]
            if abs(after - before) < abs(after - value) and follows[min(row + 1, len(x) - 1)]:
                counts[name] = counts.get(name, 0) + 1
                time = row - narx.features[column][1]
                mended.believe(row, mended.errors | {(name, time): value - before})
    return InitialSamples(narx, mended.x, mended.y, follows), counts


def without_outliers(samples: InitialSamples, outliers: np.ndarray) -> InitialSamples:
    """Leave out outliers (n,), and the rows that have their measurements among the lags."""
    narx, x, y, follows = samples
    left_out = outliers.copy()
    for row in np.flatnonzero(outliers).tolist():
        for after in range(row + 1, min(row + 1 + reach_of(narx), len(outliers))):
            if not follows[after]:
                break
            left_out[after] = True
    kept = np.flatnonzero(~left_out)
    still_follows = follows[kept] & (np.diff(kept, prepend=-2) == 1)
    return InitialSamples(narx, x[kept], y[kept], still_follows)
