"""The linear model, by the error of one step or by that of the free run: what any other estimator
has to beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sysid.gp.kernels import Matern52
from sysid.narx.lags import Narx
from sysid.simulation.segments import Limits, Segment, stack_regressors
from sysid.simulation_error.candidate import Estimator, FitResult
from sysid.simulation_error.metric import add_points
from sysid.simulation_error.output_error import LINEAR_ITERATIONS, fit_linear
from sysid.simulation_error.refinement import TRANSIENT, Material

FIRST_SPREAD = 6.0  # length scale of a kernel that has no weights, standard deviations
WINDOW = 2048  # samples simulated in one go


@dataclass(frozen=True)
class LinearModel(Estimator):
    """Linear model: the least that any other estimator must reach. Its points have weights of
    zero.
    """

    minimises_free_run: bool = True  # output error; else the error of one step (ARX)

    @property
    def name(self) -> str:
        return "linear output error" if self.minimises_free_run else "linear ARX"

    def fit(
        self,
        segments: Sequence[Segment],
        narx: Narx,
        budget: int,
        seed: int,
        limits: Limits,
    ) -> FitResult:
        """Fit by least squares, then minimise the error of the free run; see `Estimator.fit`.

        Raises
        ------
        Refusal
            Fewer than two samples for each parameter, or an output that does not vary.
        """
        material = Material.of(
            segments, narx, limits, per_parameter=2, window=WINDOW, transient=TRANSIENT
        )
        iterations = LINEAR_ITERATIONS if self.minimises_free_run else 0
        linear, contraction, n_iterations = fit_linear(material.empty, material.whole, iterations)
        x = stack_regressors(material.windows)
        metric = np.eye(narx.n_features) / FIRST_SPREAD
        final = add_points(linear, Matern52(), metric, x, budget, np.random.default_rng([seed]))
        return material.result(
            final,
            limits,
            1.0,
            {"contraction": contraction, "n_iterations": n_iterations},
        )
