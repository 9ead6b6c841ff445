"""Official records, identified by default settings, beside lines and published errors."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

import sysid
from experiments.drawing.style import (
    BASELINE_COLOR,
    PALETTE,
    PUBLISHED_COLOR,
    SHAPES,
    page,
    scale_axis,
)
from experiments.drawing.tables import fixed, significant, to_markdown
from experiments.reproduce.small_records import SMALL_RECORDS
from experiments.reproduce.study import Plan, Study, Unit, part_of
from experiments.reproduce.tasks import STUDY_TASKS
from experiments.validate.assessment import Case, assess
from experiments.validate.material import select_records
from sysid.data.source import part
from sysid.identified import HORIZONS
from sysid.lag_choice import EqualLags, rank_equal_lags
from sysid.simulation.baselines import LinearArx
from sysid.simulation.validation import Z_95, continuous_ranked_probability_score

N_BOARD_SEEDS = 5  # largest number of seeds
VALIDATION_SEED = 1  # seed of the draws of a free run, that of `sysid-validate`
QUICK_SECONDS = 1.0  # limit of each search of a quick run
N_QUICK_LEARNED = 200  # samples of each record that a quick run learns
N_QUICK_SCORED = 100  # samples of each test that a quick run scores
BAND_TARGET = (0.88, 0.99)  # fractions of the samples that a 95 % band may cover
N_BOUC_WEN_INITIALISING = 50  # samples; the benchmark states no initialisation window

DEFAULT = "default"
FREE_RUN = "training=free_run"
BEST_LINE = "ARX, held-out"
BEST_LINE_IN_HINDSIGHT = "ARX, hindsight"
OURS = (DEFAULT, FREE_RUN)  # models of this toolbox
#: Parts of the work for a record and seed: the models of this toolbox by name, and the lines.
PARTS = {"default": DEFAULT, "free_run": FREE_RUN}
LINES = "lines"
MODELS = (DEFAULT, FREE_RUN, BEST_LINE, BEST_LINE_IN_HINDSIGHT)
#: Colours of the models in the figure.
MODEL_COLORS = {
    DEFAULT: PALETTE[0],
    FREE_RUN: PALETTE[1],
    BEST_LINE: BASELINE_COLOR,
    BEST_LINE_IN_HINDSIGHT: PALETTE[4],
}
#: Horizons of the predictions by their name, in the order of the tables; None: free run.
BOARD_HORIZONS = {name: HORIZONS[name] for name in ("free run", "1 step")}

#: Official records by the name of their task.
SOURCES: dict[str, sysid.DataSource] = {
    "tanks": sysid.CascadedTanksData(),
    "silverbox": sysid.SilverboxData(),
    "bouc_wen": sysid.BoucWenData(initialisation_window=N_BOUC_WEN_INITIALISING),
    **SMALL_RECORDS,
}
#: Names of the test records of a task that has several.
TEST_NAMES: dict[str, tuple[str, ...]] = {
    "silverbox": ("multisine", "arrow", "arrow without extrapolation"),
}


def titles_of(task: str) -> list[str]:
    """Return the title of each test record of a task."""
    title = STUDY_TASKS[task].title
    return [f"{title}, {name}" for name in TEST_NAMES.get(task, ())] or [title]


@cache
def read_published() -> pd.DataFrame:
    """Return published errors: ``dataset``, ``method``, ``rmse``, ``unit``, ``source``, ``split``.

    They are errors of the free run on the test record.
    """
    return pd.read_csv(Path(__file__).parent / "published" / "boards.csv")


# --- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Errors of a model on one test record at one horizon, in the unit of the output."""

    n: int  # scored samples
    rmse: float
    coverage_50: float = np.nan  # fraction of the samples within the band
    coverage_95: float = np.nan
    width_95: float = np.nan  # mean width of the 95 % band
    crps: float = np.nan


