"""Tables 2 to 4 for people: one section per setting, ours beside the published numbers, and what follows from them."""

import json
from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import number, table
from experiments.studies.label import LABELS
from experiments.studies.setting import Setting
from experiments.studies.significant import significant
from experiments.studies.table_comparison import adaptive_text, reference_text
from experiments.studies.table_summary import DIGITS, HEADLINE, SETTING_TEXT, Summary, select, summaries
from experiments.studies.table_verdict import count_table, floor_text, worse_table

LEGEND = """Each cell: our median SMSE [quartiles over seeds] / the published SMSE, the better one bold; below it
{second}. *With acceptance*: the criterion's own acceptance, stored points judged by the leave-one-out reference,
our default. The other references are in the CSV file and in the counts below: *leave-one-out* judges a stored point
by the model without it, *in-sample* by the model with it, *as published* by the one in the paper's formula of the
criterion."""
SECOND = {
    "table_2": "ours / published percentage of the points accepted",
    "table_3": "ours / published number of revised points",
    "table_4": "ours / published number of revised points",
}
RULE = """Where none or all points pass the published threshold at our scale (fewer than a tenth of the published
revisions, or more than 99 % of the stream), also a threshold of one rule from the training part alone: what the
published number of points exceeds in the eyes of the initial model, raised by a quarter until no more points are
revised than published. Medians are over the seeds where the published threshold means nothing; in the CSV file these
are the rows with another threshold."""


class Notes(NamedTuple):
    """What the attributes of a store (JSON) say about datasets, by their titles."""

    gaps: dict[str, str]  # why there is no data
    floors: dict[str, float]  # SMSE that nothing was shown to go below
    missed: dict[str, list[float]]  # initial SMSE of the setting `published`: reached, published


def table_markdown(store: xr.Dataset, name: str) -> str:
    """Sections of a table's Markdown: each setting, then reference and adaptive."""
    cells = summaries(store, name)
    notes = Notes(*(json.loads(store.attrs.get(key, "{}")) for key in Notes._fields))
    legend = fill(LEGEND.format(second=SECOND[name]), 115, break_on_hyphens=False)
    sections = [legend, *(_section(s, cells, name, notes) for s in _names(store, "setting"))]
    sections += [f"No data for {dataset}: {reason}" for dataset, reason in notes.gaps.items()]
    sections.append(floor_text(cells, notes.floors))
    if name == "table_2":
        sections.append(reference_text(cells))
    sections.append(adaptive_text(store))
    return "\n\n".join(filter(None, sections))


def _section(setting: str, everywhere: list[Summary], name: str, notes: Notes) -> str:
    """One setting: the table, own thresholds, counts, cells that stay worse."""
    cells = select(everywhere, setting=setting)
    text = f"Hyper-parameters: {SETTING_TEXT[setting]}."
    if setting == Setting.published and notes.missed:
        pairs = (f"{d} ({significant(ours)} instead of {theirs:.4f})" for d, (ours, theirs) in notes.missed.items())
        text += f" No length scale gives the published initial SMSE of {', '.join(pairs)}: the nearest is taken."
    parts = [f"## Setting `{setting}`", text, _grid(cells, name, notes.gaps)]
    if own := select(cells, choice="own"):
        parts += [RULE, _grid(own, name, {}, choice="own")]
    parts += [count_table(cells), worse_table(cells, everywhere, notes.floors)]
    return "\n\n".join(filter(None, parts))


def _grid(cells: list[Summary], name: str, gaps: dict[str, str], choice: str = "published") -> str:
    """Datasets by criteria, each dataset without and with acceptance."""
    criteria = [criterion for criterion in LABELS if select(cells, criterion=criterion)]
    rows = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        here = {(cell.criterion, cell.variant): cell for cell in select(cells, dataset=dataset, choice=choice)}
        if not any(cell.n_seeds for cell in here.values()):
            text = "no data, see below" if dataset in gaps else "no data"
            rows.append([dataset, "", text, *[""] * (len(criteria) - 1)])
            continue
        for variant, acceptance in (("none", "without"), (HEADLINE, "with")):
            texts = [cell_text(here[c, variant], name) if (c, variant) in here else "" for c in criteria]
            rows += [[dataset, acceptance, *texts]] if any(texts) else []
    return table(["Dataset", "Acceptance", *(LABELS[criterion] for criterion in criteria)], rows)


def cell_text(cell: Summary, name: str) -> str:
    """``**ours** [quartiles] / published``, then what was revised, then the own threshold.

    Bold marks the lower SMSE; both if they are equal.
    """
    ours, theirs = significant(cell.smse), f"{cell.published.smse:.{DIGITS}f}"
    ours = f"**{ours}**" if cell.is_at_or_below else ours
    theirs = f"**{theirs}**" if cell.published.smse <= cell.smse else theirs
    low, _, high = cell.quartiles("smse")
    spread = f" [{significant(low)}, {significant(high)}]" if cell.n_seeds > 1 else ""
    lines = [f"{ours}{spread} / {theirs}", _revised(cell, name)]
    if cell.choice == "own":
        lines.append(f"at {significant(cell.median('threshold'))} instead of {number(cell.published.threshold, 3)}")
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
