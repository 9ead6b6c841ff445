"""A linear part with a long memory, beside a Gaussian process of few features.

A NARX model with a linear part is::

    y = phi'theta + f(x) + e

phi (p,) are many lags of every signal, and x are the few features of the process f. The
coefficients of signal s are Gaussian a priori, ``theta_s ~ N(0, P_s)``, with a covariance that
decays with the lag, so that the number of lags need not be right, only large enough (Pillonetto and
De Nicolao, "A new kernel-based approach for linear system identification", 2010; Chen, Ohlsson and
Ljung, "On the estimation of transfer functions, regularizations and Gaussian processes", 2012). As
a function of phi the linear part is a Gaussian process with the kernel ``phi'P phi'``, which has
finite rank: it needs no points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sysid.compiled import cached_njit
from sysid.errors import UserError, UserTypeError
from sysid.gp.kernels import Expected, Kernel, SearchSpace, read_positive

#: Smallest and largest memory of the coefficients that a training tries [samples].
MEMORY_BOUNDS = (0.1, 1000.0)

#: Median of the log-normal prior of the memory [samples].
MEMORY_PRIOR_MEDIAN = 3.0

#: Standard deviation of the logarithm of the memory.
MEMORY_PRIOR_STD = 1.5

#: Smallest and largest variance of a first coefficient that a training tries, in units of the mean
#: square of the target over the variance of the signal.
COEFFICIENT_VARIANCE_BOUNDS = (1e-9, 1e4)

#: Median of the log-normal prior of the variance of a first coefficient, in the same units.
COEFFICIENT_PRIOR_MEDIAN = 1.0

#: Standard deviation of the logarithm of the variance of a first coefficient.
COEFFICIENT_PRIOR_STD = 3.0

#: Median of the log-normal prior of the length scales beside a linear part, in standard deviations
#: of the feature. The linear part explains what is nearly linear; what it leaves bends.
LENGTH_SCALE_PRIOR_MEDIAN = 4.0

#: Standard deviation of the logarithm of a length scale beside a linear part.
LENGTH_SCALE_PRIOR_STD = 1.5

#: Median of the log-normal prior of the signal variance beside a linear part, in units of the mean
#: square of the target.
VARIANCE_PRIOR_MEDIAN = 0.3

#: Standard deviation of the logarithm of the signal variance beside a linear part.
VARIANCE_PRIOR_STD = 2.0

#: First start of the variance of a first coefficient, in the same units.
COEFFICIENT_VARIANCE_START = 0.1

#: Variance that every coefficient has in addition, relative to the first coefficient of its signal.
#: Without it, the variances of long lags may be zero in double precision.
RELATIVE_JITTER = 1e-13


#: Number of matrices of lags that are kept, one for each number of lags.
N_KEPT_LAG_MATRICES = 16


class CoefficientDecay(ABC):
    """Covariance of the coefficients of one signal, the first of which has the variance 1.

    A subclass is a frozen dataclass without fields.
    """

    @abstractmethod
    def correlation(self, n_lags: int, memory: float) -> np.ndarray:
        """Return the covariance (n_lags, n_lags) of coefficients whose first has the variance 1."""

    @abstractmethod
    def by_log_memory(self, n_lags: int, memory: float) -> np.ndarray:
        """Return the derivative of `correlation` with respect to the logarithm of the memory."""


@lru_cache(maxsize=N_KEPT_LAG_MATRICES)
def _later(n_lags: int) -> np.ndarray:
    """Return ``max(i, j)`` (n_lags, n_lags) with i, j = 0 ... n_lags - 1, read-only."""
    steps = np.arange(n_lags)
    later = np.maximum.outer(steps, steps).astype(float)
    later.setflags(write=False)
    return later


@dataclass(frozen=True)
class TunedCorrelated(CoefficientDecay):
    """Tuned/correlated kernel, also called stable spline of first order (TC).

    ``cov(theta_i, theta_j) = exp(-max(i, j) / memory)``, i, j = 0, 1, ... (Chen, Ohlsson and Ljung,
    2012, equation 31c). The coefficients are a random walk that ends at zero.
    """

    def correlation(self, n_lags: int, memory: float) -> np.ndarray:
        """See `CoefficientDecay.correlation`."""
        return np.exp(-_later(n_lags) / memory)

    def by_log_memory(self, n_lags: int, memory: float) -> np.ndarray:
        """See `CoefficientDecay.by_log_memory`."""
        exponent = _later(n_lags) / memory
        return np.asarray(exponent * np.exp(-exponent))


@dataclass(frozen=True)
class SecondOrderSpline(CoefficientDecay):
    """Stable spline kernel of second order (SS), whose coefficients are a smooth function.

    With the decay ``a = exp(-1 / memory)``, i, j = 0, 1, ... and ``m = max(i, j)`` (Pillonetto and
    De Nicolao, 2010), scaled to a first coefficient of variance 1::

        cov(theta_i, theta_j) = 3/2 a^(i + j + m) - 1/2 a^(3 m)
    """

    def correlation(self, n_lags: int, memory: float) -> np.ndarray:
        """See `CoefficientDecay.correlation`."""
        both, thrice = self._exponents(n_lags, memory)
        return np.asarray(1.5 * np.exp(-both) - 0.5 * np.exp(-thrice))

    def by_log_memory(self, n_lags: int, memory: float) -> np.ndarray:
        """See `CoefficientDecay.by_log_memory`."""
        both, thrice = self._exponents(n_lags, memory)
        return np.asarray(1.5 * both * np.exp(-both) - 0.5 * thrice * np.exp(-thrice))

    @staticmethod
    def _exponents(n_lags: int, memory: float) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(i + j + m) / memory`` and ``3 m / memory``."""
        steps = np.arange(n_lags)
        later = _later(n_lags)
        return (np.add.outer(steps, steps) + later) / memory, 3.0 * later / memory


