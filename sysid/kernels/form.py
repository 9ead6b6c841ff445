"""The role of a kernel whose hyper-parameters are still to be found."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from sysid.kernels.kernel import Kernel


class Expected(NamedTuple):
    """What is known of hyper-parameters before the likelihood speaks, in the units of the data; p features."""

    variance: float  # mean square of the target
    lengths: np.ndarray  # (p,) typical distances
    variance_bounds: np.ndarray  # (2,) target unit^2
    length_scale_bounds: np.ndarray  # (p, 2) feature units
    log_length_scales: np.ndarray  # (p,) median of the log-normal prior
    length_scale_std: float  # of the logarithm; infinite: no prior
    weight_bounds: np.ndarray  # (p, 2) of a linear function's weight variances, target unit^2 / feature unit^2
    log_weights: np.ndarray  # (p,) median of their log-normal prior
    weight_std: float  # of the logarithm; infinite: no prior

    def share(self, parts: int) -> "Expected":
        """For one of so many terms that start from equal shares of the variance; the bounds are those of the whole."""
        return self._replace(variance=self.variance / parts)

    def unit(self) -> "Expected":
        """For a factor without unit: relative to the variance."""
        return self._replace(
            variance=1.0,
            variance_bounds=self.variance_bounds / self.variance,
            weight_bounds=self.weight_bounds / self.variance,
            log_weights=self.log_weights - np.log(self.variance),
        )


class Space(NamedTuple):
    """Where the q log hyper-parameters of a kernel are searched; a bound that equals the other fixes its own."""

    start: np.ndarray  # (q,) first start
    along_lengths: np.ndarray  # (q,) change of each with the logarithm of all lengths
    bounds: np.ndarray  # (q, 2)
    held: np.ndarray  # (h,) positions of those that have a prior
    medians: np.ndarray  # (h,) of their log-normal priors
    stds: np.ndarray  # (h,) of the logarithms; infinite: no prior

    def fixed_first(self) -> "Space":
        """The first hyper-parameter stays at its start."""
        bounds, free = self.bounds.copy(), self.held != 0
        bounds[0] = self.start[0]
        return self._replace(bounds=bounds, held=self.held[free], medians=self.medians[free], stds=self.stds[free])

    @classmethod
    def of_parts(cls, parts: "list[Space]") -> "Space":
        """All hyper-parameters of the parts, one part after the other."""
        shifts = np.cumsum([0, *(len(part.start) for part in parts)])
        held = [part.held + shift for part, shift in zip(parts, shifts, strict=False)]
        joined = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return cls(*joined)._replace(held=np.concatenate(held))


class Form(ABC):
    """Kind of kernel that a training fills with hyper-parameters.

    It names the kernel, and says where its hyper-parameters are searched: start, bounds and priors follow from
    what is `Expected` of lengths and variances, the same for every form.
    """

    @abstractmethod
    def kernel(self, variance: float, length_scales: np.ndarray) -> Kernel:
        """Kernel of this variance [target unit^2] whose functions change over these lengths (p,) [feature units]."""

    @abstractmethod
    def space(self, expected: Expected) -> Space:
        """Where the log hyper-parameters of the kernel are searched."""
