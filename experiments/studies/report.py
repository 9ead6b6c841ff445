"""All studies, in the order of the report; the files of a study, and all of them in one report."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

import pandas as pd
import xarray as xr

from experiments.plots.frames import significant, to_markdown
from experiments.plots.style import to_bytes
from experiments.studies.baselines import BaselinesStudy, list_floors
from experiments.studies.complexity import ComplexityStudy
from experiments.studies.guidelines import COLUMNS, GUIDELINES, Guidelines
from experiments.studies.points import RastriginMaps, Reduction
from experiments.studies.stream import DISTINCT, Setting, calibrate, prepare
from experiments.studies.study import Plan, Study, Unit, read_part, write_part
from experiments.studies.sweeps import BuildingSweep, Grid, VanDerPolSweep
from experiments.studies.tables import Table, summarise_cells
from experiments.studies.tasks import TASKS
from sysid import store

TEXT = Path(__file__).parent / "text"
ALL: tuple[Study, ...] = (
    ComplexityStudy(),
    BaselinesStudy(),
    Reduction(),
    Table("table_2", "Table 2: all new points offered"),
    RastriginMaps(),
    Table("table_3", "Table 3: insertion by the variance threshold"),
    Table("table_4", "Table 4: insertion by the error threshold"),
    VanDerPolSweep(),
    BuildingSweep(),
    Grid(),
    Guidelines(),
)
STUDIES: dict[str, Study] = {study.name: study for study in ALL}
QUICK_WARNING = "**Computed with `quick=true`: sizes too small for the numbers to mean anything.**"


def compute_job(job: Sequence[Unit], plan: Plan) -> None:
    """Compute the units of a job, one after the other, and keep each; what is kept already is not computed again."""
    for unit in (unit for unit in job if not plan.is_kept(unit)):
        if unit.study == "preparation":
            found = prepare(unit.task, unit.seed, plan)
        elif unit.study == "calibration":
            found = calibrate(unit.task, plan)
        else:
            found = STUDIES[unit.study].compute(unit, plan)
        write_part(found, unit, plan)


def write_study(
    study: Study, plan: Plan, gaps: Mapping[str, str], attributes: Mapping[str, str], *, figures: bool
) -> None:
    """Combine the kept parts and write every file of a study, the store first.

    Raises
    ------
    sysid.StoreError
        A damaged part, or a file that cannot be written.
    """
    baselines = plan.read_stores(["baselines"])
    notes = {
        "gaps": {TASKS[task].title: reason for task, reason in gaps.items()},
        "floors": list_floors(baselines["baselines"]) if baselines else {},
        "missed": _list_missed(plan),
    }
    combined = study.combine(plan).assign_attrs(title=study.title, quick=int(plan.quick))
    combined.attrs |= {name: json.dumps(note) for name, note in notes.items()}
    own = {"fingerprint": plan.fingerprint, "records": json.dumps(dict(plan.records))}
    store.write(combined, plan.folder / f"{study.name}.nc", kind="study", attributes={**attributes, **own})
    store.write_bytes(to_short_csv(study.rows(combined)).encode(), plan.folder / f"{study.name}.csv")
    drawings = study.figures(combined) if figures else {}
    pictures = "\n\n".join(f"![{name.replace('_', ' ')}]({name}.png)" for name in drawings)
    body = fill_template(study.template or study.name, n_seeds=str(plan.seeds), **study.tables(combined))
    text = f"# {study.title}\n\n{QUICK_WARNING if plan.quick else ''}\n\n{body}\n\n{pictures}"
    store.write_bytes(f"{_squeeze(text)}\n".encode(), plan.folder / f"{study.name}.md")
    for name, draw in drawings.items():
        figure = draw()
        for form in ("pdf", "png"):
            store.write_bytes(to_bytes(figure, form), plan.folder / f"{name}.{form}")


def fill_template(name: str, **places: str) -> str:
    """Text written by hand, with tables in its places."""
    return Template((TEXT / f"{name}.md").read_text(encoding="utf-8")).substitute(places)


def _squeeze(text: str) -> str:
    """Leave one empty line where an empty place left several."""
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _list_missed(plan: Plan) -> dict[str, list[float]]:
    """Tasks whose initial SMSE in the setting `published` is not the published one: title to [reached, published]."""
    units = [Unit("calibration", task) for task in plan.tasks]
    parts = {TASKS[unit.task].title: read_part(unit, plan) for unit in units if plan.is_kept(unit)}
    names = ("initial_smse", "initial_smse_published")
    return {title: [float(part[name]) for name in names] for title, part in parts.items() if not part["is_reached"]}


def to_short_csv(frame: pd.DataFrame) -> str:
    """CSV with a header line; numbers with six digits, nan empty."""
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def write_report(plan: Plan) -> None:
    """Write all tables of the folder into one file, what they show on top."""
    stores = plan.read_stores([*STUDIES])
    parts = [(plan.folder / f"{name}.md").read_text(encoding="utf-8") for name in stores]
    sections = "\n".join(re.sub("^(?=#+ )", "#", part, flags=re.MULTILINE) for part in parts)
    warning = QUICK_WARNING if plan.quick else ""
    head = fill_template("report", n_seeds=str(plan.seeds), warning=warning, short=summarise_stores(stores))
    store.write_bytes(f"{_squeeze(head)}\n\n{sections}".encode(), plan.folder / "report.md")


def summarise_stores(stores: Mapping[str, xr.Dataset]) -> str:
    """Counts of the tables, what the baselines reach, verdicts on the guidelines: of the stores that are there."""
    counts = [
        {"": name.replace("_", " ").capitalize()}
        | {f"at or below the published SMSE, {s}": _count_range(stores[name], name, s) for s in Setting}
        for name in ("table_2", "table_3", "table_4")
        if name in stores
    ]
    tables = [pd.DataFrame(counts)]
    if "baselines" in stores:
        rows = STUDIES["baselines"].rows(stores["baselines"])
        rows = rows[rows["dataset"].isin(["Van der Pol", "Building"])]
        shown = rows[["smse", "smse_published", "floor_whole_past"]].map(significant)
        tables.append(rows[["dataset", "model"]].join(shown))
    if "guidelines" in stores:
        verdicts = stores["guidelines"]["guideline_verdict"].to_pandas()[list(COLUMNS)].replace("", "-")
        names = [f"{number}. {text}" for number, text in GUIDELINES.items()]
        tables.append(verdicts.assign(guideline=names)[["guideline", *COLUMNS]])
    return "\n\n".join(to_markdown(table) for table in tables if len(table))


def _count_range(study: xr.Dataset, name: str, setting: str) -> str:
    """``8 to 9 of 10``: datasets, the fewest to the most over criteria and variants, at the published thresholds."""
    cells = summarise_cells(study, name)
    is_chosen = (cells["setting"] == setting) & (cells["threshold_choice"] == "published") & (cells["n_seeds"] > 0)
    cells = cells[is_chosen & cells["variant"].isin(DISTINCT)]
    if cells.empty:
        return "no data"
    groups = (cells["smse"] <= cells["smse_published"]).groupby([cells["criterion"], cells["variant"]])
    low, high = groups.sum().min(), groups.sum().max()
    return f"{low if low == high else f'{low} to {high}'} of {groups.size().max()}"
