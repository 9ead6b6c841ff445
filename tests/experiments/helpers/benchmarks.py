"""Short benchmarks that `sysid-generate` makes in this process."""

from functools import partial
from pathlib import Path

from omegaconf import OmegaConf

from experiments.generate.run import run
from helpers.commands import compose_configuration

RECORD_LENGTHS = {"estimation": 300, "validation": 80, "test": 150}

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

#: a plant in open loop with measurement noise only, and one in closed loop with process noise only
BOUC_WEN = (
    "system=bouc_wen",
    "excitation.band=[5,150]",
    "excitation.rms=50",
    "noise.snr_db=40",
)

compose_benchmark = partial(compose_configuration, command="generate")


def generate(folder, *overrides, trusted=(), **nodes):
    """Make a short benchmark in this process; `nodes` replace parts of the configuration. Returns
    its folder.
    """
    config = OmegaConf.create(
        OmegaConf.to_container(compose_benchmark(*SHORT_BENCHMARK, f"output={folder}", *overrides))
    )
    for name, node in nodes.items():
        config[name] = node
    run(config, Path(folder).parent, trusted=trusted)
    return Path(folder)
