"""How a benchmark folder was made: the command, the time, the versions."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from sysid.store import provenance

HIDDEN = ("seed=", "output=", "hydra.")  # they tell the answer, or folders of this machine
OWN = {"simulators", "sysid", "experiments"}


def origin(settings: Any) -> dict[str, str]:
    """Command line without seed and folders, time, versions and commit; `settings` is the resolved configuration."""
    stamp = provenance()
    versions = json.loads(stamp["package_versions"])
    found = {
        "made": stamp["creation_time"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "source commit": stamp.get("source_commit", "unknown"),
    }
    if not HydraConfig.initialized():
        return found
    overrides = [item for item in HydraConfig.get().overrides.task if not item.lstrip("+~").startswith(HIDDEN)]
    words = shlex.join(["sysid-generate", *_folder_of_configuration(), *overrides])
    own = sorted({module for module in _modules(settings) if module.partition(".")[0] not in OWN})
    if not own:
        return {"command": words} | found
    needed = f"PYTHONPATH must name the folder from which {', '.join(f'`{module}`' for module in own)} is imported"
    return {"command": f"PYTHONPATH=. {words}", "needs": needed} | found


def _modules(settings: Any) -> Iterator[str]:
    """Modules of all classes that a configuration names."""
    if isinstance(settings, dict):
        if isinstance(target := settings.get("_target_"), str):
            yield target.rpartition(".")[0]
        settings = list(settings.values())
    if isinstance(settings, list):
        for entry in settings:
            yield from _modules(entry)


def _folder_of_configuration() -> list[str]:
    """Folder of the user's configuration files as an option, relative to where the command ran if it lies below."""
    sources = HydraConfig.get().runtime.config_sources
    if not [source for source in sources if source.provider == "command-line"]:
        return []
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    given = parser.parse_known_args(sys.argv[1:])[0].config_dir
    if given is None:
        return []
    below = Path(os.path.relpath(given))
    return ["--config-dir", below.as_posix() if ".." not in below.parts else f"path/to/{below.name}"]
