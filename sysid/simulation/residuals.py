"""Tests of residuals: whether they are white and independent of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, fdtrc, ndtri

from sysid.arrays import Array, Indices, matrix, real_numbers
from sysid.errors import UserError
from sysid.simulation.validation import Z_95

Records: TypeAlias = ArrayLike | Sequence[ArrayLike]

# A signal is constant if its standard deviation over its magnitude is at most this [-].
MIN_RELATIVE_STD = 1e-9

# Directions of the lags of an input whose variance, relative to the largest, is at most this are
# left out of the regression [-].
MIN_RELATIVE_EIGENVALUE = 1e-6

# Probability of a false alarm of every test, and of a lag outside its band.
FALSE_ALARM_PROBABILITY = 0.05

# What an alarm of each test means.
ALARM_MEANINGS = {
    "autocorrelation": (
        "the residuals can be predicted from their own past: dynamics or a noise model is missing"
    ),
    "squared_autocorrelation": (
        "the size of the residuals depends on its own past: unmodelled nonlinear dynamics or noise "
        "whose variance changes"
    ),
    "residual_input": (
        "the residuals correlate with products of past residuals and input: a bilinear term of "
        "noise and input is missing"
    ),
    "input": (
        "the input explains part of the residuals: a lag of it is missing or its effect is "
        "modelled wrongly"
    ),
    "squared_input": (
        "the square of the input explains part of the residuals: an even nonlinearity is missing"
    ),
    "squared_input_squared": (
        "the size of the residuals depends on the size of the input: a nonlinearity is missing or "
        "the noise depends on the input"
    ),
}

# Long names of the variables of `ResidualReport.to_dataset`.
VARIABLE_LONG_NAMES = {
    "correlation": "correlation with the residual",
    "band": "half width of the 95 % band of the correlation",
    "statistic": "statistic of all lags",
    "p_value": "p-value of the statistic",
    "n_outside": "lags outside the band",
    "lag": "lag in samples",
}


def _read_columns(records: Records, name: str) -> list[Array]:
    """Read every record as (n_i, number of signals)."""
    given: list[Any] = list(records) if isinstance(records, list | tuple) else [records]
    if not given:
        raise UserError(
            f"residual_tests: no record of {name}; give an array, or a list with one array per "
            "record"
        )
    if any(np.ndim(record) not in (1, 2) for record in given):
        shapes = [np.shape(record) for record in given]
        raise UserError(
            f"residual_tests: {name}: expected an array (n,) or (n, number of signals), or a list "
            f"of such arrays, one per record, got shapes {shapes[:5]}"
        )
    columns = []
    for record in given:
        values = real_numbers(record, f"residual_tests: {name}")
        columns.append(values[:, None] if values.ndim == 1 else values)
    n_signals = columns[0].shape[1]
    return [
        matrix(values, n_signals, f"{name} of record {number}")
        for number, values in enumerate(columns)
    ]


class Correlations(NamedTuple):
    """Correlations of m columns at some lags, and a test of all lags of a column together."""

    lags: Indices  # (n_lags,)
    values: Array  # (n_lags, m)
    #: (n_lags, m) half width of the band that contains 95 % of the values under independence
    band: Array
    statistic: Array  # (m,) of all lags
    p_value: Array  # (m,) of the statistic
    #: degrees of freedom: one for a chi-squared distribution, numerator and denominator for F
    freedom: tuple[float, ...]


def standardise(x: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Scale columns (n, m) to mean 0 and mean square 1.

    Also return which columns vary (m,). Constant columns become 0.
    """
    magnitude = np.abs(x).max(axis=0)
    x = x / np.where(magnitude > 0, magnitude, 1.0)
    x = x - x.mean(axis=0)
    std = np.sqrt(np.mean(x**2, axis=0))
    varies = std > MIN_RELATIVE_STD
    scaled = x / np.where(varies, std, 1.0)
    return np.where(varies, scaled, 0.0), varies


def normal_scores(x: Array) -> Array:
    """Replace every value of a column by the normal quantile of its rank.

    Equal values get their mean rank.
    """
    ranks = pd.DataFrame(x).rank(method="average")  # scipy.stats takes most of a second to import
    return np.asarray(ndtri(np.ascontiguousarray(ranks) / (len(x) + 1)))


