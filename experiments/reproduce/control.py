"""Heat and comfort of a building under controllers that plan, and under the best PI controllers."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

import simulators
from experiments.drawing.style import BASELINE_COLOR, PALETTE, SHAPES, page
from experiments.drawing.tables import fixed, significant, to_markdown
from experiments.plant.comfort import (
    JOULES_PER_KILOWATT_HOUR,
    discomfort,
    heat_at,
    heat_of_water,
)
from experiments.reproduce.control_loops import (
    COMFORT_BAND,
    FORGETTING_MPC,
    FROZEN_MPC,
    LEVEL_PI,
    LINE_MPC,
    ONLINE_MPC,
    PLANNING_MODELS,
    SAMPLES_PER_DAY,
    TANKS,
    TRUE_PLANT_MPC,
    ControlledRun,
    HeatingTask,
    building_plant,
    errors_ahead,
    errors_with_other_past,
    fill_by_plans,
    heat_by_plans,
    run_loop,
    tanks_plant,
)
from experiments.reproduce.study import Plan, Study, Unit, part_of
from experiments.reproduce.tasks import STUDY_TASKS

N_CONTROL_SEEDS = 3  # seeds, if their number is not given
COMPARED_DISCOMFORTS = (50.0, 200.0)  # at which controllers are compared [K h a year]
LEAST_DISCOMFORT = 1e-3  # K h, which takes the place of 0 in logarithms
N_PERIODS = 13  # parts of a year whose heat and discomfort are reported one by one
STATED_PROBABILITY = 0.05  # that a measurement is beyond a limit which is tightened by the band

HEATING_TASK = "heating"
CLOGGING_TASK = "clogging_radiator"
LEVELS_TASK = "level_steps"

SHIPPED_PI = "PI, as shipped"
PREHEATING_PI = "PI, preheating"
TUNED_PI = "PI, tuned"
TIGHTENED_MPC = f"{ONLINE_MPC}, {100 * STATED_PROBABILITY:.0f} %"
CHANGED_FROM_START = "MPC, online model of the changed plant"
PI_CONTROLLERS = (SHIPPED_PI, PREHEATING_PI, TUNED_PI)
#: Controllers whose heat is compared at a discomfort, in the order of the tables.
SWEPT_CONTROLLERS = (*PI_CONTROLLERS, ONLINE_MPC, FROZEN_MPC, LINE_MPC, TRUE_PLANT_MPC)
CONTROLLERS = (*SWEPT_CONTROLLERS, TIGHTENED_MPC, FORGETTING_MPC, CHANGED_FROM_START)
#: Controllers of the building whose radiator clogs, in the order of the table.
CLOGGING_CONTROLLERS = (ONLINE_MPC, FORGETTING_MPC, FROZEN_MPC, CHANGED_FROM_START)
CHANGED_RESISTANCE = 0.004  # K/W, of the radiator that clogs: twice as large as before


#: Titles of the counts of samples in which a tank overflows or is empty, by their name.
SPILL_TITLES = {
    "n_upper_overflows": "upper tank overflows [samples]",
    "n_lower_overflows": "lower tank overflows [samples]",
    "n_empty": "a tank is empty [samples]",
}
#: Samples ahead at which the errors of plans are reported: all of them were applied as planned.
STEPS_AHEAD = (1, 2)
ERRORS_OF_PLANS = tuple(f"rmse_{steps}" for steps in STEPS_AHEAD)


class PISetting(NamedTuple):
    """A PI controller of the building, in factors of the shipped one."""

    preheat: float  # h
    gain: float  # proportional gain over the shipped one
    integral: float  # integral gain over the shipped one
    offset: float  # of the set-point above the lower bound [K]


#: Offsets of controllers that let the temperature fall far below their set-point [K].
LARGE_OFFSETS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
#: Offsets of controllers that follow their set-point closely [K].
SMALL_OFFSETS = (-0.2, -0.1, 0.0, 0.1, 0.2)
#: Runs of the PI controllers by name. The best of them are those of the search.
PI_RUNS: dict[str, tuple[PISetting, ...]] = {
    SHIPPED_PI: tuple(PISetting(0.0, 1.0, 1.0, offset) for offset in LARGE_OFFSETS),
    PREHEATING_PI: tuple(
        PISetting(preheat, 1.0, 1.0, offset)
        for preheat in (1.0, 2.0, 4.0, 6.0, 8.0, 12.0)
        for offset in LARGE_OFFSETS
    ),
    TUNED_PI: tuple(
        PISetting(preheat, *gains, offset)
        for preheat in (0.0, 0.5, 1.0, 2.0)
        for gains in ((5.0, 1.0), (5.0, 20.0), (20.0, 1.0))
        for offset in SMALL_OFFSETS
    ),
}


class PlanSetting(NamedTuple):
    """How much comfort a predictive controller of the building wants."""

    margin: float  # of the lower limit of its plans above the comfort band [K]
    violation: float  # price of a violated limit, for each K and sample


#: Runs of each predictive controller. At a price of about 0.002 a violation costs as much as the
#: hot water that it saves.
PLAN_RUNS = (
    PlanSetting(0.1, 1.0),
    PlanSetting(0.0, 1.0),
    PlanSetting(0.0, 0.008),
    PlanSetting(0.0, 0.004),
)


class Sizes(NamedTuple):
    """Lengths of the runs, in samples."""

    n_before: int  # before the first plan; nothing is scored
    n_scored: int  # of the building
    n_until_change: int  # from the first plan until the radiator clogs
    n_adapting: int  # from the change until the errors count
    n_after: int  # in which they count
    n_tanks: int  # of the tanks
    n_tanks_before: int  # before their first plan


FULL_SIZES = Sizes(
    n_before=14 * SAMPLES_PER_DAY,
    n_scored=365 * SAMPLES_PER_DAY,
    n_until_change=28 * SAMPLES_PER_DAY,
    n_adapting=3 * SAMPLES_PER_DAY,
    n_after=7 * SAMPLES_PER_DAY,
    n_tanks=4000,
    n_tanks_before=1500,
)
#: Sizes that only show that everything works.
QUICK_SIZES = Sizes(
    n_before=2 * SAMPLES_PER_DAY,
    n_scored=SAMPLES_PER_DAY,
    n_until_change=SAMPLES_PER_DAY,
    n_adapting=SAMPLES_PER_DAY // 4,
    n_after=SAMPLES_PER_DAY // 2,
    n_tanks=260,
    n_tanks_before=200,
)


def sizes_of(plan: Plan) -> Sizes:
    """Return the lengths of the runs of a plan."""
    return QUICK_SIZES if plan.quick else FULL_SIZES


# --- runs -----------------------------------------------------------------------------------------


def run_pi(setting: PISetting, sizes: Sizes, seed: int) -> ControlledRun:
    """Run the building under a PI controller."""
    shipped = simulators.PI()
    controller = replace(
        shipped,
        proportional_gain=setting.gain * shipped.proportional_gain,
        integral_gain=setting.integral * shipped.integral_gain,
        schedule=replace(COMFORT_BAND, preheat=setting.preheat, offset=setting.offset),
    )
    plant = building_plant(controller, simulators.Building())
    return run_loop(plant, sizes.n_before + sizes.n_scored + 1, seed)


def score_heating(run: ControlledRun, sizes: Sizes) -> dict[str, float]:
    """Return heat, discomfort and errors of a run of the building after its first two weeks."""
    scored = slice(sizes.n_before, sizes.n_before + sizes.n_scored)
    heat = heat_of_water(run.trajectory)[scored] / JOULES_PER_KILOWATT_HOUR
    degree_hours = discomfort(run.trajectory, COMFORT_BAND)[scored]
    row = {
        "heat": float(heat.sum()),
        "discomfort": float(degree_hours.sum()),
        "outside": float((degree_hours > 0).mean()),
    }
    for number, rows in enumerate(np.array_split(np.arange(len(heat)), N_PERIODS), start=1):
        row[f"heat_{number}"] = float(heat[rows].sum())
        row[f"discomfort_{number}"] = float(degree_hours[rows].sum())
    return row | score_decisions(run, scored.start, scored.stop)


def score_decisions(run: ControlledRun, first: int, last: int) -> dict[str, float]:
    """Return how many decisions the fallback made, and the errors of the plans."""
    decisions = [one for k, one in run.decisions if first <= k < last]
    if not decisions:
        return {}
    reasons = Counter(one.reason for one in decisions)
    row = {
        "fallback": 1.0 - reasons[""] / len(decisions),
        "iterations": float(np.mean([one.n_iterations for one in decisions])),
    }
    of_learning = run.errors[first:last]
    row["rmse_learning"] = root_mean_square(of_learning[~np.isnan(of_learning)])
    for steps, name in zip(STEPS_AHEAD, ERRORS_OF_PLANS, strict=True):
        row[name] = root_mean_square(errors_ahead(run, steps, first, last))
    return row


def root_mean_square(errors: np.ndarray) -> float:
    """Return the root mean square of errors (n,); nan if there are none."""
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else np.nan


def run_heating(unit: Unit, sizes: Sizes) -> dict[str, Any]:
    """Run the building under one controller for a year."""
    controller, number = split_part(unit.part)
    settings: dict[str, Any]
    if controller in PI_RUNS:
        setting = PI_RUNS[controller][number]
        settings = setting._asdict()
        run = run_pi(setting, sizes, unit.seed)
        return settings | score_heating(run, sizes)
    if controller == TIGHTENED_MPC:
        settings = {"probability": STATED_PROBABILITY}
        model = PLANNING_MODELS[ONLINE_MPC]
    else:
        settings = PLAN_RUNS[number]._asdict()
        model = PLANNING_MODELS[controller]
    task = HeatingTask(sizes.n_before, **settings)
    run = heat_by_plans(model, task, sizes.n_before + sizes.n_scored + 1, unit.seed)
    return settings | score_heating(run, sizes)


def run_clogging(unit: Unit, sizes: Sizes) -> dict[str, Any]:
    """Run the building whose radiator clogs, or was clogged from the start.

    The online model of the building whose radiator was clogged from the start predicts the same
    samples as the model of the controller, too: two loops have different samples, of which those of
    the rougher loop are harder to predict for any model.
    """
    controller, _ = split_part(unit.part)
    change = sizes.n_before + sizes.n_until_change
    first = change + sizes.n_adapting
    last = first + sizes.n_after
    clogged = simulators.Building(radiator_resistance=CHANGED_RESISTANCE)
    changed_from_start = heat_by_plans(
        PLANNING_MODELS[ONLINE_MPC],
        HeatingTask(sizes.n_before, system=clogged),
        last + 1,
        unit.seed,
    )
    run = changed_from_start
    errors = run.errors
    if controller != CHANGED_FROM_START:
        start = change * simulators.Building().dt
        clogs = simulators.Change("radiator_resistance", CHANGED_RESISTANCE, start)
        task = HeatingTask(sizes.n_before, system=simulators.Building(changes=[clogs]))
        run = heat_by_plans(PLANNING_MODELS[controller], task, last + 1, unit.seed)
        errors = errors_with_other_past(
            changed_from_start.trajectory, run.trajectory, first, unit.seed
        )
    of_changed = errors[first:last]
    return {
        **score_decisions(run, first, last),
        "rmse_changed": root_mean_square(of_changed[~np.isnan(of_changed)]),
    }


def run_levels(unit: Unit, sizes: Sizes) -> dict[str, Any]:
    """Run the tanks under one controller; return how well it follows, and how often they spill."""
    controller, _ = split_part(unit.part)
    if controller == SHIPPED_PI:
        run = run_loop(tanks_plant(LEVEL_PI), sizes.n_tanks, unit.seed)
    else:
        model = PLANNING_MODELS[controller]
        run = fill_by_plans(model, sizes.n_tanks_before, sizes.n_tanks, unit.seed)
    scored = slice(sizes.n_tanks_before, sizes.n_tanks)
    trajectory = run.trajectory
    levels = trajectory.state[scored]
    reference = LEVEL_PI.schedule.set_point(trajectory.time[scored])
    upper = levels[:, 0]
    lower = levels[:, 1]
    row = {
        "n_upper_overflows": float((upper >= TANKS.upper_height - TANKS.overflow_depth).sum()),
        "n_lower_overflows": float((lower >= TANKS.lower_height).sum()),
        "n_empty": float(((upper <= 0) | (lower <= 0)).sum()),
        "tracking": root_mean_square(lower - reference),
    }
    return row | score_decisions(run, scored.start, scored.stop)


RUN_OF_TASK: dict[str, Callable[[Unit, Sizes], dict[str, Any]]] = {
    HEATING_TASK: run_heating,
    CLOGGING_TASK: run_clogging,
    LEVELS_TASK: run_levels,
}


def parts_of(task: str, *, is_quick: bool) -> list[str]:
    """Return the parts of a task: a controller, and the number of its run."""
    if task == CLOGGING_TASK:
        return [name_part(name, 0) for name in CLOGGING_CONTROLLERS]
    if task == LEVELS_TASK:
        return [name_part(name, 0) for name in (SHIPPED_PI, ONLINE_MPC, LINE_MPC, TRUE_PLANT_MPC)]
    numbers = {name: range(len(runs)) for name, runs in PI_RUNS.items()}
    numbers |= {
        name: range(len(PLAN_RUNS)) for name in SWEPT_CONTROLLERS if name in PLANNING_MODELS
    }
    if is_quick:
        numbers = {name: range(2) for name in numbers}
    numbers[TIGHTENED_MPC] = range(1)
    return [name_part(name, i) for name in CONTROLLERS for i in numbers.get(name, ())]


def name_part(controller: str, number: int) -> str:
    """Return the name of a part, which can be that of a file."""
    return f"{CONTROLLERS.index(controller)}_{number}"


def split_part(part: str) -> tuple[str, int]:
    """Return the controller and the number of its run."""
    controller, number = part.split("_")
    return CONTROLLERS[int(controller)], int(number)


# --- the study ------------------------------------------------------------------------------------

PERIOD_HEATS = tuple(f"heat_{number}" for number in range(1, N_PERIODS + 1))
PERIOD_DISCOMFORTS = tuple(f"discomfort_{number}" for number in range(1, N_PERIODS + 1))
#: Units of the quantities; those that other studies have, too, and those with the unit 1 are left
#: out.
CONTROL_UNITS = {
    "preheat": "h",
    "offset": "K",
    "margin": "K",
    "violation": "1/K",
    "heat": "kWh",
    "discomfort": "K h",
    "tracking": "V",
    **dict.fromkeys(("rmse_learning", "rmse_changed", *ERRORS_OF_PLANS), "of the output"),
    **dict.fromkeys(PERIOD_HEATS, "kWh"),
    **dict.fromkeys(PERIOD_DISCOMFORTS, "K h"),
}


class ControlStudy(Study):
    """Controllers of the building and of the tanks, beside the one that knows everything."""

    name = "control"
    title = "Controllers that plan with the online model"
    tasks: ClassVar[tuple[str, ...]] = (HEATING_TASK, CLOGGING_TASK, LEVELS_TASK)
    is_prepared: ClassVar[bool] = False
    is_among_all: ClassVar[bool] = False
    quantities: ClassVar[tuple[str, ...]] = (
        "seconds",
        "heat",
        "discomfort",
        "outside",
        "margin",
        "violation",
        "probability",
        "preheat",
        "gain",
        "integral",
        "offset",
        "fallback",
        "iterations",
        "rmse_learning",
        "rmse_changed",
        *ERRORS_OF_PLANS,
        "tracking",
        *SPILL_TITLES,
        *PERIOD_HEATS,
        *PERIOD_DISCOMFORTS,
    )

    def units(self, plan: Plan) -> list[Unit]:
        """Return a unit for each controller, seed and tightening; each is a run of its own."""
        n_seeds = N_CONTROL_SEEDS if plan.has_default_seeds else plan.seeds
        seeds = range(min(n_seeds, plan.seeds))
        return [
            Unit(self.name, task, seed, part)
            for task in plan.tasks
            if task in self.tasks
            for seed in seeds
            for part in parts_of(task, is_quick=plan.quick)
        ]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Run one controller."""
        begin = time.perf_counter()
        row = RUN_OF_TASK[unit.task](unit, sizes_of(plan))
        controller, number = split_part(unit.part)
        seconds = time.perf_counter() - begin
        return part_of([{"controller": controller, "number": number, "seconds": seconds, **row}])

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Return tasks, controllers and the numbers of their runs."""
        n_runs = max(map(len, PI_RUNS.values()))
        return super().axes(plan) | {"controller": CONTROLLERS, "number": range(n_runs)}

    def combine(self, plan: Plan) -> xr.Dataset:
        """Return all runs, with their units."""
        store = super().combine(plan)
        for name, unit in CONTROL_UNITS.items():
            store[name].attrs["units"] = unit
        return store

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return a row for each run, without the parts of the year."""
        of_year = {*PERIOD_HEATS, *PERIOD_DISCOMFORTS}
        names = [name for name in self.quantities if name not in of_year]
        rows = store[names].to_dataframe().reset_index()
        return rows[rows["seconds"].notna()].reset_index(drop=True)

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return the tables of the comparison, of the plans, the clogging and the tanks."""
        rows = self.rows(store)
        return {
            "n_computed": str(rows["seed"].nunique()),
            "counts": "\n".join(f"- {count}" for count in count_successes(rows)),
            "comparison": to_markdown(tabulate_comparison(rows)),
            "best_pi": to_markdown(tabulate_best_pi(rows)),
            "plans": to_markdown(tabulate_plans(rows)),
            "clogging": to_markdown(tabulate_clogging(rows)),
            "levels": to_markdown(tabulate_levels(rows)),
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return the figure of heat over discomfort, and that of both over the year."""
        rows = self.rows(store)
        if not len(of_task(rows, HEATING_TASK)):
            return {}
        return {
            "control": partial(draw_trade, rows),
            "control_over_year": partial(draw_year, store),
        }


