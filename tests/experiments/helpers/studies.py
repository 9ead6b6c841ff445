"""How the tests run `sysid-reproduce`: quick sizes, unit by unit in this process."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.reproduce.run import compute_unit
from experiments.reproduce.stream import STREAM_QUANTITIES
from experiments.reproduce.study import Plan, Unit
from experiments.reproduce.tasks import STUDY_TASKS
from helpers.commands import compose_configuration

compose_study = partial(compose_configuration, command="reproduce")


def make_plan(folder, *tasks, **changes):
    """Plan of a quick run, of any version of the code."""
    return replace(Plan(Path(folder), tasks, code="some").shorten(), **changes)


def stream_outcome(**values):
    """Quantities of a stream, 0 where nothing is said."""
    found = dict.fromkeys(STREAM_QUANTITIES, 0.0) | values
    return found | {"accepted_percent": 100.0 * found["n_revised"] / max(found["n_inserted"], 1)}


def table_cells(text):
    """Cells of the lines of a Markdown table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def prepare_units(plan, *studies):
    """Keep the rows and the hyper-parameters of all tasks and seeds, and the units of studies."""
    for task in plan.tasks:
        seeds = STUDY_TASKS[task].seeds(plan.seeds)
        for name in ("preparation", "calibration", *studies):
            for seed in seeds if name != "calibration" else (0,):
                compute_unit(Unit(name, task, seed), plan)
    return plan
