"""Export of a stored model to Python."""

import logging
from pathlib import Path

from omegaconf import DictConfig

from sysid.export import export_python
from sysid.joint import JointModel
from sysid.model import Model
from sysid.store import StoreError

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> None:
    """Write the model of the configuration to its output, or to the folder of the run.

    Raises
    ------
    ValueError
        No model is named, or it cannot be exported.
    sysid.store.StoreError
        The model cannot be read, or the file not be written.
    """
    if config.model is None:
        raise ValueError("model: expected the file of a model, model=outputs/identify/.../model.nc")
    source = Path(str(config.model))
    path = folder / f"{source.stem}.py" if config.output is None else Path(str(config.output))
    log.info("Exported: %s", export_python(_loaded(source), path))


def _loaded(path: Path) -> Model | JointModel:
    """Models of all outputs, or the one model of a file that looks at other outputs, too."""
    try:
        return JointModel.load(path)
    except StoreError:
        return Model.load(path)
