"""How the tests run a command: composed as on the command line, in this process or in another."""

import contextlib
import io
import itertools
import json
import logging
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pandas as pd
import xarray as xr
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

ROOT = Path(__file__).parents[3]
CONF = ROOT / "conf"
DATA_FILES = ("trajectory", "narx", "result", "model")

#: a short run that still fills its dictionary and replaces points in it
DAYS = 10
N_INITIAL = 40
BUDGET = 60
SHORT_RUN = (
    f"duration={DAYS}d",
    f"training.n_initial={N_INITIAL}",
    f"budget={BUDGET}",
    "insertion.error_threshold=0.02",
    "figures=false",
)
#: the least that learns something
SMALLEST_RUN = ("training.n_initial=12", "training.restarts=1", "budget=10", "figures=false")
#: what is refused, by what refuses it: overrides, and words
REFUSALS = yaml.safe_load(Path(__file__).parents[1].joinpath("refusals.yaml").read_text())
IDENTIFY_COMMAND = (sys.executable, "-m", "experiments.identify")


class CommandResult(NamedTuple):
    """Exit code of a command, and what a person sees."""

    code: int
    out: str
    err: str


def run_command(command, *arguments, cwd=".", main=None):
    """Run a command, or another main function, as its script does, but in this process; undo what
    it changes there.
    """
    out = io.StringIO()
    err = io.StringIO()
    root = logging.getLogger()
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = root.handlers[:]
    level = root.level
    code = 0
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", [f"sysid-{command}", *map(str, arguments)]),
        mock.patch.object(sys, "path", sys.path[:]),
        mock.patch("experiments.cli.entry.owns_process", return_value=False),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            (main or import_module(f"experiments.{command}").main)()
        except SystemExit as end:
            code = end.code
        finally:
            GlobalHydra.instance().clear()
            HydraConfig.instance().cfg = None
            for handler in {*root.handlers} - {*handlers}:
                handler.close()
            root.handlers = handlers
            root.level = level
            for logger in map(logging.getLogger, list(root.manager.loggerDict)):
                logger.disabled = False
            logging.captureWarnings(False)
            logging.raiseExceptions = True
    assert signals == {number: signal.getsignal(number) for number in signals}, (
        "a command leaves signals as they were"
    )
    return CommandResult(code, out.getvalue(), err.getvalue())


def compose_configuration(*overrides, command="identify", directory=CONF):
    """Configuration as the command composes it."""
    with initialize_config_dir(str(directory), version_base="1.3"):
        return compose(command, overrides=list(overrides))


def run_identify(folder, *overrides):
    """Run in this process into a new folder; returns the folder."""
    from experiments.identify.run import run

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run(compose_configuration(*overrides), folder)
    return folder


def printed_by(process):
    """Everything a person sees."""
    return process.stdout + process.stderr


def load_summary(folder):
    return json.loads((Path(folder) / "summary.json").read_text())


def load_dataset(folder, kind, group=None):
    """Data set of a file, or of a group in it, without the checks of the store."""
    with xr.open_dataset(
        Path(folder) / f"{kind}.nc",
        group=group,
        decode_times=False,
        mask_and_scale=False,
    ) as dataset:
        return dataset.load()


def fail_after(samples, n, error):
    """The first n samples, then an error."""
    yield from itertools.islice(samples, n)
    raise error


def phase_masks(result):
    """Masks of the initial, the online and the validation samples."""
    meanings = result["phase"].attrs["flag_meanings"].split()
    values = dict(zip(meanings, result["phase"].attrs["flag_values"], strict=True))
    return tuple(
        result["phase"].values == values[name] for name in ("initial", "online", "validation")
    )


def bytes_of_variables(dataset):
    """Bytes, type and shape of every variable and coordinate."""

    def plain(values):
        return values.astype(str) if values.dtype.kind in "OU" else values

    return {
        name: (one.dtype.str, one.shape, plain(one.values).tobytes())
        for name, one in dataset.variables.items()
    }


def list_files(folder):
    """Names of all files below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def read_exact_csv(file):
    """A table with every number to its last digit, which not every version of pandas reads by
    itself.
    """
    table = pd.read_csv(file, dtype=str)
    for name in table:
        with contextlib.suppress(ValueError):
            table[name] = table[name].astype(object).map(float)
    return table.infer_objects()