def score_bands(measured: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Score:
    """Score predictions (n,) with the variances (n,) of a measurement.

    A mean that is not finite belongs to a free run that diverged: its band has no bounds.
    """
    found = sysid.validate(measured, mean, variance)
    width = 2 * Z_95 * np.sqrt(np.where(np.isfinite(mean), variance, np.inf))
    return Score(
        found.n,
        found.rmse,
        found.coverage_50,
        found.coverage_95,
        float(np.mean(width)),
        continuous_ranked_probability_score(measured, mean, variance),
    )


def make_training(model: str, *, is_quick: bool) -> sysid.Training:
    """Return the training of a model of this toolbox, with its default settings.

    That of a quick run ends soon.
    """
    seconds = QUICK_SECONDS if is_quick else None
    if model == FREE_RUN:
        return sysid.FreeRun(seconds=seconds)
    return sysid.Adaptive(seconds=seconds)


def run_ours(
    recordings: sysid.Recordings, training: sysid.Training, seed: int
) -> list[dict[str, Any]]:
    """Identify the estimation records by default settings; return the rows of all tests."""
    begin = time.perf_counter()
    found = sysid.identify(
        [*recordings.estimation],
        inputs=recordings.inputs,
        outputs=recordings.outputs,
        identified=1,
        training=training,
        seed=seed,
    )
    seconds = time.perf_counter() - begin
    model = found.model
    material = select_records(recordings, "test")
    window = material.default_window(model.narx)
    cases = {name: Case(horizon, window) for name, horizon in BOARD_HORIZONS.items()}
    assessment = assess(
        sysid.JointModel.of(model),
        material,
        [*cases.values()],
        sysid.Pathwise(),
        seed=VALIDATION_SEED,
    )
    rows = []
    for number in range(len(material.records)):
        for name, case in cases.items():
            measured, mean, variance, noise_variance = assessment.series(
                case, recordings.outputs[0], number
            )
            row = {
                "test": number,
                "horizon": name,
                "seconds": seconds,
                "n_points": model.gp.n_points,
            }
            rows.append(row | vars(score_bands(measured, mean, variance + noise_variance)))
    return rows


def rank_lines(recordings: sysid.Recordings) -> list[EqualLags]:
    """Return the lags of lines with 1 to 12 lags, the smallest held-out error first.

    The lags of the inputs begin with 0, or with 1, after the dead time.
    """
    output = recordings.outputs[0]
    ranked = []
    for first_lag in (0, 1):
        narx = sysid.Narx({output: 1}, {name: [first_lag] for name in recordings.inputs})
        ranked += rank_equal_lags(recordings.estimation, narx, recordings.inputs)
    return sorted(ranked, key=lambda candidate: candidate.held_out_rmse)


def score_line(line: LinearArx, record: xr.Dataset, horizon: int | None) -> Score:
    """Score a line on a test record, after its initialisation window."""
    window = int(record.attrs["initialisation_window"])
    if horizon is None:
        measured = record[line.narx.target].values[window:]
        predicted = line.free_run(dict(record), n_initial=window)[window:]
    else:
        rows = line.narx.dataset(record)
        is_scored = rows["time"].values >= record["time"].values[window]
        measured = rows["target"].values[is_scored]
        predicted = line.one_step(rows)[is_scored]
    found = sysid.validate(measured, predicted)
    return Score(found.n, found.rmse)


def run_lines(recordings: sysid.Recordings) -> list[dict[str, Any]]:
    """Return the rows of the line with the best held-out error, and of that with the best test.

    The second one is known in hindsight only, and may be another one for each test and horizon.
    """
    lines = [
        LinearArx.fit(candidate.narx, recordings.estimation) for candidate in rank_lines(recordings)
    ]
    rows = []
    for number, record in enumerate(recordings.test):
        for name, horizon in BOARD_HORIZONS.items():
            scores = [score_line(line, record, horizon) for line in lines]
            best = int(np.argmin([score.rmse for score in scores]))
            for model, chosen in ((BEST_LINE, 0), (BEST_LINE_IN_HINDSIGHT, best)):
                row = {
                    "model": model,
                    "test": number,
                    "horizon": name,
                    "n_parameters": 1 + lines[chosen].narx.n_features,
                }
                rows.append(row | vars(scores[chosen]))
    return rows


def shorten(recordings: sysid.Recordings) -> sysid.Recordings:
    """Return the first samples of all records, which show that everything works."""
    estimation = [part(record, 0, N_QUICK_LEARNED) for record in recordings.estimation]
    test = [
        part(record, 0, int(record.attrs["initialisation_window"]) + N_QUICK_SCORED)
        for record in recordings.test
    ]
    return replace(recordings, estimation=tuple(estimation), test=tuple(test))


# --- the study ------------------------------------------------------------------------------------


class BoardsStudy(Study):
    """Official records beside the best lines and the published errors."""

    name = "boards"
    title = "Official records, identified by default settings"
    tasks: ClassVar[tuple[str, ...]] = tuple(SOURCES)
    is_prepared: ClassVar[bool] = False
    is_among_all: ClassVar[bool] = False
    quantities: ClassVar[tuple[str, ...]] = (
        "n",
        "rmse",
        "coverage_50",
        "coverage_95",
        "width_95",
        "crps",
        "seconds",
        "n_points",
        "n_parameters",
    )

    def units(self, plan: Plan) -> list[Unit]:
        """Return a unit for every record, training and seed, and one for the lines of a record.

        Trainings and bands are random, lines are not.
        """
        seeds = range(min(plan.seeds, N_BOARD_SEEDS))
        units = []
        for task in plan.tasks:
            if task in self.tasks:
                units.append(Unit(self.name, task, 0, LINES))
                units += [Unit(self.name, task, seed, name) for name in PARTS for seed in seeds]
        return units

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Identify a record by one training, or fit the lines."""
        recordings = SOURCES[unit.task].load()
        if plan.quick:
            recordings = shorten(recordings)
        if unit.part == LINES:
            rows = run_lines(recordings)
        else:
            model = PARTS[unit.part]
            training = make_training(model, is_quick=plan.quick)
            rows = [{"model": model, **row} for row in run_ours(recordings, training, unit.seed)]
        titles = titles_of(unit.task)
        return part_of([{"dataset": titles[row.pop("test")], **row} for row in rows])

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Return test records, models and horizons."""
        datasets = [title for task in plan.tasks if task in self.tasks for title in titles_of(task)]
        return {"dataset": datasets, "model": MODELS, "horizon": [*BOARD_HORIZONS]}

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return medians and quartiles over the seeds, with the unit of the output."""
        rows = super().rows(store)
        rows.insert(3, "unit", rows["dataset"].map(UNITS))
        return rows

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return tables of errors and of bands, of published errors, and counts."""
        rows = self.rows(store)
        known = set(rows["dataset"])
        gaps = [name for name in store["dataset"].values.tolist() if name not in known]
        published = read_published()
        published = published[published["dataset"].isin(known)]
        return {
            "gaps": f"No data: {'; '.join(gaps)}." if gaps else "",
            "free_run": to_markdown(tabulate_errors(rows, "free run")),
            "one_step": to_markdown(tabulate_errors(rows, "1 step")),
            "bands": to_markdown(tabulate_bands(rows, store["rmse"])),
            "published": to_markdown(tabulate_published(published)),
            "counts": "\n".join(f"- {count}" for count in count_successes(rows) if known),
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return the figure of all errors, as multiples of those of the best line."""
        rows = self.rows(store)
        return {"boards": partial(draw_ratios, rows)} if len(rows) else {}


#: Unit of the output of every test record.
UNITS = {title: STUDY_TASKS[task].unit for task in SOURCES for title in titles_of(task)}


def median_errors(rows: pd.DataFrame, horizon: str) -> pd.DataFrame:
    """Return the median RMSE (dataset, model), in the order of the rows and of `MODELS`."""
    wide = rows[rows["horizon"] == horizon].pivot(index="dataset", columns="model", values="rmse")
    return wide.reindex(index=rows["dataset"].unique(), columns=[*MODELS])


def best_published(datasets: Sequence[str]) -> pd.Series:
    """Return the smallest published error of the free run of each test record; nan without one."""
    return read_published().groupby("dataset")["rmse"].min().reindex([*datasets])


def write_error(error: float) -> str:
    """Return an error as text; a free run whose error is infinite has diverged."""
    return "diverges" if np.isposinf(error) else significant(error)


def write_width(width: float) -> str:
    """Return the width or the score of a band as text, which may have no bounds."""
    return "no bounds" if np.isposinf(width) else significant(width)


def tabulate_errors(rows: pd.DataFrame, horizon: str) -> pd.DataFrame:
    """Return the table of the errors at a horizon, as texts; published ones are of free runs."""
    errors = median_errors(rows, horizon)
    table = errors.map(write_error)
    table.insert(0, "unit", [UNITS[name] for name in errors.index])
    if horizon == "free run":
        table["best listed"] = best_published(errors.index).map(significant)
    return table.rename_axis(index="record", columns=None).reset_index()


def write_spread(errors: np.ndarray) -> str:
    """Return the largest minus the smallest error of the seeds (n,), over the median one [%].

    If free runs diverge, it is how many of the seeds do. An error that is nan was not computed.
    """
    known = errors[~np.isnan(errors)]
    n_diverged = int(np.isposinf(known).sum())
    if n_diverged:
        verb = "diverges" if n_diverged == 1 else "diverge"
        return f"{n_diverged} of {len(known)} {verb}"
    if not len(known):
        return fixed(np.nan, 1)
    return fixed(100 * float(np.ptp(known) / np.median(known)), 1)


def tabulate_bands(rows: pd.DataFrame, errors: xr.DataArray) -> pd.DataFrame:
    """Return the table of the bands, times and sizes, as texts; `errors` are those of the seeds."""
    lines = []
    for row in rows[rows["model"].isin(OURS)].to_dict("records"):
        place = {name: row[name] for name in ("dataset", "model", "horizon")}
        lines.append(
            {
                "record": row["dataset"],
                "model": row["model"],
                "horizon": row["horizon"],
                "95 % band covers [%]": fixed(100 * row["coverage_95"], 0),
                "50 % band covers [%]": fixed(100 * row["coverage_50"], 0),
                "width of the 95 % band": write_width(row["width_95"]),
                "CRPS": write_width(row["crps"]),
                "unit": row["unit"],
                "time [s]": fixed(row["seconds"], 0),
                "points": fixed(row["n_points"], 0),
                "seeds": str(row["n_seeds"]),
                "spread of the RMSE [%]": write_spread(errors.sel(place).values),
            }
        )
    return pd.DataFrame(lines)


def tabulate_published(published: pd.DataFrame) -> pd.DataFrame:
    """Return the table of published errors, as texts."""
    shown = published.rename(columns={"dataset": "record", "rmse": "RMSE of the free run"})
    return shown.map(lambda cell: significant(cell) if isinstance(cell, float) else cell)


def count_successes(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each model: on how many tests it is better than a line, and others."""
    errors = median_errors(rows, "free run")
    published = best_published(errors.index).dropna()
    low, high = BAND_TARGET
    for name in OURS:
        known = errors[[name, BEST_LINE]].dropna()
        n_better = int((known[name] <= known[BEST_LINE]).sum())
        of_published = errors.loc[published.index, name].dropna()
        n_below = int((of_published < published[of_published.index]).sum())
        of_model = rows[(rows["model"] == name) & rows["coverage_95"].notna()]
        bands = []
        for horizon in BOARD_HORIZONS:
            coverage = of_model.loc[of_model["horizon"] == horizon, "coverage_95"]
            n_within = int(coverage.between(low, high).sum())
            bands.append(f"{n_within} of {len(coverage)} ({horizon})")
        yield (
            f"`{name}`: the free run is at least as good as that of the best line on {n_better} of "
            f"{len(known)} tests, and better than the best listed error on {n_below} of "
            f"{len(of_published)}; 95 % bands cover {100 * low:.0f} to {100 * high:.0f} % on "
            f"{' and '.join(bands)}."
        )


def draw_ratios(rows: pd.DataFrame) -> Figure:
    """Draw the errors over those of the best line, for each record, at both horizons."""
    names = rows["dataset"].unique()
    figure, axes = page(1, len(BOARD_HORIZONS), 0.9 + 0.28 * len(names), sharey=True)
    places = np.arange(len(names))[::-1]
    for ax, horizon in zip(axes[0], BOARD_HORIZONS, strict=True):
        errors = median_errors(rows, horizon)
        of_line = errors[BEST_LINE]
        drawn = [np.ones(1)]
        for number, name in enumerate(MODELS):
            ratios = (errors[name] / of_line).where(np.isfinite).to_numpy()
            drawn.append(ratios)
            shape = SHAPES[number]
            ax.plot(ratios, places, shape, color=MODEL_COLORS[name], markersize=4.5, label=name)
        if horizon == "free run":
            published = read_published()
            published = published[published["dataset"].isin(names)]
            ratios = (published["rmse"] / of_line[published["dataset"]].to_numpy()).to_numpy()
            drawn.append(ratios)
            of_record = dict(zip(names, places, strict=True))
            heights = [of_record[name] for name in published["dataset"]]
            ax.plot(ratios, heights, "|", color=PUBLISHED_COLOR, markersize=9, label="published")
        ax.axvline(1.0, color=BASELINE_COLOR, linewidth=0.8)
        ax.set_title(horizon)
        ax.set_yticks(places, names)
        ax.set_ylim(-0.5, len(names) - 0.5)
        finite = np.concatenate(drawn)
        scale_axis(ax.xaxis, finite[np.isfinite(finite)])
    figure.supxlabel("RMSE over that of the best ARX model by held-out error [1]", fontsize=8)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=5,
        frameon=False,
    )
    return figure
