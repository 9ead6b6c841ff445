"""Records, candidates and naive free runs for the tests of the training for simulation.

A free run is a simulation: the model is fed its own outputs instead of the measured ones.
"""

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

# Limits of an output that does not saturate.
NO_LIMITS = (-np.inf, np.inf)

KINDS_OF_LAGS = {
    "value": Narx({"y": 2}, {"u": [0, 1]}, predict="value"),
    "change": Narx({"y": 2}, {"u": [0, 1]}),
    "value, gaps": Narx({"y": [3, 4]}, {"u": 2}, predict="value"),
    "change, gaps": Narx({"y": [2, 5]}, {"u": [0, 3]}),
    "no input": Narx({"y": [1, 2, 4]}, predict="value"),
    "another output": Narx(
        {"y": 2, "x": [1]}, {"u": [0], "v": [1, 4]}, target="y", predict="value"
    ),
}
EACH_KIND_OF_LAGS = pytest.mark.parametrize("narx", KINDS_OF_LAGS.values(), ids=KINDS_OF_LAGS)
SIMPLE_LAGS = Narx({"y": 1}, {"u": 1})
FIRST_ORDER_LAGS = Narx({"y": 1}, {"u": 1}, predict="value")


# --- records and their samples --------------------------------------------------------------------


def random_signals(narx, n=40, seed=0):
    """Return n standard normal samples of every signal of the lags."""
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(n) for name in narx.signals}


def samples_of(narx, *records):
    """Return the samples of one or several records as a training gets them."""
    regressors = []
    targets = []
    follows = []
    for signals in records:
        rows = narx.regressors(signals)
        regressors.append(rows.regressor)
        targets.append(rows.target)
        follows.append(np.arange(len(rows.target)) > 0)
    return InitialSamples(
        narx, np.concatenate(regressors), np.concatenate(targets), np.concatenate(follows)
    )


def segment_of(narx, signals):
    """Return a whole record as one segment."""
    (segment,) = segments_of(samples_of(narx, signals))
    return segment


