"""The paper's claims (`claims.yaml`), and the paired log ratios that the stores of the studies hold on each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
import yaml

from experiments.plots.style import LABELS
from experiments.studies import paper
from experiments.studies.stream import VARIANTS, Setting
from experiments.studies.study import spread_out
from experiments.studies.tasks import TASKS
from experiments.studies.verdict import LOWER, Comparison, Region, at_most, within

#: section 7 of the paper
GUIDELINES = {
    1: "Select points offline by the marginal log likelihood.",
    2: "Online, where only the prediction error matters, select by the mean relevance.",
    3: "Where the uncertainty matters too, select by a likelihood.",
    4: "Select by an entropy only where the points shall cover the input space evenly.",
    5: "The acceptance criterion of the marginal log likelihood filters points without new information well.",
    6: "An acceptance criterion is recommended in general, to save computation.",
}
PRINTED = "printed"  # the paper's own tables, beside the settings
CHANCES = {"third": 1.0 / 3.0}  # of one of three equal criteria
COVERAGE, POINT = 0.95, 0.01  # of the band; one percentage point
#: quantity to a scale on which a difference is a log ratio
SCALES: dict[str, Any] = {
    "smse": np.log,
    "accepted_percent": np.log,
    "n_revised": np.log1p,  # plus one point: none is possible
    "n_inserted": np.log1p,
    "nlpd": np.array,  # nats: the ratio is that of the predictive densities
    "coverage_95": lambda share: np.log(np.abs(share - COVERAGE) + POINT),  # distance, plus one point
    "nearest_distance_ratio": np.log,
    "boundary_share": lambda share: np.log(share + POINT),
    "mean_abs_error": np.log,
    "gap": np.array,  # a log ratio already
}


class NeedsError(LookupError):
    """Results that a claim needs and that are not there."""


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, one sentence that makes it measurable, and the ratios; the head of the YAML file."""

    name: str
    guideline: int
    section: int
    statement: str
    test: str
    study: str
    places: Any
    ratios: Sequence[Mapping[str, Any]] = ()
    where: Sequence[Mapping[str, Any]] = ()
    own: bool = True
    chance: Any = 0.5

    @property
    def source(self) -> str:
        """Where the paper says it."""
        return f"guideline {self.guideline}" if self.guideline else f"section {self.section}"


@cache
def read_claims() -> tuple[Claim, ...]:
    """All claims, those of the guidelines first."""
    groups = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text(encoding="utf-8"))
    found = []
    for group in groups:
        each = group.get("each", {})
        for values in product(*each.values()):
            names = dict(zip(each, values, strict=True))
            found += [Claim(**_fill(claim, names)) for claim in group["claims"]]
    return tuple(sorted(found, key=lambda claim: (claim.guideline or len(GUIDELINES) + 1, claim.section)))


def _fill(value: Any, names: Mapping[str, str]) -> Any:
    """Put the values of a group in the place of their names, everywhere in a claim."""
    if isinstance(value, Mapping):
        return {key: _fill(entry, names) for key, entry in value.items()}
    if isinstance(value, list):
        return [_fill(entry, names) for entry in value]
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text).replace(f"{{{name} in words}}", text.replace("_", " "))
    return value


# --- the stores, and the log ratios that they hold ------------------------------------------------


class Results(NamedTuple):
    """Stores in one setting."""

    setting: str
    stores: Mapping[str, xr.Dataset]  # name of the study
    has_seeds: bool = True  # False: one number per task, nothing can be tested

    def select(self, study: str) -> xr.Dataset:
        """Store of a study in the setting; one that does not tell settings apart is of the setting `trained`.

        Raises
        ------
        NeedsError
            There is none, or it has another setting only.
        """
        if study not in self.stores:
            raise NeedsError(f"{study}.nc")
        found = self.stores[study]
        if self.setting not in list_settings(found):
            raise NeedsError(f"{study}.nc with setting {self.setting}")
        found = found.sel(setting=self.setting) if "setting" in found.dims else found
        return _level_reduction(found) if study == "figure_reduction" else found


