"""What a configuration gives to judge models on: records, or a plant to simulate."""

from omegaconf import DictConfig

from experiments.plant.plant import Plant, plant_of
from experiments.plant.recorded import recordings_of
from sysid import Recordings
from sysid.errors import UserError


def records_or_plant(config: DictConfig) -> Recordings | Plant:
    """Read the configured records, or build the configured plant.

    Raises
    ------
    ValueError, OSError
        Whatever the source or the plant refuses; neither data nor system.
    """
    if "_target_" in config.data:
        return recordings_of(config)
    if "_target_" not in config.system:
        advice = "choose records with data=..., or a plant with system=..."
        raise UserError(f"nothing to validate on: {advice}")
    return plant_of(config)
