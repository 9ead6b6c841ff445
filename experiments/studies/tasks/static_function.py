"""The four static test functions: uniform samples, judged on a grid."""

from dataclasses import dataclass
from typing import ClassVar

from experiments.studies.tasks.task import Rows, Task
from simulators import Grid, Himmelblau, Rastrigin, Rosenbrock, SixHumpCamel, StaticFunction, Uniform

N_TRAINING = 600  # 100 initial and 500 new rows
N_AXIS = 41  # places of the validation grid along each input


@dataclass(frozen=True)
class FunctionTask(Task):
    """Samples of a static function without noise."""

    function: ClassVar[StaticFunction]
    unit: ClassVar[str] = "1"

    def rows(self, seed: int) -> tuple[Rows, Rows]:
        """Uniform samples, and a grid over the same domain."""
        box = (self.function.lower, self.function.upper)
        training, grid = Uniform().sample(N_TRAINING, *box, seed=seed), Grid().sample(N_AXIS**2, *box)
        return Rows(training, self.function(training)), Rows(grid, self.function(grid))


class RastriginTask(FunctionTask):
    """Rastrigin on [-1, 1]^2."""

    name, title, function = "rastrigin", "Rastrigin", Rastrigin()


class RosenbrockTask(FunctionTask):
    """Rosenbrock on [-1, 1]^2."""

    name, title, function = "rosenbrock", "Rosenbrock", Rosenbrock()


class HimmelblauTask(FunctionTask):
    """Himmelblau on [-4, 4]^2."""

    name, title, function = "himmelblau", "Himmelblau", Himmelblau()


class SixHumpCamelTask(FunctionTask):
    """Six-hump camel on [-2, 2]^2: the textbook function; the paper misprints its last term."""

    name, title, function = "six_hump_camel", "Six Hump Camel", SixHumpCamel()
