"""The rules of the dictionary: five criteria, insertion, acceptance."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf, log, pi
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numba import njit

from sysid.arrays import MAX_MAGNITUDE, member
from sysid.errors import UserError, UserTypeError
from sysid.gp.dictionary import ACCEPT_ALL, IN_SAMPLE, LEAVE_ONE_OUT
from sysid.gp.formula import DECISION, SCORE, address


def at_least(least: float, value: Any, setting: str) -> float | None:
    """Return a number of at least `least`, or None for None or the word none.

    The error names the setting.
    """
    if value is None or value == "none":
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not least <= float(value) < MAX_MAGNITUDE
    ):
        raise UserError(f"{setting} must be a number of at least {least:g}, or none, got {value!r}")
    return float(value)


class Reference(Enum):
    """Prediction against which the acceptance score of a stored point is taken.

    The paper leaves it open (section 3.3): its formulas for the entropies and for mean relevance
    read as ``in_sample``, the one for the predictive density as ``leave_one_out``.
    """

    leave_one_out = "leave_one_out"  # without the point itself, as the candidate is judged
    in_sample = "in_sample"  # by the model that contains the point
    published = "published"  # what the paper's text says for each criterion


class Criterion(ABC):
    """Value of a point for the model, as a formula in three numbers.

    The numbers are the residual ``y - mu`` of the point against a prediction, the noisy variance
    ``v`` of that prediction and the noise variance. For the points of a dictionary all
    leave-one-out residuals and variances follow from one factor (Rasmussen and Williams, equations
    5.10 to 5.12), so a criterion never refits anything.

    Both formulas use only floats and `math`, and may drop what is the same for all points of a set.
    """

    #: how section 3.3 of the paper judges the stored points for this criterion
    published_reference: ClassVar[Reference]

    @staticmethod
    @abstractmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """Score of a stored point, judged without itself and with the candidate; the LOWEST
        leaves.
        """

    @staticmethod
    @abstractmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """Score of a candidate; accepted if ABOVE the smallest score of the stored points."""

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """Score of the ranking of `reduction` that is never negative, so that a weight by age can
        lower it.
        """
        raise NotImplementedError

    @property
    def gain_address(self) -> Any:
        """`gain` as compiled loops call it."""
        return _address(type(self).gain, SCORE)

    @property
    def reduction_address(self) -> Any:
        """`reduction` as compiled loops call it."""
        return _address(type(self).reduction, SCORE)

    @property
    def acceptance_address(self) -> Any:
        """`acceptance` as compiled loops call it."""
        return _address(type(self).acceptance, SCORE)


def _address(formula: Callable[..., Any], signature: Any) -> Any:
    """C address of a formula; the machine code of those of this file, which call nothing outside
    it, is kept.
    """
    return address(formula, signature, kept=formula.__module__ == __name__)


@njit
def latent_variance(variance: float, noise_variance: float) -> float:
    """Latent predictive variance ``v - noise_variance``, at least what rounding leaves of it (1e-16
    v).
    """
    return max(variance - noise_variance, 1e-16 * variance)


@dataclass(frozen=True)
class PredictiveEntropy(Criterion):
    """Remove the point whose function value the others know best.

    ``f_red = 0.5 (1 + log 2 pi) + 0.5 log(v_i - noise_variance)``, the entropy of the latent
    function at x_i given the set without i and with the candidate; the constant is dropped.
    Acceptance: the latent predictive variance (section 3.3.1).
    """

    published_reference = Reference.in_sample

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``0.5 log(v - noise_variance)``."""
        return 0.5 * log(latent_variance(variance, noise_variance))

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """``0.5 log(v / noise_variance)``, what the point tells of the function."""
        return 0.5 * log(max(variance / noise_variance, 1.0))

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """``v - noise_variance``."""
        return latent_variance(variance, noise_variance)


