"""Inputs that are chosen to learn, beside fixed excitations of the same power and limits."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import brentq

import simulators
import sysid
from experiments.drawing.style import GREY, PALETTE, panels_by_title, scale_axis
from experiments.drawing.tables import fixed, significant, to_markdown
from experiments.plant.designed import SAMPLES_BETWEEN_CHECKS
from experiments.reproduce.excited_plants import EXCITED_PLANTS, ExcitedPlant
from experiments.reproduce.study import Plan, Study, Unit, part_of
from sysid.arrays import Array
from sysid.simulation.dynamics import Dynamics, exogenous_rows
from sysid.simulation.forecast import past_outputs
from sysid.simulation.propagation.propagation import follow_mean

N_TRUE_PLANT_SEEDS = 1  # seeds for which the true plant chooses the inputs
N_COMPARED_SAMPLES = 1000  # samples after which the errors of the excitations are compared
N_RUN_SAMPLES = 1100  # samples of every run: a design may need more than the fixed excitations
CHECK_SAMPLES = 25  # samples between two scores
STRETCH_SAMPLES = 100  # samples of a stretch: the slow plants need that long to cross their range
N_DESIGN_CANDIDATES = 30  # stretches of which a criterion chooses one
N_TRUE_PLANT_CANDIDATES = 15  # stretches that the true plant tries at every decision
#: Root mean square of all excitations over half of the range: that of uniform random levels.
RMS_OVER_HALF_RANGE = 1 / math.sqrt(3)
TEST_RMS_FACTORS = (1.0, 0.5)  # of the parts of the test record, over RMS_OVER_HALF_RANGE
N_TEST_SAMPLES = 300  # of each part of the test record
SCORED_TEST_SEED = 5000  # of the record whose errors are reported
TRUE_PLANT_TEST_SEED = 6000  # of the record whose errors decide what the true plant chooses
SHORTEST_HOLD = 3  # fewest samples of a level of the steps
LONGEST_HOLD = 25  # most samples of such a level
CLOCK_OVER_PERIOD = 0.25  # clock of the PRBS over the shortest period of the other excitations
VISITED_BEFORE_SCORE = 12  # samples before a score that is drawn in the plane of lags

TRUE_PLANT = "true plant"
DESIGN_CRITERIA: dict[str, sysid.DesignCriterion] = {
    "information": sysid.InformationGain(),
    "variance": sysid.VarianceReduction(),
    "space filling": sysid.SpaceFilling(),
}
DEFAULT_CRITERION = "information"
FIXED_EXCITATIONS = ("steps", "PRBS", "multisine", "noise")
EXCITATIONS = (*FIXED_EXCITATIONS, *DESIGN_CRITERIA, TRUE_PLANT)
ERROR_TITLES = {"one_step": "one step", "free_run": "free run"}
#: Parts of the work for a plant and seed: fixed excitations and criteria, and the true plant.
COMPARED_PART = "compared"
TRUE_PLANT_PART = "limit"

MAX_SAMPLES_RATIO = 1.1  # largest ratio of the numbers of samples that a design may need
SAVING_RATIO = 0.5  # ratio of these numbers up to which a design saves samples


# --- plants and records ---------------------------------------------------------------------------


class Stand:
    """A plant that is identified while it is excited, stretch by stretch.

    Parameters
    ----------
    plant : ExcitedPlant
    settings : sysid.Settings
        How the model learns.
    seed : int
        Of the process noise.
    """

    def __init__(self, plant: ExcitedPlant, settings: sysid.Settings, seed: int) -> None:
        self.plant = plant
        self.identification = sysid.Identification(plant.narx, settings)
        self.outputs = np.zeros((0, 1))
        self.inputs = np.zeros((0, len(plant.inputs)))
        self._window = sysid.LagWindow(plant.narx)
        self._state: Array | None = None
        self._seed = seed

    @property
    def n_samples(self) -> int:
        """Number of samples so far."""
        return len(self.outputs)

    @property
    def excited(self) -> Array:
        """Return the excited input (n,) so far."""
        return np.asarray(self.inputs[:, self.plant.inputs.index(self.plant.input)])

    def apply(self, stretch: Array) -> None:
        """Apply a stretch (n,) of the input, and learn all of its samples."""
        ends = range(SAMPLES_BETWEEN_CHECKS, len(stretch), SAMPLES_BETWEEN_CHECKS)
        for piece in np.split(stretch, ends):
            self._apply_piece(piece)

    def _apply_piece(self, stretch: Array) -> None:
        """Apply and learn a few samples (n,), whose noise does not depend on what came before."""
        n = len(stretch)
        inputs = self.plant.with_weather(np.append(stretch, stretch[-1]), self.n_samples)
        trajectory = simulators.simulate(
            self.plant.system,
            inputs,
            initial_state=self._state,
            seed=1000 * self._seed + self.n_samples,
        )
        self._state = trajectory.state[-1]
        outputs = trajectory.output[:n]
        rows = self._window.observe_many(outputs, inputs[:n])
        if len(rows.sample):
            self.identification.observe_many(rows.regressor, rows.target)
        self.outputs = np.concatenate([self.outputs, outputs])
        self.inputs = np.concatenate([self.inputs, inputs[:n]])

    def copy(self) -> Self:
        """Return the same plant and model, on which something can be tried."""
        return deepcopy(self)


def fixed_signal(
    kind: str, plant: ExcitedPlant, n_samples: int, seed: int, rms_factor: float = 1.0
) -> Array:
    """Return a fixed excitation (n,) within the limits, whose power is that of all others.

    Its root mean square about the middle of the range is `rms_factor` times that of all others,
    which is RMS_OVER_HALF_RANGE times half of the range. A signal that leaves the range is clipped,
    and scaled until its root mean square is right.
    """
    dt = plant.system.dt
    highest = plant.bandwidth / dt
    signals: dict[str, simulators.Excitation] = {
        "steps": simulators.APRBS(
            shortest_hold=SHORTEST_HOLD * dt,
            longest_hold=LONGEST_HOLD * dt,
        ),
        "PRBS": simulators.PRBS(clock=max(1, round(CLOCK_OVER_PERIOD / plant.bandwidth)) * dt),
        "multisine": simulators.Multisine(band=(1 / (n_samples * dt), highest)),
        "noise": simulators.FilteredNoise(band=(0.0, highest)),
    }
    generator = np.random.default_rng([seed, FIXED_EXCITATIONS.index(kind)])
    signal = signals[kind].signal(n_samples, dt, generator)
    rms = rms_factor * RMS_OVER_HALF_RANGE

    def excess(log_factor: float) -> float:
        clipped = np.clip(np.exp(log_factor) * signal, -1.0, 1.0)
        return float(np.sqrt(np.mean(clipped**2))) - rms

    factor = np.exp(brentq(excess, -10.0, 10.0))
    scaled = np.clip(factor * signal, -1.0, 1.0)
    return np.asarray(plant.low + plant.half_range * (1.0 + scaled))


@cache
def make_test(task: str, n_samples: int, seed: int) -> list[tuple[Array, Array]]:
    """Return outputs (n, 1) and inputs (n, n_u) of all excitations, each at two amplitudes.

    There is no process noise. Each part starts from the state of the system.
    """
    plant = EXCITED_PLANTS[task]
    parts = []
    for kind in FIXED_EXCITATIONS:
        for factor in TEST_RMS_FACTORS:
            signal = fixed_signal(kind, plant, n_samples, seed, factor)
            inputs = plant.with_weather(signal, 0)
            trajectory = simulators.simulate(plant.system, inputs, noise=False)
            parts.append((trajectory.output, inputs))
    return parts


def score(model: sysid.Model, test: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """Return the RMSE one step ahead and in free run, over the standard deviation of the test.

    A free run that leaves the bounds of the model has an infinite error.
    """
    dynamics = Dynamics(model)
    narx = model.narx
    first = narx.max_lag
    errors: dict[str, list[Array]] = {name: [] for name in ERROR_TITLES}
    measured = []
    for outputs, inputs in test:
        true = outputs[first:]
        exogenous = exogenous_rows(narx, inputs, np.arange(first, len(outputs)))[None]
        start = past_outputs(outputs[:first], first - 1, dynamics)
        path, _ = follow_mean(dynamics, start, exogenous)
        errors["free_run"].append(path[0, dynamics.n_lags :] - true)
        known = outputs[None, first - dynamics.n_lags :]
        regressors = dynamics.regressors_along(known, exogenous)[0]
        predicted = dynamics.to_value(dynamics.targets(regressors).mean, outputs[first - 1 : -1])
        errors["one_step"].append(predicted - true)
        measured.append(true)
    spread = float(np.std(np.concatenate(measured)))
    scores = {}
    for name, parts in errors.items():
        rmse = float(np.sqrt(np.mean(np.concatenate(parts) ** 2)))
        scores[name] = rmse / spread if np.isfinite(rmse) else np.inf
    return scores


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Numbers of samples and candidates of a run."""

    n_longest: int = N_RUN_SAMPLES
    horizon: int = STRETCH_SAMPLES
    n_candidates: int = N_DESIGN_CANDIDATES
    n_true_plant_candidates: int = N_TRUE_PLANT_CANDIDATES
    n_test: int = N_TEST_SAMPLES

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the sizes of a plan; those of a quick run only show that everything works."""
        if not plan.quick:
            return cls()
        return cls(n_longest=75, horizon=25, n_candidates=3, n_true_plant_candidates=2, n_test=40)

    @property
    def checks(self) -> list[int]:
        """Numbers of samples at which the model is scored."""
        return list(range(CHECK_SAMPLES, self.n_longest + 1, CHECK_SAMPLES))


def run_excitation(name: str, unit: Unit, plan: Plan) -> list[dict[str, Any]]:
    """Identify a plant under one excitation, and return the rows of all scores."""
    plant = EXCITED_PLANTS[unit.task]
    sizes = Sizes.of(plan)
    settings = sysid.Settings(
        training=sysid.Adaptive(n_initial=plan.n_initial),
        linear_part="none",
        budget=plan.budget,
        seed=unit.seed,
    )
    stand = Stand(plant, settings, unit.seed)
    test = make_test(unit.task, sizes.n_test, SCORED_TEST_SEED)
    rows = []
    for stretch in stretches_of(name, stand, unit, sizes):
        n_applied = 0
        while n_applied < len(stretch.samples):
            # A stretch is learned in pieces. The model is scored every CHECK_SAMPLES samples.
            n_to_score = CHECK_SAMPLES - stand.n_samples % CHECK_SAMPLES
            piece = stretch.samples[n_applied:][: min(SAMPLES_BETWEEN_CHECKS, n_to_score)]
            stand.apply(piece)
            n_applied += len(piece)
            if len(piece) == n_to_score and stand.identification.model is not None:
                rows.append(_row_of(name, stand, test, plan.n_initial))
            if stand.n_samples >= sizes.n_longest:
                return rows
            if stretch.should_end(n_applied):
                break
    return rows


def _row_of(
    name: str, stand: Stand, test: Sequence[tuple[Array, Array]], n_initial: int
) -> dict[str, Any]:
    """Return the row of the present number of samples.

    Excursions count from sample `n_initial` on: before it there is no model to avoid them.
    """
    plant = stand.plant
    deviation = (stand.excited - plant.low) / plant.half_range - 1.0
    low, high = plant.output_limits
    is_outside = (stand.outputs < low) | (stand.outputs > high)
    visited = stand.n_samples - VISITED_BEFORE_SCORE
    return {
        "excitation": name,
        "samples": stand.n_samples,
        **score(stand.identification.require_model(), test),
        "outside": float(is_outside[n_initial:].mean()),
        "power": float(np.sqrt(np.mean(deviation**2))),
        "visited_output": float(stand.outputs[visited - 1, 0]),
        "visited_input": float(stand.excited[visited - 1]),
    }


class Stretch(NamedTuple):
    """Samples of the excited input, and whether their rest should not be applied."""

    samples: Array  # (n,)
    should_end: Callable[[int], bool] = lambda n_applied: False  # after so many of them


def stretches_of(name: str, stand: Stand, unit: Unit, sizes: Sizes) -> Iterator[Stretch]:
    """Yield the stretches of an excitation; a design asks the model of the stand."""
    plant = stand.plant
    if name in FIXED_EXCITATIONS:
        signal = fixed_signal(name, plant, sizes.n_longest, unit.seed)
        yield Stretch(signal)
        return
    rms = RMS_OVER_HALF_RANGE * plant.half_range
    limits = sysid.InputLimits(plant.low, plant.high, rms=rms)
    design = sysid.InformativeInput(
        {plant.input: limits},
        horizon=sizes.horizon,
        n_candidates=sizes.n_candidates,
        criterion=DESIGN_CRITERIA.get(name, DESIGN_CRITERIA[DEFAULT_CRITERION]),
        output_limits={plant.output: plant.output_limits},
        seed=unit.seed,
    )
    n_known = plant.narx.max_lag
    while True:
        found = stand.identification
        if found.model is None:
            yield Stretch(design.next(None).inputs[plant.input])
        elif name == TRUE_PLANT:
            generator = np.random.default_rng([unit.seed, stand.n_samples])
            last = stand.excited[-1:]
            candidates = design.draw(sizes.n_true_plant_candidates, last, generator)[:, :, 0]
            test = make_test(unit.task, sizes.n_test, TRUE_PLANT_TEST_SEED)
            yield Stretch(choose_by_true_plant(candidates, stand, test))
        else:
            designed = design.next(found, stand.outputs[-n_known:], stand.inputs[-n_known:])
            should_end = partial(_should_end, design, designed, stand)
            yield Stretch(designed.inputs[plant.input], should_end)


def _should_end(
    design: sysid.InformativeInput, designed: sysid.DesignedInput, stand: Stand, n_applied: int
) -> bool:
    """Return whether the rest of a designed stretch should not be applied."""
    n_known = max(stand.plant.narx.max_lag, n_applied)
    known = stand.outputs[-n_known:], stand.inputs[-n_known:]
    return design.should_end(designed, n_applied, stand.identification, *known)


def choose_by_true_plant(
    candidates: Array, stand: Stand, test: Sequence[tuple[Array, Array]]
) -> Array:
    """Return the candidate after which the model is best: the plant and its noise are tried out.

    The best one has the smallest product of both errors on a record of the kind of the test. No
    criterion can know as much. It decides about one stretch at a time.
    """
    products = []
    for candidate in candidates:
        tried = stand.copy()
        tried.apply(candidate)
        errors = score(tried.identification.require_model(), test)
        products.append(math.prod(errors.values()))
    return np.asarray(candidates[int(np.argmin(products))])


# --- the study ------------------------------------------------------------------------------------


class ExcitationStudy(Study):
    """Designed inputs beside fixed excitations of the same power."""

    name = "excitation"
    title = "Inputs that are chosen to learn"
    tasks: ClassVar[tuple[str, ...]] = tuple(EXCITED_PLANTS)
    is_prepared: ClassVar[bool] = False
    is_among_all: ClassVar[bool] = False
    quantities: ClassVar[tuple[str, ...]] = (
        *ERROR_TITLES,
        "outside",
        "power",
        "visited_output",
        "visited_input",
    )

    def units(self, plan: Plan) -> list[Unit]:
        """Return a unit for every plant and seed, and some for the limit."""
        units = []
        for task in plan.tasks:
            if task in self.tasks:
                units += [Unit(self.name, task, seed, COMPARED_PART) for seed in range(plan.seeds)]
                n_limits = min(plan.seeds, N_TRUE_PLANT_SEEDS)
                units += [Unit(self.name, task, seed, TRUE_PLANT_PART) for seed in range(n_limits)]
        return units

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Identify a plant under all excitations, or under that of the true plant."""
        names = (
            (TRUE_PLANT,)
            if unit.part == TRUE_PLANT_PART
            else (*FIXED_EXCITATIONS, *DESIGN_CRITERIA)
        )
        return part_of([row for name in names for row in run_excitation(name, unit, plan)])

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Return plants, excitations and numbers of samples."""
        return {
            **super().axes(plan),
            "excitation": EXCITATIONS,
            "samples": Sizes.of(plan).checks,
        }

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return the tables of needed samples, of errors at the end, of power and excursions."""
        places = {
            "counts": "\n".join(f"- {count}" for count in count_successes(store)),
            "excursions": to_markdown(tabulate_excursions(store)),
        }
        for name in ERROR_TITLES:
            needed = needed_samples(store, name)
            places[name] = to_markdown(tabulate_needed(store, name, needed))
            places[f"{name}_end"] = to_markdown(tabulate_end(store, name))
        return places

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return the figures of the errors over the samples, and of the plane of lags."""
        return {
            **{f"excitation_{name}": partial(draw_errors, store, name) for name in ERROR_TITLES},
            "excitation_plane": partial(draw_plane, store),
        }


def last_check(store: xr.Dataset) -> int:
    """Return the number of samples at which the fixed excitations count."""
    checks = store["samples"].values
    return int(checks[checks <= N_COMPARED_SAMPLES][-1])


def median_errors(store: xr.Dataset, name: str) -> xr.DataArray:
    """Return the median errors (dataset, excitation, samples) over the seeds that are known."""
    return store[name].median("seed")


def to_frame(values: xr.DataArray) -> pd.DataFrame:
    """Return values over plants and excitations as a table; plants without any are left out."""
    frame = values.transpose("dataset", "excitation").to_pandas()
    assert isinstance(frame, pd.DataFrame)
    return frame.dropna(how="all")


def best_fixed(store: xr.Dataset, name: str) -> pd.DataFrame:
    """Return the fixed ``excitation`` with the smallest ``error`` at the end, for each plant."""
    ends = median_errors(store, name).sel(
        samples=last_check(store), excitation=[*FIXED_EXCITATIONS]
    )
    frame = to_frame(ends)
    return pd.DataFrame({"excitation": frame.idxmin(axis=1), "error": frame.min(axis=1)})


def needed_samples(store: xr.Dataset, name: str) -> pd.DataFrame:
    """Return the samples (plant, excitation) after which the error is that of the best fixed one.

    It is the first score whose median over the seeds is at most the error that the best fixed
    excitation has at the end; infinite if there is none.
    """
    errors = median_errors(store, name)
    targets = best_fixed(store, name)["error"]
    needed = {}
    for title, target in targets.items():
        of_plant = errors.sel(dataset=title).transpose("excitation", "samples")
        is_reached = of_plant.values <= target
        first = store["samples"].values[is_reached.argmax(axis=1)].astype(float)
        first[~is_reached.any(axis=1)] = np.inf
        first[np.isnan(of_plant.values).all(axis=1)] = np.nan
        needed[title] = first
    return pd.DataFrame(needed, index=store["excitation"].values).T


def tabulate_needed(store: xr.Dataset, name: str, needed: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the samples that each excitation needs, as texts."""
    best = best_fixed(store, name)
    longest = int(store["samples"].values[-1])

    def write(count: float) -> str:
        if np.isnan(count):
            return ""
        return f"{count:.0f}" if np.isfinite(count) else f"> {longest}"

    table = needed.map(write)
    table.insert(0, "best fixed", best["excitation"])
    table.insert(1, "its error", best["error"].map(significant))
    return table.rename_axis("plant").reset_index()


