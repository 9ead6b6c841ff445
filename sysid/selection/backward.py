"""Selection by leaving out."""

from dataclasses import dataclass

import numpy as np

from sysid.online import OnlineGP
from sysid.selection.selection import Selection


@dataclass(frozen=True)
class Backward(Selection):
    """Start from all samples and remove the one of lowest reduction score until the budget is met.

    Section 5 of the paper. Every removal sees all the others, which takes O(n^2) memory and O(n^3) time.
    """

    max_samples: int = 4000  # a factor of so many takes 128 MB

    def __post_init__(self) -> None:
        if isinstance(self.max_samples, bool) or not isinstance(self.max_samples, int) or self.max_samples < 2:
            raise ValueError(f"Backward: max_samples must be a whole number of at least 2, got {self.max_samples!r}")

    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        """See `Selection.fill`."""
        if len(targets) > max(self.max_samples, gp.budget):
            raise ValueError(
                f"Backward: expected at most {self.max_samples} samples (max_samples), got {len(targets)}; select "
                "forward, thin the record, or raise max_samples: memory grows with its square"
            )
        return gp.fit(inputs, targets)