@dataclass(frozen=True)
class PriorEntropy(PredictiveEntropy):
    """Keep the set whose noisy observations have the largest joint entropy.

    ::

        f_red = -H(y without i) = -(n/2) (1 + log 2 pi) - 0.5 log|Ky without i|
        log|Ky without i| = log|Ky| - log v_i

    so up to what all points share the score is ``0.5 log v_i``. Selects the same point as
    `PredictiveEntropy`. Acceptance: the latent predictive variance (section 3.3.1).
    """

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``0.5 log v``."""
        return 0.5 * log(variance)


@dataclass(frozen=True)
class MeanRelevance(Criterion):
    """Remove the point that changes the posterior mean at its own place least (Bergmann).

    ``f_red = (mu_i - mu_/i)^2 = (r_i (v_i - noise_variance) / v_i)^2``: the leave-one-out residual
    times the gain of the point, both means with the candidate in the set. Acceptance: the squared
    prediction error (section 3.3.2).
    """

    published_reference = Reference.in_sample

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``(r (v - noise_variance) / v)^2``."""
        change = residual * (variance - noise_variance) / variance
        return change * change

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """``(r (v - noise_variance) / v)^2``."""
        change = residual * (variance - noise_variance) / variance
        return change * change

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """``r^2``."""
        return residual * residual


@njit
def negative_log_density(residual: float, variance: float) -> float:
    """``-log N(residual; 0, v) = 0.5 log(2 pi v) + 0.5 residual^2 / v``."""
    return 0.5 * log(2.0 * pi * variance) + 0.5 * residual * residual / variance


@dataclass(frozen=True)
class LogPredictiveDensity(Criterion):
    """Remove the point that the others predict best.

    ``f_red = -log p(y_i | y without i)`` with the noisy predictive variance. Acceptance: the same
    formula (section 3.3.3).
    """

    published_reference = Reference.leave_one_out

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``-log p(y_i | y without i)``."""
        return negative_log_density(residual, variance)

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """``-log p(y_i | y without i)`` above that of a residual of zero and the noise alone."""
        return 0.5 * log(max(variance / noise_variance, 1.0)) + 0.5 * residual * residual / variance

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """``-log p(y_i | y without i)``."""
        return negative_log_density(residual, variance)


@dataclass(frozen=True)
class MarginalLogLikelihood(LogPredictiveDensity):
    """Remove the point without which the remaining data are least likely (Petelin).

    ::

        f_red = log p(y without i) = log p(y) - log p(y_i | y without i)

    by the chain rule, and the lowest leaves: the point that the others predict best. ``log p(y)``
    is shared by all points and dropped, which leaves the very formula of `LogPredictiveDensity`, as
    the paper's section 3.2.3 proves. Acceptance: the negative log predictive density (section
    3.3.3).
    """


#: the criteria by their names in options, files and tables, in the order of the paper; another one is added here
CRITERIA: dict[str, type[Criterion]] = {
    "prior_entropy": PriorEntropy,
    "predictive_entropy": PredictiveEntropy,
    "mean_relevance": MeanRelevance,
    "marginal_log_likelihood": MarginalLogLikelihood,
    "log_predictive_density": LogPredictiveDensity,
}
#: the three that the paper compares in its tables 2 to 4; the other two choose the same points as one of them
COMPARED_CRITERIA = ("prior_entropy", "mean_relevance", "marginal_log_likelihood")


class Insertion(ABC):
    """Decides from its own prediction whether a sample is worth a place (algorithm 2, section
    3.1).
    """

    @staticmethod
    @abstractmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Whether to insert.

        Parameters
        ----------
        error : float
            Prediction error ``y - mu``, unit of the target.
        variance : float
            Latent predictive variance, that unit squared.
        novelty : float
            Part of the prior variance that the stored points cannot represent, in noise variances:
            ``g2 / s2`` with ``g2 = k(x, x) - k'(K + diagonal I)^-1 k``. If only stored samples are
            learned, the latent variance over s2.
        parameters : indexable
            What `parameters` returns.
        """

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Numbers that `formula` receives, at least one."""

    @property
    def address(self) -> Any:
        """`formula` as compiled loops call it."""
        if (n := type(self).formula.__code__.co_argcount) != len(DECISION.args):
            expected = "(error, variance, novelty, parameters)"
            raise UserTypeError(
                f"{type(self).__name__}.formula: expected the arguments {expected}, got {n}; add what is missing"
            )
        return _address(type(self).formula, DECISION)


@dataclass(frozen=True)
class Always(Insertion):
    """Every sample asks for a place."""

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Yes."""
        return True

    def parameters(self) -> np.ndarray:
        """None are needed."""
        return np.zeros(1)


