"""Export of a stored model to Python."""

import logging
from pathlib import Path

from omegaconf import DictConfig

from experiments.build import trusted_names
from sysid import JointModel, Model, export_python
from sysid.model.model_file import read_models

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> None:
    """Write the model of the configuration to its output, or to the folder of the run.

    Raises
    ------
    ValueError
        No model is named, or it cannot be exported.
    sysid.StoreError
        The model cannot be read, or the file not be written.
    """
    if config.model is None:
        raise ValueError("model: expected the file of a model, model=outputs/identify/.../model.nc")
    source = Path(str(config.model))
    path = folder / f"{source.stem}.py" if config.output is None else Path(str(config.output))
    log.info("Exported: %s", export_python(_load(source, trusted_names(config)), path))


def _load(path: Path, trusted: list[str]) -> Model | JointModel:
    """The one model of a file, which may look at other outputs, too, or the models of all outputs."""
    if "" in read_models(path):
        return Model.load(path, trusted=trusted)
    return JointModel.load(path, trusted=trusted)
