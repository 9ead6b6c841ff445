"""Van der Pol oscillator: 20 short trajectories from random initial states, two lags."""

import numpy as np
import xarray as xr

from experiments.studies.tasks.task import Rows, Task, lagged
from simulators import VanDerPol, simulate_many
from sysid import Narx, Target

N_TRAJECTORIES = 20
N_SAMPLES = 52  # of a trajectory: 50 rows
NARX = Narx({"position": 2}, predict=Target.change)


class VanDerPolTask(Task):
    """1000 rows to learn from and 1000 to judge by; initial states uniform in [-2, 2]^2."""

    name, title, unit = "van_der_pol", "Van der Pol", "m"

    def rows(self, seed: int) -> tuple[Rows, Rows]:
        """Rows of two independent ensembles."""
        training, test = (lagged(NARX, _records(seed, purpose)) for purpose in range(2))
        return training, test


def _records(seed: int, purpose: int) -> list[xr.Dataset]:
    states = np.random.default_rng([seed, purpose]).uniform(-2.0, 2.0, size=(N_TRAJECTORIES, 2))
    ensemble = simulate_many(
        VanDerPol(), n_samples=N_SAMPLES, initial_states=states, seed=2 * seed + purpose
    ).to_dataset()
    return [ensemble.isel(trajectory=i) for i in range(N_TRAJECTORIES)]