def autocorrelate(
    z: Array, sample_index: Indices, lags: Indices, n_parameters: int
) -> Correlations:
    """Return the autocorrelations at lags 1 to M and the Ljung-Box statistic.

    With N samples and N_k pairs at lag k (N - k for one record)::

        r_k = sum_t z[t] z[t-k] / sum_t z[t]^2
        Q = N (N + 2) sum_k r_k^2 / N_k

    Under Gaussian white noise E[Q] = M, and Var[Q] exceeds the 2 M of the chi-squared distribution
    by about 4 M (M - 1) / N, because the r_k^2 are uncorrelated only in the limit. Q is therefore
    compared with a scaled chi-squared distribution that has this mean and variance. For long
    records this is the distribution of Ljung and Box.

    Parameters
    ----------
    z : (n, m)
        Standardised columns (`standardise`).
    sample_index : (n,)
        Index of each sample in its record, from 0.
    lags : (M,)
        1 to M.
    n_parameters : int
        Degrees of freedom that Q loses by estimation.
    """
    n = len(z)
    n_lags = len(lags)
    counts = [np.count_nonzero(sample_index >= k) for k in range(2 * n_lags + 1)]
    n_pairs = np.array(counts, dtype=float)
    r = _lagged_means(z, z, sample_index, lags)
    statistic = n * (n + 2) * np.sum(r**2 / n_pairs[lags, None], axis=0)
    matched_freedom = 2 * n_lags**2 / _portmanteau_variance(n_pairs, n, lags)
    freedom = matched_freedom * (1 - n_parameters / n_lags)
    p_value = chdtrc(freedom, statistic * matched_freedom / n_lags)
    band = np.broadcast_to(Z_95 * np.sqrt(n_pairs[lags, None]) / n, r.shape)
    return Correlations(lags, r, band, statistic, p_value, (freedom,))


def correlate_products(a: Array, z: Array, sample_index: Indices, lags: Indices) -> Correlations:
    """Correlate ``a[t-k]``, k = 1 to M, with ``z[t]`` for a white a, and test the sum of squares.

    ``r_k = sum_t a[t-k] z[t] / sqrt(sum_t a^2 sum_t z^2)`` has the variance s_k / N. Here s_k is
    the fraction of the squares of a, about their mean, that has a partner at lag k. ``Q = N sum_k
    r_k^2 / s_k`` is chi-squared with M degrees of freedom.
    """
    r, fraction = _correlate(a, z, sample_index, lags)
    statistic = len(z) * np.sum(r**2 / fraction, axis=0)
    band = Z_95 * np.sqrt(fraction / len(z))
    p_value = chdtrc(len(lags), statistic)
    return Correlations(lags, r, band, statistic, p_value, (float(len(lags)),))


def correlate_input(u: Array, z: Array, sample_index: Indices, lags: Indices) -> Correlations:
    """Correlate one input ``u[t-k]`` with ``z[t]``, and test all lags together by an F test.

    ``r_k = sum_t u[t-k] z[t] / sqrt(sum_t u^2 sum_t z^2)`` has the variance s_k / N. Here s_k is
    the fraction of the squares of u, about their mean, that has a partner at lag k. A coloured
    input correlates the r_k with each other. The test therefore uses the n samples that have all
    lags: with the covariance S of their lags and its rank q::

        R2 = r' S^-1 r
        F = (R2 / q) / ((1 - R2) / (n - 1 - q))

    R2 is the fraction of the variance of z that a regression on all lags explains. F is exact for
    Gaussian z, whatever the input.
    (Box and Jenkins whiten the input instead, which the inverse of S does at once.)

    Parameters
    ----------
    u : (n,)
        Standardised input (`standardise`).
    z : (n, m)
        Standardised columns.
    sample_index : (n,)
        Index of each sample in its record, from 0.
    lags : (n_lags,)
    """
    r, fraction = _correlate(u[:, None], z, sample_index, lags)
    has_all_lags = np.flatnonzero(sample_index >= lags[-1])
    X = u[has_all_lags[:, None] - lags]
    y = z[has_all_lags]
    X = X - X.mean(axis=0)
    y = y - y.mean(axis=0)
    eigenvalues, directions = np.linalg.eigh(X.T @ X)
    is_kept = eigenvalues > MIN_RELATIVE_EIGENVALUE * eigenvalues[-1]
    # The rank is at least 1: an input that is constant in these samples explains nothing, so F = 0.
    rank = max(1, int(np.count_nonzero(is_kept)))
    projected = directions[:, is_kept].T @ (X.T @ y)
    explained = np.sum(projected**2 / eigenvalues[is_kept, None], axis=0)
    total = np.sum(y**2, axis=0)
    rounding = np.finfo(float).eps * np.maximum(total, 1.0)
    unexplained = np.maximum(total - explained, rounding)
    freedom = (float(rank), float(len(has_all_lags) - 1 - rank))
    statistic = (explained / freedom[0]) / (unexplained / freedom[1])
    band = np.broadcast_to(Z_95 * np.sqrt(fraction / len(z)), r.shape)
    return Correlations(lags, r, band, statistic, fdtrc(*freedom, statistic), freedom)


