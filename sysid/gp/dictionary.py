"""The dictionary of an online GP, and all compiled functions that work on it.

The state consists of the exact covariance ``Ky = K + noise_variance I``, its Cholesky factor U
(upper triangular, ``U'U = Ky``), the inverse ``F = U'^-1`` (lower triangular, ``F'F = Ky^-1``), and
what follows from them: ``b = F y``, ``a = Ky^-1 y``, ``q = diag(Ky^-1)``. One substitution,
``U'phi = k``, predicts a sample: its mean is ``phi'b`` and its latent variance
``k(x, x) - phi'phi``. A sample that enters appends the column ``(phi, sqrt(s))`` to U and the row
``(-v, 1)/sqrt(s)`` to F, where ``Uv = phi`` and ``s = k(x, x) + noise_variance - phi'phi``. A point
that leaves is removed by one sweep of Givens rotations over the younger points, in U and in F.

Predictions use U, because substitution with it is backward stable and a product with the inverse is
not. F serves only to compute q. Each step costs O(N^2). The rounding errors of the rotations grow
like the square root of their number. Therefore both factors are computed again from the exact
covariance at intervals (`RENEWAL_INTERVAL`), and their drift is measured more often
(`PROBE_INTERVAL`).

With ``learning=every_sample`` the points carry the information of all samples. The values of the
function at the points, ``z = f(points) + e'`` with ``e' ~ N(0, diagonal I)``, are hidden. Whitened,
``w = U'^-1 z``, they are N(0, I) before the first sample and N(b, M'M) afterwards: b replaces
``F y``, and M, upper triangular like U, is a root of the posterior covariance. For a sample (x, y),
with ``U'phi = k`` and ``g2 = k(x, x) - phi'phi``, the variance that the points cannot represent::

    mean = phi'b,   latent variance = g2 + |M phi|^2,   s = noise_variance + g2 + |M phi|^2
    b += P phi (y - mean)/s,   M <- root of P - P phi phi'P/s,   P = M'M

This is a Kalman filter with Carlson's triangular root. While the points stay the same, it is the
recursion of FITC (Huber, "Recursive Gaussian process", 2014). When they change, it is the posterior
of Csato and Opper (2002). A point enters with a coordinate of its own, which is N(0, 1) before its
sample is learned. The coordinate of a point that leaves is rotated to the last position and
dropped, which marginalises it.

A linear part ``phi_l'theta`` (`sysid.gp.linear_part`) has p further coordinates, ``theta = C w_l``
with ``C C' = P``, which come first and never leave. For a sample with the lags phi_l, phi is then
``(C'phi_l, U'^-1 k)``. All formulas above stay as they are; g2 and the criteria, which judge the
points, concern the Gaussian process alone. Without points this is recursive least squares with the
prior P.

With forgetting, `sysid.gp.factors.forget` moves w towards its prior at intervals, in the directions
that the samples since the last steps excite. `learn` records their inputs for it.

A point keeps its *slot* as long as it is stored. The factors, b, a and q are in order of *age*,
oldest first, and ``order`` maps age to slot. All loops are in this one file, because numba's disk
cache notices changes of the file itself only. They contain no particular kernel, criterion or rule:
these are passed as addresses (`sysid.gp.formula`).
"""

import math
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sysid.arrays import MAX_MAGNITUDE
from sysid.compiled import cached_njit
from sysid.gp.formula import (
    COVARIANCE_SIGNATURE,
    DECISION_SIGNATURE,
    JIT_DISABLED,
    SCORE_SIGNATURE,
)

# Scores whose relative difference is smaller than this are a tie. Of tied points the oldest is
# removed, and a candidate that ties with the smallest acceptance score is not accepted.
SCORE_TIE = 1e-9


# Two points are near-duplicates if 1 minus their squared correlation is smaller than this.
DUPLICATE_CORRELATION_GAP = 2e-10


# The prior variances of near-duplicates also differ, relatively, by no more than this.
DUPLICATE_VARIANCE_GAP = 2e-5


# Smallest ratio of `Rules.diagonal` to the prior variance at any point. With less, rounding makes
# variances negative.
MIN_DIAGONAL_RATIO = 1e-13


# Number of points that enter between two measurements of the drift of the factors.
PROBE_INTERVAL = 50


# The factors of N points are computed from scratch after this many points have entered, or after
# 5 N points if that is more.
RENEWAL_INTERVAL = 500


# Positions in `Dictionary.counts`.
(
    N_STORED,
    N_ENTRIES,
    N_CLIPPED,
    N_DUPLICATES,
    FACTOR_STATUS,
    MINIMUM_IS_STALE,
    N_OUTLIERS,
    N_SEEN,
) = range(8)


# The names of these counts in files.
COUNT_NAMES = (
    "points",
    "entries",
    "clipped",
    "near_duplicates",
    "factors_are",
    "minimum_is_stale",
    "outliers",
    "seen",
)


N_COUNTS = len(COUNT_NAMES)


# Values of `Dictionary.counts[FACTOR_STATUS]`.
FACTORS_GOOD, RENEWAL_DUE, PROBE_DUE = range(3)


# Positions in `Dictionary.errors`.
SUM_OF_SQUARES, N_SQUARES, SCALE_MEMORY, ERROR_SCALE, OUTLIER_LEVEL = range(5)


N_ERRORS = 5


# Rows of `Dictionary.work`. The scratch rows have a different content in every function.
(
    K_BY_SLOT,
    PHI,
    SOLUTION,
    SCRATCH_A,
    SCRATCH_B,
    SCRATCH_C,
    REDUCTION_SCORES,
) = range(7)


N_WORK_ROWS = 7


# Number of samples between two updates of the scale of all variances.
SCALE_INTERVAL = 100


# Larger squares of standardised errors count as this value when the scale is updated.
MAX_STANDARDISED_SQUARE = 9.0


# Largest relative change of each input from one sample to the next while nothing moves.
REST_INPUT_CHANGE = 1e-9


# Largest change of the target from one sample to the next while nothing moves, in standard
# deviations of its prediction.
REST_TARGET_CHANGE = 1e-6


# Value of `Rules.gate` for which every sample is an outlier.
GATE_REFUSES_ALL = -1.0


# The level of outliers rises by 1 with every outlier and falls by this with every other sample. So
# the gate opens in the long run if more than one sample in six is an outlier.
OUTLIER_LEVEL_DECAY = 0.2


# How the acceptance scores of the stored points are computed (`Rules.reference`).
ACCEPT_ALL, LEAVE_ONE_OUT, IN_SAMPLE = range(3)


