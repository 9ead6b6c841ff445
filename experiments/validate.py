"""`sysid-validate`: how good a stored model predicts and simulates records, or a simulated plant."""

import hydra
from omegaconf import DictConfig

from experiments.launch import CONF, command, launch


@command
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="validate")
def main(config: DictConfig) -> float | None:
    """Run one validation; returns the free-run RMSE of the first output."""
    return launch("experiments.validation.run", config)


if __name__ == "__main__":
    main()
