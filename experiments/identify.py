"""`sysid-identify`: identify a system online while it is simulated, or from a record."""

import hydra
from omegaconf import DictConfig

from experiments.launch import CONF, command, launch


@command
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="identify")
def main(config: DictConfig) -> float | None:
    """Run one identification; returns its SMSE on the validation part."""
    return launch("experiments.identification", config)


if __name__ == "__main__":
    main()
