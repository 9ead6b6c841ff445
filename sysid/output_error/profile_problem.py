"""The free-run error as a function of a few hyper-parameters: length scales tied by a profile over the lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.kernels.stationary import StationaryForm
from sysid.mean import LinearMean
from sysid.narx import Narx, Target
from sysid.output_error.candidate import Candidate
from sysid.output_error.cross_validation import folds_of, n_samples
from sysid.output_error.pivot import Pivots, pivots
from sysid.output_error.ridge import Ridge, Targets
from sysid.output_error.segment import Segment, feedback_of, shortened
from sysid.scaling import Scaling

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

TOLERANCE = 1e-6  # of a kernel's variance: points that have less left explain nothing more
REACH = 10.0  # how far outside its range an output may go in a simulation, in that range [-]
WORST = 9.0  # cost of hyper-parameters for which double precision does not suffice [-]
FARTHEST = 4.0  # from their medians that hyper-parameters may go, in their standard deviations
BLOCK = 4096  # rows of features that are held at a time


class Prior(NamedTuple):
    """Log-normal prior of a hyper-parameter."""

    median: float  # of the logarithm
    std: float  # of the logarithm


OWN_LENGTH, OTHER_LENGTH = Prior(np.log(4.0), 1.0), Prior(np.log(6.0), 1.0)  # std of the signal, at its first lag
OWN_GROWTH, OTHER_GROWTH = Prior(0.05, 0.1), Prior(0.03, 0.05)  # per lag
WHOLE_GROWTH = 2.0  # largest prior standard deviation of the growth over all lags
SIZE = Prior(np.log(7.0), 1.5)  # of the function, std of the target
NOISE = Prior(np.log(0.5), 1.5)  # std of the target
SLOPE = Prior(np.log(0.7), 1.5)  # of the linear part over a length scale, std of the target


class Values(NamedTuple):
    """Hyper-parameters in their own units."""

    lengths: Array  # (p,) std of the signal of each feature
    size: float  # of the function, target std
    noise: float  # target std
    slope: float  # of the linear part over a length scale, target std


@dataclass(frozen=True)
class Profile:
    """Length scales ``exp(a_s + b_s (lag - first lag))`` of the lags of every signal s: two numbers per signal.

    The variables of a search are ``((a_s, b_s) for every signal, log size, log noise, log slope)``, each counted from
    the median of its prior in its standard deviations; b_s only for signals of several lags.
    """

    narx: Narx

    @cached_property
    def priors(self) -> tuple[Prior, ...]:
        """Of every variable."""
        found = []
        for name, lags in self.narx.lags.items():
            is_own = name in self.narx.output_names
            if lags:
                found.append(OWN_LENGTH if is_own else OTHER_LENGTH)
            if len(lags) > 1:
                growth, span = (OWN_GROWTH if is_own else OTHER_GROWTH), lags[-1] - lags[0]
                shrink = min(1.0, WHOLE_GROWTH / (growth.std * span))
                found.append(Prior(shrink * growth.median, shrink * growth.std))
        return (*found, SIZE, NOISE, SLOPE)

    def values(self, z: Array) -> Values:
        """Hyper-parameters of variables (d,)."""
        inside = np.clip(z, -FARTHEST, FARTHEST)
        theta = [prior.median + prior.std * value for prior, value in zip(self.priors, inside.tolist(), strict=True)]
        logarithms, position = [], 0
        for lags in filter(None, self.narx.lags.values()):
            growth = theta[position + 1] if len(lags) > 1 else 0.0
            logarithms += [theta[position] + growth * (lag - lags[0]) for lag in lags]
            position += 2 if len(lags) > 1 else 1
        size, noise, slope = np.exp(theta[-3:]).tolist()
        return Values(np.exp(logarithms), size, noise, slope)


class Block(NamedTuple):
    """Samples that are left out of a regression and simulated."""

    first: int  # among the rows of the regression
    last: int
    parts: tuple[Segment, ...]


class Fit(NamedTuple):
    """Regression for one set of hyper-parameters."""

    values: Values
    chosen: Pivots
    points: Array  # (N, p) standardised
    ridge: Ridge


class ProfileProblem:
    """Free-run error of a model over parts of the samples, with weights from the samples around each part.

    ::

        t = mean + unit (size g(x) + slope (b_0 + sum_d b_d z_d / length_d)) v-linear, v ~ N(0, I)

    with the features g of the kernel's points (`sysid.output_error.pivot`) and z standardised: kernel weights and a
    linear trend are integrated out together. What is predicted is the change since the newest lag of the output.

    Two small things are shared between a part and what surrounds it: the points are chosen among all regressors
    (never by the targets), and the first regressors after a part contain the last outputs of it.

    Parameters
    ----------
    narx, segments, limits
        As for `sysid.output_error.route.Route.fit`.
    form : StationaryForm
        Of the kernel.
    blocks : sequence of int
        Partitions into so many parts, pooled.
    points, rows, simulated : int
        At most so many points and rows of the regression, and simulated samples.
    regularisation : float
        Weight of the squared distance from the priors' medians.

    Raises
    ------
    ValueError
        An output that does not vary.
    """

    def __init__(
        self,
        narx: Narx,
        segments: Sequence[Segment],
        limits: tuple[float, float],
        *,
        form: StationaryForm,
        blocks: Sequence[int],
        points: int,
        rows: int,
        simulated: int,
        regularisation: float,
    ) -> None:
        self.narx, self.limits, self.form, self.profile = narx, limits, form, Profile(narx)
        self.n_points, self.n_partitions, self.regularisation = points, len(blocks), regularisation
        self.regressors = np.concatenate([segment.regressors for segment in segments])
        outputs = np.concatenate([segment.values for segment in segments])
        self.scaling, self.baseline = _per_signal(narx, self.regressors), _baseline(narx)
        changes = outputs - (
            self.regressors @ self.baseline
            if narx.predict is Target.value
            else np.concatenate([segment.previous for segment in segments])
        )
        self.unit, self.spread = float(np.std(changes)), float(np.std(outputs))
        if not self.unit > 0:
            raise ValueError(f"training for simulation: the output {narx.target!r} does not vary")
        low, high = limits
        self.targets = Targets(changes / self.unit, outputs >= high, outputs <= low)
        reach = REACH * float(np.ptp(outputs))
        self.bounds = (float(outputs.min()) - reach, float(outputs.max()) + reach)
        self.step = -(-len(outputs) // rows)
        self.blocks = self._blocks(segments, blocks, simulated)

    def _blocks(self, segments: Sequence[Segment], partitions: Sequence[int], simulated: int) -> list[Block]:
        found = []
        for n in partitions:
            most, last = max(1, simulated // (len(partitions) * n)), 0
            for fold in folds_of(segments, n):
                first, last = last, last + fold.n_samples
                rows = (-(-first // self.step), -(-last // self.step))
                found.append(Block(*rows, shortened(fold.parts, most)))
        return found

    @cached_property
    def inputs(self) -> Array:
        """Standardised regressors of the rows of the regression."""
        return np.ascontiguousarray(self.scaling.transform(self.regressors[:: self.step]))

    def fit(self, values: Values) -> Fit:
        """Regression on the rows, one block behind the other."""
        kernel = self.form.kernel(1.0, values.lengths)
        chosen = pivots(kernel, self.inputs, self.n_points, TOLERANCE)
        phi = _features(values, chosen.columns.T, self.inputs)
        cuts = np.unique([0, len(phi), *(row for block in self.blocks for row in block[:2])])
        ridge = Ridge(lambda rows: phi[rows], self.targets.every(self.step), cuts, values.noise**2)
        return Fit(values, chosen, self.inputs[chosen.chosen], ridge)

    def final(self, values: Values, budget: int) -> Fit:
        """Regression on all samples, with at most `budget` points; memory of a few thousand rows of features."""
        kernel = self.form.kernel(1.0, values.lengths)
        chosen = pivots(kernel, self.inputs, budget, TOLERANCE)
        points = self.inputs[chosen.chosen]

        def features(rows: slice) -> Array:
            z = self.scaling.transform(self.regressors[rows])
            return _features(values, chosen.features(kernel(z, points)), z)

        n = len(self.regressors)
        cuts = np.unique([*range(0, n, BLOCK), n])
        return Fit(values, chosen, points, Ridge(features, self.targets, cuts, values.noise**2))

    def candidate(self, fit: Fit, v: Array) -> Candidate:
        """Model of weights v of a regression."""
        values, n = fit.values, len(fit.points)
        size = self.unit * values.size
        slopes = self.unit * values.slope * v[n:-1] / values.lengths / self.scaling.scale
        intercept = self.unit * values.slope * v[-1] - float(slopes @ self.scaling.offset)
        return Candidate(
            self.narx,
            self.scaling,
            LinearMean((self.baseline + slopes).tolist(), intercept),
            self.form.kernel(size**2, values.lengths),
            fit.points,
            fit.chosen.to_weights(v[:n]) / size,
            self.limits,
            self.bounds,
        )

    def error(self, z: Array) -> float:
        """Root mean square of the free-run error over all blocks, in standard deviations of the output.

        A block that diverges counts with a constant output, and adds 1 / number of partitions.
        """
        fit, total, diverged = self.fit(self.profile.values(z)), 0.0, 0
        for block in self.blocks:
            candidate = self.candidate(fit, fit.ridge.weights(block.first, block.last))
            for part in block.parts:
                error = (candidate.simulate(part) - part.values) / self.spread
                lost = np.isnan(error)
                diverged += bool(lost.any())
                error[lost] = (part.values[lost] - part.values.mean()) / self.spread
                total += float(error @ error)
        n = sum(n_samples(block.parts) for block in self.blocks)
        return float(np.sqrt(total / n)) + diverged / self.n_partitions

    def cost(self, z: Array) -> float:
        """``log error + regularisation |z|^2 / 2``."""
        try:
            error = self.error(z)
        except np.linalg.LinAlgError:
            return WORST
        return float(np.log(error)) + 0.5 * self.regularisation * float(z @ z)


def _features(values: Values, kernel: Array, z: Array) -> Array:
    """Features (n, N + p + 1) of the kernel's (n, N) and of standardised regressors z (n, p)."""
    linear = np.column_stack([z / values.lengths, np.ones(len(z))])
    return np.hstack([values.size * kernel, values.slope * linear])


def _per_signal(narx: Narx, regressors: Array) -> Scaling:
    """Standardises every lag of a signal as its first."""
    own = Scaling.fit(regressors)
    names = [name for name, _ in narx.features]
    first = [names.index(name) for name in names]
    constant = tuple(j for j, i in enumerate(first) if i in own.constant)
    return Scaling(own.offset[first], own.scale[first], constant)


def _baseline(narx: Narx) -> Array:
    """Coefficients (p,) of what is predicted before anything is learned: no change of the output."""
    coefficients = np.zeros(narx.n_features)
    if narx.predict is Target.value:
        columns, lags = feedback_of(narx)
        coefficients[columns[np.argmin(lags)]] = 1.0
    return coefficients
