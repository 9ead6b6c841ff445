"""What is measured on: a stream of NARX samples and online GPs that learn from it."""

from dataclasses import dataclass
from math import tanh
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sysid import Criterion, ErrorThreshold, OnlineGP, Reference, SquaredExponential

N_FEATURES = 9
NEVER = ErrorThreshold(error_threshold=1e12)  # no sample asks for a place


class Samples(NamedTuple):
    """Regressors and targets of a stream."""

    inputs: np.ndarray  # (n, N_FEATURES), standardised
    targets: np.ndarray  # (n,), variance 1 without the noise

    def part(self, start: int, stop: int) -> "Samples":
        """Samples from start to stop."""
        return Samples(self.inputs[start:stop], self.targets[start:stop])


def narx_samples(n: int, *, noise_variance: float, seed: int) -> Samples:
    """Stream of a nonlinear system of order two under two slow inputs, three lags of each signal.

    ``y[k] = 0.6 tanh(y[k-1]) + 0.25 y[k-2] + 0.5 u1[k-1] + 0.2 u2[k-1] tanh(y[k-2])``, the
    inputs moving averages of white noise over 5 and 20 samples: neighbouring lags are nearly
    the same, which makes covariance matrices as ill-conditioned as they are in practice.
    """
    rng = np.random.default_rng(seed)
    length = n + 200
    u1, u2 = (np.convolve(rng.normal(size=length), np.ones(width) / np.sqrt(width), "same") for width in (5, 20))
    y = _response(u1.tolist(), u2.tolist())
    signals = [np.roll(signal, lag) for signal in (y, u1, u2) for lag in (1, 2, 3)]
    inputs = np.stack(signals, axis=1)[-n:]
    targets = (y[-n:] - y.mean()) / y.std() + np.sqrt(noise_variance) * rng.normal(size=n)
    return Samples(np.ascontiguousarray((inputs - inputs.mean(0)) / inputs.std(0)), targets)


def _response(u1: list[float], u2: list[float]) -> np.ndarray:
    y = [0.0, 0.0]
    for k in range(2, len(u1)):
        slow = 0.2 * u2[k - 1] * tanh(y[k - 2])
        y.append(0.6 * tanh(y[k - 1]) + 0.25 * y[k - 2] + 0.5 * u1[k - 1] + slow)
    return np.array(y)


def online_gp(budget: int, *, noise_variance: float = 1e-2, length_scale: float = 3.0, **rules: Any) -> OnlineGP:
    """GP of signal variance 1 for that stream."""
    kernel = SquaredExponential(1.0, [length_scale] * N_FEATURES)
    return OnlineGP(kernel, noise_variance=noise_variance, budget=budget, **rules)


@dataclass(frozen=True)
class OldestLeaves(Criterion):
    """All points are worth the same, and the oldest loses a tie: the dearest row to delete."""

    published_reference: ClassVar[Reference] = Reference.leave_one_out

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """0."""
        return 0.0

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """0."""
        return 0.0
