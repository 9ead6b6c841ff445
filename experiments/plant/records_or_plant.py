"""The test data of a configuration: records, or a plant to simulate."""

from omegaconf import DictConfig

from experiments.plant.plant import Plant, plant_of
from experiments.plant.recorded import recordings_of
from sysid import Recordings
from sysid.errors import UserError


def records_or_plant(config: DictConfig) -> Recordings | Plant:
    """Return the configured records, or else the configured plant.

    Raises
    ------
    ValueError, OSError
        If there is neither, or if the source or the plant refuses its settings.
    """
    if "_target_" in config.data:
        return recordings_of(config)
    if "_target_" not in config.system:
        raise UserError(
            "nothing to validate on: choose records with data=..., or a plant with system=..."
        )
    return plant_of(config)