def tabulate_end(store: xr.Dataset, name: str) -> pd.DataFrame:
    """Return the table of the errors at the end, over that of the best fixed one, as texts."""
    errors = median_errors(store, name).sel(samples=last_check(store))
    frame = to_frame(errors)
    best = best_fixed(store, name)["error"]
    ratios = frame.loc[best.index].div(best, axis=0)
    texts = ratios.map(lambda ratio: "" if np.isnan(ratio) else fixed(ratio, 2))
    return texts.rename_axis(index="plant", columns=None).reset_index()


def tabulate_excursions(store: xr.Dataset) -> pd.DataFrame:
    """Return the table of the samples beyond the limits, and of the power, as texts."""
    end = store.sel(samples=last_check(store)).median("seed")
    outside = to_frame(end["outside"])
    power = to_frame(end["power"]).loc[outside.index]
    table = outside.map(lambda share: "" if np.isnan(share) else f"{100 * share:.1f} %")
    table += power.map(lambda rms: "" if np.isnan(rms) else f" ({rms:.2f})")
    return table.rename_axis(index="plant", columns=None).reset_index()


def count_successes(store: xr.Dataset) -> Iterator[str]:
    """Yield a sentence for each criterion and for the true plant: on how many plants it saves."""
    n_end = last_check(store)
    for excitation in (*DESIGN_CRITERIA, TRUE_PLANT):
        words = []
        for name, title in ERROR_TITLES.items():
            ratios = needed_samples(store, name)[excitation].dropna() / n_end
            n_half = int((ratios <= SAVING_RATIO).sum())
            n_worse = int((ratios > MAX_SAMPLES_RATIO).sum())
            words.append(
                f"{title}: at most half of the samples on {n_half} of {len(ratios)} plants, more "
                f"than {MAX_SAMPLES_RATIO:g} times as many on {n_worse}"
            )
        yield f"`{excitation}`: {'; '.join(words)}."


