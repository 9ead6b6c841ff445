"""Closed loops of the study `control`: the heated building and the tanks under each controller."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import simulators
import sysid
from experiments.plant.live import Simulation
from experiments.plant.plant import Plant
from experiments.plant.predictive import ControlRun, Predictive
from experiments.plant.true_plant import KnowsPlant
from experiments.reproduce.tasks import (
    BUILDING_NARX,
    EXACT_MEASUREMENT,
    LEVEL_NOISE_STD,
    TANKS_NARX,
)
from sysid import ControlDecision

SAMPLES_PER_DAY = 96  # of the building, 900 s each
#: substeps of a sample in the plans of the controller that knows the equations. They change an
#: output by less than 1e-4 K
PLAN_SUBSTEPS = 10
#: points of the online models
N_MODEL_POINTS = 100
#: memory of the model that forgets [samples]
MEMORY_SAMPLES = 250.0
#: error from which on a sample becomes a candidate for the stored points of the building [K]
STORING_ERROR = 0.1


class ControlledRun(NamedTuple):
    """A plant under a controller."""

    trajectory: simulators.Trajectory
    decisions: list[tuple[int, ControlDecision]]  # with the sample of each; empty for a PI
    #: errors (n,) of the model one step ahead, before it learned the sample; nan without a model
    #: that learns
    errors: np.ndarray


@dataclass(frozen=True)
class PlanningModel:
    """What a predictive controller plans with.

    Its settings are the defaults of the toolbox, but for those that are given.
    """

    knows_plant: bool = False  # whether it has the true equations and states: nothing is learned
    is_line: bool = False  # whether it is linear, of the same few lags
    is_frozen: bool = False  # whether it learns until the first plan is applied, and then no more
    memory: float | None = None  # samples, if it forgets

    def settings(self, insertion: sysid.Insertion, seed: int) -> sysid.Settings:
        """Return the settings of the identification.

        With a linear kernel and every sample learned, the posterior mean is that of recursive least
        squares whose prior is the kernel.
        """
        if self.is_line:
            return sysid.Settings(
                training=sysid.Adaptive(kernel=sysid.Linear()),
                mean=sysid.ConstantMean(),
                linear_part="none",
                budget=N_MODEL_POINTS,
                seed=seed,
            )
        return sysid.Settings(
            insertion=insertion, budget=N_MODEL_POINTS, forgetting=self.memory, seed=seed
        )


ONLINE_MPC = "MPC, online model"
FROZEN_MPC = "MPC, frozen model"
FORGETTING_MPC = "MPC, forgetting model"
LINE_MPC = "MPC, line"
TRUE_PLANT_MPC = "MPC, true plant"
#: Models by the name of their controller.
PLANNING_MODELS: dict[str, PlanningModel] = {
    ONLINE_MPC: PlanningModel(),
    FROZEN_MPC: PlanningModel(is_frozen=True),
    FORGETTING_MPC: PlanningModel(memory=MEMORY_SAMPLES),
    LINE_MPC: PlanningModel(is_line=True),
    TRUE_PLANT_MPC: PlanningModel(knows_plant=True),
}


def run_loop(plant: Plant, n_samples: int, seed: int) -> ControlledRun:
    """Run a plant under a controller that asks no model."""
    return ControlledRun(plant.trajectory(n_samples, seed), [], np.full(n_samples, np.nan))


def run_predictive_loop(
    plant: Plant,
    model: PlanningModel,
    narx: sysid.Narx,
    n_samples: int,
    seed: int,
    *,
    insertion: sysid.Insertion,
    n_before: int,
) -> ControlledRun:
    """Run a plant under its predictive controller, whose model learns meanwhile.

    Parameters
    ----------
    plant : Plant
    model : PlanningModel
    narx : Narx
        Lags; a model that is no line gets those of its linear part, too.
    n_samples : int
    seed : int
    insertion : Insertion
        Which samples a model that is no line stores.
    n_before : int
        Samples before the first plan, the only ones from which a frozen model learns.
    """
    simulation = Simulation(plant, n_samples, seed)
    decisions = simulation.decisions
    assert isinstance(decisions, ControlRun)
    errors = np.full(n_samples, np.nan)
    if not model.knows_plant:
        settings = model.settings(insertion, seed)
        narx = settings.with_linear_lags(narx)
        identification = sysid.Identification(narx, settings)
        decisions.tell(identification)
        blocks = sysid.learn_from(
            simulation.until(n_before if model.is_frozen else n_samples),
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


def errors_ahead(run: ControlledRun, steps: int, first: int, last: int) -> np.ndarray:
    """Return the errors of the plans some steps ahead, with the inputs that were applied.

    Parameters
    ----------
    run : ControlledRun
    steps : int
        At most the number of samples between two decisions: later inputs are decided anew.
    first, last : int
        Samples between which the decisions lie, the last one excluded.
    """
    measured = run.trajectory.output[:, 0]
    errors = []
    for k, decision in run.decisions:
        is_scored = first <= k < last and k + steps < len(measured)
        if is_scored and not decision.reason:
            errors.append(measured[k + steps] - decision.mean[steps - 1, 0])
    return np.array(errors)


def errors_with_other_past(
    reference: simulators.Trajectory, own: simulators.Trajectory, first: int, seed: int
) -> np.ndarray:
    """Return the errors one step ahead of an online model that learned another past of a building.

    Parameters
    ----------
    reference : Trajectory
        Loop whose samples before `first` the model has learned.
    own : Trajectory
        Loop whose samples it predicts from `first` on. It goes on learning them.
    first : int
    seed : int
        Seed of the model.

    Returns
    -------
    (n,) array
        nan before `first`.
    """
    settings = PLANNING_MODELS[ONLINE_MPC].settings(sysid.ErrorThreshold(STORING_ERROR), seed)
    narx = settings.with_linear_lags(BUILDING_NARX)
    identification = sysid.Identification(narx, settings)
    past = narx.regressors(signals_of(reference, 0, first))
    identification.observe_many(past.regressor, past.target)
    identification.finish()
    coming = narx.regressors(signals_of(own, first - narx.max_lag, len(own.time)))
    record = identification.observe_many(coming.regressor, coming.target)
    errors = np.full(len(own.time), np.nan)
    errors[first:] = coming.target - record["mean"]
    return errors


def signals_of(trajectory: simulators.Trajectory, first: int, last: int) -> dict[str, np.ndarray]:
    """Return the measured outputs and the inputs of some samples, by name."""
    system = trajectory.system
    signals = {}
    for column, signal in enumerate(system.outputs):
        signals[signal.name] = trajectory.output[first:last, column]
    for column, signal in enumerate(system.inputs):
        signals[signal.name] = trajectory.input[first:last, column]
    return signals


# --- the heated building --------------------------------------------------------------------------

#: settings of the predictive controllers of the building but for the start of their plans, those
#: of ``controller=mpc``; the limits are tightened by a margin instead of a probability
BUILDING_POLICY = sysid.PredictiveControl(
    inputs={"mass_flow": (0.0, 0.1)},  # kg/s
    horizon=SAMPLES_PER_DAY,
    n_applied=4,  # an hour
    moves=4,
    output_limits={"zone_temperature": ("comfort_lower", "comfort_upper")},
    tightening=0.0,
    violation=1.0,
    price={"mass_flow": 1.0},
    max_standard_deviation={"zone_temperature": 2.0},  # K
)
COMFORT_BAND = simulators.ComfortSchedule()


def building_plant(controller: simulators.Controller, system: simulators.Building) -> Plant:
    """Return the building in its weather under a controller."""
    return Plant(
        system,
        controller,
        {"ambient_temperature": simulators.SyntheticWeather()},
        {},
        EXACT_MEASUREMENT,
        simulators.Interpolation.held,
    )


class HeatingTask(NamedTuple):
    """What a predictive controller of the building is to do."""

    n_before: int  # samples before its first plan, in which the PI controller heats
    margin: float = 0.0  # of the lower limit of its plans above that of the comfort band [K]
    violation: float = 1.0  # price of a violated limit, for each K and sample
    probability: float | None = None  # of a limit that is tightened by the band; None: by nothing
    system: simulators.Building = simulators.Building()


def heat_by_plans(
    model: PlanningModel, task: HeatingTask, n_samples: int, seed: int
) -> ControlledRun:
    """Run the building under a predictive controller."""
    system = task.system
    start = task.n_before * system.dt
    policy = replace(BUILDING_POLICY, start=start, violation=task.violation)
    if task.probability is not None:
        policy = replace(policy, tightening=None, probability=task.probability)
    if model.knows_plant:
        planned = replace(system, substeps=PLAN_SUBSTEPS)
        has_bands = task.probability is not None
        policy = replace(policy, predictors=KnowsPlant(planned, noise=has_bands))
    limits = replace(
        COMFORT_BAND,
        day_lower=COMFORT_BAND.day_lower + task.margin,
        relaxed_lower=COMFORT_BAND.relaxed_lower + task.margin,
    )
    controller = Predictive(system.dt, policy, fallback=simulators.PI(), schedule=limits)
    return run_predictive_loop(
        building_plant(controller, system),
        model,
        BUILDING_NARX,
        n_samples,
        seed,
        insertion=sysid.ErrorThreshold(STORING_ERROR),
        n_before=task.n_before,
    )


# --- the tanks ------------------------------------------------------------------------------------

TANKS = simulators.CascadedTanks(upper_noise_std=LEVEL_NOISE_STD, lower_noise_std=LEVEL_NOISE_STD)
#: steps of the level that the tanks are to follow
LEVEL_STEPS = simulators.Levels(levels=(4.0, 6.0, 3.0, 7.0, 5.0, 8.0, 2.5, 6.5), hold=400.0)
#: the PI controller of ``controller=level_pi``, on these steps
LEVEL_PI = simulators.PI(
    dt=TANKS.dt,
    output="level",
    input="pump_voltage",
    proportional_gain=0.3,
    integral_gain=0.001,
    minimum=0.0,
    maximum=10.0,
    schedule=LEVEL_STEPS,
)
#: the one that moves the pump while the model learns
LEARNING_LEVEL_PI = replace(LEVEL_PI, proportional_gain=1.0, integral_gain=0.003, maximum=3.3)
#: probing of the pump while the model learns
PUMP_PROBING: dict[str, Any] = {"probing": {"pump_voltage": 1.0}, "probing_hold": 8}  # V, samples
#: settings of the predictive controllers of the tanks but for the start of their plans, those of
#: ``controller=mpc``
TANKS_POLICY = sysid.PredictiveControl(
    inputs={"pump_voltage": (0.8, 3.3, 0.5)},  # V, and V per sample
    horizon=30,
    n_applied=2,
    moves=4,
    output_limits={"level": (0.5, 9.5)},  # V
    violation=100.0,
    change_price={"pump_voltage": 0.2},
    tracking={"level": ("set_point", 1.0)},
    max_standard_deviation={"level": 3.0},  # V
    max_error={"level": 0.7},  # V
)


def tanks_plant(controller: simulators.Controller) -> Plant:
    """Return the tanks under a controller."""
    return Plant(TANKS, controller, {}, {}, EXACT_MEASUREMENT, simulators.Interpolation.held)


def fill_by_plans(model: PlanningModel, n_before: int, n_samples: int, seed: int) -> ControlledRun:
    """Run the tanks under a predictive controller that follows steps of the level."""
    policy = replace(TANKS_POLICY, start=n_before * TANKS.dt)
    if model.knows_plant:
        # Nothing is learned, so that past errors need no check, which would need earlier states.
        policy = replace(policy, predictors=KnowsPlant(TANKS, noise=False), max_error=None)
    return run_predictive_loop(
        tanks_plant(Predictive(TANKS.dt, policy, fallback=LEARNING_LEVEL_PI, **PUMP_PROBING)),
        model,
        TANKS_NARX,
        n_samples,
        seed,
        insertion=sysid.Always(),
        n_before=n_before,
    )