def of_task(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Return the rows of a task."""
    return rows[rows["dataset"] == STUDY_TASKS[task].title]


def heats_at(rows: pd.DataFrame, wanted: float) -> pd.DataFrame:
    """Return the heat (seed, controller) at a discomfort [kWh]; nan where it is not known.

    A run without any discomfort is no point: it lies nowhere on a logarithmic axis.
    """
    heating = of_task(rows, HEATING_TASK)
    table = pd.DataFrame(columns=[*SWEPT_CONTROLLERS], dtype=float)
    for seed, of_seed in heating[heating["discomfort"] > 0].groupby("seed"):
        for name, part in of_seed.groupby("controller"):
            if name in SWEPT_CONTROLLERS:
                table.loc[seed, name] = heat_at(wanted, part["discomfort"], part["heat"])
    return table


def write_range(values: pd.Series, digits: int) -> str:
    """Return ``median (smallest to largest)`` of the seeds, as text; a dash without any."""
    known = values.dropna()
    if not len(known):
        return fixed(np.nan, digits)
    middle = fixed(float(known.median()), digits)
    if len(known) == 1:
        return middle
    return f"{middle} ({fixed(float(known.min()), digits)} to {fixed(float(known.max()), digits)})"


def tabulate_comparison(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the heat at equal discomfort, and over that of the limit, as texts."""
    tables = {wanted: heats_at(rows, wanted) for wanted in COMPARED_DISCOMFORTS}
    lines = []
    for name in SWEPT_CONTROLLERS:
        line = {"controller": name}
        for wanted, heats in tables.items():
            ratios = heats[name] / heats[TRUE_PLANT_MPC]
            line[f"heat at {wanted:.0f} K h [kWh]"] = write_range(heats[name], 0)
            line[f"over the limit at {wanted:.0f} K h [1]"] = write_range(ratios, 4)
        lines.append(line)
    return pd.DataFrame(lines)


def tabulate_best_pi(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the PI controllers with the least heat of at most each discomfort, as texts."""
    heating = of_task(rows, HEATING_TASK)
    lines = []
    for wanted in COMPARED_DISCOMFORTS:
        for name in (PREHEATING_PI, TUNED_PI):
            of_name = heating[(heating["controller"] == name) & (heating["discomfort"] <= wanted)]
            for seed, part in of_name.groupby("seed"):
                best = part.loc[part["heat"].idxmin()]
                lines.append(
                    {
                        "at most [K h]": fixed(wanted, 0),
                        "controller": name,
                        "seed": str(seed),
                        "preheating [h]": significant(best["preheat"]),
                        "Kp over the shipped [1]": significant(best["gain"]),
                        "Ki over the shipped [1]": significant(best["integral"]),
                        "offset [K]": significant(best["offset"]),
                        "heat [kWh]": fixed(best["heat"], 0),
                        "discomfort [K h]": fixed(best["discomfort"], 0),
                    }
                )
    return pd.DataFrame(lines)


def tabulate_plans(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of all runs with plans, medians over the seeds, as texts."""
    heating = of_task(rows, HEATING_TASK)
    lines = []
    for name in (ONLINE_MPC, FROZEN_MPC, LINE_MPC, TRUE_PLANT_MPC, TIGHTENED_MPC):
        for _, part in heating[heating["controller"] == name].groupby("number"):
            middle = part.median(numeric_only=True)
            lines.append(
                {
                    "controller": name,
                    "margin [K]": significant(middle["margin"]),
                    "price of a violation [1/K]": significant(middle["violation"]),
                    "heat [kWh]": fixed(middle["heat"], 0),
                    "discomfort [K h]": fixed(middle["discomfort"], 0),
                    "samples outside [%]": fixed(100 * middle["outside"], 1),
                    "fallback [%]": fixed(100 * middle["fallback"], 1),
                    "RMSE, 1 sample ahead [K]": significant(middle["rmse_1"]),
                    "time [s]": fixed(middle["seconds"], 0),
                    "seeds": str(len(part)),
                }
            )
    return pd.DataFrame(lines)


def tabulate_clogging(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the errors after the radiator has clogged, as texts."""
    clogging = of_task(rows, CLOGGING_TASK)
    learning = clogging.pivot(index="seed", columns="controller", values="rmse_learning")
    changed = clogging.pivot(index="seed", columns="controller", values="rmse_changed")
    planned = clogging.pivot(index="seed", columns="controller", values="rmse_1")
    fallback = clogging.pivot(index="seed", columns="controller", values="fallback")
    lines = []
    for name in CLOGGING_CONTROLLERS:
        if name not in learning or CHANGED_FROM_START not in learning:
            continue
        ratios = learning[name] / learning[CHANGED_FROM_START]
        lines.append(
            {
                "controller": name,
                "RMSE of all samples [K]": write_range(learning[name], 4),
                "over that of the model of the changed plant on the same samples [1]": write_range(
                    learning[name] / changed[name], 3
                ),
                "over that on the samples of its own loop [1]": write_range(ratios, 3),
                "RMSE of the plans [K]": write_range(planned[name], 4),
                "fallback [%]": write_range(100 * fallback[name], 0),
            }
        )
    return pd.DataFrame(lines)


def tabulate_levels(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the tanks, as texts."""
    lines = []
    levels = of_task(rows, LEVELS_TASK)
    for name in CONTROLLERS:
        part = levels[levels["controller"] == name]
        if len(part):
            lines.append(
                {
                    "controller": name,
                    "RMSE to the set-point [V]": write_range(part["tracking"], 3),
                    **{title: fixed(part[name].sum(), 0) for name, title in SPILL_TITLES.items()},
                    "seeds": str(len(part)),
                }
            )
    return pd.DataFrame(lines)


def count_successes(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each comparison: how the controller with the online model does."""
    for wanted in COMPARED_DISCOMFORTS:
        heats = heats_at(rows, wanted)
        for name in (TRUE_PLANT_MPC, *PI_CONTROLLERS):
            known = heats[[ONLINE_MPC, name]].dropna()
            if not len(known):
                yield (
                    f"At {wanted:.0f} K h `{ONLINE_MPC}` cannot be compared with `{name}`: the "
                    "runs of one of them do not reach this discomfort from both sides."
                )
                continue
            ratio = float((known[ONLINE_MPC] / known[name]).median())
            n_less = int((known[ONLINE_MPC] < known[name]).sum())
            yield (
                f"At {wanted:.0f} K h `{ONLINE_MPC}` needs {ratio:.4f} times the heat of `{name}`, "
                f"less on {n_less} of {len(known)} seeds."
            )
    stated = of_task(rows, HEATING_TASK)
    stated = stated[stated["controller"] == TIGHTENED_MPC]
    if len(stated):
        yield (
            f"With limits tightened to {100 * STATED_PROBABILITY:.0f} %, "
            f"{100 * stated['outside'].max():.1f} % of the samples are outside of them at most."
        )


# --- figures --------------------------------------------------------------------------------------

CONTROLLER_COLORS = {
    name: PALETTE[i] if name != TRUE_PLANT_MPC else BASELINE_COLOR
    for i, name in enumerate(SWEPT_CONTROLLERS)
}
CONTROLLER_MARKERS = dict(zip(SWEPT_CONTROLLERS, SHAPES, strict=False))


def draw_trade(rows: pd.DataFrame) -> Figure:
    """Draw the heat over the discomfort of all runs, and lines where they are compared."""
    heating = of_task(rows, HEATING_TASK)
    figure, axes = page(1, 1, 3.2)
    ax = axes[0, 0]
    for name in SWEPT_CONTROLLERS:
        part = heating[heating["controller"] == name]
        ax.plot(
            part["discomfort"],
            part["heat"],
            CONTROLLER_MARKERS[name],
            color=CONTROLLER_COLORS[name],
            markersize=4,
            label=name,
        )
    for wanted in COMPARED_DISCOMFORTS:
        ax.axvline(wanted, color=BASELINE_COLOR, linewidth=0.8)
    ax.set_xscale("log")
    ax.set_xlabel("outside the comfort band [K h]")
    ax.set_ylabel("heat [kWh]")
    figure.legend(loc="outside upper center", ncols=4)
    return figure


def draw_year(store: xr.Dataset) -> Figure:
    """Draw heat beyond the limit's and discomfort in each part of the year, of the first seed.

    Of each controller it is the run whose discomfort is the nearest to the first one compared.
    """
    found = store.sel(dataset=STUDY_TASKS[HEATING_TASK].title, seed=0)
    chosen = {}
    for name in SWEPT_CONTROLLERS:
        of_name = found.sel(controller=name)
        degree_hours = of_name["discomfort"].values
        distance = np.abs(
            np.log(np.maximum(degree_hours, LEAST_DISCOMFORT) / COMPARED_DISCOMFORTS[0])
        )
        if not np.isnan(distance).all():
            chosen[name] = of_name.isel(number=int(np.nanargmin(distance)))
    figure, axes = page(2, 1, 4.0, sharex=True)
    periods = np.arange(1, N_PERIODS + 1)
    limit = chosen.get(TRUE_PLANT_MPC)
    for name, run in chosen.items():
        heat = np.array([float(run[key]) for key in PERIOD_HEATS])
        degree_hours = np.array([float(run[key]) for key in PERIOD_DISCOMFORTS])
        if limit is not None:
            heat = heat - np.array([float(limit[key]) for key in PERIOD_HEATS])
        axes[0, 0].plot(periods, heat, color=CONTROLLER_COLORS[name], label=name)
        axes[1, 0].plot(periods, degree_hours, color=CONTROLLER_COLORS[name])
    axes[0, 0].set_ylabel("heat beyond the limit [kWh]" if limit is not None else "heat [kWh]")
    axes[1, 0].set_ylabel("outside the band [K h]")
    axes[1, 0].set_xlabel("part of the year, four weeks each [1]")
    figure.legend(loc="outside upper center", ncols=4)
    return figure
