"""Short benchmarks that `sysid-generate` makes in this process, and how the tests read them."""

import json
import re
import runpy
from functools import cache, partial
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from experiments.generate.run import run
from helpers.commands import compose_configuration, run_command
from sysid import store

#: number of samples of a record by its role
RECORD_LENGTHS = {"estimation": 300, "validation": 80, "test": 150}

#: number of samples at the start of a validation or test record that are not scored
INITIALISATION_WINDOW = 10

SHORT_BENCHMARK = (
    *(f"{role}={n}" for role, n in RECORD_LENGTHS.items()),
    f"initialisation_window={INITIALISATION_WINDOW}",
    "training.n_initial=20",
    "training.restarts=1",
    "budget=15",
    "noise_paths=20",
    "figures=false",
)

#: a plant in open loop with measurement noise and without process noise
BOUC_WEN = (
    "system=bouc_wen",
    "excitation.band=[5,150]",
    "excitation.rms=50",
    "noise.snr_db=40",
)

#: a plant in closed loop with process noise and without measurement noise
BUILDING = ("system=building",)

#: the quickest baseline, for tests that look at none
MEAN_ONLY = "baseline=[mean]"

#: the seed of the `oscillator` benchmark, which no public file may contain
SECRET_SEED = 8_123_456_789_012_345_678


@cache
def compose_benchmark(*overrides):
    """Return the configuration of `sysid-generate`. Its callers share it and do not change it."""
    return compose_configuration(*overrides, command="generate")


def generate(folder, *overrides, trusted=(), **nodes):
    """Make a short benchmark in this process and return its folder.

    `nodes` replace parts of the configuration.
    """
    composed = compose_benchmark(*SHORT_BENCHMARK, *overrides)
    config = OmegaConf.create(OmegaConf.to_container(composed))
    config["output"] = str(folder)
    for name, node in nodes.items():
        config[name] = node
    run(config, Path(folder).parent, trusted=trusted)
    return Path(folder)


def generate_two_rooms(folder, output_lags, *overrides):
    """Make a benchmark of a system of the user with two outputs; return its folder.

    `output_lags` are the numbers of lags by output; None chooses them from the dynamics.
    """
    nodes = {"system": {"_target_": "helpers.systems.TwoRooms", "dt": 0.5}}
    if output_lags is not None:
        narx = {"_target_": "sysid.Narx", "outputs": output_lags, "inputs": {"heat": 1}}
        nodes["narx"] = narx
    return generate(
        folder,
        "system=bouc_wen",  # its open loop; the node `system` replaces the system itself
        "excitation.band=null",
        "excitation.rms=1",
        "noise.snr_db=40",
        "baseline=[persistence,arx]",
        *overrides,
        trusted=["helpers.systems"],
        **nodes,
    )


def read_benchmark(folder, kind):
    """Return the records of a NetCDF file of a benchmark folder by the name of their group."""
    return store.read_groups(folder / f"{kind}.nc", kind=kind)


def read_scores(folder):
    """Return the content of scores.json."""
    return json.loads((folder / "scores.json").read_text())


def read_card(folder):
    """Return the text of the card, without the padding of its tables."""
    return re.sub(r" +\|", " |", (folder / "CARD.md").read_text())


def run_score_script(folder, *arguments):
    """Run the scoring script of a folder in this process, as its command line does."""
    script = partial(runpy.run_path, str(folder / "score.py"), run_name="__main__")
    return run_command("score", *arguments, main=script)


def score_as_json(folder, *arguments):
    """Return what the scoring script prints as JSON."""
    result = run_score_script(folder, *arguments, "--json")
    assert result.code == 0, result
    return json.loads(result.out)


def rms(values):
    """Return the root mean square of all values."""
    return float(np.sqrt(np.mean(np.square(values))))
