"""`sysid-export`: a stored model as one Python file that needs NumPy only."""

import logging
from pathlib import Path

from omegaconf import DictConfig

from experiments.launch import entry

log = logging.getLogger(__name__)
main = entry("export", "experiments.export")


def run(config: DictConfig, folder: Path) -> None:
    """Write the model of the configuration to its output, or to the folder of the run.

    Raises
    ------
    ValueError
        No model is named, it cannot be exported, or the output exists.
    sysid.StoreError
        The model cannot be read, or the file not be written.
    """
    from experiments.build import trusted_names
    from experiments.options import flag
    from sysid import JointModel, Model, export_python
    from sysid.model.model_file import read_models

    if config.model is None:
        raise ValueError("model: expected the file of a model, model=outputs/identify/.../model.nc")
    source = Path(str(config.model))
    path = folder / f"{source.stem}.py" if config.output is None else Path(str(config.output))
    if path.exists() and not flag("overwrite", config.overwrite):
        raise ValueError(f"output: {path} exists; name another file, or say overwrite=true")
    trusted = trusted_names(config)
    kind = Model if "" in read_models(source) else JointModel  # one model, or those of all outputs
    log.info("Exported: %s", export_python(kind.load(source, trusted=trusted), path))


if __name__ == "__main__":
    main()
