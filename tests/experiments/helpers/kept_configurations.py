"""Hydra composes each combination of options once, and copies of a configuration cost little.

Hundreds of tests compose a configuration. Hydra parses some thirty files for each and merges them,
and a command composes more than once. OmegaConf copies a configuration node by node; a pickled one
is read back in a tenth of that time. There are some thirty different interpolations (``${...}``).

What is kept counts as long as no file of the configuration changes.
"""

import os
import pickle
from contextlib import contextmanager
from functools import cache
from unittest import mock

from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf, base

from experiments.sweeps import composer

ORIGINAL_LOAD = OmegaConf.load
ORIGINAL_COPY = composer.deepcopy
ORIGINAL_PARSE = base.parse
ORIGINAL_CHOOSE = config_loader_impl.create_defaults_list
ORIGINAL_MAP = defaults_list._create_interpolation_map
ORIGINAL_MERGE = ConfigLoaderImpl._compose_config_from_defaults_list

_pickled_files = {}
_pickled_configurations = {}
_pickled_choices = {}
_pickled_merged = {}


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


def _state_of_store(content, path=()):
    """Yield the path of every configuration that classes define, and which object it is."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _state_of_store(value, (*path, name))
        else:
            yield (*path, name, id(value))


def _state_of(repository):
    """Return what identifies the content of all sources of a configuration."""
    state = list(_state_of_store(ConfigStore.instance().repo))
    for source in repository.get_sources():
        state.append((source.provider, source.path, source.scheme()))
        if source.scheme() == "file" and os.path.isdir(source.path):
            state += _state_of_folder(source.path)
    return tuple(state)


def _state_of_folder(folder):
    """Yield what identifies the content of every file in a folder and those below it."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _state_of_folder(entry.path)
        else:
            stat = entry.stat()
            yield entry.path, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _choose_kept(repo, config_name, overrides_list, prepend_hydra, skip_missing):
    """Return the files of a configuration as Hydra chooses them, in the order of their merging."""
    lines = [item.input_line for item in overrides_list if repo.group_exists(item.key_or_group)]
    key = (config_name, prepend_hydra, skip_missing, *lines, _state_of(repo))
    overrides = Overrides(repo=repo, overrides_list=overrides_list)
    if key not in _pickled_choices:
        chosen = ORIGINAL_CHOOSE(
            repo=repo,
            config_name=config_name,
            overrides_list=overrides_list,
            prepend_hydra=prepend_hydra,
            skip_missing=skip_missing,
        )
        _pickled_choices[key] = pickle.dumps((chosen.defaults, chosen.overrides.known_choices))
    defaults, overrides.known_choices = pickle.loads(_pickled_choices[key])
    return DefaultsList(
        defaults=defaults,
        defaults_tree=None,
        config_overrides=overrides.config_overrides,
        overrides=overrides,
    )


def _map_if_needed(overrides, options, self_added):
    """Return the choices by which Hydra resolves interpolations in a list of options, if any.

    Hydra makes a configuration of all choices for each file, a fifth of the time of composing.
    """
    if any(option.is_interpolation() for option in options):
        return ORIGINAL_MAP(overrides, options, self_added)
    return None


def _merge_kept(self, defaults, repo):
    """Return the configuration that Hydra merges from files."""
    files = [(item.config_path, item.package, item.parent, item.is_self) for item in defaults]
    key = (*files, _state_of(repo))
    if key not in _pickled_merged:
        _pickled_merged[key] = pickle.dumps(ORIGINAL_MERGE(self, defaults, repo))
    return pickle.loads(_pickled_merged[key])


def keep_configurations():
    """Let Hydra and the composer of sweeps keep what they read, until this process ends."""
    OmegaConf.load = _load_kept
    composer.deepcopy = _copy_kept
    base.parse = cache(ORIGINAL_PARSE)
    config_loader_impl.create_defaults_list = _choose_kept
    defaults_list._create_interpolation_map = _map_if_needed
    ConfigLoaderImpl._compose_config_from_defaults_list = _merge_kept


@contextmanager
def keep_nothing():
    """Load and copy configurations inside of this context as Hydra and OmegaConf do it."""
    with (
        mock.patch.object(OmegaConf, "load", ORIGINAL_LOAD),
        mock.patch.object(composer, "deepcopy", ORIGINAL_COPY),
        mock.patch.object(base, "parse", ORIGINAL_PARSE),
        mock.patch.object(config_loader_impl, "create_defaults_list", ORIGINAL_CHOOSE),
        mock.patch.object(defaults_list, "_create_interpolation_map", ORIGINAL_MAP),
        mock.patch.object(ConfigLoaderImpl, "_compose_config_from_defaults_list", ORIGINAL_MERGE),
    ):
        yield
