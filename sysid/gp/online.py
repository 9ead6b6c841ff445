"""Online Gaussian process with a fixed budget of points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from sysid.arrays import check_instances, check_whole, matrix, member, rows, vector
from sysid.errors import UserError, UserTypeError
from sysid.exclusive import Exclusive, exclusive
from sysid.gp import block_learning, dictionary, outlier_decisions
from sysid.gp.block_learning import Block
from sysid.gp.dictionary import RECORD_DTYPE, Dictionary, Rules, UpdateReport
from sysid.gp.factors import (
    carry_over,
    factorise,
    forget,
    is_within_prior,
    put_factors,
    relative_inconsistency,
    scale_state,
)
from sysid.gp.kernels import Kernel
from sysid.gp.linear_part import WithLinearPart
from sysid.gp.marginal_likelihood import LeaveOneOut
from sysid.gp.outlier_decisions import Features, Lags, NextRow, OpeningState, Rows
from sysid.gp.rules import (
    AcceptAll,
    Acceptance,
    Always,
    Criterion,
    Insertion,
    Learning,
    MarginalLogLikelihood,
    at_least,
)

#: Smallest noise variance, relative to the prior variance at a point whose features are all 1.
#: Points far from the origin may have a larger prior variance, up to the limit that
#: `dictionary.MIN_DIAGONAL_RATIO` sets.
MIN_NOISE_RATIO = 1e-8

#: Triangular factors of a `Dictionary` that `OnlineGP.state` returns and `OnlineGP.restore` takes.
FACTOR_NAMES = ("cholesky", "factor")

#: Vectors of a `Dictionary`, in order of age, that `OnlineGP.state` returns and `OnlineGP.restore`
#: takes.
AGE_ORDERED_VECTORS = ("pivots", "whitened", "weights", "precision")

#: Counters that an online GP keeps itself, beside those of its dictionary.
OWN_COUNTERS = ("refactorisations", "renewals", "clipped_predictions")

#: Number of samples that one product of matrices predicts. The last block is padded to this size,
#: so that the bits of a prediction do not depend on how many samples follow it.
PREDICTION_BLOCK_ROWS = 64

#: Smallest number of samples that one step of `OnlineGP.absorb` learns.
MIN_ABSORPTION_BLOCK_ROWS = 512

#: Prior mean of a single sample, if the model has no mean function.
ZERO_PRIOR_MEAN = np.zeros(1)

#: Settings of an online GP that are objects, and the class of each.
CLASS_OF_SETTING = {
    "kernel": Kernel,
    "insertion": Insertion,
    "acceptance": Acceptance,
    "reduction": Criterion,
}

#: Settings of an online GP, which are fixed once it is made.
FIXED_SETTINGS = (
    *CLASS_OF_SETTING,
    "noise_variance",
    "budget",
    "learning",
    "scale",
    "forgetting",
    "gate",
    "gate_opens_after",
)

#: Largest number of points. Their covariance and its factors take some 10 GB.
MAX_BUDGET = 20_000

#: Fraction of the noise variance that is added to the diagonal of the points' covariance if every
#: sample is learned. It keeps the Cholesky factor well conditioned.
DIAGONAL_TO_NOISE = 0.01

#: The scale of all variances is a running mean. It starts as if it were the mean of this many
#: samples.
INITIAL_SCALE_MEMORY = 20

#: Largest number of samples that the running mean of the scale remembers.
MAX_SCALE_MEMORY = 1000

#: Smallest budget of points.
MIN_BUDGET = 2

#: The inputs of the samples between this many steps of forgetting decide what is forgotten.
RECENT_STEPS = 2

#: `OnlineGP.exact_form` treats at least this fraction of the prior variance as known.
MIN_KNOWN_FRACTION = 1e-12

#: E[min(z^2, 9)] of a standard normal z; 9 is `dictionary.MAX_STANDARDISED_SQUARE`.
EXPECTED_CLIPPED_SQUARE = 0.9950


class PosteriorDraws(NamedTuple):
    """Draws of what an online GP has learned; each column is one draw."""

    coefficients: np.ndarray  # (n_linear, n_draws) of the linear part
    targets: np.ndarray  # (n_points, n_draws) values of the stored points, by slot


class Projected(NamedTuple):
    """Inputs as `OnlineGP.covariance` needs them, projected on what the GP has learned."""

    features: np.ndarray  # (m, d) of the kernel of the points
    on_points: np.ndarray  # (n_points, m) U'^-1 k
    #: (n_linear + n_points, m) R phi of a GP that learns from every sample; else (0, m)
    learned: np.ndarray

    def part(self, rows: slice) -> Projected:
        """Return some of the inputs."""
        return Projected(self.features[rows], self.on_points[:, rows], self.learned[:, rows])


class _Basis(NamedTuple):
    """What maps samples to the whitened coordinates of the points and of the linear part."""

    points: np.ndarray  # (n_points, d) by age
    upper: np.ndarray  # (n_points, n_points) U
    linear_root: np.ndarray  # (n_linear, n_linear) C'


class OnlineGP(Exclusive):
    """Zero-mean GP regression that learns from a stream and keeps at most `budget` points.

    Posterior at x*, with ``Ky = K + noise_variance I`` over the stored points (section 2 of Wietzke
    and Graichen, "Comparison of Data Reduction Criteria for Online Gaussian Processes")::

        mean     = k*' Ky^-1 y
        variance = k(x*, x*) - k*' Ky^-1 k*          (latent: without the noise)

    Each sample is predicted first. Then algorithm 1 of the paper decides about it: the insertion
    rule drops it or makes it a candidate. A candidate is stored while there is room. In a full
    dictionary it replaces the stored point of lowest reduction score, if the acceptance rule
    accepts it. A replacement costs O(N^2) operations, and memory is O(N^2). Targets and thresholds
    are in the target's own units.

    This is ``learning="stored"``: only stored samples are learned. With
    ``learning="every_sample"`` the points are chosen in the same way, but every sample, stored or
    not, updates the posterior of the function at the stored points (`sysid.gp.dictionary`), also at
    O(N^2) operations. In that case the kernel and noise variances follow a running mean of the
    squared standardised errors, which does not change the predicted means.

    With a linear part (`WithLinearPart`), which takes ``learning="every_sample"``, the posterior of
    its coefficients is learned jointly with that of the values at the points, and predictions add
    both parts. The points, and all criteria, concern the Gaussian process alone.

    Every method holds the `lock` of the object while it runs, so that several threads may use one
    GP. Hold it yourself where several calls belong together: ``with gp.lock: ...``.

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        At least 1e-8 of the kernel's prior variance (at features of one, where it depends on them),
        and 1e-13 of it at every sample; below that double precision cannot hold the factor.
    budget : int
        Largest number of points N >= 2.
    insertion : Insertion, default `Always`
    acceptance : Acceptance, default `AcceptAll`
    reduction : Criterion, default `MarginalLogLikelihood`
    learning : Learning or its name, default ``stored``
    scale : bool, default True
        Whether the variances follow the prediction errors, except those of samples that repeat the
        one before: a plant at rest shows no errors. It has an effect only if every sample is
        learned.
    forgetting : float, optional
        Memory T >= 2 in samples, for a plant that changes; None: nothing is forgotten. Without
        forgetting, predictions of a plant that drifts for a long time get worse and worse: all
        criteria except the entropies keep surprising points, and these describe the plant as it
        was; with an acceptance rule the entropies keep them too. If every sample is learned, the
        posterior returns towards the prior so fast that predictions are those of the last T
        samples, but only where the recent inputs excite the plant (`sysid.gp.factors.forget`). A
        drift by one noise standard deviation in T samples then costs about one noise variance.
        Without a drift the squared errors rise by about d/(2T), for d directions that the samples
        determine. Steps are taken after every `budget` samples (plus the number of linear
        coefficients); a memory that is shorter is not reached. If only stored samples are learned,
        the criterion multiplies its score by ``exp(-age/T)``.
    gate : float, optional
        Outlier test: largest standardised error, at least 1, of a sample that is learned. A sample
        beyond it is an outlier: it is predicted and counted, but not learned. None: every sample is
        learned.
    gate_opens_after : int, default 4
        The plant is taken to have changed after this many outliers in a row, or once the outliers
        exceed a fifth of the usual samples between them by this number. The gate is then open:
        every sample is learned, until one passes the test again. NARX models use ``2 (n_y + 1)``.

    Examples
    --------
    >>> import numpy as np
    >>> from sysid import OnlineGP, SquaredExponential
    >>> gp = OnlineGP(SquaredExponential(1.0, [0.5]), noise_variance=1e-4, budget=20)
    >>> for x in np.linspace(-1, 1, 50):
    ...     report = gp.update([x], np.sin(3 * x))
    >>> report.accepted, gp.n_points
    (True, 20)
    >>> mean, variance = gp.predict([[0.3]])
    >>> bool(abs(mean[0] - np.sin(0.9)) < 0.01)
    True
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        noise_variance: float,
        budget: int,
        insertion: Insertion | None = None,
        acceptance: Acceptance | None = None,
        reduction: Criterion | None = None,
        learning: Learning | str = Learning.stored,
        scale: bool = True,
        forgetting: float | None = None,
        gate: float | None = None,
        gate_opens_after: int = 4,
    ) -> None:
        self._renew_lock()
        check_whole(budget, MIN_BUDGET, "OnlineGP: budget", below=MAX_BUDGET + 1)
        check_whole(gate_opens_after, 1, "OnlineGP: gate_opens_after")
        self.gate_opens_after = int(gate_opens_after)
        self.forgetting = at_least(2.0, forgetting, "OnlineGP: forgetting")
        self.gate = at_least(1.0, gate, "OnlineGP: gate")
        self.learning = member(Learning, learning, "OnlineGP: learning")
        if not isinstance(scale, bool):
            raise UserTypeError(f"OnlineGP: scale must be True or False, got {scale!r}")
        self.scale = scale
        self.kernel = kernel
        self._check_linear_part()
        self.budget = int(budget)
        self.insertion = Always() if insertion is None else insertion
        self.acceptance = AcceptAll() if acceptance is None else acceptance
        self.reduction = MarginalLogLikelihood() if reduction is None else reduction
        self._check_setting_classes()
        self._check_criterion_can_forget()
        try:
            self.noise_variance = float(noise_variance)
        except (TypeError, ValueError):
            raise UserTypeError(
                f"OnlineGP: noise_variance must be a number, got {noise_variance!r}"
            ) from None
        self.n_refactorisations = 0
        self.n_renewals = 0
        self.n_clipped_predictions = 0
        self.n_features = kernel.n_features
        no_inputs = np.zeros((0, self.n_features))
        self._check_noise_variance(self._largest_prior_variance(no_inputs))
        try:
            self._state = self._new_state(no_inputs, np.zeros(0), self.budget)
        except MemoryError as error:
            raise UserError(
                f"OnlineGP: budget={self.budget} needs more memory than there is ({error}); "
                "take fewer points"
            ) from error
        self._rules = self._compile_rules()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED_SETTINGS and name in vars(self):
            raise AttributeError(
                f"OnlineGP: {name} is fixed, because the stored points were chosen with it; make "
                "another OnlineGP and fit it to the `inputs` and `targets` of this one (for other "
                "hyper-parameters: with_hyperparameters)"
            )
        super().__setattr__(name, value)

    def _check_setting_classes(self) -> None:
        """Raise `UserTypeError` if the kernel or a rule is not an instance of its class."""
        check_instances(self, CLASS_OF_SETTING)

    def _check_linear_part(self) -> None:
        """Raise `UserError` if there is a linear part and only stored samples are learned."""
        has_linear_part = isinstance(self.kernel, WithLinearPart)
        if has_linear_part and not self.learns_every_sample:
            raise UserError(
                "OnlineGP: a linear part needs learning='every_sample': the samples that are not "
                "stored determine its coefficients; leave it out, or learn every sample"
            )

    def _check_criterion_can_forget(self) -> None:
        """Raise `UserError` if forgetting needs the gain of a criterion that defines none."""
        needs_gain = self.forgetting and not self.learns_every_sample
        if needs_gain and type(self.reduction).gain is Criterion.gain:
            raise UserError(
                "OnlineGP: forgetting weighs the gain of a point by its age, but "
                f"{type(self.reduction).__name__} defines no gain; give it a static method gain "
                "with the arguments of reduction, or take another reduction, "
                "learning='every_sample', or forgetting=None"
            )

    def _check_noise_variance(self, prior_variance: float) -> None:
        """Raise `UserError` if the noise variance is too small beside the prior variance."""
        least = MIN_NOISE_RATIO * prior_variance
        # a limit that was rounded elsewhere must be accepted
        if not least * (1 - 1e-9) <= self.noise_variance < np.inf:
            raise UserError(
                f"OnlineGP: noise_variance must be at least {MIN_NOISE_RATIO:g} of the kernel's "
                f"variance ({least:g}), got {self.noise_variance}; below that double precision "
                "cannot hold the factor"
            )

    def _compile_rules(self) -> Rules:
        """Return the settings in the form that the compiled functions take."""
        memory = self.forgetting or 0.0
        forgets = memory > 0.0
        weighs_age = forgets and not self.learns_every_sample
        returns_to_prior = forgets and self.learns_every_sample
        criterion = self.reduction
        reduction = criterion.gain_address if weighs_age else criterion.reduction_address
        sums_squared_errors = (self.learns_every_sample and self.scale) or self.gate is not None
        # parameters of integers would make numba compile everything a second time
        insertion_parameters = np.asarray(self.insertion.parameters(), dtype=float)
        return Rules(
            kernel=self.kernel.address,
            **self._scaled_rules(),
            every_sample=self.learns_every_sample,
            scale=sums_squared_errors,
            age_memory=memory if weighs_age else 0.0,
            forget_interval=self._forget_interval if returns_to_prior else 0,
            gate=self.gate or 0.0,
            gate_opens_after=self.gate_opens_after,
            insertion=self.insertion.address,
            insertion_parameters=insertion_parameters,
            acceptance=self.acceptance.address,
            reference=self.acceptance.code,
            reduction=reduction,
        )

    def _scaled_rules(self) -> dict[str, Any]:
        """Return the fields of `Rules` that change with the scale of the variances."""
        return {
            "kernel_parameters": self.kernel.parameters(),
            "linear_root": self._linear_root,
            "noise_variance": self.noise_variance,
            "diagonal": self.diagonal,
            "tolerance": self._tolerance(self.inputs),
        }

    @property
    def point_kernel(self) -> Kernel:
        """Kernel of the process that the points describe: `kernel` without its linear part."""
        return self.kernel.kernel if isinstance(self.kernel, WithLinearPart) else self.kernel

    @property
    def n_linear(self) -> int:
        """Number of features of the linear part, which are the last ones; 0 without one."""
        return sum(self.kernel.linear_lags)

    @property
    @exclusive
    def coefficients(self) -> np.ndarray:
        """Posterior mean of the coefficients of the linear part (n_linear,)."""
        return np.asarray(self._rules.linear_root.T @ self._state.whitened[: self.n_linear])

    @property
    @exclusive
    def coefficient_covariance(self) -> np.ndarray:
        """Posterior covariance of the coefficients of the linear part (n_linear, n_linear).

        ``cov(theta) = C S C'`` with the prior ``C C' = P`` and the posterior covariance S of the
        whitened coefficients, the first n_linear rows and columns of ``M'M``.
        """
        n = self.n_linear
        # M is upper triangular: its rows after n_linear are zero in the first n_linear columns
        root = np.triu(self._state.root[:n, :n]) @ self._rules.linear_root
        return np.asarray(root.T @ root)

    def whiten_lags(self, inputs: np.ndarray) -> np.ndarray:
        """Return ``C'phi`` (n, n_linear) of the linear part's features phi of inputs.

        The inputs have shape (n, n_features). A priori, the linear part has the covariance
        ``(C'phi)'(C'phi')``.
        """
        return np.asarray(inputs[:, self.n_features - self.n_linear :] @ self._rules.linear_root.T)

    @property
    def _linear_root(self) -> np.ndarray:
        """Root C' (n_linear, n_linear) of the prior covariance of the linear part."""
        if isinstance(self.kernel, WithLinearPart):
            return np.ascontiguousarray(self.kernel.linear.root().T)
        return np.zeros((0, 0))

    def _point_features(self, inputs: np.ndarray) -> np.ndarray:
        """Return the features (n, d) of `point_kernel` of inputs (n, n_features)."""
        return inputs[:, : self.n_features - self.n_linear]

    @property
    def learns_every_sample(self) -> bool:
        """Whether samples are learned even if they are not stored."""
        return self.learning is Learning.every_sample

    @property
    def diagonal(self) -> float:
        """Variance that is added to the diagonal of the points' covariance K.

        It is the noise variance, or a hundredth of it if every sample is learned.
        """
        return self.noise_variance * (DIAGONAL_TO_NOISE if self.learns_every_sample else 1.0)

    @property
    def gate_is_open(self) -> bool:
        """Whether the next sample is learned in any case, after too many outliers."""
        return bool(self._state.errors[dictionary.OUTLIER_LEVEL] >= self.gate_opens_after)

    @property
    def _forget_interval(self) -> int:
        """Number of samples between two steps of forgetting.

        One step costs O(n^3) for n coordinates, which the interval spreads over n samples.
        """
        return self.budget + self.n_linear

    @property
    def unreached_memory(self) -> str:
        """Why the memory `forgetting` is not reached, and what reaches it; empty if it is."""
        interval = self._forget_interval
        if self.forgetting is None or not self.learns_every_sample or self.forgetting >= interval:
            return ""
        sizes = f"{self.budget} points"
        options = [f"forgetting={interval} or more"]
        if self.n_linear:
            sizes += f" and {self.n_linear} coefficients of the linear part"
        budget = int(self.forgetting) - self.n_linear
        if budget >= MIN_BUDGET:
            options.append(f"budget={budget}")
        elif self.n_linear and int(self.forgetting) >= MIN_BUDGET:
            options.append(f"linear_part=none and budget={int(self.forgetting)}")
        return (
            f"forgetting={self.forgetting:g}: a memory of fewer than {interval} samples is not "
            f"reached, because a step of forgetting follows after as many samples as there are "
            f"{sizes}: take {', or '.join(options)}"
        )

    def _largest_prior_variance(self, inputs: np.ndarray) -> float:
        """Return the largest ``k(x, x)`` at inputs (n, p), at the origin and at features of one."""
        origin_and_ones = np.outer([0.0, 1.0], np.ones(self.n_features))
        points = np.concatenate([origin_and_ones, inputs])
        return float(self.point_kernel.diagonal(self._point_features(points)).max())

    def _tolerance(self, inputs: np.ndarray) -> float:
        """Return the largest drift of the factors that needs no repair.

        It grows with a bound on the condition number of the covariance of the inputs (n, p).
        """
        condition = self.budget * self._largest_prior_variance(inputs) / self.diagonal
        return float(1e-10 + 10.0 * np.finfo(float).eps * condition)

    def _new_state(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        capacity: int,
        learning: Learning | None = None,
    ) -> Dictionary:
        """Return a state with room for `capacity` points that holds the given ones.

        It has their exact covariance. The factors are missing: `factorise` computes them. If every
        sample is learned, the posterior is the prior, ``M = I``.
        """
        n = len(targets)
        size = capacity + 1
        every_sample = (learning or self.learning) is Learning.every_sample
        diagonal = self.diagonal if every_sample else self.noise_variance
        n_coordinates = size + (self.n_linear if every_sample else 0)
        n_recent = RECENT_STEPS * self._forget_interval if every_sample and self.forgetting else 0
        state = Dictionary(
            inputs=np.zeros((self.n_features, capacity)),
            targets=np.zeros(capacity),
            covariance=np.zeros((capacity, capacity)),
            order=np.arange(capacity),
            triangles=np.zeros((size, size + 1)),
            pivots=np.zeros(size),
            whitened=np.zeros(n_coordinates),
            weights=np.zeros(size),
            precision=np.zeros(size),
            work=np.zeros((dictionary.N_WORK_ROWS, n_coordinates + 1)),
            counts=np.zeros(dictionary.N_COUNTS, dtype=np.int64),
            minimum=np.zeros(1),
            number=np.full(capacity, -1),
            root=np.eye(n_coordinates if every_sample else 0),
            errors=np.zeros(dictionary.N_ERRORS),
            recent_inputs=np.full((n_recent, self.n_features), np.nan),
            last_sample=np.full(self.n_features + 1, np.nan),
        )
        state.errors[dictionary.SCALE_MEMORY] = INITIAL_SCALE_MEMORY
        state.errors[dictionary.ERROR_SCALE] = 1.0
        if every_sample:
            points = self._point_features(inputs)
            covariance = self.point_kernel(points, points)
        else:
            covariance = self.kernel(inputs, inputs)
        state.inputs[:, :n] = inputs.T
        state.targets[:n] = targets
        state.covariance[:n, :n] = covariance
        state.covariance[np.arange(n), np.arange(n)] += diagonal
        state.counts[dictionary.N_STORED] = n
        state.counts[dictionary.N_DUPLICATES] = _count_near_duplicates(covariance)
        state.counts[dictionary.MINIMUM_IS_STALE] = 1
        return state

    @exclusive
    def __getstate__(self) -> dict[str, object]:
        content = super().__getstate__()
        del content["_rules"]  # they contain addresses, which hold in one process only
        # copies, because another thread may go on learning while these are written
        content["_state"] = Dictionary(*map(np.copy, self._state))
        return content

    def __setstate__(self, content: dict[str, object]) -> None:
        super().__setstate__(content)
        # copies, because joblib maps large arrays read-only
        self._state = Dictionary(*map(np.array, self._state))
        self._rules = self._compile_rules()

    def __repr__(self) -> str:
        return (
            f"OnlineGP({self.kernel}, noise_variance={self.noise_variance:g}, "
            f"{self.n_points} of {self.budget} points, learning={self.learning.value}, "
            f"insertion={self.insertion}, acceptance={self.acceptance}, "
            f"reduction={self.reduction})"
        )

    @property
    def n_points(self) -> int:
        """Number of stored points."""
        return int(self._state.counts[dictionary.N_STORED])

    @property
    def n_seen(self) -> int:
        """Number of samples seen, learned or not."""
        return int(self._state.counts[dictionary.N_SEEN])

    @property
    @exclusive
    def inputs(self) -> np.ndarray:
        """Inputs of the stored points (n_points, n_features), by slot."""
        return np.ascontiguousarray(self._state.inputs[:, : self.n_points].T)

    @property
    @exclusive
    def point_inputs(self) -> np.ndarray:
        """Features of the stored points that `point_kernel` takes (n_points, d), by slot."""
        return np.ascontiguousarray(self._point_features(self.inputs))

    @property
    @exclusive
    def targets(self) -> np.ndarray:
        """Targets of the stored points (n_points,), by slot."""
        return self._state.targets[: self.n_points].copy()

    @property
    @exclusive
    def age_order(self) -> np.ndarray:
        """Slots of the stored points from the oldest to the youngest."""
        return self._state.order[: self.n_points].copy()

    @property
    @exclusive
    def sample_numbers(self) -> np.ndarray:
        """Number of the sample that each stored point was, by slot.

        Samples are numbered from 0 in the order in which they were seen; -1 if the number is not
        known.
        """
        return self._state.number[: self.n_points].copy()

    @property
    @exclusive
    def repairs(self) -> dict[str, int]:
        """Numbers of numerical repairs and irregular samples so far.

        ``refactorisations``: times that the factors had drifted and were computed from scratch;
        ``renewals``: times that they were computed from scratch on schedule; ``clipped_variances``:
        variances that rounding had made negative; ``near_duplicates``: points that equalled a
        stored point in all features when they entered; ``outliers``: samples beyond the gate, which
        were not learned.
        """
        counts = self._state.counts
        return {
            "refactorisations": self.n_refactorisations,
            "renewals": self.n_renewals,
            "clipped_variances": int(counts[dictionary.N_CLIPPED]) + self.n_clipped_predictions,
            "near_duplicates": int(counts[dictionary.N_DUPLICATES]),
            "outliers": int(counts[dictionary.N_OUTLIERS]),
        }

    @exclusive
    def counts(self) -> dict[str, int]:
        """Return all counters by the names that files use.

        The counters of the dictionary come first, then `OWN_COUNTERS`.
        """
        dictionary_counts = self._state.counts.tolist()
        counts = dict(zip(dictionary.COUNT_NAMES, dictionary_counts, strict=True))
        for name in OWN_COUNTERS:
            counts[name] = getattr(self, f"n_{name}")
        return counts

    @exclusive
    def fit(
        self,
        inputs: ArrayLike,
        targets: ArrayLike,
        *,
        numbers: ArrayLike | None = None,
        n_seen: int | None = None,
    ) -> OnlineGP:
        """Replace everything learned so far by these samples, and return this object.

        All samples are stored if the budget allows it. Otherwise the reduction criterion chooses
        which to keep. If every sample is learned, the samples that are not stored are learned, too.

        Parameters
        ----------
        inputs : (n, n_features)
        targets : (n,)
        numbers : (n,) of int, optional
            Numbers of the samples in a stream (`sample_numbers`); by default 0 to n - 1.
        n_seen : int, optional
            Number of samples of that stream so far, which the next sample gets as its number; by
            default n, or one more than the largest of the numbers.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        sample_numbers, n_seen = _number_samples(len(x), numbers, n_seen)
        self._check_prior(x)
        if len(x) <= self.budget:
            state = self._new_state(x, y, self.budget)
            state.number[: len(x)] = sample_numbers
        else:
            state = self._reduced_state(x, y, sample_numbers, n_seen)
        state.counts[dictionary.N_SEEN] = n_seen
        factorise(state)
        self._state = state
        self._rules = self._compile_rules()
        self.absorb(x, y)
        self.n_refactorisations = 0
        self.n_renewals = 0
        self.n_clipped_predictions = 0
        return self

    def _reduced_state(
        self, x: np.ndarray, y: np.ndarray, sample_numbers: np.ndarray, n_seen: int
    ) -> Dictionary:
        """Return a state without factors whose points the reduction criterion has chosen.

        There are more samples (n, n_features), (n,) than the budget allows. Their numbers (n,) and
        n_seen are those of `fit`.
        """
        candidates = self._new_state(x, y, len(x), Learning.stored)
        candidates.number[:] = sample_numbers
        candidates.counts[dictionary.N_SEEN] = n_seen
        factorise(candidates)
        stored_rules = self._rules._replace(diagonal=self.noise_variance, every_sample=False)
        dictionary.reduce(stored_rules, candidates, self.budget)
        n = int(candidates.counts[dictionary.N_STORED])
        state = self._new_state(candidates.inputs[:, :n].T, candidates.targets[:n], self.budget)
        state.order[:] = candidates.order[: self.budget]
        state.number[:] = candidates.number[: self.budget]
        return state

    @exclusive
    def absorb(self, inputs: ArrayLike, targets: ArrayLike) -> None:
        """Learn samples (n, n_features), (n,) without storing them.

        Nothing happens if only stored samples are learned. Samples are learned block by block, with
        phi, g2 and M as in `sysid.gp.dictionary` and ``D = noise_variance I + diag(g2)``::

            I + M phi D^-1 phi'M' = R R',   M <- R^-1 M
            b += M'M phi D^-1 (y - phi'b)   with the new M

        Raises
        ------
        ValueError
            As `update`. Nothing has been learned then.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        self._check_prior(x)
        n = self.n_linear + self.n_points
        state = self._state
        if not self.learns_every_sample or n == 0:
            return
        root = np.triu(state.root[:n, :n])
        b = state.whitened[:n]
        basis = self._basis()
        # a block costs O(n^3), however few samples it has
        for block in _blocks(len(x), max(MIN_ABSORPTION_BLOCK_ROWS, n)):
            phi, residual = self._project(x[block], basis)
            precision = 1.0 / (self.noise_variance + np.maximum(residual, 0.0))
            image = root @ phi
            R = _upper_factor(np.eye(n) + (image * precision) @ image.T)
            error = precision * (y[block] - b @ phi)
            root = np.triu(solve_triangular(R, root, check_finite=False))
            b += root.T @ (root @ (phi @ error))
        state.root[:n, :n] = root

    @exclusive
    def is_beyond_gate(self, error: float, variance: float) -> bool:
        """Return whether a sample is an outlier, by its prediction error and latent variance.

        Such a sample is not learned while the gate is closed.
        """
        return bool(outlier_decisions.is_beyond_gate(*self.gate_numbers, error, variance))

    @exclusive
    def width_of_gate(self, variance: float) -> float:
        """Return the largest prediction error that is no outlier, by the latent variance."""
        return outlier_decisions.gate_width(*self.gate_numbers, variance)

    @property
    def gate_numbers(self) -> tuple[float, float, float]:
        """Gate, noise variance, and the scale of all variances that the gate compares with."""
        scale = float(self._state.errors[dictionary.ERROR_SCALE])
        return self._rules.gate, self.noise_variance, scale

    @exclusive
    def refutes(
        self,
        features: Features,
        lags: Lags,
        rows: Rows,
        row: int,
        cells: np.ndarray,
        errors: np.ndarray,
        next_row: NextRow,
    ) -> bool:
        """Return whether a row shows that the measurement before it was wrong.

        See `sysid.gp.outlier_decisions.refutes`, which also leaves the predictions in `next_row`.
        """
        is_wrong = outlier_decisions.refutes(
            *map(tuple, (self._rules, self._state, features, lags, rows)),
            row,
            cells,
            errors,
            tuple(next_row),
        )
        if next_row.n_clipped[0]:
            self.n_clipped_predictions += int(next_row.n_clipped[0])
        return bool(is_wrong)

    @exclusive
    def look_ahead(self, features: Features, lags: Lags, rows: Rows, opening: OpeningState) -> int:
        """Compare the next rows of a block with both predictions, until one of them decides.

        See `sysid.outliers.Opening`. Return the number of variances that were clipped at 0.
        """
        named_tuples = (self._rules, self._state, features, lags, rows, opening)
        return int(outlier_decisions.look_ahead_from_python(*map(tuple, named_tuples)))

    @exclusive
    def close_gate(self) -> None:
        """Close the gate: outliers are refused again from the next sample on."""
        self._state.errors[dictionary.OUTLIER_LEVEL] = 0.0

    @exclusive
    def withhold(
        self,
        x: np.ndarray,
        y: np.ndarray,
        prior_mean: np.ndarray,
        record: np.ndarray | None = None,
    ) -> np.ndarray:
        """Predict one sample (1, n_features), (1,) as `learn` does, but do not learn it.

        It counts as an outlier only if it is beyond the gate. The record is written to `record`
        (1,), or to a new one.
        """
        rules = self._rules
        errors = self._state.errors
        self._rules = rules._replace(gate=dictionary.GATE_REFUSES_ALL)
        try:
            record = self.learn(x, y, prior_mean, until_outlier=True, record=record)
        finally:
            self._rules = rules
        is_outlier = self.is_beyond_gate(y[0] - record["mean"][0], record["variance"][0])
        record["outlier"] = is_outlier
        if is_outlier:
            self._state.counts[dictionary.N_OUTLIERS] += 1
            errors[dictionary.OUTLIER_LEVEL] += 1.0
        return record

    @exclusive
    def believe(
        self,
        x: np.ndarray,
        y: np.ndarray,
        prior_mean: np.ndarray,
        *,
        was_outlier: bool = True,
        opens: bool = True,
    ) -> np.ndarray:
        """Accept the last sample (1, n_features), (1,) after all: `learn` it and return its record.

        It had been predicted but not learned, as an outlier or by `withhold`. With `opens` the
        plant is taken to have changed: the gate opens, and stays open until a later sample passes
        the outlier test.
        """
        counts = self._state.counts
        errors = self._state.errors
        n_outliers = counts[dictionary.N_OUTLIERS]
        n_seen = counts[dictionary.N_SEEN]
        outlier_level = errors[dictionary.OUTLIER_LEVEL]
        if was_outlier:
            counts[dictionary.N_OUTLIERS] -= 1
        counts[dictionary.N_SEEN] -= 1
        if opens:
            errors[dictionary.OUTLIER_LEVEL] = self.gate_opens_after
        try:
            record = self.learn(x, y, prior_mean, is_predicted=True)
        except UserError:  # the sample was refused: nothing has been learned
            counts[dictionary.N_OUTLIERS] = n_outliers
            counts[dictionary.N_SEEN] = n_seen
            errors[dictionary.OUTLIER_LEVEL] = outlier_level
            raise
        if opens:
            self._state.errors[dictionary.OUTLIER_LEVEL] = self.gate_opens_after
        return record

    @exclusive
    def copy(self, into: OnlineGP | None = None) -> OnlineGP:
        """Return an independent online GP with the same settings, points and counts.

        It is `into`, an online GP that is not used any more, if its arrays have the same sizes:
        this saves the time of new memory.
        """
        content = Exclusive.__getstate__(self)
        if into is None or not into._has_sizes_of(self):
            content["_state"] = Dictionary(*(array.copy() for array in self._state))
            other = type(self).__new__(type(self))
            Exclusive.__setstate__(other, content)
            return other
        for target, source in zip(into._state, self._state, strict=True):
            target[...] = source
        content["_state"] = into._state
        vars(into).update(content)
        return into

    def _has_sizes_of(self, other: OnlineGP) -> bool:
        """Return whether the arrays of another online GP have the same sizes.

        Those of all arrays follow from these of three.
        """
        own = self._state
        others = other._state
        return (
            type(self) is type(other)
            and own.inputs.shape == others.inputs.shape
            and own.root.shape == others.root.shape
            and own.recent_inputs.shape == others.recent_inputs.shape
        )

    @exclusive
    def reduce_to(self, n_points: int) -> None:
        """Remove the point of lowest reduction score until `n_points` are left.

        This is the offline reduction of section 5 of the paper.
        """
        check_whole(n_points, 1, "reduce_to: n_points")
        if n_points > self.n_points:
            raise UserError(
                f"reduce_to: n_points must be at most {self.n_points}, the number of stored "
                f"points, got {n_points}"
            )
        dictionary.reduce(self._rules, self._state, int(n_points))
        factorise(self._state)

    @exclusive
    def predict(self, inputs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean (m,) and latent variance (m,) at inputs (m, n_features).

        Add `noise_variance` for the variance of a measured target.
        """
        x = matrix(inputs, self.n_features, "inputs")
        n = self.n_linear + self.n_points
        m = len(x)
        state = self._state
        if m < 2 or self.n_points == 0:
            return self.predict_few(x, is_checked=True)
        n_padded = math.ceil(m / PREDICTION_BLOCK_ROWS) * PREDICTION_BLOCK_ROWS
        mean = np.empty(n_padded)
        variance = np.empty(n_padded)
        if m < n_padded:
            x = np.concatenate([x, np.zeros((n_padded - m, self.n_features))])
        root = np.triu(state.root[:n, :n])
        basis = self._basis()
        for block in _blocks(n_padded, PREDICTION_BLOCK_ROWS):
            phi, latent = self._project(x[block], basis)
            n_samples = max(m - block.start, 0)  # rows of the block that are no padding
            self.n_clipped_predictions += int(np.count_nonzero(latent[:n_samples] < 0.0))
            mean[block] = state.whitened[:n] @ phi
            variance[block] = np.maximum(latent, 0.0)
            if self.learns_every_sample:
                variance[block] += np.square(root @ phi).sum(axis=0)
        return mean[:m], variance[:m]

    @exclusive
    def predict_few(
        self, inputs: ArrayLike, *, is_checked: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what `predict` returns, up to rounding, one input after the other.

        This takes less time than `predict` for fewer than about ten inputs (m, n_features). With
        `is_checked` they are a C-contiguous array of float64 that was checked, which takes time.
        """
        x = np.asarray(inputs) if is_checked else matrix(inputs, self.n_features, "inputs")
        mean = np.empty(len(x))
        variance = np.empty(len(x))
        n_clipped = dictionary.predict(self._rules, self._state, x, mean, variance)
        if n_clipped:
            self.n_clipped_predictions += n_clipped
        return mean, variance

    @exclusive
    def project(self, inputs: ArrayLike) -> Projected:
        """Return inputs (m, n_features) in the form from which `covariance` is computed."""
        x = matrix(inputs, self.n_features, "inputs")
        n = self.n_linear + self.n_points
        phi, _ = self._project(x, self._basis())
        learned = np.zeros((0, len(x)))
        if self.learns_every_sample:
            learned = np.triu(self._state.root[:n, :n]) @ phi
        return Projected(self._point_features(x), phi[self.n_linear :], learned)

    def covariance(self, first: Projected, second: Projected) -> np.ndarray:
        """Return the posterior covariance (m, n) of the function at two sets of inputs.

        With the projections ``phi_z = (C'phi_l, U'^-1 k)`` of `predict`, of which v is the part of
        the points, and the root R of what the samples have taught::

            cov(f(x), f(x')) = k(x, x') - v'v' + (R phi)'(R phi')

        The last term is absent if the GP learns from its stored points alone. The diagonal of the
        covariance of inputs with themselves is the variance of `predict`.
        """
        prior = self.point_kernel(first.features, second.features)
        known = first.on_points.T @ second.on_points
        return np.asarray(prior - known + first.learned.T @ second.learned)

    def _basis(self) -> _Basis:
        """Return what `_project` needs of the stored points and of the linear part."""
        n = self.n_points
        return _Basis(
            points=self._point_features(self.inputs[self.age_order]),
            upper=np.ascontiguousarray(self._state.cholesky[:n, :n]),
            linear_root=self._rules.linear_root,
        )

    def _project(self, inputs: np.ndarray, basis: _Basis) -> tuple[np.ndarray, np.ndarray]:
        """Return phi (n_linear + n_points, m) of inputs (m, p), and the variance left (m,).

        ``phi = (C'phi_l, U'^-1 k)``; the variance ``k(x, x) - |U'^-1 k|^2`` is what the points
        cannot represent.
        """
        x = self._point_features(inputs)
        phi = self.point_kernel(basis.points, x)
        if len(phi):
            phi = solve_triangular(
                basis.upper, phi, trans="T", overwrite_b=True, check_finite=False
            )
        residual = self.point_kernel.diagonal(x) - np.square(phi).sum(axis=0)
        if self.n_linear:
            lags = inputs[:, self.n_features - self.n_linear :]
            phi = np.concatenate([basis.linear_root @ lags.T, phi])
        return phi, residual

    @exclusive
    def gradient_covariance(self, inputs: ArrayLike) -> np.ndarray:
        """Return the posterior covariance (m, p, p) of ``df/dx`` at inputs (m, p).

        The derivatives of a Gaussian process are jointly Gaussian. With ``D = d phi / dx`` of the
        functions phi in `_project`, the covariance of f is ``phi'(M'M) phi`` and what the points
        cannot represent, so that::

            cov(df/dx) = D'M'M D + d^2 k / (dx dx') - D_k'D_k,   D_k = U'^-1 dk(Z, x)/dx

        Without learning of every sample the first term is zero. The coefficients of a linear part
        are part of it. The mean of the derivatives is `sysid.model.gradient.gradient_of`.

        Raises
        ------
        TypeError
            As `Kernel.gradient_covariance`.
        """
        x = matrix(inputs, self.n_features, "inputs")
        n_linear = self.n_linear
        d = self.n_features - n_linear
        size = n_linear + self.n_points
        root = np.triu(self._state.root[:size, :size])
        covariance = np.zeros((len(x), self.n_features, self.n_features))
        covariance[:, :d, :d] = self.point_kernel.gradient_covariance(self._point_features(x))
        for row, D in enumerate(self.whitened_slopes(x)):
            D_k = D[n_linear:, :d]
            covariance[row, :d, :d] -= D_k.T @ D_k
            if self.learns_every_sample:
                scaled = root @ D
                covariance[row] += scaled.T @ scaled
        return covariance

    @exclusive
    def whitened_functions(self, inputs: ArrayLike) -> np.ndarray:
        """Return the functions phi (q, m) at inputs (m, p) whose weights the GP has learned.

        ``f(x) = w'phi(x)`` and what the points cannot represent, with ``w ~ N(0, I)`` before
        anything is learned: the weights of the linear part, then those of the points.
        """
        phi, _ = self._project(matrix(inputs, self.n_features, "inputs"), self._basis())
        return phi

    @exclusive
    def whitened_slopes(self, inputs: ArrayLike) -> np.ndarray:
        """Return ``d phi / dx`` (m, q, p) of `whitened_functions` at inputs (m, p)."""
        x = matrix(inputs, self.n_features, "inputs")
        n_linear = self.n_linear
        d = self.n_features - n_linear
        basis = self._basis()
        slopes = np.zeros((len(x), n_linear + self.n_points, self.n_features))
        slopes[:, :n_linear, d:] = basis.linear_root
        if self.n_points:
            of_points = self.point_kernel.input_gradient(self._point_features(x), basis.points)
            for row, of_input in enumerate(of_points):
                slopes[row, n_linear:, :d] = solve_triangular(
                    basis.upper, of_input, trans="T", check_finite=False
                )
        return slopes

    @property
    def whitened_mean(self) -> np.ndarray:
        """Posterior mean (q,) of the weights of `whitened_functions`."""
        return self._state.whitened[: self.n_linear + self.n_points].copy()

    @exclusive
    def kernel_weights(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the function ``f(x) = w'phi(x)`` of `whitened_functions` as a sum of kernels.

        With weights (q,) of the linear part and of the points, ``w = (w_l, w_k)``::

            f(x) = theta'phi_l + sum_j a_j k(x, x_j),   theta = C w_l,   a = U^-1 w_k

        Returns
        -------
        (n_linear,)
            Coefficients theta of the linear part.
        (n_points,)
            Weights a, in the order of `point_inputs`.
        """
        n_linear = self.n_linear
        basis = self._basis()
        of_points = np.empty(self.n_points)
        if self.n_points:
            of_points[self.age_order] = solve_triangular(
                basis.upper, weights[n_linear:], check_finite=False
            )
        return basis.linear_root.T @ weights[:n_linear], of_points

    @property
    def whitened_root(self) -> np.ndarray:
        """M (q, q) with ``M'M`` the posterior covariance of the weights; else it is (0, q).

        It has no rows if the GP learns from its stored points alone: they fix the weights.
        """
        size = self.n_linear + self.n_points
        if not self.learns_every_sample:
            return np.zeros((0, size))
        return np.triu(self._state.root[:size, :size])

    def update(self, x: ArrayLike, y: float) -> UpdateReport:
        """Predict one sample x (n_features,) with its target y, in its own units, then learn it.

        Raises
        ------
        ValueError
            Wrong shape, a value that is not finite, or features at which the prior variance is more
            than 1e13 times the noise variance. Nothing has been learned then.
        """
        # An array that fits already is not converted, because a closed loop calls this often.
        fits = (
            type(x) is np.ndarray
            and x.dtype == np.float64
            and x.flags.carray
            and x.shape == (self.n_features,)
            and isinstance(y, float)
        )
        if fits:
            point = np.asarray(x)
            target = np.array([y])
        else:
            point = vector(x, self.n_features, "x")
            target = vector([y], 1, "y")
        record = self.learn(point[None], target, ZERO_PRIOR_MEAN)
        return UpdateReport(*record.item())

    def update_many(self, inputs: ArrayLike, targets: ArrayLike) -> np.ndarray:
        """Predict and learn sample by sample in compiled code, exactly as `update` does.

        Parameters
        ----------
        inputs : (n, n_features)
        targets : (n,)

        Returns
        -------
        structured array (n,)
            One row per sample, with the fields of `UpdateReport`: ``record["accepted"].sum()``.
        """
        x, y = rows(inputs, targets, self.n_features, "inputs")
        return self.learn(x, y, np.zeros(len(x)))

    @exclusive
    def learn(
        self,
        x: np.ndarray,
        y: np.ndarray,
        prior_mean: np.ndarray,
        *,
        until_outlier: bool = False,
        is_predicted: bool = False,
        record: np.ndarray | None = None,
    ) -> np.ndarray:
        """Do what `update_many` does, for arrays whose shapes were checked.

        The arrays are C-contiguous and of float64. The GP learns ``y - prior_mean``, with the prior
        mean (n,) at the inputs; the reported means are predictions of y. With `until_outlier` the
        record ends with the first outlier, and the samples after it are not processed. With
        `is_predicted` the first sample has been predicted before, and is now learned after all. The
        record is written to the rows of `record` (n,), or to new ones.
        """
        if record is None:
            record = np.zeros(len(x), dtype=RECORD_DTYPE)
        done = 0
        while done < len(x):
            if self._must_still_forget() and not (is_predicted and done == 0):
                if done == 0:
                    self.check_samples(x, y, prior_mean)
                self._forget()
            done = dictionary.learn(self._rules, self._state, x, y, prior_mean, done, record)
            if done < 0:
                self._refuse_samples(x, y, prior_mean)
            self._check_and_rescale()
            if not record["outlier"][done - 1]:
                if self._is_time_to_forget():
                    self._forget()
            elif until_outlier:
                return record[:done]
        return record

    @exclusive
    def learn_block(
        self,
        features: Features,
        lags: Lags,
        block: Block,
        opening: OpeningState,
    ) -> int:
        """Learn rows of a block with the outlier test, as far as compiled code decides about them.

        See `sysid.gp.block_learning.learn_block`, whose reason to return is returned.
        """
        numbers = block.numbers
        numbers[block_learning.MUST_FORGET] = self._must_still_forget()
        while True:
            refusing_rules = self._rules._replace(gate=dictionary.GATE_REFUSES_ALL)
            reason = block_learning.learn_block(
                self._rules, refusing_rules, self._state, features, lags, block, opening
            )
            if reason == block_learning.ROW_IS_REFUSED:
                row = slice(numbers[block_learning.ROW], numbers[block_learning.ROW] + 1)
                self._refuse_samples(block.point, block.mended.targets[row], block.prior_mean[row])
            if reason != block_learning.GP_HAS_WORK:
                break
            self._check_and_rescale()
            if self._is_time_to_forget():
                self._forget()
            numbers[block_learning.MUST_FORGET] = 0
        self.n_clipped_predictions += int(numbers[block_learning.N_CLIPPED])
        return int(reason)

    def _check_and_rescale(self) -> None:
        """Check the factors, and update the scale of the variances, if this is due."""
        if self._state.counts[dictionary.FACTOR_STATUS] != dictionary.FACTORS_GOOD:
            self._check_factors()
        if self._state.errors[dictionary.N_SQUARES] >= dictionary.SCALE_INTERVAL:
            self._rescale()

    @exclusive
    def can_learn(self, x: np.ndarray, y: np.ndarray, prior_mean: np.ndarray) -> bool:
        """Return whether `learn` would accept these samples; learn nothing."""
        return bool(dictionary.are_learnable(self._rules, self._state, x, y, prior_mean))

    @exclusive
    def check_samples(self, x: np.ndarray, y: np.ndarray, prior_mean: np.ndarray) -> None:
        """Raise the ValueError of `learn` if it would refuse these samples; learn nothing."""
        matrix(x, self.n_features, "inputs")  # raises if a value is not finite
        vector(y - prior_mean, len(x), "targets")
        self._check_prior(x)

    def _refuse_samples(self, x: np.ndarray, y: np.ndarray, prior_mean: np.ndarray) -> NoReturn:
        """Raise the error that explains why `dictionary.learn` has refused samples."""
        self.check_samples(x, y, prior_mean)
        raise self._prior_is_too_large(x)

    def _is_time_to_forget(self) -> bool:
        """Return whether a step of forgetting is due after the last sample."""
        interval = self._rules.forget_interval
        return interval > 0 and self._state.counts[dictionary.N_SEEN] % interval == 0

    def _must_still_forget(self) -> bool:
        """Return whether the step of forgetting that was due after the last sample is missing.

        If that sample was not learned, the step waits for the next one: until then `believe` may
        learn the sample, and takes the step.
        """
        if not self._is_time_to_forget() or self.n_seen == 0:
            return False
        recent_inputs = self._state.recent_inputs
        return bool(np.isnan(recent_inputs[(self.n_seen - 1) % len(recent_inputs), 0]))

    def _forget(self) -> None:
        """Forget for all samples since the last step, where the recent ones excite (`forget`).

        The return to the prior is that of KRLS-T (Van Vaerenbergh, Lazaro-Gredilla and Santamaria,
        2012, section IV.B), but in each direction by another fraction, which is zero where the
        recent samples show nothing: directional forgetting (Kulhavy, 1987).
        """
        state = self._state
        n = self.n_linear + self.n_points
        is_learned = ~np.isnan(state.recent_inputs[:, 0])
        if n == 0 or self.forgetting is None or not is_learned.any():
            return
        phi, residual = self._project(state.recent_inputs[is_learned], self._basis())
        noise_variance = self.noise_variance + np.maximum(residual, 0.0)
        n_steps = self._rules.forget_interval / self.forgetting**2
        root = np.triu(state.root[:n, :n])
        after = forget(root, state.whitened[:n], phi / np.sqrt(noise_variance), n_steps)
        state.root[:n, :n] = after.root
        state.whitened[:n] = after.mean
        dictionary.solve_weights(state, self.n_points)

    def _rescale(self) -> None:
        """Update the scale of the variances by the standardised errors since the last update.

        If the variances follow the errors, the kernel and noise variance are multiplied by the
        change of the scale, and the predicted means stay. Otherwise only the variances of the
        outlier test are multiplied by it.

        KRLS-T (Van Vaerenbergh and others, 2012) estimates this scale. Here it is a running mean of
        ``min(e^2/s, 9)`` with a bounded memory; the bound of 9 limits the effect of an outlier.
        Samples that repeat the one before count neither for the mean nor for the memory.
        """
        state = self._state
        errors = state.errors
        total = errors[dictionary.SUM_OF_SQUARES]
        number = errors[dictionary.N_SQUARES]
        memory = errors[dictionary.SCALE_MEMORY]
        factor = float((memory + total / EXPECTED_CLIPPED_SQUARE) / (memory + number))
        errors[dictionary.SUM_OF_SQUARES] = 0.0
        errors[dictionary.N_SQUARES] = 0.0
        errors[dictionary.SCALE_MEMORY] = min(memory + number, MAX_SCALE_MEMORY)
        if not (self.learns_every_sample and self.scale):
            errors[dictionary.ERROR_SCALE] *= factor
            return
        # written through `vars`, because `__setattr__` refuses to change a fixed setting
        vars(self).update(
            kernel=self.kernel.scaled(factor),
            noise_variance=self.noise_variance * factor,
        )
        scale_state(state, factor)
        self._rules = self._rules._replace(**self._scaled_rules())

    def _check_prior(self, inputs: np.ndarray) -> None:
        """Raise `UserError` if the prior variance at one of the inputs (n, p) is too large."""
        prior = self.point_kernel.diagonal(self._point_features(inputs))
        if not (self.diagonal >= dictionary.MIN_DIAGONAL_RATIO * prior).all():
            raise self._prior_is_too_large(inputs)

    def _prior_is_too_large(self, inputs: np.ndarray) -> UserError:
        """Return the error that the largest prior variance at inputs (n, p) exceeds the limit."""
        prior = self.point_kernel.diagonal(self._point_features(inputs))
        i = int(np.argmax(prior))
        return UserError(
            f"OnlineGP: noise_variance must be at least {dictionary.MIN_DIAGONAL_RATIO:g} of the "
            f"prior variance at every point, got {self.noise_variance:g} and a prior variance of "
            f"{prior[i]:g} at {inputs[i].tolist()}; below that double precision cannot hold the "
            "factor: scale the features to the order of one, or raise the noise variance"
        )

    @exclusive
    def candidate_scores(
        self, inputs: ArrayLike, targets: ArrayLike, criterion: Criterion | None = None
    ) -> np.ndarray:
        """Return the reduction scores (m, n_points) of the stored points, by slot.

        Row i holds the scores that they would have if sample i of (m, n_features), (m,) were stored
        too. The criterion is `reduction` unless another one is given. Nothing is learned.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        rules = self._rules
        if criterion is not None:
            rules = rules._replace(reduction=criterion.reduction_address)
        scores = np.empty((len(x), self.n_points))
        dictionary.candidate_scores(rules, self._state, self.n_points, x, y, scores)
        return scores

    @exclusive
    def leave_one_out(self) -> LeaveOneOut:
        """Predict every stored point from the others: residual ``a_i/q_i``, variance ``1/q_i``.

        Source: Rasmussen and Williams, equation 5.12.
        """
        n = self.n_points
        order = self.age_order
        variance_by_age = 1.0 / self._state.precision[:n]
        residual = np.empty(n)
        variance = np.empty(n)
        residual[order] = self._weights() * variance_by_age
        variance[order] = variance_by_age
        return LeaveOneOut(residual, variance)

    def _weights(self) -> np.ndarray:
        """Solve ``Ua = b`` for the weights ``a`` (n_points,).

        The weights in the state are only as accurate as scores need.
        """
        n = self.n_points
        if n == 0:
            return np.zeros(0)
        of_points = self._state.whitened[self.n_linear :][:n]
        return solve_triangular(self._state.cholesky[:n, :n], of_points)

    @exclusive
    def state(self) -> dict[str, np.ndarray]:
        """Return copies of the arrays that define the dictionary, for `restore`."""
        state = self._state
        n = self.n_points
        arrays: dict[str, np.ndarray] = {}
        if self.learns_every_sample:
            size = self.n_linear + n
            arrays["root"] = np.triu(state.root[:size, :size])
        if not np.isnan(state.recent_inputs).all():
            arrays["recent_inputs"] = state.recent_inputs.copy()
        if not np.isnan(state.last_sample).all():
            arrays["last_sample"] = state.last_sample.copy()
        arrays["errors"] = state.errors.copy()
        arrays["number"] = self.sample_numbers
        arrays["inputs"] = self.inputs
        arrays["targets"] = self.targets
        arrays["order"] = self.age_order
        arrays["cholesky"] = np.triu(state.cholesky[:n, :n])
        arrays["factor"] = np.tril(state.factor[:n, :n])
        for name in AGE_ORDERED_VECTORS:
            values = getattr(state, name)
            if name == "whitened":
                values = values[self.n_linear :]
            arrays[name] = values[:n].copy()
        if self.n_linear:
            arrays["linear"] = state.whitened[: self.n_linear].copy()
        arrays["weights"] = self._weights()
        arrays["counts"] = state.counts.copy()
        return arrays

    @exclusive
    def exact_form(self) -> dict[str, np.ndarray]:
        """Return the arrays of `state`, changed to those of an exact GP with the same posterior.

        With them the mean is ``k'a`` and the variance ``k(x, x) - |F k|^2``. If only stored samples
        are learned, nothing needs to change. If every sample is learned, U and F are replaced by
        the factors of the Ky that has the same posterior: with ``P = B diag(p) B'``, ``U <- R`` of
        the QR decomposition of ``diag(1 - p)^(-1/2) B'U``, and `whitened` follows from it.
        """
        state = self.state()
        if not self.learns_every_sample or self.n_linear + self.n_points == 0:
            return state
        if self.n_points == 0:
            self._add_unknown_point(state)
        _, std, directions = np.linalg.svd(state["root"])
        # fraction of the prior variance along each direction that the samples have removed
        known = np.maximum(1.0 - std**2, MIN_KNOWN_FRACTION)
        if self.n_linear:
            self._add_linear_points(state)
        upper = np.linalg.qr(directions / np.sqrt(known)[:, None] @ state["cholesky"], mode="r")
        upper *= np.sign(np.diag(upper))[:, None]
        state["cholesky"] = upper
        state["factor"] = solve_triangular(upper, np.eye(len(upper)), trans=1)
        state["whitened"] = upper @ state["weights"]
        return state

    def _add_unknown_point(self, state: dict[str, np.ndarray]) -> None:
        """Add a point at the origin, about whose value nothing is known, to an empty `state`."""
        origin = np.zeros((1, self.n_features))
        prior_variance = self.point_kernel.diagonal(self._point_features(origin))
        size = self.n_linear + 1
        root = np.eye(size)
        root[: self.n_linear, : self.n_linear] = state["root"]
        state["root"] = root
        state["inputs"] = origin
        state["order"] = np.zeros(1, dtype=np.int64)
        state["weights"] = np.zeros(1)
        state["cholesky"] = np.sqrt(prior_variance + self.diagonal)[:, None]

    def _add_linear_points(self, state: dict[str, np.ndarray]) -> None:
        """Represent the linear part by further points in the arrays of `state`, by age.

        Every stored point gets zeros as its lags of the linear part. The oldest one, x, also occurs
        with the lags e_j, one of the columns of ``C'^-1``, so that its covariance with a sample is
        ``k(x, .) + (C'phi_l)_j``. The covariances with all of these points are T times those of
        the whitened coefficients and the stored points.
        """
        assert isinstance(self.kernel, WithLinearPart)
        n_linear = self.n_linear
        size = n_linear + len(state["order"])
        by_age = state["inputs"][state["order"]]
        points = np.zeros((size, self.n_features))
        points[:, : self.n_features - n_linear] = self._point_features(by_age[[0]])
        points[n_linear:, : self.n_features - n_linear] = self._point_features(by_age)
        root = self.kernel.linear.root()
        points[:n_linear, self.n_features - n_linear :] = np.linalg.inv(root)
        T = np.eye(size)
        T[:n_linear, n_linear] = 1.0
        upper = np.eye(size)
        upper[n_linear:, n_linear:] = state["cholesky"]
        state["cholesky"] = upper @ T.T
        state["weights"] = np.concatenate([state["linear"], state["weights"]])
        state["weights"][n_linear] -= state["linear"].sum()
        state["inputs"] = points
        state["order"] = np.arange(size)

    def draw_targets(self, n_draws: int, generator: np.random.Generator) -> np.ndarray:
        """Return values (n_points, n_draws) of the stored points, by slot, to condition on.

        These are their targets or, if every sample is learned, draws of the hidden values z. Given
        a column of them, with noise of variance `diagonal`, the function follows by exact
        conditioning. With a linear part it is the function of `point_kernel`; `draw_posterior`
        returns the coefficients that belong to the values.
        """
        return self.draw_posterior(n_draws, generator).targets

    @exclusive
    def draw_posterior(self, n_draws: int, generator: np.random.Generator) -> PosteriorDraws:
        """Draw the coefficients of the linear part jointly with the values of `draw_targets`."""
        state = self._state
        n = self.n_points
        if not self.learns_every_sample:
            targets = np.repeat(self.targets[:, None], n_draws, axis=1)
            return PosteriorDraws(np.zeros((0, n_draws)), targets)
        size = self.n_linear + n
        normal = generator.standard_normal((size, n_draws))
        whitened = state.whitened[:size, None] + np.triu(state.root[:size, :size]).T @ normal
        of_points = whitened[self.n_linear :]
        by_slot = np.empty_like(of_points)
        by_slot[self.age_order] = np.triu(state.cholesky[:n, :n]).T @ of_points
        return PosteriorDraws(self._rules.linear_root.T @ whitened[: self.n_linear], by_slot)

    @exclusive
    def restore(self, arrays: Mapping[str, np.ndarray], counts: Sequence[int]) -> None:
        """Take over the arrays and counts of `state`, bit for bit.

        Raises
        ------
        ValueError, KeyError
            Arrays that are missing, do not fit together, exceed the budget or contradict the points
            by more than ten times the tolerance.
        """
        n = len(arrays["targets"])
        self._check_sizes(arrays, counts)
        x = matrix(arrays["inputs"], self.n_features, "inputs")
        state = self._new_state(x, vector(arrays["targets"], n, "targets"), self.budget)
        state.order[:n] = arrays["order"]
        upper, lower = (matrix(arrays[name], n, name) for name in FACTOR_NAMES)
        put_factors(state, upper, lower)
        if self.learns_every_sample:
            size = self.n_linear + n
            state.root[:size, :size] = matrix(arrays["root"], size, "root")
            if not is_within_prior(state.root):
                raise UserError(
                    "restore: root must be that of a posterior, no wider than its prior"
                )
        # They are missing if no sample was learned, and in older files.
        if len(state.recent_inputs) and "recent_inputs" in arrays:
            state.recent_inputs[:] = arrays["recent_inputs"]
            _check_recent_inputs(state)
        if "last_sample" in arrays:
            size = self.n_features + 1
            state.last_sample[:] = vector(arrays["last_sample"], size, "last_sample")
        state.errors[:] = vector(arrays["errors"], len(state.errors), "errors")
        _check_errors(state)
        state.number[:n] = vector(arrays["number"], n, "number")
        numbers = state.number[:n]
        if not ((numbers >= -1) & (numbers < max(counts[dictionary.N_SEEN], 1))).all():
            raise UserError("restore: number must be that of a sample seen, or -1")
        if self.n_linear:
            state.whitened[: self.n_linear] = vector(arrays["linear"], self.n_linear, "linear")
        for name in AGE_ORDERED_VECTORS:
            values = getattr(state, name)
            if name == "whitened":
                values = values[self.n_linear :]
            values[:n] = vector(arrays[name], n, name)
        state.counts[:] = counts
        state.counts[dictionary.N_STORED] = n
        state.counts[dictionary.MINIMUM_IS_STALE] = 1
        tolerance = 10 * self._tolerance(x)
        inconsistency = relative_inconsistency(state)
        if not inconsistency <= tolerance:
            raise UserError(
                f"restore: factors and weights contradict the points by {inconsistency:.3g}, "
                f"expected at most {tolerance:.3g}; the arrays were changed after they were taken "
                "out"
            )
        # A running GP uses the weights ``F'b``, which are less accurate than those in the arrays.
        # They are computed again, so that the restored GP continues bit for bit.
        dictionary.compute_precision_and_weights(state, n)
        state.precision[:n] = arrays["precision"]
        self._state = state
        self._rules = self._compile_rules()

    def _check_sizes(self, arrays: Mapping[str, np.ndarray], counts: Sequence[int]) -> None:
        """Raise `UserError` unless arrays and counts for `restore` have fitting sizes."""
        n = len(arrays["targets"])
        order = arrays["order"]
        is_order = np.shape(order) == (n,) and sorted(order) == list(range(n))
        if n > self.budget or not is_order or len(counts) != dictionary.N_COUNTS:
            raise UserError(
                f"restore: expected at most {self.budget} points, an order that names each of "
                f"their slots once, and {dictionary.N_COUNTS} counts, got {n} points and "
                f"{len(counts)} counts"
            )
        expected: dict[str, tuple[int, ...]] = dict.fromkeys(FACTOR_NAMES, (n, n))
        if self.learns_every_sample:
            expected["root"] = (self.n_linear + n, self.n_linear + n)
        if self.n_linear:
            expected["linear"] = (self.n_linear,)
        for name in AGE_ORDERED_VECTORS:
            expected[name] = (n,)
        if self.learns_every_sample and self.forgetting and "recent_inputs" in arrays:
            n_recent = RECENT_STEPS * self._forget_interval
            expected["recent_inputs"] = (n_recent, self.n_features)
        expected["inputs"] = (n, self.n_features)
        shapes = {name: np.shape(arrays[name]) for name in expected}
        if shapes != expected:
            raise UserError(f"restore: expected arrays of shapes {expected}, got {shapes}")

    @exclusive
    def with_hyperparameters(
        self,
        kernel: Kernel,
        noise_variance: float,
        samples: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> OnlineGP:
        """Return a GP of another kernel and noise with the same points, ages, rules and counts.

        It costs O(N^3). If every sample is learned, what was learned is carried over: the
        likelihood of the samples under the old prior, a Gaussian in the values z of the points,
        times the new prior (Bui, Nguyen and Turner, "Streaming sparse Gaussian process
        approximations", 2017).

        Give `samples`, inputs (n, n_features) and targets (n,), only if they are all that this GP
        has learned. They are then learned again, O(n N^2), without any approximation: the result is
        the batch FITC posterior.
        """
        settings = {name: getattr(self, name) for name in FIXED_SETTINGS}
        settings["kernel"] = kernel
        settings["noise_variance"] = noise_variance
        other = OnlineGP(**settings)
        other._state = other._new_state(self.inputs, self.targets, self.budget)
        for name in ("order", "counts", "number", "recent_inputs", "last_sample"):
            getattr(other._state, name)[:] = getattr(self._state, name)
        level = self._state.errors[dictionary.OUTLIER_LEVEL]
        other._state.errors[dictionary.OUTLIER_LEVEL] = level
        factorise(other._state)
        if self.learns_every_sample and samples is None:
            carry_over(self._state, other._state, self._linear_root, other._linear_root)
        other._rules = other._compile_rules()
        if samples is not None:
            other.absorb(*samples)
        for name in OWN_COUNTERS:
            setattr(other, f"n_{name}", getattr(self, f"n_{name}"))
        return other

    @exclusive
    def drift(self) -> float:
        """Return how far the factors are from the covariance; 0 if they are exact.

        `sysid.gp.dictionary.drift` defines it.
        """
        return float(dictionary.drift(self._state, self.n_points))

    def _check_factors(self) -> None:
        """Compute the factors from scratch if this is due or if they have drifted.

        Only drifted factors count as a refactorisation. The tolerance must be that of the points
        stored now, because the prior variance may be larger at them, so it is updated before a
        drift is counted.
        """
        counts = self._state.counts
        tolerance = self._rules.tolerance
        drift = self.drift()
        is_due = counts[dictionary.FACTOR_STATUS] == dictionary.RENEWAL_DUE
        counts[dictionary.FACTOR_STATUS] = dictionary.FACTORS_GOOD
        if not is_due and drift <= tolerance:
            return
        self._rules = self._compile_rules()
        if drift > max(tolerance, self._rules.tolerance):
            self.n_refactorisations += 1
        else:
            self.n_renewals += 1
        factorise(self._state)


def _number_samples(
    n: int, numbers: ArrayLike | None, n_seen: int | None
) -> tuple[np.ndarray, int]:
    """Return the numbers (n,) of samples in a stream, and how many samples it has had so far."""
    found = np.arange(n)
    if numbers is not None:
        found = vector(numbers, n, "numbers").astype(np.int64)
    least = max(n, int(found.max(initial=-1)) + 1)
    if n_seen is None:
        return found, least
    check_whole(n_seen, least, "fit: n_seen")
    return found, int(n_seen)


def _count_near_duplicates(covariance: np.ndarray) -> int:
    """Return how many points equal an earlier one, by their covariance (n, n) without noise."""
    prior = np.diag(covariance)
    smallest_square = np.outer(prior, prior) * (1.0 - dictionary.DUPLICATE_CORRELATION_GAP)
    are_correlated = (covariance > 0) & (covariance**2 > smallest_square)
    variance_gap = abs(prior[:, None] - prior)
    have_same_variance = variance_gap <= dictionary.DUPLICATE_VARIANCE_GAP * prior
    are_duplicates = np.tril(are_correlated & have_same_variance, -1)
    return int(np.count_nonzero(are_duplicates.any(axis=1)))


def _check_errors(state: Dictionary) -> None:
    """Raise `UserError` unless the statistics of the errors in a restored state are possible."""
    total, number, memory, scale, outlier_level = state.errors
    is_number_possible = 0 <= number < dictionary.SCALE_INTERVAL
    is_total_possible = 0 <= total <= dictionary.MAX_STANDARDISED_SQUARE * number
    is_memory_possible = INITIAL_SCALE_MEMORY <= memory <= MAX_SCALE_MEMORY
    is_sum_possible = is_number_possible and is_total_possible
    is_scale_possible = is_memory_possible and scale > 0
    if not (is_sum_possible and is_scale_possible and outlier_level >= 0):
        raise UserError("restore: errors must be sums, a memory and counts of `OnlineGP.state`")


def _check_recent_inputs(state: Dictionary) -> None:
    """Raise `UserError` unless each row of the recent inputs is finite, or nan altogether."""
    is_finite = np.isfinite(state.recent_inputs).all(axis=1)
    is_nan = np.isnan(state.recent_inputs).all(axis=1)
    if not (is_finite | is_nan).all():
        raise UserError("restore: recent_inputs must be finite, or nan for a sample not learned")


def _upper_factor(matrix: np.ndarray) -> np.ndarray:
    """Return the upper triangular R with ``R R' = matrix``."""
    return np.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1]


def _blocks(n: int, size: int) -> Iterator[slice]:
    """Return slices that divide n rows into blocks of this size; the last one may be shorter."""
    return (slice(begin, begin + size) for begin in range(0, n, size))
