"""Heated building: one simulated year in closed loop; its first half trains, its second half validates."""

from dataclasses import dataclass

from experiments.plant import Plant
from experiments.studies.tasks.task import Rows, Task, lagged
from simulators import PI, Building, Interpolation, MeasurementNoise, SyntheticWeather
from sysid import Narx, Target

NARX = Narx({"zone_temperature": 3}, {"ambient_temperature": 3, "mass_flow": 3}, predict=Target.change)


@dataclass(frozen=True)
class BuildingTask(Task):
    """Change of the zone temperature from three lags of zone, ambient and flow."""

    name, title, unit = "building", "Building", "K"
    weight = 30.0
    n_samples: int = 35041  # of 15 min: a year

    def rows(self, seed: int) -> tuple[Rows, Rows]:
        """Rows of the first and of the second half; the lags of the second reach into the first."""
        plant = Plant(
            system=Building(),
            controller=PI(),
            weather={"ambient_temperature": SyntheticWeather()},
            excitations={},
            measurement=MeasurementNoise(),
            interpolation=Interpolation.held,
        )
        record = plant.trajectory(self.n_samples, seed).to_dataset()
        half = (self.n_samples - 1) // 2 + 1
        training, test = slice(half), slice(half - NARX.max_lag, None)
        return lagged(NARX, [record.isel(time=training)]), lagged(NARX, [record.isel(time=test)])
