"""The compiled formulas of the kernels: each fills a row of the covariance matrix.

They are in one file because numba's disk cache, in which they are kept (`Kernel.address`), knows only the text of the
file itself. A kernel of one's own has its formula beside its class.

A row receives ``(points, stride, n, p, x, parameters, out)`` and sets ``out[j] = k(points[:, j], x)`` for j < n;
``points[d, j]`` is ``points[d * stride + j]``. The rows of a sum and of a product know no part: the parameters bring
the address and the parameters of each (`sysid.kernels.parts`), so that one compiled row serves all of them.
"""

from math import exp, sqrt
from typing import Any

import numpy as np
from numba import carray, njit

from sysid.dictionary import covariances
from sysid.formula import PLAIN, plain_formula

HEAD = 2  # parameters of a row with parts before their entries: how many parts, and the length of the vector
ENTRY = 4  # of each part: the two halves of its address, where its parameters begin, and where they end
HALF = 2**32  # an address has two halves, which floats hold exactly


def _plain_array(pointer: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return pointer[: np.prod(shape)].reshape(shape)


array_of: Any = _plain_array if PLAIN else carray  #: array of a shape at a pointer

if PLAIN:

    def _address(high: float, low: float) -> Any:
        return plain_formula(int(high) * HALF + int(low))

else:

    @njit
    def _address(high, low):  # type: ignore[no-untyped-def]
        return int(high) * HALF + int(low)


@njit(error_model="numpy")
def _squared_distances(points, stride, n, p, x, scales, out):  # type: ignore[no-untyped-def]
    """``out[j] = sum_d ((points[d, j] - x[d]) / scales[1 + d])^2``; scales[0] is the variance."""
    for j in range(n):
        out[j] = 0.0
    for d in range(p):
        inverse = 1.0 / scales[1 + d]
        for j in range(n):
            difference = (points[d * stride + j] - x[d]) * inverse
            out[j] += difference * difference


def squared_exponential(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """``out[j] = variance exp(-0.5 r_j^2)``; parameters: variance, length scales."""
    _squared_distances(points, stride, n, p, x, parameters, out)
    for j in range(n):
        out[j] = parameters[0] * exp(-0.5 * out[j])


def matern_32(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """``out[j] = variance (1 + a) exp(-a)``, ``a = sqrt(3) r_j``; parameters: variance, length scales."""
    _squared_distances(points, stride, n, p, x, parameters, out)
    for j in range(n):
        a = sqrt(3.0 * out[j])
        out[j] = parameters[0] * (1.0 + a) * exp(-a)


def matern_52(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """``out[j] = variance (1 + a + a^2 / 3) exp(-a)``, ``a = sqrt(5) r_j``; parameters: variance, length scales."""
    _squared_distances(points, stride, n, p, x, parameters, out)
    for j in range(n):
        a = sqrt(5.0 * out[j])
        out[j] = parameters[0] * (1.0 + a + a * a / 3.0) * exp(-a)


def linear(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """``out[j] = offset_variance + sum_d weight_variance[d] x[d] points[d, j]``; parameters: those variances."""
    for j in range(n):
        out[j] = parameters[0]
    for d in range(p):
        factor = parameters[1 + d] * x[d]
        for j in range(n):
            out[j] += factor * points[d * stride + j]


@njit
def _part(points, stride, n, p, x, parameters, i, out):  # type: ignore[no-untyped-def]
    """Row of the i-th part."""
    entry = HEAD + ENTRY * i
    everything = array_of(parameters, (int(parameters[1]),))
    covariances(
        _address(parameters[entry], parameters[entry + 1]),
        everything[int(parameters[entry + 2]) : int(parameters[entry + 3])],
        array_of(points, (p, stride)),
        n,
        array_of(x, (p,)),
        out,
    )


def total(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """``out[j] = sum_i k_i(points[:, j], x)``; parameters: those of `sysid.kernels.parts`."""
    part = np.empty(n)
    for j in range(n):
        out[j] = 0.0
    for i in range(int(parameters[0])):
        _part(points, stride, n, p, x, parameters, i, part)
        for j in range(n):
            out[j] += part[j]


def product(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """``out[j] = prod_i k_i(points[:, j], x)``; parameters: those of `sysid.kernels.parts`."""
    part = np.empty(n)
    for j in range(n):
        out[j] = 1.0
    for i in range(int(parameters[0])):
        _part(points, stride, n, p, x, parameters, i, part)
        for j in range(n):
            out[j] *= part[j]
