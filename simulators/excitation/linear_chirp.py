"""Swept sine with equal time per hertz."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.chirp import Chirp


@dataclass(frozen=True)
class LinearChirp(Chirp):
    """Sine whose frequency grows linearly; settings and errors as in `Chirp`.

    ::

        f(t) = f_start + (f_end - f_start) t / T,   phi(t) = 2 pi (f_start t + (f_end - f_start) t^2 / (2 T))

    Its power is about flat between the two frequencies.
    """

    def phase(self, time: NDArray[np.float64], duration: float, f_start: float, f_end: float) -> NDArray[np.float64]:
        """Return phi [rad]; equation in the class, arguments as in `Chirp.phase`."""
        return 2 * np.pi * (f_start * time + (f_end - f_start) * time**2 / (2 * duration))
