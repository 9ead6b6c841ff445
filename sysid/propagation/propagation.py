"""The role of an uncertainty propagation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sysid.dynamics import Dynamics

Array: TypeAlias = NDArray[np.float64]


class Moments(NamedTuple):
    """Mean and latent variance of the predicted outputs, sample by sample.

    At the step where a path leaves the bounds of `Dynamics.bounds`, `mean` holds the value it left with and the
    variance is nan; afterwards both are nan.
    """

    mean: Array  # (b, T, m) output units
    variance: Array  # (b, T, m) output units squared; add the noise variance for a measurement


class Propagation(ABC):
    """How predictions, and what is not known of them, are fed back over many samples.

    A setting `process_noise` says what the noise of the model is. False: noise of the measurement only, which the
    dynamics never see (output error); the forecast of a measurement adds it once, at the end. True: it enters the
    dynamics, ``y[k] = F(...) + e[k]`` with e[k] fed back (equation error), as the one-step model assumes; the
    variance of a sample then holds the noise of all earlier samples, and that of its own is still added at the end.
    """

    @abstractmethod
    def propagate(self, dynamics: Dynamics, past: Array, exogenous: Array, generator: np.random.Generator) -> Moments:
        """Predict T samples from b starts.

        Parameters
        ----------
        dynamics : Dynamics
        past : (b, L, m)
            Last outputs before the first predicted sample, newest last; taken as certain.
        exogenous : (b, T, p)
            Regressors of all steps, zero at the features that are lagged outputs.
        generator : numpy.random.Generator
            Of the draws, if there are any.
        """

    @abstractmethod
    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """Numbers kept in memory per start."""
