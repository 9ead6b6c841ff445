"""A small nonlinear system, its samples and rows, and the loop over them, for several tests."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sysid import (
    ErrorThreshold,
    ExceedsMinimum,
    Fixed,
    Identification,
    LagWindow,
    MarginalLogLikelihood,
    MaximumLikelihood,
    MeanRelevance,
    Narx,
    UpdateReport,
    learn_from,
)
from sysid.narx.lags import LagRows

NARX = Narx(outputs={"y": 2}, inputs={"u": 1})
LARGEST_LAG = 2  # samples
SAMPLING_TIME = 0.5  # s
FIXED_TRAINING = Fixed(variance=1.0, length_scales=1.0, noise_variance=0.01)
QUICK_TRAINING = MaximumLikelihood(n_initial=12, restarts=1, max_iterations=20)
RULES = {
    "insertion": ErrorThreshold(0.02),
    "acceptance": ExceedsMinimum(MeanRelevance()),
    "reduction": MarginalLogLikelihood(),
}
SIGNAL_NAMES = {"outputs": ["y"], "inputs": ["u"]}


class Sample(NamedTuple):
    """A measurement, or a block of them."""

    time: float
    output: np.ndarray
    input: np.ndarray


def record(n, seed=0):
    """Return n outputs and inputs of a small nonlinear system."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1, 1, n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 1]) + 0.02 * rng.normal()
    return y, u


def rows_of(y, u, narx=NARX):
    """Return times, regressors and targets of the lag data set."""
    rows = narx.regressors({"y": y, "u": u})
    return SAMPLING_TIME * rows.sample, rows.regressor, rows.target


def stream(y, u):
    """Return the measurements of a record, one by one."""
    return [
        Sample(SAMPLING_TIME * k, np.array([y_k]), np.array([u_k]))
        for k, (y_k, u_k) in enumerate(zip(y, u, strict=True))
    ]


def block_of(y, u):
    """Return the measurements of a record as one block."""
    return Sample(0.0, y[:, None], u[:, None])


def assert_same(left, right):
    """Two records have the same bits in all fields; bytes between the fields do not count."""
    for name in UpdateReport._fields:
        assert left[name].tobytes() == right[name].tobytes(), name


def learn(samples, identification, window, **names):
    """Learn a whole stream, and return its rows and its record with all corrections."""
    blocks = list(learn_from(samples, identification, window, **SIGNAL_NAMES | names))
    columns = zip(*(block.rows for block in blocks), strict=True)
    rows = LagRows(*(np.concatenate(column) for column in columns))
    for previous, block in pairwise(blocks):
        if block.correction is not None:
            previous.record[-1] = block.correction
    return rows, np.concatenate([block.record for block in blocks])


def run(narx, settings, y, u):
    """Identify a whole stream, and return its record, rows, identification and window."""
    identification = Identification(narx, settings)
    window = LagWindow(narx)
    rows, reports = learn(stream(y, u), identification, window)
    return reports, rows, identification, window


def bits(identification):
    """Return everything that decides about the model's future, except times of computation."""
    gp = identification.model.gp
    estimates = []
    if identification.adaptation is not None:
        for estimate in identification.adaptation.estimates:
            estimates.append(estimate._replace(seconds=0))
    return {
        **gp.state(),
        "kernel": gp.kernel,
        "noise": gp.noise_variance,
        "repairs": gp.repairs,
        "estimates": estimates,
    }
