"""Order of a system from its records alone: false neighbours, judged by local linear fits with noise in every lag.

Samples with nearly equal lags must have nearly equal outputs, if there are enough lags. With too few, samples
of different hidden states look like neighbours and are not: they are false. The test raises the number of lags
until what neighbours leave unexplained stops falling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, check_whole, matrix, vector


class OrderTest(NamedTuple):
    """Curve and outcome of an order test; `str(test)` prints both.

    The order is the smallest n whose unexplained part is at most `limit`.
    """

    orders: NDArray[np.int64]  # (max_order,) 1, 2, ...: lags of the output and of every input
    unexplained: Array  # (max_order,) standard deviation of what neighbours leave unexplained / that of the output
    limit: float  # factor times max(smallest unexplained part, resolution)
    order: int
    conclusive: bool  # False: the largest order tested was needed, so more may be
    n_rows: int  # samples with all their lags
    n_points: int  # of them, those whose neighbourhood was examined
    n_neighbours: int  # samples in every neighbourhood

    def __str__(self) -> str:
        how = f"{self.n_points} of {self.n_rows} samples, {self.n_neighbours} neighbours each"
        lines = [f"order {self.order} ({how}; unexplained part of the output, limit {self.limit:.2g})"]
        if not self.conclusive:
            lines[0] = f"order {self.order} or more: raise max_order ({how}; limit {self.limit:.2g})"
        height = np.log10(np.maximum(self.unexplained, 1e-12))
        bars = 1 + np.round(39 * (height - height.min()) / (np.ptp(height) or 1.0)).astype(int)
        for order, value, bar in zip(self.orders, self.unexplained, bars, strict=True):
            lines.append(f"  {order:2d}  {value:9.2e}  {'#' * bar}{'  <- chosen' if order == self.order else ''}")
        return "\n".join(lines)


def order_test(
    outputs: ArrayLike | Sequence[ArrayLike],
    inputs: ArrayLike | Sequence[ArrayLike] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    max_order: int = 6,
    input_start: int = 1,
    neighbours: int | None = None,
    n_points: int = 400,
    factor: float = 2.0,
    resolution: float = 0.0025,
    seed: int = 0,
) -> OrderTest:
    """Find how many lags explain the next output, from one or several records.

    For every order n the lags ``z = (y[k-1..k-n], u[k-s..k-s-n+1])`` of every sample are formed. Around `n_points`
    samples drawn at random, the K nearest samples in z (each lag in units of its standard deviation) are taken.
    In such a neighbourhood the system is nearly linear: the vector ``(y[k], y[k-1], ..., y[k-n])``, after removal
    of what the inputs explain linearly, has a covariance that is singular up to the noise, if n is sufficient.
    Its smallest eigenvalue is the variance that no linear law of order n explains, noise counted in all lags:
    white measurement noise of standard deviation e gives e for every sufficient n, where a one-step
    prediction error would go on falling. The mean over the neighbourhoods, its root over the standard
    deviation of the output, is the curve. The order is the smallest n with

    ::

        unexplained(n) <= factor max(min unexplained, resolution)

    Parameters
    ----------
    outputs : (n,) array or sequence of (n_i,) arrays
        The output, one array per record; lags never reach across records.
    inputs : (n,) or (n, n_u) array or a sequence of them, optional
        The inputs of the same records; leave out for a system without inputs.
    input_names : sequence of str, optional
        Names of the inputs, for messages.
    max_order : int
        Largest number of lags that is tested.
    input_start : int
        First input lag s: 1, or 0 if u[k] acts on y[k] already (an input that was not held over the sample).
    neighbours : int, optional
        Samples K per neighbourhood; by default 5 percent of all, 100 to 1000.
    n_points : int
        Neighbourhoods that are examined; bounds the cost for long records.
    factor : float
        An unexplained part this many times the floor asks for more lags.
    resolution : float
        Unexplained parts below it, relative to the output, are not told apart from curvature inside a
        neighbourhood. It is the floor for records with little noise.
    seed : int
        Of the choice of samples.

    Returns
    -------
    OrderTest
        The curve and the order.

    Raises
    ------
    ValueError
        If records differ in number or length, a signal is constant, or there are too few samples.

    Notes
    -----
    False neighbours for systems with inputs: Rhodes and Morari 1997. Smallest eigenvalue of a local covariance:
    Feil, Abonyi and Szeifert 2004. A state whose effect is below the noise is not found (Bouc-Wen records give 2 at
    40 dB and 3 from 50 dB); with little noise, strong curvature can look like one more lag. Read the curve.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, y = rng.normal(size=1000), np.zeros(1000)
    >>> for k in range(2, 1000):
    ...     y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + np.tanh(u[k - 1])
    >>> order_test(y, u, max_order=4).order
    2
    """
    check_whole(max_order, 1, "order_test: max_order")
    check_whole(n_points, 1, "order_test: n_points")
    if input_start not in (0, 1) or not factor > 1 or not 0 <= resolution < 1:
        raise ValueError(
            f"order_test(input_start={input_start!r}, factor={factor!r}, resolution={resolution!r}): expected 0 or 1, "
            "the first lag of the inputs, a factor above 1, and a resolution from 0 to below 1"
        )
    measured, driven = _read_records(outputs, inputs)
    names = range(driven[0].shape[1]) if input_names is None else input_names
    if isinstance(names, str) or len(names) != driven[0].shape[1]:
        raise ValueError(
            f"order_test(input_names={names!r}): expected one name for each of {driven[0].shape[1]} inputs"
        )
    y, u = _lag_rows(measured, driven, max_order, input_start, [f"input {name!r}" for name in names])
    K = _choose_neighbours(neighbours, len(y), 1 + max_order * (1 + u.shape[2]))
    at = np.sort(np.random.default_rng(seed).choice(len(y), min(n_points, len(y)), replace=False))
    orders = np.arange(1, max_order + 1)
    unexplained = np.array([_measure_unexplained(y[:, : order + 1], u[:, :order], at, K) for order in orders])
    limit = factor * max(float(unexplained.min()), resolution)
    order = int(orders[unexplained <= limit][0])
    return OrderTest(orders, unexplained, limit, order, order < max_order, len(y), len(at), K)


def _measure_unexplained(y: Array, u: Array, at: NDArray[np.intp], K: int) -> float:
    """Root mean smallest eigenvalue over the neighbourhoods of the samples `at`.

    y (rows, n + 1) holds y[k], ..., y[k-n], u (rows, n, n_u) the input lags; both scaled.
    """
    from scipy.spatial import cKDTree

    u = u.reshape(len(y), -1)
    z = np.hstack([y[:, 1:], u])
    _, near = cKDTree(z).query(z[at], k=K)
    smallest = []
    for rows in near:
        known = np.linalg.qr(np.hstack([np.ones((K, 1)), u[rows]]))[0]
        rest = y[rows] - known @ (known.T @ y[rows])
        smallest.append(np.linalg.svd(rest, compute_uv=False)[-1] ** 2)
    freedom = K - (1 + u.shape[1]) - (y.shape[1] - 1)
    return float(np.sqrt(np.mean(smallest) / freedom))


def _read_records(outputs: Any, inputs: Any) -> tuple[list[Array], list[Array]]:
    """Checked outputs (n_i,) and inputs (n_i, n_u), one per record."""
    if len(outputs) == 0:
        raise ValueError("order_test: no records; give at least one array of outputs")
    single = np.ndim(outputs[0]) == 0
    given = [outputs] if single else list(outputs)
    y = [vector(record, None, f"output of record {i}") for i, record in enumerate(given)]
    if inputs is None:
        return y, [np.empty((len(record), 0)) for record in y]
    driven = [inputs] if single else list(inputs)
    if len(driven) != len(y):
        raise ValueError(f"order_test: {len(y)} records of the output but {len(driven)} of the inputs; give one each")
    columns = [np.asarray(record)[:, None] if np.ndim(record) == 1 else np.asarray(record) for record in driven]
    width = columns[0].shape[-1]
    u = [matrix(record, width, f"inputs of record {i}") for i, record in enumerate(columns)]
    lengths = [len(record) for record in y], [len(record) for record in u]
    if lengths[0] != lengths[1]:
        raise ValueError(f"order_test: output and inputs of a record need one length, got {lengths}")
    return y, u


def _lag_rows(outputs: list[Array], inputs: list[Array], M: int, start: int, titles: list[str]) -> tuple[Array, Array]:
    """y[k], ..., y[k-M] as (rows, M + 1), u[k-start], ... as (rows, M, n_u), in standard deviations."""
    short = [len(record) for record in outputs if len(record) <= M]
    if short:
        raise ValueError(f"order_test(max_order={M}): a record has {short[0]} samples, expected at least {M + 1}")
    y_scale = _measure_spread(outputs, "the output")
    u_scale = np.array([_measure_spread([record[:, j] for record in inputs], title) for j, title in enumerate(titles)])
    y = [np.column_stack([record[M - i : len(record) - i] for i in range(M + 1)]) for record in outputs]
    u = [np.stack([r[M - start - i : len(r) - start - i] for i in range(M)], axis=1) for r in inputs]
    return np.vstack(y) / y_scale, np.vstack(u) / u_scale


def _measure_spread(records: list[Array], name: str) -> float:
    values = np.concatenate(records)
    spread = float(values.std())
    if not spread > 1e-12 * np.abs(values).max():
        raise ValueError(f"order_test: {name} is constant and says nothing about an order; leave it out")
    return spread


def _choose_neighbours(neighbours: int | None, n_rows: int, n_unknowns: int) -> int:
    K = min(max(100, n_rows // 20), 1000) if neighbours is None else neighbours
    if not 2 * n_unknowns <= K <= n_rows:
        change = "lower max_order or use more samples" + ("" if neighbours is None else ", or change neighbours")
        raise ValueError(
            f"order_test: {K} neighbours, expected at least {2 * n_unknowns} (twice the unknowns of a local fit) and "
            f"at most {n_rows} (samples with all their lags); {change}"
        )
    return K