def _correlate(a: Array, z: Array, sample_index: Indices, lags: Indices) -> tuple[Array, Array]:
    """Return the correlations r_k (n_lags, m) of a[t-k] with z[t], and the fractions s_k.

    s_k (n_lags, 1 or m) is the fraction of the squares of a, about their mean, that has a partner
    at lag k.
    """
    ones = np.ones_like(a)
    mean = _lagged_means(a, ones, sample_index, lags)
    fraction = _lagged_means(a**2, ones, sample_index, lags) - mean**2
    # Without the lower bound, s_k would be 0 if a is 0 wherever lag k exists.
    return _lagged_means(a, z, sample_index, lags), np.maximum(fraction, 1 / len(z))


def _lagged_means(a: Array, z: Array, sample_index: Indices, lags: Indices) -> Array:
    """Return ``sum_t a[t-k] z[t] / n`` within records, for every lag (n_lags, m)."""
    sums = []
    for k in lags:
        t = np.flatnonzero(sample_index >= k)
        sums.append(np.einsum("tm,tm->m", a[t - k], z[t]))
    return np.array(sums) / len(z)


def _portmanteau_variance(n_pairs: Array, n: int, lags: Indices) -> float:
    """Return the exact variance of Q for Gaussian white noise of known mean.

    `n_pairs` are the numbers N_k of pairs at lags k from 0. With ``S_k = sum_t e[t] e[t-k]``,
    counting the products that share samples::

        E[S_j^2 S_k^2] = N_j N_k + 4 N_max(j,k) + 8 N_(j+k)   (j != k)
        E[S_k^4] = 3 N_k^2 + 6 N_k + 12 N_2k

    and ``r_k = S_k / S_0`` is independent of S_0, with ``E[S_0^4] = N (N + 2) (N + 4) (N + 6)``.
    """
    j = lags[:, None]
    k = lags[None, :]
    products = n_pairs[j] * n_pairs[k]
    fourth_moments = products + 4 * n_pairs[np.maximum(j, k)] + 8 * n_pairs[j + k]
    diagonal = 3 * n_pairs[lags] ** 2 + 6 * n_pairs[lags] + 12 * n_pairs[2 * lags]
    np.fill_diagonal(fourth_moments, diagonal)
    total = float(np.sum(fourth_moments / products))
    second_moment = n * (n + 2) / ((n + 4) * (n + 6)) * total
    return second_moment - len(lags) ** 2


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
    """Test whether residuals are white and independent of the inputs.

    The tests also use squares, which show nonlinear dependence. For the residual e of every
    output and every input u, both about their means, correlations are taken over lags k within
    records. Each has a band that it leaves with a probability of 5 % if e is white and independent
    of u. A statistic tests all lags of a test together, also with 5 % false alarms:

    ========================= ============================= ====================================
    test                      correlation                   statistic of all lags
    ========================= ============================= ====================================
    `autocorrelation`         e[t-k] with e[t], k >= 1      Ljung-Box Q
    `squared_autocorrelation` e^2[t-k] with e^2[t], k >= 1  McLeod-Li: the same Q of the squares
    `input`                   u[t-k] with e[t], k >= s      F of the regression on all lags
    `squared_input`           u^2[t-k] with e[t], k >= s    the same
    `squared_input_squared`   u^2[t-k] with e^2[t], k >= s  the same
    `residual_input`          e u [t-k] with e[t], k >= 1   sum of squares, chi-squared
    ========================= ============================= ====================================

    The half width of the band is 1.96 / sqrt(N), times the root of the fraction of the pairs (of
    the squares of u) that exists at this lag: N - k of N in one record. Without that factor, which
    is about 1 for long records, there would be too few alarms at large lags.

    e^2 is replaced by its normal scores (the normal quantiles of its ranks): plain squares have
    such heavy tails that no band and no statistic keeps 5 % at a few hundred samples. At 200
    samples and 25 lags, plain squares of Laplace noise leave the band in 3.6 % and alarm in up to
    16 % of cases. With the scores every test and every lag alarms in 4 to 6.5 % of cases, up to the
    scatter of 2000 series. This was measured with Gaussian, uniform, Laplace, exponential and
    Student's t noise of 5 degrees, 200 and 1000 samples in one or six records, 10 and 25 lags,
    white, coloured and multisine inputs.

    Parameters
    ----------
    residuals : array (n,) or (n, n_outputs), or a list of them
        Target minus prediction; a list or tuple contains one array per record.
    inputs : array (n,) or (n, n_inputs), or a list of them, optional
        Inputs at the same samples.
    n_lags : int
        Largest lag; see `most_lags`.
    input_start : int
        First lag s of the inputs: 0, or 1 in a closed loop whose controller measures a sample
        before it sets the input of this sample.
    output_names, input_names : sequence of str, optional
    n_parameters : int
        Degrees of freedom that Q loses: 0 on records that were not used for estimation, the number
        of coefficients on the estimation records of a linear model.

    Returns
    -------
    ResidualReport
        Tests output by output. Constant signals cannot be tested and are named in `skipped`, and
        so is the square of a binary input.

    Raises
    ------
    ValueError, TypeError
        If values are not finite, settings are out of range, or records differ in number, length or
        signals, or are too short for the lags.

    Notes
    -----
    One-step residuals of a correct model are white. FREE-RUN residuals are not expected to be,
    because past disturbances of the system are missing in the simulated output. Their
    autocorrelation is only descriptive, and the bands of the input tests, which assume a white e,
    are too narrow. A large correlation with an input still shows a missing effect. In closed loop
    the inputs respond to past disturbances. Free-run residuals then correlate with the inputs even
    if the model is correct, one-step residuals only at lags at which the controller has already
    measured them (`input_start`).

    Correlations and tests: Billings and Voon 1986 (Int. J. Control 44, 235-244); Ljung and Box 1978
    (Biometrika 65, 297-303); McLeod and Li 1983 (J. Time Ser. Anal. 4, 269-273); normal scores: van
    der Waerden.

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> u, e = rng.normal(size=(2, 500))
    >>> residual_tests(e, u).verdict()
    ('output 0: none of 6 residual tests finds structure at 5%',)
    >>> test = residual_tests(e + 0.3 * u**2, u).tests[4]
    >>> test.title, test.alarm, test.n_outside
    ('squared_input of input 0 (output 0)', True, 1)
    """
    e_records = _read_columns(residuals, "residuals")
    u_records = [np.empty((len(e), 0)) for e in e_records]
    if inputs is not None:
        u_records = _read_columns(inputs, "inputs")
    lengths = [len(e) for e in e_records]
    input_lengths = [len(u) for u in u_records]
    if lengths != input_lengths:
        raise UserError(
            f"residual_tests: residuals have records of {lengths} samples, inputs of "
            f"{input_lengths}; give the inputs of the same samples, without those of the window"
        )
    _check_settings(lengths, n_lags, input_start, n_parameters)
    e = np.vstack(e_records)
    u = np.vstack(u_records)
    all_outputs = _check_names(output_names, e.shape[1], "output")
    all_inputs = _check_names(input_names, u.shape[1], "input")
    sample_index = np.concatenate([np.arange(n) for n in lengths])
    e, varies = standardise(e)
    outputs = list(compress(all_outputs, varies))
    skipped = [
        f"residuals of {name} are constant: nothing to test"
        for name in compress(all_outputs, ~varies)
    ]
    tests: list[CorrelationTest] = []
    if outputs:
        e = e[:, varies]
        _, square_varies = standardise(e**2)
        scores, _ = standardise(normal_scores(e**2))
        tested = _Tested(
            e=e,
            outputs=outputs,
            squares=scores[:, square_varies],
            square_outputs=list(compress(outputs, square_varies)),
            sample_index=sample_index,
            past_lags=np.arange(1, n_lags + 1),
            input_lags=np.arange(input_start, n_lags + 1),
        )
        skipped += [
            f"squared residuals of {name} are constant: not tested"
            for name in compress(outputs, ~square_varies)
        ]
        tests += _test_whiteness(tested, n_parameters)
        for j, name in enumerate(all_inputs):
            input_tests, reasons = _test_input(tested, u[:, [j]], name)
            tests += input_tests
            skipped += reasons
    tests.sort(key=lambda test: all_outputs.index(test.output))
    return ResidualReport(tuple(tests), tuple(skipped), len(sample_index), len(lengths), n_lags)


