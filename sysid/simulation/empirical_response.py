"""The frequency response of records without a model, by averaged spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, vector
from sysid.errors import UserError

#: segments of a record whose spectra are averaged, if it is long enough for them
N_SEGMENTS = 16
#: least number of samples of a segment, and largest: finer frequencies than these show nothing
SEGMENT_SAMPLES = (32, 4096)
#: fraction of a segment that the next one shares with it
OVERLAP = 0.5
#: effective averages per segment with a Hann window and this overlap (Welch, 1967)
AVERAGES_PER_SEGMENT = 18 / 19
#: an input excites a frequency if its power density there is this fraction of the largest one,
EXCITED_FRACTION = 0.01
#: and the inputs explain at least this share of the output's power there
LEAST_COHERENCE = 0.5


@dataclass(frozen=True, eq=False)
class EmpiricalResponse:
    """Frequency response that the spectra of records show, without a model.

    ``G = S_yu S_uu^-1`` for all inputs together. Its spread is that of the output that the inputs
    do not explain, ``var(G_j) = (1 - c) S_yy (S_uu^-1)_jj / n`` with the multiple coherence c and
    the number n of averages; for one input ``std(|G|) = |G| sqrt((1 - c) / (2 c n))`` (Bendat and
    Piersol, Random Data, section 9.2). Where a plant is nonlinear it is the best linear
    approximation for these inputs.
    """

    frequency: Array  # (n,) above 0 [Hz, or cycles per sample]
    response: NDArray[np.complex128]  # (n, n_u) output unit per input unit
    std: Array  # (n, n_u) of the magnitude, or the phase in rad times the magnitude
    coherence: Array  # (n,) share of the output's power that the inputs explain, 0 to 1
    #: (n, n_u) whether the input has power at the frequency, and the output more than noise
    excited: NDArray[np.bool_]

    def band(self, column: int) -> tuple[float, float] | None:
        """Return the lowest and highest frequency that an input excites; None if there is none."""
        frequencies = self.frequency[self.excited[:, column]]
        return (float(frequencies[0]), float(frequencies[-1])) if len(frequencies) else None


def empirical_response(
    records: Sequence[Mapping[Any, ArrayLike]],
    output: str,
    inputs: Sequence[str],
    sampling_time: float,
) -> EmpiricalResponse:
    """Estimate the frequency response from inputs to an output of records.

    Parameters
    ----------
    records
        Arrays (n,) by name, without missing values.
    output, inputs
        Names of the signals.
    sampling_time : float
        Unit: s, or 1 for cycles per sample.

    Raises
    ------
    ValueError
        All records are shorter than two segments, values are missing, or an input is constant.
    """
    shortest, longest = SEGMENT_SAMPLES
    lengths = [len(np.asarray(record[output])) for record in records]
    n = int(2 * sum(lengths) / (N_SEGMENTS + 1))
    n = min(max(n, shortest), longest, max(lengths, default=0))
    if n < shortest or not inputs:
        raise UserError(
            f"empirical_response: expected a record of at least {shortest} samples and an input, "
            f"got {max(lengths, default=0)} samples and {len(inputs)} inputs"
        )
    window = np.hanning(n + 1)[:n]
    size = len(inputs)
    S_uu = np.zeros((n // 2 + 1, size, size), dtype=np.complex128)
    S_yu = np.zeros((n // 2 + 1, size), dtype=np.complex128)
    S_yy = np.zeros(n // 2 + 1)
    n_segments = 0
    for record in records:
        y = vector(record[output], None, f"empirical_response: {output}")
        u = np.stack([vector(record[name], len(y), name) for name in inputs])
        y = y - y.mean()
        u = u - u.mean(axis=1, keepdims=True)
        for begin in range(0, len(y) - n + 1, max(int(n * (1 - OVERLAP)), 1)):
            rows = slice(begin, begin + n)
            Y = np.fft.rfft(window * y[rows])
            U = np.fft.rfft(window * u[:, rows], axis=1)
            S_uu += np.einsum("if,jf->fij", U, U.conj())
            S_yu += (Y * U.conj()).T
            S_yy += np.abs(Y) ** 2
            n_segments += 1
    powers = np.einsum("fii->fi", S_uu).real
    if not (powers[1:].max(axis=0) > 0).all():
        still = [name for name, power in zip(inputs, powers.max(axis=0), strict=True) if not power]
        raise UserError(f"empirical_response: {', '.join(still)} does not move")
    kept = slice(1, None)
    relative = powers / powers.max(axis=0)
    # where an input has no power, its response is not defined: a little power is added
    S = S_uu[kept] + 1e-12 * powers.max(axis=0) * np.eye(size)
    inverse = np.linalg.inv(S)
    response = np.einsum("fi,fij->fj", S_yu[kept], inverse)
    explained = np.einsum("fj,fj->f", response, S_yu[kept].conj()).real
    coherence = np.clip(explained / np.maximum(S_yy[kept], 1e-300), 0.0, 1.0)
    n_averages = max(AVERAGES_PER_SEGMENT * n_segments - size, 1.0)
    unexplained = (1.0 - coherence) * S_yy[kept]
    variance = unexplained[:, None] * np.einsum("fii->fi", inverse).real / (2 * n_averages)
    return EmpiricalResponse(
        frequency=np.fft.rfftfreq(n, sampling_time)[kept].astype(np.float64),
        response=response,
        std=np.sqrt(np.maximum(variance, 0.0)),
        coherence=coherence,
        excited=(relative[kept] >= EXCITED_FRACTION) & (coherence >= LEAST_COHERENCE)[:, None],
    )
