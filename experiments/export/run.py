"""One run of `sysid-export`: write a stored model in a form that runs without the toolbox."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from experiments.cli.build import model_of, trusted_names
from experiments.cli.options import flag
from experiments.export.c_drift import physics_as_c
from experiments.export.casadi_physics import casadi_physics_text
from experiments.export.standalone_physics import physics_text
from experiments.plant.physics import FittedPhysics, read_physics
from sysid import JointModel, Model, export_c, export_casadi, export_python
from sysid.errors import UserError
from sysid.model.model_file import read_models
from sysid.store import header

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportSettings:
    """Which model is exported, to which file, and in which format."""

    model: Path  # file of the model
    output: Path  # file to write
    trusted: tuple[str, ...]  # modules and classes of the user that the file of the model may name
    format: Format
    learns: bool  # whether an exported C file learns
    precision: str  # of an exported C file: double or float


class Format(NamedTuple):
    """A form in which a model is written."""

    description: str  # completes "Export MODEL as ..."
    endings: tuple[str, ...]  # of the names of all files that it writes; the first is the output
    #: writes the files of a model and of the physics beside it (None: there is none), and returns
    #: what the user can do next
    write: Callable[[Model | JointModel, FittedPhysics | None, ExportSettings], str]


def write_numpy(
    model: Model | JointModel, physics: FittedPhysics | None, settings: ExportSettings
) -> str:
    """Write one Python file that needs NumPy only."""
    text = {} if physics is None else physics_text(physics)
    written = export_python(model, settings.output, **text)
    return f"{written}; next: python {settings.output} checks it"


def write_casadi(
    model: Model | JointModel, physics: FittedPhysics | None, settings: ExportSettings
) -> str:
    """Write one Python file that builds functions of CasADi."""
    text = {} if physics is None else casadi_physics_text(physics)
    written = export_casadi(model, settings.output, **text)
    return f"{written}; next: python {settings.output} checks it"


def write_c(
    model: Model | JointModel, physics: FittedPhysics | None, settings: ExportSettings
) -> str:
    """Write a C file and its header."""
    first = model if isinstance(model, Model) else model.models[0]
    addition = None
    if physics is not None:
        addition = physics_as_c(physics, first.narx.input_names, precision=settings.precision)
    written = export_c(
        model,
        settings.output,
        learn=settings.learns,
        precision=settings.precision,
        addition=addition,
    )
    log.info(
        "It needs %s of read-only memory for its numbers and some %s for its code, %s for its "
        "state, and some %s of stack",
        _kilobytes(written.constant_bytes),
        "15 kB" if settings.learns else "5 kB",
        _kilobytes(written.state_bytes),
        _kilobytes(written.stack_bytes),
    )
    check = f"cc {written.source} -DSYSID_TEST -lm && ./a.out checks it"
    if written.deviation is None:
        why = "there is no C compiler here" if written.compiler is None else "it takes minutes"
        return f"{written.source}, not checked, as {why}; next: {check}"
    log.info(
        "%s compiled it: it deviates from the model by %.1e standard deviations of the output",
        written.compiler,
        written.deviation,
    )
    return f"{written.source} and {written.header.name}; next: {check}"


def _kilobytes(n_bytes: int) -> str:
    return f"{n_bytes} bytes" if n_bytes < 1000 else f"{n_bytes / 1000:.1f} kB"


#: Formats by their names in the configuration. A new format is added here.
FORMATS = {
    "numpy": Format("one Python file that needs NumPy only", (".py",), write_numpy),
    "casadi": Format("one Python file of functions of CasADi", (".py",), write_casadi),
    "c": Format("C99 that needs its mathematics only", (".c", ".h"), write_c),
}


def run(config: DictConfig, folder: Path) -> None:
    """Write the model of the configuration to its output, or to the folder of the run.

    Raises
    ------
    ValueError
        No model is named, it cannot be exported, the format is not known, or the output exists.
    sysid.StoreError
        The model cannot be read, or the files cannot be written.
    """
    settings = read_settings(config, folder)
    log.info("Export %s as %s", settings.model, settings.format.description)
    has_one_output = "" in read_models(settings.model)
    kind = Model if has_one_output else JointModel
    model = kind.load(settings.model, trusted=settings.trusted)
    attributes = header(settings.model)
    physics = None
    if "physics" in attributes:
        physics = read_physics(str(attributes["physics"]), list(settings.trusted))
    log.info("Exported: %s", settings.format.write(model, physics, settings))


def read_settings(config: DictConfig, folder: Path) -> ExportSettings:
    """Read and check the configuration; without an output the file goes into the folder of the run.

    Raises
    ------
    ValueError
        No model is named, the format is not known, or a file that it writes exists.
    """
    name = str(config.format)
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise UserError(f"format must be one of {known}, got {name}")
    form = FORMATS[name]
    source = model_of(config)
    path = folder / source.stem if config.output is None else Path(str(config.output))
    if config.output is None:
        path = path.with_name(f"{source.stem}{form.endings[0]}")
    overwrite = flag("overwrite", config.overwrite)
    for written in (path, *map(path.with_suffix, form.endings[1:])):
        if written.exists() and not overwrite:
            raise UserError(f"output: {written} exists; name another file, or set overwrite=true")
    learns = flag("learn", config.learn)
    if name != "c" and (learns or config.precision != "double"):
        raise UserError(f"learn and precision belong to format=c, got format={name}")
    return ExportSettings(
        source, path, tuple(trusted_names(config)), form, learns, str(config.precision)
    )
