"""Estimation of hyper-parameters from the first samples of a stream."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sysid.kernels import Form, SquaredExponentialForm
from sysid.marginal_likelihood import Hyperparameters, MarginalLikelihoodProblem
from sysid.mean import MeanFunction
from sysid.scaling import Scaling
from sysid.start import InitialSamples, Start
from sysid.state import LEAST_NOISE

if TYPE_CHECKING:
    from sysid.adaptation import Adaptation

PRIORS = tuple(f"{name}_prior_{value}" for name in ("length_scale", "weight", "noise") for value in ("median", "std"))
LEAST_BOUNDS = {"length_scale_bounds": 0.0, "variance_bounds": 0.0, "weight_bounds": 0.0, "noise_bounds": LEAST_NOISE}


class Training(ABC):
    """Supplies hyper-parameters once the first `n_initial` samples are there."""

    #: settings of an identification that it brings itself: those of the same name have no effect
    replaces: ClassVar[frozenset[str]] = frozenset()

    n_initial: int | None  # samples to collect before learning starts; 0 starts empty, None takes all that there are

    @property
    @abstractmethod
    def standardise(self) -> bool:
        """Whether features are standardised and the target is centred by the training samples."""

    @abstractmethod
    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Hyper-parameters for samples (n_initial, p), (n_initial,)."""

    def prepare(self, samples: InitialSamples, known: Start, *, mean: MeanFunction, budget: int, seed: int) -> Start:
        """Everything that a model starts from: what is known beforehand, and for the rest what the samples say.

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
        x, y, fits = samples.regressors, samples.targets, self.standardise and len(samples.targets) > 0
        scaling, chosen, hyperparameters = known.scaling, known.mean, known.hyperparameters
        if scaling is None:
            scaling = Scaling.fit(x) if fits else Scaling.identity(samples.narx.n_features)
        if chosen is None:
            chosen = mean.fitted(x, y) if fits else mean
        if hyperparameters is None:
            hyperparameters = self.train(scaling.transform(x), y - chosen(x), seed)
        return Start(scaling, chosen, hyperparameters, known.points)

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
    kernel: Form = field(default_factory=SquaredExponentialForm)  # made of the variance and the length scales

    def __post_init__(self) -> None:
        checked_form(self)
        if self.n_initial < 0:
            raise ValueError(f"Fixed: n_initial must be at least 0, got {self.n_initial}")
        variance, scales = float(self.variance), np.atleast_1d(np.asarray(self.length_scales, dtype=float))
        self.kernel.kernel(variance, scales)  # refuses what is not positive
        if not LEAST_NOISE * variance <= self.noise_variance < float("inf"):
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
        kernel = self.kernel.kernel(float(self.variance), scales)
        return Hyperparameters(kernel, float(self.noise_variance), float("nan"))


@dataclass(frozen=True)
class MaximumLikelihood(Training):
    """Maximum marginal likelihood by L-BFGS-B with the analytic gradient, from several seeded starts.

    Bounds are relative: length scales to the standard deviation of their feature, the signal variance to the
    mean square of the target, the weight variances of a linear kernel to both, the noise variance to the signal
    variance: that of the kernel at features of one. Log-normal priors on length scales, weight variances and
    noise can be added (see `MaximumAPosteriori`); here they are off.

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
    kernel: Form = field(default_factory=SquaredExponentialForm)
    weight_bounds: tuple[float, float] = (1e-6, 1e6)  # mean square of the target / variance of the feature
    weight_prior_median: float = 1.0  # mean square of the target / variance of the feature
    weight_prior_std: float = inf  # of the logarithm; infinite: no prior

    def __post_init__(self) -> None:
        checked_form(self)
        for name, least in (("n_initial", 2), ("restarts", 1), ("max_iterations", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise ValueError(f"{self._name}: {name} must be a whole number of at least {least}, got {value!r}")
        for name in PRIORS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
                raise ValueError(f"{self._name}: {name} must be a positive number (inf is one), got {value!r}")
        for name, lowest in LEAST_BOUNDS.items():
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
    """`MaximumLikelihood` with log-normal priors on the length scales, on weight variances and on the noise.

    The first samples of a stream cover a small part of what it will visit, and say little about length
    scales far beyond their own spread: the likelihood alone puts many of them at a bound or far too short. The
    prior says that a function changes over a distance of the order of 20 typical distances of the first
    samples; where these samples know better, the likelihood decides.
    """

    length_scale_prior_std: float = 0.7  # of the logarithm; infinite: no prior
    noise_prior_std: float = 2.0  # of the logarithm; infinite: no prior
    weight_prior_std: float = 4.0  # of the logarithm; infinite: no prior


def checked_form(training: Fixed | MaximumLikelihood) -> None:
    """Refuse a kernel setting that is not a form."""
    if not isinstance(training.kernel, Form):
        raise TypeError(
            f"{type(training).__name__}: kernel must be a form, such as Matern52Form(), got {training.kernel!r}"
        )


__all__ = ["Fixed", "Hyperparameters", "MarginalLikelihoodProblem", "MaximumLikelihood", "Training"]
