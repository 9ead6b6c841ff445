"""Write a stored model as one Python file that needs NumPy only."""

import logging
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


def run(config: DictConfig, folder: Path) -> None:
    """Write the model of the configuration to its output, or to the folder of the run.

    Raises
    ------
    ValueError
        No model is named, it cannot be exported, or the output exists.
    sysid.StoreError
        The model cannot be read, or the file not be written.
    """
    source = model_of(config)
    path = folder / f"{source.stem}.py" if config.output is None else Path(str(config.output))
    if path.exists() and not flag("overwrite", config.overwrite):
        raise UserError(f"output: {path} exists; name another file, or say overwrite=true")
    log.info("Export %s as one Python file that needs NumPy only", source)
    trusted = trusted_names(config)
    kind = Model if "" in read_models(source) else JointModel  # one model, or those of all outputs
    model, stated = kind.load(source, trusted=trusted), header(source)
    more = physics_text(read_physics(str(stated["physics"]), trusted)) if "physics" in stated else {}
    log.info("Exported: %s; next: python %s checks it", export_python(model, path, **more), path)
