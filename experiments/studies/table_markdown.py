"""Tables 2 to 4 for people: one section per setting, ours beside the published numbers, and what follows from them."""

import json
from collections.abc import Sequence
from textwrap import fill

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import number, table
from experiments.studies.label import LABELS
from experiments.studies.table_comparison import adaptive_text, reference_text
from experiments.studies.table_summary import HEADLINE, SETTING_TEXT, Summary, select, summaries
from experiments.studies.table_verdict import count_table, floor_text, worse_table

LEGEND = """Each cell: our median SMSE [quartiles over seeds] / the published SMSE, the better one bold; below it
{second}. *With acceptance*: the criterion's own acceptance, stored points judged by the reference {reference}, our
default; the other references are in the CSV file and in the counts below."""
SECOND = {
    "table_2": "ours / published percentage of the points accepted",
    "table_3": "ours / published number of revised points",
    "table_4": "ours / published number of revised points",
}
RULE = """Where none or all points pass the published threshold at our scale (fewer than a tenth of the published
revisions, or more than 99 % of the stream), also a threshold of one rule from the training part alone: what the
published number of points exceeds in the eyes of the initial model, raised by a quarter until no more points are
revised than published."""


def table_markdown(store: xr.Dataset, name: str) -> str:
    """Sections of a table's Markdown: each setting, then reference and adaptive."""
    cells = summaries(store, name)
    gaps: dict[str, str] = json.loads(store.attrs.get("gaps", "{}"))
    legend = fill(LEGEND.format(second=SECOND[name], reference=HEADLINE), 115)
    sections = [legend, *(_section(s, cells, name, gaps) for s in _names(store, "setting"))]
    sections.append(floor_text(cells, json.loads(store.attrs.get("floors", "{}"))))
    if name == "table_2":
        sections.append(reference_text(cells))
    sections.append(adaptive_text(store))
    return "\n\n".join(filter(None, sections))


def _section(setting: str, everywhere: list[Summary], name: str, gaps: dict[str, str]) -> str:
    """One setting: the table, own thresholds, counts, cells that stay worse."""
    cells = select(everywhere, setting=setting)
    parts = [f"## Setting `{setting}`", f"{SETTING_TEXT[setting]}.", _grid(cells, name, gaps)]
    if own := select(cells, choice="own"):
        parts += [RULE, _grid(own, name, {}, choice="own")]
    parts += [count_table(cells), worse_table(cells, everywhere)]
    return "\n\n".join(filter(None, parts))


def _grid(cells: list[Summary], name: str, gaps: dict[str, str], choice: str = "published") -> str:
    """Datasets by criteria, each without and with acceptance."""
    criteria = list(dict.fromkeys(cell.criterion for cell in cells))
    columns = [(criterion, variant) for criterion in LABELS if criterion in criteria for variant in ("none", HEADLINE)]
    header = ["Dataset"]
    header += [f"{LABELS[c]}, {'without' if v == 'none' else 'with'} acceptance" for c, v in columns]
    rows = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        here = {(cell.criterion, cell.variant): cell for cell in select(cells, dataset=dataset, choice=choice)}
        if not any(cell.n_seeds for cell in here.values()):
            text = [f"no data: {gaps[dataset]}" if dataset in gaps else "no data", *[""] * (len(columns) - 1)]
        else:
            text = [cell_text(here[column], name) if column in here else "" for column in columns]
        rows.append([dataset, *text])
    return table(header, rows)


def cell_text(cell: Summary, name: str) -> str:
    """``**ours** [quartiles] / published``, then what was revised, then the own threshold.

    Bold marks the lower SMSE; both if they are equal.
    """
    ours, theirs = number(cell.smse, 3), number(cell.published.smse, 4)
    ours = f"**{ours}**" if cell.is_at_or_below else ours
    theirs = f"**{theirs}**" if cell.published.smse <= cell.smse else theirs
    low, _, high = cell.quartiles("smse")
    spread = f" [{number(low, 3)}, {number(high, 3)}]" if cell.n_seeds > 1 else ""
    lines = [f"{ours}{spread} / {theirs}", _revised(cell, name)]
    if cell.choice == "own":
        lines.append(f"at {number(cell.median('threshold'), 3)} instead of {number(cell.published.threshold, 3)}")
    return "<br>".join(filter(None, lines))


def _revised(cell: Summary, name: str) -> str:
    """Percentage accepted, or number of revised points; nothing where all are by definition."""
    if name != "table_2":
        return f"{cell.median('n_revised'):.0f} / {cell.published.n_revised:.0f} points"
    if cell.variant == "none":
        return ""
    return f"{cell.median('accepted_percent'):.1f} / {cell.published.accepted_percent:.1f} %"


def _names(store: xr.Dataset, dimension: str) -> Sequence[str]:
    return [str(name) for name in np.atleast_1d(store[dimension].values)]
