"""What decides the result of a job: its settings, the code that computes, and the files that it
reads, as digests.
"""

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import experiments
import simulators
import sysid
from sysid.data.published import DATA_VARIABLE
from sysid.store import NUMERICAL_PACKAGES, package_versions

OWN_FOLDERS = [Path(str(package.__file__)).parent for package in (sysid, simulators, experiments)]
#: top-level packages whose version stands in the digest already, with that of Python
VERSIONED = frozenset(
    {*NUMERICAL_PACKAGES, "sysid", "simulators", "experiments", *sys.stdlib_module_names}
)
#: keys of a configuration that decide where and how a job is run, not what comes out
WITHOUT_EFFECT = frozenset({"hydra", "cache", "report"})
#: keys of `sysid-identify` that decide what becomes of a simulated trajectory, not its samples; all others decide it
AFTER_THE_TRAJECTORY = WITHOUT_EFFECT | {
    *(
        "figures",
        "outputs",
        "validate",
        "on_missing",
        "duration",
        "identified",
        "budget",
        "propagation",
    ),
    *(
        "narx",
        "kernel",
        "training",
        "mean",
        "insertion",
        "acceptance",
        "reduction",
        "selection",
    ),
    *("learning", "scale", "forgetting", "gate", "physics"),
}
LARGE = (
    2**26
)  # bytes; a file in a folder that is larger counts by its size and time, not by its content


