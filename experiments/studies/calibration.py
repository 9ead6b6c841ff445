"""Hyper-parameters of the setting `published`: one length scale, fixed by the published initial SMSE."""

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from scipy.optimize import brentq

from experiments.studies.plan import Plan
from experiments.studies.published_table import published_initial
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.stream import initial_smse
from experiments.studies.study import Unit, Work
from experiments.studies.tasks.catalogue import task_of
from experiments.studies.tasks.task import TaskData
from sysid import Hyperparameters, SquaredExponential

LENGTHS = np.geomspace(0.02, 20.0, 31)  # standard deviations of the features
LEAST_NOISE_RATIO = 1e-4  # noise over signal variance


class Calibration(Work):
    """One isotropic length scale per task so that the median initial SMSE over seeds is the published one.

    The signal variance is the mean square of the initial targets; the noise variance that of the trained
    hyper-parameters, at least 1e-4 and at most all of the signal variance. Of several lengths that fit, the shortest:
    the published values come out where it is too short. Where none fits, that of the closest SMSE.
    """

    name = "calibration"
    weight = 0.3

    def units(self, plan: Plan) -> list[Unit]:
        """One unit per task: it looks at all seeds."""
        return [Unit(self.name, name) for name in plan.tasks]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Hyper-parameters (seed, feature), the initial SMSE they give, and whether it is the published one."""
        task = task_of(unit.task, plan)
        seeds = task.seeds(plan.seeds)
        rows = [data_of(unit.task, seed, plan) for seed in seeds]
        variance = [float(np.mean(data.initial_targets**2)) for data in rows]
        trained = [hyperparameters_of(unit.task, seed, Setting.trained, plan).noise_variance for seed in seeds]
        noise = [float(np.clip(n, LEAST_NOISE_RATIO * v, v)) for n, v in zip(trained, variance, strict=True)]
        published = published_initial("table_2", task.title)

        def median(logarithm: float) -> float:
            return _median_smse(float(np.exp(logarithm)), rows, variance, noise)

        length, is_reached = _length(median, published)
        p = rows[0].inputs.shape[1]
        return xr.Dataset(
            {
                "variance": ("seed", variance),
                "noise_variance": ("seed", noise),
                "length_scale": (("seed", "feature"), np.full((len(seeds), p), length)),
                "initial_smse": median(np.log(length)),
                "initial_smse_published": published,
                "is_reached": is_reached,
            },
            coords={"seed": list(seeds)},
        )


def _median_smse(length: float, rows: Sequence[TaskData], variance: Sequence[float], noise: Sequence[float]) -> float:
    """Median initial SMSE over seeds."""
    found = []
    for data, v, n in zip(rows, variance, noise, strict=True):
        kernel = SquaredExponential(v, [length] * data.inputs.shape[1])
        found.append(initial_smse(data, Hyperparameters(kernel, n, float("nan"))))
    return float(np.median(found))


def _length(median: Callable[[float], float], published: float) -> tuple[float, bool]:
    """Shortest length at which the median SMSE is the published one, and whether there is one."""
    logarithms = np.log(LENGTHS)
    excess = np.array([median(x) for x in logarithms]) - published
    crossings = np.flatnonzero(np.signbit(excess[:-1]) != np.signbit(excess[1:]))
    if not len(crossings):
        return float(LENGTHS[np.argmin(np.abs(excess))]), False
    first = crossings[0]
    root = brentq(lambda x: median(x) - published, logarithms[first], logarithms[first + 1], xtol=1e-3)
    return float(np.exp(root)), True
