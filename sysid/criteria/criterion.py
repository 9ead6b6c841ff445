"""The role of a criterion."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from sysid.formula import SCORE, address
from sysid.reference import Reference


class Criterion(ABC):
    """Value of a point for the model, as a formula in three numbers.

    The numbers are the residual ``y - mu`` of the point against a prediction, the noisy variance ``v`` of
    that prediction and the noise variance. For the points of a dictionary all leave-one-out residuals and
    variances follow from one factor (Rasmussen and Williams, equations 5.10 to 5.12), so a
    criterion never refits anything.

    Both formulas use only floats and `math`, and may drop what is the same for all points of a set.
    """

    #: how section 3.3 of the paper judges the stored points for this criterion
    published_reference: ClassVar[Reference]

    @staticmethod
    @abstractmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """Score of a stored point, judged without itself and with the candidate; the LOWEST leaves."""

    @staticmethod
    @abstractmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """Score of a candidate; accepted if ABOVE the smallest score of the stored points."""

    @property
    def reduction_address(self) -> Any:
        """`reduction` as compiled loops call it."""
        return address(type(self).reduction, SCORE)

    @property
    def acceptance_address(self) -> Any:
        """`acceptance` as compiled loops call it."""
        return address(type(self).acceptance, SCORE)
