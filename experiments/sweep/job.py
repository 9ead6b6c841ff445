"""One job of a sweep, and what became of it: plain data that any worker process understands."""

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to run a job."""

    number: int  # of its folder in the sweep
    folder: str  # absolute
    identity: str  # digest of configuration, code and files: the same job gives the same result
    overrides: tuple[str, ...]  # of the command line
    task: str  # function of the command, "experiments.identify:main"
    configuration: str = field(repr=False)  # resolved, with the node hydra, as JSON
    code: str = ""  # digest of the code and packages that the sweep counts on; empty: any
    cwd: str = ""  # working folder: relative paths mean what they mean to the sweep; empty: that of the worker
    search_path: tuple[str, ...] = ()  # folders of modules
    time_limit: float | None = None  # s
    memory_limit: int | None = None  # byte


class Outcome(NamedTuple):
    """How a job ended."""

    number: int
    done: bool
    value: float | None = None  # what the command returns
    error: str = ""  # kind and message
    traceback: str = ""
    seconds: float = 0.0  # wall time in the worker
    stored: bool = False  # in the folder of the job