@dataclass(frozen=True)
class Diagonal(CoefficientDecay):
    """Independent coefficients whose variance decays (DI): ``exp(-i / memory)``, i = 0, 1, ...

    Source: Chen, Ohlsson and Ljung, 2012, equation 31a.
    """

    def correlation(self, n_lags: int, memory: float) -> np.ndarray:
        """See `CoefficientDecay.correlation`."""
        return np.diag(np.exp(-np.arange(n_lags) / memory))

    def by_log_memory(self, n_lags: int, memory: float) -> np.ndarray:
        """See `CoefficientDecay.by_log_memory`."""
        exponent = np.arange(n_lags) / memory
        return np.diag(exponent * np.exp(-exponent))


class _SignalPrior(NamedTuple):
    """Prior of the coefficients of one signal.

    The lags of the signal have the coefficients ``mixing @ g`` with ``g ~ N(0, covariance())``. For
    a differenced signal g is the level coefficient, followed by those of the changes.
    """

    block: slice  # features of the signal
    variance: float
    memory: float
    level_variance: float | None  # None: the signal is not differenced
    decay: CoefficientDecay

    @property
    def n_lags(self) -> int:
        """Number of lags n."""
        return int(self.block.stop - self.block.start)

    @property
    def mixing(self) -> np.ndarray:
        """Matrix (n, n) from g to the coefficients of the lags."""
        mixing = np.eye(self.n_lags)
        if self.level_variance is not None:
            changes = np.eye(self.n_lags) - np.eye(self.n_lags, k=-1)
            mixing[:, 1:] = changes[:, :-1]
        return mixing

    @property
    def n_decaying(self) -> int:
        """Number of coefficients whose variance decays; they are the last ones of g."""
        return self.n_lags - (self.level_variance is not None)

    def covariance(self) -> np.ndarray:
        """Return the covariance (n, n) of g."""
        n = self.n_decaying
        correlation = self.decay.correlation(n, self.memory) + RELATIVE_JITTER * np.eye(n)
        covariance = np.zeros((self.n_lags, self.n_lags))
        covariance[-n:, -n:] = self.variance * correlation
        if self.level_variance is not None:
            covariance[0, 0] = self.level_variance
        return covariance

    def contract(self, weights: np.ndarray) -> tuple[float, float, float]:
        """Return ``sum_ab weights_ab d covariance_ab`` by log variance, memory and level variance.

        The weights have shape (n, n).
        """
        n = self.n_decaying
        decaying = weights[-n:, -n:]
        by_memory = self.variance * np.vdot(decaying, self.decay.by_log_memory(n, self.memory))
        by_variance = float(np.vdot(decaying, self.covariance()[-n:, -n:]))
        by_level = weights[0, 0] * (self.level_variance or 0.0)
        return by_variance, float(by_memory), float(by_level)


