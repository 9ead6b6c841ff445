"""`sysid-generate`: a benchmark folder that others can use without this toolbox."""

import hydra
from omegaconf import DictConfig

from experiments.launch import CONF, command, launch


@command
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="generate")
def main(config: DictConfig) -> float | None:
    """Simulate, write the folder; returns the free-run noise floor of the first output."""
    return launch("experiments.generation", config)


if __name__ == "__main__":
    main()