# --- figures --------------------------------------------------------------------------------------

#: How the errors of each excitation are drawn.
LINE_STYLES: dict[str, dict[str, Any]] = {
    **{
        name: {"color": GREY, "linewidth": 0.8, "linestyle": dashes}
        for name, dashes in zip(FIXED_EXCITATIONS, ("-", "--", "-.", ":"), strict=True)
    },
    **{
        name: {"color": color, "linewidth": 1.0}
        for name, color in zip(DESIGN_CRITERIA, PALETTE, strict=False)
    },
    TRUE_PLANT: {"color": "black", "linewidth": 1.0},
}


def make_plant_panels(
    store: xr.Dataset, height: float, x: str, y: str
) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with a panel for each plant that was computed."""
    is_known = store["one_step"].notnull().any(["excitation", "samples", "seed"])
    return panels_by_title(store["dataset"].values[is_known.values].tolist(), height, x, y)


def add_common_legend(figure: Figure, panels: Mapping[str, Axes], n_columns: int) -> None:
    """Add the legend of the first panel above all panels."""
    for ax in [*panels.values()][:1]:
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=n_columns, frameon=False)


def draw_errors(store: xr.Dataset, name: str) -> Figure:
    """Draw the median error of every excitation over the samples, with a panel for each plant."""
    figure, panels = make_plant_panels(
        store, 1.8, "samples", f"RMSE, {ERROR_TITLES[name]}, over the std of the test [1]"
    )
    medians = median_errors(store, name)
    x = store["samples"].values
    for title, ax in panels.items():
        drawn = []
        for excitation in EXCITATIONS:
            y = medians.sel(dataset=title, excitation=excitation).values
            shown = np.isfinite(y)
            style = LINE_STYLES[excitation]
            ax.plot(x[shown], y[shown], label=excitation, **style)
            drawn.append(y[shown])
        scale_axis(ax.yaxis, np.concatenate(drawn), ratio=1.0)
    add_common_legend(figure, panels, 4)
    return figure


def draw_plane(store: xr.Dataset) -> Figure:
    """Draw where the steps and the default design go in the plane of the first lags."""
    figure, panels = make_plant_panels(store, 1.8, "input", "output")
    for title, ax in panels.items():
        for excitation, color in (("steps", GREY), (DEFAULT_CRITERION, PALETTE[1])):
            of_run = store.sel(dataset=title, excitation=excitation)
            ax.plot(
                of_run["visited_input"].values.ravel(),
                of_run["visited_output"].values.ravel(),
                ".",
                color=color,
                markersize=3,
                label=excitation,
            )
        (plant,) = (one for one in EXCITED_PLANTS.values() if one.title == title)
        for limit in plant.output_limits:
            ax.axhline(limit, color=GREY, linestyle="--", linewidth=0.7)
    add_common_legend(figure, panels, 2)
    return figure