@dataclass(frozen=True)
class StableSpline(Kernel):
    """Kernel ``phi'P phi'`` of a linear function of the lags of several signals.

    P is block diagonal. The block of signal s, with `n_lags[s]` lags, is ``variances[s]`` times the
    correlation R of `decay` for ``memories[s]``.

    A signal whose change is predicted is *differenced*: its part is a function of its newest value
    and of its past changes, ``a phi_1 + sum_i b_i (phi_i - phi_(i+1))``, with ``b ~ N(0, c R)`` and
    a level coefficient ``a ~ N(0, level variance)``. Its coefficients nearly cancel each other, as
    they do where the change does not depend on the level.

    Parameters
    ----------
    n_lags : sequence of int
        Number of lags of each signal, whose features follow each other, the shortest lag first.
    variances : sequence of float
        Variance of the first coefficient of each signal, target unit^2 / feature unit^2. Empty in a
        prototype.
    memories : sequence of float
        Number of samples over which the variance of the coefficients of each signal falls to 1/e.
        Empty in a prototype.
    level_variances : sequence of float
        Variance of the level coefficient of each differenced signal, in the same unit. Empty in a
        prototype.
    differenced : sequence of int
        Numbers of the signals, from 0, that are differenced. They have at least 2 lags.
    decay : CoefficientDecay
    """

    n_lags: Sequence[int]
    variances: Sequence[float] = ()  # target unit^2 / feature unit^2
    memories: Sequence[float] = ()  # samples
    level_variances: Sequence[float] = ()  # target unit^2 / feature unit^2
    differenced: Sequence[int] = ()
    decay: CoefficientDecay = field(default_factory=TunedCorrelated)

    def __post_init__(self) -> None:
        n_lags = tuple(int(n) for n in self.n_lags)
        if not n_lags or min(n_lags) < 1:
            raise UserError(
                f"StableSpline: n_lags must be at least 1 for each signal, got {n_lags}"
            )
        if not isinstance(self.decay, CoefficientDecay):
            raise UserTypeError(
                "StableSpline: decay must be a CoefficientDecay such as TunedCorrelated(), "
                f"got {self.decay!r}"
            )
        object.__setattr__(self, "n_lags", n_lags)
        differenced = tuple(int(s) for s in self.differenced)
        object.__setattr__(self, "differenced", differenced)
        if not all(0 <= s < len(n_lags) and n_lags[s] >= 2 for s in differenced):
            raise UserError(
                "StableSpline: differenced must be numbers of signals with at least 2 lags, got "
                f"{differenced} of the lags {n_lags}"
            )
        expected_sizes = {
            "variances": len(n_lags),
            "memories": len(n_lags),
            "level_variances": len(differenced),
        }
        is_prototype = len(self.variances) == 0
        for name, size in expected_sizes.items():
            values = getattr(self, name)
            if len(values) != (0 if is_prototype else size):
                raise UserError(
                    f"StableSpline: expected {size} {name}, or neither variances, memories nor "
                    f"level_variances, got {len(values)}"
                )
            numbers = read_positive(self, name) if len(values) else ()
            object.__setattr__(self, name, numbers)

    @property
    def is_prototype(self) -> bool:
        return not self.variances

    @property
    def n_features(self) -> int:
        return sum(self.n_lags)

    @property
    def n_signals(self) -> int:
        """Number of signals."""
        return len(self.n_lags)

    @property
    def blocks(self) -> list[slice]:
        """Features of each signal."""
        ends = np.cumsum(self.n_lags).tolist()
        return [slice(end - n, end) for end, n in zip(ends, self.n_lags, strict=True)]

    def covariance(self) -> np.ndarray:
        """Return the covariance P (p, p) of the coefficients, block by block."""
        P = np.zeros((self.n_features, self.n_features))
        for signal in self._signals():
            P[signal.block, signal.block] = signal.mixing @ signal.covariance() @ signal.mixing.T
        return P

    def root(self) -> np.ndarray:
        """Return the lower triangular C (p, p) with ``C C' = P``."""
        C = np.zeros((self.n_features, self.n_features))
        for signal in self._signals():
            root = signal.covariance()
            if not _replace_by_root(root, signal.level_variance is not None):
                raise np.linalg.LinAlgError(
                    f"covariance of {signal.n_lags} coefficients is not positive definite"
                )
            C[signal.block, signal.block] = root
        return C

    def _signals(self) -> Iterator[_SignalPrior]:
        """Yield the prior of the coefficients of each signal."""
        levels = dict(zip(self.differenced, self.level_variances, strict=True))
        for s, block in enumerate(self.blocks):
            yield _SignalPrior(
                block, self.variances[s], self.memories[s], levels.get(s), self.decay
            )

    def parameters(self) -> np.ndarray:
        """Return P, row by row."""
        return self.covariance().ravel()

    @property
    def address(self) -> Any:
        """A linear part has no compiled row: the online GP learns its coefficients themselves."""
        raise UserTypeError(
            "StableSpline: an online GP takes it as the linear part of a kernel, WithLinearPart"
        )

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return ``first P second'`` (m, n)."""
        return np.asarray(first @ self.covariance() @ second.T)

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """Return ``phi'P phi`` (n,) of the rows of points (n, p)."""
        return np.asarray(np.square(points @ self.root()).sum(axis=1))

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        numbers = range(1, self.n_signals + 1)
        variances = [f"coefficient variance of signal {s}" for s in numbers]
        memories = [f"memory of signal {s}" for s in numbers]
        levels = [f"level variance of signal {s + 1}" for s in self.differenced]
        return (*variances, *memories, *levels)

    def log_hyperparameters(self) -> np.ndarray:
        """Return the logarithms of the variances, the memories and the level variances."""
        return np.log([*self.variances, *self.memories, *self.level_variances])

    def with_log_hyperparameters(self, values: np.ndarray) -> StableSpline:
        n = self.n_signals
        numbers = np.exp(values).tolist()
        return replace(
            self,
            variances=numbers[:n],
            memories=numbers[n : 2 * n],
            level_variances=numbers[2 * n :],
        )

    def scaled(self, factor: float) -> StableSpline:
        return replace(
            self,
            variances=[factor * variance for variance in self.variances],
            level_variances=[factor * variance for variance in self.level_variances],
        )

    def stretched(self, factors: np.ndarray) -> StableSpline:
        """Return the same covariance for features that were multiplied by factors (p,).

        Only one factor per signal is possible: that of its first lag is taken.
        """
        first = [block.start for block in self.blocks]
        squares = np.square(np.asarray(factors)[first])
        variances = np.asarray(self.variances) / squares
        level_variances = np.asarray(self.level_variances) / squares[list(self.differenced)]
        return replace(self, variances=variances.tolist(), level_variances=level_variances.tolist())

    def describe(self, features: Sequence[str]) -> dict[str, Any]:
        """Return the fields as plain values, by the name of the first feature of each signal."""
        return self.describe_by_signal([features[block.start] for block in self.blocks])

    def describe_by_signal(self, signals: Sequence[str]) -> dict[str, Any]:
        """Return the class and the fields as plain values, by the names of the signals."""
        return {
            "class": type(self).__name__,
            "decay": type(self.decay).__name__,
            "n_lags": dict(zip(signals, self.n_lags, strict=True)),
            "variances": dict(zip(signals, self.variances, strict=True)),
            "memories": dict(zip(signals, self.memories, strict=True)),
            "level_variances": {
                signals[s]: variance
                for s, variance in zip(self.differenced, self.level_variances, strict=True)
            },
        }

    def with_scales(self, variance: float, length_scales: np.ndarray) -> StableSpline:
        """Return a linear part whose first coefficients change the target by this variance.

        They do so when their signal changes by the length scale (p,) of its first lag. The memories
        are `MEMORY_PRIOR_MEDIAN`.
        """
        first = [block.start for block in self.blocks]
        variances = variance / np.square(np.asarray(length_scales)[first])
        return replace(
            self,
            variances=variances.tolist(),
            memories=[MEMORY_PRIOR_MEDIAN] * self.n_signals,
            level_variances=variances[list(self.differenced)].tolist(),
        )

    def search_space(self, expected: Expected) -> SearchSpace:
        """Return bounds and priors of the variances and memories.

        The variances are relative to the mean square of the target over the variance of the signal.
        """
        n = self.n_signals
        first = [block.start for block in self.blocks]
        log_units = np.log(expected.variance / np.square(expected.spread[first]))
        units_of_levels = log_units[list(self.differenced)]
        n_levels = len(units_of_levels)
        log_memory = np.full(n, np.log(MEMORY_PRIOR_MEDIAN))
        log_variance_bounds = log_units[:, None] + np.log(COEFFICIENT_VARIANCE_BOUNDS)
        log_level_bounds = units_of_levels[:, None] + np.log(COEFFICIENT_VARIANCE_BOUNDS)
        start = np.log(COEFFICIENT_VARIANCE_START)
        median = np.log(COEFFICIENT_PRIOR_MEDIAN)
        stds = [COEFFICIENT_PRIOR_STD, MEMORY_PRIOR_STD, COEFFICIENT_PRIOR_STD]
        return SearchSpace(
            start=np.concatenate([log_units + start, log_memory, units_of_levels + start]),
            along_lengths=np.zeros(2 * n + n_levels),
            bounds=np.vstack(
                [log_variance_bounds, np.tile(np.log(MEMORY_BOUNDS), (n, 1)), log_level_bounds]
            ),
            medians=np.concatenate([log_units + median, log_memory, units_of_levels + median]),
            stds=np.repeat(stds, [n, n, n_levels]),
        )

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`.

        ``sum_ij W_ij phi_i' dP phi_j' = sum_ab dP_ab (Phi' W Phi')_ab``.
        """
        others = points if others is None else others
        return self.contract_covariance(points.T @ weights @ others)

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.diagonal_gradient`."""
        return self.contract_covariance((points * weights[:, None]).T @ points)

    def contract_covariance(self, weights: np.ndarray) -> np.ndarray:
        """Return ``sum_ab weights_ab dP_ab / d log theta`` for every log hyper-parameter (q,).

        The weights have shape (p, p).
        """
        gradients = []
        for signal in self._signals():
            of_signal = weights[signal.block, signal.block]
            gradients.append(signal.contract(signal.mixing.T @ of_signal @ signal.mixing))
        by_variance = [gradient[0] for gradient in gradients]
        by_memory = [gradient[1] for gradient in gradients]
        by_level = [gradients[s][2] for s in self.differenced]
        return np.array([*by_variance, *by_memory, *by_level])

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`; it is ``P phi`` of the point for every input."""
        return np.tile(points @ self.covariance(), (len(inputs), 1, 1))

    def gradient_covariance(self, points: np.ndarray) -> np.ndarray:
        """See `Kernel.gradient_covariance`; it is the prior covariance P of the coefficients."""
        return np.tile(self.covariance(), (len(points), 1, 1))


