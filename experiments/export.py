"""`sysid-export`: a stored model as one Python file that needs NumPy only."""

import hydra
from omegaconf import DictConfig

from experiments.launch import CONF, command, launch


@command
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="export")
def main(config: DictConfig) -> float | None:
    """Export one model."""
    return launch("experiments.exportation", config)


if __name__ == "__main__":
    main()
