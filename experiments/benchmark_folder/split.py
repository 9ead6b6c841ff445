"""Estimation, validation and test: how long, how many realisations, and a seed for each of them."""

from dataclasses import dataclass

import numpy as np
from omegaconf import DictConfig

from experiments.options import samples_of
from sysid.data.source import ROLES


@dataclass(frozen=True)
class Split:
    """Records of one role: all of the same length, each under a seed of its own."""

    role: str
    n_samples: int
    seeds: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the records, as those of the groups and CSV files."""
        if len(self.seeds) == 1:
            return (self.role,)
        return tuple(f"{self.role}_{number}" for number in range(len(self.seeds)))


def splits_of(config: DictConfig, dt: float) -> tuple[Split, ...]:
    """Splits of the configuration, for a sampling interval dt [s].

    Raises
    ------
    ValueError
        A seed, a length or a number of realisations that is not possible, with the name of its key.
    """
    seed = whole("seed", config.seed, 0)
    return tuple(
        Split(
            role,
            length(role, config[role], dt),
            tuple(
                seed_of(seed, role, number)
                for number in range(whole(f"realisations.{role}", config.realisations[role], 1))
            ),
        )
        for role in ROLES
    )


def seed_of(seed: int, role: str, number: int) -> int:
    """Seed of one record; those of other records stay when there are more or fewer of them.

    >>> seed_of(0, "test", 1) == seed_of(0, "test", 1) != seed_of(0, "test", 0)
    True
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(ROLES.index(role), number))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def length(key: str, value: object, dt: float) -> int:
    """Number of samples: a whole number of them, or a duration T with its unit, which is T / dt samples.

    >>> length("test", 500, 0.1), length("test", "500samples", 0.1), length("test", "1min", 0.5)
    (500, 500, 120)
    """
    if not isinstance(value, str):
        return whole(key, value, 2)
    try:
        one_more = 0 if "samples" in value else 1  # a duration of n intervals reaches over n + 1 samples
        return whole(key, samples_of(value, dt) - one_more, 2)
    except ValueError as error:
        raise ValueError(f"{key}={value!r}: {error}") from error


def whole(key: str, value: object, lowest: int) -> int:
    """Return the value if it is an integer from `lowest` on; otherwise an error that names its key."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ValueError(f"{key} must be a whole number of at least {lowest}, got {value!r}; change {key}")
    return value
