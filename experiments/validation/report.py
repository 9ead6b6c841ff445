"""What a validation leaves behind: numbers, predictions and residuals, a page of figures, words."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.validation.assessment import Assessment
from experiments.validation.content import content_of
from experiments.validation.dataset import groups_of
from experiments.validation.residuals import Residuals, residuals_of
from experiments.validation.table import table
from experiments.validation.warning import warnings_of
from experiments.written import write_every
from sysid import store

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Report:
    """An assessment with its residual tests, and everything said about it."""

    assessment: Assessment
    residuals: Residuals
    warnings: list[str]
    content: dict[str, Any]  # of validation.json


def report_of(assessment: Assessment, notes: Sequence[str] = ()) -> Report:
    """Test the residuals and put everything into numbers and words; `notes` join the warnings."""
    residuals = residuals_of(assessment)
    warnings = [*warnings_of(assessment), *notes]
    return Report(assessment, residuals, warnings, content_of(assessment, residuals, warnings))


def write(report: Report, folder: Path, attributes: Mapping[str, Any], *, figures: bool) -> None:
    """Write validation.json, validation.nc and, of each output, a page of figures.

    Everything is computed before the first file is written.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; the others are there.
    """
    write_every(writers(report, folder, attributes, figures=figures))


def writers(
    report: Report, folder: Path, attributes: Mapping[str, Any], *, figures: bool
) -> list[Callable[[], object]]:
    """One call per file."""
    text = json.dumps(report.content, indent=2, allow_nan=False)
    groups = groups_of(report.assessment, report.residuals)
    pages = _pages(report) if figures else {}
    return [
        lambda: store.write_bytes(text.encode(), folder / "validation.json"),
        lambda: store.write_groups(groups, folder / "validation.nc", kind="validation", attributes=attributes),
        *(lambda name=name, page=page: store.write_bytes(page, folder / f"{name}.png") for name, page in pages.items()),
    ]


def _pages(report: Report) -> dict[str, bytes]:
    """PNG files by name; matplotlib is imported only here."""
    from experiments.plots.style import png
    from experiments.validation.figure import page
    from experiments.validation.loop_figure import loop_page

    assessment = report.assessment
    single = len(assessment.outputs) == 1
    pages = {
        "validation" if single else f"validation_{name}": png(page(assessment, report.residuals, name))
        for name in assessment.outputs
    }
    if assessment.loop is not None:
        pages["closed_loop"] = png(loop_page(assessment, assessment.loop))
    return pages


def tell(report: Report, folder: Path) -> None:
    """Log tables, residual tests, warnings and the folder."""
    assessment = report.assessment
    material = assessment.material
    n, kind = len(material.records), type(assessment.propagation).__name__
    log.info(
        "%s, %s: %s, %s samples; uncertainty by %s",
        material.title,
        material.part,
        "1 record" if n == 1 else f"{n} records",
        material.n_samples,
        kind,
    )
    for name in assessment.outputs:
        log.info("%s; columns 50 %%, 90 %%, 95 %%: samples that the bands cover, in percent", name)
        for line in table(assessment, name):
            log.info("%s", line)
        for line in report.residuals.lines(name):
            log.info("%s", line)
    _tell_loop(report)
    for warning in report.warnings:
        log.warning("Note: %s", warning)
    log.info("Results: %s", folder)


def _tell_loop(report: Report) -> None:
    loop = report.content["closed_loop"]
    if loop is None:
        return
    for name, score in (loop["outputs"] | loop["inputs"]).items():
        unit = report.assessment.error_unit(name)
        error, fit = ("diverges" if score[key] is None else f"{score[key]:.4g}" for key in ("rmse", "fit_percent"))
        log.info(
            "Loop around the model against the loop around the plant, %s: RMSE %s %s, fit %s %%", name, error, unit, fit
        )
