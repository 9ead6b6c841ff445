"""How the tests run an identification: composed as on the command line, in this process or in another."""

import json
import sys
from pathlib import Path

import xarray as xr
from hydra import compose, initialize_config_dir

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
DATA = ("trajectory", "narx", "result", "model")

#: a short run that still fills its dictionary and replaces points in it
DAYS, N_INITIAL, BUDGET = 10, 40, 60
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
