"""How often tables 2 to 4 reach the published SMSE, which cells do not, and why."""

from collections.abc import Mapping

import numpy as np

from experiments.benchmark_folder.markdown import table
from experiments.studies.label import LABELS, acceptance_name
from experiments.studies.significant import significant
from experiments.studies.stream import VARIANTS
from experiments.studies.table_summary import DIGITS, HEADLINE, Summary, select, with_own_thresholds
from experiments.studies.threshold import MOST


def count_table(cells: list[Summary]) -> str:
    """Rows at or below the published SMSE for each criterion and variant of one setting."""
    cells = [cell for cell in cells if cell.n_seeds]
    if not cells:
        return ""
    criteria = [criterion for criterion in LABELS if select(cells, criterion=criterion)]
    choices = {"published": select(cells, choice="published")}
    if select(cells, choice="own"):
        choices["own where the published one means nothing"] = with_own_thresholds(cells)
    rows = [
        [choice, LABELS[criterion], *(count(select(chosen, criterion=criterion, variant=v)) for v in VARIANTS)]
        for choice, chosen in choices.items()
        for criterion in criteria
    ]
    header = ("threshold", "criterion", *(acceptance_name(variant) for variant in VARIANTS))
    return f"Rows at or below the published SMSE:\n\n{table(header, rows)}"


def count(cells: list[Summary]) -> str:
    """``9 of 10``: cells at or below the published SMSE of those with data."""
    return f"{sum(cell.is_at_or_below for cell in cells)} of {len(cells)}"


def worse_table(cells: list[Summary], everywhere: list[Summary], floors: Mapping[str, float]) -> str:
    """Cells of one setting above the published SMSE at every threshold, with what the store tells about them.

    `everywhere` are the cells of all settings, `floors` as in `floor_text`.
    """
    worse = []
    for cell in select(cells, choice="published"):
        own = [c for c in cells if c.choice == "own" and c[:4] == cell[:4]]
        is_shown = cell.n_seeds > 0 and cell.variant in ("none", HEADLINE)
        if is_shown and not any(c.is_at_or_below for c in [cell, *own]):
            worse.append((cell, own))
    if not worse:
        return "" if not any(cell.n_seeds for cell in cells) else "No cell stays above the published SMSE."
    rows = [
        [
            cell.dataset,
            LABELS[cell.criterion],
            "without" if cell.variant == "none" else "with",
            f"{significant(cell.smse)} / {cell.published.smse:.{DIGITS}f}",
            f"{cell.n_at_or_below} of {cell.n_seeds}",
            "; ".join(reasons(cell, own, select(everywhere, dataset=cell.dataset), floors.get(cell.dataset, np.nan))),
        ]
        for cell, own in worse
    ]
    header = ("dataset", "criterion", "acceptance", "SMSE ours / published", "seeds at or below", "what was measured")
    return f"Cells that stay above the published SMSE:\n\n{table(header, rows)}"


def reasons(cell: Summary, own: list[Summary], same_dataset: list[Summary], floor: float) -> list[str]:
    """What the store tells about a cell that is worse; the floor is that of its dataset, nan if there is none."""
    found = []
    published, initial = cell.published, cell.median("smse_initial")
    if round(cell.smse, DIGITS) <= published.smse:
        found.append("equal in the printed digits")
    inserted, offered = cell.median("n_inserted"), cell.median("n_offered")
    if np.isfinite(published.threshold):
        share = "all" if inserted > MOST * offered else f"{inserted:.0f}" if inserted else "none"
        revised = f"{cell.median('n_revised'):.0f} revised (published: {published.n_revised:.0f})"
        found.append(f"{share} of {offered:.0f} points pass, {revised}")
    if cell.smse > initial:
        found.append(f"the stream raises the SMSE from {significant(initial)}")
    else:
        found.append(f"initial SMSE {significant(initial)}")
    if cell.setting == "adaptive":
        found.append(f"hyper-parameters estimated {cell.median('n_estimates'):.0f} times")
    found += [f"own threshold: {significant(c.smse)} with {c.median('n_revised'):.0f} points" for c in own]
    best = min(c.smse for c in select(same_dataset, setting=cell.setting))
    if best > cell.published.smse:
        found.append(f"no criterion reaches it in this setting, best {significant(best)}")
    if floor > cell.published.smse:
        found.append(f"no model of the study baselines reaches it, lowest {significant(floor)}")
    same = select(same_dataset, criterion=cell.criterion, variant=cell.variant, choice="published")
    found += [f"setting {c.setting}: {significant(c.smse)}" for c in same if c.setting != cell.setting]
    return found


FLOOR_HEAD = """## Floors

From the study `baselines`: of the Building the Kalman filter of the true plant, told the whole past, which no model can
be expected to beat; of the tables in file order the lowest SMSE among all models there, a ridge regression whose
penalty was chosen on the test rows included."""


def floor_text(cells: list[Summary], floors: Mapping[str, float]) -> str:
    """Lowest median SMSE and lowest published one of a dataset beside the floor of the dataset, if known."""
    lines = []
    for dataset, floor in floors.items():
        if not (here := [cell for cell in select(cells, dataset=dataset) if cell.n_seeds]):
            continue
        best = min(here, key=lambda cell: cell.smse)
        acceptance = acceptance_name(best.variant)
        theirs = min(cell.published.smse for cell in here)
        lines.append(
            f"- {dataset}: floor {significant(floor)}; our best cell {significant(best.smse)} ({best.setting}, "
            f"{LABELS[best.criterion].lower()}, {acceptance}), {significant(best.smse / floor)} times the "
            f"floor; best published {theirs:.{DIGITS}f}, {significant(theirs / floor)} times."
        )
    return f"{FLOOR_HEAD}\n\n" + "\n".join(lines) if lines else ""
