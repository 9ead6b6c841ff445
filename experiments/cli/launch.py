"""From checked arguments to a running experiment: quiet logs, readable errors, exit codes.

Hydra composes the configuration between `compose_and_run` and `launch`.
"""

import argparse
import importlib
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.config import CONF, check_keys
from experiments.cli.ends import Refused, Stopped, is_mistake
from experiments.cli.mistakes import check_added, check_arguments, explain_overrides
from experiments.cli.process import stop_ending_at_once

log = logging.getLogger(__name__)
#: environment variables: one lets Hydra raise its errors, the other says that we have set the first
FULL_ERROR = "HYDRA_FULL_ERROR"
COMPOSING = "SYSID_COMPOSING"
#: packages whose messages below a warning would bury those of a run
NOISY_PACKAGES = ("numba", "matplotlib", "fontTools")


def compose_and_run(name: str, job: Callable[[DictConfig], Any]) -> Any:
    """Let Hydra compose the configuration of command `name` from the command line and call `job`
    with it.

    Raises
    ------
    Refused
        After one line that says what is wrong with the arguments, or with the folder of the run.
    """
    if sys.version_info >= (
        3,
        14,
    ):  # argparse checks help texts when they are added; one of Hydra 1.3 is no text yet
        setattr(argparse.ArgumentParser, "_check_help", lambda self, action: None)  # noqa: B010
    main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)
    check_arguments(name, sys.argv[1:])
    if FULL_ERROR not in os.environ:  # what cannot be composed is told here, in one line
        os.environ[FULL_ERROR] = "1"
        os.environ[COMPOSING] = "1"
    try:
        return main()
    except (HydraException, OmegaConfBaseException, OSError) as error:
        if COMPOSING not in os.environ:
            raise
        print(f"Error: {_explain_composing(name, error)}", file=sys.stderr)
        raise Refused(1) from None
    finally:
        _end_composing()
        stop_ending_at_once()


def _explain_composing(name: str, error: Exception) -> str:
    """Explain an error that came before the job began."""
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        reason = (
            f"({error.strerror}): set hydra.run.dir, or output, if the command has it, to another"
        )
        return f"cannot write to the folder of the run, {error.filename} {reason}"
    return explain_overrides(name, sys.argv[1:]) or " ".join(str(error).split())


def _end_composing() -> None:
    """Restore the environment: later errors are Hydra's, and child processes do not inherit our
    variables.
    """
    if os.environ.pop(COMPOSING, ""):
        del os.environ[FULL_ERROR]


def launch(module: str, config: DictConfig) -> float | None:
    """Run ``module.run(config, folder)``; in a single run a mistake ends in one line and exit code
    1.
    """
    stop_ending_at_once()  # from here on there is something to keep
    _end_composing()
    logging.captureWarnings(True)
    logging.raiseExceptions = (
        False  # who reads the terminal may stop reading (| head): the run goes on
    )
    for package in NOISY_PACKAGES:
        logging.getLogger(package).setLevel(logging.WARNING)
    settings = HydraConfig.get()
    single = settings.mode == RunMode.RUN
    try:
        check_keys(config, str(settings.job.config_name))
        added = [text for text in settings.overrides.task if text.startswith("+")]
        if single and added:
            check_added(OverridesParser.create().parse_overrides(added), config)
        return importlib.import_module(module).run(config, Path(settings.runtime.output_dir))
    except Stopped as stop:
        log.error("%s", stop)
        if single:
            raise SystemExit(stop.exit_code) from None
        raise (
            KeyboardInterrupt if stop.exit_code == 130 else stop
        ) from None  # Ctrl-C ends the whole sweep
    except KeyboardInterrupt:
        if not single:
            raise
        log.error(
            "Interrupted before all results were written to %s",
            settings.runtime.output_dir,
        )
        raise SystemExit(130) from None
    except Exception as error:
        if not single or not is_mistake(error):
            raise
        log.debug("details", exc_info=True)
        log.error("Error: %s", str(error) or type(error).__name__)
        remove_unused(Path(settings.runtime.output_dir), f"{settings.job.name}.log")
        raise SystemExit(1) from None


def remove_unused(folder: Path, log_file: str) -> None:
    """Remove the folder of a run that was refused, unless it is the working folder or holds more
    than Hydra writes.
    """
    if folder.resolve() != Path.cwd() and {path.name for path in folder.iterdir()} <= {
        ".hydra",
        log_file,
    }:
        shutil.rmtree(folder, ignore_errors=True)
