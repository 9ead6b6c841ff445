"""Swept sine with equal time per octave."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.chirp import Chirp
from simulators.settings import check_positive, refuse


@dataclass(frozen=True)
class LogarithmicChirp(Chirp):
    """Sine whose frequency grows exponentially; settings and errors as in `Chirp`.

    ::

        f(t) = f_start r^(t / T),   phi(t) = 2 pi f_start T (r^(t / T) - 1) / ln(r),   r = f_end / f_start

    Its power falls with 1/f: equal power per octave. Both frequencies must be positive and differ.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, *(name for name in ("f_start", "f_end") if getattr(self, name) is not None))
        if self.f_start is not None and self.f_start == self.f_end:
            raise refuse(self, "f_end", f"a frequency other than f_start={self.f_start!r} (a sine is a linear chirp)")

    def phase(self, time: NDArray[np.float64], duration: float, f_start: float, f_end: float) -> NDArray[np.float64]:
        """Return phi [rad]; equation in the class, arguments as in `Chirp.phase`.

        Raises
        ------
        ValueError
            If both frequencies are equal.
        """
        if f_start == f_end:
            raise ValueError(
                f"LogarithmicChirp(f_start={self.f_start!r}, f_end={self.f_end!r}): expected two frequencies, got "
                f"{f_start:.9g} Hz twice for a sweep of {duration:.9g} s; set f_start and f_end"
            )
        rate = math.log(f_end / f_start)
        return 2 * np.pi * f_start * duration * np.expm1(rate * time / duration) / rate
