"""How the tests run `sysid-reproduce`: quick sizes, in this process or in another."""

import os
import subprocess
import sys
from pathlib import Path

from hydra import compose, initialize_config_dir

from experiments.studies.plan import Plan

CONF = Path(__file__).parents[2] / "conf"
COMMAND = (sys.executable, "-m", "experiments.reproduce")
ROOT = Path(__file__).parents[2]


def configured(*overrides):
    """Configuration as the command composes it."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("reproduce", overrides=list(overrides))


def quick_plan(folder, *tasks, **changes):
    """Plan of a quick run."""
    from dataclasses import replace

    return replace(Plan(Path(folder), tasks).quickened(), **changes)


def command(folder, *overrides, **options):
    """Run the command in a process of its own, from another working directory."""
    return subprocess.run(
        [*COMMAND, "output=results", "quick=true", "figures=false", *overrides],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def environment(**changes):
    """Environment in which the packages of the checkout are found."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | changes


def said(process):
    """Everything a person sees."""
    return process.stdout + process.stderr
