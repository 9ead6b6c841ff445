"""A way to learn from all training rows, and what is measured of it."""

import time
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from experiments.studies.plan import Plan
from experiments.studies.tasks.task import TaskData
from sysid import validate

Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

QUANTITIES = {
    "smse": "1",
    "nlpd": "nat",
    "coverage_95": "1",
    "train_seconds": "s",
    "predict_us": "us",  # per point, a batch of all test rows
    "peak_bytes": "byte",  # allocated by Python and NumPy during training, on top of the data; seed 0 only
    "size_bytes": "byte",  # of the arrays that the model keeps
}
PREDICTIONS = 3  # of which the fastest counts
TRACED_ITERATIONS = 3  # of a training whose memory is measured: the peak does not depend on their number
WARM_ROWS = 20  # of the stream, of the training that fills caches before the timed one


class Material(NamedTuple):
    """What a method learns from."""

    data: TaskData
    task: str
    seed: int
    budget: int  # points of the online GP
    n_inducing: int  # points of the sparse GPs
    iterations: int  # of a training of theirs, at most
    is_short: bool = False  # whether trainings stop after very few iterations

    @classmethod
    def of(cls, data: TaskData, task: str, seed: int, plan: Plan) -> "Material":
        """In the size of the plan."""
        return cls(data, task, seed, plan.budget, plan.inducing_points, plan.sparse_iterations)

    def shortened(self) -> "Material":
        """The same with few iterations."""
        return self._replace(is_short=True)

    def most_iterations(self, usual: int) -> int:
        """Of a training that usually stops after so many."""
        return min(usual, TRACED_ITERATIONS) if self.is_short else usual

    def small(self) -> "Material":
        """Few rows and iterations."""
        data = self.data._replace(inputs=self.data.inputs[:WARM_ROWS], targets=self.data.targets[:WARM_ROWS])
        return self.shortened()._replace(data=data, n_inducing=min(self.n_inducing, WARM_ROWS))


class Fitted(NamedTuple):
    """A model that has seen its data."""

    predict: Predict  # mean and latent variance at inputs (m, p)
    noise_variance: float  # target unit^2
    size_bytes: int


class Method(ABC):
    """A way to learn from the training rows of a task."""

    name: ClassVar[str]
    title: ClassVar[str]
    note: ClassVar[str]  # how it is trained, for the report

    def is_for(self, task: str, n_rows: int, seed: int) -> bool:
        """Whether it is computed for a task with so many training rows, and a seed."""
        return True

    @abstractmethod
    def fit(self, material: Material) -> Fitted:
        """Learn from all training rows."""


def measured(method: Method, material: Material) -> dict[str, float]:
    """Values of the `QUANTITIES`; memory is traced in a training of its own, because tracing slows it."""
    is_first = material.seed == 0
    if is_first:
        method.fit(material.small())
    begin = time.perf_counter()
    fitted = method.fit(material)
    train_seconds = time.perf_counter() - begin
    data = material.data
    mean, variance = fitted.predict(data.test_inputs)
    found = validate(data.test_targets, mean, variance, fitted.noise_variance)
    return {
        "smse": found.smse,
        "nlpd": found.nlpd,
        "coverage_95": found.coverage_95,
        "train_seconds": train_seconds,
        "predict_us": 1e6 * _prediction_seconds(fitted, data.test_inputs) / found.n,
        "peak_bytes": float(peak_bytes(lambda: method.fit(material.shortened()))) if is_first else float("nan"),
        "size_bytes": float(fitted.size_bytes),
    }


def peak_bytes(run: Callable[[], object]) -> int:
    """Most bytes that a call holds at once on top of what is there (tracemalloc; BLAS workspaces are not in it)."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _prediction_seconds(fitted: Fitted, inputs: np.ndarray) -> float:
    times = []
    for _ in range(PREDICTIONS):
        begin = time.perf_counter()
        fitted.predict(inputs)
        times.append(time.perf_counter() - begin)
    return min(times)
