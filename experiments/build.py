"""The one place where configuration becomes objects."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig


def build(config: DictConfig, group: str) -> Any:
    """Object that a group of the configuration describes by its ``_target_``.

    Raises
    ------
    ValueError
        What the object refuses, with the name of the group; also keys that it does not know.
    """
    try:
        return instantiate(config[group], _convert_="all")
    except InstantiationException as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ValueError(f"{group}: {cause}") from error
