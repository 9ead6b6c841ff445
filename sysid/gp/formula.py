"""Plain Python formulas made callable from compiled loops.

A criterion, an insertion rule or a kernel states its formula once, as an ordinary function of
floats. The compiled loops call it through its C address, so that they are compiled once, kept in
numba's disk cache, and never see which formula they run. With ``NUMBA_DISABLE_JIT=1`` the formula
itself takes the place of its address and everything runs as plain Python.
"""

from collections.abc import Callable
from typing import Any

from numba import cfunc, config, types

#: whether compiling is switched off (NUMBA_DISABLE_JIT=1)
PLAIN = bool(getattr(config, "DISABLE_JIT", False))


FLOATS = types.CPointer(types.float64)


#: (residual, noisy variance, noise variance) -> score
SCORE = types.float64(types.float64, types.float64, types.float64)


#: (error, latent variance, novelty, parameters) -> insert?
DECISION = types.boolean(types.float64, types.float64, types.float64, FLOATS)


#: (points, stride, number of points, number of features, x, parameters, out)
COVARIANCE = types.void(FLOATS, types.intp, types.intp, types.intp, FLOATS, FLOATS, FLOATS)


#: what is compiled, by formula and identity of the signature: its own hash visits every type in it
_compiled: dict[tuple[Callable[..., Any], int], Any] = {}


def address(formula: Callable[..., Any], signature: Any, *, kept: bool = False) -> Any:
    """C address of a formula (the formula itself when compiling is switched off).

    Parameters
    ----------
    formula : function of floats, compilable by numba
    signature : one of the constants `SCORE`, `DECISION`, `COVARIANCE`
    kept : bool
        Whether the compiled code stays in numba's disk cache. That notices only changes of the formula's own file:
        code that it calls must be there too.

    Returns
    -------
    int or function
    """
    if PLAIN:
        return formula
    key = formula, id(signature)
    if key not in _compiled:
        _compiled[key] = cfunc(signature, cache=kept, error_model="numpy")(formula)
    return int(_compiled[key].address)
