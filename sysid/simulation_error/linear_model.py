"""The linear model as an estimator, which every other estimator has to beat.

It minimises the error one step ahead (ARX) or that of the free run (output error).
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
from sysid.simulation_error.output_error import MAX_LINEAR_MODEL_ITERATIONS, fit_linear
from sysid.simulation_error.refinement import MAX_TRANSIENT_SAMPLES, Material

# Length scale of the kernel, whose weights are zero, in standard deviations.
LINEAR_MODEL_LENGTH_SCALE = 6.0
# Samples simulated in one go.
LINEAR_MODEL_WINDOW_SAMPLES = 2048


@dataclass(frozen=True)
class LinearModel(Estimator):
    """Linear model, the baseline of the other estimators. The weights of its points are zero."""

    minimises_free_run: bool = True  # output error; otherwise the error one step ahead (ARX)

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
            There are fewer than two samples for each parameter, or the output does not vary.
        """
        material = Material.of(
            segments,
            narx,
            limits,
            per_parameter=2,
            window=LINEAR_MODEL_WINDOW_SAMPLES,
            transient=MAX_TRANSIENT_SAMPLES,
        )
        max_iterations = MAX_LINEAR_MODEL_ITERATIONS if self.minimises_free_run else 0
        linear, contraction, n_iterations = fit_linear(
            material.empty, material.segments_with_transients, max_iterations
        )
        regressors = stack_regressors(material.windows)
        metric = np.eye(narx.n_features) / LINEAR_MODEL_LENGTH_SCALE
        generator = np.random.default_rng([seed])
        final = add_points(linear, Matern52(), metric, regressors, budget, generator)
        report = {"contraction": contraction, "n_iterations": n_iterations}
        return material.result(final, limits, 1.0, report)