def list_settings(store: xr.Dataset) -> list[str]:
    """Settings that a store has."""
    return store["setting"].values.tolist() if "setting" in store.dims else [Setting.trained.value]


def _level_reduction(store: xr.Dataset) -> xr.Dataset:
    """Geometric mean of the SMSE over all sizes but the full one, where all criteria agree, and the ``gap``:
    absolute log ratio of the SMSE of prior entropy and the geometric mean of the two others."""
    smaller = store["smse"].sel(n_points=store["n_points"] < store["n_points"].max())
    level = smaller.copy(data=np.log(smaller.values)).mean("n_points", skipna=False)
    others = level.sel(criterion=["mean_relevance", "marginal_log_likelihood"]).mean("criterion", skipna=False)
    gap = np.abs(level.sel(criterion="prior_entropy", drop=True) - others)
    return xr.Dataset({"smse": np.exp(level), "gap": gap})


def find_places(claim: Claim, results: Results) -> dict[str, list[Comparison]]:
    """Log ratios over seeds at every place of a claim, without values where there are no results.

    A task whose seeds all miss the conditions of the claim is no place of it.

    Raises
    ------
    NeedsError
        A store that is missing, or that has no such variable or label.
    """
    store = results.select(claim.study)
    found = {}
    for name, place, ratios in _list_places(claim):
        task = next((task for task in TASKS.values() if task.title == place.get("dataset")), None)
        is_tested = results.has_seeds and (task is None or task.is_random)
        if task and task.title not in store["dataset"].values:
            found[name] = [Comparison(r["label"], np.empty(0), _region(r), is_tested) for r in ratios]
            continue
        try:
            here: xr.Dataset | None = store
            if claim.study.startswith("table"):
                here, place = _select_seeds(claim, store.sel(place), ratios), {}
            if here is not None:
                found[name] = [_compare(here, place, ratio, is_random=is_tested) for ratio in ratios]
        except KeyError as error:
            reason = str(error.args[0]).split(". ")[0]
            raise NeedsError(f"{claim.study}.nc with all that it compares ({reason})") from error
    return found


def _list_places(claim: Claim) -> list[tuple[str, dict[str, str], Sequence[Mapping[str, Any]]]]:
    """Name of each place, what it selects from the store, and its ratios."""
    if isinstance(claim.places, Mapping) and "criterion" in claim.places:
        return [(LABELS[name], {"criterion": name}, claim.ratios) for name in claim.places["criterion"]]
    if isinstance(claim.places, Mapping):
        return [(name, {}, ratios) for name, ratios in claim.places.items()]
    names = list(TASKS) if claim.places == "tasks" else claim.places
    return [(TASKS[name].title, {"dataset": TASKS[name].title}, claim.ratios) for name in names]


def _select_seeds(claim: Claim, rows: xr.Dataset, ratios: Sequence[Mapping[str, Any]]) -> xr.Dataset | None:
    """Seeds of a task that a claim about a table speaks of; None if all that have data miss its conditions.

    They are judged at the published thresholds, and where all compared cells have an own threshold at those.
    """
    applies = np.isfinite(_take(rows, "smse", ratios[0]["above"][0], "published"))
    if applies.any():
        for condition in claim.where:
            values = _take(rows, condition["quantity"], condition["cell"], "published")
            if "share_of" in condition:
                values = values / _take(rows, condition["share_of"], condition["cell"], "published")
            applies &= (condition["low"] < values) & (values < condition["high"])
        if not applies.any():
            return None
    sides = [ratio[side] for ratio in ratios for side in ("above", "below") if isinstance(ratio[side], list)]
    own = [np.isfinite(_take(rows, "smse", cell, "own")) for side in sides for cell in side]
    has_own = xr.DataArray(claim.own & np.all(own, axis=0), dims="seed")
    chosen, published = (rows.sel(threshold_choice=name, drop=True) for name in ("own", "published"))
    return chosen.where(has_own, published).isel(seed=np.flatnonzero(applies))


