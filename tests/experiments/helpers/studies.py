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
    """Return the plan of a quick run, as of some version of the code."""
    return replace(Plan(Path(folder), tasks, code="some").shorten(), **changes)


def stream_outcome(**values):
    """Return the quantities of a stream; those that are not given are 0."""
    quantities = dict.fromkeys(STREAM_QUANTITIES, 0.0) | values
    n_inserted = max(quantities["n_inserted"], 1)
    return quantities | {"accepted_percent": 100.0 * quantities["n_revised"] / n_inserted}


def table_cells(text):
    """Return the cells of each line of a Markdown table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def prepare_units(plan, *studies):
    """Compute and keep rows and hyper-parameters of all tasks and seeds, and units of studies."""
    for task in plan.tasks:
        seeds = STUDY_TASKS[task].seeds(plan.seeds)
        for name in ("preparation", "calibration", *studies):
            for seed in seeds if name != "calibration" else (0,):
                compute_unit(Unit(name, task, seed), plan)
    return plan
