"""Tests of residuals: whiteness, independence of inputs, normality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, fdtrc, ndtri

from sysid.arrays import Array, Indices, matrix
from sysid.errors import UserError
from sysid.simulation.validation import Z_95

Records: TypeAlias = ArrayLike | Sequence[ArrayLike]

CONSTANT = 1e-9  # standard deviation over magnitude below which a signal does not vary
# variance of a combination of lags, over that of the largest, below which it does not count
NEGLIGIBLE = 1e-6
LEVEL = 0.05  # probability of a false alarm, of every test and of every lag
MEANINGS = {
    "autocorrelation": "the residuals can be predicted from their own past: dynamics or a noise model is missing",
    "squared_autocorrelation": "the size of the residuals depends on its own past: unmodelled nonlinear dynamics or "
    "noise whose variance changes",
    "residual_input": "residuals go with products of past residuals and input: a bilinear term of noise and input",
    "input": "the input explains part of the residuals: a lag of it is missing or its effect is modelled wrongly",
    "squared_input": "the square of the input explains part of the residuals: an even nonlinearity is missing",
    "squared_input_squared": "the size of the residuals depends on the size of the input: a nonlinearity is missing or "
    "the noise depends on the input",
}
LONG_NAMES = {
    "correlation": "correlation with the residual",
    "band": "half width of the 95 % band of the correlation",
    "statistic": "statistic of all lags",
    "p_value": "p-value of the statistic",
    "n_outside": "lags outside the band",
    "lag": "lag in samples",
}


def _columns(records: Records, name: str) -> list[Array]:
    """Read every record as (n_i, number of signals)."""
    given = list(records) if isinstance(records, list | tuple) else [np.asarray(records)]
    if not given:
        raise UserError(
            f"residual_tests: no record of {name}; give an array, or a list with one array per record"
        )
    if any(np.ndim(record) not in (1, 2) for record in given):
        shapes = [np.shape(record) for record in given]
        raise UserError(
            f"residual_tests: {name}: expected an array (n,) or (n, number of signals), or a list of such arrays, "
            f"one per record, got shapes {shapes[:5]}"
        )
    columns = [
        np.asarray(record)[:, None] if np.ndim(record) == 1 else np.asarray(record)
        for record in given
    ]
    width = columns[0].shape[1]
    return [matrix(record, width, f"{name} of record {i}") for i, record in enumerate(columns)]


class Correlations(NamedTuple):
    """Correlations of m columns at some lags, and a test of all lags of a column together."""

    lags: Indices  # (n_lags,)
    values: Array  # (n_lags, m)
    # (n_lags, m) half width that 95 % of the values at this lag keep under independence
    band: Array
    statistic: Array  # (m,)
    p_value: Array  # (m,)
    freedom: tuple[
        float, ...
    ]  # of the chi-squared distribution, or of numerator and denominator of F


def standardise(x: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Scale columns (n, m) to mean 0 and mean square 1; also tell which of them vary (m,), the
    others become 0.
    """
    size = np.abs(x).max(axis=0)
    x = x / np.where(size > 0, size, 1.0)
    x = x - x.mean(axis=0)
    spread = np.sqrt(np.mean(x**2, axis=0))
    varies = spread > CONSTANT
    return np.where(varies, x / np.where(varies, spread, 1.0), 0.0), varies


def normal_scores(x: Array) -> Array:
    """Quantiles of a normal distribution at the ranks of every column; equal values share their
    mean rank.
    """
    ranks = pd.DataFrame(x).rank(method="average")  # scipy.stats takes most of a second to import
    return np.asarray(ndtri(np.ascontiguousarray(ranks) / (len(x) + 1)))