class Thresholds(Insertion):
    """Insertion rule whose fields are numbers of at least 0."""

    def __post_init__(self) -> None:
        rule = type(self).__name__
        for name, value in vars(self).items():
            if (
                isinstance(value, bool)
                or not isinstance(value, Real)
                or not 0 <= float(value) < inf
            ):
                raise UserError(
                    f"{rule}: {name} must be a number of at least 0, in the target's units, got {value!r}"
                )

    def parameters(self) -> np.ndarray:
        """Return the fields in their order."""
        return np.array([*vars(self).values()], dtype=float)


@dataclass(frozen=True)
class VarianceThreshold(Thresholds):
    """Insert if the latent predictive variance exceeds the threshold (strictly)."""

    variance_threshold: float  # target unit^2

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """``variance > variance_threshold``."""
        return variance > parameters[0]


@dataclass(frozen=True)
class ErrorThreshold(Thresholds):
    """Insert if the absolute prediction error is at least the threshold."""

    error_threshold: float  # target unit

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """``|error| >= error_threshold``."""
        return abs(error) >= parameters[0]


@dataclass(frozen=True)
class Either(Thresholds):
    """Insert if the variance exceeds its threshold (strictly) or the absolute error reaches its
    own.
    """

    variance_threshold: float  # target unit^2
    error_threshold: float  # target unit

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """``variance > variance_threshold or |error| >= error_threshold``."""
        return variance > parameters[0] or abs(error) >= parameters[1]


@dataclass(frozen=True)
class Novelty(Thresholds):
    """Insert where the stored points cannot represent the function (strictly), whatever the target
    is.

    The criterion of Csato and Opper, "Sparse on-line Gaussian processes" (2002), in noise
    variances: a function that the points leave open by less than the noise cannot be seen in the
    samples.
    """

    novelty_threshold: float = 0.1  # noise variances

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """``novelty > novelty_threshold``."""
        return novelty > parameters[0]


class Learning(Enum):
    """What an online GP learns from."""

    stored = "stored"  # the stored points alone: Wietzke and Graichen
    # all samples, by the posterior of the function at the stored points
    every_sample = "every_sample"


class Acceptance(ABC):
    """Judges a candidate against the points of a full dictionary."""

    @property
    @abstractmethod
    def address(self) -> Any:
        """Score formula as compiled loops call it."""

    @property
    @abstractmethod
    def code(self) -> int:
        """Reference as compiled loops know it."""


@dataclass(frozen=True)
class AcceptAll(Acceptance):
    """Every inserted sample takes a place."""

    @property
    def address(self) -> Any:
        """Address of some formula; it is never called."""
        return LogPredictiveDensity().acceptance_address

    @property
    def code(self) -> int:
        """No reference: nothing is compared."""
        return ACCEPT_ALL


@dataclass(frozen=True)
class ExceedsMinimum(Acceptance):
    """Accept a candidate whose score exceeds the smallest score of the stored points.

    ``f_acc(x*, y*) > min_i f_acc(x_i, y_i)``, the candidate judged by the current model.

    Parameters
    ----------
    criterion : Criterion
        Supplies f_acc; may differ from the criterion of the reduction.
    reference : Reference or its name
        How the stored points are judged: ``leave_one_out`` (default), ``in_sample`` or
        ``published``.
    """

    criterion: Criterion
    reference: Reference | str = Reference.leave_one_out

    def __post_init__(self) -> None:
        if not isinstance(self.criterion, Criterion):
            raise UserTypeError(
                f"ExceedsMinimum: criterion must be a Criterion, got {self.criterion!r}"
            )
        object.__setattr__(
            self,
            "reference",
            member(Reference, self.reference, "ExceedsMinimum: reference"),
        )

    @property
    def address(self) -> Any:
        """Score formula as compiled loops call it."""
        return self.criterion.acceptance_address

    @property
    def code(self) -> int:
        """Reference as compiled loops know it."""
        reference = self.reference
        if reference is Reference.published:
            reference = self.criterion.published_reference
        return IN_SAMPLE if reference is Reference.in_sample else LEAVE_ONE_OUT
