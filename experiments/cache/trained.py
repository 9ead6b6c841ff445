"""A training that looks up what the same training made of the same samples before."""

import json

import numpy as np

from experiments.cache.cache import Cache, Kind
from experiments.cache.key import array_digest, key_of
from sysid import Hyperparameters, InitialSamples, MeanFunction, Start, Training, describe
from sysid.gp.training import Follower
from sysid.model.model_file import start_from_dataset, start_to_dataset

START = Kind("start", "What a model starts from", start_to_dataset, start_from_dataset)


class CachedTraining(Training):
    """Another training, whose result is kept by the bytes of the samples, its settings and the code.

    A training, a mean or something known that cannot be described is not looked up: it trains every time.

    Parameters
    ----------
    training : Training
    cache : Cache
    code : str
        Digest of the code that trains.
    """

    def __init__(self, training: Training, cache: Cache, code: str) -> None:
        self.training, self.n_initial = training, training.n_initial
        self._cache, self._code = cache, code

    @property
    def replaces(self) -> frozenset[str]:  # type: ignore[override]
        """As the training."""
        return self.training.replaces

    @property
    def standardise(self) -> bool:
        """As the training."""
        return self.training.standardise

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """As the training; not looked up."""
        return self.training.train(inputs, targets, seed)

    def follow(self, seed: int) -> Follower | None:
        """As the training."""
        return self.training.follow(seed)

    def prepare(self, samples: InitialSamples, known: Start, *, mean: MeanFunction, budget: int, seed: int) -> Start:
        """See `sysid.Training.prepare`."""

        def compute() -> Start:
            return self.training.prepare(samples, known, mean=mean, budget=budget, seed=seed)

        try:
            key = self._key(samples, known, mean, budget, seed)
        except TypeError as reason:
            self._cache.left_out(START.name, reason)
            return compute()
        return self._cache.obtain(START, key, compute)

    def _key(self, samples: InitialSamples, known: Start, mean: MeanFunction, budget: int, seed: int) -> str:
        before = start_to_dataset(known)
        return key_of(
            {
                "samples": array_digest(samples.regressors, samples.targets, samples.follows),
                "narx": json.dumps(samples.narx.to_dict()),
                "known": [before.attrs, {name: array_digest(v.values) for name, v in before.data_vars.items()}],
                "training": describe(self.training),
                "mean": describe(mean),
                "budget": budget,
                "seed": seed,
                "code": self._code,
            }
        )