def autocorrelate(z: Array, place: Indices, lags: Indices, n_parameters: int) -> Correlations:
    """Autocorrelations at lags 1 to M and the Ljung-Box statistic.

    With N samples and N_k pairs at lag k (N - k for one record)::

        r_k = sum_t z[t] z[t-k] / sum_t z[t]^2
        Q = N (N + 2) sum_k r_k^2 / N_k

    Under Gaussian white noise E[Q] = M, and Var[Q] exceeds the 2 M of the chi-squared distribution
    by about 4 M (M - 1) / N, since the r_k^2 are uncorrelated only in the limit. Q is therefore
    compared with a scaled chi-squared distribution of this mean and variance; for long records it
    is that of Ljung and Box.

    Parameters
    ----------
    z : (n, m)
        Of `standardise`.
    place : (n,)
        Number of each sample in its record.
    lags : (M,)
        1 to M.
    n_parameters : int
        The degrees of freedom that estimation has taken from Q.
    """
    n = len(z)
    n_lags = len(lags)
    pairs = np.array([np.count_nonzero(place >= k) for k in range(2 * n_lags + 1)], dtype=float)
    r = _lagged_means(z, z, place, lags)
    statistic = n * (n + 2) * np.sum(r**2 / pairs[lags, None], axis=0)
    freedom = 2 * n_lags**2 / _portmanteau_variance(pairs, n, lags)
    p_value = chdtrc(freedom * (1 - n_parameters / n_lags), statistic * freedom / n_lags)
    band = np.broadcast_to(Z_95 * np.sqrt(pairs[lags, None]) / n, r.shape)
    return Correlations(lags, r, band, statistic, p_value, (freedom * (1 - n_parameters / n_lags),))


def correlate_products(a: Array, z: Array, place: Indices, lags: Indices) -> Correlations:
    """Correlations of ``a[t-k]``, k = 1 to M, with ``z[t]`` for a white a, and the sum of their
    squares.

    ``r_k = sum_t a[t-k] z[t] / sqrt(sum_t a^2 sum_t z^2)`` has the variance s_k / N, s_k being the
    share of the squares of a, about their mean, that takes part at lag k. ``Q = N sum_k r_k^2 /
    s_k`` is chi-squared, M degrees.
    """
    r, share = _correlate(a, z, place, lags)
    statistic = len(z) * np.sum(r**2 / share, axis=0)
    band = Z_95 * np.sqrt(share / len(z))
    return Correlations(lags, r, band, statistic, chdtrc(len(lags), statistic), (float(len(lags)),))


def correlate_input(u: Array, z: Array, place: Indices, lags: Indices) -> Correlations:
    """Correlations of one input ``u[t-k]`` with ``z[t]``, and the F test of all lags together.

    ``r_k = sum_t u[t-k] z[t] / sqrt(sum_t u^2 sum_t z^2)`` has the variance s_k / N, s_k being the
    share of the squares of u, about their mean, that takes part at lag k. A coloured input
    correlates the r_k with each other: on the n samples that have all lags, with their covariance S
    and rank q, ``R2 = r' S^-1 r`` is what a regression explains, and ``F = (R2 / q) / ((1 - R2) /
    (n - 1 - q))``. It is exact for Gaussian z, whatever the input. Box and Jenkins whiten the input
    instead, which the inverse of S does at once.

    Parameters
    ----------
    u : (n,)
        Of `standardise`.
    z : (n, m)
        Of `standardise`.
    place : (n,)
    lags : (n_lags,)
    """
    r, share = _correlate(u[:, None], z, place, lags)
    now = np.flatnonzero(place >= lags[-1])
    X = u[now[:, None] - lags]
    y = z[now]
    X = X - X.mean(axis=0)
    y = y - y.mean(axis=0)
    size, direction = np.linalg.eigh(X.T @ X)
    kept = size > NEGLIGIBLE * size[-1]
    q = max(
        1, int(np.count_nonzero(kept))
    )  # an input that is constant there explains nothing: F = 0
    explained = np.sum((direction[:, kept].T @ (X.T @ y)) ** 2 / size[kept, None], axis=0)
    total = np.sum(y**2, axis=0)
    unexplained = np.maximum(total - explained, np.finfo(float).eps * np.maximum(total, 1.0))
    freedom = (float(q), float(len(now) - 1 - q))
    statistic = (explained / freedom[0]) / (unexplained / freedom[1])
    band = np.broadcast_to(Z_95 * np.sqrt(share / len(z)), r.shape)
    return Correlations(lags, r, band, statistic, fdtrc(*freedom, statistic), freedom)