class _Tested(NamedTuple):
    """Residuals of all outputs that vary, prepared for the tests."""

    e: Array  # (n, m) standardised residuals
    outputs: list[str]  # their names
    squares: Array  # (n, m') standardised normal scores of the squares that vary
    square_outputs: list[str]  # their names
    sample_index: Indices  # (n,) index of each sample in its record, from 0
    past_lags: Indices  # lags of residuals
    input_lags: Indices  # lags of inputs


def _test_whiteness(tested: _Tested, n_parameters: int) -> Iterator[CorrelationTest]:
    """Test whether the residuals and their squares can be predicted from their past."""
    sample_index = tested.sample_index
    lags = tested.past_lags
    correlations = autocorrelate(tested.e, sample_index, lags, n_parameters)
    yield from _tests("autocorrelation", tested.outputs, "", correlations)
    correlations = autocorrelate(tested.squares, sample_index, lags, 0)
    yield from _tests("squared_autocorrelation", tested.square_outputs, "", correlations)


def _test_input(tested: _Tested, u: Array, name: str) -> tuple[list[CorrelationTest], list[str]]:
    """Test whether the residuals are independent of one input (n, 1).

    Also return why tests were skipped.
    """
    e = tested.e
    outputs = tested.outputs
    sample_index = tested.sample_index
    input_lags = tested.input_lags
    standardised, (varies,) = standardise(u)
    if not varies:
        return [], [f"{name} is constant: not tested"]
    x = standardised[:, 0]
    correlations = correlate_input(x, e, sample_index, input_lags)
    tests = list(_tests("input", outputs, name, correlations))
    products, _ = standardise(e * x[:, None])
    correlations = correlate_products(products, e, sample_index, tested.past_lags)
    tests += _tests("residual_input", outputs, name, correlations)
    standardised, (varies,) = standardise((x**2)[:, None])
    if not varies:
        return tests, [f"the square of {name} about its mean is constant: not tested"]
    x_squared = standardised[:, 0]
    correlations = correlate_input(x_squared, e, sample_index, input_lags)
    tests += _tests("squared_input", outputs, name, correlations)
    correlations = correlate_input(x_squared, tested.squares, sample_index, input_lags)
    tests += _tests("squared_input_squared", tested.square_outputs, name, correlations)
    return tests, []


