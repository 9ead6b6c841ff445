"""What a model starts from: the initial samples, and what is made of them or known before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sysid.feature_map import FeatureMap
from sysid.marginal_likelihood import Hyperparameters
from sysid.mean import MeanFunction
from sysid.narx import Narx


class InitialSamples(NamedTuple):
    """Samples that were collected before anything is learned, in their own units."""

    narx: Narx
    regressors: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)
    follows: np.ndarray  # (n,) bool: the sample comes right after the one before it, in the same record


class Points(NamedTuple):
    """Points of a dictionary, in the coordinates of the kernel."""

    inputs: np.ndarray  # (n, q)
    targets: np.ndarray  # (n,) without the mean, target unit


class Start(NamedTuple):
    """What a model starts from; None: it follows from the initial samples."""

    scaling: FeatureMap | None = None  # of the features, for instance that of the whole training part
    mean: MeanFunction | None = None  # subtracted from the target, as it is
    hyperparameters: Hyperparameters | None = None  # for features and target in these scales; spares the training
    points: Points | None = None  # of the first dictionary; None: the initial samples
    limits: tuple[float, float] | None = None  # between which the output saturates; None: nothing is known
    report: dict[str, Any] | None = None  # of the training: what was tried, as plain numbers, texts, lists and dicts


NOTHING_KNOWN = Start()
