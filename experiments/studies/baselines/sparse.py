"""Sparse Gaussian processes on all training rows."""

from typing import ClassVar

import numpy as np

from experiments.studies.baselines.method import Fitted, Material, Method
from sysid import Approximation, MaximumAPosteriori, MaximumLikelihood, fit_sparse

#: where the training of the small tasks starts: the exact GP on some rows
START = MaximumLikelihood(n_initial=150, restarts=2)
#: of the Building: without bound and priors the likelihood chooses a signal variance of 1e4 mean squares, and where the
#: second half of the year is warmer than the first the model is off by far (SMSE up to 14)
CAUTIOUS_START = MaximumAPosteriori(n_initial=300, restarts=2, variance_bounds=(0.0025, 10.0))
TOLERANCE = 1e-4  # nats per sample that ten more iterations gain, where the training ends
MANY_ROWS = 5000  # from which on the cautious start is used


class Sparse(Method):
    """Hyper-parameters and inducing points trained together."""

    approximation: ClassVar[Approximation]

    def fit(self, material: Material) -> Fitted:
        """Train on all rows; never more inducing points than distinct rows."""
        x, y = material.data.training_inputs, material.data.training_targets
        found = fit_sparse(
            x,
            y,
            approximation=self.approximation,
            n_inducing=min(material.n_inducing, len(np.unique(x, axis=0))),
            training=CAUTIOUS_START if len(y) > MANY_ROWS else START,
            max_iterations=material.most_iterations(material.iterations),
            tolerance=TOLERANCE,
            seed=material.seed,
        )
        model = found.model
        kept = (model.prior.points, *model.posterior)
        size = sum(array.nbytes for array in kept if isinstance(array, np.ndarray))
        return Fitted(model.predict, model.noise_variance, size)


class Vfe(Sparse):
    """Titsias' variational bound."""

    name, title, approximation = "vfe", "VFE", Approximation.vfe
    note = "hyper-parameters and inducing points by L-BFGS-B; signal variance of the Building bounded, with priors"


class Fitc(Sparse):
    """Snelson and Ghahramani's approximation."""

    name, title, approximation = "fitc", "FITC", Approximation.fitc
    note = "as VFE"
