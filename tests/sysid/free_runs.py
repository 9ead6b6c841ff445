"""Records, candidates and naive free runs that the tests of the training for the free run share."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from sysid import (
    InitialSamples,
    LinearMean,
    Matern52,
    Narx,
    OutputErrorRefinement,
    ProfileSearch,
    Projection,
    Scaling,
    SquaredExponential,
)
from sysid.simulation.segments import segments_of
from sysid.simulation_error.candidate import Candidate, Estimator, FitResult

FREE = (-np.inf, np.inf)


LAGS = {
    "value": Narx({"y": 2}, {"u": [0, 1]}, predict="value"),
    "change": Narx({"y": 2}, {"u": [0, 1]}),
    "value, gaps": Narx({"y": [3, 4]}, {"u": 2}, predict="value"),
    "change, gaps": Narx({"y": [2, 5]}, {"u": [0, 3]}),
    "no input": Narx({"y": [1, 2, 4]}, predict="value"),
    "another output": Narx(
        {"y": 2, "x": [1]}, {"u": [0], "v": [1, 4]}, target="y", predict="value"
    ),
}


EACH_KIND_OF_LAGS = pytest.mark.parametrize("narx", LAGS.values(), ids=LAGS)


VALUE = LAGS["value"]
SIMPLE = Narx({"y": 1}, {"u": 1})


def random_signals(narx, n=40, seed=0):
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(n) for name in narx.signals}


def samples_of(narx, *records):
    rows = [narx.regressors(signals) for signals in records]
    follows = np.concatenate([np.arange(len(row.target)) > 0 for row in rows])
    x, t = (
        np.concatenate([getattr(row, name) for row in rows]) for name in ("regressor", "target")
    )
    return InitialSamples(narx, x, t, follows)


def segment_of(narx, signals):
    """Whole record as one segment."""
    return segments_of(samples_of(narx, signals))[0]


def candidate_of(
    narx, n_points=5, limits=FREE, seed=1, size=0.1, kernel=Matern52, n_coordinates=None
):
    """Random function, of combinations of the features if a number of coordinates is given;
    stable.
    """
    generator = np.random.default_rng(seed)
    p = narx.n_features
    q = n_coordinates or narx.n_features
    scaling = Scaling(generator.standard_normal(p), generator.uniform(0.5, 2.0, p))
    if n_coordinates:
        scaling = Projection(0.1 * scaling.offset, 0.7 * generator.standard_normal((q, p)))
    return Candidate(
        narx,
        scaling,
        LinearMean(0.1 * generator.standard_normal(p), 0.2),
        kernel(1.3, generator.uniform(1.0, 3.0, q)),
        generator.standard_normal((n_points, q)),
        size * generator.standard_normal(n_points),
        limits,
    )


def linear_candidate(narx, coefficients, intercept=0.0, **bounds):
    """No points."""
    p = narx.n_features
    nothing = np.zeros((0, p))
    kernel = SquaredExponential(1.0, np.ones(p))
    return Candidate(
        narx,
        Scaling.identity(p),
        LinearMean(coefficients, intercept),
        kernel,
        nothing,
        nothing[:, 0],
        **bounds,
    )


def naive_free_run(candidate, signals, first, last):
    """Output y[first], ..., y[last - 1], sample by sample."""
    narx = candidate.narx
    y = dict(signals)
    target = y[narx.target] = np.array(signals[narx.target], dtype=float)
    for k in range(first, last):
        x = np.array([y[name][k - lag] for name, lag in narx.features])
        z = candidate.scaling.linear_part() @ (x - candidate.scaling.offset)
        f = candidate.mean.intercept + np.dot(candidate.mean.coefficients, x)
        f += candidate.weights @ candidate.kernel(candidate.points, z[None, :]).sum(axis=1)
        value = f + target[k - 1] if narx.predict.value == "change" else f
        target[k] = np.clip(value, *candidate.limits)
    return target[first:last].copy()


def with_naive_run(candidate, signals):
    """The signals with the output of a naive free run from its first possible sample."""
    first = candidate.narx.max_lag
    n = len(signals["y"])
    return signals | {
        "y": np.append(signals["y"][:first], naive_free_run(candidate, signals, first, n))
    }


def system(n=60, seed=0, limit=np.inf):
    """``y[k] = 0.7 y[k-1] + tanh(u[k-1])``, cut off at a limit."""
    u = np.random.default_rng(seed).standard_normal(n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = min(0.7 * y[k - 1] + np.tanh(u[k - 1]), limit)
    return {"y": y, "u": u}


@dataclass(frozen=True)
class Given(Estimator):
    """A linear function that is not fitted, or one of the mean of the samples; it may raise an
    error.
    """

    coefficients: tuple[float, ...] = (
        -1.0,
        0.0,
    )  # of y[k-1]: the change that leads to a constant output
    intercept: float | None = None
    error: Exception | None = None

    def fit(self, segments, narx, budget, seed, limits):
        if self.error:
            raise self.error
        mean = float(np.mean(np.concatenate([segment.values for segment in segments])))
        intercept = mean if self.intercept is None else self.intercept
        return FitResult(
            linear_candidate(narx, self.coefficients, intercept, bounds=(-50.0, 50.0)),
            0.01,
            {},
        )


def excited(n, *, mean=0.0, seed=0):
    """Input of amplitude 1 about a mean (n,)."""
    return mean + np.sin(0.7 * np.arange(n) + np.random.default_rng(seed).uniform(0, 6))


PROFILE = ProfileSearch(
    kernels=[SquaredExponential()], evaluations=12, starts=1, blocks=(2,), points=8
)


WIENER = Narx({"y": 2}, {"u": [1, 2]}, predict="value")


def wiener(n, seed=0):
    """``y[k] = 0.5 y[k-1] - 0.1 y[k-2] + 0.3 u[k-1] + 0.4 sin(y[k-1] + u[k-1])``: nonlinear along
    one direction.
    """
    u = 1.5 * np.random.default_rng([seed, 7]).standard_normal(n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 0.5 * y[k - 1] - 0.1 * y[k - 2] + 0.3 * u[k - 1] + 0.4 * np.sin(y[k - 1] + u[k - 1])
    return {"u": u, "y": y}


QUICK = OutputErrorRefinement(
    search_points=20,
    stages=3,
    window=120,
    transient=20,
    penalty=1e-3,
    plain_spreads=(),
    state_spreads=(),
)


def refine(signals, budget, narx=WIENER, limits=FREE, **settings):
    return replace(QUICK, **settings).fit([segment_of(narx, signals)], narx, budget, 0, limits)


def growing(factor, *, lag=1, predict="value"):
    """Records that grow, and a long one near zero in which the free run of such a model
    diverges.
    """
    narx = Narx({"y": [lag]}, {"u": [1]}, predict=predict)
    rng = np.random.default_rng(9)
    short = {"u": np.zeros(9), "y": factor ** np.arange(9.0) / factor**8}
    long = {"u": 1e-6 * rng.standard_normal(300), "y": 1e-6 * rng.standard_normal(300)}
    empty = linear_candidate(narx, [factor, 0.0], bounds=(-1e3, 1e3))
    return empty, [segment_of(narx, signals) for signals in (short, long)]
