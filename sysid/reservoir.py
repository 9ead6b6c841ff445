"""An unbiased sample of a stream, kept in constant memory."""

import numpy as np


class Reservoir:
    """At every time each sample seen so far is kept with the same probability ``m / n``.

    Algorithm R (Vitter, "Random sampling with a reservoir", 1985): the first m samples fill the places; the
    n-th takes the place ``j = floor(n u)``, u uniform in [0, 1), if there is one of that number. Seeded, and
    the same for every division of the stream into blocks.

    Parameters
    ----------
    size : int
        Number of places m.
    n_features : int
    generator : numpy.random.Generator
        Gives one number per sample.
    """

    def __init__(self, size: int, n_features: int, generator: np.random.Generator) -> None:
        self.n_seen = 0
        self._generator = generator
        self._inputs = np.zeros((size, n_features))
        self._targets = np.zeros(size)

    @property
    def inputs(self) -> np.ndarray:
        """Kept samples (min(m, n), n_features)."""
        return self._inputs[: self.n_seen].copy()

    @property
    def targets(self) -> np.ndarray:
        """Their targets (min(m, n),)."""
        return self._targets[: self.n_seen].copy()

    def extend(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        """See the samples (n, n_features), (n,)."""
        number = np.arange(self.n_seen, self.n_seen + len(targets))  # samples before each of these
        drawn = (self._generator.random(len(targets)) * (number + 1)).astype(int)
        size = len(self._targets)
        place = np.where(number < size, number, drawn)
        for i in np.flatnonzero(place < size):
            self._inputs[place[i]], self._targets[place[i]] = inputs[i], targets[i]
        self.n_seen += len(targets)
