"""Records whose inputs a model chooses while it identifies the plant."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from experiments.plant.designed import DesignRun
from experiments.plant.live import Simulation
from experiments.plant.plant import Plant
from simulators import Trajectory
from sysid import Identification, LagWindow, Narx, Settings
from sysid.errors import UserError
from sysid.stream import StreamLearner


class DesignedTrajectory(NamedTuple):
    """A simulation, and the decisions about its designed inputs."""

    trajectory: Trajectory  # with the transient
    decisions: xr.Dataset  # numbered from the first sample of the transient


class Designer:
    """Identifies a plant while its records are simulated, and chooses their designed inputs.

    The models go on learning from one record to the next.

    Parameters
    ----------
    narxes : sequence of Narx
        Lags of the model of each output, which are the same.
    settings : Settings
        How they learn.
    """

    def __init__(self, narxes: Sequence[Narx], settings: Settings) -> None:
        self._identifications = [
            Identification(settings.with_linear_lags(narx), settings) for narx in narxes
        ]

    def simulate(
        self,
        plant: Plant,
        n_samples: int,
        seed: int,
        *,
        transient: int,
        initial_state: np.ndarray | None,
    ) -> DesignedTrajectory:
        """Simulate a record. Every stretch is learned before the next one is chosen.

        Raises
        ------
        ValueError
            If the plant or the design refuses a setting.
        simulators.errors.SimulationError
            If the simulation fails.
        """
        simulation = Simulation(
            plant, n_samples, seed, transient=transient, initial_state=initial_state
        )
        design = simulation.decisions
        if not isinstance(design, DesignRun):
            raise UserError("Designer: expected a plant with designed inputs, got one without")
        design.tell(*self._identifications)
        n_all = transient + n_samples
        learners = [
            StreamLearner(one, LagWindow(one.narx), outputs=plant.outputs, inputs=plant.inputs)
            for one in self._identifications
        ]
        for measured in simulation.until(n_all):
            for learner in learners:
                for _ in learner.learn(measured):
                    pass
        for one in self._identifications:
            one.finish()
        decisions = design.content(n_all, float(plant.system.dt))
        return DesignedTrajectory(simulation.record(), decisions)
