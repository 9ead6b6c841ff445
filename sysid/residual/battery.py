"""All residual tests of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sysid.residual.correlation import Correlations, input_past, normal_scores, own_past, past_products, standardised
from sysid.residual.report import CorrelationTest, ResidualReport
from sysid.residual.series import Records, Series, series

Array: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Lags: TypeAlias = NDArray[np.int64]


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
    """Test whether residuals are white and independent of the inputs, linearly and in their squares.

    For the residual e of every output and every input u, both about their means, correlations are taken over
    lags k within records, each with a band that 5 % of them leave if e is white and independent of u, and
    all lags of a test are judged together by one statistic whose false alarms are 5 % as well:

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

    The band is 1.96 / sqrt(N), times the root of the share of the pairs (of the squares of u) that exists at this
    lag: N - k of N in one record. Without that factor, which is 1 for long records, alarms at large lags are too few.

    e^2 enters by its normal scores (the normal quantiles of its ranks): plain squares have such heavy
    tails that no band and no statistic keeps 5 % at a few hundred samples. Measured at 200 samples and 25 lags, plain
    squares of Laplace noise leave the band in 3.6 % and alarm in up to 16 % of cases. With the scores every test
    and every lag alarms in 4 to 6.5 % of cases, up to the scatter of the 2000 series counted: Gaussian, uniform,
    Laplace, exponential and Student's t noise of 5 degrees, 200 and 1000 samples in one or six records, 10 and 25
    lags, white, coloured and multisine inputs.

    Parameters
    ----------
    residuals : array (n,) or (n, n_outputs), or a list of them
        Target minus prediction; a list or tuple holds one array per record.
    inputs : array (n,) or (n, n_inputs), or a list of them, optional
        Inputs at the same samples.
    n_lags : int
        Largest lag; see `most_lags`.
    input_start : int
        First lag s of the inputs, 0, or 1 for a loop that is closed by a controller that saw the sample it answers.
    output_names, input_names : sequence of str, optional
    n_parameters : int
        Degrees of freedom that Q loses: 0 on records that were not used for estimation, the number of
        coefficients of a linear model on those that were.

    Returns
    -------
    ResidualReport
        Tests output by output. Constant signals cannot be tested and are named in `skipped`, so is the square
        of a binary input.

    Raises
    ------
    ValueError, TypeError
        Values that are not finite, records that differ in number, length or signals, or are too short for the
        lags; settings out of range.

    Notes
    -----
    One-step residuals of a right model are white. FREE-RUN residuals are not expected to be: the disturbances of
    the past stay in the simulated output. There the autocorrelation describes, and the bands of the input tests,
    which suppose a white e, are too narrow; a large correlation with an input is still a missing effect. In closed
    loop the inputs answer to past disturbances: free-run residuals then go with them even if the model is right,
    one-step residuals only at lags at which the controller has seen them (`input_start`).

    Correlations and tests: Billings and Voon 1986 (Int. J. Control 44, 235-244); Ljung and Box 1978 (Biometrika 65,
    297-303); McLeod and Li 1983 (J. Time Ser. Anal. 4, 269-273); normal scores: van der Waerden.

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> u, e = rng.normal(size=(2, 500))
    >>> residual_tests(e, u).verdict()
    ('output 0: none of 6 residual tests finds structure at 5%',)
    >>> print(residual_tests(e + 0.3 * u**2, u).tests[4])
    squared_input of input 0 (output 0): p = 1.8e-13, 1 of 26 lags outside the band, most at lag 0 (+0.44)
    """
    data = series(residuals, inputs)
    _check_settings(data.lengths, n_lags, input_start, n_parameters)
    outputs = _titles(output_names, data.residuals.shape[1], "output")
    driven = _titles(input_names, data.inputs.shape[1], "input")
    e, tested = standardised(data.residuals)
    skipped = [f"residuals of {name} are constant: nothing to test" for name in _named(outputs, ~tested)]
    names = _named(outputs, tested)
    tests: list[CorrelationTest] = []
    if names:
        e = e[:, tested]
        _, varies = standardised(e**2)
        square, _ = standardised(normal_scores(e**2))
        skipped += [f"squared residuals of {name} are constant: not tested" for name in _named(names, ~varies)]
        tests += _own(e, square, varies, names, data, n_lags, n_parameters)
        causal = np.arange(input_start, n_lags + 1)
        for j, title in enumerate(driven):
            found, missing = _driven(e, square, varies, names, data, j, title, causal)
            tests += found
            skipped += missing
    order = {name: i for i, name in enumerate(outputs)}
    tests.sort(key=lambda test: order[test.output])
    return ResidualReport(tuple(tests), tuple(skipped), len(data.place), len(data.lengths), n_lags)


def most_lags(lengths: Sequence[int]) -> int:
    """Largest `n_lags` for records of these lengths: less than the shortest, a third of the samples with all lags.

    >>> most_lags([1000]), most_lags([30, 200])
    (250, 29)
    """
    return max(0, min(min(lengths) - 1, sum(lengths) // (len(lengths) + 3)))


def _own(
    e: Array, square: Array, varies: Flags, names: list[str], data: Series, n_lags: int, n_parameters: int
) -> Iterator[CorrelationTest]:
    lags = np.arange(1, n_lags + 1)
    yield from _tests("autocorrelation", names, "", lags, own_past(e, data.place, lags, n_parameters))
    found = own_past(square[:, varies], data.place, lags, 0)
    yield from _tests("squared_autocorrelation", _named(names, varies), "", lags, found)


def _driven(
    e: Array, square: Array, varies: Flags, names: list[str], data: Series, j: int, title: str, causal: Lags
) -> tuple[list[CorrelationTest], list[str]]:
    """Tests with input j, and why some are missing."""
    (u,), (usable,) = (part.T for part in standardised(data.inputs[:, [j]]))
    if not usable:
        return [], [f"{title} is constant: not tested"]
    past = np.arange(1, causal[-1] + 1)
    product, _ = standardised(e * u[:, None])
    found = [
        *_tests("input", names, title, causal, input_past(u, e, data.place, causal)),
        *_tests("residual_input", names, title, past, past_products(product, e, data.place, past)),
    ]
    (u2,), (usable,) = (part.T for part in standardised((u**2)[:, None]))
    if not usable:
        return found, [f"the square of {title} about its mean is constant: not tested"]
    found += _tests("squared_input", names, title, causal, input_past(u2, e, data.place, causal))
    both = input_past(u2, square[:, varies], data.place, causal)
    return [*found, *_tests("squared_input_squared", _named(names, varies), title, causal, both)], []


def _tests(name: str, outputs: list[str], input: str, lags: Lags, found: Correlations) -> Iterator[CorrelationTest]:
    """One test per output, from the columns of what was found."""
    outside = np.count_nonzero(np.abs(found.values) > found.band, axis=0)
    for i, output in enumerate(outputs):
        values, band = found.values[:, i].copy(), found.band[:, i].copy()
        statistic, p_value = float(found.statistic[i]), float(found.p_value[i])
        yield CorrelationTest(
            name, output, input, lags, values, band, statistic, found.freedom, p_value, int(outside[i])
        )


def _named(names: Sequence[str], chosen: Flags) -> list[str]:
    return [name for name, wanted in zip(names, chosen, strict=True) if wanted]


def _titles(names: Sequence[str] | None, width: int, kind: str) -> list[str]:
    if names is None:
        return [f"{kind} {i}" for i in range(width)]
    if isinstance(names, str) or len(names) != width or len(set(names)) != width:
        raise ValueError(f"residual_tests({kind}_names={names!r}): expected {width} different names, one per {kind}")
    return list(names)


def _check_settings(lengths: tuple[int, ...], n_lags: int, input_start: int, n_parameters: int) -> None:
    if input_start not in (0, 1):
        raise ValueError(f"residual_tests(input_start={input_start!r}): expected 0 or 1, the first lag of the inputs")
    if n_lags < 1 or not 0 <= n_parameters < n_lags:
        raise ValueError(
            f"residual_tests(n_lags={n_lags}, n_parameters={n_parameters}): expected at least 1 lag and from 0 to "
            f"{max(n_lags - 1, 0)} parameters"
        )
    if n_lags > most_lags(lengths):
        raise ValueError(
            f"residual_tests(n_lags={n_lags}): expected records longer than the lags, with {3 * n_lags} samples "
            f"that have all of them, got {sum(lengths)} samples, the shortest record {min(lengths)}; use longer "
            f"records or a smaller n_lags (the largest possible one is {most_lags(lengths)})"
        )
