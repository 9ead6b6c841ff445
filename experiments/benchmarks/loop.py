"""The closed loop over one year, and where its time goes."""

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from hydra import compose
from omegaconf import DictConfig

from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target
from experiments.benchmarks.timing import Job, time_once
from experiments.identification import prepare, source_of, stream
from experiments.sources import Source
from sysid import Identification, LagWindow

ROUNDS = 3


class Loop(NamedTuple):
    """One closed loop that was identified."""

    source: Source
    identification: Identification
    record: np.ndarray  # of the identified samples, as of `Identification.observe_many`
    seconds: float  # without the training

    @property
    def n_replaced(self) -> int:
        """Samples that entered the dictionary."""
        return int((self.record["slot"] >= 0).sum())


def loop(plan: Plan) -> Iterator[Row]:
    """The closed loop of `sysid-identify` with identification, after the training; then its parts alone.

    Simulation alone: the same samples, asked for and thrown away. Identification alone: `update_many` on the
    stored samples from the same initial model. The rest of the loop is lags, scaling, reports and Python.
    """
    rounds = []
    for _ in range(min(ROUNDS, plan.repetitions)):
        config = compose("identify", overrides=[f"duration={plan.duration}", f"seed={plan.seed}"])
        whole = run_loop(config)
        rounds.append((whole.seconds, simulation_seconds(config), identification_seconds(whole)))
    samples, online = whole.source.n_seen, int(np.isfinite(whole.record["mean"]).sum())
    best, median = np.min(rounds, axis=0), np.median(rounds, axis=0)
    counts = {"samples": samples, "identified": online, "entered": whole.n_replaced}
    rates = {"samples/s": samples / best[0]}
    yield _row("simulation and identification", best[0], median[0], Target(3.0), **counts, **rates)
    parts = {"simulation alone": samples, "identification alone (update_many)": online}
    for i, (name, n) in enumerate(parts.items(), start=1):
        share = {"fraction of the loop": best[i] / best[0]}
        yield _row(name, best[i], median[i], None, samples=n, **{"samples/s": n / best[i]}, **share)


def _row(case: str, best: float, median: float, target: Target | None, **details: float) -> Row:
    return Row("loop", case, best, "s", median, target, details)


def run_loop(config: DictConfig) -> Loop:
    """Run the loop of `sysid-identify`."""
    source = source_of(config)
    identification = prepare(config, source)
    records: list[np.ndarray] = []
    start = time.perf_counter()
    stopped = stream(source, identification, LagWindow(identification.narx), records)
    seconds = time.perf_counter() - start
    if stopped is not None:
        raise stopped
    return Loop(source, identification, np.concatenate(records), seconds - identification.training_seconds)


def simulation_seconds(config: DictConfig) -> float:
    """Time of all samples of the closed loop without identification."""
    source = source_of(config)

    def run() -> None:
        for samples in source.segments():
            deque(samples, maxlen=0)
        deque(source.finish(), maxlen=0)

    return time_once(Job(run))


def identification_seconds(whole: Loop) -> float:
    """Time of `update_many` of the initial model on the samples that were identified online."""
    narx, model = whole.identification.narx, whole.identification.initial
    assert model is not None
    rows = narx.dataset(whole.source.records())
    n_identified = len(whole.record)
    online = slice(whole.identification.settings.training.n_initial, n_identified)
    inputs = model.scaling.transform(rows["regressor"].values[online])
    targets = rows["target"].values[online] - model.mean(rows["regressor"].values[online])
    return time_once(Job(lambda: model.gp.update_many(inputs, targets)))
