"""How the tests run commands in this process, and how they read the files of a run."""

import contextlib
import io
import itertools
import json
import logging
import signal
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pandas as pd
import xarray as xr
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import open_dict

from experiments.sweeps.composer import Composer
from helpers.kept_configurations import keep_configurations, keep_nothing

keep_configurations()
ROOT = Path(__file__).parents[3]
CONF = ROOT / "conf"
#: names, without their ending, of the NetCDF files of an identification
DATA_FILES = ("trajectory", "narx", "result", "model")

# overrides of a short run that still fills its dictionary and replaces points in it; without a
# linear part, whose runs have tests of their own
DAYS = 10
N_INITIAL = 40
BUDGET = 60
SHORT_RUN = (
    f"duration={DAYS}d",
    f"training.n_initial={N_INITIAL}",
    f"budget={BUDGET}",
    "insertion.error_threshold=0.02",
    "linear_part=none",
    "figures=false",
)
#: overrides of the smallest run that learns something
SMALLEST_RUN = ("training.n_initial=12", "training.restarts=1", "budget=10", "figures=false")
#: for each command or part of a sweep: the overrides that it refuses, and words of the message
REFUSALS = yaml.safe_load(Path(__file__).parents[1].joinpath("refusals.yaml").read_text())
IDENTIFY_COMMAND = (sys.executable, "-m", "experiments.identify")


class CommandResult(NamedTuple):
    """Exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


def run_command(command, *arguments, cwd=".", main=None):
    """Run a command in this process, from its command line, and return a `CommandResult`.

    With `main` this function runs instead of the command's own. What Hydra and the command change
    in the process is undone.
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
        if main is None:
            main = import_module(f"experiments.{command}").main
        try:
            main()
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
    signals_afterwards = {number: signal.getsignal(number) for number in signals}
    assert signals_afterwards == signals, "a command leaves signals as they were"
    return CommandResult(code, out.getvalue(), err.getvalue())


def _make_composer(command):
    """Return a composer of a command."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration(command, [], RunMode.RUN)
    return Composer(loader, master)


@cache
def _kept_composer(command):
    """Return the composer of a command that all tests share.

    It reads the files of each combination of options once, which takes Hydra a tenth of a second.
    """
    return _make_composer(command)


def _compose(composer, overrides):
    """Return the configuration that a composer makes of overrides, without Hydra's part."""
    parsed = composer.parser.parse_overrides(list(overrides))
    configuration = composer.compose(parsed)
    with open_dict(configuration):
        del configuration["hydra"]
    return configuration


def compose_configuration(*overrides, command="identify"):
    """Return the configuration that the command composes of these overrides."""
    return _compose(_kept_composer(command), overrides)


def compose_anew(*overrides, command="identify"):
    """Return what `compose_configuration` returns, with nothing that another test has read."""
    with keep_nothing():
        return _compose(_make_composer(command), overrides)


def run_identify(folder, *overrides):
    """Run an identification in this process; return its folder, which is made."""
    from experiments.identify.run import run

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run(compose_configuration(*overrides), folder)
    return folder


def printed_by(process):
    """Return the output and the error output of a finished process."""
    return process.stdout + process.stderr


def load_summary(folder):
    """Return the content of ``summary.json``."""
    return json.loads((Path(folder) / "summary.json").read_text())


def load_dataset(folder, kind, group=None):
    """Return the data set of a file, or of a group in it, without the checks of the store."""
    with xr.open_dataset(
        Path(folder) / f"{kind}.nc",
        group=group,
        decode_times=False,
        mask_and_scale=False,
    ) as dataset:
        return dataset.load()


def fail_after(samples, n, error):
    """Yield the first `n` samples, then raise `error`."""
    yield from itertools.islice(samples, n)
    raise error


def phase_masks(result):
    """Return the masks of the initial, the online and the validation samples."""
    phase = result["phase"]
    names = phase.attrs["flag_meanings"].split()
    flags = dict(zip(names, phase.attrs["flag_values"], strict=True))
    return tuple(phase.values == flags[name] for name in ("initial", "online", "validation"))


def bytes_of_variables(dataset):
    """Return type, shape and bytes of every variable and coordinate, by its name."""
    content = {}
    for name, variable in dataset.variables.items():
        values = variable.values
        if values.dtype.kind in "OU":  # texts
            values = values.astype(str)
        content[name] = (variable.dtype.str, variable.shape, values.tobytes())
    return content


def list_files(folder):
    """Return the names of all files below a folder, relative to it."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def read_exact_csv(file):
    """Return the table of a CSV file with every number to its last digit.

    Not every version of pandas reads all digits by itself.
    """
    table = pd.read_csv(file, dtype=str)
    for name in table:
        with contextlib.suppress(ValueError):
            table[name] = table[name].astype(object).map(float)
    return table.infer_objects()
