"""Hyper-parameters that follow a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Real
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc

from sysid.arrays import check_counts, matrix, vector
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import RECORD
from sysid.gp.kernels import Kernel
from sysid.gp.marginal_likelihood import minimise
from sysid.gp.mean import MeanFunction
from sysid.gp.online import OnlineGP
from sysid.gp.rules import Learning
from sysid.gp.sparse import VariationalProblem
from sysid.gp.training import MarginalLikelihoodProblem, MaximumAPosteriori, Start


class Reservoir:
    """At every time each sample seen so far is kept with the same probability ``m / n``.

    Algorithm R (Vitter, "Random sampling with a reservoir", 1985): the first m samples fill the
    places; the n-th takes the place ``j = floor(n u)``, u uniform in [0, 1), if there is one of
    that number. Seeded, and the same for every division of the stream into blocks.

    Parameters
    ----------
    size : int
        Number of places m.
    n_features : int
    generator : numpy.random.Generator
        Gives one number per sample.
    """

    def __init__(self, size: int, n_features: int, generator: np.random.Generator) -> None:
        self.size = size
        self.n_seen = 0
        self._generator = generator
        self._inputs = np.zeros((size, n_features))
        self._targets = np.zeros(size)
        self._numbers = np.zeros(size, dtype=np.int64)

    def kept(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return copies of the kept samples (k, n_features), their targets (k,) and numbers (k,).

        A number says which of the samples seen it is.

        There are ``k = min(m, n)``.
        """
        n = self.n_seen
        return (
            self._inputs[:n].copy(),
            self._targets[:n].copy(),
            self._numbers[:n].copy(),
        )

    def restore(
        self, inputs: np.ndarray, targets: np.ndarray, numbers: np.ndarray, n_seen: int
    ) -> None:
        """Go on from what was `kept` when `n_seen` samples had been seen."""
        n = len(targets)
        self._inputs[:n], self._targets[:n], self._numbers[:n], self.n_seen = (
            inputs,
            targets,
            numbers,
            n_seen,
        )
        self._generator.bit_generator.advance(n_seen)  # type: ignore[attr-defined]  # one number was drawn for each

    def extend(self, inputs: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> None:
        """See the samples (n, n_features), (n,) of these numbers (n,)."""
        before = np.arange(self.n_seen, self.n_seen + len(targets))  # samples before each of these
        drawn = (self._generator.random(len(targets)) * (before + 1)).astype(int)
        place = np.where(before < self.size, before, drawn)
        for i in np.flatnonzero(place < self.size):
            self._inputs[place[i]], self._targets[place[i]], self._numbers[place[i]] = (
                inputs[i],
                targets[i],
                numbers[i],
            )
        self.n_seen += len(targets)


EVALUATIONS_PER_UPDATE = 3  # of the objective, at most on average: one and a half are usual


#: samples kept to estimate from if the settings do not say it: only stored samples are learned, or all
SAMPLES_OF_STORED = 100
SAMPLES_OF_ALL = 1000
# of the stream since the last estimate, before errors ask for another: its sample is much the same
GROWTH = 1.1


LOOKED_AT = ("mean", "variance", "accepted", "outlier")  # of the record of a sample
# of `Adaptation.state`; columns beside the features
COUNTS = 6
ROWS = ("rows", 1 + len(LOOKED_AT))
MOST_SAMPLES = 1_000_000  # that the settings of a file may ask to keep


class Reason(StrEnum):
    """What asked for an estimate."""

    errors = "errors"  # the prediction errors contradict the hyper-parameters
    revised = "revised"  # so many points have entered the dictionary
    doubled = "doubled"  # twice as many samples have been seen as at the last estimate


class Estimate(NamedTuple):
    """One estimate of the hyper-parameters."""

    sample: int  # samples seen when it was made, initial ones included
    reason: Reason
    statistic: float  # mean squared standardised error that was looked at; 1 is expected
    n_errors: int  # errors in that mean
    log_density_before: float  # log p(y_W | y_D) of the hyper-parameters before, within the bounds
    log_density_after: float  # and of those found
    n_evaluations: int  # of the objective
    seconds: float  # wall time [s]
    kernel: Kernel  # found
    noise_variance: float  # found, target unit^2
    warnings: tuple[str, ...] = ()  # what a user should know about this estimate


def contradicts(squares: np.ndarray, significance: float) -> bool:
    """Whether squares of numbers that should be standard normal are too large or too small
    together.

    Their sum is compared with the two-sided interval of the chi-squared distribution with n degrees
    of freedom that holds it with probability ``1 - significance``.
    """
    half = 0.5 * len(squares)
    total = 0.5 * float(np.sum(squares))
    return bool(2.0 * min(gammainc(half, total), gammaincc(half, total)) < significance)


class Adaptation:
    """Watches the prediction errors of an online GP and re-estimates its hyper-parameters when they
    ask for it.

    The estimate maximises, over (variance, length scales, noise variance) and warm-started from the
    current values, the predictive density of an unbiased sample W of all samples seen so far, given
    the points D of the dictionary that are not in W, plus the log-normal priors of the training on
    the scale of the dictionary::

        log p(y_W | y_D) = log p(y_W, y_D) - log p(y_D)

    The points of the dictionary only condition: they were selected because they surprised, and
    their own likelihood takes that for noise. Nothing is used that has not been seen.

    An online GP that learns every sample knows what W said by the points D alone. There it is the
    variational bound of ``log p(y_W)`` with D as inducing points (`sysid.gp.sparse`): what these
    cannot represent counts as noise. A good estimate is worth more: it is also made whenever twice
    as many samples have been seen as at the last one. While W is all that was learned, and nothing
    is forgotten, it is learned anew with every estimate. Later what the samples said is carried
    over, and errors ask for no estimate before a tenth more has been seen: W is much the same.

    Parameters
    ----------
    settings : Adaptive
    seed : int
        Of the unbiased sample.

    Attributes
    ----------
    estimates : list of Estimate
    """

    def __init__(self, settings: Adaptive, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.estimates: list[Estimate] = []
        self._squares = np.zeros(0)  # standardised squared errors since the last estimate
        self._n_revised = 0  # points that entered since then

    def start(
        self,
        scaling: AffineMap,
        mean: MeanFunction,
        regressors: np.ndarray,
        targets: np.ndarray,
        learning: Learning,
        *,
        n_left_out: int = 0,
    ) -> None:
        settings = self.settings
        p = scaling.n_features
        self._scaling = scaling
        self._mean = mean
        self._learns_every_sample = learning is Learning.every_sample
        size = settings.sample_size or (
            SAMPLES_OF_ALL if self._learns_every_sample else SAMPLES_OF_STORED
        )
        self._sample = Reservoir(size, p, np.random.default_rng([self.seed, size]))
        self._n_seen = 0
        self._n_left_out = n_left_out
        self._keep(regressors, targets, np.ones(len(targets), dtype=bool))
        self._n_estimated = self._n_seen  # samples seen at the last estimate
        self._regressors = np.zeros((settings.interval, p))
        self._targets, self._record = (
            np.zeros(settings.interval),
            np.zeros(settings.interval, dtype=RECORD),
        )
        self._n = 0  # samples since the last look

    def state(self) -> dict[str, np.ndarray]:
        """Everything that `restored` needs to go on bit for bit, but for the estimates so far."""
        inputs, targets, numbers = self._sample.kept()
        now = slice(self._n)
        rows = [
            self._regressors[now],
            self._targets[now],
            *(self._record[name][now] for name in LOOKED_AT),
        ]
        counts = (
            self.seed,
            self._sample.n_seen,
            self._n_seen,
            self._n_left_out,
            self._n_estimated,
            self._n_revised,
        )
        return {
            "seen_inputs": inputs,
            "seen_targets": targets,
            "seen_numbers": numbers,
            "seen_squares": self._squares,
            "seen_rows": np.column_stack(rows),
            "seen_counts": np.array(counts),
        }

    @classmethod
    def restored(
        cls,
        settings: Adaptive,
        scaling: AffineMap,
        mean: MeanFunction,
        learning: Learning,
        state: Mapping[str, Any],
    ) -> Adaptation:
        """Inverse of `state`, for a model of this map, mean and learning.

        Raises
        ------
        ValueError
            A state that contradicts itself or the settings, or settings that ask for too much
            memory.
        KeyError
            One that is not complete.
        """
        p = scaling.n_features
        counts = vector(state["seen_counts"], COUNTS, "seen_counts")
        if not ((counts >= 0) & (counts < 2**53) & (counts % 1 == 0)).all():
            raise UserError(
                f"seen_counts must be whole numbers of at least 0, got {counts.tolist()}"
            )
        seed, n_drawn, n_seen, n_left_out, n_estimated, n_revised = counts.astype(np.int64).tolist()
        if max(settings.sample_size or 0, settings.interval) > MOST_SAMPLES:
            raise UserError(
                f"training: sample_size and interval must be at most {MOST_SAMPLES}, got {settings}"
            )
        found = cls(settings, seed)
        found.start(
            scaling,
            mean,
            np.zeros((0, p)),
            np.zeros(0),
            learning,
            n_left_out=n_left_out,
        )
        inputs, rows = (
            matrix(state[f"seen_{name}"], p + more, f"seen_{name}")
            for name, more in (("inputs", 0), ROWS)
        )
        targets, numbers = (
            vector(state[name], len(inputs), name) for name in ("seen_targets", "seen_numbers")
        )
        squares = vector(state["seen_squares"], len(state["seen_squares"]), "seen_squares")
        n = len(rows)
        fits = n < settings.interval and len(squares) <= settings.window and n_drawn <= n_seen
        if not fits or len(inputs) != min(found._sample.size, n_drawn):
            raise UserError(
                "the samples that a training has seen must fit its interval, window and sample_size"
            )
        found._sample.restore(inputs, targets, numbers, n_drawn)
        found._n_seen = n_seen
        found._n_estimated = n_estimated
        found._n_revised = n_revised
        found._squares, found._n, found._regressors[:n], found._targets[:n] = (
            squares,
            n,
            rows[:, :p],
            rows[:, p],
        )
        for name, column in zip(LOOKED_AT, rows[:, p + 1 :].T, strict=True):
            found._record[name][:n] = column
        return found

    @property
    def n_seen(self) -> int:
        """Samples seen so far, those of the initial model among them, but for those that were left
        out of it.
        """
        return self._n_seen + self._n

    @property
    def n_until_look(self) -> int:
        """Samples that may follow before `adapted` must be asked."""
        return self.settings.interval - self._n

    def observe(self, regressors: np.ndarray, targets: np.ndarray, record: np.ndarray) -> None:
        """Take note of samples (n, p), (n,) and of their record (n,); at most `n_until_look`."""
        after = self._n + len(targets)
        new = slice(self._n, after)
        self._regressors[new], self._targets[new], self._record[new] = (
            regressors,
            targets,
            record,
        )
        self._n = after

    def believe(self) -> None:
        """Count the last sample, an outlier so far, among the usual ones; too late if it was looked
        at already.
        """
        if self._n:
            self._record["outlier"][self._n - 1] = False

    def adapted(self, gp: OnlineGP, *, is_settled: bool = True) -> OnlineGP:
        """Return the online GP with new hyper-parameters if a look is due and finds a reason.

        Otherwise return `gp` itself.

        `is_settled`: the last sample has been learned, or is an outlier, and will not be learned
        later.
        """
        if self.n_until_look > 0 or (reason := self._look(gp.noise_variance)) is None:
            return gp
        return self._estimated(gp, reason, self._all_learned(gp) if is_settled else None)

    def _keep(self, regressors: np.ndarray, targets: np.ndarray, usual: np.ndarray) -> None:
        """Let the reservoir see the usual ones of samples (n, p), (n,); the others, outliers, count
        as seen.
        """
        x = regressors[usual]
        numbers = self._n_seen + np.flatnonzero(usual)
        self._sample.extend(self._scaling.transform(x), targets[usual] - self._mean(x), numbers)
        self._n_seen += len(targets)

    def _look(self, noise_variance: float) -> Reason | None:
        usual = ~self._record["outlier"]
        self._keep(self._regressors, self._targets, usual)
        squares = (self._targets - self._record["mean"]) ** 2 / (
            self._record["variance"] + noise_variance
        )
        squares = squares[usual]
        self._squares = np.append(self._squares, squares)[-self.settings.window :]
        self._n_revised += int(self._record["accepted"].sum())
        self._n = 0
        has_all = self._sample.n_seen <= self._sample.size
        is_new = (
            not self._learns_every_sample or has_all or self._n_seen >= GROWTH * self._n_estimated
        )
        if is_new and contradicts(self._squares, self.settings.significance):
            return Reason.errors
        if self._learns_every_sample and self._n_seen >= 2 * self._n_estimated:
            return Reason.doubled
        return Reason.revised if 0 < self.settings.after_revised <= self._n_revised else None

    def _estimated(
        self,
        gp: OnlineGP,
        reason: Reason,
        samples: tuple[np.ndarray, np.ndarray] | None,
    ) -> OnlineGP:
        begin = perf_counter()
        problem = self.problem(gp)
        current = problem.logarithms(gp.kernel, gp.noise_variance)
        start = np.clip(current, *problem.bounds.T)
        moved = (
            ("started from the nearest values within the bounds",)
            if np.any(start != current)
            else ()
        )
        updates = self.settings.max_updates
        tolerance = self.settings.tolerance
        most = {
            "max_iterations": updates,
            "max_evaluations": EVALUATIONS_PER_UPDATE * updates,
        }
        found = minimise(problem.cost, start, problem.bounds, **most, tolerance=tolerance)
        kernel, noise_variance = problem.kernel_and_noise(found.x)
        adapted = gp.with_hyperparameters(kernel, noise_variance, samples)
        self.estimates.append(
            Estimate(
                sample=self._n_seen + self._n_left_out,
                reason=reason,
                statistic=float(np.mean(self._squares)),
                n_errors=len(self._squares),
                log_density_before=problem.prior(start)[0] - found.cost_at_start,
                log_density_after=problem.prior(found.x)[0] - found.cost,
                n_evaluations=found.n_evaluations,
                seconds=perf_counter() - begin,
                kernel=kernel,
                noise_variance=noise_variance,
                warnings=(*moved, *problem.warnings(found.x)),
            )
        )
        self._squares = np.zeros(0)
        self._n_revised = 0
        self._n_estimated = self._n_seen
        return adapted

    def _all_learned(self, gp: OnlineGP) -> tuple[np.ndarray, np.ndarray] | None:
        """Return all inputs and targets that the GP learned, in order; None if not all are kept.

        Also None if it forgets: they do not count the same then.
        """
        inputs, targets, numbers = self._sample.kept()
        if (
            gp.forgetting
            or not self._learns_every_sample
            or len(targets) != gp.n_seen - gp.repairs["outliers"]
        ):
            return None
        order = np.argsort(numbers)
        return inputs[order], targets[order]

    def problem(self, gp: OnlineGP) -> MarginalLikelihoodProblem:
        """Minus ``log p(y_W | y_D)`` and the priors, on the scale of D; or minus the bound for W by
        D, on that of W.
        """
        order = gp.age_order
        inputs = gp.inputs[order]
        targets = gp.targets[order]
        kept_inputs, kept_targets, numbers = self._sample.kept()
        if self._learns_every_sample:
            return VariationalProblem.of(self.settings, kept_inputs, kept_targets, inputs)
        given = ~np.isin(gp.sample_numbers[order], numbers)
        return replace(
            MarginalLikelihoodProblem.of(self.settings, inputs, targets),
            inputs=np.concatenate([inputs[given], kept_inputs]),
            targets=np.concatenate([targets[given], kept_targets]),
            n_given=int(given.sum()),
        )


@dataclass(frozen=True)
class Adaptive(MaximumAPosteriori):
    """`MaximumAPosteriori` on the first samples, and again whenever the prediction errors
    contradict it.

    Every `interval` samples the standardised squared errors of the samples since the last estimate,
    at most the last `window`, are tested: if the hyper-parameters are right,

    ``sum_t e_t^2 / (v_t + noise_variance)  ~  chi-squared(n)``,

    e the prediction errors, v the latent variances. Outside the two-sided interval of probability
    ``1 - significance`` the hyper-parameters are estimated anew (`sysid.gp.adaptation.Adaptation`),
    from an unbiased sample of the stream and the points of the dictionary, with the priors and
    relative bounds of the first training. The cost per sample is bounded: at most one estimate per
    interval, of at most `max_updates` iterations. A record that is known as a whole has given its
    hyper-parameters before it is learned: they stay, unless `on_records`.
    """

    interval: int = 50  # samples between two looks at the errors
    significance: float = 1e-3  # probability of an estimate at a look although nothing is wrong
    window: int = 100  # samples; the last errors that are looked at
    sample_size: int | None = (
        None  # samples of the stream kept to estimate from; None: 100, or 1000 of every_sample
    )
    after_revised: int = 0  # points that entered since the last estimate and ask for one; 0: never
    max_updates: int = 20  # iterations of one estimate
    tolerance: float = 1e-4  # relative gain of an iteration at which an estimate ends
    # whether also while a record is learned, all of which gave the hyper-parameters
    on_records: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, interval=1, window=1, after_revised=0, max_updates=1)
        if self.sample_size is not None:
            check_counts(self, sample_size=2)
        for name in ("significance", "tolerance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
                raise UserError(
                    f"{self._name}: {name} must be a number between 0 and 1, got {value!r}"
                )

    def know(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
    ) -> Start:
        """As `MaximumLikelihood.know`; the hyper-parameters stay unless `on_records`."""
        return (
            super()
            .know(regressors, targets, mean=mean, seed=seed)
            ._replace(stays=not self.on_records)
        )

    def follow(self, seed: int) -> Adaptation:
        """Adaptation that keeps its unbiased sample by this seed."""
        return Adaptation(self, seed)
