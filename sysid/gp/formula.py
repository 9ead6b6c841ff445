"""Plain Python formulas made callable from compiled loops.

A criterion, an insertion rule or a kernel states its formula once, as an ordinary function of
floats. The compiled loops call it through its C address, so that they are compiled once, kept in
numba's disk cache, and never see which formula they run. With ``NUMBA_DISABLE_JIT=1`` the formula
itself takes the place of its address and everything runs as plain Python.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import cfunc, config, njit, types

#: whether compiling is switched off (NUMBA_DISABLE_JIT=1)
PLAIN = bool(getattr(config, "DISABLE_JIT", False))


FLOATS = types.CPointer(types.float64)


#: (number of points, residuals, noisy variances, noise variance, scores) of a formula of one point's
#: (residual, noisy variance, noise variance) -> score
SCORE = types.void(types.intp, FLOATS, FLOATS, types.float64, FLOATS)


#: (error, latent variance, novelty, parameters) -> insert?
DECISION = types.boolean(types.float64, types.float64, types.float64, FLOATS)


#: (points, stride, number of points, number of features, x, parameters, out)
COVARIANCE = types.void(FLOATS, types.intp, types.intp, types.intp, FLOATS, FLOATS, FLOATS)


#: what is compiled, by formula and identity of the signature: its own hash visits every type in it
_compiled: dict[tuple[Callable[..., Any], int], Any] = {}


def _score_points(n, residual, variance, noise_variance, out):  # type: ignore[no-untyped-def]
    for j in range(n):
        out[j] = formula(residual[j], variance[j], noise_variance)  # type: ignore[name-defined]  # noqa: F821


def _of_points(formula: Callable[..., Any]) -> Callable[..., Any]:
    """`_score_points` by this formula, as if it stood where the formula does: there its machine
    code is kept.
    """
    place = formula.__code__
    code = _score_points.__code__.replace(
        co_filename=place.co_filename, co_firstlineno=place.co_firstlineno
    )
    loop = FunctionType(
        code,
        {
            "formula": formula if PLAIN else njit(error_model="numpy")(formula),
            "range": range,
        },
    )
    loop.__qualname__ = formula.__qualname__
    loop.__module__ = formula.__module__
    return loop


def address(formula: Callable[..., Any], signature: Any, *, kept: bool = False) -> Any:
    """C address of a formula (the formula itself when compiling is switched off).

    Parameters
    ----------
    formula : function of floats, compilable by numba
    signature : one of the constants `SCORE`, `DECISION`, `COVARIANCE`
    kept : bool
        Whether the compiled code stays in numba's disk cache. That notices only changes of the
        formula's own file: code that it calls must be there too.

    Returns
    -------
    int or function
    """
    key = formula, id(signature)
    if signature is SCORE and key not in _compiled:
        formula = _of_points(formula)
    if PLAIN:
        return formula
    if key not in _compiled:
        _compiled[key] = cfunc(signature, cache=kept, error_model="numpy")(formula)
    return int(_compiled[key].address)
