"""Files of a study: store, CSV, Markdown, figures; and all of them in one report."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence

from experiments.studies.baselines.floor import floors_of
from experiments.studies.part import part_path, read_part
from experiments.studies.plan import Plan
from experiments.studies.study import Study
from experiments.studies.tasks.catalogue import TASKS
from sysid import store

HEAD = """# Comparison of data reduction criteria for online Gaussian processes, computed anew

Tables and figures of Wietzke and Graichen beside the published numbers, written by `sysid-reproduce`. Medians over
{seeds} seeds for random tasks; the stores keep all seeds.
"""


def check_folder(plan: Plan) -> None:
    """Refuse a folder that holds results of another version or of other settings.

    Raises
    ------
    sysid.store.StoreError
        Says which file, and what to do.
    """
    for path in sorted(plan.folder.glob("*.nc")):
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
    sysid.store.StoreError
        A part that is missing though its task has data, or a file that cannot be written.
    """
    units = [unit for unit in study.units(plan) if part_path(unit, plan).is_file() or unit.task not in gaps]
    combined = study.combine({unit: read_part(unit, plan) for unit in units}, plan)
    told = json.dumps({TASKS[task].title: reason for task, reason in gaps.items()})
    combined = combined.assign_attrs(title=study.title, gaps=told, floors=json.dumps(_floors(plan)))
    folder = plan.folder
    store.write(combined, folder / f"{study.name}.nc", kind="study", attributes=attributes)
    store.write_bytes(csv_text(study.rows(combined)).encode(), folder / f"{study.name}.csv")
    drawings = study.figures(combined) if figures else {}
    shown = "\n\n".join(f"![{study.title}]({name}.png)" for name in drawings)
    text = f"# {study.title}\n\n{study.markdown(combined)}\n\n{shown}".rstrip()
    store.write_bytes(f"{text}\n".encode(), folder / f"{study.name}.md")
    for name, draw in drawings.items():
        _write_figure(draw, name, plan)


def _floors(plan: Plan) -> dict[str, float]:
    """What the baselines of the same folder showed to be reachable, if they are there."""
    path = plan.folder / "baselines.nc"
    return floors_of(store.read(path, kind="study")) if path.is_file() else {}


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
    """All tables of the folder in one file."""
    parts = [(plan.folder / f"{study.name}.md").read_text(encoding="utf-8") for study in studies]
    sections = "\n".join(part.replace("\n## ", "\n### ").replace("# ", "## ", 1) for part in parts)
    store.write_bytes(f"{HEAD.format(seeds=plan.seeds)}\n{sections}".encode(), plan.folder / "report.md")
