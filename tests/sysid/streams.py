"""A small system, its samples and rows, and the loop over them, that several tests share."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sysid.gp.dictionary import UpdateReport
from sysid.gp.rules import (
    ErrorThreshold,
    ExceedsMinimum,
    MarginalLogLikelihood,
    MeanRelevance,
)
from sysid.gp.training import Fixed, MaximumLikelihood
from sysid.identification import Identification
from sysid.narx.lags import LagRows, Narx
from sysid.narx.window import LagWindow
from sysid.stream import learn_from

NARX = Narx(outputs={"y": 2}, inputs={"u": 1})


LAGS = 2


FIXED = Fixed(variance=1.0, length_scales=1.0, noise_variance=0.01)


QUICK = MaximumLikelihood(n_initial=12, restarts=1, max_iterations=20)


RULES = {
    "insertion": ErrorThreshold(0.02),
    "acceptance": ExceedsMinimum(MeanRelevance()),
    "reduction": MarginalLogLikelihood(),
}


NAMES = {"outputs": ["y"], "inputs": ["u"]}


class Sample(NamedTuple):
    """A measurement."""

    time: float
    output: np.ndarray
    input: np.ndarray


def record(n, seed=0):
    """Outputs and inputs of a small nonlinear system."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1, 1, n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 1]) + 0.02 * rng.normal()
    return y, u


def rows_of(y, u, narx=NARX):
    """Times, regressors and targets of the lag data set."""
    rows = narx.regressors({"y": y, "u": u})
    return 0.5 * rows.sample, rows.regressor, rows.target


def stream(y, u):
    return [
        Sample(0.5 * k, np.array([a]), np.array([b]))
        for k, (a, b) in enumerate(zip(y, u, strict=True))
    ]


def assert_same(one, other):
    """Two records have the same bits in all fields; what lies between the fields does not count."""
    for name in UpdateReport._fields:
        assert one[name].tobytes() == other[name].tobytes(), name


def learn(samples, identification, window, **names):
    """Rows and record of a whole stream."""
    blocks = list(learn_from(samples, identification, window, **NAMES | names))
    rows = LagRows(
        *(np.concatenate(parts) for parts in zip(*(block.rows for block in blocks), strict=True))
    )
    for before, block in pairwise(blocks):
        if block.correction is not None:
            before.record[-1] = block.correction
    return rows, np.concatenate([block.record for block in blocks])


def run(narx, settings, y, u):
    """Record, rows, identification and window of a whole stream."""
    identification = Identification(narx, settings)
    window = LagWindow(narx)
    rows, found = learn(stream(y, u), identification, window)
    return found, rows, identification, window


def bits(identification):
    """Everything that decides what a model will do."""
    gp = identification.model.gp
    adaptation = identification.adaptation
    estimates = (
        []
        if adaptation is None
        else [estimate._replace(seconds=0) for estimate in adaptation.estimates]
    )
    return {
        **gp.state(),
        "kernel": gp.kernel,
        "noise": gp.noise_variance,
        "repairs": gp.repairs,
        "found": estimates,
    }
