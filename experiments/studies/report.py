"""Files of a study: store, CSV, Markdown, figures; and all of them in one report."""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from experiments.studies.baselines.floor import floors_of
from experiments.studies.calibration import Calibration
from experiments.studies.caption import caption
from experiments.studies.headline import headline
from experiments.studies.part import part_path, read_part
from experiments.studies.plan import Plan
from experiments.studies.study import Study
from experiments.studies.table_summary import SETTING_TEXT
from experiments.studies.tasks.catalogue import TASKS
from sysid import store

QUICK_WARNING = "**Computed with `quick=true`: sizes too small for the numbers to mean anything.**"
HEAD = """# Comparison of data reduction criteria for online Gaussian processes, computed anew

Tables and figures of Wietzke and Graichen beside the published numbers, written by `sysid-reproduce`. Medians over
{seeds} seeds for random tasks; the stores keep all seeds.

SMSE: mean squared prediction error on the test rows over the variance of their targets. NLPD: mean negative log
predictive density there. Revised: an offered point that is stored in the place of another one. Settings of the
hyper-parameters:

{settings}
"""


def check_folder(plan: Plan, names: Iterable[str]) -> None:
    """Refuse a folder whose stores of these studies are of another version or of other settings.

    Raises
    ------
    sysid.StoreError
        Says which file, and what to do.
    """
    for path in (plan.folder / f"{name}.nc" for name in names):
        if not path.is_file():
            continue
        found = store.read(path, kind="study").attrs.get("fingerprint")
        if found != plan.fingerprint:
            raise store.StoreError(
                f"{path} was computed with other settings (seeds, quick) or by another version (fingerprint {found}, "
                f"expected {plan.fingerprint}): choose another folder (output=...), or move {plan.folder} away"
            )


def write_study(
    study: Study, plan: Plan, gaps: Mapping[str, str], attributes: Mapping[str, str], *, figures: bool
) -> None:
    """Combine the kept parts and write every file of a study, the store first.

    Raises
    ------
    sysid.StoreError
        A part that is missing though its task has data, or a file that cannot be written.
    """
    units = [unit for unit in study.units(plan) if part_path(unit, plan).is_file() or unit.task not in gaps]
    combined = study.combine({unit: read_part(unit, plan) for unit in units}, plan)
    told = json.dumps({TASKS[task].title: reason for task, reason in gaps.items()})
    notes = {"gaps": told, "floors": json.dumps(_floors(plan)), "missed": json.dumps(_missed(plan))}
    combined = combined.assign_attrs(title=study.title, quick=int(plan.quick), **notes)
    folder = plan.folder
    store.write(combined, folder / f"{study.name}.nc", kind="study", attributes=attributes)
    store.write_bytes(csv_text(study.rows(combined)).encode(), folder / f"{study.name}.csv")
    drawings = study.figures(combined) if figures else {}
    shown = "\n\n".join(_shown(study, name, plan.seeds) for name in drawings)
    warning = f"{QUICK_WARNING}\n\n" if plan.quick else ""
    text = f"# {study.title}\n\n{warning}{study.markdown(combined)}\n\n{shown}".rstrip()
    store.write_bytes(f"{text}\n".encode(), folder / f"{study.name}.md")
    for name, draw in drawings.items():
        _write_figure(draw, name, plan)


def _shown(study: Study, name: str, n_seeds: int) -> str:
    """A figure and its caption."""
    return f"![{study.title}]({name}.png)\n\n*{caption(study.name, name, n_seeds)}*"


def _floors(plan: Plan) -> dict[str, float]:
    """What the baselines of the same folder showed to be reachable, if they are there."""
    path = plan.folder / "baselines.nc"
    return floors_of(store.read(path, kind="study")) if path.is_file() else {}


def _missed(plan: Plan) -> dict[str, list[float]]:
    """Tasks whose initial SMSE in the setting `published` is not the published one: title to [reached, published]."""
    units = [unit for unit in Calibration().units(plan) if part_path(unit, plan).is_file()]
    parts = {unit.task: read_part(unit, plan) for unit in units}
    return {
        TASKS[task].title: [float(part["initial_smse"]), float(part["initial_smse_published"])]
        for task, part in parts.items()
        if not bool(part["is_reached"])
    }


def _write_figure(draw, name, plan):  # type: ignore[no-untyped-def]
    """One figure, as vectors and as pixels."""
    from experiments.studies.style import saved

    figure = draw()
    for form in ("pdf", "png"):
        store.write_bytes(saved(figure, form), plan.folder / f"{name}.{form}")


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """CSV with a header line; numbers with six digits, nan empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return buffer.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return value


def write_report(studies: Sequence[Study], plan: Plan) -> None:
    """All tables of the folder in one file, what they show on top."""
    stores = {study.name: store.read(plan.folder / f"{study.name}.nc", kind="study") for study in studies}
    parts = [(plan.folder / f"{study.name}.md").read_text(encoding="utf-8") for study in studies]
    sections = "\n".join(re.sub("^(?=#+ )", "#", part, flags=re.MULTILINE) for part in parts)
    settings = "\n".join(f"- `{name}`: {text}." for name, text in SETTING_TEXT.items())
    head = HEAD.format(seeds=plan.seeds, settings=settings)
    short = f"{QUICK_WARNING}\n\n{headline(stores)}" if plan.quick else headline(stores)
    store.write_bytes(f"{head}\n## In short\n\n{short}\n\n{sections}".encode(), plan.folder / "report.md")
