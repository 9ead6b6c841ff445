"""The rules of the dictionary: five criteria, insertion and acceptance."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf, log, pi
from typing import Any, ClassVar

import numpy as np
from numba import njit

from sysid.arrays import MAX_MAGNITUDE, as_number, member
from sysid.errors import UserError, UserTypeError
from sysid.gp.dictionary import ACCEPT_ALL, IN_SAMPLE, LEAVE_ONE_OUT
from sysid.gp.formula import DECISION_SIGNATURE, SCORE_SIGNATURE, address


def at_least(least: float, value: Any, setting: str) -> float | None:
    """Return a number as a float if it is at least `least`; None for None or the word none.

    Raise `UserError`, which names the setting, for anything else.
    """
    if value is None or value == "none":
        return None
    if not least <= as_number(value) < MAX_MAGNITUDE:
        raise UserError(f"{setting} must be a number of at least {least:g}, or none, got {value!r}")
    return float(value)


class Reference(Enum):
    """Prediction with which the acceptance score of a stored point is computed.

    The paper leaves it open (section 3.3): its formulas for the entropies and for mean relevance
    read as ``in_sample``, the one for the predictive density as ``leave_one_out``.
    """

    leave_one_out = "leave_one_out"  # without the point itself, as for the candidate
    in_sample = "in_sample"  # by the model that contains the point
    published = "published"  # as the paper's text says for each criterion


class Criterion(ABC):
    """Value of a point for the model, as a formula in three numbers.

    The numbers are the residual ``y - mu`` of the point from a prediction, the noisy variance ``v``
    of that prediction, and the noise variance. One factor gives the leave-one-out residuals and
    variances of all points of a dictionary (Rasmussen and Williams, equations 5.10 to 5.12), so no
    criterion needs to fit a model again.

    The formulas use only floats and `math`. They may leave out terms that are the same for all
    points of a set.
    """

    #: prediction with which section 3.3 of the paper computes the acceptance scores of the stored
    #: points for this criterion
    published_reference: ClassVar[Reference]

    @staticmethod
    @abstractmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """Return the reduction score of a stored point; the point with the LOWEST score leaves.

        The point is predicted from all others and the candidate.
        """

    @staticmethod
    @abstractmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """Return the acceptance score of a candidate.

        It is accepted if its score is ABOVE the smallest score of the stored points.
        """

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """Return a score that ranks points as `reduction` does and is never negative.

        With forgetting it is multiplied by a weight that falls with age, so it must not be
        negative.
        """
        raise NotImplementedError

    @property
    def gain_address(self) -> Any:
        """Address of `gain` for compiled loops."""
        return _address(type(self).gain, SCORE_SIGNATURE)

    @property
    def reduction_address(self) -> Any:
        """Address of `reduction` for compiled loops."""
        return _address(type(self).reduction, SCORE_SIGNATURE)

    @property
    def acceptance_address(self) -> Any:
        """Address of `acceptance` for compiled loops."""
        return _address(type(self).acceptance, SCORE_SIGNATURE)


def _address(formula: Callable[..., Any], signature: Any) -> Any:
    """Return the C address of a formula.

    The machine code of the formulas of this file is kept in the disk cache, because they call
    nothing outside this file.
    """
    return address(formula, signature, kept=formula.__module__ == __name__)


@njit
def latent_variance(variance: float, noise_variance: float) -> float:
    """Return the latent predictive variance ``v - noise_variance``.

    It is at least 1e-16 v, which is what rounding may leave of it.
    """
    return max(variance - noise_variance, 1e-16 * variance)


@dataclass(frozen=True)
class PredictiveEntropy(Criterion):
    """Remove the point whose function value the others know best.

    ``f_red = 0.5 (1 + log 2 pi) + 0.5 log(v_i - noise_variance)``, the entropy of the latent
    function at x_i given the set without i and with the candidate. The constant is left out.
    Acceptance: the latent predictive variance (section 3.3.1).
    """

    published_reference = Reference.in_sample

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``0.5 log(v - noise_variance)``."""
        return 0.5 * log(latent_variance(variance, noise_variance))

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``0.5 log(v / noise_variance)``, the information of the point on the function."""
        return 0.5 * log(max(variance / noise_variance, 1.0))

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``v - noise_variance``."""
        return latent_variance(variance, noise_variance)


