"""Online Gaussian process with a fixed budget of points."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack

from sysid import dictionary
from sysid.acceptance import AcceptAll, Acceptance
from sysid.arrays import matrix, vector
from sysid.criteria import Criterion, MarginalLogLikelihood
from sysid.dictionary import RECORD, Rules
from sysid.insertion import Always, Insertion
from sysid.kernels import Kernel

#: smallest noise variance, relative to the prior variance, for which double precision holds the factor
LEAST_NOISE = 1e-8
#: vectors of the dictionary in order of age
BY_AGE = ("pivots", "whitened", "weights", "precision")


class UpdateReport(NamedTuple):
    """What one sample did: the prediction made before its target was used, then the decisions."""

    mean: float  # predicted target
    variance: float  # latent predictive variance
    inserted: bool  # the insertion rule asked for a place
    accepted: bool  # the sample entered the dictionary
    slot: int  # place that it took, -1 if none
    removed: int  # place whose point had to leave, -1 if none
    n_points: int  # size of the dictionary afterwards
    acceptance_score: float  # of the sample, nan if nobody asked
    acceptance_minimum: float  # smallest score of the stored points, nan if nobody asked
    reduction_score: float  # of the point that left, nan if none


@dataclass(frozen=True, eq=False)
class UpdateReports:
    """Reports of many samples: one array per field of `UpdateReport`, or one report per index."""

    mean: np.ndarray
    variance: np.ndarray
    inserted: np.ndarray
    accepted: np.ndarray
    slot: np.ndarray
    removed: np.ndarray
    n_points: np.ndarray
    acceptance_score: np.ndarray
    acceptance_minimum: np.ndarray
    reduction_score: np.ndarray

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, index: int) -> UpdateReport:
        return UpdateReport(*(getattr(self, name)[index].item() for name in UpdateReport._fields))

    def __iter__(self) -> Iterator[UpdateReport]:
        return (self[index] for index in range(len(self)))


class LeaveOneOut(NamedTuple):
    """Every stored point judged without itself, in slot order."""

    residual: np.ndarray  # y_i - mu_/i
    variance: np.ndarray  # noisy: latent variance plus noise variance


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
        At least 1e-8 of the kernel's prior variance; below that double precision cannot hold the factor.
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
        self.noise_variance = float(noise_variance)
        self.budget = _checked_budget(budget)
        self.insertion = Always() if insertion is None else insertion
        self.acceptance = AcceptAll() if acceptance is None else acceptance
        self.reduction = MarginalLogLikelihood() if reduction is None else reduction
        self.n_refactorisations = 0
        self._check_roles()
        self._n_features = kernel.n_features
        self._state = dictionary.empty_dictionary(self.budget, kernel.n_features)
        self._rules = self._compile_rules()
        self._record = np.zeros(1, dtype=RECORD)

    def _check_roles(self) -> None:
        roles = {"kernel": Kernel, "insertion": Insertion, "acceptance": Acceptance, "reduction": Criterion}
        for name, role in roles.items():
            if not isinstance(getattr(self, name), role):
                got = getattr(self, name)
                raise TypeError(f"OnlineGP: {name} must be an instance of {role.__name__}, got {got!r}")
        prior = self._prior_variance()
        if not np.isfinite(self.noise_variance) or not self.noise_variance >= LEAST_NOISE * prior * (
            1 - 1e-9
        ):
            raise ValueError(
                f"OnlineGP: noise_variance must be at least {LEAST_NOISE:g} of the kernel's variance "
                f"({LEAST_NOISE * prior:g}), got {self.noise_variance}; below that double precision "
                "cannot hold the factor"
            )

    def _prior_variance(self) -> float:
        origin = np.zeros((1, self.kernel.n_features))
        return float(self.kernel(origin, origin)[0, 0])

    def _compile_rules(self) -> Rules:
        condition = self.budget * self._prior_variance() / self.noise_variance
        return Rules(
            kernel=self.kernel.address,
            kernel_parameters=self.kernel.parameters(),
            noise_variance=self.noise_variance,
            insertion=self.insertion.address,
            insertion_parameters=self.insertion.parameters(),
            acceptance=self.acceptance.address,
            reference=self.acceptance.code,
            reduction=self.reduction.reduction_address,
            tolerance=1e-6 + 1e3 * np.finfo(float).eps * condition,
        )

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
        made a variance negative; ``near_duplicates``: points that entered equal a stored one in all features.
        """
        counts = self._state.counts
        return {
            "refactorisations": self.n_refactorisations,
            "clipped_variances": int(counts[dictionary.N_CLIPPED]),
            "near_duplicates": int(counts[dictionary.N_DUPLICATES]),
        }

    def fit(self, inputs: ArrayLike, targets: ArrayLike) -> "OnlineGP":
        """Start from these points; beyond the budget, from those that the reduction criterion keeps.

        Parameters
        ----------
        inputs : (n, n_features)
        targets : (n,)

        Returns
        -------
        OnlineGP
            Itself.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        state = dictionary.empty_dictionary(max(self.budget, len(x)), self.n_features)
        state.inputs[:, : len(x)] = x.T
        state.targets[: len(x)] = y
        state.covariance[: len(x), : len(x)] = self.kernel(x, x)
        state.covariance[np.arange(len(x)), np.arange(len(x))] += self.noise_variance
        state.counts[dictionary.N_POINTS] = len(x)
        _factorise(state)
        dictionary.reduce(self._rules, state, self.budget)
        self._take(state)
        return self

    def _take(self, state: dictionary.Dictionary) -> None:
        """Adopt a state of possibly larger capacity with at most `budget` points."""
        n, kept = self.budget, self._state
        kept.inputs[:] = state.inputs[:, :n]
        kept.targets[:] = state.targets[:n]
        kept.covariance[:] = state.covariance[:n, :n]
        kept.order[:] = state.order[:n]
        for name in ("cholesky", "factor"):
            getattr(kept, name)[:] = getattr(state, name)[: n + 1, : n + 1]
        for name in BY_AGE:
            getattr(kept, name)[:] = getattr(state, name)[: n + 1]
        kept.counts[:] = state.counts

    def reduce_to(self, n_points: int) -> None:
        """Remove the point of lowest reduction score until `n_points` are left (section 5 of the paper)."""
        if not 1 <= n_points <= self.n_points:
            raise ValueError(
                f"reduce_to: expected a number from 1 to {self.n_points} (points stored), got {n_points}"
            )
        dictionary.reduce(self._rules, self._state, n_points)

    def predict(self, inputs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (m,) and latent variance (m,) at inputs (m, n_features).

        Add `noise_variance` for the variance of a measured target.
        """
        x = matrix(inputs, self.n_features, "inputs")
        mean, variance = np.empty(len(x)), np.empty(len(x))
        clipped = dictionary.predict(self._rules, self._state, self.n_points, x, mean, variance)
        self._state.counts[dictionary.N_CLIPPED] += clipped
        return mean, variance

    def update(self, x: ArrayLike, y: float) -> UpdateReport:
        """Predict one sample, then learn from it.

        Parameters
        ----------
        x : (n_features,)
        y : float
            Target, in its own units.

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
        """Predict and learn sample by sample, compiled; the decisions of `update`.

        Parameters
        ----------
        inputs : (n, n_features)
        targets : (n,)

        Raises
        ------
        ValueError
            Wrong shape, or a value that is not finite. Nothing has been learned then.
        """
        x = matrix(inputs, self.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        record = np.zeros(len(x), dtype=RECORD)
        done = 0
        while done < len(x):
            done = dictionary.learn(self._rules, self._state, x, y, done, record)
            self._renew_factors()
        return UpdateReports(*(np.ascontiguousarray(record[name]) for name in UpdateReport._fields))

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
        n, state = self.n_points, self._state
        by_age = {name: getattr(state, name)[:n].copy() for name in ("order", *BY_AGE)}
        factors = {"cholesky": np.triu(state.cholesky[:n, :n]), "factor": np.tril(state.factor[:n, :n])}
        return {
            "inputs": self.inputs,
            "targets": self.targets,
            **by_age,
            **factors,
            "counts": state.counts.copy(),
        }

    def restore(self, arrays: Mapping[str, np.ndarray], counts: Sequence[int]) -> None:
        """Take over the arrays and counts of `state`, bit for bit.

        Raises
        ------
        ValueError, KeyError
            Arrays that are missing, do not fit together or exceed the budget.
        """
        state, n = dictionary.empty_dictionary(self.budget, self.n_features), len(arrays["targets"])
        if n > self.budget or sorted(arrays["order"]) != list(range(n)) or len(counts) != state.counts.size:
            raise ValueError(
                f"restore: expected at most {self.budget} points with an order of their own, got {n}"
            )
        x = matrix(arrays["inputs"], self.n_features, "inputs")
        state.inputs[:, :n] = x.T
        state.targets[:n] = vector(arrays["targets"], n, "targets")
        state.order[:n] = arrays["order"]
        for name in ("cholesky", "factor"):
            getattr(state, name)[:n, :n] = matrix(arrays[name], n, name)
        for name in BY_AGE:
            getattr(state, name)[:n] = vector(arrays[name], n, name)
        state.covariance[:n, :n] = self.kernel(x, x)
        state.covariance[np.arange(n), np.arange(n)] += self.noise_variance
        state.counts[:] = counts
        state.counts[dictionary.N_POINTS] = n
        state.counts[dictionary.MINIMUM_IS_STALE] = 1
        self._state = state

    def drift(self) -> float:
        """How far the factors are from the covariance (`sysid.dictionary.drift`): 0 if exact."""
        return float(dictionary.drift(self._state, self.n_points))

    def _renew_factors(self) -> None:
        """Factorise from scratch if the compiled loop asks for it; only drifted factors count as repaired."""
        counts = self._state.counts
        if counts[dictionary.FACTORS_ARE] == dictionary.GOOD:
            return
        self.n_refactorisations += int(counts[dictionary.FACTORS_ARE] == dictionary.DRIFTED)
        counts[dictionary.FACTORS_ARE] = dictionary.GOOD
        _factorise(self._state)


def _factorise(state: dictionary.Dictionary) -> None:
    """``U'U = Ky`` and ``F = U'^-1`` from scratch, O(N^3)."""
    n = int(state.counts[dictionary.N_POINTS])
    order = state.order[:n]
    ky = state.covariance[np.ix_(order, order)]
    lower, status = lapack.dpotrf(ky, lower=1, clean=1)
    if status == 0:
        inverse, status = lapack.dtrtri(lower, lower=1)
    if status != 0:
        raise np.linalg.LinAlgError(
            f"OnlineGP: the covariance of {n} points is not positive definite (LAPACK status {status}); "
            "raise the noise variance"
        )
    state.cholesky[:n, :n], state.factor[:n, :n] = lower.T, inverse
    dictionary.summarise(state, n)


def _checked_budget(budget: int) -> int:
    if isinstance(budget, bool) or not isinstance(budget, Real) or budget < 2 or int(budget) != budget:
        raise ValueError(f"OnlineGP: budget must be an integer of at least 2 points, got {budget!r}")
    return int(budget)
