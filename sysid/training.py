"""Estimation of hyper-parameters from the first samples of a stream."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from sysid.gp import Likelihood, log_marginal_likelihood
from sysid.kernels import Kernel, SquaredExponential
from sysid.scaling import Scaling
from sysid.search import Optimum, minimise
from sysid.state import LEAST_NOISE

if TYPE_CHECKING:
    from sysid.adaptation import Adaptation

PRIORS = ("length_scale_prior_median", "length_scale_prior_std", "noise_prior_median", "noise_prior_std")


class Hyperparameters(NamedTuple):
    """What a training returns."""

    kernel: Kernel
    noise_variance: float  # target unit^2
    log_likelihood: float  # of the training samples; nan if not computed
    warnings: tuple[str, ...] = ()  # what a user should know about this estimate


class Training(ABC):
    """Supplies hyper-parameters once the first `n_initial` samples are there."""

    n_initial: int  # samples to collect before learning starts; 0 starts empty

    @property
    @abstractmethod
    def standardise(self) -> bool:
        """Whether features are standardised and the target is centred by the training samples."""

    @abstractmethod
    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Hyper-parameters for samples (n_initial, p), (n_initial,)."""

    def follow(self, seed: int) -> "Adaptation | None":
        """What re-estimates the hyper-parameters while the stream goes on; None: they stay."""
        return None


@dataclass(frozen=True)
class Fixed(Training):
    """Given hyper-parameters, in the units of the features and of the target; nothing is standardised.

    Examples
    --------
    >>> Fixed(variance=1.0, length_scales=[1.0, 2.0], noise_variance=0.01).n_initial
    0
    """

    variance: float  # target unit^2
    length_scales: Sequence[float] | float  # feature units; one number serves all features
    noise_variance: float  # target unit^2
    n_initial: int = 0  # samples that start the dictionary before learning

    def __post_init__(self) -> None:
        if self.n_initial < 0:
            raise ValueError(f"Fixed: n_initial must be at least 0, got {self.n_initial}")
        kernel = SquaredExponential(self.variance, np.atleast_1d(self.length_scales))  # refuses what is not positive
        if not LEAST_NOISE * kernel.variance <= self.noise_variance < float("inf"):
            raise ValueError(
                f"Fixed: noise_variance must be at least {LEAST_NOISE:g} of the variance, got {self.noise_variance}"
            )

    @property
    def standardise(self) -> bool:
        """Never: the values given are in the units of the data."""
        return False

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Return the given values; a single length scale is repeated for all features."""
        scales = np.atleast_1d(np.asarray(self.length_scales, dtype=float))
        if scales.size == 1:
            scales = np.repeat(scales, inputs.shape[1])
        if scales.size != inputs.shape[1]:
            raise ValueError(
                f"Fixed: length_scales must have one number, or {inputs.shape[1]} (one per feature), got {scales.size}"
            )
        return Hyperparameters(SquaredExponential(self.variance, scales), float(self.noise_variance), float("nan"))


@dataclass(frozen=True)
class MaximumLikelihood(Training):
    """Maximum marginal likelihood by L-BFGS-B with the analytic gradient, from several seeded starts.

    Bounds are relative: length scales to the standard deviation of their feature, the signal variance to the
    mean square of the target, the noise variance to the signal variance. Log-normal priors on length scales
    and noise can be added (see `MaximumAPosteriori`); here they are off.

    Notes
    -----
    The typical distance of a feature is the median distance of two samples times the square root of the
    number of features.
    """

    n_initial: int = 100  # samples
    restarts: int = 5  # optimisations from different starts
    length_scale_bounds: tuple[float, float] = (0.05, 1000.0)  # std of the feature
    variance_bounds: tuple[float, float] = (0.0025, 1e4)  # mean square of the target
    noise_bounds: tuple[float, float] = (LEAST_NOISE, 100.0)  # signal variance
    length_scale_prior_median: float = 20.0  # typical distances
    length_scale_prior_std: float = inf  # of the logarithm; infinite: no prior
    noise_prior_median: float = 0.1  # mean square of the target
    noise_prior_std: float = inf  # of the logarithm; infinite: no prior
    max_iterations: int = 200  # of one optimisation

    def __post_init__(self) -> None:
        for name, least in (("n_initial", 2), ("restarts", 1), ("max_iterations", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise ValueError(f"{self._name}: {name} must be a whole number of at least {least}, got {value!r}")
        for name in PRIORS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
                raise ValueError(f"{self._name}: {name} must be a positive number (inf is one), got {value!r}")
        for name, lowest in (("length_scale_bounds", 0.0), ("variance_bounds", 0.0), ("noise_bounds", LEAST_NOISE)):
            object.__setattr__(self, name, self._checked_bounds(name, lowest))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _checked_bounds(self, name: str, least: float) -> tuple[float, float]:
        try:
            low, high = (float(value) for value in getattr(self, name))
        except (TypeError, ValueError):
            raise ValueError(f"{self._name}: {name} must be two numbers, got {getattr(self, name)!r}") from None
        if not (least <= low < high and low > 0):
            raise ValueError(f"{self._name}: {name} must be 0 < low < high with low >= {least:g}, got ({low}, {high})")
        return low, high

    @property
    def standardise(self) -> bool:
        """Always."""
        return True

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Best optimum over all starts."""
        problem = MarginalLikelihoodProblem.of(self, inputs, targets)
        starts = problem.starts(self.restarts, np.random.default_rng(seed))
        results = [problem.solve(start, max_iterations=self.max_iterations) for start in starts]
        best = min(results, key=lambda result: result.cost)
        unfinished = sum(not result.converged for result in results)
        found = problem.hyperparameters(best.x)
        if unfinished == 0:
            return found
        note = f"{unfinished} of {len(results)} optimisations did not converge"
        return found._replace(warnings=(*found.warnings, note))


