"""What all studies share: rows of every task and seed, and hyper-parameters trained on the initial ones."""

import xarray as xr

from experiments.studies.plan import Plan
from experiments.studies.study import Unit, Work
from experiments.studies.tasks.catalogue import task_of
from sysid import MaximumAPosteriori


class Preparation(Work):
    """Rows and trained hyper-parameters."""

    name = "preparation"
    weight = 0.2

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Rows (`TaskData.to_dataset`), ``variance``, ``length_scale`` (feature) and ``noise_variance``."""
        task = task_of(unit.task, plan)
        data = task.load(unit.seed, plan.n_initial, plan.most_rows)
        training = MaximumAPosteriori(n_initial=plan.n_initial)
        found = training.train(data.initial_inputs, data.initial_targets, unit.seed)
        variance, *length_scales = found.kernel.parameters().tolist()
        return data.to_dataset().assign(
            variance=variance, length_scale=("feature", length_scales), noise_variance=found.noise_variance
        )
