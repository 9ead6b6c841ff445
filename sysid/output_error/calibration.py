"""How much of the error of a simulation is uncertainty of the function, and how much is noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from sysid.output_error.candidate import Candidate
from sysid.output_error.cross_validation import Fold, HeldOut, n_samples
from sysid.output_error.increasing import reached
from sysid.output_error.pivot import pivots
from sysid.output_error.route import Fitted
from sysid.output_error.segment import Segment, shortened
from sysid.propagation.paths import of_draws
from sysid.validation import Z_95

Array = NDArray[np.float64]

DRAWS = 16  # functions
COVERED = 0.95  # of the held-out samples shall be within the 95 % band
COVERAGE = 0.8  # part of them whose spread counts: those that run away set no band
SIMULATED = 2000  # most samples, of all folds
POINTS = 200  # most points that a drawn function has beside those of the candidate
ROWS = 1000  # about as many regressors of the fit, at least half, that they are chosen from
TOLERANCE = 1e-4  # of the kernel's variance: points that have less left add nothing
SHARES = (1e-9, 1e3)  # smallest and largest share of the variances of the route [-]


class Variances(NamedTuple):
    """What an online GP is told."""

    noise: float  # of an output in simulation, unit squared
    latent: float  # of the function one step ahead, mean over the samples, unit squared


def calibrated(
    fitted: Fitted,
    samples: Sequence[Segment],
    found: HeldOut,
    folds: Sequence[Fold],
    *,
    generator: np.random.Generator,
) -> Variances:
    """Variances with which the 95 % band of a simulation covers 95 % of the held-out samples.

    In a free run an error of the function is fed back: the spread of the simulated output is many times that of
    one step. For every fold functions are drawn from the posterior of the model without it, and simulated there. The
    variances of the function and of the noise are multiplied by one number such that the band covers; this keeps
    where the function is known better and where worse.

    Parameters
    ----------
    fitted : Fitted
        To all samples.
    samples : sequence of Segment
        It was fitted to.
    found : HeldOut
        Fits without each fold.
    folds : sequence of Fold
    generator : numpy.random.Generator
    """
    spreads = [_Spread(*pair, SIMULATED // len(folds), generator) for pair in zip(found.fitted, folds, strict=True)]
    sizes = [spread.n for spread in spreads]

    def covered(share: float) -> float:
        return float(np.average([spread.covered(share) for spread in spreads], weights=sizes))

    share = reached(covered, COVERED, *SHARES, tolerance=0.05)
    rows = _regressors(samples)
    noise = fitted.candidate.noise_for(fitted.latent_variance, rows)
    return Variances(share * noise, share * fitted.candidate.latent_variance(noise, rows))


def _regressors(segments: Sequence[Segment]) -> Array:
    return np.concatenate([segment.regressors for segment in segments])


class _Spread:
    """Simulations of a fold by functions drawn from the posterior of a model without it."""

    def __init__(self, fitted: Fitted, fold: Fold, most: int, generator: np.random.Generator) -> None:
        self.candidate, self.parts = fitted.candidate, shortened(fold.parts, most)
        self.n = n_samples(self.parts)
        rest = _regressors(fold.rest)
        self.noise = self.candidate.noise_for(fitted.latent_variance, rest)
        inputs = np.vstack([rest[:: -(-len(rest) // ROWS)], _regressors(self.parts)])
        self.points, self.moves = _drawn(self.candidate, self.noise, inputs, generator)

    def covered(self, share: float) -> float:
        """Part of the held-out samples within the 95 % band about the simulated mean, with this share of the variances.

        Where more than a few of the drawn functions run away, the band has no end.
        """
        candidate, around = self.candidate, np.vstack([self.candidate.points, self.points])
        weights = [np.append(candidate.weights, np.sqrt(share) * move) for move in self.moves]
        functions = [candidate.expanded(around, w) for w in weights]
        inside = []
        for part in self.parts:
            runs = np.array([function.simulate(part) for function in functions])
            variance = of_draws(runs.T[:, :, None], COVERAGE)[1][:, 0] + share * self.noise
            error = candidate.simulate(part) - part.values
            inside.append(np.abs(error) <= Z_95 * np.sqrt(variance))
        return float(np.mean(np.concatenate(inside)))


def _drawn(
    candidate: Candidate, noise_variance: float, regressors: Array, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Points (M, q), and weights (DRAWS, M) of functions drawn from the posterior, less its mean.

    The M points are spread over the regressors, more than the candidate has, as the function is also uncertain where
    its own say nothing. With ``k(A, A) = C C'`` of these, Z those of the candidate and ``g = C^-1 k(A, .)``::

        f(x) = g(x)' S^1/2 e,   S = I - g(Z) (k(Z, Z) + noise I)^-1 g(Z)',   e ~ N(0, I)
    """
    kernel, own = candidate.kernel, candidate.points
    inputs = candidate.scaling.transform(regressors)
    chosen = pivots(kernel, inputs, POINTS, TOLERANCE)
    points = inputs[chosen.chosen]
    features = chosen.features(kernel(own, points))
    known = cho_factor(kernel(own, own) + noise_variance * np.eye(len(own)), lower=True)
    values, vectors = np.linalg.eigh(np.eye(len(points)) - features.T @ cho_solve(known, features))
    normal = generator.standard_normal((DRAWS, len(points)))
    moved = (normal * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return points, chosen.to_weights(moved.T).T
