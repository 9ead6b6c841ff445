"""Hyper-parameters by a search for the smallest free-run error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sysid.kernels import Matern52Form, SquaredExponentialForm
from sysid.kernels.stationary import StationaryForm
from sysid.narx import Narx
from sysid.output_error.cross_validation import n_samples
from sysid.output_error.profile_problem import FARTHEST, ProfileProblem, Values
from sysid.output_error.route import Fitted, Route
from sysid.output_error.segment import Segment
from sysid.output_error.simplex import Minimum, search

SIZE = 0.7  # of the first simplex, standard deviations of the priors
LEAST_PER_BLOCK = 5  # samples


@dataclass(frozen=True)
class ProfileSearch(Route):
    """Length scales tied by a profile over the lag, found with the noise and the sizes by the free-run error.

    Two numbers per signal whatever the number of its lags, and three more. The error is that of simulations of parts
    of the samples by models that were fitted to the samples around each part; the weights of the kernel and of a linear
    trend follow from a regression, at the price of one factorisation per part. See
    `sysid.output_error.profile_problem`.
    """

    kernels: Sequence[StationaryForm] = field(default_factory=lambda: (SquaredExponentialForm(), Matern52Form()))
    evaluations: int = 300  # of the free-run error, for each kernel
    starts: int = 2  # searches that share them: from the medians of the priors, then from draws
    blocks: Sequence[int] = (3, 5, 8)  # partitions of the samples
    points: int = 100  # most points during the search
    rows: int = 5000  # most samples of a regression during the search
    simulated: int = 6000  # most samples simulated in one evaluation
    regularisation: float = 0.01  # weight of the squared distance from the medians of the priors

    def __post_init__(self) -> None:
        for name in ("kernels", "blocks"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.kernels or not all(isinstance(form, StationaryForm) for form in self.kernels):
            raise TypeError(f"ProfileSearch: kernels must be stationary forms, at least one, got {self.kernels!r}")
        if not self.blocks or min(self.blocks) < 2:
            raise ValueError(f"ProfileSearch: blocks must be numbers of at least 2, at least one, got {self.blocks}")
        for name in ("evaluations", "starts", "points", "rows", "simulated"):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"ProfileSearch: {name} must be a whole number of at least 1, got {value!r}")
        if not 0 <= self.regularisation < np.inf:
            raise ValueError(f"ProfileSearch: regularisation must be a number >= 0, got {self.regularisation!r}")

    def fit(
        self, segments: Sequence[Segment], narx: Narx, budget: int, seed: int, limits: tuple[float, float]
    ) -> Fitted:
        """See `sysid.output_error.route.Route.fit`."""
        least, n = LEAST_PER_BLOCK * max(self.blocks), n_samples(segments)
        if n < least:
            raise ValueError(
                f"ProfileSearch: expected at least {least} samples, {LEAST_PER_BLOCK} in each of {max(self.blocks)} "
                f"blocks, got {n}; take a longer record or fewer blocks"
            )
        searches = []
        for number, form in enumerate(self.kernels):
            problem = ProfileProblem(
                narx,
                segments,
                limits,
                form=form,
                blocks=self.blocks,
                points=min(self.points, budget),
                rows=self.rows,
                simulated=self.simulated,
                regularisation=self.regularisation,
            )
            searches.append((problem, self._search(problem, seed, number)))
        problem, best = min(searches, key=lambda pair: pair[1].value)
        values = problem.profile.values(best.x)
        fit = problem.final(values, budget)
        unexplained = values.size**2 * float(np.mean(fit.chosen.residual))
        latent = problem.unit**2 * (fit.ridge.mean_variance() + unexplained)
        tried = [
            {
                "kernel": type(searched.form).__name__,
                "cost": found.value,
                "evaluations": found.n_evaluations,
                "starts": list(found.starts),
            }
            for searched, found in searches
        ]
        return Fitted(problem.candidate(fit, fit.ridge.weights()), latent, self._report(problem, best.x, values, tried))

    def _search(self, problem: ProfileProblem, seed: int, number: int) -> Minimum:
        generator, d = np.random.default_rng([seed, number]), len(problem.profile.priors)
        starts = [np.zeros(d), *generator.standard_normal((self.starts - 1, d))]
        return search(problem.cost, starts, size=SIZE, bound=FARTHEST, evaluations=self.evaluations)

    def _report(self, problem: ProfileProblem, z: np.ndarray, values: Values, tried: list[Any]) -> dict[str, Any]:
        return {
            "searches": tried,
            "kernel": type(problem.form).__name__,
            "free_run_error": problem.error(z) * problem.spread,  # output unit
            "length_scales": dict(zip(problem.narx.feature_names, values.lengths.tolist(), strict=True)),
            "size": values.size,
            "noise": values.noise,
            "slope": values.slope,
            "at_bounds": int(np.sum(np.abs(z) >= FARTHEST)),
        }
