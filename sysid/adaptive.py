"""Hyper-parameters that follow the stream: the settings."""

from dataclasses import dataclass
from numbers import Integral, Real

from sysid.adaptation import Adaptation
from sysid.training import MaximumAPosteriori


@dataclass(frozen=True)
class Adaptive(MaximumAPosteriori):
    """`MaximumAPosteriori` on the first samples, and again whenever the prediction errors contradict it.

    Every `interval` samples the standardised squared errors of the samples since the last estimate, at most
    the last `window`, are tested: if the hyper-parameters are right,

    ``sum_t e_t^2 / (v_t + noise_variance)  ~  chi-squared(n)``,

    e the prediction errors, v the latent variances. Outside the two-sided interval of probability
    ``1 - significance`` the hyper-parameters are estimated anew (`sysid.adaptation.Adaptation`), from an
    unbiased sample of the stream and the points of the dictionary, with the priors and relative bounds of
    the first training. The cost per sample is bounded: at most one estimate per interval, of at most
    `max_updates` iterations.
    """

    interval: int = 50  # samples between two looks at the errors
    significance: float = 1e-3  # probability of an estimate at a look although nothing is wrong
    window: int = 100  # samples; the last errors that are looked at
    sample_size: int = 100  # samples of the stream kept to estimate from
    after_revised: int = 0  # points that entered since the last estimate and ask for one; 0: never
    max_updates: int = 20  # iterations of one estimate
    tolerance: float = 1e-4  # relative gain of an iteration at which an estimate ends

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"interval": 1, "window": 1, "sample_size": 2, "after_revised": 0, "max_updates": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
                raise ValueError(f"{self._name}: {name} must be a whole number of at least {low}, got {value!r}")
        for name in ("significance", "tolerance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
                raise ValueError(f"{self._name}: {name} must be a number between 0 and 1, got {value!r}")

    def follow(self, seed: int) -> Adaptation:
        """Adaptation that keeps its unbiased sample by this seed."""
        return Adaptation(self, seed)