def _correlate(a: Array, z: Array, place: Indices, lags: Indices) -> tuple[Array, Array]:
    """Correlations r_k (n_lags, m) of a[t-k] with z[t], and the shares s_k of the squares of a
    (n_lags, 1 or m).
    """
    ones = np.ones_like(a)
    share = _lagged_means(a**2, ones, place, lags) - _lagged_means(a, ones, place, lags) ** 2
    return _lagged_means(a, z, place, lags), np.maximum(
        share, 1 / len(z)
    )  # a may be 0 wherever lag k exists


def _lagged_means(a: Array, z: Array, place: Indices, lags: Indices) -> Array:
    """``sum_t a[t-k] z[t] / n`` within records, for every lag (n_lags, m)."""
    rows = [np.flatnonzero(place >= k) for k in lags]
    return np.array(
        [np.einsum("tm,tm->m", a[now - k], z[now]) for k, now in zip(lags, rows, strict=True)]
    ) / len(z)


def _portmanteau_variance(pairs: Array, n: int, lags: Indices) -> float:
    """Variance of Q for Gaussian white noise of known mean, exactly.

    With ``S_k = sum_t e[t] e[t-k]``, counting the products that share samples::

        E[S_j^2 S_k^2] = N_j N_k + 4 N_max(j,k) + 8 N_(j+k)  (j != k),   E[S_k^4] = 3 N_k^2 + 6 N_k
        + 12 N_2k

    and ``r_k = S_k / S_0`` is independent of S_0, with ``E[S_0^4] = N (N + 2) (N + 4) (N + 6)``.
    """
    j = lags[:, None]
    k = lags[None, :]
    fourth = pairs[j] * pairs[k] + 4 * pairs[np.maximum(j, k)] + 8 * pairs[j + k]
    diagonal = 3 * pairs[lags] ** 2 + 6 * pairs[lags] + 12 * pairs[2 * lags]
    np.fill_diagonal(fourth, diagonal)
    second = n * (n + 2) / ((n + 4) * (n + 6)) * float(np.sum(fourth / (pairs[j] * pairs[k])))
    return second - len(lags) ** 2


