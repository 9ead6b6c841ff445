"""From the command line to a running experiment: checks, quiet logs, readable errors, interrupts, exit codes."""

import argparse
import hashlib
import importlib
import json
import logging
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import simulators.errors
import sysid.errors
from experiments import end_at_once
from experiments.options import meant
from sysid.errors import UserError

if sys.version_info >= (3, 14):  # argparse looks into help texts when they are added; one of Hydra 1.3 is no text yet
    setattr(argparse.ArgumentParser, "_check_help", lambda self, action: None)  # noqa: B010
CONF = Path(__file__).resolve().parents[1] / "conf"
#: errors that end a command in one line; whatever else is raised keeps its traceback
MISTAKES = (
    *(sysid.errors.UserError, sysid.errors.UserTypeError),
    *(simulators.errors.UserError, simulators.errors.UserTypeError, simulators.errors.SimulationError),
    *(OSError, OmegaConfBaseException),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
log = logging.getLogger(__name__)
FULL_ERROR, COMPOSING = "HYDRA_FULL_ERROR", "SYSID_COMPOSING"  # environment: lets Hydra raise; that we have set it


def entry(name: str, module: str, read: Callable[[list[str]], list[str]] | None = None) -> Callable[[], Any]:
    """Command `name`, in ``experiments/<name>.py``: it runs ``module.run(config, folder)``; returns what that returns.

    What stands on the command line besides overrides and flags is made an override by `read`. Modules in the current
    folder can be named in a configuration; the toolbox's own packages come before them. A name that is misspelt is
    answered with the nearest one.
    """

    def job(config: DictConfig) -> Any:
        return launch(module, config)

    job.__module__, job.__qualname__ = f"experiments.{name}", "main"  # where Hydra and the workers of a sweep find it
    main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)

    @wraps(job)
    def run() -> Any:
        sys.path.append(os.getcwd())
        sys.argv[1:] = sys.argv[1:] if read is None else read(sys.argv[1:])
        if {"--help", "-h"} & {*sys.argv[1:]}:
            from experiments.help import print_help

            try:
                print_help(name, next((text for text in sys.argv[1:] if text[0] != "-"), None))
                sys.stdout.flush()
            except BrokenPipeError:  # who reads, `head` for example, has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        check_arguments(name, sys.argv[1:])
        if FULL_ERROR not in os.environ:  # what cannot be composed is told here, in one line
            os.environ[FULL_ERROR] = os.environ[COMPOSING] = "1"
        try:
            return main()
        except (HydraException, OmegaConfBaseException, OSError) as error:
            if COMPOSING not in os.environ:
                raise
            if isinstance(error, OSError) and not isinstance(error, HydraException):
                reason = f"({error.strerror}): set hydra.run.dir, or output, if the command has it, to another"
                told = f"cannot write to the folder of the run, {error.filename} {reason}"
            else:
                told = _hint(name, sys.argv[1:]) or " ".join(str(error).split())
            print(f"Error: {told}", file=sys.stderr)
            raise Refused(1) from None
        finally:
            _end_composing()

    return run


