"""All tasks, in the order of the paper's tables."""

from experiments.studies.plan import Plan
from experiments.studies.tasks.bouc_wen import BoucWenTask
from experiments.studies.tasks.building import BuildingTask
from experiments.studies.tasks.recorded import BostonTask, ConcreteTask, TanksTask
from experiments.studies.tasks.static_function import HimmelblauTask, RastriginTask, RosenbrockTask, SixHumpCamelTask
from experiments.studies.tasks.task import Task
from experiments.studies.tasks.van_der_pol import VanDerPolTask

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        RastriginTask,
        RosenbrockTask,
        HimmelblauTask,
        SixHumpCamelTask,
        BostonTask,
        ConcreteTask,
        BoucWenTask,
        TanksTask,
        VanDerPolTask,
        BuildingTask,
    )
}


def task_of(name: str, plan: Plan) -> Task:
    """Task of a name, in the size of the plan."""
    return BuildingTask(plan.building_samples) if name == BuildingTask.name else TASKS[name]()
