"""How the tests run `sysid-reproduce`: quick sizes, in this process or in another."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hydra import compose, initialize_config_dir

from experiments.studies.report import compute_job
from experiments.studies.stream import QUANTITIES
from experiments.studies.study import Plan, Unit
from experiments.studies.tasks import TASKS

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "experiments.reproduce", "output=results", "quick=true", "figures=false")


def configure(*overrides):
    """Configuration as the command composes it."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("reproduce", overrides=list(overrides))


def make_plan(folder, *tasks, **changes):
    """Plan of a quick run, of any version of the code."""
    return replace(Plan(Path(folder), tasks, code="some").shorten(), **changes)


def outcome(**values):
    """Quantities of a stream, 0 where nothing is said."""
    found = dict.fromkeys(QUANTITIES, 0.0) | values
    return found | {"accepted_percent": 100.0 * found["n_revised"] / max(found["n_inserted"], 1)}


def cells_of(text):
    """Cells of the lines of a Markdown table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def prepare(plan):
    """Keep the rows and the hyper-parameters of all tasks and seeds."""
    for task in plan.tasks:
        units = [Unit("preparation", task, seed) for seed in TASKS[task].seeds(plan.seeds)]
        compute_job((*units, Unit("calibration", task)), plan)
    return plan


def start(folder, *overrides, **changes):
    """The command in a process of its own, from another working directory."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | changes
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*COMMAND, *overrides], cwd=folder, env=environment, **streams)


def command(folder, *overrides, **changes):
    """Run the command to its end: exit code, and everything a person sees."""
    process = start(folder, *overrides, **changes)
    try:
        text, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, text
