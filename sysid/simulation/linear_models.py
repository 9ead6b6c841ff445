"""Linear models of several orders at once: lags, held-out errors, recursive least squares.

The models of all orders share one matrix of features, whose columns are sorted by lag: the features
of a smaller order are the first columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import hypot, inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, Indices, matrix, vector
from sysid.compiled import cached_njit
from sysid.errors import UserError

#: default ridge of recursive least squares: weight of the prior, as a number of samples
RECURSIVE_RIDGE = 1e-6

#: ridge of `HeldOutErrors.rmse_of_many`, relative to the sums of squares of the features
RELATIVE_RIDGE = 1e-9


# --- features -------------------------------------------------------------------------------------


class LaggedSignals(NamedTuple):
    """Lags of all signals at n samples, sorted by lag."""

    features: Array  # (n, n_lags * n_signals): the first lag of every signal, then the second ...
    n_known: Indices  # (n,) numbers of lags that were measured, for all signals


def lag_signals(
    signals: Mapping[str, Array], first_lags: Mapping[str, int], n_lags: int, samples: Indices
) -> LaggedSignals:
    """Return lags of the signals of one record, equally many of every signal.

    No lag reaches beyond the start of the record, nor across a value that is not finite. Where lags
    are missing, a signal is taken to have been constant: they have the value of the oldest known
    lag. So a model of many lags can predict the first samples, too; it should not learn them.

    Parameters
    ----------
    signals : mapping
        Values (n_samples,) of each signal, each in its unit.
    first_lags : mapping
        Signals that get lags, and the first lag of each, at least 0.
    n_lags : int
        Number of lags of each signal.
    samples : (n,)
        Samples k of the targets. A feature is ``signal[k - lag]``.

    Returns
    -------
    LaggedSignals
        A feature is nan if the first lag of its signal is missing already, also because
        it lies before the start.

    Examples
    --------
    >>> u = np.array([1.0, 2.0, np.nan, 4.0, 5.0])
    >>> lag_signals({"u": u}, {"u": 0}, 2, np.array([0, 1, 2, 3, 4]))
    LaggedSignals(features=array([[ 1.,  1.],
           [ 2.,  1.],
           [nan, nan],
           [ 4.,  4.],
           [ 5.,  4.]]), n_known=array([1, 2, 0, 1, 2]))
    """
    features = np.empty((len(samples), n_lags, len(first_lags)))
    n_known = np.full(len(samples), n_lags, dtype=np.int64)
    for column, (name, first_lag) in enumerate(first_lags.items()):
        values = signals[name]
        position = np.arange(len(values))
        last_gap = np.maximum.accumulate(np.where(np.isfinite(values), -1, position))
        is_before_start = samples < first_lag
        newest = np.maximum(samples - first_lag, 0)
        n_since_gap = np.where(is_before_start, 0, newest - last_gap[newest])
        oldest = newest - np.maximum(n_since_gap - 1, 0)
        for step in range(n_lags):
            features[:, step, column] = values[np.maximum(newest - step, oldest)]
        features[is_before_start, :, column] = np.nan
        n_known = np.minimum(n_known, n_since_gap)
    return LaggedSignals(features.reshape(len(samples), -1), n_known)


# --- held-out errors ------------------------------------------------------------------------------


class HeldOutErrors:
    """Held-out errors of linear models that differ in their features.

    A model is fitted by least squares to the samples of all folds but one, and predicts those of
    the fold; each fold is held out in turn. The products of all columns are summed once for each
    fold, and the models share these sums.

    Parameters
    ----------
    x : (n, p)
        All features, each in its unit.
    y : (n,)
        Target, which is not constant.
    n_folds : int
        Number of folds of consecutive samples.
    """

    def __init__(self, x: Array, y: Array, n_folds: int) -> None:
        self._scale = y.std()
        centred = x - x.mean(axis=0)
        std = centred.std(axis=0)
        scaled = centred / np.where(std > 0, std, 1.0)
        columns = np.column_stack([np.ones(len(y)), scaled, (y - y.mean()) / self._scale])
        ends = np.linspace(0, len(y), n_folds + 1).astype(int)
        self._folds = [columns[begin:end] for begin, end in pairwise(ends)]
        self._moments = [fold.T @ fold for fold in self._folds]
        self._moments_of_learned = self._moments  # without the rows that no model learns
        self._n = len(y)

    def leave_out(self, rows: NDArray[np.bool_]) -> None:
        """Fit no model to these rows (n,) from now on; all models still predict them."""
        ends = np.cumsum([len(fold) for fold in self._folds])
        is_learned = np.split(~rows, ends[:-1])
        self._moments_of_learned = [
            fold[learned].T @ fold[learned]
            for fold, learned in zip(self._folds, is_learned, strict=True)
        ]

    def rmse(self, features: Sequence[int], largest: float = inf) -> float:
        """Return the root mean square of the held-out errors of all folds [unit of the target].

        The model has an intercept and the features with these indices. Larger errors count as
        errors of the magnitude `largest` [unit of the target].
        """
        if largest < inf:
            counted = np.clip(self.residuals(features), -largest, largest)
            return float(np.sqrt(np.mean(counted**2)))
        squares = 0.0
        for moments, (chosen, coefficients) in zip(
            self._moments, self._models(features), strict=True
        ):
            # the held-out squared error is c'Mc, M the moments and c = (-theta, 1)
            squared_error = coefficients @ moments[np.ix_(chosen, chosen)] @ coefficients
            squares += max(0.0, float(squared_error))
        return float(self._scale * np.sqrt(squares / self._n))

    def residuals(self, features: Sequence[int]) -> Array:
        """Return the held-out errors (n,) whose root mean square is `rmse` [unit of the target]."""
        errors = [
            fold[:, chosen] @ coefficients
            for fold, (chosen, coefficients) in zip(
                self._folds, self._models(features), strict=True
            )
        ]
        return np.asarray(self._scale * np.concatenate(errors))

    def _models(self, features: Sequence[int]) -> Iterator[tuple[NDArray[np.integer], Array]]:
        """Yield the model of each fold that is held out: its columns, and ``(-theta, 1)``."""
        columns = np.array([0, *(1 + feature for feature in features)])
        total = sum(self._moments_of_learned)
        for moments in self._moments_of_learned:
            other_moments = total - moments
            normal_matrix = other_moments[np.ix_(columns, columns)]
            theta = np.linalg.lstsq(normal_matrix, other_moments[columns, -1], rcond=1e-13)[0]
            yield np.append(columns, len(moments) - 1), np.append(-theta, 1.0)

    def rmse_of_many(self, features: NDArray[np.integer]) -> Array:
        """Return the held-out errors (m,) of m models with equally many features [as `rmse`].

        It is faster than `rmse`. A tiny ridge stands in for the smallest solution where features
        depend on each other.

        Parameters
        ----------
        features : (m, q) of int
            Indices of the features of each model.
        """
        columns = np.column_stack([np.zeros(len(features), dtype=np.int64), 1 + features])
        total = sum(self._moments_of_learned)
        squares = np.zeros(len(features))
        rows = columns[:, :, None]
        diagonal = np.arange(columns.shape[1])
        for moments, learned in zip(self._moments, self._moments_of_learned, strict=True):
            other_moments = total - learned
            normal_matrix = other_moments[rows, columns[:, None, :]]
            normal_matrix[:, diagonal, diagonal] *= 1.0 + RELATIVE_RIDGE
            normal_matrix[:, diagonal, diagonal] += RELATIVE_RIDGE
            projected = other_moments[columns, -1]
            theta = np.linalg.solve(normal_matrix, projected[:, :, None])[:, :, 0]
            held_out = moments[rows, columns[:, None, :]]
            quadratic = np.einsum("mi,mij,mj->m", theta, held_out, theta, optimize=True)
            linear = np.einsum("mi,mi->m", theta, moments[columns, -1])
            squares += np.maximum(0.0, quadratic - 2.0 * linear + moments[-1, -1])
        return np.asarray(self._scale * np.sqrt(squares / self._n))


# --- recursive least squares ----------------------------------------------------------------------


def recursive_least_squares(
    features: ArrayLike,
    targets: ArrayLike,
    sizes: Sequence[int],
    *,
    is_learned: ArrayLike | None = None,
    ridge: float = RECURSIVE_RIDGE,
) -> Array:
    """Predict each target by linear models before they learn it; nothing is forgotten.

    The model of size p predicts ``theta[k]' x[k]`` from the first p features x[k], where theta[k]
    minimises

        ridge |theta|^2 + sum over learned i < k of (t[i] - theta' x[i])^2

    The recursion updates the triangular root R and the projected targets z of

        R'R = ridge I + sum of x[i] x[i]',    R'z = sum of x[i] t[i],    x' theta = (R'^-1 x)' z

    by a Givens rotation for each feature. It never squares the condition of the features, unlike a
    recursion for the covariance. All sizes share R and z, whose leading parts belong to the smaller
    models, so they cost O(p^2) a sample together, p the largest size.

    Ljung, System Identification (1999): sections 10.1 (least squares by QR) and 11.2 (recursive
    least squares).

    Parameters
    ----------
    features : (n, p)
        Features of the largest model, standardised, since the ridge is the same for all. An
        intercept is a column of ones.
    targets : (n,)
        Targets, in any unit.
    sizes : sequence of int
        Number of features of each model, in increasing order, from 1 to p.
    is_learned : (n,) of bool, optional
        Samples that are learned; None: all are.
    ridge : float
        Weight of the prior ``theta = 0``, positive [number of samples].

    Returns
    -------
    (n, len(sizes)) array
        Predictions in the unit of the targets.

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit, values are not finite, or an option is out of range.

    Examples
    --------
    >>> x = np.array([[1.0], [1.0], [1.0], [1.0]])
    >>> recursive_least_squares(x, [4.0, 2.0, 6.0, 9.0], [1]).ravel().round(3)
    array([0., 4., 3., 4.])
    """
    given = np.asarray(features)
    n_features = given.shape[1] if given.ndim == 2 else 0
    x = matrix(features, n_features, "features")
    t = vector(targets, len(x), "targets")
    is_increasing = all(np.diff(sizes) > 0)
    if not len(sizes) or not is_increasing or sizes[0] < 1 or sizes[-1] > n_features:
        raise UserError(
            f"recursive_least_squares: expected increasing sizes from 1 to {n_features}, the "
            f"number of features, got {list(sizes)}"
        )
    if not 0 < ridge < inf:
        raise UserError(
            f"recursive_least_squares(ridge={ridge!r}): expected a finite number above 0"
        )
    learned = np.ones(len(t), dtype=bool)
    if is_learned is not None:
        learned = np.array(is_learned, dtype=bool)
    if learned.shape != t.shape:
        raise UserError(
            f"recursive_least_squares: expected is_learned with {len(t)} values, got the shape "
            f"{learned.shape}"
        )
    predicted = np.empty((len(t), len(sizes)))
    root = sqrt(ridge) * np.eye(n_features)
    projected = np.zeros(n_features)
    _predict_and_learn(x, t, learned, np.array(sizes), root, projected, predicted)
    return predicted


@cached_njit(nogil=True, error_model="numpy")
def _predict_and_learn(
    features: Array,
    targets: Array,
    is_learned: NDArray[np.bool_],
    sizes: Indices,
    root: Array,
    projected: Array,
    predicted: Array,
) -> None:
    """Fill in the predictions of all models, and update R (upper triangular) and z in place."""
    n, n_features = features.shape
    remaining = np.empty(n_features)
    for k in range(n):
        for j in range(n_features):
            remaining[j] = features[k, j]
        mean = 0.0
        model = 0
        for i in range(n_features):
            whitened = remaining[i] / root[i, i]
            mean += whitened * projected[i]
            for j in range(i + 1, n_features):
                remaining[j] -= whitened * root[i, j]
            if model < len(sizes) and sizes[model] == i + 1:
                predicted[k, model] = mean
                model += 1
        if not is_learned[k]:
            continue
        for j in range(n_features):
            remaining[j] = features[k, j]
        residual = targets[k]
        for i in range(n_features):
            length = hypot(root[i, i], remaining[i])
            cosine = root[i, i] / length
            sine = remaining[i] / length
            root[i, i] = length
            for j in range(i + 1, n_features):
                above = root[i, j]
                root[i, j] = cosine * above + sine * remaining[j]
                remaining[j] = cosine * remaining[j] - sine * above
            above = projected[i]
            projected[i] = cosine * above + sine * residual
            residual = cosine * residual - sine * above
