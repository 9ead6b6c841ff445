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
from experiments.reproduce.tables import INSERTION_RULES, count_below, summarise_cells
from experiments.reproduce.tasks import STUDY_TASKS
from sysid import store
from sysid.foreign import open_inner

STUDY_TEXTS = Path(__file__).parent / "text"
QUICK_WARNING = "**Computed with `quick=true`: sizes too small for the numbers to mean anything.**"


def write_study(
    study: Study,
    plan: Plan,
    gaps: Mapping[str, str],
    *,
    configuration: str,
    figures: bool,
) -> None:
    """Combine the kept parts of a study, and write all of its files, the store first.

    Parameters
    ----------
    study, plan
        The study, and the settings with which it was computed.
    gaps : mapping of str to str
        Why there is no data, by task.
    configuration : str
        Configuration of the command as YAML; the store keeps it.
    figures : bool
        Whether figures are drawn.

    Raises
    ------
    sysid.StoreError
        A part is damaged, or a file cannot be written.
    """
    reasons = json.dumps({STUDY_TASKS[task].title: reason for task, reason in gaps.items()})
    combined = study.combine(plan).assign_attrs(
        title=study.title, quick=int(plan.quick), gaps=reasons
    )
    attributes = {
        "configuration": configuration,
        "fingerprint": plan.fingerprint,
        "records": json.dumps(dict(plan.records)),
    }
    store.write(combined, plan.folder / f"{study.name}.nc", kind="study", attributes=attributes)
    table = to_short_csv(study.rows(combined))
    store.write_bytes(table.encode(), plan.folder / f"{study.name}.csv")
    drawings = study.figures(combined) if figures else {}
    pictures = "\n\n".join(f"![{name.replace('_', ' ')}]({name}.png)" for name in drawings)
    head = f"# {study.title}\n\n{QUICK_WARNING if plan.quick else ''}"
    text = fill_template(
        study.template or study.name,
        head,
        pictures,
        n_seeds=str(plan.seeds),
        budget=str(plan.budget),
        **study.tables(combined),
    )
    store.write_bytes(text.encode(), plan.folder / f"{study.name}.md")
    for name, draw in drawings.items():
        for form, content in render(draw, "pdf", "png").items():
            store.write_bytes(content, plan.folder / f"{name}.{form}")


def fill_template(name: str, head: str = "", tail: str = "", **places: str) -> str:
    """Return a text of the folder ``text/`` with tables in its places, between head and tail.

    Several empty lines, which empty places leave, become one.
    """
    body = Template((STUDY_TEXTS / f"{name}.md").read_text(encoding="utf-8")).substitute(places)
    return re.sub(r"\n{3,}", "\n\n", f"{head}\n\n{body}\n\n{tail}").strip() + "\n"


def to_short_csv(frame: pd.DataFrame) -> str:
    """Return CSV text with a header line; numbers have six digits, nan is empty."""
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def write_report(plan: Plan) -> None:
    """Write one file with a summary and all tables of the folder."""
    stores = plan.read_stores([*STUDIES])
    parts = [_read_text(plan.folder, f"{name}.md") for name in stores]
    sections = "\n".join(re.sub("^(?=#+ )", "#", part, flags=re.MULTILINE) for part in parts)
    warning = QUICK_WARNING if plan.quick else ""
    head = fill_template(
        "report",
        n_seeds=str(plan.seeds),
        warning=warning,
        short=summarise_stores(stores),
    )
    store.write_bytes(f"{head}\n{sections}".encode(), plan.folder / "report.md")


def _read_text(folder: Path, name: str) -> str:
    """Read a text within a folder; raise StoreError if it is a link."""
    with open_inner(folder, name) as file:
        return file.read().decode()


def summarise_stores(stores: Mapping[str, xr.Dataset]) -> str:
    """Return the summary of the stores that exist.

    It has the counts of the tables, the errors of the baselines, and the verdicts on the
    guidelines.
    """
    counts = []
    tables = []
    for name in INSERTION_RULES:
        if name not in stores:
            continue
        cells = summarise_cells(stores[name], name)
        row = {"": name.replace("_", " ").capitalize()}
        for setting in Setting:
            column = f"at or below the published SMSE, {setting}"
            row[column] = count_below(cells[cells["setting"] == setting])
        counts.append(row)
    if "baselines" in stores:
        rows = STUDIES["baselines"].rows(stores["baselines"])
        rows = rows.query("dataset in ['Van der Pol', 'Building']")
        numbers = rows[["smse", "smse_published"]].map(significant)
        tables.append(to_markdown(rows[["dataset", "model"]].join(numbers)))
    if "guidelines" in stores:
        tables.append(STUDIES["guidelines"].tables(stores["guidelines"])["guidelines"])
    return "\n\n".join(filter(None, [to_markdown(pd.DataFrame(counts)), *tables]))
