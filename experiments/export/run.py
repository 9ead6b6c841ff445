"""One run of `sysid-export`: write a stored model as one Python file that needs NumPy only."""

import logging
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from experiments.cli.build import model_of, trusted_names
from experiments.cli.options import flag
from experiments.export.standalone_physics import physics_text
from experiments.plant.physics import read_physics
from sysid import JointModel, Model, export_python
from sysid.errors import UserError
from sysid.model.model_file import read_models
from sysid.store import header

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportSettings:
    """Which model is exported, and to which file."""

    model: Path  # file of the model
    output: Path  # Python file to write
    trusted: tuple[str, ...]  # modules and classes of the user that the file of the model may name


def run(config: DictConfig, folder: Path) -> None:
    """Write the model of the configuration to its output, or to the folder of the run.

    Raises
    ------
    ValueError
        No model is named, it cannot be exported, or the output exists.
    sysid.StoreError
        The model cannot be read, or the Python file cannot be written.
    """
    settings = read_settings(config, folder)
    log.info("Export %s as one Python file that needs NumPy only", settings.model)
    has_one_output = "" in read_models(settings.model)
    kind = Model if has_one_output else JointModel
    model = kind.load(settings.model, trusted=settings.trusted)
    attributes = header(settings.model)
    physics = {}
    if "physics" in attributes:
        fitted = read_physics(str(attributes["physics"]), list(settings.trusted))
        physics = physics_text(fitted)
    written = export_python(model, settings.output, **physics)
    log.info("Exported: %s; next: python %s checks it", written, settings.output)


def read_settings(config: DictConfig, folder: Path) -> ExportSettings:
    """Read and check the configuration; without an output the file goes into the folder of the run.

    Raises
    ------
    ValueError
        No model is named, or the output exists.
    """
    source = model_of(config)
    path = folder / f"{source.stem}.py" if config.output is None else Path(str(config.output))
    if path.exists() and not flag("overwrite", config.overwrite):
        raise UserError(f"output: {path} exists; name another file, or set overwrite=true")
    return ExportSettings(source, path, tuple(trusted_names(config)))