@cached_njit(error_model="numpy")
def _replace_by_root(a: np.ndarray, is_differenced: bool) -> bool:
    """Replace a covariance (n, n) of g by the lower triangular root of that of the coefficients.

    If the signal is differenced, these are ``mixing @ g`` (`_SignalPrior`). With the Cholesky
    factor L of the covariance, ``mixing @ L`` is lower triangular but for the diagonal above the
    main one, which Givens rotations of neighbouring columns remove. Return whether the covariance
    is positive definite.
    """
    n = len(a)
    for j in range(n):
        for i in range(j, n):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            if i > j:
                a[i, j] = total / a[j, j]
            elif total > 0.0:
                a[j, j] = np.sqrt(total)
            else:
                return False
        for i in range(j):
            a[i, j] = 0.0
    if not is_differenced:
        return True
    for j in range(n):
        a[0, j] += a[1, j]
        for i in range(1, n - 1):
            a[i, j] = a[i + 1, j] - a[i, j]
        a[n - 1, j] = -a[n - 1, j]
    for i in range(n - 1):
        length = np.hypot(a[i, i], a[i, i + 1])
        cosine = a[i, i] / length
        sine = a[i, i + 1] / length
        for k in range(i, n):
            left = a[k, i]
            a[k, i] = cosine * left + sine * a[k, i + 1]
            a[k, i + 1] = cosine * a[k, i + 1] - sine * left
        a[i, i + 1] = 0.0
    if a[n - 1, n - 1] < 0.0:
        a[n - 1, n - 1] = -a[n - 1, n - 1]
    return True


