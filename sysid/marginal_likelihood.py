"""The marginal likelihood of the first samples as a problem of minimisation, for any form of kernel."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from sysid.gp import Likelihood, log_marginal_likelihood
from sysid.kernels import Expected, Kernel, Space
from sysid.scaling import Scaling
from sysid.search import Optimum, minimise

if TYPE_CHECKING:
    from sysid.training import MaximumLikelihood


class Hyperparameters(NamedTuple):
    """What a training returns."""

    kernel: Kernel
    noise_variance: float  # target unit^2
    log_likelihood: float  # of the training samples; nan if not computed
    warnings: tuple[str, ...] = ()  # what a user should know about this estimate


@dataclass(frozen=True, eq=False)
class MarginalLikelihoodProblem:
    """Minimise minus the log posterior over ``(log hyper-parameters of the kernel, log noise/variance)``.

    Those of the squared exponential are the logarithms of its variance and length scales. The noise is relative
    to the variance of the kernel at features of one. The likelihood is that of all samples, or, given the first
    `n_given` of them, that of the others::

        log p(y_others | y_given) = log p(y) - log p(y_given)
    """

    settings: "MaximumLikelihood"
    inputs: np.ndarray
    targets: np.ndarray
    typical: np.ndarray  # typical length per feature
    spread: np.ndarray  # standard deviation per feature
    target_variance: float
    n_given: int = 0  # samples that only condition

    @classmethod
    def of(cls, settings: "MaximumLikelihood", inputs: np.ndarray, targets: np.ndarray) -> "MarginalLikelihoodProblem":
        """Problem of inputs (n, p) and centred targets (n,), in their own scales."""
        p = inputs.shape[1]
        spread = Scaling.fit(inputs).scale  # 1 for a constant feature
        distances = np.array([np.median(pdist(inputs[:, [d]])) for d in range(p)])
        typical = np.where(distances > 1e-6 * spread, distances, spread) * np.sqrt(p)
        variance = float(np.mean(targets**2))
        return cls(settings, inputs, targets, typical, spread, variance if variance > 0 else 1.0)

    @cached_property
    def unit(self) -> Kernel:
        """Kernel of the form with hyper-parameters of one."""
        return self.settings.kernel.kernel(1.0, np.ones(self.inputs.shape[1]))

    @cached_property
    def space(self) -> Space:
        """Where the hyper-parameters of the kernel are searched."""
        s, of_weight = self.settings, self.target_variance / self.spread**2
        return s.kernel.space(
            Expected(
                variance=self.target_variance,
                lengths=self.typical,
                variance_bounds=self.target_variance * np.array(s.variance_bounds),
                length_scale_bounds=np.outer(self.spread, s.length_scale_bounds),
                log_length_scales=np.log(s.length_scale_prior_median * self.typical),
                length_scale_std=s.length_scale_prior_std,
                weight_bounds=np.outer(of_weight, s.weight_bounds),
                log_weights=np.log(s.weight_prior_median * of_weight),
                weight_std=s.weight_prior_std,
            )
        )

    @property
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (q + 1, 2) of the logarithms."""
        return np.vstack([self.space.bounds, np.log(self.settings.noise_bounds)])

    def starts(self, n: int, generator: np.random.Generator) -> list[np.ndarray]:
        """Starting points (q + 1,): typical distances, longer ones, and random draws about them."""
        first = np.append(self.space.start, np.log(0.01))
        longer = first.copy()
        longer[:-1] += self.space.along_lengths * np.log(self.settings.length_scale_prior_median)
        drawn = [first + generator.normal(scale=0.7, size=first.size) for _ in range(n)]
        return [np.clip(start, *self.bounds.T) for start in [first, longer, *drawn][:n]]

    def solve(self, start: np.ndarray, **limits: Any) -> Optimum:
        """Minimise from one start; limits as of `sysid.search.minimise`."""
        return minimise(self.cost, start, self.bounds, **limits)

    def hyperparameters(self, x: np.ndarray) -> Hyperparameters:
        """Hyper-parameters of the logarithms x (q + 1,)."""
        kernel, noise = self.kernel_and_noise(x)
        return Hyperparameters(kernel, noise, self.log_likelihood(x).value, self.warnings(x))

    def kernel_and_noise(self, x: np.ndarray) -> tuple[Kernel, float]:
        """Kernel and noise variance of the logarithms x (q + 1,)."""
        variance, _ = self.unit.log_variance(x[:-1])
        return self.unit.with_log_hyperparameters(x[:-1]), float(np.exp(variance + x[-1]))

    def logarithms(self, kernel: Kernel, noise_variance: float) -> np.ndarray:
        """Inverse of `kernel_and_noise`.

        Raises
        ------
        ValueError
            A kernel of another form than that of the settings.
        """
        logs = kernel.log_hyperparameters()
        if kernel.with_log_hyperparameters(0.0 * logs) != self.unit.with_log_hyperparameters(0.0 * self.space.start):
            raise ValueError(
                f"{type(self.settings).__name__}: kernel must be of the form {self.settings.kernel}, got {kernel}"
            )
        return np.append(logs, np.log(noise_variance) - self.unit.log_variance(logs)[0])

    def log_likelihood(self, x: np.ndarray) -> Likelihood:
        """``log p(y) - log p(y_given)`` and its gradient (q + 1,).

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
        gradient[:-1] += gradient[-1] * self.unit.log_variance(x[:-1])[1]  # the noise is relative to the variance
        return Likelihood(value, gradient)

    def warnings(self, x: np.ndarray) -> tuple[str, ...]:
        """Hyper-parameters that lie on a bound."""
        names = [*self.unit.hyperparameter_names, "noise variance"]
        found = []
        for name, value, (low, high) in zip(names, x, self.bounds, strict=True):
            if low < high and (value <= low or value >= high):
                found.append(f"{name} at its {'lower' if value <= low else 'upper'} bound")
        return tuple(found)

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
        s, space = self.settings, self.space
        variance, gradient = self.unit.log_variance(x[:-1])
        held = (x[space.held] - space.medians) / space.stds
        noise = (variance + x[-1] - np.log(s.noise_prior_median * self.target_variance)) / s.noise_prior_std
        slope = np.append(noise / s.noise_prior_std * gradient, noise / s.noise_prior_std)
        slope[space.held] += held / space.stds
        return float(0.5 * (held @ held + noise * noise)), slope
