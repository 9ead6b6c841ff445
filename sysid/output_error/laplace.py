"""How certain a function is that was fitted to a free run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sysid.output_error.candidate import Candidate
from sysid.output_error.free_run_problem import FreeRunProblem, linearised, mean_square
from sysid.output_error.window import Window


def latent_variance(candidate: Candidate, windows: Sequence[Window], penalty: float) -> float:
    """Mean variance of the function over the free run, by Laplace's approximation at a minimum.

    With ``H = J'J`` of the free run, ``A = H + penalty K`` (both of coefficients, intercept and weights, of which the
    penalty takes the weights only), b the basis at a regressor and ``s^2`` the residual variance::

        s^2 b'A^-1 b + v (k(x, x) - k_u' K^-1 k_u),   v = w'Kw / N

    averaged over the regressors: what the samples leave open, and what the points cannot represent.
    """
    problem = FreeRunProblem(candidate, windows, penalty)
    x = problem.parameters()
    free, penalised = problem.unpenalised(x).curvature, problem.normal_equations(x).curvature
    inverse, moments = np.linalg.pinv(penalised, hermitian=True), np.zeros_like(free)
    n_samples = 0
    for window in windows:
        basis = linearised(candidate, window.segment, candidate.simulate(window.segment)).basis[window.scored]
        moments, n_samples = moments + basis.T @ basis, n_samples + len(basis)
    moments = problem.whitened(moments) / n_samples
    used = float(np.sum(inverse * free))
    residual = mean_square(candidate, windows) * n_samples / max(n_samples - used, 1.0)
    weights = x[problem.n_linear :]
    represented = float(np.trace(moments[problem.n_linear :, problem.n_linear :]))
    unrepresented = max(candidate.kernel.variance - represented, 0.0) * float(weights @ weights) / max(len(weights), 1)
    return residual * float(np.sum(inverse * moments)) + unrepresented
