"""Benchmark of exported C against the compiled loop of the toolbox."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

import sysid
from experiments.benchmark.dictionary import NEVER, narx_samples, rewinder
from experiments.benchmark.harness import Job, Plan, Row, interleave, ratio, timed
from sysid.export.c_file import COMPILERS
from sysid.narx.lags import LagRows, Target

N_LEARNED = 500  # samples that one run learns
N_FIRST = 1000  # samples that the model has learned before
COLUMNS = {"y": 0, "u1": 3, "u2": 6}  # of the signals among the regressors of `narx_samples`
N_LAGS = 3  # of each signal in the Gaussian process: 9 features
N_LINEAR_LAGS = 8  # of each signal in the linear part: 24 features
NOISE_VARIANCE = 1e-2  # over the signal variance
US_PER_S = 1e6
OPTIONS = ("-O3", "-march=native")  # of the compiler: numba also compiles for this processor

#: Calls a model for many samples, so that no time of Python is measured.
DRIVER = """\
#include "plant.c"

void run_predict(plant_state *state, int n, const real *x, real *means)
{
    plant_prediction target;
    for (int k = 0; k < n; k++) {
        plant_predict(state, x + k * PLANT_N_FEATURES, &target);
        means[k] = target.mean;
    }
}

void run_learn(plant_state *state, int n, const real *y, const real *u, real *means)
{
    plant_prediction next;
    plant_report report;
    for (int k = 0; k < n; k++) {
        plant_learn(state, y + k, u + 2 * k, &next, &report);
        means[k] = next.mean;
    }
}
"""


def exported_c(plan: Plan) -> Iterator[Row]:
    """Time the C of a model against the loop of the toolbox, on the same samples.

    The process has 9 features, and the linear part 24. ``predict`` gives mean and band at a
    regressor. ``learn`` learns a sample and then predicts the next one, which `update_many` does
    not; every sample is a candidate for a stored point, or none is. Without a C compiler there is
    no row.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return
    samples = narx_samples(N_FIRST + N_LEARNED, noise_variance=NOISE_VARIANCE, seed=plan.seed)
    signals = {
        name: np.ascontiguousarray(samples.inputs[:, column]) for name, column in COLUMNS.items()
    }
    narx = sysid.Narx({"y": N_LAGS}, {"u1": N_LAGS, "u2": N_LAGS}, predict=Target.value)
    narx = narx.with_linear(dict.fromkeys(COLUMNS, N_LINEAR_LAGS))
    rows = narx.regressors(signals)
    for name, insertion in (("all are candidates", sysid.Always()), ("no candidates", NEVER)):
        model = _model(narx, plan.budget, rows, insertion)
        with tempfile.TemporaryDirectory() as folder:
            compiled = Compiled(model, Path(folder), compiler)
            yield from _compare(model, compiled, f"N={plan.budget} {name}", signals, rows, plan)


def _model(narx: sysid.Narx, budget: int, rows: LagRows, insertion: sysid.Insertion) -> sysid.Model:
    """Return a model that has learned the first rows, and then follows an insertion rule."""
    kernel = sysid.WithLinearPart(
        sysid.SquaredExponential(1.0, [3.0] * (N_LAGS * len(COLUMNS))),
        sysid.StableSpline(
            [N_LINEAR_LAGS] * len(COLUMNS), [0.1] * len(COLUMNS), [3.0] * len(COLUMNS)
        ),
    )
    relevance = sysid.MeanRelevance()
    learned, gp = (
        sysid.OnlineGP(
            kernel,
            noise_variance=NOISE_VARIANCE,
            budget=budget,
            learning="every_sample",
            insertion=rule,
            acceptance=sysid.ExceedsMinimum(relevance),
            reduction=relevance,
            gate=4.0,
            scale=False,
        )
        for rule in (sysid.Always(), insertion)
    )
    learned.update_many(rows.regressor[:N_FIRST], rows.target[:N_FIRST])
    state = learned.state()
    gp.restore(state, state["counts"].tolist())
    return sysid.Model(narx, sysid.AffineMap.identity(narx.n_features), sysid.ZeroMean(), gp)


class Compiled:
    """The C of a model, compiled to a library of this process."""

    def __init__(self, model: sysid.Model, folder: Path, compiler: str) -> None:
        exported = sysid.export_c(model, folder / "plant.c", learn=True)
        (folder / "driver.c").write_text(DRIVER, encoding="utf-8")
        options = ["-std=c99", *OPTIONS, "-shared", "-fPIC", "-o", "driver.so"]
        subprocess.run([compiler, *options, "driver.c", "-lm"], cwd=folder, check=True)
        self._library = ctypes.CDLL(str(folder / "driver.so"))
        self._state = np.zeros(exported.state_bytes, dtype=np.uint8)

    def begin(self) -> None:
        """Begin with the model as it was exported."""
        self._library.plant_init(self._state.ctypes)

    def run(self, function: str, *arrays: np.ndarray) -> None:
        """Call a function of `DRIVER` for all rows of these arrays."""
        n = len(arrays[0])
        arguments = [values.ctypes for values in (*arrays, np.empty(n))]
        getattr(self._library, function)(self._state.ctypes, n, *arguments)


def _compare(
    model: sysid.Model,
    compiled: Compiled,
    name: str,
    signals: dict[str, np.ndarray],
    rows: LagRows,
    plan: Plan,
) -> Iterator[Row]:
    """Time predictions and learning of the samples after the first ones."""
    x = np.ascontiguousarray(rows.regressor[N_FIRST:])
    targets = rows.target[N_FIRST:]
    y = signals["y"][-len(targets) :].copy()
    u = np.stack([signals["u1"], signals["u2"]], axis=1)[-len(targets) :].copy()
    n = len(targets)
    jobs = {
        "update_many": Job(partial(model.gp.update_many, x, targets), n, rewinder(model.gp)),
        "learn": Job(partial(compiled.run, "run_learn", y, u), n, compiled.begin),
        "predict": Job(partial(compiled.run, "run_predict", x), n, compiled.begin),
    }
    seconds = interleave(jobs, plan.rounds(plan.budget))
    yield timed(f"{name}: predict", US_PER_S * seconds["predict"], "us", target="<= 10")
    yield ratio(f"{name}: learn", seconds, ("learn", "update_many"), "update_many", target="<= 2")
