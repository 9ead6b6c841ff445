"""What makes a job the job it is: the same identity gives the same result."""

import hashlib
import json
from typing import Any

from experiments.code_version import code_digest, file_digests

#: settings that decide where and how a job is run, not what comes out
WITHOUT_EFFECT = frozenset({"hydra", "cache"})


def identity_of(task: str, configuration: dict[str, Any]) -> str:
    """Digest of the command, its resolved configuration, the code, and the files that the configuration names."""
    settings = {name: value for name, value in configuration.items() if name not in WITHOUT_EFFECT}
    content = {
        "task": task,
        "settings": settings,
        "code": code_digest(settings),
        "files": file_digests(settings),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
