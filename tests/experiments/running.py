"""How the tests run an identification: composed as on the command line, in this process or in another."""

import json
import subprocess
import sys
from pathlib import Path

import xarray as xr
from hydra import compose, initialize_config_dir
from numba import config as numba_config

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
PLAIN = bool(numba_config.DISABLE_JIT)
DATA = ("trajectory", "narx", "result", "model")
FIGURES = ("signals", "prediction", "dictionary", "error")

#: a short run that still fills its dictionary and replaces points in it
DAYS, N_INITIAL, BUDGET = (2, 20, 24) if PLAIN else (10, 40, 60)
SHORT = (
    f"duration={DAYS}d",
    f"training.n_initial={N_INITIAL}",
    f"budget={BUDGET}",
    "insertion.error_threshold=0.02",
    "figures=false",
)
COMMAND = (sys.executable, "-m", "experiments.identify")


def configured(*overrides, command="identify", directory=CONF):
    """Configuration as the command composes it."""
    with initialize_config_dir(str(directory), version_base="1.3"):
        return compose(command, overrides=list(overrides))


def execute(folder, *overrides):
    """Run in this process into a new folder; returns the folder."""
    from experiments.identification import run

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run(configured(*overrides), folder)
    return folder


def command(folder, *overrides, **options):
    """Run the command in a process of its own, from a foreign working directory, into a folder."""
    return subprocess.run(
        [*COMMAND, f"hydra.run.dir={folder}", *overrides],
        cwd=Path(folder).parent,
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def said(process):
    """Everything a person sees."""
    return process.stdout + process.stderr


def summary_of(folder):
    return json.loads((Path(folder) / "summary.json").read_text())


def data_of(folder, kind):
    """Data set of a file, without the checks of the store."""
    with xr.open_dataset(Path(folder) / f"{kind}.nc", decode_times=False, mask_and_scale=False) as dataset:
        return dataset.load()


def phases(result):
    """Masks of the initial, the online and the validation samples."""
    meanings = result["phase"].attrs["flag_meanings"].split()
    values = dict(zip(meanings, result["phase"].attrs["flag_values"], strict=True))
    return tuple(result["phase"].values == values[name] for name in ("initial", "online", "validation"))


def bits(dataset):
    """Bytes, type and shape of every variable and coordinate."""
    return {
        name: (variable.dtype.str, variable.shape, variable.values.astype(str).tolist())
        if variable.dtype.kind in "OU"
        else (variable.dtype.str, variable.shape, variable.values.tobytes())
        for name, variable in dataset.variables.items()
    }
