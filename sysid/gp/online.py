"""Online Gaussian process with a fixed budget of points."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from sysid.arrays import check_whole, matrix, member, rows, vector
from sysid.errors import UserError, UserTypeError
from sysid.gp import dictionary
from sysid.gp.dictionary import RECORD, Dictionary, Rules, UpdateReport
from sysid.gp.factors import (
    carry_over,
    contradiction,
    factorise,
    no_wider_than_prior,
    put_factors,
    scale_state,
)
from sysid.gp.kernels import Kernel
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

#: smallest noise variance, relative to the prior variance at features of one; points further out may have 1e5 times
#: that prior variance until `dictionary.LEAST_NOISE` is reached
LEAST_NOISE = 1e-8

#: arrays of a `Dictionary` in order of age that `OnlineGP.state` gives and `OnlineGP.restore` takes
FACTORS = ("cholesky", "factor")
BY_AGE = ("pivots", "whitened", "weights", "precision")

#: what an online GP counts beside its dictionary
COUNTED = ("refactorisations", "renewals", "clipped_predictions")

#: samples that are predicted, and the least that are learned without a place, by one product of matrices; the last
#: samples to predict are filled up, so that their bits do not depend on what comes after them
TOGETHER = 64
BLOCK = 512

NO_MEAN = np.zeros(1)  # prior mean of a single sample

#: what an online GP is made with; fixed from then on
ROLES = {
    "kernel": Kernel,
    "insertion": Insertion,
    "acceptance": Acceptance,
    "reduction": Criterion,
}
SETTINGS = (
    *ROLES,
    "noise_variance",
    "budget",
    "learning",
    "scale",
    "forgetting",
    "gate",
    "gate_opens_after",
)

#: of the noise variance: added to the covariance of points that all samples speak of, which keeps its factor sound
DIAGONAL = 0.01

#: the scale of all variances starts like one that so many samples confirm, and remembers at most so many
FIRST_MEMORY = 20
LONGEST_MEMORY = 1000

#: share of a prior variance that counts as unknown: what less is known of cannot be told from it
LEAST_KNOWN = 1e-12

#: E[min(z^2, 9)] of a standard normal z
EXPECTED_SQUARE = 0.9950


class LeaveOneOut(NamedTuple):
    """Every stored point judged without itself, in slot order."""

    residual: np.ndarray  # y_i - mu_/i
    variance: np.ndarray  # noisy: latent variance plus noise variance

    @property
    def log_density(self) -> float:
        """Log density of all points, each without itself, less a constant: the
        pseudo-likelihood.
        """
        return -0.5 * float(np.sum(self.residual**2 / self.variance + np.log(self.variance)))


class OnlineGP:
    """Zero-mean GP regression that learns from a stream and keeps at most `budget` points.

    Posterior at x*, with ``Ky = K + noise_variance I`` over the stored points (section 2 of Wietzke
    and Graichen, "Comparison of Data Reduction Criteria for Online Gaussian Processes")::

        mean     = k*' Ky^-1 y
        variance = k(x*, x*) - k*' Ky^-1 k*          (latent: without the noise)

    Each sample is predicted, then algorithm 1 of the paper decides: drop it (insertion rule), store
    it (while there is room), or let it replace the stored point of lowest reduction score, if
    accepted. A replacement costs O(N^2), memory is O(N^2). Targets and thresholds are in the
    target's own units.

    That is ``learning="stored"``. With ``learning="every_sample"`` the points are chosen alike, and
    every sample, stored or not, is learned by the posterior of the function at the points
    (`sysid.gp.dictionary`), at O(N^2) too. All variances, those of kernel and noise, then follow a
    running mean of the squared standardised errors; means stay.

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
        Whether the variances follow the errors, if every sample is learned.
    forgetting : float, optional
        Memory T >= 2 in samples, for a plant that changes; None: nothing is forgotten. Without it a
        plant that drifts for long is predicted worse and worse: all criteria but the entropies keep
        what surprises, which is what the plant was, and with an acceptance the entropies keep it
        too. If every sample is learned, the posterior goes back to the prior: each sample adds the
        noise variance over T^2 to the variance at the points, so that the mean of T samples is
        about the best there is (KRLS-T). If only stored samples are, the criterion weighs its score
        by ``exp(-age/T)``.
    gate : float, optional
        Largest standardised error, at least 1, of a sample that is learned; an outlier is
        predicted, counted, and passed over. None: every sample is believed.
    gate_opens_after : int, default 4
        Outliers in a row after which the plant is believed to have changed, or that many more than
        a fifth of the samples between them: the gate is open up to the next sample within it. NARX
        models take ``2 (n_y + 1)``.

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
        check_whole(budget, 2, "OnlineGP: budget")
        check_whole(gate_opens_after, 1, "OnlineGP: gate_opens_after")
        self.gate_opens_after = int(gate_opens_after)
        self.forgetting = at_least(2.0, forgetting, "OnlineGP: forgetting")
        self.gate = at_least(1.0, gate, "OnlineGP: gate")
        self.learning = member(Learning, learning, "OnlineGP: learning")
        if not isinstance(scale, bool):
            raise UserTypeError(f"OnlineGP: scale must be True or False, got {scale!r}")
        self.scale = scale
        self.kernel = kernel
        self.budget = int(budget)
        self.insertion = Always() if insertion is None else insertion
        self.acceptance = AcceptAll() if acceptance is None else acceptance
        self.reduction = MarginalLogLikelihood() if reduction is None else reduction
        for name, role in ROLES.items():
            if not isinstance(got := getattr(self, name), role):
                raise UserTypeError(
                    f"OnlineGP: {name} must be an instance of {role.__name__}, got {got!r}"
                )
        if (
            self.forgetting
            and not self.learns_every_sample
            and type(self.reduction).gain is Criterion.gain
        ):
            raise UserError(
                f"OnlineGP: forgetting weighs a point's gain by its age; {type(self.reduction).__name__} has none: "
                "define its static method gain, of the arguments of reduction, take another reduction, "
                "learning='every_sample', or forgetting=None"
            )
        self.noise_variance = float(noise_variance)
        self.n_refactorisations = self.n_renewals = self.n_clipped_predictions = 0
        self.n_features = kernel.n_features
        nothing = np.zeros((0, self.n_features))
        least = LEAST_NOISE * self._largest_prior_variance(nothing)
        if not least * (1 - 1e-9) <= self.noise_variance < np.inf:
            raise UserError(
                f"OnlineGP: noise_variance must be at least {LEAST_NOISE:g} of the kernel's variance ({least:g}), got "
                f"{noise_variance}; below that double precision cannot hold the factor"
            )
        self._state = self._from_points(nothing, np.zeros(0), self.budget)
        self._rules = self._compile_rules()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in SETTINGS and name in vars(self):
            raise AttributeError(
                f"OnlineGP: {name} is fixed, its points were kept by it; make another OnlineGP and fit it to `inputs` "
                "and `targets` (other hyper-parameters: with_hyperparameters)"
            )
        super().__setattr__(name, value)

    def _compile_rules(self) -> Rules:
        memory = self.forgetting or 0.0
        weighs_age = memory > 0.0 and not self.learns_every_sample
        return Rules(
            kernel=self.kernel.address,
            kernel_parameters=self.kernel.parameters(),
            noise_variance=self.noise_variance,
            diagonal=self.diagonal,
            every_sample=self.learns_every_sample,
            scale=(self.learns_every_sample and self.scale) or self.gate is not None,
            age_memory=memory if weighs_age else 0.0,
            forget_interval=0 if weighs_age or not memory else self._forget_interval,
            gate=self.gate or 0.0,
            gate_opens_after=self.gate_opens_after,
            asks=True,
            insertion=self.insertion.address,
            insertion_parameters=np.asarray(
                self.insertion.parameters(), dtype=float
            ),  # whole numbers compile anew
            acceptance=self.acceptance.address,
            reference=self.acceptance.code,
            reduction=self.reduction.gain_address
            if weighs_age
            else self.reduction.reduction_address,
            tolerance=self._tolerance(self.inputs),
        )

    @property
    def learns_every_sample(self) -> bool:
        """Whether samples without a place are learned."""
        return self.learning is Learning.every_sample

    @property
    def diagonal(self) -> float:
        """What is added to the covariance K of the points: the noise variance, or a hundredth of
        it.
        """
        return self.noise_variance * (DIAGONAL if self.learns_every_sample else 1.0)

    @property
    def gate_is_open(self) -> bool:
        """Whether there were so many outliers that the next sample is learned whatever it is."""
        return bool(self._state.errors[dictionary.LEVEL] >= self.gate_opens_after)

    @property
    def _forget_interval(self) -> int:
        """Samples between two steps back to the prior: one costs O(N^3); a tenth of the noise
        variance at most.
        """
        return int(max(1.0, min(self.budget, (self.forgetting or 0.0) ** 2 / 10)))

    def _largest_prior_variance(self, inputs: np.ndarray) -> float:
        """Largest ``k(x, x)`` at the origin, at features of one, and at inputs (n, p)."""
        reference = np.outer([0.0, 1.0], np.ones(self.n_features))
        return float(self.kernel.diagonal(np.concatenate([reference, inputs])).max())

    def _tolerance(self, inputs: np.ndarray) -> float:
        """Largest drift of the factors of inputs (n, p) that needs no repair, by the condition of
        their covariance.
        """
        condition = self.budget * self._largest_prior_variance(inputs) / self.diagonal
        return float(1e-10 + 10.0 * np.finfo(float).eps * condition)

    def _from_points(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        capacity: int,
        learning: Learning | None = None,
    ) -> Dictionary:
        """State with room for so many points, these points and their exact covariance; `factorise`
        does the rest.

        If every sample is learned, none is yet: ``M = I``.
        """
        n = len(targets)
        size = capacity + 1
        every_sample = (learning or self.learning) is Learning.every_sample
        state = Dictionary(
            inputs=np.zeros((self.n_features, capacity)),
            targets=np.zeros(capacity),
            covariance=np.zeros((capacity, capacity)),
            order=np.arange(capacity),
            triangles=np.zeros((size, size + 1)),
            **{name: np.zeros(size) for name in BY_AGE},
            work=np.zeros((8, size + 1)),
            counts=np.zeros(dictionary.N_COUNTS, dtype=np.int64),
            minimum=np.zeros(1),
            number=np.full(capacity, -1),
            root=np.eye(size if every_sample else 0),
            errors=np.array([0.0, 0.0, FIRST_MEMORY, 1.0, 0.0]),
        )
        covariance = self.kernel(inputs, inputs)
        prior = np.diag(covariance)
        alike = (covariance > 0) & (
            covariance**2 > np.outer(prior, prior) * (1.0 - dictionary.ALIKE)
        )
        alike &= abs(prior[:, None] - prior) <= dictionary.SAME * prior
        state.inputs[:, :n], state.targets[:n] = inputs.T, targets
        state.covariance[:n, :n] = covariance
        state.covariance[np.arange(n), np.arange(n)] += (
            self.diagonal if every_sample else self.noise_variance
        )
        state.counts[dictionary.N_POINTS] = n
        state.counts[dictionary.N_DUPLICATES] = np.count_nonzero(np.tril(alike, -1).any(axis=1))
        state.counts[dictionary.MINIMUM_IS_STALE] = 1
        return state

    def __getstate__(self) -> dict[str, object]:
        return {
            name: value for name, value in vars(self).items() if name != "_rules"
        }  # they hold in one process only

    def __setstate__(self, content: dict[str, object]) -> None:
        vars(self).update(content)
        self._state = Dictionary(*map(np.array, self._state))  # joblib maps large arrays, read-only
        self._rules = self._compile_rules()

    def __repr__(self) -> str:
        return (
            f"OnlineGP({self.kernel}, noise_variance={self.noise_variance:g}, {self.n_points} of {self.budget} points, "
            f"learning={self.learning.value}, insertion={self.insertion}, acceptance={self.acceptance}, "
            f"reduction={self.reduction})"
        )

    @property
    def n_points(self) -> int:
        """Number of stored points."""
        return int(self._state.counts[dictionary.N_POINTS])

    @property
    def n_seen(self) -> int:
        """Number of samples seen, learned or not."""
        return int(self._state.counts[dictionary.N_SEEN])

    @property
    def inputs(self) -> np.ndarray:
        """Stored points (n_points, n_features), by slot."""
        return np.ascontiguousarray(self._state.inputs[:, : self.n_points].T)

    @property
    def targets(self) -> np.ndarray:
        """Targets of the stored points (n_points,), by slot."""
        return self._state.targets[: self.n_points].copy()

    @property
    def age_order(self) -> np.ndarray:
        """Slots of the stored points from the oldest to the youngest."""
        return self._state.order[: self.n_points].copy()

    @property
    def sample_numbers(self) -> np.ndarray:
        """Which of the samples seen each stored point was, counted from 0, by slot; -1 where that
        is not known.
        """
        return self._state.number[: self.n_points].copy()

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be repaired or was odd so far, counted.

        ``refactorisations``: the factors had drifted and were computed anew; ``clipped_variances``:
        rounding made a variance negative; ``near_duplicates``: points that entered equal a stored
        one in all features; ``renewals``: the factors were computed anew on schedule, before they
        could drift; ``outliers``: samples that the gate passed over.
        """
        counts = self._state.counts
        return {
            "refactorisations": self.n_refactorisations,
            "renewals": self.n_renewals,
            "clipped_variances": int(counts[dictionary.N_CLIPPED]) + self.n_clipped_predictions,
            "near_duplicates": int(counts[dictionary.N_DUPLICATES]),
            "outliers": int(counts[dictionary.N_OUTLIERS]),
        }

    def counts(self) -> dict[str, int]:
        """All counters by name, as a file keeps them: those of the dictionary, then of this
        object.
        """
        own = {name: getattr(self, f"n_{name}") for name in COUNTED}
        return dict(zip(dictionary.COUNT_NAMES, self._state.counts.tolist(), strict=True)) | own

    def fit(
        self, inputs: ArrayLike, targets: ArrayLike, *, numbers: ArrayLike | None = None
    ) -> "OnlineGP":
        """Start from these points; beyond the budget, from those that the reduction criterion
        keeps. Returns itself.

        All of them are learned if every sample is.

        Parameters
        ----------
        inputs : (n, n_features)
        targets : (n,)
        numbers : (n,) of int, optional
            Which samples of a stream they are (`sample_numbers`); by default the first n.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        self._check_prior(x)
        points = self._from_points(x, y, max(self.budget, len(x)), Learning.stored)
        points.number[: len(x)] = np.arange(len(x)) if numbers is None else numbers
        points.counts[dictionary.N_SEEN] = len(x)
        factorise(points)
        exact = self._rules._replace(diagonal=self.noise_variance, every_sample=False)
        if len(x) > self.budget:
            dictionary.reduce(exact, points, self.budget)
        n = int(points.counts[dictionary.N_POINTS])
        kept = self._from_points(points.inputs[:, :n].T, points.targets[:n], self.budget)
        for name in ("order", "number"):
            getattr(kept, name)[:] = getattr(points, name)[: self.budget]
        kept.counts[dictionary.N_SEEN] = len(x)
        factorise(kept)
        self._state = kept
        self._rules = self._compile_rules()
        self.absorb(x, y)
        self.n_refactorisations = self.n_renewals = self.n_clipped_predictions = 0
        return self

    def absorb(self, inputs: ArrayLike, targets: ArrayLike) -> None:
        """Learn samples (n, n_features), (n,) that get no place; nothing happens if only stored
        samples are learned.

        Block by block, with phi, g2 and M as in `sysid.gp.dictionary` and ``D = noise_variance I +
        diag(g2)``::

            I + M phi D^-1 phi'M' = R R',   M <- R^-1 M,   b += M'M phi D^-1 (y - phi'b)   (the new
            M)

        Raises
        ------
        ValueError
            As `update`. Nothing has been learned then.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        self._check_prior(x)
        n = self.n_points
        state = self._state
        if not self.learns_every_sample or n == 0:
            return
        root = np.triu(state.root[:n, :n])
        b = state.whitened[:n]
        points = self.inputs[self.age_order]
        upper = np.ascontiguousarray(state.cholesky[:n, :n])
        for block in _blocks(len(x), max(BLOCK, n)):  # a block costs O(n^3), whatever its size
            z, residual = self._project(x[block], points, upper)
            precision = 1.0 / (self.noise_variance + np.maximum(residual, 0.0))
            image = root @ z
            R = np.linalg.cholesky((np.eye(n) + (image * precision) @ image.T)[::-1, ::-1])[
                ::-1, ::-1
            ]
            error = precision * (y[block] - b @ z)
            root = np.triu(solve_triangular(R, root, check_finite=False))
            b += root.T @ (root @ (z @ error))
        state.root[:n, :n] = root

    def is_beyond_gate(self, error: float, variance: float) -> bool:
        """Whether a sample with this prediction error and latent variance is not learned while the
        gate is closed.
        """
        noisy = (variance + self.noise_variance) * self._state.errors[dictionary.SCALE]
        return bool(error**2 > (self.gate or np.inf) ** 2 * noisy)

    def withhold(self, x: np.ndarray, y: np.ndarray, prior_mean: np.ndarray) -> np.ndarray:
        """`learn` one sample (1, n_features), (1,), but pass it over whatever it is; only beyond
        the gate it counts.
        """
        rules = self._rules
        errors = self._state.errors
        self._rules = rules._replace(gate=dictionary.CLOSED)
        try:
            record = self.learn(x, y, prior_mean, until_outlier=True)
        finally:
            self._rules = rules
        record["outlier"] = self.is_beyond_gate(y[0] - record["mean"][0], record["variance"][0])
        self._state.counts[dictionary.N_OUTLIERS] += record["outlier"][0]
        errors[dictionary.LEVEL] += record["outlier"][0]
        return record

    def believe(
        self,
        x: np.ndarray,
        y: np.ndarray,
        prior_mean: np.ndarray,
        *,
        was_outlier: bool = True,
        opens: bool = True,
    ) -> np.ndarray:
        """`learn` the last sample (1, n_features), (1,) after all, which was passed over; the gate
        may open for it.
        """
        counts = self._state.counts
        errors = self._state.errors
        counts[dictionary.N_OUTLIERS] -= was_outlier
        counts[dictionary.N_SEEN] -= 1
        if opens:
            errors[dictionary.LEVEL] = self.gate_opens_after
        record = self.learn(x, y, prior_mean)
        if opens:
            self._state.errors[dictionary.LEVEL] = self.gate_opens_after
        return record

    def copy(self) -> "OnlineGP":
        """Online GP of the same settings, points and counts that learns on independently."""
        return copy(self)

    def reduce_to(self, n_points: int) -> None:
        """Remove the point of lowest reduction score until `n_points` are left (section 5 of the
        paper).
        """
        check_whole(n_points, 1, "reduce_to: n_points")
        if n_points > self.n_points:
            raise UserError(
                f"reduce_to: n_points must be at most {self.n_points}, the points stored, got {n_points}"
            )
        dictionary.reduce(self._rules, self._state, int(n_points))
        factorise(self._state)

    def predict(self, inputs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (m,) and latent variance (m,) at inputs (m, n_features).

        Add `noise_variance` for the variance of a measured target.
        """
        x = matrix(inputs, self.n_features, "inputs")
        n = self.n_points
        m = len(x)
        state = self._state
        mean, variance = np.empty((2, -(-m // TOGETHER) * TOGETHER))
        if m < 2 or n == 0:
            self.n_clipped_predictions += dictionary.predict(self._rules, state, x, mean, variance)
            return mean[:m], variance[:m]
        x = np.pad(x, ((0, len(mean) - m), (0, 0)))
        root = np.triu(state.root[:n, :n])
        points = self.inputs[self.age_order]
        upper = np.ascontiguousarray(state.cholesky[:n, :n])
        for block in _blocks(len(x), TOGETHER):
            z, variance[block] = self._project(x[block], points, upper)
            mean[block] = state.whitened[:n] @ z
            self.n_clipped_predictions += int(
                np.count_nonzero(variance[block][: max(m - block.start, 0)] < 0.0)
            )
            variance[block] = np.maximum(variance[block], 0.0)
            if self.learns_every_sample:
                variance[block] += np.square(root @ z).sum(axis=0)
        return mean[:m], variance[:m]

    def _project(
        self, inputs: np.ndarray, points: np.ndarray, upper: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """``z = U'^-1 k`` (n_points, m) of inputs (m, p), and ``k(x, x) - z'z`` (m,); points by
        age, and U.
        """
        z = solve_triangular(
            upper,
            self.kernel(points, inputs),
            trans="T",
            overwrite_b=True,
            check_finite=False,
        )
        return z, self.kernel.diagonal(inputs) - np.square(z).sum(axis=0)

    def update(self, x: ArrayLike, y: float) -> UpdateReport:
        """Predict one sample x (n_features,) with its target y, in its own units, then learn from
        it.

        Raises
        ------
        ValueError
            Wrong shape, a value that is not finite, or features at which the prior variance is more
            than 1e13 times the noise variance. Nothing has been learned then.
        """
        point = np.ascontiguousarray(x)
        target = np.array([y])
        fits = point.shape == (self.n_features,) and target.shape == (1,)
        if not (fits and point.dtype == target.dtype == np.float64 and point.flags.writeable):
            # a closed loop passes what fits
            point = vector(x, self.n_features, "x")
            target = vector([y], 1, "y")
        return UpdateReport(*self.learn(point[None], target, NO_MEAN).item())

    def update_many(self, inputs: ArrayLike, targets: ArrayLike) -> np.ndarray:
        """Predict and learn sample by sample, compiled; the decisions and the errors of `update`.

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

    def learn(
        self,
        x: np.ndarray,
        y: np.ndarray,
        prior_mean: np.ndarray,
        *,
        until_outlier: bool = False,
    ) -> np.ndarray:
        """`update_many` for C-contiguous arrays of float64 whose shapes were checked.

        What is learned is ``y - prior_mean``, (n,) of the prior mean at the inputs; the means
        reported are those of y. With `until_outlier` the record ends with the first outlier, and
        the samples after it are not yet seen.
        """
        record = np.zeros(len(x), dtype=RECORD)
        done = 0
        while done < len(x):
            done = dictionary.learn(self._rules, self._state, x, y, prior_mean, done, record)
            if done < 0:
                matrix(x, self.n_features, "inputs")  # says which value is not finite
                vector(y - prior_mean, len(x), "targets")
                raise self._report_too_far(x)
            if self._state.counts[dictionary.FACTORS_ARE] != dictionary.GOOD:
                self._check_factors()
            if self._state.errors[dictionary.NUMBER] >= dictionary.SCALE_INTERVAL:
                self._rescale()
            if record[done - 1][
                "outlier"
            ]:  # if it is believed later, it is forgotten by then, too: once
                if until_outlier:
                    return record[:done]
            elif (n := self._rules.forget_interval) and self._state.counts[
                dictionary.N_SEEN
            ] % n == 0:
                self._forget()
        return record

    def _forget(self) -> None:
        """Step back to the prior, of all samples since the last step: ``P <- l P + (1 - l) I``, ``b
        <- sqrt(l) b``.

        Back to prior forgetting of KRLS-T (Van Vaerenbergh, Lazaro-Gredilla and Santamaria, 2012,
        section IV.B). As each sample adds the variance ``(1 - l) k(x, x)``, a memory of T samples
        is ``1 - l = noise / (T^2 k(x, x))``.
        """
        state = self._state
        n = self.n_points
        every = self._rules.forget_interval
        if n == 0 or self.forgetting is None:
            return
        prior = float(np.diag(state.covariance)[:n].mean()) - self.diagonal
        kept = max(0.0, 1.0 - self.noise_variance / (self.forgetting**2 * prior)) ** every
        root = np.triu(state.root[:n, :n])
        covariance = kept * (root.T @ root)
        covariance[np.arange(n), np.arange(n)] += 1.0 - kept
        state.root[:n, :n] = np.linalg.cholesky(covariance).T
        state.whitened[:n] *= np.sqrt(kept)
        dictionary.solve_weights(state, n)

    def _rescale(self) -> None:
        """Multiply all variances by what the last errors say; every mean stays. Or those that the
        gate compares with.

        KRLS-T (Van Vaerenbergh and others, 2012) estimates this scale; here it is a running mean,
        of bounded memory, of ``min(e^2/s, 9)``, so that a single outlier counts little.
        """
        state = self._state
        total, number, memory, scale = state.errors[: dictionary.LEVEL]
        factor = float((memory + total / EXPECTED_SQUARE) / (memory + number))
        state.errors[: dictionary.SCALE] = (
            0.0,
            0.0,
            min(memory + number, LONGEST_MEMORY),
        )
        if not (self.learns_every_sample and self.scale):
            state.errors[dictionary.SCALE] = scale * factor
            return
        vars(self).update(
            kernel=self.kernel.scaled(factor),
            noise_variance=self.noise_variance * factor,
        )
        scale_state(state, factor)
        self._rules = self._compile_rules()

    def _check_prior(self, inputs: np.ndarray) -> None:
        """Refuse inputs (n, p) if the prior variance at one of them is too large beside the
        noise.
        """
        if not (self.diagonal >= dictionary.LEAST_NOISE * self.kernel.diagonal(inputs)).all():
            raise self._report_too_far(inputs)

    def _report_too_far(self, inputs: np.ndarray) -> UserError:
        """Error that says at which of the inputs (n, p) the prior variance is largest, too large
        beside the noise.
        """
        prior = self.kernel.diagonal(inputs)
        i = int(np.argmax(prior))
        return UserError(
            f"OnlineGP: noise_variance must be at least {dictionary.LEAST_NOISE:g} of the prior variance at every "
            f"point, got {self.noise_variance:g} and a prior variance of {prior[i]:g} at {inputs[i].tolist()}; below "
            "that double precision cannot hold the factor: scale the features to the order of one, or raise the noise "
            "variance"
        )

    def candidate_scores(
        self, inputs: ArrayLike, targets: ArrayLike, criterion: Criterion | None = None
    ) -> np.ndarray:
        """Reduction scores (m, n_points) by slot, with each of the samples (m, n_features), (m,) in
        turn in the set.

        By default those of `reduction`. Nothing is learned.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        rules = (
            self._rules
            if criterion is None
            else self._rules._replace(reduction=criterion.reduction_address)
        )
        found = np.empty((len(x), self.n_points))
        dictionary.candidate_scores(rules, self._state, self.n_points, x, y, found)
        return found

    def leave_one_out(self) -> LeaveOneOut:
        """Residual ``a_i/q_i`` and variance ``1/q_i`` of every point (Rasmussen and Williams,
        5.12).
        """
        n = self.n_points
        by_slot = np.empty((2, n))
        variance = 1.0 / self._state.precision[:n]
        by_slot[:, self.age_order] = self._weights() * variance, variance
        return LeaveOneOut(*by_slot)

    def _weights(self) -> np.ndarray:
        """Solve ``Ua = b`` for the weights ``a`` (n_points,).

        The weights in the state are only as accurate as scores need.
        """
        n = self.n_points
        return (
            solve_triangular(self._state.cholesky[:n, :n], self._state.whitened[:n])
            if n
            else np.zeros(0)
        )

    def state(self) -> dict[str, np.ndarray]:
        """Copy the arrays that define the `sysid.gp.dictionary.Dictionary`, for `restore`."""
        state = self._state
        n = self.n_points
        of_all = {"root": np.triu(state.root[:n, :n])} if self.learns_every_sample else {}
        return of_all | {
            "errors": state.errors.copy(),
            "number": self.sample_numbers,
            "inputs": self.inputs,
            "targets": self.targets,
            "order": self.age_order,
            "cholesky": np.triu(state.cholesky[:n, :n]),
            "factor": np.tril(state.factor[:n, :n]),
            **{name: getattr(state, name)[:n].copy() for name in BY_AGE},
            "weights": self._weights(),
            "counts": state.counts.copy(),
        }

    def exact_form(self) -> dict[str, np.ndarray]:
        """Arrays of `state` by which mean and variance are those of an exact GP: ``k'a`` and ``k(x,
        x) - |F k|^2``.

        If every sample is learned, U, F and b are those of a Ky with the same posterior: with ``P =
        B diag(p) B'``, ``U <- R`` of the QR decomposition of ``diag(1 - p)^(-1/2) B'U``. `whitened`
        follows; nothing else changes.
        """
        state = self.state()
        if self.learns_every_sample and self.n_points:
            _, spread, directions = np.linalg.svd(state["root"])
            known = np.maximum(
                1.0 - spread**2, LEAST_KNOWN
            )  # of the prior variance along each direction
            upper = np.linalg.qr(directions / np.sqrt(known)[:, None] @ state["cholesky"], mode="r")
            upper *= np.sign(np.diag(upper))[:, None]
            factor = solve_triangular(upper, np.eye(len(upper)), trans=1)
            state |= {
                "cholesky": upper,
                "factor": factor,
                "whitened": upper @ state["weights"],
            }
        return state

    def draw_targets(self, n_draws: int, generator: np.random.Generator) -> np.ndarray:
        """Return what is known of the points (n_points, n_draws), by slot.

        This is their targets or, if every sample is learned, draws of their values z.

        Given these and the noise of variance `diagonal` on them, the function follows by exact
        conditioning.
        """
        state = self._state
        n = self.n_points
        if not self.learns_every_sample:
            return np.repeat(self.targets[:, None], n_draws, axis=1)
        normal = generator.standard_normal((n, n_draws))
        whitened = state.whitened[:n, None] + np.triu(state.root[:n, :n]).T @ normal
        by_slot = np.empty_like(whitened)
        by_slot[self.age_order] = np.triu(state.cholesky[:n, :n]).T @ whitened
        return by_slot

    def restore(self, arrays: Mapping[str, np.ndarray], counts: Sequence[int]) -> None:
        """Take over the arrays and counts of `state`, bit for bit.

        Raises
        ------
        ValueError, KeyError
            Arrays that are missing, do not fit together, exceed the budget or contradict the points
            by more than ten times the tolerance.
        """
        n = len(arrays["targets"])
        is_order = np.shape(arrays["order"]) == (n,) and sorted(arrays["order"]) == list(range(n))
        if n > self.budget or not is_order or len(counts) != dictionary.N_COUNTS:
            raise UserError(
                f"expected at most {self.budget} points with an order of their own, got {n}"
            )
        factors = (*FACTORS, "root") if self.learns_every_sample else FACTORS
        shapes = {name: np.shape(arrays[name]) for name in (*factors, *BY_AGE, "inputs")}
        expected = (
            dict.fromkeys(factors, (n, n))
            | dict.fromkeys(BY_AGE, (n,))
            | {"inputs": (n, self.n_features)}
        )
        if shapes != expected:
            raise UserError(f"expected arrays of shapes {expected}, got {shapes}")
        x = matrix(arrays["inputs"], self.n_features, "inputs")
        state = self._from_points(x, vector(arrays["targets"], n, "targets"), self.budget)
        state.order[:n] = arrays["order"]
        put_factors(state, *(matrix(arrays[name], n, name) for name in FACTORS))
        if self.learns_every_sample:
            state.root[:n, :n] = matrix(arrays["root"], n, "root")
        if self.learns_every_sample and not no_wider_than_prior(state.root):
            raise UserError("restore: root must be that of a posterior, no wider than its prior")
        state.errors[:] = vector(arrays["errors"], len(state.errors), "errors")
        total, number, memory, scale, level = state.errors
        is_sum = (
            0 <= number < dictionary.SCALE_INTERVAL
            and 0 <= total <= dictionary.LARGEST_SQUARE * number
        )
        is_scale = FIRST_MEMORY <= memory <= LONGEST_MEMORY and scale > 0 and level >= 0
        if not (is_sum and is_scale):
            raise UserError("restore: errors must be sums, a memory and counts of `OnlineGP.state`")
        state.number[:n] = vector(arrays["number"], n, "number")
        if not (
            (state.number[:n] >= -1) & (state.number[:n] < max(counts[dictionary.N_SEEN], 1))
        ).all():
            raise UserError("restore: number must be that of a sample seen, or -1")
        for name in BY_AGE:
            getattr(state, name)[:n] = vector(arrays[name], n, name)
        state.counts[:] = counts
        state.counts[dictionary.N_POINTS] = n
        state.counts[dictionary.MINIMUM_IS_STALE] = 1
        most = 10 * self._tolerance(x)
        if not (worst := contradiction(state)) <= most:
            raise UserError(
                f"restore: factors and weights contradict the points by {worst:.3g}, expected at most "
                f"{most:.3g}; the arrays were changed after they were taken out"
            )
        dictionary.renew(state, n)  # the weights of a model that goes on
        state.precision[:n] = arrays["precision"]
        self._state = state
        self._rules = self._compile_rules()

    def with_hyperparameters(
        self,
        kernel: Kernel,
        noise_variance: float,
        samples: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> "OnlineGP":
        """Return a GP of another kernel and noise with the same points, ages, rules and counts.

        It costs O(N^3).

        If every sample is learned, what the samples said of the values z of the points is carried
        over: their likelihood under the old prior, a Gaussian in z, times the new prior (Bui,
        Nguyen and Turner, "Streaming sparse Gaussian process approximations", 2017). Where
        `samples`, inputs (n, n_features) and targets (n,), are all that it has learned, they are
        learned anew instead, O(n N^2), which approximates nothing: the batch FITC posterior.
        """
        settings = {name: getattr(self, name) for name in SETTINGS}
        other = OnlineGP(**settings | {"kernel": kernel, "noise_variance": noise_variance})
        other._state = other._from_points(self.inputs, self.targets, self.budget)
        for name in ("order", "counts", "number"):
            getattr(other._state, name)[:] = getattr(self._state, name)
        other._state.errors[dictionary.LEVEL] = self._state.errors[dictionary.LEVEL]
        factorise(other._state)
        if self.learns_every_sample and samples is None:
            carry_over(self._state, other._state)
        other._rules = other._compile_rules()
        if samples is not None:
            other.absorb(*samples)
        for name in COUNTED:
            setattr(other, f"n_{name}", getattr(self, f"n_{name}"))
        return other

    def drift(self) -> float:
        """How far the factors are from the covariance (`sysid.gp.dictionary.drift`): 0 if exact."""
        return float(dictionary.drift(self._state, self.n_points))

    def _check_factors(self) -> None:
        """Factorise from scratch if the factors are due for it or have drifted; only drifted ones
        count as repaired.

        The tolerance is that of the points stored now: they may lie where the prior variance is
        larger.
        """
        counts = self._state.counts
        tolerance = self._rules.tolerance
        drift = self.drift()
        is_due = counts[dictionary.FACTORS_ARE] == dictionary.DUE
        counts[dictionary.FACTORS_ARE] = dictionary.GOOD
        if is_due or drift > tolerance:
            self._rules = self._compile_rules()
            drifted = drift > max(tolerance, self._rules.tolerance)
            self.n_refactorisations += drifted
            self.n_renewals += not drifted
            factorise(self._state)


def _blocks(n: int, size: int) -> Iterator[slice]:
    """Rows of n in blocks."""
    return (slice(begin, begin + size) for begin in range(0, n, size))