@dataclass(frozen=True)
class WithLinearPart(Kernel):
    """``k(x, x') + phi'P phi'``: a kernel of the first features and a linear part of the others.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the d first features.
    linear : StableSpline
        Linear part of the p features after them.
    """

    kernel: Kernel
    linear: StableSpline

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel) or isinstance(self.kernel, WithLinearPart):
            raise UserTypeError(
                f"WithLinearPart: kernel must be a Kernel without linear part, got {self.kernel!r}"
            )
        if not isinstance(self.linear, StableSpline):
            raise UserTypeError(
                f"WithLinearPart: linear must be a StableSpline, got {self.linear!r}"
            )
        if self.kernel.is_prototype != self.linear.is_prototype:
            raise UserError(
                "WithLinearPart: kernel and linear must both be prototypes, or both have "
                "hyper-parameters"
            )

    @property
    def is_prototype(self) -> bool:
        return self.kernel.is_prototype

    @property
    def n_features(self) -> int:
        return self.kernel.n_features + self.linear.n_features

    @property
    def linear_lags(self) -> tuple[int, ...]:
        return tuple(self.linear.n_lags)

    @property
    def row(self) -> Callable[..., None]:  # type: ignore[override]
        """Compiled row of the kernel of the first features."""
        return type(self.kernel).row

    @property
    def address(self) -> Any:
        """Address of the compiled row of the kernel of the first features."""
        return self.kernel.address

    def parameters(self) -> np.ndarray:
        """Return the parameters of the kernel of the first features."""
        return self.kernel.parameters()

    def split(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the features (n, d) of the kernel and those (n, p) of the linear part."""
        d = points.shape[1] - self.linear.n_features
        return points[:, :d], points[:, d:]

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        of_linear = [f"linear part: {name}" for name in self.linear.hyperparameter_names]
        return (*self.kernel.hyperparameter_names, *of_linear)

    def log_hyperparameters(self) -> np.ndarray:
        """Return those of the kernel, then those of the linear part."""
        return np.concatenate(
            [self.kernel.log_hyperparameters(), self.linear.log_hyperparameters()]
        )

    def with_log_hyperparameters(self, values: np.ndarray) -> WithLinearPart:
        of_kernel, of_linear = self._split_logs(values)
        return WithLinearPart(
            self.kernel.with_log_hyperparameters(of_kernel),
            self.linear.with_log_hyperparameters(of_linear),
        )

    def _split_logs(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log hyper-parameters of the kernel and those of the linear part."""
        n_of_linear = 2 * self.linear.n_signals + len(self.linear.differenced)
        return values[:-n_of_linear], values[-n_of_linear:]

    def scaled(self, factor: float) -> WithLinearPart:
        return WithLinearPart(self.kernel.scaled(factor), self.linear.scaled(factor))

    def stretched(self, factors: np.ndarray) -> WithLinearPart:
        d = self.kernel.n_features
        return WithLinearPart(
            self.kernel.stretched(factors[:d]), self.linear.stretched(factors[d:])
        )

    def with_scales(self, variance: float, length_scales: np.ndarray) -> WithLinearPart:
        """Return both parts with these scales; see `Kernel.with_scales`."""
        d = len(length_scales) - self.linear.n_features
        return WithLinearPart(
            self.kernel.with_scales(variance, length_scales[:d]),
            self.linear.with_scales(variance, length_scales[d:]),
        )

    def search_space(self, expected: Expected) -> SearchSpace:
        """Return the space of the kernel, then that of the linear part."""
        d = len(expected.lengths) - self.linear.n_features
        of_kernel = expected.of_features(slice(0, d))
        of_kernel = of_kernel._replace(
            log_length_scales=np.log(LENGTH_SCALE_PRIOR_MEDIAN * of_kernel.spread),
            length_scale_std=LENGTH_SCALE_PRIOR_STD,
        )
        space = self.kernel.search_space(of_kernel)
        space.medians[0] = np.log(VARIANCE_PRIOR_MEDIAN * expected.variance)
        space.stds[0] = VARIANCE_PRIOR_STD
        of_linear = self.linear.search_space(expected.of_features(slice(d, None)))
        return SearchSpace.join([space, of_linear])

    def describe(self, features: Sequence[str]) -> dict[str, Any]:
        """Return the kernel of the first features as plain values, with `linear_part` beside it."""
        d = self.kernel.n_features
        described = self.kernel.describe(features[:d])
        return described | {"linear_part": self.linear.describe(features[d:])}

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        x, phi = self.split(first)
        x_of_others, phi_of_others = self.split(second)
        return self.kernel(x, x_of_others) + self.linear(phi, phi_of_others)

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        x, phi = self.split(points)
        return self.kernel.diagonal(x) + self.linear.diagonal(phi)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log prior variance of the kernel of the first features, and its gradient.

        The linear part is left out: bounds of the noise are relative to what needs points.
        """
        of_kernel, of_linear = self._split_logs(values)
        log_variance, gradient = self.kernel.log_variance(of_kernel)
        return log_variance, np.concatenate([gradient, np.zeros(len(of_linear))])

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`; each part has its own hyper-parameters."""
        x, phi = self.split(points)
        x_of_others, phi_of_others = self.split(points if others is None else others)
        of_kernel = self.kernel(x, x_of_others)
        return np.concatenate(
            [
                self.kernel.contract_gradient(weights, x, of_kernel, x_of_others),
                self.linear.contract_gradient(weights, phi, covariance, phi_of_others),
            ]
        )

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        x, phi = self.split(points)
        return np.concatenate(
            [
                self.kernel.diagonal_gradient(weights, x),
                self.linear.diagonal_gradient(weights, phi),
            ]
        )

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        x, phi = self.split(inputs)
        x_of_points, phi_of_points = self.split(points)
        return np.concatenate(
            [
                self.kernel.input_gradient(x, x_of_points),
                self.linear.input_gradient(phi, phi_of_points),
            ],
            axis=2,
        )

    def gradient_covariance(self, points: np.ndarray) -> np.ndarray:
        x, phi = self.split(points)
        d = x.shape[1]
        covariance = np.zeros((len(points), points.shape[1], points.shape[1]))
        covariance[:, :d, :d] = self.kernel.gradient_covariance(x)
        covariance[:, d:, d:] = self.linear.gradient_covariance(phi)
        return covariance
