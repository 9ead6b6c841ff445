"""Composition of the configuration of a command while another command runs."""

from collections.abc import Sequence

import hydra
from omegaconf import DictConfig


def compose(command: str, overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the configuration of a command with these overrides, as on its command line."""
    return hydra.compose(command, overrides=list(overrides))
