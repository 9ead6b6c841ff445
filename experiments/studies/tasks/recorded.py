"""The tasks whose rows were measured: Boston, Concrete, cascaded tanks, in their published order."""

from typing import ClassVar

import numpy as np

from experiments.studies.tasks.task import Rows, Task, lagged
from sysid import BostonData, CascadedTanksData, ConcreteData, DataSource, Narx, Recordings, Target


class TableTask(Task):
    """Rows of a table without time, in file order: the first train, the rest validates."""

    source: ClassVar[DataSource]
    is_random = False

    def rows(self, seed: int) -> tuple[Rows, Rows]:
        """Estimation and test rows; the seed does nothing."""
        recordings = self.source.load()
        return _rows(recordings, "estimation"), _rows(recordings, "test")


def _rows(recordings: Recordings, role: str) -> Rows:
    (record,) = getattr(recordings, role)
    features = np.column_stack([record[name].values for name in recordings.inputs])
    return Rows(features, record[recordings.outputs[0]].values)


class BostonTask(TableTask):
    """Prices of houses in Boston: 451 rows train, 55 validate."""

    name, title, unit, source = "boston", "Boston", "1000 USD", BostonData()


class ConcreteTask(TableTask):
    """Strength of concrete: 927 rows train, 103 validate."""

    name, title, unit, source = "concrete", "Concrete", "MPa", ConcreteData()


class TanksTask(Task):
    """Measured cascaded tanks, two lags of the level and of the pump voltage."""

    name, title, unit = "tanks", "Tanks", "V"
    is_random = False

    def rows(self, seed: int) -> tuple[Rows, Rows]:
        """Estimation and test record; the seed does nothing."""
        recordings = CascadedTanksData().load()
        narx = Narx({recordings.outputs[0]: 2}, {recordings.inputs[0]: 2}, predict=Target.change)
        return lagged(narx, recordings.estimation), lagged(narx, recordings.test)
