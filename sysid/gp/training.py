"""Estimation of hyper-parameters from the first samples of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from sysid.arrays import check_counts
from sysid.errors import UserError, UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Expected, Kernel, SearchSpace, SquaredExponential
from sysid.gp.marginal_likelihood import Likelihood, log_marginal_likelihood, minimise
from sysid.gp.mean import MeanFunction
from sysid.gp.online import MIN_NOISE_RATIO, OnlineGP
from sysid.gp.rules import Learning
from sysid.narx.lags import Narx


class InitialSamples(NamedTuple):
    """Samples that were collected before anything is learned, in their own units."""

    narx: Narx
    regressors: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)
    follows: (
        np.ndarray
    )  # (n,) bool: the sample comes right after the one before it, in the same record


class Points(NamedTuple):
    """Points of a dictionary, in the coordinates of the kernel."""

    inputs: np.ndarray  # (n, q)
    targets: np.ndarray  # (n,) without the mean, target unit


TYPICAL = 400  # samples, at most, whose distances are looked at


class Start(NamedTuple):
    """What a model starts from; None: it follows from the initial samples."""

    scaling: AffineMap | None = (
        None  # of the features, for instance that of the whole training part
    )
    mean: MeanFunction | None = None  # subtracted from the target, as it is
    hyperparameters: Hyperparameters | None = (
        None  # for features and target in these scales; spares the training
    )
    points: Points | None = None  # of the first dictionary; None: the initial samples
    limits: tuple[float, float] | None = (
        None  # between which the output saturates; None: nothing is known
    )
    report: dict[str, Any] | None = (
        None  # of the training: what was tried, as plain numbers, texts, lists and dicts
    )
    bands: tuple[tuple[int, float], ...] | None = (
        None  # by horizon, of held-out errors; None: not measured
    )
    # whether the hyper-parameters, of all samples, are not estimated anew from some of them
    stays: bool = False


class Hyperparameters(NamedTuple):
    """What a training returns."""

    kernel: Kernel
    noise_variance: float  # target unit^2
    log_likelihood: float  # of the training samples; nan if not computed
    warnings: tuple[str, ...] = ()  # what a user should know about this estimate


@dataclass(frozen=True, eq=False)
class MarginalLikelihoodProblem:
    """Minimise minus the log posterior over ``(log hyper-parameters of the kernel, log
    noise/variance)``.

    Those of the squared exponential are the logarithms of its variance and length scales. The noise
    is relative to the variance of the kernel at features of one. The likelihood is that of all
    samples, or, given the first `n_given` of them, that of the others::

        log p(y_others | y_given) = log p(y) - log p(y_given)
    """

    settings: MaximumLikelihood
    inputs: np.ndarray
    targets: np.ndarray
    expected: Expected
    n_given: int = 0  # samples that only condition

    @classmethod
    def of(cls, settings: MaximumLikelihood, inputs: np.ndarray, targets: np.ndarray) -> Self:
        """Problem of inputs (n, p) and centred targets (n,), in their own scales."""
        p = inputs.shape[1]
        spread = AffineMap.fit(inputs).scale  # 1 for a constant feature
        some = inputs[:: -(-len(inputs) // TYPICAL)]
        first, second = np.triu_indices(len(some), 1)
        distances = np.array([np.median(abs(some[first, d] - some[second, d])) for d in range(p)])
        typical = np.where(distances > 1e-6 * spread, distances, spread) * np.sqrt(p)
        variance = float(np.mean(targets**2)) or 1.0
        of_weight = variance / spread**2
        expected = Expected(
            variance=variance,
            lengths=typical,
            variance_bounds=variance * np.array(settings.variance_bounds),
            length_scale_bounds=np.outer(spread, settings.length_scale_bounds),
            log_length_scales=np.log(settings.length_scale_prior_median * typical),
            length_scale_std=settings.length_scale_prior_std,
            weight_bounds=np.outer(of_weight, settings.weight_bounds),
            log_weights=np.log(settings.weight_prior_median * of_weight),
            weight_std=settings.weight_prior_std,
        )
        return cls(settings, inputs, targets, expected)

    @cached_property
    def unit(self) -> Kernel:
        """Kernel of the settings with hyper-parameters of one."""
        return self.settings.kernel.with_scales(1.0, np.ones(self.inputs.shape[1]))

    @cached_property
    def space(self) -> SearchSpace:
        """Where the hyper-parameters of the kernel are searched."""
        return self.settings.kernel.search_space(self.expected)

    @property
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (q + 1, 2) of the logarithms."""
        return np.vstack([self.space.bounds, np.log(self.settings.noise_bounds)])

    def starts(self, n: int, generator: np.random.Generator) -> list[np.ndarray]:
        """Choose n starts (q + 1,): typical distances, longer ones, and random draws about them."""
        first = np.append(self.space.start, np.log(0.01))
        longer = first.copy()
        longer[:-1] += self.space.along_lengths * np.log(self.settings.length_scale_prior_median)
        drawn = [first + generator.normal(scale=0.7, size=first.size) for _ in range(n)]
        return [np.clip(start, *self.bounds.T) for start in [first, longer, *drawn][:n]]

    def kernel_and_noise(self, x: np.ndarray) -> tuple[Kernel, float]:
        """Kernel and noise variance of the logarithms x (q + 1,)."""
        variance, _ = self.unit.log_variance(x[:-1])
        return self.unit.with_log_hyperparameters(x[:-1]), float(np.exp(variance + x[-1]))

    def logarithms(self, kernel: Kernel, noise_variance: float) -> np.ndarray:
        """Inverse of `kernel_and_noise`.

        Raises
        ------
        ValueError
            A kernel of another kind than that of the settings.
        """
        logs = kernel.log_hyperparameters()
        if kernel.with_log_hyperparameters(0.0 * logs) != self.unit.with_log_hyperparameters(
            0.0 * self.space.start
        ):
            expected = self.settings.kernel
            raise UserError(
                f"{type(self.settings).__name__}: kernel must be of the kind {expected}, got {kernel}"
            )
        return np.append(logs, np.log(noise_variance) - self.unit.log_variance(logs)[0])

    def log_likelihood(self, x: np.ndarray) -> Likelihood:
        """``log p(y) - log p(y_given)`` and its gradient (q + 1,).

        Raises
        ------
        sysid.arrays.NotPositiveDefiniteError
            If the covariance is not positive definite in double precision.
        """
        value, gradient = self.log_density(*self.kernel_and_noise(x))
        gradient[:-1] += (
            gradient[-1] * self.unit.log_variance(x[:-1])[1]
        )  # the noise is relative to the variance
        return Likelihood(value, gradient)

    def log_density(self, kernel: Kernel, noise_variance: float) -> Likelihood:
        """Return ``log p(y) - log p(y_given)`` of a kernel and a noise variance, and its gradient.

        The gradient is with respect to the logarithms of both.
        """
        return log_marginal_likelihood(
            kernel, noise_variance, self.inputs, self.targets, self.n_given
        )

    def warnings(self, x: np.ndarray) -> tuple[str, ...]:
        """Hyper-parameters that lie on a bound."""
        names = [*self.unit.hyperparameter_names, "noise variance"]
        return tuple(
            f"{name} at its {'lower' if value <= low else 'upper'} bound"
            for name, value, (low, high) in zip(names, x, self.bounds, strict=True)
            if low < high and not low < value < high
        )

    def cost(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log posterior and its gradient (q + 1,)."""
        try:
            value, gradient = self.log_likelihood(x)
        except np.linalg.LinAlgError:
            return 1e25, np.zeros_like(x)
        penalty, slope = self.prior(x)
        return penalty - value, slope - gradient

    def prior(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log of the log-normal priors, without constants."""
        s = self.settings
        space = self.space
        variance, gradient = self.unit.log_variance(x[:-1])
        pull = (x[:-1] - space.medians) / space.stds
        noise = (
            variance + x[-1] - np.log(s.noise_prior_median * self.expected.variance)
        ) / s.noise_prior_std
        slope = np.append(noise / s.noise_prior_std * gradient, noise / s.noise_prior_std)
        slope[:-1] += pull / space.stds
        return float(0.5 * (pull @ pull + noise * noise)), slope


WITH_PRIORS = ("length_scale", "weight", "noise", "record_length")
PRIORS = tuple(f"{name}_prior_{value}" for name in WITH_PRIORS for value in ("median", "std"))


LEAST_BOUNDS = {
    "length_scale_bounds": 0.0,
    "variance_bounds": 0.0,
    "weight_bounds": 0.0,
    "noise_bounds": MIN_NOISE_RATIO,
}


class Follower(Protocol):
    """What an identification asks of a training that goes on while the stream does;
    `sysid.gp.adaptation` has it.
    """

    estimates: list[Any]  # made so far

    @property
    def n_until_look(self) -> int:
        """Samples that may follow before `adapted` must be asked."""

    def start(
        self,
        scaling: AffineMap,
        mean: MeanFunction,
        regressors: np.ndarray,
        targets: np.ndarray,
        learning: Learning,
        *,
        n_left_out: int = 0,
    ) -> None:
        """Begin with the map and the mean of the initial model and its samples (n, p), (n,), in
        their own units.

        So many more initial samples were seen, but left out as outliers.
        """

    def observe(self, regressors: np.ndarray, targets: np.ndarray, record: np.ndarray) -> None:
        """Take note of samples (n, p), (n,) and of their record (n,)."""

    def believe(self) -> None:
        """Take the last sample, an outlier so far, for a usual one."""

    def adapted(self, gp: OnlineGP, *, is_settled: bool = True) -> OnlineGP:
        """Return the online GP with new hyper-parameters, or itself.

        `is_settled`: its last sample is not learned later.
        """


class Training(ABC):
    """Supplies hyper-parameters once the first `n_initial` samples are there."""

    #: settings of an identification that it brings itself: those of the same name have no effect
    replaces: ClassVar[frozenset[str]] = frozenset()

    n_initial: (
        int | None
    )  # samples to collect before learning starts; 0 starts empty, None takes all that there are

    @property
    @abstractmethod
    def standardise(self) -> bool:
        """Whether features are standardised and the target is centred by the training samples."""

    @abstractmethod
    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Hyper-parameters for samples (n_initial, p), (n_initial,)."""

    def prepare(
        self,
        samples: InitialSamples,
        known: Start,
        *,
        mean: MeanFunction,
        budget: int,
        seed: int,
    ) -> Start:
        """Everything that a model starts from: what is known beforehand, and for the rest what the
        samples say.

        Parameters
        ----------
        samples : InitialSamples
            The first `n_initial`.
        known : Start
        mean : MeanFunction
            Its kind; fitted to the samples if the training standardises.
        budget : int
            Largest number of points.
        seed : int
        """
        x = samples.regressors
        y = samples.targets
        fits = self.standardise and len(samples.targets) > 0
        scaling = known.scaling
        chosen = known.mean
        hyperparameters = known.hyperparameters
        if scaling is None:
            scaling = AffineMap.fit(x) if fits else AffineMap.identity(samples.narx.n_features)
        if chosen is None:
            chosen = mean.fitted(x, y) if fits else mean
        if hyperparameters is None:
            hyperparameters = self.train(scaling.transform(x), y - chosen(x), seed)
        return Start(scaling, chosen, hyperparameters, known.points)

    def know(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
    ) -> Start:
        """Return what all samples (n, p), (n,) of a record say before the first is learned.

        It is nothing unless this is overridden.
        """
        return Start()

    def follow(self, seed: int) -> Follower | None:
        """Return what re-estimates the hyper-parameters during the stream, or None if they stay."""
        return None


@dataclass(frozen=True)
class Fixed(Training):
    """Given hyper-parameters, in the units of the features and of the target; nothing is
    standardised.

    Examples
    --------
    >>> Fixed(variance=1.0, length_scales=[1.0, 2.0], noise_variance=0.01).n_initial
    0
    """

    variance: float  # target unit^2
    length_scales: Sequence[float] | float  # feature units; one number serves all features
    noise_variance: float  # target unit^2
    n_initial: int = 0  # samples that start the dictionary before learning
    kernel: Kernel = field(
        default_factory=SquaredExponential
    )  # prototype that the variance and length scales fill

    standardise = False  # the values given are in the units of the data

    def __post_init__(self) -> None:
        check_prototype(self)
        check_counts(self, n_initial=0)
        self.kernel.with_scales(
            float(self.variance), np.atleast_1d(self.length_scales)
        )  # refuses what is not positive
        if not MIN_NOISE_RATIO * self.variance <= self.noise_variance < inf:
            raise UserError(
                f"Fixed: noise_variance must be at least {MIN_NOISE_RATIO:g} of the variance, got {self.noise_variance}"
            )

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Return the given values; a single length scale is repeated for all features."""
        p = inputs.shape[1]
        n = np.size(self.length_scales)
        if n not in (1, p):
            raise UserError(
                f"Fixed: length_scales must have one number, or {p} (one per feature), got {n}"
            )
        scales = np.asarray(self.length_scales, dtype=float) * np.ones(p)
        return Hyperparameters(
            self.kernel.with_scales(float(self.variance), scales),
            float(self.noise_variance),
            nan,
        )


@dataclass(frozen=True)
class MaximumLikelihood(Training):
    """Maximum marginal likelihood by L-BFGS-B with the analytic gradient, from several seeded
    starts.

    Bounds are relative: length scales to the standard deviation of their feature, the signal
    variance to the mean square of the target, the weight variances of a linear kernel to both, the
    noise variance to the signal variance: that of the kernel at features of one. Log-normal priors
    on length scales, weight variances and noise can be added (see `MaximumAPosteriori`); here they
    are off.

    Notes
    -----
    The typical distance of a feature is the median distance of two samples times the square root of
    the number of features.
    """

    n_initial: int = 100  # samples
    restarts: int = 5  # optimisations from different starts; one on a record
    length_scale_bounds: tuple[float, float] = (0.05, 1000.0)  # std of the feature
    variance_bounds: tuple[float, float] = (0.0025, 1e4)  # mean square of the target
    noise_bounds: tuple[float, float] = (MIN_NOISE_RATIO, 100.0)  # signal variance
    length_scale_prior_median: float = 20.0  # typical distances
    length_scale_prior_std: float = inf  # of the logarithm; infinite: no prior
    noise_prior_median: float = 0.1  # mean square of the target
    noise_prior_std: float = inf  # of the logarithm; infinite: no prior
    max_iterations: int = 200  # of one optimisation
    kernel: Kernel = field(default_factory=SquaredExponential)  # prototype
    weight_bounds: tuple[float, float] = (
        1e-6,
        1e6,
    )  # mean square of the target / variance of the feature
    weight_prior_median: float = 1.0  # mean square of the target / variance of the feature
    weight_prior_std: float = inf  # of the logarithm; infinite: no prior
    # samples spread over a record that is known as a whole, instead of its first ones
    record_samples: int = 400
    record_length_prior_median: float = (
        5.0  # typical distances; of a record, which shows where the function changes
    )
    record_length_prior_std: float = inf  # of the logarithm; infinite: no prior

    standardise = True

    def __post_init__(self) -> None:
        check_prototype(self)
        check_counts(self, n_initial=2, restarts=1, max_iterations=1, record_samples=2)
        for name in PRIORS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
                raise UserError(
                    f"{self._name}: {name} must be a positive number (inf is one), got {value!r}"
                )
        for name, lowest in LEAST_BOUNDS.items():
            object.__setattr__(self, name, self._read_bounds(name, lowest))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _read_bounds(self, name: str, least: float) -> tuple[float, float]:
        try:
            low, high = (float(value) for value in getattr(self, name))
        except (TypeError, ValueError):
            raise UserError(
                f"{self._name}: {name} must be two numbers, got {getattr(self, name)!r}"
            ) from None
        if not (least <= low < high and low > 0):
            raise UserError(
                f"{self._name}: {name} must be 0 < low < high with low >= {least:g}, got ({low}, {high})"
            )
        return low, high

    def know(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
    ) -> Start:
        """Scales and mean of all samples, hyper-parameters of `record_samples` of them at equal
        distances.
        """
        scaling = AffineMap.fit(regressors)
        chosen = mean.fitted_to_record(regressors, targets)
        n = len(targets)
        spread = np.arange(min(n, self.record_samples)) * n // min(n, self.record_samples)
        median = self.record_length_prior_median
        std = self.record_length_prior_std
        training = replace(
            self,
            length_scale_prior_median=median,
            length_scale_prior_std=std,
            restarts=1,
        )
        x = regressors[spread]
        left = targets[spread] - chosen(regressors[spread])
        return Start(
            scaling,
            chosen,
            training.train(scaling.transform(x), left, seed),
            stays=True,
        )

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Best optimum over all starts."""
        problem = MarginalLikelihoodProblem.of(self, inputs, targets)
        starts = problem.starts(self.restarts, np.random.default_rng(seed))
        results = [
            minimise(problem.cost, start, problem.bounds, max_iterations=self.max_iterations)
            for start in starts
        ]
        best = min(results, key=lambda result: result.cost).x
        notes = problem.warnings(best)
        kernel_and_noise = problem.kernel_and_noise(best)
        if unfinished := sum(not result.converged for result in results):
            notes = (
                *notes,
                f"{unfinished} of {len(results)} optimisations did not converge",
            )
        return Hyperparameters(*kernel_and_noise, problem.log_likelihood(best).value, notes)


@dataclass(frozen=True)
class MaximumAPosteriori(MaximumLikelihood):
    """`MaximumLikelihood` with log-normal priors on the length scales, on weight variances and on
    the noise.

    The first samples of a stream cover a small part of what it will visit, and say little about
    length scales far beyond their own spread: the likelihood alone puts many of them at a bound or
    far too short. The prior says that a function changes over a distance of the order of 20 typical
    distances of the first samples; where these samples know better, the likelihood decides.
    """

    length_scale_prior_std: float = 0.7  # of the logarithm; infinite: no prior
    noise_prior_std: float = 2.0  # of the logarithm; infinite: no prior
    weight_prior_std: float = 4.0  # of the logarithm; infinite: no prior
    record_length_prior_std: float = 1.5  # of the logarithm; infinite: no prior


def check_prototype(training: Fixed | MaximumLikelihood) -> None:
    """Refuse a kernel setting that is no prototype: its hyper-parameters would have no effect."""
    kernel = training.kernel
    if not isinstance(kernel, Kernel) or not kernel.is_prototype:
        raise UserTypeError(
            f"{type(training).__name__}: kernel must be a prototype, such as Matern52(), whose hyper-parameters the "
            f"training finds, got {kernel!r}"
        )
