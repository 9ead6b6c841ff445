"""Hydra parses each file of the configuration once, and copies of a configuration cost little.

Hundreds of tests compose a configuration. Hydra parses some thirty files for each, and OmegaConf
copies a configuration node by node; a pickled one is read back in a tenth of that time.
"""

import os
import pickle
from contextlib import contextmanager
from unittest import mock

from omegaconf import OmegaConf

from experiments.sweeps import composer

ORIGINAL_LOAD = OmegaConf.load
ORIGINAL_COPY = composer.deepcopy

_pickled_files = {}
_pickled_configurations = {}


def _load_kept(file):
    """Return the content of a file; an open one that is as it was is not parsed again.

    Only Hydra hands over open files.
    """
    if not hasattr(file, "fileno"):
        return ORIGINAL_LOAD(file)
    state = os.fstat(file.fileno())
    key = (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
    if key not in _pickled_files:
        _pickled_files[key] = pickle.dumps(ORIGINAL_LOAD(file))
    return pickle.loads(_pickled_files[key])


def _copy_kept(configuration):
    """Return a copy of a configuration that a composer keeps and does not change."""
    key = id(configuration)
    if key not in _pickled_configurations:
        # the configuration is held too, so that no other one gets its id
        _pickled_configurations[key] = pickle.dumps(configuration), configuration
    pickled, _ = _pickled_configurations[key]
    return pickle.loads(pickled)


def keep_configurations():
    """Let Hydra and the composer of sweeps keep what they read, until this process ends."""
    OmegaConf.load = _load_kept
    composer.deepcopy = _copy_kept


@contextmanager
def keep_nothing():
    """Load and copy configurations inside of this context as Hydra and OmegaConf do it."""
    with (
        mock.patch.object(OmegaConf, "load", ORIGINAL_LOAD),
        mock.patch.object(composer, "deepcopy", ORIGINAL_COPY),
    ):
        yield
