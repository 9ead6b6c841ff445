"""Hyper-parameters that follow a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc

from sysid.arrays import as_number, check_counts, matrix, vector
from sysid.errors import UserError
from sysid.gp import dictionary
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import RECORD_DTYPE
from sysid.gp.kernels import Kernel
from sysid.gp.marginal_likelihood import minimise
from sysid.gp.mean import MeanFunction
from sysid.gp.online import OnlineGP
from sysid.gp.region import Departures
from sysid.gp.rules import Learning
from sysid.gp.sparse import VariationalProblem
from sysid.gp.training import (
    Hyperparameters,
    MarginalLikelihoodProblem,
    MaximumAPosteriori,
    Start,
)

#: Evaluations of the objective per iteration (`Adaptive.max_updates`) that an estimate may take, on
#: average. One and a half are usual.
MAX_EVALUATIONS_PER_UPDATE = 3


#: Default of `Adaptive.sample_size` if only stored samples are learned.
DEFAULT_SAMPLE_SIZE_STORED = 100


#: Default of `Adaptive.sample_size` if every sample is learned.
DEFAULT_SAMPLE_SIZE_EVERY_SAMPLE = 1000


#: Factor by which the number of samples seen must grow after an estimate before prediction errors
#: cause another one, if every sample is learned. Until then the reservoir has hardly changed.
MIN_GROWTH_FOR_ESTIMATE = 1.1


#: Points for which the hyper-parameters of a record are estimated, if there is a linear part.
N_RECORD_POINTS = 100


#: The estimate for a record ends at this gain of an iteration [nats per sample].
RECORD_TOLERANCE = 1e-6


#: Fields of the record of a sample that an adaptation keeps.
WATCHED_FIELDS = ("mean", "variance", "accepted", "outlier")


#: Number of the counts in `Adaptation.state`.
N_STATE_COUNTS = 6


#: Largest `sample_size` and `interval`: as many samples are kept in memory.
MAX_KEPT_SAMPLES = 1_000_000


#: Largest number of samples before a departure that the model trained after it learns.
MAX_KEPT_AFTER_DEPARTURE = 100


class Reservoir:
    """Unbiased sample of a stream: each sample seen so far is kept with the same probability.

    This is algorithm R (Vitter, "Random sampling with a reservoir", 1985). The first m samples fill
    the m slots. The n-th sample then replaces the one in slot ``floor(n u)``, u uniform in [0, 1),
    if there is a slot of that number. So each of n samples is kept with probability ``m / n``. The
    sample depends on the seed, but not on how the stream is divided into blocks.

    Parameters
    ----------
    size : int
        Number of slots m.
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

        Of n samples seen, ``k = min(m, n)`` are kept. The number of a sample is its position in the
        stream.
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
        """Continue from the samples that were `kept` when `n_seen` samples had been seen."""
        n = len(targets)
        self._inputs[:n] = inputs
        self._targets[:n] = targets
        self._numbers[:n] = numbers
        self.n_seen = n_seen
        # one number was drawn for each sample seen
        self._generator.bit_generator.advance(n_seen)  # type: ignore[attr-defined]

    def extend(self, inputs: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> None:
        """Process the samples (n, n_features), (n,) with these numbers (n,) in the stream."""
        n_before = np.arange(self.n_seen, self.n_seen + len(targets))  # samples before each one
        drawn = (self._generator.random(len(targets)) * (n_before + 1)).astype(int)
        slots = np.where(n_before < self.size, n_before, drawn)
        for i in np.flatnonzero(slots < self.size):
            self._inputs[slots[i]] = inputs[i]
            self._targets[slots[i]] = targets[i]
            self._numbers[slots[i]] = numbers[i]
        self.n_seen += len(targets)


class Reason(StrEnum):
    """Why an estimate was made."""

    errors = "errors"  # the prediction errors contradict the hyper-parameters
    revised = "revised"  # `Adaptive.after_revised` points have entered the dictionary
    doubled = "doubled"  # twice as many samples have been seen as at the last estimate
    region = "region"  # the target has left the region of all samples before


class Estimate(NamedTuple):
    """One estimate of the hyper-parameters."""

    sample: int  # samples seen when it was made, including the initial ones
    reason: Reason
    statistic: float  # mean squared standardised error that was tested; 1 is expected, nan if none
    n_errors: int  # number of errors in that mean
    log_density_before: float  # log p(y_W | y_D) of the hyper-parameters before, within the bounds
    log_density_after: float  # log p(y_W | y_D) of the new hyper-parameters
    n_evaluations: int  # of the objective
    seconds: float  # wall time [s]
    kernel: Kernel  # new kernel
    noise_variance: float  # new noise variance, target unit^2
    warnings: tuple[str, ...] = ()  # what a user should know about this estimate


def contradicts(squares: np.ndarray, significance: float) -> bool:
    """Return whether squares of presumably standard normal numbers are too large or too small.

    Their sum is compared with the two-sided interval of the chi-squared distribution with n degrees
    of freedom that contains it with probability ``1 - significance``. No squares contradict
    nothing.
    """
    if len(squares) == 0:
        return False
    half_n = 0.5 * len(squares)
    half_sum = 0.5 * float(np.sum(squares))
    smaller_tail = min(gammainc(half_n, half_sum), gammaincc(half_n, half_sum))
    return bool(2.0 * smaller_tail < significance)


class Adaptation:
    """Tests the prediction errors of an online GP and re-estimates its hyper-parameters.

    The estimate maximises, over (variance, length scales, noise variance) and starting from the
    current values, the predictive density of an unbiased sample W of all samples seen so far, given
    the points D of the dictionary that are not in W. The log-normal priors of the training are
    added, on the scale of the dictionary::

        log p(y_W | y_D) = log p(y_W, y_D) - log p(y_D)

    The likelihood of the points D themselves is not part of it: they were selected because they
    were surprising, which their likelihood would attribute to noise. Samples that have not been
    seen yet are not used.

    An online GP that learns every sample knows about W only through the points D. For it the
    estimate maximises the variational bound of ``log p(y_W)`` with D as inducing points
    (`sysid.gp.sparse`): what these cannot represent counts as noise. Good hyper-parameters are more
    important there, so an estimate is also made whenever twice as many samples have been seen as at
    the last one. As long as W contains all samples that were learned, and nothing is forgotten, W
    is learned again with every estimate. Later the information of the samples is carried over, and
    prediction errors cause no estimate before a tenth more samples have been seen, because W hardly
    changes until then. Samples that repeat the one before, as those of a plant at rest do
    (`sysid.gp.dictionary.repeats`), enter neither the test of the errors nor W.

    After a plant was at rest and is excited (`sysid.gp.region.Departures`), the scaling and the
    mean are as wrong as the hyper-parameters, and the points and W are full of samples at rest. So
    a new model is trained: on the samples since the departure, as many as for the first training,
    and on `MAX_KEPT_AFTER_DEPARTURE` of those before. All others are forgotten. The caller trains
    it, on the samples in `departed`, and calls `restart`.

    Parameters
    ----------
    settings : Adaptive
    seed : int
        Seed of the unbiased sample.

    Attributes
    ----------
    estimates : list of Estimate
    departed : tuple or None
        Regressors (n, p) and targets (n,), in their own units, to train a new model on. None: the
        stream has not left the region of the samples before.
    """

    def __init__(self, settings: Adaptive, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.estimates: list[Estimate] = []
        self.departed: tuple[np.ndarray, np.ndarray] | None = None
        self._squares = np.zeros(0)  # squared standardised errors since the last estimate
        self._n_revised = 0  # points that have entered since the last estimate

    def start(
        self,
        scaling: AffineMap,
        mean: MeanFunction,
        regressors: np.ndarray,
        targets: np.ndarray,
        learning: Learning,
        *,
        n_left_out: int = 0,
        own_lags: Sequence[int] | None = None,
    ) -> None:
        settings = self.settings
        p = scaling.n_features
        self._scaling = scaling
        self._mean = mean
        self._learns_every_sample = learning is Learning.every_sample
        if settings.sample_size is not None:
            size = settings.sample_size
        elif self._learns_every_sample:
            size = DEFAULT_SAMPLE_SIZE_EVERY_SAMPLE
        else:
            size = DEFAULT_SAMPLE_SIZE_STORED
        self._sample = Reservoir(size, p, np.random.default_rng([self.seed, size]))
        self._n_seen = 0
        self._n_left_out = n_left_out
        self._add_to_sample(regressors, targets, np.ones(len(targets), dtype=bool))
        self._n_estimated = self._n_seen  # samples seen at the last estimate
        # the samples since the last test of the errors; the first `_n` rows are in use
        self._regressors = np.zeros((settings.interval, p))
        self._targets = np.zeros(settings.interval)
        self._record = np.zeros(settings.interval, dtype=RECORD_DTYPE)
        self._n = 0
        self._departures: Departures | None = None
        if own_lags is not None and self._learns_every_sample:
            self._departures = Departures(own_lags, settings.interval, settings.n_initial, p)
            self._departures.region.extend(regressors, targets)

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restored` needs to continue bit for bit, except the estimates so far."""
        inputs, targets, numbers = self._sample.kept()
        n = self._n
        columns = [self._regressors[:n], self._targets[:n]]
        for name in WATCHED_FIELDS:
            columns.append(self._record[name][:n])
        counts = (
            self.seed,
            self._sample.n_seen,
            self._n_seen,
            self._n_left_out,
            self._n_estimated,
            self._n_revised,
        )
        departures = {} if self._departures is None else self._departures.state()
        return departures | {
            "seen_inputs": inputs,
            "seen_targets": targets,
            "seen_numbers": numbers,
            "seen_squares": self._squares,
            "seen_rows": np.column_stack(columns),
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
        own_lags: Sequence[int],
    ) -> Adaptation:
        """Return the adaptation that had this `state`, for a model of this map, mean and learning.

        `own_lags` are the features that are lags of the target.

        Raises
        ------
        ValueError
            The state contradicts itself or the settings, or the settings need too much memory.
        KeyError
            The state is not complete.
        """
        p = scaling.n_features
        counts = vector(state["seen_counts"], N_STATE_COUNTS, "seen_counts")
        if not ((counts >= 0) & (counts < 2**53) & (counts % 1 == 0)).all():
            raise UserError(
                f"seen_counts must be whole numbers of at least 0, got {counts.tolist()}"
            )
        seed, n_drawn, n_seen, n_left_out, n_estimated, n_revised = counts.astype(np.int64).tolist()
        adaptation = cls(settings, seed)
        no_regressors = np.zeros((0, p))
        adaptation.start(
            scaling,
            mean,
            no_regressors,
            np.zeros(0),
            learning,
            n_left_out=n_left_out,
            own_lags=own_lags if "seen_departed" in state else None,
        )
        inputs = matrix(state["seen_inputs"], p, "seen_inputs")
        rows = matrix(state["seen_rows"], p + 1 + len(WATCHED_FIELDS), "seen_rows")
        targets = vector(state["seen_targets"], len(inputs), "seen_targets")
        numbers = vector(state["seen_numbers"], len(inputs), "seen_numbers")
        squares = vector(state["seen_squares"], len(state["seen_squares"]), "seen_squares")
        n = len(rows)
        fits = n <= settings.interval and len(squares) <= settings.window and n_drawn <= n_seen
        if not fits or len(inputs) != min(adaptation._sample.size, n_drawn):
            raise UserError(
                "the samples that a training has seen must fit its interval, window and sample_size"
            )
        adaptation._sample.restore(inputs, targets, numbers, n_drawn)
        adaptation._n_seen = n_seen
        adaptation._n_estimated = n_estimated
        adaptation._n_revised = n_revised
        adaptation._squares = squares
        adaptation._n = n
        adaptation._regressors[:n] = rows[:, :p]
        adaptation._targets[:n] = rows[:, p]
        for i, name in enumerate(WATCHED_FIELDS):
            adaptation._record[name][:n] = rows[:, p + 1 + i]
        if adaptation._departures is not None:
            adaptation._departures.restore(state)
        return adaptation

    @property
    def n_seen(self) -> int:
        """Number of samples seen so far.

        It includes those of the initial model, except the outliers that were left out of it.
        """
        return self._n_seen + self._n

    @property
    def n_until_test(self) -> int:
        """Number of samples that may follow before `adapted` must be called."""
        return self.settings.interval - self._n

    def observe(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        record: np.ndarray,
        measured: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Keep samples (n, p), (n,) and their record (n,) for the next test of the errors.

        There may be at most `n_until_test` of them. `measured` are the samples without replaced
        values; None: nothing was replaced.
        """
        if self._departures is not None:
            x, y = (regressors, targets) if measured is None else measured
            has_rejected_lag = (x != regressors).any(axis=1)
            self._departures.observe(x, y, ~record["outlier"] & ~has_rejected_lag)
        end = self._n + len(targets)
        new = slice(self._n, end)
        self._regressors[new] = regressors
        self._targets[new] = targets
        self._record[new] = record
        self._n = end

    def copy(self) -> Adaptation:
        """Return an adaptation that goes on independently from here."""
        other = copy(self)
        other.estimates = list(self.estimates)
        other._sample = deepcopy(self._sample)
        other._departures = deepcopy(self._departures)
        other._regressors = self._regressors.copy()
        other._targets = self._targets.copy()
        other._record = self._record.copy()
        return other

    def accept_outliers(self, are_accepted: np.ndarray) -> None:
        """Accept some of the last samples (k,), which were outliers: they are not marked any more.

        Samples before the last test are passed over.
        """
        n = min(len(are_accepted), self._n)
        outlier = self._record["outlier"][self._n - n : self._n]
        outlier[are_accepted[len(are_accepted) - n :]] = False

    def adapted(self, gp: OnlineGP) -> OnlineGP:
        """Return the online GP with new hyper-parameters, or `gp` itself if there is no reason.

        The errors are tested if `interval` samples have been observed since the last test. Nothing
        is estimated after a departure: then `departed` is set as soon as there are enough samples.
        The decision about the last sample must be final: it has been learned, or it is an outlier
        that will not be learned later.
        """
        if self.n_until_test > 0:
            return gp
        reason = self._test_errors(gp.noise_variance)
        if self._has_departed():
            return gp
        if reason is None:
            return gp
        return self._estimate(gp, reason, self._all_learned(gp))

    def _has_departed(self) -> bool:
        """Test whether the stream has departed, and set `departed` if there are enough samples."""
        departures = self._departures
        if departures is None:
            return False
        departures.test()
        if departures.is_complete:
            x, y = departures.samples()
            inputs, targets, numbers = self._sample.kept()
            before = np.flatnonzero(numbers < self._n_seen - len(y))
            n_kept = min(len(before), MAX_KEPT_AFTER_DEPARTURE)
            kept = before[np.argsort(numbers[before])]
            kept = kept[np.arange(n_kept) * len(kept) // max(n_kept, 1)]
            x_before = self._scaling.inverse(inputs[kept])
            y_before = targets[kept] + self._mean(x_before)
            self.departed = (np.concatenate([x_before, x]), np.concatenate([y_before, y]))
        return departures.n_departed > 0

    def restart(
        self,
        scaling: AffineMap,
        mean: MeanFunction,
        samples: tuple[np.ndarray, np.ndarray],
        gp: OnlineGP,
        training: Hyperparameters,
        seconds: float,
    ) -> None:
        """Continue with a new model, which has learned these of the `departed` samples.

        The kernels of the estimates so far are converted to the new scaling.
        """
        assert self._departures is not None
        factors = self._scaling.scale / scaling.scale
        self.estimates = [
            estimate._replace(kernel=estimate.kernel.stretched(factors))
            for estimate in self.estimates
        ]
        x, y = samples
        n_seen = self._n_seen + self._n_left_out
        self.estimates.append(
            Estimate(
                sample=n_seen,
                reason=Reason.region,
                statistic=self._mean_square(),
                n_errors=len(self._squares),
                log_density_before=np.nan,
                log_density_after=training.log_likelihood,
                n_evaluations=0,
                seconds=seconds,
                kernel=training.kernel,
                noise_variance=training.noise_variance,
                warnings=training.warnings,
            )
        )
        self.departed = None
        self._squares = np.zeros(0)
        self._n_revised = 0
        columns = self._departures.region.columns
        n_left_out = n_seen - len(y)
        self.start(scaling, mean, x, y, gp.learning, n_left_out=n_left_out, own_lags=columns)

    def _add_to_sample(
        self, regressors: np.ndarray, targets: np.ndarray, is_counted: np.ndarray
    ) -> None:
        """Pass those of the samples (n, p), (n,) that are counted (n,) to the reservoir.

        All samples count as seen.
        """
        x = regressors[is_counted]
        numbers = self._n_seen + np.flatnonzero(is_counted)
        standardised = self._scaling.transform(x)
        self._sample.extend(standardised, targets[is_counted] - self._mean(x), numbers)
        self._n_seen += len(targets)

    def _test_errors(self, noise_variance: float) -> Reason | None:
        """Test the errors since the last test; return a reason for a new estimate, or None."""
        settings = self.settings
        noisy_variance = self._record["variance"] + noise_variance
        is_counted = ~self._record["outlier"]
        if self._learns_every_sample:
            is_counted &= ~self._is_at_rest(noisy_variance)
        self._add_to_sample(self._regressors, self._targets, is_counted)
        squares = (self._targets - self._record["mean"]) ** 2 / noisy_variance
        self._squares = np.append(self._squares, squares[is_counted])[-settings.window :]
        self._n_revised += int(self._record["accepted"].sum())
        self._n = 0
        if self._sample_is_new() and contradicts(self._squares, settings.significance):
            return Reason.errors
        if self._learns_every_sample and self._n_seen >= 2 * self._n_estimated:
            return Reason.doubled
        if 0 < settings.after_revised <= self._n_revised:
            return Reason.revised
        return None

    def _is_at_rest(self, noisy_variance: np.ndarray) -> np.ndarray:
        """Return which samples of the interval repeat the one before.

        `noisy_variance` (n,) are the variances of their predictions. The sample before the first
        one is not known: the first one is at rest if the second one is.
        """
        inputs = self._scaling.transform(self._regressors)
        samples = np.column_stack([inputs, self._targets])
        is_at_rest = np.zeros(len(samples), dtype=bool)
        for i in range(1, len(samples)):
            target = self._targets[i]
            is_at_rest[i] = dictionary.repeats(samples[i - 1], inputs[i], target, noisy_variance[i])
        is_at_rest[0] = is_at_rest[min(1, len(samples) - 1)]
        return is_at_rest

    def _mean_square(self) -> float:
        """Return the mean squared standardised error since the last estimate; nan without one."""
        return float(np.mean(self._squares)) if len(self._squares) else np.nan

    def _sample_is_new(self) -> bool:
        """Return whether the unbiased sample has changed enough since the last estimate."""
        contains_all = self._sample.n_seen <= self._sample.size
        has_grown = self._n_seen >= MIN_GROWTH_FOR_ESTIMATE * self._n_estimated
        return not self._learns_every_sample or contains_all or has_grown

    def _estimate(
        self,
        gp: OnlineGP,
        reason: Reason,
        all_samples: tuple[np.ndarray, np.ndarray] | None,
    ) -> OnlineGP:
        """Estimate the hyper-parameters, append the estimate, and return the adapted GP."""
        begin = perf_counter()
        settings = self.settings
        problem = self.problem(gp)
        current = problem.logarithms(gp.kernel, gp.noise_variance)
        start = np.clip(current, *problem.bounds.T)
        warnings: tuple[str, ...] = ()
        if np.any(start != current):
            warnings = ("started from the nearest values within the bounds",)
        found = minimise(
            problem.cost,
            start,
            problem.bounds,
            max_iterations=settings.max_updates,
            max_evaluations=MAX_EVALUATIONS_PER_UPDATE * settings.max_updates,
            min_gain=settings.tolerance * len(problem.targets),
        )
        kernel, noise_variance = problem.kernel_and_noise(found.x)
        warnings = (*warnings, *problem.warnings(found.x))
        try:
            adapted = gp.with_hyperparameters(kernel, noise_variance, all_samples)
        except UserError as error:
            adapted = gp
            kernel = gp.kernel
            noise_variance = gp.noise_variance
            warnings = (*warnings, f"the hyper-parameters were kept, because {error}")
        self.estimates.append(
            Estimate(
                sample=self._n_seen + self._n_left_out,
                reason=reason,
                statistic=self._mean_square(),
                n_errors=len(self._squares),
                log_density_before=problem.prior(start)[0] - found.cost_at_start,
                log_density_after=problem.prior(found.x)[0] - found.cost,
                n_evaluations=found.n_evaluations,
                seconds=perf_counter() - begin,
                kernel=kernel,
                noise_variance=noise_variance,
                warnings=warnings,
            )
        )
        self._squares = np.zeros(0)
        self._n_revised = 0
        self._n_estimated = self._n_seen
        return adapted

    def _all_learned(self, gp: OnlineGP) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the inputs and targets of all samples that the GP learned, in order.

        Return None if the reservoir does not contain all of them, if the GP learns only stored
        samples, or if it forgets: then the samples do not have the same weight.
        """
        if gp.forgetting or not self._learns_every_sample:
            return None
        inputs, targets, numbers = self._sample.kept()
        n_learned = gp.n_seen - gp.repairs["outliers"]
        if len(targets) != n_learned:
            return None
        order = np.argsort(numbers)
        return inputs[order], targets[order]

    def problem(self, gp: OnlineGP) -> MarginalLikelihoodProblem:
        """Return the problem whose cost is minimised.

        The cost is minus ``log p(y_W | y_D)`` and minus the log priors, on the scale of D. If every
        sample is learned, it is minus the variational bound for W by D instead, on the scale of W.
        """
        order = gp.age_order
        inputs = gp.inputs[order]
        targets = gp.targets[order]
        sample_inputs, sample_targets, numbers = self._sample.kept()
        if self._learns_every_sample:
            return VariationalProblem.of(self.settings, sample_inputs, sample_targets, inputs)
        is_given = ~np.isin(gp.sample_numbers[order], numbers)
        return replace(
            MarginalLikelihoodProblem.of(self.settings, inputs, targets),
            inputs=np.concatenate([inputs[is_given], sample_inputs]),
            targets=np.concatenate([targets[is_given], sample_targets]),
            n_given=int(is_given.sum()),
        )


@dataclass(frozen=True)
class Adaptive(MaximumAPosteriori):
    """`MaximumAPosteriori` on the first samples, repeated when the prediction errors contradict it.

    Every `interval` samples the squared standardised errors since the last estimate, at most the
    last `window` of them, are tested. If the hyper-parameters are right,

    ``sum_t e_t^2 / (v_t + noise_variance)  ~  chi-squared(n)``,

    with the prediction errors e and the latent variances v. If the sum is outside the two-sided
    interval of probability ``1 - significance``, the hyper-parameters are estimated again
    (`sysid.gp.adaptation.Adaptation`) from an unbiased sample of the stream and the points of the
    dictionary, with the priors and relative bounds of the first training. The cost per sample is
    bounded: there is at most one estimate per interval, and it takes at most `max_updates`
    iterations. If the hyper-parameters come from a whole record that is known in advance, they are
    kept while it is learned, unless `on_records`. With a linear part they are those of the largest
    variational bound of a model with a limited number of points, or, with `record_robust`, those of
    the exact Gaussian process with heavy-tailed noise.

    If every sample is learned, a model of a plant that was at rest is trained anew on `n_initial`
    samples once the plant moves (`sysid.gp.region.Departures`).
    """

    interval: int = 50  # samples between two tests of the errors
    #: probability that a test causes an estimate although the hyper-parameters are right
    significance: float = 1e-3
    window: int = 100  # largest number of errors in a test; they are the last ones
    #: samples of the stream that are kept to estimate from; None: 100, or 1000 if every sample is
    #: learned
    sample_size: int | None = None
    #: another estimate is made once this many points have entered since the last one; 0: never
    after_revised: int = 0
    max_updates: int = 20  # iterations of one estimate
    #: an estimate ends if an iteration gains less than this [nats per sample]
    tolerance: float = 1e-4
    #: whether to re-estimate also while learning the record that gave the hyper-parameters
    on_records: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, interval=1, window=1, after_revised=0, max_updates=1)
        if self.sample_size is not None:
            check_counts(self, sample_size=2)
        for name in ("interval", "sample_size"):
            n_kept = getattr(self, name) or 0
            if n_kept > MAX_KEPT_SAMPLES:
                raise UserError(
                    f"{self._name}: {name} must be at most {MAX_KEPT_SAMPLES} samples, which are "
                    f"kept in memory, got {n_kept}"
                )
        for name in ("significance", "tolerance"):
            value = getattr(self, name)
            if not 0 < as_number(value) < 1:
                raise UserError(
                    f"{self._name}: {name} must be a number between 0 and 1, got {value!r}"
                )

    def _know_likeliest(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
        near: Hyperparameters | None = None,
    ) -> Start:
        """Return the start of `MaximumLikelihood`.

        With a linear part the hyper-parameters are then improved (`_improve`), unless
        `record_robust`: the variational bound is that of Gaussian noise, and would make the large
        errors count again. They are kept while the record is learned, unless `on_records`. The
        hyper-parameters `near` of nearly the same samples are improved at once.
        """
        is_improved = bool(self.kernel.linear_lags) and not self.record_robust
        if is_improved and near is not None:
            scaling, chosen_mean = self._scaling_and_mean(regressors, targets, mean)
            start = Start(scaling=scaling, mean=chosen_mean, hyperparameters=near)
            start = self._improve(start, regressors, targets, seed, has_other_starts=False)
        else:
            start = super()._know_likeliest(regressors, targets, mean=mean, seed=seed, near=near)
            if is_improved:
                start = self._improve(start, regressors, targets, seed)
        return start._replace(stays=not self.on_records)

    def _improve(
        self,
        start: Start,
        regressors: np.ndarray,
        targets: np.ndarray,
        seed: int,
        *,
        has_other_starts: bool = True,
    ) -> Start:
        """Return the start with hyper-parameters that suit a model with a limited number of points.

        The hyper-parameters of an exact Gaussian process may have length scales that are too short
        for few points: between them nothing but the linear part would be left. The variational
        bound (`VariationalProblem`) with `N_RECORD_POINTS` points accounts for that. Points and
        samples are spread over the record.
        """
        assert start.scaling is not None
        assert start.mean is not None
        assert start.hyperparameters is not None
        inputs = start.scaling.transform(regressors)
        residuals = targets - start.mean(regressors)
        n = len(targets)
        n_used = min(n, self.sample_size or DEFAULT_SAMPLE_SIZE_EVERY_SAMPLE)
        used = np.arange(n_used) * n // n_used
        n_points = min(n, N_RECORD_POINTS)
        points = inputs[np.arange(n_points) * n // n_points]
        settings = replace(
            self,
            length_scale_prior_median=self.record_length_prior_median,
            length_scale_prior_std=self.record_length_prior_std,
        )
        problem = VariationalProblem.of(settings, inputs[used], residuals[used], points)
        starts = [problem.start_at(start.hyperparameters)]
        if has_other_starts:
            starts += problem.starts(1, np.random.default_rng(seed))
        optima = [
            minimise(
                problem.cost,
                x,
                problem.bounds,
                max_iterations=self.max_iterations,
                min_gain=max(self.min_gain, RECORD_TOLERANCE * n_used),
            )
            for x in starts
        ]
        best = min(optima, key=lambda optimum: optimum.cost)
        kernel, noise_variance = problem.kernel_and_noise(best.x)
        bound = problem.log_likelihood(best.x).value
        found = Hyperparameters(kernel, noise_variance, bound, problem.warnings(best.x))
        return start._replace(hyperparameters=found)

    def follow(self, seed: int) -> Adaptation:
        """Return an adaptation whose unbiased sample is drawn with this seed."""
        return Adaptation(self, seed)
