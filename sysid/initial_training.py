"""The training on the initial samples, without outliers and without spikes of other signals."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, TypeAlias

import numpy as np

from sysid.gp.marginal_likelihood import ExactGP, LeaveOneOut
from sysid.gp.marginal_likelihood import leave_one_out as predict_left_out
from sysid.gp.outlier_decisions import is_close
from sysid.gp.training import InitialSamples, Start
from sysid.narx.lags import reach_of
from sysid.outliers import OUTLIER_JUMP_STDS, Errors, MendedRows, density_costs

#: smallest number of samples, without outliers also among their lags, that outliers are judged by
MIN_LEFT_SAMPLES = 2

#: largest number of trainings that are repeated without the outliers of the one before
MAX_SCREENINGS = 3

#: largest number of initial samples among which outliers are searched for
MAX_SCREENED_SAMPLES = 2000

#: If more than one in this many samples is an outlier, the model is wrong and none is left out.
MIN_SAMPLES_PER_OUTLIER = 4

#: largest number of initial samples in a row that are wrong
MAX_WRONG_RUN = 3

#: An outlier is wrong only if this raises twice the log density of the samples after it by more
#: than so much.
MIN_REFUSAL_GAIN = 4.0

#: predicts mean and variance with noise (m,) at regressors (m, n_features)
Predict: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

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
            left = without_outliers(samples, outliers)
            if not outliers.any() or len(left.targets) < MIN_LEFT_SAMPLES:
                break
            start_without = prepare(left, known)
            is_wrong = find_wrong(start_without, samples, outliers, gate)
            if not is_wrong.any():
                break
            n_outliers += int(is_wrong.sum())
            samples = without_outliers(samples, is_wrong)
            is_same = np.array_equal(is_wrong, outliers)
            start = start_without if is_same else prepare(samples, known)
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


def find_wrong(
    start: Start, samples: InitialSamples, is_outlier: np.ndarray, gate: float
) -> np.ndarray:
    """Return which measurements (n,) are wrong: outliers that the samples after them refute.

    Two explanations compete for the samples after an outlier. It was the first of a run of wrong
    measurements: then its predictions take their place among the lags. Or it was right: then the
    plant has moved, and goes on from there. `start` was trained without the outliers, and knows
    nothing of them.

    An outlier that no sample follows is wrong, and so is one that the value before of another
    signal among its lags explains. Outliers that were right are known then: they help to decide
    about the others, where the plant has moved in the same way.
    """
    narx, x, y, follows = samples
    mended = MendedRows(narx)
    mended.begin(x, y, follows)
    is_unknown = is_outlier
    while True:
        is_wrong = _find_wrong_given(start, samples, mended, is_unknown, gate)
        is_left = is_unknown & is_wrong
        if not is_left.any() or np.array_equal(is_left, is_unknown):
            return is_wrong
        is_unknown = is_left


def _find_wrong_given(
    start: Start,
    samples: InitialSamples,
    mended: MendedRows,
    is_outlier: np.ndarray,
    gate: float,
) -> np.ndarray:
    """Return which measurements (n,) are wrong if all rows but those of the outliers are right."""
    scaling = start.scaling
    mean = start.mean
    known = start.hyperparameters
    assert scaling is not None
    assert mean is not None
    assert known is not None
    kept = without_outliers(samples, is_outlier)
    exact = ExactGP(
        known.kernel,
        known.noise_variance,
        scaling.transform(kept.regressors),
        kept.targets - mean(kept.regressors),
    )

    def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (m,) and variance with noise (m,) at regressors (m, n_features)."""
        predicted, variance = exact.predict(scaling.transform(x))
        return predicted + mean(x), variance

    def prior(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same before anything was learned."""
        variance = known.kernel.diagonal(scaling.transform(x))
        return mean(x), variance + known.noise_variance

    n = len(samples.targets)
    usual_std = float(np.std(samples.targets[~is_outlier]))
    is_wrong = np.zeros(n, dtype=bool)
    errors: Errors = {}
    row = 0
    while row < n:
        if not is_outlier[row]:
            row += 1
            continue
        n_outliers = int(np.argmin(np.append(is_outlier[row:], False)))
        run = _Run(mended, predict, prior, row, errors, usual_std, n_outliers)
        n_wrong = run.n_wrong(gate)
        if n_wrong == 0:
            row += 1
            continue
        is_wrong[row : row + n_wrong] = True
        errors = run.errors_of(n_wrong)
        row += n_wrong
    return is_wrong


class _Run:
    """The samples from an outlier on, of which none or the first ones may be wrong."""

    def __init__(
        self,
        mended: MendedRows,
        predict: Predict,
        prior: Predict,
        row: int,
        errors: Errors,
        usual_std: float,
        n_outliers: int,
    ) -> None:
        self._n_outliers = n_outliers  # in a row
        self._mended = mended
        self._usual_std = usual_std  # standard deviation of the targets that are no outliers
        self._predict = predict
        self._prior = prior
        self._row = row
        last = min(row + MAX_WRONG_RUN + mended.reach, len(mended.y))
        self.n_rows = 0  # rows after the outlier that follow it
        while row + 1 + self.n_rows < last and mended.follows[row + 1 + self.n_rows]:
            self.n_rows += 1
        self._errors = [errors]  # by the number of wrong measurements

    def errors_of(self, n_wrong: int) -> Errors:
        """Return the errors of replaced measurements if the first ones were wrong."""
        while len(self._errors) <= n_wrong:
            row = self._row + len(self._errors) - 1
            errors = self._errors[-1]
            x, y = self._mended.row(row, errors)
            predicted, _ = self._predict(x[None])
            cell = (self._mended.target, row)
            self._errors.append({**errors, cell: float(y - predicted[0])})
        return self._errors[n_wrong]

    @property
    def error(self) -> float:
        """Measurement of the outlier minus its prediction."""
        return self.errors_of(1)[self._mended.target, self._row]

    def n_wrong(self, gate: float) -> int:
        """Return how many measurements are wrong from the outlier on; 0: it is right.

        If only one of both explanations predicts the sample after it well (`is_explained`), that
        one is true. Otherwise the one of lower `cost` is. A run of wrong measurements explains
        something only if all of them are outliers: where the plant forgets soon, the sample after
        any run is predicted well.
        """
        costs = np.array([self.cost(n, gate) for n in range(MAX_WRONG_RUN + 1)])
        is_explained = np.array([self.is_explained(n, gate) for n in range(len(costs))])
        is_explained[self._n_outliers + 1 :] = False
        if is_explained[1:].any():
            costs[1:][~is_explained[1:]] = np.inf
        if is_explained[0] == is_explained[1:].any():
            is_right = costs[0] <= costs[1:].min() + MIN_REFUSAL_GAIN
        else:
            is_right = is_explained[0]
        if is_right and self.n_rows and not self.has_cause(gate):
            return 0
        return 1 + int(np.argmin(costs[1:]))

    def is_explained(self, n_wrong: int, gate: float) -> bool:
        """Return whether the sample after so many wrong measurements is predicted well.

        It is the sample after the outlier if none is wrong. It is within the gate, and its expected
        square error is far below the square of the error of the outlier, and far below the variance
        of the usual targets. Otherwise the model is wrong here, or nothing is known. Without such a
        sample nothing speaks against wrong measurements.
        """
        if n_wrong > self.n_rows:
            return n_wrong == self.n_rows + 1
        if self.n_rows == 0:
            return False
        errors = self.errors_of(n_wrong)
        x, y = self._mended.row(self._row + max(n_wrong, 1), errors)
        predicted, variance = self._predict(x[None])
        square = float(y - predicted[0]) ** 2
        is_within = square <= gate**2 * float(variance[0])
        return is_within and is_close(
            square + float(variance[0]), min(abs(self.error), self._usual_std)
        )

    def cost(self, n_wrong: int, gate: float) -> float:
        """Return the cost of the rows after the outlier if so many measurements were wrong.

        A cost is minus twice the log density (`density_costs`), where no error counts as more than
        the gate. A wrong measurement after the outlier costs as much as any other value.
        """
        if n_wrong > self.n_rows + 1:
            return np.inf
        if n_wrong == 0 and self._is_beyond_prior(gate):
            return np.inf
        errors = self.errors_of(n_wrong)
        first = max(n_wrong, 1)
        total = (first - 1) * (1.0 + float(np.log(np.var(self._mended.y))))
        rows = [self._mended.row(self._row + k, errors) for k in range(first, self.n_rows + 1)]
        if not rows:
            return total
        predicted, variances = self._predict(np.stack([x for x, _ in rows]))
        missed = np.array([y for _, y in rows]) - predicted
        limit = gate * np.sqrt(variances)
        return total + float(density_costs(np.clip(missed, -limit, limit), variances).sum())

    def _is_beyond_prior(self, gate: float) -> bool:
        """Return whether not even a plant of which nothing is known would move so far."""
        x, y = self._mended.row(self._row, self._errors[0])
        mean, variance = self._prior(x[None])
        return bool((y - mean[0]) ** 2 > gate**2 * variance[0])

    def has_cause(self, gate: float) -> bool:
        """Return whether the value before of another signal would explain the outlier.

        The value in between may be wrong only if the value after it is closer to the one before it.
        With the value before, the outlier must be within the gate, and its expected square error
        far below the square of its error.
        """
        mended = self._mended
        row = self._row
        if row == 0 or not mended.follows[row] or not self.n_rows:
            return False
        x, y = mended.row(row, self._errors[0])
        before, _ = mended.row(row - 1, self._errors[0])
        after, _ = mended.row(row + 1, self._errors[0])
        for name, column in mended.newest.items():
            if abs(after[column] - before[column]) >= abs(after[column] - x[column]):
                continue
            replaced = x.copy()
            replaced[mended.columns_of_newest(name)] = before[column]
            predicted, variance = self._predict(replaced[None])
            square = float(y - predicted[0]) ** 2
            is_within = square <= gate**2 * float(variance[0])
            if is_within and is_close(square + float(variance[0]), self.error):
                return True
        return False


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
    kept = np.flatnonzero(_follow_no_outlier(samples, outliers))
    still_follows = follows[kept] & (np.diff(kept, prepend=-2) == 1)
    return InitialSamples(narx, x[kept], y[kept], still_follows)


def _follow_no_outlier(samples: InitialSamples, outliers: np.ndarray) -> np.ndarray:
    """Return which rows (n,) neither are outliers nor have the measurement of one as a lag."""
    is_untouched = ~outliers
    for outlier in np.flatnonzero(outliers).tolist():
        end = min(outlier + 1 + reach_of(samples.narx), len(outliers))
        for row in range(outlier + 1, end):
            if not samples.follows[row]:
                break
            is_untouched[row] = False
    return is_untouched
