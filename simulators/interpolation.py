"""Interpolation of an input between its samples."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from simulators.errors import UserError
from simulators.settings import Array

# Rows of a linearly interpolated input that are in memory at a time.
PIECE_ROWS = 2**16

# Rows of a band-limited input, which is resampled as a whole: more do not fit into memory.
MAX_RESAMPLED_ROWS = 200_000_000


class Piece(NamedTuple):
    """Input of the integrator over a stretch of samples."""

    first: int  # sample at which the stretch starts
    last: int  # sample at which it ends
    values: Array  # rows of the input, (n, n_u)
    rows: int  # rows per sample: 1 if held, else 2 substeps

    def split(self) -> Iterator[Array]:
        """Yield the input from each sample to the next.

        Its shape is (1, n_u) if it is held, else (2 substeps + 1, n_u).
        """
        is_held = self.rows == 1
        n_ends = 0 if is_held else 1
        for k in range(self.last - self.first):
            yield self.values[k * self.rows : (k + 1) * self.rows + n_ends]


class Interpolation(Enum):
    """Input between the samples u_k at t_k = k dt.

    - `held`: ``u(t) = u_k`` for t_k <= t < t_k + dt (zero-order hold). It acts half a sample late
      on average.
    - `linear`: ``u(t) = u_k + (t - t_k)/dt (u_{k+1} - u_k)`` (first-order hold).
    - `band_limited`: the trigonometric polynomial through all samples, for a record that holds
      whole periods of a signal without power at or beyond the Nyquist frequency; exact for such a
      signal.
    """

    held = "held"
    linear = "linear"
    band_limited = "band_limited"

    @classmethod
    def _missing_(cls, value: object) -> None:
        names = ", ".join(repr(member.value) for member in cls)
        raise UserError(f"interpolation={value!r}: expected one of {names}; change interpolation")

    def delayed(self, input: Array, delays: Sequence[int]) -> Array:
        """Return an input (n, n_u) as it acts, each column by a number of samples later.

        Before its first sample it had the value of that sample; a band-limited input is periodic.
        """
        if not any(delays):
            return input
        acting = np.empty_like(input)
        samples = np.arange(len(input))
        for column, delay in enumerate(delays):
            rows = samples - delay
            rows = rows % len(input) if self is Interpolation.band_limited else np.maximum(rows, 0)
            acting[:, column] = input[rows, column]
        return acting

    def pieces(self, input: Array, substeps: int, delays: Sequence[int] = ()) -> Iterator[Piece]:
        """Yield an input (n, n_u) in stretches that cover the samples 0 to n - 1.

        Parameters
        ----------
        input : (n, n_u) array
            Samples; a band-limited input must hold whole periods, its end joins its start.
        substeps : int
            Runge-Kutta steps per sample; an input that varies is evaluated at every half of one.
        delays : sequence of int
            Samples by which each column acts later; by default none does.

        Yields
        ------
        Piece
        """
        n = len(input)
        per_sample = 2 * substeps
        input = self.delayed(input, delays)
        if self is Interpolation.held:
            yield Piece(0, n - 1, input, 1)
        elif self is Interpolation.band_limited:
            if n * per_sample > MAX_RESAMPLED_ROWS:
                raise UserError(
                    f"interpolation=band_limited: {n} samples of {substeps} substeps are "
                    f"{n * per_sample} values of an input, expected at most {MAX_RESAMPLED_ROWS}; "
                    "lower substeps, or simulate fewer samples"
                )
            values = upsample(input, per_sample)[: (n - 1) * per_sample + 1]
            yield Piece(0, n - 1, values, per_sample)
        else:
            length = max(PIECE_ROWS // per_sample, 1)
            for first in range(0, max(n - 1, 1), length):
                last = min(first + length, n - 1)
                values = interpolate(input[first : last + 1], per_sample)
                yield Piece(first, last, values, per_sample)


def late_rows(k: int, delays: Sequence[int], columns: Sequence[int]) -> list[int]:
    """Return the rows of an input, one for each of these columns, that act at sample k.

    A controller sets these columns, so that rows after k are not known yet.

    >>> late_rows(5, [2, 0, 9], [0, 1, 2])
    [3, 5, 0]
    """
    return [max(k - delays[column], 0) for column in columns]


def interpolate(input: Array, factor: int) -> Array:
    """Insert factor - 1 equidistant values between the rows of an input (n, n_u).

    The result has the shape ((n - 1) factor + 1, n_u).
    """
    share = np.arange(factor)[:, np.newaxis] / factor
    starts = input[:-1, np.newaxis, :]
    changes = np.diff(input, axis=0)[:, np.newaxis, :]
    rows = starts + share * changes
    return np.concatenate([rows.reshape(len(rows) * factor, input.shape[1]), input[-1:]])


def upsample(input: Array, factor: int) -> Array:
    """Resample one period (n, n_u) at `factor` times the rate by its Fourier series.

    The result has the shape (n factor, n_u).
    """
    n = len(input)
    spectrum = np.fft.rfft(input, axis=0)
    if n % 2 == 0 and factor > 1:
        spectrum[-1] *= 0.5  # the line at the Nyquist frequency becomes a pair
    return np.ascontiguousarray(factor * np.fft.irfft(spectrum, n * factor, axis=0))
