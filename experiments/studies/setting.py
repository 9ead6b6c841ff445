"""Where hyper-parameters come from: `trained`, `published`, `adaptive`."""

from enum import StrEnum
from functools import lru_cache

from experiments.studies.part import read_part
from experiments.studies.plan import Plan
from experiments.studies.study import Unit
from experiments.studies.tasks.task import TaskData
from sysid import Adaptive, Hyperparameters, MaximumAPosteriori, SquaredExponential, Training


class Setting(StrEnum):
    """One column of results; never mixed in one table."""

    trained = "trained"  # maximum a posteriori on the initial rows, then fixed
    published = "published"  # one isotropic length scale that reproduces the published initial SMSE, fixed
    adaptive = "adaptive"  # trained, then following the stream

    def training(self, n_initial: int) -> Training:
        """What happens to the hyper-parameters during the stream."""
        return Adaptive(n_initial=n_initial) if self is Setting.adaptive else MaximumAPosteriori(n_initial=n_initial)


@lru_cache(maxsize=2)
def data_of(task: str, seed: int, plan: Plan) -> TaskData:
    """Rows of a task, as the preparation kept them."""
    return TaskData.from_dataset(read_part(Unit("preparation", task, seed), plan))


def hyperparameters_of(task: str, seed: int, setting: Setting, plan: Plan) -> Hyperparameters:
    """Hyper-parameters at the start of the stream, as the preparation and the calibration kept them."""
    if setting is Setting.published:
        part = read_part(Unit("calibration", task), plan).sel(seed=seed)
    else:
        part = read_part(Unit("preparation", task, seed), plan)
    kernel = SquaredExponential(float(part["variance"]), part["length_scale"].values)
    return Hyperparameters(kernel, float(part["noise_variance"]), float("nan"))
