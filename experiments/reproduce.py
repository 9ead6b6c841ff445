"""`sysid-reproduce`: every table and figure of the paper, beside the published numbers."""

import hydra
from omegaconf import DictConfig

from experiments.launch import CONF, command, launch


@command
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="reproduce")
def main(config: DictConfig) -> float | None:
    """Run the chosen studies; what an interrupted run has kept is not computed again."""
    return launch("experiments.reproduction", config)


if __name__ == "__main__":
    main()
