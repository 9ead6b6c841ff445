"""Outcome of residual tests: numbers, words and a data set."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

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


class CorrelationTest(NamedTuple):
    """One residual test of one output: correlations over lags, and all lags together."""

    name: str  # key of `MEANINGS`
    output: str
    input: str  # empty for a test without input
    lags: NDArray[np.int64]  # (n,) samples
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
            "name": self.name,
            "output": self.output,
            "input": self.input or None,
            "statistic": self.statistic,
            "freedom": list(self.freedom),
            "p_value": self.p_value,
            "alarm": self.alarm,
            "n_lags": len(self.lags),
            "n_outside": self.n_outside,
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
        """Probability of an alarm as strong as the strongest of this output, if the model is right; at most that.

        The smallest p-value times the number of tests (Bonferroni), at most 1.
        """
        found = [test.p_value for test in self.tests if test.output == output]
        if not found:
            raise ValueError(f"output {output!r} was not tested; expected one of {list(self.outputs)}")
        return min(1.0, len(found) * min(found))

    def verdict(self) -> tuple[str, ...]:
        """What the tests say, in words, one sentence per output and one per alarm."""
        return tuple(sentence for output in self.outputs for sentence in self._verdict(output)) + self.skipped

    def _verdict(self, output: str) -> list[str]:
        own = [test for test in self.tests if test.output == output]
        alarms = sorted((test for test in own if test.alarm), key=lambda test: test.p_value)
        p = self.p_value(output)
        if not alarms:
            return [f"{output}: none of {len(own)} residual tests finds structure at {LEVEL:.0%}"]
        if p >= LEVEL:
            head = (
                f"{output}: {len(alarms)} of {len(own)} residual tests alarm, weakly: chance does so with p = {p:.2g}"
            )
        else:
            head = f"{output}: {len(alarms)} of {len(own)} residual tests find structure (p = {p:.2g} for all together)"
        words = [head, *(f"{test}: {MEANINGS[test.name]}" for test in alarms)]
        if any(test.name == "autocorrelation" for test in alarms) and any(test.input for test in alarms):
            words.append(f"{output}: the bands of the input tests are too narrow for residuals that are not white")
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
        """Correlations and bands (test, lag), nan at lags that a test does not have, for the store."""
        lags = np.arange(self.n_lags + 1)
        shape = (len(self.tests), len(lags))
        values, band = np.full(shape, np.nan), np.full(shape, np.nan)
        for i, test in enumerate(self.tests):
            values[i, test.lags], band[i, test.lags] = test.values, test.band
        columns: dict[str, Any] = {
            "correlation": (("test", "lag"), values, "correlation with the residual", "1"),
            "band": (("test", "lag"), band, "half width of the 95 % band of the correlation", "1"),
            "statistic": ("test", np.array([t.statistic for t in self.tests], float), "statistic of all lags", "1"),
            "p_value": ("test", np.array([t.p_value for t in self.tests], float), "p-value of the statistic", "1"),
            "n_outside": ("test", np.array([t.n_outside for t in self.tests], np.int64), "lags outside the band", "1"),
        }
        variables = {
            name: (dims, data, {"long_name": meaning, "units": unit})
            for name, (dims, data, meaning, unit) in columns.items()
        }
        coordinates: dict[str, Any] = {
            "test": ("test", np.array([t.title for t in self.tests], dtype=str)),
            "lag": ("lag", lags, {"long_name": "lag in samples", "units": "1"}),
            "name": ("test", np.array([t.name for t in self.tests], dtype=str)),
            "output": ("test", np.array([t.output for t in self.tests], dtype=str)),
            "input": ("test", np.array([t.input for t in self.tests], dtype=str)),
        }
        facts = {"n": self.n, "n_records": self.n_records, "level": LEVEL}
        return xr.Dataset(variables, coords=coordinates, attrs=facts)
