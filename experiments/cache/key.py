"""What a shared result depends on, as one digest."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from experiments.code_version import code_digest, file_digests

#: keys of the configuration that make a simulated plant
PLANT = (
    *("system", "controller", "weather", "weather_input", "excitation", "excitations", "excited", "operating_point"),
    *("noise", "interpolation"),
)
#: keys of the configuration whose classes make the start of a model
LEARNING = ("training", "kernel", "mean", "narx")


def key_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of numbers, texts, lists and dicts; other values count by their `repr`."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def trajectory_key(config: DictConfig, n_samples: int) -> str:
    """Key of a simulated trajectory: the plant, the content of its files, the code, the seed, the samples."""
    plant = part_of(config, PLANT)
    return key_of(
        {
            "plant": plant,
            "n_samples": n_samples,
            "seed": config.seed,
            "files": file_digests(plant),
            "code": code_digest(plant),
        }
    )


def learning_code(config: DictConfig) -> str:
    """Digest of the code that trains."""
    return code_digest(part_of(config, LEARNING))


def part_of(config: DictConfig, names: tuple[str, ...]) -> dict[str, Any]:
    """Nodes of a configuration, resolved, as dicts and lists."""
    values = {name: config[name] for name in names}
    return {
        name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for name, value in values.items()
    }


def array_digest(*arrays: np.ndarray) -> str:
    """SHA-256 of the types, shapes and bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()
