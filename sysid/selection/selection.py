"""The role of a selection."""

from abc import ABC, abstractmethod

import numpy as np

from sysid.online import OnlineGP


class Selection(ABC):
    """Which of many samples start a dictionary, judged by its reduction criterion (section 5 of the paper)."""

    @abstractmethod
    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        """Start an online GP from at most `budget` of the samples (n, p), (n,), in its own scales; returns it.

        Raises
        ------
        ValueError
            More samples than this selection can hold.
        """