def residual_tests(
    residuals: Records,
    inputs: Records | None = None,
    *,
    n_lags: int = 25,
    input_start: int = 0,
    output_names: Sequence[str] | None = None,
    input_names: Sequence[str] | None = None,
    n_parameters: int = 0,
) -> ResidualReport:
    """Test whether residuals are white and independent of the inputs, linearly and in their
    squares.

    For the residual e of every output and every input u, both about their means, correlations are
    taken over lags k within records, each with a band that 5 % of them leave if e is white and
    independent of u, and all lags of a test are judged together by one statistic whose false alarms
    are 5 % as well:

    ========================= ============================== ==================================================
    test                      correlation                    all lags together
    ========================= ============================== ==================================================
    `autocorrelation`         e[t-k] with e[t], k >= 1       Ljung-Box Q
    `squared_autocorrelation` e^2[t-k] with e^2[t], k >= 1   McLeod-Li: the same Q of the squares
    `input`                   u[t-k] with e[t], k >= s       F of the regression on all lags
    `squared_input`           u^2[t-k] with e[t], k >= s     the same
    `squared_input_squared`   u^2[t-k] with e^2[t], k >= s   the same
    `residual_input`          e u [t-k] with e[t], k >= 1    sum of squares, chi-squared
    ========================= ============================== ==================================================

    The band is 1.96 / sqrt(N), times the root of the share of the pairs (of the squares of u) that
    exists at this lag: N - k of N in one record. Without that factor, which is 1 for long records,
    alarms at large lags are too few.

    e^2 enters by its normal scores (the normal quantiles of its ranks): plain squares have such
    heavy tails that no band and no statistic keeps 5 % at a few hundred samples. Measured at 200
    samples and 25 lags, plain squares of Laplace noise leave the band in 3.6 % and alarm in up to
    16 % of cases. With the scores every test and every lag alarms in 4 to 6.5 % of cases, up to the
    scatter of the 2000 series counted: Gaussian, uniform, Laplace, exponential and Student's t
    noise of 5 degrees, 200 and 1000 samples in one or six records, 10 and 25 lags, white, coloured
    and multisine inputs.

    Parameters
    ----------
    residuals : array (n,) or (n, n_outputs), or a list of them
        Target minus prediction; a list or tuple holds one array per record.
    inputs : array (n,) or (n, n_inputs), or a list of them, optional
        Inputs at the same samples.
    n_lags : int
        Largest lag; see `most_lags`.
    input_start : int
        First lag s of the inputs, 0, or 1 for a loop that is closed by a controller that saw the
        sample it answers.
    output_names, input_names : sequence of str, optional
    n_parameters : int
        Degrees of freedom that Q loses: 0 on records that were not used for estimation, the number
        of coefficients of a linear model on those that were.

    Returns
    -------
    ResidualReport
        Tests output by output. Constant signals cannot be tested and are named in `skipped`, so is
        the square of a binary input.

    Raises
    ------
    ValueError, TypeError
        Values that are not finite, records that differ in number, length or signals, or are too
        short for the lags; settings out of range.

    Notes
    -----
    One-step residuals of a right model are white. FREE-RUN residuals are not expected to be: the
    disturbances of the past stay in the simulated output. There the autocorrelation describes, and
    the bands of the input tests, which suppose a white e, are too narrow; a large correlation with
    an input is still a missing effect. In closed loop the inputs answer to past disturbances:
    free-run residuals then go with them even if the model is right, one-step residuals only at lags
    at which the controller has seen them (`input_start`).

    Correlations and tests: Billings and Voon 1986 (Int. J. Control 44, 235-244); Ljung and Box 1978
    (Biometrika 65, 297-303); McLeod and Li 1983 (J. Time Ser. Anal. 4, 269-273); normal scores: van
    der Waerden.

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> u, e = rng.normal(size=(2, 500))
    >>> residual_tests(e, u).verdict()
    ('output 0: none of 6 residual tests finds structure at 5%',)
    >>> print(residual_tests(e + 0.3 * u**2, u).tests[4])
    squared_input of input 0 (output 0): p = 1.8e-13, 1 of 26 lags outside the band, most at lag 0
    (+0.44)
    """
    e_records = _columns(residuals, "residuals")
    u_records = (
        [np.empty((len(e), 0)) for e in e_records] if inputs is None else _columns(inputs, "inputs")
    )
    lengths = [len(e) for e in e_records]
    given = [len(u) for u in u_records]
    if lengths != given:
        raise UserError(
            f"residual_tests: residuals have records of {lengths} samples, inputs of {given}; "
            "give the inputs of the same samples, without those of the window"
        )
    _check_settings(lengths, n_lags, input_start, n_parameters)
    e = np.vstack(e_records)
    u = np.vstack(u_records)
    outputs = _names(output_names, e.shape[1], "output")
    driven = _names(input_names, u.shape[1], "input")
    place = np.concatenate([np.arange(n) for n in lengths])  # lag k exists where place >= k
    e, tested = standardise(e)
    skipped = [
        f"residuals of {name} are constant: nothing to test" for name in compress(outputs, ~tested)
    ]
    e = e[:, tested]
    names = list(compress(outputs, tested))
    tests: list[CorrelationTest] = []
    if names:
        square, _ = standardise(normal_scores(e**2))
        _, varies = standardise(e**2)
        square = square[:, varies]
        named = list(compress(names, varies))
        skipped += [
            f"squared residuals of {name} are constant: not tested"
            for name in compress(names, ~varies)
        ]
        past = np.arange(1, n_lags + 1)
        causal = np.arange(input_start, n_lags + 1)
        tests += _tests("autocorrelation", names, "", autocorrelate(e, place, past, n_parameters))
        tests += _tests("squared_autocorrelation", named, "", autocorrelate(square, place, past, 0))
        for j, title in enumerate(driven):
            (x,), (usable,) = (part.T for part in standardise(u[:, [j]]))
            if not usable:
                skipped.append(f"{title} is constant: not tested")
                continue
            product, _ = standardise(e * x[:, None])
            tests += _tests("input", names, title, correlate_input(x, e, place, causal))
            tests += _tests(
                "residual_input",
                names,
                title,
                correlate_products(product, e, place, past),
            )
            (x2,), (usable,) = (part.T for part in standardise((x**2)[:, None]))
            if not usable:
                skipped.append(f"the square of {title} about its mean is constant: not tested")
                continue
            tests += _tests("squared_input", names, title, correlate_input(x2, e, place, causal))
            tests += _tests(
                "squared_input_squared",
                named,
                title,
                correlate_input(x2, square, place, causal),
            )
    tests.sort(key=lambda test: outputs.index(test.output))
    return ResidualReport(tuple(tests), tuple(skipped), len(place), len(lengths), n_lags)


