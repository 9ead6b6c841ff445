"""Digests of all that decides the result of a job: settings, code, and files that it reads."""

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Any

import experiments
import simulators
import sysid
from sysid.data.published import DATA_VARIABLE
from sysid.store import NUMERICAL_PACKAGES, package_versions

#: folders of the packages of the toolbox
PACKAGE_FOLDERS = [
    Path(str(package.__file__)).parent for package in (sysid, simulators, experiments)
]
#: file with the digest of the text of the toolbox, and that of its parsed code
KEPT_DIGEST = Path(cache_from_source(__file__)).with_suffix(".digest")
#: top-level packages whose versions, or Python's, are in the digest already
VERSIONED_PACKAGES = frozenset(
    {*NUMERICAL_PACKAGES, "sysid", "simulators", "experiments", *sys.stdlib_module_names}
)
#: keys of a configuration that decide where and how a job is run, not its result
WITHOUT_EFFECT = frozenset({"hydra", "cache", "report"})
#: keys of `sysid-identify` without effect on a simulated trajectory; all others have an effect
AFTER_THE_TRAJECTORY = WITHOUT_EFFECT | {
    "figures",
    "outputs",
    "validate",
    "on_missing",
    "duration",
    "identified",
    "limit",
    "budget",
    "propagation",
    "narx",
    "kernel",
    "training",
    "mean",
    "linear_part",
    "insertion",
    "acceptance",
    "reduction",
    "selection",
    "learning",
    "scale",
    "forgetting",
    "gate",
    "physics",
}
#: modules of this process that are known to have, or not to have, the code of `text_digest`
_checked_modules: set[str] = set()
_edited_modules: list[str] = []
# bytes; a larger file in a folder counts by its size and time of change, not by its content
MAX_BYTES_READ_IN_FOLDER = 2**26