@dataclass(frozen=True)
class MaximumAPosteriori(MaximumLikelihood):
    """`MaximumLikelihood` with log-normal priors on the length scales and on the noise.

    The first samples of a stream cover a small part of what it will visit, and say little about length
    scales far beyond their own spread: the likelihood alone puts many of them at a bound or far too short. The
    prior says that a function changes over a distance of the order of 20 typical distances of the first
    samples; where these samples know better, the likelihood decides.
    """

    length_scale_prior_std: float = 0.7  # of the logarithm; infinite: no prior
    noise_prior_std: float = 2.0  # of the logarithm; infinite: no prior


@dataclass(frozen=True, eq=False)
class MarginalLikelihoodProblem:
    """Minimise minus the log posterior over ``(log variance, log length scales, log noise/variance)``.

    The likelihood is that of all samples, or, given the first `n_given` of them, that of the others::

        log p(y_others | y_given) = log p(y) - log p(y_given)
    """

    settings: MaximumLikelihood
    inputs: np.ndarray
    targets: np.ndarray
    typical: np.ndarray  # typical length per feature
    spread: np.ndarray  # standard deviation per feature
    target_variance: float
    n_given: int = 0  # samples that only condition

    @classmethod
    def of(cls, settings: MaximumLikelihood, inputs: np.ndarray, targets: np.ndarray) -> "MarginalLikelihoodProblem":
        """Problem of inputs (n, p) and centred targets (n,), in their own scales."""
        p = inputs.shape[1]
        spread = Scaling.fit(inputs).scale  # 1 for a constant feature
        distances = np.array([np.median(pdist(inputs[:, [d]])) for d in range(p)])
        typical = np.where(distances > 1e-6 * spread, distances, spread) * np.sqrt(p)
        variance = float(np.mean(targets**2))
        return cls(settings, inputs, targets, typical, spread, variance if variance > 0 else 1.0)

    @property
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (p + 2, 2) of the logarithms."""
        scales = np.outer(self.spread, self.settings.length_scale_bounds)
        variance = self.target_variance * np.array(self.settings.variance_bounds)
        return np.log(np.vstack([variance, scales, self.settings.noise_bounds]))

    def starts(self, n: int, generator: np.random.Generator) -> list[np.ndarray]:
        """Starting points (p + 2,): typical distances, longer ones, and random draws about them."""
        first = np.log(np.concatenate([[self.target_variance], self.typical, [0.01]]))
        longer = first.copy()
        longer[1:-1] += np.log(self.settings.length_scale_prior_median)
        drawn = [first + generator.normal(scale=0.7, size=first.size) for _ in range(n)]
        return [np.clip(start, *self.bounds.T) for start in [first, longer, *drawn][:n]]

    def solve(self, start: np.ndarray, **limits: Any) -> Optimum:
        """Minimise from one start; limits as of `sysid.search.minimise`."""
        return minimise(self.cost, start, self.bounds, **limits)

    def hyperparameters(self, x: np.ndarray) -> Hyperparameters:
        """Hyper-parameters of the logarithms x (p + 2,)."""
        kernel, noise = self.kernel_and_noise(x)
        return Hyperparameters(kernel, noise, self.log_likelihood(x).value, self.warnings(x))

    def kernel_and_noise(self, x: np.ndarray) -> tuple[SquaredExponential, float]:
        """Kernel and noise variance of the logarithms x (p + 2,)."""
        kernel = SquaredExponential(1.0, self.typical).with_log_hyperparameters(x[:-1])
        return kernel, float(np.exp(x[0] + x[-1]))

    def log_likelihood(self, x: np.ndarray) -> Likelihood:
        """``log p(y) - log p(y_given)`` and its gradient (p + 2,).

        Raises
        ------
        numpy.linalg.LinAlgError
            If the covariance is not positive definite in double precision.
        """
        value, gradient = log_marginal_likelihood(*self.kernel_and_noise(x), self.inputs, self.targets)
        if n := self.n_given:
            given = log_marginal_likelihood(*self.kernel_and_noise(x), self.inputs[:n], self.targets[:n])
            value, gradient = value - given.value, gradient - given.gradient
        gradient = gradient.copy()
        gradient[0] += gradient[-1]  # the noise is relative to the signal variance
        return Likelihood(value, gradient)

    def warnings(self, x: np.ndarray) -> tuple[str, ...]:
        """Hyper-parameters that lie on a bound."""
        scales = [f"length scale {d + 1}" for d in range(len(x) - 2)]
        names = ["signal variance", *scales, "noise variance"]
        found = []
        for name, value, (low, high) in zip(names, x, self.bounds, strict=True):
            if value <= low or value >= high:
                found.append(f"{name} at its {'lower' if value <= low else 'upper'} bound")
        return tuple(found)

    def cost(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log posterior and its gradient (p + 2,)."""
        try:
            value, gradient = self.log_likelihood(x)
        except np.linalg.LinAlgError:
            return 1e25, np.zeros_like(x)
        penalty, slope = self.prior(x)
        return penalty - value, slope - gradient

    def prior(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log of the log-normal priors, without constants."""
        s = self.settings
        scales = (x[1:-1] - np.log(s.length_scale_prior_median * self.typical)) / s.length_scale_prior_std
        noise = (x[0] + x[-1] - np.log(s.noise_prior_median * self.target_variance)) / s.noise_prior_std
        slope = np.concatenate([[0.0], scales / s.length_scale_prior_std, [0.0]])
        slope[[0, -1]] += noise / s.noise_prior_std
        return float(0.5 * (scales @ scales + noise * noise)), slope


__all__ = ["Fixed", "Hyperparameters", "MarginalLikelihoodProblem", "MaximumLikelihood", "Training"]
