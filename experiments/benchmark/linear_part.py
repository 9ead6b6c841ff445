"""The stream and the kernel of the benchmarks whose models have a linear part."""

from typing import NamedTuple

import numpy as np

import sysid
from experiments.benchmark.dictionary import narx_samples
from sysid.narx.lags import LagRows, Target

SIGNAL_COLUMNS = {"y": 0, "u1": 3, "u2": 6}  # among the regressors of `narx_samples`
N_PROCESS_LAGS = 3  # of each signal in the Gaussian process: 9 features
STREAM_NOISE_VARIANCE = 1e-2  # over the signal variance


class StreamWithLinearPart(NamedTuple):
    """Samples of the system of `narx_samples`, and what a model of them is made of."""

    signals: dict[str, np.ndarray]  # (n,) by name
    narx: sysid.Narx
    rows: LagRows
    kernel: sysid.WithLinearPart

    def model(self, gp: sysid.OnlineGP) -> sysid.Model:
        """Return the model of a GP with this kernel; its features are not scaled."""
        scaling = sysid.AffineMap.identity(self.narx.n_features)
        return sysid.Model(self.narx, scaling, sysid.ZeroMean(), gp)


def stream_with_linear_part(n: int, n_linear_lags: int, *, seed: int) -> StreamWithLinearPart:
    """Return n samples, whose model has `n_linear_lags` of each signal in its linear part."""
    samples = narx_samples(n, noise_variance=STREAM_NOISE_VARIANCE, seed=seed)
    signals = {
        name: np.ascontiguousarray(samples.inputs[:, column])
        for name, column in SIGNAL_COLUMNS.items()
    }
    n_lags = N_PROCESS_LAGS
    narx = sysid.Narx({"y": n_lags}, {"u1": n_lags, "u2": n_lags}, predict=Target.value)
    narx = narx.with_linear(dict.fromkeys(SIGNAL_COLUMNS, n_linear_lags))
    n_signals = len(SIGNAL_COLUMNS)
    kernel = sysid.WithLinearPart(
        sysid.SquaredExponential(1.0, [3.0] * (N_PROCESS_LAGS * n_signals)),
        sysid.StableSpline([n_linear_lags] * n_signals, [0.1] * n_signals, [3.0] * n_signals),
    )
    return StreamWithLinearPart(signals, narx, narx.regressors(signals), kernel)
