"""Rules that say whether a sample may take the place of a stored point (algorithm 4, section 3.3)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from sysid.criteria.criterion import Criterion
from sysid.criteria.log_predictive_density import LogPredictiveDensity
from sysid.dictionary import ACCEPT_ALL, IN_SAMPLE, LEAVE_ONE_OUT
from sysid.reference import Reference


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
        How the stored points are judged: ``leave_one_out`` (default), ``in_sample`` or ``published``.
    """

    criterion: Criterion
    reference: Reference | str = Reference.leave_one_out

    def __post_init__(self) -> None:
        if not isinstance(self.criterion, Criterion):
            raise TypeError(f"ExceedsMinimum: criterion must be a Criterion, got {self.criterion!r}")
        names = [reference.value for reference in Reference]
        if not isinstance(self.reference, Reference) and self.reference not in names:
            raise ValueError(f"ExceedsMinimum: reference must be one of {names}, got {self.reference!r}")
        object.__setattr__(self, "reference", Reference(self.reference))

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
