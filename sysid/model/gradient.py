"""Derivatives of the function of a model by its features, with their posterior covariance."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from sysid.arrays import Array
from sysid.errors import UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.mean import MeanFunction
from sysid.gp.online import OnlineGP
from sysid.narx.lags import Narx


class Differentiable(Protocol):
    """What derivatives need of a `sysid.Model`."""

    @property
    def narx(self) -> Narx:
        """Lags of the features."""

    @property
    def scaling(self) -> AffineMap:
        """Map of the features to the coordinates of the kernel."""

    @property
    def mean(self) -> MeanFunction:
        """Mean function of the features in their own units."""

    @property
    def gp(self) -> OnlineGP:
        """Gaussian process on the coordinates."""

    @property
    def origin(self) -> Any:
        """Facts about the samples that the model was identified from."""

    @property
    def limits(self) -> tuple[float, float]:
        """Values at which the output saturates."""

    @property
    def bands(self) -> tuple[tuple[int, float], ...]:
        """How many times wider the errors of held-out samples were than predicted, by horizon."""

    def predict(self, regressors: Any) -> Any:
        """Return mean and latent variance of the target at regressors (n, p)."""


def weights_of(model: Differentiable) -> Array:
    """Return the weights ``Ky^-1 y`` (N,) of the points of a model, in the order of ``gp.inputs``.

    Compute them once for many regressors.
    """
    state = model.gp.state()
    return np.asarray(state["weights"][np.argsort(state["order"])])


def gradient_of(model: Differentiable, weights: Array, regressors: Array) -> Array:
    """Return ``d mean / dx`` (n, p) of the target of a model with these weights (N,).

    The regressors are (n, p); the unit is that of the target per unit of the feature.
    """
    gp = model.gp
    z = model.scaling.transform(regressors)[:, : gp.point_kernel.n_features]
    kernel_gradient = gp.point_kernel.input_gradient(z, gp.point_inputs)
    slopes = np.einsum("njd,j->nd", kernel_gradient, weights)
    if gp.n_linear:
        slopes = np.hstack([slopes, np.tile(gp.coefficients, (len(z), 1))])
    return np.asarray(model.mean.gradient(regressors) + slopes @ model.scaling.linear_part())


def gradient_covariance_of(model: Differentiable, regressors: Array) -> Array:
    """Return the posterior covariance (n, p, p) of the derivatives at regressors (n, p).

    With ``z = A (x - offset)`` it is ``A' cov(df/dz) A`` (`OnlineGP.gradient_covariance`), in
    squared target units per product of two feature units. A mean function is certain.

    Raises
    ------
    TypeError
        The functions of the kernel have no derivative.
    """
    covariance = model.gp.gradient_covariance(model.scaling.transform(regressors))
    if not np.isfinite(covariance).all():
        raise UserTypeError(
            f"the functions of the kernel {type(model.gp.point_kernel).__name__} have no "
            "derivative: identify a model with another kernel, such as Matern52"
        )
    A = model.scaling.linear_part()
    return np.asarray(A.T @ covariance @ A)


def slopes_by_weights(model: Differentiable, regressor: Array) -> Array:
    """Return the derivatives (p, q) of the slopes at a regressor (p,) by the weights (q,).

    The weights are those of `OnlineGP.whitened_functions`, the slopes those of `gradient_of`.
    """
    slopes = model.gp.whitened_slopes(model.scaling.transform(regressor[None]))[0]
    return np.asarray((slopes @ model.scaling.linear_part()).T)
