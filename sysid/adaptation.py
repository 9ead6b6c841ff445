"""Estimation of hyper-parameters anew while a stream goes on."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc

from sysid.kernels import Kernel
from sysid.model import Model
from sysid.online import OnlineGP
from sysid.report import UpdateReport, UpdateReports
from sysid.reservoir import Reservoir
from sysid.training import MarginalLikelihoodProblem

if TYPE_CHECKING:
    from sysid.adaptive import Adaptive

EVALUATIONS_PER_UPDATE = 3  # of the objective, at most on average: one and a half are usual


class Reason(StrEnum):
    """What asked for an estimate."""

    errors = "errors"  # the prediction errors contradict the hyper-parameters
    revised = "revised"  # so many points have entered the dictionary


class Estimate(NamedTuple):
    """One estimate of the hyper-parameters."""

    sample: int  # samples seen when it was made, initial ones included
    reason: Reason
    statistic: float  # mean squared standardised error that was looked at; 1 is expected
    n_errors: int  # errors in that mean
    log_density_before: float  # log p(y_W | y_D) of the hyper-parameters before, within the bounds
    log_density_after: float  # and of those found
    n_evaluations: int  # of the objective
    seconds: float  # wall time [s]
    kernel: Kernel  # found
    noise_variance: float  # found, target unit^2
    warnings: tuple[str, ...] = ()  # what a user should know about this estimate


def contradicts(squares: np.ndarray, significance: float) -> bool:
    """Whether squares of numbers that should be standard normal are too large or too small together.

    Their sum is compared with the two-sided interval of the chi-squared distribution with n degrees of
    freedom that holds it with probability ``1 - significance``.
    """
    half, total = 0.5 * len(squares), 0.5 * float(np.sum(squares))
    return bool(2.0 * min(gammainc(half, total), gammaincc(half, total)) < significance)


class Adaptation:
    """Watches the prediction errors of an online GP and re-estimates its hyper-parameters when they ask for it.

    The estimate maximises, over (variance, length scales, noise variance) and warm-started from the current
    values, the predictive density of an unbiased sample W of all samples seen so far, given the points D of
    the dictionary that are not in W, plus the log-normal priors of the training on the scale of the dictionary::

        log p(y_W | y_D) = log p(y_W, y_D) - log p(y_D)

    The points of the dictionary only condition: they were selected because they surprised, and their own
    likelihood takes that for noise. Nothing is used that has not been seen.

    Parameters
    ----------
    settings : Adaptive
    seed : int
        Of the unbiased sample.

    Attributes
    ----------
    estimates : list of Estimate
    """

    def __init__(self, settings: Adaptive, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.estimates: list[Estimate] = []
        self._squares = np.zeros(0)  # standardised squared errors since the last estimate
        self._n_revised = 0  # points that entered since then

    def start(self, model: Model, regressors: np.ndarray, targets: np.ndarray) -> None:
        """Begin with the initial model and its samples (n, p), (n,), in their own units as all that follow."""
        settings, p = self.settings, model.narx.n_features
        self._scaling, self._mean = model.scaling, model.mean
        self._sample = Reservoir(settings.sample_size, p, np.random.default_rng([self.seed, settings.sample_size]))
        self._keep(regressors, targets)
        self._regressors = np.zeros((settings.interval, p))
        self._targets, self._means, self._variances, self._accepted = np.zeros((4, settings.interval))
        self._n = 0  # samples since the last look

    @property
    def n_until_look(self) -> int:
        """Samples that may follow before `adapted` must be asked."""
        return self.settings.interval - self._n

    def observe(
        self, regressors: np.ndarray, targets: np.ndarray | float, reports: UpdateReport | UpdateReports
    ) -> None:
        """Take note of samples (n, p), (n,), or of one, and of their reports; at most `n_until_look`."""
        after = self._n + np.size(targets)
        new = slice(self._n, after)
        self._regressors[new], self._targets[new] = regressors, targets
        self._means[new], self._variances[new], self._accepted[new] = reports.mean, reports.variance, reports.accepted
        self._n = after

    def adapted(self, gp: OnlineGP) -> OnlineGP:
        """The online GP with new hyper-parameters if it is time to look and there is reason, else itself."""
        if self.n_until_look > 0 or (reason := self._look(gp.noise_variance)) is None:
            return gp
        return self._estimated(gp, reason)

    def _keep(self, regressors: np.ndarray, targets: np.ndarray) -> None:
        self._sample.extend(self._scaling.transform(regressors), targets - self._mean(regressors))

    def _look(self, noise_variance: float) -> Reason | None:
        self._keep(self._regressors, self._targets)
        squares = (self._targets - self._means) ** 2 / (self._variances + noise_variance)
        self._squares = np.append(self._squares, squares)[-self.settings.window :]
        self._n_revised += int(self._accepted.sum())
        self._n = 0
        if contradicts(self._squares, self.settings.significance):
            return Reason.errors
        return Reason.revised if 0 < self.settings.after_revised <= self._n_revised else None

    def _estimated(self, gp: OnlineGP, reason: Reason) -> OnlineGP:
        begin = perf_counter()
        problem = self.problem(gp)
        current = problem.logarithms(gp.kernel, gp.noise_variance)
        start = np.clip(current, *problem.bounds.T)
        moved = ("started from the nearest values within the bounds",) if np.any(start != current) else ()
        updates = self.settings.max_updates
        most = EVALUATIONS_PER_UPDATE * updates
        found = problem.solve(start, max_iterations=updates, max_evaluations=most, tolerance=self.settings.tolerance)
        kernel, noise_variance = problem.kernel_and_noise(found.x)
        adapted = gp.with_hyperparameters(kernel, noise_variance)
        self.estimates.append(
            Estimate(
                sample=self._sample.n_seen,
                reason=reason,
                statistic=float(np.mean(self._squares)),
                n_errors=len(self._squares),
                log_density_before=problem.prior(start)[0] - found.cost_at_start,
                log_density_after=problem.prior(found.x)[0] - found.cost,
                n_evaluations=found.n_evaluations,
                seconds=perf_counter() - begin,
                kernel=kernel,
                noise_variance=noise_variance,
                warnings=(*moved, *problem.warnings(found.x)),
            )
        )
        self._squares, self._n_revised = np.zeros(0), 0
        return adapted

    def problem(self, gp: OnlineGP) -> MarginalLikelihoodProblem:
        """Minus ``log p(y_W | y_D)`` and the priors, on the scale of all points of the dictionary."""
        order = gp.age_order
        inputs, targets = gp.inputs[order], gp.targets[order]
        sample = {(*row, y) for row, y in zip(self._sample.inputs.tolist(), self._sample.targets.tolist(), strict=True)}
        given = [(*row, y) not in sample for row, y in zip(inputs.tolist(), targets.tolist(), strict=True)]
        return replace(
            MarginalLikelihoodProblem.of(self.settings, inputs, targets),
            inputs=np.concatenate([inputs[given], self._sample.inputs]),
            targets=np.concatenate([targets[given], self._sample.targets]),
            n_given=sum(given),
        )
