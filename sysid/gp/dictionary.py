"""The dictionary of an online GP and everything compiled that works on it.

The state is the exact covariance ``Ky = K + noise_variance I``, its Cholesky factor U (upper
triangular, ``U'U = Ky``), the inverse ``F = U'^-1`` (lower triangular, ``F'F = Ky^-1``), and what
follows from them: ``b = F y``, ``a = Ky^-1 y``, ``q = diag(Ky^-1)``. A sample is predicted by one
substitution, ``U'z = k``: mean ``z'b``, latent variance ``k(x, x) - z'z``. To enter, it appends the
column ``(z, sqrt(s))`` to U and the row ``(-v, 1)/sqrt(s)`` to F, where ``Uv = z`` and ``s = k(x,
x) + noise_variance - z'z``. A point leaves by one sweep of Givens rotations over the younger
points, in U and in F.

U carries all predictions because substitution with it is backward stable, which a product with the
inverse is not; F is there for q alone. Each step costs O(N^2). Rounding errors of the rotations
grow like the root of their number, so both factors are renewed from the exact covariance every so
many entries (`REFRESH_INTERVAL`), and their drift is measured more often (`PROBE_INTERVAL`).

With ``learning=every_sample`` the points are places for what all samples say. Their values ``z =
f(points) + e'``, ``e' ~ N(0, diagonal I)``, are hidden. Whitened, ``w = U'^-1 z``, they are N(0, I)
before the first sample and N(b, M'M) from then on: b takes the place of ``F y``; M, upper
triangular like U, is a root of the posterior covariance. For a sample (x, y), ``U'phi = k`` and
``g2 = k(x, x) - phi'phi``, the part that the points cannot represent::

    mean = phi'b,   latent variance = g2 + |M phi|^2,   s = noise_variance + g2 + |M phi|^2
    b += P phi (y - mean)/s,   M <- root of P - P phi phi'P/s,   P = M'M   (Kalman filter, Carlson's
    triangular root)

With the points fixed this is the recursion of FITC (Huber, "Recursive Gaussian process", 2014). As
they move, it is the posterior of Csato and Opper (2002). A point enters with a coordinate of its
own, N(0, 1) before its sample is learned. One that leaves is rotated into the last coordinate and
dropped, which marginalises it.

Points keep their *slot* for life; the factors, b, a and q are in order of *age*, oldest first, and
``order`` maps age to slot. All loops live in this one file because numba's disk cache knows only
the content of the file itself. They know no kernel, criterion or rule: those come as addresses
(`sysid.gp.formula`).
"""

import math
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sysid.arrays import MAX_MAGNITUDE
from sysid.gp.formula import COVARIANCE, DECISION, PLAIN, SCORE

TIE = 1e-9  # scores this close (relative) are a tie, which the oldest point loses


# points of the same prior variance whose squared correlation is closer to 1 are near-duplicates
ALIKE = 2e-10


# of the prior variance at every point: with less, rounding makes variances negative
LEAST_NOISE = 1e-13


SAME = 2e-5  # prior variances this close (relative) are the same


PROBE_INTERVAL = 50  # entries between two measurements of the factors' drift


REFRESH_INTERVAL = 500  # entries, and at least 5 N, between two renewals of the factors


# positions in Dictionary.counts
(
    N_POINTS,
    N_ENTRIES,
    N_CLIPPED,
    N_DUPLICATES,
    FACTORS_ARE,
    MINIMUM_IS_STALE,
    N_OUTLIERS,
    N_SEEN,
) = range(8)


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


# what counts[FACTORS_ARE] says
GOOD, DUE, UNSURE = range(3)


SCALE_INTERVAL = 100  # samples between two estimates of the scale of all variances


LARGEST_SQUARE = 9.0  # squared standardised errors count at most so much for the scale


# positions in Dictionary.errors
SUM, NUMBER, MEMORY, SCALE, LEVEL = range(5)


CLOSED = -1.0  # gate that no sample passes


# of the level of outliers, by a usual sample: the gate opens if more than one in six is an outlier
RELIEF = 0.2


# how the stored points are judged when a candidate asks to be accepted
ACCEPT_ALL, LEAVE_ONE_OUT, IN_SAMPLE = range(3)


