"""`sysid-collect`: the results of a sweep as one data set, tables and figures."""

import sys

import hydra
from omegaconf import DictConfig

from experiments.collection.argument import with_folder
from experiments.launch import CONF, command, launch


@command
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="collect")
def collect(config: DictConfig) -> None:
    """Collect one sweep."""
    launch("experiments.collection.run", config)


def main() -> None:
    """Collect the sweep whose folder is the first argument."""
    try:
        sys.argv[1:] = with_folder(sys.argv[1:])
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    collect()


if __name__ == "__main__":
    main()
