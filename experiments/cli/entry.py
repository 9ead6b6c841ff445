"""What every command does first: set its process up, answer `--help`, then hand over to Hydra.

Until the process is set up nothing heavy is imported: Ctrl-C ends it quietly, and the line that
says what is being done is there from the first moment.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from experiments.cli.process import owns_process, set_up_process


def entry(
    name: str, module: str, read: Callable[[list[str]], list[str]] | None = None
) -> Callable[[], Any]:
    """Command `name`, in ``experiments/<name>/``: it runs ``module.run(config, folder)``; returns
    what that returns.

    What stands on the command line besides overrides and flags is made an override by `read`.
    Modules in the current folder can be named in a configuration; the toolbox's own packages come
    before them. A name that is misspelt is answered with the nearest one.

    A job of a sweep names its command as ``experiments.<name>:main``
    (`experiments.sweeps.store.Job.task`): a worker imports `main` from there, and calls what it
    wraps, ``main.__wrapped__``, with the configuration of the job.
    """

    def job(config: Any) -> Any:
        from experiments.cli.launch import launch

        return launch(module, config)

    # where Hydra and the workers of a sweep find it
    job.__module__ = f"experiments.{name}"
    job.__qualname__ = "main"

    @wraps(job)
    def main() -> Any:
        if owns_process():
            set_up_process()
        sys.path.append(os.getcwd())
        sys.argv[1:] = sys.argv[1:] if read is None else read(sys.argv[1:])
        if {"--help", "-h"} & {*sys.argv[1:]}:
            return _answer_help(name)
        from experiments.cli.launch import compose_and_run  # imports Hydra

        return compose_and_run(name, job)

    return main


def _answer_help(name: str) -> None:
    """Print the help of a command, or of the group that is named beside `--help`."""
    from experiments.cli.help import print_help

    try:
        print_help(name, next((text for text in sys.argv[1:] if text[0] != "-"), None))
        sys.stdout.flush()
    except BrokenPipeError:  # who reads, `head` for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
