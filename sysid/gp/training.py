"""Estimation of hyper-parameters from the first samples of a stream, or from a record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, inf, nan
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from sysid.arrays import MAX_MAGNITUDE, as_number, check_counts, listed_numbers
from sysid.errors import UserError, UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Expected, Kernel, Linear, SearchSpace, SquaredExponential
from sysid.gp.linear_part import StableSpline, WithLinearPart
from sysid.gp.marginal_likelihood import (
    TOLERANCE,
    Likelihood,
    Optimum,
    leave_one_out,
    log_marginal_likelihood,
    minimise,
)
from sysid.gp.mean import MeanFunction
from sysid.gp.online import MIN_NOISE_RATIO, OnlineGP
from sysid.gp.rules import Learning
from sysid.narx.lags import Narx
from sysid.time_limit import check_seconds, out_of_time, unlimited

#: A typical distance is the median over at most this many samples.
MAX_SAMPLES_FOR_DISTANCES = 400

#: A median distance below this fraction of the spread of a feature counts as zero.
MIN_DISTANCE_TO_SPREAD = 1e-6

#: First start of the logarithm of noise variance / signal variance.
LOG_NOISE_RATIO_START = np.log(0.01)

#: Standard deviation of the logarithms of randomly drawn starts.
RANDOM_START_STD = 0.7

#: Largest number of optimisations, whose starts are drawn before the first one.
MAX_RESTARTS = 100_000

#: Cost where the covariance is not positive definite, so that the line search turns back.
COST_IF_NOT_POSITIVE_DEFINITE = 1e25

#: Metadata of a field that files leave out while it has its default: versions that do not know the
#: field read them.
LATER_FIELD = {"later": True}

#: Degrees of freedom of the noise of a record with heavy tails, a Student-t distribution [-].
STUDENT_NOISE_DEGREES = 4.0

#: Largest number of estimates in turn of the weights of the samples and of the hyper-parameters.
MAX_STUDENT_REWEIGHTINGS = 3

#: Number of steps in which the scale of this noise is found for given hyper-parameters.
N_NOISE_SCALE_STEPS = 20

#: The weights are found if the noise variance changes by at most this fraction.
NOISE_VARIANCE_TOLERANCE = 0.02

#: At least this fraction of its squared error is the noise of a sample, the rest may be the
#: uncertainty of the function.
MIN_NOISE_SHARE = 0.05

#: Settings of `MaximumLikelihood` that describe priors and must be positive.
PRIOR_SETTINGS = (
    "length_scale_prior_median",
    "length_scale_prior_std",
    "weight_prior_median",
    "weight_prior_std",
    "noise_prior_median",
    "noise_prior_std",
    "record_length_prior_median",
    "record_length_prior_std",
    "record_variance_factor",
)

#: Smallest value that the lower bound of each of these settings may have.
LEAST_LOWER_BOUNDS = {
    "length_scale_bounds": 0.0,
    "variance_bounds": 0.0,
    "weight_bounds": 0.0,
    "noise_bounds": MIN_NOISE_RATIO,
}


class InitialSamples(NamedTuple):
    """Samples, in their own units, that were collected before the model learns the first one."""

    narx: Narx
    regressors: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)
    #: (n,) bool: whether a sample directly follows the one before it, in the same record
    follows: np.ndarray


class Points(NamedTuple):
    """Points of a dictionary, in the coordinates of the kernel."""

    inputs: np.ndarray  # (n, q)
    targets: np.ndarray  # (n,) minus the mean function, target unit


class Start(NamedTuple):
    """Prior knowledge about a model, before it learns its first sample.

    A field that is None follows from the initial samples.
    """

    #: map of the features, for instance fitted to the whole training part of a record
    scaling: AffineMap | None = None
    #: mean function that is subtracted from the target; it is not fitted again
    mean: MeanFunction | None = None
    #: for features and target in these scales; no training is needed then
    hyperparameters: Hyperparameters | None = None
    #: points of the first dictionary; None: the initial samples
    points: Points | None = None
    #: lower and upper limit at which the output saturates; None: there are no known limits
    limits: tuple[float, float] | None = None
    #: what the training tried, as plain numbers, texts, lists and dicts
    report: dict[str, Any] | None = None
    #: horizons and factors of the bands, see `sysid.Model.bands`; None: not measured
    bands: tuple[tuple[int, float], ...] | None = None
    #: whether the hyper-parameters are final and not estimated again from some of the samples
    stays: bool = False
    #: number of samples at rest with which the stream begins; they are not learned
    n_at_rest: int = 0
    #: segments of records with holes, for a training that simulates (`sysid.simulation.segments`);
    #: None: those of the initial samples
    segments: Sequence[Any] | None = None


class Hyperparameters(NamedTuple):
    """Result of a training."""

    kernel: Kernel
    noise_variance: float  # target unit^2
    log_likelihood: float  # of the training samples; nan if not computed
    warnings: tuple[str, ...] = ()  # what a user should know about this estimate

    def with_variance_factor(self, factor: float) -> Hyperparameters:
        """Multiply the variance of the kernel, but not that of its linear part, by a factor."""
        if factor == 1.0:
            return self
        kernel = self.kernel
        if isinstance(kernel, WithLinearPart):
            return self._replace(kernel=replace(kernel, kernel=kernel.kernel.scaled(factor)))
        return self._replace(kernel=kernel.scaled(factor))


@dataclass(frozen=True, eq=False)
class MarginalLikelihoodProblem:
    """Minimisation of minus the log posterior of the hyper-parameters.

    The variables are the log hyper-parameters of the kernel, followed by the logarithm of noise
    variance / signal variance. For the squared exponential kernel, the first ones are the
    logarithms of its variance and length scales. The signal variance is the prior variance of the
    kernel at a point whose features are all 1. The likelihood is that of all samples or, given the
    first `n_given` samples, that of the others::

        log p(y_others | y_given) = log p(y) - log p(y_given)
    """

    settings: MaximumLikelihood
    inputs: np.ndarray
    targets: np.ndarray
    expected: Expected
    n_given: int = 0  # number of first samples that are only conditioned on
    #: (n,) noise variance of each sample as a multiple of that of the model; None: all are 1
    noise_factors: np.ndarray | None = None

    @classmethod
    def of(cls, settings: MaximumLikelihood, inputs: np.ndarray, targets: np.ndarray) -> Self:
        """Return the problem of inputs (n, p) and centred targets (n,), in their own scales."""
        linear_lags = settings.kernel.linear_lags
        spread = AffineMap.fit(inputs, linear_lags).scale  # 1 for a constant feature
        typical = spread.copy()
        n_kernel_features = len(spread) - sum(linear_lags)
        typical[:n_kernel_features] = _typical_distances(
            inputs[:, :n_kernel_features], spread[:n_kernel_features]
        )
        variance = float(np.mean(targets**2))
        if variance == 0:
            variance = 1.0
        typical_weight_variance = variance / spread**2
        expected = Expected(
            variance=variance,
            lengths=typical,
            variance_bounds=variance * np.array(settings.variance_bounds),
            length_scale_bounds=np.outer(spread, settings.length_scale_bounds),
            log_length_scales=np.log(settings.length_scale_prior_median * typical),
            length_scale_std=settings.length_scale_prior_std,
            weight_bounds=np.outer(typical_weight_variance, settings.weight_bounds),
            log_weights=np.log(settings.weight_prior_median * typical_weight_variance),
            weight_std=settings.weight_prior_std,
            spread=spread,
        )
        return cls(settings, inputs, targets, expected)

    @cached_property
    def unit(self) -> Kernel:
        """Kernel of the settings whose hyper-parameters are all 1."""
        return self.settings.kernel.with_scales(1.0, np.ones(self.inputs.shape[1]))

    @cached_property
    def space(self) -> SearchSpace:
        """Starts, bounds and priors of the hyper-parameters of the kernel."""
        return self.settings.kernel.search_space(self.expected)

    @property
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (q + 1, 2) of the logarithms of all variables."""
        return np.vstack([self.space.bounds, np.log(self.settings.noise_bounds)])

    def starts(self, n: int, generator: np.random.Generator) -> list[np.ndarray]:
        """Choose n starts (q + 1,): typical distances, longer ones, then random draws around them.

        All starts lie within the bounds.
        """
        first = np.append(self.space.start, LOG_NOISE_RATIO_START)
        longer = first.copy()
        longer[:-1] += self.space.along_lengths * np.log(self.settings.length_scale_prior_median)
        drawn = [
            first + generator.normal(scale=RANDOM_START_STD, size=first.size) for _ in range(n)
        ]
        starts = [first, longer, *drawn]
        lower, upper = self.bounds.T
        return [np.clip(start, lower, upper) for start in starts[:n]]

    def start_at(self, known: Hyperparameters) -> np.ndarray:
        """Return the variables x (q + 1,) of known hyper-parameters, within the bounds."""
        x = self.logarithms(known.kernel, known.noise_variance)
        return np.asarray(np.clip(x, *self.bounds.T))

    def kernel_and_noise(self, x: np.ndarray) -> tuple[Kernel, float]:
        """Return the kernel and the noise variance for the variables x (q + 1,)."""
        log_signal_variance, _ = self.unit.log_variance(x[:-1])
        kernel = self.unit.with_log_hyperparameters(x[:-1])
        noise_variance = float(np.exp(log_signal_variance + x[-1]))
        return kernel, noise_variance

    def logarithms(self, kernel: Kernel, noise_variance: float) -> np.ndarray:
        """Return the variables x (q + 1,) for a kernel and a noise variance.

        This is the inverse of `kernel_and_noise`.

        Raises
        ------
        ValueError
            If the kernel is of another kind than that of the settings.
        """
        logs = kernel.log_hyperparameters()
        unit_of_given = kernel.with_log_hyperparameters(0.0 * logs)
        unit_of_settings = self.unit.with_log_hyperparameters(0.0 * self.space.start)
        if unit_of_given != unit_of_settings:
            raise UserError(
                f"{type(self.settings).__name__}: kernel must be of the kind "
                f"{self.settings.kernel}, got {kernel}"
            )
        log_signal_variance, _ = self.unit.log_variance(logs)
        return np.append(logs, np.log(noise_variance) - log_signal_variance)

    def log_likelihood(self, x: np.ndarray) -> Likelihood:
        """Return ``log p(y) - log p(y_given)`` and its gradient (q + 1,) at x (q + 1,).

        Raises
        ------
        sysid.arrays.NotPositiveDefiniteError
            If the covariance is not positive definite in double precision.
        """
        kernel, noise_variance = self.kernel_and_noise(x)
        value, gradient = self.log_density(kernel, noise_variance)
        # The noise is relative to the signal variance, which the kernel's own parameters change.
        _, log_signal_gradient = self.unit.log_variance(x[:-1])
        gradient[:-1] += gradient[-1] * log_signal_gradient
        return Likelihood(value, gradient)

    def log_density(self, kernel: Kernel, noise_variance: float) -> Likelihood:
        """Return ``log p(y) - log p(y_given)`` of a kernel and a noise variance, and its gradient.

        The gradient is with respect to the log hyper-parameters and the log noise variance.
        """
        return log_marginal_likelihood(
            kernel,
            noise_variance,
            self.inputs,
            self.targets,
            self.n_given,
            self.noise_factors,
        )

    def warnings(self, x: np.ndarray) -> tuple[str, ...]:
        """Return one warning for each hyper-parameter that lies on a bound."""
        names = [*self.unit.hyperparameter_names, "noise variance"]
        warnings = []
        for name, value, (low, high) in zip(names, x, self.bounds, strict=True):
            is_free = low < high
            if is_free and not low < value < high:
                side = "lower" if value <= low else "upper"
                meaning = ""
                is_noise = name == names[-1]
                if is_noise and side == "upper" and high >= 0.0:  # at least the signal variance
                    meaning = ": beside the mean, the kernel finds next to nothing but noise"
                warnings.append(f"{name} at its {side} bound{meaning}")
        return tuple(warnings)

    def cost(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log posterior and its gradient (q + 1,)."""
        try:
            value, gradient = self.log_likelihood(x)
        except np.linalg.LinAlgError:
            return COST_IF_NOT_POSITIVE_DEFINITE, np.zeros_like(x)
        penalty, slope = self.prior(x)
        return penalty - value, slope - gradient

    def prior(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log density of the log-normal priors, without constants.

        The second value is its gradient (q + 1,).
        """
        noise_std = self.settings.noise_prior_std
        log_noise_median = np.log(self.settings.noise_prior_median * self.expected.variance)
        log_signal_variance, log_signal_gradient = self.unit.log_variance(x[:-1])
        kernel_deviations = (x[:-1] - self.space.medians) / self.space.stds
        noise_deviation = (log_signal_variance + x[-1] - log_noise_median) / noise_std
        by_log_noise = noise_deviation / noise_std
        gradient = np.append(by_log_noise * log_signal_gradient, by_log_noise)
        gradient[:-1] += kernel_deviations / self.space.stds
        squares = kernel_deviations @ kernel_deviations + noise_deviation * noise_deviation
        return float(0.5 * squares), gradient


def _typical_distances(inputs: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return the typical distance (p,) of each feature of the inputs (n, p).

    This is the median distance of two samples times sqrt(p). Where the median is zero, the spread
    (p,) of the feature takes its place.
    """
    p = inputs.shape[1]
    step = ceil(len(inputs) / MAX_SAMPLES_FOR_DISTANCES)
    subset = inputs[::step]
    first, second = np.triu_indices(len(subset), 1)
    medians = np.array([np.median(abs(subset[first, d] - subset[second, d])) for d in range(p)])
    has_distance = medians > MIN_DISTANCE_TO_SPREAD * spread
    return np.where(has_distance, medians, spread) * np.sqrt(p)


class Follower(Protocol):
    """Re-estimation of the hyper-parameters while samples arrive, as an identification uses it.

    `sysid.gp.adaptation` implements it.
    """

    estimates: list[Any]  # all estimates so far
    #: samples (n, p), (n,) to train a new model on, if the stream has left the region before
    departed: tuple[np.ndarray, np.ndarray] | None

    @property
    def n_until_test(self) -> int:
        """Number of samples that may follow before `adapted` must be called."""

    def start(
        self,
        scaling: AffineMap,
        mean: MeanFunction,
        regressors: np.ndarray,
        targets: np.ndarray,
        learning: Learning,
        *,
        n_left_out: int = 0,
        own_lags: Sequence[int] | None = None,
    ) -> None:
        """Begin with the map and the mean of the initial model.

        The initial samples (n, p), (n,) are in their own units. `n_left_out` is the number of
        further initial samples that were left out as outliers, or at rest. `own_lags` are the
        features that are lags of the target; None: the map and the mean were not estimated from the
        samples and stay, wherever the stream goes.
        """

    def observe(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        record: np.ndarray,
        measured: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Keep samples (n, p), (n,) and their reports (n,) for the next test of the errors.

        `measured` are the samples without replaced values; None: nothing was replaced.
        """

    def accept_outliers(self, are_accepted: np.ndarray) -> None:
        """Accept some of the last samples (k,), which counted as outliers until now."""

    def adapted(self, gp: OnlineGP) -> OnlineGP:
        """Return the online GP with new hyper-parameters, or the same GP.

        The last sample may not be held back: the decision about it is final.
        """


class Training(ABC):
    """Source of the hyper-parameters once the first `n_initial` samples have been collected."""

    #: settings that this training supplies itself: those of the identification have no effect
    replaces: ClassVar[frozenset[str]] = frozenset()

    #: samples to collect before learning starts; 0 starts empty, None waits for all samples
    n_initial: int | None

    def with_linear_part(self, linear: StableSpline) -> Training | None:
        """Return the same training for a kernel with this linear part, a prototype.

        None if the training cannot estimate its hyper-parameters, which is the default.
        """
        return None

    @property
    @abstractmethod
    def standardise(self) -> bool:
        """Whether the training samples standardise the features and centre the target."""

    @abstractmethod
    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Return the hyper-parameters for samples (n_initial, p), (n_initial,)."""

    def prepare(
        self,
        samples: InitialSamples,
        known: Start,
        *,
        mean: MeanFunction,
        budget: int,
        seed: int,
    ) -> Start:
        """Return a start without open fields: what is not known follows from the samples.

        Parameters
        ----------
        samples : InitialSamples
            The first `n_initial`.
        known : Start
            What is known beforehand.
        mean : MeanFunction
            Kind of the mean; fitted to the samples if the training standardises.
        budget : int
            Largest number of points.
        seed : int
        """
        x = samples.regressors
        y = samples.targets
        is_fitted_to_samples = self.standardise and len(samples.targets) > 0
        scaling = known.scaling
        if scaling is None and is_fitted_to_samples:
            scaling = self.fit_scaling(x)
        elif scaling is None:
            scaling = AffineMap.identity(samples.narx.n_features)
        chosen_mean = known.mean
        if chosen_mean is None:
            chosen_mean = mean.fitted(x, y) if is_fitted_to_samples else mean
        hyperparameters = known.hyperparameters
        if hyperparameters is None:
            hyperparameters = self.train(scaling.transform(x), y - chosen_mean(x), seed)
        return Start(
            scaling=scaling,
            mean=chosen_mean,
            hyperparameters=hyperparameters,
            points=known.points,
        )

    def fit_scaling(self, regressors: np.ndarray) -> AffineMap:
        """Return the map that standardises regressors (n, p)."""
        return AffineMap.fit(regressors)

    def know(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
    ) -> Start:
        """Return what is known from all samples (n, p), (n,) of a record before any is learned.

        By default nothing is known.
        """
        return Start()

    def follow(self, seed: int) -> Follower | None:
        """Return the re-estimation during the stream; None: the hyper-parameters do not change."""
        return None


@dataclass(frozen=True)
class Fixed(Training):
    """Given hyper-parameters, in the units of the features and of the target.

    Nothing is standardised.

    Examples
    --------
    >>> Fixed(variance=1.0, length_scales=[1.0, 2.0], noise_variance=0.01).n_initial
    0
    """

    variance: float  # target unit^2
    length_scales: Sequence[float] | float  # feature units; one number serves all features
    noise_variance: float  # target unit^2
    n_initial: int = 0  # samples that form the dictionary before learning starts
    #: prototype whose variance and length scales are given
    kernel: Kernel = field(default_factory=SquaredExponential)

    standardise = False  # the given values are in the units of the data

    def __post_init__(self) -> None:
        check_prototype(self)
        check_counts(self, n_initial=0)
        is_single = isinstance(self.length_scales, Real | str)
        given = [self.length_scales] if is_single else self.length_scales
        scales = np.array(listed_numbers(given, "Fixed: length_scales"))
        # This raises an error for values that are not positive.
        self.kernel.with_scales(float(self.variance), scales)
        if not MIN_NOISE_RATIO * self.variance <= self.noise_variance < inf:
            raise UserError(
                f"Fixed: noise_variance must be at least {MIN_NOISE_RATIO:g} of the variance, "
                f"got {self.noise_variance}"
            )

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Return the given values; a single length scale holds for every feature."""
        p = inputs.shape[1]
        n = np.size(self.length_scales)
        if n not in (1, p):
            raise UserError(
                f"Fixed: length_scales must have one number, or {p} (one per feature), got {n}"
            )
        scales = np.asarray(self.length_scales, dtype=float) * np.ones(p)
        return Hyperparameters(
            kernel=self.kernel.with_scales(float(self.variance), scales),
            noise_variance=float(self.noise_variance),
            log_likelihood=nan,
        )


@dataclass(frozen=True)
class MaximumLikelihood(Training):
    """Maximum marginal likelihood by L-BFGS-B with the analytic gradient.

    The optimisation is repeated from several seeded starts.

    Bounds are relative. Length scales are relative to the standard deviation of their feature, the
    signal variance to the mean square of the target, the weight variances of a linear kernel to
    both. The noise variance is relative to the signal variance, which is the prior variance of the
    kernel at a point whose features are all 1. Log-normal priors on length scales, weight variances
    and noise can be added (see `MaximumAPosteriori`); here they are off.

    Notes
    -----
    The typical distance of a feature is the median distance of two samples times the square root of
    the number of features.
    """

    n_initial: int = 100  # samples
    restarts: int = 5  # optimisations from different starts; on a whole record only one
    length_scale_bounds: tuple[float, float] = (0.05, 1000.0)  # std of the feature
    variance_bounds: tuple[float, float] = (0.0025, 1e4)  # mean square of the target
    noise_bounds: tuple[float, float] = (MIN_NOISE_RATIO, 100.0)  # signal variance
    length_scale_prior_median: float = 20.0  # typical distances
    length_scale_prior_std: float = inf  # of the logarithm; infinite: no prior
    noise_prior_median: float = 0.1  # mean square of the target
    noise_prior_std: float = inf  # of the logarithm; infinite: no prior
    max_iterations: int = 200  # of one optimisation
    kernel: Kernel = field(default_factory=SquaredExponential)  # prototype
    #: mean square of the target / variance of the feature
    weight_bounds: tuple[float, float] = (1e-6, 1e6)
    weight_prior_median: float = 1.0  # mean square of the target / variance of the feature
    weight_prior_std: float = inf  # of the logarithm; infinite: no prior
    #: number of samples, spread over the whole record, that are used instead of the first samples
    record_samples: int = 400
    #: typical distances; a whole record shows where the function changes
    record_length_prior_median: float = 5.0
    record_length_prior_std: float = inf  # of the logarithm; infinite: no prior
    #: factor of the kernel's variance after the training, without its linear part [-]; below 1 the
    #: model of a whole record is less nonlinear than the likelihood of these samples says
    record_variance_factor: float = field(default=1.0, metadata=LATER_FIELD)
    #: whether the noise of a whole record may have heavy tails (`robust_to_large_errors`)
    record_robust: bool = field(default=False, metadata=LATER_FIELD)
    #: an optimisation ends once an iteration raises the log posterior density by less than this
    #: [nats]; the comparison of held-out errors ends its own at `held_out.MIN_GAIN_NATS`
    min_gain: float = field(default=0.0, metadata=LATER_FIELD)
    #: wall time [s] of the search for lags, estimator and hyper-parameters, which then keeps the
    #: best so far (`sysid.time_limit`); None: no limit
    seconds: float | None = field(default=None, metadata=LATER_FIELD)

    standardise = True

    def __post_init__(self) -> None:
        check_prototype(self)
        check_counts(self, n_initial=2, restarts=1, max_iterations=1, record_samples=2)
        check_seconds(self._name, self.seconds)
        if not isinstance(self.record_robust, bool):
            raise UserTypeError(
                f"{self._name}: record_robust must be true or false, got {self.record_robust!r}"
            )
        if not 0 <= as_number(self.min_gain) < inf:
            raise UserError(
                f"{self._name}: min_gain must be a number of at least 0, got {self.min_gain!r}"
            )
        if self.restarts > MAX_RESTARTS:
            raise UserError(
                f"{self._name}: restarts must be at most {MAX_RESTARTS}, got {self.restarts}"
            )
        for name in PRIOR_SETTINGS:
            value = getattr(self, name)
            is_off = name.endswith("_std") and value == inf
            if not is_off and not 1 / MAX_MAGNITUDE <= as_number(value) <= MAX_MAGNITUDE:
                or_off = " or inf" if name.endswith("_std") else ""
                raise UserError(
                    f"{self._name}: {name} must be a positive number{or_off}, "
                    f"from {1 / MAX_MAGNITUDE:g} to {MAX_MAGNITUDE:g}, got {value!r}"
                )
            object.__setattr__(self, name, float(value))
        for name, least in LEAST_LOWER_BOUNDS.items():
            object.__setattr__(self, name, self._read_bounds(name, least))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _read_bounds(self, name: str, least: float) -> tuple[float, float]:
        """Return the two bounds of a setting, the lower of which is at least `least`."""
        try:
            low, high = (float(value) for value in getattr(self, name))
        except (TypeError, ValueError, OverflowError):
            raise UserError(
                f"{self._name}: {name} must be two numbers, got {getattr(self, name)!r}"
            ) from None
        if not (least <= low < high and low > 0):
            raise UserError(
                f"{self._name}: {name} must be 0 < low < high with low >= {least:g}, "
                f"got ({low}, {high})"
            )
        return low, high

    def fit_scaling(self, regressors: np.ndarray) -> AffineMap:
        """Return the map that standardises regressors (n, p).

        All lags of a signal of the linear part share one offset and one scale.
        """
        return AffineMap.fit(regressors, self.kernel.linear_lags)

    def with_linear_part(self, linear: StableSpline) -> Training | None:
        """Return the same training for a kernel with this linear part, a prototype."""
        if self.kernel.linear_lags:
            return self
        return replace(self, kernel=WithLinearPart(self.kernel, linear))

    def know(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
        near: Hyperparameters | None = None,
    ) -> Start:
        """Return the scaling and the mean of all samples, with trained hyper-parameters.

        The training uses `record_samples` samples at equal distances. It also starts at the
        hyper-parameters `near`, if they are given: those that it found for nearly the same samples.
        The variance of the kernel is then multiplied by `record_variance_factor`.
        """
        if near is not None:
            near = near.with_variance_factor(1.0 / self.record_variance_factor)
        start = self._know_likeliest(regressors, targets, mean=mean, seed=seed, near=near)
        assert start.hyperparameters is not None
        scaled = start.hyperparameters.with_variance_factor(self.record_variance_factor)
        return start._replace(hyperparameters=scaled)

    def _know_likeliest(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
        near: Hyperparameters | None = None,
    ) -> Start:
        """Return the start of `know` with the hyper-parameters of the largest likelihood."""
        scaling, chosen_mean = self._scaling_and_mean(regressors, targets, mean)
        n = len(targets)
        n_used = min(n, self.record_samples)
        spread_rows = np.arange(n_used) * n // n_used
        training = replace(
            self,
            length_scale_prior_median=self.record_length_prior_median,
            length_scale_prior_std=self.record_length_prior_std,
            restarts=1,
        )
        x = regressors[spread_rows]
        residuals = targets[spread_rows] - chosen_mean(x)
        z = scaling.transform(x)
        hyperparameters = training._train(z, residuals, seed, near=near)
        if self.record_robust and not out_of_time():
            hyperparameters = training.robust_to_large_errors(hyperparameters, z, residuals, seed)
        return Start(scaling=scaling, mean=chosen_mean, hyperparameters=hyperparameters, stays=True)

    def _scaling_and_mean(
        self, regressors: np.ndarray, targets: np.ndarray, mean: MeanFunction
    ) -> tuple[AffineMap, MeanFunction]:
        """Return the scaling of a record (n, p) and the mean function of its targets (n,)."""
        if self.kernel.linear_lags:
            chosen_mean = mean.fitted(regressors, targets)
        else:
            chosen_mean = mean.fitted_to_record(regressors, targets)
        return self.fit_scaling(regressors), chosen_mean

    def robust_to_large_errors(
        self, known: Hyperparameters, inputs: np.ndarray, targets: np.ndarray, seed: int
    ) -> Hyperparameters:
        """Estimate the hyper-parameters again for noise with heavy tails.

        The noise has a Student-t distribution of nu = `STUDENT_NOISE_DEGREES` degrees of freedom,
        which is Gaussian noise whose variance differs from sample to sample. A sample with the
        error r_i and the latent variance v_i, both predicted from all other samples, has the noise
        variance ``h_i s^2`` with the scale s::

            h_i = (nu + r_i^2 / (s^2 + v_i)) / (nu + 1)

        These factors and the hyper-parameters are estimated in turn (Lange, Little and Taylor,
        Robust statistical modeling using the t distribution, Journal of the American Statistical
        Association 84, 1989). The noise variance of the result is s^2.

        Parameters
        ----------
        known : Hyperparameters
            Those for Gaussian noise.
        inputs : (n, p)
            In the coordinates of the kernel.
        targets : (n,)
            Minus the mean function, target unit.
        seed : int
        """
        factors: np.ndarray | None = None
        for _ in range(MAX_STUDENT_REWEIGHTINGS):
            before = known.noise_variance
            left_out = leave_one_out(known.kernel, before, inputs, targets, factors)
            noise = before if factors is None else before * factors
            factors = student_noise_factors(
                left_out.residual, np.maximum(left_out.variance - noise, 0.0), before
            )
            known = self._train(inputs, targets, seed, factors)
            if abs(known.noise_variance / before - 1.0) <= NOISE_VARIANCE_TOLERANCE:
                break
            if out_of_time():
                break
        return known

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Return the best optimum over all starts.

        If the time of the search is up (`seconds`), it ends with the best so far. The search for a
        linear kernel, which takes no time to speak of, is completed.
        """
        return self._train(inputs, targets, seed)

    def _train(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        seed: int,
        noise_factors: np.ndarray | None = None,
        *,
        near: Hyperparameters | None = None,
    ) -> Hyperparameters:
        """Return the best optimum over all starts, with factors (n,) of the noise variance.

        If hyper-parameters `near` the optimum are known, a search starts there as well.
        """
        problem = MarginalLikelihoodProblem.of(self, inputs, targets)
        if noise_factors is not None:
            problem = replace(problem, noise_factors=noise_factors)
        starts = problem.starts(self.restarts, np.random.default_rng(seed))
        if near is not None:
            starts = [problem.start_at(near), *starts]
        is_linear = isinstance(self.kernel, Linear)
        results: list[Optimum] = []
        for start in starts:
            if results and out_of_time():
                break
            with unlimited() if is_linear else nullcontext():
                result = minimise(
                    problem.cost,
                    start,
                    problem.bounds,
                    max_iterations=self.max_iterations,
                    min_gain=max(self.min_gain, TOLERANCE * len(targets)),
                    has_to_end=out_of_time,
                )
            results.append(result)
        best = min(results, key=lambda result: result.cost)
        warnings = problem.warnings(best.x)
        n_unfinished = sum(not result.converged for result in results)
        if n_unfinished > 0:
            unfinished = f"{n_unfinished} of {len(results)} optimisations did not converge"
            warnings = (*warnings, unfinished)
        kernel, noise_variance = problem.kernel_and_noise(best.x)
        log_likelihood = problem.log_likelihood(best.x).value
        return Hyperparameters(kernel, noise_variance, log_likelihood, warnings)


def student_noise_factors(
    residual: np.ndarray, latent_variance: np.ndarray, noise_variance: float
) -> np.ndarray:
    """Return the factors (n,) of the noise variance for noise with heavy tails.

    Parameters
    ----------
    residual : (n,)
        Errors of samples that are predicted from all others, target unit.
    latent_variance : (n,)
        Variances of these predictions without noise, target unit^2.
    noise_variance : float
        First guess of the squared scale of the noise, target unit^2.
    """
    squares = residual**2
    noise_squares = np.maximum(squares - latent_variance, MIN_NOISE_SHARE * squares)
    nu = STUDENT_NOISE_DEGREES
    squared_scale = noise_variance
    for _ in range(N_NOISE_SCALE_STEPS):
        factors = (nu + squares / (squared_scale + latent_variance)) / (nu + 1.0)
        mean_square = float(np.mean(noise_squares / factors))
        squared_scale = 0.5 * (squared_scale + max(mean_square, MIN_NOISE_RATIO * noise_variance))
    return np.asarray((nu + squares / (squared_scale + latent_variance)) / (nu + 1.0))


@dataclass(frozen=True)
class MaximumAPosteriori(MaximumLikelihood):
    """Maximum marginal likelihood with log-normal priors: see `MaximumLikelihood`.

    The priors are on the length scales, on weight variances and on the noise.

    The first samples of a stream cover only a small part of the region that the stream visits
    later. They contain little information about length scales far beyond their own spread: with
    the likelihood alone, many length scales end at a bound or far too short. The prior assumes that
    a function changes over a distance of the order of 20 typical distances of the first samples.
    Where the samples contain enough information, the likelihood outweighs the prior.
    """

    length_scale_prior_std: float = 0.7  # of the logarithm; infinite: no prior
    noise_prior_std: float = 2.0  # of the logarithm; infinite: no prior
    weight_prior_std: float = 4.0  # of the logarithm; infinite: no prior
    record_length_prior_std: float = 1.5  # of the logarithm; infinite: no prior


def check_prototype(training: Fixed | MaximumLikelihood) -> None:
    """Raise UserTypeError unless the kernel setting is a prototype.

    The hyper-parameters of another kernel would have no effect.
    """
    kernel = training.kernel
    if not isinstance(kernel, Kernel) or not kernel.is_prototype:
        raise UserTypeError(
            f"{type(training).__name__}: kernel must be a prototype, such as Matern52(), whose "
            f"hyper-parameters the training finds, got {kernel!r}"
        )