# Compiling takes most of the time of a first run. These options keep it short: no wrappers that
# Python does not call, no reference counting in functions that allocate nothing, and no exceptions
# (a division by zero gives inf or nan). For the same reason no function assigns an array to a
# slice, which would compile the error message for a wrong shape.
PYTHON_ENTRY_OPTIONS: Any = {
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
INTERNAL_OPTIONS: Any = {
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
# without reference counting, which costs a microsecond a call
SHARED_OPTIONS: Any = PYTHON_ENTRY_OPTIONS | {"_nrt": False}

python_entry = cached_njit(**PYTHON_ENTRY_OPTIONS)  # called from Python
internal = njit(**INTERNAL_OPTIONS)  # called from the file that defines it
shared = cached_njit(**SHARED_OPTIONS)  # called from Python and from compiled code
inlined = njit(inline="always")  # put into its only caller before anything is compiled


class Dictionary(NamedTuple):
    """State of a GP with a budget of points; every array is preallocated and changed in place.

    N is the budget, p the number of features, and p_l the number of those of the linear part, which
    are the last ones. The arrays `inputs`, `targets`, `covariance` and `number` are in slot order.
    The factors and the arrays that follow from them are in order of age.
    """

    inputs: np.ndarray  # (p, N) points, one column each
    targets: np.ndarray  # (N,)
    covariance: np.ndarray  # (N, N) Ky = K + noise_variance I, exact
    order: np.ndarray  # (N,) slot of each point by age; free slots at the end
    #: (N + 1, N + 2) both factors: row i has i + 1 entries of F, then those of U from the diagonal
    #: on
    triangles: np.ndarray
    pivots: np.ndarray  # (N + 1,) 1 / diag(U)
    whitened: np.ndarray  # (p_l + N + 1,) b: coordinates of the linear part, then F y by age
    weights: np.ndarray  # (N + 1,) a = Ky^-1 y
    precision: np.ndarray  # (N + 1,) q = diag(Ky^-1)
    work: np.ndarray  # (N_WORK_ROWS, p_l + N + 2) scratch
    counts: np.ndarray  # (N_COUNTS,) see the positions above
    minimum: np.ndarray  # (1,) smallest acceptance score of the stored points
    number: np.ndarray  # (N,) number of the sample that each point was; -1 if unknown
    #: (p_l + N + 1, p_l + N + 1) M, upper triangular, M'M = covariance of w; (0, 0) if only stored
    #: samples are learned
    root: np.ndarray
    #: (N_ERRORS,) SUM_OF_SQUARES and N_SQUARES: sum and number of the squared standardised errors
    #: since the last update of the scale; SCALE_MEMORY: number of samples that the scale remembers;
    #: ERROR_SCALE: the scale, where the variances do not follow it; OUTLIER_LEVEL: level of
    #: outliers
    errors: np.ndarray
    #: (L, p) inputs of the last L samples, sample i in row i mod L; nan for a sample that was not
    #: learned. (0, p) unless the posterior forgets
    recent_inputs: np.ndarray
    #: (p + 1,) inputs and target of the last sample that was learned; nan before the first one, and
    #: if no squared errors are summed
    last_sample: np.ndarray

    @property
    def factor(self) -> np.ndarray:
        """Matrix (N + 1, N + 1) whose lower triangle is F, ``F'F = Ky^-1``."""
        return self.triangles[:, :-1]

    @property
    def cholesky(self) -> np.ndarray:
        """Matrix (N + 1, N + 1) whose upper triangle is U, ``U'U = Ky``."""
        return self.triangles[:, 1:]


class Rules(NamedTuple):
    """Settings that `learn` applies: addresses of formulas, and numbers."""

    kernel: Any
    kernel_parameters: np.ndarray
    linear_root: np.ndarray  # (p_l, p_l) C', upper triangular; (0, 0) without a linear part
    noise_variance: float  # of a measurement
    #: variance added to the covariance of the points; the noise variance if only stored samples are
    #: learned
    diagonal: float
    every_sample: bool  # whether samples are learned even if they are not stored
    scale: bool  # whether squared errors are summed for the scale of the variances
    age_memory: float  # memory of the scores of stored points [samples]; 0: unlimited
    forget_interval: int  # samples between two steps of forgetting; 0: the posterior keeps all
    gate: float  # largest standardised error of a sample that is learned; 0: all are learned
    gate_opens_after: int  # at this level of outliers the plant is taken to have changed
    insertion: Any
    insertion_parameters: np.ndarray
    acceptance: Any
    reference: int  # ACCEPT_ALL, LEAVE_ONE_OUT or IN_SAMPLE
    reduction: Any
    tolerance: float  # largest drift that needs no repair


class UpdateReport(NamedTuple):
    """Prediction of one sample, made before its target was used, and the decisions about it."""

    mean: Annotated[float, "predicted target, before the target was used"]
    variance: Annotated[float, "latent predictive variance"]
    outlier: Annotated[bool, "beyond the gate: neither learned nor stored"]
    inserted: Annotated[bool, "the insertion rule proposed to store the sample"]
    accepted: Annotated[bool, "the sample entered the dictionary"]
    slot: Annotated[int, "slot that the sample took, -1 if none"]
    removed: Annotated[int, "slot whose point was removed, -1 if none"]
    n_points: Annotated[int, "points in the dictionary after the sample"]
    acceptance_score: Annotated[
        float,
        "acceptance score of the sample, unit of its criterion; nan if it was not needed",
    ]
    acceptance_minimum: Annotated[
        float, "smallest acceptance score of the stored points; nan if it was not needed"
    ]
    reduction_score: Annotated[
        float,
        "reduction score of the point that was removed, unit of its criterion; nan if none",
    ]


_TYPE_AND_MEANING = {
    name: get_args(hint) for name, hint in get_type_hints(UpdateReport, include_extras=True).items()
}
#: Type of the record of many samples: each row is an `UpdateReport`. `learn` writes it, and files
#: keep it as it is.
RECORD_DTYPE = np.dtype(
    [(name, np.dtype(kind)) for name, (kind, _) in _TYPE_AND_MEANING.items()], align=True
)
#: What each field of `UpdateReport` means.
FIELD_MEANINGS = {name: meaning for name, (_, meaning) in _TYPE_AND_MEANING.items()}
#: Record of a sample that is only collected: it is not predicted, and nothing enters.
NOT_PREDICTED = np.array(
    [(np.nan, np.nan, False, False, False, -1, -1, 0, np.nan, np.nan, np.nan)],
    dtype=RECORD_DTYPE,
)


def _caller(signature: Any) -> Any:
    """Return an intrinsic that calls the C function of this signature at an address.

    When compiling is switched off, return a function that calls the formula itself.
    """
    if JIT_DISABLED:
        return lambda function, arguments: function(*arguments)
    kind = signature.return_type
    returns_nothing = kind == types.void

    @intrinsic
    def call(typing_context, address, arguments):  # type: ignore[no-untyped-def]
        def generate(context, builder, _signature, values):  # type: ignore[no-untyped-def]
            pointer, packed = values
            unpacked = cgutils.unpack_tuple(builder, packed)
            result = cgutils.ir.VoidType() if returns_nothing else context.get_data_type(kind)
            function_type = cgutils.ir.FunctionType(result, [value.type for value in unpacked])
            function = builder.inttoptr(pointer, function_type.as_pointer())
            value = builder.call(function, unpacked)
            if returns_nothing:
                return context.get_dummy_value()
            return context.data_model_manager[kind].from_data(builder, value)

        return kind(address, types.Tuple(signature.args)), generate

    return call


_score = _caller(SCORE_SIGNATURE)


_decide = _caller(DECISION_SIGNATURE)


_covariance = _caller(COVARIANCE_SIGNATURE)


if JIT_DISABLED:
    _pointer = np.ravel
else:

    @njit(inline="always")
    def _pointer(array):  # type: ignore[no-untyped-def]
        return array.ctypes


@njit(fastmath={"reassoc"}, **INTERNAL_OPTIONS)
def _dot(x: np.ndarray, y: np.ndarray, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += x[i] * y[i]
    return total


@inlined
def _n_linear(state):  # type: ignore[no-untyped-def]
    """Return the number p_l of coordinates of the linear part, which come before the points."""
    return state.whitened.size - state.pivots.size


@internal
def covariances(kernel, parameters, points, n, x, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = k(points[:, j], x)`` for j < n."""
    p, stride = points.shape
    arguments = (_pointer(points), stride, n, p, _pointer(x), _pointer(parameters), _pointer(out))
    _covariance(kernel, arguments)


@cached_njit(nogil=True, **PYTHON_ENTRY_OPTIONS)
def covariance_matrix(kernel, parameters, points, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i, j] = k(rows[i], points[:, j])``; points (p, n), rows (m, p), out (m, n)."""
    for i in range(rows.shape[0]):
        covariances(kernel, parameters, points, points.shape[1], rows[i], out[i])


@cached_njit(nogil=True, **PYTHON_ENTRY_OPTIONS)
def prior_variances(kernel, parameters, points, out):  # type: ignore[no-untyped-def]
    """Set ``out[t] = k(points[t], points[t])``."""
    p = points.shape[1]
    for t in range(points.shape[0]):
        x = points[t]
        covariances(kernel, parameters, x.reshape(p, 1), 1, x, out[t:])


@internal
def _copy(values, out, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        out[i] = values[i]


@internal
def _fill(out, value, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        out[i] = value


@inlined
def _smallest(values, n):  # type: ignore[no-untyped-def]
    """Return the smallest of n values; nan if one of them is nan."""
    smallest = values[0]
    for i in range(1, n):
        if not values[i] >= smallest:
            smallest = values[i]
        if smallest != smallest:  # only nan differs from itself
            break
    return smallest


@internal
def _subtract_four(z, x, a, b, c, d, n):  # type: ignore[no-untyped-def]
    """Subtract ``x[0] a + x[1] b + x[2] c + x[3] d`` from z."""
    x0, x1, x2, x3 = x
    for i in range(n):
        z[i] -= (x0 * a[i] + x1 * b[i]) + (x2 * c[i] + x3 * d[i])


@njit(fastmath={"reassoc"}, **INTERNAL_OPTIONS)
def _dot_four(a, b, c, d, z, n):  # type: ignore[no-untyped-def]
    """Return the products of four rows with z."""
    x0 = 0.0
    x1 = 0.0
    x2 = 0.0
    x3 = 0.0
    for i in range(n):
        x0 += a[i] * z[i]
        x1 += b[i] * z[i]
        x2 += c[i] * z[i]
        x3 += d[i] * z[i]
    return x0, x1, x2, x3


@internal
def _substitute(triangles, pivots, n, z):  # type: ignore[no-untyped-def]
    """Overwrite z by the solution x of ``U'x = z``, four unknowns at a time."""
    n_grouped = n - n % 4  # rows in complete groups of four
    for j in range(0, n_grouped, 4):
        a = triangles[j, j + 1 :]
        b = triangles[j + 1, j + 1 :]
        c = triangles[j + 2, j + 1 :]
        d = triangles[j + 3, j + 1 :]
        x0 = z[j] * pivots[j]
        x1 = (z[j + 1] - x0 * a[1]) * pivots[j + 1]
        x2 = (z[j + 2] - x0 * a[2] - x1 * b[2]) * pivots[j + 2]
        x3 = (z[j + 3] - x0 * a[3] - x1 * b[3] - x2 * c[3]) * pivots[j + 3]
        z[j] = x0
        z[j + 1] = x1
        z[j + 2] = x2
        z[j + 3] = x3
        _subtract_four(z[j + 4 :], (x0, x1, x2, x3), a[4:], b[4:], c[4:], d[4:], n - j - 4)
    for j in range(n_grouped, n):
        z[j] *= pivots[j]
        for i in range(j + 1, n):
            z[i] -= z[j] * triangles[j, i + 1]


@internal
def _substitute_back(triangles, pivots, n, z):  # type: ignore[no-untyped-def]
    """Overwrite z by the solution x of ``Ux = z``, four unknowns at a time."""
    n_grouped = n - n % 4  # rows in complete groups of four
    for j in range(n - 1, n_grouped - 1, -1):
        for i in range(j + 1, n):
            z[j] -= triangles[j, i + 1] * z[i]
        z[j] *= pivots[j]
    for j in range(n_grouped - 4, -1, -4):
        a = triangles[j, j + 1 :]
        b = triangles[j + 1, j + 1 :]
        c = triangles[j + 2, j + 1 :]
        d = triangles[j + 3, j + 1 :]
        y0, y1, y2, y3 = _dot_four(a[4:], b[4:], c[4:], d[4:], z[j + 4 :], n - j - 4)
        x3 = (z[j + 3] - y3) * pivots[j + 3]
        x2 = (z[j + 2] - y2 - c[3] * x3) * pivots[j + 2]
        x1 = (z[j + 1] - y1 - b[3] * x3 - b[2] * x2) * pivots[j + 1]
        z[j] = (z[j] - y0 - a[3] * x3 - a[2] * x2 - a[1] * x1) * pivots[j]
        z[j + 1] = x1
        z[j + 2] = x2
        z[j + 3] = x3


@internal
def _add_four(a, b, c, d, x, n, squares, products):  # type: ignore[no-untyped-def]
    """Add four rows, squared and weighted.

    Entry by entry, ``squares += a a + b b + c c + d d`` and
    ``products += x[0] a + x[1] b + x[2] c + x[3] d``.
    """
    x0, x1, x2, x3 = x
    for j in range(n):
        squares[j] += (a[j] * a[j] + b[j] * b[j]) + (c[j] * c[j] + d[j] * d[j])
        products[j] += (x0 * a[j] + x1 * b[j]) + (x2 * c[j] + x3 * d[j])


@shared
def solve_weights(state, n):  # type: ignore[no-untyped-def]
    """Solve ``Ua = b`` for the weights ``a``."""
    _copy(state.whitened[_n_linear(state) :], state.weights, n)
    _substitute_back(state.triangles, state.pivots, n, state.weights)


@shared
def compute_precision_and_weights(state, n):  # type: ignore[no-untyped-def]
    """Compute ``q_j = sum_i F_ij^2`` and ``a = F'b``, four rows of F at a time.

    The weights are as accurate as q is: ``|a_j|`` is of the order of ``|b| sqrt(q_j)``.
    """
    factor = state.triangles
    x = state.whitened[_n_linear(state) :]
    precision = state.precision
    weights = state.weights
    _fill(precision, 0.0, n)
    _fill(weights, 0.0, n)
    for i in range(0, n - n % 4, 4):
        a = factor[i]
        b = factor[i + 1]
        c = factor[i + 2]
        d = factor[i + 3]
        _add_four(a, b, c, d, (x[i], x[i + 1], x[i + 2], x[i + 3]), i + 1, precision, weights)
        # the triangle of columns i + 1 to i + 3, in which not all four rows have entries
        b1 = b[i + 1]
        c1 = c[i + 1]
        d1 = d[i + 1]
        c2 = c[i + 2]
        d2 = d[i + 2]
        d3 = d[i + 3]
        precision[i + 1] = b1 * b1 + c1 * c1 + d1 * d1
        precision[i + 2] = c2 * c2 + d2 * d2
        precision[i + 3] = d3 * d3
        weights[i + 1] = x[i + 1] * b1 + x[i + 2] * c1 + x[i + 3] * d1
        weights[i + 2] = x[i + 2] * c2 + x[i + 3] * d2
        weights[i + 3] = x[i + 3] * d3
    for k in range(n - n % 4, n):
        for j in range(k + 1):
            precision[j] += factor[k, j] * factor[k, j]
            weights[j] += x[k] * factor[k, j]
    state.counts[MINIMUM_IS_STALE] = 1


@inlined
def _append(state, n, phi, v, error, s):  # type: ignore[no-untyped-def]
    """Append a point to the factors and to b.

    U gets the column ``(phi, sqrt(s))``, F the row ``(-v, 1)/sqrt(s)``, b the entry
    ``error/sqrt(s)``.
    """
    root = math.sqrt(s)
    row = state.triangles[n]
    for j in range(n):
        state.triangles[j, n + 1] = phi[j]
        row[j] = -v[j] / root
    row[n + 1] = root
    state.pivots[n] = row[n] = 1.0 / root
    state.whitened[_n_linear(state) + n] = error / root


@internal
def _rotate(x, y, out, c, s, n):  # type: ignore[no-untyped-def]
    """Rotate two rows: ``out, y = c x - s y, s x + c y``, entry by entry."""
    for j in range(n):
        f = x[j]
        g = y[j]
        out[j] = c * f - s * g
        y[j] = s * f + c * g


@inlined
def _shift_left(row, n):  # type: ignore[no-untyped-def]
    for j in range(n):
        row[j] = row[j + 1]


@internal
def _rotate_entries(row, r, k, end, cosines, sines):  # type: ignore[no-untyped-def]
    """Apply the rotations of columns before `end` to row k of M.

    Each of them rotates an entry with the carried one, which is that of column r at first. Return
    the carried entry.
    """
    carried = row[r] if k <= r else 0.0
    for i in range(max(r + 1, k), end):
        row[i - 1], carried = (
            cosines[i] * row[i] - sines[i] * carried,
            sines[i] * row[i] + cosines[i] * carried,
        )
    return carried


@internal
def _delete_from_root(root, n, r, cosines, sines):  # type: ignore[no-untyped-def]
    """Marginalise coordinate r, which belongs to a point, of n coordinates in M.

    The rotations that U has undergone rotate the columns of M, and the carried column is dropped.
    This leaves one entry too many below the diagonal in each younger column, which a rotation of
    two rows removes.
    """
    n_grouped = n - n % 4  # rows in complete groups of four
    for k in range(0, n_grouped, 4):
        a = root[k]
        b = root[k + 1]
        c = root[k + 2]
        d = root[k + 3]
        begin = max(r + 1, k + 3)
        carried_a = _rotate_entries(a, r, k, begin, cosines, sines)
        carried_b = _rotate_entries(b, r, k + 1, begin, cosines, sines)
        carried_c = _rotate_entries(c, r, k + 2, begin, cosines, sines)
        carried_d = _rotate_entries(d, r, k + 3, begin, cosines, sines)
        # four rows at a time, because the products of one row depend on each other
        for i in range(begin, n):
            cosine = cosines[i]
            sine = sines[i]
            a[i - 1], carried_a = (
                cosine * a[i] - sine * carried_a,
                sine * a[i] + cosine * carried_a,
            )
            b[i - 1], carried_b = (
                cosine * b[i] - sine * carried_b,
                sine * b[i] + cosine * carried_b,
            )
            c[i - 1], carried_c = (
                cosine * c[i] - sine * carried_c,
                sine * c[i] + cosine * carried_c,
            )
            d[i - 1], carried_d = (
                cosine * d[i] - sine * carried_d,
                sine * d[i] + cosine * carried_d,
            )
    for k in range(n_grouped, n):
        _rotate_entries(root[k], r, k, n, cosines, sines)
    for j in range(r, n - 1):
        row = root[j]
        below = root[j + 1]
        length = math.sqrt(row[j] * row[j] + below[j] * below[j])
        _rotate(row[j:], below[j:], row[j:], row[j] / length, -below[j] / length, n - 1 - j)


@shared
def delete(state, n, r):  # type: ignore[no-untyped-def]
    """Remove the r-th oldest of n points from U, F, b and M.

    The caller updates the other arrays, q and a by `compute_precision_and_weights`.

    Row r of both factors is carried through the younger rows. Without its column r, U has one entry
    too many below the diagonal in each younger column. A Givens rotation of two rows of U removes
    it, and one of the rows of F moves the entry of column r into the carried row, which is dropped
    at the end. As ``F = U'^-1``, the two rotations are the same except for rounding; but if there
    are near-duplicates, each factor needs its own.
    """
    n_linear = _n_linear(state)
    triangles = state.triangles
    b = state.whitened[n_linear:]
    carried = state.work[SCRATCH_C]
    cosines = state.work[SCRATCH_A]
    sines = state.work[SCRATCH_B]
    for i in range(r):
        _shift_left(triangles[i, r + 1 :], n - 1 - r)
    _copy(triangles[r], carried, n + 1)
    b_carried = b[r]
    pivot = carried[r]
    for i in range(r + 1, n):
        row = triangles[i]
        above = triangles[i - 1]
        # rotation of U and b
        length = math.sqrt(carried[i + 1] * carried[i + 1] + row[i + 1] * row[i + 1])
        c = row[i + 1] / length
        s = -carried[i + 1] / length
        cosines[n_linear + i] = c
        sines[n_linear + i] = s
        state.pivots[i - 1] = 1.0 / length
        b[i - 1], b_carried = (
            c * b[i] - s * b_carried,
            s * b[i] + c * b_carried,
        )
        # rotation of F
        length = math.sqrt(pivot * pivot + row[r] * row[r])
        c_inverse = pivot / length
        s_inverse = row[r] / length
        pivot = length
        carried[i] = 0.0
        # the columns of F before r stay where they are, the later ones move to the left
        _rotate(row, carried, above, c_inverse, s_inverse, r)
        _rotate(row[r + 1 :], carried[r + 1 :], above[r:], c_inverse, s_inverse, i - r)
        # the columns of U move to the left
        _rotate(row[i + 1 :], carried[i + 1 :], above[i:], c, s, n - i)
    if state.root.size:
        _delete_from_root(state.root, n_linear + n, n_linear + r, cosines, sines)


@internal
def _project(rules, state, n, sample):  # type: ignore[no-untyped-def]
    """Compute the kernel vector k of a sample, by slot, and ``phi = (C'phi_l, U'^-1 k)``.

    The features of the sample are x, followed by the lags phi_l of the linear part. The results are
    left in `work`. Return the posterior mean ``phi'b``, the prior variance ``k(x, x)``, and the
    variance that the points cannot represent, ``k(x, x) - |U'^-1 k|^2``, which rounding may have
    made slightly negative. If only stored samples are learned, this is the latent posterior
    variance.
    """
    n_linear = rules.linear_root.shape[0]
    n_features = sample.size - n_linear
    x = sample[:n_features]
    by_slot = state.work[K_BY_SLOT]
    phi = state.work[PHI]
    phi_of_points = phi[n_linear:]
    variance = state.work[SOLUTION]
    covariances(rules.kernel, rules.kernel_parameters, x.reshape(x.size, 1), 1, x, variance)
    prior = variance[0]
    covariances(rules.kernel, rules.kernel_parameters, state.inputs[:n_features], n, x, by_slot)
    for j in range(n):
        phi_of_points[j] = by_slot[state.order[j]]
    _substitute(state.triangles, state.pivots, n, phi_of_points)
    lags = sample[n_features:]
    for i in range(n_linear):
        phi[i] = _dot(rules.linear_root[i, i:], lags[i:], n_linear - i)
    residual = prior - _dot(phi_of_points, phi_of_points, n)
    return _dot(phi, state.whitened, n_linear + n), prior, residual


@internal
def _project_root(root, n, phi, image):  # type: ignore[no-untyped-def]
    """Compute ``image = M phi`` and return its squared length."""
    for j in range(n):
        image[j] = _dot(root[j, j:], phi[j:], n - j)
    return _dot(image, image, n)


@internal
def _shrink_row(row, gain, a, scale, fraction, n):  # type: ignore[no-untyped-def]
    """Replace a row of M by ``scale row - fraction gain``, then add ``a row`` to the gain.

    Both use the row and the gain as they were before.
    """
    for i in range(n):
        before = row[i]
        row[i] = scale * before - fraction * gain[i]
        gain[i] += a * before


@internal
def _condition(state, n, image, noise, error):  # type: ignore[no-untyped-def]
    """Update b and M by a sample with ``image = M phi``, this noise variance and this error.

    M is updated row by row, the youngest first (Carlson, 1973). With ``s_j = s_{j+1} + image_j^2``,
    starting from ``s_n = noise``, and g the sum of the rows done, each times its image::

        M_j <- sqrt(s_{j+1}/s_j) M_j - image_j/sqrt(s_{j+1} s_j) g

    At the end ``g = M'M phi`` and ``b += g error/s_0``.
    """
    gain = state.work[SCRATCH_B]
    s = noise
    _fill(gain, 0.0, n)
    for j in range(n - 1, -1, -1):
        a = image[j]
        before = s
        s += a * a
        scale = math.sqrt(before / s)
        fraction = a / math.sqrt(before * s)
        _shrink_row(state.root[j, j:], gain[j:], a, scale, fraction, n - j)
    _add_multiple(state.whitened, error / s, gain, n)


@internal
def _append_and_condition(rules, state, n, residual, s, error):  # type: ignore[no-untyped-def]
    """Give a sample a coordinate of its own, N(0, 1), and learn the sample.

    Return ``b_n sqrt(s)``, which the criteria use as the error of the sample. It is the difference
    between the posterior mean of the hidden value at the new point and the prediction of that value
    by the other points.
    """
    n_linear = rules.linear_root.shape[0]
    own = n_linear + n  # position of the coordinate of the sample
    phi = state.work[PHI]
    image = state.work[SCRATCH_A]
    root = state.root
    _append(state, n, phi[n_linear:], state.work[SOLUTION], 0.0, s)
    for j in range(own):
        root[j, own] = root[own, j] = 0.0
    root[own, own] = 1.0
    phi[own] = residual / math.sqrt(s)
    _project_root(root, own + 1, phi, image)
    noise = rules.noise_variance + max(residual - phi[own] * phi[own], 0.0)
    _condition(state, own + 1, image, noise, error)
    solve_weights(state, n)
    return state.whitened[own] * math.sqrt(s)


@python_entry
def predict(rules, state, points, mean, variance):  # type: ignore[no-untyped-def]
    """Compute the posterior mean and the latent variance at the rows of points (m, p).

    This is for few points. Return how many variances were negative and were clipped at 0.
    """
    n_clipped = 0
    n = state.counts[N_STORED]
    for t in range(points.shape[0]):
        mean[t], _, latent = _project(rules, state, n, points[t])
        if latent < 0.0:
            n_clipped += 1
        variance[t] = max(latent, 0.0)
        if rules.every_sample:
            n_coordinates = rules.linear_root.shape[0] + n
            variance[t] += _project_root(
                state.root, n_coordinates, state.work[PHI], state.work[SCRATCH_A]
            )
    return n_clipped


@inlined
def _solve(rules, state, n, latent):  # type: ignore[no-untyped-def]
    """Solve ``Uv = phi``, so that ``v = Ky^-1 k``, and leave v in `work`.

    Return ``s = k(x, x) + diagonal - phi'phi``, which is at least the diagonal.
    """
    v = state.work[SOLUTION]
    _copy(state.work[PHI, rules.linear_root.shape[0] :], v, n)
    _substitute_back(state.triangles, state.pivots, n, v)
    return max(latent, 0.0) + rules.diagonal


@inlined
def leave_one_out(state, n, residual, variance):  # type: ignore[no-untyped-def]
    """Compute ``r_i = a_i / q_i`` and ``v_i = 1 / q_i`` of every stored point, by age."""
    weights = state.weights
    precision = state.precision
    for j in range(n):
        variance[j] = 1.0 / precision[j]
        residual[j] = weights[j] * variance[j]


@inlined
def _leave_one_out_with(state, n, error, s, residual, variance):  # type: ignore[no-untyped-def]
    """Compute the same as `leave_one_out` with the candidate in the set.

    With it, q becomes ``q + v^2/s`` and a becomes ``a - v error/s``.
    """
    weights = state.weights
    precision = state.precision
    v = state.work[SOLUTION]
    inverse = 1.0 / s
    for j in range(n):
        variance[j] = 1.0 / (precision[j] + v[j] * v[j] * inverse)
        residual[j] = (weights[j] - v[j] * (error * inverse)) * variance[j]


@shared
def scores(formula, n, residual, variance, noise_variance, out):  # type: ignore[no-untyped-def]
    """Set ``out[j] = formula(residual[j], variance[j], noise_variance)``."""
    arguments = (n, _pointer(residual), _pointer(variance), noise_variance, _pointer(out))
    _score(formula, arguments)


@inlined
def _compute_reduction_scores(rules, state, n, error, s):  # type: ignore[no-untyped-def]
    """Compute the reduction score of every stored point, by age, with the candidate in the set.

    `_solve` must have been called for the candidate. The scores are left in `work`. With forgetting
    they are multiplied by ``exp(-age / memory)``, the age in samples.
    """
    residual = state.work[SCRATCH_A]
    variance = state.work[SCRATCH_B]
    score = state.work[REDUCTION_SCORES]
    _leave_one_out_with(state, n, error, s, residual, variance)
    scores(rules.reduction, n, residual, variance, rules.diagonal, score)
    if rules.age_memory > 0.0:
        for j in range(n):
            age = state.counts[N_SEEN] - state.number[state.order[j]]
            score[j] *= math.exp(-age / rules.age_memory)


@python_entry
def candidate_scores(rules, state, n, points, targets, out):  # type: ignore[no-untyped-def]
    """Compute reduction scores (m, n) by slot, each row with one candidate in the set.

    The candidates (m, p), (m,) are not stored.
    """
    root = state.root.copy()
    whitened = state.whitened.copy()
    for t in range(points.shape[0]):
        mean, _, residual = _project(rules, state, n, points[t])
        s = _solve(rules, state, n, residual)
        error = targets[t] - mean
        if rules.every_sample:
            error = _append_and_condition(rules, state, n, max(residual, 0.0), s, error)
        _compute_reduction_scores(rules, state, n, error, s)
        for j in range(n):
            out[t, state.order[j]] = state.work[REDUCTION_SCORES, j]
        if rules.every_sample:
            for i in range(root.shape[0]):
                state.whitened[i] = whitened[i]
                for j in range(root.shape[1]):
                    state.root[i, j] = root[i, j]


@inlined
def acceptance_scores(rules, state, n, out):  # type: ignore[no-untyped-def]
    """Compute the acceptance score of every stored point, by age.

    The point is predicted either from all others or, in sample, by the model that contains it: then
    its residual is ``noise a_i`` and its noisy variance ``2 noise - noise^2 q_i``.
    """
    residual = state.work[SCRATCH_A]
    variance = state.work[SCRATCH_C]
    noise = rules.diagonal
    if rules.reference == IN_SAMPLE:
        for j in range(n):
            variance[j] = 2.0 * noise - noise * noise * state.precision[j]
            residual[j] = noise * state.weights[j]
    else:
        leave_one_out(state, n, residual, variance)
    scores(rules.acceptance, n, residual, variance, noise, out)


@inlined
def _smallest_acceptance_score(rules, state, n):  # type: ignore[no-untyped-def]
    """Return the smallest acceptance score of the stored points.

    If only stored samples are learned, it is computed once after each change of the dictionary.
    """
    if state.counts[MINIMUM_IS_STALE] or rules.every_sample:
        acceptance_scores(rules, state, n, state.work[SCRATCH_B])
        state.minimum[0] = _smallest(state.work[SCRATCH_B], n)
        state.counts[MINIMUM_IS_STALE] = 0
    return state.minimum[0]


@inlined
def _largest_tie(score):  # type: ignore[no-untyped-def]
    """Return the largest score that ties with this one (`SCORE_TIE`)."""
    if abs(score) < math.inf:
        return score + SCORE_TIE * abs(score)
    return score


@inlined
def index_of_lowest(values, n):  # type: ignore[no-untyped-def]
    """Return the index of the lowest of n values.

    Among ties (`SCORE_TIE`) it is the first one, which belongs to the oldest point.
    """
    bound = _largest_tie(_smallest(values, n))
    for j in range(n):
        if values[j] <= bound:
            return j
    return 0


@inlined
def _write_covariances(rules, state, n, slot, prior):  # type: ignore[no-untyped-def]
    """Write the covariances of the point in a slot with all n stored points.

    Count it if it is a near-duplicate of one of them.
    """
    k = state.work[K_BY_SLOT]
    is_duplicate = False
    for i in range(n):
        state.covariance[slot, i] = k[i]
        state.covariance[i, slot] = k[i]
        if i != slot:
            prior_i = state.covariance[i, i] - rules.diagonal
            smallest_square = prior * prior_i * (1.0 - DUPLICATE_CORRELATION_GAP)
            is_correlated = k[i] > 0.0 and k[i] * k[i] > smallest_square
            if is_correlated and abs(prior - prior_i) <= DUPLICATE_VARIANCE_GAP * prior:
                is_duplicate = True
    state.covariance[slot, slot] = prior + rules.diagonal
    if is_duplicate:
        state.counts[N_DUPLICATES] += 1


@inlined
def _enter(rules, state, n, r, x, target, prior):  # type: ignore[no-untyped-def]
    """Store a point that `_append` has added to the factors, and return its slot.

    The r-th oldest of the n other points is removed; none if r equals n.
    """
    order = state.order
    slot = order[r]
    if r < n:
        delete(state, n + 1, r)
        _shift_left(order[r:], n - 1 - r)
        order[n - 1] = slot
    else:
        n += 1
    compute_precision_and_weights(state, n)
    for d in range(x.size):
        state.inputs[d, slot] = x[d]
    state.targets[slot] = target
    state.number[slot] = state.counts[N_SEEN] - 1
    _write_covariances(rules, state, n, slot, prior)
    state.counts[N_STORED] = n
    state.counts[N_ENTRIES] += 1
    return slot


@internal
def _add_multiple(out, factor, row, n):  # type: ignore[no-untyped-def]
    for j in range(n):
        out[j] += factor * row[j]


@python_entry
def drift(state, n):  # type: ignore[no-untyped-def]
    """Return how far the factors are from the covariance; 0 if they are exact.

    This is ``max(|z - Ky F'F z|, |z - F U'z|)`` over all entries, with fixed signs z = (1, -1, -1,
    1, ...).
    """
    z = state.work[PHI]
    upper_image = state.work[SOLUTION]
    inverse_image = state.work[SCRATCH_A]
    inverse_image_by_slot = state.work[SCRATCH_B]
    for j in range(n):
        z[j] = 1.0 - 2.0 * ((j * (j + 1) // 2) % 2)
        upper_image[j] = inverse_image[j] = 0.0
    for i in range(n):
        row = state.triangles[i]
        _add_multiple(inverse_image, _dot(row, z, i + 1), row, i + 1)
        _add_multiple(upper_image[i:], z[i], row[i + 1 :], n - i)
    for j in range(n):
        inverse_image_by_slot[state.order[j]] = inverse_image[j]
    largest = 0.0
    for i in range(n):
        covariance = state.covariance[state.order[i]]
        of_inverse = abs(z[i] - _dot(covariance, inverse_image_by_slot, n))
        of_factors = abs(z[i] - _dot(state.triangles[i], upper_image, i + 1))
        largest = max(largest, of_inverse, of_factors)
        if not (of_inverse <= largest and of_factors <= largest):
            return math.inf  # one of them is nan
    return largest


@inlined
def _factor_status(state, n):  # type: ignore[no-untyped-def]
    """Return the status of the factors after a point has entered.

    Their renewal or a measurement of their drift may be due.
    """
    n_entries = state.counts[N_ENTRIES]
    if n_entries % max(RENEWAL_INTERVAL, 5 * n) == 0:
        return RENEWAL_DUE
    if n_entries % PROBE_INTERVAL == 0:
        return PROBE_DUE
    return FACTORS_GOOD


@python_entry
def update_from_factors(state, n):  # type: ignore[no-untyped-def]
    """Compute what follows from new factors: ``1/diag(U)``, b, a and q.

    If every sample is learned, b is kept, because it contains the information of all samples.
    """
    for j in range(n):
        state.pivots[j] = 1.0 / state.triangles[j, j + 1]
    if not state.root.size:
        for j in range(n):
            state.whitened[j] = state.targets[state.order[j]]
        _substitute(state.triangles, state.pivots, n, state.whitened)
    compute_precision_and_weights(state, n)


@inlined
def _move_point(state, n, last, slot):  # type: ignore[no-untyped-def]
    """Move the point in the last of n slots to another slot."""
    for j in range(n - 1):
        if state.order[j] == last:
            state.order[j] = slot
    for d in range(state.inputs.shape[0]):
        state.inputs[d, slot] = state.inputs[d, last]
    state.targets[slot] = state.targets[last]
    state.number[slot] = state.number[last]
    variance = state.covariance[last, last]
    for j in range(n):
        state.covariance[slot, j] = state.covariance[j, slot] = state.covariance[last, j]
    state.covariance[slot, slot] = variance


@python_entry
def reduce(rules, state, target):  # type: ignore[no-untyped-def]
    """Remove the point with the lowest reduction score until `target` points are left.

    The point in the last slot moves to the slot that becomes free, so that slots 0 to n - 1 stay in
    use.
    """
    residual = state.work[SCRATCH_A]
    variance = state.work[SCRATCH_B]
    score = state.work[REDUCTION_SCORES]
    order = state.order
    solve_weights(state, state.counts[N_STORED])
    for n in range(state.counts[N_STORED], target, -1):
        leave_one_out(state, n, residual, variance)
        scores(rules.reduction, n, residual, variance, rules.diagonal, score)
        r = index_of_lowest(score, n)
        slot = order[r]
        last = n - 1
        delete(state, n, r)
        compute_precision_and_weights(state, last)
        _shift_left(order[r:], last - r)
        order[last] = last
        _move_point(state, n, last, slot)
        state.counts[N_STORED] = n - 1


@inlined
def _all_finite(points, targets, prior_mean):  # type: ignore[no-untyped-def]
    """Return whether all points (m, p) and targets (m,) less the mean are finite.

    Their magnitudes must be below `MAX_MAGNITUDE`.
    """
    for t in range(targets.size):
        if not abs(targets[t] - prior_mean[t]) < MAX_MAGNITUDE:
            return False
        for d in range(points.shape[1]):
            if not abs(points[t, d]) < MAX_MAGNITUDE:
                return False
    return True


@inlined
def _has_enough_noise(rules, state, points):  # type: ignore[no-untyped-def]
    """Return whether the noise is large enough for double precision at all points (m, p).

    The diagonal is compared with the prior variance (`MIN_DIAGONAL_RATIO`).
    """
    variance = state.work[SOLUTION]
    for t in range(points.shape[0]):
        x = points[t, : points.shape[1] - rules.linear_root.shape[0]]
        covariances(rules.kernel, rules.kernel_parameters, x.reshape(x.size, 1), 1, x, variance)
        if not rules.diagonal >= MIN_DIAGONAL_RATIO * variance[0]:
            return False
    return True


@inlined
def _is_accepted(rules, state, n, error, s, row):  # type: ignore[no-untyped-def]
    """Return whether a candidate is accepted for a full dictionary; write its scores to the row."""
    if rules.reference == ACCEPT_ALL:
        return True
    residual = state.work[SCRATCH_A]
    variance = state.work[SCRATCH_B]
    score = state.work[SCRATCH_C]
    residual[0] = error
    variance[0] = s
    scores(rules.acceptance, 1, residual, variance, rules.diagonal, score)
    row["acceptance_score"] = score[0]
    row["acceptance_minimum"] = _smallest_acceptance_score(rules, state, n)
    # in sample, a candidate that repeats the worst point has the score of that point
    return row["acceptance_score"] > _largest_tie(row["acceptance_minimum"])


@inlined
def _propose(  # type: ignore[no-untyped-def]
    rules, state, n, x, target, prior, residual, error, row
):
    """Store a candidate if there is room, or if it is accepted.

    In a full dictionary it replaces the point of lowest reduction score.
    """
    s = _solve(rules, state, n, residual)
    r = n
    if rules.every_sample:
        error = _append_and_condition(rules, state, n, residual, s, error)
    if n == state.targets.size:
        if not _is_accepted(rules, state, n, error, s, row):
            return
        _compute_reduction_scores(rules, state, n, error, s)
        r = index_of_lowest(state.work[REDUCTION_SCORES], n)
        row["reduction_score"] = state.work[REDUCTION_SCORES, r]
    if not rules.every_sample:
        _append(state, n, state.work[PHI], state.work[SOLUTION], error, s)
    row["accepted"] = True
    row["slot"] = _enter(rules, state, n, r, x, target, prior)
    if r < n:
        row["removed"] = row["slot"]


@inlined
def _test_for_outlier(rules, state, square):  # type: ignore[no-untyped-def]
    """Return whether a sample is an outlier, by its squared standardised error.

    The level of outliers rises by 1 with each sample beyond the gate and falls by
    `OUTLIER_LEVEL_DECAY` with each other sample. At `gate_opens_after` the gate is open: no sample
    is an outlier, until the first one that is not beyond the gate closes it.
    """
    if rules.gate == GATE_REFUSES_ALL:
        return True
    if not rules.gate > 0.0:
        return False
    level = state.errors[OUTLIER_LEVEL]
    is_open = level >= rules.gate_opens_after
    if not square > rules.gate * rules.gate:
        if is_open:
            state.errors[OUTLIER_LEVEL] = 0.0
        else:
            state.errors[OUTLIER_LEVEL] = max(level - OUTLIER_LEVEL_DECAY, 0.0)
        return False
    state.errors[OUTLIER_LEVEL] = level + 1.0
    if is_open:
        return False
    state.counts[N_OUTLIERS] += 1
    return True


@inlined
def _remember_inputs(state, x):  # type: ignore[no-untyped-def]
    """Write the inputs of the sample that is being learned to its row of the recent inputs."""
    n_rows = state.recent_inputs.shape[0]
    if n_rows > 0:
        row = (state.counts[N_SEEN] - 1) % n_rows
        for d in range(x.size):
            state.recent_inputs[row, d] = x[d]


@inlined
def _drop_last_inputs(state):  # type: ignore[no-untyped-def]
    """Mark the last row of the recent inputs as that of a sample that was not learned."""
    n_rows = state.recent_inputs.shape[0]
    if n_rows > 0:
        row = (state.counts[N_SEEN] - 1) % n_rows
        for d in range(state.recent_inputs.shape[1]):
            state.recent_inputs[row, d] = math.nan


@shared
def repeats(last_sample, x, target, variance):  # type: ignore[no-untyped-def]
    """Return whether inputs x (p,) and a target repeat the last sample (p + 1,): nothing moves.

    The target may change by a small part of the standard deviation of its prediction. While a plant
    is at rest, the same sample comes again and again. Its errors tell nothing about those of a
    plant that moves.
    """
    for d in range(x.size):
        change = abs(x[d] - last_sample[d])
        if not change <= REST_INPUT_CHANGE * max(abs(x[d]), abs(last_sample[d])):
            return False
    change = abs(target - last_sample[x.size])
    return change <= REST_TARGET_CHANGE * math.sqrt(variance)


@inlined
def _sum_square(state, x, target, square, variance):  # type: ignore[no-untyped-def]
    """Add a squared standardised error to the sum for the scale, unless the plant is at rest."""
    last_sample = state.last_sample
    if not repeats(last_sample, x, target, variance):
        state.errors[SUM_OF_SQUARES] += min(square, MAX_STANDARDISED_SQUARE)
        state.errors[N_SQUARES] += 1.0
    for d in range(x.size):
        last_sample[d] = x[d]
    last_sample[x.size] = target


@inlined
def _begin_row(row, mean, latent, n):  # type: ignore[no-untyped-def]
    """Write the prediction of a sample to its row of the record; nothing is decided yet."""
    row["mean"] = mean
    row["variance"] = latent
    row["n_points"] = n
    row["outlier"] = False
    row["inserted"] = False
    row["accepted"] = False
    row["slot"] = -1
    row["removed"] = -1
    row["acceptance_score"] = math.nan
    row["acceptance_minimum"] = math.nan
    row["reduction_score"] = math.nan


@inlined
def _is_candidate(rules, error, latent, residual):  # type: ignore[no-untyped-def]
    """Return whether the insertion rule proposes to store a sample."""
    novelty = residual / rules.noise_variance
    parameters = _pointer(rules.insertion_parameters)
    return _decide(rules.insertion, (error, latent, novelty, parameters))


@internal
def caller_has_work(rules, state):  # type: ignore[no-untyped-def]
    """Return whether the caller of `learn` must act before the next sample."""
    if rules.forget_interval > 0 and state.counts[N_SEEN] % rules.forget_interval == 0:
        return True
    if state.counts[FACTOR_STATUS] != FACTORS_GOOD:
        return True
    return state.errors[N_SQUARES] >= SCALE_INTERVAL


@shared
def are_learnable(rules, state, points, targets, prior_mean):  # type: ignore[no-untyped-def]
    """Return whether all samples are finite, with a prior variance that is not too large."""
    if not _all_finite(points, targets, prior_mean):
        return False
    return _has_enough_noise(rules, state, points)


@python_entry
def learn(rules, state, points, targets, prior_mean, start, record):  # type: ignore[no-untyped-def]
    """Predict and learn the samples from `start` on: algorithm 1 of Wietzke and Graichen.

    The GP learns the targets (n,) less the prior mean (n,) at the points; the means in the record
    are predictions of the targets. With `every_sample`, samples that are not stored are learned,
    too. The criteria then use the posterior mean of the hidden values z instead of the targets, and
    the diagonal instead of the noise.

    An outlier (`_test_for_outlier`) is predicted, but not learned.

    Return the index after the last sample that was processed. It is smaller than n after an
    outlier, and if the caller must act before it goes on: when the factors may be bad
    (``counts[FACTOR_STATUS]``), when the scale must be updated (``errors[N_SQUARES]``), or when old
    samples must be forgotten. Return -1, with nothing learned, if a sample is not finite or if the
    prior variance at one is too large beside the noise.
    """
    if start == 0 and not are_learnable(rules, state, points, targets, prior_mean):
        return -1
    for t in range(start, points.shape[0]):
        state.counts[N_SEEN] += 1
        _remember_inputs(state, points[t])
        n = state.counts[N_STORED]
        x = points[t]
        row = record[t]
        mean, prior, residual = _project(rules, state, n, x)
        n_coordinates = rules.linear_root.shape[0] + n
        if residual < 0.0:
            state.counts[N_CLIPPED] += 1
            residual = 0.0
        latent = residual
        if rules.every_sample:
            latent += _project_root(
                state.root, n_coordinates, state.work[PHI], state.work[SCRATCH_A]
            )
        target = targets[t] - prior_mean[t]
        error = target - mean
        _begin_row(row, mean + prior_mean[t], latent, n)
        variance = (latent + rules.noise_variance) * state.errors[ERROR_SCALE]
        square = error * error / variance
        if _test_for_outlier(rules, state, square):
            row["outlier"] = True
            _drop_last_inputs(state)
            return t + 1
        row["inserted"] = _is_candidate(rules, error, latent, residual)
        if rules.scale:
            _sum_square(state, x, target, square, variance)
        if row["inserted"]:
            _propose(rules, state, n, x, target, prior, residual, error, row)
            row["n_points"] = state.counts[N_STORED]
        elif rules.every_sample:
            noise = rules.noise_variance + residual
            _condition(state, n_coordinates, state.work[SCRATCH_A], noise, error)
        if row["accepted"]:
            state.counts[FACTOR_STATUS] = _factor_status(state, row["n_points"])
        if caller_has_work(rules, state):
            return t + 1
    return points.shape[0]