def _take(rows: xr.Dataset, quantity: str, cell: Mapping[str, str], choice: str) -> np.ndarray:
    """A quantity of a cell of a table, at one choice of the threshold (seed,)."""
    return np.asarray(rows[quantity].sel({**cell, "threshold_choice": choice}).values)


def _compare(store: xr.Dataset, place: Mapping[str, str], ratio: Mapping[str, Any], *, is_random: bool) -> Comparison:
    """One ratio at one place."""
    quantity = ratio.get("quantity", "smse")
    values: Any = 0.0
    label = ratio["label"]
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 % against 0 % says nothing: nan, which is left out
        for sign, side in ((1.0, ratio["above"]), (-1.0, ratio["below"])):
            if not isinstance(side, list):
                values = values + sign * SCALES[quantity](np.array(side))
                continue
            levels = [_level(store, quantity, {**place, **cell}) for cell in side]
            share = 1.0 if ratio.get("total") else 1.0 / len(side)
            values = values + sign * share * sum(level for level, _ in levels)
            label = label.format(threshold=levels[0][1]) if "{" in label else label
    return Comparison(label, np.asarray(values), _region(ratio), is_random)


def _region(ratio: Mapping[str, Any]) -> Region:
    name, _, factor = ratio.get("region", "lower").partition(" ")
    return {"lower": lambda _: LOWER, "at_most": at_most, "within": within}[name](float(factor or 1.0))


def _level(store: xr.Dataset, quantity: str, cell: Mapping[str, str]) -> tuple[np.ndarray, float]:
    """A quantity of a cell on its scale (seed,), and the threshold that it is read at; nan without one.

    `cell` names labels; its ``threshold`` is ``lowest``, ``below x`` (mean over these), ``from x`` or ``up_to x``: the
    next one with results, which must lie above the lowest.
    """
    where, _, number = cell.get("threshold", "").partition(" ")
    chosen = store[quantity].sel({name: label for name, label in cell.items() if name != "threshold"})
    if not where:
        return SCALES[quantity](chosen.values), np.nan
    curve = chosen.dropna("threshold", how="all").sortby("threshold").transpose("threshold", "seed")
    values, thresholds, nothing = (
        SCALES[quantity](curve.values),
        curve["threshold"].values,
        np.full(curve.sizes["seed"], np.nan),
    )
    if where == "lowest":
        return (values[0] if len(values) else nothing), np.nan
    if where == "below":
        is_below = thresholds < float(number)
        return (values[is_below].mean(axis=0) if is_below.any() else nothing), np.nan
    found = (
        thresholds[thresholds >= float(number)][:1] if where == "from" else thresholds[thresholds <= float(number)][-1:]
    )
    if not len(found):
        return nothing, np.nan
    return (values[thresholds == found[0]][0] if found[0] > thresholds[0] else nothing), float(found[0])


# --- the numbers that the paper prints, in the shape of the stores --------------------------------


def make_printed() -> Results:
    """Tables 2 to 4 as printed, one number per task, so that the same tests can be put to them.

    The paper does not say which reference its acceptance has: its numbers stand under each. Without acceptance every
    point that is inserted is revised; with it only table 2 tells how many were inserted.
    """
    stores = {}
    for table in ("table_2", "table_3", "table_4"):
        cells = paper.read_cells(table)
        cells = pd.concat([cells[cells["is_accepting"] == (v != "none")].assign(variant=v) for v in VARIANTS])
        cells["n_inserted"] = cells["n_revised"].where(~cells["is_accepting"])
        cells = cells.assign(threshold_choice="published", seed=0, setting=PRINTED)
        coordinates: dict[str, Sequence[Any]] = {
            "setting": [PRINTED],
            "dataset": [task.title for task in TASKS.values()],
            "criterion": list(paper.CRITERIA),
            "variant": list(VARIANTS),
            "threshold_choice": ["published", "own"],
            "seed": [0],
        }
        stores[table] = spread_out(cells, coordinates, ("smse", "n_revised", "n_inserted", "accepted_percent"))
    return Results(PRINTED, stores, has_seeds=False)
