"""The first steps of every command: set up, answer `--help` and `--version`, then call Hydra.

Nothing heavy is imported before the process is set up: Ctrl-C ends it quietly, and the progress
line is there from the first moment.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from experiments.cli.process import owns_process, set_up_process


def entry(
    name: str,
    module: str,
    read: Callable[[list[str]], list[str]] | None = None,
    take: Callable[[list[str]], list[str]] | None = None,
) -> Callable[[], Any]:
    """Return the function of command `name`, which is in ``experiments/<name>/``.

    The function composes the configuration, runs ``module.run(config, folder)`` and returns its
    result. Configurations may name modules in the current folder; the toolbox's own packages take
    precedence.

    A job of a sweep names its command as ``experiments.<name>:main``
    (`experiments.sweeps.store.Job.task`). A worker imports `main` from there, and calls the
    function that it wraps, ``main.__wrapped__``, with the configuration of the job.

    Parameters
    ----------
    name
        Name of the command.
    module
        Dotted name of the module with the function ``run``.
    read
        Function that turns arguments that are neither overrides nor flags into overrides.
    take
        Function that takes a primary configuration that somebody else may have written out of the
        arguments, before Hydra reads it (`experiments.cli.primary.take_primary`).
    """

    def job(config: Any) -> Any:
        from experiments.cli.launch import launch

        return launch(module, config)

    # Hydra and the workers of a sweep find the function under this name
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
        if "--version" in sys.argv[1:]:
            return _answer_version()
        from experiments.cli.launch import compose_and_run  # imports Hydra

        return compose_and_run(name, job, take)

    return main


def _answer_version() -> None:
    """Print the version of the toolbox."""
    from sysid import __version__

    print(f"sysid {__version__}")


def _answer_help(name: str) -> None:
    """Print the help of a command, or of the group that is named after `--help`."""
    from experiments.cli.help import print_help
    from experiments.cli.terminal import printable
    from sysid.errors import UserError

    try:
        group = next((text for text in sys.argv[1:] if text[0] != "-"), None)
        print_help(name, group)
        sys.stdout.flush()
    except UserError as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
