"""The role of a test signal, and the signals of several inputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.duration import check_sampling
from simulators.noise import random_stream
from simulators.settings import check_finite


@dataclass(frozen=True)
class Excitation(ABC):
    """Test signal of one input: an operating point plus a deviation from it.

    ::

        u_k = offset + v_k,   at the times t_k = k dt,   k = 0, ..., n - 1

    An excitation is a frozen dataclass of settings: amplitudes and levels in the unit of the input, times in s,
    frequencies in Hz. Settings that depend on the sampling interval are checked when a signal is asked for.

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

    def signal(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return the signal u.

        Parameters
        ----------
        n_samples : int
            Number of samples n.
        dt : float
            Sampling interval [s].
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
        return np.ascontiguousarray(self.offset + self.deviation(n_samples, dt, generator), dtype=np.float64)

    @abstractmethod
    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return the deviation v (n,) from the operating point [unit of the input]; see `signal`."""

    def period_samples(self, n_samples: int, dt: float | None = None) -> int | None:
        """Return the period of the signal in samples, None if it has none.

        Parameters
        ----------
        n_samples : int
            Number of samples of the record; it may end within a period.
        dt : float, optional
            Sampling interval [s]; needed where the period is set in seconds.

        Raises
        ------
        ValueError
            If `dt` is needed and not given, or the settings do not fit it.
        """
        return None


def excite(
    excitations: Mapping[str, Excitation], n_samples: int, dt: float, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Draw the signals of several inputs, each with its own generator.

    The generator of an input is a child of the excitation stream of the seed, split off by the name of the
    input: its signal stays when other inputs come, go or change.

    Parameters
    ----------
    excitations : mapping of str to Excitation
        Excitation of every input.
    n_samples : int
        Number of samples n.
    dt : float
        Sampling interval [s].
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
    >>> from simulators.excitation.prbs import PRBS
    >>> excite({"force": PRBS(amplitude=2.0, offset=10.0)}, 5, 0.1, seed=0)
    {'force': array([12., 12.,  8., 12.,  8.])}
    """
    signals = {}
    for name, excitation in excitations.items():
        if not isinstance(excitation, Excitation):
            raise TypeError(f"excite: expected an Excitation for input {name!r}, got {excitation!r}; give one")
        signals[name] = excitation.signal(n_samples, dt, _child(seed, name))
    return signals


def _child(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one input: the excitation stream, split by the letters of the name."""
    parent = random_stream(seed, "excitation").bit_generator.seed_seq
    assert isinstance(parent, np.random.SeedSequence)
    key = (*parent.spawn_key, *name.encode())
    return np.random.default_rng(np.random.SeedSequence(parent.entropy, spawn_key=key))
