"""Where a file comes from: time, package versions and source commit, as attributes of the file."""

from __future__ import annotations

import json
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("sysid", "numpy", "scipy", "xarray", "netCDF4", "numba")
GIT_TIMEOUT = 2.0  # s


def provenance() -> dict[str, str]:
    """Return the creation time (ISO, UTC), package versions (JSON) and source commit, if there is one.

    >>> sorted(provenance().keys() - {"source_commit"})
    ['creation_time', 'package_versions']
    """
    commit = source_commit()
    return {
        "creation_time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "package_versions": package_versions(),
        **({"source_commit": commit} if commit else {}),
    }


@cache
def package_versions() -> str:
    """Return the versions of Python and of the packages that decide the numbers, as a JSON object."""
    return json.dumps({"python": platform.python_version()} | {name: _version(name) for name in PACKAGES})


@cache
def source_commit(folder: Path = Path(__file__).parent) -> str | None:
    """Commit of the git checkout whose top level holds the package folder; None without such a checkout.

    A checkout further up (say, the user's project around a virtual environment) does not count.
    """
    command = ["git", "-C", str(folder), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    top, commit = answer.stdout.split("\n")[:2]
    if Path(top).resolve() != folder.resolve().parent:
        return None
    return commit + ("-modified" if _is_modified(folder) else "")


def _is_modified(folder: Path) -> bool:
    """Whether a tracked file of the checkout differs from its commit."""
    command = ["git", "-C", str(folder), "diff", "--quiet", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, timeout=GIT_TIMEOUT).returncode == 1
    except (OSError, subprocess.SubprocessError):
        return False


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
