"""The role of an excitation, and checks that excitations share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulators.errors import UserError, UserTypeError
from simulators.noise import random_stream
from simulators.settings import Array, check_count, check_finite, is_finite, refuse

# A time counts as a whole number of samples if it differs by less than this, because of rounding.
WHOLE_SAMPLE_TOLERANCE = 1e-6

# A sample that no record reaches: later times count as this one, because they may be no integer.
MAX_SAMPLE_NUMBER = 10**18

Band = tuple[float, float]  # lowest and highest frequency, Hz


def check_sampling(n_samples: int, dt: float) -> None:
    """Raise ValueError unless `n_samples` is a positive integer and `dt` [s] is positive."""
    check_count("n_samples", n_samples)
    if not (is_finite(dt) and dt > 0):
        raise UserError(f"dt={dt!r}: expected a sampling time > 0 s; change dt")


def count_samples(owner: Any, name: str, dt: float | None) -> int:
    """Return a time of an excitation in samples.

    Parameters
    ----------
    owner : object
        Settings object that holds the time.
    name : str
        Name of the field with the time [s].
    dt : float, optional
        Sampling time [s].

    Returns
    -------
    int
        Number of samples, at least 1.

    Raises
    ------
    ValueError
        If the sampling time is missing, or the time is shorter than a sample or no whole multiple
        of it. The message names the nearest multiples.
    """
    if dt is None:
        raise UserError(
            f"{type(owner).__name__}: expected dt, since {name} is set in seconds; "
            "give period_samples a dt"
        )
    ratio = min(getattr(owner, name) / dt, MAX_SAMPLE_NUMBER)
    count = round(ratio)
    if count >= 1 and abs(ratio - count) <= WHOLE_SAMPLE_TOLERANCE * max(1.0, 0.01 * count):
        return count
    nearest = sorted({max(math.floor(ratio), 1), max(math.ceil(ratio), 1)})
    multiples = " or ".join(f"{multiple * dt:.9g}" for multiple in nearest)
    raise refuse(
        owner,
        name,
        f"a whole multiple of the sampling time dt={dt:.9g} s, such as {multiples} s",
    )


def find_first_sample(time: float, dt: float) -> int:
    """Return the first sample at or after a time [s], at most `MAX_SAMPLE_NUMBER`."""
    return math.ceil(min(time / dt, MAX_SAMPLE_NUMBER) - WHOLE_SAMPLE_TOLERANCE)


def read_band(owner: Any) -> Band | None:
    """Return the field `band`, (f_low, f_high) [Hz], as a tuple of floats, None if there is none.

    Raises
    ------
    ValueError
        Unless there are two finite frequencies with 0 <= f_low < f_high.
    """
    band = owner.band
    if band is None:
        return None
    if not is_pair(band) or not 0 <= band[0] < band[1]:
        raise refuse(
            owner,
            "band",
            "two frequencies [f_low, f_high] in Hz with 0 <= f_low < f_high, or null",
        )
    return float(band[0]), float(band[1])


def is_pair(value: object) -> bool:
    """Whether a value is a sequence of two finite numbers."""
    return isinstance(value, Sequence) and len(value) == 2 and all(map(is_finite, value))


def check_below_nyquist(owner: Any, name: str, frequency: float, dt: float) -> None:
    """Raise ValueError unless a frequency [Hz] is below half the sampling frequency."""
    nyquist = 0.5 / dt
    if not frequency < nyquist * (1 - 1e-12):
        found = f"{frequency:.9g} Hz at dt={dt:.9g} s"
        raise refuse(
            owner,
            name,
            f"frequencies below the Nyquist frequency 1/(2 dt) = {nyquist:.9g} Hz, not {found}",
        )


@dataclass(frozen=True)
class Excitation(ABC):
    """Test signal of one input: an operating point plus a deviation from it.

    ::

        u_k = offset + v_k,   at the times t_k = k dt,   k = 0, ..., n - 1

    An excitation is a frozen dataclass of settings: amplitudes and levels in the unit of the input,
    times in s, frequencies in Hz. Settings that depend on the sampling time are checked when a
    signal is drawn.

    Parameters
    ----------
    offset : float, optional
        Operating point [unit of the input].

    Raises
    ------
    ValueError
        If the offset is not finite.
    """

    offset: float = field(default=0.0, kw_only=True)  # operating point, unit of the input

    def __post_init__(self) -> None:
        check_finite(self, "offset")

    def signal(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return the signal u.

        Parameters
        ----------
        n_samples : int
            Number of samples n.
        dt : float
            Sampling time [s].
        generator : np.random.Generator
            Source of randomness; it advances if the signal is random.

        Returns
        -------
        (n,) array
            Signal [unit of the input].

        Raises
        ------
        ValueError
            If `n_samples` or `dt` is not positive, or the settings do not fit them.
        """
        check_sampling(n_samples, dt)
        return np.ascontiguousarray(
            self.offset + self.deviation(n_samples, dt, generator), dtype=np.float64
        )

    @abstractmethod
    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return the deviation v (n,) from the operating point [unit of the input].

        The arguments are those of `signal`.
        """

    def period_samples(self, n_samples: int, dt: float | None = None) -> int | None:
        """Return the period of the signal in samples, None if it has none.

        Parameters
        ----------
        n_samples : int
            Number of samples of the record; it may end within a period.
        dt : float, optional
            Sampling time [s]; needed where the period is set in seconds.

        Raises
        ------
        ValueError
            If `dt` is needed and not given, or the settings do not fit it.
        """
        return None


def excite(
    excitations: Mapping[str, Excitation], n_samples: int, dt: float, seed: int
) -> dict[str, Array]:
    """Draw the signals of several inputs, each with its own generator.

    The generator of an input is a child of the excitation stream of the seed, chosen by the name of
    the input. Its signal does therefore not depend on other inputs.

    Parameters
    ----------
    excitations : mapping of str to Excitation
        Excitation of every input.
    n_samples : int
        Number of samples n.
    dt : float
        Sampling time [s].
    seed : int
        Seed of the run, not negative.

    Returns
    -------
    dict of str to (n,) array
        Signals by the name of the input, in the order given.

    Raises
    ------
    TypeError
        If a value is no excitation.
    ValueError
        If the seed is negative or the settings of an excitation do not fit the samples.

    Examples
    --------
    >>> from simulators.excitation.binary import PRBS
    >>> excite({"force": PRBS(amplitude=2.0, offset=10.0)}, 5, 0.1, seed=0)
    {'force': array([12., 12.,  8., 12.,  8.])}
    """
    signals = {}
    for name, excitation in excitations.items():
        if not isinstance(excitation, Excitation):
            raise UserTypeError(
                f"excite: expected an Excitation for input {name!r}, got {excitation!r}; give one"
            )
        signals[name] = excitation.signal(n_samples, dt, _split_stream(seed, name))
    return signals


def _split_stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one input: the child of the excitation stream with its name."""
    parent = random_stream(seed, "excitation").bit_generator.seed_seq
    assert isinstance(parent, np.random.SeedSequence)
    key = (*parent.spawn_key, *name.encode())
    return np.random.default_rng(np.random.SeedSequence(parent.entropy, spawn_key=key))
