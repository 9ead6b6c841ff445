"""How the tests make a benchmark folder, and how they run what is in it without the toolbox."""

import importlib.util
import io
import json
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
import running
from omegaconf import OmegaConf

from sysid.store import read_groups

LENGTHS = {"estimation": 300, "validation": 80, "test": 150}
WINDOW = 10
SHORT = (
    *(f"{role}={n}" for role, n in LENGTHS.items()),
    f"initialisation_window={WINDOW}",
    "training.n_initial=20",
    "training.restarts=1",
    "budget=15",
    "noise_paths=20",
    "figures=false",
)
#: a plant in open loop with measurement noise only, and one in closed loop with process noise only
BOUC_WEN = ("system=bouc_wen", "excitation.band=[5,150]", "excitation.rms=50", "noise.snr_db=40")
BUILDING = ("system=building",)
configured = partial(running.configured, command="generate")


def generate(folder, *overrides, trusted=(), **nodes):
    """Make a short benchmark in this process; `nodes` replace parts of the configuration. Returns its folder."""
    from experiments.generation.run import run

    config = OmegaConf.create(OmegaConf.to_container(configured(*SHORT, f"output={folder}", *overrides)))
    for name, node in nodes.items():
        config[name] = node
    run(config, Path(folder).parent, trusted=trusted)
    return Path(folder)


def groups(folder, kind):
    """Records of a NetCDF file of a benchmark folder by the name of their group."""
    return read_groups(folder / f"{kind}.nc", kind=kind)


def scores(folder):
    return json.loads((folder / "scores.json").read_text())


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def score(folder, *arguments):
    """Run the scoring script of a folder in this process: exit code, stdout and stderr as a process has them."""
    place = importlib.util.spec_from_file_location("score_of_a_folder", folder / "score.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    said, complained = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complained):
        try:
            code = module.main([str(argument) for argument in arguments])
        except SystemExit as end:  # of argparse
            code = end.code
    return subprocess.CompletedProcess(arguments, code, said.getvalue(), complained.getvalue())


def scored(folder, *arguments):
    """What the scoring script prints as JSON."""
    process = score(folder, *arguments, "--json")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)