@dataclass(frozen=True)
class PriorEntropy(PredictiveEntropy):
    """Keep the set whose noisy observations have the largest joint entropy.

    ::

        f_red = -H(y without i) = -(n/2) (1 + log 2 pi) - 0.5 log|Ky without i|
        log|Ky without i| = log|Ky| - log v_i

    Without the terms that all points share, the score is ``0.5 log v_i``. It selects the same point
    as `PredictiveEntropy`. Acceptance: the latent predictive variance (section 3.3.1).
    """

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``0.5 log v``."""
        return 0.5 * log(variance)


@dataclass(frozen=True)
class MeanRelevance(Criterion):
    """Remove the point that changes the posterior mean at its own input least (Bergmann).

    ``f_red = (mu_i - mu_/i)^2 = (r_i (v_i - noise_variance) / v_i)^2``: the leave-one-out residual
    times the gain of the point, both means with the candidate in the set. Acceptance: the squared
    prediction error (section 3.3.2).
    """

    published_reference = Reference.in_sample

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``(r (v - noise_variance) / v)^2``."""
        change = residual * (variance - noise_variance) / variance
        return change * change

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``(r (v - noise_variance) / v)^2``."""
        change = residual * (variance - noise_variance) / variance
        return change * change

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``r^2``."""
        return residual * residual


