"""Full Gaussian process on all training rows."""

from dataclasses import replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import lapack

from experiments.studies.baselines.method import Fitted, Material, Method
from sysid import Hyperparameters, Kernel, MaximumAPosteriori, MaximumLikelihood

MOST_ROWS = 1500
TRAINED_ROWS = 300
RESTARTS = 3


class ExactGP(NamedTuple):
    """Posterior of all points: ``mean = k'Ky^-1 y``, latent variance ``k(x, x) - k'Ky^-1 k``."""

    kernel: Kernel
    inputs: np.ndarray  # (n, p)
    factor: np.ndarray  # (n, n) lower L with L L' = Ky
    weights: np.ndarray  # (n,) Ky^-1 y

    @classmethod
    def condition(cls, found: Hyperparameters, inputs: np.ndarray, targets: np.ndarray) -> Self:
        """Learn from inputs (n, p) and centred targets (n,).

        Raises
        ------
        numpy.linalg.LinAlgError
            If Ky is not positive definite in double precision.
        """
        covariance = found.kernel(inputs, inputs)
        covariance[np.diag_indices(len(targets))] += found.noise_variance
        factor, status = lapack.dpotrf(covariance.T, lower=1, clean=1)
        if status != 0:
            raise np.linalg.LinAlgError(f"ExactGP: the covariance of {len(targets)} points is not positive definite")
        weights, _ = lapack.dpotrs(factor, targets, lower=1)
        return cls(found.kernel, inputs, factor, weights)

    def predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (m,) and latent variance (m,), which rounding leaves at 0 or above."""
        cross = self.kernel(inputs, self.inputs)
        whitened, _ = lapack.dtrtrs(self.factor, cross.T, lower=1)
        prior = self.kernel.diagonal(inputs)
        return cross @ self.weights, np.maximum(prior - (whitened**2).sum(axis=0), 0.0)

    @property
    def size_bytes(self) -> int:
        """Of its arrays."""
        return self.inputs.nbytes + self.factor.nbytes + self.weights.nbytes


class FullGP(Method):
    """Hyper-parameters by maximum likelihood on a random subset, posterior of all rows."""

    name, title = "full_gp", "Full GP"
    note = f"maximum likelihood on {TRAINED_ROWS} random training rows, {RESTARTS} starts; conditioned on all rows"
    training: ClassVar[MaximumLikelihood] = MaximumLikelihood(n_initial=TRAINED_ROWS, restarts=RESTARTS)

    def is_for(self, task: str, n_rows: int, seed: int) -> bool:
        """Where one factorisation of all rows is cheap."""
        return n_rows <= MOST_ROWS

    def fit(self, material: Material) -> Fitted:
        """Train on some rows, condition on all."""
        x, y = material.data.training_inputs, material.data.training_targets
        some = np.random.default_rng(material.seed).permutation(len(y))[:TRAINED_ROWS]
        training = replace(self.training, max_iterations=material.most_iterations(self.training.max_iterations))
        found = training.train(x[some], y[some], material.seed)
        gp = ExactGP.condition(found, x, y)
        return Fitted(gp.predict, found.noise_variance, gp.size_bytes)


class FullGPWithPriors(FullGP):
    """The same with the priors of `MaximumAPosteriori`: for the tables, whose last rows differ from the first."""

    name, title = "full_gp_priors", "Full GP, priors"
    note = "the same with the log-normal priors of the toolbox; Boston and Concrete only"
    training = MaximumAPosteriori(n_initial=TRAINED_ROWS, restarts=RESTARTS)

    def is_for(self, task: str, n_rows: int, seed: int) -> bool:
        """The two tables."""
        return task in {"boston", "concrete"}