# Compiling takes the longest part of a first run. It is short where little is asked for: no wrapper
# that Python does not call, no counts of references (`inner` allocates nothing), no exceptions
# (divisions by zero give inf or nan), no assignment of an array to a slice, which brings the text
# of its error.
CALLED_FROM_PYTHON: Any = {
    "cache": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
ONLY_CALLED_HERE: Any = {
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
CALLED_FROM_BOTH: Any = CALLED_FROM_PYTHON | {
    "_nrt": False
}  # counting references takes a microsecond a call
called_from_python = njit(**CALLED_FROM_PYTHON)
inner = njit(**ONLY_CALLED_HERE)
shared = njit(**CALLED_FROM_BOTH)
inlined = njit(inline="always")  # into its only caller, before anything is compiled


class Dictionary(NamedTuple):
    """State of a budgeted GP; every array is preallocated and changed in place.

    Sizes: N budget, p features. Slot order: `inputs`, `targets`, `covariance`. Order of age: the
    rest.
    """

    inputs: np.ndarray  # (p, N) points, one column each
    targets: np.ndarray  # (N,)
    covariance: np.ndarray  # (N, N) Ky = K + noise_variance I, exact
    order: np.ndarray  # (N,) slot of each point by age; free slots at the end
    triangles: (
        np.ndarray
    )  # (N + 1, N + 2) row i: i + 1 entries of F, from the diagonal on those of U
    pivots: np.ndarray  # (N + 1,) 1 / diag(U)
    whitened: np.ndarray  # (N + 1,) b = F y
    weights: np.ndarray  # (N + 1,) a = Ky^-1 y
    precision: np.ndarray  # (N + 1,) q = diag(Ky^-1)
    work: np.ndarray  # (8, N + 2) scratch
    counts: np.ndarray  # (N_COUNTS,) see the constants above
    minimum: np.ndarray  # (1,) smallest acceptance score of the stored points
    number: np.ndarray  # (N,) number of the sample that each point was, by slot; -1 if unknown
    # (N + 1, N + 1) M, upper triangular, M'M = covariance of w; (0, 0) if only stored are learned
    root: np.ndarray
    # (5,) sum and number of squared standardised errors for the scale, samples that it remembers,
    errors: np.ndarray
    #                     the scale itself where the variances do not follow it, the level of outliers

    @property
    def factor(self) -> np.ndarray:
        """F (N + 1, N + 1), ``F'F = Ky^-1``: the lower triangle of what is returned."""
        return self.triangles[:, :-1]

    @property
    def cholesky(self) -> np.ndarray:
        """U (N + 1, N + 1), ``U'U = Ky``: the upper triangle of what is returned."""
        return self.triangles[:, 1:]


class Rules(NamedTuple):
    """What `learn` applies: addresses of formulas and their numbers."""

    kernel: Any
    kernel_parameters: np.ndarray
    noise_variance: float  # of a measurement
    # added to the covariance of the points: the noise variance if only stored samples are learned
    diagonal: float
    every_sample: bool  # whether samples without a place are learned
    scale: bool  # whether the errors are summed for their scale
    age_memory: float  # memory of the scores of stored points [samples]; 0: none
    forget_interval: int  # samples between two steps back to the prior; 0: none
    gate: float  # largest standardised error of a sample that is learned; 0: none
    gate_opens_after: int  # level of outliers from which on the plant is believed to have changed
    asks: bool  # whether samples may ask for a place
    insertion: Any
    insertion_parameters: np.ndarray
    acceptance: Any
    reference: int  # ACCEPT_ALL, LEAVE_ONE_OUT or IN_SAMPLE
    reduction: Any
    tolerance: float  # largest drift that needs no repair


class UpdateReport(NamedTuple):
    """What became of one sample: the prediction made before its target was used, then the
    decisions.
    """

    mean: Annotated[float, "predicted target, before the target was used"]
    variance: Annotated[float, "latent predictive variance"]
    outlier: Annotated[bool, "beyond the gate: neither learned nor stored"]
    inserted: Annotated[bool, "the insertion rule asked for a place"]
    accepted: Annotated[bool, "the sample entered the dictionary"]
    slot: Annotated[int, "place that the sample took, -1 if none"]
    removed: Annotated[int, "place whose point had to leave, -1 if none"]
    n_points: Annotated[int, "points in the dictionary after the sample"]
    acceptance_score: Annotated[
        float,
        "acceptance score of the sample, unit of its criterion; nan if nobody asked",
    ]
    acceptance_minimum: Annotated[
        float, "smallest acceptance score of the stored points; nan if nobody asked"
    ]
    reduction_score: Annotated[
        float,
        "reduction score of the point that left, unit of its criterion; nan if none",
    ]


_HINTS = {
    name: get_args(hint) for name, hint in get_type_hints(UpdateReport, include_extras=True).items()
}
#: type of the record of many samples: one `UpdateReport` a row, written by `learn`, kept as it is in files
RECORD = np.dtype([(name, np.dtype(kind)) for name, (kind, _) in _HINTS.items()], align=True)
MEANINGS = {name: meaning for name, (_, meaning) in _HINTS.items()}
#: what is reported of a sample that is only collected: nothing is predicted, nothing enters
NOT_PREDICTED = np.array(
    [(np.nan, np.nan, False, False, False, -1, -1, 0, np.nan, np.nan, np.nan)],
    dtype=RECORD,
)


def _caller(signature: Any) -> Any:
    """Intrinsic that calls the C function at an address; a plain call when compiling is switched
    off.
    """
    if PLAIN:
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
            value = builder.call(builder.inttoptr(pointer, function_type.as_pointer()), unpacked)
            if returns_nothing:
                return context.get_dummy_value()
            return context.data_model_manager[kind].from_data(builder, value)

        return kind(address, types.Tuple(signature.args)), generate

    return call


_score = _caller(SCORE)


_decide = _caller(DECISION)


_covariance = _caller(COVARIANCE)


if PLAIN:
    _pointer = np.ravel
else:

    @njit(inline="always")
    def _pointer(array):  # type: ignore[no-untyped-def]
        return array.ctypes


@njit(fastmath={"reassoc"}, **ONLY_CALLED_HERE)
def _dot(x: np.ndarray, y: np.ndarray, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += x[i] * y[i]
    return total


@inner
def covariances(kernel, parameters, points, n, x, out):  # type: ignore[no-untyped-def]
    """``out[j] = k(points[:, j], x)`` for j < n."""
    p, stride = points.shape
    _covariance(
        kernel,
        (
            _pointer(points),
            stride,
            n,
            p,
            _pointer(x),
            _pointer(parameters),
            _pointer(out),
        ),
    )


@njit(nogil=True, **CALLED_FROM_PYTHON)
def covariance_matrix(kernel, parameters, points, rows, out):  # type: ignore[no-untyped-def]
    """``out[i, j] = k(rows[i], points[:, j])``; points (p, n), rows (m, p), out (m, n)."""
    for i in range(rows.shape[0]):
        covariances(kernel, parameters, points, points.shape[1], rows[i], out[i])


@njit(nogil=True, **CALLED_FROM_PYTHON)
def prior_variances(kernel, parameters, points, out):  # type: ignore[no-untyped-def]
    """``out[t] = k(points[t], points[t])``."""
    for t in range(points.shape[0]):
        covariances(
            kernel,
            parameters,
            points[t].reshape(points.shape[1], 1),
            1,
            points[t],
            out[t:],
        )


@inner
def _copy(values, out, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        out[i] = values[i]


@inner
def _fill(out, value, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        out[i] = value


@inlined
def _least(values, n):  # type: ignore[no-untyped-def]
    """Smallest of n values; nan if one is."""
    least = values[0]
    for i in range(1, n):
        if not values[i] >= least:
            least = values[i]
        if least != least:
            break
    return least


@inner
def _subtract_four(z, x, a, b, c, d, n):  # type: ignore[no-untyped-def]
    """``z -= x[0] a + x[1] b + x[2] c + x[3] d``."""
    x0, x1, x2, x3 = x
    for i in range(n):
        z[i] -= (x0 * a[i] + x1 * b[i]) + (x2 * c[i] + x3 * d[i])


@njit(fastmath={"reassoc"}, **ONLY_CALLED_HERE)
def _dot_four(a, b, c, d, z, n):  # type: ignore[no-untyped-def]
    """Products of four rows with z."""
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


@inner
def _substitute(triangles, pivots, n, z):  # type: ignore[no-untyped-def]
    """Overwrite z by the solution x of ``U'x = z``, four unknowns at a time."""
    whole = n - n % 4
    for j in range(0, whole, 4):
        a = triangles[j, j + 1 :]
        b = triangles[j + 1, j + 1 :]
        c = triangles[j + 2, j + 1 :]
        d = triangles[j + 3, j + 1 :]
        x0 = z[j] * pivots[j]
        x1 = (z[j + 1] - x0 * a[1]) * pivots[j + 1]
        x2 = (z[j + 2] - x0 * a[2] - x1 * b[2]) * pivots[j + 2]
        x3 = (z[j + 3] - x0 * a[3] - x1 * b[3] - x2 * c[3]) * pivots[j + 3]
        z[j], z[j + 1], z[j + 2], z[j + 3] = x0, x1, x2, x3
        _subtract_four(z[j + 4 :], (x0, x1, x2, x3), a[4:], b[4:], c[4:], d[4:], n - j - 4)
    for j in range(whole, n):
        z[j] *= pivots[j]
        for i in range(j + 1, n):
            z[i] -= z[j] * triangles[j, i + 1]


@inner
def _substitute_back(triangles, pivots, n, z):  # type: ignore[no-untyped-def]
    """Overwrite z by the solution x of ``Ux = z``, four unknowns at a time."""
    whole = n - n % 4
    for j in range(n - 1, whole - 1, -1):
        for i in range(j + 1, n):
            z[j] -= triangles[j, i + 1] * z[i]
        z[j] *= pivots[j]
    for j in range(whole - 4, -1, -4):
        a = triangles[j, j + 1 :]
        b = triangles[j + 1, j + 1 :]
        c = triangles[j + 2, j + 1 :]
        d = triangles[j + 3, j + 1 :]
        y0, y1, y2, y3 = _dot_four(a[4:], b[4:], c[4:], d[4:], z[j + 4 :], n - j - 4)
        x3 = (z[j + 3] - y3) * pivots[j + 3]
        x2 = (z[j + 2] - y2 - c[3] * x3) * pivots[j + 2]
        x1 = (z[j + 1] - y1 - b[3] * x3 - b[2] * x2) * pivots[j + 1]
        z[j] = (z[j] - y0 - a[3] * x3 - a[2] * x2 - a[1] * x1) * pivots[j]
        z[j + 1], z[j + 2], z[j + 3] = x1, x2, x3


@inner
def _add_four(a, b, c, d, x, n, squares, products):  # type: ignore[no-untyped-def]
    """``squares += a a + b b + c c + d d`` entry by entry, ``products += x[0] a + x[1] b + x[2] c +
    x[3] d``.
    """
    x0, x1, x2, x3 = x
    for j in range(n):
        squares[j] += (a[j] * a[j] + b[j] * b[j]) + (c[j] * c[j] + d[j] * d[j])
        products[j] += (x0 * a[j] + x1 * b[j]) + (x2 * c[j] + x3 * d[j])


@shared
def solve_weights(state, n):  # type: ignore[no-untyped-def]
    """Solve ``Ua = b`` for the weights ``a``."""
    _copy(state.whitened, state.weights, n)
    _substitute_back(state.triangles, state.pivots, n, state.weights)


@shared
def renew(state, n):  # type: ignore[no-untyped-def]
    """``q_j = sum_i F_ij^2`` and ``a = F'b``, as good as q is: ``|a_j|`` is of the order of ``|b|
    sqrt(q_j)``.
    """
    factor = state.triangles
    x = state.whitened
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
        b1 = b[i + 1]
        c1 = c[i + 1]
        d1 = d[i + 1]
        c2 = c[i + 2]
        d2 = d[i + 2]
        d3 = d[i + 3]
        precision[i + 1], weights[i + 1] = (
            b1 * b1 + c1 * c1 + d1 * d1,
            x[i + 1] * b1 + x[i + 2] * c1 + x[i + 3] * d1,
        )
        precision[i + 2], weights[i + 2] = (
            c2 * c2 + d2 * d2,
            x[i + 2] * c2 + x[i + 3] * d2,
        )
        precision[i + 3], weights[i + 3] = d3 * d3, x[i + 3] * d3
    for k in range(n - n % 4, n):
        for j in range(k + 1):
            precision[j] += factor[k, j] * factor[k, j]
            weights[j] += x[k] * factor[k, j]
    state.counts[MINIMUM_IS_STALE] = 1


@inlined
def _append(state, n, z, v, error, s):  # type: ignore[no-untyped-def]
    """Border U by the column ``(z, sqrt(s))``, F by the row ``(-v, 1)/sqrt(s)``, b by
    ``error/sqrt(s)``.
    """
    root = math.sqrt(s)
    row = state.triangles[n]
    for j in range(n):
        state.triangles[j, n + 1] = z[j]
        row[j] = -v[j] / root
    row[n + 1] = root
    state.pivots[n] = row[n] = 1.0 / root
    state.whitened[n] = error / root


@inner
def _rotate(x, y, out, c, s, n):  # type: ignore[no-untyped-def]
    """``out, y = c x - s y, s x + c y``, entry by entry."""
    for j in range(n):
        f = x[j]
        g = y[j]
        out[j] = c * f - s * g
        y[j] = s * f + c * g


@inlined
def _shift_left(row, n):  # type: ignore[no-untyped-def]
    for j in range(n):
        row[j] = row[j + 1]


@inner
def _turn(row, r, k, end, cosines, sines):  # type: ignore[no-untyped-def]
    """Turn the entries of row k before `end` into one another and the carried one, that of column
    r; returns this.
    """
    carried = row[r] if k <= r else 0.0
    for i in range(max(r + 1, k), end):
        row[i - 1], carried = (
            cosines[i] * row[i] - sines[i] * carried,
            sines[i] * row[i] + cosines[i] * carried,
        )
    return carried


@inner
def _delete_from_root(root, n, r, cosines, sines):  # type: ignore[no-untyped-def]
    """Marginalise the r-th oldest of n points in M: the rotations of U turn its columns, the
    carried one is dropped.

    That leaves one entry too many below the diagonal in each younger column, which a rotation of
    two rows removes.
    """
    whole = n - n % 4
    for k in range(0, whole, 4):
        a = root[k]
        b = root[k + 1]
        c = root[k + 2]
        d = root[k + 3]
        begin = max(r + 1, k + 3)
        w = _turn(a, r, k, begin, cosines, sines)
        x = _turn(b, r, k + 1, begin, cosines, sines)
        y = _turn(c, r, k + 2, begin, cosines, sines)
        z = _turn(d, r, k + 3, begin, cosines, sines)
        for i in range(begin, n):  # four chains of dependent products at a time
            cosine = cosines[i]
            sine = sines[i]
            a[i - 1], w = cosine * a[i] - sine * w, sine * a[i] + cosine * w
            b[i - 1], x = cosine * b[i] - sine * x, sine * b[i] + cosine * x
            c[i - 1], y = cosine * c[i] - sine * y, sine * c[i] + cosine * y
            d[i - 1], z = cosine * d[i] - sine * z, sine * d[i] + cosine * z
    for k in range(whole, n):
        _turn(root[k], r, k, n, cosines, sines)
    for j in range(r, n - 1):
        row = root[j]
        below = root[j + 1]
        length = math.sqrt(row[j] * row[j] + below[j] * below[j])
        _rotate(row[j:], below[j:], row[j:], row[j] / length, -below[j] / length, n - 1 - j)


@shared
def delete(state, n, r):  # type: ignore[no-untyped-def]
    """Remove the r-th oldest of n points from U, F, b and M; from the rest by `renew` and the
    caller.

    Row r of both is carried through the younger rows. Without its column r, U has one entry too
    many below the diagonal in each younger column, which a Givens rotation of the rows removes; one
    of the rows of F moves the entry of column r into the carried row, which is dropped at the end.
    As ``F = U'^-1``, the two are the same but for rounding: of near-duplicates each factor needs
    its own.
    """
    triangles = state.triangles
    b = state.whitened
    carried = state.work[6]
    cosines = state.work[4]
    sines = state.work[5]
    for i in range(r):
        _shift_left(triangles[i, r + 1 :], n - 1 - r)
    _copy(triangles[r], carried, n + 1)
    b_carried = b[r]
    pivot = carried[r]
    for i in range(r + 1, n):
        row = triangles[i]
        above = triangles[i - 1]
        length = math.sqrt(carried[i + 1] * carried[i + 1] + row[i + 1] * row[i + 1])
        cosines[i], sines[i] = c, s = row[i + 1] / length, -carried[i + 1] / length
        state.pivots[i - 1] = 1.0 / length
        b[i - 1], b_carried = c * b[i] - s * b_carried, s * b[i] + c * b_carried
        length = math.sqrt(pivot * pivot + row[r] * row[r])
        c_inverse, s_inverse, pivot, carried[i] = (
            pivot / length,
            row[r] / length,
            length,
            0.0,
        )
        _rotate(row, carried, above, c_inverse, s_inverse, r)
        _rotate(row[r + 1 :], carried[r + 1 :], above[r:], c_inverse, s_inverse, i - r)
        _rotate(row[i + 1 :], carried[i + 1 :], above[i:], c, s, n - i)
    if state.root.size:
        _delete_from_root(state.root, n, r, cosines, sines)


@inner
def _project(rules, state, n, x):  # type: ignore[no-untyped-def]
    """Kernel vector and its image: work[0] = k by slot, work[1] = k by age, work[2] = z with ``U'z
    = k``.

    Returns the posterior mean ``z'b``, the prior variance ``k(x, x)`` and what the points cannot
    represent, ``k(x, x) - z'z``, which rounding may leave slightly negative. If only stored samples
    are learned, that is the latent posterior variance.
    """
    by_slot = state.work[0]
    k = state.work[1]
    z = state.work[2]
    itself = state.work[3]
    covariances(rules.kernel, rules.kernel_parameters, x.reshape(x.size, 1), 1, x, itself)
    prior = itself[0]
    covariances(rules.kernel, rules.kernel_parameters, state.inputs, n, x, by_slot)
    for j in range(n):
        z[j] = k[j] = by_slot[state.order[j]]
    _substitute(state.triangles, state.pivots, n, z)
    return _dot(z, state.whitened, n), prior, prior - _dot(z, z, n)


@inner
def _project_root(root, n, z, image):  # type: ignore[no-untyped-def]
    """``image = M z``; returns its squared length."""
    for j in range(n):
        image[j] = _dot(root[j, j:], z[j:], n - j)
    return _dot(image, image, n)


@inner
def _shrink_row(row, gain, a, scale, share, n):  # type: ignore[no-untyped-def]
    """``gain += a row``, and the row becomes ``scale row - share gain`` with the gain before."""
    for i in range(n):
        before = row[i]
        row[i] = scale * before - share * gain[i]
        gain[i] += a * before


@inner
def _condition(state, n, image, noise, error):  # type: ignore[no-untyped-def]
    """Learn a sample of ``image = M phi``, its error and noise: b, and M by rows, the youngest
    first (Carlson, 1973).

    With ``s_j = s_{j+1} + image_j^2`` from ``s_n = noise`` on, and g the sum of the rows done, each
    times its image::

        M_j <- sqrt(s_{j+1}/s_j) M_j - image_j/sqrt(s_{j+1} s_j) g,   b += g error/s_0   at the end,
        g = M'M phi
    """
    gain = state.work[5]
    s = noise
    _fill(gain, 0.0, n)
    for j in range(n - 1, -1, -1):
        a = image[j]
        before = s
        s += a * a
        _shrink_row(
            state.root[j, j:],
            gain[j:],
            a,
            math.sqrt(before / s),
            a / math.sqrt(before * s),
            n - j,
        )
    _add_multiple(state.whitened, error / s, gain, n)


@inner
def _open_place(rules, state, n, residual, s, error):  # type: ignore[no-untyped-def]
    """Give a sample a coordinate of its own, N(0, 1), and learn it; returns what it says of its own
    place.

    The return value is to the place what the error is to a stored sample: ``b_n sqrt(s)``.
    """
    z = state.work[2]
    root = state.root
    _append(state, n, z, state.work[3], 0.0, s)
    for j in range(n):
        root[j, n] = root[n, j] = 0.0
    root[n, n] = 1.0
    z[n] = residual / math.sqrt(s)
    _project_root(root, n + 1, z, state.work[4])
    _condition(
        state,
        n + 1,
        state.work[4],
        rules.noise_variance + max(residual - z[n] * z[n], 0.0),
        error,
    )
    solve_weights(state, n)
    return state.whitened[n] * math.sqrt(s)


@called_from_python
def predict(rules, state, points, mean, variance):  # type: ignore[no-untyped-def]
    """Posterior mean and latent variance at the rows of points (m, p), few; returns how many it
    clipped at 0.
    """
    clipped = 0
    n = state.counts[N_POINTS]
    for t in range(points.shape[0]):
        mean[t], _, latent = _project(rules, state, n, points[t])
        clipped += latent < 0.0
        variance[t] = max(latent, 0.0)
        if rules.every_sample:
            variance[t] += _project_root(state.root, n, state.work[2], state.work[4])
    return clipped


@inlined
def _solve(rules, state, n, latent):  # type: ignore[no-untyped-def]
    """``v = Ky^-1 k`` in work[3] from ``Uv = z``; returns ``s = k(x, x) + diagonal - z'z``, at
    least the diagonal.
    """
    v = state.work[3]
    _copy(state.work[2], v, n)
    _substitute_back(state.triangles, state.pivots, n, v)
    return max(latent, 0.0) + rules.diagonal


@inlined
def leave_one_out(state, n, residual, variance):  # type: ignore[no-untyped-def]
    """``r_i = a_i / q_i`` and ``v_i = 1 / q_i``, by age."""
    weights = state.weights
    precision = state.precision
    for j in range(n):
        variance[j] = 1.0 / precision[j]
        residual[j] = weights[j] * variance[j]


@inlined
def _leave_one_out_with(state, n, error, s, residual, variance):  # type: ignore[no-untyped-def]
    """As `leave_one_out`, with the candidate in the set: ``q + v^2/s`` and ``a - v error/s``."""
    weights = state.weights
    precision = state.precision
    v = state.work[3]
    inverse = 1.0 / s
    for j in range(n):
        variance[j] = 1.0 / (precision[j] + v[j] * v[j] * inverse)
        residual[j] = (weights[j] - v[j] * (error * inverse)) * variance[j]


@shared
def scores(formula, n, residual, variance, noise_variance, out):  # type: ignore[no-untyped-def]
    """``out[j] = formula(residual[j], variance[j], noise_variance)``."""
    _score(
        formula,
        (n, _pointer(residual), _pointer(variance), noise_variance, _pointer(out)),
    )


@inlined
def _replacement_scores(rules, state, n, error, s):  # type: ignore[no-untyped-def]
    """Reduction score of every stored point by age in work[7], with the candidate solved for in the
    set.

    With forgetting, times ``exp(-age / memory)``, the age in samples.
    """
    residual = state.work[4]
    variance = state.work[5]
    score = state.work[7]
    _leave_one_out_with(state, n, error, s, residual, variance)
    scores(rules.reduction, n, residual, variance, rules.diagonal, score)
    if rules.age_memory > 0.0:
        for j in range(n):
            age = state.counts[N_SEEN] - state.number[state.order[j]]
            score[j] *= math.exp(-age / rules.age_memory)


@called_from_python
def candidate_scores(rules, state, n, points, targets, out):  # type: ignore[no-untyped-def]
    """Reduction scores (m, n) by slot, each row with one of the points (m, p), (m,) in the set;
    none is stored.
    """
    root = state.root.copy()
    whitened = state.whitened.copy()
    for t in range(points.shape[0]):
        mean, _, residual = _project(rules, state, n, points[t])
        s = _solve(rules, state, n, residual)
        error = targets[t] - mean
        if rules.every_sample:
            error = _open_place(rules, state, n, max(residual, 0.0), s, error)
        _replacement_scores(rules, state, n, error, s)
        for j in range(n):
            out[t, state.order[j]] = state.work[7, j]
        if rules.every_sample:
            state.root[:], state.whitened[:] = root, whitened


@inlined
def acceptance_scores(rules, state, n, out):  # type: ignore[no-untyped-def]
    """Score every stored point by age for acceptance, judged without itself or in sample.

    In sample, by the model that has the point: residual ``noise a_i``, noisy variance ``2 noise -
    noise^2 q_i``.
    """
    residual = state.work[4]
    variance = state.work[6]
    noise = rules.diagonal
    if rules.reference == IN_SAMPLE:
        for j in range(n):
            variance[j] = 2.0 * noise - noise * noise * state.precision[j]
            residual[j] = noise * state.weights[j]
    else:
        leave_one_out(state, n, residual, variance)
    scores(rules.acceptance, n, residual, variance, noise, out)


@inlined
def _minimum(rules, state, n):  # type: ignore[no-untyped-def]
    """Smallest acceptance score of the stored points, computed once after each change."""
    if state.counts[MINIMUM_IS_STALE] or rules.every_sample:
        acceptance_scores(rules, state, n, state.work[5])
        state.minimum[0] = _least(state.work[5], n)
        state.counts[MINIMUM_IS_STALE] = 0
    return state.minimum[0]


@inlined
def lowest(values, n):  # type: ignore[no-untyped-def]
    """Index of the lowest value; among ties (relative gap below `TIE`) the first, which is the
    oldest.
    """
    least = _least(values, n)
    bound = least + TIE * abs(least) if abs(least) < math.inf else least
    for j in range(n):
        if values[j] <= bound:
            return j
    return 0


@inlined
def _enter(rules, state, n, r, x, target, prior):  # type: ignore[no-untyped-def]
    """Store a point whose border is appended; the r-th oldest (r = n: nobody) leaves. Returns the
    slot.
    """
    order = state.order
    slot = order[r]
    if r < n:
        delete(state, n + 1, r)
        _shift_left(order[r:], n - 1 - r)
        order[n - 1] = slot
    else:
        n += 1
    renew(state, n)
    for d in range(x.size):
        state.inputs[d, slot] = x[d]
    state.targets[slot] = target
    state.number[slot] = state.counts[N_SEEN] - 1
    k = state.work[0]
    duplicate = False
    for i in range(n):
        state.covariance[slot, i] = k[i]
        state.covariance[i, slot] = k[i]
        own = state.covariance[i, i] - rules.diagonal
        alike = k[i] > 0.0 and k[i] * k[i] > prior * own * (1.0 - ALIKE)
        duplicate |= i != slot and alike and abs(prior - own) <= SAME * prior
    state.covariance[slot, slot] = prior + rules.diagonal
    state.counts[N_POINTS] = n
    state.counts[N_DUPLICATES] += duplicate
    state.counts[N_ENTRIES] += 1
    return slot


@inner
def _add_multiple(out, factor, row, n):  # type: ignore[no-untyped-def]
    for j in range(n):
        out[j] += factor * row[j]


@called_from_python
def drift(state, n):  # type: ignore[no-untyped-def]
    """How far the factors are from the covariance: 0 if exact.

    ``max(|z - Ky F'F z|, |z - F U'z|)`` over all entries, for fixed signs z = (1, -1, -1, 1, ...).
    """
    z = state.work[2]
    image = state.work[3]
    v = state.work[4]
    by_slot = state.work[5]
    for j in range(n):
        z[j] = 1.0 - 2.0 * ((j * (j + 1) // 2) % 2)
        image[j] = v[j] = 0.0
    for i in range(n):
        row = state.triangles[i]
        _add_multiple(v, _dot(row, z, i + 1), row, i + 1)
        _add_multiple(image[i:], z[i], row[i + 1 :], n - i)
    for j in range(n):
        by_slot[state.order[j]] = v[j]
    worst = 0.0
    for i in range(n):
        inverse = abs(z[i] - _dot(state.covariance[state.order[i]], by_slot, n))
        factors = abs(z[i] - _dot(state.triangles[i], image, i + 1))
        worst = max(worst, inverse, factors)
        if not (inverse <= worst and factors <= worst):
            return math.inf  # not a number
    return worst


@inlined
def _factors_are(state, n):  # type: ignore[no-untyped-def]
    """Whether the factors are due for renewal, for a measurement of their drift, or for neither."""
    entries = state.counts[N_ENTRIES]
    if entries % max(REFRESH_INTERVAL, 5 * n) == 0:
        return DUE
    return UNSURE if entries % PROBE_INTERVAL == 0 else GOOD


@called_from_python
def summarise(state, n):  # type: ignore[no-untyped-def]
    """``1/diag(U)``, b, a and q: what follows from new factors; b stays where it holds what all
    samples said.
    """
    for j in range(n):
        state.pivots[j] = 1.0 / state.triangles[j, j + 1]
    if not state.root.size:
        for j in range(n):
            state.whitened[j] = state.targets[state.order[j]]
        _substitute(state.triangles, state.pivots, n, state.whitened)
    renew(state, n)


@called_from_python
def reduce(rules, state, target):  # type: ignore[no-untyped-def]
    """Remove the point with the lowest reduction score until `target` points are left.

    The point in the last slot moves into each slot that becomes free, so that slots 0 to n - 1 stay
    in use.
    """
    residual = state.work[4]
    variance = state.work[5]
    score = state.work[7]
    order = state.order
    solve_weights(state, state.counts[N_POINTS])
    for n in range(state.counts[N_POINTS], target, -1):
        leave_one_out(state, n, residual, variance)
        scores(rules.reduction, n, residual, variance, rules.diagonal, score)
        r = lowest(score, n)
        slot = order[r]
        last = n - 1
        delete(state, n, r)
        renew(state, last)
        _shift_left(order[r:], last - r)
        order[last] = last
        for j in range(n - 1):
            if order[j] == last:
                order[j] = slot
        for d in range(state.inputs.shape[0]):
            state.inputs[d, slot] = state.inputs[d, last]
        state.targets[slot] = state.targets[last]
        state.number[slot] = state.number[last]
        itself = state.covariance[last, last]
        for j in range(n):
            state.covariance[slot, j] = state.covariance[j, slot] = state.covariance[last, j]
        state.covariance[slot, slot] = itself
        state.counts[N_POINTS] = n - 1


@inlined
def _all_finite(points, targets, prior_mean):  # type: ignore[no-untyped-def]
    """Whether all points (m, p) and targets (m,) less the mean are finite, and below `MAX_MAGNITUDE`
    in magnitude.
    """
    for t in range(targets.size):
        if not abs(targets[t] - prior_mean[t]) < MAX_MAGNITUDE:
            return False
        for d in range(points.shape[1]):
            if not abs(points[t, d]) < MAX_MAGNITUDE:
                return False
    return True


@inlined
def can_hold(rules, state, points):  # type: ignore[no-untyped-def]
    """Whether double precision can hold the noise beside the prior variance at every one of the
    points (m, p).
    """
    itself = state.work[3]
    for t in range(points.shape[0]):
        x = points[t]
        covariances(rules.kernel, rules.kernel_parameters, x.reshape(x.size, 1), 1, x, itself)
        if not rules.diagonal >= LEAST_NOISE * itself[0]:
            return False
    return True


@inlined
def _ask_for_place(rules, state, n, x, target, prior, residual, error, row):  # type: ignore[no-untyped-def]
    """Store the sample if there is room or if it is accepted, in the place of the point of lowest
    reduction score.
    """
    s = _solve(rules, state, n, residual)
    r = n
    if rules.every_sample:
        error = _open_place(rules, state, n, residual, s, error)
    if n == state.targets.size:
        if rules.reference != ACCEPT_ALL:
            state.work[4, 0], state.work[5, 0] = error, s
            scores(
                rules.acceptance,
                1,
                state.work[4],
                state.work[5],
                rules.diagonal,
                state.work[6],
            )
            row["acceptance_score"] = state.work[6, 0]
            row["acceptance_minimum"] = _minimum(rules, state, n)
            if not row["acceptance_score"] > row["acceptance_minimum"]:
                return
        _replacement_scores(rules, state, n, error, s)
        r = lowest(state.work[7], n)
        row["reduction_score"] = state.work[7, r]
    if not rules.every_sample:
        _append(state, n, state.work[2], state.work[3], error, s)
    row["accepted"] = True
    row["slot"] = _enter(rules, state, n, r, x, target, prior)
    if r < n:
        row["removed"] = row["slot"]


@inlined
def _is_outlier(rules, state, square):  # type: ignore[no-untyped-def]
    """Whether a squared standardised error is beyond the gate, which opens if they are too many.

    A level rises by 1 with each of them and falls by `RELIEF` with each usual sample. From
    `gate_opens_after` on the gate is open, and the next usual sample closes it.
    """
    if rules.gate == CLOSED:
        return True
    if not rules.gate > 0.0:
        return False
    level = state.errors[LEVEL]
    most = rules.gate_opens_after
    if not square > rules.gate * rules.gate:
        state.errors[LEVEL] = 0.0 if level >= most else max(level - RELIEF, 0.0)
        return False
    state.errors[LEVEL] = level + 1.0
    is_open = level >= most
    state.counts[N_OUTLIERS] += not is_open
    return not is_open


@called_from_python
def learn(rules, state, points, targets, prior_mean, start, record):  # type: ignore[no-untyped-def]
    """Algorithm 1 of Wietzke and Graichen over the samples from `start` on.

    The targets (n,) less the prior mean (n,) at the points are learned; the record has the mean of
    the targets. With `every_sample`, samples that get no place are learned too, and the criteria
    judge what the posterior says of the places: with its mean in the place of the targets, and the
    diagonal in the place of the noise.

    An outlier (`_is_outlier`) is predicted and passed over.

    Returns the index after the last sample it took: fewer than all after an outlier, when the
    factors may be bad (``counts[FACTORS_ARE]``), or when the scale is due (``errors[NUMBER]``) or
    old samples are to be forgotten, which the caller does before it goes on; -1, with nothing
    learned, if a sample is not finite, or if the prior variance at one is too large beside the
    noise.
    """
    if start == 0 and not (
        _all_finite(points, targets, prior_mean) and can_hold(rules, state, points)
    ):
        return -1
    for t in range(start, points.shape[0]):
        state.counts[N_SEEN] += 1
        n = state.counts[N_POINTS]
        x = points[t]
        row = record[t]
        mean, prior, residual = _project(rules, state, n, x)
        if residual < 0.0:
            state.counts[N_CLIPPED] += 1
            residual = 0.0
        latent = residual
        if rules.every_sample:
            latent += _project_root(state.root, n, state.work[2], state.work[4])
        target = targets[t] - prior_mean[t]
        error = target - mean
        row["mean"], row["variance"], row["n_points"] = mean + prior_mean[t], latent, n
        row["accepted"], row["slot"], row["removed"] = (
            False,
            -1,
            -1,
        )  # nothing has entered yet
        row["acceptance_score"] = row["acceptance_minimum"] = row["reduction_score"] = math.nan
        square = error * error / ((latent + rules.noise_variance) * state.errors[SCALE])
        row["outlier"] = row["inserted"] = False
        if _is_outlier(rules, state, square):
            row["outlier"] = True
            return t + 1
        novelty = residual / rules.noise_variance
        parameters = _pointer(rules.insertion_parameters)
        row["inserted"] = rules.asks and _decide(
            rules.insertion, (error, latent, novelty, parameters)
        )
        if rules.scale:
            state.errors[SUM] += min(square, LARGEST_SQUARE)
            state.errors[NUMBER] += 1.0
        if row["inserted"]:
            _ask_for_place(rules, state, n, x, target, prior, residual, error, row)
            row["n_points"] = state.counts[N_POINTS]
        elif rules.every_sample:
            _condition(state, n, state.work[4], rules.noise_variance + residual, error)
        if row["accepted"]:
            state.counts[FACTORS_ARE] = _factors_are(state, row["n_points"])
        forget = rules.forget_interval > 0 and state.counts[N_SEEN] % rules.forget_interval == 0
        if forget or state.counts[FACTORS_ARE] != GOOD or state.errors[NUMBER] >= SCALE_INTERVAL:
            return t + 1
    return points.shape[0]
