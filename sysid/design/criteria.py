"""How much planned outputs would tell about the plant: one class, one formula."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from sysid.arrays import Array
from sysid.gp.online import OnlineGP, Projected


@dataclass(frozen=True)
class PlannedOutput:
    """Planned samples of one output, at the regressors of the simulated mean path.

    Attributes
    ----------
    gp : OnlineGP
        What is known about the function of this output.
    planned : Projected
        Regressors of the H planned samples.
    region : Projected
        Regressors of the R points at which the function shall become known; none for a criterion
        that has no region.
    """

    gp: OnlineGP
    planned: Projected
    region: Projected

    @property
    def noise_variance(self) -> float:
        """Noise variance s of a target [target unit squared]."""
        return self.gp.noise_variance

    def covariance(self) -> Array:
        """Return the posterior covariance C (H, H) of the function at the planned samples."""
        return self.gp.covariance(self.planned, self.planned)

    def covariance_with_region(self) -> Array:
        """Return the posterior covariance (H, R) of the planned samples with the region."""
        return self.gp.covariance(self.planned, self.region)


class DesignCriterion(ABC):
    """What a planned stretch is expected to tell; larger is better.

    The covariance of a Gaussian process does not depend on the measured values, so that the gain of
    a plan is known before it is applied, as far as the plant follows the simulated path.

    Attributes
    ----------
    has_region : bool
        Whether the gain depends on the region.
    """

    has_region: ClassVar[bool] = True

    @abstractmethod
    def gain(self, output: PlannedOutput) -> float:
        """Return the gain of the planned samples of one output."""


@dataclass(frozen=True)
class InformationGain(DesignCriterion):
    """Information that the planned outputs contain about the function [nats].

    With the posterior covariance C of the function at the H planned samples and the noise variance
    s, the joint entropy of the planned outputs minus that of their noise is::

        1/2 log det(I + C / s)

    It is the mutual information between the outputs and the function (Krause, Singh and Guestrin
    2008, section 2), along a trajectory as in Buisson-Fenet, Solowjow and Trimpe (2020, section 3).
    Samples that repeat each other count little, because they are correlated.
    """

    has_region = False

    def gain(self, output: PlannedOutput) -> float:
        root = _root_with_noise(output)
        excess = np.log(np.diag(root)) - 0.5 * np.log(output.noise_variance)
        return float(np.sum(excess))


@dataclass(frozen=True)
class VarianceReduction(DesignCriterion):
    """Expected reduction of the variance over a region, in noise variances [-].

    With the posterior covariance C of the function at the planned samples, c(r) that with a point
    r of the region, and the noise variance s::

        1/(R s) sum_r c(r)' (C + s I)^-1 c(r)

    Cohn (1996) calls it the expected reduction of the integrated variance; for Gaussian processes
    see Seo et al. (2000). The region of `InformativeInput` is where the model shall become good; by
    default the regressors that the candidates of this decision and of the last ones would visit.
    """

    def gain(self, output: PlannedOutput) -> float:
        root = _root_with_noise(output)
        with_region = output.covariance_with_region()
        explained = solve_triangular(root, with_region, lower=True, check_finite=False)
        n_points = with_region.shape[1]
        return float(np.sum(np.square(explained))) / (n_points * output.noise_variance)


@dataclass(frozen=True)
class SpaceFilling(DesignCriterion):
    """Distance from what was visited: a baseline that knows of no noise and of no function values.

    With the correlation ``rho = k(x, x') / sqrt(k(x, x) k(x', x'))`` of the kernel of the points::

        sum_t min_p (1 - rho(x_t, p)) / 2

    over the stored points p and the planned samples before t. The kernel's length scales make the
    coordinates comparable; they are all that the baseline takes from the model.
    """

    has_region = False

    def gain(self, output: PlannedOutput) -> float:
        kernel = output.gp.point_kernel
        x = output.planned.features
        known = np.vstack([output.gp.point_inputs, x])
        scale = np.sqrt(np.outer(kernel.diagonal(x), kernel.diagonal(known)))
        distance = 0.5 * (1.0 - kernel(x, known) / np.where(scale > 0, scale, 1.0))
        n_points = len(known) - len(x)
        is_earlier = np.tri(len(x), k=-1, dtype=bool)
        is_known = np.hstack([np.ones((len(x), n_points), dtype=bool), is_earlier])
        nearest = np.min(distance, axis=1, where=is_known, initial=1.0)
        return float(nearest.sum())


def _root_with_noise(output: PlannedOutput) -> Array:
    """Return the lower root (H, H) of ``C + s I``, the covariance of the planned targets."""
    covariance = output.covariance()
    covariance[np.diag_indices(len(covariance))] += output.noise_variance
    return np.asarray(cholesky(covariance, lower=True, overwrite_a=True, check_finite=False))
