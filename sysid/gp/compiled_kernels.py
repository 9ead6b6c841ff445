"""The compiled covariance rows of the kernels.

They are in one file because numba's disk cache, in which they are kept (`Kernel.address`), notices
changes of the file itself only. The row of a user's own kernel is beside its class.

A row is a function with the arguments ``(points, stride, n, p, x, parameters, out)``. It sets
``out[j] = k(points[:, j], x)`` for j < n, where ``points[d, j]`` is ``points[d * stride + j]``. It
uses ``points``, ``x``, ``parameters`` and ``out`` only by indexing them.

One row, `composition`, computes all sums and products of kernels. Its parameters are a program: the
number of parameters, the number of rows that its stack needs, then instructions ``(code, number of
values that follow, these values)``. A code of at least 0 is the position of a row in `SHIPPED`; the
values are the parameters of that row, and its result is put on the stack. `ADD` and `MULTIPLY` join
the two newest rows of the stack. In this way one compiled row serves every composition of the rows
in `SHIPPED`. Rows of a user's own kernels have the codes after those of `SHIPPED`, and a
composition that contains some is compiled for them (`composition_with`).
"""

from collections.abc import Callable
from functools import cache
from math import exp as exact_exp
from math import sqrt
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.cgutils import ir
from numba.extending import intrinsic

from sysid.gp.formula import FLOAT_POINTER, JIT_DISABLED

# Codes of the instructions that join the two newest rows of the stack.
ADD = -1
MULTIPLY = -2

# with inlining, one function is compiled instead of ten
_inline = njit(error_model="numpy", inline="always")


if JIT_DISABLED:
    exp = exact_exp

    def _after(floats: np.ndarray, offset: int) -> np.ndarray:
        return floats[offset:]

else:

    @intrinsic
    def _scale(_typing_context, value, shifted):  # type: ignore[no-untyped-def]
        """Return ``value 2^k`` for the argument ``shifted = k + 1.5 2^52``.

        k is an integer from -1022 to 1023, and becomes the exponent of a number.
        """

        def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
            value, shifted = arguments
            word = ir.IntType(64)
            exponent = builder.shl(builder.bitcast(shifted, word), ir.Constant(word, 52))
            power = builder.bitcast(
                builder.add(exponent, ir.Constant(word, 1023 << 52)), ir.DoubleType()
            )
            return builder.fmul(value, power)

        return types.float64(value, shifted), generate

    @njit(error_model="numpy", inline="always", fastmath={"contract"})
    def exp(x):  # type: ignore[no-untyped-def]
        """Return the exponential of x <= 0 to 1.2 units in the last place.

        It calls no function, so that the loops around it are vectorised. ``exp(x) = 2^k exp(r)``,
        where k is the integer nearest to x / log 2, and exp(r) is replaced by its Taylor polynomial
        of degree 13, whose remainder is 4e-18 for |r| <= log(2) / 2. Below -708 it is 0.
        """
        # adding 1.5 2^52 rounds to an integer
        shifted = x * 1.4426950408889634 + 6755399441055744.0
        k = shifted - 6755399441055744.0
        # log 2 is subtracted in two parts (Cody and Waite)
        r = (x - k * 6.93145751953125e-1) - k * 1.42860682030941723212e-6
        p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        return 0.0 if x < -708.0 else _scale(p, shifted)  # type: ignore[call-arg]

    @intrinsic
    def _after(_typing_context, floats, offset):  # type: ignore[no-untyped-def]
        """Return a pointer to the numbers of an array, or of a pointer, from an offset on."""

        def generate(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
            start, distance = arguments
            if isinstance(floats, types.Array):
                start = context.make_array(floats)(context, builder, start).data
            return builder.gep(start, [distance])

        return FLOAT_POINTER(floats, types.intp), generate


@njit(error_model="numpy")
def _squared_distances(points, stride, n, p, x, scales, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = sum_d ((points[d, j] - x[d]) / scales[1 + d])^2``.

    scales[0] is the variance of the kernel, which is not used here.
    """
    for j in range(n):
        out[j] = 0.0
    for d in range(p):
        inverse = 1.0 / scales[1 + d]
        for j in range(n):
            difference = (points[d * stride + j] - x[d]) * inverse
            out[j] += difference * difference


def squared_exponential(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = variance exp(-0.5 r_j^2)``; parameters: variance, length scales."""
    _squared_distances(points, stride, n, p, x, parameters, out)
    for j in range(n):
        out[j] = parameters[0] * exp(-0.5 * out[j])


def matern_32(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = variance (1 + a) exp(-a)``, ``a = sqrt(3) r_j``.

    Parameters: variance, length scales.
    """
    _squared_distances(points, stride, n, p, x, parameters, out)
    for j in range(n):
        a = sqrt(3.0 * out[j])
        out[j] = parameters[0] * (1.0 + a) * exp(-a)


def matern_52(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = variance (1 + a + a^2 / 3) exp(-a)``, ``a = sqrt(5) r_j``.

    Parameters: variance, length scales.
    """
    _squared_distances(points, stride, n, p, x, parameters, out)
    for j in range(n):
        a = sqrt(5.0 * out[j])
        out[j] = parameters[0] * (1.0 + a + a * a / 3.0) * exp(-a)


def linear(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = offset_variance + sum_d weight_variance[d] x[d] points[d, j]``.

    Parameters: offset variance, weight variances.
    """
    for j in range(n):
        out[j] = parameters[0]
    for d in range(p):
        factor = parameters[1 + d] * x[d]
        for j in range(n):
            out[j] += factor * points[d * stride + j]


#: Rows of the kernels of this package; their positions are codes of instructions.
SHIPPED = (squared_exponential, matern_32, matern_52, linear)


def _no_row(code, points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    pass


def _prepend(code: int, row: Callable[..., None], others: Any) -> Any:
    """Return a compiled function that calls the row of this code, or else the other rows."""
    compiled = _inline(row)

    @_inline
    def call(called, points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
        if called == code:
            compiled(points, stride, n, p, x, parameters, out)
        else:
            others(called, points, stride, n, p, x, parameters, out)

    return call


def _interpreter(rows: tuple[Callable[..., None], ...]) -> Any:
    """Return a compiled function that runs the program of a composition of these rows."""
    call = _inline(_no_row)
    for code, row in enumerate(rows):
        call = _prepend(code, row, call)

    @_inline
    def run(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
        stack = np.empty(int(parameters[1]) * n)
        top = -n  # where the newest row of the stack begins
        position = 2
        while position < parameters[0]:
            code = int(parameters[position])
            if code >= 0:
                top += n
                call(
                    code,
                    points,
                    stride,
                    n,
                    p,
                    x,
                    _after(parameters, position + 2),
                    _after(stack, top),
                )
            else:
                top -= n
                for j in range(top, top + n):
                    if code == ADD:
                        stack[j] = stack[j] + stack[j + n]
                    else:
                        stack[j] = stack[j] * stack[j + n]
            position += 2 + int(parameters[position + 1])
        for j in range(n):
            out[j] = stack[j]

    return run


_run_shipped = _interpreter(SHIPPED)


def composition(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = k(points[:, j], x)`` of a sum or product of kernels of this package.

    The parameters are its program.
    """
    _run_shipped(points, stride, n, p, x, parameters, out)


@cache
def composition_with(own: tuple[Callable[..., None], ...]) -> Callable[..., None]:
    """Return a `composition` for programs that also call a user's own rows.

    It is not kept in the disk cache, which could not notice changes of these rows.
    """
    run = _interpreter(SHIPPED + own)

    def composed(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
        run(points, stride, n, p, x, parameters, out)

    return composed
