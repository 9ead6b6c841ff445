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
from experiments.benchmark.dictionary import NEVER, rewinder
from experiments.benchmark.harness import Job, Plan, Row, interleave, ratio, timed
from experiments.benchmark.linear_part import (
    STREAM_NOISE_VARIANCE,
    StreamWithLinearPart,
    stream_with_linear_part,
)
from sysid.export.c_file import COMPILERS

N_TIMED_SAMPLES = 500  # samples that one run learns
N_LEARNED_BEFORE = 1000  # samples that the model has learned before
N_EXPORTED_LINEAR_LAGS = 8  # of each signal in the linear part: 24 features
US_PER_S = 1e6
COMPILER_OPTIONS = ("-O3", "-march=native")  # numba also compiles for this processor

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
    stream = stream_with_linear_part(
        N_LEARNED_BEFORE + N_TIMED_SAMPLES, N_EXPORTED_LINEAR_LAGS, seed=plan.seed
    )
    for name, insertion in (("all are candidates", sysid.Always()), ("no candidates", NEVER)):
        model = _model(stream, plan.budget, insertion)
        with tempfile.TemporaryDirectory() as folder:
            compiled = Compiled(model, Path(folder), compiler)
            yield from _compare(model, compiled, f"N={plan.budget} {name}", stream, plan)


def _model(stream: StreamWithLinearPart, budget: int, insertion: sysid.Insertion) -> sysid.Model:
    """Return a model that has learned the first rows, and then follows an insertion rule."""
    relevance = sysid.MeanRelevance()
    learned, gp = (
        sysid.OnlineGP(
            stream.kernel,
            noise_variance=STREAM_NOISE_VARIANCE,
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
    first = slice(N_LEARNED_BEFORE)
    learned.update_many(stream.rows.regressor[first], stream.rows.target[first])
    state = learned.state()
    gp.restore(state, state["counts"].tolist())
    return stream.model(gp)


class Compiled:
    """The C of a model, compiled to a library of this process."""

    def __init__(self, model: sysid.Model, folder: Path, compiler: str) -> None:
        exported = sysid.export_c(model, folder / "plant.c", learn=True)
        (folder / "driver.c").write_text(DRIVER, encoding="utf-8")
        options = ["-std=c99", *COMPILER_OPTIONS, "-shared", "-fPIC", "-o", "driver.so"]
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
    stream: StreamWithLinearPart,
    plan: Plan,
) -> Iterator[Row]:
    """Time predictions and learning of the samples after the first ones."""
    signals = stream.signals
    x = np.ascontiguousarray(stream.rows.regressor[N_LEARNED_BEFORE:])
    targets = stream.rows.target[N_LEARNED_BEFORE:]
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
