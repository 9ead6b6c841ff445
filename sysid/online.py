"""Online Gaussian process with a fixed budget of points."""

from collections.abc import Mapping, Sequence
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from sysid import dictionary, state
from sysid.acceptance import AcceptAll, Acceptance
from sysid.arrays import matrix, vector
from sysid.criteria import Criterion, MarginalLogLikelihood
from sysid.dictionary import RECORD, Rules
from sysid.insertion import Always, Insertion
from sysid.kernels import Kernel
from sysid.report import LeaveOneOut, UpdateReport, UpdateReports


class OnlineGP:
    """Zero-mean GP regression that learns from a stream and keeps at most `budget` points.

    Posterior at x*, with ``Ky = K + noise_variance I`` over the stored points (section 2 of Wietzke and
    Graichen, "Comparison of Data Reduction Criteria for Online Gaussian Processes")::

        mean     = k*' Ky^-1 y
        variance = k(x*, x*) - k*' Ky^-1 k*          (latent: without the noise)

    Each sample is predicted, then algorithm 1 of the paper decides: drop it (insertion rule), store it
    (while there is room), or let it replace the stored point of lowest reduction score, if accepted. A
    replacement costs O(N^2), memory is O(N^2). Targets and thresholds are in the target's own units.

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        At least 1e-8 of the kernel's prior variance (at features of one, where it depends on them); below that
        double precision cannot hold the factor.
    budget : int
        Largest number of points N >= 2.
    insertion : Insertion, default `Always`
    acceptance : Acceptance, default `AcceptAll`
    reduction : Criterion, default `MarginalLogLikelihood`

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
    ) -> None:
        self.kernel = kernel
        self._noise_variance = float(noise_variance)
        self.budget = state.checked_budget(budget)
        self.insertion = Always() if insertion is None else insertion
        self.acceptance = AcceptAll() if acceptance is None else acceptance
        self.reduction = MarginalLogLikelihood() if reduction is None else reduction
        self.n_refactorisations = self.n_renewals = self.n_clipped_predictions = 0
        self._check_roles()
        self._n_features = kernel.n_features
        self._state = state.empty(self.budget, kernel.n_features)
        self._rules = self._compile_rules()
        self._record = np.zeros(1, dtype=RECORD)

    def _check_roles(self) -> None:
        roles = {"kernel": Kernel, "insertion": Insertion, "acceptance": Acceptance, "reduction": Criterion}
        for name, role in roles.items():
            if not isinstance(got := getattr(self, name), role):
                raise TypeError(f"OnlineGP: {name} must be an instance of {role.__name__}, got {got!r}")
        state.checked_noise_variance(self.noise_variance, state.largest_prior_variance(self.kernel))

    def _compile_rules(self) -> Rules:
        return Rules(
            kernel=self.kernel.address,
            kernel_parameters=self.kernel.parameters(),
            noise_variance=self.noise_variance,
            insertion=self.insertion.address,
            insertion_parameters=self.insertion.parameters(),
            acceptance=self.acceptance.address,
            reference=self.acceptance.code,
            reduction=self.reduction.reduction_address,
            tolerance=state.tolerance(self.kernel, self.noise_variance, self.budget, self.inputs),
        )

    def __setstate__(self, content: dict[str, object]) -> None:
        vars(self).update(content, _record=np.zeros(1, dtype=RECORD))
        self._state = dictionary.Dictionary(*map(np.array, self._state))  # joblib maps large arrays, read-only
        self._rules = self._compile_rules()  # addresses hold in one process only

    def __repr__(self) -> str:
        return (
            f"OnlineGP({self.kernel}, noise_variance={self.noise_variance:g}, {self.n_points} of {self.budget} points, "
            f"insertion={self.insertion}, acceptance={self.acceptance}, reduction={self.reduction})"
        )

    @property
    def noise_variance(self) -> float:
        """Variance of a measurement around the function, target unit squared; fixed."""
        return self._noise_variance

    @property
    def n_features(self) -> int:
        """Number of features of a point."""
        return self.kernel.n_features

    @property
    def n_points(self) -> int:
        """Number of stored points."""
        return int(self._state.counts[dictionary.N_POINTS])

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
    def repairs(self) -> dict[str, int]:
        """What had to be repaired or was odd so far, counted.

        ``refactorisations``: the factors had drifted and were computed anew; ``clipped_variances``: rounding
        made a variance negative; ``near_duplicates``: points that entered equal a stored one in all features;
        ``renewals``: the factors were computed anew on schedule, before they could drift.
        """
        counts = self._state.counts
        return {
            "refactorisations": self.n_refactorisations,
            "renewals": self.n_renewals,
            "clipped_variances": int(counts[dictionary.N_CLIPPED]) + self.n_clipped_predictions,
            "near_duplicates": int(counts[dictionary.N_DUPLICATES]),
        }

    def fit(self, inputs: ArrayLike, targets: ArrayLike) -> "OnlineGP":
        """Start from these points; beyond the budget, from those that the reduction criterion keeps. Returns itself.

        Parameters
        ----------
        inputs : (n, n_features)
        targets : (n,)
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        points = state.of_points(self.kernel, self.noise_variance, x, y, max(self.budget, len(x)))
        state.factorise(points)
        dictionary.reduce(self._rules, points, self.budget)
        state.factorise(points)
        state.copy_into(self._state, points)
        self._rules = self._compile_rules()
        self.n_refactorisations = self.n_renewals = self.n_clipped_predictions = 0
        return self

    def reduce_to(self, n_points: int) -> None:
        """Remove the point of lowest reduction score until `n_points` are left (section 5 of the paper)."""
        if not isinstance(n_points, Integral) or not 1 <= n_points <= self.n_points:
            raise ValueError(
                f"reduce_to: expected a whole number from 1 to {self.n_points}, the points stored, got {n_points}"
            )
        dictionary.reduce(self._rules, self._state, int(n_points))
        state.factorise(self._state)

    def predict(self, inputs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (m,) and latent variance (m,) at inputs (m, n_features).

        Add `noise_variance` for the variance of a measured target.
        """
        x = matrix(inputs, self.n_features, "inputs")
        mean, variance = np.empty(len(x)), np.empty(len(x))
        clipped = dictionary.predict(self._rules, self._state, self.n_points, x, mean, variance)
        self.n_clipped_predictions += clipped
        return mean, variance

    def update(self, x: ArrayLike, y: float) -> UpdateReport:
        """Predict one sample x (n_features,) with its target y, in its own units, then learn from it.

        Raises
        ------
        ValueError
            Wrong shape, or a value that is not finite. Nothing has been learned then.
        """
        point, target = np.array(x, ndmin=2), np.array([y])
        is_plain = point.dtype == target.dtype == np.float64 and point.shape == (1, self._n_features)
        if not (is_plain and target.ndim == 1 and np.ndim(x) == 1 and dictionary.all_finite(point, target)):
            point, target = vector(x, self._n_features, "x")[None, :], vector([y], 1, "y")
        dictionary.learn(self._rules, self._state, point, target, 0, self._record)
        self._renew_factors()
        return UpdateReport(*self._record[0].item())

    def update_many(self, inputs: ArrayLike, targets: ArrayLike) -> UpdateReports:
        """Predict and learn sample by sample, compiled; the decisions and the errors of `update`.

        Parameters
        ----------
        inputs : (n, n_features)
        targets : (n,)
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        record = np.zeros(len(x), dtype=RECORD)
        done = 0
        while done < len(x):
            done = dictionary.learn(self._rules, self._state, x, y, done, record)
            self._renew_factors()
        return UpdateReports(*(np.ascontiguousarray(record[name]) for name in UpdateReport._fields))

    def candidate_scores(self, inputs: ArrayLike, targets: ArrayLike, criterion: Criterion | None = None) -> np.ndarray:
        """Reduction scores (m, n_points) by slot, with each of the samples (m, n_features), (m,) in turn in the set.

        By default those of `reduction`. Nothing is learned.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        rules = self._rules if criterion is None else self._rules._replace(reduction=criterion.reduction_address)
        found = np.empty((len(x), self.n_points))
        dictionary.candidate_scores(rules, self._state, self.n_points, x, y, found)
        return found

    def leave_one_out(self) -> LeaveOneOut:
        """Residual ``a_i/q_i`` and variance ``1/q_i`` of every point (Rasmussen and Williams, 5.12)."""
        n = self.n_points
        by_age = np.empty((2, n))
        dictionary.leave_one_out(self._state, n, by_age[0], by_age[1])
        by_slot = np.empty_like(by_age)
        by_slot[:, self.age_order] = by_age
        return LeaveOneOut(*by_slot)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of the arrays that define the dictionary (`sysid.dictionary.Dictionary`), for `restore`."""
        return state.taken_out(self._state)

    def restore(self, arrays: Mapping[str, np.ndarray], counts: Sequence[int]) -> None:
        """Take over the arrays and counts of `state`, bit for bit.

        Raises
        ------
        ValueError, KeyError
            Arrays that are missing, do not fit together, exceed the budget or contradict the points.
        """
        self._state = state.put_back(self.kernel, self.noise_variance, self.budget, arrays, counts)
        self._rules = self._compile_rules()

    def with_hyperparameters(self, kernel: Kernel, noise_variance: float) -> "OnlineGP":
        """An online GP of another kernel and noise with the same points, ages, rules and counts; O(N^3)."""
        other = OnlineGP(
            kernel,
            noise_variance=noise_variance,
            budget=self.budget,
            insertion=self.insertion,
            acceptance=self.acceptance,
            reduction=self.reduction,
        )
        other._state = state.with_hyperparameters(self._state, kernel, noise_variance)
        other._rules = other._compile_rules()
        other.n_refactorisations, other.n_renewals = self.n_refactorisations, self.n_renewals
        other.n_clipped_predictions = self.n_clipped_predictions
        return other

    def drift(self) -> float:
        """How far the factors are from the covariance (`sysid.dictionary.drift`): 0 if exact."""
        return float(dictionary.drift(self._state, self.n_points))

    def _renew_factors(self) -> None:
        """Factorise from scratch if the compiled loop asks for it; only drifted factors count as repaired.

        The tolerance is that of the points stored now: they may lie where the prior variance is larger.
        """
        counts = self._state.counts
        if counts[dictionary.FACTORS_ARE] == dictionary.GOOD:
            return
        self._rules = self._compile_rules()
        drifted = bool(counts[dictionary.FACTORS_ARE] == dictionary.DRIFTED) and self.drift() > self._rules.tolerance
        self.n_refactorisations += drifted
        self.n_renewals += not drifted
        counts[dictionary.FACTORS_ARE] = dictionary.GOOD
        state.factorise(self._state)
