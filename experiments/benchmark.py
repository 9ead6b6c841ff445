"""`sysid-benchmark`: measure every speed and accuracy claim of the toolbox."""

import hydra
from omegaconf import DictConfig

from experiments.launch import CONF, command, launch


@command
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="benchmark")
def main(config: DictConfig) -> float | None:
    """Run the benchmarks; the exit code does not depend on the times."""
    return launch("experiments.benchmarks.session", config)


if __name__ == "__main__":
    main()