def most_lags(lengths: Sequence[int]) -> int:
    """Return the largest `n_lags` for records of these lengths.

    It is less than the shortest record, and at most a third of the number of samples that have all
    lags.

    >>> most_lags([1000]), most_lags([30, 200])
    (250, 29)
    """
    return max(0, min(min(lengths) - 1, sum(lengths) // (len(lengths) + 3)))


def _tests(
    name: str, outputs: list[str], input: str, found: Correlations
) -> Iterator[CorrelationTest]:
    """Build one test per output from the columns of the correlations."""
    n_outside = np.count_nonzero(np.abs(found.values) > found.band, axis=0)
    for i, output in enumerate(outputs):
        yield CorrelationTest(
            name=name,
            output=output,
            input=input,
            lags=found.lags,
            values=found.values[:, i].copy(),
            band=found.band[:, i].copy(),
            statistic=float(found.statistic[i]),
            freedom=found.freedom,
            p_value=float(found.p_value[i]),
            n_outside=int(n_outside[i]),
        )


def _check_names(names: Sequence[str] | None, n_names: int, kind: str) -> list[str]:
    """Return the given names of outputs or inputs, or numbered ones; raise UserError otherwise."""
    if names is None:
        return [f"{kind} {i}" for i in range(n_names)]
    if isinstance(names, str) or len(names) != n_names or len(set(names)) != n_names:
        raise UserError(
            f"residual_tests({kind}_names={names!r}): expected {n_names} different names, one per "
            f"{kind}"
        )
    return list(names)


def _check_settings(
    lengths: Sequence[int], n_lags: int, input_start: int, n_parameters: int
) -> None:
    """Raise UserError unless these arguments of `residual_tests` suit records of these lengths."""
    if input_start not in (0, 1):
        raise UserError(
            f"residual_tests(input_start={input_start!r}): expected 0 or 1, the first lag of the "
            "inputs"
        )
    if n_lags < 1 or not 0 <= n_parameters < n_lags:
        raise UserError(
            f"residual_tests(n_lags={n_lags}, n_parameters={n_parameters}): expected at least 1 "
            f"lag and from 0 to {max(n_lags - 1, 0)} parameters"
        )
    if n_lags > most_lags(lengths):
        raise UserError(
            f"residual_tests(n_lags={n_lags}): expected records longer than the lags, with "
            f"{3 * n_lags} samples that have all of them, got {sum(lengths)} samples, the shortest "
            f"record {min(lengths)}; use longer records or a smaller n_lags (the largest possible "
            f"one is {most_lags(lengths)})"
        )


class CorrelationTest(NamedTuple):
    """One residual test of one output: correlations over lags, and all lags together."""

    name: str  # key of `ALARM_MEANINGS`
    output: str  # name of the output
    input: str  # name of the input; empty for a test without input
    lags: Indices  # (n,) samples
    values: Array  # (n,) correlations
    band: Array  # (n,) half width of the band that contains 95 % if the model is correct
    statistic: float  # Ljung-Box Q, sum of squares, or F, of all lags together
    freedom: tuple[float, ...]  # degrees of freedom: one for chi-squared, two for F
    p_value: float  # of the statistic
    n_outside: int  # number of lags outside their band; 5 % of them are expected

    @property
    def alarm(self) -> bool:
        """Whether all lags together contradict the model at the level of 5 %."""
        return self.p_value < FALSE_ALARM_PROBABILITY

    @property
    def title(self) -> str:
        """Name of the test with its output and input."""
        of_input = f" of {self.input}" if self.input else ""
        return f"{self.name}{of_input} ({self.output})"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON, without the values at every lag."""
        return {
            "name": self.name,
            "output": self.output,
            "statistic": self.statistic,
            "p_value": self.p_value,
            "alarm": self.alarm,
            "n_outside": self.n_outside,
            "input": self.input or None,
            "freedom": list(self.freedom),
            "n_lags": len(self.lags),
            "largest": self.largest,
            "largest_lag": self.largest_lag,
        }

    @property
    def largest(self) -> float:
        """The largest correlation relative to its band."""
        return float(self.values[self._most_significant])

    @property
    def largest_lag(self) -> int:
        """Lag of the largest correlation relative to its band."""
        return int(self.lags[self._most_significant])

    @property
    def _most_significant(self) -> int:
        """Position of the largest correlation relative to its band."""
        return int(np.argmax(np.abs(self.values) / self.band))

    def __str__(self) -> str:
        return (
            f"{self.title}: {p_in_words(self.p_value)}, {self.n_outside} of {len(self.lags)} lags "
            f"outside the band, most at lag {self.largest_lag} ({self.largest:+.2g})"
        )


def p_in_words(p_value: float) -> str:
    """Return a p-value in words; no p-value is zero, but the smallest ones have no float.

    >>> print(p_in_words(0.0421), p_in_words(0.0))
    p = 0.042 p < 1e-300
    """
    smallest = 1e-300
    return f"p < {smallest:g}" if p_value < smallest else f"p = {p_value:.2g}"


class ResidualReport(NamedTuple):
    """All residual tests of a model on one kind of residuals."""

    tests: tuple[CorrelationTest, ...]
    skipped: tuple[str, ...]  # sentences that name tests that were skipped, and why
    n: int  # number of samples
    n_records: int
    n_lags: int  # largest lag

    def __repr__(self) -> str:
        n_records = "1 record" if self.n_records == 1 else f"{self.n_records} records"
        title = f"ResidualReport of {self.n} samples, {n_records}, up to lag {self.n_lags}"
        return "\n".join([title, *self.verdict()])

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that were tested."""
        return tuple(dict.fromkeys(test.output for test in self.tests))

    def p_value(self, output: str) -> float:
        """Return the p-value of all tests of an output together.

        If the model is correct, this is an upper bound of the probability of an alarm as strong as
        the strongest one of this output: the smallest p-value times the number of tests
        (Bonferroni), at most 1.
        """
        p_values = [test.p_value for test in self.tests if test.output == output]
        if not p_values:
            raise UserError(
                f"output {output!r} was not tested; expected one of {list(self.outputs)}"
            )
        return min(1.0, len(p_values) * min(p_values))

    def verdict(self) -> tuple[str, ...]:
        """Describe the result in sentences: one per output, one per alarm, one per skipped test."""
        sentences: list[str] = []
        for output in self.outputs:
            sentences += self._verdict_of(output)
        return (*sentences, *self.skipped)

    def _verdict_of(self, output: str) -> list[str]:
        """Describe the tests of one output: a summary, then a sentence for each alarm."""
        tests = [test for test in self.tests if test.output == output]
        alarms = sorted((test for test in tests if test.alarm), key=lambda test: test.p_value)
        if not alarms:
            return [
                f"{output}: none of {len(tests)} residual tests finds structure at "
                f"{FALSE_ALARM_PROBABILITY:.0%}"
            ]
        p = self.p_value(output)
        count = f"{output}: {len(alarms)} of {len(tests)} residual tests"
        if p >= FALSE_ALARM_PROBABILITY:
            summary = f"{count} alarm, but weakly: by chance this happens with {p_in_words(p)}"
        else:
            summary = f"{count} find structure ({p_in_words(p)} for all together)"
        sentences = [summary]
        for test in alarms:
            sentences.append(f"{test}: {ALARM_MEANINGS[test.name]}")
        is_coloured = any(test.name == "autocorrelation" for test in alarms)
        if is_coloured and any(test.input for test in alarms):
            sentences.append(
                f"{output}: the bands of the input tests are too narrow for residuals that are not "
                "white"
            )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the values at every lag, for JSON."""
        return {
            "n": self.n,
            "n_records": self.n_records,
            "n_lags": self.n_lags,
            "level": FALSE_ALARM_PROBABILITY,
            "p_value": {output: self.p_value(output) for output in self.outputs},
            "verdict": list(self.verdict()),
            "skipped": list(self.skipped),
            "tests": [test.to_dict() for test in self.tests],
        }

    def to_dataset(self) -> xr.Dataset:
        """Return the correlations and bands (test, lag), for the store.

        They are nan at lags that a test does not have.
        """
        shape = (len(self.tests), self.n_lags + 1)
        correlation = np.full(shape, np.nan)
        band = np.full(shape, np.nan)
        for i, test in enumerate(self.tests):
            correlation[i, test.lags] = test.values
            band[i, test.lags] = test.band
        n_outside = [test.n_outside for test in self.tests]
        variables: dict[str, Any] = {
            "correlation": (("test", "lag"), correlation),
            "band": (("test", "lag"), band),
            "statistic": ("test", np.array([test.statistic for test in self.tests], dtype=float)),
            "p_value": ("test", np.array([test.p_value for test in self.tests], dtype=float)),
            "n_outside": ("test", np.array(n_outside, dtype=np.int64)),
        }
        coordinates: dict[str, Any] = {
            "lag": np.arange(self.n_lags + 1),
            "test": ("test", np.array([test.title for test in self.tests], dtype=str)),
            "name": ("test", np.array([test.name for test in self.tests], dtype=str)),
            "output": ("test", np.array([test.output for test in self.tests], dtype=str)),
            "input": ("test", np.array([test.input for test in self.tests], dtype=str)),
        }
        attributes = {"n": self.n, "n_records": self.n_records, "level": FALSE_ALARM_PROBABILITY}
        dataset = xr.Dataset(variables, coords=coordinates, attrs=attributes)
        for name, long_name in VARIABLE_LONG_NAMES.items():
            dataset[name].attrs = {"long_name": long_name, "units": "1"}
        return dataset
