"""What computes: a digest of the source, of the packages, and of the files that a configuration names."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf

import experiments
import simulators
import sysid
from sysid.store import PACKAGES, package_versions

OWN = (sysid, simulators, experiments)
#: top-level packages whose version stands in the digest already, with that of Python
VERSIONED = frozenset({*PACKAGES, *(package.__name__ for package in OWN), *sys.stdlib_module_names})
UNREADABLE = "unreadable"


def code_digest(configuration: Any = None) -> str:
    """SHA-256 of everything that computes: equal digests compute the same numbers from the same settings.

    These are all modules of the toolbox, the versions of Python and of the packages that decide the numbers, and the
    modules of others that a configuration names in a ``_target_``: the whole package that such a module lies
    in, or the one file of a module that lies in none (not what this file imports).

    Parameters
    ----------
    configuration : mapping or DictConfig, optional
        Its node ``hydra`` does not count: it says how a job is run, not what it computes.
    """
    found = {"toolbox": _own_digest(), "packages": package_versions()}
    foreign = {target.partition(".")[0] for target in _targets(_plain(configuration))} - VERSIONED
    found |= {f"module {name}": _module_digest(name) for name in sorted(foreign)}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def file_digests(configuration: Any) -> dict[str, str]:
    """SHA-256 of the content of every file that a text in a configuration names, by that text.

    A file that cannot be read counts as that: who needs it will say so.

    Parameters
    ----------
    configuration : mapping or DictConfig
        Its node ``hydra`` does not count.
    """
    texts = {value for _, value in _leaves(_plain(configuration)) if isinstance(value, str)}
    return {text: _file_digest(text) for text in sorted(texts) if text and os.path.isfile(text)}


def source_digest(*packages: ModuleType) -> str:
    """SHA-256 of all modules of packages: their names within the package and their text."""
    digest = hashlib.sha256()
    for package in packages:
        _add_folder(digest, Path(str(package.__file__)).parent)
    return digest.hexdigest()


@cache
def _own_digest() -> str:
    return source_digest(*OWN)


def _add_folder(digest: Any, folder: Path) -> None:
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())


@cache
def _module_digest(name: str) -> str:
    """Digest of a top-level package, or of a module that is a file of its own; nothing is imported."""
    digest = hashlib.sha256()
    spec = _spec(name)
    if spec is None:
        return "not found"
    for folder in sorted(spec.submodule_search_locations or []):
        _add_folder(digest, Path(folder))
    if not spec.submodule_search_locations and spec.origin is not None and os.path.isfile(spec.origin):
        digest.update(Path(spec.origin).read_bytes())
    return digest.hexdigest()


def _spec(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def _plain(configuration: Any) -> Any:
    """The configuration as dicts and lists, without the node of Hydra."""
    plain = OmegaConf.to_container(configuration, resolve=True) if OmegaConf.is_config(configuration) else configuration
    return {key: value for key, value in plain.items() if key != "hydra"} if isinstance(plain, dict) else plain


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no dict and no list, with the key that it, or the list that it stands in, belongs to."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _leaves(entry, str(name))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _leaves(entry, key)
    else:
        yield key, value


def _targets(configuration: Any) -> set[str]:
    return {str(value) for key, value in _leaves(configuration) if key == "_target_"}


def _file_digest(path: str) -> str:
    """Digest of the content of a file, computed again only after the file was written to."""
    try:
        state = os.stat(path)
        return _content_digest(os.path.abspath(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    except OSError:
        return UNREADABLE


@lru_cache(maxsize=1000)
def _content_digest(path: str, *state: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
