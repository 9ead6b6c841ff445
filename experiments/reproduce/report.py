"""The files of a study, and the report of all of them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

import pandas as pd
import xarray as xr

from experiments.drawing.style import render
from experiments.drawing.tables import significant, to_markdown
from experiments.reproduce.stream import Setting
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import Plan, Study
from experiments.reproduce.tables import RULES, count_below, summarise_cells
from experiments.reproduce.tasks import TASKS
from sysid import store

TEXT = Path(__file__).parent / "text"
QUICK_WARNING = "**Computed with `quick=true`: sizes too small for the numbers to mean anything.**"


def write_study(
    study: Study,
    plan: Plan,
    gaps: Mapping[str, str],
    *,
    configuration: str,
    figures: bool,
) -> None:
    """Combine the kept parts and write every file of a study, the store first.

    Parameters
    ----------
    study, plan
        What is written, and the settings with which it was computed.
    gaps : mapping of str to str
        Tasks without data, with the reason.
    configuration : str
        Configuration of the command as YAML, for the store.
    figures : bool
        Whether figures are drawn.

    Raises
    ------
    sysid.StoreError
        A damaged part, or a file that cannot be written.
    """
    reasons = json.dumps({TASKS[task].title: reason for task, reason in gaps.items()})
    combined = study.combine(plan).assign_attrs(
        title=study.title, quick=int(plan.quick), gaps=reasons
    )
    attributes = {"configuration": configuration, "fingerprint": plan.fingerprint}
    attributes["records"] = json.dumps(dict(plan.records))
    store.write(combined, plan.folder / f"{study.name}.nc", kind="study", attributes=attributes)
    store.write_bytes(
        to_short_csv(study.rows(combined)).encode(), plan.folder / f"{study.name}.csv"
    )
    drawings = study.figures(combined) if figures else {}
    pictures = "\n\n".join(f"![{name.replace('_', ' ')}]({name}.png)" for name in drawings)
    head = f"# {study.title}\n\n{QUICK_WARNING if plan.quick else ''}"
    places = study.tables(combined)
    numbers = {"n_seeds": str(plan.seeds), "budget": str(plan.budget)}
    text = fill_template(study.template or study.name, head, pictures, **numbers, **places)
    store.write_bytes(text.encode(), plan.folder / f"{study.name}.md")
    for name, draw in drawings.items():
        for form, content in render(draw, "pdf", "png").items():
            store.write_bytes(content, plan.folder / f"{name}.{form}")


def fill_template(name: str, head: str = "", tail: str = "", **places: str) -> str:
    """Text written by hand, with tables in its places; one empty line where an empty place left
    several.
    """
    body = Template((TEXT / f"{name}.md").read_text(encoding="utf-8")).substitute(places)
    return re.sub(r"\n{3,}", "\n\n", f"{head}\n\n{body}\n\n{tail}").strip() + "\n"


def to_short_csv(frame: pd.DataFrame) -> str:
    """CSV with a header line; numbers with six digits, nan empty."""
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def write_report(plan: Plan) -> None:
    """Write all tables of the folder into one file, what they show on top."""
    stores = plan.read_stores([*STUDIES])
    parts = [(plan.folder / f"{name}.md").read_text(encoding="utf-8") for name in stores]
    sections = "\n".join(re.sub("^(?=#+ )", "#", part, flags=re.MULTILINE) for part in parts)
    warning = QUICK_WARNING if plan.quick else ""
    head = fill_template(
        "report",
        n_seeds=str(plan.seeds),
        warning=warning,
        short=summarise_stores(stores),
    )
    store.write_bytes(f"{head}\n{sections}".encode(), plan.folder / "report.md")


def summarise_stores(stores: Mapping[str, xr.Dataset]) -> str:
    """Summarise the stores that are there.

    The text has counts of the tables, what the baselines reach, and verdicts on the guidelines.
    """
    counts = []
    tables = []
    for name in (name for name in RULES if name in stores):
        cells = summarise_cells(stores[name], name)
        row = {"": name.replace("_", " ").capitalize()}
        row |= {
            f"at or below the published SMSE, {s}": count_below(cells[cells["setting"] == s])
            for s in Setting
        }
        counts.append(row)
    if "baselines" in stores:
        rows = (
            STUDIES["baselines"]
            .rows(stores["baselines"])
            .query("dataset in ['Van der Pol', 'Building']")
        )
        numbers = rows[["smse", "smse_published"]].map(significant)
        tables.append(to_markdown(rows[["dataset", "model"]].join(numbers)))
    if "guidelines" in stores:
        tables.append(STUDIES["guidelines"].tables(stores["guidelines"])["guidelines"])
    return "\n\n".join(filter(None, [to_markdown(pd.DataFrame(counts)), *tables]))