def identity_of(
    task: str, configuration: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> str:
    """Return the digest of a job.

    It covers the command, its resolved configuration, the code, and the files that the
    configuration names.

    Parameters
    ----------
    task
        Function of the command.
    configuration
        Plain data. Keys that have no effect do not count.
    files
        Its `file_digests`, if they are known.
    """
    settings = {name: value for name, value in configuration.items() if name not in WITHOUT_EFFECT}
    is_lean = "outputs" in settings and settings["outputs"] in (None, "lean")  # null in a sweep
    if is_lean:
        settings |= {"outputs": "lean", "figures": None}
    content = {
        "task": task,
        "settings": settings,
        "code": code_digest(settings),
        "files": dict(file_digests(settings) if files is None else files),
    }
    return key_of(content)[:32]


def trajectory_key(configuration: Mapping[str, Any], n_samples: int) -> str:
    """Return the key of a simulated trajectory.

    It covers the settings that have an effect on the samples, the content of the files that they
    name, the code, and the number of samples.

    Parameters
    ----------
    configuration
        Resolved configuration of `sysid-identify`, as plain data.
    n_samples
        Number of samples of the simulation.
    """
    settings = {
        name: value for name, value in configuration.items() if name not in AFTER_THE_TRAJECTORY
    }
    code = code_digest(settings)
    files = file_digests(settings)
    return key_of({"settings": settings, "n_samples": n_samples, "files": files, "code": code})


def key_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of numbers, texts, lists and dicts; other values count by their `repr`."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


def code_digest(configuration: Mapping[str, Any] | None = None) -> str:
    """Return the SHA-256 of the code: with equal digests, equal settings give equal numbers.

    The code is all modules of the toolbox, the versions of Python and of the packages that
    influence the numbers, and the foreign modules that a configuration names in a ``_target_``: the
    whole package of such a module, or its one file if it is in no package (not what this file
    imports).

    Parameters
    ----------
    configuration
        Plain data, resolved. Its node ``hydra`` does not count: it states how a job is run, not
        what it computes.
    """
    found = {"toolbox": _own_digest(), "packages": package_versions()}
    found |= {f"module {name}": digest for name, digest in module_digests(configuration).items()}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def module_digests(configuration: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the digest of every foreign module that a configuration names in a ``_target_``.

    The keys are the top-level names. Each module is read once in a process.

    Parameters
    ----------
    configuration
        As that of `code_digest`.
    """
    targets = {
        str(value) for key, value in _leaves(_without_hydra(configuration)) if key == "_target_"
    }
    foreign = {target.partition(".")[0] for target in targets} - VERSIONED_PACKAGES
    return {name: _module_digest(name) for name in sorted(foreign)}


@cache
def _own_digest() -> str:
    """Return the SHA-256 of all modules of the toolbox: of their names and of their parsed code.

    Parsing takes a second. So the digest is kept in a file beside the compiled modules, together
    with the digest of the text that was parsed: it counts for this text alone.
    """
    texts = _read_toolbox()
    text = _digest_of_texts(texts)
    with suppress(OSError, ValueError):
        kept_text, kept_digest = KEPT_DIGEST.read_text().split()
        if kept_text == text and len(kept_digest) == len(text):
            return kept_digest
    digest = hashlib.sha256()
    for package in texts:
        _add_modules(digest, package)
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            own_file = KEPT_DIGEST.with_name(f"{KEPT_DIGEST.name}.{os.getpid()}")
            own_file.write_text(f"{text} {digest.hexdigest()}")
            own_file.replace(KEPT_DIGEST)
    return digest.hexdigest()


@cache
def text_digest() -> str:
    """Return the SHA-256 of the names and texts of all modules of the toolbox and of the versions.

    Equal text digests imply equal results of `code_digest`, which is slower.
    """
    return _digest_of_digests(_text_digests())


@cache
def _text_digests() -> list[dict[str, str]]:
    """Return the SHA-256 of the text of each module by its name, for each of our packages."""
    _checked_modules.update(sys.modules)  # they were imported before: later edits do not matter
    return [_digest_each(package) for package in _read_toolbox()]


def edited_modules() -> list[str]:
    """Return the modules of the toolbox that were edited after `text_digest`, and then imported.

    This process has other code than the digest says. What was imported before is in memory, so
    that an edit has no effect on it.
    """
    for name in sys.modules.keys() - _checked_modules:
        _checked_modules.add(name)
        path = Path(getattr(sys.modules[name], "__file__", None) or "")
        for folder, digests in zip(PACKAGE_FOLDERS, _text_digests(), strict=True):
            if not path.is_relative_to(folder):
                continue
            text = hashlib.sha256(path.read_bytes()).hexdigest()
            if digests.get(path.relative_to(folder).as_posix()) != text:
                _edited_modules.append(name)
    return _edited_modules


def _read_toolbox() -> list[dict[str, bytes]]:
    """Return the text of every module by its name, for each package of the toolbox."""
    return [_read_modules(folder) for folder in PACKAGE_FOLDERS]


def _read_modules(folder: Path) -> dict[str, bytes]:
    """Return the text of every module in a folder, by its name relative to the folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*.py"))
    }


def _digest_of_texts(packages: list[dict[str, bytes]]) -> str:
    """Return the SHA-256 of the texts of all modules in packages, and of the versions."""
    return _digest_of_digests([_digest_each(package) for package in packages])


def _digest_each(texts: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each text by its name."""
    return {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}


def _digest_of_digests(packages: list[dict[str, str]]) -> str:
    """Return the SHA-256 of the digests of all modules in packages, and of the versions."""
    return key_of({"modules": packages, "versions": package_versions()})


def _add_modules(digest: Any, texts: Mapping[str, bytes]) -> None:
    """Add the names and the parsed code of modules to a digest."""
    for name, text in texts.items():
        digest.update(name.encode() + _parsed(text))


def _parsed(source: bytes) -> bytes:
    """Return the parsed code of a module, without comments, docstrings and line breaks.

    A module that cannot be parsed is returned as it is.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            has_docstring = ast.get_docstring(node, clean=False) is not None
            if has_docstring:
                node.body = node.body[1:]
    return ast.dump(tree).encode()


@cache
def _module_digest(name: str) -> str:
    """Return `module_digest`; the module is read once in a process."""
    return module_digest(name)


def module_digest(name: str) -> str:
    """Return the digest of a top-level package, or of a module in no package, without import."""
    digest = hashlib.sha256()
    spec = None
    with suppress(ImportError, ValueError):
        spec = find_spec(name)
    if spec is None:
        return "not found"
    if spec.submodule_search_locations:
        for folder in sorted(spec.submodule_search_locations):
            _add_modules(digest, _read_modules(Path(folder)))
    elif spec.origin is not None and os.path.isfile(spec.origin):
        digest.update(_parsed(Path(spec.origin).read_bytes()))
    return digest.hexdigest()


def file_digests(configuration: Any) -> dict[str, str]:
    """Return the SHA-256 of every file and folder that a text in a configuration names.

    The keys are these texts. A folder counts if its name has a slash, or its key is `path` or
    `folder`: any other text could be the name of some folder by chance. A file that cannot be read
    counts as unreadable; the command that needs it reports the error. If a path is null, the data
    come from the folder that `SYSID_DATA` names, and this name is the key.

    Parameters
    ----------
    configuration
        Plain data, resolved. Keys without effect do not count, nor does `output`, the folder that a
        command makes.
    """
    content = configuration
    if isinstance(content, Mapping):
        ignored = (*WITHOUT_EFFECT, "output")
        content = {name: value for name, value in content.items() if name not in ignored}
    leaves = list(_leaves(content))
    digests = {}
    folders = {}
    for key, text in leaves:
        if not isinstance(text, str) or not text:
            continue
        if os.path.isfile(text):
            digests[text] = _file_digest(text)
        if key in ("path", "folder") or "/" in text:
            folders[text] = text
    if ("path", None) in leaves:
        folders[DATA_VARIABLE] = os.environ.get(DATA_VARIABLE, "")
    for name, folder in folders.items():
        if os.path.isdir(folder):
            digests[name] = _folder_digest(Path(folder))
    return dict(sorted(digests.items()))


def _folder_digest(folder: Path) -> str:
    """Return the digest of all files in a folder and its subfolders.

    The subfolders of a folder that contains the working folder do not count: results are in there.
    """
    contains_working_folder = Path.cwd().is_relative_to(folder.absolute())
    pattern = "*" if contains_working_folder else "**/*"
    paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    digests = {
        path.relative_to(folder).as_posix(): _file_digest(path, read_up_to=MAX_BYTES_READ_IN_FOLDER)
        for path in paths
    }
    return key_of(digests)


def _file_digest(path: str | Path, read_up_to: float = float("inf")) -> str:
    """Return the digest of a file's content; it is computed again if the file was written to.

    A file of more than `read_up_to` bytes counts by its size and time of change.
    """
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
    """Return the SHA-256 of a file; it is kept as long as the state of the file is the same."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_hydra(configuration: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of the command, without those of Hydra."""
    return {key: value for key, value in (configuration or {}).items() if key != "hydra"}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that is no dict and no list, after its key or that of its list."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _leaves(entry, str(name))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _leaves(entry, key)
    else:
        yield key, value