def first_order_record(n=60, seed=0, limit=np.inf):
    """Return a record of ``y[k] = 0.7 y[k-1] + tanh(u[k-1])``, cut off at a limit."""
    u = np.random.default_rng(seed).standard_normal(n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = min(0.7 * y[k - 1] + np.tanh(u[k - 1]), limit)
    return {"y": y, "u": u}


def constant_record():
    """Return a record whose output does not vary."""
    return first_order_record(200) | {"y": np.ones(200)}


def sine_input(n, *, mean=0.0, seed=0):
    """Return an input (n,) of amplitude 1 about a mean."""
    phase = np.random.default_rng(seed).uniform(0, 6)
    return mean + np.sin(0.7 * np.arange(n) + phase)


# --- candidates and naive free runs ---------------------------------------------------------------


def random_candidate(
    narx, n_points=5, limits=NO_LIMITS, seed=1, size=0.1, kernel=Matern52, n_coordinates=None
):
    """Return a candidate with a random function and a stable free run.

    With a number of coordinates its kernel depends on that many combinations of the features,
    otherwise on each feature by itself.
    """
    generator = np.random.default_rng(seed)
    p = narx.n_features
    scaling = Scaling(generator.standard_normal(p), generator.uniform(0.5, 2.0, p))
    q = p
    if n_coordinates:
        q = n_coordinates
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
    """Return a candidate without points: a linear function."""
    p = narx.n_features
    return Candidate(
        narx,
        Scaling.identity(p),
        LinearMean(coefficients, intercept),
        SquaredExponential(1.0, np.ones(p)),
        points=np.zeros((0, p)),
        weights=np.zeros(0),
        **bounds,
    )


def naive_free_run(candidate, signals, first, last):
    """Return the outputs y[first], ..., y[last - 1], simulated sample by sample."""
    narx = candidate.narx
    target = np.array(signals[narx.target], dtype=float)
    simulated = signals | {narx.target: target}
    for k in range(first, last):
        x = np.array([simulated[name][k - lag] for name, lag in narx.features])
        z = candidate.scaling.linear_part() @ (x - candidate.scaling.offset)
        f = candidate.mean.intercept + np.dot(candidate.mean.coefficients, x)
        f += candidate.weights @ candidate.kernel(candidate.points, z[None, :]).sum(axis=1)
        if narx.predict.value == "change":
            f = f + target[k - 1]
        target[k] = np.clip(f, *candidate.limits)
    return target[first:last].copy()


def with_naive_run(candidate, signals):
    """Return the signals with the output of a naive free run from its first possible sample on."""
    first = candidate.narx.max_lag
    y = signals["y"]
    simulated = naive_free_run(candidate, signals, first, len(y))
    return signals | {"y": np.append(y[:first], simulated)}


def growing_candidate(factor, *, lag=1, predict="value"):
    """Return an unstable linear candidate, and segments to fit it to.

    The first record grows by the factor at every sample. The second one is long and near zero: a
    free run that grows diverges there.
    """
    narx = Narx({"y": [lag]}, {"u": [1]}, predict=predict)
    generator = np.random.default_rng(9)
    short = {"u": np.zeros(9), "y": factor ** np.arange(9.0) / factor**8}
    long = {
        "u": 1e-6 * generator.standard_normal(300),
        "y": 1e-6 * generator.standard_normal(300),
    }
    candidate = linear_candidate(narx, [factor, 0.0], bounds=(-1e3, 1e3))
    return candidate, [segment_of(narx, short), segment_of(narx, long)]


# --- estimators -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StubEstimator(Estimator):
    """Return a given linear function, whatever the samples, or raise a given error.

    Without an intercept, that of the function is the mean output of the samples.
    """

    # of y[k-1] and u[k-1]; these predict the change that leads to a constant output
    coefficients: tuple[float, ...] = (-1.0, 0.0)
    intercept: float | None = None
    error: Exception | None = None

    def fit(self, segments, narx, budget, seed, limits):
        if self.error:
            raise self.error
        intercept = self.intercept
        if intercept is None:
            intercept = mean_output(segments)
        candidate = linear_candidate(narx, self.coefficients, intercept, bounds=(-50.0, 50.0))
        return FitResult(candidate, 0.01, {})


def mean_output(segments):
    """Return the mean output of all segments."""
    return float(np.mean(np.concatenate([segment.values for segment in segments])))


QUICK_SEARCH = ProfileSearch(
    kernels=[SquaredExponential()], evaluations=12, starts=1, blocks=(2,), points=8
)

QUICK_REFINEMENT = OutputErrorRefinement(
    search_points=20,
    stages=3,
    window=120,
    transient=20,
    penalty=1e-3,
    plain_spreads=(),
    state_spreads=(),
)

WIENER_LAGS = Narx({"y": 2}, {"u": [1, 2]}, predict="value")


def wiener_record(n, seed=0):
    """Return a record of a plant that is nonlinear along one direction.

    ``y[k] = 0.5 y[k-1] - 0.1 y[k-2] + 0.3 u[k-1] + 0.4 sin(y[k-1] + u[k-1])``
    """
    u = 1.5 * np.random.default_rng([seed, 7]).standard_normal(n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 0.5 * y[k - 1] - 0.1 * y[k - 2] + 0.3 * u[k - 1] + 0.4 * np.sin(y[k - 1] + u[k - 1])
    return {"u": u, "y": y}


def refine(signals, budget, narx=WIENER_LAGS, limits=NO_LIMITS, **settings):
    """Fit one record by the quick refinement, with some of its settings changed."""
    refinement = replace(QUICK_REFINEMENT, **settings)
    return refinement.fit([segment_of(narx, signals)], narx, budget, 0, limits)