def identity_of(
    task: str, configuration: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> str:
    """Digest of the command, its resolved configuration, the code, and the files that the
    configuration names.

    Parameters
    ----------
    task
        Function of the command.
    configuration
        Plain data; keys that have no effect do not count.
    files
        Its `file_digests`, if they are known.
    """
    settings = {name: value for name, value in configuration.items() if name not in WITHOUT_EFFECT}
    if "outputs" in settings and settings["outputs"] in (
        None,
        "lean",
    ):  # in a sweep null means lean
        settings |= {"outputs": "lean", "figures": None}
    found = file_digests(settings) if files is None else files
    content = {
        "task": task,
        "settings": settings,
        "code": code_digest(settings),
        "files": dict(found),
    }
    return key_of(content)[:32]


def trajectory_key(configuration: Mapping[str, Any], n_samples: int) -> str:
    """Key of a simulated trajectory: the settings that decide it, the content of its files, the
    code, the samples.

    Parameters
    ----------
    configuration
        Of `sysid-identify`, resolved, as plain data.
    n_samples
        Of the simulation.
    """
    settings = {
        name: value for name, value in configuration.items() if name not in AFTER_THE_TRAJECTORY
    }
    code = code_digest(settings)
    files = file_digests(settings)
    return key_of({"settings": settings, "n_samples": n_samples, "files": files, "code": code})


def key_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of numbers, texts, lists and dicts; other values count by their `repr`."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def code_digest(configuration: Mapping[str, Any] | None = None) -> str:
    """SHA-256 of everything that computes: equal digests compute the same numbers from the same
    settings.

    These are all modules of the toolbox, the versions of Python and of the packages that decide the
    numbers, and the modules of others that a configuration names in a ``_target_``: the whole
    package that such a module lies in, or the one file of a module that lies in none (not what this
    file imports).

    Parameters
    ----------
    configuration
        Plain data, resolved. Its node ``hydra`` does not count: it says how a job is run, not what
        it computes.
    """
    found = {"toolbox": _own_digest(), "packages": package_versions()}
    targets = {
        str(value) for key, value in _leaves(_without_hydra(configuration)) if key == "_target_"
    }
    foreign = {target.partition(".")[0] for target in targets} - VERSIONED
    found |= {f"module {name}": _module_digest(name) for name in sorted(foreign)}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


@cache
def _own_digest() -> str:
    """SHA-256 of all modules of the toolbox: their names within their package and what they
    compute.
    """
    digest = hashlib.sha256()
    for folder in OWN_FOLDERS:
        _add_modules(digest, folder)
    return digest.hexdigest()


@cache
def text_digest() -> str:
    """SHA-256 of the text of the toolbox and of the versions: where it is equal, so is
    `code_digest`; it is faster.
    """
    digest = hashlib.sha256(package_versions().encode())
    for path in (path for folder in OWN_FOLDERS for path in sorted(folder.rglob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _add_modules(digest: Any, folder: Path) -> None:
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + _parsed(path))


def _parsed(path: Path) -> bytes:
    """Return what Python parses of a module; comments, docstrings and line breaks do not count."""
    source = path.read_bytes()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
    return ast.dump(tree).encode()


@cache
def _module_digest(name: str) -> str:
    """Digest of a top-level package, or of a module that is a file of its own; nothing is
    imported.
    """
    digest = hashlib.sha256()
    spec = None
    with suppress(ImportError, ValueError):
        spec = find_spec(name)
    if spec is None:
        return "not found"
    for folder in sorted(spec.submodule_search_locations or []):
        _add_modules(digest, Path(folder))
    if (
        not spec.submodule_search_locations
        and spec.origin is not None
        and os.path.isfile(spec.origin)
    ):
        digest.update(_parsed(Path(spec.origin)))
    return digest.hexdigest()


def file_digests(configuration: Any) -> dict[str, str]:
    """SHA-256 of the content of every file and folder that a text in a configuration names, by that
    text.

    A folder counts if its name has a slash, or its key is `path` or `folder`: any text may be the
    name of some folder. A file that cannot be read counts as that: who needs it will say so. Where
    a path is null, data come from the folder that `SYSID_DATA` names, which counts by that name.

    Parameters
    ----------
    configuration
        Plain data, resolved. Its keys that have no effect do not count, nor does `output`, the
        folder that a command makes.
    """
    content = configuration
    if isinstance(content, Mapping):
        content = {
            name: value
            for name, value in content.items()
            if name not in (*WITHOUT_EFFECT, "output")
        }
    leaves = list(_leaves(content))
    texts = [(key, value) for key, value in leaves if isinstance(value, str) and value]
    found = {text: _file_digest(text) for _, text in texts if os.path.isfile(text)}
    folders = {text: text for key, text in texts if key in ("path", "folder") or "/" in text}
    if ("path", None) in leaves:
        folders[DATA_VARIABLE] = os.environ.get(DATA_VARIABLE, "")
    found |= {
        name: _folder_digest(Path(folder))
        for name, folder in folders.items()
        if os.path.isdir(folder)
    }
    return dict(sorted(found.items()))


def _folder_digest(folder: Path) -> str:
    """Digest of all files in a folder; of one around the working folder, where results lie too,
    without subfolders.
    """
    pattern = "*" if Path.cwd().is_relative_to(folder.absolute()) else "**/*"
    paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    return key_of(
        {
            path.relative_to(folder).as_posix(): _file_digest(path, read_up_to=LARGE)
            for path in paths
        }
    )


def _file_digest(path: str | Path, read_up_to: float = float("inf")) -> str:
    """Digest of the content of a file, computed again only after the file was written to."""
    try:
        state = os.stat(path)
        if state.st_size > read_up_to:
            return f"{state.st_size} bytes of {state.st_mtime_ns}"
        return _content_digest(
            os.path.abspath(path),
            state.st_ino,
            state.st_size,
            state.st_mtime_ns,
            state.st_ctime_ns,
        )
    except OSError:
        return "unreadable"


@lru_cache(maxsize=10_000)
def _content_digest(path: str, *state: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_hydra(configuration: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of the command alone."""
    return {key: value for key, value in (configuration or {}).items() if key != "hydra"}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no dict and no list, with the key that it, or the list that it stands in,
    belongs to.
    """
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _leaves(entry, str(name))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _leaves(entry, key)
    else:
        yield key, value