def _hint(name: str, arguments: Sequence[str]) -> str:
    """What is wrong with the overrides of a configuration that cannot be composed; empty if it is no name."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from experiments.sweeps.keys import explain

    try:
        parsed = OverridesParser.create().parse_overrides([text for text in arguments if text[0] != "-"])
        overrides = [one for one in parsed if not one.key_or_group.startswith("hydra")]
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config, loader = compose(name), GlobalHydra.instance().config_loader()
            chosen = [str(one.input_line) for one in overrides if loader.get_group_options(one.key_or_group)]
            with suppress(HydraException, OmegaConfBaseException):
                config = compose(name, overrides=chosen)
            return explain(ValueError(""), overrides, config, loader)
    except Exception:  # Hydra has said what it knows
        return ""


def check_arguments(name: str, arguments: Sequence[str]) -> None:
    """Refuse what is no setting, and numbers and the like in the place of an option of a group.

    Raises
    ------
    Refused
        After the line that says what to type.
    """
    if told := _find_mistake(name, arguments):
        print(f"Error: {told}", file=sys.stderr)
        raise Refused(1)


def _find_mistake(name: str, arguments: Sequence[str]) -> str:
    """What to type instead of the first argument that is wrong; empty if none is."""
    flags, unknown = get_args_parser().parse_known_args(arguments)
    if unknown and unknown[0][:1] != "-":
        return f"{unknown[0]}: write flags, such as -m, before all settings"
    if unknown:
        key, _, value = unknown[0].lstrip("-").partition("=")
        value = value or next((text for text in [*unknown[1:], *flags.overrides] if "=" not in text), "...")
        return f"{unknown[0]}: settings are written without dashes, {key}={value}"
    for number, text in enumerate(flags.overrides):
        try:
            one = OverridesParser.create().parse_override(text)
        except HydraException as error:
            rest = flags.overrides[number:]  # the shell has split a list at its blanks
            end = next((k for k, one in enumerate(rest) if one.endswith("]")), 0) if "=[" in text else 0
            return _explain_argument(name, " ".join(rest[: end + 1]), error)
        group, values = one.key_or_group, getattr(one._value, "list", one._value)
        names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        given = values if isinstance(values, list) else [values]
        wrong = [value for value in given if value is None or isinstance(value, bool | int | float | list)]
        if wrong and names and not one.is_delete():
            return f"{one.input_line}: {group} must be one of {', '.join(names)}"
    return ""


def _explain_argument(name: str, text: str, error: Exception) -> str:
    """What to type instead of an argument that is no override."""
    key, equals, value = text.partition("=")
    if equals:  # a name with brackets, blanks, ...: in quotes of both kinds
        names = value[1:-1].split(",") if value[:1] == "[" and value[-1:] == "]" else [value]
        quoted = ",".join(f'"{one.strip()}"' for one in names)
        written = f"{key}=[{quoted}]" if value[:1] == "[" else f"{key}={quoted}"
        with suppress(HydraException):
            OverridesParser.create().parse_override(written)
            how = "put a value with brackets, blanks or signs into quotes of both kinds"
            return f"{text}: {how}, {shlex.quote(written)}"
        return f"{text}: {' '.join(str(error).split())}"
    known = known_keys(name)
    if "data" in known and Path(text).suffix.lower() in (".csv", ".txt", ".dat"):
        role = "estimation" if name == "identify" else "test"
        return f"{text}: to read a file write data=csv data.{role}={text} 'data.inputs=[...]' 'data.outputs=[...]'"
    if "model" in known and (text.endswith(".nc") or Path(text).is_dir()):
        return f"{text}: to name a model write model={Path(text) / 'model.nc' if Path(text).is_dir() else text}"
    return f"{text}: expected key=value or group=option; sysid-{name} --help lists them"


def _end_composing() -> None:
    """From here on Hydra tells errors, and whatever is started inherits nothing."""
    if os.environ.pop(COMPOSING, ""):
        del os.environ[FULL_ERROR]


class Refused(SystemExit):
    """The command has said why it ends: there is nothing to add."""


class Stopped(Exception):
    """The run ended early; what it had computed is stored. Carries the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def launch(module: str, config: DictConfig) -> float | None:
    """Run ``module.run(config, folder)``; in a single run a mistake ends in one line and exit code 1."""
    if signal.getsignal(signal.SIGINT) is end_at_once:  # in a command's own process, in its main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on there is something to keep
    _end_composing()
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # who reads the terminal may stop reading (| head): the run goes on
    for noisy in ("numba", "matplotlib", "fontTools"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = HydraConfig.get()
    single = settings.mode == RunMode.RUN
    try:
        check_keys(config, str(settings.job.config_name))
        if single and (added := [text for text in settings.overrides.task if text.startswith("+")]):
            from experiments.sweeps.keys import check_added

            check_added(OverridesParser.create().parse_overrides(added), config)
        return importlib.import_module(module).run(config, Path(settings.runtime.output_dir))
    except Stopped as stop:
        log.error("%s", stop)
        if single:
            raise SystemExit(stop.exit_code) from None
        raise (KeyboardInterrupt if stop.exit_code == 130 else stop) from None  # Ctrl-C ends the whole sweep
    except KeyboardInterrupt:
        if not single:
            raise
        log.error("Interrupted before all results were written to %s", settings.runtime.output_dir)
        raise SystemExit(130) from None
    except Exception as error:
        if not single or not is_mistake(error):
            raise
        log.debug("details", exc_info=True)
        log.error("Error: %s", str(error) or type(error).__name__)
        remove_unused(Path(settings.runtime.output_dir), f"{settings.job.name}.log")
        raise SystemExit(1) from None


def remove_unused(folder: Path, log_file: str) -> None:
    """Remove the folder of a run that was refused, unless it is the working folder or holds more than Hydra writes."""
    if folder.resolve() != Path.cwd() and {path.name for path in folder.iterdir()} <= {".hydra", log_file}:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_name(command: str, overrides: Sequence[str]) -> str:
    """Name of the folder of a sweep: the same command finds the same folder, whatever runs it.

    Parameters
    ----------
    command : str
    overrides : sequence of str
        Of the command line, those of Hydra left out; their order does not count, the version of the code does.
    """
    from experiments.sweeps.identity import code_digest

    if isinstance(overrides, ListConfig):  # interpolations as they are: many can be looked up in a job only
        overrides = OmegaConf.to_container(overrides, resolve=False)  # type: ignore[assignment]
    lines = [str(line) for line in overrides]
    named = [line.partition("=")[2] for line in lines if line.startswith(("experiment=", "+experiment="))]
    content = json.dumps([command, sorted(lines), code_digest()])
    return f"{named[-1] if named else command}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


OmegaConf.register_new_resolver("sweep_name", sweep_name, replace=True)


def check_keys(config: DictConfig, name: str) -> None:
    """Refuse keys that a command of the package does not know, which ``+key=value`` would add silently.

    Raises
    ------
    ValueError
        With the nearest valid name.
    """
    known = known_keys(name)
    for key in config if known else ():
        if key not in known and key != "hydra":
            raise UserError(f"unknown configuration key {key!r}{meant(str(key), known)}")


@cache
def known_keys(name: str) -> list[str]:
    """Keys of a command of the package; none for a primary configuration of the user's own."""
    if not (CONF / f"{name}.yaml").is_file():
        return []
    primary = OmegaConf.load(CONF / f"{name}.yaml")
    assert isinstance(primary, DictConfig)
    known = {str(key) for key in primary} - {"defaults", "hydra"}
    for entry in primary.get("defaults", []):
        if isinstance(entry, str):
            known |= set(known_keys(entry))
        elif not str(next(iter(entry))).startswith("override "):
            known.add(str(next(iter(entry))).split("@")[0])
    return sorted(known)


# --- errors and interrupts ------------------------------------------------------------------------


def is_mistake(error: BaseException) -> bool:
    """Whether an error tells of a mistake of the user, not of ours.

    A mistake is what the toolbox refuses, what the operating system refuses, and what the configuration cannot hold.
    Any other ``ValueError`` or ``TypeError`` is a bug.
    """
    return isinstance(error, MISTAKES)


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C, and SIGTERM where it is handled, until the block is done; then handle it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, frame: Any) -> None:
        arrived.append(number)

    handlers = {one: signal.getsignal(one) for one in SIGNALS}
    before = {one: signal.signal(one, remember) for one, handler in handlers.items() if callable(handler)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        if arrived:  # also after an error, which it may have caused
            handle: Any = before[signal.Signals(arrived[0])]
            handle(arrived[0], None)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt at either signal; what is yielded raises it again, if it was lost.

    Python cannot raise anything inside a finaliser or a callback of the interpreter: it prints the exception there and
    goes on. A signal that the process ignores, as background jobs of a shell ignore Ctrl-C, is still ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    arrived: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        arrived.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if arrived:
            raise KeyboardInterrupt

    def unraisable(event: Any) -> None:
        if not (arrived and issubclass(event.exc_type, KeyboardInterrupt)):
            hook(event)

    numbers = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    before, hook = {one: signal.signal(one, interrupt) for one in numbers}, sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        yield check
    finally:
        sys.unraisablehook = hook
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def no_interrupt_for_children() -> Iterator[None]:
    """Start processes and threads in the block that never see Ctrl-C: their parent ends them."""
    from multiprocessing import resource_tracker  # slow to import

    resource_tracker.ensure_running()  # its start would let Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
