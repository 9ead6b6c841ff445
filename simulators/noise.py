"""Random numbers of a run: independent streams of one seed, and noise paths.

Noise paths are drawn before the kernels run.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulators.errors import UserError
from simulators.settings import Array, check_count


class Streams(NamedTuple):
    """Independent random generators of one run, in the order in which the seed is split.

    A new stream must go to the end: then the other streams of a seed do not change.
    """

    process: np.random.Generator  # process noise of the system
    weather: np.random.Generator  # random weather
    excitation: np.random.Generator  # random test signals
    measurement: np.random.Generator  # measurement noise
    faults: np.random.Generator  # gross errors and dropouts of sensors
    missing: np.random.Generator  # samples that are missing


def random_streams(seed: int) -> Streams:
    """Split one seed into the independent generators of a run.

    Parameters
    ----------
    seed : int
        Seed of the run, not negative.

    Returns
    -------
    Streams
        Generators of ``SeedSequence(seed).spawn(6)``: process, weather, excitation, measurement,
        faults, missing.

    Raises
    ------
    ValueError
        If the seed is negative.

    Examples
    --------
    >>> random_streams(3).weather.normal() == random_streams(3).weather.normal()
    True
    >>> random_streams(3).weather.normal() == random_streams(3).process.normal()
    False
    """
    return Streams(*(random_stream(seed, name) for name in Streams._fields))


def random_stream(seed: int, name: str) -> np.random.Generator:
    """Return one of the generators of `random_streams`, without making the others.

    Parameters
    ----------
    seed : int
        Seed of the run, not negative.
    name : str
        Field of `Streams`.

    Raises
    ------
    ValueError
        If the seed is no integer or negative, or the name is unknown.

    Examples
    --------
    >>> random_stream(3, "weather").normal() == random_streams(3).weather.normal()
    True
    """
    check_count("seed", seed, lowest=0)
    if name not in Streams._fields:
        raise UserError(
            f"expected a stream among {', '.join(Streams._fields)}, got {name!r}; change the name"
        )
    key = (Streams._fields.index(name),)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def held_noise(generator: np.random.Generator, n_samples: int, std: ArrayLike) -> Array:
    """Draw white noise that is held over each sample.

    ``w[k, i] ~ N(0, std[i]^2)``, independent. A longer path begins with the shorter one, and a
    channel keeps its draws when the standard deviation of another changes.

    Parameters
    ----------
    generator : np.random.Generator
        Source of randomness; it advances.
    n_samples : int
        Number of samples n.
    std : (n_w,) array_like
        Standard deviation per channel; it does not depend on the sampling time.

    Returns
    -------
    (n, n_w) array
        Noise path.
    """
    sigma = np.asarray(std, dtype=np.float64)
    return generator.standard_normal((n_samples, sigma.size)) * sigma


def draw_noise(seed: int, stream: str, n_samples: int, std: Array) -> Array:
    """Draw the noise (n, m) of a run from one of its `Streams`.

    It is zero if all standard deviations (m,) are zero.
    """
    if not std.any():
        return np.zeros((n_samples, len(std)))
    return held_noise(random_stream(seed, stream), n_samples, std)
