"""What kernels made of other kernels share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np

from sysid.formula import number_of
from sysid.kernels.kernel import Kernel
from sysid.kernels.row import ENTRY, HALF, HEAD

Part = TypeVar("Part")


@dataclass(frozen=True)
class OfParts(Kernel):
    """Kernel made of at least two others of the same features, which may be made of others themselves.

    Parameters
    ----------
    parts : sequence of Kernel
    """

    parts: Sequence[Kernel]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", checked_parts(self, self.parts, Kernel))
        features = [part.n_features for part in self.parts]
        if len(set(features)) > 1:
            raise ValueError(f"{type(self).__name__}: parts must have the same number of features, got {features}")

    @property
    def n_features(self) -> int:
        """Number of features of a point."""
        return self.parts[0].n_features

    def parameters(self) -> np.ndarray:
        """Number of parts, length of all, for each part its address, begin and end; then those of each part.

        Addresses are those of this process: the vector is not for storing.
        """
        vectors = [part.parameters() for part in self.parts]
        ends = HEAD + ENTRY * len(vectors) + np.cumsum([len(vector) for vector in vectors])
        entries = [
            (*divmod(number_of(part.address), HALF), end - len(vector), end)
            for part, vector, end in zip(self.parts, vectors, ends, strict=True)
        ]
        return np.concatenate([[len(vectors), ends[-1]], *entries, *vectors])

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        """Those of each part in turn."""
        return tuple(f"part {i + 1}: {name}" for i, part in enumerate(self.parts) for name in part.hyperparameter_names)

    def log_hyperparameters(self) -> np.ndarray:
        """Those of each part in turn."""
        return np.concatenate([part.log_hyperparameters() for part in self.parts])

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Kernel with these log hyper-parameters of each part in turn."""
        return type(self)([part.with_log_hyperparameters(share) for part, share in self.shared_out(values)])

    def shared_out(self, values: np.ndarray) -> Iterator[tuple[Kernel, np.ndarray]]:
        """Each part with its log hyper-parameters."""
        ends = np.cumsum([len(part.hyperparameter_names) for part in self.parts])
        return zip(self.parts, np.split(values, ends[:-1]), strict=True)

    def stretched(self, factors: np.ndarray) -> Self:
        """See `Kernel.stretched`."""
        return type(self)([part.stretched(factors) for part in self.parts])


def checked_parts(owner: object, parts: Sequence[Part], role: type[Part]) -> tuple[Part, ...]:
    """Parts as a tuple of at least two of the role.

    Raises
    ------
    TypeError, ValueError
        Something else, or fewer.
    """
    found = tuple(parts) if isinstance(parts, Sequence) else (parts,)
    name = type(owner).__name__
    if wrong := [part for part in found if not isinstance(part, role)]:
        raise TypeError(f"{name}: parts must be instances of {role.__name__}, got {wrong[0]!r}")
    if len(found) < 2:
        raise ValueError(f"{name}: parts must be at least two, got {len(found)}")
    return found