@njit
def negative_log_density(residual: float, variance: float) -> float:
    """Return ``-log N(residual; 0, v) = 0.5 log(2 pi v) + 0.5 residual^2 / v``."""
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
        """Return ``-log p(y_i | y without i)``."""
        return negative_log_density(residual, variance)

    @staticmethod
    def gain(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``-log p(y_i | y without i)``, less the smallest value that it can have.

        That is the value for a residual of zero and a variance that is the noise variance alone.
        """
        return 0.5 * log(max(variance / noise_variance, 1.0)) + 0.5 * residual * residual / variance

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """Return ``-log p(y_i | y without i)``."""
        return negative_log_density(residual, variance)


@dataclass(frozen=True)
class MarginalLogLikelihood(LogPredictiveDensity):
    """Remove the point without which the remaining data are least likely (Petelin).

    ::

        f_red = log p(y without i) = log p(y) - log p(y_i | y without i)

    by the chain rule. The point of lowest score leaves: the one that the others predict best. ``log
    p(y)`` is the same for all points and is left out. The rest is the formula of
    `LogPredictiveDensity`, as the paper's section 3.2.3 proves. Acceptance: the negative log
    predictive density (section 3.3.3).
    """


#: The criteria by their names in options, files and tables, in the order of the paper. A new
#: criterion is added here.
CRITERIA: dict[str, type[Criterion]] = {
    "prior_entropy": PriorEntropy,
    "predictive_entropy": PredictiveEntropy,
    "mean_relevance": MeanRelevance,
    "marginal_log_likelihood": MarginalLogLikelihood,
    "log_predictive_density": LogPredictiveDensity,
}
#: The criteria that the paper compares in its tables 2 to 4. Each of the other two selects the same
#: points as one of these.
COMPARED_CRITERIA = ("prior_entropy", "mean_relevance", "marginal_log_likelihood")


class Insertion(ABC):
    """Decides from the prediction of a sample whether to store it (algorithm 2, section 3.1)."""

    @staticmethod
    @abstractmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Return whether the sample is a candidate for the dictionary.

        Parameters
        ----------
        error : float
            Prediction error ``y - mu``, unit of the target.
        variance : float
            Latent predictive variance, that unit squared.
        novelty : float
            Part of the prior variance that the stored points cannot represent, in noise variances:
            ``g2 / s2`` with ``g2 = k(x, x) - k'(K + diagonal I)^-1 k``. If only stored samples are
            learned, it is the latent variance over s2.
        parameters : indexable
            The array that the method `parameters` returns.
        """

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Return the numbers that `formula` receives, at least one."""

    @property
    def address(self) -> Any:
        """Address of `formula` for compiled loops."""
        n_arguments = type(self).formula.__code__.co_argcount
        if n_arguments != len(DECISION_SIGNATURE.args):
            raise UserTypeError(
                f"{type(self).__name__}.formula: expected the arguments "
                f"(error, variance, novelty, parameters), got {n_arguments} arguments; add what is "
                "missing"
            )
        return _address(type(self).formula, DECISION_SIGNATURE)


@dataclass(frozen=True)
class Always(Insertion):
    """Insert every sample."""

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Return True."""
        return True

    def parameters(self) -> np.ndarray:
        """Return a single zero, which is not used."""
        return np.zeros(1)


class Thresholds(Insertion):
    """Insertion rule whose fields are numbers of at least 0."""

    def __post_init__(self) -> None:
        rule = type(self).__name__
        for name, value in vars(self).items():
            if not 0 <= as_number(value) < inf:
                raise UserError(
                    f"{rule}: {name} must be a number of at least 0, in the target's units, "
                    f"got {value!r}"
                )

    def parameters(self) -> np.ndarray:
        """Return the fields in their order."""
        return np.array(list(vars(self).values()), dtype=float)


@dataclass(frozen=True)
class VarianceThreshold(Thresholds):
    """Insert if the latent predictive variance exceeds the threshold (strictly)."""

    variance_threshold: float  # target unit^2

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Return ``variance > variance_threshold``."""
        return variance > parameters[0]


@dataclass(frozen=True)
class ErrorThreshold(Thresholds):
    """Insert if the absolute prediction error is at least the threshold."""

    error_threshold: float  # target unit

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Return ``|error| >= error_threshold``."""
        return abs(error) >= parameters[0]


@dataclass(frozen=True)
class Either(Thresholds):
    """Insert if the variance exceeds its threshold (strictly) or the error reaches its own."""

    variance_threshold: float  # target unit^2
    error_threshold: float  # target unit

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Return ``variance > variance_threshold or |error| >= error_threshold``."""
        return variance > parameters[0] or abs(error) >= parameters[1]


@dataclass(frozen=True)
class Novelty(Thresholds):
    """Insert where the stored points cannot represent the function (strictly).

    The target has no influence. This is the criterion of Csato and Opper, "Sparse on-line Gaussian
    processes" (2002), in noise variances: if the points leave less than the noise variance
    unexplained, the noise of the samples hides it.
    """

    novelty_threshold: float = 0.1  # noise variances

    @staticmethod
    def formula(error: float, variance: float, novelty: float, parameters: np.ndarray) -> bool:
        """Return ``novelty > novelty_threshold``."""
        return novelty > parameters[0]


class Learning(Enum):
    """Which samples an online GP learns from."""

    stored = "stored"  # the stored points alone: Wietzke and Graichen
    # all samples, by the posterior of the function at the stored points
    every_sample = "every_sample"


class Acceptance(ABC):
    """Decides whether a candidate may replace a point of a full dictionary."""

    @property
    @abstractmethod
    def address(self) -> Any:
        """Address of the score formula for compiled loops."""

    @property
    @abstractmethod
    def code(self) -> int:
        """Reference of the stored points' scores, as a number for compiled loops."""


@dataclass(frozen=True)
class AcceptAll(Acceptance):
    """Accept every candidate."""

    @property
    def address(self) -> Any:
        """Address of some formula, which is never called."""
        return LogPredictiveDensity().acceptance_address

    @property
    def code(self) -> int:
        """Code for compiled loops that do not compare scores."""
        return ACCEPT_ALL


@dataclass(frozen=True)
class ExceedsMinimum(Acceptance):
    """Accept a candidate whose score exceeds the smallest score of the stored points.

    ``f_acc(x*, y*) > min_i f_acc(x_i, y_i)``, with the candidate predicted by the current model.

    Parameters
    ----------
    criterion : Criterion
        Supplies f_acc; may differ from the criterion of the reduction.
    reference : Reference or its name
        How the stored points are predicted: ``leave_one_out`` (default), ``in_sample`` or
        ``published``.
    """

    criterion: Criterion
    reference: Reference | str = Reference.leave_one_out

    def __post_init__(self) -> None:
        if not isinstance(self.criterion, Criterion):
            raise UserTypeError(
                f"ExceedsMinimum: criterion must be a Criterion, got {self.criterion!r}"
            )
        reference = member(Reference, self.reference, "ExceedsMinimum: reference")
        object.__setattr__(self, "reference", reference)

    @property
    def address(self) -> Any:
        """Address of the score formula for compiled loops."""
        return self.criterion.acceptance_address

    @property
    def code(self) -> int:
        """Reference of the stored points' scores, as a number for compiled loops."""
        reference = self.reference
        if reference is Reference.published:
            reference = self.criterion.published_reference
        return IN_SAMPLE if reference is Reference.in_sample else LEAVE_ONE_OUT
