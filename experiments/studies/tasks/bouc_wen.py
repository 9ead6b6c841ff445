"""Bouc-Wen oscillator: a generated estimation record of the official recipe, judged on the official test."""

from experiments.studies.tasks.task import Rows, Task, lagged
from simulators import BoucWen, Interpolation, MeasurementNoise, Multisine, random_stream, simulate
from sysid import BoucWenData, Narx, Target

PERIOD = 8192  # samples of the multisine
N_TRAINING = 1000  # samples: 997 rows
OUTPUT_NOISE = 8e-6  # m
FORCE = Multisine(rms=50.0, band=(5.0, 150.0))  # N, Hz
NARX = Narx({"displacement": 3}, {"force": 3}, predict=Target.change)


class BoucWenTask(Task):
    """1000 samples after one period of transient, three lags of displacement and force."""

    name, title, unit = "bouc_wen", "Bouc-Wen", "m"

    def rows(self, seed: int) -> tuple[Rows, Rows]:
        """Generated rows, and those of the official multisine test."""
        system = BoucWen()
        force = FORCE.signal(PERIOD, system.dt, random_stream(seed, "excitation"))
        record = simulate(
            system,
            [*force, *force],
            interpolation=Interpolation.band_limited,
            measurement=MeasurementNoise(std=OUTPUT_NOISE),
            seed=seed,
        ).to_dataset()
        recordings = BoucWenData().load()
        names = {recordings.inputs[0]: "force", recordings.outputs[0]: "displacement"}
        test = recordings.test[0].rename(names)
        return lagged(NARX, [record.isel(time=slice(PERIOD, PERIOD + N_TRAINING))]), lagged(NARX, [test])
