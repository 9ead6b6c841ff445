"""From checked arguments to a running experiment: quiet logs, readable errors, exit codes.

Hydra composes the configuration between `compose_and_run` and `launch`.
"""

import argparse
import importlib
import logging
import os
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
from experiments.cli.invocation import given_overrides
from experiments.cli.mistakes import check_added, check_arguments, explain_overrides
from experiments.cli.process import (
    EXIT_CODE_INTERRUPTED,
    stop_ending_at_once,
    warn_of_code_of_others,
)
from experiments.cli.run_folder import hold, remove_unused
from experiments.cli.terminal import PRINTABLE_MESSAGES, printable
from sysid.errors import UserError
from sysid.netcdf_names import obstacle_to_path

log = logging.getLogger(__name__)
# environment variable with which Hydra raises its errors instead of printing them
FULL_ERROR = "HYDRA_FULL_ERROR"
# environment variable that marks that this module has set `FULL_ERROR`
COMPOSING = "SYSID_COMPOSING"
#: packages whose many messages are shown from the level of a warning on
NOISY_PACKAGES = ("numba", "matplotlib", "fontTools")


def compose_and_run(
    name: str,
    job: Callable[[DictConfig], Any],
    take: Callable[[list[str]], list[str]] | None = None,
) -> Any:
    """Let Hydra compose the configuration of a command from the command line, and call `job`.

    `take` takes what Hydra must not read out of the arguments (`experiments.cli.entry.entry`).

    Raises
    ------
    Refused
        If the arguments or the folder of the run are refused, after a line with the reason.
    """
    if sys.version_info >= (3, 14):
        # argparse checks help texts when they are added, and one of Hydra 1.3 is no text yet
        setattr(argparse.ArgumentParser, "_check_help", lambda self, action: None)  # noqa: B010
    main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)
    check_arguments(name, sys.argv[1:])
    warn_of_code_of_others()
    if take is not None:
        sys.argv[1:] = _take(take, sys.argv[1:])
    if FULL_ERROR not in os.environ:  # errors of the composition are printed here, in one line
        os.environ[FULL_ERROR] = "1"
        os.environ[COMPOSING] = "1"
    try:
        return main()
    except Exception as error:
        known = _known_error(error)
        if COMPOSING not in os.environ or known is None:
            raise
        print(f"Error: {printable(_explain_composing(name, known))}", file=sys.stderr)
        raise Refused(1) from None
    finally:
        _end_composing()
        stop_ending_at_once()


def _take(take: Callable[[list[str]], list[str]], arguments: list[str]) -> list[str]:
    """Return what `take` leaves of the arguments; print why if it refuses them."""
    try:
        return take(arguments)
    except Exception as error:
        if not is_mistake(error):
            raise
        print(f"Error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        raise Refused(1) from None


def _known_error(error: Exception) -> Exception | None:
    """Return the error before the job that has an explanation; None if it is a bug."""
    if isinstance(error, ValueError) and isinstance(error.__cause__, OSError):
        error = error.__cause__  # `logging` could not open the log file in the folder of the run
    is_known = isinstance(error, HydraException | OmegaConfBaseException | OSError)
    return error if is_known else None


def _explain_composing(name: str, error: Exception) -> str:
    """Return the explanation of an error that was raised before the job began."""
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return (
            f"cannot write to the folder of the run, {error.filename} ({error.strerror}): set "
            "hydra.run.dir, or output if the command has it, to another folder"
        )
    return explain_overrides(name, sys.argv[1:]) or " ".join(str(error).split())


def _end_composing() -> None:
    """Restore the environment: Hydra handles later errors, and no child inherits our variables."""
    if os.environ.pop(COMPOSING, ""):
        del os.environ[FULL_ERROR]


def launch(module: str, config: DictConfig) -> float | None:
    """Run ``module.run(config, folder)``.

    A mistake of the user ends in one line and exit code 1. In a sweep of one of our launchers
    errors are raised, for the launcher.
    """
    stop_ending_at_once()  # from now on there are results to keep
    _end_composing()
    _configure_logging()
    settings = HydraConfig.get()
    folder = Path(settings.runtime.output_dir)
    is_single_run = settings.mode == RunMode.RUN
    # Hydra's own launcher would show the errors of its jobs with a traceback
    reports_errors = not is_single_run and settings.runtime.choices["hydra/launcher"] != "basic"
    try:
        if not is_single_run:
            return _run(module, config, folder)
        with hold(folder):
            try:
                return _run(module, config, folder)
            except Exception as error:
                if is_mistake(error):
                    remove_unused(folder, f"{settings.job.name}.log")
                raise
    except Stopped as stop:
        log.error("%s", stop)
        if not reports_errors:
            raise SystemExit(stop.exit_code) from None
        if stop.exit_code == EXIT_CODE_INTERRUPTED:
            raise KeyboardInterrupt from None  # Ctrl-C ends the whole sweep
        raise stop from None
    except KeyboardInterrupt:
        if reports_errors:
            raise
        log.error("Interrupted before all results were written to %s", folder)
        raise SystemExit(EXIT_CODE_INTERRUPTED) from None
    except Exception as error:
        if reports_errors or not is_mistake(error):
            raise
        log.debug("details", exc_info=True)
        log.error("Error: %s", _explain_mistake(error))
        raise SystemExit(1) from None


def _run(module: str, config: DictConfig, folder: Path) -> float | None:
    """Check the folder and the keys of a run, and run it."""
    settings = HydraConfig.get()
    obstacle = obstacle_to_path(folder)
    if obstacle:
        raise UserError(f"cannot write results to {folder}: {obstacle}")
    check_keys(config, str(settings.job.config_name))
    added = [text for text in given_overrides() if text.startswith("+")]
    if settings.mode == RunMode.RUN and added:
        check_added(OverridesParser.create().parse_overrides(added), config)
    result: float | None = importlib.import_module(module).run(config, folder)
    return result


def _explain_mistake(error: Exception) -> str:
    """Return the text of an error that ends a command with one line."""
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"not enough memory{reason}: ask for fewer samples, records, lags or points"
    return str(error) or type(error).__name__


def _configure_logging() -> None:
    """Log printable texts, Python's warnings, and only the warnings of noisy packages."""
    logging.captureWarnings(True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(PRINTABLE_MESSAGES)
        # Hydra opens it in the encoding of the locale
        if isinstance(handler, logging.FileHandler) and handler.stream is not None:
            handler.stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    logging.raiseExceptions = False  # the run goes on if the output is closed, as by `| head`
    for package in NOISY_PACKAGES:
        logging.getLogger(package).setLevel(logging.WARNING)
