"""Plain Python formulas, made callable from compiled loops.

A criterion, an insertion rule or a kernel states its formula once, as an ordinary function of
floats. The compiled loops call it through its C address. So the loops are compiled once for all
formulas and kept in numba's disk cache. With ``NUMBA_DISABLE_JIT=1`` the formula itself is called
instead of its address, and everything runs as plain Python.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import cfunc, config, njit, types

#: Whether compiling is switched off (NUMBA_DISABLE_JIT=1).
JIT_DISABLED = bool(getattr(config, "DISABLE_JIT", False))


#: Numba type of the pointer to an array of doubles.
FLOAT_POINTER = types.CPointer(types.float64)


#: Signature of a loop over points: number of points, residuals, noisy variances, noise variance,
#: scores (out). It is made of a formula (residual, noisy variance, noise variance) -> score.
SCORE_SIGNATURE = types.void(types.intp, FLOAT_POINTER, FLOAT_POINTER, types.float64, FLOAT_POINTER)


#: Signature of an insertion rule: (error, latent variance, novelty, parameters) -> whether to
#: insert the sample.
DECISION_SIGNATURE = types.boolean(types.float64, types.float64, types.float64, FLOAT_POINTER)


#: Signature of a covariance row:
#: points, stride, number of points, number of features, x, parameters, covariances (out).
COVARIANCE_SIGNATURE = types.void(
    FLOAT_POINTER,
    types.intp,
    types.intp,
    types.intp,
    FLOAT_POINTER,
    FLOAT_POINTER,
    FLOAT_POINTER,
)


#: Compiled functions by formula and identity of the signature. The identity is used because the
#: hash of a signature visits every type in it.
_compiled: dict[tuple[Callable[..., Any], int], Any] = {}


def _score_points(n, residual, variance, noise_variance, out):  # type: ignore[no-untyped-def]
    for j in range(n):
        r = residual[j]
        v = variance[j]
        out[j] = formula(r, v, noise_variance)  # type: ignore[name-defined]  # noqa: F821


def _loop_over_points(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Return `_score_points` with this formula, as if it was defined where the formula is.

    numba then keeps its machine code beside the file of the formula.
    """
    formula_code = formula.__code__
    code = _score_points.__code__.replace(
        co_filename=formula_code.co_filename, co_firstlineno=formula_code.co_firstlineno
    )
    called = formula if JIT_DISABLED else njit(error_model="numpy")(formula)
    loop = FunctionType(code, {"formula": called, "range": range})
    loop.__qualname__ = formula.__qualname__
    loop.__module__ = formula.__module__
    return loop


def address(formula: Callable[..., Any], signature: Any, *, kept: bool = False) -> Any:
    """Return the C address of a formula, or the formula itself when compiling is switched off.

    Parameters
    ----------
    formula : function of floats, compilable by numba
    signature : `SCORE_SIGNATURE`, `DECISION_SIGNATURE` or `COVARIANCE_SIGNATURE`
    kept : bool
        Whether the compiled code stays in numba's disk cache. The cache notices only changes of the
        formula's own file, so all code that the formula calls must be in that file, too.

    Returns
    -------
    int or function
    """
    key = formula, id(signature)
    if signature is SCORE_SIGNATURE and key not in _compiled:
        formula = _loop_over_points(formula)
    if JIT_DISABLED:
        return formula
    if key not in _compiled:
        _compiled[key] = cfunc(signature, cache=kept, error_model="numpy")(formula)
    return int(_compiled[key].address)