def most_lags(lengths: Sequence[int]) -> int:
    """Largest `n_lags` for records of these lengths: less than the shortest, a third of the samples
    with all lags.

    >>> most_lags([1000]), most_lags([30, 200])
    (250, 29)
    """
    return max(0, min(min(lengths) - 1, sum(lengths) // (len(lengths) + 3)))


def _tests(
    name: str, outputs: list[str], input: str, found: Correlations
) -> Iterator[CorrelationTest]:
    """One test per output, from the columns of the correlations."""
    outside = np.count_nonzero(np.abs(found.values) > found.band, axis=0)
    for i, output in enumerate(outputs):
        values = found.values[:, i].copy()
        band = found.band[:, i].copy()
        statistic = float(found.statistic[i])
        p_value = float(found.p_value[i])
        yield CorrelationTest(
            name,
            output,
            input,
            found.lags,
            values,
            band,
            statistic,
            found.freedom,
            p_value,
            int(outside[i]),
        )


def _names(names: Sequence[str] | None, width: int, kind: str) -> list[str]:
    if names is None:
        return [f"{kind} {i}" for i in range(width)]
    if isinstance(names, str) or len(names) != width or len(set(names)) != width:
        raise UserError(
            f"residual_tests({kind}_names={names!r}): expected {width} different names, one per {kind}"
        )
    return list(names)


def _check_settings(
    lengths: Sequence[int], n_lags: int, input_start: int, n_parameters: int
) -> None:
    if input_start not in (0, 1):
        raise UserError(
            f"residual_tests(input_start={input_start!r}): expected 0 or 1, the first lag of the inputs"
        )
    if n_lags < 1 or not 0 <= n_parameters < n_lags:
        raise UserError(
            f"residual_tests(n_lags={n_lags}, n_parameters={n_parameters}): expected at least 1 lag and from 0 to "
            f"{max(n_lags - 1, 0)} parameters"
        )
    if n_lags > most_lags(lengths):
        raise UserError(
            f"residual_tests(n_lags={n_lags}): expected records longer than the lags, with {3 * n_lags} samples "
            f"that have all of them, got {sum(lengths)} samples, the shortest record {min(lengths)}; use longer "
            f"records or a smaller n_lags (the largest possible one is {most_lags(lengths)})"
        )


class CorrelationTest(NamedTuple):
    """One residual test of one output: correlations over lags, and all lags together."""

    name: str  # key of `MEANINGS`
    output: str
    input: str  # empty for a test without input
    lags: Indices  # (n,) samples
    values: Array  # (n,) correlations
    band: Array  # (n,) half width that 95 % of the values at this lag keep if the model is right
    statistic: float  # Ljung-Box Q, sum of squares, or F, of all lags together
    freedom: tuple[float, ...]  # degrees: one of a chi-squared distribution, two of F
    p_value: float  # of the statistic
    n_outside: int  # lags outside their band; 5 % of them are expected

    @property
    def alarm(self) -> bool:
        """Whether all lags together contradict the model at the level of 5 %."""
        return self.p_value < LEVEL

    @property
    def title(self) -> str:
        """Name with output and input."""
        driven = f" of {self.input}" if self.input else ""
        return f"{self.name}{driven} ({self.output})"

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON, without the values at every lag."""
        top = int(np.argmax(np.abs(self.values) / self.band))
        return {
            **{
                name: getattr(self, name)
                for name in (
                    "name",
                    "output",
                    "statistic",
                    "p_value",
                    "alarm",
                    "n_outside",
                )
            },
            "input": self.input or None,
            "freedom": list(self.freedom),
            "n_lags": len(self.lags),
            "largest": float(self.values[top]),
            "largest_lag": int(self.lags[top]),
        }

    def __str__(self) -> str:
        found = self.to_dict()
        return (
            f"{self.title}: p = {self.p_value:.2g}, {self.n_outside} of {len(self.lags)} lags outside the band, "
            f"most at lag {found['largest_lag']} ({found['largest']:+.2g})"
        )


class ResidualReport(NamedTuple):
    """All residual tests of a model on one kind of residuals."""

    tests: tuple[CorrelationTest, ...]
    skipped: tuple[str, ...]  # tests that do not exist here, and why
    n: int  # samples
    n_records: int
    n_lags: int  # largest lag

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs that were tested."""
        return tuple(dict.fromkeys(test.output for test in self.tests))

    def p_value(self, output: str) -> float:
        """Probability of an alarm as strong as the strongest of this output, if the model is right;
        at most that.

        The smallest p-value times the number of tests (Bonferroni), at most 1.
        """
        found = [test.p_value for test in self.tests if test.output == output]
        if not found:
            raise UserError(
                f"output {output!r} was not tested; expected one of {list(self.outputs)}"
            )
        return min(1.0, len(found) * min(found))

    def verdict(self) -> tuple[str, ...]:
        """Say what the tests found, in words, one sentence per output and one per alarm."""
        return (
            tuple(sentence for output in self.outputs for sentence in self._verdict(output))
            + self.skipped
        )

    def _verdict(self, output: str) -> list[str]:
        own = [test for test in self.tests if test.output == output]
        alarms = sorted((test for test in own if test.alarm), key=lambda test: test.p_value)
        p = self.p_value(output)
        if not alarms:
            return [f"{output}: none of {len(own)} residual tests finds structure at {LEVEL:.0%}"]
        if p >= LEVEL:
            head = f"{output}: {len(alarms)} of {len(own)} residual tests alarm, weakly: chance does so with p = {p:.2g}"
        else:
            head = f"{output}: {len(alarms)} of {len(own)} residual tests find structure (p = {p:.2g} for all together)"
        words = [head, *(f"{test}: {MEANINGS[test.name]}" for test in alarms)]
        if any(test.name == "autocorrelation" for test in alarms) and any(
            test.input for test in alarms
        ):
            words.append(
                f"{output}: the bands of the input tests are too narrow for residuals that are not white"
            )
        return words

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values at every lag, for JSON."""
        return {
            "n": self.n,
            "n_records": self.n_records,
            "n_lags": self.n_lags,
            "level": LEVEL,
            "p_value": {output: self.p_value(output) for output in self.outputs},
            "verdict": list(self.verdict()),
            "skipped": list(self.skipped),
            "tests": [test.to_dict() for test in self.tests],
        }

    def to_dataset(self) -> xr.Dataset:
        """Correlations and bands (test, lag), nan at lags that a test does not have, for the
        store.
        """
        correlation, band = np.full((2, len(self.tests), self.n_lags + 1), np.nan)
        for i, test in enumerate(self.tests):
            correlation[i, test.lags], band[i, test.lags] = test.values, test.band
        variables: dict[str, Any] = {
            "correlation": (("test", "lag"), correlation),
            "band": (("test", "lag"), band),
        }
        for name, kind in (
            ("statistic", float),
            ("p_value", float),
            ("n_outside", np.int64),
        ):
            variables[name] = (
                "test",
                np.array([getattr(test, name) for test in self.tests], dtype=kind),
            )
        coordinates: dict[str, Any] = {"lag": np.arange(self.n_lags + 1)}
        for name, text in (
            ("test", "title"),
            ("name", "name"),
            ("output", "output"),
            ("input", "input"),
        ):
            coordinates[name] = (
                "test",
                np.array([getattr(test, text) for test in self.tests], dtype=str),
            )
        facts = {"n": self.n, "n_records": self.n_records, "level": LEVEL}
        data = xr.Dataset(variables, coords=coordinates, attrs=facts)
        for name, text in LONG_NAMES.items():
            data[name].attrs = {"long_name": text, "units": "1"}
        return data
