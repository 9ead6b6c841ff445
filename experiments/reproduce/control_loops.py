"""Closed loops of the study `control`: the heated building and the tanks under each controller."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import simulators
import sysid
from experiments.plant.live import Simulation
from experiments.plant.plant import Plant
from experiments.plant.predictive import ControlRun, Predictive
from experiments.plant.true_plant import KnowsPlant
from experiments.reproduce.tasks import BUILDING_NARX, EXACT_MEASUREMENT, TANKS_NARX
from sysid import ControlDecision

SAMPLES_PER_HOUR = 4  # of the building
SAMPLES_PER_DAY = 24 * SAMPLES_PER_HOUR
#: samples in which every predictive controller lets the PI controller heat, and its model learns
LEARNING_SAMPLES = 14 * SAMPLES_PER_DAY
#: substeps of a sample in the plans of the controller that knows the equations. They change an
#: output by less than 1e-4 K
PLAN_SUBSTEPS = 10
#: points of the online models
BUDGET = 100
#: error from which on a sample becomes a candidate for the stored points [K]
ERROR_THRESHOLD = 0.1


class ControlledRun(NamedTuple):
    """A plant under a controller."""

    trajectory: simulators.Trajectory
    decisions: list[tuple[int, ControlDecision]]  # with the sample of each; empty for a PI
    #: errors (n,) of the model one step ahead, in the order of the samples; nan without prediction
    errors: np.ndarray


@dataclass(frozen=True)
class ModelOfLoop:
    """What a predictive controller plans with."""

    settings: sysid.Settings | None  # of the identification; None: it knows the true plant
    linear_lags: bool = True  # whether the model has a linear part with a long memory
    learns: int | None = None  # samples that it learns; None: all


def online_settings() -> sysid.Settings:
    """Return the settings of the online model, those of `sysid-identify system=building`."""
    return sysid.Settings(insertion=sysid.ErrorThreshold(ERROR_THRESHOLD))


def line_settings() -> sysid.Settings:
    """Return the settings of a linear model of the same lags, learned by every sample.

    With a linear kernel the posterior mean is that of recursive least squares, whose prior is the
    kernel.
    """
    training = sysid.Adaptive(kernel=sysid.Linear())
    return sysid.Settings(training=training, mean=sysid.ConstantMean(), linear_part="none")


#: Models by the name of their controller.
MODELS: dict[str, ModelOfLoop] = {
    "MPC, online model": ModelOfLoop(online_settings()),
    "MPC, frozen model": ModelOfLoop(online_settings(), learns=LEARNING_SAMPLES),
    "MPC, line": ModelOfLoop(line_settings(), linear_lags=False),
    "MPC, true plant": ModelOfLoop(None),
}


def run_loop(
    plant: Plant, model: ModelOfLoop, narx: sysid.Narx, n_samples: int, seed: int
) -> ControlledRun:
    """Run a plant under its predictive controller, whose model learns meanwhile."""
    simulation = Simulation(plant, n_samples, seed)
    decisions = simulation.decisions
    assert isinstance(decisions, ControlRun)
    errors = np.full(n_samples, np.nan)
    n_learned = 0
    if model.settings is not None:
        settings = replace(model.settings, budget=BUDGET, seed=seed)
        if model.linear_lags:
            narx = settings.with_linear_lags(narx)
        identification = sysid.Identification(narx, settings)
        decisions.tell(identification)
        n_learned = n_samples if model.learns is None else model.learns
        blocks = sysid.learn_from(
            simulation.until(n_learned),
            identification,
            sysid.LagWindow(narx),
            outputs=plant.outputs,
            inputs=plant.inputs,
        )
        for block in blocks:
            errors[block.rows.sample] = block.rows.target - block.record["mean"]
        identification.finish()
        decisions.end_of_learning()
    for _ in simulation.until(n_samples):
        pass  # the simulation keeps its samples
    return ControlledRun(simulation.record(), decisions.decisions, errors)


# --- the heated building --------------------------------------------------------------------------

#: setting of the predictive controllers of the building, those of `controller=mpc`
BUILDING_POLICY = sysid.PredictiveControl(
    inputs={"mass_flow": (0.0, 0.1)},  # kg/s
    horizon=96,  # a day
    n_applied=4,  # an hour
    moves=4,
    output_limits={"zone_temperature": ("comfort_lower", "comfort_upper")},
    tightening=0.0,
    violation=1.0,
    price={"mass_flow": 1.0},
    start=LEARNING_SAMPLES * 900.0,  # s
    max_standard_deviation={"zone_temperature": 2.0},  # K
)


def building_plant(
    controller: simulators.Controller, system: simulators.Building | None = None
) -> Plant:
    """Return the building in its weather under a controller."""
    return Plant(
        simulators.Building() if system is None else system,
        controller,
        {"ambient_temperature": simulators.SyntheticWeather()},
        {},
        EXACT_MEASUREMENT,
        simulators.Interpolation.held,
    )


def predictive_plant(
    model: ModelOfLoop,
    *,
    margin: float = 0.0,
    probability: float | None = None,
    system: simulators.Building | None = None,
) -> Plant:
    """Return the building under a predictive controller.

    Parameters
    ----------
    model : ModelOfLoop
    margin : float
        By which the lower limit of the plan lies above that of the comfort band [K].
    probability : float, optional
        With which a measurement may be beyond a limit: the limits are tightened by the band of the
        plan, too.
    system : Building, optional
    """
    policy = BUILDING_POLICY
    if probability is not None:
        policy = replace(policy, tightening=None, probability=probability)
    if model.settings is None:
        known = simulators.Building() if system is None else system
        policy = replace(policy, predictors=KnowsPlant(replace(known, substeps=PLAN_SUBSTEPS)))
    comfort = simulators.ComfortSchedule()
    limits = replace(
        comfort,
        day_lower=comfort.day_lower + margin,
        relaxed_lower=comfort.relaxed_lower + margin,
    )
    controller = Predictive(900.0, policy, fallback=simulators.PI(), schedule=limits)
    return building_plant(controller, system)
